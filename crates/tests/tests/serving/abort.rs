//! Pipelines that stop at their first failure (PIPELINE ABORT): random pipelines against a plain model of the rule, and
//! a stopped pipeline that outlives its connection and its server.
//!
//! `PENSTOCK_ABORT_ROUNDS=N`: number of pipelines of each run. `PENSTOCK_SEED=N`: the seed of the first run.

#![allow(clippy::unwrap_used)]

use penstock_tests::bytes::{Command, as_typed, command};
use penstock_tests::conn::Conn;
use penstock_tests::nodes::{Make, Node, node_with};
use penstock_tests::reply::Reply;
use penstock_tests::rng::Rng;
use penstock_tests::server::Server;

/// Number of pipelines of a run.
const ROUNDS: u64 = 120;
/// Most commands of a pipeline: several windows of the server.
const COMMANDS_MAX: usize = 300;
/// Bytes of an error that the server keeps.
const ERROR_BYTES_MAX: usize = 128;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// A random command. Most of them succeed, or a long pipeline would stop at once. Half of the keys hold another type.
fn random_command(rng: &mut Rng) -> Command {
    let key = ["a", "b", "c", "{a}1", "foo", "bar"][rng.below(6)];
    let words = match rng.below(60) {
        0 => "nosuch x".into(),
        1 => "get".into(),
        2 => format!("lpush {key} x"),
        3 => format!("set {key} text"),
        4 => format!("incr {key}"),
        5..=7 => "multi".into(),
        8..=13 => "exec".into(),
        14 => "discard".into(),
        15 | 16 => "pipeline sync".into(),
        17 => "watch a".into(),
        18 => "mget a foo".into(),
        19 => "select 0".into(),
        20 => "pipeline nosuch".into(),
        21 => "ping".into(),
        22 => "dbsize".into(),
        23..=25 => format!("append t{key} x"),
        26 => "flushall".into(),
        27..=30 => format!("del {key}"),
        31..=38 => format!("incr n{key}"),
        39..=44 => format!("rpush l{key} x"),
        _ => format!("set {key} 1"),
    };
    if rng.chance(2) {
        let script = "redis.call('incr', KEYS[1]) return redis.call('lpush', KEYS[1], 'x')";
        return [&b"eval"[..], script.as_bytes(), b"1", key.as_bytes()].map(<[u8]>::to_vec).to_vec();
    }
    command(&words)
}

/// The errors that stop a pipeline.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Words {
    Errors,
    Redirects,
    Both,
}

impl Words {
    fn command(self) -> Command {
        command(match self {
            Words::Errors => "pipeline abort on errors",
            Words::Redirects => "pipeline abort on redirects",
            Words::Both => "pipeline abort on",
        })
    }

    fn concern(self, error: &[u8]) -> bool {
        let code = error.split(|&b| b == b' ').next().unwrap();
        let is_redirect = [&b"MOVED"[..], b"ASK", b"TRYAGAIN", b"CLUSTERDOWN"].contains(&code);
        self == Words::Both || is_redirect == (self == Words::Redirects)
    }
}

/// The rule, in front of a connection to a server that executes one command at a time.
struct Model {
    conn: Conn,
    on: Words,
    executed: i64,
    skipped: i64,
    error: Option<Vec<u8>>,
    in_multi: bool,
}

impl Model {
    fn answer(&mut self, command: &Command) -> Reply {
        let name = command[0].to_ascii_lowercase();
        let is_sync = command.len() == 2 && command[1] == b"sync";
        if is_sync && !self.in_multi {
            return self.sync();
        }
        if name == b"pipeline" {
            return self.conn.call(command).unwrap();
        }
        if let Some(error) = &self.error {
            self.skipped += 1;
            let text = [format!("ABORTED after command {}: ", self.executed).as_bytes(), error].concat();
            if name == b"exec" {
                self.conn.cmd("unwatch").unwrap();
            }
            return Reply::Line(b'-', text);
        }
        let reply = self.conn.call(command).unwrap();
        self.executed += 1;
        let was_in_multi = self.in_multi;
        match &name[..] {
            b"multi" => self.in_multi = true,
            b"exec" | b"discard" => self.in_multi = false,
            _ => {}
        }
        let errors: Vec<&Reply> = match &reply {
            Reply::Many(b'*', items) if name == b"exec" => items.iter().filter(|item| item.is_error()).collect(),
            reply => Some(reply).filter(|reply| reply.is_error()).into_iter().collect(),
        };
        let mut texts: Vec<Vec<u8>> = errors.iter().map(|error| error.text().to_vec()).collect();
        if name == b"exec" && reply.is_null() {
            texts.push(b"EXECABORT Transaction discarded because a watched key has changed".to_vec());
        }
        if let Some(mut text) = texts.into_iter().find(|text| self.on.concern(text)) {
            text.truncate(ERROR_BYTES_MAX);
            self.error = Some(text);
            if was_in_multi && self.in_multi {
                self.conn.cmd("discard").unwrap();
                self.in_multi = false;
            }
        }
        reply
    }

    fn sync(&mut self) -> Reply {
        let error = self.error.take();
        let failed = if error.is_some() { self.executed } else { 0 };
        let bulk = |text: &str| Reply::Blob(b'$', text.into());
        let error = error.map_or(Reply::Line(b'$', b"-1".into()), |text| Reply::Blob(b'$', text));
        let (executed, skipped) = (std::mem::take(&mut self.executed), std::mem::take(&mut self.skipped));
        let [executed, failed, skipped] =
            [executed, failed, skipped].map(|number| Reply::Line(b':', number.to_string().into()));
        let fields = [
            (bulk("executed"), executed),
            (bulk("failed"), failed),
            (bulk("error"), error),
            (bulk("skipped"), skipped),
        ];
        Reply::Many(b'*', fields.into_iter().flat_map(|(name, value)| [name, value]).collect())
    }
}

/// Compares replies and data after each pipeline. A pipeline is sent in two parts.
fn run(subject: &Server, plain: &Server, seed: u64, rounds: u64) {
    let mut rng = Rng::new(seed);
    for round in 0..rounds {
        let on = *rng.pick(&[Words::Errors, Words::Redirects, Words::Both]);
        let mut conn = subject.connect();
        conn.call(&on.command()).unwrap();
        let mut model = Model { conn: plain.connect(), on, executed: 0, skipped: 0, error: None, in_multi: false };
        let count = 1 + rng.below(COMMANDS_MAX);
        let mut commands: Vec<Command> = (0..count).map(|_| random_command(&mut rng)).collect();
        commands.extend([command("discard"), command("pipeline sync")]);
        let (first, second) = commands.split_at(rng.below(commands.len()));
        let replies = [conn.pipeline(first).unwrap(), conn.pipeline(second).unwrap()].concat();
        for (index, (command, reply)) in commands.iter().zip(&replies).enumerate() {
            let expected = model.answer(command);
            let place = format!("seed {seed}, round {round}, command {index}: {}", as_typed(command));
            assert_eq!(reply.escaped(), expected.escaped(), "{place}");
        }
        let digest = |server: &Server| server.connect().cmd("DEBUG DIGEST").unwrap().escaped();
        assert_eq!(digest(subject), digest(plain), "seed {seed}, round {round}");
    }
}

#[test]
fn random_pipelines_stop_like_the_model() {
    let (seed, rounds) = (number("PENSTOCK_SEED").unwrap_or(1), number("PENSTOCK_ABORT_ROUNDS").unwrap_or(ROUNDS));
    for (threads, seed) in ["1", "4"].iter().zip(seed..) {
        let args = ["--threads", threads, "--enable-debug-command", "yes"];
        run(&Server::penstock(&args), &Server::penstock(&args), seed, rounds);
    }
}

#[test]
fn random_pipelines_stop_at_slots_that_nobody_serves() {
    let (seed, rounds) = (number("PENSTOCK_SEED").unwrap_or(100), number("PENSTOCK_ABORT_ROUNDS").unwrap_or(ROUNDS));
    let node = || -> Node {
        let args = ["--cluster-require-full-coverage", "no", "--enable-debug-command", "yes", "--threads", "4"];
        let node = node_with(Make::Penstock, &args);
        node.ok("CLUSTER ADDSLOTSRANGE 0 12182 12183 15494 15496 16382");
        node.server.wait_until("it serves", |server| server.connect().cmd("SET foo 1").is_ok_and(|r| !r.is_error()));
        node
    };
    let (subject, plain) = (node(), node());
    for node in [&subject, &plain] {
        node.ok("FLUSHALL");
    }
    run(&subject.server, &plain.server, seed, rounds);
}

/// Returns the reply of RESUME, and the replies of the rest of a stopped pipeline.
fn rest_of_pipeline(server: &Server) -> Vec<String> {
    let mut conn = server.connect();
    let words = ["pipeline resume t", "set a 2", "pipeline sync", "set b 2", "pipeline sync"];
    words.iter().map(|words| conn.cmd(words).unwrap().escaped()).collect()
}

#[test]
fn a_stopped_pipeline_outlives_connections_and_servers() {
    for rewrites in [false, true] {
        let mut server = Server::penstock(&["--appendonly", "yes", "--appendfsync", "always"]);
        let mut conn = server.connect();
        for words in ["set k v", "pipeline abort on", "pipeline start t", "set a 1", "incr k", "set a 3"] {
            conn.cmd(words).unwrap();
        }
        if rewrites {
            // The token is then in the base.
            server.connect().cmd("bgrewriteaof").unwrap();
            server.wait_until("the rewrite ends", |server| server.figure("aof_rewrite_in_progress") == 0);
            server.connect().cmd("set other 1").unwrap();
        }
        drop(conn);
        server.kill();
        server.restart();
        let rest = rest_of_pipeline(&server);
        assert!(rest[0].contains("executed") && rest[0].contains("ABORTED after command 2"), "{rest:?}");
        assert!(rest[1].contains("ABORTED after command 2: ERR value is not an integer"), "{rest:?}");
        assert!(rest[2].contains("ERR value is not an integer") && !rest[2].contains("ABORTED"), "{rest:?}");
        assert!(rest[3].contains("OK"), "{rest:?}");
        assert_eq!(server.connect().cmd("get a").unwrap().text(), b"1");
    }
}

#[test]
fn a_failure_at_the_time_of_the_commit_reaches_the_sync() {
    let server = Server::penstock(&["--durability-replicas", "1", "--durability-timeout", "300"]);
    let mut conn = server.connect();
    conn.cmd("pipeline abort on").unwrap();
    let replies = conn.pipeline(&[command("set a 1"), command("set b 1"), command("pipeline sync")]).unwrap();
    assert!(replies.iter().all(|reply| reply.text().starts_with(b"NOREPLICAS")), "{replies:?}");
}
