//! `string`: replaces the functions of Lua's library that could run without end, or that ignore the memory limit.
//!
//! Matching (`find`, `match`, `gmatch`, `gsub`) polls while it searches. `rep` checks the size of its result first.

use std::ffi::c_int;
use std::ops::{Range, RangeInclusive};

use crate::libs::pattern::{Capture, Matcher, PatternError};
use crate::libs::support::{check_int, check_long_or, ensure_for, get_with_metamethods, to_long};
use crate::native;
use crate::state::{CFunction, LuaState, LuaType, Raise};

/// Bytes with a meaning in patterns.
const SPECIALS: &[u8] = b"^$*+?.([%-";

/// Replaces functions of the global `string`.
pub fn open(state: &mut LuaState) -> Result<(), Raise> {
    let functions: [(&str, CFunction); 6] = [
        ("find", native!(find)),
        ("match", native!(match_once)),
        ("gmatch", native!(gmatch)),
        ("gfind", native!(gmatch)),
        ("gsub", native!(gsub)),
        ("rep", native!(rep)),
    ];
    state.push_globals();
    state.raw_get_named(-1, "string");
    for (name, entry) in functions {
        state.push_native(entry);
        state.raw_set_named(-2, name);
    }
    state.pop(2);
    Ok(())
}

/// Returns the bytes of a string argument, which stays in its place while the native runs.
fn argument<'a>(state: &mut LuaState, n: c_int) -> Result<&'a [u8], Raise> {
    state.check_bytes(n)?;
    // SAFETY: natives of this module leave their arguments in their places.
    Ok(unsafe { state.argument(n) })
}

/// Pushes the error of a failed match.
fn raise(state: &mut LuaState, error: PatternError<Raise>) -> Raise {
    match error {
        PatternError::Text(text) => state.error(text),
        PatternError::Stopped(raise) => raise,
    }
}

fn find(state: &mut LuaState) -> Result<c_int, Raise> {
    search(state, true)
}

fn match_once(state: &mut LuaState) -> Result<c_int, Raise> {
    search(state, false)
}

fn search(state: &mut LuaState, find: bool) -> Result<c_int, Raise> {
    let (subject, pattern) = (argument(state, 1)?, argument(state, 2)?);
    let start = check_long_or(state, 3, 1)?;
    let start = if start < 0 { start.saturating_add(subject.len() as i64 + 1) } else { start };
    let start = usize::try_from(start.saturating_sub(1)).unwrap_or(0).min(subject.len());
    state.poll_for(pattern.len())?;
    if find && (state.boolean(4) || is_plain(pattern)) {
        let found = memchr::memmem::find(&subject[start..], pattern);
        state.poll_for(found.unwrap_or(subject.len() - start))?;
        return Ok(push_plain(state, found, start, pattern.len()));
    }
    let (anchored, body) = anchor(pattern);
    let mut matcher = Matcher::new(subject, body);
    let Some((from, to)) = first_match(state, &mut matcher, start..=if anchored { start } else { subject.len() })?
    else {
        state.push_nil();
        return Ok(1);
    };
    if !find {
        return push_captures(state, &matcher, subject, from..to);
    }
    state.push_number((from + 1) as f64);
    state.push_number(to as f64);
    if matcher.count() == 0 {
        return Ok(2);
    }
    push_captures(state, &matcher, subject, from..to).map(|pushed| 2 + pushed)
}

fn anchor(pattern: &[u8]) -> (bool, &[u8]) {
    match pattern {
        [b'^', rest @ ..] => (true, rest),
        _ => (false, pattern),
    }
}

/// Returns true if the pattern is a plain text. Bytes behind a zero byte don't count, as in C.
fn is_plain(pattern: &[u8]) -> bool {
    !pattern.iter().take_while(|&&byte| byte != 0).any(|byte| SPECIALS.contains(byte))
}

fn push_plain(state: &mut LuaState, found: Option<usize>, start: usize, len: usize) -> c_int {
    match found {
        None => {
            state.push_nil();
            1
        }
        Some(at) => {
            state.push_number((start + at + 1) as f64);
            state.push_number((start + at + len) as f64);
            2
        }
    }
}

/// The beginning and the end of a match.
type Match = Option<(usize, usize)>;

/// Pushes all captures of a match, or the whole match if the pattern has none.
fn push_captures(
    state: &mut LuaState,
    matcher: &Matcher<'_>,
    subject: &[u8],
    range: Range<usize>,
) -> Result<c_int, Raise> {
    let count = matcher.count().max(1);
    ensure_for(state, count as c_int, "too many captures")?;
    for index in 0..count {
        let capture = matcher.capture(index, range.start, range.end).map_err(|text| state.error(text))?;
        push_capture(state, subject, capture)?;
    }
    Ok(count as c_int)
}

fn push_capture(state: &mut LuaState, subject: &[u8], capture: Capture) -> Result<(), Raise> {
    match capture {
        Capture::Open(at) | Capture::Position(at) => {
            state.push_number((at + 1) as f64);
            Ok(())
        }
        Capture::Range(start, end) => state.push_bytes(&subject[start..end]),
    }
}

/// Returns the first match from `start`.
fn first_match(state: &mut LuaState, matcher: &mut Matcher<'_>, starts: RangeInclusive<usize>) -> Result<Match, Raise> {
    for start in starts {
        if let Some(end) = matcher.match_at(start, || state.poll()).map_err(|trouble| raise(state, trouble))? {
            return Ok(Some((start, end)));
        }
    }
    Ok(None)
}

fn gmatch(state: &mut LuaState) -> Result<c_int, Raise> {
    state.check_bytes(1)?;
    state.check_bytes(2)?;
    state.set_top(2);
    state.push_number(0.0);
    state.push_closure(native!(next_match), 3);
    Ok(1)
}

/// The iterator of `gmatch`. Its upvalues: the subject, the pattern, the next start.
fn next_match(state: &mut LuaState) -> Result<c_int, Raise> {
    state.set_top(0);
    (1..=3).for_each(|n| state.push_upvalue(n));
    // SAFETY: the strings stay on the stack.
    let (subject, pattern) = unsafe { (state.argument(1), state.argument(2)) };
    let start = to_long(state.number(3).unwrap_or_default()) as usize;
    if start > subject.len() {
        return Ok(0);
    }
    let mut matcher = Matcher::new(subject, pattern);
    let Some((from, to)) = first_match(state, &mut matcher, start..=subject.len())? else {
        return Ok(0);
    };
    // After an empty match the search continues one byte further.
    set_next_start(state, to + usize::from(to == from));
    push_captures(state, &matcher, subject, from..to)
}

fn set_next_start(state: &mut LuaState, start: usize) {
    state.push_number(start as f64);
    state.set_upvalue(3);
}

fn gsub(state: &mut LuaState) -> Result<c_int, Raise> {
    let (subject, pattern) = (argument(state, 1)?, argument(state, 2)?);
    let kind = state.kind(3);
    let most = match state.kind(4) {
        LuaType::None | LuaType::Nil => (subject.len() + 1) as c_int,
        _ => check_int(state, 4)?,
    };
    if !matches!(kind, LuaType::Number | LuaType::String | LuaType::Function | LuaType::Table) {
        return Err(state.argument_error(3, "string/function/table expected"));
    }
    // The replacement must be at index 3, so later arguments are removed.
    state.set_top(3);
    let (anchored, body) = anchor(pattern);
    let mut out = state.take_scratch();
    let replaced =
        Replacing { subject, matcher: Matcher::new(subject, body), out: &mut out }.run(state, anchored, most);
    let pushed = replaced.and_then(|count| {
        state.push_bytes(&out)?;
        state.push_number(f64::from(count));
        Ok(2)
    });
    state.return_scratch(out);
    pushed
}

/// The state of a replacement.
struct Replacing<'r> {
    subject: &'r [u8],
    matcher: Matcher<'r>,
    out: &'r mut Vec<u8>,
}

impl Replacing<'_> {
    /// Replaces at most `most` matches, and returns their number.
    fn run(&mut self, state: &mut LuaState, anchored: bool, most: c_int) -> Result<c_int, Raise> {
        let (mut at, mut count) = (0, 0);
        while count < most {
            let matched = self.matcher.match_at(at, || state.poll()).map_err(|trouble| raise(state, trouble))?;
            if let Some(end) = matched {
                count += 1;
                self.add_replacement(state, at..end)?;
            }
            match (matched, self.subject.get(at)) {
                (Some(end), _) if end > at => at = end,
                (_, Some(&byte)) => {
                    self.out.push(byte);
                    at += 1;
                }
                (_, None) => break,
            }
            if anchored {
                break;
            }
        }
        self.out.extend_from_slice(&self.subject[at..]);
        Ok(count)
    }

    /// Appends the replacement of a match: a string with captures, a function's result or a table's field. False and
    /// nil keep the match.
    fn add_replacement(&mut self, state: &mut LuaState, range: Range<usize>) -> Result<(), Raise> {
        state.room_for(self.out.len())?;
        match state.kind(3) {
            LuaType::Function => {
                state.push_copy(3);
                let count = push_captures(state, &self.matcher, self.subject, range.clone())?;
                state.call(count, 1)?;
            }
            LuaType::Table => {
                self.push_capture(state, 0, &range)?;
                get_with_metamethods(state, 3)?;
            }
            // SAFETY: the replacement stays in its place.
            _ => return self.add_template(state, unsafe { state.argument(3) }, range),
        }
        match state.kind(-1) {
            // SAFETY: the result is used before it is popped.
            LuaType::String | LuaType::Number => self.out.extend_from_slice(unsafe { state.argument(-1) }),
            _ if !state.boolean(-1) => self.out.extend_from_slice(&self.subject[range]),
            kind => return Err(state.error(format!("invalid replacement value (a {})", kind.name()))),
        }
        state.pop(1);
        Ok(())
    }

    fn push_capture(&self, state: &mut LuaState, index: usize, range: &Range<usize>) -> Result<(), Raise> {
        let capture = self.matcher.capture(index, range.start, range.end).map_err(|text| state.error(text))?;
        push_capture(state, self.subject, capture)
    }

    /// Appends a replacement with `%0` to `%9` filled in. Any other byte after "%" stands for itself; at the end a zero
    /// byte does.
    fn add_template(&mut self, state: &mut LuaState, template: &[u8], range: Range<usize>) -> Result<(), Raise> {
        let mut rest = template;
        while let Some(at) = memchr::memchr(b'%', rest) {
            self.out.extend_from_slice(&rest[..at]);
            let byte = rest.get(at + 1).copied().unwrap_or(0);
            rest = rest.get(at + 2..).unwrap_or_default();
            match byte {
                b'0' => self.out.extend_from_slice(&self.subject[range.clone()]),
                b'1'..=b'9' => {
                    self.push_capture(state, usize::from(byte - b'1'), &range)?;
                    // SAFETY: the capture is used before it is popped.
                    self.out.extend_from_slice(unsafe { state.argument(-1) });
                    state.pop(1);
                }
                byte => self.out.push(byte),
            }
        }
        self.out.extend_from_slice(rest);
        Ok(())
    }
}

fn rep(state: &mut LuaState) -> Result<c_int, Raise> {
    let text = argument(state, 1)?;
    let count = usize::try_from(check_int(state, 2)?).unwrap_or(0);
    let len = text.len().saturating_mul(count);
    state.room_for(len)?;
    let mut out = state.take_scratch();
    out.reserve(len);
    // Doubles the output, so that even the shortest text is repeated at the speed of copying.
    if len > 0 {
        out.extend_from_slice(text);
    }
    while out.len() < len {
        let more = out.len().min(len - out.len());
        out.extend_from_within(..more);
    }
    let pushed = state.push_bytes(&out);
    state.return_scratch(out);
    pushed.map(|()| 1)
}
