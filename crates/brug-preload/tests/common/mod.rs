// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the tests share: the library, compiled test programs, and running them under it.
#![allow(dead_code, reason = "each test uses a part")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

#[path = "../../../nocopy-launch/tests/compiling/mod.rs"]
mod compiling;
#[path = "../../../nocopy-launch/tests/copying/mod.rs"]
mod copying;
#[allow(unused_imports)]
pub use copying::copy_program;
#[path = "building.rs"]
mod building;
pub use building::library;

/// Directory of the test programs' sources.
pub fn programs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs")
}

/// Compile one of `tests/programs` with these flags, once; where the result is.
pub fn compiled(source: &str, name: &str, flags: &[&str]) -> PathBuf {
    compiling::compile(&programs().join(source), name, flags)
}

/// A program under the library, with no BRUG_ variable but these.
pub fn under_brug(program: &Path, variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.as_encoded_bytes().starts_with(b"BRUG_") {
            command.env_remove(name);
        }
    }
    command
        .env("LD_PRELOAD", library())
        .envs(variables.iter().copied())
        .stdin(Stdio::null());
    command
}

/// Standard error as text.
pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Standard output as text.
pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Run to the end; panics with everything it said unless it succeeds and is silent on stderr.
pub fn passes_quietly(command: &mut Command) -> String {
    let output = command.output().expect("program starts");
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{command:?} ended with {}\n{}{}",
        output.status,
        stdout(&output),
        stderr(&output)
    );
    stdout(&output)
}
