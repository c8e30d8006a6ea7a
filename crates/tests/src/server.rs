//! Starts and stops servers, each with a port and a directory of its own, which is removed when the test ends.

use crate::conn::Conn;
use crate::hanging_disk::HangingDisk;
use crate::ports::free_port;
use crate::reply::Reply;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use std::{env, fs, io, process, thread};

/// Longest time for a server to answer its first PING.
const START_MAX: Duration = Duration::from_secs(20);

/// Number of attempts to start a server. An attempt fails if another process has taken the port that was free a moment
/// before.
const START_TRIES: usize = 5;

/// A running server. Dropping it kills the process and removes the directory.
pub struct Server {
    child: Child,
    port: u16,
    dir: PathBuf,
    /// True if the test has ended the process: its end then needs no explanation.
    killed: bool,
    /// The parameters of the start, for a restart.
    start: Start,
}

/// The parameters of a start.
struct Start {
    program: PathBuf,
    args: Vec<String>,
    /// Shell commands or variables before the server's command.
    before: Option<String>,
}

impl Server {
    /// Starts the server under test: `PENSTOCK_BIN`, or the workspace's binary. `args` follow redis.conf's directives.
    pub fn penstock(args: &[&str]) -> Server {
        Server::start(subject_program(), args, None)
    }

    /// Starts the server under test; it may still be loading its data.
    pub fn penstock_that_loads(args: &[&str]) -> Server {
        let start = || Server::spawn(subject_program(), args, None).and_then(|server| server.wait_for_reply(|_| true));
        Server::try_often(subject_program(), start)
    }

    /// Starts the oracle: `PENSTOCK_ORACLE`, or `redis-server` from `PATH`.
    pub fn oracle(args: &[&str]) -> Server {
        Server::start(oracle_program(), args, None)
    }

    /// Starts Redis 8, for commands that the oracle doesn't know: `PENSTOCK_REDIS8`, or `redis8-server` from `PATH`.
    /// Returns None if it isn't installed; the test then prints this and compares nothing.
    pub fn redis8(args: &[&str]) -> Option<Server> {
        Server::newer("PENSTOCK_REDIS8", "redis8-server", args)
    }

    /// Starts Valkey 9, in the same way: `PENSTOCK_VALKEY9`, or `valkey-server`.
    pub fn valkey9(args: &[&str]) -> Option<Server> {
        Server::newer("PENSTOCK_VALKEY9", "valkey-server", args)
    }

    fn newer(variable: &str, name: &str, args: &[&str]) -> Option<Server> {
        let program = env::var_os(variable).map_or_else(|| PathBuf::from(name), PathBuf::from);
        let runs = Command::new(&program).arg("--version").stdout(Stdio::null()).status();
        if !runs.is_ok_and(|status| status.success()) {
            eprintln!("not compared: {} does not run; set {variable} to a program that does", program.display());
            return None;
        }
        Some(Server::start(&program, args, None))
    }

    /// Starts the server under test with at most `open_files` file descriptors.
    pub fn penstock_with_open_files(args: &[&str], open_files: u32) -> Server {
        Server::start(subject_program(), args, Some(&format!("ulimit -n {open_files} &&")))
    }

    /// Starts the server under test with a limit of `blocks` blocks of 512 bytes for each file, so that its disk seems
    /// to be full. The limit can be lifted from outside.
    pub fn penstock_with_small_files(args: &[&str], blocks: u32) -> Server {
        Server::start(subject_program(), args, Some(&format!("ulimit -S -f {blocks} &&")))
    }

    /// Starts the server under test with a limit of its address space, in KiB.
    pub fn penstock_with_address_space(args: &[&str], kib: u32) -> Server {
        Server::start(subject_program(), args, Some(&format!("ulimit -v {kib} &&")))
    }

    /// Starts the server under test on a disk that a test can make hang.
    pub fn penstock_on(args: &[&str], disk: &HangingDisk) -> Server {
        Server::start(subject_program(), args, Some(&disk.environment()))
    }

    /// Starts a server. `before` holds shell commands or variables before the server's command.
    fn start(program: &Path, args: &[&str], before: Option<&str>) -> Server {
        // With a password, any error means that the server is ready.
        let is_ready = |reply: &Reply| !reply.text().starts_with(b"LOADING");
        let start = || Server::spawn(program, args, before).and_then(|server| server.wait_for_reply(is_ready));
        Server::try_often(program, start)
    }

    fn try_often(program: &Path, start: impl Fn() -> Result<Server, String>) -> Server {
        let mut trouble = String::new();
        for _ in 0..START_TRIES {
            match start() {
                Ok(server) => return server,
                Err(text) => trouble = text,
            }
        }
        panic!("{} does not start: {trouble}", program.display());
    }

    fn spawn(program: &Path, args: &[&str], before: Option<&str>) -> Result<Server, String> {
        let port = free_port().map_err(|e| format!("no free port: {e}"))?;
        let dir = fresh_dir().map_err(|e| format!("no directory: {e}"))?;
        let start = Start {
            program: program.to_path_buf(),
            args: args.iter().map(|&arg| arg.to_owned()).collect(),
            before: before.map(str::to_owned),
        };
        let child = start.launch(port, &dir)?;
        Ok(Server { child, port, dir, killed: false, start })
    }

    /// Restarts the server after [`Server::kill`], with the same arguments, port and directory.
    pub fn restart(&mut self) {
        self.child = self.start.launch(self.port, &self.dir).unwrap_or_else(|why| panic!("it does not start: {why}"));
        self.killed = false;
        self.answers(|_| true).unwrap_or_else(|why| panic!("it does not start: {why}"));
    }

    /// The program that it runs.
    pub fn program(&self) -> &Path {
        &self.start.program
    }

    /// Has the next [`Server::restart`] start another program, with the same arguments, port and directory.
    pub fn change_program(&mut self, program: &Path) {
        self.start.program = program.to_path_buf();
    }

    /// Waits until PING has an acceptable reply.
    fn wait_for_reply(mut self, will_do: impl Fn(&Reply) -> bool) -> Result<Server, String> {
        self.answers(will_do).map(|()| self)
    }

    fn answers(&mut self, will_do: impl Fn(&Reply) -> bool) -> Result<(), String> {
        let start = Instant::now();
        while start.elapsed() < START_MAX {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(format!("it ended with {status}:\n{}", self.log()));
            }
            // The connection must be closed before the test counts connections.
            let asked = Conn::open(self.port).and_then(|mut conn| {
                let reply = conn.cmd("PING")?;
                conn.send(b"QUIT\r\n")?;
                // A sentinel doesn't know this command, and may then have one connection more.
                if !conn.read()?.is_error() {
                    conn.read_to_close()?;
                }
                Ok(reply)
            });
            if asked.is_ok_and(|reply| will_do(&reply)) {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(10));
        }
        Err(format!("no answer within {START_MAX:?}:\n{}", self.log()))
    }

    /// The port, at 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Opens a connection.
    pub fn connect(&self) -> Conn {
        Conn::open(self.port).unwrap_or_else(|e| panic!("cannot connect to the server: {e}\n{}", self.log()))
    }

    /// The server's output.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }

    /// Kills the process immediately (SIGKILL).
    pub fn kill(&mut self) {
        self.killed = true;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Waits for the end of the process, which the test has caused.
    pub fn wait_until_ended(&mut self) {
        self.killed = true;
        assert!(comes_true(|| !self.is_alive()), "the server goes on:\n{}", self.log());
    }

    /// Lifts the limit of the file size, as if the disk had room again.
    pub fn lift_file_limit(&self) {
        let pid = self.pid().to_string();
        let status = Command::new("prlimit").args(["--fsize=unlimited", "--pid", &pid]).status().unwrap();
        assert!(status.success());
    }

    /// True while the process runs.
    pub fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Resident memory of the process in KiB (`VmRSS` of proc(5)).
    pub fn resident_kib(&self) -> u64 {
        self.status_kib("VmRSS:")
    }

    /// Peak of the resident memory in KiB since `forget_peak`.
    pub fn resident_peak_kib(&self) -> u64 {
        self.status_kib("VmHWM:")
    }

    /// Resets the peak to the current value.
    pub fn forget_peak(&self) {
        // proc(5): 5 resets the peak.
        fs::write(format!("/proc/{}/clear_refs", self.pid()), "5")
            .expect("the process's memory is its starter's to ask");
    }

    fn status_kib(&self, field: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap_or_default();
        let line = status.lines().find(|line| line.starts_with(field)).unwrap_or("");
        line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).unwrap_or(0)
    }

    /// CPU time of the process, in clock ticks of a hundredth of a second.
    pub fn cpu_ticks(&self) -> u64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap_or_default();
        // utime and stime are the fields 14 and 15. The second field, in parentheses, may contain blanks.
        let fields = stat.rsplit_once(") ").map_or("", |(_, rest)| rest).split(' ').skip(11).take(2);
        fields.filter_map(|n| n.parse::<u64>().ok()).sum()
    }

    /// The open unlinked files of the process, with the bytes of disk that each takes.
    pub fn nameless_files(&self) -> Vec<u64> {
        use std::os::unix::fs::MetadataExt;
        let fds = fs::read_dir(format!("/proc/{}/fd", self.pid())).into_iter().flatten().flatten();
        let is_nameless =
            |path: &PathBuf| fs::read_link(path).is_ok_and(|target| target.to_string_lossy().ends_with(" (deleted)"));
        let paths = fds.map(|entry| entry.path()).filter(is_nameless);
        paths.filter_map(|path| fs::metadata(path).ok()).map(|file| file.blocks() * 512).collect()
    }

    /// The working directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// One figure of INFO, or 0 if it is missing.
    pub fn figure(&self, name: &str) -> u64 {
        let info = self.connect().cmd("INFO").map(|reply| String::from_utf8_lossy(reply.text()).into_owned());
        let info = info.unwrap_or_default();
        let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        value.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
    }

    /// Waits for a condition, for as long as a busy machine may take.
    pub fn wait_until(&self, what: &str, mut holds: impl FnMut(&Server) -> bool) {
        assert!(comes_true(|| holds(self)), "waited in vain until {what}\n{}", self.log());
    }
}

impl Start {
    fn launch(&self, port: u16, dir: &Path) -> Result<Child, String> {
        let log = fs::File::options().create(true).append(true).open(dir.join("log"));
        let log = log.map_err(|e| format!("no log: {e}"))?;
        let mut command = match &self.before {
            None => Command::new(&self.program),
            Some(before) => {
                let mut shell = Command::new("sh");
                shell.args(["-c", &format!("{before} exec \"$0\" \"$@\"")]).arg(&self.program);
                shell
            }
        };
        if is_penstock(&self.program) {
            command.arg("server");
        }
        let errors = log.try_clone().map_err(|e| format!("no log: {e}"))?;
        // A configuration file precedes all options.
        let is_file = self.args.first().is_some_and(|arg| !arg.starts_with("--"));
        let (file, options) = self.args.split_at(usize::from(is_file));
        command
            .args(file)
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""])
            .args(options)
            .current_dir(dir)
            // Redis's SORT ALPHA follows the locale; the tests compare with the order of bytes.
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .spawn()
            .map_err(|e| e.to_string())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if !self.killed && !self.is_alive() {
            eprintln!("the server on port {} has ended by itself:\n{}", self.port, self.log());
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Checks a condition repeatedly, for some twenty seconds on an idle machine. The limit is a number of checks, not a
/// time: on a busy machine each check takes longer, and so does the awaited event.
pub fn comes_true(mut holds: impl FnMut() -> bool) -> bool {
    const LOOKS_MAX: usize = 4000;
    (0..LOOKS_MAX).any(|look| {
        if look > 0 {
            thread::sleep(Duration::from_millis(5));
        }
        holds()
    })
}

fn fresh_dir() -> io::Result<PathBuf> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let name = format!("penstock-tests-{}-{}", process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let dir = env::temp_dir().join(name);
    fs::create_dir_all(&dir)?;
    Ok(dir)
}

/// True if the server under test is Penstock, and not another server that a developer has chosen.
pub fn subject_is_penstock() -> bool {
    is_penstock(subject_program())
}

fn is_penstock(program: &Path) -> bool {
    program.file_name().is_some_and(|name| name.to_string_lossy().starts_with("penstock"))
}

fn oracle_program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let program = env::var_os("PENSTOCK_ORACLE").map_or_else(|| PathBuf::from("redis-server"), PathBuf::from);
        let found = Command::new(&program).arg("--version").stdout(Stdio::null()).status();
        assert!(
            found.is_ok_and(|status| status.success()),
            "{} does not run, and these tests compare with it. On Debian: apt-get install redis-server",
            program.display()
        );
        program
    })
}

/// The server under test: `PENSTOCK_BIN`, or the workspace's binary, built when needed.
pub fn subject_program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| env::var_os("PENSTOCK_BIN").map_or_else(build, PathBuf::from))
}

/// Builds Penstock in the profile of this test, so that tests never use a stale binary. Quick if the binary is up to
/// date.
fn build() -> PathBuf {
    let profile_dir = profile_dir();
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--quiet", "--package", "penstock", "--manifest-path"]).arg(workspace_manifest());
    if let Some(target_dir) = profile_dir.parent() {
        cargo.arg("--target-dir").arg(target_dir);
    }
    if profile_dir.ends_with("release") {
        cargo.arg("--release");
    }
    assert!(cargo.status().is_ok_and(|status| status.success()), "penstock does not build: {cargo:?}");
    profile_dir.join("penstock")
}

/// Returns `target/debug` for `target/debug/deps/this-test`.
fn profile_dir() -> PathBuf {
    let exe = env::current_exe().expect("a running program has a path");
    exe.parent().and_then(Path::parent).expect("cargo puts tests into target/PROFILE/deps").to_path_buf()
}

fn workspace_manifest() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.toml")
}
