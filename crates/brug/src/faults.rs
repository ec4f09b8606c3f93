// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every call to the system fails once, and from then on for good, while objects
//! live through all a slot can do. No byte may be lost.

extern crate std;

use core::sync::atomic::{AtomicI64, AtomicPtr, Ordering::SeqCst};
use std::format;
use std::string::String;
use std::time::{Duration, Instant};
use std::vec::Vec;

use crate::alone;
use crate::arena;
use crate::config::Config;
#[cfg(feature = "mimalloc")]
use crate::{base, mode::Base};
use crate::mode::Mode;
use crate::os::{self, fault};
use crate::{control, raw, retain, words};

/// Where a range is looked at: on every page of the first megabyte, and on the first and the last page of
/// every 64 KiB behind it.
fn places(from: usize, to: usize) -> impl Iterator<Item = usize> {
    let looked_at = |at: &usize| *at < 1 << 20 || matches!(at >> 12 & 15, 0 | 15);
    (from..to).step_by(4096).filter(looked_at)
}

fn mark(p: *mut u8, from: usize, to: usize) {
    for at in places(from, to) {
        // SAFETY: within the object.
        unsafe { p.add(at).write((at >> 12) as u8 ^ 0x5a) };
    }
}

fn check(p: *mut u8, size: usize) {
    for at in places(0, size) {
        // SAFETY: within the object.
        let found = unsafe { p.add(at).read() };
        assert_eq!(found, (at >> 12) as u8 ^ 0x5a, "at {at} of {size}");
    }
}

/// Runs a request, which may change `errno` only if it is refused.
fn granted(request: impl FnOnce() -> *mut u8) -> *mut u8 {
    const BEFORE: i32 = 77;
    os::set_errno(BEFORE);
    let p = request();
    assert!(!p.is_null());
    assert_eq!(os::errno(), BEFORE, "errno after a request that was granted");
    p
}

/// All a slot can do: birth, growth, promotion to a larger slot, shrinking, reuse,
/// zeroing, purge.
fn live_through_it() {
    // SAFETY: objects are used as they were allocated.
    unsafe {
        // Takes the one large slot that is given away freely.
        let first = granted(|| raw::malloc(200 << 10));
        let mut p = granted(|| raw::malloc(1 << 20));
        let mut size = 1 << 20;
        mark(p, 0, size);
        while size < 128 << 20 {
            p = granted(|| raw::realloc(p, size * 2));
            check(p, size);
            mark(p, size, size * 2);
            size *= 2;
        }
        for new in [50 << 20, 2 << 20, 70 << 20, 300 << 10, 100, 600 << 10] {
            p = granted(|| raw::realloc(p, new));
            check(p, size.min(new));
            if new > size {
                mark(p, size - size % 4096, new);
            }
            size = new;
            raw::trim();
            check(p, size);
        }
        raw::free(p);
        raw::free(first);
        for size in [1 << 20, 9 << 20] {
            let dirty = granted(|| raw::malloc(size));
            mark(dirty, 0, size);
            raw::free(dirty);
            let zeroed = granted(|| raw::calloc(1, size));
            let bytes = std::slice::from_raw_parts(zeroed, size);
            assert!(bytes
                .chunks(4096)
                .all(|c| c.iter().fold(0, |a, b| a | b) == 0));
            raw::free(zeroed);
        }
        raw::trim();
    }
}

/// Room for few large slots, so that objects are promoted; no thread, so that the
/// calls come in the same order each time.
fn configure() {
    put_in_force(&Config {
        reserve: 64 << 30,
        purge_delay_ms: 3_600_000,
        ..Config::DEFAULT
    });
}

fn put_in_force(config: &Config) {
    // SAFETY: the only thread that allocates by `raw`.
    unsafe { raw::configure(config) };
    // What the library that is preloaded calls before `main`; a program has it with the configuration.
    #[cfg(feature = "preload")]
    raw::prepare();
}

fn inject(nth: i64, burst: i64) {
    fault::BURST.store(burst, SeqCst);
    fault::COUNTDOWN.store(nth, SeqCst);
}

#[test]
fn no_byte_is_lost_when_a_system_call_fails() {
    if let Some(plan) = alone::job() {
        // The arena is set up once in a process.
        let plan: Vec<i64> = plan.split(',').map(|n| n.parse().unwrap()).collect();
        configure();
        inject(plan[0], plan[1]);
        live_through_it();
        return;
    }
    configure();
    live_through_it();
    let before = fault::CALLS.load(SeqCst);
    live_through_it();
    let calls = (fault::CALLS.load(SeqCst) - before) as i64;
    assert!(calls > 15, "only {calls} calls: nothing is tested");
    let moves = crate::stats().page_moves;
    assert!(moves >= 2, "objects were not promoted");
    for burst in [1, 2, i64::MAX] {
        for nth in 0..calls {
            inject(nth, burst);
            live_through_it();
            fault::COUNTDOWN.store(-1, SeqCst);
        }
    }
    let stats = crate::stats();
    assert!(
        stats.no_commit > 0 && stats.no_move > 0,
        "rungs not reached: {stats}"
    );
    live_through_it();
    assert_eq!(crate::stats().slots_live, 0);
    // Setting up the arena.
    for nth in 0..6 {
        for burst in ["1", "60", "9223372036854775807"] {
            alone::alone(
                &full("no_byte_is_lost_when_a_system_call_fails"),
                &format!("{nth},{burst}"),
            );
        }
    }
}

/// The full name of a test of this file.
fn full(test: &str) -> String {
    format!("faults::{test}")
}

/// Runs a test of this file in a process of its own, and wants it to succeed. Returns false in that process.
fn ends_well_elsewhere(test: &str) -> bool {
    let elsewhere = alone::job().is_none();
    if elsewhere {
        alone::alone(&full(test), "");
    }
    elsewhere
}

/// Once mimalloc has all of its part of the arena, nobody asks for more of it with each request.
#[cfg(feature = "mimalloc")]
#[test]
fn what_mimalloc_has_no_room_for_the_c_library_has_at_once() {
    const SIZE: usize = 1000;
    const MORE_THAN_ITS_PART: usize = 100_000;
    if ends_well_elsewhere("what_mimalloc_has_no_room_for_the_c_library_has_at_once") {
        return;
    }
    let config = Config {
        reserve: 1 << 30,
        base: Some(Base::Mimalloc),
        purge_delay_ms: 3_600_000,
        ..Config::DEFAULT
    };
    let fill = || -> Vec<*mut u8> {
        // SAFETY: no preconditions.
        (0..MORE_THAN_ITS_PART).map(|_| unsafe { raw::malloc(SIZE) }).collect()
    };
    put_in_force(&config);
    assert!(arena::ready());
    // No whole number of shares, as it is where the arena does not begin at a multiple of its alignment.
    arena::FOREIGN[1][1].fetch_sub(4 << 20, SeqCst);
    let first = fill();
    let before = fault::CALLS.load(SeqCst);
    let second = fill();
    let asked = fault::CALLS.load(SeqCst) - before;
    assert!(asked < 100, "{asked} calls");
    let served = |p: &&*mut u8| base::owner_of(**p) == base::Owner::Mimalloc;
    assert!(first.iter().filter(served).count() > 30_000);
    for p in first.into_iter().chain(second) {
        assert!(!p.is_null());
        // SAFETY: objects of this test.
        unsafe { raw::free(p) };
    }
}

/// Runs `f` in the child of a fork, and returns how that ended: 0 if `f` returned true. A child that hangs is
/// killed: it may have blocked all other signals.
fn child_of(f: impl FnOnce() -> bool) -> i64 {
    // SAFETY: the child only runs `f` and leaves by `_exit`.
    child_by(|| unsafe { libc::fork() }, f)
}

/// The same with another way to fork.
fn child_by(fork: impl FnOnce() -> libc::pid_t, f: impl FnOnce() -> bool) -> i64 {
    let patience = Instant::now() + Duration::from_secs(60);
    // SAFETY: the child only runs `f` and leaves by `_exit`.
    unsafe {
        let child = fork();
        if child == 0 {
            libc::_exit(if f() { 0 } else { 3 });
        }
        let mut status = -1;
        while libc::waitpid(child, &mut status, libc::WNOHANG) == 0 {
            if Instant::now() > patience {
                libc::kill(child, libc::SIGKILL);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        i64::from(status)
    }
}

/// A child that is forked while another thread gives a slot's memory back, before or after the one
/// system call that does, finds a slot that it can use, and zeros where it asks for them.
#[test]
fn a_fork_in_the_middle_of_giving_back_leaves_the_child_a_slot() {
    const SIZE: usize = 1 << 20;
    fn fork() {
        // SAFETY: objects are used as they were allocated.
        let ended = child_of(|| unsafe {
            let p = raw::malloc(SIZE / 4);
            p.write_bytes(1, SIZE / 4);
            raw::free(p);
            raw::trim();
            let p = raw::calloc(1, SIZE);
            (0..SIZE).all(|at| p.add(at).read() == 0)
        });
        // What unwinds through the caller would be caught nowhere.
        FORKED.store(ended, SeqCst);
    }
    static FORKED: AtomicI64 = AtomicI64::new(-1);
    let Some(plan) = alone::job() else {
        for plan in ["before", "after"] {
            alone::alone(&full("a_fork_in_the_middle_of_giving_back_leaves_the_child_a_slot"), plan);
        }
        return;
    };
    configure();
    // SAFETY: the object is used as it was allocated.
    unsafe {
        let p = raw::malloc(SIZE);
        assert!(raw::owns(p));
        p.write_bytes(1, SIZE);
        raw::free(p);
    }
    let hook = if plan == "before" {
        &fault::BEFORE
    } else {
        &fault::AFTER
    };
    hook.store(fork as fn() as usize, SeqCst);
    raw::trim();
    assert_eq!(FORKED.load(SeqCst), 0, "{plan}: how the child ended");
}

/// A child that is forked while another thread uncommits what is beyond an object has memory there that is not
/// committed. When the object shrinks, and what is beyond it goes, this goes as well.
#[test]
fn a_fork_in_the_middle_of_taking_back_leaves_the_child_zeros() {
    const SIZE: usize = 1 << 20;
    static OBJECT: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
    static FORKED: AtomicI64 = AtomicI64::new(-1);
    fn fork() {
        // SAFETY: objects are used as they were allocated.
        let ended = child_of(|| unsafe {
            let p = OBJECT.load(SeqCst);
            let same = raw::realloc(p, SIZE - (64 << 10)) == p;
            raw::trim();
            raw::free(p);
            raw::trim();
            let q = raw::calloc(2, SIZE);
            same && q == p && (0..2 * SIZE).all(|at| q.add(at).read() == 0)
        });
        FORKED.store(ended, SeqCst);
    }
    if ends_well_elsewhere("a_fork_in_the_middle_of_taking_back_leaves_the_child_zeros") {
        return;
    }
    configure();
    // Takes the one large slot.
    let _first = object_in_slot(SIZE);
    let p = object_in_slot(SIZE);
    // So little memory beyond the object that it is not worth trimming.
    let more = SIZE + (900 << 10);
    // SAFETY: the object is used as it was allocated.
    unsafe {
        assert_eq!(raw::realloc(p, more), p);
        mark(p, 0, more);
        assert_eq!(raw::realloc(p, SIZE), p);
    }
    OBJECT.store(p, SeqCst);
    fault::BEFORE.store(fork as fn() as usize, SeqCst);
    raw::trim();
    assert_eq!(FORKED.load(SeqCst), 0, "how the child ended");
    check(p, SIZE);
}

/// An object that moves into a slot whose memory another thread of the parent was giving back does not hide what is
/// beyond it there.
#[test]
fn a_fork_in_the_middle_of_giving_back_leaves_the_child_zeros_behind_a_move() {
    /// A small slot.
    const FULL: usize = 64 << 20;
    const LARGE: usize = 70 << 20;
    static OBJECT: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
    static FORKED: AtomicI64 = AtomicI64::new(-1);
    fn fork() {
        // SAFETY: objects are used as they were allocated.
        let ended = child_of(|| unsafe {
            let p = raw::realloc(OBJECT.load(SeqCst), FULL + 4096);
            raw::free(p);
            let q = raw::calloc(1, LARGE);
            q == p && places(0, LARGE).all(|at| q.add(at).read() == 0)
        });
        FORKED.store(ended, SeqCst);
    }
    if ends_well_elsewhere("a_fork_in_the_middle_of_giving_back_leaves_the_child_zeros_behind_a_move") {
        return;
    }
    let config = Config {
        reserve: 64 << 30,
        purge_delay_ms: 3_600_000,
        retain: Some(1 << 30),
        ..Config::DEFAULT
    };
    // SAFETY: the only thread that allocates by `raw`.
    unsafe { raw::configure(&config) };
    #[cfg(feature = "preload")]
    raw::prepare();
    let large = object_in_slot(LARGE);
    OBJECT.store(object_in_slot(1 << 20), SeqCst);
    // SAFETY: the caller's object.
    unsafe { raw::free(large) };
    assert_eq!(arena::slot_of(large).0.state.load(SeqCst), arena::WARM);
    fault::BEFORE.store(fork as fn() as usize, SeqCst);
    // As the purge thread does.
    arena::drop_retained(0);
    assert_eq!(FORKED.load(SeqCst), 0, "how the child ended");
}

/// A slot that another thread has just taken, and not yet counted off, is nobody's in the child.
#[test]
fn a_child_counts_nothing_that_its_parents_other_threads_had_at_hand() {
    if ends_well_elsewhere("a_child_counts_nothing_that_its_parents_other_threads_had_at_hand") {
        return;
    }
    configure();
    let p = object_in_slot(1 << 20);
    // SAFETY: the caller's object.
    unsafe { raw::free(p) };
    assert_eq!(crate::stats().bytes_retained, 1 << 20);
    let slot = arena::slot_of(p).0;
    slot.state.store(arena::HELD, SeqCst);
    let ended = child_of(|| {
        raw::trim();
        crate::stats().bytes_retained == 0
    });
    slot.state.store(arena::WARM, SeqCst);
    assert_eq!(ended, 0);
    // What is being counted off when it was counted anew already leaves nothing below zero.
    raw::trim();
    retain::no_longer(1);
    assert_eq!(crate::stats().bytes_retained, 0);
}

/// No handler runs in a child that the program makes by the system call itself. What its parent's other threads
/// were at is not waited for, and it gets a thread of its own.
#[test]
fn a_child_without_handlers_waits_for_no_thread_of_its_parent() {
    const NAME: &str = "a_child_without_handlers_waits_for_no_thread_of_its_parent";
    const SIZE: usize = 1 << 20;
    if ends_well_elsewhere(NAME) {
        return;
    }
    configure();
    // SAFETY: no memory is shared.
    let clone = || unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) as i32 };
    // SAFETY: objects are used as they were allocated.
    unsafe {
        let p = raw::malloc(SIZE);
        // One that has grown leaves more to the thread.
        let large = raw::realloc(raw::malloc(SIZE), 20 * SIZE);
        assert!(raw::owns(p) && raw::owns(large));
        mark(p, 0, SIZE);
        mark(large, 0, 20 * SIZE);
        let state = &arena::slot_of(p).0.state;
        for waited in [arena::TRIMMING, arena::CUTTING] {
            state.store(waited, SeqCst);
            let resized = || {
                let grown = raw::realloc(p, 2 * SIZE);
                check(grown, SIZE);
                true
            };
            assert_eq!(child_by(clone, resized), 0, "{waited}");
        }
        state.store(arena::LIVE, SeqCst);
        retain::THREAD.store(retain::RUNNING, SeqCst);
        let freed = || {
            raw::free(large);
            while os::threads() == Some(1) {
                os::wait_a_moment();
            }
            true
        };
        assert_eq!(child_by(clone, freed), 0, "its own thread");
        retain::THREAD.store(retain::NONE, SeqCst);
    }
}

/// Sets a limit of data that is met nowhere, and says so.
fn limit_data() {
    let limit = libc::rlimit {
        rlim_cur: 1 << 40,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: the limit is valid for a read.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_DATA, &limit) }, 0);
    raw::limits_changed();
}

/// Returns true if what the C library is refused from here on is seen.
fn refusals_are_seen() -> bool {
    words::counted() && words::hot().malloc_limit.load(SeqCst) == 0
}

/// A child that is forked while another thread says that the limits have changed is as if that thread had
/// said so before, whether the limits are just worked out or memory is taken back, of a freed object or of
/// one that has shrunk.
#[test]
fn a_fork_in_the_middle_of_a_change_of_limits_leaves_nothing_half_done() {
    static LEFT: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
    static FORKED: AtomicI64 = AtomicI64::new(-1);
    fn fork() {
        let retained = || crate::stats().bytes_retained;
        let ended = child_of(|| {
            if !refusals_are_seen() {
                return false;
            }
            raw::limits_changed();
            let first = retained();
            // SAFETY: the object is freed once here.
            unsafe { raw::free(LEFT.load(SeqCst)) };
            raw::trim();
            control::set_mode(Mode::Mmap).is_ok() && first == 0 && retained() == 0
        });
        // What unwinds through the caller would be caught nowhere.
        FORKED.store(ended, SeqCst);
    }
    let Some(plan) = alone::job() else {
        for plan in ["change", "freed", "shrunk"] {
            alone::alone(&full("a_fork_in_the_middle_of_a_change_of_limits_leaves_nothing_half_done"), plan);
        }
        return;
    };
    configure();
    // SAFETY: objects are used as they were allocated.
    unsafe {
        let mut p = raw::malloc(4 << 20);
        assert!(raw::owns(p));
        mark(p, 0, 4 << 20);
        if plan == "shrunk" {
            p = raw::realloc(p, 1 << 20);
        } else {
            let freed = raw::malloc(1 << 20);
            mark(freed, 0, 1 << 20);
            raw::free(freed);
        }
        LEFT.store(p, SeqCst);
    }
    assert!(crate::stats().bytes_retained >= 1 << 20);
    let hook = if plan == "change" { &fault::CHANGE } else { &fault::AFTER };
    hook.store(fork as fn() as usize, SeqCst);
    limit_data();
    assert_eq!(FORKED.load(SeqCst), 0, "{plan}: how the child ended");
    assert!(refusals_are_seen());
    assert_eq!(crate::stats().bytes_retained, 0);
}

/// A signal handler that says so may have interrupted a change.
#[test]
fn a_change_of_limits_in_the_middle_of_another_waits_for_nobody() {
    if ends_well_elsewhere("a_change_of_limits_in_the_middle_of_another_waits_for_nobody") {
        return;
    }
    configure();
    let ended = child_of(|| {
        fault::CHANGE.store(limit_data as fn() as usize, SeqCst);
        words::change(|| ());
        refusals_are_seen()
    });
    assert_eq!(ended, 0, "how who was interrupted ended");
}

/// Without a mapping to spare the system does not make what is taken back a mere reservation again, but drops
/// its memory all the same. What it still charges goes once there are mappings again.
#[test]
fn memory_goes_back_without_a_mapping_to_spare() {
    if ends_well_elsewhere("memory_goes_back_without_a_mapping_to_spare") {
        return;
    }
    const SIZE: usize = 40 << 20;
    configure();
    // SAFETY: used as it was allocated.
    unsafe { raw::free(object_in_slot(SIZE)) };
    limit_data();
    // SAFETY: objects are used as they were allocated.
    unsafe {
        let p = object_in_slot(SIZE);
        let slot = arena::slot_of(p).0;
        let committed = || slot.committed.load(SeqCst);
        inject(0, 1);
        assert_eq!(raw::realloc(p, 1 << 20), p);
        assert!(!os::resident(p.add(SIZE / 2)), "of an object that has shrunk");
        assert!(committed() >= SIZE);
        assert!(arena::take_back() && committed() == 1 << 20);
        check(p, 1 << 20);
        assert_eq!(raw::realloc(p, SIZE), p);
        check(p, 1 << 20);
        mark(p, 0, SIZE);
        inject(0, 1);
        raw::free(p);
        assert!(!os::resident(p.add(SIZE / 2)), "of an object that was freed");
        assert_eq!(crate::stats().bytes_retained, 0);
        assert!(committed() >= SIZE);
        assert!(arena::take_back() && committed() == 0);
    }
}

/// Pages that a program has changed and that nothing can make plain again are nobody's any more.
#[test]
fn pages_that_stay_as_the_program_has_changed_them_are_not_handed_out() {
    if ends_well_elsewhere("pages_that_stay_as_the_program_has_changed_them_are_not_handed_out") {
        return;
    }
    const SIZE: usize = 40 << 20;
    configure();
    let p = object_in_slot(SIZE);
    // SAFETY: the file takes the place of the object's pages.
    unsafe {
        let file = libc::memfd_create(c"file".as_ptr(), 0);
        assert_eq!(libc::ftruncate(file, SIZE as libc::off_t), 0);
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_FIXED;
        let there = libc::mmap(p.cast(), SIZE, access, flags, file, 0);
        assert_eq!(there.cast(), p);
        p.write_bytes(1, SIZE);
        // To map the pages anew is the second call, or the third on a machine without keys of protection.
        inject(1, 2);
        raw::free(p);
        assert!(fault::COUNTDOWN.load(SeqCst) <= 0, "it was not made");
        fault::COUNTDOWN.store(-1, SeqCst);
    }
    // A child writes to pages of its own, so not to that file.
    let q = object_in_slot(SIZE);
    // SAFETY: within the object.
    let ended = child_of(|| unsafe {
        q.write(1);
        true
    });
    assert_eq!(ended, 0);
    check(q, SIZE);
    let state = || arena::slot_of(p).0.state.load(SeqCst);
    assert_eq!(state(), arena::CHANGED);
    raw::trim();
    assert_eq!(state(), arena::CLEAN);
}

/// What is freed while the purge thread is at work is younger than what it has come for.
#[test]
fn what_is_freed_while_memory_goes_back_stays() {
    const SIZE: usize = 256 << 10;
    const HOUR: u32 = 3_600_000;
    static SECOND: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
    fn free_second() {
        let begin = os::now_ms();
        while os::now_ms() == begin {
            std::thread::sleep(Duration::from_millis(1));
        }
        // SAFETY: the test's object.
        unsafe { raw::free(SECOND.load(SeqCst)) };
    }
    if ends_well_elsewhere("what_is_freed_while_memory_goes_back_stays") {
        return;
    }
    configure();
    // Takes the one large slot; the slots of the others come one after the other.
    let _first = object_in_slot(SIZE);
    let old = object_in_slot(SIZE);
    SECOND.store(object_in_slot(SIZE), SeqCst);
    // SAFETY: the caller's object.
    unsafe { raw::free(old) };
    arena::slot_of(old).0.stamp.fetch_sub(2 * HOUR, SeqCst);
    fault::BEFORE.store(free_second as fn() as usize, SeqCst);
    assert!(arena::drop_retained(HOUR));
    let state = |p: *mut u8| arena::slot_of(p).0.state.load(SeqCst);
    assert_eq!(state(old), arena::CLEAN);
    assert_eq!(state(SECOND.load(SeqCst)), arena::WARM);
}

/// A new object in a slot.
fn object_in_slot(size: usize) -> *mut u8 {
    // SAFETY: no preconditions.
    let p = unsafe { raw::malloc(size) };
    assert!(raw::owns(p));
    mark(p, 0, size);
    p
}

/// Memory is taken back just when an object is asked to have a size that there cannot be.
#[test]
fn an_absurd_size_is_not_seen_by_who_takes_memory_back() {
    fn take_back() {
        std::thread::spawn(raw::trim).join().unwrap();
    }
    if ends_well_elsewhere("an_absurd_size_is_not_seen_by_who_takes_memory_back") {
        return;
    }
    configure();
    // SAFETY: objects are used as they were allocated.
    unsafe {
        let p = raw::realloc(raw::malloc(1 << 20), 2 << 20);
        assert!(raw::owns(p));
        mark(p, 0, 2 << 20);
        fault::BARRIER.store(take_back as fn() as usize, SeqCst);
        assert!(raw::realloc(p, usize::MAX).is_null());
        fault::BARRIER.store(0, SeqCst);
        check(p, 2 << 20);
    }
}

/// The next object there would seem to have been asked for what the one that stayed was.
#[test]
fn a_move_that_is_refused_leaves_the_other_slot_as_it_was() {
    if ends_well_elsewhere("a_move_that_is_refused_leaves_the_other_slot_as_it_was") {
        return;
    }
    configure();
    // Takes the one large slot that is given away freely.
    object_in_slot(200 << 10);
    let mut refused = 0;
    for nth in 0..8 {
        let p = object_in_slot(1 << 20);
        // As if huge pages had been asked for, which not every machine has.
        arena::slot_of(p).0.asked_from.store(1, SeqCst);
        let moves = crate::stats().page_moves;
        inject(nth, i64::MAX);
        // SAFETY: the object is used as it was allocated.
        let grown = unsafe { raw::realloc(p, 256 << 20) };
        fault::COUNTDOWN.store(-1, SeqCst);
        refused += u32::from(crate::stats().page_moves == moves);
        let mut clean = arena::slots().filter(|(slot, ..)| slot.state.load(SeqCst) == arena::CLEAN);
        let plain = clean.all(|(slot, ..)| slot.asked_from.load(SeqCst) == arena::NOWHERE);
        assert!(plain, "call {nth} refused");
        check(grown, 1 << 20);
        // SAFETY: as above.
        unsafe { raw::free(grown) };
        raw::trim();
    }
    assert!(refused > 0, "nothing is tested");
}

/// While somebody has a slot for the time of a system call, its owner does not keep a processor busy,
/// for which the other may be waiting.
#[test]
fn who_waits_for_a_slot_sleeps() {
    if ends_well_elsewhere("who_waits_for_a_slot_sleeps") {
        return;
    }
    configure();
    // SAFETY: a structure of numbers, valid for a write.
    let sleeps = || unsafe {
        let mut usage: libc::rusage = core::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &mut usage);
        usage.ru_nvcsw
    };
    // SAFETY: the object is used as it was allocated.
    unsafe {
        let p = raw::malloc(1 << 20);
        assert!(raw::owns(p));
        let (slot, _) = arena::slot_of(p);
        slot.state.store(arena::TRIMMING, SeqCst);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(std::time::Duration::from_millis(300));
                slot.state.store(arena::LIVE, SeqCst);
            });
            let before = sleeps();
            raw::free(p);
            assert!(sleeps() - before >= 10, "{}", sleeps() - before);
        });
    }
}

/// A handler that resizes an object would wait for ever for who it has interrupted.
#[test]
fn who_gives_back_what_is_retained_is_not_interrupted() {
    static BLOCKED: AtomicI64 = AtomicI64::new(-1);
    fn look() {
        // SAFETY: the set is valid for a write, and then initialised.
        unsafe {
            let mut set = core::mem::zeroed();
            libc::pthread_sigmask(libc::SIG_BLOCK, core::ptr::null(), &mut set);
            BLOCKED.store(i64::from(libc::sigismember(&set, libc::SIGUSR1)), SeqCst);
        }
    }
    if ends_well_elsewhere("who_gives_back_what_is_retained_is_not_interrupted") {
        return;
    }
    configure();
    raw::trim();
    // SAFETY: the object is used as it was allocated; the child only leaves.
    unsafe {
        let p = raw::malloc(20 << 20);
        assert!(raw::owns(p));
        mark(p, 0, 20 << 20);
        raw::free(p);
        fault::AFTER.store(look as fn() as usize, SeqCst);
        if libc::fork() == 0 {
            libc::_exit(0);
        }
    }
    assert_eq!(BLOCKED.load(SeqCst), 1, "whether a fork blocks signals for it");
}
