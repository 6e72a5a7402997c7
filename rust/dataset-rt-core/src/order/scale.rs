//! Exact scaling of doubles by powers of two, on their bits.
//!
//! Logarithm functions round up just below a power of two and multiplying twice rounds twice, so neither serves an
//! order that must be the same everywhere.

/// Bits of a double's fraction.
const FRACTION_BITS: u32 = 52;
/// The fraction's mask.
const FRACTION: u64 = (1 << FRACTION_BITS) - 1;
/// Exponent of the least normal double.
const LEAST_NORMAL: i32 = -1022;
/// Exponent of the least subnormal double: the unit that all doubles are multiples of.
const LEAST_SUBNORMAL: i32 = -1074;
/// What a normal double's exponent field is above its exponent.
const BIAS: i32 = 1023;

/// A positive finite double as `mantissa · 2^exponent` with `2^52 <= mantissa < 2^53`.
#[derive(Clone, Copy)]
struct Parts {
    mantissa: u64,
    exponent: i32,
}

impl Parts {
    fn of(value: f64) -> Self {
        let bits = value.to_bits();
        let fraction = bits & FRACTION;
        // Eleven bits are left: the sign is positive.
        match i32::try_from(bits >> FRACTION_BITS).unwrap_or(0) {
            0 => {
                // A subnormal: its leading zeros become exponent.
                let shift = fraction.leading_zeros().saturating_sub(63 - FRACTION_BITS);
                Self {
                    mantissa: fraction.checked_shl(shift).unwrap_or(0),
                    exponent: LEAST_SUBNORMAL - shift.cast_signed(),
                }
            }
            field => {
                Self { mantissa: fraction | (1 << FRACTION_BITS), exponent: field - BIAS - FRACTION_BITS.cast_signed() }
            }
        }
    }
}

/// The e for which `2^e <= value < 2^(e+1)`; `value` is positive and finite.
pub(super) fn binary_exponent(value: f64) -> i32 {
    Parts::of(value).exponent + FRACTION_BITS.cast_signed()
}

/// `value · 2^exponent` rounded once, half to even, as C's `ldexp` gives it; `value` is zero, or positive and finite.
pub(super) fn scale(value: f64, exponent: i32) -> f64 {
    if value == 0.0 {
        return value;
    }
    let parts = Parts::of(value);
    let unit = parts.exponent + exponent;
    let result_exponent = unit + FRACTION_BITS.cast_signed();
    if result_exponent > BIAS {
        return f64::INFINITY;
    }
    if result_exponent >= LEAST_NORMAL {
        let field = u64::from((result_exponent + BIAS).unsigned_abs());
        return f64::from_bits((field << FRACTION_BITS) | (parts.mantissa & FRACTION));
    }
    // The result is subnormal: a multiple of 2^-1074, so bits below that are rounded away.
    let dropped = (LEAST_SUBNORMAL - unit).unsigned_abs();
    if dropped > FRACTION_BITS + 1 {
        return 0.0;
    }
    let kept = parts.mantissa >> dropped;
    let remainder = parts.mantissa & ((1 << dropped) - 1);
    let half = 1 << (dropped - 1);
    let rounded = kept + u64::from(remainder > half || (remainder == half && kept & 1 == 1));
    // Rounding up to 2^52 carries into the exponent field and is then the least normal double, as it should.
    f64::from_bits(rounded)
}

/// `floor(value · 2^exponent)`; `value` is zero, or positive and finite, and the result must be below 2^64.
pub(super) fn floor_scaled(value: f64, exponent: i32) -> u64 {
    if value == 0.0 {
        return 0;
    }
    let parts = Parts::of(value);
    let unit = parts.exponent + exponent;
    let shift = unit.unsigned_abs();
    if unit >= 0 { parts.mantissa << shift } else { parts.mantissa.checked_shr(shift).unwrap_or(0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponents_come_from_the_bits() {
        for exponent in LEAST_NORMAL..=BIAS {
            let power = f64::from_bits(u64::from((exponent + BIAS).unsigned_abs()) << FRACTION_BITS);
            assert_eq!(binary_exponent(power), exponent);
            assert_eq!(binary_exponent(power.next_down()), exponent - 1, "just below 2^{exponent}");
        }
        assert_eq!(binary_exponent(f64::from_bits(1)), LEAST_SUBNORMAL);
        assert_eq!(binary_exponent(f64::from_bits(3)), LEAST_SUBNORMAL + 1);
        assert_eq!(binary_exponent(f64::MAX), BIAS);
    }

    #[test]
    fn underflow_rounds_once_and_half_to_even() {
        let least = f64::from_bits(1);
        assert_eq!(scale(1.0, -1074), least);
        assert_eq!(scale(1.0, -1075), 0.0, "a tie goes to the even zero");
        assert_eq!(scale(1.0_f64.next_up(), -1075), least, "anything above the tie goes up");
        assert_eq!(scale(1.5, -1074), f64::from_bits(2), "a tie goes up to the even two");
        assert_eq!(scale(2.5, -1074), f64::from_bits(2), "a tie goes down to the even two");
        assert_eq!(scale(f64::MAX, -2098), least);
        assert_eq!(scale(f64::MAX, -2099), 0.0);
        assert_eq!(scale(2.0_f64.next_down(), -1023), f64::MIN_POSITIVE, "a carry makes the least normal double");
    }

    #[test]
    fn scaling_a_subnormal_up_is_exact() {
        assert_eq!(scale(f64::from_bits(3), 1074), 3.0);
        assert_eq!(scale(f64::from_bits(1), 2097), 2.0_f64.powi(1023));
        assert_eq!(scale(f64::from_bits(1), 2098), f64::INFINITY);
        assert_eq!(scale(0.0, 1000), 0.0);
    }

    #[test]
    fn floors_are_exact() {
        assert_eq!(floor_scaled(1.75, 0), 1);
        assert_eq!(floor_scaled(1.75, 2), 7);
        assert_eq!(floor_scaled(2.0_f64.next_down(), 61), (1 << 62) - (1 << 9));
        assert_eq!(floor_scaled(f64::from_bits(1), 61), 0);
        assert_eq!(floor_scaled(0.0, 61), 0);
    }
}
