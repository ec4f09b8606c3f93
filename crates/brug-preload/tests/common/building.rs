// SPDX-License-Identifier: MIT OR Apache-2.0
//! How tests of this crate and of the command build libbrug.so.

use std::path::PathBuf;
use std::sync::OnceLock;

#[path = "../../../nocopy-launch/tests/building/mod.rs"]
mod preloadable;

/// The library, as these tests' profile builds it.
pub fn library() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT
        .get_or_init(|| preloadable::build("brug-preload", "libbrug.so", &["-C", "panic=abort"]))
        .clone()
}
