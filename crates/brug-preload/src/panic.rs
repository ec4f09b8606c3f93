// SPDX-License-Identifier: MIT OR Apache-2.0
//! The end after an error of this library's own, which Rust's standard library has elsewhere.

use core::ffi::c_int;
use core::panic::PanicInfo;

/// One line, and an abort.
#[panic_handler]
fn panicked(info: &PanicInfo<'_>) -> ! {
    brug::raw::complain(format_args!("{info}"));
    // SAFETY: ends the process.
    unsafe { libc::abort() }
}

/// `_URC_CONTINUE_UNWIND`: frames of Rust's core library ask this, although no exception passes through them.
extern "C" fn goes_on() -> c_int {
    8
}
hidden!("rust_eh_personality", goes_on);
