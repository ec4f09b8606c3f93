// SPDX-License-Identifier: MIT OR Apache-2.0
//! The replaceable allocation functions of C++ (`[new.delete]`), under their mangled names.
//!
//! A lack of memory is the business of the C++ runtime: it knows the `new_handler` and can
//! throw `std::bad_alloc`. So a failing `operator new` calls the one that it stands in front of,
//! which asks `malloc` (again ours), runs the handler, and throws. The runtime is looked up only
//! then; a C program that never loads one is never asked for it.

use core::ffi::{c_char, c_void, CStr};
use core::mem;

use brug::raw;

/// Libraries that hold the C++ runtime when it is not in the global scope, as in a C program that
/// loaded a C++ plug-in.
const RUNTIMES: [&CStr; 3] = [c"libstdc++.so.6", c"libc++.so.1", c"libc++abi.so.1"];

/// The C++ runtime's own function of this name.
///
/// Aborts with one line when the process has no C++ runtime: `operator new` must not return null,
/// and there is nobody to throw.
#[cold]
fn runtime(name: &CStr) -> *mut c_void {
    // SAFETY: RTLD_NOLOAD only finds what is there; the names are C strings.
    unsafe {
        let mut found = libc::dlsym(libc::RTLD_NEXT, name.as_ptr());
        for library in RUNTIMES {
            if found.is_null() {
                let handle = libc::dlopen(library.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
                if !handle.is_null() {
                    found = libc::dlsym(handle, name.as_ptr());
                }
            }
        }
        if found.is_null() {
            crate::setup::say(&[b"out of memory in operator new, and no C++ runtime to throw"]);
            libc::abort();
        }
        found
    }
}

macro_rules! new {
    ($($name:ident($($arg:ident: $type:ty),*) = $call:expr;)*) => {$(
        #[doc = "`operator new`; throws `std::bad_alloc`, or returns null when it takes `nothrow`."]
        #[no_mangle]
        pub extern "C-unwind" fn $name($($arg: $type),*) -> *mut c_void {
            // SAFETY: any size; the C++ runtime only passes alignments that are powers of two.
            let object: *mut u8 = unsafe { $call };
            if !object.is_null() {
                return object.cast();
            }
            const NAME: &CStr = match CStr::from_bytes_with_nul(
                concat!(stringify!($name), "\0").as_bytes(),
            ) {
                Ok(name) => name,
                Err(_) => unreachable!(),
            };
            // SAFETY: the function of the runtime with this mangled name has this type.
            unsafe {
                let theirs: extern "C-unwind" fn($($type),*) -> *mut c_void =
                    mem::transmute(runtime(NAME));
                theirs($($arg),*)
            }
        }
    )*};
}

/// `const std::nothrow_t &`.
type NoThrow = *const c_char;

new! {
    _Znwm(size: usize) = raw::malloc(size);
    _Znam(size: usize) = raw::malloc(size);
    _ZnwmRKSt9nothrow_t(size: usize, tag: NoThrow) = raw::malloc(size);
    _ZnamRKSt9nothrow_t(size: usize, tag: NoThrow) = raw::malloc(size);
    _ZnwmSt11align_val_t(size: usize, align: usize) = raw::memalign(align, size);
    _ZnamSt11align_val_t(size: usize, align: usize) = raw::memalign(align, size);
    _ZnwmSt11align_val_tRKSt9nothrow_t(size: usize, align: usize, tag: NoThrow) =
        raw::memalign(align, size);
    _ZnamSt11align_val_tRKSt9nothrow_t(size: usize, align: usize, tag: NoThrow) =
        raw::memalign(align, size);
}

macro_rules! delete {
    ($($name:ident($($arg:ident: $type:ty),*);)*) => {$(
        #[doc = "`operator delete`."]
        #[doc = ""]
        #[doc = "# Safety"]
        #[doc = "`object` is null or came from `operator new` and was not deleted."]
        #[no_mangle]
        pub unsafe extern "C" fn $name(object: *mut c_void $(, $arg: $type)*) {
            // SAFETY: the caller's promise.
            unsafe { raw::free(object.cast()) }
        }
    )*};
}

delete! {
    _ZdlPv();
    _ZdaPv();
    _ZdlPvRKSt9nothrow_t(_tag: NoThrow);
    _ZdaPvRKSt9nothrow_t(_tag: NoThrow);
    _ZdlPvm(_size: usize);
    _ZdaPvm(_size: usize);
    _ZdlPvSt11align_val_t(_align: usize);
    _ZdaPvSt11align_val_t(_align: usize);
    _ZdlPvmSt11align_val_t(_size: usize, _align: usize);
    _ZdaPvmSt11align_val_t(_size: usize, _align: usize);
    _ZdlPvSt11align_val_tRKSt9nothrow_t(_align: usize, _tag: NoThrow);
    _ZdaPvSt11align_val_tRKSt9nothrow_t(_align: usize, _tag: NoThrow);
}
