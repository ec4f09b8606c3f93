// SPDX-License-Identifier: MIT OR Apache-2.0
//! The way of a request: the paper's request handler and Decision Maker.
//!
//! What is inlined into the program is one compare on each side: `malloc` of up
//! to `HOT.malloc_limit` bytes is the C library's, and so is an address outside
//! the arena. Everything else is out of line. The limits already contain the mode,
//! the template and whether anything is initialised (all zero: nothing is), so the
//! short way asks for none of them.

use core::ptr;
use core::sync::atomic::{
    AtomicBool, AtomicU64, AtomicU8, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
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

/// What every call reads; one cache line, written a few times in a process.
#[repr(C, align(64))]
pub(crate) struct Hot {
    /// What is not the C library's for sure: the arena, or while the monitor is on,
    /// everything.
    arena: AtomicUsize,
    arena_len: AtomicUsize,
    /// New objects up to this size are the C library's.
    malloc_limit: AtomicUsize,
    /// So are its objects that grow up to this size.
    realloc_limit: AtomicUsize,
    /// New objects up to this size are `other`'s; 0 unless `malloc_limit` is. So are
    /// its objects that grow up to `other_realloc_limit`.
    other_limit: AtomicUsize,
    other_realloc_limit: AtomicUsize,
    other: AtomicU8,
    mode: AtomicU8,
    base: AtomicU8,
    /// Whether the configuration has been read.
    init: AtomicU8,
    /// Whether the monitor is on.
    observed: AtomicBool,
    /// Whether any thread has ever been in a scope of its own mode.
    scoped: AtomicBool,
}

pub(crate) static HOT: Hot = Hot {
    arena: AtomicUsize::new(1 << (usize::BITS - 1)),
    arena_len: AtomicUsize::new(0),
    malloc_limit: AtomicUsize::new(0),
    realloc_limit: AtomicUsize::new(0),
    other_limit: AtomicUsize::new(0),
    other_realloc_limit: AtomicUsize::new(0),
    other: AtomicU8::new(Base::Glibc as u8),
    mode: AtomicU8::new(Mode::Auto as u8),
    base: AtomicU8::new(Base::Glibc as u8),
    init: AtomicU8::new(NEW),
    observed: AtomicBool::new(false),
    scoped: AtomicBool::new(false),
};

/// Objects below this size do not move early, whatever they do.
const EARLY_MIN: usize = 8 << 10;
/// Growths in the base allocator after which an object moves early.
const EARLY_COUNT: u64 = 2;
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
/// Held while limits are worked out from what they contain.
static CONTROL: AtomicBool = AtomicBool::new(false);

#[inline(always)]
pub(crate) fn in_arena(p: *mut u8) -> bool {
    (p as usize).wrapping_sub(HOT.arena.load(Relaxed)) < HOT.arena_len.load(Relaxed)
}

/// Whether an address is in a growth slot.
#[inline]
pub(crate) fn in_slot(p: *mut u8) -> bool {
    (p as usize).wrapping_sub(GEOMETRY.base.load(Relaxed)) < GEOMETRY.slots_len.load(Relaxed)
}

#[inline]
fn owner_of(p: *mut u8) -> Owner {
    let offset = (p as usize).wrapping_sub(GEOMETRY.base.load(Relaxed));
    if offset < GEOMETRY.slots_len.load(Relaxed) {
        Owner::Slot
    } else if offset >= GEOMETRY.len.load(Relaxed) {
        Owner::Sys
    } else {
        base::foreign_owner(p)
    }
}

#[inline]
pub(crate) unsafe fn alloc(size: usize, align: usize) -> *mut u8 {
    if size <= HOT.malloc_limit.load(Relaxed) && align <= SYS_ALIGN {
        // SAFETY: no preconditions.
        unsafe { sys::malloc(size) }
    } else {
        alloc_other(size, align)
    }
}

#[inline]
pub(crate) unsafe fn alloc_zeroed(size: usize, align: usize) -> *mut u8 {
    if size <= HOT.malloc_limit.load(Relaxed) && align <= SYS_ALIGN {
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
        if in_arena(p) {
            free_cold(p);
        } else {
            sys::free(p);
        }
    }
}

/// Size and alignment say nothing that the address does not.
#[inline]
pub(crate) unsafe fn free_sized(p: *mut u8, _size: usize, _align: usize) {
    // SAFETY: an object that the caller owns.
    unsafe { free(p) }
}

/// `old` is the size asked for, or `UNKNOWN`.
#[inline]
pub(crate) unsafe fn realloc(p: *mut u8, old: usize, align: usize, new: usize) -> *mut u8 {
    // SAFETY: an object that the caller owns.
    unsafe {
        if new <= HOT.realloc_limit.load(Relaxed) && align <= SYS_ALIGN && !in_arena(p) {
            sys::realloc(p, new)
        } else {
            realloc_cold(p, old, align, new)
        }
    }
}

pub(crate) const UNKNOWN: usize = usize::MAX;

#[inline(never)]
unsafe fn free_cold(p: *mut u8) {
    #[cfg(feature = "monitor")]
    if HOT.observed.load(Relaxed) {
        monitor::note_free(p);
    }
    // SAFETY: an object that the caller owns.
    unsafe {
        match owner_of(p) {
            Owner::Slot => arena::free(p),
            owner if trial::running() => trial::free(owner, p, tick()),
            owner => base::free(owner, p),
        }
    }
}

/// The second shortest way: another allocator than the C library has everything up
/// to a size.
#[inline(never)]
fn alloc_other(size: usize, align: usize) -> *mut u8 {
    #[cfg(any(feature = "jemalloc", feature = "mimalloc"))]
    if size <= HOT.other_limit.load(Relaxed) && align <= SYS_ALIGN {
        // As large as aligned, an object has that alignment without being asked.
        // SAFETY: no preconditions.
        let p = unsafe { base::alloc_plain(HOT.other.load(Relaxed), size.max(align)) };
        if !p.is_null() {
            return p;
        }
    }
    alloc_cold(size, align, false)
}

#[inline(never)]
fn alloc_cold(size: usize, align: usize, zero: bool) -> *mut u8 {
    ready();
    let mode = mode();
    if trial::running() && mode == Mode::Auto && size < config::current().switch_point {
        return trial::alloc(size, align, zero);
    }
    alloc_in(mode, size, align, zero)
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

/// Before giving up, gives the system what is retained and tries once more.
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
    if purge::RETAINED.load(Relaxed) > 0 {
        purge::trim();
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
    Base::from_u8(HOT.base.load(Relaxed))
}

#[inline(never)]
unsafe fn realloc_cold(p: *mut u8, old: usize, align: usize, new: usize) -> *mut u8 {
    #[cfg(any(feature = "jemalloc", feature = "mimalloc"))]
    if new <= HOT.other_realloc_limit.load(Relaxed) && old != UNKNOWN {
        let other = base::other(HOT.other.load(Relaxed));
        if owner_of(p) == other && align <= SYS_ALIGN {
            // SAFETY: an object of that allocator that the caller owns.
            let q = unsafe { base::realloc(other, p, old, align, new) };
            if !q.is_null() {
                return q;
            }
        }
    }
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
    if HOT.observed.load(Relaxed) {
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
    if tick % trial::OLD == 0 {
        look_again();
    }
    // SAFETY: an object that the caller owns.
    unsafe {
        if tick % tuner::SAMPLE == 0 && (EARLY_MIN..=SAMPLE_MAX).contains(&new) {
            return realloc_timed(mode, p, old, align, new, tick % tuner::EXPERIMENT == 0);
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

/// What the last trial found has become old.
#[cold]
#[inline(never)]
fn look_again() {
    if config::current().base.is_none() && mode() == Mode::Auto {
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
                let decided = tuner::decision(new) != tuner::Decision::Base;
                if decided != experiment
                    && count >= EARLY_COUNT
                    && new >= EARLY_MIN
                    && arena::live() < EARLY_SLOTS
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
    if HOT.scoped.load(Relaxed) {
        // SAFETY: the calling thread's own.
        let scope = unsafe { (*tls::local()).scope.get() };
        if scope != 0 {
            return Mode::from_u8(scope - 1);
        }
    }
    Mode::from_u8(HOT.mode.load(Relaxed))
}

/// Reads the environment if nothing has yet.
#[inline]
pub(crate) fn ready() {
    if HOT.init.load(Acquire) != DONE {
        initialise();
    }
}

#[cold]
fn initialise() {
    if !Config::env_is_there() {
        // Before the C library's first instruction; defaults will do until then.
        return;
    }
    if HOT
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
    HOT.base.store(chosen as u8, Relaxed);
    if config.base.is_none() && !tried {
        trial::start();
    }
    HOT.init.store(DONE, Release);
    at_exit(&config);
    #[cfg(feature = "monitor")]
    if config.monitor {
        monitor::start();
    }
    control(|| HOT.mode.store(config.mode as u8, Relaxed));
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

/// The arena has been reserved.
pub(crate) fn arena_is_there() {
    control(|| ());
}

/// Everything is to come by the cold functions from now on.
#[cfg(feature = "monitor")]
pub(crate) fn take_the_long_way() {
    control(|| ());
}

/// For use in `control` only.
pub(crate) fn set_base(base: Base) {
    HOT.base.store(base as u8, Relaxed);
}

/// Like [`control`], but does nothing if somebody is at it: it may be the code that the
/// calling signal handler has interrupted.
pub(crate) fn try_control(change: impl FnOnce()) {
    if !CONTROL.swap(true, Acquire) {
        limit_after(change);
    }
}

/// Changes something that the limits depend on, and the limits.
fn control(change: impl FnOnce()) {
    while CONTROL.swap(true, Acquire) {
        core::hint::spin_loop();
    }
    limit_after(change);
}

/// The caller holds `CONTROL`; gives it back.
fn limit_after(change: impl FnOnce()) {
    change();
    let config = config::current();
    let mode = Mode::from_u8(HOT.mode.load(Relaxed));
    #[cfg(feature = "monitor")]
    let observed = monitor::on();
    #[cfg(not(feature = "monitor"))]
    let observed = false;
    HOT.observed.store(observed, Relaxed);
    // What the trial compares must come out of line.
    let observed = observed || (mode == Mode::Auto && trial::running());
    let base = HOT.base.load(Relaxed);
    let page = os::page_size() - 1;
    // Who has the small objects, and up to which size when new and when growing.
    let (owner, malloc, realloc) = match mode {
        _ if observed || HOT.scoped.load(Relaxed) => (Base::Glibc as u8, 0, 0),
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
        Mode::Auto => (base, config.switch_point - 1, LEAVE_MAX - 1),
    };
    let sys = owner == Base::Glibc as u8;
    let only = |when: bool, limit: usize| if when { limit } else { 0 };
    HOT.other.store(owner, Relaxed);
    HOT.malloc_limit.store(only(sys, malloc), Relaxed);
    HOT.realloc_limit.store(only(sys, realloc), Relaxed);
    HOT.other_limit.store(only(!sys, malloc), Relaxed);
    HOT.other_realloc_limit.store(only(!sys, realloc), Relaxed);
    // The length first, when it becomes more: half of the pair must not call an
    // address the C library's that is not.
    let len = if observed {
        usize::MAX
    } else {
        GEOMETRY.len.load(Relaxed)
    };
    HOT.arena_len.store(len, Release);
    HOT.arena.store(GEOMETRY.base.load(Relaxed), Release);
    CONTROL.store(false, Release);
}

pub(crate) fn set_mode(mode: Mode) -> Result<(), ModeUnavailable> {
    if !mode.is_available() {
        return Err(ModeUnavailable(mode));
    }
    if HOT.init.load(Acquire) != DONE {
        initialise();
    }
    control(|| HOT.mode.store(mode as u8, Relaxed));
    Ok(())
}

/// Puts the calling thread into `mode`; returns what to leave with.
pub(crate) fn enter(mode: Mode) -> u8 {
    if HOT.init.load(Acquire) != DONE {
        initialise();
    }
    if !HOT.scoped.load(Relaxed) {
        // For good: taking it back would have to be weighed against threads that
        // enter at the same time, and the longer way costs a few instructions.
        control(|| HOT.scoped.store(true, Relaxed));
    }
    // SAFETY: the calling thread's own.
    unsafe { (*tls::local()).scope.replace(mode as u8 + 1) }
}

pub(crate) fn leave(before: u8) {
    // SAFETY: the calling thread's own.
    unsafe { (*tls::local()).scope.set(before) };
}

/// In the child of a fork.
pub(crate) fn after_fork_in_child() {
    CONTROL.store(false, Relaxed);
    if HOT.init.load(Relaxed) == BUSY {
        HOT.init.store(NEW, Relaxed);
    }
    #[cfg(feature = "monitor")]
    monitor::after_fork_in_child();
    purge::after_fork_in_child();
}
