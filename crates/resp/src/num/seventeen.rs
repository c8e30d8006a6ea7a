//! Doubles with seventeen digits, as C's `%.17g` prints them: enough to read the same double back, seldom the fewest.

/// Digits that are printed, before zeros at the end are dropped.
const DIGITS: i32 = 17;

/// The least exponent that is printed plainly.
const PLAIN_EXPONENT_MIN: i32 = -4;

/// The text of a double as `%.17g` prints it. Redis 7.2 shows the scores of large sorted sets like that in ZSCAN, and
/// nowhere else.
pub fn seventeen_digits(value: f64) -> String {
    if !value.is_finite() {
        return if value.is_nan() {
            "nan"
        } else if value > 0.0 {
            "inf"
        } else {
            "-inf"
        }
        .into();
    }
    let scientific = format!("{value:.0$e}", DIGITS as usize - 1);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (PLAIN_EXPONENT_MIN..DIGITS).contains(&exponent) {
        let places = DIGITS - 1 - exponent;
        return without_zeros(&format!("{value:.0$}", places as usize)).into();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", without_zeros(mantissa), exponent.abs())
}

/// A decimal fraction without the zeros at its end.
fn without_zeros(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The texts are those of C's printf.
    #[test]
    fn like_printf() {
        for (value, text) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (5.0, "5"),
            (0.1, "0.10000000000000001"),
            (961.243, "961.24300000000005"),
            (-2.5, "-2.5"),
            (100000.0, "100000"),
            (4611686018427387904.0, "4.6116860184273879e+18"),
            (12345678901234567.0, "12345678901234568"),
            (1e17, "1e+17"),
            (1e20, "1e+20"),
            (0.0001, "0.0001"),
            (0.00001, "1.0000000000000001e-05"),
            (1e-7, "9.9999999999999995e-08"),
            (1e300, "1.0000000000000001e+300"),
            (5e-324, "4.9406564584124654e-324"),
            (f64::MAX, "1.7976931348623157e+308"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            assert_eq!(seventeen_digits(value), text);
        }
    }
}
