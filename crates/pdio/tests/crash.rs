// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a killed process leaves behind: exactly what the durability mode promised, and at every
//! moment a file that is a prefix of the stream.

mod common;

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Barrier;
use std::time::Duration;

use common::{child, filesystems, job, pattern, patterned};
use pdio::{Durability, OpenOptions};

/// The child empties the file after this much, and ends.
const STREAM: u64 = 64 << 20;

/// The child: writes the patterned stream and reports on stdout, as eight bytes each, how much is
/// promised to survive.
#[test]
fn writes_until_killed() {
    let Some(job) = job() else { return };
    let mut parts = job.splitn(3, ' ');
    let mode = parts.next().unwrap();
    let seed: u64 = parts.next().unwrap().parse().unwrap();
    let path = parts.next().unwrap();
    let durability = match mode {
        "Process" => Durability::Process,
        "Safe" => Durability::Safe,
        _ => Durability::Sync,
    };
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut options = OpenOptions::new();
    options.create(true).truncate(true).durability(durability);
    if rng.bool() {
        options.preallocate(4 << 20);
    }
    let mut out = options.open_writer(path).unwrap();
    // Not `println`: the harness captures nothing here, but buffers.
    let mut report = File::options().write(true).open("/dev/stderr").unwrap();
    let pool = patterned(0, 2 << 20);
    let block = *rng
        .choice(&[1, 100, 512, 4096, 10_000, 65536, 300_000, 1 << 20])
        .unwrap();
    let mut at = 0u64;
    loop {
        let n = rng.usize(1..=block);
        // The pattern repeats with the pool's length only if that is a multiple of the word.
        let data = match at as usize + n <= pool.len() {
            true => pool[at as usize..at as usize + n].to_vec(),
            false => patterned(at, n),
        };
        out.write_all(&data).unwrap();
        at += n as u64;
        let flushed = rng.u8(..40) == 0;
        if flushed {
            out.flush().unwrap();
        }
        if flushed || durability != Durability::Process {
            report.write_all(&at.to_le_bytes()).unwrap();
        }
        if at > STREAM {
            // From here on nothing is promised.
            report.write_all(&u64::MAX.to_le_bytes()).unwrap();
            out.set_len(0).unwrap();
            return;
        }
    }
}

/// Returns how much was promised and how much was left.
fn kill_and_check(directory: &Path, mode: &str, seed: u64) -> (u64, u64) {
    let path = directory.join("crash");
    let mut process = child(
        "writes_until_killed",
        &format!("{mode} {seed} {}", path.display()),
    )
    .stdout(Stdio::null())
    .stderr(Stdio::piped())
    .spawn()
    .unwrap();
    let mut pipe = process.stderr.take().unwrap();
    let (begun, begins) = std::sync::mpsc::channel();
    let reports = std::thread::spawn(move || {
        let mut all = vec![0; 8];
        pipe.read_exact(&mut all).unwrap();
        begun.send(()).unwrap();
        pipe.read_to_end(&mut all).unwrap();
        all
    });
    // However long the child takes to begin.
    begins.recv().unwrap();
    std::thread::sleep(Duration::from_millis(60 + seed * 97 % 250));
    process.kill().unwrap();
    process.wait().unwrap();
    let reports = reports.join().unwrap();
    let (reports, _) = reports.as_chunks();
    let promised = reports.last().map_or(0, |last| u64::from_le_bytes(*last));
    if promised == u64::MAX {
        std::fs::remove_file(&path).unwrap();
        return (STREAM, STREAM);
    }
    let data = match std::fs::read(&path) {
        Ok(data) => data,
        Err(_) if promised == 0 => return (0, 0),
        Err(error) => panic!("{error}"),
    };
    assert!(
        data.len() as u64 >= promised,
        "{mode}, seed {seed}: {} bytes left of {promised} promised",
        data.len()
    );
    let wrong = data
        .iter()
        .enumerate()
        .find(|&(at, &byte)| byte != pattern(at as u64));
    assert!(
        wrong.is_none(),
        "{mode}, seed {seed}: {} bytes left, wrong at {wrong:?}",
        data.len()
    );
    std::fs::remove_file(&path).unwrap();
    (promised, data.len() as u64)
}

#[test]
fn a_killed_process_leaves_a_prefix_with_all_that_was_promised() {
    let rounds = std::env::var("PDIO_CRASH_ROUNDS")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or(3);
    for filesystem in filesystems() {
        for mode in ["Process", "Safe", "Sync"] {
            let mut some = false;
            for seed in 0..rounds {
                let (promised, left) = kill_and_check(&filesystem.directory, mode, seed);
                eprintln!(
                    "{}: {mode}, seed {seed}: {promised} B promised, {left} B left",
                    filesystem.name
                );
                some |= promised > 0 && left > 0;
            }
            assert!(some, "no child lived long enough to write anything");
        }
    }
}

#[test]
fn the_file_is_never_longer_than_what_was_written() {
    for filesystem in filesystems() {
        for (block, preallocate) in [(1000, 0), (4096, 0), (70_001, 3 << 20), (5 << 20, 0)] {
            let path = filesystem.directory.join("observed");
            let mut options = OpenOptions::new();
            options.create(true).truncate(true).preallocate(preallocate);
            let mut out = options.open_writer(&path).unwrap();
            let (written, stop) = (AtomicU64::new(0), AtomicBool::new(false));
            // Nothing is written before somebody watches, however long a busy machine takes to
            // start a thread.
            let ready = Barrier::new(2);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    ready.wait();
                    let mut last = 0;
                    loop {
                        let last_look = stop.load(Ordering::Relaxed);
                        let size = std::fs::metadata(&path).unwrap().len();
                        let most = written.load(Ordering::SeqCst);
                        assert!(
                            size <= most,
                            "{}: {size} B seen, {most} B written",
                            filesystem.name
                        );
                        assert!(
                            size >= last,
                            "{}: shrunk from {last} to {size}",
                            filesystem.name
                        );
                        if last_look {
                            break;
                        }
                        last = size;
                    }
                });
                ready.wait();
                let data = vec![7u8; block];
                for i in 0..(24 << 20) / block {
                    written.fetch_add(block as u64, Ordering::SeqCst);
                    out.write_all(&data).unwrap();
                    if i % 301 == 300 {
                        out.flush().unwrap();
                    }
                }
                out.flush().unwrap();
                stop.store(true, Ordering::Relaxed);
            });
            out.finish().unwrap();
            assert_eq!(
                std::fs::metadata(&path).unwrap().len(),
                written.into_inner()
            );
            std::fs::remove_file(&path).unwrap();
        }
    }
}
