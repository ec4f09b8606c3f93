// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that need a process of their own: for its signals, its limits, its standard error. And a thread
//! whose system calls fail.

use std::os::fd::RawFd;
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

/// From now on this system call, of this descriptor if there is one, fails in this thread; false if the
/// kernel has no filters.
pub fn refuse(call: libc::c_long, fd: Option<RawFd>) -> bool {
    let step = |code: u32, k: u32, otherwise: u8| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: otherwise,
        k,
    };
    let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let equal = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let end = libc::BPF_RET | libc::BPF_K;
    let argument = std::mem::offset_of!(libc::seccomp_data, args) as u32;
    let low_half = if cfg!(target_endian = "big") { 4 } else { 0 };
    let number = std::mem::offset_of!(libc::seccomp_data, nr) as u32;
    let mut filter = vec![step(load, number, 0)];
    match fd {
        Some(fd) => filter.extend([
            step(equal, call as u32, 3),
            step(load, argument + low_half, 0),
            step(equal, fd as u32, 1),
        ]),
        None => filter.push(step(equal, call as u32, 1)),
    }
    filter.extend([
        step(end, libc::SECCOMP_RET_ERRNO | libc::EIO as u32, 0),
        step(end, libc::SECCOMP_RET_ALLOW, 0),
    ]);
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: the filter is there until it has been copied.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(
                libc::PR_SET_SECCOMP,
                libc::SECCOMP_MODE_FILTER,
                &raw const program,
            ) == 0
    }
}
