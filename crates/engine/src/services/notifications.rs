//! Keyspace notifications: events of keys, published on channels (notify-keyspace-events).
//!
//! Source of the semantics: Redis's "Keyspace notifications" page.

use std::sync::atomic::Ordering;

use commands::effects::Class;
use store::db::Event;

use crate::clients::session::Session;
use crate::listening::events::bit;
use crate::pubsub::ChannelKind;
use crate::services::publishing::publish_from;
use crate::worker::Worker;
use config::keyspace_events::{EXPIRED, GENERIC, HASH, KEY_MISS, KEYEVENT, KEYSPACE, NEW};

/// Publishes an event of a command, if its class is enabled. `session` is the session of the command, if it is this
/// thread's.
pub(crate) fn notify(
    worker: &Worker,
    session: Option<&mut Session>,
    database: usize,
    class: Class,
    event: &str,
    key: &[u8],
) {
    publish(worker, session, database, bit(class), event, key);
}

/// Publishes an event that the keyspace noticed, if its class is enabled.
pub(crate) fn notify_seen(worker: &Worker, session: Option<&mut Session>, event: Event, database: usize, key: &[u8]) {
    let (bit, name) = match event {
        Event::Expired => (EXPIRED, "expired"),
        Event::Missed => (KEY_MISS, "keymiss"),
        Event::Created => (NEW, "new"),
        Event::FieldsExpired => (HASH, "hexpired"),
        Event::Drained => (GENERIC, "del"),
    };
    publish(worker, session, database, bit, name, key);
}

/// Called under the locks of the key's shard; publishing only enqueues.
fn publish(worker: &Worker, mut session: Option<&mut Session>, database: usize, class: u32, event: &str, key: &[u8]) {
    let wanted = worker.engine.notify_classes.load(Ordering::Relaxed) as u32;
    if wanted & class == 0 || worker.engine.pubsub.is_idle() {
        return;
    }
    if wanted & KEYSPACE != 0 {
        let channel = [format!("__keyspace@{database}__:").as_bytes(), key].concat();
        publish_from(worker, session.as_deref_mut(), ChannelKind::Channel, &channel, event.as_bytes());
    }
    if wanted & KEYEVENT != 0 {
        let channel = format!("__keyevent@{database}__:{event}");
        publish_from(worker, session, ChannelKind::Channel, channel.as_bytes(), key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Bench;
    use config::keyspace_events::{LIST, SET, STRING, ZSET};

    /// Checks the messages for these commands that a subscriber of everything receives, as "channel message".
    fn check(classes: u32, lines: &[&str], expected: &[&str]) {
        assert_eq!(told(&mut Bench::default(), classes, lines), expected, "{lines:?}");
    }

    /// Returns the messages for these commands on an existing keyspace.
    fn told(bench: &mut Bench, classes: u32, lines: &[&str]) -> Vec<String> {
        bench.worker.engine.notify(classes);
        let mut session = bench.open_with(resp::reply::Proto::Resp3);
        bench.line(&mut session, "psubscribe *");
        let replies: String = lines.iter().map(|line| bench.line(&mut session, line) + "|").collect();
        let words: Vec<&str> = replies.split('|').collect();
        let pushes = words.windows(9).filter(|w| w[0] == ">4");
        pushes.map(|w| format!("{} {}", w[6], w[8])).collect()
    }

    #[test]
    fn expired_events_are_published_where_redis_publishes_them() {
        let cases: &[(&str, &[&str])] = &[
            // No command has noticed the expiry; the key is deleted like any other.
            ("sort nokey store old", &["del"]),
            ("sinterstore old nokey", &["del"]),
            ("zunionstore old 1 nokey", &["del"]),
            ("zdiffstore old 1 nokey", &["del"]),
            ("zrangestore old nokey 0 1", &["del"]),
            ("msetnx old 1 s 2", &["expired"]),
            ("msetnx s 1 old 2", &[]),
            ("smove nokey old m", &["expired"]),
            ("smove s old nosuch", &["expired"]),
            ("del old", &["expired"]),
        ];
        for (line, expected) in cases {
            let mut bench = Bench::default();
            let mut session = bench.open();
            bench.check(&mut session, &[("set old v px 5", "+OK"), ("sadd s m", ":1")]);
            bench.now_us += 10_000;
            // For a session that sees the key as missing already, the deletion is no change.
            bench.check(&mut session, &[("watch old", "+OK")]);
            let told = told(&mut bench, KEYEVENT | EXPIRED | GENERIC, &[line]);
            let expected: Vec<String> = expected.iter().map(|event| format!("__keyevent@0__:{event} old")).collect();
            assert_eq!(told, expected, "{line}");
            let left = if expected.is_empty() { ":2" } else { ":1" };
            bench.check(&mut session, &[("dbsize", left), ("multi", "+OK"), ("exec", "*0")]);
        }
    }

    #[test]
    fn a_command_that_finds_an_expired_key_removes_it() {
        let stores = ["sunionstore old s", "zunionstore old 1 z", "zrangestore old z 0 -1", "sort l store old"];
        for line in stores {
            let name = line.split(' ').next().unwrap_or_default().replace("sort", "sortstore");
            check_met(line, &["expired old", "new old", &format!("{name} old")]);
        }
        for line in ["scan 0 count 1000", "scan 0 match o* type set count 1000"] {
            check_met(line, &["expired old"]);
        }
        for line in ["scan 0 match x* count 1000", "keys *"] {
            check_met(line, &[]);
        }
        // A key that replaces an expired one is new where Redis removes the expired one first.
        check_met("sunionstore s s", &["sunionstore s"]);
        check_met("rename l s", &["new s", "rename_from l", "rename_to s"]);
        check_met("copy l s replace", &["new s", "copy_to s"]);
    }

    /// Checks the changes and events of a command that may find the expired key "old".
    fn check_met(line: &str, expected: &[&str]) {
        let mut bench = Bench::default();
        let mut session = bench.open();
        for line in ["set old v px 5", "sadd s m", "zadd z 1 m", "rpush l 1"] {
            bench.line(&mut session, line);
        }
        bench.now_us += 10_000;
        let told = told(&mut bench, KEYEVENT | EXPIRED | NEW | GENERIC | SET | ZSET | LIST, &[line]);
        let events: Vec<String> = expected.iter().map(|event| format!("__keyevent@0__:{event}")).collect();
        assert_eq!(told, events, "{line}");
        let expired = u64::from(expected.first() == Some(&"expired old"));
        assert!(bench.line(&mut session, "info stats").contains(&format!("expired_keys:{expired}|")), "{line}");
    }

    #[test]
    fn a_random_key_is_found_among_expired_ones() {
        let mut bench = Bench::default();
        let mut session = bench.open();
        for i in 0..1000 {
            bench.line(&mut session, &format!("set {i} v px 5"));
        }
        bench.line(&mut session, "set k v");
        bench.now_us += 10_000;
        bench.check(&mut session, &[("client pause 1000 write", "+OK"), ("dbsize", ":1001")]);
        bench.line(&mut session, "randomkey");
        bench.check(&mut session, &[("dbsize", ":1001"), ("client unpause", "+OK"), ("randomkey", "$1|k")]);
        bench.check(&mut session, &[("del k", ":1"), ("randomkey", "$-1"), ("dbsize", ":0")]);
    }

    #[test]
    fn keymiss_events_are_published_where_redis_publishes_them() {
        let lines = ["xack a g 1-0", "xautoclaim b g c 0 0", "object encoding c", "object refcount d", "type e"];
        let lines = lines
            .into_iter()
            .chain(["delex f ifeq x", "delex g", "xdelex h ids 1 1-1", "object freq i"])
            .collect::<Vec<_>>();
        let expected = ["a", "b", "e", "f"].map(|key| format!("__keyevent@0__:keymiss {key}"));
        check(KEYEVENT | KEY_MISS, &lines, &expected.iter().map(String::as_str).collect::<Vec<_>>());
    }

    #[test]
    fn classes_and_channels_are_chosen() {
        let set = ["set a 1", "rpush l x"];
        check(KEYSPACE | STRING, &set, &["__keyspace@0__:a set"]);
        check(KEYEVENT | LIST, &set, &["__keyevent@0__:rpush l"]);
        check(
            KEYSPACE | KEYEVENT | STRING,
            &["select 3", "set a 1"],
            &["__keyspace@3__:a set", "__keyevent@3__:set a"],
        );
        check(KEYEVENT, &set, &[]);
        check(STRING | LIST, &set, &[]);
    }

    #[test]
    fn keyspace_events_precede_command_events() {
        let lines = ["getset a 1", "mset a 2 b 3", "rename b c"];
        let expected =
            ["keymiss a", "new a", "set a", "set a", "new b", "set b", "new c", "rename_from b", "rename_to c"];
        let expected = expected.map(|e| format!("__keyevent@0__:{e}"));
        let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
        check(KEYEVENT | KEY_MISS | NEW | STRING | GENERIC, &lines, &expected);
    }
}
