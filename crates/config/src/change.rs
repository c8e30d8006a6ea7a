//! CONFIG GET and CONFIG SET.

use std::collections::BTreeMap;

use super::cell::Value;
use super::directive::{Apply, Effect};
use super::settings::{Access, Settings};
use super::table::TABLE;

/// The server's side of CONFIG SET: applies changed settings.
pub trait ConfigHost {
    /// Applies a change that is already in `settings`. Must not change settings itself. No other change is in progress
    /// during the
    /// call. After an error of this or another call it is called again with the old values.
    ///
    /// # Errors
    /// A text for the client; see [`Apply`] for Redis's. Nothing may have changed then.
    fn apply(&self, what: Apply, settings: &Settings) -> Result<(), String>;

    /// Returns true if the client is connected from this machine, for `enable-protected-configs local`.
    fn caller_is_local(&self) -> bool {
        false
    }
}

/// Returns the settings that match any of `patterns` (globs or names, in any case), each once, sorted by name. A
/// setting requested by its full name is returned under the requested spelling. Hidden settings appear only then, as in
/// Redis.
pub fn get(settings: &Settings, patterns: &[&[u8]]) -> Vec<(String, String)> {
    let mut found: BTreeMap<&str, (String, usize)> = BTreeMap::new();
    for pattern in patterns {
        if let Some((name, index)) = TABLE.entry(pattern) {
            found.entry(name).or_insert_with(|| (String::from_utf8_lossy(pattern).into_owned(), index));
        } else if !store::glob::is_literal(pattern) {
            for (name, index) in TABLE.matching(pattern) {
                found.entry(name).or_insert_with(|| (name.to_owned(), index));
            }
        }
    }
    let show = |index: usize| TABLE.directives[index].kind.show(&settings.cell(index).load());
    found.into_values().map(|(name, index)| (name, show(index))).collect()
}

/// A setting with its old and new value.
struct Change {
    /// The name or alias in the table's spelling. Two aliases of one setting are not duplicates of each other, as in
    /// Redis.
    name: &'static str,
    index: usize,
    before: Value,
    after: Value,
}

/// Changes several settings, all or none.
///
/// # Errors
/// The complete error for the client, without the leading `-`: an unknown name, an immutable, protected or repeated
/// setting, a bad value, or a change that the server can't apply.
pub fn set(settings: &Settings, pairs: &[(&[u8], &[u8])], host: &dyn ConfigHost) -> Result<(), String> {
    let _guard = settings.lock_changes();
    let mut changes = resolve(settings, pairs, host)?;
    for (change, (_, value)) in changes.iter_mut().zip(pairs) {
        change.after = parse(change, value).map_err(|text| failed(change.name.as_bytes(), &text))?;
    }
    for change in &changes {
        settings.cell(change.index).store(&change.after);
    }
    apply_all(settings, &changes, host)
}

fn failed(name: &[u8], text: &str) -> String {
    format!("ERR CONFIG SET failed (possibly related to argument '{}') - {text}", String::from_utf8_lossy(name))
}

/// Finds the settings and checks that they may be set, in Redis's order: the first wrong one is reported.
fn resolve(settings: &Settings, pairs: &[(&[u8], &[u8])], host: &dyn ConfigHost) -> Result<Vec<Change>, String> {
    let mut changes: Vec<Change> = Vec::new();
    for (asked, _) in pairs {
        let Some((name, index)) = TABLE.entry(asked) else {
            let asked = String::from_utf8_lossy(asked);
            return Err(format!("ERR Unknown option or number of arguments for CONFIG SET - '{asked}'"));
        };
        let directive = &TABLE.directives[index];
        if directive.immutable {
            return Err(failed(asked, "can't set immutable config"));
        }
        if directive.protected && !may_change_protected(settings, host) {
            return Err(failed(asked, "can't set protected config"));
        }
        if changes.iter().any(|change| change.name == name) {
            return Err(failed(asked, "duplicate parameter"));
        }
        let before = settings.cell(index).load();
        changes.push(Change { name, index, after: before.clone(), before });
    }
    Ok(changes)
}

fn may_change_protected(settings: &Settings, host: &dyn ConfigHost) -> bool {
    match settings.enable_protected_configs.get() {
        Access::No => false,
        Access::Yes => true,
        Access::Local => host.caller_is_local(),
    }
}

fn parse(change: &Change, value: &[u8]) -> Result<Value, String> {
    let directive = &TABLE.directives[change.index];
    let value = std::str::from_utf8(value).map_err(|_| "argument must be valid UTF-8")?;
    directive.parse(&directive.kind.arguments(value), &change.before)
}

/// Applies the actual changes; reverts all if one fails.
fn apply_all(settings: &Settings, changes: &[Change], host: &dyn ConfigHost) -> Result<(), String> {
    let mut done: Vec<Apply> = Vec::new();
    let acts = |change: &&Change| change.after != change.before || TABLE.directives[change.index].refers;
    for change in changes.iter().filter(acts) {
        let Effect::Applied(what) = TABLE.directives[change.index].effect else { continue };
        if done.contains(&what) {
            continue;
        }
        if let Err(text) = host.apply(what, settings) {
            roll_back(settings, changes, &done, host);
            return Err(failed(change.name.as_bytes(), &text));
        }
        done.push(what);
    }
    Ok(())
}

fn roll_back(settings: &Settings, changes: &[Change], done: &[Apply], host: &dyn ConfigHost) {
    // Reverse order: two aliases of one setting share a cell, and both remember the value before the first.
    for change in changes.iter().rev() {
        settings.cell(change.index).store(&change.before);
    }
    for what in done {
        // The client gets the first error. A failure to restore the old state has no remedy here.
        let _ = host.apply(*what, settings);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// Records the calls with the values of `port` and `maxclients`, and fails for one kind of change.
    #[derive(Default)]
    struct TestHost {
        told: RefCell<Vec<(Apply, i64, i64)>>,
        fails_at: Option<Apply>,
        local: bool,
    }

    impl ConfigHost for TestHost {
        fn apply(&self, what: Apply, settings: &Settings) -> Result<(), String> {
            self.told.borrow_mut().push((what, settings.port.get(), settings.maxclients.get()));
            if self.fails_at == Some(what) { Err("no luck".into()) } else { Ok(()) }
        }

        fn caller_is_local(&self) -> bool {
            self.local
        }
    }

    fn shown(settings: &Settings, patterns: &[&str]) -> String {
        let patterns: Vec<&[u8]> = patterns.iter().map(|pattern| pattern.as_bytes()).collect();
        let pairs = get(settings, &patterns);
        pairs.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(";")
    }

    fn set_all(settings: &Settings, words: &[&str], host: &TestHost) -> Result<(), String> {
        let pairs: Vec<(&[u8], &[u8])> = words.chunks(2).map(|pair| (pair[0].as_bytes(), pair[1].as_bytes())).collect();
        set(settings, &pairs, host)
    }

    /// Sets `words` on fresh settings, and expects this error and no change.
    fn check_error(words: &[&str], error: &str) {
        let (settings, host) = (Settings::new(), TestHost::default());
        let before = shown(&settings, &["*"]);
        assert_eq!(set_all(&settings, words, &host), Err(format!("ERR {error}")), "{words:?}");
        assert_eq!(shown(&settings, &["*"]), before, "{words:?} changed something");
    }

    fn check_failed(words: &[&str], name: &str, text: &str) {
        check_error(words, &format!("CONFIG SET failed (possibly related to argument '{name}') - {text}"));
    }

    /// Sets one directive on fresh settings, and checks its displayed value.
    fn check_set(name: &str, value: &str, expected: &str) {
        let settings = Settings::new();
        assert_eq!(set_all(&settings, &[name, value], &TestHost::default()), Ok(()), "{name} {value}");
        assert_eq!(shown(&settings, &[name]), format!("{name}={expected}"));
    }

    #[test]
    fn get_takes_globs_and_names_in_any_case_without_repeating() {
        let settings = Settings::new();
        assert_eq!(shown(&settings, &["port", "PO?T", "p[no]rt"]), "port=6379");
        assert_eq!(
            shown(&settings, &["*ime-limit", "*busy*", "LUA*"]),
            "busy-poll-us=100;busy-reply-threshold=5000;lua-memory-limit=268435456;lua-time-limit=5000"
        );
        assert_eq!(shown(&settings, &["list-max*"]), "list-max-listpack-size=-2;list-max-ziplist-size=-2");
        assert_eq!(shown(&settings, &["nonexist", "", "nonexist*"]), "");
        assert_eq!(shown(&settings, &["KEY-load-delay"]), "KEY-load-delay=0");
        assert_eq!(shown(&settings, &["HZ", "hz", "Hz*"]), "HZ=10");
        assert_eq!(shown(&settings, &["key-load*"]), "", "hidden");
        assert_eq!(get(&settings, &[b"\xff*"]), []);
    }

    #[test]
    fn set_normalises() {
        check_set("maxmemory", "100mb", "104857600");
        check_set("maxmemory-policy", "ALLKEYS-LRU", "allkeys-lru");
        check_set("hz", "0", "1");
        check_set("hz", "501", "500");
        check_set("notify-keyspace-events", "KEA", "AKE");
        check_set("save", "900 1 300 10", "900 1 300 10");
        check_set("repl-backlog-size", "1", "16384");
        check_set("cluster-link-sendbuf-limit", "18446744073709551615", "18446744073709551615");
        check_set("cluster-slot-migration-log-max-len", "9223372036854775807", "9223372036854775807");
        check_set("save", "", "");
        check_set("bind", "", "");
        check_set("bind", "127.0.0.1 ::1", "127.0.0.1 ::1");
        check_set("maxmemory-clients", "5%", "5%");
        check_set("oom-score-adj-values", "3 2 1", "3 2 1");
        let limits = "normal 0 0 0 slave 1048576 2 3 pubsub 1 1 1";
        check_set("client-output-buffer-limit", "replica 1mb 2 3 pubsub 1 1 1", limits);
    }

    #[test]
    fn set_refuses() {
        check_error(&["nonsense", "1"], "Unknown option or number of arguments for CONFIG SET - 'nonsense'");
        check_error(&["hz", "1", "Foo", "2"], "Unknown option or number of arguments for CONFIG SET - 'Foo'");
        check_failed(&["databases", "3", "hz", "1"], "databases", "can't set immutable config");
        check_failed(&["hz", "10", "HZ", "11", "foo", "3"], "HZ", "duplicate parameter");
        check_failed(&["MaxMemory", "xx"], "maxmemory", "argument must be a memory value");
        check_failed(&["hz", "20", "maxmemory", "-1"], "maxmemory", "argument must be a memory value");
        check_failed(&["port", "99999"], "port", "argument must be between 0 and 65535 inclusive");
        check_failed(&["maxclients", "0"], "maxclients", "argument must be between 1 and 4294967295 inclusive");
        check_failed(&["maxmemory-samples", "65"], "maxmemory-samples", "argument must be between 1 and 64 inclusive");
        let failover = "cluster-manual-failover-timeout";
        check_failed(&[failover, "0"], failover, "argument must be between 1 and 2147483647 inclusive");
        check_failed(&["save", " 3600  1"], "save", "Invalid save parameters");
        check_failed(&["lua-time-limit", "x"], "lua-time-limit", "argument couldn't be parsed into an integer");
        check_failed(&["dir", "/"], "dir", "can't set protected config");
        check_failed(&["tcp-backlog", "9"], "tcp-backlog", "can't set immutable config");
        let arity = "Wrong number of arguments in buffer limit configuration.";
        check_failed(&["client-output-buffer-limit", "normal 1mb 2"], "client-output-buffer-limit", arity);
    }

    #[test]
    fn protected_settings_can_be_opened_to_this_machine() {
        let settings = Settings::new();
        settings.cell(TABLE.find(b"enable-protected-configs").unwrap()).store(&Value::Number(2));
        assert!(set_all(&settings, &["dbfilename", "x"], &TestHost::default()).is_err());
        let local = TestHost { local: true, ..TestHost::default() };
        assert_eq!(set_all(&settings, &["dbfilename", "x"], &local), Ok(()));
        assert!(set_all(&settings, &["dbfilename", "a/b"], &local).unwrap_err().ends_with("just a filename"));
        assert!(
            set_all(&settings, &["dir", "/nonexistent"], &local).unwrap_err().ends_with("No such file or directory")
        );
        assert_eq!(set_all(&settings, &["dir", "/"], &local), Ok(()));
        assert_eq!(settings.in_dir("x").to_str(), Some("/x"));
    }

    #[test]
    fn the_host_is_told_about_each_change_once() {
        let (settings, host) = (Settings::new(), TestHost::default());
        let words = ["maxmemory", "1gb", "maxmemory-policy", "allkeys-lru", "port", "7000", "timeout", "5"];
        assert_eq!(set_all(&settings, &words, &host), Ok(()));
        assert_eq!(*host.told.borrow(), [(Apply::MemoryLimit, 7000, 10000), (Apply::Port, 7000, 10000)]);
        assert_eq!(set_all(&settings, &words, &host), Ok(()));
        assert_eq!(host.told.borrow().len(), 2, "nothing changed the second time");
    }

    #[test]
    fn changes_refused_by_the_host_are_reverted() {
        let settings = Settings::new();
        let host = TestHost { fails_at: Some(Apply::MaxClients), ..TestHost::default() };
        let before = shown(&settings, &["*"]);
        let words = [
            &["port", "7000", "hash-max-ziplist-value", "1", "hash-max-listpack-value", "2"][..],
            &["maxmemory", "1gb", "MaxClients", "5"],
        ]
        .concat();
        let error = "ERR CONFIG SET failed (possibly related to argument 'maxclients') - no luck";
        assert_eq!(set_all(&settings, &words, &host), Err(error.into()));
        assert_eq!(shown(&settings, &["*"]), before);
        let told = host.told.borrow();
        assert_eq!(told[..3], [(Apply::Port, 7000, 5), (Apply::MemoryLimit, 7000, 5), (Apply::MaxClients, 7000, 5)]);
        assert_eq!(told[3..], [(Apply::Port, 6379, 10000), (Apply::MemoryLimit, 6379, 10000)]);
    }
}
