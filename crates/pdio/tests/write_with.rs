// SPDX-License-Identifier: MIT OR Apache-2.0
//! Filling a writer's memory in place gives the same file as writing.

use std::io::{self, Seek, SeekFrom, Write};

use pdio::{Durability, OpenOptions, Strategy};

#[test]
fn bytes_put_in_place_and_bytes_written_make_the_same_file() {
    let home = tempfile::tempdir_in("/var/tmp").unwrap();
    let path = home.path().join("data");
    let mut random = fastrand::Rng::with_seed(7);
    for strategy in [Strategy::Auto, Strategy::Direct, Strategy::Buffered] {
        for durability in [Durability::Process, Durability::Safe] {
            let mut options = OpenOptions::new();
            options.create(true).truncate(true).strategy(strategy);
            options.durability(durability).block_size(128 << 10);
            let mut out = options.open_writer(&path).unwrap();
            let mut model: Vec<u8> = Vec::new();
            let mut at = 0;
            for step in 0..400 {
                let length = match random.u32(0..3) {
                    0 => random.usize(0..600),
                    _ => random.usize(0..300_000),
                };
                let byte = step as u8;
                let done = match random.u32(0..8) {
                    0 => {
                        at = random.usize(0..=model.len());
                        out.seek(SeekFrom::Start(at as u64)).unwrap();
                        continue;
                    }
                    1 => {
                        out.flush().unwrap();
                        continue;
                    }
                    2 => {
                        out.write_all(&vec![byte; length]).unwrap();
                        length
                    }
                    3 => {
                        let error = out.write_with(100, |_| Err(io::ErrorKind::TimedOut.into()));
                        assert_eq!(error.unwrap_err().kind(), io::ErrorKind::TimedOut);
                        continue;
                    }
                    _ => out
                        .write_with(length, |room| {
                            assert!(room.len() <= length);
                            // What is put may be less than there is room for.
                            let n = room.len() - room.len() / 3;
                            room[..n].fill(byte);
                            room[n..].fill(0xff);
                            Ok(n)
                        })
                        .unwrap(),
                };
                model.resize(model.len().max(at + done), 0);
                model[at..at + done].fill(byte);
                at += done;
                assert_eq!(out.position(), at as u64);
            }
            out.finish().unwrap();
            assert!(
                std::fs::read(&path).unwrap() == model,
                "{strategy:?} {durability:?}"
            );
        }
    }
}

#[test]
fn data_put_in_place_is_sent_without_staging_it_again() {
    let home = tempfile::tempdir_in("/var/tmp").unwrap();
    let path = home.path().join("data");
    let mut options = OpenOptions::new();
    options.create(true).strategy(Strategy::Direct);
    let mut out = options.open_writer(&path).unwrap();
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..64 {
        out.write_with(1 << 20, |room| {
            seen.insert(room.as_ptr() as usize);
            room.fill(3);
            Ok(room.len())
        })
        .unwrap();
    }
    let stats = out.finish().unwrap();
    assert_eq!(stats.bytes, std::fs::metadata(&path).unwrap().len());
    // Always the same memory, the stream's own.
    assert!(seen.len() <= 8, "{}", seen.len());
}
