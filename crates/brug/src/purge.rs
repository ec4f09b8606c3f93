// SPDX-License-Identifier: MIT OR Apache-2.0
//! The thread that gives memory back.
//!
//! An idle process makes no calls, so a thread has to do it. It is started when more than 8 MiB is
//! retained, or when a large object with huge pages is about to be filled, which it watches
//! (`huge.rs`). It ends when neither is so: programs that free little never have it, and no program
//! has it for long. It touches no lock and allocates nothing.

use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::{
    AtomicBool,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

use crate::retain::{KEEP, NONE, REFUSED_AT, RETAINED, RUNNING, THREAD, UNAVAILABLE, WOKEN};
use crate::{arena, config, huge, os};

/// True if that thread is there now, beyond doubt.
static ALIVE: AtomicBool = AtomicBool::new(false);

/// Starts the thread, if there is none.
#[cold]
pub(crate) fn start() {
    if THREAD
        .compare_exchange(NONE, RUNNING, AcqRel, Relaxed)
        .is_err()
    {
        return;
    }
    os::keep_errno(|| {
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
            os::sleep(&WOKEN, woken, if watching { huge::TICK } else { left });
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
        ALIVE.store(false, Release);
        THREAD.store(NONE, Release);
        if (RETAINED.load(Acquire) <= KEEP && !huge::watching())
            || THREAD
                .compare_exchange(NONE, RUNNING, AcqRel, Relaxed)
                .is_err()
        {
            return ptr::null_mut();
        }
        ALIVE.store(true, Release);
    }
}

/// Threads of the allocator that are there now.
pub(crate) fn threads() -> u64 {
    u64::from(ALIVE.load(Acquire))
}

/// In the child of a fork, which has no thread.
pub(crate) fn after_fork_in_child() {
    ALIVE.store(false, Relaxed);
}
