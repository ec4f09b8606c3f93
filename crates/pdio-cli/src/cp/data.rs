// SPDX-License-Identifier: MIT OR Apache-2.0
//! Moves the bytes of one file into another, the cheapest way that the two allow.
//!
//! Where the filesystem can share blocks, nothing is moved. A small file is read and written at once, and
//! short ranges of data between holes are left to the kernel, as a stream would cost more than it gains
//! there. Everything else goes through streams. Holes stay holes.

use std::fs::{File, Metadata};
use std::io::{self, BufRead, Seek, SeekFrom, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use pdio::{OpenOptions, Writer};
use rustix::fs::{tell, OFlags};
use rustix::io::Errno;

use super::ahead::Ahead;
use crate::report::{Context, Fail, Outcome, Progress};
use crate::signals::Signals;

/// Maximum length of a file that is copied at once.
const SMALL: usize = 256 << 10;
/// Data between holes is copied by a stream from this length on.
const LONG_RANGE: u64 = 8 << 20;

/// A file, what it is copied to, and what the two are.
pub struct Pair<'a> {
    pub from: &'a Path,
    pub to: &'a Path,
    pub about: &'a Metadata,
    pub made: &'a Metadata,
}

impl Pair<'_> {
    /// Returns true if what is written stays there, and does not go to whoever reads it.
    pub fn keeps(&self) -> bool {
        self.made.is_file() || self.made.file_type().is_block_device()
    }

    /// Returns true if the source seems to have holes, that the copy can have as well. As with GNU cp: of less than a
    /// block there are none.
    fn is_sparse(&self) -> bool {
        let about = self.about;
        self.made.is_file() && about.is_file() && about.blocks() < about.len() / 512
    }
}

/// Moves bytes, shows how far it is, and counts them.
pub struct Data<'a> {
    signals: &'a Signals,
    pub progress: Progress,
    pub bytes: u64,
    /// Of these, bytes that are shared with the source.
    pub shared: u64,
    /// Of these, bytes that were written by direct I/O.
    pub direct: u64,
    /// The latest stream had all of its source, and nothing says that it lost any of it.
    pub whole: bool,
    /// The last two filesystems (device numbers) between which no blocks can be shared.
    unshared: Option<(u64, u64)>,
    /// Memory for small files, once there was one.
    small: Vec<u8>,
    ahead: Ahead,
}

impl<'a> Data<'a> {
    pub fn new(signals: &'a Signals, progress: Progress) -> Data<'a> {
        Data {
            signals,
            progress,
            bytes: 0,
            shared: 0,
            direct: 0,
            whole: false,
            unshared: None,
            small: Vec::new(),
            ahead: Ahead::default(),
        }
    }

    /// Of files of a directory that come next, reads small ones into memory if the last one was not there.
    pub fn expect<P: AsRef<Path>>(
        &mut self,
        directory: BorrowedFd<'_>,
        coming: impl Iterator<Item = P>,
    ) {
        self.ahead.ask(directory, coming, SMALL as u64);
    }

    /// Copies the bytes; `position` says how far it came.
    pub fn copy(&mut self, source: &File, file: &File, pair: &Pair, position: &mut u64) -> Outcome {
        let about = pair.about;
        self.whole = false;
        if self.share(source, file, pair) {
            *position = about.len();
            return Ok(());
        }
        let small = about.len() <= SMALL as u64 && (!pair.is_sparse() || is_whole(source, about));
        // What has blocks and is read at once need not be asked.
        let asks = !small || about.blocks() == 0;
        let streams = !about.is_file() || asks && tell(source) == Err(Errno::SPIPE);
        if small && !streams && self.at_once(source, file, pair, position)? {
            return Ok(());
        }
        // A source may be open so that nothing is waited for, which asynchronous reads would heed.
        let waits = rustix::fs::fcntl_setfl(source, OFlags::empty());
        waits.map_err(io::Error::from).context("read", pair.from)?;
        match streams {
            true => self.as_it_comes(source, file, pair, position),
            false => self.ranges(source, file, pair, position, next_data),
        }
    }

    /// Has the filesystem share the blocks, if it can.
    fn share(&mut self, source: &File, file: &File, pair: &Pair) -> bool {
        let &Pair { about, made, .. } = pair;
        let between = (about.dev(), made.dev());
        if !about.is_file() || about.len() == 0 || self.unshared == Some(between) {
            return false;
        }
        match rustix::fs::ioctl_ficlone(file, source) {
            Ok(()) => {
                self.bytes += about.len();
                self.shared += about.len();
                self.progress.add(about.len());
                true
            }
            Err(error) => {
                // So for every file between these two; other refusals are of this file.
                if matches!(error, Errno::OPNOTSUPP | Errno::NOTTY | Errno::XDEV) {
                    self.unshared = Some(between);
                }
                false
            }
        }
    }

    /// Copies a small file at once: a stream costs more than it gains. Returns false if it has grown too
    /// large meanwhile; both files are then where `position` says.
    fn at_once(
        &mut self,
        source: &File,
        mut file: &File,
        pair: &Pair,
        position: &mut u64,
    ) -> Result<bool, Fail> {
        self.small.resize(SMALL + 1, 0);
        let mut filled = 0;
        let ended = loop {
            if filled == self.small.len() {
                break Ok(false);
            }
            match self.ahead.read(source, &mut self.small[filled..]) {
                Ok(0) => break Ok(true),
                Ok(n) => {
                    filled += n;
                    // More was asked for than its length, which came: another read would find the end.
                    if filled as u64 == pair.about.len() {
                        break Ok(true);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => self.signals.check()?,
                // What comes before a damaged place is good.
                Err(error) => break Err(error).context("read", pair.from),
            }
        };
        let mut rest = &self.small[..filled];
        while !rest.is_empty() {
            match self.signals.write(&mut file, rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()).context("write", pair.to),
                Ok(n) => {
                    rest = &rest[n..];
                    *position += n as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => self.signals.check()?,
                Err(error) => return Err(error).context("write", pair.to),
            }
        }
        self.bytes += filled as u64;
        self.progress.add(filled as u64);
        ended
    }

    /// Copies what a named pipe or device has to say, or a file of the kernel's without an offset.
    fn as_it_comes(
        &mut self,
        source: &File,
        file: &File,
        pair: &Pair,
        position: &mut u64,
    ) -> Outcome {
        let &Pair { from, to, .. } = pair;
        self.stream(file, pair, position, |data, writer, position| {
            let mut buffer = vec![0; 256 << 10];
            loop {
                let signals = data.signals;
                let n = signals.repeat(|| signals.read(source, &mut buffer))?;
                let n = n.context("read", from)?;
                if n == 0 {
                    return Ok(());
                }
                let written = signals.write_all(writer, &buffer[..n])?;
                written.context("write", to)?;
                data.moved(n as u64, position);
            }
        })
    }

    /// Copies what is left of a file, one range of data after the other, as `next` finds them.
    fn ranges(
        &mut self,
        source: &File,
        file: &File,
        pair: &Pair,
        position: &mut u64,
        next: impl Fn(Option<&File>, u64) -> io::Result<Option<(u64, u64)>>,
    ) -> Outcome {
        let &Pair { from, to, .. } = pair;
        let holes = pair.is_sparse().then_some(source);
        // What a file with holes grows by meanwhile is left out: what is said to be a hole may have data by the
        // time that its length is known.
        let limit = holes.map_or(u64::MAX, |_| pair.about.len());
        let mut reader = OpenOptions::new()
            .reader_from(source.try_clone().context("read", from)?)
            .context("read", from)?;
        self.stream(file, pair, position, |data, writer, position| loop {
            let next = next(holes, *position).context("read", from)?;
            let next = next.filter(|&(start, _)| start < limit);
            let Some((start, end)) = next.map(|(start, end)| (start, end.min(limit))) else {
                // Nothing but a hole is left; the source may have shrunk meanwhile.
                let size = reader.seek(SeekFrom::End(0)).context("read", from)?;
                let size = size.min(limit);
                writer.set_len(size).context("write", to)?;
                *position = size;
                return Ok(());
            };
            if let Some(source) = holes.filter(|_| end - start < LONG_RANGE) {
                // Short ranges are not worth a stream of their own.
                let n = copy_range(source, file, start, end);
                if n > 0 {
                    data.signals.check()?;
                    data.pass(start, position);
                    data.moved(n, position);
                    continue;
                }
            }
            if start != *position || reader.position() != start {
                reader.seek(SeekFrom::Start(start)).context("read", from)?;
                writer.seek(SeekFrom::Start(start)).context("write", to)?;
                data.pass(start, position);
            }
            while *position < end {
                data.signals.check()?;
                let bytes = reader.fill_buf().context("read", from)?;
                let n = (bytes.len() as u64).min(end - *position) as usize;
                if n == 0 {
                    // The end of the file, now, which may be before a hole that was passed over.
                    if holes.is_some() {
                        let size = reader.seek(SeekFrom::End(0)).context("read", from)?;
                        *position = size.min(*position);
                        writer.set_len(*position).context("write", to)?;
                    }
                    return Ok(());
                }
                let written = data.signals.write_all(writer, &bytes[..n])?;
                written.context("write", to)?;
                reader.consume(n);
                data.moved(n as u64, position);
            }
        })
    }

    /// Has a stream take what `copy` gives it. If that fails, the stream may have had more in memory than the
    /// kernel has taken; of a file its length says so, of a device only the stream's own count.
    fn stream(
        &mut self,
        file: &File,
        pair: &Pair,
        position: &mut u64,
        copy: impl FnOnce(&mut Self, &mut Writer, &mut u64) -> Outcome,
    ) -> Outcome {
        let begun = *position;
        let mut writer = writer(file, pair.to)?;
        let copied = copy(self, &mut writer, position);
        let flushed = writer.flush().context("write", pair.to);
        let stats = writer.stats();
        self.direct += stats.direct_bytes;
        self.whole = copied.is_ok();
        let outcome = copied.and(flushed);
        if outcome.is_err() && !pair.made.is_file() {
            let end = begun + stats.direct_bytes + stats.buffered_bytes;
            self.whole &= end == *position;
            self.bytes = self.bytes + end - *position;
            *position = end;
        }
        outcome?;
        writer.finish().context("write", pair.to).map(drop)
    }

    /// Passes over a hole, up to the data at `start`.
    fn pass(&mut self, start: u64, position: &mut u64) {
        self.progress.add(start - *position);
        *position = start;
    }

    /// Counts bytes that were moved at `position`.
    fn moved(&mut self, n: u64, position: &mut u64) {
        *position += n;
        self.bytes += n;
        self.progress.add(n);
    }
}

fn writer(file: &File, to: &Path) -> Outcome<Writer> {
    let own = file.try_clone().context("write", to)?;
    OpenOptions::new().writer_from(own).context("write", to)
}

/// The next range of data at or after `position`; `None` if there is only a hole. Everything, if
/// the file is not sparse.
fn next_data(file: Option<&File>, position: u64) -> io::Result<Option<(u64, u64)>> {
    let Some(file) = file else {
        return Ok(Some((position, u64::MAX)));
    };
    let start = match rustix::fs::seek(file, rustix::fs::SeekFrom::Data(position)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok(None),
        // A filesystem that does not know its holes.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(Some((position, u64::MAX))),
        Err(error) => return Err(error.into()),
    };
    let end = rustix::fs::seek(file, rustix::fs::SeekFrom::Hole(start))?;
    Ok(Some((start, end)))
}

/// Returns true if a file has no hole after all: some filesystems count blocks as they are compressed.
fn is_whole(file: &File, about: &Metadata) -> bool {
    let found = next_data(Some(file), 0);
    rustix::fs::seek(file, rustix::fs::SeekFrom::Start(0)).is_ok()
        && found.is_ok_and(|data| data.is_some_and(|(start, end)| start == 0 && end >= about.len()))
}

/// Has the kernel copy a range. Returns how much it did; zero if it does not do that here.
fn copy_range(from: &File, to: &File, start: u64, end: u64) -> u64 {
    let (mut at, mut into) = (start, start);
    while at < end {
        let len = (end - at) as usize;
        match rustix::fs::copy_file_range(from, Some(&mut at), to, Some(&mut into), len) {
            Ok(0) => break,
            Ok(_) | Err(Errno::INTR) => {}
            // The stream goes on, and meets the error if there is one.
            Err(_) => break,
        }
    }
    at - start
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn a_small_file_goes_at_once_unless_it_has_a_hole() {
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        let (from, to) = (home.path().join("from"), home.path().join("to"));
        let of_len = |len| {
            let hole = File::create(home.path().join("hole")).unwrap();
            hole.set_len(len).unwrap();
            hole.metadata().unwrap()
        };
        let signals = Signals::listen(&[]).unwrap();
        // As a filesystem has it that compresses, or counts no blocks.
        for (written, about) in [
            (100_000, of_len(100_000)),
            (5, of_len(5)),
            (0, of_len(100_000)),
        ] {
            std::fs::write(&from, vec![7; written]).unwrap();
            let source = File::options().read(true).write(true).open(&from).unwrap();
            source.set_len(about.len()).unwrap();
            let copy = File::create(&to).unwrap();
            let made = copy.metadata().unwrap();
            let pair = Pair {
                from: &from,
                to: &to,
                about: &about,
                made: &made,
            };
            let mut data = Data::new(&signals, Progress::new("", 0, false));
            let mut position = 0;
            // A filesystem that shares blocks has nothing to copy.
            data.unshared = Some((about.dev(), made.dev()));
            data.copy(&source, &copy, &pair, &mut position).unwrap();
            assert_eq!(position, about.len());
            assert!(std::fs::read(&to).unwrap() == std::fs::read(&from).unwrap());
            // Only a stream says that it had all.
            assert_eq!(data.whole, written == 0, "{written}");
        }
    }

    #[test]
    fn a_source_that_shrinks_after_its_data_was_found_has_a_copy_of_its_length() {
        const DATA: u64 = 12 << 20;
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        let (from, to) = (home.path().join("from"), home.path().join("to"));
        let signals = Signals::listen(&[]).unwrap();
        // Between two holes: so much that a stream takes it, and little that is left to the kernel.
        for (range, kept) in [
            (LONG_RANGE + 4096, 0),
            (LONG_RANGE + 4096, 5 << 20),
            (LONG_RANGE + 4096, DATA + 10),
            (4096, 5 << 20),
            (4096, DATA + 10),
        ] {
            let source = File::options()
                .read(true)
                .write(true)
                .create(true)
                .truncate(true)
                .open(&from)
                .unwrap();
            source.set_len(2 * DATA + 2 * range).unwrap();
            source.write_all_at(&vec![7; range as usize], DATA).unwrap();
            let copy = File::create(&to).unwrap();
            let (about, made) = (source.metadata().unwrap(), copy.metadata().unwrap());
            let pair = Pair {
                from: &from,
                to: &to,
                about: &about,
                made: &made,
            };
            let mut data = Data::new(&signals, Progress::new("", 0, false));
            let mut position = 0;
            let shrinks = |holes: Option<&File>, position| {
                let found = next_data(holes, position);
                source.set_len(kept).unwrap();
                found
            };
            data.ranges(&source, &copy, &pair, &mut position, shrinks)
                .unwrap();
            assert_eq!(position, kept, "{range}");
            assert!(
                std::fs::read(&to).unwrap() == std::fs::read(&from).unwrap(),
                "{range} {kept}"
            );
            source.set_len(0).unwrap();
        }
    }
}
