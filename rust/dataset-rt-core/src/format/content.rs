//! What the samples of a cache are, in one digest, whatever their files look like.

use super::checksum::Digest;
use super::column::Column;
use crate::CacheId;

/// Digests the samples of a source, one after the other, and then their frame.
///
/// The digest covers every metadata value and every payload in order, the columns and the source's name. It does not
/// cover how they are stored, so other codecs, shard sizes and releases of this package give the same digest. Cost: one
/// BLAKE3 pass over the metadata and 24 bytes a sample; the payload enters through its XXH3, which the caller computes
/// where the payload is at hand.
#[derive(Clone, Debug, Default)]
pub struct ContentHasher {
    hasher: blake3::Hasher,
    samples: u64,
}

impl ContentHasher {
    /// A digest of no samples yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the next sample: its fields in the order of the columns, each as [`Value::encode`](super::Value::encode)
    /// writes it, and its payload's length and [`xxh3_128`](super::xxh3_128).
    pub fn sample(&mut self, encoded_fields: &[u8], payload_bytes: u64, payload_xxh3_128: u128) {
        self.hasher.update(encoded_fields).update(&payload_bytes.to_le_bytes()).update(&payload_xxh3_128.to_le_bytes());
        self.samples += 1;
    }

    /// The digest of these samples in a cache with these columns and this name.
    #[must_use]
    pub fn finish(self, columns: &[Column], source_name: &str) -> Digest {
        let Self { mut hasher, samples } = self;
        hasher.update(&samples.to_le_bytes()).update(&length(columns.len()));
        for column in columns {
            hasher.update(&length(column.name.len())).update(column.name.as_bytes()).update(&[column.kind as u8]);
        }
        hasher.update(&length(source_name.len())).update(source_name.as_bytes());
        hasher.finalize().into()
    }
}

/// The cache's number: the first eight bytes of its content digest, with the top bit cleared so that it also fits
/// languages and file formats that have signed integers only.
#[must_use]
pub fn cache_id(content_digest: &Digest) -> CacheId {
    let first = content_digest.0.first_chunk().copied().unwrap_or_default();
    CacheId(u64::from_le_bytes(first) & (u64::MAX >> 1))
}

/// A length as 32 bits. Names and column counts are far below (`MAX_COLUMNS`, `MAX_COLUMN_NAME_BYTES`,
/// `MAX_SOURCE_NAME_BYTES`); anything longer could not be in a cache, so it needs no digest of its own.
fn length(length: usize) -> [u8; 4] {
    u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_id_is_the_digests_head_without_its_top_bit() {
        let mut bytes = [0xFF; 32];
        for (number, byte) in (0..8).zip(&mut bytes) {
            *byte = 0xF8 + number;
        }
        assert_eq!(cache_id(&Digest(bytes)), CacheId(0x7FFE_FDFC_FBFA_F9F8));
        assert_eq!(cache_id(&Digest([0; 32])).to_string(), "0000000000000000");
    }
}
