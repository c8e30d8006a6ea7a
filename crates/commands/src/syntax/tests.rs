use super::*;
use crate::spec::key_flag::{NOT_KEY, OW, RO};

/// Formats an argument in one line: `TOKEN name:type`, then `?` for optional, `*` for multiple, `+` for a repeated
/// token, `#` and the key specification, `@` and the versions, and its parts in braces.
fn show(argument: &Argument) -> String {
    let mut text = String::new();
    if let Some(token) = &argument.token {
        text += &format!("{token} ");
    }
    text += &format!("{}:{}", argument.name, argument.kind.name());
    for (mark, is_set) in [("?", argument.optional), ("*", argument.multiple), ("+", argument.multiple_token)] {
        text += if is_set { mark } else { "" };
    }
    if let Some(index) = argument.key_spec_index {
        text += &format!("#{index}");
    }
    if let Some(since) = &argument.since {
        text += &format!("@{since}");
    }
    if let Some(deprecated) = &argument.deprecated_since {
        text += &format!("@-{deprecated}");
    }
    if !argument.arguments.is_empty() {
        text += &format!("{{{}}}", show_all(&argument.arguments));
    }
    text
}

fn show_all(arguments: &[Argument]) -> String {
    arguments.iter().map(show).collect::<Vec<_>>().join(", ")
}

#[track_caller]
fn check(syntax: &str, keys: &[KeySpec], expected: &str, expected_least: usize) {
    let arguments = parse(syntax, keys, 1).unwrap();
    assert_eq!(show_all(&arguments), expected, "{syntax}");
    assert_eq!(least(&arguments), expected_least, "{syntax}");
}

#[test]
fn notations_become_trees() {
    check("", &[], "", 0);
    check("message", &[], "message:string", 1);
    check("[message]", &[], "message:string?", 0);
    check("NX", &[], "NX nx:pure-token", 1);
    check("LIMIT offset:integer count:integer", &[], "LIMIT limit:block{offset:integer, count:integer}", 3);
    check("EX seconds:integer", &[], "EX seconds:integer", 2);
    check("[channel [channel ...]]", &[], "channel:string?*", 0);
    check("[NX | XX]:condition", &[], "condition:oneof?{NX nx:pure-token, XX xx:pure-token}", 0);
    check("[AGGREGATE <SUM | MIN>]", &[], "AGGREGATE aggregate:oneof?{SUM sum:pure-token, MIN min:pure-token}", 0);
    check("[GET pattern:pattern [GET pattern:pattern ...]]", &[], "GET pattern:pattern?*+", 0);
    check("[WEIGHTS weight:integer [weight:integer ...]]", &[], "WEIGHTS weight:integer?*", 0);
    check("<*:auto-id | id>", &[], "auto-id-or-id:oneof{* auto-id:pure-token, id:string}", 1);
    check("ip:port:string end", &[], "ip:port:string, end:string", 2);
    check("field value [field value ...]", &[], "data:block*{field:string, value:string}", 2);
    check("first last [first last ...]:range", &[], "range:block*{first:string, last:string}", 2);
    check(
        "[start [end unit]:end-unit]:range",
        &[],
        "range:block?{start:string, end-unit:block?{end:string, unit:string}}",
        0,
    );
    check("[<COUNT count> [ANY]]:count-block", &[], "count-block:block?{COUNT count:string, ANY any:pure-token?}", 0);
    check(
        "<GROUP:group-block group consumer> [NOACK]",
        &[],
        "GROUP group-block:block{group:string, consumer:string}, NOACK noack:pure-token?",
        3,
    );
    check("<key | \"\":empty-string>:selector", &[], "selector:oneof{key:string,  empty-string:pure-token}", 1);
    check(
        "[protover:integer [AUTH username password] [SETNAME clientname]]",
        &[],
        "options:block?{protover:integer, AUTH auth:block?{username:string, password:string}, \
         SETNAME clientname:string?}",
        0,
    );
    check(
        "[<MAXLEN | MINID> [=:equal | ~:approximately] threshold [LIMIT count:integer]]",
        &[],
        "options:block?{maxlen-or-minid:oneof{MAXLEN maxlen:pure-token, MINID minid:pure-token}, \
         equal-or-approximately:oneof?{= equal:pure-token, ~ approximately:pure-token}, threshold:string, \
         LIMIT count:integer?}",
        0,
    );
    check(
        "<BYRADIUS radius:double <M | KM> | BYBOX width:double height:double <M | KM>>",
        &[],
        "byradius-or-bybox:oneof{BYRADIUS byradius:block{radius:double, m-or-km:oneof{M m:pure-token, KM km:pure-token}}, \
         BYBOX bybox:block{width:double, height:double, m-or-km:oneof{M m:pure-token, KM km:pure-token}}}",
        3,
    );
}

#[test]
fn a_version_belongs_to_the_argument_before_it() {
    check("[count:integer@6.2.0]", &[], "count:integer?@6.2.0", 0);
    check("key@1.2.3 [key@1.2.3 ...]", &[], "key:string*@1.2.3", 1);
    check("[CH:change@3.0.2] [ABORT@7.0.0]", &[], "CH change:pure-token?@3.0.2, ABORT abort:pure-token?@7.0.0", 0);
    check("[TYPE@6.0.0 type]", &[], "TYPE type:string?@6.0.0", 0);
    check(
        "[LIMIT@6.2.0 offset count:integer@7.0.0]",
        &[],
        "LIMIT limit:block?@6.2.0{offset:string, count:integer@7.0.0}",
        0,
    );
    check("[KEYS@3.0.6 key [key ...]]", &[], "KEYS key:string?*@3.0.6", 0);
    check(
        "[NX | XX@6.2.0]:condition@3.0.2 <A b@2.0.0 | C>@1.0.0",
        &[],
        "condition:oneof?@3.0.2{NX nx:pure-token, XX xx:pure-token@6.2.0}, b-or-c:oneof@1.0.0{A b:string@2.0.0, C c:pure-token}",
        1,
    );
    check("ip:port:string@-2.8.12 a@1.0.0-2.0.0", &[], "ip:port:string@-2.8.12, a:string@1.0.0@-2.0.0", 2);
    check(
        "[TYPE:client-type@2.8.12 <A | B@3.2.0>]",
        &[],
        "TYPE client-type:oneof?@2.8.12{A a:pure-token, B b:pure-token@3.2.0}",
        0,
    );
}

#[test]
fn pages_omit_types_names_and_versions() {
    for (syntax, expected) in [
        ("", ""),
        ("key  [count:integer]", "key  [count]"),
        ("ip:port:string <*:auto-id | id> end", "ip:port <* | id> end"),
        ("[NX | <LT | GT>:where]:condition [EX seconds:integer]", "[NX | <LT | GT>] [EX seconds]"),
        ("<GROUP:g a b> [TO <host port>:target]", "GROUP a b [TO host port]"),
        ("<<a b>:c | d [e | f]> <g [h | i]>", "<a b | d [e | f]> g [h | i]"),
        ("<key | \"\":none>", "<key | \"\">"),
        ("[NX@1.0.0 | <LT | GT>@2.0.0]:a@3.0.0 [*:b@1.0.0 c:integer@1.0.0-2.0.0]", "[NX | <LT | GT>] [* c]"),
    ] {
        assert_eq!(shown(syntax), expected);
    }
}

#[test]
fn keys_are_found_by_their_specifications() {
    let word = |word: &'static str| KeySpec {
        flags: RO,
        begin: Begin::Keyword(word, 1),
        find: Find::Range { last: -1, step: 1, limit: 0 },
        notes: "",
    };
    check("name [count:integer]", &[KeySpec::at(1, RO)], "name:key#0, count:integer?", 1);
    check("key value [key value ...]", &[KeySpec::range(1, -1, 2, OW)], "data:block*{key:key#0, value:string}", 2);
    check("key1 key2 [LEN]", &[KeySpec::range(1, 1, 1, RO)], "key1:key#0, key2:key#0, LEN len:pure-token?", 2);
    check("message key", &[], "message:string, key:string", 2);
    check("[name]", &[KeySpec::at(1, RO)], "name:key?#0", 0);
    check("[count:integer] name", &[KeySpec::at(2, RO)], "count:integer?, name:string", 1);
    check(
        "destination numkeys:integer key [key ...] [WEIGHTS weight:integer [weight:integer ...]]",
        &[KeySpec::at(1, OW), KeySpec::counted(2, RO)],
        "destination:key#0, numkeys:integer, key:key*#1, WEIGHTS weight:integer?*",
        3,
    );
    check(
        "<LEFT | RIGHT>:where key",
        &[KeySpec::at(2, RO)],
        "where:oneof{LEFT left:pure-token, RIGHT right:pure-token}, key:key#0",
        2,
    );
    check("shardchannel [shardchannel ...]", &[KeySpec::range(1, -1, 1, NOT_KEY)], "shardchannel:string*", 1);
    check(
        "[COUNT count:integer] STREAMS key [key ...] id [id ...]",
        &[word("STREAMS")],
        "COUNT count:integer?, STREAMS streams:block{key:key*#0, id:string*}",
        3,
    );
    check("[KEYS key [key ...]]", &[word("keys")], "KEYS key:key?*#0", 0);
    check(
        "key [BY pattern:pattern] [STORE destination:key]",
        &[KeySpec::at(1, RO), KeySpec::unknown(RO, |_| None), KeySpec::unknown(OW, |_| None)],
        "key:key#0, BY pattern:pattern?, STORE destination:key?#2",
        1,
    );
}

#[test]
fn malformed_notations_are_refused() {
    let rows = [
        ("[key", 4),
        ("key]", 3),
        ("<NX | XX", 8),
        ("<NX | XX]", 9),
        ("LEFT | RIGHT", 5),
        ("[]", 1),
        ("[NX | ]", 6),
        ("key [keys ...]", 14),
        ("[key ...]", 9),
        ("...", 0),
        ("[key ... value]", 14),
        ("count:integre", 13),
        ("ip:port", 7),
        ("[CH]:change", 11),
        ("key [key ...]:keys", 18),
        ("key@", 4),
        ("key@6.2", 7),
        ("[NX]@6.2.x", 10),
        ("key@6.2.0-", 10),
        ("key@-", 5),
        ("key@1.0.0 [key ...]", 19),
        ("key [key ...]@1.0.0", 19),
    ];
    for (syntax, offset) in rows {
        assert_eq!(parse(syntax, &[], 1).map_err(|e| e.offset), Err(offset), "{syntax}");
    }
}
