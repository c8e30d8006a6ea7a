//! What a user may do: rules, compiled.

use std::collections::BTreeMap;

use super::foreign;
use super::password::PasswordDigest;
use super::patterns::{KeyPattern, Matcher};
use super::ways::Way;
use crate::command_table::Table;

/// What rules outside of parentheses say, or those within one pair of them. A command may run if any selector of its user
/// allows all of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Selector {
    /// For each command and subcommand of the table, whether it may run.
    pub(super) allowed: Box<[bool]>,
    /// True if its rules about commands begin with all of them.
    pub(super) from_all: bool,
    /// Of commands that may not run, the first arguments with which they may.
    pub(super) first_args: BTreeMap<usize, Vec<Box<[u8]>>>,
    /// The rules about commands after `+@all` or `-@all`, each with its sign.
    pub(super) command_rules: Vec<String>,
    /// True if it allows every key; then there are no patterns.
    pub(super) all_keys: bool,
    pub(super) keys: Vec<KeyPattern>,
    /// True if it allows every channel; then there are no patterns.
    pub(super) all_channels: bool,
    pub(super) channels: Vec<Matcher>,
    /// The databases that it allows, ascending; none stands for all of them.
    pub(super) databases: Option<Vec<u32>>,
    /// For each command, what is to be looked at before it runs. Compiled from the rest.
    pub(super) ways: Box<[Way]>,
}

impl Selector {
    /// One that allows nothing, but for the channels that the configuration gives.
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
            ways: vec![Way::default(); commands].into(),
        }
    }

    fn compile(&mut self, table: &Table) {
        let all_databases = self.databases.is_none();
        for command in table.all() {
            let may_run = self.allows(command);
            let way = || Way::of(command, self.all_keys, self.all_channels, all_databases);
            self.ways[command.id] = if may_run { way() } else { Way::default() };
        }
    }

    /// True if it allows everything.
    fn is_unrestricted(&self) -> bool {
        self.all_channels && self.runs_all_on_all_keys()
    }

    /// True if it allows every command on every key of every database.
    fn runs_all_on_all_keys(&self) -> bool {
        self.all_keys && self.databases.is_none() && self.allowed.iter().all(|&allowed| allowed)
    }

    /// The rules about commands, as text.
    pub(crate) fn commands_text(&self) -> String {
        let first = if self.from_all { "+@all" } else { "-@all" };
        std::iter::once(first).chain(self.command_rules.iter().map(String::as_str)).collect::<Vec<_>>().join(" ")
    }

    /// The rules about keys.
    pub(crate) fn keys_text(&self) -> Vec<u8> {
        if self.all_keys {
            return b"~*".to_vec();
        }
        self.keys.iter().map(KeyPattern::rule).collect::<Vec<_>>().join(&b' ')
    }

    /// The rules about channels.
    pub(crate) fn channels_text(&self) -> Vec<u8> {
        if self.all_channels {
            return b"&*".to_vec();
        }
        self.channels.iter().map(|channel| [b"&", channel.text()].concat()).collect::<Vec<_>>().join(&b' ')
    }

    /// The databases, as ACL GETUSER has them: nothing if none is allowed.
    pub(crate) fn databases_text(&self) -> String {
        match &self.databases {
            None => "alldbs".to_string(),
            Some(none) if none.is_empty() => String::new(),
            Some(some) => {
                format!("db={}", some.iter().map(u32::to_string).collect::<Vec<_>>().join(","))
            }
        }
    }

    /// All of its rules, as ACL LIST has them.
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

/// What a user may do. It never changes: a change of the user makes another one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Permissions {
    /// True if clients can authenticate as the user.
    pub(super) is_on: bool,
    /// True if any password will do.
    pub(super) needs_no_password: bool,
    /// What RESTORE's payloads are checked for is the same either way; only shown.
    pub(super) skips_sanitizing: bool,
    pub(super) passwords: Vec<PasswordDigest>,
    /// The first is what stands outside of parentheses.
    pub(super) selectors: Vec<Selector>,
    /// True if nothing has to be looked at for this user.
    is_unrestricted: bool,
}

impl Permissions {
    /// Those of a new user: none.
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

    /// Makes what follows from the rules. To be called after the last of them.
    pub(super) fn compile(&mut self, table: &Table) {
        self.selectors.iter_mut().for_each(|selector| selector.compile(table));
        self.is_unrestricted = self.selectors.iter().any(Selector::is_unrestricted);
    }

    /// The commands that its rules name and only other servers have.
    pub(super) fn foreign(&self, table: &Table) -> impl Iterator<Item = &str> {
        let has = |name: &str| table.all().iter().any(|command| &*command.name == name);
        let rules = self.selectors.iter().flat_map(|selector| &selector.command_rules);
        rules.map(|rule| &rule[1..]).filter(move |name| foreign::is_known(name) && !has(name))
    }

    /// True if nothing has to be looked at for this user: some selector allows everything.
    #[inline]
    pub(crate) fn is_unrestricted(&self) -> bool {
        self.is_unrestricted
    }

    /// True if some selector allows every command on every key, whatever it says of channels.
    pub(crate) fn runs_all_on_all_keys(&self) -> bool {
        self.selectors.iter().any(Selector::runs_all_on_all_keys)
    }

    /// Has this be the only password; none, if it is empty.
    pub(super) fn set_only_password(&mut self, password: &[u8]) {
        self.needs_no_password = password.is_empty();
        self.passwords.clear();
        if !password.is_empty() {
            self.passwords.push(PasswordDigest::of(password));
        }
    }

    /// True if clients can authenticate as the user.
    pub(crate) fn is_on(&self) -> bool {
        self.is_on
    }

    /// True if any password will do for one that is on: then, of the default user, a client needs none.
    pub(super) fn is_open(&self) -> bool {
        self.is_on && self.needs_no_password
    }

    /// True if any password will do.
    pub(crate) fn needs_no_password(&self) -> bool {
        self.needs_no_password
    }

    /// True if a client that gives this password may be the user.
    pub(super) fn lets_in(&self, password: &[u8]) -> bool {
        if !self.is_on || self.needs_no_password {
            return self.is_on;
        }
        let given = PasswordDigest::of(password);
        // All of them are compared, whichever fits.
        self.passwords.iter().fold(false, |found, known| known.is(&given) | found)
    }

    /// The words for what isn't about commands, keys, channels and databases, in Redis's order.
    pub(crate) fn flags(&self) -> Vec<&'static str> {
        let mut flags = vec![if self.is_on { "on" } else { "off" }];
        flags.extend(self.needs_no_password.then_some("nopass"));
        flags.push(if self.skips_sanitizing { "skip-sanitize-payload" } else { "sanitize-payload" });
        flags
    }

    /// The digests of the passwords.
    pub(crate) fn passwords(&self) -> impl ExactSizeIterator<Item = &str> {
        self.passwords.iter().map(PasswordDigest::text)
    }

    /// What stands outside of parentheses, and what within each pair.
    pub(crate) fn selectors(&self) -> (&Selector, &[Selector]) {
        // There is always a first one.
        (&self.selectors[0], &self.selectors[1..])
    }

    /// All rules, as ACL LIST has them, without the name.
    pub(crate) fn rules(&self) -> Vec<u8> {
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

    /// True if any selector allows every channel.
    pub(super) fn has_all_channels(&self) -> bool {
        self.selectors.iter().any(|selector| selector.all_channels)
    }

    /// The channels of all selectors.
    pub(super) fn channels(&self) -> impl Iterator<Item = &Matcher> {
        self.selectors.iter().flat_map(|selector| &selector.channels)
    }

    /// True if everything that `before` could subscribe to is allowed still, as far as Redis looks: every channel, or the
    /// same patterns and perhaps more.
    pub(crate) fn keeps_channels_of(&self, before: &Permissions) -> bool {
        let has = |channel: &Matcher| self.channels().any(|own| own == channel);
        self.has_all_channels() || (!before.has_all_channels() && before.channels().all(has))
    }

    /// True if a channel may be subscribed to, or a pattern, which must be one of the rules' own.
    pub(crate) fn allows_channel(&self, name: &[u8], is_pattern: bool) -> bool {
        self.has_all_channels()
            || self.channels().any(|own| if is_pattern { own.text() == name } else { own.matches(name) })
    }
}
