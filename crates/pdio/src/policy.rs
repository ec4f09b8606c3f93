// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which strategy is cheapest, learned per device, direction and pattern.
//!
//! The cost of a byte is the time it took plus the CPU time the *whole system* spent, divided by
//! the number of processors: the page cache's work is largely done by kernel threads, on other
//! processors, which the caller's own times do not show. Streams are cut into slices; each slice
//! is one sample of its strategy. Each other strategy gets one short trial once the device is known,
//! and later ones every [`RETRY`] bytes or more rarely, the more rarely the more it costs. After the
//! first trials they cost less than 2 %.
//!
//! Where `pdio learn` has measured the filesystem (see [`crate::costs`]), a stream begins with what was
//! cheapest then; its own samples decide from there on. Where nothing is known it begins with the
//! paper's rule: small calls are gathered; writes of 64 KiB and more and reads of 256 KiB and more, with
//! aligned memory, go without a copy, but for writes of less than 256 KiB to btrfs, which begin in the page
//! cache. Smaller reads begin with read-ahead, which needs a copy: without
//! either, the device stands still between two calls.
//!
//! A trial ends when it has cost about as much again as the same bytes do by the present strategy. So a
//! stream has none if less is left of it than the trial could win back; where nobody knows how much is
//! left, a stream is taken to last as long again as it has.
//!
//! A stream that waits for its source or its clock three quarters of the time is paced. It gains
//! nothing from the page cache, and a trial of that would make it miss its next frame. Such streams are
//! learned apart, by the time in their calls, and only try to do without a copy.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use std::os::fd::BorrowedFd;

use crate::align::{FileFacts, FileKind};
use crate::costs::{self, Line};
use crate::fork::PerProcess;
use crate::options::Strategy;
use crate::sys;

/// Length of an ordinary slice, in bytes.
const SLICE: u64 = 16 << 20;
/// Bytes a device must have seen before other strategies are tried, and that a stream must have left:
/// a trial of [`TRIAL`] costs at most that much again, so those of three strategies are won back in so
/// many bytes by one that is a third cheaper. Most processes write less in their life, and have none.
const SETTLED: u64 = 64 << 20;
/// Length of the first slice of a stream that begins without a copy and without knowledge, and of a trial
/// through the page cache up to its first look, in bytes. A call without a copy waits for the device, and
/// costs several times as much where the processor is fast.
const FIRST: u64 = 2 << 20;
/// A copy is cheap if it costs less than this part of a call without one (of large calls: of what they
/// wait): to do without it wins less than that, and loses the overlap of device and caller. Where copies are
/// cheap, a stream that began without one has its trial with one right after the first slice; where they
/// are not, a stream that began with one has its trial without.
const CHEAP_COPY: f64 = 0.125;
/// How many samples a remembered cost counts for: one sample that differs does not outweigh it, three do.
const REMEMBERED: usize = 2;
/// Length of a trial slice, in bytes, and how often it is looked at, to end one early that already cost
/// [`HOPELESS`] times as much as the present strategy.
const TRIAL: u64 = 8 << 20;
const TRIAL_STEP: u64 = 1 << 20;
const HOPELESS: f64 = 2.0;
/// Bytes between trials of a strategy that was close to the best.
const RETRY: u64 = 512 << 20;
/// Samples kept of each strategy; their median counts.
const SAMPLES: usize = 5;
/// A strategy replaces the present one if it costs less than this part of it.
const HYSTERESIS: f64 = 0.92;
/// A remembered cost makes a stream begin with another strategy than the rule's if it is less than this
/// part of what the rule's costs. The margin is wide, as another process measured them on another day.
const REMEMBERED_HYSTERESIS: f64 = 0.8;

/// Read or write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub enum Operation {
    /// Data comes from the device.
    Read,
    /// Data goes to the device.
    Write,
}

/// How a stream moves through its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub enum Pattern {
    /// Each call begins where the last ended.
    Sequential,
    /// As sequential, with calls of 64 KiB and more on aligned memory.
    Medium,
    /// As sequential, with calls of 256 KiB and more on aligned memory.
    Large,
    /// Small calls at unrelated offsets.
    Random,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub dev: u64,
    pub operation: Operation,
    pub pattern: Pattern,
    /// The stream waits for its source or its clock most of the time.
    pub paced: bool,
}

/// What a policy chooses among, as indices of arrays: direct from the stream's memory, which the
/// device empties while the caller goes on; direct from the caller's memory, without a copy but
/// waiting; and the two ways through the page cache.
pub(crate) const CHOICES: [Strategy; 4] = [
    Strategy::Direct,
    Strategy::Direct,
    Strategy::DontCache,
    Strategy::Buffered,
];
pub(crate) const STAGED: usize = 0;
pub(crate) const ZERO_COPY: usize = 1;
pub(crate) const BUFFERED: usize = 3;

type Allowed = [bool; CHOICES.len()];

/// Calls from this size on may try to do without a copy. Whether that pays differs much between
/// calls of this size and those of [`LARGE_CALL`], so it is learned apart.
pub(crate) const MEDIUM_CALL: usize = 64 << 10;
const LARGE_CALL: usize = 256 << 10;

/// Pauses are measured between calls of at least this size: two looks at a clock would slow
/// smaller ones down.
const PACED_CALL: u64 = 4 << 10;
/// Shorter slices are too few steps of that clock to tell.
const PACED_SLICE: Duration = Duration::from_millis(64);
/// After slices that take so long the clock is looked at between small calls, too: at 32 MiB/s it costs one of 512 B
/// less than a hundredth.
const SLOW_SLICE: Duration = Duration::from_millis(512);

/// What one strategy was seen to cost.
#[derive(Clone, Debug, Default)]
struct Arm {
    /// The latest samples, in ns per byte.
    samples: Vec<f64>,
    taken: usize,
    bytes: u64,
    /// How long the thread waited in the latest one, in ns per byte.
    waited: Option<f64>,
    /// The device's byte count at which to try again.
    retry_at: u64,
    /// When the cost was measured that was remembered, in seconds since 1970.
    measured: Option<u64>,
}

impl Arm {
    fn cost(&self) -> Option<f64> {
        let mut sorted = self.samples.clone();
        sorted.sort_by(f64::total_cmp);
        // The lower median: interference only ever adds.
        sorted.get(sorted.len().checked_sub(1)? / 2).copied()
    }

    fn remember(&mut self, cost: f64, when: u64) {
        self.samples = vec![cost; REMEMBERED];
        self.taken = REMEMBERED;
        self.measured = Some(when);
    }

    fn add(&mut self, cost: f64, bytes: u64) {
        if self.samples.len() < SAMPLES {
            self.samples.push(cost);
        } else {
            self.samples[self.taken % SAMPLES] = cost;
        }
        self.taken += 1;
        self.bytes += bytes;
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Learned {
    arms: [Arm; CHOICES.len()],
    bytes: u64,
}

/// What a process has learned.
#[derive(Debug, Default)]
struct Table {
    learned: HashMap<Key, Learned>,
    /// The devices of which it is known what is remembered.
    met: HashSet<u64>,
}

fn table() -> MutexGuard<'static, Table> {
    static TABLE: PerProcess<Mutex<Table>> = PerProcess::new();
    TABLE.get().lock().unwrap_or_else(PoisonError::into_inner)
}

fn with<T>(key: Key, action: impl FnOnce(&mut Learned) -> T) -> T {
    action(table().learned.entry(key).or_default())
}

/// A file is about to be streamed: what is remembered of its filesystem counts from here on.
pub(crate) fn meet(fd: BorrowedFd<'_>, facts: &FileFacts) {
    if facts.kind != FileKind::Stream && !table().met.contains(&facts.dev) {
        recall(facts.dev, &costs::of(fd, facts));
    }
}

/// Begins with what is remembered of a device.
pub(crate) fn recall(dev: u64, lines: &[Line]) {
    let mut table = table();
    table.met.insert(dev);
    let mut changed = HashSet::new();
    for line in lines {
        if let Some((key, arm)) = parse(dev, &line.what) {
            let learned = table.learned.entry(key).or_default();
            learned.arms[arm].remember(line.cost, line.when);
            changed.insert(key);
        }
    }
    for key in changed {
        table.learned.entry(key).or_default().space_out();
    }
}

const OPERATIONS: [(Operation, &str); 2] = [(Operation::Read, "read"), (Operation::Write, "write")];
const PATTERNS: [(Pattern, &str); 4] = [
    (Pattern::Sequential, "sequential"),
    (Pattern::Medium, "medium"),
    (Pattern::Large, "large"),
    (Pattern::Random, "random"),
];
const NAMES: [&str; CHOICES.len()] = ["direct", "direct-without-copy", "dontcache", "buffered"];

/// How a key and an index of [`CHOICES`] are remembered. Of streams that are paced nothing is.
pub(crate) fn words(operation: Operation, pattern: Pattern, arm: usize) -> String {
    fn word<T: PartialEq>(all: &[(T, &'static str)], wanted: &T) -> &'static str {
        let found = all.iter().find(|(value, _)| value == wanted);
        found.map_or("", |(_, word)| word)
    }
    let (operation, pattern) = (word(&OPERATIONS, &operation), word(&PATTERNS, &pattern));
    format!("{operation} {pattern} {}", NAMES[arm])
}

fn parse(dev: u64, words: &str) -> Option<(Key, usize)> {
    fn value<T: Copy>(all: &[(T, &str)], wanted: Option<&str>) -> Option<T> {
        let found = all.iter().find(|(_, word)| Some(*word) == wanted);
        found.map(|(value, _)| *value)
    }
    let mut words = words.split(' ');
    let key = Key {
        dev,
        operation: value(&OPERATIONS, words.next())?,
        pattern: value(&PATTERNS, words.next())?,
        paced: false,
    };
    let name = words.next()?;
    let arm = NAMES.iter().position(|&known| known == name)?;
    words.next().is_none().then_some((key, arm))
}

impl Learned {
    /// The best of the allowed strategies by what is known, if anything is.
    fn best(&self, allowed: Allowed) -> Option<(usize, f64)> {
        (0..CHOICES.len())
            .filter(|&i| allowed[i])
            .filter_map(|i| Some((i, self.arms[i].cost()?)))
            .min_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// Returns the strategy to begin with: `prior`, the one if nothing is known, or another that is known
    /// to be cheaper by more than chance.
    fn first(&self, allowed: Allowed, prior: usize) -> usize {
        let (Some((best, cost)), Some(of_prior)) = (self.best(allowed), self.arms[prior].cost())
        else {
            return prior;
        };
        match cost < of_prior * self.margin(best, prior) {
            true => best,
            false => prior,
        }
    }

    /// What part of the cost of one strategy another's has to be to take its place.
    fn margin(&self, one: usize, other: usize) -> f64 {
        let measured_here = [one, other].iter().all(|&arm| self.arms[arm].bytes > 0);
        match measured_here {
            true => HYSTERESIS,
            false => REMEMBERED_HYSTERESIS,
        }
    }

    /// A strategy whose time for a trial has come, in a stream that has `left` bytes left.
    fn trial(&self, allowed: Allowed, current: usize, key: Key, left: u64) -> Option<usize> {
        // Without a sample of the present one there is nothing to compare with.
        let cost = self.arms[current].cost()?;
        let paced = key.paced;
        (0..CHOICES.len()).find(|&i| {
            let arm = &self.arms[i];
            let due = arm.samples.is_empty() || self.bytes >= arm.retry_at;
            if !allowed[i] || i == current || !due {
                return false;
            }
            // Copies of large calls save none of the processor's time; they overlap what is waited.
            let overlap = match (current, key.pattern) {
                (ZERO_COPY, Pattern::Large) => self.arms[current].waited,
                _ => None,
            };
            let copy = clock::copy_cost;
            // So one that costs more, its time and that of a processor, has no trial.
            let in_vain =
                |waited| waited - copy() * (1.0 + cpu_weight()) < cost * (1.0 - HYSTERESIS);
            if i == STAGED && !paced && overlap.is_some_and(in_vain) {
                return false;
            }
            let cheap = || copy() < overlap.unwrap_or(cost) * CHEAP_COPY;
            let promising = match (current, i) {
                (ZERO_COPY, STAGED) => paced || cheap(),
                (STAGED, ZERO_COPY) => !paced && !cheap(),
                _ => false,
            };
            match promising {
                true => left >= FIRST,
                false => self.bytes >= SETTLED && left >= SETTLED && (!paced || i == ZERO_COPY),
            }
        })
    }

    /// Sets when a strategy that costs `ratio` of the best is tried again.
    fn postpone(&mut self, arm: usize, ratio: f64) {
        // One sample of a young device is not much to go by: chance has a second one.
        self.arms[arm].retry_at = match self.bytes < SETTLED && ratio < HOPELESS {
            true => SETTLED,
            false => self.bytes + distance(ratio),
        };
    }

    /// What is remembered of strategies other than the best need not be tried soon.
    fn space_out(&mut self) {
        if let Some((_, best)) = self.best([true; CHOICES.len()]) {
            for arm in self.arms.iter_mut().filter(|arm| arm.measured.is_some()) {
                arm.retry_at = distance(arm.cost().unwrap_or(best) / best);
            }
        }
    }
}

/// Bytes until a strategy is tried again that costs `ratio` of the best. The worse, the rarer: one that
/// costs three times the best comes back after nine times the distance.
fn distance(ratio: f64) -> u64 {
    let ratio = ratio.clamp(1.0, 16.0);
    (RETRY as f64 * ratio * ratio) as u64
}

/// Which strategies a stream may use.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wanted {
    /// What the caller has asked for.
    Strategy(Strategy),
    /// This one of [`CHOICES`], to be measured.
    Only(usize),
}

/// What clocks say.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    time: Duration,
    /// CPU time of the system, if it could be read, and of this thread.
    cpu: Option<Duration>,
    own: Duration,
    thread: i32,
}

pub(crate) fn moment() -> Moment {
    Moment {
        time: clock::now(),
        cpu: clock::system_cpu(),
        own: clock::thread_cpu(),
        thread: sys::thread_id(),
    }
}

/// What a second of one processor's time counts, of a second that passes.
fn cpu_weight() -> f64 {
    1.0 / f64::from(sys::cpus())
}

/// What some bytes took.
pub(crate) struct Spent {
    pub time: Duration,
    /// What a byte cost, in nanoseconds.
    pub cost: f64,
    /// How long the thread waited for a byte, in nanoseconds; `None` if it is another thread by now.
    waited: Option<f64>,
}

/// What `bytes` took since `begun`.
pub(crate) fn spent(begun: Moment, bytes: u64) -> Spent {
    let now = moment();
    // The clock of another time namespace may be behind.
    let time = now.time.saturating_sub(begun.time);
    let own = (now.thread == begun.thread).then(|| now.own.saturating_sub(begun.own));
    let cpu = match (begun.cpu, now.cpu) {
        (Some(begun), Some(now)) => now.saturating_sub(begun),
        // It is the part that is known.
        _ => own.unwrap_or(Duration::ZERO),
    };
    let cpu = cpu.as_nanos() as f64 * cpu_weight();
    let bytes = bytes.max(1) as f64;
    let waited = own.map(|own| time.saturating_sub(own).as_nanos() as f64 / bytes);
    Spent {
        time,
        cost: (time.as_nanos() as f64 + cpu) / bytes,
        waited,
    }
}

/// Steers one stream.
#[derive(Debug)]
pub(crate) struct Pilot {
    key: Key,
    allowed: Allowed,
    /// Each direct write of the filesystem is expensive.
    dear_writes: bool,
    current: usize,
    /// During a trial, the strategy to go back to.
    home: Option<usize>,
    slice: Slice,
    /// It has one choice by `pdio learn`, which measures that.
    measured: bool,
    /// Bytes that the stream has moved.
    moved: u64,
    /// Bytes that are left of it, if that is known.
    remaining: Option<u64>,
    /// When the latest call ended, on the coarse clock.
    left: Option<Duration>,
    /// The last slice was so slow that the clock costs small calls little as well.
    slow: bool,
    /// Slices end, begin and are tried by chance.
    #[cfg(test)]
    whims: Option<fastrand::Rng>,
}

#[derive(Debug, Default)]
struct Slice {
    bytes: u64,
    /// Time and system CPU time at its first bytes.
    begun: Option<Moment>,
    /// What a byte costs the strategy that this one is compared with. It ends early if it is hopeless.
    rival: Option<f64>,
    /// Short, as nothing is known of such streams.
    first: bool,
    /// Time between calls, and whether that was looked at.
    idle: Duration,
    clocked: bool,
    /// Just after a change the caches and queues are still those of another strategy: no sample.
    warm_up: bool,
}

impl Pilot {
    /// `direct` and `dont_cache` say what the file allows.
    pub(crate) fn new(key: Key, wanted: Wanted, direct: bool, dont_cache: bool) -> Pilot {
        let possible = [direct, direct, dont_cache, true];
        let mut allowed = match wanted {
            Wanted::Only(arm) => std::array::from_fn(|i| i == arm && possible[i]),
            // Without a copy only with the calls for that; see `large_calls`.
            Wanted::Strategy(Strategy::Auto) => [direct, false, dont_cache, true],
            Wanted::Strategy(strategy) => {
                std::array::from_fn(|i| i != ZERO_COPY && CHOICES[i] == strategy && possible[i])
            }
        };
        // What is not possible is done through the page cache.
        allowed[BUFFERED] |= allowed == [false; CHOICES.len()];
        let mut pilot = Pilot {
            key,
            allowed,
            dear_writes: false,
            current: BUFFERED,
            home: None,
            slice: Slice::default(),
            measured: matches!(wanted, Wanted::Only(_)),
            moved: 0,
            remaining: None,
            left: None,
            slow: false,
            #[cfg(test)]
            whims: tests::WHIMS.take().map(|mut rng| {
                let own = rng.fork();
                tests::WHIMS.set(Some(rng));
                own
            }),
        };
        pilot.begin();
        pilot
    }

    /// The stream is of a filesystem whose direct writes are expensive, each of them. Counts before
    /// [`large_calls`](Pilot::large_calls).
    pub(crate) fn on_dear_writes(mut self, dear: bool) -> Pilot {
        self.dear_writes = dear && self.key.operation == Operation::Write;
        self
    }

    /// What a stream begins with if nothing is known: direct, without a copy if it writes or its calls are
    /// so large that the device idles little between them; scattered reads in the page cache, which can
    /// repay them, and writes of medium size where direct ones are dear. A paced stream must not wait for the
    /// device.
    fn prior(&self) -> usize {
        let waits = self.key.operation == Operation::Write || self.key.pattern == Pattern::Large;
        let cached = match self.key.pattern {
            Pattern::Random => true,
            Pattern::Medium => self.dear_writes && !self.key.paced,
            _ => false,
        };
        let first = if cached && self.allowed[BUFFERED] {
            BUFFERED
        } else if waits && !self.key.paced {
            ZERO_COPY
        } else {
            STAGED
        };
        match self.allowed[first] {
            true => first,
            false => self.allowed.iter().position(|&a| a).unwrap_or(BUFFERED),
        }
    }

    /// Begins with what is known of such streams. Returns true if that is anything.
    fn begin(&mut self) -> bool {
        let prior = self.prior();
        let (first, known) = with(self.key, |learned| {
            let known = learned.best(self.allowed).is_some();
            (learned.first(self.allowed, prior), known)
        });
        self.current = first;
        self.home = None;
        self.slice = Slice::default();
        #[cfg(test)]
        self.changes_by_chance();
        known
    }

    /// Tells that the stream makes aligned calls of `len`, so that copies can be done without. What
    /// suits such streams is learned apart from others; one that was told of larger calls stays
    /// with those.
    pub(crate) fn large_calls(&mut self, len: usize) {
        let pattern = match len {
            LARGE_CALL.. => Pattern::Large,
            MEDIUM_CALL.. => Pattern::Medium,
            _ => return,
        };
        let known = self.key.pattern == Pattern::Large || self.key.pattern == pattern;
        if known || self.measured || !self.allowed[STAGED] {
            return;
        }
        self.key.pattern = pattern;
        self.allowed[ZERO_COPY] = true;
        self.slice.first = !self.begin();
    }

    /// Tells how many bytes are left until the end of the file.
    pub(crate) fn remains(&mut self, bytes: u64) {
        self.remaining = Some(bytes);
    }

    /// Returns true if an aligned call of `len` should do without a copy.
    pub(crate) fn zero_copy(&self, len: usize) -> bool {
        let least = match self.key.pattern {
            Pattern::Large => LARGE_CALL,
            _ => MEDIUM_CALL,
        };
        self.current == ZERO_COPY && len >= least
    }

    pub(crate) fn strategy(&self) -> Strategy {
        CHOICES[self.current]
    }

    /// Those of reads and writes through the page cache.
    pub(crate) fn flags(&self) -> i32 {
        match self.strategy() {
            Strategy::DontCache => libc::RWF_DONTCACHE,
            _ => 0,
        }
    }

    /// The bytes of the slice so far.
    pub(crate) fn slice_bytes(&self) -> u64 {
        self.slice.bytes
    }

    /// Returns true if a slice has begun.
    pub(crate) fn has_begun(&self) -> bool {
        self.slice.begun.is_some()
    }

    #[cfg(test)]
    pub(crate) fn is_in_trial(&self) -> bool {
        self.home.is_some()
    }

    /// Ends a trial without a result. Returns true if the strategy changed.
    pub(crate) fn abandon(&mut self) -> bool {
        let Some(home) = self.home.take() else {
            return false;
        };
        self.slice.rival = None;
        let before = std::mem::replace(&mut self.current, home);
        before != home
    }

    /// Returns true if the page cache was found to be best, and not asked for.
    pub(crate) fn chose_page_cache(&self) -> bool {
        self.current == BUFFERED && (self.measured || !self.is_fixed())
    }

    /// Returns true if there is no choice.
    pub(crate) fn is_fixed(&self) -> bool {
        self.allowed.iter().filter(|&&a| a).count() == 1
    }

    /// A strategy proved impossible here. The stream goes on with another.
    pub(crate) fn forbid(&mut self, strategy: Strategy) {
        if strategy == Strategy::Buffered {
            return;
        }
        for (allowed, choice) in self.allowed.iter_mut().zip(CHOICES) {
            *allowed &= choice != strategy;
        }
        self.home = self.home.filter(|&home| self.allowed[home]);
        if !self.allowed[self.current] {
            let home = self.home.take();
            let next = home.or_else(|| self.allowed.iter().position(|&a| a));
            self.current = next.unwrap_or(BUFFERED);
            self.allowed[self.current] = true;
            self.slice = Slice::default();
        }
    }

    /// To be called as a call begins: its time is part of the slice.
    pub(crate) fn enter(&mut self) {
        let left = self.left.take();
        if self.slice.begun.is_none() {
            if !self.is_fixed() {
                self.slice.begun = Some(moment());
            }
        } else if let Some(left) = left {
            // The clock's steps are longer than most pauses, but a pause meets a step the
            // likelier the longer it is: the sum comes out right.
            self.slice.idle += clock::coarse_now().saturating_sub(left);
        }
    }

    /// Returns how much of a call of `len` bytes to carry out now: long calls make no trial longer. What
    /// is left of one is never so little that it would have to be copied.
    pub(crate) fn share(&self, len: usize) -> usize {
        if self.home.is_none() {
            return len;
        }
        let before = self.slice.bytes;
        let end = match self.takes_page_cache() && before < FIRST {
            true => FIRST,
            false => TRIAL,
        };
        // In whole steps, so that what follows is aligned as the call was.
        let part = end.saturating_sub(before).next_multiple_of(TRIAL_STEP);
        match part.max(TRIAL_STEP) {
            part if len as u64 >= part + TRIAL_STEP => part as usize,
            _ => len,
        }
    }

    /// What comes now is no sample of any strategy; the slice begins again after it.
    pub(crate) fn interrupt(&mut self) {
        self.slice.begun = None;
        self.slice.bytes = 0;
        self.slice.idle = Duration::ZERO;
    }

    /// Counts bytes. Returns true when the slice is over: then call [`next`](Pilot::next).
    pub(crate) fn count(&mut self, bytes: u64) -> bool {
        if self.is_fixed() {
            return false;
        }
        #[cfg(test)]
        if let Some(over) = self.ends_by_chance() {
            return over;
        }
        self.moved += bytes;
        let slice = &mut self.slice;
        if slice.begun.is_none() {
            // Of this call's time nothing is known.
            return false;
        }
        if bytes >= PACED_CALL || self.slow {
            self.left = Some(clock::coarse_now());
            slice.clocked = true;
        }
        let step = slice.bytes / TRIAL_STEP;
        slice.bytes += bytes;
        let slice = &self.slice;
        match (slice.rival, slice.begun) {
            (Some(_), Some(begun)) => {
                slice.bytes >= TRIAL
                    || (slice.bytes / TRIAL_STEP > step
                        && self.is_hopeless(slice, spent(begun, slice.bytes).cost))
            }
            // Pauses of which it is not clear yet what they are make it longer.
            _ if slice.first && self.current == ZERO_COPY => {
                let unclear = (PACED_SLICE / 8..PACED_SLICE).contains(&slice.idle);
                slice.bytes >= if unclear { TRIAL } else { FIRST }
            }
            _ if slice.first => slice.bytes >= TRIAL,
            _ => slice.bytes >= SLICE,
        }
    }

    /// Returns true if a slice that has cost `cost` per byte so far has cost too much to go on.
    fn is_hopeless(&self, slice: &Slice, cost: f64) -> bool {
        let bar = match self.takes_page_cache() {
            true => slice.bytes.max(FIRST),
            // To begin with, this one takes memory and starts threads.
            false => TRIAL,
        };
        let too_much = |rival: f64| cost * slice.bytes as f64 > rival * HOPELESS * bar as f64;
        slice.rival.is_some_and(too_much)
    }

    fn takes_page_cache(&self) -> bool {
        self.strategy() != Strategy::Direct
    }

    /// Returns true if these bytes bring a trial of a way through the page cache to its first look: a
    /// writer brings its data to the device first. Until then it costs nearly nothing. What is copied and
    /// written in turns costs at most twice as much as it does while both go on at once, so one that is
    /// hopeless here is not the best later.
    pub(crate) fn needs_proof(&self, bytes: u64) -> bool {
        let before = self.slice.bytes;
        self.home.is_some()
            && self.takes_page_cache()
            && (before..before + bytes).contains(&(FIRST - 1))
    }

    /// Returns true if the slice that is ending will be compared with others: the stream brings its data
    /// to the device first.
    pub(crate) fn needs_drain(&self) -> bool {
        self.home.is_some() || self.slice.first
    }

    /// Ends the slice and chooses the strategy of the next. Returns `true` if it changed.
    pub(crate) fn next(&mut self) -> bool {
        #[cfg(test)]
        if let Some(changed) = self.changes_by_chance() {
            return changed;
        }
        let slice = std::mem::take(&mut self.slice);
        let Some(begun) = slice.begun else {
            return false;
        };
        let Spent { time, cost, waited } = spent(begun, slice.bytes);
        self.slow = time.as_nanos() * u128::from(SLICE)
            >= SLOW_SLICE.as_nanos() * u128::from(slice.bytes.max(1));
        if self.slow && !slice.clocked {
            // Perhaps it is the source that is slow: the next slice will tell.
            self.slice.first = slice.first;
            return false;
        }
        let paced = time >= PACED_SLICE && slice.idle > time * 3 / 4;
        if paced != self.key.paced {
            let before = self.current;
            self.key.paced = paced;
            self.begin();
            return self.current != before;
        }
        if paced {
            let time = time.saturating_sub(slice.idle);
            let cost = time.as_nanos() as f64 / slice.bytes.max(1) as f64;
            return self.conclude(cost, slice.bytes, !slice.warm_up);
        }
        if waited.is_some() {
            with(self.key, |learned| {
                learned.arms[self.current].waited = waited
            });
        }
        let hopeless = self.is_hopeless(&slice, cost);
        self.conclude(cost, slice.bytes, !slice.warm_up || hopeless)
    }

    /// As [`next`](Pilot::next), for a slice of `bytes` at `cost` ns per byte, which says something
    /// about its strategy if it `counts`.
    fn conclude(&mut self, cost: f64, bytes: u64, counts: bool) -> bool {
        let (before, home, allowed) = (self.current, self.home.take(), self.allowed);
        let key = self.key;
        let left = self.remaining.unwrap_or(self.moved);
        let (next, trial, known) = with(self.key, |learned| {
            learned.bytes += bytes;
            if counts {
                learned.arms[before].add(cost, bytes);
            }
            let (best, best_cost) = learned.best(allowed).unwrap_or((before, cost));
            if home.is_some() {
                learned.postpone(before, cost / best_cost);
            }
            let stay = home.unwrap_or(before);
            let stay_cost = learned.arms[stay].cost().unwrap_or(f64::MAX);
            let next = if best_cost < stay_cost * learned.margin(best, stay) {
                best
            } else {
                stay
            };
            if next != stay {
                learned.postpone(stay, stay_cost / best_cost);
            }
            let trial = learned.trial(allowed, next, key, left);
            // What the coming slice must not be much worse than: what a trial goes back to.
            let rival = if trial.is_some() { next } else { stay };
            let known = learned.arms[rival].cost().unwrap_or(cost);
            (next, trial, known)
        });
        self.current = trial.unwrap_or(next);
        self.home = trial.map(|_| next);
        // One lucky sample must not commit the stream for long, either.
        let compared = !key.paced && (trial.is_some() || next != home.unwrap_or(before));
        self.slice.rival = compared.then_some(known);
        // The data was drained around a trial, so that begins clean.
        self.slice.warm_up = self.current != before && trial.is_none();
        self.current != before
    }
}

/// What is known of one strategy on one device.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct LearnedCost {
    /// Direction.
    pub operation: Operation,
    /// Pattern.
    pub pattern: Pattern,
    /// The strategy.
    pub strategy: Strategy,
    /// True if it went without a copy in memory.
    pub zero_copy: bool,
    /// Time plus system CPU time per processor, in seconds per GiB; the lower median of the
    /// latest samples.
    pub seconds_per_gib: f64,
    /// Bytes moved with this strategy in this process; zero if it has measured nothing itself.
    pub bytes: u64,
    /// Seconds since it was measured, if it is what [`learn`](crate::learn) had measured.
    pub age: Option<u64>,
}

/// What this process knows of a device.
pub(crate) fn costs(dev: u64) -> Vec<LearnedCost> {
    let table = table();
    let mut all = Vec::new();
    let of_device = |key: &Key| key.dev == dev && !key.paced;
    for (key, learned) in table.learned.iter().filter(|(key, _)| of_device(key)) {
        for (i, arm) in learned.arms.iter().enumerate() {
            if let Some(cost) = arm.cost() {
                all.push(LearnedCost {
                    operation: key.operation,
                    pattern: key.pattern,
                    strategy: CHOICES[i],
                    zero_copy: i == ZERO_COPY,
                    seconds_per_gib: cost * (1u64 << 30) as f64 / 1e9,
                    bytes: arm.bytes,
                    age: arm
                        .measured
                        .filter(|_| arm.bytes == 0)
                        .map(|when| costs::now().saturating_sub(when)),
                });
            }
        }
    }
    all.sort_by_key(|c| (c.operation as u8, c.pattern as u8));
    all
}

/// What costs are made of.
#[cfg(not(test))]
mod clock {
    pub(super) use crate::cpu::of_system as system_cpu;
    pub(super) use crate::sys::{coarse_now, now, thread_cpu};

    /// What a copy costs of data that the processor has just had, in ns per byte.
    pub(super) fn copy_cost() -> f64 {
        use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
        const LEN: usize = 64 << 10;
        // Measured once, or twice by two threads at a time; a lock could be held for ever in a
        // forked child.
        static COST: AtomicU64 = AtomicU64::new(0);
        if COST.load(Relaxed) == 0 {
            let (from, mut to) = (vec![1u8; LEN], vec![2u8; LEN]);
            let once = |_| {
                let begun = now();
                to.copy_from_slice(std::hint::black_box(&from));
                std::hint::black_box(&to);
                (now() - begun).as_nanos() as u64
            };
            // Interference only adds.
            let least = (0..3).map(once).min().unwrap_or(0);
            COST.store(least.max(1), Relaxed);
        }
        COST.load(Relaxed) as f64 / LEN as f64
    }
}

/// The same in tests: time passes when a test says so.
#[cfg(test)]
mod clock {
    use super::*;
    use std::cell::Cell;

    thread_local! {
        static NOW: Cell<Duration> = const { Cell::new(Duration::from_secs(1)) };
    }

    pub(super) fn thread_cpu() -> Duration {
        WORKED.get()
    }

    pub(super) fn now() -> Duration {
        NOW.get()
    }

    pub(super) fn coarse_now() -> Duration {
        now()
    }

    pub(super) fn system_cpu() -> Option<Duration> {
        SYSTEM.get()
    }

    thread_local! {
        pub(super) static SYSTEM: Cell<Option<Duration>> = const { Cell::new(Some(Duration::ZERO)) };
        pub(super) static WORKED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
        pub(super) static COPY: Cell<f64> = const { Cell::new(0.0) };
    }

    pub(super) fn copy_cost() -> f64 {
        COPY.get()
    }

    pub(super) fn pass(time: Duration) {
        NOW.set(now() + time);
    }

    pub(super) fn set(time: Duration) {
        NOW.set(time);
    }
}

#[cfg(test)]
impl Pilot {
    /// A writing stream that goes without a copy at 1 ns per byte, in a trial of another strategy.
    pub(crate) fn in_trial(dev: u64, arm: usize) -> Pilot {
        let key = Key {
            dev,
            operation: Operation::Write,
            pattern: Pattern::Sequential,
            paced: false,
        };
        let mut pilot = Pilot::new(key, Wanted::Strategy(Strategy::Auto), true, true);
        pilot.allowed[ZERO_COPY] = true;
        (pilot.current, pilot.home) = (arm, Some(ZERO_COPY));
        pilot.slice.rival = Some(1.0);
        pilot
    }

    /// Until the thread ends, or is told otherwise, its new streams change their strategy every few calls.
    pub(crate) fn by_chance(seed: Option<u64>) {
        tests::WHIMS.set(seed.map(fastrand::Rng::with_seed));
    }

    fn ends_by_chance(&mut self) -> Option<bool> {
        let rng = self.whims.as_mut()?;
        let over = rng.u8(..4) == 0;
        // What a writer asks before.
        self.slice.first = rng.bool();
        self.slice.bytes = *rng.choice(&[0, FIRST - 1]).unwrap();
        self.home = rng.bool().then_some(self.current);
        Some(over)
    }

    fn changes_by_chance(&mut self) -> Option<bool> {
        let rng = self.whims.as_mut()?;
        let next = *rng
            .choice(&[STAGED, ZERO_COPY, ZERO_COPY, 2, BUFFERED])
            .unwrap();
        let changed = self.allowed[next] && next != self.current;
        if changed {
            self.current = next;
        }
        Some(changed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    thread_local! {
        pub(super) static WHIMS: Cell<Option<fastrand::Rng>> = const { Cell::new(None) };
    }

    const AUTO: Wanted = Wanted::Strategy(Strategy::Auto);

    fn stream(dev: u64, operation: Operation) -> Key {
        Key {
            dev,
            operation,
            pattern: Pattern::Sequential,
            paced: false,
        }
    }

    fn compared(rival: f64, bytes: u64) -> Slice {
        Slice {
            bytes,
            rival: Some(rival),
            ..Slice::default()
        }
    }

    /// Runs a stream of `total` bytes where the strategies cost `costs`, and returns what it cost
    /// from 64 MiB on, relative to the best one throughout.
    fn regret(dev: u64, costs: [f64; 4], noise: f64, total: u64) -> f64 {
        let key = Key {
            dev,
            operation: Operation::Write,
            pattern: Pattern::Sequential,
            paced: false,
        };
        let mut pilot = Pilot::new(key, AUTO, true, true);
        let mut rng = fastrand::Rng::with_seed(dev);
        let (mut moved, mut paid, mut counted) = (0u64, 0.0, 0u64);
        while moved < total {
            let cost = costs[pilot.current] * (1.0 + noise * rng.f64());
            let mut bytes = match pilot.slice.rival {
                Some(rival) => (1..TRIAL / TRIAL_STEP)
                    .map(|steps| steps * TRIAL_STEP)
                    .find(|&bytes| pilot.is_hopeless(&compared(rival, bytes), cost))
                    .unwrap_or(TRIAL),
                None => SLICE,
            };
            bytes = bytes.min(total - moved);
            moved += bytes;
            if moved > 64 << 20 {
                paid += cost * bytes as f64;
                counted += bytes;
            }
            let counts = !pilot.slice.warm_up || pilot.slice.rival.is_some();
            pilot.slice = Slice::default();
            pilot.moved += bytes;
            pilot.conclude(cost, bytes, counts);
        }
        let best = [costs[0], costs[2], costs[3]]
            .into_iter()
            .fold(f64::MAX, f64::min);
        paid / (counted as f64 * best * (1.0 + noise / 2.0))
    }

    #[test]
    fn after_64_mib_no_fixed_choice_is_more_than_5_percent_better() {
        let mut dev = 1 << 40;
        for staged in [0.3, 1.0, 4.0, 40.0] {
            for dont_cache in [0.5, 1.0, 1.3, 10.0] {
                for buffered in [0.4, 1.0, 2.0, 30.0] {
                    for noise in [0.0, 0.1] {
                        dev += 1;
                        let regret =
                            regret(dev, [staged, 9.0, dont_cache, buffered], noise, 4 << 30);
                        assert!(
                            regret < 1.05,
                            "{regret:.3} for {staged}, {dont_cache}, {buffered}, noise {noise}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn a_change_of_the_device_is_noticed() {
        let key = stream(7 << 40, Operation::Write);
        let mut pilot = Pilot::new(key, AUTO, true, true);
        // Direct is best at first; later it becomes the worst.
        for (costs, slices, best) in [
            ([1.0, 9.0, 2.0, 2.0], 40, STAGED),
            ([8.0, 9.0, 4.0, 2.0], 400, BUFFERED),
        ] {
            for _ in 0..slices {
                let counts = !pilot.slice.warm_up;
                pilot.slice = Slice::default();
                pilot.moved += SLICE;
                pilot.conclude(costs[pilot.current], SLICE, counts);
            }
            let settled = pilot.home.unwrap_or(pilot.current);
            assert_eq!(settled, best);
        }
    }

    #[test]
    fn a_paced_stream_is_not_experimented_with() {
        for (pause, trials) in [(Duration::from_millis(15), false), (Duration::ZERO, true)] {
            let key = stream((9 << 40) + u64::from(trials), Operation::Write);
            let mut pilot = Pilot::new(key, AUTO, true, true);
            let mut tried = false;
            for _ in 0..50 {
                pilot.enter();
                clock::pass(Duration::from_millis(1));
                if pilot.count(2 << 20) {
                    pilot.next();
                }
                tried |= pilot.current != STAGED;
                clock::pass(pause);
            }
            assert_eq!(tried, trials, "pauses of {pause:?}");
        }
    }

    /// Runs 64 calls of a size, of so many milliseconds with a copy and without. Which were copied?
    fn copied(pilot: &mut Pilot, len: usize, with: u64, without: u64) -> Vec<bool> {
        let call = |_| {
            pilot.enter();
            pilot.large_calls(len);
            let copied = !pilot.zero_copy(len);
            clock::pass(Duration::from_millis(if copied { with } else { without }));
            if pilot.count(len as u64) {
                pilot.next();
            }
            copied
        };
        (0..64).map(call).collect()
    }

    /// Copies that cost as much as the device, and copies that cost nothing.
    const DEAR: f64 = 100.0;
    const CHEAP: f64 = 0.001;

    #[test]
    fn aligned_writes_of_64_kib_and_more_begin_without_a_copy() {
        clock::COPY.set(DEAR);
        for (dev, len) in [(10 << 40, 1 << 20), (11 << 40, 64 << 10)] {
            let mut pilot = Pilot::new(stream(dev, Operation::Write), AUTO, true, false);
            // 64 MiB, in which nothing is tried.
            let calls: usize = (64 << 20) / len;
            let copied: Vec<bool> = (0..calls.div_ceil(64))
                .flat_map(|_| copied(&mut pilot, len, 8, 1))
                .collect();
            assert!(!copied.contains(&true), "{len}");
        }
        let mut pilot = Pilot::new(stream(10 << 40, Operation::Write), AUTO, true, false);
        pilot.large_calls(64 << 10);
        assert!(pilot.zero_copy(64 << 10), "smaller ones begin anew");
    }

    #[test]
    fn writes_of_medium_size_begin_in_the_page_cache_where_direct_ones_are_dear() {
        for (dev, operation, len, first) in [
            (13 << 40, Operation::Write, 64 << 10, Strategy::Buffered),
            (14 << 40, Operation::Write, 256 << 10, Strategy::Direct),
            (15 << 40, Operation::Write, 4 << 10, Strategy::Direct),
            (16 << 40, Operation::Read, 64 << 10, Strategy::Direct),
        ] {
            let pilot = Pilot::new(stream(dev, operation), AUTO, true, false);
            let mut pilot = pilot.on_dear_writes(true);
            pilot.large_calls(len);
            assert_eq!(pilot.strategy(), first, "{operation:?} {len}");
        }
        // What was measured counts more.
        let key = Key {
            pattern: Pattern::Medium,
            ..stream(17 << 40, Operation::Write)
        };
        with(key, |learned| {
            learned.arms[STAGED].remember(1.0, 0);
            learned.arms[BUFFERED].remember(2.0, 0);
        });
        let pilot = Pilot::new(stream(17 << 40, Operation::Write), AUTO, true, false);
        let mut pilot = pilot.on_dear_writes(true);
        pilot.large_calls(64 << 10);
        assert_eq!(pilot.current, STAGED);
    }

    #[test]
    fn where_copies_are_cheap_writes_wait_for_2_mib_at_most() {
        clock::COPY.set(CHEAP);
        let mut pilot = Pilot::new(stream(12 << 40, Operation::Write), AUTO, true, false);
        let copied = copied(&mut pilot, 1 << 20, 1, 4);
        // One call more, as the first one's begin is not known.
        let first = copied.iter().position(|&copied| copied);
        assert_eq!(first, Some((FIRST >> 20) as usize + 1));
        assert!(copied[4..].iter().all(|&copied| copied));
        assert!(!pilot.zero_copy(1 << 20));
    }

    #[test]
    fn copies_of_large_calls_overlap_only_what_is_waited() {
        let call = Duration::from_millis(4);
        for (dev, len, worked, tried) in [
            (33 << 40, 1 << 20, call / 4, true),
            (34 << 40, 1 << 20, call * 3 / 4, false),
            // Of smaller ones they also save calls.
            (35 << 40, 64 << 10, call * 3 / 4, true),
        ] {
            clock::COPY.set(call.as_nanos() as f64 / len as f64 * CHEAP_COPY / 2.0);
            let mut pilot = Pilot::new(stream(dev, Operation::Write), AUTO, true, false);
            for _ in 0..64 {
                pilot.enter();
                pilot.large_calls(len);
                clock::pass(call);
                clock::WORKED.set(clock::WORKED.get() + worked);
                if pilot.count(len as u64) {
                    pilot.next();
                    break;
                }
            }
            assert_eq!(pilot.home.is_some(), tried, "{worked:?} of {call:?}");
        }
    }

    #[test]
    fn a_copy_that_costs_more_than_it_can_save_has_no_trial() {
        const LEN: usize = 1 << 20;
        let call = Duration::from_millis(4);
        let waited = call / 4;
        for (dev, part, tried) in [
            (39 << 40, 0.25, true),
            (40 << 40, 0.9, false),
            (41 << 40, 1.5, false),
        ] {
            clock::COPY.set(waited.as_nanos() as f64 / LEN as f64 * part);
            let mut pilot = Pilot::new(stream(dev, Operation::Write), AUTO, true, false);
            let mut staged = false;
            for _ in 0..4 * SETTLED as usize / LEN {
                pilot.enter();
                pilot.large_calls(LEN);
                clock::pass(call);
                clock::WORKED.set(clock::WORKED.get() + call - waited);
                if pilot.count(LEN as u64) {
                    pilot.next();
                }
                staged |= pilot.current == STAGED;
            }
            assert_eq!(staged, tried, "a copy of {part} of what is waited");
        }
    }

    #[test]
    fn reads_begin_with_read_ahead_and_go_without_a_copy_where_that_is_dear() {
        const CALL: usize = 64 << 10;
        for (dev, cost, tried) in [(18 << 40, DEAR, true), (19 << 40, CHEAP, false)] {
            clock::COPY.set(cost);
            let mut pilot = Pilot::new(stream(dev, Operation::Read), AUTO, true, false);
            let copied = [(); 3].map(|()| copied(&mut pilot, CALL, 4, 1)).concat();
            // One call more, as the first one's begin is not known.
            let first = copied.iter().position(|&copied| !copied);
            let after = tried.then_some(TRIAL as usize / CALL + 1);
            assert_eq!(first, after, "a copy costs {cost} ns per byte");
        }
    }

    #[test]
    fn reads_of_256_kib_and_more_begin_without_a_copy_and_read_ahead_where_that_is_cheap() {
        for (dev, cost) in [(27 << 40, DEAR), (28 << 40, CHEAP)] {
            clock::COPY.set(cost);
            let mut pilot = Pilot::new(stream(dev, Operation::Read), AUTO, true, false);
            let copied = copied(&mut pilot, 1 << 20, 1, 4);
            let first = copied.iter().position(|&copied| copied);
            let after = (cost == CHEAP).then_some((FIRST >> 20) as usize + 1);
            assert_eq!(first, after, "a copy costs {cost} ns per byte");
        }
    }

    #[test]
    fn a_stream_that_moves_to_another_thread_does_not_compare_their_clocks() {
        // What this thread has used, and another one.
        for (here, there) in [(0, 1000), (1000, 0)] {
            clock::WORKED.set(Duration::from_millis(here));
            let begun = moment();
            let elsewhere = move || {
                clock::WORKED.set(Duration::from_millis(there));
                clock::pass(Duration::from_millis(8));
                spent(begun, 1).waited
            };
            let waited = std::thread::spawn(elsewhere).join().unwrap();
            assert_eq!(waited, None, "{here} and {there} ms");
        }
    }

    #[test]
    fn where_the_systems_time_cannot_be_read_the_threads_own_counts() {
        const MS: Duration = Duration::from_millis(1);
        let known = Some(100_000 * MS);
        for (first, last) in [(None, known), (known, None), (None, None)] {
            clock::SYSTEM.set(first);
            let begun = moment();
            clock::SYSTEM.set(last);
            clock::pass(3 * MS);
            clock::WORKED.set(clock::WORKED.get() + 2 * MS);
            let expected = 3e6 + 2e6 / f64::from(sys::cpus());
            assert_eq!(spent(begun, 1).cost, expected, "{first:?} to {last:?}");
        }
    }

    #[test]
    fn a_clock_that_was_set_back_ends_no_stream() {
        let mut pilot = Pilot::new(stream(36 << 40, Operation::Read), AUTO, true, true);
        clock::pass(Duration::from_secs(1000));
        pilot.enter();
        // As in a new time namespace.
        clock::set(Duration::from_secs(1));
        assert!(pilot.count(SLICE));
        pilot.next();
    }

    #[test]
    fn a_trial_does_not_go_back_to_what_proves_impossible_meanwhile() {
        let mut pilot = Pilot::in_trial(37 << 40, BUFFERED);
        with(pilot.key, |learned| learned.arms[ZERO_COPY].add(1.0, SLICE));
        pilot.forbid(Strategy::Direct);
        assert!(!pilot.needs_proof(FIRST), "the trial is over");
        pilot.conclude(1.0, TRIAL, true);
        assert_eq!(pilot.strategy(), Strategy::Buffered);
    }

    #[test]
    fn a_trial_that_proves_impossible_goes_back_to_where_it_came_from() {
        let mut pilot = Pilot::in_trial(29 << 40, 2);
        pilot.forbid(Strategy::DontCache);
        assert_eq!((pilot.current, pilot.home), (ZERO_COPY, None));
        // Not where that has gone with it.
        let mut pilot = Pilot::in_trial(30 << 40, BUFFERED);
        pilot.forbid(Strategy::Direct);
        assert_eq!(pilot.current, BUFFERED);
        let mut pilot = Pilot::in_trial(31 << 40, STAGED);
        pilot.forbid(Strategy::Direct);
        assert_eq!(pilot.strategy(), Strategy::DontCache);
    }

    #[test]
    fn a_hopeless_trial_through_the_page_cache_ends_at_its_first_look() {
        const CALL: u64 = 1 << 20;
        // What a byte costs, and how much is tried of it.
        for (arm, cost, ends) in [
            (BUFFERED, 2.1, FIRST),
            (BUFFERED, 1.9, TRIAL),
            // It takes memory and threads first, and is ended when that much time is gone.
            (STAGED, 2.1, TRIAL),
            (STAGED, 4.1, TRIAL / 2),
        ] {
            let mut pilot = Pilot::in_trial(32 << 40, arm);
            let (mut moved, mut proofs) = (0, 0);
            loop {
                pilot.enter();
                moved += CALL;
                clock::pass(Duration::from_nanos((CALL as f64 * cost) as u64));
                if pilot.needs_proof(CALL) {
                    proofs += 1;
                    assert_eq!(moved, FIRST);
                }
                if pilot.count(CALL) {
                    break;
                }
            }
            assert_eq!(moved, ends, "{cost} by {}", NAMES[arm]);
            assert_eq!(proofs, u32::from(arm == BUFFERED));
        }
    }

    #[test]
    fn a_trial_is_no_longer_where_calls_are_long() {
        // What a byte costs, and the parts of calls of 16 MiB, or little more than a trial has left.
        for (arm, cost, call, parts) in [
            (BUFFERED, 2.1, 16 << 20, &[FIRST][..]),
            (BUFFERED, 1.9, 16 << 20, &[FIRST, TRIAL - FIRST]),
            (STAGED, 1.9, 16 << 20, &[TRIAL]),
            (BUFFERED, 2.1, FIRST + 4096, &[FIRST + 4096]),
        ] {
            let mut pilot = Pilot::in_trial(38 << 40, arm);
            let mut got = Vec::new();
            loop {
                pilot.enter();
                let left = call - got.iter().sum::<u64>();
                let part = pilot.share(left as usize) as u64;
                got.push(part);
                clock::pass(Duration::from_nanos((part as f64 * cost) as u64));
                if pilot.count(part) {
                    pilot.next();
                    break;
                }
            }
            assert_eq!(got, parts, "{cost} by {}", NAMES[arm]);
            assert_eq!(pilot.share(16 << 20), 16 << 20, "the trial is over");
        }
    }

    #[test]
    fn a_paced_stream_does_not_wait_for_the_device() {
        clock::COPY.set(DEAR);
        let mut pilot = Pilot::new(stream(20 << 40, Operation::Write), AUTO, true, false);
        for frame in 0..32 {
            pilot.enter();
            pilot.large_calls(1 << 20);
            assert!(frame < 4 || !pilot.zero_copy(1 << 20), "frame {frame}");
            clock::pass(Duration::from_millis(1));
            if pilot.count(1 << 20) {
                pilot.next();
            }
            clock::pass(Duration::from_millis(40));
        }
    }

    #[test]
    fn a_stream_that_ends_soon_has_no_trial() {
        let trials = |dev: u64, left: Option<u64>| {
            let mut pilot = Pilot::new(stream(dev, Operation::Read), AUTO, true, true);
            let mut tried = 0;
            for _ in 0..8 {
                pilot.slice = Slice::default();
                pilot.moved += SLICE;
                if let Some(left) = left {
                    pilot.remains(left);
                }
                pilot.conclude(1.0, SLICE, true);
                tried += u32::from(pilot.home.is_some());
            }
            tried
        };
        assert!(trials(13 << 40, None) > 0);
        assert!(trials(14 << 40, Some(SETTLED)) > 0);
        assert_eq!(trials(15 << 40, Some(SETTLED - 1)), 0);
        // A new stream on a device that is well known, but not yet long itself.
        let mut pilot = Pilot::new(stream(13 << 40, Operation::Write), AUTO, true, true);
        with(pilot.key, |learned| learned.bytes = 1 << 40);
        pilot.moved = SETTLED - 1;
        pilot.conclude(1.0, SLICE, true);
        assert!(pilot.home.is_none());
        pilot.moved = SETTLED;
        pilot.conclude(1.0, SLICE, true);
        assert!(pilot.home.is_some());
    }

    fn remembered(arms: &[(usize, f64)]) -> Vec<Line> {
        let line = |&(arm, cost)| Line {
            filesystem: String::new(),
            what: words(Operation::Write, Pattern::Sequential, arm),
            cost,
            when: costs::now() - 60,
        };
        arms.iter().map(line).collect()
    }

    #[test]
    fn a_stream_of_packets_is_paced_as_well() {
        let key = stream(29 << 40, Operation::Write);
        let mut pilot = Pilot::new(key, AUTO, true, true);
        let mut tried = false;
        for _ in 0..(200 << 20) / 1316 {
            pilot.enter();
            clock::pass(Duration::from_micros(2));
            if pilot.count(1316) {
                pilot.next();
            }
            tried |= pilot.current != STAGED;
            clock::pass(Duration::from_micros(60));
        }
        assert!(!tried && pilot.key.paced);
    }

    #[test]
    fn what_another_process_measured_is_left_by_the_same_margin_later() {
        let dev = 30 << 40;
        recall(dev, &remembered(&[(STAGED, 1.0), (BUFFERED, 0.85)]));
        let mut pilot = Pilot::new(stream(dev, Operation::Write), AUTO, true, true);
        pilot.conclude(1.0, SLICE, true);
        assert_eq!(pilot.current, STAGED);
    }

    #[test]
    fn what_is_remembered_decides_what_a_stream_begins_with() {
        for (dev, arms, first) in [
            (21 << 40, &[(STAGED, 3.0), (BUFFERED, 1.0)][..], BUFFERED),
            (22 << 40, &[(STAGED, 1.0), (BUFFERED, 3.0)], STAGED),
            // Within what chance does; and with nothing to compare with.
            (23 << 40, &[(STAGED, 1.0), (BUFFERED, 0.85)], STAGED),
            (24 << 40, &[(BUFFERED, 0.1)], STAGED),
        ] {
            recall(dev, &remembered(arms));
            let pilot = Pilot::new(stream(dev, Operation::Write), AUTO, true, true);
            assert_eq!(pilot.current, first, "{arms:?}");
            let known = costs(dev);
            assert_eq!(known.len(), arms.len());
            let old = |cost: &LearnedCost| cost.age.is_some_and(|age| age >= 60);
            assert!(known.iter().all(old), "{known:?}");
        }
    }

    #[test]
    fn one_sample_does_not_outweigh_what_is_remembered_and_three_do() {
        for (dev, outlier) in [(25 << 40, 10.0), (26 << 40, 0.1)] {
            recall(dev, &remembered(&[(STAGED, 1.0), (BUFFERED, 2.0)]));
            let mut pilot = Pilot::new(stream(dev, Operation::Write), AUTO, true, true);
            pilot.conclude(outlier, SLICE, true);
            assert_eq!(with(pilot.key, |l| l.arms[STAGED].cost()), Some(1.0));
            assert_eq!(pilot.current, STAGED);
            // Nor does one of a strategy that was not chosen.
            with(pilot.key, |l| l.arms[BUFFERED].add(outlier, SLICE));
            let next = Pilot::new(pilot.key, AUTO, true, true);
            assert_eq!(next.current, STAGED);
        }
        let mut pilot = Pilot::new(stream(25 << 40, Operation::Write), AUTO, true, true);
        pilot.conclude(10.0, SLICE, true);
        pilot.conclude(10.0, SLICE, true);
        assert_eq!(pilot.current, BUFFERED);
    }

    #[test]
    fn every_choice_can_be_remembered() {
        for (operation, _) in OPERATIONS {
            for (pattern, _) in PATTERNS {
                for arm in 0..CHOICES.len() {
                    let key = Key {
                        dev: 5,
                        operation,
                        pattern,
                        paced: false,
                    };
                    let words = words(operation, pattern, arm);
                    assert_eq!(parse(5, &words), Some((key, arm)));
                }
            }
        }
        assert_eq!(parse(5, "write large"), None);
        assert_eq!(parse(5, "write large direct too"), None);
    }

    #[test]
    fn what_the_caller_fixed_stays_fixed() {
        for (wanted, direct, dont_cache, expected) in [
            (Strategy::Direct, true, true, Strategy::Direct),
            (Strategy::Direct, false, true, Strategy::Buffered),
            (Strategy::DontCache, true, true, Strategy::DontCache),
            (Strategy::DontCache, true, false, Strategy::Buffered),
            (Strategy::Buffered, true, true, Strategy::Buffered),
            (Strategy::Auto, false, false, Strategy::Buffered),
        ] {
            let key = stream(8 << 40, Operation::Read);
            let mut pilot = Pilot::new(key, Wanted::Strategy(wanted), direct, dont_cache);
            assert_eq!(pilot.strategy(), expected);
            assert!(pilot.is_fixed() && !pilot.count(1 << 30));
        }
    }
}
