//! The stored columns of a set of caches, for comparing a table with them.

use arrow_array::{ArrayRef, RecordBatch};

use crate::error::Result;
use crate::format::{BATCH_ROWS, Column};
use crate::store::CacheSet;

/// Where a record's stored values are: the number of the metadata batch, counted through all caches, and the row in it.
#[derive(Clone, Copy, Debug)]
pub struct StoredPlace {
    /// Number of the batch.
    pub batch: usize,
    /// Row in the batch.
    pub row: usize,
}

/// All metadata batches of a set of caches.
#[derive(Debug)]
pub struct StoredColumns {
    columns: Vec<Column>,
    batches: Vec<RecordBatch>,
    /// Number of each cache's first batch, by place in the set.
    first_batches: Vec<usize>,
}

impl StoredColumns {
    /// Reads and checks whatever is not held yet.
    ///
    /// # Errors
    /// As [`crate::store::Cache::read_batch`].
    pub fn read(caches: &CacheSet) -> Result<Self> {
        let columns = caches.columns();
        let (mut batches, mut first_batches) = (Vec::new(), Vec::new());
        if !columns.is_empty() {
            for cache in caches.by_id() {
                first_batches.push(batches.len());
                for number in 0..cache.batches() {
                    batches.push(cache.read_batch(number)?);
                }
            }
        }
        Ok(Self { columns, batches, first_batches })
    }

    /// The columns in stored order.
    #[must_use]
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// One column's arrays, a batch each.
    #[must_use]
    pub fn arrays(&self, column: usize) -> Vec<&ArrayRef> {
        self.batches.iter().filter_map(|batch| batch.columns().get(column)).collect()
    }

    /// Where the values of a cache's sample are.
    #[must_use]
    pub fn place(&self, cache: usize, sample: u64) -> StoredPlace {
        let first = self.first_batches.get(cache).copied().unwrap_or(usize::MAX);
        let rows = BATCH_ROWS as u64;
        StoredPlace {
            batch: first.saturating_add(usize::try_from(sample / rows).unwrap_or(usize::MAX)),
            row: usize::try_from(sample % rows).unwrap_or_default(),
        }
    }
}
