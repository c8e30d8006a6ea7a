//! What the arguments name.

use std::io;
use std::path::{Path, PathBuf};

use crate::file::{self, Options, PartPlace};
use crate::finding::{Finding, Kind};
use crate::manifest;

/// What is checked as one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CheckTarget {
    /// A manifest with its files.
    Manifest(PathBuf),
    /// A snapshot or a file of commands.
    File(PathBuf),
}

impl CheckTarget {
    /// Checks it.
    pub fn check(&self, options: Options) -> Vec<Finding> {
        match self {
            CheckTarget::Manifest(path) => manifest::check(path, options),
            CheckTarget::File(path) => vec![file::check(path, manifest::place_of(path), options)],
        }
    }
}

/// What these paths name, in their order.
///
/// # Errors
/// One isn't there, can't be read, or is a directory without anything to check.
pub fn targets(paths: &[PathBuf]) -> Result<Vec<CheckTarget>, String> {
    let mut all = Vec::new();
    for path in paths {
        let cant = |error: io::Error| format!("can't open {}: {error}", path.display());
        let metadata = path.metadata().map_err(cant)?;
        if !metadata.is_dir() {
            // A file is read more than once.
            if !metadata.is_file() {
                return Err(format!("{} is neither a file nor a directory", path.display()));
            }
            let is_manifest = file::kind(path).map_err(cant)? == Kind::Manifest;
            all.push(if is_manifest { CheckTarget::Manifest(path.clone()) } else { CheckTarget::File(path.clone()) });
            continue;
        }
        std::fs::read_dir(path).map_err(cant)?;
        let found = in_directory(path);
        if found.is_empty() {
            let what = "no manifest, *.rdb or *.aof is in it or in a directory of an append-only file below it";
            return Err(format!("nothing to check in {}: {what}", path.display()));
        }
        all.extend(found);
    }
    Ok(all)
}

/// The snapshots and append-only files of a directory, and of the directories below that have manifests.
fn in_directory(directory: &Path) -> Vec<CheckTarget> {
    let mut found = directly_in(directory);
    let below = manifest::names(directory).into_iter().map(|name| directory.join(name)).filter(|path| path.is_dir());
    for path in below {
        if !manifest::manifests(&path).is_empty() {
            found.extend(directly_in(&path));
        }
    }
    found
}

fn directly_in(directory: &Path) -> Vec<CheckTarget> {
    let manifests = manifest::manifests(directory);
    // A manifest tells of the files whose names begin as its own.
    let prefixes: Vec<String> = manifests
        .iter()
        .filter_map(|path| path.file_name()?.to_str()?.strip_suffix(manifest::EXTENSION).map(|name| format!("{name}.")))
        .collect();
    let is_told_of = |path: &Path, name: &str| {
        prefixes.iter().any(|prefix| name.starts_with(prefix)) || manifest::place_of(path) != PartPlace::Alone
    };
    let files = manifest::names(directory).into_iter().filter_map(|name| {
        let path = directory.join(&name);
        let is_data = (name.ends_with(".rdb") || name.ends_with(".aof")) && !name.starts_with("temp-");
        (is_data && path.is_file() && !is_told_of(&path, &name)).then_some(CheckTarget::File(path))
    });
    let files: Vec<CheckTarget> = files.collect();
    manifests.into_iter().map(CheckTarget::Manifest).chain(files).collect()
}
