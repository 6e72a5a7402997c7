//! One metadata value, and the bytes that stand for it in the content digest and in a writer's waiting rows.

use super::column::ColumnKind;
use crate::{Error, Result};

/// The bits that stand for every NaN: which of them a source computes depends on the processor.
const NAN: u64 = 0x7FF8_0000_0000_0000;

/// A metadata value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// No value, of any kind.
    Null,
    /// True or false.
    Boolean(bool),
    /// An integer.
    Int64(i64),
    /// A floating-point number.
    Float64(f64),
    /// Text.
    String(String),
    /// Days since 1970-01-01.
    Date(i32),
    /// Microseconds since 1970-01-01T00:00, without a time zone.
    Datetime(i64),
}

impl Value {
    /// The kind of column that the value belongs to; null belongs to all.
    #[must_use]
    pub const fn kind(&self) -> Option<ColumnKind> {
        match self {
            Self::Null => None,
            Self::Boolean(_) => Some(ColumnKind::Boolean),
            Self::Int64(_) => Some(ColumnKind::Int64),
            Self::Float64(_) => Some(ColumnKind::Float64),
            Self::String(_) => Some(ColumnKind::String),
            Self::Date(_) => Some(ColumnKind::Date),
            Self::Datetime(_) => Some(ColumnKind::Datetime),
        }
    }

    /// Appends the value's bytes to `out`: 0 for null, else the kind's number and the value.
    ///
    /// Every NaN becomes the same one; -0.0 and 0.0 stay apart. Equal values have equal bytes, and different ones
    /// different bytes.
    ///
    /// # Errors
    ///
    /// [`Error::Metadata`] for a string whose length does not fit 32 bits; `out` is as it was then.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<()> {
        let Some(kind) = self.kind() else {
            out.push(0);
            return Ok(());
        };
        let number = kind as u8;
        match self {
            Self::Null => {}
            Self::Boolean(value) => out.extend([number, u8::from(*value)]),
            Self::Int64(value) | Self::Datetime(value) => {
                out.push(number);
                out.extend(value.to_le_bytes());
            }
            Self::Float64(value) => {
                out.push(number);
                out.extend(canonical(*value).to_bits().to_le_bytes());
            }
            Self::String(value) => {
                let length = u32::try_from(value.len()).map_err(|_| {
                    Error::metadata(format!(
                        "a metadata string must have at most {} bytes of UTF-8, got {}; store it in the payload",
                        u32::MAX,
                        value.len()
                    ))
                })?;
                out.push(number);
                out.extend(length.to_le_bytes());
                out.extend(value.as_bytes());
            }
            Self::Date(value) => {
                out.push(number);
                out.extend(value.to_le_bytes());
            }
        }
        Ok(())
    }

    /// Takes one value from the front of `bytes`, which then hold what follows it.
    ///
    /// Allocates a string's length after that many bytes were found. `None` means that `bytes` do not start with a
    /// value; they are as they were then.
    #[must_use]
    pub fn decode(bytes: &mut &[u8]) -> Option<Self> {
        let (&number, rest) = bytes.split_first()?;
        let (value, rest) = match number {
            0 => (Self::Null, rest),
            1 => {
                let (&value, rest) = rest.split_first()?;
                (Self::Boolean(matches_bool(value)?), rest)
            }
            2 => take(rest, |value| Self::Int64(i64::from_le_bytes(value)))?,
            3 => take(rest, |value| Self::Float64(f64::from_bits(u64::from_le_bytes(value))))?,
            4 => {
                let (length, rest) = take(rest, u32::from_le_bytes)?;
                let (text, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
                (Self::String(std::str::from_utf8(text).ok()?.to_owned()), rest)
            }
            5 => take(rest, |value| Self::Date(i32::from_le_bytes(value)))?,
            6 => take(rest, |value| Self::Datetime(i64::from_le_bytes(value)))?,
            _ => return None,
        };
        *bytes = rest;
        Some(value)
    }
}

/// `value`, with the one NaN for all of them.
pub(super) fn canonical(value: f64) -> f64 {
    if value.is_nan() { f64::from_bits(NAN) } else { value }
}

fn matches_bool(byte: u8) -> Option<bool> {
    match byte {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

fn take<const LENGTH: usize, T>(bytes: &[u8], read: impl FnOnce([u8; LENGTH]) -> T) -> Option<(T, &[u8])> {
    let (first, rest) = bytes.split_first_chunk()?;
    Some((read(*first), rest))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

    use proptest::prelude::*;

    use super::*;

    fn encoded(value: &Value) -> Vec<u8> {
        let mut bytes = Vec::new();
        value.encode(&mut bytes).unwrap();
        bytes
    }

    fn values() -> impl Strategy<Value = Value> {
        prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::Boolean),
            any::<i64>().prop_map(Value::Int64),
            any::<u64>().prop_map(|bits| Value::Float64(f64::from_bits(bits))),
            any::<String>().prop_map(Value::String),
            any::<i32>().prop_map(Value::Date),
            any::<i64>().prop_map(Value::Datetime),
        ]
    }

    #[test]
    fn the_bytes_of_each_kind_are_pinned() {
        assert_eq!(encoded(&Value::Null), [0]);
        assert_eq!(encoded(&Value::Boolean(true)), [1, 1]);
        assert_eq!(encoded(&Value::Int64(-2)), [2, 254, 255, 255, 255, 255, 255, 255, 255]);
        assert_eq!(encoded(&Value::Float64(1.5)), [3, 0, 0, 0, 0, 0, 0, 0xF8, 0x3F]);
        assert_eq!(encoded(&Value::Float64(-0.0)), [3, 0, 0, 0, 0, 0, 0, 0, 0x80]);
        assert_eq!(encoded(&Value::String("é".to_owned())), [4, 2, 0, 0, 0, 0xC3, 0xA9]);
        assert_eq!(encoded(&Value::Date(1)), [5, 1, 0, 0, 0]);
        assert_eq!(encoded(&Value::Datetime(1)), [6, 1, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn every_nan_has_the_same_bytes() {
        for bits in [0x7FF8_0000_0000_0000, 0xFFF8_0000_0000_0000, 0x7FF0_0000_0000_0001, u64::MAX] {
            let bytes = encoded(&Value::Float64(f64::from_bits(bits)));
            assert_eq!(bytes, [3, 0, 0, 0, 0, 0, 0, 0xF8, 0x7F]);
        }
    }

    #[test]
    fn bytes_that_are_no_value_are_left_alone() {
        let refused: [&[u8]; 8] = [
            &[],
            &[7],
            &[255],
            &[1],
            &[1, 2],
            &[2, 0, 0, 0, 0, 0, 0, 0],
            &[4, 255, 255, 255, 255, b'a'],
            &[4, 1, 0, 0, 0, 0x80],
        ];
        for bytes in refused {
            let mut rest = bytes;
            assert_eq!(Value::decode(&mut rest), None);
            assert_eq!(rest, bytes);
        }
    }

    proptest! {
        #[test]
        fn rows_come_back_as_they_went(row in proptest::collection::vec(values(), 0..8)) {
            let mut bytes = Vec::new();
            row.iter().for_each(|value| value.encode(&mut bytes).unwrap());
            let mut rest = bytes.as_slice();
            for value in &row {
                let found = Value::decode(&mut rest).unwrap();
                prop_assert_eq!(found.kind(), value.kind());
                prop_assert_eq!(encoded(&found), encoded(value));
            }
            prop_assert!(rest.is_empty());
        }

        #[test]
        fn whatever_decodes_has_these_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let mut rest = bytes.as_slice();
            if let Some(value) = Value::decode(&mut rest) {
                let length = bytes.len() - rest.len();
                if !matches!(value, Value::Float64(number) if number.is_nan()) {
                    prop_assert_eq!(encoded(&value), bytes.get(..length).unwrap());
                }
            }
        }
    }
}
