//! The server's side of `--resume`: the PIPELINE family, which counts under a token what a connection executes.
//!
//! Knows the commands and their replies, as Penstock's docs/pipelines.md describes them. No decision is taken here.

use client::{Command, Connection, Error, Value};

use crate::flight::Remembered;

/// How far the server says that a load has got.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Requests that ran.
    pub executed: u64,
    /// Those of them that failed.
    pub failed: u64,
    /// The first of these.
    pub failures: Vec<Remembered>,
}

/// What became of a question about a token.
#[derive(Debug)]
pub enum Answer<T> {
    /// It was answered.
    Is(T),
    /// The server has no such token.
    NoToken,
    /// The server doesn't know the command.
    Unsupported,
}

fn ask<T>(
    connection: &mut Connection,
    command: &Command,
    read: impl Fn(Value) -> Option<T>,
) -> Result<Answer<T>, Error> {
    let reply = match connection.command(command) {
        Ok(reply) => reply,
        Err(Error::Server(error)) if error.code() == b"NOTOKEN" => return Ok(Answer::NoToken),
        Err(Error::Server(error)) if error.text().starts_with(b"ERR unknown command") => {
            return Ok(Answer::Unsupported);
        }
        Err(error) => return Err(error),
    };
    let shown = format!("{reply:?}");
    read(reply).map(Answer::Is).ok_or(Error::Unexpected { command: "PIPELINE", reply: shown })
}

/// Makes the token and has it count from here on.
pub fn start(connection: &mut Connection, token: &str, ttl_s: u64) -> Result<Answer<()>, Error> {
    ask(connection, &Command::new("PIPELINE START").arg(token).arg("TTL").arg(ttl_s), |_| Some(()))
}

/// Takes the token over from the connection that broke.
pub fn resume(connection: &mut Connection, token: &str) -> Result<Answer<Progress>, Error> {
    ask(connection, &Command::new("PIPELINE RESUME").arg(token), |reply| progress(&reply))
}

/// Forgets the token.
pub fn end(connection: &mut Connection, token: &str) -> Result<Answer<()>, Error> {
    ask(connection, &Command::new("PIPELINE END").arg(token), |_| Some(()))
}

/// Reads the map of RESP3 or the flat array of RESP2; fields that a later server may add are passed over.
fn progress(reply: &Value) -> Option<Progress> {
    let pairs: Vec<(&Value, &Value)> = match reply {
        Value::Map(pairs) => pairs.iter().map(|(name, value)| (name, value)).collect(),
        Value::Array(flat) => flat.chunks_exact(2).map(|pair| (&pair[0], &pair[1])).collect(),
        _ => return None,
    };
    let field =
        |name: &str| pairs.iter().find(|(key, _)| key.bytes() == Some(name.as_bytes())).map(|(_, value)| *value);
    let Some(Value::Array(failures)) = field("failures") else { return None };
    Some(Progress {
        executed: number(field("executed")?)?,
        failed: number(field("failed")?)?,
        failures: failures.iter().map(failure).collect::<Option<_>>()?,
    })
}

fn number(value: &Value) -> Option<u64> {
    match value {
        Value::Int(number) => u64::try_from(*number).ok(),
        _ => None,
    }
}

/// A position, from 1, and the error.
fn failure(value: &Value) -> Option<Remembered> {
    match value {
        Value::Array(pair) => match &pair[..] {
            [position, error] => {
                Some(Remembered { request: number(position)?.checked_sub(1)?, error: error.bytes()?.to_vec() })
            }
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use resp::parse::{ReplyLimits, parse};

    type Expected<'e> = (u64, u64, &'e [(u64, &'e str)]);

    fn check(reply: &str, expected: Option<Expected<'_>>) {
        let (value, _) = parse(reply.as_bytes(), &ReplyLimits::default()).unwrap().unwrap();
        let expected = expected.map(|(executed, failed, failures)| Progress {
            executed,
            failed,
            failures: failures
                .iter()
                .map(|(number, error)| Remembered { request: *number, error: error.as_bytes().to_vec() })
                .collect(),
        });
        assert_eq!(progress(&value), expected, "{reply:?}");
    }

    #[test]
    fn progress_is_read_in_both_protocols() {
        let inside =
            "$8\r\nexecuted\r\n:7\r\n$6\r\nfailed\r\n:2\r\n$8\r\nfailures\r\n*1\r\n*2\r\n:3\r\n$5\r\nERR x\r\n";
        check(&format!("%3\r\n{inside}"), Some((7, 2, &[(2, "ERR x")])));
        check(&format!("*6\r\n{inside}"), Some((7, 2, &[(2, "ERR x")])));
        check(&format!("%4\r\n+new\r\n+x\r\n{inside}"), Some((7, 2, &[(2, "ERR x")])));
        check("+OK\r\n", None);
        check("*2\r\n+executed\r\n:1\r\n", None);
        check(&format!("%3\r\n{}", inside.replace(":3", ":0")), None);
    }
}
