// SPDX-License-Identifier: MIT OR Apache-2.0
//! The words that every call reads, and how to ask for new ones.
//!
//! The limits in them contain the mode, the template, and whether anything is initialised (zero:
//! nothing is), so the fast paths ask for none of these. `control.rs` defines the words and alone
//! works out the limits. The files below it change something that the limits depend on with
//! [`change`], or [`ask`] for what takes more than one file to do; the words name the functions
//! that answer.

use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::{
    AtomicBool, AtomicI32, AtomicPtr, AtomicU8, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
};

use crate::mode::{Base, Mode};
use crate::{os, tls};

/// Alignment that the C library gives every object.
pub(crate) const SYS_ALIGN: usize = 16;

/// A base's `malloc`. With the next two a base is called without asking which one it is. It answers for a refusal itself:
/// [`or_elsewhere`].
pub(crate) type Alloc = unsafe extern "C" fn(usize) -> *mut c_void;
/// Frees an object of `Alloc` or `Realloc`, given its size and 0. mimalloc needs neither ([`KNOWS_SIZES`]).
pub(crate) type Free = unsafe extern "C" fn(*mut c_void, usize, c_int);
/// Resizes an object, given its old and its new size; the old one as [`Free`].
pub(crate) type Realloc = unsafe extern "C" fn(*mut c_void, usize, usize) -> *mut c_void;

/// True if [`Free`] may be called without an object's size, and [`Realloc`] with any larger one.
pub(crate) const KNOWS_SIZES: bool = cfg!(all(feature = "mimalloc", not(feature = "jemalloc")));

/// What a base has given; if it has refused, what the slow path finds.
pub(crate) fn or_elsewhere(p: *mut u8, size: usize) -> *mut c_void {
    match p.is_null() {
        true => (hot().rest.alloc_cold)(size, 1, false).cast(),
        false => p.cast(),
    }
}

/// What the fast paths need of a base that is not the C library.
#[cfg(any(feature = "jemalloc", feature = "mimalloc"))]
pub(crate) struct Direct {
    pub(crate) alloc: Alloc,
    /// Maximum size for which `alloc` and `realloc` may be called.
    pub(crate) most: usize,
    pub(crate) free: Free,
    pub(crate) realloc: Realloc,
    /// Address and length of where all its objects are.
    pub(crate) range: (usize, usize),
}

/// What every call reads, written a few times in a process.
///
/// It has its place in assembly, under a hidden name, so that to read a word is one
/// instruction and does not take another for the address.
#[repr(C, align(64))]
pub(crate) struct Hot {
    /// An address below this is null or the C library's: where the arena begins. Most of
    /// the C library's memory lies below, as the kernel fills the address space downwards.
    /// 0 while the monitor is on or a trial is under way.
    pub(crate) low: AtomicUsize,
    /// New objects up to this size are the C library's.
    pub(crate) malloc_limit: AtomicUsize,
    /// So are its objects that grow up to this size.
    pub(crate) realloc_limit: AtomicUsize,
    /// New objects up to this size are allocated by `alloc`.
    pub(crate) limit: AtomicUsize,
    /// Function of the type [`Alloc`].
    pub(crate) alloc: AtomicUsize,
    /// Where objects belong to one other allocator: what to add to an address to get
    /// its offset there, and the length. Set once; the length comes last.
    pub(crate) offset: AtomicUsize,
    pub(crate) len: AtomicUsize,
    /// Function of the type [`Free`] for those objects.
    pub(crate) free: AtomicUsize,
    pub(crate) rest: Rest,
}

/// What only the slow paths read, and reallocation.
#[repr(C, align(64))]
pub(crate) struct Rest {
    /// Function of the type [`Realloc`] for objects of the other allocator, and up
    /// to which size they stay with it.
    pub(crate) realloc: AtomicUsize,
    pub(crate) other_realloc_limit: AtomicUsize,
    /// Objects in so much of the arena, from its beginning on, may grow without being observed: the
    /// length of the slots, or 0 while the monitor is on.
    pub(crate) slots: AtomicUsize,
    /// Does what was asked for.
    pub(crate) answer: extern "C" fn(Ask),
    /// The slow paths, for a base that has nothing for a request of a fast path.
    pub(crate) alloc_cold: extern "C" fn(usize, usize, bool) -> *mut u8,
    pub(crate) realloc_cold: unsafe extern "C" fn(*mut u8, usize, usize, usize) -> *mut u8,
    /// From this address on, everything is the C library's again: the end of the arena. Heaps of threads that began
    /// before there was an arena are there. Beyond every address while the monitor is on or a trial is under way.
    pub(crate) high: AtomicUsize,
    pub(crate) mode: AtomicU8,
    pub(crate) base: AtomicU8,
    /// True if the configuration has been read.
    pub(crate) init: AtomicU8,
    /// True if the monitor is on.
    pub(crate) observed: AtomicBool,
    /// True if threads are in scopes of their own mode, or were a short time ago.
    pub(crate) scoped: AtomicBool,
    /// True if the system counts memory when it is committed. Then the C library may be refused
    /// memory that was committed ahead elsewhere, and each of its answers is checked for null.
    pub(crate) counted: AtomicBool,
}

const _: () = assert!(core::mem::size_of::<Hot>() == 128);

/// Beyond every address.
pub(crate) const NOWHERE: usize = 1 << (usize::BITS - 1);

/// Values of [`Rest::init`].
pub(crate) const NEW: u8 = 0;
pub(crate) const BUSY: u8 = 1;
pub(crate) const DONE: u8 = 2;

#[cfg(not(miri))]
#[inline(always)]
pub(crate) fn hot() -> &'static Hot {
    extern "C" {
        #[link_name = "brug_hot_v0"]
        static HOT: Hot;
    }
    // SAFETY: defined in `control.rs`, with this layout; all fields that change are atomic.
    unsafe { &HOT }
}

#[cfg(miri)]
pub(crate) fn hot() -> &'static Hot {
    extern "Rust" {
        fn brug_hot_v0() -> &'static Hot;
    }
    // SAFETY: defined in `control.rs`, without preconditions.
    unsafe { brug_hot_v0() }
}

/// The word of [`Hot`] at an offset, loaded with acquire ordering.
#[inline(always)]
pub(crate) fn word<const AT: usize>() -> usize {
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
        let field = core::ptr::from_ref(hot()).byte_add(AT).cast::<AtomicUsize>();
        (*field).load(Acquire)
    }
}

macro_rules! load {
    ($($field:ident).+) => {
        word::<{ core::mem::offset_of!(Hot, $($field).+) }>()
    };
}
pub(crate) use load;

/// Returns true if an object is the one other allocator's that is called without asking.
#[inline(always)]
pub(crate) fn in_other(p: *mut u8) -> bool {
    (p as usize).wrapping_add(load!(offset)) < load!(len)
}

/// The base of what is in no slot.
pub(crate) fn base() -> Base {
    Base::from_u8(hot().rest.base.load(Relaxed))
}

/// Makes another base that of what is in no slot. For use in a [`change`] only.
pub(crate) fn set_base(base: Base) {
    hot().rest.base.store(base as u8, Relaxed);
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
    process_mode()
}

/// The mode of threads that are in no scope.
pub(crate) fn process_mode() -> Mode {
    Mode::from_u8(hot().rest.mode.load(Relaxed))
}

/// What `control.rs` can be asked for.
#[repr(u8)]
pub(crate) enum Ask {
    /// To read the configuration, if nobody has.
    Configuration,
    /// To work the limits out anew. The caller holds the lock of [`change`].
    Limits,
    /// To start the purge thread, which gives memory back.
    Thread,
    /// To give back now what that thread would.
    Memory,
    /// To put in order what the other threads of the parent left, in the child of a fork.
    Fork,
}

/// Has `control.rs` do something now.
pub(crate) fn ask(what: Ask) {
    (hot().rest.answer)(what);
}

/// Reads the environment if nothing has yet.
#[inline]
pub(crate) fn ready() {
    if hot().rest.init.load(Acquire) != DONE {
        ask(Ask::Configuration);
    }
}

/// The process that the memory belongs to, in a page that the kernel clears in the child of a fork: handlers do not
/// run in each (`_Fork`), and those of others may run before ours. Null before there is an arena, and where the
/// kernel cannot.
static OWNER: AtomicPtr<AtomicI32> = AtomicPtr::new(ptr::null_mut());

/// The owner of memory that the child of a `vfork` was the first to use.
const UNKNOWN: i32 = -1;

/// Has a page say whose the memory is.
///
/// # Safety
/// The page is the caller's, zeroed, and stays.
pub(crate) unsafe fn own(page: *mut u8) {
    // SAFETY: by contract.
    if unsafe { os::wipe_on_fork(page) } {
        let page: *mut AtomicI32 = page.cast();
        if os::borrows_memory() {
            // SAFETY: by contract.
            unsafe { (*page).store(UNKNOWN, Relaxed) };
        }
        OWNER.store(page, Release);
        is_owned_anew();
    }
}

fn owner() -> Option<&'static AtomicI32> {
    // SAFETY: null, or a page that stays.
    unsafe { OWNER.load(Acquire).as_ref() }
}

/// Returns true in the child of a fork that has not been put in order.
pub(crate) fn is_orphaned() -> bool {
    owner().is_some_and(|owner| owner.load(Relaxed) == 0)
}

/// Returns true, once, in the child of a fork, which the caller puts in order; always where the kernel cannot tell.
pub(crate) fn is_owned_anew() -> bool {
    let claim = |owner: &AtomicI32| owner.compare_exchange(0, os::process(), AcqRel, Relaxed);
    owner().is_none_or(|owner| claim(owner).is_ok())
}

/// For who waits for another thread: puts in order the child of a fork, which has none. Returns false if it was not
/// that.
#[cold]
pub(crate) fn adopt() -> bool {
    let orphaned = is_orphaned();
    if orphaned {
        ask(Ask::Fork);
    }
    orphaned
}

/// Returns true if the caller has the memory of another process: the child of a `vfork`.
pub(crate) fn is_borrowed() -> bool {
    adopt();
    match owner().map(|owner| owner.load(Relaxed)) {
        None | Some(UNKNOWN) => os::borrows_memory(),
        Some(owner) => owner != os::process(),
    }
}

/// Waits a moment for another thread; in the child of a fork, which has none, puts things in order instead.
#[cold]
pub(crate) fn wait_for_others() {
    if !adopt() {
        os::wait_a_moment();
    }
}

/// Held while limits are worked out from what they contain.
static CHANGING: AtomicBool = AtomicBool::new(false);

/// Something that the limits depend on has changed while another thread held `CHANGING`. That thread works the
/// limits out once more.
static STALE: AtomicBool = AtomicBool::new(false);

/// Changes something that the limits depend on, and the limits.
pub(crate) fn change(what: impl FnOnce()) {
    while CHANGING.swap(true, SeqCst) {
        wait_for_changes();
    }
    changed_by(what);
}

/// Like [`change`], but does nothing while somebody else changes something: it may be the code that
/// the calling signal handler has interrupted.
pub(crate) fn try_change(what: impl FnOnce()) {
    if !CHANGING.swap(true, SeqCst) {
        changed_by(what);
    }
}

/// The caller holds `CHANGING`; gives it back.
fn changed_by(what: impl FnOnce()) {
    what();
    #[cfg(test)]
    os::fault::reach(&os::fault::CHANGE);
    loop {
        STALE.swap(false, SeqCst);
        ask(Ask::Limits);
        CHANGING.store(false, SeqCst);
        if !STALE.load(SeqCst) || CHANGING.swap(true, SeqCst) {
            return;
        }
    }
}

/// Has the limits worked out anew, as something that they depend on has changed. Waits for nobody.
pub(crate) fn outdated() {
    STALE.store(true, SeqCst);
    try_change(|| ());
}

/// From here on memory counts when it is committed. Waits for nobody.
fn count_memory() {
    hot().rest.counted.store(true, SeqCst);
    outdated();
}

/// Returns when a change that others have begun is over.
pub(crate) fn wait_for_changes() {
    /// A change takes a fraction of these, unless who makes it is not running.
    const SPINS: u32 = 1000;
    let mut spins = 0;
    while CHANGING.load(SeqCst) {
        spins += 1;
        if spins < SPINS {
            core::hint::spin_loop();
        } else {
            wait_for_others();
        }
    }
}

/// In the child of a fork, whose parent may have been changing something.
pub(crate) fn after_fork_in_child() {
    CHANGING.store(false, Relaxed);
    match hot().rest.init.load(Relaxed) {
        BUSY => hot().rest.init.store(NEW, Relaxed),
        // The parent may have come half way.
        DONE => change(|| ()),
        _ => {}
    }
}

/// Something has changed that the limits depend on: the arena is there, or another base.
pub(crate) fn reconsider() {
    memory_is_counted();
    change(|| ());
}

/// Returns true if the system is known to count memory when it is committed.
#[inline]
pub(crate) fn counted() -> bool {
    hot().rest.counted.load(Relaxed)
}

/// Like [`memory_is_counted`], after the program has changed a limit.
pub(crate) fn look_again() -> bool {
    if !counted() && os::counts_memory() {
        count_memory();
    }
    counted()
}

/// Returns true if the system counts memory when it is committed. Asked before anything is
/// committed that no object needs yet, so that a program that never comes to that makes no system
/// call for it; a limit that is set while the program runs is found then, too.
pub(crate) fn memory_is_counted() -> bool {
    // SAFETY: the calling thread's own.
    let asking = unsafe { &(*tls::local()).asking };
    // The system says it in a file, and a program whose own `open` allocates would come here again.
    if !counted() && !asking.replace(true) {
        let counts = os::counts_memory();
        asking.set(false);
        if counts {
            count_memory();
        }
    }
    counted()
}
