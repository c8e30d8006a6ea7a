//! Rate limits for addresses without known valid credentials, against guessing of passwords and useless work.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Instant;

/// Number of addresses with their own allowance; further addresses share one.
const ADDRESSES_MAX: usize = 4096;
/// Burst size, in seconds at the allowed rate.
const BURST_S: f64 = 2.0;

/// An allowance that refills over time.
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

    /// Takes one request from this address's allowance, which refills at `rate` requests per second. Returns false if
    /// the allowance is empty.
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

/// The part of an address that a provider assigns to one customer: the whole IPv4 address, the first half of an IPv6
/// address.
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
    fn an_address_is_limited_per_second() {
        let began = Instant::now();
        let mut allowances = Allowances::new(began);
        let address: IpAddr = [192, 0, 2, 1].into();
        let taken =
            |allowances: &mut Allowances, address, at| (0..100).filter(|_| allowances.take(address, 10, at)).count();
        assert_eq!(taken(&mut allowances, address, began), 20);
        assert_eq!(taken(&mut allowances, address, began), 0);
        assert_eq!(taken(&mut allowances, address, began + Duration::from_millis(500)), 5);
        assert_eq!(taken(&mut allowances, [192, 0, 2, 2].into(), began), 20);
        // A customer's IPv6 network counts as one address.
        let v6 = |last| IpAddr::from([0x2001, 0xdb8, 0, 1, 0, 0, 0, last]);
        assert_eq!(taken(&mut allowances, v6(1), began), 20);
        assert_eq!(taken(&mut allowances, v6(2), began), 0);
    }

    #[test]
    fn unlimited_addresses_take_bounded_memory() {
        let began = Instant::now();
        let mut allowances = Allowances::new(began);
        for address in 0..3 * ADDRESSES_MAX as u32 {
            allowances.take(IpAddr::from(address.to_be_bytes()), 10, began);
        }
        assert_eq!(allowances.by_address.len(), ADDRESSES_MAX);
        // The rest share an allowance; later there are free entries again.
        let late = began + Duration::from_secs(60);
        assert!(allowances.take(IpAddr::from([250, 0, 0, 1]), 10, late));
        assert_eq!(allowances.by_address.len(), 1);
    }
}
