//! What the rooms above share: things that a worker does for a session beside running its commands. Each is told what
//! has happened; none of them runs a command.
//!
//! Which user a session is and what it is denied (`access.rs`), what a session publishes and hears (`publishing.rs`), what is published
//! of changed keys (`notifications.rs`), what clients that cache are told (`invalidations.rs`), what monitors are shown
//! (`monitors.rs`), what took long (`slow.rs`), which arguments are secrets (`secrets.rs`), how connections end (`closing.rs`), and how snapshots begin and end (`saving.rs`).

pub mod access;
pub(crate) mod closing;
pub(crate) mod invalidations;
pub(crate) mod migrating;
pub mod monitors;
pub(crate) mod notifications;
pub(crate) mod publishing;
pub mod saving;
pub(crate) mod secrets;
pub(crate) mod slow;
