// SPDX-License-Identifier: MIT OR Apache-2.0
//! How much freed memory stays, and for how long.
//!
//! Freed slots keep their pages because faulting them in again is what large
//! objects spend their time on. How much they may keep together is the budget,
//! and for how long the delay; a thread gives it back (`purge.rs`). While there can be no thread, memory
//! beyond 8 MiB is given back in the call that frees it; a second later, the
//! next such call tries again.

use core::sync::atomic::{
    AtomicU32, AtomicUsize,
    Ordering::{Relaxed, Release},
};

use crate::words::{self, Ask};
use crate::{config, os};

/// Bytes of memory that no object needs: in free slots, and beyond the objects
/// of the others.
pub(crate) static RETAINED: AtomicUsize = AtomicUsize::new(0);

/// Retained memory that needs no thread.
pub(crate) const KEEP: usize = 8 << 20;

pub(crate) const NONE: u32 = 0;
pub(crate) const RUNNING: u32 = 1;
pub(crate) const UNAVAILABLE: u32 = 2;
pub(crate) static THREAD: AtomicU32 = AtomicU32::new(NONE);
/// The time at which the last attempt to start the thread failed, in milliseconds, the low 32 bits.
pub(crate) static REFUSED_AT: AtomicU32 = AtomicU32::new(0);
/// Milliseconds before the next attempt, as each costs some system calls.
const TRY_AGAIN: u32 = 1000;
/// Changes when the thread is to look up from its sleep.
pub(crate) static WOKEN: AtomicU32 = AtomicU32::new(0);

/// The budget in bytes; 0 until it is known.
static BUDGET: AtomicUsize = AtomicUsize::new(0);

/// Returns true if a freed slot may keep `bytes` bytes of memory.
pub(crate) fn may_keep(bytes: usize) -> bool {
    let retained = RETAINED.load(Relaxed).saturating_add(bytes);
    if config::current().purge_delay_ms == 0 {
        return false;
    }
    if retained <= KEEP {
        return config::current().retain != Some(0);
    }
    may_have_thread() && retained <= budget()
}

/// Returns true if there is a thread, or one can be tried.
fn may_have_thread() -> bool {
    if THREAD.load(Relaxed) != UNAVAILABLE {
        return true;
    }
    let since = (os::now_ms() as u32).wrapping_sub(REFUSED_AT.load(Relaxed));
    since >= TRY_AGAIN
        && THREAD
            .compare_exchange(UNAVAILABLE, NONE, Relaxed, Relaxed)
            .is_ok()
}

fn budget() -> usize {
    match BUDGET.load(Relaxed) {
        0 => {
            let bytes = config::current()
                .retain
                .unwrap_or_else(default_budget)
                .max(1);
            BUDGET.store(bytes, Relaxed);
            bytes
        }
        bytes => bytes,
    }
}

/// Forgets the budget after the configuration has changed.
pub(crate) fn reconfigure() {
    BUDGET.store(0, Relaxed);
}

/// An eighth of the memory this process can have.
fn default_budget() -> usize {
    os::keep_errno(|| os::memory_and_swap().0.min(os::cgroup_limit()) / 8)
}

/// Sees to it that retained memory is given back in time.
#[inline]
pub(crate) fn wake(retained: usize) {
    if retained > KEEP && THREAD.load(Relaxed) == NONE {
        words::ask(Ask::Thread);
    }
}

/// Returns true unless the configuration is one for programs that must have no second thread.
pub(crate) fn may_start_thread() -> bool {
    let config = config::current();
    config.purge_delay_ms > 0 && config.retain.is_none_or(|bytes| bytes > KEEP) && may_have_thread()
}

/// Has the thread look at what `huge.rs` watches.
pub(crate) fn wake_now() {
    WOKEN.fetch_add(1, Release);
    if THREAD.load(Relaxed) == NONE {
        words::ask(Ask::Thread);
    } else {
        os::wake(&WOKEN);
    }
}

/// In the child of a fork, which has no thread, but may be able to start one.
pub(crate) fn after_fork_in_child() {
    THREAD.store(NONE, Relaxed);
}
