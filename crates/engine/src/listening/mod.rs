//! Which keys have listeners: which may have any (`listeners.rs`), which are watched (`watch.rs`), and which are
//! remembered for clients that cache them (`tracking.rs`, `tracked_keys.rs`); and which changes are published
//! (`events.rs`). Sessions that wait for keys are in `clients::blocking`.

pub(crate) mod events;
pub mod listeners;
pub mod tracked_keys;
pub mod tracking;
pub mod watch;
