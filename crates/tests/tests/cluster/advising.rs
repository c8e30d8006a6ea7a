//! The advisor and clients that send commands to a node without their slot.

#![allow(clippy::unwrap_used)]

use penstock_tests::nodes::{Make, join, node, node_with};
use penstock_tests::reply::Reply;

/// The value behind a name in a reply of names and values.
fn field(finding: &Reply, name: &str) -> String {
    let pairs = finding.items().chunks(2);
    let value = pairs.filter(|pair| pair[0].text() == name.as_bytes()).map(|pair| &pair[1]).next().unwrap();
    String::from_utf8_lossy(value.text()).into_owned()
}

/// Every redirected command is counted, alone or in a pipeline.
#[test]
fn a_client_without_a_map_of_the_slots_is_told_so() {
    let nodes = [node(Make::Penstock), node(Make::Penstock)];
    join(&nodes.each_ref());
    let mut conn = nodes[0].server.connect();
    let commands: Vec<_> = (0..200).map(|key| penstock_tests::bytes::command(&format!("GET key:{key}"))).collect();
    let mut moved = 0;
    let mut count =
        |replies: &[Reply]| moved += replies.iter().filter(|reply| reply.text().starts_with(b"MOVED ")).count();
    for command in &commands[..100] {
        count(&[conn.call(command).unwrap()]);
    }
    count(&conn.pipeline(&commands[100..]).unwrap());
    assert!(moved > 50, "{moved}");
    drop(conn);
    let is_told = |finding: &&Reply| field(finding, "kind") == "redirected-commands";
    // The commands behind the last redirected one count when the connection is closed.
    nodes[0].wait_until("all commands are counted", |node| {
        let listed = node.reply("ADVISE LIST COUNT -1");
        listed.items().iter().find(is_told).is_some_and(|finding| field(finding, "round-trips-made") == "200")
    });
    let listed = nodes[0].reply("ADVISE LIST COUNT -1");
    let finding = listed.items().iter().find(is_told).unwrap();
    assert_eq!(field(finding, "round-trips-needed"), (200 - moved).to_string());
    assert!(field(finding, "remedy").contains("cluster client"));
}

/// A node of its own pays nothing, and finds nothing.
#[test]
fn commands_at_the_right_node_are_clean() {
    let nodes = [node(Make::Penstock), node(Make::Penstock)];
    join(&nodes.each_ref());
    let mut conn = nodes[0].server.connect();
    let keys = (0..400).map(|key| format!("GET {{key:{key}}}"));
    let mut here = keys.filter(|get| !conn.cmd(get).unwrap().is_error()).take(20).collect::<Vec<_>>();
    here.truncate(20);
    nodes[0].ok("ADVISE RESET");
    let mut client = nodes[0].server.connect();
    here.iter().cycle().take(200).for_each(|get| drop(client.cmd(get).unwrap()));
    drop(client);
    let listed = nodes[0].reply("ADVISE LIST COUNT -1");
    assert!(listed.items().iter().all(|finding| field(finding, "kind") != "redirected-commands"));
}

/// A loop over keys of several slots is told to use a pipeline: one MGET would be refused.
#[test]
fn a_loop_over_slots_is_told_to_use_a_pipeline() {
    let nodes = [node_with(Make::Penstock, &["--cluster-forward", "yes"]), node(Make::Penstock)];
    join(&nodes.each_ref());
    let mut client = nodes[0].server.connect();
    (0..400).for_each(|key| drop(client.cmd(&format!("GET key:{key}")).unwrap()));
    drop(client);
    let is_loop = |finding: &&Reply| field(finding, "kind") == "loop";
    nodes[0].wait_until("the loop is found", |node| {
        node.reply("ADVISE LIST COUNT -1").items().iter().any(|finding| is_loop(&finding))
    });
    let listed = nodes[0].reply("ADVISE LIST COUNT -1");
    let remedy = field(listed.items().iter().find(is_loop).unwrap(), "remedy");
    assert!(remedy.contains("pipeline") && !remedy.contains("MGET"), "{remedy}");
}
