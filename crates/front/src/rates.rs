//! How many requests an address may make whose credentials aren't known to be right: against guessing, and against work for nothing.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Instant;

/// Addresses that are remembered apart; the others share one allowance.
const ADDRESSES_MAX: usize = 4096;
/// Seconds' worth of requests that may come at once.
const BURST_S: f64 = 2.0;

/// An allowance that fills up with time.
#[derive(Clone, Copy)]
struct Allowance {
    left: f64,
    at: Instant,
}

/// See the module's documentation.
pub(crate) struct Allowances {
    by_address: HashMap<IpAddr, Allowance>,
    others: Allowance,
}

impl Allowances {
    pub(crate) fn new(now: Instant) -> Allowances {
        Allowances { by_address: HashMap::new(), others: Allowance { left: 0.0, at: now } }
    }

    /// Takes one request of this address from what it may make, at `rate` requests a second. False if nothing is left.
    pub(crate) fn take(&mut self, address: IpAddr, rate: u32, now: Instant) -> bool {
        let (rate, address) = (f64::from(rate), network(address));
        let most = (rate * BURST_S).max(1.0);
        let full = |a: &Allowance| a.left + now.saturating_duration_since(a.at).as_secs_f64() * rate >= most;
        if self.by_address.len() >= ADDRESSES_MAX && !self.by_address.contains_key(&address) {
            self.by_address.retain(|_, allowance| !full(allowance));
        }
        let is_known = self.by_address.contains_key(&address) || self.by_address.len() < ADDRESSES_MAX;
        let allowance = match is_known {
            true => self.by_address.entry(address).or_insert(Allowance { left: most, at: now }),
            false => &mut self.others,
        };
        let grown = allowance.left + now.saturating_duration_since(allowance.at).as_secs_f64() * rate;
        *allowance = Allowance { left: grown.min(most), at: now };
        let has = allowance.left >= 1.0;
        if has {
            allowance.left -= 1.0;
        }
        has
    }
}

/// The part of an address that a single customer gets: all of IPv4, the first half of IPv6.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            [a, b, c, d, 0, 0, 0, 0].into()
        }
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_address_gets_so_many_a_second() {
        let began = Instant::now();
        let mut allowances = Allowances::new(began);
        let address: IpAddr = [192, 0, 2, 1].into();
        let taken =
            |allowances: &mut Allowances, address, at| (0..100).filter(|_| allowances.take(address, 10, at)).count();
        assert_eq!(taken(&mut allowances, address, began), 20);
        assert_eq!(taken(&mut allowances, address, began), 0);
        assert_eq!(taken(&mut allowances, address, began + Duration::from_millis(500)), 5);
        assert_eq!(taken(&mut allowances, [192, 0, 2, 2].into(), began), 20);
        // A customer's network of IPv6 is one.
        let v6 = |last| IpAddr::from([0x2001, 0xdb8, 0, 1, 0, 0, 0, last]);
        assert_eq!(taken(&mut allowances, v6(1), began), 20);
        assert_eq!(taken(&mut allowances, v6(2), began), 0);
    }

    #[test]
    fn addresses_without_end_take_no_memory_without_end() {
        let began = Instant::now();
        let mut allowances = Allowances::new(began);
        for address in 0..3 * ADDRESSES_MAX as u32 {
            allowances.take(IpAddr::from(address.to_be_bytes()), 10, began);
        }
        assert_eq!(allowances.by_address.len(), ADDRESSES_MAX);
        // The rest is shared, and later there is room again.
        let late = began + Duration::from_secs(60);
        assert!(allowances.take(IpAddr::from([250, 0, 0, 1]), 10, late));
        assert_eq!(allowances.by_address.len(), 1);
    }
}
