//! Tests on synthetic traffic.

mod load;
mod loops;
mod movies;
mod others;
mod reads;
pub(crate) mod traffic;
