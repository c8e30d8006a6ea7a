//! Commands that configure and control the server.

pub mod acl;
pub mod command;
pub mod config;
pub mod debug;
pub mod module;
pub mod persistence;
pub mod server;
