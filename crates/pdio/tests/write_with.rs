// SPDX-License-Identifier: MIT OR Apache-2.0
//! Filling a writer's memory in place, and writing without a copy, give the same file as writing.

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

#[test]
fn who_has_no_limit_gets_what_room_there_is() {
    let home = tempfile::tempdir_in("/var/tmp").unwrap();
    for durability in [pdio::Durability::Process, pdio::Durability::Safe] {
        let mut options = OpenOptions::new();
        options.create(true).durability(durability);
        let mut out = options.open_writer(home.path().join("data")).unwrap();
        out.write_all(b"begun").unwrap();
        let n = out.write_with(usize::MAX, |room| Ok(room.len())).unwrap();
        assert!(n > 0);
        assert_eq!(out.position(), 5 + n as u64);
    }
}

/// Memory as a device would have it.
#[repr(C, align(4096))]
struct Pages([u8; 256 << 10]);

#[test]
fn writes_without_a_copy_and_others_make_the_same_file() {
    let home = tempfile::tempdir_in("/var/tmp").unwrap();
    let path = home.path().join("data");
    let mut random = fastrand::Rng::with_seed(11);
    let mut memory = Box::new(Pages([0; 256 << 10]));
    for durability in [Durability::Process, Durability::Safe, Durability::Sync] {
        let mut options = OpenOptions::new();
        options.create(true).truncate(true).durability(durability);
        options.strategy(Strategy::Direct);
        let mut out = options.open_writer(&path).unwrap();
        let align = pdio::explain(&path).unwrap().alignment;
        let mut model: Vec<u8> = Vec::new();
        let mut uncopied = 0;
        for _ in 0..200 {
            // Often whole blocks, so that positions are aligned often.
            let block = random.choice([1, 512, 4096]).unwrap();
            let length = random.usize(0..=memory.0.len() / block) * block;
            let data = &mut memory.0[..length];
            random.fill(data);
            if random.bool() && out.write_uncopied(data).unwrap() {
                uncopied += length;
                let aligned = |at: usize| at.is_multiple_of(align.unwrap().offset as usize);
                assert!(aligned(model.len()) && aligned(length));
            } else {
                out.write_all(data).unwrap();
            }
            model.extend_from_slice(data);
            assert_eq!(out.position(), model.len() as u64);
            if random.u32(0..8) == 0 {
                // Back to where positions are aligned.
                let to = model.len() / 4096 * 4096;
                out.seek(SeekFrom::Start(to as u64)).unwrap();
                out.set_len(to as u64).unwrap();
                model.truncate(to);
            }
        }
        let stats = out.finish().unwrap();
        assert!(stats.zero_copy_bytes >= uncopied as u64);
        assert!(std::fs::read(&path).unwrap() == model, "{durability:?}");
        assert_eq!(uncopied > 0, align.is_some());
    }
}

#[test]
fn memory_that_no_device_can_be_given_is_an_error_and_the_stream_goes_on() {
    let home = tempfile::tempdir_in("/var/tmp").unwrap();
    let path = home.path().join("data");
    let mut options = OpenOptions::new();
    options.create(true).strategy(Strategy::Direct);
    let mut out = options.open_writer(&path).unwrap();
    if pdio::explain(&path).unwrap().alignment.is_none() {
        eprintln!("skipped: no direct I/O in /var/tmp");
        return;
    }
    out.write_all(b"begun").unwrap();
    assert!(
        !out.write_uncopied(&[0; 4096]).unwrap(),
        "the position is not aligned"
    );
    out.set_len(0).unwrap();
    out.rewind().unwrap();
    // SAFETY: a new mapping that nothing else uses, of which no byte is looked at.
    let nothing = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let at = libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_NONE, flags, -1, 0);
        assert_ne!(at, libc::MAP_FAILED);
        std::slice::from_raw_parts(at.cast::<u8>(), 4096)
    };
    let error = out.write_uncopied(nothing).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EFAULT));
    assert_eq!(out.position(), 0);
    out.write_all(b"and on").unwrap();
    out.finish().unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"and on");
}
