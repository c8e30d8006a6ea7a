//! Readiness of sockets: the interface that the loop needs, and its implementation by epoll.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use engine::inbox::Wake;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::io::Errno;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime};

use crate::log;

/// The events of a descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ready {
    /// The token given when it was added.
    pub token: u64,
    /// There is input, or the peer has gone.
    pub read: bool,
    /// There is room to write.
    pub write: bool,
}

/// Waits for descriptors to become ready. An implementation belongs to one thread.
pub trait Poller {
    /// Begins to watch a descriptor for reading.
    fn add(&self, fd: BorrowedFd<'_>, token: u64) -> io::Result<()>;
    /// Sets the events that are watched for a descriptor. Don't watch for input after its end, or while input isn't read: level-triggered
    /// polling reports it again and again. A broken connection is always reported, as readable.
    fn watch(&self, fd: BorrowedFd<'_>, token: u64, read: bool, write: bool) -> io::Result<()>;
    /// Stops watching a descriptor.
    fn remove(&self, fd: BorrowedFd<'_>);
    /// Waits for a ready descriptor, the waker, a tick or the timeout, and replaces the contents of `ready`.
    fn wait(&mut self, timeout: Option<Duration>, ready: &mut Vec<Ready>) -> io::Result<()>;
    /// Returns true if a tick has come since the last call.
    fn take_tick(&mut self) -> bool;
    /// Sets the interval of ticks from now on. Free of cost if unchanged.
    fn tick_every(&mut self, interval: Duration);
    /// Notes that the reasons for a wake-up are being handled.
    fn take_wake(&mut self);
    /// Returns true if a tick or the waker has ended a wait and not been taken yet: there is work before the next wait.
    fn is_roused(&self) -> bool;
}

/// Default interval at which a poller ends a wait for timed work. It has a timer of its own. A limit for each wait would cost a look at the
/// clock and a kernel timer for every few requests of clients that don't pipeline.
pub const TICK: Duration = Duration::from_millis(100);
/// The token of the descriptor that wakes the thread.
const WAKE: u64 = u64::MAX;
/// The token of the timer.
const TIMER: u64 = u64::MAX - 1;
/// Events taken from the kernel at once. The rest follows in the next turn.
const EVENTS_AT_ONCE: usize = 512;

/// Linux's epoll, level-triggered: unread input and unused room are announced again.
pub struct Epoll {
    epoll: OwnedFd,
    wake: WakeFd,
    timer: OwnedFd,
    interval: Duration,
    ticked: bool,
    woken: bool,
    events: Vec<epoll::Event>,
}

/// The waker of a polling thread. It is made before the thread, and the other threads know it from the beginning.
pub struct WakeFd(OwnedFd);

impl WakeFd {
    /// Returns a new descriptor.
    pub fn new() -> io::Result<WakeFd> {
        Ok(WakeFd(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Returns a duplicate for another owner.
    pub fn try_clone(&self) -> io::Result<WakeFd> {
        Ok(WakeFd(self.0.as_fd().try_clone_to_owned()?))
    }
}

impl Wake for WakeFd {
    fn wake(&self) {
        // The counter can't overflow in practice, and a full one wakes the thread as well.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }
}

impl Epoll {
    /// Returns a poller that watches only its waker and its timer.
    pub fn new(wake: WakeFd) -> io::Result<Epoll> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &wake.0, EventData::new_u64(WAKE), EventFlags::IN)?;
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        go_off_every(&timer, TICK)?;
        epoll::add(&epoll, &timer, EventData::new_u64(TIMER), EventFlags::IN)?;
        let events = Vec::with_capacity(EVENTS_AT_ONCE);
        Ok(Epoll { epoll, wake, timer, interval: TICK, ticked: false, woken: false, events })
    }
}

/// Sets a periodic timer, with the first event after one interval.
fn go_off_every(timer: &OwnedFd, interval: Duration) -> io::Result<()> {
    let interval = timespec(interval);
    timerfd_settime(timer, TimerfdTimerFlags::empty(), &Itimerspec { it_interval: interval, it_value: interval })?;
    Ok(())
}

fn timespec(duration: Duration) -> Timespec {
    Timespec { tv_sec: duration.as_secs() as i64, tv_nsec: i64::from(duration.subsec_nanos()) }
}

impl Poller for Epoll {
    fn add(&self, fd: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, fd, EventData::new_u64(token), EventFlags::IN | EventFlags::RDHUP)?)
    }

    fn watch(&self, fd: BorrowedFd<'_>, token: u64, read: bool, write: bool) -> io::Result<()> {
        let reading = if read { EventFlags::IN | EventFlags::RDHUP } else { EventFlags::empty() };
        let flags = reading | if write { EventFlags::OUT } else { EventFlags::empty() };
        Ok(epoll::modify(&self.epoll, fd, EventData::new_u64(token), flags)?)
    }

    fn remove(&self, fd: BorrowedFd<'_>) {
        // Closing the descriptor removes it, too. A failure has no remedy.
        let _ = epoll::delete(&self.epoll, fd);
    }

    fn wait(&mut self, timeout: Option<Duration>, ready: &mut Vec<Ready>) -> io::Result<()> {
        ready.clear();
        self.events.clear();
        let timeout = timeout.map(timespec);
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut self.events), timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in &self.events {
            let token = event.data.u64();
            if token == WAKE {
                let _ = rustix::io::read(&self.wake.0, &mut [0; 8]);
                self.woken = true;
                continue;
            }
            if token == TIMER {
                // The number of expirations doesn't matter.
                let _ = rustix::io::read(&self.timer, &mut [0; 8]);
                self.ticked = true;
                continue;
            }
            let flags = event.flags;
            let gone = EventFlags::HUP | EventFlags::ERR | EventFlags::RDHUP;
            let read = flags.intersects(EventFlags::IN | gone);
            ready.push(Ready { token, read, write: flags.contains(EventFlags::OUT) });
        }
        Ok(())
    }

    fn take_tick(&mut self) -> bool {
        std::mem::take(&mut self.ticked)
    }

    fn tick_every(&mut self, interval: Duration) {
        if interval == self.interval {
            return;
        }
        match go_off_every(&self.timer, interval) {
            Ok(()) => self.interval = interval,
            // The timer goes on unchanged.
            Err(error) => log::warning(format!("Setting a timer failed: {error}")),
        }
    }

    #[inline]
    fn take_wake(&mut self) {
        self.woken = false;
    }

    #[inline]
    fn is_roused(&self) -> bool {
        self.ticked || self.woken
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_wait_without_a_limit_ends_with_the_next_tick_and_another_with_the_one_after_it() {
        let mut poller = Epoll::new(WakeFd::new().unwrap()).unwrap();
        let mut ready = Vec::new();
        let began = Instant::now();
        for ticks in 1..=2 {
            assert!(!poller.take_tick());
            poller.wait(None, &mut ready).unwrap();
            assert!(ready.is_empty() && poller.take_tick());
            // The timer's own clock may be a little ahead.
            assert!(began.elapsed() > TICK * ticks - TICK / 2);
        }
    }

    #[test]
    fn ticks_come_as_often_as_is_asked_for() {
        let mut poller = Epoll::new(WakeFd::new().unwrap()).unwrap();
        let mut ready = Vec::new();
        let began = Instant::now();
        poller.tick_every(TICK / 100);
        for _ in 0..20 {
            poller.wait(None, &mut ready).unwrap();
            assert!(poller.take_tick());
        }
        assert!(began.elapsed() < 10 * TICK, "as they would have come by themselves, it takes {:?}", 20 * TICK);
        let began = Instant::now();
        poller.tick_every(TICK);
        poller.wait(None, &mut ready).unwrap();
        assert!(began.elapsed() > TICK / 2);
    }

    #[test]
    fn a_limit_and_the_waker_end_a_wait_before_the_tick() {
        let wake = WakeFd::new().unwrap();
        let mut poller = Epoll::new(wake.try_clone().unwrap()).unwrap();
        let mut ready = Vec::new();
        poller.wait(Some(Duration::from_millis(1)), &mut ready).unwrap();
        assert!(!poller.woken);
        wake.wake();
        poller.wait(Some(10 * TICK), &mut ready).unwrap();
        assert!(poller.woken && poller.is_roused());
        poller.take_wake();
        // Until the tick: an unread waker would end this wait, too.
        poller.take_tick();
        poller.wait(None, &mut ready).unwrap();
        assert!(poller.ticked && !poller.woken && ready.is_empty());
    }
}
