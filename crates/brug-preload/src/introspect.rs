// SPDX-License-Identifier: MIT OR Apache-2.0
//! glibc's questions about the heap: `mallinfo`, `mallopt`, `malloc_trim`, `malloc_stats`.
//!
//! Growth slots are reported the way the C library reports its own mapped blocks, and objects of
//! the other bases the way it reports its own objects; what it holds itself is asked of it.

use core::ffi::{c_int, CStr};
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

use brug::{raw, Brug, Mode};

use crate::next::function;

/// The C library's own function of this name.
///
/// # Safety
/// `F` is its type, a function pointer.
pub(crate) unsafe fn theirs<F: Copy>(name: &CStr) -> Option<F> {
    // SAFETY: by contract.
    unsafe { function(raw::base_symbol(name)) }
}

/// `malloc_trim(3)`: gives retained memory back to the system now; 1 if there was any.
#[no_mangle]
pub extern "C" fn malloc_trim(pad: usize) -> c_int {
    let any = raw::trim();
    // SAFETY: this is its type.
    let trim = unsafe { theirs::<extern "C" fn(usize) -> c_int>(c"malloc_trim") };
    trim.map_or(0, |trim| trim(pad)) | c_int::from(any)
}

/// What a program has asked for that the C library keeps its memory: that its heap has large objects as well, and that
/// the heap's end stays.
static KEEPS: AtomicU8 = AtomicU8::new(0);
const LARGE_OBJECTS: u8 = 1;
const ITS_END: u8 = 2;

/// `mallopt(3)`: tunes the C library's allocator, whether or not it is the base.
///
/// A program that lets no object have a mapping of its own touches the heap ahead, so that none has pages that are still to
/// come; and one that lets few have one, and keeps more at the end of the heap than slots do for long, wants freed memory to
/// be there. In mode `auto` the C library has every new object from then on.
#[no_mangle]
pub extern "C" fn mallopt(parameter: c_int, value: c_int) -> c_int {
    const THRESHOLD: c_int = 128 << 10;
    const MUCH: c_int = 8 << 20;
    // SAFETY: this is its type.
    let set = unsafe { theirs::<extern "C" fn(c_int, c_int) -> c_int>(c"mallopt") };
    let done = set.map_or(0, |set| set(parameter, value));
    let asks = match parameter {
        _ if done == 0 => 0,
        libc::M_MMAP_MAX if value == 0 => LARGE_OBJECTS | ITS_END,
        libc::M_MMAP_THRESHOLD if value > THRESHOLD => LARGE_OBJECTS,
        libc::M_TRIM_THRESHOLD if !(0..MUCH).contains(&value) => ITS_END,
        _ => 0,
    };
    let keeps = KEEPS.fetch_or(asks, Relaxed) | asks == LARGE_OBJECTS | ITS_END;
    if asks != 0 && keeps && raw::config().mode == Mode::Auto {
        // It is part of every build.
        let _ = Brug::set_mode(Mode::Sys);
    }
    done
}

/// `mallinfo2(3)` of all allocators together: growth slots count as mapped blocks.
#[no_mangle]
pub extern "C" fn mallinfo2() -> libc::mallinfo2 {
    // SAFETY: this is its type; a structure of numbers may be all zero.
    let mut info = unsafe {
        theirs::<extern "C" fn() -> libc::mallinfo2>(c"mallinfo2")
            .map_or_else(|| core::mem::zeroed(), |ask| ask())
    };
    let usage = raw::usage();
    info.hblks += usage.slots.0;
    info.hblkhd += usage.slots.1;
    info.arena += usage.held;
    info.uordblks += usage.in_use;
    info.fordblks += usage.held.saturating_sub(usage.in_use);
    info
}

/// `mallinfo(3)`, whose numbers wrap above 2 GiB as they do in the C library.
#[no_mangle]
pub extern "C" fn mallinfo() -> libc::mallinfo {
    let info = mallinfo2();
    libc::mallinfo {
        arena: info.arena as c_int,
        ordblks: info.ordblks as c_int,
        smblks: info.smblks as c_int,
        hblks: info.hblks as c_int,
        hblkhd: info.hblkhd as c_int,
        usmblks: info.usmblks as c_int,
        fsmblks: info.fsmblks as c_int,
        uordblks: info.uordblks as c_int,
        fordblks: info.fordblks as c_int,
        keepcost: info.keepcost as c_int,
    }
}

/// `malloc_stats(3)`: brug's counters on stderr, then the other bases' and the C library's.
#[no_mangle]
pub extern "C" fn malloc_stats() {
    raw::print_statistics(libc::STDERR_FILENO);
    let usage = raw::usage();
    let (objects, bytes) = usage.slots;
    raw::complain(format_args!("objects in slots {objects}, bytes {bytes}"));
    if usage.held > 0 {
        raw::complain(format_args!(
            "mimalloc holds {} bytes, of which in use {}",
            usage.held, usage.in_use
        ));
    }
    raw::complain(format_args!("the C library, of its own objects alone:"));
    // SAFETY: this is its type.
    if let Some(print) = unsafe { theirs::<extern "C" fn()>(c"malloc_stats") } {
        print();
    }
}
