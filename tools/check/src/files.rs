//! Expands the paths of the command line to the files to check.

use std::io;
use std::path::{Path, PathBuf};

use crate::file::{self, Options, PartPlace};
use crate::finding::{Finding, Kind};
use crate::manifest;

/// A unit of checking.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CheckTarget {
    /// A manifest with the files that it names.
    Manifest(PathBuf),
    /// A snapshot or a file of commands.
    File(PathBuf),
}

impl CheckTarget {
    /// Checks the target and returns a finding for each file.
    pub fn check(&self, options: Options) -> Vec<Finding> {
        match self {
            CheckTarget::Manifest(path) => manifest::check(path, options),
            CheckTarget::File(path) => vec![file::check(path, manifest::place_of(path), options)],
        }
    }
}

/// Returns the targets that these paths name, in order.
///
/// # Errors
/// Returns a message if a path is missing or unreadable, or is a directory without any file to check.
pub fn targets(paths: &[PathBuf]) -> Result<Vec<CheckTarget>, String> {
    let mut all = Vec::new();
    for path in paths {
        let cant = |error: io::Error| format!("can't open {}: {error}", path.display());
        let metadata = path.metadata().map_err(cant)?;
        if !metadata.is_dir() {
            // Only regular files can be read more than once.
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
            let what = "no manifest, *.rdb or *.aof in it or in an append-only directory below it";
            return Err(format!("nothing to check in {}: {what}", path.display()));
        }
        all.extend(found);
    }
    Ok(all)
}

/// Returns the snapshots and append-only files of a directory, and of the directories below it that have manifests.
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
    // The check of a manifest covers the files that begin with its name.
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
