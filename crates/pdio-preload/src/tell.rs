// SPDX-License-Identifier: MIT OR Apache-2.0
//! Before the program can tell anybody, the kernel has what was written.
//!
//! Another process may learn that a write has happened from a byte in a pipe, a signal, a lock that
//! is free, a file that appears, or from seeing this process wait. So before each such call all
//! streams hand over what waits, in the order of their last writes, which is the order that their
//! modification times must have.
//!
//! One word says that something waits: [`CLEAR`]. Calls that cannot be told apart by a descriptor begin
//! with that one comparison (see `told!`).
//!
//! The C library's own input and output, which it does unseen, begins with a second one: with
//! [`OFFSETS`], which says that a stream is taken that is standard input or output, so that the
//! kernel's offset must be made right.
//!
//! The other way round, after a call by which the program may have heard of what another process has
//! written, no stream returns what it read ahead before without asking for the file's times (see
//! [`pdio::heard`]). Such calls compare with [`QUIET`], which says that a stream is taken, as those on
//! descriptors do anyway. They are called and not jumped to where one is, as they may wait for long, and
//! another thread may look meanwhile. So it is after a call by which the program itself may have changed a
//! file that has another name: one of FUSE or of a network, or a device over a file ([`changed`]).
//!
//! A store into shared memory is no call. In a process that has mapped memory writable and shared
//! no writing stream is taken.

use core::ffi::{c_char, c_int, c_long};
use core::mem::transmute;
use core::sync::atomic::{
    AtomicBool, AtomicI64, AtomicIsize, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, SeqCst},
};

use crate::guard::{self, Guard};
use crate::jump::{arrive_with, About, Slot, Words};
use crate::next;
use crate::table::{CLEAR, QUIET, SLOTS};
use crate::{acts, look, memory, settings, state, table};

/// Negative while the kernel's offset of standard input or output may be another than its stream's.
pub static OFFSETS: AtomicIsize = AtomicIsize::new(0);

/// A stream becomes standard input or output.
pub fn offsets_differ() {
    /// No value comes twice.
    static NUMBER: AtomicIsize = AtomicIsize::new(1);
    OFFSETS.store(-NUMBER.fetch_add(1, SeqCst), SeqCst);
}

/// The offsets of all such streams are right, unless there is another since `seen`. Only once they are: a thread that
/// finds nothing to do would write at the old one.
pub fn offsets_agree(seen: isize) {
    let _ = OFFSETS.compare_exchange(seen, 0, SeqCst, Relaxed);
}

/// Before the C library reads or writes by itself.
fn offsets() {
    if OFFSETS.load(Acquire) < 0 {
        if let Some(acts) = acts::all() {
            (acts.keep_step)();
        }
    }
}

/// Numbers the writes that are deferred, so that their order is known.
static STAMP: AtomicI64 = AtomicI64::new(2);

/// Notes a write to a stream that holds it back; `number` is that of the stream's last one, zero if
/// everything was handed over since. Called under the stream's lock.
pub fn deferred(number: &AtomicU64) {
    let last = number.load(SeqCst);
    if last != 0 && CLEAR.load(SeqCst) == -(last as isize) {
        // The last write of all was this stream's. The thread that hands over needs its lock first.
        return;
    }
    let stamp = STAMP.fetch_add(1, SeqCst);
    number.store(stamp as u64, SeqCst);
    // Values are unique: if the exchange of a hand-over succeeds, nothing was written meanwhile.
    CLEAR.store(-stamp as isize, SeqCst);
}

/// Returns true if something that was written may wait in memory, and the call is the program's.
#[inline]
pub fn waits() -> bool {
    CLEAR.load(Acquire) < 0 && !guard::inside() && state::is_owner()
}

/// Makes the kernel have everything that was written.
#[cold]
pub fn hand_over() {
    let seen = CLEAR.load(SeqCst);
    // A child that shares the memory until it executes a program has nothing to hand over.
    if seen >= 0 || guard::inside() || !state::is_owner() {
        return;
    }
    let errno = crate::errno::get();
    if let Some(acts) = acts::all() {
        (acts.hand_over)(STAMP.load(SeqCst) as u64);
    }
    // Only now: another thread that saw nothing wait would tell too early. What was written
    // meanwhile has left another value.
    let _ = CLEAR.compare_exchange(seen, SLOTS as isize, SeqCst, Relaxed);
    crate::errno::set(errno);
}

/// After a call by which the program may have heard of something.
#[inline]
pub fn heard() {
    if QUIET.load(Relaxed) < 0 && !guard::inside() {
        pdio::heard();
    }
}

// ----------------------------------------------------------------- what a descriptor leads to

/// What was found out about descriptors: the generation in which it was, and the bits below.
static KINDS: [AtomicU32; SLOTS] = [const { AtomicU32::new(0) }; SLOTS];
/// Changes whenever a descriptor may have become another.
static GENERATION: AtomicU32 = AtomicU32::new(1);

/// Reading never waits for anybody.
const STORED: u32 = 1;
/// Nobody sees what is written.
const UNSEEN: u32 = 2;
/// A file that another process or machine keeps, and perhaps elsewhere, or a device that is a file: what is read
/// there may be what waits here under another name.
const KEPT: u32 = 4;
const ALL: u32 = STORED | UNSEEN | KEPT;
const BITS: u32 = 3;

/// Some descriptor is closed or replaced.
pub fn renumbered() {
    // In one step: a thread that is interrupted must not bring an old value back, and what was known then.
    GENERATION.fetch_add(1, Relaxed);
}

/// Returns true for `/dev/null`, `/dev/zero`, `/dev/full`, `/dev/random` and `/dev/urandom`. Of their like, what is
/// written to `/dev/kmsg`, `/dev/mem` and `/dev/port` is there for others.
fn is_unseen(device: libc::dev_t) -> bool {
    libc::major(device) == 1 && matches!(libc::minor(device), 3 | 5 | 7..=9)
}

fn kind(fd: c_int) -> u32 {
    let generation = GENERATION.load(Relaxed) << BITS;
    let known = KINDS.get(fd as usize);
    if let Some(word) = known.map(|known| known.load(Relaxed)) {
        if word & !ALL == generation {
            return word & ALL;
        }
    }
    // What answers may be another library, which goes about it by another call.
    let _guard = Guard::enter();
    let bits = match look::stat(fd) {
        Some(about) => match about.st_mode & libc::S_IFMT {
            // Only such filesystems have no device of their own, so the others need not be asked.
            libc::S_IFREG if libc::major(about.st_dev) == 0 && look::is_kept(fd) => STORED | KEPT,
            libc::S_IFBLK => match look::behind_device(fd, about.st_rdev) {
                // Its file may be taken later, so this is asked each time.
                Some((device, inode)) => {
                    let waits = table::leading_to(device, inode).next().is_some();
                    return if waits { STORED | KEPT } else { STORED };
                }
                None => STORED,
            },
            libc::S_IFREG | libc::S_IFDIR => STORED,
            libc::S_IFCHR if is_unseen(about.st_rdev) => STORED | UNSEEN,
            _ => 0,
        },
        // The call will fail.
        None => return STORED | UNSEEN,
    };
    if let Some(known) = known {
        known.store(generation | bits, Relaxed);
    }
    bits
}

/// Returns true if `poll` would wait. As a bare call, in which no thread is cancelled.
///
/// # Safety
/// `list` has `count` entries, as for `poll`.
unsafe fn nothing(list: *mut libc::pollfd, count: usize) -> bool {
    let none = [0 as c_long; 2];
    let none = none.as_ptr() as usize;
    // SAFETY: the caller's promise; the time is ours.
    unsafe { bare(libc::SYS_ppoll, [list as usize, count, none, 0, 0, 0]) == 0 }
}

unsafe fn bare(number: c_long, words: Words) -> c_long {
    let [a, b, c, d, e, f] = words.map(|word| word as libc::c_ulong);
    // SAFETY: the caller's.
    unsafe { next::syscall(number, a, b, c, d, e, f) }
}

/// Returns true if a call that takes data from this descriptor would wait.
fn idle(fd: c_int) -> bool {
    let mut poll = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one entry, ours.
    unsafe { nothing(&mut poll, 1) }
}

/// Before a write that goes straight to the kernel.
#[inline]
pub fn writing(fd: c_int) {
    if waits() && kind(fd) & UNSEEN == 0 {
        hand_over();
    }
}

/// Before a read that goes straight to the kernel.
#[inline]
pub fn reading(fd: c_int) {
    if waits() {
        let bits = kind(fd);
        if bits & KEPT != 0 || bits & STORED == 0 && idle(fd) {
            hand_over();
        }
    }
}

/// Returns true if a call that changes or closes what is there may change a file by another name that a stream reads.
pub fn changes_another(fd: c_int) -> bool {
    QUIET.load(Relaxed) < 0
        && !guard::inside()
        && state::is_owner()
        && crate::errno::keep(|| kind(fd)) & KEPT != 0
}

/// After a call that may have changed what is there.
pub fn changed(fd: c_int) {
    if changes_another(fd) {
        pdio::heard();
    }
}

/// What the kernel says of a descriptor that is new. Of most files that are opened it need not be asked again then.
pub fn stat(fd: c_int) -> Option<libc::stat64> {
    let generation = GENERATION.load(Relaxed) << BITS;
    let about = look::stat(fd)?;
    let of_a_disk = libc::major(about.st_dev) != 0 && about.st_mode & libc::S_IFMT == libc::S_IFREG;
    if let Some(known) = KINDS.get(fd as usize).filter(|_| of_a_disk) {
        known.store(generation | STORED, Relaxed);
    }
    Some(about)
}

/// Before what is known of a descriptor is asked for, or its file mapped, and after it was opened.
pub fn asking(fd: c_int) {
    if waits() && kind(fd) & KEPT != 0 {
        hand_over();
    }
}

/// Before a descriptor is closed. Pipes and sockets have another end, and others notice that a file which
/// was written or locked is closed.
pub fn closing(fd: c_int) {
    if !waits() {
        return;
    }
    let read_only = || {
        let _guard = Guard::enter();
        // SAFETY: no memory is involved.
        unsafe { next::fcntl64(fd, libc::F_GETFL, 0) & libc::O_ACCMODE == 0 }
    };
    let bits = kind(fd);
    if bits & UNSEEN == 0 && !(bits & STORED != 0 && read_only() && !LOCKS.load(Relaxed)) {
        hand_over();
    }
}

/// True if the program ever locked a file. Closing a descriptor may then release a lock.
static LOCKS: AtomicBool = AtomicBool::new(false);

/// Before a lock changes.
pub fn locking() {
    LOCKS.store(true, Relaxed);
    hand_over();
}

/// Before a file is opened. One that is made or emptied is seen; a pipe's other end may wait for
/// this one.
pub fn opening(directory: c_int, path: *const c_char, flags: c_int) {
    if !waits() {
        return;
    }
    let changes = libc::O_CREAT | libc::O_TRUNC | libc::O_ACCMODE;
    if flags & changes != 0 || look::is_pipe(directory, path) {
        hand_over();
    }
}

/// Before a bare system call. Returns true if the program may hear of something by it.
pub fn calling(number: c_long, operation: usize) -> bool {
    use libc::*;
    /// Calls by which nobody is told anything; and those that stand for a function that this library
    /// exports, which does what is needed.
    const ALONE: &[c_long] = &[
        SYS_gettid,
        SYS_getpid,
        SYS_getppid,
        SYS_getuid,
        SYS_geteuid,
        SYS_getgid,
        SYS_getegid,
        SYS_getcpu,
        SYS_getrandom,
        SYS_clock_gettime,
        SYS_clock_getres,
        SYS_gettimeofday,
        SYS_times,
        SYS_getrusage,
        SYS_getrlimit,
        SYS_prlimit64,
        SYS_uname,
        SYS_sched_yield,
        SYS_sched_getaffinity,
        SYS_sched_setaffinity,
        SYS_membarrier,
        SYS_rseq,
        SYS_set_robust_list,
        SYS_rt_sigprocmask,
        SYS_rt_sigaction,
        SYS_sigaltstack,
        SYS_mmap,
        SYS_madvise,
        SYS_mprotect,
        SYS_munmap,
        SYS_mremap,
        SYS_mincore,
        SYS_mlock,
        SYS_mlock2,
        SYS_munlock,
        SYS_mbind,
        SYS_brk,
        SYS_socket,
        SYS_socketpair,
        SYS_pipe2,
        SYS_eventfd2,
        SYS_epoll_create1,
        SYS_timerfd_create,
        SYS_memfd_create,
        SYS_openat,
        SYS_openat2,
        SYS_newfstatat,
        SYS_fstat,
        SYS_statx,
        SYS_read,
        SYS_pread64,
        SYS_readv,
        SYS_preadv,
        SYS_preadv2,
        SYS_write,
        SYS_pwrite64,
        SYS_writev,
        SYS_pwritev,
        SYS_pwritev2,
        SYS_lseek,
        SYS_fsync,
        SYS_fdatasync,
        SYS_fadvise64,
        SYS_readahead,
        SYS_close,
        SYS_fcntl,
        SYS_ioctl,
    ];
    /// Calls that others cannot see, but that show what others have done.
    const LOOKS: &[c_long] = &[SYS_getdents64, SYS_readlinkat, SYS_faccessat, SYS_getcwd];
    let heeds = QUIET.load(Relaxed) < 0 || waits();
    let private = operation & FUTEX_PRIVATE_FLAG as usize != 0;
    // Locks of threads come first, as they are the most frequent.
    let alone = || number == SYS_futex && private || ALONE.contains(&number);
    if !heeds || alone() {
        return false;
    }
    if !LOOKS.contains(&number) && waits() {
        hand_over();
    }
    true
}

/// True if memory is mapped through which other processes can be told without a call.
static SHARED: AtomicBool = AtomicBool::new(false);

/// Returns true if writing streams may be taken.
pub fn may_defer() -> bool {
    !SHARED.load(SeqCst)
}

/// Memory that others can read is about to be mapped writable.
#[cold]
pub fn sharing() {
    let settings = settings::get();
    let defers = settings.prompt && !settings.linger.is_zero();
    if defers && !guard::inside() && state::is_owner() {
        SHARED.store(true, SeqCst);
        if let Some(acts) = acts::all() {
            (acts.relinquish_writers)("memory is shared");
        }
    }
}

/// True if a file is mapped so that stores change it.
static MAPPED: AtomicBool = AtomicBool::new(false);

/// Returns true if the program's memory may be pages of a file. What a device writes there the kernel
/// has to write to the file, and it forgets that for a while, or on some filesystems for good, if it has
/// just written the page out (`docs/upstream-bugs.md`). A store it does not forget.
pub fn has_mapped_files() -> bool {
    MAPPED.load(Relaxed)
}

/// A file is about to be mapped so.
pub fn mapping_file() {
    MAPPED.store(true, Relaxed);
}

/// What others see change when the program stores into memory.
#[derive(Debug, PartialEq)]
enum Seen {
    Memory,
    File,
}

/// What others will see of memory that is about to be mapped; `None`: nothing.
fn seen(protection: c_int, flags: c_int, fd: c_int) -> Option<Seen> {
    let shared = matches!(
        flags & libc::MAP_TYPE,
        libc::MAP_SHARED | libc::MAP_SHARED_VALIDATE
    );
    if !shared || protection & libc::PROT_WRITE == 0 {
        return None;
    }
    if flags & libc::MAP_ANONYMOUS != 0 {
        return Some(Seen::Memory);
    }
    let about = {
        let _guard = Guard::enter();
        look::stat(fd)?
    };
    match about.st_mode & libc::S_IFMT {
        libc::S_IFREG => Some(Seen::File),
        // A device's memory is between the program and the device, but for that of `/dev/zero`, which is anonymous.
        libc::S_IFCHR if about.st_rdev == libc::makedev(1, 5) => Some(Seen::Memory),
        // What another process or the kernel looks at as well: a buffer of a device, a map of BPF, a ring of packets.
        libc::S_IFSOCK | 0 => Some(Seen::Memory),
        _ => None,
    }
}

/// Before memory is mapped.
pub fn mapping(protection: c_int, flags: c_int, fd: c_int) {
    if SHARED.load(Relaxed) && MAPPED.load(Relaxed) || guard::inside() || state::has_left() {
        return;
    }
    let Some(seen) = seen(protection, flags, fd) else {
        return;
    };
    if seen == Seen::File {
        mapping_file();
    }
    if !SHARED.load(Relaxed) {
        sharing();
    }
}

// -------------------------------------------------------------------- calls that need no more

/// Exports functions of any arguments. While nothing waits, and the second word is not negative,
/// each costs three comparisons and four jumps, three of which are not taken.
macro_rules! told {
    ($($also:ident, $before:ident: $($name:ident)*;)*) => {$($(
        #[no_mangle]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            static SLOT: Slot = Slot::new();
            fn about() -> About {
                About {
                    name: concat!(stringify!($name), "\0"),
                    versions: None,
                    while_negative: [&CLEAR, &$also],
                    before: $before,
                    inside: false,
                }
            }
            #[unsafe(naked)]
            unsafe extern "C" fn first() {
                arrive_with!(SLOT, about)
            }
            #[cfg(target_arch = "x86_64")]
            core::arch::naked_asm!(
                "cmp qword ptr [rip + {clear}], 0",
                "js {first}",
                "cmp qword ptr [rip + {also}], 0",
                "js {first}",
                "mov r11, [rip + {slot}]",
                "test r11, r11",
                "je {first}",
                "jmp r11",
                clear = sym CLEAR,
                also = sym $also,
                slot = sym SLOT,
                first = sym first,
            );
            #[cfg(target_arch = "aarch64")]
            core::arch::naked_asm!(
                "adrp x16, {clear}",
                "ldr x16, [x16, :lo12:{clear}]",
                "tbnz x16, 63, 1f",
                "adrp x16, {also}",
                "ldr x16, [x16, :lo12:{also}]",
                "tbnz x16, 63, 1f",
                "adrp x16, {slot}",
                "ldr x16, [x16, :lo12:{slot}]",
                "cbz x16, 1f",
                "br x16",
                "1: b {first}",
                clear = sym CLEAR,
                also = sym $also,
                slot = sym SLOT,
                first = sym first,
            );
            #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
            compile_error!("write down how this processor jumps to a function");
        }
    )*)*};
}

/// Exports functions of up to six words by which the program hears of something: after each, streams
/// look at their files. While no stream is taken, each costs three comparisons and a jump.
macro_rules! hears {
    ($($before:ident: $($name:ident)*;)*) => {$($(
        #[no_mangle]
        pub unsafe extern "C-unwind" fn $name(
            a: usize, b: usize, c: usize, d: usize, e: usize, f: usize
        ) -> usize {
            static SLOT: Slot = Slot::new();
            fn about() -> About {
                About {
                    name: concat!(stringify!($name), "\0"),
                    versions: None,
                    while_negative: [&QUIET, &CLEAR],
                    before: $before,
                    inside: false,
                }
            }
            let next = SLOT.next.load(Relaxed);
            // Whichever of the two another thread has changed by now.
            if QUIET.load(Acquire) >= 0 && CLEAR.load(Acquire) >= 0 && !next.is_null() {
                // SAFETY: the C library's function, and the words it was called with.
                return unsafe { transmute::<*mut (), Function>(next)(a, b, c, d, e, f) };
            }
            // SAFETY: as above.
            unsafe { call(&SLOT, about, [a, b, c, d, e, f], 0) }
        }
    )*)*};
}

/// The same for functions of up to five words that have an older version, or are not the C library's. They always ask
/// where they are called.
macro_rules! hears_by_version {
    ($($while:ident, $before:ident: $($name:ident)*;)*) => {$($(
        #[no_mangle]
        #[unsafe(naked)]
        pub unsafe extern "C-unwind" fn $name() {
            use $crate::{jump, symbols, table, tell};
            static VERSIONS: symbols::Versions = symbols::Versions::new();
            static SLOT: jump::Slot = jump::Slot::new();
            fn about() -> jump::About {
                jump::About {
                    name: concat!(stringify!($name), "\0"),
                    versions: Some(&VERSIONS),
                    while_negative: [&$while, &table::CLEAR],
                    before: $before,
                    inside: false,
                }
            }
            unsafe extern "C-unwind" fn called(
                a: usize, b: usize, c: usize, d: usize, e: usize, caller: usize
            ) -> usize {
                // SAFETY: the words the C library's function was called with.
                unsafe { tell::call(&SLOT, about, [a, b, c, d, e, 0], caller) }
            }
            #[cfg(target_arch = "x86_64")]
            core::arch::naked_asm!("mov r9, [rsp]", "jmp {called}", called = sym called);
            #[cfg(target_arch = "aarch64")]
            core::arch::naked_asm!("mov x5, x30", "b {called}", called = sym called);
            #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
            compile_error!("write down where this processor keeps the address to return to");
        }
    )*)*};
}
pub(crate) use hears_by_version;

type Function = unsafe extern "C-unwind" fn(usize, usize, usize, usize, usize, usize) -> usize;

/// Calls a function by which the program hears of something.
///
/// # Safety
/// The words are the program's arguments.
#[cold]
#[inline(never)]
pub unsafe fn call(slot: &Slot, about: fn() -> About, words: Words, caller: usize) -> usize {
    // SAFETY: the caller's promise.
    let next = unsafe { slot.begin(&about(), &words, caller) };
    let [a, b, c, d, e, f] = words;
    // SAFETY: as above.
    let result = unsafe { transmute::<*mut (), Function>(next)(a, b, c, d, e, f) };
    heard();
    result
}

/// `recvfrom` of programs that are compiled with checks: the only one of these of seven words.
#[no_mangle]
pub unsafe extern "C-unwind" fn __recvfrom_chk(
    fd: usize,
    data: usize,
    len: usize,
    size: usize,
    flags: usize,
    from: usize,
    from_len: usize,
) -> usize {
    type Function =
        unsafe extern "C-unwind" fn(usize, usize, usize, usize, usize, usize, usize) -> usize;
    static SLOT: Slot = Slot::new();
    let about = About {
        name: "__recvfrom_chk\0",
        versions: None,
        while_negative: [&QUIET, &CLEAR],
        before: receiving,
        inside: false,
    };
    // SAFETY: the program's arguments.
    let next = unsafe { SLOT.begin(&about, &[fd, data, len, size, flags, from], 0) };
    // SAFETY: the C library's function, and the words it was called with.
    let result =
        unsafe { transmute::<*mut (), Function>(next)(fd, data, len, size, flags, from, from_len) };
    heard();
    result
}

/// `pause`, of which a signal that comes while data is handed over is the end as well: nothing else may ever end it.
#[no_mangle]
pub unsafe extern "C-unwind" fn pause() -> c_int {
    // SAFETY: the set is ours.
    unsafe {
        let result = if waits() {
            let old = guard::block();
            hand_over();
            let result = next::sigsuspend(&old);
            libc::pthread_sigmask(libc::SIG_SETMASK, &old, core::ptr::null_mut());
            result
        } else {
            next::pause()
        };
        heard();
        result
    }
}

/// Others cannot see the call.
unsafe fn nothing_seen(_: &Words) {}

unsafe fn always(_: &Words) {
    hand_over();
}

/// The C library writes, or looks at an offset.
unsafe fn standard(_: &Words) {
    hand_over();
    offsets();
}

/// Returns true if output goes to standard error, which has no buffer, and nothing else is written.
unsafe fn is_error(file: usize) -> bool {
    // SAFETY: the C library's variable.
    file == unsafe { stderr }
}

/// What runs before functions that write to the file that is given.
macro_rules! outputs {
    ($(fn $name:ident = $at:literal;)*) => {$(
        unsafe fn $name(words: &Words) {
            hand_over();
            // SAFETY: only compared.
            if unsafe { !is_error(words[$at]) } {
                offsets();
            }
        }
    )*};
}

outputs! {
    fn output_of_1 = 0;
    fn output_of_2 = 1;
    fn output_of_4 = 3;
}

unsafe fn receiving(words: &Words) {
    reading(words[0] as c_int);
}

/// True once the program asks to hear of what is done to files: what it asks without waiting, too, may then be what
/// it wrote itself.
static FILES_WATCHED: AtomicBool = AtomicBool::new(false);

/// Before the program asks for that.
pub fn watching_files() {
    FILES_WATCHED.store(true, SeqCst);
    hand_over();
}

/// Returns true if a limit in milliseconds leaves time to wait, or files are watched.
unsafe fn milliseconds(limit: usize) -> bool {
    limit as c_int != 0 || FILES_WATCHED.load(SeqCst)
}

/// The same of a limit as a `timespec` or `timeval`; none at all leaves time.
unsafe fn time(limit: usize) -> bool {
    if FILES_WATCHED.load(SeqCst) {
        return true;
    }
    let limit = limit as *const [c_long; 2];
    // What the kernel will refuse does not wait.
    // SAFETY: null, or the program's, if it is there.
    limit.is_null() || unsafe { memory::peek(limit) }.is_some_and(|limit| limit != [0, 0])
}

unsafe fn poll_waits(words: &Words) -> bool {
    // SAFETY: the program's list, whose results are about to be overwritten.
    unsafe { nothing(words[0] as *mut _, words[1]) }
}

/// An `epoll` descriptor can itself be asked; to ask for its events would take them away.
unsafe fn epoll_waits(words: &Words) -> bool {
    idle(words[0] as c_int)
}

/// `select`: on copies, as its sets are questions and answers.
unsafe fn select_waits(words: &Words) -> bool {
    let &[count, sets @ .., _, _] = words;
    // SAFETY: sets of numbers may be all zero; those of the program's have this many bits, which
    // fit.
    let ready = unsafe {
        let mut copies: [libc::fd_set; 3] = core::mem::zeroed();
        let mut pointers = [0; 3];
        if count <= libc::FD_SETSIZE {
            for i in (0..3).filter(|&i| sets[i] != 0) {
                let (to, words) = (copies.as_mut_ptr().add(i), count.div_ceil(64));
                // What the kernel will refuse does not wait.
                if !memory::Known::default().holds(sets[i], words * 8, false) {
                    return false;
                }
                (sets[i] as *const u64).copy_to_nonoverlapping(to.cast(), words);
                pointers[i] = to as usize;
            }
            let none = [0 as c_long; 2];
            let [read, write, other] = pointers;
            let none = none.as_ptr() as usize;
            bare(libc::SYS_pselect6, [count, read, write, other, none, 0])
        } else {
            0
        }
    };
    ready == 0
}

/// What runs before functions that wait for descriptors: where the limit leaves time, and nothing is
/// ready.
macro_rules! waiting {
    ($(fn $name:ident = $waits:ident, $limit:ident of $at:literal;)*) => {$(
        unsafe fn $name(words: &Words) {
            // SAFETY: the program's arguments.
            if unsafe { $limit(words[$at]) && $waits(words) } {
                hand_over();
            }
        }
    )*};
}

waiting! {
    fn polling = poll_waits, milliseconds of 2;
    fn polling_precisely = poll_waits, time of 2;
    fn selecting = select_waits, time of 4;
    fn awaiting = epoll_waits, milliseconds of 3;
    fn awaiting_precisely = epoll_waits, time of 3;
}

unsafe fn watching_children(words: &Words) {
    if words[2] as c_int & libc::WNOHANG == 0 {
        hand_over();
    }
}

unsafe fn watching_ids(words: &Words) {
    if words[3] as c_int & libc::WNOHANG == 0 {
        hand_over();
    }
}

/// Before a directory is closed, which may be locked.
///
/// # Safety
/// `directory` is null or open.
pub unsafe fn closing_directory(directory: *mut libc::DIR) {
    if !directory.is_null() {
        // SAFETY: the caller's promise.
        closing(unsafe { libc::dirfd(directory) });
        renumbered();
    }
}

/// Input through the C library's buffer, of one character if `one`.
unsafe fn input(file: usize, one: bool) {
    /// How glibc's `struct _IO_FILE` begins; its macros have made that part of every program.
    #[repr(C)]
    struct Buffer {
        flags: c_int,
        next: *const c_char,
        end: *const c_char,
    }
    /// Without a buffer, or for a terminal: before such a file is read, the C library writes what standard output
    /// has of a line.
    const BY_LINES: c_int = 0x2 | 0x200;
    if file == 0 {
        return;
    }
    // SAFETY: the program's open file.
    unsafe {
        let buffer = &*(file as *const Buffer);
        if !one || buffer.next >= buffer.end {
            let fd = libc::fileno(file as *mut libc::FILE);
            // At the first read it is not known yet whether that is a terminal.
            let may_be_one = || buffer.next.is_null() && waits() && kind(fd) & STORED == 0;
            if buffer.flags & BY_LINES != 0 || may_be_one() {
                hand_over();
            }
            reading(fd);
            offsets();
            heard();
        }
    }
}

extern "C" {
    static stdin: usize;
    static stderr: usize;
}

/// What runs before functions that take input from the file that is given.
macro_rules! inputs {
    ($(fn $name:ident($words:ident) = $file:expr, one: $one:literal;)*) => {$(
        unsafe fn $name($words: &Words) {
            // SAFETY: the program's open file, or none.
            unsafe { input($file, $one) }
        }
    )*};
}

inputs! {
    fn character_of_input(_words) = stdin, one: true;
    fn character_of(words) = words[0], one: true;
    fn input_of_standard(_words) = stdin, one: false;
    fn input_of_1(words) = words[0], one: false;
    fn input_of_3(words) = words[2], one: false;
    fn input_of_4(words) = words[3], one: false;
    fn input_of_5(words) = words[4], one: false;
}

told! {
    // The C library writes by itself, unseen, when a buffer is full or a line ends; or it moves or
    // looks at the offset of what is below a buffer.
    OFFSETS, standard:
        printf vprintf __printf_chk __vprintf_chk puts putchar putchar_unlocked _IO_puts
        wprintf fwprintf vwprintf vfwprintf __wprintf_chk __fwprintf_chk __vwprintf_chk
        __vfwprintf_chk fputws fputws_unlocked fputwc fputwc_unlocked putwc putwc_unlocked putwchar
        putwchar_unlocked __woverflow error error_at_line err errx verr verrx warn warnx vwarn vwarnx
        _IO_printf _IO_fprintf _IO_vfprintf _IO_fputs _IO_fwrite _IO_padn _IO_fflush
        _IO_flush_all _IO_flush_all_linebuffered _flushlbf _IO_do_write
        putpwent putspent putgrent putsgent addmntent malloc_info
        argp_error argp_failure argp_help argp_parse argp_state_help argp_usage
        fseek fseeko fseeko64 ftell ftello ftello64 rewind fgetpos fgetpos64 fsetpos fsetpos64
        _IO_ftell _IO_fgetpos _IO_fgetpos64 _IO_fsetpos _IO_fsetpos64 _IO_seekoff _IO_seekpos
        __fseeko64 __ftello64 ungetc ungetwc _IO_ungetc
        setbuf setbuffer setlinebuf setvbuf _IO_setbuffer _IO_setvbuf;
    OFFSETS, output_of_1:
        fprintf vfprintf __fprintf_chk __vfprintf_chk fflush fflush_unlocked __overflow;
    OFFSETS, output_of_2:
        fputs fputs_unlocked fputc fputc_unlocked putc putc_unlocked putw _IO_putc;
    OFFSETS, output_of_4: fwrite fwrite_unlocked;
    // These hear before they return, as one may wait in between: some take any number of arguments,
    // and the others are called for each character.
    QUIET, character_of_input: getchar getchar_unlocked getwchar getwchar_unlocked;
    QUIET, character_of:
        getc getc_unlocked fgetc fgetc_unlocked getwc getwc_unlocked fgetwc fgetwc_unlocked
        __uflow __underflow __wuflow __wunderflow _IO_getc;
    QUIET, input_of_standard:
        scanf wscanf __isoc99_scanf __isoc99_wscanf __isoc23_scanf __isoc23_wscanf;
    QUIET, input_of_1:
        fscanf fwscanf __isoc99_fscanf __isoc99_fwscanf __isoc23_fscanf __isoc23_fwscanf;

    CLEAR, always:
        perror herror fmtmsg malloc_stats getopt getopt_long getopt_long_only psignal psiginfo syslog vsyslog __syslog_chk __vsyslog_chk
        getnameinfo gethostbyname2_r gethostbyaddr_r;
}

hears! {
    input_of_standard:
        gets _IO_gets __gets_chk vscanf vwscanf __isoc99_vscanf __isoc99_vwscanf __isoc23_vscanf
        __isoc23_vwscanf getpass;
    input_of_1:
        vfscanf vfwscanf __vfscanf __isoc99_vfscanf __isoc99_vfwscanf __isoc23_vfscanf
        __isoc23_vfwscanf getw fgetpwent fgetpwent_r fgetspent fgetspent_r fgetgrent fgetgrent_r
        fgetsgent fgetsgent_r getmntent getmntent_r _IO_getline _IO_sgetn;
    input_of_3:
        fgets fgets_unlocked _IO_fgets fgetws fgetws_unlocked getline;
    input_of_4:
        getdelim __getdelim fread fread_unlocked _IO_fread __fgets_chk __fgets_unlocked_chk
        __fgetws_chk __fgetws_unlocked_chk;
    input_of_5: __fread_chk __fread_unlocked_chk;

    always:
        send __send sendto connect __connect bind listen shutdown setsockopt eventfd_write tee vmsplice
        tcdrain tcsendbreak tcflow tcflush tcsetattr
        getaddrinfo gethostbyname gethostbyname2 gethostbyname_r gethostbyaddr
        res_query res_search res_querydomain res_send
        msgget msgctl msgsnd msgrcv semget semctl semop semtimedop shmget shmctl mq_send mq_timedsend mq_receive mq_timedreceive
        process_vm_writev aio_suspend aio_suspend64
        killpg sigqueue tgkill pidfd_send_signal ptrace tcsetpgrp
        mount umount umount2 move_mount fsconfig mount_setattr swapon swapoff sethostname setdomainname
        wait __wait wait3 pclose sleep usleep nanosleep __nanosleep clock_nanosleep thrd_sleep
        sigsuspend __sigsuspend sigpause __sigpause __xpg_sigpause sigwait
        sigwaitinfo sigtimedwait
        pututline pututxline updwtmp updwtmpx logwtmp login logout lckpwdf ulckpwdf
        mkdir mkdirat rmdir symlink symlinkat mknod mknodat __xmknod __xmknodat mkfifo mkfifoat mkdtemp unlink unlinkat
        remove removexattr lremovexattr fremovexattr mq_unlink shm_unlink sem_unlink;
    receiving: recv recvfrom __recv_chk eventfd_read;
    polling: poll __poll __poll_chk;
    polling_precisely: ppoll __ppoll_chk;
    selecting: select __select pselect;
    awaiting: epoll_wait epoll_pwait;
    awaiting_precisely: epoll_pwait2;
    watching_children: waitpid __waitpid wait4;
    watching_ids: waitid;
    nothing_seen:
        access faccessat euidaccess eaccess readlink readlinkat __readlink_chk __readlinkat_chk
        __realpath_chk canonicalize_file_name
        readdir readdir64 readdir_r readdir64_r getdents64 getdirentries getdirentries64
        scandir scandir64 scandirat scandirat64
        getxattr lgetxattr fgetxattr listxattr llistxattr flistxattr
        statfs statfs64 fstatfs fstatfs64 statvfs statvfs64 fstatvfs fstatvfs64
        getsockopt aio_error aio_error64 aio_return aio_return64 mq_getattr sigpending
        process_vm_readv;
}

hears_by_version! {
    QUIET, nothing_seen: realpath glob glob64;
    QUIET, always: io_getevents io_pgetevents gai_suspend;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_known_of_descriptors_does_not_come_back() {
        const TIMES: u32 = 2_000_000;
        let before = GENERATION.load(SeqCst);
        let change = || (0..TIMES).for_each(|_| renumbered());
        std::thread::scope(|scope| {
            scope.spawn(change);
            scope.spawn(change);
        });
        // Other tests close descriptors meanwhile.
        let changes = GENERATION.load(SeqCst).wrapping_sub(before);
        assert!(changes >= 2 * TIMES, "{changes}");
    }
    #[test]
    fn only_shared_memory_that_is_written_is_seen() {
        use std::os::fd::AsRawFd;
        let file = std::fs::File::open("/proc/self/exe").expect("a file");
        let zero = std::fs::File::open("/dev/zero").expect("a device");
        let null = std::fs::File::open("/dev/null").expect("a device");
        let (file, zero, null) = (file.as_raw_fd(), zero.as_raw_fd(), null.as_raw_fd());
        let (shared, anonymous) = (libc::MAP_SHARED, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        let write = libc::PROT_READ | libc::PROT_WRITE;
        assert_eq!(seen(write, shared, file), Some(Seen::File));
        assert_eq!(seen(write, anonymous, -1), Some(Seen::Memory));
        assert_eq!(seen(write, shared, zero), Some(Seen::Memory));
        assert_eq!(seen(write, shared, null), None);
        assert_eq!(seen(write, shared, -1), None);
        assert_eq!(seen(write, libc::MAP_PRIVATE, file), None);
        assert_eq!(seen(libc::PROT_READ, shared, file), None);
        // What others have as well: a file without a name, here an event counter, and a socket.
        // SAFETY: no memory is involved.
        let (event, socket) = unsafe {
            let event = libc::eventfd(0, libc::EFD_CLOEXEC);
            let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
            (event, libc::socket(libc::AF_UNIX, kind, 0))
        };
        assert!(event >= 0 && socket >= 0);
        assert_eq!(seen(write, shared, event), Some(Seen::Memory));
        assert_eq!(seen(write, shared, socket), Some(Seen::Memory));
        assert_eq!(seen(write, libc::MAP_PRIVATE, event), None);
        // SAFETY: ours.
        unsafe {
            libc::close(event);
            libc::close(socket);
        }
    }
    #[test]
    fn of_devices_of_memory_only_some_are_seen_by_nobody() {
        let seen_by_nobody = |minor| is_unseen(libc::makedev(1, minor));
        // null, zero, full, random and urandom.
        assert!([3, 5, 7, 8, 9].into_iter().all(seen_by_nobody));
        // mem, kmem, port and kmsg.
        assert!(![1, 2, 4, 11].into_iter().any(seen_by_nobody));
        assert!(!is_unseen(libc::makedev(5, 3)));
    }
}
