//! Runs `penstock load` in tests, and reads the results from the server.

use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use crate::reply::Reply;
use crate::rng::Rng;
use crate::server::{Server, comes_true, subject_program};

/// Returns the loader's command with these arguments, for the server at `port`.
pub fn loader(port: u16, args: &[&str]) -> Command {
    let mut command = Command::new(subject_program());
    command.args(["load", "-p", &port.to_string()]).args(args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).env_remove("REDISCLI_AUTH");
    command
}

/// The result of a process: exit status, standard output and standard error.
pub struct Ran {
    /// The exit status.
    pub status: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl Ran {
    /// Converts the output of a finished process.
    pub fn of(output: &Output) -> Ran {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ran { status: output.status.code().unwrap_or(-1), out: text(&output.stdout), err: text(&output.stderr) }
    }

    /// The first line of standard output.
    pub fn first_line(&self) -> &str {
        self.out.lines().next().unwrap_or_default()
    }
}

/// Runs the loader to its end, with `stdin` as its input.
pub fn run(port: u16, args: &[&str], stdin: &[u8]) -> Ran {
    let mut child = loader(port, args).spawn().unwrap();
    let mut pipe = child.stdin.take().unwrap();
    let stdin = stdin.to_vec();
    // A loader that fails doesn't read the rest.
    let writer = thread::spawn(move || pipe.write_all(&stdin));
    let ran = Ran::of(&child.wait_with_output().unwrap());
    let _ = writer.join().unwrap();
    ran
}

/// Returns the reply to a command on a new connection.
pub fn ask(server: &Server, words: &str) -> Reply {
    server.connect().cmd(words).unwrap()
}

/// The elements of a reply as text.
pub fn texts(reply: &Reply) -> Vec<String> {
    reply.items().iter().map(|item| String::from_utf8_lossy(item.text()).into_owned()).collect()
}

/// Returns how often the server has executed a command (INFO commandstats).
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

/// Sends SIGINT to a process once it has a handler, and waits until the signal is delivered.
pub fn interrupt(pid: u32) {
    // The program installs the handler of SIGTERM after that of SIGINT.
    wait_until("it handles signals", || has_signal(pid, "SigCgt:", 15));
    signal(pid, "INT");
    wait_until("it has been told", || !has_signal(pid, "ShdPnd:", 2));
}

/// Returns true if a process's set of signals in proc(5)'s `status` contains this signal.
fn has_signal(pid: u32, set: &str, number: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix(set)).unwrap_or_default();
    u64::from_str_radix(mask.trim(), 16).is_ok_and(|mask| mask >> (number - 1) & 1 == 1)
}

/// Returns the number in an environment variable.
#[must_use]
pub fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// The seed of random numbers: `PENSTOCK_SEED`, or a constant.
#[must_use]
pub fn seed() -> u64 {
    number("PENSTOCK_SEED").unwrap_or(20_260_101)
}

/// Runs `test` with Penstock and with Redis.
pub fn with_both(test: impl Fn(&Server)) {
    test(&Server::penstock(&[]));
    test(&Server::oracle(&[]));
}

/// Waits for a condition, for as long as a busy machine may take.
pub fn wait_until(what: &str, is_so: impl FnMut() -> bool) {
    assert!(comes_true(is_so), "waited in vain until {what}");
}

/// Loads with `--resume` until a loader finishes. Each earlier loader is killed after a random time: before it has
/// begun, during the load, when it is done but has not reported it, or while it reports that nothing is left to do.
pub fn load_by_killed_loaders(port: u16, args: &[&str], longest_us: usize, rng: &mut Rng) -> (Ran, u64) {
    let mut killed = 0;
    loop {
        let mut child = loader(port, args).stdin(Stdio::null()).spawn().unwrap();
        // On a busy machine a loader needs longer to reach the position of the previous one.
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
