// SPDX-License-Identifier: MIT OR Apache-2.0
//! The way of a request: the paper's request handler and Decision Maker.
//!
//! What is inlined into the program is one or two compares on each side: `malloc` of up to
//! a limit goes straight to the allocator that has the small objects, and so does what
//! lies in its range. Everything else is out of line. The limits already contain the
//! mode, the template and whether anything is initialised (zero: nothing is), so the
//! short way asks for none of them.

use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{
    AtomicBool, AtomicU64, AtomicU8, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
};

use crate::arena::{self, Resized, GEOMETRY};
use crate::base::{self, sys, Owner, SYS_ALIGN};
use crate::config::{self, Config, ShowStats};
use crate::mode::{Base, Mode, ModeUnavailable};
#[cfg(feature = "monitor")]
use crate::monitor;
use crate::os;
use crate::stats::{self, bump, STATS};
use crate::{purge, tls, trial, tuner};

/// What every call reads, written a few times in a process.
///
/// It has its place in assembly, under a hidden name, so that to read a word is one
/// instruction and does not take another for the address.
#[repr(C, align(64))]
pub(crate) struct Hot {
    /// An address below this is null or the C library's: where the arena begins. Most of
    /// the C library's memory lies below, as the kernel fills the address space downwards;
    /// what does not takes the long way. 0 while the monitor is on.
    pub(crate) low: AtomicUsize,
    /// New objects up to this size are the C library's.
    pub(crate) malloc_limit: AtomicUsize,
    /// So are its objects that grow up to this size.
    pub(crate) realloc_limit: AtomicUsize,
    /// New objects up to this size are had from `alloc`, whosever that is.
    limit: AtomicUsize,
    /// Function of the type [`base::Alloc`].
    alloc: AtomicUsize,
    /// Where objects belong to one other allocator: what to add to an address to get
    /// its offset there, and the length. Set once; the length comes last.
    offset: AtomicUsize,
    len: AtomicUsize,
    /// Function of the type [`base::Free`] for those objects.
    free: AtomicUsize,
    rest: Rest,
}

/// What only the long way reads, and reallocation.
#[repr(C, align(64))]
struct Rest {
    /// Function of the type [`base::Realloc`] for objects of the other allocator, and up
    /// to which size they stay with it.
    realloc: AtomicUsize,
    other_realloc_limit: AtomicUsize,
    mode: AtomicU8,
    base: AtomicU8,
    /// Whether the configuration has been read.
    init: AtomicU8,
    /// Whether the monitor is on.
    observed: AtomicBool,
    /// Whether threads are in scopes of their own mode, or were a short time ago.
    scoped: AtomicBool,
}

/// Beyond every address.
const NOWHERE: usize = 1 << (usize::BITS - 1);

#[cfg(not(miri))]
core::arch::global_asm!(
    ".pushsection .data.brug_hot_v0, \"aw\"",
    ".p2align 6",
    ".hidden brug_hot_v0",
    ".globl brug_hot_v0",
    ".type brug_hot_v0, %object",
    ".size brug_hot_v0, 128",
    "brug_hot_v0:",
    ".quad {nowhere}, 0, 0, 0",
    ".quad {alloc}, {nowhere}, 0, 0",
    ".quad 0, 0",
    ".byte {auto}, 0, 0, 0, 0",
    ".zero 43",
    ".popsection",
    nowhere = const NOWHERE,
    alloc = sym base::sys::alloc,
    auto = const Mode::Auto as u8,
);

const _: () = assert!(core::mem::size_of::<Hot>() == 128);

#[cfg(not(miri))]
#[inline(always)]
pub(crate) fn hot() -> &'static Hot {
    extern "C" {
        #[link_name = "brug_hot_v0"]
        static HOT: Hot;
    }
    // SAFETY: defined above, with this layout; all fields are atomic.
    unsafe { &HOT }
}

#[cfg(miri)]
pub(crate) fn hot() -> &'static Hot {
    static HOT: Hot = Hot {
        low: AtomicUsize::new(NOWHERE),
        malloc_limit: AtomicUsize::new(0),
        realloc_limit: AtomicUsize::new(0),
        limit: AtomicUsize::new(0),
        alloc: AtomicUsize::new(0),
        offset: AtomicUsize::new(NOWHERE),
        len: AtomicUsize::new(0),
        free: AtomicUsize::new(0),
        rest: Rest {
            realloc: AtomicUsize::new(0),
            other_realloc_limit: AtomicUsize::new(0),
            mode: AtomicU8::new(Mode::Auto as u8),
            base: AtomicU8::new(Base::Glibc as u8),
            init: AtomicU8::new(NEW),
            observed: AtomicBool::new(false),
            scoped: AtomicBool::new(false),
        },
    };
    &HOT
}

/// The word of [`Hot`] at an offset, loaded with acquire ordering.
#[inline(always)]
fn word<const AT: usize>() -> usize {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: reads a word that is there and is only ever written whole. A plain load has
    // acquire ordering on this machine.
    unsafe {
        let value: usize;
        core::arch::asm!(
            "mov {value}, qword ptr [rip + brug_hot_v0 + {at}]",
            value = out(reg) value,
            at = const AT,
            options(readonly, nostack, preserves_flags)
        );
        value
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    // SAFETY: the offset is that of a field of this type.
    unsafe {
        let field = ptr::from_ref(hot()).byte_add(AT).cast::<AtomicUsize>();
        (*field).load(Acquire)
    }
}

macro_rules! load {
    ($($field:ident).+) => {
        word::<{ core::mem::offset_of!(Hot, $($field).+) }>()
    };
}

/// Objects below this size do not move early, whatever they do.
const EARLY_MIN: usize = 8 << 10;
/// Growths in the base allocator after which an object moves early. One or none is enough
/// where the tuner knows that it goes on; of those, one in `ASIDE` stays for it to see.
const EARLY_COUNT: u64 = 2;
const ASIDE: u32 = 16;
/// Larger reallocations are not timed: there is nothing to decide about them, and the
/// touch would make pages of objects that their program uses sparsely.
const SAMPLE_MAX: usize = 1 << 20;
/// Slots that early movers may take; a slot costs a page table.
const EARLY_SLOTS: usize = 512;
/// Objects that shrink below this leave their slot.
const LEAVE_MAX: usize = 4096;

const NEW: u8 = 0;
const BUSY: u8 = 1;
const DONE: u8 = 2;
/// Scopes of a mode of their own that threads are in.
static SCOPES: AtomicUsize = AtomicUsize::new(0);
/// Held while limits are worked out from what they contain.
static CONTROL: AtomicBool = AtomicBool::new(false);

/// Whether an address is in a growth slot.
#[inline]
pub(crate) fn in_slot(p: *mut u8) -> bool {
    (p as usize).wrapping_sub(GEOMETRY.base.load(Relaxed)) < GEOMETRY.slots_len.load(Relaxed)
}

#[inline]
pub(crate) fn owner_of(p: *mut u8) -> Owner {
    let offset = (p as usize).wrapping_sub(GEOMETRY.base.load(Relaxed));
    if offset < GEOMETRY.slots_len.load(Relaxed) {
        Owner::Slot
    } else if offset >= GEOMETRY.len.load(Relaxed) {
        Owner::Sys
    } else {
        base::foreign_owner(p)
    }
}

/// Whether the first base is the only one: then the C library is called by its name.
const ONE_BASE: bool = !cfg!(any(feature = "jemalloc", feature = "mimalloc"));
/// Alignment that every base gives every object.
const MIN_ALIGN: usize = 8;

/// A new object for a caller who will tell its size and alignment when it is freed.
#[inline]
pub(crate) unsafe fn alloc(size: usize, align: usize) -> *mut u8 {
    if ONE_BASE {
        // SAFETY: no preconditions.
        return unsafe { alloc_untold(size, align) };
    }
    if align <= MIN_ALIGN && size <= load!(limit) {
        // SAFETY: the word is a function of this type and does what it is there for.
        unsafe { core::mem::transmute::<usize, base::Alloc>(load!(alloc))(size).cast() }
    } else {
        alloc_other(size, align)
    }
}

/// A new object for a caller who will tell nothing, as in C.
#[inline]
pub(crate) unsafe fn alloc_untold(size: usize, align: usize) -> *mut u8 {
    if align <= SYS_ALIGN && size <= load!(malloc_limit) {
        // SAFETY: no preconditions.
        unsafe { sys::malloc(size) }
    } else {
        alloc_other(size, align)
    }
}

#[inline]
pub(crate) unsafe fn alloc_zeroed(size: usize, align: usize) -> *mut u8 {
    if align <= SYS_ALIGN && size <= load!(malloc_limit) {
        // SAFETY: no preconditions.
        unsafe { sys::calloc(size, 1) }
    } else {
        alloc_cold(size, align, true)
    }
}

#[inline]
pub(crate) unsafe fn free(p: *mut u8) {
    // SAFETY: an object that the caller owns.
    unsafe {
        if (p as usize) < load!(low) {
            sys::free(p);
        } else {
            free_cold(p);
        }
    }
}

/// Frees an object of [`alloc`], [`alloc_zeroed`] or [`realloc`] with a size.
#[inline]
pub(crate) unsafe fn free_told(p: *mut u8, size: usize, align: usize) {
    // SAFETY: an object that the caller owns, with this size and alignment. The word is a
    // function of this type for what is in that range.
    unsafe {
        if !ONE_BASE && in_other(p) {
            if align > MIN_ALIGN {
                return free_cold(p);
            }
            core::mem::transmute::<usize, base::Free>(load!(free))(p.cast(), size, 0);
        } else {
            free(p);
        }
    }
}

/// Whether an object is the one other allocator's that is called without asking.
#[inline(always)]
pub(crate) fn in_other(p: *mut u8) -> bool {
    (p as usize).wrapping_add(load!(offset)) < load!(len)
}

/// `old` is the size asked for, or `UNKNOWN` for an object of [`alloc_untold`].
#[inline]
pub(crate) unsafe fn realloc(p: *mut u8, old: usize, align: usize, new: usize) -> *mut u8 {
    // SAFETY: an object that the caller owns. The word is a function of this type for what
    // is in that range.
    unsafe {
        if !ONE_BASE
            && new <= load!(rest.other_realloc_limit)
            && align <= MIN_ALIGN
            && old != UNKNOWN
            && in_other(p)
        {
            let realloc = core::mem::transmute::<usize, base::Realloc>(load!(rest.realloc));
            realloc(p.cast(), old, new).cast()
        } else if new <= load!(realloc_limit) && align <= SYS_ALIGN && (p as usize) < load!(low) {
            sys::realloc(p, new)
        } else {
            realloc_cold(p, old, align, new)
        }
    }
}

pub(crate) const UNKNOWN: usize = usize::MAX;

// The ways out of line do not unwind, and say so by their ABI: then the short ways end in a
// jump.

#[inline(never)]
unsafe extern "C" fn free_cold(p: *mut u8) {
    #[cfg(feature = "monitor")]
    if hot().rest.observed.load(Relaxed) {
        monitor::note_free(p);
    }
    // SAFETY: an object that the caller owns.
    unsafe {
        match owner_of(p) {
            Owner::Slot => arena::free(p),
            owner if trial::running() => trial::free(owner, p),
            owner => base::free(owner, p),
        }
    }
}

/// The second shortest way, for objects that are aligned like C's.
#[inline(never)]
extern "C" fn alloc_other(size: usize, align: usize) -> *mut u8 {
    // An object as large as aligned has that alignment without being asked.
    let enough = size.max(align);
    if align <= SYS_ALIGN && enough <= load!(limit) {
        // SAFETY: the word is a function of this type.
        let p = unsafe { core::mem::transmute::<usize, base::Alloc>(load!(alloc))(enough) };
        if !p.is_null() {
            return p.cast();
        }
    }
    alloc_cold(size, align, false)
}

#[inline(never)]
pub(crate) extern "C" fn alloc_cold(size: usize, align: usize, zero: bool) -> *mut u8 {
    ready();
    if hot().rest.scoped.load(Relaxed) {
        end_of_scopes();
    }
    let mode = mode();
    if mode == Mode::Auto && size < config::current().switch_point {
        if trial::running() {
            return trial::alloc(size, align, zero);
        }
        if size >= LEAVE_MAX && align <= arena::MAX_ALIGN && born_to_grow(size) {
            let p = arena::alloc(size, zero, false);
            if !p.is_null() {
                return p;
            }
        }
    }
    alloc_in(mode, size, align, zero)
}

/// Whether a new object had better be in a slot, as far as mode `auto` knows.
#[inline]
fn born_to_grow(size: usize) -> bool {
    if tuner::will_grow(size) && arena::live() < EARLY_SLOTS && !aside() {
        return true;
    }
    if tuner::born(size) {
        try_control(|| ());
    }
    false
}

/// Allocates as `mode` says.
#[inline]
pub(crate) fn alloc_in(mode: Mode, size: usize, align: usize, zero: bool) -> *mut u8 {
    let owner = place(mode, size);
    if owner == Owner::Slot && align <= arena::MAX_ALIGN {
        let p = arena::alloc(size, zero, false);
        if !p.is_null() {
            return p;
        }
    }
    let base = if owner == Owner::Slot {
        base_owner()
    } else {
        owner
    };
    alloc_base(base, size, align, zero)
}

#[inline]
pub(crate) fn alloc_base(base: Owner, size: usize, align: usize, zero: bool) -> *mut u8 {
    last_resort(|| {
        // SAFETY: no preconditions.
        unsafe {
            let p = base::alloc(base, size, align, zero);
            if p.is_null() && base != Owner::Sys {
                return base::alloc(Owner::Sys, size, align, zero);
            }
            p
        }
    })
}

/// Before giving up, gives the system everything that no object needs and tries once more.
#[inline]
fn last_resort(attempt: impl Fn() -> *mut u8) -> *mut u8 {
    let p = attempt();
    if !p.is_null() {
        return p;
    }
    give_up(&attempt)
}

#[cold]
#[inline(never)]
fn give_up(attempt: &dyn Fn() -> *mut u8) -> *mut u8 {
    // What is refused for the first time may be a limit that was set a moment ago.
    memory_is_counted();
    if arena::take_back() {
        let p = attempt();
        if !p.is_null() {
            return p;
        }
    }
    bump(&STATS.no_memory, 1);
    ptr::null_mut()
}

/// Where an object of this size belongs.
#[inline]
fn place(mode: Mode, size: usize) -> Owner {
    match mode {
        Mode::Sys | Mode::Jemalloc | Mode::Mimalloc => fixed(mode),
        Mode::Mmap => {
            if size >= os::page_size() {
                Owner::Slot
            } else {
                base_owner()
            }
        }
        Mode::Template => match config::current().template.mode_for(size) {
            Mode::Mmap => Owner::Slot,
            mode => fixed(mode),
        },
        Mode::Auto => {
            if size >= config::current().switch_point {
                Owner::Slot
            } else {
                base_owner()
            }
        }
    }
}

#[inline]
fn fixed(mode: Mode) -> Owner {
    match mode {
        #[cfg(feature = "jemalloc")]
        Mode::Jemalloc => Owner::Jemalloc,
        #[cfg(feature = "mimalloc")]
        Mode::Mimalloc => Owner::Mimalloc,
        _ => Owner::Sys,
    }
}

/// The owner of what is in no slot.
#[inline]
pub(crate) fn base_owner() -> Owner {
    Owner::of(base())
}

/// The base of what is in no slot.
pub(crate) fn base() -> Base {
    Base::from_u8(hot().rest.base.load(Relaxed))
}

#[inline(never)]
pub(crate) unsafe extern "C" fn realloc_cold(
    p: *mut u8,
    old: usize,
    align: usize,
    new: usize,
) -> *mut u8 {
    // SAFETY: an object that the caller owns.
    unsafe { realloc_in(None, p, old, align, new) }
}

/// `mode`: the allocator of a data structure, if it has its own.
pub(crate) unsafe fn realloc_in(
    mode: Option<Mode>,
    p: *mut u8,
    old: usize,
    align: usize,
    new: usize,
) -> *mut u8 {
    ready();
    #[cfg(feature = "monitor")]
    if hot().rest.observed.load(Relaxed) {
        // SAFETY: an object that the caller owns.
        return unsafe { observe(mode, p, old, align, new) };
    }
    // SAFETY: an object that the caller owns.
    unsafe { realloc_sometimes_timed(mode, p, old, align, new) }
}

#[cfg(feature = "monitor")]
#[inline(never)]
unsafe fn observe(mode: Option<Mode>, p: *mut u8, old: usize, align: usize, new: usize) -> *mut u8 {
    // SAFETY: an object that the caller owns.
    unsafe {
        let old = if old == UNKNOWN { usable_size(p) } else { old };
        let begin = os::now_ns();
        let q = realloc_sometimes_timed(mode, p, old, align, new);
        if !q.is_null() {
            monitor::note_realloc(p, q, old, new, os::now_ns() - begin);
        }
        q
    }
}

#[inline]
unsafe fn realloc_sometimes_timed(
    mode: Option<Mode>,
    p: *mut u8,
    old: usize,
    align: usize,
    new: usize,
) -> *mut u8 {
    let tick = tick();
    if tick.is_multiple_of(trial::OLD) {
        look_again();
    }
    // SAFETY: an object that the caller owns.
    unsafe {
        if tick.is_multiple_of(tuner::SAMPLE) && (EARLY_MIN..=SAMPLE_MAX).contains(&new) {
            return realloc_timed(
                mode,
                p,
                old,
                align,
                new,
                tick.is_multiple_of(tuner::EXPERIMENT),
            );
        }
        realloc_now(mode, p, old, align, new, false)
    }
}

/// Numbers what the calling thread does.
#[inline]
fn tick() -> u32 {
    // SAFETY: the calling thread's words.
    unsafe {
        let ticks = &(*tls::local()).ticks;
        let tick = ticks.get().wrapping_add(1);
        ticks.set(tick);
        tick
    }
}

/// Whether an object is left alone to see what it does.
#[inline]
fn aside() -> bool {
    // SAFETY: the calling thread's own.
    let calls = unsafe { &(*tls::local()).calls };
    calls.set(calls.get().wrapping_add(1));
    // Spread, so that a program whose calls repeat does not always have the same one out.
    calls.get().wrapping_mul(0x9e37_79b9) < u32::MAX / ASIDE
}

/// What the last trial found has become old.
#[cold]
#[inline(never)]
fn look_again() {
    if config::current().base.is_none() && mode() == Mode::Auto && !memory_is_counted() {
        try_control(trial::start);
    }
}

/// One reallocation for the tuner's table, with the touch of the pages it adds.
#[cold]
#[inline(never)]
unsafe fn realloc_timed(
    mode: Option<Mode>,
    p: *mut u8,
    old: usize,
    align: usize,
    new: usize,
    experiment: bool,
) -> *mut u8 {
    let auto = mode.unwrap_or_else(self::mode) == Mode::Auto;
    // SAFETY: an object that the caller owns; it has `new` bytes afterwards, and those
    // beyond `old` have no content yet.
    unsafe {
        if !auto {
            return realloc_now(mode, p, old, align, new, false);
        }
        let old = if old == UNKNOWN { usable_size(p) } else { old };
        let before = owner_of(p);
        let begin = os::now_ns();
        let q = realloc_now(mode, p, old, align, new, experiment);
        if q.is_null() || new <= old {
            return q;
        }
        let called = os::now_ns();
        let page = os::page_size();
        let pages = (new - old).div_ceil(page);
        let some = pages.min(64);
        for i in 0..some {
            q.add(old + i * page).write_volatile(0);
        }
        let touched = os::now_ns() - called;
        let ns = called - begin + touched * pages as u64 / some as u64;
        let arm = match (before, owner_of(q)) {
            (Owner::Slot, Owner::Slot) => tuner::Arm::Slot,
            (Owner::Slot, _) => return q,
            (_, Owner::Slot) => tuner::Arm::Move,
            _ => tuner::Arm::Base,
        };
        tuner::record(arm, new, ns);
        q
    }
}

/// `experiment`: decide the other way.
#[inline]
unsafe fn realloc_now(
    mode: Option<Mode>,
    p: *mut u8,
    old: usize,
    align: usize,
    new: usize,
    experiment: bool,
) -> *mut u8 {
    let owner = owner_of(p);
    // SAFETY: an object that the caller owns.
    unsafe {
        if owner == Owner::Slot {
            return resize_slot(p, align, new);
        }
        let old = if old == UNKNOWN {
            base::usable_size(owner, p)
        } else {
            old
        };
        let mode = mode.unwrap_or_else(self::mode);
        let mut target = place(mode, new);
        let mut count = 0;
        if mode == Mode::Auto && target != Owner::Slot && new >= LEAVE_MAX {
            count = counters::take(p);
            if new > old {
                count += 1;
                let mut early = count >= EARLY_COUNT;
                if count == 1 {
                    if tuner::grows(old) {
                        try_control(|| ());
                    }
                    early = tuner::goes_on(new) && !aside();
                    if !early {
                        tuner::grew_once(new);
                    }
                } else if count == EARLY_COUNT {
                    tuner::grew_again(old);
                }
                let decided = tuner::decision(new) != tuner::Decision::Base;
                if decided != experiment && early && new >= EARLY_MIN && arena::live() < EARLY_SLOTS
                {
                    target = Owner::Slot;
                    bump(&STATS.moves_early, 1);
                }
            } else {
                count = count.saturating_sub(1);
            }
        }
        if target == Owner::Slot && new > old && align <= arena::MAX_ALIGN {
            let q = arena::alloc(new, false, true);
            if !q.is_null() {
                ptr::copy_nonoverlapping(p, q, old);
                base::free(owner, p);
                bump(&STATS.moves_in, 1);
                bump(&STATS.bytes_copied, old);
                return q;
            }
        }
        // It grows out of the sizes of its allocator, as the template or the mode has
        // it: the paper's malloc-copy-free between allocators.
        let stays = target == owner || target == Owner::Slot || new <= old || mode == Mode::Auto;
        if !stays {
            let q = base::alloc(target, new, align, false);
            if !q.is_null() {
                ptr::copy_nonoverlapping(p, q, old);
                base::free(owner, p);
                bump(&STATS.bytes_copied, old);
                return q;
            }
        }
        let q = last_resort(|| base::realloc(owner, p, old, align, new));
        if count > 0 && !q.is_null() {
            counters::put(q, count);
        }
        q
    }
}

/// Changes the size of an object that is in a slot: there if that is possible, and
/// else by copying it to the base allocator.
unsafe fn resize_slot(p: *mut u8, align: usize, new: usize) -> *mut u8 {
    // SAFETY: an object in a slot that the caller owns.
    unsafe {
        if new >= LEAVE_MAX {
            if let Resized::At(q) = arena::resize(p, new) {
                return q;
            }
        }
        let old = arena::size_of(p);
        let q = alloc_base(base_owner(), new, align, false);
        if q.is_null() {
            if new <= old {
                // Nothing smaller to be had: it stays, and it fits.
                if let Resized::At(q) = arena::resize(p, new.max(1)) {
                    return q;
                }
            }
            return q;
        }
        ptr::copy_nonoverlapping(p, q, old.min(new));
        arena::free(p);
        bump(&STATS.moves_out, 1);
        bump(&STATS.bytes_copied, old.min(new));
        q
    }
}

/// Bytes usable in an object.
pub(crate) unsafe fn usable_size(p: *mut u8) -> usize {
    // SAFETY: an object that the caller owns.
    unsafe {
        match owner_of(p) {
            Owner::Slot => arena::usable_size(p),
            owner => base::usable_size(owner, p),
        }
    }
}

/// The paper's allocation counter, for objects that have no descriptor: a table in
/// which the last writer wins. It is a hint, so neither a lost nor a stale entry
/// does harm, and no thread waits for another.
mod counters {
    use super::*;

    const LEN: usize = 512;
    static TABLE: [AtomicU64; LEN] = [const { AtomicU64::new(0) }; LEN];

    fn place(p: *mut u8) -> (&'static AtomicU64, u64) {
        let key = p as u64 >> 4;
        let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 55;
        (&TABLE[hash as usize], key << 8)
    }

    pub(super) fn take(p: *mut u8) -> u64 {
        let (entry, key) = place(p);
        let found = entry.load(Relaxed);
        if found & !0xff != key {
            return 0;
        }
        entry.store(0, Relaxed);
        found & 0xff
    }

    pub(super) fn put(p: *mut u8, count: u64) {
        let (entry, key) = place(p);
        entry.store(key | count.min(255), Relaxed);
    }
}

/// The calling thread's mode.
#[inline]
pub(crate) fn mode() -> Mode {
    if hot().rest.scoped.load(Relaxed) {
        // SAFETY: the calling thread's own.
        let scope = unsafe { (*tls::local()).scope.get() };
        if scope != 0 {
            return Mode::from_u8(scope - 1);
        }
    }
    Mode::from_u8(hot().rest.mode.load(Relaxed))
}

/// Reads the environment if nothing has yet.
#[inline]
pub(crate) fn ready() {
    if hot().rest.init.load(Acquire) != DONE {
        initialise();
    }
}

#[cold]
fn initialise() {
    if !Config::env_is_there() {
        // Before the C library's first instruction; defaults will do until then.
        return;
    }
    if hot()
        .rest
        .init
        .compare_exchange(NEW, BUSY, Acquire, Relaxed)
        .is_err()
    {
        // Someone is at it, perhaps this thread: defaults will do.
        return;
    }
    let config = os::keep_errno(Config::from_env);
    // SAFETY: the first and only caller at this time.
    unsafe { put_in_force(&config) };
}

/// # Safety
/// As for [`config::install`].
pub(crate) unsafe fn put_in_force(config: &Config) {
    let mut config = *config;
    if !config.mode.is_available() {
        os::complain(format_args!("{}; using auto", ModeUnavailable(config.mode)));
        config.mode = Mode::Auto;
    }
    if let Some(base) = config.base.filter(|base| !base.is_available()) {
        os::complain(format_args!(
            "base {base} is not part of this build; using glibc"
        ));
        config.base = Some(Base::Glibc);
    }
    // SAFETY: passed on.
    unsafe { config::install(&config) };
    purge::reconfigure();
    if let Some(path) = config.profile {
        tuner::load(path);
    }
    // A profile with what a trial found saves the trial.
    let tried = Base::ALL
        .iter()
        .any(|&base| trial::verdict(base).samples > 0);
    let chosen = config.base.unwrap_or_else(|| trial::best(Base::Glibc));
    set_base(chosen);
    COUNTED.store(os::counts_memory(), Relaxed);
    // Where memory counts when it is committed, what three allocators keep is too much.
    if config.base.is_none() && !tried && !COUNTED.load(Relaxed) {
        trial::start();
    }
    hot().rest.init.store(DONE, Release);
    at_exit(&config);
    #[cfg(feature = "monitor")]
    if config.monitor {
        monitor::start();
    }
    control(|| hot().rest.mode.store(config.mode as u8, Relaxed));
}

/// Whether the caller shows statistics itself, as libbrug.so does.
pub(crate) static STATISTICS_ELSEWHERE: AtomicBool = AtomicBool::new(false);

/// Has done what the configuration wants done when the program ends.
fn at_exit(config: &Config) {
    static DONE: AtomicBool = AtomicBool::new(false);
    let show = config.show_stats != ShowStats::No;
    if (config.profile.is_some() || show) && !DONE.swap(true, Relaxed) {
        // SAFETY: `finish` may run at any time after this.
        unsafe { libc::atexit(finish) };
    }
}

extern "C" fn finish() {
    let config = config::current();
    if let Some(path) = config.profile {
        tuner::save(path);
    }
    if !STATISTICS_ELSEWHERE.load(Relaxed) {
        stats::show(config.show_stats);
    }
}

/// True if the system counts memory when it is committed. Then the C library may be refused memory
/// that was committed ahead elsewhere, and each of its answers is checked for null.
static COUNTED: AtomicBool = AtomicBool::new(false);

/// Returns true if the system counts memory when it is committed. A limit that is set while the
/// program runs is found here.
pub(crate) fn memory_is_counted() -> bool {
    if !COUNTED.load(Relaxed) && os::data_limit().is_some() {
        try_control(|| COUNTED.store(true, Relaxed));
    }
    COUNTED.load(Relaxed)
}

/// The C library's `malloc` where it may be refused what can be taken back.
unsafe extern "C" fn alloc_counted(size: usize) -> *mut c_void {
    // SAFETY: no preconditions.
    unsafe {
        let p = sys::malloc(size);
        if p.is_null() && arena::take_back() {
            return sys::malloc(size).cast();
        }
        p.cast()
    }
}

/// Length of the range that [`in_other`] looks at, or 0: none is chosen yet.
static CHOSEN_LEN: AtomicUsize = AtomicUsize::new(0);

/// Up to which size another base than the C library is asked directly for new objects, and
/// to resize its own.
///
/// The first that can be has its objects freed and resized directly, for good, since a range
/// and functions must never be seen mixed.
#[cfg(any(feature = "jemalloc", feature = "mimalloc"))]
fn other_limits(owner: u8, malloc: usize, realloc: usize) -> (usize, usize) {
    let Some(direct) = base::direct(owner) else {
        return (0, 0);
    };
    let hot = hot();
    let (start, len) = direct.range;
    hot.alloc.store(direct.alloc as usize, Relaxed);
    if CHOSEN_LEN.load(Relaxed) == 0 {
        hot.free.store(direct.free as usize, Relaxed);
        hot.rest.realloc.store(direct.realloc as usize, Relaxed);
        hot.offset.store(start.wrapping_neg(), Relaxed);
        CHOSEN_LEN.store(len, Relaxed);
    }
    let chosen = hot.offset.load(Relaxed) == start.wrapping_neg();
    let realloc = if chosen { realloc } else { 0 };
    (malloc.min(direct.most), realloc.min(direct.most))
}

#[cfg(not(any(feature = "jemalloc", feature = "mimalloc")))]
fn other_limits(_: u8, _: usize, _: usize) -> (usize, usize) {
    (0, 0)
}

/// Something has changed that the limits depend on.
pub(crate) fn reconsider() {
    control(|| ());
}

/// Has everything come from the C library that came from `base`, and what is freed of it go
/// the long way. For the child of a fork: nobody else is to see the range change.
#[cfg(feature = "mimalloc")]
pub(crate) fn leave_base(base: Base) {
    control(|| {
        if self::base() == base {
            set_base(Base::Glibc);
        }
        CHOSEN_LEN.store(0, Relaxed);
        hot().alloc.store(sys::ALLOC as usize, Relaxed);
    });
}

/// For use in `control` only.
pub(crate) fn set_base(base: Base) {
    hot().rest.base.store(base as u8, Relaxed);
}

/// Like [`control`], but does nothing if somebody is at it: it may be the code that the
/// calling signal handler has interrupted.
pub(crate) fn try_control(change: impl FnOnce()) {
    if !CONTROL.swap(true, SeqCst) {
        limit_after(change);
    }
}

/// Changes something that the limits depend on, and the limits.
fn control(change: impl FnOnce()) {
    while CONTROL.swap(true, SeqCst) {
        core::hint::spin_loop();
    }
    limit_after(change);
}

/// The caller holds `CONTROL`; gives it back.
fn limit_after(change: impl FnOnce()) {
    change();
    let config = config::current();
    let mode = Mode::from_u8(hot().rest.mode.load(Relaxed));
    #[cfg(feature = "monitor")]
    let observed = monitor::on();
    #[cfg(not(feature = "monitor"))]
    let observed = false;
    hot().rest.observed.store(observed, Relaxed);
    // What the trial compares must come out of line, and nobody is chosen before it ends.
    let observed = observed || (mode == Mode::Auto && trial::running());
    let scoped = SCOPES.load(SeqCst) > 0;
    hot().rest.scoped.store(scoped, Relaxed);
    let base = hot().rest.base.load(Relaxed);
    let page = os::page_size() - 1;
    // Who has the small objects, and up to which size when new and when growing.
    let (owner, malloc, realloc) = match mode {
        _ if observed || scoped => (Base::Glibc as u8, 0, 0),
        Mode::Sys => (Base::Glibc as u8, usize::MAX, usize::MAX),
        Mode::Jemalloc => (Base::Jemalloc as u8, usize::MAX, usize::MAX),
        Mode::Mimalloc => (Base::Mimalloc as u8, usize::MAX, usize::MAX),
        Mode::Template => {
            let (mode, limit) = config.template.first();
            // `Mmap` as the first: growth slots for everything.
            let limit = if mode == Mode::Mmap { 0 } else { limit };
            (mode as u8, limit, limit)
        }
        Mode::Mmap => (base, page, page),
        Mode::Auto => {
            let most = config.switch_point.min(tuner::watched_from());
            (base, most - 1, LEAVE_MAX - 1)
        }
    };
    let sys = owner == Base::Glibc as u8;
    let only = |when: bool, limit: usize| if when { limit } else { 0 };
    let hot = hot();
    let counted = COUNTED.load(Relaxed);
    // Whoever has read an old limit may use a new function, and the other way round: each
    // allocates whatever it is asked for.
    hot.malloc_limit.store(only(sys && !counted, malloc), Relaxed);
    hot.realloc_limit.store(only(sys && !counted, realloc), Relaxed);
    let (limit, other_realloc) = if sys {
        let alloc = if counted { alloc_counted } else { sys::ALLOC };
        hot.alloc.store(alloc as usize, Relaxed);
        (malloc, 0)
    } else {
        other_limits(owner, malloc, realloc)
    };
    hot.limit.store(limit, Relaxed);
    hot.rest.other_realloc_limit.store(other_realloc, Relaxed);
    let (low, len) = if observed {
        (0, 0)
    } else {
        (GEOMETRY.base.load(Relaxed), CHOSEN_LEN.load(Relaxed))
    };
    hot.len.store(len, Release);
    hot.low.store(low, Release);
    CONTROL.store(false, Release);
}

pub(crate) fn set_mode(mode: Mode) -> Result<(), ModeUnavailable> {
    if !mode.is_available() {
        return Err(ModeUnavailable(mode));
    }
    if hot().rest.init.load(Acquire) != DONE {
        initialise();
    }
    control(|| hot().rest.mode.store(mode as u8, Relaxed));
    Ok(())
}

/// Puts the calling thread into `mode`; returns what to leave with.
pub(crate) fn enter(mode: Mode) -> u8 {
    if hot().rest.init.load(Acquire) != DONE {
        initialise();
    }
    SCOPES.fetch_add(1, SeqCst);
    // Not before a change of the limits that may not have counted this scope has ended.
    while CONTROL.load(SeqCst) {
        core::hint::spin_loop();
    }
    if !hot().rest.scoped.load(Relaxed) {
        reconsider();
    }
    // SAFETY: the calling thread's own.
    unsafe { (*tls::local()).scope.replace(mode as u8 + 1) }
}

pub(crate) fn leave(before: u8) {
    // SAFETY: the calling thread's own.
    unsafe { (*tls::local()).scope.set(before) };
    SCOPES.fetch_sub(1, SeqCst);
}

/// Lets the short ways be taken again some time after the last scope has ended. Not at
/// once: they are shut and opened by writes that every processor feels.
#[inline]
fn end_of_scopes() {
    // SAFETY: the calling thread's own.
    let calls = unsafe { &(*tls::local()).calls };
    calls.set(calls.get().wrapping_add(1));
    if calls.get() % 1024 == 0 && SCOPES.load(Relaxed) == 0 {
        reconsider();
    }
}

/// In the child of a fork.
pub(crate) fn after_fork_in_child() {
    CONTROL.store(false, Relaxed);
    if hot().rest.init.load(Relaxed) == BUSY {
        hot().rest.init.store(NEW, Relaxed);
    }
    #[cfg(feature = "monitor")]
    monitor::after_fork_in_child();
    purge::after_fork_in_child();
}
