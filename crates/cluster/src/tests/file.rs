//! nodes.conf: files of real peers, files that survive a round trip unchanged, and files that are refused.

use crate::commands::{ClusterCommand, ClusterReply, SetSlot};
use crate::config::{Announce, Config};
use crate::file::NodesFile;
use crate::io::{Action, CommandId, Generation, Input, Moment};
use crate::machine::Machine;
use crate::slots::Slot;
use crate::view::{ClientPath, Ports};

/// A file of Valkey 9.1.2.
const VALKEY: &str = "\
795816017d2ee68bf1fe818b624a4bd270baea1d 127.0.0.1:24102@24142,host-2.example,availability-zone=zone2,client-tcp-port=7002,client-ipv6=2001:db8::3,client-ipv4=192.0.2.3,tls-port=0,nodename=node2,shard-id=3ce7c46b56b575ebc8abe9cdd1832c7886371c16 master - 0 1795842117471 3 connected 10001-16383
39ebb72e4ac6fd62110cb224d6364b7576c491f2 127.0.0.1:24103@24143,host-3.example,tls-port=0,shard-id=b2258307efb149f2bd5653da1d7024a5613d20f0 master,fail - 0 1795842117571 4 connected 0-5000
c44c9c24b538bbf1435587a07f865250a6b1a82a 127.0.0.1:24100@24140,,tls-port=0,shard-id=b2258307efb149f2bd5653da1d7024a5613d20f0 myself,slave 39ebb72e4ac6fd62110cb224d6364b7576c491f2 0 0 4 connected
vars currentEpoch 4 lastVoteEpoch 2
";

/// A file of Redis 7.0.15.
const REDIS_7_0: &str = "\
b78d6170ba660f62d67e67f4bf44671aaa8a95f4 127.0.0.1:24300@24340,host-0.example myself,master - 0 1795842169000 5 connected 0-5000 7000 [7000->-633d040fc573150aa710d4767bbad977f2470a03] [9000-<-633d040fc573150aa710d4767bbad977f2470a03]
686e8a2c04475145a9725466d275872954a50ad0 127.0.0.1:24303@24343,host-3.example slave b78d6170ba660f62d67e67f4bf44671aaa8a95f4 0 1795842171106 5 connected
633d040fc573150aa710d4767bbad977f2470a03 127.0.0.1:24302@24342,host-2.example master - 0 1795842170980 3 connected 10001-16383
vars currentEpoch 5 lastVoteEpoch 4
";

fn config() -> Config {
    let announce = Announce { ports: Ports { plain: 24_100, tls: 0 }, bus_port: 24_140, ..Announce::default() };
    Config { announce, ..Config::default() }
}

fn load(text: &str) -> Machine {
    let file = NodesFile::parse(text).unwrap().unwrap();
    Machine::load(config(), &file, || 7)
}

fn moment(ms: u64) -> Moment {
    Moment { ms, unix_ms: 1_700_000_000_000 + ms }
}

/// Gives a command to a machine that saves at once, and returns the answer.
fn run(machine: &mut Machine, command: ClusterCommand) -> ClusterReply {
    let mut actions = machine.handle(moment(5000), 1, Input::Command(CommandId(1), command));
    let mut reply = None;
    while let Some(action) = actions.pop() {
        match action {
            Action::Answer(_, answer) => reply = Some(answer),
            Action::Save { generation, .. } => {
                actions.extend(machine.handle(moment(5000), 2, Input::Saved(generation)));
            }
            _ => {}
        }
    }
    reply.expect("an answer")
}

#[test]
fn files_of_peers_are_read() {
    let machine = load(VALKEY);
    let table = machine.table();
    let me = table.myself();
    assert_eq!((table.count(), table.size(), machine.current_epoch()), (3, 2, 4));
    let primary = &table[me.primary().unwrap()];
    assert!(primary.has_failed());
    assert_eq!((primary.slots.to_string().as_str(), primary.config_epoch), ("0-5000", 4));
    let third = table.keys().map(|key| &table[key]).find(|node| node.zone == "zone2").unwrap();
    assert_eq!((third.node_name.as_str(), third.endpoints.client_ports.plain), ("node2", 7002));
    assert_eq!((third.endpoints.client_ipv6.as_str(), third.bus_port), ("2001:db8::3", 24_142));
}

#[test]
fn a_file_comes_back_as_it_was() {
    for text in [VALKEY, REDIS_7_0] {
        let written = load(text).file_text();
        let again = load(&written);
        assert_eq!(again.file_text(), written);
        assert_eq!(NodesFile::parse(&written).unwrap().unwrap().repairs, Vec::<String>::new());
    }
    let text = load(REDIS_7_0).file_text();
    assert!(text.contains("0-5000 7000 [7000->-633d040f") && text.contains("[9000-<-633d040f"), "{text}");
    assert!(text.ends_with("vars currentEpoch 5 lastVoteEpoch 4\n"), "{text}");
}

/// Imports stand behind the epochs, by their sources.
const IMPORTS: &str = " importedSlots 7,9-12:633d040fc573150aa710d4767bbad977f2470a03:b2258307efb149f2bd5653da1d7024a5613d20f0;\
     8:686e8a2c04475145a9725466d275872954a50ad0:3ce7c46b56b575ebc8abe9cdd1832c7886371c16";

#[test]
fn a_file_keeps_finished_imports() {
    let text = REDIS_7_0.replace("lastVoteEpoch 4", &format!("lastVoteEpoch 4{IMPORTS}"));
    let written = load(&text).file_text();
    assert!(written.ends_with(&format!("vars currentEpoch 5 lastVoteEpoch 4{IMPORTS}\n")), "{written}");
    // An editor may have removed the last line end.
    let file = NodesFile::parse(text.trim_end()).unwrap().unwrap();
    assert_eq!((file.last_vote_epoch, file.imports.len()), (4, 2));
    for cut in 1..IMPORTS.len() - 1 {
        let text = text.trim_end();
        let is_whole = IMPORTS.as_bytes()[IMPORTS.len() - cut] == b';';
        assert_eq!(NodesFile::parse(&text[..text.len() - cut]).is_ok(), is_whole, "{cut}");
    }
    // Slots that this node does not have are none of its imports.
    let text = text.replace("7,9-12", "7,9999");
    assert!(load(&text).file_text().contains(" importedSlots 7:633d"));
}

#[test]
fn a_file_keeps_unclaimed_slots() {
    let text = REDIS_7_0.replace("vars ", "vars unclaimedSlots 10002,16000-16383 ");
    let written = load(&text).file_text();
    assert!(written.ends_with("vars unclaimedSlots 10002,16000-16383 currentEpoch 5 lastVoteEpoch 4\n"), "{written}");
    let file = NodesFile::parse(text.trim_end()).unwrap().unwrap();
    assert_eq!((file.last_vote_epoch, file.unclaimed.len()), (5, 385));
    // Slots of this node, and slots without an owner, need no mark.
    let text = text.replace("10002,16000-16383", "3,9999,10002");
    assert!(load(&text).file_text().contains("vars unclaimedSlots 10002 currentEpoch"));
    for bad in ["", "x", "7-", "16384"] {
        let text = REDIS_7_0.replace("vars ", &format!("vars unclaimedSlots {bad} "));
        assert!(NodesFile::parse(&text).is_err(), "{bad}");
    }
}

#[test]
fn an_empty_file_is_a_new_node() {
    for text in ["", "\n\n"] {
        assert!(NodesFile::parse(text).unwrap().is_none());
    }
}

#[test]
fn damaged_files_are_refused_with_their_line() {
    let check = |text: &str, line: usize| match NodesFile::parse(text) {
        Err(error) => assert_eq!(error.line, line, "{error}"),
        Ok(_) => panic!("accepted: {text}"),
    };
    let cut = VALKEY.split_once("vars").unwrap().0;
    check(cut, 0);
    check(&VALKEY[..VALKEY.len() - " 1\n".len()], 4);
    check(&VALKEY.replace("master - 0 1795842117471 3 connected 10001-16383", "mas"), 1);
    check(&VALKEY.replace("master,fail", "master,dead"), 2);
    check(&VALKEY.replace("shard-id=b2258307efb149f2bd5653da1d7024a5613d20f0 my", "shard=1 my"), 3);
    check(&VALKEY.replace("10001-16383", "10001-16384"), 1);
    check(&VALKEY.replace("10001-16383", "9-3"), 1);
    check(&VALKEY.replace("currentEpoch 4", "currentEpoch x"), 4);
    check(&VALKEY.replace("myself,", ""), 0);
    check(&REDIS_7_0.replace("[7000->-", "[7000"), 1);
    check("rubbish\n", 1);
}

#[test]
fn every_cut_of_a_file_is_read_or_refused() {
    for text in [VALKEY, REDIS_7_0] {
        for end in 1..text.len() {
            let cut = &text[..end];
            let is_whole = cut.contains("lastVoteEpoch ") && cut.ends_with(|last: char| last.is_ascii_digit());
            assert_eq!(NodesFile::parse(cut).is_ok(), is_whole, "{end}");
        }
    }
}

/// The number of the last vote may be cut off, so that the node must not vote in the present epoch.
#[test]
fn a_file_without_its_last_line_end_is_read_without_a_vote() {
    for (text, epoch) in [(VALKEY, 4), (REDIS_7_0, 5)] {
        let cut = text.trim_end();
        assert_eq!(NodesFile::parse(cut).unwrap().unwrap().last_vote_epoch, epoch);
        let many_digits = cut.replace("lastVoteEpoch ", "lastVoteEpoch 9");
        assert!(NodesFile::parse(&many_digits).unwrap().unwrap().last_vote_epoch > 90);
    }
    assert!(NodesFile::parse("vars currentEpoch 4 lastVoteEpoch").is_err());
}

#[test]
fn the_shard_of_the_primary_holds() {
    let text = VALKEY.replacen(
        "tls-port=0,shard-id=b2258307efb149f2bd5653da1d7024a5613d20f0 my",
        "tls-port=0,shard-id=ffffffffffffffffffffffffffffffffffffffff my",
        1,
    );
    let file = NodesFile::parse(&text).unwrap().unwrap();
    assert_eq!(file.repairs.len(), 1);
    let machine = Machine::load(config(), &file, || 7);
    assert_eq!(machine.table().myself().shard.as_str(), "b2258307efb149f2bd5653da1d7024a5613d20f0");
}

#[test]
fn commands_answer_in_the_words_of_the_peers() {
    let mut machine = Machine::new(config(), || 0x1234_5678);
    let slot = |number| Slot::new(number).unwrap();
    let mut check = |command: ClusterCommand, text: &str| match run(&mut machine, command.clone()) {
        ClusterReply::Error(error) => assert_eq!(error, text, "{command:?}"),
        ClusterReply::Status(status) => assert_eq!(status, text, "{command:?}"),
        ClusterReply::Ok => assert_eq!("OK", text, "{command:?}"),
        other => panic!("{other:?}"),
    };
    let meet = |ip: &str, port| ClusterCommand::Meet { ip: ip.into(), port, bus_port: None };
    let set = |change| ClusterCommand::SetSlot { slot: slot(1), change, has_keys: false, from_primary: false };
    check(ClusterCommand::Forget("abc".into()), "Unknown node abc");
    check(ClusterCommand::Replicate { node: "abc".into(), has_keys: false }, "Unknown node abc");
    check(set(SetSlot::Node("abc".into())), "Unknown node abc");
    check(set(SetSlot::Migrating("abc".into())), "I'm not the owner of hash slot 1");
    check(set(SetSlot::Importing("abc".into())), "I don't know about node abc");
    check(ClusterCommand::AddSlots(vec![slot(1), slot(1)]), "Slot 1 specified multiple times");
    check(ClusterCommand::AddSlots(vec![slot(5)]), "OK");
    check(ClusterCommand::AddSlots(vec![slot(4), slot(5)]), "Slot 5 is already busy");
    check(ClusterCommand::DelSlots(vec![slot(6)]), "Slot 6 is already unassigned");
    check(
        ClusterCommand::AddSlotsRange(vec![(slot(9), slot(8))]),
        "start slot number 9 is greater than end slot number 8",
    );
    check(meet("foo", 1), "Invalid node address specified: foo:1");
    check(meet("127.0.0.1", 99_999), "Port number is out of range");
    check(meet("127.0.0.1", 60_000), "Cluster bus port number is out of range");
    check(
        ClusterCommand::Failover(crate::manual::FailoverMode::Planned),
        "You should send CLUSTER FAILOVER to a replica",
    );
    check(ClusterCommand::SetConfigEpoch(-1), "Invalid config epoch specified: -1");
    check(ClusterCommand::SetConfigEpoch(5), "OK");
    check(ClusterCommand::SetConfigEpoch(6), "Node config epoch is already non-zero");
    check(ClusterCommand::BumpEpoch, "STILL 5");
    check(ClusterCommand::CountFailureReports("abc".into()), "Unknown node abc");
    check(ClusterCommand::Replicas("abc".into(), ClientPath::default()), "Unknown node abc");
    check(ClusterCommand::FlushSlots { has_keys: true }, "DB must be empty to perform CLUSTER FLUSHSLOTS.");
    check(
        ClusterCommand::Reset { hard: true, has_keys: true },
        "CLUSTER RESET can't be called with master nodes containing keys",
    );
    check(ClusterCommand::SaveConfig, "OK");
    check(ClusterCommand::ReplicateNoOne, "OK");
}

#[test]
fn an_answer_waits_for_the_disk() {
    let mut machine = Machine::new(config(), || 3);
    let first = machine.handle(moment(1), 1, Input::Tick);
    assert!(first.iter().any(|action| matches!(action, Action::Save { generation: Generation(1), .. })));
    let command = ClusterCommand::AddSlots(vec![Slot::new(5).unwrap()]);
    let actions = machine.handle(moment(2), 2, Input::Command(CommandId(9), command));
    assert!(!actions.iter().any(|action| matches!(action, Action::Answer(..) | Action::View(_))), "{actions:?}");
    // The save under way began before the change.
    let actions = machine.handle(moment(3), 3, Input::Saved(Generation(1)));
    assert!(!actions.iter().any(|action| matches!(action, Action::Answer(..))), "{actions:?}");
    let actions = machine.handle(moment(4), 4, Input::Saved(Generation(2)));
    assert!(actions.iter().any(|action| matches!(action, Action::Answer(CommandId(9), ClusterReply::Ok))));
    let mut views = actions.iter().filter_map(|action| if let Action::View(view) = action { Some(view) } else { None });
    assert_eq!(views.next_back().unwrap().mine.to_string(), "5");
}
