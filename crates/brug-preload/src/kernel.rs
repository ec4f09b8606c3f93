// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls by this library's own hand.
//!
//! A program in C may have functions of its own named like any that the C standard does not reserve:
//! lzop has a `sysinfo` that prints, perf a `sched_getcpu`. The loader would bind this library's calls
//! to these, as it binds everybody's; the C library calls its own by other names. So the
//! linker (`build.rs`) turns these names, wherever mimalloc or brug
//! call them, into `__wrap_` and the name, which are defined here. Neither are they seen by other libraries
//! that are preloaded: what an allocator does is no business of those. `open` alone is called by its name: a
//! test tells the allocator by it what the kernel is set to.

use core::arch::asm;
use core::ffi::{c_int, c_long, c_uint};

/// What the kernel answers: errors are negative.
///
/// # Safety
/// As the call.
unsafe fn kernel(number: c_long, words: [usize; 6]) -> c_long {
    let [a, b, c, d, e, f] = words;
    let answer: c_long;
    // SAFETY: the caller's promise.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        asm!("syscall", inlateout("rax") number => answer, in("rdi") a, in("rsi") b, in("rdx") c,
            in("r10") d, in("r8") e, in("r9") f, lateout("rcx") _, lateout("r11") _,
            options(nostack));
        #[cfg(target_arch = "aarch64")]
        asm!("svc 0", in("x8") number, inlateout("x0") a as c_long => answer, in("x1") b, in("x2") c,
            in("x3") d, in("x4") e, in("x5") f, options(nostack));
    }
    answer
}

/// The answer as the C library gives it: -1, and `errno`.
unsafe fn ask(number: c_long, words: [usize; 6]) -> c_long {
    // SAFETY: the caller's promise.
    let answer = unsafe { kernel(number, words) };
    if (-4095..0).contains(&answer) {
        brug::raw::set_errno(-answer as c_int);
        return -1;
    }
    answer
}

const HERE: usize = libc::AT_FDCWD as usize;

/// Functions `name(words) = number(arguments)`, and the symbols that the linker turns `name` into. A word that the
/// caller did not pass is one that the kernel does not look at.
macro_rules! calls {
    ($($name:ident($($word:ident),*) = $number:ident($($argument:expr),*);)*) => {$(
        unsafe extern "C" fn $name($($word: usize),*) -> c_long {
            let mut words = [0; 6];
            let given: &[usize] = &[$($argument),*];
            words[..given.len()].copy_from_slice(given);
            // SAFETY: the caller's promise.
            unsafe { ask(libc::$number, words) }
        }
        symbol!($name);
    )*};
}

#[cfg(target_arch = "x86_64")]
macro_rules! jump {
    () => {
        "jmp {function}"
    };
}

#[cfg(target_arch = "aarch64")]
macro_rules! jump {
    () => {
        "b {function}"
    };
}

/// A symbol of a function that this library alone sees.
macro_rules! hidden {
    ($symbol:expr, $function:ident) => {
        core::arch::global_asm!(
            ".text",
            concat!(".hidden ", $symbol),
            concat!(".globl ", $symbol),
            concat!($symbol, ":"),
            jump!(),
            function = sym $function
        );
    };
}

macro_rules! symbol {
    ($name:ident) => {
        hidden!(concat!("__wrap_", stringify!($name)), $name);
    };
}

calls! {
    close(fd) = SYS_close(fd);
    fcntl(fd, command, word) = SYS_fcntl(fd, command, word);
    fstat64(fd, about) = SYS_fstat(fd, about);
    getpid() = SYS_getpid();
    getrlimit(which, limit) = SYS_prlimit64(0, which, 0, limit);
    gettid() = SYS_gettid();
    madvise(at, bytes, advice) = SYS_madvise(at, bytes, advice);
    mincore(at, bytes, seen) = SYS_mincore(at, bytes, seen);
    mmap(at, bytes, access, flags, fd, offset) = SYS_mmap(at, bytes, access, flags, fd, offset);
    mprotect(at, bytes, access) = SYS_mprotect(at, bytes, access);
    mremap(at, old, new, flags, to) = SYS_mremap(at, old, new, flags, to);
    munmap(at, bytes) = SYS_munmap(at, bytes);
    prctl(which, a, b, c, d) = SYS_prctl(which, a, b, c, d);
    read(fd, at, bytes) = SYS_read(fd, at, bytes);
    readlink(path, at, bytes) = SYS_readlinkat(HERE, path, at, bytes);
    sched_getscheduler(process) = SYS_sched_getscheduler(process);
    sched_setscheduler(process, policy, how) = SYS_sched_setscheduler(process, policy, how);
    stat64(path, about) = SYS_newfstatat(HERE, path, about, 0);
    sysinfo(about) = SYS_sysinfo(about);
    unlink(path) = SYS_unlinkat(HERE, path, 0);
    write(fd, at, bytes) = SYS_write(fd, at, bytes);
}

unsafe extern "C" fn syscall(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    // SAFETY: the caller's promise.
    unsafe { ask(number, [a, b, c, d, e, f]) }
}
symbol!(syscall);

/// The C library's own signals are left out where the set is used.
unsafe extern "C" fn sigfillset(set: *mut libc::sigset_t) -> c_int {
    // SAFETY: the caller's promise; a set is bits.
    unsafe { set.write_bytes(0xff, 1) };
    0
}
symbol!(sigfillset);

unsafe extern "C" fn sleep(seconds: c_uint) -> c_uint {
    let mut time = libc::timespec {
        tv_sec: seconds.into(),
        tv_nsec: 0,
    };
    let at = &raw mut time as usize;
    // SAFETY: the time is valid for a read, and for a write of what is left.
    match unsafe { kernel(libc::SYS_nanosleep, [at, at, 0, 0, 0, 0]) } {
        0 => 0,
        _ => time.tv_sec as c_uint,
    }
}
symbol!(sleep);

extern "C" {
    // The C library's own name.
    fn __sysconf(which: c_int) -> c_long;
}

unsafe extern "C" fn sysconf(which: c_int) -> c_long {
    // SAFETY: the caller's promise.
    unsafe { __sysconf(which) }
}
symbol!(sysconf);
