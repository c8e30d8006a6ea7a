//! Scripts that are called by their hash, so that their text is sent only once.

use std::sync::Arc;

use resp::parse::Value;

use crate::command::{Argument, Command};
use crate::connection::Connection;
use crate::error::{Error, ServerError};

/// A script for EVALSHA. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct Script {
    text: Arc<Text>,
}

#[derive(Debug)]
struct Text {
    source: Vec<u8>,
    sha1: String,
}

impl Script {
    /// Returns a script with this source.
    #[must_use]
    pub fn new(source: impl Into<Vec<u8>>) -> Self {
        let source = source.into();
        let sha1 = sha1_smol::Sha1::from(&source).digest().to_string();
        Self { text: Arc::new(Text { source, sha1 }) }
    }

    /// Returns the hash that identifies the script on servers: the SHA-1 of its source in hexadecimal.
    #[must_use]
    pub fn sha1(&self) -> &str {
        &self.text.sha1
    }

    /// Returns the source.
    #[must_use]
    pub fn source(&self) -> &[u8] {
        &self.text.source
    }

    /// Returns the SCRIPT LOAD command.
    #[must_use]
    pub fn load(&self) -> Command {
        Command::new("SCRIPT LOAD").arg(self.source())
    }

    /// Returns the EVALSHA command with these keys and arguments.
    #[must_use]
    pub fn call<K: Argument, A: Argument>(&self, keys: &[K], args: &[A]) -> Command {
        Command::new("EVALSHA").arg(self.sha1()).arg(keys.len()).args(keys).args(args)
    }
}

/// Returns true if the reply is NOSCRIPT: the server doesn't know the script and hasn't run it.
pub(crate) fn is_unknown(reply: &Value) -> bool {
    reply.error().is_some_and(|text| ServerError::new(text).code() == b"NOSCRIPT")
}

impl Connection {
    /// Runs a script by its hash, and loads it if the server doesn't know it.
    ///
    /// # Errors
    /// Returns the errors of [`Self::command`]. A script that doesn't compile gives [`Error::Server`].
    pub fn script<K: Argument, A: Argument>(
        &mut self,
        script: &Script,
        keys: &[K],
        args: &[A],
    ) -> Result<Value, Error> {
        let call = script.call(keys, args);
        let reply = self.exchange(&call)?;
        if !is_unknown(&reply) {
            return ServerError::check(reply);
        }
        self.command(&script.load())?;
        self.command(&call)
    }
}
