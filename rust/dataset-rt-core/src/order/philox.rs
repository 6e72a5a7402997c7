//! The counter-based random words that every shuffled order is made of.

/// Domain of the words that choose a row with replacement: second word of the key.
pub const DRAW: u64 = 1;
/// Domain of the words that permute a pass without replacement: second word of the key.
pub const PASS: u64 = 2;

/// Rounds of the generator; ten is what its authors recommend.
const ROUNDS: u32 = 10;
/// Multipliers of counter words 0 and 2.
const MULTIPLIERS: [u64; 2] = [0xD2E7_470E_E14C_6C93, 0xCA5A_8263_9512_1157];
/// What the two key words grow by between rounds: the golden ratio and √3 − 1, as fractions of 2^64.
const INCREMENTS: [u64; 2] = [0x9E37_79B9_7F4A_7C15, 0xBB67_AE85_84CA_A73B];

/// Four random words for a counter and a key: Philox4x64 with ten rounds.
///
/// Source: Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011, without deviation;
/// the words are those of the authors' Random123 library. `NumPy`'s `Philox` adds one to its counter before the first
/// output. Costs about 10 ns, and nothing is remembered between calls.
#[must_use]
#[inline]
pub const fn philox4x64_10(counter: [u64; 4], key: [u64; 2]) -> [u64; 4] {
    let [mut word_0, mut word_1, mut word_2, mut word_3] = counter;
    let [mut key_0, mut key_1] = key;
    let mut round = 0;
    while round < ROUNDS {
        let (low_0, high_0) = widening_multiply(word_0, MULTIPLIERS[0]);
        let (low_2, high_2) = widening_multiply(word_2, MULTIPLIERS[1]);
        (word_0, word_1, word_2, word_3) = (high_2 ^ word_1 ^ key_0, low_2, high_0 ^ word_3 ^ key_1, low_0);
        key_0 = key_0.wrapping_add(INCREMENTS[0]);
        key_1 = key_1.wrapping_add(INCREMENTS[1]);
        round += 1;
    }
    [word_0, word_1, word_2, word_3]
}

/// Low and high word of a product.
#[inline]
const fn widening_multiply(left: u64, right: u64) -> (u64, u64) {
    let high = (left as u128 * right as u128) >> 64;
    (left.wrapping_mul(right), high as u64)
}
