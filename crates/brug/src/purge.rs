// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long freed memory stays, and who gives it back.
//!
//! Freed slots keep their pages because faulting them in again is what large
//! objects spend their time on. They may keep so much together (the budget) and
//! so long (the delay). An idle process makes no calls, so a thread has to do the
//! giving back. It is started when more than 8 MiB is retained, and ends when
//! less is: programs that free little never have it, and nobody has it for long.
//! It touches no lock and allocates nothing. While no thread can be had, memory
//! beyond those 8 MiB is given back in the call that frees it; a second later, the
//! next such call tries again.

use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::{
    AtomicBool, AtomicU32, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

use crate::{arena, base, config, heap, os};

/// Bytes of memory that no object needs: in free slots, and beyond the objects
/// of the others.
pub(crate) static RETAINED: AtomicUsize = AtomicUsize::new(0);

/// Retained memory that needs no thread.
const KEEP: usize = 8 << 20;

const NONE: u32 = 0;
const RUNNING: u32 = 1;
const UNAVAILABLE: u32 = 2;
static THREAD: AtomicU32 = AtomicU32::new(NONE);
/// The time at which the last attempt to start the thread failed, in milliseconds, the low 32 bits.
static REFUSED_AT: AtomicU32 = AtomicU32::new(0);
/// Milliseconds before the next attempt, as each costs some system calls.
const TRY_AGAIN: u32 = 1000;
/// Whether that thread is there now, beyond doubt.
static ALIVE: AtomicBool = AtomicBool::new(false);

/// Set between the handlers of a fork of a process that has no thread of its own beside
/// the one that forks.
static ALONE: AtomicBool = AtomicBool::new(false);

/// The budget in bytes; 0 until it is known.
static BUDGET: AtomicUsize = AtomicUsize::new(0);

/// Whether a slot with so many bytes of memory may keep them.
pub(crate) fn may_keep(bytes: usize) -> bool {
    let retained = RETAINED.load(Relaxed).saturating_add(bytes);
    if config::current().purge_delay_ms == 0 {
        return false;
    }
    if retained <= KEEP {
        return config::current().retain != Some(0);
    }
    may_have_thread() && retained <= budget()
}

/// Returns true if there is a thread, or one can be tried.
fn may_have_thread() -> bool {
    if THREAD.load(Relaxed) != UNAVAILABLE {
        return true;
    }
    let since = (os::now_ms() as u32).wrapping_sub(REFUSED_AT.load(Relaxed));
    since >= TRY_AGAIN
        && THREAD
            .compare_exchange(UNAVAILABLE, NONE, Relaxed, Relaxed)
            .is_ok()
}

fn budget() -> usize {
    match BUDGET.load(Relaxed) {
        0 => {
            let bytes = config::current()
                .retain
                .unwrap_or_else(default_budget)
                .max(1);
            BUDGET.store(bytes, Relaxed);
            bytes
        }
        bytes => bytes,
    }
}

/// Forgets the budget after the configuration has changed.
pub(crate) fn reconfigure() {
    BUDGET.store(0, Relaxed);
}

/// An eighth of the memory this process can have.
fn default_budget() -> usize {
    os::keep_errno(|| {
        let mut info = MaybeUninit::<libc::sysinfo>::zeroed();
        // SAFETY: `info` is valid for writing; all zeros is a valid value.
        let info = unsafe {
            libc::sysinfo(info.as_mut_ptr());
            info.assume_init()
        };
        let memory = (info.totalram as usize).saturating_mul(info.mem_unit as usize);
        memory.min(os::cgroup_limit()) / 8
    })
}

/// Sees to it that retained memory is given back in time.
#[inline]
pub(crate) fn wake(retained: usize) {
    if retained > KEEP && THREAD.load(Relaxed) == NONE {
        start();
    }
}

#[cold]
fn start() {
    if THREAD
        .compare_exchange(NONE, RUNNING, AcqRel, Relaxed)
        .is_err()
    {
        return;
    }
    os::keep_errno(|| {
        at_fork();
        if !spawn() {
            REFUSED_AT.store(os::now_ms() as u32, Relaxed);
            THREAD.store(UNAVAILABLE, Release);
            if config::current().verbose {
                os::complain(format_args!(
                    "no thread for giving memory back; doing so at once for a second"
                ));
            }
            arena::drop_retained(0);
        }
    });
}

fn spawn() -> bool {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    let mut attr = MaybeUninit::<libc::pthread_attr_t>::uninit();
    let mut id = MaybeUninit::<libc::pthread_t>::uninit();
    // SAFETY: every object is initialised by the call before its use. The program's
    // signals are for its own threads, hence the mask that the thread inherits.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        libc::pthread_attr_init(attr.as_mut_ptr());
        libc::pthread_attr_setdetachstate(attr.as_mut_ptr(), libc::PTHREAD_CREATE_DETACHED);
        libc::pthread_attr_setstacksize(attr.as_mut_ptr(), 128 << 10);
        let mut error = libc::pthread_create(id.as_mut_ptr(), attr.as_ptr(), run, ptr::null_mut());
        if error == libc::EINVAL {
            // Much thread-local storage; take the default stack.
            libc::pthread_attr_destroy(attr.as_mut_ptr());
            libc::pthread_attr_init(attr.as_mut_ptr());
            libc::pthread_attr_setdetachstate(attr.as_mut_ptr(), libc::PTHREAD_CREATE_DETACHED);
            error = libc::pthread_create(id.as_mut_ptr(), attr.as_ptr(), run, ptr::null_mut());
        }
        libc::pthread_attr_destroy(attr.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut());
        error == 0
    }
}

extern "C" fn run(_: *mut c_void) -> *mut c_void {
    // SAFETY: a C string.
    unsafe { libc::prctl(libc::PR_SET_NAME, c"brug-purge".as_ptr()) };
    ALIVE.store(true, Release);
    let mut idle = 0;
    loop {
        let delay = config::current().purge_delay_ms;
        // What is older than half the delay goes every quarter: nothing stays longer
        // than three quarters of it, so all is gone when it is over.
        let nap = (delay / 4).max(1);
        let nap = libc::timespec {
            tv_sec: (nap / 1000).into(),
            tv_nsec: (nap % 1000 * 1_000_000).into(),
        };
        // SAFETY: `nap` is valid for reading.
        unsafe { libc::nanosleep(&nap, ptr::null_mut()) };
        arena::drop_retained(delay / 2);
        if RETAINED.load(Relaxed) > KEEP {
            idle = 0;
            continue;
        }
        idle += 1;
        if idle < 3 {
            continue;
        }
        ALIVE.store(false, Release);
        THREAD.store(NONE, Release);
        if RETAINED.load(Acquire) <= KEEP
            || THREAD
                .compare_exchange(NONE, RUNNING, AcqRel, Relaxed)
                .is_err()
        {
            return ptr::null_mut();
        }
        ALIVE.store(true, Release);
    }
}

/// Gives back now all memory that no object needs.
pub(crate) fn trim() {
    at_fork();
    arena::take_back();
}

/// Has the child of a fork put in order what its other threads left.
pub(crate) fn at_fork() {
    static DONE: AtomicBool = AtomicBool::new(false);
    // Miri knows no fork.
    if !cfg!(miri) && !DONE.swap(true, AcqRel) {
        extern "C" fn prepare() {
            let own = 1 + u64::from(ALIVE.load(Acquire));
            ALONE.store(os::keep_errno(os::threads) == Some(own), Relaxed);
        }
        extern "C" fn parent() {
            ALONE.store(false, Relaxed);
        }
        extern "C" fn child() {
            heap::after_fork_in_child();
        }
        // SAFETY: the handlers are async-signal-safe, as they must be. Should the list of
        // handlers be full, a child keeps what it inherits.
        unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
    }
}

/// In the child of a fork, which has one thread.
pub(crate) fn after_fork_in_child() {
    // A child's luck may be another one's.
    THREAD.store(NONE, Relaxed);
    ALIVE.store(false, Relaxed);
    arena::after_fork_in_child();
    if !ALONE.swap(false, Relaxed) {
        base::after_fork_among_threads();
    }
}
