//! A thread's connections, by the poller's numbers.
//!
//! `unsafe` because a connection that runs is borrowed apart from the others, which may have to be served meanwhile.
//! The invariant: **an [`Others`] never touches the one connection that was taken apart from it**, and as long as both
//! exist, the table itself isn't borrowed.

use std::cell::UnsafeCell;

use slab::Slab;

use crate::connection::Connection;

/// See the module's documentation.
#[derive(Default)]
pub struct Connections(Slab<UnsafeCell<Connection>>);

/// All connections of a thread but one.
pub struct Others<'c> {
    all: &'c Slab<UnsafeCell<Connection>>,
    except: usize,
}

impl Connections {
    /// How many there are.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "not needed")]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is one of this number.
    #[must_use]
    pub fn contains(&self, key: usize) -> bool {
        self.0.contains(key)
    }

    /// The connection of this number.
    #[must_use]
    pub fn get(&self, key: usize) -> Option<&Connection> {
        // SAFETY: the table is borrowed, so neither it nor one of its connections is borrowed mutably.
        self.0.get(key).map(|cell| unsafe { &*cell.get() })
    }

    /// The same, to be changed.
    #[inline]
    pub fn get_mut(&mut self, key: usize) -> Option<&mut Connection> {
        self.0.get_mut(key).map(UnsafeCell::get_mut)
    }

    /// The number that the next one gets.
    #[must_use]
    pub fn next_key(&self) -> usize {
        self.0.vacant_key()
    }

    /// Adds one, and returns its number.
    pub fn insert(&mut self, connection: Connection) -> usize {
        self.0.insert(UnsafeCell::new(connection))
    }

    /// Removes one.
    pub fn try_remove(&mut self, key: usize) -> Option<Connection> {
        self.0.try_remove(key).map(UnsafeCell::into_inner)
    }

    /// All of them, with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &Connection)> {
        // SAFETY: as in `get`.
        self.0.iter().map(|(key, cell)| (key, unsafe { &*cell.get() }))
    }

    /// One connection, and apart from it the others.
    #[inline]
    pub fn apart(&mut self, key: usize) -> Option<(&mut Connection, Others<'_>)> {
        let all = &self.0;
        // SAFETY: the table is borrowed mutably as long as both results are used, and the second never touches the
        // first.
        let one = all.get(key).map(|cell| unsafe { &mut *cell.get() })?;
        Some((one, Others { all, except: key }))
    }
}

impl Others<'_> {
    /// The connection of this number, unless it is the one.
    pub fn get_mut(&mut self, key: usize) -> Option<&mut Connection> {
        let cell = self.all.get(key).filter(|_| key != self.except)?;
        // SAFETY: it is not the one that is borrowed apart; this is borrowed mutably as long as the result is used, and
        // there is only one of it.
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
    fn one_is_borrowed_apart_from_the_others() {
        let mut connections = Connections::default();
        let keys: Vec<usize> = (0..3).map(|id| connections.insert(connection(id))).collect();
        let (one, mut others) = connections.apart(keys[1]).unwrap();
        assert!(others.get_mut(keys[1]).is_none() && others.get_mut(9).is_none());
        others.get_mut(keys[0]).unwrap().input.push(b'0');
        one.input.push(b'1');
        others.get_mut(keys[2]).unwrap().input.push(b'2');
        assert_eq!(connections.iter().map(|(_, c)| c.input.as_slice()).collect::<Vec<_>>(), [b"0", b"1", b"2"]);
    }
}
