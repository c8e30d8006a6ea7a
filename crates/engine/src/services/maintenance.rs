//! Connections that hear of maintenance: see [`crate::maintenance`].

use resp::reply::Proto;

use crate::clients::client::client_flag::{CAME_BY_MOVE, HEARS_MAINTENANCE, UNIX_SOCKET};
use crate::clients::session::Session;
use crate::pubsub::Subscriber;
use crate::worker::Worker;

fn subscriber(worker: &Worker, session: &Session) -> Subscriber {
    Subscriber { client: session.client.id, worker: worker.id, proto: Proto::Resp3 }
}

/// Returns true if a client can connect to the address by which replicas are known. Replication uses TLS or it does not,
/// and so does a client. A client of a Unix socket has no address.
fn can_move(worker: &Worker, session: &Session) -> bool {
    let settings = &worker.engine.settings;
    let port = session.client.laddr.rsplit(':').next().and_then(|port| port.parse::<i64>().ok());
    let tls_port = settings.tls_port.get();
    let uses_tls = tls_port != 0 && port == Some(tls_port);
    !session.client.has(UNIX_SOCKET) && uses_tls == settings.tls_replication.get()
}

/// Makes a connection hear of maintenance. A connection whose client could not follow a move gets no announcements. A
/// client that comes to the old primary during a move or after it is told at once, behind the reply.
pub(crate) fn start(worker: &Worker, session: &mut Session, wants_address: bool) {
    if !can_move(worker, session) {
        return;
    }
    let maintenance = &worker.engine.maintenance;
    maintenance.add(subscriber(worker, session), wants_address);
    session.client.set(HEARS_MAINTENANCE, true);
    if maintenance.holds() {
        session.client.set(CAME_BY_MOVE, true);
    } else if let Some(mut announcement) = maintenance.announcement_for_new(wants_address, worker.clock.now_ms) {
        // Its first write closes the connection once another server is the primary.
        session.client.set(CAME_BY_MOVE, true);
        session.pushes.append(&mut announcement);
    }
}

/// Ends the announcements for a connection, if it gets them.
pub(crate) fn stop(worker: &Worker, session: &Session) {
    if session.client.has(HEARS_MAINTENANCE) {
        session.client.set(HEARS_MAINTENANCE | CAME_BY_MOVE, false);
        worker.engine.maintenance.remove(subscriber(worker, session));
    }
}

#[cfg(test)]
mod tests {
    use crate::clients::client::client_flag;
    use crate::clients::progress::Progress;
    use crate::replication::Primary;
    use crate::testing::{Bench, check};

    const ON: &str = "client maint_notifications on";

    fn primary() -> Primary {
        Primary { host: "127.0.0.1".into(), port: 7 }
    }

    #[test]
    fn the_command_checks_its_arguments() {
        const NEEDS_RESP3: &str = "-ERR CLIENT MAINT_NOTIFICATIONS needs RESP3. Send HELLO 3 before it.";
        check(&[
            (ON, NEEDS_RESP3),
            ("client maint_notifications off", "+OK"),
            ("client maint_notifications maybe", "-ERR syntax error"),
            ("client maint_notifications on moving-endpoint-type", "-ERR syntax error"),
            ("client maint_notifications on moving-endpoint-type somewhere", "-ERR syntax error"),
            ("client maint_notifications on other none", "-ERR syntax error"),
        ]);
    }

    #[test]
    fn connections_are_counted_until_they_stop() {
        let mut bench = Bench::default();
        let mut session = bench.open();
        let engine = bench.worker.engine;
        bench.run(&mut session, b"HELLO 3\r\n");
        for (command, listeners) in [(ON, 1), ("client maint_notifications on moving-endpoint-type none", 1)] {
            bench.check(&mut session, &[(command, "+OK")]);
            assert_eq!(engine.maintenance.listeners(), listeners);
        }
        bench.check(&mut session, &[("client maint_notifications off", "+OK")]);
        assert_eq!(engine.maintenance.listeners(), 0);
        bench.check(&mut session, &[(ON, "+OK"), ("reset", "+RESET")]);
        assert_eq!(engine.maintenance.listeners(), 0);
    }

    #[test]
    fn clients_that_cannot_follow_hear_nothing() {
        let mut bench = Bench::default();
        let mut session = bench.open();
        let engine = bench.worker.engine;
        bench.run(&mut session, b"HELLO 3\r\n");
        session.client.set(client_flag::UNIX_SOCKET, true);
        bench.check(&mut session, &[(ON, "+OK")]);
        assert_eq!(engine.maintenance.listeners(), 0);
        session.client.set(client_flag::UNIX_SOCKET, false);
        bench.check(&mut session, &[("config set tls-replication yes", "+OK"), (ON, "+OK")]);
        assert_eq!(engine.maintenance.listeners(), 0, "replicas are known by their TLS ports");
        bench.check(&mut session, &[("config set tls-replication no", "+OK"), (ON, "+OK")]);
        assert_eq!(engine.maintenance.listeners(), 1);
    }

    /// Without the hold, the client that was sent here would get READONLY before the promotion.
    #[test]
    fn commands_wait_at_a_replica_that_is_to_take_over() {
        let mut bench = Bench::default();
        let (mut moved, mut other) = (bench.open(), bench.open());
        let engine = bench.worker.engine;
        let mut reader = bench.open();
        let now_ms = bench.now_us / 1000;
        engine.follow(Some(primary()), now_ms);
        bench.run(&mut reader, b"HELLO 3\r\n");
        bench.check(&mut reader, &[(ON, "+OK")]);
        engine.maintenance.hold(now_ms, 1000);
        bench.run(&mut moved, b"HELLO 3\r\n");
        bench.check(&mut moved, &[(ON, "+OK")]);
        for command in ["SET k v", "GET k", "EVAL 'return 1' 0", "PUBLISH c m", "BLPOP l 0"] {
            let line = format!("{command}\r\n");
            assert_eq!(bench.run(&mut moved, line.as_bytes()), (Vec::new(), Progress::Paused), "{command}");
        }
        bench.check(&mut moved, &[("ping", "+PONG"), ("client setinfo lib-name x", "+OK")]);
        bench.check(&mut other, &[("get k", "$-1")]);
        assert_eq!(bench.run(&mut reader, b"GET k\r\n").1, Progress::Ready, "the replica's own readers go on");
        // The commands of a transaction would be refused by a replica, too.
        bench.check(&mut moved, &[("multi", "+OK")]);
        assert_eq!(bench.run(&mut moved, b"SET k v\r\n"), (Vec::new(), Progress::Paused));
        engine.follow(None, now_ms);
        bench.check(&mut moved, &[("set k v", "+QUEUED"), ("exec", "*1|+OK")]);
        assert_eq!(bench.run(&mut moved, b"SET k v\r\n"), (b"+OK\r\n".to_vec(), Progress::Ready));
    }

    #[test]
    fn a_client_that_comes_after_a_move_is_told_and_closed_at_a_write() {
        let mut bench = Bench::default();
        let mut session = bench.open();
        let engine = bench.worker.engine;
        let now_ms = bench.now_us / 1000;
        engine.begin_failover(None, None, false, now_ms);
        engine.follow(Some(primary()), now_ms);
        bench.run(&mut session, b"HELLO 3\r\n");
        let (told, _) = bench.run(&mut session, b"CLIENT MAINT_NOTIFICATIONS ON\r\n");
        let told = String::from_utf8(told).unwrap();
        assert!(told.starts_with("+OK\r\n>4\r\n$6\r\nMOVING\r\n:") && told.ends_with("127.0.0.1:7\r\n"), "{told}");
        assert_eq!(bench.run(&mut session, b"SET k v\r\n"), (Vec::new(), Progress::Closing));
    }

    /// The client would see READONLY otherwise.
    #[test]
    fn a_move_that_fails_sends_clients_back() {
        let mut bench = Bench::default();
        let mut session = bench.open();
        let engine = bench.worker.engine;
        let now_ms = bench.now_us / 1000;
        engine.follow(Some(primary()), now_ms);
        engine.maintenance.hold(now_ms, 1000);
        bench.run(&mut session, b"HELLO 3\r\n");
        bench.check(&mut session, &[(ON, "+OK")]);
        assert_eq!(bench.run(&mut session, b"SET k v\r\n"), (Vec::new(), Progress::Paused));
        engine.maintenance.shorten_hold(now_ms + 1);
        engine.end_overdue_hold(now_ms);
        assert!(engine.maintenance.holds());
        engine.end_overdue_hold(now_ms + 1);
        assert!(!engine.maintenance.holds());
        let told = engine.inboxes[0].pushes_for(session.client.id, 0, u64::MAX);
        assert!(String::from_utf8_lossy(&told[0].bytes).contains("MOVING"), "{told:?}");
        assert_eq!(bench.run(&mut session, b"SET k v\r\n"), (Vec::new(), Progress::Closing));
    }
}
