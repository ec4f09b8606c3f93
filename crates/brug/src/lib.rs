// SPDX-License-Identifier: MIT OR Apache-2.0
//! Adaptive memory allocator that grows objects in place instead of copying them.
#![no_std]

#[cfg(feature = "allocator-api2")]
mod allocator;
mod arena;
mod base;
mod config;
#[cfg(test)]
mod faults;
mod heap;
mod mode;
#[cfg(feature = "monitor")]
pub mod monitor;
mod os;
mod purge;
pub mod raw;
mod stats;
mod tls;
mod tuner;

use core::alloc::{GlobalAlloc, Layout};
use core::marker::PhantomData;

pub use config::{parse_size, Config, ShowStats, Thp};

pub use mode::{
    Base, Mode, ModeUnavailable, Template, TemplateBuilder, TemplateError, UnknownMode,
};
pub use stats::{stats, Stats};
pub use tuner::{tuner_report, TunerReport, TunerRow};

#[cfg(feature = "allocator-api2")]
pub use allocator::In;

/// The allocator.
///
/// ```
/// #[global_allocator]
/// static ALLOCATOR: brug::Brug = brug::Brug::new();
///
/// let mut log = Vec::new();
/// for i in 0..1_000_000u64 {
///     log.push(i); // grows without copying
/// }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Brug;

impl Brug {
    /// The one there is: the state is the process's.
    pub const fn new() -> Self {
        Brug
    }

    /// Changes the mode of the process, for objects allocated or moved from now on.
    /// Threads inside [`with_mode!`] follow when they leave it.
    ///
    /// # Errors
    /// The mode needs an allocator that this build lacks; nothing has changed.
    pub fn set_mode(mode: Mode) -> Result<(), ModeUnavailable> {
        heap::set_mode(mode)
    }

    /// The mode that the calling thread's next allocation follows.
    pub fn mode() -> Mode {
        heap::mode()
    }
}

// SAFETY: all methods return memory that is exclusive to the caller, of the size and
// alignment of the layout, and none unwinds.
unsafe impl GlobalAlloc for Brug {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: no preconditions.
        unsafe { heap::alloc(layout.size(), layout.align()) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: no preconditions.
        unsafe { heap::alloc_zeroed(layout.size(), layout.align()) }
    }

    #[inline]
    unsafe fn dealloc(&self, p: *mut u8, _layout: Layout) {
        // SAFETY: by contract.
        unsafe { heap::free(p) }
    }

    #[inline]
    unsafe fn realloc(&self, p: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: by contract.
        unsafe { heap::realloc(p, layout.size(), layout.align(), new_size) }
    }
}

/// A mode for the calling thread until the value is dropped. Scopes nest; drop them
/// in the reverse order. [`with_mode!`] does.
#[must_use = "the mode lasts until this is dropped"]
#[derive(Debug)]
pub struct Scope {
    before: u8,
    not_send: PhantomData<*mut ()>,
}

impl Scope {
    /// Begins a scope. In a build that lacks what `mode` needs it changes nothing.
    pub fn enter(mode: Mode) -> Scope {
        let mode = if mode.is_available() {
            mode
        } else {
            Brug::mode()
        };
        Scope {
            before: heap::enter(mode),
            not_send: PhantomData,
        }
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        heap::leave(self.before);
    }
}

/// Evaluates a block in which this thread's allocations follow a [`Mode`] (the
/// paper's Listing 1). Nests, and ends when the block is left in whatever way.
///
/// ```
/// use brug::{with_mode, Mode};
/// # #[global_allocator] static A: brug::Brug = brug::Brug::new();
/// let buffer = with_mode!(Mode::Mmap, { vec![0u8; 1 << 20] });
/// drop(buffer); // in any mode
/// ```
#[macro_export]
macro_rules! with_mode {
    ($mode:expr, $body:block) => {{
        let _scope = $crate::Scope::enter($mode);
        $body
    }};
}
