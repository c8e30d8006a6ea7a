//! A replica's requests before the stream begins, and its handling of the replies.
//!
//! ```text
//! replica                                        primary
//! PING                                           +PONG, or -NOAUTH
//! AUTH, REPLCONF listening-port, capa ...        +OK each; an older primary may refuse some
//! PSYNC <history> <offset>, or PSYNC ? -1        +FULLRESYNC <history> <offset>, or +CONTINUE [<history>]
//! ```
//!
//! Replies are single lines. An empty line is a sign of life while the primary prepares its reply.

use std::collections::VecDeque;

use resp::num::parse_i64;

use crate::id::HistoryId;

/// A replica's description of itself.
#[derive(Clone, Debug, Default)]
pub struct Introduction {
    /// The user for the primary (`masteruser`, `masterauth`).
    pub user: Option<Vec<u8>>,
    /// The password for it.
    pub password: Option<Vec<u8>>,
    /// The port of this server for clients (`replica-announce-port`, or its own).
    pub port: u16,
    /// The address of this server for clients, if it differs from the address that the primary sees (`replica-announce-ip`).
    pub address: Option<String>,
    /// The server's version. Newer primaries record it.
    pub version: String,
    /// The replica's name in its cluster, if it is a node of one.
    pub node: Option<String>,
    /// The history of the replica's data, and the offset of its first missing byte.
    pub known: Option<(HistoryId, u64)>,
    /// True if the other server is a replica of this one, and must take its place (FAILOVER).
    pub hands_over: bool,
}

/// The beginning of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beginning {
    /// After a snapshot with the first `offset` bytes of this history.
    Snapshot {
        /// The history's name.
        history: HistoryId,
        /// Bytes of the history before the first byte of the stream.
        offset: u64,
    },
    /// At the replica's offset. The history may have another name from here on.
    GoesOn {
        /// The new name, if there is one.
        history: Option<HistoryId>,
    },
}

/// The next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandshakeStep {
    /// Send these requests.
    Send(Vec<u8>),
    /// Await the next line.
    Wait,
    /// The stream begins.
    Begin(Beginning),
}

/// The reason why the primary can't be replicated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// A line for the log: the primary's reply and the remedy.
    pub text: String,
    /// The primary can't serve now: it loads its data, or has no link to its own primary.
    pub is_for_now: bool,
    /// The other server is a primary already, and a failover is impossible.
    pub is_primary: bool,
}

/// The request that a reply belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Ping,
    Auth,
    /// A request that older primaries may not know.
    Optional,
    Psync,
}

/// The replica's side.
#[derive(Debug)]
pub struct Handshake {
    introduction: Introduction,
    asked: VecDeque<Asked>,
}

impl Handshake {
    /// Returns the handshake and the first request.
    #[must_use]
    pub fn begin(introduction: Introduction) -> (Handshake, Vec<u8>) {
        (Handshake { introduction, asked: VecDeque::from([Asked::Ping]) }, request(&[b"PING"]))
    }

    /// Takes a line of the primary, without its end.
    ///
    /// # Errors
    /// The primary refuses an essential request.
    pub fn line(&mut self, line: &[u8]) -> Result<HandshakeStep, Refused> {
        if line.is_empty() {
            return Ok(HandshakeStep::Wait);
        }
        let asked = self.asked.pop_front();
        let is_error = line.first() == Some(&b'-');
        match asked {
            Some(Asked::Ping) => self.pinged(line),
            Some(Asked::Auth) if is_error => Err(refused(line, "check masteruser and masterauth", false)),
            Some(Asked::Auth | Asked::Optional) if !self.asked.is_empty() => Ok(HandshakeStep::Wait),
            Some(Asked::Auth | Asked::Optional) => Ok(HandshakeStep::Send(self.psync())),
            Some(Asked::Psync) => begun(line),
            None => Err(refused(line, "nothing was asked", false)),
        }
    }

    /// Introduces the replica, once the primary is known to answer.
    fn pinged(&mut self, line: &[u8]) -> Result<HandshakeStep, Refused> {
        // A primary with a password refuses PING, and so does one with users who may not PING.
        let answers = [&b"+PONG"[..], b"-NOAUTH", b"-NOPERM", b"-ERR operation not permitted"];
        if !answers.iter().any(|answer| line.starts_with(answer)) {
            return Err(refused(line, "it does not answer PING", is_for_now(line)));
        }
        let mut bytes = Vec::new();
        let introduction = &self.introduction;
        if let Some(password) = &introduction.password {
            match &introduction.user {
                Some(user) => bytes.extend(request(&[b"AUTH", user, password])),
                None => bytes.extend(request(&[b"AUTH", password])),
            }
            self.asked.push_back(Asked::Auth);
        }
        let port = introduction.port.to_string();
        let mut say = |words: &[&[u8]]| {
            bytes.extend(request(words));
            self.asked.push_back(Asked::Optional);
        };
        say(&[b"REPLCONF", b"listening-port", port.as_bytes()]);
        if let Some(address) = &introduction.address {
            say(&[b"REPLCONF", b"ip-address", address.as_bytes()]);
        }
        say(&[b"REPLCONF", b"capa", b"eof", b"capa", b"psync2", b"capa", b"penstock"]);
        say(&[b"REPLCONF", b"version", introduction.version.as_bytes()]);
        if let Some(node) = &introduction.node {
            say(&[b"REPLCONF", b"set-cluster-node-id", node.as_bytes()]);
        }
        Ok(HandshakeStep::Send(bytes))
    }

    fn psync(&mut self) -> Vec<u8> {
        self.asked.push_back(Asked::Psync);
        match self.introduction.known {
            Some((history, offset)) => {
                let offset = offset.to_string();
                let mut words = vec![&b"PSYNC"[..], history.as_str().as_bytes(), offset.as_bytes()];
                words.extend(self.introduction.hands_over.then_some(&b"FAILOVER"[..]));
                request(&words)
            }
            None => request(&[b"PSYNC", b"?", b"-1"]),
        }
    }
}

/// Parses the reply to PSYNC.
fn begun(line: &[u8]) -> Result<HandshakeStep, Refused> {
    let mut words = line.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
    let history = |word: Option<&[u8]>| word.and_then(HistoryId::parse);
    let beginning = match words.next() {
        Some(b"+FULLRESYNC") => {
            let parsed = history(words.next()).zip(words.next().and_then(offset));
            parsed.map(|(history, offset)| Beginning::Snapshot { history, offset })
        }
        Some(b"+CONTINUE") => Some(Beginning::GoesOn { history: history(words.next()) }),
        _ => None,
    };
    match beginning {
        Some(beginning) => Ok(HandshakeStep::Begin(beginning)),
        None => Err(refused(line, "it was asked for its data (PSYNC)", is_for_now(line))),
    }
}

fn offset(text: &[u8]) -> Option<u64> {
    parse_i64(text).and_then(|offset| u64::try_from(offset).ok())
}

/// Returns true for a temporary error.
fn is_for_now(line: &[u8]) -> bool {
    line.starts_with(b"-NOMASTERLINK") || line.starts_with(b"-LOADING") || line.starts_with(b"-BUSY")
}

fn refused(line: &[u8], what: &str, is_for_now: bool) -> Refused {
    let line = line.get(..line.len().min(200)).unwrap_or_default();
    let is_primary = line.starts_with(b"-ERR PSYNC FAILOVER can't be sent to a master");
    Refused { text: format!("the primary says \"{}\": {what}", line.escape_ascii()), is_for_now, is_primary }
}

/// Returns a request as an array of bulk strings.
#[must_use]
pub fn request(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef01234567";

    fn introduction() -> Introduction {
        Introduction { port: 7000, version: "8.0.0".into(), ..Introduction::default() }
    }

    /// Plays a handshake. Returns the requests in words, and the end.
    fn play(introduction: Introduction, lines: &[&str]) -> (Vec<String>, Result<Option<Beginning>, Refused>) {
        let (mut handshake, first) = Handshake::begin(introduction);
        let mut sent = vec![words(&first)];
        for line in lines {
            match handshake.line(line.as_bytes()) {
                Ok(HandshakeStep::Send(bytes)) => sent.push(words(&bytes)),
                Ok(HandshakeStep::Wait) => {}
                Ok(HandshakeStep::Begin(beginning)) => return (sent, Ok(Some(beginning))),
                Err(refused) => return (sent, Err(refused)),
            }
        }
        (sent, Ok(None))
    }

    /// Returns the words of some requests.
    fn words(bytes: &[u8]) -> String {
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        let words = text.split("\r\n").filter(|line| !line.is_empty() && !line.starts_with('$'));
        words.map(|word| if word.starts_with('*') { ";" } else { word }).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_replica_without_data_gets_a_snapshot() {
        let full = format!("+FULLRESYNC {ID} 1234");
        let (sent, end) = play(introduction(), &["+PONG", "+OK", "+OK", "+OK", "", &full]);
        assert_eq!(
            sent,
            [
                "; PING",
                "; REPLCONF listening-port 7000 ; REPLCONF capa eof capa psync2 capa penstock ; REPLCONF version 8.0.0",
                "; PSYNC ? -1"
            ]
        );
        let history = HistoryId::parse(ID.as_bytes()).unwrap();
        assert_eq!(end, Ok(Some(Beginning::Snapshot { history, offset: 1234 })));
    }

    #[test]
    fn a_replica_with_part_of_the_history_continues() {
        let history = HistoryId::parse(ID.as_bytes()).unwrap();
        let known = Introduction { known: Some((history, 77)), ..introduction() };
        let (sent, end) = play(known.clone(), &["+PONG", "+OK", "+OK", "-ERR unknown option", "+CONTINUE"]);
        assert_eq!(sent[2], format!("; PSYNC {ID} 77"));
        assert_eq!(end, Ok(Some(Beginning::GoesOn { history: None })));
        let line = format!("+CONTINUE {ID}");
        let (_, end) = play(known, &["+PONG", "+OK", "+OK", "+OK", &line]);
        assert_eq!(end, Ok(Some(Beginning::GoesOn { history: Some(history) })));
    }

    #[test]
    fn a_server_that_hands_over_says_so() {
        let history = HistoryId::parse(ID.as_bytes()).unwrap();
        let known = Introduction { known: Some((history, 77)), hands_over: true, ..introduction() };
        let refusal = "-ERR PSYNC FAILOVER can't be sent to a master.";
        let (sent, end) = play(known, &["+PONG", "+OK", "+OK", "+OK", refusal]);
        assert_eq!(sent[2], format!("; PSYNC {ID} 77 FAILOVER"));
        assert!(end.unwrap_err().is_primary);
    }

    #[test]
    fn passwords_and_addresses_are_told() {
        let told = Introduction {
            user: Some(b"repl".to_vec()),
            password: Some(b"pass word".to_vec()),
            address: Some("10.0.0.9".into()),
            ..introduction()
        };
        let (sent, _) = play(told.clone(), &["-NOAUTH Authentication required."]);
        assert!(
            sent[1].starts_with("; AUTH repl pass word ; REPLCONF listening-port 7000 ; REPLCONF ip-address 10.0.0.9")
        );
        let (_, end) = play(told, &["+PONG", "-WRONGPASS invalid username-password pair"]);
        let refused = end.unwrap_err();
        assert!(refused.text.contains("WRONGPASS") && refused.text.contains("masterauth"), "{}", refused.text);
        assert!(!refused.is_for_now);
    }

    #[test]
    fn a_primary_that_is_busy_is_asked_again() {
        let not_now = |lines: &[&str]| play(introduction(), lines).1.unwrap_err().is_for_now;
        assert!(not_now(&[
            "+PONG",
            "+OK",
            "+OK",
            "+OK",
            "-NOMASTERLINK Can't SYNC while not connected with my master"
        ]));
        assert!(not_now(&["-LOADING Redis is loading the dataset in memory"]));
        assert!(!not_now(&["+PONG", "+OK", "+OK", "+OK", "-ERR unknown command 'PSYNC'"]));
        assert!(!not_now(&["-ERR what"]));
        assert!(!not_now(&["+PONG", "+OK", "+OK", "+OK", "+FULLRESYNC short 1"]));
        assert!(!not_now(&["+PONG", "+OK", "+OK", "+OK", &format!("+FULLRESYNC {ID} x")]));
    }
}
