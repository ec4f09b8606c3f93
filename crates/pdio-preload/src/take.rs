// SPDX-License-Identifier: MIT OR Apache-2.0
//! Taking a stream over, and when not to.
//!
//! A stream is taken only if the program will not notice: nothing else in this process reaches the
//! file, no call has to wait for the disk, and a write that is held back cannot fail. All questions to
//! the kernel are asked here, once in the life of a long stream. What may be otherwise later is asked again, ever less
//! often.

use core::ffi::c_int;
use core::sync::atomic::Ordering::SeqCst;
use std::ffi::CString;
use std::fs::File;
use std::os::fd::FromRawFd;
use std::os::unix::ffi::OsStringExt;

use pdio::{Durability, OpenOptions, Strategy};

use crate::filesystem::{self, Filesystem, FARTHEST};
use crate::guard::Guard;
use crate::state::{self, HOLD, LOCKING, TAKEN};
use crate::table::{self, Claim, Description, Kind};
use crate::taken::{Pump, Stream};
use crate::{look, next, settings, signals, tell};

/// Why a stream is not taken.
enum Refused {
    ForNow,
    ForGood,
}

/// Takes over a watched descriptor if that is allowed; `long`: it writes in calls of 64 KiB and more.
#[cold]
pub fn take(fd: c_int, long: bool) {
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
        true => start(fd, claim, long, description),
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

/// Starts the stream of a claimed descriptor if all conditions hold.
fn start(fd: c_int, claim: Claim, long: bool, entry: &Description) -> Result<Stream, Refused> {
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
    // Streams have memory, and each of their threads a heap of the C library's, of 64 MiB of addresses.
    if limited(libc::RLIMIT_AS) || limited(libc::RLIMIT_DATA) {
        return Err(ForGood);
    }
    if !writer && (about.st_size as u64) < settings.min_size {
        return Err(ForGood);
    }
    let filesystem = Filesystem::of(fd).ok_or(ForGood)?;
    if long && filesystem.copies_long_writes() && settings.strategy == Strategy::Auto {
        return Err(ForGood);
    }
    let path = path_of(fd).ok_or(ForGood)?;
    if !settings.allows(&path) {
        return Err(ForGood);
    }
    let attributes = if writer {
        filesystem::attributes(fd)
    } else {
        0
    };
    if writer && (!tell::may_defer() || filesystem.is_synchronous(attributes)) {
        return Err(ForGood);
    }
    // At the limit of a file's size a call writes a part, and the next one gets a signal: that is left to
    // the kernel.
    if writer && (!filesystem.has_room() || limited(libc::RLIMIT_FSIZE)) {
        return Err(ForNow);
    }
    // From here on, opening the file again finds this entry.
    entry.begins(about.st_dev, about.st_ino, writer);
    // Only a writer that holds nothing back has nothing to do at the end.
    signals::arm(match writer && settings.linger.is_zero() {
        true => signals::HANDLED,
        false => signals::ENDS,
    });
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
        pump(fd, writer).ok_or(ForNow)
    };
    let pump = started().inspect_err(|_| entry.ends())?;
    let mut stream = Stream {
        pump,
        path,
        older: (about.st_mtime, about.st_mtime_nsec),
        standard: false,
        in_step: false,
        farthest: match writer {
            true => filesystem.farthest(attributes),
            false => FARTHEST,
        },
        written: 0,
        copies: writer && (look::needs_stable_data(about.st_dev) || filesystem.is_elsewhere(fd)),
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

/// Opens the file once more, for pdio.
fn pump(fd: c_int, writer: bool) -> Option<Pump> {
    let settings = settings::get();
    let own = table::internal_copy(fd)?;
    // SAFETY: a fresh descriptor.
    let file = unsafe { File::from_raw_fd(own) };
    // SAFETY: no memory is involved.
    if unsafe { next::lseek64(own, 0, libc::SEEK_CUR) } < 0 {
        // Without an offset there is nothing to gather or to read ahead.
        return None;
    }
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
        // The program's own writes would be in order, also where they overwrite.
        options.in_order(true);
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
    pump.ok()
}

/// Returns true if the process has a limit of this kind.
fn limited(resource: libc::__rlimit_resource_t) -> bool {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the limit is ours.
    unsafe { libc::getrlimit(resource, &mut limit) };
    limit.rlim_cur != libc::RLIM_INFINITY
}

/// Returns true if another descriptor of this process leads to the file, so that a stream on `fd`
/// would miss changes, or if the process has a lock on the file: any close of a file drops all
/// record locks of the process on it, and this library closes descriptors of its own. True as well if the
/// process has too many descriptors to look at.
///
/// A reader accepts other descriptors that only read, unless they may share its offset.
fn in_the_way(fd: c_int, about: &libc::stat64, claim: Claim) -> bool {
    /// To look at one takes 1.5 us, and the program's call waits.
    const MOST: usize = 1024;
    look::any_descriptor(about, MOST, |other| {
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
