//! The files of the append-only file, and the manifest that names them.
//!
//! A new manifest is written beside the old one, synced, and renamed over it: there is a whole manifest at every moment. Files are created
//! before the manifest names them, and removed after it no longer does. The increments of new data have temporary names until the manifest
//! has their base; they get their final names after it.

use std::io::{self, Read};

use crate::appender::Appender;
use crate::block::FILE_START;
use crate::disk::{Disk, DiskFile};
use crate::manifest::{BadManifest, Manifest, Part, Role};
use crate::recovery::Extent;

/// The longest manifest in bytes.
const MANIFEST_BYTES_MAX: u64 = 1 << 20;

/// The manifest, and the disk with its files.
pub struct Files<D> {
    disk: D,
    /// The common prefix of all names (`appendfilename`).
    name: String,
    manifest: Manifest,
    /// True if the manifest names a new increment at once. Otherwise only after there is a base for it.
    names_increments: bool,
    /// Increments with a temporary name, because the manifest does not name them yet.
    unnamed: Vec<String>,
    is_ended: bool,
}

/// Returns the temporary name of a file that is incomplete, or missing in the manifest.
fn temporary(name: &str) -> String {
    format!("temp-{name}")
}

/// The reason why the files can't be opened.
#[derive(Debug)]
pub enum NoFiles {
    /// The file concerned, and the system's error.
    Io(String, io::Error),
    /// The manifest is damaged.
    Manifest(String, BadManifest),
}

impl<D: Disk> Files<D> {
    /// Opens the files with the prefix `name`. There are none without a manifest.
    ///
    /// # Errors
    /// If the manifest can't be read, or is damaged.
    pub fn open(disk: D, name: &str) -> Result<Files<D>, NoFiles> {
        let mut files = Files {
            disk,
            name: name.to_string(),
            manifest: Manifest::default(),
            names_increments: true,
            unnamed: Vec::new(),
            is_ended: false,
        };
        let manifest = files.manifest_name();
        match files.disk.read(&manifest) {
            Ok((reader, _)) => {
                let mut text = Vec::new();
                let read = reader.take(MANIFEST_BYTES_MAX).read_to_end(&mut text);
                read.map_err(|error| NoFiles::Io(manifest.clone(), error))?;
                files.manifest = Manifest::parse(&text).map_err(|bad| NoFiles::Manifest(manifest, bad))?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(NoFiles::Io(manifest, error)),
        }
        files.find_unnamed().map_err(|error| NoFiles::Io(name.to_string(), error))?;
        Ok(files)
    }

    /// Keeps new increments out of the manifest until they have a base: the existing files belong to other data.
    pub fn begin_anew(&mut self) {
        self.names_increments = false;
    }

    /// Marks these files as replaced: other files may get the same names from now on.
    pub fn end(&mut self) {
        self.is_ended = true;
    }

    /// Returns true if [`Files::end`] was called.
    #[must_use]
    pub fn are_ended(&self) -> bool {
        self.is_ended
    }

    /// Adopts a file named like the prefix as the base, if there is no manifest: the only file before Redis 7. Returns false if there is
    /// none.
    ///
    /// # Errors
    /// The disk's error.
    pub fn adopt(&mut self) -> io::Result<bool> {
        match self.disk.read(&self.name) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        }
        let mut manifest = Manifest::default();
        manifest.parts.push(Part { name: self.name.clone(), sequence: 1, role: Role::Base });
        self.install(manifest)?;
        Ok(true)
    }

    fn manifest_name(&self) -> String {
        format!("{}.manifest", self.name)
    }

    /// The manifest, including parts that are not written to it yet.
    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The disk.
    #[must_use]
    pub fn disk(&self) -> &D {
        &self.disk
    }

    /// Opens the last increment to append after its whole part, or begins one if there is none.
    ///
    /// # Errors
    /// The disk's.
    pub fn last_increment(&mut self, extent: Extent) -> io::Result<Appender<D::File>> {
        match self.manifest.last_increment() {
            Some(part) => self.cut(&part.name, extent),
            None => self.begin_increment(),
        }
    }

    /// Opens a file to append after its whole part, and cuts off the rest.
    ///
    /// # Errors
    /// The disk's.
    pub fn cut(&self, name: &str, extent: Extent) -> io::Result<Appender<D::File>> {
        let (mut file, now) = self.disk.append(name)?;
        if now > extent.whole {
            file.truncate(extent.whole)?;
        }
        // Bytes left by a crash may be only in the cache.
        file.sync()?;
        let mut appender = Appender::new(file, extent.whole, extent.link);
        if extent.is_cut {
            appender.close_cut_block();
            appender.write()?;
            appender.sync()?;
        }
        Ok(appender)
    }

    /// Begins an increment, which becomes the last one.
    ///
    /// # Errors
    /// The disk's error. Nothing has changed then.
    pub fn begin_increment(&mut self) -> io::Result<Appender<D::File>> {
        let sequence = self.manifest.next_sequence(Role::Increment);
        let name = format!("{}.{sequence}.incr.aof", self.name);
        // A file of this name with data, but in no manifest, would look like one that a damaged manifest has lost.
        let created = if self.names_increments { name.clone() } else { temporary(&name) };
        let mut appender = Appender::new(self.disk.create(&created)?, 0, 0);
        appender.tail().extend_from_slice(FILE_START);
        appender.write()?;
        appender.sync()?;
        let mut manifest = self.manifest.clone();
        manifest.parts.push(Part { name: name.clone(), sequence, role: Role::Increment });
        if self.names_increments {
            self.install(manifest)?;
        } else {
            self.unnamed.push(name);
            self.manifest = manifest;
        }
        Ok(appender)
    }

    /// The name of the next base, and its number.
    #[must_use]
    pub fn next_base(&self, extension: &str) -> (String, u64) {
        let sequence = self.manifest.next_sequence(Role::Base);
        (format!("{}.{sequence}.base.{extension}", self.name), sequence)
    }

    /// Makes a written and synced base, and the increments from `first` on, the whole append-only file. The other files become history and
    /// are removed.
    ///
    /// # Errors
    /// The disk's error. Either the old or the new files are valid then.
    pub fn install_base(&mut self, name: String, sequence: u64, first: u64) -> io::Result<()> {
        let mut manifest = Manifest::default();
        manifest.parts.push(Part { name: name.clone(), sequence, role: Role::Base });
        for part in &self.manifest.parts {
            let stays = part.role == Role::Increment && part.sequence >= first;
            let role = if stays { Role::Increment } else { Role::History };
            manifest.parts.push(Part { role, ..part.clone() });
        }
        // Before the names: a file with a final name and without a line would look like one that a damaged manifest has lost.
        let installed = self.install(manifest);
        // The new manifest may be valid even if the directory's sync has failed.
        self.names_increments |= self.manifest.base().is_some_and(|base| base.name == name);
        installed?;
        self.name_increments()?;
        self.remove_history()
    }

    /// Gives increments of the manifest their final names. After a failure, the next call or start continues.
    fn name_increments(&mut self) -> io::Result<()> {
        while let Some(name) = self.unnamed.last() {
            self.disk.rename(&temporary(name), name)?;
            self.unnamed.pop();
        }
        self.disk.sync_directory()
    }

    /// Finds increments of the manifest that still have their temporary names, because the server ended before it could rename them.
    fn find_unnamed(&mut self) -> io::Result<()> {
        for part in self.manifest.increments() {
            let is_missing = |name: &str| match self.disk.read(name) {
                Ok(_) => Ok(false),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
                Err(error) => Err(error),
            };
            if is_missing(&part.name)? && !is_missing(&temporary(&part.name))? {
                self.unnamed.push(part.name.clone());
            }
        }
        if self.unnamed.is_empty() { Ok(()) } else { self.name_increments() }
    }

    /// Removes the files that are history.
    ///
    /// # Errors
    /// The disk's error. The next call removes the rest.
    pub fn remove_history(&mut self) -> io::Result<()> {
        if self.manifest.parts.iter().all(|part| part.role != Role::History) {
            return Ok(());
        }
        let mut manifest = Manifest::default();
        for part in &self.manifest.parts {
            if part.role != Role::History {
                manifest.parts.push(part.clone());
                continue;
            }
            match self.disk.remove(&part.name) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        self.install(manifest)
    }

    fn install(&mut self, manifest: Manifest) -> io::Result<()> {
        let (name, temporary) = (self.manifest_name(), temporary(&self.manifest_name()));
        let mut appender = Appender::new(self.disk.create(&temporary)?, 0, 0);
        appender.tail().extend_from_slice(manifest.text().as_bytes());
        appender.write()?;
        appender.sync()?;
        // The names of the files must be durable before the manifest.
        self.disk.sync_directory()?;
        self.disk.rename(&temporary, &name)?;
        self.manifest = manifest;
        self.disk.sync_directory()
    }
}
