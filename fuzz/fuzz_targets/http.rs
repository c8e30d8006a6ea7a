//! HTTP requests: for any method, path, query, headers and body, the router, the guard and the parsers of commands and
//! tokens never panic; a command has the words of its path; and every reply becomes JSON.
#![no_main]

use std::str::from_utf8;

use front::commands::{many, one};
use front::credentials::Identity;
use front::guard::{Traces, check};
use front::json::{self, Strings};
use front::metrics;
use front::router::{Route, Verb, route};
use libfuzzer_sys::fuzz_target;
use resp::parse::{ReplyLimits, parse};

/// Handles a request's target as hyper passes it.
fn go(line: &str) {
    let (method, target) = line.split_once(' ').unwrap_or(("GET", line));
    let Some(verb) = Verb::of(method) else { return };
    let (path, query) = target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
    match route(verb, path, query) {
        Ok(Route::Path { args, behind }) => {
            assert_eq!(args.len(), path.strip_prefix('/').unwrap_or(path).split('/').count());
            assert!(behind.len() <= 2 * query.unwrap_or_default().split('&').count());
        }
        Ok(_) => {}
        Err(text) => assert!(text.starts_with("ERR ")),
    }
    assert!(!query.unwrap_or_default().starts_with("_token") || route(verb, path, query).is_err() || !query.unwrap_or_default().starts_with("_token="));
}

/// Converts replies to JSON, which must be valid.
fn answer(bytes: &[u8]) {
    let limits = ReplyLimits { reply_bytes_max: 1 << 16, elements_max: 1 << 10, ..ReplyLimits::default() };
    let Ok(Some((value, _))) = parse(bytes, &limits) else { return };
    for strings in [Strings::Text, Strings::Base64] {
        let mut out = Vec::new();
        json::reply(&value, strings, &mut out);
        assert!(from_utf8(&out).is_ok());
    }
    let _ = metrics::text(&[value]);
}

fuzz_target!(|data: &[u8]| {
    let Some((&kind, rest)) = data.split_first() else { return };
    match kind % 6 {
        0 => from_utf8(rest).map_or((), go),
        1 => drop(one(rest)),
        2 => drop(many(rest)),
        3 => drop(Identity::of_header(Some(rest))),
        4 => {
            let mut lines = rest.split(|&byte| byte == b'\n').map(|line| from_utf8(line).ok());
            let mut next = || lines.next().flatten();
            let _ = check(Traces { host: next(), origin: next(), fetch_site: next() });
        }
        _ => answer(rest),
    }
});
