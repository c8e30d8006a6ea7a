//! Tests on synthetic traffic.

mod chains;
mod load;
mod loops;
mod merged;
mod movies;
mod others;
mod reads;
mod searches;
pub(crate) mod traffic;
