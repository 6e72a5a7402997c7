//! The checksums of the format: XXH3 where bytes are read often, BLAKE3 where they are to be trusted.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::mix::mix;
use crate::{Error, Result, SampleId};

/// XXH3 of `bytes` with 64 bits and seed 0: fast enough to check every read, and no defence against intent.
#[must_use]
pub fn xxh3_64(bytes: &[u8]) -> u64 {
    twox_hash::XxHash3_64::oneshot(bytes)
}

/// XXH3 of `bytes` with 128 bits and seed 0: what the content digest takes of a payload.
#[must_use]
pub fn xxh3_128(bytes: &[u8]) -> u128 {
    twox_hash::XxHash3_128::oneshot(bytes)
}

/// The check of a record that is stored as `stored` for `sample`.
///
/// The sample's number is mixed in, so that a record and its index entry that were copied to another sample's place
/// are found, though their bytes agree with one another.
#[must_use]
pub fn record_check(sample: SampleId, stored: &[u8]) -> u64 {
    record_check_of(sample, xxh3_64(stored))
}

/// The same from the XXH3-64 of the stored bytes, for writers that hash before they know the sample's number.
#[must_use]
pub const fn record_check_of(sample: SampleId, stored_xxh3: u64) -> u64 {
    stored_xxh3 ^ mix(sample.0)
}

/// A BLAKE3 digest; written as 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// The digest of `bytes`. For data that comes in pieces, feed a [`blake3::Hasher`] and convert its result.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        blake3::hash(bytes).into()
    }
}

impl From<blake3::Hash> for Digest {
    fn from(hash: blake3::Hash) -> Self {
        Self(*hash.as_bytes())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Digest({self})")
    }
}

impl FromStr for Digest {
    type Err = Error;

    /// # Errors
    ///
    /// [`Error::Config`] if `text` is anything but 64 lower-case hexadecimal digits.
    fn from_str(text: &str) -> Result<Self> {
        let refused = || Error::config(format!("a digest must be 64 lower-case hexadecimal digits, got {text:?}"));
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return Err(refused());
        }
        let mut digest = [0; 32];
        for (byte, pair) in digest.iter_mut().zip(digits.chunks_exact(2)) {
            for &digit in pair {
                *byte = (*byte << 4) | hexadecimal_digit(digit).ok_or_else(refused)?;
            }
        }
        Ok(Self(digest))
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// Numbers of 64 bits that JSON carries as 16 lower-case hexadecimal digits, for `#[serde(with = …)]`: many JSON
/// readers round integers beyond 2⁵³.
pub(super) mod hexadecimal {
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(crate) fn serialize<S: Serializer>(value: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{value:016x}"))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        let text = String::deserialize(deserializer)?;
        let refused = || de::Error::custom(format!("16 lower-case hexadecimal digits expected, found {text:?}"));
        if text.len() != 16 {
            return Err(refused());
        }
        text.bytes().try_fold(0, |value: u64, digit| {
            Ok((value << 4) | u64::from(super::hexadecimal_digit(digit).ok_or_else(refused)?))
        })
    }
}

/// The value of one lower-case hexadecimal digit.
fn hexadecimal_digit(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

    use super::*;

    #[test]
    fn the_hashes_are_those_of_the_reference_implementations() {
        // Published test values of xxHash and BLAKE3 for no bytes at all.
        assert_eq!(xxh3_64(b""), 0x2D06_8005_38D3_94C2);
        assert_eq!(xxh3_128(b""), 0x99AA_06D3_0147_98D8_6001_C324_468D_497F);
        assert_eq!(Digest::of(b"").to_string(), "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262");
    }

    #[test]
    fn the_record_check_depends_on_the_sample() {
        assert_eq!(record_check(SampleId(0), b"payload"), xxh3_64(b"payload"));
        assert_ne!(record_check(SampleId(1), b"payload"), record_check(SampleId(2), b"payload"));
        assert_eq!(record_check(SampleId(7), b"payload"), xxh3_64(b"payload") ^ mix(7));
    }

    #[test]
    fn a_digest_parses_what_it_prints_and_nothing_else() {
        let digest = Digest::of(b"some bytes");
        let text = digest.to_string();
        assert_eq!(text.parse::<Digest>().unwrap(), digest);
        let refused = [
            String::new(),
            text.to_uppercase(),
            format!("{text}0"),
            text.replacen(|_: char| true, "g", 1),
            text.replacen(|_: char| true, "+", 1),
            "ä".repeat(32),
        ];
        for other in refused {
            let message = other.parse::<Digest>().unwrap_err().to_string();
            assert_eq!(message, format!("a digest must be 64 lower-case hexadecimal digits, got {other:?}"));
        }
    }
}
