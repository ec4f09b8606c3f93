// SPDX-License-Identifier: MIT OR Apache-2.0
//! What lower layers have done by those above: [`crate::all`] registers it as the library starts.
//! Before, nothing is taken, and there is nothing to do.

use core::sync::atomic::{AtomicPtr, Ordering::Acquire, Ordering::Release};

/// What is done with all streams.
pub struct Acts {
    /// Writes all waiting data: first that of streams whose last write has at most this number, in the
    /// order of these writes, then what came later.
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
