// SPDX-License-Identifier: MIT OR Apache-2.0
//! For the tests of all commands and libraries that run copies of programs.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

/// Copies a program that is to be run. Another process does it: a child that another test starts
/// in that moment would inherit this one's descriptor and make the program busy.
pub fn copy_program(from: impl AsRef<OsStr>, to: &Path) {
    let status = Command::new("cp").arg(from).arg(to).status().expect("cp");
    assert!(status.success(), "cp");
}
