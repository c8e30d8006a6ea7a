//! A manifest and the files that it names.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Instant;

use persistence::manifest::{Manifest, Role};

use crate::file::{self, Options, PartPlace, unreadable};
use crate::finding::{Finding, Flaw, Kind, Verdict};

/// Bytes of a manifest that are read: it has a line for each file.
const BYTES_MAX: u64 = 1 << 20;
/// What the name of a manifest ends with; the names of its files begin with what is before.
pub const EXTENSION: &str = ".manifest";

/// Reads a manifest.
///
/// # Errors
/// What is wrong with it.
pub fn read(path: &Path) -> Result<Manifest, Flaw> {
    let mut text = Vec::new();
    let read = File::open(path).and_then(|file| file.take(BYTES_MAX).read_to_end(&mut text));
    read.map_err(|error| unreadable(&error))?;
    let flaw = |what: String| Flaw {
        verdict: Verdict::Broken,
        offset: None,
        key: None,
        what,
        advice: "Restore it from a backup, or write it anew: a line for each file, the base first, as in `file \
                 appendonly.aof.1.incr.aof seq 1 type i`."
            .into(),
    };
    let manifest = Manifest::parse(&text).map_err(|bad| flaw(bad.to_string()))?;
    if manifest.parts.is_empty() { Err(flaw("it names no file".into())) } else { Ok(manifest) }
}

/// The files that a manifest has servers read, in their order.
fn parts(path: &Path, manifest: &Manifest) -> Vec<(PathBuf, PartPlace)> {
    let names: Vec<&str> = manifest.base().into_iter().chain(manifest.increments()).map(|part| &*part.name).collect();
    let place = |index: usize| if index + 1 == names.len() { PartPlace::Last } else { PartPlace::Before };
    names.iter().enumerate().map(|(index, name)| (path.with_file_name(name), place(index))).collect()
}

/// Checks a manifest and all files that it names: a finding for each, the manifest's first.
pub fn check(path: &Path, options: Options) -> Vec<Finding> {
    let began = Instant::now();
    let mut finding = Finding::new(path, Kind::Manifest);
    finding.bytes = path.metadata().map_or(0, |metadata| metadata.len());
    let manifest = match read(path) {
        Ok(manifest) => manifest,
        Err(flaw) => return vec![finding.with_flaw(flaw)],
    };
    let parts = parts(path, &manifest);
    finding.parts = parts.iter().map(|(path, _)| path.display().to_string()).collect();
    finding.notes = notes(path, &manifest);
    finding.seconds = began.elapsed().as_secs_f64();
    let files = parts.iter().map(|(path, place)| file::check(path, *place, options));
    std::iter::once(finding).chain(files).collect()
}

/// The manifest beside a file that names it, and the file's place there.
pub fn place_of(path: &Path) -> PartPlace {
    let beside = manifests(path.parent().unwrap_or(Path::new("")));
    let found = beside.iter().find_map(|manifest_path| {
        let manifest = read(manifest_path).ok()?;
        let parts = parts(manifest_path, &manifest);
        parts.iter().find(|(part, _)| part.file_name() == path.file_name()).map(|(_, place)| *place)
    });
    found.unwrap_or(PartPlace::Alone)
}

/// The manifests of a directory, by name. One that a server has begun and not put in its place is none.
pub fn manifests(directory: &Path) -> Vec<PathBuf> {
    names(directory)
        .into_iter()
        .filter(|name| name.ends_with(EXTENSION) && !name.starts_with("temp-"))
        .map(|name| directory.join(name))
        .collect()
}

/// The names in a directory, in order.
pub fn names(directory: &Path) -> Vec<String> {
    let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// What is worth knowing of the directory: files that servers will remove, and files that none reads.
fn notes(path: &Path, manifest: &Manifest) -> Vec<String> {
    let is_there = |name: &str| path.with_file_name(name).exists();
    let history = manifest.parts.iter().filter(|part| part.role == Role::History && is_there(&part.name));
    let mut notes: Vec<String> =
        history.map(|part| format!("{} is superseded; a server removes it", part.name)).collect();
    let prefix = path.file_name().and_then(|name| name.to_str()?.strip_suffix(EXTENSION)).unwrap_or_default();
    let is_named = |name: &String| manifest.parts.iter().any(|part| part.name == *name);
    let is_part = |name: &String| {
        !prefix.is_empty() && name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('.') && rest != EXTENSION)
    };
    let others =
        names(path.parent().unwrap_or(Path::new(""))).into_iter().filter(|name| is_part(name) && !is_named(name));
    notes.extend(others.map(|name| format!("{name} is beside it, but not named: servers don't read it")));
    notes
}
