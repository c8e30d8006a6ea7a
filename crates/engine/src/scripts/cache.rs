//! Which scripts there are, for all threads.
//!
//! What SCRIPT LOAD has loaded stays until SCRIPT FLUSH: a pipeline may count on it. What is known from EVAL only is
//! kept as long as there is room, and the least recently used goes first. When there is persistence, what
//! [`Scripts::loaded`] gives is what a snapshot holds and `Scripts::add` with `stays` is what reading one calls;
//! nothing else here knows.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use commands::error::Error;
use script::sha1::sha1_hex;

use super::foretell::names_whole_keyspace;
use super::rights::Rights;
use crate::command_table::Table;

/// Scripts known from EVAL only that are kept, as in Redis.
const TRANSIENT_MAX: usize = 500;
/// Bytes of their texts together.
const TRANSIENT_BYTES_MAX: usize = 16 * 1024 * 1024;
/// First runs that may be made alone in a second; see [`Scripts::may_learn`].
const LESSONS_PER_SECOND: u64 = 20;
/// The same within a moment, when an application starts.
const LESSONS_AT_ONCE: u64 = 500;

/// A script's name: its SHA-1 in hexadecimal digits, in lower case.
pub type ScriptDigest = [u8; 40];

/// A script, as all threads share it.
pub struct Script {
    /// Its name.
    pub digest: ScriptDigest,
    /// Its text.
    pub text: Box<[u8]>,
    /// What it may do.
    pub rights: Rights,
    /// Where its code begins: after the words of a shebang.
    pub code_at: usize,
    /// Whether it stays until SCRIPT FLUSH.
    stays: AtomicBool,
    /// Whether it has been forgotten: threads that still have it must not run it.
    pub(super) forgotten: AtomicBool,
    /// When it was used last, in ticks of any beginning.
    used_at: AtomicU64,
    /// How it runs.
    pub(crate) habits: Habits,
}

/// What is remembered of how a script or function runs.
#[derive(Debug, Default)]
pub(crate) struct Habits {
    /// Or need not, since its text tells.
    has_run: AtomicBool,
    reaches_beyond: AtomicBool,
}

impl Habits {
    /// Those of a script or library that has not run yet, as far as its text tells.
    pub(crate) fn foretold(commands: &Table, text: &[u8]) -> Habits {
        let reaches_beyond = names_whole_keyspace(commands, text);
        Habits { has_run: AtomicBool::new(reaches_beyond), reaches_beyond: AtomicBool::new(reaches_beyond) }
    }

    /// Whether it is yet to be learnt how it runs.
    pub(crate) fn are_unknown(&self) -> bool {
        !self.has_run.load(Ordering::Relaxed)
    }

    /// Whether it has reached beyond the keys that it declared.
    pub(crate) fn reaches_beyond(&self) -> bool {
        self.reaches_beyond.load(Ordering::Relaxed)
    }

    /// Notes how it has run.
    #[inline]
    pub(crate) fn note(&self, reaches_beyond: bool) {
        if self.are_unknown() || (reaches_beyond && !self.reaches_beyond()) {
            self.reaches_beyond.fetch_or(reaches_beyond, Ordering::Relaxed);
            self.has_run.store(true, Ordering::Relaxed);
        }
    }
}

impl Script {
    /// A script of this text; an error, if its shebang is wrong.
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
            habits: Habits::foretold(commands, text),
        })
    }

    /// Notes a use.
    #[inline]
    pub(crate) fn used(&self, now_ticks: u64) {
        self.used_at.store(now_ticks, Ordering::Relaxed);
    }

    /// Bytes that it takes, beside what machines make of it.
    fn memory_bytes(&self) -> usize {
        size_of::<Script>() + self.text.len()
    }
}

/// The scripts by their digests.
#[derive(Default)]
struct ScriptTable {
    by_digest: HashMap<ScriptDigest, Arc<Script>>,
    /// Those that may be forgotten, and the bytes of their texts.
    transient: usize,
    transient_bytes: usize,
    memory_bytes: usize,
}

impl ScriptTable {
    fn forget(&mut self, digest: &ScriptDigest) {
        let Some(script) = self.by_digest.remove(digest) else { return };
        script.forgotten.store(true, Ordering::Release);
        self.memory_bytes -= script.memory_bytes();
        if !script.stays.load(Ordering::Relaxed) {
            self.transient -= 1;
            self.transient_bytes -= script.text.len();
        }
    }

    fn least_recently_used(&self) -> Option<ScriptDigest> {
        let transient = self.by_digest.values().filter(|s| !s.stays.load(Ordering::Relaxed));
        transient.min_by_key(|s| s.used_at.load(Ordering::Relaxed)).map(|s| s.digest)
    }
}

/// See the module's documentation.
pub struct Scripts {
    commands: &'static Table,
    table: Mutex<ScriptTable>,
    evicted: AtomicU64,
    /// First runs made alone so far.
    lessons: AtomicU64,
}

/// How many scripts there are, and what they take.
#[derive(Clone, Copy, Debug, Default)]
pub struct ScriptFigures {
    /// Scripts.
    pub count: usize,
    /// Bytes of their texts and what belongs to them.
    pub memory_bytes: usize,
    /// Those that were forgotten to make room.
    pub evicted: u64,
}

impl Scripts {
    /// None yet. `commands` are those that texts may name.
    #[must_use]
    pub fn new(commands: &'static Table) -> Scripts {
        Scripts { commands, table: Mutex::default(), evicted: AtomicU64::new(0), lessons: AtomicU64::new(0) }
    }

    /// The commands that texts may name.
    pub(super) fn commands(&self) -> &'static Table {
        self.commands
    }

    fn table(&self) -> MutexGuard<'_, ScriptTable> {
        // What is behind the lock is always whole.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The script of this name.
    pub(super) fn find(&self, digest: &ScriptDigest) -> Option<Arc<Script>> {
        self.table().by_digest.get(digest).cloned()
    }

    /// The script of this text, or of this name.
    pub(crate) fn look_up(&self, name: &[u8], is_text: bool) -> Option<Arc<Script>> {
        let digest = if is_text { Some(digest_of_text(name)) } else { digest_of(name) };
        self.find(&digest?)
    }

    /// Whether there is a script of this name, in whatever case.
    #[must_use]
    pub fn exists(&self, name: &[u8]) -> bool {
        digest_of(name).is_some_and(|digest| self.table().by_digest.contains_key(&digest))
    }

    /// Adds a script that is known to be one. If it `stays`, only SCRIPT FLUSH removes it; if not, others that don't
    /// may have to make room for it.
    pub(super) fn add(&self, script: Script, stays: bool, now_ticks: u64) -> Arc<Script> {
        let table = &mut *self.table();
        let script = match table.by_digest.entry(script.digest) {
            Entry::Occupied(entry) => entry.get().clone(),
            Entry::Vacant(entry) => {
                table.memory_bytes += script.memory_bytes();
                table.transient += 1;
                table.transient_bytes += script.text.len();
                entry.insert(Arc::new(script)).clone()
            }
        };
        script.used(now_ticks);
        if stays && !script.stays.swap(true, Ordering::Relaxed) {
            table.transient -= 1;
            table.transient_bytes -= script.text.len();
        }
        while table.transient > TRANSIENT_MAX || (table.transient_bytes > TRANSIENT_BYTES_MAX && table.transient > 1) {
            let Some(digest) = table.least_recently_used() else { break };
            table.forget(&digest);
            self.evicted.fetch_add(1, Ordering::Relaxed);
        }
        script
    }

    /// Forgets all scripts.
    pub fn flush(&self) {
        let table = &mut *self.table();
        for script in table.by_digest.values() {
            script.forgotten.store(true, Ordering::Release);
        }
        *table = ScriptTable::default();
    }

    /// The texts of all scripts that stay: what persistence has to keep.
    #[must_use]
    pub fn loaded(&self) -> Vec<Box<[u8]>> {
        let table = self.table();
        table.by_digest.values().filter(|s| s.stays.load(Ordering::Relaxed)).map(|s| s.text.clone()).collect()
    }

    /// The text of a script.
    #[must_use]
    pub fn text(&self, name: &[u8]) -> Option<Box<[u8]>> {
        digest_of(name).and_then(|digest| self.find(&digest)).map(|script| script.text.clone())
    }

    /// How many scripts there are, and what they take.
    #[must_use]
    pub fn figures(&self) -> ScriptFigures {
        let table = self.table();
        ScriptFigures {
            count: table.by_digest.len(),
            memory_bytes: table.memory_bytes,
            evicted: self.evicted.load(Ordering::Relaxed),
        }
    }

    /// Counts those that are forgotten from 0 again (CONFIG RESETSTAT).
    pub fn reset_evicted(&self) {
        self.evicted.store(0, Ordering::Relaxed);
    }

    /// Whether a script's first run may be made alone, to learn how it runs. Not for too many scripts: that would stop
    /// all threads for each of them.
    pub(crate) fn may_learn(&self, uptime_s: u32) -> bool {
        let granted = LESSONS_AT_ONCE + u64::from(uptime_s) * LESSONS_PER_SECOND;
        // What was not used long ago is not saved up.
        let next = |used: u64| Some(used.max(granted - LESSONS_AT_ONCE) + 1).filter(|&used| used <= granted);
        self.lessons.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
    }
}

/// A name in lower case; none, if it is no digest.
pub(super) fn digest_of(name: &[u8]) -> Option<ScriptDigest> {
    let mut digest: ScriptDigest = name.try_into().ok()?;
    digest.make_ascii_lowercase();
    Some(digest)
}

/// The name of a text.
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
    fn what_was_loaded_stays_and_of_the_rest_the_least_recently_used_goes() {
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
    fn large_texts_make_each_other_room() {
        let scripts = Scripts::new(table());
        for i in 0..20 {
            add(&scripts, &format!("return {i} --{}", " ".repeat(1 << 20)), false, i);
        }
        let figures = scripts.figures();
        assert_eq!((figures.count, figures.evicted), (15, 5));
    }

    #[test]
    fn lessons_are_few_and_not_saved_up() {
        let scripts = Scripts::new(table());
        let granted = |uptime_s| (0..10_000).filter(|_| scripts.may_learn(uptime_s)).count() as u64;
        assert_eq!(granted(1_000_000), LESSONS_AT_ONCE);
        assert_eq!(granted(1_000_001), LESSONS_PER_SECOND);
    }
}
