//! Replies that a socket doesn't take: folded, counted, put on disk, and as a last resort held up.
//!
//! A connection has a [`Backlog`] from the first turn in which its socket doesn't take everything until everything is sent. Meanwhile its
//! requests run while there is room for their replies. Without room they stay in the kernel, and no other connection is affected.

use std::cmp::Reverse;
use std::time::Duration;

use config::{ClientClass, OutputLimit};
use engine::clients::client::client_flag;
use engine::replies::{NoRoom, ReplyFigures, Share, UNAUTHENTICATED_BYTES_MAX};
use resp::reply::Output;
use statistics::batch_times::Part;

use super::EventLoop;
use crate::backlog::{Backlog, GracePeriod};
use crate::connection::Connection;
use crate::log;
use crate::reply_queue::ReplyQueue;
use crate::spill::{Done, SpillOutcome};
use engine::clients::progress::Progress;

/// Grace period in milliseconds before replies beyond their share of the memory go to disk. The connection's requests are held up
/// meanwhile. The replies stay in memory if the client reads a piece within the period, and if there is memory at all. The period is long
/// enough for a client that reads, and short for a client that writes all its requests first.
const PATIENCE_MS: u64 = 20;
/// The grace period if most replies are values by reference. Their keys usually hold the memory anyway. A client that reads ten connections
/// in turn, some megabytes each, returns to one every 20 to 50 ms.
const SHARED_PATIENCE_MS: u64 = 200;
/// Time before the next try after a disk error, in milliseconds.
const RETRY_MS: u64 = 1000;

/// Returns true if others determine the connection's output. A subscriber has limits of its own, and is neither held up nor put on disk.
pub(super) fn is_subscriber(connection: &Connection) -> bool {
    connection.session.client.has(client_flag::PUBSUB)
}

/// Returns true if a connection's replies stay out of the shared memory budget and off the disk.
fn is_pushed_to(connection: &Connection) -> bool {
    is_subscriber(connection) || connection.session.is_monitoring()
}

/// Returns true if a connection waits for memory that only its own output takes. The output then goes to disk, however small, and a full or
/// failed disk is tried again.
fn is_stuck(backlog: &Backlog, queue: &ReplyQueue) -> bool {
    backlog.held.is_some_and(|cause| cause != NoRoom::Pace) && queue.writing() == 0
}

impl EventLoop {
    pub(super) fn figures(&self) -> &'static ReplyFigures {
        &self.shared.engine.replies
    }

    pub(super) fn share(&self) -> Share {
        self.figures().share(self.shared.settings())
    }

    pub(super) fn output_limit(&self, connection: &Connection) -> OutputLimit {
        let class = if is_subscriber(connection) { ClientClass::PubSub } else { ClientClass::Normal };
        self.shared.settings().client_output_buffer_limit.get(class)
    }

    /// Returns true if a connection's unsent replies exceed its limit as of the last write, which found the socket full.
    fn seems_over_limit(&self, key: usize) -> bool {
        let Some(connection) = self.connections.get(key).filter(|connection| connection.socket_is_full) else {
            return false;
        };
        let limit = self.output_limit(connection).hard_bytes;
        limit > 0 && connection.replies.len() > limit
    }

    /// Applies the limits to a connection with unsent replies, and ends the backlog if all are sent.
    pub(super) fn enforce_backlog_limit(&mut self, key: usize) {
        // A client that has read since must not be closed.
        if self.seems_over_limit(key) && !self.send(key) {
            return;
        }
        let block = self.share().block();
        let Some(connection) = self.connections.get_mut(key) else { return };
        if connection.replies.take_file_is_done() {
            self.shared.spill.end(self.worker.id, connection.session.client.id);
            if let Some(backlog) = &mut connection.backlog {
                backlog.disk_bytes = 0;
            }
        }
        if connection.replies.is_empty() {
            return self.end_backlog(key);
        }
        if connection.backlog.is_none() {
            connection.backlog = Some(Box::default());
            // Up to half a megabyte, which is not counted: the thread's spare memory, or the growth reserve of a vector.
            connection.replies.output.give_unused_back();
            self.waiting.insert(key);
        }
        connection.replies.output.fold();
        connection.replies.output.end_block(block);
        self.count_backlog(key);
        if self.close_if_over_limit(key) {
            return;
        }
        self.note_lag(key);
        self.spill(key);
        self.count_leaving(key);
        self.hold_or_release(key);
        let Some(connection) = self.connections.get(key) else { return };
        let (read, write) = (connection.wants_read, connection.socket_is_full);
        self.watch(key, read, write);
    }

    /// Ends a backlog after everything is sent.
    fn end_backlog(&mut self, key: usize) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        if connection.backlog.as_ref().is_some_and(|b| b.lines_dropped > 0) && connection.progress != Progress::Closing
        {
            self.tell_of_dropped_lines(key);
            return self.flush(key);
        }
        self.release(key);
        let Some(connection) = self.connections.get_mut(key) else { return };
        let closing = connection.progress == Progress::Closing && connection.deferred.is_none();
        let read = connection.wants_read;
        self.forget_backlog(key);
        self.watch(key, read, false);
        if closing {
            self.close_drained(key);
        }
    }

    /// Removes a connection's backlog from all counters.
    pub(super) fn forget_backlog(&mut self, key: usize) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let Some(backlog) = connection.backlog.take() else { return };
        self.waiting.remove(&key);
        self.lagging.remove(key);
        let figures = &self.shared.engine.replies;
        if let Some(memory) = backlog.counted {
            figures.waiting.sub(1);
            figures.memory.sub(memory);
        }
        figures.leaving.sub(backlog.leaving);
        if backlog.held.is_some() {
            figures.held.sub(1);
        }
        connection.session.client.note_replies(0, 0, 0);
        self.worker.note_client_memory(&connection.session.client);
    }

    fn count_backlog(&mut self, key: usize) {
        let figures = self.figures();
        let Some(connection) = self.connections.get_mut(key) else { return };
        let is_counted = !is_pushed_to(connection);
        let (memory, segments) = (connection.replies.memory(), connection.replies.segments());
        let Some(backlog) = &mut connection.backlog else { return };
        let counted = is_counted.then_some(memory);
        match (backlog.counted, counted) {
            (None, Some(_)) => drop(figures.waiting.add(1)),
            (Some(_), None) => figures.waiting.sub(1),
            _ => {}
        }
        figures.memory.replace(backlog.counted.unwrap_or(0), counted.unwrap_or(0));
        backlog.counted = counted;
        connection.session.client.note_replies(memory, segments as u64, backlog.disk_bytes);
        self.worker.note_client_memory(&connection.session.client);
        self.worker.stats().recent_output.note(self.worker.clock.now_ms / 1000, memory);
    }

    /// Counts the replies on their way to disk.
    fn count_leaving(&mut self, key: usize) {
        let (figures, share) = (self.figures(), self.share());
        let Some(connection) = self.connections.get_mut(key) else { return };
        let Some(backlog) = &mut connection.backlog else { return };
        let queue = &connection.replies;
        let output = queue.output.memory() as u64;
        let is_next = queue.is_spilling() && backlog.blocked_by.is_none() && output >= share.piece;
        let leaving = queue.writing() + if is_next { output } else { 0 };
        figures.leaving.replace(backlog.leaving, leaving);
        backlog.leaving = leaving;
    }

    /// Closes a connection that doesn't read its replies (client-output-buffer-limit), or has too many before it has authenticated. Returns
    /// true if it did.
    pub(super) fn close_if_over_limit(&mut self, key: usize) -> bool {
        let now_ms = self.steady_ms();
        let Some(connection) = self.connections.get(key) else { return false };
        let limit = self.output_limit(connection);
        let Some(connection) = self.connections.get_mut(key) else { return false };
        let client = connection.session.client.clone();
        let bytes = connection.replies.len();
        if connection.backlog.is_some()
            && bytes > UNAUTHENTICATED_BYTES_MAX as u64
            && self.shared.engine.must_authenticate(&connection.session)
        {
            log::warning(format!(
                "Client id={} addr={} closed: it has yet to authenticate, and doesn't read its replies",
                client.id, client.addr
            ));
            self.figures().unauthenticated_closes.add(1);
            self.close(key);
            return true;
        }
        let over = |limit: u64| limit > 0 && bytes > limit;
        let mut too_long = false;
        if let Some(backlog) = &mut connection.backlog {
            let since = over(limit.soft_bytes).then(|| backlog.over_soft_limit_since_ms.unwrap_or(now_ms));
            backlog.over_soft_limit_since_ms = since;
            let limit_ms = limit.soft_seconds.saturating_mul(1000);
            too_long = since.is_some_and(|since| now_ms.saturating_sub(since) > limit_ms);
        }
        if over(limit.hard_bytes) || too_long {
            log::warning(format!(
                "Client id={} addr={} scheduled to be closed ASAP for overcoming of output buffer limits (omem={bytes})",
                client.id, client.addr
            ));
            self.worker.stats().output_limit_closes.add(1);
            self.close(key);
            return true;
        }
        false
    }

    /// Writes replies that don't fit into memory to the connection's file, and reads them back when they fit.
    fn spill(&mut self, key: usize) {
        let now_ms = self.steady_ms();
        let share = self.share();
        if self.may_write_to_disk(key, share) {
            self.write_to_disk(key, share);
        }
        let Some(connection) = self.connections.get_mut(key) else { return };
        let Some(backlog) = &connection.backlog else { return };
        // A client that doesn't read at all needs nothing read back.
        let reads = !connection.socket_is_full || !connection.replies.front().is_empty();
        if reads
            && backlog.read_again_ms <= now_ms
            && let Some(bytes) = connection.replies.next_read(share.piece)
        {
            self.shared.spill.read(self.worker.id, connection.session.client.id, bytes);
        }
    }

    /// Returns true if more of a connection's replies are due to go to disk, regardless of the room there.
    fn may_write_to_disk(&mut self, key: usize, share: Share) -> bool {
        let (now_ms, settings, figures) = (self.steady_ms(), self.shared.settings(), self.figures());
        let Some(connection) = self.connections.get_mut(key) else { return false };
        let is_pushed_to = is_pushed_to(connection);
        let Some(backlog) = &mut connection.backlog else { return false };
        if backlog.blocked_by.is_some_and(|(_, again_ms)| again_ms > now_ms) {
            return false;
        }
        let (queue, is_scarce) = (&connection.replies, figures.is_scarce(settings));
        if queue.is_spilling() {
            return queue.output.memory() as u64 >= share.piece || is_stuck(backlog, queue);
        }
        if is_pushed_to || queue.memory() < share.spills_from(is_scarce) {
            (backlog.grace_period, backlog.blocked_by) = (None, None);
            return false;
        }
        if figures.is_used_up(settings) {
            return true;
        }
        let left = queue.len();
        match backlog.grace_period {
            Some(grace_period) if now_ms < grace_period.until_ms => return false,
            Some(grace_period) if grace_period.left.saturating_sub(left) < share.piece => return true,
            _ => {}
        }
        let is_shared = queue.output.shared_memory() as u64 > queue.memory() / 2;
        let until_ms = now_ms + if is_shared { SHARED_PATIENCE_MS } else { PATIENCE_MS };
        backlog.grace_period = Some(GracePeriod { until_ms, left });
        self.grace_ends.push(Reverse((until_ms, connection.session.client.id)));
        false
    }

    fn write_to_disk(&mut self, key: usize, share: Share) {
        let (now_ms, settings, figures) = (self.steady_ms(), self.shared.settings(), self.figures());
        let Some(connection) = self.connections.get_mut(key) else { return };
        let Some(backlog) = &mut connection.backlog else { return };
        let bytes = connection.replies.output.len() as u64;
        if backlog.disk_bytes + bytes > settings.reply_spill_limit.get() {
            backlog.blocked_by = Some((NoRoom::SpillLimit, now_ms));
            return;
        }
        if figures.spill_bytes.get() + bytes > settings.reply_spill_total.get() {
            backlog.blocked_by = Some((NoRoom::SpillTotal, now_ms));
            return;
        }
        // The next write shows if a failed disk works again.
        backlog.blocked_by.take_if(|(cause, _)| matches!(cause, NoRoom::SpillLimit | NoRoom::SpillTotal));
        let takes_any = !connection.replies.is_spilling() || is_stuck(backlog, &connection.replies);
        if !connection.replies.is_spilling() {
            self.worker.note_spilled(&connection.session, bytes);
        }
        connection.replies.begin_spilling();
        if let Some(output) = connection.replies.next_write(if takes_any { 0 } else { share.piece }) {
            let bytes = output.len() as u64;
            figures.spill_bytes.add(bytes);
            backlog.disk_bytes += bytes;
            self.shared.spill.write(self.worker.id, connection.session.client.id, output);
        }
    }

    /// Returns the reason if there is no room for more replies of a connection.
    fn no_room(&self, connection: &Connection) -> Option<NoRoom> {
        let backlog = connection.backlog.as_ref()?;
        if is_subscriber(connection) {
            return None;
        }
        let (share, queue) = (self.share(), &connection.replies);
        let (memory, unwritten) = (queue.memory(), queue.unwritten());
        let fits = if backlog.held.is_some() { share.has_room_again(memory) } else { share.has_room(memory) };
        // A client that has read a little and stopped may still write: replies read back from disk for it don't count.
        let fits = fits || (queue.is_spilling() && unwritten == 0);
        if !fits || (backlog.grace_period.is_some() && !queue.is_spilling()) {
            return Some(backlog.cause());
        }
        if !self.figures().has_room(self.shared.settings(), share, unwritten) {
            return Some(backlog.blocked_by.map_or(NoRoom::MemoryTotal, |(cause, _)| cause));
        }
        (backlog.blocked_by.is_none() && self.must_wait_for_turn(backlog)).then_some(NoRoom::Pace)
    }

    /// Holds a connection's requests, or lets them run again.
    pub(super) fn hold_or_release(&mut self, key: usize) {
        let now_ms = self.steady_ms();
        let Some(connection) = self.connections.get(key) else { return };
        let Some(cause) = self.no_room(connection) else { return self.release(key) };
        if cause == NoRoom::Pace {
            self.queue_for_turn(key);
        }
        let figures = self.figures();
        let Some(connection) = self.connections.get_mut(key) else { return };
        let Some(backlog) = &mut connection.backlog else { return };
        if backlog.held.is_some() {
            backlog.held = Some(cause);
        } else if matches!(connection.progress, Progress::Ready | Progress::Yielded) {
            connection.progress = Progress::AwaitsReader;
            connection.session.batches.note_hold(Part::Client);
            backlog.held = Some(cause);
            backlog.held_since_ms = now_ms;
            backlog.stall.note_hold();
            figures.held.add(1);
            figures.holds.add(1);
        }
    }

    /// Lets a connection's requests run again, if they were held for lack of room.
    fn release(&mut self, key: usize) {
        let now_ms = self.steady_ms();
        let Some(connection) = self.connections.get_mut(key) else { return };
        let Some(backlog) = &mut connection.backlog else { return };
        if backlog.held.take().is_none() {
            return;
        }
        let engine = self.shared.engine;
        let waited = Duration::from_millis(now_ms.saturating_sub(backlog.held_since_ms));
        engine.replies.held.sub(1);
        engine.note_latency("reply-hold", waited, self.worker.clock.now_ms / 1000);
        self.go_on_reading(key, Progress::AwaitsReader);
    }

    /// Continues with connections whose files have been written or read.
    pub(super) fn finish_spills(&mut self) {
        for Done { client, disk_bytes, outcome } in self.shared.spill.collect(self.worker.id) {
            // The result for a closed connection is dropped, like its file.
            let Some(&key) = self.by_client.get(&client) else { continue };
            let now_ms = self.steady_ms();
            let Some(connection) = self.connections.get_mut(key) else { continue };
            let Some(backlog) = &mut connection.backlog else { continue };
            backlog.disk_bytes = disk_bytes;
            match outcome {
                SpillOutcome::Wrote { bytes, rest, failure } => {
                    connection.replies.wrote(bytes, rest);
                    backlog.blocked_by = failure.map(|cause| (cause, now_ms + RETRY_MS));
                    if bytes > 0 {
                        backlog.stall.note_move();
                    }
                }
                SpillOutcome::Read(bytes) => connection.replies.read(bytes),
                SpillOutcome::NotRead => {
                    connection.replies.read(Output::default());
                    backlog.read_again_ms = now_ms + RETRY_MS;
                }
            }
            self.flush(key);
        }
    }

    /// Checks connections whose grace period has ended.
    pub(super) fn end_patience(&mut self) {
        let now_ms = self.steady_ms();
        while let Some(&Reverse((due_ms, client))) = self.grace_ends.peek()
            && due_ms <= now_ms
        {
            self.grace_ends.pop();
            if let Some(&key) = self.by_client.get(&client) {
                self.enforce_backlog_limit(key);
            }
        }
    }

    /// Checks all backlogs for conditions that depend on time or on the memory of other connections. `since_last` is the time since the
    /// previous call.
    pub(super) fn enforce_backlog_limits(&mut self, since_last: Duration) {
        let keys: Vec<usize> = self.waiting.iter().copied().collect();
        for key in keys {
            if !self.close_if_stalled(key, since_last) {
                self.enforce_backlog_limit(key);
            }
        }
    }

    /// Closes a connection that has no room and whose client has read nothing for too long. Returns true if it did.
    fn close_if_stalled(&mut self, key: usize, since_last: Duration) -> bool {
        let limit_s = self.shared.settings().reply_stall_timeout_s.get();
        let Some(connection) = self.connections.get_mut(key) else { return true };
        let Some(backlog) = &mut connection.backlog else { return true };
        let Some(cause) = backlog.held else {
            backlog.stall.end();
            return false;
        };
        let stalled = backlog.stall.look(since_last);
        if limit_s <= 0 || stalled <= Duration::from_secs(limit_s.unsigned_abs()) {
            return false;
        }
        let client = &connection.session.client;
        log::warning(format!(
            "Client id={} addr={} closed: it has read none of its replies for {} s (reply-stall-timeout), and {} \
             ({} bytes wait, {} in memory, {} on disk)",
            client.id,
            client.addr,
            stalled.as_secs(),
            cause.explained(),
            connection.replies.len(),
            connection.replies.memory(),
            backlog.disk_bytes,
        ));
        self.figures().stall_closes[cause as usize].add(1);
        self.close(key);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_output_is_written_again_after_a_lack_of_room() {
        let queue = ReplyQueue::default();
        for cause in NoRoom::ALL {
            let backlog = Backlog { held: Some(cause), ..Backlog::default() };
            assert_eq!(is_stuck(&backlog, &queue), cause != NoRoom::Pace, "{cause:?}");
        }
        assert!(!is_stuck(&Backlog::default(), &queue));
    }
}
