//! The commands of the PIPELINE family for `--resume`. The server counts a connection's executed requests under a
//! token.
//!
//! This module knows the commands and their replies, as described in Penstock's docs/pipelines.md. Decisions are made
//! elsewhere.

use client::{Command, Connection, Error, Value};

use crate::flight::Remembered;

/// Progress of a load, as reported by the server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenProgress {
    /// Number of executed requests.
    pub executed: u64,
    /// Number of failed requests.
    pub failed: u64,
    /// The first of the failures.
    pub failures: Vec<Remembered>,
}

/// Result of a command about a token.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer<T> {
    /// The command was answered.
    Is(T),
    /// The server has no such token.
    NoToken,
    /// The server doesn't know the command, or its reply lacks a field.
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

/// Resumes the token. If it doesn't exist and `new_ttl_s` is given, the token is created with this lifetime.
///
/// # Errors
/// Returns an error if the connection broke or the server refuses.
pub fn enter(connection: &mut Connection, token: &str, new_ttl_s: Option<u64>) -> Result<Answer<TokenProgress>, Error> {
    let answer = resume(connection, token)?;
    let (Answer::NoToken, Some(ttl_s)) = (&answer, new_ttl_s) else { return Ok(answer) };
    let start = Command::new("PIPELINE START").arg(token).arg("TTL").arg(ttl_s);
    ask(connection, &start, |_| Some(Answer::Is(())))?;
    // A server with an incomplete reply must be detected before anything is sent.
    resume(connection, token)
}

/// Takes the token over from the broken connection.
fn resume(connection: &mut Connection, token: &str) -> Result<Answer<TokenProgress>, Error> {
    ask(connection, &Command::new("PIPELINE RESUME").arg(token), progress)
}

/// Removes the token.
pub fn end(connection: &mut Connection, token: &str) -> Result<Answer<()>, Error> {
    ask(connection, &Command::new("PIPELINE END").arg(token), |_| Some(Answer::Is(())))
}

/// Parses the map of RESP3 or the flat array of RESP2. Unknown fields of later servers are ignored. Earlier servers
/// return no database; they also wouldn't select the load's database.
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

/// Parses a position, from 1, and the error.
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
