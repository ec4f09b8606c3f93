// SPDX-License-Identifier: MIT OR Apache-2.0
//! The reading stream.

use std::fs::File;
use std::io::{self, BufRead, IoSliceMut, Read, Seek, SeekFrom};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;

use crate::align::{FileFacts, FileKind};
use crate::options::OpenOptions;
use crate::stats::Stats;
use crate::window::Core;
use crate::{backing, fork, sys};

/// A stream out of a file.
///
/// A read sees everything that was written before it by [`Writer`](crate::Writer)s of this process,
/// flushed or not. Of what other processes write it may miss what is younger than
/// [`linger`](OpenOptions::linger), unless [`heard`](crate::heard) says that they may have told of it; with `None`, and
/// of block devices, whatever they write after it was read ahead, as with a `BufReader`.
///
/// Aligned reads of 64 KiB and more may go directly into the caller's memory. That must not be a shared mapping
/// of another file: what a device writes to such a page while the kernel writes it out can be lost. Read into it
/// in smaller pieces.
#[derive(Debug)]
pub struct Reader {
    core: Core,
    file: Arc<File>,
    options: OpenOptions,
    position: u64,
    generation: u64,
}

impl OpenOptions {
    /// Opens a file for reading, at offset 0.
    ///
    /// # Errors
    /// Those of `open(2)`, and `OutOfMemory` as for [`open_writer`](OpenOptions::open_writer).
    pub fn open_reader(&self, path: impl AsRef<Path>) -> io::Result<Reader> {
        Reader::new(File::open(path)?, self)
    }

    /// Takes over an open file, at the descriptor's offset. What is passed through, interrupted calls and
    /// record locks are as with [`writer_from`](OpenOptions::writer_from).
    ///
    /// # Errors
    /// `InvalidInput` for a descriptor that is not open for reading, or with `O_DIRECT`: streams have
    /// direct I/O of their own.
    pub fn reader_from(&self, file: File) -> io::Result<Reader> {
        Reader::new(file, self)
    }
}

impl Reader {
    /// Opens the file at `path` with the default options.
    ///
    /// # Errors
    /// Those of `open(2)`.
    pub fn open(path: impl AsRef<std::path::Path>) -> io::Result<Reader> {
        OpenOptions::new().open_reader(path)
    }

    fn new(file: File, options: &OpenOptions) -> io::Result<Reader> {
        let flags = sys::flags(file.as_fd())?;
        if flags & libc::O_ACCMODE == libc::O_WRONLY {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the file is not open for reading",
            ));
        }
        let facts = FileFacts::of(&file)?;
        facts.refuse_direct(flags)?;
        let position = match facts.kind {
            FileKind::Stream => 0,
            _ => sys::offset(file.as_fd())?,
        };
        let file = Arc::new(file);
        let core = Core::new(file.clone(), None, flags, facts, options, position);
        Ok(Reader {
            core,
            file,
            options: options.clone(),
            position,
            generation: fork::generation(),
        })
    }

    /// Reads at `offset` without moving the stream's position. Returns fewer bytes than asked only
    /// at the end of the file, and before bytes that cannot be read: the next call, for these, returns
    /// the error.
    ///
    /// # Errors
    /// Those of `pread(2)`; `ESPIPE` for pipes and the like.
    pub fn read_at(&mut self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        if self.core.back.facts.kind == FileKind::Stream {
            return Err(io::Error::from_raw_os_error(libc::ESPIPE));
        }
        self.renew_after_fork()?;
        self.core.read(buffer, offset)
    }

    /// The position of the next `read`, in bytes from the start of the file; of a pipe or the like, how many
    /// bytes were read.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// What the stream has done so far.
    pub fn stats(&self) -> Stats {
        self.core.back.stats()
    }

    /// The file. Its own offset does not follow the stream until that is dropped.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Before the process ends without dropping the stream: waits for what is being read ahead and has the kernel let the
    /// file go, which it otherwise does some time after the process has gone. Until then the file's filesystem
    /// is busy, and a deleted file keeps its space. Allocates nothing. The stream can go on, through the page cache.
    #[doc(hidden)]
    pub fn rescue(&mut self) {
        if self.generation == fork::generation() {
            // Nor is a ring made yet, if there is none.
            self.core.forbid_direct();
            self.core.back.rescue();
        }
    }

    /// One call at a pipe or the like: what does not fit into the parts of a message, the kernel drops.
    fn pass(&mut self, parts: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let n = sys::read(self.file.as_fd(), parts)?;
        self.position += n as u64;
        self.core.back.stats.bytes += n as u64;
        self.core.back.stats.buffered_bytes += n as u64;
        self.core.back.stats.requests += 1;
        Ok(n)
    }

    fn renew_after_fork(&mut self) -> io::Result<()> {
        if self.generation == fork::generation() {
            return Ok(());
        }
        let flags = sys::flags(self.file.as_fd())?;
        let facts = FileFacts::of(&self.file)?;
        let inherited = self.core.back.abandon();
        self.core = Core::new(
            self.file.clone(),
            inherited,
            flags,
            facts,
            &self.options,
            self.position,
        );
        self.generation = fork::generation();
        Ok(())
    }
}

impl Read for Reader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.core.back.facts.kind == FileKind::Stream {
            return self.pass(&mut [IoSliceMut::new(buffer)]);
        }
        let n = self.read_at(buffer, self.position)?;
        self.position += n as u64;
        Ok(n)
    }

    fn read_vectored(&mut self, parts: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        if self.core.back.facts.kind == FileKind::Stream {
            return self.pass(parts);
        }
        // As where nothing else is said.
        let part = parts.iter_mut().find(|part| !part.is_empty());
        part.map_or(Ok(0), |part| self.read(part))
    }
}

/// Of regular files and block devices; pipes and the like have no place to look ahead in and give
/// `ESPIPE`.
impl BufRead for Reader {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.core.back.facts.kind == FileKind::Stream {
            return Err(io::Error::from_raw_os_error(libc::ESPIPE));
        }
        self.renew_after_fork()?;
        self.core.fill(self.position)
    }

    fn consume(&mut self, n: usize) {
        self.position += self.core.consume(self.position, n);
    }
}

impl Seek for Reader {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        if self.core.back.facts.kind == FileKind::Stream {
            return Err(io::Error::from_raw_os_error(libc::ESPIPE));
        }
        self.renew_after_fork()?;
        self.position = backing::seek(&self.file, to, self.position, &self.core.inode, || {
            Ok(match self.core.back.facts.kind {
                FileKind::Block => self.core.back.facts.size,
                _ => self.file.metadata()?.len(),
            })
        })?;
        Ok(self.position)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if self.generation != fork::generation() {
            self.core.back.abandon();
            return;
        }
        if self.core.back.facts.kind != FileKind::Stream {
            let _ = sys::set_offset(self.file.as_fd(), self.position);
        }
    }
}

impl AsFd for Reader {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
impl Reader {
    pub(crate) fn direct(&self) -> Option<&File> {
        self.core.back.direct.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsRawFd;
    use std::time::Duration;

    use crate::learned::{self, Key, Operation, Pattern, BUFFERED, ZERO_COPY};
    use crate::options::Strategy;
    use crate::policy::{Pilot, Wanted};
    use crate::window::mostly_cached;

    /// A file of so many bytes that the page cache does not hold, if that can be had here.
    fn file(home: &Path, len: usize) -> Option<std::path::PathBuf> {
        let path = home.join("data");
        let mut options = OpenOptions::new();
        options.create(true).strategy(Strategy::Direct);
        let mut out = options.open_writer(&path).unwrap();
        let data: Vec<u8> = (0..len).map(|i| (i >> 12) as u8).collect();
        out.write_all(&data).unwrap();
        if out.finish().unwrap().direct_bytes == 0 {
            eprintln!("skipped: no direct I/O in /var/tmp");
            return None;
        }
        Some(path)
    }

    /// Reads all of a file in aligned calls, and checks it.
    fn read_all(input: &mut Reader, call: usize) {
        let mut memory = vec![0u8; call + 4096];
        let skew = memory.as_ptr().align_offset(4096);
        let block = &mut memory[skew..skew + call];
        let mut at = 0;
        loop {
            let n = input.read(block).unwrap();
            if n == 0 {
                break;
            }
            for (i, byte) in block[..n].iter().enumerate() {
                assert_eq!(*byte, ((at + i) >> 12) as u8, "at {}", at + i);
            }
            at += n;
        }
        assert_eq!(at, input.core.back.facts.size as usize);
    }

    /// A reader that never copies what it need not.
    fn uncopied(path: &Path) -> Reader {
        let mut input = OpenOptions::new().linger(None).open_reader(path).unwrap();
        let key = Key {
            dev: 1 << 41,
            operation: Operation::Read,
            pattern: Pattern::Sequential,
            paced: false,
        };
        input.core.back.pilot = Pilot::new(key, Wanted::Only(ZERO_COPY), true, false);
        input
    }

    /// Aligned memory in which every byte is one that no file here has.
    fn marked(memory: &mut Vec<u8>, len: usize) -> &mut [u8] {
        *memory = vec![MARK; len + 4096];
        let skew = memory.as_ptr().align_offset(4096);
        &mut memory[skew..skew + len]
    }
    const MARK: u8 = 0xee;

    #[test]
    fn memory_behind_what_a_read_returns_stays_as_it_was() {
        const WHOLE: usize = 5 << 20;
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        let mut memory = Vec::new();
        // In one direct call, and in several at a time.
        for call in [256 << 10, 3 << 20] {
            for rest in [0, 1, 511, 4095, 4096, 5000, 70_000] {
                let len = WHOLE + rest;
                let Some(path) = file(home.path(), len) else {
                    return;
                };
                // As a writer may leave it, so that direct I/O finds zeros far behind the end.
                let write = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
                let behind = sys::fallocate_keep_size(write.as_fd(), 0, len as u64, 8 << 20);
                if behind.is_err() {
                    eprintln!("nothing can be allocated behind the end in /var/tmp");
                }
                let mut input = uncopied(&path);
                let mut at = 0;
                while at < len {
                    let block = marked(&mut memory, call);
                    let n = input.read(block).unwrap();
                    assert_eq!(n, call.min(len - at), "{len} in {call}, at {at}");
                    assert!(
                        block[n..].iter().all(|&byte| byte == MARK),
                        "{len} in {call}"
                    );
                    assert!((0..n).all(|i| block[i] == ((at + i) >> 12) as u8));
                    at += n;
                }
                let stats = input.stats();
                assert!(stats.zero_copy_bytes >= (WHOLE - call) as u64, "{stats:?}");
                // At its place, by a stream that knows nothing of what comes before.
                let mut input = uncopied(&path);
                for back in [4096, 64 << 10, 1 << 20] {
                    let from = (WHOLE - back) as u64;
                    let block = marked(&mut memory, call);
                    let n = input.read_at(block, from).unwrap();
                    assert_eq!(
                        n,
                        call.min(len - from as usize),
                        "{len} in {call}, {back} before"
                    );
                    assert!(
                        block[n..].iter().all(|&byte| byte == MARK),
                        "{len} in {call}"
                    );
                }
                let block = marked(&mut memory, call);
                assert_eq!(input.read_at(block, len as u64).unwrap(), 0);
                assert!(block.iter().all(|&byte| byte == MARK));
                std::fs::remove_file(&path).unwrap();
            }
        }
    }

    #[test]
    fn memory_behind_what_a_read_returns_stays_when_the_file_was_cut_or_has_grown() {
        const LEN: usize = 5 << 20;
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        let Some(path) = file(home.path(), LEN) else {
            return;
        };
        let mut memory = Vec::new();
        let from = LEN - (1 << 20);
        let mut check = |input: &mut Reader, len: usize| {
            let block = marked(&mut memory, 2 << 20);
            let n = input.read_at(block, from as u64).unwrap();
            assert_eq!(n, len - from);
            assert!(block[n..].iter().all(|&byte| byte == MARK), "cut at {len}");
        };
        let mut input = uncopied(&path);
        input.read_exact(marked(&mut Vec::new(), 1 << 20)).unwrap();
        assert_eq!(input.stats().zero_copy_bytes, 1 << 20);
        // By somebody else, and by a stream of this process.
        let other = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        for len in [LEN - 300, LEN - 500_000, LEN - 700_000 + 5] {
            other.set_len(len as u64).unwrap();
            // It is time to look at the file.
            input.core.linger = Some(Duration::from_millis(50));
            input.core.looked = Duration::ZERO;
            check(&mut input, len);
        }
        let mut options = OpenOptions::new();
        let mut out = options
            .create(true)
            .truncate(false)
            .open_writer(&path)
            .unwrap();
        // A reader that does not look by itself is told.
        input.core.linger = None;
        for len in [LEN - 800_000, LEN - 900_000, LEN + 77, LEN + 300_000] {
            out.set_len(len as u64).unwrap();
            check(&mut input, len);
        }
    }

    /// What the kernel says of a stream's ring: requests that it has, and files.
    fn ring_of(input: &Reader) -> Option<(u64, u64)> {
        let about = format!("/proc/self/fdinfo/{}", input.core.back.ring.get());
        let about = std::fs::read_to_string(about).ok()?;
        let number = |name| {
            let value = about.lines().find_map(|line| line.strip_prefix(name));
            value?.trim().parse::<u64>().ok()
        };
        let requests = number("SqTail:")? - number("CqTail:")?;
        Some((requests, number("UserFiles:")?))
    }

    #[test]
    fn a_rescued_reader_keeps_nothing_in_use_and_can_go_on() {
        const LEN: usize = 64 << 20;
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        let Some(path) = file(home.path(), LEN) else {
            return;
        };
        let mut options = OpenOptions::new();
        options.strategy(Strategy::Direct).linger(None);
        let mut input = options.open_reader(&path).unwrap();
        let mut part = vec![0; 7000];
        let mut at = 0;
        let mut read_to = |input: &mut Reader, to| {
            while at < to {
                let n = input.read(&mut part).unwrap();
                assert!((0..n).all(|i| part[i] == ((at + i) >> 12) as u8), "at {at}");
                at += n;
            }
        };
        read_to(&mut input, 24 << 20);
        if ring_of(&input).is_none_or(|(_, files)| files == 0) {
            eprintln!("skipped: no ring with a file, or the kernel does not tell");
            return;
        }
        input.rescue();
        assert_eq!(ring_of(&input), Some((0, 0)));
        read_to(&mut input, LEN);
        assert_eq!(ring_of(&input), Some((0, 0)));
        assert!(input.stats().direct_bytes >= 24 << 20);
        assert!(input.stats().buffered_bytes >= 16 << 20);
    }

    #[test]
    fn a_reader_that_is_rescued_before_it_has_a_ring_makes_none() {
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        let Some(path) = file(home.path(), 8 << 20) else {
            return;
        };
        let mut options = OpenOptions::new();
        let mut input = options
            .strategy(Strategy::Direct)
            .open_reader(&path)
            .unwrap();
        input.rescue();
        read_all(&mut input, 4096);
        assert_eq!(ring_of(&input), None);
        assert_eq!(input.stats().direct_bytes, 0);
    }

    #[test]
    fn a_clock_that_was_set_back_ends_no_stream_and_keeps_no_window() {
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        let Some(path) = file(home.path(), 8 << 20) else {
            return;
        };
        let mut input = Reader::open(&path).unwrap();
        // As in a new time namespace.
        let ahead = sys::coarse_now() + Duration::from_secs(1000);
        input.core.looked = ahead;
        input.read_exact(&mut [0; 4096]).unwrap();
        assert!(input.core.looked < ahead);
    }

    #[test]
    fn locks_stay_when_direct_io_is_given_up() {
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        let Some(path) = file(home.path(), 1 << 20) else {
            return;
        };
        let mut input = Reader::open(&path).unwrap();
        let other = File::open(&path).unwrap();
        // SAFETY: a structure of numbers may be all zero.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        lock.l_type = libc::F_RDLCK as _;
        // SAFETY: the structure lives through the call.
        let locked = unsafe { libc::fcntl(input.as_fd().as_raw_fd(), libc::F_SETLK, &lock) };
        assert_eq!(locked, 0);
        input.core.forbid_direct();
        // Asked as by another process, which a lock of the open file is.
        lock.l_type = libc::F_WRLCK as _;
        // SAFETY: as above.
        let asked = unsafe { libc::fcntl(other.as_raw_fd(), libc::F_OFD_GETLK, &mut lock) };
        assert_eq!(asked, 0);
        assert_eq!(i32::from(lock.l_type), libc::F_RDLCK);
    }

    #[test]
    fn what_was_read_ahead_is_used_up_before_the_next_strategy_begins() {
        const LEN: usize = 40 << 20;
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        let Some(path) = file(home.path(), LEN + 5000) else {
            return;
        };
        // No time passes here, so that a copy is dear, and after 8 MiB reads without one are tried.
        // Calls of 68 KiB do not end where the window does: what is left there, at most twice, is less than
        // one, and too little to read it without a copy.
        for (dev, call, unused) in [(1 << 40, 64 << 10, 0), (2 << 40, 68 << 10, 136 << 10)] {
            let mut input = OpenOptions::new().linger(None).open_reader(&path).unwrap();
            // One that nothing is known of.
            let key = Key {
                dev,
                operation: Operation::Read,
                pattern: Pattern::Sequential,
                paced: false,
            };
            let wanted = Wanted::Strategy(Strategy::Auto);
            input.core.back.pilot = Pilot::new(key, wanted, true, false);
            read_all(&mut input, call);
            let stats = input.stats();
            assert!(stats.zero_copy_bytes > 0, "nothing was tried: {stats:?}");
            assert!(
                stats.zero_copy_bytes < LEN as u64,
                "nothing was read ahead: {stats:?}"
            );
            assert!(stats.unused_read_ahead <= unused, "{stats:?}");
        }
    }

    #[test]
    fn a_stream_that_is_looked_at_where_it_is_has_trials() {
        const LEN: usize = 12 << 20;
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = home.path().join("data");
        std::fs::write(&path, vec![7; LEN]).unwrap();
        let mut input = Reader::open(&path).unwrap();
        let dev = 6 << 40;
        input.core.back.pilot = Pilot::in_trial(dev, BUFFERED);
        let mut left = LEN;
        while left > 0 {
            let part = input.fill_buf().unwrap();
            assert!(!part.is_empty() && part.iter().all(|&byte| byte == 7));
            let n = part.len().min(65_536);
            input.consume(n);
            left -= n;
        }
        assert!(input.fill_buf().unwrap().is_empty());
        let tried: Vec<u64> = learned::costs(dev).iter().map(|cost| cost.bytes).collect();
        assert_eq!(tried, [8 << 20]);
    }

    #[test]
    fn scattered_reads_say_nothing_of_reads_in_sequence() {
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = home.path().join("data");
        std::fs::write(&path, vec![7; 8 << 20]).unwrap();
        let mut input = Reader::open(&path).unwrap();
        let key = learned::Key {
            dev: 999 << 40,
            operation: Operation::Read,
            pattern: learned::Pattern::Sequential,
            paced: false,
        };
        input.core.back.pilot = Pilot::new(key, Wanted::Strategy(Strategy::Auto), true, true);
        let mut buffer = [0; 4096];
        for i in 0..10_000u64 {
            let at = i * 7919 % 2048 * 4096;
            assert_eq!(input.read_at(&mut buffer, at).unwrap(), 4096);
        }
        assert_eq!(learned::costs(999 << 40), []);
        // No slice began for each of them.
        assert!(!input.core.back.pilot.has_begun());
    }

    #[test]
    fn reads_elsewhere_end_a_trial() {
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = home.path().join("data");
        std::fs::write(&path, vec![7; 64 << 20]).unwrap();
        let mut input = Reader::open(&path).unwrap();
        input.core.back.pilot = Pilot::in_trial(998 << 40, BUFFERED);
        let mut buffer = vec![0; 64 << 10];
        for i in 0..16 {
            input.seek(SeekFrom::Start(i << 22)).unwrap();
            for _ in 0..16 {
                input.read_exact(&mut buffer).unwrap();
            }
            input.read_at(&mut buffer[..4096], 1 << 19).unwrap();
        }
        assert!(!input.core.back.pilot.is_in_trial());
    }

    #[test]
    fn who_may_not_write_a_file_reads_it_from_the_page_cache_as_well() {
        const NOBODY: u32 = 65_534;
        // SAFETY: no preconditions.
        if unsafe { libc::geteuid() } != 0 {
            return eprintln!("skipped: only root can be somebody else");
        }
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = home.path().join("data");
        std::fs::write(&path, vec![7; 8 << 20]).unwrap();
        let file = File::open(&path).unwrap();
        file.sync_all().unwrap();
        let cached = std::thread::spawn(move || {
            // SAFETY: of this thread alone, which ends; the C library's function would change all.
            let changed = unsafe { libc::syscall(libc::SYS_setresuid, -1, NOBODY, -1) };
            assert_eq!(changed, 0);
            let told = sys::resident(file.as_fd(), 0, 1).map_err(|error| error.raw_os_error());
            let mut byte = 0;
            // SAFETY: one byte.
            let nowait =
                unsafe { sys::pread_raw(file.as_raw_fd(), &mut byte, 1, 0, libc::RWF_NOWAIT) };
            if told != Err(Some(libc::EPERM)) || nowait.is_err() {
                eprintln!("skipped: this kernel tells, or this filesystem waits");
                return (true, false);
            }
            let cached = mostly_cached(file.as_fd(), 0, 8 << 20);
            // SAFETY: advice on a descriptor of this test.
            unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
            (cached, mostly_cached(file.as_fd(), 0, 8 << 20))
        });
        assert_eq!(cached.join().unwrap(), (true, false));
    }

    #[test]
    fn a_trial_ends_within_a_long_call() {
        const CALL: usize = 12 << 20;
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = home.path().join("data");
        std::fs::write(&path, vec![7; CALL]).unwrap();
        let mut input = Reader::open(&path).unwrap();
        let dev = 5 << 40;
        input.core.back.pilot = Pilot::in_trial(dev, BUFFERED);
        let mut got = vec![0; CALL];
        assert_eq!(input.read(&mut got).unwrap(), CALL);
        assert!(got == vec![7; CALL]);
        let tried: Vec<u64> = learned::costs(dev).iter().map(|cost| cost.bytes).collect();
        assert_eq!(tried, [8 << 20]);
    }
}
