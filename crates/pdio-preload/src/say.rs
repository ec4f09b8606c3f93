// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages.

use core::ffi::{c_int, c_ulong};
use core::mem::size_of;

use libc::{SYS_rt_sigpending, SYS_rt_sigprocmask, SYS_rt_sigtimedwait};
use nocopy_settings::Line;

use crate::{errno, next};

/// What ends a program that writes to a pipe nobody reads, or beyond `RLIMIT_FSIZE`: the kernel's form of a
/// set of signals.
const OF_WRITING: u64 = 1 << (libc::SIGPIPE - 1) | 1 << (libc::SIGXFSZ - 1);

/// Writes one line on standard error, without allocating.
pub fn say(parts: &[&[u8]]) {
    // There is nobody else to tell of a failure.
    let _ = put(libc::STDERR_FILENO, Line::message("pdio", parts).as_bytes());
}

/// Writes to a descriptor, without allocating. It is not the program that writes, so a failure does not end it
/// by a signal; what cannot be written is lost.
pub fn put(fd: c_int, text: &[u8]) -> Result<(), c_int> {
    let size = size_of::<u64>() as c_ulong;
    let (of_writing, at_once, mut before, mut pending) = (OF_WRITING, [0i64; 2], 0u64, 0u64);
    let (set, old) = (&raw const of_writing as c_ulong, &raw mut before as c_ulong);
    // SAFETY: sets of the kernel's length that live as long as the calls. A signal that this write has left is this
    // thread's, and is taken before it can be delivered.
    errno::keep(|| unsafe {
        next::syscall(
            SYS_rt_sigprocmask,
            libc::SIG_BLOCK as _,
            set,
            old,
            size,
            0,
            0,
        );
        next::syscall(SYS_rt_sigpending, &raw mut pending as _, size, 0, 0, 0, 0);
        let ours = OF_WRITING & !pending;
        let written = write(fd, text);
        if written.is_err() && ours != 0 {
            let (set, at_once) = (&raw const ours as c_ulong, &raw const at_once as c_ulong);
            next::syscall(SYS_rt_sigtimedwait, set, 0, at_once, size, 0, 0);
        }
        next::syscall(
            SYS_rt_sigprocmask,
            libc::SIG_SETMASK as _,
            old,
            0,
            size,
            0,
            0,
        );
        written
    })
}

fn write(fd: c_int, mut text: &[u8]) -> Result<(), c_int> {
    while !text.is_empty() {
        // SAFETY: the bytes are readable.
        match unsafe { next::write(fd, text.as_ptr().cast(), text.len()) } {
            n @ 1.. => text = &text[n as usize..],
            _ => return Err(errno::get()),
        }
    }
    Ok(())
}
