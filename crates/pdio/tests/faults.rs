// SPDX-License-Identifier: MIT OR Apache-2.0
//! Full disks, failing disks, limits, signals, forks, unusual files, and systems that lack something.

mod common;

use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use common::{
    alone, child, filesystems, image, job, passed, patterned, remove_with_its_room, run, scratch,
    tmpfs, Filesystem, Fill,
};
use pdio::{Durability, Engine, OpenOptions, Reader, Strategy, Writer};

fn create() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.create(true).truncate(true);
    options
}

/// Writes until an error comes, at most `most` bytes; what was accepted and the error.
fn write_until_error(
    out: &mut Writer,
    block: usize,
    most: usize,
) -> (Vec<u8>, Option<std::io::Error>) {
    let mut fill = Fill::new(1);
    let mut accepted = Vec::new();
    while accepted.len() < most {
        let data = fill.next(block);
        match out.write(&data) {
            Ok(n) => accepted.extend_from_slice(&data[..n]),
            Err(error) => return (accepted, Some(error)),
        }
    }
    let error = out.flush().err();
    (accepted, error)
}

/// The bytes that a filesystem has room for.
fn room(directory: &Path) -> u64 {
    let path = std::ffi::CString::new(directory.to_str().unwrap()).unwrap();
    // SAFETY: a structure of numbers, which the call fills.
    let about = unsafe {
        let mut about: libc::statvfs64 = std::mem::zeroed();
        assert_eq!(libc::statvfs64(path.as_ptr(), &mut about), 0);
        about
    };
    about.f_bavail * about.f_frsize
}

fn full_disk(filesystem: &Filesystem, block: usize) {
    let ballast = filesystem.directory.join("ballast");
    std::fs::write(&ballast, vec![1u8; 12 << 20]).unwrap();
    File::open(&ballast).unwrap().sync_all().unwrap();
    let path = filesystem.directory.join("full");
    let mut out = create().open_writer(&path).unwrap();
    let (accepted, error) = write_until_error(&mut out, block, 64 << 20);
    let error = error.expect("64 MiB do not fit");
    assert_eq!(
        error.kind(),
        ErrorKind::StorageFull,
        "{}: {error}",
        filesystem.name
    );
    // What fits is there.
    let room = room(&filesystem.directory);
    assert!(
        room < 64 << 10,
        "{}, blocks of {block}: {room}",
        filesystem.name
    );
    // Nothing of what was accepted is lost once there is room again: it was kept.
    remove_with_its_room(&ballast);
    let freed = (0..100).find_map(|_| match out.flush() {
        Ok(()) => Some(()),
        Err(_) => {
            std::thread::sleep(std::time::Duration::from_millis(50));
            None
        }
    });
    let left = std::fs::metadata(&path).unwrap().len();
    assert!(
        freed.is_some() || (left as usize) < accepted.len(),
        "{}: still failing",
        filesystem.name
    );
    if freed.is_some() {
        out.finish().unwrap();
        assert!(
            std::fs::read(&path).unwrap() == accepted,
            "{}, blocks of {block}",
            filesystem.name
        );
    }
    remove_with_its_room(&path);
}

#[test]
fn a_full_disk_is_reported_once_and_nothing_accepted_is_lost() {
    let all = [
        image("ext4", 40, "mkfs.ext4", &["-q", "-m", "0"], "e2fsprogs"),
        tmpfs("28m"),
    ];
    for filesystem in all.iter().flatten() {
        for block in [777, 4096, 300_000, 5 << 20] {
            full_disk(filesystem, block.min(4 << 20));
        }
    }
}

#[test]
fn an_error_is_reported_by_one_call_only() {
    let Some(filesystem) = tmpfs("2m") else {
        return;
    };
    let mut out = create()
        .linger(None)
        .open_writer(filesystem.directory.join("once"))
        .unwrap();
    let (_, error) = write_until_error(&mut out, 4096, 16 << 20);
    assert!(error.is_some());
    // Room again before the next call: nothing is left to report.
    let directory = filesystem.directory.to_str().unwrap();
    let status = std::process::Command::new("mount")
        .args(["-o", "remount,size=64m", directory])
        .status()
        .unwrap();
    assert!(status.success());
    out.write_all(b"more").unwrap();
    out.flush().unwrap();
    out.finish().unwrap();
}

/// Some filesystems have to be read to find the alignment.
#[test]
fn what_the_program_does_not_read_keeps_its_time_of_access() {
    use std::time::{Duration, SystemTime};
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1000);
    for filesystem in filesystems() {
        let path = filesystem.directory.join("file");
        std::fs::write(&path, patterned(0, 1 << 20)).unwrap();
        File::open(&path).unwrap().sync_all().unwrap();
        let ways = [
            ("write", false, 0),
            ("read and write", true, 0),
            ("unseen", true, libc::O_NOATIME),
        ];
        for (way, reads, flags) in ways {
            let file = File::options()
                .read(reads)
                .write(true)
                .custom_flags(flags)
                .open(&path)
                .unwrap();
            // bindfs leaves none as it was if it is to set one.
            let times = std::fs::FileTimes::new()
                .set_accessed(old)
                .set_modified(old);
            file.set_times(times).unwrap();
            if flags == 0 {
                let mut out = OpenOptions::new().writer_from(file).unwrap();
                out.write_all(&patterned(0, 300_000)).unwrap();
                out.finish().unwrap();
            } else {
                let mut from = OpenOptions::new().reader_from(file).unwrap();
                std::io::copy(&mut from, &mut std::io::sink()).unwrap();
            }
            let accessed = path.metadata().unwrap().accessed().unwrap();
            assert_eq!(accessed, old, "{}: {way}", filesystem.name);
        }
    }
}

#[test]
fn interrupting_signals_change_nothing() {
    let Some(path) = alone("interrupting_signals_change_nothing", "signals") else {
        return;
    };
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: the handler does nothing; without SA_RESTART system calls return EINTR.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as *const () as usize;
        libc::sigaction(libc::SIGALRM, &action, std::ptr::null_mut());
        let tick = libc::timeval {
            tv_sec: 0,
            tv_usec: 500,
        };
        let timer = libc::itimerval {
            it_interval: tick,
            it_value: tick,
        };
        libc::setitimer(libc::ITIMER_REAL, &timer, std::ptr::null_mut());
    }
    let want = Fill::new(3).next(4 << 20).repeat(8);
    for engine in [Engine::UringFixed, Engine::Threads, Engine::Inline] {
        let mut out = create().engine(engine).open_writer(&path).unwrap();
        for part in want.chunks(5000) {
            out.write_all(part).unwrap();
        }
        out.sync_data().unwrap();
        out.finish().unwrap();
        let mut got = Vec::new();
        OpenOptions::new()
            .engine(engine)
            .strategy(Strategy::Direct)
            .open_reader(&path)
            .unwrap()
            .read_to_end(&mut got)
            .unwrap();
        assert!(got == want, "{engine:?}");
    }
}

#[test]
fn the_file_size_limit_is_reported_and_filled_to_the_byte() {
    const LIMIT: u64 = (3 << 20) + 100;
    let Some(path) = alone(
        "the_file_size_limit_is_reported_and_filled_to_the_byte",
        "limit",
    ) else {
        return;
    };
    // SAFETY: plain system calls on valid memory.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        let limit = libc::rlimit {
            rlim_cur: LIMIT,
            rlim_max: LIMIT,
        };
        assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &limit), 0);
    }
    for engine in [Engine::Auto, Engine::Threads] {
        for block in [700, 65536, 4 << 20] {
            let mut out = create().engine(engine).open_writer(&path).unwrap();
            let (accepted, error) = write_until_error(&mut out, block, 8 << 20);
            assert_eq!(error.unwrap().raw_os_error(), Some(libc::EFBIG));
            drop(out);
            let left = std::fs::read(&path).unwrap();
            assert_eq!(
                left.len() as u64,
                LIMIT.min(accepted.len() as u64).max(LIMIT)
            );
            let n = left.len().min(accepted.len());
            assert!(left[..n] == accepted[..n]);
        }
    }
}

#[test]
fn without_memory_for_the_first_stream_there_is_an_error() {
    let Some(path) = alone(
        "without_memory_for_the_first_stream_there_is_an_error",
        "memory",
    ) else {
        return;
    };
    let limit_memory = |most| common::limit(libc::RLIMIT_AS, most);
    std::fs::write(&path, b"there").unwrap();
    // The heap has a little, and nothing can be mapped.
    drop(vec![1u8; 100_000]);
    limit_memory(1 << 20);
    let errors = [
        create().open_writer(&path).map(drop).unwrap_err(),
        Reader::open(&path).map(drop).unwrap_err(),
        pdio::explain(&path).map(drop).unwrap_err(),
    ];
    pdio::end_threads(false);
    limit_memory(libc::RLIM_INFINITY);
    assert!(
        errors
            .iter()
            .all(|error| error.kind() == ErrorKind::OutOfMemory),
        "{errors:?}"
    );
    let mut out = create().open_writer(&path).unwrap();
    out.write_all(b"later").unwrap();
    out.finish().unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"later");
}

#[test]
fn without_io_uring_threads_take_over() {
    let Some(path) = alone("without_io_uring_threads_take_over", "seccomp") else {
        return;
    };
    // As container runtimes have it.
    common::filter::refuse(libc::SYS_io_uring_setup, libc::EPERM).unwrap();
    let want = Fill::new(4).next(4 << 20).repeat(4);
    let mut out = create()
        .strategy(Strategy::Direct)
        .open_writer(&path)
        .unwrap();
    out.write_all(&want[..100]).unwrap();
    for part in want[100..].chunks(9999) {
        out.write_all(part).unwrap();
    }
    let stats = out.finish().unwrap();
    if stats.direct_bytes > 0 {
        assert_eq!(stats.engine, Engine::Threads);
    }
    assert!(std::fs::read(&path).unwrap() == want);
}

#[test]
fn what_the_ring_does_not_take_is_not_written_later() {
    const PART: usize = 8 << 20;
    let home = scratch();
    let path = home.path().join("ring");
    let want = patterned(0, 3 * PART);
    for flushed in [true, false] {
        // There already, so that requests go to the ring and not to a chain.
        std::fs::write(&path, vec![0; want.len()]).unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        let mut options = OpenOptions::new();
        options
            .strategy(Strategy::Direct)
            .engine(Engine::UringFixed)
            .memory_limit(2 << 20);
        let mut out = options.writer_from(file).unwrap();
        let (first, rest) = want.split_at(PART);
        let (second, third) = rest.split_at(PART);
        let write = |out: &mut Writer, data: &[u8]| {
            for part in data.chunks(9999) {
                out.write_all(part).unwrap();
            }
        };
        write(&mut out, first);
        if flushed {
            out.flush().unwrap();
        }
        // A thread to which the kernel gives no memory for a ring, or that may not use one.
        let mut out = std::thread::spawn({
            let second = second.to_vec();
            move || {
                common::filter::refuse(libc::SYS_io_uring_enter, libc::ENOMEM).unwrap();
                // Where the ring has requests already, nobody can wait for them here.
                let _ = second.chunks(9999).try_for_each(|part| out.write_all(part));
                out
            }
        })
        .join()
        .unwrap();
        let behind = out.stream_position().unwrap() as usize;
        if flushed {
            assert_eq!(behind, 2 * PART);
        }
        out.seek(SeekFrom::Start(2 * PART as u64)).unwrap();
        write(&mut out, third);
        let _ = out.flush();
        drop(out);
        let got = std::fs::read(&path).unwrap();
        assert!(got[2 * PART..] == *third);
        assert!(got[..behind.min(2 * PART)] == want[..behind.min(2 * PART)]);
    }
}

/// Streams leave so many bytes in a new file, and find them there.
fn written_and_read_again(path: &Path, bytes: usize) {
    let want = patterned(0, bytes);
    let mut out = create().open_writer(path).unwrap();
    out.write_all(&want).unwrap();
    out.finish().unwrap();
    let mut got = Vec::new();
    Reader::open(path).unwrap().read_to_end(&mut got).unwrap();
    assert!(got == want);
}

#[test]
fn without_statx_streams_work() {
    let Some(path) = job() else {
        let home = scratch();
        let path = home.path().join("statx");
        // As older container runtimes have it, and Linux before 4.11: from the start.
        for error in [libc::EPERM, libc::ENOSYS] {
            let mut command = child("without_statx_streams_work", path.to_str().unwrap());
            let run = move || {
                common::filter::refuse(libc::SYS_statx, error).unwrap();
                passed(&mut command);
            };
            std::thread::spawn(run).join().unwrap();
        }
        return;
    };
    written_and_read_again(Path::new(&path), 5 << 20);
}

/// It says by itself whether the file has grown.
#[test]
fn a_read_at_the_end_is_one_call() {
    let Some(path) = alone("a_read_at_the_end_is_one_call", "ends") else {
        return;
    };
    const LEN: usize = 3 << 20;
    let mut out = create()
        .strategy(Strategy::Direct)
        .open_writer(&path)
        .unwrap();
    out.write_all(&vec![1; LEN]).unwrap();
    let direct = out.finish().unwrap().direct_bytes;
    let mut options = OpenOptions::new();
    options.strategy(Strategy::Direct).linger(None);
    let mut input = options.open_reader(&path).unwrap();
    let mut block = vec![0; 5000];
    let mut read_all = |input: &mut Reader, byte: u8| {
        let mut len = 0;
        loop {
            let n = input.read(&mut block).unwrap();
            assert!(block[..n].iter().all(|&b| b == byte));
            match n {
                0 => return len,
                n => len += n,
            }
        }
    };
    assert_eq!(read_all(&mut input, 1), LEN);
    // Grown, as by another process, it is read ahead as before.
    let before = input.stats().direct_bytes;
    let mut more = File::options().append(true).open(&path).unwrap();
    more.write_all(&vec![2; LEN]).unwrap();
    more.sync_all().unwrap();
    // SAFETY: no memory is involved.
    unsafe { libc::posix_fadvise(more.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    assert_eq!(read_all(&mut input, 2), LEN);
    assert!(direct == 0 || input.stats().direct_bytes > before);
    // Neither what the file is, nor whether calls are filtered, is asked.
    let requests = input.stats().requests;
    common::filter::end_at(libc::SYS_statx).unwrap();
    common::filter::end_at(libc::SYS_prctl).unwrap();
    for _ in 0..3 {
        assert_eq!(read_all(&mut input, 0), 0);
    }
    assert_eq!(input.stats().requests, requests + 3);
}

#[test]
fn a_filter_that_does_not_know_new_calls_does_not_end_the_process() {
    /// Of Linux 6.5.
    const SYS_CACHESTAT: libc::c_long = 451;
    let test = "a_filter_that_does_not_know_new_calls_does_not_end_the_process";
    let Some(path) = alone(test, "filtered") else {
        return;
    };
    common::filter::end_at(SYS_CACHESTAT).unwrap();
    written_and_read_again(Path::new(&path), 9 << 20);
}

#[test]
fn reads_that_should_be_dropped_are_kept_where_the_kernel_cannot() {
    let test = "reads_that_should_be_dropped_are_kept_where_the_kernel_cannot";
    let Some(path) = alone(test, "kept") else {
        return;
    };
    let want = patterned(0, 5 << 20);
    std::fs::write(&path, &want).unwrap();
    // As Linux before 6.14, and filesystems without `RWF_DONTCACHE`.
    common::filter::refuse(libc::SYS_preadv2, libc::EOPNOTSUPP).unwrap();
    for len in [1000, 100_000] {
        let mut options = OpenOptions::new();
        options.strategy(Strategy::DontCache);
        let mut input = options.open_reader(&path).unwrap();
        let mut got = vec![0; len];
        for at in (0..want.len()).step_by(len) {
            let n = input.read(&mut got).unwrap();
            assert!(got[..n] == want[at..][..n] && n == len.min(want.len() - at));
        }
        assert_eq!(input.stats().strategy, Strategy::Buffered);
        let mut input = options.open_reader(&path).unwrap();
        assert!(want.starts_with(std::io::BufRead::fill_buf(&mut input).unwrap()));
    }
}

/// NFS and FUSE tell some errors of writes by `close` alone.
#[test]
fn what_only_close_tells_is_returned_by_finish() {
    let test = "what_only_close_tells_is_returned_by_finish";
    let Some(path) = alone(test, "closed") else {
        return;
    };
    for strategy in [Strategy::Direct, Strategy::Buffered] {
        for (length, which) in [(100, 0), (5 << 20, 0), (5 << 20, 1)] {
            // What was not closed before stays.
            let old = numbers_of(Path::new(&path));
            let mut out = create().strategy(strategy).open_writer(&path).unwrap();
            let data = patterned(0, length);
            out.write_all(&data).unwrap();
            let known = out.as_fd().as_raw_fd();
            let own = numbers_of(Path::new(&path)).into_iter();
            let own = own.filter(|&number| number != known && !old.contains(&number));
            // Where there is no direct I/O there is one descriptor.
            let Some(fd) = std::iter::once(known).chain(own).nth(which) else {
                continue;
            };
            common::filter::refuse_of(libc::SYS_close, fd, libc::EDQUOT).unwrap();
            let error = out.finish().unwrap_err();
            assert_eq!(
                error.raw_os_error(),
                Some(libc::EDQUOT),
                "{strategy:?} {length}"
            );
            assert!(std::fs::read(&path).unwrap() == data);
        }
    }
}

#[test]
fn after_a_fork_parent_and_child_each_write_their_own() {
    let Some(path) = alone("after_a_fork_parent_and_child_each_write_their_own", "fork") else {
        return;
    };
    for engine in [Engine::UringFixed, Engine::Threads] {
        let mut out = create()
            .engine(engine)
            .strategy(Strategy::Direct)
            .open_writer(&path)
            .unwrap();
        let mut want = vec![1u8; (5 << 20) + 17];
        out.write_all(&want).unwrap();
        let mut input = OpenOptions::new()
            .engine(engine)
            .open_reader(&path)
            .unwrap();
        let mut begun = vec![0u8; 3000];
        input.read_exact(&mut begun).unwrap();
        // SAFETY: the child only uses what the crate promises to work after a fork, and leaves.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // At the position of the fork, and far from where the parent goes on.
            let ok = out.position() == (5 << 20) + 17
                && out.seek(SeekFrom::Start(20 << 20)).is_ok()
                && out.write_all(&vec![3u8; 2 << 20]).is_ok()
                && out.flush().is_ok()
                && input.read_exact(&mut begun).is_ok()
                && begun.iter().all(|&b| b == 1);
            drop(out);
            drop(input);
            // SAFETY: ends the child without running what belongs to the parent.
            unsafe { libc::_exit(i32::from(!ok)) };
        }
        for _ in 0..1000 {
            out.write_all(&[2u8; 5000]).unwrap();
        }
        let mut status = 0;
        // SAFETY: waits for our own child.
        assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
        assert_eq!(status, 0);
        out.finish().unwrap();
        want.extend([2u8; 5000].repeat(1000));
        want.resize(20 << 20, 0);
        want.extend(vec![3u8; 2 << 20]);
        assert!(std::fs::read(&path).unwrap() == want);
        input.read_exact(&mut begun).unwrap();
        assert!(begun.iter().all(|&b| b == 1));
    }
}

/// The descriptors by which this process has `path` open.
fn numbers_of(path: &Path) -> Vec<i32> {
    let links = std::fs::read_dir("/proc/self/fd").unwrap();
    links
        .map(|entry| entry.unwrap().path())
        .filter(|link| std::fs::read_link(link).is_ok_and(|to| to == path))
        .map(|link| link.file_name().unwrap().to_str().unwrap().parse().unwrap())
        .collect()
}

/// What this process has open or mapped of `path` or of a ring.
fn held(path: &Path) -> Vec<String> {
    let numbers = std::fs::read_dir("/proc/self/fd").unwrap();
    let links = numbers.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok());
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    links
        .map(|link| link.to_string_lossy().into_owned())
        .chain(maps.lines().map(String::from))
        .filter(|name| name.contains(path.to_str().unwrap()) || name.contains("io_uring"))
        .collect()
}

#[test]
fn a_child_closes_what_it_has_of_its_parents_streams() {
    let Some(path) = alone(
        "a_child_closes_what_it_has_of_its_parents_streams",
        "closed",
    ) else {
        return;
    };
    type End = fn(Writer, Reader) -> bool;
    let ends: [(&str, End); 3] = [
        ("dropped", |_, _| true),
        ("used and dropped", |mut out, mut input| {
            out.write_all(b"x").is_ok() && input.read_exact(&mut [0; 3000]).is_ok()
        }),
        ("finished", |out, input| {
            drop(input);
            out.finish().is_ok()
        }),
    ];
    for engine in [Engine::UringFixed, Engine::Threads] {
        for (how, end) in ends {
            let mut options = create();
            options.engine(engine).strategy(Strategy::Direct);
            let mut out = options.open_writer(&path).unwrap();
            out.write_all(&vec![1; 5 << 20]).unwrap();
            // Not growing: by the engine, and not by a chain of requests.
            out.flush().unwrap();
            out.seek(SeekFrom::Start(0)).unwrap();
            out.write_all(&vec![1; 4 << 20]).unwrap();
            out.flush().unwrap();
            let mut input = options.truncate(false).open_reader(&path).unwrap();
            input.read_exact(&mut [0; 3000]).unwrap();
            // SAFETY: the child only uses what the crate promises to work after a fork, and leaves.
            let pid = unsafe { libc::fork() };
            if pid == 0 {
                let ok = end(out, input);
                let left = held(Path::new(&path));
                if !left.is_empty() {
                    eprintln!("{engine:?}, {how}: {left:#?}");
                }
                // SAFETY: ends the child without running what belongs to the parent.
                unsafe { libc::_exit(i32::from(!ok || !left.is_empty())) };
            }
            let mut status = 0;
            // SAFETY: waits for our own child.
            assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
            assert_eq!(status, 0, "{engine:?}, {how}");
            // The parent's are as they were.
            out.write_all(&[1; 5000]).unwrap();
            out.finish().unwrap();
            input.read_exact(&mut [0; 3000]).unwrap();
        }
    }
}

#[test]
fn a_child_leaves_alone_what_it_has_opened_under_a_number_of_its_parents_streams() {
    let Some(path) = alone(
        "a_child_leaves_alone_what_it_has_opened_under_a_number_of_its_parents_streams",
        "reused",
    ) else {
        return;
    };
    std::fs::write(&path, vec![1; 5 << 20]).unwrap();
    type End = fn(Reader) -> bool;
    let ends: [(&str, End); 2] = [
        ("dropped", |_| true),
        ("used and dropped", |mut input| {
            input.read_exact(&mut [0; 3000]).is_ok()
        }),
    ];
    for begun in [false, true] {
        for (how, end) in ends {
            let mut options = OpenOptions::new();
            let mut input = options
                .strategy(Strategy::Direct)
                .open_reader(&path)
                .unwrap();
            if begun {
                // So there is an engine.
                input.read_exact(&mut [0; 3000]).unwrap();
            }
            // The stream's own descriptors of the file, but for the one that the program knows.
            let known = input.as_fd().as_raw_fd();
            let mut numbers = numbers_of(Path::new(&path));
            numbers.retain(|&number| number != known);
            // SAFETY: the child only uses what the crate promises to work after a fork, and leaves.
            let pid = unsafe { libc::fork() };
            if pid == 0 {
                let other = File::open("/dev/null").unwrap();
                let about = other.metadata().unwrap();
                // SAFETY: the numbers are this test's to reuse.
                let reuse = |&to: &i32| unsafe { libc::dup2(other.as_raw_fd(), to) } == to;
                let ok = numbers.iter().all(reuse) && end(input);
                let stays = numbers.iter().all(|number| {
                    let now = std::fs::metadata(format!("/proc/self/fd/{number}"));
                    now.is_ok_and(|now| now.rdev() == about.rdev())
                });
                // SAFETY: ends the child without running what belongs to the parent.
                unsafe { libc::_exit(i32::from(!ok || !stays)) };
            }
            let mut status = 0;
            // SAFETY: waits for our own child.
            assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
            assert_eq!(status, 0, "begun: {begun}, {how}");
        }
    }
}

#[test]
fn the_end_of_a_pipe_comes_once_parent_and_child_have_dropped_their_writers() {
    let test = "the_end_of_a_pipe_comes_once_parent_and_child_have_dropped_their_writers";
    if alone(test, "").is_none() {
        return;
    }
    for writes in [false, true] {
        let (mut input, output) = std::io::pipe().unwrap();
        let file = File::from(std::os::fd::OwnedFd::from(output));
        let mut out = OpenOptions::new().writer_from(file).unwrap();
        out.write_all(b"parent").unwrap();
        // SAFETY: the child only uses what the crate promises to work after a fork, and leaves.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            let ok = !writes || out.write_all(b"child").is_ok();
            drop(out);
            drop(input);
            if !ok {
                // SAFETY: ends the child without running what belongs to the parent.
                unsafe { libc::_exit(1) };
            }
            // Until it is killed.
            loop {
                std::thread::sleep(std::time::Duration::from_secs(1));
            }
        }
        out.finish().unwrap();
        let mut polled = libc::pollfd {
            fd: input.as_fd().as_raw_fd(),
            events: 0,
            revents: 0,
        };
        // SAFETY: one structure, valid for a write.
        let ended = unsafe { libc::poll(&mut polled, 1, 10_000) };
        let mut status = 0;
        // SAFETY: ends our own child and waits for it.
        unsafe {
            libc::kill(pid, libc::SIGKILL);
            assert_eq!(libc::waitpid(pid, &mut status, 0), pid);
        }
        assert_eq!(ended, 1, "no end while the child lives");
        let mut got = String::new();
        input.read_to_string(&mut got).unwrap();
        assert_eq!(got, ["parent", "parentchild"][usize::from(writes)]);
    }
}

#[test]
fn a_child_of_a_bare_clone_leaves_the_parents_data_alone() {
    let Some(path) = alone(
        "a_child_of_a_bare_clone_leaves_the_parents_data_alone",
        "clone",
    ) else {
        return;
    };
    let mut out = create().linger(None).open_writer(&path).unwrap();
    out.write_all(&[1; 3000]).unwrap();
    // SAFETY: as `fork`, without the handlers; the child only uses the stream, and leaves.
    let pid = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
    if pid == 0 {
        let ok = out.write_all(&[2; 1000]).is_ok() && out.flush().is_ok();
        drop(out);
        // SAFETY: ends the child without running what belongs to the parent.
        unsafe { libc::_exit(i32::from(!ok)) };
    }
    let mut status = 0;
    // SAFETY: waits for our own child.
    let waited = unsafe { libc::waitpid(pid as i32, &mut status, 0) };
    assert_eq!(i64::from(waited), pid);
    assert_eq!(status, 0);
    let mut want = vec![0; 3000];
    want.extend([2; 1000]);
    assert!(std::fs::read(&path).unwrap() == want);
    out.finish().unwrap();
    want[..3000].fill(1);
    assert!(std::fs::read(&path).unwrap() == want);
}

#[test]
fn a_fork_waits_for_no_stream_that_ends_while_another_is_filled() {
    let test = "a_fork_waits_for_no_stream_that_ends_while_another_is_filled";
    let Some(directory) = alone(test, "") else {
        return;
    };
    let open = |name| create().open_writer(directory.join(name)).unwrap();
    let (mut filled, ends) = (open("filled"), open("ends"));
    let (tell, told) = std::sync::mpsc::channel();
    let (done, wait) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let fill = |room: &mut [u8]| {
            tell.send(()).unwrap();
            // Until the other thread forks and waits for this stream.
            std::thread::sleep(std::time::Duration::from_millis(300));
            drop(ends);
            room[0] = 7;
            Ok(1)
        };
        filled.write_with(100, fill).unwrap();
        filled.finish().unwrap();
    });
    told.recv().unwrap();
    std::thread::spawn(move || {
        // SAFETY: the child leaves at once.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: ends the child without running what belongs to the parent.
            unsafe { libc::_exit(0) };
        }
        let mut status = 0;
        // SAFETY: waits for our own child.
        unsafe { libc::waitpid(pid, &mut status, 0) };
        let _ = done.send(status);
    });
    let ended = wait.recv_timeout(std::time::Duration::from_secs(60));
    if ended != Ok(0) {
        // Not by returning: what ends the process would wait for the threads' locks.
        eprintln!("{ended:?}");
        std::process::abort();
    }
}

#[test]
fn a_deleted_file_can_be_written_and_read() {
    let home = scratch();
    let path = home.path().join("deleted");
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(&path)
        .unwrap();
    std::fs::remove_file(&path).unwrap();
    let want = patterned(0, (3 << 20) + 5);
    let mut out = OpenOptions::new()
        .writer_from(file.try_clone().unwrap())
        .unwrap();
    out.write_all(&want).unwrap();
    out.finish().unwrap();
    let mut file = file;
    // The shared offset has followed.
    assert_eq!(file.stream_position().unwrap(), want.len() as u64);
    file.rewind().unwrap();
    let mut got = Vec::new();
    OpenOptions::new()
        .reader_from(file)
        .unwrap()
        .read_to_end(&mut got)
        .unwrap();
    assert!(got == want);
}

#[test]
fn what_cannot_work_is_refused_with_a_reason() {
    let home = scratch();
    let path = home.path().join("refused");
    std::fs::write(&path, b"x").unwrap();
    let read_only = OpenOptions::new()
        .writer_from(File::open(&path).unwrap())
        .unwrap_err();
    assert_eq!(read_only.kind(), ErrorKind::InvalidInput);
    assert!(read_only.to_string().contains("not open for writing"));
    let append = File::options().append(true).open(&path).unwrap();
    let append = OpenOptions::new().writer_from(append).unwrap_err();
    assert!(append.to_string().contains("O_APPEND"), "{append}");
    let write_only = File::options().write(true).open(&path).unwrap();
    assert_eq!(
        OpenOptions::new()
            .reader_from(write_only)
            .unwrap_err()
            .kind(),
        ErrorKind::InvalidInput
    );
    assert_eq!(
        OpenOptions::new()
            .open_reader(home.path())
            .unwrap_err()
            .kind(),
        ErrorKind::IsADirectory
    );
    assert_eq!(
        OpenOptions::new()
            .open_writer(home.path().join("none"))
            .unwrap_err()
            .kind(),
        ErrorKind::NotFound
    );
    // Neither with `O_DIRECT`: where a stream begins and ends is seldom aligned.
    let direct = || {
        let mut options = File::options();
        options.read(true).write(true);
        options.custom_flags(libc::O_DIRECT).open(&path).unwrap()
    };
    let refused = [
        OpenOptions::new().writer_from(direct()).unwrap_err(),
        OpenOptions::new().reader_from(direct()).unwrap_err(),
    ];
    for error in refused {
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains("O_DIRECT"), "{error}");
    }
    // Of a pipe it says something else.
    let mut ends = [0; 2];
    // SAFETY: the array takes two descriptors, which become ours.
    let (input, output) = unsafe {
        use std::os::fd::FromRawFd;
        let flags = libc::O_CLOEXEC | libc::O_DIRECT;
        assert_eq!(libc::pipe2(ends.as_mut_ptr(), flags), 0);
        (File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1]))
    };
    OpenOptions::new().writer_from(output).unwrap();
    OpenOptions::new().reader_from(input).unwrap();
}

#[test]
fn what_has_no_offset_is_written() {
    // It has one for `lseek`, but not for `pwrite`.
    let comm = "/proc/thread-self/comm";
    for name in ["one", "other"] {
        let mut out = OpenOptions::new().open_writer(comm).unwrap();
        out.write_all(name.as_bytes()).unwrap();
        out.finish().unwrap();
        assert_eq!(std::fs::read_to_string(comm).unwrap().trim(), name);
    }
    // A regular file with none at all.
    let home = scratch();
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tracefs", "tracefs"])
        .arg(home.path())
        .status();
    let marker = home.path().join("trace_marker");
    if !mounted.is_ok_and(|status| status.success()) || !marker.exists() {
        eprintln!("skipped: tracefs, which needs root and a kernel that has it");
        return;
    }
    let result = OpenOptions::new().open_writer(&marker).and_then(|mut out| {
        out.write_all(b"pdio's test")?;
        out.finish()
    });
    let unmounted = std::process::Command::new("umount")
        .arg("-l")
        .arg(home.path())
        .status();
    assert!(unmounted.unwrap().success());
    assert_eq!(result.unwrap().bytes, 11);
}

#[test]
fn pipes_are_passed_through() {
    let mut ends = [0; 2];
    // SAFETY: the array takes two descriptors, which become ours.
    let (input, output) = unsafe {
        use std::os::fd::FromRawFd;
        assert_eq!(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC), 0);
        (File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1]))
    };
    let mut out = OpenOptions::new().writer_from(output).unwrap();
    let mut reader = OpenOptions::new().reader_from(input).unwrap();
    out.write_all(b"through").unwrap();
    assert!(out.seek(SeekFrom::Start(0)).is_err());
    out.sync_data().unwrap();
    out.finish().unwrap();
    let mut got = Vec::new();
    reader.read_to_end(&mut got).unwrap();
    assert_eq!(got, b"through");
}

#[test]
fn skipped_ranges_stay_holes() {
    let home = scratch();
    let path = home.path().join("sparse");
    let mut out = create().open_writer(&path).unwrap();
    for i in 0..4u64 {
        out.seek(SeekFrom::Start(i * (16 << 20))).unwrap();
        out.write_all(&[1u8; 100_000]).unwrap();
    }
    out.sync_all().unwrap();
    out.finish().unwrap();
    let metadata = std::fs::metadata(&path).unwrap();
    assert_eq!(metadata.len(), 3 * (16 << 20) + 100_000);
    assert!(
        metadata.blocks() * 512 < 2 << 20,
        "{} blocks",
        metadata.blocks()
    );
    let mut input = Reader::open(&path).unwrap();
    let mut got = Vec::new();
    input.read_to_end(&mut got).unwrap();
    let ones = got.iter().filter(|&&b| b == 1).count();
    assert_eq!((got.len() as u64, ones), (metadata.len(), 400_000));
}

#[test]
fn a_file_that_is_shorter_than_its_size_says_has_an_end() {
    // A page, by its size.
    let path = Path::new("/sys/kernel/mm/transparent_hugepage/defrag");
    let Ok(_out) = OpenOptions::new().open_writer(path) else {
        eprintln!("skipped: {} cannot be written", path.display());
        return;
    };
    let want = std::fs::read_to_string(path).unwrap();
    let (done, wait) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut got = String::new();
        Reader::open(path)
            .unwrap()
            .read_to_string(&mut got)
            .unwrap();
        let lines = std::io::BufRead::lines(Reader::open(path).unwrap());
        let _ = done.send((got, lines.map(Result::unwrap).collect::<Vec<_>>()));
    });
    let got = wait.recv_timeout(std::time::Duration::from_secs(60));
    let (got, lines) = got.expect("no end");
    assert_eq!(got, want);
    assert!(want.lines().eq(lines));
}

#[test]
fn reserved_blocks_are_released_at_the_end() {
    let home = scratch();
    let path = home.path().join("reserved");
    let mut out = create()
        .preallocate(64 << 20)
        .strategy(Strategy::Direct)
        .open_writer(&path)
        .unwrap();
    out.write_all(&vec![1u8; 8 << 20]).unwrap();
    out.flush().unwrap();
    let during = std::fs::metadata(&path).unwrap();
    assert_eq!(during.len(), 8 << 20);
    out.finish().unwrap();
    let after = std::fs::metadata(&path).unwrap();
    assert_eq!(after.len(), 8 << 20);
    assert!(after.blocks() * 512 < 9 << 20, "{} blocks", after.blocks());
}

#[test]
fn reserved_blocks_are_released_also_after_an_extension() {
    let home = scratch();
    let path = home.path().join("extended");
    let mut out = create()
        .preallocate(64 << 20)
        .strategy(Strategy::Direct)
        .open_writer(&path)
        .unwrap();
    out.write_all(&vec![1u8; 8 << 20]).unwrap();
    out.set_len(9 << 20).unwrap();
    out.finish().unwrap();
    let after = std::fs::metadata(&path).unwrap();
    assert_eq!(after.len(), 9 << 20);
    assert!(after.blocks() * 512 < 10 << 20, "{} blocks", after.blocks());
}

#[test]
fn blocks_that_were_reserved_in_part_are_released_at_the_end() {
    let Some(disk) = image("ext4", 40, "mkfs.ext4", &["-q", "-m", "0"], "e2fsprogs") else {
        return;
    };
    let path = disk.directory.join("reserved");
    let mut out = create()
        // More than there is.
        .preallocate(1 << 30)
        .strategy(Strategy::Direct)
        .open_writer(&path)
        .unwrap();
    out.write_all(&vec![1u8; 1 << 20]).unwrap();
    out.finish().unwrap();
    let after = std::fs::metadata(&path).unwrap();
    assert_eq!(after.len(), 1 << 20);
    assert!(after.blocks() * 512 < 2 << 20, "{} blocks", after.blocks());
}

/// In a process of its own: they take all the memory that the streams of one may have.
#[test]
fn many_streams_stay_within_the_bound() {
    let Some(home) = alone("many_streams_stay_within_the_bound", "") else {
        return;
    };
    let mut all: Vec<Writer> = (0..24)
        .map(|i| create().open_writer(home.join(i.to_string())).unwrap())
        .collect();
    for round in 0..40u8 {
        for out in &mut all {
            out.write_all(&[round; 30_000]).unwrap();
        }
    }
    let memory: Vec<u64> = all.iter().map(|out| out.stats().memory).collect();
    assert!(memory.iter().all(|&m| m <= 8 << 20), "{memory:?}");
    assert!(memory.iter().sum::<u64>() <= 64 << 20, "{memory:?}");
    for (i, out) in all.into_iter().enumerate() {
        out.finish().unwrap();
        let got = std::fs::read(home.join(i.to_string())).unwrap();
        assert!(got
            .chunks(30_000)
            .zip(0..40u8)
            .all(|(part, round)| part.iter().all(|&b| b == round)));
        assert_eq!(got.len(), 40 * 30_000);
    }
}

#[test]
fn memory_of_any_size_serves_a_stream_that_begins_anywhere() {
    let home = scratch();
    let want = Fill::new(8).next(4 << 20).repeat(2);
    for limit in [1_000_000, 3 << 20, usize::MAX] {
        for at in [0, 4096, 800_000, 5 << 20] {
            let path = home.path().join(format!("{limit}-{at}"));
            let (done, wait) = std::sync::mpsc::channel();
            let data = want.clone();
            let file = File::create(&path).unwrap();
            std::thread::spawn(move || {
                (&file).seek(SeekFrom::Start(at)).unwrap();
                let mut out = OpenOptions::new()
                    .strategy(Strategy::Direct)
                    .memory_limit(limit)
                    .block_size(limit)
                    .writer_from(file)
                    .unwrap();
                for part in data.chunks(5000) {
                    out.write_all(part).unwrap();
                }
                let _ = done.send(out.finish().unwrap());
            });
            let stats = wait.recv_timeout(std::time::Duration::from_secs(120));
            let stats = stats.unwrap_or_else(|_| panic!("{limit} bytes, from {at}"));
            if pdio::explain(&path).unwrap().alignment.is_some() {
                assert!(stats.direct_bytes > 7 << 20, "{limit}, {at}: {stats:?}");
            }
            assert!(std::fs::read(&path).unwrap()[at as usize..] == want);
        }
    }
}

#[test]
fn idle_data_reaches_other_programs_without_a_flush() {
    let home = scratch();
    let path = home.path().join("idle");
    let mut out = create().open_writer(&path).unwrap();
    for want in [b"first".as_slice(), b"firstsecond"] {
        out.write_all(if want.len() == 5 { b"first" } else { b"second" })
            .unwrap();
        while std::fs::read(&path).unwrap() != want {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
}

#[test]
fn neighbours_bytes_in_the_same_block_are_never_rewritten() {
    let home = scratch();
    let path = home.path().join("neighbours");
    std::fs::write(&path, vec![9u8; 3 << 20]).unwrap();
    let other = File::options().write(true).open(&path).unwrap();
    let mut out = OpenOptions::new()
        .strategy(Strategy::Direct)
        .open_writer(&path)
        .unwrap();
    out.write_all(&vec![1u8; (1 << 20) + 100]).unwrap();
    out.flush().unwrap();
    // Another program writes the rest of that block before the stream goes on elsewhere.
    other.write_all_at(&[5u8; 50], (1 << 20) + 100).unwrap();
    other.write_all_at(&[5u8; 50], (2 << 20) - 50).unwrap();
    out.seek(SeekFrom::Start(2 << 20)).unwrap();
    out.write_all(&vec![2u8; 70_000]).unwrap();
    out.finish().unwrap();
    let got = std::fs::read(&path).unwrap();
    let mut want = vec![9u8; 3 << 20];
    want[..(1 << 20) + 100].fill(1);
    want[(1 << 20) + 100..(1 << 20) + 150].fill(5);
    want[(2 << 20) - 50..2 << 20].fill(5);
    want[2 << 20..(2 << 20) + 70_000].fill(2);
    assert!(got == want);
}

#[test]
fn a_descriptor_opened_for_synchronous_writes_stays_so() {
    let home = scratch();
    let path = home.path().join("dsync");
    let file = File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .custom_flags(libc::O_DSYNC)
        .open(&path)
        .unwrap();
    let mut out = OpenOptions::new()
        .durability(Durability::Process)
        .writer_from(file)
        .unwrap();
    out.write_all(b"at once").unwrap();
    // Nothing deferred: there without a flush.
    assert_eq!(std::fs::read(&path).unwrap(), b"at once");
}

#[test]
fn a_file_that_may_only_be_written_is_written() {
    let home = scratch();
    let path: &Path = &home.path().join("write-only");
    let file = File::options()
        .write(true)
        .create_new(true)
        .mode(0o200)
        .open(path)
        .unwrap();
    let mut out = OpenOptions::new().writer_from(file).unwrap();
    out.write_all(&vec![1u8; 5 << 20]).unwrap();
    assert!(out.as_fd().try_clone_to_owned().is_ok());
    assert_eq!(out.finish().unwrap().bytes, 5 << 20);
}

#[test]
fn explain_says_what_was_found() {
    let home = scratch();
    let path = home.path().join("explained");
    std::fs::write(&path, vec![1u8; 1 << 20]).unwrap();
    let found = pdio::explain(&path).unwrap();
    let text = found.to_string();
    assert!(
        text.contains(&found.filesystem) && text.contains("granule"),
        "{text}"
    );
    if let Some(alignment) = found.alignment {
        assert!(
            alignment.offset.is_power_of_two()
                && found.granule.is_multiple_of(u64::from(alignment.offset))
        );
    }
    // So is what it holds, on kernels that say so.
    if found.resident.is_some_and(|bytes| bytes >= 1 << 19) {
        assert_eq!(found.read.0, pdio::Strategy::Buffered, "{text}");
        assert!(text.contains("the page cache holds most of"), "{text}");
    }
    // What is small is read through the page cache, whatever is written.
    std::fs::write(&path, [1u8; 4096]).unwrap();
    let small = pdio::explain(&path).unwrap();
    assert_eq!(small.read.0, pdio::Strategy::Buffered);
    assert_eq!(small.write.0, found.write.0);
    let pipe = pdio::explain("/dev/null").unwrap();
    assert_eq!((pipe.filesystem.as_str(), pipe.alignment), ("stream", None));
}

/// FUSE and FAT have no files without a name.
#[test]
fn a_directory_is_explained_on_every_filesystem_and_nothing_left_in_it() {
    for filesystem in filesystems() {
        let entries = || std::fs::read_dir(&filesystem.directory).unwrap().count();
        let before = entries();
        let found = pdio::explain(&filesystem.directory);
        assert!(found.is_ok(), "{}: {found:?}", filesystem.name);
        assert_eq!(entries(), before, "{}", filesystem.name);
    }
}

#[test]
fn what_btrfs_compresses_is_not_written_past_that() {
    let Some(btrfs) = image("btrfs", 256, "mkfs.btrfs", &["-q"], "btrfs-progs") else {
        return;
    };
    let path = |name: &str| btrfs.directory.join(name);
    let direct_bytes = |name: &str| {
        let mut options = create();
        options.strategy(Strategy::Direct);
        let mut out = options.open_writer(path(name)).unwrap();
        for _ in 0..1024 {
            out.write_all(&[7; 4096]).unwrap();
        }
        out.finish().unwrap().direct_bytes
    };
    if direct_bytes("plain") == 0 {
        return eprintln!("skipped: no direct I/O on btrfs");
    }
    File::create(path("marked")).unwrap();
    run("chattr", &["+c", path("marked").to_str().unwrap()]).unwrap();
    assert_eq!(direct_bytes("marked"), 0);
    let mount = btrfs.directory.to_str().unwrap();
    run("mount", &["-o", "remount,compress=zstd", mount]).unwrap();
    assert_eq!(direct_bytes("mounted"), 0);
    let found = pdio::explain(path("plain")).unwrap();
    assert_ne!(found.write.0, Strategy::Direct);
    assert!(found.write.1.contains("compressed"), "{found}");
}

/// A block device of a file's bytes.
struct Loop(String);

impl Loop {
    fn on(image: &Path) -> Option<Loop> {
        let attached = std::process::Command::new("losetup")
            .args(["--find", "--show"])
            .arg(image)
            .output();
        match attached {
            Ok(output) if output.status.success() => {
                let device = String::from_utf8(output.stdout).unwrap();
                Some(Loop(device.trim().to_string()))
            }
            _ => {
                eprintln!("skipped: losetup needs root and loop devices");
                None
            }
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = std::process::Command::new("losetup")
            .args(["-d", &self.0])
            .status();
    }
}

#[test]
fn what_can_be_read_comes_before_the_error() {
    // A disk whose end cannot be read: its file is shorter, by whole folios of the page cache.
    const GOOD: usize = 5 << 20;
    let home = scratch();
    let image = home.path().join("disk");
    let want = patterned(0, GOOD);
    std::fs::write(&image, &want).unwrap();
    let file = File::options().write(true).open(&image).unwrap();
    file.set_len(8 << 20).unwrap();
    let Some(device) = Loop::on(&image) else {
        return;
    };
    file.set_len(GOOD as u64).unwrap();
    for strategy in [Strategy::Auto, Strategy::Direct, Strategy::Buffered] {
        for len in [5000, 100_000, 3 << 20, 7 << 20] {
            let mut input = OpenOptions::new()
                .strategy(strategy)
                .open_reader(&device.0)
                .unwrap();
            let case = format!("{strategy:?}, {len} B at a time");
            let mut buffer = vec![0; len];
            let mut at = 0;
            let error = loop {
                match input.read(&mut buffer) {
                    Ok(n) => {
                        assert!(n > 0, "{case}: the end");
                        assert!(buffer[..n] == want[at..at + n], "{case}: at {at}");
                        at += n;
                    }
                    Err(error) => break error,
                }
            };
            assert_eq!(
                (at, error.raw_os_error()),
                (GOOD, Some(libc::EIO)),
                "{case}"
            );
            // For as long as it is there.
            assert!(input.read(&mut buffer).is_err(), "{case}");
            assert_eq!(input.position(), GOOD as u64);
            // A caller that leaves out what cannot be read goes on.
            assert_eq!(input.read_at(&mut buffer[..1000], 77).unwrap(), 1000);
            assert!(buffer[..1000] == want[77..1077], "{case}");
        }
    }
}

#[test]
fn a_block_device_is_written_and_read() {
    let home = scratch();
    let image = home.path().join("disk");
    File::create(&image).unwrap().set_len(16 << 20).unwrap();
    let Some(device) = Loop::on(&image) else {
        return;
    };
    let device = &device.0;
    let want = Fill::new(6).next(4 << 20).repeat(3);
    let written = (|| {
        let mut out = OpenOptions::new().open_writer(device)?;
        out.seek(SeekFrom::Start(777))?;
        for part in want.chunks(12_345) {
            out.write_all(part)?;
        }
        let size = out.seek(SeekFrom::End(0))?;
        out.sync_data()?;
        let direct = out.finish()?.direct_bytes;
        let mut input = Reader::open(device)?;
        let mut got = vec![0; want.len()];
        input.seek(SeekFrom::Start(777))?;
        input.read_exact(&mut got)?;
        std::io::Result::Ok((size, direct, got == want))
    })();
    let (size, direct, same) = written.unwrap();
    assert_eq!(size, 16 << 20);
    assert!(same && direct > 10 << 20, "{direct} B direct");
}

#[test]
fn a_block_device_is_one_file_by_whichever_name_it_is_opened() {
    let home = scratch();
    let image = home.path().join("disk");
    File::create(&image).unwrap().set_len(1 << 20).unwrap();
    let Some(device) = Loop::on(&image) else {
        return;
    };
    let first = Path::new(&device.0);
    let second = home.path().join("node");
    let name = std::ffi::CString::new(second.to_str().unwrap()).unwrap();
    let number = std::fs::metadata(first).unwrap().rdev();
    // SAFETY: a terminated string.
    let made = unsafe { libc::mknod(name.as_ptr(), libc::S_IFBLK | 0o600, number) };
    let (0, Ok(mut input)) = (made, Reader::open(&second)) else {
        eprintln!(
            "skipped: no device can be made in {}",
            home.path().display()
        );
        return;
    };
    let mut options = OpenOptions::new();
    let mut out = options.linger(None).open_writer(first).unwrap();
    out.write_all(&[7; 5000]).unwrap();
    let mut got = [0; 5000];
    input.read_exact(&mut got).unwrap();
    assert_eq!(got, [7; 5000]);
}
