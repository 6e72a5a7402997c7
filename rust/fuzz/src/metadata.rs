//! Any bytes are a metadata file whose batches hold what the manifest says, or an error; and no panic of Arrow's is
//! behind such an error.

use std::path::Path;

use arrow_array::{Array, RecordBatch};
use dataset_rt_core::Error;
use dataset_rt_core::format::{
    Column, ColumnKind, MetadataRegions, Region, arrow_schema, check_region, decode_batch, decode_footer, xxh3_64,
};

const FILE: &str = "cache/metadata.arrow";

/// What follows the footer: its length in four bytes, and the magic.
const TRAILER_BYTES: usize = 10;

/// The first byte chooses the columns, the next two are the rows of each batch, and the rest is the file.
///
/// The regions that a manifest would name are taken from the file's own footer, so that they fit and everything behind
/// them is reached.
pub fn check(bytes: &[u8]) -> bool {
    let Some((settings, file)) = bytes.split_first_chunk::<3>() else { return false };
    let [choice, low, high] = *settings;
    let columns = columns(choice);
    let rows = u64::from(u16::from_le_bytes([low, high]));
    let Some(regions) = regions(file) else { return false };
    let slice = |region: &Region| {
        let start = usize::try_from(region.offset).unwrap_or(usize::MAX);
        let end = usize::try_from(region.end()?).ok()?;
        Some(file.get(start..end)?.to_vec())
    };
    let Some(footer) = slice(&regions.footer) else { return false };
    check_region("footer", &footer, &regions.footer, Path::new(FILE)).expect("the footer's own checksum");
    let footer = match decode_footer(&footer, &regions, &columns, Path::new(FILE)) {
        Ok(footer) => footer,
        Err(error) => return refused(&error),
    };
    let mut taken = false;
    for (number, region) in regions.batches.iter().enumerate() {
        let Some(bytes) = slice(region) else { return false };
        let most = bytes.len();
        taken = match decode_batch(&footer, number, bytes, rows, Path::new(FILE)) {
            Ok(batch) => accepted(&batch, &columns, rows, most),
            Err(error) => refused(&error),
        };
    }
    taken
}

/// A panic that was caught inside a library is an error for users, and a finding here.
fn refused(error: &Error) -> bool {
    assert!(error.fault().is_some(), "{error}");
    assert!(!error.to_string().contains("a panic in it"), "{error}");
    false
}

fn accepted(batch: &RecordBatch, columns: &[Column], rows: u64, most: usize) -> bool {
    assert_eq!(batch.schema(), arrow_schema(columns));
    assert_eq!(batch.num_rows() as u64, rows);
    for (array, column) in batch.columns().iter().zip(columns) {
        assert!(column.has_nulls || array.null_count() == 0);
        array.to_data().validate_full().expect("a batch that was accepted is valid");
        let used = array.to_data().get_slice_memory_size().expect("a valid array has a size");
        assert!(used <= most.saturating_add(64), "{used} bytes out of {most}");
    }
    true
}

/// Some of the kinds, named as in `testdata/format`, with nulls or without.
fn columns(choice: u8) -> Vec<Column> {
    let bit = |number: usize| (choice >> number) & 1 == 1;
    (0..)
        .zip(ColumnKind::ALL.into_iter().zip(["flag", "count", "score", "text", "day", "moment"]))
        .filter(|(number, _)| bit(*number))
        .map(|(_, (kind, name))| Column { has_nulls: bit(6), kind, name: name.to_owned() })
        .collect()
}

/// Where the file's own footer says that everything lies.
fn regions(file: &[u8]) -> Option<MetadataRegions> {
    let trailer = file.len().checked_sub(TRAILER_BYTES)?;
    let length = i32::from_le_bytes(*file.get(trailer..)?.first_chunk()?);
    let start = trailer.checked_sub(usize::try_from(length).ok()?)?;
    let region = |offset: usize, bytes: usize| {
        let xxh3 = xxh3_64(file.get(offset..offset.checked_add(bytes)?)?);
        Some(Region { bytes: bytes as u64, offset: offset as u64, xxh3 })
    };
    let footer = arrow_ipc::root_as_footer(file.get(start..trailer)?).ok()?;
    let batches = footer.recordBatches().into_iter().flatten().map(|block| {
        let bytes =
            usize::try_from(block.metaDataLength()).ok()?.checked_add(usize::try_from(block.bodyLength()).ok()?)?;
        region(usize::try_from(block.offset()).ok()?, bytes)
    });
    Some(MetadataRegions { batches: batches.collect::<Option<_>>()?, footer: region(start, file.len() - start)? })
}
