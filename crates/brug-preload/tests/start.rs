// SPDX-License-Identifier: MIT OR Apache-2.0
//! A program that allocates little costs what it costs without the library: the same system calls,
//! and those by which the loader maps one file more.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use common::{compiled, library};
use object::{Object, ObjectSection, ObjectSymbol};

/// The names of the system calls of a program, in order.
fn system_calls(program: &Path, preloaded: bool) -> Vec<String> {
    names(&trace(program, preloaded, &[]), "")
}

/// What strace writes about a program.
fn trace(program: &Path, preloaded: bool, options: &[&str]) -> String {
    let directory = tempfile::tempdir().expect("directory");
    let list = directory.path().join("calls");
    let mut command = Command::new("strace");
    command.args(options);
    command.arg("-o").arg(&list).arg("-E").arg(if preloaded {
        format!("LD_PRELOAD={}", library().display())
    } else {
        "LD_PRELOAD".into()
    });
    for (name, _) in std::env::vars_os() {
        if name.as_encoded_bytes().starts_with(b"BRUG_") {
            command.env_remove(name);
        }
    }
    let status = command
        .arg(program)
        .stdin(Stdio::null())
        .status()
        .expect("apt-get install strace");
    assert!(status.success(), "{command:?}");
    fs::read_to_string(list).expect("list")
}

/// The names of the system calls in lines that begin so.
fn names(trace: &str, beginning: &str) -> Vec<String> {
    trace
        .lines()
        .filter_map(|line| line.strip_prefix(beginning)?.split_once('('))
        .map(|(name, _)| name.trim_start().to_owned())
        .collect()
}

fn numbers(calls: &[String]) -> BTreeMap<&str, i64> {
    let mut numbers = BTreeMap::new();
    for call in calls {
        *numbers.entry(call.as_str()).or_default() += 1;
    }
    numbers
}

#[test]
fn a_program_that_allocates_little_makes_the_system_calls_it_makes_without() {
    let program = compiled("little.c", "little", &[]);
    let (with, without) = (system_calls(&program, true), system_calls(&program, false));
    let own = |calls: &[String]| -> Vec<String> {
        let main = calls.iter().position(|call| call == "getppid");
        calls[main.expect("main")..].to_vec()
    };
    assert_eq!(own(&with), own(&without), "from the first line of main on");

    // What the loader does for any library that is preloaded.
    let mapping = [
        "openat",
        "read",
        "newfstatat",
        "fstat",
        "mmap",
        "mprotect",
        "close",
    ];
    let (with, without) = (numbers(&with), numbers(&without));
    for name in with.keys().chain(without.keys()) {
        let number = |calls: &BTreeMap<&str, i64>| calls.get(name).copied().unwrap_or(0);
        let more = number(&with) - number(&without);
        let most = match *name {
            // The file, what of it is written, and zeros behind that.
            "mmap" => 3,
            "mprotect" => 2,
            name => i64::from(mapping.contains(&name)),
        };
        assert!(
            (0..=most).contains(&more),
            "{name}: {more} more\n{with:?}\n{without:?}"
        );
    }
}

/// As cat has: it does without the arena, for which the system is asked how many mappings there may be.
#[test]
fn a_short_program_with_a_large_buffer_sets_up_no_arena() {
    let trace = trace(Path::new("/bin/cat"), true, &[]);
    assert!(!trace.contains("max_map_count"), "{trace}");
}

/// A program of one thread may count on the number of the next descriptor.
#[test]
fn the_librarys_thread_opens_no_file() {
    let program = compiled("thread.c", "thread", &[]);
    let trace = trace(&program, true, &["-f"]);
    // Each line begins with a thread's number, and the first is the program's.
    let number = |line: &str| line.split(' ').next().map(str::to_owned);
    let first = trace.lines().next().and_then(number);
    let second = trace
        .lines()
        .filter_map(number)
        .find(|of| Some(of) != first.as_ref());
    let calls = names(&trace, &second.expect("a thread"));
    assert!(calls.iter().any(|call| call == "newfstatat"), "{calls:?}");
    assert!(
        !calls.iter().any(|call| call.starts_with("open")),
        "{calls:?}"
    );
}

#[test]
fn nothing_but_the_librarys_own_functions_runs_when_it_is_loaded_and_unloaded() {
    let bytes = fs::read(library()).expect("library");
    let file = object::File::parse(&*bytes).expect("ELF");
    let functions = |name: &str| {
        let section = file.section_by_name(name);
        section.map_or(0, |section| section.size() as usize / size_of::<usize>())
    };
    // The standard library's, which keeps the arguments, and ours. On arm64 also the compiler's
    // two that ask what the processor can do.
    let most = if cfg!(target_arch = "aarch64") { 4 } else { 2 };
    let first = functions(".init_array");
    assert!(first <= most, "{first}");
    assert_eq!(functions(".fini_array"), 1);
    for name in [".init", ".fini"] {
        assert!(file.section_by_name(name).is_none(), "{name}");
    }
}

/// What the kernel maps around a page of a file that is read or executed first.
const MAPPED_AROUND: u64 = 64 << 10;

#[test]
fn what_runs_when_a_program_starts_is_side_by_side() {
    let bytes = fs::read(library()).expect("library");
    let file = object::File::parse(&*bytes).expect("ELF");
    let functions = [
        "5setup5start",
        "5setup6finish",
        "3raw7prepare",
        "7control6answer",
        "7control10initialise",
        "8from_env",
        "10library_of4look",
        "3sys6symbol",
    ];
    let addresses: Vec<u64> = file
        .symbols()
        .filter(|symbol| {
            let name = symbol.name().unwrap_or_default();
            let whole = name.contains("4brug") && !name.contains("closure");
            whole && functions.iter().any(|function| name.contains(function))
        })
        .map(|symbol| symbol.address())
        .collect();
    assert!(addresses.len() >= functions.len() / 2, "{addresses:x?}");
    let (first, last) = (addresses.iter().min(), addresses.iter().max());
    let apart = last.expect("one") - first.expect("one");
    assert!(apart < MAPPED_AROUND, "{addresses:x?}");
}
