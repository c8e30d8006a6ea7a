//! A file of users (`aclfile`): a line for each user, `user NAME RULES`. Comments aren't allowed, because ACL SAVE
//! would lose them.
//!
//! Source: Redis's "ACL" page, and a running server's replies to wrong lines.

use std::collections::BTreeMap;

use super::permissions::Permissions;
use super::rules::{BadRule, RuleReader, has_spaces, merge_selectors};

/// End of an error that leaves all users unchanged.
const NOTHING_CHANGED: &[u8] =
    b"WARNING: ACL errors detected, no change to the previously active ACL rules was performed";

/// Parses a file of users.
///
/// # Errors
/// All errors in one line, in Redis's words.
pub(super) fn parse(
    reader: RuleReader<'_>,
    path: &str,
    text: &[u8],
) -> Result<BTreeMap<Box<[u8]>, Permissions>, Vec<u8>> {
    let mut users = BTreeMap::new();
    let mut errors = Vec::new();
    for (index, line) in text.split(|&byte| byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        if !line.is_empty() {
            let place = format!("{path}:{}", index + 1);
            take_line(reader, &mut users, line, (&place, index + 1), &mut errors);
        }
    }
    if errors.is_empty() {
        return Ok(users);
    }
    errors.extend_from_slice(NOTHING_CHANGED);
    Err(errors)
}

/// Parses a line, or adds its errors.
fn take_line(
    reader: RuleReader<'_>,
    users: &mut BTreeMap<Box<[u8]>, Permissions>,
    line: &[u8],
    (place, number): (&str, usize),
    errors: &mut Vec<u8>,
) {
    let words: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
    let [b"user", name, rules @ ..] = words.as_slice() else {
        errors.extend(format!("{place} should start with user keyword followed by the username. ").into_bytes());
        return;
    };
    let named = |before: &str, after: &str| [before.as_bytes(), name, after.as_bytes()].concat();
    if has_spaces(name) {
        errors.extend(named(&format!("'{place}: username '"), "' contains invalid characters. "));
        return;
    }
    if users.contains_key(*name) {
        errors.extend(named("WARNING: Duplicate user '", &format!("' found on line {number}. ")));
        return;
    }
    let mut user = reader.new_user();
    match merge_selectors(rules) {
        Ok(merged) => take_rules(reader, &mut user, &merged, place, errors),
        Err(_) => errors.extend(format!("{place}: Unmatched parenthesis in selector definition.").into_bytes()),
    }
    user.compile(reader.table);
    users.insert((*name).into(), user);
}

/// Parses the rules of a line. Text other than an unknown command may be a password, so it is reported only once and
/// without its text.
fn take_rules(reader: RuleReader<'_>, user: &mut Permissions, rules: &[Vec<u8>], place: &str, errors: &mut Vec<u8>) {
    let mut has_told = false;
    for rule in rules {
        let rule = rule.trim_ascii();
        match reader.apply(user, rule) {
            Ok(()) => {}
            Err(BadRule::Unknown) => {
                let before = format!("{place}: Error in applying operation '");
                let after = format!("': {}. ", BadRule::Unknown.text());
                errors.extend([before.as_bytes(), rule, after.as_bytes()].concat());
            }
            Err(error) if !std::mem::replace(&mut has_told, true) => {
                errors.extend(format!("{place}: {}. ", error.text()).into_bytes());
            }
            Err(_) => {}
        }
    }
}
