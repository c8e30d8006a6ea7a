//! Commands over HTTP, compatible with Upstash's REST API; the console uses the same interface.
//!
//! Source: Upstash's page "REST API", and the requests and replies of its clients.

use hyper::StatusCode;
use resp::parse::Value;

use crate::commands::Words;
use crate::failure::Failure;
use crate::json::{self, Strings};
use crate::respond::{self, Answered};
use crate::{Nature, Upstream};

/// Encoding of replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RestEncoding {
    /// As JSON.
    Json(Strings),
    /// In the Redis protocol.
    Resp2,
}

impl RestEncoding {
    /// Parses the values of the headers `Upstash-Encoding` and `Upstash-Response-Format`.
    pub(crate) fn of(encoding: Option<&[u8]>, format: Option<&[u8]>) -> Result<RestEncoding, Failure> {
        let is = |value: &[u8], word: &str| value.eq_ignore_ascii_case(word.as_bytes());
        let is_base64 = encoding.is_some_and(|value| is(value, "base64"));
        match format {
            Some(value) if is(value, "resp2") && is_base64 => Err(Failure::bad("ERR resp2 is not encoded in base64")),
            Some(value) if is(value, "resp2") => Ok(RestEncoding::Resp2),
            Some(value) if !is(value, "json") => Err(Failure::bad("ERR Upstash-Response-Format is json or resp2")),
            _ if is_base64 => Ok(RestEncoding::Json(Strings::Base64)),
            _ => Ok(RestEncoding::Json(Strings::Text)),
        }
    }

    /// Encoding of strings in JSON. A transaction's reply is always JSON.
    pub(crate) fn strings(self) -> Result<Strings, Failure> {
        match self {
            RestEncoding::Json(strings) => Ok(strings),
            RestEncoding::Resp2 => Err(Failure::bad("ERR the reply of a transaction is available in JSON only")),
        }
    }
}

/// Commands that a request may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Permit {
    /// Any command that can run on a shared connection.
    Any,
    /// Only those of them that read.
    Reads {
        /// Error text for other commands.
        why: &'static str,
    },
}

/// Checks that a command may run.
pub(crate) fn check(upstream: &dyn Upstream, command: &Words, permit: Permit) -> Result<(), Failure> {
    let Nature { holds_connection, only_reads } = upstream.nature(command);
    if holds_connection {
        let name = String::from_utf8_lossy(command.first().map_or(&[][..], Vec::as_slice)).to_ascii_uppercase();
        let text = format!(
            "ERR {name} blocks or changes its connection, but HTTP requests share connections: use a client of the Redis protocol"
        );
        return Err(Failure::bad(text));
    }
    match permit {
        Permit::Reads { why } if !only_reads => Err(Failure::bad(why)),
        _ => Ok(()),
    }
}

/// Wraps the commands of a transaction in MULTI and EXEC.
pub(crate) fn transaction(commands: Vec<Words>) -> Vec<Words> {
    let mut all = vec![vec![b"MULTI".to_vec()]];
    all.extend(commands);
    all.push(vec![b"EXEC".to_vec()]);
    all
}

/// Encodes the reply of one command; an error sets the HTTP status.
pub(crate) fn answer_one(value: &Value, form: RestEncoding) -> Answered {
    let status = value.error().map_or(StatusCode::OK, status_of);
    match form {
        RestEncoding::Resp2 => in_resp2(status, std::slice::from_ref(value)),
        RestEncoding::Json(strings) => {
            let mut body = Vec::new();
            json::reply(value, strings, &mut body);
            respond::json(status, body)
        }
    }
}

/// Encodes the replies of several commands; an error takes its command's position.
pub(crate) fn answer_many(values: &[Value], form: RestEncoding) -> Answered {
    match form {
        RestEncoding::Resp2 => in_resp2(StatusCode::OK, values),
        RestEncoding::Json(strings) => {
            let mut body = Vec::new();
            json::replies(values, strings, &mut body);
            respond::json(StatusCode::OK, body)
        }
    }
}

/// Encodes the reply of a transaction, given the replies to all commands of [`transaction`].
pub(crate) fn answer_transaction(values: &[Value], strings: Strings) -> Answered {
    match values.last() {
        Some(Value::Array(values)) => answer_many(values, RestEncoding::Json(strings)),
        last => {
            let first = values.iter().find_map(Value::error).or(last.and_then(Value::error));
            let text = String::from_utf8_lossy(first.unwrap_or(b"the server didn't run it"));
            let text = format!("EXECABORT Transaction discarded because of: {text}");
            let status = first.map_or(StatusCode::BAD_REQUEST, status_of);
            respond::failure(&Failure::new(status, text))
        }
    }
}

fn in_resp2(status: StatusCode, values: &[Value]) -> Answered {
    let mut body = Vec::new();
    values.iter().for_each(|value| value.encode(&mut body));
    respond::with(status, "application/octet-stream", respond::NOTHING, body)
}

/// The HTTP status for an error reply.
fn status_of(error: &[u8]) -> StatusCode {
    match error.split(|&byte| byte == b' ').next() {
        Some(b"NOAUTH" | b"WRONGPASS") => StatusCode::UNAUTHORIZED,
        _ => StatusCode::BAD_REQUEST,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_select_the_encoding() {
        let check = |encoding: Option<&str>, format: Option<&str>, expected: Option<RestEncoding>| {
            assert_eq!(RestEncoding::of(encoding.map(str::as_bytes), format.map(str::as_bytes)).ok(), expected);
        };
        check(None, None, Some(RestEncoding::Json(Strings::Text)));
        check(Some("base64"), Some("json"), Some(RestEncoding::Json(Strings::Base64)));
        check(None, Some("resp2"), Some(RestEncoding::Resp2));
        check(Some("base64"), Some("resp2"), None);
        check(None, Some("xml"), None);
        assert!(RestEncoding::Resp2.strings().is_err());
    }

    #[test]
    fn errors_have_a_status() {
        assert_eq!(status_of(b"NOAUTH Authentication required."), StatusCode::UNAUTHORIZED);
        assert_eq!(status_of(b"ERR syntax error"), StatusCode::BAD_REQUEST);
        assert_eq!(answer_one(&Value::Error(b"ERR x".to_vec()), RestEncoding::Resp2).status(), StatusCode::BAD_REQUEST);
        assert_eq!(answer_one(&Value::Int(1), RestEncoding::Resp2).status(), StatusCode::OK);
    }

    #[test]
    fn a_discarded_transaction_is_one_error() {
        let values =
            [Value::Simple(b"OK".to_vec()), Value::Error(b"ERR x".to_vec()), Value::Error(b"EXECABORT y".to_vec())];
        assert_eq!(answer_transaction(&values, Strings::Text).status(), StatusCode::BAD_REQUEST);
        let values =
            [Value::Simple(b"OK".to_vec()), Value::Simple(b"QUEUED".to_vec()), Value::Array(vec![Value::Int(1)])];
        assert_eq!(answer_transaction(&values, Strings::Text).status(), StatusCode::OK);
    }
}
