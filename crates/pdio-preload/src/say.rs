// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages.

use nocopy_settings::Line;

use crate::next;

/// Writes one line on standard error, without allocating.
pub fn say(parts: &[&[u8]]) {
    let line = Line::message("pdio", parts);
    let bytes = line.as_bytes();
    // SAFETY: the bytes are readable. A line that cannot be written is lost.
    unsafe { next::write(libc::STDERR_FILENO, bytes.as_ptr().cast(), bytes.len()) };
}
