//! What the bytes of a cache mean: `&[u8]` in, values out, and no input or output, so that all of it can be fuzzed.
//!
//! ```text
//! manifest.json     manifest.rs   what the cache is, and the length and digest of everything else
//! metadata.arrow    metadata.rs   the samples' metadata, an Arrow IPC file read batch by batch
//! index.bin         index.rs      where each sample's record lies, 40 bytes a sample
//! shards/000000.bin shard.rs      the records themselves, each packed by codec.rs
//! ```
//!
//! Beside the files stand the rules that they share: checksums (`checksum.rs`), names (`name.rs`), column kinds
//! (`column.rs`), metadata values (`value.rs`, `fields.rs`) and the identity of a cache (`content.rs`).
//!
//! Bytes are hostile here. Each function that reads them answers with an [`Error`](crate::Error) that names the file,
//! what must stand there and what does; none panics, and none allocates more than the lengths that it has checked. A
//! `file: &Path` argument is only the name that such an error reports: nothing here opens it.

mod batch;
mod checksum;
mod codec;
mod column;
mod content;
mod fields;
mod index;
mod manifest;
mod metadata;
mod name;
mod region;
mod shard;
mod value;

pub use batch::decode_batch;
pub use checksum::{Digest, record_check, record_check_of, xxh3_64, xxh3_128};
pub use codec::{Codec, Compression, Decoder, Encoder, check_claimed_length};
pub use column::{
    Column, ColumnKind, MAX_COLUMN_NAME_BYTES, MAX_COLUMNS, RESERVED_COLUMNS, broken_column_rule, check_column_name,
    check_columns,
};
pub use content::{ContentHasher, cache_id};
pub use fields::encode_fields;
pub use index::{
    EntryLimits, INDEX_ENTRY_BYTES, INDEX_HEADER_BYTES, IndexEntry, check_index_header, encode_index_header,
    index_file_bytes,
};
pub use manifest::{
    FileRecord, INDEX_FILE, MANIFEST_FILE, MAX_MANIFEST_BYTES, METADATA_FILE, Manifest, SHARD_FOLDER, WRITER,
};
pub use metadata::{BATCH_ROWS, Footer, MetadataEncoder, arrow_schema, batch_count, decode_footer};
pub use name::{MAX_SOURCE_NAME_BYTES, check_source_name};
pub use region::{MetadataRegions, Region, check_region};
pub use shard::{SHARD_HEADER_BYTES, check_shard_header, encode_shard_header, shard_file_name};
pub use value::Value;

/// Version of the format that this release writes, and the only one that it reads.
///
/// It stands in the manifest, in the index and in every shard, and is no release number: it changes when a reader of
/// the older format could not read a newer file.
pub const FORMAT_VERSION: u32 = 1;
