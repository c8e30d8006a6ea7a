//! Runs `penstock load` from the command line to the exit status.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, IsTerminal, Seek, SeekFrom, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::args::{LoadOptions, ResumeOptions};
use crate::block_channel::{BlockChannel, Taken};
use crate::cluster;
use crate::complete::{LoadOutcome, now_s, say_again};
use crate::exit::{Exit, Failure};
use crate::flight::{Flight, Witness};
use crate::interrupt::Interrupt;
use crate::limits::ARGS_MAX;
use crate::merge::Merging;
use crate::plan::Plan;
use crate::progress::{Figures, ProgressDisplay, count, say};
use crate::report::{Report, Sink, cannot_write};
use crate::session::{LoadSession, Resumable, connect, end_token};
use crate::source::{Tally, is_same_file};
use crate::state::{Phase, StateFile, default_path};
use crate::transaction;
use crate::transfer::Load;

/// Maximum number of errors on a terminal. A report in a file or a pipe contains all.
const ERRORS_SHOWN_MAX: u64 = 100;

/// Runs the tool. `args` are the arguments after its name.
pub fn run(args: Vec<std::ffi::OsString>) -> ExitCode {
    let options = match crate::args::parse(args) {
        Ok(Ok(options)) => options,
        Ok(Err(failure)) => return leave(Err(failure)),
        Err(error) if error.exit_code() == 0 => return answer(&error),
        Err(error) => return leave(Err(Failure::new(Exit::Usage, one_line(&error)))),
    };
    leave(match options.dry_run {
        true => dry_run(&options),
        false if options.cluster => cluster::load(&options),
        false => load(options),
    })
}

/// Prints help or the version. `head` and others may close the pipe early, which is no failure.
fn answer(text: &clap::Error) -> ExitCode {
    match text.print() {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            say(&format!("can't write to standard output: {error}"));
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}

/// Returns clap's message on one line, without its usage text.
fn one_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let first = text.split("\n\n").next().unwrap_or_default();
    let words: Vec<&str> = first.trim_start_matches("error: ").split_whitespace().collect();
    format!("{}{}; see penstock load --help", words.join(" "), suggestion(error))
}

/// Returns the end of the message for a misspelt option: the similar one that clap found.
fn suggestion(error: &clap::Error) -> String {
    match error.get(clap::error::ContextKind::SuggestedArg) {
        Some(clap::error::ContextValue::String(option)) => format!(" (did you mean '{option}'?)"),
        _ => String::new(),
    }
}

fn leave(result: Result<Exit, Failure>) -> ExitCode {
    let exit = result.unwrap_or_else(|failure| {
        say(&failure.message);
        failure.exit
    });
    ExitCode::from(exit as u8)
}

/// Starts the thread that reads. The tally counts the bytes read.
pub(crate) fn start_reading(
    plan: &Plan,
    merging: Merging,
    args_max: u64,
    repeatable: bool,
) -> Result<(Arc<BlockChannel>, Arc<Tally>), Failure> {
    let (block_channel, tally) = (Arc::new(BlockChannel::new()?), Arc::new(Tally::default()));
    let (plan, putter, counter) = (plan.clone(), block_channel.clone(), tally.clone());
    // The thread isn't joined. It may wait for a pipe without end, and ends with the process.
    let started = std::thread::Builder::new()
        .name("reader".to_owned())
        .spawn(move || plan.read(&putter, counter, merging, args_max, repeatable));
    started.map_err(|error| Failure::new(Exit::Input, format!("can't start a thread: {error}")))?;
    Ok((block_channel, tally))
}

/// `--dry-run`: counts commands, and reports invalid lines and a transaction without an end.
fn dry_run(options: &LoadOptions) -> Result<Exit, Failure> {
    options.plan.check()?;
    let (block_channel, _) = start_reading(&options.plan, Merging::default(), ARGS_MAX, false)?;
    let mut progress = start_progress(options);
    let mut report = Report::new(sink(options, &progress, false)?, options.plan.names());
    let (mut figures, mut open, mut is_unended) = (Figures::default(), None, false);
    let end = loop {
        match block_channel.take() {
            Taken::Block(block) => {
                block.rejected().iter().for_each(|rejected| report.rejected(block.input, rejected));
                figures.commands += block.len() as u64;
                open = transaction::follow(open, &block, 0, block.len());
                figures.input_bytes = block.input_bytes;
                block_channel.give_back(block);
            }
            Taken::Nothing => block_channel.wait(),
            Taken::End(end) => {
                if let (Ok(()), Some(open)) = (&end, open) {
                    is_unended = true;
                    report.unended(&open.given_up(figures.commands));
                }
                break end;
            }
        }
        figures.errors = report.errors();
        report.flush()?;
        progress.show(Instant::now(), figures);
        if options.stop_on_error && report.errors() > 0 {
            break Ok(());
        }
    };
    report.flush()?;
    progress.finish();
    say_unshown(&report);
    let mut text = format!("{}, {}", count(figures.commands, "command"), rejected(&report));
    let discarded = report.failures() - u64::from(is_unended);
    if discarded > 0 {
        text += &format!(", {} discarded", count(discarded, "transaction"));
    }
    if is_unended {
        text += ", 1 transaction without an end";
    }
    summary(options.quiet, &format!("{text}; nothing was sent"));
    end.map(|()| status(&report))
}

/// Starts the progress display. If the input is typed, it prints a notice.
pub(crate) fn start_progress(options: &LoadOptions) -> ProgressDisplay {
    let is_typed = options.plan.reads_stdin() && io::stdin().is_terminal();
    if is_typed && !options.quiet {
        say("reading commands from standard input, one per line; Ctrl-D ends the input (see penstock load --help)");
    }
    ProgressDisplay::new(options.plan.total_bytes(), options.quiet, is_typed)
}

fn rejected(report: &Report) -> String {
    format!("{} rejected", count(report.rejections(), "line"))
}

fn status(report: &Report) -> Exit {
    if report.errors() > 0 { Exit::SomeFailed } else { Exit::Complete }
}

pub(crate) fn say_unshown(report: &Report) {
    if let Some(text) = report.unshown() {
        say(&text);
    }
}

/// Prints a line on standard output. A closed standard output is no failure.
pub(crate) fn summary(quiet: bool, text: &str) {
    if !quiet {
        let _ = writeln!(io::stdout(), "{text}");
    }
}

/// Opens the destination of errors. `append` keeps the errors of an earlier run of the same load.
pub(crate) fn sink(options: &LoadOptions, progress: &ProgressDisplay, append: bool) -> Result<Sink, Failure> {
    let Some(path) = &options.errors else {
        // Thousands of errors on a terminal are of no use.
        let shown_max = if io::stderr().is_terminal() { ERRORS_SHOWN_MAX } else { u64::MAX };
        return Ok(Sink::Stderr { bar: progress.bar(), shown_max });
    };
    let name = path.display().to_string();
    refuse_input(path, &options.plan, "the report of errors")?;
    let mut open = OpenOptions::new();
    let opened = open.read(append).write(true).create(true).truncate(!append).open(path);
    let mut file = opened.map_err(|error| cannot_write(&name, &error))?;
    if append {
        drop_torn_line(&mut file).map_err(|error| cannot_write(&name, &error))?;
    }
    Ok(Sink::File { file: BufWriter::new(file), name })
}

/// Refuses an output file that is also an input. The error calls the file `output`.
fn refuse_input(path: &Path, plan: &Plan, output: &str) -> Result<(), Failure> {
    if plan.sources.iter().any(|source| source.origin.is_file_at(path)) {
        let name = path.display();
        let text = format!("{name} is an input, and {output} would overwrite it: name another file");
        return Err(Failure::new(Exit::Usage, text));
    }
    Ok(())
}

/// Removes an incomplete last line that a killed loader left, and positions the file at its end.
fn drop_torn_line(file: &mut File) -> io::Result<()> {
    /// Longer than any line of the report.
    const LINE_BYTES_MAX: u64 = 64 << 10;
    let length = file.seek(SeekFrom::End(0))?;
    if length == 0 || !file.metadata()?.is_file() {
        return Ok(());
    }
    let from = length.saturating_sub(LINE_BYTES_MAX);
    file.seek(SeekFrom::Start(from))?;
    let mut tail = Vec::new();
    io::Read::read_to_end(file, &mut tail)?;
    let whole = memchr::memrchr(b'\n', &tail).map_or(0, |end| end + 1);
    file.set_len(from + whole as u64)?;
    file.seek(SeekFrom::End(0)).map(drop)
}

/// Returns the input and line of the last error in the report of an earlier run.
pub(crate) fn last_reported(path: &Path, plan: &Plan) -> Option<(usize, u64)> {
    let names = plan.names();
    // An input may be named twice. Errors are in input order, so an error before the previous one belongs to the next
    // pass.
    let place = |line: &[u8], last: Option<(usize, u64)>| {
        let text = String::from_utf8_lossy(line).into_owned();
        let places = names.iter().enumerate().filter_map(|(index, name)| {
            let rest = text.strip_prefix(name.as_str())?.strip_prefix(':')?;
            let number = rest.split(':').next()?.parse().ok()?;
            Some((index, number))
        });
        places.filter(|place| last.is_none_or(|last| *place >= last)).min()
    };
    let file = BufReader::new(File::open(path).ok()?);
    file.split(b'\n').map_while(Result::ok).fold(None, |last, line| place(&line, last).or(last))
}

fn open_state(options: &LoadOptions, resume: &ResumeOptions) -> Result<Resumable, Failure> {
    let server = format!("{}/{}", options.config.address, options.config.db);
    let file = open_state_file(options, resume, &server)?;
    let now = Instant::now();
    Ok(Resumable { file, ttl_s: resume.ttl_s, retry: resume.retry, written: now, failed_before: 0 })
}

/// Opens the state of a load into `server`.
pub(crate) fn open_state_file(
    options: &LoadOptions,
    resume: &ResumeOptions,
    server: &str,
) -> Result<StateFile, Failure> {
    let path = match &resume.state {
        Some(path) => path.clone(),
        None => default_path(&options.plan, server)?,
    };
    refuse_input(&path, &options.plan, "the state of the load")?;
    if options.errors.as_deref().is_some_and(|errors| is_same_file(errors, &path)) {
        let text =
            format!("{} can't be both the load's state and the report of errors: name two files", path.display());
        return Err(Failure::new(Exit::Usage, text));
    }
    StateFile::open(&path, &options.plan, server, resume.restart)
}

fn load(options: LoadOptions) -> Result<Exit, Failure> {
    options.plan.check()?;
    let mut resumable = options.resume.as_ref().map(|resume| open_state(&options, resume)).transpose()?;
    if let Some(resumable) = &mut resumable
        && let Some(outcome) = resumable.file.state.outcome.clone()
    {
        let clean_up = |token: &str| end_token(&options.config, token);
        return say_again(&options.plan, &mut resumable.file, &outcome, clean_up);
    }
    let goes_on = resumable.as_ref().is_some_and(|resumable| resumable.file.state.progress.phase != Phase::New);
    let progress = start_progress(&options);
    let mut report = Report::new(sink(&options, &progress, goes_on)?, options.plan.names());
    if let Some(resumable) = &resumable {
        let reported = resumable.file.state.progress.reported;
        report.expect_earlier(reported.failed, reported.rejected);
    }
    if goes_on && let Some(written) = options.errors.as_deref().and_then(|path| last_reported(path, &options.plan)) {
        report.skip_until(written);
    }
    let interrupt = Interrupt::listen();
    let (config, merge) = (options.config.clone(), options.merge);
    let retry = options.resume.as_ref().map(|resume| resume.retry);
    let (connection, terms) = interrupt.wait_for(move || connect(&config, merge, retry))??;
    // Nothing is sorted with `--stop-on-error`, because commands sorted before the error would have run. Nothing is
    // sorted with `--resume` either, because errors must be noted as they come, and errors of a sorted run are reported
    // only at its end.
    let keeps_order = options.stop_on_error || options.resume.is_some();
    let possible = if keeps_order { terms.merging.in_order() } else { terms.merging };
    let merging = match &mut resumable {
        Some(resumable) => resumable.merging(possible, options.chunk)?,
        None => possible.in_chunks(options.chunk),
    };
    let (block_channel, tally) = start_reading(&options.plan, merging, terms.args_max, options.resume.is_some())?;
    let flight = Flight::new(options.chunk.max(merging.most()), options.resume.is_some());
    let flight = if options.stop_on_error { flight.ending_at_rejected(report.earlier_rejected()) } else { flight };
    let mut session = LoadSession {
        config: &options.config,
        load: Load {
            block_channel: &block_channel,
            flight,
            report,
            progress,
            interrupt,
            stop_on_error: options.stop_on_error,
            silence_max: options.silence_max,
            input_end: None,
        },
        resumable,
        unlisted: 0,
        may_be_reported: false,
        advanced: (0, Instant::now()),
    };
    let ran = session.run(connection);
    block_channel.stop();
    session.load.progress.finish();
    conclude(&options, session, &tally, ran)
}

/// Returns the result of the load so far.
fn outcome(session: &LoadSession<'_, '_>, tally: &Tally) -> LoadOutcome {
    let load = &session.load;
    let queued = load.flight.unended().map_or(0, |unended| unended.queued);
    let (failed, failed_at_least) = session.failed();
    LoadOutcome {
        executed: load.flight.done() - queued,
        failed,
        failed_at_least,
        rejected: load.report.rejections(),
        streamed: tally.streamed(),
        ended_s: now_s(),
    }
}

/// Prints the result of the load, and records it if it is complete.
fn conclude(
    options: &LoadOptions,
    mut session: LoadSession<'_, '_>,
    tally: &Tally,
    ran: Result<(), Failure>,
) -> Result<Exit, Failure> {
    if ran.is_err() {
        let Load { flight, report, .. } = &mut session.load;
        flight.give_up(report);
    }
    say_unshown(&session.load.report);
    let outcome = outcome(&session, tally);
    let answered = outcome.executed;
    let nothing_to_load = matches!(session.load.input_end, Some(Err(_))) && session.load.report.errors() == 0;
    if answered > 0 || (ran.is_ok() && !nothing_to_load) {
        summary(options.quiet, &outcome.figures());
        let elapsed = session.load.progress.elapsed();
        let rate = session.load.progress.rate(answered);
        summary(options.quiet, &format!("{}, {} a second", seconds(elapsed), count(rate as u64, "command")));
    }
    ran?;
    session.say_unlisted();
    if let Some(stopped) = early_end(&session) {
        return stopped;
    }
    if let Some(Err(failure)) = session.load.input_end.take() {
        let message = format!("{}{}", failure.message, left_out(&session));
        if answered == 0 {
            session.forget();
        }
        return Err(Failure { message, ..failure });
    }
    let exit = outcome.exit();
    session.finish(outcome).map(|()| exit)
}

/// Returns a message about a transaction if the load ended within it before the end of the input.
fn left_out(session: &LoadSession<'_, '_>) -> String {
    let Load { flight, report, .. } = &session.load;
    flight.unended().map_or(String::new(), |unended| {
        let name = report.name(unended.input);
        format!("; the transaction that begins at {name}:{} was not executed", unended.line)
    })
}

/// Returns the result of a load that ended before its input.
fn early_end(session: &LoadSession<'_, '_>) -> Option<Result<Exit, Failure>> {
    let load = &session.load;
    let input_ended = load.input_end.is_some() && load.flight.is_empty();
    if input_ended {
        return None;
    }
    let place = load.flight.last_done().map_or("before the first command".to_owned(), |(input, line)| {
        format!("after {}:{line}", load.report.name(input))
    });
    if load.interrupt.was_asked() {
        return Some(Err(Failure::new(
            Exit::Interrupted,
            format!("interrupted {place}; all earlier commands were answered{}", left_out(session)),
        )));
    }
    let text = format!("stopped {place}, because of an error at {}{}", load.report.first_place(), left_out(session));
    Some(Err(Failure::new(Exit::SomeFailed, text)))
}

pub(crate) fn seconds(elapsed: Duration) -> String {
    format!("{:.2} s", elapsed.as_secs_f64())
}
