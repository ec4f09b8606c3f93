// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unshare`, `setns` and `capset`, in front of the C library's.
//!
//! The kernel refuses a namespace of users to a process with more than one thread, and a program that gives up the
//! rights of its one thread takes that for all. So brug's own thread ends before. Another that is started later has
//! the rights of the thread that frees memory then.
//!
//! Who does so holds no lock of the loader's, so the functions behind are looked up when they are called.

use core::ffi::{c_int, c_void, CStr};
use core::mem;

/// The function of this name that this library's stands in front of, after there is no thread of brug's any more.
///
/// # Safety
/// `F` is its type, a function pointer.
unsafe fn alone<F: Copy>(name: &CStr) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    brug::raw::end_thread();
    // SAFETY: a C string; of the type that the caller says.
    unsafe {
        let next = libc::dlsym(libc::RTLD_NEXT, name.as_ptr());
        (!next.is_null()).then(|| mem::transmute_copy(&next))
    }
}

/// What the C library answers to a call that it has not.
fn none() -> c_int {
    crate::errno::set(libc::ENOSYS);
    -1
}

/// `unshare(2)`.
#[no_mangle]
pub extern "C" fn unshare(flags: c_int) -> c_int {
    // SAFETY: this is its type.
    let next = unsafe { alone::<extern "C" fn(c_int) -> c_int>(c"unshare") };
    next.map_or_else(none, |next| next(flags))
}

/// `setns(2)`.
#[no_mangle]
pub extern "C" fn setns(fd: c_int, kind: c_int) -> c_int {
    // SAFETY: this is its type.
    let next = unsafe { alone::<extern "C" fn(c_int, c_int) -> c_int>(c"setns") };
    next.map_or_else(none, |next| next(fd, kind))
}

/// `capset(2)`.
///
/// # Safety
/// As the call.
#[no_mangle]
pub unsafe extern "C" fn capset(header: *mut c_void, data: *const c_void) -> c_int {
    type Capset = unsafe extern "C" fn(*mut c_void, *const c_void) -> c_int;
    // SAFETY: this is its type, and the caller's promise.
    unsafe { alone::<Capset>(c"capset").map_or_else(none, |next| next(header, data)) }
}
