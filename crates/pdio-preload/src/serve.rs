// SPDX-License-Identifier: MIT OR Apache-2.0
//! The calls that pdio serves: `read`, `write` and `lseek` at the position of a stream, or at an offset.
//!
//! On a descriptor that is watched they count what passes in sequence, until its stream is taken. On
//! one that is taken they go to the stream, unless that cannot do what the kernel would: then it goes back
//! and the call is the kernel's.

use core::ffi::c_int;
use core::sync::atomic::Ordering::Relaxed;
use std::io::{Seek, SeekFrom};

use libc::{iovec, off_t};

use crate::errno::{self, failed};
use crate::give_way::relinquish;
use crate::memory::{self, Known};
use crate::table::{self, hold, with, Description, Entry, Held, Kind, Locked, Passed};
use crate::take::take;
use crate::taken::{Direction, Pump, Stream};
use crate::{guard, look, next, settings, signals, state, tell};

/// Maximum bytes that the kernel moves in one call.
const MOST: usize = 0x7fff_f000;

/// The memory of a call, as the program named it.
#[derive(Clone, Copy)]
pub enum Parts {
    One(iovec),
    Many(*const iovec, c_int),
}

impl Parts {
    /// `None` if there are no parts, or they cannot be read.
    fn get(&self, known: &mut Known) -> Option<&[iovec]> {
        match self {
            Parts::One(part) => Some(core::slice::from_ref(part)),
            // SAFETY: the program vouches for them, and is in this call.
            Parts::Many(parts, count @ 1..=libc::UIO_MAXIOV) => unsafe {
                memory::parts(known, *parts, *count)
            },
            Parts::Many(..) => None,
        }
    }
}

/// The result of a call on a tracked descriptor.
enum Outcome {
    Done(isize),
    Failed(c_int),
    /// The library no longer has the descriptor: look it up again.
    Again,
    /// The stream must go back for this reason, and the call is the kernel's.
    HandBack(&'static str),
}

extern "C-unwind" {
    fn pthread_testcancel();
}

/// Returns true for descriptors of this library's, which to the program are closed, and sets `errno` to say so.
pub fn hidden(fd: c_int) -> bool {
    let hidden =
        matches!(table::entry(fd), Entry::Internal) && !guard::inside() && !state::borrowed();
    if hidden {
        errno::set(libc::EBADF);
    }
    hidden
}

/// A read or write on a descriptor that is watched or tracked; `plain` is the call itself.
pub fn transfer(
    fd: c_int,
    direction: Direction,
    parts: Parts,
    at: Option<off_t>,
    plain: &mut dyn FnMut() -> isize,
) -> isize {
    loop {
        let outcome = match table::entry(fd) {
            Entry::Internal if hidden(fd) => return -1,
            Entry::Internal => return plain(),
            Entry::Nothing => {
                before(fd, direction);
                let n = plain();
                after(fd, direction);
                return n;
            }
            Entry::Watched => watched(fd, direction, at, plain),
            Entry::Tracked(description) => tracked(fd, description, direction, parts, at, plain),
        };
        match outcome {
            Outcome::Done(n) => return n,
            Outcome::Failed(error) => return failed(error),
            Outcome::Again => {}
            // Without the lock: what other streams hold was written first and goes first.
            // If something cannot be written, the stream stays and the next round fails.
            Outcome::HandBack(why) => relinquish(fd, why),
        }
    }
}

/// Before a call that goes straight to the kernel.
fn before(fd: c_int, direction: Direction) {
    match direction {
        Direction::Read => tell::reading(fd),
        Direction::Write => tell::writing(fd),
    }
}

/// After a call that went straight to the kernel.
fn after(fd: c_int, direction: Direction) {
    match direction {
        Direction::Read => tell::heard(),
        Direction::Write => tell::changed(fd),
    }
}

/// A call on a watched descriptor. From a long enough sequence on, its stream is taken.
fn watched(
    fd: c_int,
    direction: Direction,
    at: Option<off_t>,
    plain: &mut dyn FnMut() -> isize,
) -> Outcome {
    before(fd, direction);
    if !table::begin(fd) {
        // Closed or taken since the lookup.
        table::give_up_counting(fd);
        return Outcome::Again;
    }
    let n = plain();
    after(fd, direction);
    let how = match at {
        None if n > 0 => Passed::InSequence {
            bytes: n as u64,
            writing: direction == Direction::Write,
        },
        None => Passed::Nothing,
        Some(_) => Passed::Elsewhere,
    };
    let bytes = table::end(fd, how);
    /// Of long writes only the copy is saved, and the first of them waits for the disk.
    const LONG: isize = 64 << 10;
    let long = direction == Direction::Write && n >= LONG;
    let least = settings::get().sequential;
    if bytes > 0 && bytes >= if long { least.saturating_mul(4) } else { least } {
        take(fd, long);
    }
    Outcome::Done(n)
}

/// A call on a tracked descriptor: a stream's, or direct I/O of the program's own.
fn tracked(
    fd: c_int,
    description: &'static Description,
    direction: Direction,
    parts: Parts,
    at: Option<off_t>,
    plain: &mut dyn FnMut() -> isize,
) -> Outcome {
    let is_stream = || description.device.load(Relaxed) != 0;
    if direction == Direction::Write && !is_stream() {
        tell::writing(fd);
    }
    if !next::is_bare() {
        // SAFETY: no preconditions; nothing here needs to be dropped if the thread ends.
        unsafe { pthread_testcancel() };
    }
    if description.direct.load(Relaxed) {
        let n = plain();
        if n >= 0 || errno::get() != libc::EINVAL {
            after(fd, direction);
            return Outcome::Done(n);
        }
    }
    // The kernel reads at several places at once; here each would wait for the device in its turn.
    if direction == Direction::Read
        && at.is_some()
        && is_stream()
        && description.is_held_elsewhere()
    {
        return Outcome::HandBack("read by several threads at once");
    }
    let outcome = match hold(fd, description) {
        Locked::Held(mut held) => serve(&mut held, fd, direction, parts, at),
        Locked::Again => Outcome::Again,
        Locked::Inside => Outcome::Failed(libc::EINTR),
    };
    if matches!(outcome, Outcome::Done(_)) && !is_stream() {
        after(fd, direction);
    }
    outcome
}

fn serve(
    held: &mut Held,
    fd: c_int,
    direction: Direction,
    parts: Parts,
    at: Option<off_t>,
) -> Outcome {
    let description = held.description;
    let state = &mut *held.state;
    if let Some(error) = state.told() {
        if let Kind::Stream(stream) = &mut state.kind {
            // Tries the failed data once more. If that fails too, it is not a second error now; the
            // next call reports it.
            stream.drain();
        }
        return Outcome::Failed(error);
    }
    let parts = parts.get(&mut state.memory);
    let stream = match &mut state.kind {
        Kind::Plain => {
            description.release(state);
            return Outcome::Again;
        }
        Kind::Aligned(aligned) => {
            let known = &mut state.memory;
            let there = |parts: &[iovec]| present(known, parts, MOST, direction == Direction::Read);
            return match aligned.transfer(fd, direction, parts, at, there) {
                Ok(n) => Outcome::Done(n),
                Err(error) => Outcome::Failed(error),
            };
        }
        Kind::Stream(stream) => stream,
    };
    let start = match at {
        Some(at) if at < 0 => return Outcome::Failed(libc::EINVAL),
        Some(at) => at,
        None => {
            stream.begin();
            stream.position() as off_t
        }
    };
    let parts = match servable(stream, &mut state.memory, direction, parts, start) {
        Ok(parts) => parts,
        Err(why) => return Outcome::HandBack(why),
    };
    let place = at.map(|at| at as u64);
    let (n, error) = match direction {
        Direction::Write => {
            let result = stream.write(parts, place);
            if stream.defers {
                stream.gathered += result.0 as u64;
                tell::deferred(&description.deferred);
            }
            if signals::ending() {
                let (error, _) = stream.drain();
                state.error = state.error.or(error);
            }
            result
        }
        Direction::Read => {
            stream.listens();
            let result = stream.read(parts, place);
            stream.gathered += result.0 as u64;
            result
        }
    };
    if at.is_none() {
        stream.finish();
    }
    match error {
        None => Outcome::Done(n as isize),
        Some(error) if n == 0 => Outcome::Failed(error),
        Some(error) => {
            // Some data was moved, so a write's error is kept. A read's error comes again by
            // itself.
            if direction == Direction::Write {
                state.error = Some(error);
            }
            Outcome::Done(n as isize)
        }
    }
}

/// The parts of a call that the stream can serve; otherwise why it cannot.
fn servable<'a>(
    stream: &mut Stream,
    known: &mut Known,
    direction: Direction,
    parts: Option<&'a [iovec]>,
    start: off_t,
) -> Result<&'a [iovec], &'static str> {
    match (stream.direction(), direction) {
        (Direction::Read, Direction::Write) => return Err("written"),
        (Direction::Write, Direction::Read) => return Err("read while written"),
        _ => {}
    }
    let usual = parts.filter(|parts| is_usual(stream, known, direction, parts, start));
    let parts = usual.ok_or("an unusual call")?;
    // Not in the hand-over itself, which a handler of a signal may have caused while this thread
    // was allocating.
    if stream.is_hasty() {
        return Err(match direction {
            Direction::Write => "others were told too often",
            Direction::Read => "others told too often",
        });
    }
    match stream.lacks_room() {
        true => Err("little room is left"),
        false => Ok(parts),
    }
}

/// Returns true if a call moves no more than the kernel would and stays below the largest offset, and all
/// memory that it will use is there.
fn is_usual(
    stream: &Stream,
    known: &mut Known,
    direction: Direction,
    parts: &[iovec],
    start: off_t,
) -> bool {
    let fills = direction == Direction::Read;
    let len = parts
        .iter()
        .map(|part| part.iov_len)
        .fold(0usize, usize::saturating_add);
    if len > MOST || start as u64 + len as u64 >= stream.farthest {
        return false;
    }
    let is_known = |part: &iovec| known.knows(part.iov_base as usize, part.iov_len, fills);
    if parts.iter().all(is_known) {
        return true;
    }
    let used = match direction {
        Direction::Write => len,
        Direction::Read => {
            // To look at memory brings it there, which a read does only as far as the file reaches.
            let size = look::stat(stream.descriptor()).map_or(0, |about| about.st_size);
            len.min(size.saturating_sub(start).max(0) as usize)
        }
    };
    present(known, parts, used, fills)
}

/// Returns true if the first `len` bytes of the parts are accessible, and the kernel would not refuse the
/// rest.
fn present(known: &mut Known, parts: &[iovec], mut len: usize, write: bool) -> bool {
    parts.iter().all(|part| {
        let n = part.iov_len.min(len);
        len -= n;
        let (at, whole) = (part.iov_base as usize, n > 0 && n == part.iov_len);
        known.holds(at, n, write) && (whole || memory::is_the_programs(at, part.iov_len))
    })
}

/// `lseek` on a descriptor that is watched or tracked.
pub fn seek(fd: c_int, by: off_t, whence: c_int) -> off_t {
    // SAFETY: no memory is involved.
    let real = |by, whence| unsafe { next::lseek64(fd, by, whence) };
    if hidden(fd) {
        return -1;
    }
    if let Entry::Watched = table::entry(fd) {
        if table::begin(fd) {
            let at = real(by, whence);
            let asks = by == 0 && whence == libc::SEEK_CUR;
            table::end(
                fd,
                if asks {
                    Passed::Nothing
                } else {
                    Passed::Elsewhere
                },
            );
            return at;
        }
    }
    let at = with(fd, |held| {
        let state = &mut *held.state;
        let Kind::Stream(stream) = &mut state.kind else {
            return None;
        };
        stream.begin();
        let at = stream.position();
        let result = match whence {
            libc::SEEK_CUR if by == 0 => return Some(Ok(at as off_t)),
            libc::SEEK_SET => real(by, whence),
            libc::SEEK_CUR => {
                stream.set_kernel(at);
                real(by, whence)
            }
            // The end of the file, holes and data are those that the kernel sees.
            _ => {
                let (error, left) = stream.drain();
                state.error = state.error.or(error);
                match &mut stream.pump {
                    // The end includes data that cannot be written now.
                    Pump::Writer(writer) if left && whence == libc::SEEK_END => {
                        match writer.seek(SeekFrom::End(by)) {
                            Ok(at) => real(at as off_t, libc::SEEK_SET),
                            Err(_) => failed(libc::EINVAL),
                        }
                    }
                    _ => real(by, whence),
                }
            }
        };
        let error = errno::get();
        Some(match result {
            -1 => Err(error),
            to => {
                stream.set_position(to as u64);
                Ok(to)
            }
        })
    });
    match at.flatten() {
        Some(Ok(at)) => at,
        Some(Err(error)) => failed(error),
        None => real(by, whence),
    }
}
