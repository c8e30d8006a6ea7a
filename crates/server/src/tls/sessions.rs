//! `tls-session-caching`: what lets clients that come again do without half of the handshake.

use std::time::{Duration, Instant};

use rustls::server::{ServerSessionMemoryCache, StoresServerSessions};

/// A cache whose sessions end after some time.
#[derive(Debug)]
pub struct Sessions {
    cache: std::sync::Arc<ServerSessionMemoryCache>,
    /// What times are counted from.
    began: Instant,
    timeout: Duration,
}

/// Bytes of the time before each session.
const TIME_BYTES: usize = 8;

impl Sessions {
    /// A cache of so many sessions, the oldest of which go first; each ends after `timeout`.
    #[must_use]
    pub fn new(size: usize, timeout: Duration) -> Sessions {
        Sessions { cache: ServerSessionMemoryCache::new(size), began: Instant::now(), timeout }
    }

    /// The session, if its time isn't up.
    fn valid(&self, stored: &[u8]) -> Option<Vec<u8>> {
        let (time, session) = stored.split_first_chunk::<TIME_BYTES>()?;
        let age = self.began.elapsed().saturating_sub(Duration::from_millis(u64::from_le_bytes(*time)));
        (age < self.timeout).then(|| session.to_vec())
    }
}

impl StoresServerSessions for Sessions {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        let now_ms = self.began.elapsed().as_millis() as u64;
        self.cache.put(key, [&now_ms.to_le_bytes()[..], &value].concat())
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.cache.get(key).and_then(|stored| self.valid(&stored))
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.cache.take(key).and_then(|stored| self.valid(&stored))
    }

    fn can_cache(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_end_with_their_time() {
        let sessions = Sessions::new(10, Duration::from_secs(60));
        assert!(sessions.put(b"a".to_vec(), b"1".to_vec()) && sessions.put(b"b".to_vec(), b"2".to_vec()));
        assert_eq!(sessions.get(b"a"), Some(b"1".to_vec()));
        assert_eq!((sessions.take(b"b"), sessions.take(b"b")), (Some(b"2".to_vec()), None));
        let sessions = Sessions::new(10, Duration::ZERO);
        assert!(sessions.put(b"a".to_vec(), b"1".to_vec()));
        assert_eq!(sessions.get(b"a"), None);
    }
}
