//! All users.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::denials::Denials;
use super::file;
use super::permissions::Permissions;
use super::rules::RuleReader;
use crate::command_table::Table;
use crate::config::quoted;

/// The user that a client is which says nothing of one.
pub(crate) const DEFAULT: &str = "default";

/// A user. What it may do changes; it stays the same.
pub(crate) struct User {
    name: Box<[u8]>,
    /// The name in text; bytes that are none are escaped.
    shown: String,
    permissions: Mutex<Arc<Permissions>>,
}

impl User {
    fn new(name: &[u8], permissions: Permissions) -> Arc<User> {
        let shown = match std::str::from_utf8(name) {
            Ok(text) => text.to_string(),
            Err(_) => name.escape_ascii().to_string(),
        };
        Arc::new(User { name: name.into(), shown, permissions: Mutex::new(Arc::new(permissions)) })
    }

    /// The name.
    pub(crate) fn name(&self) -> &[u8] {
        &self.name
    }

    /// The name in text.
    pub(crate) fn shown(&self) -> &str {
        &self.shown
    }

    /// What it may do at present.
    pub(crate) fn permissions(&self) -> Arc<Permissions> {
        self.permissions.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes what it may do. What it could do before is returned.
    fn set(&self, permissions: Permissions) -> Arc<Permissions> {
        let mut now = self.permissions.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut now, Arc::new(permissions))
    }

    /// All of its rules, as ACL LIST and files have them.
    pub(crate) fn line(&self) -> Vec<u8> {
        [b"user ", self.name(), b" ", &self.permissions().rules()].concat()
    }
}

/// What has changed of users, for connections to follow.
#[derive(Default)]
pub(crate) struct Changes {
    /// Users with what they could do before.
    pub changed: Vec<(Arc<User>, Arc<Permissions>)>,
    /// Those that are gone.
    pub removed: Vec<Arc<User>>,
}

type ByName = BTreeMap<Box<[u8]>, Arc<User>>;

/// See the module's documentation. What a connection may do changes with it only when it is told to.
pub struct Users {
    table: &'static Table,
    by_name: Mutex<ByName>,
    /// The user of clients that say nothing of one. It is never removed.
    default: Arc<User>,
    /// True if a client may be the default user without a password.
    default_is_open: AtomicBool,
    /// True if some user isn't allowed everything.
    any_restricted: AtomicBool,
    /// How often any of them has changed.
    edition: AtomicU64,
    /// The password that `requirepass` set last.
    required: Mutex<String>,
    /// What has been denied.
    pub(crate) denials: Denials,
}

impl Users {
    /// The default user alone, which may do everything without a password.
    #[must_use]
    pub fn new(table: &'static Table) -> Users {
        let default = User::new(DEFAULT.as_bytes(), RuleReader { table, all_channels: false }.default_user());
        let by_name = ByName::from([(default.name.clone(), default.clone())]);
        Users {
            table,
            by_name: Mutex::new(by_name),
            default,
            default_is_open: AtomicBool::new(true),
            any_restricted: AtomicBool::new(false),
            edition: AtomicU64::new(0),
            required: Mutex::default(),
            denials: Denials::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, ByName> {
        self.by_name.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes what follows from the users' permissions true.
    fn settle(&self, by_name: &ByName) {
        self.default_is_open.store(self.default.permissions().is_open(), Ordering::Release);
        let any = by_name.values().any(|user| !user.permissions().is_unrestricted());
        self.any_restricted.store(any, Ordering::Release);
        self.edition.fetch_add(1, Ordering::Release);
    }

    /// How often any user, its password included, has changed. As long as it is the same, a password that was right still is.
    #[must_use]
    pub fn edition(&self) -> u64 {
        self.edition.load(Ordering::Acquire)
    }

    /// True if a client may be the default user without a password.
    #[inline]
    #[must_use]
    pub fn is_default_open(&self) -> bool {
        self.default_is_open.load(Ordering::Acquire)
    }

    /// True if the default user has no password: such a server keeps to itself in protected mode, even if that user is
    /// off.
    #[must_use]
    pub fn default_needs_no_password(&self) -> bool {
        self.default.permissions().needs_no_password()
    }

    /// True if some user isn't allowed everything.
    #[inline]
    pub(crate) fn any_restricted(&self) -> bool {
        self.any_restricted.load(Ordering::Acquire)
    }

    /// The default user.
    pub(crate) fn default_user(&self) -> &Arc<User> {
        &self.default
    }

    /// A user.
    pub(crate) fn get(&self, name: &[u8]) -> Option<Arc<User>> {
        self.lock().get(name).cloned()
    }

    /// All users, by their names.
    pub(crate) fn all(&self) -> Vec<Arc<User>> {
        self.lock().values().cloned().collect()
    }

    /// The user with this name and password, if there is one that clients can authenticate as.
    pub(crate) fn with_password(&self, name: &[u8], password: &[u8]) -> Option<Arc<User>> {
        self.get(name).filter(|user| user.permissions().lets_in(password))
    }

    /// Changes a user by rules, or makes one. All rules are taken or none. `all_channels`: as acl-pubsub-default says.
    ///
    /// # Errors
    /// What is wrong with the first rule that can't be taken, as ACL SETUSER says it.
    pub(crate) fn set(&self, name: &[u8], rules: &[&[u8]], all_channels: bool) -> Result<Changes, Vec<u8>> {
        let reader = RuleReader { table: self.table, all_channels };
        let mut by_name = self.lock();
        let mut changes = Changes::default();
        match by_name.get(name) {
            Some(user) => {
                let permissions = reader.set((*user.permissions()).clone(), rules)?;
                changes.changed.push((user.clone(), user.set(permissions)));
            }
            None => {
                let user = User::new(name, reader.set(reader.new_user(), rules)?);
                by_name.insert(user.name.clone(), user);
            }
        }
        self.settle(&by_name);
        Ok(changes)
    }

    /// Removes a user, if there is one of this name. The default user stays.
    pub(crate) fn remove(&self, name: &[u8]) -> Option<Arc<User>> {
        let mut by_name = self.lock();
        let removed = if name == self.default.name() { None } else { by_name.remove(name) };
        self.settle(&by_name);
        removed
    }

    /// Gives the default user the password of `requirepass`, or none if that is empty, if that has changed since the
    /// last call. What it may do stays the same.
    pub(crate) fn require_password(&self, password: &str) {
        let mut required = self.required.lock().unwrap_or_else(PoisonError::into_inner);
        if *required == password {
            return;
        }
        *required = password.to_string();
        let mut permissions = (*self.default.permissions()).clone();
        permissions.set_only_password(password.as_bytes());
        self.default.set(permissions);
        self.settle(&self.lock());
    }

    /// Makes users of lines of the configuration: a name and its rules each.
    ///
    /// # Errors
    /// What is wrong.
    pub(crate) fn configure(&self, lines: &[Vec<String>], all_channels: bool) -> Result<Vec<String>, String> {
        let reader = RuleReader { table: self.table, all_channels };
        let mut off = Vec::new();
        let mut by_name = self.lock();
        for line in lines {
            let Some((name, rules)) = line.split_first() else { continue };
            let rules: Vec<&[u8]> = rules.iter().map(|rule| rule.as_bytes()).collect();
            let permissions = reader.set(reader.new_user(), &rules).map_err(|error| {
                format!("Error loading the user named '{name}': {}", String::from_utf8_lossy(&error))
            })?;
            if !permissions.is_on {
                off.push(name.clone());
            }
            match by_name.get(name.as_bytes()) {
                // It can only be the default user: a name stands in one line at most.
                Some(user) => drop(user.set(permissions)),
                None => drop(by_name.insert(name.as_bytes().into(), User::new(name.as_bytes(), permissions))),
            }
        }
        self.settle(&by_name);
        Ok(off)
    }

    /// The commands that the rules of a user, or of all if none is named, name and only other servers have.
    pub(crate) fn foreign(&self, user: Option<&[u8]>) -> BTreeSet<String> {
        let by_name = self.lock();
        let named = by_name.values().filter(|one| user.is_none_or(|name| one.name() == name));
        named.flat_map(|user| user.permissions().foreign(self.table).map(str::to_string).collect::<Vec<_>>()).collect()
    }

    /// The text of a file of all users.
    pub(crate) fn file_text(&self) -> Vec<u8> {
        self.all().iter().flat_map(|user| [user.line(), b"\n".to_vec()]).flatten().collect()
    }

    /// The lines of all users for the configuration's file, with words in quotes that it would read otherwise.
    pub(crate) fn config_lines(&self) -> Vec<String> {
        let as_word = |word: &[u8]| match std::str::from_utf8(word) {
            Ok(text) if !text.contains(['"', '\'', '\\']) && !text.contains(char::is_control) => text.to_string(),
            Ok(text) => quoted(text),
            // No configuration has such bytes: the next start says so, and nothing is allowed by mistake.
            Err(_) => format!("\"{}\"", word.escape_ascii()),
        };
        let lines = self.all();
        let words = |user: &Arc<User>| {
            let line = user.line();
            line.split(|&byte| byte == b' ').map(as_word).collect::<Vec<_>>().join(" ")
        };
        lines.iter().map(words).collect()
    }

    /// True if there are other users than a configuration without lines for them makes, given its password.
    pub(crate) fn differ_from_none(&self, requirepass: &str) -> bool {
        let mut default = RuleReader { table: self.table, all_channels: false }.default_user();
        default.set_only_password(requirepass.as_bytes());
        self.lock().len() > 1 || *self.default.permissions() != default
    }

    /// Replaces all users by those of a file's text; the default user gets back what it had at first, if the file doesn't
    /// have it.
    ///
    /// # Errors
    /// All that is wrong with it, as ACL LOAD says it. Nothing has changed then.
    pub(crate) fn load(&self, path: &str, text: &[u8], all_channels: bool) -> Result<Changes, Vec<u8>> {
        let reader = RuleReader { table: self.table, all_channels };
        let mut loaded = file::parse(reader, path, text)?;
        let default = loaded.remove(DEFAULT.as_bytes()).unwrap_or_else(|| reader.default_user());
        loaded.insert(DEFAULT.as_bytes().into(), default);
        let mut by_name = self.lock();
        let gone: Vec<Box<[u8]>> = by_name.keys().filter(|name| !loaded.contains_key(*name)).cloned().collect();
        let mut changes = Changes::default();
        changes.removed.extend(gone.iter().filter_map(|name| by_name.remove(name)));
        for (name, permissions) in loaded {
            match by_name.get(&name) {
                Some(user) => changes.changed.push((user.clone(), user.set(permissions))),
                None => drop(by_name.insert(name.clone(), User::new(&name, permissions))),
            }
        }
        self.settle(&by_name);
        Ok(changes)
    }
}

#[cfg(test)]
mod tests;
