//! Loads directives from a configuration file, standard input or the command line into [`Settings`], before the server
//! runs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::PoisonError;

use commands::table::{NO_SUCH_COMMAND, Table};

use super::cell::Value;
use super::directive::Effect;
use super::kind::{ValueKind, WRONG_ARITY, parse_int};
use super::settings::Settings;
use super::special::missing;
use super::table::TABLE;

/// Begin of the error for an unknown directive. Redis has one text for this mistake and for [`WRONG_ARITY`].
const BAD_DIRECTIVE: &str = "Bad directive";

/// Largest number of edits (insertions, deletions, replacements and swaps) between an unknown name and a similar one.
const EDITS_MAX: usize = 2;
/// Longest name to which a smaller limit applies, since most short words are similar.
const SHORT_NAME: usize = 4;

/// Redis's error for a second line for the same user.
const DUPLICATE_USER: &str = "Duplicate user found. A user can only be defined once in config files";

/// Checks a user's name and rules.
pub type CheckUser = fn(&Table, &str, &[&str]) -> Result<(), String>;

/// Redis's own limit.
const IO_THREADS_MAX: i64 = 128;

/// Loads directives one after another; later ones take precedence.
///
/// `save` is the exception: the first one replaces the default, and the following ones add to it.
pub struct Loader<'a> {
    settings: &'a Settings,
    save_seen: bool,
    /// The loaded directives that have no effect.
    without_effect: BTreeSet<&'static str>,
    /// Builds the table for `rename-command`.
    build_commands: Option<fn() -> Table>,
    /// Checks `user` lines.
    check_user: Option<CheckUser>,
    /// The table with the renames so far; `None` before the first one.
    commands: Option<Table>,
    /// The included file that the directives come from.
    included: Option<String>,
}

impl<'a> Loader<'a> {
    /// Creates a loader into `settings`, which must not be in use yet.
    pub fn new(settings: &'a Settings) -> Loader<'a> {
        Loader {
            settings,
            save_seen: false,
            without_effect: BTreeSet::new(),
            build_commands: None,
            check_user: None,
            commands: None,
            included: None,
        }
    }

    /// Sets the included file that the following directives come from, or `None`. Returns the previous one.
    pub fn set_included(&mut self, file: Option<String>) -> Option<String> {
        std::mem::replace(&mut self.included, file)
    }

    /// Enables `rename-command` for the commands of the table from `build`. Without it there are no commands to rename.
    #[must_use]
    pub fn with_commands(self, build: fn() -> Table) -> Loader<'a> {
        Loader { build_commands: Some(build), ..self }
    }

    /// Enables the check of `user` lines. Without it they are accepted unchecked.
    #[must_use]
    pub fn with_users(self, check: CheckUser) -> Loader<'a> {
        Loader { check_user: Some(check), ..self }
    }

    /// Returns the settings so far.
    pub fn settings(&self) -> &'a Settings {
        self.settings
    }

    /// Loads one directive: its name, in any case, and its arguments. The caller handles `include`.
    ///
    /// # Errors
    /// The error in Redis's words. An unknown name and a wrong number of arguments are told apart and come with a remedy.
    pub fn directive(&mut self, argv: &[Vec<u8>]) -> Result<(), String> {
        let words: Result<Vec<&str>, _> = argv.iter().map(|arg| std::str::from_utf8(arg)).collect();
        let words = words.map_err(|_| "argument must be valid UTF-8")?;
        let Some((name, args)) = words.split_first() else { return Ok(()) };
        match (name.to_ascii_lowercase().as_str(), args) {
            ("rename-command", [old, new]) => self.rename(old, new),
            // Removed in Redis 3.2, and still accepted since then.
            ("list-max-ziplist-entries" | "list-max-ziplist-value", [_]) => Ok(()),
            ("loadmodule" | "loadmodule-ex", _) => Err(missing("loading modules")),
            ("user", [name, rules @ ..]) => self.user(name, rules),
            // An alias of `threads` in Redis's smaller range, without 0 for all cores.
            ("io-threads", [count]) => {
                parse_int(count, 1, IO_THREADS_MAX).and_then(|_| self.setting("io-threads", args))
            }
            ("sentinel", _) => Err(missing("Sentinel mode")),
            (name, args) => self.setting(name, args),
        }
        .map_err(|reason| if reason == WRONG_ARITY { wrong_arity(name, args) } else { reason })
    }

    /// Returns log lines about loaded directives without effect, one line for each reason.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let mut by_reason: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for &name in &self.without_effect {
            let Some(index) = TABLE.find(name.as_bytes()) else { continue };
            by_reason.entry(TABLE.directives[index].docs).or_default().push(name);
        }
        let line = |(why, names): (&str, Vec<&str>)| format!("Without effect here: {}. {why}", names.join(", "));
        by_reason.into_iter().map(line).collect()
    }

    fn rename(&mut self, old: &str, new: &str) -> Result<(), String> {
        let build = self.build_commands.ok_or(NO_SUCH_COMMAND)?;
        self.commands.get_or_insert_with(build).rename(old, new)?;
        let mut renames = self.settings.renames.lock().unwrap_or_else(PoisonError::into_inner);
        renames.push((old.to_owned(), new.to_owned()));
        Ok(())
    }

    fn user(&mut self, name: &str, rules: &[&str]) -> Result<(), String> {
        if let (Some(check), Some(build)) = (self.check_user, self.build_commands) {
            check(self.commands.get_or_insert_with(build), name, rules)?;
        }
        let mut users = self.settings.users.lock().unwrap_or_else(PoisonError::into_inner);
        if users.iter().any(|user| user.first().is_some_and(|known| known == name)) {
            return Err(format!("Error in user declaration '{name}': {DUPLICATE_USER}"));
        }
        users.push(std::iter::once(&name).chain(rules).map(|word| (*word).to_owned()).collect());
        if let Some(file) = &self.included {
            let mut included = self.settings.included_users.lock().unwrap_or_else(PoisonError::into_inner);
            included.push((name.to_owned(), file.clone()));
        }
        Ok(())
    }

    fn setting(&mut self, name: &str, args: &[&str]) -> Result<(), String> {
        let (name, index) = TABLE.entry(name.as_bytes()).ok_or_else(|| bad_directive(name))?;
        let cell = self.settings.cell(index);
        let first_save =
            matches!(TABLE.directives[index].kind, ValueKind::Save) && !std::mem::replace(&mut self.save_seen, true);
        let before = if first_save { Value::Text("".into()) } else { cell.load() };
        cell.store(&next_value(index, args, &before)?);
        if TABLE.directives[index].effect == Effect::Stored {
            self.without_effect.insert(name);
        }
        Ok(())
    }
}

/// Names of directives that are not in the table, with the least and the largest number of their arguments.
const OTHER_NAMES: [(&str, usize, usize); 5] = [
    ("include", 1, 1),
    ("list-max-ziplist-entries", 1, 1),
    ("list-max-ziplist-value", 1, 1),
    ("rename-command", 2, 2),
    ("user", 1, usize::MAX),
];

/// Returns the error for a line whose name is not in the table.
fn bad_directive(name: &str) -> String {
    if OTHER_NAMES.iter().any(|(known, ..)| *known == name) {
        return WRONG_ARITY.to_owned();
    }
    let remedy = match (name.split_once('='), similar(name)) {
        (Some((known, value)), _) if TABLE.entry(known.as_bytes()).is_some() => {
            format!("did you mean '{known} {value}'?")
        }
        (_, Some(meant)) => format!("did you mean '{meant}'?"),
        _ => "correct its name, or remove it".to_owned(),
    };
    format!("{BAD_DIRECTIVE}: there is no '{name}'; {remedy}")
}

/// Returns the most similar name of a directive, if one is similar enough. The hidden ones are not suggested.
fn similar(name: &str) -> Option<&'static str> {
    let table = TABLE.matching(b"*").map(|(known, _)| known);
    let others = OTHER_NAMES.iter().map(|(known, ..)| *known);
    let (edits, meant) = table.chain(others).map(|known| (strsim::osa_distance(name, known), known)).min()?;
    let allowed = if name.len().min(meant.len()) <= SHORT_NAME { EDITS_MAX - 1 } else { EDITS_MAX };
    (edits <= allowed).then_some(meant)
}

/// Returns the least and the largest number of arguments of a directive that has a fixed number.
fn arity(name: &str) -> (usize, usize) {
    match OTHER_NAMES.iter().find(|(known, ..)| *known == name) {
        Some((_, least, most)) => (*least, *most),
        None if matches!(name, "replicaof" | "slaveof") => (2, 2),
        None if name == "oom-score-adj-values" => (3, 3),
        None => (1, 1),
    }
}

/// Returns the error for a wrong number of arguments: Redis's text, the right number, and the likely remedy.
fn wrong_arity(name: &str, args: &[&str]) -> String {
    let name = name.to_ascii_lowercase();
    let (least, most) = arity(&name);
    let remedy = if args.len() < least {
        "add the missing ones, \"\" for an empty one"
    } else if args.iter().any(|arg| arg.starts_with('#')) {
        "a comment needs a line of its own"
    } else {
        "remove the rest, or put quotes around a value with blanks"
    };
    let more = if most > least { " or more" } else { "" };
    format!("{WRONG_ARITY}: '{name}' takes {least}{more}, not {}; {remedy}", args.len())
}

/// Returns the value of table entry `index` after a line with these arguments, with `before` as the previous value.
pub(super) fn next_value(index: usize, args: &[&str], before: &Value) -> Result<Value, String> {
    let directive = &TABLE.directives[index];
    // A list may be one quoted argument: save "900 1 300 10".
    let value = match args {
        [list] if directive.kind.is_multi() => directive.parse(&directive.kind.arguments(list), before)?,
        args => directive.parse(args, before)?,
    };
    Ok(match (directive.kind, &value) {
        (ValueKind::Save, Value::Text(more)) if !more.is_empty() && !before.text().is_empty() => {
            Value::Text(format!("{} {more}", before.text()).into())
        }
        _ => value,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::get;

    /// Loads lines. Returns the last one's error, or the settings that match `pattern`.
    fn load(lines: &[&str], pattern: &str) -> Result<String, String> {
        let settings = Settings::new();
        let mut loader = Loader::new(&settings);
        for line in lines {
            loader.directive(&resp::splitargs::split_args(line.as_bytes()).unwrap())?;
        }
        let found = get(&settings, &[pattern.as_bytes()]);
        Ok(found.iter().map(|(_, value)| value.as_str()).collect::<Vec<_>>().join(";"))
    }

    fn check(lines: &[&str], name: &str, value: &str) {
        assert_eq!(load(lines, name), Ok(value.into()), "{lines:?}");
    }

    fn check_error(line: &str, error: &str) {
        assert_eq!(load(&[line], "x"), Err(error.into()), "{line}");
    }

    #[test]
    fn later_lines_take_precedence() {
        check(&["port 1", "PORT 2"], "port", "2");
        check(&["slave-priority 5"], "replica-priority", "5");
        check(&["io-threads 4"], "threads", "4");
    }

    #[test]
    fn save_adds_up_after_the_first() {
        check(&[], "save", "3600 1 300 100 60 10000");
        check(&["save 1 2"], "save", "1 2");
        check(&["save 1 2", "save 3 4 5 6"], "save", "1 2 3 4 5 6");
        check(&["save \"900 1 300 10\""], "save", "900 1 300 10");
        check(&["save 1 2", "save \"\""], "save", "");
        check(&["save \"\"", "save 1 2"], "save", "1 2");
    }

    #[test]
    fn lists_may_have_several_arguments_or_one() {
        check(&["bind 127.0.0.1 -::1"], "bind", "127.0.0.1 -::1");
        check(&["bind \"127.0.0.1 -::1\""], "bind", "127.0.0.1 -::1");
        check(&["bind"], "bind", "");
        let limits = "normal 0 0 0 slave 1 2 3 pubsub 4 5 6";
        check(
            &["client-output-buffer-limit replica 1 2 3", "client-output-buffer-limit pubsub 4 5 6"],
            "client-output-buffer-limit",
            limits,
        );
    }

    #[test]
    fn errors_are_those_of_redis() {
        check_error("port abc", "argument couldn't be parsed into an integer");
        check_error("dir /nonexistent", "No such file or directory");
    }

    #[test]
    fn a_wrong_number_of_arguments_names_the_right_one() {
        let check = |line: &str, reason: &str| check_error(line, &format!("wrong number of arguments: {reason}"));
        let (missing, rest) = (
            "add the missing ones, \"\" for an empty one",
            "remove the rest, or put quotes around a value with blanks",
        );
        check("PORT", &format!("'port' takes 1, not 0; {missing}"));
        check("requirepass", &format!("'requirepass' takes 1, not 0; {missing}"));
        check("replicaof a", &format!("'replicaof' takes 2, not 1; {missing}"));
        check("oom-score-adj-values 1 2", &format!("'oom-score-adj-values' takes 3, not 2; {missing}"));
        check("rename-command a", &format!("'rename-command' takes 2, not 1; {missing}"));
        check("user", &format!("'user' takes 1 or more, not 0; {missing}"));
        check("include", &format!("'include' takes 1, not 0; {missing}"));
        check("io-threads", &format!("'io-threads' takes 1, not 0; {missing}"));
        check("list-max-ziplist-value", &format!("'list-max-ziplist-value' takes 1, not 0; {missing}"));
        check("port 1 2", &format!("'port' takes 1, not 2; {rest}"));
        check("slaveof a 1 2", &format!("'slaveof' takes 2, not 3; {rest}"));
        check("port 1 # comment", "'port' takes 1, not 3; a comment needs a line of its own");
    }

    #[test]
    fn similar_directives_are_suggested() {
        let check = |line: &str, name: &str, remedy: &str| {
            check_error(line, &format!("Bad directive: there is no '{name}'; {remedy}"));
        };
        check("maxmemroy 1gb", "maxmemroy", "did you mean 'maxmemory'?");
        check("MaxMemory-Polcy noeviction", "maxmemory-polcy", "did you mean 'maxmemory-policy'?");
        check("prot 6379", "prot", "did you mean 'port'?");
        check("appendonyl yes", "appendonyl", "did you mean 'appendonly'?");
        check("slave-of a 1", "slave-of", "did you mean 'slaveof'?");
        check("rename-comand a b", "rename-comand", "did you mean 'rename-command'?");
        check("includ x", "includ", "did you mean 'include'?");
        check("port=0", "port=0", "did you mean 'port 0'?");
        check("port: 0", "port:", "did you mean 'port'?");
        for name in ["foo", "nosuch", "x", "nosuch=1"] {
            check(&format!("{name} 1"), name, "correct its name, or remove it");
        }
    }

    #[test]
    fn directives_that_are_dangerous_to_ignore_are_refused() {
        for line in ["loadmodule /x.so", "sentinel monitor a b 1 1", "rdma-port 6380"] {
            let error = load(&[line], "x").unwrap_err();
            assert!(
                error.ends_with("is not supported by this version of Penstock; remove this directive to do without"),
                "{line}: {error}"
            );
        }
        check(&["slaveof 127.0.0.1 6380"], "replicaof", "127.0.0.1 6380");
        assert!(load(&["replicaof 127.0.0.1 0"], "x").unwrap_err().ends_with("Invalid master port"));
        check(&["min-replicas-to-write 2", "min-replicas-max-lag 5"], "min-slaves-to-write", "2");
        check(&["appendonly no", "cluster-enabled yes", "slaveof no one"], "cluster-enabled", "yes");
    }

    #[test]
    fn ranges_and_names_are_those_of_redis() {
        check(&["io-threads 128"], "threads", "128");
        check(&["threads 0"], "io-threads", "0");
        for count in ["0", "129", "-1"] {
            check_error(&format!("io-threads {count}"), "argument must be between 1 and 128 inclusive");
        }
        for (name, what) in [("appendfilename", "filename"), ("appenddirname", "dirname"), ("dbfilename", "filename")] {
            check(&[&format!("{name} a.b")], name, "a.b");
            for path in ["a/b", "'a\\b'"] {
                check_error(&format!("{name} {path}"), &format!("{name} can't be a path, just a {what}"));
            }
        }
        for name in ["appendfilename", "appenddirname"] {
            check_error(&format!("{name} \"\""), &format!("{name} can't be empty"));
        }
    }

    #[test]
    fn users_are_noted_once_each() {
        let settings = Settings::new();
        let mut loader = Loader::new(&settings).with_commands(engine::registry::build).with_users(access::check_line);
        let mut load = |line: &str| loader.directive(&resp::splitargs::split_args(line.as_bytes()).unwrap());
        assert_eq!(load("user default on nopass ~* &* +@all"), Ok(()));
        assert_eq!(load("user a on >\"p q\" (+get ~a) +@read"), Ok(()));
        let duplicate =
            "Error in user declaration 'a': Duplicate user found. A user can only be defined once in config files";
        assert_eq!(load("user a off"), Err(duplicate.into()));
        let unknown = "Error in user declaration '+nosuch': Unknown command or category name in ACL";
        assert_eq!(load("user b on +nosuch"), Err(unknown.into()));
        assert!(load("user").unwrap_err().starts_with(WRONG_ARITY));
        let users = settings.configured_users();
        assert_eq!(users.iter().map(Vec::len).collect::<Vec<_>>(), [6, 6]);
        assert_eq!(users[1], ["a", "on", ">p q", "(+get", "~a)", "+@read"]);
    }

    #[test]
    fn commands_are_renamed_in_order() {
        let settings = Settings::new();
        let mut loader = Loader::new(&settings).with_commands(engine::registry::build);
        for line in ["rename-command CONFIG \"\"", "rename-command get holen"] {
            loader.directive(&resp::splitargs::split_args(line.as_bytes()).unwrap()).unwrap();
        }
        let expected = [("CONFIG".into(), String::new()), ("get".into(), "holen".into())];
        assert_eq!(settings.renamed_commands(), expected);
        let mut check = |line: &str, expected| {
            assert_eq!(
                loader.directive(&resp::splitargs::split_args(line.as_bytes()).unwrap()),
                Err(expected),
                "{line}"
            );
        };
        check("rename-command get x", "No such command in rename-command".to_owned());
        check("rename-command SET HOLEN", "Target command name already exists".to_owned());
    }

    #[test]
    fn invalid_utf8_is_an_error() {
        let settings = Settings::new();
        let mut loader = Loader::new(&settings);
        assert!(loader.directive(&[b"requirepass".to_vec(), vec![0xff]]).is_err());
        assert!(loader.directive(&[]).is_ok());
    }
}
