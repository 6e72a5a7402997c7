//! Digests of what was delivered: two runs, machines or frameworks that agree on them got the same samples in the same
//! order.

use crate::format::Digest;
use crate::identifier::{CacheId, SampleId};

/// Hashes identities in the order in which their samples came.
///
/// BLAKE3 over `cache_id` and `sample_id`, eight little-endian bytes each, one sample after another.
#[derive(Clone, Debug, Default)]
pub struct OrderHasher(blake3::Hasher);

impl OrderHasher {
    /// Adds the next sample.
    pub fn add(&mut self, cache: CacheId, sample: SampleId) {
        let mut bytes = [0; 16];
        let (first, second) = bytes.split_at_mut(8);
        first.copy_from_slice(&cache.0.to_le_bytes());
        second.copy_from_slice(&sample.0.to_le_bytes());
        self.0.update(&bytes);
    }

    /// The digest of everything added so far.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.0.finalize().into()
    }
}

/// Hashes payloads in the order in which they came.
///
/// BLAKE3 over each payload's length, eight little-endian bytes, and then its bytes: so no byte can move from one
/// payload to its neighbour unseen.
#[derive(Clone, Debug, Default)]
pub struct PayloadHasher(blake3::Hasher);

impl PayloadHasher {
    /// Adds the next payload.
    pub fn add(&mut self, payload: &[u8]) {
        // A length in memory always fits 64 bits on the platforms that there are.
        let length = u64::try_from(payload.len()).unwrap_or(u64::MAX);
        self.0.update(&length.to_le_bytes());
        self.0.update(payload);
    }

    /// The digest of everything added so far.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.0.finalize().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_digest_hashes_both_numbers_of_each_sample_as_eight_little_endian_bytes() {
        let mut hasher = OrderHasher::default();
        hasher.add(CacheId(0x0102), SampleId(3));
        hasher.add(CacheId(4), SampleId(u64::MAX));
        let mut bytes = vec![2, 1, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0];
        bytes.extend([0xff; 8]);
        assert_eq!(hasher.digest(), Digest::of(&bytes));
    }

    #[test]
    fn the_payload_digest_tells_where_one_payload_ends_and_the_next_begins() {
        let digest = |payloads: &[&[u8]]| {
            let mut hasher = PayloadHasher::default();
            payloads.iter().for_each(|payload| hasher.add(payload));
            hasher.digest()
        };
        assert_eq!(digest(&[b"ab"]), Digest::of(&[2, 0, 0, 0, 0, 0, 0, 0, b'a', b'b']));
        assert_ne!(digest(&[b"ab", b"c"]), digest(&[b"a", b"bc"]));
        assert_ne!(digest(&[b""]), digest(&[]));
    }
}
