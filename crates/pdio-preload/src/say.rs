// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages.

use crate::next;

/// Writes one line on standard error, without allocating.
pub fn say(parts: &[&[u8]]) {
    let mut line = [0u8; 512];
    let mut length = 0;
    for part in [&b"pdio: "[..]].iter().chain(parts) {
        let fits = part.len().min(line.len() - 1 - length);
        line[length..length + fits].copy_from_slice(&part[..fits]);
        length += fits;
    }
    line[length] = b'\n';
    // SAFETY: the buffer has that many bytes. A line that cannot be written is lost.
    unsafe { next::write(libc::STDERR_FILENO, line.as_ptr().cast(), length + 1) };
}
