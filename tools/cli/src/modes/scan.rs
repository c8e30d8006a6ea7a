//! `--scan`: lists all keys in the server's order.

use super::pause;
use crate::failure::Failure;
use crate::format::ReplyFormat;
use crate::quote::push_quoted;
use crate::session::CliSession;
use client::Value;

/// Prints each key that matches the pattern on a line.
///
/// # Errors
/// Returns [`Failure`].
pub fn run(session: &mut CliSession<'_>) -> Result<(), Failure> {
    session.connect()?;
    let quoted = session.options.style.form == ReplyFormat::Standard;
    let mut scan = Scan::default();
    while let Some(keys) = scan.next(session)? {
        for key in keys {
            session.output.print_with(|out| {
                if quoted {
                    push_quoted(&key, out);
                } else {
                    out.extend_from_slice(&key);
                }
                out.push(b'\n');
            })?;
        }
        if let Some(interval) = session.options.interval {
            pause(session, interval)?;
        }
    }
    Ok(())
}

/// An iteration over all keys.
#[derive(Default)]
pub struct Scan {
    /// Cursor for the next call; `None` before the first, and `0` at the end.
    cursor: Option<Vec<u8>>,
}

impl Scan {
    /// Returns the next keys, possibly an empty list, or `None` at the end.
    ///
    /// # Errors
    /// Returns [`Failure`], also if the reply isn't a list of keys.
    pub fn next(&mut self, session: &mut CliSession<'_>) -> Result<Option<Vec<Vec<u8>>>, Failure> {
        let cursor = match &self.cursor {
            None => b"0".to_vec(),
            Some(cursor) if cursor == b"0" => return Ok(None),
            Some(cursor) => cursor.clone(),
        };
        let mut request = vec![b"SCAN".to_vec(), cursor];
        if let Some(pattern) = &session.options.pattern {
            request.extend([b"MATCH".to_vec(), pattern.clone()]);
        }
        let reply = session.exchange(&request)?;
        if let Some(text) = reply.error() {
            return Err(Failure::Other(format!("SCAN error: {}", String::from_utf8_lossy(text))));
        }
        let Value::Array(parts) = reply else {
            return Err(Failure::Other("Non ARRAY response from SCAN!".to_owned()));
        };
        let [cursor, Value::Array(keys)] = parts.as_slice() else {
            return Err(Failure::Other("Invalid element count from SCAN!".to_owned()));
        };
        self.cursor = Some(cursor.bytes().unwrap_or(b"0").to_vec());
        Ok(Some(keys.iter().filter_map(Value::bytes).map(<[u8]>::to_vec).collect()))
    }
}
