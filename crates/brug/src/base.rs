// SPDX-License-Identifier: MIT OR Apache-2.0
//! The allocators under the growth slots.

use core::ffi::{c_int, c_void};
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

/// How a base is called without asking who it is: its `malloc`,
pub(crate) type Alloc = unsafe extern "C" fn(usize) -> *mut c_void;
/// what frees an object of that function, or of the next, given its size and 0,
pub(crate) type Free = unsafe extern "C" fn(*mut c_void, usize, c_int);
/// and what changes the size of such an object, given the old one and the new one.
pub(crate) type Realloc = unsafe extern "C" fn(*mut c_void, usize, usize) -> *mut c_void;

/// What the short ways need of a base that is not the C library.
#[cfg(any(feature = "jemalloc", feature = "mimalloc"))]
pub(crate) struct Direct {
    pub(crate) alloc: Alloc,
    /// The largest size to ask `alloc` and `realloc` for.
    pub(crate) most: usize,
    pub(crate) free: Free,
    pub(crate) realloc: Realloc,
    /// Address and length of where all its objects are.
    pub(crate) range: (usize, usize),
}

/// The base of this number, if it can be called directly by now.
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

/// Alignment that the C library gives every object.
pub(crate) const SYS_ALIGN: usize = 16;

/// The C library's allocator.
pub(crate) mod sys {
    use super::*;

    pub(crate) const ALLOC: Alloc = alloc;

    #[cfg(not(feature = "preload"))]
    mod names {
        pub(crate) use libc::{calloc, free, malloc, malloc_usable_size, memalign, realloc};
    }

    pub(crate) use names::malloc as alloc;

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
/// All its arenas get hooks that take memory from there, so that nothing it returns has to
/// be looked at. Arenas are made with the system's memory behind them where nobody says
/// otherwise, and the first one is before anybody can. What that one has by then is
/// taken from it, and never used. An arena takes 90 KiB, and there are four to a processor
/// (`_RJEM_MALLOC_CONF=narenas:N`).
#[cfg(feature = "jemalloc")]
mod jemalloc {
    use core::ffi::{c_int, c_uint, c_void, CStr};
    use core::mem::size_of;
    use core::ptr;
    use core::sync::atomic::{
        AtomicU32, AtomicUsize,
        Ordering::{Acquire, Relaxed, Release},
    };

    use tikv_jemalloc_sys as je;

    use super::{in_range, Direct};
    use crate::{arena, heap, os, trial};

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

    pub(super) fn direct() -> Option<Direct> {
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
                return heap::realloc_cold(p.cast(), old, 1, new).cast();
            }
            q
        }
    }

    #[inline]
    pub(super) unsafe fn alloc(size: usize, align: usize, zero: bool) -> *mut u8 {
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
        debug_assert!(p.is_null() || in_range(0, p));
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
        // The main thread's cache is older than anything we can do, and only that thread can
        // have it made anew. A trial waits for it; who asks for jemalloc by name does not,
        // and has to keep the main thread until the end of the process.
        if trial::running() && !os::is_main_thread() {
            return false;
        }
        if !arena::ready() || STATE.compare_exchange(NEW, BUSY, Acquire, Relaxed).is_err() {
            // Somebody else is at it, perhaps this thread; this object does without.
            return false;
        }
        // Its arenas are made at once, and one that is refused would be made later without our
        // memory behind it.
        let done = os::keep_errno(|| !heap::memory_is_counted() && take_over());
        let state = if done { READY } else { REFUSED };
        STATE.store(state, Release);
        if done {
            heap::reconsider();
        } else if !trial::running() {
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
                if !p.is_null() && !in_range(0, p.cast()) {
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
    pub(super) unsafe fn free(p: *mut u8) {
        // SAFETY: by contract.
        unsafe { je::free(p.cast()) };
    }

    pub(super) unsafe fn usable_size(p: *mut u8) -> usize {
        // SAFETY: by contract.
        unsafe { je::malloc_usable_size(p.cast()) }
    }

    pub(super) unsafe fn realloc(p: *mut u8, align: usize, new: usize) -> *mut u8 {
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
    pub(super) fn in_use_and_held() -> (usize, usize) {
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
                        heap::reconsider();
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
        in_range(0, a.cast()) != in_range(0, b.cast())
    }
}

/// mimalloc, kept within its part of the arena: it may take no memory from the
/// system, only what it is given.
#[cfg(feature = "mimalloc")]
mod mimalloc {
    use core::ffi::{c_int, c_void};
    use core::ptr;
    use core::sync::atomic::{
        AtomicBool, AtomicU32, AtomicUsize,
        Ordering::{Acquire, Relaxed, Release},
    };

    use libmimalloc_sys as mi;

    use super::{in_range, Direct};
    use crate::{arena, heap, os, purge};

    /// Given to it at a time, an arena: as much as it has already, from the least to the
    /// most. The largest that there is, 16 GiB, is refused, because what describes it would
    /// not fit into an object.
    const LEAST: usize = 64 << 20;
    const MOST: usize = 8 << 30;
    /// From this size on, see [`keep_errno_if_large`].
    const LARGE: usize = 32 << 10;
    static GIVEN: AtomicUsize = AtomicUsize::new(0);
    static GIVING: AtomicU32 = AtomicU32::new(0);
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

    pub(super) fn direct() -> Option<Direct> {
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
            if heap::in_other(p.cast()) {
                return p;
            }
            alloc_plain_cold(p.cast(), size)
        }
    }

    #[inline(never)]
    unsafe extern "C" fn alloc_medium(size: usize) -> *mut c_void {
        // SAFETY: no preconditions.
        let p = unsafe { mi::mi_malloc(size) };
        if heap::in_other(p.cast()) {
            return p;
        }
        alloc_plain_cold(p.cast(), size)
    }

    #[cold]
    #[inline(never)]
    extern "C" fn alloc_plain_cold(p: *mut u8, size: usize) -> *mut c_void {
        if in_range(1, p) {
            // Another base was the first.
            return p.cast();
        }
        discard(p);
        heap::alloc_cold(size, 1, false).cast()
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
                ptr::copy_nonoverlapping(p.cast::<u8>(), q.cast(), old.min(new));
                mi::mi_free(p);
            }
            q
        }
    }

    /// In the child of a fork of a process with other threads. They are gone, but not the
    /// locks that they held, and mimalloc has no handlers to take those before a fork: of
    /// its map of pages, of a thread's beginning and end. So what is alive stays where it
    /// is, and nothing more is asked of it.
    pub(super) fn retire() {
        if GIVEN.load(Relaxed) > 0 || GIVING.load(Relaxed) > 0 {
            RETIRED.store(true, Relaxed);
        }
    }

    #[inline]
    pub(super) fn is_retired() -> bool {
        RETIRED.load(Relaxed)
    }

    #[inline(always)]
    pub(super) unsafe fn alloc(size: usize, align: usize, zero: bool) -> *mut u8 {
        if is_retired() {
            return ptr::null_mut();
        }
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
    /// into faults. Where the system counts memory when it is committed, mimalloc commits for
    /// itself.
    fn give(least: usize) -> bool {
        if GIVING.compare_exchange(0, 1, Acquire, Relaxed).is_err() {
            return false;
        }
        let [start, len] = &arena::FOREIGN[1];
        let (start, len) = (start.load(Relaxed), len.load(Relaxed));
        let given = GIVEN.load(Relaxed);
        let share = given.max(least).next_power_of_two().clamp(LEAST, MOST);
        let share = share.min(len - given);
        if given == 0 {
            purge::at_fork();
        }
        let done = share > 0 && {
            let at = (start + given) as *mut u8;
            // SAFETY: reserved address space of ours that it does not have yet.
            unsafe {
                let committed = !heap::memory_is_counted() && os::commit(at, share);
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
        if done && given == 0 {
            heap::reconsider();
        }
        done
    }

    /// Bytes in objects, and in the pages that are for them.
    pub(super) fn in_use_and_held() -> (usize, usize) {
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
    pub(super) unsafe fn free(p: *mut u8) {
        if !is_retired() {
            // SAFETY: by contract.
            unsafe { mi::mi_free(p.cast()) };
        }
    }

    pub(super) unsafe fn usable_size(p: *mut u8) -> usize {
        // SAFETY: by contract.
        unsafe { mi::mi_usable_size(p.cast()) }
    }

    pub(super) unsafe fn realloc(p: *mut u8, align: usize, new: usize) -> *mut u8 {
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
}

/// In the child of a fork of a process that had other threads, which may have been in the
/// middle of an allocation. The C library and jemalloc have handlers of their own.
pub(crate) fn after_fork_among_threads() {
    #[cfg(feature = "mimalloc")]
    {
        mimalloc::retire();
        if mimalloc::is_retired() {
            crate::heap::leave_base(Base::Mimalloc);
        }
    }
}

/// Whether a base can be had in this process.
pub(crate) fn is_usable(base: Base) -> bool {
    #[cfg(feature = "mimalloc")]
    if base == Base::Mimalloc && mimalloc::is_retired() {
        return false;
    }
    base.is_available()
}

/// Bytes in objects of jemalloc and mimalloc, and what they hold for them.
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

/// An object of this size has that alignment without being asked, up to what the C library
/// gives everyone.
#[cfg(any(feature = "jemalloc", feature = "mimalloc"))]
#[inline]
fn as_aligned(size: usize, align: usize) -> usize {
    if align <= SYS_ALIGN {
        size.max(align)
    } else {
        size
    }
}

/// A new object, or null with `errno` set.
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
        let q = match owner {
            #[cfg(feature = "jemalloc")]
            Owner::Jemalloc => jemalloc::realloc(p, align, as_aligned(new, align)),
            #[cfg(feature = "mimalloc")]
            Owner::Mimalloc => mimalloc::realloc(p, align, as_aligned(new, align)),
            Owner::Sys | Owner::Slot if align <= SYS_ALIGN => return sys::realloc(p, new),
            // The C library forgets the alignment when it moves an object.
            Owner::Sys | Owner::Slot if new <= old && new >= old / 2 => p,
            Owner::Sys | Owner::Slot => ptr::null_mut(),
        };
        if !q.is_null() {
            return q;
        }
        let q = alloc(Owner::Sys, new, align, false);
        if !q.is_null() {
            ptr::copy_nonoverlapping(p, q, old.min(new));
            free(owner, p);
        }
        q
    }
}
