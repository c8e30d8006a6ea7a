//! Connections that move to the thread that serves replicas, and clients that wait for acknowledgements of replicas.

use std::os::fd::AsFd;
use std::sync::Arc;

use engine::inbox::Message;
use engine::replication::replicas::Wanted;
use engine::slots::jobs::SlotJob;
use resp::reply::Output;

use super::EventLoop;
use crate::poller::Poller;
use crate::primary::Arrival;
use crate::slot_moves;

impl EventLoop {
    /// Hands over a connection that has asked for the stream. A connection with unread replies is closed instead: a replica awaits each
    /// reply before it asks.
    #[cold]
    pub(super) fn depart(&mut self, key: usize, wanted: Wanted) {
        self.send(key);
        if self.connections.get(key).is_none_or(|connection| connection.has_replies()) {
            return self.close(key);
        }
        self.forget_backlog(key);
        let Some(mut connection) = self.connections.try_remove(key) else { return };
        self.poller.remove(connection.socket.as_fd());
        self.by_client.remove(&connection.session.client.id);
        let introduction = connection.session.replica.take().map(|known| *known).unwrap_or_default();
        connection.leave(&mut self.worker, &self.shared);
        let client = connection.session.client.clone();
        self.shared.handoff.arrive(Arrival { socket: connection.socket, client, introduction, wanted });
    }

    /// Hands over a connection that has begun an import of slots. A connection with unread replies is closed instead: a source awaits
    /// each reply before it begins.
    #[cold]
    pub(super) fn hand_to_import(&mut self, key: usize, job: Arc<SlotJob>) {
        self.send(key);
        let connection = match self.connections.get(key).is_none_or(|connection| connection.has_replies()) {
            true => None,
            false => {
                self.forget_backlog(key);
                self.connections.try_remove(key)
            }
        };
        let Some(mut connection) = connection else {
            slot_moves::give_up_import(self.shared.engine, job);
            return self.close(key);
        };
        self.poller.remove(connection.socket.as_fd());
        self.by_client.remove(&connection.session.client.id);
        connection.leave(&mut self.worker, &self.shared);
        slot_moves::start_import(self.shared.engine, connection.socket, job);
    }

    /// Answers clients whose acknowledgements by replicas and the disk have arrived.
    #[cold]
    pub(super) fn answer_acknowledged(&mut self) {
        self.worker.continue_slot_changes();
        for client in std::mem::take(&mut self.acknowledged_waiters) {
            let Some(&key) = self.by_client.get(&client) else { continue };
            let Some(connection) = self.connections.get_mut(key) else { continue };
            let mut reply = Output::default();
            if self.worker.has_acknowledged(&connection.session)
                && self.worker.time_out(&mut connection.session, &mut reply)
            {
                let durable_after = self.worker.take_durable_after();
                self.take_replies(key, &mut reply, durable_after);
                self.go_on(key);
            } else if self.worker.awaits_acknowledgement(&connection.session) {
                self.acknowledged_waiters.push(client);
            }
        }
        let is_awaited = !self.acknowledged_waiters.is_empty() || self.worker.awaits_slot_changes();
        self.shared.engine.replication.replicas.note_awaited(self.worker.id, is_awaited);
    }

    /// Lists a connection whose blocking command waits for acknowledgements.
    pub(super) fn note_acknowledged_waiter(&mut self, key: usize) {
        let Some(connection) = self.connections.get(key) else { return };
        if !self.worker.awaits_acknowledgement(&connection.session) {
            return;
        }
        self.acknowledged_waiters.push(connection.session.client.id);
        self.shared.engine.replication.replicas.note_awaited(self.worker.id, true);
        // The acknowledgement may have arrived since the command's check.
        self.shared.engine.inboxes[self.worker.id].send(Message::Acknowledged);
    }
}
