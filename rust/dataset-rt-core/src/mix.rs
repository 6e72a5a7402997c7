//! The `SplitMix64` finaliser, which the record checks of the format and the permutations of the order share.

/// Spreads the bits of `value`: a bijection of the 64-bit integers.
///
/// Source: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014
/// (variant 13 of Stafford's constants); only the finaliser is used, not the generator's increment.
#[must_use]
pub const fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}
