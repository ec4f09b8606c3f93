// SPDX-License-Identifier: MIT OR Apache-2.0
//! A stream gives way to what the program is about to do.
//!
//! While a stream is taken, the kernel's offset lags behind and data may wait in memory. Before anybody
//! can see that, or reach the file in another way, the stream drains or is handed back for good. Calls
//! name the streams by a descriptor, a file or a path.

use core::ffi::c_int;
use core::sync::atomic::Ordering::SeqCst;

use crate::state::TAKEN;
use crate::table::{self, with, Entry, Held, Kind};
use crate::taken::Direction;
use crate::{errno, guard, next, tell};

/// Hands a stream back for good. Returns false if data could not be written: then the stream stays,
/// and the program's next call reports the error.
pub fn hand_back(held: &mut Held, why: &str) -> bool {
    let description = held.description;
    let state = &mut *held.state;
    if state.drain() {
        return false;
    }
    if let Kind::Stream(stream) = &state.kind {
        stream.report_end(why);
        // A reader sets the kernel's offset when it is dropped.
        state.kind = Kind::Plain;
        description.ends();
    }
    if state.error.is_none() && matches!(state.kind, Kind::Plain) {
        description.release(state);
    }
    true
}

/// Stops watching the descriptor, or hands its stream back for good.
pub fn relinquish(fd: c_int, why: &str) {
    loop {
        match table::entry(fd) {
            Entry::Nothing | Entry::Internal => return,
            Entry::Watched if table::unwatch(fd) => return,
            // Taken since the lookup.
            Entry::Watched => {}
            Entry::Tracked(_) => {
                tell::hand_over();
                // If it is not tracked any more, it may be watched again.
                if with(fd, |held| hand_back(held, why)).is_some() || guard::inside() {
                    return;
                }
            }
        }
    }
}

/// Hands back the streams on a file to which there is another way now. Readers stay if that way is
/// not `writable`.
pub fn relinquish_file(device: u64, inode: u64, writable: bool, why: &str) {
    for fd in table::leading_to(device, inode) {
        tell::hand_over();
        with(fd, |held| {
            if writable || held.state.kind.direction() != Some(Direction::Read) {
                hand_back(held, why);
            }
        });
    }
}

/// As [`relinquish_file`], for the file behind a descriptor.
pub fn relinquish_behind(fd: c_int, writable: bool, why: &str) {
    if TAKEN.load(SeqCst) > 0 && !guard::inside() {
        errno::keep(|| {
            if let Some(about) = tell::stat(fd) {
                relinquish_file(about.st_dev, about.st_ino, writable, why);
            }
        });
    }
}

/// Before a call that can show what this stream's file is. If something of it waits, what waits of other
/// streams goes with it, as their times must keep the order of the writes. Files that are only read show
/// nothing of what waits.
fn showing(fd: c_int) {
    match table::entry(fd) {
        Entry::Tracked(description) if description.deferred.load(SeqCst) != 0 => tell::hand_over(),
        _ => {}
    }
}

/// Passes everything that was written to a descriptor to the kernel. An error is kept.
pub fn drain(fd: c_int) {
    showing(fd);
    with(fd, |held| held.state.drain());
}

/// As [`drain`], for a call that can return an error.
pub fn drain_or_fail(fd: c_int) -> Result<(), c_int> {
    showing(fd);
    let error = with(fd, |held| {
        held.state.drain();
        held.state.told()
    });
    error.flatten().map_or(Ok(()), Err)
}

/// Passes to the kernel what streams of this process hold of a file. Returns true if there was a
/// writer.
pub fn drain_file(device: u64, inode: u64) -> bool {
    let mut any = false;
    for fd in table::leading_to(device, inode) {
        showing(fd);
        any |= with(fd, |held| {
            let writer = held.state.kind.direction() == Some(Direction::Write);
            if writer {
                held.state.drain();
            }
            writer
        })
        .unwrap_or(false);
    }
    any
}

/// What [`on_path`] does with the streams on a file.
pub enum Then {
    Drain,
    HandBack(&'static str),
}

/// Drains or hands back, as `then` says, the streams on a file that is named by its path.
pub fn on_path(directory: c_int, path: *const libc::c_char, flags: c_int, then: Then) {
    // Others can see the changes of names and attributes.
    tell::hand_over();
    if TAKEN.load(SeqCst) == 0 || guard::inside() {
        return;
    }
    errno::keep(|| {
        // SAFETY: the program's path, which it is about to give to the kernel.
        let about = unsafe {
            let mut about: libc::stat64 = core::mem::zeroed();
            (next::fstatat64(directory, path, &mut about, flags) == 0).then_some(about)
        };
        let Some(about) = about else { return };
        match then {
            Then::Drain => {
                drain_file(about.st_dev, about.st_ino);
            }
            Then::HandBack(why) => relinquish_file(about.st_dev, about.st_ino, true, why),
        }
    });
}
