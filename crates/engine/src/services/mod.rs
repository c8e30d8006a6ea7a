//! Services of a worker for sessions besides running commands, shared by the modules above. Each service is told about
//! events; no service runs a command.
//!
//! Access control for sessions (`access.rs`), publish and subscribe (`publishing.rs`), keyspace notifications
//! (`notifications.rs`), invalidations for clients that cache (`invalidations.rs`), MONITOR (`monitors.rs`), announcements of
//! maintenance (`maintenance.rs`), routing of
//! commands in a cluster (`routing.rs`), slow commands (`slow.rs`), secret arguments (`secrets.rs`), closing of
//! connections (`closing.rs`), and the beginning and end of snapshots (`saving.rs`).

pub(crate) mod bus_replies;
pub(crate) mod closing;
pub(crate) mod invalidations;
pub(crate) mod maintenance;
pub(crate) mod migrating;
pub mod monitors;
pub(crate) mod notifications;
pub(crate) mod publishing;
pub(crate) mod routing;
pub mod saving;
pub(crate) mod secrets;
pub(crate) mod slow;
pub mod users;
