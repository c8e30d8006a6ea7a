//! Runs `penstock check` from the command line to the exit status.

use std::ffi::OsString;
use std::io::{self, BufRead, Write};
use std::process::ExitCode;

use serde::Serialize;

use crate::args::{self, Args};
use crate::difference::Difference;
use crate::file::Options;
use crate::finding::{Finding, Verdict};
use crate::shown::{count, now_ms};
use crate::{files, fix, text};

/// Exit status: a file isn't whole.
const NOT_WHOLE: u8 = 1;
/// Exit status: the command line is wrong or names no file to check.
const USAGE: u8 = 2;

/// Runs the tool. `args` are the arguments after its name.
pub fn run(args: Vec<OsString>) -> ExitCode {
    match args::parse(args) {
        Ok(args) if args.diff => compare(&args),
        Ok(args) => check(&args),
        Err(error) if error.exit_code() == 0 => {
            // `head` and others may close the pipe early. This is no failure.
            let _ = error.print();
            ExitCode::SUCCESS
        }
        Err(error) => {
            say(&one_line(&error));
            ExitCode::from(USAGE)
        }
    }
}

/// Returns clap's message on one line, without the usage text that clap adds.
fn one_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let first = text.split("\n\n").next().unwrap_or_default();
    let words: Vec<&str> = first.trim_start_matches("error: ").split_whitespace().collect();
    format!("{}{}; see penstock check --help", words.join(" "), suggestion(error))
}

/// Returns the end of the message for a misspelt option: the similar one that clap found.
fn suggestion(error: &clap::Error) -> String {
    match error.get(clap::error::ContextKind::SuggestedArg) {
        Some(clap::error::ContextValue::String(option)) => format!(" (did you mean '{option}'?)"),
        _ => String::new(),
    }
}

/// Prints a message on standard error.
fn say(text: &str) {
    let _ = writeln!(io::stderr(), "penstock check: {text}");
}

/// The JSON report.
#[derive(Serialize)]
struct Report<'f> {
    /// True if every file is whole or was repaired.
    whole: bool,
    files: &'f [Finding],
}

fn check(args: &Args) -> ExitCode {
    let targets = match files::targets(&args.files) {
        Ok(targets) => targets,
        Err(text) => {
            say(&text);
            return ExitCode::from(USAGE);
        }
    };
    let options = Options { now_ms: now_ms(), quiet: args.quiet };
    let mut all = Vec::new();
    for target in targets {
        for mut finding in target.check(options) {
            let is_passed_over = args.quiet && finding.verdict == Verdict::Whole;
            if !args.json && !is_passed_over {
                print(&text::lines(&finding));
            }
            if args.fix {
                mend(&mut finding, args.yes);
            }
            all.push(finding);
        }
    }
    let whole = all.iter().all(is_settled);
    if args.json {
        match serde_json::to_string_pretty(&Report { whole, files: &all }) {
            Ok(json) => print(&(json + "\n")),
            Err(error) => say(&format!("can't write JSON: {error}")),
        }
    }
    if whole { ExitCode::SUCCESS } else { ExitCode::from(NOT_WHOLE) }
}

/// Compares two snapshots.
fn compare(args: &Args) -> ExitCode {
    let [first, second] = &args.files[..] else {
        say("--diff compares exactly two snapshots; see penstock check --help");
        return ExitCode::from(USAGE);
    };
    let difference = match Difference::between(first, second) {
        Ok(difference) => difference,
        Err(text) => {
            say(&text);
            return ExitCode::from(USAGE);
        }
    };
    if args.json {
        match serde_json::to_string_pretty(&difference) {
            Ok(json) => print(&(json + "\n")),
            Err(error) => say(&format!("can't write JSON: {error}")),
        }
    } else {
        print(&difference.text());
    }
    if difference.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(NOT_WHOLE) }
}

fn is_settled(finding: &Finding) -> bool {
    finding.verdict == Verdict::Whole || finding.cut_to.is_some()
}

/// Write errors are ignored, because the reader may close the pipe early.
fn print(text: &str) {
    let _ = io::stdout().lock().write_all(text.as_bytes());
}

/// Cuts off a torn end if the user agrees.
fn mend(finding: &mut Finding, agreed: bool) {
    let Some(whole) = finding.whole_bytes else {
        if finding.verdict != Verdict::Whole {
            say(&format!("{}: --fix can't repair this file and leaves it unchanged", finding.file));
        }
        return;
    };
    let torn = count(finding.bytes.saturating_sub(whole), "byte");
    if !agreed && !agrees(&format!("Cut {torn} off {}, from byte {whole} on? [y/N] ", finding.file)) {
        say(&format!("{} is unchanged", finding.file));
        return;
    }
    let closing = finding.commands.as_ref().map_or(&[][..], |commands| &commands.closing);
    match fix::cut(&finding.path, whole, closing, finding.bytes) {
        Ok(kept) => {
            say(&format!("{}: {torn} cut off and saved to {}", finding.file, kept.display()));
            finding.cut_to = Some(kept.display().to_string());
        }
        Err(text) => say(&text),
    }
}

/// Asks on standard error. Only an explicit yes counts as consent.
fn agrees(question: &str) -> bool {
    let mut stderr = io::stderr();
    let _ = stderr.write_all(question.as_bytes()).and_then(|()| stderr.flush());
    let mut answer = String::new();
    let _ = io::stdin().lock().read_line(&mut answer);
    matches!(answer.trim(), "y" | "Y" | "yes")
}
