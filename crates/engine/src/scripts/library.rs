//! Which libraries of functions there are, for all threads.
//!
//! A library is its text. Each thread's machine loads it for itself, when it first needs it: what a library's functions
//! remember beside keys, they remember on each thread apart. Persistence will keep what [`Libraries::all`] gives.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use commands::error::Error;
use resp::splitargs::split_args;
use script::library::{BAD_NAME, Registered, is_name};

use super::cache::Habits;
use super::run::Rights;

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
}

impl Library {
    /// The library of a text that has registered these functions.
    pub(crate) fn new(name: Vec<u8>, text: &[u8], registered: &[Registered]) -> Library {
        let functions = registered.iter().map(|function| Function {
            name: function.name.clone(),
            description: function.description.clone(),
            rights: function.flags.iter().filter_map(|f| Rights::named(f)).fold(Rights::default(), Rights::with),
            habits: Habits::foretold(text),
        });
        Library { name, text: text.into(), functions: functions.collect() }
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

type ByName = BTreeMap<Vec<u8>, Arc<Library>>;

/// See the module's documentation.
#[derive(Default)]
pub struct Libraries {
    all: Mutex<ByName>,
    version: AtomicU64,
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
    fn lock(&self) -> MutexGuard<'_, ByName> {
        // What is behind the lock is always whole.
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes whenever the libraries do.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// All of them, by name.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<Library>> {
        self.lock().values().cloned().collect()
    }

    /// The library of a function by its name, in whatever case, and the function's place in it.
    pub(crate) fn of_function(&self, name: &[u8]) -> Option<(Arc<Library>, usize)> {
        self.lock().values().find_map(|library| {
            let index = library.functions.iter().position(|function| function.name.eq_ignore_ascii_case(name))?;
            Some((library.clone(), index))
        })
    }

    /// Adds libraries, all or none of them.
    pub(crate) fn add(&self, new: Vec<Library>, policy: Policy) -> Result<(), Error> {
        let mut all = self.lock();
        let mut result = if policy == Policy::Flush { ByName::default() } else { all.clone() };
        for library in new {
            if policy != Policy::Replace && result.contains_key(&library.name) {
                // RESTORE and LOAD word it differently.
                return Err(already_exists(&library.name));
            }
            result.remove(&library.name);
            let taken = library.functions.iter().find(|new| {
                let mut known = result.values().flat_map(|library| &library.functions);
                known.any(|known| known.name.eq_ignore_ascii_case(&new.name))
            });
            if let Some(function) = taken {
                return Err(Error::quoting([b"ERR Function ", &*function.name, b" already exists"].concat()));
            }
            result.insert(library.name.clone(), Arc::new(library));
        }
        *all = result;
        self.version.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Removes a library. Says whether there was one.
    pub(crate) fn remove(&self, name: &[u8]) -> bool {
        let removed = self.lock().remove(name).is_some();
        self.version.fetch_add(1, Ordering::Release);
        removed
    }

    /// Removes all libraries.
    pub fn flush(&self) {
        self.lock().clear();
        self.version.fetch_add(1, Ordering::Release);
    }

    /// How many libraries and functions there are, and the bytes that they take.
    #[must_use]
    pub fn figures(&self) -> (usize, usize, usize) {
        let all = self.lock();
        let functions = all.values().map(|library| library.functions.len()).sum();
        (all.len(), functions, all.values().map(|library| library.memory_bytes()).sum())
    }
}

fn already_exists(name: &[u8]) -> Error {
    Error::quoting([b"ERR Library ", name, b" already exists"].concat())
}
