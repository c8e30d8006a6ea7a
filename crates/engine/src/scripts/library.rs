//! The libraries of functions, for all threads.
//!
//! A library is its text. Each thread's machine loads it at its first call of one of its functions, so a library's
//! global state is separate on each thread. A snapshot contains the libraries of [`Libraries::all`].
//!
//! A machine learns of removed libraries by `Libraries::gone_since`, given the number of removals that it has seen. The
//! cost of adding or removing a library doesn't depend on the number of libraries.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use commands::error::Error;
use resp::splitargs::split_args;
use script::library::{BAD_NAME, Registered, is_name};

use super::cache::ScriptProfile;
use super::removals::{Gone, Removals};
use super::rights::Rights;

/// A function of a library.
pub struct Function {
    /// Its name.
    pub name: Vec<u8>,
    /// Its description, as registered.
    pub description: Option<Vec<u8>>,
    /// Its rights.
    pub rights: Rights,
    /// The remembered facts of its runs.
    pub(crate) profile: ScriptProfile,
}

/// A library, shared by all threads.
pub struct Library {
    /// Its name.
    pub name: Vec<u8>,
    /// Its text, including the shebang.
    pub text: Box<[u8]>,
    /// Its functions, in the order of registration.
    pub functions: Vec<Function>,
    /// True if it was removed or replaced: machines that still have it must not run it.
    gone: AtomicBool,
}

impl Library {
    /// The library of a text that has registered these functions.
    pub(crate) fn new(
        commands: &commands::table::Table,
        name: Vec<u8>,
        text: &[u8],
        registered: &[Registered],
    ) -> Library {
        let predicted = ScriptProfile::predicted(commands, text);
        let functions = registered.iter().map(|function| Function {
            name: function.name.clone(),
            description: function.description.clone(),
            rights: function.flags.iter().filter_map(|f| Rights::named(f)).fold(Rights::default(), Rights::with),
            profile: predicted.again(),
        });
        Library { name, text: text.into(), functions: functions.collect(), gone: AtomicBool::new(false) }
    }

    /// Returns whether it was removed or replaced.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Returns the bytes that it takes, without the machines' compiled forms.
    fn memory_bytes(&self) -> usize {
        size_of::<Library>() + self.text.len() + self.functions.len() * size_of::<Function>()
    }
}

/// Returns the library's name from the text's first line, and the start of its code.
pub(crate) fn metadata(text: &[u8]) -> Result<(Vec<u8>, usize), Error> {
    if !text.starts_with(b"#!") {
        return Err(Error::new("ERR Missing library metadata"));
    }
    let Some(end) = text.iter().position(|&b| b == b'\n') else {
        return Err(Error::new("ERR Invalid library metadata"));
    };
    let words = split_args(&text[..end]).map_err(|_| Error::new("ERR Invalid library metadata"))?;
    let (engine, words) =
        words.split_first().map_or((&b""[..], &[][..]), |(first, rest)| (first.get(2..).unwrap_or_default(), rest));
    let mut name = None;
    for word in words {
        match word.strip_prefix(b"name=") {
            Some(_) if name.is_some() => {
                return Err(Error::new("ERR Invalid metadata value, name argument was given multiple times"));
            }
            Some(given) => name = Some(given),
            None => return Err(Error::quoting([b"ERR Invalid metadata value given: ", &word[..]].concat())),
        }
    }
    let Some(name) = name else { return Err(Error::new("ERR Library name was not given")) };
    if !is_name(name) {
        return Err(Error::new(format!("ERR {BAD_NAME}")));
    }
    if !engine.eq_ignore_ascii_case(b"lua") {
        return Err(Error::quoting([b"ERR Engine '", engine, b"' not found"].concat()));
    }
    Ok((name.to_vec(), end))
}

/// A library, and the index of a function in it.
type FunctionPlace = (Arc<Library>, usize);

/// The libraries by name, with derived tables.
#[derive(Default)]
struct LibraryTable {
    by_name: BTreeMap<Vec<u8>, Arc<Library>>,
    /// The functions by name in lower case.
    by_function: HashMap<Vec<u8>, FunctionPlace>,
    functions: usize,
    memory_bytes: usize,
}

impl LibraryTable {
    /// Adds a library. With `replaces`, returns the previous library of its name.
    fn put(&mut self, library: Arc<Library>, replaces: bool) -> Result<Option<Arc<Library>>, Error> {
        if !replaces && self.by_name.contains_key(&library.name) {
            // RESTORE and LOAD word it differently.
            return Err(already_exists(&library.name));
        }
        let is_others = |function: &&Function| {
            let owner = self.by_function.get(&function.name.to_ascii_lowercase());
            owner.is_some_and(|(owner, _)| owner.name != library.name)
        };
        if let Some(function) = library.functions.iter().find(is_others) {
            return Err(Error::quoting([b"ERR Function ", &*function.name, b" already exists"].concat()));
        }
        let replaced = self.take(&library.name);
        self.insert(library);
        Ok(replaced)
    }

    fn insert(&mut self, library: Arc<Library>) {
        self.functions += library.functions.len();
        self.memory_bytes += library.memory_bytes();
        for (index, function) in library.functions.iter().enumerate() {
            // A library may have two names that differ only in case; the first one is called.
            if let Entry::Vacant(entry) = self.by_function.entry(function.name.to_ascii_lowercase()) {
                entry.insert((library.clone(), index));
            }
        }
        self.by_name.insert(library.name.clone(), library);
    }

    fn take(&mut self, name: &[u8]) -> Option<Arc<Library>> {
        let library = self.by_name.remove(name)?;
        self.functions -= library.functions.len();
        self.memory_bytes -= library.memory_bytes();
        for function in &library.functions {
            self.by_function.remove(&function.name.to_ascii_lowercase());
        }
        Some(library)
    }
}

/// The libraries and removals behind the lock.
#[derive(Default)]
struct LibraryState {
    table: LibraryTable,
    removals: Removals<Vec<u8>>,
}

impl LibraryState {
    /// Notes the removal of a library from the table.
    fn note_removed(&mut self, library: &Library) {
        library.gone.store(true, Ordering::Release);
        self.removals.note(library.name.clone());
    }

    fn note_all_removed(&mut self, table: &LibraryTable) {
        table.by_name.values().for_each(|library| self.note_removed(library));
    }
}

/// See the module's documentation.
#[derive(Default)]
pub struct Libraries {
    state: Mutex<LibraryState>,
    /// A copy of the number of removals behind the lock.
    removals: AtomicU64,
}

/// The treatment of existing libraries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Policy {
    /// They are all removed.
    Flush,
    /// A new library with an existing name is refused.
    Append,
    /// A new library replaces an existing one with its name.
    Replace,
}

impl Libraries {
    fn lock(&self) -> MutexGuard<'_, LibraryState> {
        // No code panics with the value half changed, so a poisoned lock is harmless.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of removals and replacements of libraries.
    #[inline]
    pub(crate) fn removals(&self) -> u64 {
        self.removals.load(Ordering::Acquire)
    }

    /// Returns the libraries that were removed after the first `seen` removals, and the number of removals now.
    pub(crate) fn gone_since(&self, seen: u64) -> (Gone<Vec<u8>>, u64) {
        let state = self.lock();
        (state.removals.since(seen), state.removals.count())
    }

    /// Returns all libraries by name.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<Library>> {
        self.lock().table.by_name.values().cloned().collect()
    }

    /// Returns whether there is a library with this name.
    pub(crate) fn has(&self, name: &[u8]) -> bool {
        self.lock().table.by_name.contains_key(name)
    }

    /// Returns a function's library, ignoring the name's case, with the function's index.
    pub(crate) fn of_function(&self, name: &[u8]) -> Option<FunctionPlace> {
        self.lock().table.by_function.get(&name.to_ascii_lowercase()).cloned()
    }

    /// Adds libraries, all or none.
    pub(crate) fn add(&self, new: Vec<Library>, policy: Policy) -> Result<(), Error> {
        let mut state = self.lock();
        let flushed = (policy == Policy::Flush).then(|| std::mem::take(&mut state.table));
        let mut added: Vec<(Vec<u8>, Option<Arc<Library>>)> = Vec::new();
        for library in new {
            let name = library.name.clone();
            match state.table.put(Arc::new(library), policy == Policy::Replace) {
                Ok(replaced) => added.push((name, replaced)),
                Err(error) => {
                    take_back(&mut state.table, flushed, added);
                    return Err(error);
                }
            }
        }
        if let Some(flushed) = flushed {
            state.note_all_removed(&flushed);
        }
        added.iter().filter_map(|(_, replaced)| replaced.as_ref()).for_each(|replaced| state.note_removed(replaced));
        self.publish(&state);
        Ok(())
    }

    /// Removes a library. Returns whether there was one.
    pub(crate) fn remove(&self, name: &[u8]) -> bool {
        let mut state = self.lock();
        let removed = state.table.take(name);
        removed.iter().for_each(|library| state.note_removed(library));
        self.publish(&state);
        removed.is_some()
    }

    /// Removes all libraries.
    pub fn flush(&self) {
        let mut state = self.lock();
        let flushed = std::mem::take(&mut state.table);
        state.note_all_removed(&flushed);
        self.publish(&state);
    }

    fn publish(&self, state: &LibraryState) {
        self.removals.store(state.removals.count(), Ordering::Release);
    }

    /// Returns the numbers of libraries and of functions, and their bytes.
    #[must_use]
    pub fn figures(&self) -> (usize, usize, usize) {
        let LibraryTable { by_name, functions, memory_bytes, .. } = &self.lock().table;
        (by_name.len(), *functions, *memory_bytes)
    }
}

/// Restores a table to its state before libraries were added, and before it was flushed, if it was.
fn take_back(table: &mut LibraryTable, flushed: Option<LibraryTable>, added: Vec<(Vec<u8>, Option<Arc<Library>>)>) {
    if let Some(flushed) = flushed {
        *table = flushed;
        return;
    }
    for (name, replaced) in added.into_iter().rev() {
        table.take(&name);
        if let Some(replaced) = replaced {
            table.insert(replaced);
        }
    }
}

fn already_exists(name: &[u8]) -> Error {
    Error::quoting([b"ERR Library ", name, b" already exists"].concat())
}

#[cfg(test)]
mod tests {
    use script::library::Registered;

    use super::super::removals::KEPT_MAX;
    use super::*;

    fn library(name: &str, functions: &[&str]) -> Library {
        let registered = functions.iter().map(|name| Registered::named(name)).collect::<Vec<_>>();
        Library::new(crate::registry::table(), name.into(), b"text", &registered)
    }

    /// Returns the libraries with their functions, and checks that the functions are found.
    fn shown(libraries: &Libraries) -> Vec<String> {
        let names = |library: &Arc<Library>| {
            let found =
                |f: &Function| libraries.of_function(&f.name).is_some_and(|(owner, _)| Arc::ptr_eq(&owner, library));
            assert!(library.functions.iter().all(found) && !library.is_gone());
            let functions: Vec<_> = library.functions.iter().map(|f| String::from_utf8_lossy(&f.name)).collect();
            format!("{}: {}", String::from_utf8_lossy(&library.name), functions.join(" "))
        };
        let all = libraries.all();
        let shown: Vec<String> = all.iter().map(names).collect();
        assert_eq!(libraries.figures().1, all.iter().map(|library| library.functions.len()).sum());
        shown
    }

    #[test]
    fn libraries_are_added_all_or_none() {
        let libraries = Libraries::default();
        libraries.add(vec![library("a", &["f", "g"]), library("b", &["h"])], Policy::Append).unwrap();
        let before = ["a: f g", "b: h"];
        assert_eq!(shown(&libraries), before);
        for (new, policy) in [
            (vec![library("c", &["i"]), library("a", &["j"])], Policy::Append),
            (vec![library("c", &["i"]), library("d", &["H"])], Policy::Append),
            (vec![library("a", &["x"]), library("b", &["y", "x"])], Policy::Replace),
            (vec![library("a", &["x"]), library("a", &["y"]), library("c", &["h"])], Policy::Replace),
            (vec![library("c", &["x"]), library("d", &["X"])], Policy::Flush),
        ] {
            assert!(libraries.add(new, policy).is_err());
            assert_eq!(shown(&libraries), before, "{policy:?}");
            assert_eq!(libraries.removals(), 0);
        }
        let (old, _) = libraries.of_function(b"G").unwrap();
        libraries.add(vec![library("a", &["g", "k"])], Policy::Replace).unwrap();
        assert!(old.is_gone() && libraries.of_function(b"f").is_none());
        assert_eq!(shown(&libraries), ["a: g k", "b: h"]);
        libraries.add(vec![library("a", &["h"])], Policy::Flush).unwrap();
        assert_eq!(shown(&libraries), ["a: h"]);
        assert!(libraries.remove(b"a") && !libraries.remove(b"a"));
        assert_eq!(libraries.figures(), (0, 0, 0));
    }

    #[test]
    fn recent_removals_are_known_by_name() {
        let libraries = Libraries::default();
        let cycle = |name: &str| {
            libraries.add(vec![library(name, &["f"])], Policy::Append).unwrap();
            libraries.remove(name.as_bytes());
        };
        cycle("a");
        let seen = libraries.removals();
        cycle("b");
        cycle("c");
        let (Gone::Named(names), now) = libraries.gone_since(seen) else { panic!("two are remembered") };
        assert_eq!((names, now), (vec![b"b".to_vec(), b"c".to_vec()], libraries.removals()));
        (0..KEPT_MAX).for_each(|_| cycle("d"));
        assert!(matches!(libraries.gone_since(seen).0, Gone::Many));
        assert!(matches!(libraries.gone_since(now).0, Gone::Named(names) if names.len() == KEPT_MAX));
        assert!(matches!(libraries.gone_since(libraries.removals()).0, Gone::Named(names) if names.is_empty()));
    }
}
