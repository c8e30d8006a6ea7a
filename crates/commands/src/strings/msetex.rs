//! MSETEX: sets several keys with one expiry, optionally only if all or none of them exist.
//!
//! Source of the semantics: Redis's page of MSETEX.

use store::db::Ttl;

use super::set::{ExpiryOption, SetCondition, expiry, options_of_msetex};
use crate::Call;
use crate::effects::Class;
use crate::error::{Error, Outcome};

const INVALID_NUMKEYS: Error = Error::fixed("ERR invalid numkeys value");
const WRONG_PAIRS: Error = Error::fixed("ERR wrong number of key-value pairs");

/// Index of the first pair; the number of pairs is before it.
const FIRST_PAIR: usize = 2;

pub(super) fn msetex(call: &mut Call<'_, '_, '_>) -> Outcome {
    let pairs = resp::num::parse_i64(call.arg(1)).and_then(|n| i32::try_from(n).ok());
    let pairs = pairs.and_then(|n| usize::try_from(n).ok()).filter(|&n| n > 0).ok_or(INVALID_NUMKEYS)?;
    if pairs > (call.len() - FIRST_PAIR) / 2 {
        return Err(WRONG_PAIRS);
    }
    let options = options_of_msetex(call, FIRST_PAIR + 2 * pairs)?;
    let ttl = match options.expiry {
        ExpiryOption::Keep => Ttl::Keep,
        ExpiryOption::Set(unit, index) => Ttl::At(expiry(call, unit, index, "msetex")?),
        ExpiryOption::Unsaid | ExpiryOption::Persist => Ttl::Clear,
    };
    let holds = match options.condition {
        SetCondition::IfAbsent => !call.each_key().any(|key| call.db.exists_for_write(key)),
        SetCondition::IfExists => call.each_key().all(|key| call.db.exists_for_write(key)),
        SetCondition::Always | SetCondition::If(_) => true,
    };
    if holds {
        set_pairs(call, ttl);
    }
    call.reply.int(i64::from(holds));
    Ok(())
}

fn set_pairs(call: &mut Call<'_, '_, '_>, ttl: Ttl) {
    for window in call.windows() {
        call.enter(window);
        for key in window {
            let (value, key) = (call.arg(key.arg as usize + 1), call.key_of(key));
            call.set_string(key, value, ttl);
            // The events follow Redis's order, which differs from SET's.
            if matches!(ttl, Ttl::At(_)) {
                call.event(key, Class::Generic, "expire");
            }
            call.changed(key, Class::String, "set");
            call.record_set(key, value, ttl);
        }
    }
}
