//! `penstock cli` in a real terminal, by means of tmux: types input and reads the screen.

// Clippy allows unwrap in tests, but not in functions that only tests call.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use penstock_tests::server::{Server, comes_true, subject_program};
use penstock_tests::terminal::Terminal;
use std::path::Path;
use std::{env, fs, process};

fn prompt(server: &Server) -> String {
    format!("127.0.0.1:{}>", server.port())
}

/// The same lines lead to the same screen as in redis-cli.
#[test]
fn the_screen_is_redis_clis() {
    let server = Server::oracle(&[]);
    let programs = ["redis-cli".to_owned(), format!("{} cli", subject_program().display())];
    let lines = [
        ":set nohints",
        "flushall",
        "set k v",
        "get k",
        "get \"k\"x",
        "",
        "rpush l a \"b c\" d",
        "lrange l 0 -1",
        "3 incr n",
        "0 incr n",
        "bogus",
        "hello 3",
        "hset h f v",
        "hgetall h",
        "select 3",
        "multi",
        "incr n",
        "select 4",
        "exec",
        "multi",
        "discard",
        "select 0",
        ":set nonsense",
        "help nonsense",
        "connect 127.0.0.1 1",
        "get k",
    ];
    let screens = programs.map(|program| {
        let terminal = Terminal::new(&format!("{program} -p {}", server.port()));
        terminal.wait_for(&prompt(&server));
        for line in lines {
            let before = terminal.screen();
            terminal.type_text(line);
            terminal.press("Enter");
            terminal.wait_until("the next prompt", |screen| screen.ends_with('>') && screen.len() > before.len());
        }
        // HELLO's reply differs in the connection's id.
        let screen = terminal.screen();
        screen.lines().filter(|line| !line.contains("\"id\"")).map(str::to_owned).collect::<Vec<_>>().join("\n")
    });
    assert_eq!(screens[0], screens[1], "redis-cli's screen is the first");
}

#[test]
fn hints_and_completion() {
    let server = Server::penstock(&[]);
    server.connect().cmd("MSET user:1 a user:2 b").unwrap();
    server.connect().call(&[b"SET".to_vec(), b"two words".to_vec(), b"c".to_vec()]).unwrap();
    let terminal = Terminal::penstock(server.port());
    let prompt = prompt(&server);
    terminal.wait_for(&prompt);
    terminal.type_text("exp");
    terminal.press("Tab");
    terminal.wait_for(&format!("{prompt} expire key seconds [NX|XX|GT|LT]"));
    terminal.type_text(" us");
    terminal.press("Tab");
    terminal.wait_for(&format!("{prompt} expire user: seconds [NX|XX|GT|LT]"));
    terminal.press("Tab");
    terminal.wait_for(&format!("\nuser:1  user:2\n{prompt} expire user: seconds [NX|XX|GT|LT]"));
    terminal.type_text("2");
    terminal.press("Tab");
    terminal.wait_for(&format!("{prompt} expire user:2 seconds [NX|XX|GT|LT]"));
    terminal.type_text(" 100 g");
    terminal.press("Tab");
    terminal.wait_for(&format!("{prompt} expire user:2 100 gt"));
    terminal.press("Enter");
    terminal.wait_for(&format!("(integer) 0\n{prompt}"));
    terminal.type_text("client no-e");
    terminal.press("Tab");
    terminal.wait_until("the subcommand", |screen| screen.contains(&format!("{prompt} client no-evict")));
    terminal.press("C-c");
    terminal.wait_for(&prompt);
    terminal.type_text("get tw");
    terminal.press("Tab");
    terminal.press("Enter");
    terminal.wait_for(&format!("{prompt} get \"two words\"\n\"c\"\n{prompt}"));
    terminal.enter(":set nohints", &format!(":set nohints\n{prompt}"));
    terminal.type_text("expire k");
    terminal.wait_for(&format!("{prompt} expire k"));
}

/// As in a shell: Tab completes the common prefix of the candidates, and another Tab lists them.
#[test]
fn another_tab_lists_the_candidates() {
    let server = Server::penstock(&[]);
    let terminal = Terminal::penstock(server.port());
    let prompt = prompt(&server);
    terminal.wait_for(&prompt);
    terminal.type_text("hget");
    terminal.press("Tab");
    terminal.press("Tab");
    terminal.wait_until("the list", |screen| {
        screen.contains("\nhget     hgetall") && screen.contains(&format!("{prompt} hget "))
    });
    terminal.type_text("al");
    terminal.press("Tab");
    terminal.wait_for(&format!("{prompt} hgetall key"));
    terminal.press("C-c");
    terminal.wait_for(&prompt);
    terminal.type_text("object ");
    terminal.press("Tab");
    terminal.press("Tab");
    terminal.wait_until("the subcommands", |screen| {
        ["ENCODING", "FREQ", "IDLETIME", "REFCOUNT"].iter().all(|name| screen.contains(name))
    });
}

/// The common prefix of the first hundred keys may not be common to all keys.
#[test]
fn keys_are_not_completed_by_those_that_were_found_first() {
    let server = Server::penstock(&[]);
    let mut conn = server.connect();
    for number in 100..350 {
        conn.cmd(&format!("SET key:{number} x")).unwrap();
    }
    let terminal = Terminal::penstock(server.port());
    let prompt = prompt(&server);
    terminal.wait_for(&prompt);
    terminal.type_text("get key:");
    terminal.press("Tab");
    terminal.press("Tab");
    terminal.wait_until("the question", |screen| screen.ends_with("Display all 101 possibilities? (y or n)"));
    terminal.press("y");
    terminal.wait_until("the list", |screen| {
        screen.contains("...\n") && screen.contains("key:100") && screen.ends_with(&format!("{prompt} get key:"))
    });
}

/// The names of settings come from the server.
#[test]
fn config_names_are_completed() {
    for server in [Server::penstock(&[]), Server::oracle(&[])] {
        let terminal = Terminal::penstock(server.port());
        let prompt = prompt(&server);
        terminal.wait_for(&prompt);
        terminal.type_text("config get maxmemory-p");
        terminal.press("Tab");
        terminal.wait_until("the name", |screen| screen.contains("config get maxmemory-policy"));
        terminal.press("Enter");
        terminal.wait_for(&format!("2) \"noeviction\"\n{prompt}"));
        terminal.type_text("config set maxmemory-policy allkeys-lru maxmemory-s");
        terminal.press("Tab");
        terminal.wait_until("another name", |screen| screen.contains("allkeys-lru maxmemory-samples"));
        terminal.type_text(" 3");
        terminal.press("Enter");
        terminal.wait_for(&format!("OK\n{prompt}"));
        terminal.type_text("config get maxmemory");
        terminal.press("Tab");
        terminal.press("Tab");
        terminal
            .wait_until("the list", |screen| screen.contains("\nmaxmemory ") && screen.contains("maxmemory-samples"));
    }
}

/// Colours distinguish types, unless the environment or the flag turns them off.
#[test]
fn replies_are_coloured_by_their_type() {
    let server = Server::penstock(&[]);
    let program = subject_program();
    let run = |environment: &str, flags: &str| {
        let cli = format!("{environment} {} cli -p {} {flags}", program.display(), server.port());
        let script = format!("sh -c '{cli} set k v; {cli} get k; {cli} incr n; {cli} get none; {cli} bogus; echo end'");
        let terminal = Terminal::new(&script);
        terminal.wait_until("the end", |screen| screen.ends_with("end"));
        server.connect().cmd("FLUSHALL").unwrap();
        let plain =
            "OK\n\"v\"\n(integer) 1\n(nil)\n(error) ERR unknown command 'bogus', with args beginning with:\nend";
        assert_eq!(terminal.screen(), plain, "{environment} {flags}");
        terminal.tmux(&["capture-pane", "-p", "-e"])
    };
    let coloured = |screen: &str| {
        let parts = ["[1mOK", "[32m", "[36m(integer) 1", "[35m(nil)", "[31m(error)"];
        parts.map(|part| screen.contains(part))
    };
    for (environment, flags, expected) in [
        ("", "", true),
        ("NO_COLOR=1", "", false),
        ("TERM=dumb", "", false),
        ("", "--color never", false),
        ("NO_COLOR=1", "--color always", true),
    ] {
        let screen = run(environment, flags);
        assert_eq!(coloured(&screen), [expected; 5], "{environment} {flags}: {screen:?}");
    }
    // In a pipe the output has no colours.
    let mut piped = process::Command::new(program);
    piped.args(["cli", "--no-raw", "-p", &server.port().to_string(), "incr", "n"]);
    assert_eq!(piped.output().unwrap().stdout, b"(integer) 1\n");
}

/// A word `|` sends the output to a command of the shell, as bytes alone.
#[test]
fn output_goes_through_a_shell_command() {
    let server = Server::penstock(&[]);
    let terminal = Terminal::penstock(server.port());
    let prompt = prompt(&server);
    terminal.wait_for(&prompt);
    terminal.enter("rpush l b a c", &format!("(integer) 3\n{prompt}"));
    terminal.enter("lrange l 0 -1 | sort -r | tr a-z A-Z", &format!("tr a-z A-Z\nC\nB\nA\n{prompt}"));
    terminal.enter("get \" | \"", &format!("(nil)\n{prompt}"));
    // A command that reads only a part of the output ends nothing else.
    terminal.enter("3 lrange l 0 -1 | true", &format!("| true\n{prompt}"));
    terminal.type_text("monitor | head -n 1");
    terminal.press("Enter");
    terminal.wait_until("MONITOR's first line", |screen| screen.ends_with("head -n 1\nOK"));
    // Output that follows the end of the shell command ends MONITOR.
    let mut conn = server.connect();
    terminal.wait_until("the prompt", |screen| {
        conn.cmd("PING").unwrap();
        screen.ends_with(&format!("head -n 1\nOK\n{prompt}"))
    });
    terminal.enter("ping", &format!("PONG\n{prompt}"));
}

#[test]
fn words_are_coloured_while_they_are_typed() {
    let server = Server::penstock(&[]);
    let terminal = Terminal::penstock(server.port());
    terminal.wait_for(&prompt(&server));
    terminal.type_text("set k \"a b\" ex 100");
    terminal.wait_until("the line", |screen| screen.contains("ex 100"));
    let screen = terminal.tmux(&["capture-pane", "-p", "-e"]);
    assert!(screen.contains("[1mset") && screen.contains("[32m\"a b\"") && screen.contains("[36m100"), "{screen:?}");
    terminal.press("C-c");
    terminal.wait_for(&format!("\n{}", prompt(&server)));
    terminal.type_text("sett k");
    terminal.wait_until("the line", |screen| screen.ends_with("sett k"));
    let screen = terminal.tmux(&["capture-pane", "-p", "-e"]);
    assert!(screen.contains("[31msett"), "{screen:?}");
}

#[test]
fn quotes_go_on_in_the_next_line() {
    let server = Server::penstock(&[]);
    let terminal = Terminal::penstock(server.port());
    let prompt = prompt(&server);
    terminal.wait_for(&prompt);
    terminal.type_text("set k \"first");
    terminal.press("Enter");
    terminal.type_text("second\"");
    terminal.press("Enter");
    terminal.wait_for(&format!("OK\n{prompt}"));
    terminal.enter("get k", &format!("\"first\\nsecond\"\n{prompt}"));
    assert_eq!(terminal.history(), "set k \"first\\nsecond\"\nget k\n");
}

/// A user at a terminal gets a prompt, even if the replies go to a pipe.
#[test]
fn replies_may_go_through_a_pipe() {
    let server = Server::penstock(&[]);
    let terminal = Terminal::new(&format!("{} cli -p {} | cat", subject_program().display(), server.port()));
    let prompt = prompt(&server);
    terminal.wait_for(&prompt);
    terminal.enter("set k v", &format!("OK\n{prompt}"));
    terminal.enter("get k", &format!("{prompt} get k\nv\n{prompt}"));
}

#[test]
fn lines_typed_ahead_are_run() {
    let server = Server::penstock(&[]);
    let terminal = Terminal::penstock(server.port());
    let prompt = prompt(&server);
    terminal.wait_for(&prompt);
    terminal.tmux(&["send-keys", "incr a", "Enter", "incr a", "Enter", "incr a", "Enter"]);
    terminal.wait_for(&format!("(integer) 3\n{prompt}"));
}

#[test]
fn long_lines_may_be_pasted() {
    let server = Server::penstock(&[]);
    let terminal = Terminal::penstock(server.port());
    let prompt = prompt(&server);
    terminal.wait_for(&prompt);
    let file = terminal.home.join("pasted");
    std::fs::write(&file, format!("set k {}\nstrlen k\n", "x".repeat(30_000))).unwrap();
    terminal.tmux(&["load-buffer", file.to_str().unwrap()]);
    terminal.tmux(&["paste-buffer"]);
    terminal.wait_for(&format!("(integer) 30000\n{prompt}"));
}

#[test]
fn ctrl_c_ends_a_blocked_command_and_then_the_program() {
    let server = Server::penstock(&[]);
    let terminal = Terminal::penstock(server.port());
    let prompt = prompt(&server);
    terminal.wait_for(&prompt);
    terminal.enter("monitor", "OK");
    server.connect().cmd("ECHO seen").unwrap();
    terminal.wait_until("the monitored command", |screen| screen.ends_with("\"ECHO\" \"seen\""));
    terminal.press("C-c");
    terminal.wait_for(&format!("^C\n{prompt}"));
    terminal.enter("subscribe channel", "3) (integer) 1");
    server.connect().cmd("PUBLISH channel hello").unwrap();
    terminal.wait_for("1) \"message\"\n2) \"channel\"\n3) \"hello\"");
    terminal.press("C-c");
    terminal.wait_for(&format!("^C\n{prompt}"));
    terminal.enter("blpop nothing 0", "blpop nothing 0");
    let mut observer = server.connect();
    let mut is_blocked = || format!("{:?}", observer.cmd("INFO clients").unwrap()).contains("blocked_clients:1");
    terminal.wait_until("the wait", |_| is_blocked());
    terminal.press("C-c");
    terminal.wait_for(&format!("^C\n{prompt}"));
    terminal.enter("ping", &format!("PONG\n{prompt}"));
    terminal.type_text("not sent");
    terminal.press("C-c");
    terminal.wait_for(&format!("not sent\n{prompt}"));
    terminal.press("C-c");
    terminal
        .wait_until("the end", |_| terminal.tmux(&["list-panes", "-F", "#{pane_current_command}"]).contains("sleep"));
}

/// If Ctrl-C ended a connection with a login or other state, the program reports the loss.
#[test]
fn after_ctrl_c_a_lost_login_is_reported() {
    let server = Server::oracle(&[]);
    let mut observer = server.connect();
    observer.cmd("ACL SETUSER low on >secret ~* +@all").unwrap();
    let terminal = Terminal::penstock(server.port());
    let prompt = prompt(&server);
    terminal.wait_for(&prompt);
    terminal.enter("auth low secret", &format!("OK\n{prompt}"));
    terminal.enter("watch k", &format!("OK\n{prompt}"));
    terminal.enter("blpop nothing 0", "blpop nothing 0");
    let mut is_blocked = || format!("{:?}", observer.cmd("INFO clients").unwrap()).contains("blocked_clients:1");
    terminal.wait_until("the wait", |_| is_blocked());
    terminal.press("C-c");
    terminal.wait_for(&format!("^C\nReconnected, without the logged-in user and the watched keys\n{prompt}"));
    terminal.enter("acl whoami", &format!("\"default\"\n{prompt}"));
}

#[test]
fn ctrl_c_ends_the_pause_between_repetitions() {
    let server = Server::penstock(&[]);
    let terminal = Terminal::new(&format!("{} cli -p {} -i 600", subject_program().display(), server.port()));
    let prompt = prompt(&server);
    terminal.wait_for(&prompt);
    let mut observer = server.connect();
    let mut connections = || {
        let info = format!("{:?}", observer.cmd("INFO stats").unwrap());
        info.split("total_connections_received:").nth(1).unwrap().split('\\').next().unwrap().to_owned()
    };
    let before = connections();
    terminal.enter("3 ping", &format!("{prompt} 3 ping\nPONG"));
    terminal.press("C-c");
    terminal.wait_for(&format!("PONG\n^C\n{prompt}"));
    terminal.enter("ping again", "\"again\"");
    terminal.press("C-c");
    terminal.wait_for(&format!("\"again\"\n^C\n{prompt}"));
    // No reply was outstanding, so the connection is still the same.
    assert_eq!(connections(), before);
}

/// Completion gives up on a silent server, and drops its late reply.
#[test]
fn completion_does_not_wait_for_a_silent_server() {
    let server = Server::penstock(&[]);
    server.connect().cmd("SET key value").unwrap();
    let terminal = Terminal::penstock(server.port());
    let prompt = prompt(&server);
    terminal.wait_for(&prompt);
    terminal.enter("client setname same", &format!("OK\n{prompt}"));
    signal("STOP", server.pid());
    terminal.type_text("get ke");
    terminal.press("Tab");
    terminal.press("Tab");
    terminal.type_text("y");
    terminal.wait_for(&format!("{prompt} get key"));
    terminal.press("C-c");
    terminal.wait_for(&format!("{prompt} get key\n{prompt}"));
    terminal.type_text("get ke");
    terminal.press("Tab");
    terminal.type_text("y");
    terminal.wait_for(&format!("{prompt} get key\n{prompt} get key"));
    terminal.press("Enter");
    signal("CONT", server.pid());
    // The duration may follow.
    let answered = |screen: &str| screen.contains("get key\n\"value\"\n") && screen.ends_with(&prompt);
    terminal.wait_until("the value", answered);
    terminal.enter("client getname", &format!("\"same\"\n{prompt}"));
    terminal.type_text("get k");
    terminal.press("Tab");
    terminal.wait_for(&format!("{prompt} get key"));
}

fn signal(name: &str, pid: u32) {
    let sent = process::Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status().unwrap();
    assert!(sent.success(), "kill -{name} {pid}");
}

#[test]
fn a_lost_server_is_found_again() {
    let server = Server::penstock(&[]);
    let terminal = Terminal::penstock(server.port());
    let prompt = prompt(&server);
    terminal.wait_for(&prompt);
    terminal.enter("select 2", &format!("OK\n127.0.0.1:{}[2]>", server.port()));
    let closed = "Error: Server closed the connection\nnot connected>";
    server.connect().cmd("CLIENT KILL TYPE normal SKIPME yes").unwrap();
    terminal.enter("ping", closed);
    terminal.enter("ping", &format!("PONG\n127.0.0.1:{}[2]>", server.port()));
    terminal.enter("multi", &format!("OK\n127.0.0.1:{}[2](TX)>", server.port()));
    server.connect().cmd("CLIENT KILL TYPE normal SKIPME yes").unwrap();
    terminal.enter("set outside 1", closed);
    terminal.enter("exists outside", &format!("(integer) 0\n127.0.0.1:{}[2]>", server.port()));
    let gone = server.port();
    drop(server);
    terminal.enter("ping", closed);
    terminal
        .enter("ping", &format!("Could not connect to Redis at 127.0.0.1:{gone}: Connection refused\nnot connected>"));
    let other = Server::penstock(&[]);
    terminal.enter(&format!("connect 127.0.0.1 {}", other.port()), &format!("127.0.0.1:{}[2]>", other.port()));
    terminal.enter("multi", &format!("OK\n127.0.0.1:{}[2](TX)>", other.port()));
}

#[test]
fn lines_are_remembered_but_for_passwords() {
    let server = Server::penstock(&[]);
    let terminal = Terminal::penstock(server.port());
    let prompt = prompt(&server);
    terminal.wait_for(&prompt);
    terminal.enter("ping one", &format!("\"one\"\n{prompt}"));
    terminal.type_text("auth secret");
    terminal.press("Enter");
    terminal.wait_until("the refusal", |screen| screen.contains("ERR AUTH") && screen.ends_with(&prompt));
    terminal.enter("config set requirepass \"\"", &format!("OK\n{prompt}"));
    terminal.enter("ping two", &format!("\"two\"\n{prompt}"));
    terminal.press("Up");
    terminal.wait_until("the line before", |screen| {
        screen.contains(&format!("{prompt} ping two\n\"two\"\n{prompt} ping two"))
    });
    terminal.press("C-c");
    terminal.wait_for(&prompt);
    terminal.enter("quit", "quit");
    // The terminal shows a line before the program remembers it.
    let remembered = "ping one\nping two\nquit\n";
    assert!(comes_true(|| terminal.history() == remembered), "{}", terminal.history());
    again(&terminal.home, &server);
}

/// Another program with the same home directory knows the lines; only their owner can read the file.
fn again(home: &Path, server: &Server) {
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(fs::metadata(home.join(".rediscli_history")).unwrap().permissions().mode() & 0o777, 0o600);
    let other = env::temp_dir().join(format!("penstock-terminal-{}-again", process::id()));
    fs::create_dir_all(&other).unwrap();
    fs::copy(home.join(".rediscli_history"), other.join(".rediscli_history")).unwrap();
    let command = format!("{} cli -p {}", subject_program().display(), server.port());
    let socket = format!("penstock-terminal-{}-again", process::id());
    let terminal = Terminal::in_home(&command, socket, other);
    terminal.wait_for(&prompt(server));
    terminal.press("Up");
    terminal.press("Up");
    terminal.wait_until("the remembered line", |screen| screen.ends_with("ping two") || screen.contains("> ping two"));
}

#[test]
fn pushes_are_shown() {
    let server = Server::oracle(&[]);
    let command = format!("{} cli -3 -p {}", subject_program().display(), server.port());
    let terminal = Terminal::new(&command);
    let prompt = prompt(&server);
    terminal.wait_for(&prompt);
    terminal.enter("client tracking on", &format!("OK\n{prompt}"));
    terminal.enter("get k", &format!("(nil)\n{prompt}"));
    server.connect().cmd("SET k v").unwrap();
    terminal.enter("ping", &format!("-> invalidate: 'k'\nPONG\n{prompt}"));
}

#[test]
fn a_password_is_asked_for_unseen() {
    let server = Server::oracle(&["--requirepass", "secret"]);
    let terminal = Terminal::new(&format!("{} cli --askpass -p {} ping", subject_program().display(), server.port()));
    terminal.wait_for("Please input password:");
    terminal.type_text("secret");
    terminal.press("Enter");
    terminal.wait_for("Please input password: ******\nPONG");
}
