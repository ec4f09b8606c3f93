// SPDX-License-Identifier: MIT OR Apache-2.0
//! Objects that grow by being copied.
//!
//! A hash table or a `std::vector` of C++ grows without `realloc`: the program allocates a larger object, fills it
//! from the last one, and frees that. Each is an object that never grows, and those have small pages, as many are
//! used sparsely. So a chain is looked for: an object is freed just after one of about twice its size was allocated,
//! and one of about twice that follows. How the last object was filled says how the next one will be.
//!
//! One chain is looked at, that of the newest objects. What threads write at the same time is mixed up; then an object has
//! other pages than it would, no more.

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Smaller objects lead to none that could have huge pages.
const LEAST: usize = 512 << 10;
/// The next object has at most so many times the size of the last one, and at least half as much again.
const MOST: usize = 4;

/// An object, and its size in bytes; 0: none.
struct Seen {
    at: AtomicUsize,
    size: AtomicUsize,
}

impl Seen {
    const fn none() -> Seen {
        Seen {
            at: AtomicUsize::new(0),
            size: AtomicUsize::new(0),
        }
    }

    fn set(&self, at: usize, size: usize) {
        self.at.store(at, Relaxed);
        self.size.store(size, Relaxed);
    }
}

/// Returns true if an object of the second size could be what one of the first has grown to.
fn grows(from: usize, to: usize) -> bool {
    to / MOST <= from && from + from / 2 <= to
}

/// The newest object.
static NEWEST: Seen = Seen::none();
/// The newest object that has replaced a smaller one.
static GROWN: Seen = Seen::none();

/// Notes a new object.
pub(crate) fn born(p: *mut u8, size: usize) {
    if size >= LEAST {
        NEWEST.set(p.addr(), size);
    }
}

/// Notes that an object is freed.
pub(crate) fn freed(p: *mut u8, size: usize) {
    if size < LEAST {
        return;
    }
    if GROWN.at.load(Relaxed) == p.addr() {
        GROWN.set(0, 0);
    }
    let newest = NEWEST.size.load(Relaxed);
    if grows(size, newest) {
        GROWN.set(NEWEST.at.load(Relaxed), newest);
    }
}

/// The object that a new one of `size` bytes will have its content from, if it looks like that: where it is, and its size.
pub(crate) fn before(size: usize) -> Option<(*mut u8, usize)> {
    let last = GROWN.size.load(Relaxed);
    (last > 0 && grows(last, size)).then(|| (GROWN.at.load(Relaxed) as *mut u8, last))
}
