// SPDX-License-Identifier: MIT OR Apache-2.0
//! jemalloc's `mallocx` family.
//!
//! A program linked with jemalloc may allocate with these and release with `free`; both have to come
//! from the same library. Of the flags, alignment and zeroing are honoured; tcache and arena numbers
//! mean nothing here. `dallocx` and `sdallocx` are with [`free`].

use core::ffi::{c_int, c_void};
use core::ptr;

use brug::raw;

use crate::malloc::{failed, free, malloc_usable_size, realloc, whole_pages};

/// `MALLOCX_ZERO`.
const ZERO: c_int = 0x40;
/// `MALLOCX_LG_ALIGN_MASK`: the low bits hold the logarithm of the alignment.
const LG_ALIGN: c_int = 0x3f;
/// What every object is aligned to.
const MIN_ALIGN: usize = 16;
/// From this size on objects are in growth slots, unless configured otherwise, and these have whole
/// pages.
const LARGE: usize = 128 << 10;

fn align_of(flags: c_int) -> usize {
    (1usize << (flags & LG_ALIGN)).max(MIN_ALIGN)
}

/// What [`nallocx`] says of an object of `size` bytes, all of which a program may use. So the others
/// ask for as much: which allocator will have the object is not known before, and no other size is
/// certain. The C library gives a small object just as many bytes, and a growth slot a large one.
/// `None` when there can be no such object.
fn real_size(size: usize, align: usize) -> Option<usize> {
    let real = if size < LARGE {
        (size.max(MIN_ALIGN) + 8).next_multiple_of(16) - 8
    } else {
        whole_pages(size)?
    };
    let most = real.checked_add(align)?;
    (most <= isize::MAX as usize).then_some(real)
}

/// `mallocx(3)`.
#[no_mangle]
pub extern "C" fn mallocx(size: usize, flags: c_int) -> *mut c_void {
    let align = align_of(flags);
    let Some(size) = real_size(size, align) else {
        return failed(libc::ENOMEM);
    };
    // SAFETY: a power of two, any size; all that is usable of the new object may be written.
    unsafe {
        if align == MIN_ALIGN {
            return if flags & ZERO != 0 {
                raw::calloc(1, size)
            } else {
                raw::malloc(size)
            }
            .cast();
        }
        let object = raw::memalign(align, size);
        if flags & ZERO != 0 && !object.is_null() {
            ptr::write_bytes(object, 0, raw::usable_size(object));
        }
        object.cast()
    }
}

/// `rallocx(3)`: null leaves the object as it was.
///
/// # Safety
/// `object` was allocated by this family and not freed; `size` is not 0.
#[no_mangle]
pub unsafe extern "C" fn rallocx(object: *mut c_void, size: usize, flags: c_int) -> *mut c_void {
    let align = align_of(flags);
    let Some(size) = real_size(size, align) else {
        return failed(libc::ENOMEM);
    };
    // SAFETY: the caller's promise; both objects have the bytes that are copied or zeroed.
    unsafe {
        let old = malloc_usable_size(object);
        let moved = if align == MIN_ALIGN {
            realloc(object, size)
        } else if object.addr().is_multiple_of(align) && old >= size && size > old / 2 {
            object
        } else {
            let moved = raw::memalign(align, size).cast::<c_void>();
            if !moved.is_null() {
                ptr::copy_nonoverlapping(object.cast::<u8>(), moved.cast(), old.min(size));
                free(object);
            }
            moved
        };
        if flags & ZERO != 0 && !moved.is_null() {
            let now = malloc_usable_size(moved);
            if now > old {
                ptr::write_bytes(moved.cast::<u8>().add(old), 0, now - old);
            }
        }
        moved
    }
}

/// `xallocx(3)`: the size in bytes that the object has after an attempt to resize it in place.
/// It never changes here: `realloc` is the one that knows when growing in place is right.
///
/// # Safety
/// As [`rallocx`].
#[no_mangle]
pub unsafe extern "C" fn xallocx(
    object: *mut c_void,
    _size: usize,
    _extra: usize,
    _flags: c_int,
) -> usize {
    // SAFETY: the caller's promise.
    unsafe { malloc_usable_size(object) }
}

/// `sallocx(3)`.
///
/// # Safety
/// As [`rallocx`].
#[no_mangle]
pub unsafe extern "C" fn sallocx(object: *const c_void, _flags: c_int) -> usize {
    // SAFETY: the caller's promise.
    unsafe { malloc_usable_size(object.cast_mut()) }
}

/// `nallocx(3)`: the size in bytes that an object of [`mallocx`] will have, all of which may be used; 0
/// when there can be none. [`sallocx`] may say more.
#[no_mangle]
pub extern "C" fn nallocx(size: usize, flags: c_int) -> usize {
    real_size(size, align_of(flags)).unwrap_or(0)
}
