// SPDX-License-Identifier: MIT OR Apache-2.0
//! `setrlimit` and `prlimit`, in front of the C library's.
//!
//! A limit of data (`RLIMIT_DATA`) that a program sets while it runs counts what is committed already. So
//! brug hears of it at once: it takes back what no object needs, and from then on `malloc` no longer passes on
//! the C library's refusals unseen. `malloc` itself pays nothing for that.
//!
//! Who sets a limit may hold the loader's lock, or be a signal handler, so the function behind is looked up when the
//! library is loaded: `prlimit64` for all four, as it can do what the others do.
//!
//! A limit that another process sets, or the program by the system call itself, is found later, as
//! `docs/brug.md` says.

use core::ffi::c_int;
use core::mem;
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use libc::{pid_t, rlimit};

type Prlimit = unsafe extern "C" fn(pid_t, c_int, *const rlimit, *mut rlimit) -> c_int;

/// The `prlimit64` that this library's stands in front of, which need not be the C library's; 0 until it is known.
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// Looks it up.
#[link_section = ".text.startup.brug"]
pub(crate) fn prepare() {
    // SAFETY: a C string.
    let next = unsafe { libc::dlsym(libc::RTLD_NEXT, c"prlimit64".as_ptr()) };
    NEXT.store(next as usize, Relaxed);
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
        match NEXT.load(Relaxed) {
            0 => libc::syscall(libc::SYS_prlimit64, process, which, limit, old) as c_int,
            next => mem::transmute::<usize, Prlimit>(next)(process, which, limit, old),
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
