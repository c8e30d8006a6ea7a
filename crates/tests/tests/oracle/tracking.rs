//! Client-side caching (CLIENT TRACKING) compared with redis-server: the replies and invalidations of a few
//! connections, in their order. Penstock runs each script with one thread and with three.

#![allow(clippy::unwrap_used, clippy::panic)]

use penstock_tests::bytes::{command, encode};
use penstock_tests::conn::Conn;
use penstock_tests::server::Server;

/// Connections of a script. Penstock distributes them over its threads.
const CONNECTIONS: usize = 4;

/// Number of connections before those.
const EARLIER: usize = 100;

/// The mark of a round's end: a connection in any state replies to it, and it occurs in no other reply.
const MARK: &str = "end-of-round";

/// Returns everything that was sent to a connection so far.
fn drain(conn: &mut Conn) -> Vec<String> {
    let mut all = Vec::new();
    // Messages from other threads may follow the reply that they belong to.
    for _ in 0..2 {
        conn.send(&encode(&command(&format!("PING {MARK}")))).unwrap();
        loop {
            let reply = conn.read().unwrap().escaped();
            if reply.contains(MARK) {
                break;
            }
            // HELLO's reply depends on the server.
            all.push(if reply.contains("version") { "hello".into() } else { reply });
        }
    }
    all
}

/// Returns the output of a server's connections for a script. Each line is a connection's letter and its commands;
/// semicolons separate commands that are sent together; `#A` is the number of connection A.
fn run(server: &Server, script: &str) -> Vec<String> {
    // So that the connections' numbers are unlike other numbers in the replies.
    (0..EARLIER).for_each(|_| drop(server.connect().cmd("PING").unwrap()));
    let mut conns: Vec<Conn> = (0..CONNECTIONS).map(|_| server.connect()).collect();
    let ids: Vec<String> = conns
        .iter_mut()
        .map(|conn| conn.cmd("CLIENT ID").unwrap().escaped().replace([':', '\\', 'r', 'n'], ""))
        .collect();
    let letter = |at: usize| char::from(b'A' + at as u8);
    let mut told = Vec::new();
    for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (name, commands) = line.split_once(' ').unwrap();
        let mut commands = commands.to_owned();
        for (at, id) in ids.iter().enumerate() {
            commands = commands.replace(&format!("#{}", letter(at)), id);
        }
        let at = usize::from(name.as_bytes()[0] - b'A');
        let bytes: Vec<u8> = commands.split("; ").flat_map(|line| encode(&command(line))).collect();
        conns[at].send(&bytes).unwrap();
        // Read the connection's own replies before those of the others.
        let mut round = vec![format!("{line} =>")];
        for at in (0..CONNECTIONS).map(|n| (at + n) % CONNECTIONS) {
            let shown = drain(&mut conns[at]);
            if !shown.is_empty() {
                let mut shown = shown.join(" ");
                for (other, id) in ids.iter().enumerate() {
                    shown = shown.replace(&format!(":{id}\\r\\n"), &format!(":#{}\\r\\n", letter(other)));
                }
                round.push(format!("  {}: {shown}", letter(at)));
            }
        }
        round[1..].sort();
        told.extend(round);
    }
    told
}

fn check(scripts: &[&str]) {
    let servers = [Server::oracle(&[]), Server::penstock(&["--threads", "1"]), Server::penstock(&["--threads", "3"])];
    for script in scripts {
        let [expected, one, three] = servers.each_ref().map(|server| {
            let told = run(server, script);
            server.connect().cmd("FLUSHALL").unwrap();
            server.connect().cmd("CONFIG SET tracking-table-max-keys 1000000").unwrap();
            told
        });
        let differs = expected.iter().zip(&one).position(|(a, b)| a != b);
        if let Some(at) = differs {
            let from = at.saturating_sub(4);
            panic!("{script}\nredis-server: {:#?}\npenstock: {:#?}", &expected[from..=at], &one[from..=at]);
        }
        assert_eq!(one, expected, "{script}");
        assert_eq!(three, expected, "with three threads: {script}");
    }
}

#[test]
fn each_read_key_is_invalidated_once() {
    check(&[
        "A HELLO 3; CLIENT TRACKING ON
         A GET k; GET j; MGET a b c
         B SET k v
         B SET k w
         A SET j own
         B DEL a b
         B MSET b 1 c 2
         A GET k; GET k
         B SET k x; SET k y
         A CLIENT TRACKING OFF
         B SET k z",
        // Keys of any type, and reads that don't return a value.
        "A HELLO 3; CLIENT TRACKING ON
         B RPUSH l 1 2 3; SADD s a; HSET h f v; ZADD z 1 m; XADD x 1-1 f v; SETBIT bits 1 1; PFADD hll a
         A LRANGE l 0 -1; SMEMBERS s; HGETALL h; ZRANGE z 0 -1; XRANGE x - +; GETBIT bits 1; PFCOUNT hll; TTL k; EXISTS e f
         B LPUSH l 0; SREM s a; HDEL h f; ZINCRBY z 1 m; XADD x 2-1 f v; SETBIT bits 2 1; PFADD hll b; EXPIRE k 10; SET e 1
         A GET nothing; STRLEN nothing
         B SET nothing v
         A SDIFF s t; TYPE y; OBJECT ENCODING z; DUMP q; SORT_RO l
         B SADD t q; LPUSH y 1; ZADD z 9 q; SET q v; LPUSH l 9
         A GET l
         B DEL l",
        // Names count in any database.
        "A HELLO 3; CLIENT TRACKING ON; SELECT 1; GET k
         B SET k v
         A GET k
         B SELECT 1; SET k v; SELECT 0; SWAPDB 0 1",
        // Moves, and keys that are replaced.
        "A HELLO 3; CLIENT TRACKING ON
         B SET a 1; SET b 2
         A GET a; GET b; GET c
         B RENAME a c
         A GET a; GET c
         B COPY c b REPLACE
         A GET b; GET c
         B MOVE c 1
         B SORT nothing STORE b
         B RPUSH l 1
         A LRANGE l 0 -1; LRANGE m 0 -1
         B LMOVE l m LEFT RIGHT
         B GETDEL b; GETEX m; PERSIST l; UNLINK m",
        // No message for commands that change nothing.
        "A HELLO 3; CLIENT TRACKING ON
         B SADD s a; HSET h f v; SET n x
         A SMEMBERS s; HGET h f; GET n; GET none
         B SADD s a; SREM s z; HDEL h none; SETNX n y; DEL none; PERSIST n; INCR n
         B XGROUP CREATE x g 0 MKSTREAM
         A XLEN x
         B XADD x 1-1 f v
         A XLEN x
         B XREADGROUP GROUP g c STREAMS x >
         B XACK x g 1-1
         B HSET h f v; ZADD z XX 1 m; APPEND none x",
    ]);
}

#[test]
fn invalidations_of_own_changes_follow_the_reply() {
    check(&[
        "A HELLO 3; CLIENT TRACKING ON; SET k 1; GET k; SET k 2; GET k; SET k 3; DEL k; PING
         A GET a; GET b; MSET a 1 b 2; PING
         A GET k; CLIENT REPLY SKIP; SET k v; PING
         A GET k; CLIENT REPLY OFF; SET k w; CLIENT REPLY ON; PING",
        "A HELLO 3; CLIENT TRACKING ON NOLOOP; SET k 1; GET k; SET k 2; GET k
         B SET k 3
         A SET k 4
         A GET k; MULTI; SET k 5; GET k; EXEC
         B SET k 6
         A CLIENT TRACKINGINFO",
        "A CLIENT TRACKING ON; GET k; SET k v
         B SET k v
         A CLIENT TRACKINGINFO
         A GET k; HELLO 3
         B SET k v",
    ]);
}

#[test]
fn transactions_and_scripts_read_and_change_as_one() {
    check(&[
        "A HELLO 3; CLIENT TRACKING ON
         A MULTI; GET a; GET b; SET c 1; EXEC
         B MULTI; SET a 1; SET b 2; SET a 3; EXEC
         A MULTI; SET d 1; GET d; EXEC
         B SET d 2
         A MULTI; GET e; SET e 1; EXEC
         B SET e 2
         A WATCH w; MULTI; GET w; EXEC
         B SET w 1
         A MULTI; GET f; DISCARD
         B SET f 1",
        "A HELLO 3; CLIENT TRACKING ON
         A EVAL return(redis.call('get',KEYS[1])) 1 k
         B EVAL return(redis.call('set',KEYS[1],'v')) 1 k
         A EVAL_RO return(redis.call('get',KEYS[1])) 1 k
         A EVAL_RO return(1) 1 only
         B SET only 1; SET k 1
         A EVAL redis.call('get',KEYS[1]);redis.call('set',KEYS[1],1);return(2) 1 j
         B SET j 2
         A EVAL redis.call('set',KEYS[1],1);redis.call('get',KEYS[1]);return(2) 1 i
         B SET i 2",
    ]);
}

#[test]
fn clients_choose_which_reads_count() {
    check(&[
        "A HELLO 3; CLIENT TRACKING ON OPTIN
         A GET a
         B SET a 1
         A CLIENT CACHING YES; GET a; GET b
         B SET a 2; SET b 2
         A CLIENT CACHING YES; CLIENT ID; GET c; GET d
         B SET c 1; SET d 1
         A CLIENT CACHING YES; PING; GET e
         B SET e 1
         A CLIENT CACHING YES; MULTI; GET f; GET g; EXEC; GET h
         B SET f 1; SET g 1; SET h 1
         A CLIENT CACHING YES; CLIENT TRACKINGINFO
         A CLIENT CACHING NO
         A CLIENT CACHING MAYBE
         A CLIENT TRACKING ON OPTOUT
         A CLIENT CACHING YES; NOSUCH; GET i
         B SET i 1",
        "A HELLO 3; CLIENT TRACKING ON OPTOUT
         A GET a; CLIENT CACHING NO; GET b; GET c
         B MSET a 1 b 1 c 1
         A CLIENT CACHING NO; CLIENT TRACKINGINFO; CLIENT CACHING YES
         A CLIENT TRACKING ON OPTIN
         A CLIENT TRACKING ON BCAST",
    ]);
}

#[test]
fn a_flush_invalidates_all_caches() {
    check(&[
        "A HELLO 3; CLIENT TRACKING ON
         B FLUSHALL
         B HELLO 3; CLIENT TRACKING ON BCAST PREFIX x
         C HELLO 3; CLIENT TRACKING ON NOLOOP
         A GET k; FLUSHDB; GET j; PING
         B SET k 1; SET j 1
         C MULTI; GET q; FLUSHALL; GET k; EXEC
         B SET q 1; SET k 1
         B SELECT 3; FLUSHDB ASYNC
         D FLUSHALL SYNC",
        "A HELLO 3
         B SUBSCRIBE c
         C CLIENT TRACKING ON REDIRECT #B
         D FLUSHALL",
    ]);
}

#[test]
fn broadcasts_cover_all_keys_with_the_prefix() {
    check(&[
        "A HELLO 3; CLIENT TRACKING ON BCAST PREFIX user: PREFIX item:
         B SET user:2 1; SET other 1; SET user:1 1; SET item:1 1; SET user:2 2
         A SET user:1 2; PING
         A CLIENT TRACKINGINFO
         A CLIENT TRACKING ON BCAST PREFIX zoo
         B SET zoo 1; DEL user:1
         B MULTI; SET user:1 1; SET user:2 1; EXEC
         A CLIENT TRACKING OFF
         B SET user:1 1",
        "A HELLO 3; CLIENT TRACKING ON BCAST
         B HELLO 3; CLIENT TRACKING ON BCAST NOLOOP
         C SET k 1; SET j 1
         B SET k 2; SET i 2
         A SET l 3
         A GET k; GET k
         B CLIENT TRACKING ON BCAST
         B SET k 2",
        // Keys remembered before don't matter to a client that tracks prefixes.
        "A HELLO 3; CLIENT TRACKING ON; GET k; CLIENT TRACKING OFF; CLIENT TRACKING ON BCAST PREFIX x
         B SET k 1; SET x 1",
        "A CLIENT TRACKING ON PREFIX a
         A CLIENT TRACKING ON BCAST OPTIN
         A CLIENT TRACKING ON OPTIN OPTOUT
         A CLIENT TRACKING ON BCAST PREFIX a PREFIX ab
         A CLIENT TRACKING ON BCAST PREFIX ab
         A CLIENT TRACKING ON BCAST PREFIX a
         A CLIENT TRACKING ON BCAST
         A CLIENT TRACKING ON
         A CLIENT TRACKING ON REDIRECT 123456789
         A CLIENT TRACKING ON REDIRECT x
         A CLIENT TRACKING ON REDIRECT #B REDIRECT #C
         A CLIENT TRACKING ON REDIRECT
         A CLIENT TRACKING MAYBE
         A CLIENT TRACKING ON BOGUS
         A CLIENT TRACKING
         A CLIENT CACHING
         A CLIENT CACHING YES
         A CLIENT TRACKINGINFO
         A CLIENT TRACKING OFF BCAST; CLIENT TRACKINGINFO; CLIENT GETREDIR
         A CLIENT CACHING YES",
    ]);
}

#[test]
fn another_connection_gets_the_messages() {
    check(&[
        "B SUBSCRIBE __redis__:invalidate
         A CLIENT TRACKING ON REDIRECT #B; CLIENT GETREDIR
         A GET k; GET j
         C SET k 1
         A SET j 1
         A CLIENT TRACKINGINFO
         B UNSUBSCRIBE
         A GET k
         C SET k 2
         B HELLO 3
         A GET k
         C SET k 3
         A CLIENT TRACKING OFF; CLIENT GETREDIR",
        "B SUBSCRIBE __redis__:invalidate
         A CLIENT TRACKING ON BCAST PREFIX u REDIRECT #B
         C SET u1 1; SET u2 1; SET v 1
         C FLUSHALL",
    ]);
}

#[test]
fn redirection_to_a_closed_connection_is_reported() {
    let servers = [Server::oracle(&[]), Server::penstock(&["--threads", "1"]), Server::penstock(&["--threads", "3"])];
    let told = servers.each_ref().map(|server| {
        (0..EARLIER).for_each(|_| drop(server.connect().cmd("PING").unwrap()));
        let (mut a, mut b, mut c) = (server.connect(), server.connect(), server.connect());
        let id = b.cmd("CLIENT ID").unwrap().escaped().replace([':', '\\', 'r', 'n'], "");
        let mut told = Vec::new();
        for line in ["HELLO 3", &format!("CLIENT TRACKING ON REDIRECT {id}"), "GET k", "GET j"] {
            a.cmd(line).unwrap();
        }
        drop(b);
        server.wait_until("the connection is gone", |server| server.figure("connected_clients") <= 3);
        for line in ["SET k 1", "SET j 1"] {
            c.cmd(line).unwrap();
            told.extend(drain(&mut a));
        }
        told.push(a.cmd("CLIENT TRACKINGINFO").unwrap().escaped());
        let line = a.cmd("CLIENT LIST").unwrap();
        let line = String::from_utf8_lossy(line.text()).into_owned();
        let own = line.lines().find(|line| line.contains("redir=") && !line.contains("redir=-1")).unwrap();
        told.extend(own.split(' ').filter(|f| f.starts_with("flags=") || f.starts_with("redir=")).map(str::to_owned));
        for line in ["CLIENT TRACKING ON", "CLIENT TRACKINGINFO", "CLIENT GETREDIR"] {
            told.push(a.cmd(line).unwrap().escaped());
        }
        told.into_iter().map(|line| line.replace(&id, "#B")).collect::<Vec<_>>()
    });
    assert_eq!(told[1], told[0]);
    assert_eq!(told[2], told[0]);
}

/// Returns the number of invalidations of single keys for a connection.
fn invalidations(conn: &mut Conn) -> usize {
    drain(conn).iter().filter(|told| told.contains("invalidate") && told.contains("*1")).count()
}

#[test]
fn keys_that_expire_or_exceed_the_table_are_invalidated() {
    for server in [Server::oracle(&[]), Server::penstock(&["--threads", "1"]), Server::penstock(&["--threads", "3"])] {
        let (mut a, mut b) = (server.connect(), server.connect());
        for line in ["HELLO 3", "CLIENT TRACKING ON", "SET k v PX 60", "GET k"] {
            a.cmd(line).unwrap();
        }
        // No command accesses the key.
        assert!(a.read().unwrap().escaped().contains("invalidate"));
        b.cmd("CONFIG SET tracking-table-max-keys 3").unwrap();
        for n in 0..20 {
            a.send(&encode(&command(&format!("GET k{n}")))).unwrap();
            while a.read().unwrap().escaped() != "_\\r\\n" {}
        }
        b.cmd("CONFIG SET tracking-table-max-keys 0").unwrap();
        assert_eq!(server.figure("tracking_total_keys"), 3);
        (0..300).for_each(|n| drop(b.cmd(&format!("SET other{n} v"))));
        drain(&mut a);
        for n in 0..300 {
            a.cmd(&format!("GET other{n}")).unwrap();
        }
        assert_eq!(server.figure("tracking_total_items"), 303);
        assert_eq!(invalidations(&mut a), 0);
        b.cmd("CONFIG SET tracking-table-max-keys 10").unwrap();
        let mut told = 0;
        for _ in 0..20 {
            told += invalidations(&mut a);
        }
        assert_eq!((told, server.figure("tracking_total_keys")), (293, 10));
        assert_eq!(server.figure("tracking_clients"), 1);
    }
}

#[test]
fn evicted_keys_are_invalidated() {
    for server in [Server::oracle(&[]), Server::penstock(&["--threads", "2"])] {
        let (mut a, mut b) = (server.connect(), server.connect());
        for line in ["HELLO 3", "SET k v", "SET l v", "CLIENT TRACKING ON", "MGET k l"] {
            a.cmd(line).unwrap();
        }
        b.cmd("CONFIG SET maxmemory-policy allkeys-random maxmemory-eviction-tenacity 100").unwrap();
        b.cmd("CONFIG SET maxmemory 1").unwrap();
        b.cmd("PING").unwrap();
        let mut told = 0;
        for _ in 0..20 {
            told += invalidations(&mut a);
        }
        assert_eq!(told, 2);
    }
}

#[test]
fn keys_read_by_blocking_commands_are_invalidated() {
    for server in [Server::penstock(&["--threads", "1"]), Server::penstock(&["--threads", "3"])] {
        let (mut a, mut b) = (server.connect(), server.connect());
        for line in ["HELLO 3", "CLIENT TRACKING ON"] {
            a.cmd(line).unwrap();
        }
        a.send(&encode(&command("XREAD BLOCK 0 STREAMS s $"))).unwrap();
        server.wait_until("it waits", |server| server.figure("blocked_clients") == 1);
        b.cmd("XADD s 1-1 f v").unwrap();
        // One invalidation from the first, empty read, and another one after the entry was read.
        let told = [a.read().unwrap().escaped(), a.read().unwrap().escaped()];
        assert!(told[0].contains("invalidate") && told[1].contains("1-1"), "{told:?}");
        b.cmd("XADD s 2-1 f v").unwrap();
        assert!(a.read().unwrap().escaped().contains("invalidate"));
    }
}
