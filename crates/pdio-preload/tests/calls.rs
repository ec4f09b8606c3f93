// SPDX-License-Identifier: MIT OR Apache-2.0
//! How many system calls a stream takes: the large requests, and none for a small call. And how many instructions a
//! call takes that has nothing to do with one.

mod common;

use std::collections::HashMap;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use common::{compiled, preloaded, scratch, SHORT};

/// Starts a program that is traced, and has just been executed. Its number.
#[allow(clippy::zombie_processes, reason = "waited for by its number")]
fn traced(command: &mut Command) -> i32 {
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
    let mut status = 0;
    // SAFETY: the child is ours; the result is ours.
    assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
    pid
}

/// How often the program's first thread makes each system call, until it exits.
fn counted(command: &mut Command) -> HashMap<i64, u32> {
    let pid = traced(command);
    let mut counts = HashMap::new();
    let mut status = 0;
    let mut entering = true;
    // SAFETY: the child is ours and traced; the results are ours.
    unsafe {
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
    // That of the C library's allocator.
    for counts in [&written, &read] as [&dyn Fn(i64) -> u32; 2] {
        assert!(counts(libc::SYS_getrandom) <= 1);
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
    let home = scratch();
    let counts = counted(preloaded(&program, &SHORT).arg(home.path().join("file")));
    let count = |number| counts.get(&number).copied().unwrap_or(0);
    assert_eq!(count(libc::SYS_sendmsg), 1000);
    let asked = count(libc::SYS_rt_sigprocmask);
    assert!(asked < 100, "{asked}");
}

/// How many instructions the program's first thread executes between each two signals to itself, at most `most`.
fn steps(command: &mut Command, most: u32) -> Vec<u32> {
    let pid = traced(command);
    let mut found = Vec::new();
    let mut counting = false;
    let (mut steps, mut signal) = (0, 0);
    let mut status = 0;
    // SAFETY: the child is ours and traced; the results are ours.
    unsafe {
        loop {
            let how = match counting && steps < most {
                true => libc::PTRACE_SINGLESTEP,
                false => libc::PTRACE_CONT,
            };
            libc::ptrace(how, pid, 0, signal);
            assert_eq!(libc::waitpid(pid, &mut status, 0), pid);
            if libc::WIFEXITED(status) {
                assert_eq!(libc::WEXITSTATUS(status), 0);
                return found;
            }
            assert!(libc::WIFSTOPPED(status), "{status:x}");
            signal = 0;
            match libc::WSTOPSIG(status) {
                libc::SIGTRAP => steps += 1,
                libc::SIGUSR2 => {
                    if counting {
                        found.push(steps);
                    }
                    (counting, steps) = (!counting, 0);
                }
                other => signal = other,
            }
        }
    }
}

/// To look through the table takes an instruction for each descriptor, and more.
#[test]
fn what_once_was_open_does_not_lengthen_other_calls() {
    const MOST: u32 = 4000;
    let program = compiled("many.c", "many", &[]);
    let home = scratch();
    let file = home.path().join("file");
    std::fs::write(&file, vec![7; 4 << 20]).expect("written");
    let found = steps(preloaded(&program, &SHORT).arg(&file), MOST);
    assert_eq!(found.len(), 2);
    assert!(found.iter().all(|&steps| steps < MOST), "{found:?}");
}
