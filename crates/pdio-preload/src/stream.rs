// SPDX-License-Identifier: MIT OR Apache-2.0
//! Taking a stream over, serving it, and handing it back.
//!
//! The position of a taken stream is kept here, and the kernel's offset lags behind. Before anybody
//! can see that offset, or reach the file in another way, the stream drains or is handed back.

use core::ffi::c_int;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStringExt;

use libc::{iovec, off_t};
use pdio::{Durability, OpenOptions};

use crate::acts::Acts;
use crate::guard::{self, Guard};
use crate::memory::{self, Known};
use crate::settings;
use crate::state::{self, HOLD, LOCKING, TAKEN, THREADED};
use crate::table::{self, hold, Claim, Description, Entry, Held, Kind, Locked, Passed, State};
use crate::taken::{Direction, Pump, Stream};
use crate::{look, next, report, say, signals, tell};

/// Minimum free bytes of the filesystem for writes to be deferred: with less, the call that fills
/// the disk must return the error itself.
const ROOM: u64 = 64 << 20;
/// Bytes written between two checks of the room.
const ROOM_STEP: u64 = 8 << 20;
/// Maximum offset of a taken stream, below every filesystem's largest file.
const FARTHEST: u64 = 1 << 40;
/// The same for files without extents, as those of ext2 and ext3, with the smallest blocks.
const FARTHEST_MAPPED: u64 = 16 << 30;
/// Maximum bytes that the kernel moves in one call.
const MOST: usize = 0x7fff_f000;

/// Functions of this file that lower layers call.
pub static ACTS: Acts = Acts {
    hand_over,
    keep_step,
    relinquish_writers,
    rescue,
};

/// Why a stream is not taken.
enum Refused {
    ForNow,
    ForGood,
}

fn code(error: &io::Error) -> c_int {
    error.raw_os_error().unwrap_or(libc::EIO)
}

fn failed<T: From<i8>>(why: c_int) -> T {
    crate::errno::set(why);
    T::from(-1)
}

const EXT4: u32 = 0xef53;

/// What is known of the filesystem; `None` if streams on it are not taken, as it is not a local one, on
/// a device, of known behaviour.
fn filesystem(fd: c_int) -> Option<libc::statfs64> {
    const KNOWN: [u32; 8] = [
        EXT4,        // and ext2, ext3
        0x5846_5342, // XFS
        0x9123_683e, // btrfs
        0xf2f5_2010, // f2fs
        0x794c_7630, // overlayfs
        0xca45_1a4e, // bcachefs
        0x2fc1_2fc1, // ZFS
        0x3434,      // NILFS
    ];
    // SAFETY: as in `stat`.
    let about = unsafe {
        let mut about: libc::statfs64 = core::mem::zeroed();
        (next::fstatfs64(fd, &mut about) == 0).then_some(about)?
    };
    KNOWN.contains(&(about.f_type as u32)).then_some(about)
}

/// Free bytes.
fn room(about: &libc::statfs64) -> u64 {
    about.f_bavail.saturating_mul(about.f_bsize as u64)
}

/// What is set of a file by `chattr`; nothing if the filesystem cannot say.
fn attributes(fd: c_int) -> c_int {
    let mut attributes: c_int = 0;
    // SAFETY: the kernel writes 32 bits, whatever the size in the call's number.
    match unsafe { next::ioctl(fd, libc::FS_IOC_GETFLAGS, &raw mut attributes as _) } {
        0 => attributes,
        _ => 0,
    }
}

/// Returns true if each write waits for the disk without `O_SYNC`, as the whole filesystem is mounted so, or the
/// file or its directory was marked so.
fn is_synchronous(about: &libc::statfs64, attributes: c_int) -> bool {
    /// From `<linux/fs.h>`.
    const FS_SYNC_FL: c_int = 0x8;
    about.f_flags as libc::c_ulong & libc::ST_SYNCHRONOUS != 0 || attributes & FS_SYNC_FL != 0
}

/// The offset from which on calls are left to the kernel, which knows the filesystem's limit.
fn farthest(about: &libc::statfs64, attributes: c_int) -> u64 {
    /// From `<linux/fs.h>`.
    const FS_EXTENT_FL: c_int = 0x0008_0000;
    match about.f_type as u32 == EXT4 && attributes & FS_EXTENT_FL == 0 {
        true => FARTHEST_MAPPED,
        false => FARTHEST,
    }
}

/// Returns true if another descriptor of this process leads to the file, so that a stream on `fd`
/// would miss changes, or if the process has a lock on the file: any close of a file drops all
/// record locks of the process on it, and this library closes descriptors of its own.
///
/// A reader accepts other descriptors that only read, unless they may share its offset.
fn in_the_way(fd: c_int, about: &libc::stat64, claim: Claim) -> bool {
    look::any_descriptor(about, |other| {
        // SAFETY: no memory is involved.
        let mode = || unsafe { next::fcntl64(other, libc::F_GETFL, 0) } & libc::O_ACCMODE;
        let alone = claim.writer || claim.shared;
        other != fd && (alone || mode() != libc::O_RDONLY) || look::is_locked(other)
    })
}

/// The current path of a descriptor's file.
fn path_of(fd: c_int) -> Option<CString> {
    let path = std::fs::read_link(format!("/proc/self/fd/{fd}")).ok()?;
    CString::new(path.into_os_string().into_vec()).ok()
}

impl Stream {
    /// Takes the stream if all conditions hold. All questions to the kernel are asked here, once in
    /// the life of a long stream.
    fn start(fd: c_int, claim: Claim, entry: &Description) -> Result<Stream, Refused> {
        use Refused::{ForGood, ForNow};
        let writer = claim.writer;
        let settings = settings::get();
        let about = look::stat(fd).ok_or(ForGood)?;
        // SAFETY: no memory is involved.
        let flags = unsafe { next::fcntl64(fd, libc::F_GETFL, 0) };
        let never = libc::O_APPEND | libc::O_DSYNC | libc::O_SYNC | libc::O_DIRECT | libc::O_PATH;
        let regular = about.st_mode & libc::S_IFMT == libc::S_IFREG;
        if flags < 0 || flags & never != 0 || !regular || !state::is_owner() {
            return Err(ForGood);
        }
        if !writer && (about.st_size as u64) < settings.min_size {
            return Err(ForGood);
        }
        let filesystem = filesystem(fd).ok_or(ForGood)?;
        let path = path_of(fd).ok_or(ForGood)?;
        if !settings.allows(&path) {
            return Err(ForGood);
        }
        let attributes = if writer { attributes(fd) } else { 0 };
        if writer && (!tell::may_defer() || is_synchronous(&filesystem, attributes)) {
            return Err(ForGood);
        }
        if writer && (room(&filesystem) < ROOM || limited()) {
            return Err(ForNow);
        }
        // From here on, opening the file again finds this entry.
        entry.device.store(about.st_dev, SeqCst);
        entry.inode.store(about.st_ino, SeqCst);
        table::one_more();
        let started = || {
            // A lock that is just being taken cannot be seen yet.
            if LOCKING.load(SeqCst) != 0 || in_the_way(fd, &about, claim) {
                return Err(ForNow);
            }
            // What was mapped through a descriptor that is closed since. A process may have very many
            // mappings, so this is asked only once.
            if look::is_mapped(about.st_ino, &path) {
                return Err(ForGood);
            }
            let own = table::internal_copy(fd).ok_or(ForNow)?;
            // SAFETY: a fresh descriptor.
            let file = unsafe { File::from_raw_fd(own) };
            let mut options = OpenOptions::new();
            options
                .memory_limit(settings.memory)
                .strategy(settings.strategy);
            options.linger(Some(settings.linger));
            if settings.linger.is_zero() {
                options.durability(Durability::Safe);
            }
            if writer {
                // io_uring passes requests that would block to kernel workers, for which `unshare`
                // has to wait. Threads write as fast. Readers keep io_uring: they seldom block, and
                // threads would cost them twice the processor time.
                options.engine(pdio::Engine::Threads);
            }
            let pump = match writer {
                true => options.writer_from(file).map(|mut writer| {
                    // Descriptors that this opens must not be opened between the program's calls.
                    writer.prepare();
                    Pump::Writer(writer)
                }),
                false => options
                    .reader_from(file)
                    .map(|reader| Pump::Reader(Box::new(reader))),
            };
            pump.map_err(|_| ForNow)
        };
        signals::arm(match writer && !settings.linger.is_zero() {
            true => signals::ENDS,
            false => signals::HANDLED,
        });
        match started() {
            Ok(pump) => {
                let mut stream = Stream {
                    pump,
                    path,
                    standard: false,
                    in_step: false,
                    farthest: match writer {
                        true => farthest(&filesystem, attributes),
                        false => FARTHEST,
                    },
                    written: 0,
                    defers: writer && settings.prompt && !settings.linger.is_zero(),
                    gathered: 0,
                    hasty: 0,
                    heard: pdio::times_heard(),
                };
                if fd <= libc::STDOUT_FILENO {
                    stream.becomes_standard();
                }
                Ok(stream)
            }
            Err(refused) => {
                gone(entry);
                Err(refused)
            }
        }
    }

    pub fn position(&self) -> u64 {
        match &self.pump {
            Pump::Writer(writer) => writer.position(),
            Pump::Reader(reader) => reader.position(),
        }
    }

    fn set_position(&mut self, at: u64) {
        if at != self.position() {
            // Seeking to an absolute offset only sets a number.
            let _ = match &mut self.pump {
                Pump::Writer(writer) => writer.seek(SeekFrom::Start(at)),
                Pump::Reader(reader) => reader.seek(SeekFrom::Start(at)),
            };
        }
    }

    fn descriptor(&self) -> c_int {
        match &self.pump {
            Pump::Writer(writer) => writer.file().as_raw_fd(),
            Pump::Reader(reader) => reader.file().as_raw_fd(),
        }
    }

    fn set_kernel(&self, at: u64) -> off_t {
        // SAFETY: no memory is involved.
        unsafe { next::lseek64(self.descriptor(), at as off_t, libc::SEEK_SET) }
    }

    /// Before a call: a stream in step takes its position from the kernel's offset.
    fn begin(&mut self) {
        if self.in_step {
            // SAFETY: no memory is involved.
            let at = unsafe { next::lseek64(self.descriptor(), 0, libc::SEEK_CUR) };
            if at >= 0 {
                self.set_position(at as u64);
            }
        }
    }

    fn finish(&self) {
        if self.in_step {
            self.set_kernel(self.position());
        }
    }

    /// The C library is about to read or write this file.
    fn keep_step(&mut self) {
        if self.standard && !self.in_step {
            self.set_kernel(self.position());
            self.in_step = true;
        }
    }

    /// From here on the C library may read or write this file.
    fn becomes_standard(&mut self) {
        self.standard = true;
        tell::offsets_differ();
    }

    /// Passes everything to the kernel and sets the kernel's offset. Returns the first error, and
    /// true if data remains.
    fn drain(&mut self) -> (Option<c_int>, bool) {
        self.begin();
        let Pump::Writer(writer) = &mut self.pump else {
            return (None, false);
        };
        // The first try may only report an earlier error.
        let mut first = None;
        for _ in 0..2 {
            match writer.flush() {
                Ok(()) => return (first, false),
                Err(error) => first = first.or(Some(code(&error))),
            }
        }
        self.set_kernel(self.position());
        (first, true)
    }

    /// Sets the file's times to now: part of the stream may have reached the kernel before earlier
    /// data of another stream, and the times have to show the order of the writes.
    fn touch(&self) {
        let only = |nsec| libc::timespec {
            tv_sec: 0,
            tv_nsec: nsec,
        };
        let times = [only(libc::UTIME_OMIT), only(libc::UTIME_NOW)];
        // SAFETY: two times, ours. The call fails if this user does not own the file.
        unsafe { next::futimens(self.descriptor(), times.as_ptr().cast()) };
    }

    fn write(&mut self, parts: &[iovec], at: Option<u64>) -> (usize, Option<c_int>) {
        let Pump::Writer(writer) = &mut self.pump else {
            return (0, Some(libc::EBADF));
        };
        let mut total = 0;
        for part in parts.iter().filter(|part| part.iov_len > 0) {
            // SAFETY: the program's memory; the program vouches that it is readable.
            let mut rest =
                unsafe { core::slice::from_raw_parts(part.iov_base.cast::<u8>(), part.iov_len) };
            while !rest.is_empty() {
                let result = match at {
                    Some(at) => writer.write_at(rest, at + total as u64),
                    None => writer.write(rest),
                };
                match result {
                    Ok(0) => return (total, Some(libc::EIO)),
                    Ok(n) => {
                        total += n;
                        rest = &rest[n..];
                    }
                    Err(error) => return (total, Some(code(&error))),
                }
            }
        }
        self.written += total as u64;
        (total, None)
    }

    /// Before a read: counts how often in a row little was read since the program may have been told something.
    fn listens(&mut self) {
        let heard = pdio::times_heard();
        if heard != self.heard {
            self.heard = heard;
            self.hurries(WORTH_ASKING);
        }
    }

    /// Notes what was gathered until now.
    fn hurries(&mut self, worth: u64) {
        self.hasty = match std::mem::take(&mut self.gathered) < worth {
            true => self.hasty + 1,
            false => 0,
        };
    }

    fn read(&mut self, parts: &[iovec], at: Option<u64>) -> (usize, Option<c_int>) {
        let Pump::Reader(reader) = &mut self.pump else {
            return (0, Some(libc::EBADF));
        };
        let mut total = 0;
        for part in parts.iter().filter(|part| part.iov_len > 0) {
            // SAFETY: the program's memory; the program vouches that it is writable.
            let memory =
                unsafe { core::slice::from_raw_parts_mut(part.iov_base.cast(), part.iov_len) };
            let result = match at {
                Some(at) => reader.read_at(memory, at + total as u64),
                None => reader.read(memory),
            };
            match result {
                Ok(n) => {
                    total += n;
                    if n < part.iov_len {
                        break;
                    }
                }
                Err(error) => return (total, Some(code(&error))),
            }
        }
        (total, None)
    }
}

/// Returns true if the size of files is limited. At the limit a call writes a part, and the next
/// one gets a signal: that is left to the kernel.
fn limited() -> bool {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the limit is ours.
    unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) };
    limit.rlim_cur != libc::RLIM_INFINITY
}

fn gone(entry: &Description) {
    entry.device.store(0, SeqCst);
    entry.inode.store(0, SeqCst);
    table::one_less();
}

/// Takes over a watched descriptor if that is allowed.
#[cold]
fn take(fd: c_int) {
    let Some(_guard) = Guard::enter() else { return };
    let description = Description::new();
    let mut state = description.lock();
    let Some(claim) = description.claim(fd) else {
        drop(state);
        return description.recycle();
    };
    // After the claim, so that a caller who sets `HOLD` finds the claim, or nothing is taken.
    let may = HOLD.load(SeqCst) == 0 && TAKEN.load(SeqCst) < table::most_streams();
    let started = match may {
        true => Stream::start(fd, claim, description),
        false => Err(Refused::ForNow),
    };
    match started {
        Ok(stream) => {
            state.kind = Kind::Stream(stream);
            state.descriptors = 1;
        }
        Err(refused) => {
            let again = matches!(refused, Refused::ForNow).then_some(claim);
            description.unclaim(fd, again);
            drop(state);
            description.recycle();
        }
    }
}

/// Hands a stream back for good. Returns false if data could not be written: then the stream stays,
/// and the program's next call reports the error.
pub fn hand_back(held: &mut Held, why: &str) -> bool {
    let description = held.description;
    let state = &mut *held.state;
    if let Kind::Stream(stream) = &mut state.kind {
        let (error, left) = stream.drain();
        state.error = state.error.or(error);
        if left {
            return false;
        }
        let Kind::Stream(stream) = std::mem::take(&mut state.kind) else {
            return true;
        };
        report_end(&stream, why);
        // A reader sets the kernel's offset when it is dropped.
        drop(stream);
        gone(description);
    }
    if state.error.is_none() && matches!(state.kind, Kind::Plain) {
        release(state, description);
    }
    true
}

/// Frees the description.
fn release(state: &mut State, description: &'static Description) {
    description.untrack_all();
    *state = State::default();
    description.recycle();
}

/// Minimum bytes between two hand-overs for which gathering is worth it.
const WORTH: u64 = 256 << 10;
/// Minimum bytes read between two times that the program may have been told something: for less, the
/// question for the file's times costs more than is gained.
const WORTH_ASKING: u64 = 16 << 10;
/// Hand-overs, or questions, in a row with less than that after which a stream goes back for good.
const HASTY: u32 = 8;

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
    let mut first = true;
    for description in waiting(last) {
        hand_over_one(description, first);
        first = false;
    }
    // Streams that were written to meanwhile may also have waiting data from before.
    for description in table::descriptions() {
        if description.deferred.load(SeqCst) > last && description.is_ours() {
            hand_over_one(description, first);
        }
    }
}

fn hand_over_one(description: &'static Description, first: bool) {
    let Some(mut held) = table::hold_any(description) else {
        return;
    };
    if description.deferred.swap(0, SeqCst) == 0 {
        return;
    }
    let state = &mut *held.state;
    let Kind::Stream(stream) = &mut state.kind else {
        return;
    };
    stream.hurries(WORTH);
    let (error, _) = stream.drain();
    if !first {
        stream.touch();
    }
    state.error = state.error.or(error);
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

/// For a handler of a signal that ends the process: writes what streams hold, without allocating.
fn rescue() {
    /// How often, once in a millisecond, to try a stream that another thread is working on.
    const TRIES: u32 = 5000;
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
    let Some(_guard) = Guard::enter() else {
        // A fault in the library's own work: its stream is lost, if it holds the lock.
        return rescue_all(20, None);
    };
    rescue_all(tries, why);
}

fn rescue_all(tries: u32, why: Option<&str>) {
    let pause = libc::timespec {
        tv_sec: 0,
        tv_nsec: 1_000_000,
    };
    let stamp = |description: &Description| description.deferred.load(SeqCst);
    let last = table::descriptions().map(stamp).max().unwrap_or(0);
    let others = table::descriptions()
        .filter(|&description| description.is_ours() && !(1..=last).contains(&stamp(description)));
    let mut first = true;
    for description in waiting(last).chain(others) {
        if description.device.load(SeqCst) == 0 {
            continue;
        }
        for left in (0..tries).rev() {
            if rescue_one(description, first, why) {
                break;
            }
            if left == 0 {
                say::say(&[b"the last data of a file was not written: another thread had it"]);
            }
            // SAFETY: the time is ours.
            unsafe { libc::syscall(libc::SYS_nanosleep, &pause, 0usize) };
        }
        first = false;
    }
}

/// Returns false if another thread is working on the stream.
fn rescue_one(description: &Description, first: bool, why: Option<&str>) -> bool {
    let Some(mut state) = description.try_lock() else {
        return false;
    };
    let printed = state.printed;
    let Kind::Stream(stream) = &mut state.kind else {
        return true;
    };
    stream.begin();
    if let Pump::Writer(writer) = &stream.pump {
        match writer.rescue() {
            None => return false,
            Some(Ok(())) if !first && description.deferred.load(SeqCst) != 0 => stream.touch(),
            Some(Ok(())) => {}
            Some(Err(_)) if printed => {}
            Some(Err(_)) => say::say(&[
                stream.path.as_bytes(),
                b": the last data could not be written",
            ]),
        }
    }
    stream.set_kernel(stream.position());
    if let Some(why) = why {
        report_end(stream, why);
    }
    true
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
            release(state, description);
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
    let writing = direction == Direction::Write;
    let suits = writing == matches!(stream.pump, Pump::Writer(_));
    let readable = parts.is_some();
    let parts = parts.unwrap_or_default();
    let len = parts
        .iter()
        .map(|part| part.iov_len)
        .fold(0usize, usize::saturating_add);
    let start = match at {
        Some(at) if at < 0 => return Outcome::Failed(libc::EINVAL),
        Some(at) => at,
        None => {
            stream.begin();
            stream.position() as off_t
        }
    };
    let known = parts.iter().all(|part| {
        let at = part.iov_base as usize;
        state.memory.knows(at, part.iov_len, !writing)
    });
    let mut used = len;
    if !writing && !known {
        // To look at memory brings it there, which a read does only as far as the file reaches.
        let size = look::stat(stream.descriptor()).map_or(0, |about| about.st_size);
        used = used.min(size.saturating_sub(start).max(0) as usize);
    }
    let proper = readable
        && len <= MOST
        && start as u64 + (len as u64) < stream.farthest
        && (known || present(&mut state.memory, parts, used, !writing));
    let why = match (suits, proper) {
        (false, _) if writing => Some("written"),
        (false, _) => Some("read while written"),
        (_, false) => Some("an unusual call"),
        // Not in the hand-over itself, which a handler of a signal may have caused while this thread
        // was allocating.
        _ if stream.hasty >= HASTY && writing => Some("others were told too often"),
        _ if stream.hasty >= HASTY => Some("others told too often"),
        _ if writing && stream.written >= ROOM_STEP => {
            stream.written = 0;
            let about = filesystem(stream.descriptor());
            let enough = about.is_some_and(|about| room(&about) >= ROOM);
            (!enough).then_some("little room is left")
        }
        _ => None,
    };
    if let Some(why) = why {
        return Outcome::HandBack(why);
    }
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
            if writing {
                state.error = Some(error);
            }
            Outcome::Done(n as isize)
        }
    }
}

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

extern "C-unwind" {
    fn pthread_testcancel();
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
        match table::entry(fd) {
            Entry::Internal => return plain(),
            Entry::Nothing => {
                match direction {
                    Direction::Read => tell::reading(fd),
                    Direction::Write => tell::writing(fd),
                }
                let n = plain();
                if direction == Direction::Read {
                    tell::heard();
                }
                return n;
            }
            Entry::Watched => {
                match direction {
                    Direction::Read => tell::reading(fd),
                    Direction::Write => tell::writing(fd),
                }
                if !table::begin(fd) {
                    // Closed or taken since the lookup: look it up again.
                    table::give_up_counting(fd);
                    continue;
                }
                let n = plain();
                if direction == Direction::Read {
                    tell::heard();
                }
                let how = match at {
                    None if n > 0 => Passed::InSequence {
                        bytes: n as u64,
                        writing: direction == Direction::Write,
                    },
                    None => Passed::Nothing,
                    Some(_) => Passed::Elsewhere,
                };
                let bytes = table::end(fd, how);
                if bytes > 0 && bytes >= settings::get().sequential {
                    take(fd);
                }
                return n;
            }
            Entry::Tracked(description) => {
                if direction == Direction::Write && description.device.load(Relaxed) == 0 {
                    // Not a stream, but direct I/O of the program's own.
                    tell::writing(fd);
                }
                // SAFETY: no preconditions; nothing here needs to be dropped if the thread ends.
                unsafe { pthread_testcancel() };
                if description.direct.load(Relaxed) {
                    let n = plain();
                    if n >= 0 || crate::errno::get() != libc::EINVAL {
                        if direction == Direction::Read {
                            tell::heard();
                        }
                        return n;
                    }
                }
                let outcome = match hold(fd, description) {
                    Locked::Held(mut held) => serve(&mut held, fd, direction, parts, at),
                    Locked::Again => Outcome::Again,
                    Locked::Inside => Outcome::Failed(libc::EINTR),
                };
                match outcome {
                    Outcome::Done(n) => {
                        if direction == Direction::Read && description.device.load(Relaxed) == 0 {
                            tell::heard();
                        }
                        return n;
                    }
                    Outcome::Failed(error) => return failed(error),
                    Outcome::Again => {}
                    // Without the lock: what other streams hold was written first and goes first.
                    // If something cannot be written, the stream stays and the next round fails.
                    Outcome::HandBack(why) => relinquish(fd, why),
                }
            }
        }
    }
}

/// Runs `action` on the locked description of a tracked descriptor; `None` if it is not tracked.
fn with<T>(fd: c_int, action: impl FnOnce(&mut Held) -> T) -> Option<T> {
    loop {
        let Entry::Tracked(description) = table::entry(fd) else {
            return None;
        };
        match hold(fd, description) {
            Locked::Held(mut held) => return Some(action(&mut held)),
            Locked::Again => {}
            Locked::Inside => return None,
        }
    }
}

/// `lseek` on a descriptor that is watched or tracked.
pub fn seek(fd: c_int, by: off_t, whence: c_int) -> off_t {
    // SAFETY: no memory is involved.
    let real = |by, whence| unsafe { next::lseek64(fd, by, whence) };
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
        let error = crate::errno::get();
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

/// Before a call that can show what this stream's file is. If something of it waits, what waits of other
/// streams goes with it, as their times must keep the order of the writes. Files that are only read show
/// nothing of what waits.
fn showing(fd: c_int) {
    match table::entry(fd) {
        Entry::Tracked(description) if description.deferred.load(SeqCst) != 0 => tell::hand_over(),
        _ => {}
    }
}

/// Passes everything that was written to a descriptor to the kernel. Returns an error only with
/// `report`; otherwise the error is kept.
pub fn drain(fd: c_int, report: bool) -> Result<(), c_int> {
    showing(fd);
    with(fd, |held| {
        let state = &mut *held.state;
        if let Kind::Stream(stream) = &mut state.kind {
            let (error, _) = stream.drain();
            state.error = state.error.or(error);
        }
        match report.then(|| state.told()).flatten() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    })
    .unwrap_or(Ok(()))
}

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
    with(fd, |held| match &held.state.kind {
        Kind::Stream(s) if matches!(s.pump, Pump::Reader(_)) => {
            hand_back(held, "locked");
        }
        _ => {}
    });
    let _ = drain(fd, false);
}

/// After a lock of another kind was got, through whichever descriptor: what readers of the file hold
/// may be older than what its last owner wrote.
pub fn after_lock(fd: c_int) {
    if TAKEN.load(SeqCst) == 0 || guard::inside() {
        return;
    }
    let Some(about) = look::stat(fd) else { return };
    for fd in taken(about.st_dev, about.st_ino) {
        with(fd, |held| match &held.state.kind {
            Kind::Stream(s) if matches!(s.pump, Pump::Reader(_)) => {
                hand_back(held, "locked");
            }
            _ => {}
        });
    }
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

/// As [`relinquish`], for all writing streams.
fn relinquish_writers(why: &str) {
    tell::hand_over();
    for description in table::descriptions() {
        if !description.is_ours() {
            continue;
        }
        if let Some(mut held) = table::hold_any(description) {
            if let Kind::Stream(Stream {
                pump: Pump::Writer(_),
                ..
            }) = held.state.kind
            {
                hand_back(&mut held, why);
            }
        }
    }
}

/// As [`relinquish`], for all descriptors. Direct I/O is still repaired.
pub fn relinquish_all(why: &str) {
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

/// Passes everything of all streams to the kernel.
pub fn drain_all() {
    tell::hand_over();
    tell::heard();
    if TAKEN.load(SeqCst) > 0 {
        for (fd, _) in table::known() {
            // Errors are kept for their streams.
            let _ = drain(fd, false);
        }
    }
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
                say_lost(stream, error);
            }
        });
    }
}

/// Prints an error that no call of the program can return.
fn say_lost(stream: &Stream, error: c_int) {
    let text = io::Error::from_raw_os_error(error).to_string();
    let path = stream.path.as_bytes();
    say::say(&[
        path,
        b": the last data could not be written: ",
        text.as_bytes(),
    ]);
}

/// The descriptors through which a file is taken.
fn taken(device: u64, inode: u64) -> impl Iterator<Item = c_int> {
    table::known().filter_map(move |(fd, entry)| match entry {
        Entry::Tracked(d) => {
            let same = d.inode.load(Relaxed) == inode && d.device.load(Relaxed) == device;
            (same && device != 0).then_some(fd)
        }
        _ => None,
    })
}

/// Passes to the kernel what streams of this process hold of a file. Returns true if there was a
/// writer.
pub fn drain_file(device: u64, inode: u64) -> bool {
    let mut any = false;
    for fd in taken(device, inode) {
        showing(fd);
        any |= with(fd, |held| match &mut held.state.kind {
            Kind::Stream(stream) if matches!(stream.pump, Pump::Writer(_)) => {
                let (error, _) = stream.drain();
                held.state.error = held.state.error.or(error);
                true
            }
            _ => false,
        })
        .unwrap_or(false);
    }
    any
}

/// Hands back the streams on a file to which there is another way now. Readers stay if that way is
/// not `writable`.
pub fn relinquish_file(device: u64, inode: u64, writable: bool, why: &str) {
    for fd in taken(device, inode) {
        tell::hand_over();
        with(fd, |held| {
            let reader =
                matches!(&held.state.kind, Kind::Stream(s) if matches!(s.pump, Pump::Reader(_)));
            if writable || !reader {
                hand_back(held, why);
            }
        });
    }
}

/// As [`relinquish_file`], for the file behind a descriptor.
pub fn relinquish_behind(fd: c_int, writable: bool, why: &str) {
    if TAKEN.load(SeqCst) > 0 && !guard::inside() {
        crate::errno::keep(|| {
            if let Some(about) = look::stat(fd) {
                relinquish_file(about.st_dev, about.st_ino, writable, why);
            }
        });
    }
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
    let errno = crate::errno::get();
    // SAFETY: the program's path, which it is about to give to the kernel.
    let about = unsafe {
        let mut about: libc::stat64 = core::mem::zeroed();
        (next::fstatat64(directory, path, &mut about, flags) == 0).then_some(about)
    };
    if let Some(about) = about {
        match then {
            Then::Drain => {
                drain_file(about.st_dev, about.st_ino);
            }
            Then::HandBack(why) => relinquish_file(about.st_dev, about.st_ino, true, why),
        }
    }
    crate::errno::set(errno);
}

/// `close` on a descriptor that has a word.
pub fn close(fd: c_int) -> c_int {
    let mut error = None;
    tell::closing(fd);
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
            Entry::Tracked(_) => {
                // If it is not tracked any more, it may be watched again.
                if let Some(error) = with(fd, |held| leave_held(held, fd, why, tells)) {
                    return error;
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
            say_lost(&stream, error);
        }
        report_end(&stream, "closed with an error");
        drop(stream);
        gone(description);
    }
    if description.untrack(fd) {
        release(&mut held.state, description);
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
    crate::errno::keep(|| file(from) != file(to))
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
        release(&mut state, description);
    }
}

/// Reports a stream that is no longer taken.
fn report_end(stream: &Stream, why: &str) {
    let counts = || {
        let (word, stats) = match &stream.pump {
            Pump::Writer(writer) => ("written", writer.stats()),
            Pump::Reader(reader) => ("read", reader.stats()),
        };
        (
            word,
            [stats.bytes, stats.direct_bytes, stats.buffered_bytes],
        )
    };
    report::ended(&stream.path, counts, why);
}

#[cfg(test)]
mod tests {
    use super::*;

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
