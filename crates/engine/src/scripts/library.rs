//! Which libraries of functions there are, for all threads.
//!
//! A library is its text. Each thread's machine loads it for itself, when it first calls one of its functions: what they
//! remember beside keys, they remember on each thread apart. Persistence will keep what [`Libraries::all`] gives.
//!
//! A machine learns of libraries that have gone from `Libraries::gone_since`, by the number of removals that it has
//! seen. What one library's coming or going costs doesn't depend on how many there are.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use commands::error::Error;
use resp::splitargs::split_args;
use script::library::{BAD_NAME, Registered, is_name};

use super::cache::Habits;
use super::rights::Rights;

/// A function of a library.
pub struct Function {
    /// Its name.
    pub name: Vec<u8>,
    /// What it says of itself.
    pub description: Option<Vec<u8>>,
    /// What it may do.
    pub rights: Rights,
    /// How it runs.
    pub(crate) habits: Habits,
}

/// A library, as all threads share it.
pub struct Library {
    /// Its name.
    pub name: Vec<u8>,
    /// Its text, shebang included.
    pub text: Box<[u8]>,
    /// Its functions, in the order in which it has registered them.
    pub functions: Vec<Function>,
    /// Whether it has been removed or replaced: machines that still have it must not run it.
    gone: AtomicBool,
}

impl Library {
    /// The library of a text that has registered these functions.
    pub(crate) fn new(
        commands: &crate::command_table::Table,
        name: Vec<u8>,
        text: &[u8],
        registered: &[Registered],
    ) -> Library {
        let functions = registered.iter().map(|function| Function {
            name: function.name.clone(),
            description: function.description.clone(),
            rights: function.flags.iter().filter_map(|f| Rights::named(f)).fold(Rights::default(), Rights::with),
            habits: Habits::foretold(commands, text),
        });
        Library { name, text: text.into(), functions: functions.collect(), gone: AtomicBool::new(false) }
    }

    /// Whether it has been removed or replaced.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Bytes that it takes, beside what machines make of it.
    fn memory_bytes(&self) -> usize {
        size_of::<Library>() + self.text.len() + self.functions.len() * size_of::<Function>()
    }
}

/// The library's name in a text's first line, and where its code begins.
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

/// Removals that are remembered by the library's name; a machine that has missed more looks at all that it has loaded.
const REMOVALS_KEPT_MAX: usize = 1024;

/// A library, and the place of a function in it.
type FunctionPlace = (Arc<Library>, usize);

/// The libraries by name, and what is derived from them.
#[derive(Default)]
struct LibraryTable {
    by_name: BTreeMap<Vec<u8>, Arc<Library>>,
    /// By the function's name in lower case.
    by_function: HashMap<Vec<u8>, FunctionPlace>,
    functions: usize,
    memory_bytes: usize,
}

impl LibraryTable {
    /// Adds a library; returns the one that it takes the place of, if it `replaces` one of its name.
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
            // Of two names that differ in case only, which one library may have, the first is called.
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

/// The libraries and what was removed: what is behind the lock.
#[derive(Default)]
struct LibraryState {
    table: LibraryTable,
    /// The names of the libraries that were removed last; a removal that is not among them is not found by name.
    removed: VecDeque<Vec<u8>>,
    removals: u64,
}

impl LibraryState {
    /// Notes that a library is not among the libraries any more.
    fn note_removed(&mut self, library: &Library) {
        library.gone.store(true, Ordering::Release);
        self.removals += 1;
        if self.removed.len() == REMOVALS_KEPT_MAX {
            self.removed.pop_front();
        }
        self.removed.push_back(library.name.clone());
    }

    fn note_all_removed(&mut self, table: &LibraryTable) {
        table.by_name.values().for_each(|library| self.note_removed(library));
    }
}

/// Which libraries have gone.
pub(crate) enum Gone {
    /// Those of these names.
    Named(Vec<Vec<u8>>),
    /// More than are remembered.
    Many,
}

/// See the module's documentation.
#[derive(Default)]
pub struct Libraries {
    state: Mutex<LibraryState>,
    /// As behind the lock.
    removals: AtomicU64,
}

/// What becomes of libraries that are already there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Policy {
    /// They all go.
    Flush,
    /// A new one of the same name is refused.
    Append,
    /// A new one of the same name takes their place.
    Replace,
}

impl Libraries {
    fn lock(&self) -> MutexGuard<'_, LibraryState> {
        // What is behind the lock is always whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How often libraries were removed or replaced.
    #[inline]
    pub(crate) fn removals(&self) -> u64 {
        self.removals.load(Ordering::Acquire)
    }

    /// Which libraries have gone since there were so many removals, and how many there are now.
    pub(crate) fn gone_since(&self, seen: u64) -> (Gone, u64) {
        let state = self.lock();
        let missed = usize::try_from(state.removals - seen).unwrap_or(usize::MAX);
        let gone = match state.removed.len().checked_sub(missed) {
            Some(first) => Gone::Named(state.removed.range(first..).cloned().collect()),
            None => Gone::Many,
        };
        (gone, state.removals)
    }

    /// All of them, by name.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<Library>> {
        self.lock().table.by_name.values().cloned().collect()
    }

    /// Whether there is a library of this name.
    pub(crate) fn has(&self, name: &[u8]) -> bool {
        self.lock().table.by_name.contains_key(name)
    }

    /// The library of a function by its name, in whatever case, and the function's place in it.
    pub(crate) fn of_function(&self, name: &[u8]) -> Option<FunctionPlace> {
        self.lock().table.by_function.get(&name.to_ascii_lowercase()).cloned()
    }

    /// Adds libraries, all or none of them.
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

    /// Removes a library. Says whether there was one.
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
        self.removals.store(state.removals, Ordering::Release);
    }

    /// How many libraries and functions there are, and the bytes that they take.
    #[must_use]
    pub fn figures(&self) -> (usize, usize, usize) {
        let LibraryTable { by_name, functions, memory_bytes, .. } = &self.lock().table;
        (by_name.len(), *functions, *memory_bytes)
    }
}

/// Makes a table what it was before libraries were added to it, after it was flushed perhaps.
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

    use super::*;

    fn library(name: &str, functions: &[&str]) -> Library {
        let registered = functions.iter().map(|name| Registered::named(name)).collect::<Vec<_>>();
        Library::new(crate::registry::table(), name.into(), b"text", &registered)
    }

    /// The libraries, and where their functions are found.
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
    fn libraries_come_all_or_none() {
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
    fn what_has_gone_is_told_by_name_as_long_as_it_is_remembered() {
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
        (0..REMOVALS_KEPT_MAX).for_each(|_| cycle("d"));
        assert!(matches!(libraries.gone_since(seen).0, Gone::Many));
        assert!(matches!(libraries.gone_since(now).0, Gone::Named(names) if names.len() == REMOVALS_KEPT_MAX));
        assert!(matches!(libraries.gone_since(libraries.removals()).0, Gone::Named(names) if names.is_empty()));
    }
}
