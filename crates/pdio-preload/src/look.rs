// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the kernel says of descriptors and paths.

use core::ffi::c_int;

use crate::next;

/// What the kernel says of a descriptor.
pub fn stat(fd: c_int) -> Option<libc::stat64> {
    // SAFETY: a structure of numbers may be all zero, and is valid for a write.
    unsafe {
        let mut about = core::mem::zeroed();
        (next::fstat64(fd, &mut about) == 0).then_some(about)
    }
}

/// Returns true if the process has taken a lock through this descriptor, or nothing can be known.
pub fn is_locked(fd: c_int) -> bool {
    match std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}")) {
        Ok(text) => text.lines().any(|line| line.starts_with("lock:")),
        Err(_) => true,
    }
}

/// Returns true if a path leads to a pipe.
pub fn is_pipe(directory: c_int, path: *const libc::c_char) -> bool {
    // SAFETY: the path is the program's, which is about to give it to the kernel.
    unsafe {
        let mut about: libc::stat64 = core::mem::zeroed();
        next::fstatat64(directory, path, &mut about, 0) == 0
            && about.st_mode & libc::S_IFMT == libc::S_IFIFO
    }
}
