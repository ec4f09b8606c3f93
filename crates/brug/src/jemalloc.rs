// SPDX-License-Identifier: MIT OR Apache-2.0
//! jemalloc, kept within its part of the arena.
//!
//! All its arenas get hooks that take memory from there, so that nothing it returns has to
//! be looked at. By default an arena uses the system's memory, and the first exists before
//! that can be changed. What it holds by then is allocated and never used. An arena takes
//! 90 KiB, and there are four to a processor
//! (`_RJEM_MALLOC_CONF=narenas:N`).

use core::ffi::{c_int, c_uint, c_void, CStr};
use core::mem::size_of;
use core::ptr;
use core::sync::atomic::{
    AtomicU32, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

use tikv_jemalloc_sys as je;

use crate::arena::{self, in_part};
use crate::words::{self, Direct};
use crate::os;

/// Bytes of the range that arenas have been given.
static TAKEN: AtomicUsize = AtomicUsize::new(0);

const NEW: u32 = 0;
const BUSY: u32 = 1;
const READY: u32 = 2;
const REFUSED: u32 = 3;
/// As `READY`; so little of the range is left that an allocation may fail.
const LOW: u32 = 4;
static STATE: AtomicU32 = AtomicU32::new(NEW);
/// A range shorter than this is soon used up.
const AMPLE: usize = 1 << 30;

#[inline(always)]
fn flags(size: usize, align: usize) -> c_int {
    if align <= 8 || (align <= 16 && align <= size) {
        0
    } else {
        je::MALLOCX_ALIGN(align)
    }
}

pub(crate) fn direct() -> Option<Direct> {
    let [start, len] = &arena::FOREIGN[0];
    let range = (start.load(Relaxed), len.load(Relaxed));
    (STATE.load(Acquire) == READY && range.1 >= AMPLE).then_some(Direct {
        alloc: je::malloc,
        most: usize::MAX,
        free: je::sdallocx,
        realloc: resize,
        range,
    })
}

/// Changes the size of an object that has the size class of `old` and no flags.
unsafe extern "C" fn resize(p: *mut c_void, old: usize, new: usize) -> *mut c_void {
    /// Larger objects may find room where they are.
    const SMALL: usize = 8 << 10;
    // SAFETY: by contract.
    unsafe {
        if je::nallocx(old, 0) == je::nallocx(new, 0) {
            return p;
        }
        let q = if old.max(new) > SMALL {
            je::realloc(p, new)
        } else {
            let q = je::malloc(new);
            if !q.is_null() {
                ptr::copy_nonoverlapping(p.cast::<u8>(), q.cast(), old.min(new));
                je::sdallocx(p, old, 0);
            }
            q
        };
        if q.is_null() {
            return (words::hot().rest.realloc_cold)(p.cast(), old, 1, new).cast();
        }
        q
    }
}

#[inline]
pub(crate) unsafe fn alloc(size: usize, align: usize, zero: bool) -> *mut u8 {
    if !ready() {
        os::set_errno(libc::ENOMEM);
        return ptr::null_mut();
    }
    let flags = flags(size, align);
    // SAFETY: no preconditions; mallocx wants a size.
    let p: *mut u8 = unsafe {
        match (flags, zero) {
            (0, false) => je::malloc(size).cast(),
            (0, true) => je::calloc(1, size).cast(),
            (_, false) => je::mallocx(size.max(1), flags).cast(),
            (_, true) => je::mallocx(size.max(1), flags | je::MALLOCX_ZERO).cast(),
        }
    };
    if p.is_null() {
        os::set_errno(libc::ENOMEM);
    }
    debug_assert!(p.is_null() || in_part(0, p));
    p
}

#[inline]
fn ready() -> bool {
    match STATE.load(Acquire) {
        READY | LOW => true,
        NEW => begin(),
        _ => false,
    }
}

#[cold]
#[inline(never)]
fn begin() -> bool {
    if !arena::ready() || STATE.compare_exchange(NEW, BUSY, Acquire, Relaxed).is_err() {
        // Some thread is doing that, perhaps this one; this object does without.
        return false;
    }
    // Its arenas are made at once, and one that is refused would be made later without our
    // memory behind it.
    let done = os::keep_errno(|| !words::memory_is_counted() && take_over());
    let state = if done { READY } else { REFUSED };
    STATE.store(state, Release);
    if done {
        words::reconsider();
    } else {
        os::complain(format_args!(
            "jemalloc is in use by the program itself, or memory counts when it is committed \
             (RLIMIT_DATA, vm.overcommit_memory=2); using the C library"
        ));
    }
    done
}

unsafe fn get<T: Copy + Default>(name: &CStr) -> Option<T> {
    let mut value = T::default();
    let mut len = size_of::<T>();
    // SAFETY: by contract `T` is the type of this control.
    let error = unsafe {
        je::mallctl(
            name.as_ptr(),
            ptr::from_mut(&mut value).cast(),
            &mut len,
            ptr::null_mut(),
            0,
        )
    };
    (error == 0).then_some(value)
}

unsafe fn set<T>(name: &CStr, mut value: T) -> bool {
    // SAFETY: by contract `T` is the type of this control.
    unsafe {
        je::mallctl(
            name.as_ptr(),
            ptr::null_mut(),
            ptr::null_mut(),
            ptr::from_mut(&mut value).cast(),
            size_of::<T>(),
        ) == 0
    }
}

/// Puts our memory behind all arenas. False: somebody has objects of jemalloc already,
/// whose memory is not ours.
fn take_over() -> bool {
    // SAFETY: the types are those of the controls.
    unsafe {
        // This thread's cache is an object of the first arena, from before that has our
        // memory. It is made anew afterwards.
        let cached: bool = get(c"thread.tcache.enabled").unwrap_or(false);
        set(c"thread.tcache.enabled", false);
        set(c"epoch", 1u64);
        // Another thread's cache counts as internal. It stays where it is.
        let bytes = |name| get::<usize>(name).unwrap_or(0);
        let mut used = bytes(c"stats.arenas.0.small.allocated")
            + bytes(c"stats.arenas.0.large.allocated")
            > bytes(c"stats.arenas.0.internal");
        let hooks = ptr::addr_of!(HOOKS.0);
        let mut mib = [0usize; 3];
        let mut len = mib.len();
        je::mallctlnametomib(c"arena.0.extent_hooks".as_ptr(), mib.as_mut_ptr(), &mut len);
        let mut known = mib;
        let mut known_len = known.len();
        je::mallctlnametomib(
            c"arena.0.initialized".as_ptr(),
            known.as_mut_ptr(),
            &mut known_len,
        );
        for index in 1..get::<c_uint>(c"arenas.narenas").unwrap_or(0) {
            known[1] = index as usize;
            let (mut there, mut size) = (false, size_of::<bool>());
            let none = ptr::null_mut();
            let value = ptr::from_mut(&mut there).cast();
            je::mallctlbymib(known.as_ptr(), known_len, value, &mut size, none, 0);
            used |= there;
        }
        let put = |index: usize| {
            let mut mib = mib;
            mib[1] = index;
            let mut hooks = hooks;
            let hooks = ptr::from_mut(&mut hooks).cast();
            let size = size_of::<*const je::extent_hooks_t>();
            let none = ptr::null_mut();
            je::mallctlbymib(mib.as_ptr(), len, none, none.cast(), hooks, size) == 0
        };
        let mut arenas = 0;
        while !used && put(arenas) {
            arenas += 1;
        }
        let mut done = arenas > 0;
        // The arena for the largest objects is made for the first of them.
        let huge = get::<usize>(c"opt.oversize_threshold").unwrap_or(0);
        if done {
            strip(0, 2 << 20);
            if huge > 0 {
                je::mallocx(huge, je::MALLOCX_TCACHE_NONE);
                done = put(arenas);
            }
            if huge > 0 && done {
                strip(arenas, huge);
            }
        }
        set(c"thread.tcache.enabled", cached);
        done
    }
}

/// Allocates what an arena has of other memory than ours, for good.
unsafe fn strip(arena: usize, most: usize) {
    let flags = je::MALLOCX_ARENA(arena) | je::MALLOCX_TCACHE_NONE;
    let mut ours = [ptr::null_mut(); 128];
    let mut count = 0;
    // From the largest class down, so that no piece is left that one would fit in.
    let mut size = most;
    // SAFETY: sizes that are not zero; objects nobody has seen.
    unsafe {
        while size > 0 && count < ours.len() {
            let p = je::mallocx(size, flags);
            if !p.is_null() && !in_part(0, p.cast()) {
                continue;
            }
            ours[count] = p;
            count += 1;
            // The next smaller class: there are four to each power of two.
            let class = je::nallocx(size, 0);
            let quarter = 1 << (class - 1).ilog2().saturating_sub(2);
            size = class - quarter.max(if class > 16 { 16 } else { 8 });
        }
        for &p in ours[..count].iter().filter(|p| !p.is_null()) {
            je::dallocx(p, flags);
        }
    }
}

#[inline]
pub(crate) unsafe fn free(p: *mut u8) {
    // SAFETY: by contract.
    unsafe { je::free(p.cast()) };
}

pub(crate) unsafe fn usable_size(p: *mut u8) -> usize {
    // SAFETY: by contract.
    unsafe { je::malloc_usable_size(p.cast()) }
}

pub(crate) unsafe fn realloc(p: *mut u8, align: usize, new: usize) -> *mut u8 {
    let flags = flags(new, align);
    // SAFETY: by contract; rallocx wants a size.
    unsafe {
        if flags == 0 {
            je::realloc(p.cast(), new.max(1)).cast()
        } else {
            je::rallocx(p.cast(), new.max(1), flags).cast()
        }
    }
}

/// Bytes in pages that have objects in them, and in all pages it holds.
pub(crate) fn in_use_and_held() -> (usize, usize) {
    if !matches!(STATE.load(Acquire), READY | LOW) {
        return (0, 0);
    }
    // SAFETY: the types are those of the controls. 4096 stands for all arenas.
    unsafe {
        set(c"epoch", 1u64);
        let page: usize = get(c"arenas.page").unwrap_or(os::page_size());
        let pages = |name| get::<usize>(name).unwrap_or(0) * page;
        let in_use = pages(c"stats.arenas.4096.pactive");
        let free =
            pages(c"stats.arenas.4096.pdirty") + pages(c"stats.arenas.4096.pmuzzy");
        (in_use, in_use + free)
    }
}

/// Bytes that describe objects and pages.
pub(crate) fn bookkeeping() -> usize {
    if !matches!(STATE.load(Acquire), READY | LOW) {
        return 0;
    }
    // SAFETY: the types are those of the controls.
    unsafe {
        set(c"epoch", 1u64);
        get(c"stats.metadata").unwrap_or(0)
    }
}

struct Hooks(je::extent_hooks_t);
// SAFETY: never written.
unsafe impl Sync for Hooks {}
static HOOKS: Hooks = Hooks(je::extent_hooks_t {
    alloc: Some(extent_alloc),
    dalloc: Some(extent_dalloc),
    destroy: None,
    commit: None,
    decommit: None,
    purge_lazy: None,
    purge_forced: Some(extent_purge),
    split: Some(extent_split),
    merge: Some(extent_merge),
});

unsafe extern "C" fn extent_alloc(
    _: *mut je::extent_hooks_t,
    at: *mut c_void,
    size: usize,
    align: usize,
    zero: *mut bool,
    commit: *mut bool,
    _: c_uint,
) -> *mut c_void {
    let [start, len] = &arena::FOREIGN[0];
    let (start, len) = (start.load(Relaxed), len.load(Relaxed));
    let mut taken = TAKEN.load(Relaxed);
    loop {
        let from = (start + taken + align - 1) & !(align - 1);
        if !at.is_null() && at as usize != from {
            return ptr::null_mut();
        }
        let Some(end) = (from - start).checked_add(size).filter(|&end| end <= len) else {
            return ptr::null_mut();
        };
        match TAKEN.compare_exchange_weak(taken, end, Relaxed, Relaxed) {
            Ok(_) => {
                let p = from as *mut u8;
                // SAFETY: in our reservation and taken by nobody else.
                let have = || unsafe { os::commit(p, size) };
                if !(have() || (arena::take_back() && have())) {
                    // Unless somebody has taken what comes after it.
                    let _ = TAKEN.compare_exchange(end, taken, Relaxed, Relaxed);
                    return ptr::null_mut();
                }
                if end > len - len / 8
                    && STATE.compare_exchange(READY, LOW, Relaxed, Relaxed).is_ok()
                {
                    words::reconsider();
                }
                // SAFETY: jemalloc passes valid pointers.
                unsafe {
                    *zero = true;
                    *commit = true;
                }
                return p.cast();
            }
            Err(now) => taken = now,
        }
    }
}

/// Address space is kept: there is enough, and holes would be lost.
unsafe extern "C" fn extent_dalloc(
    _: *mut je::extent_hooks_t,
    _: *mut c_void,
    _: usize,
    _: bool,
    _: c_uint,
) -> bool {
    true
}

unsafe extern "C" fn extent_purge(
    _: *mut je::extent_hooks_t,
    p: *mut c_void,
    _: usize,
    offset: usize,
    len: usize,
    _: c_uint,
) -> bool {
    // SAFETY: jemalloc's extent, the content of which is dead.
    !unsafe { os::discard(p.cast::<u8>().add(offset), len) }
}

unsafe extern "C" fn extent_split(
    _: *mut je::extent_hooks_t,
    _: *mut c_void,
    _: usize,
    _: usize,
    _: usize,
    _: bool,
    _: c_uint,
) -> bool {
    false
}

unsafe extern "C" fn extent_merge(
    _: *mut je::extent_hooks_t,
    a: *mut c_void,
    _: usize,
    b: *mut c_void,
    _: usize,
    _: bool,
    _: c_uint,
) -> bool {
    in_part(0, a.cast()) != in_part(0, b.cast())
}
