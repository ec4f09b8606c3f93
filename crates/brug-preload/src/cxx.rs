// SPDX-License-Identifier: MIT OR Apache-2.0
//! The replaceable allocation functions of C++ (`[new.delete]`), under their mangled names.
//!
//! A program may replace some of them, and the others then have to use the program's, as C++ says
//! and the C++ runtime does: often these are `operator new(size_t)` and `operator delete(void *)`
//! alone. So here, too, each calls the next by its name, and in the end `malloc`, `aligned_alloc` and
//! `free`. They are here at all because a program may be linked with another allocator that has them.
//!
//! A lack of memory is the business of the C++ runtime: it knows the `new_handler` and can
//! throw `std::bad_alloc`. So a failing `operator new` calls the one that it stands in front of,
//! which asks `malloc` (again ours), runs the handler, and throws. The runtime is looked up only
//! then; a C program that never loads one is never asked for it. Where a process has none, what takes
//! `nothrow` returns null, and the others abort with one line.

use core::arch::naked_asm;
use core::ffi::{c_char, c_int, c_void, CStr};
use core::mem;
use core::ptr;
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

use brug::raw;
use libc::dl_phdr_info;

use crate::malloc::{aligned_alloc, failed, malloc};
use crate::say::say;

/// Libraries that hold the C++ runtime when it is not in the global scope, as in a C program that
/// loaded a C++ plug-in.
const RUNTIMES: [&CStr; 3] = [c"libstdc++.so.6", c"libc++.so.1", c"libc++abi.so.1"];

/// The C++ runtime's own function of this name; null if there is none.
#[cold]
#[inline(never)]
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
            return within_a_library(name);
        }
        found
    }
}

/// A library by its number, as the loader counts them.
struct Library {
    number: usize,
    path: [u8; libc::PATH_MAX as usize],
}

/// Finds the runtime of a plug-in that was linked with `-static-libstdc++`; null if there is none.
fn within_a_library(name: &CStr) -> *mut c_void {
    unsafe extern "C" fn note(about: *mut dl_phdr_info, _: usize, library: *mut c_void) -> c_int {
        // SAFETY: the loader's description, and what is passed below.
        let (about, library) = unsafe { (&*about, &mut *library.cast::<Library>()) };
        if library.number > 0 {
            library.number -= 1;
            return 0;
        }
        // SAFETY: the loader's string.
        let path = unsafe { CStr::from_ptr(about.dlpi_name) }.to_bytes();
        let fits = path.len().min(library.path.len() - 1);
        library.path[..fits].copy_from_slice(&path[..fits]);
        1
    }
    for number in 0.. {
        let path = [0; libc::PATH_MAX as usize];
        let mut library = Library { number, path };
        // SAFETY: `note` takes this argument and does not unwind. The loader's lock is given back before the
        // library is opened, which takes others. One that has the runtime stays open, as it is to throw.
        unsafe {
            if libc::dl_iterate_phdr(Some(note), ptr::from_mut(&mut library).cast()) == 0 {
                break;
            }
            let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD;
            let handle = libc::dlopen(library.path.as_ptr().cast(), flags);
            if handle.is_null() {
                continue;
            }
            let found = libc::dlsym(handle, name.as_ptr());
            if !found.is_null() && !raw::is_here(found) {
                return found;
            }
            close(handle);
        }
    }
    ptr::null_mut()
}

/// Gives back what `dlopen` gave. The loader would look a function up for every program that is called by its name.
unsafe fn close(handle: *mut c_void) {
    type Close = unsafe extern "C" fn(*mut c_void) -> c_int;
    // SAFETY: this is its type, and the caller's promise.
    unsafe {
        let close = libc::dlsym(libc::RTLD_DEFAULT, c"dlclose".as_ptr());
        if !close.is_null() {
            mem::transmute::<*mut c_void, Close>(close)(handle);
        }
    }
}

/// `operator new` must not return null, and there is nobody to throw.
#[cold]
fn nobody() -> *mut c_void {
    say(&[b"out of memory in operator new, and no C++ runtime to throw"]);
    // SAFETY: no preconditions.
    unsafe { libc::abort() }
}

/// `const std::nothrow_t &`.
type NoThrow = *const c_char;

fn plain(size: usize) -> *mut c_void {
    // SAFETY: any size is allowed.
    unsafe { malloc(size) }
}

/// As the C++ runtime asks for aligned memory. Other alignments than powers of two it refuses, where the C library
/// may round up.
fn aligned(size: usize, align: usize) -> *mut c_void {
    match size.max(1).checked_next_multiple_of(align) {
        Some(size) if align.is_power_of_two() => aligned_alloc(align, size),
        _ => failed(libc::ENOMEM),
    }
}

/// Remembers if the program has defined a function that is defined here, too.
struct Replaced(AtomicU8);

impl Replaced {
    const UNKNOWN: u8 = 0;
    const NO: u8 = 1;
    const YES: u8 = 2;

    /// `function`: where the loader has found it by its name. Looked at once.
    fn read(&self, function: *const ()) -> bool {
        if self.0.load(Relaxed) == Replaced::UNKNOWN {
            let here = raw::is_here(function.cast());
            let value = if here { Replaced::NO } else { Replaced::YES };
            self.0.store(value, Relaxed);
        }
        self.0.load(Relaxed) == Replaced::YES
    }
}

macro_rules! new {
    ($($name:ident($($arg:ident: $type:ty),*) = $call:expr, by $($used:ident)*, or $lacking:expr;)*) => {$(
        #[doc = "`operator new`; throws `std::bad_alloc`, or returns null when it takes `nothrow`."]
        #[no_mangle]
        pub extern "C-unwind" fn $name($($arg: $type),*) -> *mut c_void {
            // What takes `nothrow` calls the one that throws, which only C++ can catch.
            let replaced = false $(|| {
                static REPLACED: Replaced = Replaced(AtomicU8::new(Replaced::UNKNOWN));
                REPLACED.read($used as *const ())
            })*;
            if !replaced {
                let object: *mut c_void = $call;
                if !object.is_null() {
                    return object;
                }
            }
            const NAME: &CStr = match CStr::from_bytes_with_nul(
                concat!(stringify!($name), "\0").as_bytes(),
            ) {
                Ok(name) => name,
                Err(_) => unreachable!(),
            };
            let theirs = runtime(NAME);
            if theirs.is_null() {
                return $lacking;
            }
            // SAFETY: the function of the runtime with this mangled name has this type.
            unsafe {
                let theirs: extern "C-unwind" fn($($type),*) -> *mut c_void =
                    mem::transmute(theirs);
                theirs($($arg),*)
            }
        }
    )*};
}

new! {
    _Znwm(size: usize) = plain(size), by, or nobody();
    _ZnwmRKSt9nothrow_t(size: usize, tag: NoThrow) = plain(size), by _Znwm, or ptr::null_mut();
    _ZnamRKSt9nothrow_t(size: usize, tag: NoThrow) = plain(size), by _Znwm _Znam, or ptr::null_mut();
    _ZnwmSt11align_val_t(size: usize, align: usize) = aligned(size, align), by, or nobody();
    _ZnwmSt11align_val_tRKSt9nothrow_t(size: usize, align: usize, tag: NoThrow) =
        aligned(size, align), by _ZnwmSt11align_val_t, or ptr::null_mut();
    _ZnamSt11align_val_tRKSt9nothrow_t(size: usize, align: usize, tag: NoThrow) =
        aligned(size, align), by _ZnwmSt11align_val_t _ZnamSt11align_val_t, or ptr::null_mut();
}

/// Jumps to the function of this name that the loader has found, which may be the program's.
#[cfg(target_arch = "x86_64")]
macro_rules! jump {
    ($to:ident) => {
        naked_asm!(concat!(
            "jmp qword ptr [rip + ",
            stringify!($to),
            "@GOTPCREL]"
        ))
    };
    ($to:ident, third to second) => {
        naked_asm!(
            "mov rsi, rdx",
            concat!("jmp qword ptr [rip + ", stringify!($to), "@GOTPCREL]")
        )
    };
}
#[cfg(target_arch = "aarch64")]
macro_rules! jump {
    ($to:ident) => {
        naked_asm!(
            concat!("adrp x16, :got:", stringify!($to)),
            concat!("ldr x16, [x16, :got_lo12:", stringify!($to), "]"),
            "br x16"
        )
    };
    ($to:ident, third to second) => {
        naked_asm!(
            "mov x1, x2",
            concat!("adrp x16, :got:", stringify!($to)),
            concat!("ldr x16, [x16, :got_lo12:", stringify!($to), "]"),
            "br x16"
        )
    };
}

macro_rules! passed_on {
    ($($name:ident($($arg:ident: $type:ty),*) $(-> $result:ty)? = $to:ident $(($($what:tt)*))?;)*) => {$(
        #[doc = "`operator new[]`, or a form of `operator delete`: what is called instead has the rest."]
        #[doc = ""]
        #[doc = "# Safety"]
        #[doc = "What is deleted is null or came from the matching `operator new` and was not deleted."]
        #[unsafe(naked)]
        #[no_mangle]
        pub unsafe extern "C-unwind" fn $name($($arg: $type),*) $(-> $result)? {
            jump!($to $(, $($what)*)?)
        }
    )*};
}

passed_on! {
    _Znam(_size: usize) -> *mut c_void = _Znwm;
    _ZnamSt11align_val_t(_size: usize, _align: usize) -> *mut c_void = _ZnwmSt11align_val_t;
    _ZdlPv(_object: *mut c_void) = free;
    _ZdaPv(_object: *mut c_void) = _ZdlPv;
    _ZdlPvRKSt9nothrow_t(_object: *mut c_void, _tag: NoThrow) = _ZdlPv;
    _ZdaPvRKSt9nothrow_t(_object: *mut c_void, _tag: NoThrow) = _ZdaPv;
    _ZdlPvm(_object: *mut c_void, _size: usize) = _ZdlPv;
    _ZdaPvm(_object: *mut c_void, _size: usize) = _ZdaPv;
    _ZdlPvSt11align_val_t(_object: *mut c_void, _align: usize) = free;
    _ZdaPvSt11align_val_t(_object: *mut c_void, _align: usize) = _ZdlPvSt11align_val_t;
    _ZdlPvmSt11align_val_t(_object: *mut c_void, _size: usize, _align: usize) =
        _ZdlPvSt11align_val_t (third to second);
    _ZdaPvmSt11align_val_t(_object: *mut c_void, _size: usize, _align: usize) =
        _ZdaPvSt11align_val_t (third to second);
    _ZdlPvSt11align_val_tRKSt9nothrow_t(_object: *mut c_void, _align: usize, _tag: NoThrow) =
        _ZdlPvSt11align_val_t;
    _ZdaPvSt11align_val_tRKSt9nothrow_t(_object: *mut c_void, _align: usize, _tag: NoThrow) =
        _ZdaPvSt11align_val_t;
}
