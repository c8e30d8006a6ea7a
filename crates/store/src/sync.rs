//! The gate that every thread passes once per batch, and the lock of a shard.
//!
//! Both are small because they guard little. A shard's lock is held for one command and is nearly always uncontended.
//! Only commands that concern the whole keyspace close the gate. Under `cfg(loom)` both use loom's atomics, and their
//! tests run every interleaving.
//!
//! The order of acquisition is always the gate, then shards by ascending index. A thread inside the gate waits only for
//! shard locks, and the holder of a shard lock waits only for locks with a higher index, so there is no deadlock.
//!
//! A thread that keeps all others out may share its work: it admits other threads as helpers ([`Inside::let_helpers_in`]), and waits until
//! they have left before it opens the gate or leaves. Helpers pass a closed gate, so a thread that
//! waits to be alone does not block them. Like any thread inside, a helper waits only for shard locks.

#[cfg(loom)]
use loom::{
    hint,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence},
    thread,
};
use std::ptr;
#[cfg(not(loom))]
use std::{
    hint,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence},
    thread,
};

/// Rounds of busy waiting before a waiter yields its core: about a microsecond, longer than most commands hold a shard
/// and shorter than a thread switch.
const SPINS: u32 = if cfg!(loom) { 1 } else { 100 };
/// Rounds of yielding the core before a waiter sleeps. By then the holder is in a long command (SORT, SUNION of
/// millions).
const YIELDS: u32 = if cfg!(loom) { u32::MAX } else { 200 };

/// Rounds before a waiter first asks if it should give up: when it begins to yield its core, which may take
/// milliseconds per round on a busy machine. A waiter that may give up has its own deadline. In loom's models the other
/// threads finish during a wait, so the waiter asks at once.
const PATIENCE: u32 = if cfg!(loom) { 0 } else { SPINS };

/// Rounds for which a thread leaves an open lock to a thread that has waited for it: about ten microseconds.
const WAY_YIELDS: u32 = if cfg!(loom) { 1 } else { 30 };

/// A wait that becomes longer each time.
struct Backoff(u32);

impl Backoff {
    fn wait(&mut self) {
        self.0 = self.0.saturating_add(1);
        if self.0 < SPINS {
            hint::spin_loop();
        } else if self.0 < SPINS.saturating_add(YIELDS) {
            thread::yield_now();
        } else {
            #[cfg(not(loom))]
            thread::sleep(std::time::Duration::from_micros(50));
        }
    }

    /// Returns true once the wait is long enough to ask other questions.
    fn is_long(&self) -> bool {
        self.0 >= PATIENCE
    }
}

/// A lock of one word. It is unfair, which suits critical sections of a microsecond.
#[derive(Default)]
pub struct ShardLock {
    taken: AtomicBool,
    /// True if a thread has waited long for the lock since the last check. It guards nothing.
    was_waited_for: AtomicBool,
}

impl ShardLock {
    /// Returns an open lock.
    #[must_use]
    pub fn new() -> Self {
        ShardLock { taken: AtomicBool::new(false), was_waited_for: AtomicBool::new(false) }
    }

    /// Takes the lock, and waits as long as necessary.
    #[inline]
    pub fn lock(&self) {
        if !self.try_lock() {
            self.lock_contended();
        }
    }

    #[cold]
    fn lock_contended(&self) {
        let mut backoff = Backoff(0);
        loop {
            self.note_wait(&backoff);
            backoff.wait();
            // Look before trying: an exchange would pull the cache line away from the holder.
            if !self.taken.load(Ordering::Relaxed) && self.try_lock() {
                return;
            }
        }
    }

    /// Takes the lock and returns true, or returns false if the wait becomes long and `give_up` returns true.
    #[inline]
    pub fn lock_unless(&self, give_up: impl Fn() -> bool) -> bool {
        self.try_lock() || self.lock_contended_unless(&give_up)
    }

    #[cold]
    fn lock_contended_unless(&self, give_up: &dyn Fn() -> bool) -> bool {
        let mut backoff = Backoff(0);
        loop {
            if backoff.is_long() && give_up() {
                return false;
            }
            self.note_wait(&backoff);
            backoff.wait();
            if !self.taken.load(Ordering::Relaxed) && self.try_lock() {
                return true;
            }
        }
    }

    /// Notes a long wait, so that a thread that takes the lock repeatedly can give way.
    fn note_wait(&self, backoff: &Backoff) {
        if backoff.is_long() && !self.was_waited_for.load(Ordering::Relaxed) {
            self.was_waited_for.store(true, Ordering::Relaxed);
        }
    }

    /// Lets in a thread that has waited long, if it takes the lock within some microseconds. The caller has just opened
    /// the lock.
    pub fn give_way(&self) {
        if !self.was_waited_for.load(Ordering::Relaxed) {
            return;
        }
        self.was_waited_for.store(false, Ordering::Relaxed);
        for _ in 0..WAY_YIELDS {
            if self.taken.load(Ordering::Relaxed) {
                return;
            }
            thread::yield_now();
        }
    }

    /// Takes the lock if it becomes free within `tries` attempts, with ever longer pauses between them.
    pub fn try_lock_for(&self, tries: u32) -> bool {
        let mut backoff = Backoff(0);
        for _ in 0..tries {
            if !self.taken.load(Ordering::Relaxed) && self.try_lock() {
                return true;
            }
            backoff.wait();
        }
        false
    }

    /// Takes the lock if it is free.
    #[inline]
    pub fn try_lock(&self) -> bool {
        // A failed exchange writes nothing. A swap would store `true` at each attempt, and loom would then never run
        // out of stores for the other waiters to see.
        self.taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Opens the lock. Only its holder may call this.
    #[inline]
    pub fn unlock(&self) {
        self.taken.store(false, Ordering::Release);
    }
}

/// True while a thread is inside the gate. It has its own cache line, because every thread writes its own once per
/// batch.
#[repr(align(128))]
struct Presence {
    inside: AtomicBool,
}

/// Admits all threads at once, or one alone. It has its own cache lines, because some of its fields are written often.
#[repr(align(128))]
pub struct Gate {
    /// Number of threads that want the gate closed or have closed it. Threads outside wait while it is not zero.
    closing: AtomicUsize,
    /// Number of times that a thread has found the gate closed.
    waits: AtomicUsize,
    /// True while a thread that keeps the others out admits them as helpers.
    admits_helpers: AtomicBool,
    presences: Box<[Presence]>,
    /// The thread that is alone holds it.
    alone: ShardLock,
}

/// Proof of being inside, together with others or temporarily without them. Dropping it leaves the gate.
pub struct Inside<'g> {
    gate: &'g Gate,
    presence: &'g Presence,
    others: Others,
}

/// The other threads that may be inside.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Others {
    /// Any thread; also while this thread is a helper.
    Any,
    /// None: this thread has closed the gate to them.
    None,
    /// Only this thread's helpers: it has closed the gate to all others.
    Helpers,
}

/// Proof of being alone. Dropping it opens the gate.
pub struct Alone<'g> {
    gate: &'g Gate,
}

impl Gate {
    /// Returns a gate for `threads` threads, numbered from 0.
    #[must_use]
    pub fn new(threads: usize) -> Self {
        Gate {
            closing: AtomicUsize::new(0),
            waits: AtomicUsize::new(0),
            admits_helpers: AtomicBool::new(false),
            presences: (0..threads).map(|_| Presence { inside: AtomicBool::new(false) }).collect(),
            alone: ShardLock::new(),
        }
    }

    /// Passes the gate, and waits while it is closed. `thread` must not be inside already.
    #[inline]
    pub fn enter(&self, thread: usize) -> Inside<'_> {
        loop {
            if let Some(inside) = self.enter_unless(thread, || false) {
                return inside;
            }
        }
    }

    /// Like [`Gate::enter`], but returns None if the wait becomes long and `give_up` returns true.
    #[inline]
    pub fn enter_unless(&self, thread: usize, give_up: impl Fn() -> bool) -> Option<Inside<'_>> {
        let presence = &self.presences[thread];
        let mut backoff = Backoff(0);
        loop {
            presence.inside.store(true, Ordering::Relaxed);
            // Announce before looking: either this thread sees the gate closing, or the closing thread sees it inside.
            fence(Ordering::SeqCst);
            if self.closing.load(Ordering::Acquire) == 0 {
                return Some(Inside { gate: self, presence, others: Others::Any });
            }
            presence.inside.store(false, Ordering::Release);
            self.waits.fetch_add(1, Ordering::Relaxed);
            while self.closing.load(Ordering::Relaxed) != 0 {
                if backoff.is_long() && give_up() {
                    return None;
                }
                backoff.wait();
            }
        }
    }

    /// Returns true while a thread that keeps the others out admits helpers.
    #[inline]
    #[must_use]
    pub fn admits_helpers(&self) -> bool {
        self.admits_helpers.load(Ordering::Relaxed)
    }

    /// Passes the gate as a helper of the thread that keeps the others out, if it admits helpers now. Never waits.
    /// `thread` must not be inside already.
    pub fn enter_as_helper(&self, thread: usize) -> Option<Inside<'_>> {
        // Look first: usually no thread has helpers, and then this writes nothing.
        if !self.admits_helpers() {
            return None;
        }
        let presence = &self.presences[thread];
        presence.inside.store(true, Ordering::Relaxed);
        // Announce before looking, as in `enter_unless`: either this thread sees that helpers are no longer admitted, or
        // the owner sees it inside and waits for it.
        fence(Ordering::SeqCst);
        let helper = Inside { gate: self, presence, others: Others::Any };
        // If it is not returned, its drop leaves the gate.
        self.admits_helpers.load(Ordering::Acquire).then_some(helper)
    }

    /// Closes the gate and waits until all threads have left. The calling thread must not be inside.
    pub fn close(&self) -> Alone<'_> {
        self.closing.fetch_add(1, Ordering::SeqCst);
        self.alone.lock();
        let alone = Alone { gate: self };
        self.wait_for_all(&|| false);
        alone
    }

    /// Like [`Gate::close`], but opens the gate again and returns None if the wait becomes long and `give_up` returns
    /// true.
    pub fn close_unless(&self, give_up: impl Fn() -> bool) -> Option<Alone<'_>> {
        self.closing.fetch_add(1, Ordering::SeqCst);
        if !self.alone.lock_unless(&give_up) {
            self.closing.fetch_sub(1, Ordering::Release);
            return None;
        }
        // If it is not returned, its drop opens the gate.
        let alone = Alone { gate: self };
        self.wait_for_all(&give_up).then_some(alone)
    }

    /// Returns the number of times that a thread has found the gate closed. If the number changes, a thread has waited,
    /// perhaps only for a moment.
    #[inline]
    #[must_use]
    pub fn waits(&self) -> usize {
        self.waits.load(Ordering::Relaxed)
    }

    /// Returns true if a thread other than that of `presence` is inside.
    fn has_others(&self, presence: &Presence) -> bool {
        self.presences.iter().any(|other| !ptr::eq(other, presence) && other.inside.load(Ordering::Acquire))
    }

    /// Waits until no thread is inside and returns true, or returns false if `give_up` returns true.
    fn wait_for_all(&self, give_up: &dyn Fn() -> bool) -> bool {
        fence(Ordering::SeqCst);
        for presence in &self.presences {
            let mut backoff = Backoff(0);
            while presence.inside.load(Ordering::Acquire) {
                if backoff.is_long() && give_up() {
                    return false;
                }
                backoff.wait();
            }
        }
        true
    }
}

impl Inside<'_> {
    /// Closes the gate to all other threads while this one is inside, until [`Inside::let_in`]. Succeeds and returns
    /// true if no other thread is inside or wants to be alone. Never waits.
    ///
    /// Keep the time short, because all other threads wait meanwhile.
    pub fn keep_out(&mut self) -> bool {
        // Look first: while other threads are busy, this writes no cache line that they read.
        if self.others != Others::Any || self.gate.has_others(self.presence) {
            return self.keeps_out();
        }
        self.keep_out_within(0)
    }

    /// Like [`Inside::keep_out`], but waits for the threads that are inside: checks up to `looks` times, with ever
    /// longer pauses. No thread enters meanwhile.
    pub fn keep_out_within(&mut self, looks: u32) -> bool {
        let gate = self.gate;
        if self.others != Others::Any || gate.closing.load(Ordering::Relaxed) != 0 {
            return self.keeps_out();
        }
        let is_first = gate.closing.fetch_add(1, Ordering::SeqCst) == 0;
        // A thread that enters after this fence sees the gate closed; one that entered before it is seen here.
        fence(Ordering::SeqCst);
        let mut backoff = Backoff(0);
        // If another thread was first, that thread wants to be alone, or keeps others out while this one is entering.
        while is_first && backoff.0 < looks && gate.has_others(self.presence) {
            backoff.wait();
        }
        if is_first && !gate.has_others(self.presence) {
            self.others = Others::None;
        } else {
            gate.closing.fetch_sub(1, Ordering::Release);
        }
        self.keeps_out()
    }

    /// Opens the gate to the others again, if it was closed to them. No effect while there are helpers: call
    /// [`Inside::await_helpers`] first.
    #[inline]
    pub fn let_in(&mut self) {
        if self.others == Others::None {
            self.others = Others::Any;
            self.gate.closing.fetch_sub(1, Ordering::Release);
        }
    }

    /// Returns true if the gate is closed to all other threads, and no other thread is inside.
    #[inline]
    #[must_use]
    pub fn keeps_out(&self) -> bool {
        self.others == Others::None
    }

    /// Admits other threads as helpers, if this thread keeps them out. Returns true if it admits helpers now.
    pub fn let_helpers_in(&mut self) -> bool {
        if self.others == Others::None {
            self.others = Others::Helpers;
            self.gate.admits_helpers.store(true, Ordering::Release);
        }
        self.others == Others::Helpers
    }

    /// Stops admitting helpers, and waits until those inside have left. This thread sees all their writes from here on.
    /// The gate stays closed to the others.
    pub fn await_helpers(&mut self) {
        if self.others != Others::Helpers {
            return;
        }
        self.gate.admits_helpers.store(false, Ordering::Relaxed);
        // A helper that enters after this fence sees that it is not admitted; one that entered before it is seen here.
        fence(Ordering::SeqCst);
        let mut backoff = Backoff(0);
        while self.gate.has_others(self.presence) {
            backoff.wait();
        }
        self.others = Others::None;
    }
}

impl Drop for Inside<'_> {
    #[inline]
    fn drop(&mut self) {
        self.await_helpers();
        self.let_in();
        self.presence.inside.store(false, Ordering::Release);
    }
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        // Release the lock before opening the gate; otherwise the next closing thread would let others in between.
        self.gate.alone.unlock();
        self.gate.closing.fetch_sub(1, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::cell::UnsafeCell;
    use std::sync::Arc;

    use super::*;

    struct Unguarded(UnsafeCell<u64>);
    // SAFETY: the tests touch it only under the lock or the gate that they test.
    unsafe impl Sync for Unguarded {}

    const ROUNDS: u64 = if cfg!(miri) { 20 } else { 20_000 };

    #[test]
    fn a_lock_excludes() {
        let shared = Arc::new((ShardLock::new(), Unguarded(UnsafeCell::new(0))));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let shared = shared.clone();
                thread::spawn(move || {
                    for _ in 0..ROUNDS {
                        shared.0.lock();
                        // SAFETY: under the lock.
                        unsafe { *shared.1.0.get() += 1 };
                        shared.0.unlock();
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
        // SAFETY: all threads have ended.
        assert_eq!(unsafe { *shared.1.0.get() }, 4 * ROUNDS);
    }

    #[test]
    fn a_thread_that_keeps_others_out_is_the_only_one_inside() {
        let shared = Arc::new((Gate::new(3), Unguarded(UnsafeCell::new(0)), AtomicUsize::new(0)));
        let kept_out: Vec<_> = (0..3)
            .map(|id| {
                let shared = shared.clone();
                thread::spawn(move || {
                    let mut kept_out = 0;
                    for round in 0..ROUNDS {
                        if id == 0 && round % 8 == 0 {
                            let _alone = shared.0.close();
                            assert_eq!(shared.2.load(Ordering::Relaxed), 0);
                            continue;
                        }
                        let mut inside = shared.0.enter(id);
                        shared.2.fetch_add(1, Ordering::Relaxed);
                        if inside.keep_out() {
                            assert!(inside.keeps_out());
                            assert_eq!(shared.2.load(Ordering::Relaxed), 1);
                            // SAFETY: no other thread is inside.
                            unsafe { *shared.1.0.get() += 1 };
                            kept_out += 1;
                            if round % 2 == 0 {
                                inside.let_in();
                                assert!(!inside.keeps_out());
                            }
                        }
                        // The count decreases before the thread leaves, or before it lets others in.
                        shared.2.fetch_sub(1, Ordering::Relaxed);
                    }
                    kept_out
                })
            })
            .collect();
        let kept_out: u64 = kept_out.into_iter().map(|t| t.join().unwrap()).sum();
        // SAFETY: all threads have ended.
        assert_eq!(unsafe { *shared.1.0.get() }, kept_out);
        assert_eq!(shared.0.closing.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_thread_inside_or_waiting_to_be_alone_is_not_kept_out() {
        let gate = Gate::new(2);
        let mut first = gate.enter(0);
        let second = gate.enter(1);
        assert!(!first.keep_out());
        drop(second);
        assert!(first.keep_out() && first.keep_out());
        let waits = gate.waits();
        assert!(gate.enter_unless(1, || true).is_none());
        assert!(gate.waits() > waits);
        first.let_in();
        let mut second = gate.enter(1);
        drop(first);
        // A closed gate stands for a thread that waits to be alone.
        gate.closing.fetch_add(1, Ordering::SeqCst);
        assert!(!second.keep_out());
        gate.closing.fetch_sub(1, Ordering::SeqCst);
        assert!(second.keep_out());
        drop(second);
        assert!(gate.close_unless(|| true).is_some());
    }

    #[test]
    fn helpers_are_inside_until_they_are_awaited() {
        let gate = Gate::new(3);
        let mut owner = gate.enter(0);
        assert!(!owner.let_helpers_in() && gate.enter_as_helper(1).is_none());
        assert!(owner.keep_out() && gate.enter_as_helper(1).is_none());
        assert!(owner.let_helpers_in() && !owner.keeps_out() && !owner.keep_out());
        let mut helper = gate.enter_as_helper(1).unwrap();
        // Neither call opens the gate, and a helper keeps no thread out.
        owner.let_in();
        assert!(!helper.keep_out() && !helper.let_helpers_in());
        helper.let_in();
        assert!(gate.enter_unless(2, || true).is_none() && gate.close_unless(|| true).is_none());
        drop(helper);
        assert!(gate.enter_as_helper(2).is_some());
        owner.await_helpers();
        assert!(owner.keeps_out() && gate.enter_as_helper(1).is_none());
        owner.let_in();
        assert!(!owner.let_helpers_in() && gate.enter_unless(2, || true).is_some());
        assert!(owner.keep_out() && owner.let_helpers_in());
        drop(owner);
        assert!(gate.enter_as_helper(1).is_none() && gate.close_unless(|| true).is_some());
    }

    #[test]
    fn a_thread_waits_for_others_that_leave_soon() {
        let gate = Gate::new(2);
        let mut first = gate.enter(0);
        let second = gate.enter(1);
        assert!(!first.keep_out_within(10));
        assert_eq!(gate.closing.load(Ordering::Relaxed), 0);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                std::thread::sleep(std::time::Duration::from_millis(1));
                drop(second);
            });
            assert!(first.keep_out_within(u32::MAX));
        });
    }

    #[test]
    fn an_owner_sees_the_writes_of_helpers_that_have_left() {
        let shared = Arc::new((Gate::new(4), [0, 1, 2].map(|_| Unguarded(UnsafeCell::new(0)))));
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for id in 1..=2 {
                let (shared, is_over) = (shared.clone(), &is_over);
                scope.spawn(move || {
                    while !is_over.load(Ordering::Relaxed) {
                        if let Some(_guest) = shared.0.enter_as_helper(id) {
                            // SAFETY: only this helper touches it, and the owner does not until the helper has left.
                            unsafe { *shared.1[id].0.get() += 1 };
                        }
                        thread::yield_now();
                    }
                });
            }
            let (other, is_over) = (shared.clone(), &is_over);
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    let _alone = other.0.close();
                    // SAFETY: alone.
                    assert!(other.1.iter().all(|counter| unsafe { *counter.0.get() } == 0));
                }
            });
            let mut rounds = 0;
            while rounds < ROUNDS / 20 {
                let mut owner = shared.0.enter(0);
                if !owner.keep_out_within(100) {
                    continue;
                }
                rounds += 1;
                assert!(owner.let_helpers_in());
                // SAFETY: the helpers do not touch it.
                unsafe { *shared.1[0].0.get() += 1 };
                thread::yield_now();
                owner.await_helpers();
                // SAFETY: only the owner is inside.
                shared.1.iter().for_each(|counter| unsafe { *counter.0.get() = 0 });
            }
            is_over.store(true, Ordering::Relaxed);
        });
        assert_eq!(shared.0.closing.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn the_thread_that_closes_the_gate_is_alone() {
        let shared = Arc::new((Gate::new(3), Unguarded(UnsafeCell::new(0)), AtomicUsize::new(0)));
        let threads: Vec<_> = (0..3)
            .map(|id| {
                let shared = shared.clone();
                thread::spawn(move || {
                    for round in 0..ROUNDS {
                        if round % 8 == 0 {
                            let _alone = shared.0.close();
                            assert_eq!(shared.2.load(Ordering::Relaxed), 0);
                            // SAFETY: alone.
                            unsafe { *shared.1.0.get() += 1 };
                        } else {
                            let _inside = shared.0.enter(id);
                            shared.2.fetch_add(1, Ordering::Relaxed);
                            shared.2.fetch_sub(1, Ordering::Relaxed);
                        }
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
        // SAFETY: all threads have ended.
        assert_eq!(unsafe { *shared.1.0.get() }, 3 * ROUNDS.div_ceil(8));
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;

    use super::*;

    /// A gate, a lock, and the value that they guard.
    struct Shared {
        gate: Gate,
        lock: ShardLock,
        guarded: UnsafeCell<i32>,
    }

    impl Shared {
        /// Touches the guarded value.
        fn add(&self) {
            // SAFETY: the caller has exclusive access; loom checks that.
            self.guarded.with_mut(|p| unsafe { *p += 1 });
        }

        fn add_locked(&self) {
            self.lock.lock();
            self.add();
            self.lock.unlock();
        }
    }

    /// Runs both functions concurrently, in every interleaving. A thread that gives up must leave everything unchanged.
    fn race(threads: usize, mine: fn(&Shared), others: fn(&Shared)) {
        loom::model(move || {
            let gate = Gate::new(threads);
            let shared = Arc::new(Shared { gate, lock: ShardLock::new(), guarded: UnsafeCell::new(0) });
            let other = shared.clone();
            let thread = thread::spawn(move || others(&other));
            mine(&shared);
            thread.join().unwrap();
            assert!(shared.lock.try_lock());
            assert!(shared.gate.close_unless(|| true).is_some());
            assert!(shared.gate.enter_unless(0, || true).is_some());
        });
    }

    fn alone(shared: &Shared) {
        let _alone = shared.gate.close();
        shared.add();
    }

    fn alone_unless(shared: &Shared) {
        if let Some(_alone) = shared.gate.close_unless(|| true) {
            shared.add();
        }
    }

    fn inside(shared: &Shared) {
        let _inside = shared.gate.enter(0);
        shared.add();
    }

    fn inside_unless(shared: &Shared) {
        if let Some(_inside) = shared.gate.enter_unless(0, || true) {
            shared.add();
        }
    }

    /// Takes the lock, except while it keeps others out.
    fn keeping_out(shared: &Shared, thread: usize) {
        let mut inside = shared.gate.enter(thread);
        if inside.keep_out() {
            shared.add();
            inside.let_in();
        }
        shared.add_locked();
    }

    #[test]
    fn loom_a_lock_excludes() {
        race(1, Shared::add_locked, Shared::add_locked);
    }

    #[test]
    fn loom_a_closed_gate_admits_one_thread_alone() {
        race(1, alone, inside);
    }

    #[test]
    fn loom_giving_up_a_lock_leaves_it_as_it_was() {
        race(1, Shared::add_locked, |shared| {
            if shared.lock.lock_unless(|| true) {
                shared.add();
                shared.lock.unlock();
            }
        });
    }

    #[test]
    fn loom_a_thread_that_gives_up_passing_is_not_inside() {
        race(1, alone, inside_unless);
    }

    #[test]
    fn loom_giving_up_closing_leaves_the_gate_open() {
        race(1, alone_unless, inside);
    }

    #[test]
    fn loom_a_closer_that_gives_up_leaves_the_turn_to_another() {
        race(1, alone_unless, alone);
    }

    #[test]
    fn loom_a_thread_that_keeps_others_out_needs_no_lock() {
        race(2, |shared| keeping_out(shared, 0), |shared| keeping_out(shared, 1));
        race(
            2,
            |shared| keeping_out(shared, 0),
            |shared| {
                let _inside = shared.gate.enter(1);
                shared.add_locked();
            },
        );
    }

    #[test]
    fn loom_keeping_others_out_and_being_alone_take_turns() {
        race(1, |shared| keeping_out(shared, 0), alone);
    }

    /// One value for the owner and one for a helper.
    struct Rooms {
        gate: Gate,
        owner: UnsafeCell<i32>,
        helper: UnsafeCell<i32>,
    }

    impl Rooms {
        /// Touches both values; only for a thread with exclusive access.
        fn add_both(&self) {
            self.add_host();
            self.add_helper();
        }

        fn add_host(&self) {
            // SAFETY: the caller has exclusive access; loom checks that.
            self.owner.with_mut(|p| unsafe { *p += 1 });
        }

        fn add_helper(&self) {
            // SAFETY: the caller has exclusive access; loom checks that.
            self.helper.with_mut(|p| unsafe { *p += 1 });
        }
    }

    /// Admits a helper, and has exclusive access before and afterwards.
    fn hosting(rooms: &Rooms, sees_off: bool) {
        let mut owner = rooms.gate.enter(0);
        if owner.keep_out_within(1) {
            rooms.add_both();
            assert!(owner.let_helpers_in());
            rooms.add_host();
            if sees_off {
                owner.await_helpers();
                rooms.add_both();
            }
        }
    }

    /// Runs an owner and another thread concurrently, in every interleaving.
    fn beside_host(other: fn(&Rooms)) {
        for sees_off in [false, true] {
            loom::model(move || {
                let gate = Gate::new(2);
                let rooms = Arc::new(Rooms { gate, owner: UnsafeCell::new(0), helper: UnsafeCell::new(0) });
                let others = rooms.clone();
                let thread = thread::spawn(move || other(&others));
                hosting(&rooms, sees_off);
                thread.join().unwrap();
                assert!(rooms.gate.enter_as_helper(1).is_none());
                assert!(rooms.gate.close_unless(|| true).is_some());
            });
        }
    }

    #[test]
    fn loom_a_guest_has_left_when_its_host_has_exclusive_access() {
        beside_host(|rooms| {
            if let Some(_guest) = rooms.gate.enter_as_helper(1) {
                rooms.add_helper();
            }
        });
    }

    #[test]
    fn loom_a_thread_that_is_no_guest_is_inside_before_the_host_or_after_it() {
        beside_host(|rooms| {
            let mut inside = rooms.gate.enter(1);
            if inside.keep_out() {
                rooms.add_both();
            }
        });
    }

    #[test]
    fn loom_a_thread_that_is_alone_has_no_guests() {
        beside_host(|rooms| {
            let _alone = rooms.gate.close();
            rooms.add_both();
        });
    }

    #[test]
    fn loom_two_closers_take_turns() {
        race(1, alone, alone);
    }
}
