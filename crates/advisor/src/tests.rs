//! Synthetic traffic: what is found, and what isn't.

mod loops;
mod movies;
mod others;
mod reads;
pub(crate) mod traffic;
