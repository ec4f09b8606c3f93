// SPDX-License-Identifier: MIT OR Apache-2.0
//! What libpdio.so gains for GNU dd, which works on standard input and output.
//!
//! `cargo build --release -p pdio-preload; cargo run --release -p pdio-preload --example dd
//! [DIRECTORY]`. Writes 256 MiB with `conv=fsync`, and reads what is not cached, with and without the
//! library in turns. Prints medians of the time without, and of the ratios of neighbouring runs with
//! their extremes.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

const RUNS: usize = 7;
const BYTES: u64 = 256 << 20;

fn library() -> PathBuf {
    let own = std::env::current_exe().expect("own path");
    let directory = own.ancestors().nth(2).expect("target/release");
    let library = directory.join("libpdio.so");
    assert!(
        library.is_file(),
        "no {}: build it first",
        library.display()
    );
    library
}

/// Seconds, and those of the processor.
fn run(words: &[String], preload: bool) -> [f64; 2] {
    let processor = || {
        // SAFETY: the result is ours; a structure of numbers may be all zero.
        let usage = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage);
            usage
        };
        let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
        seconds(usage.ru_utime) + seconds(usage.ru_stime)
    };
    let mut command = Command::new("dd");
    command.args(words).arg("status=none").stdin(Stdio::null());
    if preload {
        command.env("LD_PRELOAD", library());
    }
    let (begun, before) = (Instant::now(), processor());
    let status = command.status();
    assert!(status.is_ok_and(|status| status.success()), "dd fails");
    [begun.elapsed().as_secs_f64(), processor() - before]
}

/// The page cache forgets the file.
fn forget(path: &Path) {
    let file = File::open(path).expect("a file");
    // SAFETY: no memory is involved.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
}

fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}

fn main() {
    let directory = std::env::args().nth(1).unwrap_or_else(|| "/var/tmp".into());
    let file = Path::new(&directory).join(format!("pdio-dd-{}", std::process::id()));
    let name = file.display();
    println!(
        "dd, {} MiB: seconds without the library; ratios with it",
        BYTES >> 20
    );
    for writes in [true, false] {
        for size in [512u64, 4 << 10, 64 << 10, 1 << 20] {
            let words = match writes {
                true => vec![
                    "if=/dev/zero".into(),
                    format!("of={name}"),
                    format!("count={}", BYTES / size),
                    "conv=fsync".into(),
                    format!("bs={size}"),
                ],
                false => vec![
                    format!("if={name}"),
                    "of=/dev/null".into(),
                    format!("bs={size}"),
                ],
            };
            let once = |preload| {
                match writes {
                    true => drop(std::fs::remove_file(&file)),
                    false => forget(&file),
                }
                run(&words, preload)
            };
            once(false);
            let runs: Vec<_> = (0..RUNS).map(|_| (once(false), once(true))).collect();
            let plain = sorted(runs.iter().map(|(plain, _)| plain[0]).collect());
            let ratios = |i: usize| sorted(runs.iter().map(|(a, b)| b[i] / a[i]).collect());
            let (time, processor) = (ratios(0), ratios(1));
            let shown = |r: &[f64]| format!("{:.2} ({:.2}–{:.2})", r[RUNS / 2], r[0], r[RUNS - 1]);
            println!(
                "{} {size:>7} B: {:.3} s; time {}, processor time {}",
                if writes { "write" } else { "read " },
                plain[RUNS / 2],
                shown(&time),
                shown(&processor),
            );
        }
    }
    let _ = std::fs::remove_file(&file);
}
