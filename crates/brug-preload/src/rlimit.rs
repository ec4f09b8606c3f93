// SPDX-License-Identifier: MIT OR Apache-2.0
//! `setrlimit` and `prlimit`, in front of the C library's.
//!
//! A limit of data (`RLIMIT_DATA`) that a program sets while it runs counts what is committed already. So
//! brug hears of it at once: it takes back what no object needs, and from then on `malloc` no longer passes on
//! the C library's refusals unseen. `malloc` itself pays nothing for that.
//!
//! A limit that another process sets, or the program by the system call itself, is found later, as
//! `docs/brug.md` says.

use core::ffi::c_int;
use core::ptr;

use libc::{pid_t, rlimit};

use crate::next::Next;

type Prlimit = unsafe extern "C" fn(pid_t, c_int, *const rlimit, *mut rlimit) -> c_int;

/// For all four, as it can do what the others do: who else stands in front of one of them has to define it.
static PRLIMIT: Next = Next::named(c"prlimit64");

/// Looks it up.
#[link_section = ".text.startup.brug"]
pub(crate) fn prepare() {
    PRLIMIT.find();
}

/// What is done after a limit was set.
fn was_set(process: pid_t, which: c_int) {
    // SAFETY: no preconditions.
    let own = || process == 0 || process == unsafe { libc::getpid() };
    if which == libc::RLIMIT_DATA as c_int && own() && !brug::raw::borrows_memory() {
        brug::raw::limits_changed();
    }
}

unsafe fn set(process: pid_t, which: c_int, limit: *const rlimit, old: *mut rlimit) -> c_int {
    // SAFETY: this is its type, and the caller's promise.
    let done = unsafe {
        match PRLIMIT.get::<Prlimit>() {
            Some(next) => next(process, which, limit, old),
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
    unsafe { set(0, which, limit, ptr::null_mut()) }
}

/// `setrlimit64`, which is the same on machines of 64 bits.
///
/// # Safety
/// As [`setrlimit`].
#[no_mangle]
pub unsafe extern "C" fn setrlimit64(which: c_int, limit: *const rlimit) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { set(0, which, limit, ptr::null_mut()) }
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
    unsafe { set(process, which, limit, old) }
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
    unsafe { set(process, which, limit, old) }
}
