//! What a new connection says first: protocol, password, name, database. All of it leaves in one write.

use resp::parse::Value;
use resp::reply::Proto;

use crate::command::Command;
use crate::config::Config;
use crate::connection::Connection;
use crate::error::{Error, ServerError};

/// # Errors
/// The first refusal, or what broke the connection.
pub(crate) fn greet(connection: &mut Connection, config: &Config) -> Result<(), Error> {
    let greetings = greetings(config);
    greetings.iter().for_each(|command| connection.send(command));
    let replies = greetings.iter().map(|_| connection.read_reply()).collect::<Result<Vec<Value>, Error>>();
    match replies?.iter().find_map(Value::error) {
        Some(text) => Err(Error::Server(ServerError::new(text))),
        None => Ok(()),
    }
}

fn greetings(config: &Config) -> Vec<Command> {
    let mut commands = Vec::new();
    let user = config.user.as_deref();
    match (config.proto, &config.password) {
        (Proto::Resp3, Some(password)) => {
            commands.push(Command::new("HELLO 3 AUTH").arg(user.unwrap_or(b"default")).arg(password));
        }
        (Proto::Resp3, None) => commands.push(Command::new("HELLO 3")),
        // Servers before 6.0 know only the password.
        (Proto::Resp2, Some(password)) => commands.push(Command::new("AUTH").args(user).arg(password)),
        (Proto::Resp2, None) => {}
    }
    if let Some(name) = &config.client_name {
        commands.push(Command::new("CLIENT SETNAME").arg(name));
    }
    if config.db != 0 {
        commands.push(Command::new("SELECT").arg(config.db));
    }
    commands
}
