//! The table of caches that nobody edited: every sample once, with weight 1.

use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, RecordBatch, UInt64Array};
use arrow_schema::{DataType, Field, Schema, SchemaRef};

use crate::error::{Error, Result};
use crate::format::{BATCH_ROWS, Column, arrow_schema};
use crate::store::CacheSet;

/// Schema of the table: `cache_id`, `sample_id`, the stored columns in order, `weight`.
#[must_use]
pub fn table_schema(columns: &[Column]) -> SchemaRef {
    let identity = ["cache_id", "sample_id"].map(|name| Arc::new(Field::new(name, DataType::UInt64, false)));
    let stored = arrow_schema(columns);
    let weight = Arc::new(Field::new("weight", DataType::Float64, false));
    let fields = identity.into_iter().chain(stored.fields().iter().cloned()).chain([weight]);
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// The first table: the caches in the order given, each by `sample_id`, a record batch for each of metadata.
#[derive(Debug)]
pub struct FirstTable {
    caches: Arc<CacheSet>,
    schema: SchemaRef,
    /// Place of the current cache in the order given, and the next batch in it.
    next: (usize, usize),
}

impl FirstTable {
    /// The table of `caches`. Nothing is read before the first batch is asked for.
    #[must_use]
    pub fn new(caches: Arc<CacheSet>) -> Self {
        let schema = table_schema(&caches.columns());
        Self { caches, schema, next: (0, 0) }
    }

    /// The table's schema.
    #[must_use]
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn batch(&self, cache: usize, number: usize) -> Result<RecordBatch> {
        let Some((cache, _)) = self.caches.given().nth(cache) else {
            return Err(Error::config("the table has no such batch"));
        };
        let stored = cache.read_batch(number)?;
        let first = number as u64 * BATCH_ROWS as u64;
        let rows = (cache.samples() - first).min(BATCH_ROWS as u64);
        let sample_ids = UInt64Array::from_iter_values(first..first + rows);
        let cache_ids = UInt64Array::from_value(cache.cache_id().0, sample_ids.len());
        let weights = Float64Array::from_value(1.0, sample_ids.len());
        let mut columns: Vec<ArrayRef> = vec![Arc::new(cache_ids), Arc::new(sample_ids)];
        columns.extend(stored.columns().iter().cloned());
        columns.push(Arc::new(weights));
        RecordBatch::try_new(self.schema(), columns).map_err(|error| Error::metadata(error.to_string()))
    }
}

impl Iterator for FirstTable {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        let (mut cache, mut number) = self.next;
        while number >= self.caches.given().nth(cache)?.0.batches() {
            (cache, number) = (cache + 1, 0);
        }
        self.next = (cache, number + 1);
        Some(self.batch(cache, number))
    }
}
