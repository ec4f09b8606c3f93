// SPDX-License-Identifier: MIT OR Apache-2.0
//! The standard traits, positioned calls, and several threads on one file.

mod common;

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;

use common::{patterned, scratch, Fill};
use pdio::{Engine, OpenOptions, Reader, Strategy, Writer};

#[test]
fn lines_are_those_that_a_buf_reader_finds() {
    let home = scratch();
    let path = home.path().join("lines");
    let mut rng = fastrand::Rng::with_seed(5);
    let mut text = String::new();
    while text.len() < 7 << 20 {
        let n = rng.usize(..300);
        text.extend(std::iter::repeat_with(|| rng.alphanumeric()).take(n));
        text.push('\n');
    }
    text.push_str("no newline at the end");
    std::fs::write(&path, &text).unwrap();
    for strategy in [Strategy::Auto, Strategy::Direct, Strategy::Buffered] {
        let stream = OpenOptions::new()
            .strategy(strategy)
            .open_reader(&path)
            .unwrap();
        let plain = BufReader::new(std::fs::File::open(&path).unwrap());
        assert!(stream
            .lines()
            .map(Result::unwrap)
            .eq(plain.lines().map(Result::unwrap)));
    }
}

#[test]
fn a_stream_without_memory_finds_lines_as_well() {
    let home = scratch();
    let path = home.path().join("lines");
    let lines: Vec<String> = (0..3000).map(|i| format!("{i}").repeat(i % 40)).collect();
    std::fs::write(&path, lines.join("\n")).unwrap();
    let mut options = OpenOptions::new();
    let input = options.memory_limit(0).open_reader(&path).unwrap();
    assert!(input.lines().map(Result::unwrap).eq(lines));
}

#[test]
fn more_than_there_was_can_be_consumed() {
    let home = scratch();
    let path = home.path().join("data");
    std::fs::write(&path, [7; 100]).unwrap();
    let mut input = Reader::open(&path).unwrap();
    assert!(!input.fill_buf().unwrap().is_empty());
    for _ in 0..3 {
        input.consume(usize::MAX);
    }
    assert_eq!(input.read(&mut [0; 10]).unwrap(), 0);
    assert!(input.fill_buf().unwrap().is_empty());
    input.rewind().unwrap();
    assert_eq!(input.read(&mut [0; 200]).unwrap(), 100);
}

/// What the kernel gives only once (`/proc/kmsg`) would miss what is read for nothing.
#[test]
fn a_small_file_is_read_once_for_who_takes_the_memory_itself() {
    let home = scratch();
    let path = home.path().join("small");
    std::fs::write(&path, [7; 100]).unwrap();
    let mut input = Reader::open(&path).unwrap();
    assert_eq!(input.fill_buf().unwrap(), [7; 100]);
    assert_eq!(input.stats().requests, 1);
}

#[test]
fn parts_of_a_vectored_write_arrive_in_order() {
    let home = scratch();
    let path = home.path().join("vectored");
    let mut out = Writer::create(&path).unwrap();
    let (a, b, c) = (patterned(0, 1000), Vec::new(), patterned(1000, 3 << 20));
    let n = out
        .write_vectored(&[IoSlice::new(&a), IoSlice::new(&b), IoSlice::new(&c)])
        .unwrap();
    assert_eq!(n, a.len() + c.len());
    assert_eq!(out.stream_position().unwrap(), n as u64);
    out.finish().unwrap();
    assert!(std::fs::read(&path).unwrap() == patterned(0, n));
}

/// A ring, like several threads, carries out requests in any order.
#[test]
fn in_order_what_is_overwritten_takes_no_ring() {
    const LEN: usize = 16 << 20;
    let home = scratch();
    let path = home.path().join("overwritten");
    std::fs::write(&path, vec![0; LEN]).unwrap();
    let mut memory = patterned(0, LEN + 4096);
    let skew = memory.as_ptr().align_offset(4096);
    let data = &mut memory[skew..skew + LEN];
    for call in [5000, LEN] {
        let mut engine_of = |in_order| {
            data[0] ^= 0xff;
            let mut options = OpenOptions::new();
            let options = options.strategy(Strategy::Direct).in_order(in_order);
            let mut out = options.open_writer(&path).unwrap();
            for part in data.chunks(call) {
                out.write_all(part).unwrap();
            }
            out.flush().unwrap();
            assert!(std::fs::read(&path).unwrap() == data);
            let stats = out.stats();
            (stats.direct_bytes > LEN as u64 / 2).then_some(stats.engine)
        };
        let rings = [Some(Engine::UringFixed), Some(Engine::Uring)];
        if !rings.contains(&engine_of(false)) {
            return eprintln!("skipped: no io_uring, or no direct I/O in /var/tmp");
        }
        let engine = engine_of(true);
        assert!(engine.is_some() && !rings.contains(&engine), "{engine:?}");
    }
}

#[test]
fn positioned_calls_leave_the_position() {
    let home = scratch();
    let path = home.path().join("positioned");
    let mut out = Writer::create(&path).unwrap();
    out.write_all(&[1; 5000]).unwrap();
    assert_eq!(out.write_at(&[2; 10], 100).unwrap(), 10);
    assert_eq!(out.write_at(&[], u64::MAX >> 1).unwrap(), 0);
    assert!(out.write_at(&[1], u64::MAX).is_err());
    assert!(out.write_at(&[1], u64::MAX >> 1).is_err());
    out.write_all(&[3; 5]).unwrap();
    assert_eq!(out.position(), 5005);
    let mut input = Reader::open(&path).unwrap();
    let mut got = [0; 12];
    assert_eq!(input.read_at(&mut got, 99).unwrap(), 12);
    assert_eq!(got, [1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1]);
    assert_eq!(input.read_at(&mut got, 5000).unwrap(), 5);
    assert_eq!(input.read_at(&mut got, 5005).unwrap(), 0);
    let error = input.read_at(&mut got, u64::MAX).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert_eq!(input.position(), 0);
    assert!(input.seek(SeekFrom::End(-6000)).is_err());
    assert_eq!(input.seek(SeekFrom::End(-5)).unwrap(), 5000);
    let mut rest = Vec::new();
    input.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, [3; 5]);
}

#[test]
fn a_message_is_one_call() {
    let (one, other) = UnixDatagram::pair().unwrap();
    let file = File::from(OwnedFd::from(one.try_clone().unwrap()));
    let mut out = OpenOptions::new().writer_from(file).unwrap();
    let parts = [b"one ".as_slice(), b"", b"message"].map(IoSlice::new);
    assert_eq!(out.write_vectored(&parts).unwrap(), 11);
    let mut got = [0; 20];
    assert_eq!(other.recv(&mut got).unwrap(), 11);
    other.set_nonblocking(true).unwrap();
    assert_eq!(
        other.recv(&mut got).unwrap_err().kind(),
        ErrorKind::WouldBlock
    );

    let file = File::from(OwnedFd::from(other));
    let mut input = OpenOptions::new().reader_from(file).unwrap();
    one.send(b"one message").unwrap();
    let (mut begin, mut rest) = ([0; 4], [0; 20]);
    let mut parts = [&mut begin[..], &mut rest[..]].map(IoSliceMut::new);
    assert_eq!(input.read_vectored(&mut parts).unwrap(), 11);
    assert_eq!((&begin, &rest[..7]), (b"one ", b"message".as_slice()));
    assert_eq!((out.position(), input.position()), (11, 11));
}

#[test]
fn what_a_full_pipe_has_taken_is_told() {
    let (mut input, output) = std::io::pipe().unwrap();
    // SAFETY: no memory is involved.
    unsafe { libc::fcntl(output.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
    let mut out = OpenOptions::new()
        .writer_from(File::from(OwnedFd::from(output)))
        .unwrap();
    let error = loop {
        if let Err(error) = out.write_with(100_000, |room| Ok(room.len())) {
            break error;
        }
    };
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    let told = out.position();
    out.finish().unwrap();
    let mut got = Vec::new();
    input.read_to_end(&mut got).unwrap();
    assert_eq!(got.len() as u64, told);
}

#[test]
fn a_reader_follows_a_file_that_grows() {
    let home = scratch();
    let path = home.path().join("grows");
    let mut out = Writer::create(&path).unwrap();
    let mut input = Reader::open(&path).unwrap();
    let mut fill = Fill::new(9);
    for size in [1, 5000, 3 << 20, 17, 2 << 20] {
        let data = fill.next(size);
        out.write_all(&data).unwrap();
        let mut got = Vec::new();
        input.read_to_end(&mut got).unwrap();
        assert!(got == data);
    }
}

#[test]
fn a_hole_before_data_that_waits_is_read() {
    let home = scratch();
    let path = home.path().join("hole");
    for buffered_reader in [false, true] {
        let mut out = OpenOptions::new()
            .create(true)
            .truncate(true)
            .linger(None)
            .open_writer(&path)
            .unwrap();
        out.write_all(&[1; 5000]).unwrap();
        out.flush().unwrap();
        out.seek(SeekFrom::Start(100 << 20)).unwrap();
        out.write_all(&[2; 5000]).unwrap();
        let mut input = Reader::open(&path).unwrap();
        input.seek(SeekFrom::Start(4000)).unwrap();
        let mut got = vec![3; 2000];
        if buffered_reader {
            while input.position() < 5000 {
                let n = input.fill_buf().unwrap().len();
                input.consume(n);
            }
            assert!(input.fill_buf().unwrap().starts_with(&[0; 1000]));
        } else {
            assert_eq!(input.read(&mut got).unwrap(), 2000);
            assert_eq!(got, [[1; 1000], [0; 1000]].concat());
        }
        assert_eq!(input.read_at(&mut got, 100 << 20).unwrap(), 2000);
        assert_eq!(got, [2; 2000]);
        assert_eq!(input.read_at(&mut got, (100 << 20) + 5000).unwrap(), 0);
    }
}

#[test]
fn threads_write_their_own_parts_of_one_file_while_others_read() {
    const PART: usize = 3_000_001;
    let home = scratch();
    let path = home.path().join("threads");
    Writer::create(&path).unwrap().finish().unwrap();
    std::thread::scope(|scope| {
        for i in 0..4u64 {
            let path = &path;
            scope.spawn(move || {
                let mut out = OpenOptions::new().open_writer(path).unwrap();
                out.seek(SeekFrom::Start(i * PART as u64)).unwrap();
                for part in patterned(i * PART as u64, PART).chunks(10_000) {
                    out.write_all(part).unwrap();
                }
                out.finish().unwrap();
            });
            scope.spawn(move || {
                let mut input = OpenOptions::new().open_reader(path).unwrap();
                let mut got = vec![0; 50_000];
                for _ in 0..100 {
                    let at = i * PART as u64;
                    let n = input.read_at(&mut got, at).unwrap();
                    // Written bytes are odd; what is not written yet reads as zero.
                    let want = patterned(at, n);
                    assert!(got[..n].iter().zip(&want).all(|(g, w)| g == w || *g == 0));
                }
            });
        }
    });
    assert!(std::fs::read(&path).unwrap() == patterned(0, 4 * PART));
}

#[test]
fn large_buffered_calls_are_passed_on_as_they_are() {
    let home = scratch();
    let path = home.path().join("large");
    let mut out = OpenOptions::new()
        .create(true)
        .strategy(Strategy::Buffered)
        .open_writer(&path)
        .unwrap();
    for i in 0..4u64 {
        out.write_all(&patterned(i << 20, 1 << 20)).unwrap();
    }
    let stats = out.finish().unwrap();
    assert_eq!((stats.requests, stats.memory), (4, 0));
    assert!(std::fs::read(&path).unwrap() == patterned(0, 4 << 20));
}

#[test]
fn a_stream_may_change_threads() {
    let home = scratch();
    let path = home.path().join("moved");
    let mut out = OpenOptions::new()
        .create(true)
        .strategy(Strategy::Direct)
        .open_writer(&path)
        .unwrap();
    for i in 0..12u64 {
        // The thread ends with requests of its own in flight.
        out = std::thread::spawn(move || {
            out.write_all(&patterned(i << 20, 1 << 20)).unwrap();
            out
        })
        .join()
        .unwrap();
    }
    out.finish().unwrap();
    assert!(std::fs::read(&path).unwrap() == patterned(0, 12 << 20));
}

#[test]
fn releasing_reserved_blocks_never_cuts_another_writers_data() {
    let home = scratch();
    let path = home.path().join("reserved");
    let mut options = OpenOptions::new();
    options
        .create(true)
        .preallocate(8 << 20)
        .strategy(Strategy::Direct);
    let mut last = options.open_writer(&path).unwrap();
    for i in 0..20u64 {
        // Each hands over with data of the other in flight, and ends before that has arrived.
        let mut next = options.open_writer(&path).unwrap();
        next.seek(SeekFrom::Start(i << 20)).unwrap();
        next.write_all(&patterned(i << 20, 1 << 20)).unwrap();
        std::mem::replace(&mut last, next).finish().unwrap();
    }
    last.finish().unwrap();
    assert!(std::fs::read(&path).unwrap() == patterned(0, 20 << 20));
}

#[test]
fn who_takes_the_memory_itself_gets_whole_blocks_from_the_first_on() {
    let home = scratch();
    let path = home.path().join("blocks");
    let mut out = Writer::create(&path).unwrap();
    out.write_all(&patterned(0, 8 << 20)).unwrap();
    out.sync_all().unwrap();
    out.finish().unwrap();
    let mut options = OpenOptions::new();
    options.strategy(Strategy::Direct).linger(None);
    let mut input = options.open_reader(&path).unwrap();
    let first = input.fill_buf().unwrap().len();
    if input.stats().direct_bytes == 0 {
        eprintln!("skipped: no direct I/O in {}", home.path().display());
        return;
    }
    assert!(first >= 1 << 20, "{first} bytes, of a file of 8 MiB");
}

/// No other test here says that something was heard.
#[test]
fn what_was_heard_is_not_read_from_before() {
    let home = scratch();
    let path = home.path().join("told");
    let mut options = OpenOptions::new();
    options.linger(Some(std::time::Duration::from_secs(60)));
    for hears in [true, false] {
        std::fs::write(&path, vec![b'o'; 1 << 20]).unwrap();
        let mut input = options.open_reader(&path).unwrap();
        let mut block = [0; 4096];
        for _ in 0..4 {
            input.read_exact(&mut block).unwrap();
        }
        std::fs::write(&path, vec![b'n'; 1 << 20]).unwrap();
        if hears {
            let before = pdio::times_heard();
            pdio::heard();
            assert_ne!(pdio::times_heard(), before);
        }
        input.read_exact(&mut block).unwrap();
        let expected = if hears { b'n' } else { b'o' };
        assert_eq!(block, [expected; 4096], "hears: {hears}");
    }
}

#[test]
fn a_seek_leads_where_that_of_a_file_would() {
    let file = tempfile::tempfile_in("/var/tmp").unwrap();
    let mut plain = file.try_clone().unwrap();
    let options = OpenOptions::new();
    let mut input = options.reader_from(file.try_clone().unwrap()).unwrap();
    let mut out = options.writer_from(file).unwrap();
    let streams: [&mut dyn Seek; 2] = [&mut input, &mut out];
    let end = i64::MAX as u64;
    for stream in streams {
        for at in [0, 5, 1 << 31, 1 << 45, end - 4096, end] {
            let expected = plain.seek(SeekFrom::Start(at)).ok();
            assert_eq!(stream.seek(SeekFrom::Start(at)).ok(), expected, "{at}");
            assert_eq!(
                stream.stream_position().unwrap(),
                plain.stream_position().unwrap()
            );
        }
    }
    assert_eq!(input.read(&mut [0]).unwrap(), 0);
    out.flush().unwrap();
}
