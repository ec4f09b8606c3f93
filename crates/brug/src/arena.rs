// SPDX-License-Identifier: MIT OR Apache-2.0
//! Growth slots: objects that grow where they are.
//!
//! One reservation of address space is cut into slots of a few sizes, each far
//! larger than the object in it. An object grows by committing more of its slot;
//! the memory behind comes page by page as it is touched. So growth needs no
//! copy, moves no page, and flushes no other processor's TLB. What is left:
//!
//! * *commit ahead*: a new object has exactly its pages committed. Once it grows,
//!   the committed part grows by a factor, so that the number of system calls in the
//!   life of an object is logarithmic in its size however small its steps are. It is
//!   `mprotect` on reserved space rather than one big writable mapping, so that
//!   `mlockall` does not make the slot resident, and limits count what is committed.
//!   Before anybody is refused memory, what is committed ahead is taken back;
//! * *promotion*: an object that fills its slot moves to a larger one by moving
//!   page tables, not bytes;
//! * *retention*: the slot of a freed object keeps its pages for the next one,
//!   within a budget and for a short time (`retain.rs`).
//!
//! Slots begin at multiples of large powers of two. If objects did, too, those that a program goes through side by
//! side would meet in the same sets of caches and TLB; so large ones begin some way into their slots, each a different
//! one: at their *inset*.
//!
//! # Who may do what
//!
//! A slot is found from an address by arithmetic. Its descriptor is written by
//! whoever holds it, which its `state` says. Free slots are on lock-free stacks.
//!
//! | state | meaning | leaves it |
//! |---|---|---|
//! | `CLEAN` | free, no memory | whoever popped it: `HELD` |
//! | `WARM` | free, with memory | whoever popped it: `HELD`; purge: `PURGING` |
//! | `PURGING` | free, purge drops its memory | purge: `CLEAN`; whoever popped it: `ORPHAN` |
//! | `ORPHAN` | as `PURGING`, but on no stack | purge: pushes it as `CLEAN`, or `CHANGED` |
//! | `LOST` | free, not all of it is ours, and on no stack | nobody |
//! | `CHANGED` | free, its pages are as a program has changed them, and on no stack | purge: `ORPHAN` |
//! | `HELD` | its owner changes more than its size | owner |
//! | `LIVE` | holds an object | owner: `HELD`; purge: `TRIMMING`; `take_back`: `CUTTING` |
//! | `SLACK` | holds an object that does not grow, has much memory beyond it | owner: `HELD`; purge: `TRIMMING` |
//! | `TRIMMING` | purge drops the memory beyond the object | purge: `LIVE`; owner waits |
//! | `CUTTING` | `take_back` uncommits what is beyond the object | it: `LIVE`; owner waits |
//!
//! Every stack operation is one compare-and-swap of a tagged index, so a signal
//! or a fork at any instruction leaves all of it usable; a fork at worst leaves
//! one slot of address space unused in the child.
//!
//! An object that grows within what is committed stays `LIVE`, because an atomic
//! exchange would cost more than the rest of the call. Its owner stores the new size
//! and then loads the state; [`take_back`] and purge store the state and then load the size,
//! and between the two make every processor that runs a thread of this process
//! execute a barrier (`membarrier`). So one of them sees the other.

use core::ptr;
use core::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU16, AtomicU32, AtomicU64, AtomicU8, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

use crate::config::{self, Thp, MAX_OBJECT};
use crate::copied;
use crate::counters::{bump, COUNTERS};
use crate::huge::{self, Advice};
use crate::os::{self, page_floor, page_round, HUGE, MIN_PAGE};
use crate::retain::{self, RETAINED};
use crate::words;

pub(crate) const CLEAN: u32 = 0;
pub(crate) const WARM: u32 = 1;
pub(crate) const PURGING: u32 = 2;
pub(crate) const ORPHAN: u32 = 3;
pub(crate) const LOST: u32 = 4;
pub(crate) const CHANGED: u32 = 5;
pub(crate) const LIVE: u32 = 6;
pub(crate) const SLACK: u32 = 7;
pub(crate) const TRIMMING: u32 = 8;
pub(crate) const HELD: u32 = 9;
pub(crate) const CUTTING: u32 = 10;

/// Huge pages of the object in a slot: not considered yet; not wanted; wanted.
const UNASKED: u8 = 0;
const SMALL: u8 = 1;
const ASKED: u8 = 2;
/// No slot is asked to have huge ones from there on.
pub(crate) const NOWHERE: u16 = u16::MAX;

/// Sizes of slots: 64 MiB, 4 GiB, 256 GiB. Miri, for which memory is not free, has objects
/// promoted sooner.
pub(crate) const CLASSES: usize = 3;
const SHIFT: [u32; CLASSES] = if cfg!(miri) {
    [16, 20, 22]
} else {
    [26, 32, 38]
};
/// Maximum number of slots of each size. A process may have 65530 mappings: the slots together take at most half of
/// them. Where it may have fewer, there are fewer slots.
const MOST: [usize; CLASSES] = [6800, 1024, 31];
/// `mlockall` counts the pages of a mapping in 32 bits with a sign (Linux 6.18): of one of 8 TiB it takes off
/// what is locked, which is then more than any limit.
const TOO_LONG: usize = 8 << 40;
/// Mappings that a slot in use may have: what is before the object, small pages, huge ones, and what is not committed;
/// and one more for each slot that the object has outgrown, as what has moved stays apart from what came after.
pub(crate) const MAPPINGS_OF_SLOT: [usize; CLASSES] = [4, 5, 6];
const _: () = {
    let [small, medium, large] = MAPPINGS_OF_SLOT;
    assert!(MOST[0] * small + MOST[1] * medium + MOST[2] * large <= MAPPINGS / 2);
};
const MAPPINGS: usize = 65530;
/// The part of the arena each size gets, in 1/16.
const SHARE: [usize; CLASSES] = [2, 4, 8];
/// What each of the other allocators gets of it, in 1/16.
const FOREIGN_SHARE: usize = 1;
/// Minimum reservation that is of use: 1 GiB. Of half of it the smallest slots would get one at most,
/// and none unless the system puts the reservation at a multiple of their size.
const LEAST_RESERVE: usize = 16 << SHIFT[0];
const _: () = assert!(((LEAST_RESERVE - (1 << SHIFT[0])) / 16 * SHARE[0]) >> SHIFT[0] >= 1);

/// Stacks of warm slots are sorted by how much memory they hold, two to each power of two, so that an object of
/// fixed size finds a slot that holds as much as it needs: what it lacks takes page faults, and what is beyond it is
/// memory that nobody uses. The first is for up to 64 KiB, the last for more than 32 MiB.
const WARMTHS: usize = 20;
const COLDEST: usize = 64 << 10;
/// Of stacks of slots that hold more than an object needs, so many come before those that hold less.
const WARMER: usize = 2;
const CLEAN_STACK: usize = WARMTHS;
/// Committed beyond an object that grows: three times its size, so that its commit
/// calls are half of the logarithm of its growth to base two.
const AHEAD: u32 = 2;
/// The same where the system counts memory when it is committed: an eighth of its size, and at most what the
/// C library keeps at the end of its heap. The program's own mappings and other processes are refused it
/// and cannot take it back.
const AHEAD_COUNTED: u32 = 3;
/// An object that becomes more than so many times as long in one step has no huge pages asked for.
const MOST_LEAP: usize = 4;
/// The minimum that is committed for an object that grows.
const FIRST_COMMIT: usize = 256 << 10;
/// Memory beyond an object that is worth trimming: a quarter of its size, at least so much, and so much at most.
const SLACK_LEAST: usize = 16 << 10;
const SLACK_MOST: usize = 1 << 20;
/// Zeroing by hand is cheaper than new pages up to here; beyond, fresh pages keep
/// a sparsely used object sparse.
const MEMSET_MAX: usize = 4 << 20;

/// Slots that were lost to moves that failed, and at how many no other is tried: they will fail as well,
/// as under a limit of address space that was set late.
static LOSSES: AtomicUsize = AtomicUsize::new(0);
const MOST_LOSSES: usize = 8;

const _: () = assert!(MAX_OBJECT == 1 << SHIFT[CLASSES - 1]);
/// Alignment every slot has.
pub(crate) const MAX_ALIGN: usize = HUGE;

/// The descriptor of a slot; one cache line.
#[repr(C, align(64))]
pub(crate) struct Slot {
    pub(crate) state: AtomicU32,
    next: AtomicU32,
    /// Bytes from the start to the end of the object: its inset, and what was asked for.
    pub(crate) end: AtomicUsize,
    /// Bytes from the start that are readable and writable, but for whole pages before the object.
    pub(crate) committed: AtomicUsize,
    /// Bytes from the start that may hold memory; the rest reads as zeros. While an object grows
    /// without anybody holding its slot, its end may be beyond.
    pub(crate) touched: AtomicUsize,
    /// Bytes of this slot counted as retained, in pages of 4 KiB.
    excess: AtomicU32,
    /// Where mappings meet that an earlier move put side by side, in pages of 4 KiB;
    /// 0: nowhere.
    seam: AtomicU32,
    /// Bytes not copied, and growths in place, of this object.
    not_copied: AtomicU64,
    grows: AtomicU32,
    /// When what is retained of it was counted, in milliseconds, cut to 32 bits.
    pub(crate) stamp: AtomicU32,
    /// From where huge pages, or none, were asked for to the end of the slot, in huge pages; `NOWHERE`: they were not,
    /// since that was a mere reservation.
    pub(crate) asked_from: AtomicU16,
    /// What the kernel was last asked for here: `UNASKED`, `SMALL` or `ASKED` (huge pages).
    huge: AtomicU8,
    /// True if the C library would have given the object a mapping of its own.
    own_mapping: AtomicBool,
    /// Bytes from the start to the object. Stays as long as anything is committed, so that the next object
    /// finds the memory of this one.
    inset: AtomicU32,
}

impl Slot {
    #[inline(always)]
    fn inset(&self) -> usize {
        self.inset.load(Relaxed) as usize
    }

    /// Bytes in whole pages before the object. They have no memory and are not committed.
    fn skipped(&self) -> usize {
        page_floor(self.inset())
    }

    /// So many bytes from the start without those before the object, in whole pages: an object has a page more than
    /// its size if it begins within one, and nothing here depends on that.
    fn of_object(&self, bytes: usize) -> usize {
        page_floor(bytes.saturating_sub(self.inset()))
    }

    /// Bytes that may hold memory, as [`Slot::of_object`]: to the end of the last huge page, however little of it
    /// the object has had.
    fn held(&self) -> usize {
        let touched = self.touched.load(Relaxed);
        let committed = self.committed.load(Relaxed);
        let last = if touched > self.asked_from() && self.huge.load(Relaxed) == ASKED {
            touched.next_multiple_of(HUGE).min(committed)
        } else {
            0
        };
        self.of_object(touched.max(last))
    }

    /// Bytes from the start of which something is committed, has memory, or was asked for.
    fn in_use(&self) -> usize {
        match self.asked_from.load(Relaxed) {
            NOWHERE => self.committed.load(Relaxed).max(self.touched.load(Relaxed)),
            _ => 1 << SHIFT[self.class()],
        }
    }

    /// Bytes from the start to where something was asked for; beyond every object that moves if nothing was.
    fn asked_from(&self) -> usize {
        usize::from(self.asked_from.load(Relaxed).min(NOWHERE - 1)) * HUGE
    }

    fn class(&self) -> usize {
        let index = index_of(self);
        let mut larger = (1..CLASSES).rev();
        larger.find(|&class| index >= first_of(class)).unwrap_or(0)
    }
}

struct Class {
    slots: AtomicUsize,
    /// Slots taken from the front so far.
    used: AtomicUsize,
    live: AtomicUsize,
    stacks: [AtomicU64; WARMTHS + 1],
}

#[allow(clippy::declare_interior_mutable_const)]
const EMPTY: AtomicU64 = AtomicU64::new(0);
#[allow(clippy::declare_interior_mutable_const)]
const NO_CLASS: Class = Class {
    slots: AtomicUsize::new(0),
    used: AtomicUsize::new(0),
    live: AtomicUsize::new(0),
    stacks: [EMPTY; WARMTHS + 1],
};

static CLASS: [Class; CLASSES] = [NO_CLASS; CLASSES];
/// Where things are, in the one cache line that is needed to find a slot.
#[repr(C, align(64))]
pub struct Geometry {
    /// Address of the arena: before there is one, beyond every address.
    pub(crate) base: AtomicUsize,
    pub(crate) len: AtomicUsize,
    /// The slots, which come first in it.
    pub(crate) slots_len: AtomicUsize,
    descriptors: AtomicPtr<Slot>,
    /// Where the slots of each class begin, in units of the smallest slot.
    start: [AtomicU32; CLASSES],
    /// Descriptor of the first slot of each class.
    first: [AtomicU32; CLASSES],
}

/// Where things are, and nowhere before there is an arena.
pub static GEOMETRY: Geometry = Geometry {
    base: AtomicUsize::new(1 << (usize::BITS - 1)),
    len: AtomicUsize::new(0),
    slots_len: AtomicUsize::new(0),
    descriptors: AtomicPtr::new(ptr::null_mut()),
    start: [const { AtomicU32::new(0) }; CLASSES],
    first: [const { AtomicU32::new(0) }; CLASSES],
};

/// Offset of the slots of a class in the arena.
#[inline]
fn start_of(class: usize) -> usize {
    (GEOMETRY.start[class].load(Relaxed) as usize) << SHIFT[0]
}

/// Descriptor of the first slot of a class.
#[inline]
fn first_of(class: usize) -> usize {
    GEOMETRY.first[class].load(Relaxed) as usize
}

/// Address and length of the parts of the arena that jemalloc and mimalloc get, so
/// that their objects, too, are known by their addresses.
pub(crate) static FOREIGN: [[AtomicUsize; 2]; 2] =
    [const { [AtomicUsize::new(0), AtomicUsize::new(0)] }; 2];

/// Returns true if `p` is in the part that is number `which` of `FOREIGN`.
#[cfg(any(feature = "jemalloc", feature = "mimalloc"))]
#[inline(always)]
pub(crate) fn in_part(which: usize, p: *mut u8) -> bool {
    let [start, len] = &FOREIGN[which];
    (p as usize).wrapping_sub(start.load(Relaxed)) < len.load(Relaxed)
}

/// How far into the arena an address is; beyond its length if it is elsewhere.
#[inline]
pub(crate) fn offset_of(p: *mut u8) -> usize {
    (p as usize).wrapping_sub(GEOMETRY.base.load(Relaxed))
}

/// Returns true if an address is in a growth slot.
#[inline]
pub(crate) fn in_slot(p: *mut u8) -> bool {
    offset_of(p) < GEOMETRY.slots_len.load(Relaxed)
}

const UNTRIED: u32 = 0;
const TRYING: u32 = 1;
const READY: u32 = 2;
const REFUSED: u32 = 3;
static SETUP: AtomicU32 = AtomicU32::new(UNTRIED);

/// The slot that an offset in the arena belongs to, and how far into the slot it is. The caller has
/// checked that the slots go so far.
#[inline]
fn slot_at(offset: usize) -> (&'static Slot, usize) {
    // Each class on its own, because a shift by a constant is shorter.
    let (second, third) = (start_of(1), start_of(2));
    if offset < second {
        slot_in(0, offset)
    } else if offset < third {
        slot_in(1, offset - second)
    } else {
        slot_in(2, offset - third)
    }
}

/// The same for an offset from the first slot of a class.
#[inline(always)]
fn slot_in(class: usize, offset: usize) -> (&'static Slot, usize) {
    let index = first_of(class) + (offset >> SHIFT[class]);
    (descriptor(index), offset & ((1 << SHIFT[class]) - 1))
}

/// The slot of an address that is in one, and how far into it that is.
#[inline]
pub(crate) fn slot_of(p: *mut u8) -> (&'static Slot, usize) {
    slot_at(offset_of(p))
}

/// The slot of the object at `p`, which begins there.
fn slot_with(p: *mut u8) -> &'static Slot {
    let (slot, inside) = slot_of(p);
    if inside != slot.inset() {
        no_object(p);
    }
    slot
}

/// Where an object of `size` bytes is to begin in a slot whose memory is still to come; `number`: of its class.
fn inset_for(number: usize, size: usize, align: usize, growing: bool) -> usize {
    /// A page further for the TLB, and an eighth of a page for the caches.
    const STEP: usize = MIN_PAGE + FINEST;
    /// Devices want no more alignment of memory.
    const FINEST: usize = 512;
    const MOST_STEPS: usize = 64;
    /// Smaller objects would take a page more than they need. From here on they do so in the C library, too.
    const LEAST: usize = 128 << 10;
    if align > FINEST || !(growing || size >= LEAST) {
        return 0;
    }
    let room = (size / 16).max(FIRST_COMMIT / 4);
    let steps = (room / STEP + 1).min(MOST_STEPS);
    match config::current().thp {
        // The first huge page takes in the whole of the first 2 MiB, or is none.
        Thp::Always => number % steps.min(MIN_PAGE / FINEST) * FINEST,
        _ => number % steps * STEP,
    }
}

/// Has an object of `size` bytes begin where it should in a slot, or where the last one did. The caller holds the
/// slot. Returns false if there is no memory.
fn set_inset(slot: &Slot, origin: *mut u8, class: usize, size: usize, inset: usize) -> bool {
    let fits = |inset| size + inset <= 1 << SHIFT[class];
    let inset = if fits(inset) { inset } else { 0 };
    let skipped = page_floor(inset);
    let missing = slot.skipped().saturating_sub(skipped);
    if slot.committed.load(Relaxed) > 0 && missing > 0 {
        // SAFETY: in the slot, before the object.
        if !unsafe { os::commit(origin.add(skipped), missing) } {
            return false;
        }
    }
    slot.inset.store(inset as u32, Relaxed);
    true
}

#[inline]
fn descriptor(index: usize) -> &'static Slot {
    // SAFETY: indices come from `slot_at` and the stacks and are below the number
    // of descriptors; the array is never unmapped.
    unsafe { &*GEOMETRY.descriptors.load(Relaxed).add(index) }
}

fn origin_of(class: usize, index: usize) -> *mut u8 {
    let offset = start_of(class) + ((index - first_of(class)) << SHIFT[class]);
    (GEOMETRY.base.load(Relaxed) + offset) as *mut u8
}

fn push(stack: &AtomicU64, index: usize) {
    let slot = descriptor(index);
    let mut head = stack.load(Relaxed);
    loop {
        slot.next.store(head as u32, Relaxed);
        let new = ((head >> 32).wrapping_add(1) << 32) | (index as u64 + 1);
        match stack.compare_exchange_weak(head, new, Release, Relaxed) {
            Ok(_) => return,
            Err(now) => head = now,
        }
    }
}

fn pop(stack: &AtomicU64) -> Option<usize> {
    let mut head = stack.load(Acquire);
    loop {
        let index = (head as u32).checked_sub(1)? as usize;
        let next = descriptor(index).next.load(Relaxed);
        let new = ((head >> 32).wrapping_add(1) << 32) | next as u64;
        match stack.compare_exchange_weak(head, new, AcqRel, Acquire) {
            Ok(_) => return Some(index),
            Err(now) => head = now,
        }
    }
}

/// The stack for slots that hold so much memory.
fn warmth(held: usize) -> usize {
    if held <= COLDEST {
        return 0;
    }
    let last = held - 1;
    let log = last.ilog2();
    let upper = last >> (log - 1) & 1;
    (2 * (log - COLDEST.ilog2()) as usize + 1 + upper).min(WARMTHS - 1)
}

/// Reserves the arena at the first use. Returns false if there is none.
#[inline]
pub(crate) fn ready() -> bool {
    match SETUP.load(Acquire) {
        READY => true,
        REFUSED => false,
        _ => set_up(),
    }
}

/// Returns true if the arena has been reserved.
pub(crate) fn is_there() -> bool {
    SETUP.load(Acquire) == READY
}

/// New objects that have done without the arena.
static SPARED: AtomicU32 = AtomicU32::new(0);

/// Returns true if the arena has been reserved, or would have been but for [`can_wait`].
pub(crate) fn is_due() -> bool {
    is_there() || SPARED.load(Relaxed) > 0
}

/// Returns true if a new object of this size is to do without the arena, which is not there: a short program with a few
/// large buffers would make more system calls to set it up than for all else. What of them grows comes here.
pub(crate) fn can_wait(size: usize) -> bool {
    const LARGE: usize = 1 << 20;
    const FEW: u32 = 4;
    SETUP.load(Relaxed) == UNTRIED
        && size < LARGE
        && SPARED.load(Relaxed) < FEW
        && !cfg!(miri)
        && os::keep_errno(os::threads) == Some(1)
        && SPARED.fetch_add(1, Relaxed) < FEW
}

#[cold]
fn set_up() -> bool {
    if SETUP
        .compare_exchange(UNTRIED, TRYING, Acquire, Relaxed)
        .is_err()
    {
        // Another thread is doing that; this object does without.
        return is_there();
    }
    let done = os::keep_errno(reserve_arena);
    SETUP.store(if done { READY } else { REFUSED }, Release);
    if !done {
        bump(&COUNTERS.no_arena, 1);
        if config::current().verbose {
            let why = if os::address_space_is_dear() {
                " (vm.user_reserve_kbytes would be taken off what may be committed)"
            } else if config::current().reserve < LEAST_RESERVE {
                " (BRUG_RESERVE: they need 1 GiB)"
            } else if os::address_space_limit().is_some() {
                " (RLIMIT_AS: they take an eighth of it, and need 1 GiB)"
            } else {
                ""
            };
            os::complain(format_args!(
                "no address space for growth slots{why}; using the base allocator"
            ));
        }
    }
    done
}

fn reserve_arena() -> bool {
    let config = config::current();
    if os::address_space_is_dear() {
        return false;
    }
    let mut want = config.reserve;
    if let Some(limit) = os::address_space_limit() {
        // Address space is scarce here, and the rest of the process needs most.
        want = want.min(limit / 8);
    }
    want = 1 << (usize::BITS - 1 - want.max(1).leading_zeros());
    let (memory, len) = loop {
        if want < LEAST_RESERVE {
            return false;
        }
        let p = os::reserve(want);
        if !p.is_null() {
            break (p, want);
        }
        if os::errno() == libc::EAGAIN {
            // What is reserved would be taken off what the process may lock, and even so not all
            // of it is to be had.
            return false;
        }
        want /= 2;
    };
    // Cut to alignment: page tables of a gigabyte move as one entry.
    let align = if len >= 1 << 40 {
        1 << 30
    } else {
        1 << SHIFT[0]
    };
    let skip = (memory as usize).wrapping_neg() & (align - 1);
    let usable = len - skip;

    let mappings = os::read_number(c"/proc/sys/vm/max_map_count").unwrap_or(MAPPINGS);
    let mut total = 0;
    let mut offset = 0;
    // Where the whole would be too long, each part ends in a page that is another mapping. It is in no slot, and what is
    // shown of it is nothing.
    let end_of_part = |offset: &mut usize| {
        if usable >= TOO_LONG {
            // SAFETY: in the reservation, of which the parts leave the larger part of a sixteenth.
            unsafe { os::show_in_dumps(memory.add(skip + *offset), os::page_size(), true) };
            *offset += align;
        }
    };
    for (i, c) in CLASS.iter().enumerate() {
        let most = MOST[i] * mappings.min(MAPPINGS) / MAPPINGS;
        let slots = ((usable / 16 * SHARE[i]) >> SHIFT[i]).min(most);
        GEOMETRY.start[i].store((offset >> SHIFT[0]) as u32, Relaxed);
        c.slots.store(slots, Relaxed);
        GEOMETRY.first[i].store(total as u32, Relaxed);
        total += slots;
        offset += slots << SHIFT[i];
        end_of_part(&mut offset);
    }
    let slots_len = offset;
    for (present, range) in [
        (cfg!(feature = "jemalloc"), &FOREIGN[0]),
        (cfg!(feature = "mimalloc"), &FOREIGN[1]),
    ] {
        if present {
            let len = (usable / 16 * FOREIGN_SHARE) & !(HUGE - 1);
            range[0].store(memory as usize + skip + offset, Relaxed);
            range[1].store(len, Relaxed);
            offset += len;
            end_of_part(&mut offset);
        }
    }
    let table = page_round(total * core::mem::size_of::<Slot>());
    let slots = if total == 0 {
        ptr::null_mut()
    } else {
        os::map_memory(table + os::page_size())
    };
    if slots.is_null() {
        FOREIGN.iter().for_each(|range| range[1].store(0, Relaxed));
        // SAFETY: reserved above, nothing refers to it.
        unsafe { os::unmap(memory, len) };
        return false;
    }
    // SAFETY: parts of the reservation above that no slot lies in.
    unsafe {
        os::unmap(memory, skip);
        os::unmap(memory.add(skip + offset), usable - offset);
    }
    // SAFETY: the page behind the descriptors.
    unsafe { words::own(slots.add(table)) };
    huge::read(config.thp);
    GEOMETRY.descriptors.store(slots.cast(), Relaxed);
    GEOMETRY.slots_len.store(slots_len, Relaxed);
    GEOMETRY.len.store(offset, Relaxed);
    GEOMETRY.base.store(memory as usize + skip, Release);
    words::reconsider();
    true
}

/// An object of `size` bytes in a slot of its own, or null. `align`: up to [`MAX_ALIGN`]; `zero`: the bytes are
/// zero; `growing`: it has been growing.
pub(crate) fn alloc(size: usize, align: usize, zero: bool, growing: bool) -> *mut u8 {
    if size > MAX_OBJECT || size == 0 || os::is_too_much_at_once(size) || !ready() {
        return ptr::null_mut();
    }
    retain::start_wanted();
    let Some((class, index)) = take(size, growing) else {
        bump(&COUNTERS.no_slot, 1);
        return ptr::null_mut();
    };
    let slot = descriptor(index);
    let origin = origin_of(class, index);
    let inset = match slot.inset() {
        last if slot.committed.load(Relaxed) > 0 && last.is_multiple_of(align) => last,
        _ => inset_for(index - first_of(class), size, align, growing),
    };
    let before = copied::before(size).filter(|_| !growing);
    if !(set_inset(slot, origin, class, size, inset)
        && ensure_committed(slot, origin, class, slot.inset() + size, growing, before))
    {
        put_back(slot, class, index);
        return ptr::null_mut();
    }
    let inset = slot.inset();
    let end = inset + size;
    // SAFETY: within the slot.
    let p = unsafe { origin.add(inset) };
    let touched = slot.touched.load(Relaxed);
    if zero && touched > inset {
        let dirty = touched.min(page_round(end)) - inset;
        let by_hand = dirty.min(page_round(inset + MEMSET_MAX) - inset);
        // SAFETY: `dirty` bytes are committed; the slot is ours.
        unsafe {
            if dirty > by_hand && discard_beyond(slot, origin, inset + by_hand) {
                ptr::write_bytes(p, 0, by_hand);
            } else {
                ptr::write_bytes(p, 0, dirty);
            }
        }
    }
    slot.end.store(end, Relaxed);
    release_hold(slot, end, growing);
    copied::born(p, size);
    p
}

/// Takes a free slot in which `size` bytes fit, warm if there is one.
fn take(size: usize, growing: bool) -> Option<(usize, usize)> {
    let smallest = (0..CLASSES).find(|&c| size <= 1 << SHIFT[c])?;
    // An object that has filled a sixteenth of a slot is likely to fill it.
    let roomy = (smallest..CLASSES)
        .find(|&c| size <= 1 << (SHIFT[c] - 4))
        .unwrap_or(smallest);
    // While there are few objects, each gets a slot of 4 GiB: no promotion.
    let generous = CLASS[1].live.load(Relaxed) < CLASS[1].slots.load(Relaxed) / 4;
    let favourite = if roomy == 0 && generous { 1 } else { roomy };
    for class in [favourite, roomy, smallest, smallest + 1, smallest + 2] {
        if class < CLASSES {
            if let Some(index) = take_from(class, size, growing) {
                return Some((class, index));
            }
        }
    }
    None
}

/// An object that grows gets the warmest slot, as its size now says nothing. If it got the smallest
/// that fits, an object that is freed and grown anew would never get its old warm slot. Memory that
/// it does not use is trimmed as slack.
fn take_from(class: usize, size: usize, growing: bool) -> Option<usize> {
    let c = &CLASS[class];
    let ideal = if growing { WARMTHS } else { warmth(size) };
    let enough = (ideal + 1 + WARMER).min(WARMTHS);
    for stack in (ideal..enough).chain((0..ideal).rev()).chain(enough..WARMTHS) {
        while let Some(index) = pop(&c.stacks[stack]) {
            let slot = descriptor(index);
            loop {
                match slot.state.compare_exchange(WARM, HELD, AcqRel, Acquire) {
                    Ok(_) => {
                        let excess = take_excess(slot);
                        retain::no_longer(excess);
                        bump(&COUNTERS.warm_reuses, 1);
                        c.live.fetch_add(1, Relaxed);
                        return Some(index);
                    }
                    Err(CLEAN) => {
                        push(&c.stacks[CLEAN_STACK], index);
                        break;
                    }
                    // The purge thread has the slot and will push it, unless it finishes right now.
                    Err(_) => {
                        if slot
                            .state
                            .compare_exchange(PURGING, ORPHAN, AcqRel, Acquire)
                            .is_ok()
                        {
                            break;
                        }
                    }
                }
            }
        }
    }
    if let Some(index) = pop(&c.stacks[CLEAN_STACK]) {
        descriptor(index).state.store(HELD, Relaxed);
        c.live.fetch_add(1, Relaxed);
        return Some(index);
    }
    let slots = c.slots.load(Relaxed);
    let mut used = c.used.load(Relaxed);
    while used < slots {
        match c
            .used
            .compare_exchange_weak(used, used + 1, Relaxed, Relaxed)
        {
            Ok(_) => {
                let index = first_of(class) + used;
                let slot = descriptor(index);
                slot.asked_from.store(NOWHERE, Relaxed);
                slot.state.store(HELD, Relaxed);
                c.live.fetch_add(1, Relaxed);
                return Some(index);
            }
            Err(now) => used = now,
        }
    }
    None
}

/// Makes a slot usable up to `end`; `growing`: and some more, for the next steps. `before`: where the object has been
/// until now, or what a new one will have its content from, and how many bytes there.
fn ensure_committed(
    slot: &Slot,
    origin: *mut u8,
    class: usize,
    end: usize,
    growing: bool,
    before: Option<(*mut u8, usize)>,
) -> bool {
    let have = slot.committed.load(Relaxed);
    let need = page_round(end);
    if retain::has_own_mapping(end - slot.inset()) {
        slot.own_mapping.store(true, Relaxed);
    }
    if need > have {
        let cap = 1usize << SHIFT[class];
        if have == 0 {
            // SAFETY: the slot is ours.
            unsafe { ask_for_small_pages(origin, cap) };
        }
        let ahead = if !growing {
            need
        } else if words::memory_is_counted() {
            // Not more beyond the end, wherever in a page it is.
            need.max(page_floor(end + ahead_counted(need)))
        } else {
            (need << AHEAD).max(FIRST_COMMIT)
        };
        let from = have.max(slot.skipped());
        // SAFETY: the range is in our slot.
        let commit = |to: usize| unsafe { os::commit(origin.add(from), to - from) };
        let ahead = ahead.min(cap);
        let to = if ahead > need && commit(ahead) {
            ahead
        } else if commit(need) || (take_back() && commit(need)) {
            need
        } else {
            bump(&COUNTERS.no_commit, 1);
            return false;
        };
        slot.committed.store(to, Relaxed);
    }
    if need > HUGE && (need > have || slot.huge.load(Relaxed) == UNASKED) {
        choose_pages(slot, origin, class, need, before);
    } else if !growing && need > slot.touched.load(Relaxed).max(HUGE) {
        keep_small(slot, origin, class, UNASKED);
    }
    true
}

/// Says so, where pages are huge unless the kernel is told otherwise.
///
/// # Safety
/// The range is in a slot of the caller's.
unsafe fn ask_for_small_pages(p: *mut u8, len: usize) {
    if huge::must_be_avoided() {
        // SAFETY: by contract.
        unsafe { os::advise_huge(p, len, false) };
    }
}

/// What is committed beyond an object of so many bytes, in whole pages, where memory is counted.
fn ahead_counted(need: usize) -> usize {
    page_round((need >> AHEAD_COUNTED).min(retain::LEAST_COUNTED))
}

/// Asks for huge pages, if they pay, beyond the first 2 MiB of a slot and beyond what the object has: of that the program
/// may have asked for something else. The caller holds the slot, and nothing lies in it beyond what it has touched.
#[cold]
fn choose_pages(
    slot: &Slot,
    origin: *mut u8,
    class: usize,
    need: usize,
    before: Option<(*mut u8, usize)>,
) {
    // Who grows by leaps, or has not used what it had, may use little of what it gets. Who appends in pieces leaves
    // a part of the last one.
    let fills = |(origin, end): (*mut u8, usize)| {
        let last = end - 1 - end / 8;
        need / MOST_LEAP <= end && os::resident(origin.wrapping_add(last))
    };
    let advice = huge::advice(need, || before.is_some_and(fills));
    let committed = slot.committed.load(Relaxed);
    let filled = slot.touched.load(Relaxed).max(HUGE).next_multiple_of(HUGE);
    let tries = advice == Advice::Try && filled + 2 * HUGE <= committed;
    let asks = tries || (advice == Advice::Try && slot.huge.load(Relaxed) != ASKED);
    let lacks = asks && !huge::enough_for(committed.saturating_sub(filled));
    if lacks {
        huge_pages_lose();
    }
    if lacks || advice == Advice::Small {
        // What an object that does not grow has is no answer for the next one.
        let answer = if before.is_some() { SMALL } else { UNASKED };
        keep_small(slot, origin, class, answer);
        return;
    }
    let always = config::current().thp == Thp::Always;
    // Not from further on than the last time: that would make another mapping, and an object that leaves its slot
    // moves in three at most.
    let last = slot.asked_from();
    let from = if always { 0 } else { filled.min(last) };
    slot.asked_from.store((from / HUGE) as u16, Relaxed);
    // Who sees this sees from where on.
    if slot.huge.swap(ASKED, Release) != ASKED || from < last {
        // For the whole slot, committed or not: later commits then extend one
        // mapping instead of starting another.
        let (p, len) = (origin.wrapping_add(from), (1 << SHIFT[class]) - from);
        // SAFETY: the range is in our slot.
        let advise = |huge| unsafe { os::advise_huge(p, len, huge) };
        advise(true);
        if slot.huge.load(Relaxed) != ASKED {
            // They have lost meanwhile, and whoever asked for small ones may have done so before.
            advise(false);
        }
    }
    // SAFETY: committed, and beyond everything in the slot, where it reads as zeros.
    if tries && !unsafe { huge::try_one(origin.add(filled)) } {
        huge_pages_lose();
        return;
    }
    // SAFETY: `filled` is in the slot wherever it is less than what is committed.
    huge::watch(unsafe { origin.add(filled) }, committed.saturating_sub(filled));
}

/// Huge pages have turned out slow: objects go on with small ones. Any thread may call this at any
/// time, since advice changes nothing that an owner relies on.
pub(crate) fn huge_pages_lose() {
    for (slot, class, index) in slots() {
        go_on_small(slot, origin_of(class, index), class, SMALL);
    }
}

/// What is not there yet of a slot that was asked for huge pages becomes small ones, where they were asked for.
fn go_on_small(slot: &Slot, origin: *mut u8, class: usize, answer: u8) {
    let asked = slot.huge.compare_exchange(ASKED, answer, Acquire, Relaxed);
    if asked.is_ok() {
        // Its owner may be giving it up.
        let from = slot.asked_from().min(1 << SHIFT[class]);
        // SAFETY: the range is in that slot.
        unsafe { os::advise_huge(origin.add(from), (1 << SHIFT[class]) - from, false) };
    }
}

/// As [`go_on_small`], for an object that may use only a part of what it has; unless the
/// system makes pages huge for everybody, or they are wanted whatever they cost.
fn keep_small(slot: &Slot, origin: *mut u8, class: usize, answer: u8) {
    if slot.huge.load(Relaxed) != ASKED {
        slot.huge.store(answer, Relaxed);
    } else if !huge::must_be_avoided() && config::current().thp != Thp::Always {
        go_on_small(slot, origin, class, answer);
    }
}

/// Gives up a slot that is held, with an object in it that ends there. What memory lies beyond
/// is left to purge if it is much; `growing`: for an object that grows.
#[inline]
fn release_hold(slot: &Slot, end: usize, growing: bool) {
    let used = page_round(end);
    let touched = slot.touched.load(Relaxed);
    if touched <= used {
        slot.touched.store(used, Relaxed);
    }
    match slack(slot, used) {
        0 => slot.state.store(LIVE, Release),
        bytes => leave_slack(slot, bytes, resting(growing)),
    }
}

/// Bytes of memory beyond the `used` ones of an object, or of what is committed where that counts; 0 if they
/// are not worth trimming.
#[inline]
fn slack(slot: &Slot, used: usize) -> usize {
    let (end, least) = if words::counted() {
        (slot.committed.load(Relaxed), ahead_counted(used) + 1)
    } else {
        let quarter = slot.of_object(used) / 4;
        (slot.touched.load(Relaxed), quarter.clamp(SLACK_LEAST, SLACK_MOST))
    };
    if end >= used + least {
        end - used
    } else {
        0
    }
}

/// The state of a slot with memory beyond its object. One that grows goes on without an atomic exchange, so to trim
/// it takes a barrier, which not every process may use; where memory is counted, each step is looked at anyway.
fn resting(growing: bool) -> u32 {
    match growing && !words::counted() {
        true => LIVE,
        false => SLACK,
    }
}

#[cold]
fn leave_slack(slot: &Slot, excess: usize, state: u32) {
    if !retain::may_keep(excess, slot.own_mapping.load(Relaxed)) {
        let origin = origin_of(slot.class(), index_of(slot));
        if os::keep_errno(|| drop_beyond(slot, origin)) {
            slot.state.store(LIVE, Release);
            return;
        }
    }
    slot.excess.store((excess / MIN_PAGE) as u32, Relaxed);
    slot.stamp.store(os::now_ms() as u32, Relaxed);
    let retained = retain::more(excess);
    slot.state.store(state, Release);
    retain::wake(retained, false);
}

/// Returns what was counted as retained of the slot; it no longer is.
fn take_excess(slot: &Slot) -> usize {
    slot.excess.swap(0, Relaxed) as usize * MIN_PAGE
}

/// Holds the slot of the caller's object at `p`. Returns true if it was `SLACK`: then either
/// that becomes its state again, or its excess is taken off what is retained.
#[inline]
fn hold(slot: &Slot, p: *mut u8) -> bool {
    let mut state = LIVE;
    loop {
        match slot.state.compare_exchange(state, HELD, Acquire, Acquire) {
            Ok(_) => {
                let used = page_round(slot.end.load(Relaxed));
                if slot.touched.load(Relaxed) < used {
                    slot.touched.store(used, Relaxed);
                }
                if state == LIVE && slot.excess.load(Relaxed) > 0 {
                    retain::no_longer(take_excess(slot));
                }
                return state == SLACK;
            }
            Err(now @ (LIVE | SLACK)) => state = now,
            // Somebody is in one system call; it ends by itself.
            Err(TRIMMING | CUTTING) => words::wait_for_others(),
            Err(_) => no_object(p),
        }
    }
}

#[cold]
fn no_object(p: *mut u8) -> ! {
    os::complain(format_args!(
        "free or realloc of {p:p}, which is not an object"
    ));
    // SAFETY: no preconditions.
    unsafe { libc::abort() }
}

/// How a reallocation within the arena ended.
pub(crate) enum Resized {
    /// The object is at this address.
    At(*mut u8),
    /// It is where it was, unchanged; the arena has nothing for the new size.
    No,
}

/// Enlarges the object at an offset in the arena if nobody else looks at its slot and `new` bytes
/// need no system call, and if `refuses`, which is asked of a step into another page, returns false.
/// Returns false if not, and nothing has changed.
///
/// # Safety
/// The caller owns the object, which is in a slot.
#[inline]
pub(crate) unsafe fn grow(offset: usize, new: usize, refuses: impl FnOnce() -> bool) -> bool {
    let (slot, inside) = slot_at(offset);
    let old = slot.end.load(Relaxed);
    let end = inside.wrapping_add(new);
    if (old ^ end) >= MIN_PAGE && refuses() {
        return false;
    }
    // Not even for a moment may its end be beyond what the slot has: by that others see what is not needed of it. One
    // beyond all addresses comes out before the start.
    if inside != slot.inset() || end < old || end > slot.committed.load(Relaxed) {
        return false;
    }
    slot.end.store(end, Relaxed);
    os::light_barrier();
    // Acquire: it may be LIVE again because somebody is done with it, and less committed.
    if slot.state.load(Acquire) == LIVE && fits(slot, end) {
        count_growth(slot, old - inside);
        return true;
    }
    slot.end.store(old, Relaxed);
    false
}

/// Changes the size of the object at `p` without copying it.
///
/// # Safety
/// `p` is an object in the arena that the caller owns; `new > 0`.
pub(crate) unsafe fn resize(p: *mut u8, new: usize) -> Resized {
    let slot = slot_with(p);
    // SAFETY: passed on.
    unsafe {
        if grow(offset_of(p), new, || false) {
            return Resized::At(p);
        }
        let inset = slot.inset();
        if new > MAX_OBJECT - inset {
            return Resized::No;
        }
        match resize_held(slot, p.sub(inset), inset + new) {
            Some(origin) => Resized::At(origin.add(inset)),
            None => Resized::No,
        }
    }
}

/// Returns true if an object may end there without a system call.
#[inline]
fn fits(slot: &Slot, end: usize) -> bool {
    end <= slot.committed.load(Relaxed) && (end <= HUGE || slot.huge.load(Relaxed) != UNASKED)
}

/// Moves the end of the object in the slot at `origin`. Returns where its slot is then; nothing if the arena has
/// no room.
unsafe fn resize_held(slot: &'static Slot, origin: *mut u8, new: usize) -> Option<*mut u8> {
    let was_slack = hold(slot, origin);
    let old = slot.end.load(Relaxed);
    if new >= old && fits(slot, new) {
        slot.end.store(new, Relaxed);
        count_growth(slot, old - slot.inset());
        if was_slack && slack(slot, page_round(new)) > 0 {
            // Still much: purge may take it at the time at which it would have before.
            slot.state.store(resting(true), Release);
            return Some(origin);
        }
        if was_slack {
            retain::no_longer(take_excess(slot));
        }
        release_hold(slot, new, true);
        return Some(origin);
    }
    if was_slack {
        retain::no_longer(take_excess(slot));
    }
    if new < old {
        slot.end.store(new, Relaxed);
        release_hold(slot, new, false);
        bump(&COUNTERS.shrinks, 1);
        return Some(origin);
    }
    // SAFETY: passed on.
    unsafe { resize_cold(slot, origin, old, new) }
}

#[cold]
#[inline(never)]
unsafe fn resize_cold(
    slot: &'static Slot,
    origin: *mut u8,
    old: usize,
    new: usize,
) -> Option<*mut u8> {
    let class = slot.class();
    retain::start_wanted();
    if os::is_too_much_at_once(new - old) {
        release_hold(slot, old, false);
        return None;
    }
    if new <= 1 << SHIFT[class] {
        if !ensure_committed(slot, origin, class, new, true, Some((origin, old))) {
            release_hold(slot, old, false);
            return None;
        }
        slot.end.store(new, Relaxed);
        release_hold(slot, new, true);
        count_growth(slot, old - slot.inset());
        return Some(origin);
    }
    // SAFETY: passed on.
    let moved = unsafe { promote(slot, origin, class, old, new) };
    if moved.is_none() {
        release_hold(slot, old, false);
    }
    moved
}

/// Moves an object to a larger slot by moving its page tables. `old` and `new` are its ends. Returns where that
/// slot is.
unsafe fn promote(
    slot: &'static Slot,
    origin: *mut u8,
    class: usize,
    old: usize,
    new: usize,
) -> Option<*mut u8> {
    if LOSSES.load(Relaxed) >= MOST_LOSSES {
        bump(&COUNTERS.no_move, 1);
        return None;
    }
    let mut larger = (class + 1..CLASSES).filter(|&c| new <= 1 << SHIFT[c]);
    let Some((target_class, index)) = larger
        .find_map(|c| take_from(c, new, false).map(|index| (c, index)))
    else {
        bump(&COUNTERS.no_slot, 1);
        return None;
    };
    let target = descriptor(index);
    let to = origin_of(target_class, index);
    let size = new - slot.inset();
    let len = page_round(old);
    let ready = || {
        if (!forget(target, to) && target.touched.load(Relaxed) > 0)
            || !set_inset(target, to, target_class, size, slot.inset())
        {
            return false;
        }
        // A huge page that is tried lies beyond what will move there.
        target.touched.store(len, Relaxed);
        // What moves is as the slot that it leaves was asked for.
        let asked = target.asked_from.swap(slot.asked_from.load(Relaxed), Relaxed);
        let done = ensure_committed(target, to, target_class, new, true, Some((origin, old)));
        if !done {
            target.touched.store(0, Relaxed);
            target.asked_from.store(asked, Relaxed);
        }
        done
    };
    if !ready() {
        put_back(target, target_class, index);
        return None;
    }
    // A mapping moves as a whole. Advice separates what was there before it from the rest,
    // an earlier move what had moved from what came after.
    let skipped = slot.skipped();
    let seam = slot.seam.load(Relaxed) as usize * MIN_PAGE;
    let asked = slot.asked_from();
    let [first, second] = [seam.min(asked), seam.max(asked)].map(|cut| cut.clamp(skipped, len));
    let cuts = [skipped, first, second, len];
    for piece in 0..3 {
        let (from, until) = (cuts[piece], cuts[piece + 1]);
        // SAFETY: both ranges are ours; `to` holds nothing there.
        let moved = from == until
            || unsafe { os::move_pages(origin.add(from), to.add(from), until - from) };
        if !moved {
            for undo in 0..piece {
                let (from, until) = (cuts[undo], cuts[undo + 1]);
                if from < until {
                    // SAFETY: the move left `origin` mapped and empty.
                    unsafe { move_back(to.add(from), origin.add(from), until - from) };
                }
            }
            // What is left there, if anything, is dead but not zero.
            // SAFETY: committed above, and dead.
            if unsafe { os::make_whole(to.add(from), until - from) } {
                put_back(target, target_class, index);
            } else {
                // SAFETY: what lies around the hole is committed, and dead.
                unsafe { lose(target, to, target_class, from, until) };
            }
            bump(&COUNTERS.no_move, 1);
            return None;
        }
    }
    // They move with their protection. The C library would have copied.
    // SAFETY: committed, and the caller's.
    unsafe { os::commit(to.add(skipped), len - skipped) };
    target.seam.store((len / MIN_PAGE) as u32, Relaxed);
    target.end.store(new, Relaxed);
    release_hold(target, new, true);
    // The slot it left is still committed, and empty unless there is memory beyond `old`.
    if slot.touched.load(Relaxed) <= len {
        slot.touched.store(0, Relaxed);
    }
    release(slot, origin);
    bump(&COUNTERS.page_moves, 1);
    bump(&COUNTERS.bytes_not_copied, old - target.inset());
    Some(to)
}

/// Brings back pages that have moved, or their content.
///
/// # Safety
/// Both ranges are committed; `home` is empty.
unsafe fn move_back(away: *mut u8, home: *mut u8, len: usize) {
    // SAFETY: by contract.
    unsafe {
        if os::move_pages(away, home, len) {
            return;
        }
        if !os::make_whole(home, len) {
            os::complain(format_args!("no memory to undo the move of an object"));
            libc::abort();
        }
        ptr::copy_nonoverlapping(away, home, len);
    }
}

/// Gives up a slot for good: between `from` and `until` there is a hole in it, into which the system may
/// map what others ask for.
///
/// # Safety
/// The caller holds the slot, whose content is dead.
unsafe fn lose(slot: &Slot, origin: *mut u8, class: usize, from: usize, until: usize) {
    let committed = slot.committed.swap(0, Relaxed);
    for (from, until) in [(0, from), (until, committed)] {
        // SAFETY: by contract; not the hole.
        unsafe {
            let (p, len) = (origin.add(from), until - from);
            if len > 0 && !os::reset(p, len) {
                os::discard(p, len);
            }
        }
    }
    slot.state.store(LOST, Relaxed);
    CLASS[class].live.fetch_sub(1, Relaxed);
    LOSSES.fetch_add(1, Relaxed);
}

/// Frees the object at `p`.
///
/// # Safety
/// `p` is an object in the arena that the caller owns.
pub(crate) unsafe fn free(p: *mut u8) {
    let slot = slot_with(p);
    if hold(slot, p) {
        retain::no_longer(take_excess(slot));
    }
    copied::freed(p, slot.end.load(Relaxed) - slot.inset());
    // SAFETY: within the slot.
    release(slot, unsafe { p.sub(slot.inset()) });
}

/// Bytes that may be used at `p`: to the end of the last page.
pub(crate) fn usable_size(p: *mut u8) -> usize {
    usable(slot_of(p).0)
}

fn usable(slot: &Slot) -> usize {
    // While somebody puts an object into it, the end may be that of an earlier one.
    page_round(slot.end.load(Relaxed)).saturating_sub(slot.inset())
}

/// Slots that hold an object.
pub(crate) fn live() -> usize {
    CLASS.iter().map(|c| c.live.load(Relaxed)).sum()
}

/// Bytes that may be used of the objects in slots.
pub(crate) fn in_use() -> usize {
    slots()
        .filter(|(slot, ..)| slot.state.load(Relaxed) >= LIVE)
        .map(|(slot, ..)| usable(slot))
        .sum()
}

/// Bytes that describe the slots that have ever been used, in whole pages.
pub(crate) fn bookkeeping() -> usize {
    let descriptors = |c| used(c) * core::mem::size_of::<Slot>();
    CLASS.iter().map(|c| page_round(descriptors(c))).sum()
}

/// Bytes committed in slots that hold an object.
pub(crate) fn committed() -> usize {
    slots()
        .filter(|(slot, ..)| slot.state.load(Relaxed) >= LIVE)
        .map(|(slot, ..)| slot.of_object(slot.committed.load(Relaxed)))
        .sum()
}

/// How many slots of a class have ever been used, for a caller that holds no object. The thread
/// that sets the arena up may not be done, or its writes not be visible yet.
fn used(c: &Class) -> usize {
    if is_there() {
        c.used.load(Relaxed).min(c.slots.load(Relaxed))
    } else {
        0
    }
}

/// All slots that have ever been used, with their class and index.
pub(crate) fn slots() -> impl Iterator<Item = (&'static Slot, usize, usize)> {
    CLASS.iter().enumerate().flat_map(|(class, c)| {
        let first = first_of(class);
        (first..first + used(c)).map(move |index| (descriptor(index), class, index))
    })
}

fn index_of(slot: &Slot) -> usize {
    (ptr::from_ref(slot) as usize - GEOMETRY.descriptors.load(Relaxed) as usize)
        / core::mem::size_of::<Slot>()
}

/// Counts a growth in place where the owner of the object writes anyway.
#[inline]
fn count_growth(slot: &Slot, old: usize) {
    slot.grows
        .store(slot.grows.load(Relaxed).wrapping_add(1), Relaxed);
    slot.not_copied
        .store(slot.not_copied.load(Relaxed) + old as u64, Relaxed);
}

/// Growths in place of the objects that live, and bytes not copied by them.
pub(crate) fn growths() -> (u64, u64) {
    slots().fold((0, 0), |(grows, bytes), (slot, ..)| {
        (
            grows + u64::from(slot.grows.load(Relaxed)),
            bytes + slot.not_copied.load(Relaxed),
        )
    })
}

/// Makes the slot of an object free, with its memory if that may be kept.
fn release(slot: &'static Slot, origin: *mut u8) {
    // With the C library nothing stays of what a program has asked for of the pages of an object with
    // a mapping of its own, as it had from its birth or came to by growing. Others lie in the heap, so there
    // a program must take it back itself.
    let first = retain::is_first_of_its_size(slot.of_object(slot.touched.load(Relaxed)));
    let own = slot.own_mapping.swap(false, Relaxed) || first;
    make_free(slot, origin, own);
    if first && retain::is_unknown() {
        // The next new object takes the slow path, and makes it known (`base::tell`).
        words::outdated();
    }
}

/// Makes a slot free; `own`: if a program had an object in it to which the C library gives a mapping of its own.
fn make_free(slot: &'static Slot, origin: *mut u8, own: bool) {
    let grows = slot.grows.swap(0, Relaxed);
    let grown = grows > 0 || slot.seam.load(Relaxed) > 0;
    bump(&COUNTERS.grows_in_place, grows as usize);
    bump(
        &COUNTERS.bytes_not_copied,
        slot.not_copied.swap(0, Relaxed) as usize,
    );
    let class = slot.class();
    let c = &CLASS[class];
    c.live.fetch_sub(1, Relaxed);
    let index = index_of(slot);
    let touched = slot.touched.load(Relaxed);
    if touched == 0 && slot.committed.load(Relaxed) == 0 {
        slot.state.store(CLEAN, Relaxed);
        push(&c.stacks[CLEAN_STACK], index);
        return;
    }
    let skipped = slot.skipped();
    let committed = slot.committed.load(Relaxed).saturating_sub(skipped);
    // SAFETY: the caller holds the slot, and its content is dead.
    let plain = || !own || unsafe { os::make_plain(origin.add(skipped), committed) };
    // To make it plain takes a dozen system calls, and to forget it two. An object that is filled is so from its
    // start.
    let sparse = || own && !os::resident(origin.wrapping_add(skipped + slot.held() / 8));
    let free_as = os::keep_errno(|| {
        if may_keep(slot, own) && !sparse() && plain() {
            drop_ahead(slot, origin);
            WARM
        } else if forget(slot, origin) {
            CLEAN
        } else if plain() {
            WARM
        } else {
            // The next object would have what the program has asked for here.
            CHANGED
        }
    });
    if free_as == CLEAN {
        slot.state.store(CLEAN, Relaxed);
        push(&c.stacks[CLEAN_STACK], index);
        return;
    }
    let held = slot.held();
    slot.excess.store((held / MIN_PAGE) as u32, Relaxed);
    slot.stamp.store(os::now_ms() as u32, Relaxed);
    let retained = retain::more(held);
    slot.state.store(free_as, Release);
    if free_as == WARM {
        push(&c.stacks[warmth(held)], index);
    }
    retain::wake(retained, grown);
}

/// Returns true if a slot whose object is gone may keep its memory for the next; `own` as for [`make_free`].
fn may_keep(slot: &Slot, own: bool) -> bool {
    let held = slot.held();
    let committed = || slot.of_object(slot.committed.load(Relaxed));
    held > 0 && retain::may_keep(if words::counted() { committed() } else { held }, own)
}

/// Returns a slot that never came to hold an object.
fn put_back(slot: &'static Slot, class: usize, index: usize) {
    slot.own_mapping.store(false, Relaxed);
    make_free(slot, origin_of(class, index), false);
}

/// Drops all memory of a slot. The caller holds it. Returns false if the slot is still committed, with nothing
/// in it or with what cannot be dropped.
fn forget(slot: &Slot, origin: *mut u8) -> bool {
    let len = slot.in_use();
    // Before it is so, that the child of a fork never takes for committed what is not. In the child
    // there may then be memory beyond what it takes for committed, so all of it is reset.
    let committed = slot.committed.swap(0, Relaxed);
    huge::unwatch(origin, len);
    // SAFETY: the slot is the caller's and its content dead.
    unsafe {
        if len > 0 && !os::reset(origin, len) {
            slot.committed.store(committed, Relaxed);
            // No mapping to spare; the memory can go all the same.
            if os::discard(origin, len) {
                slot.touched.store(0, Relaxed);
            }
            return false;
        }
    }
    slot.touched.store(0, Relaxed);
    slot.seam.store(0, Relaxed);
    slot.huge.store(UNASKED, Relaxed);
    slot.asked_from.store(NOWHERE, Relaxed);
    true
}

/// Drops all memory that is retained. Keeps `errno`.
pub(crate) fn give_back() {
    os::keep_errno(|| os::without_signals(|| drop_retained(0)));
}

/// Drops memory that has been retained for at least `age` milliseconds. To be called where no signal
/// handler interrupts but that of `SIGSYS` ([`os::without_signals`]): one that resizes an object would wait for the
/// code that it has interrupted. Returns true if there was any.
pub(crate) fn drop_retained(age: u32) -> bool {
    let mut any = false;
    for (slot, class, index) in slots() {
        let state = slot.state.load(Relaxed);
        let retains = match state {
            LIVE => slot.excess.load(Relaxed) > 0,
            _ => matches!(state, WARM | SLACK | CHANGED),
        };
        if !retains || (age > 0 && age_of(slot) < age) {
            continue;
        }
        let origin = origin_of(class, index);
        any |= match state {
            LIVE | SLACK => trim(slot, origin, state),
            _ => drop_free(slot, origin, &CLASS[class], index, state),
        };
    }
    any
}

/// Milliseconds since what is retained of a slot was counted. The clock is read last, and for each: to give memory back takes
/// time, and what is freed meanwhile would seem to be from the future, which is as old as can be.
fn age_of(slot: &Slot) -> u32 {
    let stamp = slot.stamp.load(Acquire);
    (os::now_ms() as u32).wrapping_sub(stamp)
}

/// Drops the memory of a slot that is `WARM` or `CHANGED`.
fn drop_free(slot: &Slot, origin: *mut u8, c: &Class, index: usize, state: u32) -> bool {
    let meanwhile = if state == WARM { PURGING } else { ORPHAN };
    if slot
        .state
        .compare_exchange(state, meanwhile, AcqRel, Relaxed)
        .is_err()
    {
        return false;
    }
    let (done, any) = forget_retained(slot, origin);
    let after = if done { CLEAN } else { state };
    if slot
        .state
        .compare_exchange(PURGING, after, AcqRel, Acquire)
        .is_err()
    {
        // It is on no stack: it was popped meanwhile and left to us, or a program has changed its pages.
        slot.state.store(after, Release);
        match after {
            CLEAN => push(&c.stacks[CLEAN_STACK], index),
            WARM => push(&c.stacks[warmth(slot.held())], index),
            _ => {}
        }
    }
    any
}

/// Drops all memory of a slot that the caller has as `PURGING` or `ORPHAN`. Returns true if it is a mere
/// reservation now, and if there was any memory or commitment that the system has got.
fn forget_retained(slot: &Slot, origin: *mut u8) -> (bool, bool) {
    let done = forget(slot, origin);
    let empty = slot.touched.load(Relaxed) == 0;
    let dropped = if empty { take_excess(slot) } else { 0 };
    retain::no_longer(dropped);
    (done, done || dropped > 0)
}

/// Drops the memory beyond the object of a slot that is `LIVE` or `SLACK`.
fn trim(slot: &Slot, origin: *mut u8, state: u32) -> bool {
    if slot
        .state
        .compare_exchange(state, TRIMMING, AcqRel, Relaxed)
        .is_err()
    {
        return false;
    }
    let seen = state == SLACK || os::heavy_barrier();
    let done = seen && drop_beyond(slot, origin);
    retain::no_longer(take_excess(slot));
    slot.state.store(LIVE, Release);
    done
}

/// Drops the memory beyond the object of a slot. The caller holds it, or has it as `TRIMMING`.
fn drop_beyond(slot: &Slot, origin: *mut u8) -> bool {
    if words::counted() {
        return cut(slot, origin);
    }
    discard_beyond(slot, origin, page_round(slot.end.load(Relaxed)))
}

/// Drops the memory beyond `keep` bytes of a slot, as [`drop_beyond`].
fn discard_beyond(slot: &Slot, origin: *mut u8, keep: usize) -> bool {
    let touched = slot.touched.load(Relaxed);
    if touched <= keep {
        return false;
    }
    // The last huge page goes on beyond what is touched, and others may have been tried there.
    let end = slot.committed.load(Relaxed).max(touched);
    // SAFETY: beyond the object, whose owner is the caller or waits for the state to change.
    let done = unsafe { drop_between(origin, keep, end) };
    if done {
        slot.touched.store(keep, Relaxed);
    }
    done
}

/// Drops the huge pages that were tried ahead of the object in a slot, where it has never come to them. The caller
/// holds the slot.
fn drop_ahead(slot: &Slot, origin: *mut u8) {
    let from = slot.touched.load(Relaxed).next_multiple_of(HUGE);
    let committed = slot.committed.load(Relaxed);
    if slot.huge.load(Relaxed) != UNASKED && from < committed {
        // SAFETY: no object has been there.
        unsafe { drop_between(origin, from, committed) };
    }
}

/// Drops the memory of a slot from `from` to `end`, where nobody waits any more for an object to come.
///
/// # Safety
/// As for [`os::discard`].
unsafe fn drop_between(origin: *mut u8, from: usize, end: usize) -> bool {
    // SAFETY: by contract.
    unsafe {
        huge::unwatch_all(origin.add(from), end - from);
        os::discard(origin.add(from), end - from)
    }
}

/// Held while memory is taken back, by a thread that no signal handler interrupts but that of `SIGSYS`.
static TAKING_BACK: AtomicBool = AtomicBool::new(false);

/// Gives the system everything that no object needs: what is retained, and what is committed
/// ahead of the objects of all threads. To be called before anybody is refused memory.
/// Returns true if there was any. Keeps `errno`.
pub(crate) fn take_back() -> bool {
    if !is_there() {
        return false;
    }
    os::keep_errno(|| {
        os::without_signals(|| {
            while TAKING_BACK.swap(true, Acquire) {
                words::wait_for_others();
            }
            let retained = RETAINED.load(Relaxed) > 0;
            let dropped = drop_retained(0);
            let cut = cut_all();
            TAKING_BACK.store(false, Release);
            retained || dropped || cut
        })
    })
}

/// Uncommits what is beyond the objects. Returns true if there was any.
fn cut_all() -> bool {
    let ahead = |slot: &Slot| {
        slot.committed.load(Relaxed) > page_round(slot.end.load(Relaxed))
            && slot
                .state
                .compare_exchange(LIVE, CUTTING, AcqRel, Relaxed)
                .is_ok()
    };
    if slots().filter(|(slot, ..)| ahead(slot)).count() == 0 {
        return false;
    }
    let seen = os::heavy_barrier();
    let mut any = false;
    for (slot, class, index) in slots() {
        if slot.state.load(Relaxed) == CUTTING {
            any |= seen && cut(slot, origin_of(class, index));
            slot.state.store(LIVE, Release);
        }
    }
    any
}

/// Uncommits what is beyond the object of a slot. The caller holds it, or has it as `CUTTING`, and its
/// owner knows.
fn cut(slot: &Slot, origin: *mut u8) -> bool {
    let keep = page_round(slot.end.load(Relaxed));
    let committed = slot.committed.load(Relaxed);
    if committed <= keep {
        return false;
    }
    // In the child of a fork there may be memory beyond what it takes for committed.
    let end = slot.in_use();
    // SAFETY: within the slot.
    let (beyond, len) = (unsafe { origin.add(keep) }, end - keep);
    huge::unwatch(beyond, len);
    // In this order, so that the child of a fork never takes for committed what is not.
    slot.committed.store(keep, Relaxed);
    // SAFETY: beyond the object, and its owner waits for the state to change.
    if !unsafe { os::reset(beyond, len) } {
        slot.committed.store(committed, Relaxed);
        // No mapping to spare; the memory can go all the same.
        return discard_beyond(slot, origin, keep);
    }
    // SAFETY: as above.
    unsafe { ask_for_small_pages(beyond, len) };
    if slot.touched.load(Relaxed) > keep {
        slot.touched.store(keep, Relaxed);
    }
    // The advice has gone as well, and what is committed next begins a mapping of its own if what is
    // kept has moved.
    slot.huge.store(UNASKED, Relaxed);
    if slot.asked_from() >= keep {
        slot.asked_from.store(NOWHERE, Relaxed);
    }
    let seam = (slot.seam.load(Relaxed) as usize).min(keep / MIN_PAGE);
    slot.seam.store(seam as u32, Relaxed);
    true
}

/// In the child of a fork: what other threads were in the middle of is undone or
/// finished.
pub(crate) fn after_fork_in_child() {
    if SETUP.load(Acquire) == TRYING {
        SETUP.store(UNTRIED, Release);
    }
    if !is_there() {
        return;
    }
    let taking_back = TAKING_BACK.swap(false, Relaxed);
    let mut retained = 0;
    for (slot, ..) in slots() {
        match slot.state.load(Relaxed) {
            // Still on its stack. How far the other thread came is not known;
            // the memory may be anything.
            PURGING => slot.state.store(WARM, Relaxed),
            TRIMMING => slot.state.store(SLACK, Relaxed),
            CUTTING => slot.state.store(LIVE, Relaxed),
            _ => {}
        }
        if matches!(slot.state.load(Relaxed), WARM | SLACK | CHANGED | LIVE) {
            retained += slot.excess.load(Relaxed) as usize * MIN_PAGE;
        }
    }
    // What another thread was about to take off it, or had added for a slot that is nobody's now, nobody takes off.
    RETAINED.store(retained, Relaxed);
    if taking_back {
        take_back();
    }
}

const _: () = assert!(core::mem::size_of::<Slot>() == 64 && core::mem::size_of::<Geometry>() == 64);
