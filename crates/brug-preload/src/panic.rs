// SPDX-License-Identifier: MIT OR Apache-2.0
//! The end after an error of this library's own, which Rust's standard library has elsewhere.

use core::ffi::c_int;
use core::fmt::Write as _;
use core::panic::PanicInfo;

use nocopy_settings::Line;

/// One line, and an abort.
#[panic_handler]
fn panicked(info: &PanicInfo<'_>) -> ! {
    let mut line = Line::new();
    // Writing to a line does not fail.
    let _ = write!(line, "brug: {info}");
    brug::raw::say(&line.end());
    // SAFETY: ends the process.
    unsafe { libc::abort() }
}

/// `_URC_CONTINUE_UNWIND`: frames of Rust's core library ask this, although no exception passes through them.
extern "C" fn goes_on() -> c_int {
    8
}
hidden!("rust_eh_personality", goes_on);
