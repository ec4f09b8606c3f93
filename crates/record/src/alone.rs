// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that need a process of their own: for its signals, its limits, its standard error.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const JOB: &str = "NOCOPY_RECORD_TEST_JOB";

/// The job of a test that runs in a process of its own.
pub fn job() -> Option<PathBuf> {
    std::env::var_os(JOB).map(PathBuf::from)
}

/// The command that runs the test of this full name again, in a process of its own, which has this job.
pub fn command(test: &str, job: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "--nocapture", test])
        .env(JOB, job)
        .stdin(Stdio::null());
    command
}

/// Runs that command, and wants it to succeed.
#[track_caller]
pub fn alone(test: &str, job: &Path) {
    let output = command(test, job).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{said}", output.status);
    // A name that is no test's would succeed as well.
    assert!(said.contains("1 passed"), "{said}");
    for skipped in said.lines().filter(|line| line.starts_with("skipped")) {
        eprintln!("{skipped}");
    }
}
