//! Batches: one buffer for the payloads of a run, which becomes an Arrow column without another copy.

use std::mem::MaybeUninit;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, LargeBinaryArray, RecordBatch, RecordBatchOptions, UInt64Array};
use arrow_buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use arrow_select::interleave::interleave;

use super::plan::Run;
use super::spare_buffers::SpareBuffers;
use super::task::Filled;
use crate::error::{Error, Result};
use crate::format::{Column, arrow_schema};
use crate::store::{CacheSet, PayloadSlots};

/// The payloads of a run, end to end in one buffer.
#[derive(Debug)]
pub struct BatchSlots {
    /// Its length stays 0 while its spare memory is filled.
    buffer: Vec<u8>,
    offsets: Vec<i64>,
    spare: Option<Arc<SpareBuffers>>,
}

impl BatchSlots {
    /// Memory for the payloads of `run`, taken from `spare` if there is any, which it goes back to in the end.
    ///
    /// # Errors
    /// As [`BatchSlots::for_run`].
    pub fn from_spare(spare: &Arc<SpareBuffers>, run: &Run) -> Result<Self> {
        Self::with_buffer(spare.take(run.payload_bytes), Some(Arc::clone(spare)), run)
    }

    /// Memory for the payloads of `run`.
    ///
    /// # Errors
    /// [`Error::Config`] where the batch is larger than the address space.
    pub fn for_run(run: &Run) -> Result<Self> {
        Self::with_buffer(Vec::new(), None, run)
    }

    fn with_buffer(mut buffer: Vec<u8>, spare: Option<Arc<SpareBuffers>>, run: &Run) -> Result<Self> {
        let too_large = || Error::config(format!("a batch of {} payload bytes is too large", run.payload_bytes));
        let mut offsets = Vec::with_capacity(run.records.len() + 1);
        let mut end = 0_i64;
        offsets.push(end);
        for record in &run.records {
            let bytes = i64::try_from(record.entry.payload_bytes).map_err(|_| too_large())?;
            end = end.checked_add(bytes).ok_or_else(too_large)?;
            offsets.push(end);
        }
        buffer.try_reserve_exact(usize::try_from(end).map_err(|_| too_large())?).map_err(|_| too_large())?;
        Ok(Self { buffer, offsets, spare })
    }

    /// The column of payloads, once every slot was filled.
    fn into_column(mut self) -> Result<LargeBinaryArray> {
        let bytes = self.offsets.last().and_then(|end| usize::try_from(*end).ok()).unwrap_or_default();
        #[expect(unsafe_code, reason = "the buffer was filled through its spare capacity")]
        // SAFETY: `bytes` is at most the capacity that `with_buffer` reserved, the slots cover `0..bytes` without gaps, and
        // a run is given out as finished only after every slot of it was written.
        unsafe {
            self.buffer.set_len(bytes);
        }
        let offsets = OffsetBuffer::new(ScalarBuffer::from(self.offsets));
        let values = match self.spare {
            Some(spare) => spare.lend(self.buffer),
            None => Buffer::from_vec(self.buffer),
        };
        LargeBinaryArray::try_new(offsets, values, None).map_err(internal)
    }
}

impl PayloadSlots for BatchSlots {
    fn slot(&mut self, index: usize) -> &mut [MaybeUninit<u8>] {
        let bound = |index: usize| self.offsets.get(index).and_then(|offset| usize::try_from(*offset).ok());
        let range = bound(index).unwrap_or(0)..bound(index.saturating_add(1)).unwrap_or(0);
        self.buffer.spare_capacity_mut().get_mut(range).unwrap_or_default()
    }
}

/// Schema of a batch: `cache_id`, `sample_id`, the stored columns in order, `data`.
#[must_use]
pub fn batch_schema(columns: &[Column]) -> SchemaRef {
    let identity = ["cache_id", "sample_id"].map(|name| Arc::new(Field::new(name, DataType::UInt64, false)));
    let stored = arrow_schema(columns);
    let data = Arc::new(Field::new("data", DataType::LargeBinary, false));
    let fields = identity.into_iter().chain(stored.fields().iter().cloned()).chain([data]);
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// The record batch of a run that was read.
///
/// # Errors
/// What is wrong with a metadata batch.
pub fn assemble(caches: &CacheSet, schema: &SchemaRef, filled: Filled<BatchSlots>) -> Result<RecordBatch> {
    let (run, slots) = filled.into_parts();
    if run.records.is_empty() {
        // Where nothing was asked for, there is no metadata batch to gather from.
        return Ok(RecordBatch::new_empty(Arc::clone(schema)));
    }
    let cache = |place: usize| caches.by_id().get(place).map(|cache| cache.cache_id().0).unwrap_or_default();
    let cache_ids = UInt64Array::from_iter_values(run.records.iter().map(|record| cache(record.cache)));
    let sample_ids = UInt64Array::from_iter_values(run.records.iter().map(|record| record.sample.0));
    let mut columns: Vec<ArrayRef> = vec![Arc::new(cache_ids), Arc::new(sample_ids)];
    columns.extend(stored_columns(caches, schema.fields().len().saturating_sub(3), &run)?);
    columns.push(Arc::new(slots.into_column()?));
    let options = RecordBatchOptions::new().with_row_count(Some(run.records.len()));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options).map_err(internal)
}

/// The stored columns of a run's records, gathered from the metadata batches.
fn stored_columns(caches: &CacheSet, columns: usize, run: &Run) -> Result<Vec<ArrayRef>> {
    if columns == 0 {
        return Ok(Vec::new());
    }
    let mut batches: Vec<&RecordBatch> = Vec::new();
    let mut places = Vec::with_capacity(run.records.len());
    for record in &run.records {
        let Some(cache) = caches.by_id().get(record.cache) else { continue };
        let (batch, row) = cache.metadata_of(record.sample)?;
        let known = batches.iter().rposition(|known| std::ptr::eq(*known, batch));
        let number = known.unwrap_or_else(|| {
            batches.push(batch);
            batches.len() - 1
        });
        places.push((number, row));
    }
    (0..columns)
        .map(|column| {
            let arrays: Vec<&dyn Array> =
                batches.iter().filter_map(|batch| batch.columns().get(column).map(AsRef::as_ref)).collect();
            interleave(&arrays, &places).map_err(internal)
        })
        .collect()
}

#[expect(clippy::needless_pass_by_value, reason = "it serves map_err")]
fn internal(error: arrow_schema::ArrowError) -> Error {
    Error::Internal { message: error.to_string() }
}
