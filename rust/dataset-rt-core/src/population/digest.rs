//! The digest of a population: which rows it has, in which order, and what each is worth.

use super::population_weights::PopulationWeights;
use crate::format::Digest;
use crate::identifier::{CacheId, SampleId};
use crate::store::CacheSet;

/// Bytes that are hashed at a time: BLAKE3 is several times as fast on long inputs.
const CHUNK_BYTES: usize = 96 << 10;

/// BLAKE3 over (`cache_id`, `sample_id`, bits of the weight), each as eight little-endian bytes, row after row.
#[derive(Debug, Default)]
pub struct RowHasher {
    hasher: blake3::Hasher,
    bytes: Vec<u8>,
}

impl RowHasher {
    /// Adds the next row.
    pub fn add(&mut self, cache_id: CacheId, sample: SampleId, weight: f64) {
        let row = [cache_id.0, sample.0, weight.to_bits()].map(u64::to_le_bytes);
        self.bytes.extend_from_slice(row.as_flattened());
        if self.bytes.len() >= CHUNK_BYTES {
            self.hasher.update(&self.bytes);
            self.bytes.clear();
        }
    }

    /// The digest of all rows.
    #[must_use]
    pub fn finish(mut self) -> Digest {
        self.hasher.update(&self.bytes);
        Digest::from(self.hasher.finalize())
    }
}

/// The digest of rows that name `records` of `caches`, with their weights in the same numbering.
#[must_use]
pub fn digest_of_rows(caches: &CacheSet, records: &[u64], weights: &PopulationWeights<'_>) -> Digest {
    let mut rows = RowHasher::default();
    // Neighbouring rows are mostly of one cache: its identity, its first record and the one after its last.
    let mut last = (CacheId(0), 0, 0);
    for (row, record) in records.iter().enumerate() {
        if !(last.1..last.2).contains(record) {
            let Ok((cache, _, sample)) = caches.locate(*record) else { continue };
            let base = record - sample.0;
            last = (cache.cache_id(), base, base + cache.samples());
        }
        rows.add(last.0, SampleId(record - last.1), weights.get(row));
    }
    rows.finish()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

    use std::fs;
    use std::path::Path;

    use serde_json::Value;

    use super::super::canonical::{inverse, renumber};
    use super::RowHasher;
    use crate::identifier::{CacheId, SampleId};

    /// More samples than any cache of the vectors has, so that records ascend as (`cache_id`, `sample_id`) do.
    const SAMPLES: u64 = 100;

    #[test]
    fn the_published_tables_have_their_canonical_order_and_their_digests() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/order/order_v1_vectors.json");
        let vectors: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
        let cases = vectors["canonical"].as_array().unwrap();
        assert!(!cases.is_empty());
        for case in cases {
            let number = |value: &Value| value.as_str().unwrap().parse::<u64>().unwrap();
            let table = case["table"].as_array().unwrap().iter();
            let table: Vec<(u64, u64, f64)> =
                table.map(|row| (number(&row[0]), number(&row[1]), row[2].as_f64().unwrap())).collect();
            let weights: Vec<f64> = table.iter().map(|(_, _, weight)| *weight).collect();
            let expected: Vec<u32> = serde_json::from_value(case["table_row_of_population_row"].clone()).unwrap();
            // Where there are few records they are counted, where there are many they are sorted.
            for (samples, known_caches) in [(8, [4, 9].as_slice()), (SAMPLES, &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9])] {
                let place = |cache: &u64| known_caches.iter().position(|known| known == cache).unwrap() as u64;
                let records: Vec<u64> =
                    table.iter().map(|(cache, sample, _)| place(cache) * samples + sample).collect();
                let renumbering = renumber(&records, &weights, known_caches.len() as u64 * samples).unwrap();
                assert_eq!(inverse(&renumbering.population_rows), expected);
                assert!(renumbering.records.is_sorted());
            }
            let digest = |order: &[u32]| {
                let mut rows = RowHasher::default();
                for row in order {
                    let (cache_id, sample_id, weight) = table[*row as usize];
                    rows.add(CacheId(cache_id), SampleId(sample_id), weight);
                }
                rows.finish().to_string()
            };
            assert_eq!(digest(&expected), case["digest_shuffled"].as_str().unwrap());
            let in_order: Vec<u32> = (0..).take(table.len()).collect();
            assert_eq!(digest(&in_order), case["digest_ordered"].as_str().unwrap());
        }
    }

    #[test]
    fn pieces_do_not_show_in_the_digest() {
        let mut rows = RowHasher::default();
        let mut bytes = Vec::new();
        for row in 0..10_000_u64 {
            rows.add(CacheId(row / 7), SampleId(row), 1.5);
            bytes.extend([(row / 7).to_le_bytes(), row.to_le_bytes(), 1.5_f64.to_bits().to_le_bytes()].concat());
        }
        assert_eq!(rows.finish().to_string(), blake3::hash(&bytes).to_hex().to_string());
    }
}
