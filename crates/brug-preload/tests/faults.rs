// SPDX-License-Identifier: MIT OR Apache-2.0
//! When the system says no: contents stay, refusals are null with `ENOMEM`, nothing crashes.

mod common;

use std::os::unix::process::CommandExt;
use std::process::Command;

use common::{compiled, stderr, stdout, under_brug};

const SETTINGS: [&[(&str, &str)]; 5] = [
    &[("BRUG_ALLOC", "auto")],
    &[("BRUG_ALLOC", "mmap"), ("BRUG_RETAIN", "0")],
    &[("BRUG_ALLOC", "template")],
    &[("BRUG_BASE", "glibc"), ("BRUG_THP", "always")],
    &[("BRUG_BASE", "mimalloc"), ("BRUG_SWITCH_POINT", "4K")],
];

/// Exit status of the program when the system does not let it set the fault up.
const CANNOT: i32 = 77;

fn holds_with(kind: &str, prepare: impl Fn(&mut Command)) {
    let program = compiled("faults.c", "faults", &[]);
    for settings in SETTINGS {
        let mut command = under_brug(&program, settings);
        command.arg(kind);
        prepare(&mut command);
        let output = command.output().expect("starts");
        if output.status.code() == Some(CANNOT) {
            eprintln!("skipped: {}", stdout(&output).trim());
            return;
        }
        assert_eq!(
            stdout(&output),
            format!("faults: {kind} holds\n"),
            "{settings:?} {} {}",
            output.status,
            stderr(&output)
        );
        assert!(
            output.status.success() && output.stderr.is_empty(),
            "{settings:?} {output:?}"
        );
    }
}

fn holds(kind: &str) {
    holds_with(kind, |_| {});
}

#[test]
fn the_address_space_runs_out() {
    holds("address-space");
}

#[test]
fn an_object_that_cannot_move_leaves_no_hole() {
    holds("no-move");
}

#[test]
fn the_address_space_is_small_from_the_start() {
    for mib in [40, 64, 200, 1000, 3000] {
        holds_with("small-from-the-start", |command| {
            let limit = libc::rlimit {
                rlim_cur: mib << 20,
                rlim_max: mib << 20,
            };
            // SAFETY: setrlimit may be called between fork and exec.
            unsafe {
                command.pre_exec(move || match libc::setrlimit(libc::RLIMIT_AS, &limit) {
                    0 => Ok(()),
                    _ => Err(std::io::Error::last_os_error()),
                });
            }
        });
    }
}

#[test]
fn the_data_limit_is_met() {
    holds("data-limit");
}

#[test]
fn there_are_no_more_mappings() {
    holds("mappings");
}

#[test]
fn all_memory_is_locked() {
    holds("locked");
}

#[test]
fn huge_pages_are_denied() {
    holds("no-huge-pages");
}

#[test]
fn the_system_does_not_overcommit() {
    holds("overcommit");
}

#[test]
fn the_machine_gives_few_mappings() {
    holds("few-mappings");
}

#[test]
fn a_control_group_limits_memory() {
    holds("memory-cgroup");
}

#[test]
fn a_file_in_place_of_stderr_is_left_alone() {
    let directory = tempfile::tempdir().expect("directory");
    let file = directory.path().join("file");
    for show in ["1", "0", "rubbish"] {
        holds_with("closed-stderr", |command| {
            command.env("FAULTS_FILE", &file).env("BRUG_STATS", show);
            command.stderr(std::fs::File::create("/dev/null").expect("null"));
        });
        assert_eq!(
            std::fs::read(&file).expect("file"),
            b"data",
            "BRUG_STATS={show}"
        );
    }
}
