//! Threads and queues: the pool, reading ahead, and the pipeline of a write. Everything is bounded.

mod batch;
mod content;
mod delivery_digest;
mod encode;
mod order_digest;
mod outside;
mod plan;
mod pool;
mod read_ahead;
mod spare_buffers;
mod task;
mod verify;
mod verify_folder;
mod write;
mod write_pipeline;

pub use batch::{BatchSlots, assemble, batch_schema};
pub use content::content_digest;
pub use delivery_digest::{OrderHasher, PayloadHasher};
pub use encode::{PendingSample, SampleBatch};
pub use order_digest::order_digest;
pub use outside::{Outside, WAIT};
pub use plan::{Drawer, Run, plan, resize};
pub use pool::{Job, Pool, Runtime};
pub use read_ahead::{FinishedRun, ReadAhead, ReadLimits};
pub use spare_buffers::SpareBuffers;
pub use task::{Filled, Outcome, Stopped, Task, Work, read_in_pieces};
pub use verify::{VerifyObserver, verify_caches};
pub use verify_folder::{Verification, verify_folder};
pub use write::{SampleFeed, WriteLimits, WriteObserver, Written, find_published, write_cache};
