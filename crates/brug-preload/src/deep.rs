// SPDX-License-Identifier: MIT OR Apache-2.0
//! `dlopen`, in front of the C library's, without `RTLD_DEEPBIND`.
//!
//! A library that is opened so (PHP opens its extensions so) finds the C library's `malloc` and `free` before this
//! library's. What it frees of the program's objects, and the program of its objects, would be the other's, and the
//! process would end or go on with a damaged heap. With `BRUG_ALLOC=sys` all objects are the C library's, so there it may.
//!
//! The C library looks at the address that it returns to, to know who opens: so what is behind is jumped to.

use core::arch::naked_asm;
use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};

use brug::{raw, Mode};

/// The `dlopen` that this library's stands in front of; 0 until it is needed.
static NEXT: AtomicUsize = AtomicUsize::new(0);
/// The flags that are passed on.
static FLAGS: AtomicU32 = AtomicU32::new(!(libc::RTLD_DEEPBIND as u32));

/// Leaves the flags as they are where all objects are the C library's.
#[link_section = ".text.startup.brug"]
pub(crate) fn prepare() {
    if raw::config().mode == Mode::Sys {
        FLAGS.store(!0, Relaxed);
    }
}

/// Looks it up; 0 if there is none.
#[cold]
extern "C" fn find() -> usize {
    // SAFETY: a C string.
    let next = unsafe { libc::dlsym(libc::RTLD_NEXT, c"dlopen".as_ptr()) } as usize;
    NEXT.store(next, Relaxed);
    next
}

/// `dlopen(3)`.
///
/// # Safety
/// As the function.
#[unsafe(naked)]
#[no_mangle]
pub unsafe extern "C" fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void {
    #[cfg(target_arch = "x86_64")]
    naked_asm!(
        "and esi, dword ptr [rip + {flags}]",
        "mov rax, qword ptr [rip + {next}]",
        "test rax, rax",
        "jnz 2f",
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "call {find}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "test rax, rax",
        "jz 3f",
        "2:",
        "jmp rax",
        "3:",
        "ret",
        flags = sym FLAGS,
        next = sym NEXT,
        find = sym find,
    );
    #[cfg(target_arch = "aarch64")]
    naked_asm!(
        "adrp x9, {flags}",
        "ldr w9, [x9, :lo12:{flags}]",
        "and w1, w1, w9",
        "adrp x16, {next}",
        "ldr x16, [x16, :lo12:{next}]",
        "cbnz x16, 2f",
        "stp x29, x30, [sp, #-32]!",
        "stp x0, x1, [sp, #16]",
        "bl {find}",
        "mov x16, x0",
        "ldp x0, x1, [sp, #16]",
        "ldp x29, x30, [sp], #32",
        "cbz x16, 3f",
        "2:",
        "br x16",
        "3:",
        "mov x0, xzr",
        "ret",
        flags = sym FLAGS,
        next = sym NEXT,
        find = sym find,
    );
}
