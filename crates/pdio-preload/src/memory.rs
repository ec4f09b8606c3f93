// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory that the program names and that may not be there.
//!
//! Where the kernel would answer `EFAULT`, a copy in this process would raise `SIGSEGV`. So each
//! page is asked for before its first use, by system calls that do nothing else, and the answer
//! is remembered until the program takes memory away. What is not there goes to the kernel, which
//! then says what it always says.

use core::ffi::{c_int, c_long, c_ulong};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU64, Ordering::SeqCst};

use crate::{next, symbols};

/// The smallest page of any system: larger ones are asked for more often than need be.
const PAGE: usize = 4096;
/// From this many pages on, one call that asks for all is worth trying first.
const MANY: usize = 4;

/// Rises when the program may have taken memory away.
static GENERATION: AtomicU64 = AtomicU64::new(0);

/// The program is about to take memory away, or to change what may be done with it. Not only while
/// streams are taken: misaligned direct I/O remembers memory as well.
pub fn taken_away() {
    GENERATION.fetch_add(1, SeqCst);
}

fn faults(call: impl FnOnce() -> c_long) -> bool {
    let before = crate::errno::get();
    let fault = call() == -1 && crate::errno::get() == libc::EFAULT;
    crate::errno::set(before);
    fault
}

/// Returns true if the byte at an address can be read.
fn readable(address: usize) -> bool {
    // The kernel copies the set before it finds that there is no such operation. At zero there
    // would be no set.
    let (set, operation, size) = ((address & !7).max(8), c_ulong::MAX, 8);
    // SAFETY: the kernel reads eight bytes, if they are there, and changes nothing.
    !faults(|| unsafe {
        // Valgrind prints a line about each operation that it does not know.
        if symbols::runs_in_valgrind() {
            return waited_for(address);
        }
        next::syscall(libc::SYS_rt_sigprocmask, operation, set as _, 0, size, 0, 0)
    })
}

/// Waits for no time until four bytes are changed, for which the kernel reads them.
fn waited_for(address: usize) -> c_long {
    let operation = (libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG) as c_ulong;
    let (word, none) = ((address & !3) as c_ulong, [0 as c_long; 2]);
    // SAFETY: the kernel reads four bytes, if they are there, and changes nothing.
    unsafe {
        next::syscall(
            libc::SYS_futex,
            word,
            operation,
            0,
            none.as_ptr() as _,
            0,
            0,
        )
    }
}

/// Returns true if the byte at an address can be written.
fn writable(address: usize) -> bool {
    /// To the second word: or zero, which is atomic and changes nothing. Then wake nobody.
    const OR_ZERO: c_ulong = 2 << 28;
    let operation = (libc::FUTEX_WAKE_OP | libc::FUTEX_PRIVATE_FLAG) as c_ulong;
    let mine = 0u32;
    let (first, second) = (&raw const mine as c_ulong, (address & !3) as c_ulong);
    // SAFETY: the kernel writes four bytes as they are, if they are there.
    !faults(|| unsafe { next::syscall(libc::SYS_futex, first, operation, 0, 0, second, OR_ZERO) })
}

/// Returns true if the kernel takes a range for the program's, which it asks of memory that it does
/// not use as well: of no bytes, and of those behind the end of a file.
pub fn is_the_programs(address: usize, len: usize) -> bool {
    let mine = 0u8;
    let Some(last) = address.checked_add(len.saturating_sub(1)) else {
        return false;
    };
    // What lies below something of the program's is its own, whether it is there or not. The first stack is the highest
    // of its memory, and the kernel has put these bytes there.
    // SAFETY: no preconditions.
    let highest = || unsafe { libc::getauxval(libc::AT_RANDOM) } as usize;
    last <= &raw const mine as usize || last <= highest() || readable(last)
}

/// Returns true if all pages are there, which one call can say for many (Linux 5.14); if false,
/// nothing is known.
fn populated(from: usize, to: usize, write: bool) -> bool {
    const MADV_POPULATE_READ: c_ulong = 22;
    let (at, len) = ((from * PAGE) as c_ulong, ((to - from) * PAGE) as c_ulong);
    let advice = MADV_POPULATE_READ + c_ulong::from(write);
    let before = crate::errno::get();
    // SAFETY: the pages are made to be there as a use would, and are not changed.
    let all = unsafe { next::syscall(libc::SYS_madvise, at, len, advice, 0, 0, 0) } == 0;
    crate::errno::set(before);
    all
}

/// Pages `[from, to)`.
#[derive(Clone, Copy, Default)]
struct Range {
    from: usize,
    to: usize,
    writable: bool,
}

impl Range {
    fn has(&self, page: usize, write: bool) -> bool {
        self.from <= page && page < self.to && self.writable >= write
    }
}

/// Memory that was found to be there.
#[derive(Default)]
pub struct Known {
    generation: u64,
    ranges: [Range; 4],
    next: usize,
}

impl Known {
    /// Returns true if `len` bytes from an address are known to be there, to be read or to be written.
    pub fn knows(&self, address: usize, len: usize, write: bool) -> bool {
        let Some(last) = address.checked_add(len.saturating_sub(1)) else {
            return false;
        };
        let (from, to) = (address / PAGE, last / PAGE + 1);
        let whole = |range: &Range| range.has(from, write) && to <= range.to;
        let current = || self.generation == GENERATION.load(SeqCst);
        self.ranges.iter().any(whole) && current()
    }

    /// Returns true if `len` bytes from an address are there, to be read or to be written. Those that are not
    /// known are brought into memory.
    pub fn holds(&mut self, address: usize, len: usize, write: bool) -> bool {
        if len == 0 || self.knows(address, len, write) {
            return true;
        }
        let Some(last) = address.checked_add(len.saturating_sub(1)) else {
            return false;
        };
        let generation = GENERATION.load(SeqCst);
        if self.generation != generation {
            *self = Known {
                generation,
                ..Known::default()
            };
        }
        self.find(address, address / PAGE, last / PAGE + 1, write)
    }

    #[cold]
    fn find(&mut self, address: usize, from: usize, to: usize, write: bool) -> bool {
        let all = to - from >= MANY && populated(from, to, write);
        for page in (from..to).filter(|_| !all) {
            let known = self.ranges.iter().any(|range| range.has(page, write));
            let first = address.max(page * PAGE);
            let there = known
                || if write {
                    writable(first)
                } else {
                    readable(first)
                };
            if !there {
                return false;
            }
        }
        let beside = |range: &&mut Range| {
            range.writable == write && range.from <= to && from <= range.to && range.to > 0
        };
        match self.ranges.iter_mut().find(beside) {
            Some(range) => {
                range.from = range.from.min(from);
                range.to = range.to.max(to);
            }
            None => {
                self.ranges[self.next] = Range {
                    from,
                    to,
                    writable: write,
                };
                self.next = (self.next + 1) % self.ranges.len();
            }
        }
        true
    }
}

/// What the program has at an address; `None` if that is not there.
///
/// # Safety
/// If it is there, it must be a `T`.
pub unsafe fn peek<T: Copy>(from: *const T) -> Option<T> {
    let mut value = MaybeUninit::<T>::uninit();
    Known::default()
        .holds(from as usize, size_of::<T>(), false)
        .then(|| {
            // SAFETY: the memory is there; a `T` by the caller's word.
            unsafe {
                from.cast::<u8>()
                    .copy_to_nonoverlapping(value.as_mut_ptr().cast::<u8>(), size_of::<T>());
                value.assume_init()
            }
        })
}

/// The parts of a vectored call; `None` if they are not there.
///
/// # Safety
/// What is there must be `iovec`s, and stay while the slice lives.
pub unsafe fn parts<'a>(
    known: &mut Known,
    parts: *const libc::iovec,
    count: c_int,
) -> Option<&'a [libc::iovec]> {
    let count = count as usize;
    known
        .holds(parts as usize, count * size_of::<libc::iovec>(), false)
        // SAFETY: the memory is there.
        .then(|| unsafe { core::slice::from_raw_parts(parts, count) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_found_page_by_page() {
        // SAFETY: a mapping of our own.
        unsafe {
            let map = |at: usize, pages: usize, protection, flags| {
                libc::mmap(
                    at as *mut _,
                    pages * PAGE,
                    protection,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags,
                    -1,
                    0,
                ) as usize
            };
            let both = libc::PROT_READ | libc::PROT_WRITE;
            let at = map(0, 3, both, 0);
            map(at + PAGE, 1, libc::PROT_READ, libc::MAP_FIXED);
            map(at + 2 * PAGE, 1, libc::PROT_NONE, libc::MAP_FIXED);
            let mut known = Known::default();
            assert!(!known.knows(at, 2 * PAGE, false) && known.holds(at, 0, false));
            assert!(known.holds(at, 2 * PAGE, false));
            assert!(known.knows(at, 2 * PAGE, false) && !known.knows(at, 2 * PAGE + 1, false));
            assert!(!known.holds(at, 2 * PAGE, true));
            assert!(known.holds(at + 5, PAGE - 5, true));
            assert!(!known.holds(at + PAGE - 1, 2, true));
            assert!(!known.holds(at + 2 * PAGE - 1, 2, false));
            assert!(known.holds(at + 2 * PAGE - 1, 1, false));
            assert!(!known.holds(usize::MAX - 5, 10, false));
            assert!(!known.holds(0, 1, false));
            assert!(is_the_programs(0, 0) && is_the_programs(at + 2 * PAGE, PAGE));
            let outside = usize::MAX << (usize::BITS - 2);
            assert!(!is_the_programs(outside, 0) && !is_the_programs(at, outside - at + 1));
            assert!(!is_the_programs(outside + 1, outside));
            assert_eq!(peek(at as *const u64), Some(0));
            assert_eq!(peek((at + 2 * PAGE) as *const u64), None);
            taken_away();
            assert!(!known.knows(at, 2 * PAGE, false));
            libc::munmap(at as *mut _, 3 * PAGE);
        }
    }
}
