// SPDX-License-Identifier: MIT OR Apache-2.0
//! jemalloc's `mallctl` family, for programs that are linked with jemalloc.
//!
//! Their objects are brug's, so jemalloc's own answers would be about an empty heap. What such
//! programs ask for is answered for all allocators together: how much is in use, and to give back
//! what is not. Everything else is unknown (`ENOENT`), which is said once on standard error.

use core::ffi::{c_char, c_int, c_void, CStr};
use core::fmt;
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::introspect::{mallinfo2, malloc_trim};
use crate::say::say;

/// A control that is known here.
#[derive(Clone, Copy)]
enum Control {
    /// Statistics are never old, so nothing has to be done.
    Epoch,
    Version,
    /// Bytes in objects.
    Allocated,
    /// Bytes held for objects.
    Held,
    Retained,
    /// Bytes that describe objects, where an allocator says so.
    Metadata,
    /// As many as a program needs to ask each to give memory back.
    Arenas,
    /// Another one, which is the same. Hooks of its own it cannot have.
    Create,
    /// There is one when it is needed, whatever is asked.
    BackgroundThread,
    /// Gives back what is not in use.
    Trim,
}

/// Their place is the number by which `mallctlbymib` knows them.
const CONTROLS: [(&[u8], Control); 12] = [
    (b"epoch", Control::Epoch),
    (b"version", Control::Version),
    (b"stats.allocated", Control::Allocated),
    (b"stats.active", Control::Held),
    (b"stats.resident", Control::Held),
    (b"stats.mapped", Control::Held),
    (b"stats.retained", Control::Retained),
    (b"stats.metadata", Control::Metadata),
    (b"arenas.narenas", Control::Arenas),
    (b"arenas.create", Control::Create),
    (b"background_thread", Control::BackgroundThread),
    (b"thread.tcache.flush", Control::Trim),
];

/// What the names `arena.N.…` of [`Control::Trim`] end with. Objects of an arena that a program destroys it frees before.
const OF_ARENA: [&[u8]; 3] = [b"purge", b"decay", b"destroy"];

/// The numbers by which `mallctlbymib` knows a name. As in jemalloc, `arena.N.…` has three, of which a
/// program may replace the second with the number of another arena.
enum Mib {
    One([usize; 1]),
    OfArena([usize; 3]),
}

impl Mib {
    /// The first number of `arena.N.…`.
    const ARENA: usize = CONTROLS.len();

    fn of(name: &[u8]) -> Option<Mib> {
        if let Some(at) = CONTROLS.iter().position(|known| known.0 == name) {
            return Some(Mib::One([at]));
        }
        let name = name.strip_prefix(b"arena.")?;
        let (arena, what) = name.split_at(name.iter().position(|&byte| byte == b'.')?);
        let arena = usize::try_from(nocopy_settings::number(arena)?).ok()?;
        let what = OF_ARENA.iter().position(|&known| known == &what[1..])?;
        Some(Mib::OfArena([Mib::ARENA, arena, what]))
    }

    fn numbers(&self) -> &[usize] {
        match self {
            Mib::One(numbers) => numbers,
            Mib::OfArena(numbers) => numbers,
        }
    }
}

/// The control with these numbers.
fn control(mib: &[usize]) -> Option<Control> {
    match *mib {
        [number] => CONTROLS.get(number).map(|known| known.1),
        [Mib::ARENA, _, what] if what < OF_ARENA.len() => Some(Control::Trim),
        _ => None,
    }
}

/// Says once that a control is unknown, where there is a jemalloc that would know it: others ask
/// only to learn whether they run with it.
fn unknown(name: &[u8]) -> c_int {
    static SAID: AtomicBool = AtomicBool::new(false);
    // SAFETY: a C string.
    let theirs = unsafe { libc::dlsym(libc::RTLD_NEXT, c"mallctl".as_ptr()) };
    if !theirs.is_null() && !SAID.swap(true, Relaxed) {
        say(&[
            b"brug has this program's memory, not jemalloc; mallctl knows no ",
            name,
        ]);
    }
    libc::ENOENT
}

/// Gives a value to a program that wants it.
///
/// # Safety
/// As for [`mallctl`].
unsafe fn give<T: Copy>(value: T, to: *mut c_void, len: *mut usize) -> c_int {
    if to.is_null() || len.is_null() {
        return 0;
    }
    // SAFETY: by contract.
    unsafe {
        let room = *len;
        *len = room.min(size_of::<T>());
        ptr::copy_nonoverlapping(ptr::from_ref(&value).cast::<u8>(), to.cast(), *len);
        if room == size_of::<T>() {
            0
        } else {
            libc::EINVAL
        }
    }
}

/// # Safety
/// As for [`mallctl`].
unsafe fn act(control: Control, old: *mut c_void, len: *mut usize, new: *mut c_void) -> c_int {
    let read_only = !matches!(
        control,
        Control::Epoch | Control::BackgroundThread | Control::Trim
    );
    if read_only && !new.is_null() {
        return libc::EPERM;
    }
    let info = mallinfo2;
    // SAFETY: passed on.
    unsafe {
        match control {
            Control::Epoch => give(1u64, old, len),
            Control::Version => give(c"brug, in the place of jemalloc".as_ptr(), old, len),
            Control::Allocated => give(info().uordblks + info().hblkhd, old, len),
            Control::Held => give(info().arena + info().hblkhd, old, len),
            Control::Retained => give(brug::stats().bytes_retained as usize, old, len),
            Control::Metadata => give(brug::raw::bookkeeping(), old, len),
            Control::Arenas => give(1u32, old, len),
            Control::Create => give(0u32, old, len),
            Control::BackgroundThread => give(true, old, len),
            Control::Trim => {
                malloc_trim(0);
                0
            }
        }
    }
}

/// jemalloc's `mallctl(3)`: reads the control `name` into `old`, or writes it.
///
/// # Safety
/// `name` is a C string; `len` is null or valid, and `old` null or valid for `*len` bytes.
#[no_mangle]
pub unsafe extern "C" fn mallctl(
    name: *const c_char,
    old: *mut c_void,
    len: *mut usize,
    new: *mut c_void,
    _new_len: usize,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let name = CStr::from_ptr(name).to_bytes();
        match Mib::of(name).and_then(|mib| control(mib.numbers())) {
            Some(control) => act(control, old, len, new),
            None => unknown(name),
        }
    }
}

/// jemalloc's `mallctlnametomib(3)`. The numbers are for [`mallctlbymib`] only.
///
/// # Safety
/// `name` is a C string, and `mib` has room for `*len` numbers.
#[no_mangle]
pub unsafe extern "C" fn mallctlnametomib(
    name: *const c_char,
    mib: *mut usize,
    len: *mut usize,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let name = CStr::from_ptr(name).to_bytes();
        let Some(found) = Mib::of(name) else {
            return unknown(name);
        };
        let numbers = found.numbers();
        if *len < numbers.len() {
            return libc::EINVAL;
        }
        ptr::copy_nonoverlapping(numbers.as_ptr(), mib, numbers.len());
        *len = numbers.len();
    }
    0
}

/// jemalloc's `mallctlbymib(3)`, with the numbers of [`mallctlnametomib`].
///
/// # Safety
/// As for [`mallctl`]; `mib` has `mib_len` numbers.
#[no_mangle]
pub unsafe extern "C" fn mallctlbymib(
    mib: *const usize,
    mib_len: usize,
    old: *mut c_void,
    len: *mut usize,
    new: *mut c_void,
    _new_len: usize,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        if mib_len == 0 {
            return libc::ENOENT;
        }
        match control(core::slice::from_raw_parts(mib, mib_len)) {
            Some(control) => act(control, old, len, new),
            None => libc::ENOENT,
        }
    }
}

/// Writes text for a program: what jemalloc's `malloc_stats_print` takes.
type Write = unsafe extern "C" fn(*mut c_void, *const c_char);

/// Hands text to a program as C strings, without allocating.
struct Pieces {
    write: Write,
    opaque: *mut c_void,
}

impl fmt::Write for Pieces {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut piece = [0u8; 256];
        for part in text.as_bytes().chunks(piece.len() - 1) {
            piece[..part.len()].copy_from_slice(part);
            piece[part.len()] = 0;
            // SAFETY: by contract of `malloc_stats_print`.
            unsafe { (self.write)(self.opaque, piece.as_ptr().cast()) };
        }
        Ok(())
    }
}

/// jemalloc's `malloc_stats_print(3)`, with brug's statistics.
///
/// # Safety
/// `write` is null or may be called with `opaque` and a C string.
#[no_mangle]
pub unsafe extern "C" fn malloc_stats_print(
    write: Option<Write>,
    opaque: *mut c_void,
    _options: *const c_char,
) {
    let Some(write) = write else {
        return brug::raw::print_statistics(libc::STDERR_FILENO);
    };
    // Handing over does not fail.
    let _ = brug::raw::write_statistics(&mut Pieces { write, opaque });
}
