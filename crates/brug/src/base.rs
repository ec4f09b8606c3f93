// SPDX-License-Identifier: MIT OR Apache-2.0
//! The allocators under the growth slots.

use core::ffi::c_void;
use core::ptr;

/// Who has an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Owner {
    Sys,
    Slot,
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

        /// It has no second name; the loader knows the next one after ours.
        pub(crate) unsafe fn malloc_usable_size(p: *mut c_void) -> usize {
            static NEXT: AtomicUsize = AtomicUsize::new(0);
            let mut next = NEXT.load(Relaxed);
            if next == 0 {
                // SAFETY: a C string; the loader allocates nothing when it finds the name.
                next = unsafe {
                    libc::dlsym(libc::RTLD_NEXT, c"malloc_usable_size".as_ptr()) as usize
                };
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

/// A new object, or null with `errno` set.
pub(crate) unsafe fn alloc(owner: Owner, size: usize, align: usize, zero: bool) -> *mut u8 {
    // SAFETY: no preconditions beyond those of the callee.
    unsafe {
        match owner {
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
pub(crate) unsafe fn free(owner: Owner, p: *mut u8) {
    // SAFETY: by the contract of the caller.
    unsafe {
        match owner {
            Owner::Sys | Owner::Slot => sys::free(p),
        }
    }
}

/// Bytes usable in an object of `owner`.
pub(crate) unsafe fn usable_size(owner: Owner, p: *mut u8) -> usize {
    // SAFETY: by the contract of the caller.
    unsafe {
        match owner {
            Owner::Sys | Owner::Slot => sys::usable_size(p),
        }
    }
}

/// Changes the size of an object of `owner`, which keeps it. Null: unchanged.
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
