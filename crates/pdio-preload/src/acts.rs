// SPDX-License-Identifier: MIT OR Apache-2.0
//! What lower layers have done by those above: [`crate::stream`] registers it as the library starts.
//! Before, nothing is taken, and there is nothing to do.

use core::sync::atomic::{AtomicPtr, Ordering::Acquire, Ordering::Release};

/// What is done with all streams.
pub struct Acts {
    /// Makes the kernel have what waits, in the order of the last writes up to the one that is given,
    /// and what was written meanwhile.
    pub hand_over: fn(u64),
    /// Makes the kernel's offset of standard input and output right from here on.
    pub keep_step: fn(),
    /// Hands all writing streams back, for this reason.
    pub relinquish_writers: fn(&str),
    /// In a handler of a signal that ends the process: writes what streams hold, without allocating.
    pub rescue: fn(),
}

static ACTS: AtomicPtr<Acts> = AtomicPtr::new(core::ptr::null_mut());

pub fn register(acts: &'static Acts) {
    ACTS.store(core::ptr::from_ref(acts).cast_mut(), Release);
}

/// May be called by the handler of a signal.
pub fn all() -> Option<&'static Acts> {
    // SAFETY: null, or what lives for ever and is never written.
    unsafe { ACTS.load(Acquire).as_ref() }
}
