// SPDX-License-Identifier: MIT OR Apache-2.0
//! The C library's own functions, behind the ones that this library exports.
//!
//! Each is looked up when it is first called, which may be in a handler of a signal (see [`crate::symbols`]). Until then
//! its slot holds a function that looks it up, so that a call costs a load and a jump and needs no test.
//!
//! `open64` serves `open` and `__open` as well: to the C library they are one. A library behind this one may stand in for
//! one of them alone: one that wraps `fopen` and not `fopen64`, or whose `sbrk` calls `__sbrk`. So the other name's export
//! looks, when it is first called, whether the same library has both ([`Alias`]). If not, it notes for the length of
//! its call what its own name leads to, and the slot holds a function that goes there. So it is with
//! `syscall`: where a call is exported as a function as well, that function ends in the bare call ([`bare`]).

use core::ffi::{c_char, c_int, c_long, c_uint, c_ulong, c_void, CStr};
use core::mem::transmute;
use core::ptr;
use core::sync::atomic::{
    AtomicPtr,
    Ordering::{Acquire, Relaxed, Release},
};

use libc::{iovec, mode_t, off_t, pid_t, size_t, ssize_t};

use crate::local::{self, Local};
use crate::{errno, symbols};

/// What calls a function that this C library does not have.
pub unsafe extern "C" fn missing() -> c_long {
    errno::set(libc::ENOSYS);
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

/// A function of this file that has other names.
pub struct Named {
    slot: &'static AtomicPtr<()>,
    /// What its own name leads to, once calls by others go elsewhere.
    plain: &'static AtomicPtr<()>,
    /// What then serves all.
    chosen: *mut (),
    name: &'static str,
}

impl Named {
    /// Has the function look by which name it was called.
    fn part(&self) {
        if self.slot.load(Acquire) != self.chosen {
            let plain = errno::keep(|| lookup(self.name));
            self.plain.store(plain, Release);
            self.slot.store(self.chosen, Release);
        }
    }

    /// What leads to this function now ends in `other`, until [`end`]. Not the library's own calls, by whichever name
    /// they are made; but those of what is behind, in such a call.
    fn begin(&self, other: *mut (), bare: usize) -> Noted {
        local::here(|local| {
            let (key, noted) = (key(self.slot, local), Noted::now(local));
            if !local.inside.get() || noted.0 == key | BEHIND {
                local.named.set(key | bare);
                local.other.set(other as usize);
            }
            noted
        })
    }
}

/// What stood in [`Local::named`] and [`Local::other`] before.
#[must_use]
pub struct Noted(usize, usize);

impl Noted {
    fn now(local: &Local) -> Noted {
        Noted(local.named.get(), local.other.get())
    }
}

/// A call by another name is over.
pub fn end(noted: Noted) {
    local::here(|local| {
        local.named.set(noted.0);
        local.other.set(noted.1);
    });
}

/// In [`Local::named`]: the call is a bare one.
const BARE: usize = 2;
/// In [`Local::named`]: what is behind this library serves a call of its own.
const BEHIND: usize = 4;

/// What stands in [`Local::named`] for a function: the library's own calls are not those of the program around them.
fn key(slot: &'static AtomicPtr<()>, local: &Local) -> usize {
    slot as *const _ as usize | usize::from(local.inside.get())
}

/// What a function ends in, and what to note after that: what is behind may itself call this library.
fn choose(slot: &'static AtomicPtr<()>, plain: &'static AtomicPtr<()>) -> (*mut (), Noted) {
    local::here(|local| {
        let (key, noted) = (key(slot, local), Noted::now(local));
        if noted.0 & !BARE == key {
            local.named.set(0);
            return (noted.1 as *mut (), noted);
        }
        if local.inside.get() {
            local.named.set(key | BEHIND);
        }
        (plain.load(Acquire), noted)
    })
}

/// What leads to `function` now ends in `kernel`, a bare system call of the same signature, until [`end`].
pub fn bare(function: &Named, kernel: *mut ()) -> Noted {
    function.part();
    function.begin(kernel, BARE)
}

/// Returns true in a bare system call, in which no thread is cancelled.
pub fn is_bare() -> bool {
    local::here(|local| local.named.get() & BARE != 0)
}

/// What another name of a function leads to; null: not known yet.
pub struct Alias(AtomicPtr<()>);

/// Where the function itself is.
const SAME: *mut () = ptr::without_provenance_mut(1);

impl Alias {
    pub const fn new() -> Alias {
        Alias(AtomicPtr::new(ptr::null_mut()))
    }

    /// Returns true if a call by this name is one of the function.
    #[inline(always)]
    pub fn is_same(&self) -> bool {
        self.0.load(Relaxed) == SAME
    }

    /// What leads to `function` now does so by the other name, until [`end`].
    #[cold]
    pub fn begin(&self, name: &str, function: &Named) -> Noted {
        let mut other = self.0.load(Acquire);
        if other.is_null() {
            other = errno::keep(|| find_other(name, function));
            self.0.store(other, Release);
        }
        match other {
            SAME => local::here(Noted::now),
            _ => function.begin(other, 0),
        }
    }
}

/// Makes an exported function of each other name of one: the offset is 64 bits wide under all of them. glibc also
/// exports some with two underscores in front, which programs and other libraries may call as well.
macro_rules! alias {
    ($(fn $name:ident($($arg:ident: $type:ty),*) -> $ret:ty = $target:ident;)*) => {$(
        #[no_mangle]
        pub unsafe extern "C-unwind" fn $name($($arg: $type),*) -> $ret {
            static ALIAS: $crate::next::Alias = $crate::next::Alias::new();
            if ALIAS.is_same() {
                return $target($($arg),*);
            }
            let (name, function) = (concat!(stringify!($name), "\0"), $crate::next::named::$target());
            let noted = ALIAS.begin(name, &function);
            let result = $target($($arg),*);
            $crate::next::end(noted);
            result
        }
    )*};
}
pub(crate) use alias;

/// Exports functions that do something before the call of that name.
macro_rules! before {
    ($(fn $name:ident($($arg:ident: $type:ty),*) -> $ret:ty { $($first:stmt;)* })*) => {$(
        #[no_mangle]
        pub unsafe extern "C-unwind" fn $name($($arg: $type),*) -> $ret {
            $($first)*
            $crate::next::$name($($arg),*)
        }
    )*};
}
pub(crate) use before;

fn find_other(name: &str, function: &Named) -> *mut () {
    if !symbols::apart(terminated(name), terminated(function.name)) {
        return SAME;
    }
    let found = symbols::next(terminated(name), None);
    if found.is_null() {
        return SAME;
    }
    function.part();
    found
}

/// Makes the functions of this file; the first names are of what holds, finds, chooses and describes them.
macro_rules! next {
    ($slots:ident, $first:ident, $plain:ident, $chosen:ident, $named:ident: $(fn $name:ident($($arg:ident: $type:ty),*) -> $ret:ty;)*) => {
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
                    let found = errno::keep(|| lookup(concat!(stringify!($name), "\0")));
                    // It may have become one that looks by which name it is called.
                    let _ = $slots::$name.compare_exchange($first::$name as *mut (), found, Relaxed, Relaxed);
                    // SAFETY: the slot now holds the function; the arguments are the caller's.
                    unsafe { super::$name($($arg),*) }
                }
            )*
        }
        mod $plain {
            use super::*;
            $(
                #[allow(non_upper_case_globals, reason = "named as the function")]
                pub static $name: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());
            )*
        }
        mod $chosen {
            use super::*;
            $(
                pub unsafe extern "C-unwind" fn $name($($arg: $type),*) -> $ret {
                    let (function, noted) = choose(&$slots::$name, &$plain::$name);
                    // SAFETY: a function of this signature; what is plain is there before the slot leads here.
                    let result = unsafe {
                        transmute::<*mut (), unsafe extern "C-unwind" fn($($type),*) -> $ret>(function)($($arg),*)
                    };
                    end(noted);
                    result
                }
            )*
        }
        #[allow(dead_code, reason = "not all have other names")]
        pub mod $named {
            use super::*;
            $(
                pub fn $name() -> Named {
                    Named {
                        slot: &$slots::$name,
                        plain: &$plain::$name,
                        chosen: $chosen::$name as *mut (),
                        name: concat!(stringify!($name), "\0"),
                    }
                }
            )*
        }
        $(
            #[inline(always)]
            pub unsafe fn $name($($arg: $type),*) -> $ret {
                let function = $slots::$name.load(Acquire);
                // SAFETY: the slot holds a function of this signature.
                unsafe {
                    transmute::<*mut (), unsafe extern "C-unwind" fn($($type),*) -> $ret>(function)(
                        $($arg),*
                    )
                }
            }
        )*
    };
}

type Path = *const c_char;

next! {
    slot, first, plain, chosen, named:
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
    fn openat2(directory: c_int, path: Path, how: *const libc::open_how, size: size_t) -> c_int;
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
            maker_slot, first_maker, plain_maker, chosen_maker, named_maker:
            $(fn $name($($arg: $type),*) -> $ret;)*
        }
    };
}

makers!(next_makers);
