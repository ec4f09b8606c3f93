// SPDX-License-Identifier: MIT OR Apache-2.0
//! This thread's `errno`, which a program may look at after any call.

use core::ffi::c_int;

pub fn set(value: c_int) {
    // SAFETY: the address of this thread's errno is always valid.
    unsafe { *libc::__errno_location() = value }
}

pub fn get() -> c_int {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() }
}

/// The system's own text for an error, without its number.
pub fn reason(error: c_int) -> String {
    let mut text = std::io::Error::from_raw_os_error(error).to_string();
    text.truncate(text.rfind(" (os error ").unwrap_or(text.len()));
    text
}

/// What a call returns that fails for this reason.
pub fn failed<T: From<i8>>(why: c_int) -> T {
    set(why);
    T::from(-1)
}

/// Runs something that the program has not asked for, and must not notice.
pub fn keep<T>(action: impl FnOnce() -> T) -> T {
    let before = get();
    let result = action();
    set(before);
    result
}
