//! The gate that every thread passes once per batch, and the lock of a shard.
//!
//! Both are small because they guard little: a shard's lock is held for one command, nearly always uncontended, and
//! the gate is closed only by commands that concern the whole keyspace. Under `cfg(loom)` they are built from loom's
//! atomics, and their tests run every interleaving.
//!
//! Order of acquisition, everywhere: the gate, then shards by ascending index. A thread inside the gate waits for
//! nothing but shard locks, and the holder of a shard lock waits for nothing but those of a higher index, so there is
//! no deadlock.
//!
//! A thread that keeps all others out may share its work: it lets them in as its guests ([`Inside::let_guests_in`]) and sees them off
//! before it opens the gate or leaves. Guests pass the gate though it is closed, so a thread that waits to be alone holds none of them up.
//! A guest waits for nothing but shard locks, as any thread inside.

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

/// Turns of busy waiting before a waiter gives its core away: about a microsecond, longer than most commands hold a
/// shard, shorter than a switch of threads.
const SPINS: u32 = if cfg!(loom) { 1 } else { 100 };
/// Turns of giving the core away before a waiter sleeps: the holder is then in a long command (SORT, SUNION of
/// millions).
const YIELDS: u32 = if cfg!(loom) { u32::MAX } else { 200 };

/// Turns after which a waiter looks whether to give up: when it begins to give its core away, which on a busy machine
/// may be for milliseconds each time. A waiter that may give up passes its own deadline. In loom's models the other
/// threads end what they do while one waits, so it looks at once.
const PATIENCE: u32 = if cfg!(loom) { 0 } else { SPINS };

/// Turns for which a thread leaves an open lock to one that has waited for it: about ten microseconds.
const WAY_YIELDS: u32 = if cfg!(loom) { 1 } else { 30 };

/// Waits a little longer each time.
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

    /// Whether it is time to look at other things.
    fn is_long(&self) -> bool {
        self.0 >= PATIENCE
    }
}

/// A lock of one word. It is unfair, which suits critical sections of a microsecond.
#[derive(Default)]
pub struct ShardLock {
    taken: AtomicBool,
    /// True if a thread has waited for the lock for long since this was last looked at. It guards nothing.
    was_waited_for: AtomicBool,
}

impl ShardLock {
    /// An open lock.
    #[must_use]
    pub fn new() -> Self {
        ShardLock { taken: AtomicBool::new(false), was_waited_for: AtomicBool::new(false) }
    }

    /// Takes the lock, waiting as long as it takes.
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

    /// Takes the lock, unless the wait becomes long and `give_up` says so. Says whether it is taken.
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

    /// Notes a wait when it has become long, so that a thread that takes the lock again and again can give way.
    fn note_wait(&self, backoff: &Backoff) {
        if backoff.is_long() && !self.was_waited_for.load(Ordering::Relaxed) {
            self.was_waited_for.store(true, Ordering::Relaxed);
        }
    }

    /// Lets a thread in that has waited for long, if it takes the lock within some microseconds. The caller has just opened the lock.
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

    /// Takes the lock if it is free or becomes so before it has been looked at `tries` times, with ever longer pauses.
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
        // An exchange that fails writes nothing. A swap would store `true` once more at each attempt, and loom then
        // never runs out of stores for the other waiters to see.
        self.taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Opens the lock. Only its holder may.
    #[inline]
    pub fn unlock(&self) {
        self.taken.store(false, Ordering::Release);
    }
}

/// Whether a thread is inside the gate, on a cache line of its own: every thread writes its own once per batch.
#[repr(align(128))]
struct Presence {
    inside: AtomicBool,
}

/// Lets every thread in at once, or one alone. On cache lines of its own, since some of it is written often.
#[repr(align(128))]
pub struct Gate {
    /// How many want or have the gate closed; threads outside wait while it isn't zero.
    closing: AtomicUsize,
    /// How often a thread has found the gate closed.
    waits: AtomicUsize,
    /// True while a thread that keeps the others out has them in as guests.
    has_guests: AtomicBool,
    presences: Box<[Presence]>,
    /// Held by the one that is alone.
    alone: ShardLock,
}

/// Proof of being inside, together with others or, for a while, without; leaving is dropping it.
pub struct Inside<'g> {
    gate: &'g Gate,
    presence: &'g Presence,
    others: Others,
}

/// Which other threads may be inside.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Others {
    /// Any, or this thread is a guest.
    Any,
    /// None: this thread has closed the gate to them.
    None,
    /// This thread's guests: it has closed the gate to all others.
    Guests,
}

/// Proof of being alone; opening the gate is dropping it.
pub struct Alone<'g> {
    gate: &'g Gate,
}

impl Gate {
    /// A gate for `threads` threads, numbered from 0.
    #[must_use]
    pub fn new(threads: usize) -> Self {
        Gate {
            closing: AtomicUsize::new(0),
            waits: AtomicUsize::new(0),
            has_guests: AtomicBool::new(false),
            presences: (0..threads).map(|_| Presence { inside: AtomicBool::new(false) }).collect(),
            alone: ShardLock::new(),
        }
    }

    /// Passes the gate, waiting while it is closed. `thread` must not be inside already.
    #[inline]
    pub fn enter(&self, thread: usize) -> Inside<'_> {
        loop {
            if let Some(inside) = self.enter_unless(thread, || false) {
                return inside;
            }
        }
    }

    /// The same, unless the wait becomes long and `give_up` says so.
    #[inline]
    pub fn enter_unless(&self, thread: usize, give_up: impl Fn() -> bool) -> Option<Inside<'_>> {
        let presence = &self.presences[thread];
        let mut backoff = Backoff(0);
        loop {
            presence.inside.store(true, Ordering::Relaxed);
            // Announce before looking, so that either this thread sees the gate closing or the closer sees it inside.
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

    /// Whether a thread that keeps the others out lets guests in now.
    #[inline]
    #[must_use]
    pub fn has_guests(&self) -> bool {
        self.has_guests.load(Ordering::Relaxed)
    }

    /// Passes the gate as a guest of the thread that keeps the others out, if that lets guests in now. Never waits. `thread` must not
    /// be inside already.
    pub fn enter_as_guest(&self, thread: usize) -> Option<Inside<'_>> {
        // A look first: mostly no thread has guests, and then nothing is written.
        if !self.has_guests() {
            return None;
        }
        let presence = &self.presences[thread];
        presence.inside.store(true, Ordering::Relaxed);
        // Announce before looking, as in `enter_unless`: either this thread sees that no guests are wanted any more, or the thread that
        // sees them off sees it inside.
        fence(Ordering::SeqCst);
        let guest = Inside { gate: self, presence, others: Others::Any };
        // Dropped, it leaves.
        self.has_guests.load(Ordering::Acquire).then_some(guest)
    }

    /// Closes the gate and waits until all threads have left. The calling thread must not be inside.
    pub fn close(&self) -> Alone<'_> {
        self.closing.fetch_add(1, Ordering::SeqCst);
        self.alone.lock();
        let alone = Alone { gate: self };
        self.wait_for_all(&|| false);
        alone
    }

    /// The same, unless the wait becomes long and `give_up` says so; then the gate is open again.
    pub fn close_unless(&self, give_up: impl Fn() -> bool) -> Option<Alone<'_>> {
        self.closing.fetch_add(1, Ordering::SeqCst);
        if !self.alone.lock_unless(&give_up) {
            self.closing.fetch_sub(1, Ordering::Release);
            return None;
        }
        // Dropped, it opens the gate.
        let alone = Alone { gate: self };
        self.wait_for_all(&give_up).then_some(alone)
    }

    /// How often a thread has found the gate closed. If the number changes, a thread has waited, if only for a moment.
    #[inline]
    #[must_use]
    pub fn waits(&self) -> usize {
        self.waits.load(Ordering::Relaxed)
    }

    /// Whether a thread other than that of `presence` is inside.
    fn has_others(&self, presence: &Presence) -> bool {
        self.presences.iter().any(|other| !ptr::eq(other, presence) && other.inside.load(Ordering::Acquire))
    }

    /// Waits until no thread is inside, or `give_up` says so. True if none is.
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
    /// Closes the gate to all other threads while this one is inside, until [`Inside::let_in`], if no other is inside or
    /// wants to be alone. True if it has. Never waits.
    ///
    /// For what is done quickly: others wait meanwhile, whatever they want.
    pub fn keep_out(&mut self) -> bool {
        // A look first: where others are busy, too, no line that they read is written.
        if self.others != Others::Any || self.gate.has_others(self.presence) {
            return self.keeps_out();
        }
        self.keep_out_within(0)
    }

    /// The same, but looks up to `looks` times, with ever longer pauses, whether the others that are inside have left. None enters
    /// meanwhile.
    pub fn keep_out_within(&mut self, looks: u32) -> bool {
        let gate = self.gate;
        if self.others != Others::Any || gate.closing.load(Ordering::Relaxed) != 0 {
            return self.keeps_out();
        }
        let is_first = gate.closing.fetch_add(1, Ordering::SeqCst) == 0;
        // A thread that enters after this fence sees the gate closed; one that entered before it is seen here.
        fence(Ordering::SeqCst);
        let mut backoff = Backoff(0);
        // If it isn't the first, another thread wants to be alone, or keeps others out while this one is entering.
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

    /// Opens the gate to the others again, if it was closed to them. Without effect while there are guests: see them off first.
    #[inline]
    pub fn let_in(&mut self) {
        if self.others == Others::None {
            self.others = Others::Any;
            self.gate.closing.fetch_sub(1, Ordering::Release);
        }
    }

    /// True if the gate is closed to all other threads, and none of them is inside.
    #[inline]
    #[must_use]
    pub fn keeps_out(&self) -> bool {
        self.others == Others::None
    }

    /// Lets other threads in as guests, if this one keeps them out. True if it does.
    pub fn let_guests_in(&mut self) -> bool {
        if self.others == Others::None {
            self.others = Others::Guests;
            self.gate.has_guests.store(true, Ordering::Release);
        }
        self.others == Others::Guests
    }

    /// Lets no more guests in, and waits until those that are inside have left. What they did is seen from here on, and the gate stays
    /// closed to the others.
    pub fn see_guests_off(&mut self) {
        if self.others != Others::Guests {
            return;
        }
        self.gate.has_guests.store(false, Ordering::Relaxed);
        // A guest that enters after this fence sees that it isn't wanted; one that entered before it is seen here.
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
        self.see_guests_off();
        self.let_in();
        self.presence.inside.store(false, Ordering::Release);
    }
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        // Hand the turn on before the gate opens, or the next closer would let others in between.
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
                        // The count goes down before the thread leaves, or before it lets others in.
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
        // One that waits to be alone is told by a closed gate.
        gate.closing.fetch_add(1, Ordering::SeqCst);
        assert!(!second.keep_out());
        gate.closing.fetch_sub(1, Ordering::SeqCst);
        assert!(second.keep_out());
        drop(second);
        assert!(gate.close_unless(|| true).is_some());
    }

    #[test]
    fn guests_are_inside_until_they_are_seen_off() {
        let gate = Gate::new(3);
        let mut host = gate.enter(0);
        assert!(!host.let_guests_in() && gate.enter_as_guest(1).is_none());
        assert!(host.keep_out() && gate.enter_as_guest(1).is_none());
        assert!(host.let_guests_in() && !host.keeps_out() && !host.keep_out());
        let mut guest = gate.enter_as_guest(1).unwrap();
        // Neither opens the gate, and a guest keeps out none.
        host.let_in();
        assert!(!guest.keep_out() && !guest.let_guests_in());
        guest.let_in();
        assert!(gate.enter_unless(2, || true).is_none() && gate.close_unless(|| true).is_none());
        drop(guest);
        assert!(gate.enter_as_guest(2).is_some());
        host.see_guests_off();
        assert!(host.keeps_out() && gate.enter_as_guest(1).is_none());
        host.let_in();
        assert!(!host.let_guests_in() && gate.enter_unless(2, || true).is_some());
        assert!(host.keep_out() && host.let_guests_in());
        drop(host);
        assert!(gate.enter_as_guest(1).is_none() && gate.close_unless(|| true).is_some());
    }

    #[test]
    fn others_that_leave_soon_are_waited_for() {
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
    fn the_work_of_guests_is_done_when_they_are_seen_off() {
        let shared = Arc::new((Gate::new(4), [0, 1, 2].map(|_| Unguarded(UnsafeCell::new(0)))));
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for id in 1..=2 {
                let (shared, is_over) = (shared.clone(), &is_over);
                scope.spawn(move || {
                    while !is_over.load(Ordering::Relaxed) {
                        if let Some(_guest) = shared.0.enter_as_guest(id) {
                            // SAFETY: of the guests, this one alone touches it, and its host doesn't until the guest has left.
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
                let mut host = shared.0.enter(0);
                if !host.keep_out_within(100) {
                    continue;
                }
                rounds += 1;
                assert!(host.let_guests_in());
                // SAFETY: the guests don't touch it.
                unsafe { *shared.1[0].0.get() += 1 };
                thread::yield_now();
                host.see_guests_off();
                // SAFETY: none but the host is inside.
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

    /// A gate, a lock, and what they guard.
    struct Shared {
        gate: Gate,
        lock: ShardLock,
        guarded: UnsafeCell<i32>,
    }

    impl Shared {
        /// Touches what is guarded.
        fn add(&self) {
            // SAFETY: the caller has it to itself; loom checks that.
            self.guarded.with_mut(|p| unsafe { *p += 1 });
        }

        fn add_locked(&self) {
            self.lock.lock();
            self.add();
            self.lock.unlock();
        }
    }

    /// Runs both beside each other, in every interleaving; a thread that gives up must leave all as it was.
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

    /// Takes the lock, but while it keeps others out.
    fn keeping_out(shared: &Shared, thread: usize) {
        let mut inside = shared.gate.enter(thread);
        if inside.keep_out() {
            shared.add();
            inside.let_in();
        }
        shared.add_locked();
    }

    #[test]
    fn loom_lock_excludes() {
        race(1, Shared::add_locked, Shared::add_locked);
    }

    #[test]
    fn loom_gate_lets_one_in_alone() {
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

    /// What is guarded, and what a guest has for itself meanwhile.
    struct Rooms {
        gate: Gate,
        host: UnsafeCell<i32>,
        guest: UnsafeCell<i32>,
    }

    impl Rooms {
        /// Touches both, which is for the thread that has all to itself.
        fn add_both(&self) {
            self.add_host();
            self.add_guest();
        }

        fn add_host(&self) {
            // SAFETY: the caller has it to itself; loom checks that.
            self.host.with_mut(|p| unsafe { *p += 1 });
        }

        fn add_guest(&self) {
            // SAFETY: the caller has it to itself; loom checks that.
            self.guest.with_mut(|p| unsafe { *p += 1 });
        }
    }

    /// Has a guest in beside it, and has all to itself before and afterwards.
    fn hosting(rooms: &Rooms, sees_off: bool) {
        let mut host = rooms.gate.enter(0);
        if host.keep_out_within(1) {
            rooms.add_both();
            assert!(host.let_guests_in());
            rooms.add_host();
            if sees_off {
                host.see_guests_off();
                rooms.add_both();
            }
        }
    }

    /// Runs a host and another thread beside each other, in every interleaving.
    fn beside_host(other: fn(&Rooms)) {
        for sees_off in [false, true] {
            loom::model(move || {
                let gate = Gate::new(2);
                let rooms = Arc::new(Rooms { gate, host: UnsafeCell::new(0), guest: UnsafeCell::new(0) });
                let others = rooms.clone();
                let thread = thread::spawn(move || other(&others));
                hosting(&rooms, sees_off);
                thread.join().unwrap();
                assert!(rooms.gate.enter_as_guest(1).is_none());
                assert!(rooms.gate.close_unless(|| true).is_some());
            });
        }
    }

    #[test]
    fn loom_a_guest_has_left_when_its_host_has_all_to_itself() {
        beside_host(|rooms| {
            if let Some(_guest) = rooms.gate.enter_as_guest(1) {
                rooms.add_guest();
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
    fn loom_to_be_alone_is_to_be_without_guests() {
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
