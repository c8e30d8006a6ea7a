//! The beginning and the end of a requested failover, in both roles.

use commands::spec::flag;
use commands::table::Command;
use config::LogLevel;
use resp::reply::Proto;

use super::Engine;
use crate::clients::client::client_flag::CAME_BY_MOVE;
use crate::clients::session::Session;
use crate::clients::transaction::is_exec;
use crate::inbox::Message;
use crate::maintenance::Announcement;
use crate::pause::PausePurpose;
use crate::pubsub::{Audience, Subscriber};
use crate::replication::Primary;
use crate::replication::failover::{Failover, FailoverStage};
use crate::replication::moving;

impl Engine {
    /// Begins a failover to a replica, or to any. Clients that hear of maintenance move first. `deadline_ms` and `now_ms`
    /// are Unix time.
    pub fn begin_failover(&self, target: Option<Primary>, deadline_ms: Option<u64>, is_forced: bool, now_ms: u64) {
        let is_told = self.maintenance.listeners() > 0;
        let stage = if is_told { FailoverStage::TellsClients } else { FailoverStage::AwaitsReplica };
        self.replication.begin_failover(Failover { target, deadline_ms, is_forced, has_asked_for_hold: false, stage });
        if is_told {
            self.host.log(LogLevel::Notice, "A failover was asked for: clients are told to move.");
        } else {
            self.host.log(LogLevel::Notice, "A failover was asked for: writes wait until a replica has all data.");
            self.pause_for_failover(now_ms);
        }
    }

    /// Makes writes wait until a replica has everything. `now_ms` is Unix time.
    pub fn pause_for_failover(&self, now_ms: u64) {
        self.replication.note_writes_wait();
        self.pause.begin(PausePurpose::Failover, false, now_ms, u64::MAX);
    }

    /// Aborts a failover: this server goes on as the primary. Returns false if there is none. The caller is alone
    /// behind the gate. `now_ms` is Unix time.
    pub fn abort_failover(&self, now_ms: u64) -> bool {
        let Some(failover) = self.replication.take_failover() else { return false };
        if matches!(failover.stage, FailoverStage::Follows { .. }) {
            // The server took no tokens back when it began to follow, so it restores none.
            self.follow(None, 0);
        }
        self.end_pause_of_failover();
        if failover.has_asked_for_hold {
            self.end_move(now_ms);
        }
        true
    }

    /// Ends the move of clients to a replica that does not take over. The replica sends its clients back.
    fn end_move(&self, now_ms: u64) {
        self.maintenance.note_moved(None, now_ms);
        self.replication.stream.add_request(&moving::hold_command(0));
        self.maintenance.announce(&self.inboxes, &Announcement::FailedOver, now_ms);
    }

    /// Ends the failover to the replica that took this server's place. `version` identifies the link to the new
    /// primary.
    pub fn end_failover(&self, version: u64) {
        if self.replication.take_failover_of(version).is_some() {
            self.end_pause_of_failover();
            self.inboxes.iter().for_each(|inbox| inbox.send(Message::ClientsMoved));
        }
    }

    fn end_pause_of_failover(&self) {
        self.pause.end(PausePurpose::Failover);
        self.inboxes.iter().for_each(|inbox| inbox.send(Message::Look));
    }

    /// Returns true if a command waits because this replica is to take over: the client was told that it is the new
    /// primary. Commands without data are answered, because a client prepares its connections by them. Commands of a
    /// transaction wait before they are queued, because a replica refuses to queue a write.
    #[cold]
    pub(crate) fn holds_for_takeover(&self, session: &Session, command: &Command) -> bool {
        let uses_data = command.info.has(flag::WRITE | flag::READONLY | flag::MAY_REPLICATE);
        self.maintenance.holds()
            && session.client.has(CAME_BY_MOVE)
            && (uses_data || command.info.script.is_some() || is_exec(command))
    }

    /// Ends a hold for a promotion that has not come. Clients that came because of it learn the primary's address.
    pub fn end_overdue_hold(&self, now_ms: u64) {
        if !self.maintenance.is_hold_due(now_ms) {
            return;
        }
        let primary = self.replication.primary().0;
        // This precedes the end of the hold: the client of a held write would get an error otherwise.
        self.maintenance.note_moved(primary.clone(), now_ms);
        if !self.maintenance.end_hold_if_due(now_ms) {
            return;
        }
        let Some(primary) = primary else { return };
        let mut audience = Audience::default();
        for client in self.clients.all().iter().filter(|client| client.has(CAME_BY_MOVE)) {
            audience.add(Subscriber { client: client.id, worker: client.worker, proto: Proto::Resp3 });
        }
        self.maintenance.announce_to(&audience, &self.inboxes, &Announcement::Moving(primary), now_ms);
    }
}
