// SPDX-License-Identifier: MIT OR Apache-2.0
//! The purge thread, which gives memory back.
//!
//! An idle process makes no calls, so a thread has to do it. It is started when more than 8 MiB is
//! retained, or when a large object with huge pages is about to be filled, which it watches
//! (`huge.rs`). It ends when neither is so: programs that free little, or of one thread and only once, never have
//! it, and no program has it for long. Until its end, for which the C library has locks, it touches none, and it
//! allocates nothing.
//!
//! A process whose main thread has left by `pthread_exit` ends with its last thread, which runs what
//! the program has registered with `atexit`. That must not be this one, with its small stack and its
//! signals blocked (but for `SIGSYS`: [`os::block_signals`]), and the program must not wait for it. So it looks
//! whether it is the last, and in that case leaves that to a thread like the program's own.

use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::{
    fence, AtomicI32, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
};

use crate::retain::{ENDED, KEEP, NONE, REFUSED_AT, RETAINED, RUNNING, THREAD, UNAVAILABLE, WOKEN};
use crate::{arena, config, huge, os, retain, words};

/// Maximum of milliseconds after which the thread looks whether it is the last.
const LOOK: u32 = 250;

/// Size of the thread's stack in bytes, without what is taken of it.
const STACK: usize = 128 << 10;

/// Number of that thread.
static NUMBER: AtomicI32 = AtomicI32::new(0);

/// When the last thread began to end, in milliseconds; 0, when the system began, if none has.
static LEFT: AtomicU64 = AtomicU64::new(0);

/// How many wait for the thread to end. Meanwhile none is started.
static STOP: AtomicU32 = AtomicU32::new(0);

/// Milliseconds that somebody waits at most.
const PATIENCE: u64 = 1000;

/// Ends the thread, if there is one, and what it would have given back goes back. For calls that a program may
/// only make while it has one thread. Returns true if there was one.
pub(crate) fn stop() -> bool {
    words::adopt();
    // Most forks find no thread, and need no system call to know. One that ends by itself is there for a moment more;
    // much later its number may be another's. The program may have gone to where the clock shows less.
    let may_be_ending = || os::now_ms().wrapping_sub(LEFT.load(Relaxed)) < PATIENCE;
    if (THREAD.load(Acquire) != RUNNING && !may_be_ending()) || words::is_borrowed() {
        return false;
    }
    os::keep_errno(|| {
        let until = os::now_ms() + PATIENCE;
        STOP.fetch_add(1, SeqCst);
        // Also while it has its last instructions before it, and may find something to do once more.
        let is_there = || THREAD.load(SeqCst) == RUNNING || os::is_thread(NUMBER.load(Acquire));
        while is_there() && os::now_ms() < until {
            WOKEN.fetch_add(1, Release);
            os::wake(&WOKEN);
            os::wait_a_moment();
        }
        STOP.fetch_sub(1, SeqCst);
    });
    true
}

/// To be called after what [`stop`] was for. Others that freed memory while the end of the thread was waited for got
/// none. With `true`, as the program had its thread before. For an object that is being filled the next growth starts
/// one: a program that forks may warn of threads right after it.
pub(crate) fn go_on() {
    retain::wake(RETAINED.load(SeqCst), true);
}

/// Starts the thread, if there is none. That of the child of a `vfork` would end with it, and its parent wait for it.
#[cold]
pub(crate) fn start() {
    if words::is_borrowed()
        || THREAD
            .compare_exchange(NONE, RUNNING, SeqCst, Relaxed)
            .is_err()
    {
        return;
    }
    while STOP.load(SeqCst) > 0 {
        // Who waits may have seen neither; and who no longer does has perhaps seen this one.
        THREAD.store(NONE, SeqCst);
        let waited_for = STOP.load(SeqCst) > 0;
        let again = || THREAD.compare_exchange(NONE, RUNNING, SeqCst, Relaxed);
        if waited_for || again().is_err() {
            return;
        }
    }
    os::keep_errno(|| {
        if !spawn() {
            REFUSED_AT.store(os::now_ms() as u32, Relaxed);
            THREAD.store(UNAVAILABLE, Release);
            if config::current().verbose {
                os::complain(format_args!(
                    "no purge thread to be had; for a second, memory goes back when it is freed"
                ));
            }
            arena::give_back();
        }
    });
}

fn spawn() -> bool {
    // The program's signals are for its own threads, hence the mask that the thread inherits.
    let before = os::block_signals();
    let mut attr = MaybeUninit::<libc::pthread_attr_t>::uninit();
    let mut id = MaybeUninit::<libc::pthread_t>::uninit();
    // SAFETY: every object is initialised by the call before its use, and there is no thread yet that reads the signals.
    let error = unsafe {
        (*PROGRAMS.0.get()).write(before);
        libc::pthread_attr_init(attr.as_mut_ptr());
        let stack = STACK + stack_taken(attr.as_ptr());
        libc::pthread_attr_setstacksize(attr.as_mut_ptr(), os::page_round(stack));
        let mut error = libc::pthread_create(id.as_mut_ptr(), attr.as_ptr(), run, ptr::null_mut());
        if error == libc::EINVAL {
            // Much thread-local storage, and a C library that does not say how much; take the default stack.
            libc::pthread_attr_destroy(attr.as_mut_ptr());
            libc::pthread_attr_init(attr.as_mut_ptr());
            error = libc::pthread_create(id.as_mut_ptr(), attr.as_ptr(), run, ptr::null_mut());
        }
        libc::pthread_attr_destroy(attr.as_mut_ptr());
        error
    };
    os::unblock_signals(&before);
    error == 0
}

/// Address of the C library's function that says how much of a stack is taken before the thread's first
/// instruction; 0: not looked up, or there is none.
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// Looks that function up, as the standard library does for its threads. To be called early, as it takes the
/// loader's lock.
pub(crate) fn prepare() {
    if !cfg!(miri) {
        // SAFETY: a C string.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__pthread_get_minstack".as_ptr()) };
        TAKEN.store(found as usize, Relaxed);
    }
}

/// Bytes of a thread's stack that are taken by the thread-local storage of the program and its libraries.
///
/// # Safety
/// `attr` is initialised.
unsafe fn stack_taken(attr: *const libc::pthread_attr_t) -> usize {
    type Ask = unsafe extern "C" fn(*const libc::pthread_attr_t) -> usize;
    match TAKEN.load(Relaxed) {
        0 => 0,
        // SAFETY: the function of that name has this type.
        ask => unsafe { core::mem::transmute::<usize, Ask>(ask)(attr) },
    }
}

/// Signal mask of the thread that started this one. Written before this one is there, and read by it.
struct Signals(UnsafeCell<MaybeUninit<libc::sigset_t>>);
// SAFETY: as above.
unsafe impl Sync for Signals {}
static PROGRAMS: Signals = Signals(UnsafeCell::new(MaybeUninit::uninit()));

/// What the thread does at its end.
fn end() -> *mut c_void {
    // SAFETY: `spawn` has written the signals, and nobody else waits for this thread.
    unsafe {
        let own = libc::pthread_self();
        let mut id = MaybeUninit::<libc::pthread_t>::uninit();
        let last = os::is_last_thread() && {
            os::unblock_signals((*PROGRAMS.0.get()).assume_init_ref());
            libc::pthread_create(id.as_mut_ptr(), ptr::null(), outlive, own as *mut c_void) == 0
        };
        if !last {
            libc::pthread_detach(own);
        }
    }
    ptr::null_mut()
}

/// Ends after the thread `other`.
extern "C" fn outlive(other: *mut c_void) -> *mut c_void {
    // SAFETY: its one other thread is waited for by nobody else.
    unsafe { libc::pthread_join(other as libc::pthread_t, ptr::null_mut()) };
    ptr::null_mut()
}

extern "C" fn run(_: *mut c_void) -> *mut c_void {
    let ordinary = libc::sched_param { sched_priority: 0 };
    // SAFETY: a C string, and a parameter that is valid for reading.
    unsafe {
        libc::prctl(libc::PR_SET_NAME, c"brug-purge".as_ptr());
        // Threads inherit it, and to give memory back takes milliseconds.
        if matches!(libc::sched_getscheduler(0), libc::SCHED_FIFO | libc::SCHED_RR) {
            libc::sched_setscheduler(0, libc::SCHED_OTHER, &ordinary);
        }
    }
    NUMBER.store(os::thread(), Release);
    let mut idle = 0;
    let mut due = 0;
    loop {
        let delay = config::current().purge_delay_ms;
        // What is older than half the delay goes every quarter: nothing stays longer
        // than three quarters of it, so all is gone when it is over.
        let nap = (delay / 4).max(1);
        if due == 0 {
            due = os::now_ms() + u64::from(nap);
        }
        let woken = WOKEN.load(Acquire);
        let left = due.saturating_sub(os::now_ms()) as u32;
        if left > 0 {
            let watching = huge::watching();
            if watching && !huge::look() {
                arena::huge_pages_lose();
            }
            os::sleep(&WOKEN, woken, if watching { huge::TICK } else { left.min(LOOK) });
            if STOP.load(Acquire) > 0 {
                leave();
                arena::drop_retained(0);
                return end();
            }
            if !watching && os::is_last_thread() {
                // The process ends; no other thread is started for what it frees on the way, and nobody waits for it.
                THREAD.store(ENDED, Release);
                return end();
            }
            continue;
        }
        due = 0;
        arena::drop_retained(delay / 2);
        if huge::watching() {
            idle = 0;
            continue;
        }
        if RETAINED.load(Relaxed) > KEEP {
            idle = 0;
            continue;
        }
        idle += 1;
        if idle < 3 {
            continue;
        }
        leave();
        if (RETAINED.load(Acquire) <= KEEP && !huge::watching())
            || THREAD
                .compare_exchange(NONE, RUNNING, AcqRel, Relaxed)
                .is_err()
        {
            return end();
        }
    }
}

/// Has others know that there is no thread. What is looked at afterwards has everything in it that others had freed
/// before they could know.
fn leave() {
    LEFT.store(os::now_ms(), Relaxed);
    THREAD.store(NONE, Release);
    fence(SeqCst);
}

/// In the child of a fork, which has no thread, and nobody who waits for it to end.
pub(crate) fn after_fork_in_child() {
    LEFT.store(0, Relaxed);
    STOP.store(0, Relaxed);
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::alone;
    use core::sync::atomic::AtomicBool;
    use std::time::{Duration, Instant};
    use std::{println, thread};

    /// Memory that is freed just when the thread ends is seen by it, or has another begin.
    #[test]
    fn what_is_freed_as_the_thread_ends_is_given_back() {
        const NAME: &str = "purge::tests::what_is_freed_as_the_thread_ends_is_given_back";
        const TRIES: u32 = 200_000;
        if cfg!(miri) {
            println!("skipped: Miri starts no other process");
            return;
        }
        if alone::job().is_none() {
            // It says that there is a thread where there is none.
            return alone::alone(NAME, "");
        }
        static TURN: AtomicU32 = AtomicU32::new(0);
        static DONE: AtomicU32 = AtomicU32::new(0);
        static NO_THREAD: AtomicBool = AtomicBool::new(false);
        let wait_for = |word: &AtomicU32, value| {
            while word.load(Acquire) < value {
                core::hint::spin_loop();
            }
        };
        thread::scope(|scope| {
            scope.spawn(|| {
                for n in 1..=TRIES {
                    wait_for(&TURN, n);
                    if TURN.load(Acquire) > TRIES {
                        return;
                    }
                    retain::more(2 * KEEP);
                    NO_THREAD.store(retain::has_no_thread(), Relaxed);
                    DONE.store(n, Release);
                }
            });
            // A busy machine may take long for each.
            let until = Instant::now() + Duration::from_secs(3);
            for n in 1..=TRIES {
                RETAINED.store(0, Relaxed);
                THREAD.store(RUNNING, Relaxed);
                TURN.store(n, Release);
                for step in 0..n % 64 {
                    core::hint::black_box(step);
                }
                leave();
                let seen = RETAINED.load(Acquire) > KEEP;
                wait_for(&DONE, n);
                if !seen && !NO_THREAD.load(Relaxed) || Instant::now() > until {
                    TURN.store(TRIES + 1, Release);
                    assert!(seen || NO_THREAD.load(Relaxed), "nobody has seen it in try {n}");
                    return;
                }
            }
        });
    }

    /// Whoever forks would wait for one after the other.
    #[test]
    fn none_begins_while_its_end_is_waited_for() {
        const NAME: &str = "purge::tests::none_begins_while_its_end_is_waited_for";
        if cfg!(miri) {
            println!("skipped: Miri starts no other process");
            return;
        }
        if alone::job().is_none() {
            return alone::alone(NAME, "");
        }
        crate::raw::config();
        STOP.store(1, SeqCst);
        start();
        assert_eq!(THREAD.load(SeqCst), NONE);
        STOP.store(0, SeqCst);
        start();
        // It says its number; what it does then is its own affair.
        let end = Instant::now() + Duration::from_secs(60);
        while NUMBER.load(Acquire) == 0 {
            assert!(Instant::now() < end, "none began");
            thread::yield_now();
        }
    }

    /// Also if another could not be started since. In another namespace the clock may show less than when it left.
    #[test]
    fn a_thread_that_is_ending_is_waited_for_and_no_other() {
        const NAME: &str = "purge::tests::a_thread_that_is_ending_is_waited_for_and_no_other";
        if cfg!(miri) {
            println!("skipped: Miri starts no other process");
            return;
        }
        if alone::job().is_none() {
            return alone::alone(NAME, "");
        }
        crate::raw::config();
        for state in [NONE, UNAVAILABLE, ENDED] {
            THREAD.store(state, SeqCst);
            let stops = |since: u64| {
                LEFT.store(os::now_ms().wrapping_sub(since), SeqCst);
                stop()
            };
            // A busy machine may take so long that it has ended.
            assert!((0..60).any(|_| stops(0)), "{state}");
            assert!(!stops(2 * PATIENCE), "{state}");
            assert!(!stops((60 * PATIENCE).wrapping_neg()), "{state}");
        }
    }

    /// Another thread of the parent was waiting for that; in the child each thread would end as soon as it began.
    #[test]
    fn a_child_does_not_want_its_thread_to_end() {
        if cfg!(miri) {
            println!("skipped: Miri knows no fork");
            return;
        }
        crate::raw::config();
        #[cfg(feature = "preload")]
        crate::raw::prepare();
        STOP.store(1, Release);
        // SAFETY: the child leaves by _exit.
        let status = unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::_exit((STOP.load(Acquire) > 0).into());
            }
            let mut status = -1;
            libc::waitpid(child, &mut status, 0);
            status
        };
        STOP.store(0, Release);
        assert_eq!(status, 0);
    }
}
