// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is done with all streams at once.
//!
//! Some events concern every stream: others may hear of any write, another process may share the
//! descriptors, this one may end. The order of the writes counts then, also where a signal ends the process:
//! modification times have to show it, and nobody may find the second write without the first. Layers below
//! cause some of this; [`ACTS`] is registered for them.

use core::ffi::c_int;
use core::sync::atomic::Ordering::SeqCst;
use std::io;

use crate::acts::Acts;
use crate::give_way::{hand_back, relinquish};
use crate::guard::{self, Guard};
use crate::state::{self, TAKEN};
use crate::table::{self, with, Description, Entry, Kind};
use crate::taken::{Direction, Pump};
use crate::{errno, look, say, tell};

/// Functions of this file that lower layers call.
pub static ACTS: Acts = Acts {
    hand_over,
    keep_step,
    relinquish_writers,
    rescue,
};

/// Streams of which data may wait, in the order of their last writes up to stamp `last`.
fn waiting(last: u64) -> impl Iterator<Item = &'static Description> {
    let mut after = 0;
    core::iter::from_fn(move || {
        let (stamp, description) = table::descriptions()
            .filter(|description| description.is_ours())
            .map(|description| (description.deferred.load(SeqCst), description))
            .filter(|&(stamp, _)| stamp > after && stamp <= last)
            .min_by_key(|&(stamp, _)| stamp)?;
        after = stamp;
        Some(description)
    })
}

/// Passes the waiting data of all streams to the kernel: in the order of their last writes up to
/// stamp `last`, then of streams that were written to meanwhile.
fn hand_over(last: u64) {
    // One alone has no order.
    let waits = |description: &&Description| {
        description.is_ours() && description.deferred.load(SeqCst) != 0
    };
    let several = table::descriptions().filter(waits).nth(1).is_some();
    let mut newest = several.then_some(OLDEST);
    for description in waiting(last) {
        hand_over_one(description, &mut newest);
    }
    // Streams that were written to meanwhile may also have waiting data from before.
    for description in table::descriptions() {
        if description.deferred.load(SeqCst) > last && description.is_ours() {
            hand_over_one(description, &mut newest);
        }
    }
}

/// Before any time of a file.
const OLDEST: (i64, i64) = (i64::MIN, 0);

/// `newest`: when the last of those before it was written, by the file's times; nothing if there are none.
fn hand_over_one(description: &'static Description, newest: &mut Option<(i64, i64)>) {
    let Some(mut held) = table::hold_any(description) else {
        return;
    };
    if description.deferred.load(SeqCst) == 0 {
        return;
    }
    let state = &mut *held.state;
    if let Kind::Stream(stream) = &mut state.kind {
        stream.tells();
    }
    state.drain();
    if let (Kind::Stream(stream), Some(newest)) = (&state.kind, newest) {
        stream.keep_order(newest);
    }
    // Only now: another thread that saw nothing wait here would tell too early. Writes need the lock.
    description.deferred.store(0, SeqCst);
}

/// Passes everything of all streams to the kernel.
pub fn drain_all() {
    tell::hand_over();
    tell::heard();
    if TAKEN.load(SeqCst) > 0 {
        for description in table::descriptions() {
            if description.device.load(SeqCst) == 0 || !description.is_ours() {
                continue;
            }
            if description.deferred.load(SeqCst) != 0 {
                // Another thread has written there since; with what it wrote before elsewhere, in that order.
                tell::hand_over();
            }
            if let Some(mut held) = table::hold_any(description) {
                held.state.drain();
            }
        }
    }
}

/// After [`drain_all`], for a call that can return an error: that of a stream on the filesystem to which `fd` leads. Of
/// several it is one; the others are kept.
pub fn told_of_filesystem(fd: c_int) -> Option<c_int> {
    let device = |fd| look::stat(fd).map(|about| about.st_dev);
    table::known().find_map(|(other, _)| {
        let error = with(other, |held| {
            let same = || errno::keep(|| device(fd).is_some() && device(fd) == device(other));
            (held.state.error.is_some() && same())
                .then(|| held.state.told())
                .flatten()
        });
        error.flatten()
    })
}

/// As [`relinquish`], for all writing streams.
fn relinquish_writers(why: &str) {
    tell::hand_over();
    for description in table::descriptions() {
        if !description.is_ours() {
            continue;
        }
        if let Some(mut held) = table::hold_any(description) {
            if held.state.kind.direction() == Some(Direction::Write) {
                hand_back(&mut held, why);
            }
        }
    }
}

/// As [`relinquish`], for all descriptors. Direct I/O is still repaired.
pub fn relinquish_all(why: &str) {
    if guard::inside() {
        // A handler of a fault in this library's own work, which may hold locks.
        return rescue();
    }
    tell::hand_over();
    for (fd, entry) in table::known() {
        if let Entry::Tracked(description) = entry {
            if !description.is_ours() {
                continue;
            }
            with(fd, |held| {
                if let Kind::Aligned(aligned) = &mut held.state.kind {
                    aligned.let_go(fd);
                }
            });
        }
        relinquish(fd, why);
    }
}

/// Keeps the kernel's offset of standard input and output right from here on: the C library is
/// about to read or write there by itself.
#[cold]
fn keep_step() {
    if guard::inside() || !state::is_owner() {
        return;
    }
    let seen = tell::OFFSETS.load(SeqCst);
    for fd in [libc::STDIN_FILENO, libc::STDOUT_FILENO] {
        with(fd, |held| {
            if let Kind::Stream(stream) = &mut held.state.kind {
                stream.keep_step();
            }
        });
    }
    tell::offsets_agree(seen);
}

/// How often, once in a millisecond, a handler of a signal tries a stream that another thread is working on.
const TRIES: u32 = 5000;

/// For a handler of a signal that ends the process: writes what streams hold, and has the kernel let go what they read,
/// without allocating.
fn rescue() {
    rescue_within(TRIES, None);
}

/// Before a call that ends the process, which a handler of a signal may make: as [`rescue`], and
/// reports the streams as ended for the reason `why`. The streams are not freed, as that may need a
/// lock that the handler has interrupted.
pub fn end_all(why: &str) {
    /// A minute: such a call waits for slow devices without this library, too; a signal does not.
    const TRIES: u32 = 60_000;
    rescue_within(TRIES, Some(why));
}

fn rescue_within(tries: u32, why: Option<&str>) {
    if TAKEN.load(SeqCst) == 0 {
        return;
    }
    match Guard::enter() {
        Some(_guard) => rescue_all(tries, why),
        // A fault in the library's own work: nothing is reported, as locks may be held.
        None => rescue_all(tries.min(TRIES), None),
    }
}

/// Tries until that succeeds, once in a millisecond. Returns false if it never does: another thread works on the stream.
fn patiently(tries: u32, description: &Description, mut succeeds: impl FnMut() -> bool) -> bool {
    let pause = libc::timespec {
        tv_sec: 0,
        tv_nsec: 1_000_000,
    };
    for _ in 0..tries {
        if succeeds() {
            return true;
        }
        // SAFETY: the time is ours.
        unsafe { libc::syscall(libc::SYS_nanosleep, &pause, 0usize) };
    }
    if description.writes() {
        say::say(&[b"the last data of a file was not written: another thread had it"]);
    }
    false
}

fn rescue_all(tries: u32, why: Option<&str>) {
    let stamp = |description: &Description| description.deferred.load(SeqCst);
    let last = table::descriptions().map(stamp).max().unwrap_or(0);
    let others = table::descriptions()
        .filter(|&description| description.is_ours() && !(1..=last).contains(&stamp(description)));
    let mut newest = OLDEST;
    // What reads has nothing to lose, and its thread may wait for the disk: all of those together are waited for a moment.
    let mut for_readers = tries.min(50);
    for description in waiting(last).chain(others) {
        if description.device.load(SeqCst) == 0 {
            continue;
        }
        let writes = description.writes();
        let tries = if writes { tries } else { for_readers };
        let done = patiently(tries, description, || {
            rescue_one(description, &mut newest, why)
        });
        if !done && !writes {
            for_readers = 1;
        }
    }
}

/// Returns false if another thread is working on the stream.
fn rescue_one(description: &Description, newest: &mut (i64, i64), why: Option<&str>) -> bool {
    let Some(mut state) = description.try_lock() else {
        if description.is_held_here() && rescue_held_here(description).is_err() {
            say::say(&[b"the last data of a file could not be written"]);
        }
        return description.is_held_here();
    };
    let printed = state.printed;
    let Kind::Stream(stream) = &mut state.kind else {
        return true;
    };
    stream.begin();
    match &mut stream.pump {
        Pump::Reader(reader) => reader.rescue(),
        Pump::Writer(writer) => match writer.rescue() {
            None => return false,
            Some(Ok(())) if description.deferred.load(SeqCst) != 0 => stream.keep_order(newest),
            Some(Ok(())) => {}
            Some(Err(_)) if printed => {}
            Some(Err(_)) => say::say(&[
                stream.path.as_bytes(),
                b": the last data could not be written",
            ]),
        },
    }
    stream.set_kernel(stream.position());
    if let Some(why) = why {
        stream.report_end(why);
    }
    true
}

/// As [`rescue_one`], for a stream that this thread has locked: the handler of a fault has interrupted its call. If
/// that was while the program's memory was copied, what the stream held before is known.
fn rescue_held_here(description: &Description) -> io::Result<()> {
    match pdio::rescue_interrupted() {
        Some(result) => result,
        None if description.writes() => Err(io::ErrorKind::ResourceBusy.into()),
        None => Ok(()),
    }
}

/// A handler of a fault in this library's own work has closed a descriptor. Writes what its stream holds, without
/// allocating, and returns the error to report. If no call can report it (not `tells`), it is printed.
pub fn rescue_closed(description: &Description, tells: bool) -> Option<c_int> {
    let code = |error: io::Error| error.raw_os_error().unwrap_or(libc::EIO);
    let mut error = None;
    patiently(TRIES, description, || {
        let Some(mut state) = description.try_lock() else {
            if description.is_held_here() {
                error = rescue_held_here(description).err().map(code);
            }
            return description.is_held_here();
        };
        let state = &mut *state;
        let last = state.descriptors <= 1;
        let result = match &mut state.kind {
            Kind::Stream(stream) => match &mut stream.pump {
                Pump::Writer(writer) if last => writer.rescue_for_good(),
                Pump::Writer(writer) => writer.rescue(),
                Pump::Reader(reader) => {
                    if last {
                        reader.rescue();
                    }
                    Some(Ok(()))
                }
            },
            Kind::Plain | Kind::Aligned(_) => Some(Ok(())),
        };
        let Some(result) = result else { return false };
        state.descriptors = state.descriptors.saturating_sub(1);
        error = state.told().or(result.err().map(code));
        if last {
            description.deferred.store(0, SeqCst);
        }
        true
    });
    if error.is_some() && !tells {
        say::say(&[b"the last data of a file could not be written"]);
    }
    error.filter(|_| tells)
}

/// Prints the errors of data that could not be written, where no later call can return them. Where the
/// process may yet go on, as `exec` may fail, they are kept for its next calls as well. Each is printed once.
pub fn report_lost() {
    for (fd, entry) in table::known() {
        let Entry::Tracked(description) = entry else {
            continue;
        };
        if !description.is_ours() {
            continue;
        }
        with(fd, |held| {
            let error = held.state.unprinted();
            if let (Kind::Stream(stream), Some(error)) = (&held.state.kind, error) {
                stream.say_lost(error);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_reads_holds_up_no_end() {
        use std::time::{Duration, Instant};
        state::claim_process();
        let descriptions: Vec<_> = (0..20).map(|_| Description::new()).collect();
        // Calls of other threads that wait for the disk.
        let held: Vec<_> = descriptions.iter().map(|one| one.lock()).collect();
        for description in &descriptions {
            description.device.store(1, SeqCst);
        }
        let begun = Instant::now();
        rescue_all(TRIES, None);
        assert!(begun.elapsed() < Duration::from_millis(TRIES.into()));
        drop(held);
        for description in descriptions {
            description.device.store(0, SeqCst);
            description.recycle();
        }
    }

    #[test]
    fn nobody_passes_by_before_the_kernels_offset_is_right() {
        use std::time::{Duration, Instant};
        state::claim_process();
        let description = Description::new();
        // A call of another thread on the same stream.
        let held = description.lock();
        assert!(description.track(libc::STDIN_FILENO));
        tell::offsets_differ();
        let passes = std::thread::scope(|scope| {
            scope.spawn(keep_step);
            let begun = Instant::now();
            let passes = || tell::OFFSETS.load(SeqCst) >= 0;
            while !passes() && begun.elapsed() < Duration::from_millis(500) {
                std::thread::sleep(Duration::from_millis(1));
            }
            let early = passes();
            drop(held);
            early
        });
        assert!(!passes);
        assert_eq!(tell::OFFSETS.load(SeqCst), 0);
        assert!(description.untrack(libc::STDIN_FILENO));
        description.recycle();
    }
}
