// SPDX-License-Identifier: MIT OR Apache-2.0
//! The trial: which base allocator has the small objects in mode `auto`?
//!
//! The paper's tuner compares allocators where objects are reallocated. But lists, trees and
//! linkers hardly ever reallocate, and for them the allocators differ by a factor of two.
//! So once a program has shown that it has many small objects, the C library and its challenger,
//! mimalloc, serve the requests of one thread in turns of 128. mimalloc has the first ones, which are not timed, to get
//! memory that it can hand out again. Then a request is timed with the first touch of
//! its pages: that counts against an allocator that packs badly, and for one that keeps its pages
//! or has huge ones. Frees are timed as well; the address tells the owner. Then the winner gets all
//! requests until the next trial, after [`OLD`] reallocations of a thread on the slow path. A
//! profile that is read at the start replaces the first trial. jemalloc is not tried: where it
//! beats the C library, mimalloc does so by more.
//!
//! # The same program, the same base
//!
//! All requests of a trial together take a millisecond or two, and one interrupt, or one
//! page for which the host of a virtual machine has to find memory, can take as long as a thousand
//! of them. So what is compared is the mean of the middle half of the turns: what disturbs fewer than a quarter of
//! them is the machine's, and what it costs an allocator to pack badly is in all of them. Where the gain is close
//! to the required one, the trial goes on for up to eight times as many turns. The current base is
//! replaced only by one that takes a fifth less time: the next run may not find a smaller gain. What the clock says of
//! nothing is no part of either time; it is half of both where most requests are served from a thread's cache.
//!
//! Until a trial begins, new small objects are counted on their way to the C library, each thread's by itself. While
//! it runs, all requests take the slow path. Afterwards the fast path is that of the winner's own mode: it counts
//! and samples nothing.

use core::ffi::c_void;
use core::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64, AtomicU8, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};

use crate::base::{self, Owner};
use crate::mode::{Base, Mode};
use crate::{config, os, sys, tls, words};

/// Small objects of a program before it is worth a trial: they take about as long as the trial, 2 ms, so that no program
/// pays more than twice what it could have gained.
const START: u32 = 1 << 18;
/// As many small objects of a thread are counted at once, with its first one; a power of two.
const STEP: u8 = 32;
/// Small objects of other threads during a trial after which one of these begins it anew if its thread had none
/// meanwhile: that may have ended. Longer than a thread waits for a processor, as a rule.
const PATIENCE: u32 = 1 << 18;
/// Requests in a turn of an allocator, and how many of them, the first, are not timed, because the
/// caches are full of the other allocator's data.
const TURN: u32 = 128;
const COLD: u32 = 16;
/// Turns of each allocator in a round.
const TURNS: u32 = 25;
/// Turns of the challenger before the first that is timed: it sets itself up in them, and gets memory that it can hand out
/// again, as the C library has by then.
const WARM: u32 = 32;
/// Maximum number of rounds, which go on while the gain is close to the required one.
const MOST_ROUNDS: u32 = 8;
/// Reallocations of a thread, on the slow path, after which the result is out of date.
pub(crate) const OLD: u32 = 1 << 22;
/// Larger requests are not timed, as the touch would make pages of objects that their program uses sparsely.
pub(crate) const TOUCHED_MOST: usize = 1 << 20;
/// Minimum of batches of timed frees; with fewer, only allocations are compared.
const ENOUGH: usize = 4;

/// Why small objects have their base.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Why {
    Named,
    Few,
    Running,
    Counted,
    Alone,
    Stays,
    Wins,
    Profile,
    OtherMode,
}

/// The reason in mode `auto` with no base named.
static WHY: AtomicU8 = AtomicU8::new(Why::Few as u8);

fn because(why: Why) {
    WHY.store(why as u8, Relaxed);
}

/// The reason for the base of small objects, in words.
pub(crate) fn why() -> &'static str {
    const TEXTS: [(Why, &str); 9] = [
        (Why::Named, "as configured"),
        (Why::Few, "too few of them so far for a trial"),
        (Why::Running, "a trial is under way"),
        (
            Why::Counted,
            "no trial, as memory counts when it is committed",
        ),
        (Why::Alone, "no other can be had"),
        (Why::Stays, "no other took a fifth less time in the trial"),
        (Why::Wins, "took at least a fifth less time in the trial"),
        (Why::Profile, "by the profile"),
        (Why::OtherMode, "no trial in this mode"),
    ];
    let why = match config::current().base {
        Some(_) => Why::Named as u8,
        None if words::mode() != Mode::Auto => Why::OtherMode as u8,
        None => WHY.load(Relaxed),
    };
    TEXTS
        .iter()
        .find(|text| text.0 as u8 == why)
        .map_or("", |text| text.1)
}

static RUNNING: AtomicBool = AtomicBool::new(false);
/// Small objects before the next trial; 0: none is to come.
static AFTER: AtomicU32 = AtomicU32::new(0);
/// Small objects, while a trial is to come; those of the other threads, while it runs.
static OBJECTS: AtomicU32 = AtomicU32::new(0);
/// The thread whose requests go to both in turns: where its words are. Those of all would have the threads wait for
/// each other.
static JUDGE: AtomicUsize = AtomicUsize::new(0);
/// Its requests since the trial began.
static REQUESTS: AtomicU32 = AtomicU32::new(0);
/// How many of these there were when others looked last.
static SEEN: AtomicU32 = AtomicU32::new(0);
/// Its frees that were timed.
static FREES: AtomicU32 = AtomicU32::new(0);
/// Turns of each allocator in this trial; grows while the result is in doubt.
static LENGTH: AtomicU32 = AtomicU32::new(TURNS);

/// Times of requests in batches as long as what is timed of a turn.
struct Times {
    /// Of the batch that is not full yet, in nanoseconds.
    sum: AtomicU64,
    count: AtomicU32,
    /// The mean of each full batch, in sixteenths of a nanosecond.
    means: [AtomicU32; Times::MOST],
}

impl Times {
    /// A multiple of 16.
    const BATCH: u32 = TURN - COLD;
    const MOST: usize = (MOST_ROUNDS * TURNS) as usize;

    const fn new() -> Times {
        Times {
            sum: AtomicU64::new(0),
            count: AtomicU32::new(0),
            means: [const { AtomicU32::new(0) }; Times::MOST],
        }
    }

    fn add(&self, ns: u64) {
        let sum = self.sum.fetch_add(ns, Relaxed) + ns;
        let count = self.count.fetch_add(1, Relaxed) + 1;
        if count.is_multiple_of(Self::BATCH) {
            self.sum.store(0, Relaxed);
            if let Some(mean) = self.means.get((count / Self::BATCH - 1) as usize) {
                let batch = sum / u64::from(Self::BATCH / 16);
                mean.store(batch.try_into().unwrap_or(u32::MAX), Relaxed);
            }
        }
    }

    /// Number of full batches.
    fn batches(&self) -> usize {
        ((self.count.load(Relaxed) / Self::BATCH) as usize).min(Self::MOST)
    }

    fn samples(&self) -> u64 {
        self.batches() as u64 * u64::from(Self::BATCH)
    }

    /// The mean of the middle half of the batches, in sixteenths of a nanosecond.
    fn middle(&self) -> u64 {
        let mut means = [0; Self::MOST];
        let means = &mut means[..self.batches()];
        for (mean, known) in means.iter_mut().zip(&self.means) {
            *mean = known.load(Relaxed);
        }
        means.sort_unstable();
        let quarter = means.len() / 4;
        let half = &means[quarter..means.len() - quarter];
        half.iter().map(|&mean| u64::from(mean)).sum::<u64>() / half.len().max(1) as u64
    }

    fn reset(&self) {
        self.sum.store(0, Relaxed);
        self.count.store(0, Relaxed);
    }
}

#[link_section = tables!()]
static ALLOC: [Times; 3] = [const { Times::new() }; 3];
#[link_section = tables!()]
static FREE: [Times; 3] = [const { Times::new() }; 3];
/// What the clock says of nothing. It takes longer to look at than most requests do.
#[link_section = tables!()]
static NOTHING: Times = Times::new();
/// Of so many timed requests, one comes after one of nothing.
const IDLE: u32 = 8;

/// What the last trial or the profile says about a base.
#[derive(Clone, Copy)]
pub(crate) struct Verdict {
    /// Mean time of an allocation and a free, in sixteenths of a nanosecond.
    pub(crate) mean: u64,
    pub(crate) samples: u64,
}

static MEAN: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];
static SAMPLES: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];

/// True if the verdicts are of this process's own trial.
pub(crate) static JUDGED: AtomicBool = AtomicBool::new(false);

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

/// The least mean time of the bases beside this one, as far as it is known.
fn least_beside(base: Base) -> Option<u64> {
    Base::ALL
        .into_iter()
        .filter(|&other| other != base)
        .map(verdict)
        .filter(|verdict| verdict.samples > 0)
        .map(|verdict| verdict.mean)
        .min()
}

/// How much less time the best other base takes than the C library, in percent.
pub(crate) fn gain() -> i32 {
    let sys = verdict(Base::Glibc);
    match least_beside(Base::Glibc) {
        Some(mean) if sys.mean > 0 => 100 - (mean * 100).div_ceil(sys.mean).min(1000) as i32,
        _ => 0,
    }
}

/// The base that the last trial or the profile has found.
static FOUND: AtomicU8 = AtomicU8::new(Base::Glibc as u8);

/// In `mode`, the base of what is in no slot, if the configuration names none. To be called before
/// the limits are changed for it.
pub(crate) fn base_in(mode: Mode) -> Base {
    let found = Base::from_u8(FOUND.load(Relaxed));
    if mode != Mode::Auto || found == Base::Glibc {
        Base::Glibc
    } else if words::memory_is_counted() {
        because(Why::Counted);
        Base::Glibc
    } else {
        found
    }
}

/// For the child of a fork, which cannot use `base` any more.
pub(crate) fn forget(base: Base) {
    let glibc = Base::Glibc as u8;
    if FOUND.compare_exchange(base as u8, glibc, Relaxed, Relaxed).is_ok() {
        because(Why::Alone);
    }
}

/// Has the calling thread go on with a trial that another may have begun; in the child of a fork it is the only one.
pub(crate) fn take_over() {
    JUDGE.store(tls::local().addr(), Relaxed);
}

/// Ends a trial that is under way or to come; returns true if there was one. The caller works the limits out anew.
pub(crate) fn cancel() -> bool {
    let to_come = AFTER.swap(0, Relaxed) != 0;
    RUNNING.swap(false, SeqCst) || to_come
}

/// Has a first trial come, unless a profile already has the result and it is not to be found `anew`, as where a profile
/// is made.
#[link_section = startup!()]
pub(crate) fn start_unless_known(anew: bool) {
    if !anew && Base::ALL.iter().any(|&base| verdict(base).samples > 0) {
        FOUND.store(best() as u8, Relaxed);
        because(Why::Profile);
    } else {
        wait_for(START);
    }
}

/// Has another trial come, as what the last one found is old. For use in a change of the limits.
pub(crate) fn start_again() {
    if !RUNNING.load(Relaxed) {
        wait_for(1);
    }
}

/// Has a trial come after so many small objects, if there is a choice.
fn wait_for(objects: u32) {
    let choice = base::challenger().is_some();
    OBJECTS.store(0, Relaxed);
    AFTER.store(if choice { objects } else { 0 }, Relaxed);
    because(if choice { Why::Few } else { Why::Alone });
}

/// Returns true while a trial is under way.
#[inline]
pub(crate) fn running() -> bool {
    RUNNING.load(Relaxed)
}

/// Returns true while small objects have to be counted, as a trial is to come.
#[inline]
pub(crate) fn is_to_come() -> bool {
    AFTER.load(Relaxed) != 0
}

/// Ends a trial that is under way or to come where memory counts when it is committed, as two allocators would keep too
/// much committed, and where there is no challenger left: it would go on for ever, with all requests on the slow path.
/// For use in a change of the limits.
pub(crate) fn end_if_hopeless(counted: bool) {
    if (counted || base::challenger().is_none()) && cancel() {
        because(if counted { Why::Counted } else { Why::Alone });
    }
}

/// The C library's `malloc` while a trial is to come. A short program makes no other requests.
pub(crate) unsafe extern "C" fn alloc_counted(size: usize) -> *mut c_void {
    count();
    // SAFETY: no preconditions.
    words::or_elsewhere(unsafe { sys::malloc(size) }, size)
}

/// Returns true while [`alloc_counted`] serves small objects.
pub(crate) fn is_early() -> bool {
    is_to_come() && words::hot().limit.load(Relaxed) > 0
}

/// Counts a small object.
#[inline]
pub(crate) fn count() {
    // SAFETY: the calling thread's own.
    let requests = unsafe { &(*tls::local()).requests };
    requests.set(requests.get().wrapping_add(1));
    // The first one as well: a program may have many threads that have few each.
    if requests.get() % STEP == 1 {
        step();
    }
}

/// Begins the trial after enough small objects, or anew for another thread.
#[cold]
#[inline(never)]
fn step() {
    let objects = OBJECTS.fetch_add(STEP.into(), Relaxed) + u32::from(STEP);
    if running() && objects >= PATIENCE {
        OBJECTS.store(0, Relaxed);
        let requests = REQUESTS.load(Relaxed);
        if SEEN.swap(requests, Relaxed) == requests {
            // The challenger has to begin in each thread.
            begin();
        }
    }
    if !is_to_come() || objects < AFTER.load(Relaxed) {
        return;
    }
    os::keep_errno(|| {
        if words::memory_is_counted() {
            return;
        }
        words::try_change(|| {
            if AFTER.swap(0, Relaxed) == 0 {
                return;
            }
            if base::challenger().is_none() {
                return because(Why::Alone);
            }
            begin();
            RUNNING.store(true, SeqCst);
            because(Why::Running);
        });
    });
}

/// Has the calling thread begin a trial.
fn begin() {
    ALLOC.iter().chain(&FREE).for_each(Times::reset);
    NOTHING.reset();
    OBJECTS.store(0, Relaxed);
    REQUESTS.store(0, Relaxed);
    SEEN.store(0, Relaxed);
    FREES.store(0, Relaxed);
    LENGTH.store(TURNS, Relaxed);
    take_over();
}

fn is_judge() -> bool {
    JUDGE.load(Relaxed) == tls::local().addr()
}

/// Allocates from the base whose turn it is.
#[cold]
#[inline(never)]
pub(crate) fn alloc(size: usize, align: usize, zero: bool) -> *mut u8 {
    if !is_judge() {
        count();
        return base::obtain(base::current(), size, align, zero);
    }
    let request = REQUESTS.fetch_add(1, Relaxed);
    let turn = (request / TURN).checked_sub(WARM);
    let base = match (base::challenger(), turn) {
        (Some(challenger), None) => challenger,
        (Some(challenger), Some(turn)) if turn >= 2 * LENGTH.load(Relaxed) => {
            finish(challenger);
            words::base()
        }
        (Some(challenger), Some(turn)) => {
            let base = [Base::Glibc, challenger][turn as usize % 2];
            if request % TURN >= COLD && size <= TOUCHED_MOST {
                if request.is_multiple_of(IDLE) {
                    let begin = os::now_ns();
                    NOTHING.add(os::now_ns() - begin);
                }
                return alloc_timed(base, size, align, zero);
            }
            base
        }
        (None, _) => words::base(),
    };
    base::obtain(Owner::of(base), size, align, zero)
}

fn alloc_timed(base: Base, size: usize, align: usize, zero: bool) -> *mut u8 {
    let begin = os::now_ns();
    let p = base::obtain(Owner::of(base), size, align, zero);
    if !p.is_null() {
        for at in (0..size).step_by(os::page_size()) {
            // SAFETY: within the new object, which is uninitialised or zero.
            unsafe { p.add(at).write_volatile(0) };
        }
        let ns = os::now_ns() - begin;
        // The C library may have served instead of `base`; that is no sample.
        if base::owner_of(p) == Owner::of(base) {
            ALLOC[base as usize].add(ns);
        }
    }
    p
}

/// Frees an object of a base; timed after the first turns, but not more than are allocated in them, as a program may free
/// all that it has.
///
/// # Safety
/// `p` is the caller's, of `owner`.
pub(crate) unsafe fn free(owner: Owner, p: *mut u8) {
    let timing = is_judge()
        && REQUESTS.load(Relaxed) >= WARM * TURN
        && !p.is_null()
        && FREES.fetch_add(1, Relaxed) < 2 * LENGTH.load(Relaxed) * TURN;
    let begin = timing.then(os::now_ns);
    // SAFETY: passed on.
    unsafe { base::free(owner, p) };
    if let (Some(begin), Some(base)) = (begin, owner.base()) {
        FREE[base as usize].add(os::keep_errno(os::now_ns) - begin);
    }
}

/// Ends the trial, or has it go on for a round if the result is in doubt; unless another thread
/// already does.
#[cold]
fn finish(challenger: Base) {
    words::try_change(|| {
        if RUNNING.load(Relaxed) {
            judge(challenger);
            let before = Base::from_u8(FOUND.load(Relaxed));
            let length = LENGTH.load(Relaxed);
            // Another thread that had its turn before may be held up while it gives the challenger its first memory.
            let unknown = verdict(challenger).samples == 0;
            if (unknown || in_doubt(before)) && length < MOST_ROUNDS * TURNS {
                LENGTH.store(length + TURNS, Relaxed);
                return;
            }
            let best = best_instead_of(before);
            FOUND.store(best as u8, Relaxed);
            // A thread may be in mode `auto` by a scope alone.
            if words::process_mode() == Mode::Auto {
                words::set_base(best);
            }
            because(match verdict(challenger).samples {
                0 => Why::Alone,
                _ if best == before => Why::Stays,
                _ => Why::Wins,
            });
            RUNNING.store(false, SeqCst);
        }
    });
}

/// Computes the verdicts on the C library and its challenger.
fn judge(challenger: Base) {
    let both = [Base::Glibc, challenger];
    let frees = both
        .iter()
        .all(|&base| FREE[base as usize].batches() >= ENOUGH);
    let nothing = NOTHING.middle();
    let beyond_nothing = |times: &Times| times.middle().saturating_sub(nothing).max(1);
    for base in both {
        let (alloc, free) = (&ALLOC[base as usize], &FREE[base as usize]);
        let (mut mean, mut samples) = (beyond_nothing(alloc), alloc.samples());
        if samples > 0 && frees {
            mean += beyond_nothing(free);
            samples += free.samples();
        }
        set_verdict(base, Verdict { mean, samples });
    }
    JUDGED.store(true, Relaxed);
}

/// The base that the verdicts of a profile lead to.
fn best() -> Base {
    best_instead_of(Base::Glibc)
}

/// The fastest base, if it takes a fifth less time than `now`; else `now`.
fn best_instead_of(now: Base) -> Base {
    let known = |base: &Base| verdict(*base).samples > 0 && base.is_available();
    let cheapest = Base::ALL
        .into_iter()
        .filter(known)
        .min_by_key(|&base| verdict(base).mean);
    let mean = verdict(now).mean;
    cheapest
        .filter(|&base| !known(&now) || verdict(base).mean <= mean - mean.div_ceil(5))
        .unwrap_or(now)
}

/// Returns true if another base takes about a fifth less time than `now`: between 0.74 and 0.86
/// of its time. The result of one round of a trial differs by up to 7 percent from that of many.
fn in_doubt(now: Base) -> bool {
    let mean = verdict(now).mean;
    least_beside(now).is_some_and(|best| (mean * 37 / 50..mean * 43 / 50).contains(&best))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_replaces_another_for_a_gain_of_a_fifth() {
        let means = |glibc, jemalloc, mimalloc| {
            for (base, mean) in Base::ALL.into_iter().zip([glibc, jemalloc, mimalloc]) {
                set_verdict(base, Verdict { mean, samples: 1 });
            }
        };
        let mut available = Base::ALL.into_iter().filter(|base| base.is_available());
        let other = available.find(|&base| base != Base::Glibc);
        means(1000, 1, 1);
        assert_eq!(best() == Base::Glibc, other.is_none());
        means(1000, 810, 810);
        assert_eq!(best(), Base::Glibc);
        if let Some(other) = other {
            assert_eq!(gain(), 19);
            assert!(in_doubt(Base::Glibc));
            means(1000, 870, 870);
            assert!(!in_doubt(Base::Glibc));
            means(1000, 730, 730);
            assert!(!in_doubt(Base::Glibc));
            means(1000, 810, 810);
            assert_eq!(best_instead_of(other), other);
            means(640, 810, 810);
            assert_eq!(best_instead_of(other), Base::Glibc);
        }
        for base in Base::ALL {
            let (mean, samples) = (0, 0);
            set_verdict(base, Verdict { mean, samples });
        }
        assert_eq!(best(), Base::Glibc);
    }

    #[test]
    fn a_few_turns_that_were_disturbed_do_not_change_the_result() {
        let times = Times::new();
        assert_eq!((times.samples(), times.middle()), (0, 0));
        let turn = |each: u64| (0..Times::BATCH).for_each(|_| times.add(each));
        (0..20).for_each(|i| turn(30 + i % 3));
        assert_eq!(times.samples(), 20 * u64::from(Times::BATCH));
        let calm = times.middle();
        assert!((30 * 16..=32 * 16).contains(&calm));
        // Interrupts, and pages that the host has to find memory for.
        turn(4_000);
        times.add(u64::MAX / 2);
        (1..Times::BATCH).for_each(|_| times.add(30));
        (0..3).for_each(|_| turn(700));
        assert!(times.middle() <= 32 * 16);
        // What comes in every turn is seen.
        times.reset();
        for request in 0..20 * Times::BATCH {
            times.add(if request % 64 == 0 { 700 } else { 30 });
        }
        assert!(times.middle() > 38 * 16);
        // No more than there is room for.
        (0..2 * Times::MOST).for_each(|_| turn(30));
        assert_eq!(times.batches(), Times::MOST);
    }
}
