//! Libraries of functions, sent to Penstock and to Redis: replies of FUNCTION and FCALL must be the same, and each
//! server restores the other's dump.

#![allow(clippy::panic, clippy::unwrap_used)]

use penstock_tests::bytes::encode;
use penstock_tests::conn::Conn;
use penstock_tests::reply::Reply;
use penstock_tests::server::Server;

struct Pair {
    subject: Conn,
    oracle: Conn,
    _servers: [Server; 2],
}

impl Pair {
    fn start(protocol: &str) -> Pair {
        let servers = [Server::penstock(&["--threads", "1"]), Server::oracle(&[])];
        let mut pair = Pair { subject: servers[0].connect(), oracle: servers[1].connect(), _servers: servers };
        pair.ask(&[b"HELLO", protocol.as_bytes()]);
        pair
    }

    fn ask(&mut self, words: &[&[u8]]) -> [Reply; 2] {
        let command: Vec<Vec<u8>> = words.iter().map(|word| word.to_vec()).collect();
        [&mut self.subject, &mut self.oracle].map(|conn| conn.call(&command).unwrap())
    }

    fn check(&mut self, words: &[&str]) {
        let bytes: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        let [subject, oracle] = self.ask(&bytes).map(|reply| show(&reply));
        assert_eq!(subject, oracle, "{words:?}");
    }
}

fn show(reply: &Reply) -> String {
    String::from_utf8_lossy(&reply.encode()).replace("\r\n", "|")
}

/// Returns a library's text.
fn library(name: &str, code: &str) -> String {
    format!("#!lua name={name}\n{code}")
}

const CODE: &str = r#"
local calls = 0
redis.register_function('echo', function(keys, args) return {#keys, keys[1], #args, args[1]} end)
redis.register_function{function_name='set', description='Sets.', callback=function(keys, args)
  return redis.call('SET', keys[1], args[1]) end}
redis.register_function{function_name='get', callback=function(keys) return redis.call('GET', keys[1]) end,
  flags={'no-writes', 'allow-stale'}}
redis.register_function{function_name='reader_that_writes', callback=function(keys)
  return redis.call('SET', keys[1], 'x') end, flags={'no-writes'}}
redis.register_function('count', function() calls = calls + 1 return calls end)
redis.register_function('fail', function() error('it has failed') end)
redis.register_function('fail_table', function() error({err='ERR of its own'}) end)
redis.register_function('answer_error', function() return redis.error_reply('ERR answered') end)
redis.register_function('answer_status', function() return redis.status_reply('FINE') end)
redis.register_function('nothing', function() end)
redis.register_function('wrong_type', function(keys) return redis.call('LPUSH', keys[1], 'a') end)
redis.register_function('caught', function(keys) return redis.pcall('LPUSH', keys[1], 'a').err end)
redis.register_function('unknown', function() return redis.call('nosuch') end)
redis.register_function('arity', function() return redis.call('GET') end)
redis.register_function('global', function() x = 1 end)
redis.register_function('nonexistent', function() return x end)
redis.register_function('keys', function() return KEYS end)
redis.register_function('register', function() redis.register_function('late', function() end) end)
redis.register_function('map', function() redis.setresp(3) return redis.call('HGETALL', 'nosuch') end)
redis.register_function('double', function() return {double=1.5} end)
redis.register_function('boolean', function() redis.setresp(3) return {true, false} end)
redis.register_function('nested', function() return redis.call('FCALL', 'echo', 0) end)
redis.register_function('eval', function() return redis.call('EVAL', 'return 1', 0) end)
"#;

#[test]
fn functions_are_called_alike() {
    for protocol in ["2", "3"] {
        let mut pair = Pair::start(protocol);
        pair.check(&["FUNCTION", "LOAD", &library("all", CODE)]);
        for call in [
            "FCALL echo 0",
            "FCALL echo 1 key",
            "FCALL ECHO 2 key other arg more",
            "FCALL_RO echo 0",
            "FCALL set 1 key value",
            "FCALL get 1 key",
            "FCALL_RO get 1 key",
            "FCALL_RO set 1 key other",
            "FCALL reader_that_writes 1 key",
            "FCALL_RO reader_that_writes 1 key",
            "FCALL count 0",
            "FCALL count 0",
            "FCALL fail 0",
            "FCALL fail_table 0",
            "FCALL answer_error 0",
            "FCALL answer_status 0",
            "FCALL nothing 0",
            "FCALL wrong_type 1 key",
            "FCALL caught 1 key",
            "FCALL unknown 0",
            "FCALL arity 0",
            "FCALL global 0",
            "FCALL nonexistent 0",
            "FCALL keys 0",
            "FCALL register 0",
            "FCALL map 0",
            "FCALL double 0",
            "FCALL boolean 0",
            "FCALL nested 0",
            "FCALL eval 0",
            "FCALL nosuch 0",
            "FCALL_RO nosuch 0",
            "FCALL echo",
            "FCALL echo x",
            "FCALL echo -1",
            "FCALL echo 1",
            "FCALL echo 3 a b",
            "FCALL nosuch x",
            "GET key",
            "MULTI",
            "FCALL set 1 key again",
            "FCALL fail 0",
            "EXEC",
            "FUNCTION DELETE all",
            "FCALL echo 0",
        ] {
            pair.check(&call.split(' ').collect::<Vec<_>>());
        }
    }
}

#[test]
fn libraries_are_loaded_and_refused_alike() {
    let one = |name: &str| format!("redis.register_function('{name}', function() return '{name}' end)");
    let texts = [
        library("a", &one("f")),
        // The library exists already.
        library("a", &one("f")),
        library("b", &one("f")),
        library("B", &one("g")),
        library("b", &one("F")),
        one("x"),
        "#!lua".into(),
        "#!lua\nreturn 1".into(),
        "#!lua name=x".into(),
        "#!lua name=\nreturn 1".into(),
        "#!lua name=bad-name\nreturn 1".into(),
        "#!lua name=a name=b\nreturn 1".into(),
        "#!lua name=a nosuch=1\nreturn 1".into(),
        "#!js name=x\nreturn 1".into(),
        "#!LUA name=x\nreturn 1".into(),
        "#! name=x\nreturn 1".into(),
        "# lua name=x\nreturn 1".into(),
        "#!lua name=\"quoted\"\nredis.register_function('quoted', function() end)".into(),
        library("x", "this is no Lua"),
        library("x", ""),
        library("x", "return 1"),
        library("x", "local x = {} x()"),
        library("x", "x = 1"),
        library("x", "return nosuch"),
        library("x", "redis.call('PING')"),
        library("x", "redis.setresp(3)"),
        library("x", "redis.register_function()"),
        library("x", "redis.register_function('only')"),
        library("x", "redis.register_function('f', 'no function')"),
        library("x", "redis.register_function(function() end, 'f')"),
        library("x", "redis.register_function('bad-name', function() end)"),
        library("x", "redis.register_function('', function() end)"),
        library("x", "redis.register_function('one', function() end, 'three')"),
        library("x", &format!("{} {}", one("twice"), one("twice"))),
        library("x", "redis.register_function{callback=function() end}"),
        library("x", "redis.register_function{function_name='f'}"),
        library("x", "redis.register_function{function_name='f', callback=1}"),
        library("x", "redis.register_function{function_name='f', callback=function() end, nosuch=1}"),
        library("x", "redis.register_function{function_name='f', callback=function() end, flags=1}"),
        library("x", "redis.register_function{function_name='f', callback=function() end, flags={'nosuch'}}"),
        library("x", "redis.register_function{function_name='f', callback=function() end, description=function() end}"),
        library("x", "redis.register_function{function_name=7, callback=function() end}"),
        library("x", "redis.register_function{[1]='f', callback=function() end}"),
    ];
    for protocol in ["2", "3"] {
        let mut pair = Pair::start(protocol);
        for text in &texts {
            pair.check(&["FUNCTION", "LOAD", text]);
            pair.check(&["FUNCTION", "LOAD", "REPLACE", text]);
        }
        pair.check(&["FUNCTION", "LOAD", "NOSUCH", &texts[0]]);
        pair.check(&["FUNCTION", "LOAD", "REPLACE"]);
        pair.check(&["FUNCTION", "LOAD"]);
        pair.check(&["FUNCTION", "STATS"]);
        pair.check(&["FCALL", "f", "0"]);
    }
}

/// Texts that use the globals of scripts, during loading and in functions.
#[test]
fn libraries_see_the_same_globals_during_loading() {
    let globals = "_G _VERSION assert collectgarbage coroutine error gcinfo getfenv getmetatable ipairs load loadstring math \
                   newproxy next pairs pcall print rawequal rawget rawset redis select setfenv setmetatable string table \
                   tonumber tostring type unpack xpcall cjson cmsgpack bit struct os KEYS ARGV debug io package require module \
                   dofile loadfile nosuch";
    let fields = "call pcall log sha1hex error_reply status_reply setresp set_repl replicate_commands acl_check_cmd breakpoint \
                  debug register_function LOG_DEBUG LOG_VERBOSE LOG_NOTICE LOG_WARNING REPL_NONE REPL_AOF REPL_SLAVE \
                  REPL_REPLICA REPL_ALL REDIS_VERSION REDIS_VERSION_NUM nosuch";
    let bodies = [
        "x = 1",
        "redis = 1",
        "redis.x = 1",
        "redis.log = nil",
        "math = nil",
        "redis()",
        "local x = redis.log.y",
        "local x = ('a'):upper()",
        "local x = ('a').nosuch",
        "('a').x = 1",
        "local x = ('a'):gsub('a', function() return type(1) end)",
        "for word in ('a b'):gmatch('%a') do end",
        "local x = ('a'):dump()",
        "local x = {} x.y = 1 for i = 1, 3 do x[i] = i .. 'a' end",
        "local x = {} < {}",
        "redis.log('x')",
        "redis.log(redis.LOG_DEBUG, 'said')",
        "redis.register_function('F', function() return 1 end)",
        "redis.register_function('g', redis.log)",
        "local x = math.floor(1.5)",
        "while true do end",
    ];
    let words = |words: &'static str| words.split_whitespace();
    let seen = words(globals).map(|name| format!("local x = {name}"));
    let seen = seen.chain(words(fields).map(|name| format!("local x = redis.{name}")));
    let seen = seen.chain(bodies.map(String::from));
    // Functions see the globals of scripts, except for the arguments.
    let returned = words(globals).filter(|name| !["os", "gcinfo"].contains(name));
    let called = returned.map(|name| format!("return {name} ~= nil"));
    let mut pair = Pair::start("2");
    for body in seen {
        let text = library("l", &format!("{body}\nredis.register_function('f', function() return 1 end)"));
        pair.check(&["FUNCTION", "LOAD", &text]);
        pair.check(&["FUNCTION", "STATS"]);
        pair.check(&["FUNCTION", "FLUSH"]);
    }
    for body in called {
        pair.check(&[
            "FUNCTION",
            "LOAD",
            "REPLACE",
            &library("l", &format!("redis.register_function('f', function() {body} end)")),
        ]);
        pair.check(&["FCALL", "f", "0"]);
    }
}

#[test]
fn libraries_are_listed_and_removed_alike() {
    for protocol in ["2", "3"] {
        let mut pair = Pair::start(protocol);
        let code = "redis.register_function{function_name='f', description='Of no use.', callback=function() end, \
                    flags={'no-writes'}}";
        let text = library("lib", code);
        for words in [
            &["FUNCTION", "LIST"][..],
            &["FUNCTION", "LOAD", &text],
            &["FUNCTION", "LIST"],
            &["FUNCTION", "LIST", "WITHCODE"],
            &["FUNCTION", "LIST", "LIBRARYNAME", "l*"],
            &["FUNCTION", "LIST", "LIBRARYNAME", "L*", "withcode"],
            &["FUNCTION", "LIST", "LIBRARYNAME", "x*"],
            &["FUNCTION", "LIST", "LIBRARYNAME"],
            &["FUNCTION", "LIST", "NOSUCH"],
            &["FUNCTION", "LIST", "WITHCODE", "WITHCODE"],
            &["FUNCTION", "LIST", "LIBRARYNAME", "a", "LIBRARYNAME", "b"],
            &["FUNCTION", "STATS"],
            &["FUNCTION", "STATS", "x"],
            &["FUNCTION", "KILL"],
            &["FUNCTION", "DELETE"],
            &["FUNCTION", "DELETE", "nosuch"],
            &["FUNCTION", "DELETE", "LIB"],
            &["FUNCTION", "DELETE", "lib"],
            &["FUNCTION", "LIST"],
            &["FUNCTION", "LOAD", &text],
            &["FUNCTION", "FLUSH", "NOSUCH"],
            &["FUNCTION", "FLUSH", "ASYNC", "SYNC"],
            &["FUNCTION", "FLUSH", "ASYNC"],
            &["FUNCTION", "LIST"],
            &["FUNCTION", "LOAD", &text],
            &["FUNCTION", "FLUSH", "sync"],
            &["FUNCTION", "FLUSH"],
            &["FUNCTION", "NOSUCH"],
            &["FUNCTION"],
            &["FUNCTION", "RESTORE"],
            &["FUNCTION", "RESTORE", "x"],
            &["FUNCTION", "RESTORE", ""],
            &["FUNCTION", "RESTORE", "0123456789012345678901"],
            &["FUNCTION", "RESTORE", "x", "NOSUCH"],
            &["FUNCTION", "RESTORE", "x", "FLUSH", "FLUSH"],
        ] {
            pair.check(words);
        }
    }
}

#[test]
fn each_server_restores_the_others_dump() {
    let mut pair = Pair::start("2");
    let long = format!("{} --{}", CODE, "compressible ".repeat(100));
    pair.check(&["FUNCTION", "LOAD", &library("long", &long)]);
    pair.check(&["FUNCTION", "LOAD", &library("short", "redis.register_function('f', function() return 1 end)")]);
    let [by_subject, by_oracle] = pair.ask(&[b"FUNCTION", b"DUMP"]).map(|reply| reply.text().to_vec());
    let ask = |conn: &mut Conn, words: &[&[u8]]| {
        conn.send(&encode(&words.iter().map(|word| word.to_vec()).collect::<Vec<_>>())).unwrap();
        show(&conn.read().unwrap())
    };
    for (conn, dumped, own) in
        [(&mut pair.subject, &by_oracle, &by_subject), (&mut pair.oracle, &by_subject, &by_oracle)]
    {
        let listed = |conn: &mut Conn| {
            ["long", "short"]
                .map(|name| ask(conn, &[b"FUNCTION", b"LIST", b"LIBRARYNAME", name.as_bytes(), b"WITHCODE"]))
        };
        let before = listed(conn);
        let exists = ask(conn, &[b"FUNCTION", b"RESTORE", dumped]);
        assert!(exists.starts_with("-ERR Library ") && exists.ends_with(" already exists|"), "{exists}");
        assert_eq!(ask(conn, &[b"FUNCTION", b"RESTORE", dumped, b"REPLACE"]), "+OK|");
        assert_eq!(ask(conn, &[b"FUNCTION", b"RESTORE", dumped, b"FLUSH"]), "+OK|");
        assert_eq!(ask(conn, &[b"FUNCTION", b"RESTORE", own, b"FLUSH"]), "+OK|");
        assert_eq!(ask(conn, &[b"FUNCTION", b"FLUSH"]), "+OK|");
        assert_eq!(ask(conn, &[b"FUNCTION", b"RESTORE", dumped, b"append"]), "+OK|");
        assert_eq!(listed(conn), before);
        assert_eq!(ask(conn, &[b"FCALL", b"f", b"0"]), ":1|");
        // Any changed byte is detected.
        for at in (0..dumped.len()).step_by(7) {
            let mut broken = dumped.clone();
            broken[at] ^= 1;
            assert_eq!(
                ask(conn, &[b"FUNCTION", b"RESTORE", &broken]),
                "-ERR DUMP payload version or checksum are wrong|"
            );
        }
    }
}
