//! The table of commands, on keys and on sessions, found by name.

use std::collections::HashMap;

use crate::spec::{Info, Scope, Spec, fact};
use crate::{FAMILIES, Handler};
use resp::request::Args;
use store::value::Type;

/// Location of a command's keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeysAt {
    /// No keys.
    None,
    /// One key, at this argument.
    Only(usize),
    /// Keys as declared in the entry.
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
    /// Index in the table, and in every table of counters.
    pub id: usize,
    /// Name in statistics and errors; a subcommand's is "config|get".
    pub name: String,
    /// Name for clients, in lower case: the original name, the one from `rename-command`, or empty if that removed it.
    /// Subcommands keep theirs.
    called: String,
    /// The declaration.
    pub info: &'static Info,
    /// The handler, if it sees only keys and always takes their shards. `registry` has the handlers of all commands.
    pub keys_handler: Option<Handler>,
    /// True if the handler sees only keys.
    pub sees_keys: bool,
    /// Location of the keys.
    pub keys: KeysAt,
    /// Minimum number of arguments, and number of optional ones.
    args_min: usize,
    args_more: usize,
    /// Indexes of the subcommands.
    pub subcommands: Vec<usize>,
    /// True if it works on a collection, which is separate from the key's entry.
    pub reads_collection: bool,
    /// True if the handler sees only keys, and the command is declared brief.
    pub is_brief: bool,
    /// True if the handler sees the session and never takes shards, and the command is declared brief.
    pub is_keyless: bool,
    /// Index of the container of a subcommand.
    pub parent: Option<usize>,
}

impl Command {
    /// Returns true if this number of arguments, including the name, is valid.
    #[inline]
    #[must_use]
    pub fn accepts(&self, args: usize) -> bool {
        args.wrapping_sub(self.args_min) <= self.args_more
    }

    /// Returns true if this is the minimum number of arguments, including the name; no argument is an option then.
    #[inline]
    #[must_use]
    pub fn needs_all(&self, args: usize) -> bool {
        args == self.args_min
    }

    /// Returns true if clients can't call the command or its subcommands.
    fn is_removed(&self) -> bool {
        self.called.is_empty()
    }
}

/// Returns true for commands on collections that are worth prefetching, because they are separate from the key's entry.
fn reads_collection(info: &Info) -> bool {
    match info.value {
        Some(Type::Hash | Type::List | Type::Set | Type::ZSet) => true,
        // A string's bytes are in its entry or are sent by reference. Only the newest block of a stream is useful.
        // Suggestions are read along the path of a search.
        Some(Type::String | Type::Stream | Type::Suggestions) | None => false,
    }
}

/// Maximum length of a name in the fast lookup, in bytes.
const QUICK_BYTES: usize = 16;
/// Slots of the fast lookup: a power of two, several times the number of commands, so that collisions are rare.
const NAME_SLOTS: usize = 2048;

/// A name of up to 16 bytes in lower case. The words and the length identify the name.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Folded {
    words: [u64; 2],
    len: u32,
    /// For a subcommand, the container's index plus one; 0 for a command.
    container: u32,
}

impl Folded {
    /// No name.
    const NONE: Folded = Folded { words: [0; 2], len: 0, container: 0 };

    /// Two overlapping loads cover any length between one and two words; a copy of variable length would cost more than
    /// the rest of the lookup.
    #[inline]
    fn of(name: &[u8]) -> Option<Folded> {
        /// The bit that distinguishes lower case from upper case letters, in every byte.
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
        // The bit also maps other bytes onto digits and underscores: see `Slot::exact`.
        Some(Folded { words: words.map(|w| w | CASE), len: len as u32, container: 0 })
    }

    /// The name as that of a subcommand.
    fn within(self, container: usize) -> Folded {
        Folded { container: container as u32 + 1, ..self }
    }

    #[inline]
    fn slot(self) -> usize {
        let rest = u64::from(self.len) | u64::from(self.container) << 32;
        let mixed = (self.words[0] ^ self.words[1].rotate_left(29) ^ rest).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (mixed >> 48) as usize % NAME_SLOTS
    }
}

/// A name in the fast lookup.
#[derive(Clone, Copy)]
struct Slot {
    folded: Folded,
    /// The command's index; `u32::MAX` if the slot is empty.
    id: u32,
    /// True if the name has only letters, so that equal words mean equal names.
    exact: bool,
}

/// Error for an unknown command in `rename-command`.
pub const NO_SUCH_COMMAND: &str = "No such command in rename-command";

/// The table of commands.
pub struct Table {
    commands: Vec<Command>,
    /// Names of up to 16 bytes of commands and subcommands, for the fast lookup.
    name_slots: Box<[Slot]>,
    by_name: HashMap<String, usize>,
}

const EMPTY: Slot = Slot { folded: Folded::NONE, id: u32::MAX, exact: false };

impl Table {
    /// Builds the table of all key commands and the commands of `families`, under their original names. Indexes are in
    /// sorted order, each container before its subcommands.
    #[must_use]
    pub fn build<R>(families: &[&'static [Spec<R>]]) -> Table {
        let mut table =
            Table { commands: Vec::new(), name_slots: vec![EMPTY; NAME_SLOTS].into(), by_name: HashMap::new() };
        for spec in FAMILIES.iter().copied().flatten() {
            table.add(spec, &|handler| Some(*handler));
        }
        for spec in families.iter().copied().flatten() {
            table.add(spec, &|_| None);
        }
        table.index();
        table
    }

    /// Renames a command, in any case, or removes it if the new name is empty. Statistics, errors and COMMAND still use
    /// the original
    /// name. Source: Redis's redis.conf, `rename-command`.
    ///
    /// # Errors
    /// Redis's text, if there is no command `old`, or there is another one `new`.
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

    /// Builds both lookups.
    fn index(&mut self) {
        self.by_name.clear();
        self.name_slots.fill(EMPTY);
        for command in self.commands.iter().filter(|c| c.parent.is_none() && !c.is_removed()) {
            self.by_name.insert(command.called.clone(), command.id);
        }
        for command in self.commands.iter().filter(|c| !c.is_removed()) {
            let name = command.called.as_bytes();
            let Some(folded) = Folded::of(name) else { continue };
            let folded = command.parent.map_or(folded, |container| folded.within(container));
            let mut slot = folded.slot();
            while self.name_slots[slot].id != u32::MAX {
                slot = (slot + 1) % NAME_SLOTS;
            }
            self.name_slots[slot] =
                Slot { folded, id: command.id as u32, exact: name.iter().all(u8::is_ascii_alphabetic) };
        }
    }

    /// Adds a command. `on_keys` returns the handler of an entry that sees only keys.
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
        let keys_handler = handler.filter(|_| matches!(spec.info.scope, Scope::Keys));
        self.commands.push(Command {
            id,
            name,
            called: spec.info.name.to_owned(),
            info: &spec.info,
            keys_handler,
            sees_keys: handler.is_some(),
            keys: KeysAt::of(&spec.info),
            args_min: spec.info.arity.unsigned_abs() as usize,
            args_more: if spec.info.arity < 0 { usize::MAX / 2 } else { 0 },
            subcommands: Vec::new(),
            reads_collection: reads_collection(&spec.info),
            is_keyless: handler.is_none()
                && matches!((&spec.info.scope, KeysAt::of(&spec.info)), (Scope::Keys, KeysAt::None))
                && spec.info.is(fact::BRIEF),
            is_brief: keys_handler.is_some() && spec.info.is(fact::BRIEF),
            parent,
        });
        id
    }

    /// Returns all commands and subcommands by index, including removed ones.
    #[must_use]
    pub fn all(&self) -> &[Command] {
        &self.commands
    }

    /// Returns the number of commands that clients can call, without subcommands.
    #[must_use]
    pub fn callable_count(&self) -> usize {
        self.by_name.len()
    }

    /// Returns all commands and subcommands that clients can call.
    pub fn callable(&self) -> impl Iterator<Item = &Command> + Clone {
        let is_removed = |command: &Command| command.parent.map_or(command, |id| &self.commands[id]).is_removed();
        self.commands.iter().filter(move |command| !is_removed(command))
    }

    /// Returns the command with this name, in any case. Finds containers, but not their subcommands.
    #[inline]
    #[must_use]
    pub fn find(&self, name: &[u8]) -> Option<&Command> {
        let Some(folded) = Folded::of(name) else { return self.find_long(name) };
        self.find_folded(folded, name)
    }

    #[inline]
    fn find_folded(&self, folded: Folded, name: &[u8]) -> Option<&Command> {
        let mut slot = folded.slot();
        loop {
            let found = &self.name_slots[slot];
            let command = self.commands.get(found.id as usize)?;
            if found.folded == folded && (found.exact || command.called.as_bytes().eq_ignore_ascii_case(name)) {
                return Some(command);
            }
            slot = (slot + 1) % NAME_SLOTS;
        }
    }

    fn find_long(&self, name: &[u8]) -> Option<&Command> {
        let lower = std::str::from_utf8(name).ok()?.to_ascii_lowercase();
        self.by_name.get(&*lower).map(|&id| &self.commands[id])
    }

    /// Returns the subcommand named by the second argument, or the command itself if it has no subcommands or no
    /// argument follows.
    #[inline]
    #[must_use]
    pub fn resolve<'t>(&'t self, command: &'t Command, args: Args<'_>) -> Option<&'t Command> {
        if command.subcommands.is_empty() || args.len() < 2 {
            return Some(command);
        }
        self.subcommand(command, args.get(1))
    }

    /// Returns a container's subcommand, by name.
    #[must_use]
    pub fn subcommand(&self, container: &Command, name: &[u8]) -> Option<&Command> {
        if let Some(folded) = Folded::of(name) {
            return self.find_folded(folded.within(container.id), name);
        }
        let subs = container.subcommands.iter().map(|&id| &self.commands[id]);
        subs.into_iter().find(|s| s.info.name.as_bytes().eq_ignore_ascii_case(name))
    }

    /// Returns the command or subcommand with this full name ("config|get").
    #[must_use]
    pub fn find_full(&self, name: &[u8]) -> Option<&Command> {
        match name.iter().position(|&b| b == b'|') {
            None => self.find(name),
            Some(bar) => self.subcommand(self.find(&name[..bar])?, &name[bar + 1..]),
        }
    }
}
