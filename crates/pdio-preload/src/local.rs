// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the library knows of each thread.
//!
//! Exported calls and handlers of signals look at it, so it has to be there in every thread, at any moment.
//! `std::thread_local!` goes through `__tls_get_addr`, which may allocate after a `dlopen`, also where a signal
//! has interrupted the allocator; and which needs the C library's table of thread-local storage. A thread that
//! the program has made by `clone`, with storage of its own, has none, but may make system calls by `syscall`.
//! Stable Rust cannot ask for the initial-exec model, so the variable is declared and addressed in assembly. It
//! starts as zeros in every thread.

use core::cell::Cell;

/// What is known of a thread.
#[repr(C, align(16))]
pub struct Local {
    /// It is inside this library: its calls are the library's own.
    pub inside: Cell<bool>,
    /// It works for the pdio crate alone.
    pub own: Cell<bool>,
    /// It was inside this library before it did: the handler of a fault there forks.
    pub before: Cell<bool>,
    /// It has lent its memory to a child, and may be that child.
    pub lent: Cell<bool>,
    /// A signal came that has to wait, and `blocked` says what the thread blocked before.
    pub waits: Cell<bool>,
    pub blocked: Cell<u64>,
    /// Which function was called by another name, or as a bare system call, and what it ends in: `next.rs`.
    pub named: Cell<usize>,
    pub other: Cell<usize>,
}

const _: () = assert!(size_of::<Local>() == 32);

core::arch::global_asm!(
    ".pushsection .tbss.pdio_local_v0, \"awT\", %nobits",
    ".p2align 4",
    ".hidden pdio_local_v0",
    ".globl pdio_local_v0",
    ".type pdio_local_v0, %object",
    ".size pdio_local_v0, 32",
    "pdio_local_v0:",
    ".zero 32",
    ".popsection",
);

#[inline(always)]
fn address() -> *const Local {
    let address: *const Local;
    // SAFETY: computes an address; reads the thread pointer and the table of offsets only.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        core::arch::asm!(
            "mov {address}, qword ptr fs:[0]",
            "add {address}, qword ptr [rip + pdio_local_v0@GOTTPOFF]",
            address = out(reg) address,
            options(pure, readonly, nostack)
        );
        #[cfg(target_arch = "aarch64")]
        core::arch::asm!(
            "mrs {thread}, tpidr_el0",
            "adrp {address}, :gottprel:pdio_local_v0",
            "ldr {address}, [{address}, :gottprel_lo12:pdio_local_v0]",
            "add {address}, {address}, {thread}",
            address = out(reg) address,
            thread = out(reg) _,
            options(pure, readonly, nostack, preserves_flags)
        );
    }
    address
}

/// Calls `look` with what is known of this thread.
#[inline(always)]
pub fn here<T>(look: impl FnOnce(&Local) -> T) -> T {
    // SAFETY: this thread's variable, which is there from its first to its last instruction, and which no other
    // thread gets from here.
    look(unsafe { &*address() })
}
