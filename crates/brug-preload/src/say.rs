// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages.

use brug::raw;
use nocopy_settings::Line;

/// Writes one line on standard error, without allocating.
pub fn say(parts: &[&[u8]]) {
    raw::say(&Line::message("brug", parts));
}
