use super::*;
use proptest::prelude::*;

fn one(text: &str) -> Result<Option<(Value, usize)>, ReplyError> {
    parse(text.as_bytes(), &ReplyLimits::default())
}

fn bulk(text: &str) -> Value {
    Value::Bulk(text.into())
}

/// Parses a complete reply and encodes it again; every truncated form is incomplete.
fn check(text: &str, expected: Value) {
    assert_eq!(one(text), Ok(Some((expected.clone(), text.len()))), "{text:?}");
    assert_eq!(one(&format!("{text}+next\r\n")), Ok(Some((expected.clone(), text.len()))), "{text:?} and more");
    for cut in 0..text.len() {
        assert_eq!(one(&text[..cut]), Ok(None), "{text:?} cut at {cut}");
    }
    let mut encoded = Vec::new();
    expected.encode(&mut encoded);
    assert_eq!(String::from_utf8(encoded).unwrap(), text);
}

#[test]
fn every_type_is_read_and_written() {
    check("+OK\r\n", Value::Simple("OK".into()));
    check("-ERR bad\r\n", Value::Error("ERR bad".into()));
    check("!5\r\nERR\r\n\r\n", Value::BulkError("ERR\r\n".into()));
    check(":-12\r\n", Value::Int(-12));
    check("$0\r\n\r\n", bulk(""));
    check("$5\r\na\r\nbc\r\n", bulk("a\r\nbc"));
    check("$-1\r\n", Value::NullBulk);
    check("*-1\r\n", Value::NullArray);
    check("_\r\n", Value::Null);
    check("#t\r\n", Value::Bool(true));
    check("#f\r\n", Value::Bool(false));
    check(
        "(-3492890328409238509324850943850943825024385\r\n",
        Value::BigNumber("-3492890328409238509324850943850943825024385".into()),
    );
    check("=8\r\ntxt:some\r\n", Value::Verbatim { format: *b"txt", text: "some".into() });
    check("*0\r\n", Value::Array(vec![]));
    check("%0\r\n", Value::Map(vec![]));
    check("~1\r\n:1\r\n", Value::Set(vec![Value::Int(1)]));
    check(">2\r\n+a\r\n$1\r\nb\r\n", Value::Push(vec![Value::Simple("a".into()), bulk("b")]));
    check("%1\r\n$1\r\nk\r\n*1\r\n_\r\n", Value::Map(vec![(bulk("k"), Value::Array(vec![Value::Null]))]));
    check("*2\r\n*1\r\n*0\r\n:1\r\n", Value::Array(vec![Value::Array(vec![Value::Array(vec![])]), Value::Int(1)]));
}

#[test]
fn doubles_keep_their_text() {
    for (text, value) in [("1.50", 1.5), ("inf", f64::INFINITY), ("-inf", f64::NEG_INFINITY), ("1e+21", 1e21)] {
        let double = Double::parse(text.as_bytes()).unwrap();
        assert_eq!(double.value(), value);
        assert_eq!(double.text(), text.as_bytes());
        check(&format!(",{text}\r\n"), Value::Double(double));
    }
    check(",nan\r\n", Value::Double(Double::parse(b"nan").unwrap()));
}

#[test]
fn attributes_are_attached_and_can_be_dropped() {
    let attribute = |value| Value::Attribute { attributes: vec![(bulk("ttl"), Value::Int(3))], value: Box::new(value) };
    check("|1\r\n$3\r\nttl\r\n:3\r\n:7\r\n", attribute(Value::Int(7)));
    check("*1\r\n|1\r\n$3\r\nttl\r\n:3\r\n-E\r\n", Value::Array(vec![attribute(Value::Error("E".into()))]));
    check("|0\r\n_\r\n", Value::Attribute { attributes: vec![], value: Box::new(Value::Null) });
    let nested = attribute(attribute(Value::Error("E".into())));
    assert_eq!(nested.error(), Some(&b"E"[..]));
    assert_eq!(nested.without_attribute(), Value::Error("E".into()));
    assert!(attribute(Value::NullArray).is_null());
    assert_eq!(attribute(bulk("x")).bytes(), Some(&b"x"[..]));
}

#[test]
fn malformed_replies_are_refused() {
    let cases = [
        ("hello", ReplyError::UnknownType(b'h')),
        ("\r\n", ReplyError::UnknownType(b'\r')),
        ("$?\r\n", ReplyError::Streamed),
        ("*?\r\n", ReplyError::Streamed),
        ("%?\r\n", ReplyError::Streamed),
        (";4\r\n", ReplyError::Streamed),
        ("$-2\r\n", ReplyError::Length),
        ("!-1\r\n", ReplyError::Length),
        ("%-1\r\n", ReplyError::Length),
        ("$\r\n", ReplyError::Length),
        ("$01\r\n", ReplyError::Length),
        ("%9223372036854775807\r\n", ReplyError::Limit("elements_max")),
        ("$18446744073709551616\r\n", ReplyError::Length),
        ("$1\r\nab\r\n", ReplyError::LineEnd),
        ("$1\r\na\rb", ReplyError::LineEnd),
        ("+a\nb\r\n", ReplyError::LineEnd),
        ("+a\rb\r\n", ReplyError::LineEnd),
        (":\r\n", ReplyError::Content(b':')),
        (":1.5\r\n", ReplyError::Content(b':')),
        (":++1\r\n", ReplyError::Content(b':')),
        (",\r\n", ReplyError::Content(b',')),
        (",0x10\r\n", ReplyError::Content(b',')),
        ("(1.5\r\n", ReplyError::Content(b'(')),
        ("(-\r\n", ReplyError::Content(b'(')),
        ("#x\r\n", ReplyError::Content(b'#')),
        ("_x\r\n", ReplyError::Content(b'_')),
        ("=3\r\ntxt\r\n", ReplyError::Content(b'=')),
        ("*2\r\n:1\r\n?", ReplyError::UnknownType(b'?')),
    ];
    for (text, error) in cases {
        assert_eq!(one(text), Err(error), "{text:?}");
        assert!(!error.to_string().is_empty());
    }
    assert_eq!(one(":+5\r\n"), Ok(Some((Value::Int(5), 5))));
}

#[test]
fn limits_hold_exactly() {
    let limits =
        ReplyLimits { reply_bytes_max: 22, bulk_bytes_max: 4, line_bytes_max: 6, elements_max: 5, depth_max: 2 };
    let cases = [
        ("+123456\r\n", None),
        ("+1234567", Some("line_bytes_max")),
        ("$4\r\nabcd\r\n", None),
        ("$5\r\n", Some("bulk_bytes_max")),
        ("*1\r\n*1\r\n_\r\n", None),
        ("*1\r\n*1\r\n*1\r\n", Some("depth_max")),
        ("*1\r\n*1\r\n*0\r\n", None),
        ("*5\r\n_\r\n_\r\n_\r\n_\r\n_\r\n", None),
        ("*6\r\n", Some("elements_max")),
        ("%3\r\n", Some("elements_max")),
        ("*2\r\n*4\r\n", Some("elements_max")),
        ("|3\r\n", Some("elements_max")),
        ("*2\r\n$4\r\nabcd\r\n$2\r\nab\r\n", None),
        ("*2\r\n$4\r\nabcd\r\n$3\r\nabc\r\n", Some("reply_bytes_max")),
    ];
    for (text, limit) in cases {
        match (parse(text.as_bytes(), &limits), limit) {
            (Ok(Some((_, consumed))), None) => assert_eq!(consumed, text.len(), "{text:?}"),
            (Err(error), Some(limit)) => assert_eq!(error, ReplyError::Limit(limit), "{text:?}"),
            (other, _) => panic!("{text:?} gave {other:?}"),
        }
    }
}

#[test]
fn a_claimed_length_allocates_nothing() {
    let mut parser = Parser::new(ReplyLimits { elements_max: usize::MAX, ..ReplyLimits::default() });
    let progress = parser.advance(b"*4000000000000000000\r\n:1\r\n").unwrap();
    assert_eq!((progress.consumed, progress.value), (26, None));
    assert_eq!(one("$536870912\r\nabc"), Ok(None));
}

#[test]
fn requests_are_arrays_of_bulk_strings() {
    let mut out = Vec::new();
    encode_request(&["SET", "k", ""], &mut out);
    encode_request(&[b"\r\n"], &mut out);
    assert_eq!(out, b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$0\r\n\r\n*1\r\n$2\r\n\r\n\r\n");
}

/// Random values, a few levels deep.
fn values() -> impl Strategy<Value = Value> {
    let line = || "[ -~]{0,12}".prop_map(String::into_bytes);
    let bytes = || prop::collection::vec(any::<u8>(), 0..24);
    let leaf = prop_oneof![
        line().prop_map(Value::Simple),
        line().prop_map(Value::Error),
        bytes().prop_map(Value::BulkError),
        any::<i64>().prop_map(Value::Int),
        bytes().prop_map(Value::Bulk),
        Just(Value::NullBulk),
        Just(Value::NullArray),
        Just(Value::Null),
        any::<f64>().prop_map(|value| Value::Double(Double::parse(value.to_string().as_bytes()).unwrap())),
        any::<bool>().prop_map(Value::Bool),
        bytes().prop_map(|text| Value::Verbatim { format: *b"mkd", text }),
        "-?[0-9]{1,40}".prop_map(|digits| Value::BigNumber(digits.into_bytes())),
    ];
    leaf.prop_recursive(4, 40, 5, |inner| {
        let many = || prop::collection::vec(inner.clone(), 0..5);
        let pairs = || prop::collection::vec((inner.clone(), inner.clone()), 0..4);
        prop_oneof![
            many().prop_map(Value::Array),
            many().prop_map(Value::Set),
            many().prop_map(Value::Push),
            pairs().prop_map(Value::Map),
            (pairs(), inner.clone())
                .prop_map(|(attributes, value)| Value::Attribute { attributes, value: Box::new(value) }),
        ]
    })
}

/// Feeds a stream in pieces and returns all replies, or the error that ended it.
fn feed(stream: &[u8], sizes: &[usize], limits: &ReplyLimits) -> (Vec<Value>, Option<ReplyError>) {
    let mut parser = Parser::new(limits.clone());
    let mut sizes = sizes.iter().cycle();
    let (mut values, mut buffer, mut arrived) = (Vec::new(), Vec::new(), 0);
    while arrived < stream.len() {
        let next = (arrived + sizes.next().unwrap()).min(stream.len());
        buffer.extend_from_slice(&stream[arrived..next]);
        arrived = next;
        loop {
            match parser.advance(&buffer) {
                Err(error) => return (values, Some(error)),
                Ok(progress) => {
                    buffer.drain(..progress.consumed);
                    let Some(value) = progress.value else { break };
                    values.push(value);
                }
            }
        }
    }
    (values, None)
}

proptest! {
    #[test]
    fn a_truncated_reply_is_incomplete_or_the_same(value in values()) {
        let mut bytes = Vec::new();
        value.encode(&mut bytes);
        let limits = ReplyLimits::default();
        for cut in 0..bytes.len() {
            prop_assert_eq!(parse(&bytes[..cut], &limits), Ok(None));
        }
        prop_assert_eq!(parse(&bytes, &limits), Ok(Some((value, bytes.len()))));
    }

    #[test]
    fn pieces_of_any_size_give_the_same_replies(
        values in prop::collection::vec(values(), 1..4),
        sizes in prop::collection::vec(1usize..20, 1..10),
    ) {
        let mut stream = Vec::new();
        values.iter().for_each(|value| value.encode(&mut stream));
        prop_assert_eq!(feed(&stream, &sizes, &ReplyLimits::default()), (values, None));
    }

    #[test]
    fn arbitrary_bytes_never_panic_and_pieces_give_the_same_result(
        stream in "([-+:,(#_$!=*~>%|?;.ftx0-9a]|\r\n|\r|\n){0,60}",
        sizes in prop::collection::vec(1usize..9, 1..6),
    ) {
        let limits = ReplyLimits { line_bytes_max: 5, depth_max: 3, reply_bytes_max: 40, ..ReplyLimits::default() };
        let whole = feed(stream.as_bytes(), &[stream.len() + 1], &limits);
        prop_assert_eq!(feed(stream.as_bytes(), &sizes, &limits), whole);
    }

    #[test]
    fn wild_bytes_never_panic(stream in prop::collection::vec(any::<u8>(), 0..80)) {
        let _ = parse(&stream, &ReplyLimits::default());
    }
}
