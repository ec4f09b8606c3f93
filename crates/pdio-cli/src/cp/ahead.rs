// SPDX-License-Identifier: MIT OR Apache-2.0
//! Small files that memory does not have are asked for before their turn.
//!
//! A tree that is copied file by file waits for the device once a file, with a request at a time. So the
//! first file that has to be waited for is taken to say that its neighbours are not there either: the next
//! [`WINDOW`] of them are read at once. Where all is in memory, nothing is asked for.

use std::fs::File;
use std::io::{self, IoSliceMut, Read};
use std::os::fd::BorrowedFd;
use std::path::Path;

use rustix::fs::{Advice, AtFlags, FileType, Mode, OFlags};
use rustix::io::{Errno, ReadWriteFlags};

/// Files that are asked for when one was waited for.
pub const WINDOW: usize = 32;

/// What reading small files has found.
#[derive(Default)]
pub struct Ahead {
    waited: bool,
    /// The filesystem does not say whether it would wait.
    silent: bool,
}

impl Ahead {
    /// Reads at the file's position, as [`Read::read`] does, and remembers if the device had to be waited for.
    pub fn read(&mut self, mut file: &File, buffer: &mut [u8]) -> io::Result<usize> {
        if !self.silent && !self.waited {
            let buffer = &mut [IoSliceMut::new(buffer)];
            match rustix::io::preadv2(file, buffer, u64::MAX, ReadWriteFlags::NOWAIT) {
                Ok(n) => return Ok(n),
                Err(Errno::AGAIN) => self.waited = true,
                Err(_) => self.silent = true,
            }
        }
        file.read(buffer)
    }

    /// Has the kernel begin to read the first of these files of a directory that are `most` bytes long at most, if the
    /// last one had to be waited for. What cannot be opened is met, and told of, in its turn.
    pub fn ask<P: AsRef<Path>>(
        &mut self,
        directory: BorrowedFd<'_>,
        coming: impl Iterator<Item = P>,
        most: u64,
    ) {
        if !std::mem::take(&mut self.waited) {
            return;
        }
        for path in coming.take(WINDOW) {
            let path = path.as_ref();
            let Ok(about) = rustix::fs::statat(directory, path, AtFlags::SYMLINK_NOFOLLOW) else {
                continue;
            };
            let regular = FileType::from_raw_mode(about.st_mode) == FileType::RegularFile;
            if !regular || about.st_size == 0 || about.st_size as u64 > most {
                continue;
            }
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            if let Ok(file) =
                rustix::fs::openat(directory, path, flags | OFlags::NOCTTY, Mode::empty())
            {
                let _ = rustix::fs::fadvise(&file, 0, None, Advice::WillNeed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::Duration;

    use rustix::fs::CWD;

    use super::*;

    /// Is a file of a page in memory? True for once: to ask has the kernel begin to read it.
    fn is_in_memory(path: &Path) -> bool {
        let mut page = [0; 4096];
        let buffer = &mut [IoSliceMut::new(&mut page)];
        let file = File::open(path).unwrap();
        rustix::io::preadv2(&file, buffer, 0, ReadWriteFlags::NOWAIT).is_ok()
    }

    /// Files of a page each that memory does not have, and the first was waited for. None where that cannot be
    /// known.
    fn cold(count: usize) -> Option<(tempfile::TempDir, Vec<PathBuf>, Ahead)> {
        let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let paths: Vec<_> = (0..count)
            .map(|i| {
                let path = directory.path().join(i.to_string());
                std::fs::write(&path, [b'x'; 4096]).unwrap();
                let file = File::open(&path).unwrap();
                file.sync_all().unwrap();
                rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).unwrap();
                path
            })
            .collect();
        let mut ahead = Ahead::default();
        let mut buffer = [0; 4096];
        let first = File::open(&paths[0]).unwrap();
        assert_eq!(ahead.read(&first, &mut buffer).unwrap(), 4096);
        assert_eq!(buffer, [b'x'; 4096]);
        assert_eq!(ahead.read(&first, &mut buffer).unwrap(), 0);
        if !ahead.waited {
            println!("this filesystem has all files in memory, or does not say what it has");
            return None;
        }
        Some((directory, paths, ahead))
    }

    #[test]
    fn a_file_that_was_waited_for_has_its_neighbours_read() {
        let mut waited = Duration::from_millis(10);
        loop {
            let Some((_directory, paths, mut ahead)) = cold(WINDOW + 2) else {
                return;
            };
            ahead.ask(CWD, paths[1..].iter(), 4096);
            std::thread::sleep(waited);
            // The kernel keeps a page that it was told to drop while another processor has it in a list of its own.
            let more = is_in_memory(&paths[WINDOW + 1]);
            if !more && paths[1..=WINDOW].iter().all(|path| is_in_memory(path)) {
                return;
            }
            let why = if more {
                "more than the window"
            } else {
                "not read"
            };
            assert!(waited < Duration::from_secs(10), "{why}");
            waited *= 2;
        }
    }

    #[test]
    fn nothing_is_asked_for_twice_or_where_all_is_in_memory_or_too_long() {
        let nothing = || std::iter::from_fn(|| -> Option<PathBuf> { panic!("asked") });
        for _ in 0..10 {
            let Some((_directory, paths, mut ahead)) = cold(3) else {
                return;
            };
            ahead.ask(CWD, paths[1..].iter(), 4095);
            ahead.ask(CWD, nothing(), 4096);
            let again = File::open(&paths[0]).unwrap();
            ahead.read(&again, &mut [0; 4096]).unwrap();
            ahead.ask(CWD, nothing(), 4096);
            std::thread::sleep(Duration::from_millis(50));
            // As above, a page may not have been dropped.
            if !is_in_memory(&paths[1]) {
                return;
            }
        }
        panic!("too long a file is read");
    }
}
