//! Published messages over the bus.

#![allow(clippy::unwrap_used)]

use penstock_tests::nodes::{Make, join, node, replicate, settle};

/// A message reaches the subscribers of all nodes, and one to a shard channel those of the shard.
#[test]
fn messages_reach_subscribers_of_other_nodes() {
    for peer in Make::peers() {
        let nodes = [node(Make::Penstock), node(peer), node(Make::Penstock), node(peer)];
        join(&[&nodes[0], &nodes[1], &nodes[2]]);
        nodes[3].meet(&nodes[0]);
        settle(&nodes.each_ref());
        replicate(&nodes[3], &nodes[0]);
        settle(&nodes.each_ref());
        for from in &nodes {
            let mut subscribers = nodes.each_ref().map(|node| node.server.connect());
            for subscriber in &mut subscribers {
                subscriber.cmd("SUBSCRIBE news").unwrap();
            }
            from.reply("PUBLISH news hello");
            for subscriber in &mut subscribers {
                let message = subscriber.read().unwrap();
                assert_eq!(message.items()[2].text(), b"hello", "{peer:?} from {:?}", from.make);
            }
        }
        // The slot of this channel is the first node's: its number is below a third of all.
        let channel = (0..1000).map(|n| format!("c{n}")).find(|channel| {
            let slot = nodes[0].reply(&format!("CLUSTER KEYSLOT {channel}"));
            slot.integer().unwrap() < 5000
        });
        let channel = channel.unwrap();
        for (from, to) in [(0, 3), (3, 0)] {
            let mut subscriber = nodes[to].server.connect();
            assert!(!subscriber.cmd(&format!("SSUBSCRIBE {channel}")).unwrap().is_error());
            let published = nodes[from].reply(&format!("SPUBLISH {channel} hello"));
            assert!(!published.is_error(), "{:?}", published.text());
            assert_eq!(subscriber.read().unwrap().items()[2].text(), b"hello", "{peer:?} from {from} to {to}");
        }
    }
}
