// SPDX-License-Identifier: MIT OR Apache-2.0
//! Modes of single threads, for as long as a scope lasts.
//!
//! While any thread is in a scope, all requests take the slow path, which asks for the thread's
//! mode. The fast paths open again some time after the last scope has ended.

use core::sync::atomic::{
    AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};

use crate::mode::Mode;
use crate::{tls, words};

/// Scopes that threads are in.
static SCOPES: AtomicUsize = AtomicUsize::new(0);

/// Returns true if any thread is in a scope.
pub(crate) fn any() -> bool {
    SCOPES.load(SeqCst) > 0
}

/// Puts the calling thread into `mode`; returns what to leave with.
pub(crate) fn enter(mode: Mode) -> u8 {
    words::ready();
    SCOPES.fetch_add(1, SeqCst);
    // Not before a change of the limits that may not have counted this scope has ended.
    words::wait_for_changes();
    if !words::hot().rest.scoped.load(Relaxed) {
        words::change(|| ());
    }
    // SAFETY: the calling thread's own.
    let local = unsafe { &*tls::local() };
    local.scopes.set(local.scopes.get().wrapping_add(1));
    local.scope.replace(mode as u8 + 1)
}

pub(crate) fn leave(before: u8) {
    // SAFETY: the calling thread's own.
    let local = unsafe { &*tls::local() };
    local.scope.set(before);
    local.scopes.set(local.scopes.get().wrapping_sub(1));
    SCOPES.fetch_sub(1, SeqCst);
}

/// In the child of a fork, which is in the scopes of its one thread.
pub(crate) fn after_fork_in_child() {
    // SAFETY: the calling thread's own.
    let own = unsafe { (*tls::local()).scopes.get() };
    SCOPES.store(own.into(), SeqCst);
}

/// Lets the fast paths be taken again some time after the last scope has ended. Not at
/// once: they are shut and opened by writes that every processor feels.
#[inline]
pub(crate) fn end_some_time() {
    // SAFETY: the calling thread's own.
    let calls = unsafe { &(*tls::local()).calls };
    calls.set(calls.get().wrapping_add(1));
    if calls.get() % 1024 == 0 && SCOPES.load(Relaxed) == 0 {
        words::change(|| ());
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::{println, sync::Barrier, thread};

    /// What other threads were in would never end there.
    #[test]
    fn a_child_is_in_the_scopes_of_its_thread_alone() {
        if cfg!(miri) {
            println!("skipped: Miri knows no fork");
            return;
        }
        #[cfg(feature = "preload")]
        crate::raw::prepare();
        let barrier = Barrier::new(2);
        thread::scope(|threads| {
            threads.spawn(|| {
                let before = enter(Mode::Mmap);
                barrier.wait();
                barrier.wait();
                leave(before);
            });
            barrier.wait();
            let before = enter(Mode::Sys);
            // SAFETY: the child uses what must work in it, and leaves by _exit.
            let status = unsafe {
                let child = libc::fork();
                if child == 0 {
                    let inside = any();
                    leave(before);
                    libc::_exit((!inside || any()).into());
                }
                let mut status = -1;
                libc::waitpid(child, &mut status, 0);
                status
            };
            leave(before);
            barrier.wait();
            assert_eq!(status, 0);
        });
    }
}
