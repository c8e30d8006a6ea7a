//! The one table of commands: those on keys and those on sessions, found by name.

use std::collections::HashMap;

use commands::spec::{Info, Scope, Spec, fact};
use commands::{FAMILIES, Handler};
use resp::request::Args;
use store::value::Type;

/// Where a command's keys are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeysAt {
    /// It has none.
    None,
    /// It has one, at this argument.
    Only(usize),
    /// Where its entry says.
    Declared,
}

impl KeysAt {
    fn of(info: &Info) -> KeysAt {
        match info.only_key() {
            _ if info.keys.is_empty() => KeysAt::None,
            Some(at) => KeysAt::Only(at),
            None => KeysAt::Declared,
        }
    }
}

/// A command or subcommand of the table.
pub struct Command {
    /// Its place in the table, and in every table of counters.
    pub id: usize,
    /// The name in statistics and errors: a subcommand's is "config|get".
    pub name: String,
    /// The name by which clients call it, in lower case: its own, unless `rename-command` gave it another, or took it
    /// away: then it is empty. Of subcommands it is their own.
    called: String,
    /// Its declaration.
    pub info: &'static Info,
    /// What runs it, if it sees keys only and takes their shards whatever its arguments. What runs any command is in
    /// `registry`.
    pub quick: Option<Handler>,
    /// Whether its handler sees keys only.
    pub sees_keys: bool,
    /// Where its keys are.
    pub keys: KeysAt,
    /// The fewest arguments that it takes, and how many more.
    args_min: usize,
    args_more: usize,
    /// The places of its subcommands.
    pub subcommands: Vec<usize>,
    /// Whether it works on a collection, which the key's entry only points to.
    pub reads_collection: bool,
    /// Whether it sees keys only, and is declared brief.
    pub is_brief: bool,
    /// Whether it sees the session, takes no shards whatever its arguments, and is declared brief.
    pub is_keyless: bool,
    /// The place of its container, if it is a subcommand.
    pub parent: Option<usize>,
}

impl Command {
    /// Whether so many arguments, the name included, are right.
    #[inline]
    #[must_use]
    pub fn accepts(&self, args: usize) -> bool {
        args.wrapping_sub(self.args_min) <= self.args_more
    }

    /// Whether so many arguments, the name included, are the fewest that it takes: none of them is an option.
    #[inline]
    #[must_use]
    pub fn needs_all(&self, args: usize) -> bool {
        args == self.args_min
    }

    /// Whether clients can't call it by any name, nor its subcommands.
    fn is_removed(&self) -> bool {
        self.called.is_empty()
    }
}

/// Whether a command works on a collection that is worth looking into ahead: the key's entry only points to it.
fn reads_collection(info: &Info) -> bool {
    match info.value {
        Some(Type::Hash | Type::List | Type::Set | Type::ZSet) => true,
        // A string's bytes are with its entry or are sent by reference; of a stream, only its newest block is of use.
        // Of suggestions, a search reads what it finds on its way.
        Some(Type::String | Type::Stream | Type::Suggestions) | None => false,
    }
}

/// Longest name that the quick way of looking up covers, in bytes.
const QUICK_BYTES: usize = 16;
/// Slots of the quick way: a power of two, several times the commands, so that collisions are rare.
const QUICK_SLOTS: usize = 2048;

/// A name of up to 16 bytes in lower case. Together with its length, the words are as good as the name.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Folded {
    words: [u64; 2],
    len: usize,
}

impl Folded {
    /// No name.
    const NONE: Folded = Folded { words: [0; 2], len: 0 };

    /// Two overlapping loads cover any length between one and two words; a copy of variable length would cost more than
    /// the rest of the look-up.
    #[inline]
    fn of(name: &[u8]) -> Option<Folded> {
        /// The bit that tells lower case letters from upper case ones, in every byte.
        const CASE: u64 = 0x2020_2020_2020_2020;
        let len = name.len();
        let words = match name {
            [] => return None,
            [a] => [u64::from(*a), 0],
            [a, b] => [u64::from(*a) | u64::from(*b) << 8, 0],
            [a, b, c] => [u64::from(*a) | u64::from(*b) << 8 | u64::from(*c) << 16, 0],
            _ if len < 8 => {
                let (first, last) = (name.first_chunk::<4>()?, name.last_chunk::<4>()?);
                [u64::from(u32::from_le_bytes(*first)) | u64::from(u32::from_le_bytes(*last)) << 32, 0]
            }
            _ if len <= QUICK_BYTES => {
                [u64::from_le_bytes(*name.first_chunk::<8>()?), u64::from_le_bytes(*name.last_chunk::<8>()?)]
            }
            _ => return None,
        };
        // Setting the bit everywhere maps other bytes onto digits and underscores, too: see `Slot::exact`.
        Some(Folded { words: words.map(|w| w | CASE), len })
    }

    #[inline]
    fn slot(self) -> usize {
        let mixed =
            (self.words[0] ^ self.words[1].rotate_left(29) ^ self.len as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (mixed >> 48) as usize % QUICK_SLOTS
    }
}

/// A name of the quick way.
#[derive(Clone, Copy)]
struct Slot {
    folded: Folded,
    /// The command's place; `u32::MAX`: the slot is empty.
    id: u32,
    /// Whether the name is all letters, so that equal words are equal names.
    exact: bool,
}

/// The error for a command that `rename-command` names and that is not there.
pub(crate) const NO_SUCH_COMMAND: &str = "No such command in rename-command";

/// See the module's documentation.
pub struct Table {
    commands: Vec<Command>,
    /// Names of up to 16 bytes.
    quick: Box<[Slot]>,
    by_name: HashMap<String, usize>,
}

const EMPTY: Slot = Slot { folded: Folded::NONE, id: u32::MAX, exact: false };

impl Table {
    /// All commands on keys, and those of `families`, by their own names. Each command has the place that it has when
    /// all of them are numbered in order, each container before its subcommands.
    #[must_use]
    pub fn build<R>(families: &[&'static [Spec<R>]]) -> Table {
        let mut table = Table { commands: Vec::new(), quick: vec![EMPTY; QUICK_SLOTS].into(), by_name: HashMap::new() };
        for spec in FAMILIES.iter().copied().flatten() {
            table.add(spec, &|handler| Some(*handler));
        }
        for spec in families.iter().copied().flatten() {
            table.add(spec, &|_| None);
        }
        table.index();
        table
    }

    /// Has a command be called by another name, in whatever case, or by none, if that is empty. Statistics, errors and
    /// COMMAND go on naming it by its own. Source: Redis's redis.conf, `rename-command`.
    ///
    /// # Errors
    /// Redis's text, if no command is called `old`, or another is called `new`.
    pub fn rename(&mut self, old: &str, new: &str) -> Result<(), &'static str> {
        let (old, new) = (old.to_ascii_lowercase(), new.to_ascii_lowercase());
        let id = *self.by_name.get(&old).ok_or(NO_SUCH_COMMAND)?;
        if new != old && self.by_name.contains_key(&new) {
            return Err("Target command name already exists");
        }
        self.commands[id].called = new;
        self.index();
        Ok(())
    }

    /// Makes both ways of looking names up.
    fn index(&mut self) {
        self.by_name.clear();
        self.quick.fill(EMPTY);
        for command in self.commands.iter().filter(|c| c.parent.is_none() && !c.is_removed()) {
            self.by_name.insert(command.called.clone(), command.id);
            let name = command.called.as_bytes();
            let Some(folded) = Folded::of(name) else { continue };
            let mut slot = folded.slot();
            while self.quick[slot].id != u32::MAX {
                slot = (slot + 1) % QUICK_SLOTS;
            }
            self.quick[slot] = Slot { folded, id: command.id as u32, exact: name.iter().all(u8::is_ascii_alphabetic) };
        }
    }

    /// Adds a command. `on_keys` says which handler an entry has that sees keys only, if it has one.
    fn add<R>(&mut self, spec: &'static Spec<R>, on_keys: &dyn Fn(&R) -> Option<Handler>) {
        let id = self.push(spec.info.name.to_string(), spec, on_keys, None);
        for sub in spec.subcommands {
            let sub_id = self.push(format!("{}|{}", spec.info.name, sub.info.name), sub, on_keys, Some(id));
            self.commands[id].subcommands.push(sub_id);
        }
    }

    fn push<R>(
        &mut self,
        name: String,
        spec: &'static Spec<R>,
        on_keys: &dyn Fn(&R) -> Option<Handler>,
        parent: Option<usize>,
    ) -> usize {
        let id = self.commands.len();
        let handler = on_keys(&spec.run);
        let quick = handler.filter(|_| matches!(spec.info.scope, Scope::Keys));
        self.commands.push(Command {
            id,
            name,
            called: spec.info.name.to_owned(),
            info: &spec.info,
            quick,
            sees_keys: handler.is_some(),
            keys: KeysAt::of(&spec.info),
            args_min: spec.info.arity.unsigned_abs() as usize,
            args_more: if spec.info.arity < 0 { usize::MAX / 2 } else { 0 },
            subcommands: Vec::new(),
            reads_collection: reads_collection(&spec.info),
            is_keyless: handler.is_none()
                && matches!((&spec.info.scope, KeysAt::of(&spec.info)), (Scope::Keys, KeysAt::None))
                && spec.info.is(fact::BRIEF),
            is_brief: quick.is_some() && spec.info.is(fact::BRIEF),
            parent,
        });
        id
    }

    /// Every command and subcommand, by place, even those that no client can call.
    #[must_use]
    pub fn all(&self) -> &[Command] {
        &self.commands
    }

    /// Every command and subcommand that clients can call.
    pub fn callable(&self) -> impl Iterator<Item = &Command> + Clone {
        let is_removed = |command: &Command| command.parent.map_or(command, |id| &self.commands[id]).is_removed();
        self.commands.iter().filter(move |command| !is_removed(command))
    }

    /// The command with this name, in whatever case; containers are found, their subcommands are not.
    #[inline]
    #[must_use]
    pub fn find(&self, name: &[u8]) -> Option<&Command> {
        let Some(folded) = Folded::of(name) else { return self.find_long(name) };
        let mut slot = folded.slot();
        loop {
            let found = &self.quick[slot];
            let command = self.commands.get(found.id as usize)?;
            if found.folded == folded && (found.exact || command.called.as_bytes().eq_ignore_ascii_case(name)) {
                return Some(command);
            }
            slot = (slot + 1) % QUICK_SLOTS;
        }
    }

    fn find_long(&self, name: &[u8]) -> Option<&Command> {
        let lower = std::str::from_utf8(name).ok()?.to_ascii_lowercase();
        self.by_name.get(&*lower).map(|&id| &self.commands[id])
    }

    /// The subcommand that the second argument names, or the command itself if it has none or none is given.
    #[inline]
    #[must_use]
    pub fn resolve<'t>(&'t self, command: &'t Command, args: Args<'_>) -> Option<&'t Command> {
        if command.subcommands.is_empty() || args.len() < 2 {
            return Some(command);
        }
        self.subcommand(command, args.get(1))
    }

    /// A container's subcommand, by name.
    #[must_use]
    pub fn subcommand(&self, container: &Command, name: &[u8]) -> Option<&Command> {
        let subs = container.subcommands.iter().map(|&id| &self.commands[id]);
        subs.into_iter().find(|s| s.info.name.as_bytes().eq_ignore_ascii_case(name))
    }

    /// The command or subcommand with this full name ("config|get").
    #[must_use]
    pub fn find_full(&self, name: &[u8]) -> Option<&Command> {
        match name.iter().position(|&b| b == b'|') {
            None => self.find(name),
            Some(bar) => self.subcommand(self.find(&name[..bar])?, &name[bar + 1..]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::families;
    use crate::registry::table;

    #[test]
    fn every_command_is_found_in_any_case_and_nothing_else_is() {
        for command in table().all().iter().filter(|c| c.parent.is_none()) {
            for name in [command.name.clone(), command.name.to_uppercase()] {
                assert_eq!(table().find(name.as_bytes()).map(|c| c.id), Some(command.id), "{name}");
            }
            let near = command.name.replace('e', "\u{5}");
            assert!(near == command.name || table().find(near.as_bytes()).is_none(), "{near:?}");
        }
        for name in ["", "x", "gett", "get\0", "zrangebyscorewithaverylongname"] {
            assert!(table().find(name.as_bytes()).is_none(), "{name:?}");
        }
    }

    #[test]
    fn renamed_commands_are_found_by_their_new_names_only() {
        let mut table = Table::build(families::ALL);
        let name_of = |table: &Table, called: &str| table.find(called.as_bytes()).map(|c| c.name.clone());
        let all = table.callable().count();
        for (old, new) in
            [("GET", "set"), ("nosuch", "x"), ("", "x"), ("config|get", "x"), ("SET", "SET"), ("Get", "Holen")]
        {
            let expected = match (old, new) {
                ("GET", _) => Err("Target command name already exists"),
                ("SET" | "Get", _) => Ok(()),
                _ => Err("No such command in rename-command"),
            };
            assert_eq!(table.rename(old, new), expected, "{old} {new}");
        }
        assert_eq!(table.rename("get", "x"), Err("No such command in rename-command"), "by its new name only");
        for (old, new) in [("del", "get"), ("debug", "dbg_1"), ("keys", "b840fc02d524045429941cc15f59e41cb7be6c52")] {
            assert_eq!(table.rename(old, new), Ok(()));
            assert_eq!(name_of(&table, &new.to_uppercase()).as_deref(), Some(old));
            assert_eq!(name_of(&table, old), None);
        }
        assert_eq!(name_of(&table, "holen").as_deref(), Some("get"));
        // Sets the same bits as "dbg_1".
        assert_eq!(name_of(&table, "dbg\u{7f}1"), None);
        assert_eq!(table.rename("CONFIG", ""), Ok(()));
        assert_eq!((name_of(&table, "config"), name_of(&table, "")), (None, None));
        assert!(table.find_full(b"config|get").is_none());
        let subcommands = table.all().iter().filter(|c| c.name.starts_with("config|")).count();
        assert_eq!(table.callable().count(), all - 1 - subcommands);
    }
}
