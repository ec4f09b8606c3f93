// SPDX-License-Identifier: MIT OR Apache-2.0
//! How tests build a library that is preloaded; cargo builds no cdylib for tests by itself.

use std::path::PathBuf;
use std::process::Command;

/// Builds the library of a package as the calling tests' profile does, with these flags for the compiler; where it is.
pub fn build(package: &str, library: &str, flags: &[&str]) -> PathBuf {
    let own = std::env::current_exe().expect("own path");
    let directory = own.ancestors().nth(2).expect("target/PROFILE/deps");
    let profile = match directory.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(name) => name,
    };
    let status = Command::new(env!("CARGO"))
        .args(["rustc", "--quiet", "--lib", "--package", package])
        .args(["--profile", profile, "--target-dir"])
        .arg(directory.parent().expect("target"))
        .arg("--")
        .args(flags)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status()
        .expect("cargo starts");
    assert!(status.success(), "{library} does not build");
    directory.join(library)
}
