// SPDX-License-Identifier: MIT OR Apache-2.0
//! mimalloc, kept within its part of the arena: it may take no memory from the
//! system, only what it is given.

use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::{
    AtomicBool, AtomicU32, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

use libmimalloc_sys as mi;

use crate::arena::{self, in_part};
use crate::config::{self, Thp};
use crate::huge::{self, Advice};
use crate::os;
use crate::words::{self, Direct};

/// Given to it at a time, an arena: a quarter of what it has already, in whole ones of the least that it takes; it takes
/// 160 arenas. The largest that there is, 16 GiB, is refused, because what describes it would not fit into an object.
const LEAST: usize = 32 << 20;
const MOST: usize = 8 << 30;
/// Maximum size and alignment of an object for which it is given more. Beyond 2 GiB, with what describes the
/// object, and 64 KiB it would ask the system, however much it has.
const MOST_SIZE: usize = 1 << 30;
const MOST_ALIGN: usize = 64 << 10;
/// From this size on, see [`keep_errno_if_large`].
const LARGE: usize = 32 << 10;
static GIVEN: AtomicUsize = AtomicUsize::new(0);
static GIVING: AtomicU32 = AtomicU32::new(0);

extern "C" {
    static _mi_process_is_initialized: bool;
    fn _mi_auto_process_init();
    fn mi_theap_get_default() -> *mut mi::mi_theap_t;
    /// Its destructor ends a thread of mimalloc's; -1 until there is one.
    static _mi_heap_default_key: libc::pthread_key_t;
}

/// Begins mimalloc, which otherwise a function of its own does before `main`. One caller at a time.
///
/// mimalloc takes the thread that begins it for the one that lives as long as the process, whose memory never
/// goes to others. So what it has for that thread is left to nobody: the caller ends as a thread of mimalloc,
/// and begins anew, as every other does, with its first request.
fn begin() {
    // SAFETY: written once, before there is any object.
    if unsafe { ptr::addr_of!(_mi_process_is_initialized).read_volatile() } {
        // Its own constructor came first, in the main thread.
        return;
    }
    // SAFETY: nobody else is in it, as it has no memory yet. The default heap of a thread begins with the address
    // of what describes the thread, and that with the number by which the thread is known: the address of
    // something in it. That of a constant is nobody's.
    unsafe {
        _mi_auto_process_init();
        let thread = *mi_theap_get_default().cast::<*mut usize>();
        mi::mi_thread_done();
        static NOBODY: usize = 0;
        *thread = ptr::addr_of!(NOBODY).addr();
    }
}

/// Its part of the arena is used up, or it takes no more of it: new objects are others'.
static FULL: AtomicBool = AtomicBool::new(false);

/// It may not be called, except for the size of an object.
static RETIRED: AtomicBool = AtomicBool::new(false);

#[inline(always)]
unsafe fn attempt(size: usize, align: usize, zero: bool) -> *mut u8 {
    // SAFETY: no preconditions.
    unsafe {
        match (align <= 8 || (align <= 16 && align <= size), zero) {
            (true, false) => mi::mi_malloc(size).cast(),
            (true, true) => mi::mi_zalloc(size).cast(),
            (false, false) => mi::mi_malloc_aligned(size, align).cast(),
            (false, true) => mi::mi_zalloc_aligned(size, align).cast(),
        }
    }
}

pub(crate) fn direct() -> Option<Direct> {
    let [start, len] = &arena::FOREIGN[1];
    (GIVEN.load(Relaxed) > 0 && !is_retired()).then_some(Direct {
        alloc: alloc_plain,
        most: LARGE - 1,
        free: free_plain,
        realloc: realloc_plain,
        range: (start.load(Relaxed), len.load(Relaxed)),
    })
}

unsafe extern "C" fn alloc_plain(size: usize) -> *mut c_void {
    // SAFETY: no preconditions.
    unsafe {
        if size > mi::MI_SMALL_SIZE_MAX {
            return alloc_medium(size);
        }
        let p = mi::mi_malloc_small(size);
        if words::in_other(p.cast()) {
            return p;
        }
        alloc_plain_cold(p.cast(), size)
    }
}

#[inline(never)]
unsafe extern "C" fn alloc_medium(size: usize) -> *mut c_void {
    // SAFETY: no preconditions.
    let p = os::keep_errno(|| unsafe { mi::mi_malloc(size) });
    if words::in_other(p.cast()) {
        return p;
    }
    alloc_plain_cold(p.cast(), size)
}

#[cold]
#[inline(never)]
extern "C" fn alloc_plain_cold(p: *mut u8, size: usize) -> *mut c_void {
    if in_part(1, p) {
        // Another base was the first.
        return p.cast();
    }
    discard(p);
    (words::hot().rest.alloc_cold)(size, 1, false).cast()
}

unsafe extern "C" fn free_plain(p: *mut c_void, _: usize, _: c_int) {
    // SAFETY: by contract.
    unsafe { mi::mi_free(p) };
}

/// As its own, but without its detour for alignments.
unsafe extern "C" fn realloc_plain(p: *mut c_void, old: usize, new: usize) -> *mut c_void {
    // SAFETY: by contract.
    unsafe {
        let room = mi::mi_usable_size(p);
        if new <= room && new >= room - room / 2 {
            return p;
        }
        let q = alloc_plain(new);
        if !q.is_null() {
            ptr::copy_nonoverlapping(p.cast::<u8>(), q.cast(), old.min(room).min(new));
            mi::mi_free(p);
        }
        q
    }
}

/// Returns true if it has memory, or is about to.
pub(crate) fn has_memory() -> bool {
    GIVEN.load(Relaxed) > 0 || GIVING.load(Relaxed) > 0
}

/// In the child of a fork of a process with other threads. They are gone, but not the
/// locks that they held, and mimalloc has no handlers to take those before a fork: of
/// its map of pages, of a thread's beginning and end. So what is alive stays where it
/// is, and nothing more is asked of it, not even to let the thread end.
pub(crate) fn retire() {
    if has_memory() {
        RETIRED.store(true, Relaxed);
        // SAFETY: written by threads that are gone, at most. A key that there is not yet is refused.
        unsafe {
            let key = ptr::addr_of!(_mi_heap_default_key).read_volatile();
            libc::pthread_setspecific(key, ptr::null());
        }
    }
}

#[inline]
pub(crate) fn is_retired() -> bool {
    RETIRED.load(Relaxed)
}

#[inline]
pub(crate) fn is_full() -> bool {
    FULL.load(Relaxed)
}

#[inline(always)]
pub(crate) unsafe fn alloc(size: usize, align: usize, zero: bool) -> *mut u8 {
    if is_retired() || is_full() {
        os::set_errno(libc::ENOMEM);
        return ptr::null_mut();
    }
    if GIVEN.load(Relaxed) != 0 {
        // SAFETY: no preconditions.
        let p = keep_errno_if_large(size, || unsafe { attempt(size, align, zero) });
        if in_part(1, p) {
            return p;
        }
        discard(p);
    }
    // SAFETY: no preconditions.
    unsafe { give_and_alloc(size, align, zero) }
}

/// mimalloc sets `errno` on the way to success, which getdelim's callers take for a
/// failure. Small objects hardly ever come to that (one of a hundred thousand, where it has to be given more), and they
/// count instructions: to keep it for them, too, would take a quarter of the time of `malloc` and `free`.
#[inline(always)]
fn keep_errno_if_large(size: usize, f: impl FnOnce() -> *mut u8) -> *mut u8 {
    if size < LARGE {
        f()
    } else {
        os::keep_errno(f)
    }
}

#[cold]
fn discard(p: *mut u8) {
    if !p.is_null() {
        // SAFETY: an object of mimalloc that nobody has seen.
        unsafe { mi::mi_free(p.cast()) };
    }
}

#[cold]
#[inline(never)]
unsafe fn give_and_alloc(size: usize, align: usize, zero: bool) -> *mut u8 {
    let p = os::keep_errno(|| {
        if size <= MOST_SIZE && align <= MOST_ALIGN && arena::ready() && give(size * 2) {
            // SAFETY: no preconditions.
            let p = unsafe { attempt(size, align, zero) };
            if in_part(1, p) {
                return p;
            }
            discard(p);
        }
        ptr::null_mut()
    });
    if p.is_null() {
        os::set_errno(libc::ENOMEM);
    }
    p
}

/// Gives it more of its part of the arena, at least `least` bytes.
///
/// Readable and writable from the start, so that huge pages fit in: committed bit by
/// bit, a third of the time of a program that has nothing but small objects would go
/// into faults. Where the system counts memory when it is committed, mimalloc commits for
/// itself. Beyond the first share the kernel is asked for huge pages if they pay: mimalloc is about to use the share, so
/// the pages that are touched to find out are not touched in vain.
fn give(least: usize) -> bool {
    if GIVING.compare_exchange(0, 1, Acquire, Relaxed).is_err() {
        return false;
    }
    begin();
    let [start, len] = &arena::FOREIGN[1];
    let (start, len) = (start.load(Relaxed), len.load(Relaxed));
    let given = GIVEN.load(Relaxed);
    let share = (given / 4).max(least).next_multiple_of(LEAST).min(MOST);
    // A rest that is too little for an arena goes with the last share.
    let left = len - given;
    let share = if left < share + LEAST { left } else { share };
    let done = share >= LEAST && {
        let at = (start + given) as *mut u8;
        // SAFETY: reserved address space of ours that it does not have yet.
        unsafe {
            let committed = !words::memory_is_counted() && os::commit(at, share);
            if !committed {
                os::show_in_dumps(at, share, true);
            } else {
                choose_pages(at, share, given == 0);
            }
            // Otherwise it would ask the system when the range is used up.
            mi::mi_option_set(mi::mi_option_limit_os_alloc, 1);
            mi::mi_manage_os_memory_ex(
                at.cast(),
                share,
                committed,
                false,
                true,
                -1,
                false,
                ptr::null_mut(),
            )
        }
    };
    match done {
        true => GIVEN.store(given + share, Relaxed),
        false => FULL.store(true, Relaxed),
    }
    GIVING.store(0, Release);
    if !done || given == 0 {
        words::reconsider();
    }
    done
}

/// Has the kernel give a share huge pages, or small ones.
///
/// The first has small ones, but for one at its beginning. mimalloc has a page of 64 KiB for each size and thread, and
/// touches little of most; a huge page has memory behind all of it. The one is for a trial, whose objects live there:
/// those of the C library come from memory that was touched before. A program with little memory does not have it.
///
/// # Safety
/// The share is the caller's, committed, and nothing of it was touched.
unsafe fn choose_pages(at: *mut u8, share: usize, first: bool) {
    /// One may be warm where the others are not.
    const TRIES: usize = 2;
    let always = config::current().thp == Thp::Always;
    let advice = match first && !always {
        true => Advice::Small,
        false => huge::advice(share, || true),
    };
    let mut huge = match advice {
        Advice::Small if first && huge::may_pay() && !os::has_little_memory() => os::HUGE,
        Advice::Small => 0,
        Advice::Huge | Advice::Try => share,
    };
    if huge > 0 && advice != Advice::Huge && !huge::enough_for(huge) {
        arena::huge_pages_lose();
        huge = 0;
    }
    // SAFETY: by contract.
    unsafe {
        if huge > 0 {
            os::advise_huge(at, huge, true);
        }
        if huge < share && huge::must_be_avoided() {
            os::advise_huge(at.add(huge), share - huge, false);
        }
        let tried = |n: usize| huge::try_one(at.add(n * share / TRIES));
        if advice == Advice::Try && huge > 0 && !(0..TRIES).all(tried) {
            arena::huge_pages_lose();
            os::advise_huge(at, share, false);
        }
    }
}

/// Bytes in objects, and in the pages that are for them.
pub(crate) fn in_use_and_held() -> (usize, usize) {
    unsafe extern "C" fn add(
        _: *const mi::mi_heap_t,
        area: *const mi::mi_heap_area_t,
        _: *mut c_void,
        _: usize,
        sums: *mut c_void,
    ) -> bool {
        // SAFETY: mimalloc passes an area, and the pair below.
        unsafe {
            let (area, sums) = (&*area, &mut *sums.cast::<(usize, usize)>());
            sums.0 += area.used * area.full_block_size;
            sums.1 += area.reserved;
        }
        true
    }
    let mut sums = (0usize, 0usize);
    // What describes its pages stays where it is, so that others may change it meanwhile.
    if GIVEN.load(Relaxed) > 0 && !is_retired() {
        let to = ptr::from_mut(&mut sums).cast();
        // SAFETY: null is the heap of all threads; only areas are visited.
        unsafe { mi::mi_heap_visit_blocks(ptr::null_mut(), false, Some(add), to) };
    }
    sums
}

#[inline]
pub(crate) unsafe fn free(p: *mut u8) {
    if !is_retired() {
        // SAFETY: by contract.
        unsafe { mi::mi_free(p.cast()) };
    }
}

pub(crate) unsafe fn usable_size(p: *mut u8) -> usize {
    // SAFETY: by contract.
    unsafe { mi::mi_usable_size(p.cast()) }
}

pub(crate) unsafe fn realloc(p: *mut u8, align: usize, new: usize) -> *mut u8 {
    if is_retired() {
        // SAFETY: by contract.
        let room = unsafe { usable_size(p) };
        // Alignment does not change where the object stays.
        let stays = new <= room && new >= room / 2 && (p as usize).is_multiple_of(align);
        return if stays { p } else { ptr::null_mut() };
    }
    // SAFETY: by contract. As the system is barred, what it returns is in the range.
    unsafe {
        keep_errno_if_large(new, || {
            if align <= 8 || (align <= 16 && align <= new) {
                mi::mi_realloc(p.cast(), new).cast()
            } else {
                mi::mi_realloc_aligned(p.cast(), new, align).cast()
            }
        })
    }
}
