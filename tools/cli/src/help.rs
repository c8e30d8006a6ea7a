//! `help`: prints the server's own documentation of its commands.

use crate::docs::{Entry, Manual};
use crate::failure::Failure;
use crate::output::complain;
use crate::session::CliSession;
use std::fmt::Write as _;

const GENERAL: &str = "\
To get help about Redis commands type:
      \"help @<group>\" to get a list of commands in <group>
      \"help <command>\" for help on <command>
      \"help <tab>\" to get a list of possible help topics
      \"quit\" to exit

To set redis-cli preferences:
      \":set hints\" enable online hints
      \":set nohints\" disable online hints
Set your preferences in ~/.redisclirc
";

/// Prints help on a topic: a group `@name`, a command's words, or general help for an empty topic.
///
/// # Errors
/// Returns errors of standard output and of connecting.
pub fn print(session: &mut CliSession<'_>, topic: &[Vec<u8>]) -> Result<(), Failure> {
    let topic: Vec<String> = topic.iter().map(|word| String::from_utf8_lossy(word).to_ascii_lowercase()).collect();
    if topic.is_empty() {
        session.output.print(format!("penstock cli {}\n{GENERAL}", env!("CARGO_PKG_VERSION")))?;
        return Ok(());
    }
    if let Err(failure) = session.ensure_connected() {
        session.output.flush()?;
        if matches!(failure, Failure::NotConnected) {
            complain!("penstock cli: help on commands comes from the server; name one with -h, -p, -s or -u");
        }
        return Err(failure);
    }
    let manual = Manual::load(session)?;
    if manual.entries().is_empty() {
        session.output.flush()?;
        complain!("penstock cli: no help available: the server refuses COMMAND DOCS and COMMAND");
        return Ok(());
    }
    let text = topic_text(&manual, &topic, session.options.style.colours);
    session.output.print(text)?;
    Ok(())
}

/// Returns the text on a topic. The topic isn't empty.
fn topic_text(manual: &Manual, topic: &[String], colours: bool) -> String {
    let mut text = "\r\n".to_owned();
    let group = topic[0].strip_prefix('@');
    for entry in manual.entries() {
        let wanted = match group {
            Some(group) => entry.group.replace(['_', ' '], "-") == group.replace('_', "-"),
            None => {
                entry.words().map(str::to_ascii_lowercase).zip(topic).filter(|(a, b)| a == *b).count() == topic.len()
            }
        };
        if wanted {
            push_entry(entry, group.is_none(), colours, &mut text);
        }
    }
    text
}

fn push_entry(entry: &Entry, with_group: bool, colours: bool, text: &mut String) {
    let paint = |colour: &str, text: &str| match colours {
        true => format!("\x1b[{colour}m{text}\x1b[0m"),
        false => text.to_owned(),
    };
    let syntax = paint("90", &entry.syntax());
    // Writing to a string can't fail.
    let _ = write!(text, "  {} {syntax}\r\n", paint("1", &entry.name.to_ascii_uppercase()));
    let mut line = |name: &str, value: &str| {
        let _ = write!(text, "  {} {value}\r\n", paint("33", name));
    };
    line("summary:", &entry.summary);
    line("since:", &entry.since);
    if with_group {
        line("group:", &entry.group);
    }
    text.push_str("\r\n");
}
