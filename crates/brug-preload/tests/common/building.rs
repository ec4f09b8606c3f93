// SPDX-License-Identifier: MIT OR Apache-2.0
//! How tests of this crate and of the command build libbrug.so.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

/// The library, as these tests' profile builds it; cargo builds no cdylib for tests by itself.
pub fn library() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT
        .get_or_init(|| {
            let own = std::env::current_exe().expect("own path");
            let directory = own.ancestors().nth(2).expect("target/PROFILE/deps");
            let profile = match directory.file_name().and_then(|name| name.to_str()) {
                Some("debug") | None => "dev",
                Some(name) => name,
            };
            let status = Command::new(env!("CARGO"))
                .args([
                    "rustc",
                    "--quiet",
                    "--package",
                    "brug-preload",
                    "--profile",
                    profile,
                ])
                .arg("--target-dir")
                .arg(directory.parent().expect("target"))
                .args(["--", "-C", "panic=abort"])
                .current_dir(env!("CARGO_MANIFEST_DIR"))
                .status()
                .expect("cargo starts");
            assert!(status.success(), "libbrug.so does not build");
            directory.join("libbrug.so")
        })
        .clone()
}
