//! One thread's machine: its Lua, and the scripts that it has loaded into it.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use commands::call::KeyRef;
use commands::error::Error;
use resp::reply::{Output, Proto};
use resp::request::Args;
use script::api::Version;
use script::library::Registered;
use script::{Access, Host, Loaded, LogLevel, Verdict, Vm};
use store::hash::hash;

use super::cache::{Habits, Script, ScriptDigest, Scripts, digest_of, digest_of_text};
use super::library::{self, Function, Gone, Libraries, Library};
use super::tentative::Tentative;
use super::write_log;
use crate::host::Host as Server;
use crate::machine::ticks::{Ticks, to_microseconds};
use crate::machine::version::{REDIS_VERSION, REDIS_VERSION_NUMBER};

/// Scripts that a thread may have loaded beyond those that there are, before it looks which are gone.
const STALE_MAX: usize = 256;

/// Takes what is a hash already as it is.
#[derive(Default)]
struct AsIs(u64);

impl Hasher for AsIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        // Of a digest's hexadecimal digits, sixteen make enough difference.
        for chunk in bytes.as_chunks::<8>().0.iter().take(2) {
            self.0 = self.0.rotate_left(27) ^ u64::from_le_bytes(*chunk).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// Hashes bytes as the store does, which takes less time than the standard library.
#[derive(Default)]
struct ByBytes(u64);

impl Hasher for ByBytes {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 ^= hash(bytes);
    }

    fn write_usize(&mut self, _: usize) {
        // The length is part of the hash.
    }
}

type Map<K, V> = HashMap<K, V, BuildHasherDefault<AsIs>>;

/// A script that this thread has loaded.
pub(crate) struct LocalScript {
    /// What all threads know of it.
    pub script: Arc<Script>,
    /// What this thread's machine knows it by.
    pub loaded: Loaded,
}

/// A thread's machine, made when the first script comes.
pub(crate) struct ScriptMachine {
    /// Lua.
    pub vm: Vm,
    scripts: Map<ScriptDigest, LocalScript>,
    /// The scripts by their text's hash, so that EVAL need not make a digest each time.
    by_text: Map<u64, ScriptDigest>,
    /// A script that was compiled before it was to be run.
    ahead: Option<(ScriptDigest, Loaded)>,
    /// The libraries that this thread has loaded, by name.
    libraries: HashMap<Vec<u8>, LocalLibrary>,
    /// Their functions, by name in lower case.
    functions: HashMap<Vec<u8>, LocalFunction, BuildHasherDefault<ByBytes>>,
    /// How many removals of libraries it has followed.
    removals_seen: u64,
}

/// A library that this thread has loaded.
struct LocalLibrary {
    library: Arc<Library>,
    /// What the machine knows its functions by.
    loaded: Vec<Loaded>,
}

/// A function that this thread has loaded.
pub(crate) struct LocalFunction {
    library: Arc<Library>,
    /// Its place in the library.
    index: usize,
    /// What this thread's machine knows it by.
    pub loaded: Loaded,
}

impl LocalFunction {
    /// What all threads know of it.
    pub(crate) fn function(&self) -> &Function {
        &self.library.functions[self.index]
    }
}

/// What a worker has for scripts.
#[derive(Default)]
pub(crate) struct LocalScripts {
    /// Taken out while a script runs.
    pub machine: Option<Box<ScriptMachine>>,
    /// Set by a script that has to start over, alone.
    pub start_over: bool,
    /// Whether a script runs: what commands do then is its doing.
    pub running: bool,
    /// Whether only what may run beside a busy script is run: this thread is not inside the gate, or in the midst of
    /// that script.
    pub busy_turn: bool,
    /// Whether one does that now.
    pub is_again: bool,
    /// Whether the one that runs may still do that.
    pub may_start_over: bool,
    /// What it has left so far.
    pub tentative: Tentative,
    /// Set by a script that has an error which has been counted already.
    pub error_is_counted: bool,
    /// Memory for the keys of a script's commands.
    pub keys: Vec<KeyRef>,
}

impl ScriptMachine {
    /// A machine with scripts that may use so many bytes.
    pub(crate) fn new(memory_bytes_max: usize) -> Result<ScriptMachine, Error> {
        let version = Version { text: REDIS_VERSION, number: REDIS_VERSION_NUMBER };
        let vm = Vm::new(memory_bytes_max, version);
        let vm =
            vm.ok_or_else(|| Error::new("ERR lua-memory-limit is too low for Lua itself: raise it with CONFIG SET"))?;
        Ok(ScriptMachine {
            vm,
            scripts: Map::default(),
            by_text: Map::default(),
            ahead: None,
            libraries: HashMap::new(),
            functions: HashMap::default(),
            removals_seen: 0,
        })
    }

    /// Bytes of memory that it uses.
    pub(crate) fn used_bytes(&self) -> usize {
        self.vm.used_bytes()
    }

    /// A script that is known to be loaded, and what runs it.
    pub(crate) fn get(&mut self, digest: &ScriptDigest) -> Option<(&mut Vm, &Script, Loaded)> {
        let local = self.scripts.get(digest)?;
        Some((&mut self.vm, &local.script, local.loaded))
    }

    /// The script that EVALSHA names, loaded; none, if there is none.
    pub(crate) fn by_name(&mut self, all: &Scripts, name: &[u8]) -> Result<Option<ScriptDigest>, Error> {
        let Some(digest) = digest_of(name) else { return Ok(None) };
        if self.has(&digest) {
            return Ok(Some(digest));
        }
        let Some(script) = all.find(&digest) else { return Ok(None) };
        self.load(all, script).map(Some)
    }

    /// The script of a text, loaded; what is new is made known to all threads. If it `stays`, only SCRIPT FLUSH removes
    /// it.
    pub(crate) fn by_text(
        &mut self,
        all: &Scripts,
        text: &[u8],
        stays: bool,
        now_ticks: u64,
    ) -> Result<ScriptDigest, Error> {
        let text_hash = hash(text);
        if !stays && let Some(&digest) = self.by_text.get(&text_hash) {
            let is_it = self.scripts.get(&digest).is_some_and(|local| *local.script.text == *text);
            if is_it && self.has(&digest) {
                return Ok(digest);
            }
        }
        let digest = digest_of_text(text);
        let script = match all.find(&digest) {
            Some(script) if !stays => script,
            // Before it is made known, because a text that is no script is none.
            Some(script) => all.add(Script::new(all.commands(), script.digest, text)?, stays, now_ticks),
            None => {
                let script = Script::new(all.commands(), digest, text)?;
                let loaded = self.compile(&script)?;
                let script = all.add(script, stays, now_ticks);
                self.insert(script, loaded);
                self.by_text.insert(text_hash, digest);
                return Ok(digest);
            }
        };
        let digest = if self.has(&digest) { digest } else { self.load(all, script)? };
        self.by_text.insert(text_hash, digest);
        Ok(digest)
    }

    /// A script that is loaded here, by its name or text.
    pub(crate) fn loaded(&self, name: &[u8], is_text: bool) -> Option<&Script> {
        let digest = if is_text { self.by_text.get(&hash(name)).copied() } else { digest_of(name) };
        Some(&self.scripts.get(&digest?)?.script)
    }

    /// Whether a script is loaded here, and has not been forgotten.
    fn has(&mut self, digest: &ScriptDigest) -> bool {
        match self.scripts.get(digest) {
            None => false,
            Some(local) if !local.script.forgotten.load(Ordering::Acquire) => true,
            Some(_) => {
                self.unload(&digest.clone());
                false
            }
        }
    }

    /// Compiles a script that is not loaded here, before it is known whether it will be run. An error is found again.
    pub(crate) fn compile_ahead(&mut self, all: &Scripts, name: &[u8], is_text: bool) {
        if self.loaded(name, is_text).is_some() {
            return;
        }
        let digest = if is_text { Some(digest_of_text(name)) } else { digest_of(name) };
        let Some(digest) = digest.filter(|digest| !self.has(digest)) else { return };
        let known = all.find(&digest);
        let script = if is_text { Script::new(all.commands(), digest, name).map(Arc::new).ok() } else { known };
        if let Some(loaded) = script.and_then(|script| self.compile(&script).ok()) {
            self.ahead = Some((digest, loaded));
        }
    }

    fn compile(&mut self, script: &Script) -> Result<Loaded, Error> {
        match self.ahead.take() {
            Some((digest, loaded)) if digest == script.digest => return Ok(loaded),
            Some((_, loaded)) => self.vm.unload(loaded),
            None => {}
        }
        let mut loading = Loading::within(COMPILING_US_MAX, None);
        let loaded = self.vm.load(&script.text[script.code_at..], c"@user_script", &mut loading);
        loaded.map_err(|error| {
            let why: &[u8] = if loading.is_late { b"it takes too long" } else { &error };
            Error::quoting([b"ERR Error compiling script (new function): ", why].concat())
        })
    }

    fn load(&mut self, all: &Scripts, script: Arc<Script>) -> Result<ScriptDigest, Error> {
        let loaded = self.compile(&script)?;
        let digest = script.digest;
        self.insert(script, loaded);
        if self.scripts.len() > all.figures().count + STALE_MAX {
            self.unload_forgotten();
        }
        Ok(digest)
    }

    fn insert(&mut self, script: Arc<Script>, loaded: Loaded) {
        let local = LocalScript { loaded, script };
        if let Some(old) = self.scripts.insert(local.script.digest, local) {
            self.vm.unload(old.loaded);
        }
        if self.by_text.len() > 2 * self.scripts.len() + STALE_MAX {
            self.by_text.clear();
        }
    }

    fn unload(&mut self, digest: &ScriptDigest) {
        if let Some(local) = self.scripts.remove(digest) {
            self.vm.unload(local.loaded);
        }
    }

    /// Unloads what has been forgotten, so that it takes no memory here either.
    pub(crate) fn unload_forgotten(&mut self) {
        let forgotten = |local: &LocalScript| local.script.forgotten.load(Ordering::Acquire);
        let gone: Vec<ScriptDigest> = self.scripts.values().filter(|l| forgotten(l)).map(|l| l.script.digest).collect();
        gone.iter().for_each(|digest| self.unload(digest));
        self.by_text.clear();
    }

    /// Loads a library and forgets it again: what it registers. The functions mean nothing afterwards.
    pub(crate) fn try_library(&mut self, server: &dyn Server, code: &[u8]) -> Result<Vec<Registered>, Error> {
        let registered = self.load_library(Some(server), code)?;
        registered.iter().for_each(|function| self.vm.unload(function.loaded));
        self.vm.relieve();
        Ok(registered)
    }

    fn load_library(&mut self, server: Option<&dyn Server>, code: &[u8]) -> Result<Vec<Registered>, Error> {
        let mut loading = Loading::within(LOADING_US_MAX, server);
        let loaded = self.vm.load_library(code, &mut loading);
        loaded.map_err(|error| match loading.is_late {
            true => Error::new("ERR Error registering functions: ERR FUNCTION LOAD timeout"),
            false => Error::quoting([b"ERR ", &*error].concat()),
        })
    }

    /// Unloads the libraries that have gone since this was called last, so that they take no memory here either.
    #[inline]
    pub(crate) fn follow(&mut self, libraries: &Libraries) {
        if libraries.removals() != self.removals_seen {
            self.follow_removals(libraries);
        }
    }

    #[cold]
    fn follow_removals(&mut self, libraries: &Libraries) {
        let (gone, removals) = libraries.gone_since(self.removals_seen);
        self.removals_seen = removals;
        let names = match gone {
            Gone::Named(names) => names,
            Gone::Many => self.libraries.keys().cloned().collect(),
        };
        let had = self.libraries.len();
        for name in names {
            if self.libraries.get(&name).is_some_and(|local| local.library.is_gone()) {
                self.unload_library(&name);
            }
        }
        if self.libraries.len() != had {
            self.vm.relieve();
        }
    }

    fn unload_library(&mut self, name: &[u8]) {
        let Some(LocalLibrary { library, loaded }) = self.libraries.remove(name) else { return };
        for function in &library.functions {
            self.functions.remove(&function.name.to_ascii_lowercase());
        }
        loaded.into_iter().for_each(|loaded| self.vm.unload(loaded));
    }

    /// A function by its name, in whatever case, and what runs it, loaded with its library; none, if there is none.
    pub(crate) fn function(
        &mut self,
        libraries: &Libraries,
        name: &[u8],
    ) -> Result<Option<(&mut Vm, &LocalFunction)>, Error> {
        let mut room = [0; SHORT_NAME_BYTES];
        let name = in_lower_case(name, &mut room);
        if self.local_function(&name).is_none() {
            let Some((library, _)) = libraries.of_function(&name) else { return Ok(None) };
            self.load_locally(&library)?;
        }
        let Some(local) = self.functions.get(&*name) else { return Ok(None) };
        Ok(Some((&mut self.vm, local)))
    }

    /// Loads a function's library that is not loaded here, before the function is called. An error is found again.
    pub(crate) fn load_ahead(&mut self, libraries: &Libraries, name: &[u8]) {
        let _ = self.function(libraries, name);
    }

    fn local_function(&self, name: &[u8]) -> Option<&LocalFunction> {
        self.functions.get(name).filter(|local| !local.library.is_gone())
    }

    fn load_locally(&mut self, library: &Arc<Library>) -> Result<(), Error> {
        self.unload_library(&library.name);
        let (_, code_at) = library::metadata(&library.text)?;
        let registered = self.load_library(None, &library.text[code_at..])?;
        let loaded = registered.iter().map(|function| function.loaded).collect();
        for Registered { name, loaded, .. } in registered {
            let Some(index) = library.functions.iter().position(|f| f.name == name) else { continue };
            let function = LocalFunction { library: library.clone(), index, loaded };
            // Of two names that differ in case only, the first is called.
            self.functions.entry(name.to_ascii_lowercase()).or_insert(function);
        }
        self.libraries.insert(library.name.clone(), LocalLibrary { library: library.clone(), loaded });
        Ok(())
    }

    /// What is remembered of how a function runs that is loaded here, and its library's text.
    pub(crate) fn habits_of_function(&self, name: &[u8]) -> Option<(&Habits, &[u8])> {
        let mut room = [0; SHORT_NAME_BYTES];
        self.local_function(&in_lower_case(name, &mut room))
            .map(|local| (&local.function().habits, &*local.library.text))
    }
}

/// Bytes of a name up to which calling the function takes no allocation.
const SHORT_NAME_BYTES: usize = 64;

/// A name in lower case, in `room` if it fits.
fn in_lower_case<'r>(name: &[u8], room: &'r mut [u8; SHORT_NAME_BYTES]) -> Cow<'r, [u8]> {
    let Some(lower) = room.get_mut(..name.len()) else { return Cow::Owned(name.to_ascii_lowercase()) };
    lower.copy_from_slice(name);
    lower.make_ascii_lowercase();
    Cow::Borrowed(lower)
}

/// How long a library may take to be loaded, in microseconds, as in Redis.
const LOADING_US_MAX: f64 = 500_000.0;
/// How long a script may take to be compiled, in microseconds: enough for some 20 MB. Its thread does nothing else
/// meanwhile.
const COMPILING_US_MAX: f64 = 5_000_000.0;

/// The world of a script that is being compiled, or a library that is being loaded: it has none.
struct Loading<'e> {
    /// The server that logs what it says, if it is loaded for the first time.
    server: Option<&'e dyn Server>,
    began: Ticks,
    us_max: f64,
    is_late: bool,
}

impl<'e> Loading<'e> {
    fn within(us_max: f64, server: Option<&'e dyn Server>) -> Loading<'e> {
        Loading { server, began: Ticks::now(), us_max, is_late: false }
    }
}

impl Host for Loading<'_> {
    fn call(&mut self, _: Args<'_>, _: Proto, _: &mut Output) -> Verdict {
        Verdict::End
    }

    fn poll(&mut self) -> Verdict {
        self.is_late = to_microseconds(Ticks::now().since(self.began)) > self.us_max;
        if self.is_late { Verdict::End } else { Verdict::Go }
    }

    fn log(&mut self, level: LogLevel, message: &[u8]) {
        if let Some(server) = self.server {
            write_log(server, level, message);
        }
    }

    fn access(&mut self, _: Args<'_>) -> Access {
        Access::Denied
    }

    fn error_returned(&mut self, _: &[u8], _: bool) {}
}
