// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a writing stream takes bytes: gathered in memory and sent as large requests, or directly
//! from the caller's memory.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::Ordering;

use crate::align::FileKind;
use crate::memory::{write_ring, Region};
use crate::options::{Durability, Strategy};
use crate::policy::MEDIUM_CALL;
use crate::requests::{unsupported, Core, State, WRITE_BEHIND};
use crate::sys;

/// A remainder below this many bytes is cheaper through the page cache than as a direct request.
const SMALL: u64 = 64 << 10;
/// Bytes gathered before one buffered write: enough to make the system call cheap, and few enough
/// to stay in the processor's cache between the two copies.
pub(crate) const BUFFERED_CHUNK: usize = 256 << 10;
/// Small writes in a row at unrelated offsets; after one more nothing is staged any more.
const SCATTERED: u32 = 4;

/// What of the data that waits is sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// Requests of full size.
    Full,
    /// All whole granules, and what is less than that if nothing is in flight that goes before.
    Ready,
    /// As `Ready`, and waits for what is in flight if there is no place for more.
    All,
}

impl Core {
    pub(crate) fn write(&mut self, data: &[u8], offset: u64) -> io::Result<usize> {
        self.owed()?;
        if !self.is_scattered() {
            self.back.pilot.enter();
        }
        let data = &data[..self.back.pilot.share(data.len())];
        let written = match self.durability {
            Durability::Process => self.write_staged(data, offset)?,
            Durability::Safe | Durability::Sync => self.write_now(data, offset)?,
        };
        self.back.stats.bytes += written as u64;
        if self.is_scattered() {
            self.back.pilot.interrupt();
        } else {
            self.count(written as u64);
        }
        Ok(written)
    }

    /// Takes the data, to write it later.
    fn write_staged(&mut self, data: &[u8], offset: u64) -> io::Result<usize> {
        if self.is_scattered()
            && offset != self.end
            && data.len() < SMALL as usize
            && self.freed == self.end
        {
            // One more scattered write, and nothing waits that has to be written before it.
            let n = self.write_page_cache(data, offset, 0)?;
            self.begin(offset + n as u64);
            return Ok(n);
        }
        self.retry_failed();
        if offset == self.end {
            self.scattered = 0;
        } else if offset >= self.issued && offset < self.end {
            // Inside the waiting data, as when a header is filled in.
            let n = data.len().min((self.end - offset) as usize);
            self.copy_in(offset, &data[..n]);
            return Ok(n);
        } else {
            if data.len() < SMALL as usize {
                self.scattered = self.scattered.saturating_add(1);
            }
            self.hand_over()?;
            self.begin(offset);
        }
        // To gather large calls for the page cache would only add a copy. With `RWF_DONTCACHE` each begins to be
        // written back at once.
        let least = match self.back.pilot.strategy() {
            Strategy::Buffered => SMALL,
            Strategy::DontCache => 4 * SMALL,
            _ => u64::MAX,
        };
        let passed_on = data.len() as u64 >= least;
        let scattered = self.is_scattered();
        if passed_on || scattered || !self.back.ensure_memory() {
            // Also where writes have just become scattered and nothing is staged.
            self.hand_over()?;
            let flags = if scattered {
                0
            } else {
                self.back.pilot.flags()
            };
            let n = self.write_page_cache(data, offset, flags)?;
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
        if !(large && self.back.is_direct() && self.back.ensure_memory()) {
            let flags = self.back.pilot.flags() | if sync { libc::RWF_DSYNC } else { 0 };
            let n = match self.write_page_cache(data, offset, flags) {
                Err(error) if sync && unsupported(&error) => {
                    let n = self.write_page_cache(data, offset, 0)?;
                    self.back.file.sync_data()?;
                    self.owed()?;
                    n
                }
                result => result?,
            };
            // A trial waits until what it wrote is on the device.
            self.begin(offset + n as u64);
            return Ok(n);
        }
        self.begin(offset);
        let n = match self.write_zero_copy(data, offset)? {
            Some(n) => n,
            None => {
                let n = self.append(data);
                match self.hand_over() {
                    Ok(()) => n,
                    Err(error) => {
                        // What is under way before the one that failed gets there, too.
                        self.settle();
                        let to = self.written_to();
                        // The rest was not acknowledged, so it is not kept.
                        self.discard();
                        match (to - offset) as usize {
                            0 => return Err(error),
                            // The caller will write the rest, and get the error then.
                            n => n,
                        }
                    }
                }
            }
        };
        if let Err(error) = self.owed() {
            self.discard();
            return Err(error);
        }
        if sync {
            self.back.file.sync_data()?;
        }
        Ok(n)
    }

    /// Returns true if the latest writes were small and scattered over the file.
    fn is_scattered(&self) -> bool {
        self.scattered > SCATTERED
    }

    /// Copies into the run at `offset`. No request may be using that memory.
    fn copy_in(&mut self, offset: u64, mut data: &[u8]) {
        let base = self.base;
        let Some(region) = self.back.memory() else {
            return;
        };
        let held = self.freed..self.end;
        let fd = self.back.file.as_fd();
        let _underway = self.copying.begin(fd, region, base, held);
        let mut at = ((offset - base) % region.len() as u64) as usize;
        while !data.is_empty() {
            let n = data.len().min(region.len() - at);
            // SAFETY: bytes from `issued` on are in no request.
            unsafe { region.fill(at, &data[..n]) };
            data = &data[n..];
            at = 0;
        }
    }

    /// Stages data at the end of the run. Returns how much was taken: less than all only if an
    /// error was deferred.
    fn append(&mut self, data: &[u8]) -> usize {
        let len = self.back.memory().map_or(0, Region::len) as u64;
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
                if let Err(error) = self.issue(Extent::Full) {
                    self.deferred = Some(error);
                }
            }
        }
        data.len() - rest.len()
    }

    /// Where in the memory data for `offset` can be put, and how many bytes, at most `most`; `None`
    /// if nothing can be staged.
    pub(crate) fn room(&mut self, most: usize, offset: u64) -> io::Result<Option<(usize, usize)>> {
        self.owed()?;
        self.retry_failed();
        if offset != self.end {
            self.hand_over()?;
            self.begin(offset);
        }
        if self.is_scattered() || !self.back.ensure_memory() {
            return Ok(None);
        }
        let len = self.back.memory().map_or(0, Region::len) as u64;
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

    /// Stages the data that `fill` puts into the memory that [`room`](Core::room) has found.
    pub(crate) fn append_with(
        &mut self,
        at: usize,
        len: usize,
        fill: impl FnOnce(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        self.back.pilot.enter();
        let Some(region) = self.back.memory() else {
            return Ok(0);
        };
        assert!(at + len <= region.len());
        // SAFETY: inside the region, whose pages the kernel has initialised; in no request, as
        // these bytes are between `end` and, once around the ring, `freed`; and nobody else
        // accesses the region while this stream is borrowed, which is at least as long as the slice
        // lives.
        let room = unsafe { std::slice::from_raw_parts_mut(region.at(at), len) };
        let n = fill(room)?.min(len);
        self.end += n as u64;
        if n > 0 && self.end.is_multiple_of(self.chunk()) {
            if let Err(error) = self.issue(Extent::Full) {
                self.deferred = Some(error);
            }
        }
        self.back.stats.bytes += n as u64;
        self.count(n as u64);
        Ok(n)
    }

    /// Bytes that are gathered before they are sent.
    fn chunk(&self) -> u64 {
        if self.back.is_direct() {
            self.back.block as u64
        } else {
            BUFFERED_CHUNK.min(self.back.block) as u64
        }
    }

    fn make_room(&mut self) {
        let result = self.issue(Extent::Full).and_then(|()| {
            if self.freed + self.back.memory().map_or(0, Region::len) as u64 > self.end {
                return Ok(());
            }
            self.stall()?;
            // Before copying goes on, as the device is idle.
            self.issue(Extent::Full)
        });
        if let Err(error) = result {
            self.deferred = Some(error);
        }
    }

    /// Sends what waits, so far.
    fn issue(&mut self, extent: Extent) -> io::Result<()> {
        let all = extent != Extent::Full;
        if !self.back.is_direct() {
            return self.issue_buffered();
        }
        let granule = self.back.facts.granule;
        let region_len = self.back.memory().map_or(0, Region::len) as u64;
        let block = self.back.block as u64;
        loop {
            // Small remainders go through the page cache, if nothing is in flight.
            if all && self.sent.is_empty() && self.end - self.issued < SMALL {
                return self.issue_page_cache(self.end, 0);
            }
            if !self.issued.is_multiple_of(granule) {
                let head_end = (self.issued + granule - self.issued % granule).min(self.end);
                if !head_end.is_multiple_of(granule) && !all {
                    return Ok(());
                }
                if extent == Extent::Ready && self.in_flight() {
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
            if self.sent.is_empty() && self.back.facts.kind == FileKind::Regular {
                // Another process may have truncated the file.
                self.size = self.back.file.metadata()?.len();
            }
            let chained = self.is_chained(self.issued + available);
            let at = (self.issued - self.base) % region_len;
            let (depth, most) = if chained {
                let half = region_len / 2;
                (1 + usize::from(self.can_chain()), half - at % half)
            } else {
                (self.back.depth, block)
            };
            // A chain gathers until its request is the next. Nothing overtakes a failed one.
            let failed = self.sent.iter().any(|s| s.state == State::Failed);
            if chained && !all && (failed || (!self.sent.is_empty() && available < most)) {
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
            let waits = |core: &Core| core.sent.len() >= depth || core.no_room.is_some();
            if waits(self) && !self.reap(false)? {
                if extent != Extent::All {
                    return Ok(());
                }
                self.stall()?;
            }
            if let Some(error) = self.deferred.take() {
                return Err(error);
            }
            if waits(self) {
                continue;
            }
            self.reserve(self.issued + len);
            let memory = self.back.memory().map(|r| r.at(at as usize));
            let Some(memory) = memory else { return Ok(()) };
            let offset = self.issued;
            self.issued += len;
            self.send(memory, offset, len as usize)?;
        }
    }

    /// Sends everything through the page cache.
    fn issue_buffered(&mut self) -> io::Result<()> {
        self.drain()?;
        self.issue_page_cache(self.end, self.back.pilot.flags())?;
        // Use the same memory again, which is in the processor's cache.
        self.begin(self.end);
        Ok(())
    }

    /// Writes `[issued, to)` from memory through the page cache.
    fn issue_page_cache(&mut self, to: u64, flags: i32) -> io::Result<()> {
        while self.issued < to {
            let Some(region) = self.back.memory() else {
                return Ok(());
            };
            let at = ((self.issued - self.base) % region.len() as u64) as usize;
            let len = ((to - self.issued) as usize).min(region.len() - at);
            let memory = region.at(at);
            // SAFETY: the bytes are in the region, and no request writes there; the slice ends with
            // this call, during which the region stays.
            let data = unsafe { std::slice::from_raw_parts(memory, len) };
            let n = self.write_page_cache(data, self.issued, flags)?;
            self.issued += n as u64;
            if self.sent.is_empty() {
                self.freed = self.issued;
            }
        }
        Ok(())
    }

    /// Writes `[freed, end)` through the page cache. Does not change the stream.
    pub(crate) fn write_held(&self) -> io::Result<()> {
        let Some(region) = self.back.memory() else {
            return Ok(());
        };
        let (fd, held) = (self.back.file.as_fd(), self.freed..self.end);
        // SAFETY: the region is the stream's, and nobody writes to it while the stream is locked.
        unsafe { write_ring(fd, region.at(0), region.len(), self.base, held) }
    }

    /// Sends large, aligned memory of the caller without a copy, and waits for it. Returns `None`
    /// if the memory does not qualify.
    fn write_zero_copy(&mut self, data: &[u8], offset: u64) -> io::Result<Option<usize>> {
        let granule = self.back.facts.granule;
        let memory_align = self.back.facts.alignment.map_or(1, |a| a.memory as usize);
        // A granule may be larger than such a call: on XFS with `largeio` it is the stripe.
        let qualifies = data.len() >= MEDIUM_CALL.max(granule as usize)
            && self.back.is_direct()
            && offset.is_multiple_of(granule)
            && (data.as_ptr() as usize).is_multiple_of(memory_align);
        if qualifies {
            self.back.pilot.large_calls(data.len());
        }
        if !qualifies || !self.back.pilot.zero_copy(data.len()) {
            return Ok(None);
        }
        // Earlier data goes first.
        self.hand_over()?;
        let len = data.len() - data.len() % granule as usize;
        let several = len > self.back.block;
        if several && offset + len as u64 <= self.size && self.back.facts.kind == FileKind::Regular
        {
            // Somebody may have truncated the file, and where it grows one request goes after the other.
            self.size = self.back.file.metadata()?.len();
        }
        let chained = self.is_chained(offset + len as u64);
        let part = match chained {
            true => len,
            false => (len / self.back.depth).next_multiple_of(self.back.block),
        };
        self.reserve(offset + len as u64);
        let direct_before = self.back.stats.direct_bytes;
        let mut at = 0;
        let mut result = Ok(());
        while result.is_ok() && self.deferred.is_none() && (at < len || !self.sent.is_empty()) {
            let depth = if chained { 1 } else { self.back.depth };
            if at < len && self.sent.len() < depth && self.no_room.is_none() {
                let n = part.min(len - at);
                let memory = data[at..].as_ptr() as *mut u8;
                result = match chained {
                    true => self.send_and_wait(memory, offset + at as u64, n),
                    false => self.send(memory, offset + at as u64, n),
                };
                at += n;
            } else {
                result = self.reap(true).map(drop);
            }
        }
        // After this call the memory belongs to the caller again, even after an error.
        while self.in_flight() {
            if let Err(error) = self.reap(true) {
                // With requests in flight the memory cannot be given back.
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
        let direct = self.back.stats.direct_bytes - direct_before;
        self.back.stats.zero_copy_bytes += direct.min(done as u64);
        let error = self.deferred.take().or(result.err());
        match error {
            // The caller will write the rest, and get the error then.
            Some(error) if done == 0 => Err(error),
            _ => Ok(Some(done)),
        }
    }

    /// As `Writer::write_uncopied`; `done` is how much was written, also after an error.
    pub(crate) fn write_uncopied(
        &mut self,
        data: &[u8],
        offset: u64,
        done: &mut u64,
    ) -> io::Result<bool> {
        let (Some(align), Some(direct)) = (self.back.facts.alignment, self.back.direct.clone())
        else {
            return Ok(false);
        };
        let block = align.offset as usize;
        if !(data.len().is_multiple_of(block)
            && offset.is_multiple_of(block as u64)
            && (data.as_ptr() as usize).is_multiple_of(align.memory as usize))
        {
            return Ok(false);
        }
        self.push()?;
        self.begin(offset);
        if offset + data.len() as u64 > self.size {
            self.reserve(offset + data.len() as u64);
        }
        let mut rest = data;
        let mut copied = 0;
        let mut result = Ok(());
        while !rest.is_empty() && result.is_ok() {
            let to = self.end;
            // A full disk or a limit may cut a request where no direct one is aligned after it. What comes then
            // is written, or returns the reason.
            let aligned = to.is_multiple_of(block as u64);
            let written = match aligned {
                true => {
                    self.back.stats.requests += 1;
                    // SAFETY: the caller's memory is valid through this call, which waits.
                    unsafe { sys::pwrite_raw(direct.as_raw_fd(), rest.as_ptr(), rest.len(), to, 0) }
                }
                false => self.write_page_cache(rest, to, 0),
            };
            result = match written {
                Ok(0) => Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => {
                    copied += if aligned { 0 } else { n as u64 };
                    rest = &rest[n..];
                    self.begin(to + n as u64);
                    Ok(())
                }
                Err(error) => Err(error),
            };
        }
        self.inode.written();
        *done = self.end - offset;
        self.size = self.size.max(self.end);
        self.back.stats.bytes += *done;
        self.back.stats.direct_bytes += *done - copied;
        self.back.stats.zero_copy_bytes += *done - copied;
        match result {
            Ok(()) if self.durability == Durability::Sync => self.back.file.sync_data()?,
            // The filesystem promised direct I/O and refuses it.
            Err(error) if *done == 0 && unsupported(&error) => return Ok(false),
            result => result?,
        }
        Ok(true)
    }

    /// Takes completions, and sends full requests; if data has `aged`, all of it. Does not wait for direct
    /// requests: the caller of the stream would have to wait as well.
    pub(crate) fn send_ready(&mut self, aged: bool) -> io::Result<()> {
        self.retry_failed();
        self.reap(false)?;
        if !self.back.is_direct() && self.in_flight() {
            // Direct requests were given up with these under way, and what goes on must not overtake them.
            return Ok(());
        }
        match aged {
            true => {
                self.no_wait = true;
                let result = self.issue(Extent::Ready);
                self.no_wait = false;
                result?;
            }
            false if self.back.is_direct() => self.issue(Extent::Full)?,
            false => {}
        }
        if self.sent.is_empty() && self.issued == self.end {
            // Use the same memory again.
            self.begin(self.end);
        }
        Ok(())
    }

    /// Passes everything to the kernel, and returns an error that the caller has to be told of.
    pub(crate) fn push(&mut self) -> io::Result<()> {
        self.hand_over()?;
        self.owed()
    }

    /// Passes everything to the kernel. After an error the failed data is kept, and the next call
    /// retries it.
    pub(crate) fn hand_over(&mut self) -> io::Result<()> {
        if let Some(error) = self.deferred.take() {
            return Err(error);
        }
        self.retry_failed();
        if self.issued < self.end {
            self.issue(Extent::All)?;
        }
        self.drain()?;
        if self.issued < self.end {
            self.issue_page_cache(self.end, 0)?;
        }
        self.begin(self.end);
        Ok(())
    }

    fn count(&mut self, bytes: u64) {
        if self.back.pilot.needs_proof(bytes) {
            if let Err(error) = self.drain_slice() {
                self.deferred.get_or_insert(error);
            }
        }
        if self.back.pilot.count(bytes) {
            self.next_slice();
        }
    }

    fn next_slice(&mut self) {
        let mut result = if self.back.pilot.needs_drain() {
            self.drain_slice()
        } else {
            Ok(())
        };
        // Small writes that are not staged go another way, and those of a stream without memory. Half of the slice may
        // be under way.
        if self.back.slice_went_astray(4) {
            self.back.pilot.abandon();
        } else if self.back.pilot.next() {
            result = result.and_then(|()| self.drain_slice());
        }
        if let Err(error) = result {
            self.deferred.get_or_insert(error);
        }
    }

    /// Waits until the slice is on the device, so that no later slice pays for it.
    pub(crate) fn drain_slice(&mut self) -> io::Result<()> {
        self.hand_over()?;
        if !self.back.is_direct() {
            self.wait_for_device(self.end.saturating_sub(4 * WRITE_BEHIND), self.end);
        }
        Ok(())
    }

    /// Reserves blocks up to at least `to`.
    fn reserve(&mut self, to: u64) {
        let reserved_to = self.inode.reserved_to.load(Ordering::Relaxed);
        let from = self.size.max(reserved_to);
        if self.preallocate == 0 || to <= from || self.back.facts.kind != FileKind::Regular {
            return;
        }
        let end = to.saturating_add(self.preallocate);
        let fd = self.back.file.as_fd();
        let result = sys::fallocate_keep_size(fd, 0, from, end.saturating_sub(from));
        // No room, or not supported: the writes will report it.
        let refused = result.as_ref().is_err_and(unsupported);
        if result.is_err() {
            self.preallocate = 0;
        }
        if !refused {
            // Also where there is no room for all: a part may be reserved.
            self.inode.reserved_to.fetch_max(end, Ordering::Relaxed);
        }
    }
}
