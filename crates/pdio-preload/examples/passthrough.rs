// SPDX-License-Identifier: MIT OR Apache-2.0
//! What libpdio.so costs a stream that it does not take: `dd bs=512`, with and without.
//!
//! `cargo build --release -p pdio-preload; cargo run --release -p pdio-preload --example passthrough
//! [DIRECTORY]`. Prints user instructions for each block (by callgrind, if valgrind is installed; the
//! difference of a long and a short run, so without start-up) and time (median of interleaved runs,
//! after warming up).

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

const RUNS: usize = 21;
const BLOCKS: u64 = 300_000;

/// How the library is told to leave the stream alone.
const CASES: [(&str, &[(&str, &str)]); 3] = [
    ("without", &[]),
    ("PDIO_PATHS=/nowhere", &[("PDIO_PATHS", "/nowhere")]),
    ("PDIO_STRICT=1", &[("PDIO_STRICT", "1")]),
];

fn library() -> PathBuf {
    let own = std::env::current_exe().expect("own path");
    let library = own
        .ancestors()
        .nth(2)
        .expect("target/release")
        .join("libpdio.so");
    assert!(
        library.is_file(),
        "no {}: build it first",
        library.display()
    );
    library
}

fn command(prefix: &[&str], case: usize, file: &Path, blocks: u64) -> Command {
    let mut command = Command::new(prefix.first().unwrap_or(&"dd"));
    if let [_, rest @ ..] = prefix {
        command.args(rest).arg("dd");
    }
    command
        .args(["if=/dev/zero", "bs=512", "conv=notrunc"])
        .arg(format!("of={}", file.display()))
        .arg(format!("count={blocks}"))
        .stdin(Stdio::null())
        .envs(CASES[case].1.iter().copied());
    if case > 0 {
        command.env("LD_PRELOAD", library());
    }
    command
}

/// Instructions in user space, in all.
fn instructions(case: usize, file: &Path, blocks: u64) -> Option<u64> {
    let prefix = [
        "valgrind",
        "--tool=callgrind",
        "--callgrind-out-file=/dev/null",
    ];
    let output = command(&prefix, case, file, blocks).output().ok()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let line = said.lines().find(|line| line.contains("Collected :"))?;
    line.rsplit(' ').next()?.parse().ok()
}

fn seconds(case: usize, file: &Path) -> f64 {
    let begun = Instant::now();
    let status = command(&[], case, file, BLOCKS)
        .stderr(Stdio::null())
        .status();
    assert!(status.is_ok_and(|status| status.success()), "dd fails");
    begun.elapsed().as_secs_f64()
}

fn main() {
    let directory = std::env::args().nth(1).unwrap_or_else(|| "/var/tmp".into());
    let file = Path::new(&directory).join(format!("pdio-passthrough-{}", std::process::id()));
    let mut times: [Vec<f64>; 3] = Default::default();
    for round in 0..=RUNS {
        for (case, times) in times.iter_mut().enumerate() {
            let time = seconds(case, &file);
            if round > 0 {
                times.push(time);
            }
        }
    }
    let median = |times: &mut Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2] * 1e9 / BLOCKS as f64
    };
    let nanoseconds: Vec<f64> = times.iter_mut().map(median).collect();
    println!("dd bs=512 from /dev/zero to {directory}, a block (a read and a write):");
    for (case, (name, _)) in CASES.iter().enumerate() {
        // Beyond what is watched at first, so that the difference is the steady state.
        let (short, long) = (20_000, 60_000);
        let count = instructions(case, &file, long)
            .zip(instructions(case, &file, short))
            .map_or("no valgrind".into(), |(long_count, short_count)| {
                format!(
                    "{:.1}",
                    (long_count - short_count) as f64 / (long - short) as f64
                )
            });
        println!(
            "{name:22} {:7.1} ns ({:+.2} %)   {count} user instructions",
            nanoseconds[case],
            (nanoseconds[case] / nanoseconds[0] - 1.0) * 100.0,
        );
    }
    // Left behind at worst.
    let _ = std::fs::remove_file(&file);
}
