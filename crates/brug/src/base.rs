// SPDX-License-Identifier: MIT OR Apache-2.0
//! The allocators under the growth slots.

use core::ffi::c_void;
use core::ptr;

use crate::mode::Base;

/// Who has an object.
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
    /// The owner of what a base that this build has allocates.
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

/// Alignment that the C library gives every object.
pub(crate) const SYS_ALIGN: usize = 16;

/// The C library's allocator.
pub(crate) mod sys {
    use super::*;

    #[cfg(not(feature = "preload"))]
    mod names {
        pub(crate) use libc::{calloc, free, malloc, malloc_usable_size, memalign, realloc};
    }

    /// A function of the library whose `malloc` we use; null if it has none of that
    /// name. Takes the loader's lock, which a first call before `main` makes harmless.
    #[cfg(feature = "preload")]
    pub(crate) fn symbol(name: &core::ffi::CStr) -> *mut c_void {
        let mut info = core::mem::MaybeUninit::<libc::Dl_info>::zeroed();
        // SAFETY: an address in a loaded library, whose name is a C string. It stays loaded, so
        // its handle need not be given back.
        unsafe {
            let address = names::malloc as *const () as *const c_void;
            if libc::dladdr(address, info.as_mut_ptr()) == 0 {
                return ptr::null_mut();
            }
            let path = info.assume_init().dli_fname;
            let handle = libc::dlopen(path, libc::RTLD_LAZY | libc::RTLD_NOLOAD);
            if handle.is_null() {
                return ptr::null_mut();
            }
            libc::dlsym(handle, name.as_ptr())
        }
    }

    /// In the library that is `malloc` itself, the C library's goes by other names.
    #[cfg(feature = "preload")]
    mod names {
        use core::ffi::c_void;
        use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
        extern "C" {
            #[link_name = "__libc_malloc"]
            pub(crate) fn malloc(size: usize) -> *mut c_void;
            #[link_name = "__libc_calloc"]
            pub(crate) fn calloc(n: usize, size: usize) -> *mut c_void;
            #[link_name = "__libc_realloc"]
            pub(crate) fn realloc(p: *mut c_void, size: usize) -> *mut c_void;
            #[link_name = "__libc_free"]
            pub(crate) fn free(p: *mut c_void);
            #[link_name = "__libc_memalign"]
            pub(crate) fn memalign(align: usize, size: usize) -> *mut c_void;
        }

        /// It has no second name, and the next one after ours may be that of another
        /// allocator that the program is linked with.
        pub(crate) unsafe fn malloc_usable_size(p: *mut c_void) -> usize {
            static NEXT: AtomicUsize = AtomicUsize::new(0);
            let mut next = NEXT.load(Relaxed);
            if next == 0 {
                next = super::symbol(c"malloc_usable_size") as usize;
                NEXT.store(next, Relaxed);
            }
            if next == 0 {
                return 0;
            }
            // SAFETY: the C library's function of this signature.
            let f: unsafe extern "C" fn(*mut c_void) -> usize =
                unsafe { core::mem::transmute(next) };
            // SAFETY: by the contract of the caller.
            unsafe { f(p) }
        }
    }

    #[inline(always)]
    pub(crate) unsafe fn malloc(size: usize) -> *mut u8 {
        // SAFETY: no preconditions.
        unsafe { names::malloc(size).cast() }
    }

    #[inline(always)]
    pub(crate) unsafe fn calloc(n: usize, size: usize) -> *mut u8 {
        // SAFETY: no preconditions.
        unsafe { names::calloc(n, size).cast() }
    }

    #[inline(always)]
    pub(crate) unsafe fn realloc(p: *mut u8, size: usize) -> *mut u8 {
        // SAFETY: an object of the C library, by the contract of the caller.
        unsafe { names::realloc(p.cast::<c_void>(), size).cast() }
    }

    #[inline(always)]
    pub(crate) unsafe fn free(p: *mut u8) {
        // SAFETY: an object of the C library, by the contract of the caller.
        unsafe { names::free(p.cast::<c_void>()) }
    }

    #[inline]
    pub(crate) unsafe fn memalign(align: usize, size: usize) -> *mut u8 {
        // SAFETY: no preconditions.
        unsafe { names::memalign(align, size).cast() }
    }

    #[inline]
    pub(crate) unsafe fn usable_size(p: *mut u8) -> usize {
        // SAFETY: an object of the C library, by the contract of the caller.
        unsafe { names::malloc_usable_size(p.cast::<c_void>()) }
    }
}

/// The owner of this number among the bases.
#[cfg(any(feature = "jemalloc", feature = "mimalloc"))]
#[inline(always)]
pub(crate) fn other(base: u8) -> Owner {
    match base {
        #[cfg(feature = "jemalloc")]
        1 => Owner::Jemalloc,
        #[cfg(feature = "mimalloc")]
        2 => Owner::Mimalloc,
        _ => Owner::Sys,
    }
}

/// What the base of this number has at once, or null: then ask [`alloc`].
#[cfg(any(feature = "jemalloc", feature = "mimalloc"))]
#[inline(always)]
pub(crate) unsafe fn alloc_plain(base: u8, size: usize) -> *mut u8 {
    // SAFETY: no preconditions.
    unsafe {
        match base {
            #[cfg(feature = "jemalloc")]
            1 => jemalloc::alloc_plain(size),
            #[cfg(feature = "mimalloc")]
            2 => mimalloc::alloc_plain(size),
            _ => ptr::null_mut(),
        }
    }
}

/// Whether `p` is in the part of the arena that is number `which` of `FOREIGN`.
#[cfg(any(feature = "jemalloc", feature = "mimalloc"))]
#[inline(always)]
fn in_range(which: usize, p: *mut u8) -> bool {
    use core::sync::atomic::Ordering::Relaxed;
    let [start, len] = &crate::arena::FOREIGN[which];
    (p as usize).wrapping_sub(start.load(Relaxed)) < len.load(Relaxed)
}

/// The owner of an address in the arena, but in no slot.
#[inline(always)]
pub(crate) fn foreign_owner(_p: *mut u8) -> Owner {
    #[cfg(all(feature = "jemalloc", feature = "mimalloc"))]
    return if in_range(0, _p) {
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

/// jemalloc, kept within its part of the arena.
///
/// Its own arenas are made with default hooks and may hand out any address, and it
/// starts before anybody can say otherwise. So threads are bound to arenas that we
/// make, with hooks that take memory from our range. Whether a thread is bound is
/// not remembered but seen: an address outside the range has come from one that is
/// not (a new thread, or one at the end of its life), and goes back at once.
#[cfg(feature = "jemalloc")]
mod jemalloc {
    use core::ffi::{c_int, c_uint, c_void, CStr};
    use core::mem::size_of;
    use core::ptr;
    use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};

    use tikv_jemalloc_sys as je;

    use super::{in_range, Owner};
    use crate::{arena, os};

    /// Most arenas: jemalloc's own rule is four to a processor.
    const MOST: usize = 64;
    static ARENAS: [AtomicU32; MOST] = [const { AtomicU32::new(0) }; MOST];
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    static TAKEN: AtomicUsize = AtomicUsize::new(0);

    #[inline(always)]
    fn flags(size: usize, align: usize) -> c_int {
        if align <= 8 || (align <= 16 && align <= size) {
            0
        } else {
            je::MALLOCX_ALIGN(align)
        }
    }

    #[inline(always)]
    pub(super) unsafe fn alloc_plain(size: usize) -> *mut u8 {
        // SAFETY: no preconditions.
        let p: *mut u8 = unsafe { je::malloc(size).cast() };
        if in_range(0, p) {
            return p;
        }
        discard(p);
        ptr::null_mut()
    }

    #[inline]
    pub(super) unsafe fn alloc(size: usize, align: usize, zero: bool) -> *mut u8 {
        let flags = flags(size, align);
        // SAFETY: no preconditions; mallocx wants a size.
        let p: *mut u8 = unsafe {
            if zero {
                je::mallocx(size.max(1), flags | je::MALLOCX_ZERO).cast()
            } else if flags == 0 {
                je::malloc(size).cast()
            } else {
                je::mallocx(size.max(1), flags).cast()
            }
        };
        if in_range(0, p) {
            p
        } else {
            // SAFETY: as above.
            unsafe { bind_and_alloc(p, size, align, zero) }
        }
    }

    #[cold]
    #[inline(never)]
    unsafe fn bind_and_alloc(stray: *mut u8, size: usize, align: usize, zero: bool) -> *mut u8 {
        if !arena::ready() {
            discard(stray);
            return ptr::null_mut();
        }
        discard(stray);
        if !bind() {
            os::set_errno(libc::ENOMEM);
            return ptr::null_mut();
        }
        let flags = flags(size, align) | if zero { je::MALLOCX_ZERO } else { 0 };
        // SAFETY: no preconditions.
        let p: *mut u8 = unsafe { je::mallocx(size.max(1), flags).cast() };
        if in_range(0, p) {
            return p;
        }
        if p.is_null() {
            os::set_errno(libc::ENOMEM);
            return p;
        }
        // A thread that is ending gets memory of arena 0, whatever it asks for.
        discard(p);
        // SAFETY: no preconditions.
        unsafe { super::alloc(Owner::Sys, size, align, zero) }
    }

    #[cold]
    fn discard(p: *mut u8) {
        if !p.is_null() {
            // SAFETY: an object of jemalloc that nobody has seen.
            unsafe { je::dallocx(p.cast(), je::MALLOCX_TCACHE_NONE) };
        }
    }

    unsafe fn ctl<T>(name: &CStr, old: Option<&mut T>, new: Option<&mut T>) -> bool {
        let mut len = size_of::<T>();
        let (oldp, lenp) = match old {
            Some(old) => (ptr::from_mut(old).cast(), ptr::from_mut(&mut len)),
            None => (ptr::null_mut(), ptr::null_mut()),
        };
        let (newp, newlen) = match new {
            Some(new) => (ptr::from_mut(new).cast(), size_of::<T>()),
            None => (ptr::null_mut(), 0),
        };
        // SAFETY: by contract `T` is the type of this control.
        unsafe { je::mallctl(name.as_ptr(), oldp, lenp, newp, newlen) == 0 }
    }

    /// Binds the calling thread to one of our arenas.
    fn bind() -> bool {
        let arenas = (processors() * 4).clamp(1, MOST);
        let place = &ARENAS[NEXT.fetch_add(1, Relaxed) % arenas];
        let mut index: c_uint = place.load(Relaxed);
        // SAFETY: the types of the controls.
        unsafe {
            if index == 0 {
                // Its memory is given out by the hooks from the first byte on.
                let mut hooks = ptr::addr_of!(HOOKS.0).cast_mut();
                let mut len = size_of::<c_uint>();
                let error = je::mallctl(
                    c"arenas.create".as_ptr(),
                    ptr::from_mut(&mut index).cast(),
                    &mut len,
                    ptr::from_mut(&mut hooks).cast(),
                    size_of::<*mut je::extent_hooks_t>(),
                );
                if error != 0 {
                    return false;
                }
                // Two threads at once: one arena more.
                place.store(index, Relaxed);
            }
            // A thread that is ending has no cache any more, which is as good as an empty one.
            je::mallctl(
                c"thread.tcache.flush".as_ptr(),
                ptr::null_mut(),
                ptr::null_mut(),
                ptr::null_mut(),
                0,
            );
            ctl(c"thread.arena", None, Some(&mut index))
        }
    }

    fn processors() -> usize {
        // SAFETY: `set` is valid for writing, and all zeros is a valid value.
        unsafe {
            let mut set: libc::cpu_set_t = core::mem::zeroed();
            libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set);
            libc::CPU_COUNT(&set) as usize
        }
    }

    #[inline]
    pub(super) unsafe fn free(p: *mut u8) {
        // SAFETY: by contract.
        unsafe { je::free(p.cast()) };
    }

    pub(super) unsafe fn usable_size(p: *mut u8) -> usize {
        // SAFETY: by contract.
        unsafe { je::malloc_usable_size(p.cast()) }
    }

    pub(super) unsafe fn realloc(p: *mut u8, old: usize, align: usize, new: usize) -> *mut u8 {
        // SAFETY: by contract.
        unsafe {
            // What rallocx does, but with a destination that is checked.
            if je::xallocx(p.cast(), new, 0, flags(new, align)) >= new {
                return p;
            }
            let q = alloc(new, align, false);
            if !q.is_null() {
                ptr::copy_nonoverlapping(p, q, old.min(new));
                free(p);
            }
            q
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
                    if !unsafe { os::commit(p, size) } {
                        return ptr::null_mut();
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
        _: *mut c_void,
        _: usize,
        _: *mut c_void,
        _: usize,
        _: bool,
        _: c_uint,
    ) -> bool {
        false
    }
}

/// mimalloc, kept within its part of the arena: it may take no memory from the
/// system, only what it is given.
#[cfg(feature = "mimalloc")]
mod mimalloc {
    use core::ptr;
    use core::sync::atomic::{
        AtomicU32, AtomicUsize,
        Ordering::{Acquire, Relaxed, Release},
    };

    use libmimalloc_sys as mi;

    use super::in_range;
    use crate::{arena, os};

    /// Given to it at a time, an arena: as much as it has already, from the least to the
    /// most. The largest that there is, 16 GiB, is refused, because what describes it would
    /// not fit into an object.
    const LEAST: usize = 64 << 20;
    const MOST: usize = 8 << 30;
    static GIVEN: AtomicUsize = AtomicUsize::new(0);
    static GIVING: AtomicU32 = AtomicU32::new(0);

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

    #[inline(always)]
    pub(super) unsafe fn alloc_plain(size: usize) -> *mut u8 {
        if GIVEN.load(Relaxed) != 0 {
            // SAFETY: no preconditions.
            let p: *mut u8 = unsafe { mi::mi_malloc(size).cast() };
            if in_range(1, p) {
                return p;
            }
            discard(p);
        }
        ptr::null_mut()
    }

    #[inline(always)]
    pub(super) unsafe fn alloc(size: usize, align: usize, zero: bool) -> *mut u8 {
        if GIVEN.load(Relaxed) != 0 {
            // SAFETY: no preconditions.
            let p = keep_errno_if_large(size, || unsafe { attempt(size, align, zero) });
            if in_range(1, p) {
                return p;
            }
            discard(p);
        }
        // SAFETY: no preconditions.
        unsafe { give_and_alloc(size, align, zero) }
    }

    /// mimalloc sets `errno` on the way to success, which getdelim's callers take for a
    /// failure. Small objects hardly ever come to that, and they count instructions.
    #[inline(always)]
    fn keep_errno_if_large(size: usize, f: impl FnOnce() -> *mut u8) -> *mut u8 {
        if size < 32 << 10 {
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
            if size <= MOST / 2 && arena::ready() && give(size * 2) {
                // SAFETY: no preconditions.
                let p = unsafe { attempt(size, align, zero) };
                if in_range(1, p) {
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
    /// into faults. Where the system counts that as used, it commits for itself.
    fn give(least: usize) -> bool {
        if GIVING.compare_exchange(0, 1, Acquire, Relaxed).is_err() {
            return false;
        }
        let [start, len] = &arena::FOREIGN[1];
        let (start, len) = (start.load(Relaxed), len.load(Relaxed));
        let given = GIVEN.load(Relaxed);
        let share = given.max(least).next_power_of_two().clamp(LEAST, MOST);
        let share = share.min(len - given);
        let done = share > 0 && {
            let at = (start + given) as *mut u8;
            // SAFETY: reserved address space of ours that it does not have yet.
            unsafe {
                let committed = os::commit(at, share);
                if committed && arena::wants_huge() {
                    os::advise_huge(at, share, true);
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
        if done {
            GIVEN.store(given + share, Relaxed);
        }
        GIVING.store(0, Release);
        done
    }

    #[inline]
    pub(super) unsafe fn free(p: *mut u8) {
        // SAFETY: by contract.
        unsafe { mi::mi_free(p.cast()) };
    }

    pub(super) unsafe fn usable_size(p: *mut u8) -> usize {
        // SAFETY: by contract.
        unsafe { mi::mi_usable_size(p.cast()) }
    }

    pub(super) unsafe fn realloc(p: *mut u8, old: usize, align: usize, new: usize) -> *mut u8 {
        // SAFETY: by contract. As the system is barred, what it returns is in the range.
        unsafe {
            let q = keep_errno_if_large(new, || {
                if align <= 8 || (align <= 16 && align <= new) {
                    mi::mi_realloc(p.cast(), new).cast()
                } else {
                    mi::mi_realloc_aligned(p.cast(), new, align).cast()
                }
            });
            if !q.is_null() {
                return q;
            }
            let q = alloc(new, align, false);
            if !q.is_null() {
                ptr::copy_nonoverlapping(p, q, old.min(new));
                free(p);
            }
            q
        }
    }
}

/// A new object, or null with `errno` set.
#[inline]
pub(crate) unsafe fn alloc(owner: Owner, size: usize, align: usize, zero: bool) -> *mut u8 {
    // SAFETY: no preconditions beyond those of the callee.
    unsafe {
        match owner {
            #[cfg(feature = "jemalloc")]
            Owner::Jemalloc => jemalloc::alloc(size, align, zero),
            #[cfg(feature = "mimalloc")]
            Owner::Mimalloc => mimalloc::alloc(size, align, zero),
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

/// Changes the size of an object of `owner`. Null: unchanged.
pub(crate) unsafe fn realloc(
    owner: Owner,
    p: *mut u8,
    old: usize,
    align: usize,
    new: usize,
) -> *mut u8 {
    // SAFETY: by the contract of the caller.
    unsafe {
        match owner {
            #[cfg(feature = "jemalloc")]
            Owner::Jemalloc => jemalloc::realloc(p, old, align, new),
            #[cfg(feature = "mimalloc")]
            Owner::Mimalloc => mimalloc::realloc(p, old, align, new),
            Owner::Sys | Owner::Slot if align <= SYS_ALIGN => sys::realloc(p, new),
            Owner::Sys | Owner::Slot => {
                // The C library forgets the alignment when it moves an object.
                if new <= old && new >= old / 2 {
                    return p;
                }
                let q = alloc(owner, new, align, false);
                if !q.is_null() {
                    ptr::copy_nonoverlapping(p, q, old.min(new));
                    free(owner, p);
                }
                q
            }
        }
    }
}
