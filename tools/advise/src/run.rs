//! Runs `penstock advise` from the command line to the exit status.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use advisor::Advisor;
use advisor::monitor::{LogCounts, MonitorReader};
use advisor::report::{self, Style};
use clap::Parser;
use client::{Acceptance, Config, TlsOptions};
use generator::Failure;
use signal_hook::consts::SIGINT;
use signal_hook::flag;

use crate::args::{Args, Color};
use crate::demo;
use crate::live::{self, Limits};
use crate::recording::{self, Player};
use crate::tapped;

/// The exit statuses, as listed by `--help`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exit {
    Reported = 0,
    OverLimit = 1,
    Usage = 2,
    Input = 3,
    Output = 4,
}

/// Exit status after Ctrl-C, as in shells.
const INTERRUPTED: i32 = 130;
/// Bytes per read.
const READ_BYTES: usize = 64 * 1024;

/// Counts of the input that was analysed.
#[derive(Default)]
struct Seen {
    counts: LogCounts,
    /// Batches with replies, from proxies and recordings.
    batches: u64,
}

/// The source that stands for the demonstration.
const DEMO: &str = "demo";
/// Default duration of a watch through MONITOR.
const LOOK: Duration = Duration::from_secs(10);

/// The tool's name in messages.
const NAME: &str = "penstock advise";

/// Runs the tool. `args` are the arguments after its name.
pub fn run(args: Vec<OsString>) -> ExitCode {
    let args = match Args::try_parse_from(std::iter::once(OsString::from(NAME)).chain(args)) {
        Ok(args) => args,
        Err(error) => return leave(told_by_clap(&error)),
    };
    if is_demo(&args) {
        return demonstrate(&args);
    }
    let exit = match look(&args, &watch_for_ctrl_c()) {
        Ok((advisor, seen)) => {
            remark(&seen);
            print(&args, &advisor)
        }
        Err((exit, message)) => {
            say(&message);
            exit
        }
    };
    leave(exit)
}

/// True for the word `demo`, unless a file has this name.
fn is_demo(args: &Args) -> bool {
    matches!(args.sources.as_slice(), [source] if source == DEMO) && !Path::new(DEMO).exists()
}

fn demonstrate(args: &Args) -> ExitCode {
    match demo::run(args.movies) {
        Ok(()) => leave(Exit::Reported),
        Err(failure) => {
            if !matches!(failure, Failure::OutputClosed) {
                say(&failure.to_string());
            }
            failure.exit_code()
        }
    }
}

/// Prints help or the version, or any other error of clap's as one line.
fn told_by_clap(error: &clap::Error) -> Exit {
    if error.exit_code() != 0 {
        say(&generator::usage_error(error, NAME));
        return Exit::Usage;
    }
    match error.print() {
        Err(failure) if failure.kind() != io::ErrorKind::BrokenPipe => Exit::Output,
        _ => Exit::Reported,
    }
}

fn leave(exit: Exit) -> ExitCode {
    ExitCode::from(exit as u8)
}

/// Prints a message for the user. The error of a closed standard error is ignored, because no other channel exists.
pub fn say(text: &str) {
    let _ = writeln!(io::stderr(), "{NAME}: {text}");
}

/// Returns a flag that the first Ctrl-C sets; a second one ends the process. The flag ends only the reading, and the
/// report is still printed. In a pipeline of programs the signal also reaches the writer, and its output ends.
fn watch_for_ctrl_c() -> Arc<AtomicBool> {
    let pressed = Arc::new(AtomicBool::new(false));
    // The order matters: the first signal must find the flag unset. If no handler can be installed, the signal ends the
    // process.
    let _ = flag::register_conditional_shutdown(SIGINT, INTERRUPTED, Arc::clone(&pressed));
    let _ = flag::register(SIGINT, Arc::clone(&pressed));
    pressed
}

/// Analyses the sources that the user named.
fn look(args: &Args, is_over: &AtomicBool) -> Result<(Advisor, Seen), (Exit, String)> {
    let config = advisor::Config {
        memory_bytes: (args.memory as usize) << 20,
        samples: !args.no_samples,
        ..advisor::Config::default()
    };
    let mut advisor = Advisor::new(config);
    let urls: Vec<&str> =
        args.sources.iter().filter_map(|source| source.to_str()).filter(|text| is_url(text)).collect();
    match (urls.as_slice(), args.proxy) {
        ([url], _) if args.sources.len() > 1 || args.replay.is_some() => {
            Err((Exit::Usage, format!("{} is a server; it can't be combined with other sources", shown(url))))
        }
        ([url], Some(on)) => look_as_proxy(args, url, on, advisor, is_over),
        ([url], None) => {
            let limits = Limits { time: args.look_for.unwrap_or(LOOK), commands: args.commands };
            let server = server(args, url)?;
            let counts =
                live::look(&server, limits, &mut advisor, is_over).map_err(|message| (Exit::Input, message))?;
            Ok((advisor, Seen { counts, batches: 0 }))
        }
        ([], None) => {
            let seen = look_at_files(args, &mut advisor, is_over).map_err(|message| (Exit::Input, message))?;
            Ok((advisor, seen))
        }
        ([], Some(_)) => {
            Err((Exit::Usage, "--proxy needs the URL of the server, for example redis://localhost:6379".to_owned()))
        }
        _ => Err((Exit::Usage, "only one server can be watched at a time".to_owned())),
    }
}

/// Returns the configuration of the server at a URL, including TLS.
fn server(args: &Args, url: &str) -> Result<Config, (Exit, String)> {
    let mut config = Config::parse(url).map_err(|error| (Exit::Usage, error.to_string()))?;
    config.tls_options = TlsOptions {
        ca_file: args.cacert.clone(),
        cert_file: args.cert.clone(),
        key_file: args.key.clone(),
        server_name: args.sni.clone(),
        insecure: args.insecure,
    };
    Ok(config)
}

fn is_url(source: &str) -> bool {
    source.contains("://")
}

/// Returns a URL without its user and password.
fn shown(url: &str) -> &str {
    url.rsplit('@').next().unwrap_or_default()
}

fn look_as_proxy(
    args: &Args,
    url: &str,
    on: SocketAddr,
    advisor: Advisor,
    is_over: &AtomicBool,
) -> Result<(Advisor, Seen), (Exit, String)> {
    let record = args
        .record
        .as_ref()
        .map(|path| File::create(path).map_err(|error| (Exit::Output, format!("{}: {error}", path.display()))));
    let server = server(args, url)?;
    let asked = tapped::Asked {
        server,
        on,
        encrypt: acceptance(args)?,
        rtt: args.rtt.unwrap_or_default(),
        time: args.look_for,
        record: record.transpose()?,
    };
    let (advisor, passed) = tapped::look(asked, advisor, is_over).map_err(|message| (Exit::Input, message))?;
    say(&format!("connections: {}, batches: {}", passed.connections, passed.batches));
    Ok((advisor, Seen { counts: LogCounts::default(), batches: passed.batches }))
}

/// Returns the certificate for the proxy's clients, if TLS is requested.
fn acceptance(args: &Args) -> Result<Option<Acceptance>, (Exit, String)> {
    let (Some(cert), Some(key)) = (&args.tls_cert_file, &args.tls_key_file) else { return Ok(None) };
    Acceptance::new(cert, key).map(Some).map_err(|error| (Exit::Input, error.to_string()))
}

/// Reads all inputs in order. Each is a separate log or recording.
fn look_at_files(args: &Args, advisor: &mut Advisor, is_over: &AtomicBool) -> Result<Seen, String> {
    let mut seen = Seen::default();
    let standard = OsString::from("-");
    let files: Vec<&OsString> = args.sources.iter().chain(&args.replay).collect();
    let files = if files.is_empty() { vec![&standard] } else { files };
    for file in files {
        look_at(file, advisor, is_over, &mut seen)
            .map_err(|error| format!("{}: {error}{}", file.display(), remedy(file, &error)))?;
    }
    Ok(seen)
}

/// Returns the end of the message for a missing file that may be a misspelt `demo`.
fn remedy(file: &OsStr, error: &io::Error) -> String {
    let is_meant =
        error.kind() == io::ErrorKind::NotFound && file.to_str().is_some_and(|word| generator::is_similar(word, DEMO));
    if is_meant { format!("; did you mean '{NAME} {DEMO}'?") } else { String::new() }
}

fn look_at(file: &OsStr, advisor: &mut Advisor, is_over: &AtomicBool, seen: &mut Seen) -> io::Result<()> {
    if file == "-" {
        if io::stdin().is_terminal() {
            say("reading MONITOR output from standard input; Ctrl-D ends it (see penstock advise --help)");
        }
        return read(&mut io::stdin().lock(), advisor, is_over, seen);
    }
    read(&mut File::open(file)?, advisor, is_over, seen)
}

/// Reads a log or a recording to its end, or until `is_over` is set.
fn read(input: &mut impl Read, advisor: &mut Advisor, is_over: &AtomicBool, seen: &mut Seen) -> io::Result<()> {
    let mut start = Vec::new();
    input.by_ref().take(recording::HEAD.len() as u64).read_to_end(&mut start)?;
    if start == recording::HEAD {
        let mut player = Player::new(advisor);
        player.read(&start, input)?;
        seen.batches += player.trips;
        seen.counts.skipped += player.skipped;
        return Ok(());
    }
    let (mut reader, mut buffer) = (MonitorReader::new(), vec![0; READ_BYTES]);
    reader.feed(&start, advisor);
    while !is_over.load(Ordering::Relaxed) {
        match input.read(&mut buffer) {
            Ok(0) => break,
            Ok(len) => reader.feed(buffer.get(..len).unwrap_or_default(), advisor),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    reader.end(advisor);
    let counts = reader.counts();
    seen.counts.commands += counts.commands;
    seen.counts.skipped += counts.skipped;
    seen.counts.is_without_sources |= counts.is_without_sources;
    Ok(())
}

/// Warns about an input without commands, with unreadable lines, or without connection addresses.
fn remark(seen: &Seen) {
    let Seen { counts, batches } = seen;
    if counts.commands + batches == 0 {
        say("there were no commands");
    } else if counts.skipped > counts.commands + batches {
        say(&format!("{} lines were not client commands, {} were", counts.skipped, counts.commands + batches));
    }
    if counts.is_without_sources {
        say("the log doesn't distinguish connections; commands that several clients sent in turn may look like a loop");
    }
}

/// Prints the report, and checks the lost time against `--fail-over`.
fn print(args: &Args, advisor: &Advisor) -> Exit {
    let findings = advisor.findings();
    let text = if args.json { report::json(&findings) } else { report::text(&findings, &style(args)) };
    let mut output = io::stdout().lock();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            say(&format!("can't write to standard output: {error}"));
            return Exit::Output;
        }
        _ => {}
    }
    if let Some(path) = &args.html
        && let Err(error) = std::fs::write(path, report::html(&findings, &source(args)))
    {
        say(&format!("{}: {error}", path.display()));
        return Exit::Output;
    }
    let lost_ns: u64 = findings.groups().iter().map(|group| group.total.lost_ns()).sum();
    match args.fail_over {
        Some(limit) if u128::from(lost_ns) > limit.as_nanos() => {
            say(&format!("{} lost, more than --fail-over allows", report::duration(lost_ns)));
            Exit::OverLimit
        }
        _ => Exit::Reported,
    }
}

/// Returns the name of the source for the title of the page.
fn source(args: &Args) -> String {
    let name = |source: &OsString| {
        let text = source.to_string_lossy();
        if is_url(&text) { shown(&text).to_owned() } else { text.into_owned() }
    };
    let names: Vec<String> = args.sources.iter().chain(&args.replay).map(name).collect();
    if names.is_empty() { "standard input".to_owned() } else { names.join(", ") }
}

fn style(args: &Args) -> Style {
    let colour = match args.color {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
    };
    let findings_max = if args.count == 0 { usize::MAX } else { args.count };
    Style { colour, findings_max, language: args.code, ..Style::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the MONITOR log of the movie script.
    fn movies(count: u32) -> String {
        let (mut log, mut us) = (String::new(), 0_u64);
        let mut line = |command: String| {
            us += 60;
            log += &format!("{}.{:06} [0 127.0.0.1:5000] {command}\n", 1_600_000_000 + us / 1_000_000, us % 1_000_000);
        };
        for movie in 1..=count {
            let name = format!("The Number{movie}");
            for word in ["the".to_owned(), format!("number{movie}")] {
                for len in 2..=word.len() {
                    let key = format!("testing:redis:index:{}", &word[..len]);
                    line(format!("\"zscore\" \"{key}\" \"{name}\""));
                    line(format!("\"zadd\" \"{key}\" \"0\" \"{name}\""));
                }
            }
            line(format!("\"hset\" \"testing:redis:data:Number{movie}\" \"{name}\" \"This is Number {movie}\""));
        }
        log
    }

    #[test]
    fn the_movie_script_is_explained() {
        let mut advisor = Advisor::new(advisor::Config::default());
        let mut seen = Seen::default();
        read(&mut movies(10_000).as_bytes(), &mut advisor, &AtomicBool::new(false), &mut seen).unwrap();
        assert_eq!((seen.counts.commands, seen.counts.skipped), (227_788, 0));
        let style = Style { language: Some(advisor::advice::Language::Ruby), ..Style::default() };
        let text = report::text(&advisor.findings(), &style);
        // Long lines are wrapped, so the comparison ignores line breaks.
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for part in [
            "for example testing:redis:index:",
            "if the answers agree: 108,894 reads where 10,000 would do, 98,894 too many",
            "-> ask once and keep the answer",
            "value = redis.zscore(\"testing:redis:index:#{word}\", member)",
            "ZSCORE testing:redis:index:<word>, ZADD testing:redis:index:<word> in turn, then HSET",
            "-> a pipeline for each stage: first all reads, then all writes",
            "pipe.zadd(\"testing:redis:index:#{word}\", score, member)",
        ] {
            assert!(words.contains(part), "{part}\n{text}");
        }
        assert!(text.lines().count() <= 40, "{text}");
    }
}
