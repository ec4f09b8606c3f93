// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls that make descriptors.
//!
//! Those of this library count against the limit as well. When descriptors run out, all streams go
//! back and the call is repeated: the program gets as many as without the library.
#![allow(
    unsafe_op_in_unsafe_fn,
    clippy::missing_safety_doc,
    reason = "each function takes what the C function of its name takes, and passes it on"
)]

use core::ffi::{c_char, c_int, c_uint, c_void};
use core::sync::atomic::Ordering::SeqCst;

use crate::table::{self, TAKEN};
use crate::{next, report, stream, tell};

/// What a call returns that has failed.
pub trait Failing {
    fn failed(&self) -> bool;
}

impl Failing for c_int {
    fn failed(&self) -> bool {
        *self < 0
    }
}

impl<T> Failing for *mut T {
    fn failed(&self) -> bool {
        self.is_null()
    }
}

/// Makes a descriptor; if there are no more, once more without those of taken streams.
#[inline]
pub fn make<T: Failing>(call: impl Fn() -> T) -> T {
    let made = call();
    if !made.failed() || crate::errno() != libc::EMFILE {
        return made;
    }
    if table::inside() {
        return made;
    }
    let taken = TAKEN.load(SeqCst) > 0;
    if taken {
        stream::relinquish_all("descriptors have run out");
    }
    if !report::let_go() && !taken {
        return made;
    }
    call()
}

macro_rules! makers {
    ($($([$before:ident])? fn $name:ident($($arg:ident: $type:ty),*) -> $ret:ty;)*) => {$(
        #[no_mangle]
        pub unsafe extern "C-unwind" fn $name($($arg: $type),*) -> $ret {
            $(tell::$before();)?
            make(|| next::$name($($arg),*))
        }
    )*};
}

makers! {
    fn socket(family: c_int, kind: c_int, protocol: c_int) -> c_int;
    fn socketpair(family: c_int, kind: c_int, protocol: c_int, pair: *mut c_int) -> c_int;
    [hand_over] fn accept(socket: c_int, address: *mut c_void, len: *mut c_uint) -> c_int;
    [hand_over] fn accept4(socket: c_int, address: *mut c_void, len: *mut c_uint, flags: c_int) -> c_int;
    fn pipe(pair: *mut c_int) -> c_int;
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
    fn opendir(path: *const c_char) -> *mut c_void;
    fn tmpfile() -> *mut c_void;
    fn tmpfile64() -> *mut c_void;
    [hand_over] fn shm_open(name: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int;
    fn posix_openpt(flags: c_int) -> c_int;
}
