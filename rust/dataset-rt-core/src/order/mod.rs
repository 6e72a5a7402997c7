//! Which sample comes when: ORDER v1.
//!
//! Everything here is a pure function of integers. No clock, no global random state and no I/O take part, so the same
//! population, seed and position name the same row on every machine, for ever.
//!
//! ```text
//!  position ──► Sampler ──► row of the population
//!     ▲            └ Mode: ordered · with replacement (philox, Weights) · without (philox, Permutation, PassCache)
//!     │
//!   Window ◄── World (rank, size, remainder): deals the draws of one epoch to the ranks
//!     ▲
//!   Cursor ──► Ticket ──► Progress: where a dataset stands, who reserved what, and how much of it was consumed
//! ```
//!
//! A *draw* is one element of an endless stream, its number is its *position*, and a *window* is the stretch of the
//! stream that one epoch delivers.

mod cursor;
mod feistel;
mod fisher_yates;
mod mode;
mod pass_cache;
mod permutation;
mod philox;
mod progress;
mod replacement;
mod sampler;
mod scale;
mod weights;
mod window;
mod world;

pub use cursor::{Cursor, Ticket};
pub use mode::Mode;
pub use pass_cache::PassCache;
pub use permutation::Permutation;
pub use philox::{DRAW, PASS, philox4x64_10};
pub use progress::{CursorState, Progress};
pub use replacement::{replacement_point, replacement_row};
pub use sampler::Sampler;
pub use weights::Weights;
pub use window::{Window, batches_of};
pub use world::{Remainder, World};

/// Version of the order: which row a position names, and how windows are dealt.
///
/// It changes only when a stored state would mean other samples, never with the version of the package.
pub const ORDER_VERSION: u32 = 1;
