// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where memory counts when it is committed, a program gets as much as with the C library, from the
//! allocator and beside it.

mod common;

use std::os::unix::process::CommandExt;
use std::process::Command;

use common::{compiled, passes_quietly, stderr, stdout, under_brug};

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
        for base in ["auto", "glibc", "mimalloc"] {
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
    for size in SIZES {
        compare(size, true, "glibc", SHARE);
    }
}

/// How much the program maps by itself, or has for the stack of a thread, after it has used memory and
/// given it back, or has objects that have grown.
fn beside(kind: &str, ask: &str, when: Option<&str>) {
    let program = compiled("elsewhere.c", "elsewhere", &[]);
    let mib = MIB.to_string();
    let bytes = |mut command: Command| -> f64 {
        command.args([kind, ask, &mib]).args(when);
        passes_quietly(&mut command).trim().parse().expect("bytes")
    };
    let theirs = bytes(Command::new(&program));
    let ours = bytes(under_brug(&program, &[]));
    println!(
        "{kind}, {ask}, {when:?}: {:.3} of {}",
        ours / theirs,
        theirs as u64 >> 20
    );
    assert!(
        theirs > 0.0 && ours >= theirs * SHARE,
        "{kind}, {ask}, {when:?}: {ours} of {theirs}"
    );
}

#[test]
fn what_no_object_needs_is_left_to_what_the_program_maps_itself() {
    for kind in [
        "freed",
        "large-freed",
        "many-freed",
        "shrunk",
        "many-shrunk",
        "grown",
    ] {
        for ask in ["map", "stack"] {
            beside(kind, ask, None);
            beside(kind, ask, Some("setrlimit"));
        }
    }
}

#[test]
fn a_limit_that_the_program_sets_is_noticed_whatever_function_sets_it() {
    for function in ["setrlimit", "setrlimit64", "prlimit", "prlimit64"] {
        beside("many-freed", "map", Some(function));
    }
}

/// What the loader is asked for then is not answered before that thread is done.
#[test]
fn a_limit_is_set_and_the_heap_asked_while_another_thread_loads_a_library() {
    let library = compiled(
        "loading.c",
        "libloading.so",
        &["-DLIBRARY", "-shared", "-fPIC"],
    );
    let program = compiled("loading.c", "loading", &["-rdynamic"]);
    passes_quietly(Command::new(&program).arg(&library));
    passes_quietly(under_brug(&program, &[]).arg(&library));
}

/// It would have its parent keep next to nothing from then on.
#[test]
fn a_limit_that_the_child_of_a_vfork_sets_is_not_its_parents() {
    let program = compiled("borrows.c", "borrows", &[]);
    let said = passes_quietly(&mut under_brug(&program, &[]));
    let beyond: Vec<u64> = said
        .split_whitespace()
        .map(|n| n.parse().expect("bytes"))
        .collect();
    assert_eq!(beyond.len(), 3);
    assert!(beyond[0] >= 8 << 20, "{beyond:?}");
    assert!(beyond[1..].iter().all(|&n| n <= 128 << 10), "{beyond:?}");
}
