//! The fields of stored rows, as the content digest takes them.

use arrow_array::cast::AsArray;
use arrow_array::types::{Date32Type, Float64Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, ArrayRef, RecordBatch};

use super::column::{Column, ColumnKind};
use super::value::Value;
use crate::Result;

/// Appends the fields of `row` of a batch of these columns to `out`, each as [`Value::encode`] writes it.
///
/// # Errors
///
/// [`Error::Metadata`](crate::Error::Metadata) for a string whose length does not fit 32 bits, which no writer stores.
pub fn encode_fields(batch: &RecordBatch, columns: &[Column], row: usize, out: &mut Vec<u8>) -> Result<()> {
    batch.columns().iter().zip(columns).try_for_each(|(array, column)| value(array, column.kind, row).encode(out))
}

/// The value at `row` of an array of this kind, as [`decode_batch`](super::decode_batch) makes them.
fn value(array: &ArrayRef, kind: ColumnKind, row: usize) -> Value {
    if array.is_null(row) {
        return Value::Null;
    }
    match kind {
        ColumnKind::Boolean => Value::Boolean(array.as_boolean().value(row)),
        ColumnKind::Int64 => Value::Int64(array.as_primitive::<Int64Type>().value(row)),
        ColumnKind::Float64 => Value::Float64(array.as_primitive::<Float64Type>().value(row)),
        ColumnKind::String => Value::String(array.as_string::<i64>().value(row).to_owned()),
        ColumnKind::Date => Value::Date(array.as_primitive::<Date32Type>().value(row)),
        ColumnKind::Datetime => Value::Datetime(array.as_primitive::<TimestampMicrosecondType>().value(row)),
    }
}
