//! An engine without a server, for tests.

// Clippy allows unwrap in tests, but not in functions that only tests call.
#![allow(clippy::unwrap_used)]

use config::{Apply, ConfigHost, Loader, Settings};
use engine::host::{Host, Shutdown};
use engine::inbox::Wake;
use engine::state::Engine;

struct NoServer;

impl ConfigHost for NoServer {
    fn apply(&self, _: Apply, _: &Settings) -> Result<(), String> {
        Ok(())
    }
}

impl Host for NoServer {
    fn shut_down(&self, _: Shutdown) {}
}

impl Wake for NoServer {
    fn wake(&self) {}
}

/// Starts an engine of one thread with these directives.
pub fn engine(directives: &[(&str, &str)]) -> &'static Engine {
    let settings = Settings::new();
    for (name, value) in directives {
        Loader::new(&settings).directive(&[name.as_bytes().to_vec(), value.as_bytes().to_vec()]).unwrap();
    }
    Engine::start(engine::registry::table(), settings, None, vec![Box::new(NoServer)], Box::new(NoServer), 0)
}
