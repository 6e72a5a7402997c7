//! `metadata.arrow`: the samples' metadata as an Arrow IPC file, one row a sample.
//!
//! Every row group has exactly [`BATCH_ROWS`] rows but the last, so the batch of a sample follows from its number. The
//! file is plain Arrow for other readers; this crate reads the footer and single batches by the offsets and checksums
//! that the manifest has of them, and reads a batch (`batch.rs`) when one of its samples is first wanted.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::builder::{
    BooleanBuilder, Date32Builder, Float64Builder, Int64Builder, LargeStringBuilder, TimestampMicrosecondBuilder,
};
use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_ipc::writer::{FileWriter, IpcWriteOptions};
use arrow_ipc::{Block, DateUnit, Endianness, MetadataVersion, Precision, TimeUnit, Type};
use arrow_schema::{ArrowError, Field, Schema, SchemaRef};
use std::hash::Hasher;

use twox_hash::XxHash3_64;

use super::batch::guarded;
use super::column::{Column, ColumnKind, check_columns};
use super::name::shortened;
use super::region::{MetadataRegions, Region};
use super::value::{Value, canonical};
use super::xxh3_64;
use crate::{Error, Result};

/// Rows of every batch but the last.
pub const BATCH_ROWS: u32 = 65_536;

/// Buffers start at multiples of this, as Arrow recommends for processors' widest registers.
const ALIGNMENT: usize = 64;

/// Arrow's magic, which ends the file; the footer's length stands before it as four bytes.
const ARROW_MAGIC: &[u8; 6] = b"ARROW1";

/// Length of what follows Arrow's footer.
const TRAILER_BYTES: usize = 4 + ARROW_MAGIC.len();

/// How many batches hold `samples` rows.
#[must_use]
pub const fn batch_count(samples: u64) -> u64 {
    samples.div_ceil(BATCH_ROWS as u64)
}

/// The Arrow schema of these columns. Every field is nullable, so the same columns have the same schema whether or not
/// a cache happens to have nulls.
#[must_use]
pub fn arrow_schema(columns: &[Column]) -> SchemaRef {
    let fields: Vec<_> = columns.iter().map(|column| Field::new(&column.name, column.kind.data_type(), true)).collect();
    Arc::new(Schema::new(fields))
}

/// Writes `metadata.arrow` row by row.
///
/// Equal rows give equal bytes: null slots hold zeros, every NaN is the same one, and batches fill up whole before
/// they are written. Memory: one batch. `W` gets many small writes, so a file wants a buffer.
pub struct MetadataEncoder<W: Write> {
    writer: FileWriter<RegionWriter<W>>,
    columns: Vec<Column>,
    builders: Vec<Builder>,
    schema: SchemaRef,
    rows: u32,
    batches: Vec<Region>,
    file: PathBuf,
}

impl<W: Write> MetadataEncoder<W> {
    /// Starts the file in `writer`; errors call it `file`.
    ///
    /// # Errors
    ///
    /// [`Error::Metadata`] if these cannot be a cache's columns, [`Error::Io`] if `writer` fails.
    pub fn new(writer: W, columns: &[Column], file: &Path) -> Result<Self> {
        check_columns(columns)?;
        let schema = arrow_schema(columns);
        let writer = RegionWriter {
            inner: writer,
            offset: 0,
            hash: XxHash3_64::new(),
            tail: None,
            unflushed: 0,
            refused_bytes: None,
        };
        let writer = IpcWriteOptions::try_new(ALIGNMENT, false, MetadataVersion::V5)
            .and_then(|options| FileWriter::try_new_with_options(writer, &schema, options))
            .map_err(|error| write_error(error, None, file))?;
        Ok(Self {
            writer,
            columns: columns.to_vec(),
            builders: columns.iter().map(|column| Builder::new(column.kind)).collect(),
            schema,
            rows: 0,
            batches: Vec::new(),
            file: file.to_path_buf(),
        })
    }

    /// Appends a sample's values, in the order of the columns.
    ///
    /// # Errors
    ///
    /// [`Error::Metadata`] for a row of another length, a value of another kind than its column's, or a null in a
    /// column that is said to have none; [`Error::Io`] if a batch is full and the writer fails. The file is of no use
    /// after an error.
    pub fn append(&mut self, row: &[Value]) -> Result<()> {
        if row.len() != self.columns.len() {
            return Err(Error::metadata(format!(
                "a metadata row must have {} values, got {}",
                self.columns.len(),
                row.len()
            )));
        }
        for ((value, column), builder) in row.iter().zip(&self.columns).zip(&mut self.builders) {
            let fits = if *value == Value::Null { column.has_nulls } else { value.kind() == Some(column.kind) };
            if !fits {
                return Err(Error::metadata(format!(
                    "metadata column {} must hold {}{}, got {}",
                    shortened(&column.name),
                    column.kind.name(),
                    if column.has_nulls { " or null" } else { "" },
                    value.kind().map_or("null", ColumnKind::name)
                )));
            }
            builder.append(value);
        }
        self.rows += 1;
        if self.rows == BATCH_ROWS { self.write_batch() } else { Ok(()) }
    }

    /// Writes the rows that wait and the footer; returns the writer, flushed, with where everything lies. The footer
    /// ends where the file does.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the writer fails.
    pub fn finish(mut self) -> Result<(W, MetadataRegions)> {
        if self.rows > 0 {
            self.write_batch()?;
        }
        let Self { mut writer, batches, file, .. } = self;
        writer.get_mut().tail = Some(Vec::new());
        let finished = writer.finish();
        let refused_bytes = writer.get_ref().refused_bytes;
        let RegionWriter { inner, offset, tail, .. } =
            finished.and_then(|()| writer.into_inner()).map_err(|error| write_error(error, refused_bytes, &file))?;
        // What was written last is an end-of-stream marker, the footer, its length and the magic.
        let tail = tail.unwrap_or_default();
        let footer = footer_bytes(&tail)
            .and_then(|length| tail.get(tail.len().checked_sub(length)?..))
            .ok_or_else(|| footer_error("a length and \"ARROW1\" at the end", "other bytes", &file))?;
        let bytes = footer.len() as u64;
        let footer = Region { bytes, offset: offset - bytes, xxh3: xxh3_64(footer) };
        Ok((inner, MetadataRegions { batches, footer }))
    }

    fn write_batch(&mut self) -> Result<()> {
        let Self { writer, builders, schema, rows, file, .. } = self;
        let options = RecordBatchOptions::new().with_row_count(usize::try_from(*rows).ok());
        *rows = 0;
        let arrays = builders.iter_mut().map(Builder::finish).collect();
        let batch = RecordBatch::try_new_with_options(Arc::clone(schema), arrays, &options);
        writer.get_mut().hash = XxHash3_64::new();
        let offset = writer.get_ref().offset;
        let written = batch.and_then(|batch| writer.write(&batch));
        let RegionWriter { offset: end, hash, refused_bytes, .. } = writer.get_ref();
        written.map_err(|error| write_error(error, *refused_bytes, file))?;
        self.batches.push(Region { bytes: end - offset, offset, xxh3: hash.finish() });
        Ok(())
    }
}

/// What Arrow's writer reports, as an error about `file`.
fn write_error(error: ArrowError, bytes: Option<u64>, file: &Path) -> Error {
    match error {
        ArrowError::IoError(_, source) => {
            Error::Io { path: file.to_path_buf(), operation: "cannot write", bytes, source }
        }
        error => Error::MetadataArrow {
            file: file.to_path_buf(),
            part: "writer".to_owned(),
            expected: "a file that Arrow can hold".to_owned(),
            found: error.to_string(),
        },
    }
}

/// A writer that counts and hashes what passes through.
struct RegionWriter<W> {
    inner: W,
    offset: u64,
    hash: XxHash3_64,
    /// The file's last bytes, collected from the moment that this is set.
    tail: Option<Vec<u8>>,
    /// Bytes since the last flush, which `inner` may still hold.
    unflushed: u64,
    /// How many bytes the write or flush had that failed.
    refused_bytes: Option<u64>,
}

impl<W: Write> Write for RegionWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let length = self.inner.write(bytes).inspect_err(|_| self.refused_bytes = Some(bytes.len() as u64))?;
        let written = bytes.get(..length).unwrap_or(bytes);
        self.hash.write(written);
        self.offset += written.len() as u64;
        self.unflushed += written.len() as u64;
        if let Some(tail) = &mut self.tail {
            tail.extend_from_slice(written);
        }
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush().inspect_err(|_| self.refused_bytes = Some(self.unflushed))?;
        self.unflushed = 0;
        Ok(())
    }
}

/// A column of the batch that is being filled.
enum Builder {
    Boolean(BooleanBuilder),
    Int64(Int64Builder),
    Float64(Float64Builder),
    String(LargeStringBuilder),
    Date(Date32Builder),
    Datetime(TimestampMicrosecondBuilder),
}

impl Builder {
    fn new(kind: ColumnKind) -> Self {
        match kind {
            ColumnKind::Boolean => Self::Boolean(BooleanBuilder::new()),
            ColumnKind::Int64 => Self::Int64(Int64Builder::new()),
            ColumnKind::Float64 => Self::Float64(Float64Builder::new()),
            ColumnKind::String => Self::String(LargeStringBuilder::new()),
            ColumnKind::Date => Self::Date(Date32Builder::new()),
            ColumnKind::Datetime => Self::Datetime(TimestampMicrosecondBuilder::new()),
        }
    }

    /// Appends `value`; one of another kind, which the encoder refuses before, would become null.
    fn append(&mut self, value: &Value) {
        match self {
            Self::Boolean(builder) => {
                builder.append_option(if let Value::Boolean(value) = value { Some(*value) } else { None });
            }
            Self::Int64(builder) => {
                builder.append_option(if let Value::Int64(value) = value { Some(*value) } else { None });
            }
            Self::Float64(builder) => {
                builder.append_option(if let Value::Float64(value) = value { Some(canonical(*value)) } else { None });
            }
            Self::String(builder) => {
                builder.append_option(if let Value::String(value) = value { Some(value) } else { None });
            }
            Self::Date(builder) => {
                builder.append_option(if let Value::Date(value) = value { Some(*value) } else { None });
            }
            Self::Datetime(builder) => {
                builder.append_option(if let Value::Datetime(value) = value { Some(*value) } else { None });
            }
        }
    }

    fn finish(&mut self) -> ArrayRef {
        match self {
            Self::Boolean(builder) => Arc::new(builder.finish()),
            Self::Int64(builder) => Arc::new(builder.finish()),
            Self::Float64(builder) => Arc::new(builder.finish()),
            Self::String(builder) => Arc::new(builder.finish()),
            Self::Date(builder) => Arc::new(builder.finish()),
            Self::Datetime(builder) => Arc::new(builder.finish()),
        }
    }
}

/// A checked footer: what is needed to read any batch.
#[derive(Clone, Debug)]
pub struct Footer {
    pub(super) schema: SchemaRef,
    pub(super) columns: Vec<Column>,
    pub(super) blocks: Vec<Block>,
}

impl Footer {
    /// The schema of every batch: [`arrow_schema`] of the columns.
    #[must_use]
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }
}

/// Reads Arrow's footer and holds it to the manifest: the columns, and every batch where `regions` say.
///
/// `bytes` are those of `regions.footer`; [`check_region`](super::check_region) comes first. Cost: one pass, and memory
/// for the batches' places.
///
/// # Errors
///
/// [`Error::MetadataArrow`] for anything that is no footer or says something else.
pub fn decode_footer(bytes: &[u8], regions: &MetadataRegions, columns: &[Column], file: &Path) -> Result<Footer> {
    if footer_bytes(bytes) != Some(bytes.len()) {
        let expected = format!("{} bytes, their length and \"ARROW1\"", bytes.len().saturating_sub(TRAILER_BYTES));
        return Err(footer_error(&expected, "another end", file));
    }
    let flatbuffer = bytes.get(..bytes.len().saturating_sub(TRAILER_BYTES)).unwrap_or_default();
    let blocks = guarded("footer", file, || {
        footer_blocks(flatbuffer, regions, columns)
            .map_err(|Mismatch { expected, found }| footer_error(&expected, &found, file))
    })?;
    Ok(Footer { schema: arrow_schema(columns), columns: columns.to_vec(), blocks })
}

/// Length of the region that ends `bytes`, from the length that stands there.
fn footer_bytes(bytes: &[u8]) -> Option<usize> {
    let (rest, magic) = bytes.split_last_chunk::<6>()?;
    let (_, length) = rest.split_last_chunk::<4>()?;
    if magic != ARROW_MAGIC {
        return None;
    }
    usize::try_from(i32::from_le_bytes(*length)).ok()?.checked_add(TRAILER_BYTES)
}

fn footer_error(expected: &str, found: &str, file: &Path) -> Error {
    Error::MetadataArrow {
        file: file.to_path_buf(),
        part: "footer".to_owned(),
        expected: expected.to_owned(),
        found: found.to_owned(),
    }
}

/// What must stand in an Arrow message, and what does.
pub(super) struct Mismatch {
    pub(super) expected: String,
    pub(super) found: String,
}

/// Fails unless `found` is `expected`; `what` names them.
pub(super) fn require<T: PartialEq + std::fmt::Debug>(
    what: &str,
    expected: &T,
    found: &T,
) -> std::result::Result<(), Mismatch> {
    if expected == found {
        return Ok(());
    }
    Err(Mismatch { expected: format!("{what} {expected:?}"), found: format!("{found:?}") })
}

/// The places of the batches in the footer `flatbuffer`, if it says what `regions` and `columns` say.
///
/// The fields are compared where they lie. Turning them into an Arrow schema first would trust them: aliased names
/// could ask for far more memory than the footer has bytes, and an unknown type panics there.
fn footer_blocks(
    flatbuffer: &[u8],
    regions: &MetadataRegions,
    columns: &[Column],
) -> std::result::Result<Vec<Block>, Mismatch> {
    let missing = |what: &str| Mismatch { expected: what.to_owned(), found: "none".to_owned() };
    let footer = arrow_ipc::root_as_footer(flatbuffer)
        .map_err(|error| Mismatch { expected: "an Arrow footer".to_owned(), found: first_line(&error) })?;
    require("metadata version", &MetadataVersion::V5, &footer.version())?;
    require("dictionaries", &0, &footer.dictionaries().map_or(0, |list| list.len()))?;
    require("custom metadata", &0, &footer.custom_metadata().map_or(0, |list| list.len()))?;

    let schema = footer.schema().ok_or_else(|| missing("a schema"))?;
    require("endianness", &Endianness::Little, &schema.endianness())?;
    require("schema metadata", &0, &schema.custom_metadata().map_or(0, |list| list.len()))?;
    let fields = schema.fields().ok_or_else(|| missing("a list of fields"))?;
    require("fields", &columns.len(), &fields.len())?;
    for (field, column) in fields.iter().zip(columns) {
        let name = field.name().unwrap_or_default();
        if name != column.name {
            return Err(Mismatch { expected: format!("field {}", shortened(&column.name)), found: shortened(name) });
        }
        let described = Mismatch {
            expected: format!("field {} as nullable {} and nothing else", shortened(name), column.kind.data_type()),
            found: format!("{:?}, nullable {}", field.type_type(), field.nullable()),
        };
        let plain = field.nullable()
            && field.dictionary().is_none()
            && field.children().is_none_or(|children| children.is_empty())
            && field.custom_metadata().is_none_or(|metadata| metadata.is_empty());
        if !plain || field_kind(field) != Some(column.kind) {
            return Err(described);
        }
    }

    let blocks = footer.recordBatches().ok_or_else(|| missing("a list of batches"))?;
    require("batches", &regions.batches.len(), &blocks.len())?;
    for (number, (block, region)) in blocks.iter().zip(&regions.batches).enumerate() {
        let message = u64::try_from(block.metaDataLength()).ok();
        let body = u64::try_from(block.bodyLength()).ok();
        let whole = message.zip(body).and_then(|(message, body)| message.checked_add(body));
        let aligned = block.offset() % 8 == 0 && block.metaDataLength() % 8 == 0 && block.bodyLength() % 8 == 0;
        if u64::try_from(block.offset()) != Ok(region.offset) || whole != Some(region.bytes) || !aligned {
            return Err(Mismatch {
                expected: format!("batch {number} of {} bytes at offset {}", region.bytes, region.offset),
                found: format!(
                    "{} and {} bytes at offset {}",
                    block.metaDataLength(),
                    block.bodyLength(),
                    block.offset()
                ),
            });
        }
    }
    Ok(blocks.iter().copied().collect())
}

/// The kind of column that a field of the footer's schema describes, if it is one of ours.
fn field_kind(field: arrow_ipc::Field<'_>) -> Option<ColumnKind> {
    match field.type_type() {
        Type::Bool => Some(ColumnKind::Boolean),
        Type::Int => {
            let integer = field.type_as_int()?;
            (integer.bitWidth() == 64 && integer.is_signed()).then_some(ColumnKind::Int64)
        }
        Type::FloatingPoint => {
            (field.type_as_floating_point()?.precision() == Precision::DOUBLE).then_some(ColumnKind::Float64)
        }
        Type::LargeUtf8 => Some(ColumnKind::String),
        Type::Date => (field.type_as_date()?.unit() == DateUnit::DAY).then_some(ColumnKind::Date),
        Type::Timestamp => {
            let timestamp = field.type_as_timestamp()?;
            (timestamp.unit() == TimeUnit::MICROSECOND && timestamp.timezone().is_none_or(str::is_empty))
                .then_some(ColumnKind::Datetime)
        }
        _ => None,
    }
}

/// The first line of an error: the verifier of flatbuffers adds a trace of several.
pub(super) fn first_line(error: &impl std::fmt::Display) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}
