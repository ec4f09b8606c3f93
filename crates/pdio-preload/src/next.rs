// SPDX-License-Identifier: MIT OR Apache-2.0
//! The C library's own functions, behind the ones that this library exports.
//!
//! Each is looked up when it is first called, which may be in a handler of a signal (see [`crate::symbols`]). Until then
//! its slot holds a function that looks it up, so that a call costs a load and a jump and needs no test.
//!
//! `open64` serves `open` as well: to the C library they are one. A library behind this one may stand in for one of
//! them alone (another library to preload, which wraps `fopen` and not `fopen64`). Then the slot holds a function that
//! goes by the name that the program has used, which the other name's export has noted ([`by_name`]).

use core::ffi::{c_char, c_int, c_long, c_uint, c_ulong, c_void, CStr};
use core::mem::transmute;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering::Relaxed};

use libc::{iovec, mode_t, off_t, pid_t, size_t, ssize_t};

use crate::{local, symbols};

/// What calls a function that this C library does not have.
pub unsafe extern "C" fn missing() -> c_long {
    crate::errno::set(libc::ENOSYS);
    -1
}

/// The next definition of a symbol after this library's. `name` ends with a zero byte.
pub fn lookup(name: &str) -> *mut () {
    let found = symbols::next(terminated(name), None);
    match found.is_null() {
        true => missing as *mut (),
        false => found,
    }
}

/// The name of a function, which ends with a zero byte.
pub fn terminated(name: &str) -> &CStr {
    debug_assert!(name.ends_with('\0'));
    // SAFETY: names of functions have no zero byte within.
    unsafe { CStr::from_bytes_with_nul_unchecked(name.as_bytes()) }
}

/// Some function stands behind this library under one of its two names alone.
static APART: AtomicBool = AtomicBool::new(false);

/// A number for both names of a function, with `64` and without; never zero.
fn family(name: &str) -> u64 {
    let letters = name.bytes().filter(|byte| !b"64".contains(byte));
    letters.fold(5381u64, |hash, byte| {
        hash.wrapping_mul(33).wrapping_add(byte.into())
    }) | 1
}

/// Returns true if a function of this name has another, as offsets are 64 bits wide under both.
const fn has_two_names(name: &str) -> bool {
    let bytes = name.as_bytes();
    let mut at = 1;
    while at < bytes.len() {
        if bytes[at - 1] == b'6' && bytes[at] == b'4' {
            return true;
        }
        at += 1;
    }
    false
}

/// Returns true if some function stands behind this library under one of its two names alone.
#[inline(always)]
pub fn are_apart() -> bool {
    APART.load(Relaxed)
}

/// Serves a call by this name, which is a function's other one.
#[cold]
pub fn by_name<T>(name: &str, call: impl FnOnce() -> T) -> T {
    let before = local::here(|local| local.named.replace(family(name)));
    let result = call();
    local::here(|local| local.named.set(before));
    result
}

/// Calls `next` with whether the program has called this function by its other name.
fn by_other_name<T>(name: &str, next: impl FnOnce(bool) -> T) -> T {
    let named = family(name);
    let by = local::here(|local| !local.inside.get() && local.named.get() == named);
    if !by {
        return next(false);
    }
    // What is behind may itself call this library.
    local::here(|local| local.named.set(0));
    let result = next(true);
    local::here(|local| local.named.set(named));
    result
}

/// The function of the other name, if another library has it than the one that has `name`.
fn apart(name: &str) -> Option<*mut ()> {
    let (before, after) = name.split_once("64")?;
    let mut other = [0; 32];
    let len = before.len() + after.len();
    other[..before.len()].copy_from_slice(before.as_bytes());
    other[before.len()..len].copy_from_slice(after.as_bytes());
    let other = CStr::from_bytes_with_nul(&other[..len]).ok()?;
    if !symbols::apart(terminated(name), other) {
        return None;
    }
    let found = symbols::next(other, None);
    (!found.is_null()).then_some(found)
}

/// Makes the functions of this file; the first five names are of what holds, finds and chooses them.
macro_rules! next {
    ($slots:ident, $first:ident, $both:ident, $chosen:ident, $find:ident: $(fn $name:ident($($arg:ident: $type:ty),*) -> $ret:ty;)*) => {
        mod $slots {
            use super::*;
            $(
                #[allow(non_upper_case_globals, reason = "named as the function")]
                pub static $name: AtomicPtr<()> = AtomicPtr::new($first::$name as *mut ());
            )*
        }
        mod $first {
            use super::*;
            $(
                pub unsafe extern "C-unwind" fn $name($($arg: $type),*) -> $ret {
                    $slots::$name.store(lookup(concat!(stringify!($name), "\0")), Relaxed);
                    // SAFETY: the slot now holds the function; the arguments are the caller's.
                    unsafe { super::$name($($arg),*) }
                }
            )*
        }
        mod $both {
            use super::*;
            $(
                #[allow(non_upper_case_globals, reason = "named as the function")]
                pub static $name: [AtomicPtr<()>; 2] =
                    [const { AtomicPtr::new(core::ptr::null_mut()) }; 2];
            )*
        }
        mod $chosen {
            use super::*;
            $(
                pub unsafe extern "C-unwind" fn $name($($arg: $type),*) -> $ret {
                    by_other_name(stringify!($name), |by| {
                        let function = $both::$name[usize::from(by)].load(Relaxed);
                        // SAFETY: the slot leads here once both are there, functions of this signature.
                        unsafe {
                            transmute::<*mut (), unsafe extern "C-unwind" fn($($type),*) -> $ret>(function)(
                                $($arg),*
                            )
                        }
                    })
                }
            )*
        }
        $(
            #[inline(always)]
            pub unsafe fn $name($($arg: $type),*) -> $ret {
                let function = $slots::$name.load(Relaxed);
                // SAFETY: the slot holds a function of this signature.
                unsafe {
                    transmute::<*mut (), unsafe extern "C-unwind" fn($($type),*) -> $ret>(function)(
                        $($arg),*
                    )
                }
            }
        )*
        fn $find() {
            $(
                if const { has_two_names(stringify!($name)) } {
                    let name = concat!(stringify!($name), "\0");
                    if let Some(other) = apart(name) {
                        $both::$name[0].store(lookup(name), Relaxed);
                        $both::$name[1].store(other, Relaxed);
                        $slots::$name.store($chosen::$name as *mut (), Relaxed);
                        APART.store(true, Relaxed);
                    }
                }
            )*
        }
    };
}

type Path = *const c_char;

next! {
    slot, first, both, chosen, find_functions:
    fn read(fd: c_int, data: *mut c_void, len: size_t) -> ssize_t;
    fn write(fd: c_int, data: *const c_void, len: size_t) -> ssize_t;
    fn pread64(fd: c_int, data: *mut c_void, len: size_t, at: off_t) -> ssize_t;
    fn pwrite64(fd: c_int, data: *const c_void, len: size_t, at: off_t) -> ssize_t;
    fn __read_chk(fd: c_int, data: *mut c_void, len: size_t, size: size_t) -> ssize_t;
    fn __pread64_chk(fd: c_int, data: *mut c_void, len: size_t, at: off_t, size: size_t) -> ssize_t;
    fn readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t;
    fn writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t;
    fn preadv64(fd: c_int, parts: *const iovec, count: c_int, at: off_t) -> ssize_t;
    fn pwritev64(fd: c_int, parts: *const iovec, count: c_int, at: off_t) -> ssize_t;
    fn preadv64v2(fd: c_int, parts: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t;
    fn pwritev64v2(fd: c_int, parts: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t;
    fn lseek64(fd: c_int, by: off_t, whence: c_int) -> off_t;

    fn open64(path: Path, flags: c_int, mode: mode_t) -> c_int;
    fn openat64(directory: c_int, path: Path, flags: c_int, mode: mode_t) -> c_int;
    fn __open64_2(path: Path, flags: c_int) -> c_int;
    fn __openat64_2(directory: c_int, path: Path, flags: c_int) -> c_int;
    fn creat64(path: Path, mode: mode_t) -> c_int;
    fn mkstemp64(template: *mut c_char) -> c_int;
    fn mkostemp64(template: *mut c_char, flags: c_int) -> c_int;
    fn mkstemps64(template: *mut c_char, suffix: c_int) -> c_int;
    fn mkostemps64(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int;
    fn fopen64(path: Path, mode: Path) -> *mut libc::FILE;
    fn freopen64(path: Path, mode: Path, file: *mut libc::FILE) -> *mut libc::FILE;
    fn close(fd: c_int) -> c_int;
    fn fclose(file: *mut libc::FILE) -> c_int;
    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int;
    fn dup(fd: c_int) -> c_int;
    fn dup2(fd: c_int, new: c_int) -> c_int;
    fn dup3(fd: c_int, new: c_int, flags: c_int) -> c_int;
    fn fcntl64(fd: c_int, command: c_int, argument: c_ulong) -> c_int;
    fn ioctl(fd: c_int, request: c_ulong, argument: c_ulong) -> c_int;

    fn fsync(fd: c_int) -> c_int;
    fn fdatasync(fd: c_int) -> c_int;
    fn sync() -> ();
    fn syncfs(fd: c_int) -> c_int;
    fn sync_file_range(fd: c_int, at: off_t, len: off_t, flags: c_uint) -> c_int;
    fn ftruncate64(fd: c_int, len: off_t) -> c_int;
    fn truncate64(path: Path, len: off_t) -> c_int;
    fn fallocate64(fd: c_int, mode: c_int, at: off_t, len: off_t) -> c_int;
    fn posix_fallocate64(fd: c_int, at: off_t, len: off_t) -> c_int;
    fn posix_fadvise64(fd: c_int, at: off_t, len: off_t, advice: c_int) -> c_int;
    fn readahead(fd: c_int, at: off_t, len: size_t) -> ssize_t;
    fn lockf64(fd: c_int, command: c_int, len: off_t) -> c_int;
    fn flock(fd: c_int, operation: c_int) -> c_int;

    fn fstat64(fd: c_int, out: *mut libc::stat64) -> c_int;
    fn stat64(path: Path, out: *mut libc::stat64) -> c_int;
    fn lstat64(path: Path, out: *mut libc::stat64) -> c_int;
    fn fstatat64(directory: c_int, path: Path, out: *mut libc::stat64, flags: c_int) -> c_int;
    fn statx(directory: c_int, path: Path, flags: c_int, mask: c_uint, out: *mut libc::statx) -> c_int;
    fn __fxstat64(version: c_int, fd: c_int, out: *mut libc::stat64) -> c_int;
    fn __xstat64(version: c_int, path: Path, out: *mut libc::stat64) -> c_int;
    fn __lxstat64(version: c_int, path: Path, out: *mut libc::stat64) -> c_int;
    fn __fxstatat64(version: c_int, directory: c_int, path: Path, out: *mut libc::stat64, flags: c_int) -> c_int;
    fn fstatfs64(fd: c_int, out: *mut libc::statfs64) -> c_int;

    fn fchmod(fd: c_int, mode: mode_t) -> c_int;
    fn fchown(fd: c_int, user: c_uint, group: c_uint) -> c_int;
    fn futimens(fd: c_int, times: *const c_void) -> c_int;
    fn futimes(fd: c_int, times: *const c_void) -> c_int;
    fn fsetxattr(fd: c_int, name: Path, value: *const c_void, len: size_t, flags: c_int) -> c_int;
    fn chmod(path: Path, mode: mode_t) -> c_int;
    fn lchmod(path: Path, mode: mode_t) -> c_int;
    fn fchmodat(directory: c_int, path: Path, mode: mode_t, flags: c_int) -> c_int;
    fn chown(path: Path, user: c_uint, group: c_uint) -> c_int;
    fn lchown(path: Path, user: c_uint, group: c_uint) -> c_int;
    fn fchownat(directory: c_int, path: Path, user: c_uint, group: c_uint, flags: c_int) -> c_int;
    fn utimensat(directory: c_int, path: Path, times: *const c_void, flags: c_int) -> c_int;
    fn utimes(path: Path, times: *const c_void) -> c_int;
    fn lutimes(path: Path, times: *const c_void) -> c_int;
    fn utime(path: Path, times: *const c_void) -> c_int;
    fn futimesat(directory: c_int, path: Path, times: *const c_void) -> c_int;
    fn setxattr(path: Path, name: Path, value: *const c_void, len: size_t, flags: c_int) -> c_int;
    fn lsetxattr(path: Path, name: Path, value: *const c_void, len: size_t, flags: c_int) -> c_int;
    fn rename(from: Path, to: Path) -> c_int;
    fn renameat(from_directory: c_int, from: Path, to_directory: c_int, to: Path) -> c_int;
    fn renameat2(from_directory: c_int, from: Path, to_directory: c_int, to: Path, flags: c_uint) -> c_int;
    fn link(from: Path, to: Path) -> c_int;
    fn linkat(from_directory: c_int, from: Path, to_directory: c_int, to: Path, flags: c_int) -> c_int;

    fn sendfile64(to: c_int, from: c_int, at: *mut off_t, len: size_t) -> ssize_t;
    fn splice(from: c_int, from_at: *mut off_t, to: c_int, to_at: *mut off_t, len: size_t, flags: c_uint) -> ssize_t;
    fn copy_file_range(from: c_int, from_at: *mut off_t, to: c_int, to_at: *mut off_t, len: size_t, flags: c_uint) -> ssize_t;
    fn mmap64(address: *mut c_void, len: size_t, protection: c_int, flags: c_int, fd: c_int, at: off_t) -> *mut c_void;
    fn sendmsg(socket: c_int, message: *const libc::msghdr, flags: c_int) -> ssize_t;
    fn sendmmsg(socket: c_int, messages: *mut libc::mmsghdr, count: c_uint, flags: c_int) -> c_int;
    fn recvmsg(socket: c_int, message: *mut libc::msghdr, flags: c_int) -> ssize_t;
    fn recvmmsg(socket: c_int, messages: *mut libc::mmsghdr, count: c_uint, flags: c_int, limit: *mut c_void) -> c_int;
    fn lio_listio64(mode: c_int, list: *const *mut c_void, count: c_int, event: *mut c_void) -> c_int;
    fn syscall(number: c_long, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong, e: c_ulong, f: c_ulong) -> c_long;

    fn open_by_handle_at(mount: c_int, handle: *mut c_void, flags: c_int) -> c_int;
    fn munmap(address: *mut c_void, len: size_t) -> c_int;
    fn mprotect(address: *mut c_void, len: size_t, protection: c_int) -> c_int;
    fn pkey_mprotect(address: *mut c_void, len: size_t, protection: c_int, key: c_int) -> c_int;
    fn mremap(address: *mut c_void, old: size_t, new: size_t, flags: c_int, to: *mut c_void) -> *mut c_void;
    fn madvise(address: *mut c_void, len: size_t, advice: c_int) -> c_int;
    fn shmdt(address: *const c_void) -> c_int;
    fn brk(end: *mut c_void) -> c_int;
    fn sbrk(by: isize) -> *mut c_void;
    fn unshare(flags: c_int) -> c_int;
    fn setns(fd: c_int, kind: c_int) -> c_int;
    fn chroot(path: Path) -> c_int;
    fn kill(process: pid_t, signal: c_int) -> c_int;
    fn sigaction(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int;
    fn signal(signal: c_int, handler: usize) -> usize;
    fn __sysv_signal(signal: c_int, handler: usize) -> usize;
    fn sigset(signal: c_int, handler: usize) -> usize;
    fn pause() -> c_int;
    fn sigsuspend(set: *const libc::sigset_t) -> c_int;
    fn siginterrupt(signal: c_int, yes: c_int) -> c_int;
    fn sigaltstack(new: *const libc::stack_t, old: *mut libc::stack_t) -> c_int;
    fn setrlimit64(resource: c_uint, limit: *const libc::rlimit64) -> c_int;
    fn prlimit64(process: pid_t, resource: c_uint, new: *const libc::rlimit64, old: *mut libc::rlimit64) -> c_int;
    fn prctl(option: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int;
}

/// Calls that make descriptors, as an argument of `$then`; in brackets what comes before and after.
macro_rules! makers {
    ($then:ident) => {
        $then! {
            fn socket(family: c_int, kind: c_int, protocol: c_int) -> c_int;
            fn socketpair(family: c_int, kind: c_int, protocol: c_int, pair: *mut c_int) -> c_int;
            [hand_over; heard] fn accept(socket: c_int, address: *mut c_void, len: *mut c_uint) -> c_int;
            [hand_over; heard] fn accept4(socket: c_int, address: *mut c_void, len: *mut c_uint, flags: c_int) -> c_int;
            fn pipe(pair: *mut c_int) -> c_int;
            fn __pipe(pair: *mut c_int) -> c_int;
            fn pipe2(pair: *mut c_int, flags: c_int) -> c_int;
            fn eventfd(value: c_uint, flags: c_int) -> c_int;
            fn epoll_create(size: c_int) -> c_int;
            fn epoll_create1(flags: c_int) -> c_int;
            fn signalfd(fd: c_int, set: *const c_void, flags: c_int) -> c_int;
            fn timerfd_create(clock: c_int, flags: c_int) -> c_int;
            fn inotify_init() -> c_int;
            fn inotify_init1(flags: c_int) -> c_int;
            fn fanotify_init(flags: c_uint, events: c_uint) -> c_int;
            fn memfd_create(name: *const c_char, flags: c_uint) -> c_int;
            [; heard] fn opendir(path: *const c_char) -> *mut c_void;
            fn tmpfile() -> *mut c_void;
            fn tmpfile64() -> *mut c_void;
            [hand_over; heard] fn shm_open(name: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int;
            fn posix_openpt(flags: c_int) -> c_int;
            [hand_over; heard] fn mq_open(name: *const c_char, flags: c_int, mode: libc::mode_t, attributes: *mut c_void) -> c_int;
            [hand_over; heard] fn __mq_open_2(name: *const c_char, flags: c_int) -> c_int;
        }
    };
}
pub(crate) use makers;

macro_rules! next_makers {
    ($($([$($before:ident)?; $after:ident])? fn $name:ident($($arg:ident: $type:ty),*) -> $ret:ty;)*) => {
        next! {
            maker_slot, first_maker, both_makers, chosen_maker, find_makers:
            $(fn $name($($arg: $type),*) -> $ret;)*
        }
    };
}

makers!(next_makers);

/// Looks which functions stand behind this library under one of their two names alone. Only other libraries that are
/// preloaded can make it so.
pub fn find_apart() {
    if symbols::is_followed() {
        find_functions();
        find_makers();
    }
}
