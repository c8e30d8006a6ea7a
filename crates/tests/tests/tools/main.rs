//! The tools that talk to a server: `penstock cli`, `load`, `check` and `advise`.

mod advise;
mod check;
mod cli;
mod cli_interactive;
mod cluster;
mod load;
mod load_order;
mod load_refusals;
mod load_resume;
mod manager;
