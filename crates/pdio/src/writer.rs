// SPDX-License-Identifier: MIT OR Apache-2.0
//! The writing stream.
//!
//! Bytes are copied into a ring of memory and leave it as large direct requests. Only bytes that
//! the caller wrote are ever written: whole granules (see `FileFacts::granule`) go direct, and the
//! rest at either end of a run goes through the page cache at its exact length. So the file never
//! has a padded size, and a neighbour's bytes in the same block are never rewritten from memory.

use std::fs::File;
use std::io::{self, IoSlice, Seek, SeekFrom, Write};
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::time::{Duration, Instant};

use crate::align::{FileFacts, FileKind};
use crate::backing;
use crate::files::{Inode, Waiting};
use crate::fork::{self, RingNumber};
use crate::memory::Copying;
use crate::options::{Durability, OpenOptions, MOST_MEMORY};
use crate::requests::Core;
use crate::staging::BUFFERED_CHUNK;
use crate::stats::Stats;
use crate::{keeper, sys};

/// In what time to look again at aged data that can only be sent when the device has what goes before.
const DEVICE_WORKS: Duration = Duration::from_millis(1);
/// The part of the time between two looks after which to look again at a stream that is in use: what it leaves
/// when it idles is sent within its linger time from then on, and 80 looks a second cost a processor little.
const IN_USE: u32 = 2;

/// A stream into a file.
///
/// `write` returns once the bytes are as safe as the [`Durability`] mode promises. An error of a
/// deferred write is returned once, by a later call on the same stream; the data is kept, and the
/// calls after that one try again. If the stream has waited for writeback and that failed, the error
/// is returned in the same way, but the kernel may have lost that data, as when `fsync` fails.
///
/// Where another stream of this process has older data for the same bytes, that is written first; if it
/// cannot be, the call fails with that error, and writes nothing.
///
/// [`flush`](Write::flush) passes everything to the kernel: then other programs see it, and a killed
/// process does not lose it.
/// [`sync_data`](Writer::sync_data) makes it survive a power cut.
///
/// Dropping a writer flushes it and cannot report an error; use [`finish`](Writer::finish).
#[derive(Debug)]
pub struct Writer {
    shared: ManuallyDrop<Arc<Shared>>,
    file: Arc<File>,
    options: OpenOptions,
    position: u64,
    /// The fork generation that the stream belongs to.
    generation: u64,
    kind: FileKind,
    finished: bool,
}

impl OpenOptions {
    /// Opens a file for writing, at offset 0.
    ///
    /// # Errors
    /// Those of `open(2)`, and `OutOfMemory` for a process's first stream, if there is no page of memory.
    pub fn open_writer(&self, path: impl AsRef<Path>) -> io::Result<Writer> {
        let file = std::fs::OpenOptions::new()
            .write(true)
            .create(self.create)
            .create_new(self.create_new)
            .truncate(self.truncate)
            .mode(self.mode)
            .open(path)?;
        Writer::new(file, self)
    }

    /// Takes over an open file, at the descriptor's offset, which follows the stream at every flush, at
    /// [`finish`](Writer::finish) and at drop. Pipes, sockets, character devices and other files without an
    /// offset are passed through. Calls that a signal interrupts are repeated, also there.
    ///
    /// Record locks (`fcntl`) that the process has on the file do not outlast this call on every filesystem:
    /// any close of a file drops them, and to find out its alignment it may be opened a second time.
    ///
    /// # Errors
    /// `InvalidInput` for a descriptor that is not open for writing, or with `O_APPEND`, under
    /// which offsets have no meaning, or with `O_DIRECT`: streams have direct I/O of their own.
    pub fn writer_from(&self, file: File) -> io::Result<Writer> {
        Writer::new(file, self)
    }
}

impl Writer {
    /// Creates or empties the file at `path`, with the default options.
    ///
    /// # Errors
    /// Those of `open(2)`.
    pub fn create(path: impl AsRef<std::path::Path>) -> io::Result<Writer> {
        OpenOptions::new()
            .create(true)
            .truncate(true)
            .open_writer(path)
    }

    fn new(file: File, options: &OpenOptions) -> io::Result<Writer> {
        let flags = sys::flags(file.as_fd())?;
        if flags & libc::O_ACCMODE == libc::O_RDONLY {
            return Err(invalid("the file is not open for writing"));
        }
        if flags & libc::O_APPEND != 0 {
            return Err(invalid(
                "the file is open with O_APPEND, under which offsets have no meaning: open it without",
            ));
        }
        let mut options = options.clone();
        if flags & libc::O_DSYNC != 0 {
            options.durability = Durability::Sync;
        }
        let facts = FileFacts::of(&file)?;
        facts.refuse_direct(flags)?;
        let kind = facts.kind;
        let position = match kind {
            FileKind::Stream => 0,
            _ => sys::offset(file.as_fd())?,
        };
        let file = Arc::new(file);
        let shared = Shared::new(file.clone(), None, flags, facts, &mut options, position);
        Ok(Writer {
            shared: ManuallyDrop::new(shared),
            file,
            options,
            position,
            generation: fork::generation(),
            kind,
            finished: false,
        })
    }

    /// Writes at `offset` without moving the stream's position. May write less than asked.
    ///
    /// # Errors
    /// Those of `pwrite(2)`, and deferred ones; `ESPIPE` for pipes and the like.
    pub fn write_at(&mut self, data: &[u8], offset: u64) -> io::Result<usize> {
        if self.kind == FileKind::Stream {
            return Err(io::Error::from_raw_os_error(libc::ESPIPE));
        }
        self.renew_after_fork()?;
        let end = end_of(offset, data.len())?;
        if data.is_empty() {
            return Ok(0);
        }
        let shared = &*self.shared;
        shared
            .inode
            .write_overlapping(Some(&**shared), offset, end)?;
        let mut core = shared.lock();
        let result = core.write(data, offset);
        shared.publish(&mut core);
        result
    }

    /// Lets `fill` put up to `most` bytes directly into the memory that requests are sent from, and
    /// writes them at the stream's position: received data reaches the device without another copy.
    /// `fill` returns the number of bytes, which may be zero and is the return value.
    ///
    /// The slice may be shorter than `most`; it contains old data. Where nothing can be staged
    /// (pipes, [`Durability::Safe`] and [`Durability::Sync`], scattered positions, no memory), it
    /// is separate memory. `fill` must not wait for long, nor use other streams on the same file, nor
    /// `fork`: until it returns, these cannot access this stream.
    ///
    /// # Errors
    /// Before `fill` is called, deferred ones; those of `fill`; and where nothing can be staged
    /// those of the write: [`position`](Writer::position) then tells how much was written.
    pub fn write_with(
        &mut self,
        most: usize,
        fill: impl FnOnce(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        if self.kind != FileKind::Stream && self.options.durability == Durability::Process {
            self.renew_after_fork()?;
            let (shared, offset) = (&*self.shared, self.position);
            // No stream has room for more.
            let most = most.min(MOST_MEMORY);
            let end = end_of(offset, most)?;
            shared
                .inode
                .write_overlapping(Some(&**shared), offset, end)?;
            let mut core = shared.lock();
            let result = core.room(most, offset).and_then(|room| match room {
                Some((at, len)) => core.append_with(at, len, fill).map(Ok),
                None => Ok(Err(fill)),
            });
            shared.publish(&mut core);
            drop(core);
            match result? {
                Ok(n) => {
                    self.position += n as u64;
                    return Ok(n);
                }
                Err(fill) => return self.write_bounced(most, fill),
            }
        }
        self.renew_after_fork()?;
        self.shared.lock().owed()?;
        self.write_bounced(most, fill)
    }

    fn write_bounced(
        &mut self,
        most: usize,
        fill: impl FnOnce(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let mut memory = vec![0; most.min(BUFFERED_CHUNK)];
        let n = fill(&mut memory)?.min(memory.len());
        self.write_all(&memory[..n])?;
        Ok(n)
    }

    /// Writes all of `data` at the stream's position directly from the caller's memory, whatever
    /// other ways cost, and waits for it. Returns false, with nothing written, if this file has no
    /// direct I/O, or if address, length or position are not
    /// [aligned](crate::Explanation::alignment) for it.
    ///
    /// For data that a device, such as a camera, has put into memory that the caller wants back.
    ///
    /// # Errors
    /// Deferred ones, and those of `pwrite(2)`; `EFAULT` for memory that cannot be given to a
    /// device. [`position`](Writer::position) tells how much was written.
    pub fn write_uncopied(&mut self, data: &[u8]) -> io::Result<bool> {
        if self.kind == FileKind::Stream {
            return Ok(false);
        }
        self.renew_after_fork()?;
        let (shared, offset) = (&*self.shared, self.position);
        let end = end_of(offset, data.len())?;
        shared
            .inode
            .write_overlapping(Some(&**shared), offset, end)?;
        let mut core = shared.lock();
        let mut done = 0;
        let result = core.write_uncopied(data, offset, &mut done);
        shared.publish(&mut core);
        self.position += done;
        result
    }

    /// Passes everything to the kernel and makes the data durable (`fdatasync(2)`).
    ///
    /// # Errors
    /// Deferred ones, and those of `fdatasync(2)`: the kernel reports a failed writeback once.
    pub fn sync_data(&mut self) -> io::Result<()> {
        self.flush()?;
        ignore_stream(self.kind, self.file.sync_data())
    }

    /// As [`sync_data`](Writer::sync_data), with all metadata (`fsync(2)`).
    ///
    /// # Errors
    /// Deferred ones, and those of `fsync(2)`.
    pub fn sync_all(&mut self) -> io::Result<()> {
        self.flush()?;
        ignore_stream(self.kind, self.file.sync_all())
    }

    /// Passes everything to the kernel, releases blocks reserved ahead, and closes the stream.
    /// The data is durable only after a sync.
    ///
    /// # Errors
    /// Deferred ones. The data of the failed write is then tried again as the writer is dropped, without
    /// a report, and may be lost: to be sure, call [`flush`](Write::flush) before, until it succeeds.
    /// And those of `close(2)`, by which some filesystems (NFS, FUSE) tell of data that they have lost.
    pub fn finish(mut self) -> io::Result<Stats> {
        self.flush()?;
        self.finished = true;
        self.leave()?;
        let stats = self.stats();
        let direct = self.shared.lock().back.direct.clone();
        let file = self.file.clone();
        drop(self);
        // Nobody else has them any more.
        let files = [direct.and_then(Arc::into_inner), Arc::into_inner(file)];
        let closed = files.map(|file| file.map_or(Ok(()), sys::close));
        closed.into_iter().collect::<io::Result<()>>()?;
        Ok(stats)
    }

    /// Cuts or extends the file to `size` bytes; an extension reads as zeros. The position stays.
    ///
    /// # Errors
    /// Deferred ones, and those of `ftruncate(2)`.
    pub fn set_len(&mut self, size: u64) -> io::Result<()> {
        self.flush()?;
        let shared = &*self.shared;
        shared
            .inode
            .write_overlapping(Some(&**shared), 0, u64::MAX)?;
        let mut core = shared.lock();
        let before = self.file.metadata()?.len();
        self.file.set_len(size)?;
        core.size = size;
        // Blocks reserved beyond the end go when a file is cut, and stay when it is extended.
        if size <= before {
            shared.inode.reserved_to.store(0, Ordering::Relaxed);
        }
        shared.inode.written();
        Ok(())
    }

    /// Takes the memory that data waits in now. Without this call the first write does it.
    pub fn prepare(&mut self) {
        if self.renew_after_fork().is_err() {
            // The next call meets that too, and returns it.
            return;
        }
        let mut core = self.shared.lock();
        if self.options.durability == Durability::Process && core.back.is_direct() {
            core.back.ensure_memory();
        }
    }

    /// The position of the next `write`, in bytes from the start of the file; of a pipe or the like, how many
    /// bytes were written.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// What the stream has done so far.
    pub fn stats(&self) -> Stats {
        if self.generation != fork::generation() {
            return Stats::default();
        }
        self.shared.lock().back.stats()
    }

    /// The file. Between flushes its offset and contents lag behind the stream.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// For a handler of a signal that ends the process: writes, through the page cache, everything that
    /// the kernel does not have yet, requests in flight included. Allocates nothing. Returns
    /// `None` if another thread is working on the stream.
    ///
    /// # Errors
    /// Those of `pwrite(2)`.
    #[doc(hidden)]
    pub fn rescue(&self) -> Option<io::Result<()>> {
        self.rescue_and(|_| {})
    }

    /// As [`rescue`](Writer::rescue), for a stream that is not used again: after this it holds nothing, so nobody
    /// writes its data a second time, over what others have written since. After an error, too.
    ///
    /// # Errors
    /// Those of `pwrite(2)`.
    #[doc(hidden)]
    pub fn rescue_for_good(&self) -> Option<io::Result<()>> {
        self.rescue_and(|core| {
            core.let_go();
            self.shared.note(core);
        })
    }

    fn rescue_and(&self, then: impl FnOnce(&mut Core)) -> Option<io::Result<()>> {
        if self.generation != fork::generation() {
            return Some(Ok(()));
        }
        let mut core = match self.shared.core.try_lock() {
            Ok(core) => core,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        let result = core.write_held();
        then(&mut core);
        Some(result)
    }

    /// After a fork, gives the child a stream of its own at the same position. The parent has
    /// passed everything to the kernel before the fork. Each call begins with this, those on pipes as
    /// well: the parent's locks may be held by its keeper thread, which the child does not have.
    fn renew_after_fork(&mut self) -> io::Result<()> {
        if self.generation == fork::generation() {
            return Ok(());
        }
        let flags = sys::flags(self.file.as_fd())?;
        let facts = FileFacts::of(&self.file)?;
        let inherited = self.leave_to_parent();
        let new = Shared::new(
            self.file.clone(),
            inherited,
            flags,
            facts,
            &mut self.options,
            self.position,
        );
        std::mem::forget(std::mem::replace(&mut *self.shared, new));
        self.generation = fork::generation();
        Ok(())
    }

    /// One call at a pipe or the like: its parts are one message of a socket, and nothing of another process's
    /// comes between those of a short one.
    fn pass(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.renew_after_fork()?;
        let n = sys::write(self.file.as_fd(), parts)?;
        self.position += n as u64;
        let mut core = self.shared.lock();
        core.back.stats.bytes += n as u64;
        core.back.stats.buffered_bytes += n as u64;
        core.back.stats.requests += 1;
        Ok(n)
    }

    /// In a child: makes the descriptors this process's own, and returns that for direct I/O. Nothing else of
    /// `shared` may be touched or dropped: the threads, memory and locks are the parent's.
    fn leave_to_parent(&mut self) -> Option<Arc<File>> {
        self.file = fork::adopt(&self.file);
        self.shared.ring.close_in_child();
        let direct = self.shared.direct.as_ref();
        direct.and_then(|direct| fork::adopt_unknown(direct, &self.file))
    }

    /// Removes the stream from the table. The last writer of the file also frees reserved blocks.
    fn leave(&self) -> io::Result<()> {
        let inode = &self.shared.inode;
        inode.remove(&**self.shared, || {
            let reserved_to = inode.reserved_to.swap(0, Ordering::Relaxed);
            let size = match reserved_to {
                0 => return Ok(()),
                _ => self.file.metadata()?.len(),
            };
            match reserved_to > size {
                true => self.file.set_len(size),
                false => Ok(()),
            }
        })
    }

    fn keep_offset(&self) -> io::Result<()> {
        match self.kind {
            FileKind::Stream => Ok(()),
            _ => sys::set_offset(self.file.as_fd(), self.position),
        }
    }
}

impl Write for Writer {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        if self.kind == FileKind::Stream {
            return self.pass(&[IoSlice::new(data)]);
        }
        let n = self.write_at(data, self.position)?;
        self.position += n as u64;
        Ok(n)
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        if self.kind == FileKind::Stream {
            return self.pass(parts);
        }
        let mut total = 0;
        for part in parts {
            match self.write(part) {
                Ok(n) => {
                    total += n;
                    if n < part.len() {
                        break;
                    }
                }
                Err(error) if total == 0 => return Err(error),
                Err(error) => {
                    // A part was taken, so this call succeeds and the next one returns the error.
                    self.shared.lock().deferred.get_or_insert(error);
                    break;
                }
            }
        }
        Ok(total)
    }

    fn flush(&mut self) -> io::Result<()> {
        // Also for a pipe, which has nothing to flush: `finish` is next.
        self.renew_after_fork()?;
        if self.kind == FileKind::Stream {
            return Ok(());
        }
        let mut core = self.shared.lock();
        let result = core.push();
        self.shared.publish(&mut core);
        drop(core);
        result?;
        self.keep_offset()
    }
}

impl Seek for Writer {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        if self.kind == FileKind::Stream {
            return Err(io::Error::from_raw_os_error(libc::ESPIPE));
        }
        self.renew_after_fork()?;
        self.position = backing::seek(&self.file, to, self.position, &self.shared.inode, || {
            Ok(match self.kind {
                FileKind::Block => self.shared.lock().back.facts.size,
                _ => self.file.metadata()?.len(),
            })
        })?;
        Ok(self.position)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if self.generation != fork::generation() {
            drop(self.leave_to_parent());
            return;
        }
        if !self.finished {
            let mut core = self.shared.lock();
            // No caller gets an error here (`finish` returns it), but an old error must not prevent
            // the rest from being written.
            if core.hand_over().is_err() && core.hand_over().is_err() && self.position == core.end {
                // Whoever has the descriptor goes on behind what was written, without a gap.
                core.settle();
                self.position = core.written_to();
            }
            drop(core);
            let _ = self.leave();
        }
        let _ = self.keep_offset();
        // The keeper or another stream may hold a reference for a moment. The descriptors have to
        // be closed when this returns: a later close would drop the record locks that the process
        // has taken on the file meanwhile, and until then the filesystem cannot be unmounted. The
        // holder may have a lower priority than this thread, so this thread sleeps. One step takes
        // the last reference: after a look at the count the keeper could still take another.
        // SAFETY: nothing uses the field after this.
        let mut shared = unsafe { ManuallyDrop::take(&mut self.shared) };
        while let Err(held) = Arc::try_unwrap(shared) {
            shared = held;
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}

/// Where a write of so many bytes ends.
fn end_of(offset: u64, len: usize) -> io::Result<u64> {
    let end = offset.saturating_add(len as u64);
    match i64::try_from(end) {
        Ok(_) => Ok(end),
        Err(_) => Err(invalid("the offset is beyond what a file can have")),
    }
}

fn invalid(message: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

/// Pipes and terminals cannot be synced, and have nothing to sync.
fn ignore_stream(kind: FileKind, result: io::Result<()>) -> io::Result<()> {
    match (kind, result) {
        (FileKind::Stream, Err(error)) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        (_, result) => result,
    }
}

/// The part of a writer that other threads access.
#[derive(Debug)]
struct Shared {
    core: Mutex<Core>,
    inode: Arc<Inode>,
    /// `None` if nothing has to be sent before the caller says so.
    linger: Option<Duration>,
    /// How long the keeper may sleep while this stream holds data.
    keeper_sleeps: u64,
    /// What a child has to close, which cannot take the lock.
    direct: Option<Arc<File>>,
    ring: RingNumber,
    /// What a handler needs that has interrupted a copy to this stream, and cannot take the lock.
    copying: Arc<Copying>,
    /// The range of bytes that the kernel does not have yet, readable without the lock.
    held_from: AtomicU64,
    held_to: AtomicU64,
}

impl Shared {
    fn new(
        file: Arc<File>,
        inherited: Option<Arc<File>>,
        flags: i32,
        facts: FileFacts,
        options: &mut OpenOptions,
        position: u64,
    ) -> Arc<Shared> {
        if options.linger.is_some()
            && options.durability == Durability::Process
            && facts.kind != FileKind::Stream
            && !keeper::start()
        {
            options.durability = Durability::Safe;
        }
        let inode = Inode::of(facts.dev, facts.ino);
        let core = Core::new(
            file,
            inherited,
            flags,
            facts,
            options,
            position,
            inode.clone(),
        );
        let linger = options
            .linger
            .filter(|_| options.durability == Durability::Process);
        let shared = Arc::new(Shared {
            direct: core.back.direct.clone(),
            ring: core.back.ring.clone(),
            copying: core.copying.clone(),
            core: Mutex::new(core),
            inode,
            linger,
            keeper_sleeps: linger.map_or(u64::MAX, keeper::sleep_of),
            held_from: AtomicU64::new(0),
            held_to: AtomicU64::new(0),
        });
        let waiting: Weak<dyn Waiting> = Arc::downgrade(&shared) as _;
        shared.inode.add(waiting);
        shared
    }

    fn lock(&self) -> MutexGuard<'_, Core> {
        // After a panic under the lock, data may at worst be written twice.
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells others what the stream holds now.
    fn publish(&self, core: &mut Core) {
        self.note(core);
        // At every call, not only when the first data comes: the keeper may have ended, as it does not
        // stay for a stream that has an error to report. If it runs, this costs a few loads.
        let watched =
            core.freed >= core.end || self.linger.is_none() || keeper::wake(self.keeper_sleeps);
        if !watched && core.deferred.is_none() {
            // Without a keeper nothing may linger.
            if let Err(error) = core.hand_over() {
                core.deferred.get_or_insert(error);
            }
            self.note(core);
        }
    }

    fn note(&self, core: &Core) {
        let (from, to) = if core.freed < core.end {
            (core.freed, core.end)
        } else {
            (0, 0)
        };
        self.held_from.store(from, Ordering::Release);
        self.held_to.store(to, Ordering::Release);
    }
}

impl Waiting for Shared {
    fn holds(&self, from: u64, to: u64) -> bool {
        let (held_from, held_to) = (
            self.held_from.load(Ordering::Acquire),
            self.held_to.load(Ordering::Acquire),
        );
        held_to != 0 && held_from < to && from < held_to
    }

    fn pending_end(&self) -> u64 {
        self.held_to.load(Ordering::Acquire)
    }

    fn push_for_others(&self) -> io::Result<()> {
        if self.copying.is_interrupted() {
            // A handler that forks: this thread has the lock.
            return self.copying.rescue();
        }
        let mut core = self.lock();
        // What the caller has to be told keeps nothing from others that can be written by now.
        let known = core.deferred.take();
        let result = core.hand_over().map_err(|error| {
            let copy = match error.raw_os_error() {
                Some(code) => io::Error::from_raw_os_error(code),
                None => error.kind().into(),
            };
            core.deferred.get_or_insert(error);
            copy
        });
        if known.is_some() {
            core.deferred = known;
        }
        self.publish(&mut core);
        result
    }

    fn push_aged(&self) -> Option<Duration> {
        let half = self.linger? / 2;
        // A caller who waits for the device has the stream locked meanwhile.
        let mut core = match self.core.try_lock() {
            Ok(core) => core,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Some(half / IN_USE),
        };
        if core.freed >= core.end || core.deferred.is_some() {
            return None;
        }
        let left = half.saturating_sub(core.seen.elapsed());
        if !left.is_zero() {
            return Some(left);
        }
        let aged = core.issued < core.seen_end;
        if let Err(error) = core.send_ready(aged) {
            core.deferred.get_or_insert(error);
        }
        self.publish(&mut core);
        if core.issued < core.seen_end {
            return Some(DEVICE_WORKS);
        }
        // What is here now and at the next look has aged at least half the linger time, and at most all.
        core.seen_end = core.end;
        core.seen = Instant::now();
        Some(half)
    }
}

impl AsFd for Writer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Strategy;
    use std::io::Read;
    use std::os::fd::AsRawFd;

    use crate::common::{self, soon};
    use crate::learned::{BUFFERED, CHOICES};
    use crate::policy::Pilot;

    /// A direct descriptor that fails with EIO until it is replaced: memory at address zero.
    fn failing() -> File {
        let memory = File::options().write(true).open("/proc/self/mem").unwrap();
        let error = sys::pwrite(memory.as_fd(), b"x", 0, 0).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EIO));
        memory
    }

    /// One that refuses what is no number, with EINVAL.
    fn refusing() -> File {
        let score = File::options().write(true).open("/proc/self/oom_score_adj");
        let score = score.unwrap();
        let error = sys::pwrite(score.as_fd(), b"x", 0, 0).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
        score
    }

    /// One that has no room for anything, with ENOSPC.
    fn full() -> File {
        File::options().write(true).open("/dev/full").unwrap()
    }

    /// Makes a descriptor that fails work from now on.
    fn replace(failing: &File, working: &File) {
        // SAFETY: both descriptors are open; the number keeps its owner.
        assert!(unsafe { libc::dup2(working.as_raw_fd(), failing.as_raw_fd()) } >= 0);
    }

    #[test]
    fn the_end_counts_data_that_is_handed_over_while_it_is_looked_for() {
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = home.path().join("data");
        let mut options = OpenOptions::new();
        options.create(true).linger(None);
        let mut out = options.open_writer(&path).unwrap();
        out.write_all(&[1; 5000]).unwrap();
        let inode = out.shared.inode.clone();
        let end = backing::seek(&out.file.clone(), SeekFrom::End(0), 0, &inode, || {
            let size = out.file.metadata()?.len();
            // As the keeper may do at this moment.
            out.flush()?;
            Ok(size)
        });
        assert_eq!(end.unwrap(), 5000);
    }

    #[test]
    fn nobody_waits_for_a_slow_device_when_data_has_aged() {
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        let open = |name: &str, strategy| {
            let mut options = OpenOptions::new();
            let linger = Some(Duration::from_millis(20));
            options.create(true).strategy(strategy).linger(linger);
            options.open_writer(home.path().join(name)).unwrap()
        };
        // Not a whole granule at the end, which has to wait for what goes before.
        let data: Vec<u8> = (0..300_100u32).map(|i| (i / 7) as u8).collect();
        let mut out = open("data", Strategy::Direct);
        if !out.shared.lock().back.is_direct() {
            eprintln!("skipped: no direct I/O in /var/tmp");
            return;
        }
        let device = crate::engine::tests::device();
        // In calls that are too short to go without a copy, which is waited for.
        for part in data[..100_100].chunks(4096) {
            out.write_all(part).unwrap();
        }
        let sent = || match out.shared.core.try_lock() {
            Ok(core) => core.freed < core.issued,
            Err(_) => false,
        };
        soon("nothing is sent, or the caller has to wait", &sent);
        out.write_all(&data[100_100..]).unwrap();
        let mut other = open("other", Strategy::Buffered);
        other.write_all(b"aged").unwrap();
        let size = |name: &str| home.path().join(name).metadata().unwrap().len();
        soon("another stream has to wait", &|| size("other") == 4);
        assert_eq!(size("data"), 0);
        drop(device);
        soon("the rest is not sent", &|| {
            size("data") == data.len() as u64
        });
        out.finish().unwrap();
        assert!(std::fs::read(home.path().join("data")).unwrap() == data);
    }

    #[test]
    fn no_stream_waits_for_the_caller_of_another() {
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        let size = |name: &str| home.path().join(name).metadata().unwrap().len();
        let mut options = OpenOptions::new();
        options.create(true).linger(Some(Duration::from_millis(20)));
        let mut other = options.open_writer(home.path().join("other")).unwrap();
        options.strategy(Strategy::Direct);
        let mut out = options.open_writer(home.path().join("data")).unwrap();
        if !out.shared.lock().back.is_direct() {
            eprintln!("skipped: no direct I/O in /var/tmp");
            return;
        }
        let (length, part) = (12 << 20, [7; 4096]);
        std::thread::scope(|scope| {
            let device = crate::engine::tests::device();
            let shared = (*out.shared).clone();
            scope.spawn(|| (0..length / part.len()).for_each(|_| out.write_all(&part).unwrap()));
            // The caller waits when the memory is full, with the stream locked.
            let full = Instant::now() + Duration::from_millis(500);
            let waits = || Instant::now() > full && shared.core.try_lock().is_err();
            soon("the caller does not wait", &waits);
            drop(shared);
            other.write_all(b"aged").unwrap();
            soon("another stream has to wait", &|| size("other") == 4);
            drop(device);
        });
        out.finish().unwrap();
        assert_eq!(size("data"), length as u64);
    }

    #[test]
    fn what_is_in_flight_when_direct_requests_are_given_up_is_looked_after() {
        const LEN: u64 = 1 << 20;
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        // With all of it in flight, and with a rest that goes through the page cache.
        for rest in [0, 100] {
            let mut options = OpenOptions::new();
            options.create(true).linger(Some(Duration::from_millis(20)));
            let path = |name: &str| home.path().join(format!("{name}-{rest}"));
            let mut other = options.open_writer(path("other")).unwrap();
            options
                .strategy(Strategy::Direct)
                .engine(crate::Engine::Threads);
            let mut out = options.open_writer(path("data")).unwrap();
            let direct = out.shared.lock().back.direct.replace(Arc::new(refusing()));
            if direct.is_none() {
                eprintln!("skipped: no direct I/O in /var/tmp");
                return;
            }
            let size = |name: &str| path(name).metadata().unwrap().len();
            let device = crate::engine::tests::device();
            // In calls that are too short to go without a copy.
            let data = vec![7; (LEN + rest) as usize];
            for part in data.chunks(4096) {
                out.write_all(part).unwrap();
            }
            {
                let mut core = out.shared.lock();
                assert!(core.freed == 0 && core.in_flight());
                // As when the request before was found to be refused, or in the page cache.
                core.back.pilot.forbid(Strategy::Direct);
            }
            std::thread::sleep(Duration::from_millis(100));
            other.write_all(b"aged").unwrap();
            soon("another stream has to wait", &|| size("other") == 4);
            drop(device);
            soon("it is not sent again", &|| size("data") == LEN + rest);
            out.finish().unwrap();
            assert!(std::fs::read(path("data")).unwrap() == data);
        }
    }

    #[test]
    fn aged_data_does_not_wait_for_the_writeback_of_what_goes_before() {
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        let size = |name: &str| home.path().join(name).metadata().unwrap().len();
        let mut options = OpenOptions::new();
        options.create(true).linger(Some(Duration::from_millis(20)));
        let mut other = options.open_writer(home.path().join("other")).unwrap();
        // As for a stream that has learned that the page cache is cheapest.
        options.only = CHOICES.iter().position(|&c| c == Strategy::Buffered);
        let mut out = options.open_writer(home.path().join("data")).unwrap();
        let window = vec![7u8; crate::requests::WRITE_BEHIND as usize];
        out.write_all(&[7; 100]).unwrap();
        out.flush().unwrap();
        out.write_all(&window).unwrap();
        out.write_all(&window[50..]).unwrap();
        out.flush().unwrap();
        let device = crate::engine::tests::device();
        // The second window is full, but no chunk, which the caller would send.
        out.write_all(&[7; 100]).unwrap();
        soon("it is not sent", &|| {
            size("data") == 2 * window.len() as u64 + 150
        });
        other.write_all(b"aged").unwrap();
        soon("another stream has to wait", &|| size("other") == 4);
        drop(device);
        out.finish().unwrap();
    }

    #[test]
    fn a_reader_sees_a_write_that_was_under_way_while_it_read_ahead() {
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = home.path().join("data");
        let mut options = OpenOptions::new();
        options.create(true).strategy(Strategy::Direct).linger(None);
        let mut out = options.open_writer(&path).unwrap();
        out.write_all(&vec![1; 8 << 20]).unwrap();
        out.sync_all().unwrap();
        let mut input = options.open_reader(&path).unwrap();
        let mut got = vec![0; 64 << 10];
        // A write at 4 MiB, in another thread, that has not returned yet.
        const AT: u64 = 4 << 20;
        let mut core = out.shared.lock();
        assert_eq!(core.write(&vec![2; 512 << 10], AT).unwrap(), 512 << 10);
        for _ in 0..AT / got.len() as u64 {
            input.read_exact(&mut got).unwrap();
        }
        // It returns.
        out.shared.publish(&mut core);
        drop(core);
        input.read_exact(&mut got).unwrap();
        assert!(got.iter().all(|&byte| byte == 2));
    }

    #[test]
    fn a_device_error_is_reported_once_and_the_data_kept_for_another_try() {
        for engine in [
            crate::Engine::Uring,
            crate::Engine::Threads,
            crate::Engine::Inline,
        ] {
            let home = tempfile::tempdir_in("/var/tmp").unwrap();
            let path = home.path().join("data");
            let mut options = OpenOptions::new();
            options
                .create(true)
                .engine(engine)
                .strategy(Strategy::Direct)
                .linger(None);
            let mut out = options.open_writer(&path).unwrap();
            let Some(working) = out.shared.lock().back.direct.replace(Arc::new(failing())) else {
                eprintln!("skipped: no direct I/O in /var/tmp");
                return;
            };
            let data: Vec<u8> = (0..6u32 << 20).map(|i| (i / 7) as u8).collect();
            let mut taken = 0;
            let error = loop {
                match out.write(&data[taken..(taken + 5000).min(data.len())]) {
                    Ok(0) => break out.flush().unwrap_err(),
                    Ok(n) => taken += n,
                    Err(error) => break error,
                }
            };
            assert_eq!(error.raw_os_error(), Some(libc::EIO), "{engine:?}");
            assert_eq!(std::fs::metadata(&path).unwrap().len(), 0);
            // Still broken: every further try is a failure of its own.
            assert_eq!(out.flush().unwrap_err().raw_os_error(), Some(libc::EIO));
            replace(&out.shared.lock().back.direct.clone().unwrap(), &working);
            out.flush().unwrap();
            out.write_all(&data[taken..]).unwrap();
            assert!(out.finish().unwrap().direct_bytes > 0);
            assert!(std::fs::read(&path).unwrap() == data, "{engine:?}");
        }
    }

    #[test]
    fn of_a_request_without_room_what_fits_is_written() {
        const LIMIT: u64 = (1 << 20) + 5000;
        let Some(home) = common::job() else {
            let home = tempfile::tempdir_in("/var/tmp").unwrap();
            // The limit is the whole process's.
            let test = "writer::tests::of_a_request_without_room_what_fits_is_written";
            let status = common::child(test, home.path().to_str().unwrap()).status();
            assert!(status.unwrap().success());
            return;
        };
        let data: Vec<u8> = (0..6u32 << 20).map(|i| (i / 7) as u8 | 1).collect();
        for engine in [
            crate::Engine::Auto,
            crate::Engine::Uring,
            crate::Engine::Inline,
        ] {
            for (durability, call, there) in [
                (Durability::Process, 5000, 0),
                // Several requests at a time.
                (Durability::Process, 5000, data.len()),
                // Without a copy.
                (Durability::Process, 4 << 20, 0),
                // Not aligned for that.
                (Durability::Safe, 300_000, 0),
            ] {
                let case = format!("{engine:?}, {durability:?}, {call} over {there}");
                let path = Path::new(&home).join(&case);
                std::fs::write(&path, vec![0; there]).unwrap();
                let mut options = OpenOptions::new();
                options
                    .strategy(Strategy::Direct)
                    .engine(engine)
                    .durability(durability)
                    .linger(None);
                let mut out = options.open_writer(&path).unwrap();
                // No request has room in full; the page cache takes what is below the limit.
                let direct = out.shared.lock().back.direct.replace(Arc::new(full()));
                if direct.is_none() {
                    eprintln!("skipped: no direct I/O in /var/tmp");
                    return;
                }
                common::limit_files(LIMIT);
                let mut taken = 0;
                let error = loop {
                    match out.write(&data[taken..(taken + call).min(data.len())]) {
                        Ok(0) => break out.flush().unwrap_err(),
                        Ok(n) => taken += n,
                        Err(error) => break error,
                    }
                };
                // What is told is why the request failed. With `Safe` the last call is too short for one.
                let (kind, kept) = match durability {
                    Durability::Process => (io::ErrorKind::StorageFull, true),
                    _ => (io::ErrorKind::FileTooLarge, false),
                };
                assert_eq!(error.kind(), kind, "{case}");
                assert!(kept || taken as u64 == LIMIT, "{case}");
                let got = std::fs::read(&path).unwrap();
                let (fits, rest) = got.split_at(got.len().min(LIMIT as usize));
                assert_eq!(fits.len() as u64, LIMIT, "{case}");
                assert!(*fits == data[..fits.len()], "{case}");
                assert!(*rest == vec![0; there.saturating_sub(fits.len())], "{case}");
                // Still no room: every further try is a failure of its own.
                assert_eq!(out.flush().is_err(), taken as u64 > LIMIT, "{case}");
                common::limit_files(libc::RLIM_INFINITY);
                out.write_all(&data[taken..]).unwrap();
                assert_eq!(out.finish().unwrap().bytes, data.len() as u64, "{case}");
                assert!(std::fs::read(&path).unwrap() == data, "{case}");
            }
        }
    }

    /// Takes all the room of a filesystem.
    fn fill(ballast: &Path) {
        let mut file = File::create(ballast).unwrap();
        let full = loop {
            if let Err(error) = file.write_all(&[1; 4096]) {
                break error;
            }
        };
        assert_eq!(full.kind(), io::ErrorKind::StorageFull);
    }

    #[test]
    fn a_child_waits_for_no_lock_of_its_parent() {
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        let mut options = OpenOptions::new();
        options.create(true).linger(None);
        type Call = fn(&mut Writer);
        let calls: [(&str, Call); 3] = [
            ("write", |out| out.write_all(b"x").unwrap()),
            ("flush", |out| out.flush().unwrap()),
            ("prepare", Writer::prepare),
        ];
        for pipe in [true, false] {
            for (what, call) in calls {
                let (input, output) = io::pipe().unwrap();
                let mut out = match pipe {
                    true => options.writer_from(File::from(std::os::fd::OwnedFd::from(output))),
                    false => options.open_writer(home.path().join(what)),
                }
                .unwrap();
                // As in a child whose parent's keeper was looking at the stream. A real one could not
                // be told from a test that is only slow.
                let parents = out.shared.clone();
                let _held = parents.lock();
                out.generation -= 1;
                let (done, wait) = std::sync::mpsc::channel();
                std::thread::spawn(move || {
                    call(&mut out);
                    out.finish().unwrap();
                    let _ = done.send(());
                });
                let result = wait.recv_timeout(Duration::from_secs(60));
                assert!(result.is_ok(), "{what}, pipe: {pipe}");
                drop(input);
            }
        }
    }

    #[test]
    fn a_failed_writeback_is_reported_once() {
        // A disk that fails where it cannot grow.
        let Some(below) = common::tmpfs("48m") else {
            return;
        };
        let arguments = ["-q", "-b", "4096", "-O", "^has_journal"];
        let directory = &below.directory;
        let Some(disk) =
            common::image_in(directory, "ext4", 160, "mkfs.ext4", &arguments, "e2fsprogs")
        else {
            return;
        };
        let ballast = directory.join("ballast");
        let mut options = OpenOptions::new();
        // As for a stream that has learned that the page cache is cheapest.
        options.create(true).only = CHOICES.iter().position(|&c| c == Strategy::Buffered);
        let window = vec![7u8; crate::requests::WRITE_BEHIND as usize];
        // With the second window the first is waited for, and so it is at the end of a slice.
        let wait = |out: &mut Writer| out.write_all(&window).unwrap();
        type Then<'a> = &'a dyn Fn(&mut Writer) -> io::Result<()>;
        let cases: [(&str, Then); 4] = [
            ("sync", &|out| {
                wait(out);
                out.sync_data()
            }),
            ("flush", &|out| {
                wait(out);
                out.flush()
            }),
            ("write", &|out| {
                wait(out);
                out.write_all(b"more")
            }),
            ("slice", &|out| {
                out.shared.lock().drain_slice().unwrap();
                out.sync_data()
            }),
        ];
        for (what, then) in cases {
            let path = disk.directory.join(what);
            let mut out = options.open_writer(&path).unwrap();
            out.sync_all().unwrap();
            // Another open file description gets the error for itself.
            let other = File::open(&path).unwrap();
            fill(&ballast);
            out.write_all(&window).unwrap();
            other.sync_all().expect_err("a full disk");
            common::remove_with_its_room(&ballast);
            let error = then(&mut out).expect_err(what);
            assert!(
                matches!(error.raw_os_error(), Some(libc::EIO | libc::ENOSPC)),
                "{what}: {error}"
            );
            out.write_all(b"more").unwrap();
            out.sync_all().unwrap();
            out.finish().unwrap();
            std::fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn a_trial_through_the_page_cache_is_on_the_device_at_its_first_look() {
        const LOOK: usize = 2 << 20;
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        let mut options = OpenOptions::new();
        options.create(true).linger(None);
        // A long call is carried out so far at first.
        for (dev, call) in [(3 << 40, 1 << 20), (4 << 40, 16 << 20)] {
            let path = home.path().join(format!("data-{call}"));
            let mut out = options.open_writer(&path).unwrap();
            out.shared.lock().back.pilot = Pilot::in_trial(dev, BUFFERED);
            let data = vec![7u8; call];
            let mut written = 0;
            while written < LOOK {
                written += out.write(&data).unwrap();
            }
            assert_eq!(written, LOOK, "in calls of {call}");
            let Ok([cached, dirty, under_way, ..]) = sys::cachestat(out.as_fd(), 0, LOOK as u64)
            else {
                eprintln!("skipped: the kernel does not tell what its page cache holds");
                return;
            };
            assert_eq!([cached, dirty, under_way], [LOOK as u64, 0, 0]);
        }
    }

    #[test]
    fn a_trial_through_the_page_cache_is_on_the_device_also_if_nothing_waits() {
        const BEFORE: usize = 256 << 10;
        const LOOK: usize = 2 << 20;
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        let mut options = OpenOptions::new();
        options
            .create(true)
            .linger(None)
            .durability(Durability::Safe);
        let mut out = options.open_writer(home.path().join("data")).unwrap();
        let data = vec![7u8; LOOK];
        // Not the beginning of the file.
        out.write_all(&data[..BEFORE]).unwrap();
        out.shared.lock().back.pilot = Pilot::in_trial(5 << 40, BUFFERED);
        let mut written = 0;
        while written < LOOK {
            written += out.write(&data[written..]).unwrap();
        }
        let of_trial = sys::cachestat(out.as_fd(), BEFORE as u64, LOOK as u64);
        let Ok([cached, dirty, under_way, ..]) = of_trial else {
            return eprintln!("skipped: the kernel does not tell what its page cache holds");
        };
        assert_eq!([cached, dirty, under_way], [LOOK as u64, 0, 0]);
    }

    #[test]
    fn what_was_truncated_meanwhile_grows_by_one_request_after_the_other() {
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        let mut options = OpenOptions::new();
        options.create(true).linger(None).strategy(Strategy::Direct);
        let mut out = options.open_writer(home.path().join("data")).unwrap();
        let memory = vec![7u8; (8 << 20) + 4096];
        let data = &memory[memory.as_ptr().align_offset(4096)..][..8 << 20];
        out.write_all(data).unwrap();
        out.flush().unwrap();
        if out.stats().zero_copy_bytes == 0 {
            return eprintln!("skipped: no direct I/O here");
        }
        out.file().set_len(0).unwrap();
        out.rewind().unwrap();
        let before = out.stats().requests;
        assert_eq!(out.write(&data[..4 << 20]).unwrap(), 4 << 20);
        assert_eq!(out.stats().requests, before + 1);
    }

    #[test]
    fn what_was_met_before_is_told_before_data_is_fetched() {
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        for durability in [Durability::Process, Durability::Safe, Durability::Sync] {
            let path = home.path().join(format!("{durability:?}"));
            let mut options = OpenOptions::new();
            options.create(true).linger(None).durability(durability);
            let mut out = options.open_writer(&path).unwrap();
            out.shared.lock().deferred = Some(io::Error::from_raw_os_error(libc::EIO));
            let result = out.write_with(10, |_| panic!("it would be lost"));
            assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::EIO));
            let fill = |room: &mut [u8]| {
                room[..4].copy_from_slice(b"data");
                Ok(4)
            };
            assert_eq!(out.write_with(10, fill).unwrap(), 4);
            out.finish().unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), b"data");
        }
    }

    #[test]
    fn a_failure_of_earlier_data_leaves_the_position_where_it_is() {
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = home.path().join("data");
        let mut options = OpenOptions::new();
        options
            .create(true)
            .engine(crate::Engine::Threads)
            .strategy(Strategy::Direct)
            .linger(None);
        let mut out = options.open_writer(&path).unwrap();
        let Some(working) = out.shared.lock().back.direct.replace(Arc::new(failing())) else {
            eprintln!("skipped: no direct I/O in /var/tmp");
            return;
        };
        // Taken whole, unless the error is met before the last part of it.
        let taken = out.write(&[1; 256 << 10]).unwrap();
        const AT: u64 = 1 << 20;
        out.seek(SeekFrom::Start(AT)).unwrap();
        let memory = vec![2u8; (64 << 10) + 4096];
        let data = &memory[memory.as_ptr().align_offset(4096)..][..64 << 10];
        let error = out.write_uncopied(data).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EIO));
        assert_eq!(out.position(), AT);
        replace(&out.shared.lock().back.direct.clone().unwrap(), &working);
        assert!(out.write_uncopied(data).unwrap());
        assert_eq!(out.position(), AT + data.len() as u64);
        out.finish().unwrap();
        let got = std::fs::read(&path).unwrap();
        assert!(got[..taken] == vec![1; taken] && got[AT as usize..] == *data);
    }

    #[test]
    fn a_request_without_a_copy_that_a_limit_cuts_is_counted() {
        const LIMIT: u64 = (1 << 20) + 5000;
        let Some(home) = common::job() else {
            let home = tempfile::tempdir_in("/var/tmp").unwrap();
            // The limit is the whole process's.
            let test = "writer::tests::a_request_without_a_copy_that_a_limit_cuts_is_counted";
            let status = common::child(test, home.path().to_str().unwrap()).status();
            assert!(status.unwrap().success());
            return;
        };
        let path = Path::new(&home).join("data");
        let mut options = OpenOptions::new();
        options.create(true).strategy(Strategy::Direct).linger(None);
        let mut out = options.open_writer(&path).unwrap();
        // As btrfs, which carries out such a request through the page cache.
        let file = File::options().write(true).open(&path).unwrap();
        let direct = out.shared.lock().back.direct.replace(Arc::new(file));
        if direct.is_none() {
            eprintln!("skipped: no direct I/O in /var/tmp");
            return;
        }
        let memory: Vec<u8> = (0..(2 << 20) + 4096u32).map(|i| (i / 7) as u8).collect();
        let data = &memory[memory.as_ptr().align_offset(4096)..][..2 << 20];
        common::limit_files(LIMIT);
        let error = out.write_uncopied(data).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(out.position(), LIMIT);
        common::limit_files(libc::RLIM_INFINITY);
        out.write_all(&data[LIMIT as usize..]).unwrap();
        assert_eq!(out.finish().unwrap().bytes, data.len() as u64);
        assert!(std::fs::read(&path).unwrap() == data);
    }

    #[test]
    fn idle_data_leaves_also_after_an_error() {
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = home.path().join("data");
        let mut options = OpenOptions::new();
        options.create(true).linger(Some(Duration::from_millis(10)));
        let mut out = options.open_writer(&path).unwrap();
        let working = {
            let mut core = out.shared.lock();
            std::mem::replace(&mut core.back.file, Arc::new(failing()))
        };
        out.write_all(&[1; 5000]).unwrap();
        // The keeper meets the error. After a while with nothing else to do it ends.
        while out.shared.lock().deferred.is_none() {
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::sleep(Duration::from_millis(1500));
        replace(&out.shared.lock().back.file.clone(), &working);
        let error = out.write(&[2; 5000]).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EIO));
        let begun = std::time::Instant::now();
        while std::fs::metadata(&path).unwrap().len() < 5000 {
            assert!(begun.elapsed() < Duration::from_secs(20), "nobody came");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(out.finish().unwrap().bytes, 5000);
        assert_eq!(std::fs::read(&path).unwrap(), [1; 5000]);
    }

    #[test]
    fn calls_shorter_than_a_granule_are_gathered() {
        // As on XFS with `largeio`, where the granule is the stripe.
        const GRANULE: usize = 1 << 20;
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        let memory = vec![7u8; GRANULE + 4096];
        let aligned = &memory[memory.as_ptr().align_offset(4096)..][..GRANULE];
        for durability in [Durability::Process, Durability::Safe] {
            for len in [64 << 10, 256 << 10, GRANULE] {
                let path = home.path().join(format!("{durability:?} {len}"));
                let mut options = OpenOptions::new();
                options.create(true).durability(durability);
                let mut out = options.open_writer(&path).unwrap();
                out.shared.lock().back.facts.granule = GRANULE as u64;
                for _ in 0..3 {
                    assert_eq!(out.write(&aligned[..len]).unwrap(), len);
                }
                out.finish().unwrap();
                assert!(std::fs::read(&path).unwrap() == vec![7; 3 * len]);
            }
        }
    }

    /// A file that its streams see as an array of bytes.
    struct Modelled {
        rng: fastrand::Rng,
        options: OpenOptions,
        /// Nothing is read ahead with a short linger time.
        reading: OpenOptions,
        path: std::path::PathBuf,
        bytes: Vec<u8>,
        /// Each with its direct descriptor, if that fails now.
        writers: Vec<(Writer, Option<Arc<File>>)>,
        readers: Vec<crate::Reader>,
        memory: Vec<u8>,
        last: u64,
        done: crate::Stats,
    }

    impl Modelled {
        const MOST: u64 = 12 << 20;

        fn new(path: &Path, options: &OpenOptions, seed: u64) -> Modelled {
            Pilot::by_chance(Some(seed));
            let open = |_| (options.open_writer(path).unwrap(), None);
            let mut reading = options.clone();
            reading.linger(None);
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut memory = vec![0; 8 << 20];
            rng.fill(&mut memory);
            // Nowhere a number, which `refusing` would take.
            memory.iter_mut().for_each(|byte| *byte |= 0x80);
            Modelled {
                writers: (0..2).map(open).collect(),
                readers: (0..2).map(|_| reading.open_reader(path).unwrap()).collect(),
                rng,
                options: options.clone(),
                reading,
                path: path.to_owned(),
                bytes: Vec::new(),
                memory,
                last: 0,
                done: crate::Stats::default(),
            }
        }

        /// Lengths around everything that has a boundary; most suit reads and writes without a copy.
        fn length(&mut self) -> usize {
            let rng = &mut self.rng;
            let whole = [4 << 10, 64 << 10, 128 << 10, 256 << 10, 1 << 20, 2 << 20];
            let base = *rng.choice(&whole).unwrap();
            match rng.u8(..8) {
                0..=4 => base,
                5 => base + rng.usize(1..700),
                6 => base - rng.usize(1..700),
                _ => rng.usize(1..5000),
            }
        }

        fn offset(&mut self) -> u64 {
            let (rng, len) = (&mut self.rng, self.bytes.len() as u64);
            match rng.u8(..16) {
                0..=4 => self.last,
                5..=11 => self.last.next_multiple_of(4096),
                12 => self.last.saturating_sub(rng.u64(0..10_000)),
                13 => len,
                14 => rng.u64(0..=len) & !4095,
                _ => rng.u64(0..=len),
            }
        }

        /// The number of a stream: mostly that of the first.
        fn seldom(&mut self) -> usize {
            usize::from(self.rng.u8(..6) == 0)
        }

        /// Where memory of so many bytes lies: on a page, mostly.
        fn place(&mut self, len: usize) -> usize {
            let page = self.memory.as_ptr().align_offset(4096);
            let pages = (self.memory.len() - page - len) / 4096;
            let skew = usize::from(self.rng.u8(..6) == 0);
            page + self.rng.usize(..pages) * 4096 + skew * self.rng.usize(..2) * 511 + skew
        }

        /// From here on direct requests of a writer fail, are refused, or have no room.
        fn break_down(&mut self) {
            let w = self.seldom();
            let (out, working) = &mut self.writers[w];
            if self.rng.bool() {
                out.flush().unwrap();
            }
            let mut core = out.shared.lock();
            let ready = working.is_none() && core.back.ensure_memory() && !core.in_flight();
            if let Some(direct) = core.back.direct.clone().filter(|_| ready) {
                // The descriptor keeps its number, which the engine has. A ring keeps the file itself,
                // if it has one already: its requests go on to succeed.
                core.back.engine().unwrap().probe();
                *working = Some(Arc::new(direct.try_clone().unwrap()));
                let broken = match self.rng.u8(..4) {
                    0 => refusing(),
                    1 => full(),
                    _ => failing(),
                };
                replace(&direct, &broken);
            }
        }

        fn mend(&mut self) {
            for (out, working) in &mut self.writers {
                if let Some(working) = working.take() {
                    let direct = out.shared.lock().back.direct.clone().unwrap();
                    replace(&direct, &working);
                    // The first only reports what was met before.
                    let _ = out.flush();
                    out.flush().unwrap();
                }
            }
        }

        fn write(&mut self) {
            let w = self.seldom();
            let mut at = match self.rng.u8(..4) {
                // Where a reader has read ahead.
                0 => self.readers[0].position() + self.rng.u64(..64) * 4096,
                _ => self.offset(),
            };
            let len = self.length();
            let calls = self.rng.usize(1..6);
            for _ in 0..calls {
                if at + len as u64 > Self::MOST {
                    break;
                }
                let from = self.place(len);
                let mut done = 0;
                while done < len {
                    let how = self.rng.u8(..12);
                    let data = &self.memory[from + done..from + len];
                    let (out, _) = &mut self.writers[w];
                    out.seek(SeekFrom::Start(at)).unwrap();
                    let result = match how {
                        0 => out.write_with(data.len(), |room| {
                            let n = room.len().min(data.len());
                            room[..n].copy_from_slice(&data[..n]);
                            Ok(n)
                        }),
                        1 => out.write_uncopied(data).map(|all| match all {
                            true => data.len(),
                            false => 0,
                        }),
                        2 => out.write_at(data, at),
                        _ => out.write(data),
                    };
                    let n = match result {
                        Ok(n) => {
                            assert!(n > 0 || how == 1);
                            n
                        }
                        Err(error) => {
                            let code = error.raw_os_error();
                            // What has no room goes through the page cache, but for the caller's own memory.
                            let full = how == 1 && code == Some(libc::ENOSPC);
                            assert!(full || code == Some(libc::EIO), "{error}");
                            assert!(self.writers.iter().any(|(_, working)| working.is_some()));
                            assert_eq!(self.writers[w].0.position(), at);
                            if self.rng.u8(..3) == 0 {
                                self.mend();
                            }
                            continue;
                        }
                    };
                    let end = at as usize + n;
                    if self.bytes.len() < end {
                        self.bytes.resize(end, 0);
                    }
                    self.bytes[at as usize..end]
                        .copy_from_slice(&self.memory[from + done..from + done + n]);
                    (at, done) = (end as u64, done + n);
                }
            }
            self.last = at;
        }

        fn read(&mut self) {
            let (r, len) = (self.seldom(), self.length());
            let mut at = match self.rng.u8(..4) {
                0 => self.offset(),
                1 => self.readers[r].position().next_multiple_of(4096),
                _ => self.readers[r].position(),
            };
            self.readers[r].seek(SeekFrom::Start(at)).unwrap();
            for _ in 0..self.rng.usize(1..12) {
                let from = self.place(len);
                let want = self.bytes.get(at as usize..).unwrap_or(&[]);
                let want = &want[..want.len().min(len)];
                let n = match self.rng.u8(..8) {
                    0 => {
                        use std::io::BufRead;
                        let got = self.readers[r].fill_buf().unwrap();
                        let n = got.len().min(want.len());
                        assert!(n > 0 || want.is_empty(), "at {at}");
                        assert!(got[..n] == want[..n], "at {at}");
                        self.readers[r].consume(n);
                        n
                    }
                    _ => {
                        let got = &mut vec![0; self.memory.len()][from..from + len];
                        let n = self.readers[r].read(got).unwrap();
                        assert!(n == want.len(), "{n} at {at}");
                        assert!(got[..n] == *want, "{n} at {at}");
                        n
                    }
                };
                at += n as u64;
            }
        }

        fn step(&mut self) {
            let w = self.seldom();
            match self.rng.u8(..32) {
                0..=10 => self.write(),
                11..=13 => {
                    self.break_down();
                    (0..4).for_each(|_| self.write());
                    self.mend();
                }
                14..=25 => self.read(),
                26 => self.writers[w].0.flush().unwrap(),
                27 => self.writers[w].0.sync_data().unwrap(),
                28 => {
                    let len = self.offset();
                    self.writers[w].0.set_len(len).unwrap();
                    self.bytes.resize(len as usize, 0);
                }
                29 => {
                    let new = self.options.open_writer(&self.path).unwrap();
                    let (old, _) = std::mem::replace(&mut self.writers[w], (new, None));
                    self.count(&old.finish().unwrap());
                }
                30 => {
                    self.count(&self.readers[w].stats());
                    self.readers[w] = self.reading.open_reader(&self.path).unwrap();
                    if let Some(direct) = self.readers[w].direct().filter(|_| self.rng.bool()) {
                        // What cannot be read directly is read through the page cache.
                        replace(direct, &File::open("/proc/self/mem").unwrap());
                    }
                }
                _ => {
                    let end = self.writers[w].0.seek(SeekFrom::End(0)).unwrap();
                    assert_eq!(end, self.bytes.len() as u64);
                }
            }
        }

        fn count(&mut self, stats: &crate::Stats) {
            self.done.direct_bytes += stats.direct_bytes;
            self.done.zero_copy_bytes += stats.zero_copy_bytes;
        }

        fn end(mut self) -> crate::Stats {
            self.mend();
            for (out, _) in std::mem::take(&mut self.writers) {
                let stats = out.finish().unwrap();
                self.count(&stats);
            }
            let on_disk = std::fs::read(&self.path).unwrap();
            assert_eq!(on_disk.len(), self.bytes.len());
            let differs = on_disk.iter().zip(&self.bytes).position(|(a, b)| a != b);
            assert_eq!(differs, None);
            Pilot::by_chance(None);
            std::fs::remove_file(&self.path).unwrap();
            self.done
        }
    }

    #[test]
    fn streams_that_change_their_strategy_every_few_calls_lose_nothing() {
        let given = |name: &str, otherwise: u64| {
            let text = std::env::var(name).unwrap_or_default();
            text.parse().unwrap_or(otherwise)
        };
        let (first, count) = (given("PDIO_MODEL_FIRST", 0), given("PDIO_MODEL_SEEDS", 3));
        let below = std::env::var("PDIO_MODEL_IN").unwrap_or("/var/tmp".into());
        let home = tempfile::tempdir_in(below).unwrap();
        let engines = [
            crate::Engine::Auto,
            crate::Engine::UringFixed,
            crate::Engine::Threads,
            crate::Engine::Inline,
        ];
        let (mut copied, mut uncopied) = (0, 0);
        for seed in first..first + count {
            let chosen = seed as usize;
            let memory = [8 << 20, 1 << 20, 512 << 10][chosen / 4 % 3];
            let mut options = OpenOptions::new();
            options
                .create(true)
                .engine(engines[chosen % 4])
                .memory_limit(memory)
                .block_size(memory / 8)
                .linger(Some(Duration::from_millis(1)));
            if chosen % 5 == 4 {
                options.durability(Durability::Safe);
            }
            eprintln!("seed {seed}");
            let mut file = Modelled::new(&home.path().join("data"), &options, seed);
            (0..150).for_each(|_| file.step());
            let stats = file.end();
            copied += stats.direct_bytes.saturating_sub(stats.zero_copy_bytes);
            uncopied += stats.zero_copy_bytes;
        }
        if copied == 0 {
            eprintln!("skipped: no direct I/O in /var/tmp");
            return;
        }
        assert!(uncopied > 0, "nothing went without a copy");
    }

    #[test]
    fn older_data_that_could_not_be_written_does_not_replace_newer() {
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = home.path().join("data");
        let mut options = OpenOptions::new();
        options.create(true).strategy(Strategy::Direct).linger(None);
        let mut older = options.open_writer(&path).unwrap();
        let mut newer = options.open_writer(&path).unwrap();
        let Some(working) = older.shared.lock().back.direct.replace(Arc::new(failing())) else {
            eprintln!("skipped: no direct I/O in /var/tmp");
            return;
        };
        const LEN: usize = 256 << 10;
        older.write_all(&[1; LEN]).unwrap();
        // Behind it nothing is in the way.
        newer.seek(SeekFrom::Start(LEN as u64)).unwrap();
        newer.write_all(&[2; LEN]).unwrap();
        newer.rewind().unwrap();
        type Call = fn(&mut Writer) -> io::Result<()>;
        let calls: [Call; 5] = [
            |out| out.write(&[2; LEN]).map(drop),
            |out| out.write_at(&[2; LEN], 5).map(drop),
            |out| out.write_with(LEN, |_| panic!("has no room")).map(drop),
            |out| out.write_uncopied(&[2; LEN]).map(drop),
            |out| out.set_len(5),
        ];
        for call in calls {
            let error = call(&mut newer).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EIO));
            assert_eq!(newer.position(), 0);
        }
        replace(&older.shared.lock().back.direct.clone().unwrap(), &working);
        assert!(older.flush().is_err());
        newer.write_all(&[2; LEN]).unwrap();
        older.finish().unwrap();
        newer.finish().unwrap();
        assert!(std::fs::read(&path).unwrap() == [2; 2 * LEN]);
    }

    #[test]
    fn an_error_that_is_to_be_told_keeps_nothing_from_others() {
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = home.path().join("data");
        let mut options = OpenOptions::new();
        options.create(true).linger(None);
        let mut older = options.open_writer(&path).unwrap();
        let mut newer = options.open_writer(&path).unwrap();
        let mut input = options.open_reader(&path).unwrap();
        let working = {
            let mut core = older.shared.lock();
            std::mem::replace(&mut core.back.file, Arc::new(failing()))
        };
        let mut got = [0; 4];
        for (at, is_read) in [(0, true), (4, false)] {
            older.write_all(b"olds").unwrap();
            // Met on behalf of others, as by the keeper.
            older.shared.push_for_others().unwrap_err();
            let error = newer.write_at(b"new", at + 1).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EIO));
            let failing = older.shared.lock().back.file.clone();
            let broken = failing.try_clone().unwrap();
            replace(&failing, &working);
            let expected = if is_read { b"olds" } else { b"onew" };
            if !is_read {
                assert_eq!(newer.write_at(b"new", at + 1).unwrap(), 3);
            }
            assert_eq!(input.read_at(&mut got, at).unwrap(), 4);
            assert_eq!(&got, expected);
            let error = older.flush().unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EIO));
            older.flush().unwrap();
            replace(&failing, &broken);
        }
    }

    #[test]
    fn memory_that_no_device_may_have_is_copied() {
        const LEN: usize = 1 << 20;
        // As what drivers map, it can be read but not pinned.
        // SAFETY: no memory is involved.
        let fd = unsafe { libc::syscall(libc::SYS_memfd_secret, 0) } as i32;
        if fd < 0 {
            eprintln!("skipped: no secret memory");
            return;
        }
        // SAFETY: the descriptor was just opened and belongs to nobody else.
        let secret = unsafe { <File as std::os::fd::FromRawFd>::from_raw_fd(fd) };
        secret.set_len(LEN as u64).unwrap();
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a fresh mapping; the result is checked.
        let base =
            unsafe { libc::mmap(std::ptr::null_mut(), LEN, access, libc::MAP_SHARED, fd, 0) };
        if base == libc::MAP_FAILED {
            eprintln!("skipped: no memory that may be locked");
            return;
        }
        // SAFETY: mapped above, for as long as the process lives, and nobody else's.
        let data = unsafe { std::slice::from_raw_parts_mut(base.cast::<u8>(), LEN) };
        data.fill(7);
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = home.path().join("data");
        for durability in [Durability::Process, Durability::Safe] {
            let mut options = OpenOptions::new();
            options.create(true).truncate(true).durability(durability);
            let mut out = options.open_writer(&path).unwrap();
            // The second time it is there already.
            for _ in 0..2 {
                out.rewind().unwrap();
                for _ in 0..4 {
                    out.write_all(data).unwrap();
                }
            }
            out.finish().unwrap();
            assert!(std::fs::read(&path).unwrap() == vec![7; 4 * LEN]);
        }
    }

    #[test]
    fn who_ends_a_writer_closes_its_descriptors() {
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = home.path().join("data");
        let mut options = OpenOptions::new();
        options.create(true);
        // Hundreds of times, and on a busy machine as often as there is time for.
        let first = std::time::Instant::now();
        while first.elapsed() < Duration::from_secs(2) {
            let out = options.open_writer(&path).unwrap();
            let weak = Arc::downgrade(&out.shared);
            let begun = AtomicU64::new(0);
            std::thread::scope(|scope| {
                // As the keeper, but far more often.
                scope.spawn(|| {
                    while let Some(held) = weak.upgrade() {
                        begun.store(1, Ordering::Relaxed);
                        assert!(Arc::into_inner(held).is_none(), "the last");
                    }
                });
                while begun.load(Ordering::Relaxed) == 0 {
                    std::hint::spin_loop();
                }
                drop(out);
            });
        }
    }

    #[test]
    fn a_refused_direct_request_takes_the_page_cache_instead() {
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = home.path().join("data");
        let mut options = OpenOptions::new();
        options.create(true).strategy(Strategy::Direct);
        let mut out = options.open_writer(&path).unwrap();
        let direct = out.shared.lock().back.direct.replace(Arc::new(refusing()));
        if direct.is_none() {
            eprintln!("skipped: no direct I/O in /var/tmp");
            return;
        }
        let data = vec![7u8; 5 << 20];
        out.write_all(&data).unwrap();
        let stats = out.finish().unwrap();
        assert_eq!((stats.direct_bytes, stats.buffered_bytes), (0, 5 << 20));
        assert!(std::fs::read(&path).unwrap() == data);
    }
}
