//! A bench for handlers' tests: runs commands on a keyspace of its own, without sessions and sockets.

#![allow(clippy::unwrap_used, reason = "a test that is given nonsense should fail")]

use resp::num;
use resp::reply::{Output, Proto, Reply};
use resp::request::OwnedArgs;
use resp::splitargs::split_args;
use store::db::{Access, Clock, Db, Observed};
use store::hash::hash;
use store::keyspace::Keyspace;
use store::random::Random;

use crate::call::{Call, KeyRef, Rules, Wait};
use crate::effects::{Class, Effects};
use crate::error::Error;
use crate::spec::{Begin, Info, KeySpec, Spec, key_flag};
use crate::syntax::{self, Argument};
use crate::{FAMILIES, Handler};

/// When a bench begins, in milliseconds of Unix time.
const STARTED_MS: u64 = 1_700_000_000_000;

/// A keyspace with the time and everything else that a call needs.
pub struct Bench {
    keyspace: Keyspace,
    /// The time, in milliseconds of Unix time. It stands still until a test moves it.
    pub now_ms: u64,
    /// The selected database.
    pub database: usize,
    /// The version of the protocol that replies are written in.
    pub proto: Proto,
    /// Figures of the configuration.
    pub rules: Rules,
    /// The journal of all calls so far.
    pub effects: Effects,
    /// Whether calls come from a script.
    pub in_script: bool,
    /// What the last call wants to wait for.
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

/// The entry of a command and, for a subcommand, its container's name.
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

    /// Runs a command given as one would type it, and returns its reply with `|` for each line end.
    pub fn run(&mut self, line: &str) -> String {
        let words = split_args(line.as_bytes()).unwrap();
        self.run_args(&words)
    }

    /// The same for arguments.
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
        spec.info.visit_keys(args, |i| keys.push(KeyRef { arg: i as u32, hash: hash(args.get(i)) }));
        let alone = self.keyspace.gate().close();
        // Hold no more than the command's own scope, so that a key it forgot to declare is found here.
        let mut shards: Vec<usize> = keys.iter().map(|k| self.keyspace.shard_of(k.hash)).collect();
        shards.sort_unstable();
        shards.dedup();
        let mut locked = match spec.info.scope_for(args) {
            crate::spec::Scope::Keys => self.keyspace.lock_many(&shards),
            crate::spec::Scope::Each => self.keyspace.lock_each(),
            _ => self.keyspace.all(&alone),
        };
        let mut observed = Observed::default();
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

    /// Checks a sequence of commands against their replies.
    pub fn check(&mut self, script: &[(&str, &str)]) {
        for (line, expected) in script {
            assert_eq!(self.run(line), *expected, "{line}");
        }
    }

    /// The names of the events since the last call of this, each with its key: "set a".
    pub fn events(&mut self) -> Vec<String> {
        let published = self.effects.changes().filter(|c| c.class != Class::Emptied);
        let names = published.map(|c| format!("{} {}", c.event, String::from_utf8_lossy(c.key))).collect();
        self.effects.clear();
        names
    }
}

/// Checks a sequence of commands on an empty keyspace, first in RESP2.
pub fn check(script: &[(&str, &str)]) {
    Bench::default().check(script);
}

/// The same in RESP3.
pub fn check_resp3(script: &[(&str, &str)]) {
    Bench { proto: Proto::Resp3, ..Bench::default() }.check(script);
}

/// Checks that the notation of an entry's arguments can be read, takes as many arguments as its arity says and names
/// the keys that its key specifications find. `first` is the place of the first argument: 1, or 2 for a subcommand.
///
/// # Errors
/// What is wrong with it.
pub fn check_syntax(info: &Info, first: usize) -> Result<(), String> {
    let arguments = syntax::parse(info.syntax, info.keys, first).map_err(|e| format!("{e:?}"))?;
    let fewest = first + syntax::least(&arguments);
    if !info.accepts(fewest) || info.accepts(fewest - 1) {
        return Err(format!("it takes {fewest} arguments at least, and the arity is {}", info.arity));
    }
    let mut found = Vec::new();
    note_keys(&arguments, &mut found);
    let is_missing = |(index, spec): (usize, &KeySpec)| {
        !found.contains(&index) && spec.flags & key_flag::NOT_KEY == 0 && !matches!(spec.begin, Begin::Unknown(_))
    };
    let missing = info.keys.iter().enumerate().any(is_missing);
    if missing { Err(format!("no argument is the key of one of {:?}", info.keys)) } else { Ok(()) }
}

fn note_keys(arguments: &[Argument], found: &mut Vec<usize>) {
    for argument in arguments {
        found.extend(argument.key_spec_index);
        note_keys(&argument.arguments, found);
    }
}

/// The integer in a reply such as ":5".
#[must_use]
pub fn int(reply: &str) -> i64 {
    num::parse_i64(reply.trim_start_matches(':').as_bytes()).unwrap()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn all() -> impl Iterator<Item = (String, &'static Info)> {
        FAMILIES.iter().copied().flatten().flat_map(|s| {
            let subs = s.subcommands.iter().map(|sub| (format!("{}|{}", s.info.name, sub.info.name), &sub.info));
            std::iter::once((s.info.name.to_string(), &s.info)).chain(subs)
        })
    }

    #[test]
    fn the_table_is_sound() {
        let is_container = |s: &&Spec<Handler>| !s.subcommands.is_empty();
        let containers: Vec<_> = FAMILIES.iter().copied().flatten().filter(is_container).map(|s| s.info.name).collect();
        let mut seen = BTreeSet::new();
        for (name, info) in all() {
            assert!(seen.insert(name.clone()), "{name} twice");
            assert_eq!(name, name.to_lowercase());
            assert!(info.arity != 0, "{name}");
            for text in [info.since, info.summary, info.complexity] {
                assert!(!text.is_empty(), "{name} lacks documentation");
            }
            assert!(info.summary.ends_with('.'), "{name}");
            let both = crate::spec::flag::READONLY | crate::spec::flag::WRITE;
            assert!(info.flags & both != both, "{name} reads only and writes");
            if containers.contains(&&*name) {
                continue;
            }
            if let Err(wrong) = check_syntax(info, 1 + name.matches('|').count()) {
                panic!("{name} {}: {wrong}", info.syntax);
            }
        }
    }
}
