//! Checks if a user may run a command.

use commands::spec::{Info, fact, flag};
use resp::num;
use resp::request::Args;

use super::patterns::{KeyPattern, Matcher, READ};
use super::permissions::{Permissions, Selector};
use super::requirements::{permission, touches_database, visit_channels, visit_keys};
use commands::table::Command;

/// The kind of a denial. If several selectors deny a command, the greatest kind is reported, because that selector came
/// closest to allowing it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Denied {
    /// A database.
    Database,
    /// The command.
    Command,
    /// A key.
    Key,
    /// A channel.
    Channel,
}

/// A denial, with the argument that caused it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Denial {
    /// The kind of the denied object.
    pub object: Denied,
    /// The denied argument; 0 for the command or the selected database.
    pub at: usize,
}

impl Denial {
    /// Returns the error text without the code, in the words of Redis 7.2, or of Valkey 9.1 for databases.
    pub fn text(self, user: &str, command: &Command) -> String {
        match self.object {
            Denied::Command => format!("User {user} has no permissions to run the '{}' command", command.name),
            Denied::Key => "No permissions to access a key".to_string(),
            Denied::Channel => "No permissions to access a channel".to_string(),
            Denied::Database => "No permissions to access database".to_string(),
        }
    }

    /// Returns the reply of ACL DRYRUN, which names the denied object.
    pub fn long_text(self, user: &str, command: &Command, args: Args<'_>) -> Vec<u8> {
        let about = |before: &str, after: &str| {
            [
                format!("User {user} has no permissions to access {before}").as_bytes(),
                args.get(self.at),
                after.as_bytes(),
            ]
            .concat()
        };
        match self.object {
            Denied::Command => self.text(user, command).into_bytes(),
            Denied::Key => about("the '", "' key"),
            Denied::Channel => about("the '", "' channel"),
            Denied::Database => about("database ", ""),
        }
    }
}

/// A command to be checked.
#[derive(Clone, Copy)]
pub struct Asked<'a> {
    /// The command.
    pub command: &'a Command,
    /// Its arguments, with its name.
    pub args: Args<'a>,
    /// The selected database.
    pub database: usize,
    /// The number of databases.
    pub databases: usize,
}

impl Permissions {
    /// Starts to check commands.
    #[inline]
    pub fn acl_check(&self, database: usize) -> BatchAclCheck<'_> {
        let selectors = &self.selectors;
        BatchAclCheck {
            requirement: KeyRequirement::Open,
            selectors,
            database,
            command: None,
            selector: &selectors[0],
            pattern: 0,
        }
    }

    /// Checks a command.
    ///
    /// # Errors
    /// The denial.
    pub fn check(&self, asked: Asked<'_>) -> Result<(), Denial> {
        let mut worst: Option<Denial> = None;
        for selector in &self.selectors {
            match selector.check(asked) {
                Ok(()) => return Ok(()),
                Err(denial) => worst = worst.max(Some(denial)),
            }
        }
        worst.map_or(Ok(()), Err)
    }

    /// Returns true if a command may run and read every key. Commands that look up keys outside of their arguments need
    /// this.
    pub fn allows_lookups(&self, asked: Asked<'_>) -> bool {
        let may = |selector: &Selector| selector.check(asked).is_ok() && selector.may_read_all();
        self.selectors.iter().any(may)
    }
}

/// The part of the check that remains for the present command.
#[derive(Clone, Copy)]
enum KeyRequirement<'p> {
    /// No more checks.
    Open,
    /// Its only key must match this pattern.
    Key(&'p Matcher),
    /// The full check.
    Closed,
}

/// A fast check of consecutive commands. It passes only commands that are certainly allowed, and keeps the result of a
/// lookup because the next command often has the same.
pub struct BatchAclCheck<'p> {
    requirement: KeyRequirement<'p>,
    selectors: &'p [Selector],
    database: usize,
    /// The present command.
    command: Option<&'static Command>,
    /// The selector that allowed the last command; at first, the rules outside of parentheses.
    selector: &'p Selector,
    /// Index of the pattern of that selector that matched last.
    pattern: usize,
}

impl<'p> BatchAclCheck<'p> {
    /// Sets the present command. A command that can't run anyway (`None`) needs no check.
    #[inline]
    pub fn turn_to(&mut self, command: Option<&'static Command>) {
        self.command = command;
        self.requirement = command.map_or(KeyRequirement::Open, |command| self.requirement_of(command));
    }

    /// Returns true if the present command, with its only key if it has one, may certainly run. Otherwise call
    /// [`BatchAclCheck::passes_otherwise`] and then [`Permissions::check`].
    #[inline(always)]
    pub fn passes(&self, key: &[u8]) -> bool {
        match self.requirement {
            KeyRequirement::Open => true,
            KeyRequirement::Key(matcher) => matcher.matches(key),
            KeyRequirement::Closed => false,
        }
    }

    /// Searches for another pattern or selector that allows the present command, and starts with it at the next
    /// commands.
    pub fn passes_otherwise(&mut self, key: &[u8]) -> bool {
        let Some(command) = self.command else { return true };
        let before = (self.selector, self.pattern, self.requirement);
        if self.turn_to_pattern(command, key) {
            return true;
        }
        for selector in self.selectors.iter().filter(|selector| !std::ptr::eq(*selector, before.0)) {
            (self.selector, self.pattern) = (selector, 0);
            self.requirement = self.requirement_of(command);
            if self.passes(key) || self.turn_to_pattern(command, key) {
                return true;
            }
        }
        (self.selector, self.pattern, self.requirement) = before;
        false
    }

    /// Searches for another pattern within the present selector.
    fn turn_to_pattern(&mut self, command: &'static Command, key: &[u8]) -> bool {
        let KeyRequirement::Key(_) = self.requirement else { return false };
        let need = self.selector.requirements[command.id].need();
        let found = self.selector.keys.iter().position(|pattern| pattern.allows(need) && pattern.matcher.matches(key));
        if let Some(found) = found {
            self.pattern = found;
            self.requirement = KeyRequirement::Key(&self.selector.keys[found].matcher);
        }
        found.is_some()
    }

    /// Returns the part of the check that remains under the present selector.
    fn requirement_of(&self, command: &'static Command) -> KeyRequirement<'p> {
        let (selector, requirement) = (self.selector, self.selector.requirements[command.id]);
        let in_database = selector.allows_database(self.database as u64);
        if requirement.is_sure(in_database) {
            return KeyRequirement::Open;
        }
        if !requirement.may_run(in_database) {
            return KeyRequirement::Closed;
        }
        let need = requirement.need();
        let last = selector.keys.get(self.pattern).filter(|pattern| pattern.allows(need));
        let first = || selector.keys.iter().find(|pattern| pattern.allows(need));
        last.or_else(first).map_or(KeyRequirement::Closed, |pattern| KeyRequirement::Key(&pattern.matcher))
    }
}

impl Selector {
    fn may_read_all(&self) -> bool {
        let is_read_by_all = |pattern: &KeyPattern| pattern.permission & READ != 0 && pattern.matcher.is_any();
        self.all_keys || self.keys.iter().any(is_read_by_all)
    }

    #[inline]
    fn allows_key(&self, key: &[u8], need: u8) -> bool {
        self.all_keys || self.keys.iter().any(|own| own.allows(need) && own.matcher.matches(key))
    }

    #[inline]
    fn allows_database(&self, database: u64) -> bool {
        self.databases.as_ref().is_none_or(|some| u32::try_from(database).is_ok_and(|one| some.contains(&one)))
    }

    /// Returns true if the command may run with any arguments, subject to the other checks.
    pub(super) fn allows(&self, command: &Command) -> bool {
        command.info.has(flag::NO_AUTH) || self.allowed[command.id]
    }

    /// Checks in Valkey's order, because the order shows in the errors; without databases, it is Redis's.
    fn check(&self, asked: Asked<'_>) -> Result<(), Denial> {
        let Asked { command, args, .. } = asked;
        self.check_databases(asked)?;
        if !self.allows(command) && !self.allows_first_arg(command.id, args) {
            return Err(Denial { object: Denied::Command, at: 0 });
        }
        self.check_keys(command.info, args)?;
        self.check_channels(command.info, args)
    }

    fn allows_first_arg(&self, command: usize, args: Args<'_>) -> bool {
        let is_given = |wanted: &[u8]| args.len() > 1 && args.get(1).eq_ignore_ascii_case(wanted);
        self.first_args.get(&command).is_some_and(|allowed| allowed.iter().any(|wanted| is_given(wanted)))
    }

    fn check_databases(&self, asked: Asked<'_>) -> Result<(), Denial> {
        let Asked { command, args, database, databases } = asked;
        if self.databases.is_none() {
            return Ok(());
        }
        let info = command.info;
        let (mut denied, mut are_known) = (None, true);
        if let Some(visit) = info.databases {
            visit(args, &mut |at| {
                let named = num::parse_i64(args.get(at)).and_then(|index| u64::try_from(index).ok());
                match named.filter(|&index| index < databases as u64) {
                    Some(index) if !self.allows_database(index) => denied = denied.or(Some(at)),
                    Some(_) => {}
                    None => are_known = false,
                }
            });
        }
        // The handler refuses an argument that names no database, so the other arguments don't matter.
        denied = denied.filter(|_| are_known);
        let is_selected_denied = touches_database(info) && !self.allows_database(database as u64);
        if is_selected_denied || info.is(fact::ALL_DATABASES) {
            denied = denied.or(Some(0));
        }
        denied.map_or(Ok(()), |at| Err(Denial { object: Denied::Database, at }))
    }

    fn check_keys(&self, info: &'static Info, args: Args<'_>) -> Result<(), Denial> {
        let mut denied = None;
        if !self.all_keys {
            visit_keys(info, args, |at, flags| {
                if denied.is_none() && !self.allows_key(args.get(at), permission(flags)) {
                    denied = Some(Denial { object: Denied::Key, at });
                }
            });
        }
        denied.map_or(Ok(()), Err)
    }

    fn check_channels(&self, info: &Info, args: Args<'_>) -> Result<(), Denial> {
        let mut denied = None;
        if !self.all_channels {
            let is_pattern = info.is(fact::SUBSCRIBES_TO_PATTERNS);
            visit_channels(info, args, |at| {
                let name = args.get(at);
                // A pattern must be equal to one of the rules: inclusion of patterns has no simple test.
                let fits =
                    self.channels.iter().any(|own| if is_pattern { own.text() == name } else { own.matches(name) });
                if !fits {
                    denied = Some(Denial { object: Denied::Channel, at });
                }
                fits
            });
        }
        denied.map_or(Ok(()), Err)
    }
}
