// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares names of files, finds out if another recording has a file, and lists the files that this one has made.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use pdio_cli::report::{quoted, Context, Fail, Outcome};

/// A name as the kernel finds it, to be compared with others: that of the file itself, there or not.
pub fn resolved(path: &Path) -> PathBuf {
    let mut path = path.to_path_buf();
    // As many links as the kernel follows; one to what is not there yet is a name for it.
    for _ in 0..40 {
        if let Ok(found) = path.canonicalize() {
            return found;
        }
        let parent = path.parent().filter(|p| !p.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new(".")).to_path_buf();
        match std::fs::read_link(&path) {
            Ok(target) => path = parent.join(target),
            Err(_) => {
                let name = path.file_name().unwrap_or_default();
                return parent.canonicalize().unwrap_or(parent).join(name);
            }
        }
    }
    path
}

/// Returns true if both are names of one file, there or not.
pub fn same(one: &Path, other: &Path) -> bool {
    resolved(one) == resolved(other)
}

/// Files that this recording has made. Unless they are kept, they go again.
#[derive(Debug, Default)]
pub struct Created(pub Vec<PathBuf>);

impl Drop for Created {
    fn drop(&mut self) {
        for name in &self.0 {
            let _ = std::fs::remove_file(name);
        }
    }
}

/// Keeps other recordings from a file: they would write over each other. Returns false if there is one.
pub fn is_alone(file: &File) -> bool {
    let lock = rustix::fs::FlockOperation::NonBlockingLockExclusive;
    // What the kernel still writes for a program that was killed keeps its lock for a moment.
    for _ in 0..50 {
        match rustix::fs::flock(file, lock) {
            Err(rustix::io::Errno::WOULDBLOCK) => thread::sleep(Duration::from_millis(20)),
            // Some filesystems have no locks.
            _ => return true,
        }
    }
    false
}

/// Returns true if a file has this name.
///
/// # Errors
/// Those of `fstat(2)`.
pub fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let ours = file.metadata()?;
    let is_ours = |about: Metadata| (about.dev(), about.ino()) == (ours.dev(), ours.ino());
    Ok(std::fs::metadata(path).is_ok_and(is_ours))
}

/// Opens a file to be written as it is, or makes it. Returns the name of what was made: only who made it may
/// remove it.
fn open(path: &Path) -> io::Result<(File, Option<PathBuf>)> {
    let mut there = File::options();
    there.write(true);
    let mut new = there.clone();
    new.create_new(true);
    match new.open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => match there.open(path) {
            // A link to what is not there yet.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let name = resolved(path);
                Ok((new.open(&name)?, Some(name)))
            }
            file => Ok((file?, None)),
        },
        made => Ok((made?, Some(path.to_owned()))),
    }
}

/// As [`open`], and keeps other recordings from the file.
pub fn open_alone(path: &Path) -> Outcome<(File, Option<PathBuf>)> {
    for _ in 0..100 {
        let (file, made) = open(path).context("create", path)?;
        if !is_alone(&file) {
            return Err(Fail::Failed(format!(
                "another program records to {}: name another file",
                quoted(path)
            )));
        }
        // The one that had the lock may have removed what it had made.
        if is_at(&file, path).context("look at", path)? {
            return Ok((file, made));
        }
    }
    Err(Fail::Failed(format!(
        "others replace {} again and again: name another file",
        quoted(path)
    )))
}
