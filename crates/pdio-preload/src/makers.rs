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

use crate::all::relinquish_all;
use crate::state::TAKEN;
use crate::{guard, next, report, state, tell};

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
    if !made.failed() || crate::errno::get() != libc::EMFILE {
        return made;
    }
    if guard::inside() || state::borrowed() {
        return made;
    }
    let taken = TAKEN.load(SeqCst) > 0;
    if taken {
        relinquish_all("descriptors have run out");
    }
    if !report::let_go() && !taken {
        return made;
    }
    call()
}

macro_rules! makers {
    ($($([$($before:ident)?; $after:ident])? fn $name:ident($($arg:ident: $type:ty),*) -> $ret:ty;)*) => {$(
        #[no_mangle]
        pub unsafe extern "C-unwind" fn $name($($arg: $type),*) -> $ret {
            $($(tell::$before();)?)?
            let made = make(|| next::$name($($arg),*));
            $(tell::$after();)?
            made
        }
    )*};
}

next::makers!(makers);
