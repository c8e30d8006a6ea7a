//! The record of the parts of a batch's time.

use std::sync::atomic::Ordering;

use resp::reply::Output;
use statistics::batch_times::Part;
use statistics::slow_log::BatchLogEntry;
use statistics::ticks::Ticks;

use super::windows::BatchRun;
use crate::clients::batch_times::{BatchPart, BatchTimes};
use crate::clients::client::Client;
use crate::clients::progress::Progress;
use crate::clients::session::Session;
use crate::worker::Worker;

impl Worker {
    /// Notes one run of a connection's requests.
    #[inline]
    pub(super) fn note_times(
        &mut self,
        session: &mut Session,
        batch_run: &BatchRun<'_>,
        progress: Progress,
        out: &Output,
    ) {
        if self.scripts.busy_turn {
            // BUSY is an answer, but no batch. The handler of a busy script sends it without a note.
            session.batches.drop_present();
            return;
        }
        let waits_for = match progress {
            Progress::Yielded | Progress::Paused | Progress::AwaitsRoom => Some(Part::Turn),
            Progress::AwaitsLog => Some(Part::Disk),
            Progress::Parked => awaited_part(session),
            _ => None,
        };
        session.batches.note_run(&BatchPart {
            began: batch_run.began,
            ended: self.ticks.max(batch_run.began),
            commands: batch_run.commands,
            bytes: (batch_run.at - batch_run.from) as u64,
            longest: self.longest.take(),
            last: session.client.last_command.load(Ordering::Relaxed),
            ahead: batch_run.written as u64,
            has_replies: out.len() > batch_run.written,
            waits_for,
        });
        if progress == Progress::Parked {
            note_parked(session, waits_for);
        }
    }

    /// Notes that `bytes` of a connection's replies are sent, and records the batches that are answered. `began` is the
    /// start of the send, because the client may answer before the send returns.
    #[inline]
    pub fn note_answered(&self, session: &mut Session, bytes: usize, began: Ticks) {
        let histograms = &self.stats().batch_times;
        let slow_ticks = self.engine.slow_batch_ticks();
        let client = &session.client;
        session.batches.note_sent(bytes as u64, began, |times| {
            histograms.record(times.depth, &times.parts);
            if times.total() >= slow_ticks {
                log_batch(self, client, times);
            }
        });
    }
}

/// Adds a slow batch to the log.
#[cold]
fn log_batch(worker: &Worker, client: &Client, times: &BatchTimes) {
    let len_max = worker.engine.settings.batchlog_max_len.get_usize();
    if len_max == 0 {
        return;
    }
    let execution = times.parts[Part::Execution as usize];
    let longest = times.longest.or((times.depth == 1).then_some((times.last as usize, execution)));
    let command = longest.and_then(|(id, ticks)| Some((worker.engine.table.all().get(id)?.name.to_string(), ticks)));
    let names = client.names();
    let entry = BatchLogEntry {
        id: 0,
        time_s: worker.clock.present_us() / 1_000_000,
        parts: times.parts,
        depth: times.depth,
        bytes: times.bytes,
        command,
        addr: client.addr.clone(),
        name: names.name.clone(),
        library: (names.lib_name.clone(), names.lib_ver.clone()),
    };
    worker.engine.batch_log.add(entry, len_max);
}

/// Returns the part that a parked connection's wait belongs to: WAIT and WAITAOF have one.
#[cold]
fn awaited_part(session: &Session) -> Option<Part> {
    let waiter = session.client.waiter()?;
    let awaited = waiter.acknowledgement()?;
    Some(if awaited.replicas > 0 { Part::Replicas } else { Part::Disk })
}

#[cold]
fn note_parked(session: &mut Session, waits_for: Option<Part>) {
    match waits_for {
        Some(_) => session.batches.note_acknowledged(),
        None => session.batches.note_blocked(),
    }
}
