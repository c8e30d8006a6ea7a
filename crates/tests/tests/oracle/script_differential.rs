//! Scripts, sent to Penstock and to Redis: results, errors and the contents of the sandbox must be the same.
//!
//! Redis 7.0 is the oracle. Intended differences are in [`corpus::KNOWN`], with Penstock's replies.

#![allow(clippy::panic, clippy::unwrap_used)]

use penstock_tests::bytes::encode;
use penstock_tests::conn::Conn;
use penstock_tests::reply::Reply;
use penstock_tests::rng::Rng;
use penstock_tests::server::Server;

mod corpus;
mod generate;

/// Number of generated scripts of each kind in an ordinary run; PENSTOCK_DIFF_ROUNDS changes it.
const ROUNDS: usize = 300;
/// Number of generated scripts that are sent as one, each in a `pcall` of its own: the cost of a script is mostly
/// overhead.
const PER_SCRIPT: usize = 50;

struct Pair {
    subject: Conn,
    oracle: Conn,
    _servers: [Server; 2],
}

impl Pair {
    fn start() -> Pair {
        let servers = [Server::penstock(&[]), Server::oracle(&[])];
        Pair { subject: servers[0].connect(), oracle: servers[1].connect(), _servers: servers }
    }

    /// Returns both replies to a command.
    fn ask(&mut self, words: &[&[u8]]) -> (Reply, Reply) {
        let command: Vec<Vec<u8>> = words.iter().map(|word| word.to_vec()).collect();
        self.subject.send(&encode(&command)).unwrap();
        self.oracle.send(&encode(&command)).unwrap();
        (self.subject.read().unwrap(), self.oracle.read().unwrap())
    }

    fn eval(&mut self, script: &str) -> (Reply, Reply) {
        self.ask(&[b"EVAL", script.as_bytes(), b"2", b"key:1", b"key:2", b"one", b"2", b""])
    }

    fn check(&mut self, script: &str) {
        let (subject, oracle) = self.eval(script);
        assert_eq!(show(&subject), show(&oracle), "{script}");
    }

    /// Checks that both servers have the same two keys, and removes them.
    fn check_keys(&mut self, script: &str) {
        for key in [&b"key:1"[..], b"key:2"] {
            let (subject, oracle) = self.ask(&[b"TYPE", key]);
            assert_eq!(subject, oracle, "{script}");
        }
        self.ask(&[b"FLUSHALL"]);
    }
}

fn check_all(scripts: &[&str]) {
    for protocol in [&b"2"[..], b"3"] {
        let mut pair = Pair::start();
        pair.ask(&[b"HELLO", protocol]);
        for script in scripts {
            pair.check(script);
            pair.check_keys(script);
        }
    }
}

#[test]
fn values_become_replies() {
    check_all(corpus::TO_REPLIES);
}

#[test]
fn replies_become_values() {
    check_all(corpus::FROM_REPLIES);
}

#[test]
fn errors_say_what_and_where() {
    check_all(corpus::ERRORS);
}

#[test]
fn the_sandbox_is_the_same() {
    check_all(corpus::SANDBOX);
}

#[test]
fn libraries_are_the_same() {
    // Redis's scripts share the options, so each script sets the defaults first.
    const DEFAULTS: &str = "cjson.encode_max_depth(1000) cjson.decode_max_depth(1000) cjson.decode_invalid_numbers(true) \
         cjson.encode_sparse_array(false, 2, 10) cjson.encode_number_precision(14) cjson.encode_invalid_numbers(false) ";
    let mut pair = Pair::start();
    for script in corpus::LIBRARIES.lines() {
        let call = generate::literal(format!("{DEFAULTS}{script}").as_bytes());
        let (subject, oracle) = pair.eval(&format!("{}add({call}) return results[1]", generate::PRELUDE));
        assert_eq!(show(&subject), show(&oracle), "{script}");
    }
}

#[test]
fn known_differences_still_exist() {
    let mut pair = Pair::start();
    for (script, subject_says, oracle_says, reason) in corpus::KNOWN {
        let (subject, oracle) = pair.eval(script);
        assert!(show(&subject).starts_with(subject_says), "{script}: {reason}: {}", show(&subject));
        assert!(show(&oracle).starts_with(oracle_says), "{script}: {reason}: {}", show(&oracle));
        assert_ne!(subject, oracle, "{script}: {reason}");
    }
}

fn show(reply: &Reply) -> String {
    String::from_utf8_lossy(&reply.encode()).replace("\r\n", "|")
}

/// Sends generated scripts, many in one, and compares the results of each of them.
fn check_generated(kind: &str, make: fn(&mut Rng) -> String) {
    let rounds = std::env::var("PENSTOCK_DIFF_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(ROUNDS);
    let seed = std::env::var("PENSTOCK_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let mut rng = Rng::new(seed);
    let mut pair = Pair::start();
    for _ in 0..rounds.div_ceil(PER_SCRIPT) {
        let scripts: Vec<String> = (0..PER_SCRIPT).map(|_| make(&mut rng)).collect();
        let calls: String =
            scripts.iter().map(|script| format!("add({})\n", generate::literal(script.as_bytes()))).collect();
        let (subject, oracle) = pair.eval(&format!("{}{calls}return results", generate::PRELUDE));
        let (Reply::Many(_, subject), Reply::Many(_, oracle)) = (&subject, &oracle) else {
            panic!("{kind}: {subject:?}\n{oracle:?}\n{scripts:#?}");
        };
        for ((subject, oracle), script) in subject.iter().zip(oracle).zip(&scripts) {
            assert_eq!(show(subject), show(oracle), "{kind}, PENSTOCK_SEED={seed}: {script}");
        }
    }
}

#[test]
fn generated_patterns() {
    check_generated("patterns", generate::pattern);
}

#[test]
fn generated_json() {
    check_generated("cjson.encode", generate::json_encode);
    check_generated("cjson.decode", generate::json_decode);
}

#[test]
fn generated_messages() {
    check_generated("cmsgpack.pack", generate::message_pack);
    check_generated("cmsgpack.unpack", generate::message_unpack);
}

#[test]
fn generated_structures() {
    check_generated("struct.pack", generate::struct_pack);
    check_generated("struct.unpack", generate::struct_unpack);
}

#[test]
fn generated_bits() {
    check_generated("bit", generate::bits);
}

#[test]
fn generated_sorts() {
    check_generated("table.sort", generate::sort);
}

#[test]
fn generated_basics() {
    check_generated("basic functions", generate::basic);
}

/// CVE-2025-67733: line ends in an error or a status would be parsed as further replies, which shifts all later replies
/// of a pipeline.
#[test]
fn line_ends_cannot_be_injected_into_a_reply() {
    let server = Server::penstock(&[]);
    for protocol in ["2", "3"] {
        for script in corpus::SMUGGLING {
            let mut conn = server.connect();
            conn.cmd(&format!("HELLO {protocol}")).unwrap();
            let eval = ["EVAL", script, "0"].map(|word| word.as_bytes().to_vec()).to_vec();
            let ping = vec![b"PING".to_vec(), b"after".to_vec()];
            let replies = conn.pipeline(&[eval.clone(), ping.clone(), eval, ping]).unwrap();
            for i in [1, 3] {
                assert_eq!(show(&replies[i]), "$5|after|", "{script}: {replies:?}");
            }
            for i in [0, 2] {
                let text = replies[i].encode();
                let lines = text.iter().filter(|&&byte| byte == b'\n').count();
                assert!(!matches!(replies[i].tag(), b'+' | b'-') || lines == 1, "{script}: {replies:?}");
            }
        }
    }
}
