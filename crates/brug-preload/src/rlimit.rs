// SPDX-License-Identifier: MIT OR Apache-2.0
//! `setrlimit` and `prlimit`, in front of the C library's.
//!
//! A limit of data (`RLIMIT_DATA`) that a program sets while it runs counts what is committed already. So
//! brug hears of it at once: it takes back what no object needs, and from then on `malloc` no longer passes on
//! the C library's refusals unseen. `malloc` itself pays nothing for that.
//!
//! A limit that another process sets, or the program by the system call itself, is found later, as
//! `docs/brug.md` says.

use core::ffi::{c_int, CStr};
use core::mem;
use core::ptr;

use libc::{pid_t, rlimit};

type Prlimit = unsafe extern "C" fn(pid_t, c_int, *const rlimit, *mut rlimit) -> c_int;
type Setrlimit = unsafe extern "C" fn(c_int, *const rlimit) -> c_int;

/// The function of this name that this library's stands in front of, which need not be the C library's.
///
/// # Safety
/// `F` is its type, a function pointer.
unsafe fn next<F: Copy>(name: &CStr) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<*mut libc::c_void>()) };
    // SAFETY: a C string, and by contract.
    unsafe {
        let found = libc::dlsym(libc::RTLD_NEXT, name.as_ptr());
        (!found.is_null()).then(|| mem::transmute_copy(&found))
    }
}

/// Returns true if the caller is the child of a `vfork`: it has its parent's memory, but limits of its own.
/// The C library tells a thread's number without asking the kernel, and so tells the parent's there: in bits of
/// the clock that measures the thread.
fn borrows_memory() -> bool {
    const NUMBER: u32 = 3;
    let mut clock = 0;
    // SAFETY: `clock` is valid for a write.
    unsafe {
        libc::pthread_getcpuclockid(libc::pthread_self(), &mut clock) == 0
            && !(clock >> NUMBER) != libc::gettid()
    }
}

/// What is done after a limit was set.
fn was_set(process: pid_t, which: c_int) {
    // SAFETY: no preconditions.
    let own = || process == 0 || process == unsafe { libc::getpid() };
    if which == libc::RLIMIT_DATA as c_int && own() && !borrows_memory() {
        brug::raw::limits_changed();
    }
}

unsafe fn set(name: &CStr, which: c_int, limit: *const rlimit) -> c_int {
    // SAFETY: this is its type, and the caller's promise.
    let done = unsafe {
        match next::<Setrlimit>(name) {
            Some(theirs) => theirs(which, limit),
            None => {
                libc::syscall(libc::SYS_prlimit64, 0, which, limit, ptr::null::<rlimit>()) as c_int
            }
        }
    };
    if done == 0 {
        was_set(0, which);
    }
    done
}

unsafe fn set_for(
    name: &CStr,
    process: pid_t,
    which: c_int,
    limit: *const rlimit,
    old: *mut rlimit,
) -> c_int {
    // SAFETY: this is its type, and the caller's promise.
    let done = unsafe {
        match next::<Prlimit>(name) {
            Some(theirs) => theirs(process, which, limit, old),
            None => libc::syscall(libc::SYS_prlimit64, process, which, limit, old) as c_int,
        }
    };
    if done == 0 && !limit.is_null() {
        was_set(process, which);
    }
    done
}

/// `setrlimit(2)`.
///
/// # Safety
/// `limit` is valid for a read.
#[no_mangle]
pub unsafe extern "C" fn setrlimit(which: c_int, limit: *const rlimit) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { set(c"setrlimit", which, limit) }
}

/// `setrlimit64`, which is the same on machines of 64 bits.
///
/// # Safety
/// As [`setrlimit`].
#[no_mangle]
pub unsafe extern "C" fn setrlimit64(which: c_int, limit: *const rlimit) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { set(c"setrlimit64", which, limit) }
}

/// `prlimit(2)`.
///
/// # Safety
/// `limit` is null or valid for a read, and `old` null or valid for a write.
#[no_mangle]
pub unsafe extern "C" fn prlimit(
    process: pid_t,
    which: c_int,
    limit: *const rlimit,
    old: *mut rlimit,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { set_for(c"prlimit", process, which, limit, old) }
}

/// `prlimit64`, which is the same on machines of 64 bits.
///
/// # Safety
/// As [`prlimit`].
#[no_mangle]
pub unsafe extern "C" fn prlimit64(
    process: pid_t,
    which: c_int,
    limit: *const rlimit,
    old: *mut rlimit,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { set_for(c"prlimit64", process, which, limit, old) }
}
