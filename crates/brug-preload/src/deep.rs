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
use core::mem;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};

use brug::{raw, Mode};

/// The `dlopen` that this library's stands in front of; 0 until it is known.
static NEXT: AtomicUsize = AtomicUsize::new(0);
/// The flags that are passed on.
static FLAGS: AtomicU32 = AtomicU32::new(!(libc::RTLD_DEEPBIND as u32));

/// Looks it up.
#[link_section = ".text.startup.brug"]
pub(crate) fn prepare() {
    if raw::config().mode == Mode::Sys {
        FLAGS.store(!0, Relaxed);
    }
    find();
}

#[link_section = ".text.startup.brug"]
fn find() -> usize {
    // SAFETY: a C string.
    let next = unsafe { libc::dlsym(libc::RTLD_NEXT, c"dlopen".as_ptr()) } as usize;
    NEXT.store(next, Relaxed);
    next
}

/// Before the library's constructor has run.
unsafe extern "C" fn open_first(path: *const c_char, flags: c_int) -> *mut c_void {
    type Dlopen = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;
    match find() {
        0 => core::ptr::null_mut(),
        // SAFETY: this is its type, and the caller's promise.
        next => unsafe { mem::transmute::<usize, Dlopen>(next)(path, flags) },
    }
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
        "jz {first}",
        "jmp rax",
        flags = sym FLAGS,
        next = sym NEXT,
        first = sym open_first,
    );
    #[cfg(target_arch = "aarch64")]
    naked_asm!(
        "adrp x9, {flags}",
        "ldr w9, [x9, :lo12:{flags}]",
        "and w1, w1, w9",
        "adrp x16, {next}",
        "ldr x16, [x16, :lo12:{next}]",
        "cbz x16, 2f",
        "br x16",
        "2:",
        "b {first}",
        flags = sym FLAGS,
        next = sym NEXT,
        first = sym open_first,
    );
}
