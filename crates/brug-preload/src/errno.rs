// SPDX-License-Identifier: MIT OR Apache-2.0
//! This thread's `errno`.

use core::ffi::c_int;

pub fn set(value: c_int) {
    // SAFETY: the address of this thread's errno is always valid.
    unsafe { *libc::__errno_location() = value }
}

pub fn get() -> c_int {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() }
}
