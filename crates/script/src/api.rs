//! The table `redis`, also called `server`, through which scripts call the server.
//!
//! Source: Redis's page "Redis Lua API reference". The error texts are Redis's.

use std::ffi::c_int;

use resp::num::FloatText;
use resp::reply::Proto;
use resp::request::ArgsBuffer;

use crate::from_reply;
use crate::host::{Access, LogLevel, Verdict};
use crate::native;
use crate::sha1::sha1_hex;
use crate::state::{CFunction, LuaState, LuaType, Raise};

/// Largest reply buffer that is kept; the memory of a larger one is freed.
const REPLY_KEPT_BYTES: usize = 64 * 1024;

/// Cost of hashing a byte relative to the cost of reading it.
const SHA1_TIMES: usize = 8;

/// The version of Redis that scripts see, as text and as a number.
#[derive(Clone, Copy, Debug)]
pub struct Version {
    /// "7.2.4".
    pub text: &'static str,
    /// The version in three bytes: 0x00070204.
    pub number: u32,
}

/// Creates the table, a global with two names.
pub(crate) fn open(state: &mut LuaState, version: Version) -> Result<(), Raise> {
    let functions: &[(&str, CFunction)] = &[
        ("call", native!(call)),
        ("pcall", native!(pcall)),
        ("error_reply", native!(error_reply)),
        ("status_reply", native!(status_reply)),
        ("sha1hex", native!(sha1hex)),
        ("log", native!(log)),
        ("setresp", native!(setresp)),
        ("set_repl", native!(set_repl)),
        ("replicate_commands", native!(replicate_commands)),
        ("acl_check_cmd", native!(acl_check_cmd)),
        ("breakpoint", native!(breakpoint)),
        ("debug", native!(debug)),
    ];
    state.push_library(functions)?;
    set_log_levels(state);
    set_repl_flags(state);
    set_version(state, version);
    state.push_copy(-1);
    state.set_global("server");
    state.set_global("redis");
    Ok(())
}

/// Sets numbers of the table on top of the stack.
fn set_numbers(state: &mut LuaState, numbers: &[(&str, u32)]) {
    for &(name, value) in numbers {
        state.push_number(f64::from(value));
        state.raw_set_named(-2, name);
    }
}

/// Sets the levels of `log` in the table on top of the stack.
pub(crate) fn set_log_levels(state: &mut LuaState) {
    let levels = [
        ("LOG_DEBUG", LogLevel::Debug as u32),
        ("LOG_VERBOSE", LogLevel::Verbose as u32),
        ("LOG_NOTICE", LogLevel::Notice as u32),
        ("LOG_WARNING", LogLevel::Warning as u32),
    ];
    set_numbers(state, &levels);
}

/// Sets the version in the table on top of the stack.
pub(crate) fn set_version(state: &mut LuaState, version: Version) {
    set_numbers(state, &[("REDIS_VERSION_NUM", version.number)]);
    state.push_short(version.text.as_bytes());
    state.raw_set_named(-2, "REDIS_VERSION");
}

/// Sets the flags of `set_repl` in the table on top of the stack.
fn set_repl_flags(state: &mut LuaState) {
    let flags = [
        ("REPL_NONE", 0),
        ("REPL_AOF", REPL_AOF),
        ("REPL_SLAVE", REPL_REPLICA),
        ("REPL_REPLICA", REPL_REPLICA),
        ("REPL_ALL", REPL_AOF | REPL_REPLICA),
    ];
    set_numbers(state, &flags);
}

/// Bits of `redis.set_repl`: replicate to the append-only file, replicate to replicas.
const REPL_AOF: u32 = 1;
const REPL_REPLICA: u32 = 2;

/// Raises an error with a table as its value, like the server's own errors.
pub(crate) fn raise(state: &mut LuaState, text: &[u8]) -> Raise {
    match from_reply::push_error(state, text) {
        Ok(()) | Err(Raise) => Raise,
    }
}

fn call(state: &mut LuaState) -> Result<c_int, Raise> {
    if command(state)? { Err(Raise) } else { Ok(1) }
}

fn pcall(state: &mut LuaState) -> Result<c_int, Raise> {
    command(state)?;
    Ok(1)
}

/// Runs the command in the arguments, and pushes its reply. Returns true if the reply is an error.
fn command(state: &mut LuaState) -> Result<bool, Raise> {
    let mut args = std::mem::take(&mut state.context().args);
    if let Err(text) = gather(state, &mut args) {
        state.context().args = args;
        raise(state, text);
        return Ok(true);
    }
    let context = state.context();
    let mut output = std::mem::take(&mut context.output);
    let proto = context.proto;
    let verdict = context.host().map_or(Verdict::End, |host| host.call(args.args(), proto, &mut output));
    state.context().args = args;
    if verdict == Verdict::End {
        state.context().ending = true;
        return Err(state.end());
    }
    let reply = output.joined();
    let is_error = reply.first() == Some(&b'-');
    // The arguments are not needed any more, so the whole stack is free for the reply.
    state.clear();
    let pushed = from_reply::push_whole_reply(state, reply).map(|()| is_error);
    output.clear(REPLY_KEPT_BYTES);
    state.context().output = output;
    pushed
}

/// Copies the arguments into the command's buffer; returns an error text if one is invalid.
fn gather(state: &mut LuaState, args: &mut ArgsBuffer) -> Result<(), &'static [u8]> {
    let count = state.top();
    args.clear();
    if count == 0 {
        return Err(b"ERR Please specify at least one argument for this redis lib call");
    }
    for i in 1..=count {
        let fits = match state.kind(i) {
            // SAFETY: the argument stays on the stack.
            LuaType::String => args.push(unsafe { state.argument(i) }),
            LuaType::Number => push_number(args, state.number(i).unwrap_or(0.0)),
            _ => return Err(b"ERR Lua redis lib command arguments must be strings or integers"),
        };
        if !fits {
            return Err(b"ERR Lua redis lib command arguments are too long");
        }
    }
    Ok(())
}

/// Appends a number in the format that commands get since Redis 7.2: the shortest digits that identify it, and no
/// exponent for an integer of 62 bits, so that commands can parse it as an integer.
fn push_number(args: &mut ArgsBuffer, number: f64) -> bool {
    match number {
        0.0 => args.push(b"0"),
        _ if number.is_nan() && number.is_sign_negative() => args.push(b"-nan"),
        _ => args.push(FloatText::new(number).as_bytes()),
    }
}

/// Pushes a table with the only string argument in one field; an error table for other arguments.
fn single_field(state: &mut LuaState, name: &str) -> Result<c_int, Raise> {
    if state.top() != 1 || state.kind(1) != LuaType::String {
        state.push_table(0, 1)?;
        state.push_short(b"ERR wrong number or type of arguments");
        state.raw_set_named(-2, "err");
        return Ok(1);
    }
    state.push_table(0, 1)?;
    state.push_copy(1);
    state.raw_set_named(-2, name);
    Ok(1)
}

/// Returns an error reply as a value. A text of one word has no error code, and gets one.
fn error_reply(state: &mut LuaState) -> Result<c_int, Raise> {
    if state.top() == 1 && state.kind(1) == LuaType::String {
        let text = state.bytes(1).unwrap_or_default();
        let text = text.strip_prefix(b"-").unwrap_or(text).trim_ascii_end();
        let code: &[u8] = if text.contains(&b' ') { b"" } else { b"ERR " };
        let text = [code, text].concat();
        state.push_bytes(&text)?;
        state.replace(1);
    }
    single_field(state, "err")
}

fn status_reply(state: &mut LuaState) -> Result<c_int, Raise> {
    single_field(state, "ok")
}

fn sha1hex(state: &mut LuaState) -> Result<c_int, Raise> {
    if state.top() != 1 {
        return Err(raise(state, b"ERR wrong number of arguments"));
    }
    let bytes: &[u8] = match state.kind(1) {
        // SAFETY: the argument stays on the stack.
        LuaType::String | LuaType::Number => unsafe { state.argument(1) },
        _ => b"",
    };
    state.poll_for(SHA1_TIMES * bytes.len())?;
    let digest = sha1_hex(bytes);
    state.push_short(&digest);
    Ok(1)
}

pub(crate) fn log(state: &mut LuaState) -> Result<c_int, Raise> {
    if state.top() < 2 {
        return Err(raise(state, b"ERR redis.log() requires two arguments or more."));
    }
    let Some(level) = state.number(1) else {
        return Err(raise(state, b"ERR First argument must be a number (log level)."));
    };
    let levels = [LogLevel::Debug, LogLevel::Verbose, LogLevel::Notice, LogLevel::Warning];
    let Some(&level) = (level >= 0.0).then(|| levels.get(level as usize)).flatten() else {
        return Err(raise(state, b"ERR Invalid debug level."));
    };
    let mut message = Vec::new();
    for i in 2..=state.top() {
        if !matches!(state.kind(i), LuaType::String | LuaType::Number) {
            continue;
        }
        if !message.is_empty() {
            message.push(b' ');
        }
        // SAFETY: the argument stays on the stack.
        message.extend_from_slice(unsafe { state.argument(i) });
    }
    state.poll_for(message.len())?;
    if let Some(host) = state.context().host() {
        host.log(level, &message);
    }
    Ok(0)
}

fn setresp(state: &mut LuaState) -> Result<c_int, Raise> {
    if state.top() != 1 {
        return Err(raise(state, b"ERR redis.setresp() requires one argument."));
    }
    let proto = match state.number(1).map(|n| n as i64) {
        Some(2) => Proto::Resp2,
        Some(3) => Proto::Resp3,
        _ => return Err(raise(state, b"ERR RESP version must be 2 or 3.")),
    };
    state.context().proto = proto;
    Ok(0)
}

/// Chooses the destinations to which the following commands are replicated. Flags that aren't numbers count as 0.
fn set_repl(state: &mut LuaState) -> Result<c_int, Raise> {
    if state.top() != 1 {
        return Err(raise(state, b"ERR redis.set_repl() requires one argument."));
    }
    let flags = state.number(1).unwrap_or(0.0) as i64;
    if flags & !i64::from(REPL_AOF | REPL_REPLICA) != 0 {
        let text = b"ERR Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.";
        return Err(raise(state, text));
    }
    let has = |flag: u32| flags & i64::from(flag) != 0;
    if let Some(host) = state.context().host() {
        host.replicate(has(REPL_AOF), has(REPL_REPLICA));
    }
    Ok(0)
}

/// Always true: the effects of scripts are replicated, never the scripts.
fn replicate_commands(state: &mut LuaState) -> Result<c_int, Raise> {
    state.push_boolean(true);
    Ok(1)
}

fn acl_check_cmd(state: &mut LuaState) -> Result<c_int, Raise> {
    let mut args = std::mem::take(&mut state.context().args);
    if let Err(text) = gather(state, &mut args) {
        state.context().args = args;
        return Err(raise(state, text));
    }
    let access = state.context().host().map_or(Access::Denied, |host| host.access(args.args()));
    let bytes = (0..args.args().len()).map(|i| args.args().get(i).len()).sum();
    state.context().args = args;
    state.poll_for(bytes)?;
    match access {
        Access::NoCommand => return Err(raise(state, b"ERR Invalid command passed to redis.acl_check_cmd()")),
        Access::WrongArity => return Err(raise(state, b"ERR Wrong number of args for redis.acl_check_cmd()")),
        Access::Allowed | Access::Denied => state.push_boolean(access == Access::Allowed),
    }
    Ok(1)
}

/// Returns false, because there is no debugger.
fn breakpoint(state: &mut LuaState) -> Result<c_int, Raise> {
    state.push_boolean(false);
    Ok(1)
}

/// Does nothing: there is no debugger to receive a script's messages.
fn debug(_: &mut LuaState) -> Result<c_int, Raise> {
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_become_arguments_with_the_fewest_digits() {
        let check = |number: f64, expected: &str| {
            let mut args = ArgsBuffer::default();
            assert!(push_number(&mut args, number));
            assert_eq!(String::from_utf8_lossy(args.args().get(0)), expected);
        };
        // These are the results of Redis 8.6 and Valkey 9.1.
        check(1.0, "1");
        check(0.0, "0");
        check(-0.0, "0");
        check(1.5, "1.5");
        check(0.1, "0.1");
        check(1.0 / 3.0, "0.3333333333333333");
        check(0.00001, "0.00001");
        check(1e-7, "1e-7");
        check(5e-324, "5e-324");
        check(100_000_000_000.0, "100000000000");
        check(1e17, "100000000000000000");
        check(-1e17, "-100000000000000000");
        check(1e18, "1000000000000000000");
        check(123_456_789_012_345_678.0, "123456789012345680");
        check(9.2e18, "9.2e+18");
        check(9_223_372_036_854_775_807.0, "9223372036854776000");
        check(1e19, "1e+19");
        check(12_345_678_901_234_567_890.0, "12345678901234567000");
        check(1e300, "1e+300");
        check(f64::INFINITY, "inf");
        check(-f64::INFINITY, "-inf");
        check(f64::NAN.copysign(1.0), "nan");
        check(f64::NAN.copysign(-1.0), "-nan");
    }
}
