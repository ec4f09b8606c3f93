// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random sequences of operations, in up to four processes, do what they do without the library:
//! every call returns the same, every byte that is read and every file in the end is the same.
//!
//! | variable | |
//! |---|---|
//! | `PDIO_FUZZ_SEED` | the first seed; the next sequences count on. By default the same few |
//! | `PDIO_FUZZ_SECONDS` | begin sequences for so long, and a few on however slow a machine |
//! | `PDIO_FUZZ_FILE` | run this sequence instead, as a failure left it |
//! | `PDIO_FUZZ_GO_ON` | report differences and go on |
//! | `PDIO_FUZZ_ON` | run all on this filesystem; on NFS and FUSE the library must take no stream |
//! | `PDIO_FUZZ_WITHOUT` | leave out steps that contain one of these words, with commas between |
//!
//! A difference is reported in one line, with the shortest sequence that shows it. Sequences that
//! once showed one are in `tests/sequences`.

mod common;
#[path = "../../pdio/tests/common/mod.rs"]
mod filesystems;
#[path = "common/sequences.rs"]
mod sequences;

use std::path::Path;
use std::time::{Duration, Instant};

use common::{compiled, library};
use sequences::{generate, generate_without, Bench, Sequence};

/// Sequences that run at least, and of `cargo test` all; and how many of ten must at least have streams taken.
const FEW: u64 = 10;
const TAKEN_OF_TEN: u64 = 5;
/// Filesystems on which the library takes none.
const UNTAKEN: [&str; 2] = ["NFS", "FUSE"];

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name}={text} is no number")),
    )
}

/// Makes a sequence shorter and says how it differs, in one line, and how to repeat it.
fn report(bench: &Bench, seed: &str, sequence: &Sequence, found: sequences::Difference) -> String {
    // A sequence that differs from itself, or hangs, says nothing about the library.
    if let Some(other) = bench.bare_twice(sequence) {
        panic!(
            "{seed}: two runs without the library differ, or hang: {}\n{sequence}",
            other.tell(sequence)
        );
    }
    let (shortest, difference) = bench.shrink(sequence, found);
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fuzz-{seed}.txt"));
    // In a guest that directory is not there; the message has the sequence all the same.
    let _ = std::fs::write(&file, shortest.to_string());
    format!(
        "{seed}, {}; to repeat it: PDIO_FUZZ_FILE={} cargo test -p pdio-preload --test fuzz random\n{shortest}",
        difference.tell(&shortest),
        file.display(),
    )
}

#[test]
fn random_sequences_do_what_they_do_without_the_library() {
    let bench = Bench::new(library());
    if let Ok(file) = std::env::var("PDIO_FUZZ_FILE") {
        let text = std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("{file}: {e}"));
        let sequence = Sequence::parse(&text);
        let (found, streams) = bench.compare(&sequence);
        eprintln!("{file}: {streams} streams taken");
        if let Some(found) = found {
            panic!("{file}, {}\n{sequence}", found.tell(&sequence));
        }
        return;
    }
    let first = number("PDIO_FUZZ_SEED").unwrap_or(0);
    let end = number("PDIO_FUZZ_SECONDS").map(|s| Instant::now() + Duration::from_secs(s));
    let go_on = std::env::var_os("PDIO_FUZZ_GO_ON").is_some();
    let without = std::env::var("PDIO_FUZZ_WITHOUT").unwrap_or_default();
    let mut seed = first;
    let (mut ran, mut with_streams, mut streams, mut failed) = (0, 0, 0, 0);
    while ran < FEW || end.is_some_and(|end| Instant::now() < end) {
        let made = generate_without(seed, &without);
        seed += 1;
        let Some(sequence) = made else { continue };
        let (found, taken) = bench.compare(&sequence);
        ran += 1;
        with_streams += u64::from(taken > 0);
        streams += taken;
        if let Some(found) = found {
            let line = report(&bench, &format!("seed-{}", seed - 1), &sequence, found);
            assert!(go_on, "{line}");
            eprintln!("{line}");
            failed += 1;
        }
    }
    eprintln!(
        "seeds {first} to {}: {ran} sequences, {with_streams} of them with streams taken, {streams} streams",
        seed - 1
    );
    let untaken = std::env::var("PDIO_FUZZ_ON").is_ok_and(|on| UNTAKEN.contains(&on.as_str()));
    assert!(
        untaken || with_streams * 10 >= ran * TAKEN_OF_TEN,
        "the library took streams in {with_streams} of {ran} sequences only; this finds nothing"
    );
    assert!(!untaken || streams == 0, "streams taken that must not be");
    assert_eq!(failed, 0, "sequences that differ");
}

#[test]
fn without_the_library_every_run_is_the_same() {
    let bench = Bench::new(library());
    for seed in 1000..1000 + number("PDIO_FUZZ_BARE").unwrap_or(15) {
        let sequence = generate(seed);
        if let Some(found) = bench.bare_twice(&sequence) {
            panic!("seed {seed}, {}\n{sequence}", found.tell(&sequence));
        }
    }
}

#[test]
fn a_process_that_is_late_changes_nothing() {
    let bench = Bench::new(library());
    let text = "tell\n0 child fork\n1 child fork\n2 getfl 0\n3 getfl 0\n3 exit _exit\n3 getfl 0\n\
                1 child fork\n2 exit _exit\n0 getfl 0\n3 getfl 0\n1 getfl 0\n";
    let punctual = Sequence::parse(text);
    for late in 0..4 {
        let other = Sequence::parse(&format!("late {late}\n{text}"));
        if let Some(found) = bench.bare_both(&punctual, &other) {
            panic!("late {late}, {}", found.tell(&other));
        }
    }
}

#[test]
fn a_process_that_dies_of_itself_is_told_of() {
    let bench = Bench::new(library());
    // With descriptor 200 it loses what it says its results to.
    let sequence = Sequence::parse("0 getfl 0\n1 close_range 200 200\n0 getfl 0\n");
    let lines = bench.bare_lines(&sequence);
    assert_eq!(
        lines[1..],
        ["1 process 1 died: it is a zombie that ended 300"]
    );
}

#[test]
fn a_sequence_that_hangs_with_and_without_the_library_is_found() {
    let bench = Bench::new(library()).with_limit(Duration::from_secs(2));
    // Signal 0 ends nothing, and the end is waited for.
    let sequence = Sequence::parse("0 getfl 0\n0 kill 1 0\n0 getfl 0\n");
    let (found, _) = bench.compare(&sequence);
    let told = found.expect("a failure").tell(&sequence);
    assert!(told.starts_with("step 1 of 3 (0 kill 1 0)"), "{told}");
    assert!(told.contains("it hangs"), "{told}");
}

#[test]
fn signals_that_the_test_ignores_end_a_process_all_the_same() {
    // As where a shell without job control runs this in the background.
    // SAFETY: an action of no code; no other test here is ended by this signal.
    let before = unsafe { libc::signal(libc::SIGINT, libc::SIG_IGN) };
    let bench = Bench::new(library());
    let sequence = Sequence::parse("0 kill 1 2\n0 getfl 0\n");
    let lines = bench.bare_lines(&sequence);
    // SAFETY: as above.
    unsafe { libc::signal(libc::SIGINT, before) };
    assert_eq!(lines[0], "0 ended 2", "{lines:?}");
}

#[test]
fn a_difference_behind_the_last_step_is_found_and_the_sequence_made_short() {
    let wrong = compiled("ungraceful.c", "ungraceful.so", &["-shared", "-fPIC"]);
    let bench = Bench::new(wrong);
    let sequence = Sequence::parse("0 getfl 0\n1 getfl 0\n");
    let (found, _) = bench.compare(&sequence);
    let (shortest, found) = bench.shrink(&sequence, found.expect("another status"));
    let told = found.tell(&shortest);
    assert!(shortest.steps.is_empty(), "not short: {told}\n{shortest}");
    assert!(told.contains("after the last"), "{told}");
}

#[test]
fn a_library_that_is_wrong_is_found_and_the_sequence_made_short() {
    let wrong = compiled("forgetful.c", "forgetful.so", &["-shared", "-fPIC", "-ldl"]);
    let bench = Bench::new(wrong);
    for seed in 0..20 {
        let sequence = generate(seed);
        if let (Some(found), _) = bench.compare(&sequence) {
            let (shortest, found) = bench.shrink(&sequence, found);
            assert!(
                shortest.steps.len() <= 5,
                "not short: {}\n{shortest}",
                found.tell(&shortest)
            );
            return;
        }
    }
    panic!("a write that changes a byte is not found");
}

#[test]
fn sequences_that_once_differed() {
    let bench = Bench::new(library());
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sequences");
    let mut failed = Vec::new();
    for entry in std::fs::read_dir(directory).expect("a directory").flatten() {
        if entry
            .path()
            .extension()
            .is_none_or(|ending| ending != "txt")
        {
            continue;
        }
        let text = std::fs::read_to_string(entry.path()).expect("a file");
        let sequence = Sequence::parse(&text);
        let name = entry.file_name().to_string_lossy().into_owned();
        let (found, streams) = bench.compare(&sequence);
        if let Some(found) = found {
            failed.push(format!("{name}, {}", found.tell(&sequence)));
        } else if streams == 0 {
            failed.push(format!("{name}: no stream is taken"));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
