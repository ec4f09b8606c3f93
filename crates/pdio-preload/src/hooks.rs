// SPDX-License-Identifier: MIT OR Apache-2.0
//! The exported calls on descriptors and paths.
//!
//! The first thing that a call on a descriptor does is to look at its word in the table; where that
//! is zero, the C library's function is all that follows.
#![allow(
    unsafe_op_in_unsafe_fn,
    clippy::missing_safety_doc,
    reason = "each function takes what the C function of its name takes, and passes it on"
)]
#![allow(
    unknown_lints,
    invalid_runtime_symbol_definitions,
    reason = "a blocking call may end the thread that is cancelled in it, by unwinding; older compilers do not know the lint"
)]

use core::ffi::{c_char, c_int, c_long, c_uint, c_ulong, c_void};
use core::sync::atomic::Ordering::SeqCst;

use libc::{iovec, mode_t, off_t, size_t, ssize_t};

use crate::all::{drain_all, relinquish_all, told_of_filesystem};
use crate::give_way::{drain_file, drain_or_fail, on_path, relinquish, relinquish_behind, Then};
use crate::jump::{self, ALWAYS};
use crate::makers::make;
use crate::next::{alias, before};
use crate::serve::{self, hidden, transfer, Parts};
use crate::state::TAKEN;
use crate::table::{self, word};
use crate::taken::Direction;
use crate::{
    descriptors, give_way, guard, locks, look, memory, next, process, settings, state, tell,
};

macro_rules! export {
    ($($(#[$about:meta])* fn $name:ident($($arg:ident: $type:ty),*) -> $ret:ty $body:block)*) => {$(
        $(#[$about])*
        #[no_mangle]
        pub unsafe extern "C-unwind" fn $name($($arg: $type),*) -> $ret $body
    )*};
}

/// The same for calls by which the program hears of something.
macro_rules! news {
    ($(fn $name:ident($($arg:ident: $type:ty),*) -> $ret:ty { $($first:stmt;)* })*) => {$(
        #[no_mangle]
        pub unsafe extern "C-unwind" fn $name($($arg: $type),*) -> $ret {
            $($first)*
            let result = next::$name($($arg),*);
            tell::heard();
            result
        }
    )*};
}

type Path = *const c_char;
const HERE: c_int = libc::AT_FDCWD;
const NOFOLLOW: c_int = libc::AT_SYMLINK_NOFOLLOW;

// ------------------------------------------------------------------------------ read and write

/// A call with one buffer on a descriptor that has a word. Apart, so that the way past it needs no
/// stack.
#[cold]
#[inline(never)]
unsafe fn single(
    fd: c_int,
    direction: Direction,
    data: *mut c_void,
    len: size_t,
    at: Option<off_t>,
) -> ssize_t {
    let part = iovec {
        iov_base: data,
        iov_len: len,
    };
    transfer(
        fd,
        direction,
        Parts::One(part),
        at,
        &mut || match (direction, at) {
            (Direction::Read, None) => next::read(fd, data, len),
            (Direction::Read, Some(at)) => next::pread64(fd, data, len, at),
            (Direction::Write, None) => next::write(fd, data, len),
            (Direction::Write, Some(at)) => next::pwrite64(fd, data, len, at),
        },
    )
}

/// How many parts of a call may be served or done over: with flags, which only the kernel can heed,
/// none.
fn unflagged(count: c_int, flags: c_int) -> c_int {
    match flags {
        0 => count,
        _ => 0,
    }
}

/// A vectored call on a descriptor that has a word.
unsafe fn vectored(
    fd: c_int,
    direction: Direction,
    parts: *const iovec,
    count: c_int,
    at: Option<off_t>,
    mut plain: impl FnMut() -> ssize_t,
) -> ssize_t {
    transfer(fd, direction, Parts::Many(parts, count), at, &mut plain)
}

export! {
    fn read(fd: c_int, data: *mut c_void, len: size_t) -> ssize_t {
        if table::quiet(fd) {
            return next::read(fd, data, len);
        }
        single(fd, Direction::Read, data, len, None)
    }
    fn write(fd: c_int, data: *const c_void, len: size_t) -> ssize_t {
        if table::quiet(fd) {
            return next::write(fd, data, len);
        }
        single(fd, Direction::Write, data.cast_mut(), len, None)
    }
    fn pread64(fd: c_int, data: *mut c_void, len: size_t, at: off_t) -> ssize_t {
        if table::quiet(fd) {
            return next::pread64(fd, data, len, at);
        }
        single(fd, Direction::Read, data, len, Some(at))
    }
    fn pwrite64(fd: c_int, data: *const c_void, len: size_t, at: off_t) -> ssize_t {
        if table::quiet(fd) {
            return next::pwrite64(fd, data, len, at);
        }
        single(fd, Direction::Write, data.cast_mut(), len, Some(at))
    }
    fn __read_chk(fd: c_int, data: *mut c_void, len: size_t, size: size_t) -> ssize_t {
        // The overflow that the check is for is the C library's to report.
        if table::quiet(fd) || len > size {
            return next::__read_chk(fd, data, len, size);
        }
        read(fd, data, len)
    }
    fn __pread64_chk(
        fd: c_int, data: *mut c_void, len: size_t, at: off_t, size: size_t
    ) -> ssize_t {
        if table::quiet(fd) || len > size {
            return next::__pread64_chk(fd, data, len, at, size);
        }
        pread64(fd, data, len, at)
    }
    fn readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
        if table::quiet(fd) {
            return next::readv(fd, parts, count);
        }
        vectored(fd, Direction::Read, parts, count, None, || next::readv(fd, parts, count))
    }
    fn writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
        if table::quiet(fd) {
            return next::writev(fd, parts, count);
        }
        vectored(fd, Direction::Write, parts, count, None, || next::writev(fd, parts, count))
    }
    fn preadv64(fd: c_int, parts: *const iovec, count: c_int, at: off_t) -> ssize_t {
        if table::quiet(fd) {
            return next::preadv64(fd, parts, count, at);
        }
        vectored(fd, Direction::Read, parts, count, Some(at), || {
            next::preadv64(fd, parts, count, at)
        })
    }
    fn pwritev64(fd: c_int, parts: *const iovec, count: c_int, at: off_t) -> ssize_t {
        if table::quiet(fd) {
            return next::pwritev64(fd, parts, count, at);
        }
        vectored(fd, Direction::Write, parts, count, Some(at), || {
            next::pwritev64(fd, parts, count, at)
        })
    }
    fn preadv64v2(
        fd: c_int, parts: *const iovec, count: c_int, at: off_t, flags: c_int
    ) -> ssize_t {
        if word(fd) != 0 && flags != 0 {
            relinquish(fd, "preadv2 with flags");
        }
        let place = (at != -1).then_some(at);
        vectored(fd, Direction::Read, parts, unflagged(count, flags), place, || {
            next::preadv64v2(fd, parts, count, at, flags)
        })
    }
    fn pwritev64v2(
        fd: c_int, parts: *const iovec, count: c_int, at: off_t, flags: c_int
    ) -> ssize_t {
        if word(fd) != 0 && flags != 0 {
            relinquish(fd, "pwritev2 with flags");
        }
        let place = (at != -1).then_some(at);
        vectored(fd, Direction::Write, parts, unflagged(count, flags), place, || {
            next::pwritev64v2(fd, parts, count, at, flags)
        })
    }
    fn lseek64(fd: c_int, by: off_t, whence: c_int) -> off_t {
        if table::quiet(fd) {
            return next::lseek64(fd, by, whence);
        }
        let asks = whence != libc::SEEK_SET && whence != libc::SEEK_CUR;
        if asks {
            tell::asking(fd);
        }
        let at = match word(fd) {
            0 => next::lseek64(fd, by, whence),
            _ => serve::seek(fd, by, whence),
        };
        // Where a file ends is news.
        if asks {
            tell::heard();
        }
        at
    }
}

alias! {
    fn __read(fd: c_int, data: *mut c_void, len: size_t) -> ssize_t = read;
    fn __write(fd: c_int, data: *const c_void, len: size_t) -> ssize_t = write;
    fn __pread64(fd: c_int, data: *mut c_void, len: size_t, at: off_t) -> ssize_t = pread64;
    fn __pwrite64(fd: c_int, data: *const c_void, len: size_t, at: off_t) -> ssize_t = pwrite64;
    fn pread(fd: c_int, data: *mut c_void, len: size_t, at: off_t) -> ssize_t = pread64;
    fn pwrite(fd: c_int, data: *const c_void, len: size_t, at: off_t) -> ssize_t = pwrite64;
    fn __pread_chk(
        fd: c_int, data: *mut c_void, len: size_t, at: off_t, size: size_t
    ) -> ssize_t = __pread64_chk;
    fn preadv(fd: c_int, parts: *const iovec, count: c_int, at: off_t) -> ssize_t = preadv64;
    fn pwritev(fd: c_int, parts: *const iovec, count: c_int, at: off_t) -> ssize_t = pwritev64;
    fn preadv2(
        fd: c_int, parts: *const iovec, count: c_int, at: off_t, flags: c_int
    ) -> ssize_t = preadv64v2;
    fn pwritev2(
        fd: c_int, parts: *const iovec, count: c_int, at: off_t, flags: c_int
    ) -> ssize_t = pwritev64v2;
    fn lseek(fd: c_int, by: off_t, whence: c_int) -> off_t = lseek64;
    fn llseek(fd: c_int, by: off_t, whence: c_int) -> off_t = lseek64;
    fn __lseek(fd: c_int, by: off_t, whence: c_int) -> off_t = lseek64;
}

// -------------------------------------------------------------------------- open, close and dup

/// Before a file is opened. Emptying it must come after what was written to it.
fn opening(directory: c_int, path: Path, flags: c_int) {
    tell::opening(directory, path, flags);
    if flags & libc::O_TRUNC != 0 {
        on_path(
            directory,
            path,
            0,
            Then::HandBack("emptied by another open"),
        );
    }
}

/// After a file was opened.
fn opened(fd: c_int, flags: c_int) -> c_int {
    if fd < 0 {
        return fd;
    }
    if guard::inside() {
        return table::internalise(fd);
    }
    if !state::active() || state::borrowed() {
        return fd;
    }
    was_another(fd);
    let mode = flags & libc::O_ACCMODE;
    let writable = mode != libc::O_RDONLY;
    relinquish_behind(fd, writable, "opened again");
    let settings = settings::get();
    if flags & libc::O_DIRECT != 0 {
        if settings.repair {
            descriptors::align(fd);
        }
        return fd;
    }
    let never = libc::O_APPEND | libc::O_SYNC | libc::O_DSYNC | libc::O_PATH | libc::O_DIRECTORY;
    let new = flags & (libc::O_CREAT | libc::O_TRUNC) != 0;
    if flags & never == 0 && writable == (new && writable) && !settings.strict {
        table::watch(fd, writable);
    }
    fd
}

fn open_with(flags: c_int, open: impl Fn() -> c_int) -> c_int {
    let fd = make(open);
    tell::heard();
    if fd >= 0 {
        tell::asking(fd);
    }
    opened(fd, flags)
}

/// `openat2`, by its function or its number.
unsafe fn open_how(
    directory: c_int,
    path: Path,
    how: *const libc::open_how,
    open: impl Fn() -> c_int,
) -> c_int {
    // What cannot be read the kernel refuses.
    let how = memory::peek(how.cast::<[u64; 3]>()).unwrap_or_default();
    let flags = how[0] as c_int;
    if how[2] != 0 && flags & libc::O_TRUNC != 0 {
        // Where the path leads is not known.
        relinquish_all("emptied by another open");
    }
    opening(directory, path, flags);
    open_with(flags, open)
}

const TEMPORARY: c_int = libc::O_RDWR | libc::O_CREAT;

/// Opens a file with a new name. A call that has failed has changed the template, so it cannot be
/// repeated.
unsafe fn temporary(template: *mut c_char, flags: c_int, open: impl Fn() -> c_int) -> c_int {
    tell::hand_over();
    if TAKEN.load(SeqCst) == 0 {
        return opened(open(), flags);
    }
    let before = core::ffi::CStr::from_ptr(template).to_owned();
    let again = || {
        template.copy_from_nonoverlapping(before.as_ptr(), before.count_bytes());
        open()
    };
    open_with(flags, again)
}

export! {
    fn open64(path: Path, flags: c_int, mode: mode_t) -> c_int {
        opening(HERE, path, flags);
        open_with(flags, || next::open64(path, flags, mode))
    }
    fn openat64(directory: c_int, path: Path, flags: c_int, mode: mode_t) -> c_int {
        opening(directory, path, flags);
        open_with(flags, || next::openat64(directory, path, flags, mode))
    }
    fn __open64_2(path: Path, flags: c_int) -> c_int {
        opening(HERE, path, flags);
        open_with(flags, || next::__open64_2(path, flags))
    }
    fn __openat64_2(directory: c_int, path: Path, flags: c_int) -> c_int {
        opening(directory, path, flags);
        open_with(flags, || next::__openat64_2(directory, path, flags))
    }
    fn openat2(directory: c_int, path: Path, how: *const libc::open_how, size: size_t) -> c_int {
        let errno = crate::errno::get();
        open_how(directory, path, how, || {
            let fd = next::openat2(directory, path, how, size);
            if fd >= 0 || crate::errno::get() != libc::ENOSYS {
                return fd;
            }
            // C libraries before glibc 2.43 do not have the function.
            crate::errno::set(errno);
            let (directory, path, how) = (directory as c_ulong, path as c_ulong, how as c_ulong);
            next::syscall(libc::SYS_openat2, directory, path, how, size as c_ulong, 0, 0) as c_int
        })
    }
    fn creat64(path: Path, mode: mode_t) -> c_int {
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC;
        opening(HERE, path, flags);
        open_with(flags, || next::creat64(path, mode))
    }
    fn mkstemp64(template: *mut c_char) -> c_int {
        temporary(template, TEMPORARY, || next::mkstemp64(template))
    }
    fn mkostemp64(template: *mut c_char, flags: c_int) -> c_int {
        temporary(template, TEMPORARY | flags, || next::mkostemp64(template, flags))
    }
    fn mkstemps64(template: *mut c_char, suffix: c_int) -> c_int {
        temporary(template, TEMPORARY, || next::mkstemps64(template, suffix))
    }
    fn mkostemps64(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int {
        temporary(template, TEMPORARY | flags, || next::mkostemps64(template, suffix, flags))
    }
    fn open_by_handle_at(mount: c_int, handle: *mut c_void, flags: c_int) -> c_int {
        if flags & libc::O_TRUNC != 0 {
            relinquish_all("emptied by another open");
        }
        open_with(flags, || next::open_by_handle_at(mount, handle, flags))
    }
    fn fopen64(path: Path, mode: Path) -> *mut libc::FILE {
        tell::opening(HERE, path, if *mode as u8 == b'r' { 0 } else { libc::O_CREAT });
        // Its own reads and writes are the C library's and are not seen; streams go back.
        if TAKEN.load(SeqCst) > 0 && *mode as u8 == b'w' {
            on_path(HERE, path, 0, Then::HandBack("emptied by fopen"));
        }
        let file = make(|| next::fopen64(path, mode));
        tell::heard();
        if !file.is_null() {
            tell::asking(libc::fileno(file));
            table::note_below(libc::fileno(file), true);
        }
        if TAKEN.load(SeqCst) > 0 && !file.is_null() {
            relinquish_behind(libc::fileno(file), true, "opened by fopen");
        }
        file
    }
    fn freopen64(path: Path, mode: Path, file: *mut libc::FILE) -> *mut libc::FILE {
        tell::hand_over();
        tell::renumbered();
        if !file.is_null() && state::is_owner() {
            let fd = below(file);
            table::note_below(fd, false);
            relinquish(fd, "reopened by freopen");
            // Also if its data could not be written: the number becomes another file's.
            descriptors::leave_untold(fd, "reopened by freopen");
        }
        if TAKEN.load(SeqCst) > 0 && !path.is_null() {
            on_path(HERE, path, 0, Then::HandBack("opened by freopen"));
        }
        let reopened = next::freopen64(path, mode, file);
        // As after `dup2`.
        tell::renumbered();
        tell::heard();
        if !reopened.is_null() && libc::fileno(reopened) > libc::STDERR_FILENO {
            table::note_below(libc::fileno(reopened), true);
        }
        // Also without a path: it may be written to now.
        let writes = || core::ffi::CStr::from_ptr(mode).to_bytes() != b"r";
        if TAKEN.load(SeqCst) > 0 && !reopened.is_null() && writes() {
            relinquish_behind(libc::fileno(reopened), true, "reopened by freopen");
        }
        reopened
    }
    fn close(fd: c_int) -> c_int {
        if table::quiet(fd) {
            tell::renumbered();
            return next::close(fd);
        }
        descriptors::close(fd)
    }
    fn fclose(file: *mut libc::FILE) -> c_int {
        // The C library closes the descriptor itself, unseen. What it still has to write comes
        // after what the program wrote.
        let fd = if file.is_null() { -1 } else { below(file) };
        table::note_below(fd, false);
        tell::closing(fd);
        let changes = tell::changes_another(fd);
        tell::renumbered();
        let error = match word(fd) == 0 || !state::is_owner() {
            true => None,
            false => descriptors::leave(fd, "closed"),
        };
        let result = next::fclose(file);
        if changes {
            tell::heard();
        }
        match error {
            Some(error) => {
                crate::errno::set(error);
                libc::EOF
            }
            None => result,
        }
    }
    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
        /// Only marks; nothing is closed.
        const CLOSE_RANGE_CLOEXEC: c_int = 4;
        /// This thread gets a table of descriptors of its own.
        const CLOSE_RANGE_UNSHARE: c_int = 2;
        if flags & !(CLOSE_RANGE_CLOEXEC | CLOSE_RANGE_UNSHARE) != 0 {
            // Refused: everything stays open.
            return next::close_range(first, last, flags);
        }
        if flags & CLOSE_RANGE_UNSHARE != 0 {
            process::withdraw("descriptors of a thread's own");
        }
        if flags & CLOSE_RANGE_CLOEXEC != 0 || first > last {
            return next::close_range(first, last, flags);
        }
        tell::hand_over();
        tell::renumbered();
        leave_range(first, last);
        let close = |first, last| next::close_range(first, last, flags);
        let result = around_internal(first, last, close);
        tell::heard();
        result
    }
    fn closefrom(first: c_int) -> () {
        let first = first.max(0) as c_uint;
        tell::hand_over();
        tell::renumbered();
        leave_range(first, c_uint::MAX);
        around_internal(first, c_uint::MAX, |first, last| {
            let result = next::close_range(first, last, 0);
            if result < 0 {
                // Before Linux 5.9: one by one.
                for fd in first..=last.min(table::SLOTS as c_uint) {
                    next::close(fd as c_int);
                }
            }
            0
        });
        tell::heard();
    }
    fn dup(fd: c_int) -> c_int {
        if hidden(fd) {
            return -1;
        }
        descriptors::duplicating(fd);
        let new = make(|| next::dup(fd));
        duplicated(fd, new)
    }
    fn dup2(fd: c_int, new: c_int) -> c_int {
        onto(fd, new, || next::dup2(fd, new))
    }
    fn dup3(fd: c_int, new: c_int, flags: c_int) -> c_int {
        onto(fd, new, || next::dup3(fd, new, flags))
    }
    fn pidfd_open(process: libc::pid_t, flags: c_uint) -> c_int {
        // C libraries before glibc 2.36 do not have the function.
        make(|| {
            let (process, flags) = (process as c_ulong, flags.into());
            next::syscall(libc::SYS_pidfd_open, process, flags, 0, 0, 0, 0) as c_int
        })
    }
    fn pidfd_getfd(process: c_int, fd: c_int, flags: c_uint) -> c_int {
        // Perhaps from this very process.
        relinquish(fd, "passed to another process");
        // As above.
        let got = make(|| {
            let (process, fd, flags) = (process as c_ulong, fd as c_ulong, flags.into());
            next::syscall(libc::SYS_pidfd_getfd, process, fd, flags, 0, 0, 0) as c_int
        });
        if got >= 0 {
            appeared(got);
        }
        got
    }
}

alias! {
    fn __open(path: Path, flags: c_int, mode: mode_t) -> c_int = open64;
    fn __open64(path: Path, flags: c_int, mode: mode_t) -> c_int = open64;
    fn __close(fd: c_int) -> c_int = close;
    fn __dup2(fd: c_int, new: c_int) -> c_int = dup2;
    fn open(path: Path, flags: c_int, mode: mode_t) -> c_int = open64;
    fn openat(directory: c_int, path: Path, flags: c_int, mode: mode_t) -> c_int = openat64;
    fn __open_2(path: Path, flags: c_int) -> c_int = __open64_2;
    fn __openat_2(directory: c_int, path: Path, flags: c_int) -> c_int = __openat64_2;
    fn creat(path: Path, mode: mode_t) -> c_int = creat64;
    fn mkstemp(template: *mut c_char) -> c_int = mkstemp64;
    fn mkostemp(template: *mut c_char, flags: c_int) -> c_int = mkostemp64;
    fn mkstemps(template: *mut c_char, suffix: c_int) -> c_int = mkstemps64;
    fn mkostemps(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int = mkostemps64;
    fn fopen(path: Path, mode: Path) -> *mut libc::FILE = fopen64;
    fn freopen(path: Path, mode: Path, file: *mut libc::FILE) -> *mut libc::FILE = freopen64;
}

/// The descriptor below a file; -1 if there is none, as in memory.
unsafe fn below(file: *mut libc::FILE) -> c_int {
    crate::errno::keep(|| libc::fileno(file))
}

/// The program's descriptors in a range are about to be closed.
fn leave_range(first: c_uint, last: c_uint) {
    if state::is_owner() {
        for (fd, _) in table::known() {
            if (first..=last).contains(&(fd as c_uint)) {
                // As the kernel, which reports no errors here.
                descriptors::leave_untold(fd, "closed");
            }
        }
    }
}

/// Closes a range but for this library's own: their numbers must not become something else while
/// they are in use.
fn around_internal(
    mut first: c_uint,
    last: c_uint,
    close: impl Fn(c_uint, c_uint) -> c_int,
) -> c_int {
    let mut result = 0;
    for own in table::internal(first, last) {
        if first < own {
            result |= close(first, own - 1);
        }
        first = own + 1;
    }
    if first <= last {
        result |= close(first, last);
    }
    result
}

fn duplicated(fd: c_int, new: c_int) -> c_int {
    if new >= 0 && new != fd && !state::borrowed() {
        was_another(new);
        if word(fd) != 0 && table::is_below(new) {
            relinquish(fd, "duplicated onto what others may use");
        } else if word(fd) != 0 {
            descriptors::copied(fd, new);
        }
    }
    new
}

/// A number leads to something new. If it has a word, that is of what was closed where nobody sees it, or
/// what another thread had it lead to. The error, if there is one, would have been that call's.
fn was_another(fd: c_int) {
    match table::entry(fd) {
        table::Entry::Nothing => {}
        table::Entry::Internal => table::forget(fd),
        _ => descriptors::leave_untold(fd, "closed unseen"),
    }
}

/// `dup2`: what `new` was is closed.
fn onto(fd: c_int, new: c_int, dup: impl Fn() -> c_int) -> c_int {
    tell::renumbered();
    tell::hand_over();
    if fd == new || !state::is_owner() {
        return dup();
    }
    let dup = || {
        let changes = tell::changes_another(new);
        let result = dup();
        if changes {
            tell::heard();
        }
        // Another thread may have used the number until now, and found out what it was.
        tell::renumbered();
        result
    };
    if hidden(fd) {
        return -1;
    }
    if word(fd) == 0 && word(new) == 0 {
        return duplicated(fd, dup());
    }
    if let table::Entry::Internal = table::entry(new) {
        // The program wants this very number: what this library has there must go, which may take
        // the keeper a moment.
        relinquish_all("its descriptor was asked for");
        crate::report::let_go();
        for _ in 0..100 {
            match table::entry(new) {
                table::Entry::Internal => std::thread::sleep(std::time::Duration::from_millis(1)),
                _ => break,
            }
        }
        if let table::Entry::Internal = table::entry(new) {
            crate::errno::set(libc::EBUSY);
            return -1;
        }
    }
    // SAFETY: no memory is involved.
    let is_open = |fd| unsafe { next::fcntl64(fd, libc::F_GETFD, 0) } >= 0;
    // What is open there and not known here may be below a `FILE`, which is read and written unseen.
    if new > libc::STDERR_FILENO && word(new) == 0 && is_open(new) {
        relinquish(fd, "duplicated onto what others may use");
    }
    let leaves = is_open(fd);
    // A call of another thread may be on its way there: it was counted in the word of what is replaced, but the kernel
    // may yet write to what replaces it, at an offset that a stream would have left behind.
    let shared = state::THREADED.load(SeqCst) && is_open(new);
    if leaves {
        descriptors::duplicating(fd);
        descriptors::duplicating(new);
        if let Some(error) = descriptors::leave(new, "closed") {
            crate::errno::set(error);
            return -1;
        }
    }
    let result = duplicated(fd, dup());
    if result >= 0 && shared {
        relinquish(new, "duplicated onto what others may use");
    }
    if result < 0 && leaves {
        // It is still open, and may be one of several descriptors of a stream.
        let errno = crate::errno::get();
        relinquish_all("not replaced after all");
        crate::errno::set(errno);
    }
    result
}

// ------------------------------------------------------------------------------ fcntl and ioctl

fn control(fd: c_int, command: c_int, argument: c_ulong) -> c_int {
    use libc::*;
    // SAFETY: the program's request.
    let real = || unsafe { next::fcntl64(fd, command, argument) };
    if guard::inside() || state::borrowed() {
        return real();
    }
    if hidden(fd) {
        return -1;
    }
    match command {
        F_GETFD | F_SETFD | F_GETFL | F_GETOWN | F_GETPIPE_SZ => real(),
        F_DUPFD | F_DUPFD_CLOEXEC => {
            descriptors::duplicating(fd);
            duplicated(fd, make(real))
        }
        F_SETFL => {
            if matches!(table::entry(fd), table::Entry::Tracked(_)) {
                relinquish(fd, "its flags were changed");
            }
            let result = real();
            let direct = argument & O_DIRECT as c_ulong != 0;
            if result >= 0 && direct {
                relinquish(fd, "its flags were changed");
                if word(fd) == 0 && state::active() && settings::get().repair {
                    descriptors::align(fd);
                }
            } else if argument & (O_APPEND | O_ASYNC) as c_ulong != 0 {
                relinquish(fd, "its flags were changed");
            }
            result
        }
        F_GETLK | F_OFD_GETLK => {
            locking(fd);
            real()
        }
        _ => {
            relinquish(fd, "an unusual fcntl");
            real()
        }
    }
}

/// Returns true if an `fcntl` changes nothing that another process could see or waits for, as it does
/// for a lease that ends or for room in a pipe.
fn keeps_to_itself(command: c_int) -> bool {
    use libc::*;
    matches!(
        command,
        F_DUPFD
            | F_DUPFD_CLOEXEC
            | F_GETFD
            | F_SETFD
            | F_GETFL
            | F_GETOWN
            | F_GETLEASE
            | F_GETPIPE_SZ
            | F_GET_SEALS
    )
}

/// Returns true if an `fcntl` may give the process a record lock.
fn sets_lock(command: c_int) -> bool {
    use libc::{F_OFD_SETLK, F_OFD_SETLKW, F_SETLK, F_SETLKW};
    matches!(command, F_SETLK | F_SETLKW | F_OFD_SETLK | F_OFD_SETLKW)
}

/// Locks are for several processes on one file. What was written goes to the kernel before they
/// change; what was read ahead may be old.
fn locking(fd: c_int) {
    match table::entry(fd) {
        table::Entry::Watched if table::unwatch(fd) => {}
        _ => locks::before_lock(fd),
    }
}

const FIFREEZE: c_ulong = 0xc004_5877;
const USERFAULTFD_IOC_NEW: c_ulong = 0xaa00;
const FICLONE: c_ulong = 0x4004_9409;
const FICLONERANGE: c_ulong = 0x4020_940d;

export! {
    fn fcntl64(fd: c_int, command: c_int, argument: c_ulong) -> c_int {
        if sets_lock(command) {
            tell::locking();
            let result = locks::with_record_lock(fd, || next::fcntl64(fd, command, argument));
            tell::heard();
            return result;
        }
        let keeps = keeps_to_itself(command);
        match command {
            // Who waits for it goes on when it is closed, too.
            libc::F_SETLEASE => tell::locking(),
            _ if keeps => {}
            _ => tell::hand_over(),
        }
        let sets_direct = command == libc::F_SETFL && argument & libc::O_DIRECT as c_ulong != 0;
        let result = match word(fd) == 0 && !sets_direct {
            true => make(|| next::fcntl64(fd, command, argument)),
            false => control(fd, command, argument),
        };
        if !keeps {
            tell::heard();
        }
        result
    }
    fn ioctl(fd: c_int, request: c_ulong, argument: c_ulong) -> c_int {
        let alone =
            matches!(request, libc::TCGETS | libc::TIOCGWINSZ | libc::FIOCLEX | libc::FIONCLEX);
        if request == libc::FIONREAD {
            // As a read, which would be told that there is nothing yet.
            tell::reading(fd);
        } else if !alone {
            tell::hand_over();
        }
        // The kernel takes 32 bits, and so do some declarations of the call.
        match request & 0xffff_ffff {
            FICLONE => relinquish(argument as c_int, "cloned"),
            FICLONERANGE => {
                if let Some(from) = memory::peek(argument as *const i64) {
                    relinquish(from as c_int, "cloned");
                }
            }
            // Until it thaws, what is held could not be written, and every call that tells would wait for that.
            FIFREEZE => process::withdraw("a filesystem is frozen"),
            USERFAULTFD_IOC_NEW => process::withdraw("userfaultfd"),
            _ => {}
        }
        if word(fd) != 0 && !guard::inside() {
            match request {
                libc::TCGETS | libc::FIOCLEX | libc::FIONCLEX => {}
                _ => relinquish(fd, "an ioctl"),
            }
        }
        let result = next::ioctl(fd, request, argument);
        if !alone {
            tell::heard();
        }
        result
    }
}

alias! {
    fn fcntl(fd: c_int, command: c_int, argument: c_ulong) -> c_int = fcntl64;
    fn __fcntl(fd: c_int, command: c_int, argument: c_ulong) -> c_int = fcntl64;
}

// ------------------------------------------------------------------------ sync, size, allocation

/// Drains; an error is this call's.
macro_rules! drained {
    ($fd:ident) => {
        if word($fd) != 0 {
            if hidden($fd) {
                return -1;
            }
            if let Err(error) = drain_or_fail($fd) {
                crate::errno::set(error);
                return -1;
            }
        }
    };
}

/// Drains; an error is kept for a call that may report it.
fn drain(fd: c_int) {
    if word(fd) != 0 {
        give_way::drain(fd);
    }
}

export! {
    fn fsync(fd: c_int) -> c_int {
        drained!(fd);
        let result = next::fsync(fd);
        tell::changed(fd);
        result
    }
    fn fdatasync(fd: c_int) -> c_int {
        drained!(fd);
        let result = next::fdatasync(fd);
        tell::changed(fd);
        result
    }
    fn sync() -> () {
        drain_all();
        next::sync();
        tell::heard();
    }
    fn syncfs(fd: c_int) -> c_int {
        drain_all();
        let result = next::syncfs(fd);
        tell::heard();
        match told_of_filesystem(fd).filter(|_| result == 0) {
            Some(error) => crate::errno::failed(error),
            None => result,
        }
    }
    fn sync_file_range(fd: c_int, at: off_t, len: off_t, flags: c_uint) -> c_int {
        drained!(fd);
        let result = next::sync_file_range(fd, at, len, flags);
        tell::changed(fd);
        result
    }
    fn ftruncate64(fd: c_int, len: off_t) -> c_int {
        tell::hand_over();
        drained!(fd);
        let result = next::ftruncate64(fd, len);
        tell::changed(fd);
        result
    }
    fn fallocate64(fd: c_int, mode: c_int, at: off_t, len: off_t) -> c_int {
        tell::hand_over();
        drained!(fd);
        let result = next::fallocate64(fd, mode, at, len);
        tell::changed(fd);
        result
    }
    fn posix_fallocate64(fd: c_int, at: off_t, len: off_t) -> c_int {
        tell::hand_over();
        if word(fd) != 0 {
            if hidden(fd) {
                return libc::EBADF;
            }
            if let Err(error) = drain_or_fail(fd) {
                return error;
            }
        }
        let error = next::posix_fallocate64(fd, at, len);
        tell::changed(fd);
        error
    }
    fn lockf64(fd: c_int, command: c_int, len: off_t) -> c_int {
        tell::locking();
        // Its range begins at the kernel's offset, which is right once the stream is back.
        let result = locks::with_record_lock(fd, || next::lockf64(fd, command, len));
        tell::heard();
        result
    }
    fn flock(fd: c_int, operation: c_int) -> c_int {
        tell::locking();
        if word(fd) != 0 {
            locking(fd);
        }
        let result = next::flock(fd, operation);
        tell::heard();
        if result == 0 && operation & libc::LOCK_UN == 0 {
            locks::after_lock(fd);
        }
        result
    }
}

before! {
    // Advice changes nothing that a program could see.
    fn posix_fadvise64(fd: c_int, at: off_t, len: off_t, advice: c_int) -> c_int { drain(fd); }
    fn readahead(fd: c_int, at: off_t, len: size_t) -> ssize_t {}
}

news! {
    fn truncate64(path: Path, len: off_t) -> c_int {
        on_path(HERE, path, 0, Then::HandBack("truncated by its path"));
    }
}

alias! {
    fn ftruncate(fd: c_int, len: off_t) -> c_int = ftruncate64;
    fn truncate(path: Path, len: off_t) -> c_int = truncate64;
    fn fallocate(fd: c_int, mode: c_int, at: off_t, len: off_t) -> c_int = fallocate64;
    fn posix_fallocate(fd: c_int, at: off_t, len: off_t) -> c_int = posix_fallocate64;
    fn posix_fadvise(fd: c_int, at: off_t, len: off_t, advice: c_int) -> c_int = posix_fadvise64;
    fn lockf(fd: c_int, command: c_int, len: off_t) -> c_int = lockf64;
}

// ------------------------------------------------------------------------------- stat and others

/// Asks the kernel, and asks again if data of the file in question was waiting here.
unsafe fn looked_at(result: c_int, about: *const libc::stat64, again: impl Fn() -> c_int) -> c_int {
    tell::heard();
    if result == 0 && TAKEN.load(SeqCst) > 0 && !guard::inside() && !about.is_null() {
        let about = &*about;
        if drain_file(about.st_dev, about.st_ino) {
            return again();
        }
    }
    result
}

/// Before a file is asked for: by its path, or with `AT_EMPTY_PATH` perhaps by a descriptor.
fn asking(directory: c_int, flags: c_int) {
    if flags & libc::AT_EMPTY_PATH != 0 {
        tell::asking(directory);
    }
}

export! {
    fn fstat64(fd: c_int, out: *mut libc::stat64) -> c_int {
        if hidden(fd) {
            return -1;
        }
        tell::asking(fd);
        drain(fd);
        let real = || next::fstat64(fd, out);
        looked_at(real(), out, real)
    }
    fn stat64(path: Path, out: *mut libc::stat64) -> c_int {
        let real = || next::stat64(path, out);
        looked_at(real(), out, real)
    }
    fn lstat64(path: Path, out: *mut libc::stat64) -> c_int {
        let real = || next::lstat64(path, out);
        looked_at(real(), out, real)
    }
    fn fstatat64(directory: c_int, path: Path, out: *mut libc::stat64, flags: c_int) -> c_int {
        asking(directory, flags);
        let real = || next::fstatat64(directory, path, out, flags);
        looked_at(real(), out, real)
    }
    fn statx(directory: c_int, path: Path, flags: c_int, mask: c_uint, out: *mut libc::statx)
        -> c_int
    {
        asking(directory, flags);
        let result = next::statx(directory, path, flags, mask, out);
        tell::heard();
        if result == 0 && TAKEN.load(SeqCst) > 0 && !guard::inside() && !out.is_null() {
            let device = libc::makedev((*out).stx_dev_major, (*out).stx_dev_minor);
            if drain_file(device, (*out).stx_ino) {
                return next::statx(directory, path, flags, mask, out);
            }
        }
        result
    }
    fn __fxstat64(version: c_int, fd: c_int, out: *mut libc::stat64) -> c_int {
        if hidden(fd) {
            return -1;
        }
        tell::asking(fd);
        let real = || next::__fxstat64(version, fd, out);
        looked_at(real(), out, real)
    }
    fn __xstat64(version: c_int, path: Path, out: *mut libc::stat64) -> c_int {
        let real = || next::__xstat64(version, path, out);
        looked_at(real(), out, real)
    }
    fn __lxstat64(version: c_int, path: Path, out: *mut libc::stat64) -> c_int {
        let real = || next::__lxstat64(version, path, out);
        looked_at(real(), out, real)
    }
    fn __fxstatat64(
        version: c_int, directory: c_int, path: Path, out: *mut libc::stat64, flags: c_int
    ) -> c_int {
        asking(directory, flags);
        let real = || next::__fxstatat64(version, directory, path, out, flags);
        looked_at(real(), out, real)
    }
}

alias! {
    fn fstat(fd: c_int, out: *mut libc::stat64) -> c_int = fstat64;
    fn stat(path: Path, out: *mut libc::stat64) -> c_int = stat64;
    fn lstat(path: Path, out: *mut libc::stat64) -> c_int = lstat64;
    fn fstatat(directory: c_int, path: Path, out: *mut libc::stat64, flags: c_int) -> c_int
        = fstatat64;
    fn __fxstat(version: c_int, fd: c_int, out: *mut libc::stat64) -> c_int = __fxstat64;
    fn __xstat(version: c_int, path: Path, out: *mut libc::stat64) -> c_int = __xstat64;
    fn __lxstat(version: c_int, path: Path, out: *mut libc::stat64) -> c_int = __lxstat64;
    fn __fxstatat(
        version: c_int, directory: c_int, path: Path, out: *mut libc::stat64, flags: c_int
    ) -> c_int = __fxstatat64;
}

// A write changes times and takes set-user-ID bits and capabilities away, so it must come before
// those are set; and before the file appears under another name.
before! {
    fn fchmod(fd: c_int, mode: mode_t) -> c_int { tell::hand_over(); drain(fd); }
    fn fchown(fd: c_int, user: c_uint, group: c_uint) -> c_int { tell::hand_over(); drain(fd); }
    fn futimens(fd: c_int, times: *const c_void) -> c_int { tell::hand_over(); drain(fd); }
    fn futimes(fd: c_int, times: *const c_void) -> c_int { tell::hand_over(); drain(fd); }
}

/// An extended attribute may be the file's capabilities. The next write takes them away, which the program may ask for
/// in more ways than the kernel's `stat`: so it must not wait.
const GRANTED: &str = "extended attributes were set";

// The same, by names: where there is none, or one already, that is news.
news! {
    fn fsetxattr(fd: c_int, name: Path, value: *const c_void, len: size_t, flags: c_int) -> c_int {
        tell::hand_over();
        relinquish(fd, GRANTED);
    }
    fn chmod(path: Path, mode: mode_t) -> c_int { on_path(HERE, path, 0, Then::Drain); }
    fn lchmod(path: Path, mode: mode_t) -> c_int { on_path(HERE, path, NOFOLLOW, Then::Drain); }
    fn fchmodat(directory: c_int, path: Path, mode: mode_t, flags: c_int) -> c_int {
        on_path(directory, path, flags, Then::Drain);
    }
    fn chown(path: Path, user: c_uint, group: c_uint) -> c_int {
        on_path(HERE, path, 0, Then::Drain);
    }
    fn lchown(path: Path, user: c_uint, group: c_uint) -> c_int {
        on_path(HERE, path, NOFOLLOW, Then::Drain);
    }
    fn fchownat(directory: c_int, path: Path, user: c_uint, group: c_uint, flags: c_int) -> c_int {
        on_path(directory, path, flags, Then::Drain);
    }
    fn utimensat(directory: c_int, path: Path, times: *const c_void, flags: c_int) -> c_int {
        if path.is_null() {
            tell::hand_over();
            drain(directory);
        } else {
            on_path(directory, path, flags, Then::Drain);
        };
    }
    fn utimes(path: Path, times: *const c_void) -> c_int { on_path(HERE, path, 0, Then::Drain); }
    fn lutimes(path: Path, times: *const c_void) -> c_int {
        on_path(HERE, path, NOFOLLOW, Then::Drain);
    }
    fn utime(path: Path, times: *const c_void) -> c_int { on_path(HERE, path, 0, Then::Drain); }
    fn futimesat(directory: c_int, path: Path, times: *const c_void) -> c_int {
        if path.is_null() {
            tell::hand_over();
            drain(directory);
        } else {
            on_path(directory, path, 0, Then::Drain);
        };
    }
    fn setxattr(path: Path, name: Path, value: *const c_void, len: size_t, flags: c_int) -> c_int {
        on_path(HERE, path, 0, Then::HandBack(GRANTED));
    }
    fn lsetxattr(path: Path, name: Path, value: *const c_void, len: size_t, flags: c_int) -> c_int {
        on_path(HERE, path, NOFOLLOW, Then::HandBack(GRANTED));
    }
    fn rename(from: Path, to: Path) -> c_int { on_path(HERE, from, NOFOLLOW, Then::Drain); }
    fn renameat(from_directory: c_int, from: Path, to_directory: c_int, to: Path) -> c_int {
        on_path(from_directory, from, NOFOLLOW, Then::Drain);
    }
    fn renameat2(
        from_directory: c_int, from: Path, to_directory: c_int, to: Path, flags: c_uint
    ) -> c_int {
        on_path(from_directory, from, NOFOLLOW, Then::Drain);
    }
    fn link(from: Path, to: Path) -> c_int { on_path(HERE, from, NOFOLLOW, Then::Drain); }
    fn linkat(
        from_directory: c_int, from: Path, to_directory: c_int, to: Path, flags: c_int
    ) -> c_int {
        on_path(from_directory, from, flags & libc::AT_EMPTY_PATH, Then::Drain);
    }
}

// ------------------------------------------------- ways to move data that are not reads or writes

news! {
    fn sendfile64(to: c_int, from: c_int, at: *mut off_t, len: size_t) -> ssize_t {
        tell::hand_over();
        relinquish(from, "sendfile");
        relinquish(to, "sendfile");
    }
    fn splice(
        from: c_int, from_at: *mut off_t, to: c_int, to_at: *mut off_t, len: size_t, flags: c_uint
    ) -> ssize_t {
        tell::hand_over();
        relinquish(from, "splice");
        relinquish(to, "splice");
    }
    fn copy_file_range(
        from: c_int, from_at: *mut off_t, to: c_int, to_at: *mut off_t, len: size_t, flags: c_uint
    ) -> ssize_t {
        tell::hand_over();
        relinquish(from, "copy_file_range");
        relinquish(to, "copy_file_range");
    }
}

before! {
    fn munmap(address: *mut c_void, len: size_t) -> c_int { memory::taken_away(); }
    fn mprotect(address: *mut c_void, len: size_t, protection: c_int) -> c_int {
        memory::taken_away();
    }
    fn pkey_mprotect(
        address: *mut c_void, len: size_t, protection: c_int, key: c_int
    ) -> c_int {
        memory::taken_away();
    }
    fn mremap(
        address: *mut c_void, old: size_t, new: size_t, flags: c_int, to: *mut c_void
    ) -> *mut c_void {
        memory::taken_away();
    }
    fn madvise(address: *mut c_void, len: size_t, advice: c_int) -> c_int {
        if advice == MADV_GUARD_INSTALL {
            memory::taken_away();
        };
    }
    fn shmdt(address: *const c_void) -> c_int { memory::taken_away(); }
    fn brk(end: *mut c_void) -> c_int { memory::taken_away(); }
    fn sbrk(by: isize) -> *mut c_void { memory::taken_away(); }
}

news! {
    fn sendmsg(socket: c_int, message: *const libc::msghdr, flags: c_int) -> ssize_t {
        tell::hand_over();
        passed_on(message);
    }
    fn sendmmsg(
        socket: c_int, messages: *mut libc::mmsghdr, count: c_uint, flags: c_int
    ) -> c_int {
        tell::hand_over();
        for i in 0..count as usize {
            if table::nothing_known() {
                break;
            }
            let Some(message) = memory::peek(messages.wrapping_add(i)) else { break };
            passed_on(&message.msg_hdr);
        };
    }
    fn lio_listio64(
        mode: c_int, list: *const *mut c_void, count: c_int, event: *mut c_void
    ) -> c_int {
        process::listing();
        for i in 0..count.max(0) as usize {
            let block = *list.add(i);
            if !block.is_null() {
                // `struct aiocb` begins with its descriptor.
                relinquish(*block.cast::<c_int>(), "asynchronous I/O");
            }
        };
    }
}

alias! {
    fn __sbrk(by: isize) -> *mut c_void = sbrk;
    fn sendfile(to: c_int, from: c_int, at: *mut off_t, len: size_t) -> ssize_t = sendfile64;
    fn mmap(
        address: *mut c_void, len: size_t, protection: c_int, flags: c_int, fd: c_int, at: off_t
    ) -> *mut c_void = mmap64;
    fn lio_listio(
        mode: c_int, list: *const *mut c_void, count: c_int, event: *mut c_void
    ) -> c_int = lio_listio64;
}

export! {
    fn mmap64(
        address: *mut c_void, len: size_t, protection: c_int, flags: c_int, fd: c_int, at: off_t
    ) -> *mut c_void {
        tell::mapping(protection, flags, fd);
        if flags & libc::MAP_FIXED != 0 {
            memory::taken_away();
        }
        if fd >= 0 {
            tell::asking(fd);
            mapped(fd);
        }
        let map = next::mmap64(address, len, protection, flags, fd, at);
        if fd >= 0 {
            // To look at the mapping is no call.
            tell::heard();
        }
        if fd >= 0 && map != libc::MAP_FAILED {
            // Another thread may have taken a stream on the file before the mapping was there to be
            // found.
            relinquish_behind(fd, true, "mapped");
        }
        map
    }
}

/// Takes memory away; all other advice leaves it where it is.
const MADV_GUARD_INSTALL: c_int = 102;

fn mapped(fd: c_int) {
    if word(fd) != 0 {
        relinquish(fd, "mapped");
    }
    relinquish_behind(fd, true, "mapped");
}

/// Descriptors of requests that the kernel carries out by itself.
unsafe fn submitted(count: c_long, blocks: *mut *mut c_void) {
    /// Where `struct iocb` has its descriptor.
    const AIO_FILDES: usize = 20;
    if table::nothing_known() {
        return;
    }
    for i in 0..count.max(0) as usize {
        let block = memory::peek(blocks.wrapping_add(i));
        let at = block.map(|block| block.wrapping_byte_add(AIO_FILDES).cast::<c_int>());
        match at.and_then(|at| memory::peek(at)) {
            Some(fd) => relinquish(fd, "asynchronous I/O"),
            None => break,
        }
    }
}

unsafe fn submitting(words: &jump::Words) {
    let &[_, count, blocks, ..] = words;
    tell::hand_over();
    submitted(count as c_long, blocks as *mut *mut c_void);
}

tell::hears_by_version! {
    ALWAYS, submitting: io_submit;
}

/// More than the kernel takes for all that comes with a message (`net.core.optmem_max`).
const MOST_CONTROL: usize = 1 << 24;

export! {
    fn recvmsg(socket: c_int, message: *mut libc::msghdr, flags: c_int) -> ssize_t {
        tell::reading(socket);
        let result = next::recvmsg(socket, message, flags);
        tell::heard();
        if result >= 0 {
            received(&*message);
        }
        result
    }
    fn recvmmsg(
        socket: c_int, messages: *mut libc::mmsghdr, count: c_uint, flags: c_int,
        limit: *mut c_void
    ) -> c_int {
        tell::reading(socket);
        let result = next::recvmmsg(socket, messages, count, flags, limit);
        tell::heard();
        for i in 0..result.max(0) as usize {
            received(&(*messages.add(i)).msg_hdr);
        }
        result
    }
}

/// Descriptors that came with a message may lead to files of streams.
unsafe fn received(message: &libc::msghdr) {
    if TAKEN.load(SeqCst) > 0 {
        rights(message, appeared);
    }
}

/// A descriptor that this process has not opened itself.
fn appeared(fd: c_int) {
    relinquish_behind(fd, true, "received from another process");
}

/// Descriptors in a message go to another process.
unsafe fn passed_on(message: *const libc::msghdr) {
    // Then none that goes elsewhere matters, and whether the program's memory is there, which takes system calls, need
    // not be asked.
    if table::nothing_known() {
        return;
    }
    let Some(message) = memory::peek(message) else {
        return;
    };
    let (control, len) = (message.msg_control as usize, message.msg_controllen);
    if len == 0 || len > MOST_CONTROL || !memory::Known::default().holds(control, len, false) {
        return;
    }
    const PASSED: &str = "passed to another process";
    rights(&message, |fd| {
        relinquish(fd, PASSED);
        // Other descriptors of it share its offset, or may.
        let file = look::stat(fd).filter(|about| about.st_mode & libc::S_IFMT == libc::S_IFREG);
        let Some(file) = file else { return };
        for (other, _) in table::known() {
            let same =
                |about: libc::stat64| (about.st_dev, about.st_ino) == (file.st_dev, file.st_ino);
            if look::stat(other).is_some_and(same) {
                relinquish(other, PASSED);
            }
        }
    });
}

/// Hands the descriptors that are in a message to `each`. What it says of its control data must be there.
unsafe fn rights(message: &libc::msghdr, each: impl Fn(c_int)) {
    let (control, len) = (message.msg_control as usize, message.msg_controllen);
    let message = &raw const *message;
    let mut header = libc::CMSG_FIRSTHDR(message);
    while !header.is_null() {
        if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_RIGHTS {
            let data = libc::CMSG_DATA(header);
            // No further than there is, whatever it says of itself.
            let len = ((*header).cmsg_len as usize).min(control + len - header as usize);
            let len = len.saturating_sub(data as usize - header as usize);
            for i in 0..len / size_of::<c_int>() {
                each(data.cast::<c_int>().add(i).read_unaligned());
            }
        }
        header = libc::CMSG_NXTHDR(message, header);
    }
}

// ------------------------------------------------------------------------------------- syscall(2)

/// Where a call has a word that its function has not: offsets come in two, of which one is enough.
fn hole(number: c_long) -> usize {
    match number {
        libc::SYS_preadv2 | libc::SYS_pwritev2 => 4,
        _ => usize::MAX,
    }
}

/// A system call, with the words of its function.
unsafe fn kernel(number: c_long, words: &[c_ulong]) -> c_long {
    let mut all = [0; 6];
    for (at, word) in words.iter().enumerate() {
        all[at + usize::from(at >= hole(number))] = *word;
    }
    let [a, b, c, d, e, f] = all;
    next::syscall(number, a, b, c, d, e, f)
}

/// Calls for which a function is exported, to which they go; it ends in the bare call. What it ends in otherwise may be
/// another library's, which makes that very call. And no thread is cancelled in a bare one.
macro_rules! as_functions {
    ($($number:ident => $at:ident::$name:ident($($arg:ident: $type:ty),*) -> $ret:ty;)*) => {
        mod bare {
            use super::*;
            $(
                pub unsafe extern "C-unwind" fn $name($($arg: $type),*) -> $ret {
                    kernel(libc::$number, &[$($arg as c_ulong),*]) as $ret
                }
            )*
        }
        /// `None`: there is no function for it.
        #[allow(non_upper_case_globals, reason = "the numbers have the names of their calls")]
        unsafe fn as_function(number: c_long, words: [c_ulong; 6]) -> Option<c_long> {
            let words = words.into_iter().enumerate();
            let mut words = words.filter_map(|(at, word)| (at != hole(number)).then_some(word));
            Some(match number {
                $(libc::$number => {
                    $(let $arg = words.next().unwrap_or_default() as $type;)*
                    let noted = next::bare(&next::named::$name(), bare::$name as *mut ());
                    let result = $at::$name($($arg),*);
                    next::end(noted);
                    result as c_long
                })*
                _ => return None,
            })
        }
    };
}

as_functions! {
    SYS_read => self::read(fd: c_int, data: *mut c_void, len: size_t) -> ssize_t;
    SYS_write => self::write(fd: c_int, data: *const c_void, len: size_t) -> ssize_t;
    SYS_pread64 => self::pread64(fd: c_int, data: *mut c_void, len: size_t, at: off_t) -> ssize_t;
    SYS_pwrite64 => self::pwrite64(fd: c_int, data: *const c_void, len: size_t, at: off_t) -> ssize_t;
    SYS_readv => self::readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t;
    SYS_writev => self::writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t;
    SYS_preadv => self::preadv64(fd: c_int, parts: *const iovec, count: c_int, at: off_t) -> ssize_t;
    SYS_pwritev => self::pwritev64(fd: c_int, parts: *const iovec, count: c_int, at: off_t) -> ssize_t;
    SYS_preadv2 => self::preadv64v2(fd: c_int, parts: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t;
    SYS_pwritev2 => self::pwritev64v2(fd: c_int, parts: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t;
    SYS_lseek => self::lseek64(fd: c_int, by: off_t, whence: c_int) -> off_t;
    SYS_open_by_handle_at => self::open_by_handle_at(mount: c_int, handle: *mut c_void, flags: c_int) -> c_int;
    SYS_close => self::close(fd: c_int) -> c_int;
    SYS_close_range => self::close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int;
    SYS_dup => self::dup(fd: c_int) -> c_int;
    SYS_fcntl => self::fcntl64(fd: c_int, command: c_int, argument: c_ulong) -> c_int;
    SYS_ioctl => self::ioctl(fd: c_int, request: c_ulong, argument: c_ulong) -> c_int;
    SYS_flock => self::flock(fd: c_int, operation: c_int) -> c_int;
    SYS_fsync => self::fsync(fd: c_int) -> c_int;
    SYS_fdatasync => self::fdatasync(fd: c_int) -> c_int;
    SYS_syncfs => self::syncfs(fd: c_int) -> c_int;
    SYS_sync_file_range => self::sync_file_range(fd: c_int, at: off_t, len: off_t, flags: c_uint) -> c_int;
    SYS_ftruncate => self::ftruncate64(fd: c_int, len: off_t) -> c_int;
    SYS_truncate => self::truncate64(path: Path, len: off_t) -> c_int;
    SYS_fallocate => self::fallocate64(fd: c_int, mode: c_int, at: off_t, len: off_t) -> c_int;
    SYS_fstat => self::fstat64(fd: c_int, out: *mut libc::stat64) -> c_int;
    SYS_newfstatat => self::fstatat64(directory: c_int, path: Path, out: *mut libc::stat64, flags: c_int) -> c_int;
    SYS_statx => self::statx(directory: c_int, path: Path, flags: c_int, mask: c_uint, out: *mut libc::statx) -> c_int;
    SYS_fchmod => self::fchmod(fd: c_int, mode: mode_t) -> c_int;
    SYS_fchown => self::fchown(fd: c_int, user: c_uint, group: c_uint) -> c_int;
    SYS_fchownat => self::fchownat(directory: c_int, path: Path, user: c_uint, group: c_uint, flags: c_int) -> c_int;
    SYS_utimensat => self::utimensat(directory: c_int, path: Path, times: *const c_void, flags: c_int) -> c_int;
    SYS_renameat2 => self::renameat2(from_directory: c_int, from: Path, to_directory: c_int, to: Path, flags: c_uint) -> c_int;
    SYS_linkat => self::linkat(from_directory: c_int, from: Path, to_directory: c_int, to: Path, flags: c_int) -> c_int;
    SYS_setxattr => self::setxattr(path: Path, name: Path, value: *const c_void, len: size_t, flags: c_int) -> c_int;
    SYS_lsetxattr => self::lsetxattr(path: Path, name: Path, value: *const c_void, len: size_t, flags: c_int) -> c_int;
    SYS_fsetxattr => self::fsetxattr(fd: c_int, name: Path, value: *const c_void, len: size_t, flags: c_int) -> c_int;
    SYS_sendfile => self::sendfile64(to: c_int, from: c_int, at: *mut off_t, len: size_t) -> ssize_t;
    SYS_splice => self::splice(from: c_int, from_at: *mut off_t, to: c_int, to_at: *mut off_t, len: size_t, flags: c_uint) -> ssize_t;
    SYS_copy_file_range => self::copy_file_range(from: c_int, from_at: *mut off_t, to: c_int, to_at: *mut off_t, len: size_t, flags: c_uint) -> ssize_t;
    SYS_mmap => self::mmap64(address: *mut c_void, len: size_t, protection: c_int, flags: c_int, fd: c_int, at: off_t) -> *mut c_void;
    SYS_madvise => self::madvise(address: *mut c_void, len: size_t, advice: c_int) -> c_int;
    SYS_sendmsg => self::sendmsg(socket: c_int, message: *const libc::msghdr, flags: c_int) -> ssize_t;
    SYS_sendmmsg => self::sendmmsg(socket: c_int, messages: *mut libc::mmsghdr, count: c_uint, flags: c_int) -> c_int;
    SYS_recvmsg => self::recvmsg(socket: c_int, message: *mut libc::msghdr, flags: c_int) -> ssize_t;
    SYS_recvmmsg => self::recvmmsg(socket: c_int, messages: *mut libc::mmsghdr, count: c_uint, flags: c_int, limit: *mut c_void) -> c_int;
    SYS_sigaltstack => process::sigaltstack(new: *const libc::stack_t, old: *mut libc::stack_t) -> c_int;
    SYS_setrlimit => process::setrlimit64(resource: c_uint, limit: *const libc::rlimit64) -> c_int;
    SYS_prlimit64 => process::prlimit64(process: libc::pid_t, resource: c_uint, new: *const libc::rlimit64, old: *mut libc::rlimit64) -> c_int;
    SYS_prctl => process::prctl(option: c_int, first: c_ulong, second: c_ulong, third: c_ulong, fourth: c_ulong) -> c_int;
    SYS_unshare => process::unshare(flags: c_int) -> c_int;
    SYS_chroot => process::chroot(path: Path) -> c_int;
    SYS_setns => process::setns(fd: c_int, kind: c_int) -> c_int;
}

export! {
    #[allow(non_upper_case_globals, reason = "the numbers have the names of their calls")]
    fn syscall(
        number: c_long, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong, e: c_ulong, f: c_ulong
    ) -> c_long {
        use crate::hooks::pidfd_getfd;
        use libc::*;
        /// Linux 6.5.
        const SYS_CACHESTAT: c_long = 451;
        /// Linux 6.6; `libc` does not have it for every architecture.
        const SYS_FCHMODAT2: c_long = 452;
        /// Linux 5.8; likewise.
        const SYS_FACCESSAT2: c_long = 439;
        let real = || next::syscall(number, a, b, c, d, e, f);
        let fd = a as c_int;
        if guard::inside() {
            if number == SYS_exit_group {
                process::finish_at_once();
            }
            // The pdio crate's own.
            let result = real();
            return match number {
                SYS_io_uring_setup if result >= 0 => table::internalise(result as c_int) as c_long,
                _ => result,
            };
        }
        let news = tell::calling(number, b as usize);
        let result = match number {
            SYS_openat => {
                opening(fd, b as _, c as _);
                open_with(c as c_int, || real() as c_int) as c_long
            }
            SYS_openat2 => open_how(fd, b as _, c as _, || real() as c_int) as c_long,
            SYS_dup3 => onto(fd, b as c_int, || real() as c_int) as c_long,
            SYS_pidfd_getfd => pidfd_getfd(fd, b as _, c as _) as c_long,
            SYS_fadvise64 => {
                drain(fd);
                real()
            }
            SYS_sync => {
                drain_all();
                real()
            }
            // The function of this name has a word more than the first of them.
            SYS_fchmodat | SYS_FCHMODAT2 => {
                drain_all();
                real()
            }
            SYS_munmap | SYS_mprotect | SYS_pkey_mprotect | SYS_mremap | SYS_shmdt | SYS_brk => {
                memory::taken_away();
                real()
            }
            SYS_shmat => {
                process::mapping_unseen();
                real()
            }
            SYS_mlockall => {
                process::locking_memory(fd);
                real()
            }
            SYS_io_submit => {
                submitted(b as _, c as _);
                real()
            }
            SYS_rt_sigaction => {
                guard::HANDLERS.store(true, SeqCst);
                crate::signals::stand_aside(fd);
                let result = real();
                crate::signals::stand_in(fd);
                result
            }
            SYS_pivot_root => {
                pdio::leave_costs_alone();
                real()
            }
            SYS_clone | SYS_clone3 => {
                process::cloning(match number {
                    SYS_clone => a as c_int,
                    // They come first.
                    _ => memory::peek(a as *const u64).unwrap_or_default() as c_int,
                });
                real()
            }
            SYS_execve | SYS_execveat => {
                process::leaving("exec");
                real()
            }
            SYS_exit_group => {
                process::finish_at_once();
                real()
            }
            SYS_io_uring_setup => {
                process::ring();
                real()
            }
            SYS_seccomp => {
                process::filtering();
                real()
            }
            // Not of the whole process, as the functions of these names.
            SYS_setuid | SYS_setreuid | SYS_setresuid | SYS_setgid | SYS_setregid
            | SYS_setresgid | SYS_setgroups | SYS_setfsuid | SYS_setfsgid | SYS_capset => {
                process::parting();
                real()
            }
            SYS_socket | SYS_socketpair | SYS_accept | SYS_accept4 | SYS_pipe2 | SYS_eventfd2
            | SYS_epoll_create1 | SYS_signalfd4 | SYS_timerfd_create | SYS_inotify_init1
            | SYS_fanotify_init | SYS_memfd_create | SYS_pidfd_open | SYS_perf_event_open => {
                make(|| real() as c_int) as c_long
            }
            // The thread that provides memory would wait for the stream that copies from there.
            SYS_userfaultfd => {
                process::withdraw("userfaultfd");
                make(|| real() as c_int) as c_long
            }
            // Of rings that were set up elsewhere nothing is taken; the pdio crate's own are used in
            // a fork's handlers, too.
            SYS_io_uring_enter | SYS_io_uring_register | SYS_CACHESTAT => real(),
            // Of memory, time, waiting and the process itself: nothing that leads to a file.
            SYS_futex | SYS_futex_waitv | SYS_getpid | SYS_gettid | SYS_getppid | SYS_getuid
            | SYS_geteuid | SYS_getgid | SYS_getegid | SYS_getrandom | SYS_getcpu | SYS_membarrier
            | SYS_rseq | SYS_sched_yield | SYS_sched_setaffinity | SYS_sched_getaffinity
            | SYS_sched_setattr | SYS_sched_getattr | SYS_sched_setscheduler
            | SYS_sched_getscheduler | SYS_sched_setparam | SYS_sched_getparam
            | SYS_clock_gettime | SYS_clock_getres | SYS_clock_nanosleep | SYS_nanosleep
            | SYS_gettimeofday | SYS_getrlimit | SYS_getrusage | SYS_times | SYS_sysinfo
            | SYS_uname | SYS_ioprio_set | SYS_ioprio_get | SYS_setpriority | SYS_getpriority
            | SYS_capget | SYS_set_robust_list | SYS_get_robust_list | SYS_rt_sigprocmask
            | SYS_mlock | SYS_mlock2 | SYS_munlock | SYS_mbind
            | SYS_get_mempolicy | SYS_set_mempolicy | SYS_move_pages | SYS_mincore | SYS_readahead
            | SYS_wait4 | SYS_waitid | SYS_tgkill | SYS_tkill | SYS_kill
            | SYS_restart_syscall | SYS_ppoll | SYS_pselect6 | SYS_epoll_ctl | SYS_epoll_pwait
            | SYS_epoll_pwait2 | SYS_timerfd_settime | SYS_timerfd_gettime | SYS_sendto
            | SYS_recvfrom | SYS_bind | SYS_connect | SYS_listen
            | SYS_shutdown | SYS_getsockopt | SYS_setsockopt | SYS_getsockname
            | SYS_getpeername | SYS_pidfd_send_signal => real(),
            // Of names, and what they lead to: nothing of what is in files.
            SYS_faccessat | SYS_FACCESSAT2 | SYS_readlinkat | SYS_getdents64 | SYS_getcwd => real(),
            number => match as_function(number, [a, b, c, d, e, f]) {
                Some(result) => result,
                None => other_call(number, a, b, c, &real),
            },
        };
        if news {
            tell::heard();
        }
        result
    }
}

/// Calls that only some processors have; and those of which nothing is known, before which
/// everything goes back.
#[allow(
    non_upper_case_globals,
    reason = "the numbers have the names of their calls"
)]
unsafe fn other_call(
    number: c_long,
    a: c_ulong,
    b: c_ulong,
    c: c_ulong,
    real: &dyn Fn() -> c_long,
) -> c_long {
    #[cfg(target_arch = "x86_64")]
    {
        use libc::*;
        let fd = a as c_int;
        match number {
            SYS_open => {
                opening(HERE, a as _, b as _);
                return open_with(b as c_int, || real() as c_int) as c_long;
            }
            SYS_creat => {
                let flags = O_CREAT | O_WRONLY | O_TRUNC;
                opening(HERE, a as _, flags);
                return open_with(flags, || real() as c_int) as c_long;
            }
            SYS_dup2 => return onto(fd, b as c_int, || real() as c_int) as c_long,
            SYS_stat | SYS_lstat => {
                return looked_at(real() as c_int, b as _, || real() as c_int) as c_long
            }
            SYS_pipe | SYS_eventfd | SYS_epoll_create | SYS_signalfd | SYS_inotify_init => {
                return make(|| real() as c_int) as c_long
            }
            SYS_poll | SYS_epoll_wait | SYS_arch_prctl | SYS_time | SYS_access | SYS_readlink => {
                return real()
            }
            SYS_fork | SYS_vfork => state::copies(),
            _ => {}
        }
    }
    let _ = (number, a, b, c);
    relinquish_all("a bare system call");
    real()
}
