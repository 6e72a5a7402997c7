//! The table of a population in its own numbering.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, Float64Array, RecordBatch, UInt64Array};
use arrow_select::interleave::interleave;

use super::Population;
use super::first_table::table_schema;
use super::stored_columns::StoredColumns;
use crate::error::{Error, Result};
use crate::format::BATCH_ROWS;

/// `cache_id`, `sample_id`, the stored columns and `weight` of every population row, in batches. O(n).
///
/// # Errors
/// What is wrong with a metadata batch.
pub fn population_table(population: &Population) -> Result<Vec<RecordBatch>> {
    let caches = population.caches();
    let stored = StoredColumns::read(caches)?;
    let schema = table_schema(stored.columns());
    let parts = population.parts();
    let weight = |row: u64| match parts.as_ref().map(|(_, weights)| weights.as_slice()) {
        None => 1.0,
        Some([one]) => *one,
        Some(weights) => usize::try_from(row).ok().and_then(|row| weights.get(row)).copied().unwrap_or(f64::NAN),
    };
    let columns: Vec<Vec<&dyn Array>> = (0..stored.columns().len())
        .map(|column| stored.arrays(column).into_iter().map(AsRef::as_ref).collect())
        .collect();
    let mut batches = Vec::new();
    let mut start = 0;
    while start < population.rows() {
        let end = population.rows().min(start + u64::from(BATCH_ROWS));
        let (mut cache_ids, mut sample_ids, mut places) = (Vec::new(), Vec::new(), Vec::new());
        for row in start..end {
            let (cache, place, sample) = caches.locate(population.record(row)?)?;
            cache_ids.push(cache.cache_id().0);
            sample_ids.push(sample.0);
            let place = stored.place(place, sample.0);
            places.push((place.batch, place.row));
        }
        let mut arrays: Vec<ArrayRef> =
            vec![Arc::new(UInt64Array::from(cache_ids)), Arc::new(UInt64Array::from(sample_ids))];
        for column in &columns {
            arrays.push(interleave(column, &places).map_err(|error| Error::metadata(error.to_string()))?);
        }
        arrays.push(Arc::new(Float64Array::from_iter_values((start..end).map(weight))));
        let batch = RecordBatch::try_new(Arc::clone(&schema), arrays);
        batches.push(batch.map_err(|error| Error::metadata(error.to_string()))?);
        start = end;
    }
    Ok(batches)
}
