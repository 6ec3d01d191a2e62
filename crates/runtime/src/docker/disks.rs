//! Disks of a fixed size, where the engine cannot limit volumes: a file with a file system in it, mounted.
//!
//! Writes to a full one fail with `ENOSPC`, as with a real disk. The files are sparse, so all of them together may
//! promise more than there is. Needs root, on the engine's machine, and `mkfs.ext4`.
//!
//! The volume is made before its disk and removed before it. So what a crash leaves behind is a file without a
//! volume ([`Engine::stray_disks`]). So does a restore onto another engine: the files are there and their volumes are
//! not yet.

use crate::docker::engine::Engine;
use crate::error::Error;
use crate::volume::StrayDisk;
use estrade_model::sync::MutexExt;
use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

const WHAT: &str = "making a disk";

/// A directory with disks, `<volume>.img` and where each is mounted, `<volume>`.
#[derive(Debug, Clone)]
pub(crate) struct Disks {
    directory: PathBuf,
    /// Serialises mounts: two concurrent ones of the same disk would mount it twice.
    turn: Arc<Mutex<()>>,
}

impl Engine {
    /// With a directory for disks of a fixed size, to be used where the engine cannot limit volumes.
    #[must_use]
    pub fn with_disks(mut self, directory: PathBuf) -> Self {
        self.disks = Some(Disks {
            directory,
            turn: Arc::default(),
        });
        self
    }

    /// Disks of this installation that have no volume: a crash came between the removal of the two, or the files were
    /// put back onto another engine, which has no volumes yet.
    pub async fn stray_disks(&self) -> Result<Vec<StrayDisk>, Error> {
        let Some(disks) = self.disks.clone() else {
            return Ok(Vec::new());
        };
        // First the files: one that is made meanwhile has its volume already.
        let found = disks.run(Disks::list).await?;
        let volumes = self.volumes().await?;
        let volumes: HashSet<_> = volumes.iter().map(|key| self.volume_name(key)).collect();
        let prefix = format!("estrade-{}-", self.installation);
        let stray = |name: String| {
            let (_project, volume) = name.strip_prefix(&prefix)?.split_once('-')?;
            let volume = volume.to_owned();
            (!volumes.contains(&name)).then_some(StrayDisk { volume, name })
        };
        Ok(found.into_iter().filter_map(stray).collect())
    }

    /// Removes a disk that has no volume, with what is on it.
    pub async fn remove_stray_disk(&self, stray: StrayDisk) -> Result<(), Error> {
        match &self.disks {
            Some(disks) => disks.remove(stray.name).await,
            None => Ok(()),
        }
    }
}

impl Disks {
    /// Where a volume's disk is mounted.
    pub(crate) fn place(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Makes a disk if it is not there, and mounts it if it is not mounted.
    pub(crate) async fn ensure(&self, name: String, size: u64) -> Result<(), Error> {
        self.run(move |disks| disks.ensure_now(&name, size)).await
    }

    /// Makes a disk larger, with what is on it, also while it is mounted.
    pub(crate) async fn grow(&self, name: String, size: u64) -> Result<(), Error> {
        self.run(move |disks| disks.grow_now(&name, size)).await
    }

    /// Unmounts a disk and removes it, with what is on it.
    pub(crate) async fn remove(&self, name: String) -> Result<(), Error> {
        self.run(move |disks| disks.remove_now(&name)).await
    }

    /// How many bytes are used of a disk that is mounted.
    pub(crate) async fn used_space(&self, name: String) -> Result<Option<u64>, Error> {
        self.run_beside(move |disks| disks.used_space_now(&name))
            .await
    }

    /// Does something that takes the file system's time.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> io::Result<T> + Send + 'static,
    ) -> Result<T, Error> {
        self.run_beside(|disks| {
            let _turn = disks.turn.lock_ignoring_poison();
            work(disks)
        })
        .await
    }

    /// The same for what need not wait for mounts and changes of size.
    async fn run_beside<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> io::Result<T> + Send + 'static,
    ) -> Result<T, Error> {
        let disks = self.clone();
        let working = tokio::task::spawn_blocking(move || work(&disks));
        let done = working.await.map_err(|error| Error::broken(WHAT, error))?;
        done.map_err(|error| Error::Refused {
            what: WHAT,
            status: 0,
            message: error.to_string(),
        })
    }

    fn used_space_now(&self, name: &str) -> io::Result<Option<u64>> {
        let place = self.place(name);
        if !fs::exists(&place)? || !is_mounted(&place)? {
            return Ok(None);
        }
        let space = rustix::fs::statvfs(&place)?;
        let blocks = space.f_blocks.saturating_sub(space.f_bfree);
        Ok(Some(blocks.saturating_mul(space.f_frsize)))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let entries = match fs::read_dir(&self.directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        Ok(names
            .filter_map(|name| Some(name.strip_suffix(".img")?.to_owned()))
            .collect())
    }

    fn ensure_now(&self, name: &str, size: u64) -> io::Result<()> {
        let (file, place) = (self.file(name), self.place(name));
        fs::create_dir_all(&place)?;
        if !fs::exists(&file)? {
            // Half a file system must not be taken for one.
            let unfinished = file.with_extension("new");
            fs::File::create(&unfinished)?.set_len(size)?;
            program("mkfs.ext4", &["-q", "-F", "-m", "0"], &[&unfinished])?;
            fs::rename(&unfinished, &file)?;
        } else if let Err(error) = self.grow_now(name, size) {
            // Better a disk that is too small than none.
            tracing::warn!(%error, "a disk could not be made larger");
        }
        if is_mounted(&place)? {
            return Ok(());
        }
        program(
            "mount",
            &["-o", "loop,nosuid,nodev,noatime"],
            &[&file, &place],
        )?;
        // The engine fills a volume that is empty from the image, with its owner.
        let _ = fs::remove_dir(place.join("lost+found"));
        Ok(())
    }

    /// Makes a disk as large as it shall be, with what is on it. A disk never shrinks.
    ///
    /// While `<volume>.grow` exists, the file system may be smaller than its file: what a crash cuts off
    /// between the two is done by the next call.
    fn grow_now(&self, name: &str, size: u64) -> io::Result<()> {
        let (file, place) = (self.file(name), self.place(name));
        let unfinished = file.with_extension("grow");
        if fs::metadata(&file)?.len() >= size && !fs::exists(&unfinished)? {
            return Ok(());
        }
        let mounted = fs::exists(&place)? && is_mounted(&place)?;
        if !mounted {
            // Before anything is changed: who asked for it is refused, and keeps the size that is booked.
            Self::check_detached(&file)?;
        }
        fs::File::create(&unfinished)?.sync_all()?;
        let image = fs::File::options().write(true).open(&file)?;
        if image.metadata()?.len() < size {
            image.set_len(size)?;
        }
        drop(image);
        if mounted {
            // The loop device has to be resized before the file system; the latter needs CAP_SYS_RESOURCE.
            let device = program(
                "findmnt",
                &["--noheadings", "--output", "SOURCE"],
                &[&place],
            )?;
            program("losetup", &["--set-capacity", device.trim()], &[])?;
            program("resize2fs", &[], &[Path::new(device.trim())])?;
        } else {
            // Demanded before a resize. It puts back `lost+found`, which is taken away at every mount: 1 is success.
            program_ending_in(&[0, 1], "e2fsck", &["-f", "-p"], &[&file])?;
            program("resize2fs", &[], &[&file])?;
        }
        fs::remove_file(&unfinished)
    }

    /// A file system that was unmounted here may live on in the mount namespace of a container that was starting then,
    /// until that container ends. Resized below it, the next mount would get the old one, with the old size.
    fn check_detached(file: &Path) -> io::Result<()> {
        let path = file.to_string_lossy();
        let list = ["--noheadings", "--output", "NAME", "--associated", &path];
        let attached = program("losetup", &list, &[])?;
        if attached.trim().is_empty() {
            return Ok(());
        }
        Err(io::Error::new(
            io::ErrorKind::ResourceBusy,
            format!("the disk is still attached to {}", attached.trim()),
        ))
    }

    fn remove_now(&self, name: &str) -> io::Result<()> {
        let (file, place) = (self.file(name), self.place(name));
        let gone = |done: io::Result<()>| match done {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        };
        if fs::exists(&place)? && is_mounted(&place)? {
            program("umount", &[], &[&place])?;
        }
        gone(fs::remove_file(file.with_extension("new")))?;
        gone(fs::remove_file(file.with_extension("grow")))?;
        gone(fs::remove_file(&file))?;
        gone(fs::remove_dir(&place))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.join(format!("{name}.img"))
    }
}

/// Whether something is mounted there: it is on another device than the directory around it.
fn is_mounted(place: &Path) -> io::Result<bool> {
    let around = place.parent().unwrap_or(place);
    Ok(fs::metadata(place)?.dev() != fs::metadata(around)?.dev())
}

/// Runs a program to its end; returns what it printed.
fn program(name: &str, options: &[&str], paths: &[&Path]) -> io::Result<String> {
    program_ending_in(&[0], name, options, paths)
}

/// The same, where other exit codes than 0 are success.
fn program_ending_in(
    good: &[i32],
    name: &str,
    options: &[&str],
    paths: &[&Path],
) -> io::Result<String> {
    let path = std::env::var("PATH").unwrap_or_default();
    let output = Command::new(name)
        .args(options)
        .arg("--")
        .args(paths)
        .env("PATH", format!("{path}:/usr/sbin:/sbin"))
        .stdin(Stdio::null())
        .output()
        .map_err(|error| io::Error::new(error.kind(), format!("{name}: {error}")))?;
    if output
        .status
        .code()
        .is_some_and(|code| good.contains(&code))
    {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let message = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("{name}: {}", message.trim())))
}
