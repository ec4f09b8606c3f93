// SPDX-License-Identifier: MIT OR Apache-2.0
//! How many system calls a stream takes: the large requests, and none for a small call.

mod common;

use std::collections::HashMap;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use common::{compiled, preloaded, scratch, SHORT};

/// How often the program's first thread makes each system call, until it exits.
#[allow(clippy::zombie_processes, reason = "waited for by its number")]
fn counted(command: &mut Command) -> HashMap<i64, u32> {
    // SAFETY: between fork and exec, one system call.
    unsafe {
        command.pre_exec(|| match libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
    // The child stops when it executes the program.
    let child = command.spawn().expect("starts");
    let pid = child.id() as i32;
    let mut counts = HashMap::new();
    let mut status = 0;
    let mut entering = true;
    // SAFETY: the child is ours and traced; the results are ours.
    unsafe {
        assert_eq!(libc::waitpid(pid, &mut status, 0), pid);
        libc::ptrace(libc::PTRACE_SETOPTIONS, pid, 0, libc::PTRACE_O_TRACESYSGOOD);
        let mut signal = 0;
        loop {
            libc::ptrace(libc::PTRACE_SYSCALL, pid, 0, signal);
            assert_eq!(libc::waitpid(pid, &mut status, 0), pid);
            if libc::WIFEXITED(status) {
                assert_eq!(libc::WEXITSTATUS(status), 0);
                return counts;
            }
            assert!(libc::WIFSTOPPED(status), "{status:x}");
            signal = libc::WSTOPSIG(status);
            if signal != libc::SIGTRAP | 0x80 {
                continue;
            }
            signal = 0;
            if entering {
                let mut about: libc::ptrace_syscall_info = std::mem::zeroed();
                let size = size_of_val(&about);
                libc::ptrace(libc::PTRACE_GET_SYSCALL_INFO, pid, size, &mut about);
                *counts.entry(about.u.entry.nr as i64).or_insert(0) += 1;
            }
            entering = !entering;
        }
    }
}

/// GNU's dd moves its files to standard input and output, and has handlers of signals.
#[test]
fn dd_makes_no_call_for_a_block() {
    const BLOCKS: u32 = 20_000;
    let home = scratch();
    let file = home.path().join("file");
    let dd = |words: &[&str]| {
        let mut command = preloaded(Path::new("dd"), &SHORT);
        command.args(words).args(["bs=512", "status=none"]);
        let counts = counted(&mut command);
        move |number: i64| counts.get(&number).copied().unwrap_or(0)
    };
    let (count, text) = (format!("count={BLOCKS}"), file.to_str().expect("a path"));
    let (from, to) = (format!("if={text}"), format!("of={text}"));
    let written = dd(&["if=/dev/zero", &to, &count]);
    assert_eq!(
        std::fs::metadata(&file).expect("a file").len(),
        u64::from(BLOCKS) * 512
    );
    let read = dd(&[&from, "of=/dev/null"]);
    // So that this can fail.
    assert!(written(libc::SYS_read) >= BLOCKS);
    assert!(read(libc::SYS_write) >= BLOCKS);
    for (name, number) in [
        ("lseek", libc::SYS_lseek),
        ("rt_sigprocmask", libc::SYS_rt_sigprocmask),
        ("fstat", libc::SYS_fstat),
        ("ppoll", libc::SYS_ppoll),
    ] {
        assert!(written(number) < 500, "writing: {name} {}", written(number));
        assert!(read(number) < 500, "reading: {name} {}", read(number));
    }
    // What came before the stream was taken.
    assert!(
        written(libc::SYS_write) < BLOCKS / 10,
        "{}",
        written(libc::SYS_write)
    );
    assert!(
        read(libc::SYS_read) < BLOCKS / 10,
        "{}",
        read(libc::SYS_read)
    );
}

/// Which descriptors go with a message matters only where one of them may be a stream.
#[test]
fn a_message_takes_no_other_call() {
    let program = compiled("messages.c", "messages", &[]);
    let counts = counted(&mut preloaded(&program, &[]));
    let count = |number| counts.get(&number).copied().unwrap_or(0);
    assert_eq!(count(libc::SYS_sendmsg), 1000);
    let asked = count(libc::SYS_rt_sigprocmask);
    assert!(asked < 100, "{asked}");
}
