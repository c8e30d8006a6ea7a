//! The connection with its state: user, database, protocol, and open transaction.

use crate::failure::Failure;
use crate::interrupt::{self, Interrupt};
use crate::options::CliOptions;
use crate::output::Output;
use crate::output::complain;
use crate::session_state::SessionState;
use client::cluster::Redirection;
use client::{Address, Config, Connection, Error, Fate, Lost, Value, system_text};
use std::time::{Duration, Instant};

/// Maximum duration of one wait while Ctrl-C ends the program.
const WAIT: Duration = Duration::from_secs(3600);

/// Maximum number of keys that completion offers.
const KEYS_SHOWN: usize = 100;

/// Time after which completion stops requesting more keys.
const COMPLETION_TIME: Duration = Duration::from_millis(100);

/// Maximum time that completion waits for a slow server. The terminal ignores Ctrl-C during this time.
const COMPLETION_WAIT: Duration = Duration::from_millis(500);

/// Interval at which completion checks for a late reply.
const LATE_REPLY_INTERVAL: Duration = Duration::from_millis(10);

/// COUNT of a SCAN for completion.
const SCAN_COUNT: &[u8] = b"1000";

/// Result of a completion of keys.
pub struct FoundKeys {
    /// Keys, sorted and without duplicates.
    pub keys: Vec<Vec<u8>>,
    /// True if there are no further keys.
    pub is_all: bool,
}

/// A connection that can be reopened, and standard output.
pub struct CliSession<'a> {
    /// Options from the command line.
    pub options: &'a CliOptions,
    /// Output for replies.
    pub output: Output,
    /// State of Ctrl-C.
    pub interrupt: Interrupt,
    address: Address,
    password: Option<Vec<u8>>,
    connection: Option<Connection>,
    /// Selected database. It is also selected after a reconnect.
    db: u32,
    resp3: bool,
    /// Database before MULTI, while a transaction is open.
    db_before_transaction: Option<u32>,
    /// State of the connection that a new one can't restore. It is kept after the connection ends.
    session_state: SessionState,
    /// Number of replies that completion has stopped waiting for. They precede all other replies and are dropped.
    late_replies: usize,
}

impl<'a> CliSession<'a> {
    /// Returns a session without a connection.
    pub fn new(options: &'a CliOptions) -> Self {
        Self {
            options,
            output: Output::default(),
            interrupt: Interrupt::default(),
            address: options.address.clone(),
            password: options.password.clone(),
            connection: None,
            db: options.db,
            resp3: options.resp == 3,
            db_before_transaction: None,
            session_state: SessionState::default(),
            late_replies: 0,
        }
    }

    /// Sets the password that the user has typed.
    pub fn set_password(&mut self, password: Vec<u8>) {
        self.password = Some(password);
    }

    /// Changes the server. [`Self::connect`] connects to it.
    pub fn set_address(&mut self, host: String, port: u16) {
        self.address = Address::Tcp { host, port };
        self.disconnect();
    }

    /// Moves to the node that a redirection names, and stays there.
    ///
    /// # Errors
    /// Returns errors of [`Self::connect`] and [`Self::exchange`].
    pub fn follow(&mut self, redirection: &Redirection) -> Result<(), Failure> {
        let host = match &self.address {
            Address::Tcp { host, .. } if redirection.node.host.is_empty() => host.clone(),
            _ => redirection.node.host.clone(),
        };
        self.set_address(host, redirection.node.port);
        // For a single command from the command line, only the reply is printed.
        if self.options.reads_lines() {
            let (slot, place) = (&redirection.slot, self.place());
            self.output.print(format!("-> Redirected to slot [{slot}] located at {place}\n"))?;
        }
        self.output.flush()?;
        self.connect()?;
        if redirection.asking {
            self.exchange(&["ASKING"])?;
        }
        Ok(())
    }

    /// Reconnects. Errors are printed on standard error.
    ///
    /// # Errors
    /// Returns [`Failure::NotConnected`] without a connection, or if the server refused password, database or protocol.
    /// In the second case the connection is usable, and [`Self::is_connected`] returns true.
    pub fn connect(&mut self) -> Result<(), Failure> {
        if let Err(error) = self.open() {
            self.report_unreachable(&error);
            return Err(Failure::NotConnected);
        }
        self.greet()
    }

    /// Reconnects if the server is reachable. Otherwise it returns false and prints nothing.
    ///
    /// # Errors
    /// Returns [`Failure::NotConnected`] if the server refused password, database or protocol. The error was printed.
    pub fn try_connect(&mut self) -> Result<bool, Failure> {
        if self.open().is_err() {
            return Ok(false);
        }
        match self.greet() {
            Err(failure) if self.is_connected() => Err(failure),
            greeted => Ok(greeted.is_ok()),
        }
    }

    fn open(&mut self) -> Result<(), Error> {
        self.disconnect();
        self.session_state = SessionState::default();
        let mut config = match &self.address {
            Address::Tcp { host, port } => Config::tcp(host.clone(), *port),
            Address::Unix(path) => Config::unix(path.clone()),
        };
        if let Some(tls) = &self.options.tls {
            config.tls = true;
            config.tls_options = tls.clone();
        }
        config.connect_timeout = self.options.connect_timeout.unwrap_or(config.connect_timeout);
        // Commands may block without a limit.
        config.read_timeout = None;
        config.write_timeout = None;
        config.pushes_max = usize::MAX;
        self.connection = Some(Connection::open(&config)?);
        Ok(())
    }

    fn report_unreachable(&self, error: &Error) {
        let reason = match error {
            Error::Connect { cause, .. } => system_text(cause),
            other => other.to_string(),
        };
        complain!("Could not connect to Redis at {}: {reason}", self.place());
    }

    /// Returns the address of the server, as shown in the prompt.
    pub fn place(&self) -> String {
        match &self.address {
            Address::Tcp { host, port } => format!("{host}:{port}"),
            Address::Unix(path) => path.display().to_string(),
        }
    }

    /// Sends password, database and protocol version on a new connection, until the server refuses one.
    fn greet(&mut self) -> Result<(), Failure> {
        if let Some(password) = self.password.clone() {
            let user = self.options.user.clone();
            let request: Vec<Vec<u8>> = [b"AUTH".to_vec()].into_iter().chain(user).chain([password]).collect();
            self.tell(&request, "AUTH")?;
        }
        if self.db != 0 {
            let db = self.db.to_string();
            self.tell(&["SELECT", db.as_str()], &format!("SELECT {db}"))?;
        }
        if let Some(name) = self.options.client_name.clone() {
            let request = [b"CLIENT".to_vec(), b"SETNAME".to_vec(), name];
            match self.tell(&request, "CLIENT SETNAME") {
                Err(failure) if !self.is_connected() => return Err(failure),
                // A refused name doesn't matter.
                _ => {}
            }
        }
        if self.resp3 {
            let told = self.tell(&["HELLO", "3"], "HELLO 3");
            self.resp3 = told.is_ok();
            return told;
        }
        Ok(())
    }

    fn tell(&mut self, request: &[impl AsRef<[u8]>], name: &str) -> Result<(), Failure> {
        let reply = self.exchange(request);
        let trouble = match &reply {
            Ok(reply) => match reply.error() {
                None => return Ok(()),
                Some(text) => String::from_utf8_lossy(text).into_owned(),
            },
            Err(failure) => {
                self.disconnect();
                failure.to_string()
            }
        };
        if name == "HELLO 3" && self.options.resp3_is_optional && self.is_connected() {
            return Ok(());
        }
        complain!("{name} failed: {trouble}");
        Err(Failure::NotConnected)
    }

    /// Closes the connection. This aborts an open transaction.
    pub fn disconnect(&mut self) {
        self.connection = None;
        self.late_replies = 0;
        self.abandon_transaction();
    }

    fn abandon_transaction(&mut self) {
        if let Some(db) = self.db_before_transaction.take() {
            self.db = db;
        }
    }

    /// Takes the connection out of the session.
    pub fn take_connection(&mut self) -> Option<Connection> {
        self.connection.take()
    }

    /// Returns true if a connection exists and no failure is known.
    pub fn is_connected(&self) -> bool {
        self.connection.is_some()
    }

    /// Returns the state that a new connection can't restore. It belongs to the current connection, or to the last one.
    pub(crate) fn session_state(&self) -> SessionState {
        self.session_state
    }

    /// Returns the connection.
    ///
    /// # Errors
    /// Returns [`Failure::NotConnected`].
    pub fn connection(&mut self) -> Result<&mut Connection, Failure> {
        self.connection.as_mut().ok_or(Failure::NotConnected)
    }

    /// Connects if there is no connection. A connection that the server has closed isn't replaced silently, because a
    /// transaction, watched keys or a login ended with it.
    ///
    /// # Errors
    /// Returns [`Failure::Lost`], [`Failure::NotConnected`] (the error was printed), and errors of standard output.
    pub fn ensure_connected(&mut self) -> Result<(), Failure> {
        if self.is_connected() {
            return self.print_late_pushes();
        }
        match self.connect() {
            Err(failure) if !self.is_connected() => Err(failure),
            _ => Ok(()),
        }
    }

    /// Sends a request. [`Self::next_value`] returns its replies.
    ///
    /// # Errors
    /// Returns [`Failure::NotConnected`].
    pub fn send(&mut self, request: &[impl AsRef<[u8]>]) -> Result<(), Failure> {
        // The session needs pushes and replies in their order of arrival, and reads both as unsolicited values.
        self.connection()?.send_unanswered(request);
        Ok(())
    }

    /// Waits for the next value from the server. Ctrl-C ends the wait and the connection.
    ///
    /// # Errors
    /// Returns [`Failure::Lost`] or [`Failure::Interrupted`].
    pub fn next_value(&mut self) -> Result<Value, Failure> {
        self.value_within(None)
    }

    /// Waits for the next value from the server. After `limit`, the connection is closed.
    fn value_within(&mut self, limit: Option<Duration>) -> Result<Value, Failure> {
        let interval = if self.interrupt.is_watched() { interrupt::INTERVAL } else { WAIT };
        let start = Instant::now();
        loop {
            let rest = limit.map_or(interval, |limit| limit.saturating_sub(start.elapsed()).min(interval));
            if let Some(value) = self.poll_value(rest)? {
                return Ok(value);
            }
            if let Some(limit) = limit.filter(|limit| start.elapsed() >= *limit) {
                // A later reply would be mistaken for the next command's.
                self.disconnect();
                return Err(Error::Lost { cause: Lost::Silent(limit), fate: Fate::MayHaveRun }.into());
            }
        }
    }

    /// Waits up to `timeout` for the next value from the server.
    ///
    /// # Errors
    /// Returns the errors of [`Self::next_value`].
    pub fn poll_value(&mut self, timeout: Duration) -> Result<Option<Value>, Failure> {
        if self.interrupt.take() {
            self.disconnect();
            return Err(Failure::Interrupted);
        }
        self.take_value(timeout)
    }

    /// Waits up to `timeout` for the next value from the server, and drops late replies.
    fn take_value(&mut self, timeout: Duration) -> Result<Option<Value>, Failure> {
        let start = Instant::now();
        loop {
            let rest = timeout.saturating_sub(start.elapsed());
            let value = self.connection()?.next_push(rest)?;
            let is_reply = value.as_ref().is_some_and(|value| !matches!(value, Value::Push(_)));
            if !is_reply || self.late_replies == 0 {
                return Ok(value);
            }
            self.late_replies -= 1;
        }
    }

    /// Sends a request and waits for its reply. Pushes before the reply are printed.
    ///
    /// # Errors
    /// Returns the errors of [`Self::next_value`] and of standard output.
    pub fn exchange(&mut self, request: &[impl AsRef<[u8]>]) -> Result<Value, Failure> {
        self.send(request)?;
        self.next_reply()
    }

    /// Waits for the next reply. Pushes before the reply are printed.
    ///
    /// # Errors
    /// Returns the errors of [`Self::next_value`] and of standard output.
    pub fn next_reply(&mut self) -> Result<Value, Failure> {
        loop {
            match self.value_within(self.options.read_timeout)? {
                push @ Value::Push(_) => self.print_push(&push)?,
                reply => return Ok(reply),
            }
        }
    }

    /// Prints a push message, if the options ask for it.
    ///
    /// # Errors
    /// Returns errors of standard output.
    pub fn print_push(&mut self, push: &Value) -> Result<(), Failure> {
        if self.options.show_pushes {
            let style = &self.options.style;
            self.output.print_with(|out| style.push_message(push, out))?;
        }
        Ok(())
    }

    /// Prints the pushes that have arrived since the last reply.
    ///
    /// # Errors
    /// Returns [`Failure::Lost`] if the connection has ended, and errors of standard output.
    fn print_late_pushes(&mut self) -> Result<(), Failure> {
        while let Some(push) = self.take_value(Duration::ZERO)? {
            self.print_push(&push)?;
        }
        Ok(())
    }

    /// Prints the pushes that have arrived. If the connection has ended, the next command reports it.
    ///
    /// # Errors
    /// Returns errors of standard output.
    pub fn show_late_pushes(&mut self) -> Result<(), Failure> {
        match self.print_late_pushes() {
            Err(Failure::Output(error)) => Err(Failure::Output(error)),
            _ => Ok(()),
        }
    }

    /// Returns keys with this prefix, for completion. The list is empty if a request isn't allowed now, or takes too
    /// long.
    pub fn keys_with_prefix(&mut self, prefix: &[u8]) -> FoundKeys {
        let (mut keys, mut is_all) = (Vec::new(), false);
        if !self.may_ask() {
            return FoundKeys { keys, is_all };
        }
        let pattern: Vec<u8> = escape_pattern(prefix).into_iter().chain([b'*']).collect();
        let mut cursor = b"0".to_vec();
        let start = Instant::now();
        loop {
            let request = [b"SCAN", cursor.as_slice(), b"MATCH", &pattern, b"COUNT", SCAN_COUNT];
            let Some(Value::Array(parts)) = self.exchange_until(&request, start + COMPLETION_WAIT) else { break };
            let [next, Value::Array(found)] = parts.as_slice() else { break };
            keys.extend(found.iter().filter_map(Value::bytes).map(<[u8]>::to_vec));
            cursor = next.bytes().unwrap_or(b"0").to_vec();
            is_all = cursor == b"0";
            if is_all || keys.len() >= KEYS_SHOWN || start.elapsed() >= COMPLETION_TIME {
                break;
            }
        }
        keys.sort();
        keys.dedup();
        is_all &= keys.len() <= KEYS_SHOWN;
        keys.truncate(KEYS_SHOWN);
        FoundKeys { keys, is_all }
    }

    /// Returns the names of the server's settings, for completion. The list is empty if a request isn't allowed now,
    /// takes too long, or is refused.
    pub fn setting_names(&mut self) -> Vec<String> {
        if !self.may_ask() {
            return Vec::new();
        }
        let request = [&b"CONFIG"[..], b"GET", b"*"];
        let reply = self.exchange_until(&request, Instant::now() + COMPLETION_WAIT);
        let names: Vec<&Value> = match &reply {
            Some(Value::Array(elements)) => elements.iter().step_by(2).collect(),
            Some(Value::Map(pairs)) => pairs.iter().map(|(name, _)| name).collect(),
            _ => Vec::new(),
        };
        let text = |name: &Value| String::from_utf8_lossy(name.bytes().unwrap_or_default()).into_owned();
        let mut names: Vec<String> = names.into_iter().map(text).filter(|name| !name.is_empty()).collect();
        names.sort();
        names
    }

    /// Returns true if completion may send a request between two commands of the user.
    fn may_ask(&mut self) -> bool {
        // Discards a Ctrl-C that was meant for something else.
        self.interrupt.take();
        self.is_connected() && !self.is_in_transaction()
    }

    /// Sends a request and waits for its reply until `end`. The connection is kept, and a late reply is dropped. Until
    /// that reply arrives, this method sends no other request.
    fn exchange_until(&mut self, request: &[impl AsRef<[u8]>], end: Instant) -> Option<Value> {
        let rest = || end.saturating_duration_since(Instant::now());
        // A late reply precedes the new one: it is dropped, and pushes are printed.
        while self.late_replies > 0 && !rest().is_zero() {
            if let Some(push) = self.poll_value(rest().min(LATE_REPLY_INTERVAL)).ok()? {
                self.print_push(&push).ok()?;
            }
        }
        if self.late_replies > 0 {
            return None;
        }
        self.send(request).ok()?;
        while let Some(value) = self.poll_value(rest()).ok()? {
            match value {
                Value::Push(_) => self.print_push(&value).ok()?,
                reply => return Some(reply),
            }
        }
        self.late_replies += 1;
        None
    }

    /// Returns true between a successful MULTI and its EXEC or DISCARD.
    pub fn is_in_transaction(&self) -> bool {
        self.db_before_transaction.is_some()
    }

    /// Returns the prompt of the interactive mode.
    pub fn prompt(&self) -> String {
        if !self.is_connected() {
            return "not connected> ".to_owned();
        }
        let place = match &self.address {
            Address::Tcp { .. } => self.place(),
            Address::Unix(_) => format!("redis {}", self.place()),
        };
        let db = if self.db == 0 { String::new() } else { format!("[{}]", self.db) };
        let transaction = if self.db_before_transaction.is_some() { "(TX)" } else { "" };
        format!("{place}{db}{transaction}> ")
    }

    /// Updates the state after a command was answered.
    ///
    /// # Errors
    /// Returns errors of selecting the database again after AUTH.
    pub fn note(&mut self, request: &[Vec<u8>], reply: &Value) -> Result<(), Failure> {
        self.session_state.note(request, reply);
        let is_error = reply.error().is_some();
        let name = request.first().map(|name| name.to_ascii_lowercase()).unwrap_or_default();
        match (name.as_slice(), request.len()) {
            (b"select", 2) if !is_error => self.db = number(&request[1]),
            (b"auth", 2 | 3) if !is_error && self.db != 0 && self.db_before_transaction.is_none() => {
                let db = self.db.to_string();
                return self.tell(&["SELECT", db.as_str()], &format!("SELECT {db}"));
            }
            (b"multi", 1) if !is_error => self.db_before_transaction = Some(self.db),
            (b"exec", 1) if self.db_before_transaction.is_some() => {
                let db = self.db_before_transaction.take().unwrap_or(self.db);
                if is_error || reply.is_null() {
                    self.db = db;
                }
            }
            (b"discard", 1) if !is_error => self.abandon_transaction(),
            (b"reset", 1) if !is_error => {
                self.db_before_transaction = None;
                self.db = 0;
                self.resp3 = false;
            }
            (b"hello", 2..) if !is_error => self.resp3 = request[1] == b"3",
            _ => {}
        }
        Ok(())
    }
}

/// Returns a pattern that matches only this text.
fn escape_pattern(text: &[u8]) -> Vec<u8> {
    let escaped = text.iter().flat_map(|&byte| match byte {
        b'*' | b'?' | b'[' | b']' | b'\\' | b'^' => [Some(b'\\'), Some(byte)],
        _ => [None, Some(byte)],
    });
    escaped.flatten().collect()
}

fn number(text: &[u8]) -> u32 {
    std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}
