//! Tests of inboxes.

use std::sync::atomic::AtomicUsize;

use super::*;

#[derive(Default)]
struct CountedWakes(Arc<AtomicUsize>);

impl Wake for CountedWakes {
    fn wake(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn inbox() -> Inbox {
    Inbox::new(Box::<CountedWakes>::default(), 2)
}

fn bytes(len: usize) -> Arc<Vec<u8>> {
    Arc::new(vec![b'x'; len])
}

#[test]
fn pushes_are_looked_up_by_connection_and_never_twice() {
    let inbox = inbox();
    let both = Arc::new(vec![3, 7]);
    for (text, except) in [("a", 0), ("b", 7), ("c", 3)] {
        inbox.push(&both, except, &Arc::new(text.into()), (1, false), false);
    }
    let texts = |client, after, until| {
        let found = inbox.pushes_for(client, after, until);
        found.iter().map(|waiting| String::from_utf8_lossy(&waiting.bytes).into_owned()).collect::<Vec<_>>()
    };
    assert_eq!(inbox.pushed(), 3);
    assert_eq!(
        (texts(7, 0, 3), texts(7, 0, 2), texts(7, 1, 3)),
        (vec!["a".into(), "c".into()], vec!["a".into()], vec!["c".into()])
    );
    assert_eq!((texts(7, 3, 3).len(), texts(5, 0, 3).len()), (0, 0));
    assert_eq!(inbox.take_pushes(0).pushes.len(), 1);
    assert_eq!((texts(3, 0, 3), texts(3, 2, 3)), (vec!["b".into()], Vec::<String>::new()));
    assert_eq!(inbox.take_pushes(usize::MAX).pushes.len(), 2);
    assert_eq!((texts(3, 0, 3).len(), inbox.pushed()), (0, 3));
}

#[test]
fn pushes_are_taken_in_portions_and_what_is_left_keeps_the_inbox_filled() {
    let inbox = inbox();
    let many = Arc::new((1..=10).collect::<Vec<u64>>());
    for _ in 0..10 {
        inbox.push(&many, 0, &bytes(1000), (1, false), false);
    }
    inbox.send(Message::Look);
    // A push counts as 1,100 bytes of work for each of ten connections.
    assert_eq!(inbox.take_pushes(25_000).pushes.iter().map(|push| push.number).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(inbox.take_pushes(1).pushes.len(), 1);
    assert!(inbox.is_filled());
    assert!(matches!(&*Vec::from(inbox.take()), [Message::Look]));
    assert!(inbox.is_filled() && inbox.take().is_empty());
    assert_eq!(inbox.take_pushes(usize::MAX).pushes.len(), 7);
    assert!(!inbox.is_filled() && inbox.take_pushes(1).pushes.is_empty());
}

#[test]
fn a_sleeping_thread_is_woken_once_and_again_after_it_has_found_everything() {
    let woken = Arc::<AtomicUsize>::default();
    let inbox = Inbox::new(Box::new(CountedWakes(woken.clone())), 2);
    let one = Arc::new(vec![1]);
    inbox.push(&one, 0, &bytes(1), (1, false), false);
    inbox.send(Message::Look);
    inbox.send(Message::Look);
    // One wakeup for pushes, which may be left for later, and one for messages.
    assert_eq!(woken.swap(1, Ordering::Relaxed), 2);
    assert_eq!((inbox.take().len(), inbox.take_pushes(1).pushes.len()), (2, 1));
    inbox.unpark(1, Output::default(), 0);
    assert_eq!(woken.load(Ordering::Relaxed), 2);
    // The inbox's own thread is awake.
    assert_eq!(inbox.take().len(), 1);
    inbox.push(&one, 0, &bytes(1), (0, true), false);
    assert!(inbox.is_filled());
    assert_eq!(woken.load(Ordering::Relaxed), 2);
}

#[test]
fn every_sender_has_its_own_quota_and_is_told_once_about_room() {
    let inbox = inbox();
    let one = Arc::new(vec![1]);
    let push = |from| inbox.push(&one, 0, &bytes(10_000), (from, from == 0), false);
    let fill = |from| (0..).take_while(|_| !push(from)).count();
    let filled = fill(1);
    assert!((50..200).contains(&filled), "{filled}");
    // The sender may continue nevertheless, and the other has its own quota.
    assert!(push(1));
    assert_eq!(fill(0), filled);
    let mut told = Vec::new();
    while inbox.is_filled() {
        told.extend(inbox.take_pushes(1).has_room);
        // Told only once, until it is full again.
        assert!(told.len() <= 2);
    }
    assert_eq!(told, [1, 0]);
    assert!(!push(1) && fill(1) > 0 && inbox.take_pushes(usize::MAX).has_room == [1]);
}

#[test]
fn the_cost_of_a_push_grows_with_its_receivers() {
    let fill = |clients: u64, len: usize| {
        let (inbox, clients) = (inbox(), Arc::new((1..=clients).collect::<Vec<_>>()));
        let bytes = bytes(len);
        (0..).take_while(|_| !inbox.push(&clients, 0, &bytes, (1, false), false)).count()
    };
    assert_eq!((fill(1, 2 << 20), fill(100_000, 100)), (0, 0));
    // Short pushes are copied for each receiver, long ones are shared.
    assert!(fill(1000, 500) < 5 && fill(1000, 5000) > 10);
}

#[test]
fn the_reply_that_ends_a_wait_has_the_number_of_the_latest_push() {
    let inbox = inbox();
    inbox.push(&Arc::new(vec![1]), 0, &bytes(1), (1, false), false);
    inbox.unpark(1, Output::default(), 0);
    inbox.push(&Arc::new(vec![1]), 0, &bytes(1), (1, false), false);
    assert!(matches!(&*Vec::from(inbox.take()), [Message::Unpark { client: 1, pushes: 1, .. }]));
}

#[test]
fn receivers_beyond_the_inbox_limit_are_closed() {
    let inbox = inbox();
    let large = bytes(PUSH_BYTES_MAX);
    assert!(inbox.push(&Arc::new(vec![1]), 0, &large, (0, true), false));
    inbox.push(&Arc::new(vec![1, 2, 3]), 3, &large, (0, true), false);
    let closed = |m: &Message| if let Message::Close { client } = m { Some(*client) } else { None };
    assert_eq!(inbox.take().iter().filter_map(closed).collect::<Vec<_>>(), [1, 2]);
    inbox.push(&Arc::new(vec![2, 5]), 0, &large, (0, true), true);
    inbox.push(&Arc::new(vec![5]), 0, &large, (0, true), true);
    let messages: Vec<_> = inbox.take().into();
    assert!(matches!(
        &*messages,
        [Message::Dropped { client: 2, pushes: 1 }, Message::Dropped { client: 5, pushes: 2 }]
    ));
    assert_eq!(inbox.take_pushes(1).pushes.len(), 1);
    inbox.push(&Arc::new(vec![2]), 0, &large, (0, true), false);
    assert_eq!((inbox.take().len(), inbox.take_pushes(1).pushes.len()), (0, 1));
}
