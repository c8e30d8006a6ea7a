//! Rules as text, in ACL SETUSER, in a file of users, and in `user` lines of the configuration.

use commands::spec::acl;
use resp::splitargs::split_args;

use super::password::PasswordDigest;
use super::patterns::{ALL, KeyPattern, Matcher, READ, WRITE};
use super::permissions::{Permissions, Selector};
use super::unknown_commands;
use commands::table::{Command, Table};

/// The error of a rule. The texts are Redis's; the one about databases is Valkey's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BadRule {
    Syntax,
    Unknown,
    AfterAllKeys,
    AfterAllChannels,
    NoSuchPassword,
    BadDigest,
    FirstArgOfSubcommand,
    DatabaseOutOfRange,
}

impl BadRule {
    pub(super) fn text(self) -> &'static str {
        match self {
            BadRule::Syntax => "Syntax error",
            BadRule::Unknown => "Unknown command or category name in ACL",
            BadRule::AfterAllKeys => {
                "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have any \
                 effect. Try 'resetkeys' to start with an empty list of patterns"
            }
            BadRule::AfterAllChannels => {
                "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does not have any \
                 effect. Try 'resetchannels' to start with an empty list of channels"
            }
            BadRule::NoSuchPassword => "The password you are trying to remove from the user does not exist",
            BadRule::BadDigest => {
                "The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters"
            }
            BadRule::FirstArgOfSubcommand => "Allowing first-arg of a subcommand is not supported",
            BadRule::DatabaseOutOfRange => "The provided database ID is out of range",
        }
    }
}

/// Returns true if a name or pattern has white space or a zero byte. Saved rules with these bytes could not be read
/// again.
pub fn has_spaces(text: &[u8]) -> bool {
    // Like C's isspace, including the vertical tab.
    text.iter().any(|byte| matches!(byte, b' ' | b'\t'..=b'\r' | 0))
}

/// The context that rules depend on.
#[derive(Clone, Copy)]
pub(super) struct RuleReader<'t> {
    pub table: &'t Table,
    /// True if new users and selectors may use all channels (acl-pubsub-default).
    pub all_channels: bool,
}

impl<'t> RuleReader<'t> {
    /// Returns the permissions of a new user.
    pub(super) fn new_user(self) -> Permissions {
        Permissions::new(self.table, self.all_channels)
    }

    /// Returns the initial permissions of the default user.
    pub(super) fn default_user(self) -> Permissions {
        let mut permissions = self.new_user();
        for rule in [&b"+@all"[..], b"~*", b"&*", b"on", b"nopass"] {
            let taken = self.apply(&mut permissions, rule);
            debug_assert_eq!(taken, Ok(()));
        }
        permissions.compile(self.table);
        permissions
    }

    /// Applies all rules to a user, or none.
    ///
    /// # Errors
    /// The first error, in the words of ACL SETUSER.
    pub(super) fn set(self, before: Permissions, rules: &[&[u8]]) -> Result<Permissions, Vec<u8>> {
        let mut permissions = before;
        let merged = merge_selectors(rules)
            .map_err(|rule| [b"Unmatched parenthesis in acl selector starting at '", rule, b"'."].concat())?;
        for rule in &merged {
            self.apply(&mut permissions, rule).map_err(|error| {
                [b"Error in ACL SETUSER modifier '", rule.as_slice(), b"': ", error.text().as_bytes()].concat()
            })?;
        }
        permissions.compile(self.table);
        Ok(permissions)
    }

    /// Applies one rule.
    pub(super) fn apply(self, user: &mut Permissions, rule: &[u8]) -> Result<(), BadRule> {
        match (rule.to_ascii_lowercase().as_slice(), rule) {
            (b"", _) => {}
            (b"on", _) => user.is_on = true,
            (b"off", _) => user.is_on = false,
            (b"skip-sanitize-payload", _) => user.skips_sanitizing = true,
            (b"sanitize-payload", _) => user.skips_sanitizing = false,
            (b"nopass", _) => {
                user.needs_no_password = true;
                user.passwords.clear();
            }
            (b"resetpass", _) => {
                user.needs_no_password = false;
                user.passwords.clear();
            }
            (b"clearselectors", _) => user.selectors.truncate(1),
            (b"reset", _) => *user = self.new_user(),
            (_, [b'>' | b'#', ..]) => {
                let digest = digest_of(rule)?;
                if !user.passwords.contains(&digest) {
                    user.passwords.push(digest);
                }
                user.needs_no_password = false;
            }
            (_, [b'<' | b'!', ..]) => {
                let digest = digest_of(rule)?;
                let at = user.passwords.iter().position(|known| *known == digest).ok_or(BadRule::NoSuchPassword)?;
                user.passwords.remove(at);
            }
            (_, [b'(', inner @ .., b')']) => {
                let mut selector = Selector::new(self.table, self.all_channels);
                for rule in split_args(inner).unwrap_or_default() {
                    self.select(&mut selector, &rule)?;
                }
                user.selectors.push(selector);
            }
            _ => self.select(&mut user.selectors[0], rule)?,
        }
        Ok(())
    }

    /// Applies one rule about commands, keys, channels or databases.
    fn select(self, selector: &mut Selector, rule: &[u8]) -> Result<(), BadRule> {
        selector.is_compiled = false;
        match (rule.to_ascii_lowercase().as_slice(), rule) {
            (b"allkeys" | b"~*", _) => (selector.all_keys, selector.keys) = (true, Vec::new()),
            (b"resetkeys", _) => (selector.all_keys, selector.keys) = (false, Vec::new()),
            (b"allchannels" | b"&*", _) => (selector.all_channels, selector.channels) = (true, Vec::new()),
            (b"resetchannels", _) => (selector.all_channels, selector.channels) = (false, Vec::new()),
            (b"alldbs", _) => selector.databases = None,
            (b"resetdbs", _) => selector.databases = Some(Vec::new()),
            ([b'd', b'b', b'=', list @ ..], _) => selector.databases = Some(parse_databases(list)?),
            (b"allcommands" | b"+@all", _) => selector.allow_all(true),
            (b"nocommands" | b"-@all", _) => selector.allow_all(false),
            (_, [b'~' | b'%', ..]) => selector.add_keys(rule)?,
            (_, [b'&', name @ ..]) => selector.add_channels(name)?,
            (lower, [sign @ (b'+' | b'-'), b'@', ..]) => self.select_category(selector, &lower[1..], *sign == b'+')?,
            (lower, [b'+', ..]) => match self.allow(selector, &lower[1..], &rule[1..]) {
                Err(BadRule::Unknown) => selector.note_foreign(&lower[1..], true)?,
                taken => taken?,
            },
            (lower, [b'-', ..]) => match self.find(&lower[1..]) {
                Some(command) => {
                    selector.change(self.table, command, false);
                    selector.note(&command.name, false);
                }
                None => selector.note_foreign(&lower[1..], false)?,
            },
            _ => return Err(BadRule::Syntax),
        }
        Ok(())
    }

    /// Returns the command with this original name; renames don't matter.
    fn find(self, name: &[u8]) -> Option<&'t Command> {
        self.table.all().iter().find(|command| command.name.as_bytes() == name)
    }

    fn select_category(self, selector: &mut Selector, category: &[u8], allow: bool) -> Result<(), BadRule> {
        let named = acl::NAMES.iter().find(|(_, name)| name.as_bytes() == category);
        let &(bit, name) = named.ok_or(BadRule::Unknown)?;
        selector.note(name, allow);
        for command in self.table.all().iter().filter(|command| command.info.all_categories() & bit != 0) {
            selector.change(self.table, command, allow);
        }
        Ok(())
    }

    /// Allows a command, a subcommand, or a command with one first argument. `rule` has no sign, and `lower` is its
    /// lowercase form.
    fn allow(self, selector: &mut Selector, lower: &[u8], rule: &[u8]) -> Result<(), BadRule> {
        let Some(bar) = lower.iter().rposition(|&byte| byte == b'|') else {
            let command = self.find(lower).ok_or(BadRule::Unknown)?;
            selector.change(self.table, command, true);
            selector.note(&command.name, true);
            return Ok(());
        };
        let command = self.find(&lower[..bar]).ok_or(BadRule::Unknown)?;
        let first_arg = &rule[bar + 1..];
        if command.parent.is_some() {
            return Err(BadRule::FirstArgOfSubcommand);
        }
        if first_arg.is_empty() {
            return Err(BadRule::Syntax);
        }
        if command.subcommands.is_empty() {
            let allowed = selector.first_args.entry(command.id).or_default();
            if !allowed.iter().any(|known| known.eq_ignore_ascii_case(first_arg)) {
                allowed.push(first_arg.into());
            }
        } else {
            let subcommand = self.find(lower).ok_or(BadRule::Unknown)?;
            selector.change(self.table, subcommand, true);
        }
        selector.note(&String::from_utf8_lossy(lower), true);
        Ok(())
    }
}

impl Selector {
    fn allow_all(&mut self, allow: bool) {
        self.allowed.fill(allow);
        self.from_all = allow;
        self.first_args.clear();
        self.command_rules.clear();
    }

    /// Allows or forbids a command with its subcommands.
    fn change(&mut self, table: &Table, command: &Command, allow: bool) {
        for &id in std::iter::once(&command.id).chain(&command.subcommands) {
            debug_assert!(id < table.all().len());
            self.allowed[id] = allow;
        }
        self.first_args.remove(&command.id);
    }

    /// Records a command rule, and removes the rules that it overrides: the same rule, or rules about its subcommands.
    fn note(&mut self, rule: &str, allow: bool) {
        let is_void = |known: &String| {
            let rest = known[1..].strip_prefix(rule);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('|'))
        };
        self.command_rules.retain(|known| !is_void(known));
        self.command_rules.push(format!("{}{rule}", if allow { '+' } else { '-' }));
    }

    /// Records a rule, in lower case, about a command that only other servers have.
    fn note_foreign(&mut self, rule: &[u8], allow: bool) -> Result<(), BadRule> {
        let rule =
            std::str::from_utf8(rule).ok().filter(|rule| unknown_commands::is_known(rule)).ok_or(BadRule::Unknown)?;
        self.note(rule, allow);
        Ok(())
    }

    fn add_keys(&mut self, rule: &[u8]) -> Result<(), BadRule> {
        if self.all_keys {
            return Err(BadRule::AfterAllKeys);
        }
        let (permission, pattern) = match rule {
            [b'%', letters @ ..] => parse_permission(letters)?,
            _ => (ALL, &rule[1..]),
        };
        if has_spaces(pattern) {
            return Err(BadRule::Syntax);
        }
        match self.keys.iter_mut().find(|known| known.matcher.text() == pattern) {
            Some(known) => known.permission |= permission,
            None => self.keys.push(KeyPattern { matcher: Matcher::new(pattern), permission }),
        }
        Ok(())
    }

    fn add_channels(&mut self, pattern: &[u8]) -> Result<(), BadRule> {
        if self.all_channels {
            return Err(BadRule::AfterAllChannels);
        }
        if has_spaces(pattern) {
            return Err(BadRule::Syntax);
        }
        if !self.channels.iter().any(|known| known.text() == pattern) {
            self.channels.push(Matcher::new(pattern));
        }
        Ok(())
    }
}

/// Returns the permission from the letters before the tilde, and the pattern after it.
fn parse_permission(letters: &[u8]) -> Result<(u8, &[u8]), BadRule> {
    let mut permission = 0;
    for (at, letter) in letters.iter().enumerate() {
        let added = match letter.to_ascii_uppercase() {
            b'R' => READ,
            b'W' => WRITE,
            b'~' if permission != 0 => return Ok((permission, &letters[at + 1..])),
            _ => return Err(BadRule::Syntax),
        };
        if permission & added != 0 {
            return Err(BadRule::Syntax);
        }
        permission |= added;
    }
    // Redis reads a missing tilde as an empty pattern.
    if permission == 0 { Err(BadRule::Syntax) } else { Ok((permission, &[])) }
}

/// Returns the digest in a rule, or the digest of the password in it.
fn digest_of(rule: &[u8]) -> Result<PasswordDigest, BadRule> {
    match rule {
        [b'>' | b'<', password @ ..] => Ok(PasswordDigest::of(password)),
        _ => PasswordDigest::parse(&rule[1..]).ok_or(BadRule::BadDigest),
    }
}

/// Parses comma-separated database numbers.
fn parse_databases(list: &[u8]) -> Result<Vec<u32>, BadRule> {
    let mut databases = Vec::new();
    for text in list.split(|&byte| byte == b',') {
        // Like C's strtol: blanks and a sign are allowed.
        let text = std::str::from_utf8(text).map_err(|_| BadRule::Syntax)?.trim_ascii_start();
        let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(BadRule::Syntax);
        }
        let index = text.parse::<i32>().ok().and_then(|index| u32::try_from(index).ok());
        databases.push(index.ok_or(BadRule::DatabaseOutOfRange)?);
    }
    databases.sort_unstable();
    databases.dedup();
    Ok(databases)
}

/// Joins selectors that are split over several rules.
///
/// # Errors
/// The first rule with an unclosed parenthesis.
pub(super) fn merge_selectors<'r>(rules: &[&'r [u8]]) -> Result<Vec<Vec<u8>>, &'r [u8]> {
    let mut merged = Vec::new();
    let mut open: Option<(&[u8], Vec<u8>)> = None;
    for &rule in rules {
        match &mut open {
            None if rule.starts_with(b"(") && !rule.ends_with(b")") => open = Some((rule, rule.to_vec())),
            None => merged.push(rule.to_vec()),
            Some((_, selector)) => {
                selector.push(b' ');
                selector.extend_from_slice(rule);
                if rule.ends_with(b")") {
                    merged.extend(open.take().map(|(_, selector)| selector));
                }
            }
        }
    }
    open.map_or(Ok(merged), |(rule, _)| Err(rule))
}

/// Checks a `user` line of the configuration: a name and its rules.
///
/// # Errors
/// The error, in Redis's words.
pub fn check_line(table: &Table, name: &str, rules: &[&str]) -> Result<(), String> {
    if has_spaces(name.as_bytes()) {
        return Err("Spaces not allowed in ACL usernames".to_string());
    }
    let reader = RuleReader { table, all_channels: false };
    let rules: Vec<&[u8]> = rules.iter().map(|rule| rule.as_bytes()).collect();
    let in_declaration =
        |rule: &[u8], why: &str| format!("Error in user declaration '{}': {why}", String::from_utf8_lossy(rule));
    let merged = merge_selectors(&rules).map_err(|rule| in_declaration(rule, "Unmatched parenthesis"))?;
    let mut user = reader.new_user();
    for rule in &merged {
        reader.apply(&mut user, rule).map_err(|error| in_declaration(rule, error.text()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
