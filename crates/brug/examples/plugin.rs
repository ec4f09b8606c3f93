// SPDX-License-Identifier: MIT OR Apache-2.0
//! A plug-in with an allocator of its own. Its host may close it, as `tests/plugin.rs` does.

use brug::Brug;

#[global_allocator]
static ALLOCATOR: Brug = Brug::new();

/// Has a vector grow and frees it; returns the number of its elements.
#[no_mangle]
pub extern "C" fn run() -> usize {
    let samples: Vec<u64> = (0..4_000_000).filter(|n| n % 3 != 0).collect();
    samples.len()
}
