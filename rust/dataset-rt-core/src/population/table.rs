//! Checks an edited table against the caches before anything changes.

use std::collections::HashSet;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, UInt64Type};
use arrow_array::{Array, ArrayRef, Float64Array, RecordBatch, UInt64Array};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{DataType, SchemaRef};

use super::compare::{Difference, first_difference, to_stored_type};
use super::stored_columns::StoredColumns;
use crate::error::{Error, Result};
use crate::format::Column;
use crate::identifier::CacheId;
use crate::store::CacheSet;

/// Rows that are compared at a time, so that the places of their stored values stay in the processor's cache.
const SLICE_ROWS: usize = 16_384;

/// A table that passed every check, in the table's own order.
#[derive(Debug)]
pub struct CheckedTable {
    /// Record number of each row.
    pub records: Vec<u64>,
    /// Weight of each row: positive and finite. Shares the table's own memory where it holds 64-bit floats in one piece.
    pub weights: Float64Array,
}

/// Checks the table `batches` with columns `cache_id`, `sample_id`, every stored column and `weight`, in any order.
///
/// # Errors
/// [`Error::Metadata`] naming the column, and the first row that breaks a rule.
pub fn check_table(caches: &CacheSet, schema: &SchemaRef, batches: &[RecordBatch]) -> Result<CheckedTable> {
    let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
    check_names(caches, schema)?;
    if rows == 0 {
        return Err(Error::metadata(
            "the table must have at least one row, got none; a filter that matches nothing, perhaps",
        ));
    }
    if u32::try_from(rows).is_err() {
        return Err(Error::metadata(format!("the table must have fewer than 2^32 rows, got {rows}")));
    }
    let stored = StoredColumns::read(caches)?;
    let mut records = Vec::with_capacity(rows);
    let mut weights = Vec::with_capacity(batches.len());
    for batch in batches.iter().filter(|batch| batch.num_rows() > 0) {
        let first_row = records.len();
        check_identities(caches, batch, first_row, &mut records)?;
        weights.push(check_weights(batch, first_row)?);
        check_stored(caches, batch, first_row, &stored, &records)?;
    }
    let weights = match weights.as_slice() {
        [weights] => weights.clone(),
        pieces => pieces.iter().flat_map(|piece| piece.values().iter().copied()).collect::<Vec<f64>>().into(),
    };
    Ok(CheckedTable { records, weights })
}

fn check_names(caches: &CacheSet, schema: &SchemaRef) -> Result<()> {
    let mut names = HashSet::new();
    for field in schema.fields() {
        if !names.insert(field.name().as_str()) {
            return Err(Error::metadata(format!(
                "each column must stand once in the table, got {:?} twice",
                field.name()
            )));
        }
    }
    let columns = caches.columns();
    let required = ["cache_id", "sample_id"].into_iter().chain(columns.iter().map(|column| column.name.as_str()));
    for name in required.chain(["weight"]) {
        if !names.contains(name) {
            let found: Vec<&String> = schema.fields().iter().map(|field| field.name()).collect();
            return Err(Error::metadata(format!(
                "the table must have the column {name:?}, got {found:?}; keep the columns that get_metadata() gives"
            )));
        }
    }
    Ok(())
}

fn check_identities(caches: &CacheSet, batch: &RecordBatch, first_row: usize, records: &mut Vec<u64>) -> Result<()> {
    let cache_ids = integers(batch, "cache_id", first_row)?;
    let sample_ids = integers(batch, "sample_id", first_row)?;
    // Neighbouring rows are mostly of one cache.
    let mut last: Option<(u64, u64, u64)> = None;
    for (row, (&cache_id, &sample_id)) in cache_ids.values().iter().zip(sample_ids.values()).enumerate() {
        let (base, samples) = match last {
            Some((known, base, samples)) if known == cache_id => (base, samples),
            _ => {
                let Some((cache, base)) = caches.find(CacheId(cache_id)) else {
                    let known: Vec<u64> = caches.by_id().iter().map(|cache| cache.cache_id().0).collect();
                    let row = first_row + row;
                    return Err(Error::metadata(format!(
                        "row {row}: cache_id must be one of the opened caches {known:?}, got {cache_id}"
                    )));
                };
                last = Some((cache_id, base, cache.samples()));
                (base, cache.samples())
            }
        };
        if sample_id >= samples {
            let row = first_row + row;
            return Err(Error::metadata(format!(
                "row {row}: sample_id must be in [0, {samples}) for cache_id {cache_id}, got {sample_id}"
            )));
        }
        records.push(base + sample_id);
    }
    Ok(())
}

/// An identity column as 64-bit integers, whatever integer type it has.
fn integers(batch: &RecordBatch, name: &str, first_row: usize) -> Result<UInt64Array> {
    let array = column(batch, name)?;
    if !array.data_type().is_integer() {
        return Err(Error::metadata(format!("column {name:?} must hold integers, got {}", array.data_type())));
    }
    let options = CastOptions { safe: true, ..CastOptions::default() };
    let cast = cast_with_options(array, &DataType::UInt64, &options)
        .map_err(|error| Error::metadata(format!("column {name:?} must hold integers: {error}")))?;
    if let Some(row) = (0..cast.len()).find(|row| cast.is_null(*row)).filter(|_| cast.null_count() > 0) {
        let found = if array.is_null(row) { "null" } else { "a negative number" };
        return Err(Error::metadata(format!(
            "row {}: {name} must be an integer in [0, 2^64), got {found}",
            first_row + row
        )));
    }
    Ok(cast.as_primitive::<UInt64Type>().clone())
}

fn check_weights(batch: &RecordBatch, first_row: usize) -> Result<Float64Array> {
    let array = column(batch, "weight")?;
    let found = array.data_type();
    if !(found.is_numeric() || *found == DataType::Null) {
        return Err(Error::metadata(format!("column \"weight\" must hold numbers, got {found}")));
    }
    let cast = cast_with_options(array, &DataType::Float64, &CastOptions { safe: true, ..CastOptions::default() })
        .map_err(|error| Error::metadata(format!("column \"weight\" must hold numbers: {error}")))?;
    let cast: &Float64Array = cast.as_primitive::<Float64Type>();
    for row in 0..cast.len() {
        let weight = cast.is_valid(row).then(|| cast.value(row));
        match weight {
            Some(weight) if weight > 0.0 && weight.is_finite() => {}
            _ => {
                let found = weight.map_or_else(|| "null".to_owned(), |weight| weight.to_string());
                return Err(Error::metadata(format!(
                    "row {}: weight must be positive and finite, got {found}; filter rows out that must not be drawn",
                    first_row + row
                )));
            }
        }
    }
    Ok(cast.clone())
}

fn check_stored(
    caches: &CacheSet,
    batch: &RecordBatch,
    first_row: usize,
    stored: &StoredColumns,
    records: &[u64],
) -> Result<()> {
    let mut columns = Vec::with_capacity(stored.columns().len());
    for (number, stored_column) in stored.columns().iter().enumerate() {
        let found = to_stored_type(stored_column, column(batch, &stored_column.name)?)?;
        columns.push((stored_column, found, stored.arrays(number)));
    }
    if columns.is_empty() {
        return Ok(());
    }
    let mut places = Vec::with_capacity(SLICE_ROWS);
    let mut start = first_row;
    for slice in records.get(first_row..).unwrap_or_default().chunks(SLICE_ROWS) {
        places.clear();
        for record in slice {
            let (_, place, sample) = caches.locate(*record)?;
            places.push(stored.place(place, sample.0));
        }
        let mut first: Option<(&Column, Difference)> = None;
        for (stored_column, found, arrays) in &columns {
            let part = found.slice(start - first_row, slice.len());
            if let Some(difference) = first_difference(stored_column, &part, arrays, &places)
                && first.as_ref().is_none_or(|(_, known)| difference.row < known.row)
            {
                first = Some((stored_column, difference));
            }
        }
        if let Some((stored_column, difference)) = first {
            let row = start + difference.row;
            let (cache, _, sample) = caches.locate(records.get(row).copied().unwrap_or(u64::MAX))?;
            return Err(Error::metadata(format!(
                "row {row} (cache_id {}, sample_id {sample}): stored column {:?} must keep its value {}, got {}; put \
                 annotations into a column of another name",
                cache.cache_id().0,
                stored_column.name,
                difference.expected,
                difference.found,
            )));
        }
        start += slice.len();
    }
    Ok(())
}

fn column<'batch>(batch: &'batch RecordBatch, name: &str) -> Result<&'batch ArrayRef> {
    batch.column_by_name(name).ok_or_else(|| Error::metadata(format!("the table must have the column {name:?}")))
}
