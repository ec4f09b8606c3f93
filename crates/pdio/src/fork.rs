// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a process notices that it is a forked child, and what it then begins anew.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::OnceLock;

/// The last fork generation, which a child inherits.
static GENERATION: AtomicU64 = AtomicU64::new(1);
static IN_CHILD: OnceLock<fn()> = OnceLock::new();

/// Has a child call `hook` when it notices that it is one. Only the first hook counts.
pub(crate) fn in_child(hook: fn()) {
    let _ = IN_CHILD.set(hook);
}

/// Changes in a child after `fork`. Streams remember theirs: what they hold then belongs to the
/// parent.
pub(crate) fn generation() -> u64 {
    static MARK: OnceLock<&AtomicU64> = OnceLock::new();
    // The kernel wipes the mark in every child, also in those of a bare `clone`.
    let mark = MARK.get_or_init(|| {
        let mark = crate::sys::wiped_in_children();
        mark.store(1, Ordering::Relaxed);
        mark
    });
    match mark.load(Ordering::Relaxed) {
        0 => {
            let new = GENERATION.load(Ordering::Relaxed) + 1;
            match mark.compare_exchange(0, new, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => {
                    GENERATION.store(new, Ordering::Relaxed);
                    if let Some(hook) = IN_CHILD.get() {
                        hook();
                    }
                    new
                }
                Err(other) => other,
            }
        }
        generation => generation,
    }
}

/// A value of each process's own. A forked child begins with a new one: the parent's may be locked by
/// a thread that the child does not have.
pub(crate) struct PerProcess<T: 'static> {
    current: AtomicPtr<(u64, T)>,
}

impl<T: Default + Sync> PerProcess<T> {
    pub(crate) const fn new() -> PerProcess<T> {
        PerProcess {
            current: AtomicPtr::new(null_mut()),
        }
    }

    pub(crate) fn get(&self) -> &'static T {
        loop {
            let current = self.current.load(Ordering::Acquire);
            // SAFETY: values are leaked, so a pointer once stored stays valid.
            if let Some((generation, value)) = unsafe { current.as_ref() } {
                if *generation == self::generation() {
                    return value;
                }
            }
            let new = Box::into_raw(Box::new((generation(), T::default())));
            if self
                .current
                .compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire)
                .is_err()
            {
                // SAFETY: never published, so still ours alone.
                drop(unsafe { Box::from_raw(new) });
            }
        }
    }
}
