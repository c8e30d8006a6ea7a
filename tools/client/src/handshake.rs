//! The handshake of a new connection: protocol, password, name and database, sent in one write.

use resp::reply::Proto;

use crate::command::Command;
use crate::config::Config;
use crate::connection::Connection;
use crate::error::{Error, ServerError};

/// A command of the handshake. The server may refuse an optional one.
struct Greeting {
    command: Command,
    is_optional: bool,
}

/// Performs the handshake.
///
/// # Errors
/// Returns the first refusal, or the error that broke the connection.
pub(crate) fn greet(connection: &mut Connection, config: &Config) -> Result<(), Error> {
    let greetings = greetings(config);
    greetings.iter().for_each(|greeting| connection.send(&greeting.command));
    let (mut refusal, mut harmless) = (None, None);
    for greeting in &greetings {
        let reply = match connection.read_reply() {
            Ok(reply) => reply,
            // A server that closes the connection sends the reason in place of the first reply.
            Err(lost) => return Err(refusal.or(harmless).unwrap_or(lost)),
        };
        if let Some(text) = reply.error() {
            let place = if greeting.is_optional { &mut harmless } else { &mut refusal };
            place.get_or_insert_with(|| Error::Server(ServerError::new(text)));
        }
    }
    match (refusal, harmless) {
        (Some(refusal), _) => Err(refusal),
        // If the refusal was the reason for closing the connection, PING gets no reply.
        (None, Some(harmless)) => connection.exchange(&["PING"]).map(drop).map_err(|_| harmless),
        (None, None) => Ok(()),
    }
}

fn greetings(config: &Config) -> Vec<Greeting> {
    let mut greetings: Vec<Greeting> = Vec::new();
    let mut add = |command: Command, is_optional: bool| greetings.push(Greeting { command, is_optional });
    let user = config.user.as_deref();
    match (config.proto, &config.password) {
        (Proto::Resp3, Some(password)) => {
            add(Command::new("HELLO 3 AUTH").arg(user.unwrap_or(b"default")).arg(password), false);
        }
        (Proto::Resp3, None) => add(Command::new("HELLO 3"), false),
        // Servers before 6.0 accept only the password.
        (Proto::Resp2, Some(password)) => add(Command::new("AUTH").args(user).arg(password), false),
        (Proto::Resp2, None) => {}
    }
    if let Some(name) = config.client_name.as_ref().or(config.fallback_name.as_ref()) {
        add(Command::new("CLIENT SETNAME").arg(name), config.client_name.is_none());
    }
    if config.db != 0 {
        add(Command::new("SELECT").arg(config.db), false);
    }
    greetings
}
