//! Runs inboxes through every interleaving of their threads.

use loom::sync::{Arc as Shared, Notify};
use loom::thread;

use super::*;

struct Sleeper(Shared<Notify>);

impl Wake for Sleeper {
    fn wake(&self) {
        self.0.notify();
    }
}

/// Returns an inbox that a single push overfills, and the sleep of its thread.
fn inbox() -> (Inbox, Shared<Notify>) {
    let sleep = Shared::new(Notify::new());
    let inbox = Inbox { room_cost_max: 1, ..Inbox::new(Box::new(Sleeper(sleep.clone())), 2) };
    (inbox, sleep)
}

fn push(inbox: &Inbox, from: usize) -> bool {
    inbox.push(&Arc::new(vec![1]), 0, &Arc::new(vec![b'x']), (from, false), false)
}

#[test]
fn loom_a_message_wakes_a_sleeping_thread() {
    loom::model(|| {
        let (inbox, sleep) = inbox();
        let inbox = Shared::new(inbox);
        let sender = {
            let inbox = inbox.clone();
            thread::spawn(move || {
                push(&inbox, 1);
                inbox.send(Message::Look);
            })
        };
        // A thread that is never woken is a deadlock, which loom reports.
        let (mut pushes, mut messages) = (0, 0);
        while pushes + messages < 2 {
            if inbox.is_filled() {
                messages += inbox.take().len();
                pushes += inbox.take_pushes(usize::MAX).pushes.len();
            } else {
                sleep.wait();
            }
        }
        sender.join().unwrap();
        assert!(!inbox.is_filled() || inbox.take_pushes(usize::MAX).pushes.is_empty());
    });
}

#[test]
fn loom_a_thread_that_leaves_pushes_for_later_is_woken_by_a_message() {
    loom::model(|| {
        let (inbox, sleep) = inbox();
        let inbox = Shared::new(inbox);
        push(&inbox, 0);
        let sender = {
            let inbox = inbox.clone();
            thread::spawn(move || inbox.send(Message::Look))
        };
        while inbox.take().is_empty() {
            sleep.wait();
        }
        sender.join().unwrap();
        assert!(inbox.is_filled() && inbox.take_pushes(1).pushes.len() == 1);
    });
}

/// Runs one of two threads that overfill each other's inbox: it continues when there is room again, and has received
/// the other's messages.
fn publish_and_wait(inboxes: &[(Inbox, Shared<Notify>); 2], me: usize) {
    let (other, (mine, sleep)) = (&inboxes[1 - me].0, &inboxes[me]);
    assert!(push(other, me));
    let (mut has_room, mut published) = (false, false);
    while !has_room || !published {
        if !mine.is_filled() {
            sleep.wait();
            continue;
        }
        has_room |= mine.take().iter().any(|m| matches!(m, Message::Room { inbox } if *inbox == 1 - me));
        let portion = mine.take_pushes(1);
        published |= !portion.pushes.is_empty();
        portion.has_room.iter().for_each(|&thread| inboxes[thread].0.send(Message::Room { inbox: me }));
    }
}

#[test]
fn loom_two_threads_with_full_inboxes_make_progress() {
    // All interleavings would take hours.
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| {
        let inboxes = Shared::new([inbox(), inbox()]);
        let other = {
            let inboxes = inboxes.clone();
            thread::spawn(move || publish_and_wait(&inboxes, 1))
        };
        publish_and_wait(&inboxes, 0);
        other.join().unwrap();
    });
}
