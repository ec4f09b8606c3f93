// SPDX-License-Identifier: MIT OR Apache-2.0
//! A thread that works for this library: its calls are the library's own, and signals and
//! cancellation wait until it leaves.

use core::ffi::c_int;
use core::mem::zeroed;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::local::here;

/// Signals that a fault raises in the thread that made it: those cannot wait.
pub const FAULTS: [c_int; 7] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGSYS,
    libc::SIGABRT,
];

/// Returns true if this thread is inside this library: then calls are the library's own.
pub fn inside() -> bool {
    here(|local| local.inside.get())
}

/// A thread begins or ends to work for the pdio crate alone: between, all its calls are the
/// library's own.
pub fn own_thread(begins: bool) {
    here(|local| {
        if begins {
            local.before.set(local.inside.get());
        }
        local.inside.set(begins || local.before.get());
        local.own.set(begins);
    });
    if !inside() {
        leaving();
    }
}

/// The process ends. If it does so because its last thread has ended, and that is the pdio crate's, this
/// thread has become the program's.
pub fn last_thread() {
    here(|local| {
        if local.own.replace(false) {
            local.inside.set(false);
        }
    });
}

/// In a forked child: its thread is not inside, whatever the parent's was.
pub fn forked() {
    here(|local| local.inside.set(false));
}

/// True if the program has signal handlers that do not wait by themselves (see
/// [`crate::signals`]). Those may do I/O and may jump out of what they interrupted, so then signals
/// are blocked while a lock is held.
pub static HANDLERS: AtomicBool = AtomicBool::new(false);

/// Keeps all signals blocked until this thread leaves the library, which then restores the mask
/// `before`.
pub fn unblock_later(before: u64) {
    // Of several handlers, one above the other, the lowest has interrupted this library's work
    // itself: the others came with more signals blocked.
    here(|local| {
        let lowest = match local.waits.get() {
            true => local.blocked.get() & before,
            false => before,
        };
        local.blocked.set(lowest);
        local.waits.set(true);
    });
}

#[inline]
fn leaving() {
    if here(|local| local.waits.get()) {
        unblock();
    }
}

#[cold]
fn unblock() {
    let Some(blocked) = here(|local| local.waits.replace(false).then(|| local.blocked.get()))
    else {
        return;
    };
    // SAFETY: the set is ours.
    unsafe {
        let mut set: libc::sigset_t = zeroed();
        set_mask(&mut set, blocked);
        libc::pthread_sigmask(libc::SIG_SETMASK, &set, core::ptr::null_mut());
    }
}

/// The 64 bits of a set; bit 0 is signal 1.
pub fn mask(set: &libc::sigset_t) -> u64 {
    // SAFETY: a set of signals is at least 64 bits.
    unsafe { (&raw const *set).cast::<u64>().read() }
}

pub fn set_mask(set: &mut libc::sigset_t, mask: u64) {
    // SAFETY: as in `mask`.
    unsafe { (&raw mut *set).cast::<u64>().write(mask) };
}

extern "C" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}
const PTHREAD_CANCEL_DISABLE: c_int = 1;

/// Blocks all signals but those of faults, and returns which were blocked.
pub fn block() -> libc::sigset_t {
    // SAFETY: the sets are ours; an all-zero set is valid memory for the calls.
    unsafe {
        let (mut set, mut old) = zeroed::<(libc::sigset_t, libc::sigset_t)>();
        libc::sigfillset(&mut set);
        for signal in FAULTS {
            libc::sigdelset(&mut set, signal);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &set, &mut old);
        old
    }
}

/// Marks the thread as inside this library: signals and cancellation wait, `errno` is kept.
pub struct Guard {
    signals: Option<libc::sigset_t>,
    cancellation: c_int,
    errno: c_int,
}

impl Guard {
    /// `None` if the thread is inside already.
    pub fn enter() -> Option<Guard> {
        if inside() {
            return None;
        }
        let mut guard = Guard {
            signals: None,
            cancellation: 0,
            errno: crate::errno::get(),
        };
        // SAFETY: the state goes to a variable of ours.
        unsafe { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &mut guard.cancellation) };
        if HANDLERS.load(Relaxed) {
            guard.signals = Some(block());
        }
        here(|local| local.inside.set(true));
        Some(guard)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        here(|local| local.inside.set(false));
        // SAFETY: as in `enter`.
        unsafe {
            if let Some(old) = &self.signals {
                libc::pthread_sigmask(libc::SIG_SETMASK, old, core::ptr::null_mut());
            }
            pthread_setcancelstate(self.cancellation, core::ptr::null_mut());
        }
        leaving();
        crate::errno::set(self.errno);
    }
}
