// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reallocation out of line: the paper's Decision Maker.
//!
//! An object in a slot grows there. One in a base allocator stays with it, or moves into a slot,
//! as the mode says; in mode `auto` as the tuner has found, for which some reallocations are timed.

use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::arena::{self, Resized};
use crate::base::{self, owner_of, Owner};
use crate::counters::{bump, COUNTERS};
use crate::mode::Mode;
#[cfg(feature = "monitor")]
use crate::monitor;
use crate::words::{self, load, try_change, word, Hot, SYS_ALIGN};
use crate::{config, os, tls, trial, tuner};

/// The old size of an object whose owner did not tell it.
pub(crate) const UNKNOWN: usize = usize::MAX;
/// Objects below this size do not move early, whatever they do.
const EARLY_MIN: usize = 8 << 10;
/// Growths in the base allocator after which an object moves early. One or none is enough
/// where the tuner knows that it goes on.
const EARLY_COUNT: u64 = 2;
/// Objects that shrink below this leave their slot.
pub(crate) const LEAVE_MAX: usize = 4096;

#[inline(never)]
pub(crate) unsafe extern "C" fn realloc_cold(
    p: *mut u8,
    old: usize,
    align: usize,
    new: usize,
) -> *mut u8 {
    // SAFETY: an object that the caller owns.
    unsafe {
        // As on the fast path, which only has to count what is new.
        if new < LEAVE_MAX && align <= SYS_ALIGN && trial::is_early() && owner_of(p) == Owner::Sys {
            return base::realloc(Owner::Sys, p, align, new);
        }
        realloc_in(None, p, old, align, new)
    }
}

/// How far into the arena an object is that is in a slot, unless somebody watches.
#[inline(always)]
pub(crate) fn offset_in_slots(p: *mut u8) -> Option<usize> {
    Some(arena::offset_of(p)).filter(|&offset| offset < load!(rest.slots))
}

/// Most steps of an object that grows: there is room, and the step is not one of those that are timed, of which
/// one within a page never is: it touches nothing new. Returns false if not, and nothing has changed.
#[inline(always)]
unsafe fn grow_in_place(offset: usize, new: usize) -> bool {
    let mut numbered = false;
    let is_timed = || {
        numbered = true;
        tls::tick().is_multiple_of(tuner::SAMPLE)
    };
    // SAFETY: passed on.
    let grown = unsafe { arena::grow(offset, new, is_timed) };
    if !grown && !numbered {
        tls::tick();
    }
    grown
}

/// Resizes an object that is in a slot: at `p`, which is `offset` bytes into the arena; `old` is its size or unknown.
///
/// # Safety
/// The caller owns the object, and `new` is not 0.
#[inline(never)]
pub unsafe extern "C" fn realloc_step(
    p: *mut u8,
    old: usize,
    align: usize,
    new: usize,
    offset: usize,
) -> *mut u8 {
    // SAFETY: an object that the caller owns.
    unsafe {
        if grow_in_place(offset, new) {
            return p;
        }
        realloc_slow(None, p, old, align, new)
    }
}

/// `mode`: the allocator of a data structure, if it has its own.
#[inline(always)]
pub(crate) unsafe fn realloc_in(
    mode: Option<Mode>,
    p: *mut u8,
    old: usize,
    align: usize,
    new: usize,
) -> *mut u8 {
    // SAFETY: an object that the caller owns.
    unsafe {
        match offset_in_slots(p) {
            Some(offset) if grow_in_place(offset, new) => return p,
            Some(_) => {}
            None => _ = tls::tick(),
        }
        realloc_slow(mode, p, old, align, new)
    }
}

/// Everything else. The ABI says that it does not unwind, so the fast path ends in a jump.
#[allow(improper_ctypes_definitions)]
#[inline(never)]
unsafe extern "C" fn realloc_slow(
    mode: Option<Mode>,
    p: *mut u8,
    old: usize,
    align: usize,
    new: usize,
) -> *mut u8 {
    if new > base::MOST {
        return base::refuse();
    }
    words::ready();
    let mode = mode.unwrap_or_else(words::mode);
    #[cfg(feature = "monitor")]
    if words::hot().rest.observed.load(Relaxed) {
        // SAFETY: an object that the caller owns.
        return unsafe { observe(mode, p, old, align, new) };
    }
    // What the system refuses on the way, the program hears of only if the request is refused.
    // SAFETY: an object that the caller owns.
    os::keep_errno_if_granted(|| unsafe { realloc_sometimes_timed(mode, p, old, align, new) })
}

#[cfg(feature = "monitor")]
#[inline(never)]
unsafe fn observe(mode: Mode, p: *mut u8, old: usize, align: usize, new: usize) -> *mut u8 {
    // SAFETY: an object that the caller owns.
    unsafe {
        let known = if old == UNKNOWN { usable_size(p) } else { old };
        let begin = os::now_ns();
        let resize = || realloc_sometimes_timed(mode, p, old, align, new);
        let q = os::keep_errno_if_granted(resize);
        if !q.is_null() {
            monitor::note_realloc(p, q, known, new, os::now_ns() - begin);
        }
        q
    }
}

#[inline(always)]
unsafe fn realloc_sometimes_timed(
    mode: Mode,
    p: *mut u8,
    old: usize,
    align: usize,
    new: usize,
) -> *mut u8 {
    let tick = tls::ticks();
    if tick.is_multiple_of(trial::OLD) {
        look_again();
    }
    // SAFETY: an object that the caller owns.
    unsafe {
        if mode == Mode::Auto
            && tick.is_multiple_of(tuner::SAMPLE)
            && (EARLY_MIN..=trial::TOUCHED_MOST).contains(&new)
        {
            let experiment = tick.is_multiple_of(tuner::EXPERIMENT);
            return realloc_timed(p, old, align, new, experiment);
        }
        realloc_now(mode, p, old, align, new, false)
    }
}

/// What the last trial found has become old.
#[cold]
#[inline(never)]
fn look_again() {
    if config::current().base.is_none() && words::mode() == Mode::Auto {
        try_change(trial::start_again);
    }
}

/// One reallocation in mode `auto` for the tuner's table, with the touch of the pages it adds.
#[cold]
#[inline(never)]
unsafe fn realloc_timed(
    p: *mut u8,
    old: usize,
    align: usize,
    new: usize,
    experiment: bool,
) -> *mut u8 {
    // SAFETY: an object that the caller owns; it has `new` bytes afterwards, and those
    // beyond `old` have no content yet.
    unsafe {
        let known = if old == UNKNOWN { usable_size(p) } else { old };
        let before = owner_of(p);
        let begin = os::now_ns();
        let q = realloc_now(Mode::Auto, p, old, align, new, experiment);
        let old = known;
        if q.is_null() || new <= old {
            return q;
        }
        let called = os::now_ns();
        let page = os::page_size();
        let pages = (new - old).div_ceil(page);
        let some = pages.min(64);
        for i in 0..some {
            q.add(old + i * page).write_volatile(0);
        }
        let touched = os::now_ns() - called;
        let ns = called - begin + touched * pages as u64 / some as u64;
        let arm = match (before, owner_of(q)) {
            (Owner::Slot, Owner::Slot) => tuner::Arm::Slot,
            (Owner::Slot, _) => return q,
            (_, Owner::Slot) => tuner::Arm::Move,
            _ => tuner::Arm::Base,
        };
        tuner::record(arm, new, ns);
        q
    }
}

/// `experiment`: decide the other way.
#[inline(always)]
unsafe fn realloc_now(
    mode: Mode,
    p: *mut u8,
    old: usize,
    align: usize,
    new: usize,
    experiment: bool,
) -> *mut u8 {
    let owner = owner_of(p);
    // SAFETY: an object that the caller owns.
    unsafe {
        if owner == Owner::Slot {
            return resize_slot(p, align, new);
        }
        let mut target = base::place(mode, new);
        let within_base = || base::last_resort(|| base::realloc(owner, p, align, new));
        if target == owner && (mode != Mode::Auto || new < LEAVE_MAX) {
            return within_base();
        }
        let usable = base::usable_size(owner, p);
        if target == owner && new <= usable && usable - new < SYS_ALIGN {
            // No base has a place that would fit it better.
            return p;
        }
        // Where nobody told the old size, it may have been less than what is usable. Then a new size
        // a little below that says neither that the object grows nor that it shrinks.
        let unclear = old == UNKNOWN && (usable / 2..=usable).contains(&new);
        let old = if old == UNKNOWN { usable } else { old };
        let mut early_move = false;
        let mut count = 0;
        if mode == Mode::Auto && target != Owner::Slot && new >= LEAVE_MAX && !unclear {
            count = growths::take(p);
            if new > old {
                count += 1;
                let mut early = count >= EARLY_COUNT;
                if count == 1 {
                    if tuner::grows(old) {
                        try_change(|| ());
                    }
                    early = tuner::goes_on(new) && !tuner::aside();
                    if !early {
                        tuner::grew_once(new);
                    }
                } else if count == EARLY_COUNT {
                    tuner::grew_again(old);
                }
                let decided = tuner::decision(new) != tuner::Decision::Base;
                if decided != experiment
                    && early
                    && new >= EARLY_MIN
                    && tuner::may_move_early(new)
                {
                    target = Owner::Slot;
                    early_move = true;
                }
            } else {
                count = count.saturating_sub(1);
            }
        }
        if target == Owner::Slot && new > old && align <= arena::MAX_ALIGN {
            let q = arena::alloc(new, align, false, true);
            if !q.is_null() {
                ptr::copy_nonoverlapping(p, q, old);
                base::free(owner, p);
                bump(&COUNTERS.moves_in, 1);
                bump(&COUNTERS.moves_early, early_move.into());
                bump(&COUNTERS.bytes_copied, old);
                return q;
            }
        }
        // It grows out of the sizes of its allocator, as the template or the mode has
        // it: the paper's malloc-copy-free between allocators.
        let stays = target == owner || target == Owner::Slot || new <= old || mode == Mode::Auto;
        if !stays {
            let q = base::alloc(target, new, align, false);
            if !q.is_null() {
                ptr::copy_nonoverlapping(p, q, old);
                base::free(owner, p);
                bump(&COUNTERS.bytes_copied, old);
                return q;
            }
        }
        let q = within_base();
        if count > 0 && !q.is_null() {
            growths::put(q, count);
        }
        q
    }
}

/// Changes the size of an object that is in a slot: there if that is possible, and
/// else by copying it to the base allocator.
unsafe fn resize_slot(p: *mut u8, align: usize, new: usize) -> *mut u8 {
    // SAFETY: an object in a slot that the caller owns.
    unsafe {
        if new >= LEAVE_MAX {
            if let Resized::At(q) = arena::resize(p, new) {
                return q;
            }
        }
        // Whoever asked for the usable size may have filled all of it.
        let old = arena::usable_size(p);
        let q = base::obtain(base::current(), new, align, false);
        if q.is_null() {
            if new <= old {
                // There is no smaller one: the object stays, and it fits.
                if let Resized::At(q) = arena::resize(p, new.max(1)) {
                    return q;
                }
            }
            return q;
        }
        ptr::copy_nonoverlapping(p, q, old.min(new));
        arena::free(p);
        bump(&COUNTERS.moves_out, 1);
        bump(&COUNTERS.bytes_copied, old.min(new));
        q
    }
}

/// The paper's allocation counter, for objects that have no descriptor: a table in
/// which the last writer wins. It is a hint, so neither a lost nor a stale entry
/// does harm, and no thread waits for another.
mod growths {
    use super::*;

    const LEN: usize = 512;
    #[link_section = tables!()]
    static TABLE: [AtomicU64; LEN] = [const { AtomicU64::new(0) }; LEN];

    fn entry_of(p: *mut u8) -> (&'static AtomicU64, u64) {
        let key = p as u64 >> 4;
        let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 55;
        (&TABLE[hash as usize], key << 8)
    }

    pub(super) fn take(p: *mut u8) -> u64 {
        let (entry, key) = entry_of(p);
        let found = entry.load(Relaxed);
        if found & !0xff != key {
            return 0;
        }
        entry.store(0, Relaxed);
        found & 0xff
    }

    pub(super) fn put(p: *mut u8, count: u64) {
        let (entry, key) = entry_of(p);
        entry.store(key | count.min(255), Relaxed);
    }
}
/// Bytes usable in an object.
pub(crate) unsafe fn usable_size(p: *mut u8) -> usize {
    // SAFETY: an object that the caller owns.
    unsafe {
        match owner_of(p) {
            Owner::Slot => arena::usable_size(p),
            owner => base::usable_size(owner, p),
        }
    }
}
