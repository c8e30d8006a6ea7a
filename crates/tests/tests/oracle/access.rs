//! Random users and random commands: Penstock and Redis allow the same commands, and refuse others with the same texts.
//!
//! Each pair of a user and a command is checked by ACL DRYRUN, and by running the command as the user.

#![allow(clippy::panic, clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::env;

use penstock_tests::bytes::{Command, as_typed, command};
use penstock_tests::conn::Conn;
use penstock_tests::families;
use penstock_tests::reply::Reply;
use penstock_tests::rng::Rng;
use penstock_tests::server::Server;
use penstock_tests::template::Templates;
use penstock_tests::vocabulary::Vocabulary;

/// Number of pairs in an ordinary run, which takes some seconds. PENSTOCK_ACCESS_PAIRS changes the number,
/// PENSTOCK_SEED selects one round.
const PAIRS: usize = 6_000;
/// Users and commands of a round. Each user is tried with each command.
const USERS: usize = 10;
const COMMANDS: usize = 40;

/// Patterns for the vocabulary's keys, most of which consist of a letter for the type and a digit.
const PATTERNS: &[&str] = &[
    "*", "s*", "n*", "l1", "l?", "[htz]*", "[^s]*", "*1", "?2", "h[1-2]", "e*", "x1", "g*", "p*", "b?", "w_*", "",
    "\\*", "lcs*", "**", "k*y",
];
const CHANNELS: &[&str] = &["*", "a", "a*", "[ab]", "B", "foo*", "?"];
/// Rules about databases, a feature of Valkey 9.
const DATABASES: &[&str] = &["alldbs", "resetdbs", "db=0", "db=1", "db=0,1", "db=1,2,15", "db=3", "db=x", "db="];

/// Important commands that the families' templates don't have.
const MORE: &str = "
    2: PUBLISH <member> <val>
    SPUBLISH <member> <val>
    SUBSCRIBE {<member>}
    PSUBSCRIBE {(a|a*|[ab]|*|foo*)}
    SSUBSCRIBE {<member>}
    UNSUBSCRIBE {<member>}
    CONFIG (GET hz|SET hz 10|RESETSTAT|HELP|REWRITE)
    ACL (WHOAMI|CAT|USERS|LIST|HELP|GENPASS)
    SLOWLOG (GET|LEN|RESET)
    LATENCY (LATEST|HISTOGRAM)
    MEMORY USAGE <key>
    SCRIPT (LOAD x|EXISTS x|FLUSH)
    FUNCTION (LIST|STATS|DUMP)
    2: EVAL return,1 <keys:key>
    EVAL_RO return,1 <keys:key>
    EVALSHA e0e1f9fabfc9d4800c877a703b823ac0578ff8db <keys:key>
    FCALL f <keys:key>
    FCALL_RO f <keys:key>
    OBJECT FREQ <key>
    OBJECT HELP
    COMMAND (COUNT|LIST|INFO get)
    INFO server
    LASTSAVE
    DBSIZE
    SELECT (0|1)
    SWAPDB 0 1
    XREAD COUNT 1 STREAMS <stream> <stream> 0 0
    XREADGROUP GROUP g c STREAMS <stream> <stream> > >
    EVAL return,1 x <key>
    ZUNIONSTORE <zset> 9 <zset>
    LMPOP 0 <list> LEFT
    SINTERCARD x <set>
    GEORADIUS <geo> 1 1 1 m STORE <geo>
    GEORADIUS <geo> 1 1 1 m STOREDIST
    SORT <list> STORE <list> STORE <list>
    BITOP NOT <bits> <bits>
    MIGRATE h 1 <key> 0 1
    WAIT 0 0
    AUTH x
    PING
";

/// Commands that change the state of a connection, or block: they are checked by DRYRUN only.
const NOT_RUN: &[&str] = &[
    "subscribe",
    "psubscribe",
    "ssubscribe",
    "unsubscribe",
    "punsubscribe",
    "sunsubscribe",
    "multi",
    "exec",
    "discard",
    "reset",
    "quit",
    "auth",
    "hello",
    "monitor",
    "client",
    "shutdown",
    "acl",
    "wait",
    "migrate",
];

/// The names that both servers know, for use in rules.
struct Names {
    /// Commands without subcommands.
    commands: Vec<String>,
    subcommands: Vec<String>,
    categories: Vec<String>,
    /// Rules about databases.
    databases: &'static [&'static str],
}

impl Names {
    fn of(servers: [&mut Conn; 2], databases: &'static [&'static str]) -> Names {
        let [subject, oracle] = servers.map(names);
        let both: Vec<String> = subject.intersection(&oracle).cloned().collect();
        let (subcommands, commands) = both.into_iter().partition(|name| name.contains('|'));
        let cat = "keyspace read write set sortedset list hash string bitmap hyperloglog geo stream pubsub admin fast slow blocking \
                   dangerous connection transaction scripting";
        Names { commands, subcommands, categories: cat.split_whitespace().map(str::to_string).collect(), databases }
    }
}

fn names(conn: &mut Conn) -> BTreeSet<String> {
    let list = conn.cmd("COMMAND LIST").unwrap();
    list.items().iter().map(|name| String::from_utf8_lossy(name.text()).into_owned()).collect()
}

/// Adds random rules about commands.
fn command_rules(names: &Names, rng: &mut Rng, rules: &mut Vec<String>) {
    if rng.chance(40) {
        rules.push((*rng.pick(&["+@all", "-@all", "allcommands", "nocommands"])).to_string());
    }
    for _ in 0..rng.below(6) {
        let sign = if rng.chance(65) { '+' } else { '-' };
        rules.push(match rng.below(10) {
            0..=3 => format!("{sign}@{}", rng.pick(&names.categories)),
            4..=6 => format!("{sign}{}", rng.pick(&names.commands)),
            7 => format!("{sign}{}", rng.pick(&names.subcommands)),
            8 => format!("+{}|{}", rng.pick(&names.commands), rng.pick(&["0", "1", "s1", "l1", "HELP", "get"])),
            _ => format!("{sign}{}", rng.pick(&names.commands).to_uppercase()),
        });
    }
}

/// Returns the random rules of a selector.
fn selector(names: &Names, rng: &mut Rng) -> Vec<String> {
    let mut rules = Vec::new();
    command_rules(names, rng, &mut rules);
    for _ in 0..rng.below(5) {
        let prefix = *rng.pick(&["~", "~", "%R~", "%W~", "%RW~", "%wr~"]);
        rules.push(format!("{prefix}{}", rng.pick(PATTERNS)));
    }
    if rng.chance(10) {
        rules.push((*rng.pick(&["allkeys", "resetkeys"])).to_string());
    }
    for _ in 0..rng.below(3) {
        rules.push(format!("&{}", rng.pick(CHANNELS)));
    }
    if rng.chance(15) {
        rules.push((*rng.pick(&["allchannels", "resetchannels"])).to_string());
    }
    if !names.databases.is_empty() {
        (0..rng.below(3)).for_each(|_| rules.push((*rng.pick(names.databases)).to_string()));
    }
    rules
}

fn user(names: &Names, rng: &mut Rng) -> Vec<String> {
    let mut rules = selector(names, rng);
    for _ in 0..rng.below(3) {
        rules.push(format!("({})", selector(names, rng).join(" ")));
    }
    rules
}

/// Returns a server's decision about a command, without texts that only one release has. `name` is the user's name.
fn verdict(reply: &Reply, name: &str) -> String {
    let text = String::from_utf8_lossy(reply.text()).into_owned();
    // 7.0's text is shorter.
    let text = text
        .replace(&format!("User {name} has"), "This user has")
        .replace("NOPERM this user has", "NOPERM This user has")
        .replace(
            "This user has no permissions to access one of the keys used as arguments",
            "No permissions to access a key",
        )
        .replace(
            "This user has no permissions to access one of the channels used as arguments",
            "No permissions to access a channel",
        );
    format!("{}{text}", reply.tag() as char)
}

/// True for commands with keys that Redis allows because it can't extract the keys: if one key specification finds no
/// keys, it checks none. Penstock checks the keys that it finds.
fn is_incomparable(command: &Command) -> bool {
    command[0].eq_ignore_ascii_case(b"pfmerge") && command.len() == 2
}

struct Comparison {
    subject: Server,
    oracle: Server,
    names: Names,
    templates: Vec<Templates>,
}

impl Comparison {
    /// Returns a comparison with another server, and these rules about databases.
    fn with(oracle: Server, databases: &'static [&'static str]) -> Comparison {
        let subject = Server::penstock(&[]);
        let names = Names::of([&mut subject.connect(), &mut oracle.connect()], databases);
        let tables = families::ALL.iter().map(|family| family.table).chain([MORE]);
        Comparison { subject, oracle, names, templates: tables.map(Templates::parse).collect() }
    }

    fn commands(&self, rng: &mut Rng) -> Vec<Command> {
        let mut vocabulary = Vocabulary::default();
        let mut commands = Vec::new();
        while commands.len() < COMMANDS {
            let command = rng.pick(&self.templates).generate(rng, &mut vocabulary);
            // 7.0 shows names up to a zero byte.
            if is_incomparable(&command) || command.iter().any(|arg| arg.contains(&0)) {
                continue;
            }
            let name = String::from_utf8_lossy(&command[0]).to_lowercase();
            if self.names.commands.contains(&name)
                || self.names.subcommands.iter().any(|sub| sub.split('|').next() == Some(&name))
            {
                commands.push(command);
            }
        }
        commands
    }

    /// Compares one round of pairs.
    fn check(&self, seed: u64) {
        let mut rng = Rng::new(seed);
        let (mut subject, mut oracle) = (self.subject.connect(), self.oracle.connect());
        let commands = self.commands(&mut rng);
        for index in 0..USERS {
            let name = format!("u{index}");
            let rules = user(&self.names, &mut rng);
            let set: Command = ["ACL", "SETUSER", &name, "reset", "on", "nopass"]
                .into_iter()
                .map(str::to_string)
                .chain(rules.iter().cloned())
                .map(String::into_bytes)
                .collect();
            let [ours, theirs] = [&mut subject, &mut oracle].map(|conn| conn.call(&set).unwrap());
            assert_eq!(verdict(&ours, &name), verdict(&theirs, &name), "{} (PENSTOCK_SEED={seed})", as_typed(&set));
            if ours.is_error() {
                continue;
            }
            let about = format!("PENSTOCK_SEED={seed}, {}", as_typed(&set));
            Self::compare_dry(&mut subject, &mut oracle, &name, &commands, &about);
            self.compare_run(&name, &commands, &about);
        }
    }

    fn compare_dry(subject: &mut Conn, oracle: &mut Conn, name: &str, commands: &[Command], about: &str) {
        let asked: Vec<Command> = commands
            .iter()
            .map(|wanted| command(&format!("ACL DRYRUN {name}")).into_iter().chain(wanted.iter().cloned()).collect())
            .collect();
        let [ours, theirs] = [subject, oracle].map(|conn| conn.pipeline(&asked).unwrap());
        for ((asked, ours), theirs) in asked.iter().zip(&ours).zip(&theirs) {
            assert_eq!(verdict(ours, name), verdict(theirs, name), "{} ({about})", as_typed(asked));
        }
    }

    /// Runs commands as a user: both servers must refuse the same commands with the same texts.
    fn compare_run(&self, name: &str, commands: &[Command], about: &str) {
        let is_run = |command: &&Command| {
            let name = String::from_utf8_lossy(&command[0]).to_lowercase();
            !NOT_RUN.contains(&name.as_str())
        };
        let run: Vec<Command> = commands.iter().filter(is_run).cloned().collect();
        let login = command(&format!("AUTH {name} x"));
        let replies = [&self.subject, &self.oracle].map(|server| {
            let mut conn = server.connect();
            assert!(!conn.call(&login).unwrap().is_error(), "{about}");
            conn.pipeline(&run).unwrap()
        });
        let denied =
            |reply: &Reply| reply.is_error().then(|| verdict(reply, name)).filter(|text| text.contains("NOPERM"));
        for (at, command) in run.iter().enumerate() {
            let [ours, theirs] = replies.each_ref().map(|replies| denied(&replies[at]));
            assert_eq!(ours, theirs, "{} as {name} ({about})", as_typed(command));
        }
    }

    /// Compares this many pairs, or the round that PENSTOCK_SEED selects.
    fn check_all(&self, pairs: usize) {
        let number = |variable: &str| env::var(variable).ok().and_then(|text| text.parse::<usize>().ok());
        if let Some(seed) = number("PENSTOCK_SEED") {
            return self.check(seed as u64);
        }
        let rounds = number("PENSTOCK_ACCESS_PAIRS").unwrap_or(pairs).div_ceil(USERS * COMMANDS);
        (0..rounds as u64).for_each(|seed| self.check(seed));
    }
}

#[test]
fn redis_allows_the_same_commands() {
    Comparison::with(Server::oracle(&[]), &[]).check_all(PAIRS);
}

/// Rules about databases, compared with Valkey 9. Prints a note if it isn't installed.
#[test]
fn valkey_allows_the_same_databases() {
    let Some(oracle) = Server::valkey9(&[]) else { return };
    Comparison::with(oracle, DATABASES).check_all(PAIRS);
}
