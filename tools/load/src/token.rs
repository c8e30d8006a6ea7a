//! The server's side of `--resume`: the PIPELINE family, which counts under a token what a connection executes.
//!
//! Knows the commands and their replies, as Penstock's docs/pipelines.md describes them. No decision is taken here.

use client::{Command, Connection, Error, Value};

use crate::flight::Remembered;

/// How far the server says that a load has got.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenProgress {
    /// Requests that ran.
    pub executed: u64,
    /// Those of them that failed.
    pub failed: u64,
    /// The first of these.
    pub failures: Vec<Remembered>,
}

/// What became of a question about a token.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer<T> {
    /// It was answered.
    Is(T),
    /// The server has no such token.
    NoToken,
    /// The server doesn't know the command, or doesn't say all that has to be known.
    Unsupported,
}

fn ask<T>(
    connection: &mut Connection,
    command: &Command,
    read: impl Fn(&Value) -> Option<Answer<T>>,
) -> Result<Answer<T>, Error> {
    let reply = match connection.command(command) {
        Ok(reply) => reply,
        Err(Error::Server(error)) if error.code() == b"NOTOKEN" => return Ok(Answer::NoToken),
        Err(Error::Server(error)) if error.text().starts_with(b"ERR unknown command") => {
            return Ok(Answer::Unsupported);
        }
        Err(error) => return Err(error),
    };
    read(&reply).ok_or_else(|| Error::Unexpected { command: "PIPELINE", reply: format!("{reply:?}") })
}

/// Takes the token over. If there is none it is made, should `new_ttl_s` say for how long it is to be kept.
///
/// # Errors
/// The connection broke, or the server refuses.
pub fn enter(connection: &mut Connection, token: &str, new_ttl_s: Option<u64>) -> Result<Answer<TokenProgress>, Error> {
    let answer = resume(connection, token)?;
    let (Answer::NoToken, Some(ttl_s)) = (&answer, new_ttl_s) else { return Ok(answer) };
    let start = Command::new("PIPELINE START").arg(token).arg("TTL").arg(ttl_s);
    ask(connection, &start, |_| Some(Answer::Is(())))?;
    // Whether the server says all that has to be known is to be seen before anything is sent.
    resume(connection, token)
}

/// Takes the token over from the connection that broke.
fn resume(connection: &mut Connection, token: &str) -> Result<Answer<TokenProgress>, Error> {
    ask(connection, &Command::new("PIPELINE RESUME").arg(token), progress)
}

/// Forgets the token.
pub fn end(connection: &mut Connection, token: &str) -> Result<Answer<()>, Error> {
    ask(connection, &Command::new("PIPELINE END").arg(token), |_| Some(Answer::Is(())))
}

/// Reads the map of RESP3 or the flat array of RESP2; fields that a later server may add are passed over. An earlier
/// one names no database: it wouldn't select the one in which the load is to go on, either.
fn progress(reply: &Value) -> Option<Answer<TokenProgress>> {
    let pairs: Vec<(&Value, &Value)> = match reply {
        Value::Map(pairs) => pairs.iter().map(|(name, value)| (name, value)).collect(),
        Value::Array(flat) => flat.chunks_exact(2).map(|pair| (&pair[0], &pair[1])).collect(),
        _ => return None,
    };
    let field =
        |name: &str| pairs.iter().find(|(key, _)| key.bytes() == Some(name.as_bytes())).map(|(_, value)| *value);
    let Some(Value::Array(failures)) = field("failures") else { return None };
    let progress = TokenProgress {
        executed: number(field("executed")?)?,
        failed: number(field("failed")?)?,
        failures: failures.iter().map(failure).collect::<Option<_>>()?,
    };
    match field("database") {
        None => Some(Answer::Unsupported),
        Some(database) => number(database).map(|_| Answer::Is(progress)),
    }
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

    fn read(reply: &str) -> Option<Answer<TokenProgress>> {
        let (value, _) = parse(reply.as_bytes(), &ReplyLimits::default()).unwrap().unwrap();
        progress(&value)
    }

    fn check(reply: &str, (executed, failed, failures): Expected<'_>) {
        let expected = TokenProgress {
            executed,
            failed,
            failures: failures
                .iter()
                .map(|(number, error)| Remembered { request: *number, error: error.as_bytes().to_vec() })
                .collect(),
        };
        assert_eq!(read(reply), Some(Answer::Is(expected)), "{reply:?}");
    }

    #[test]
    fn progress_is_read_in_both_protocols() {
        let inside =
            "$8\r\nexecuted\r\n:7\r\n$6\r\nfailed\r\n:2\r\n$8\r\nfailures\r\n*1\r\n*2\r\n:3\r\n$5\r\nERR x\r\n";
        let database = "$8\r\ndatabase\r\n:1\r\n";
        check(&format!("%4\r\n{inside}{database}"), (7, 2, &[(2, "ERR x")]));
        check(&format!("*8\r\n{inside}{database}"), (7, 2, &[(2, "ERR x")]));
        check(&format!("%5\r\n+new\r\n+x\r\n{inside}{database}"), (7, 2, &[(2, "ERR x")]));
        assert_eq!(read("+OK\r\n"), None);
        assert_eq!(read("*2\r\n+executed\r\n:1\r\n"), None);
        assert_eq!(read(&format!("%4\r\n{}{database}", inside.replace(":3", ":0"))), None);
        assert_eq!(read(&format!("%4\r\n{inside}{}", database.replace(":1", "+x"))), None);
        // A server that doesn't select the database.
        assert_eq!(read(&format!("%3\r\n{inside}")), Some(Answer::Unsupported));
    }
}
