use crate::clients::progress::Progress;
use crate::testing::{Bench, check, check_resp3};
use config::{Loader, Settings};

/// Returns a bench, a connection of the default user, and a connection of a user `al` with these rules, `on` and
/// `nopass`.
fn with_user(rules: &str) -> (Bench, crate::clients::session::Session, crate::clients::session::Session) {
    let mut bench = Bench::default();
    let (mut admin, mut user) = (bench.open(), bench.open());
    bench.check(&mut admin, &[(&format!("acl setuser al on nopass {rules}"), "+OK")]);
    bench.check(&mut user, &[("auth al x", "+OK")]);
    (bench, admin, user)
}

const NO_KEY: &str = "-NOPERM No permissions to access a key";
const NO_CHANNEL: &str = "-NOPERM No permissions to access a channel";
const NO_DATABASE: &str = "-NOPERM No permissions to access database";

fn no_command(name: &str) -> String {
    format!("-NOPERM User al has no permissions to run the '{name}' command")
}

#[test]
fn users_are_made_shown_and_removed() {
    check(&[
        ("acl whoami", "$7|default"),
        ("acl list", "*1|$51|user default on nopass sanitize-payload ~* &* +@all"),
        ("acl setuser al on >p ~k* %R~r* &c* +@read -get (+set ~w)", "+OK"),
        ("acl users", "*2|$2|al|$7|default"),
        (
            "acl getuser al",
            "*14|$5|flags|*2|$2|on|$16|sanitize-payload|$9|passwords|*1|$64|\
             148de9c5a7a44d19e56cd9ae1a554bf67847afb0c58f6e12fa29ac7ddfca9940|$8|commands|$17|-@all +@read -get|$4|keys|\
             $9|~k* %R~r*|$8|channels|$3|&c*|$9|databases|$6|alldbs|$9|selectors|*1|*8|$8|commands|$10|-@all +set|$4|keys|\
             $2|~w|$8|channels|$0||$9|databases|$6|alldbs",
        ),
        ("acl getuser nosuch", "$-1"),
        ("acl setuser \"a b\"", "-ERR Usernames can't contain spaces or null characters"),
        (
            "acl setuser al +nosuch",
            "-ERR Error in ACL SETUSER modifier '+nosuch': Unknown command or category name in ACL",
        ),
        ("acl deluser default al", "-ERR The 'default' user cannot be removed"),
        ("acl deluser al al nosuch", ":1"),
        ("acl users", "*1|$7|default"),
        ("acl cat nosuch", "-ERR Unknown category 'nosuch'"),
        ("acl cat transaction", "*5|$5|multi|$4|exec|$7|discard|$5|watch|$7|unwatch"),
        (
            "acl genpass 0",
            "-ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up to 4096",
        ),
        ("acl log x", "-ERR value is not an integer or out of range"),
        ("acl log -1", "*0"),
        ("acl nosuch", "-ERR unknown subcommand 'nosuch'. Try ACL HELP."),
    ]);
    check_resp3(&[("acl getuser nosuch", "_")]);
}

#[test]
fn getuser_reply_lengths_are_correct() {
    let mut bench = Bench::default();
    let mut session = bench.open();
    for (bits, chars) in [("", 64), (" 1", 1), (" 5", 2), (" 4096", 1024)] {
        let reply = bench.line(&mut session, &format!("acl genpass{bits}"));
        assert!(
            reply.starts_with(&format!("${chars}|")) && reply.len() == format!("${chars}|").len() + chars,
            "{reply}"
        );
    }
}

#[test]
fn commands_keys_and_channels_are_checked() {
    let (mut bench, mut admin, mut user) =
        with_user("~k* %R~r* %W~w* resetchannels &c* +@all -flushall -config +config|get +select|0 -select");
    bench.check(
        &mut user,
        &[
            ("acl whoami", "$2|al"),
            ("get k", "$-1"),
            ("get q", NO_KEY),
            ("get w", NO_KEY),
            ("set r 1", NO_KEY),
            ("set w 1", "+OK"),
            ("set w 1 get", NO_KEY),
            ("exists w", ":1"),
            ("exists q", NO_KEY),
            ("mset k 1 w 2", "+OK"),
            ("mset k 1 q 2", NO_KEY),
            ("copy r w", ":0"),
            ("copy w r", NO_KEY),
            ("eval return{1} 1 q", NO_KEY),
            ("flushall", &no_command("flushall")),
            ("config set hz 10", &no_command("config|set")),
            ("config get hz", "*2|$2|hz|$2|10"),
            ("select 0", &no_command("select")),
            ("nosuch", "-ERR unknown command 'nosuch', with args beginning with: "),
            ("get", "-ERR wrong number of arguments for 'get' command"),
            ("publish c 1", ":0"),
            ("publish q 1", NO_CHANNEL),
            ("spublish q 1", NO_CHANNEL),
            ("psubscribe c1*", NO_CHANNEL),
            ("subscribe c1 q", NO_CHANNEL),
            ("psubscribe c*", "*3|$10|psubscribe|$2|c*|:1"),
            ("get q", NO_KEY),
            ("punsubscribe x", "*3|$12|punsubscribe|$1|x|:1"),
            ("punsubscribe", "*3|$12|punsubscribe|$2|c*|:0"),
            ("auth default x", "+OK"),
            ("get q", "$-1"),
        ],
    );
    let info = bench.line(&mut admin, "info stats");
    assert!(info.contains("acl_access_denied_cmd:3") && info.contains("acl_access_denied_key:9"), "{info}");
    assert!(info.contains("acl_access_denied_channel:4") && info.contains("acl_access_denied_auth:0"), "{info}");
    assert!(bench.line(&mut admin, "config resetstat") == "+OK");
    assert!(bench.line(&mut admin, "info stats").contains("acl_access_denied_key:0"));
}

#[test]
fn first_arguments_and_selectors_allow_what_is_forbidden() {
    let (mut bench, mut admin, mut user) = with_user("+select|0 (~w* +set) (%R~* +get)");
    bench.check(
        &mut user,
        &[
            ("select 0", "+OK"),
            ("select 1", &no_command("select")),
            ("set w1 1", "+OK"),
            ("get w1", "$1|1"),
            ("set q 1", NO_KEY),
            ("append w1 1", &no_command("append")),
        ],
    );
    bench.check(
        &mut admin,
        &[
            ("acl dryrun al set q 1", "$48|User al has no permissions to access the 'q' key"),
            ("acl dryrun al del q", "$51|User al has no permissions to run the 'del' command"),
            ("acl dryrun al get q", "+OK"),
            ("acl dryrun al get", "-ERR wrong number of arguments for 'get' command"),
            ("acl dryrun al nosuch x", "-ERR Command 'nosuch' not found"),
            ("acl dryrun nobody get x", "-ERR User 'nobody' not found"),
        ],
    );
}

#[test]
fn a_transaction_is_checked_against_its_selected_databases() {
    let (mut bench, _, mut user) = with_user("~* +@all db=1 (+get +select ~* db=0,2)");
    let denied = no_command("set");
    for (batch, expected) in [
        // Queued commands run in the database selected before them, not in the present one.
        (
            "MULTI\r\nSELECT 1\r\nSET k 1\r\nSELECT 2\r\nGET k\r\nEXEC\r\n",
            "+OK +QUEUED +QUEUED +QUEUED +QUEUED *4 +OK +OK +OK $-1",
        ),
        (
            "SELECT 1\r\nMULTI\r\nSET k 2\r\nSELECT 0\r\nSET k 2\r\nDISCARD\r\nGET k\r\n",
            &format!("+OK +OK +QUEUED +QUEUED {denied} +OK $1 1"),
        ),
        // An argument that names no database leaves the previous one selected, and fails at execution.
        (
            "MULTI\r\nSELECT x\r\nGET k\r\nEXEC\r\n",
            "+OK +QUEUED +QUEUED *2 -ERR value is not an integer or out of range $1 1",
        ),
        // The selection belongs to the transaction: another one begins in the selected database.
        ("MULTI\r\nSELECT 0\r\nDISCARD\r\nMULTI\r\nSET k 3\r\nEXEC\r\n", "+OK +QUEUED +OK +OK +QUEUED *1 +OK"),
    ] {
        let (replies, _) = bench.run(&mut user, batch.as_bytes());
        assert_eq!(String::from_utf8_lossy(&replies).trim_end().replace("\r\n", " "), expected, "{batch}");
    }
}

#[test]
fn rules_distinguish_databases() {
    let (mut bench, mut admin, mut user) = with_user("~* &* +@all db=1,3");
    bench.check(
        &mut user,
        &[
            ("ping", "+PONG"),
            ("get k", NO_DATABASE),
            ("dbsize", NO_DATABASE),
            ("keys *", NO_DATABASE),
            ("publish a b", ":0"),
            ("select 0", NO_DATABASE),
            ("select 99", "-ERR DB index is out of range"),
            ("select x", "-ERR value is not an integer or out of range"),
            ("select 1", "+OK"),
            ("set k 1", "+OK"),
            ("move k 0", NO_DATABASE),
            ("copy k l db 2 replace", NO_DATABASE),
            ("copy k l DB 3", ":1"),
            ("swapdb 1 3", "+OK"),
            ("swapdb 1 2", NO_DATABASE),
            ("flushall", NO_DATABASE),
            ("flushdb", "+OK"),
        ],
    );
    let denied = bench.line(&mut user, "eval \"return redis.pcall('select',0)\" 0");
    assert_eq!(denied, "-ERR ACL failure in script: No permissions to access database");
    // Within one batch, the commands after SELECT are checked against the new database.
    let batch = b"SELECT 3\r\nGET k\r\nSELECT 2\r\nGET k\r\n";
    let (replies, _) = bench.run(&mut user, batch);
    let expected = format!("+OK\r\n$1\r\n1\r\n{NO_DATABASE}\r\n$1\r\n1\r\n");
    assert_eq!(String::from_utf8_lossy(&replies), expected);
    bench.check(
        &mut admin,
        &[
            ("acl dryrun al get k", "$49|User al has no permissions to access database get"),
            ("acl dryrun al select 2", "$47|User al has no permissions to access database 2"),
            ("acl setuser al db=", "-ERR Error in ACL SETUSER modifier 'db=': Syntax error"),
        ],
    );
}

#[test]
fn a_change_applies_from_the_next_command() {
    let (mut bench, mut admin, mut user) = with_user("~* +@all");
    bench.check(&mut user, &[("set k 1", "+OK"), ("multi", "+OK"), ("get k", "+QUEUED"), ("ping", "+QUEUED")]);
    bench.check(&mut admin, &[("acl setuser al -get", "+OK")]);
    let since = "-NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This \
                 command is no longer allowed for the following reason: no permission to execute the command or subcommand";
    bench.check(
        &mut user,
        &[
            ("exec", &format!("*2|{since}|+PONG")),
            ("get k", &no_command("get")),
            ("multi", "+OK"),
            ("get k", &no_command("get")),
            ("exec", "-EXECABORT Transaction discarded because of previous errors."),
        ],
    );
    // The user itself, within a batch and within a transaction.
    let (replies, _) = bench.run(&mut user, b"PING\r\nACL SETUSER al -ping\r\nPING\r\nECHO x\r\n");
    assert_eq!(String::from_utf8_lossy(&replies), format!("+PONG\r\n+OK\r\n{}\r\n$1\r\nx\r\n", no_command("ping")));
    bench.check(
        &mut user,
        &[("multi", "+OK"), ("echo x", "+QUEUED"), ("acl setuser al -echo", "+QUEUED"), ("echo x", "+QUEUED")],
    );
    let reply = bench.line(&mut user, "exec");
    assert!(reply.starts_with("*3|$1|x|+OK|-NOPERM ACLs rules changed"), "{reply}");
    // A user that is off can continue, and loses the connection when it is removed.
    bench.check(&mut admin, &[("acl setuser al off +echo", "+OK")]);
    bench.check(&mut user, &[("echo x", "$1|x")]);
    bench.check(&mut admin, &[("acl deluser al", ":1")]);
    assert_eq!(bench.run(&mut user, b"ECHO x\r\n"), (Vec::new(), Progress::Closing));
}

#[test]
fn the_default_user_may_be_restricted_too() {
    let mut bench = Bench::default();
    let mut one = bench.open();
    bench.check(&mut one, &[("acl setuser default -@all +get +acl resetkeys ~k", "+OK")]);
    let mut two = bench.open();
    for session in [&mut one, &mut two] {
        bench.check(
            session,
            &[
                ("get k", "$-1"),
                ("get l", NO_KEY),
                ("set k 1", "-NOPERM User default has no permissions to run the 'set' command"),
            ],
        );
    }
    bench.check(&mut one, &[("acl setuser default +@all allkeys", "+OK")]);
    bench.check(&mut two, &[("set l 1", "+OK")]);
}

#[test]
fn scripts_run_as_their_caller() {
    let (mut bench, _, mut user) = with_user("~k* +@all -flushall -script");
    let mut run = |script: &str, expected: &str| {
        assert_eq!(bench.line(&mut user, &format!("eval \"{script}\" 0")), expected, "{script}");
    };
    run("return redis.pcall('get','q')", "-ERR ACL failure in script: No permissions to access a key");
    run(
        "return redis.pcall('flushall')",
        "-ERR ACL failure in script: User al has no permissions to run the 'flushall' command",
    );
    run("return redis.call('get','k')", "$-1");
    run("return {redis.acl_check_cmd('get','k'),redis.acl_check_cmd('get','q')==false}", "*2|:1|:1");
    run("return redis.acl_check_cmd('flushall')", "$-1");
    run("return redis.acl_check_cmd('script','load','x')", "$-1");
    // With and without the permission to run them.
    for wrong in ["'get'", "'get','k','x'", "'get','q','x'", "'script','load'", "'config','get'"] {
        run(
            &format!("local _,e=pcall(redis.acl_check_cmd,{wrong}) return e"),
            "$50|ERR Wrong number of args for redis.acl_check_cmd()",
        );
    }
    run(
        "return redis.pcall('sort','k','by','x*')",
        "-ERR BY option of SORT denied due to insufficient ACL permissions.",
    );
}

#[test]
fn sort_needs_permission_for_all_keys_to_look_up() {
    let (mut bench, mut admin, mut user) = with_user("~k* +@all");
    let denied = |option: &str| format!("-ERR {option} option of SORT denied due to insufficient ACL permissions.");
    bench.check(
        &mut user,
        &[
            ("rpush k 2 1", ":2"),
            ("sort k", "*2|$1|1|$1|2"),
            ("sort k by x*", &denied("BY")),
            ("sort k by nosort", "*2|$1|2|$1|1"),
            ("sort k get #", &denied("GET")),
            ("sort_ro k by x*", &denied("BY")),
            ("multi", "+OK"),
            ("sort k by x*", "+QUEUED"),
            ("exec", &format!("*1|{}", denied("BY"))),
        ],
    );
    bench.check(&mut admin, &[("sort k get #", "*2|$1|1|$1|2"), ("acl setuser al %R~*", "+OK")]);
    bench.check(&mut user, &[("sort k by x* get #", "*2|$1|1|$1|2"), ("sort k store q", NO_KEY)]);
}

#[test]
fn a_blocked_command_is_checked_again_when_it_is_served() {
    let (mut bench, mut admin, mut user) = with_user("~* +@all");
    let bytes = crate::testing::request(&["blpop", "l", "0"]);
    assert_eq!(bench.run(&mut user, &bytes), (Vec::new(), Progress::Parked));
    bench.check(&mut admin, &[("acl setuser al resetkeys", "+OK"), ("lpush l 1", ":1"), ("llen l", ":1")]);
    let stats = bench.line(&mut admin, "info commandstats");
    assert!(
        stats.contains("cmdstat_blpop:calls=0,usec=0,usec_per_call=0.00,rejected_calls=1,failed_calls=0"),
        "{stats}"
    );
}

#[test]
fn subscribers_without_permission_are_closed() {
    let (mut bench, mut admin, mut one) = with_user("resetchannels &a* &b +@all");
    let (mut two, mut three, mut four) = (bench.open(), bench.open(), bench.open());
    for session in [&mut two, &mut three] {
        bench.check(session, &[("auth al x", "+OK")]);
    }
    bench.check(&mut one, &[("subscribe a1", "*3|$9|subscribe|$2|a1|:1")]);
    bench.check(&mut two, &[("psubscribe a*", "*3|$10|psubscribe|$2|a*|:1")]);
    bench.check(&mut three, &[("ssubscribe b", "*3|$10|ssubscribe|$1|b|:1")]);
    bench.check(&mut four, &[("subscribe b", "*3|$9|subscribe|$1|b|:1")]);
    let mut killed = |bench: &mut Bench, rule: &str| {
        assert_eq!(bench.line(&mut admin, &format!("acl setuser al {rule}")), "+OK");
        [&one, &two, &three, &four].map(|session| session.client.pending_signals.is_killed())
    };
    assert_eq!(killed(&mut bench, "&c"), [false; 4]);
    assert_eq!(killed(&mut bench, "resetchannels &a? &b"), [false, true, false, false]);
    assert_eq!(killed(&mut bench, "resetchannels &a1"), [false, true, true, false]);
    assert_eq!(killed(&mut bench, "allchannels"), [false, true, true, false]);
    assert_eq!(killed(&mut bench, "resetchannels"), [true, true, true, false]);
}

#[test]
fn denials_are_logged() {
    let (mut bench, mut admin, mut user) = with_user("~k &c +@all -flushall");
    for line in ["get q", "get q", "flushall", "publish q 1", "auth al2 x", "multi", "get q", "discard"] {
        bench.line(&mut user, line);
    }
    bench.line(&mut user, "eval \"return redis.pcall('get','q')\" 0");
    let log = bench.line(&mut admin, "acl log");
    let entries: Vec<String> = log
        .split("|$5|count|")
        .skip(1)
        .map(|entry| {
            let words: Vec<&str> = entry.split('|').filter(|word| !word.starts_with('$')).collect();
            format!("{} {} {} {} {}", words[0], words[2], words[4], words[6], words[8])
        })
        .collect();
    assert_eq!(
        entries,
        [
            ":1 key lua q al",
            ":1 key multi q al",
            ":1 auth toplevel auth al2",
            ":1 channel toplevel q al",
            ":1 command toplevel flushall al",
            ":2 key toplevel q al",
        ]
    );
    assert!(log.contains("user=al") && log.contains("|$8|entry-id|:"), "{log}");
    bench.check(&mut admin, &[("acl log reset", "+OK"), ("acl log", "*0"), ("config set acllog-max-len 0", "+OK")]);
    bench.check(&mut user, &[("get q", NO_KEY)]);
    bench.check(&mut admin, &[("acl log", "*0")]);
}

#[test]
fn passwords_of_the_default_user_follow_requirepass() {
    let mut bench = Bench::default();
    let mut old = bench.open();
    bench.check(&mut old, &[("config set requirepass one", "+OK"), ("acl setuser default >two", "+OK")]);
    let mut new = bench.open();
    new.set_authenticated(false);
    bench.check(&mut new, &[("auth two", "+OK"), ("reset", "+RESET"), ("get k", "-NOAUTH Authentication required.")]);
    bench.check(
        &mut old,
        &[("config get requirepass", "*2|$11|requirepass|$3|one"), ("acl setuser default resetpass", "+OK")],
    );
    bench.check(&mut new, &[("auth one", "-WRONGPASS invalid username-password pair or user is disabled.")]);
    bench.check(&mut old, &[("acl setuser default nopass", "+OK")]);
    bench.check(
        &mut new,
        &[
            ("get k", "$-1"),
            (
                "hello 3 auth default any",
                "%7|$6|server|$5|redis|$7|version|$5|7.4.0|$5|proto|:3|\
        $2|id|:2|$4|mode|$10|standalone|$4|role|$6|master|$7|modules|*0",
            ),
        ],
    );
}

#[test]
fn the_configuration_sets_the_channels_of_new_users() {
    let settings = Settings::new();
    Loader::new(&settings).directive(&[b"acl-pubsub-default".to_vec(), b"allchannels".to_vec()]).unwrap();
    let mut bench = Bench::with(settings);
    let mut session = bench.open();
    bench.check(
        &mut session,
        &[
            ("acl setuser a (+get)", "+OK"),
            ("config set acl-pubsub-default resetchannels", "+OK"),
            ("acl setuser b (+get)", "+OK"),
        ],
    );
    let list = bench.line(&mut session, "acl list");
    assert!(list.contains("user a off sanitize-payload &* -@all (&* -@all +get)"), "{list}");
    assert!(list.contains("user b off sanitize-payload resetchannels -@all (resetchannels -@all +get)"), "{list}");
}

#[test]
fn penstocks_own_commands_are_checked() {
    let (mut bench, _, mut user) = with_user("~* +@all -pipeline|start -advise");
    bench.check(
        &mut user,
        &[
            ("pipeline start x", &no_command("pipeline|start")),
            ("advise list", &no_command("advise|list")),
            ("pipeline list", "*0"),
        ],
    );
}

#[test]
fn a_session_can_be_made_a_user() {
    let (mut bench, mut admin, mut user) = with_user("~* +get");
    let mut other = bench.open();
    assert!(bench.worker.log_in(&mut other, b"al") && !bench.worker.log_in(&mut other, b"nobody"));
    bench.check(&mut other, &[("acl whoami", &no_command("acl|whoami")), ("get k", "$-1")]);
    let log = bench.line(&mut admin, "acl log 2");
    let entry = "$6|reason|$8|tls-cert|$7|context|$8|toplevel|$6|object|$0||$8|username|$6|nobody|";
    assert!(log.contains(entry) && log.contains(" cmd=NULL user=al "), "{log}");
    assert!(bench.line(&mut admin, "info stats").contains("acl_access_denied_tls_cert:1|"));
    bench.check(
        &mut admin,
        &[
            ("client kill user nobody", "-ERR No such user 'nobody'"),
            ("client kill user al", ":2"),
            ("acl setuser al off", "+OK"),
        ],
    );
    assert!(user.client.pending_signals.is_killed() && !bench.worker.log_in(&mut admin, b"al"));
    assert_eq!(bench.run(&mut user, b"get k\r\n"), (Vec::new(), Progress::Closing));
}
