//! The one binary. To be written.
fn main() {}
