// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the ways to move data cost on a device, as far as this process knows: what it has seen, and what
//! `pdio learn` has remembered (see [`crate::costs`]).

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::BorrowedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::align::{FileFacts, FileKind};
use crate::costs::{self, Line};
use crate::fork::PerProcess;
use crate::options::Strategy;
use crate::spent::{clock, cpu_weight};

/// Bytes a device must have seen before other strategies are tried, and that a stream must have left:
/// a trial, of 8 MiB, costs at most that much again, so those of three strategies are won back in so
/// many bytes by one that is a third cheaper. Most processes write less in their life, and have none.
pub(crate) const SETTLED: u64 = 64 << 20;
/// Length of the first slice of a stream that begins without a copy and without knowledge, and of a trial
/// through the page cache up to its first look, in bytes. A call without a copy waits for the device, and
/// costs several times as much where the processor is fast.
pub(crate) const FIRST: u64 = 2 << 20;
/// A copy is cheap if it costs less than this part of a call without one (of large calls: of what they
/// wait): to do without it wins less than that, and loses the overlap of device and caller. Where copies are
/// cheap, a stream that began without one has its trial with one right after the first slice; where they
/// are not, a stream that began with one has its trial without.
pub(crate) const CHEAP_COPY: f64 = 0.125;
/// How many samples a remembered cost counts for: one sample that differs does not outweigh it, three do.
const REMEMBERED: usize = 2;
/// A trial that has cost this many times as much as the present strategy is without hope.
pub(crate) const HOPELESS: f64 = 2.0;
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub enum Operation {
    /// Data comes from the device.
    Read,
    /// Data goes to the device.
    Write,
}

/// How a stream moves through its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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

pub(crate) type Allowed = [bool; CHOICES.len()];

/// What one strategy was seen to cost.
#[derive(Clone, Debug, Default)]
pub(crate) struct Arm {
    /// The latest samples, in ns per byte.
    samples: Vec<f64>,
    taken: usize,
    bytes: u64,
    /// How long the thread waited in the latest one, in ns per byte.
    pub(crate) waited: Option<f64>,
    /// The device's byte count at which to try again.
    retry_at: u64,
    /// When the cost was measured that was remembered, in seconds since 1970.
    measured: Option<u64>,
}

impl Arm {
    pub(crate) fn cost(&self) -> Option<f64> {
        let mut sorted = self.samples.clone();
        sorted.sort_by(f64::total_cmp);
        // The lower median: interference only ever adds.
        sorted.get(sorted.len().checked_sub(1)? / 2).copied()
    }

    pub(crate) fn remember(&mut self, cost: f64, when: u64) {
        self.samples = vec![cost; REMEMBERED];
        self.taken = REMEMBERED;
        self.measured = Some(when);
    }

    pub(crate) fn add(&mut self, cost: f64, bytes: u64) {
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
    pub(crate) arms: [Arm; CHOICES.len()],
    pub(crate) bytes: u64,
}

/// What a process has learned.
#[derive(Debug, Default)]
struct Table {
    // Ordered, as hashing would ask the kernel for random numbers, which a program's filter may refuse.
    learned: BTreeMap<Key, Learned>,
    /// The devices of which it is known what is remembered.
    met: BTreeSet<u64>,
}

fn table() -> MutexGuard<'static, Table> {
    static TABLE: PerProcess<Mutex<Table>> = PerProcess::new();
    TABLE.get().lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn with<T>(key: Key, action: impl FnOnce(&mut Learned) -> T) -> T {
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
    let mut changed = BTreeSet::new();
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
pub(crate) const NAMES: [&str; CHOICES.len()] =
    ["direct", "direct-without-copy", "dontcache", "buffered"];

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
    pub(crate) fn best(&self, allowed: Allowed) -> Option<(usize, f64)> {
        (0..CHOICES.len())
            .filter(|&i| allowed[i])
            .filter_map(|i| Some((i, self.arms[i].cost()?)))
            .min_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// Returns the strategy to begin with: `prior`, the one if nothing is known, or another that is known
    /// to be cheaper by more than chance.
    pub(crate) fn first(&self, allowed: Allowed, prior: usize) -> usize {
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
    pub(crate) fn margin(&self, one: usize, other: usize) -> f64 {
        let measured_here = [one, other].iter().all(|&arm| self.arms[arm].bytes > 0);
        match measured_here {
            true => HYSTERESIS,
            false => REMEMBERED_HYSTERESIS,
        }
    }

    /// A strategy whose time for a trial has come, in a stream that has `left` bytes left.
    pub(crate) fn trial(
        &self,
        allowed: Allowed,
        current: usize,
        key: Key,
        left: u64,
    ) -> Option<usize> {
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
    pub(crate) fn postpone(&mut self, arm: usize, ratio: f64) {
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
pub(crate) fn distance(ratio: f64) -> u64 {
    let ratio = ratio.clamp(1.0, 16.0);
    (RETRY as f64 * ratio * ratio) as u64
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
