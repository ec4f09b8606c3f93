// SPDX-License-Identifier: MIT OR Apache-2.0
//! Direct I/O of programs that set `O_DIRECT` themselves, where its alignment is not what the file
//! asks for.
//!
//! Each call goes to the kernel as it is, with no lock held: several threads may wait for the disk at a time. Only if
//! the kernel says `EINVAL` it is done over: whole granules through an aligned buffer, still direct; the ends of a
//! write through a second, buffered description, at their exact length.

use core::ffi::c_int;
use core::ptr::NonNull;
use std::alloc::{alloc, dealloc, Layout};
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};

use libc::{iovec, off_t};

use crate::taken::{Aligned, Direction};
use crate::{look, next, report, table};

/// How much goes through the buffer at a time.
const BOUNCE: usize = 1 << 20;

/// Page-aligned memory.
struct Bounce(NonNull<u8>);

const LAYOUT: Layout = match Layout::from_size_align(BOUNCE, 1 << 16) {
    Ok(layout) => layout,
    Err(_) => panic!("a power of two"),
};

impl Bounce {
    fn new() -> Option<Bounce> {
        // SAFETY: the layout has a size.
        NonNull::new(unsafe { alloc(LAYOUT) }).map(Bounce)
    }
}

impl Drop for Bounce {
    fn drop(&mut self) {
        // SAFETY: from `alloc` with this layout.
        unsafe { dealloc(self.0.as_ptr(), LAYOUT) };
    }
}

/// A place in the program's memory, which is in parts.
struct Cursor<'a> {
    parts: &'a [iovec],
    at: usize,
}

impl Cursor<'_> {
    /// Hands `len` bytes piece by piece to `each`, with how many came before.
    fn walk(&mut self, len: usize, mut each: impl FnMut(*mut u8, usize, usize)) {
        let mut done = 0;
        while let (true, Some(part)) = (done < len, self.parts.first()) {
            let n = (part.iov_len - self.at).min(len - done);
            each(part.iov_base.cast::<u8>().wrapping_add(self.at), n, done);
            done += n;
            self.at += n;
            if self.at == part.iov_len {
                self.parts = &self.parts[1..];
                self.at = 0;
            }
        }
    }
}

fn result(n: isize) -> Result<usize, c_int> {
    match n {
        0.. => Ok(n as usize),
        _ => Err(crate::errno::get()),
    }
}

impl Aligned {
    /// Closes the second description, unless that would drop locks of the process.
    pub fn let_go(&mut self, fd: c_int) {
        if self.buffered.is_some() && !look::file_is_locked(fd) {
            self.buffered = None;
        }
    }

    /// One call of the program that was refused with `EINVAL`. `there` returns true if its memory is accessible.
    pub fn transfer(
        &mut self,
        fd: c_int,
        direction: Direction,
        parts: Option<&[iovec]>,
        at: Option<off_t>,
        there: impl FnOnce(&[iovec]) -> bool,
    ) -> Result<isize, c_int> {
        let Some(parts) = parts else {
            return Err(libc::EINVAL);
        };
        // SAFETY: no memory is involved.
        let flags = unsafe { next::fcntl64(fd, libc::F_GETFL, 0) };
        let most = 0x7fff_f000;
        let len = parts
            .iter()
            .map(|p| p.iov_len)
            .fold(0, usize::saturating_add);
        let wanted = match direction {
            Direction::Read => libc::O_WRONLY,
            Direction::Write => libc::O_RDONLY,
        };
        let bad = flags < 0
            || flags & libc::O_DIRECT == 0
            || flags & libc::O_ACCMODE == wanted
            || at.is_some_and(|at| at < 0)
            || len == 0
            || len > most;
        if bad || !there(parts) {
            return Err(libc::EINVAL);
        }
        // SAFETY: no memory is involved.
        let start = at.unwrap_or_else(|| unsafe { next::lseek64(fd, 0, libc::SEEK_CUR) });
        if start < 0 {
            return Err(libc::EINVAL);
        }
        let cursor = Cursor { parts, at: 0 };
        let append = direction == Direction::Write && flags & libc::O_APPEND != 0;
        let done = match direction {
            Direction::Read => self.read(fd, flags, cursor, len, start as u64),
            Direction::Write if append => self.append(fd, flags, cursor),
            Direction::Write => self.write(fd, flags, cursor, len, start as u64),
        }?;
        report::repaired();
        if at.is_none() {
            // SAFETY: no memory is involved.
            unsafe {
                match append {
                    true => next::lseek64(fd, 0, libc::SEEK_END),
                    false => next::lseek64(fd, start + done as off_t, libc::SEEK_SET),
                }
            };
        }
        Ok(done as isize)
    }

    /// The second description, through the page cache.
    fn buffered(&mut self, fd: c_int, flags: c_int) -> Result<c_int, c_int> {
        if let Some(file) = &self.buffered {
            // Which the program has changed since, or another process that has the same description.
            let append = (flags & libc::O_APPEND) as libc::c_ulong;
            // SAFETY: no memory is involved.
            unsafe { next::fcntl64(file.as_raw_fd(), libc::F_SETFL, append) };
            return Ok(file.as_raw_fd());
        }
        let path = format!("/proc/self/fd/{fd}\0");
        let keep = libc::O_ACCMODE | libc::O_SYNC | libc::O_DSYNC | libc::O_APPEND;
        // SAFETY: a terminated path.
        let new = unsafe { next::open64(path.as_ptr().cast(), flags & keep | libc::O_CLOEXEC, 0) };
        // What the program has asked for cannot be done, whatever stands in the library's way.
        let new = result(new as isize).map_err(|_| libc::EINVAL)? as c_int;
        // Moving it closes a descriptor of the file, which would drop the process's locks on it.
        let new = match look::file_is_locked(fd) {
            true => table::adopt(new),
            false => table::internalise(new),
        };
        // SAFETY: just opened.
        self.buffered = Some(unsafe { File::from_raw_fd(new) });
        Ok(new)
    }

    fn read(
        &mut self,
        fd: c_int,
        flags: c_int,
        mut cursor: Cursor<'_>,
        len: usize,
        start: u64,
    ) -> Result<usize, c_int> {
        let bounce = Bounce::new().ok_or(libc::ENOMEM)?;
        let granule = granule(fd);
        let mut done = 0;
        while done < len {
            let at = start + done as u64;
            let from = at - at % granule;
            let skip = (at - from) as usize;
            let ask = (skip + len - done)
                .next_multiple_of(granule as usize)
                .min(BOUNCE);
            let into = bounce.0.as_ptr().cast();
            // SAFETY: the buffer is that large.
            let mut got = result(unsafe { next::pread64(fd, into, ask, from as off_t) });
            if got == Err(libc::EINVAL) {
                got = self.buffered(fd, flags).and_then(|buffered| {
                    // SAFETY: as above.
                    result(unsafe { next::pread64(buffered, into, ask, from as off_t) })
                });
            }
            let got = match got {
                Err(error) if done == 0 => return Err(error),
                other => other.unwrap_or(0),
            };
            let n = got.saturating_sub(skip).min(len - done);
            let memory = bounce.0.as_ptr();
            cursor.walk(n, |to, n, before| {
                // SAFETY: the program's memory, writable by its word, and inside the buffer.
                unsafe { memory.add(skip + before).copy_to_nonoverlapping(to, n) };
            });
            done += n;
            if got < ask {
                break;
            }
        }
        Ok(done)
    }

    fn write(
        &mut self,
        fd: c_int,
        flags: c_int,
        mut cursor: Cursor<'_>,
        len: usize,
        start: u64,
    ) -> Result<usize, c_int> {
        let bounce = Bounce::new().ok_or(libc::ENOMEM)?;
        let granule = granule(fd);
        let mut done = 0;
        while done < len {
            let at = start + done as u64;
            let left = (len - done) as u64;
            let direct = at.is_multiple_of(granule) && left >= granule;
            let n = match direct {
                true => (left - left % granule).min(BOUNCE as u64),
                false => (granule - at % granule).min(left),
            } as usize;
            let memory = bounce.0.as_ptr();
            cursor.walk(n, |from, n, before| {
                // SAFETY: the program's memory, readable by its word, and inside the buffer.
                unsafe { memory.add(before).copy_from_nonoverlapping(from, n) };
            });
            let from = memory.cast();
            let mut put = Err(libc::EINVAL);
            if direct {
                // SAFETY: the buffer is that large.
                put = result(unsafe { next::pwrite64(fd, from, n, at as off_t) });
            }
            if put == Err(libc::EINVAL) {
                put = self.buffered(fd, flags).and_then(|buffered| {
                    // SAFETY: as above.
                    result(unsafe { next::pwrite64(buffered, from, n, at as off_t) })
                });
            }
            match put {
                Err(error) if done == 0 => return Err(error),
                Ok(put) => {
                    done += put;
                    if put < n {
                        break;
                    }
                }
                Err(_) => break,
            }
        }
        Ok(done)
    }

    fn append(&mut self, fd: c_int, flags: c_int, cursor: Cursor<'_>) -> Result<usize, c_int> {
        let buffered = self.buffered(fd, flags)?;
        let count = cursor.parts.len() as c_int;
        // SAFETY: the program's own memory, in at most as many parts as it gave.
        result(unsafe { next::writev(buffered, cursor.parts.as_ptr(), count) })
    }
}

/// Boundaries between direct and buffered parts: no page and no block is written both ways.
fn granule(fd: c_int) -> u64 {
    // SAFETY: a structure of numbers may be all zero, and is valid for a write.
    let block = unsafe {
        let mut about: libc::stat64 = core::mem::zeroed();
        next::fstat64(fd, &mut about);
        about.st_blksize as u64
    };
    // SAFETY: no preconditions.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64;
    block.next_power_of_two().clamp(page, 1 << 16)
}
