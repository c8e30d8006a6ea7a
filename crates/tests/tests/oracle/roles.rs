//! A server that becomes a replica, and a primary again, while it runs: the effects on its clients and its
//! configuration file. Each test runs on Redis, too.

#![allow(clippy::unwrap_used)]

use penstock_tests::conn::Conn;
use penstock_tests::directory::Directory;
use penstock_tests::server::Server;

use super::links::{is_up, text};

/// Starts a server with these arguments.
type Starts = fn(&[&str]) -> Server;

const BOTH: [Starts; 2] = [|args| Server::penstock(&[&["--threads", "2"], args].concat()), Server::oracle];
const FORCED: &[u8] =
    b"-UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)\r\n";

/// Penstock's own options must follow the file.
fn with_file(start: Starts, file: &str) -> Server {
    if start as usize == BOTH[0] as usize { Server::penstock(&[file, "--threads", "2"]) } else { start(&[file]) }
}

fn follow(conn: &mut Conn, port: u16) {
    assert_eq!(conn.cmd(&format!("REPLICAOF 127.0.0.1 {port}")).unwrap().text(), b"OK");
}

/// Blocking commands on a primary end with an error when it becomes a replica, and their connections are closed. Others
/// continue.
#[test]
fn waits_end_when_a_server_becomes_a_replica() {
    let primary = Server::oracle(&[]);
    for start in BOTH {
        let server = start(&[]);
        let mut operator = server.connect();
        operator.cmd("XGROUP CREATE stream group $ MKSTREAM").unwrap();
        let commands = [
            "BLPOP a b 0",
            "BLMOVE a b LEFT LEFT 0",
            "BZPOPMIN z 100",
            "XREAD BLOCK 0 STREAMS stream $",
            "XREADGROUP GROUP group me BLOCK 0 STREAMS stream >",
            "WAIT 3 0",
        ];
        let mut waiting: Vec<Conn> = commands.map(|_| server.connect()).into();
        for (conn, command) in waiting.iter_mut().zip(commands) {
            // The commands behind it in the batch do not run.
            conn.send(format!("{command}\r\nPING\r\n").as_bytes()).unwrap();
        }
        server.wait_until("all wait", |server| server.figure("blocked_clients") == commands.len() as u64);
        let mut idle = server.connect();
        idle.cmd("PING").unwrap();
        follow(&mut operator, primary.port());
        for (conn, command) in waiting.iter_mut().zip(commands) {
            let end = conn.read_to_close().unwrap();
            assert_eq!(end, FORCED, "{command}: {}", String::from_utf8_lossy(&end));
        }
        assert_eq!(server.figure("blocked_clients"), 0);
        assert_eq!(idle.cmd("PING").unwrap().text(), b"PONG");
        let errors = text(&server, "INFO errorstats");
        assert!(errors.contains(&format!("errorstat_UNBLOCKED:count={}", commands.len())), "{errors}");
        // Likewise within the transaction that a sentinel sends, and for commands that block on a replica.
        server.wait_until("the link is up", is_up);
        let mut reads = server.connect();
        reads.send(b"XREAD BLOCK 0 STREAMS stream $\r\n").unwrap();
        server.wait_until("it waits", |server| server.figure("blocked_clients") == 1);
        operator.cmd("MULTI").unwrap();
        operator.cmd("SLAVEOF 127.0.0.1 1").unwrap();
        assert_eq!(operator.cmd("EXEC").unwrap().items()[0].text(), b"OK");
        assert_eq!(reads.read_to_close().unwrap(), FORCED);
        // A read that blocks continues to block when the server becomes a primary.
        let mut reads = server.connect();
        reads.send(b"XREAD BLOCK 0 STREAMS stream 0\r\n").unwrap();
        server.wait_until("it waits", |server| server.figure("blocked_clients") == 1);
        assert_eq!(operator.cmd("REPLICAOF NO ONE").unwrap().text(), b"OK");
        operator.cmd("XADD stream 9-9 f v").unwrap();
        assert_eq!(reads.read().unwrap().items().len(), 1);
    }
}

/// CONFIG GET and CONFIG REWRITE use the current primary, so that a restarted server follows it.
#[test]
fn the_configuration_names_the_primary() {
    let primary = Server::oracle(&[]);
    let port = primary.port();
    for start in BOTH {
        let directory = Directory::new();
        let file = directory.file("server.conf", "# mine\nreplica-priority 7\n");
        let mut server = with_file(start, &file);
        let mut operator = server.connect();
        let mut written = |command: &str| {
            assert_eq!(operator.cmd(command).unwrap().text(), b"OK", "{command}");
            assert_eq!(operator.cmd("CONFIG REWRITE").unwrap().text(), b"OK");
            let shown = operator.cmd("CONFIG GET replicaof").unwrap().items()[1].escaped();
            let file = directory.read("server.conf");
            assert!(file.starts_with("# mine\nreplica-priority 7\n"), "{file}");
            let lines = file.lines().filter(|line| line.starts_with("replicaof") || line.starts_with("slaveof"));
            (shown, lines.map(str::to_owned).collect::<Vec<_>>())
        };
        let line = format!("replicaof 127.0.0.1 {port}");
        let shown = format!("\"127.0.0.1 {port}\"");
        let (told, lines) = written(&format!("REPLICAOF 127.0.0.1 {port}"));
        assert_eq!((told.contains(shown.trim_matches('"')), lines), (true, vec![line]));
        let (told, lines) = written("SLAVEOF 127.0.0.2 7");
        assert!(told.contains("127.0.0.2 7"), "{told}");
        assert_eq!(lines, ["replicaof 127.0.0.2 7"]);
        let (_, lines) = written("REPLICAOF NO ONE");
        assert_eq!(lines, Vec::<String>::new());
        // As a sentinel does it.
        for command in
            ["MULTI", "SLAVEOF 127.0.0.3 8", "CONFIG REWRITE", "CLIENT KILL TYPE normal", "CLIENT KILL TYPE pubsub"]
        {
            operator.cmd(command).unwrap();
        }
        let replies = operator.cmd("EXEC").unwrap();
        let replies: Vec<String> = replies.items().iter().map(|reply| reply.escaped()).collect();
        assert!(replies[0].contains("OK") && replies[1].contains("OK"), "{replies:?}");
        assert!(directory.read("server.conf").contains("replicaof 127.0.0.3 8\n"));
        // The working directory is the one in the rewritten file.
        server.kill();
        let again = with_file(start, &file);
        assert!(text(&again, "INFO replication").contains("master_host:127.0.0.3\r\nmaster_port:8\r\n"));
    }
}

/// FAILOVER changes roles, too, with the same effects on both servers.
#[test]
fn a_failover_is_written_to_the_configuration_and_ends_waits() {
    for start in BOTH {
        let old = start(&[]);
        let new = start(&["--replicaof", "127.0.0.1", &old.port().to_string()]);
        new.wait_until("the link is up", is_up);
        old.wait_until("it is online", |old| text(old, "INFO replication").contains("state=online"));
        let mut waits = old.connect();
        waits.send(b"BLPOP list 0\r\n").unwrap();
        old.wait_until("it waits", |old| old.figure("blocked_clients") == 1);
        assert_eq!(old.connect().cmd("FAILOVER").unwrap().text(), b"OK");
        old.wait_until("the failover has ended", |old| {
            let info = text(old, "INFO replication");
            info.contains("role:slave") && info.contains("master_failover_state:no-failover")
        });
        assert_eq!(waits.read_to_close().unwrap(), FORCED);
        let follows =
            [&old, &new].map(|server| server.connect().cmd("CONFIG GET replicaof").unwrap().items()[1].text().to_vec());
        assert_eq!(follows, [format!("127.0.0.1 {}", new.port()).into_bytes(), Vec::new()]);
    }
}

/// The fields of INFO, in Redis's order, and the shape of ROLE.
#[test]
fn both_report_replication_in_the_same_form() {
    let names = |server: &Server, section: &str| -> Vec<String> {
        let info = text(server, &format!("INFO {section}"));
        let names = info.lines().filter_map(|line| Some(line.split_once(':')?.0.to_owned()));
        // Valkey has this field since version 8, Redis doesn't.
        names.filter(|name| name != "replicas_waiting_psync").collect()
    };
    let role = |server: &Server| -> Vec<String> {
        let role = server.connect().cmd("ROLE").unwrap();
        role.items().iter().map(|item| item.escaped().chars().take(1).collect()).collect()
    };
    let mut told = Vec::new();
    for start in BOTH {
        let primary = start(&["--min-replicas-to-write", "1"]);
        let replica = start(&["--replicaof", "127.0.0.1", &primary.port().to_string()]);
        replica.wait_until("the link is up", is_up);
        primary.wait_until("it is online", |primary| text(primary, "INFO replication").contains("state=online"));
        let mut seen =
            vec![names(&primary, "replication"), names(&replica, "replication"), role(&primary), role(&replica)];
        let line = text(&primary, "INFO replication");
        let line = line.lines().find(|line| line.starts_with("slave0:")).unwrap().to_owned();
        seen.push(line.split(',').map(|field| field.split('=').next().unwrap().to_owned()).collect());
        drop(primary);
        replica.wait_until("the link is down", |replica| !is_up(replica));
        seen.push(names(&replica, "replication"));
        seen.push(role(&replica));
        told.push(seen);
    }
    assert_eq!(told[0], told[1]);
}
