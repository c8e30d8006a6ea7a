//! A test bench for handlers: runs commands on a keyspace of its own, without sessions and sockets.

#![allow(clippy::unwrap_used, reason = "a test that is given nonsense should fail")]

use journal::record::{Entry, Record, entries};
use resp::num;
use resp::reply::{Output, Proto, Reply};
use resp::request::OwnedArgs;
use resp::splitargs::split_args;
use store::db::{Access, Clock, Db, SideEffects};
use store::hash::KeyHash;
use store::keyspace::{Keyspace, Shards, never};
use store::random::Random;
use store::value::Type;

use crate::call::{Call, KeyRef, Rules, Wait};
use crate::effects::{Class, Effects};
use crate::error::Error;
use crate::spec::{Begin, Info, KeySpec, Scope, Spec, fact, key_flag};
use crate::syntax::{self, Argument};
use crate::{FAMILIES, Handler};

/// Start time of a bench, in milliseconds of Unix time.
const STARTED_MS: u64 = 1_700_000_000_000;

/// A keyspace, the time and all other state that a call needs.
pub struct Bench {
    keyspace: Keyspace,
    /// The current time, in milliseconds of Unix time. It changes only when a test moves it.
    pub now_ms: u64,
    /// The selected database.
    pub database: usize,
    /// Protocol version of the replies.
    pub proto: Proto,
    /// Settings that handlers depend on.
    pub rules: Rules,
    /// Journal of all calls so far.
    pub effects: Effects,
    /// True if calls come from a script.
    pub in_script: bool,
    /// The last call's request to block.
    pub wait: Option<Wait>,
    random: Random,
}

impl Default for Bench {
    fn default() -> Self {
        Bench {
            keyspace: Keyspace::new(16, 1),
            now_ms: STARTED_MS,
            database: 0,
            proto: Proto::Resp2,
            rules: Rules::default(),
            effects: Effects::listening(),
            in_script: false,
            wait: None,
            random: Random::new(1),
        }
    }
}

/// The entry of a command, and its full name; a subcommand's includes its container.
fn find(args: &OwnedArgs) -> Result<(&'static Spec<Handler>, String), Error> {
    let is = |index: usize, spec: &Spec<Handler>| {
        args.args().len() > index && args.args().get(index).eq_ignore_ascii_case(spec.info.name.as_bytes())
    };
    let mut all = FAMILIES.iter().copied().flatten();
    let command = all.find(|s| is(0, s)).ok_or_else(|| Error::new("ERR unknown command"))?;
    match command.subcommands.iter().find(|s| is(1, s)) {
        Some(sub) => Ok((sub, format!("{}|{}", command.info.name, sub.info.name))),
        None if command.subcommands.is_empty() || args.args().len() == 1 => Ok((command, command.info.name.into())),
        None => Err(Error::unknown_subcommand(command.info.name.as_bytes(), args.args().get(1))),
    }
}

impl Bench {
    fn uptime_s(&self) -> u32 {
        (self.now_ms.saturating_sub(STARTED_MS) / 1000) as u32
    }

    /// Runs a command line and returns its reply with `|` in place of each line end.
    pub fn run(&mut self, line: &str) -> String {
        let words = split_args(line.as_bytes()).unwrap();
        self.run_args(&words)
    }

    /// Like [`Bench::run`], for separate arguments.
    pub fn run_args<T: AsRef<[u8]>>(&mut self, words: &[T]) -> String {
        let args = OwnedArgs::new(words.iter().map(AsRef::as_ref));
        let mut output = Output::default();
        if let Err(error) = self.call(&args, &mut output) {
            Reply::new(&mut output, self.proto).error(error.text());
        }
        let bytes = output.slices().collect::<Vec<_>>().concat();
        let text = String::from_utf8_lossy(&bytes).replace("\r\n", "|");
        text.strip_suffix('|').unwrap_or(&text).to_string()
    }

    fn call(&mut self, args: &OwnedArgs, output: &mut Output) -> Result<(), Error> {
        let (spec, name) = find(args)?;
        let args = args.args();
        if !spec.info.accepts(args.len()) {
            return Err(Error::arity(&name));
        }
        let mut keys = Vec::new();
        spec.info.visit_keys(args, |i| keys.push(KeyRef { arg: i as u32, hash: KeyHash::of(args.get(i)) }));
        let alone = self.keyspace.gate().close();
        // Lock only the command's own scope, so that a lookup of an undeclared key fails here.
        let mut shards: Vec<usize> = keys.iter().map(|k| self.keyspace.shard_of(k.hash)).collect();
        shards.sort_unstable();
        shards.dedup();
        let mut locked = match spec.info.scope_for(args) {
            crate::spec::Scope::Keys => self.keyspace.lock(Shards::Many(&shards), never).unwrap(),
            crate::spec::Scope::Each => self.keyspace.lock_each(&never),
            _ => self.keyspace.all(&alone),
        };
        let mut observed = SideEffects::default();
        let clock = Clock {
            now_ms: self.now_ms,
            due_ms: self.now_ms,
            uptime_s: self.uptime_s(),
            access: Access::Noted,
            frequency: None,
            keeps_due: false,
        };
        let mut call = Call {
            args: &args,
            db: Db::new(&mut locked, self.database, &clock, &mut observed),
            reply: Reply::new(output, self.proto),
            effects: &mut self.effects,
            rules: &self.rules,
            random: &mut self.random,
            keys: &keys,
            in_script: self.in_script,
            wait: None,
        };
        let outcome = (spec.run)(&mut call);
        self.wait = call.wait;
        outcome
    }

    /// Checks a sequence of commands against the expected replies.
    pub fn check(&mut self, script: &[(&str, &str)]) {
        for (line, expected) in script {
            assert_eq!(self.run(line), *expected, "{line}");
        }
    }

    /// Runs a command and returns the commands that it records in place of itself, each as one line. Empty if the journal gets the
    /// command unchanged.
    pub fn recorded(&mut self, line: &str) -> Vec<String> {
        let mut record = Record::default();
        self.effects.recording = true;
        self.effects.begin();
        self.run(line);
        self.effects.record(0, None, &mut record);
        let command = |entry: Entry<'_>| String::from_utf8_lossy(entry.command).replace("\r\n", " ");
        entries(record.bytes()).map(command).collect()
    }

    /// The names of the events since the last call of this function, each with its key: "set a".
    pub fn events(&mut self) -> Vec<String> {
        let published = self.effects.changes().filter(|c| c.class != Class::Emptied);
        let names = published.map(|c| format!("{} {}", c.event, String::from_utf8_lossy(c.key))).collect();
        self.effects.clear();
        names
    }
}

/// Checks a sequence of commands on an empty keyspace in RESP2.
pub fn check(script: &[(&str, &str)]) {
    Bench::default().check(script);
}

/// Checks a sequence of commands on an empty keyspace in RESP3.
pub fn check_resp3(script: &[(&str, &str)]) {
    Bench { proto: Proto::Resp3, ..Bench::default() }.check(script);
}

/// Checks that an entry is documented and that its declarations are consistent. `parent` is a subcommand's container.
/// Every mistake in a new entry that no other test would notice belongs here.
///
/// # Errors
/// Returns a description of the mistake.
pub fn check_entry<R>(spec: &Spec<R>, parent: Option<&Info>) -> Result<(), String> {
    let info = &spec.info;
    let is_container = !spec.subcommands.is_empty();
    if is_container && parent.is_some() {
        return Err("a subcommand with subcommands".into());
    }
    let problems = [
        check_documentation(info),
        check_flags(info),
        check_keys(info),
        check_facts(info),
        // A container's arguments are checked with its subcommands.
        if is_container { Ok(()) } else { check_syntax(info, 1 + usize::from(parent.is_some())) },
    ];
    problems.into_iter().collect()
}

/// Returns the text of the first condition that is false.
fn demand<const N: usize>(demands: [(bool, &str); N]) -> Result<(), String> {
    demands.into_iter().find(|(holds, _)| !holds).map_or(Ok(()), |(_, wrong)| Err(wrong.into()))
}

fn check_documentation(info: &Info) -> Result<(), String> {
    let is_version = |text: &str| text.split('.').count() == 3 && text.split('.').all(|n| n.parse::<u32>().is_ok());
    let is_sentence = |text: &str| text.starts_with(|c: char| c.is_ascii_uppercase()) && text.ends_with('.');
    let is_sentence_or_code =
        |text: &str| text.starts_with(|c: char| c.is_ascii_uppercase() || c == '`') && text.ends_with('.');
    let number = |version: &str| version.split('.').map(|n| n.parse::<u32>().unwrap_or(0)).collect::<Vec<u32>>();
    // A dot in a name is for commands of a module (RediSearch).
    let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '_' | '-' | '.');
    demand([
        (!info.name.is_empty() && info.name.chars().all(is_name), "its name is not in lower case"),
        (is_version(info.since), "`since` is not a version"),
        (is_sentence(info.summary), "the summary is not a sentence"),
        (!info.complexity.is_empty(), "the complexity is missing"),
        (
            info.deprecated.is_none_or(|d| is_version(d.since) && !d.replaced_by.is_empty()),
            "the replacement or its version is missing",
        ),
        (info.history.iter().all(|(version, text)| is_version(version) && is_sentence_or_code(text)), "its history"),
        (info.history.is_sorted_by_key(|(version, _)| number(version)), "its history is not in order"),
    ])
}

fn check_flags(info: &Info) -> Result<(), String> {
    use crate::spec::flag::{BLOCKING, DENYOOM, MAY_REPLICATE, NOSCRIPT, PUBSUB, READONLY, WRITE};
    let follows = |condition: bool, consequence: bool| !condition || consequence;
    demand([
        (info.arity != 0, "an arity of 0"),
        (!(info.has(READONLY) && info.has(WRITE)), "it is both READONLY and WRITE"),
        (!(info.has(READONLY) && info.has(DENYOOM)), "it is both READONLY and DENYOOM"),
        (info.has(BLOCKING) == info.waits.is_some(), "BLOCKING and the declaration of its wait don't agree"),
        (
            follows(info.publishes.is_some(), info.has(PUBSUB) && info.has(MAY_REPLICATE)),
            "it publishes without PUBSUB and MAY_REPLICATE",
        ),
        (follows(info.script.is_some(), info.has(NOSCRIPT)), "it runs a script without NOSCRIPT"),
        (info.script.is_some() == matches!(info.scope, Scope::Script), "its script and Scope::Script don't agree"),
    ])
}

fn check_keys(info: &Info) -> Result<(), String> {
    use crate::spec::flag::{BLOCKING, MAY_REPLICATE, READONLY, WRITE};
    use key_flag::{ACCESS, NOT_KEY, OW, RM, RO, RW, VARIABLE_FLAGS};
    let keys = || info.keys.iter().filter(|spec| spec.flags & NOT_KEY == 0);
    let is_real = keys().next().is_some();
    let changes = keys().any(|spec| spec.flags & (RW | OW | RM) != 0);
    let has_variable = info.keys.iter().any(|spec| spec.flags & VARIABLE_FLAGS != 0);
    let (first_item, step) = info.items;
    // Following Redis, a command that changes only a stream's groups declares its key as read-only.
    let changes_groups = info.value == Some(Type::Stream);
    demand([
        (
            keys().all(|spec| (spec.flags & (RO | RW | OW | RM)).count_ones() == 1),
            "a key needs exactly one of RO, RW, OW and RM",
        ),
        (!is_real || !matches!(info.scope, Scope::Each), "it has keys and Scope::Each"),
        // PFCOUNT counts as a read, but caches its result in the value.
        (!(info.has(READONLY) && changes) || info.has(MAY_REPLICATE), "it is READONLY and changes a key"),
        (!(info.has(WRITE) && is_real && !changes) || changes_groups, "it is WRITE and changes no key"),
        (is_real || info.value.is_none(), "a type of value without keys"),
        (step == 0 || (info.value.is_some() && first_item > 1), "members or fields without a type of value"),
        (!info.has(BLOCKING) || keys().any(|spec| spec.flags & ACCESS != 0), "no key ends its wait"),
        (info.flags_of_key.is_none() || has_variable, "`flags_of_key` without VARIABLE_FLAGS"),
    ])
}

fn check_facts(info: &Info) -> Result<(), String> {
    use crate::spec::fact::{AT_ONCE, BRIEF, RUNS_QUEUE};
    use crate::spec::flag::{BLOCKING, FAST, MOVABLEKEYS, NOSCRIPT, WRITE};
    let is_brief = info.is(BRIEF);
    // All keys of a brief command are in its arguments, and no count or other value adds more work.
    let is_simple = matches!(info.scope, Scope::Keys) && !info.has(MOVABLEKEYS | BLOCKING);
    demand([
        (!is_brief || is_simple, "it is brief, but may block or use keys beyond its arguments"),
        (!is_brief || info.has(FAST | WRITE), "it is brief, but neither FAST nor WRITE"),
        (!info.is(RUNS_QUEUE) || info.is(AT_ONCE), "it has RUNS_QUEUE without AT_ONCE"),
        (!info.is(AT_ONCE) || info.has(NOSCRIPT), "it is AT_ONCE without NOSCRIPT"),
        (info.waits.is_none_or(|waits| info.value == Some(waits.kind)), "it waits for another type than its value's"),
        // Catches the most likely omission.
        (
            !info.syntax.contains("password") || info.is_secret.is_some(),
            "its password argument is not marked as secret",
        ),
    ])
}

/// Checks that the notation of an entry's arguments is valid, agrees with its arity, and contains every key that its
/// key specifications find. `first` is the position of the first argument: 1, or 2 for a subcommand.
///
/// # Errors
/// Returns a description of the mistake.
pub fn check_syntax(info: &Info, first: usize) -> Result<(), String> {
    let arguments = syntax::parse(info.syntax, info.keys, first).map_err(|e| format!("{e:?}"))?;
    let fewest = first + syntax::least(&arguments);
    if !info.accepts(fewest) || info.accepts(fewest - 1) != info.is(fact::REFUSES_SHORT) {
        return Err(format!("it takes at least {fewest} arguments, but the arity is {}", info.arity));
    }
    let mut found = Vec::new();
    note_keys(&arguments, &mut found);
    let is_missing = |(index, spec): (usize, &KeySpec)| {
        !found.contains(&index) && spec.flags & key_flag::NOT_KEY == 0 && !matches!(spec.begin, Begin::Unknown(_))
    };
    let missing = info.keys.iter().enumerate().any(is_missing);
    if missing { Err(format!("no argument is the key of a specification in {:?}", info.keys)) } else { Ok(()) }
}

fn note_keys(arguments: &[Argument], found: &mut Vec<usize>) {
    for argument in arguments {
        found.extend(argument.key_spec_index);
        note_keys(&argument.arguments, found);
    }
}

/// Parses an integer reply (":5").
#[must_use]
pub fn int(reply: &str) -> i64 {
    num::parse_i64(reply.trim_start_matches(':').as_bytes()).unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::fact::{AT_ONCE, BRIEF};
    use crate::spec::flag::{BLOCKING, DENYOOM, FAST, MOVABLEKEYS, READONLY, WRITE};
    use crate::spec::key_flag::{ACCESS, RO, RW};
    use crate::spec::{Group, On};

    const GOOD: Spec<()> = Spec::new("bitcount", -2, READONLY, ()).keys(&[KeySpec::at(1, RO | ACCESS)]).docs(
        Group::Bitmap,
        "2.6.0",
        "O(N)",
        "Counts the bits that are set.",
        "key",
    );
    const WRITING: Spec<()> =
        Spec { info: Info { flags: WRITE, keys: &[KeySpec::at(1, RW | ACCESS)], ..GOOD.info }, ..GOOD };

    /// Returns the mistake that the checks find in an entry.
    fn wrong(info: Info) -> String {
        check_entry(&Spec { info, ..GOOD }, None).unwrap_err()
    }

    #[test]
    fn every_entry_is_consistent() {
        for spec in FAMILIES.iter().copied().flatten() {
            assert_eq!(check_entry(spec, None), Ok(()), "{}", spec.info.name);
            for sub in spec.subcommands {
                assert_eq!(check_entry(sub, Some(&spec.info)), Ok(()), "{} {}", spec.info.name, sub.info.name);
            }
        }
    }

    #[test]
    fn an_inconsistent_entry_is_found() {
        assert_eq!(check_entry(&GOOD, None), Ok(()));
        assert_eq!(check_entry(&WRITING.brief(), None), Ok(()));
        let [typed] = On(Type::List).entries([WRITING.waits_for(Type::List)]);
        let blocking = Info { flags: WRITE | BLOCKING, ..typed.info };
        assert_eq!(check_entry(&Spec { info: blocking, ..GOOD }, None), Ok(()));
        for (info, text) in [
            (Info { name: "BITCOUNT", ..GOOD.info }, "its name is not in lower case"),
            (Info { since: "7", ..GOOD.info }, "`since` is not a version"),
            (Info { summary: "counts bits", ..GOOD.info }, "the summary is not a sentence"),
            (Info { flags: READONLY | WRITE, ..GOOD.info }, "it is both READONLY and WRITE"),
            (Info { flags: READONLY | DENYOOM, ..GOOD.info }, "it is both READONLY and DENYOOM"),
            (Info { waits: None, ..blocking }, "BLOCKING and the declaration of its wait don't agree"),
            (Info { waits: typed.info.waits, ..GOOD.info }, "BLOCKING and the declaration of its wait don't agree"),
            (Info { value: Some(Type::Set), ..blocking }, "it waits for another type than its value's"),
            (Info { keys: const { &[KeySpec::at(1, RW)] }, ..blocking }, "no key ends its wait"),
            (
                Info { keys: const { &[KeySpec::at(1, RO | RW)] }, ..GOOD.info },
                "a key needs exactly one of RO, RW, OW and RM",
            ),
            (Info { scope: Scope::Each, ..GOOD.info }, "it has keys and Scope::Each"),
            (Info { flags: WRITE, ..GOOD.info }, "it is WRITE and changes no key"),
            (Info { flags: READONLY, ..WRITING.info }, "it is READONLY and changes a key"),
            (Info { items: (2, 1), ..GOOD.info }, "members or fields without a type of value"),
            (GOOD.brief().info, "it is brief, but neither FAST nor WRITE"),
            (
                Info { flags: READONLY | FAST | MOVABLEKEYS, facts: BRIEF, ..GOOD.info },
                "it is brief, but may block or use keys beyond its arguments",
            ),
            (Info { facts: AT_ONCE, ..GOOD.info }, "it is AT_ONCE without NOSCRIPT"),
            (Info { syntax: "key password", arity: -3, ..GOOD.info }, "its password argument is not marked as secret"),
            (GOOD.flags_of_key(|_| RO).info, "`flags_of_key` without VARIABLE_FLAGS"),
            (Info { syntax: "key other", ..GOOD.info }, "it takes at least 3 arguments, but the arity is -2"),
        ] {
            assert_eq!(wrong(info), text);
        }
    }
}
