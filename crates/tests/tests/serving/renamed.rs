//! Commands that the configuration renames or disables.

#![allow(clippy::unwrap_used)]

use penstock_tests::scripts::{eval, text};
use penstock_tests::server::Server;

const RENAMED: [&str; 12] = [
    "--rename-command",
    "FLUSHALL",
    "",
    "--rename-command",
    "get",
    "Holen_1",
    "--rename-command",
    "CONFIG",
    "b840fc02d524045429941cc15f59e41cb7be6c52",
    "--rename-command",
    "del",
    "GET",
];

#[test]
fn renamed_commands_answer_to_their_new_names_only() {
    let servers = [Server::oracle(&RENAMED), Server::penstock(&RENAMED)];
    let mut conns = servers.each_ref().map(Server::connect);
    for command in [
        "SET k v",
        "FLUSHALL",
        "flushall async",
        "holen_1 k",
        "HOLEN_1 k x",
        "HOLEN\u{7f}1 k",
        "CONFIG GET port",
        "CONFIG NOSUCH",
        "b840fc02d524045429941cc15f59e41cb7be6c52 GET maxmemory",
        "B840FC02D524045429941CC15F59E41CB7BE6C52 NOSUCH",
        "EXISTS k",
        "SET k v",
        "get k",
        "del k",
        "MULTI",
        "del k",
        "EXEC",
        "COMMAND GETKEYS get k",
        "COMMAND GETKEYS del k",
        "COMMAND INFO flushall del config config|get",
        "COMMAND LIST FILTERBY PATTERN flusha*",
        "COMMAND LIST FILTERBY PATTERN del",
    ] {
        let [expected, got] = conns.each_mut().map(|conn| conn.cmd(command).unwrap());
        assert_eq!(got, expected, "{command}");
    }
    for script in ["return redis.call('holen_1', KEYS[1])", "return redis.pcall('del', KEYS[1])"] {
        let [expected, got] = conns.each_mut().map(|conn| {
            assert_eq!(text(&conn.cmd("SET k v").unwrap()), "OK");
            conn.call(&eval(script, &["k"], &[])).unwrap()
        });
        assert_eq!(got, expected, "{script}");
    }
    let [expected, got] = conns.map(|mut conn| {
        let info = text(&conn.cmd("INFO commandstats").unwrap());
        let calls = |name| Some(info.split_once(&format!("cmdstat_{name}:"))?.1.split(',').next()?.to_owned());
        ["get", "del", "config|get", "flushall", "eval"].map(calls)
    });
    assert_eq!(got, expected);
}
