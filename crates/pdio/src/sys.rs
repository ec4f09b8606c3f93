// SPDX-License-Identifier: MIT OR Apache-2.0
//! Thin, safe wrappers of the system calls that `std` does not offer.

use std::ffi::{c_void, CStr};
use std::fs::{File, Permissions};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, RawFd};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// Repeats a call that returns -1 with EINTR.
fn retry(mut call: impl FnMut() -> isize) -> io::Result<usize> {
    loop {
        let n = call();
        if n >= 0 {
            return Ok(n as usize);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Returns true if there was no room for what was written.
pub(crate) fn lacks_room(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT))
}

/// No filesystem has smaller blocks.
const BLOCK: u64 = 512;

/// One `pwritev2`; `flags` is zero or `RWF_*`. If there is no room for all, of less: where a filesystem has none for a
/// large folio, it may have room for a small one.
pub(crate) fn pwrite(
    fd: BorrowedFd<'_>,
    mut data: &[u8],
    offset: u64,
    flags: i32,
) -> io::Result<usize> {
    loop {
        let half = (offset + data.len() as u64 / 2).next_multiple_of(BLOCK) - offset;
        // SAFETY: `data` is readable for its length.
        match unsafe { pwrite_raw(fd.as_raw_fd(), data.as_ptr(), data.len(), offset, flags) } {
            Err(error) if lacks_room(&error) && (1..data.len() as u64).contains(&half) => {
                data = &data[..half as usize];
            }
            // Much of `/proc` has an offset, which only plain calls go by.
            Err(error) if flags == 0 && error.raw_os_error() == Some(libc::ESPIPE) => {
                set_offset(fd, offset)?;
                return write(fd, &[IoSlice::new(data)]);
            }
            result => return result,
        }
    }
}

/// As [`pwrite`], from memory that the kernel may read concurrently with others.
///
/// # Safety
/// `data` must be readable for `len` bytes during the call.
pub(crate) unsafe fn pwrite_raw(
    fd: RawFd,
    data: *const u8,
    len: usize,
    offset: u64,
    flags: i32,
) -> io::Result<usize> {
    let iov = libc::iovec {
        iov_base: data as *mut libc::c_void,
        iov_len: len,
    };
    if flags == 0 {
        // SAFETY: the caller vouches for the memory.
        return retry(|| unsafe { libc::pwrite64(fd, iov.iov_base, len, offset as i64) });
    }
    // SAFETY: the caller vouches for the memory; `iov` lives through the call.
    retry(|| unsafe { libc::pwritev64v2(fd, &iov, 1, offset as i64, flags) })
}

/// One `preadv2`; `flags` is zero or `RWF_*`.
///
/// # Safety
/// `data` must be writable for `len` bytes during the call.
pub(crate) unsafe fn pread_raw(
    fd: RawFd,
    data: *mut u8,
    len: usize,
    offset: u64,
    flags: i32,
) -> io::Result<usize> {
    let iov = libc::iovec {
        iov_base: data.cast(),
        iov_len: len,
    };
    if flags == 0 {
        // SAFETY: the caller vouches for the memory.
        return retry(|| unsafe { libc::pread64(fd, iov.iov_base, len, offset as i64) });
    }
    // SAFETY: the caller vouches for the memory; `iov` lives through the call.
    retry(|| unsafe { libc::preadv64v2(fd, &iov, 1, offset as i64, flags) })
}

/// One `preadv2` into a slice.
pub(crate) fn pread(
    fd: BorrowedFd<'_>,
    data: &mut [u8],
    offset: u64,
    flags: i32,
) -> io::Result<usize> {
    // SAFETY: `data` is writable for its length.
    unsafe { pread_raw(fd.as_raw_fd(), data.as_mut_ptr(), data.len(), offset, flags) }
}

/// One `writev` at the descriptor's own offset, for pipes and devices without one.
pub(crate) fn write(fd: BorrowedFd<'_>, parts: &[IoSlice<'_>]) -> io::Result<usize> {
    let count = parts.len().min(libc::UIO_MAXIOV as usize) as i32;
    // SAFETY: each part is readable for its length, and has the layout of an `iovec`.
    retry(|| unsafe { libc::writev(fd.as_raw_fd(), parts.as_ptr().cast(), count) })
}

/// One `readv` at the descriptor's own offset.
pub(crate) fn read(fd: BorrowedFd<'_>, parts: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
    let count = parts.len().min(libc::UIO_MAXIOV as usize) as i32;
    // SAFETY: each part is writable for its length, and has the layout of an `iovec`.
    retry(|| unsafe { libc::readv(fd.as_raw_fd(), parts.as_mut_ptr().cast(), count) })
}

/// Closes a file, and returns what a drop passes over: some filesystems (NFS, FUSE) tell by `close` alone that
/// data which `write` has returned for was lost. For commands; of a stream [`finish`](crate::Writer::finish)
/// does it.
///
/// # Errors
/// Those of `close(2)`. The file is closed all the same.
#[doc(hidden)]
pub fn close(file: File) -> io::Result<()> {
    // SAFETY: the descriptor is nobody else's. Not repeated: Linux closes it in any case.
    match unsafe { libc::close(file.into_raw_fd()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sets the mode of what was opened with `O_PATH`, whatever its name has become. For commands.
///
/// # Errors
/// Those of `fchmodat2(2)`; on a kernel without that (before Linux 6.6) it needs /proc.
#[doc(hidden)]
pub fn set_node_mode(node: &File, mode: u32) -> io::Result<()> {
    // The C library may be older than the call, which has this number on all architectures that pdio knows.
    let (call, fd) = (452, node.as_raw_fd());
    // SAFETY: the name is a string that lives through the call.
    if unsafe { libc::syscall(call, fd, c"".as_ptr(), mode, libc::AT_EMPTY_PATH) } == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    // Not by the node's own name: what that is may have been replaced by a link to another's file.
    let link = format!("/proc/self/fd/{fd}");
    match std::fs::set_permissions(link, Permissions::from_mode(mode)) {
        Err(other) if other.kind() == io::ErrorKind::NotFound => Err(error),
        set => set,
    }
}

/// A file in a directory that has no name, and so is gone when it is closed, whatever happens. For commands.
///
/// # Errors
/// Those of `open(2)` and `unlink(2)`.
#[doc(hidden)]
pub fn nameless(directory: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.read(true).write(true).mode(0o600);
    let file = options
        .clone()
        .custom_flags(libc::O_TMPFILE)
        .open(directory);
    let cannot = [libc::EOPNOTSUPP, libc::EISDIR].map(Some);
    if !matches!(&file, Err(error) if cannot.contains(&error.raw_os_error())) {
        return file;
    }
    // As FAT, which memory cards have: there it has a name for a moment.
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let path = directory.join(format!(".pdio.{}.{number}", std::process::id()));
    let file = options.create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

/// The descriptor's own offset.
pub(crate) fn offset(fd: BorrowedFd<'_>) -> io::Result<u64> {
    // SAFETY: no memory is involved.
    retry(|| unsafe { libc::lseek64(fd.as_raw_fd(), 0, libc::SEEK_CUR) as isize }).map(|n| n as u64)
}

/// Moves the descriptor's own offset.
pub(crate) fn set_offset(fd: BorrowedFd<'_>, offset: u64) -> io::Result<()> {
    // SAFETY: no memory is involved.
    retry(|| unsafe { libc::lseek64(fd.as_raw_fd(), offset as i64, libc::SEEK_SET) as isize })
        .map(drop)
}

/// The open flags (`O_*`) of a descriptor.
pub(crate) fn flags(fd: BorrowedFd<'_>) -> io::Result<i32> {
    // SAFETY: no memory is involved.
    retry(|| unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) as isize }).map(|n| n as i32)
}

/// Opens the file behind `fd` once more, with a description of its own.
///
/// Goes through `/proc/self/fd`, so it works for deleted and renamed files; the open flags of the
/// caller's description stay as they are.
pub(crate) fn reopen(fd: BorrowedFd<'_>, flags: i32) -> io::Result<File> {
    let path = format!("/proc/self/fd/{}\0", fd.as_raw_fd());
    // SAFETY: `path` ends with a zero byte.
    let new =
        retry(|| unsafe { libc::open(path.as_ptr().cast(), flags | libc::O_CLOEXEC) as isize })?;
    // SAFETY: the descriptor was just opened and belongs to nobody else.
    Ok(unsafe { File::from_raw_fd(new as RawFd) })
}

/// `fallocate` with `FALLOC_FL_KEEP_SIZE` and further flags.
pub(crate) fn fallocate_keep_size(
    fd: BorrowedFd<'_>,
    flags: i32,
    offset: u64,
    len: u64,
) -> io::Result<()> {
    retry(|| {
        // SAFETY: no memory is involved.
        (unsafe {
            libc::fallocate64(
                fd.as_raw_fd(),
                libc::FALLOC_FL_KEEP_SIZE | flags,
                offset as i64,
                len as i64,
            )
        }) as isize
    })
    .map(drop)
}

/// Starts (and with `wait` completes) writeback of a range of the page cache.
///
/// Not a durability call: device caches and metadata are not flushed. An error is one of writeback.
/// Waiting takes it away from the open file description, as `fsync` does: the kernel does not report
/// it there again. A system that refuses the call has nothing to report.
pub(crate) fn sync_file_range(
    fd: BorrowedFd<'_>,
    offset: u64,
    len: u64,
    wait: bool,
) -> io::Result<()> {
    let call = |flags| {
        retry(|| {
            // SAFETY: no memory is involved.
            (unsafe { libc::sync_file_range(fd.as_raw_fd(), offset as i64, len as i64, flags) })
                as isize
        })
        .map(drop)
    };
    let mut flags = libc::SYNC_FILE_RANGE_WRITE;
    if wait {
        flags |= libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    }
    // Where the call itself is refused, it also is when it is asked to do nothing.
    call(flags).or_else(|error| call(0).map_or(Ok(()), |()| Err(error)))
}

/// Bytes of `[offset, offset + len)` that sit in the page cache, if the kernel tells
/// (`cachestat`, Linux 6.5; only who owns the file or may write it is told).
pub(crate) fn resident(fd: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<u64> {
    cachestat(fd, offset, len).map(|[cached, ..]| cached)
}

/// Returns true if this thread's system calls are filtered (seccomp). The filters of Debian 12's systemd do not know calls
/// newer than Linux 6.1, and end a process that makes one.
fn is_filtered() -> bool {
    // SAFETY: no memory is involved.
    unsafe { libc::prctl(libc::PR_GET_SECCOMP) > 0 }
}

/// Bytes of a range that sit in the page cache, that are dirty, and that are being written back; two
/// more numbers are of what was evicted.
pub(crate) fn cachestat(fd: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<[u64; 5]> {
    const SYS_CACHESTAT: libc::c_long = 451;
    #[repr(C)]
    struct Range {
        off: u64,
        len: u64,
    }
    if is_filtered() {
        return Err(io::Error::from_raw_os_error(libc::EPERM));
    }
    let range = Range { off: offset, len };
    let mut stat = [0u64; 5];
    // SAFETY: both structures live through the call and have the kernel's layout: the range is
    // two u64, the result five, which are numbers of pages.
    let rc = unsafe {
        libc::syscall(
            SYS_CACHESTAT,
            fd.as_raw_fd(),
            &range as *const Range,
            stat.as_mut_ptr(),
            0u32,
        )
    };
    match rc {
        0 => Ok(stat.map(|pages| pages * page_size())),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Private memory that is empty in a forked child, so that the parent's pages are never made
/// copy-on-write. Linux 4.14, older than io_uring and all else that is of use here.
pub(crate) fn map_wiped(len: usize) -> Option<usize> {
    // SAFETY: a fresh anonymous mapping; the result is checked.
    let base = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if base == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: our own mapping.
    if unsafe { libc::madvise(base, len, libc::MADV_WIPEONFORK) } == 0 {
        return Some(base as usize);
    }
    // SAFETY: our own mapping, not in use.
    unsafe { libc::munmap(base, len) };
    None
}

/// A number that is zero in every child of this process.
pub(crate) fn wiped_in_children() -> io::Result<&'static AtomicU64> {
    let page = map_wiped(page_size() as usize).ok_or_else(io::Error::last_os_error)?;
    // SAFETY: a page of zeros that is never unmapped; only atomic accesses follow.
    Ok(unsafe { &*(page as *const AtomicU64) })
}

/// A thread of this crate.
#[derive(Debug)]
pub(crate) struct Thread(libc::pthread_t);

impl Thread {
    /// Waits until the thread has ended. If it has panicked, that has been printed.
    pub(crate) fn join(self) {
        let id = std::mem::ManuallyDrop::new(self).0;
        // SAFETY: nobody else joins or detaches it.
        unsafe { libc::pthread_join(id, std::ptr::null_mut()) };
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        // SAFETY: as in `join`.
        unsafe { libc::pthread_detach(self.0) };
    }
}

/// What a thread begins with.
struct Start<F> {
    name: &'static CStr,
    work: F,
}

extern "C" fn begin<F: FnOnce()>(start: *mut c_void) -> *mut c_void {
    // Before the first allocation: an allocator may make system calls for a thread that is new to it.
    let _thread = std::mem::ManuallyDrop::new(crate::thread::OwnThread::begin());
    // Out of the box, which is freed: checkers of leaks may not know this thread's stack.
    // SAFETY: `spawn` has given the box away to this thread.
    let start = unsafe { *Box::from_raw(start.cast::<Start<F>>()) };
    // SAFETY: the name is a string.
    unsafe { libc::pthread_setname_np(libc::pthread_self(), start.name.as_ptr()) };
    // A panic is printed, and is no reason to end the process.
    let _ = catch_unwind(AssertUnwindSafe(start.work));
    std::ptr::null_mut()
}

/// Looks up what threads of this crate need, so that the first stream does not: that takes the loader's lock, which
/// another thread may hold while it waits for this one, and has the loader forget its last error.
pub fn prepare_threads() {
    // SAFETY: attributes are initialised by the first call.
    unsafe {
        let mut attributes = std::mem::zeroed();
        libc::pthread_attr_init(&mut attributes);
        taken_from_stacks(&attributes);
        libc::pthread_attr_destroy(&mut attributes);
    }
}

/// What the C library needs of a stack for itself, in bytes: it puts the thread's variables there, of which a
/// program may have any number.
fn taken_from_stacks(attributes: &libc::pthread_attr_t) -> usize {
    // Not something with a lock, which a forked child could find held.
    static KNOWN: AtomicUsize = AtomicUsize::new(0);
    type Least = unsafe extern "C" fn(*const libc::pthread_attr_t) -> usize;
    let known = KNOWN.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    // As the standard library finds it: glibc has no public name for that, and musl adds it by itself.
    // SAFETY: a terminated string, and the function's type.
    let least = unsafe {
        let least = libc::dlsym(libc::RTLD_DEFAULT, c"__pthread_get_minstack".as_ptr());
        match std::mem::transmute::<*mut c_void, Option<Least>>(least) {
            Some(least) => least(attributes),
            None => usize::try_from(libc::sysconf(libc::_SC_THREAD_STACK_MIN)).unwrap_or(0),
        }
    };
    KNOWN.store(least, Ordering::Relaxed);
    least
}

/// Starts a thread that works for this crate alone, and that no signal reaches, from its first
/// instruction to its last: signals are for the program's own threads. A handler of the program's that runs
/// in this one could wait for what this one is there to do. (A thread of the standard library
/// allocates before it is anybody's, and after.)
pub(crate) fn spawn<F: FnOnce() + Send + 'static>(
    name: &'static CStr,
    stack: usize,
    work: F,
) -> io::Result<Thread> {
    let start = Box::into_raw(Box::new(Start { name, work }));
    // A thread inherits what its maker blocks.
    // SAFETY: sets and attributes are initialised by the calls before they are used; the thread
    // takes the box over, if there is one.
    unsafe {
        let mut attributes = std::mem::zeroed();
        libc::pthread_attr_init(&mut attributes);
        let whole = (stack + taken_from_stacks(&attributes)).next_multiple_of(page_size() as usize);
        libc::pthread_attr_setstacksize(&mut attributes, whole);
        let (mut all, mut old) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut old);
        let mut thread = 0;
        let failed = libc::pthread_create(&mut thread, &attributes, begin::<F>, start.cast());
        libc::pthread_sigmask(libc::SIG_SETMASK, &old, std::ptr::null_mut());
        libc::pthread_attr_destroy(&mut attributes);
        if failed != 0 {
            drop(Box::from_raw(start));
            return Err(io::Error::from_raw_os_error(failed));
        }
        Ok(Thread(thread))
    }
}

/// The size of a memory page in bytes.
pub(crate) fn page_size() -> u64 {
    // SAFETY: no memory is involved.
    (unsafe { libc::sysconf(libc::_SC_PAGESIZE) }) as u64
}

/// Number of processors online.
pub(crate) fn cpus() -> u32 {
    // SAFETY: no memory is involved.
    (unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) }).max(1) as u32
}

/// Time since some moment.
#[cfg(not(test))]
pub(crate) fn now() -> Duration {
    clock(libc::CLOCK_MONOTONIC)
}

/// As [`now`], in steps of some milliseconds, for a few nanoseconds.
pub(crate) fn coarse_now() -> Duration {
    clock(libc::CLOCK_MONOTONIC_COARSE)
}

/// The processor time that the calling thread has used.
pub(crate) fn thread_cpu() -> Duration {
    clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// The number of the calling thread, which no other gets soon after it.
pub(crate) fn thread_id() -> i32 {
    // SAFETY: no memory is involved.
    (unsafe { libc::syscall(libc::SYS_gettid) }) as i32
}

/// How often the calling thread has left a processor, if the kernel tells.
pub(crate) fn thread_switches() -> Option<u64> {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the result is ours.
    let rc = unsafe { libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) };
    // SAFETY: zeros are valid, and the call has filled it.
    let usage = unsafe { usage.assume_init() };
    (rc == 0).then(|| (usage.ru_nvcsw + usage.ru_nivcsw) as u64)
}

fn clock(which: libc::clockid_t) -> Duration {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is valid for writing.
    unsafe { libc::clock_gettime(which, &mut now) };
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// When a file was last changed, and its size: the same as before if nobody has changed it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stamp {
    changed: Duration,
    modified: Duration,
    size: i64,
}

impl Stamp {
    /// Returns true if the change was at least `age` ago. A change that follows a recent one may
    /// bear the same time: clocks of filesystems have steps of milliseconds, and a long write bears
    /// the time at which it began.
    pub(crate) fn is_older_than(&self, age: Duration) -> bool {
        let now = clock(libc::CLOCK_REALTIME_COARSE);
        self.changed.max(self.modified) + age < now
    }

    /// The file's size in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.size as u64
    }
}

/// The present [`Stamp`] of a file.
pub(crate) fn stamp(fd: BorrowedFd<'_>) -> io::Result<Stamp> {
    let mut about = std::mem::MaybeUninit::<libc::stat64>::zeroed();
    // SAFETY: the result is ours.
    retry(|| unsafe { libc::fstat64(fd.as_raw_fd(), about.as_mut_ptr()) as isize })?;
    // SAFETY: filled by the call above.
    let about = unsafe { about.assume_init() };
    let time = |s: i64, ns: i64| Duration::new(s.max(0) as u64, ns as u32);
    Ok(Stamp {
        changed: time(about.st_ctime, about.st_ctime_nsec),
        modified: time(about.st_mtime, about.st_mtime_nsec),
        size: about.st_size,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns true if the calling thread blocks a signal.
    fn blocks(signal: libc::c_int) -> bool {
        // SAFETY: the set is initialised by the call before it is used.
        unsafe {
            let mut set = std::mem::zeroed();
            libc::pthread_sigmask(libc::SIG_SETMASK, std::ptr::null(), &mut set);
            libc::sigismember(&set, signal) == 1
        }
    }

    #[test]
    fn threads_of_ours_begin_with_signals_blocked_and_leave_the_maker_as_it_was() {
        let (tell, told) = std::sync::mpsc::channel();
        let work = move || tell.send(blocks(libc::SIGALRM)).unwrap();
        spawn(c"pdio-test", 64 << 10, work).unwrap().join();
        assert!(told.recv().unwrap());
        assert!(!blocks(libc::SIGALRM));
    }
}
