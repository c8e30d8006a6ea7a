//! Finds the commands of a file that answered an error when they were replayed.

use resp::reply::Output;
use resp::request::{Batch, Framer, Input, Limits};
use resp::skim::Skimmer;

use crate::registry::table;

/// The start of a transaction in a file.
const MULTI: &[u8] = b"*1\r\n$5\r\nMULTI\r\n";

/// A command that answered an error.
#[derive(Debug, PartialEq, Eq)]
pub struct FailedCommand {
    /// The offset of the command within the bytes that were replayed together.
    pub before: usize,
    /// The command's name, in lower case.
    pub name: String,
    /// The error's text, without the leading minus sign.
    pub error: String,
    /// True if the command exists and accepts this number of arguments. False means that another kind of server wrote
    /// the file.
    pub is_known: bool,
}

/// An error among the replies: the request's index, the index within the reply if the reply is an array, and the
/// error's text.
struct ErrorReply {
    request: usize,
    element: Option<usize>,
    text: String,
}

/// Returns the commands that answered an error. The first reply in `replies` belongs to the command at offset `from` of
/// `bytes`.
pub(super) fn failures(bytes: &[u8], from: usize, replies: &Output) -> Vec<FailedCommand> {
    let errors = error_replies(replies);
    let Some(last) = errors.last() else { return Vec::new() };
    let starts = starts(bytes, from, last.request);
    let failed = |error: ErrorReply| {
        let request = queued(bytes, &starts, &error).unwrap_or(error.request);
        let before = *starts.get(request)?;
        let (name, is_known) = name_of(bytes, before)?;
        Some(FailedCommand { before, name, error: error.text, is_known })
    };
    errors.into_iter().filter_map(failed).collect()
}

fn error_replies(replies: &Output) -> Vec<ErrorReply> {
    let (mut skimmer, mut errors) = (Skimmer::new(), Vec::new());
    let as_index = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    for slice in replies.slices() {
        let skimmed = skimmer.feed(slice, |error| {
            errors.push(ErrorReply {
                request: as_index(error.reply),
                element: error.element.map(as_index),
                text: String::from_utf8_lossy(error.text).into_owned(),
            });
        });
        // The engine's own replies are well formed.
        if skimmed.is_err() {
            break;
        }
    }
    errors
}

/// Returns the offsets of the requests up to number `last`.
fn starts(bytes: &[u8], from: usize, last: usize) -> Vec<usize> {
    let (mut starts, mut at) = (Vec::new(), from);
    while starts.len() <= last && at < bytes.len() {
        starts.push(at);
        let (next, _) = frame_one(bytes, at);
        if next == at {
            break;
        }
        at = next;
    }
    starts
}

fn frame_one(bytes: &[u8], at: usize) -> (usize, Batch) {
    let mut batch = Batch::default();
    let limits = Limits { bulk_bytes_max: i64::MAX, ..Limits::default() };
    let (next, _) = Framer::default().frame(Input::from(bytes), at, &limits, 1, &mut batch);
    (next, batch)
}

/// Returns the index of the queued command behind an error in the reply of EXEC, or `None` if the transaction began
/// before these requests.
fn queued(bytes: &[u8], starts: &[usize], error: &ErrorReply) -> Option<usize> {
    let element = error.element?;
    let begins = |&start: &usize| bytes[start..].get(..MULTI.len()).is_some_and(|it| it.eq_ignore_ascii_case(MULTI));
    let multi = starts.get(..error.request)?.iter().rposition(begins)?;
    Some(multi + 1 + element).filter(|&queued| queued < error.request)
}

/// Returns the name of the command at this offset, and true if the command exists and accepts its number of arguments.
fn name_of(bytes: &[u8], at: usize) -> Option<(String, bool)> {
    let (_, batch) = frame_one(bytes, at);
    let args = batch.args(batch.requests().first()?, Input::from(bytes));
    let is_known = table().find(args.get(0)).is_some_and(|command| command.info.accepts(args.len()));
    Some((String::from_utf8_lossy(args.get(0)).to_lowercase(), is_known))
}
