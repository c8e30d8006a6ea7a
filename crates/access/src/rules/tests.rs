use super::*;
use engine::registry::table;

/// Returns the rules of a new user after these typed rules, or the error.
fn after(rules: &str) -> Result<String, String> {
    let reader = RuleReader { table: table(), all_channels: false };
    let rules = split_args(rules.as_bytes()).unwrap();
    let rules: Vec<&[u8]> = rules.iter().map(Vec::as_slice).collect();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    reader.set(reader.new_user(), &rules).map(|user| text(user.rules())).map_err(text)
}

#[test]
fn rules_are_shown_in_their_shortest_form() {
    let digest = "#148de9c5a7a44d19e56cd9ae1a554bf67847afb0c58f6e12fa29ac7ddfca9940";
    let cases = [
        ("", "off sanitize-payload resetchannels -@all"),
        ("on nopass ~* &* +@all", "on nopass sanitize-payload ~* &* +@all"),
        ("allkeys allchannels allcommands alldbs", "off sanitize-payload ~* &* +@all"),
        ("ON >p >p skip-sanitize-payload", &format!("on skip-sanitize-payload {digest} resetchannels -@all")),
        (&format!("nopass {digest}"), &format!("off sanitize-payload {digest} resetchannels -@all")),
        ("nopass >p <p", "off sanitize-payload resetchannels -@all"),
        ("%R~a %W~a ~b %RW~c %wr~d ~b", "off sanitize-payload ~a ~b ~c ~d resetchannels -@all"),
        ("%R~a %W~b ~c resetkeys %R~d", "off sanitize-payload %R~d resetchannels -@all"),
        ("&a &b* &a", "off sanitize-payload resetchannels &a &b* -@all"),
        ("&a allchannels", "off sanitize-payload &* -@all"),
        ("+get -get +GET", "off sanitize-payload resetchannels -@all +get"),
        ("+config|get +config|set -config", "off sanitize-payload resetchannels -@all -config"),
        ("+config +config|get", "off sanitize-payload resetchannels -@all +config +config|get"),
        ("+select|0 +SELECT|1 +@read -@read", "off sanitize-payload resetchannels -@all +select|0 +select|1 -@read"),
        ("+get +@all -set +nosuch +@none reset", "error"),
        ("+get +@all -set -@all", "off sanitize-payload resetchannels -@all"),
        ("db=3,1", "off sanitize-payload resetchannels db=1,3 -@all"),
        ("db=3 DB=5 ~k", "off sanitize-payload ~k resetchannels db=5 -@all"),
        ("db=3 resetdbs", "off sanitize-payload resetchannels resetdbs -@all"),
        ("db=3 alldbs", "off sanitize-payload resetchannels -@all"),
        (
            "(+get ~a) \"(%W~b &c +set db=2)\"",
            "off sanitize-payload resetchannels -@all (~a resetchannels -@all +get) (%W~b resetchannels &c db=2 -@all +set)",
        ),
        ("(+get ~a) (+set", "error"),
        ("(+get ~a) clearselectors ()", "off sanitize-payload resetchannels -@all (resetchannels -@all)"),
        ("+PSYNC -migrate +get", "off sanitize-payload resetchannels -@all +psync -migrate +get"),
        (
            "+psync (-psync +cluster|Migration)",
            "off sanitize-payload resetchannels -@all +psync (resetchannels -@all -psync +cluster|migration)",
        ),
        ("+migrate|x -migrate", "off sanitize-payload resetchannels -@all -migrate"),
        ("+psync +@all", "off sanitize-payload resetchannels +@all"),
        ("+psync +nosuch", "error"),
        ("-nosuch", "error"),
        ("+cluster|nosuch", "error"),
        ("+json.get", "error"),
        ("+get|", "error"),
        ("on >p ~k &c +@all (+get) reset", "off sanitize-payload resetchannels -@all"),
    ];
    for (rules, expected) in cases {
        match after(rules) {
            Ok(text) => assert_eq!(text, expected, "{rules}"),
            Err(error) => assert_eq!("error", expected, "{rules}: {error}"),
        }
    }
}

#[test]
fn shown_rules_can_be_applied_again() {
    for rules in ["on >p %R~a ~b &c +@read -get +config|get +select|3 db=1 (~x +@all -@dangerous) (resetdbs)", ""] {
        let shown = after(rules).unwrap();
        assert_eq!(after(&shown).unwrap(), shown);
    }
}

#[test]
fn errors_are_redis_s() {
    let modifier = |rule: &str, why: &str| Err(format!("Error in ACL SETUSER modifier '{rule}': {why}"));
    let unknown = "Unknown command or category name in ACL";
    for (rule, why) in [
        ("+nosuch", unknown),
        ("-nosuch", unknown),
        ("+@nosuch", unknown),
        ("+config|nosuch", unknown),
        ("-select|0", unknown),
        ("+config|get|x", "Allowing first-arg of a subcommand is not supported"),
        ("+select|", "Syntax error"),
        ("foo", "Syntax error"),
        ("%Q~c", "Syntax error"),
        ("%RR~c", "Syntax error"),
        ("%~c", "Syntax error"),
        ("<none", "The password you are trying to remove from the user does not exist"),
        ("#abc", "The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters"),
        ("(foo)", "Syntax error"),
        ("db=", "Syntax error"),
        ("db=1,", "Syntax error"),
        ("db=x", "Syntax error"),
        ("db=-1", "The provided database ID is out of range"),
        ("db=2147483648", "The provided database ID is out of range"),
    ] {
        assert_eq!(after(rule), modifier(rule, why), "{rule}");
    }
    assert_eq!(after("\"~a b\""), modifier("~a b", "Syntax error"));
    let unmatched = |rule: &str| Err(format!("Unmatched parenthesis in acl selector starting at '{rule}'."));
    assert_eq!(after("on (+get ~a"), unmatched("(+get"));
    assert_eq!(after("("), unmatched("("));
    assert!(after("~* ~a").unwrap_err().contains("Try 'resetkeys'"));
    assert!(after("&* &a").unwrap_err().contains("Try 'resetchannels'"));
}
