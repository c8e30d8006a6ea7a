//! `--cluster`: creates, checks, repairs and changes clusters, with redis-cli's options and output.
//!
//! Operators' scripts read the output. The texts are redis-cli 7.0's, also its terms for primaries and replicas.
//! `crates/tests/tests/tools/manager.rs` compares with it.

mod affinity;
mod agreement;
mod args;
mod backup;
mod check;
mod create;
mod fix;
mod import;
mod load;
mod members;
mod moves;
mod node;
mod nodes_text;
mod open_slot;
mod plan;
mod rebalance;
mod report;
mod reshard;

pub use args::{ClusterOptions, ClusterWords, MIGRATE_KEYS, MIGRATE_TIMEOUT_MS, THRESHOLD_PERCENT, split};

use crate::failure::Failure;
use crate::options::CliOptions;
use crate::output::{Output, complain};
use client::Value;
use node::Node;
use std::io::{self, BufRead};
use std::net::ToSocketAddrs;

/// A subcommand of `--cluster`.
struct Subcommand {
    name: &'static str,
    /// Number of arguments; at least its absolute value if negative.
    arity: i32,
    run: fn(&mut Manager<'_>, &[Vec<u8>]) -> Outcome,
    args: &'static str,
    options: &'static [&'static str],
}

const ANY_NODE: &str = "<host:port> or <host> <port> - separated by either colon or space";

const SUBCOMMANDS: &[Subcommand] = &[
    Subcommand {
        name: "create",
        arity: -2,
        run: create::run,
        args: "host1:port1 ... hostN:portN",
        options: &["replicas <arg>"],
    },
    Subcommand { name: "check", arity: -1, run: check::run, args: ANY_NODE, options: &["search-multiple-owners"] },
    Subcommand { name: "info", arity: -1, run: report::run, args: ANY_NODE, options: &[] },
    Subcommand {
        name: "fix",
        arity: -1,
        run: fix::run,
        args: ANY_NODE,
        options: &["search-multiple-owners", "fix-with-unreachable-masters"],
    },
    Subcommand {
        name: "reshard",
        arity: -1,
        run: reshard::run,
        args: ANY_NODE,
        options: &["from <arg>", "to <arg>", "slots <arg>", "yes", "timeout <arg>", "pipeline <arg>", "replace"],
    },
    Subcommand {
        name: "rebalance",
        arity: -1,
        run: rebalance::run,
        args: ANY_NODE,
        options: &[
            "weight <node1=w1...nodeN=wN>",
            "use-empty-masters",
            "timeout <arg>",
            "simulate",
            "pipeline <arg>",
            "threshold <arg>",
            "replace",
        ],
    },
    Subcommand {
        name: "add-node",
        arity: 2,
        run: members::add,
        args: "new_host:new_port existing_host:existing_port",
        options: &["slave", "master-id <arg>"],
    },
    Subcommand { name: "del-node", arity: 2, run: members::delete, args: "host:port node_id", options: &[] },
    Subcommand {
        name: "call",
        arity: -2,
        run: members::call,
        args: "host:port command arg arg .. arg",
        options: &["only-masters", "only-replicas"],
    },
    Subcommand {
        name: "set-timeout",
        arity: 2,
        run: members::set_timeout,
        args: "host:port milliseconds",
        options: &[],
    },
    Subcommand {
        name: "import",
        arity: 1,
        run: import::run,
        args: "host:port",
        options: &["from <arg>", "from-user <arg>", "from-pass <arg>", "from-askpass", "copy", "replace"],
    },
    Subcommand { name: "backup", arity: 2, run: backup::run, args: "host:port backup_directory", options: &[] },
    Subcommand { name: "help", arity: 0, run: help, args: "", options: &[] },
];

/// The reason for the end of a subcommand.
#[derive(Debug)]
enum Stop {
    /// The reason was printed.
    Reported,
    /// The output can't be written, or the password can't be read.
    Broken(Failure),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Broken(Failure::Output(error))
    }
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Broken(failure)
    }
}

type Outcome<T = ()> = Result<T, Stop>;

/// Severity of a message, which chooses its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Info,
    Warning,
    Error,
    Ok,
}

/// The nodes of a cluster, as far as they are known.
struct Manager<'a> {
    options: &'a CliOptions,
    choices: &'a ClusterOptions,
    password: Option<Vec<u8>>,
    output: Output,
    nodes: Vec<Node>,
    /// Problems that the check has found.
    errors: Vec<String>,
    unreachable_masters: usize,
    /// True for `fix`.
    fixes: bool,
}

/// Runs the subcommand of the options. Returns true on success.
///
/// # Errors
/// Returns errors of standard output and of reading a password.
pub fn run(options: &CliOptions, choices: &ClusterOptions, password: Option<Vec<u8>>) -> Result<bool, Failure> {
    let Some(subcommand) = SUBCOMMANDS.iter().find(|known| known.name.as_bytes() == choices.subcommand) else {
        complain!("Unknown --cluster subcommand");
        return Ok(false);
    };
    let count = i32::try_from(choices.args.len()).unwrap_or(i32::MAX);
    let fits = if subcommand.arity < 0 { count >= -subcommand.arity } else { count == subcommand.arity };
    // redis-cli takes a zero for "not checked".
    if !fits && subcommand.arity != 0 {
        complain!("[ERR] Wrong number of arguments for specified --cluster sub command");
        return Ok(false);
    }
    let mut manager = Manager {
        options,
        choices,
        password,
        output: Output::default(),
        nodes: Vec::new(),
        errors: Vec::new(),
        unreachable_masters: 0,
        fixes: false,
    };
    let outcome = (subcommand.run)(&mut manager, &choices.args);
    manager.output.flush()?;
    match outcome {
        Ok(()) => Ok(true),
        Err(Stop::Reported) => Ok(false),
        Err(Stop::Broken(failure)) => Err(failure),
    }
}

impl Manager<'_> {
    /// Prints a message.
    fn log(&mut self, level: Level, text: impl AsRef<str>) -> Outcome {
        let text = text.as_ref();
        let colour = match level {
            Level::Info => "29;1m",
            Level::Warning => "33;1m",
            Level::Error => "31;1m",
            Level::Ok => "32;1m",
        };
        match self.options.style.colours {
            true => self.output.print(format!("\x1b[{colour}{text}\x1b[0m"))?,
            false => self.output.print(text)?,
        }
        Ok(())
    }

    fn info(&mut self, text: impl AsRef<str>) -> Outcome {
        self.log(Level::Info, text)
    }

    fn warn(&mut self, text: impl AsRef<str>) -> Outcome {
        self.log(Level::Warning, text)
    }

    fn error(&mut self, text: impl AsRef<str>) -> Outcome {
        self.log(Level::Error, text)
    }

    fn ok(&mut self, text: impl AsRef<str>) -> Outcome {
        self.log(Level::Ok, text)
    }

    /// Prints a message without colour.
    fn say(&mut self, text: impl AsRef<[u8]>) -> Outcome {
        Ok(self.output.print(text)?)
    }

    /// Prints a message and stops.
    fn stop<T>(&mut self, text: impl AsRef<str>) -> Outcome<T> {
        self.error(text)?;
        Err(Stop::Reported)
    }

    /// Prints a message on standard error, behind all output until here.
    fn complain(&mut self, text: &str) -> Outcome {
        self.output.flush()?;
        complain!("{text}");
        Ok(())
    }

    /// Asks a question on standard output. Returns the line from standard input, or `None` at its end.
    fn ask(&mut self, question: &str) -> Outcome<Option<String>> {
        self.say(question)?;
        self.output.flush()?;
        let mut line = Vec::new();
        match io::stdin().lock().read_until(b'\n', &mut line) {
            Ok(1..) => Ok(Some(String::from_utf8_lossy(line.trim_ascii_end()).into_owned())),
            Ok(0) => Ok(None),
            Err(error) => Err(Failure::Other(format!("Error reading from stdin: {error}")).into()),
        }
    }

    /// Asks for a confirmation. `--cluster-yes` confirms everything that isn't `always_asked`.
    fn confirms(&mut self, question: &str, always_asked: bool) -> Outcome<bool> {
        if self.choices.yes && !always_asked {
            return Ok(true);
        }
        let answer = self.ask(&format!("{question} (type 'yes' to accept): "))?;
        Ok(answer.as_deref() == Some("yes"))
    }

    // --- requests ---

    /// Sends a request to a node. Returns the text of an error reply or of a broken connection as the error.
    fn request(&mut self, node: usize, request: &[impl AsRef<[u8]>]) -> Result<Value, String> {
        self.nodes[node].request(request)
    }

    /// Sends a request to a node. An error is printed and stops the subcommand.
    fn must(&mut self, node: usize, request: &[impl AsRef<[u8]>]) -> Outcome<Value> {
        let reply = self.request(node, request);
        self.reported(node, reply)
    }

    /// Returns a node's reply. An error is printed and stops the subcommand.
    fn reported(&mut self, node: usize, reply: Result<Value, String>) -> Outcome<Value> {
        match reply {
            Ok(reply) => Ok(reply),
            Err(error) => {
                self.report_reply_error(node, &error)?;
                Err(Stop::Reported)
            }
        }
    }

    fn report_reply_error(&mut self, node: usize, error: &str) -> Outcome {
        let text = format!("Node {} replied with error:\n{error}\n", self.nodes[node].place());
        self.error(text)
    }

    /// Returns the index of the node with this id.
    fn node_by_id(&self, id: &str) -> Option<usize> {
        let id = id.to_ascii_lowercase();
        self.nodes.iter().position(|node| node.id == id)
    }

    /// Returns the nodes that aren't replicas.
    fn masters(&self) -> Vec<usize> {
        (0..self.nodes.len()).filter(|&node| !self.nodes[node].is_replica()).collect()
    }

    /// Returns the host and port of the arguments: `host:port`, or two words. Wrong ones are reported.
    fn address(&mut self, args: &[Vec<u8>]) -> Outcome<(String, u16)> {
        let words: Vec<String> = args.iter().map(|arg| String::from_utf8_lossy(arg).into_owned()).collect();
        let found = match words.as_slice() {
            [address] => parse_address(address),
            [host, port, ..] => port.parse().ok().map(|port| (host.clone(), port)),
            [] => None,
        };
        match found.filter(|(_, port)| *port != 0) {
            Some(found) => Ok(found),
            None => {
                self.complain(
                    "[ERR] Invalid arguments: you need to pass either a valid address (ie. 120.0.0.1:7000) or space \
                     separated IP and port (ie. 120.0.0.1 7000)",
                )?;
                Err(Stop::Reported)
            }
        }
    }

    /// Returns the IP address of a node: CLUSTER MEET accepts no names.
    fn resolved(&mut self, host: &str, port: u16) -> Outcome<String> {
        let address = (host, port).to_socket_addrs().ok().and_then(|mut addresses| addresses.next());
        match address {
            Some(address) => Ok(address.ip().to_string()),
            None => {
                self.complain(&format!("Invalid IP address or hostname specified: {host}"))?;
                Err(Stop::Reported)
            }
        }
    }

    /// Makes a node meet another one.
    fn meet(&mut self, node: usize, known: usize) -> Outcome {
        let Node { host, port, bus_port, .. } = &self.nodes[known];
        let (host, port, bus_port) = (host.clone(), *port, *bus_port);
        let mut request = vec!["CLUSTER".to_owned(), "MEET".to_owned(), self.resolved(&host, port)?, port.to_string()];
        // Servers before 4.0 don't know the third argument.
        if bus_port != node::default_bus_port(port) {
            request.push(bus_port.to_string());
        }
        self.must(node, &request).map(drop)
    }
}

/// Parses `host:port`, with an optional `@bus-port`.
fn parse_address(text: &str) -> Option<(String, u16)> {
    let address = text.rsplit_once('@').map_or(text, |(address, _)| address);
    let (host, port) = address.rsplit_once(':')?;
    Some((host.to_owned(), port.parse().ok()?)).filter(|(host, _)| !host.is_empty())
}

/// Prints the subcommands and their options.
fn help(manager: &mut Manager<'_>, _: &[Vec<u8>]) -> Outcome {
    const INDENT: &str = "               ";
    manager.say("Cluster Manager Commands:\n")?;
    for Subcommand { name, args, options, .. } in SUBCOMMANDS {
        manager.say(format!("  {name:<15}{args}\n"))?;
        for option in *options {
            manager.say(format!("{INDENT}  --cluster-{option}\n"))?;
        }
    }
    manager.say(
        "\nFor check, fix, reshard, del-node, set-timeout, info, rebalance, call, import, backup you can specify the \
         host and port of any working node in the cluster.\n\nCluster Manager Options:\n  --cluster-yes  Automatic \
         yes to cluster commands prompts\n\n",
    )?;
    // redis-cli's exit status is 1 here, too.
    Err(Stop::Reported)
}
