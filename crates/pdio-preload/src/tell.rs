// SPDX-License-Identifier: MIT OR Apache-2.0
//! Before the program can tell anybody, the kernel has what was written.
//!
//! Another process may learn that a write has happened from a byte in a pipe, a signal, a lock that
//! is free, a file that appears, or from seeing this process wait. So before each such call all
//! streams hand over what waits, in the order of their last writes, which is the order that their
//! modification times shall have.
//!
//! One word says that something waits: [`CLEAR`], which calls on descriptors compare with anyway.
//! Calls that cannot be told apart by a descriptor begin with that one comparison (see `told!`).
//!
//! A store into shared memory is no call. In a process that has mapped memory writable and shared
//! no writing stream is taken.

use core::ffi::{c_char, c_int, c_long};
use core::sync::atomic::{
    AtomicBool, AtomicI64, AtomicPtr, AtomicU32,
    Ordering::{Acquire, Relaxed, SeqCst},
};

use crate::next::{self, lookup};
use crate::table::{self, CLEAR, SLOTS};
use crate::{report, settings, stream};

/// Numbers the writes that are deferred, so that their order is known.
static STAMP: AtomicI64 = AtomicI64::new(2);

/// The number of a write to a stream that holds it back. Called under the stream's lock.
pub fn deferred() -> u64 {
    let stamp = STAMP.fetch_add(1, SeqCst);
    // Each value is stored once, so a later hand-over that exchanges it knows that nothing came
    // between.
    CLEAR.store(-stamp as isize, SeqCst);
    stamp as u64
}

/// Returns true if something that was written may wait in memory, and the call is the program's.
#[inline]
pub fn waits() -> bool {
    CLEAR.load(Acquire) < 0 && !table::inside()
}

/// Makes the kernel have everything that was written.
#[cold]
pub fn hand_over() {
    let seen = CLEAR.load(SeqCst);
    // A child that shares the memory until it executes a program has nothing to hand over.
    if seen >= 0 || table::inside() || !report::is_owner() {
        return;
    }
    let errno = crate::errno();
    stream::hand_over(STAMP.load(SeqCst) as u64);
    // Only now: another thread that saw nothing wait would tell too early. What was written
    // meanwhile has left another value.
    let _ = CLEAR.compare_exchange(seen, SLOTS as isize, SeqCst, Relaxed);
    crate::set_errno(errno);
}

/// The arguments of a call.
type Words = [usize; 6];

// ----------------------------------------------------------------- what a descriptor leads to

/// What was found out about descriptors: the generation in which it was, and the bits below.
static KINDS: [AtomicU32; SLOTS] = [const { AtomicU32::new(0) }; SLOTS];
/// Changes whenever a descriptor may have become another.
static GENERATION: AtomicU32 = AtomicU32::new(1);

/// Reading never waits for anybody.
const STORED: u32 = 1;
/// Nobody sees what is written.
const UNSEEN: u32 = 2;
const BITS: u32 = 2;

/// Some descriptor is closed or replaced.
pub fn renumbered() {
    // One of two changes at a time may be lost; the value is another all the same.
    GENERATION.store(GENERATION.load(Relaxed).wrapping_add(1), Relaxed);
}

fn kind(fd: c_int) -> u32 {
    let generation = GENERATION.load(Relaxed) << BITS;
    let known = KINDS.get(fd as usize);
    if let Some(word) = known.map(|known| known.load(Relaxed)) {
        if word & !(STORED | UNSEEN) == generation {
            return word & (STORED | UNSEEN);
        }
    }
    /// `/dev/null`, `/dev/zero` and their like.
    const MEMORY: u32 = 1;
    let bits = match stream::stat(fd) {
        Some(about) => match about.st_mode & libc::S_IFMT {
            libc::S_IFREG | libc::S_IFDIR | libc::S_IFBLK => STORED,
            libc::S_IFCHR if libc::major(about.st_rdev) == MEMORY => STORED | UNSEEN,
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
    if waits() && kind(fd) & STORED == 0 && idle(fd) {
        hand_over();
    }
}

/// Before a descriptor is closed that is no stream's. Pipes and sockets have another end, who
/// closes a file that was written or locked is noticed.
pub fn closing(fd: c_int) {
    if !waits() {
        return;
    }
    // SAFETY: no memory is involved.
    let read_only = || unsafe { next::fcntl64(fd, libc::F_GETFL, 0) } & libc::O_ACCMODE == 0;
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
    if flags & changes != 0 || stream::is_pipe(directory, path) {
        hand_over();
    }
}

/// Before a bare system call that this library does not otherwise know.
pub fn calling(number: c_long, operation: usize) {
    use libc::*;
    let harmless = match number {
        libc::SYS_futex => operation & FUTEX_PRIVATE_FLAG as usize != 0,
        _ => [
            SYS_gettid,
            SYS_getpid,
            SYS_getppid,
            SYS_getuid,
            SYS_geteuid,
            SYS_getcpu,
            SYS_getrandom,
            SYS_clock_gettime,
            SYS_gettimeofday,
            SYS_sched_yield,
            SYS_sched_getaffinity,
            SYS_membarrier,
            SYS_madvise,
            SYS_mprotect,
            SYS_munmap,
            SYS_brk,
            SYS_newfstatat,
            SYS_statx,
            SYS_getdents64,
            SYS_readlinkat,
            SYS_read,
            SYS_pread64,
            SYS_write,
            SYS_writev,
            SYS_readv,
            SYS_pwrite64,
            SYS_lseek,
            SYS_close,
            SYS_fcntl,
        ]
        .contains(&number),
    };
    if !harmless && waits() {
        hand_over();
    }
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
    if defers && !table::inside() && report::is_owner() {
        SHARED.store(true, SeqCst);
        stream::relinquish_writers("memory is shared");
    }
}

/// Before memory is mapped.
pub fn mapping(protection: c_int, flags: c_int, fd: c_int) {
    let shared = matches!(
        flags & libc::MAP_TYPE,
        libc::MAP_SHARED | libc::MAP_SHARED_VALIDATE
    );
    if !shared || protection & libc::PROT_WRITE == 0 || SHARED.load(Relaxed) || table::inside() {
        return;
    }
    // A device's memory is between the program and the device.
    let file = || stream::stat(fd).is_some_and(|s| s.st_mode & libc::S_IFMT == libc::S_IFREG);
    if flags & libc::MAP_ANONYMOUS != 0 || file() {
        sharing();
    }
}

// -------------------------------------------------------------------- calls that need no more

/// An exported function that hands over before it jumps to the C library's of the same name.
#[repr(C)]
struct Slot {
    /// The C library's, or at first what looks it up.
    function: AtomicPtr<()>,
    name: &'static str,
    before: unsafe fn(&Words),
}

/// Something waits, or the function is not known yet.
unsafe extern "C" fn arrived(slot: &Slot, words: &Words) -> *mut () {
    let errno = crate::errno();
    if waits() {
        // SAFETY: the words are the program's arguments.
        unsafe { (slot.before)(words) };
    }
    let function = lookup(slot.name);
    slot.function.store(function, Relaxed);
    crate::set_errno(errno);
    function
}

/// Calls [`arrived`] and jumps to what it returns, with every argument where it was. The slot comes
/// in a register that no argument uses.
#[unsafe(naked)]
unsafe extern "C" fn arrive() {
    #[cfg(target_arch = "x86_64")]
    core::arch::naked_asm!(
        "push rbp",
        "mov rbp, rsp",
        "push r9", "push r8", "push rcx", "push rdx", "push rsi", "push rdi", "push rax",
        "sub rsp, 136",
        "movaps [rsp], xmm0", "movaps [rsp + 16], xmm1",
        "movaps [rsp + 32], xmm2", "movaps [rsp + 48], xmm3",
        "movaps [rsp + 64], xmm4", "movaps [rsp + 80], xmm5",
        "movaps [rsp + 96], xmm6", "movaps [rsp + 112], xmm7",
        "mov rdi, r11",
        "lea rsi, [rbp - 48]",
        "call {arrived}",
        "mov r11, rax",
        "movaps xmm0, [rsp]", "movaps xmm1, [rsp + 16]",
        "movaps xmm2, [rsp + 32]", "movaps xmm3, [rsp + 48]",
        "movaps xmm4, [rsp + 64]", "movaps xmm5, [rsp + 80]",
        "movaps xmm6, [rsp + 96]", "movaps xmm7, [rsp + 112]",
        "add rsp, 136",
        "pop rax", "pop rdi", "pop rsi", "pop rdx", "pop rcx", "pop r8", "pop r9",
        "pop rbp",
        "jmp r11",
        arrived = sym arrived,
    );
    #[cfg(target_arch = "aarch64")]
    core::arch::naked_asm!(
        "stp x29, x30, [sp, -224]!",
        "mov x29, sp",
        "stp x0, x1, [sp, 16]", "stp x2, x3, [sp, 32]",
        "stp x4, x5, [sp, 48]", "stp x6, x7, [sp, 64]", "str x8, [sp, 80]",
        "stp q0, q1, [sp, 96]", "stp q2, q3, [sp, 128]",
        "stp q4, q5, [sp, 160]", "stp q6, q7, [sp, 192]",
        "mov x0, x17",
        "add x1, sp, 16",
        "bl {arrived}",
        "mov x16, x0",
        "ldp x0, x1, [sp, 16]", "ldp x2, x3, [sp, 32]",
        "ldp x4, x5, [sp, 48]", "ldp x6, x7, [sp, 64]", "ldr x8, [sp, 80]",
        "ldp q0, q1, [sp, 96]", "ldp q2, q3, [sp, 128]",
        "ldp q4, q5, [sp, 160]", "ldp q6, q7, [sp, 192]",
        "ldp x29, x30, [sp], 224",
        "br x16",
        arrived = sym arrived,
    );
}

/// Exports functions of any arguments. While nothing waits each costs a comparison and two jumps.
macro_rules! told {
    ($($before:ident: $($name:ident)*;)*) => {$($(
        #[no_mangle]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            static SLOT: Slot = Slot {
                function: AtomicPtr::new(first as *mut ()),
                name: concat!(stringify!($name), "\0"),
                before: $before,
            };
            #[unsafe(naked)]
            unsafe extern "C" fn first() {
                #[cfg(target_arch = "x86_64")]
                core::arch::naked_asm!(
                    "lea r11, [rip + {slot}]",
                    "jmp {arrive}",
                    slot = sym SLOT,
                    arrive = sym arrive,
                );
                #[cfg(target_arch = "aarch64")]
                core::arch::naked_asm!(
                    "adrp x17, {slot}",
                    "add x17, x17, :lo12:{slot}",
                    "b {arrive}",
                    slot = sym SLOT,
                    arrive = sym arrive,
                );
            }
            #[cfg(target_arch = "x86_64")]
            core::arch::naked_asm!(
                "cmp qword ptr [rip + {clear}], 0",
                "js {first}",
                "jmp qword ptr [rip + {slot}]",
                clear = sym CLEAR,
                slot = sym SLOT,
                first = sym first,
            );
            #[cfg(target_arch = "aarch64")]
            core::arch::naked_asm!(
                "adrp x16, {clear}",
                "ldr x16, [x16, :lo12:{clear}]",
                "tbnz x16, 63, 1f",
                "adrp x16, {slot}",
                "ldr x16, [x16, :lo12:{slot}]",
                "br x16",
                "1: b {first}",
                clear = sym CLEAR,
                slot = sym SLOT,
                first = sym first,
            );
            #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
            compile_error!("write down how this processor jumps to a function");
        }
    )*)*};
}

unsafe fn always(_: &Words) {
    hand_over();
}

unsafe fn receiving(words: &Words) {
    reading(words[0] as c_int);
}

/// `poll`: only if it will wait.
unsafe fn polling(words: &Words) {
    let &[list, count, limit, ..] = words;
    // SAFETY: the program's list, whose results are about to be overwritten.
    if limit as c_int != 0 && unsafe { nothing(list as *mut _, count) } {
        hand_over();
    }
}

/// A limit of no time at all. What is not there is no limit.
unsafe fn none(limit: usize) -> bool {
    let limit = limit as *const [c_long; 2];
    // SAFETY: null, or the program's `timespec` or `timeval`.
    !limit.is_null() && unsafe { *limit } == [0, 0]
}

unsafe fn polling_precisely(words: &Words) {
    let &[list, count, limit, ..] = words;
    // SAFETY: as above.
    if unsafe { !none(limit) && nothing(list as *mut _, count) } {
        hand_over();
    }
}

/// `select`: on copies, as its sets are questions and answers.
unsafe fn selecting(words: &Words) {
    let &[count, sets @ .., limit, _] = words;
    // SAFETY: the program's limit.
    if unsafe { none(limit) } {
        return;
    }
    // SAFETY: sets of numbers may be all zero; those of the program's have this many bits, which
    // fit.
    let ready = unsafe {
        let mut copies: [libc::fd_set; 3] = core::mem::zeroed();
        let mut pointers = [0; 3];
        if count <= libc::FD_SETSIZE {
            for i in (0..3).filter(|&i| sets[i] != 0) {
                let to = copies.as_mut_ptr().add(i);
                (sets[i] as *const u64).copy_to_nonoverlapping(to.cast(), count.div_ceil(64));
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
    if ready == 0 {
        hand_over();
    }
}

/// `epoll_wait`, of which a trial would take events away; but the descriptor itself can be asked.
unsafe fn awaiting(words: &Words) {
    if words[3] as c_int != 0 && idle(words[0] as c_int) {
        hand_over();
    }
}

unsafe fn awaiting_precisely(words: &Words) {
    // SAFETY: the program's limit.
    if unsafe { !none(words[3]) } && idle(words[0] as c_int) {
        hand_over();
    }
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

unsafe fn sharing_memory(_: &Words) {
    sharing();
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
    if file == 0 {
        return;
    }
    // SAFETY: the program's open file.
    unsafe {
        let buffer = &*(file as *const Buffer);
        if !one || buffer.next >= buffer.end {
            reading(libc::fileno(file as *mut libc::FILE));
        }
    }
}

extern "C" {
    static stdin: usize;
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
    // The C library writes by itself, unseen, when a buffer is full or a line ends.
    always:
        printf vprintf fprintf vfprintf __printf_chk __vprintf_chk __fprintf_chk __vfprintf_chk
        puts fputs fputs_unlocked fputc fputc_unlocked putc putc_unlocked putchar putchar_unlocked
        putw fwrite fwrite_unlocked _IO_putc _IO_puts __overflow fflush fflush_unlocked
        wprintf fwprintf vwprintf vfwprintf fputws fputwc putwc putwchar perror psignal
        psiginfo error error_at_line err errx verr verrx warn warnx vwarn vwarnx syslog vsyslog
        __syslog_chk __vsyslog_chk;
    character_of_input: getchar getchar_unlocked getwchar;
    character_of: getc getc_unlocked fgetc fgetc_unlocked getwc fgetwc __uflow __underflow;
    input_of_standard: gets scanf vscanf __isoc99_scanf __isoc99_vscanf getpass;
    input_of_1: fscanf vfscanf __isoc99_fscanf __isoc99_vfscanf getw;
    input_of_3: fgets fgets_unlocked fgetws getline;
    input_of_4:
        getdelim __getdelim fread fread_unlocked __fgets_chk __fgets_unlocked_chk;
    input_of_5: __fread_chk __fread_unlocked_chk;

    always:
        send sendto connect shutdown eventfd_write tee vmsplice tcdrain tcsendbreak
        msgsnd msgrcv semop semtimedop mq_send mq_timedsend mq_receive mq_timedreceive
        process_vm_writev
        killpg sigqueue tgkill pidfd_send_signal
        wait wait3 pclose sleep usleep nanosleep clock_nanosleep pause sigsuspend sigpause sigwait
        sigwaitinfo sigtimedwait
        mkdir mkdirat rmdir symlink symlinkat mknod mknodat mkfifo mkfifoat mkdtemp unlink unlinkat
        remove removexattr fremovexattr mq_open mq_unlink shm_unlink sem_unlink;
    receiving: recv recvfrom recvmsg recvmmsg __recv_chk __recvfrom_chk eventfd_read;
    polling: poll __poll_chk;
    polling_precisely: ppoll __ppoll_chk;
    selecting: select pselect;
    awaiting: epoll_wait epoll_pwait;
    awaiting_precisely: epoll_pwait2;
    watching_children: waitpid wait4;
    watching_ids: waitid;
    sharing_memory: shmat sem_open;
}
