//! The one table of commands: those on keys and those on sessions, found by name.

use std::collections::HashMap;
use std::sync::LazyLock;

use commands::error::Outcome;
use commands::spec::{Info, Spec};
use commands::{FAMILIES, Handler};
use resp::request::Args;

use crate::families;
use crate::turn::Turn;

/// A command that works on sessions or the server.
pub type SessionHandler = fn(&mut Turn<'_, '_>) -> Outcome;

/// What runs a command.
#[derive(Clone, Copy)]
pub enum Run {
    /// A handler that sees keys only.
    Keys(Handler),
    /// A handler that sees the session and the server.
    Session(SessionHandler),
}

/// A command or subcommand of the table.
pub struct Command {
    /// Its place in the table, and in every table of counters.
    pub id: usize,
    /// The name in statistics and errors: a subcommand's is "config|get".
    pub name: String,
    /// Its declaration.
    pub info: &'static Info,
    /// What runs it.
    pub run: Run,
    /// The places of its subcommands.
    pub subcommands: Vec<usize>,
    /// The place of its container, if it is a subcommand.
    pub parent: Option<usize>,
}

/// Longest name that the quick way of looking up covers, in bytes.
const QUICK_BYTES: usize = 16;
/// Slots of the quick way: a power of two, several times the commands, so that collisions are rare.
const QUICK_SLOTS: usize = 2048;

/// See the module's documentation.
pub struct Table {
    commands: Vec<Command>,
    /// Names of up to 16 bytes, in lower case, in two words, with their command's place.
    quick: Box<[([u64; 2], u32)]>,
    by_name: HashMap<&'static str, usize>,
}

static TABLE: LazyLock<Table> = LazyLock::new(Table::build);

/// The table. It is built at the first call and never changes.
#[inline]
#[must_use]
pub fn table() -> &'static Table {
    &TABLE
}

/// A name of up to 16 bytes in lower case, as two words.
#[inline]
fn fold(name: &[u8]) -> Option<[u64; 2]> {
    /// The bit that tells lower case letters from upper case ones, in every byte.
    const CASE: u64 = 0x2020_2020_2020_2020;
    if name.len() > QUICK_BYTES {
        return None;
    }
    let mut bytes = [0; QUICK_BYTES];
    bytes[..name.len()].copy_from_slice(name);
    let [low, high] = [&bytes[..8], &bytes[8..]].map(|half| u64::from_le_bytes(half.try_into().unwrap_or_default()));
    // Setting the bit everywhere maps a few other bytes onto letters too; the name is compared again when it is found.
    Some([low | CASE, high | CASE])
}

#[inline]
fn quick_slot(words: [u64; 2]) -> usize {
    let mixed = (words[0] ^ words[1].rotate_left(29)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> 48) as usize % QUICK_SLOTS
}

impl Table {
    fn build() -> Table {
        let mut table = Table {
            commands: Vec::new(),
            quick: vec![([0; 2], u32::MAX); QUICK_SLOTS].into(),
            by_name: HashMap::new(),
        };
        for spec in FAMILIES.iter().copied().flatten() {
            table.add(spec, &|run| Run::Keys(*run));
        }
        for spec in families::ALL.iter().copied().flatten() {
            table.add(spec, &|run| *run);
        }
        table
    }

    fn add<R>(&mut self, spec: &'static Spec<R>, run: &dyn Fn(&R) -> Run) {
        let id = self.push(spec.info.name.to_string(), spec, run, None);
        for sub in spec.subcommands {
            let sub_id = self.push(format!("{}|{}", spec.info.name, sub.info.name), sub, run, Some(id));
            self.commands[id].subcommands.push(sub_id);
        }
        self.by_name.insert(spec.info.name, id);
        if let Some(words) = fold(spec.info.name.as_bytes()) {
            let mut slot = quick_slot(words);
            while self.quick[slot].1 != u32::MAX {
                slot = (slot + 1) % QUICK_SLOTS;
            }
            self.quick[slot] = (words, id as u32);
        }
    }

    fn push<R>(
        &mut self,
        name: String,
        spec: &'static Spec<R>,
        run: &dyn Fn(&R) -> Run,
        parent: Option<usize>,
    ) -> usize {
        let id = self.commands.len();
        self.commands.push(Command {
            id,
            name,
            info: &spec.info,
            run: run(&spec.run),
            subcommands: Vec::new(),
            parent,
        });
        id
    }

    /// Every command and subcommand, by place.
    #[must_use]
    pub fn all(&self) -> &[Command] {
        &self.commands
    }

    /// The command with this name, in whatever case; containers are found, their subcommands are not.
    #[inline]
    #[must_use]
    pub fn find(&self, name: &[u8]) -> Option<&Command> {
        let Some(words) = fold(name) else { return self.find_long(name) };
        let mut slot = quick_slot(words);
        loop {
            let (found, id) = self.quick[slot];
            let command = self.commands.get(id as usize)?;
            if found == words && command.info.name.as_bytes().eq_ignore_ascii_case(name) {
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
}
