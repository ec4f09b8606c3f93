// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which strategy is cheapest, learned per device, direction and pattern.
//!
//! The cost of a byte is the time it took plus the CPU time the *whole system* spent, divided by
//! the number of processors: the page cache's work is largely done by kernel threads, on other
//! processors, which the caller's own times do not show. Streams are cut into slices; each slice
//! is one sample of its strategy. A strategy is tried once for a short slice when the device is
//! no longer new, then every [`RETRY`] bytes or rarer, the rarer the worse it was, so that after
//! the first 64 MiB what trials cost stays below 2 %.
//!
//! A stream that waits for its source or its clock three quarters of the time is paced. It gains
//! nothing from the page cache and misses its next frame by a trial of it. Such streams are learned
//! apart, by the time in their calls, and only try to do without a copy.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::{sys, Strategy};

/// Length of an ordinary slice, in bytes.
const SLICE: u64 = 16 << 20;
/// Bytes a device must have seen before other strategies are tried: short programs gain nothing
/// from a trial. Doing without a copy costs too little to wait with, and gains most where a copy
/// costs most: that comes right after a first short slice.
const SETTLED: u64 = 32 << 20;
/// Length of a trial slice, in bytes, and how often the clock is looked at, to end one early that
/// already took [`HOPELESS`] times as long as the best strategy.
const TRIAL: u64 = 8 << 20;
const TRIAL_STEP: u64 = 1 << 20;
const HOPELESS: f64 = 2.0;
/// Bytes between trials of a strategy that was close to the best.
const RETRY: u64 = 512 << 20;
/// Samples kept of each strategy; their median counts.
const SAMPLES: usize = 5;
/// A strategy replaces the present one if it costs less than this part of it.
const HYSTERESIS: f64 = 0.92;

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
    /// As sequential, with calls of 1 MiB and more on aligned memory.
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
const CHOICES: [Strategy; 4] = [
    Strategy::Direct,
    Strategy::Direct,
    Strategy::DontCache,
    Strategy::Buffered,
];
const STAGED: usize = 0;
const ZERO_COPY: usize = 1;
const BUFFERED: usize = 3;

type Allowed = [bool; CHOICES.len()];

/// Calls from this size on may try to do without a copy. Whether that pays differs much between
/// calls of this size and those of [`LARGE_CALL`], so it is learned apart.
pub(crate) const MEDIUM_CALL: usize = 64 << 10;
const LARGE_CALL: usize = 1 << 20;

/// Pauses are measured between calls of at least this size: two looks at a clock would slow
/// smaller ones down.
const PACED_CALL: u64 = 4 << 10;
/// Shorter slices are too few steps of that clock to tell.
const PACED_SLICE: Duration = Duration::from_millis(64);

/// What one strategy was seen to cost.
#[derive(Clone, Debug, Default)]
struct Arm {
    /// The latest samples, in ns per byte.
    samples: Vec<f64>,
    taken: usize,
    bytes: u64,
    /// The device's byte count at which to try again.
    retry_at: u64,
}

impl Arm {
    fn cost(&self) -> Option<f64> {
        let mut sorted = self.samples.clone();
        sorted.sort_by(f64::total_cmp);
        // The lower median: interference only ever adds.
        sorted.get(sorted.len().checked_sub(1)? / 2).copied()
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

/// What a process has learned, by device, direction and pattern.
pub(crate) type Table = Mutex<HashMap<Key, Learned>>;

fn table() -> MutexGuard<'static, HashMap<Key, Learned>> {
    crate::registry::learned()
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
}

fn with<T>(key: Key, action: impl FnOnce(&mut Learned) -> T) -> T {
    action(table().entry(key).or_default())
}

impl Learned {
    /// The best of the allowed strategies by what is known, if anything is.
    fn best(&self, allowed: Allowed) -> Option<(usize, f64)> {
        (0..CHOICES.len())
            .filter(|&i| allowed[i])
            .filter_map(|i| Some((i, self.arms[i].cost()?)))
            .min_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// A strategy whose time for a trial has come.
    fn trial(&self, allowed: Allowed, current: usize, paced: bool) -> Option<usize> {
        // Without a sample of the present one there is nothing to compare with.
        self.arms[current].cost()?;
        (0..CHOICES.len()).find(|&i| {
            let arm = &self.arms[i];
            let settled = i == ZERO_COPY || (self.bytes >= SETTLED && !paced);
            let due = arm.samples.is_empty() || self.bytes >= arm.retry_at;
            allowed[i] && i != current && settled && due
        })
    }
}

/// Steers one stream.
#[derive(Debug)]
pub(crate) struct Pilot {
    key: Key,
    allowed: Allowed,
    current: usize,
    /// During a trial, the strategy to go back to.
    home: Option<usize>,
    slice: Slice,
    /// When the latest call ended, on the coarse clock.
    left: Option<Duration>,
}

#[derive(Debug, Default)]
struct Slice {
    bytes: u64,
    /// Time and system CPU time at its first bytes.
    begun: Option<(Duration, Duration)>,
    /// A trial ends early after this long.
    limit: Option<Duration>,
    /// As short as a trial, which follows.
    first: bool,
    /// Time between calls.
    idle: Duration,
    /// Just after a change the caches and queues are still those of another strategy: no sample.
    warm_up: bool,
}

impl Pilot {
    /// `direct` and `dont_cache` say what the file allows. Sequential streams begin with the first
    /// of the choices, random ones in the page cache, which can repay them.
    pub(crate) fn new(key: Key, wanted: Strategy, direct: bool, dont_cache: bool) -> Pilot {
        let auto = wanted == Strategy::Auto;
        let mut allowed = [
            direct && (auto || wanted == Strategy::Direct),
            false,
            dont_cache && (auto || wanted == Strategy::DontCache),
            auto || wanted == Strategy::Buffered,
        ];
        // What is not possible is done through the page cache.
        allowed[BUFFERED] |= allowed == [false; CHOICES.len()];
        let mut pilot = Pilot {
            key,
            allowed,
            current: match key.pattern {
                Pattern::Random if auto => BUFFERED,
                _ => allowed.iter().position(|&a| a).unwrap_or(BUFFERED),
            },
            home: None,
            slice: Slice::default(),
            left: None,
        };
        pilot.begin();
        pilot
    }

    /// Begins with the best known.
    fn begin(&mut self) {
        let known = with(self.key, |learned| learned.best(self.allowed));
        if let Some((best, _)) = known {
            self.current = best;
        }
        self.home = None;
        self.slice = Slice::default();
    }

    /// Tells that the stream makes aligned calls of `len`, so that copies can be done without. What
    /// suits such streams is learned apart from others; one that was told of larger calls stays
    /// with those. They begin with a copy: the device then works between calls, and on memory of
    /// few segments.
    pub(crate) fn large_calls(&mut self, len: usize) {
        let pattern = match len {
            LARGE_CALL.. => Pattern::Large,
            MEDIUM_CALL.. => Pattern::Medium,
            _ => return,
        };
        let known = self.key.pattern == Pattern::Large || self.key.pattern == pattern;
        if known || !self.allowed[STAGED] {
            return;
        }
        self.key.pattern = pattern;
        self.allowed[ZERO_COPY] = true;
        self.begin();
        self.slice.first = with(self.key, |learned| {
            learned.arms.iter().all(|arm| arm.samples.is_empty())
        });
    }

    /// Whether an aligned call of `len` should do without a copy.
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

    /// Whether there is no choice.
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
        if !self.allowed[self.current] {
            let next = self.allowed.iter().position(|&a| a).unwrap_or(BUFFERED);
            self.allowed[next] = true;
            self.current = next;
            self.home = None;
            self.slice = Slice::default();
        }
    }

    /// To be called as a call begins: its time is part of the slice.
    pub(crate) fn enter(&mut self) {
        let left = self.left.take();
        if self.slice.begun.is_none() {
            if !self.is_fixed() {
                self.slice.begun = Some((clock::now(), clock::system_cpu()));
            }
        } else if let Some(left) = left {
            // The clock's steps are longer than most pauses, but a pause meets a step the
            // likelier the longer it is: the sum comes out right.
            self.slice.idle += clock::coarse_now().saturating_sub(left);
        }
    }

    /// What comes now is no sample of any strategy; the slice begins again after it.
    pub(crate) fn interrupt(&mut self) {
        self.slice.begun = None;
        self.slice.bytes = 0;
        self.slice.idle = Duration::ZERO;
    }

    /// Counts bytes. `true` when the slice is over and [`next`](Pilot::next) wants to be called.
    pub(crate) fn count(&mut self, bytes: u64) -> bool {
        if self.is_fixed() {
            return false;
        }
        let slice = &mut self.slice;
        if slice.begun.is_none() {
            // Of this call's time nothing is known.
            return false;
        }
        if bytes >= PACED_CALL {
            self.left = Some(clock::coarse_now());
        }
        let step = slice.bytes / TRIAL_STEP;
        slice.bytes += bytes;
        match (slice.limit, slice.begun) {
            (Some(limit), Some((begun, _))) => {
                slice.bytes >= TRIAL
                    || (slice.bytes / TRIAL_STEP > step && clock::now() - begun > limit)
            }
            _ if slice.first => slice.bytes >= TRIAL,
            _ => slice.bytes >= SLICE,
        }
    }

    /// Whether the slice now ending is to be compared with others, so that the stream should bring
    /// its data to the device first.
    pub(crate) fn needs_drain(&self) -> bool {
        self.home.is_some() || self.slice.first
    }

    /// Ends the slice and chooses the strategy of the next. Returns `true` if it changed.
    pub(crate) fn next(&mut self) -> bool {
        let slice = std::mem::take(&mut self.slice);
        let Some((begun, cpu_begun)) = slice.begun else {
            return false;
        };
        let time = clock::now() - begun;
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
        let cpu = clock::system_cpu().saturating_sub(cpu_begun).as_nanos() as f64
            / f64::from(sys::cpus());
        let cost = (time.as_nanos() as f64 + cpu) / slice.bytes.max(1) as f64;
        let hopeless = slice.limit.is_some_and(|limit| time > limit);
        self.conclude(cost, slice.bytes, !slice.warm_up || hopeless)
    }

    /// As [`next`](Pilot::next), for a slice of `bytes` at `cost` ns per byte, which says something
    /// about its strategy if it `counts`.
    fn conclude(&mut self, cost: f64, bytes: u64, counts: bool) -> bool {
        let (before, home, allowed) = (self.current, self.home.take(), self.allowed);
        let paced = self.key.paced;
        let (next, trial, known) = with(self.key, |learned| {
            learned.bytes += bytes;
            if counts {
                learned.arms[before].add(cost, bytes);
            }
            let (best, best_cost) = learned.best(allowed).unwrap_or((before, cost));
            if home.is_some() {
                // The worse, the rarer: a trial that costs three times the best comes back after
                // nine times the distance.
                let ratio = (cost / best_cost).clamp(1.0, 16.0);
                let distance = (RETRY as f64 * ratio * ratio) as u64;
                // One sample of a young device is not much to go by: chance has a second one.
                learned.arms[before].retry_at = match learned.bytes < SETTLED {
                    true => SETTLED,
                    false => learned.bytes + distance,
                };
            }
            let stay = home.unwrap_or(before);
            let stay_cost = learned.arms[stay].cost().unwrap_or(f64::MAX);
            let next = if best_cost < stay_cost * HYSTERESIS {
                best
            } else {
                stay
            };
            let known = learned.arms[stay].cost().unwrap_or(cost);
            (next, learned.trial(allowed, next, paced), known)
        });
        self.current = trial.unwrap_or(next);
        self.home = trial.map(|_| next);
        // One lucky sample must not commit the stream for long, either.
        self.slice.limit = (!paced && (trial.is_some() || next != home.unwrap_or(before)))
            .then(|| Duration::from_nanos((known * HOPELESS * TRIAL as f64) as u64));
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
    /// Whether it went without a copy in memory.
    pub zero_copy: bool,
    /// Time plus system CPU time per processor, in seconds per GiB; the lower median of the
    /// latest samples.
    pub seconds_per_gib: f64,
    /// Bytes moved with this strategy in this process.
    pub bytes: u64,
}

/// What this process has learned of a device.
pub(crate) fn costs(dev: u64) -> Vec<LearnedCost> {
    let table = table();
    let mut all = Vec::new();
    let of_device = |key: &Key| key.dev == dev && !key.paced;
    for (key, learned) in table.iter().filter(|(key, _)| of_device(key)) {
        for (i, arm) in learned.arms.iter().enumerate() {
            if let Some(cost) = arm.cost() {
                all.push(LearnedCost {
                    operation: key.operation,
                    pattern: key.pattern,
                    strategy: CHOICES[i],
                    zero_copy: i == ZERO_COPY,
                    seconds_per_gib: cost * (1u64 << 30) as f64 / 1e9,
                    bytes: arm.bytes,
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
    use super::*;
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::sync::OnceLock;

    pub(super) use sys::{coarse_now, now};

    /// CPU time all tasks of the system have used, from the finest source that can be read:
    /// the scheduler's statistics, the root of the cpuacct hierarchy, else the clock ticks in
    /// `/proc/stat`.
    pub(super) fn system_cpu() -> Duration {
        type Parse = fn(&str) -> Option<u64>;
        /// Opened for each reading: a descriptor that stayed open would be one that the program could
        /// not have.
        struct Source {
            path: &'static str,
            parse: Parse,
        }
        fn schedstat(text: &str) -> Option<u64> {
            let cpus = text.lines().filter(|l| l.starts_with("cpu"));
            let sum: u64 = cpus
                .filter_map(|l| l.split_whitespace().nth(7)?.parse::<u64>().ok())
                .sum();
            (sum > 0).then_some(sum)
        }
        fn nanoseconds(text: &str) -> Option<u64> {
            text.trim().parse().ok()
        }
        fn ticks(text: &str) -> Option<u64> {
            let fields = text.lines().next()?.strip_prefix("cpu ")?;
            let values: Vec<u64> = fields
                .split_whitespace()
                .filter_map(|v| v.parse().ok())
                .collect();
            // user nice system idle iowait irq softirq steal: all but idle, iowait and steal.
            let busy: u64 = [0, 1, 2, 5, 6].iter().filter_map(|&i| values.get(i)).sum();
            // SAFETY: no memory is involved.
            let hz = (unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).max(1) as u64;
            Some(busy * (1_000_000_000 / hz))
        }
        fn read(source: &Source) -> Option<u64> {
            let mut text = [0u8; 16 << 10];
            let file = File::open(source.path).ok()?;
            let n = sys::pread(file.as_fd(), &mut text, 0, 0).ok()?;
            (source.parse)(&String::from_utf8_lossy(&text[..n]))
        }
        static SOURCE: OnceLock<Option<Source>> = OnceLock::new();
        let source = SOURCE.get_or_init(|| {
            let all: [(&'static str, Parse); 3] = [
                ("/proc/schedstat", schedstat),
                ("/sys/fs/cgroup/cpuacct/cpuacct.usage", nanoseconds),
                ("/proc/stat", ticks),
            ];
            all.into_iter().find_map(|(path, parse)| {
                let source = Source { path, parse };
                read(&source).is_some().then_some(source)
            })
        });
        Duration::from_nanos(source.as_ref().and_then(read).unwrap_or(0))
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

    pub(super) fn now() -> Duration {
        NOW.get()
    }

    pub(super) fn coarse_now() -> Duration {
        now()
    }

    pub(super) fn system_cpu() -> Duration {
        Duration::ZERO
    }

    pub(super) fn pass(time: Duration) {
        NOW.set(now() + time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(dev: u64, operation: Operation) -> Key {
        Key {
            dev,
            operation,
            pattern: Pattern::Sequential,
            paced: false,
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
        let mut pilot = Pilot::new(key, Strategy::Auto, true, true);
        let mut rng = fastrand::Rng::with_seed(dev);
        let (mut moved, mut paid, mut counted) = (0u64, 0.0, 0u64);
        while moved < total {
            let cost = costs[pilot.current] * (1.0 + noise * rng.f64());
            let mut bytes = match pilot.slice.limit {
                Some(limit) => {
                    let limit = (limit.as_nanos() as f64 / cost) as u64;
                    TRIAL.min(limit.next_multiple_of(TRIAL_STEP).max(TRIAL_STEP))
                }
                None => SLICE,
            };
            bytes = bytes.min(total - moved);
            moved += bytes;
            if moved > 64 << 20 {
                paid += cost * bytes as f64;
                counted += bytes;
            }
            let counts = !pilot.slice.warm_up || pilot.slice.limit.is_some();
            pilot.slice = Slice::default();
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
        let mut pilot = Pilot::new(key, Strategy::Auto, true, true);
        // Direct is best at first; later it becomes the worst.
        for (costs, slices, best) in [
            ([1.0, 9.0, 2.0, 2.0], 40, STAGED),
            ([8.0, 9.0, 4.0, 2.0], 400, BUFFERED),
        ] {
            for _ in 0..slices {
                let counts = !pilot.slice.warm_up;
                pilot.slice = Slice::default();
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
            let mut pilot = Pilot::new(key, Strategy::Auto, true, true);
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

    #[test]
    fn large_calls_may_do_without_a_copy_after_16_mib() {
        let key = stream(10 << 40, Operation::Write);
        let mut pilot = Pilot::new(key, Strategy::Auto, true, false);
        let mut staged = 0;
        for call in 0..64 {
            pilot.enter();
            pilot.large_calls(1 << 20);
            let copied = !pilot.zero_copy(1 << 20);
            staged += u32::from(copied);
            clock::pass(Duration::from_millis(if copied { 8 } else { 1 }));
            if pilot.count(1 << 20) {
                pilot.next();
            }
            assert!(call < 16 || pilot.zero_copy(1 << 20) || pilot.home.is_some());
        }
        assert!((9..=24).contains(&staged), "{staged} calls were copied");
        assert!(!pilot.zero_copy(64 << 10), "not known of smaller ones");
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
            let mut pilot = Pilot::new(key, wanted, direct, dont_cache);
            assert_eq!(pilot.strategy(), expected);
            assert!(pilot.is_fixed() && !pilot.count(1 << 30));
        }
    }
}
