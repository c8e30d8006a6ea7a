//! The file of the cluster's state (nodes.conf): its lock, its contents at the start, and the thread that writes it.
//!
//! A save writes a second file, syncs it, and renames it over the first one: a crash leaves the old contents or the new ones. The lock is
//! a flock on the file itself, as the peers have it. The new file is locked before the rename, so that the name is never without a lock.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use cluster::Generation;
use cluster::file::NodesFile;
use config::Settings;
use persistence::disk::{Directory, Disk, DiskFile};
use rustix::fs::{FlockOperation, flock};

use crate::conf_file::system_text;
use crate::log;
use crate::threads;

/// The end of the name of the file that is written, until it is renamed.
const NEW: &str = ".new";
/// The end of the name of the contents before the last changes.
const PREVIOUS: &str = ".previous";
/// The time without a save after which the contents before the last changes are written. Saves don't wait for it.
const QUIET: Duration = Duration::from_secs(1);
/// The longest file that is read.
const FILE_BYTES_MAX: u64 = 256 << 20;

/// Locks a file for this process.
type Lock<F> = fn(&F) -> io::Result<()>;

/// The file of the cluster's state on a disk.
pub struct StateFile<D: Disk> {
    disk: D,
    name: String,
    lock: Lock<D::File>,
    /// The file with the lock.
    held: Option<D::File>,
    /// The contents; empty for a new node.
    contents: String,
}

impl<D: Disk> StateFile<D> {
    /// Replaces the file's contents, and returns the former ones.
    ///
    /// # Errors
    /// The disk's error. The contents are the old ones or the new ones then.
    pub fn replace(&mut self, text: String) -> io::Result<String> {
        let locked = self.write_beside(&self.name, text.as_bytes())?;
        self.held = Some(locked);
        Ok(std::mem::replace(&mut self.contents, text))
    }

    /// Keeps contents as the previous ones, to start from by hand. An error only costs the copy.
    fn keep_previous(&self, text: &str) {
        let kept = self.write_beside(&format!("{}{PREVIOUS}", self.name), text.as_bytes());
        if let Err(error) = kept {
            log::warning(format!("{}{PREVIOUS} could not be written: {error}", self.name));
        }
    }

    /// Makes the saves that arrive, and reports each.
    fn serve(&mut self, saves: &Receiver<(Generation, String)>, tell: impl Fn(Saved), quiet: Duration) {
        let mut before = None;
        loop {
            let next = match before {
                Some(_) => saves.recv_timeout(quiet),
                None => saves.recv().map_err(RecvTimeoutError::from),
            };
            match next {
                Ok((generation, text)) => {
                    let replaced = self.replace(text);
                    let saved = replaced.map(|replaced| _ = before.get_or_insert(replaced));
                    tell((generation, saved));
                }
                Err(RecvTimeoutError::Timeout) => {
                    let text = before.take().filter(|text| !text.is_empty());
                    text.into_iter().for_each(|text| self.keep_previous(&text));
                }
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Writes a file under a second name, and renames it.
    fn write_beside(&self, name: &str, text: &[u8]) -> io::Result<D::File> {
        let new = format!("{name}{NEW}");
        let mut file = self.disk.create(&new)?;
        (self.lock)(&file)?;
        let mut at = 0;
        while at < text.len() {
            match file.write_at(at as u64, &text[at..])? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                bytes => at += bytes,
            }
        }
        file.sync()?;
        let renamed = self.disk.rename(&new, name);
        renamed.map_err(|error| {
            io::Error::new(error.kind(), format!("Could not rename tmp cluster config file: {error}"))
        })?;
        self.disk.sync_directory()?;
        Ok(file)
    }
}

/// Locks a file, unless another server has locked it.
fn lock_file(file: &Arc<File>) -> io::Result<()> {
    Ok(flock(&**file, FlockOperation::NonBlockingLockExclusive)?)
}

/// The file at a server's start.
pub struct OpenedState {
    /// The file, locked.
    pub file: StateFile<Directory>,
    /// Its contents; none for a new node.
    pub nodes: Option<NodesFile>,
}

/// Locks and reads the configured file, or makes an empty one.
///
/// # Errors
/// Names the file, the line and the remedy.
pub fn open(settings: &Settings) -> Result<OpenedState, String> {
    let path = settings.in_dir(&settings.cluster_config_file.get());
    let cannot = |what: &str, error: &io::Error| format!("Can't {what} {}: {}", path.display(), system_text(error));
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| format!("cluster-config-file {} is no name of a file", path.display()))?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let disk = Directory::open(parent.to_owned()).map_err(|error| cannot("open the directory of", &error))?;
    let file = open_or_create(&path).map_err(|error| cannot("open", &error))?;
    let held = lock(&path, file)?;
    let mut text = String::new();
    let read = (&*held).take(FILE_BYTES_MAX).read_to_string(&mut text);
    read.map_err(|error| cannot("read", &error))?;
    let nodes = NodesFile::parse(&text).map_err(|error| {
        format!(
            "Unrecoverable error: corrupted cluster config file \"{}\": {error}. The server does not start without it: correct the file, \
             replace it by {name}{PREVIOUS}, which has the contents before the last changes, or by a copy of another node with 'myself' \
             moved, or remove it to start a new node without slots.",
            path.display()
        )
    })?;
    let file = StateFile { disk, name: name.to_owned(), lock: lock_file, held: Some(held), contents: text };
    Ok(OpenedState { file, nodes })
}

fn open_or_create(path: &Path) -> io::Result<Arc<File>> {
    let options = &mut std::fs::OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).open(path).map(Arc::new)
}

/// Locks the file. A server that saves may have renamed another file over it meanwhile.
fn lock(path: &Path, mut file: Arc<File>) -> Result<Arc<File>, String> {
    use std::os::unix::fs::MetadataExt;
    let cannot = |error: &io::Error| format!("Can't lock {}: {}", path.display(), system_text(error));
    loop {
        match lock_file(&file) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(format!(
                    "Sorry, the cluster configuration file {} is already used by a different node. Please make sure that different nodes \
                     use different cluster configuration files.",
                    path.display()
                ));
            }
            Err(error) => return Err(cannot(&error)),
        }
        let identity = |metadata: io::Result<std::fs::Metadata>| metadata.map(|file| (file.dev(), file.ino())).ok();
        if identity(file.metadata()) == identity(path.metadata()) {
            return Ok(file);
        }
        file = open_or_create(path).map_err(|error| cannot(&error))?;
    }
}

/// The outcome of a save.
pub type Saved = (Generation, io::Result<()>);

/// Starts the thread that saves. It reports each save by `tell`.
///
/// # Errors
/// If no other thread can be started.
pub fn start<D: Disk + 'static>(
    mut file: StateFile<D>,
    tell: impl Fn(Saved) + Send + 'static,
) -> Result<Sender<(Generation, String)>, String>
where
    D::File: Send,
{
    let (sender, saves): (_, Receiver<(Generation, String)>) = channel();
    let run = move || file.serve(&saves, tell, QUIET);
    let thread = threads::spawn(&threads::CLUSTER_FILE, run);
    thread.map_err(threads::cannot_start)?;
    Ok(sender)
}

#[cfg(test)]
mod tests {
    use persistence::fake::{FakeDisk, FakeFile};

    use super::*;

    fn on(disk: &FakeDisk) -> StateFile<FakeDisk> {
        fn lock(_: &FakeFile) -> io::Result<()> {
            Ok(())
        }
        StateFile { disk: disk.clone(), name: "nodes.conf".into(), lock, held: None, contents: String::new() }
    }

    #[test]
    fn the_contents_before_the_last_changes_are_kept() {
        let disk = FakeDisk::new(1);
        let mut file = on(&disk);
        let previous =
            |disk: &FakeDisk| disk.bytes("nodes.conf.previous").map(|bytes| String::from_utf8(bytes).unwrap());
        let (sender, saves) = channel();
        let saving = std::thread::spawn(move || file.serve(&saves, |_| {}, Duration::from_millis(100)));
        let save = |number: u64| sender.send((Generation(number), format!("save {number}\n"))).unwrap();
        let wait_for = |text: &str| {
            while previous(&disk).as_deref() != Some(text) {
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        // A new node has no contents to keep.
        save(1);
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(previous(&disk), None);
        save(2);
        save(3);
        wait_for("save 1\n");
        save(4);
        wait_for("save 3\n");
        drop(sender);
        saving.join().unwrap();
        assert_eq!(disk.bytes("nodes.conf").unwrap(), b"save 4\n");
    }

    #[test]
    fn a_crash_leaves_the_last_save_or_the_one_that_had_begun() {
        for seed in 1..300 {
            let disk = FakeDisk::new(seed);
            let mut file = on(&disk);
            let texts: Vec<String> = (0..4).map(|save| format!("save {save}\n").repeat(40 * (save + 1))).collect();
            file.replace(texts[0].clone()).unwrap();
            file.replace(texts[1].clone()).unwrap();
            disk.fail(seed % 12, 1);
            let saved = file.replace(texts[2].clone()).is_ok();
            let found = disk.crash(seed).bytes("nodes.conf");
            let allowed: &[&String] = if saved { &[&texts[2]] } else { &[&texts[1], &texts[2]] };
            let found = String::from_utf8(found.expect("the name is always there")).unwrap();
            assert!(allowed.contains(&&found), "seed {seed}, saved {saved}: {} bytes", found.len());
        }
    }

    #[test]
    fn a_full_disk_fails_the_save_and_leaves_the_file() {
        let disk = FakeDisk::new(7);
        let mut file = on(&disk);
        file.replace("before\n".into()).unwrap();
        disk.leave_room(Some(3));
        assert!(file.replace("x".repeat(100)).is_err());
        assert_eq!(disk.bytes("nodes.conf").unwrap(), b"before\n");
        disk.leave_room(None);
        file.replace("after\n".into()).unwrap();
        assert_eq!(disk.bytes("nodes.conf").unwrap(), b"after\n");
    }

    #[test]
    fn two_servers_never_have_the_same_file() {
        let directory = std::env::temp_dir().join(format!("penstock-state-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("nodes.conf");
        let held = lock(&path, open_or_create(&path).unwrap()).unwrap();
        let refused = lock(&path, open_or_create(&path).unwrap()).unwrap_err();
        assert!(refused.contains("is already used by a different node"), "{refused}");
        let disk = Directory::open(directory.clone()).unwrap();
        let mut file =
            StateFile { disk, name: "nodes.conf".into(), lock: lock_file, held: Some(held), contents: String::new() };
        // A save gives the name another file, which is locked, too.
        file.replace("text\n".into()).unwrap();
        assert!(lock(&path, open_or_create(&path).unwrap()).is_err());
        drop(file);
        assert!(lock(&path, open_or_create(&path).unwrap()).is_ok());
        std::fs::remove_dir_all(directory).unwrap();
    }
}
