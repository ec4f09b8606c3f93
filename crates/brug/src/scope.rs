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
    unsafe { (*tls::local()).scope.replace(mode as u8 + 1) }
}

pub(crate) fn leave(before: u8) {
    // SAFETY: the calling thread's own.
    unsafe { (*tls::local()).scope.set(before) };
    SCOPES.fetch_sub(1, SeqCst);
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
