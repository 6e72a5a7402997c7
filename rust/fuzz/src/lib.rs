//! What must hold for any bytes whatever: one claim a part of the format, which panics where it does not hold, and says
//! whether the bytes were taken.
//!
//! The fuzz targets try these on bytes that they make up, and a test of `dataset-rt-core` on every file of `seeds/` and
//! `regressions/`, so that what fuzzing once found stays found.

pub mod index;
pub mod manifest;
pub mod metadata;
pub mod record;
