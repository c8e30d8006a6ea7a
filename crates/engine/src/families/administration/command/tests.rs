use std::collections::BTreeSet;

use commands::FAMILIES;
use commands::spec::{Begin, KeySpec, Spec, fact, flag, key_flag};
use commands::testing::check_entry;
use resp::reply::{Output, Proto, Reply};

use super::info::Positions;
use super::*;
use crate::families;
use crate::registry::table;
use crate::testing::{Bench, check, check_resp3};

#[test]
fn info_has_ten_elements() {
    check(&[
        (
            "command info mset",
            "*1|*10|$4|mset|:-3|*2|+write|+denyoom|:1|:-1|:2|*3|+@write|+@string|+@slow|\
             *2|$26|request_policy:multi_shard|$29|response_policy:all_succeeded|\
             *1|*6|$5|flags|*2|+OW|+update|$12|begin_search|*4|$4|type|$5|index|$4|spec|*2|$5|index|:1|\
             $9|find_keys|*4|$4|type|$5|range|$4|spec|*6|$7|lastkey|:-1|$7|keystep|:2|$5|limit|:0|*0",
        ),
        (
            "command info nosuch Command|Count get|get command|",
            "*4|$-1|*10|$13|command|count|:2|*2|+loading|+stale|:0|:0|:0|*2|+@slow|+@connection|*0|*0|*0|$-1|$-1",
        ),
    ]);
    check_resp3(&[
        (
            "command info lmpop nosuch",
            "*2|*10|$5|lmpop|:-4|~2|+write|+movablekeys|:0|:0|:0|~3|+@write|+@list|+@slow|~0|\
             ~1|%3|$5|flags|~3|+RW|+access|+delete|$12|begin_search|%2|$4|type|$5|index|$4|spec|%1|$5|index|:1|\
             $9|find_keys|%2|$4|type|$6|keynum|$4|spec|%3|$9|keynumidx|:0|$8|firstkey|:1|$7|keystep|:1|*0|_",
        ),
        (
            "command info set",
            "*1|*10|$3|set|:-3|~2|+write|+denyoom|:1|:1|:1|~3|+@write|+@string|+@slow|~0|\
             ~1|%4|$5|notes|$43|RW and ACCESS because of the optional `GET`|\
             $5|flags|~4|+RW|+access|+update|+variable_flags|\
             $12|begin_search|%2|$4|type|$5|index|$4|spec|%1|$5|index|:1|\
             $9|find_keys|%2|$4|type|$5|range|$4|spec|%3|$7|lastkey|:0|$7|keystep|:1|$5|limit|:0|*0",
        ),
    ]);
}

#[test]
fn all_commands_are_described_once() {
    let mut bench = Bench::default();
    let mut session = bench.open();
    let count = top(table()).count();
    assert_eq!(bench.line(&mut session, "command count"), format!(":{count}"));
    for line in ["command", "command info"] {
        let reply = bench.line(&mut session, line);
        assert!(reply.starts_with(&format!("*{count}|*10|")), "{line}");
        assert_eq!(reply.matches("*10|").count(), table().all().len(), "{line}");
        assert!(reply.contains("|*10|$12|command|info|:-2|"), "{line}");
    }
    assert!(bench.line(&mut session, "command docs").starts_with(&format!("*{}|", 2 * count)));
    assert!(bench.line(&mut session, "command list").starts_with(&format!("*{}|", table().all().len())));
}

#[test]
fn docs_are_maps() {
    check(&[("command docs nosuch", "*0")]);
    check_resp3(&[
        ("command docs nosuch", "%0"),
        (
            "command docs nosuch command|list",
            "%1|$12|command|list|%5|$7|summary|$30|Returns the names of commands.|$5|since|$5|7.0.0|\
             $5|group|$6|server|$10|complexity|$38|O(N) where N is the number of commands|\
             $9|arguments|*1|%5|$4|name|$8|filterby|$4|type|$5|oneof|$5|token|$8|FILTERBY|$5|flags|~1|+optional|\
             $9|arguments|*3|\
             %4|$4|name|$11|module-name|$4|type|$6|string|$12|display_text|$11|module-name|$5|token|$6|MODULE|\
             %4|$4|name|$8|category|$4|type|$6|string|$12|display_text|$8|category|$5|token|$6|ACLCAT|\
             %4|$4|name|$7|pattern|$4|type|$7|pattern|$12|display_text|$7|pattern|$5|token|$7|PATTERN",
        ),
        (
            "command docs rpoplpush",
            "%1|$9|rpoplpush|%8|\
             $7|summary|$71|Moves the last element of a list to the head of another and returns it.|\
             $5|since|$5|1.2.0|$5|group|$4|list|$10|complexity|$4|O(1)|\
             $9|doc_flags|~1|+deprecated|$16|deprecated_since|$5|6.2.0|\
             $11|replaced_by|$45|`LMOVE` with the `RIGHT` and `LEFT` arguments|\
             $9|arguments|*2|\
             %4|$4|name|$6|source|$4|type|$3|key|$12|display_text|$6|source|$14|key_spec_index|:0|\
             %4|$4|name|$11|destination|$4|type|$3|key|$12|display_text|$11|destination|$14|key_spec_index|:1",
        ),
    ]);
}

#[test]
fn arguments_have_the_versions_that_brought_them() {
    check_resp3(&[(
        "command docs lpop",
        "%1|$4|lpop|%6|$7|summary|$49|Removes and returns the first elements of a list.|\
             $5|since|$5|1.0.0|$5|group|$4|list|$10|complexity|$47|O(N) where N is the number of elements returned|\
             $7|history|~1|*2|$5|6.2.0|$8|`count`.|\
             $9|arguments|*2|\
             %4|$4|name|$3|key|$4|type|$3|key|$12|display_text|$3|key|$14|key_spec_index|:0|\
             %5|$4|name|$5|count|$4|type|$7|integer|$12|display_text|$5|count|$5|since|$5|6.2.0|$5|flags|~1|+optional",
    )]);
    let mut bench = Bench::default();
    let mut session = bench.open_with(Proto::Resp3);
    for (line, part) in [
        (
            "command docs flushdb",
            "|%4|$4|name|$10|flush-type|$4|type|$5|oneof|$5|flags|~1|+optional|$9|arguments|*2|\
             %5|$4|name|$5|async|$4|type|$10|pure-token|$12|display_text|$5|async|$5|token|$5|ASYNC|$5|since|$5|4.0.0|\
             %5|$4|name|$4|sync|$4|type|$10|pure-token|$12|display_text|$4|sync|$5|token|$4|SYNC|$5|since|$5|6.2.0",
        ),
        (
            "command docs client|kill",
            "|%4|$4|name|$7|ip:port|$4|type|$6|string|$12|display_text|$7|ip:port|$16|deprecated_since|$6|2.8.12|%5|",
        ),
    ] {
        let docs = bench.line(&mut session, line);
        assert!(docs.contains(part), "{docs}");
    }
}

#[test]
fn docs_mark_commands_for_servers() {
    check_resp3(&[(
        "command docs pfselftest",
        "%1|$10|pfselftest|%5|$7|summary|$54|Tests the registers and the estimates of HyperLogLogs.|\
         $5|since|$5|2.8.9|$5|group|$11|hyperloglog|$10|complexity|$4|O(1)|$9|doc_flags|~1|+syscmd",
    )]);
}

#[test]
fn docs_of_containers_have_their_subcommands() {
    let mut bench = Bench::default();
    let mut session = bench.open_with(Proto::Resp3);
    let container = bench.line(&mut session, "command docs command");
    assert!(container.starts_with("%1|$7|command|%5|"), "{container}");
    assert!(container.contains("|$11|subcommands|%7|$13|command|count|%4|"), "{container}");
}

#[test]
fn lists_are_filtered() {
    check(&[
        ("command list filterby pattern BRPOP*", "*2|$5|brpop|$10|brpoplpush"),
        ("command list filterby pattern command|get*", "*2|$15|command|getkeys|$23|command|getkeysandflags"),
        ("COMMAND LIST FILTERBY ACLCAT Transaction", "*5|$5|multi|$4|exec|$7|discard|$5|watch|$7|unwatch"),
        ("command list filterby aclcat @transaction", "*0"),
        ("command list filterby aclcat nosuch", "*0"),
        ("command list filterby aclcat \"\"", "*0"),
        ("command list filterby module nosuch", "*0"),
        ("command list filterby nosuch x", "-ERR syntax error"),
        ("command list filterby pattern", "-ERR syntax error"),
        ("command list pattern x", "-ERR syntax error"),
    ]);
}

#[test]
fn keys_of_requests() {
    check(&[
        ("command getkeys mset a 1 b 2", "*2|$1|a|$1|b"),
        ("command getkeys mset a 1 b", "*2|$1|a|$1|b"),
        ("command getkeys blmpop 0 2 a b left", "*2|$1|a|$1|b"),
        ("command getkeys lmpop 2 a left", "*2|$1|a|$4|left"),
        ("command getkeys lmpop 3 a left", "-ERR Invalid arguments specified for command"),
        ("command getkeys lmpop 0 a left", "-ERR Invalid arguments specified for command"),
        ("command getkeys lmpop x a left", "-ERR Invalid arguments specified for command"),
        ("command getkeys lmpop -1 a left", "-ERR Invalid arguments specified for command"),
        ("command getkeys eval x 2 a b c", "*2|$1|a|$1|b"),
        ("command getkeys eval x 0", "*0"),
        ("command getkeys evalsha_ro x 0 a", "*0"),
        ("command getkeys fcall f 3 a b", "*0"),
        ("command getkeys fcall_ro f -1 a", "*0"),
        ("command getkeysandflags eval x z a", "*0"),
        ("command getkeys get", "-ERR Invalid number of arguments specified for command"),
        ("command getkeys get a b", "-ERR Invalid number of arguments specified for command"),
        ("command getkeys nosuch a", "-ERR Invalid command specified"),
        ("command getkeys command nosuch", "-ERR Invalid command specified"),
        ("command getkeys ping", "-ERR The command has no key arguments"),
        ("command getkeys command info a", "-ERR The command has no key arguments"),
        ("command getkeys command", "-ERR The command has no key arguments"),
        ("command getkeysandflags blmove a b left right 0", "*2|*2|$1|a|*3|+RW|+access|+delete|*2|$1|b|*2|+RW|+insert"),
        ("command getkeysandflags set get v", "*1|*2|$3|get|*2|+OW|+update"),
        ("command getkeysandflags set a v nx GET", "*1|*2|$1|a|*3|+RW|+access|+update"),
        ("command getkeysandflags getex a", "*1|*2|$1|a|*3|+RW|+access|+update"),
        ("command getkeysandflags nosuch a", "-ERR Invalid command specified"),
    ]);
    check_resp3(&[("command getkeysandflags get a", "*1|*2|$1|a|~2|+RO|+access")]);
}

#[test]
fn errors_and_help() {
    check(&[
        ("command count x", "-ERR wrong number of arguments for 'command|count' command"),
        ("command getkeys", "-ERR wrong number of arguments for 'command|getkeys' command"),
        ("command nosuch", "-ERR unknown subcommand 'nosuch'. Try COMMAND HELP."),
    ]);
    let mut bench = Bench::default();
    let mut session = bench.open();
    let help = bench.line(&mut session, "command help");
    assert!(help.contains("|+COMMAND <subcommand> [<arg> [value] [opt] ...]. Subcommands are:|"), "{help}");
    for sub in table().find(b"command").map(|c| subcommands(table(), c)).unwrap() {
        assert!(help.contains(&format!("|+{}", sub.info.name.to_uppercase())), "{help}");
    }
}

#[test]
fn positions_follow_from_key_specifications() {
    let keyword = KeySpec { begin: Begin::Keyword("KEYS", 1), ..KeySpec::at(1, 0) };
    let rows: &[(&[KeySpec], usize, i32, i32, bool)] = &[
        (&[], 0, 0, 0, false),
        (&[KeySpec::at(2, 0)], 2, 2, 1, false),
        (&[KeySpec::range(1, -1, 2, 0)], 1, -1, 2, false),
        (&[KeySpec::range(1, 1, 1, 0)], 1, 2, 1, false),
        (&[KeySpec::at(1, key_flag::INCOMPLETE)], 1, 1, 1, true),
        (&[KeySpec::at(1, 0), KeySpec::at(2, 0)], 1, 2, 1, false),
        (&[KeySpec::at(1, 0), KeySpec::at(3, 0)], 1, 1, 1, true),
        (&[KeySpec::at(1, 0), KeySpec::range(2, -1, 1, 0)], 1, -1, 1, false),
        (&[KeySpec::at(1, 0), KeySpec::range(2, -1, 2, 0)], 1, 1, 1, true),
        (&[KeySpec::range(1, -2, 1, 0), KeySpec::at(2, 0)], 1, -2, 1, true),
        (&[KeySpec::at(1, 0), KeySpec::counted(2, 0)], 1, 1, 1, true),
        (&[KeySpec::counted(1, 0)], 0, 0, 0, true),
        (&[keyword], 0, 0, 0, true),
        (&[KeySpec::at(3, 0), keyword], 3, 3, 1, true),
        (&[KeySpec::unknown(0, |_| None)], 0, 0, 0, true),
    ];
    for &(keys, first, last, step, are_incomplete) in rows {
        assert_eq!(Positions::of(keys), Positions { first, last, step, are_incomplete }, "{keys:?}");
    }
}

#[test]
fn a_key_specification_is_a_map() {
    const KEYS: &[KeySpec] = &[
        KeySpec { begin: Begin::Keyword("KEYS", -2), ..KeySpec::range(1, -1, 1, key_flag::NOT_KEY) },
        KeySpec::unknown(key_flag::RM, |_| None),
    ];
    let mut output = Output::default();
    KEYS.iter().for_each(|keys| info::write_key_spec(&mut Reply::new(&mut output, Proto::Resp3), keys));
    let reply = String::from_utf8(output.slices().collect::<Vec<_>>().concat()).unwrap().replace("\r\n", "|");
    let expected = "%3|$5|flags|~1|+not_key|\
        $12|begin_search|%2|$4|type|$7|keyword|$4|spec|%2|$7|keyword|$4|KEYS|$9|startfrom|:-2|\
        $9|find_keys|%2|$4|type|$5|range|$4|spec|%3|$7|lastkey|:-1|$7|keystep|:1|$5|limit|:0|\
        %3|$5|flags|~1|+RM|$12|begin_search|%2|$4|type|$7|unknown|$4|spec|%0|\
        $9|find_keys|%2|$4|type|$7|unknown|$4|spec|%0|";
    assert_eq!(reply, expected);
}

#[test]
fn the_table_is_consistent() {
    let mut names = BTreeSet::new();
    for spec in FAMILIES.iter().copied().flatten() {
        check_spec(spec, &mut names);
    }
    for spec in families::ALL.iter().copied().flatten() {
        check_spec(spec, &mut names);
    }
    for command in table().all() {
        let (name, info) = (&command.name, command.info);
        let is_movable = info.has(flag::MOVABLEKEYS);
        assert_eq!(is_movable, Positions::of(info.keys).are_incomplete, "{name}: the flag movablekeys");
        // Only a handler that sees keys is called again for a waiter.
        assert!(command.sees_keys || info.waits.is_none(), "{name} waits, and sees the session");
        let is_used = command.is_brief || command.is_keyless;
        assert!(is_used || !info.is(fact::BRIEF), "{name} is declared brief to no effect");
    }
}

fn check_spec<R>(spec: &Spec<R>, names: &mut BTreeSet<String>) {
    let name = spec.info.name;
    assert!(names.insert(name.to_owned()), "{name} twice");
    let checked = check_entry(spec, None);
    assert!(checked.is_ok(), "{name} {}: {checked:?}", spec.info.syntax);
    let is_container = !spec.subcommands.is_empty();
    assert!(!is_container || spec.subcommands.iter().any(|sub| sub.info.name == "help"), "{name} has no HELP");
    for sub in spec.subcommands {
        let name = format!("{name}|{}", sub.info.name);
        let checked = check_entry(sub, Some(&spec.info));
        assert!(checked.is_ok(), "{name} {}: {checked:?}", sub.info.syntax);
        assert!(names.insert(name.clone()), "{name} twice");
    }
}
