// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two words of thread-local storage.
//!
//! An allocator cannot use `std::thread_local!` here: in a preloaded library its
//! accesses go through `__tls_get_addr`, which may itself allocate after a
//! `dlopen` and recurse. Stable Rust cannot ask for the initial-exec model, so
//! the variable is declared and addressed in assembly: two instructions, no
//! call, no lazy initialisation, no destructor. It starts as zeros in every
//! thread and is valid from its first to its last instruction. 16 bytes fit into
//! the static TLS surplus that the loader keeps for libraries opened later.

use core::cell::Cell;

/// What a thread remembers.
#[repr(C, align(16))]
pub(crate) struct Local {
    /// 0, or 1 + the mode of the innermost scope.
    pub(crate) scope: Cell<u8>,
    /// Scopes that the thread is in.
    pub(crate) scopes: Cell<u16>,
    /// Counts reallocations on the slow path, of which some are timed.
    pub(crate) ticks: Cell<u32>,
    /// Counts allocations while there are scopes, and objects that could be left aside
    /// (`tuner.rs`).
    pub(crate) calls: Cell<u32>,
    /// True if the monitor is looking for its caller.
    #[cfg_attr(not(feature = "monitor"), allow(dead_code))]
    pub(crate) unwinding: Cell<bool>,
    /// Counts small objects before a trial (`trial.rs`).
    pub(crate) requests: Cell<u8>,
    /// True while the thread asks the system whether memory counts when it is committed.
    pub(crate) asking: Cell<bool>,
}

#[cfg(not(miri))]
const _: () = assert!(core::mem::size_of::<Local>() == 16);

#[cfg(not(miri))]
core::arch::global_asm!(
    ".pushsection .tbss.brug_local_v0, \"awT\", %nobits",
    ".p2align 4",
    ".hidden brug_local_v0",
    ".globl brug_local_v0",
    ".type brug_local_v0, %object",
    ".size brug_local_v0, 16",
    "brug_local_v0:",
    ".zero 16",
    ".popsection",
);

/// The calling thread's words. They must not be used from another thread.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
pub(crate) fn local() -> *const Local {
    let p: *const Local;
    // SAFETY: computes an address; reads the thread pointer and the GOT only.
    unsafe {
        core::arch::asm!(
            "mov {p}, qword ptr fs:[0]",
            "add {p}, qword ptr [rip + brug_local_v0@GOTTPOFF]",
            p = out(reg) p,
            options(pure, readonly, nostack)
        );
    }
    p
}

/// The calling thread's words. They must not be used from another thread.
#[cfg(all(target_arch = "aarch64", not(miri)))]
#[inline]
pub(crate) fn local() -> *const Local {
    let p: *const Local;
    // SAFETY: computes an address; reads the thread pointer and the GOT only.
    unsafe {
        core::arch::asm!(
            "mrs {t}, tpidr_el0",
            "adrp {p}, :gottprel:brug_local_v0",
            "ldr {p}, [{p}, :gottprel_lo12:brug_local_v0]",
            "add {p}, {p}, {t}",
            p = out(reg) p,
            t = out(reg) _,
            options(pure, readonly, nostack, preserves_flags)
        );
    }
    p
}

#[cfg(miri)]
pub(crate) fn local() -> *const Local {
    extern crate std;
    std::thread_local! {
        static LOCAL: Local = const { Local { scope: Cell::new(0), scopes: Cell::new(0), ticks: Cell::new(0), calls: Cell::new(0), unwinding: Cell::new(false), requests: Cell::new(0), asking: Cell::new(false) } };
    }
    LOCAL.with(core::ptr::from_ref)
}

/// The number of what the calling thread does.
#[inline]
pub(crate) fn ticks() -> u32 {
    // SAFETY: the calling thread's words.
    unsafe { (*local()).ticks.get() }
}

/// Numbers what the calling thread does next.
#[inline]
pub(crate) fn tick() -> u32 {
    // SAFETY: the calling thread's words.
    unsafe {
        let ticks = &(*local()).ticks;
        let tick = ticks.get().wrapping_add(1);
        ticks.set(tick);
        tick
    }
}
