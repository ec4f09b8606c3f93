// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that need a process of their own, since what they look at concerns a whole process.

extern crate std;

use std::process::Command;
use std::string::String;
use std::{env, println};

const JOB: &str = "BRUG_TEST_JOB";

/// The job of a test that runs in a process of its own.
pub(crate) fn job() -> Option<String> {
    env::var(JOB).ok()
}

/// Runs the test of this full name again in a process of its own, which has this job, and wants it to succeed.
#[track_caller]
pub(crate) fn alone(test: &str, job: &str) {
    let output = Command::new(env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(JOB, job)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    // A name that is no test's would succeed as well.
    let passed = output.status.success() && said.contains("1 passed");
    assert!(passed, "{test}, {job}: {output:?}");
    // The harness writes the test's name before it, on the same line.
    for (_, reason) in said.lines().filter_map(|line| line.split_once("skipped: ")) {
        println!("skipped: {reason}");
    }
}
