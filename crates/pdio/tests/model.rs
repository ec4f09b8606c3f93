// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random operations through several handles, checked against an array of bytes, on every
//! filesystem that this machine lets us mount.

mod common;

use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

use common::{filesystems, Fill};
use pdio::{Durability, Engine, OpenOptions, Reader, Strategy, Writer};

const OPERATIONS: usize = 300;
const MAX_SIZE: u64 = 24 << 20;

struct Case {
    engine: Engine,
    strategy: Strategy,
    durability: Durability,
    memory: usize,
}

impl Case {
    fn options(&self) -> OpenOptions {
        let mut options = OpenOptions::new();
        options
            .create(true)
            .engine(self.engine)
            .strategy(self.strategy)
            .durability(self.durability)
            .memory_limit(self.memory)
            .block_size(self.memory / 8)
            .preallocate(1 << 20);
        options
    }
}

/// Sizes around everything that has a boundary.
fn length(rng: &mut fastrand::Rng) -> usize {
    let base = *rng
        .choice(&[0, 512, 4096, 65536, 1 << 20, 3 << 20])
        .unwrap();
    match rng.u8(..4) {
        0 => base.max(1),
        1 => base + rng.usize(1..700),
        2 => (base + 1).saturating_sub(rng.usize(0..600)).max(1),
        _ => rng.usize(1..5000),
    }
}

fn offset(rng: &mut fastrand::Rng, model: &[u8], last: u64) -> u64 {
    match rng.u8(..10) {
        0..=4 => last,
        5 => last.saturating_sub(rng.u64(0..10_000)),
        6 => model.len() as u64,
        7 => (model.len() as u64 + rng.u64(0..100_000)).min(MAX_SIZE),
        8 => rng.u64(0..=model.len() as u64) & !4095,
        _ => rng.u64(0..=model.len() as u64),
    }
}

fn compare(what: &str, path: &Path, model: &[u8], seed: u64) {
    let on_disk = std::fs::read(path).unwrap();
    assert_eq!(on_disk.len(), model.len(), "{what}: size, seed {seed}");
    if on_disk != model {
        let at = on_disk.iter().zip(model).position(|(a, b)| a != b);
        panic!("{what}: first difference at {at:?}, seed {seed}");
    }
}

fn run(directory: &Path, case: &Case, seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut fill = Fill::new(seed);
    let path = directory.join("model");
    let mut model: Vec<u8> = Vec::new();
    let open = || case.options().open_writer(&path).unwrap();
    let mut writers: Vec<Writer> = vec![open(), open()];
    let mut readers: Vec<Reader> = (0..2)
        .map(|_| case.options().open_reader(&path).unwrap())
        .collect();
    let mut last = 0;
    let mut buffer = vec![0u8; 4 << 20];
    // What a read does not return stays as it was.
    let marked = vec![0xeeu8; buffer.len()];
    // Every write waits for the device there.
    let slow = case.durability == Durability::Sync;
    for step in 0..if slow { OPERATIONS / 6 } else { OPERATIONS } {
        let w = usize::from(rng.u8(..4) == 0);
        let r = rng.usize(..2);
        match rng.u8(..32) {
            0..=14 => {
                let at = offset(&mut rng, &model, last);
                // Many small writes in a row, or a large one.
                let repeat = if rng.bool() { rng.usize(1..40) } else { 1 };
                let n = if repeat > 1 {
                    rng.usize(1..9000)
                } else {
                    length(&mut rng)
                };
                let mut at = at;
                for _ in 0..repeat {
                    if at + n as u64 > MAX_SIZE {
                        break;
                    }
                    let data = fill.next(n);
                    writers[w].seek(SeekFrom::Start(at)).unwrap();
                    writers[w].write_all(&data).unwrap();
                    let end = at as usize + n;
                    if model.len() < end {
                        model.resize(end, 0);
                    }
                    model[at as usize..end].copy_from_slice(&data);
                    at = end as u64;
                }
                last = at;
            }
            15..=24 => {
                let at = offset(&mut rng, &model, last);
                let repeat = if rng.bool() { rng.usize(1..40) } else { 1 };
                let n = if repeat > 1 {
                    rng.usize(1..9000)
                } else {
                    length(&mut rng)
                };
                let mut at = at;
                readers[r].seek(SeekFrom::Start(at)).unwrap();
                for _ in 0..repeat {
                    let want = model.get(at as usize..).unwrap_or(&[]);
                    let want = &want[..want.len().min(n)];
                    buffer[..n].copy_from_slice(&marked[..n]);
                    let got = readers[r].read(&mut buffer[..n]).unwrap();
                    assert!(
                        got == want.len(),
                        "step {step}: read {got} of {n} at {at}, wanted {}, seed {seed}",
                        want.len()
                    );
                    assert!(
                        buffer[..got] == *want,
                        "step {step}: wrong data in {n} at {at}, seed {seed}"
                    );
                    assert!(
                        buffer[got..n] == marked[got..n],
                        "step {step}: memory behind {got} of {n} at {at} changed, seed {seed}"
                    );
                    at += got as u64;
                }
            }
            25 => writers[w].flush().unwrap(),
            26 => {
                writers[w].sync_data().unwrap();
            }
            27 => {
                let size = offset(&mut rng, &model, last);
                writers[w].set_len(size).unwrap();
                model.resize(size as usize, 0);
            }
            28 => {
                let old = std::mem::replace(&mut writers[w], open());
                old.finish().unwrap();
            }
            29 => {
                readers[r] = case.options().open_reader(&path).unwrap();
            }
            30 => {
                for writer in &mut writers {
                    writer.flush().unwrap();
                }
                compare("after flush", &path, &model, seed);
            }
            _ => {
                let end = writers[w].seek(SeekFrom::End(0)).unwrap();
                assert_eq!(end, model.len() as u64, "step {step}: end, seed {seed}");
            }
        }
    }
    for writer in writers {
        writer.finish().unwrap();
    }
    compare("at the end", &path, &model, seed);
    std::fs::remove_file(&path).unwrap();
}

fn seeds() -> std::ops::Range<u64> {
    let count = std::env::var("PDIO_MODEL_SEEDS")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or(2);
    let first = std::env::var("PDIO_MODEL_FIRST")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or(0);
    first..first + count
}

#[test]
fn random_operations_match_an_array_of_bytes() {
    let cases = [
        Case {
            engine: Engine::Auto,
            strategy: Strategy::Auto,
            durability: Durability::Process,
            memory: 8 << 20,
        },
        Case {
            engine: Engine::UringFixed,
            strategy: Strategy::Direct,
            durability: Durability::Process,
            memory: 512 << 10,
        },
        Case {
            engine: Engine::Uring,
            strategy: Strategy::Direct,
            durability: Durability::Process,
            memory: 2 << 20,
        },
        Case {
            engine: Engine::Threads,
            strategy: Strategy::Direct,
            durability: Durability::Process,
            memory: 1 << 20,
        },
        Case {
            engine: Engine::Inline,
            strategy: Strategy::Direct,
            durability: Durability::Safe,
            memory: 1 << 20,
        },
        Case {
            engine: Engine::Auto,
            strategy: Strategy::DontCache,
            durability: Durability::Process,
            memory: 1 << 20,
        },
        Case {
            engine: Engine::Auto,
            strategy: Strategy::Buffered,
            durability: Durability::Process,
            memory: 1 << 20,
        },
        Case {
            engine: Engine::Auto,
            strategy: Strategy::Auto,
            durability: Durability::Process,
            memory: 0,
        },
        Case {
            engine: Engine::Auto,
            strategy: Strategy::Auto,
            durability: Durability::Sync,
            memory: 8 << 20,
        },
    ];
    for filesystem in filesystems() {
        for (i, case) in cases.iter().enumerate() {
            for seed in seeds() {
                eprintln!("{}: case {i}, seed {seed}", filesystem.name);
                run(&filesystem.directory, case, seed * 1000 + i as u64);
            }
        }
    }
}
