//! A disk that a test can make hang: a library that is preloaded into the server (hanging_disk.c).

use std::{env, fs, process};

use crate::directory::Directory;

/// See the module's documentation.
pub struct HangingDisk {
    /// The directory of the library and of the switch file, which makes calls hang while it exists.
    directory: Directory,
}

impl Default for HangingDisk {
    fn default() -> HangingDisk {
        HangingDisk::new()
    }
}

impl HangingDisk {
    /// Compiles the library. The server's build needs a C compiler, so there is one.
    pub fn new() -> HangingDisk {
        let disk = HangingDisk { directory: Directory::new() };
        let compiler = env::var_os("CC").unwrap_or_else(|| "cc".into());
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/src/hanging_disk.c");
        let status =
            process::Command::new(compiler).args(["-shared", "-fPIC", "-O1", "-o", &disk.library(), source]).status();
        assert!(status.is_ok_and(|status| status.success()), "hanging_disk.c was not compiled");
        disk
    }

    fn library(&self) -> String {
        self.directory.path("hanging_disk.so")
    }

    fn switch(&self) -> String {
        self.directory.path("switch")
    }

    /// Makes calls hang from now on: `sync`, `write`, or both with a space between.
    pub fn hang(&self, calls: &str) {
        // Renamed, so that the file never appears half written.
        let written = self.directory.file("switch.new", calls);
        fs::rename(written, self.switch()).expect("the test's directory can be written");
    }

    /// Lets all calls return.
    pub fn answer(&self) {
        let _ = fs::remove_file(self.switch());
    }

    /// The environment variables of a server on this disk, in a shell's syntax.
    pub(crate) fn environment(&self) -> String {
        format!("LD_PRELOAD='{}' HANGING_DISK_SWITCH='{}'", self.library(), self.switch())
    }
}
