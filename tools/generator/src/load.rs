//! Plain load: runs the tests or a command, one after another, and prints their reports.

use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use client::cluster::{Cluster, NodeAddress, Slot};
use client::{Config, Connection, Encryption, Value};
use hdrhistogram::Histogram;
use serde::Serialize;

use crate::NAME;
use crate::args::{BenchArgs, Form, PIPELINING, Ratio};
use crate::failure::Failure;
use crate::generator::{
    self, Address, Distribution, Greeting, Load, Mix, NodeLoad, Numbers, Random, RunOutcome, RunProgress, Template,
};
use crate::host::{self, Process, Usage};
use crate::idle;
use crate::interrupt::Interrupt;
use crate::output_file::OutputFile;
use crate::progress::ProgressLine;
use crate::report::{Figures, Report, Setup, percentiles};
use crate::table::{self, Totals};
use crate::tests_table;
use crate::title::title;

/// Seed of the values. They are equal in every run.
const DATA_SEED: u64 = 1234;
/// Maximum size of a value (`-d`) in bytes: redis-benchmark's limit.
const DATA_BYTES_MAX: usize = 1 << 30;

/// A test that is ready to run.
struct Job {
    title: String,
    mix: Mix,
}

/// The document that `--json` prints.
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
    #[serde(skip_serializing_if = "Option::is_none")]
    zipf_exponent: Option<f64>,
    tests: Vec<Figures>,
}

/// Runs the tests or the command.
pub fn run(args: &BenchArgs, interrupt: &Interrupt) -> Result<(), Failure> {
    let config = args.server.config()?;
    if args.idle {
        return idle::run(args, &config);
    }
    let jobs = jobs(args)?;
    if args.hdr.is_some() && jobs.len() != 1 {
        return Err(Failure::Usage("--hdr needs a single test: name it by -t, --ratio or a command".to_owned()));
    }
    // An unwritable file must be reported before the measurement.
    let hdr = args.hdr.as_deref().map(OutputFile::open).transpose()?;
    let mut control = Connection::connect(&config)?;
    let load = load(args, &config)?;
    let session = BenchSession {
        args,
        setup: setup(args, &load, &mut control),
        // The process of one node says nothing about the others.
        process: if args.cluster { None } else { Process::of(&mut control) },
        load,
        server: config.address.to_string(),
        interrupt,
    };
    // From here on, Ctrl-C ends the run in order, because there are results to print.
    interrupt.end_in_order();
    session.show_nodes()?;
    let mut latencies = None;
    loop {
        session.run_all(&jobs, &mut latencies).map_err(|failure| hint(args, &config, failure))?;
        if !args.forever {
            break;
        }
    }
    match (hdr, latencies) {
        (Some(file), Some(latencies)) => file.write(&percentiles(&latencies)),
        _ => Ok(()),
    }
}

/// Explains an error that occurs if the server's options precede the name of the experiments: the name is then taken
/// for a command.
fn hint(args: &BenchArgs, config: &Config, failure: Failure) -> Failure {
    let is_the_experiments = args.command.first().is_some_and(|word| word == PIPELINING);
    match failure {
        Failure::Server(text) if is_the_experiments && text.contains("unknown command") => Failure::Server(format!(
            "{text}; for the experiments, put the server after that word: {NAME} {PIPELINING} {}",
            url(config)
        )),
        other => other,
    }
}

/// Returns a server's URL without a password.
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
        let template = Template::new(&command, &data, randomize);
        let template = if args.cluster { template.with_tags() } else { template };
        return Ok(vec![Job { title: title(&given), mix: template.into() }]);
    }
    let template = |test: &tests_table::Test| match args.cluster {
        true => test.cluster_template(&data, randomize),
        false => test.template(&data, randomize),
    };
    if let Some(Ratio { sets, gets }) = args.ratio {
        let kinds = tests_table::choose(Some("set,get")).map_err(Failure::Usage)?;
        let mix = Mix::of(kinds.into_iter().map(template).zip([sets, gets]));
        return Ok(vec![Job { title: format!("SET and GET {sets}:{gets}"), mix }]);
    }
    let chosen = tests_table::choose(args.tests.as_deref()).map_err(Failure::Usage)?;
    let job = |test: &tests_table::Test| Job { title: test.title.to_owned(), mix: template(test).into() };
    Ok(chosen.into_iter().map(job).collect())
}

/// Returns the command's words. `-x` appends standard input, which isn't part of the command's title.
fn command(args: &BenchArgs, given: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, Failure> {
    let mut words = given.to_vec();
    if args.last_from_stdin {
        if words.is_empty() {
            return Err(Failure::Usage(
                "-x needs a command; it reads the last argument from standard input".to_owned(),
            ));
        }
        let mut last = Vec::new();
        io::stdin().lock().take(DATA_BYTES_MAX as u64).read_to_end(&mut last)?;
        words.push(last);
    }
    Ok(words)
}

/// Returns the load without the request, which each test provides.
pub fn load(args: &BenchArgs, config: &Config) -> Result<Load, Failure> {
    let nodes = match args.cluster {
        true => cluster_nodes(config)?,
        false => vec![node(config, None, Vec::new())?],
    };
    // Each node needs a connection.
    let clients = args.clients.max(nodes.len() as u64);
    Ok(Load {
        nodes,
        greeting: Greeting::of(config),
        mix: Template::new(&["PING"], b"", false).into(),
        requests: args.requests,
        clients: clients as usize,
        // A thread without connections would have no work.
        threads: args.threads.min(clients) as usize,
        depth: args.depth,
        rate: args.rate,
        keep_alive: args.keep_alive == 1,
        numbers: Numbers::new(args.keyspace.unwrap_or(0), args.distribution),
        seed: args.seed,
        stop_on_error: !args.show_errors,
    })
}

fn node(config: &Config, name: Option<NodeAddress>, slots: Vec<Slot>) -> Result<NodeLoad, Failure> {
    let address = Address::resolve(&config.address);
    let address = address.map_err(|error| Failure::Server(format!("can't find {}: {error}", config.address)))?;
    Ok(NodeLoad { address, encryption: encryption(config)?, name, slots })
}

/// Returns the primaries with slots of the cluster.
fn cluster_nodes(config: &Config) -> Result<Vec<NodeLoad>, Failure> {
    let cluster = Cluster::connect(config)?;
    let map = cluster.map();
    let load_of = |name: &NodeAddress| {
        let mut config = config.clone();
        config.address = client::Address::Tcp { host: name.host.clone(), port: name.port };
        node(&config, Some(name.clone()), Slot::all().filter(|slot| map.owner(*slot) == Some(name)).collect())
    };
    let mut nodes: Vec<NodeLoad> = map.primaries().iter().map(load_of).collect::<Result<_, _>>()?;
    nodes.retain(|node| !node.slots.is_empty());
    match nodes.is_empty() {
        true => Err(Failure::Server("no node of the cluster has slots".to_owned())),
        false => Ok(nodes),
    }
}

fn encryption(config: &Config) -> Result<Option<Encryption>, Failure> {
    match &config.address {
        client::Address::Tcp { host, .. } if config.tls => Ok(Some(Encryption::new(&config.tls_options, host)?)),
        _ => Ok(None),
    }
}

fn setup(args: &BenchArgs, load: &Load, control: &mut Connection) -> Setup {
    Setup {
        clients: load.clients as u64,
        threads: load.threads as u64,
        masters: args.cluster.then_some(load.nodes.len()),
        depth: args.depth,
        data_bytes: args.data_bytes,
        keep_alive: args.keep_alive == 1,
        rate: args.rate,
        zipf_exponent: match args.distribution {
            Distribution::Uniform => None,
            Distribution::Zipf { exponent } => Some(exponent),
        },
        persistence: parameter(control, "save").zip(parameter(control, "appendonly")).map(|(a, b)| [a, b]),
        precision: usize::from(args.precision),
    }
}

/// Returns a parameter of the server's configuration. Many servers refuse CONFIG.
fn parameter(control: &mut Connection, name: &str) -> Option<String> {
    let text = |value: &Value| value.bytes().map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    match control.command(&["CONFIG", "GET", name]).ok()? {
        Value::Array(pair) => text(pair.get(1)?),
        Value::Map(pairs) => text(&pairs.first()?.1),
        _ => None,
    }
}

/// The results of a test.
struct Measured {
    outcome: RunOutcome,
    /// Resource use of the server, if its process is known.
    server: Option<Usage>,
    /// CPU time of this process.
    generator: Duration,
}

impl Measured {
    /// Adds the test to the sums. The server's time is only known if it is known for every test.
    fn add_to(&self, totals: &mut Totals) {
        let server = self.server.as_ref().and_then(Usage::known_cpu_ns).map(Duration::from_nanos);
        let before = if totals.took.is_zero() { Some(Duration::ZERO) } else { totals.server };
        totals.server = before.zip(server).map(|(before, now)| before + now);
        totals.took += self.outcome.took;
        totals.generator += self.generator;
        totals.replies += self.outcome.latencies.len();
    }
}

/// A run of the tool.
struct BenchSession<'a> {
    args: &'a BenchArgs,
    load: Load,
    setup: Setup,
    process: Option<Process>,
    server: String,
    interrupt: &'a Interrupt,
}

impl BenchSession<'_> {
    /// Prints the nodes of a cluster.
    fn show_nodes(&self) -> Result<(), Failure> {
        if !self.args.cluster || self.args.quiet || self.args.csv || self.args.json {
            return Ok(());
        }
        let mut out = io::stdout().lock();
        writeln!(out, "Cluster has {} master nodes:\n", self.load.nodes.len())?;
        for (index, node) in self.load.nodes.iter().enumerate() {
            writeln!(out, "Master {index}: {} ({} slots)", node.address, node.slots.len())?;
        }
        writeln!(out)?;
        Ok(())
    }

    /// Runs the tests and prints their reports. `latencies` gets those of the last test.
    fn run_all(&self, jobs: &[Job], latencies: &mut Option<Histogram<u64>>) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        let form = self.args.form();
        if form == Form::Csv {
            Report::write_csv_header(&mut out)?;
        }
        let (mut figures, mut totals) = (Vec::new(), Totals::default());
        for (index, job) in jobs.iter().enumerate() {
            let measured = self.measure(job)?;
            let report = self.report(job, &measured);
            match form {
                Form::Json => figures.push(report.figures()),
                Form::Csv => report.write_csv(&mut out)?,
                Form::Quiet => report.write_quiet(&mut out)?,
                Form::Full => report.write_text(&mut out)?,
                Form::Table => {
                    // A table without lines would only hide the error.
                    if index == 0 {
                        table::write_head(&mut out, &self.setup, self.load.requests)?;
                    }
                    table::write_row(&mut out, &report)?;
                }
            }
            measured.add_to(&mut totals);
            out.flush()?;
            *latencies = Some(report.outcome.latencies.clone());
            if report.outcome.interrupted {
                return Err(if self.args.json { Failure::InterruptedReport } else { Failure::Interrupted });
            }
        }
        if form == Form::Json {
            serde_json::to_writer(&mut out, &self.document(figures)).map_err(io::Error::from)?;
            writeln!(out)?;
        }
        if form == Form::Table {
            writeln!(out, "Verdict: {}", table::verdict(&totals, &self.setup))?;
        }
        Ok(())
    }

    fn report<'a>(&'a self, job: &'a Job, measured: &'a Measured) -> Report<'a> {
        Report { title: &job.title, outcome: &measured.outcome, setup: &self.setup, server: measured.server }
    }

    fn measure(&self, job: &Job) -> Result<Measured, Failure> {
        let load = Load { mix: job.mix.clone(), ..self.load.clone() };
        let (before, own_before) = (self.process.map(|process| process.usage()), host::own_cpu());
        let mut line = ProgressLine::new(&job.title, self.args.show_errors);
        let mut last = RunProgress::default();
        let outcome = generator::run(&load, self.interrupt.flag(), &mut |progress| {
            line.update(progress);
            last = progress.clone();
        });
        line.end(&last);
        let generator = host::own_cpu().saturating_sub(own_before);
        let server = self.process.zip(before).map(|(process, before)| process.usage().since(&before));
        Ok(Measured { outcome: outcome?, server, generator })
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
            zipf_exponent: self.setup.zipf_exponent,
            tests,
        }
    }
}
