// SPDX-License-Identifier: MIT OR Apache-2.0
//! The interface of C: no `Layout`, null and `errno` on failure, never a panic.

use core::ptr;

use crate::config::Config;
#[cfg(feature = "preload")]
pub use crate::config::{is_secure, variables};
#[cfg(feature = "preload")]
pub use crate::os::{errno, set_errno};
use crate::realloc::{self, UNKNOWN};
use crate::words::{self, SYS_ALIGN};
use crate::{arena, base, control, heap, os, stats};

/// Where the words are that say what is the C library's, as offsets from the hidden symbol
/// `brug_hot_v0`: for entries that are written in assembly.
#[cfg(feature = "preload")]
pub mod limits {
    use crate::words::Hot;
    use core::mem::offset_of;

    /// New objects up to this size, in bytes.
    pub const MALLOC: usize = offset_of!(Hot, malloc_limit);
    /// Objects of the C library that grow or shrink up to this size, in bytes.
    pub const REALLOC: usize = offset_of!(Hot, realloc_limit);
    /// Objects, and null, below this address.
    pub const BELOW: usize = offset_of!(Hot, low);
    /// Objects from this address on.
    pub const FROM: usize = offset_of!(Hot, rest.high);
    /// New objects up to this size, in bytes, come from the function at [`ALLOC`], whichever base has it; no smaller ones
    /// than of [`ALIGN`] bytes are asked for.
    pub const OTHERS: usize = offset_of!(Hot, limit);
    /// A function that takes a size.
    pub const ALLOC: usize = offset_of!(Hot, alloc);
    /// What to add to an object's address; then it is below the word at [`LEN`] if the function at [`FREE`] frees it.
    pub const OFFSET: usize = offset_of!(Hot, offset);
    /// See [`OFFSET`].
    pub const LEN: usize = offset_of!(Hot, len);
    /// A function that takes an object.
    pub const FREE: usize = offset_of!(Hot, free);
    /// Objects so far into the arena, whose address is the first word of [`ARENA`], are resized by [`resize_in_slot`],
    /// if not to nothing.
    pub const SLOTS: usize = offset_of!(Hot, rest.slots);
    pub use crate::arena::GEOMETRY as ARENA;
    pub use crate::realloc::realloc_step as resize_in_slot;
    /// The old size for [`resize_in_slot`], which finds it out.
    pub const UNKNOWN: isize = crate::realloc::UNKNOWN as isize;
    /// From this size on it matters whether the loader asks. No smaller object has a slot.
    pub const LOADER: usize = 4096;
    /// Least size and alignment of what other allocators are asked for.
    pub const ALIGN: usize = super::ALIGN;
}

/// Alignment that the C library gives every object, and this module with it.
const ALIGN: usize = SYS_ALIGN;

/// As C's `malloc`.
///
/// # Safety
/// The object may only be passed to this module's functions.
#[inline]
pub unsafe fn malloc(size: usize) -> *mut u8 {
    // SAFETY: no preconditions.
    unsafe { heap::alloc_untold(size, ALIGN) }
}

/// As C's `malloc`, for a function of this address. What the loader asks for is thread-local storage,
/// which it frees under a lock that the start of a thread takes as well. Giving back the memory of a
/// growth slot may take a thread, so this stays with the C library.
///
/// # Safety
/// As for [`malloc`].
#[cfg(feature = "preload")]
#[inline]
pub unsafe fn malloc_for(caller: usize, size: usize) -> *mut u8 {
    // SAFETY: no preconditions.
    unsafe {
        if size >= limits::LOADER && crate::sys::is_loader(caller) {
            return base::obtain(base::Owner::Sys, size, ALIGN, false);
        }
        malloc(size)
    }
}

/// As C's `calloc`; `ENOMEM` if the product overflows.
///
/// # Safety
/// As for [`malloc`].
#[inline]
pub unsafe fn calloc(n: usize, size: usize) -> *mut u8 {
    match n.checked_mul(size) {
        // SAFETY: no preconditions.
        Some(bytes) => unsafe { heap::alloc_zeroed(bytes, ALIGN) },
        None => {
            os::set_errno(libc::ENOMEM);
            ptr::null_mut()
        }
    }
}

/// As `memalign`: `EINVAL` unless `align` is a power of two.
///
/// # Safety
/// As for [`malloc`].
#[inline]
pub unsafe fn memalign(align: usize, size: usize) -> *mut u8 {
    if !align.is_power_of_two() {
        os::set_errno(libc::EINVAL);
        return ptr::null_mut();
    }
    // SAFETY: no preconditions.
    unsafe { heap::alloc_untold(size, align.max(ALIGN)) }
}

/// As C's `realloc`: `p` may be null; a `size` of 0 frees `p` and returns null.
///
/// # Safety
/// `p` is null or an object of this module that the caller owns.
#[inline]
pub unsafe fn realloc(p: *mut u8, size: usize) -> *mut u8 {
    // SAFETY: by contract.
    unsafe {
        if p.is_null() {
            return malloc(size);
        }
        if size == 0 {
            heap::free(p);
            return ptr::null_mut();
        }
        heap::realloc(p, UNKNOWN, ALIGN, size)
    }
}

/// As C's `free`: `p` may be null; `errno` stays.
///
/// # Safety
/// `p` is null or an object of this module that the caller owns.
#[inline]
pub unsafe fn free(p: *mut u8) {
    // SAFETY: by contract. Null is outside the arena.
    unsafe { heap::free(p) }
}

/// As `malloc_usable_size`; 0 for null. In a growth slot it is the size asked for,
/// rounded up to whole pages.
///
/// # Safety
/// `p` is null or an object of this module that the caller owns.
#[inline]
pub unsafe fn usable_size(p: *mut u8) -> usize {
    if p.is_null() {
        return 0;
    }
    // SAFETY: by contract.
    unsafe { realloc::usable_size(p) }
}

/// Returns true if `p` is in a growth slot.
#[inline]
pub fn owns(p: *const u8) -> bool {
    arena::in_slot(p.cast_mut())
}

/// To be called once before `main`: looks up and begins what takes locks of the C library's, which
/// other threads may hold later. Makes no system call unless the configuration names an allocator
/// that has to be begun.
#[cfg(feature = "preload")]
#[link_section = startup!()]
pub fn prepare() {
    use crate::base::Owner;
    use crate::mode::Base;
    crate::sys::prepare();
    crate::purge::prepare();
    control::at_fork();
    let config = config();
    for base in [Base::Jemalloc, Base::Mimalloc] {
        if words::base() == base || config.mode.uses(base, &config.template) {
            // The C library takes it for granted that its allocator is used before there are threads,
            // and these do not begin it at the same time.
            for owner in [Owner::Sys, Owner::of(base)] {
                // SAFETY: an object of its own.
                unsafe {
                    let p = base::obtain(owner, 1, 1, false);
                    base::free(base::owner_of(p), p);
                }
            }
        }
    }
}

/// The path of the library that [`Base::Glibc`](crate::Base::Glibc) is, if another than the C
/// library has defined the internal names of its allocator.
#[cfg(feature = "preload")]
pub fn stand_in() -> Option<&'static core::ffi::CStr> {
    crate::sys::stand_in()
}

/// Returns true if the function that the loader has found by a name of this library's is this
/// library's, and not the program's own. Takes the loader's lock.
#[cfg(feature = "preload")]
pub fn is_here(function: *const core::ffi::c_void) -> bool {
    crate::sys::is_here(function as usize)
}

/// A function of the library that [`Base::Glibc`](crate::Base::Glibc) is, by its name; null if
/// there is none. After [`prepare`] it waits for nobody.
#[cfg(feature = "preload")]
pub fn base_symbol(name: &core::ffi::CStr) -> *mut core::ffi::c_void {
    crate::sys::symbol(name)
}

/// What is in use, and what is held for it, outside the C library. Counted while other threads
/// go on, so that it is only exact when they do not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Objects in growth slots, and their bytes in whole pages.
    pub slots: (usize, usize),
    /// Bytes that jemalloc and mimalloc have given to objects: jemalloc counts the pages that
    /// have objects in them, mimalloc the objects.
    pub in_use: usize,
    /// Bytes that they hold, with those.
    pub held: usize,
}

/// Asks the bases and the arena. Takes locks of jemalloc's; not for signal handlers.
pub fn usage() -> Usage {
    let (in_use, held) = base::in_use_and_held();
    Usage {
        slots: (arena::live(), arena::in_use()),
        in_use,
        held,
    }
}

/// Bytes that describe growth slots, and jemalloc's of that kind; the C library and mimalloc do not say
/// theirs. Takes locks of jemalloc's; not for signal handlers.
pub fn bookkeeping() -> usize {
    arena::bookkeeping() + base::bookkeeping()
}

/// Gives the system everything now that no object needs. Returns true if there was any.
pub fn trim() -> bool {
    control::trim()
}

/// To be called after the program has set itself a limit of data (`setrlimit` with `RLIMIT_DATA`), by the
/// thread that did: gives the system everything that no object needs, and keeps next to nothing from then
/// on. `libbrug.so` does it by itself. A signal handler may call it. Keeps `errno`.
pub fn limits_changed() {
    control::limits_changed();
}

/// Prints a line on standard error if that is what it was. A failure does not end the program by a signal.
#[cfg(feature = "preload")]
pub fn say(line: &nocopy_settings::Line) {
    os::say(line);
}

/// Prints one line on standard error, behind `brug: `, without allocating.
#[cfg(feature = "preload")]
pub fn complain(message: core::fmt::Arguments<'_>) {
    os::complain(message);
}

/// Device and inode of the file behind a descriptor.
#[cfg(feature = "preload")]
pub fn identity(fd: core::ffi::c_int) -> Option<(u64, u64)> {
    os::identity(fd)
}

/// Ends the thread that gives memory back, if there is one: for a call that a program may make only while it has one
/// thread, or by which a thread gives up rights. A later one has the rights of who starts it. Returns true if there was
/// one: then [`begin_thread`] is to follow. Keeps `errno`.
pub fn end_thread() -> bool {
    crate::purge::stop()
}

/// To be called after the call for which [`end_thread`] has ended one: begins a thread for what others freed while its
/// end was waited for, if that is much. Keeps `errno`.
pub fn begin_thread() {
    os::keep_errno(crate::purge::go_on);
}

/// Returns true in the child of a `vfork`, which has its parent's memory, but limits of its own.
#[cfg(feature = "preload")]
pub fn borrows_memory() -> bool {
    crate::words::is_borrowed()
}

/// Replaces the configuration, which otherwise is read from the environment at the
/// first allocation. Reservations made already stay as they are.
///
/// # Safety
/// No other thread uses the allocator meanwhile.
pub unsafe fn configure(config: &Config) {
    // SAFETY: passed on.
    unsafe { control::put_in_force(config) }
}

/// The configuration in force; reads the environment if nothing has yet.
pub fn config() -> &'static Config {
    words::ready();
    crate::config::current()
}

/// Shows the statistics where the configuration wants them: those for people on the descriptor
/// `to`. Allocates nothing.
pub fn show_statistics(to: core::ffi::c_int) {
    stats::show(to);
}

/// Writes the profile where the configuration wants it. To be called when the program ends.
#[cfg(feature = "preload")]
pub fn save_profile() {
    control::save_profile();
}

/// Writes the statistics for people to a descriptor. Allocates nothing.
pub fn print_statistics(to: core::ffi::c_int) {
    stats::print(to);
}

/// Writes the statistics for people. Allocates nothing itself.
///
/// # Errors
/// Those of `out`.
pub fn write_statistics(out: &mut dyn core::fmt::Write) -> core::fmt::Result {
    stats::text(out)
}
