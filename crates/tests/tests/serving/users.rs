//! Users from outside: their files, the effects of changes on clients of other threads, and the information that
//! unauthenticated clients get.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::thread;

use penstock_tests::bytes::command;
use penstock_tests::conn::Conn;
use penstock_tests::directory::Directory;
use penstock_tests::server::{Server, comes_true};

fn text(conn: &mut Conn, words: &str) -> String {
    let reply = conn.cmd(words).unwrap();
    let items: Vec<_> = reply.items().iter().map(|item| String::from_utf8_lossy(item.text()).into_owned()).collect();
    if items.is_empty() { String::from_utf8_lossy(reply.text()).into_owned() } else { items.join("\n") }
}

const DEFAULT: &str = "user default on nopass sanitize-payload ~* &* +@all";
const BOB: &str = "user bob on sanitize-payload \
                   #81b637d8fcd2c6da6359e6963113a1170de795e4b725b84d1e0b4cfd9ec58ce9 ~b* resetchannels -@all +get";

#[test]
fn a_file_of_users_is_read_saved_and_read_again() {
    let directory = Directory::new();
    let path = directory.file("users", "\nuser bob on >bob ~b* +get\r\n");
    let server = Server::penstock(&["--aclfile", &path]);
    let mut admin = server.connect();
    assert_eq!(text(&mut admin, "ACL LIST"), format!("{BOB}\n{DEFAULT}"));
    let mut bob = server.connect();
    assert_eq!(text(&mut bob, "AUTH bob bob"), "OK");
    assert_eq!(text(&mut bob, "SET b 1"), "NOPERM User bob has no permissions to run the 'set' command");
    assert_eq!(text(&mut admin, "ACL SETUSER eve nopass on"), "OK");
    assert_eq!(text(&mut admin, "ACL SAVE"), "OK");
    let eve = "user eve on nopass sanitize-payload resetchannels -@all";
    assert_eq!(directory.read("users"), format!("{BOB}\n{DEFAULT}\n{eve}\n"));
    let mut is_eve = server.connect();
    assert_eq!(text(&mut is_eve, "AUTH eve x"), "OK");

    // An invalid file changes nothing.
    directory.file("users", "user bob on +nosuch\nuser bob\n");
    let refused = text(&mut admin, "ACL LOAD");
    assert!(
        refused.contains("Duplicate user 'bob' found on line 2") && refused.contains(":1: Error in applying"),
        "{refused}"
    );
    assert_eq!(text(&mut admin, "ACL USERS"), "bob\ndefault\neve");

    directory.file("users", "user bob on >bob ~b* +set\n");
    assert_eq!(text(&mut admin, "ACL LOAD"), "OK");
    assert_eq!(text(&mut bob, "SET b 1"), "OK");
    assert!(is_eve.read_to_close().is_ok(), "eve is gone, and so is its connection");
    assert_eq!(text(&mut admin, "ACL USERS"), "bob\ndefault");
}

/// Commands that only other servers have stay in the rules, and the log names them, once for each load.
#[test]
fn rules_about_commands_of_other_servers_are_kept() {
    let directory = Directory::new();
    let rules = "on nopass sanitize-payload ~* resetchannels -@all +@read +vcard -trimslots +vadd";
    let path = directory.file("users", format!("user bob {rules}\n"));
    let server = Server::penstock(&["--aclfile", &path]);
    let mut admin = server.connect();
    assert_eq!(text(&mut admin, "ACL LIST"), format!("user bob {rules}\n{DEFAULT}"));
    let line =
        "Rules of users name commands that this server doesn't have, and are kept as they are: trimslots, vadd, vcard.";
    assert_eq!(server.log().matches(line).count(), 1, "{}", server.log());
    assert_eq!(text(&mut admin, "ACL SAVE"), "OK");
    assert_eq!(directory.read("users"), format!("user bob {rules}\n{DEFAULT}\n"));
    assert_eq!(text(&mut admin, "ACL LOAD"), "OK");
    assert_eq!(server.log().matches(line).count(), 2);
    assert_eq!(text(&mut admin, "ACL SETUSER eve +vsim (+vcard)"), "OK");
    assert!(server.log().contains("kept as they are: vcard, vsim."));
    let unknown = "ERR Error in ACL SETUSER modifier '+nosuch': Unknown command or category name in ACL";
    assert_eq!(text(&mut admin, "ACL SETUSER eve +vdim +nosuch"), unknown);
    assert!(!text(&mut admin, "ACL LIST").contains("vdim"));
}

#[test]
fn users_of_the_configuration_are_there_from_the_start() {
    let directory = Directory::new();
    let path = directory.file("conf", "# users\nuser bob on >bob ~b* +get\nuser default on nopass ~* &* +@all\n");
    let server = Server::penstock(&["--include", &path]);
    let mut admin = server.connect();
    assert_eq!(text(&mut admin, "ACL LIST"), format!("{BOB}\n{DEFAULT}"));
    assert!(text(&mut admin, "ACL SAVE").contains("not configured to use an ACL file"));
}

/// Once a change of a user is answered, no command runs under the old rules, on any thread, however many of the
/// client's commands are in flight.
#[test]
fn no_command_runs_under_old_rules_after_a_change() {
    const ROUNDS: usize = 60;
    let server = Server::penstock(&["--threads", "3"]);
    let mut admin = server.connect();
    for round in 0..ROUNDS {
        let key = format!("marker:{round}");
        assert_eq!(text(&mut admin, "ACL SETUSER u reset on nopass ~marker:* +get"), "OK");
        // As many connections as threads, so that every thread has some.
        let clients: Vec<_> = (0..3)
            .map(|_| {
                let (mut conn, key) = (server.connect(), key.clone());
                assert_eq!(text(&mut conn, "AUTH u x"), "OK");
                thread::spawn(move || {
                    let batch = vec![command(&format!("GET {key}")); 200];
                    for _ in 0..1000 {
                        let replies = conn.pipeline(&batch).unwrap();
                        assert!(replies.iter().all(|reply| reply.text() != b"late"), "round {round}");
                        if replies.iter().any(|reply| reply.is_error()) {
                            let first = replies.iter().position(|reply| reply.is_error()).unwrap();
                            assert!(replies[first..].iter().all(|reply| reply.is_error()), "round {round}");
                            return;
                        }
                    }
                    panic!("the change has no effect");
                })
            })
            .collect();
        assert_eq!(text(&mut admin, "ACL SETUSER u -get"), "OK");
        assert_eq!(text(&mut admin, &format!("SET {key} late")), "OK");
        clients.into_iter().for_each(|client| client.join().unwrap());
    }
}

#[test]
fn unauthenticated_clients_get_no_information() {
    let server = Server::penstock(&["--requirepass", "secret"]);
    let mut conn = server.connect();
    for line in [
        "GET k",
        "NOSUCH",
        "GET",
        "CONFIG",
        "CONFIG NOSUCH",
        "ACL WHOAMI",
        "ACL NOSUCH",
        "COMMAND",
        "MULTI",
        "INFO",
        "PING",
    ] {
        assert_eq!(text(&mut conn, line), "NOAUTH Authentication required.", "{line}");
    }
    let hello = text(&mut conn, "HELLO 3");
    assert!(hello.starts_with("NOAUTH HELLO must be called with the client already authenticated"), "{hello}");
    assert_eq!(text(&mut conn, "AUTH nobody secret"), "WRONGPASS invalid username-password pair or user is disabled.");
    assert_eq!(text(&mut conn, "AUTH secret"), "OK");
    assert_eq!(text(&mut conn, "ACL WHOAMI"), "default");
    assert!(text(&mut conn, "INFO stats").contains("acl_access_denied_auth:1"));
}

/// A subscriber on another thread is closed if its user loses the right, and gets no further messages.
#[test]
fn subscribers_are_closed_on_any_thread() {
    let server = Server::penstock(&["--threads", "2"]);
    let mut admin = server.connect();
    assert_eq!(text(&mut admin, "ACL SETUSER u reset on nopass allchannels +subscribe +psubscribe"), "OK");
    let mut subscribers: Vec<_> = (0..4).map(|_| server.connect()).collect();
    for conn in &mut subscribers {
        assert_eq!(text(conn, "AUTH u x"), "OK");
        conn.cmd("SUBSCRIBE news").unwrap();
    }
    assert_eq!(text(&mut admin, "ACL SETUSER u resetchannels &other"), "OK");
    assert!(comes_true(|| text(&mut admin, "PUBSUB NUMSUB news").ends_with('0')));
    for mut conn in subscribers {
        assert!(conn.read_to_close().unwrap().is_empty());
    }
}
