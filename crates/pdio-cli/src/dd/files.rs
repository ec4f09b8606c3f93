// SPDX-License-Identifier: MIT OR Apache-2.0
//! The two files: regular ones and block devices as streams of pdio, others call by call.

use std::fs::{File, Metadata};
use std::io::{self, IoSlice, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};

use pdio::{OpenOptions, Reader, Writer};
use rustix::fs::OFlags;
use rustix::io::{Errno, ReadWriteFlags};

use super::operands::{usage, Plan};
use crate::report::{quoted, reason, standard, Fail, Outcome};
use crate::signals::Signals;

/// The major number of /dev/zero, /dev/null, /dev/urandom and so on.
const MEMORY_DEVICES: u32 = 1;

/// That of SCSI tapes, which say that they were moved, and were not.
const TAPES: u32 = 9;

/// Returns true for /dev/zero, /dev/full, /dev/random and /dev/urandom. They give less than asked only when
/// something interrupts, be it the completion of a write; that is no record of its own.
fn is_endless(device: u64) -> bool {
    let number = (rustix::fs::major(device), rustix::fs::minor(device));
    matches!(number, (MEMORY_DEVICES, 5 | 7..=9))
}

/// Returns true if reads and writes have no offset and may wait for somebody else. Some of the kernel's files are so,
/// as in tracefs.
fn is_stream(file: &File, about: &Metadata) -> bool {
    let kind = about.file_type();
    !(kind.is_file() || kind.is_block_device()) || rustix::fs::tell(file) == Err(Errno::SPIPE)
}

pub(super) enum Source {
    Seekable(Box<Reader>),
    Stream {
        file: File,
        waits: bool,
        /// Moving it says nothing.
        tape: bool,
    },
}

pub(super) struct Input {
    pub(super) source: Source,
    pub(super) name: String,
    pub(super) fullblock: bool,
}

impl Input {
    pub(super) fn open(plan: &Plan, signals: &Signals) -> Outcome<Input> {
        let side = &plan.input;
        let (file, name) = match &side.path {
            Some(path) => {
                let mut options = File::options();
                options.read(true).custom_flags(side.flags as i32);
                let opened = signals.open(&options, path)?;
                let failed =
                    |e| Fail::Failed(format!("failed to open {}: {}", quoted(path), reason(&e)));
                (opened.map_err(failed)?, quoted(path))
            }
            None => {
                let name = quoted("standard input");
                let copy = duplicate(io::stdin().as_fd(), side.flags, &name)?;
                (copy, name)
            }
        };
        let failed = |e: io::Error| Fail::Failed(format!("error reading {name}: {}", reason(&e)));
        let about = file.metadata().map_err(failed)?;
        if about.is_dir() {
            return Err(failed(Errno::ISDIR.into()));
        }
        let device = about.file_type().is_char_device();
        let endless = device && is_endless(about.rdev());
        let source = if is_stream(&file, &about) {
            let waits = !endless && side.may_wait();
            let tape = device && rustix::fs::major(about.rdev()) == TAPES;
            Source::Stream { file, waits, tape }
        } else {
            let mut options = OpenOptions::new();
            options.strategy(side.strategy(false));
            Source::Seekable(Box::new(options.reader_from(file).map_err(failed)?))
        };
        Ok(Input {
            source,
            name,
            fullblock: plan.fullblock || endless,
        })
    }

    /// A signal that ends the wait is the error `Interrupted`.
    pub(super) fn read_once(&mut self, buffer: &mut [u8], signals: &Signals) -> io::Result<usize> {
        match &mut self.source {
            Source::Seekable(reader) => reader.read(buffer),
            Source::Stream { file, waits, .. } => match waits {
                true => signals.read(file, buffer),
                false => file.read(buffer),
            },
        }
    }

    /// Passes over bytes without reading them; `false` where they have to be read.
    pub(super) fn pass(&mut self, bytes: i64) -> io::Result<bool> {
        let to = SeekFrom::Current(bytes);
        match &mut self.source {
            Source::Seekable(reader) => reader.seek(to).map(|_| true),
            Source::Stream { tape: true, .. } => Ok(false),
            Source::Stream { file, .. } => match file.seek(to) {
                Ok(_) => Ok(true),
                // As with GNU dd: a device with an end has no such place.
                Err(error) if file.seek(SeekFrom::End(0)).is_ok() => Err(error),
                Err(_) => Ok(false),
            },
        }
    }

    /// Where a device with an offset is.
    pub(super) fn place(&mut self) -> Option<u64> {
        match &mut self.source {
            Source::Seekable(reader) => Some(reader.position()),
            Source::Stream { file, .. } => file.stream_position().ok(),
        }
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        match &self.source {
            Source::Seekable(reader) => reader.as_fd(),
            Source::Stream { file, .. } => file.as_fd(),
        }
    }
}

/// Moves a writer. As with GNU dd: a file may yet get a place beyond its end, a device never.
fn seek(writer: &mut Writer, to: SeekFrom) -> io::Result<()> {
    let to = writer.seek(to)?;
    if !writer.file().metadata()?.file_type().is_block_device() {
        return Ok(());
    }
    // Left there, as what cannot be sought to would also be an error when the output is closed.
    if to > writer.seek(SeekFrom::End(0))? {
        return Err(Errno::INVAL.into());
    }
    writer.seek(SeekFrom::Start(to)).map(drop)
}

/// A descriptor of our own for standard input or output. Flags change on the description, which
/// is how GNU dd does it too.
fn duplicate(fd: BorrowedFd<'_>, flags: u32, name: &str) -> Outcome<File> {
    let copy = || -> io::Result<File> {
        let copy = standard(fd)?;
        if flags != 0 {
            let now = rustix::fs::fcntl_getfl(&copy)?;
            rustix::fs::fcntl_setfl(&copy, now | OFlags::from_bits_retain(flags))?;
        }
        Ok(File::from(copy))
    };
    copy().map_err(|e| Fail::Failed(format!("failed to open {name}: {}", reason(&e))))
}

pub(super) enum Sink {
    Seekable(Box<Writer>),
    Stream {
        file: File,
        waits: bool,
        /// True if it takes `RWF_NOWAIT`, so that a signal can end the wait.
        nowait: bool,
    },
}

pub(super) struct Output {
    pub(super) sink: Sink,
    pub(super) name: String,
    /// Bytes accepted from dd, holes included.
    pub(super) position: u64,
    /// Bytes left out as holes since the last write: they are there once something behind them is.
    hole: u64,
    /// Those before.
    holes: u64,
    regular: bool,
}

impl Output {
    pub(super) fn open(plan: &Plan, signals: &Signals) -> Outcome<Output> {
        let side = &plan.output;
        let begin = side.begin_bytes();
        let (file, name) = match &side.path {
            Some(path) => {
                let mut options = File::options();
                options
                    .write(true)
                    .create(!plan.nocreat)
                    .create_new(plan.excl)
                    .custom_flags(side.flags as i32);
                let failed =
                    |e| Fail::Failed(format!("failed to open {}: {}", quoted(path), reason(&e)));
                (signals.open(&options, path)?.map_err(failed)?, quoted(path))
            }
            None => {
                let name = quoted("standard output");
                (duplicate(io::stdout().as_fd(), side.flags, &name)?, name)
            }
        };
        let failed = |e: io::Error| Fail::Failed(format!("error writing {name}: {}", reason(&e)));
        let about = file.metadata().map_err(failed)?;
        let regular = about.is_file();
        if side.path.is_some() && regular && !plan.notrunc {
            refuse_same_file(plan, &about, begin)?;
            file.set_len(begin).map_err(|e| {
                Fail::Failed(format!(
                    "failed to truncate to {begin} bytes in output file {name}: {}",
                    reason(&e)
                ))
            })?;
        }
        let stream = is_stream(&file, &about);
        let now = rustix::fs::fcntl_getfl(&file).map_err(|e| failed(e.into()))?;
        let sink = if stream || now.contains(OFlags::APPEND) {
            let waits = stream && side.may_wait();
            Sink::Stream {
                file,
                waits,
                nowait: waits,
            }
        } else {
            let mut options = OpenOptions::new();
            options.strategy(side.strategy(true));
            Sink::Seekable(Box::new(options.writer_from(file).map_err(failed)?))
        };
        Ok(Output {
            sink,
            name,
            position: 0,
            hole: 0,
            holes: 0,
            regular,
        })
    }

    /// Passes over the beginning of the output.
    pub(super) fn begin(&mut self, bytes: u64) -> Outcome {
        if bytes > 0 {
            let to = SeekFrom::Current(bytes as i64);
            let moved = match &mut self.sink {
                Sink::Seekable(writer) => seek(writer, to),
                Sink::Stream { file, .. } => file.seek(to).map(drop),
            };
            moved
                .map_err(|e| Fail::Failed(format!("{}: cannot seek: {}", self.name, reason(&e))))?;
        }
        self.position = bytes;
        Ok(())
    }

    /// Writes all of `data`; says how much of it was accepted if that fails, or a signal ends a wait
    /// (`Interrupted`).
    pub(super) fn write(
        &mut self,
        data: &[u8],
        signals: &Signals,
    ) -> Result<(), (usize, io::Error)> {
        let mut done = 0;
        let mut hole = std::mem::take(&mut self.hole);
        while done < data.len() {
            let result = match &mut self.sink {
                Sink::Seekable(writer) => writer.write(&data[done..]),
                Sink::Stream {
                    file,
                    waits,
                    nowait,
                } => match waits {
                    true => write_stream(file, nowait, &data[done..], signals),
                    false => file.write(&data[done..]),
                },
            };
            match result {
                Ok(0) => return Err((done, io::ErrorKind::WriteZero.into())),
                Ok(n) => {
                    done += n;
                    self.position += n as u64;
                    self.holes += std::mem::take(&mut hole);
                }
                Err(error) => {
                    if error.kind() == io::ErrorKind::Interrupted {
                        self.hole = hole;
                    }
                    return Err((done, error));
                }
            }
        }
        Ok(())
    }

    /// Passes over a block of zeros; `false` where there can be no hole.
    pub(super) fn hole(&mut self, bytes: usize) -> bool {
        let Sink::Seekable(writer) = &mut self.sink else {
            return false;
        };
        if writer.seek(SeekFrom::Current(bytes as i64)).is_err() {
            return false;
        }
        self.position += bytes as u64;
        self.hole += bytes as u64;
        true
    }

    /// Bytes that the kernel has been given, holes included; `None` where each write says that itself.
    pub(super) fn given(&self) -> Option<u64> {
        let Sink::Seekable(writer) = &self.sink else {
            return None;
        };
        let stats = writer.stats();
        Some(stats.direct_bytes + stats.buffered_bytes + self.holes)
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        match &self.sink {
            Sink::Seekable(writer) => writer.as_fd(),
            Sink::Stream { file, .. } => file.as_fd(),
        }
    }

    /// Hands everything to the kernel and makes it durable where asked.
    pub(super) fn flush_and_sync(&mut self, plan: &Plan) -> Result<(), String> {
        let name = &self.name;
        let error = |what: &str, e: io::Error| format!("{what} {name}: {}", reason(&e));
        if let Sink::Seekable(writer) = &mut self.sink {
            writer.flush().map_err(|e| error("error writing", e))?;
            let end = writer
                .stream_position()
                .map_err(|e| error("error writing", e))?;
            let size = writer.file().metadata().map(|m| m.len()).unwrap_or(end);
            if self.hole > 0 && self.regular && size < end {
                writer
                    .set_len(end)
                    .map_err(|e| error("failed to extend", e))?;
            }
            self.holes += std::mem::take(&mut self.hole);
        }
        if plan.fsync {
            let result = rustix::fs::fsync(self.fd());
            result.map_err(|e| error("fsync failed for", e.into()))?;
        } else if plan.fdatasync {
            let result = rustix::fs::fdatasync(self.fd());
            result.map_err(|e| error("fdatasync failed for", e.into()))?;
        }
        Ok(())
    }
}

/// Closes the output. Some filesystems tell only then what they have lost.
pub(super) fn close(output: Output) -> Result<(), String> {
    let closed = match output.sink {
        Sink::Seekable(writer) => writer.finish().map(drop),
        Sink::Stream { file, .. } => pdio::close(file),
    };
    closed.map_err(|e| format!("closing output file {}: {}", output.name, reason(&e)))
}

/// Emptying the output would destroy the input.
fn refuse_same_file(plan: &Plan, output: &Metadata, begin: u64) -> Outcome {
    let input = match &plan.input.path {
        Some(path) => std::fs::metadata(path),
        None => io::stdin()
            .as_fd()
            .try_clone_to_owned()
            .and_then(|fd| File::from(fd).metadata()),
    };
    let same = input.is_ok_and(|i| (i.dev(), i.ino()) == (output.dev(), output.ino()));
    if same && begin < output.len() {
        return usage("input and output are the same file, which would be emptied first: conv=notrunc keeps it");
    }
    Ok(())
}

/// One write to a pipe or device. Where the kernel can do without waiting, a signal ends the wait, also if others
/// use what was opened: that keeps its flags.
fn write_stream(
    file: &mut File,
    nowait: &mut bool,
    data: &[u8],
    signals: &Signals,
) -> io::Result<usize> {
    while *nowait {
        let parts = [IoSlice::new(data)];
        match rustix::io::pwritev2(&*file, &parts, u64::MAX, ReadWriteFlags::NOWAIT) {
            Ok(n) => return Ok(n),
            Err(Errno::AGAIN) => signals.ready(file.as_fd(), true, None)?,
            Err(Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS | Errno::SPIPE) => *nowait = false,
            Err(error) => return Err(error.into()),
        }
    }
    signals.write(file, data)
}
