// SPDX-License-Identifier: MIT OR Apache-2.0
//! A memory allocator in which growing an object does not copy it.
//!
//! ```
//! #[global_allocator]
//! static ALLOCATOR: brug::Brug = brug::Brug::new();
//!
//! let mut samples = Vec::new();
//! for sample in 0..1_000_000_u64 {
//!     samples.push(sample); // from 128 KiB on it grows where it is
//! }
//! ```
//!
//! It follows W. Weng, A. Uta and J. S. Rellermeyer, *Brug: An Adaptive Memory (Re-)Allocator*,
//! CCGrid 2024, which times allocators while the program runs and moves each object to the one that
//! suits it.
//!
//! # The problem
//!
//! A buffer that grows past its place is copied: new memory, copy, free the old.
//! Size-class allocators (jemalloc, mimalloc) do this at every step beyond a page,
//! and a program that doubles a buffer to a gigabyte copies another gigabyte, holds
//! up to 1.5 GiB at once, and takes a page fault for each page of each
//! new place. The C library moves page tables instead of bytes (`mremap`) once an
//! object has a mapping of its own, but not before, not when others lie between,
//! and from Rust not when the object is aligned to more than 16 bytes.
//!
//! # The idea
//!
//! Address space costs nothing; there are 128 TiB of it. So an object that grows
//! gets a *slot*: gigabytes of reserved addresses in which it has its beginning and
//! grows by touching more. Nothing moves, no other processor has its TLB flushed,
//! and pointers into the object stay valid in the meantime. Small objects, which are
//! nearly all, stay with a *base allocator* made for them: the C library, jemalloc
//! or mimalloc.
//!
//! * The owner of an object follows from its address, never from the current mode:
//!   slots lie in one reservation, and so do the memories of jemalloc and mimalloc
//!   when they are used, each in its part. One compare tells them from the C
//!   library's. There is no header, no table, no lock, and any [`Mode`] can be set at
//!   any time while objects of all others live.
//! * An object enters a slot at its first reallocation past the switch point
//!   (128 KiB), or before that if it keeps growing and the tuner has found that
//!   moving pays, or at birth if it is born that large.
//! * What large objects cost is page faults, not calls. So a slot keeps its memory
//!   for the next object, within a budget and for less than
//!   [a second](Config::purge_delay_ms), and asks for huge pages for what its object grows
//!   by, beyond its first 2 MiB, where they turn out faster than small ones (`huge.rs`).
//!
//! # The ladder
//!
//! When the system says no, the next rung is taken, and [`stats()`] counts it:
//!
//! 1. grow in the slot (commit ahead, or exactly what is needed; if that is refused, once more
//!    after everything that no object needs was taken back, from all threads);
//! 2. the slot is full: move the page tables to a larger slot ([`Stats::no_slot`] and
//!    [`Stats::no_move`] if not);
//! 3. [no commit](Stats::no_commit), no slot, or [no arena](Stats::no_arena) at all:
//!    the base allocator, with one copy, which for the C library's large objects is
//!    `mremap` from then on;
//! 4. take back everything that no object needs and try once more;
//! 5. null. The object is what and where it was.
//!
//! # Limits
//!
//! * At most 7856 objects are in slots at a time, since each needs four to six of the
//!   65530 mappings a process has. The others stay in the base allocator.
//! * A slot in use costs a page table of each of two levels, 8 KiB, which no RSS shows.
//! * A large object may take a page more than its size, as in the C library, since it may begin within one.
//! * Up to 8 MiB of freed memory stay, if the [budget](Config::retain) is not less.
//! * A program that limits its own data (`setrlimit` with `RLIMIT_DATA`) tells by `raw::limits_changed`;
//!   what is committed ahead and retained would else be missing.
//! * While more than 8 MiB is retained there is one thread more, which gives it back, but not for what a program of
//!   one thread frees first, unless that has grown; and while more than 16 MiB is filled with huge pages, to see that they are not slow.
//!   Programs that must stay single-threaded (`unshare(CLONE_NEWUSER)`), or give up rights thread by thread
//!   (`capset`), call `raw::end_thread` before and, if that has ended one, `raw::begin_thread` after that, as `libbrug.so`
//!   does, or set `BRUG_PURGE_DELAY=0` or `BRUG_RETAIN=8M`.
//! * A program that ends itself at system calls it does not expect (`seccomp`) allows those of growth slots,
//!   or sets `BRUG_ALLOC=sys`, where there are none.
//! * A library (`cdylib`) with [`Brug`] stays in the process when it is closed. With the feature `jemalloc` a running
//!   program cannot open it: jemalloc's thread-local storage is more than the loader has room for by then, unless the
//!   program was begun with `GLIBC_TUNABLES=glibc.rtld.optional_static_tls=4096`.
//! * The child of `vfork` must not allocate, as with every allocator.
//! * A child forked while the process has other threads takes nothing more from mimalloc,
//!   whose locks one of them may have held: new objects come from the C library, and what
//!   the child frees of mimalloc's stays until it ends.
//! * Page tables move only on Linux 5.7 and later; before, rung 2 is left out.
//! * Linux on x86-64 and AArch64 only. Elsewhere [`Brug`] compiles to the platform's
//!   allocator, [`Mode`] has no effect, and `raw`, `Config` and `stats` do not exist.
//!
//! # Checking it
//!
//! `cargo test -p brug --features jemalloc,mimalloc,monitor,allocator-api2` runs the
//! model, the faults and the process tests; `lab/lab test --only brug` Miri, the
//! sanitizers, the fuzzer and aarch64 as well. For a longer run of the fuzzer:
//!
//! ```text
//! cargo +nightly fuzz run --fuzz-dir crates/brug/fuzz sequences
//! ```
#![no_std]

#[cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
macro_rules! slots {
    ($($item:item)*) => { $($item)* };
}
#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
macro_rules! slots {
    ($($item:item)*) => {};
}

/// The section of tables that a short program does not need: apart from the words that every
/// program writes, which then share a page.
macro_rules! tables {
    () => {
        ".data.brug_tables_v0"
    };
}

/// The section of functions that run when a program starts and ends. Linkers put them side by side, so
/// that few pages of the library are mapped for them.
macro_rules! startup {
    () => {
        ".text.startup.brug"
    };
}

mod mode;

slots! {
    #[cfg(feature = "allocator-api2")]
    mod allocator;
    #[cfg(test)]
    mod alone;
    mod arena;
    mod base;
    mod config;
    mod copied;
    mod control;
    mod counters;
    #[cfg(test)]
    mod faults;
    mod heap;
    mod huge;
    #[cfg(feature = "jemalloc")]
    mod jemalloc;
    #[cfg(feature = "mimalloc")]
    mod mimalloc;
    #[cfg(feature = "monitor")]
    pub mod monitor;
    mod os;
    mod purge;
    pub mod raw;
    mod realloc;
    mod retain;
    mod scope;
    mod stats;
    mod sys;
    mod tls;
    mod trial;
    mod tuner;
    mod words;

    #[cfg(feature = "allocator-api2")]
    pub use allocator::In;
    pub use config::{Config, Thp};
    pub use counters::Stats;
    pub use stats::stats;
    pub use tuner::{tuner_report, TunerReport, TunerRow};

    use control::set_mode;
    use heap::{alloc, alloc_zeroed, free_told, realloc};
    use scope::{enter, leave};
    use words::{base, mode};
}

#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
mod portable;
#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
use portable::{alloc, alloc_zeroed, base, enter, free_told, leave, mode, realloc, set_mode};

use core::alloc::{GlobalAlloc, Layout};
use core::marker::PhantomData;

pub use mode::{
    Base, Mode, ModeUnavailable, Template, TemplateBuilder, TemplateError, UnknownMode,
};

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

    /// The allocator that has the small objects now, in modes that leave it open.
    pub fn base() -> Base {
        base()
    }

    /// Changes the mode of the process, for objects allocated or moved from now on.
    /// Threads inside [`with_mode!`] follow when they leave it.
    ///
    /// # Errors
    /// The mode needs an allocator that this build lacks; nothing has changed.
    pub fn set_mode(mode: Mode) -> Result<(), ModeUnavailable> {
        set_mode(mode)
    }

    /// The mode that the calling thread's next allocation follows.
    pub fn mode() -> Mode {
        mode()
    }
}

// SAFETY: all methods return memory that is exclusive to the caller, of the size and
// alignment of the layout, and none unwinds.
unsafe impl GlobalAlloc for Brug {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: no preconditions.
        unsafe { alloc(layout.size(), layout.align()) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: no preconditions.
        unsafe { alloc_zeroed(layout.size(), layout.align()) }
    }

    #[inline]
    unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
        // SAFETY: by contract.
        unsafe { free_told(p, layout.size(), layout.align()) }
    }

    #[inline]
    unsafe fn realloc(&self, p: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: by contract.
        unsafe { realloc(p, layout.size(), layout.align(), new_size) }
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
            before: enter(mode),
            not_send: PhantomData,
        }
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        leave(self.before);
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
