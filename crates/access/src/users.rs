//! All users.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::denials::Denials;
use super::file;
use super::permissions::Permissions;
use super::rules::RuleReader;
use commands::table::Table;
use config::quoted;

/// The user of clients that name no user.
pub const DEFAULT: &str = "default";

/// A user: a fixed identity with changing permissions.
pub struct User {
    name: Box<[u8]>,
    /// The name as text, with invalid bytes escaped.
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

    /// Returns the name.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// Returns the name as text.
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// Returns the present permissions.
    pub fn permissions(&self) -> Arc<Permissions> {
        self.permissions.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the permissions, and returns the previous ones.
    fn set(&self, permissions: Permissions) -> Arc<Permissions> {
        let mut now = self.permissions.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut now, Arc::new(permissions))
    }

    /// Returns all of its rules, as in ACL LIST and in files.
    pub fn line(&self) -> Vec<u8> {
        [b"user ", self.name(), b" ", &self.permissions().rules()].concat()
    }

    /// Returns the user's line for the configuration file. Words that the file's parser would misread are quoted.
    pub fn config_line(&self) -> String {
        let line = self.line();
        let as_word = |word: &[u8]| match std::str::from_utf8(word) {
            Ok(text) if !text.contains(['"', '\'', '\\']) && !text.contains(char::is_control) => text.to_string(),
            Ok(text) => quoted(text),
            // A configuration can't contain these bytes: the next start reports an error, and no rule is misread.
            Err(_) => format!("\"{}\"", word.escape_ascii()),
        };
        line.split(|&byte| byte == b' ').map(as_word).collect::<Vec<_>>().join(" ")
    }
}

/// Changes of users, to be applied to connections.
#[derive(Default)]
pub struct Changes {
    /// Changed users, with their previous permissions.
    pub changed: Vec<(Arc<User>, Arc<Permissions>)>,
    /// Removed users.
    pub removed: Vec<Arc<User>>,
}

type ByName = BTreeMap<Box<[u8]>, Arc<User>>;

/// All users. A connection takes over changed permissions only after a signal.
pub struct Users {
    table: &'static Table,
    by_name: Mutex<ByName>,
    /// The user of clients that name no user. It is never removed.
    default: Arc<User>,
    /// True if clients may be the default user without a password.
    default_is_open: AtomicBool,
    /// True if a user is restricted.
    any_restricted: AtomicBool,
    /// Number of changes.
    edition: AtomicU64,
    /// The last password from `requirepass`.
    required: Mutex<String>,
    /// The record of denials.
    pub denials: Denials,
}

impl Users {
    /// Creates a set with only the default user, which may do everything without a password.
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

    /// Updates the fields that are derived from the users' permissions.
    fn settle(&self, by_name: &ByName) {
        self.default_is_open.store(self.default.permissions().is_open(), Ordering::Release);
        let any = by_name.values().any(|user| !user.permissions().is_unrestricted());
        self.any_restricted.store(any, Ordering::Release);
        self.edition.fetch_add(1, Ordering::Release);
    }

    /// Returns the number of changes of users, passwords included. A cached password check stays valid while it is the
    /// same.
    #[must_use]
    pub fn edition(&self) -> u64 {
        self.edition.load(Ordering::Acquire)
    }

    /// Returns true if clients may be the default user without a password.
    #[inline]
    #[must_use]
    pub fn is_default_open(&self) -> bool {
        self.default_is_open.load(Ordering::Acquire)
    }

    /// Returns true if the default user needs no password, even if that user is off. Protected mode depends on it.
    #[must_use]
    pub fn default_needs_no_password(&self) -> bool {
        self.default.permissions().needs_no_password()
    }

    /// Returns true if a user is restricted.
    #[inline]
    pub fn any_restricted(&self) -> bool {
        self.any_restricted.load(Ordering::Acquire)
    }

    /// Returns the default user.
    pub fn default_user(&self) -> &Arc<User> {
        &self.default
    }

    /// Returns the user with this name.
    pub fn get(&self, name: &[u8]) -> Option<Arc<User>> {
        self.lock().get(name).cloned()
    }

    /// Returns all users, sorted by name.
    pub fn all(&self) -> Vec<Arc<User>> {
        self.lock().values().cloned().collect()
    }

    /// Returns the user with this name and password, if clients can authenticate as this user.
    pub fn with_password(&self, name: &[u8], password: &[u8]) -> Option<Arc<User>> {
        self.get(name).filter(|user| user.permissions().lets_in(password))
    }

    /// Changes or creates a user. Either all rules apply or none do. `all_channels`: see acl-pubsub-default.
    ///
    /// # Errors
    /// The first error, in the words of ACL SETUSER.
    pub fn set(&self, name: &[u8], rules: &[&[u8]], all_channels: bool) -> Result<Changes, Vec<u8>> {
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

    /// Removes and returns the user with this name. The default user stays.
    pub fn remove(&self, name: &[u8]) -> Option<Arc<User>> {
        let mut by_name = self.lock();
        let removed = if name == self.default.name() { None } else { by_name.remove(name) };
        self.settle(&by_name);
        removed
    }

    /// Sets the default user's password to `requirepass`, or removes it if that is empty. Does nothing if the value has
    /// not changed since the last call. The other permissions stay.
    pub fn require_password(&self, password: &str) {
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

    /// Creates users from the lines of the configuration, each a name and its rules.
    ///
    /// # Errors
    /// The error in a line.
    pub fn configure(&self, lines: &[Vec<String>], all_channels: bool) -> Result<Vec<String>, String> {
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
                // This is the default user, because the names of the lines are unique.
                Some(user) => drop(user.set(permissions)),
                None => drop(by_name.insert(name.as_bytes().into(), User::new(name.as_bytes(), permissions))),
            }
        }
        self.settle(&by_name);
        Ok(off)
    }

    /// Returns the commands that only other servers have, from the rules of one user or, with `None`, of all.
    pub fn unknown_commands(&self, user: Option<&[u8]>) -> BTreeSet<String> {
        let by_name = self.lock();
        let named = by_name.values().filter(|one| user.is_none_or(|name| one.name() == name));
        named
            .flat_map(|user| user.permissions().unknown_commands(self.table).map(str::to_string).collect::<Vec<_>>())
            .collect()
    }

    /// Returns the text of a file with all users.
    pub fn file_text(&self) -> Vec<u8> {
        self.all().iter().flat_map(|user| [user.line(), b"\n".to_vec()]).flatten().collect()
    }

    /// Returns the lines of all users for the configuration file.
    pub fn config_lines(&self) -> Vec<String> {
        self.all().iter().map(|user| user.config_line()).collect()
    }

    /// Returns true if the users differ from those of a configuration without `user` lines and with this password.
    pub fn differ_from_none(&self, requirepass: &str) -> bool {
        let mut default = RuleReader { table: self.table, all_channels: false }.default_user();
        default.set_only_password(requirepass.as_bytes());
        self.lock().len() > 1 || *self.default.permissions() != default
    }

    /// Replaces all users by those of a file; the default user is reset if the file lacks it.
    ///
    /// # Errors
    /// All errors, in the words of ACL LOAD. Nothing has changed then.
    pub fn load(&self, path: &str, text: &[u8], all_channels: bool) -> Result<Changes, Vec<u8>> {
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
