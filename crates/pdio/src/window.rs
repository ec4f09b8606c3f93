// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a reading stream takes bytes: from a window that is read ahead, from the page cache, or directly.
//!
//! A sequential reader is kept ahead of by direct requests into a ring of slots, so that the device
//! works while the caller does. Data that the page cache already has is taken from there. Scattered
//! small reads go the way that was found cheaper, without read-ahead.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::align::{FileFacts, FileKind};
use crate::backing::Backing;
use crate::engine::{Completion, Request};
use crate::files::Inode;
use crate::learned::{Operation, Pattern};
use crate::memory::Region;
use crate::options::{OpenOptions, Strategy};
use crate::policy::{Pilot, MEDIUM_CALL};
use crate::sys;

/// The read-ahead of a stream that has just turned sequential.
const FIRST_WINDOW: usize = 128 << 10;
/// Reads from the page cache are gathered to this size: it makes the system call cheap and stays
/// in the processor's cache.
const CACHED_CHUNK: usize = 128 << 10;
/// What `fill_buf` returns where there is no memory to read ahead in, as of a `BufReader`.
const LITTLE: usize = 8 << 10;
/// Files below this are left to the page cache: the kernel reads them at once, and they are the
/// ones most likely to be read again.
pub(crate) const SMALL_FILE: u64 = 1 << 20;
/// Scattered reads from this size on are no longer small.
const LARGE: usize = 64 << 10;
/// Range for which the page cache is asked what it holds: well beyond what the kernel reads ahead
/// on its own, or a stream that began in the page cache would never leave it.
const RESIDENCY: u64 = 64 << 20;
/// How far an answer holds.
const RESIDENCY_STEP: u64 = 8 << 20;
/// A file that was changed this recently may change again without showing it.
const SETTLED: Duration = Duration::from_secs(1);
/// Steps of the cheap clock are at most this long.
const CLOCK_STEP: Duration = Duration::from_millis(10);
/// So many bytes in sequence a slice has for each small read elsewhere.
const JUMP: u64 = 2 << 20;
/// So many bytes in sequence come before a slice begins, after such reads.
const RUN: u64 = 1 << 20;
/// So many bytes are counted at a time that were looked at where they are: to count each 512 cost a twelfth of them.
const LOOKED_AT: u64 = 64 << 10;
/// In how many places is looked whether the page cache holds what comes next, where the kernel does not tell.
const PROBES: u64 = 4;

/// Counts what this process was told by others.
static HEARD: AtomicU64 = AtomicU64::new(0);

/// This process has been told something by another one: a message, a signal, a lock that is free, a
/// file that is there. From here on no [`Reader`](crate::Reader) with a [`linger`](OpenOptions::linger) time returns what
/// it has read ahead before, unless the file's times and size say that nobody has changed the file. This
/// costs a reader that has read ahead a question to the kernel with its next read. Of block devices, which
/// have no times, a reader goes on to return what it has read ahead.
pub fn heard() {
    HEARD.fetch_add(1, SeqCst);
}

/// How often [`heard`] was called.
pub fn times_heard() -> u64 {
    HEARD.load(SeqCst)
}

/// Returns true if direct I/O is not possible after all.
fn is_refusal(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP))
}

/// One slot's worth of the file.
#[derive(Debug)]
struct Ahead {
    id: u64,
    slot: usize,
    offset: u64,
    asked: usize,
    /// Bytes that arrived, once they have; `None` in flight.
    got: Option<usize>,
    failed: bool,
}

impl Ahead {
    fn end(&self) -> u64 {
        self.offset + self.got.unwrap_or(self.asked) as u64
    }
}

#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) back: Backing,
    pub(crate) inode: Arc<Inode>,
    /// Steers small calls at unrelated offsets.
    scattered: Pilot,

    /// In file order; the first may be partly consumed.
    ahead: VecDeque<Ahead>,
    /// Given up while in flight.
    dying: Vec<Ahead>,
    slots: Vec<usize>,
    /// For `fill_buf`, where there is no memory to read ahead in.
    little: Vec<u8>,
    next_id: u64,
    /// How far ahead of the caller to read, in bytes.
    window: usize,
    /// The next strategy begins when the window is used up: nothing more is read ahead.
    closing: bool,
    /// Small reads elsewhere in this slice, and bytes in sequence since the last that counted.
    jumps: u64,
    run: u64,
    /// Bytes that `consume` has not counted yet.
    looked_at: u64,
    /// Where the device could not be read: nothing more is read ahead there, as each attempt may take it long.
    bad: Range<u64>,
    /// Where the caller's next read begins if it is sequential.
    expected: u64,
    sequential: u32,
    /// Up to here the page cache was found to hold the file.
    cached_until: u64,
    asked_until: u64,
    /// The inode's generation that the window's data is of.
    seen: u64,
    /// What is in the window may be older than this by what others in the system wrote.
    pub(crate) linger: Option<Duration>,
    /// When the file was last looked at, and what it was then.
    pub(crate) looked: Duration,
    stamp: Option<sys::Stamp>,
    /// What had been heard then, and whether that was more than before.
    heard: u64,
    told: bool,
}

/// Returns true if the page cache holds most of what comes next in a file of this size.
pub(crate) fn mostly_cached(file: BorrowedFd<'_>, offset: u64, size: u64) -> bool {
    let len = RESIDENCY.min(size.saturating_sub(offset));
    match sys::resident(file, offset, len.max(1)) {
        Ok(bytes) => bytes >= len / 2 && bytes > 0,
        // Only who may write a file, or owns it, is told. Others try a byte in each quarter, never the same: the kernel
        // begins to read a page that is not there.
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => (0..PROBES).all(|i| {
            let mut byte = 0;
            let part = (len / PROBES).max(1);
            let chance = sys::coarse_now().as_nanos() as u64 ^ (&raw const byte).addr() as u64;
            let at = offset + part * i + chance.wrapping_mul(0x9e37_79b9_7f4a_7c15 + i) % part;
            // SAFETY: one byte of this function's.
            let read =
                unsafe { sys::pread_raw(file.as_raw_fd(), &mut byte, 1, at, libc::RWF_NOWAIT) };
            read.is_ok_and(|n| n == 1)
        }),
        Err(_) => false,
    }
}

impl Core {
    pub(crate) fn new(
        file: Arc<File>,
        inherited: Option<Arc<File>>,
        flags: i32,
        facts: FileFacts,
        options: &OpenOptions,
        position: u64,
    ) -> Core {
        let inode = Inode::of(facts.dev, facts.ino);
        let linger = options.linger.filter(|_| facts.kind == FileKind::Regular);
        let back = Backing::new(file, inherited, flags, facts, options, Operation::Read);
        Core {
            scattered: back.pilot_of(Pattern::Random),
            ahead: VecDeque::new(),
            dying: Vec::new(),
            slots: Vec::new(),
            little: Vec::new(),
            next_id: 0,
            window: FIRST_WINDOW,
            closing: false,
            jumps: 0,
            run: RUN,
            looked_at: 0,
            bad: 0..0,
            expected: position,
            sequential: 0,
            cached_until: 0,
            asked_until: 0,
            seen: inode.generation(),
            linger,
            looked: Duration::ZERO,
            stamp: None,
            heard: HEARD.load(SeqCst),
            told: false,
            inode,
            back,
        }
    }

    fn ensure_memory(&mut self) -> bool {
        let had = self.back.memory().is_some();
        let has = self.back.ensure_memory();
        if let Some(region) = self.back.memory().filter(|_| !had) {
            self.slots = (0..region.len() / self.back.block).rev().collect();
        }
        has
    }

    pub(crate) fn read(&mut self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        if i64::try_from(offset).is_err() {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        if buffer.is_empty() {
            return Ok(0);
        }
        let mut done = 0;
        loop {
            let rest = &mut buffer[done..];
            let part = self.back.pilot.share(rest.len());
            let more = part < rest.len();
            match self.read_in_slice(&mut rest[..part], offset + done as u64) {
                Ok(n) => {
                    done += n;
                    if n < part || !more {
                        return Ok(done);
                    }
                }
                // As below.
                Err(_) if done > 0 => return Ok(done),
                Err(error) => return Err(error),
            }
        }
    }

    /// As a call begins. Returns whether it counts.
    fn enter(&mut self, offset: u64, len: usize) -> bool {
        if self.closing && !self.holds(offset, len) {
            self.collapse();
            // The next call meets an error of that again.
            let _ = self.reap_unwanted();
        }
        // What was read ahead is no sample of the next strategy. Nor does a slice begin in between reads here and there,
        // as it looks at the system's time first.
        let counts = !self.closing && (self.run >= RUN || self.back.pilot.has_begun());
        if counts {
            self.back.pilot.enter();
        }
        counts
    }

    /// As a call that counts ends, after so many bytes.
    fn count(&mut self, bytes: u64) {
        if self.back.pilot.count(bytes) && self.next_slice() {
            self.closing = true;
        }
    }

    /// A call, or as much of it as belongs to one slice.
    fn read_in_slice(&mut self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let fresh = self.catch_up(offset, buffer.len());
        let counts = self.enter(offset, buffer.len());
        let mut done = 0;
        while done < buffer.len() {
            let at = offset + done as u64;
            match self.read_part(&mut buffer[done..], at, fresh) {
                Ok(Some(n)) => {
                    done += n;
                    self.expected = at + n as u64;
                }
                Ok(None) => break,
                // As with `pread`: first what can be read; the next call returns the error. It is
                // not remembered here: that call meets it if it is still there.
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        self.back.stats.bytes += done as u64;
        self.run = self.run.saturating_add(done as u64);
        if counts {
            self.count(done as u64);
        }
        Ok(done)
    }

    /// As many bytes as come at once; `None` at the end of the file.
    fn read_part(
        &mut self,
        buffer: &mut [u8],
        offset: u64,
        fresh: bool,
    ) -> io::Result<Option<usize>> {
        let mut n = match self.covered(offset) {
            true => self.take(buffer, offset)?,
            false => self.read_uncovered(buffer, offset, fresh)?,
        };
        if n == 0 && self.goes_on(offset)? {
            // Once: some files (sysfs, FUSE) say a size that they do not have.
            n = self.read_plain(buffer, offset)?;
        }
        Ok((n > 0).then_some(n))
    }

    fn next_slice(&mut self) -> bool {
        self.jumps = 0;
        // What the page cache holds goes another way.
        if self.back.slice_went_astray(2) {
            return false;
        }
        let left = self.back.facts.size.saturating_sub(self.expected);
        self.back.pilot.remains(left);
        self.back.pilot.next()
    }

    /// Drops a window that may be older than the linger time, or than what others have told since: once in
    /// that time, and when there was something to hear, the file is looked at, and only what was read from
    /// a file that nobody has changed since may stay.
    fn look(&mut self) {
        let Some(linger) = self.linger else { return };
        // Before the look: what is heard meanwhile needs another one.
        let heard = HEARD.load(SeqCst);
        let told = heard != self.heard;
        let now = sys::coarse_now();
        // The clock of another time namespace may be behind.
        if !told && now.abs_diff(self.looked) + CLOCK_STEP < linger {
            return;
        }
        self.heard = heard;
        self.told = told;
        self.looked = now;
        let stamp = sys::stamp(self.back.file.as_fd()).ok();
        if stamp.is_none() || stamp != self.stamp {
            self.collapse();
            // What the page cache holds may be another as well.
            self.asked_until = 0;
        }
        if let Some(stamp) = stamp {
            self.back.facts.size = stamp.size();
        }
        self.stamp = stamp.filter(|stamp| stamp.is_older_than(SETTLED));
    }

    /// Returns true if a window would be dropped by the very next call, or may be, as there was something to
    /// hear before this one.
    fn would_drop(&self) -> bool {
        let at_once = |linger: Duration| linger <= CLOCK_STEP;
        self.stamp.is_none() && (self.told || self.linger.is_some_and(at_once))
    }

    /// Makes what others wrote visible. Returns false if others in this process made the window stale.
    fn catch_up(&mut self, offset: u64, len: usize) -> bool {
        self.look();
        if self.inode.writers() > 0 {
            // Whole granules are read, and more ahead.
            let from = offset - offset % self.back.facts.granule;
            let to = offset.saturating_add(len as u64 + RESIDENCY_STEP);
            // The writer's error is its own: this is what the file has.
            let _ = self.inode.write_overlapping(None, from, to);
        }
        let generation = self.inode.generation();
        if generation == self.seen {
            return true;
        }
        self.seen = generation;
        self.collapse();
        self.sequential = 0;
        // It may also have been cut. If the kernel does not tell, the next read meets that error.
        let _ = self.ask_size();
        false
    }

    /// Asked where the kernel has found the end. Returns true if the file goes on with a hole, behind
    /// which a writer of this process holds data, or did until a moment ago.
    fn goes_on(&mut self, offset: u64) -> io::Result<bool> {
        let none = self.inode.writers() == 0 && self.inode.generation() == self.seen;
        if none || self.back.facts.kind != FileKind::Regular {
            return Ok(false);
        }
        let _ = self.inode.write_overlapping(None, offset, u64::MAX);
        self.ask_size()?;
        Ok(offset < self.back.facts.size)
    }

    fn covered(&self, offset: u64) -> bool {
        let (first, last) = (self.ahead.front(), self.ahead.back());
        first.is_some_and(|first| first.offset <= offset)
            && last.is_some_and(|last| offset < last.offset + last.asked as u64)
    }

    /// Returns true if the window has all of a call.
    fn holds(&self, offset: u64, len: usize) -> bool {
        let ends = |last: &Ahead| offset + len as u64 <= last.end();
        self.covered(offset) && self.ahead.back().is_some_and(ends)
    }

    /// Copies from the window. Falls back to a plain read where the window came up short.
    fn take(&mut self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let Some(available) = self.arrive(offset)? else {
            return self.read_plain(buffer, offset);
        };
        let n = available.min(buffer.len());
        let block = self.back.block;
        if let (Some(first), Some(region)) = (self.ahead.front(), self.back.memory()) {
            let at = first.slot * block + (offset - first.offset) as usize;
            // SAFETY: the request for this slot has arrived, no other uses it.
            buffer[..n].copy_from_slice(unsafe { region.bytes(at, n) });
        }
        self.consumed(offset + n as u64);
        Ok(n)
    }

    /// Waits until `offset`, which the window covers, has arrived in its first slot. Returns how
    /// many bytes there are; `None` if there are none and the window is gone: at the end of the
    /// file, or after an error.
    fn arrive(&mut self, offset: u64) -> io::Result<Option<usize>> {
        // Skipped over by a short seek forward.
        while self
            .ahead
            .front()
            .is_some_and(|f| offset >= f.offset + f.asked as u64)
        {
            self.retire_front();
        }
        self.read_on()?;
        while self.ahead.front().is_some_and(|f| f.got.is_none()) {
            let begun = Instant::now();
            self.reap(true)?;
            self.back.stats.stalls += 1;
            self.back.stats.stall_time += begun.elapsed();
        }
        match self.ahead.front() {
            Some(first) if !first.failed && offset < first.end() => {
                Ok(Some((first.end() - offset) as usize))
            }
            _ => {
                self.collapse();
                Ok(None)
            }
        }
    }

    /// The caller has everything before `offset`.
    fn consumed(&mut self, offset: u64) {
        let finished = self
            .ahead
            .front()
            .is_some_and(|first| first.got == Some(first.asked) && offset >= first.end());
        if finished {
            self.retire_front();
            self.widen();
            // The caller has its bytes whatever becomes of the next ones; the read that wants those
            // meets an error again.
            let _ = self.read_on();
        }
    }

    /// The caller does go on: look further.
    fn widen(&mut self) {
        let most = self.back.memory().map_or(0, Region::len);
        self.window = (self.window * 2).min(most);
    }

    fn retire_front(&mut self) {
        if let Some(first) = self.ahead.pop_front() {
            match first.got {
                Some(_) => self.slots.push(first.slot),
                None => self.dying.push(first),
            }
        }
    }

    /// Gives up the window.
    fn collapse(&mut self) {
        self.closing = false;
        if self.ahead.is_empty() {
            return;
        }
        let expected = self.expected;
        let unused = |a: &Ahead| a.end().saturating_sub(a.offset.max(expected));
        self.back.stats.unused_read_ahead += self.ahead.iter().map(unused).sum::<u64>();
        while !self.ahead.is_empty() {
            self.retire_front();
        }
        self.window = (self.window / 2).max(FIRST_WINDOW);
    }

    /// Waits for requests whose data nobody wants any more.
    fn reap_unwanted(&mut self) -> io::Result<()> {
        while !self.dying.is_empty() {
            self.reap(true)?;
        }
        Ok(())
    }

    /// A read that the window does not cover.
    fn read_uncovered(&mut self, buffer: &mut [u8], offset: u64, fresh: bool) -> io::Result<usize> {
        if !self.goes_in_sequence(offset, fresh) {
            return self.read_scattered(buffer, offset);
        }
        if self.bad.contains(&offset) || self.would_drop() || !self.ensure_memory() {
            return self.read_plain(buffer, offset);
        }
        if !self.leaves_page_cache(offset) {
            return self.read_gathered(buffer, offset);
        }
        if let Some(n) = self.read_zero_copy(buffer, offset)? {
            self.widen();
            return Ok(n);
        }
        self.open_window(offset)?;
        match self.covered(offset) {
            true => self.take(buffer, offset),
            false => self.read_plain(buffer, offset),
        }
    }

    /// Counts a read that the window does not cover. Returns true if it is one of a sequence.
    fn goes_in_sequence(&mut self, offset: u64, fresh: bool) -> bool {
        if offset == self.expected && fresh {
            self.sequential = self.sequential.saturating_add(1);
        } else {
            self.sequential = 0;
            self.collapse();
        }
        let left = self.back.facts.size.saturating_sub(offset);
        // A stream that begins where it was opened in a large file is taken for sequential at
        // once: a buffered first read would make the kernel read ahead as well.
        self.sequential >= 2 || (self.sequential == 1 && left >= 4 * SMALL_FILE)
    }

    /// Returns true if direct read-ahead is due, of a read in sequence.
    fn leaves_page_cache(&mut self, offset: u64) -> bool {
        let size = self.back.facts.size;
        // At the end, the read that is made anyway says whether the file has grown.
        self.back.is_direct() && size >= SMALL_FILE && offset < size && !self.is_cached(offset)
    }

    /// Opens the window at `offset`, before the end of the file.
    fn open_window(&mut self, offset: u64) -> io::Result<()> {
        self.collapse();
        self.send(offset - offset % self.back.facts.granule)?;
        self.read_on()
    }

    /// Through the page cache, a system call for many small reads.
    fn read_gathered(&mut self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let chunk = CACHED_CHUNK.min(self.back.block);
        if buffer.len() >= chunk / 2 {
            return self.read_plain(buffer, offset);
        }
        match self.gather(offset, chunk)? {
            0 => Ok(0),
            _ => self.take(buffer, offset),
        }
    }

    /// Fills one slot from the page cache.
    fn gather(&mut self, offset: u64, len: usize) -> io::Result<usize> {
        self.collapse();
        let slot = self.free_slot()?;
        let Some(region) = self.back.memory() else {
            return Ok(0);
        };
        let memory = region.at(slot * self.back.block);
        // SAFETY: the slot is free, so the bytes are in the region and nobody else's.
        let n = match unsafe { self.read_page_cache(memory, len, offset) } {
            Ok(n) if n > 0 => n,
            other => {
                self.slots.push(slot);
                return other;
            }
        };
        let id = self.next_id();
        self.ahead.push_back(Ahead {
            id,
            slot,
            offset,
            asked: n,
            got: Some(n),
            failed: false,
        });
        Ok(n)
    }

    fn read_plain(&mut self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        // SAFETY: the memory is the caller's for this call.
        unsafe { self.read_page_cache(buffer.as_mut_ptr(), buffer.len(), offset) }
    }

    /// One read through the page cache.
    ///
    /// # Safety
    /// `memory` must be writable for `len` bytes during the call.
    unsafe fn read_page_cache(
        &mut self,
        memory: *mut u8,
        len: usize,
        offset: u64,
    ) -> io::Result<usize> {
        let fd = self.back.file.as_raw_fd();
        // SAFETY: passed on from the caller.
        let read = |flags| unsafe { sys::pread_raw(fd, memory, len, offset, flags) };
        let flags = self.back.pilot.flags();
        let n = match read(flags) {
            Err(error) if flags != 0 && error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                self.back.pilot.forbid(Strategy::DontCache);
                read(0)?
            }
            result => result?,
        };
        self.back.stats.requests += 1;
        self.back.stats.buffered_bytes += n as u64;
        if n > 0 && offset >= self.back.facts.size && self.back.is_direct() {
            // What comes next may be read ahead. If the kernel does not tell, it is not.
            let _ = self.ask_size();
        }
        Ok(n)
    }

    /// A small read elsewhere is no sample of what the stream does in sequence. A few do not spoil a slice.
    fn jumped(&mut self) {
        self.jumps += 1;
        if self.jumps * JUMP <= self.back.pilot.slice_bytes() {
            return;
        }
        (self.jumps, self.run) = (0, 0);
        self.back.pilot.interrupt();
        if self.back.pilot.abandon() {
            self.closing = true;
        }
    }

    /// A read at an unrelated offset: no read-ahead, the cheaper of the two ways.
    fn read_scattered(&mut self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let small_file = self.back.facts.size < SMALL_FILE;
        if buffer.len() < LARGE {
            self.jumped();
        }
        self.scattered.enter();
        let use_direct = self.scattered.strategy() == Strategy::Direct
            || (buffer.len() >= LARGE && self.back.is_direct());
        let n = if use_direct && !small_file && self.ensure_memory() {
            match self.read_zero_copy(buffer, offset)? {
                Some(n) => n,
                None => self.read_bounced(buffer, offset)?,
            }
        } else {
            self.read_plain(buffer, offset)?
        };
        if buffer.len() < LARGE && !small_file && self.scattered.count(n as u64) {
            self.scattered.next();
        }
        Ok(n)
    }

    /// One direct read of the granules around the range, in the calling thread.
    fn read_bounced(&mut self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let align = self
            .back
            .facts
            .alignment
            .map_or(1, |a| u64::from(a.offset).max(u64::from(a.memory)));
        let from = offset - offset % align;
        let skip = (offset - from) as usize;
        let len = (skip + buffer.len())
            .next_multiple_of(align as usize)
            .min(self.back.block);
        let slot = self.free_slot()?;
        let (Some(region), Some(direct)) = (self.back.memory(), &self.back.direct) else {
            self.slots.push(slot);
            return self.read_plain(buffer, offset);
        };
        let at = slot * self.back.block;
        // SAFETY: the slot is free, so the bytes are in the region and nobody else's.
        let result = unsafe { sys::pread_raw(direct.as_raw_fd(), region.at(at), len, from, 0) };
        let n = result
            .as_ref()
            .map_or(0, |&n| n.saturating_sub(skip).min(buffer.len()));
        if n > 0 {
            // SAFETY: as above; the read is over.
            buffer[..n].copy_from_slice(unsafe { region.bytes(at + skip, n) });
        }
        self.slots.push(slot);
        self.back.stats.requests += 1;
        self.back.stats.direct_bytes += n as u64;
        match result {
            Ok(_) if n > 0 => Ok(n),
            // At the end of the file, or refused: the page cache has the exact answer.
            result => {
                if result.as_ref().is_err_and(is_refusal) {
                    self.forbid_direct();
                }
                self.read_plain(buffer, offset)
            }
        }
    }

    /// The descriptor stays open: to close it would drop the record locks that the process has on the file.
    pub(crate) fn forbid_direct(&mut self) {
        self.back.pilot.forbid(Strategy::Direct);
        self.scattered.forbid(Strategy::Direct);
    }

    /// Returns true if the page cache holds most of what comes next.
    fn is_cached(&mut self, offset: u64) -> bool {
        if offset < self.asked_until && self.asked_until - offset <= RESIDENCY_STEP {
            return offset < self.cached_until;
        }
        let len = RESIDENCY.min(self.back.facts.size.saturating_sub(offset));
        self.asked_until = offset + len.min(RESIDENCY_STEP);
        let cached = mostly_cached(self.back.file.as_fd(), offset, self.back.facts.size);
        self.cached_until = if cached { self.asked_until } else { 0 };
        cached
    }

    fn ask_size(&mut self) -> io::Result<()> {
        if self.back.facts.kind == FileKind::Regular {
            self.back.facts.size = self.back.file.metadata()?.len();
        }
        Ok(())
    }

    /// Sends requests until the window is full.
    fn read_on(&mut self) -> io::Result<()> {
        if self.closing || !self.back.is_direct() || self.ahead.is_empty() {
            return Ok(());
        }
        self.reap(false)?;
        loop {
            let in_flight = self.ahead.iter().filter(|a| a.got.is_none()).count();
            let held: usize = self.ahead.iter().map(|a| a.asked).sum();
            let Some(last) = self.ahead.back() else {
                return Ok(());
            };
            let next = last.offset + last.asked as u64;
            let whole = (last.asked as u64).is_multiple_of(self.back.facts.granule)
                && last.got.is_none_or(|n| n == last.asked);
            let full = held >= self.window || in_flight >= self.back.depth || self.slots.is_empty();
            if full
                || !whole
                || next >= self.back.facts.size
                || !next.is_multiple_of(self.back.facts.granule)
            {
                return Ok(());
            }
            if self.is_cached(next) {
                // From there on the page cache is the better source; see `read_uncovered`.
                return Ok(());
            }
            self.send(next)?;
        }
    }

    fn send(&mut self, offset: u64) -> io::Result<()> {
        let slot = self.free_slot()?;
        // Up to the end of a block, so that requests line up after the first.
        let block = self.back.block as u64;
        let granule = self.back.facts.granule;
        let most = (block - offset % block).min((self.window as u64 / 2).max(granule));
        let left = (self.back.facts.size - offset).next_multiple_of(granule);
        let asked = (most - most % granule).max(granule).min(left) as usize;
        let id = self.next_id();
        self.ahead.push_back(Ahead {
            id,
            slot,
            offset,
            asked,
            got: None,
            failed: false,
        });
        let memory = self.back.memory().map(|r| r.at(slot * self.back.block));
        self.submit(id, memory.unwrap_or(std::ptr::null_mut()), asked, offset)
    }

    fn submit(&mut self, id: u64, memory: *mut u8, len: usize, offset: u64) -> io::Result<()> {
        self.back.stats.requests += 1;
        let request = Request {
            id,
            memory,
            len,
            offset,
        };
        let submitted = match self.back.engine() {
            // SAFETY: the slot is nobody else's until the request has arrived; the caller's memory
            // is waited for in `read_zero_copy`.
            Some(engine) => unsafe { engine.submit(request) },
            None => Err(io::ErrorKind::OutOfMemory.into()),
        };
        if let Err(error) = submitted {
            self.complete(Completion {
                id,
                result: Err(error),
            });
        }
        Ok(())
    }

    fn reap(&mut self, wait: bool) -> io::Result<bool> {
        let mut any = false;
        loop {
            let Some(completion) = self.back.completion(wait && !any)? else {
                return Ok(any);
            };
            any = true;
            self.complete(completion);
        }
    }

    fn complete(&mut self, completion: Completion) {
        if let Some(i) = self.dying.iter().position(|a| a.id == completion.id) {
            let gone = self.dying.swap_remove(i);
            self.slots.push(gone.slot);
            return;
        }
        let Some(ahead) = self.ahead.iter_mut().find(|a| a.id == completion.id) else {
            return;
        };
        match completion.result {
            Ok(n) => {
                ahead.got = Some(n);
                self.back.stats.direct_bytes += n as u64;
            }
            Err(error) => {
                // Nobody has asked for it yet. The read that does will be a plain one, and returns the
                // error if it is still there.
                ahead.got = Some(0);
                ahead.failed = true;
                match is_refusal(&error) {
                    true => self.forbid_direct(),
                    false => self.bad = ahead.offset..ahead.offset + ahead.asked as u64,
                }
            }
        }
    }

    fn free_slot(&mut self) -> io::Result<usize> {
        loop {
            if let Some(slot) = self.slots.pop() {
                return Ok(slot);
            }
            if !self.reap(true)? {
                // Everything has arrived and is held by the window.
                self.collapse();
            }
        }
    }

    fn next_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Reads straight into large, aligned memory of the caller. `None` if it does not qualify.
    fn read_zero_copy(&mut self, buffer: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
        let granule = self.back.facts.granule;
        let memory_align = self.back.facts.alignment.map_or(1, |a| a.memory as usize);
        let qualifies = buffer.len() >= MEDIUM_CALL.max(granule as usize)
            && self.back.is_direct()
            && offset.is_multiple_of(granule)
            && (buffer.as_ptr() as usize).is_multiple_of(memory_align)
            && offset < self.back.facts.size;
        if qualifies {
            self.back.pilot.large_calls(buffer.len());
        }
        if !qualifies || !self.back.pilot.zero_copy(buffer.len()) {
            return Ok(None);
        }
        // Direct I/O fills the whole block that the file ends in, and what was allocated behind it. Behind
        // the count that a read returns the caller's memory stays as it was, so that block is copied.
        let left = self.back.facts.size - offset;
        let len = left.min(buffer.len() as u64);
        let len = (len - len % granule) as usize;
        if len == 0 {
            return Ok(None);
        }
        self.collapse();
        self.reap_unwanted()?;
        let part = (len / self.back.depth)
            .next_multiple_of(self.back.block)
            .min(4 * self.back.block);
        if len <= part {
            // A single request that is waited for: the engine would only add to it.
            return Ok(self.read_direct(&mut buffer[..len], offset));
        }
        let mut at = 0;
        let memory = buffer.as_mut_ptr();
        while at < len || self.ahead.iter().any(|a| a.got.is_none()) {
            let in_flight = self.ahead.iter().filter(|a| a.got.is_none()).count();
            if at < len && in_flight < self.back.depth {
                let n = part.min(len - at);
                let id = self.next_id();
                self.ahead.push_back(Ahead {
                    id,
                    slot: usize::MAX,
                    offset: offset + at as u64,
                    asked: n,
                    got: None,
                    failed: false,
                });
                self.submit(id, memory.wrapping_add(at), n, offset + at as u64)?;
                at += n;
            } else if let Err(error) = self.reap(true) {
                // No way to give the memory back safely.
                eprintln!("pdio: cannot wait for I/O in flight on the caller's memory: {error}");
                std::process::abort();
            }
        }
        let mut done = 0;
        for part in self.ahead.drain(..) {
            done += part.got.unwrap_or(0);
            if part.failed || part.got != Some(part.asked) {
                break;
            }
        }
        self.back.stats.zero_copy_bytes += done as u64;
        // At the end of the file, or after an error: the page cache has the exact answer.
        Ok((done > 0).then_some(done))
    }

    /// One direct read into aligned memory of the caller. `None` at the end of the file, or after an error:
    /// the page cache has the exact answer.
    fn read_direct(&mut self, buffer: &mut [u8], offset: u64) -> Option<usize> {
        let direct = self.back.direct.as_ref()?;
        let result = sys::pread(direct.as_fd(), buffer, offset, 0);
        self.back.stats.requests += 1;
        if result.as_ref().is_err_and(is_refusal) {
            self.forbid_direct();
        }
        let done = result.ok().filter(|&n| n > 0)?;
        self.back.stats.direct_bytes += done as u64;
        self.back.stats.zero_copy_bytes += done as u64;
        Some(done)
    }

    /// For `BufRead`: the bytes at `offset`, at least one unless at the end of the file.
    pub(crate) fn fill(&mut self, offset: u64) -> io::Result<&[u8]> {
        let fresh = self.catch_up(offset, 1);
        if !self.ensure_memory() {
            return self.fill_little(offset, fresh);
        }
        if self.closing || self.looked_at == 0 {
            self.enter(offset, 1);
        }
        // A caller of `fill_buf` takes what there is and reads on: whole blocks from the start.
        self.window = self.window.max(2 * self.back.block);
        if !self.covered(offset) {
            // Nothing is read here, be it a byte: some files of the kernel give what they have only once.
            if !self.goes_in_sequence(offset, fresh) {
                self.jumped();
            } else if !self.bad.contains(&offset)
                && !self.would_drop()
                && self.leaves_page_cache(offset)
            {
                self.open_window(offset)?;
            }
        }
        let mut available = match self.covered(offset) {
            true => self.arrive(offset)?,
            false => None,
        };
        if available.is_none() {
            let chunk = CACHED_CHUNK.min(self.back.block);
            available = match self.gather(offset, chunk)? {
                0 if self.goes_on(offset)? => Some(self.gather(offset, chunk)?),
                n => Some(n),
            };
        }
        let n = available.unwrap_or(0);
        match (self.ahead.front(), self.back.memory()) {
            // SAFETY: the request for this slot has arrived, and the borrow keeps the stream from
            // using it again.
            (Some(first), Some(region)) => Ok(unsafe {
                region.bytes(
                    first.slot * self.back.block + (offset - first.offset) as usize,
                    n,
                )
            }),
            _ => Ok(&[]),
        }
    }

    /// For `BufRead`: the caller has so many bytes at `offset`. Returns how many; more than were there nobody may
    /// ask for, and more than that there never are.
    pub(crate) fn consume(&mut self, offset: u64, n: usize) -> u64 {
        let n = n.min(self.back.memory().map_or(LITTLE, Region::len)) as u64;
        self.expected = offset + n;
        self.back.stats.bytes += n;
        self.run = self.run.saturating_add(n);
        self.looked_at += n;
        if self.looked_at >= LOOKED_AT {
            let bytes = std::mem::take(&mut self.looked_at);
            if !self.closing {
                self.count(bytes);
            }
        }
        n
    }

    /// As `fill`, of a stream that has no memory to read ahead in: every call goes to the kernel.
    fn fill_little(&mut self, offset: u64, fresh: bool) -> io::Result<&[u8]> {
        let mut little = std::mem::take(&mut self.little);
        little.resize(LITTLE, 0);
        let result = self.read_part(&mut little, offset, fresh);
        self.little = little;
        Ok(&self.little[..result?.unwrap_or(0)])
    }
}
