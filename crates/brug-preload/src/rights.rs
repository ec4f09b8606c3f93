// SPDX-License-Identifier: MIT OR Apache-2.0
//! `unshare`, `setns` and `capset`, in front of the C library's.
//!
//! The kernel refuses a namespace of users to a process with more than one thread, and a program that gives up the
//! rights of its one thread takes that for all. So brug's own thread ends before. Another that is started later has
//! the rights of the thread that frees memory then, or that made the call.
//!
//! Who does so may be a child that the system call made while another thread of its parent had the loader's lock.

use core::ffi::{c_int, c_long, c_void};

use crate::next::Next;

static UNSHARE: Next = Next::named(c"unshare");
static SETNS: Next = Next::named(c"setns");
static CAPSET: Next = Next::named(c"capset");

/// Looks them up.
#[link_section = ".text.startup.brug"]
pub(crate) fn prepare() {
    for next in [&UNSHARE, &SETNS, &CAPSET] {
        next.find();
    }
}

/// Calls the function after there is no thread of brug's any more, or `call` does what it does if there is none. Who had
/// none has none afterwards: a child that the system call made may not be able to start one.
///
/// # Safety
/// `F` is its type, a function pointer.
unsafe fn alone<F: Copy>(next: &Next, call: impl FnOnce(Option<F>) -> c_int) -> c_int {
    let ended = brug::raw::end_thread();
    // SAFETY: passed on.
    let result = call(unsafe { next.get() });
    if ended {
        brug::raw::begin_thread();
    }
    result
}

/// `unshare(2)`.
#[no_mangle]
pub extern "C" fn unshare(flags: c_int) -> c_int {
    // SAFETY: this is its type, and a call without pointers.
    unsafe {
        alone::<extern "C" fn(c_int) -> c_int>(&UNSHARE, |next| match next {
            Some(next) => next(flags),
            None => libc::syscall(libc::SYS_unshare, flags as c_long) as c_int,
        })
    }
}

/// `setns(2)`.
#[no_mangle]
pub extern "C" fn setns(fd: c_int, kind: c_int) -> c_int {
    // SAFETY: this is its type, and a call without pointers.
    unsafe {
        alone::<extern "C" fn(c_int, c_int) -> c_int>(&SETNS, |next| match next {
            Some(next) => next(fd, kind),
            None => libc::syscall(libc::SYS_setns, fd as c_long, kind as c_long) as c_int,
        })
    }
}

/// `capset(2)`.
///
/// # Safety
/// As the call.
#[no_mangle]
pub unsafe extern "C" fn capset(header: *mut c_void, data: *const c_void) -> c_int {
    type Capset = unsafe extern "C" fn(*mut c_void, *const c_void) -> c_int;
    // SAFETY: this is its type, and the caller's promise.
    unsafe {
        alone::<Capset>(&CAPSET, |next| match next {
            Some(next) => next(header, data),
            None => libc::syscall(libc::SYS_capset, header, data) as c_int,
        })
    }
}
