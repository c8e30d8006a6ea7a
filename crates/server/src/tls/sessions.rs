//! `tls-session-caching`: the sessions that save returning clients half of the handshake.

use std::time::{Duration, Instant};

use rustls::server::{ServerSessionMemoryCache, StoresServerSessions};

/// A cache with expiring sessions.
#[derive(Debug)]
pub struct Sessions {
    cache: std::sync::Arc<ServerSessionMemoryCache>,
    /// The origin of times.
    began: Instant,
    timeout: Duration,
}

/// Bytes of the time before each session.
const TIME_BYTES: usize = 8;

impl Sessions {
    /// A cache of `size` sessions, each valid for `timeout`. The oldest go first.
    #[must_use]
    pub fn new(size: usize, timeout: Duration) -> Sessions {
        Sessions { cache: ServerSessionMemoryCache::new(size), began: Instant::now(), timeout }
    }

    /// Returns the session, if it hasn't expired.
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
