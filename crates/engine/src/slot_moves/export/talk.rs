//! The beginning of an export: the connection to the target, the password, and the request.

use std::io;

use resp::parse::encode_request;

use super::{Export, LOOK_EVERY, NOT_MINE};
use crate::slot_moves::{MoveWait, TargetLink};
use crate::slots::jobs::JobState;

/// The stages of the beginning.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) enum Talk {
    #[default]
    Begins,
    Connects,
    /// The target checks the password.
    AwaitsAuth,
    /// A target of Penstock reports its progress. Others answer an error.
    AwaitsReports,
    /// The target decides on the request.
    AwaitsEstablish,
    /// The request is accepted.
    Over,
}

impl Talk {
    pub(super) fn is_over(self) -> bool {
        self == Talk::Over
    }

    /// Returns the beginning of the text of a failure.
    fn failure(self) -> &'static str {
        match self {
            Talk::Begins | Talk::Connects => "Unable to connect to target node: ",
            Talk::AwaitsAuth => "Failed to AUTH to target node: ",
            Talk::AwaitsEstablish => "Received error during handshake to target: ",
            Talk::AwaitsReports | Talk::Over => "",
        }
    }

    fn fails(self, why: impl ToString) -> String {
        format!("{}{}", self.failure(), why.to_string())
    }
}

impl Export {
    /// Takes a step of the beginning. The result is as in [`Export::follow`].
    pub(super) fn talk(&mut self, link: &mut dyn TargetLink) -> Result<Option<MoveWait>, String> {
        let talk = self.talk;
        let has_worked = match talk {
            Talk::Begins => {
                self.check(link)?;
                self.connect(link).map_err(|why| talk.fails(why))?;
                self.talk = Talk::Connects;
                true
            }
            Talk::Connects => {
                let stands = link.connect().map_err(|why| talk.fails(why))?;
                if stands {
                    self.is_linked = true;
                    self.log_in(link);
                }
                stands
            }
            _ => match self.take_line(link).map_err(|why| talk.fails(why))? {
                None => false,
                Some(line) => {
                    self.heard = self.now;
                    self.take_answer(line, link)?;
                    true
                }
            },
        };
        self.check(link).map_err(|why| if talk == Talk::Connects { why } else { talk.fails(why) })?;
        Ok(Some(match has_worked {
            true => MoveWait::Nothing,
            false if self.request.is_empty() => MoveWait::Bytes(LOOK_EVERY),
            false => MoveWait::Room(LOOK_EVERY),
        }))
    }

    /// Begins to connect to the target.
    fn connect(&self, link: &mut dyn TargetLink) -> Result<(), String> {
        let view = self.engine.slots.view().ok_or(NOT_MINE)?;
        let target = self.job.nodes.as_ref().map(|nodes| nodes.target.as_str());
        let node = view.nodes.iter().find(|node| Some(node.id.as_str()) == target);
        link.open(node.ok_or("target node not found")?)
    }

    fn log_in(&mut self, link: &dyn TargetLink) {
        let settings = &self.engine.settings;
        let (user, password) = (settings.masteruser.get(), settings.masterauth.get());
        if password.is_empty() {
            return self.ask_for_reports(link);
        }
        self.enter(JobState::ReadingAuthResponse, link);
        let words = if user.is_empty() { vec!["AUTH", &password] } else { vec!["AUTH", &user, &password] };
        self.ask(Talk::AwaitsAuth, &words);
    }

    fn ask_for_reports(&mut self, link: &dyn TargetLink) {
        self.enter(JobState::ReadingEstablishResponse, link);
        self.ask(Talk::AwaitsReports, &["CLUSTER", "SYNCSLOTS", "REPORT-PROGRESS"]);
    }

    /// Asks the target to import the slots.
    fn ask_for_import(&mut self) {
        let job = self.job.clone();
        let source = job.nodes.as_ref().map(|nodes| nodes.source.as_str()).unwrap_or_default();
        let ends = job.ranges.0.iter().flat_map(|range| [range.first, range.last]);
        let slots: Vec<_> = ends.map(|slot| slot.to_string()).collect();
        let mut words = vec!["CLUSTER", "SYNCSLOTS", "ESTABLISH", "SOURCE", source, "NAME", &job.name, "SLOTSRANGE"];
        words.extend(slots.iter().map(String::as_str));
        self.ask(Talk::AwaitsEstablish, &words);
    }

    /// Prepares a request. The next line is its answer.
    fn ask(&mut self, talk: Talk, words: &[&str]) {
        encode_request(words, &mut self.request);
        self.talk = talk;
    }

    /// Sends the request, and takes a line of the answer, without its end.
    fn take_line(&mut self, link: &mut dyn TargetLink) -> io::Result<Option<String>> {
        link.flush()?;
        while !self.request.is_empty() {
            match link.write(&self.request)? {
                0 => break,
                sent => _ = self.request.drain(..sent),
            }
        }
        link.read(&mut self.input)?;
        let Some(end) = self.input.windows(2).position(|end| end == b"\r\n") else { return Ok(None) };
        let line = self.input.drain(..end + 2).take(end).collect::<Vec<_>>();
        Ok(Some(String::from_utf8_lossy(&line).into_owned()))
    }

    fn take_answer(&mut self, line: String, link: &dyn TargetLink) -> Result<(), String> {
        let is_error = line.starts_with('-');
        match self.talk {
            Talk::AwaitsReports => {
                if line.starts_with('+') {
                    self.approach.expect_reports();
                }
                self.ask_for_import();
            }
            talk if is_error => return Err(talk.fails(line)),
            Talk::AwaitsAuth => self.ask_for_reports(link),
            Talk::AwaitsEstablish => {
                self.talk = Talk::Over;
                self.want_snapshot(link);
                self.tell("ACK");
            }
            Talk::Begins | Talk::Connects | Talk::Over => {}
        }
        Ok(())
    }
}
