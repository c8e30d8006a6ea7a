//! `penstock load` in tests: running it, and asking a server what came of it.

use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use crate::reply::Reply;
use crate::rng::Rng;
use crate::server::{Server, comes_true, subject_program};

/// The loader, with these arguments, for the server at `port`.
pub fn loader(port: u16, args: &[&str]) -> Command {
    let mut command = Command::new(subject_program());
    command.args(["load", "-p", &port.to_string()]).args(args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).env_remove("REDISCLI_AUTH");
    command
}

/// Its exit status, standard output and standard error.
pub struct Ran {
    /// The exit status.
    pub status: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl Ran {
    /// What a process that has ended left.
    pub fn of(output: &Output) -> Ran {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ran { status: output.status.code().unwrap_or(-1), out: text(&output.stdout), err: text(&output.stderr) }
    }

    /// The first line of standard output.
    pub fn first_line(&self) -> &str {
        self.out.lines().next().unwrap_or_default()
    }
}

/// Runs the loader to its end; `stdin` is what it may read.
pub fn run(port: u16, args: &[&str], stdin: &[u8]) -> Ran {
    let mut child = loader(port, args).spawn().unwrap();
    let mut pipe = child.stdin.take().unwrap();
    let stdin = stdin.to_vec();
    // A loader that has failed doesn't read on.
    let writer = thread::spawn(move || pipe.write_all(&stdin));
    let ran = Ran::of(&child.wait_with_output().unwrap());
    let _ = writer.join().unwrap();
    ran
}

/// The reply to a command over a connection of its own.
pub fn ask(server: &Server, words: &str) -> Reply {
    server.connect().cmd(words).unwrap()
}

/// The elements of a reply as text.
pub fn texts(reply: &Reply) -> Vec<String> {
    reply.items().iter().map(|item| String::from_utf8_lossy(item.text()).into_owned()).collect()
}

/// How often the server has executed a command (INFO commandstats).
pub fn calls(server: &Server, command: &str) -> u64 {
    let info = ask(server, "INFO commandstats");
    let text = String::from_utf8_lossy(info.text()).into_owned();
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")).map(str::to_owned));
    line.map_or(0, |line| line.split(',').next().unwrap().parse().unwrap())
}

/// Sends a process a signal.
pub fn signal(pid: u32, name: &str) {
    let sent = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status();
    assert!(sent.is_ok_and(|status| status.success()), "no {name} for {pid}");
}

/// Sends SIGINT to a process as soon as that handles it instead of being ended by it, and waits until it has got it.
pub fn interrupt(pid: u32) {
    // SIGTERM is handled, too, and after it.
    wait_until("it handles signals", || has_signal(pid, "SigCgt:", 15));
    signal(pid, "INT");
    wait_until("it has been told", || !has_signal(pid, "ShdPnd:", 2));
}

/// Whether a set of signals in proc(5)'s status of a process has this one in it.
fn has_signal(pid: u32, set: &str, number: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix(set)).unwrap_or_default();
    u64::from_str_radix(mask.trim(), 16).is_ok_and(|mask| mask >> (number - 1) & 1 == 1)
}

/// The number in a variable of the environment.
#[must_use]
pub fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// Where random numbers begin: `PENSTOCK_SEED`, or always the same.
#[must_use]
pub fn seed() -> u64 {
    number("PENSTOCK_SEED").unwrap_or(20_260_101)
}

/// Runs `test` with Penstock and with Redis.
pub fn with_both(test: impl Fn(&Server)) {
    test(&Server::penstock(&[]));
    test(&Server::oracle(&[]));
}

/// Waits until `is_so`, as long as a busy machine may take.
pub fn wait_until(what: &str, is_so: impl FnMut() -> bool) {
    assert!(comes_true(is_so), "waited in vain until {what}");
}

/// Loads with `--resume` until a loader comes to its end; each one before is killed after a random time, wherever it
/// is: before it has begun, when it is done and has not said so, or when it says that nothing is left to do.
pub fn load_by_killed_loaders(port: u16, args: &[&str], longest_us: usize, rng: &mut Rng) -> (Ran, u64) {
    let mut killed = 0;
    loop {
        let mut child = loader(port, args).stdin(Stdio::null()).spawn().unwrap();
        // On a busy machine a loader needs longer to get to where the one before was.
        let longest_us = longest_us + longest_us * killed as usize / 100;
        thread::sleep(Duration::from_micros(rng.below(longest_us) as u64));
        if child.try_wait().unwrap().is_some() {
            return (Ran::of(&child.wait_with_output().unwrap()), killed);
        }
        child.kill().unwrap();
        child.wait().unwrap();
        killed += 1;
        assert!(killed < 20_000, "the load never ends");
    }
}
