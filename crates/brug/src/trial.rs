// SPDX-License-Identifier: MIT OR Apache-2.0
//! The trial: which base allocator has the small objects in mode `auto`?
//!
//! The paper's tuner compares allocators where objects are reallocated. But lists, trees
//! and linkers hardly ever reallocate, and for them the allocators differ by more than a
//! tenth. So, once a program has shown that it has small objects at all, the allocators
//! of this build take turns at its requests, 128 each. They are timed, with the first
//! touch of their pages: an allocator that packs badly pays there, and one that keeps
//! its pages or has huge ones gains. Frees are timed as well; the address says whose
//! they are. Then one allocator has everything until the next trial, which comes after
//! so many million reallocations, or until a profile says at the start what is best.
//!
//! While a trial runs, all requests come out of line. Afterwards they are as short as in
//! the mode of the allocator that won: nothing is counted or sampled there.

use core::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};

use crate::base::{self, Owner};
use crate::mode::Base;
use crate::{heap, os};

/// Objects that a program has before it is worth the trial.
const START: u32 = 4096;
/// Requests that an allocator gets in a turn, and those at its beginning that find
/// caches full of another one's data.
const TURN: u32 = 128;
const COLD: u32 = 16;
/// Turns of each allocator; in the first it sets itself up.
const TURNS: u32 = 13;
/// Reallocations of a thread after which what was found is old.
pub(crate) const OLD: u32 = 1 << 22;
/// Whoever takes longer was interrupted, in nanoseconds.
const INTERRUPTED: u64 = 1_000_000;
/// Timed frees without which only allocations are compared.
const ENOUGH: u64 = 64;

static RUNNING: AtomicBool = AtomicBool::new(false);
static REQUESTS: AtomicU32 = AtomicU32::new(0);

/// What is compared: a sum of nanoseconds, and how many it is of.
struct Sum {
    ns: AtomicU64,
    samples: AtomicU64,
}

impl Sum {
    const fn new() -> Sum {
        Sum {
            ns: AtomicU64::new(0),
            samples: AtomicU64::new(0),
        }
    }

    fn add(&self, ns: u64) {
        if ns < INTERRUPTED {
            self.ns.fetch_add(ns, Relaxed);
            self.samples.fetch_add(1, Relaxed);
        }
    }

    fn samples(&self) -> u64 {
        self.samples.load(Relaxed)
    }

    /// In sixteenths of a nanosecond.
    fn mean(&self) -> u64 {
        self.ns.load(Relaxed) * 16 / self.samples().max(1)
    }

    fn reset(&self) {
        self.ns.store(0, Relaxed);
        self.samples.store(0, Relaxed);
    }
}

static ALLOC: [Sum; 3] = [const { Sum::new() }; 3];
static FREE: [Sum; 3] = [const { Sum::new() }; 3];

/// What the last trial or the profile says of each base.
#[derive(Clone, Copy)]
pub(crate) struct Verdict {
    /// Of an allocation and a free, in sixteenths of a nanosecond.
    pub(crate) mean: u64,
    pub(crate) samples: u64,
}

static MEAN: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];
static SAMPLES: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];

pub(crate) fn verdict(base: Base) -> Verdict {
    Verdict {
        mean: MEAN[base as usize].load(Relaxed),
        samples: SAMPLES[base as usize].load(Relaxed),
    }
}

pub(crate) fn set_verdict(base: Base, verdict: Verdict) {
    MEAN[base as usize].store(verdict.mean, Relaxed);
    SAMPLES[base as usize].store(verdict.samples, Relaxed);
}

/// jemalloc makes all its arenas at once, which on many processors is more memory than a
/// trial is worth.
fn candidates() -> impl Iterator<Item = Base> + Clone {
    const FEW: usize = 8;
    Base::ALL.into_iter().filter(|&base| {
        base::is_usable(base) && (base != Base::Jemalloc || os::processors() <= FEW)
    })
}

/// Begins a trial, if there is a choice.
pub(crate) fn start() {
    if candidates().count() > 1 && !RUNNING.load(Relaxed) {
        ALLOC.iter().chain(&FREE).for_each(Sum::reset);
        REQUESTS.store(0, Relaxed);
        RUNNING.store(true, SeqCst);
    }
}

#[inline]
pub(crate) fn running() -> bool {
    RUNNING.load(Relaxed)
}

/// Whether there is anything to time yet.
fn timing() -> bool {
    REQUESTS.load(Relaxed) > START + TURN * candidates().count() as u32
}

/// A new object, of the base whose turn it is.
#[cold]
#[inline(never)]
pub(crate) fn alloc(size: usize, align: usize, zero: bool) -> *mut u8 {
    let count = candidates().count() as u32;
    let Some(request) = REQUESTS.fetch_add(1, Relaxed).checked_sub(START) else {
        return heap::alloc_base(heap::base_owner(), size, align, zero);
    };
    let turn = request / TURN;
    if turn >= TURNS * count {
        finish();
        return heap::alloc_base(heap::base_owner(), size, align, zero);
    }
    let base = candidates().nth((turn % count) as usize);
    let base = base.unwrap_or(Base::Glibc);
    let timed = turn >= count && request % TURN >= COLD;
    if !timed {
        return heap::alloc_base(Owner::of(base), size, align, zero);
    }
    let begin = os::now_ns();
    let p = heap::alloc_base(Owner::of(base), size, align, zero);
    if !p.is_null() {
        for at in (0..size).step_by(os::page_size()) {
            // SAFETY: within the new object, which has no content, or is zero.
            unsafe { p.add(at).write_volatile(0) };
        }
        let ns = os::now_ns() - begin;
        // A base that cannot be had leaves its objects to the C library.
        if heap::owner_of(p) == Owner::of(base) {
            ALLOC[base as usize].add(ns);
        }
    }
    p
}

/// Frees an object of a base, timed.
///
/// # Safety
/// `p` is the caller's, of `owner`.
pub(crate) unsafe fn free(owner: Owner, p: *mut u8) {
    let begin = (!p.is_null() && timing()).then(os::now_ns);
    // SAFETY: passed on.
    unsafe { base::free(owner, p) };
    if let (Some(begin), Some(base)) = (begin, owner.base()) {
        FREE[base as usize].add(os::keep_errno(os::now_ns) - begin);
    }
}

/// Ends the trial; another thread may be at that already.
#[cold]
fn finish() {
    heap::try_control(|| {
        if RUNNING.load(Relaxed) {
            let tried = || candidates().filter(|&base| ALLOC[base as usize].samples() > 0);
            let frees = tried().all(|base| FREE[base as usize].samples() >= ENOUGH);
            for base in tried() {
                let (alloc, free) = (&ALLOC[base as usize], &FREE[base as usize]);
                let mean = alloc.mean() + if frees { free.mean() } else { 0 };
                let samples = alloc.samples() + if frees { free.samples() } else { 0 };
                set_verdict(base, Verdict { mean, samples });
            }
            heap::set_base(best(heap::base()));
            RUNNING.store(false, SeqCst);
        }
    });
}

/// The cheapest, if the gain over `now` is an eighth.
pub(crate) fn best(now: Base) -> Base {
    let known = || candidates().filter(|&base| verdict(base).samples > 0);
    match known().min_by_key(|&base| verdict(base).mean) {
        Some(base) => {
            let mean = verdict(now).mean;
            if verdict(now).samples > 0 && verdict(base).mean > mean - mean / 8 {
                now
            } else {
                base
            }
        }
        None => now,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_replaces_another_for_a_gain_of_an_eighth() {
        let means = |glibc, jemalloc, mimalloc| {
            for (base, mean) in Base::ALL.into_iter().zip([glibc, jemalloc, mimalloc]) {
                set_verdict(base, Verdict { mean, samples: 1 });
            }
        };
        means(1000, 1, 1);
        let other = candidates().find(|&base| base != Base::Glibc);
        assert_eq!(best(Base::Glibc) == Base::Glibc, other.is_none());
        means(1000, 900, 900);
        assert_eq!(best(Base::Glibc), Base::Glibc);
        if let Some(other) = other {
            assert_eq!(best(other), other);
            means(700, 900, 900);
            assert_eq!(best(other), Base::Glibc);
        }
        for base in Base::ALL {
            set_verdict(
                base,
                Verdict {
                    mean: 0,
                    samples: 0,
                },
            );
        }
        assert_eq!(best(Base::Glibc), Base::Glibc);
    }
}
