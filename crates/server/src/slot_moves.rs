//! Moves of whole slots between nodes: a thread for each import, and the end of imports that this node only followed.
//!
//! See `engine::slots::jobs` for the jobs, and docs/cluster.md for the order of the messages.

mod ending;
mod import;
mod records;

pub use self::ending::{end_followed, end_followed_later, forget_followed};
pub use self::import::{give_up as give_up_import, start as start_import};
