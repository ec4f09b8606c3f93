// SPDX-License-Identifier: MIT OR Apache-2.0
//! The three functions that are called all the time, in the fewest instructions.
//!
//! Most calls are the C library's, and all there is to do is to see that they are: compare,
//! branch, jump. The compiler takes a fourth instruction to load what it compares with, because
//! other threads may write it.
//!
//! On arm64 there is only `malloc`, which like here tells the rest who calls it.

use core::arch::naked_asm;
use core::ffi::c_void;

use brug::raw;
#[cfg(target_arch = "x86_64")]
use brug::raw::limits;

/// Has a function begin with a cache line, as its section has it: else how fast it is depends on what is in front.
#[cfg(target_arch = "x86_64")]
macro_rules! aligned {
    () => {
        ".p2align 6"
    };
}

/// `malloc(3)`.
///
/// # Safety
/// None: it is `unsafe` as the standard library declares it.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[no_mangle]
pub unsafe extern "C" fn malloc(size: usize) -> *mut c_void {
    naked_asm!(
        "cmp rdi, qword ptr [rip + brug_hot_v0 + {limit}]",
        "ja 2f",
        "jmp qword ptr [rip + __libc_malloc@GOTPCREL]",
        "2:",
        "mov eax, {align}",
        "cmp rdi, rax",
        "cmova rax, rdi",
        "cmp rax, qword ptr [rip + brug_hot_v0 + {others}]",
        "ja 3f",
        "cmp rax, {loader}",
        "jae 3f",
        "mov rdi, rax",
        "jmp qword ptr [rip + brug_hot_v0 + {alloc}]",
        "3:",
        "mov rsi, qword ptr [rsp]",
        "jmp {rest}",
        aligned!(),
        limit = const limits::MALLOC,
        align = const limits::ALIGN,
        others = const limits::OTHERS,
        loader = const limits::LOADER,
        alloc = const limits::ALLOC,
        rest = sym malloc_rest,
    )
}

/// `malloc(3)`.
///
/// # Safety
/// None: it is `unsafe` as the standard library declares it.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
#[no_mangle]
pub unsafe extern "C" fn malloc(size: usize) -> *mut c_void {
    naked_asm!("mov x1, x30", "b {rest}", rest = sym malloc_rest)
}

/// `caller`: the address to return to.
extern "C" fn malloc_rest(size: usize, caller: usize) -> *mut c_void {
    // SAFETY: any size is allowed.
    unsafe { raw::malloc_for(caller, size).cast() }
}

/// `free(3)`. Keeps `errno`.
///
/// # Safety
/// As [`realloc`].
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[no_mangle]
pub unsafe extern "C" fn free(object: *mut c_void) {
    naked_asm!(
        "cmp rdi, qword ptr [rip + brug_hot_v0 + {below}]",
        "jae 2f",
        "1:",
        "jmp qword ptr [rip + __libc_free@GOTPCREL]",
        "2:",
        "cmp rdi, qword ptr [rip + brug_hot_v0 + {from}]",
        "jae 1b",
        "mov rax, rdi",
        "add rax, qword ptr [rip + brug_hot_v0 + {offset}]",
        "cmp rax, qword ptr [rip + brug_hot_v0 + {len}]",
        "jae 3f",
        "jmp qword ptr [rip + brug_hot_v0 + {free}]",
        "3:",
        "jmp {rest}",
        aligned!(),
        below = const limits::BELOW,
        from = const limits::FROM,
        offset = const limits::OFFSET,
        len = const limits::LEN,
        free = const limits::FREE,
        rest = sym free_rest,
    )
}

#[cfg(target_arch = "x86_64")]
unsafe extern "C" fn free_rest(object: *mut c_void) {
    // SAFETY: the caller's promise.
    unsafe { raw::free(object.cast()) }
}

/// `realloc(3)`. As in the C library, size 0 frees the object and returns null.
///
/// # Safety
/// `object` is null or was allocated by this family and not freed.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[no_mangle]
pub unsafe extern "C" fn realloc(object: *mut c_void, size: usize) -> *mut c_void {
    // What a null or a zero means is the C library's business as well.
    naked_asm!(
        "cmp rsi, qword ptr [rip + brug_hot_v0 + {size}]",
        "ja 2f",
        "cmp rdi, qword ptr [rip + brug_hot_v0 + {below}]",
        "jae 3f",
        "1:",
        "jmp qword ptr [rip + __libc_realloc@GOTPCREL]",
        "3:",
        "cmp rdi, qword ptr [rip + brug_hot_v0 + {from}]",
        "jae 1b",
        "2:",
        "mov r8, rdi",
        "sub r8, qword ptr [rip + {arena}]",
        "cmp r8, qword ptr [rip + brug_hot_v0 + {slots}]",
        "jae 4f",
        "test rsi, rsi",
        "jz 4f",
        "mov rcx, rsi",
        "mov edx, {align}",
        "mov rsi, {unknown}",
        "jmp {step}",
        "4:",
        "jmp {rest}",
        aligned!(),
        size = const limits::REALLOC,
        below = const limits::BELOW,
        from = const limits::FROM,
        arena = sym limits::ARENA,
        slots = const limits::SLOTS,
        align = const limits::ALIGN,
        unknown = const limits::UNKNOWN,
        step = sym limits::resize_in_slot,
        rest = sym realloc_rest,
    )
}

#[cfg(target_arch = "x86_64")]
unsafe extern "C" fn realloc_rest(object: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { raw::realloc(object.cast(), size).cast() }
}
