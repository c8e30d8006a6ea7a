//! Checks a manifest and the files that it names.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Instant;

use persistence::manifest::{Manifest, Role};

use crate::file::{self, Options, PartPlace, unreadable};
use crate::finding::{Finding, Flaw, Kind, Verdict};

/// Maximum number of bytes read from a manifest. It has one line for each file.
const BYTES_MAX: u64 = 1 << 20;
/// File name extension of a manifest. The names of its files begin with the part before the extension.
pub const EXTENSION: &str = ".manifest";

/// Reads a manifest.
///
/// # Errors
/// Returns the flaw of a manifest that can't be read or parsed.
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
    if manifest.parts.is_empty() { Err(flaw("the manifest names no file".into())) } else { Ok(manifest) }
}

/// Returns the files that servers read for this manifest, in order.
fn parts(path: &Path, manifest: &Manifest) -> Vec<(PathBuf, PartPlace)> {
    let names: Vec<&str> = manifest.base().into_iter().chain(manifest.increments()).map(|part| &*part.name).collect();
    let place = |index: usize| if index + 1 == names.len() { PartPlace::Last } else { PartPlace::Before };
    names.iter().enumerate().map(|(index, name)| (path.with_file_name(name), place(index))).collect()
}

/// Checks a manifest and all files that it names. Returns a finding for each; the first is for the manifest.
pub fn check(path: &Path, options: Options) -> Vec<Finding> {
    let began = Instant::now();
    let mut finding = Finding::new(path, Kind::Manifest);
    finding.bytes = path.metadata().map_or(0, |metadata| metadata.len());
    let manifest = match read(path) {
        Ok(manifest) => manifest,
        Err(flaw) => return vec![finding.with_flaw(flaw)],
    };
    let parts = parts(path, &manifest);
    if let Some(why) = contradiction(path, &manifest) {
        finding.set_flaw(Flaw {
            verdict: Verdict::Broken,
            offset: None,
            key: None,
            what: format!("{why}: a server refuses to start without its data"),
            advice: "Restore the manifest from a backup, or write it anew with a line for each file. Move the file away if its data are \
                     not wanted."
                .into(),
        });
    }
    finding.parts = parts.iter().map(|(path, _)| path.display().to_string()).collect();
    finding.notes = notes(path, &manifest);
    finding.seconds = began.elapsed().as_secs_f64();
    let files = parts.iter().map(|(path, place)| file::check(path, *place, options));
    std::iter::once(finding).chain(files).collect()
}

/// Returns the reason if a manifest seems to have lost the line of a file beside it.
fn contradiction(path: &Path, manifest: &Manifest) -> Option<String> {
    let name = path.file_name()?.to_str()?.strip_suffix(EXTENSION)?;
    let bytes = |file: &str| path.with_file_name(file).metadata().map_or(0, |metadata| metadata.len());
    let there: Vec<(String, u64)> =
        names(path.parent().unwrap_or(Path::new(""))).into_iter().map(|file| (file.clone(), bytes(&file))).collect();
    manifest.contradiction(name, &there)
}

/// Returns the file's position in the manifest beside it that names it.
pub fn place_of(path: &Path) -> PartPlace {
    let beside = manifests(path.parent().unwrap_or(Path::new("")));
    let found = beside.iter().find_map(|manifest_path| {
        let manifest = read(manifest_path).ok()?;
        let parts = parts(manifest_path, &manifest);
        parts.iter().find(|(part, _)| part.file_name() == path.file_name()).map(|(_, place)| *place)
    });
    found.unwrap_or(PartPlace::Alone)
}

/// Returns the manifests of a directory, sorted by name. Unfinished manifests of a running server are skipped.
pub fn manifests(directory: &Path) -> Vec<PathBuf> {
    names(directory)
        .into_iter()
        .filter(|name| name.ends_with(EXTENSION) && !name.starts_with("temp-"))
        .map(|name| directory.join(name))
        .collect()
}

/// Returns the names in a directory, sorted.
pub fn names(directory: &Path) -> Vec<String> {
    let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// Returns notes on files in the directory that a server would remove or never read.
fn notes(path: &Path, manifest: &Manifest) -> Vec<String> {
    let is_there = |name: &str| path.with_file_name(name).exists();
    let history = manifest.parts.iter().filter(|part| part.role == Role::History && is_there(&part.name));
    let mut notes: Vec<String> =
        history.map(|part| format!("{} is superseded; a server will remove it", part.name)).collect();
    let prefix = path.file_name().and_then(|name| name.to_str()?.strip_suffix(EXTENSION)).unwrap_or_default();
    let is_named = |name: &String| manifest.parts.iter().any(|part| part.name == *name);
    let is_part = |name: &String| {
        !prefix.is_empty() && name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('.') && rest != EXTENSION)
    };
    let others =
        names(path.parent().unwrap_or(Path::new(""))).into_iter().filter(|name| is_part(name) && !is_named(name));
    notes.extend(others.map(|name| {
        format!("{name} is in the same directory, but the manifest doesn't name it: servers don't read it")
    }));
    notes
}
