//! One thread's machine: its Lua, and the scripts loaded into it.

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

use super::cache::{Script, ScriptDigest, ScriptProfile, Scripts, digest_of, digest_of_text};
use super::library::{self, Function, Libraries, Library};
use super::removals::Gone;
use super::tentative::Tentative;
use super::write_log;
use crate::host::Host as Server;
use crate::machine::version::{REDIS_VERSION, REDIS_VERSION_NUMBER};
use statistics::ticks::{Ticks, to_microseconds};

/// The greatest number of text hashes that a thread keeps beyond twice the number of its scripts.
const TEXTS_MAX: usize = 256;
/// The number of loaded scripts below which none is unloaded to make room.
const GIVE_WAY_MIN: usize = 16;

/// A hasher for keys that are hashes already.
#[derive(Default)]
struct AsIs(u64);

impl Hasher for AsIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        // Sixteen of a digest's hexadecimal digits distinguish scripts well enough.
        for chunk in bytes.as_chunks::<8>().0.iter().take(2) {
            self.0 = self.0.rotate_left(27) ^ u64::from_le_bytes(*chunk).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// A hasher with the store's hash function, which is faster than the standard library's.
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
    /// The part that all threads share.
    pub script: Arc<Script>,
    /// This machine's handle of it.
    pub loaded: Loaded,
}

/// The reason that a script could not be compiled.
struct NotCompiled {
    error: Error,
    /// True if the machine ran out of memory.
    is_memory: bool,
}

/// A thread's machine, made at the first script.
pub(crate) struct ScriptMachine {
    /// Lua.
    pub vm: Vm,
    scripts: Map<ScriptDigest, LocalScript>,
    /// The scripts by their text's hash, which saves EVAL a SHA-1 of the text.
    by_text: Map<u64, ScriptDigest>,
    /// A script that was compiled ahead of its run.
    ahead: Option<(ScriptDigest, Loaded)>,
    /// The libraries that this thread has loaded, by name.
    libraries: HashMap<Vec<u8>, LocalLibrary>,
    /// Their functions, by name in lower case.
    functions: HashMap<Vec<u8>, LocalFunction, BuildHasherDefault<ByBytes>>,
    /// The number of removals of libraries that it has followed.
    removals_seen: u64,
    /// The number of removals of scripts that it has followed.
    forgotten_seen: u64,
}

/// A library that this thread has loaded.
struct LocalLibrary {
    library: Arc<Library>,
    /// The machine's handles of its functions.
    loaded: Vec<Loaded>,
}

/// A function that this thread has loaded.
pub(crate) struct LocalFunction {
    library: Arc<Library>,
    /// Its index in the library.
    index: usize,
    /// This machine's handle of it.
    pub loaded: Loaded,
}

impl LocalFunction {
    /// Returns the part that all threads share.
    pub(crate) fn function(&self) -> &Function {
        &self.library.functions[self.index]
    }
}

/// A worker's state for scripts.
#[derive(Default)]
pub(crate) struct LocalScripts {
    /// Taken out while a script runs.
    pub machine: Option<Box<ScriptMachine>>,
    /// Set by a script that has to start over, alone.
    pub start_over: bool,
    /// True while a script runs; commands belong to the script then.
    pub running: bool,
    /// True while only commands that may run beside a busy script run: this thread is outside of the gate, or in the
    /// middle of the busy script.
    pub busy_turn: bool,
    /// True while a script runs again after starting over.
    pub is_again: bool,
    /// True while the running script may start over.
    pub may_start_over: bool,
    /// The revocable effects of the running script.
    pub tentative: Tentative,
    /// Set by a script with an error that is counted already.
    pub error_is_counted: bool,
    /// Reused memory for the keys of a script's commands.
    pub keys: Vec<KeyRef>,
}

impl ScriptMachine {
    /// Returns a machine with this memory limit.
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
            forgotten_seen: 0,
        })
    }

    /// Returns the bytes of memory that it uses.
    pub(crate) fn used_bytes(&self) -> usize {
        self.vm.used_bytes()
    }

    /// Returns the number of scripts that are loaded here.
    #[cfg(test)]
    pub(crate) fn script_count(&self) -> usize {
        self.scripts.len()
    }

    /// Returns a loaded script, with its handle.
    pub(crate) fn get(&mut self, digest: &ScriptDigest) -> Option<(&mut Vm, &Script, Loaded)> {
        let local = self.scripts.get(digest)?;
        Some((&mut self.vm, &local.script, local.loaded))
    }

    /// Loads the script that EVALSHA names. Returns `None` if it is unknown.
    pub(crate) fn by_name(&mut self, all: &Scripts, name: &[u8]) -> Result<Option<ScriptDigest>, Error> {
        let Some(digest) = digest_of(name) else { return Ok(None) };
        if self.has(&digest) {
            return Ok(Some(digest));
        }
        let Some(script) = all.find(&digest) else { return Ok(None) };
        self.load(script).map(Some)
    }

    /// Loads the script of a text, and makes a new one known to all threads. If it `stays`, only SCRIPT FLUSH removes
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
            // The text is checked first, because an invalid script must not be added.
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
        let digest = if self.has(&digest) { digest } else { self.load(script)? };
        self.by_text.insert(text_hash, digest);
        Ok(digest)
    }

    /// Returns a script that is loaded here, by its name or text.
    pub(crate) fn loaded(&self, name: &[u8], is_text: bool) -> Option<&Script> {
        let digest = if is_text { self.by_text.get(&hash(name)).copied() } else { digest_of(name) };
        Some(&self.scripts.get(&digest?)?.script)
    }

    /// Returns whether a script is loaded here and was not removed.
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

    /// Compiles a script that may run later. The run reports any error again.
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
        let first = self.compile_once(script);
        if self.scripts.is_empty() || !matches!(&first, Err(why) if why.is_memory) {
            return first.map_err(|why| why.error);
        }
        // Compiled scripts are a cache: they are unloaded for memory, and compiled again at their next call.
        self.unload_all();
        self.compile_once(script).map_err(|why| why.error)
    }

    fn compile_once(&mut self, script: &Script) -> Result<Loaded, NotCompiled> {
        let mut loading = Loading::within(COMPILING_US_MAX, None);
        let loaded = self.vm.load(&script.text[script.code_at..], c"@user_script", &mut loading);
        loaded.map_err(|error| {
            let why: &[u8] = if loading.is_late { b"it takes too long" } else { &error };
            let text = [b"ERR Error compiling script (new function): ", why].concat();
            NotCompiled { error: Error::quoting(text), is_memory: error == script::NOT_ENOUGH_MEMORY }
        })
    }

    fn load(&mut self, script: Arc<Script>) -> Result<ScriptDigest, Error> {
        let loaded = self.compile(&script)?;
        let digest = script.digest;
        self.insert(script, loaded);
        Ok(digest)
    }

    fn insert(&mut self, script: Arc<Script>, loaded: Loaded) {
        let digest = script.digest;
        if let Some(old) = self.scripts.insert(digest, LocalScript { loaded, script }) {
            self.vm.unload(old.loaded);
        }
        if self.by_text.len() > 2 * self.scripts.len() + TEXTS_MAX {
            self.by_text.clear();
        }
        self.leave_room_to_run(digest);
    }

    /// Unloads the other scripts if they leave less than half of the memory for running scripts.
    fn leave_room_to_run(&mut self, new: ScriptDigest) {
        if self.scripts.len() < GIVE_WAY_MIN || !self.vm.is_half_full() {
            return;
        }
        self.vm.collect();
        if self.vm.is_half_full() {
            let kept = self.scripts.remove(&new);
            self.unload_all();
            self.scripts.extend(kept.map(|kept| (new, kept)));
            self.vm.collect();
        }
    }

    fn unload(&mut self, digest: &ScriptDigest) {
        if let Some(local) = self.scripts.remove(digest) {
            self.vm.unload(local.loaded);
        }
    }

    /// Unloads all scripts: each is compiled again at its next call.
    fn unload_all(&mut self) {
        for (_, local) in self.scripts.drain() {
            self.vm.unload(local.loaded);
        }
        self.by_text.clear();
    }

    /// Loads a library, unloads it again, and returns the functions that it registers. Their handles are invalid
    /// afterwards.
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

    /// Unloads the scripts and libraries that were removed since the last call, so that they take no memory here.
    #[inline]
    pub(crate) fn follow(&mut self, scripts: &Scripts, libraries: &Libraries) {
        if scripts.removals() != self.forgotten_seen {
            self.follow_forgotten(scripts);
        }
        if libraries.removals() != self.removals_seen {
            self.follow_removals(libraries);
        }
    }

    #[cold]
    fn follow_forgotten(&mut self, scripts: &Scripts) {
        let (gone, forgotten) = scripts.gone_since(self.forgotten_seen);
        self.forgotten_seen = forgotten;
        let digests = match gone {
            Gone::Named(digests) => digests,
            Gone::Many => self.scripts.keys().copied().collect(),
        };
        let had = self.scripts.len();
        for digest in digests {
            self.has(&digest);
        }
        // The collector finds a smaller number while new scripts are compiled.
        if self.scripts.len() <= had / 2 {
            self.by_text.clear();
            self.vm.collect();
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

    /// Returns a function by its name, ignoring case, and loads its library if needed. Returns `None` if there is none.
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

    /// Loads a function's library ahead of a call. The call reports any error again.
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
            // Of two names that differ only in case, the first one is called.
            self.functions.entry(name.to_ascii_lowercase()).or_insert(function);
        }
        self.libraries.insert(library.name.clone(), LocalLibrary { library: library.clone(), loaded });
        Ok(())
    }

    /// Returns the remembered facts of a loaded function, and its library's text.
    pub(crate) fn profile_of_function(&self, name: &[u8]) -> Option<(&ScriptProfile, &[u8])> {
        let mut room = [0; SHORT_NAME_BYTES];
        self.local_function(&in_lower_case(name, &mut room))
            .map(|local| (&local.function().profile, &*local.library.text))
    }
}

/// The longest function name, in bytes, that a call looks up without an allocation.
const SHORT_NAME_BYTES: usize = 64;

/// Returns a name in lower case, in `room` if it fits.
fn in_lower_case<'r>(name: &[u8], room: &'r mut [u8; SHORT_NAME_BYTES]) -> Cow<'r, [u8]> {
    let Some(lower) = room.get_mut(..name.len()) else { return Cow::Owned(name.to_ascii_lowercase()) };
    lower.copy_from_slice(name);
    lower.make_ascii_lowercase();
    Cow::Borrowed(lower)
}

/// The time limit for loading a library, in microseconds, as in Redis.
const LOADING_US_MAX: f64 = 500_000.0;
/// The time limit for compiling a script, in microseconds: enough for some 20 MB. The thread does nothing else
/// meanwhile.
const COMPILING_US_MAX: f64 = 5_000_000.0;

/// The world of a script that is compiled, or of a library that is loaded: it can't run commands.
struct Loading<'e> {
    /// The server that logs its messages, if it is loaded for the first time.
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

    fn replicate(&mut self, _: bool, _: bool) {}

    fn error_returned(&mut self, _: &[u8], _: bool) {}
}
