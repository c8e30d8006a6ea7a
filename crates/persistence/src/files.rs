//! The files of the append-only file, and the manifest that names them.
//!
//! A new manifest is written beside the old one, synced, and renamed over it: at every moment there is one that is whole.
//! What it names exists before it does, and what it no longer names is removed after it.

use std::io::{self, Read};

use crate::appender::Appender;
use crate::block::FILE_START;
use crate::disk::{Disk, DiskFile};
use crate::manifest::{BadManifest, Manifest, Part, Role};

/// Bytes of a manifest, at most.
const MANIFEST_BYTES_MAX: u64 = 1 << 20;

/// See the module's documentation.
pub struct Files<D> {
    disk: D,
    /// What all names begin with (`appendfilename`).
    name: String,
    manifest: Manifest,
    /// Whether what is begun is named in the manifest at once. Else it takes a base first.
    names_increments: bool,
    is_ended: bool,
}

/// Why there are no files to be had.
#[derive(Debug)]
pub enum NoFiles {
    /// The system's reason, and what it is about.
    Io(String, io::Error),
    /// The manifest is damaged.
    Manifest(String, BadManifest),
}

impl<D: Disk> Files<D> {
    /// The files whose names begin with `name`; none if there is no manifest.
    ///
    /// # Errors
    /// If the manifest can't be read, or is damaged.
    pub fn open(disk: D, name: &str) -> Result<Files<D>, NoFiles> {
        let mut files = Files {
            disk,
            name: name.to_string(),
            manifest: Manifest::default(),
            names_increments: true,
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
        Ok(files)
    }

    /// Has what is written from now on not be named in the manifest before there is a base that it follows: what is there tells of other
    /// data.
    pub fn begin_anew(&mut self) {
        self.names_increments = false;
    }

    /// Notes that the files are no longer these: from now on others may be written by the same names.
    pub fn end(&mut self) {
        self.is_ended = true;
    }

    /// Whether [`Files::end`] was called.
    #[must_use]
    pub fn are_ended(&self) -> bool {
        self.is_ended
    }

    /// Takes a file of the name that all begin with for the base, if there is no manifest: all that there is before Redis 7. False if
    /// there is none.
    ///
    /// # Errors
    /// The disk's.
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

    /// What the manifest says, and what it is yet to say.
    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The disk.
    #[must_use]
    pub fn disk(&self) -> &D {
        &self.disk
    }

    /// Opens the last increment to be written on behind its first `len` bytes, or begins one if there is none.
    ///
    /// # Errors
    /// The disk's.
    pub fn last_increment(&mut self, len: u64) -> io::Result<Appender<D::File>> {
        let Some(part) = self.manifest.last_increment() else { return self.begin_increment() };
        let (mut file, now) = self.disk.append(&part.name)?;
        if now > len {
            file.truncate(len)?;
        }
        // What a crash left may be in the cache alone.
        file.sync()?;
        Ok(Appender::new(file, len))
    }

    /// Begins an increment, which is the last one from when this has returned.
    ///
    /// # Errors
    /// The disk's. Then everything is as before.
    pub fn begin_increment(&mut self) -> io::Result<Appender<D::File>> {
        let sequence = self.manifest.next_sequence(Role::Increment);
        let name = format!("{}.{sequence}.incr.aof", self.name);
        let mut appender = Appender::new(self.disk.create(&name)?, 0);
        appender.tail().extend_from_slice(FILE_START);
        appender.write()?;
        appender.sync()?;
        let mut manifest = self.manifest.clone();
        manifest.parts.push(Part { name, sequence, role: Role::Increment });
        if self.names_increments {
            self.install(manifest)?;
        } else {
            self.manifest = manifest;
        }
        Ok(appender)
    }

    /// The name that a new base is to have, and its number.
    #[must_use]
    pub fn next_base(&self, extension: &str) -> (String, u64) {
        let sequence = self.manifest.next_sequence(Role::Base);
        (format!("{}.{sequence}.base.{extension}", self.name), sequence)
    }

    /// Takes a base that has been written and synced, and the increments from `first` on, for all that there is; the rest
    /// becomes history and is removed.
    ///
    /// # Errors
    /// The disk's. Then everything is as before, or as after.
    pub fn install_base(&mut self, name: String, sequence: u64, first: u64) -> io::Result<()> {
        let mut manifest = Manifest::default();
        manifest.parts.push(Part { name, sequence, role: Role::Base });
        for part in &self.manifest.parts {
            let stays = part.role == Role::Increment && part.sequence >= first;
            let role = if stays { Role::Increment } else { Role::History };
            manifest.parts.push(Part { role, ..part.clone() });
        }
        self.install(manifest)?;
        self.names_increments = true;
        self.remove_history()
    }

    /// Removes the files that are history.
    ///
    /// # Errors
    /// The disk's. What is left is removed by the next call.
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
        let (name, temporary) = (self.manifest_name(), format!("temp-{}", self.manifest_name()));
        let mut appender = Appender::new(self.disk.create(&temporary)?, 0);
        appender.tail().extend_from_slice(manifest.text().as_bytes());
        appender.write()?;
        appender.sync()?;
        // What it names is durable by name before it is.
        self.disk.sync_directory()?;
        self.disk.rename(&temporary, &name)?;
        self.manifest = manifest;
        self.disk.sync_directory()
    }
}
