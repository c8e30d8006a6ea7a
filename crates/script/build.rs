//! Builds Lua from third_party/lua; its README lists the differences from Lua 5.1.

use std::error::Error;
use std::path::Path;
use std::{env, fs};

fn main() -> Result<(), Box<dyn Error>> {
    let sources = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("../../third_party/lua/src");
    println!("cargo:rerun-if-changed={}", sources.display());
    println!("cargo:rerun-if-changed=build.rs");
    let mut lua = cc::Build::new();
    // With this define, errors jump without saving the signal mask first.
    lua.include(&sources).define("LUA_USE_POSIX", None).warnings(false);
    if cfg!(debug_assertions) {
        lua.define("LUA_USE_APICHECK", None);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(&sources)? {
        files.push(entry?.path());
    }
    // Sorted, so that builds are reproducible: directories list their files in any order.
    files.sort();
    lua.files(files.iter().filter(|file| file.extension().is_some_and(|extension| extension == "c")));
    lua.try_compile("lua5.1")?;
    Ok(())
}
