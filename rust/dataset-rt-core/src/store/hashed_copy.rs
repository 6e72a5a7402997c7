//! A copy whose XXH3-64 is taken while the bytes are in the processor's registers.
//!
//! Copying first and hashing then reads everything twice, and the second time waits for the first: of 100 KiB the hash
//! took 2 µs beside 4 µs for the copy. Hashed on their way, they take as long as the copy alone, because the copy waits
//! for memory. Libraries hash what lies in memory already, so the loop over long inputs stands here; short ones, and
//! processors without AVX2, are copied and hashed by the library.

use std::mem::MaybeUninit;

use super::prefetch::prefetch_lines;
use crate::format::xxh3_64;

/// Below this length a copy and the library's hash are as fast.
const LEAST_BYTES: usize = 2 << 10;
/// How far ahead of the copy the processor is asked for the source, in bytes. Nearer and farther were slower.
const AHEAD_BYTES: usize = 4 << 10;

/// XXH3 takes input in stripes, eight words each.
const STRIPE_BYTES: usize = 64;
/// Stripes between two scrambles of the lanes, as many as the secret has keys for.
const BLOCK_STRIPES: usize = 16;
const BLOCK_BYTES: usize = STRIPE_BYTES * BLOCK_STRIPES;

/// The eight 64-bit accumulators of XXH3, or as many words of its secret.
type Lanes = [u64; 8];

/// XXH3's own secret, of its specification.
const SECRET: [u8; 192] = [
    0xB8, 0xFE, 0x6C, 0x39, 0x23, 0xA4, 0x4B, 0xBE, 0x7C, 0x01, 0x81, 0x2C, 0xF7, 0x21, 0xAD, 0x1C, 0xDE, 0xD4, 0x6D,
    0xE9, 0x83, 0x90, 0x97, 0xDB, 0x72, 0x40, 0xA4, 0xA4, 0xB7, 0xB3, 0x67, 0x1F, 0xCB, 0x79, 0xE6, 0x4E, 0xCC, 0xC0,
    0xE5, 0x78, 0x82, 0x5A, 0xD0, 0x7D, 0xCC, 0xFF, 0x72, 0x21, 0xB8, 0x08, 0x46, 0x74, 0xF7, 0x43, 0x24, 0x8E, 0xE0,
    0x35, 0x90, 0xE6, 0x81, 0x3A, 0x26, 0x4C, 0x3C, 0x28, 0x52, 0xBB, 0x91, 0xC3, 0x00, 0xCB, 0x88, 0xD0, 0x65, 0x8B,
    0x1B, 0x53, 0x2E, 0xA3, 0x71, 0x64, 0x48, 0x97, 0xA2, 0x0D, 0xF9, 0x4E, 0x38, 0x19, 0xEF, 0x46, 0xA9, 0xDE, 0xAC,
    0xD8, 0xA8, 0xFA, 0x76, 0x3F, 0xE3, 0x9C, 0x34, 0x3F, 0xF9, 0xDC, 0xBB, 0xC7, 0xC7, 0x0B, 0x4F, 0x1D, 0x8A, 0x51,
    0xE0, 0x4B, 0xCD, 0xB4, 0x59, 0x31, 0xC8, 0x9F, 0x7E, 0xC9, 0xD9, 0x78, 0x73, 0x64, 0xEA, 0xC5, 0xAC, 0x83, 0x34,
    0xD3, 0xEB, 0xC3, 0xC5, 0x81, 0xA0, 0xFF, 0xFA, 0x13, 0x63, 0xEB, 0x17, 0x0D, 0xDD, 0x51, 0xB7, 0xF0, 0xDA, 0x49,
    0xD3, 0x16, 0x55, 0x26, 0x29, 0xD4, 0x68, 0x9E, 0x2B, 0x16, 0xBE, 0x58, 0x7D, 0x47, 0xA1, 0xFC, 0x8F, 0xF8, 0xB8,
    0xD1, 0x7A, 0xD0, 0x31, 0xCE, 0x45, 0xCB, 0x3A, 0x8F, 0x95, 0x16, 0x04, 0x28, 0xAF, 0xD7, 0xFB, 0xCA, 0xBB, 0x4B,
    0x40, 0x7E,
];
/// The words of the secret that the stripes of a block meet, one stripe after another.
#[expect(clippy::indexing_slicing, reason = "a wrong index stops the compiler")]
const STRIPE_KEYS: [Lanes; BLOCK_STRIPES] = {
    let mut keys = [[0; 8]; BLOCK_STRIPES];
    let mut stripe = 0;
    while stripe < BLOCK_STRIPES {
        keys[stripe] = secret_words(stripe * 8);
        stripe += 1;
    }
    keys
};
const SCRAMBLE_KEY: Lanes = secret_words(128);
const LAST_KEY: Lanes = secret_words(121);
const MERGE_KEY: Lanes = secret_words(11);

const PRIME32_1: u64 = 0x9E37_79B1;
const PRIME32_2: u64 = 0x85EB_CA77;
const PRIME32_3: u64 = 0xC2B2_AE3D;
const PRIME64_1: u64 = 0x9E37_79B1_85EB_CA87;
const PRIME64_2: u64 = 0xC2B2_AE3D_27D4_EB4F;
const PRIME64_3: u64 = 0x1656_67B1_9E37_79F9;
const PRIME64_4: u64 = 0x85EB_CA77_C2B2_AE63;
const PRIME64_5: u64 = 0x27D4_EB2F_1656_67C5;
const AVALANCHE: u64 = 0x1656_6791_9E37_79F9;
const FIRST_LANES: Lanes = [PRIME32_3, PRIME64_1, PRIME64_2, PRIME64_3, PRIME64_4, PRIME32_2, PRIME64_5, PRIME32_1];

/// Fills `slot` with the bytes at `source` and gives the XXH3-64 of what `slot` then holds.
///
/// # Safety
/// As many bytes as `slot` has must be readable at `source`, and be no part of `slot`. They may change meanwhile: whatever
/// `slot` gets is what was hashed.
#[expect(unsafe_code, reason = "mapped files are read through raw pointers")]
pub unsafe fn copy_and_hash(source: *const u8, slot: &mut [MaybeUninit<u8>]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if slot.len() >= LEAST_BYTES && std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2, the lengths are the caller's, and the slot is memory of its own.
        return unsafe { copy_and_hash_avx2(source, slot.as_mut_ptr().cast(), slot.len()) };
    }
    // SAFETY: as the caller promised; the slot is initialised by the copy.
    unsafe {
        source.copy_to_nonoverlapping(slot.as_mut_ptr().cast(), slot.len());
        xxh3_64(slot.assume_init_ref())
    }
}

/// The loop, compiled for AVX2, which the compiler vectorises it with.
///
/// # Safety
/// As [`copy_striped`], on a processor with AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
#[expect(unsafe_code, reason = "it passes raw pointers on")]
unsafe fn copy_and_hash_avx2(source: *const u8, target: *mut u8, length: usize) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { copy_striped(source, target, length) }
}

/// Copies and hashes at least a block and a byte. Both sides are raw pointers, so that nothing tells the compiler that the
/// source stays as it is: each stripe is loaded once, stored, and hashed as it was stored.
///
/// # Safety
/// `length` bytes, more than [`BLOCK_BYTES`], must be readable at `source` and writable at `target`, without overlap.
#[inline(always)]
#[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "other processors use the library"))]
#[expect(unsafe_code, reason = "memory that may change is never borrowed, only copied")]
unsafe fn copy_striped(source: *const u8, target: *mut u8, length: usize) -> u64 {
    let mut lanes = FIRST_LANES;
    // The last byte belongs to a stripe of its own rules, so the last block is never whole.
    let last = length - 1;
    let mut at = 0;
    while at + BLOCK_BYTES <= last {
        for key in &STRIPE_KEYS {
            // SAFETY: `at` and the stripe's end are below `length`.
            unsafe { copy_stripe(source, target, at, length, &mut lanes, key) };
            at += STRIPE_BYTES;
        }
        for (lane, key) in lanes.iter_mut().zip(SCRAMBLE_KEY) {
            *lane = (*lane ^ (*lane >> 47) ^ key).wrapping_mul(PRIME32_1);
        }
    }
    for key in &STRIPE_KEYS {
        if at + STRIPE_BYTES > last {
            break;
        }
        // SAFETY: as above.
        unsafe { copy_stripe(source, target, at, length, &mut lanes, key) };
        at += STRIPE_BYTES;
    }
    // SAFETY: the rest begins at `at` and ends at `length`; the last stripe was copied by then, and `length` is more than one.
    let last_stripe = unsafe {
        source.add(at).copy_to_nonoverlapping(target.add(at), length - at);
        target.add(length - STRIPE_BYTES).cast::<[u8; STRIPE_BYTES]>().read_unaligned()
    };
    accumulate(&mut lanes, &last_stripe, &LAST_KEY);
    merge(&lanes, length)
}

/// Copies the stripe at `at` and hashes it.
///
/// # Safety
/// As [`copy_striped`], with the stripe inside.
#[inline(always)]
#[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "other processors use the library"))]
#[expect(unsafe_code, reason = "memory that may change is never borrowed, only copied")]
unsafe fn copy_stripe(source: *const u8, target: *mut u8, at: usize, length: usize, lanes: &mut Lanes, key: &Lanes) {
    prefetch_lines(source.wrapping_add((at + AHEAD_BYTES).min(length - 1)), 1);
    // SAFETY: the caller's promise.
    let stripe = unsafe {
        let stripe = source.add(at).cast::<[u8; STRIPE_BYTES]>().read_unaligned();
        target.add(at).cast::<[u8; STRIPE_BYTES]>().write_unaligned(stripe);
        stripe
    };
    accumulate(lanes, &stripe, key);
}

/// XXH3's step for a stripe: each lane takes its neighbour's word, and the product of the halves of its own under the key.
#[inline(always)]
fn accumulate(lanes: &mut Lanes, stripe: &[u8; STRIPE_BYTES], key: &Lanes) {
    let (bytes, _) = stripe.as_chunks::<8>();
    let mut words = [0; 8];
    for (word, bytes) in words.iter_mut().zip(bytes) {
        *word = u64::from_le_bytes(*bytes);
    }
    let [a, b, c, d, e, f, g, h] = words;
    for (((lane, word), neighbour), key) in lanes.iter_mut().zip(words).zip([b, a, d, c, f, e, h, g]).zip(key) {
        let mixed = word ^ key;
        *lane = lane.wrapping_add(neighbour).wrapping_add((mixed & 0xFFFF_FFFF).wrapping_mul(mixed >> 32));
    }
}

/// XXH3-64 of the lanes.
fn merge(lanes: &Lanes, length: usize) -> u64 {
    let (pairs, _) = lanes.as_chunks::<2>();
    let (keys, _) = MERGE_KEY.as_chunks::<2>();
    let mut hash = (length as u64).wrapping_mul(PRIME64_1);
    for ([first, second], [first_key, second_key]) in pairs.iter().zip(keys) {
        let product = u128::from(first ^ first_key) * u128::from(second ^ second_key);
        let [low, high] = [product & u128::from(u64::MAX), product >> 64].map(|half| u64::try_from(half).unwrap_or(0));
        hash = hash.wrapping_add(low ^ high);
    }
    hash = (hash ^ (hash >> 37)).wrapping_mul(AVALANCHE);
    hash ^ (hash >> 32)
}

/// Eight words of the secret from one of its bytes on.
#[expect(clippy::indexing_slicing, reason = "a wrong index stops the compiler")]
const fn secret_words(from: usize) -> Lanes {
    let mut words = [0; 8];
    let mut byte = 0;
    while byte < 64 {
        words[byte / 8] |= (SECRET[from + byte] as u64) << (byte % 8 * 8);
        byte += 1;
    }
    words
}

#[cfg(test)]
mod tests {
    #![expect(unsafe_code, reason = "the function under test takes a raw pointer")]
    #![expect(clippy::indexing_slicing, reason = "a test stops at the first surprise")]

    use super::*;

    /// Any bytes: XXH3 of the place, a word at a time.
    fn bytes(length: usize) -> Vec<u8> {
        (0..length.div_ceil(8) as u64)
            .flat_map(|word| xxh3_64(&word.to_le_bytes()).to_le_bytes())
            .take(length)
            .collect()
    }

    fn copied(source: &[u8]) -> (Vec<u8>, u64) {
        let mut target = Vec::with_capacity(source.len());
        // SAFETY: the source is a slice as long as the slot; the length is set once the slot is filled.
        let hash = unsafe {
            let hash = copy_and_hash(source.as_ptr(), &mut target.spare_capacity_mut()[..source.len()]);
            target.set_len(source.len());
            hash
        };
        (target, hash)
    }

    #[test]
    fn a_copy_of_any_length_is_equal_and_has_the_hash_of_the_library() {
        let source = bytes(9_000);
        for length in (0..4_200).chain(8_100..8_300) {
            for offset in [0, 1, 16, 63] {
                let part = &source[offset..offset + length];
                assert_eq!(copied(part), (part.to_vec(), xxh3_64(part)), "{length} bytes at {offset}");
            }
        }
    }

    #[test]
    fn long_copies_and_every_changed_byte_of_one_are_told() {
        for length in [100 << 10, (1 << 20) + 1, 3_333_333] {
            let source = bytes(length);
            assert_eq!(copied(&source), (source.clone(), xxh3_64(&source)));
        }
        let mut source = bytes(LEAST_BYTES + 100);
        let (_, whole) = copied(&source);
        for place in 0..source.len() {
            source[place] ^= 1;
            assert_ne!(copied(&source).1, whole, "byte {place}");
            source[place] ^= 1;
        }
    }
}
