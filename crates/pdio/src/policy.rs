// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which strategy is cheapest, learned per device, direction and pattern.
//!
//! The cost of a byte is the time it took plus the CPU time the *whole system* spent, divided by
//! the number of processors: the page cache's work is largely done by kernel threads, on other
//! processors, which the caller's own times do not show. Streams are cut into slices; each slice
//! is one sample of its strategy. Each other strategy gets one short trial once the device is known,
//! and later ones every 512 MiB or more rarely, the more rarely the more it costs. After the
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

use std::time::Duration;

use crate::learned::{
    with, Allowed, Key, Operation, Pattern, BUFFERED, CHOICES, FIRST, HOPELESS, STAGED, ZERO_COPY,
};
use crate::options::Strategy;
use crate::spent::{clock, moment, spent, Moment, Spent};

/// Length of an ordinary slice, in bytes.
const SLICE: u64 = 16 << 20;
/// Length of a trial slice, in bytes, and how often it is looked at, to end one early that already cost
/// [`HOPELESS`] times as much as the present strategy.
const TRIAL: u64 = 8 << 20;
const TRIAL_STEP: u64 = 1 << 20;

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

/// Which strategies a stream may use.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wanted {
    /// What the caller has asked for.
    Strategy(Strategy),
    /// This one of [`CHOICES`], to be measured.
    Only(usize),
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

    use crate::costs::{self, Line};
    use crate::learned::{self, recall, words, LearnedCost, CHEAP_COPY, NAMES, SETTLED};

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
            let known = learned::costs(dev);
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
