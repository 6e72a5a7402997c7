//! Passes over large populations: a permutation that is computed place by place.

use super::philox::{PASS, philox4x64_10};
use crate::mix::mix;

/// Rounds of the network, each with a key of its own.
pub(super) const ROUNDS: usize = 8;

/// The round keys of a pass.
pub(super) fn round_keys(seed: u64, pass: u64) -> [u64; ROUNDS] {
    let [key_0, key_1, key_2, key_3] = philox4x64_10([pass, 0, 0, 0], [seed, PASS]);
    let [key_4, key_5, key_6, key_7] = philox4x64_10([pass, 1, 0, 0], [seed, PASS]);
    [key_0, key_1, key_2, key_3, key_4, key_5, key_6, key_7]
}

/// Bits of each half of the network's words, for a population of `rows`.
pub(super) fn half_bits(rows: u64) -> u32 {
    (u64::BITS - (rows - 1).leading_zeros()).div_ceil(2)
}

/// The row at `place` of the pass that `keys` belong to; `place` is below `rows`.
///
/// Source: Black and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002: a balanced Feistel network over
/// the next even number of bits, walked along its cycle until the word is a row. The deviation is the round function,
/// which is `SplitMix64`'s finaliser: it must spread rows well, not keep a secret. The domain is less than four
/// times the population, so a walk takes less than four steps on average.
pub(super) fn permute(place: u64, rows: u64, half_bits: u32, keys: &[u64; ROUNDS]) -> u64 {
    let mask = (1 << half_bits) - 1;
    let mut word = place;
    loop {
        let (mut left, mut right) = (word >> half_bits, word & mask);
        for key in keys {
            (left, right) = (right, left ^ (mix(right ^ key) & mask));
        }
        word = (left << half_bits) | right;
        if word < rows {
            return word;
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

    use std::fs;
    use std::path::Path;

    use super::mix;

    #[test]
    fn the_round_function_agrees_with_the_published_vectors() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/order/order_v1_vectors.json");
        let vectors: serde_json::Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
        let cases = vectors.get("mix").unwrap().as_array().unwrap();
        assert!(!cases.is_empty());
        for case in cases {
            let word = |name| u64::from_str_radix(case.get(name).unwrap().as_str().unwrap(), 16).unwrap();
            assert_eq!(mix(word("in")), word("out"), "{case}");
        }
    }
}
