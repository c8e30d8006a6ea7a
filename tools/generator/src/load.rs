//! Plain load: the tests or a command, one after another, and their reports.

use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;

use client::{Config, Connection, Encryption, Value};
use serde::Serialize;

use crate::NAME;
use crate::args::{BenchArgs, PIPELINING};
use crate::failure::Failure;
use crate::generator::{self, Address, Greeting, Load, Random, RunOutcome, RunProgress, Template};
use crate::host::Process;
use crate::idle;
use crate::interrupt::Interrupt;
use crate::progress::ProgressLine;
use crate::report::{Figures, Report, Setup};
use crate::tests_table;
use crate::title::title;

/// Seed of the values, which are the same in every run.
const DATA_SEED: u64 = 1234;
/// Largest value that `-d` gives, in bytes: redis-benchmark's limit.
const DATA_BYTES_MAX: usize = 1 << 30;

/// A test that is ready to run.
struct Job {
    title: String,
    template: Template,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Document {
    program: &'static str,
    version: &'static str,
    server: String,
    clients: u64,
    threads: u64,
    pipeline_depth: u64,
    data_bytes: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate: Option<f64>,
    tests: Vec<Figures>,
}

/// Runs what the arguments ask for.
pub fn run(args: &BenchArgs, interrupt: &Interrupt) -> Result<(), Failure> {
    let config = args.server.config()?;
    if args.idle {
        return idle::run(args, &config);
    }
    let jobs = jobs(args)?;
    let mut control = Connection::connect(&config)?;
    let session = BenchSession {
        args,
        load: load(args, &config)?,
        setup: setup(args, &mut control),
        process: Process::of(&mut control),
        server: config.address.to_string(),
        interrupt,
    };
    // From here on there is something to tell after Ctrl-C.
    interrupt.end_in_order();
    loop {
        session.run_all(&jobs).map_err(|failure| hint(args, &config, failure))?;
        if !args.forever {
            return Ok(());
        }
    }
}

/// Explains the error if the server's options stand before the name of the experiments, which makes it a command.
fn hint(args: &BenchArgs, config: &Config, failure: Failure) -> Failure {
    let is_the_experiments = args.command.first().is_some_and(|word| word == PIPELINING);
    match failure {
        Failure::Server(text) if is_the_experiments && text.contains("unknown command") => Failure::Server(format!(
            "{text}; for the experiments, name the server behind that word: {NAME} {PIPELINING} {}",
            url(config)
        )),
        other => other,
    }
}

/// A server's URL, without a password.
fn url(config: &Config) -> String {
    match &config.address {
        client::Address::Tcp { .. } => format!("redis://{}", config.address),
        client::Address::Unix(path) => format!("unix://{}", path.display()),
    }
}

fn jobs(args: &BenchArgs) -> Result<Vec<Job>, Failure> {
    if args.data_bytes > DATA_BYTES_MAX {
        return Err(Failure::Usage(format!("-d is at most {DATA_BYTES_MAX} bytes")));
    }
    let data = Random::new(DATA_SEED).letters(args.data_bytes);
    let randomize = args.keyspace.is_some();
    let given: Vec<Vec<u8>> = args.command.iter().map(|word| word.as_bytes().to_vec()).collect();
    let command = command(args, &given)?;
    if !command.is_empty() {
        return Ok(vec![Job { title: title(&given), template: Template::new(&command, &data, randomize) }]);
    }
    let chosen = tests_table::choose(args.tests.as_deref()).map_err(Failure::Usage)?;
    let job =
        |test: &tests_table::Test| Job { title: test.title.to_owned(), template: test.template(&data, randomize) };
    Ok(chosen.into_iter().map(job).collect())
}

/// The words that were given, and with `-x` what standard input adds, which is no part of the command's title.
fn command(args: &BenchArgs, given: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, Failure> {
    let mut words = given.to_vec();
    if args.last_from_stdin {
        if words.is_empty() {
            return Err(Failure::Usage("-x needs a command whose last argument it is to read".to_owned()));
        }
        let mut last = Vec::new();
        io::stdin().lock().take(DATA_BYTES_MAX as u64).read_to_end(&mut last)?;
        words.push(last);
    }
    Ok(words)
}

/// What is sent, but for the request, which is each test's own.
pub fn load(args: &BenchArgs, config: &Config) -> Result<Load, Failure> {
    let address = Address::resolve(&config.address);
    Ok(Load {
        address: address.map_err(|error| Failure::Server(format!("can't find {}: {error}", config.address)))?,
        encryption: encryption(config)?,
        greeting: Greeting::of(config),
        template: Template::new(&["PING"], b"", false),
        requests: args.requests,
        clients: args.clients as usize,
        // A thread without a connection has nothing to do.
        threads: args.threads.min(args.clients) as usize,
        depth: args.depth,
        rate: args.rate,
        keep_alive: args.keep_alive == 1,
        numbers: args.keyspace.unwrap_or(0),
        seed: args.seed,
        stop_on_error: !args.show_errors,
    })
}

fn encryption(config: &Config) -> Result<Option<Encryption>, Failure> {
    match &config.address {
        client::Address::Tcp { host, .. } if config.tls => Ok(Some(Encryption::new(&config.tls_options, host)?)),
        _ => Ok(None),
    }
}

fn setup(args: &BenchArgs, control: &mut Connection) -> Setup {
    Setup {
        clients: args.clients,
        threads: args.threads.min(args.clients),
        depth: args.depth,
        data_bytes: args.data_bytes,
        keep_alive: args.keep_alive == 1,
        rate: args.rate,
        persistence: parameter(control, "save").zip(parameter(control, "appendonly")).map(|(a, b)| [a, b]),
        precision: usize::from(args.precision),
    }
}

/// A parameter of the server's configuration; many servers keep it to themselves.
fn parameter(control: &mut Connection, name: &str) -> Option<String> {
    let text = |value: &Value| value.bytes().map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    match control.command(&["CONFIG", "GET", name]).ok()? {
        Value::Array(pair) => text(pair.get(1)?),
        Value::Map(pairs) => text(&pairs.first()?.1),
        _ => None,
    }
}

/// One run of the tool.
struct BenchSession<'a> {
    args: &'a BenchArgs,
    load: Load,
    setup: Setup,
    process: Option<Process>,
    server: String,
    interrupt: &'a Interrupt,
}

impl BenchSession<'_> {
    fn run_all(&self, jobs: &[Job]) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        if self.args.csv {
            Report::write_csv_header(&mut out)?;
        }
        let mut figures = Vec::new();
        for job in jobs {
            let report = self.measure(job)?;
            let report = self.report(job, &report);
            match (self.args.json, self.args.csv, self.args.quiet) {
                (true, _, _) => figures.push(report.figures()),
                (_, true, _) => report.write_csv(&mut out)?,
                (_, _, true) => report.write_quiet(&mut out)?,
                _ => report.write_text(&mut out)?,
            }
            out.flush()?;
            if report.outcome.interrupted {
                return Err(if self.args.json { Failure::InterruptedReport } else { Failure::Interrupted });
            }
        }
        if self.args.json {
            serde_json::to_writer(&mut out, &self.document(figures)).map_err(io::Error::from)?;
            writeln!(out)?;
        }
        Ok(())
    }

    fn report<'a>(&'a self, job: &'a Job, measured: &'a (RunOutcome, Option<crate::host::Usage>)) -> Report<'a> {
        Report { title: &job.title, outcome: &measured.0, setup: &self.setup, server: measured.1 }
    }

    fn measure(&self, job: &Job) -> Result<(RunOutcome, Option<crate::host::Usage>), Failure> {
        let load = Load { template: job.template.clone(), ..self.load.clone() };
        let before = self.process.map(|process| process.usage());
        let mut line = ProgressLine::new(&job.title, self.args.show_errors);
        let mut last = RunProgress::default();
        let outcome = generator::run(&load, self.interrupt.flag(), &mut |progress| {
            line.update(progress);
            last = progress.clone();
        });
        line.end(&last);
        let used = self.process.zip(before).map(|(process, before)| process.usage().since(&before));
        Ok((outcome?, used))
    }

    fn document(&self, tests: Vec<Figures>) -> Document {
        Document {
            program: NAME,
            version: env!("CARGO_PKG_VERSION"),
            server: self.server.clone(),
            clients: self.setup.clients,
            threads: self.setup.threads,
            pipeline_depth: self.setup.depth,
            data_bytes: self.setup.data_bytes,
            rate: self.setup.rate,
            tests,
        }
    }
}
