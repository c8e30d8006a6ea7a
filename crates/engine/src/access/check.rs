//! Whether a command may run for a user.

use commands::spec::{Info, fact, flag};
use resp::num;
use resp::request::Args;

use super::patterns::{KeyPattern, Matcher, READ};
use super::permissions::{Permissions, Selector};
use super::ways::{permission, touches_database, visit_channels, visit_keys};
use crate::command_table::Command;

/// What is denied. Of what several selectors deny, the greatest is told: it was the nearest to being allowed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Denied {
    /// A database.
    Database,
    /// The command.
    Command,
    /// A key.
    Key,
    /// A channel.
    Channel,
}

/// What a command is denied, and at which of its arguments.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Denial {
    pub what: Denied,
    /// The argument that is denied; 0 if it is the command, or the selected database.
    pub at: usize,
}

impl Denial {
    /// What the client is told, without the code, as Redis 7.2 words it; for databases, as Valkey 9.1.
    pub(crate) fn text(self, user: &str, command: &Command) -> String {
        match self.what {
            Denied::Command => format!("User {user} has no permissions to run the '{}' command", command.name),
            Denied::Key => "No permissions to access a key".to_string(),
            Denied::Channel => "No permissions to access a channel".to_string(),
            Denied::Database => "No permissions to access database".to_string(),
        }
    }

    /// What ACL DRYRUN answers, which names what is denied.
    pub(crate) fn long_text(self, user: &str, command: &Command, args: Args<'_>) -> Vec<u8> {
        let about = |before: &str, after: &str| {
            [
                format!("User {user} has no permissions to access {before}").as_bytes(),
                args.get(self.at),
                after.as_bytes(),
            ]
            .concat()
        };
        match self.what {
            Denied::Command => self.text(user, command).into_bytes(),
            Denied::Key => about("the '", "' key"),
            Denied::Channel => about("the '", "' channel"),
            Denied::Database => about("database ", ""),
        }
    }
}

/// A command that asks whether it may run.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub command: &'a Command,
    pub args: Args<'a>,
    /// The selected database.
    pub database: usize,
    /// How many databases there are.
    pub databases: usize,
}

impl Permissions {
    /// Begins to hold commands against the rules.
    #[inline]
    pub(crate) fn sieve(&self, database: usize) -> Sieve<'_> {
        let selectors = &self.selectors;
        Sieve { passage: Passage::Open, selectors, database, command: None, selector: &selectors[0], pattern: 0 }
    }

    /// Whether a command may run.
    ///
    /// # Errors
    /// What it is denied.
    pub(crate) fn check(&self, asked: Asked<'_>) -> Result<(), Denial> {
        let mut worst: Option<Denial> = None;
        for selector in &self.selectors {
            match selector.check(asked) {
                Ok(()) => return Ok(()),
                Err(denial) => worst = worst.max(Some(denial)),
            }
        }
        worst.map_or(Ok(()), Err)
    }

    /// True if a command may run and read every key, as one needs that looks up keys which its arguments don't name.
    pub(crate) fn allows_lookups(&self, asked: Asked<'_>) -> bool {
        let may = |selector: &Selector| selector.check(asked).is_ok() && selector.may_read_all();
        self.selectors.iter().any(may)
    }
}

/// What the present command needs to pass.
#[derive(Clone, Copy)]
enum Passage<'p> {
    /// Nothing more.
    Open,
    /// That its only key matches this pattern.
    Key(&'p Matcher),
    /// A longer look.
    Closed,
}

/// Lets commands pass that may run for sure, one after another: what is looked up for one often holds for the next.
pub(crate) struct Sieve<'p> {
    passage: Passage<'p>,
    selectors: &'p [Selector],
    database: usize,
    /// The present command.
    command: Option<&'static Command>,
    /// The selector that let a command pass last; at first, what stands outside of parentheses.
    selector: &'p Selector,
    /// The pattern of that selector that matched last.
    pattern: usize,
}

impl<'p> Sieve<'p> {
    /// Turns to another command. None, and one that can't run anyway, needs no look.
    #[inline]
    pub(crate) fn turn_to(&mut self, command: Option<&'static Command>) {
        self.command = command;
        self.passage = command.map_or(Passage::Open, |command| self.passage_of(command));
    }

    /// True if the present command may run for sure, with its only key, if it has one. Otherwise
    /// [`Sieve::passes_otherwise`] and then [`Permissions::check`] tell.
    #[inline(always)]
    pub(crate) fn passes(&self, key: &[u8]) -> bool {
        match self.passage {
            Passage::Open => true,
            Passage::Key(matcher) => matcher.matches(key),
            Passage::Closed => false,
        }
    }

    /// Looks whether another pattern or another selector lets the present command pass, which the next commands are held
    /// against first then.
    pub(crate) fn passes_otherwise(&mut self, key: &[u8]) -> bool {
        let Some(command) = self.command else { return true };
        let before = (self.selector, self.pattern, self.passage);
        if self.turn_to_pattern(command, key) {
            return true;
        }
        for selector in self.selectors.iter().filter(|selector| !std::ptr::eq(*selector, before.0)) {
            (self.selector, self.pattern) = (selector, 0);
            self.passage = self.passage_of(command);
            if self.passes(key) || self.turn_to_pattern(command, key) {
                return true;
            }
        }
        (self.selector, self.pattern, self.passage) = before;
        false
    }

    /// The same, within the present selector.
    fn turn_to_pattern(&mut self, command: &'static Command, key: &[u8]) -> bool {
        let Passage::Key(_) = self.passage else { return false };
        let need = self.selector.ways[command.id].need();
        let found = self.selector.keys.iter().position(|pattern| pattern.allows(need) && pattern.matcher.matches(key));
        if let Some(found) = found {
            self.pattern = found;
            self.passage = Passage::Key(&self.selector.keys[found].matcher);
        }
        found.is_some()
    }

    /// What a command needs by the present selector.
    fn passage_of(&self, command: &'static Command) -> Passage<'p> {
        let (selector, way) = (self.selector, self.selector.ways[command.id]);
        let in_database = selector.allows_database(self.database as u64);
        if way.is_sure(in_database) {
            return Passage::Open;
        }
        if !way.may_run(in_database) {
            return Passage::Closed;
        }
        let need = way.need();
        let last = selector.keys.get(self.pattern).filter(|pattern| pattern.allows(need));
        let first = || selector.keys.iter().find(|pattern| pattern.allows(need));
        last.or_else(first).map_or(Passage::Closed, |pattern| Passage::Key(&pattern.matcher))
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

    /// True if the command may run with any arguments, but for what else is to be looked at.
    pub(super) fn allows(&self, command: &Command) -> bool {
        command.info.has(flag::NO_AUTH) || self.allowed[command.id]
    }

    /// The checks are in Valkey's order, since their errors show it; without databases, in Redis's.
    fn check(&self, asked: Asked<'_>) -> Result<(), Denial> {
        let Asked { command, args, .. } = asked;
        self.check_databases(asked)?;
        if !self.allows(command) && !self.allows_first_arg(command.id, args) {
            return Err(Denial { what: Denied::Command, at: 0 });
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
        // What names no database is refused by the handler, and says nothing of the others.
        denied = denied.filter(|_| are_known);
        let is_selected_denied = touches_database(info) && !self.allows_database(database as u64);
        if is_selected_denied || info.is(fact::ALL_DATABASES) {
            denied = denied.or(Some(0));
        }
        denied.map_or(Ok(()), |at| Err(Denial { what: Denied::Database, at }))
    }

    fn check_keys(&self, info: &'static Info, args: Args<'_>) -> Result<(), Denial> {
        let mut denied = None;
        if !self.all_keys {
            visit_keys(info, args, |at, flags| {
                if denied.is_none() && !self.allows_key(args.get(at), permission(flags)) {
                    denied = Some(Denial { what: Denied::Key, at });
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
                // A pattern must be one of the rules' own: whether one is within another can't be told simply.
                let fits =
                    self.channels.iter().any(|own| if is_pattern { own.text() == name } else { own.matches(name) });
                if !fits {
                    denied = Some(Denial { what: Denied::Channel, at });
                }
                fits
            });
        }
        denied.map_or(Ok(()), Err)
    }
}
