//! Connections for one caller at a time.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::config::Config;
use crate::connection::Connection;
use crate::error::Error;

/// A pool of connections, in use or idle.
#[derive(Clone)]
pub(super) struct Pool {
    inner: Arc<PoolInner>,
}

/// State shared by a pool and its connections in use.
struct PoolInner {
    config: Config,
    taken_max: usize,
    state: Mutex<PoolState>,
    returned: Condvar,
}

#[derive(Default)]
struct PoolState {
    taken: usize,
    /// Idle connections in their initial state; the last used one is last. Their number never exceeds the maximum
    /// number in use at a time.
    idle: Vec<Connection>,
}

/// The right to use one connection. Dropping it lets another caller take one.
struct Permit {
    pool: Pool,
}

/// A connection for one caller; see [`crate::Client::dedicated`].
pub struct Dedicated {
    connection: Connection,
    permit: Permit,
}

impl Pool {
    pub(super) fn new(config: Config, taken_max: usize) -> Self {
        let inner = PoolInner { config, taken_max, state: Mutex::default(), returned: Condvar::new() };
        Self { inner: Arc::new(inner) }
    }

    /// Takes a connection from the pool, or connects.
    ///
    /// # Errors
    /// Returns the errors of [`Connection::connect`], and [`Error::Limit`].
    pub(super) fn take(&self) -> Result<Dedicated, Error> {
        let permit = self.permit()?;
        Ok(Dedicated { connection: self.as_new()?, permit })
    }

    /// Returns a connection in its initial state.
    fn as_new(&self) -> Result<Connection, Error> {
        loop {
            let idle = self.lock().idle.pop();
            let Some(mut connection) = idle else { break };
            // The server may have closed the connection in the meantime.
            if connection.is_quiet() {
                connection.restore(&self.inner.config);
                return Ok(connection);
            }
        }
        Connection::connect(&self.inner.config)
    }

    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn permit(&self) -> Result<Permit, Error> {
        let (max, patience) = (self.inner.taken_max, self.inner.config.connect_timeout);
        let waited = self.inner.returned.wait_timeout_while(self.lock(), patience, |state| state.taken >= max);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if state.taken >= max {
            return Err(Error::Limit("dedicated_max"));
        }
        state.taken += 1;
        Ok(Permit { pool: self.clone() })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.pool.lock().taken -= 1;
        self.pool.inner.returned.notify_one();
    }
}

impl Dedicated {
    /// Returns the connection to the pool. Its state on the server must be unchanged, and all replies must be read.
    pub(super) fn keep(self) {
        self.permit.pool.lock().idle.push(self.connection);
    }

    /// Replaces the connection by one in its initial state.
    pub(super) fn renew(&mut self) -> Result<(), Error> {
        self.connection = self.permit.pool.as_new()?;
        Ok(())
    }
}

impl Deref for Dedicated {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.connection
    }
}

impl DerefMut for Dedicated {
    fn deref_mut(&mut self) -> &mut Connection {
        &mut self.connection
    }
}

impl std::fmt::Debug for Dedicated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.connection.fmt(f)
    }
}
