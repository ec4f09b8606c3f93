// SPDX-License-Identifier: MIT OR Apache-2.0
//! The writing stream.
//!
//! Bytes are copied into a ring of memory and leave it as large direct requests. Only bytes that
//! the caller wrote are ever written: whole granules (see `FileFacts::granule`) go direct, what is
//! left at either end of a run goes through the page cache at its exact length. So the file never
//! has a padded size, and a neighbour's bytes in the same block are never rewritten from memory.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IoSlice, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use crate::align::{FileFacts, FileKind};
use crate::engine::{Completion, Direction, Engine, Request};
use crate::memory::{Region, MIN_REGION};
use crate::options::{Durability, OpenOptions, Strategy};
use crate::policy::{Key, Operation, Pattern, Pilot, MEDIUM_CALL};
use crate::registry::{self, Inode};
use crate::stats::Stats;
use crate::sys;

/// A remainder below this is cheaper through the page cache than as a request of its own.
const SMALL: u64 = 64 << 10;
/// Bytes gathered before one buffered write: enough to make the system call cheap, little enough
/// to stay in the processor's cache between the two copies.
const BUFFERED_CHUNK: usize = 256 << 10;
/// Dirty page cache that a learned buffered stream leaves behind before it waits for the device.
const WRITE_BEHIND: u64 = 8 << 20;
/// Small writes in a row at unrelated offsets after which nothing is staged any more.
const SCATTERED: u32 = 4;

/// A stream into a file.
///
/// `write` returns once the bytes are as safe as the [`Durability`] mode promises. An error of a
/// write that had been deferred is returned by a later call on the same stream, once; the data is
/// kept and tried again by the calls after that one. [`flush`](Write::flush) hands everything to
/// the kernel: other programs then see it, a killed process does not lose it.
/// [`sync_data`](Writer::sync_data) makes it survive a power cut.
///
/// Dropping a writer flushes it and cannot report an error; use [`finish`](Writer::finish).
#[derive(Debug)]
pub struct Writer {
    shared: Arc<Shared>,
    file: Arc<File>,
    options: OpenOptions,
    position: u64,
    /// The fork generation the stream belongs to.
    generation: u64,
    kind: FileKind,
    finished: bool,
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

    pub(crate) fn new(file: File, options: &OpenOptions) -> io::Result<Writer> {
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
        let kind = facts.kind;
        let position = match kind {
            FileKind::Stream => 0,
            _ => sys::offset(file.as_fd())?,
        };
        let file = Arc::new(file);
        let shared = Shared::new(file.clone(), flags, facts, &mut options, position);
        Ok(Writer {
            shared,
            file,
            options,
            position,
            generation: registry::fork_generation(),
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
        self.own()?;
        if i64::try_from(offset).is_err() {
            return Err(invalid("the offset is beyond what a file can have"));
        }
        if data.is_empty() {
            return Ok(0);
        }
        let shared = &self.shared;
        shared.inode.settle(
            Some(shared),
            offset,
            offset.saturating_add(data.len() as u64),
        );
        let mut core = shared.lock();
        let result = core.write(data, offset);
        shared.publish(&core);
        result
    }

    /// Has `fill` put up to `most` bytes straight into the memory that requests are sent from, and
    /// writes them at the stream's position: what is received into it reaches the device without
    /// another copy. `fill` returns how much it put; the return value is the same, zero as well.
    ///
    /// The slice may be shorter than `most`; it contains old data. Where nothing can be staged
    /// (pipes, [`Durability::Safe`] and [`Durability::Sync`], scattered positions, no memory) it
    /// is memory of its own. `fill` must not wait for long, nor use other streams on the same
    /// file: meanwhile none of them gets at this one, and nothing idle is handed over.
    ///
    /// # Errors
    /// Before `fill` is called, deferred ones; those of `fill`; and where nothing can be staged
    /// those of the write, of which [`position`](Writer::position) tells how far it came.
    pub fn write_with(
        &mut self,
        most: usize,
        fill: impl FnOnce(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        if self.kind != FileKind::Stream && self.options.durability == Durability::Process {
            self.own()?;
            let (shared, offset) = (&self.shared, self.position);
            let end = offset.saturating_add(most as u64);
            if i64::try_from(end).is_err() {
                return Err(invalid("the offset is beyond what a file can have"));
            }
            shared.inode.settle(Some(shared), offset, end);
            let mut core = shared.lock();
            let result = core.room(most, offset).and_then(|room| match room {
                Some((at, len)) => core.append_with(at, len, fill).map(Ok),
                None => Ok(Err(fill)),
            });
            shared.publish(&core);
            drop(core);
            match result? {
                Ok(n) => {
                    self.position += n as u64;
                    return Ok(n);
                }
                Err(fill) => return self.write_bounced(most, fill),
            }
        }
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

    /// Hands everything to the kernel and makes the data durable (`fdatasync(2)`).
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

    /// Hands everything to the kernel, releases blocks reserved ahead, and closes the stream.
    /// Durable only after a sync.
    ///
    /// # Errors
    /// Deferred ones. The data of a failed write is given up then: to try again, call
    /// [`flush`](Write::flush) until it succeeds first.
    pub fn finish(mut self) -> io::Result<Stats> {
        self.flush()?;
        self.finished = true;
        self.leave()?;
        Ok(self.stats())
    }

    /// Cuts or extends the file to `size` bytes; an extension reads as zeros. The position stays.
    ///
    /// # Errors
    /// Deferred ones, and those of `ftruncate(2)`.
    pub fn set_len(&mut self, size: u64) -> io::Result<()> {
        self.flush()?;
        self.shared.inode.settle(Some(&self.shared), 0, u64::MAX);
        let mut core = self.shared.lock();
        self.file.set_len(size)?;
        core.size = size;
        self.shared.inode.reserved_to.store(0, Ordering::Relaxed);
        self.shared.inode.written();
        Ok(())
    }

    /// Takes memory and sets up the engine now, in this thread. Otherwise that happens when the
    /// first request is sent, perhaps in the thread that hands over what idles.
    pub fn prepare(&mut self) {
        let mut core = self.shared.lock();
        if self.options.durability == Durability::Process
            && core.is_direct()
            && core.ensure_memory()
        {
            core.ensure_engine();
        }
    }

    /// The position of the next `write`, in bytes from the start of the file.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// What the stream has done so far.
    pub fn stats(&self) -> Stats {
        if self.generation != registry::fork_generation() {
            return Stats::default();
        }
        self.shared.lock().stats()
    }

    /// The file. Its own offset and its contents lag behind the stream between flushes.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// For a handler of a signal that ends the process: writes what the kernel does not have yet
    /// through the page cache, what is on its way to the device as well. Allocates nothing. `None`
    /// if another thread is at work on the stream.
    ///
    /// # Errors
    /// Those of `pwrite(2)`.
    #[doc(hidden)]
    pub fn rescue(&self) -> Option<io::Result<()>> {
        if self.generation != registry::fork_generation() {
            return Some(Ok(()));
        }
        let core = match self.shared.core.try_lock() {
            Ok(core) => core,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(core.write_held())
    }

    /// After a fork, gives the child a stream of its own at the same position; the parent has
    /// handed everything over before the fork.
    fn own(&mut self) -> io::Result<()> {
        if self.generation == registry::fork_generation() {
            return Ok(());
        }
        let flags = sys::flags(self.file.as_fd())?;
        let facts = FileFacts::of(&self.file)?;
        let new = Shared::new(
            self.file.clone(),
            flags,
            facts,
            &mut self.options,
            self.position,
        );
        // The parent's threads, ring and locks are not here to be dropped.
        std::mem::forget(std::mem::replace(&mut self.shared, new));
        self.generation = registry::fork_generation();
        Ok(())
    }

    /// Gives up the place in the table, and as the last writer of the file what was reserved.
    fn leave(&self) -> io::Result<()> {
        let inode = &self.shared.inode;
        inode.remove(&self.shared, || {
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
            let n = sys::write(self.file.as_fd(), data)?;
            let mut core = self.shared.lock();
            core.stats.bytes += n as u64;
            core.stats.buffered_bytes += n as u64;
            core.stats.requests += 1;
            return Ok(n);
        }
        let n = self.write_at(data, self.position)?;
        self.position += n as u64;
        Ok(n)
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
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
                    // What was taken is taken; the error is for the next call.
                    self.shared.lock().deferred.get_or_insert(error);
                    break;
                }
            }
        }
        Ok(total)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.kind == FileKind::Stream {
            return Ok(());
        }
        self.own()?;
        let mut core = self.shared.lock();
        let result = core.push();
        self.shared.publish(&core);
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
        self.own()?;
        let target = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::Current(by) => self.position.checked_add_signed(by),
            SeekFrom::End(by) => {
                let size = match self.kind {
                    FileKind::Block => self.shared.lock().facts.size,
                    _ => self.file.metadata()?.len(),
                };
                size.max(self.shared.inode.pending_end())
                    .checked_add_signed(by)
            }
        };
        match target {
            Some(at) if i64::try_from(at).is_ok() => {
                self.position = at;
                Ok(at)
            }
            _ => Err(invalid(
                "seek to before the start or beyond the largest offset",
            )),
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if self.generation != registry::fork_generation() {
            // Only the descriptor is this process's; see `own`. One reference too many keeps the
            // parent's engine from being dropped here.
            std::mem::forget(self.shared.clone());
            return;
        }
        if !self.finished {
            let mut core = self.shared.lock();
            // Nobody is left to take an error (`finish` is the way to get it), but an old one
            // must not keep the rest from being written.
            if core.push().is_err() {
                let _ = core.push();
            }
            drop(core);
            let _ = self.leave();
        }
        let _ = self.keep_offset();
        // The keeper, or a stream that settles, may be at it for a moment. The descriptors are
        // closed when this returns and not later: any close of a file drops the record locks that
        // the process has taken on it meanwhile, and keeps its filesystem from being unmounted.
        // Whoever holds it may have a lower priority than this thread, so it sleeps.
        while Arc::strong_count(&self.shared) > 1 {
            std::thread::sleep(Duration::from_micros(50));
        }
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

/// The part of a writer that other threads may have to reach.
#[derive(Debug)]
pub(crate) struct Shared {
    core: Mutex<Core>,
    inode: Arc<Inode>,
    /// The range of bytes that are not with the kernel yet, readable without the lock.
    held_from: AtomicU64,
    held_to: AtomicU64,
}

impl Shared {
    fn new(
        file: Arc<File>,
        flags: i32,
        facts: FileFacts,
        options: &mut OpenOptions,
        position: u64,
    ) -> Arc<Shared> {
        if options.linger.is_some()
            && options.durability == Durability::Process
            && facts.kind != FileKind::Stream
            && !registry::start_keeper()
        {
            options.durability = Durability::Safe;
        }
        let inode = Inode::of(facts.dev, facts.ino);
        let core = Core::new(file, flags, facts, options, position, inode.clone());
        let shared = Arc::new(Shared {
            core: Mutex::new(core),
            inode,
            held_from: AtomicU64::new(0),
            held_to: AtomicU64::new(0),
        });
        shared.inode.add(&shared);
        shared
    }

    fn lock(&self) -> MutexGuard<'_, Core> {
        // A panic under the lock leaves at worst data that is written twice.
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn publish(&self, core: &Core) {
        let (from, to) = if core.freed < core.end {
            (core.freed, core.end)
        } else {
            (0, 0)
        };
        let was_empty = self.held_to.load(Ordering::Relaxed) == 0;
        self.held_from.store(from, Ordering::Release);
        self.held_to.store(to, Ordering::Release);
        if was_empty && to != 0 && core.linger.is_some() {
            registry::wake_keeper();
        }
    }

    /// Whether bytes of `[from, to)` are not with the kernel yet.
    pub(crate) fn holds(&self, from: u64, to: u64) -> bool {
        let (held_from, held_to) = (
            self.held_from.load(Ordering::Acquire),
            self.held_to.load(Ordering::Acquire),
        );
        held_to != 0 && held_from < to && from < held_to
    }

    /// The end of the data held, or zero.
    pub(crate) fn pending_end(&self) -> u64 {
        self.held_to.load(Ordering::Acquire)
    }

    /// Hands everything to the kernel on behalf of another stream or a fork. An error stays for
    /// this stream's own next call.
    pub(crate) fn push_for_others(&self) {
        let mut core = self.lock();
        if let Err(error) = core.push() {
            core.deferred.get_or_insert(error);
        }
        self.publish(&core);
    }

    /// Hands over what has been here since the last call. Returns the stream's linger time while
    /// it holds anything.
    pub(crate) fn push_aged(&self) -> Option<Duration> {
        let mut core = self.lock();
        let linger = core.linger?;
        if core.freed >= core.end || core.deferred.is_some() {
            return None;
        }
        if core.issued < core.seen_end {
            if let Err(error) = core.push() {
                core.deferred.get_or_insert(error);
            }
        } else if let Err(error) = core.reap_ready() {
            core.deferred.get_or_insert(error);
        }
        core.seen_end = core.end;
        self.publish(&core);
        Some(linger)
    }
}

/// A request between submission and success.
#[derive(Debug)]
struct Sent {
    id: u64,
    memory: *mut u8,
    offset: u64,
    len: usize,
    /// Bytes of it that are done.
    done: usize,
    /// What is with the rest.
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    InFlight,
    /// To be sent again once nothing is in flight, so that the order stays.
    Waiting,
    /// Failed, or after one that failed; to be sent again when the error has been reported.
    Failed,
    /// Done, but not all before it.
    Done,
}

/// The state of a writing stream.
///
/// The run is a contiguous range of the file, `freed <= issued <= end`: bytes before `freed` are
/// with the kernel, those before `issued` on their way, the rest waits in memory. Byte `x` of the
/// file lies at `(x - base) % region.len()`.
#[derive(Debug)]
struct Core {
    file: Arc<File>,
    direct: Option<Arc<File>>,
    facts: FileFacts,
    inode: Arc<Inode>,
    durability: Durability,
    linger: Option<Duration>,
    block: usize,
    depth: usize,
    memory_limit: usize,
    engine_wanted: crate::Engine,
    /// The memory: here until the first direct request, in the engine from then on.
    region: Option<Region>,
    engine: Option<Engine>,
    pilot: Pilot,

    base: u64,
    freed: u64,
    issued: u64,
    end: u64,
    sent: VecDeque<Sent>,
    next_id: u64,
    deferred: Option<io::Error>,
    /// The file's size as far as this stream knows.
    size: u64,
    preallocate: u64,
    /// Where a learned buffered stream has started and awaited writeback.
    behind: u64,
    scattered: u32,
    /// `end` when the keeper last looked.
    seen_end: u64,
    /// Whether direct requests were checked to stay out of the page cache.
    verified: bool,
    stats: Stats,
}

// SAFETY: the raw pointers in `sent` point into the region or, within one call, into the caller's
// memory; they are only passed to the kernel.
unsafe impl Send for Core {}

impl Core {
    fn new(
        file: Arc<File>,
        flags: i32,
        facts: FileFacts,
        options: &OpenOptions,
        position: u64,
        inode: Arc<Inode>,
    ) -> Core {
        let wants_direct = matches!(options.strategy, Strategy::Auto | Strategy::Direct);
        let direct = (wants_direct && facts.alignment.is_some())
            .then(|| {
                let keep = flags & (libc::O_SYNC | libc::O_NOATIME);
                sys::reopen(file.as_fd(), libc::O_WRONLY | libc::O_DIRECT | keep).ok()
            })
            .flatten()
            .map(Arc::new);
        let key = Key {
            dev: facts.dev,
            operation: Operation::Write,
            pattern: Pattern::Sequential,
            paced: false,
        };
        let page_cache_only = matches!(facts.filesystem, "tmpfs" | "ramfs");
        let pilot = Pilot::new(key, options.strategy, direct.is_some(), !page_cache_only);
        let memory_limit = options.memory_limit;
        let block = options
            .block_size
            .next_power_of_two()
            .clamp(64 << 10, (memory_limit / 4).max(64 << 10))
            .max(facts.granule as usize);
        let mut core = Core {
            direct,
            inode,
            durability: options.durability,
            linger: options
                .linger
                .filter(|_| options.durability == Durability::Process),
            block,
            depth: options.queue_depth,
            memory_limit,
            engine_wanted: options.engine,
            region: None,
            engine: None,
            pilot,
            base: 0,
            freed: 0,
            issued: 0,
            end: 0,
            sent: VecDeque::new(),
            next_id: 0,
            deferred: None,
            size: facts.size,
            preallocate: options.preallocate,
            behind: position,
            scattered: 0,
            seen_end: 0,
            verified: false,
            stats: Stats::default(),
            file,
            facts,
        };
        core.begin(position);
        core
    }

    fn stats(&self) -> Stats {
        Stats {
            engine: self
                .engine
                .as_ref()
                .map_or(crate::Engine::Auto, Engine::kind),
            strategy: self.pilot.strategy(),
            memory: self.memory().map_or(0, |region| region.len() as u64),
            ..self.stats.clone()
        }
    }

    fn memory(&self) -> Option<&Region> {
        self.engine
            .as_ref()
            .map(Engine::region)
            .or(self.region.as_ref())
    }

    /// Makes sure there is memory to stage in; `false` if there is none to be had.
    fn ensure_memory(&mut self) -> bool {
        if self.memory().is_none() && self.memory_limit >= MIN_REGION {
            self.region = Region::take(self.memory_limit);
            if let Some(region) = &self.region {
                // Requests must fit the memory that was to be had.
                self.block = self.block.min(region.len() / 4);
            }
            if self.block < self.facts.granule as usize {
                if let Some(region) = self.region.take() {
                    region.give_back();
                }
            }
            if self.region.is_none() {
                self.memory_limit = 0;
            }
        }
        self.memory().is_some()
    }

    /// Starts a run at `offset`. Nothing may be pending.
    fn begin(&mut self, offset: u64) {
        debug_assert!(self.sent.is_empty() && self.issued == self.end);
        self.base = offset - offset % self.block as u64;
        self.freed = offset;
        self.issued = offset;
        self.end = offset;
        self.seen_end = offset;
    }

    fn write(&mut self, data: &[u8], offset: u64) -> io::Result<usize> {
        if let Some(error) = self.deferred.take() {
            return Err(error);
        }
        self.inode.written();
        if !self.is_scattered() {
            self.pilot.enter();
        }
        let written = match self.durability {
            Durability::Process => self.write_staged(data, offset)?,
            Durability::Safe | Durability::Sync => self.write_now(data, offset)?,
        };
        self.stats.bytes += written as u64;
        if self.is_scattered() {
            self.pilot.interrupt();
        } else if self.pilot.count(written as u64) {
            self.next_slice();
        }
        Ok(written)
    }

    /// Takes the data with the promise to write it later.
    fn write_staged(&mut self, data: &[u8], offset: u64) -> io::Result<usize> {
        if self.is_scattered()
            && offset != self.end
            && data.len() < SMALL as usize
            && self.freed == self.end
        {
            // One more of them, and nothing to hand over first.
            let n = self.write_page_cache(data, offset, 0)?;
            self.begin(offset + n as u64);
            return Ok(n);
        }
        self.retry_failed();
        if offset == self.end {
            self.scattered = 0;
        } else if offset >= self.issued && offset < self.end {
            // Into what waits in memory anyway, as when a header is filled in.
            let n = data.len().min((self.end - offset) as usize);
            self.copy_in(offset, &data[..n]);
            return Ok(n);
        } else {
            if data.len() < SMALL as usize {
                self.scattered = self.scattered.saturating_add(1);
            }
            self.push()?;
            self.begin(offset);
        }
        if self.is_scattered() || !self.ensure_memory() {
            // Also when a run of scattered writes has just begun with nothing staged.
            self.push()?;
            let n = self.write_page_cache(data, offset, 0)?;
            self.begin(offset + n as u64);
            return Ok(n);
        }
        if let Some(done) = self.write_zero_copy(data, offset)? {
            return Ok(done);
        }
        let taken = self.append(data);
        match self.deferred.take() {
            Some(error) if taken == 0 => Err(error),
            error => {
                self.deferred = error;
                Ok(taken)
            }
        }
    }

    /// Writes the data before returning, by the way that suits its size.
    fn write_now(&mut self, data: &[u8], offset: u64) -> io::Result<usize> {
        let sync = self.durability == Durability::Sync;
        let large = data.len() as u64 >= 4 * SMALL;
        if !(large && self.is_direct() && self.ensure_memory()) {
            let flags = if sync { libc::RWF_DSYNC } else { 0 };
            return match self.write_page_cache(data, offset, flags) {
                Err(error) if sync && unsupported(&error) => {
                    let n = self.write_page_cache(data, offset, 0)?;
                    self.file.sync_data()?;
                    Ok(n)
                }
                result => result,
            };
        }
        self.begin(offset);
        let n = match self.write_zero_copy(data, offset)? {
            Some(n) => n,
            None => {
                let n = self.append(data);
                if let Err(error) = self.push() {
                    // Never acknowledged, so nothing to keep.
                    self.discard();
                    return Err(error);
                }
                n
            }
        };
        if let Some(error) = self.deferred.take() {
            self.discard();
            return Err(error);
        }
        if sync {
            self.file.sync_data()?;
        }
        Ok(n)
    }

    fn discard(&mut self) {
        while self.in_flight() {
            if self.reap(true).is_err() {
                break;
            }
        }
        self.sent.clear();
        self.deferred = None;
        self.issued = self.end;
        self.begin(self.end);
    }

    /// Whether the latest writes were small ones all over the file.
    fn is_scattered(&self) -> bool {
        self.scattered > SCATTERED
    }

    fn is_direct(&self) -> bool {
        self.direct.is_some() && self.pilot.strategy() == Strategy::Direct
    }

    /// Copies into the run at `offset`, which must be inside memory that is free of I/O.
    fn copy_in(&mut self, offset: u64, mut data: &[u8]) {
        let base = self.base;
        let Some(region) = self.memory() else { return };
        let mut at = ((offset - base) % region.len() as u64) as usize;
        while !data.is_empty() {
            let n = data.len().min(region.len() - at);
            // SAFETY: bytes from `issued` on are not part of any request.
            unsafe { region.fill(at, &data[..n]) };
            data = &data[n..];
            at = 0;
        }
    }

    /// Stages data at the end of the run. Returns how much was taken; less than all only with an
    /// error deferred.
    fn append(&mut self, data: &[u8]) -> usize {
        let len = self.memory().map_or(0, Region::len) as u64;
        let mut rest = data;
        while !rest.is_empty() && self.deferred.is_none() {
            let space = len - (self.end - self.freed);
            if space == 0 {
                self.make_room();
                continue;
            }
            let chunk = self.chunk();
            let n = (chunk - self.end % chunk).min(space).min(rest.len() as u64) as usize;
            self.copy_in(self.end, &rest[..n]);
            self.end += n as u64;
            rest = &rest[n..];
            if self.end.is_multiple_of(chunk) {
                if let Err(error) = self.issue(false) {
                    self.deferred = Some(error);
                }
            }
        }
        data.len() - rest.len()
    }

    /// Where in the memory up to `most` bytes for `offset` can be put, and how many; `None` if
    /// nothing can be staged.
    fn room(&mut self, most: usize, offset: u64) -> io::Result<Option<(usize, usize)>> {
        if let Some(error) = self.deferred.take() {
            return Err(error);
        }
        self.retry_failed();
        if offset != self.end {
            self.push()?;
            self.begin(offset);
        }
        if self.is_scattered() || !self.ensure_memory() {
            return Ok(None);
        }
        let len = self.memory().map_or(0, Region::len) as u64;
        while len == self.end - self.freed {
            self.make_room();
            if let Some(error) = self.deferred.take() {
                return Err(error);
            }
        }
        let at = (self.end - self.base) % len;
        let chunk = self.chunk();
        let room = (chunk - self.end % chunk)
            .min(len - (self.end - self.freed))
            .min(len - at)
            .min(most as u64);
        Ok(Some((at as usize, room as usize)))
    }

    /// Stages what `fill` puts into the memory that [`room`](Core::room) has found.
    fn append_with(
        &mut self,
        at: usize,
        len: usize,
        fill: impl FnOnce(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        self.pilot.enter();
        let Some(region) = self.memory() else {
            return Ok(0);
        };
        assert!(at + len <= region.len());
        // SAFETY: inside the region, whose pages are initialised by the kernel; free of I/O, as
        // these bytes are beyond `end` and short of `freed` once around; and nobody else gets at
        // the region while this stream is borrowed, which is at least as long as the slice lives.
        let room = unsafe { std::slice::from_raw_parts_mut(region.at(at), len) };
        let n = fill(room)?.min(len);
        self.inode.written();
        self.end += n as u64;
        if n > 0 && self.end.is_multiple_of(self.chunk()) {
            if let Err(error) = self.issue(false) {
                self.deferred = Some(error);
            }
        }
        self.stats.bytes += n as u64;
        if self.pilot.count(n as u64) {
            self.next_slice();
        }
        Ok(n)
    }

    /// How much is gathered before it is sent.
    fn chunk(&self) -> u64 {
        if self.is_direct() {
            self.block as u64
        } else {
            BUFFERED_CHUNK.min(self.block) as u64
        }
    }

    fn make_room(&mut self) {
        let result = self.issue(false).and_then(|()| {
            if self.freed + self.memory().map_or(0, Region::len) as u64 > self.end {
                return Ok(());
            }
            self.stall()?;
            // Before the copying goes on: the device is idle.
            self.issue(false)
        });
        if let Err(error) = result {
            self.deferred = Some(error);
        }
    }

    /// Waits for one completion.
    fn stall(&mut self) -> io::Result<()> {
        let begun = Instant::now();
        let result = self.reap(true);
        self.stats.stalls += 1;
        self.stats.stall_time += begun.elapsed();
        result.map(drop)
    }

    /// Sends what is worth sending; with `all`, every whole granule.
    fn issue(&mut self, all: bool) -> io::Result<()> {
        if !self.is_direct() {
            return self.issue_buffered();
        }
        let granule = self.facts.granule;
        let region_len = self.memory().map_or(0, Region::len) as u64;
        let block = self.block as u64;
        loop {
            // Small remainders take the short way, if nothing of theirs is in flight.
            if all && self.sent.is_empty() && self.end - self.issued < SMALL {
                return self.issue_page_cache(self.end, 0);
            }
            if !self.issued.is_multiple_of(granule) {
                let head_end = (self.issued + granule - self.issued % granule).min(self.end);
                if !head_end.is_multiple_of(granule) && !all {
                    return Ok(());
                }
                self.drain()?;
                self.issue_page_cache(head_end, 0)?;
                continue;
            }
            let available = self.end - self.end % granule;
            let available = available.saturating_sub(self.issued);
            if available == 0 {
                return Ok(());
            }
            if self.sent.is_empty() && self.facts.kind == FileKind::Regular {
                // Somebody else may have cut the file.
                self.size = self.file.metadata()?.len();
            }
            let growing = self.issued + available > self.size;
            let at = (self.issued - self.base) % region_len;
            let (depth, most) = if growing {
                let half = region_len / 2;
                (1 + usize::from(self.can_chain()), half - at % half)
            } else {
                (self.depth, block)
            };
            // Until its turn comes, more can gather; and nothing overtakes what failed.
            let failed = self.sent.iter().any(|s| s.state == State::Failed);
            if growing && !all && (failed || (!self.sent.is_empty() && available < most)) {
                return Ok(());
            }
            let mut len = available.min(most).min(region_len - at);
            // Requests end on block boundaries where they can.
            let past = (self.issued + len) % block;
            if past < len {
                len -= past;
            } else if !all {
                return Ok(());
            }
            if self.sent.len() >= depth && !self.reap(false)? {
                if !all {
                    return Ok(());
                }
                self.stall()?;
            }
            if let Some(error) = self.deferred.take() {
                return Err(error);
            }
            if self.sent.len() >= depth {
                continue;
            }
            if growing {
                self.reserve(self.issued + len);
            }
            let memory = self.memory().map(|r| r.at(at as usize));
            let Some(memory) = memory else { return Ok(()) };
            let offset = self.issued;
            self.issued += len;
            self.send(memory, offset, len as usize)?;
        }
    }

    /// Sends everything through the page cache.
    fn issue_buffered(&mut self) -> io::Result<()> {
        self.drain()?;
        let flags = match self.pilot.strategy() {
            Strategy::DontCache => libc::RWF_DONTCACHE,
            _ => 0,
        };
        self.issue_page_cache(self.end, flags)?;
        // The same, warm, memory again.
        self.begin(self.end);
        Ok(())
    }

    /// Writes `[issued, to)` from memory through the page cache.
    fn issue_page_cache(&mut self, to: u64, flags: i32) -> io::Result<()> {
        while self.issued < to {
            let Some(region) = self.memory() else {
                return Ok(());
            };
            let at = ((self.issued - self.base) % region.len() as u64) as usize;
            let len = ((to - self.issued) as usize).min(region.len() - at);
            let memory = region.at(at);
            // SAFETY: the bytes are in the region and no request writes there; the slice ends with
            // this call, in which the region stays.
            let data = unsafe { std::slice::from_raw_parts(memory, len) };
            let n = self.write_page_cache(data, self.issued, flags)?;
            self.issued += n as u64;
            if self.sent.is_empty() {
                self.freed = self.issued;
            }
        }
        Ok(())
    }

    /// Writes `[freed, end)` through the page cache and leaves the stream as it is.
    fn write_held(&self) -> io::Result<()> {
        let Some(region) = self.memory() else {
            return Ok(());
        };
        let mut from = self.freed;
        while from < self.end {
            let at = ((from - self.base) % region.len() as u64) as usize;
            let len = ((self.end - from) as usize).min(region.len() - at);
            // SAFETY: the bytes are in the region, where nothing is written while this stream is
            // locked; the slice ends with this call.
            let data = unsafe { std::slice::from_raw_parts(region.at(at), len) };
            match sys::pwrite(self.file.as_fd(), data, from, 0)? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                n => from += n as u64,
            }
        }
        Ok(())
    }

    /// One write through the page cache.
    fn write_page_cache(&mut self, data: &[u8], offset: u64, flags: i32) -> io::Result<usize> {
        let n = match sys::pwrite(self.file.as_fd(), data, offset, flags) {
            Err(error) if flags & libc::RWF_DONTCACHE != 0 && unsupported(&error) => {
                self.pilot.forbid(Strategy::DontCache);
                sys::pwrite(
                    self.file.as_fd(),
                    data,
                    offset,
                    flags & !libc::RWF_DONTCACHE,
                )?
            }
            result => result?,
        };
        if n == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.stats.buffered_bytes += n as u64;
        self.stats.requests += 1;
        self.size = self.size.max(offset + n as u64);
        self.inode.written();
        self.write_behind(offset + n as u64);
        Ok(n)
    }

    /// Keeps a stream that was found to do best in the page cache from filling it with dirty
    /// pages: starts writeback of each window, and waits for the one before.
    fn write_behind(&mut self, to: u64) {
        let learned = !self.pilot.is_fixed() && self.pilot.strategy() == Strategy::Buffered;
        if !learned || to < self.behind {
            self.behind = to;
        } else if to - self.behind >= WRITE_BEHIND {
            let fd = self.file.as_fd();
            // Errors show up in the sync that follows, once.
            let _ = sys::sync_file_range(fd, self.behind, to - self.behind, false);
            if let Some(before) = self.behind.checked_sub(WRITE_BEHIND) {
                let _ = sys::sync_file_range(fd, before, WRITE_BEHIND, true);
            }
            self.behind = to;
        }
    }

    /// Sends large, aligned memory of the caller without a copy, and waits for it. `None` if it
    /// does not qualify.
    fn write_zero_copy(&mut self, data: &[u8], offset: u64) -> io::Result<Option<usize>> {
        let granule = self.facts.granule;
        let memory_align = self.facts.alignment.map_or(1, |a| a.memory as usize);
        let qualifies = data.len() >= MEDIUM_CALL
            && self.is_direct()
            && offset.is_multiple_of(granule)
            && (data.as_ptr() as usize).is_multiple_of(memory_align);
        if qualifies {
            self.pilot.large_calls(data.len());
        }
        if !qualifies || !self.pilot.zero_copy(data.len()) {
            return Ok(None);
        }
        // What was written before goes first.
        self.push()?;
        let len = data.len() - data.len() % granule as usize;
        let growing = offset + len as u64 > self.size;
        let part = if growing {
            8 * self.block
        } else {
            (len / self.depth).next_multiple_of(self.block)
        };
        if growing {
            self.reserve(offset + len as u64);
        }
        let mut at = 0;
        let mut result = Ok(());
        while result.is_ok() && self.deferred.is_none() && (at < len || !self.sent.is_empty()) {
            let depth = if growing { 1 } else { self.depth };
            if at < len && self.sent.len() < depth {
                let n = part.min(len - at);
                let memory = data[at..].as_ptr() as *mut u8;
                result = match growing {
                    true => self.send_and_wait(memory, offset + at as u64, n),
                    false => self.send(memory, offset + at as u64, n),
                };
                at += n;
            } else {
                result = self.reap(true).map(drop);
            }
        }
        // The memory is the caller's again after this call, whatever happened.
        while self.in_flight() {
            if let Err(error) = self.reap(true) {
                // Waiting failed with requests in flight: no way to give the memory back safely.
                eprintln!("pdio: cannot wait for I/O in flight on the caller's memory: {error}");
                std::process::abort();
            }
        }
        let done = self
            .sent
            .iter()
            .find(|s| s.state == State::Failed)
            .map_or(at, |s| (s.offset - offset) as usize + s.done);
        self.sent.clear();
        self.begin(offset + done as u64);
        self.stats.zero_copy_bytes += done as u64;
        let error = self.deferred.take().or(result.err());
        match error {
            // The caller will come back with the rest and meet the error then.
            Some(error) if done == 0 => Err(error),
            _ => Ok(Some(done)),
        }
    }

    fn send(&mut self, memory: *mut u8, offset: u64, len: usize) -> io::Result<()> {
        self.enqueue(memory, offset, len);
        self.submit(self.sent.len() - 1)
    }

    /// As `send`, in this thread: for a request that is waited for anyway and has no company, the
    /// way through the engine only adds wake-ups.
    fn send_and_wait(&mut self, memory: *mut u8, offset: u64, len: usize) -> io::Result<()> {
        let Some(direct) = self.direct.clone() else {
            return self.send(memory, offset, len);
        };
        let id = self.enqueue(memory, offset, len);
        self.stats.requests += 1;
        // SAFETY: the memory is the caller's of `write_zero_copy`, valid through this call.
        let result = unsafe { sys::pwrite_raw(direct.as_raw_fd(), memory, len, offset, 0) };
        self.complete(Completion { id, result })
    }

    fn enqueue(&mut self, memory: *mut u8, offset: u64, len: usize) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.sent.push_back(Sent {
            id,
            memory,
            offset,
            len,
            done: 0,
            state: State::InFlight,
        });
        id
    }

    /// Makes the engine, if direct I/O and memory are there.
    fn ensure_engine(&mut self) -> Option<&mut Engine> {
        if self.engine.is_none() {
            let direct = self.direct.clone()?;
            let region = self.region.take()?;
            let engine = Engine::new(self.engine_wanted, Direction::Write, direct, region);
            self.engine = Some(engine);
        }
        self.engine.as_mut()
    }

    fn can_chain(&mut self) -> bool {
        self.ensure_engine().is_some_and(Engine::can_chain)
    }

    fn in_flight(&self) -> bool {
        self.sent.iter().any(|s| s.state == State::InFlight)
    }

    /// Submits what is not done of request `i` of the queue.
    fn submit(&mut self, i: usize) -> io::Result<()> {
        let Some(direct) = self.direct.clone() else {
            return self.complete_through_page_cache(i);
        };
        self.ensure_engine();
        self.sent[i].state = State::InFlight;
        let sent = &self.sent[i];
        let growing = sent.offset + sent.len as u64 > self.size;
        let request = Request {
            id: sent.id,
            memory: sent.memory.wrapping_add(sent.done),
            len: sent.len - sent.done,
            offset: sent.offset + sent.done as u64,
        };
        self.stats.requests += 1;
        let submitted = match &mut self.engine {
            // SAFETY: the memory belongs to the region, where `copy_in` stays out of sent ranges,
            // or to a caller whose call does not return before the completion.
            Some(engine) if growing => unsafe { engine.submit_chained(request) },
            // SAFETY: as above.
            Some(engine) => unsafe { engine.submit(request) },
            None => Err(io::ErrorKind::OutOfMemory.into()),
        };
        submitted.or_else(|_| {
            // The engine is out of order; the system call still works.
            // SAFETY: as above.
            let result = unsafe {
                sys::pwrite_raw(
                    direct.as_raw_fd(),
                    request.memory,
                    request.len,
                    request.offset,
                    0,
                )
            };
            self.complete(Completion {
                id: request.id,
                result,
            })
        })
    }

    /// Takes completions that are there; with `wait`, at least one. `false` if there was none.
    fn reap(&mut self, wait: bool) -> io::Result<bool> {
        let mut any = false;
        loop {
            let completion = match &mut self.engine {
                Some(engine) => engine.reap(wait && !any)?,
                None => None,
            };
            let Some(completion) = completion else {
                return Ok(any);
            };
            any = true;
            self.complete(completion)?;
        }
    }

    /// Keeps requests flowing without blocking.
    fn reap_ready(&mut self) -> io::Result<()> {
        if self.is_direct() {
            self.reap(false)?;
            self.issue(false)?;
        }
        Ok(())
    }

    fn complete(&mut self, completion: Completion) -> io::Result<()> {
        let Some(i) = self.sent.iter().position(|s| s.id == completion.id) else {
            return Ok(());
        };
        let sent = &mut self.sent[i];
        match completion.result {
            Ok(n) => {
                sent.done += n;
                let (offset, len, done) = (sent.offset, sent.len, sent.done);
                self.stats.direct_bytes += n as u64;
                self.size = self.size.max(offset + done as u64);
                if n == 0 {
                    self.fail(i, io::ErrorKind::WriteZero.into());
                } else if done < len {
                    let align = self.facts.alignment.map_or(1, |a| a.offset as usize);
                    // A short write: the reason shows when the rest is tried.
                    match (offset as usize + done) % align {
                        0 => self.sent[i].state = State::Waiting,
                        _ => self.complete_through_page_cache(i)?,
                    }
                } else {
                    self.verify(offset, len);
                }
            }
            Err(error) => match error.raw_os_error() {
                // The latter also when the thread that submitted has ended, or a request before
                // this one was not carried out.
                Some(libc::EINTR | libc::EAGAIN | libc::ECANCELED) => {
                    self.sent[i].state = State::Waiting;
                }
                Some(libc::EINVAL | libc::EOPNOTSUPP) => {
                    // Direct I/O was promised and is refused.
                    self.pilot.forbid(Strategy::Direct);
                    self.complete_through_page_cache(i)?;
                }
                _ => self.fail(i, error),
            },
        }
        self.free();
        self.resume()
    }

    /// Sends what waits for its turn, once nothing is in flight; nothing overtakes a failed one.
    fn resume(&mut self) -> io::Result<()> {
        if self.in_flight() {
            return Ok(());
        }
        let mut failed = false;
        for sent in &mut self.sent {
            failed |= sent.state == State::Failed;
            if failed && sent.state == State::Waiting {
                sent.state = State::Failed;
            }
        }
        let waiting: Vec<u64> = self
            .sent
            .iter()
            .filter(|s| s.state == State::Waiting)
            .map(|s| s.id)
            .collect();
        for id in waiting {
            // Positions move as `submit` completes requests.
            let i = self.sent.iter().position(|s| s.id == id);
            if let Some(i) = i.filter(|&i| self.sent[i].state == State::Waiting) {
                self.submit(i)?;
            }
        }
        Ok(())
    }

    fn complete_through_page_cache(&mut self, i: usize) -> io::Result<()> {
        loop {
            let sent = &self.sent[i];
            if sent.done == sent.len {
                break;
            }
            // SAFETY: the request's memory is valid until the request leaves the queue, and only
            // read.
            let data = unsafe {
                std::slice::from_raw_parts(
                    sent.memory.wrapping_add(sent.done),
                    sent.len - sent.done,
                )
            };
            match self.write_page_cache(data, sent.offset + sent.done as u64, 0) {
                Ok(n) => self.sent[i].done += n,
                Err(error) => {
                    self.fail(i, error);
                    break;
                }
            }
        }
        self.free();
        Ok(())
    }

    fn fail(&mut self, i: usize, error: io::Error) {
        self.sent[i].state = State::Failed;
        self.deferred.get_or_insert(error);
    }

    fn free(&mut self) {
        for sent in self.sent.iter_mut().filter(|s| s.done == s.len) {
            sent.state = State::Done;
        }
        while self.sent.front().is_some_and(|s| s.state == State::Done) {
            self.sent.pop_front();
        }
        self.freed = match self.sent.front() {
            Some(first) => first.offset,
            None => self.issued,
        };
    }

    /// Sends failed requests once more; their error has been reported.
    fn retry_failed(&mut self) {
        for sent in &mut self.sent {
            if sent.state == State::Failed {
                sent.state = State::Waiting;
            }
        }
        if let Err(error) = self.resume() {
            self.deferred.get_or_insert(error);
        }
    }

    /// Some filesystems accept direct writes and put them into the page cache. That costs what
    /// buffered writes cost, so it is not worth collecting for.
    fn verify(&mut self, offset: u64, len: usize) {
        if self.verified {
            return;
        }
        self.verified = true;
        let resident = sys::resident(self.file.as_fd(), offset, len as u64);
        if resident.is_some_and(|bytes| bytes >= len as u64 / 2) {
            self.pilot.forbid(Strategy::Direct);
        }
    }

    /// Waits until nothing is in flight.
    fn drain(&mut self) -> io::Result<()> {
        while self.in_flight() {
            self.stall()?;
        }
        match self.deferred.take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Hands everything to the kernel. After an error what failed is still here, to be tried by
    /// the next call.
    fn push(&mut self) -> io::Result<()> {
        if let Some(error) = self.deferred.take() {
            return Err(error);
        }
        self.retry_failed();
        if self.issued < self.end {
            self.issue(true)?;
        }
        self.drain()?;
        if self.issued < self.end {
            self.issue_page_cache(self.end, 0)?;
        }
        self.begin(self.end);
        Ok(())
    }

    fn next_slice(&mut self) {
        let result = if self.pilot.needs_drain() {
            self.settle_slice()
        } else {
            Ok(())
        };
        let changed = self.pilot.next();
        let result = if changed {
            result.and_then(|()| self.settle_slice())
        } else {
            result
        };
        if let Err(error) = result {
            self.deferred.get_or_insert(error);
        }
    }

    /// Brings the slice to the device, so that its cost is its own.
    fn settle_slice(&mut self) -> io::Result<()> {
        self.push()?;
        if !self.is_direct() {
            let from = self.end.saturating_sub(4 * WRITE_BEHIND);
            let _ = sys::sync_file_range(self.file.as_fd(), from, self.end - from, true);
        }
        Ok(())
    }

    /// Reserves blocks up to at least `to`.
    fn reserve(&mut self, to: u64) {
        let reserved_to = self.inode.reserved_to.load(Ordering::Relaxed);
        if self.preallocate == 0 || to <= reserved_to || self.facts.kind != FileKind::Regular {
            return;
        }
        let from = self.size.max(reserved_to);
        let end = to.saturating_add(self.preallocate);
        match sys::fallocate_keep_size(self.file.as_fd(), 0, from, end.saturating_sub(from)) {
            Ok(()) => {
                self.inode.reserved_to.fetch_max(end, Ordering::Relaxed);
            }
            // No room, or not supported: the writes themselves will tell.
            Err(_) => self.preallocate = 0,
        }
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        if let Some(region) = self.region.take() {
            region.give_back();
        }
    }
}

fn unsupported(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EOPNOTSUPP | libc::EINVAL | libc::ENOSYS)
    )
}

impl AsFd for Writer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A direct descriptor that fails with EIO: memory at address zero. Until it is replaced.
    fn failing() -> File {
        let memory = File::options().write(true).open("/proc/self/mem").unwrap();
        let error = sys::pwrite(memory.as_fd(), b"x", 0, 0).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EIO));
        memory
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
            let Some(working) = out.shared.lock().direct.replace(Arc::new(failing())) else {
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
            let failing = out.shared.lock().direct.clone().unwrap();
            // SAFETY: both descriptors are open; the number keeps its owner.
            assert!(unsafe { libc::dup2(working.as_raw_fd(), failing.as_raw_fd()) } >= 0);
            out.flush().unwrap();
            out.write_all(&data[taken..]).unwrap();
            assert!(out.finish().unwrap().direct_bytes > 0);
            assert!(std::fs::read(&path).unwrap() == data, "{engine:?}");
        }
    }

    #[test]
    fn a_refused_direct_request_takes_the_page_cache_instead() {
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = home.path().join("data");
        let mut options = OpenOptions::new();
        options.create(true).strategy(Strategy::Direct);
        let mut out = options.open_writer(&path).unwrap();
        // Takes a number only and refuses all else with EINVAL.
        let refusing = File::options().write(true).open("/proc/self/oom_score_adj");
        let refusing = refusing.unwrap();
        let error = sys::pwrite(refusing.as_fd(), b"x", 0, 0).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
        if out
            .shared
            .lock()
            .direct
            .replace(Arc::new(refusing))
            .is_none()
        {
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
