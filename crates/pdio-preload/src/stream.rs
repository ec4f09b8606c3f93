// SPDX-License-Identifier: MIT OR Apache-2.0
//! One stream in the hands of pdio: its bytes and its position.
//!
//! The position of a taken stream is kept here, and the kernel's offset lags behind. This file knows how
//! the two are made to agree. When they must, and when a stream begins and ends, is decided above.

use core::ffi::c_int;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;

use libc::{iovec, off_t};

use crate::filesystem::Filesystem;
use crate::table::{Kind, State};
use crate::taken::{Pump, Stream};
use crate::{errno, look, next, report, say, tell};

/// Bytes written between two checks of the room: so many may be lost if others take all of it meanwhile.
const ROOM_STEP: u64 = 256 << 10;
/// Minimum bytes between two hand-overs for which gathering is worth it.
const WORTH: u64 = 256 << 10;
/// Minimum bytes read between two times that the program may have been told something: for less, the
/// question for the file's times costs more than is gained.
const WORTH_ASKING: u64 = 16 << 10;
/// Hand-overs, or questions, in a row with less than that after which a stream goes back for good.
const HASTY: u32 = 8;

/// Most bytes of a call that pdio is given at a time. Calls of less than 64 KiB it copies, into or out of the
/// stream's own memory; larger ones may go directly.
fn piece(copies: bool) -> usize {
    match copies {
        true => 32 << 10,
        false => usize::MAX,
    }
}

fn code(error: &io::Error) -> c_int {
    error.raw_os_error().unwrap_or(libc::EIO)
}

impl Stream {
    pub fn position(&self) -> u64 {
        match &self.pump {
            Pump::Writer(writer) => writer.position(),
            Pump::Reader(reader) => reader.position(),
        }
    }

    pub fn set_position(&mut self, at: u64) {
        if at != self.position() {
            // Seeking to an absolute offset only sets a number.
            let _ = match &mut self.pump {
                Pump::Writer(writer) => writer.seek(SeekFrom::Start(at)),
                Pump::Reader(reader) => reader.seek(SeekFrom::Start(at)),
            };
        }
    }

    pub fn descriptor(&self) -> c_int {
        match &self.pump {
            Pump::Writer(writer) => writer.file().as_raw_fd(),
            Pump::Reader(reader) => reader.file().as_raw_fd(),
        }
    }

    pub fn set_kernel(&self, at: u64) -> off_t {
        // SAFETY: no memory is involved.
        unsafe { next::lseek64(self.descriptor(), at as off_t, libc::SEEK_SET) }
    }

    /// Before a call: a stream in step takes its position from the kernel's offset.
    pub fn begin(&mut self) {
        if self.in_step {
            // SAFETY: no memory is involved.
            let at = unsafe { next::lseek64(self.descriptor(), 0, libc::SEEK_CUR) };
            if at >= 0 {
                self.set_position(at as u64);
            }
        }
    }

    pub fn finish(&self) {
        if self.in_step {
            self.set_kernel(self.position());
        }
    }

    /// The C library is about to read or write this file.
    pub fn keep_step(&mut self) {
        if self.standard && !self.in_step {
            self.set_kernel(self.position());
            self.in_step = true;
        }
    }

    /// From here on the C library may read or write this file.
    pub fn becomes_standard(&mut self) {
        self.standard = true;
        tell::offsets_differ();
    }

    /// Passes everything to the kernel and sets the kernel's offset. Returns the first error, and
    /// true if data remains.
    pub fn drain(&mut self) -> (Option<c_int>, bool) {
        self.begin();
        let Pump::Writer(writer) = &mut self.pump else {
            return (None, false);
        };
        // The first try may only report an earlier error.
        let mut first = None;
        for _ in 0..2 {
            match writer.flush() {
                Ok(()) => return (first, false),
                Err(error) => first = first.or(Some(code(&error))),
            }
        }
        self.set_kernel(self.position());
        (first, true)
    }

    /// Has the file's times show that it was written after the streams before it, the newest of which has the time
    /// `newest`: part of the stream may have reached the kernel before earlier data of those.
    pub fn keep_order(&self, newest: &mut (i64, i64)) {
        let written = || {
            let about = look::stat(self.descriptor())?;
            Some((about.st_mtime, about.st_mtime_nsec))
        };
        let Some(mut time) = written() else {
            return;
        };
        // An older one than before the stream is somebody else's wish.
        if (self.older..*newest).contains(&time) {
            self.touch();
            time = written().unwrap_or(time);
        }
        *newest = time.max(*newest);
    }

    fn touch(&self) {
        let only = |nsec| libc::timespec {
            tv_sec: 0,
            tv_nsec: nsec,
        };
        let times = [only(libc::UTIME_OMIT), only(libc::UTIME_NOW)];
        // SAFETY: two times, ours. The call fails if this user does not own the file.
        unsafe { next::futimens(self.descriptor(), times.as_ptr().cast()) };
    }

    pub fn write(&mut self, parts: &[iovec], at: Option<u64>) -> (usize, Option<c_int>) {
        let Pump::Writer(writer) = &mut self.pump else {
            return (0, Some(libc::EBADF));
        };
        let most = piece(self.copies);
        let mut total = 0;
        for part in parts.iter().filter(|part| part.iov_len > 0) {
            // SAFETY: the program's memory; the program vouches that it is readable.
            let mut rest =
                unsafe { core::slice::from_raw_parts(part.iov_base.cast::<u8>(), part.iov_len) };
            while !rest.is_empty() {
                let piece = &rest[..rest.len().min(most)];
                let result = match at {
                    Some(at) => writer.write_at(piece, at + total as u64),
                    None => writer.write(piece),
                };
                match result {
                    Ok(0) => return (total, Some(libc::EIO)),
                    Ok(n) => {
                        total += n;
                        rest = &rest[n..];
                    }
                    Err(error) => return (total, Some(code(&error))),
                }
            }
        }
        self.written += total as u64;
        (total, None)
    }

    /// Before a read: counts how often in a row little was read since the program may have been told something.
    pub fn listens(&mut self) {
        let heard = pdio::times_heard();
        if heard != self.heard {
            self.heard = heard;
            self.hurries(WORTH_ASKING);
        }
    }

    /// Before a hand-over: counts how often in a row little was written since the last one.
    pub fn tells(&mut self) {
        self.hurries(WORTH);
    }

    /// Notes what was gathered until now.
    fn hurries(&mut self, worth: u64) {
        self.hasty = match std::mem::take(&mut self.gathered) < worth {
            true => self.hasty + 1,
            false => 0,
        };
    }

    pub fn read(&mut self, parts: &[iovec], at: Option<u64>) -> (usize, Option<c_int>) {
        let Pump::Reader(reader) = &mut self.pump else {
            return (0, Some(libc::EBADF));
        };
        let most = piece(tell::has_mapped_files());
        let mut total = 0;
        for part in parts.iter().filter(|part| part.iov_len > 0) {
            // SAFETY: the program's memory; the program vouches that it is writable.
            let memory: &mut [u8] =
                unsafe { core::slice::from_raw_parts_mut(part.iov_base.cast(), part.iov_len) };
            for memory in memory.chunks_mut(most) {
                let result = match at {
                    Some(at) => reader.read_at(memory, at + total as u64),
                    None => reader.read(memory),
                };
                match result {
                    Ok(n) => {
                        total += n;
                        if n < memory.len() {
                            return (total, None);
                        }
                    }
                    Err(error) => return (total, Some(code(&error))),
                }
            }
        }
        (total, None)
    }

    /// Returns true if others are told, or heard of, so often that gathering is not worth it.
    pub fn is_hasty(&self) -> bool {
        self.hasty >= HASTY
    }

    /// Returns true if little room is left for what is written. The kernel is asked every [`ROOM_STEP`].
    pub fn lacks_room(&mut self) -> bool {
        if self.written < ROOM_STEP {
            return false;
        }
        self.written = 0;
        !Filesystem::of(self.descriptor()).is_some_and(|filesystem| filesystem.has_room())
    }

    /// Reports a stream that is no longer taken.
    pub fn report_end(&self, why: &str) {
        let counts = || {
            let (word, stats) = match &self.pump {
                Pump::Writer(writer) => ("written", writer.stats()),
                Pump::Reader(reader) => ("read", reader.stats()),
            };
            (
                word,
                [stats.bytes, stats.direct_bytes, stats.buffered_bytes],
            )
        };
        report::ended(&self.path, counts, why);
    }

    /// Prints an error that no call of the program can return.
    pub fn say_lost(&self, error: c_int) {
        let text = errno::reason(error);
        let path = self.path.as_bytes();
        say::say(&[
            path,
            b": the last data could not be written: ",
            text.as_bytes(),
        ]);
    }
}

impl State {
    /// Drains the stream, if there is one, and keeps the error. Returns true if data remains.
    pub fn drain(&mut self) -> bool {
        let Kind::Stream(stream) = &mut self.kind else {
            return false;
        };
        let (error, left) = stream.drain();
        self.error = self.error.or(error);
        left
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;
    use crate::guard;

    const LEN: usize = 4 << 20;

    fn direct() -> pdio::OpenOptions {
        let mut options = pdio::OpenOptions::new();
        options.strategy(pdio::Strategy::Direct);
        options
    }

    fn stream(pump: Pump, copies: bool) -> Stream {
        Stream {
            older: (0, 0),
            pump,
            path: c"file".into(),
            standard: false,
            in_step: false,
            farthest: u64::MAX,
            written: 0,
            copies,
            defers: false,
            gathered: 0,
            hasty: 0,
            heard: 0,
        }
    }

    /// Aligned memory; the vector owns it.
    fn aligned(owner: &mut Vec<u8>) -> &mut [u8] {
        owner.resize(LEN + 4096, 7);
        let skip = owner.as_ptr().align_offset(4096);
        &mut owner[skip..skip + LEN]
    }

    fn part(memory: &mut [u8]) -> [iovec; 1] {
        [iovec {
            iov_base: memory.as_mut_ptr().cast(),
            iov_len: memory.len(),
        }]
    }

    fn write_all(file: &File, copies: bool) -> pdio::Stats {
        let writer = direct().writer_from(file.try_clone().expect("a descriptor"));
        let mut stream = stream(Pump::Writer(writer.expect("a writer")), copies);
        let mut owner = Vec::new();
        assert_eq!(
            stream.write(&part(aligned(&mut owner)), Some(0)),
            (LEN, None)
        );
        let Pump::Writer(writer) = stream.pump else {
            unreachable!()
        };
        writer.finish().expect("written")
    }

    fn read_all(file: &File) -> pdio::Stats {
        let reader = direct().reader_from(file.try_clone().expect("a descriptor"));
        let mut stream = stream(Pump::Reader(Box::new(reader.expect("a reader"))), false);
        let mut owner = Vec::new();
        let memory = aligned(&mut owner);
        memory.fill(0);
        assert_eq!(stream.read(&part(memory), Some(0)), (LEN, None));
        assert!(memory.iter().all(|&byte| byte == 7));
        let Pump::Reader(reader) = &stream.pump else {
            unreachable!()
        };
        reader.stats()
    }

    #[test]
    fn where_the_programs_memory_may_not_be_used_it_is_not() {
        // What pdio does is not what the program does.
        let _guard = guard::Guard::enter();
        let file = tempfile::tempfile_in("/var/tmp").expect("a file");
        let stats = write_all(&file, false);
        if stats.direct_bytes == 0 {
            eprintln!("skipped: no direct I/O in /var/tmp");
            return;
        }
        assert!(stats.zero_copy_bytes > 0, "{stats:?}");
        let stats = write_all(&file, true);
        assert_eq!(stats.zero_copy_bytes, 0, "{stats:?}");
        assert!(stats.direct_bytes > 0, "{stats:?}");
        assert!(read_all(&file).zero_copy_bytes > 0);
        tell::mapping_file();
        let stats = read_all(&file);
        assert_eq!(stats.zero_copy_bytes, 0, "{stats:?}");
        assert!(stats.direct_bytes > 0, "{stats:?}");
    }
}
