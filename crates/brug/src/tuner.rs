// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tuner: when does an object that keeps growing move into a slot?
//!
//! The paper (section III-A) times every reallocation, averages old and new, and
//! takes the fastest allocator of a size class. Three things are different here.
//!
//! * *What is timed.* A call that leaves page faults behind looks cheap. So a
//!   reallocation is timed together with the first touch of the pages it added,
//!   because that touch takes the faults. About one in 64 is timed, of those to
//!   between 8 KiB and 1 MiB.
//! * *What is compared.* Moving an object costs once and pays later. So the cost of
//!   moving now and growing in place next time is compared with the cost of copying
//!   now and copying next time.
//! * *Who decides.* The decision is computed when the table changes. A reallocation
//!   reads one byte for its size class. All threads share that byte; it is written a
//!   few times in a process and so stays in every cache, and no thread has to learn
//!   what another knows.
//!
//! Earlier objects predict whether an object *keeps* growing. Where seven of eight
//! that grew once grew again, the first growth moves an object into a slot. Where
//! seven of eight new objects of a size grew, new ones are put into slots at birth. One
//! in sixteen is left where it was, so that a change is noticed. Births are counted
//! only where objects are seen to grow, because counted births take the slow path.
//!
//! Old evidence fades (a new sample has a weight of a sixteenth), a decision changes
//! only for a gain of an eighth, and about one in 4096 of these reallocations does the
//! opposite of what was decided, so that a wrong decision is noticed.

use core::ffi::CStr;
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicU8, Ordering::Relaxed};

use crate::mode::Base;
use nocopy_settings::{profile, Line, ProfileRow, Size, PROFILE, PROFILE_MOST};
use crate::{arena, os, retain, tls, trial, words};

/// Reallocations of a thread, on the slow path, per sample.
pub(crate) const SAMPLE: u32 = 64;
/// The same per experiment, in which a decision is reversed; a multiple of [`SAMPLE`].
pub(crate) const EXPERIMENT: u32 = 4096;

/// Of the objects that should move into a slot, one in this many is left where it was.
const ASIDE: u32 = 16;
/// With this many live slots objects no longer move early: a slot costs a page table.
const EARLY_SLOTS: usize = 512;

/// What a reallocation did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Arm {
    /// The base allocator enlarged the object, in place or by a copy.
    Base = 0,
    /// It moved from the base allocator to a slot.
    Move = 1,
    /// It grew in its slot.
    Slot = 2,
}

const ARMS: [&str; 3] = ["base", "move", "slot"];

/// Size classes: four to each power of two, from 4 KiB on.
const CLASSES: usize = 96;
const FIRST: u32 = 12;
/// Minimum number of samples of a meaningful average.
const ENOUGH: u64 = 3;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Decision {
    None = 0,
    Base = 1,
    Slot = 2,
}

/// Mean in sixteenths of a nanosecond in the upper 40 bits, samples in the lower 24.
#[link_section = tables!()]
static TABLE: [[AtomicU64; 3]; CLASSES] = [const { [const { AtomicU64::new(0) }; 3] }; CLASSES];
static DECISION: [AtomicU8; CLASSES] = [const { AtomicU8::new(0) }; CLASSES];

fn class(size: usize) -> usize {
    let log = usize::BITS - 1 - size.max(1 << FIRST).leading_zeros();
    let step = size.max(1 << FIRST) >> (log - 2) & 3;
    (((log - FIRST) as usize) * 4 + step).min(CLASSES - 1)
}

fn lower_bound(class: usize) -> usize {
    (4 + class % 4) << (class / 4) << (FIRST - 2)
}

/// The decision for an object that grows to `size` bytes.
#[inline]
pub(crate) fn decision(size: usize) -> Decision {
    match DECISION[class(size)].load(Relaxed) {
        1 => Decision::Base,
        2 => Decision::Slot,
        _ => Decision::None,
    }
}

/// A number of objects in the upper half, and in the lower half how many of them grew, or grew
/// again. Of two concurrent counts one may be lost.
struct Share(AtomicU64);

impl Share {
    /// Minimum number of objects for a prediction.
    const FEW: u64 = 32;
    /// At this many objects both numbers are halved, so that older objects count less.
    const MANY: u64 = 512;

    const fn new() -> Share {
        Share(AtomicU64::new(0))
    }

    fn read(&self) -> (u64, u64) {
        let cell = self.0.load(Relaxed);
        (cell >> 32, cell & 0xffff_ffff)
    }

    fn count(&self) {
        let (all, some) = self.read();
        let fade = u32::from(all >= Share::MANY);
        self.0
            .store(((all >> fade) + 1) << 32 | some >> fade, Relaxed);
    }

    fn came_true(&self) {
        self.0.store(self.0.load(Relaxed) + 1, Relaxed);
    }

    /// Returns true if there are enough objects, and at least seven of eight grew.
    fn nearly_all(&self) -> bool {
        let (all, some) = self.read();
        all >= Share::FEW && some * 8 >= all * 7
    }
}

const OCTAVES: usize = CLASSES / 4;
const fn no_shares() -> [Share; OCTAVES] {
    [const { Share::new() }; OCTAVES]
}

/// Objects that grew once, to a size in an octave, and how many of these grew again.
static GROWN: [Share; OCTAVES] = no_shares();
/// Objects born with a size in an octave, and how many of these grew.
static BORN: [Share; OCTAVES] = no_shares();
/// Objects of an octave that grew while its births were not watched, and from how many on its
/// births are watched.
static CAUSE: [AtomicU32; OCTAVES] = [const { AtomicU32::new(0) }; OCTAVES];
static BAR: [AtomicU32; OCTAVES] = [const { AtomicU32::new(64) }; OCTAVES];

fn octave(size: usize) -> usize {
    class(size) / 4
}

fn watched(octave: usize) -> bool {
    CAUSE[octave].load(Relaxed) >= BAR[octave].load(Relaxed)
}

/// The smallest size of which births are watched: new objects from this size on take the slow path,
/// which reports them to [`born`].
pub(crate) fn watched_from() -> usize {
    (0..OCTAVES)
        .find(|&octave| watched(octave))
        .map_or(usize::MAX, |octave| lower_bound(octave * 4))
}

/// Counts a new object that is in no slot. Returns true if [`watched_from`] has changed.
pub(crate) fn born(size: usize) -> bool {
    let octave = octave(size);
    if !watched(octave) {
        return false;
    }
    let share = &BORN[octave];
    share.count();
    let judged = share.read().0 >= Share::MANY && !share.nearly_all();
    if judged {
        // Watched in vain. Not again soon, because watched births take longer.
        let bar = BAR[octave].load(Relaxed);
        BAR[octave].store(bar.saturating_mul(64), Relaxed);
        CAUSE[octave].store(0, Relaxed);
        share.0.store(0, Relaxed);
    }
    judged
}

/// Returns true if new objects of this size nearly always grow, and slots serve that well.
pub(crate) fn will_grow(size: usize) -> bool {
    let octave = octave(size);
    watched(octave) && BORN[octave].nearly_all() && decision(2 * size) != Decision::Base
}

/// Counts the first growth of an object that is in no slot. Returns true if [`watched_from`] has
/// changed.
pub(crate) fn grows(from: usize) -> bool {
    if from < 1 << FIRST {
        return false;
    }
    let octave = octave(from);
    if watched(octave) {
        BORN[octave].came_true();
        return false;
    }
    let cause = &CAUSE[octave];
    cause.store(cause.load(Relaxed).saturating_add(1), Relaxed);
    watched(octave)
}

/// Counts an object that has grown once, to this size, and is in no slot.
pub(crate) fn grew_once(size: usize) {
    GROWN[octave(size)].count();
}

/// Counts an object that had grown once, to this size, and has grown again.
pub(crate) fn grew_again(size: usize) {
    GROWN[octave(size)].came_true();
}

/// Returns true if objects that have grown once, to this size, nearly always grow again.
pub(crate) fn goes_on(size: usize) -> bool {
    GROWN[octave(size)].nearly_all()
}

/// Returns true if an object is to be left where it is, to see if it grows.
#[inline]
pub(crate) fn aside() -> bool {
    // SAFETY: the calling thread's own.
    let calls = unsafe { &(*tls::local()).calls };
    calls.set(calls.get().wrapping_add(1));
    // Spread by a hash: a program whose calls repeat must not always set the same one aside.
    calls.get().wrapping_mul(0x9e37_79b9) < u32::MAX / ASIDE
}

/// Returns true if an object of this size may still move before it reaches the switch point. To set the arena up
/// takes longer than to copy a few small ones, so it is for objects that the C library would map as well.
#[inline]
pub(crate) fn may_move_early(size: usize) -> bool {
    arena::live() < EARLY_SLOTS && (size >= retain::LEAST_COUNTED || arena::is_due())
}

fn unpack(cell: &AtomicU64) -> (u64, u64) {
    let cell = cell.load(Relaxed);
    (cell >> 24, cell & 0xff_ffff)
}

fn pack(mean: u64, samples: u64) -> u64 {
    mean.min(MOST_MEAN - 1) << 24 | samples.min(0xff_ffff)
}

/// True if this process has recorded one.
static SAMPLED: AtomicBool = AtomicBool::new(false);

/// In the child of a fork. What its parent has learned it goes on with, and has not measured itself.
pub(crate) fn after_fork_in_child() {
    SAMPLED.store(false, Relaxed);
    trial::JUDGED.store(false, Relaxed);
}

/// Records a sample. Of two concurrent ones one may be lost.
pub(crate) fn record(arm: Arm, size: usize, ns: u64) {
    let class = class(size);
    let cell = &TABLE[class][arm as usize];
    let (mean, samples) = unpack(cell);
    let new = ns.saturating_mul(16);
    // A plain average at first, then one that forgets.
    let weight = (samples + 1).min(16) as i64;
    // One interrupt or pause of the host must not change a decision.
    let new = if samples >= ENOUGH {
        new.min(mean.saturating_mul(8))
    } else {
        new
    };
    let mean = mean as i64 + (new as i64 - mean as i64) / weight;
    cell.store(pack(mean.max(0) as u64, samples + 1), Relaxed);
    SAMPLED.store(true, Relaxed);
    // Decisions in the next smaller octave depend on this class.
    decide(class);
    if class >= 4 {
        decide(class - 4);
    }
}

fn decide(class: usize) {
    let mean = |class: usize, arm: Arm| {
        let (mean, samples) = unpack(&TABLE[class.min(CLASSES - 1)][arm as usize]);
        (samples >= ENOUGH).then_some(mean)
    };
    let next = class + 4;
    let (Some(copy), Some(enter)) = (mean(class, Arm::Base), mean(class, Arm::Move)) else {
        return;
    };
    // Where the next octave has no samples, copying twice as much is taken to cost twice as much,
    // and growth in place as much as here.
    let copy_next = mean(next, Arm::Base).unwrap_or(2 * copy);
    let grow_next = mean(next, Arm::Slot)
        .or(mean(class, Arm::Slot))
        .unwrap_or(0);
    let (base, slot) = (copy + copy_next, enter + grow_next);
    if slot < base - base / 8 {
        DECISION[class].store(Decision::Slot as u8, Relaxed);
    } else if base < slot - slot / 8 {
        DECISION[class].store(Decision::Base as u8, Relaxed);
    }
}

/// One size class of the paper's Performance Measurement Table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TunerRow {
    /// Smallest size in the class, in bytes.
    pub size: usize,
    /// Mean time in nanoseconds, with the touch of new pages, and number of samples (0: there is
    /// no mean), of the base allocator's reallocation, the move into a slot, and growth in a slot.
    pub arms: [(u64, u64); 3],
    /// True if objects that keep growing move into a slot at this size; `None` if not
    /// enough is known, and they move as well.
    pub slot: Option<bool>,
    /// True if new objects of this size are put into slots, as nearly all of them grow.
    pub birth: bool,
}

/// A snapshot of the tuner's table; size classes of which nothing is known are left out.
#[derive(Clone, Copy, Debug)]
pub struct TunerReport {
    rows: [TunerRow; CLASSES],
    len: usize,
    base: Base,
    why: &'static str,
    gain: i32,
    bases: [(u64, u64); 3],
}

impl TunerReport {
    /// The rows, by size.
    pub fn rows(&self) -> &[TunerRow] {
        &self.rows[..self.len]
    }

    /// The allocator of small objects.
    pub fn base(&self) -> Base {
        self.base
    }

    /// Why small objects have that allocator, in a few words.
    pub fn why(&self) -> &'static str {
        self.why
    }

    /// How much less time the base compared with the C library takes, in percent of the C
    /// library's; negative if it takes more. `None` if nothing was compared.
    pub fn gain(&self) -> Option<i32> {
        (self.compared(Base::Glibc).1 > 0).then_some(self.gain)
    }

    /// Writes the rows as a JSON array: sizes in bytes, times in nanoseconds.
    ///
    /// # Errors
    /// Those of `to`.
    pub fn json(&self, to: &mut dyn fmt::Write) -> fmt::Result {
        let mut comma = "[";
        for row in self.rows() {
            write!(to, "{comma}{{\"size\":{}", row.size)?;
            for (name, (ns, samples)) in ARMS.into_iter().zip(row.arms) {
                write!(to, ",\"{name}\":{{\"ns\":{ns},\"samples\":{samples}}}")?;
            }
            let decision = match row.slot {
                Some(true) => "\"slot\"",
                Some(false) => "\"base\"",
                None => "null",
            };
            write!(to, ",\"decision\":{decision},\"birth\":{}}}", row.birth)?;
            comma = ",";
        }
        to.write_str(if comma == "[" { "[]" } else { "]" })
    }

    /// Writes the line with the allocator of small objects, the reason, and the times of all that
    /// were compared.
    fn write_base(&self, to: &mut dyn fmt::Write) -> fmt::Result {
        write!(to, "small objects: {}, {}", self.base, self.why)?;
        let mut before = " (";
        for base in Base::ALL {
            let (mean, samples) = self.compared(base);
            if samples > 0 {
                write!(to, "{before}{base} {mean} ns ×{samples}")?;
                before = ", ";
            }
        }
        to.write_str(if before == ", " { ")\n" } else { "\n" })
    }

    /// The mean time of an allocation, with the touch of its pages, and a free, in nanoseconds,
    /// and the number of samples (0: not compared).
    pub fn compared(&self, base: Base) -> (u64, u64) {
        self.bases[base as usize]
    }
}

/// What the tuner has measured and decided so far.
pub fn tuner_report() -> TunerReport {
    let mut report = TunerReport {
        rows: [TunerRow::default(); CLASSES],
        len: 0,
        base: words::base(),
        why: trial::why(),
        gain: trial::gain(),
        bases: Base::ALL.map(|base| {
            let trial::Verdict { mean, samples } = trial::verdict(base);
            (mean / 16, samples)
        }),
    };
    for class in 0..CLASSES {
        let arms = [0, 1, 2].map(|arm| {
            let (mean, samples) = unpack(&TABLE[class][arm]);
            (mean / 16, samples)
        });
        let birth = will_grow(lower_bound(class));
        if birth || arms.iter().any(|a| a.1 > 0) {
            let slot = match DECISION[class].load(Relaxed) {
                1 => Some(false),
                2 => Some(true),
                _ => None,
            };
            report.rows[report.len] = TunerRow {
                size: lower_bound(class),
                arms,
                slot,
                birth,
            };
            report.len += 1;
        }
    }
    report
}

impl fmt::Display for TunerReport {
    /// The allocator of small objects, and a table: nanoseconds × samples. Allocates nothing.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_base(f)?;
        if self.len == 0 {
            return Ok(());
        }
        writeln!(
            f,
            "{:>8} {:>18} {:>18} {:>18}  growing objects",
            "size", "base", "move", "slot"
        )?;
        for row in self.rows() {
            write!(f, "{:>8}", Size(row.size as u64))?;
            for (mean, samples) in row.arms {
                if samples == 0 {
                    write!(f, " {:>18}", "-")?;
                } else {
                    write!(f, " {mean:>9} ×{samples:<8}")?;
                }
            }
            writeln!(
                f,
                "  {}",
                match (row.birth, row.slot) {
                    (true, _) => "move, new ones begin there",
                    (_, Some(true)) => "move",
                    (_, Some(false)) => "stay",
                    (_, None) => "move (untried)",
                }
            )?;
        }
        Ok(())
    }
}

/// In sixteenths of a nanosecond, a minute.
const MOST_MEAN: u64 = 1 << 40;

/// True if what is at the profile's path is no profile, or cannot be read: then it is not replaced.
static NO_PROFILE: AtomicBool = AtomicBool::new(false);

/// Reads a profile; of what is known of a size already, what has more samples counts, and of bases what this process
/// has found. Returns true if there is one. A missing one counts as empty; whatever else is there is reported, not used
/// and not replaced.
pub(crate) fn load(path: &CStr) -> bool {
    let buf = os::map_memory(PROFILE_MOST);
    if buf.is_null() {
        NO_PROFILE.store(true, Relaxed);
        return false;
    }
    // SAFETY: mapped above with this length.
    let bytes = unsafe { core::slice::from_raw_parts_mut(buf, PROFILE_MOST) };
    let read = os::keep_errno(|| os::read_named_file(path, bytes));
    let parsed = read.is_ok_and(|n| parse(core::str::from_utf8(&bytes[..n]).unwrap_or("")));
    if read != Ok(0) && !parsed {
        let (path, error) = (shown(path), read.err().unwrap_or(libc::EINVAL));
        os::complain(format_args!(
            "{path}: not a profile of brug that can be read (errno {error}); left alone"
        ));
        NO_PROFILE.store(true, Relaxed);
    }
    // SAFETY: mapped above, no longer referred to.
    unsafe { os::unmap(buf, PROFILE_MOST) };
    parsed
}

/// A path for a message.
fn shown(path: &CStr) -> &str {
    path.to_str().unwrap_or("?")
}

fn parse(text: &str) -> bool {
    let Some(rows) = profile(text) else {
        return false;
    };
    let rows = rows.map(|row| row.and_then(parse_row));
    if !rows.clone().all(|row| row.is_some()) {
        return false;
    }
    for row in rows.flatten() {
        match row {
            Row::Size(class, arm, mean, samples) => {
                let cell = &TABLE[class][arm];
                if samples > unpack(cell).1 {
                    cell.store(pack(mean, samples), Relaxed);
                }
            }
            Row::Base(..) if trial::JUDGED.load(Relaxed) => {}
            Row::Base(base, verdict) => trial::set_verdict(base, verdict),
        }
    }
    (0..CLASSES).for_each(decide);
    true
}

enum Row {
    /// Class, arm, mean, samples.
    Size(usize, usize, u64, u64),
    Base(Base, trial::Verdict),
}

/// `SIZE ARM SIXTEENTHS SAMPLES`, or `0 BASE SIXTEENTHS SAMPLES` for the result of a trial.
fn parse_row(row: ProfileRow<'_>) -> Option<Row> {
    let (size, name) = (row.size as usize, row.name);
    let (mean, samples) = (row.mean, row.samples);
    if mean >= MOST_MEAN {
        return None;
    }
    if size == 0 {
        let base = Base::ALL.into_iter().find(|base| base.name() == name)?;
        return Some(Row::Base(base, trial::Verdict { mean, samples }));
    }
    let arm = ARMS.iter().position(|&arm| arm == name)?;
    let class = class(size);
    (lower_bound(class) == size).then_some(Row::Size(class, arm, mean, samples))
}

/// Calls `f` with a name in the directory of `path` that nobody can know before. What is longer than a path can be,
/// the system refuses.
fn beside<T>(path: &CStr, f: impl FnOnce(&CStr) -> T) -> T {
    use fmt::Write;
    let mut name = [0; libc::PATH_MAX as usize + 64];
    let bytes = path.to_bytes();
    let directory = bytes.iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
    let directory = directory.min(libc::PATH_MAX as usize);
    name[..directory].copy_from_slice(&bytes[..directory]);
    let mut last = Line::new();
    let _ = write!(last, ".brug-profile-{}-{}", os::process(), os::now_ns());
    let last = last.as_bytes();
    name[directory..directory + last.len()].copy_from_slice(last);
    f(CStr::from_bytes_until_nul(&name).unwrap_or_default())
}

/// Writes the profile, by a rename: whole, or not at all. Others may have written it since it was read; a process
/// that has measured nothing has nothing to add.
#[inline(never)]
pub(crate) fn save(path: &CStr) {
    if NO_PROFILE.load(Relaxed) {
        return;
    }
    let measured = SAMPLED.load(Relaxed) || trial::JUDGED.load(Relaxed);
    if (!load(path) || measured) && !NO_PROFILE.load(Relaxed) {
        beside(path, |name| write(name, path));
    }
}

/// Writes the profile to `path`, by way of `name`.
fn write(name: &CStr, path: &CStr) {
    use fmt::Write;
    // SAFETY: C strings.
    unsafe {
        // Of others who may write there, nobody's file or link is written to.
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC;
        let fd = libc::open64(name.as_ptr(), flags, 0o644);
        let mut ok = fd >= 0 && os::write_all(fd, PROFILE.as_bytes()) && os::write_all(fd, b"\n");
        for base in Base::ALL {
            let trial::Verdict { mean, samples } = trial::verdict(base);
            if ok && samples > 0 {
                let mut line = Line::new();
                let _ = writeln!(line, "0 {base} {mean} {samples}");
                ok = os::write_all(fd, line.as_bytes());
            }
        }
        for (class, row) in TABLE.iter().enumerate() {
            for (arm, cell) in row.iter().enumerate() {
                let (mean, samples) = unpack(cell);
                if ok && samples > 0 {
                    let mut line = Line::new();
                    let size = lower_bound(class);
                    let _ = writeln!(line, "{size} {} {mean} {samples}", ARMS[arm]);
                    ok = os::write_all(fd, line.as_bytes());
                }
            }
        }
        if fd >= 0 {
            ok &= libc::close(fd) == 0;
        }
        if !ok || libc::rename(name.as_ptr(), path.as_ptr()) != 0 {
            let error = os::errno();
            if fd >= 0 {
                libc::unlink(name.as_ptr());
            }
            let path = shown(path);
            os::complain(format_args!(
                "cannot write profile {path} (errno {error}); it is as it was"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    #[test]
    fn classes_hold_a_quarter_of_an_octave() {
        for class_number in 0..CLASSES {
            assert_eq!(class(lower_bound(class_number)), class_number);
            if class_number > 0 {
                assert_eq!(class(lower_bound(class_number) - 1), class_number - 1);
            }
        }
        assert_eq!(class(1), 0);
        assert_eq!(class(usize::MAX), CLASSES - 1);
    }

    #[test]
    fn a_decision_needs_evidence_and_changes_with_it() {
        let size = 3 << 30;
        assert_eq!(decision(size), Decision::None);
        for _ in 0..20 {
            record(Arm::Base, size, 50_000);
        }
        assert_eq!(decision(size), Decision::None);
        for _ in 0..20 {
            record(Arm::Move, size, 1_000);
        }
        assert_eq!(decision(size), Decision::Slot);
        for _ in 0..200 {
            record(Arm::Move, size, 300_000);
        }
        assert_eq!(decision(size), Decision::Base);
    }

    #[test]
    fn what_nearly_always_goes_on_growing_is_known_by_its_octave() {
        let size = 5 << 30;
        let many = |n, again: fn(u32) -> bool| {
            for i in 0..n {
                grew_once(size);
                if again(i) {
                    grew_again(size);
                }
            }
        };
        let (few, all) = (Share::FEW as u32, Share::MANY as u32);
        many(few - 1, |_| true);
        assert!(!goes_on(size));
        many(1, |_| true);
        assert!(goes_on(size) && !goes_on(2 * size) && !goes_on(size / 2));
        many(3 * all, |_| false);
        assert!(!goes_on(size));
        many(9 * all, |i| !i.is_multiple_of(16));
        assert!(goes_on(size));
    }

    #[test]
    fn births_are_looked_at_where_objects_grow_and_no_longer_than_that() {
        let size = 7 << 40;
        assert!(!born(size) && watched_from() > size);
        let mut changes = 0;
        for _ in 0..64 {
            assert!(!will_grow(size));
            changes += u32::from(grows(size));
        }
        assert_eq!((changes, watched_from() <= size), (1, true));
        for _ in 0..Share::FEW {
            assert!(!born(size) && !grows(size));
        }
        assert!(will_grow(size));
        // They no longer grow.
        while !born(size) {}
        assert!(!will_grow(size) && watched_from() > size);
        assert!((0..64).all(|_| !grows(size)));
    }

    #[test]
    fn a_profile_that_is_not_one_changes_nothing() {
        for text in [
            "",
            "x",
            "brug-profile 2\n",
            "brug-profile 1\n4096 base 3\n",
            "brug-profile 1\n4097 base 3 3\n",
            "brug-profile 1\n4096 none 3 3\n",
            "brug-profile 1\n4096 base -3 3\n",
            "brug-profile 1\n4096 base 3 3 3\n",
            "brug-profile 1\n0 mimalloc 18446744073709551615 3\n",
        ] {
            assert!(!parse(text), "{text}");
        }
        assert!(parse("brug-profile 1\n"));
    }
}
