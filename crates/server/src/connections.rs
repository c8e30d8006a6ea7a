//! A thread's connections, by the poller's tokens.
//!
//! `unsafe` because a running connection is borrowed separately from the others, which may have to be served meanwhile. The invariant: **an
//! [`Others`] never touches the one connection that is borrowed separately**, and while both exist, the table itself isn't borrowed.

use std::cell::UnsafeCell;

use slab::Slab;

use crate::connection::Connection;

/// The table of connections.
#[derive(Default)]
pub struct Connections(Slab<UnsafeCell<Connection>>);

/// All connections of a thread but one.
pub struct Others<'c> {
    all: &'c Slab<UnsafeCell<Connection>>,
    except: usize,
}

impl Connections {
    /// The number of connections.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "not needed")]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if the key is in use.
    #[must_use]
    pub fn contains(&self, key: usize) -> bool {
        self.0.contains(key)
    }

    /// The connection with this key.
    #[must_use]
    pub fn get(&self, key: usize) -> Option<&Connection> {
        // SAFETY: the table is borrowed, so neither it nor one of its connections is borrowed mutably.
        self.0.get(key).map(|cell| unsafe { &*cell.get() })
    }

    /// The connection with this key, mutable.
    #[inline]
    pub fn get_mut(&mut self, key: usize) -> Option<&mut Connection> {
        self.0.get_mut(key).map(UnsafeCell::get_mut)
    }

    /// The key of the next connection.
    #[must_use]
    pub fn next_key(&self) -> usize {
        self.0.vacant_key()
    }

    /// Adds a connection and returns its key.
    pub fn insert(&mut self, connection: Connection) -> usize {
        self.0.insert(UnsafeCell::new(connection))
    }

    /// Removes a connection.
    pub fn try_remove(&mut self, key: usize) -> Option<Connection> {
        self.0.try_remove(key).map(UnsafeCell::into_inner)
    }

    /// All connections with their keys.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &Connection)> {
        // SAFETY: the table is borrowed, so neither it nor one of its connections is borrowed mutably.
        self.0.iter().map(|(key, cell)| (key, unsafe { &*cell.get() }))
    }

    /// Borrows one connection, and the others separately.
    #[inline]
    pub fn split_at(&mut self, key: usize) -> Option<(&mut Connection, Others<'_>)> {
        let all = &self.0;
        // SAFETY: the table is borrowed mutably as long as both results are used, and the second result never touches the first.
        let one = all.get(key).map(|cell| unsafe { &mut *cell.get() })?;
        Some((one, Others { all, except: key }))
    }
}

impl Others<'_> {
    /// The connection with this key, unless it is the one that is borrowed separately.
    pub fn get_mut(&mut self, key: usize) -> Option<&mut Connection> {
        let cell = self.all.get(key).filter(|_| key != self.except)?;
        // SAFETY: the key differs from the separately borrowed connection's. `self` is borrowed mutably as long as the result is used, and
        // there is only one `Others`.
        Some(unsafe { &mut *cell.get() })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;

    use engine::clients::client::Client;
    use engine::clients::session::Session;

    use super::*;
    use crate::connection::Socket;

    fn connection(id: u64) -> Connection {
        let client = Client::new(id, 0, String::new(), String::new(), 0, 0, 0);
        Connection::new(Socket::Unix(UnixStream::pair().unwrap().0), Session::new(Arc::new(client), true))
    }

    #[test]
    fn one_connection_is_borrowed_separately_from_the_others() {
        let mut connections = Connections::default();
        let keys: Vec<usize> = (0..3).map(|id| connections.insert(connection(id))).collect();
        let (one, mut others) = connections.split_at(keys[1]).unwrap();
        assert!(others.get_mut(keys[1]).is_none() && others.get_mut(9).is_none());
        others.get_mut(keys[0]).unwrap().input.push(b'0');
        one.input.push(b'1');
        others.get_mut(keys[2]).unwrap().input.push(b'2');
        assert_eq!(connections.iter().map(|(_, c)| c.input.as_slice()).collect::<Vec<_>>(), [b"0", b"1", b"2"]);
    }
}
