//! Tests on synthetic traffic.

mod load;
mod loops;
mod merged;
mod movies;
mod others;
mod reads;
pub(crate) mod traffic;
