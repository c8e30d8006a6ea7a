//! The options of `--cluster`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// Default timeout of a MIGRATE, in milliseconds.
pub const MIGRATE_TIMEOUT_MS: u64 = 60_000;

/// Default number of keys in a MIGRATE.
pub const MIGRATE_KEYS: u64 = 10;

/// Default percentage of imbalance that `rebalance` accepts.
pub const THRESHOLD_PERCENT: f32 = 2.0;

/// The subcommand of `--cluster` with its arguments and options.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterOptions {
    /// Name of the subcommand.
    pub subcommand: Vec<u8>,
    /// Its arguments.
    pub args: Vec<Vec<u8>>,
    /// Number of replicas of each primary, for `create`.
    pub replicas: usize,
    /// Answers questions with yes.
    pub yes: bool,
    /// Source nodes, or the address of the server to import from.
    pub from: Option<String>,
    /// Target node.
    pub to: Option<String>,
    /// Number of slots to move.
    pub slots: usize,
    /// Timeout of a MIGRATE, in milliseconds.
    pub timeout_ms: u64,
    /// Number of keys in a MIGRATE.
    pub pipeline: u64,
    /// Percentage of imbalance that `rebalance` accepts.
    pub threshold: f32,
    /// Weights of nodes, as `id=weight`.
    pub weights: Vec<String>,
    /// `rebalance` gives slots to primaries without slots, too.
    pub uses_empty_masters: bool,
    /// `rebalance` moves nothing.
    pub simulates: bool,
    /// Keys of the target are replaced.
    pub replaces: bool,
    /// `import` keeps the source's keys.
    pub copies: bool,
    /// The new node is a replica.
    pub is_slave: bool,
    /// Primary of the new node.
    pub master_id: Option<String>,
    /// The check looks for slots with several owners, too.
    pub searches_owners: bool,
    /// `fix` works even though primaries can't be reached.
    pub fixes_unreachable: bool,
    /// `call` skips replicas.
    pub only_masters: bool,
    /// `call` skips primaries.
    pub only_replicas: bool,
    /// User name at the server to import from.
    pub from_user: Option<Vec<u8>>,
    /// Password at the server to import from.
    pub from_password: Option<Vec<u8>>,
    /// The program asks for that password.
    pub asks_from_password: bool,
    /// `rebalance` prints the balance of each node.
    pub is_verbose: bool,
}

/// Words of the command line that belong to `--cluster`.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ClusterWords {
    /// The arguments of the subcommand.
    pub args: Vec<Vec<u8>>,
    /// The values of `--cluster-weight`.
    pub weights: Vec<String>,
    /// True if `--cluster-weight` occurs more than once.
    pub repeats_weights: bool,
}

/// Takes the words with a variable number out of a command line: after `--cluster` and its subcommand, all words up to
/// the next one that begins with a hyphen, and after `--cluster-weight` all words with an equals sign.
///
/// The command line keeps the flags themselves. Words after the first one without a hyphen are a command for the
/// server, and stay.
#[must_use]
pub fn split(args: &[OsString], takes_value: impl Fn(&OsStr) -> bool) -> (Vec<OsString>, ClusterWords) {
    let (mut rest, mut words) = (Vec::new(), ClusterWords::default());
    let mut args = args.iter().peekable();
    while let Some(arg) = args.next_if(|arg| is_flag(arg)) {
        match arg.as_bytes() {
            b"--cluster" => {
                rest.push(arg.clone());
                rest.extend(args.next().cloned());
                while let Some(word) = args.next_if(|word| !is_flag(word)) {
                    words.args.push(word.as_bytes().to_vec());
                }
            }
            b"--cluster-weight" => {
                words.repeats_weights |= !words.weights.is_empty();
                while let Some(word) = args.next_if(|word| is_weight(word)) {
                    words.weights.push(word.to_string_lossy().into_owned());
                }
                // An empty list is no flag of the parser's.
            }
            _ => {
                rest.push(arg.clone());
                if takes_value(arg) {
                    rest.extend(args.next().cloned());
                }
            }
        }
    }
    rest.extend(args.cloned());
    (rest, words)
}

fn is_flag(word: &OsStr) -> bool {
    word.as_bytes().first() == Some(&b'-')
}

fn is_weight(word: &OsStr) -> bool {
    !word.as_bytes().starts_with(b"--") && word.as_bytes().contains(&b'=')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_subcommand_are_taken_out() {
        let check = |line: &str, rest: &str, args: &str, weights: &str| {
            let line: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
            let (kept, words) = split(&line, |flag| flag == "-a" || flag == "--cluster-to");
            assert_eq!(kept.join(OsStr::new(" ")), rest, "{line:?}");
            assert_eq!(words.args.join(&b' '), args.as_bytes(), "{line:?}");
            assert_eq!(words.weights.join(" "), weights, "{line:?}");
        };
        check("get a", "get a", "", "");
        check("-a x get --cluster", "-a x get --cluster", "", "");
        check("--cluster help", "--cluster help", "", "");
        check("--cluster", "--cluster", "", "");
        check("--cluster create a:1 b:2 --cluster-yes", "--cluster create --cluster-yes", "a:1 b:2", "");
        check("-a -x --cluster call a:1 GET k -c", "-a -x --cluster call -c", "a:1 GET k", "");
        check("--cluster-weight a=1 b=2 --cluster rebalance h:1", "--cluster rebalance", "h:1", "a=1 b=2");
        check("--cluster x a --cluster-to b c", "--cluster x --cluster-to b c", "a", "");
    }
}
