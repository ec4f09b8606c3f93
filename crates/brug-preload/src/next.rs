// SPDX-License-Identifier: MIT OR Apache-2.0
//! Functions that this library's stand in front of, found when it is loaded: who calls them may have the loader's
//! lock, or be a handler of a signal, or the child of a thread beside one that has the lock.

use core::ffi::{c_void, CStr};
use core::mem;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};

/// The function of a name that comes after this library's, which need not be the C library's.
pub(crate) struct Next {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

impl Next {
    pub(crate) const fn named(name: &'static CStr) -> Next {
        let found = AtomicPtr::new(ptr::null_mut());
        Next { name, found }
    }

    /// Looks it up.
    #[link_section = ".text.startup.brug"]
    pub(crate) fn find(&self) {
        // SAFETY: a C string.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.found.store(found, Relaxed);
    }

    /// The function, if it has been found.
    ///
    /// # Safety
    /// `F` is its type, a function pointer.
    pub(crate) unsafe fn get<F: Copy>(&self) -> Option<F> {
        // SAFETY: by contract.
        unsafe { function(self.found.load(Relaxed)) }
    }
}

/// The function at an address, unless that is null.
///
/// # Safety
/// `F` is its type, a function pointer.
pub(crate) unsafe fn function<F: Copy>(found: *mut c_void) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    // SAFETY: by contract.
    (!found.is_null()).then(|| unsafe { mem::transmute_copy(&found) })
}
