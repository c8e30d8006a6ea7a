//! Published messages, on a dedicated connection.

use std::collections::{BTreeSet, VecDeque};
use std::thread;
use std::time::{Duration, Instant};

use resp::parse::Value;

use crate::command::{Argument, Command};
use crate::config::Config;
use crate::connection::Connection;
use crate::error::{Error, Fate, Lost, ServerError};

/// Maximum pause after a failed attempt to reconnect.
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(1);

/// A published message.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Message {
    /// Channel of the message.
    pub channel: Vec<u8>,
    /// Pattern of the subscription, if it is a pattern.
    pub pattern: Option<Vec<u8>>,
    /// Text of the message.
    pub payload: Vec<u8>,
}

/// Kind of a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ChannelKind {
    Channel,
    Pattern,
    Shard,
}

impl ChannelKind {
    fn commands(self) -> (&'static str, &'static str) {
        match self {
            Self::Channel => ("SUBSCRIBE", "UNSUBSCRIBE"),
            Self::Pattern => ("PSUBSCRIBE", "PUNSUBSCRIBE"),
            Self::Shard => ("SSUBSCRIBE", "SUNSUBSCRIBE"),
        }
    }
}

/// Subscriptions and their messages, with RESP2 or RESP3.
///
/// When the connection breaks, [`PubSub::next`] returns one error, because messages may have been missed. The next call
/// reconnects and subscribes again. A server closes the connection of a subscriber that reads too slowly, with the same
/// effect.
#[derive(Debug)]
pub struct PubSub {
    config: Config,
    connection: Option<Connection>,
    subscribed: BTreeSet<(ChannelKind, Vec<u8>)>,
    /// Messages that arrived before the confirmation of a subscription.
    waiting: VecDeque<Message>,
    dropped: u64,
}

impl PubSub {
    /// Connects without a subscription.
    ///
    /// # Errors
    /// Returns the errors of [`Connection::connect`].
    pub fn connect(config: &Config) -> Result<Self, Error> {
        let connection = Some(Connection::connect(config)?);
        let config = config.clone();
        Ok(Self { config, connection, subscribed: BTreeSet::new(), waiting: VecDeque::new(), dropped: 0 })
    }

    /// Subscribes to channels. Messages published from now on are received. After a lost connection, this call
    /// reconnects.
    ///
    /// # Errors
    /// Returns [`Error::Server`], [`Error::Lost`] or [`Error::Connect`]. The channels are then not subscribed.
    pub fn subscribe<A: Argument>(&mut self, channels: &[A]) -> Result<(), Error> {
        self.enter(ChannelKind::Channel, channels)
    }

    /// Subscribes to all channels with names that match these patterns.
    ///
    /// # Errors
    /// Returns the errors of [`Self::subscribe`].
    pub fn psubscribe<A: Argument>(&mut self, patterns: &[A]) -> Result<(), Error> {
        self.enter(ChannelKind::Pattern, patterns)
    }

    /// Subscribes to shard channels (SPUBLISH).
    ///
    /// # Errors
    /// Returns the errors of [`Self::subscribe`].
    pub fn ssubscribe<A: Argument>(&mut self, channels: &[A]) -> Result<(), Error> {
        self.enter(ChannelKind::Shard, channels)
    }

    /// Ends subscriptions of [`Self::subscribe`].
    ///
    /// # Errors
    /// Returns the errors of [`Self::subscribe`]. If the connection is lost, the next one has no such subscriptions.
    pub fn unsubscribe<A: Argument>(&mut self, channels: &[A]) -> Result<(), Error> {
        self.leave(ChannelKind::Channel, channels)
    }

    /// Ends subscriptions of [`Self::psubscribe`].
    ///
    /// # Errors
    /// Returns the errors of [`Self::subscribe`].
    pub fn punsubscribe<A: Argument>(&mut self, patterns: &[A]) -> Result<(), Error> {
        self.leave(ChannelKind::Pattern, patterns)
    }

    /// Ends subscriptions of [`Self::ssubscribe`].
    ///
    /// # Errors
    /// Returns the errors of [`Self::subscribe`].
    pub fn sunsubscribe<A: Argument>(&mut self, channels: &[A]) -> Result<(), Error> {
        self.leave(ChannelKind::Shard, channels)
    }

    /// Waits up to `timeout` for the next message.
    ///
    /// # Errors
    /// Returns [`Error::Lost`] once when the connection breaks. While reconnecting fails, it returns [`Error::Connect`]
    /// and similar errors, after a pause of `timeout` or a second, whichever is shorter. A loop can therefore simply
    /// continue.
    pub fn next(&mut self, timeout: Duration) -> Result<Option<Message>, Error> {
        if let Some(message) = self.waiting.pop_front() {
            return Ok(Some(message));
        }
        if self.connection.is_none() {
            self.reconnect().inspect_err(|_| thread::sleep(timeout.min(RETRY_PAUSE_MAX)))?;
        }
        let start = Instant::now();
        loop {
            match self.receive(timeout.saturating_sub(start.elapsed()))? {
                Some(Received::Message(message)) => return Ok(Some(message)),
                Some(Received::Confirmation) => {}
                None => return Ok(None),
            }
        }
    }

    /// Returns the number of messages that were dropped because more than [`Config::pushes_max`] arrived before the
    /// confirmation of a subscription.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    fn enter<A: Argument>(&mut self, kind: ChannelKind, names: &[A]) -> Result<(), Error> {
        self.change(kind.commands().0, names)?;
        self.subscribed.extend(names.iter().map(|name| (kind, to_bytes(name))));
        Ok(())
    }

    fn leave<A: Argument>(&mut self, kind: ChannelKind, names: &[A]) -> Result<(), Error> {
        for name in names {
            self.subscribed.remove(&(kind, to_bytes(name)));
        }
        self.change(kind.commands().1, names)
    }

    /// Sends a command and waits for the confirmation of each name. After a loss it first reconnects and restores the
    /// earlier subscriptions.
    fn change<A: Argument>(&mut self, command: &str, names: &[A]) -> Result<(), Error> {
        if self.connection.is_none() {
            self.reconnect()?;
        }
        // Without names the command would apply to all subscriptions.
        if names.is_empty() {
            return Ok(());
        }
        if let Some(connection) = &mut self.connection {
            connection.send_unanswered(&Command::new(command).args(names));
        }
        let patience = self.config.read_timeout.unwrap_or(Duration::MAX);
        let mut confirmed = 0;
        while confirmed < names.len() {
            match self.receive(patience)? {
                Some(Received::Message(message)) => self.keep(message),
                Some(Received::Confirmation) => confirmed += 1,
                None => {
                    self.connection = None;
                    return Err(Error::Lost { cause: Lost::Silent(patience), fate: Fate::MayHaveRun });
                }
            }
        }
        Ok(())
    }

    fn keep(&mut self, message: Message) {
        if self.waiting.len() >= self.config.pushes_max.max(1) {
            self.waiting.pop_front();
            self.dropped += 1;
        }
        self.waiting.push_back(message);
    }

    fn receive(&mut self, timeout: Duration) -> Result<Option<Received>, Error> {
        let Some(connection) = &mut self.connection else { return Ok(None) };
        match connection.next_push(timeout) {
            Ok(value) => value.map(received).transpose(),
            Err(error) => {
                self.connection = None;
                Err(error)
            }
        }
    }

    fn reconnect(&mut self) -> Result<(), Error> {
        self.connection = Some(Connection::connect(&self.config)?);
        for kind in [ChannelKind::Channel, ChannelKind::Pattern, ChannelKind::Shard] {
            let names: Vec<_> =
                self.subscribed.iter().filter(|(of, _)| *of == kind).map(|(_, name)| name.clone()).collect();
            if let Err(error) = self.change(kind.commands().0, &names) {
                self.connection = None;
                return Err(error);
            }
        }
        Ok(())
    }
}

fn to_bytes(name: &impl Argument) -> Vec<u8> {
    let mut bytes = Vec::new();
    name.append(&mut bytes);
    bytes
}

/// A value received by a subscriber.
enum Received {
    Message(Message),
    Confirmation,
}

/// Parses a push (RESP3) or an array (RESP2).
fn received(value: Value) -> Result<Received, Error> {
    match value.without_attribute() {
        Value::Push(parts) | Value::Array(parts) => {
            let bytes = |i: usize| parts.get(i).and_then(Value::bytes).map(<[u8]>::to_vec).unwrap_or_default();
            let message = |pattern, channel, payload| {
                Ok(Received::Message(Message { pattern, channel: bytes(channel), payload: bytes(payload) }))
            };
            match bytes(0).as_slice() {
                b"message" | b"smessage" => message(None, 1, 2),
                b"pmessage" => message(Some(bytes(1)), 2, 3),
                _ => Ok(Received::Confirmation),
            }
        }
        other => {
            let other = ServerError::check(other)?;
            Err(Error::Unexpected { command: "SUBSCRIBE", reply: format!("{other:?}") })
        }
    }
}
