// SPDX-License-Identifier: MIT OR Apache-2.0
//! What happens when the library is loaded and when the program ends.
//!
//! The allocator reads its variables at its first need, which may be long before anything here
//! runs: see [`brug::Config`] for their list. What is left for the library's constructor is to name
//! variables that do not exist, and to have statistics come out at the end, where the profile is written as well.
//!
//! `BRUG_STATS=1` prints on the standard error that the program was started with, even when it
//! has closed it since (as GNU's tools do); a file is appended to, so that the processes of a pipeline
//! do not overwrite each other. A process that ends by a signal or `_exit` says nothing.

use core::ffi::{c_char, c_int};
use core::sync::atomic::{AtomicI32, AtomicU64, Ordering::Relaxed};

use brug::{raw, Base, Config};
use nocopy_settings::Statistics;

use crate::say::say;
use crate::{deep, rights, rlimit};

/// A descriptor and its file, so that a reused number is noticed.
struct Stream {
    fd: AtomicI32,
    device: AtomicU64,
    inode: AtomicU64,
}

/// Standard error as the program got it, kept under a number out of its way.
static STDERR: Stream = Stream {
    fd: AtomicI32::new(-1),
    device: AtomicU64::new(0),
    inode: AtomicU64::new(0),
};

/// Lowest number to keep standard error under; far from what programs count on.
const FD_FLOOR: c_int = 400;

impl Stream {
    fn keep(&self, original: c_int) {
        // SAFETY: duplicating a descriptor touches no memory of ours.
        let fd = unsafe {
            match libc::fcntl(original, libc::F_DUPFD_CLOEXEC, FD_FLOOR) {
                -1 => libc::fcntl(original, libc::F_DUPFD_CLOEXEC, 3),
                fd => fd,
            }
        };
        if let Some((device, inode)) = raw::identity(fd) {
            self.device.store(device, Relaxed);
            self.inode.store(inode, Relaxed);
            self.fd.store(fd, Relaxed);
        }
    }

    /// The descriptor, unless the program closed it and the number may be another file's.
    fn still_there(&self) -> Option<c_int> {
        let fd = self.fd.load(Relaxed);
        let expected = (self.device.load(Relaxed), self.inode.load(Relaxed));
        (fd >= 0 && raw::identity(fd) == Some(expected)).then_some(fd)
    }
}

/// Names each variable that begins with `BRUG_` and means nothing.
fn name_the_unknown(environment: *const *const c_char) {
    // SAFETY: the loader passes the program's environment.
    for entry in unsafe { raw::variables(environment) } {
        let entry = entry.to_bytes();
        let name = entry.split(|&byte| byte == b'=').next().unwrap_or(entry);
        if !Config::VARIABLES.iter().any(|v| v.as_bytes() == name) {
            say(&[b"there is no variable ", name, b"; it is ignored"]);
        }
    }
}

#[link_section = ".text.startup.brug"]
extern "C" fn start(_: c_int, _: *const *const c_char, environment: *const *const c_char) {
    let before = raw::errno();
    if !raw::is_secure() {
        name_the_unknown(environment);
    }
    raw::prepare();
    rlimit::prepare();
    rights::prepare();
    deep::prepare();
    if matches!(raw::config().base, None | Some(Base::Glibc)) && !raw::is_secure() {
        name_the_base();
    }
    if raw::config().statistics == Statistics::StandardError {
        STDERR.keep(libc::STDERR_FILENO);
    }
    raw::set_errno(before);
}

/// Says so when the internal names of the C library's allocator are another's, as Debian's
/// libmimalloc defines them: that one is the base then, with its own ways.
fn name_the_base() {
    if let Some(library) = raw::stand_in() {
        say(&[
            library.to_bytes(),
            b" stands in for the C library's allocator and is the base; do not load it, or name \
              another base with BRUG_BASE",
        ]);
    }
}

#[link_section = ".text.startup.brug"]
extern "C" fn finish() {
    match raw::config().statistics {
        Statistics::StandardError => {
            if let Some(fd) = STDERR.still_there() {
                raw::show_statistics(fd);
            }
        }
        _ => raw::show_statistics(libc::STDERR_FILENO),
    }
    raw::save_profile();
}

/// Called by the loader with the program's arguments and environment, before `main`.
#[used]
#[link_section = ".init_array"]
static START: extern "C" fn(c_int, *const *const c_char, *const *const c_char) = start;

/// Called by the loader when the program ends, after its own handlers.
#[used]
#[link_section = ".fini_array"]
static FINISH: extern "C" fn() = finish;

// The library is linked without the compiler's startup files (`build.rs`), which have this: an
// address that says which library handlers and destructors belong to. A test program has these files.
#[cfg(not(test))]
core::arch::global_asm!(
    ".pushsection .rodata.brug_dso_handle, \"a\"",
    ".hidden __dso_handle",
    ".globl __dso_handle",
    "__dso_handle:",
    ".byte 0",
    ".popsection",
);
