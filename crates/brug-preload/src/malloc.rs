// SPDX-License-Identifier: MIT OR Apache-2.0
//! The malloc family of C, with the C library's behaviour in every corner: what `realloc(p, 0)` does,
//! which calls set `errno`, what alignment 0 means. What is called all the time is in [`entry`](crate::entry).

use core::ffi::{c_int, c_void};
use core::ptr;

use brug::raw;

pub use crate::entry::malloc;
#[cfg(target_arch = "x86_64")]
pub use crate::entry::{free, realloc};
use crate::introspect;

/// The type of [`aligned_alloc`].
type Aligned = extern "C" fn(usize, usize) -> *mut c_void;

/// Null, with `errno` saying why.
#[cold]
pub fn failed(why: c_int) -> *mut c_void {
    raw::set_errno(why);
    ptr::null_mut()
}

/// The size of a page in bytes.
fn page() -> usize {
    // SAFETY: sysconf has no preconditions.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

/// `size` rounded up to whole pages, or `None` when that is more than there can be.
pub fn whole_pages(size: usize) -> Option<usize> {
    size.checked_next_multiple_of(page())
}

// What calls one of the next by its name calls the program's own, if it has one: so does the C
// library. So they are not inlined.

/// `calloc(3)`.
#[no_mangle]
pub extern "C" fn calloc(count: usize, size: usize) -> *mut c_void {
    // SAFETY: any sizes are allowed; a product that overflows is refused.
    unsafe { raw::calloc(count, size).cast() }
}

/// `realloc(3)`. As in the C library, size 0 frees the object and returns null.
///
/// # Safety
/// `object` is null or was allocated by this family and not freed.
#[cfg(not(target_arch = "x86_64"))]
#[inline(never)]
#[no_mangle]
pub unsafe extern "C" fn realloc(object: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { raw::realloc(object.cast(), size).cast() }
}

/// `reallocarray(3)`.
///
/// # Safety
/// As [`realloc`].
#[no_mangle]
pub unsafe extern "C" fn reallocarray(
    object: *mut c_void,
    count: usize,
    size: usize,
) -> *mut c_void {
    let Some(bytes) = count.checked_mul(size) else {
        return failed(libc::ENOMEM);
    };
    // SAFETY: the caller's promise.
    unsafe { realloc(object, bytes) }
}

/// `reallocf(3)` of the BSDs: like [`realloc`], but a failure frees the object.
///
/// # Safety
/// As [`realloc`].
#[no_mangle]
pub unsafe extern "C" fn reallocf(object: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: the caller's promise; after a failed realloc the object is still there.
    unsafe {
        let moved = realloc(object, size);
        if moved.is_null() && size != 0 {
            free(object);
        }
        moved
    }
}

/// `free(3)`. Keeps `errno`.
///
/// # Safety
/// As [`realloc`].
#[cfg(not(target_arch = "x86_64"))]
#[inline(never)]
#[no_mangle]
pub unsafe extern "C" fn free(object: *mut c_void) {
    // SAFETY: the caller's promise.
    unsafe { raw::free(object.cast()) }
}

/// Functions that free an object, and need nothing else that they are told.
macro_rules! freeing {
    ($($(#[$doc:meta])* $name:ident($($told:ident: $type:ty),*);)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// As [`realloc`].
        #[no_mangle]
        pub unsafe extern "C" fn $name(object: *mut c_void, $($told: $type),*) {
            // SAFETY: the caller's promise.
            unsafe { free(object) }
        }
    )*};
}

freeing! {
    /// `cfree(3)`, which old programs call.
    cfree();
    /// `free_sized` of C23.
    free_sized(_size: usize);
    /// `free_aligned_sized` of C23.
    free_aligned_sized(_align: usize, _size: usize);
    /// `dallocx(3)` of jemalloc.
    dallocx(_flags: c_int);
    /// `sdallocx(3)` of jemalloc.
    sdallocx(_size: usize, _flags: c_int);
}

/// `memalign(3)`. As in the C library, an alignment that is no power of two is rounded up to one.
#[no_mangle]
pub extern "C" fn memalign(align: usize, size: usize) -> *mut c_void {
    let Some(align) = align.checked_next_power_of_two() else {
        return failed(libc::EINVAL);
    };
    // SAFETY: a power of two, any size.
    unsafe { raw::memalign(align, size).cast() }
}

/// `aligned_alloc(3)`. An alignment that is no power of two is the C library's to refuse (`EINVAL`,
/// since 2.38) or to round up.
#[inline(never)]
#[no_mangle]
pub extern "C" fn aligned_alloc(align: usize, size: usize) -> *mut c_void {
    if !align.is_power_of_two() {
        // SAFETY: this is its type.
        return match unsafe { introspect::theirs::<Aligned>(c"aligned_alloc") } {
            Some(theirs) => theirs(align, size),
            None => failed(libc::EINVAL),
        };
    }
    // SAFETY: a power of two, any size.
    unsafe { raw::memalign(align, size).cast() }
}

/// `posix_memalign(3)`: returns the error, also in `errno` if it is `ENOMEM`, as the C library does; a failure leaves `*out` alone.
///
/// # Safety
/// `out` is valid for a write.
#[no_mangle]
pub unsafe extern "C" fn posix_memalign(out: *mut *mut c_void, align: usize, size: usize) -> c_int {
    if !align.is_power_of_two() || !align.is_multiple_of(size_of::<*mut c_void>()) {
        return libc::EINVAL;
    }
    let before = raw::errno();
    // SAFETY: a power of two, any size.
    let object = unsafe { raw::memalign(align, size) };
    if object.is_null() {
        // As in the C library.
        raw::set_errno(libc::ENOMEM);
        return libc::ENOMEM;
    }
    raw::set_errno(before);
    // SAFETY: the caller's promise.
    unsafe { *out = object.cast() };
    0
}

/// `valloc(3)`: page-aligned.
#[no_mangle]
pub extern "C" fn valloc(size: usize) -> *mut c_void {
    memalign(page(), size)
}

/// `pvalloc(3)`: whole pages, page-aligned.
#[no_mangle]
pub extern "C" fn pvalloc(size: usize) -> *mut c_void {
    match whole_pages(size) {
        Some(bytes) => memalign(page(), bytes),
        None => failed(libc::ENOMEM),
    }
}

/// `malloc_usable_size(3)`: bytes of the object that the program may use; 0 for null.
///
/// # Safety
/// As [`realloc`].
#[no_mangle]
pub unsafe extern "C" fn malloc_usable_size(object: *mut c_void) -> usize {
    // SAFETY: the caller's promise.
    unsafe { raw::usable_size(object.cast()) }
}
