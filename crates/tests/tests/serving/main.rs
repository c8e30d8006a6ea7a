//! The server from outside: order, limits, hostile clients, durability, threads.
//!
//! All tests are in one program, since linking dozens of programs took longer than running them.

mod abort;
mod advisor;
mod append_only;
mod batch_times;
mod caching;
mod client_eviction;
mod clock;
mod conf_files;
mod durability;
mod gathered;
mod half_closed;
mod hanging_disk;
mod heap;
mod hostile;
mod https;
mod large_args;
mod order;
mod pipeline_bugs;
mod process;
mod progress;
mod pubsub_threads;
mod renamed;
mod replies;
mod replies_limits;
mod resume;
mod script_busy;
mod script_threads;
mod tls;
mod users;
