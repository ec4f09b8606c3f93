// SPDX-License-Identifier: MIT OR Apache-2.0
//! What concerns a whole process: forks, signals, threads that end, limits. Each
//! test runs in a process of its own, which is this program again.
// In one build with brug-preload the crate stands behind a `malloc` that a test does not have, and leaves
// its objects to the C library.
#![cfg(not(feature = "preload"))]

use std::alloc::{alloc_zeroed, dealloc, GlobalAlloc, Layout};
use std::cell::RefCell;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use brug::{raw, Brug};

#[global_allocator]
static ALLOCATOR: Brug = Brug::new();

const CHILD: &str = "BRUG_TEST_ISOLATED";

/// Runs `body` in a process that runs nothing else, with these variables set.
fn isolated(name: &str, variables: &[(&str, &str)], body: impl FnOnce()) -> Option<String> {
    if std::env::var(CHILD).is_ok_and(|v| v == name) {
        body();
        return None;
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(CHILD, name)
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{text}", output.status);
    // A name that is no test's would succeed as well.
    assert!(text.contains("1 passed"), "{text}");
    // The harness writes the test's name before it, on the same line.
    for (_, reason) in text.lines().filter_map(|line| line.split_once("skipped: ")) {
        println!("skipped: {reason}");
    }
    Some(text)
}

fn status(field: &str) -> usize {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn rss_mib() -> usize {
    status("VmRSS:") >> 10
}

fn grow(to: usize) -> Vec<u8> {
    let mut v = Vec::with_capacity(1000);
    while v.len() < to {
        let n = v.len();
        v.resize((n * 2).clamp(1000, to), n as u8);
    }
    v
}

fn checksum(v: &[u8]) -> u64 {
    v.iter().map(|&b| u64::from(b)).sum()
}

/// Waits for something that takes its time, but not for ever.
fn eventually(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(300);
    while !condition() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_child_of_a_busy_process_can_use_everything() {
    isolated(
        "a_child_of_a_busy_process_can_use_everything",
        &[("BRUG_PURGE_DELAY", "4ms")],
        || {
            let stop = AtomicBool::new(false);
            std::thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| {
                        while !stop.load(SeqCst) {
                            drop(grow(9 << 20));
                        }
                    });
                }
                for round in 0..30 {
                    let before = grow(3 << 20);
                    let sum = checksum(&before);
                    // SAFETY: the child uses what must work in it, and leaves by _exit.
                    unsafe {
                        let child = libc::fork();
                        if child == 0 {
                            libc::alarm(60);
                            assert_eq!(checksum(&before), sum);
                            drop(before);
                            for _ in 0..3 {
                                drop(grow(12 << 20));
                            }
                            raw::trim();
                            libc::_exit(0);
                        }
                        let mut status = 0;
                        assert_eq!(libc::waitpid(child, &mut status, 0), child);
                        assert_eq!(status, 0, "round {round}");
                    }
                }
                stop.store(true, SeqCst);
            });
        },
    );
}

/// The C library gives the end of its heap back sooner as long as it has seen no large object freed, and the compiler
/// leaves out what is allocated only to be freed.
#[test]
fn a_heap_of_small_objects_that_swings_stays_after_a_large_one_was_freed() {
    const OBJECTS: usize = 1000;
    const SIZE: usize = 1000;
    let faults = || {
        // SAFETY: zeros are a valid value, and `usage` is valid for writing.
        unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::getrusage(libc::RUSAGE_SELF, &mut usage);
            usage.ru_minflt
        }
    };
    isolated(
        "a_heap_of_small_objects_that_swings_stays_after_a_large_one_was_freed",
        &[("BRUG_BASE", "glibc")],
        || {
            drop(std::hint::black_box(vec![1u8; 5 << 20]));
            let before = faults();
            for _ in 0..100 {
                let all: Vec<Vec<u8>> = (0..OBJECTS).map(|_| vec![1; SIZE]).collect();
                std::hint::black_box(&all);
            }
            // Each page once, and what the allocator itself has.
            let limit = 2 * OBJECTS * SIZE / 4096;
            assert!(faults() - before < limit as i64, "{}", faults() - before);
        },
    );
}

/// Its locks may be held by threads that a child does not have.
#[cfg(feature = "mimalloc")]
#[test]
fn mimalloc_is_not_entered_in_the_child_of_a_process_with_threads() {
    /// Forks; the status that `run` ends with in the child.
    fn in_child(run: impl FnOnce() -> bool) -> i32 {
        // SAFETY: the child uses what must work in it, and leaves by _exit.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::alarm(60);
                libc::_exit(if run() { 0 } else { 1 });
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(child, &mut status, 0), child);
            status
        }
    }
    /// Whose an object is, its usable size tells: 112 bytes is a class of mimalloc's, and the
    /// C library has none but 104 and 120.
    fn of_mimalloc(p: *mut u8) -> bool {
        // SAFETY: alive.
        unsafe { raw::usable_size(p) == 112 }
    }
    fn new() -> *mut u8 {
        // SAFETY: no preconditions here.
        unsafe { raw::malloc(100) }
    }
    isolated(
        "mimalloc_is_not_entered_in_the_child_of_a_process_with_threads",
        &[("BRUG_BASE", "glibc"), ("BRUG_PURGE_DELAY", "60s")],
        || {
            // This process has threads, but has not used mimalloc yet.
            let status = in_child(|| {
                Brug::set_mode(brug::Mode::Mimalloc).is_ok()
                    && of_mimalloc(new())
                    // The child has no other thread, so its own children keep mimalloc.
                    && in_child(|| of_mimalloc(new())) == 0
                    // Nor is the purge thread counted.
                    && {
                        Brug::set_mode(brug::Mode::Mmap).unwrap();
                        drop(grow(64 << 20));
                        Brug::set_mode(brug::Mode::Mimalloc).unwrap();
                        eventually("it is counted", || {
                            status("Threads:") == 2 && in_child(|| of_mimalloc(new())) == 0
                        });
                        true
                    }
            });
            assert_eq!(status, 0);
            Brug::set_mode(brug::Mode::Mimalloc).expect("this build has it");
            let objects: Vec<_> = (0..1000).map(|_| new()).collect();
            let status = in_child(|| {
                objects.iter().enumerate().all(|(i, &p)| {
                    // SAFETY: alive, and freed once.
                    unsafe {
                        p.write_bytes(i as u8, 100);
                        let q = raw::realloc(p, if i % 2 == 0 { 100 } else { 3000 });
                        let new = new();
                        let same = core::slice::from_raw_parts(q, 100);
                        let good = of_mimalloc(p)
                            && same.iter().all(|&byte| byte == i as u8)
                            && (p == q) == (i % 2 == 0)
                            && !of_mimalloc(new);
                        raw::free(q);
                        raw::free(new);
                        good
                    }
                })
            });
            assert_eq!(status, 0);
            assert!(of_mimalloc(new()));
        },
    );
}

#[test]
fn an_idle_process_gives_its_memory_back_and_loses_the_thread() {
    isolated(
        "an_idle_process_gives_its_memory_back_and_loses_the_thread",
        &[],
        || {
            let (memory, threads) = (rss_mib(), status("Threads:"));
            drop(grow(600 << 20));
            eventually("memory is still there", || rss_mib() <= memory + 16);
            eventually("the thread is still there", || {
                status("Threads:") == threads
            });
            // And again.
            drop(grow(600 << 20));
            eventually("memory is still there", || rss_mib() <= memory + 16);
        },
    );
}

#[test]
fn what_a_live_object_has_shrunk_by_is_given_back() {
    isolated(
        "what_a_live_object_has_shrunk_by_is_given_back",
        &[],
        || {
            let memory = rss_mib();
            let mut v = grow(400 << 20);
            v.truncate(10 << 20);
            let sum = checksum(&v);
            v.shrink_to_fit();
            eventually("memory is still there", || rss_mib() <= memory + 27);
            assert_eq!(checksum(&v), sum);
            v.resize(300 << 20, 7);
            assert_eq!(checksum(&v[..10 << 20]), sum);
            assert!(v[10 << 20..].iter().all(|&b| b == 7));
        },
    );
}

#[test]
fn a_program_that_frees_little_has_no_thread() {
    isolated("a_program_that_frees_little_has_no_thread", &[], || {
        let threads = status("Threads:");
        for _ in 0..100 {
            drop(grow(2 << 20));
        }
        assert_eq!(status("Threads:"), threads);
    });
}

/// A sandbox that lets no thread be made.
fn forbid_threads() {
    let rule = |code: u32, jt, jf, k: i64| libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k: k as u32,
    };
    let errno = i64::from(libc::SECCOMP_RET_ERRNO) | i64::from(libc::EPERM);
    let (load, equal, answer) = (
        libc::BPF_LD | libc::BPF_W | libc::BPF_ABS,
        libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
        libc::BPF_RET | libc::BPF_K,
    );
    let mut rules = [
        // The first word of what the kernel shows is the number of the system call.
        rule(load, 0, 0, 0),
        rule(equal, 2, 0, libc::SYS_clone),
        rule(equal, 1, 0, libc::SYS_clone3),
        rule(answer, 0, 0, i64::from(libc::SECCOMP_RET_ALLOW)),
        rule(answer, 0, 0, errno),
    ];
    let program = libc::sock_fprog {
        len: rules.len() as u16,
        filter: rules.as_mut_ptr(),
    };
    // SAFETY: the program is valid for reading.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_MODE_FILTER;
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, mode, &program), 0);
    }
}

#[test]
fn without_a_thread_memory_goes_back_at_once() {
    isolated("without_a_thread_memory_goes_back_at_once", &[], || {
        let (memory, threads) = (rss_mib(), status("Threads:"));
        forbid_threads();
        for _ in 0..3 {
            drop(grow(200 << 20));
            assert_eq!(status("Threads:"), threads);
            assert!(brug::stats().bytes_retained <= 8 << 20, "{}", brug::stats());
        }
        assert!(rss_mib() <= memory + 16, "{} MiB", rss_mib());
        assert_eq!(grow(20 << 20).len(), 20 << 20);
    });
}

/// The thread's stack has no room for once; later there is room, here and in the children.
#[test]
fn a_thread_that_was_not_to_be_had_is_tried_again() {
    fn limit_address_space(bytes: libc::rlim_t) {
        let limit = libc::rlimit {
            rlim_cur: bytes,
            rlim_max: libc::RLIM_INFINITY,
        };
        // SAFETY: the limit is valid for reading.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
    }
    let name = "a_thread_that_was_not_to_be_had_is_tried_again";
    isolated(name, &[("BRUG_PURGE_DELAY", "60s")], || {
        let threads = status("Threads:");
        drop(grow(1 << 20));
        limit_address_space(1 << 20);
        drop(grow(20 << 20));
        assert_eq!(status("Threads:"), threads, "a thread without a stack");
        assert!(brug::stats().bytes_retained <= 8 << 20, "{}", brug::stats());
        limit_address_space(libc::RLIM_INFINITY);
        let comes = || {
            eventually("no thread is tried again", || {
                drop(grow(20 << 20));
                status("Threads:") == threads + 1
            });
        };
        // SAFETY: the child uses what must work in it, and leaves by _exit.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::alarm(60);
                // Without a wait: what was refused to the parent may be had here.
                drop(grow(20 << 20));
                libc::_exit(i32::from(status("Threads:") == 1));
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(child, &mut status, 0), child);
            assert_eq!(status, 0, "no thread in the child");
        }
        comes();
    });
}

#[test]
fn no_retention_means_none() {
    isolated(
        "no_retention_means_none",
        &[("BRUG_PURGE_DELAY", "0")],
        || {
            let memory = rss_mib();
            drop(grow(100 << 20));
            assert!(rss_mib() <= memory + 2);
            assert_eq!(brug::stats().bytes_retained, 0);
        },
    );
}

#[test]
fn no_more_is_retained_than_the_configuration_says() {
    isolated(
        "no_more_is_retained_than_the_configuration_says",
        &[("BRUG_RETAIN", "3M"), ("BRUG_PURGE_DELAY", "1h")],
        || {
            let threads = status("Threads:");
            let objects: Vec<_> = (0..3).map(|_| vec![1u8; 2 << 20]).collect();
            drop(objects);
            let retained = brug::stats().bytes_retained;
            assert!((1..=3 << 20).contains(&retained), "{retained}");
            assert_eq!(status("Threads:"), threads);
        },
    );
}

/// An object that outgrows its slot takes its pages along.
#[test]
fn a_slot_that_an_object_has_left_retains_nothing() {
    isolated(
        "a_slot_that_an_object_has_left_retains_nothing",
        &[("BRUG_RESERVE", "64G")],
        || {
            // Takes the one large slot that is given away freely.
            let first = grow(1 << 20);
            let mut moved = grow(60 << 20);
            raw::trim();
            moved.resize(70 << 20, 1);
            assert_eq!(brug::stats().page_moves, 1);
            assert_eq!(brug::stats().bytes_retained, 0);
            drop((first, moved));
        },
    );
}

#[test]
fn an_object_that_shrinks_keeps_no_more_than_a_freed_one_and_starts_no_thread_either() {
    for setting in [("BRUG_PURGE_DELAY", "0"), ("BRUG_RETAIN", "8M")] {
        isolated(
            "an_object_that_shrinks_keeps_no_more_than_a_freed_one_and_starts_no_thread_either",
            &[setting],
            || {
                let (memory, threads) = (rss_mib(), status("Threads:"));
                let mut v = grow(100 << 20);
                v.truncate(1 << 20);
                let sum = checksum(&v);
                v.shrink_to_fit();
                assert_eq!(status("Threads:"), threads);
                assert!(rss_mib() <= memory + 3, "{} MiB", rss_mib());
                v.resize(90 << 20, 7);
                assert_eq!(checksum(&v[..1 << 20]), sum);
                assert!(v[1 << 20..].iter().all(|&b| b == 7));
            },
        );
    }
}

/// However many there are, of which each leaves less than a mebibyte.
#[test]
fn what_larger_objects_leave_to_smaller_ones_is_given_back() {
    isolated(
        "what_larger_objects_leave_to_smaller_ones_is_given_back",
        &[("BRUG_PURGE_DELAY", "300ms")],
        || {
            const LARGE: usize = 1000 << 10;
            let memory = rss_mib();
            let fits = |objects: usize, size: usize| {
                let most = memory + (objects * size).div_ceil(1 << 20) + 10;
                eventually("it stays", || rss_mib() <= most);
            };
            let mut objects: Vec<_> = (0..200).map(|_| vec![1u8; LARGE]).collect();
            for v in &mut objects {
                v.truncate(8 << 10);
                v.shrink_to_fit();
            }
            fits(200, 8 << 10);
            // Nor does it stay because an object grows by a little afterwards.
            for v in &mut objects {
                v.resize(LARGE, 1);
                v.truncate(8 << 10);
                v.shrink_to_fit();
                v.reserve_exact(1);
            }
            fits(200, 8 << 10);
            drop(objects);
            drop((0..50).map(|_| vec![1u8; LARGE]).collect::<Vec<_>>());
            let objects: Vec<_> = (0..50).map(|_| vec![1u8; LARGE / 5]).collect();
            fits(50, LARGE / 5);
            drop(objects);
            // Nor if objects grow into what others have left, and then no more.
            drop((0..50).map(|_| vec![1u8; LARGE]).collect::<Vec<_>>());
            let grown = || {
                let mut v = vec![1u8; 4096];
                (1..40).for_each(|pages| {
                    v.reserve_exact(4096);
                    v.resize(4096 * (pages + 1), 1);
                });
                v
            };
            let mut objects: Vec<_> = (0..50).map(|_| grown()).collect();
            fits(50, 40 << 12);
            for v in &mut objects {
                assert!(v.iter().all(|&byte| byte == 1));
                v.resize(LARGE, 1);
            }
        },
    );
}

#[test]
fn the_thread_of_a_real_time_program_is_an_ordinary_one() {
    isolated(
        "the_thread_of_a_real_time_program_is_an_ordinary_one",
        &[],
        || {
            let highest = libc::sched_param { sched_priority: 1 };
            // SAFETY: the parameter is valid for reading.
            if unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &highest) } != 0 {
                println!("skipped: this process may not become a real-time one");
                return;
            }
            drop(grow(100 << 20));
            eventually("no thread", || {
                let tasks = std::fs::read_dir("/proc/self/task").unwrap();
                tasks.flatten().any(|task| {
                    let text =
                        std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
                    let Some((name, rest)) = text.rsplit_once(") ") else {
                        return false;
                    };
                    // Field 41 of all, and the third is the first of the rest: proc(5).
                    name.ends_with("(brug-purge") && rest.split(' ').nth(38) == Some("0")
                })
            });
        },
    );
}

/// What an idle child has inherited of freed memory, nobody would give back.
#[test]
fn a_child_does_not_keep_what_its_parent_has_freed() {
    isolated(
        "a_child_does_not_keep_what_its_parent_has_freed",
        &[("BRUG_PURGE_DELAY", "1h")],
        || {
            let memory = rss_mib();
            let v = grow(200 << 20);
            let threads = status("Threads:");
            drop(v);
            assert!(brug::stats().bytes_retained > 100 << 20 && threads >= 1);
            // SAFETY: the child only looks and leaves.
            unsafe {
                let child = libc::fork();
                if child == 0 {
                    libc::_exit(i32::from(rss_mib() > memory + 16));
                }
                let mut status = -1;
                assert_eq!(libc::waitpid(child, &mut status, 0), child);
                assert_eq!(status, 0, "the child has it still");
            }
        },
    );
}

/// As `malloc_trim` does.
#[test]
fn who_gives_back_what_is_not_needed_is_told_if_there_was_any() {
    let name = "who_gives_back_what_is_not_needed_is_told_if_there_was_any";
    isolated(name, &[("BRUG_PURGE_DELAY", "1h")], || {
        raw::trim();
        // SAFETY: an object is used as it was allocated.
        unsafe {
            let p = raw::malloc(1 << 20);
            assert!(raw::owns(p));
            p.write_bytes(1, 1 << 20);
            raw::free(p);
        }
        assert!(raw::trim());
        assert!(!raw::trim());
    });
}

const PAGE: usize = 4096;

/// Those that lie in an object.
fn whole_pages(p: *mut u8, size: usize) -> (*mut u8, usize) {
    let before = p.align_offset(PAGE);
    (p.wrapping_add(before), (size - before) / PAGE * PAGE)
}

/// What a program asks the system for of the pages of a large object ends with the object, as
/// with the C library.
#[test]
fn a_large_object_does_not_inherit_what_was_asked_for_of_the_pages_of_the_last() {
    fn ask(p: *mut u8, size: usize, what: usize) -> i32 {
        let (p, size) = whole_pages(p, size);
        let (p, half) = (p.cast(), size / 2 / PAGE * PAGE);
        // SAFETY: whole pages of an object of the caller.
        unsafe {
            match what {
                0 => libc::mprotect(p, size, libc::PROT_READ),
                1 => libc::madvise(p, size, libc::MADV_DONTFORK),
                2 => libc::madvise(p, size, libc::MADV_WIPEONFORK),
                3 => libc::mlock(p, 1 << 19),
                4 => libc::munmap(p.wrapping_byte_add(half), size - half),
                5 => libc::mlock(p.wrapping_byte_add(half), 1 << 19),
                // MADV_GUARD_INSTALL, of Linux 6.13.
                6 => libc::madvise(p.wrapping_byte_add(half), 1 << 16, 102),
                _ => {
                    let file = libc::memfd_create(c"file".as_ptr(), 0);
                    assert_eq!(libc::ftruncate(file, size as libc::off_t), 0);
                    let (both, flags) = (
                        libc::PROT_READ | libc::PROT_WRITE,
                        libc::MAP_SHARED | libc::MAP_FIXED,
                    );
                    i32::from(libc::mmap(p, size, both, flags, file, 0) == libc::MAP_FAILED)
                }
            }
        }
    }
    isolated(
        "a_large_object_does_not_inherit_what_was_asked_for_of_the_pages_of_the_last",
        &[("BRUG_PURGE_DELAY", "1h")],
        || {
            // Each the largest so far (the harness has used less than 10 MiB); then several that were so when
            // they were born; and those that always have a mapping of their own.
            let sizes = |least: usize| (0..8).map(move |what| (what, (what + least) << 20));
            let first = sizes(10).map(|(what, size)| (what, size, 1));
            let several = sizes(18).map(|(what, size)| (what, size, 3));
            let large = (0..8).map(|what| (what, 64 << 20, 1));
            for (what, size, count) in first.chain(several).chain(large) {
                // SAFETY: objects are used as they were allocated; the child only looks.
                unsafe {
                    let made = |byte| -> Vec<*mut u8> {
                        let object = |_| {
                            let p = raw::malloc(size);
                            assert!(raw::owns(p));
                            p.write_bytes(byte, size);
                            p
                        };
                        (0..count).map(object).collect()
                    };
                    let free = |objects: &[*mut u8]| objects.iter().for_each(|&p| raw::free(p));
                    let objects = made(1);
                    let refused = objects.iter().any(|&p| ask(p, size, what) != 0);
                    free(&objects);
                    if refused {
                        println!("skipped: asking for {what} is refused");
                        continue;
                    }
                    assert_eq!(status("VmLck:"), 0, "{what}");
                    let objects = made(7);
                    let child = libc::fork();
                    if child == 0 {
                        let wrong = |&p: &*mut u8| (0..size).any(|at| p.add(at).read() != 7);
                        libc::_exit(i32::from(objects.iter().any(wrong)));
                    }
                    let mut ended = -1;
                    assert_eq!(libc::waitpid(child, &mut ended, 0), child);
                    assert_eq!(ended, 0, "{what} {size} {count}");
                    free(&objects);
                }
            }
        },
    );
}

/// What is only reserved is in no dump, and what a program has is.
#[test]
fn a_dump_has_objects_and_no_reserve() {
    isolated("a_dump_has_objects_and_no_reserve", &[], || {
        // SAFETY: any size is allowed.
        let p = unsafe { raw::malloc(1 << 20) };
        assert!(raw::owns(p));
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let (mut shown, mut found, mut range) = (0, false, 0..0);
        for line in maps.lines() {
            let ends = line.split(' ').next().and_then(|ends| ends.split_once('-'));
            let number = |word| usize::from_str_radix(word, 16).ok();
            if let Some((from, to)) = ends.and_then(|(a, b)| Some((number(a)?, number(b)?))) {
                range = from..to;
            }
            if line.starts_with("VmFlags:") && !line.contains(" dd") {
                shown += range.len();
                found |= range.contains(&(p as usize));
            }
        }
        assert!(found, "the object is in no dump");
        assert!(shown < 4 << 30, "a dump has {} MiB", shown >> 20);
        // SAFETY: allocated above.
        unsafe { raw::free(p) };
    });
}

/// What the kernel says of the mapping of an address.
fn flags_of(p: *mut u8) -> String {
    let text = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let in_it = |line: &&str| {
        let ends = line.split(' ').next().unwrap().split_once('-');
        let ends = ends.and_then(|(from, to)| {
            let number = |word| usize::from_str_radix(word, 16).ok();
            Some(number(from)?..number(to)?)
        });
        ends.is_some_and(|ends| ends.contains(&(p as usize)))
    };
    let mut lines = text.lines().skip_while(|line| !in_it(line));
    let flags = lines.find(|line| line.starts_with("VmFlags:"));
    flags.unwrap_or_default().to_owned()
}

/// The same of what shows in no child.
#[test]
fn a_large_object_does_not_inherit_advice_that_was_given_on_the_last() {
    isolated(
        "a_large_object_does_not_inherit_advice_that_was_given_on_the_last",
        &[("BRUG_PURGE_DELAY", "1h")],
        || {
            const SIZE: usize = 40 << 20;
            let policy = |p: *mut u8| {
                let mut policy = -1;
                // SAFETY: the policy is valid for writing.
                let asked = unsafe {
                    let (none, of_address) = (core::ptr::null::<u8>(), 2);
                    libc::syscall(libc::SYS_get_mempolicy, &mut policy, none, 0, p, of_address)
                };
                (asked == 0).then_some(policy)
            };
            for (advice, flag) in [
                (libc::MADV_DONTDUMP, " dd"),
                (libc::MADV_MERGEABLE, " mg"),
                (libc::MADV_RANDOM, " rr"),
                (libc::MADV_SEQUENTIAL, " sr"),
            ] {
                // SAFETY: whole pages of an object.
                unsafe {
                    let p = raw::malloc(SIZE);
                    assert!(raw::owns(p));
                    p.write_bytes(1, SIZE);
                    let node = 1u64;
                    let (pages, len) = whole_pages(p, SIZE);
                    let advised = libc::madvise(pages.cast(), len, advice) == 0;
                    libc::syscall(libc::SYS_mbind, pages, len, libc::MPOL_BIND, &node, 64, 0);
                    let before = flags_of(pages);
                    assert_eq!(before.contains(flag), advised, "{before}");
                    raw::free(p);
                    assert_eq!(raw::malloc(SIZE), p);
                    let after = flags_of(pages);
                    assert!(!after.contains(flag), "{after}");
                    assert_ne!(policy(pages), Some(libc::MPOL_BIND));
                    raw::free(p);
                }
            }
        },
    );
}

/// `prctl` says so of all pages, also of those that are still to come.
#[test]
fn pages_that_are_merged_in_the_whole_process_stay_so() {
    isolated(
        "pages_that_are_merged_in_the_whole_process_stay_so",
        &[("BRUG_PURGE_DELAY", "1h")],
        || {
            const SIZE: usize = 40 << 20;
            // PR_SET_MEMORY_MERGE, of Linux 6.4.
            // SAFETY: no pointers are passed.
            if unsafe { libc::prctl(67, 1, 0, 0, 0) } != 0 {
                println!("skipped: the kernel merges no pages");
                return;
            }
            for _ in 0..3 {
                // SAFETY: an object is used as it was allocated.
                unsafe {
                    let p = raw::malloc(SIZE);
                    assert!(raw::owns(p));
                    p.write_bytes(1, SIZE);
                    let flags = flags_of(p);
                    assert!(flags.contains(" mg"), "{flags}");
                    raw::free(p);
                }
            }
        },
    );
}

/// What an object never used is no page fault that the next one is spared.
#[test]
fn nothing_is_retained_of_a_large_object_that_is_hardly_used() {
    isolated(
        "nothing_is_retained_of_a_large_object_that_is_hardly_used",
        &[("BRUG_PURGE_DELAY", "1h")],
        || {
            // SAFETY: objects are used as they were allocated.
            unsafe {
                let p = raw::malloc(64 << 20);
                assert!(raw::owns(p));
                p.write(1);
                raw::free(p);
                assert_eq!(brug::stats().bytes_retained, 0);
                let p = raw::malloc(64 << 20);
                p.write_bytes(1, 64 << 20);
                raw::free(p);
                assert!(brug::stats().bytes_retained >= 64 << 20);
            }
        },
    );
}

/// By its heuristic the system refuses who wants more at once than all memory and swap.
#[test]
fn more_than_the_machine_has_is_refused_as_by_the_system() {
    isolated(
        "more_than_the_machine_has_is_refused_as_by_the_system",
        &[],
        || {
            let all = |name: &str| -> usize {
                let text = std::fs::read_to_string("/proc/meminfo").unwrap();
                let line = text.lines().find(|line| line.starts_with(name)).unwrap();
                let kib: usize = line.split_whitespace().nth(1).unwrap().parse().unwrap();
                kib << 10
            };
            let size = all("MemTotal:") + all("SwapTotal:") + (1 << 30);
            // SAFETY: what there is of the mapping is unmapped; objects are used as they were
            // allocated.
            unsafe {
                let (private, none) = (
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                    std::ptr::null_mut(),
                );
                let p = libc::mmap(
                    none,
                    size,
                    libc::PROT_READ | libc::PROT_WRITE,
                    private,
                    -1,
                    0,
                );
                let refused = p == libc::MAP_FAILED;
                if !refused {
                    libc::munmap(p, size);
                }
                let small = raw::malloc(1 << 20);
                for p in [
                    raw::malloc(size),
                    raw::calloc(1, size),
                    raw::memalign(64, size),
                    raw::realloc(small, size),
                ] {
                    assert_eq!(p.is_null(), refused);
                    if !p.is_null() && p != small {
                        raw::free(p);
                    }
                }
            }
        },
    );
}

/// As in the C library, which aborts.
#[test]
fn an_address_inside_an_object_is_no_object() {
    isolated("an_address_inside_an_object_is_no_object", &[], || {
        // SAFETY: what becomes of it in the child ends there.
        unsafe {
            let p = raw::realloc(raw::malloc(1 << 20), 2 << 20);
            assert!(raw::owns(p));
            for size in [100, 1 << 20, 3 << 20, 64 << 20] {
                let child = libc::fork();
                if child == 0 {
                    raw::realloc(p.add(64), size);
                    libc::_exit(0);
                }
                let mut ended = -1;
                assert_eq!(libc::waitpid(child, &mut ended, 0), child);
                assert!(libc::WIFSIGNALED(ended), "{size}: {ended:#x}");
                assert_eq!(libc::WTERMSIG(ended), libc::SIGABRT);
            }
            raw::free(p);
        }
    });
}

#[test]
fn destructors_of_threads_can_allocate() {
    struct Last;
    impl Drop for Last {
        fn drop(&mut self) {
            let v = grow(5 << 20);
            assert_eq!(v.len(), 5 << 20);
        }
    }
    thread_local!(static LAST: RefCell<Option<Last>> = const { RefCell::new(None) });
    isolated("destructors_of_threads_can_allocate", &[], || {
        for _ in 0..50 {
            std::thread::spawn(|| LAST.set(Some(Last))).join().unwrap();
        }
    });
}

#[test]
fn slots_work_in_a_signal_handler_that_interrupts_them() {
    static HANDLED: AtomicU64 = AtomicU64::new(0);
    extern "C" fn handler(_: libc::c_int) {
        // SAFETY: the object is the handler's.
        unsafe {
            let p = raw::malloc(700_000);
            if raw::owns(p) {
                p.write(1);
                let p = raw::realloc(p, 900_000);
                raw::free(p);
                HANDLED.fetch_add(1, SeqCst);
            }
        }
    }
    isolated(
        "slots_work_in_a_signal_handler_that_interrupts_them",
        &[],
        || {
            // SAFETY: the handler uses nothing but slots, and so does this loop.
            unsafe {
                raw::free(raw::malloc(700_000));
                libc::signal(libc::SIGALRM, handler as *const () as libc::sighandler_t);
                let every = libc::timeval {
                    tv_sec: 0,
                    tv_usec: 200,
                };
                let timer = libc::itimerval {
                    it_interval: every,
                    it_value: every,
                };
                libc::setitimer(libc::ITIMER_REAL, &timer, std::ptr::null_mut());
                let deadline = Instant::now() + Duration::from_secs(600);
                while HANDLED.load(SeqCst) < 300 && Instant::now() < deadline {
                    for _ in 0..100 {
                        let p = raw::malloc(300_000);
                        p.write_bytes(3, 300_000);
                        let p = raw::realloc(p, 3_000_000);
                        assert_eq!(p.add(299_999).read(), 3);
                        raw::free(p);
                    }
                }
                let off: libc::itimerval = std::mem::zeroed();
                libc::setitimer(libc::ITIMER_REAL, &off, std::ptr::null_mut());
                assert!(HANDLED.load(SeqCst) >= 300);
            }
        },
    );
}

#[test]
fn free_leaves_errno_alone() {
    isolated("free_leaves_errno_alone", &[("BRUG_RETAIN", "10M")], || {
        // SAFETY: objects are used as they were allocated.
        unsafe {
            for size in [10, 300_000, 5 << 20, 60 << 20] {
                let p = raw::malloc(size);
                p.write_bytes(1, size);
                *libc::__errno_location() = 77;
                raw::free(p);
                assert_eq!(*libc::__errno_location(), 77);
            }
        }
    });
}

/// As in a container or a `chroot` without `/proc`, which says how memory counts and how many huge pages are free.
#[test]
fn a_request_that_is_granted_leaves_errno_alone_where_the_system_says_nothing() {
    isolated(
        "a_request_that_is_granted_leaves_errno_alone_where_the_system_says_nothing",
        &[],
        || {
            // SAFETY: objects are used as they were allocated.
            unsafe {
                // What the machine says of huge pages is read when the first slot is used.
                raw::free(raw::malloc(700_000));
                // A directory in which none of those files is.
                if libc::chroot(c"/proc/self/fdinfo".as_ptr()) != 0 {
                    println!("skipped: chroot is not allowed here");
                    return;
                }
                let mut p = raw::malloc(100);
                let mut size = 100;
                while size < 64 << 20 {
                    *libc::__errno_location() = 77;
                    size *= 2;
                    p = raw::realloc(p, size);
                    assert!(!p.is_null());
                    assert_eq!(*libc::__errno_location(), 77, "{size}");
                    p.add(size - 1).write(1);
                }
                raw::free(p);
            }
        },
    );
}

#[test]
fn absurd_sizes_are_refused_and_nothing_changes() {
    isolated("absurd_sizes_are_refused_and_nothing_changes", &[], || {
        // SAFETY: objects are used as they were allocated.
        unsafe {
            for size in [
                usize::MAX,
                isize::MAX as usize,
                isize::MAX as usize + 1,
                1 << 60,
            ] {
                *libc::__errno_location() = 0;
                assert!(raw::malloc(size).is_null());
                assert_eq!(*libc::__errno_location(), libc::ENOMEM);
                assert!(raw::memalign(64, size).is_null());
                assert!(raw::calloc(1, size).is_null());
                for old in [100, 500_000] {
                    let p = raw::malloc(old);
                    p.write_bytes(9, old);
                    assert!(raw::realloc(p, size).is_null());
                    assert!((0..old).all(|at| p.add(at).read() == 9));
                    raw::free(p);
                }
            }
            *libc::__errno_location() = 0;
            assert!(raw::calloc(1 << 33, 1 << 33).is_null());
            assert_eq!(*libc::__errno_location(), libc::ENOMEM);
            assert!(raw::memalign(48, 10).is_null());
            assert_eq!(*libc::__errno_location(), libc::EINVAL);
            let huge = Layout::from_size_align(isize::MAX as usize - 4095, 4096).unwrap();
            assert!(Brug.alloc(huge).is_null());
            assert!(Brug.alloc_zeroed(huge).is_null());
        }
        let mut v = vec![1u8; 1 << 20];
        assert!(v.try_reserve(isize::MAX as usize / 2).is_err());
        assert!(v.iter().all(|&b| b == 1));
    });
}

#[test]
fn a_size_that_no_system_has_is_refused_at_nobodys_cost() {
    isolated(
        "a_size_that_no_system_has_is_refused_at_nobodys_cost",
        &[],
        || {
            const SIZE: usize = isize::MAX as usize + 1;
            // SAFETY: objects are used as they were allocated.
            unsafe {
                let p = raw::malloc(4 << 20);
                p.write_bytes(1, 4 << 20);
                raw::free(p);
                let retained = brug::stats().bytes_retained;
                assert!(retained > 0);
                assert!(raw::malloc(SIZE).is_null() && raw::calloc(1, SIZE).is_null());
                assert!(raw::memalign(64, SIZE).is_null());
                for old in [100, 20_000, 500_000] {
                    let p = raw::malloc(old);
                    assert!(raw::realloc(p, SIZE).is_null());
                    raw::free(p);
                }
                assert!(brug::stats().bytes_retained >= retained);
            }
        },
    );
}

fn limit(resource: libc::__rlimit_resource_t, bytes: u64) {
    let limit = libc::rlimit {
        rlim_cur: bytes,
        rlim_max: bytes,
    };
    // SAFETY: `limit` is valid for reading.
    assert_eq!(unsafe { libc::setrlimit(resource, &limit) }, 0);
}

/// Grows until it is refused; what is there must be intact, and smaller things work.
fn grow_until_refused() -> usize {
    let mut v: Vec<u64> = Vec::new();
    while v.try_reserve(v.len().max(1000)).is_ok() {
        let n = v.len();
        v.extend(n as u64..v.capacity() as u64);
        assert!(v.len() < 1 << 31, "no limit");
    }
    assert!(v.iter().enumerate().all(|(i, &x)| i as u64 == x));
    let reached = v.len() * 8;
    drop(v);
    assert_eq!(grow(1 << 20).len(), 1 << 20);
    reached
}

#[test]
fn a_limit_of_address_space_is_lived_with() {
    isolated("a_limit_of_address_space_is_lived_with", &[], || {
        limit(libc::RLIMIT_AS, 2 << 30);
        let reached = grow_until_refused();
        assert!(reached >= 256 << 20, "{reached}");
    });
}

#[test]
fn a_limit_of_data_is_lived_with() {
    isolated("a_limit_of_data_is_lived_with", &[], || {
        limit(libc::RLIMIT_DATA, 1 << 30);
        let reached = grow_until_refused();
        assert!(reached >= 256 << 20, "{reached}");
    });
}

/// A program that uses the crate says so when it has set itself a limit.
#[test]
fn a_limit_that_the_program_tells_of_finds_nothing_that_no_object_needs() {
    isolated(
        "a_limit_that_the_program_tells_of_finds_nothing_that_no_object_needs",
        &[("BRUG_PURGE_DELAY", "1h")],
        || {
            let retained = || brug::stats().bytes_retained;
            drop(Vec::<u8>::from_iter((0..20 << 20).map(|i| i as u8)));
            assert!(retained() >= 20 << 20);
            limit(libc::RLIMIT_DATA, 1 << 30);
            raw::limits_changed();
            assert_eq!(retained(), 0);
            // As the C library: nothing of the first object of a size, and then up to twice as much.
            let of = |mib: usize| drop(vec![1u8; mib << 20]);
            of(24);
            assert_eq!(retained(), 0);
            let three = [(); 3].map(|()| vec![1u8; 24 << 20]);
            drop(three);
            assert_eq!(retained(), 48 << 20);
            // This takes the slot of one of them.
            of(100);
            assert_eq!(retained(), 24 << 20);
        },
    );
}

/// Objects that a program goes through side by side would meet in the same sets of the caches. In a slot that has had such
/// an object, one with an alignment begins where it must, and one that is to be zero is.
#[test]
fn large_objects_begin_in_different_places() {
    isolated("large_objects_begin_in_different_places", &[], || {
        const SIZE: usize = 2 << 20;
        let place = |p: *const u8| p.addr() % SIZE;
        let places = |objects: &[Vec<u8>]| {
            let places = objects.iter().map(|object| place(object.as_ptr()));
            places.collect::<std::collections::BTreeSet<_>>()
        };
        let mut objects: Vec<_> = (0..64).map(|_| vec![1u8; SIZE]).collect();
        let before = places(&objects);
        assert!(before.len() >= 16, "{before:x?}");
        assert!(
            before.iter().all(|place| place.is_multiple_of(512)),
            "{before:x?}"
        );
        let grown: Vec<_> = (0..64).map(|_| grow(SIZE)).collect();
        assert!(places(&grown).len() >= 8);
        objects.clear();
        for align in [64, 512, 4096, 64 << 10, SIZE] {
            let layout = Layout::from_size_align(SIZE + (100 << 10), align).unwrap();
            let taken: Vec<_> = (0..64)
                .map(|_| {
                    // SAFETY: not empty; read within it, where it is zero.
                    unsafe {
                        let p = alloc_zeroed(layout);
                        assert!(!p.is_null() && p.addr().is_multiple_of(align));
                        let bytes = std::slice::from_raw_parts_mut(p, layout.size());
                        assert!(bytes.iter().all(|&byte| byte == 0));
                        bytes.fill(1);
                        p
                    }
                })
                .collect();
            // SAFETY: allocated above.
            taken.iter().for_each(|&p| unsafe { dealloc(p, layout) });
        }
    });
}

#[test]
fn a_small_reservation_is_used_up_gracefully() {
    isolated(
        "a_small_reservation_is_used_up_gracefully",
        &[("BRUG_RESERVE", "1G")],
        || {
            let all: Vec<_> = (0..40).map(|i| (i, grow(1_000_000 + i * 1000))).collect();
            assert!(all.iter().all(|(i, v)| v.len() == 1_000_000 + i * 1000));
            assert!(brug::stats().no_slot > 0);
            let mut v = grow(60 << 20);
            let sum = checksum(&v);
            v.resize(200 << 20, 0);
            assert_eq!(checksum(&v), sum);
        },
    );
}

/// A program that asks for the usable size may use all of it, and finds that again.
/// The first slot of a size may be aligned to more than the one that the object moves to.
#[cfg(feature = "allocator-api2")]
#[test]
fn an_object_that_grows_has_the_alignment_that_it_is_to_have() {
    use allocator_api2::alloc::Allocator;
    let name = "an_object_that_grows_has_the_alignment_that_it_is_to_have";
    isolated(name, &[("BRUG_RESERVE", "64G")], || {
        let old = Layout::from_size_align(1 << 20, 8).unwrap();
        let new = |p: *mut u8| {
            let align = 1 << p.addr().trailing_zeros().min(30);
            Layout::from_size_align(70 << 20, align).unwrap()
        };
        let allocator = brug::In(brug::Mode::Mmap);
        let objects: Vec<_> = (0..40)
            .map(|_| allocator.allocate(old).unwrap().cast::<u8>())
            .collect();
        for p in objects {
            let new = new(p.as_ptr());
            // SAFETY: an object of this layout, and it grows.
            unsafe {
                p.write_bytes(7, old.size());
                let q = allocator.grow(p, old, new).unwrap().cast::<u8>();
                assert!(q.addr().get().is_multiple_of(new.align()), "{q:?} {new:?}");
                let content = std::slice::from_raw_parts(q.as_ptr(), old.size());
                assert!(content.iter().all(|&byte| byte == 7));
                allocator.deallocate(q, new);
            }
        }
    });
}

#[test]
fn what_is_usable_is_kept_when_an_object_leaves_its_slot() {
    isolated(
        "what_is_usable_is_kept_when_an_object_leaves_its_slot",
        &[("BRUG_RESERVE", "1G")],
        || {
            // SAFETY: the object is used as it was allocated.
            unsafe {
                let p = raw::malloc((60 << 20) + 1);
                let usable = raw::usable_size(p);
                assert!(raw::owns(p) && usable > (60 << 20) + 1);
                p.write_bytes(0x5a, usable);
                let p = raw::realloc(p, 200 << 20);
                assert!(!p.is_null() && !raw::owns(p), "it has grown in a slot");
                let kept = std::slice::from_raw_parts(p, usable);
                assert_eq!(kept.iter().position(|&b| b != 0x5a), None);
                raw::free(p);
            }
        },
    );
}

#[test]
fn no_reservation_at_all_leaves_the_base_allocator() {
    isolated(
        "no_reservation_at_all_leaves_the_base_allocator",
        &[("BRUG_RESERVE", "0")],
        || {
            assert_eq!(grow(50 << 20).len(), 50 << 20);
            let stats = brug::stats();
            assert_eq!((stats.slots_live, stats.no_arena), (0, 1), "{stats}");
            assert_eq!((stats.moves_in, stats.moves_early), (0, 0), "{stats}");
        },
    );
}

/// Whatever is reserved has slots in it, wherever the system puts it.
#[test]
fn a_reservation_has_slots_or_is_not_made() {
    let name = "a_reservation_has_slots_or_is_not_made";
    for (size, slots) in [
        ("256M", false),
        ("512M", false),
        ("1023M", false),
        ("1G", true),
    ] {
        let text = isolated(
            name,
            &[("BRUG_RESERVE", size), ("BRUG_VERBOSE", "1")],
            || {
                let object = grow(1 << 20);
                println!("in a slot: {}", raw::owns(object.as_ptr()));
            },
        );
        let Some(text) = text else { return };
        let said = "no address space for growth slots (BRUG_RESERVE: they need 1 GiB)";
        assert!(
            text.contains(&format!("in a slot: {slots}")),
            "{size}: {text}"
        );
        assert_eq!(text.contains(said), !slots, "{size}: {text}");
    }
}

#[test]
fn used_up_mappings_are_lived_with() {
    isolated("used_up_mappings_are_lived_with", &[], || {
        // SAFETY: mappings of this test's own. Every other page is writable, so that no
        // two of them merge.
        unsafe {
            let mut all = Vec::new();
            loop {
                let p = libc::mmap(
                    std::ptr::null_mut(),
                    4096,
                    if all.len() % 2 == 0 {
                        libc::PROT_READ
                    } else {
                        libc::PROT_NONE
                    },
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                    -1,
                    0,
                );
                if p == libc::MAP_FAILED {
                    break;
                }
                all.push(p);
                if all.len() > 2_000_000 {
                    println!("skipped: no limit on mappings");
                    return;
                }
            }
            let mut survivors = Vec::new();
            for size in [150_000usize, 1 << 20, 8 << 20] {
                let p = raw::malloc(size);
                if !p.is_null() {
                    p.write_bytes(5, size);
                    let q = raw::realloc(p, size * 3);
                    survivors.push((if q.is_null() { p } else { q }, size));
                }
            }
            for p in all {
                libc::munmap(p, 4096);
            }
            for (p, size) in survivors {
                assert!((0..size).all(|at| p.add(at).read() == 5));
                raw::free(p);
            }
        }
        assert_eq!(grow(9 << 20).len(), 9 << 20);
    });
}

#[test]
fn locked_memory_is_what_is_used_and_not_what_is_reserved() {
    isolated(
        "locked_memory_is_what_is_used_and_not_what_is_reserved",
        &[],
        || {
            // SAFETY: no pointers.
            if unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE) } != 0 {
                println!("skipped: mlockall is not allowed here");
                return;
            }
            let v = grow(40 << 20);
            assert_eq!(v.len(), 40 << 20);
            assert!(rss_mib() < 40 * 4 + 200, "{} MiB", rss_mib());
        },
    );
}

/// The kernel may count the pages of a mapping that it locks in 32 bits.
#[test]
fn no_mapping_of_the_reservation_has_8_tib() {
    for reserve in ["16T", "64T"] {
        let name = "no_mapping_of_the_reservation_has_8_tib";
        isolated(name, &[("BRUG_RESERVE", reserve)], || {
            let v = grow(3 << 20);
            assert!(raw::owns(v.as_ptr()));
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
            let length = |line: &str| {
                let (from, to) = line.split(' ').next()?.split_once('-')?;
                let number = |word| usize::from_str_radix(word, 16).ok();
                Some(number(to)? - number(from)?)
            };
            let longest = maps.lines().filter_map(length).max().unwrap();
            assert!(longest < 8 << 40, "{maps}");
        });
    }
}

fn huge_kib() -> usize {
    let maps = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let line = maps
        .lines()
        .find(|l| l.starts_with("AnonHugePages:"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn refused_huge_pages_are_not_used() {
    isolated("refused_huge_pages_are_not_used", &[], || {
        // SAFETY: no pointers.
        if unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) } != 0 {
            println!("skipped: PR_SET_THP_DISABLE is not known here");
            return;
        }
        let before = huge_kib();
        let v = grow(64 << 20);
        assert_eq!(huge_kib(), before);
        drop(v);
    });
}

/// Overcommit is the whole machine's to choose, so this is run on one that has it off.
#[test]
fn strict_overcommit_is_lived_with() {
    let mode = std::fs::read_to_string("/proc/sys/vm/overcommit_memory").unwrap();
    if mode.trim() != "2" {
        println!("skipped: vm.overcommit_memory is not 2");
        return;
    }
    isolated("strict_overcommit_is_lived_with", &[], || {
        let reached = grow_until_refused();
        // A vector that doubles must be refused between half and all of what is allowed;
        // the other half is for what the machine does besides.
        assert!(
            reached >= (meminfo_kib("CommitLimit:") << 10) / 8,
            "{reached}"
        );
        assert!(brug::stats().no_commit > 0, "{}", brug::stats());
    });
}

fn meminfo_kib(field: &str) -> usize {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap();
    let line = text.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Denied to the machine, as [`refused_huge_pages_are_not_used`] is to a process.
#[test]
fn huge_pages_that_the_machine_denies_are_not_asked_for() {
    let path = "/sys/kernel/mm/transparent_hugepage/enabled";
    let enabled = std::fs::read_to_string(path).unwrap_or_default();
    if !enabled.contains("[never]") {
        println!("skipped: transparent_hugepage/enabled is not never");
        return;
    }
    isolated(
        "huge_pages_that_the_machine_denies_are_not_asked_for",
        &[],
        || {
            let v = grow(64 << 20);
            assert_eq!(huge_kib(), 0);
            assert!(brug::raw::owns(v.as_ptr()));
            let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
            let advised = maps.lines().filter(|line| {
                line.starts_with("VmFlags:") && line.split(' ').any(|flag| flag == "hg")
            });
            assert_eq!(advised.count(), 0);
        },
    );
}

#[test]
fn a_vector_gets_huge_pages_where_the_machine_has_them() {
    let path = "/sys/kernel/mm/transparent_hugepage/enabled";
    let enabled = std::fs::read_to_string(path).unwrap_or_default();
    if !enabled.contains("[always]") && !enabled.contains("[madvise]") {
        println!("skipped: transparent_hugepage/enabled is neither always nor madvise");
        return;
    }
    isolated(
        "a_vector_gets_huge_pages_where_the_machine_has_them",
        // Unmeasured: where a host takes the processor away, huge pages may well show as slow.
        &[("BRUG_THP", "always")],
        || {
            let v = grow(64 << 20);
            // The first 2 MiB are small pages, and memory may be in pieces.
            if huge_kib() == 0 && meminfo_kib("MemAvailable:") < 1 << 20 {
                println!("skipped: little memory is free");
                return;
            }
            // Where pages are huge unasked, others may be as well.
            let most = if enabled.contains("[always]") {
                usize::MAX
            } else {
                62 << 10
            };
            assert!((1..=most).contains(&huge_kib()), "{} KiB", huge_kib());
            drop(v);
        },
    );
}

/// Where every program gets huge pages unasked, an object of 200 KiB must not hold 2 MiB.
#[test]
fn huge_pages_that_nobody_asked_for_do_not_swell_small_objects() {
    let path = "/sys/kernel/mm/transparent_hugepage/enabled";
    let enabled = std::fs::read_to_string(path).unwrap_or_default();
    if !enabled.contains("[always]") {
        println!("skipped: transparent_hugepage/enabled is not always");
        return;
    }
    isolated(
        "huge_pages_that_nobody_asked_for_do_not_swell_small_objects",
        &[],
        || {
            let before = rss_mib();
            let all: Vec<_> = (0..100).map(|_| grow(200_000)).collect();
            assert!(all.iter().all(|v| brug::raw::owns(v.as_ptr())));
            assert!(rss_mib() < before + 60, "{} MiB", rss_mib() - before);
        },
    );
}

static BEFORE_MAIN: AtomicU64 = AtomicU64::new(0);

extern "C" fn before_main() {
    BEFORE_MAIN.store(checksum(&grow(3 << 20)), SeqCst);
}

#[used]
#[link_section = ".init_array"]
static CONSTRUCTOR: extern "C" fn() = before_main;

#[test]
fn constructors_can_allocate_before_main() {
    assert_eq!(BEFORE_MAIN.load(SeqCst), checksum(&grow(3 << 20)));
}

#[test]
fn a_malformed_variable_is_one_line_and_the_default() {
    let name = "a_malformed_variable_is_one_line_and_the_default";
    for (variable, value) in [
        ("BRUG_ALLOC", "fast"),
        ("BRUG_TEMPLATE", "4K-:sys"),
        ("BRUG_TEMPLATE", "0-4K:sys,8K-:mmap"),
        ("BRUG_BASE", "dlmalloc"),
        ("BRUG_SWITCH_POINT", "-1"),
        ("BRUG_SWITCH_POINT", "1"),
        ("BRUG_THP", "2"),
        ("BRUG_PURGE_DELAY", "1000"),
        ("BRUG_RETAIN", "99999999999999999999"),
        ("BRUG_RESERVE", "16E"),
        ("BRUG_STATS", "maybe"),
        ("BRUG_MONITOR", "2"),
        ("BRUG_VERBOSE", "2"),
        ("BRUG_PROFILE", "/proc/self/status"),
        ("BRUG_PROFILE", "where-the-program-was-begun"),
        ("BRUG_ALLOC", "fast\nbrug: and well"),
    ] {
        let text = isolated(name, &[(variable, value)], || {
            assert_eq!(Brug::mode(), brug::Mode::Auto);
            assert_eq!(grow(1 << 20).len(), 1 << 20);
        });
        let Some(text) = text else { return };
        let lines = text.lines().filter(|line| line.starts_with("brug: "));
        assert_eq!(lines.count(), 1, "{variable}={value}:\n{text}");
    }
}

#[test]
fn a_profile_outlives_the_process() {
    let name = "a_profile_outlives_the_process";
    let file = std::env::temp_dir().join(format!("brug-profile-{}", std::process::id()));
    let path = file.to_str().unwrap().to_owned();
    for round in 0..2 {
        let text = isolated(name, &[("BRUG_PROFILE", &path)], || {
            let before: u64 = brug::tuner_report()
                .rows()
                .iter()
                .map(|r| r.arms[2].1)
                .sum();
            println!("knew {before}");
            for _ in 0..300 {
                drop(grow(1 << 20));
            }
            let after: u64 = brug::tuner_report()
                .rows()
                .iter()
                .map(|r| r.arms[2].1)
                .sum();
            assert!(after > before);
        });
        let Some(text) = text else { return };
        assert_eq!(text.contains("knew 0"), round == 0, "{text}");
    }
    std::fs::remove_file(file).unwrap();
}

#[test]
fn objects_that_always_grow_begin_in_slots_until_they_no_longer_do() {
    let name = "objects_that_always_grow_begin_in_slots_until_they_no_longer_do";
    isolated(name, &[("BRUG_BASE", "glibc")], || {
        let life = |grows: bool| {
            let mut object: Vec<u8> = Vec::with_capacity(4096);
            object.extend((0..4096).map(|i| i as u8));
            let begun_in_slot = brug::raw::owns(object.as_ptr());
            if grows {
                for size in [8 << 10, 16 << 10, 32 << 10] {
                    object.reserve_exact(size - object.len());
                    object.resize(size, 7);
                }
            }
            assert!((0..4096).all(|i| object[i] == i as u8));
            begun_in_slot
        };
        let lives = |grows, n| (0..n).filter(|_| life(grows)).count();
        assert_eq!(lives(false, 1000), 0);
        lives(true, 500);
        assert!(
            lives(true, 1000) > 850,
            "{}{}",
            brug::stats(),
            brug::tuner_report()
        );
        assert!(brug::tuner_report().rows().iter().any(|row| row.birth));
        lives(false, 4000);
        assert_eq!(lives(false, 1000), 0, "{}", brug::tuner_report());
    });
}

/// What a slot has touched is not noted at each step of an object that grows there.
#[test]
fn zeroed_memory_is_zero_in_a_slot_whose_object_had_grown() {
    let name = "zeroed_memory_is_zero_in_a_slot_whose_object_had_grown";
    isolated(name, &[("BRUG_ALLOC", "mmap")], || {
        for end in (1..40).map(|round| 220_000 + round * 37_777) {
            // SAFETY: the objects are used as they were allocated.
            unsafe {
                let mut size = 200_000;
                let mut p = raw::malloc(size);
                p.write_bytes(0x5a, size);
                while size < end {
                    p = raw::realloc(p, size + 500);
                    p.add(size).write_bytes(0x5a, 500);
                    size += 500;
                }
                assert!(raw::owns(p));
                raw::free(p);
                let q = raw::calloc(1, size);
                assert_eq!(q, p, "not the same slot");
                let kept = std::slice::from_raw_parts(q, size);
                assert_eq!(kept.iter().position(|&b| b != 0), None, "of {size}");
                raw::free(q);
            }
        }
    });
}

/// In C nobody tells the old size. Most steps of a byte stay within what is usable, and so look as if
/// the object had shrunk.
#[test]
fn an_object_that_grows_by_bytes_moves_into_a_slot_where_the_old_size_is_not_told() {
    let name = "an_object_that_grows_by_bytes_moves_into_a_slot_where_the_old_size_is_not_told";
    isolated(name, &[("BRUG_BASE", "glibc")], || {
        // SAFETY: the object is used as it was allocated.
        unsafe {
            let mut p = raw::malloc(4096);
            p.write_bytes(0x5a, 4096);
            for size in 4097..=16 << 10 {
                p = raw::realloc(p, size);
                p.add(size - 1).write(0x5a);
            }
            assert!(raw::owns(p), "{}{}", brug::stats(), brug::tuner_report());
            let kept = std::slice::from_raw_parts(p, 16 << 10);
            assert_eq!(kept.iter().position(|&b| b != 0x5a), None);
            raw::free(p);
        }
    });
}

/// Small objects through a trial and beyond; what they hold must not change.
#[cfg(any(feature = "jemalloc", feature = "mimalloc"))]
fn many_small_objects() {
    let mut objects: Vec<Box<[u64; 5]>> = Vec::new();
    for i in 0..400_000u64 {
        objects.push(Box::new([i; 5]));
        if i % 3 == 0 {
            let gone = objects.swap_remove(i as usize * 7 % objects.len());
            assert!(gone.iter().all(|&n| n == gone[0]));
        }
    }
    assert!(objects.iter().all(|o| o.iter().all(|&n| n == o[0])));
}

#[cfg(feature = "mimalloc")]
#[test]
fn a_trial_finds_the_base_of_small_objects_and_a_profile_keeps_it() {
    let name = "a_trial_finds_the_base_of_small_objects_and_a_profile_keeps_it";
    let file = std::env::temp_dir().join(format!("brug-trial-{}", std::process::id()));
    let path = file.to_str().unwrap().to_owned();
    let mut found = Vec::new();
    for _ in 0..2 {
        let text = isolated(name, &[("BRUG_PROFILE", &path)], || {
            let early = (
                Brug::base(),
                brug::tuner_report().compared(brug::Base::Glibc),
            );
            many_small_objects();
            let report = brug::tuner_report();
            for base in brug::Base::ALL {
                let (ns, samples) = report.compared(base);
                let tried = base != brug::Base::Jemalloc;
                assert_eq!(tried, samples > 500 && ns > 0, "{report}");
            }
            let gain = report.gain().unwrap();
            let judged = ["by the profile", "a fifth less time in the trial"];
            assert!(
                judged.iter().any(|&why| report.why().ends_with(why)),
                "{report}"
            );
            assert_eq!(
                report.base() == brug::Base::Mimalloc,
                gain >= 20,
                "{gain} {report}"
            );
            println!("\nearly {early:?}\nbase {:?}", report.base());
        });
        let Some(text) = text else { return };
        found.push(text);
    }
    let line = |text: &str, word: &str| {
        let line = text.lines().find(|line| line.starts_with(word)).unwrap();
        line[word.len()..].to_owned()
    };
    assert_eq!(line(&found[0], "early "), "(Glibc, (0, 0))");
    // The second process knew from its first object on, and did not try again.
    let base = line(&found[0], "base ");
    assert!(line(&found[1], "early ").starts_with(&format!("({base}, ")));
    assert!(!line(&found[1], "early ").ends_with("(0, 0))"));
    assert_eq!(base, line(&found[1], "base "));
    std::fs::remove_file(file).unwrap();
}

/// Nor does a trial that was to come before the program said what it wants.
#[cfg(feature = "mimalloc")]
#[test]
fn a_base_that_is_named_stays() {
    isolated("a_base_that_is_named_stays", &[], || {
        drop(Box::new(1));
        let config = brug::Config {
            base: Some(brug::Base::Glibc),
            ..brug::Config::from_env()
        };
        // SAFETY: no other thread allocates.
        unsafe { raw::configure(&config) };
        many_small_objects();
        let report = brug::tuner_report();
        assert_eq!(report.why(), "as configured");
        assert_eq!(report.base(), brug::Base::Glibc);
        assert_eq!(report.compared(brug::Base::Mimalloc), (0, 0));
    });
}

/// What a profile has found is for mode `auto`, where memory does not count when it is committed.
#[cfg(feature = "mimalloc")]
#[test]
fn a_profile_chooses_the_base_where_a_trial_would() {
    let name = "a_profile_chooses_the_base_where_a_trial_would";
    let file = std::env::temp_dir().join(format!("brug-base-{}", std::process::id()));
    let path = file.to_str().unwrap().to_owned();
    for (mode, limited) in [("auto", ""), ("auto", "limited"), ("mmap", ""), ("sys", "")] {
        if std::env::var_os(CHILD).is_none() {
            let profile = "brug-profile 1\n0 glibc 1600 1000\n0 mimalloc 160 1000\n";
            std::fs::write(&file, profile).unwrap();
        }
        let variables = [
            ("BRUG_PROFILE", path.as_str()),
            ("BRUG_ALLOC", mode),
            ("BRUG_TEST_LIMITED", limited),
        ];
        let text = isolated(name, &variables, || {
            let limited = std::env::var("BRUG_TEST_LIMITED").unwrap() == "limited";
            let auto = Brug::mode() == brug::Mode::Auto;
            if limited {
                limit(libc::RLIMIT_DATA, 1 << 30);
                // SAFETY: no other thread allocates.
                unsafe { raw::configure(&brug::Config::from_env()) };
            }
            let found = |why: &str| {
                let report = brug::tuner_report();
                assert_eq!((report.base(), report.why()), (Brug::base(), why));
                Brug::base()
            };
            if limited {
                let why = "no trial, as memory counts when it is committed";
                assert_eq!(found(why), brug::Base::Glibc);
                return;
            }
            if !auto {
                assert_eq!(found("no trial in this mode"), brug::Base::Glibc);
                Brug::set_mode(brug::Mode::Auto).unwrap();
            }
            assert_eq!(found("by the profile"), brug::Base::Mimalloc);
            Brug::set_mode(brug::Mode::Mmap).unwrap();
            assert_eq!(found("no trial in this mode"), brug::Base::Glibc);
        });
        if text.is_none() {
            return;
        }
    }
    std::fs::remove_file(file).unwrap();
}

#[test]
fn a_mode_without_a_trial_says_so() {
    isolated(
        "a_mode_without_a_trial_says_so",
        &[("BRUG_ALLOC", "mmap")],
        || {
            drop(grow(1 << 20));
            assert_eq!(brug::tuner_report().why(), "no trial in this mode");
        },
    );
}

#[cfg(any(feature = "jemalloc", feature = "mimalloc"))]
#[test]
fn a_base_that_is_asked_for_has_no_rivals() {
    let name = "a_base_that_is_asked_for_has_no_rivals";
    isolated(name, &[("BRUG_BASE", "glibc")], || {
        many_small_objects();
        let report = brug::tuner_report();
        assert!(brug::Base::ALL.iter().all(|&b| report.compared(b).1 == 0));
        assert_eq!((report.why(), report.gain()), ("as configured", None));
        assert_eq!(Brug::base(), brug::Base::Glibc);
    });
}

#[test]
fn a_file_that_is_no_profile_is_not_replaced_by_one() {
    let name = "a_file_that_is_no_profile_is_not_replaced_by_one";
    let file = std::env::temp_dir().join(format!("brug-no-profile-{}", std::process::id()));
    for content in ["int main(void);\n", "brug-profile 1\n4096 base x 3\n"] {
        let path = file.to_str().unwrap().to_owned();
        if std::env::var_os(CHILD).is_none() {
            std::fs::write(&file, content).unwrap();
        }
        let text = isolated(name, &[("BRUG_PROFILE", &path)], || {
            for _ in 0..300 {
                drop(grow(1 << 20));
            }
        });
        let Some(text) = text else { return };
        assert!(text.contains("not a profile"), "{text}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), content);
    }
    std::fs::remove_file(file).unwrap();
}

/// Nor is a FIFO waited for.
#[test]
fn what_is_no_file_or_cannot_be_read_is_not_replaced_by_a_profile() {
    use std::os::unix::fs::MetadataExt;
    let name = "what_is_no_file_or_cannot_be_read_is_not_replaced_by_a_profile";
    let directory = std::env::temp_dir().join(format!("brug-no-file-{}", std::process::id()));
    let at = |name: &str| directory.join(name);
    let node = |name: &str, kind, device| {
        let path = std::ffi::CString::new(at(name).to_str().unwrap()).unwrap();
        // SAFETY: a C string.
        unsafe { libc::mknod(path.as_ptr(), kind | 0o600, device) == 0 }
    };
    let mut kinds = vec!["link", "socket", "fifo"];
    if std::env::var_os(CHILD).is_none() {
        std::fs::create_dir(&directory).unwrap();
        std::fs::write(at("profile"), "brug-profile 1\n").unwrap();
        std::os::unix::fs::symlink("profile", at("link")).unwrap();
        assert!(node("fifo", libc::S_IFIFO, 0));
        // Nobody can open one.
        assert!(node("socket", libc::S_IFSOCK, 0));
        if node("null", libc::S_IFCHR, libc::makedev(1, 3)) {
            kinds.push("null");
        }
    }
    for kind in kinds {
        let path = at(kind).to_str().unwrap().to_owned();
        let inode = || std::fs::symlink_metadata(&path).unwrap().ino();
        let before = std::env::var_os(CHILD).is_none().then(inode);
        let text = isolated(name, &[("BRUG_PROFILE", &path)], || {
            for _ in 0..300 {
                drop(grow(1 << 20));
            }
        });
        let Some(text) = text else { return };
        let said: Vec<_> = text
            .lines()
            .filter(|line| line.starts_with("brug: "))
            .collect();
        assert!(said.len() == 1 && said[0].contains("left alone"), "{text}");
        assert_eq!(before, Some(inode()), "{kind}");
    }
    let profile = std::fs::read_to_string(at("profile")).unwrap();
    assert_eq!(profile, "brug-profile 1\n");
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn statistics_come_out_at_the_end() {
    let name = "statistics_come_out_at_the_end";
    let text = isolated(name, &[("BRUG_STATS", "1")], || drop(grow(9 << 20)));
    let Some(text) = text else { return };
    assert!(text.contains("grows_in_place"), "{text}");
    assert!(text.contains("], mode auto, base "), "{text}");
}

/// Reallocates an object, by way of a function for each pair of bits.
#[cfg(feature = "monitor")]
fn by_way_of(way: usize, steps: u32, object: &mut Vec<u8>) {
    #[inline(never)]
    fn step<const PAIR: usize>(way: usize, steps: u32, object: &mut Vec<u8>) {
        by_way_of(way, steps, object);
        std::hint::black_box(PAIR);
    }
    if steps == 0 {
        object.reserve_exact(object.capacity() + 5000);
        return;
    }
    let next = [step::<0>, step::<1>, step::<2>, step::<3>][way & 3];
    next(way >> 2, steps - 1, object);
}

#[cfg(feature = "monitor")]
#[test]
fn a_report_of_many_call_sites_does_not_take_long() {
    isolated(
        "a_report_of_many_call_sites_does_not_take_long",
        &[],
        || {
            assert!(brug::monitor::start());
            let mut objects: Vec<_> = (0..256).map(|_| vec![1u8; 5000]).collect();
            for (way, object) in objects.iter_mut().enumerate() {
                by_way_of(way, 4, object);
            }
            let mut weights = Vec::with_capacity(10_000);
            let report = brug::monitor::report();
            report.sites(|_, r| weights.push(r.bytes_not_copied + r.bytes_copied));
            assert!(weights.len() > 200, "{report}");
            assert!(weights.is_sorted_by(|a, b| a >= b), "{weights:?}");
            let begin = Instant::now();
            let lines = report.to_string().lines().count();
            assert!(lines > weights.len());
            assert!(
                begin.elapsed() < Duration::from_millis(500),
                "{:?}",
                begin.elapsed()
            );
        },
    );
}

#[cfg(feature = "monitor")]
#[test]
fn what_found_no_room_with_the_monitor_is_in_the_statistics() {
    let name = "what_found_no_room_with_the_monitor_is_in_the_statistics";
    let file = std::env::temp_dir().join(format!("brug-missed-{}", std::process::id()));
    let setting = format!("json:{}", file.display());
    let variables = [("BRUG_MONITOR", "1"), ("BRUG_STATS", &*setting)];
    let text = isolated(name, &variables, || {
        let mut objects: Vec<_> = (0..20_000).map(|_| vec![1u8; 16]).collect();
        objects
            .iter_mut()
            .for_each(|object| object.reserve_exact(100));
    });
    if text.is_some() {
        let json = std::fs::read_to_string(&file).unwrap();
        let missed = json.split_once("\"missed\":").unwrap().1;
        let missed: u64 = missed.trim_end_matches(['}', '\n']).parse().unwrap();
        assert!((3_000..6_000).contains(&missed), "{missed}");
        std::fs::remove_file(file).unwrap();
    }
}

// With `preload`, as in one build with libbrug.so, callers in the library's own file do not count, and
// all of this program is one file.
#[cfg(all(feature = "monitor", not(feature = "preload")))]
#[test]
fn the_monitor_tells_what_happened_to_objects() {
    isolated("the_monitor_tells_what_happened_to_objects", &[], || {
        assert!(brug::monitor::start());
        for _ in 0..10 {
            drop(grow(2 << 20));
        }
        let alive = grow(2 << 20);
        let report = brug::monitor::report();
        let (mut objects, mut reallocs, mut kept) = (0, 0, 0);
        report.sites(|frames, r| {
            assert_ne!(frames[0], 0);
            objects += r.objects;
            reallocs += r.reallocs;
            kept += r.bytes_not_copied;
        });
        assert!(objects >= 11, "{report}");
        assert!(reallocs >= 11 * 11, "{report}");
        assert!(kept >= 11 << 20, "{report}");
        drop(alive);
    });
}

#[test]
fn pages_that_cannot_all_be_moved_are_copied() {
    isolated(
        "pages_that_cannot_all_be_moved_are_copied",
        &[("BRUG_RESERVE", "64G")],
        || {
            let (len, page) = (40 << 20, 4096);
            // SAFETY: objects of this test alone; what is sealed is whole pages of the second.
            unsafe {
                let _beside = raw::malloc(1 << 20);
                let p: *mut u8 = raw::realloc(raw::malloc(1 << 20), len).cast();
                let byte = |i: usize| (i / page * 7 + i % 251) as u8;
                (0..len).for_each(|i| p.add(i).write(byte(i)));
                // As the kernel refuses a sealed page, or one that a `userfaultfd` watches, when it has moved
                // those before it (Linux 6.17).
                let middle = (p as usize + len / 2).next_multiple_of(page);
                const MSEAL: i64 = 462;
                if libc::syscall(MSEAL, middle, page, 0) != 0 {
                    return eprintln!("skipped: no mseal");
                }
                let q: *mut u8 = raw::realloc(p.cast(), 70 << 20).cast();
                assert!(!q.is_null());
                let wrong = (0..len).find(|&i| q.add(i).read() != byte(i));
                assert_eq!(wrong, None);
            }
        },
    );
}

#[cfg(feature = "mimalloc")]
#[test]
fn a_trial_ends_where_there_is_no_room_for_the_challenger() {
    isolated(
        "a_trial_ends_where_there_is_no_room_for_the_challenger",
        &[("BRUG_RESERVE", "1G")],
        || {
            let many = |count: usize, size: usize| {
                // SAFETY: no preconditions; they are kept.
                (0..count).for_each(|_| assert!(unsafe { !raw::malloc(size).is_null() }));
            };
            many(262_200, 40);
            many(8_000, 100 << 10);
            many(100_000, 40);
            let why = brug::tuner_report().why();
            assert_eq!(why, "no other can be had");
        },
    );
}

#[cfg(feature = "mimalloc")]
#[test]
fn a_trial_ends_when_memory_begins_to_count() {
    isolated("a_trial_ends_when_memory_begins_to_count", &[], || {
        let many = |count: usize| {
            // SAFETY: no preconditions; they are kept.
            (0..count).for_each(|_| assert!(unsafe { !raw::malloc(40).is_null() }));
        };
        many(262_200);
        assert_eq!(brug::tuner_report().why(), "a trial is under way");
        limit(libc::RLIMIT_DATA, 4 << 30);
        raw::limits_changed();
        many(100_000);
        let why = "no trial, as memory counts when it is committed";
        assert_eq!(
            (brug::tuner_report().why(), Brug::base()),
            (why, brug::Base::Glibc)
        );
    });
}
