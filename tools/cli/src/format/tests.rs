use super::{ReplyFormat, Style};
use resp::parse::{ReplyLimits, Value, parse};

fn style(form: ReplyFormat, colours: bool) -> Style {
    Style { form, colours, element_delimiter: b"\n".to_vec(), reply_delimiter: b"\n".to_vec() }
}

/// Parses a reply and formats it.
fn shown(wire: &[u8], form: ReplyFormat) -> String {
    let style = style(form, false);
    let mut out = Vec::new();
    style.push_message(&reply(wire), &mut out);
    String::from_utf8_lossy(&out).into_owned()
}

fn reply(wire: &[u8]) -> Value {
    parse(wire, &ReplyLimits::default()).unwrap().unwrap().0
}

/// Checks a reply in the four formats. The expected texts were compared with redis-cli's, except for replies that
/// redis-cli can't read.
fn check(wire: &[u8], standard: &str, raw: &str, csv: &str, json: &str) {
    for (form, expected) in [
        (ReplyFormat::Standard, standard),
        (ReplyFormat::Raw, raw),
        (ReplyFormat::Csv, csv),
        (ReplyFormat::Json { quoted: false }, json),
    ] {
        assert_eq!(shown(wire, form), format!("{expected}\n"), "{form:?} of {}", wire.escape_ascii());
    }
}

#[test]
fn single_values() {
    check(b"+a \"b\"\r\n", "a \"b\"", "a \"b\"", r#""a \"b\"""#, r#""a \"b\"""#);
    check(b":-5\r\n", "(integer) -5", "-5", "-5", "-5");
    check(b"$4\r\na\"\n\x07\r\n", r#""a\"\n\a""#, "a\"\n\x07", r#""a\"\n\a""#, r#""a\"\n\u0007""#);
    check(b"$-1\r\n", "(nil)", "", "NULL", "null");
    check(b"*-1\r\n", "(nil)", "", "NULL", "null");
    check(b"_\r\n", "(nil)", "", "NULL", "null");
    check(b",3.0\r\n", "(double) 3.0", "3.0", "3.0", "3.0");
    check(b"#f\r\n", "(false)", "(false)", "false", "false");
    check(b"-ERR no\r\n", "(error) ERR no", "ERR no\n", "ERROR,\"ERR no\"", "error:\"ERR no\"");
    check(b"=6\r\ntxt:a\n\r\n", "a\n", "a\n", "\"a\\n\"", "\"a\\n\"");
}

#[test]
fn replies_that_redis_cli_cannot_read_are_printed() {
    check(
        b"(12345678901234567890\r\n",
        "(integer) 12345678901234567890",
        "12345678901234567890",
        "12345678901234567890",
        "12345678901234567890",
    );
    check(b"!6\r\nERR a\n\r\n", "(error) ERR a\n", "ERR a\n\n", "ERROR,\"ERR a\\n\"", "error:\"ERR a\\n\"");
    check(b"|1\r\n+a\r\n:1\r\n:2\r\n", "(integer) 2", "2", "2", "2");
}

#[test]
fn aggregates_nest() {
    check(
        b"%2\r\n$1\r\na\r\n*2\r\n:1\r\n%1\r\n+k\r\n~2\r\n,1.5\r\n#t\r\n+b\r\n_\r\n",
        "1# \"a\" => \n   1) (integer) 1\n   2) 1# k => \n         1~ (double) 1.5\n         2~ (true)\n2# b => (nil)",
        "a 1\nk 1.5\n(true)\nb ",
        "\"a\",1,\"k\",1.5,true,\"b\",NULL",
        "{\"a\":[1,{\"k\":[1.5,true]}],\"b\":null}",
    );
    check(b"*0\r\n", "(empty array)", "", "", "[]");
    check(b"~0\r\n", "(empty set)", "", "", "[]");
    check(b"%0\r\n", "(empty hash)", "", "", "{}");
    check(b">0\r\n", "(empty push)", "", "", "[]");
}

#[test]
fn numbers_are_aligned() {
    let mut wire = b"*10\r\n".to_vec();
    wire.extend(b":7\r\n".repeat(9));
    wire.extend(b"*1\r\n:8\r\n");
    let text = shown(&wire, ReplyFormat::Standard);
    assert!(text.starts_with(" 1) (integer) 7\n 2) "), "{text}");
    assert!(text.ends_with("\n10) 1) (integer) 8\n"), "{text}");
}

#[test]
fn values_of_several_lines_start_on_a_new_line() {
    let check = |wire: &[u8], expected: &str| assert_eq!(shown(wire, ReplyFormat::Standard), expected);
    check(b"%1\r\n+k\r\n*1\r\n:1\r\n", "1# k => 1) (integer) 1\n");
    check(b"%1\r\n+k\r\n%1\r\n+j\r\n%1\r\n+l\r\n:5\r\n", "1# k => 1# j => 1# l => (integer) 5\n");
    check(b"%1\r\n+k\r\n~1\r\n*2\r\n:1\r\n:2\r\n", "1# k => \n   1~ 1) (integer) 1\n      2) (integer) 2\n");
    check(
        b"%1\r\n+k\r\n%1\r\n*2\r\n:1\r\n:2\r\n:3\r\n",
        "1# k => 1# 1) (integer) 1\n      2) (integer) 2 => (integer) 3\n",
    );
    check(b"%1\r\n+k\r\n*0\r\n", "1# k => (empty array)\n");
}

#[test]
fn keys_of_objects_are_strings() {
    assert_eq!(
        shown(b"%2\r\n#t\r\n:1\r\n*1\r\n+x\r\n:2\r\n", ReplyFormat::Json { quoted: false }),
        "{\"true\":1,\"[\\\"x\\\"]\":2}\n"
    );
}

#[test]
fn quoted_json_is_ascii() {
    assert_eq!(
        shown(b"$4\r\n\xff\"\n\\\r\n", ReplyFormat::Json { quoted: true }),
        "\"\\\\xff\\\\\\\"\\\\n\\\\\\\\\"\n"
    );
}

#[test]
fn forgotten_keys() {
    let wire = b">2\r\n$10\r\ninvalidate\r\n*2\r\n$1\r\na\r\n$2\r\nb\"\r\n";
    assert_eq!(shown(wire, ReplyFormat::Standard), "-> invalidate: 'a', 'b\"'\n");
    assert_eq!(shown(wire, ReplyFormat::Raw), "invalidate\na\nb\"\n");
    assert_eq!(shown(b">2\r\n$10\r\ninvalidate\r\n_\r\n", ReplyFormat::Standard), "1) \"invalidate\"\n2) (nil)\n");
}

#[test]
fn delimiters_are_the_users() {
    let style =
        Style { element_delimiter: b"; ".to_vec(), reply_delimiter: Vec::new(), ..style(ReplyFormat::Raw, false) };
    let mut out = Vec::new();
    style.push_reply(&reply(b"*2\r\n:1\r\n:2\r\n"), false, &mut out);
    assert_eq!(out, b"1; 2");
}

#[test]
fn reports_are_printed_as_they_are() {
    let style = Style {
        element_delimiter: b",".to_vec(),
        reply_delimiter: b";".to_vec(),
        ..style(ReplyFormat::Json { quoted: true }, false)
    };
    let mut out = Vec::new();
    style.push_reply(&reply(b"$5\r\n# \"a\"\r\n"), true, &mut out);
    assert_eq!(out, b"# \"a\"");
}

#[test]
fn colours_tell_types_apart_for_people_only() {
    let coloured = |wire: &[u8], form: ReplyFormat| {
        let mut out = Vec::new();
        style(form, true).push_reply(&reply(wire), false, &mut out);
        String::from_utf8(out).unwrap().replace("\x1b[", "<").replace('m', ">")
    };
    let check =
        |wire: &[u8], expected: &str| assert_eq!(coloured(wire, ReplyFormat::Standard), format!("{expected}\n"));
    check(b"+OK\r\n", "<1>OK<0>");
    check(b"$1\r\na\r\n", "<32>\"a\"<0>");
    check(b":5\r\n", "<36>(integer) 5<0>");
    check(b"-ERR no\r\n", "<31>(error) ERR no<0>");
    check(b"$-1\r\n", "<35>(nil)<0>");
    check(b"~0\r\n", "<35>(e>pty set)<0>");
    check(b"*2\r\n:1\r\n_\r\n", "<90>1)<0> <36>(integer) 1<0>\n<90>2)<0> <35>(nil)<0>");
    check(b"%1\r\n+k\r\n#t\r\n", "<90>1#<0> <1>k<0> => <36>(true)<0>");
    for form in [ReplyFormat::Raw, ReplyFormat::Csv, ReplyFormat::Json { quoted: false }] {
        assert!(!coloured(b"*2\r\n:1\r\n$1\r\na\r\n", form).contains('<'), "{form:?}");
    }
    let mut report = Vec::new();
    style(ReplyFormat::Standard, true).push_reply(&reply(b"$5\r\na:1\r\n\r\n"), true, &mut report);
    assert_eq!(report, b"a:1\r\n");
}
