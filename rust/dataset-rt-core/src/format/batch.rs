//! One record batch of `metadata.arrow`.
//!
//! Arrow's reader slices and allocates what a message tells it, and panics where that is too much. So the whole
//! message is held to the region's length, the schema and the row count first; its reader then sees sound lengths
//! only, and checks what is left: that strings are UTF-8, that their offsets ascend, and that nulls are as many as said.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Date32Type, TimestampMicrosecondType};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_buffer::Buffer;
use arrow_ipc::reader::FileDecoder;
use arrow_ipc::{Block, MessageHeader, MetadataVersion};

use super::column::{Column, ColumnKind};
use super::metadata::{Footer, Mismatch, first_line, require};
use crate::{Error, Result};

/// What precedes a message: a marker, then the message's length as four bytes.
const PREFIX_BYTES: usize = 8;

/// The marker: not a length, so that readers of Arrow's oldest format stop.
const CONTINUATION: &[u8; 4] = &[0xFF; 4];

/// Days of the years 1 to 9999, counted from 1970-01-01.
const DAYS: std::ops::RangeInclusive<i64> = -719_162..=2_932_896;

const MICROS_PER_DAY: i64 = 86_400_000_000;

/// Arrow buffers start at multiples of this.
const BUFFER_ALIGNMENT: u64 = 8;

/// Reads batch `batch_number` from `bytes`, the bytes of its region; [`check_region`](super::check_region) comes first.
///
/// The batch's columns share the memory of `bytes`: nothing is copied, unless the allocator placed `bytes` where Arrow
/// cannot use them, and then no more than they are. Cost: one pass, which validates UTF-8 and offsets.
///
/// # Errors
///
/// [`Error::MetadataArrow`] for anything but `expected_rows` valid rows of the footer's columns, in which columns without nulls
/// have none.
pub fn decode_batch(
    footer: &Footer,
    batch_number: usize,
    bytes: Vec<u8>,
    expected_rows: u64,
    file: &Path,
) -> Result<RecordBatch> {
    let part = format!("batch {batch_number}");
    let refused = |Mismatch { expected, found }| Error::MetadataArrow {
        file: file.to_path_buf(),
        part: part.clone(),
        expected,
        found,
    };
    let block = footer.blocks.get(batch_number).ok_or_else(|| {
        refused(Mismatch { expected: format!("one of {} batches", footer.blocks.len()), found: part.clone() })
    })?;
    guarded(&part, file, || {
        check_message(&bytes, block, &footer.columns, expected_rows).map_err(refused)?;
        let decoder = FileDecoder::new(Arc::clone(&footer.schema), MetadataVersion::V5);
        let batch = decoder
            .read_record_batch(block, &Buffer::from_vec(bytes))
            .map_err(|error| refused(Mismatch { expected: "valid values".to_owned(), found: error.to_string() }))?
            .ok_or_else(|| refused(Mismatch { expected: "a batch".to_owned(), found: "none".to_owned() }))?;
        check_batch(&batch, footer, expected_rows).map_err(refused)?;
        Ok(batch)
    })
}

/// Runs `read`, and turns a panic of the libraries that it calls into an error about `part` of `file`.
pub(super) fn guarded<T>(part: &str, file: &Path, read: impl FnOnce() -> Result<T>) -> Result<T> {
    // Unwind safety: what `read` changes is its own, and is dropped by the unwinding.
    catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|panic| {
        let message = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("without a message");
        Err(Error::MetadataArrow {
            file: file.to_path_buf(),
            part: part.to_owned(),
            expected: "data that Arrow's reader accepts".to_owned(),
            found: format!("a panic in it: {message}"),
        })
    })
}

/// Holds a batch's message to the region that it lies in, to the columns and to the number of rows.
fn check_message(
    bytes: &[u8],
    block: &Block,
    columns: &[Column],
    expected_rows: u64,
) -> std::result::Result<(), Mismatch> {
    let metadata_bytes = usize::try_from(block.metaDataLength()).unwrap_or(usize::MAX);
    let (metadata, body) = bytes.split_at_checked(metadata_bytes).ok_or_else(|| Mismatch {
        expected: format!("{metadata_bytes} bytes of message"),
        found: format!("{} bytes", bytes.len()),
    })?;
    let body_bytes = body.len() as u64;
    require("body length", &block.bodyLength(), &i64::try_from(body_bytes).unwrap_or(i64::MAX))?;
    let (prefix, message) = metadata.split_first_chunk::<PREFIX_BYTES>().ok_or_else(|| Mismatch {
        expected: format!("at least {PREFIX_BYTES} bytes of message"),
        found: format!("{metadata_bytes} bytes"),
    })?;
    let message_bytes = u32::try_from(message.len()).unwrap_or(u32::MAX);
    let (marker, length) = prefix.split_at(CONTINUATION.len());
    require("message prefix", &CONTINUATION.as_slice(), &marker)?;
    require("message length", &message_bytes.to_le_bytes().as_slice(), &length)?;

    let message = arrow_ipc::root_as_message(message)
        .map_err(|error| Mismatch { expected: "an Arrow message".to_owned(), found: first_line(&error) })?;
    require("metadata version", &MetadataVersion::V5, &message.version())?;
    require("message body length", &block.bodyLength(), &message.bodyLength())?;
    require("message type", &MessageHeader::RecordBatch, &message.header_type())?;
    let missing = |what: &str| Mismatch { expected: what.to_owned(), found: "none".to_owned() };
    let batch = message.header_as_record_batch().ok_or_else(|| missing("a record batch"))?;
    let rows = i64::try_from(expected_rows).unwrap_or(i64::MAX);
    require("rows", &rows, &batch.length())?;
    require("compression", &false, &batch.compression().is_some())?;
    require("variadic buffers", &0, &batch.variadicBufferCounts().map_or(0, |counts| counts.len()))?;

    let nodes = batch.nodes().ok_or_else(|| missing("a list of columns"))?;
    require("columns", &columns.len(), &nodes.len())?;
    let buffers = batch.buffers().ok_or_else(|| missing("a list of buffers"))?;
    let expected_buffers = columns.iter().map(|column| 1 + value_buffers(column.kind)).sum::<usize>();
    require("buffers", &expected_buffers, &buffers.len())?;

    // Buffers that neither overlap nor leave the body can only ask for as much memory as there are bytes.
    let mut buffers = buffers.iter();
    let mut filled = 0;
    let mut next_length = |name: &str| {
        let buffer = buffers.next().ok_or_else(|| missing("another buffer"))?;
        let place = u64::try_from(buffer.offset()).ok().zip(u64::try_from(buffer.length()).ok());
        match place.and_then(|(offset, length)| Some((offset, length, offset.checked_add(length)?))) {
            Some((offset, length, end)) if offset >= filled && end <= body_bytes && offset % BUFFER_ALIGNMENT == 0 => {
                filled = end;
                Ok(length)
            }
            _ => Err(Mismatch {
                expected: format!(
                    "a buffer of column {name:?} in bytes {filled} to {body_bytes} of the body, aligned to \
                     {BUFFER_ALIGNMENT}"
                ),
                found: format!("{} bytes at offset {}", buffer.length(), buffer.offset()),
            }),
        }
    };
    for (node, Column { has_nulls, kind, name }) in nodes.iter().zip(columns) {
        require(&format!("rows of column {name:?}"), &rows, &node.length())?;
        let most_nulls = if *has_nulls { rows } else { 0 };
        if !(0..=most_nulls).contains(&node.null_count()) {
            return Err(Mismatch {
                expected: format!("0 to {most_nulls} nulls in column {name:?}"),
                found: node.null_count().to_string(),
            });
        }
        // Buffers of bits, of numbers of some width, or of text. How long text must be is for the offsets to say, which
        // Arrow's reader checks; it panics, though, at a buffer that ends within a number.
        let bits = (1, Some(expected_rows.div_ceil(8)));
        let numbers = |width, count: Option<u64>| (width, count.and_then(|count| count.checked_mul(width)));
        let validity = if node.null_count() > 0 { bits } else { (1, Some(0)) };
        let values = match kind {
            ColumnKind::Boolean => bits,
            ColumnKind::Int64 | ColumnKind::Float64 | ColumnKind::Datetime => numbers(8, Some(expected_rows)),
            ColumnKind::Date => numbers(4, Some(expected_rows)),
            // One offset more than there are strings.
            ColumnKind::String => numbers(8, expected_rows.checked_add(1)),
        };
        let text = (1, Some(0));
        for (width, least) in [validity, values, text].into_iter().take(1 + value_buffers(*kind)) {
            let length = next_length(name)?;
            if least.is_none_or(|least| length < least) || length % width != 0 {
                return Err(Mismatch {
                    expected: format!("buffers of column {name:?} for {expected_rows} rows"),
                    found: format!("one of {length} bytes"),
                });
            }
        }
    }
    Ok(())
}

/// How many buffers hold a column's values, beside the one that says which are null.
const fn value_buffers(kind: ColumnKind) -> usize {
    match kind {
        ColumnKind::String => 2,
        _ => 1,
    }
}

/// Holds what Arrow's reader made of a batch to the footer.
fn check_batch(batch: &RecordBatch, footer: &Footer, expected_rows: u64) -> std::result::Result<(), Mismatch> {
    require("schema", &footer.schema, &batch.schema())?;
    require("rows", &expected_rows, &(batch.num_rows() as u64))?;
    for (array, column) in batch.columns().iter().zip(&footer.columns) {
        if !column.has_nulls {
            require(&format!("nulls in column {:?}", column.name), &0, &array.null_count())?;
        }
        check_years(array, column)?;
    }
    Ok(())
}

/// Dates and datetimes lie in the years 1 to 9999, as those of a source do: others have no value in Python.
fn check_years(array: &ArrayRef, column: &Column) -> std::result::Result<(), Mismatch> {
    let outside = match column.kind {
        ColumnKind::Date => {
            let array = array.as_primitive::<Date32Type>();
            array.iter().flatten().map(i64::from).find(|days| !DAYS.contains(days))
        }
        ColumnKind::Datetime => {
            let array = array.as_primitive::<TimestampMicrosecondType>();
            array.iter().flatten().find(|micros| !DAYS.contains(&micros.div_euclid(MICROS_PER_DAY)))
        }
        _ => None,
    };
    match outside {
        None => Ok(()),
        Some(found) => Err(Mismatch {
            expected: format!("{} values of column {:?} in the years 1 to 9999", column.kind.name(), column.name),
            found: found.to_string(),
        }),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise, and panics on purpose")]

    use super::*;

    #[test]
    fn a_panic_of_a_library_becomes_an_error() {
        let guard = |read: fn() -> Result<()>| guarded("batch 4", Path::new("m.arrow"), read);
        guard(|| Ok(())).unwrap();
        let message = guard(|| panic!("offset {} of 3", 5)).unwrap_err().to_string();
        let expected = "m.arrow: batch 4: data that Arrow's reader accepts expected, found a panic in it: ";
        assert_eq!(message, format!("{expected}offset 5 of 3"));
        let message = guard(|| panic!("length")).unwrap_err().to_string();
        assert_eq!(message, format!("{expected}length"));
    }
}
