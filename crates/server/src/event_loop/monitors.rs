//! MONITOR's lines: a monitor that doesn't read them as fast as they come is not shown all, and is told how many it was
//! not shown. No other client may wait for it, and closing it would help no client.

use engine::config::ClientClass;
use engine::services::monitors::dropped_line;

use super::EventLoop;
use crate::backlog::Backlog;

impl EventLoop {
    /// Bytes that may wait for a monitor before lines are dropped: what it would be closed for, if that is less than
    /// what any connection's replies may take.
    fn line_bytes_max(&self) -> u64 {
        let settings = self.shared.settings();
        let class = settings.client_output_buffer_limit.get(ClientClass::Normal);
        let limits = [class.hard_bytes, class.soft_bytes, settings.reply_memory_limit.get()];
        limits.into_iter().filter(|&limit| limit > 0).min().unwrap_or(0)
    }

    /// Whether a monitor may be shown a line of so many bytes; tells it of those that it wasn't shown, if there is room
    /// again.
    pub(super) fn has_room_for_line(&mut self, key: usize, bytes: usize) -> bool {
        let limit = self.line_bytes_max();
        let Some(connection) = self.connections.get(key) else { return false };
        let waiting = connection.replies.len();
        let has_dropped = connection.backlog.as_ref().is_some_and(|b| b.lines_dropped > 0);
        if has_dropped && waiting <= limit / 2 {
            self.tell_of_dropped_lines(key);
        } else if has_dropped {
            // Not a line here and there, but all until there is some room.
            return false;
        }
        waiting + bytes as u64 <= limit
    }

    /// Counts lines that a monitor is not shown.
    pub(super) fn drop_lines(&mut self, key: usize, lines: u64) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        self.waiting.insert(key);
        connection.backlog.get_or_insert_with(Box::<Backlog>::default).lines_dropped += lines;
        self.shared.engine.replies.monitor_drops.add(lines);
        // It may have read everything else already, and is then told at the end of the turn.
        if !connection.in_write_list {
            connection.in_write_list = true;
            self.to_write.push(key);
        }
    }

    /// Shows a monitor one line that stands for all that it was not shown.
    pub(super) fn tell_of_dropped_lines(&mut self, key: usize) {
        let now_us = self.worker.clock.present_us();
        let Some(connection) = self.connections.get_mut(key) else { return };
        let Some(backlog) = &mut connection.backlog else { return };
        let lines = std::mem::take(&mut backlog.lines_dropped);
        connection.replies_end().extend(&dropped_line(now_us, lines));
    }
}
