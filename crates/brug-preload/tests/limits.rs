// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where memory counts when it is committed, a program gets as much as from the C library.

mod common;

use std::os::unix::process::CommandExt;
use std::process::Command;

use common::{compiled, stderr, stdout, under_brug};

const MIB: u64 = 400;
const SIZES: [u64; 5] = [200, 20 << 10, 150 << 10, 1 << 20, 5 << 20];
/// Of what the C library gets.
const SHARE: f64 = 0.95;

/// How many bytes a program gets; `late`: if it sets the limit itself, after four buffers have
/// grown, some of them in other threads.
fn gets(mut command: Command, size: u64, late: bool) -> f64 {
    command.arg(size.to_string());
    if late {
        command.arg(MIB.to_string());
    } else {
        let limit = libc::rlimit {
            rlim_cur: MIB << 20,
            rlim_max: MIB << 20,
        };
        // SAFETY: setrlimit may be called between fork and exec.
        unsafe {
            command.pre_exec(move || match libc::setrlimit(libc::RLIMIT_DATA, &limit) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            });
        }
    }
    let output = command.output().expect("starts");
    let said = stdout(&output);
    said.trim().parse().unwrap_or_else(|_| {
        panic!("{command:?} {} {said}{}", output.status, stderr(&output));
    })
}

fn compare(size: u64, late: bool, base: &str, least: f64) {
    let program = compiled("limits.c", "limits", &[]);
    let theirs = gets(Command::new(&program), size, late);
    let ours = gets(under_brug(&program, &[("BRUG_BASE", base)]), size, late);
    println!(
        "{size} bytes, base {base}, late {late}: {:.3} of the C library's {} MiB",
        ours / theirs,
        theirs as u64 >> 20
    );
    assert!(
        ours >= theirs * least,
        "{size} bytes, base {base}: {ours} of {theirs}"
    );
}

#[test]
fn under_a_limit_there_is_as_much_as_in_the_c_library() {
    for size in SIZES {
        for base in ["auto", "glibc", "jemalloc", "mimalloc"] {
            // mimalloc rounds 200 bytes up to 224, the C library to 208.
            let rounded = base == "mimalloc" && size == 200;
            compare(
                size,
                false,
                base,
                SHARE * if rounded { 208.0 / 224.0 } else { 1.0 },
            );
        }
    }
}

/// The limit comes when much is committed ahead already, by threads that make no call any more.
#[test]
fn what_all_threads_have_ahead_is_taken_back() {
    for size in &SIZES[2..] {
        compare(*size, true, "glibc", SHARE);
    }
}

/// A system that does not overcommit charges a child for all that its parent has committed.
#[test]
fn a_child_is_not_charged_for_what_no_object_needs() {
    let program = compiled("strict.c", "strict", &["-rdynamic"]);
    let output = under_brug(&program, &[]).output().expect("starts");
    assert!(output.status.success(), "{output:?}");
    let beyond: u64 = stdout(&output).trim().parse().expect("bytes");
    assert!(beyond < 64 << 10, "{beyond} bytes more than the object");
}
