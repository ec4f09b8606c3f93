// SPDX-License-Identifier: MIT OR Apache-2.0
//! How tests compile the programs that they run.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// Compiles a program with these flags, once; where the result is.
pub fn compile(source: &Path, name: &str, flags: &[&str]) -> PathBuf {
    // By this process: what another with the same number has left may be of another source, or linked with what is gone.
    static COMPILED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
    let mut done = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    if done.contains(&out) {
        return out;
    }
    let compiler = match source.extension().is_some_and(|is| is == "cpp") {
        true => "g++",
        false => "gcc",
    };
    let status = Command::new(compiler)
        .args([
            "-O2",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-fno-builtin",
            "-pthread",
            "-o",
        ])
        .arg(&out)
        .arg(source)
        .args(flags)
        .status()
        .unwrap_or_else(|error| panic!("{compiler}: {error}; apt-get install build-essential"));
    assert!(
        status.success(),
        "{compiler} failed on {}",
        source.display()
    );
    done.push(out.clone());
    out
}
