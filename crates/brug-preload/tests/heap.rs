// SPDX-License-Identifier: MIT OR Apache-2.0
//! What programs are told about their heap is about the heap that they have.

mod common;

use std::process::Command;

use common::{compiled, stderr, stdout, under_brug};

const SETTINGS: [&[(&str, &str)]; 5] = [
    &[],
    &[("BRUG_BASE", "glibc")],
    &[("BRUG_BASE", "mimalloc")],
    &[("BRUG_ALLOC", "mmap")],
    &[("BRUG_ALLOC", "template")],
];

fn runs(command: &mut Command) -> String {
    let output = command.output().expect("starts");
    assert_eq!(
        stdout(&output),
        "heap: all checks passed\n",
        "{command:?} {} {}",
        output.status,
        stderr(&output)
    );
    stderr(&output)
}

#[test]
fn objects_of_all_bases_are_counted() {
    let program = compiled("heap.c", "heap", &[]);
    for settings in SETTINGS {
        let said = runs(&mut under_brug(&program, settings));
        assert_eq!(said, "", "{settings:?}");
    }
}

/// The C library's own words end it, and know nothing of slots.
#[test]
fn malloc_stats_names_what_holds_something() {
    let program = compiled("heap.c", "heap", &[]);
    for (base, holds) in [("glibc", false), ("mimalloc", true)] {
        let output = under_brug(&program, &[("BRUG_BASE", base)])
            .arg("stats")
            .output();
        let said = stderr(&output.expect("starts"));
        assert!(
            said.contains("\nbrug: objects in slots 1, bytes 200"),
            "{said}"
        );
        assert_eq!(said.contains("mimalloc holds"), holds, "{said}");
        assert!(said.contains("\nTotal (incl. mmap):\n"), "{said}");
    }
}

#[test]
fn a_program_with_jemalloc_is_told_once_what_is_not_answered() {
    let jemalloc = compiled("heap.c", "libheap.so", &["-DLIBRARY", "-shared", "-fPIC"]);
    let linked = jemalloc.to_str().expect("path");
    let program = compiled("heap.c", "heap-linked", &["-Wl,--no-as-needed", linked]);
    let said = runs(&mut under_brug(&program, &[]));
    assert_eq!(
        said,
        "brug: brug has this program's memory, not jemalloc; mallctl knows no opt.lg_prof_sample\n"
    );
}
