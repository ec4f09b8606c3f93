// SPDX-License-Identifier: MIT OR Apache-2.0
//! The allocators under the growth slots.

use core::ptr;
use core::sync::atomic::Ordering::Relaxed;

use crate::counters::{bump, COUNTERS};
#[cfg(feature = "jemalloc")]
use crate::jemalloc;
#[cfg(feature = "mimalloc")]
use crate::mimalloc;
use crate::mode::{Base, Mode};
#[cfg(any(feature = "jemalloc", feature = "mimalloc"))]
use crate::words::Direct;
use crate::words::{self, SYS_ALIGN};
use crate::{arena, config, os, retain, sys};

/// The allocator that has an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Owner {
    Sys,
    Slot,
    #[cfg(feature = "jemalloc")]
    Jemalloc,
    #[cfg(feature = "mimalloc")]
    Mimalloc,
}

impl Owner {
    /// The owner of objects of `base`; the C library if `base` is not part of this build.
    #[inline]
    pub(crate) fn of(base: Base) -> Owner {
        match base {
            #[cfg(feature = "jemalloc")]
            Base::Jemalloc => Owner::Jemalloc,
            #[cfg(feature = "mimalloc")]
            Base::Mimalloc => Owner::Mimalloc,
            _ => Owner::Sys,
        }
    }

    /// The base that has the object; `None` for a slot.
    pub(crate) fn base(self) -> Option<Base> {
        match self {
            Owner::Sys => Some(Base::Glibc),
            Owner::Slot => None,
            #[cfg(feature = "jemalloc")]
            Owner::Jemalloc => Some(Base::Jemalloc),
            #[cfg(feature = "mimalloc")]
            Owner::Mimalloc => Some(Base::Mimalloc),
        }
    }
}

/// The functions of base number `base`, if it is ready to be called directly.
#[cfg(any(feature = "jemalloc", feature = "mimalloc"))]
pub(crate) fn direct(base: u8) -> Option<Direct> {
    match base {
        #[cfg(feature = "jemalloc")]
        1 => jemalloc::direct(),
        #[cfg(feature = "mimalloc")]
        2 => mimalloc::direct(),
        _ => None,
    }
}

/// The owner of an address that is in the arena but in no slot.
#[inline(always)]
fn foreign_owner(_p: *mut u8) -> Owner {
    #[cfg(all(feature = "jemalloc", feature = "mimalloc"))]
    return if arena::in_part(0, _p) {
        Owner::Jemalloc
    } else {
        Owner::Mimalloc
    };
    #[cfg(all(feature = "jemalloc", not(feature = "mimalloc")))]
    return Owner::Jemalloc;
    #[cfg(all(feature = "mimalloc", not(feature = "jemalloc")))]
    return Owner::Mimalloc;
    #[cfg(not(any(feature = "jemalloc", feature = "mimalloc")))]
    Owner::Slot
}

/// The owner of the object at `p`.
#[inline]
pub(crate) fn owner_of(p: *mut u8) -> Owner {
    let offset = (p as usize).wrapping_sub(arena::GEOMETRY.base.load(Relaxed));
    if offset < arena::GEOMETRY.slots_len.load(Relaxed) {
        Owner::Slot
    } else if offset >= arena::GEOMETRY.len.load(Relaxed) {
        Owner::Sys
    } else {
        foreign_owner(p)
    }
}

/// Where `mode` puts a new object of `size` bytes.
#[inline]
pub(crate) fn place(mode: Mode, size: usize) -> Owner {
    match mode {
        Mode::Sys | Mode::Jemalloc | Mode::Mimalloc => fixed(mode),
        Mode::Mmap => {
            if size >= os::page_size() {
                Owner::Slot
            } else {
                current()
            }
        }
        Mode::Template => match config::current().template.mode_for(size) {
            Mode::Mmap => Owner::Slot,
            mode => fixed(mode),
        },
        Mode::Auto => {
            if size >= config::current().switch_point {
                Owner::Slot
            } else {
                current()
            }
        }
    }
}

#[inline]
fn fixed(mode: Mode) -> Owner {
    match mode {
        #[cfg(feature = "jemalloc")]
        Mode::Jemalloc => Owner::Jemalloc,
        #[cfg(feature = "mimalloc")]
        Mode::Mimalloc => Owner::Mimalloc,
        _ => Owner::Sys,
    }
}

/// The owner of new objects that are in no slot.
#[inline]
pub(crate) fn current() -> Owner {
    Owner::of(words::base())
}

/// Returns true if a base has memory that the child of a fork among threads cannot use.
pub(crate) fn minds_threads() -> bool {
    #[cfg(feature = "mimalloc")]
    return mimalloc::has_memory();
    #[cfg(not(feature = "mimalloc"))]
    false
}

/// To be called in a forked child whose parent had other threads, as these may have been in the
/// middle of an allocation. The C library and jemalloc have fork handlers of their own. Returns the
/// base that can no longer serve, if there is one.
pub(crate) fn after_fork_among_threads() -> Option<Base> {
    #[cfg(feature = "mimalloc")]
    {
        mimalloc::retire();
        if mimalloc::is_retired() {
            return Some(Base::Mimalloc);
        }
    }
    None
}

/// The challenger: the base that a trial compares with the C library, if this process can use one.
pub(crate) fn challenger() -> Option<Base> {
    #[cfg(feature = "mimalloc")]
    if !mimalloc::is_retired() && !mimalloc::is_full() {
        return Some(Base::Mimalloc);
    }
    None
}

/// Returns true if base number `base` has no room for new objects, for good.
pub(crate) fn is_full(base: u8) -> bool {
    #[cfg(feature = "mimalloc")]
    return base == Base::Mimalloc as u8 && mimalloc::is_full();
    #[cfg(not(feature = "mimalloc"))]
    {
        let _ = base;
        false
    }
}

/// Bytes in objects of jemalloc and mimalloc, and all bytes that the two hold.
pub(crate) fn in_use_and_held() -> (usize, usize) {
    #[allow(unused_mut)]
    let mut sum = (0, 0);
    #[cfg(feature = "jemalloc")]
    {
        let (in_use, held) = jemalloc::in_use_and_held();
        sum = (sum.0 + in_use, sum.1 + held);
    }
    #[cfg(feature = "mimalloc")]
    {
        let (in_use, held) = mimalloc::in_use_and_held();
        sum = (sum.0 + in_use, sum.1 + held);
    }
    sum
}

/// Bytes that jemalloc has for itself. The C library and mimalloc do not say that.
pub(crate) fn bookkeeping() -> usize {
    #[cfg(feature = "jemalloc")]
    return jemalloc::bookkeeping();
    #[cfg(not(feature = "jemalloc"))]
    0
}

/// The size to request so that an object is aligned to `align`, if that is no more than the C
/// library's alignment: jemalloc and mimalloc align objects of at least `align` bytes so.
#[cfg(any(feature = "jemalloc", feature = "mimalloc"))]
#[inline]
fn as_aligned(size: usize, align: usize) -> usize {
    if align <= SYS_ALIGN {
        size.max(align)
    } else {
        size
    }
}

/// Allocates, or returns null with `errno` set.
#[inline]
pub(crate) unsafe fn alloc(owner: Owner, size: usize, align: usize, zero: bool) -> *mut u8 {
    // SAFETY: no preconditions beyond those of the callee.
    unsafe {
        match owner {
            #[cfg(feature = "jemalloc")]
            Owner::Jemalloc => jemalloc::alloc(as_aligned(size, align), align, zero),
            #[cfg(feature = "mimalloc")]
            Owner::Mimalloc => mimalloc::alloc(as_aligned(size, align), align, zero),
            Owner::Sys | Owner::Slot => {
                if align <= SYS_ALIGN {
                    if zero {
                        sys::calloc(1, size)
                    } else {
                        sys::malloc(size)
                    }
                } else {
                    let p = sys::memalign(align, size);
                    if zero && !p.is_null() {
                        ptr::write_bytes(p, 0, size);
                    }
                    p
                }
            }
        }
    }
}

/// Allocates from `base`, or from the C library if `base` fails. Returns null, with `errno` set,
/// only after everything that no object needs was taken back.
#[inline]
pub(crate) fn obtain(base: Owner, size: usize, align: usize, zero: bool) -> *mut u8 {
    last_resort(|| {
        // SAFETY: no preconditions.
        unsafe {
            let p = alloc(base, size, align, zero);
            if p.is_null() && base != Owner::Sys {
                return alloc(Owner::Sys, size, align, zero);
            }
            p
        }
    })
}

/// Has the C library know that a larger object was freed than any before, as it would if the object had been its own:
/// allocates as much there and frees it, so that what the program has set (`mallopt`) counts. For `malloc` alone, as this
/// takes the C library's locks: a handler of a signal may free what is in a slot.
#[cold]
#[inline(never)]
pub(crate) fn tell() {
    let size = retain::make_known();
    if size > 0 {
        // Out of the compiler's sight, which leaves a pair of the two out.
        // SAFETY: no preconditions; the object is ours.
        unsafe { sys::free(core::hint::black_box(sys::malloc(size))) };
        words::outdated();
    }
}

/// The largest size that there can be: `PTRDIFF_MAX`, as in the C library.
pub(crate) const MOST: usize = isize::MAX as usize;

/// Refuses a size beyond [`MOST`]. Nothing that is taken back from others would help.
#[cold]
#[inline(never)]
pub(crate) fn refuse() -> *mut u8 {
    bump(&COUNTERS.no_memory, 1);
    os::set_errno(libc::ENOMEM);
    ptr::null_mut()
}

/// Runs `attempt`. If it fails, takes back everything that no object needs and tries once more.
#[inline]
pub(crate) fn last_resort(attempt: impl Fn() -> *mut u8) -> *mut u8 {
    let p = attempt();
    if !p.is_null() {
        return p;
    }
    give_up(&attempt)
}

#[cold]
#[inline(never)]
fn give_up(attempt: &dyn Fn() -> *mut u8) -> *mut u8 {
    // The refusal may come from a limit that the program has just set: look at the limits again.
    words::memory_is_counted();
    if arena::take_back() {
        let p = attempt();
        if !p.is_null() {
            return p;
        }
    }
    bump(&COUNTERS.no_memory, 1);
    ptr::null_mut()
}

/// Frees an object of `owner`.
#[inline]
pub(crate) unsafe fn free(owner: Owner, p: *mut u8) {
    // SAFETY: by the contract of the caller.
    unsafe {
        match owner {
            #[cfg(feature = "jemalloc")]
            Owner::Jemalloc => jemalloc::free(p),
            #[cfg(feature = "mimalloc")]
            Owner::Mimalloc => mimalloc::free(p),
            Owner::Sys | Owner::Slot => sys::free(p),
        }
    }
}

/// Bytes usable in an object of `owner`.
pub(crate) unsafe fn usable_size(owner: Owner, p: *mut u8) -> usize {
    // SAFETY: by the contract of the caller.
    unsafe {
        match owner {
            #[cfg(feature = "jemalloc")]
            Owner::Jemalloc => jemalloc::usable_size(p),
            #[cfg(feature = "mimalloc")]
            Owner::Mimalloc => mimalloc::usable_size(p),
            Owner::Sys | Owner::Slot => sys::usable_size(p),
        }
    }
}

/// Changes the size of an object of `owner`. Returns null if the object is unchanged.
pub(crate) unsafe fn realloc(owner: Owner, p: *mut u8, align: usize, new: usize) -> *mut u8 {
    // SAFETY: by the contract of the caller.
    unsafe {
        let q: *mut u8 = match owner {
            #[cfg(feature = "jemalloc")]
            Owner::Jemalloc => jemalloc::realloc(p, align, as_aligned(new, align)),
            #[cfg(feature = "mimalloc")]
            Owner::Mimalloc => mimalloc::realloc(p, align, as_aligned(new, align)),
            Owner::Sys | Owner::Slot if align <= SYS_ALIGN => return sys::realloc(p, new),
            // The C library forgets the alignment when it moves an object.
            Owner::Sys | Owner::Slot => ptr::null_mut(),
        };
        if !q.is_null() {
            return q;
        }
        let usable = usable_size(owner, p);
        if owner == Owner::Sys && new <= usable && new >= usable / 2 {
            return p;
        }
        let q = alloc(Owner::Sys, new, align, false);
        if !q.is_null() {
            ptr::copy_nonoverlapping(p, q, usable.min(new));
            free(owner, p);
        }
        q
    }
}
