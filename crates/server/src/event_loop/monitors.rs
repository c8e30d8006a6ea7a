//! MONITOR's lines. A monitor that reads too slowly misses lines, and is told their number. No other client may be delayed for it, and
//! closing it would help no client.

use config::ClientClass;
use engine::services::monitors::dropped_line;

use super::EventLoop;
use crate::backlog::Backlog;

impl EventLoop {
    /// Unsent bytes of a monitor before lines are dropped: the limit that would close it, or the limit of any connection's replies if that
    /// is less.
    fn line_bytes_max(&self) -> u64 {
        let settings = self.shared.settings();
        let class = settings.client_output_buffer_limit.get(ClientClass::Normal);
        let limits = [class.hard_bytes, class.soft_bytes, settings.reply_memory_limit.get()];
        limits.into_iter().filter(|&limit| limit > 0).min().unwrap_or(0)
    }

    /// Returns true if there is room for a line of that many bytes. Reports dropped lines first if there is room again.
    pub(super) fn has_room_for_line(&mut self, key: usize, bytes: usize) -> bool {
        let limit = self.line_bytes_max();
        let Some(connection) = self.connections.get(key) else { return false };
        let waiting = connection.replies.len();
        let has_dropped = connection.backlog.as_ref().is_some_and(|b| b.lines_dropped > 0);
        if has_dropped && waiting <= limit / 2 {
            self.tell_of_dropped_lines(key);
        } else if has_dropped {
            // Lines are dropped without gaps until there is some room.
            return false;
        }
        waiting + bytes as u64 <= limit
    }

    /// Counts lines dropped for a monitor.
    pub(super) fn drop_lines(&mut self, key: usize, lines: u64) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        self.waiting.insert(key);
        connection.backlog.get_or_insert_with(Box::<Backlog>::default).lines_dropped += lines;
        self.shared.engine.replies.monitor_drops.add(lines);
        // The monitor may have read everything else already, and gets the notice at the end of the turn.
        if !connection.in_write_list {
            connection.in_write_list = true;
            self.to_write.push(key);
        }
    }

    /// Sends a monitor one line in place of all dropped ones.
    pub(super) fn tell_of_dropped_lines(&mut self, key: usize) {
        let now_us = self.worker.clock.present_us();
        let Some(connection) = self.connections.get_mut(key) else { return };
        let Some(backlog) = &mut connection.backlog else { return };
        let lines = std::mem::take(&mut backlog.lines_dropped);
        connection.replies_end().extend(&dropped_line(now_us, lines));
    }
}
