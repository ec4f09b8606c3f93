// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a request is served: the paper's request handler.
//!
//! The fast paths are inlined into the program and have one or two compares each: `malloc` of up to
//! a limit goes straight to the base, the allocator of small objects, and so does `free` of an
//! address in the base's range. The slow paths are out of line. The limits are in `words.rs`.

use core::sync::atomic::Ordering::Relaxed;

use crate::base::{self, Owner};
use crate::mode::Mode;
#[cfg(feature = "monitor")]
use crate::monitor;
use crate::realloc::{
    offset_in_slots, realloc_cold, realloc_step, usable_size, LEAVE_MAX, UNKNOWN,
};
use crate::words::{self, hot, in_other, load, word, Hot, KNOWS_SIZES, SYS_ALIGN};
use crate::{arena, config, os, retain, scope, sys, trial, tuner};

/// True if the C library is the only base in this build; its functions are then called by name.
const ONE_BASE: bool = !cfg!(any(feature = "jemalloc", feature = "mimalloc"));
/// Alignment that every base gives every object.
const MIN_ALIGN: usize = 8;

/// Allocates for a caller who gives size and alignment when freeing.
#[inline]
pub(crate) unsafe fn alloc(size: usize, align: usize) -> *mut u8 {
    if ONE_BASE {
        // SAFETY: no preconditions.
        return unsafe { alloc_untold(size, align) };
    }
    if align <= MIN_ALIGN && size <= load!(limit) {
        // SAFETY: the word `alloc` is a function of this type that allocates.
        unsafe { core::mem::transmute::<usize, words::Alloc>(load!(alloc))(size).cast() }
    } else {
        alloc_other(size, align)
    }
}

/// Allocates for a caller who gives neither size nor alignment when freeing, as in C.
#[inline]
pub(crate) unsafe fn alloc_untold(size: usize, align: usize) -> *mut u8 {
    if align <= SYS_ALIGN && size <= load!(malloc_limit) {
        // SAFETY: no preconditions.
        unsafe { sys::malloc(size) }
    } else {
        alloc_other(size, align)
    }
}

#[inline]
pub(crate) unsafe fn alloc_zeroed(size: usize, align: usize) -> *mut u8 {
    if align <= SYS_ALIGN && size <= load!(malloc_limit) {
        // SAFETY: no preconditions.
        unsafe { sys::calloc(size, 1) }
    } else {
        alloc_zeroed_other(size, align)
    }
}

/// Returns true if an object is the C library's, and nobody wants to see what becomes of it.
#[inline]
fn is_sys(p: *mut u8) -> bool {
    (p as usize) < load!(low) || (p as usize) >= load!(rest.high)
}

#[inline]
pub(crate) unsafe fn free(p: *mut u8) {
    // SAFETY: an object that the caller owns.
    unsafe {
        if is_sys(p) {
            sys::free(p);
        } else if KNOWS_SIZES && in_other(p) {
            // The word is a function of this type for objects in that range.
            core::mem::transmute::<usize, words::Free>(load!(free))(p.cast(), 0, 0);
        } else {
            free_cold(p);
        }
    }
}

/// Frees an object of [`alloc`], whose size and alignment the caller gives; not one of
/// [`alloc_untold`].
#[inline]
pub(crate) unsafe fn free_told(p: *mut u8, size: usize, align: usize) {
    // SAFETY: an object that the caller owns, with this size and alignment. The word `free` is a
    // function of this type for objects in that range.
    unsafe {
        if !ONE_BASE && in_other(p) {
            if align > MIN_ALIGN {
                return free_cold(p);
            }
            core::mem::transmute::<usize, words::Free>(load!(free))(p.cast(), size, 0);
        } else {
            free(p);
        }
    }
}

/// `old` is the size asked for, or [`UNKNOWN`] for an object of [`alloc_untold`].
#[inline]
pub(crate) unsafe fn realloc(p: *mut u8, old: usize, align: usize, new: usize) -> *mut u8 {
    // SAFETY: an object that the caller owns. The word `realloc` is a function of this type for
    // objects in that range.
    unsafe {
        if new <= load!(realloc_limit) && align <= SYS_ALIGN && is_sys(p) {
            sys::realloc(p, new)
        } else if let Some(offset) = offset_in_slots(p) {
            realloc_step(p, old, align, new, offset)
        } else if !ONE_BASE
            && new <= load!(rest.other_realloc_limit)
            && (align <= MIN_ALIGN && old != UNKNOWN || KNOWS_SIZES && align <= SYS_ALIGN)
            && in_other(p)
        {
            let realloc = core::mem::transmute::<usize, words::Realloc>(load!(rest.realloc));
            // An object of at least `align` bytes has that alignment.
            realloc(p.cast(), old, new.max(align)).cast()
        } else {
            realloc_cold(p, old, align, new)
        }
    }
}

// The slow paths have the C ABI and so cannot unwind: the fast paths can end in a jump to them.

#[inline(never)]
unsafe extern "C" fn free_cold(p: *mut u8) {
    #[cfg(feature = "monitor")]
    if hot().rest.observed.load(Relaxed) {
        monitor::note_free(p);
    }
    // SAFETY: an object that the caller owns.
    unsafe {
        match base::owner_of(p) {
            Owner::Slot => arena::free(p),
            owner if trial::running() => trial::free(owner, p),
            owner => base::free(owner, p),
        }
    }
}

/// Before the slow path, for alignments up to C's: the base's function if the size is within its limit.
#[inline(never)]
extern "C" fn alloc_other(size: usize, align: usize) -> *mut u8 {
    // In every base an object of at least `align` bytes has that alignment, up to `SYS_ALIGN`.
    let enough = size.max(align);
    if align <= SYS_ALIGN && enough <= load!(limit) {
        // SAFETY: the word is a function of this type.
        let p = unsafe { core::mem::transmute::<usize, words::Alloc>(load!(alloc))(enough) };
        if !p.is_null() {
            return p.cast();
        }
    }
    alloc_cold(size, align, false)
}

/// Up to this size zeros cost less than to ask who allocates.
const ZEROED: usize = 1024;

#[inline(never)]
extern "C" fn alloc_zeroed_other(size: usize, align: usize) -> *mut u8 {
    if align <= SYS_ALIGN && size <= load!(limit) {
        if trial::is_to_come() {
            trial::count();
            // SAFETY: no preconditions.
            let p = unsafe { sys::calloc(size, 1) };
            if !p.is_null() {
                return p;
            }
        } else if size <= ZEROED {
            let p = alloc_other(size, align);
            if !p.is_null() {
                // SAFETY: a new object. All that can be used of it, as in the bases' own functions.
                unsafe { p.write_bytes(0, usable_size(p)) };
            }
            return p;
        }
    }
    alloc_cold(size, align, true)
}

#[inline(never)]
pub(crate) extern "C" fn alloc_cold(size: usize, align: usize, zero: bool) -> *mut u8 {
    if size > base::MOST {
        return base::refuse();
    }
    // What the system refuses on the way, the program hears of only if the request is refused.
    os::keep_errno_if_granted(|| alloc_slow(size, align, zero))
}

#[inline(always)]
fn alloc_slow(size: usize, align: usize, zero: bool) -> *mut u8 {
    words::ready();
    if hot().rest.scoped.load(Relaxed) {
        scope::end_some_time();
    }
    if retain::is_unknown() {
        base::tell();
    }
    let mode = words::mode();
    if mode == Mode::Auto && size < config::current().switch_point {
        if trial::running() {
            return trial::alloc(size, align, zero);
        }
        if trial::is_to_come() {
            trial::count();
        }
        if size >= LEAVE_MAX && align <= arena::MAX_ALIGN && born_to_grow(size) {
            let p = arena::alloc(size, align, zero, false);
            if !p.is_null() {
                return p;
            }
        }
    }
    if mode == Mode::Auto && base::place(mode, size) == Owner::Slot && base::current() == Owner::Sys
        && arena::can_wait(size)
    {
        return base::obtain(Owner::Sys, size, align, zero);
    }
    alloc_in(mode, size, align, zero)
}

/// Returns true if mode `auto` knows that a new object should begin in a slot.
#[inline]
fn born_to_grow(size: usize) -> bool {
    if tuner::will_grow(size) && tuner::may_move_early(size) && !tuner::aside() {
        return true;
    }
    if tuner::born(size) {
        words::try_change(|| ());
    }
    false
}

/// Allocates as `mode` says.
#[inline]
pub(crate) fn alloc_in(mode: Mode, size: usize, align: usize, zero: bool) -> *mut u8 {
    let owner = base::place(mode, size);
    if owner == Owner::Slot && align <= arena::MAX_ALIGN {
        let p = arena::alloc(size, align, zero, false);
        if !p.is_null() {
            return p;
        }
    }
    let base = if owner == Owner::Slot {
        base::current()
    } else {
        owner
    };
    base::obtain(base, size, align, zero)
}

