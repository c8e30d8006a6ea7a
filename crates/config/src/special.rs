//! The directives with a syntax of their own: `save`, `client-output-buffer-limit`, `notify-keyspace-events`, `dir`,
//! and lists of words.

use core::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;

use resp::num::parse_bytes;

use super::cell::{ClientClass, OutputLimit, Value};
use super::kind::{WRONG_ARITY, canonical_int, not_one_of, with_unit};

/// A snapshot is due once `changes` writes have happened and `seconds` have passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SavePoint {
    /// Seconds since the last snapshot, at least 1.
    pub seconds: i64,
    /// Writes since the last snapshot.
    pub changes: i64,
}

/// Returns the save points in the normalized text of `save`, for example `3600 1 300 100`.
pub fn save_points(text: &str) -> Vec<SavePoint> {
    let numbers: Vec<i64> = text.split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect();
    numbers.chunks_exact(2).map(|pair| SavePoint { seconds: pair[0], changes: pair[1] }).collect()
}

/// Checks `save`'s arguments, and returns their normalized text. A single empty argument means none.
pub(super) fn parse_save(args: &[&str]) -> Result<String, String> {
    let args = if args == [""] { &[] } else { args };
    let valid = args.len().is_multiple_of(2)
        && args.chunks_exact(2).all(|pair| {
            let seconds = canonical_int(pair[0]).is_some_and(|seconds| seconds >= 1);
            seconds && canonical_int(pair[1]).is_some_and(|changes| (0..=i64::from(i32::MAX)).contains(&changes))
        });
    if !valid {
        return Err("Invalid save parameters".into());
    }
    Ok(args.join(" "))
}

/// Returns one line per save point, or the line that disables snapshots.
pub(super) fn save_lines(text: &str) -> Vec<String> {
    let points = save_points(text);
    if points.is_empty() {
        return vec!["save \"\"".into()];
    }
    points.iter().map(|point| format!("save {} {}", point.seconds, point.changes)).collect()
}

const CLASSES: [ClientClass; 3] = [ClientClass::Normal, ClientClass::Replica, ClientClass::PubSub];

fn class_named(name: &str) -> Option<ClientClass> {
    match name.to_ascii_lowercase().as_str() {
        "normal" => Some(ClientClass::Normal),
        "replica" | "slave" => Some(ClientClass::Replica),
        "pubsub" => Some(ClientClass::PubSub),
        _ => None,
    }
}

/// Parses groups of class, hard limit, soft limit and seconds. Other classes keep their limits in `before`.
pub(super) fn parse_output_limits(args: &[&str], before: &Value) -> Result<Value, String> {
    let mut limits = match before {
        Value::Limits(limits) => *limits,
        _ => Default::default(),
    };
    if !args.len().is_multiple_of(4) {
        return Err("Wrong number of arguments in buffer limit configuration.".into());
    }
    for group in args.chunks_exact(4) {
        let class = class_named(group[0]).ok_or("Invalid client class specified in buffer limit configuration.")?;
        limits[class as usize] = parse_output_limit(&group[1..])
            .ok_or("Error in hard, soft or soft_seconds setting in buffer limit configuration.")?;
    }
    Ok(Value::Limits(limits))
}

fn parse_output_limit(args: &[&str]) -> Option<OutputLimit> {
    let [hard, soft, seconds] = args else { return None };
    let soft_seconds = u64::try_from(canonical_int(seconds)?).ok()?;
    Some(OutputLimit { hard_bytes: parse_bytes(hard)?, soft_bytes: parse_bytes(soft)?, soft_seconds })
}

/// Formats all three classes in one line. Redis still calls the second one `slave` here, and tools expect it.
pub(super) fn show_output_limits(limits: &[OutputLimit; 3]) -> String {
    let shown = ["normal", "slave", "pubsub"]
        .iter()
        .zip(limits)
        .map(|(class, limit)| format!("{class} {} {} {}", limit.hard_bytes, limit.soft_bytes, limit.soft_seconds));
    shown.collect::<Vec<_>>().join(" ")
}

pub(super) fn output_limit_lines(limits: &[OutputLimit; 3]) -> Vec<String> {
    CLASSES.iter().zip(limits).map(|(class, limit)| output_limit_line(*class, limit)).collect()
}

fn output_limit_line(class: ClientClass, limit: &OutputLimit) -> String {
    let class = ["normal", "replica", "pubsub"][class as usize];
    let (hard, soft) = (with_unit(limit.hard_bytes.into()), with_unit(limit.soft_bytes.into()));
    format!("client-output-buffer-limit {class} {hard} {soft} {}", limit.soft_seconds)
}

/// The bits of `notify-keyspace-events`: classes of events and kinds of channels.
pub mod keyspace_events {
    /// `K`: publish to `__keyspace@<db>__:<key>`.
    pub const KEYSPACE: u32 = 1;
    /// `E`: publish to `__keyevent@<db>__:<event>`.
    pub const KEYEVENT: u32 = 1 << 1;
    /// `g`: commands on keys of any type (DEL, EXPIRE, RENAME, ...).
    pub const GENERIC: u32 = 1 << 2;
    /// `$`: string commands.
    pub const STRING: u32 = 1 << 3;
    /// `l`: list commands.
    pub const LIST: u32 = 1 << 4;
    /// `s`: set commands.
    pub const SET: u32 = 1 << 5;
    /// `h`: hash commands.
    pub const HASH: u32 = 1 << 6;
    /// `z`: sorted set commands.
    pub const ZSET: u32 = 1 << 7;
    /// `x`: a key expired.
    pub const EXPIRED: u32 = 1 << 8;
    /// `e`: a key was evicted because of `maxmemory`.
    pub const EVICTED: u32 = 1 << 9;
    /// `t`: stream commands.
    pub const STREAM: u32 = 1 << 10;
    /// `m`: a key was accessed and doesn't exist.
    pub const KEY_MISS: u32 = 1 << 11;
    /// `d`: module events.
    pub const MODULE: u32 = 1 << 12;
    /// `n`: a new key was created.
    pub const NEW: u32 = 1 << 13;
    /// `A`: all classes except `m` and `n`.
    pub const ALL: u32 = GENERIC | STRING | LIST | SET | HASH | ZSET | EXPIRED | EVICTED | STREAM | MODULE;
}

use keyspace_events as events;

/// The classes' letters in Redis's display order. The other letters follow them, or follow `A`.
const EVENT_CLASSES: [(char, u32); 11] = [
    ('g', events::GENERIC),
    ('$', events::STRING),
    ('l', events::LIST),
    ('s', events::SET),
    ('h', events::HASH),
    ('z', events::ZSET),
    ('x', events::EXPIRED),
    ('e', events::EVICTED),
    ('t', events::STREAM),
    ('d', events::MODULE),
    // Not part of `A`, but shown among the classes, only without `A`.
    ('n', events::NEW),
];
const EVENT_CHANNELS: [(char, u32); 3] = [('K', events::KEYSPACE), ('E', events::KEYEVENT), ('m', events::KEY_MISS)];

pub(super) fn parse_keyspace_events(arg: &str) -> Result<u32, String> {
    let bit = |letter: char| match letter {
        'A' => Some(events::ALL),
        _ => EVENT_CLASSES.iter().chain(&EVENT_CHANNELS).find(|(known, _)| *known == letter).map(|(_, bit)| *bit),
    };
    arg.chars()
        .try_fold(0, |bits, letter| Some(bits | bit(letter)?))
        .ok_or_else(|| "Invalid event class character. Use 'Ag$lshzxeKEtmdn'.".into())
}

pub(super) fn show_keyspace_events(bits: u32) -> String {
    let letters = |table: &[(char, u32)]| -> String {
        table.iter().filter(|(_, bit)| bits & bit != 0).map(|(letter, _)| *letter).collect()
    };
    let classes = if bits & events::ALL == events::ALL { "A".into() } else { letters(&EVENT_CLASSES) };
    classes + &letters(&EVENT_CHANNELS)
}

/// Returns the absolute path of directory `arg`, which is relative to `before`, or the system's error text.
pub(super) fn resolve_directory(arg: &str, before: &Value) -> Result<String, String> {
    let path = Path::new(&*before.text()).join(arg);
    let found = path.canonicalize().and_then(|path| match path.is_dir() {
        true => Ok(path),
        false => Err(std::io::ErrorKind::NotADirectory.into()),
    });
    match found {
        Ok(path) => path.into_os_string().into_string().map_err(|_| "directory name is not valid UTF-8".into()),
        Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => Err("Not a directory".into()),
        Err(error) => Err(system_text(&error)),
    }
}

/// Returns a system error in the words of strerror, without Rust's "(os error 2)".
pub fn system_text(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

/// Redis's limit on the addresses of one `bind`.
const BIND_ADDRESSES_MAX: usize = 16;

/// `bind`: any words. Listening shows later if they are valid addresses. A single empty word means none.
pub(super) fn check_bind(args: &[&str]) -> Result<Vec<String>, String> {
    if args.len() > BIND_ADDRESSES_MAX {
        return Err("Too many bind addresses specified.".into());
    }
    Ok(args.iter().filter(|_| args != [""]).map(|&arg| arg.to_owned()).collect())
}

/// `latency-tracking-info-percentiles`: numbers from 0 to 100, shown in their shortest form.
pub(super) fn check_percentiles(args: &[&str]) -> Result<Vec<String>, String> {
    let args = if args == [""] { &[] } else { args };
    args.iter().map(|arg| percentile(arg)).collect()
}

fn percentile(arg: &str) -> Result<String, String> {
    match arg.parse::<f64>() {
        Ok(percentile) if (0.0..=100.0).contains(&percentile) => Ok(percentile.to_string()),
        Ok(percentile) if !percentile.is_nan() => {
            Err("latency-tracking-info-percentiles parameters should sit between [0.0,100.0]".into())
        }
        _ => Err("Invalid latency-tracking-info-percentiles parameters".into()),
    }
}

/// `oom-score-adj-values`: three numbers from -2000 to 2000.
pub(super) fn check_oom_score_adj_values(args: &[&str]) -> Result<Vec<String>, String> {
    let valid = |arg: &&str| canonical_int(arg).is_some_and(|score| (-2000..=2000).contains(&score));
    match args {
        [_, _, _] if args.iter().all(valid) => Ok(args.iter().map(|&arg| arg.to_owned()).collect()),
        [_, _, _] => Err("Invalid oom-score-adj-values, elements must be between -2000 and 2000.".into()),
        _ => Err(WRONG_ARITY.into()),
    }
}

const SHUTDOWN_WORDS: [&str; 8] = ["default", "save", "nosave", "now", "force", "safe", "failover", "move"];

/// `shutdown-on-sigint`, `shutdown-on-sigterm`: some of [`SHUTDOWN_WORDS`], displayed in that order.
pub(super) fn check_shutdown(args: &[&str]) -> Result<Vec<String>, String> {
    let known = |arg: &&str| SHUTDOWN_WORDS.iter().any(|word| word.eq_ignore_ascii_case(arg));
    let named = |word: &str| args.iter().any(|arg| arg.eq_ignore_ascii_case(word));
    if args.is_empty() || !args.iter().all(known) {
        return Err(not_one_of(&SHUTDOWN_WORDS));
    }
    if named("save") && named("nosave") {
        return Err("shutdown options SAVE and NOSAVE can't be used simultaneously".into());
    }
    let chosen: Vec<_> = SHUTDOWN_WORDS[1..].iter().filter(|word| named(word)).map(|&word| word.to_owned()).collect();
    Ok(if chosen.is_empty() { vec![SHUTDOWN_WORDS[0].to_owned()] } else { chosen })
}

/// `replicaof`, `slaveof`: host and port of a primary, or `no one`.
pub(super) fn check_replicaof(args: &[&str]) -> Result<Vec<String>, String> {
    match args {
        [] => Ok(Vec::new()),
        [no, one] if no.eq_ignore_ascii_case("no") && one.eq_ignore_ascii_case("one") => Ok(Vec::new()),
        [host, port] => match port.parse::<u16>() {
            Ok(1..) => Ok(vec![(*host).to_owned(), (*port).to_owned()]),
            _ => Err("Invalid master port".into()),
        },
        _ => Err(WRONG_ARITY.into()),
    }
}

/// Returns the error for a missing feature.
pub(super) fn missing(feature: &str) -> String {
    format!("{feature} is not supported by this version of Penstock; remove this directive to do without")
}

/// `dbfilename`, `appendfilename` and `appenddirname`: a name without directories.
pub(super) fn check_base_name(directive: &str, what: &str, name: &str) -> Result<(), String> {
    match name.contains(['/', '\\']) {
        true => Err(format!("{directive} can't be a path, just a {what}")),
        false => Ok(()),
    }
}

/// `appendfilename`: checked by [`check_base_name`], and not empty.
pub(super) fn check_append_file_name(name: &str) -> Result<(), String> {
    not_empty("appendfilename", name).and_then(|()| check_base_name("appendfilename", "filename", name))
}

/// `appenddirname`: checked by [`check_base_name`], and not empty.
pub(super) fn check_append_dir_name(name: &str) -> Result<(), String> {
    not_empty("appenddirname", name).and_then(|()| check_base_name("appenddirname", "dirname", name))
}

fn not_empty(directive: &str, value: &str) -> Result<(), String> {
    match value.is_empty() {
        true => Err(format!("{directive} can't be empty")),
        false => Ok(()),
    }
}

/// Maximum length of an announced address: the space in a message of the cluster's bus.
const ANNOUNCED_IP_MAX: usize = 45;
/// Maximum length of an announced name.
const ANNOUNCED_NAME_MAX: usize = 255;

/// `cluster-announce-ip`: a text without blanks and other separators of the cluster's file.
pub(super) fn check_announced_ip(ip: &str) -> Result<(), String> {
    if ip.len() > ANNOUNCED_IP_MAX {
        return Err("cluster-announce-ip is too long".into());
    }
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || !byte.is_ascii() || b"-./:_".contains(&byte);
    match ip.bytes().all(is_allowed) {
        true => Ok(()),
        false => Err("cluster-announce-ip contains invalid character".into()),
    }
}

/// `cluster-announce-client-ipv4`.
pub(super) fn check_ipv4(ip: &str) -> Result<(), String> {
    match ip.is_empty() || ip.parse::<Ipv4Addr>().is_ok() {
        true => Ok(()),
        false => Err("Invalid IPv4 address".into()),
    }
}

/// `cluster-announce-client-ipv6`.
pub(super) fn check_ipv6(ip: &str) -> Result<(), String> {
    match ip.is_empty() || ip.parse::<Ipv6Addr>().is_ok() {
        true => Ok(()),
        false => Err("Invalid IPv6 address".into()),
    }
}

/// `cluster-announce-human-nodename`: letters, digits, and marks that are no separators in the cluster's file.
pub(super) fn check_node_name(name: &str) -> Result<(), String> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-./:_".contains(&byte);
    match name.len() <= ANNOUNCED_NAME_MAX && name.bytes().all(is_allowed) {
        true => Ok(()),
        false => Err("Announced human node name contained invalid character".into()),
    }
}

/// `cluster-announce-hostname`: letters, digits, hyphens and dots.
pub(super) fn check_hostname(name: &str) -> Result<(), String> {
    if name.len() > ANNOUNCED_NAME_MAX {
        return Err("Hostnames must be less than 256 characters".into());
    }
    match name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.')) {
        true => Ok(()),
        false => Err("Hostnames may only contain alphanumeric characters, hyphens or dots".into()),
    }
}

const TITLE_VARIABLES: [&str; 7] =
    ["title", "listen-addr", "server-mode", "port", "tls-port", "unixsocket", "config-file"];

/// `proc-title-template`: some text, with known variables in braces; `{{` is a brace.
pub(super) fn check_title_template(template: &str) -> Result<(), String> {
    let without_braces = template.replace("{{", "");
    let mut parts = without_braces.split('{').skip(1);
    let known = |part: &str| part.split_once('}').is_some_and(|(name, _)| TITLE_VARIABLES.contains(&name));
    match !template.is_empty() && parts.all(known) {
        true => Ok(()),
        false => Err("template format is invalid or contains unknown variables".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn save_takes_pairs() {
        assert_eq!(parse_save(&["900", "1", "300", "10"]), Ok("900 1 300 10".into()));
        assert_eq!(parse_save(&[""]), Ok(String::new()));
        for args in [&["1"][..], &["a", "1"], &["0", "1"], &["1", "-1"], &["", "1", "", "2"], &["1", "2", "3"]] {
            assert_eq!(parse_save(args), Err("Invalid save parameters".into()), "{args:?}");
        }
        assert_eq!(save_points("900 1"), [SavePoint { seconds: 900, changes: 1 }]);
        assert_eq!(save_lines("900 1 300 10"), ["save 900 1", "save 300 10"]);
        assert_eq!(save_lines(""), ["save \"\""]);
    }

    #[test]
    fn keyspace_events_are_normalised() {
        for (arg, shown) in [
            ("", ""),
            ("E", "E"),
            ("KEA", "AKE"),
            ("KEmnA", "AKEm"),
            ("mE", "Em"),
            ("xtKg$nm", "g$xtnKm"),
            ("g$lshzxetd", "A"),
            ("g$lshzxet", "g$lshzxet"),
            ("Kg", "gK"),
        ] {
            assert_eq!(parse_keyspace_events(arg).map(show_keyspace_events), Ok(shown.into()), "{arg}");
        }
        assert!(parse_keyspace_events("Kq").is_err());
    }

    #[test]
    fn percentiles_are_numbers_up_to_a_hundred() {
        assert_eq!(check_percentiles(&["50.5", "99.95", "1e1"]), Ok(vec!["50.5".into(), "99.95".into(), "10".into()]));
        assert_eq!(check_percentiles(&[""]), Ok(vec![]));
        let range = "latency-tracking-info-percentiles parameters should sit between [0.0,100.0]";
        let invalid = "Invalid latency-tracking-info-percentiles parameters";
        for (arg, error) in
            [("101", range), ("-1", range), ("inf", range), ("nan", invalid), ("x", invalid), ("", invalid)]
        {
            assert_eq!(check_percentiles(&[arg, "1"]), Err(error.into()), "{arg}");
        }
    }

    #[test]
    fn title_templates_have_known_variables() {
        for (template, valid) in [
            ("{title} {listen-addr}", true),
            ("plain", true),
            ("{{x} {port}", true),
            ("", false),
            ("{foo}", false),
            ("{title", false),
            ("{}", false),
        ] {
            assert_eq!(check_title_template(template).is_ok(), valid, "{template}");
        }
    }

    #[test]
    fn hostnames_are_plain() {
        assert!(check_hostname("a-1.b").is_ok() && check_hostname("").is_ok());
        assert!(check_hostname("a_b").is_err() && check_hostname("a b").is_err());
    }

    #[test]
    fn shutdown_words_are_a_set() {
        assert_eq!(check_shutdown(&["NOW", "save"]), Ok(vec!["save".into(), "now".into()]));
        assert_eq!(check_shutdown(&["default", "save"]), Ok(vec!["save".into()]));
        assert_eq!(check_shutdown(&["default"]), Ok(vec!["default".into()]));
        assert!(check_shutdown(&["save", "nosave"]).is_err());
        assert!(check_shutdown(&["bar"]).is_err());
        assert!(check_shutdown(&[]).is_err());
    }
}
