//! Moves of whole slots between nodes: a thread for each import, one for all exports, and the end of imports that this node only
//! followed.
//!
//! See `engine::slots::jobs` for the jobs, and docs/cluster.md for the order of the messages.

use std::time::Duration;

mod ending;
mod export;
mod import;
mod records;

pub use self::ending::{end_followed, end_followed_later, forget_followed};
pub use self::export::start as start_exports;
pub use self::import::{give_up as give_up_import, start as start_import};

fn in_ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
