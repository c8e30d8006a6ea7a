//! The compiled rules of a user.

use std::collections::BTreeMap;

use super::password::PasswordDigest;
use super::patterns::{KeyPattern, Matcher};
use super::requirements::Requirement;
use super::unknown_commands;
use commands::table::Table;

/// The rules outside of parentheses, or within one pair of them. A command may run if one selector of its user allows
/// all of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Selector {
    /// For each command and subcommand of the table, true if it may run.
    pub(super) allowed: Box<[bool]>,
    /// True if its command rules start from `+@all`.
    pub(super) from_all: bool,
    /// First arguments with which otherwise forbidden commands may run.
    pub(super) first_args: BTreeMap<usize, Vec<Box<[u8]>>>,
    /// The command rules after `+@all` or `-@all`, each with its sign.
    pub(super) command_rules: Vec<String>,
    /// True if it allows every key; `keys` is empty then.
    pub(super) all_keys: bool,
    pub(super) keys: Vec<KeyPattern>,
    /// True if it allows every channel; `channels` is empty then.
    pub(super) all_channels: bool,
    pub(super) channels: Vec<Matcher>,
    /// The allowed databases, ascending; `None` allows all of them.
    pub(super) databases: Option<Vec<u32>>,
    /// The checks before each command runs, compiled from the other fields.
    pub(super) requirements: Box<[Requirement]>,
    /// True if the checks are those of the other fields.
    pub(super) is_compiled: bool,
}

impl Selector {
    /// Creates a selector that allows nothing except the configured channels.
    pub(super) fn new(table: &Table, all_channels: bool) -> Selector {
        let commands = table.all().len();
        Selector {
            allowed: vec![false; commands].into(),
            from_all: false,
            first_args: BTreeMap::new(),
            command_rules: Vec::new(),
            all_keys: false,
            keys: Vec::new(),
            all_channels,
            channels: Vec::new(),
            databases: None,
            requirements: vec![Requirement::default(); commands].into(),
            is_compiled: false,
        }
    }

    fn compile(&mut self, table: &Table) {
        // Changes of passwords are the usual ones, and concern no command.
        if std::mem::replace(&mut self.is_compiled, true) {
            return;
        }
        let all_databases = self.databases.is_none();
        for command in table.all() {
            let may_run = self.allows(command);
            let requirement = || Requirement::of(command, self.all_keys, self.all_channels, all_databases);
            self.requirements[command.id] = if may_run { requirement() } else { Requirement::default() };
        }
    }

    /// Returns true if it allows everything.
    fn is_unrestricted(&self) -> bool {
        self.all_channels && self.runs_all_on_all_keys()
    }

    /// Returns true if it allows every command on every key of every database.
    fn runs_all_on_all_keys(&self) -> bool {
        self.all_keys && self.databases.is_none() && self.allowed.iter().all(|&allowed| allowed)
    }

    /// Returns the command rules as text.
    pub fn commands_text(&self) -> String {
        let first = if self.from_all { "+@all" } else { "-@all" };
        std::iter::once(first).chain(self.command_rules.iter().map(String::as_str)).collect::<Vec<_>>().join(" ")
    }

    /// Returns the key rules as text.
    pub fn keys_text(&self) -> Vec<u8> {
        if self.all_keys {
            return b"~*".to_vec();
        }
        self.keys.iter().map(KeyPattern::rule).collect::<Vec<_>>().join(&b' ')
    }

    /// Returns the channel rules as text.
    pub fn channels_text(&self) -> Vec<u8> {
        if self.all_channels {
            return b"&*".to_vec();
        }
        self.channels.iter().map(|channel| [b"&", channel.text()].concat()).collect::<Vec<_>>().join(&b' ')
    }

    /// Returns the databases as in ACL GETUSER: empty if it allows no database.
    pub fn databases_text(&self) -> String {
        match &self.databases {
            None => "alldbs".to_string(),
            Some(none) if none.is_empty() => String::new(),
            Some(some) => {
                format!("db={}", some.iter().map(u32::to_string).collect::<Vec<_>>().join(","))
            }
        }
    }

    /// Returns all of its rules, as in ACL LIST.
    fn rules(&self) -> Vec<u8> {
        let mut text = self.keys_text();
        let mut add = |part: &[u8]| {
            if !part.is_empty() {
                if !text.is_empty() {
                    text.push(b' ');
                }
                text.extend_from_slice(part);
            }
        };
        if !self.all_channels {
            add(b"resetchannels");
        }
        add(&self.channels_text());
        match &self.databases {
            None => {}
            Some(none) if none.is_empty() => add(b"resetdbs"),
            Some(_) => add(self.databases_text().as_bytes()),
        }
        add(self.commands_text().as_bytes());
        text
    }
}

/// The permissions of a user. They are immutable: a change of the user creates a new value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Permissions {
    /// True if clients can authenticate as the user.
    pub(super) is_on: bool,
    /// True if the user accepts any password.
    pub(super) needs_no_password: bool,
    /// Only displayed: RESTORE checks its payloads in any case.
    pub(super) skips_sanitizing: bool,
    pub(super) passwords: Vec<PasswordDigest>,
    /// The first selector holds the rules outside of parentheses.
    pub(super) selectors: Vec<Selector>,
    /// True if no command of this user needs a check.
    is_unrestricted: bool,
}

impl Permissions {
    /// Creates the permissions of a new user, which allow nothing.
    pub(super) fn new(table: &Table, all_channels: bool) -> Permissions {
        Permissions {
            is_on: false,
            needs_no_password: false,
            skips_sanitizing: false,
            passwords: Vec::new(),
            selectors: vec![Selector::new(table, all_channels)],
            is_unrestricted: false,
        }
    }

    /// Compiles the rules. Must be called after the last change of them.
    pub(super) fn compile(&mut self, table: &Table) {
        self.selectors.iter_mut().for_each(|selector| selector.compile(table));
        self.is_unrestricted = self.selectors.iter().any(Selector::is_unrestricted);
    }

    /// Returns the commands in its rules that only other servers have.
    pub(super) fn unknown_commands(&self, table: &Table) -> impl Iterator<Item = &str> {
        let has = |name: &str| table.all().iter().any(|command| &*command.name == name);
        let rules = self.selectors.iter().flat_map(|selector| &selector.command_rules);
        rules.map(|rule| &rule[1..]).filter(move |name| unknown_commands::is_known(name) && !has(name))
    }

    /// Returns true if no command of this user needs a check because a selector allows everything.
    #[inline]
    pub fn is_unrestricted(&self) -> bool {
        self.is_unrestricted
    }

    /// Returns true if a selector allows every command on every key; its channels don't matter.
    pub fn runs_all_on_all_keys(&self) -> bool {
        self.selectors.iter().any(Selector::runs_all_on_all_keys)
    }

    /// Replaces all passwords by this one; an empty password removes them.
    pub(super) fn set_only_password(&mut self, password: &[u8]) {
        self.needs_no_password = password.is_empty();
        self.passwords.clear();
        if !password.is_empty() {
            self.passwords.push(PasswordDigest::of(password));
        }
    }

    /// Returns true if clients can authenticate as the user.
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// Returns true if the user is on and accepts any password. Clients of the default user need no password then.
    pub(super) fn is_open(&self) -> bool {
        self.is_on && self.needs_no_password
    }

    /// Returns true if the user accepts any password.
    pub fn needs_no_password(&self) -> bool {
        self.needs_no_password
    }

    /// Returns true if a client with this password may become the user.
    pub(super) fn lets_in(&self, password: &[u8]) -> bool {
        if !self.is_on || self.needs_no_password {
            return self.is_on;
        }
        let given = PasswordDigest::of(password);
        // All digests are compared, to keep the time constant.
        self.passwords.iter().fold(false, |found, known| known.is(&given) | found)
    }

    /// Returns the flags outside of commands, keys, channels and databases, in Redis's order.
    pub fn flags(&self) -> Vec<&'static str> {
        let mut flags = vec![if self.is_on { "on" } else { "off" }];
        flags.extend(self.needs_no_password.then_some("nopass"));
        flags.push(if self.skips_sanitizing { "skip-sanitize-payload" } else { "sanitize-payload" });
        flags
    }

    /// Returns the digests of the passwords.
    pub fn passwords(&self) -> impl ExactSizeIterator<Item = &str> {
        self.passwords.iter().map(PasswordDigest::text)
    }

    /// Returns the selector outside of parentheses, and the ones within parentheses.
    pub fn selectors(&self) -> (&Selector, &[Selector]) {
        // The first selector always exists.
        (&self.selectors[0], &self.selectors[1..])
    }

    /// Returns all rules, as in ACL LIST, without the name.
    pub fn rules(&self) -> Vec<u8> {
        let mut text = self.flags().join(" ").into_bytes();
        for password in self.passwords() {
            text.extend_from_slice(format!(" #{password}").as_bytes());
        }
        for (index, selector) in self.selectors.iter().enumerate() {
            text.extend_from_slice(if index == 0 { b" " } else { b" (" });
            text.extend_from_slice(&selector.rules());
            text.extend_from_slice(if index == 0 { b"" } else { b")" });
        }
        text
    }

    /// Returns true if a selector allows every channel.
    pub(super) fn has_all_channels(&self) -> bool {
        self.selectors.iter().any(|selector| selector.all_channels)
    }

    /// Returns the channels of all selectors.
    pub(super) fn channels(&self) -> impl Iterator<Item = &Matcher> {
        self.selectors.iter().flat_map(|selector| &selector.channels)
    }

    /// Returns true if all subscriptions that `before` allowed are still allowed. The test is Redis's: every channel,
    /// or a superset of the same patterns.
    pub fn keeps_channels_of(&self, before: &Permissions) -> bool {
        let has = |channel: &Matcher| self.channels().any(|own| own == channel);
        self.has_all_channels() || (!before.has_all_channels() && before.channels().all(has))
    }

    /// Returns true if the user may subscribe to a channel or a pattern. A pattern must be equal to one of the rules.
    pub fn allows_channel(&self, name: &[u8], is_pattern: bool) -> bool {
        self.has_all_channels()
            || self.channels().any(|own| if is_pattern { own.text() == name } else { own.matches(name) })
    }
}
