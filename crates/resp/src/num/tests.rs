use super::*;

#[test]
fn integers_have_one_spelling() {
    let good = [
        "0",
        "1",
        "-1",
        "9",
        "10",
        "12345678",
        "123456789",
        "-12345678",
        "9223372036854775807",
        "-9223372036854775808",
    ];
    for text in good {
        assert_eq!(parse_i64(text.as_bytes()), text.parse().ok(), "{text}");
        assert!(parse_i64(text.as_bytes()).is_some(), "{text}");
    }
    let bad = [
        "",
        "-",
        "+1",
        "-0",
        "00",
        "01",
        "-01",
        " 1",
        "1 ",
        "1.0",
        "1e3",
        "0x10",
        "1\0",
        "9223372036854775808",
        "-9223372036854775809",
        "99999999999999999999",
        "18446744073709551616",
        "1234567/",
        "1234567:",
        "1234567 ",
        "/1234567",
        "12345678a",
        "123456789012345678901234567890",
    ];
    for text in bad {
        assert_eq!(parse_i64(text.as_bytes()), None, "{text}");
    }
}

#[test]
fn only_digits_are_accepted_in_every_position() {
    for at in 1..16 {
        for byte in 0..=255u8 {
            let mut text = *b"1234567812345678";
            text[at] = byte;
            assert_eq!(parse_i64(&text).is_some(), byte.is_ascii_digit(), "byte {byte} at {at}");
        }
    }
}

#[test]
fn integers_survive_a_round_trip() {
    let mut value = 1i64;
    for step in 0..200i64 {
        for candidate in [value, value.wrapping_neg(), value.wrapping_add(step)] {
            let mut out = Vec::new();
            write_i64(&mut out, candidate);
            assert_eq!(parse_i64(&out), Some(candidate));
        }
        value = value.wrapping_mul(7).wrapping_add(step);
    }
    let mut out = Vec::new();
    write_u64(&mut out, u64::MAX);
    assert_eq!(out, b"18446744073709551615");
}

#[test]
fn unsigned_numbers_are_lenient() {
    let cases: [(&[u8], Option<u64>); 20] = [
        (b"0", Some(0)),
        (b"", None),
        (b"\x001", None),
        (b" ", None),
        (b"007", Some(7)),
        (b"+5", Some(5)),
        (b"-1", None),
        (b"-9223372036854775808", None),
        (b"-9223372036854775809", Some(9_223_372_036_854_775_807)),
        (b"-01", Some(u64::MAX)),
        (b" -1", Some(u64::MAX)),
        (b"-0", Some(0)),
        (b"1\0x", Some(1)),
        (b"18446744073709551615", Some(u64::MAX)),
        (b"18446744073709551616", None),
        (b"\t 1", Some(1)),
        (b"1 ", None),
        (b"-", None),
        (b"abc", None),
        (b"1a", None),
    ];
    for (text, expected) in cases {
        assert_eq!(parse_u64_lenient(text), expected, "{text:?}");
    }
}

#[test]
fn floats_are_parsed_like_strtod() {
    let cases: [(&str, f64); 26] = [
        ("0", 0.0),
        ("3.0e3", 3000.0),
        ("1.", 1.0),
        (".5", 0.5),
        ("+.5", 0.5),
        ("-1.5", -1.5),
        ("1E5", 1e5),
        ("inf", f64::INFINITY),
        ("+Inf", f64::INFINITY),
        ("-INFINITY", f64::NEG_INFINITY),
        ("0x10", 16.0),
        ("-0X1.8p1", -3.0),
        ("0x.8", 0.5),
        ("0x1.", 1.0),
        ("0x1p-1074", 5e-324),
        ("5e-324", 5e-324),
        ("0x1.fffffffffffff8p0", 2.0),
        ("0x1.fffffffffffff7ffffffffffp0", 1.9999999999999998),
        ("0x1.00000000000008p0", 1.0),
        ("0x1.000000000000080000000000000001p0", 1.0000000000000002),
        ("0x0.0000000000000000000000000000001p124", 1.0),
        ("0x10000000000000000000000p-88", 1.0),
        ("0e999999999999999999999", 0.0),
        ("0x0p99999999999999999999", 0.0),
        ("1e300", 1e300),
        ("0x1.fffffffffffffp1023", f64::MAX),
    ];
    for (text, expected) in cases {
        assert_eq!(parse_f64(text.as_bytes()), Some(expected), "{text}");
    }
}

#[test]
fn invalid_floats_are_refused() {
    let bad = [
        "",
        " 1",
        "1 ",
        "\t1",
        "nan",
        "NaN",
        "-nan",
        "nan(1)",
        "infinit",
        "1e",
        "1e+",
        "e5",
        ".",
        "+",
        "--1",
        "1_0",
        "1e400",
        "-1e400",
        "1e-400",
        "0x",
        "0x.",
        "0xg",
        "0x1p",
        "0x1p+",
        "0x1.2.3",
        "1.2.3",
        "0x1p1024",
        "0x1p-1076",
        "0x1p-1075",
        "0x1p99999999999999999999",
        "0x1p-99999999999999999999",
        "1\0",
        "\u{661}",
        "0x1.fffffffffffff8p1023",
    ];
    for text in bad {
        assert_eq!(parse_f64(text.as_bytes()), None, "{text}");
    }
}

#[test]
fn score_bounds_are_lenient() {
    let cases: [(&str, Option<(f64, bool)>); 17] = [
        ("1.5", Some((1.5, false))),
        ("(1.5", Some((1.5, true))),
        ("-inf", Some((f64::NEG_INFINITY, false))),
        ("(+inf", Some((f64::INFINITY, true))),
        ("1\0x", Some((1.0, false))),
        (" 1", None),
        ("( 1", None),
        ("\t1", None),
        ("0x1", None),
        ("(0x1p3", None),
        ("", Some((0.0, false))),
        ("(", Some((0.0, true))),
        ("1e400", Some((f64::INFINITY, false))),
        ("1 ", None),
        (" ", None),
        ("nan", None),
        ("((1", None),
    ];
    for (text, expected) in cases {
        assert_eq!(parse_score_bound(text.as_bytes()), expected, "{text}");
    }
}

#[test]
fn floats_are_printed_as_in_redis() {
    let cases: [(f64, &str); 34] = [
        (0.0, "0"),
        (-0.0, "-0"),
        (3.0, "3"),
        (-17.0, "-17"),
        (0.1, "0.1"),
        (-0.1, "-0.1"),
        (1.5, "1.5"),
        (f64::NAN, "nan"),
        (f64::INFINITY, "inf"),
        (f64::NEG_INFINITY, "-inf"),
        (4611686018427387904.0, "4611686018427387904"),
        (-4611686018427387904.0, "-4611686018427387904"),
        (4611686018427388928.0, "4611686018427389000"),
        (9223372036854775808.0, "9223372036854776000"),
        (1e18, "1000000000000000000"),
        (1e19, "1e+19"),
        (1e21, "1e+21"),
        (1e100, "1e+100"),
        (1e300, "1e+300"),
        (1.23e20, "1.23e+20"),
        (123456789012345680000.0, "123456789012345680000"),
        (1.5e-7, "1.5e-7"),
        (1e-6, "0.000001"),
        (1e-7, "1e-7"),
        (0.000123456, "1.23456e-4"),
        (0.00123456, "0.00123456"),
        (5e-324, "5e-324"),
        (f64::MAX, "1.7976931348623157e+308"),
        (-f64::MAX, "-1.7976931348623157e+308"),
        (f64::MIN_POSITIVE, "2.2250738585072014e-308"),
        (std::f64::consts::PI, "3.141592653589793"),
        (0.3333333333333333, "0.3333333333333333"),
        (1e-10, "1e-10"),
        (100.25, "100.25"),
    ];
    for (value, expected) in cases {
        let text = FloatText::new(value);
        assert_eq!(String::from_utf8_lossy(text.as_bytes()), expected);
    }
}

#[test]
fn any_printed_float_reads_back_as_itself() {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    for _ in 0..200_000 {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let value = f64::from_bits(state ^ state >> 31);
        if value.is_finite() {
            let text = FloatText::new(value);
            assert_eq!(parse_f64(text.as_bytes()), Some(value), "{value:e}");
        }
    }
}

#[test]
fn digits_equal_grisu2_even_if_not_optimal() {
    // The shortest digits would end in 0639e260, and the nearest ones in 412e223.
    assert_eq!(FloatText::new(4.356003652470639e260).as_bytes(), b"4.3560036524706387e+260");
    assert_eq!(FloatText::new(2.2485989149227412e223).as_bytes(), b"2.2485989149227411e+223");
}

#[test]
fn cached_powers_of_ten_are_exactly_rounded() {
    for (index, power) in shortest::POWERS.iter().enumerate() {
        let text = format!("1e{}", -348 + 8 * index as i32);
        let (significand, _) = crate::longdouble::F80::parse(text.as_bytes()).unwrap().parts().unwrap();
        assert_eq!(*power, significand, "{text}");
    }
}
