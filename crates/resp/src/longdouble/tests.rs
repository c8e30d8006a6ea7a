use super::*;

/// Returns the sum, or a short form of the error that INCRBYFLOAT would reply.
fn sum(a: &str, b: &str) -> String {
    let (Some(a), Some(b)) = (F80::parse(a.as_bytes()), F80::parse(b.as_bytes())) else { return "not a float".into() };
    let total = a.add(b);
    if total.is_nan_or_inf() {
        return "NaN or Infinity".into();
    }
    let mut text = Vec::new();
    total.format_human(&mut text);
    String::from_utf8(text).unwrap()
}

/// Expected sums come from a Redis server on x86-64.
#[test]
fn sums_equal_redis() {
    let rows = [
        ("0.1", "0.2", "0.3"),
        ("10.5", "0.1", "10.6"),
        ("3.0e3", "200", "3200"),
        ("5.0e3", "-200", "4800"),
        ("1", "-1.5", "-0.5"),
        ("5e-324", "1", "1"),
        ("4e-4951", "1", "1"),
        ("1e-4950", "0", "0"),
        ("0x10", "1", "17"),
        ("0x1p-63", "1", "1"),
        ("-0", "0", "0"),
        ("-1e-18", "0", "0"),
        ("0.000000000000000005", "0", "0"),
        ("0.000000000000000015", "0", "0.00000000000000002"),
        ("0.99999999999999999999", "0", "1"),
        ("99999999999999999.99", "0.01", "100000000000000000"),
        ("9223372036854775807", "0.5", "9223372036854775807.5"),
        ("18446744073709551616", "0.5", "18446744073709551616"),
        (" 1", "1", "not a float"),
        ("1 ", "1", "not a float"),
        ("1e-4951", "1", "not a float"),
        ("1e-4952", "0", "not a float"),
        ("inf", "1", "NaN or Infinity"),
        ("1e4932", "1e4932", "NaN or Infinity"),
        (
            "1e300",
            "1",
            "10000000000000000000089973240795591938705239442732907479382600823212656465961809357558491520837504971903503\
            72508614274835903592556184672983913096260520748646287327135641843653294084255107606016789726652932370030551\
            382947620994540294772781889620606179267611627097410650567187386105690089424915104006144",
        ),
    ];
    for (a, b, expected) in rows {
        assert_eq!(sum(a, b), expected, "{a} + {b}");
        assert_eq!(sum(b, a), expected, "{b} + {a}");
    }
}

#[test]
fn invalid_long_doubles_are_refused() {
    let too_long = "1".repeat(TEXT_BYTES_LIMIT);
    let bad = ["", "-", ".", "nan", "1e", "1x", "0x", "infinit", "--1", "1.2.3", "1e5000", "0x1p16384", &too_long];
    for text in bad {
        assert_eq!(F80::parse(text.as_bytes()), None, "{text}");
    }
    assert!(F80::parse(&too_long.as_bytes()[1..]).is_none(), "5119 digits are too large a number");
    let long_zero = format!("{}1", "0".repeat(TEXT_BYTES_LIMIT - 2));
    assert_eq!(F80::parse(long_zero.as_bytes()), Some(F80::from(1)));
}

#[test]
fn infinities_add_up_as_in_ieee_754() {
    let infinity = F80::parse(b"+Infinity").unwrap();
    let minus = F80::parse(b"-inf").unwrap();
    let mut text = Vec::new();
    for number in [infinity.add(F80::from(1)), F80::from(1).add(minus), infinity.add(minus)] {
        assert!(number.is_nan_or_inf());
        number.format_human(&mut text);
        text.push(b' ');
    }
    assert_eq!(text, b"inf -inf nan ");
    assert!(!F80::ZERO.is_nan_or_inf());
}

#[test]
fn significands_are_rounded_to_even() {
    let max = (u64::MAX, 0);
    let cases = [
        ("0xffffffffffffffff", max),
        ("0xffffffffffffffff.7", max),
        ("0xfffffffffffffffe.8", (u64::MAX - 1, 0)),
        ("0xfffffffffffffffe.80000000000000000000000001", max),
        ("0xffffffffffffffff.8", (1 << 63, 1)),
        ("18446744073709551614.5", (u64::MAX - 1, 0)),
        ("18446744073709551614.50000000000000000000000000001", max),
        ("0x1p-16445", (1, -16445)),
        ("0x3p-16446", (2, -16445)),
    ];
    for (text, parts) in cases {
        assert_eq!(F80::parse(text.as_bytes()).unwrap().parts(), Some(parts), "{text}");
    }
    assert_eq!(F80::parse(b"0x1p-16446"), None, "half of the smallest number rounds to zero");
}

#[test]
fn small_and_large_arithmetic_agree() {
    let mut state = 1u64;
    for _ in 0..2_000 {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let digits = (state >> (state % 50)).to_string().into_bytes();
        let digits = &digits[..digits.len().min(19)];
        for exponent in [-26, -17, -1, 0, 1, 26] {
            let (small, small_exponent) = scale_small(digits, exponent).unwrap();
            let (large, large_exponent) = scale_large(digits, exponent);
            let rounded = F80::round(false, small, small_exponent);
            assert_eq!(rounded, F80::round(false, large, large_exponent), "{digits:?}e{exponent}");
        }
    }
}

#[test]
fn integers_convert_exactly() {
    for value in [0, 1, -1, i64::MAX, i64::MIN, 1 << 53] {
        let mut text = Vec::new();
        F80::from(value).format_human(&mut text);
        assert_eq!(text, value.to_string().into_bytes());
    }
}

#[test]
fn multiplication_by_a_thousand_and_rounding_up() {
    let rows = [
        ("0", 0),
        ("-0", 0),
        ("0.1", 100),
        ("0.0001", 1),
        ("1.5", 1500),
        ("1e-4900", 1),
        ("-1e-4900", 0),
        ("-0.0005", 0),
        // The long double nearest to 0.001 is a little less.
        ("-0.001", 0),
        ("-0.0015", -1),
        ("-1", -1000),
        ("9223372036854775", 9_223_372_036_854_775_000),
        ("9223372036854775.8", 9_223_372_036_854_775_800),
        ("-9223372036854775.8", -9_223_372_036_854_775_800),
        ("9223372036854776", i64::MAX),
        ("-9223372036854776", i64::MIN),
        ("18446744073709551616", i64::MAX),
        ("1e4000", i64::MAX),
        ("-1e4000", i64::MIN),
        ("inf", i64::MAX),
        ("-inf", i64::MIN),
    ];
    for (text, expected) in rows {
        assert_eq!(F80::parse(text.as_bytes()).unwrap().times(1000).ceil(), expected, "{text}");
    }
}
