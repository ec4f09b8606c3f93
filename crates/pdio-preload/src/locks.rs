// SPDX-License-Identifier: MIT OR Apache-2.0
//! Locks on files, by which processes tell each other whose turn it is.
//!
//! What was written has to be with the kernel before a lock is let go, and what was read ahead may be
//! old once one is got. Record locks are worse: any close of the file, also of a descriptor of this
//! library's, drops all that the process has.

use core::ffi::c_int;
use core::sync::atomic::Ordering::SeqCst;

use crate::give_way::{drain, hand_back, relinquish, relinquish_behind};
use crate::state::{self, LOCKING, TAKEN};
use crate::table::{self, with};
use crate::taken::Direction;
use crate::{guard, look, tell};

/// Runs a call that may give the process a record lock. The lock belongs to the process and the
/// file: streams on that file go back before, and nothing is taken until the call is over.
pub fn with_record_lock(fd: c_int, call: impl FnOnce() -> c_int) -> c_int {
    if guard::inside() || state::borrowed() {
        return call();
    }
    // If a handler jumps out of the call, this stays counted, and nothing is taken any more.
    LOCKING.fetch_add(1, SeqCst);
    relinquish(fd, "locked");
    relinquish_behind(fd, true, "locked");
    let result = call();
    LOCKING.fetch_sub(1, SeqCst);
    result
}

/// Before a lock of another kind changes: writers drain, readers go back for good.
pub fn before_lock(fd: c_int) {
    tell::locking();
    reader_goes_back(fd);
    drain(fd);
}

/// After a lock of another kind was got, through whichever descriptor: what readers of the file hold
/// may be older than what its last owner wrote.
pub fn after_lock(fd: c_int) {
    if TAKEN.load(SeqCst) == 0 || guard::inside() {
        return;
    }
    let Some(about) = look::stat(fd) else { return };
    for fd in table::leading_to(about.st_dev, about.st_ino) {
        reader_goes_back(fd);
    }
}

fn reader_goes_back(fd: c_int) {
    with(fd, |held| {
        if held.state.kind.direction() == Some(Direction::Read) {
            hand_back(held, "locked");
        }
    });
}
