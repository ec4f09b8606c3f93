// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state of a writing stream, and its requests: sent, waited for, and retried.
//!
//! A failed request stays in the queue, and no other overtakes it.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::Instant;

use crate::align::FileFacts;
use crate::backing::Backing;
use crate::engine::{Completion, Request};
use crate::files::Inode;
use crate::learned::Operation;
use crate::memory::Copying;
use crate::options::{Durability, OpenOptions, Strategy};
use crate::sys;

/// Dirty bytes that a learned buffered stream leaves in the page cache before it waits for the
/// device.
pub(crate) const WRITE_BEHIND: u64 = 8 << 20;

/// A request between submission and success.
#[derive(Debug)]
pub(crate) struct Sent {
    id: u64,
    pub(crate) memory: *mut u8,
    pub(crate) offset: u64,
    pub(crate) len: usize,
    /// Bytes of the request that are written.
    pub(crate) done: usize,
    /// The state of the rest.
    pub(crate) state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    InFlight,
    /// To be sent again once nothing is in flight, which keeps the order.
    Waiting,
    /// Failed, or behind a failed one; to be sent again after the error was reported.
    Failed,
    /// Written, but not all requests before it are.
    Done,
}

/// The state of a writing stream.
///
/// The run is a contiguous range of the file, `freed <= issued <= end`: the kernel has the bytes
/// before `freed`, those before `issued` are in flight, and the rest waits in memory. Byte `x` of
/// the file lies at `(x - base) % region.len()`.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) back: Backing,
    pub(crate) inode: Arc<Inode>,
    pub(crate) durability: Durability,

    pub(crate) base: u64,
    pub(crate) freed: u64,
    pub(crate) issued: u64,
    pub(crate) end: u64,
    pub(crate) sent: VecDeque<Sent>,
    next_id: u64,
    pub(crate) deferred: Option<io::Error>,
    /// Why a request that waits had no room, while others are in flight; then what fits is written.
    pub(crate) no_room: Option<io::Error>,
    /// An error of writeback that the stream has waited for. Nothing is there to be tried again, and
    /// the kernel has reported it: unlike `deferred` it keeps no data back.
    pub(crate) writeback: Option<io::Error>,
    /// The file's size as far as this stream knows.
    pub(crate) size: u64,
    in_order: bool,
    pub(crate) preallocate: u64,
    /// The offset up to which a learned buffered stream has started writeback.
    pub(crate) behind: u64,
    /// True while the keeper sends, which must not wait for writeback.
    pub(crate) no_wait: bool,
    pub(crate) scattered: u32,
    /// `end` at the keeper's last look, and when that was.
    pub(crate) seen_end: u64,
    pub(crate) seen: Instant,
    pub(crate) copying: Arc<Copying>,
    /// True once direct requests were checked to stay out of the page cache.
    verified: bool,
}

// SAFETY: the raw pointers in `sent` point into the region or, within one call, into the caller's
// memory; they are only passed to the kernel.
unsafe impl Send for Core {}

impl Core {
    pub(crate) fn new(
        file: Arc<File>,
        inherited: Option<Arc<File>>,
        flags: i32,
        facts: FileFacts,
        options: &OpenOptions,
        position: u64,
        inode: Arc<Inode>,
    ) -> Core {
        let size = facts.size;
        let mut core = Core {
            back: Backing::new(file, inherited, flags, facts, options, Operation::Write),
            inode,
            durability: options.durability,
            base: 0,
            freed: 0,
            issued: 0,
            end: 0,
            sent: VecDeque::new(),
            next_id: 0,
            deferred: None,
            no_room: None,
            writeback: None,
            size,
            in_order: options.in_order,
            preallocate: options.preallocate,
            behind: position,
            no_wait: false,
            scattered: 0,
            seen_end: 0,
            seen: Instant::now(),
            copying: Arc::default(),
            verified: false,
        };
        core.begin(position);
        core
    }

    /// Starts a run at `offset`. Nothing may be pending.
    pub(crate) fn begin(&mut self, offset: u64) {
        debug_assert!(self.sent.is_empty() && self.issued == self.end);
        self.base = offset - offset % self.back.block as u64;
        self.freed = offset;
        self.issued = offset;
        self.end = offset;
        self.seen_end = offset;
    }

    /// Waits until nothing is in flight, whatever fails.
    pub(crate) fn settle(&mut self) {
        while self.in_flight() && self.reap(true).is_ok() {}
    }

    /// Where that ends which the kernel has of the run.
    pub(crate) fn written_to(&self) -> u64 {
        let first = self.sent.front();
        first.map_or(self.issued, |s| s.offset + s.done as u64)
    }

    pub(crate) fn discard(&mut self) {
        self.settle();
        self.sent.clear();
        self.deferred = None;
        self.no_room = None;
        self.issued = self.end;
        self.begin(self.end);
    }

    /// The kernel was given everything in another way, or what it was not given is given up: nothing is sent again.
    /// Frees nothing. The memory stays for requests in flight.
    pub(crate) fn let_go(&mut self) {
        self.sent.clear();
        self.issued = self.end;
        self.freed = self.end;
    }

    /// Waits for one completion.
    pub(crate) fn stall(&mut self) -> io::Result<()> {
        let begun = Instant::now();
        let result = self.reap(true);
        self.back.stats.stalls += 1;
        self.back.stats.stall_time += begun.elapsed();
        result.map(drop)
    }

    /// One write through the page cache.
    pub(crate) fn write_page_cache(
        &mut self,
        data: &[u8],
        offset: u64,
        flags: i32,
    ) -> io::Result<usize> {
        let n = match sys::pwrite(self.back.file.as_fd(), data, offset, flags) {
            Err(error) if flags & libc::RWF_DONTCACHE != 0 && unsupported(&error) => {
                self.back.pilot.forbid(Strategy::DontCache);
                sys::pwrite(
                    self.back.file.as_fd(),
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
        self.back.stats.buffered_bytes += n as u64;
        self.back.stats.requests += 1;
        self.size = self.size.max(offset + n as u64);
        self.inode.written();
        self.write_behind(offset + n as u64);
        Ok(n)
    }

    /// Keeps a stream for which the page cache is the best strategy from filling it with dirty
    /// pages: starts writeback of each window, and waits for the window before.
    fn write_behind(&mut self, to: u64) {
        if !self.back.pilot.chose_page_cache() || to < self.behind {
            self.behind = to;
        } else if to - self.behind >= WRITE_BEHIND {
            let (from, fd) = (self.behind, self.back.file.as_fd());
            match sys::sync_file_range(fd, from, to - from, false) {
                Err(error) if is_final(&error) => {
                    self.writeback.get_or_insert(error);
                    // If the kernel has noted it as well, it would report it a second time.
                    self.wait_for_device(from, to);
                }
                // What could not begin now stays in the page cache, and begins later.
                _ => {}
            }
            if let Some(before) = from.checked_sub(WRITE_BEHIND).filter(|_| !self.no_wait) {
                self.wait_for_device(before, from);
            }
            self.behind = to;
        }
    }

    /// Waits until the device has what the page cache holds of `[from, to)`. The kernel reports an
    /// error of writeback once for each open file description, and this is that once: `fsync` would
    /// return success. So the stream keeps it for its caller.
    pub(crate) fn wait_for_device(&mut self, from: u64, to: u64) {
        #[cfg(test)]
        drop(crate::engine::tests::device());
        let fd = self.back.file.as_fd();
        if let Err(error) = sys::sync_file_range(fd, from, to - from, true) {
            self.writeback.get_or_insert(error);
        }
    }

    /// The error that the caller has to be told of, once.
    pub(crate) fn owed(&mut self) -> io::Result<()> {
        match self.deferred.take().or_else(|| self.writeback.take()) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    pub(crate) fn send(&mut self, memory: *mut u8, offset: u64, len: usize) -> io::Result<()> {
        self.enqueue(memory, offset, len);
        self.submit(self.sent.len() - 1)
    }

    /// As `send`, in this thread: for a single request that is waited for anyway, the engine would
    /// only add wake-ups.
    pub(crate) fn send_and_wait(
        &mut self,
        memory: *mut u8,
        offset: u64,
        len: usize,
    ) -> io::Result<()> {
        let Some(direct) = self.back.direct.clone() else {
            return self.send(memory, offset, len);
        };
        let id = self.enqueue(memory, offset, len);
        self.back.stats.requests += 1;
        // SAFETY: the memory of `write_zero_copy`'s caller is valid through this call.
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

    pub(crate) fn can_chain(&mut self) -> bool {
        self.back.engine().is_some_and(|engine| engine.can_chain())
    }

    /// Returns true if requests that end there go one after the other.
    pub(crate) fn is_chained(&self, end: u64) -> bool {
        self.in_order || end > self.size
    }

    pub(crate) fn in_flight(&self) -> bool {
        self.sent.iter().any(|s| s.state == State::InFlight)
    }

    /// Submits the rest of request `i` of the queue.
    fn submit(&mut self, i: usize) -> io::Result<()> {
        let Some(direct) = self.back.direct.clone() else {
            return self.complete_through_page_cache(i);
        };
        self.sent[i].state = State::InFlight;
        let sent = &self.sent[i];
        let chained = self.is_chained(sent.offset + sent.len as u64);
        let request = Request {
            id: sent.id,
            memory: sent.memory.wrapping_add(sent.done),
            len: sent.len - sent.done,
            offset: sent.offset + sent.done as u64,
        };
        self.back.stats.requests += 1;
        let submitted = match self.back.engine() {
            // SAFETY: the memory belongs to the region, in which `copy_in` does not touch sent
            // ranges, or to a caller whose call does not return before the completion.
            Some(engine) if chained => unsafe { engine.submit_chained(request) },
            // SAFETY: as above.
            Some(engine) => unsafe { engine.submit(request) },
            None => Err(io::ErrorKind::OutOfMemory.into()),
        };
        submitted.or_else(|_| {
            // The engine has failed; the system call still works.
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

    /// Takes all completions; with `wait`, at least one. Returns false if there was none.
    pub(crate) fn reap(&mut self, wait: bool) -> io::Result<bool> {
        let mut any = false;
        loop {
            let Some(completion) = self.back.completion(wait && !any)? else {
                return Ok(any);
            };
            any = true;
            self.complete(completion)?;
        }
    }

    fn complete(&mut self, completion: Completion) -> io::Result<()> {
        let Some(i) = self.sent.iter().position(|s| s.id == completion.id) else {
            return Ok(());
        };
        self.inode.written();
        let sent = &mut self.sent[i];
        match completion.result {
            Ok(n) => {
                sent.done += n;
                let (offset, len, done) = (sent.offset, sent.len, sent.done);
                self.back.stats.direct_bytes += n as u64;
                self.size = self.size.max(offset + done as u64);
                if n == 0 {
                    self.fail(i, io::ErrorKind::WriteZero.into());
                } else if done < len {
                    let align = self.back.facts.alignment.map_or(1, |a| a.offset as usize);
                    // A short write: trying the rest shows the reason.
                    match (offset as usize + done) % align {
                        0 => self.sent[i].state = State::Waiting,
                        _ => self.complete_through_page_cache(i)?,
                    }
                } else {
                    self.verify(offset, len);
                }
            }
            Err(error) => match error.raw_os_error() {
                // `ECANCELED` also if the submitting thread has ended, or an earlier request was
                // not carried out.
                Some(libc::EINTR | libc::EAGAIN | libc::ECANCELED) => {
                    self.sent[i].state = State::Waiting;
                }
                Some(libc::EINVAL | libc::EOPNOTSUPP) => {
                    // The filesystem promised direct I/O and refuses it.
                    self.back.pilot.forbid(Strategy::Direct);
                    self.complete_through_page_cache(i)?;
                }
                // Of a caller's memory, as what drivers map: the kernel can read it, and no device.
                Some(libc::EFAULT) => self.complete_through_page_cache(i)?,
                // Nothing is written then. `EFBIG` is no such case: the kernel cuts the request that reaches the limit.
                _ if sys::lacks_room(&error) => {
                    self.sent[i].state = State::Waiting;
                    self.no_room.get_or_insert(error);
                }
                _ => self.fail(i, error),
            },
        }
        self.free();
        self.resume()
    }

    /// Once nothing is in flight, sends waiting requests; none overtakes a failed one.
    fn resume(&mut self) -> io::Result<()> {
        if self.in_flight() {
            return Ok(());
        }
        let waiting: Vec<u64> = self
            .sent
            .iter()
            .filter(|s| s.state == State::Waiting)
            .map(|s| s.id)
            .collect();
        for id in waiting {
            // Indices change when `submit` completes requests.
            let i = self.sent.iter().position(|s| s.id == id);
            let Some(i) = i.filter(|&i| self.sent[i].state == State::Waiting) else {
                continue;
            };
            if self.sent.range(..i).any(|s| s.state == State::Failed) {
                self.sent[i].state = State::Failed;
            } else if self.no_room.is_none() {
                self.submit(i)?;
            } else if !self.in_flight() {
                self.complete_through_page_cache(i)?;
            }
        }
        if !self.in_flight() {
            self.no_room = None;
        }
        Ok(())
    }

    fn complete_through_page_cache(&mut self, i: usize) -> io::Result<()> {
        // What the page cache takes may find no room later, when nobody has the data any more.
        let flags = self.no_room.as_ref().map_or(0, |_| libc::RWF_DSYNC);
        loop {
            let sent = &self.sent[i];
            if sent.done == sent.len {
                break;
            }
            // SAFETY: the request's memory is only read, and valid until the request leaves the
            // queue.
            let data = unsafe {
                std::slice::from_raw_parts(
                    sent.memory.wrapping_add(sent.done),
                    sent.len - sent.done,
                )
            };
            match self.write_page_cache(data, sent.offset + sent.done as u64, flags) {
                Ok(n) => self.sent[i].done += n,
                Err(error) => {
                    let error = self.no_room.take().unwrap_or(error);
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

    /// Sends failed requests once more, after their error was reported.
    pub(crate) fn retry_failed(&mut self) {
        for sent in &mut self.sent {
            if sent.state == State::Failed {
                sent.state = State::Waiting;
            }
        }
        if let Err(error) = self.resume() {
            self.deferred.get_or_insert(error);
        }
    }

    /// Forbids direct writes if the filesystem accepts them but puts them into the page cache: they
    /// cost as much as buffered writes, so gathering is not worth it.
    fn verify(&mut self, offset: u64, len: usize) {
        if self.verified {
            return;
        }
        self.verified = true;
        let resident = sys::resident(self.back.file.as_fd(), offset, len as u64);
        if resident.is_ok_and(|bytes| bytes >= len as u64 / 2) {
            self.back.pilot.forbid(Strategy::Direct);
        }
    }

    /// Waits until nothing is in flight.
    pub(crate) fn drain(&mut self) -> io::Result<()> {
        while self.in_flight() {
            self.stall()?;
        }
        match self.deferred.take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}

/// Returns true if writeback that could not begin for this reason has lost the data.
fn is_final(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EIO) || sys::lacks_room(error)
}

pub(crate) fn unsupported(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EOPNOTSUPP | libc::EINVAL | libc::ENOSYS)
    )
}
