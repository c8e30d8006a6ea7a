//! The handshake with a Redis source, until the snapshot comes.

use std::io;
use std::time::Duration;

use resp::num::parse_i64;
use resp::parse::encode_request;
use resp::request::{Batch, Framer, Input, Limits};

use super::{Channel, RedisLink, RedisSource, message};

/// Time before the source is asked again that is not ready: Redis's figure.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// The longest reply.
const REPLY_BYTES_MAX: usize = 64 << 10;
/// The name under which nodes of one cluster authenticate themselves.
const INTERNAL: &[u8] = b"internal connection";

/// The directives of the source that decide on the hold of writes.
const HOLD_MS: &str = "cluster-slot-migration-write-pause-timeout";
const LAG_BYTES: &str = "cluster-slot-migration-handoff-max-lag-bytes";

/// The stages of the handshake.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) enum Handshake {
    #[default]
    Begins,
    Connects(Channel),
    AwaitsAuth(Channel),
    AwaitsDirectives,
    /// The source checks that it knows this node.
    AwaitsConf,
    AwaitsSync,
    /// The source is not ready. It is asked again at this time.
    AwaitsRetry(Duration),
    AwaitsSnapshot,
    /// The snapshot comes.
    Over,
}

impl Handshake {
    pub(super) fn is_over(self) -> bool {
        self == Handshake::Over
    }
}

impl<L: RedisLink> RedisSource<L> {
    /// Takes a step of the handshake. Returns true if the source has shown life.
    pub(super) fn shake_hands(&mut self) -> Result<bool, String> {
        match self.handshake {
            Handshake::Begins => {
                self.open(Channel::Main)?;
                Ok(true)
            }
            Handshake::Connects(channel) => {
                let stands =
                    self.link.connect(channel).map_err(|why| format!("Unable to connect to the source: {why}"))?;
                if stands {
                    self.log_in(channel)?;
                }
                Ok(stands)
            }
            Handshake::AwaitsAuth(channel) => self.await_line(channel, |this, line| this.take_auth(channel, line)),
            Handshake::AwaitsDirectives => self.await_directives(),
            Handshake::AwaitsConf => self.await_line(Channel::Main, Self::take_conf),
            Handshake::AwaitsSync => self.await_line(Channel::Main, Self::take_sync),
            Handshake::AwaitsRetry(until) if self.link.now() >= until => {
                self.ask_for_slots()?;
                Ok(true)
            }
            Handshake::AwaitsRetry(_) => Ok(false),
            Handshake::AwaitsSnapshot => self.await_line(Channel::Snapshot, Self::take_snapshot),
            Handshake::Over => Ok(false),
        }
    }

    fn open(&mut self, channel: Channel) -> Result<(), String> {
        let opened = self.link.open(channel, &self.nodes.source);
        opened.map_err(|why| format!("Unable to connect to the source: {why}"))?;
        self.handshake = Handshake::Connects(channel);
        Ok(())
    }

    fn log_in(&mut self, channel: Channel) -> Result<(), String> {
        let secret = self.nodes.source.secret.ok_or("The source has not told its secret")?;
        self.ask(channel, &[b"AUTH", INTERNAL, secret.digits()])?;
        self.handshake = Handshake::AwaitsAuth(channel);
        Ok(())
    }

    fn take_auth(&mut self, channel: Channel, line: &str) -> Result<(), String> {
        if line != "+OK" {
            return Err(format!("Error reply to AUTH from the source: {line}"));
        }
        match channel {
            Channel::Main => {
                self.ask(channel, &[b"CONFIG", b"GET", HOLD_MS.as_bytes(), LAG_BYTES.as_bytes()])?;
                self.handshake = Handshake::AwaitsDirectives;
            }
            Channel::Snapshot => {
                let name = self.job.name.clone();
                self.ask(channel, &[b"CLUSTER", b"SYNCSLOTS", b"RDBCHANNEL", name.as_bytes()])?;
                self.handshake = Handshake::AwaitsSnapshot;
            }
        }
        Ok(())
    }

    /// Takes the source's directives. A source that does not show them has the default ones, as far as this node knows.
    fn await_directives(&mut self) -> Result<bool, String> {
        let has_read = self.read_reply(Channel::Main)?;
        let reply = &mut self.replies[Channel::Main as usize];
        // An older source has no such directives.
        let has_none = reply.first() == Some(&b'-') || reply.starts_with(b"*0");
        if !has_none {
            // The reply has the form of a request.
            let mut batch = Batch::default();
            let input = Input::from(reply.as_slice());
            Framer::default().frame(input, 0, &Limits::default(), 1, &mut batch);
            let Some(request) = batch.requests().iter().next() else { return Ok(has_read) };
            let args = batch.args(request, input);
            let value = |name: &str| {
                let at = (0..args.len()).step_by(2).find(|at| args.get(*at) == name.as_bytes())?;
                u64::try_from(parse_i64(args.get(at + 1))?).ok()
            };
            if let Some(ms) = value(HOLD_MS) {
                self.directives.hold = Duration::from_millis(ms);
            }
            self.directives.lag_bytes = value(LAG_BYTES).unwrap_or(self.directives.lag_bytes);
            let end = request.end as usize;
            reply.drain(..end);
        } else if take_line(reply).is_none() {
            return Ok(has_read);
        }
        let me = self.nodes.me.clone();
        self.ask(Channel::Main, &[b"CLUSTER", b"SYNCSLOTS", b"CONF", b"NODE-ID", me.as_bytes()])?;
        self.handshake = Handshake::AwaitsConf;
        Ok(true)
    }

    fn take_conf(&mut self, line: &str) -> Result<(), String> {
        if line.starts_with("-ERR unknown subcommand") {
            return Err(format!("The source has no atomic slot migration, which needs Redis 8.4 or later: {line}"));
        }
        if line != "+OK" {
            return Err(format!("Error reply to CLUSTER SYNCSLOTS CONF from the source: {line}"));
        }
        self.ask_for_slots()
    }

    /// Asks the source to move the slots.
    fn ask_for_slots(&mut self) -> Result<(), String> {
        let job = self.job.clone();
        let ends = job.ranges.0.iter().flat_map(|range| [range.first, range.last]);
        let slots: Vec<_> = ends.map(|slot| slot.to_string()).collect();
        let mut words = vec!["CLUSTER", "SYNCSLOTS", "SYNC", &job.name];
        words.extend(slots.iter().map(String::as_str));
        let words: Vec<_> = words.iter().map(|word| word.as_bytes()).collect();
        self.ask(Channel::Main, &words)?;
        self.handshake = Handshake::AwaitsSync;
        Ok(())
    }

    fn take_sync(&mut self, line: &str) -> Result<(), String> {
        match line {
            _ if line.starts_with("+RDBCHANNELSYNCSLOTS") => self.open(Channel::Snapshot),
            _ if line.starts_with("-NOTREADY") => {
                self.handshake = Handshake::AwaitsRetry(self.link.now() + RETRY_AFTER);
                Ok(())
            }
            _ => Err(format!("Error reply to CLUSTER SYNCSLOTS SYNC from the source: {line}")),
        }
    }

    fn take_snapshot(&mut self, line: &str) -> Result<(), String> {
        if !line.starts_with("+SLOTSSNAPSHOT") {
            return Err(format!("Error reply to CLUSTER SYNCSLOTS RDBCHANNEL from the source: {line}"));
        }
        self.handshake = Handshake::Over;
        // Bytes behind the reply belong to the changes.
        let changes = std::mem::take(&mut self.replies[Channel::Main as usize]);
        self.backlog.append(&changes);
        self.messages.extend_from_slice(&message("ACK"));
        Ok(())
    }

    /// Sends a request.
    fn ask(&mut self, channel: Channel, words: &[&[u8]]) -> Result<(), String> {
        encode_request(words, &mut self.requests[channel as usize]);
        self.send(channel).map_err(|why| format!("Failed to send command to the source: {why}"))
    }

    /// Takes the next line of a reply, if it is complete. Empty lines are signs of life. Returns true if the source has shown life.
    fn await_line(
        &mut self,
        channel: Channel,
        take: impl FnOnce(&mut Self, &str) -> Result<(), String>,
    ) -> Result<bool, String> {
        let has_read = self.read_reply(channel)?;
        let reply = &mut self.replies[channel as usize];
        let empty = reply.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
        reply.drain(..empty);
        match take_line(reply) {
            None => Ok(has_read),
            Some(line) => take(self, &line).map(|()| true),
        }
    }

    fn read_reply(&mut self, channel: Channel) -> Result<bool, String> {
        let lost = |why: io::Error| format!("Lost the connection to the source: {why}");
        self.send(channel).map_err(lost)?;
        let reply = &mut self.replies[channel as usize];
        // The snapshot may follow its reply at once, but does not come before it.
        match reply.len() > REPLY_BYTES_MAX && !reply.contains(&b'\n') {
            true => Err("The source has sent no reply, but something else".to_owned()),
            false => self.link.read(channel, reply).map_err(lost),
        }
    }
}

/// Takes a line, without its end.
fn take_line(reply: &mut Vec<u8>) -> Option<String> {
    let end = reply.windows(2).position(|end| end == b"\r\n")?;
    let line = reply.drain(..end + 2).take(end).collect::<Vec<_>>();
    Some(String::from_utf8_lossy(&line).into_owned())
}
