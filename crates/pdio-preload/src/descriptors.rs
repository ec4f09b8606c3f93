// SPDX-License-Identifier: MIT OR Apache-2.0
//! Descriptors come and go: they are closed, duplicated, replaced.
//!
//! All descriptors that `dup` makes of one share its stream, which ends with the last of them. That close is
//! the last call that can return an error. The program's other threads may do the same with the
//! same numbers at any moment.

use core::ffi::c_int;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};

use crate::all::rescue_closed;
use crate::errno::{self, failed};
use crate::give_way::{hand_back, relinquish, relinquish_behind};
use crate::guard::{self, Guard};
use crate::state::THREADED;
use crate::table::{self, with, Description, Entry, Held, Kind};
use crate::{look, next, tell};

/// `close` on a descriptor that has a word.
pub fn close(fd: c_int) -> c_int {
    let mut error = None;
    tell::closing(fd);
    let changes = tell::changes_another(fd);
    // Only now: what was just found out is not of what has the number next.
    tell::renumbered();
    match table::entry(fd) {
        Entry::Nothing => {}
        // For the program this descriptor is closed.
        Entry::Internal if !guard::inside() => return failed(libc::EBADF),
        Entry::Internal => table::forget(fd),
        Entry::Tracked(description) if !description.is_ours() => {}
        Entry::Watched | Entry::Tracked(_) => error = leave(fd, "closed"),
    }
    // SAFETY: the program's request.
    let result = unsafe { next::close(fd) };
    if changes {
        tell::heard();
    }
    match error {
        Some(error) => failed(error),
        None => result,
    }
}

/// Before a descriptor is closed or replaced. Returns the error to report.
pub fn leave(fd: c_int, why: &str) -> Option<c_int> {
    leave_by(fd, why, true)
}

/// As [`leave`], where no call can report an error: if data is lost, that is printed.
pub fn leave_untold(fd: c_int, why: &str) {
    leave_by(fd, why, false);
}

fn leave_by(fd: c_int, why: &str, tells: bool) -> Option<c_int> {
    loop {
        match table::entry(fd) {
            Entry::Nothing | Entry::Internal => return None,
            Entry::Watched if table::unwatch(fd) => return None,
            // Taken since the lookup.
            Entry::Watched => {}
            Entry::Tracked(description) => {
                // If it is not tracked any more, it may be watched again.
                if let Some(error) = with(fd, |held| leave_held(held, fd, why, tells)) {
                    return error;
                }
                if guard::inside() {
                    // A handler of a fault in this library's own work, which may hold locks. The stream, which has a
                    // descriptor of its own, ends with the process.
                    description.untrack(fd);
                    return rescue_closed(description, tells);
                }
            }
        }
    }
}

fn leave_held(held: &mut Held, fd: c_int, why: &str, tells: bool) -> Option<c_int> {
    let description = held.description;
    let last = held.state.descriptors <= 1;
    if !last {
        held.state.descriptors -= 1;
        description.untrack(fd);
        // Otherwise it stays for the other descriptors.
        return tells.then(|| held.state.told()).flatten();
    }
    hand_back(held, why);
    let unprinted = held.state.unprinted();
    let error = held.state.told();
    if let Kind::Stream(stream) = std::mem::take(&mut held.state.kind) {
        // The data is given up; the program gets the error, if it can.
        if let (Some(error), false) = (unprinted, tells) {
            stream.say_lost(error);
        }
        stream.report_end("closed with an error");
        drop(stream);
        description.ends();
    }
    if description.untrack(fd) {
        description.release(&mut held.state);
    }
    error
}

/// Before a descriptor is duplicated or replaced. If the program has several threads, another one may do the same,
/// or use the number, at any moment in between: then no table could say what each descriptor leads to. So
/// the stream goes back, and all of them have the kernel's offset.
pub fn duplicating(fd: c_int) {
    if THREADED.load(SeqCst) && is_stream(fd) {
        relinquish(fd, BESIDE);
    }
}

const BESIDE: &str = "duplicated beside other threads";

fn is_stream(fd: c_int) -> bool {
    matches!(table::entry(fd), Entry::Tracked(description) if description.device.load(Relaxed) != 0)
}

/// `to` is a new descriptor of what `from` refers to.
pub fn copied(from: c_int, to: c_int) {
    if THREADED.load(SeqCst) && is_stream(from) {
        // Taken since `duplicating`, or another file since the call.
        relinquish(from, BESIDE);
        return relinquish_behind(to, true, BESIDE);
    }
    match table::entry(from) {
        Entry::Nothing | Entry::Internal => {}
        // If that fails, it may have been taken since the lookup.
        Entry::Watched if table::watch_copy(from, to) => {
            if leads_elsewhere(from, to) {
                table::unwatch(to);
            }
        }
        Entry::Watched => copied(from, to),
        Entry::Tracked(_) => {
            let apart = with(from, |held| {
                let aligned = matches!(held.state.kind, Kind::Aligned(_));
                if !aligned && (to == libc::STDERR_FILENO || to as usize >= table::SLOTS) {
                    hand_back(held, "duplicated out of sight");
                    return false;
                }
                if let Kind::Stream(stream) = &mut held.state.kind {
                    if to <= libc::STDOUT_FILENO {
                        stream.becomes_standard();
                    }
                }
                if !held.description.track(to) {
                    // The number is another thread's by now.
                    hand_back(held, BESIDE);
                    return false;
                }
                held.state.descriptors += 1;
                let apart = aligned && leads_elsewhere(from, to);
                if apart && held.description.untrack(to) {
                    held.state.descriptors -= 1;
                }
                apart
            });
            if apart == Some(true) {
                align(to);
            }
        }
    }
}

/// Returns true if another thread has had one of two descriptors lead to another file since they were made the same.
/// Asked after `to` was entered in the table: who replaces that later finds the entry and takes it out.
fn leads_elsewhere(from: c_int, to: c_int) -> bool {
    if !THREADED.load(SeqCst) {
        return false;
    }
    let file = |fd| look::stat(fd).map(|about| (about.st_dev, about.st_ino));
    errno::keep(|| file(from) != file(to))
}

/// Starts to repair direct I/O on a descriptor.
pub fn align(fd: c_int) {
    let regular = look::stat(fd).is_some_and(|s| s.st_mode & libc::S_IFMT == libc::S_IFREG);
    if !regular || fd as usize >= table::SLOTS {
        return;
    }
    let Some(_guard) = Guard::enter() else { return };
    let description = Description::new_direct();
    let mut state = description.lock();
    state.descriptors = 1;
    if !description.track(fd) {
        description.release(&mut state);
    }
}
