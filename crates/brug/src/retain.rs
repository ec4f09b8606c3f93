// SPDX-License-Identifier: MIT OR Apache-2.0
//! How much freed memory stays, and for how long.
//!
//! Freed slots keep their pages because faulting them in again is what large
//! objects spend their time on. How much they may keep together is the budget,
//! and for how long the delay; the purge thread gives it back (`purge.rs`). While there can be no such
//! thread, memory beyond 8 MiB is given back in the call that frees it; a second later, the
//! next such call tries again. The first time it is, too, in a program of one thread.
//!
//! Where the system counts memory when it is committed, what is retained is refused to what the program maps
//! by itself, and to its threads' stacks; brug does not see that refusal. So there it retains what the C
//! library would, at most.

use core::sync::atomic::{
    fence, AtomicBool, AtomicU32, AtomicUsize,
    Ordering::{Relaxed, Release, SeqCst},
};

use crate::words::{self, Ask};
use crate::{config, os};

/// Bytes of memory that no object needs: in free slots, and beyond the objects
/// of the others.
pub(crate) static RETAINED: AtomicUsize = AtomicUsize::new(0);

/// Retained memory that needs no thread.
pub(crate) const KEEP: usize = 8 << 20;
/// The least budget, unless the configuration names one. So much may be kept before the system is
/// asked how much memory there is: a program that frees little makes no system call for that.
const LEAST_BUDGET: usize = 1 << 20;
/// What the C library keeps at the end of its heap at least.
pub(crate) const LEAST_COUNTED: usize = 128 << 10;
/// The C library gives a mapping of its own to every object from this size on, and ends it when the
/// object is freed. So it does with the first of a smaller size, until one as large has been freed.
const OWN_MAPPING: usize = 32 << 20;
/// The most memory below that size that a freed object has had.
static LARGEST: AtomicUsize = AtomicUsize::new(0);
/// As much of it as the C library knows of.
static KNOWN: AtomicUsize = AtomicUsize::new(LEAST_COUNTED);

pub(crate) const NONE: u32 = 0;
pub(crate) const RUNNING: u32 = 1;
pub(crate) const UNAVAILABLE: u32 = 2;
/// It has ended with the process, and none comes after it.
pub(crate) const ENDED: u32 = 3;
pub(crate) static THREAD: AtomicU32 = AtomicU32::new(NONE);
/// The time at which the last attempt to start the thread failed, in milliseconds, the low 32 bits.
pub(crate) static REFUSED_AT: AtomicU32 = AtomicU32::new(0);
/// Milliseconds before the next attempt, as each costs some system calls.
const TRY_AGAIN: u32 = 1000;
/// Changes when the thread is to look up from its sleep.
pub(crate) static WOKEN: AtomicU32 = AtomicU32::new(0);

/// Counts what is retained from here on, before [`wake`]; returns all.
pub(crate) fn more(bytes: usize) -> usize {
    RETAINED.fetch_add(bytes, SeqCst) + bytes
}

/// Takes off what is no longer retained. Of a handler of a signal that forks, the child may have counted anew what the
/// code that it has interrupted is about to take off.
pub(crate) fn no_longer(bytes: usize) {
    let less = |all: usize| Some(all.saturating_sub(bytes));
    let _ = RETAINED.fetch_update(Relaxed, Relaxed, less);
}

/// The budget in bytes; 0 until it is known.
static BUDGET: AtomicUsize = AtomicUsize::new(0);

/// Returns true if an object of so many bytes would get a mapping of its own from the C library now.
pub(crate) fn has_own_mapping(bytes: usize) -> bool {
    bytes >= OWN_MAPPING || bytes > LARGEST.load(Relaxed).max(LEAST_COUNTED)
}

/// Returns true if an object that is freed with so many bytes of memory is the first with as many, or very large.
pub(crate) fn is_first_of_its_size(bytes: usize) -> bool {
    let largest = || LARGEST.fetch_max(bytes, Relaxed);
    bytes >= OWN_MAPPING || (bytes > LARGEST.load(Relaxed) && bytes > largest())
}

/// Returns true if a larger object has been freed than any that the C library knows of. It would now keep twice as
/// much at the end of its heap, where small objects come and go: without that a program whose heap grows and shrinks by
/// more than 128 KiB has the system take its pages and give them again each time. Where memory counts when
/// it is committed, two would keep that much.
#[inline]
pub(crate) fn is_unknown() -> bool {
    LARGEST.load(Relaxed) > KNOWN.load(Relaxed) && !words::counted()
}

/// The size of that object, for the one caller who makes it known; 0 for others.
pub(crate) fn make_known() -> usize {
    let largest = LARGEST.load(Relaxed);
    if KNOWN.fetch_max(largest, Relaxed) < largest {
        largest
    } else {
        0
    }
}

/// The budget where the system counts memory when it is committed: what the C library keeps at the end of
/// its heap. It keeps nothing of an object with a mapping of its own.
fn counted_budget(own_mapping: bool) -> usize {
    let threshold = if own_mapping { 0 } else { LARGEST.load(Relaxed) };
    LEAST_COUNTED.max(2 * threshold)
}

/// Returns true if a freed slot may keep `bytes` bytes of memory; `own_mapping`: if the C library would
/// have given the object a mapping of its own.
pub(crate) fn may_keep(bytes: usize, own_mapping: bool) -> bool {
    let retained = RETAINED.load(Relaxed).saturating_add(bytes);
    let config = config::current();
    if config.purge_delay_ms == 0 {
        return false;
    }
    let in_budget = match config.retain {
        None if words::counted() => retained <= counted_budget(own_mapping),
        None => retained <= LEAST_BUDGET || retained <= budget(),
        Some(_) => retained <= budget(),
    };
    in_budget && (retained <= KEEP || may_have_thread())
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
        0 => match config::current().retain.or_else(default_budget) {
            Some(bytes) => {
                BUDGET.store(bytes.max(1), Relaxed);
                bytes.max(1)
            }
            None => LEAST_BUDGET,
        },
        bytes => bytes,
    }
}

/// Forgets the budget after the configuration has changed.
pub(crate) fn reconfigure() {
    BUDGET.store(0, Relaxed);
}

/// An eighth of the memory this process can have, if that can be told now.
fn default_budget() -> Option<usize> {
    let limit = os::keep_errno(os::cgroup_limit)?;
    Some(share(os::memory_and_swap().0.min(limit)))
}

/// What of so much memory may be kept.
fn share(memory: usize) -> usize {
    (memory / 8).max(LEAST_BUDGET)
}

/// True if the thread is for the next object in a slot to start.
static WANTED: AtomicBool = AtomicBool::new(false);

/// Sees to it that retained memory is given back in time.
///
/// The C library makes a thread under the lock of its heap, and a handler of a signal may have come in the midst of its
/// `malloc`: it would wait for ever. So where a signal is blocked, as in its handler, all of it goes back now, as with
/// the C library, and the next object in a slot starts the thread: handlers may make none.
///
/// With a second thread the C library takes its locks, for good, and who forks in a handler of a signal may wait for
/// the one that the handler has interrupted. So the first time in a program of one thread all goes back now as
/// well, unless an object has `grown`: the next that grows would miss its memory.
#[inline]
pub(crate) fn wake(retained: usize, grown: bool) {
    if retained > KEEP && has_no_thread() {
        if os::blocks_signals() {
            WANTED.store(true, Relaxed);
            words::ask(Ask::Memory);
        } else if !grown && is_first_of_one_thread() {
            words::ask(Ask::Memory);
        } else {
            words::ask(Ask::Thread);
        }
    }
}

/// True once this process has been spared its second thread.
static SPARED: AtomicBool = AtomicBool::new(false);

/// Returns true the first time, if the program has one thread.
#[cold]
fn is_first_of_one_thread() -> bool {
    !cfg!(miri) && !SPARED.swap(true, Relaxed) && os::keep_errno(os::threads) == Some(1)
}

/// Starts the thread that [`wake`] has left to the next object.
#[inline]
pub(crate) fn start_wanted() {
    if WANTED.load(Relaxed) && WANTED.swap(false, Relaxed) && has_no_thread() {
        words::ask(Ask::Thread);
    }
}

/// The thread says that it ends, and then looks at what is retained; who asks here has counted that before: one of the
/// two sees the other.
pub(crate) fn has_no_thread() -> bool {
    THREAD.load(SeqCst) == NONE || words::is_orphaned()
}

/// Returns true unless the configuration is one for programs that must have no second thread.
pub(crate) fn may_start_thread() -> bool {
    let config = config::current();
    config.purge_delay_ms > 0 && config.retain.is_none_or(|bytes| bytes > KEEP) && may_have_thread()
}

/// Has the thread look at what `huge.rs` watches.
pub(crate) fn wake_now() {
    WOKEN.fetch_add(1, Release);
    fence(SeqCst);
    if has_no_thread() {
        words::ask(Ask::Thread);
    } else {
        os::wake(&WOKEN);
    }
}

/// In the child of a fork, which has no thread, but may be able to start one.
pub(crate) fn after_fork_in_child() {
    THREAD.store(NONE, Relaxed);
    SPARED.store(false, Relaxed);
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::{alone, raw};
    use std::println;

    /// A control group of 32 MiB has a budget of 4 MiB, although as much as 8 MiB needs no thread.
    #[test]
    fn a_small_budget_is_kept_to_without_a_thread() {
        const NAME: &str = "retain::tests::a_small_budget_is_kept_to_without_a_thread";
        if cfg!(miri) {
            println!("skipped: Miri starts no other process");
            return;
        }
        if alone::job().is_none() {
            // What others retain counts as well.
            return alone::alone(NAME, "");
        }
        assert_eq!(share(32 << 20), 4 << 20);
        assert_eq!(share(1 << 20), LEAST_BUDGET);
        raw::config();
        BUDGET.store(share(32 << 20), Relaxed);
        assert!(may_keep(LEAST_BUDGET, true) && may_keep(4 << 20, true));
        assert!(!may_keep((4 << 20) + 1, true) && !may_keep(KEEP, true));
        BUDGET.store(share(1 << 30), Relaxed);
        assert!(may_keep(KEEP, true) && may_keep(KEEP + 1, true));
    }
}
