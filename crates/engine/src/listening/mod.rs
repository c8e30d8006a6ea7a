//! Which keys have listeners: which may have any (`listeners.rs`), and which are watched (`watch.rs`), and
//! which changes are published (`events.rs`). Sessions that wait for keys are in `clients::blocking`.

pub(crate) mod events;
pub mod listeners;
pub mod watch;
