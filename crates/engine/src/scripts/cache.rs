//! The cache of scripts for all threads.
//!
//! Scripts from SCRIPT LOAD stay until SCRIPT FLUSH, because a pipeline may rely on them. Scripts known from EVAL only
//! are kept within a limit; the least recently used one goes first. A snapshot contains the scripts of
//! [`Scripts::loaded`]; a loaded snapshot adds them with `stays`.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use commands::error::Error;
use script::sha1::sha1_hex;

use super::removals::{Gone, Removals};
use super::rights::Rights;
use super::whole_keyspace::names_whole_keyspace;
use commands::table::Table;

/// The greatest number of scripts that are known from EVAL only, as in Redis.
const TRANSIENT_MAX: usize = 500;
/// The greatest sum of their texts' bytes.
const TRANSIENT_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The greatest number of first runs that are made alone in a second; see [`Scripts::may_learn`].
const TRIAL_RUNS_PER_SECOND: u64 = 20;
/// The greatest number of first runs alone in a burst, for the start of an application.
const TRIAL_RUNS_AT_ONCE: u64 = 500;

/// A script's name: its SHA-1 in lower-case hexadecimal digits.
pub type ScriptDigest = [u8; 40];

/// A script, shared by all threads.
pub struct Script {
    /// Its name.
    pub digest: ScriptDigest,
    /// Its text.
    pub text: Box<[u8]>,
    /// Its rights.
    pub rights: Rights,
    /// The start of its code, after a shebang.
    pub code_at: usize,
    /// True if it stays until SCRIPT FLUSH.
    stays: AtomicBool,
    /// True if it was removed: threads that still have it must not run it.
    pub(super) forgotten: AtomicBool,
    /// The time of its last use, in ticks.
    used_at: AtomicU64,
    /// The remembered facts of its runs.
    pub(crate) profile: ScriptProfile,
}

/// The remembered facts of the runs of a script or function.
#[derive(Debug, Default)]
pub(crate) struct ScriptProfile {
    /// True after its first run, or if its text makes that run unnecessary.
    has_run: AtomicBool,
    reaches_beyond: AtomicBool,
}

impl ScriptProfile {
    /// Returns the facts of a script or library before its first run, as far as its text shows them.
    pub(crate) fn predicted(commands: &Table, text: &[u8]) -> ScriptProfile {
        Self::of(names_whole_keyspace(commands, text))
    }

    /// Returns the facts before the first run, given whether the text names commands of the whole keyspace.
    fn of(reaches_beyond: bool) -> ScriptProfile {
        ScriptProfile { has_run: AtomicBool::new(reaches_beyond), reaches_beyond: AtomicBool::new(reaches_beyond) }
    }

    /// Returns the same facts, for another function of a library's text.
    pub(crate) fn again(&self) -> ScriptProfile {
        Self::of(self.reaches_beyond())
    }

    /// Returns whether the facts are unknown.
    pub(crate) fn are_unknown(&self) -> bool {
        !self.has_run.load(Ordering::Relaxed)
    }

    /// Returns whether it has accessed keys beyond the declared ones.
    pub(crate) fn reaches_beyond(&self) -> bool {
        self.reaches_beyond.load(Ordering::Relaxed)
    }

    /// Notes the facts of a run.
    #[inline]
    pub(crate) fn note(&self, reaches_beyond: bool) {
        if self.are_unknown() || (reaches_beyond && !self.reaches_beyond()) {
            self.reaches_beyond.fetch_or(reaches_beyond, Ordering::Relaxed);
            self.has_run.store(true, Ordering::Relaxed);
        }
    }
}

impl Script {
    /// Returns a script with this text, or an error if its shebang is wrong.
    pub(super) fn new(commands: &Table, digest: ScriptDigest, text: &[u8]) -> Result<Script, Error> {
        let (rights, code_at) = Rights::of_shebang(text)?;
        Ok(Script {
            digest,
            text: text.into(),
            rights,
            code_at,
            stays: AtomicBool::new(false),
            forgotten: AtomicBool::new(false),
            used_at: AtomicU64::new(0),
            profile: ScriptProfile::predicted(commands, text),
        })
    }

    /// Notes a use.
    #[inline]
    pub(crate) fn used(&self, now_ticks: u64) {
        self.used_at.store(now_ticks, Ordering::Relaxed);
    }

    /// Returns the bytes that it takes, without the machines' compiled forms.
    fn memory_bytes(&self) -> usize {
        size_of::<Script>() + self.text.len()
    }
}

/// The scripts by their digests.
#[derive(Default)]
struct ScriptTable {
    by_digest: HashMap<ScriptDigest, Arc<Script>>,
    /// The scripts that may be evicted, and the bytes of their texts.
    transient: Vec<Arc<Script>>,
    transient_bytes: usize,
    memory_bytes: usize,
    removals: Removals<ScriptDigest>,
}

impl ScriptTable {
    /// Evicts the least recently used transient script. Returns false if there is none.
    fn forget_one(&mut self) -> bool {
        let used_at = |(_, script): &(usize, &Arc<Script>)| script.used_at.load(Ordering::Relaxed);
        let Some((oldest, _)) = self.transient.iter().enumerate().min_by_key(used_at) else { return false };
        let script = self.transient.swap_remove(oldest);
        self.transient_bytes -= script.text.len();
        self.memory_bytes -= script.memory_bytes();
        self.by_digest.remove(&script.digest);
        self.note_forgotten(&script);
        true
    }

    fn note_forgotten(&mut self, script: &Script) {
        script.forgotten.store(true, Ordering::Release);
        self.removals.note(script.digest);
    }

    /// Keeps a script until SCRIPT FLUSH.
    fn keep(&mut self, script: &Arc<Script>) {
        if !script.stays.swap(true, Ordering::Relaxed) {
            self.transient.retain(|transient| !Arc::ptr_eq(transient, script));
            self.transient_bytes -= script.text.len();
        }
    }

    fn has_too_many(&self) -> bool {
        let count = self.transient.len();
        count > TRANSIENT_MAX || (self.transient_bytes > TRANSIENT_BYTES_MAX && count > 1)
    }
}

/// See the module's documentation.
pub struct Scripts {
    commands: &'static Table,
    table: Mutex<ScriptTable>,
    /// A copy of the number of removals behind the lock.
    removals: AtomicU64,
    evicted: AtomicU64,
    /// The number of first runs made alone so far.
    lessons: AtomicU64,
}

/// The number of scripts, and their memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct ScriptFigures {
    /// The number of scripts.
    pub count: usize,
    /// The bytes of their texts and descriptors.
    pub memory_bytes: usize,
    /// The number of evicted scripts.
    pub evicted: u64,
}

impl Scripts {
    /// An empty cache. `commands` are the commands that texts may name.
    #[must_use]
    pub fn new(commands: &'static Table) -> Scripts {
        Scripts {
            commands,
            table: Mutex::default(),
            removals: AtomicU64::new(0),
            evicted: AtomicU64::new(0),
            lessons: AtomicU64::new(0),
        }
    }

    /// Returns the commands that texts may name.
    pub(super) fn commands(&self) -> &'static Table {
        self.commands
    }

    fn table(&self) -> MutexGuard<'_, ScriptTable> {
        // No code panics with the value half changed, so a poisoned lock is harmless.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the script with this name.
    pub(super) fn find(&self, digest: &ScriptDigest) -> Option<Arc<Script>> {
        self.table().by_digest.get(digest).cloned()
    }

    /// Returns the script with this text or name.
    pub(crate) fn look_up(&self, name: &[u8], is_text: bool) -> Option<Arc<Script>> {
        let digest = if is_text { Some(digest_of_text(name)) } else { digest_of(name) };
        self.find(&digest?)
    }

    /// Returns whether there is a script with this name, ignoring case.
    #[must_use]
    pub fn exists(&self, name: &[u8]) -> bool {
        digest_of(name).is_some_and(|digest| self.table().by_digest.contains_key(&digest))
    }

    /// Adds a script that has been compiled. If it `stays`, only SCRIPT FLUSH removes it; otherwise it may evict other
    /// transient scripts.
    pub(super) fn add(&self, script: Script, stays: bool, now_ticks: u64) -> Arc<Script> {
        let table = &mut *self.table();
        let script = match table.by_digest.entry(script.digest) {
            Entry::Occupied(entry) => entry.get().clone(),
            Entry::Vacant(entry) => {
                let script = Arc::new(script);
                table.memory_bytes += script.memory_bytes();
                table.transient_bytes += script.text.len();
                table.transient.push(script.clone());
                entry.insert(script).clone()
            }
        };
        script.used(now_ticks);
        if stays {
            table.keep(&script);
        }
        while table.has_too_many() && table.forget_one() {
            self.evicted.fetch_add(1, Ordering::Relaxed);
        }
        self.removals.store(table.removals.count(), Ordering::Release);
        script
    }

    /// Removes all scripts.
    pub fn flush(&self) {
        let table = &mut *self.table();
        let flushed = std::mem::take(&mut table.by_digest);
        flushed.values().for_each(|script| table.note_forgotten(script));
        *table = ScriptTable { removals: std::mem::take(&mut table.removals), ..ScriptTable::default() };
        self.removals.store(table.removals.count(), Ordering::Release);
    }

    /// Returns the number of removals.
    #[inline]
    pub(super) fn removals(&self) -> u64 {
        self.removals.load(Ordering::Acquire)
    }

    /// Returns the scripts that were removed after the first `seen` removals, and the number of removals now.
    pub(super) fn gone_since(&self, seen: u64) -> (Gone<ScriptDigest>, u64) {
        let table = self.table();
        (table.removals.since(seen), table.removals.count())
    }

    /// Returns the texts of all scripts that stay, for persistence.
    #[must_use]
    pub fn loaded(&self) -> Vec<Box<[u8]>> {
        let table = self.table();
        table.by_digest.values().filter(|s| s.stays.load(Ordering::Relaxed)).map(|s| s.text.clone()).collect()
    }

    /// Returns the text of a script.
    #[must_use]
    pub fn text(&self, name: &[u8]) -> Option<Box<[u8]>> {
        digest_of(name).and_then(|digest| self.find(&digest)).map(|script| script.text.clone())
    }

    /// Returns the number of scripts, and their memory.
    #[must_use]
    pub fn figures(&self) -> ScriptFigures {
        let table = self.table();
        ScriptFigures {
            count: table.by_digest.len(),
            memory_bytes: table.memory_bytes,
            evicted: self.evicted.load(Ordering::Relaxed),
        }
    }

    /// Sets the number of evicted scripts back to 0 (CONFIG RESETSTAT).
    pub fn reset_evicted(&self) {
        self.evicted.store(0, Ordering::Relaxed);
    }

    /// Returns whether a script's first run may be made alone, to learn its behavior. These runs are limited because
    /// each stops all threads.
    pub(crate) fn may_learn(&self, uptime_s: u32) -> bool {
        let granted = TRIAL_RUNS_AT_ONCE + u64::from(uptime_s) * TRIAL_RUNS_PER_SECOND;
        // Unused permissions from long ago expire.
        let next = |used: u64| Some(used.max(granted - TRIAL_RUNS_AT_ONCE) + 1).filter(|&used| used <= granted);
        self.lessons.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
    }
}

/// Returns a name in lower case, or `None` if it is no digest.
pub(super) fn digest_of(name: &[u8]) -> Option<ScriptDigest> {
    let mut digest: ScriptDigest = name.try_into().ok()?;
    digest.make_ascii_lowercase();
    Some(digest)
}

/// Returns the name of a text.
pub(crate) fn digest_of_text(text: &[u8]) -> ScriptDigest {
    sha1_hex(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::table;

    fn add(scripts: &Scripts, text: &str, stays: bool, now: u64) -> Arc<Script> {
        let text = text.as_bytes();
        scripts.add(Script::new(table(), digest_of_text(text), text).unwrap(), stays, now)
    }

    #[test]
    fn loaded_scripts_stay_and_the_least_recently_used_other_is_evicted() {
        let scripts = Scripts::new(table());
        let loaded = add(&scripts, "return 'loaded'", true, 0);
        let old = add(&scripts, "return 'old'", false, 1);
        let used = add(&scripts, "return 'used'", false, 2);
        for i in 2..TRANSIENT_MAX {
            add(&scripts, &format!("return {i}"), false, 3);
        }
        used.used(4);
        assert_eq!((scripts.figures().count, scripts.figures().evicted), (TRANSIENT_MAX + 1, 0));
        add(&scripts, "return 'new'", false, 5);
        assert_eq!((scripts.figures().count, scripts.figures().evicted), (TRANSIENT_MAX + 1, 1));
        assert!(scripts.exists(&loaded.digest) && scripts.exists(&used.digest) && !scripts.exists(&old.digest));
        assert!(old.forgotten.load(Ordering::Relaxed));
        add(&scripts, "return 'used'", true, 6);
        for i in 0..TRANSIENT_MAX {
            add(&scripts, &format!("return -{i}"), false, 7);
        }
        assert!(scripts.exists(&used.digest), "loaded later");
        assert_eq!(scripts.loaded().len(), 2);
        scripts.flush();
        assert!(!scripts.exists(&loaded.digest) && loaded.forgotten.load(Ordering::Relaxed));
        assert_eq!((scripts.figures().count, scripts.figures().memory_bytes), (0, 0));
    }

    #[test]
    fn large_texts_evict_each_other() {
        let scripts = Scripts::new(table());
        for i in 0..20 {
            add(&scripts, &format!("return {i} --{}", " ".repeat(1 << 20)), false, i);
        }
        let figures = scripts.figures();
        assert_eq!((figures.count, figures.evicted), (15, 5));
    }

    #[test]
    fn first_runs_alone_are_limited_and_not_saved_up() {
        let scripts = Scripts::new(table());
        let granted = |uptime_s| (0..10_000).filter(|_| scripts.may_learn(uptime_s)).count() as u64;
        assert_eq!(granted(1_000_000), TRIAL_RUNS_AT_ONCE);
        assert_eq!(granted(1_000_001), TRIAL_RUNS_PER_SECOND);
    }
}
