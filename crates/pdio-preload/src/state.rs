// SPDX-License-Identifier: MIT OR Apache-2.0
//! What holds for the whole process, in words that every layer reads.

use core::ptr::null_mut;
use core::sync::atomic::{
    AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, SeqCst},
};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::local::here;

/// True if anything is watched at all.
static ACTIVE: AtomicBool = AtomicBool::new(false);

/// Returns true if anything is watched at all: the library has begun, and nothing has happened after
/// which it keeps out of the process.
#[inline]
pub fn active() -> bool {
    ACTIVE.load(Relaxed)
}

/// True if the library keeps out of the process for good.
static LEFT: AtomicBool = AtomicBool::new(false);

/// Returns true if the library keeps out of the process for good.
#[inline]
pub fn has_left() -> bool {
    LEFT.load(Relaxed)
}

/// From here on the library watches, or keeps out of the process.
pub fn set_active(active: bool) {
    ACTIVE.store(active, Relaxed);
    LEFT.store(!active, Relaxed);
}

/// While not zero, nothing is watched or taken: the process forks or ends.
pub static HOLD: AtomicU32 = AtomicU32::new(0);
/// Streams that are taken now.
pub static TAKEN: AtomicUsize = AtomicUsize::new(0);
/// Calls under way that may give the process a record lock. Meanwhile nothing is taken.
pub static LOCKING: AtomicUsize = AtomicUsize::new(0);

/// True if the program has ever started a thread.
pub static THREADED: AtomicBool = AtomicBool::new(false);

/// The process that this library serves, zero if there is none; others share the memory after `vfork`.
static OWNER: AtomicI32 = AtomicI32::new(0);

/// This is the process that the library serves.
pub fn claim_process() {
    OWNER.store(asked(), Relaxed);
}

/// True once another process may have been made that has this memory, or a copy of it, without the handlers of
/// `fork` or as [`lend`] says.
static COPIED: AtomicBool = AtomicBool::new(false);

/// Another process is about to be made in such a way.
pub fn copies() {
    COPIED.store(true, Relaxed);
}

/// Returns true if this is the process that the library serves. In most processes without a system call, which a
/// filter may forbid.
pub fn is_owner() -> bool {
    let owner = OWNER.load(Relaxed);
    // Zero before the library begins, and where it does nothing.
    owner != 0
        && match COPIED.load(Relaxed) {
            true => owner == asked(),
            false => !borrowed(),
        }
}

/// This process.
pub fn process() -> libc::pid_t {
    match is_owner() {
        true => OWNER.load(Relaxed),
        false => asked(),
    }
}

fn asked() -> libc::pid_t {
    // SAFETY: no preconditions.
    unsafe { libc::getpid() }
}

/// True if any thread has ever lent its memory to a child: until then, no call looks further.
static EVER_LENT: AtomicBool = AtomicBool::new(false);

/// A child is about to run on this thread's memory, until it executes a program or ends: by `vfork`. Called last
/// before that.
pub fn lend() {
    EVER_LENT.store(true, Relaxed);
    here(|local| local.lent.set(true));
}

/// Returns true in such a child. Its descriptors, actions and locks are its own, while all that this library knows
/// is of the parent, whose other threads go on meanwhile: what it opened since has other numbers here, or none.
/// So for the child nothing is watched, served or written.
#[inline]
pub fn borrowed() -> bool {
    EVER_LENT.load(Relaxed) && here(|local| local.lent.get()) && still_borrowed()
}

#[cold]
fn still_borrowed() -> bool {
    let child = OWNER.load(Relaxed) != asked();
    here(|local| local.lent.set(child));
    child
}

/// Something under a lock that a forked child begins anew: a thread that the child lacks may hold the lock for ever.
pub struct Renewed<T>(AtomicPtr<Mutex<T>>);

impl<T: Default> Renewed<T> {
    pub const fn new() -> Renewed<T> {
        Renewed(AtomicPtr::new(null_mut()))
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.get().lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As `lock`, if anybody has used it yet: allocates nothing.
    pub fn existing(&self) -> Option<MutexGuard<'_, T>> {
        let mutex = self.made()?;
        Some(mutex.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn made(&self) -> Option<&Mutex<T>> {
        // SAFETY: null or a leaked box.
        unsafe { self.0.load(Acquire).as_ref() }
    }

    fn get(&self) -> &Mutex<T> {
        loop {
            if let Some(mutex) = self.made() {
                return mutex;
            }
            let new = Box::into_raw(Box::default());
            if self
                .0
                .compare_exchange(null_mut(), new, AcqRel, Acquire)
                .is_err()
            {
                // SAFETY: never published.
                drop(unsafe { Box::from_raw(new) });
            }
        }
    }

    /// In a forked child.
    pub fn renew(&self) {
        self.0.store(null_mut(), SeqCst);
    }
}

/// In a forked child: nothing is taken.
pub fn forked() {
    claim_process();
    for count in [&TAKEN, &LOCKING] {
        count.store(0, SeqCst);
    }
    HOLD.store(0, SeqCst);
    THREADED.store(false, SeqCst);
}
