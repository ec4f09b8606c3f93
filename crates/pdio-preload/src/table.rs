// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is known of each descriptor: one word in a flat table.
//!
//! Zero means nothing, and is all that most calls ever look at. A *watched* descriptor's word counts
//! the bytes that passed in sequence and the calls that are under way. A *tracked* descriptor's word
//! is the address of its [`Description`], which descriptors made by `dup` share. Descriptors of this
//! library have a mark of their own, and high numbers, out of the program's way.
//!
//! Descriptions are never freed, only used again: a thread that has loaded an address from the table
//! may lock it, and then has to see that the table still says the same.

use core::ffi::{c_char, c_int, c_uint};
use core::sync::atomic::{
    AtomicBool, AtomicI32, AtomicIsize, AtomicPtr, AtomicU64, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, SeqCst},
};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use crate::guard::{self, Guard};
use crate::memory::Known;
use crate::next;
use crate::state::{self, Renewed, HOLD, TAKEN};
use crate::taken::{Aligned, Direction, Stream};

/// Descriptors with higher numbers are left alone.
pub const SLOTS: usize = 1 << 16;

/// Descriptors of this library.
const INTERNAL: usize = 2;
const TAG: usize = 3;
const WATCHED: usize = 1;
/// A watched descriptor that was opened for writing.
const WRITER: usize = 1 << 2;
/// A watched descriptor that was duplicated: others may share its offset.
const SHARED: usize = 1 << 3;
/// Calls under way on a watched descriptor, 8 bits.
const CALL: usize = 1 << 4;
const CALLS: usize = 0xff << 4;
/// How often a watched descriptor could not be taken, 3 bits.
const REFUSAL: usize = 1 << 12;
const REFUSALS: usize = 7 << 12;
const BYTES_SHIFT: u32 = 15;

static TABLE: [AtomicUsize; SLOTS] = [const { AtomicUsize::new(0) }; SLOTS];
/// One more than the highest descriptor that ever had a word.
static TOP: AtomicUsize = AtomicUsize::new(0);
/// The same without those of this library, which are high.
static KNOWN: AtomicUsize = AtomicUsize::new(0);
/// Descriptors that have a word now, without those of this library. Never less than there are, wherever a thread is
/// interrupted: one is counted before it has its word, and no longer when it has lost it.
static WORDS: AtomicUsize = AtomicUsize::new(0);
/// Negative while something that was written waits in memory (see [`crate::tell`]).
pub static CLEAR: AtomicIsize = AtomicIsize::new(-1);

/// Calls on lower descriptors that have no word go straight to the C library. Negative while streams are
/// taken, as each takes [`ONE`] off: then none do, as data may wait, or have been read ahead.
pub static QUIET: AtomicIsize = AtomicIsize::new(-1);
const ONE: isize = 1 << 32;

/// No word on a descriptor stops a call any more: the library has looked around and begins.
pub fn open_up() {
    CLEAR.store(SLOTS as isize, Relaxed);
    QUIET.store(SLOTS as isize, Relaxed);
}

/// A stream is taken.
fn one_more() {
    TAKEN.fetch_add(1, SeqCst);
    QUIET.fetch_sub(ONE, SeqCst);
}

/// A stream is no longer taken.
fn one_less() {
    TAKEN.fetch_sub(1, SeqCst);
    QUIET.fetch_add(ONE, SeqCst);
}

/// Returns true if a call on this descriptor is nothing that this library need know of.
#[inline(always)]
pub fn quiet(fd: c_int) -> bool {
    (fd as c_uint as isize) < QUIET.load(Acquire)
        // SAFETY: bounds are at most the number of slots.
        && unsafe { TABLE.get_unchecked(fd as usize) }.load(Acquire) == 0
}

/// The word of a descriptor; zero if it is none of this library's business.
#[inline(always)]
pub fn word(fd: c_int) -> usize {
    match TABLE.get(fd as usize) {
        Some(word) => word.load(Acquire),
        None => 0,
    }
}

fn slot(fd: c_int) -> Option<&'static AtomicUsize> {
    TABLE.get(fd as usize)
}

fn set(fd: c_int, word: usize) {
    if let Some(slot) = slot(fd) {
        comes(fd, word);
        goes(slot.swap(word, SeqCst));
    }
}

/// As [`set`], if the descriptor's word is still the `old` one.
fn replace(fd: c_int, old: usize, word: usize) -> bool {
    slot(fd).is_some_and(|slot| {
        comes(fd, word);
        let replaced = slot.compare_exchange(old, word, SeqCst, SeqCst).is_ok();
        goes(if replaced { old } else { word });
        replaced
    })
}

/// A descriptor is about to have this word.
fn comes(fd: c_int, word: usize) {
    if word != 0 && fd as usize >= TOP.load(Relaxed) {
        TOP.fetch_max(fd as usize + 1, SeqCst);
    }
    if counts(word) {
        WORDS.fetch_add(1, SeqCst);
        if fd as usize >= KNOWN.load(Relaxed) {
            KNOWN.fetch_max(fd as usize + 1, SeqCst);
        }
    }
}

/// A descriptor no longer has this word.
fn goes(word: usize) {
    if counts(word) {
        WORDS.fetch_sub(1, SeqCst);
    }
}

fn counts(word: usize) -> bool {
    word != 0 && word != INTERNAL
}

/// What a descriptor is.
#[derive(Clone, Copy)]
pub enum Entry {
    Nothing,
    Watched,
    Internal,
    Tracked(&'static Description),
}

fn decode(word: usize) -> Entry {
    match word & TAG {
        0 if word == 0 => Entry::Nothing,
        // SAFETY: words without a tag are addresses of descriptions, which are never freed.
        0 => Entry::Tracked(unsafe { &*(word as *const Description) }),
        WATCHED => Entry::Watched,
        _ => Entry::Internal,
    }
}

/// What a descriptor is. In a child that has borrowed this memory, numbers lead elsewhere: what they are of
/// the parent's is nothing to it.
pub fn entry(fd: c_int) -> Entry {
    match decode(word(fd)) {
        Entry::Watched | Entry::Tracked(_) if state::borrowed() => Entry::Nothing,
        entry => entry,
    }
}

/// Returns true if no descriptor has a word, but for those of this library. That is known at once, also where there
/// were many.
pub fn nothing_known() -> bool {
    WORDS.load(SeqCst) == 0 || state::borrowed()
}

/// Descriptors that have a word.
pub fn known() -> impl Iterator<Item = (c_int, Entry)> {
    let end = match nothing_known() {
        true => 0,
        false => KNOWN.load(SeqCst) as c_int,
    };
    (0..end).filter_map(|fd| match entry(fd) {
        Entry::Nothing | Entry::Internal => None,
        entry => Some((fd, entry)),
    })
}

/// The descriptors through which a file is taken.
pub fn leading_to(device: u64, inode: u64) -> impl Iterator<Item = c_int> {
    let leads = move |description: &Description| {
        let same = || description.inode.load(Relaxed) == inode;
        device != 0 && description.device.load(Relaxed) == device && same()
    };
    // Calls ask this of any file, and descriptions are few where a program may have had many descriptors.
    let any = descriptions().any(leads);
    any.then(known)
        .into_iter()
        .flatten()
        .filter_map(move |(fd, entry)| match entry {
            Entry::Tracked(description) if leads(description) => Some(fd),
            _ => None,
        })
}

/// Takes a descriptor out of the table, whatever it is.
pub fn forget(fd: c_int) {
    set(fd, 0);
}

/// Stops watching a descriptor. Returns false if it is not watched: another thread, or a handler of a
/// signal, may have taken it since the caller looked, and a stream must not be lost.
pub fn unwatch(fd: c_int) -> bool {
    unwatch_if(fd, |_| true)
}

fn unwatch_if(fd: c_int, may: impl Fn(usize) -> bool) -> bool {
    loop {
        let word = word(fd);
        if word & TAG != WATCHED || !may(word) {
            return false;
        }
        if replace(fd, word, 0) {
            return true;
        }
    }
}

/// Numbers that the C library reads and writes below a `FILE`, whatever they lead to by then: a program may have closed
/// one, and got it again for another file.
static BELOW: [AtomicU64; SLOTS / 64] = [const { AtomicU64::new(0) }; SLOTS / 64];

/// Notes that a number is below a `FILE`, or no longer.
pub fn note_below(fd: c_int, is: bool) {
    if let Some(word) = BELOW.get(fd as usize / 64) {
        let bit = 1 << (fd as usize % 64);
        match is {
            true => word.fetch_or(bit, SeqCst),
            false => word.fetch_and(!bit, SeqCst),
        };
    }
}

/// Returns true if the C library may read or write there by itself.
pub fn is_below(fd: c_int) -> bool {
    BELOW
        .get(fd as usize / 64)
        .is_some_and(|word| word.load(SeqCst) >> (fd as usize % 64) & 1 != 0)
}

/// Starts to watch a descriptor that was just opened.
pub fn watch(fd: c_int, writer: bool) {
    watch_as(fd, WATCHED | if writer { WRITER } else { 0 });
}

fn watch_as(fd: c_int, word: usize) {
    // Standard error is written by the C library itself, whenever it likes.
    if fd == libc::STDERR_FILENO || is_below(fd) {
        return;
    }
    if replace(fd, 0, word) && HOLD.load(SeqCst) != 0 {
        unwatch(fd);
    }
}

/// Enters a copy of a watched descriptor. Returns false if that is no longer watched.
pub fn watch_copy(from: c_int, to: c_int) -> bool {
    let Some(word) = update(from, |word| Some(word | SHARED)) else {
        return false;
    };
    watch_as(to, WATCHED | SHARED | word & WRITER);
    true
}

/// Returns true if this is the only thread. A signal handler may still come between any two
/// instructions.
pub fn single_threaded() -> bool {
    let single = crate::symbols::weak!("__libc_single_threaded") as *const c_char;
    // SAFETY: null, or the address of a byte of the C library or the program, written while there is one thread.
    unsafe { single.as_ref() }.is_some_and(|&single| single != 0)
}

/// Changes the word of a watched descriptor. `None` if it is no longer watched.
fn update(fd: c_int, change: impl Fn(usize) -> Option<usize>) -> Option<usize> {
    let slot = slot(fd)?;
    loop {
        let old = slot.load(Acquire);
        if old & TAG != WATCHED {
            return None;
        }
        let new = change(old)?;
        // Also where there is one thread: a handler of a signal may have taken the descriptor since, and
        // its stream must not be lost.
        if slot
            .compare_exchange_weak(old, new, SeqCst, Relaxed)
            .is_ok()
        {
            return Some(new);
        }
    }
}

/// Counts a call that begins on a watched descriptor. Returns false if it is no longer watched.
pub fn begin(fd: c_int) -> bool {
    update(fd, |word| (word & CALLS != CALLS).then_some(word + CALL)).is_some()
}

/// A descriptor on which more calls are under way than can be counted is left alone for good.
#[cold]
pub fn give_up_counting(fd: c_int) {
    unwatch_if(fd, |word| word & CALLS == CALLS);
}

/// How a call on a watched descriptor went.
pub enum Passed {
    /// Bytes at the descriptor's offset, in this direction.
    InSequence { bytes: u64, writing: bool },
    /// Nothing happened that matters.
    Nothing,
    /// The sequence is interrupted.
    Elsewhere,
}

/// A call on a watched descriptor has ended. The bytes in sequence so far, when there is no other
/// call under way; half as many each time that it could not be taken, as every attempt costs.
pub fn end(fd: c_int, how: Passed) -> u64 {
    let word = update(fd, |word| {
        let called = if word & CALLS == 0 { word } else { word - CALL };
        let flags = called & ((1 << BYTES_SHIFT) - 1);
        Some(match how {
            Passed::InSequence { bytes, writing } if writing == (word & WRITER != 0) => {
                let sum = (called >> BYTES_SHIFT).saturating_add(bytes as usize);
                flags | sum.min(usize::MAX >> BYTES_SHIFT) << BYTES_SHIFT
            }
            Passed::Nothing => called,
            _ => flags,
        })
    });
    match word {
        Some(word) if word & CALLS == 0 => {
            (word >> BYTES_SHIFT >> ((word & REFUSALS) / REFUSAL)) as u64
        }
        _ => 0,
    }
}

/// One open file description of the program.
pub struct Description {
    state: Mutex<State>,
    /// The file, for those who look for it without the lock; zero if nothing is taken.
    pub device: AtomicU64,
    pub inode: AtomicU64,
    /// The process that tracks it: after `vfork` two share this memory.
    pub process: AtomicI32,
    /// True if it is direct I/O of the program's own.
    pub direct: AtomicBool,
    /// The number of the last write that was held back; zero if there was none since everything
    /// was handed over.
    pub deferred: AtomicU64,
    /// True if a stream is taken that writes.
    writes: AtomicBool,
    /// The thread that has it locked, by a call of the program's; zero if there is none.
    holder: AtomicUsize,
    /// The next in the list of all.
    next: AtomicPtr<Description>,
}

#[derive(Default)]
pub struct State {
    pub kind: Kind,
    /// Descriptors that refer to it.
    pub descriptors: u32,
    /// An error that the program has not been told yet.
    pub error: Option<c_int>,
    /// That error was printed.
    pub printed: bool,
    /// The program's memory that was used before.
    pub memory: Known,
}

impl State {
    /// The error for a call of the program's that returns it.
    pub fn told(&mut self) -> Option<c_int> {
        self.printed = false;
        self.error.take()
    }

    /// The error to print, if it was not printed before.
    pub fn unprinted(&mut self) -> Option<c_int> {
        let error = self.error.filter(|_| !self.printed);
        self.printed |= error.is_some();
        error
    }
}

#[derive(Default)]
pub enum Kind {
    /// Calls go to the kernel; there may be an error to report.
    #[default]
    Plain,
    Stream(Stream),
    Aligned(Aligned),
}

impl Kind {
    /// The direction of the stream, if it is one.
    pub fn direction(&self) -> Option<Direction> {
        match self {
            Kind::Stream(stream) => Some(stream.direction()),
            Kind::Plain | Kind::Aligned(_) => None,
        }
    }
}

/// The list of all descriptions.
static ALL: AtomicPtr<Description> = AtomicPtr::new(core::ptr::null_mut());

/// All descriptions there ever were, for code that must not allocate.
pub fn descriptions() -> impl Iterator<Item = &'static Description> {
    // SAFETY: null or the address of a description, which is never freed.
    let at = |pointer: &AtomicPtr<Description>| unsafe { pointer.load(Acquire).as_ref() };
    core::iter::successors(at(&ALL), move |description| at(&description.next))
}

/// Descriptions to use again.
static SPARE: Renewed<Vec<&'static Description>> = Renewed::new();

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Description {
    pub fn new() -> &'static Description {
        let used = SPARE.lock().pop();
        let description = used.unwrap_or_else(|| {
            let new: &'static Description = Box::leak(Box::new(Description {
                state: Mutex::default(),
                device: AtomicU64::new(0),
                inode: AtomicU64::new(0),
                process: AtomicI32::new(0),
                direct: AtomicBool::new(false),
                deferred: AtomicU64::new(0),
                writes: AtomicBool::new(false),
                holder: AtomicUsize::new(0),
                next: AtomicPtr::default(),
            }));
            let this = core::ptr::from_ref(new).cast_mut();
            let mut head = ALL.load(Acquire);
            loop {
                new.next.store(head, Relaxed);
                match ALL.compare_exchange_weak(head, this, AcqRel, Acquire) {
                    Ok(_) => break new,
                    Err(now) => head = now,
                }
            }
        });
        description.process.store(state::process(), Relaxed);
        description.direct.store(false, Relaxed);
        description
    }

    /// For direct I/O of the program's own.
    pub fn new_direct() -> &'static Description {
        let description = Description::new();
        description.lock().kind = Kind::Aligned(Aligned::default());
        description.direct.store(true, Relaxed);
        description
    }

    pub fn recycle(&'static self) {
        SPARE.lock().push(self);
    }

    /// No descriptor leads here any more; it may be used again.
    pub fn release(&'static self, state: &mut State) {
        self.untrack_all();
        *state = State::default();
        self.recycle();
    }

    /// A stream on this file is taken.
    pub fn begins(&self, device: u64, inode: u64, writes: bool) {
        self.writes.store(writes, SeqCst);
        self.device.store(device, SeqCst);
        self.inode.store(inode, SeqCst);
        one_more();
    }

    /// The stream is no longer taken.
    pub fn ends(&self) {
        self.writes.store(false, SeqCst);
        self.device.store(0, SeqCst);
        self.inode.store(0, SeqCst);
        one_less();
    }

    fn word(&'static self) -> usize {
        self as *const Description as usize
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Returns true if this thread has it locked already: it is in a handler that has interrupted this library.
    pub fn is_held_here(&self) -> bool {
        self.holder.load(Relaxed) == this_thread()
    }

    /// Returns true if another thread's call is at work on it.
    pub fn is_held_elsewhere(&self) -> bool {
        ![0, this_thread()].contains(&self.holder.load(Relaxed))
    }

    /// Returns true if the stream is one that writes. Known without the lock.
    pub fn writes(&self) -> bool {
        self.writes.load(SeqCst)
    }

    /// Waits for nobody.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, State>> {
        match self.state.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Returns true if this process tracks it, and not one that shares the memory until it executes a
    /// program.
    pub fn is_ours(&self) -> bool {
        self.process.load(Relaxed) == state::process()
    }

    /// Makes a watched descriptor tracked, if no call is under way on it.
    pub fn claim(&'static self, fd: c_int) -> Option<Claim> {
        let old = word(fd);
        let idle = old & TAG == WATCHED && old & CALLS == 0;
        let claimed = idle && replace(fd, old, self.word());
        claimed.then_some(Claim {
            writer: old & WRITER != 0,
            shared: old & SHARED != 0,
            refusals: old & REFUSALS,
        })
    }

    /// Gives a claimed descriptor back: watched anew, or left alone for good.
    pub fn unclaim(&'static self, fd: c_int, claim: Option<Claim>) {
        let new = claim.map_or(0, |claim| {
            let writer = if claim.writer { WRITER } else { 0 };
            let shared = if claim.shared { SHARED } else { 0 };
            let refusals = (claim.refusals + REFUSAL).min(REFUSALS);
            WATCHED | writer | shared | refusals
        });
        replace(fd, self.word(), new);
    }

    /// Makes a descriptor that has no word tracked. Returns false if another thread has given it one.
    pub fn track(&'static self, fd: c_int) -> bool {
        replace(fd, 0, self.word())
    }

    /// Takes one descriptor out of the table. Returns false if it was not this one's.
    pub fn untrack(&'static self, fd: c_int) -> bool {
        replace(fd, self.word(), 0)
    }

    /// Takes all descriptors out of the table.
    fn untrack_all(&'static self) {
        for fd in 0..KNOWN.load(SeqCst) as c_int {
            self.untrack(fd);
        }
    }
}

/// What was known of a descriptor when it was claimed.
#[derive(Clone, Copy)]
pub struct Claim {
    pub writer: bool,
    pub shared: bool,
    refusals: usize,
}

/// A locked description, with the thread protected as [`Guard`] says.
pub struct Held {
    // Field order matters: the lock goes before signals come back.
    pub state: MutexGuard<'static, State>,
    pub description: &'static Description,
    _guard: Guard,
}

impl Held {
    fn new(description: &'static Description, guard: Guard) -> Held {
        let state = description.lock();
        description.holder.store(this_thread(), Relaxed);
        Held {
            state,
            description,
            _guard: guard,
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.description.holder.store(0, Relaxed);
    }
}

/// A number that no other thread has, and none is zero.
fn this_thread() -> usize {
    // SAFETY: no preconditions.
    unsafe { libc::pthread_self() as usize }
}

/// Locks a description, whatever leads to it; `None` if this thread is inside this library.
pub fn hold_any(description: &'static Description) -> Option<Held> {
    let guard = Guard::enter()?;
    Some(Held::new(description, guard))
}

/// What came of the attempt to lock a descriptor's description.
pub enum Locked {
    Held(Held),
    /// The table has changed: look again.
    Again,
    /// This thread is inside this library already: a signal handler it did not know of.
    Inside,
}

pub fn hold(fd: c_int, description: &'static Description) -> Locked {
    let Some(guard) = Guard::enter() else {
        return Locked::Inside;
    };
    let held = Held::new(description, guard);
    match word(fd) == description.word() {
        true => Locked::Held(held),
        false => Locked::Again,
    }
}

/// Runs `action` on the locked description of a tracked descriptor; `None` if it is not tracked.
pub fn with<T>(fd: c_int, action: impl FnOnce(&mut Held) -> T) -> Option<T> {
    loop {
        let Entry::Tracked(description) = entry(fd) else {
            return None;
        };
        match hold(fd, description) {
            Locked::Held(mut held) => return Some(action(&mut held)),
            Locked::Again => {}
            Locked::Inside => return None,
        }
    }
}

/// No descriptor is made from this number on.
pub fn limit() -> c_int {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the limit is ours.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    limit.rlim_cur.min(c_int::MAX as u64) as c_int
}

/// The lowest number for descriptors of this library: far from what programs count on.
fn floor() -> c_int {
    limit().min(SLOTS as c_int) / 2
}

/// How many streams may be taken at a time: each has up to three descriptors.
pub fn most_streams() -> usize {
    floor() as usize / 12
}

/// A copy of a descriptor, as one of this library's.
pub fn internal_copy(fd: c_int) -> Option<c_int> {
    // SAFETY: no memory is involved.
    let new = unsafe { next::fcntl64(fd, libc::F_DUPFD_CLOEXEC, floor() as libc::c_ulong) };
    (new >= 0).then(|| adopt(new))
}

/// Moves a descriptor that this library has just opened out of the program's way.
pub fn internalise(fd: c_int) -> c_int {
    match internal_copy(fd) {
        Some(new) => {
            // SAFETY: ours.
            unsafe { next::close(fd) };
            new
        }
        None => adopt(fd),
    }
}

/// Makes a descriptor one of this library's, where it is.
pub fn adopt(fd: c_int) -> c_int {
    set(fd, INTERNAL);
    fd
}

/// Descriptors of this library in a range, in order.
pub fn internal(first: u32, last: u32) -> impl Iterator<Item = u32> {
    (first..last.min(TOP.load(SeqCst) as u32).saturating_add(1))
        .filter(|&fd| matches!(entry(fd as c_int), Entry::Internal))
}

/// In a forked child: nothing is taken (see `process::before_fork`), but locks of other threads
/// may be held for ever.
pub fn forked() {
    QUIET.store(SLOTS as isize, SeqCst);
    SPARE.renew();
    guard::forked();
    let mut renewed: Vec<(usize, &'static Description)> = Vec::new();
    for (fd, entry) in known() {
        let Entry::Tracked(old) = entry else { continue };
        if old.device.load(Relaxed) != 0 {
            // Its data could not be written before the fork; it is the parent's to try again.
            forget(fd);
            continue;
        }
        let new = match renewed.iter().find(|(word, _)| *word == old.word()) {
            Some((_, new)) => *new,
            None => {
                let new = Description::new_direct();
                renewed.push((old.word(), new));
                new
            }
        };
        new.lock().descriptors += 1;
        set(fd, new.word());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn while_a_stream_is_taken_there_is_something_to_hear() {
        let before = QUIET.load(SeqCst);
        let done = core::sync::atomic::AtomicBool::new(false);
        let both = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                both.wait();
                while !done.load(SeqCst) {
                    one_more();
                    one_less();
                }
            });
            both.wait();
            let missed = (0..1_000_000).any(|_| {
                one_more();
                let quiet = QUIET.load(SeqCst) >= 0;
                one_less();
                quiet
            });
            done.store(true, SeqCst);
            assert!(!missed);
        });
        assert_eq!(QUIET.load(SeqCst), before);
    }

    #[test]
    fn what_a_signal_handler_takes_between_two_instructions_is_not_lost() {
        let fd = SLOTS as c_int - 2;
        watch(fd, true);
        let description = Description::new();
        let counted = update(fd, |word| {
            // The handler, after the word was loaded.
            description.claim(fd).map(|_| word + CALL)
        });
        assert!(counted.is_none());
        assert!(matches!(entry(fd), Entry::Tracked(_)));
        forget(fd);
    }

    #[test]
    fn what_cannot_be_taken_is_tried_ever_less_often() {
        const CALL: u64 = 64 << 10;
        let fd = SLOTS as c_int - 3;
        watch(fd, true);
        let description = Description::new();
        let (mut calls, mut tried) = (0, Vec::new());
        while tried.len() < 9 {
            assert!(begin(fd));
            calls += 1;
            let bytes = CALL;
            let how = Passed::InSequence {
                bytes,
                writing: true,
            };
            if end(fd, how) >= CALL {
                tried.push(calls);
                calls = 0;
                let claim = description.claim(fd);
                assert!(claim.is_some_and(|claim| claim.writer));
                description.unclaim(fd, claim);
            }
        }
        assert_eq!(tried, [1, 2, 4, 8, 16, 32, 64, 128, 128]);
        forget(fd);
    }

    #[test]
    fn what_is_tracked_is_not_lost_to_who_saw_it_watched() {
        let fd = SLOTS as c_int - 1;
        watch(fd, true);
        assert!(begin(fd) && unwatch(fd));
        assert!(matches!(entry(fd), Entry::Nothing) && !unwatch(fd));
        watch(fd, true);
        let description = Description::new();
        assert!(description.claim(fd).is_some());
        assert!(!unwatch(fd));
        assert!(matches!(entry(fd), Entry::Tracked(_)));
        forget(fd);
    }
}
