// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls that start or end a process, or change what it may do.
//!
//! Before another process gets descriptors of this one, all streams are handed back: what they share
//! is the kernel's offset. Some of these calls return twice or take any number of arguments; they
//! are jumped to with the stack and the registers as the program left them.
#![allow(
    unsafe_op_in_unsafe_fn,
    reason = "each function takes what the C function of its name takes, and passes it on"
)]

use core::ffi::{c_char, c_int, c_uint, c_ulong, c_void, CStr};
use core::sync::atomic::{
    AtomicBool, AtomicU32,
    Ordering::{Relaxed, SeqCst},
};
use std::time::{Duration, Instant};

use libc::pid_t;

use crate::all::{drain_all, end_all, relinquish_all, report_lost};
use crate::give_way::{drain_or_fail, relinquish};
use crate::guard::{self, Guard};
use crate::jump::{self, arrive_with, About, Slot, ALWAYS};
use crate::next::{self, alias, before, lookup, missing, terminated};
use crate::state::{self, HOLD, TAKEN, THREADED};
use crate::symbols::{self, Versions};
use crate::{errno, memory, report, signals, table, tell};

extern "C" {
    fn __cxa_atexit(
        function: unsafe extern "C" fn(*mut c_void),
        argument: *mut c_void,
        library: *mut c_void,
    ) -> c_int;
    fn __cxa_at_quick_exit(
        function: unsafe extern "C" fn(*mut c_void),
        library: *mut c_void,
    ) -> c_int;
}

unsafe extern "C" fn at_exit(_: *mut c_void) {
    guard::last_thread();
    finish();
}

pub fn prepare() {
    // Another library may have started threads already.
    THREADED.store(!table::single_threaded(), SeqCst);
    // Registered before anything of the program, so the last to run: after its own handlers and the
    // destructors of its libraries, which may still write.
    // SAFETY: the functions are there for as long as the process is.
    unsafe {
        __cxa_atexit(at_exit, core::ptr::null_mut(), core::ptr::null_mut());
        __cxa_at_quick_exit(at_exit, core::ptr::null_mut());
        libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(in_child));
        let mut key = 0;
        if libc::pthread_key_create(&mut key, Some(main_ends)) == 0 {
            MAIN.store(key, SeqCst);
            is_main();
        }
    }
}

/// A value of the main thread alone: its destructor runs when that thread ends, by whatever call, and the
/// process goes on.
static MAIN: AtomicU32 = AtomicU32::new(NO_KEY);
const NO_KEY: libc::pthread_key_t = libc::pthread_key_t::MAX;

/// This is the main thread.
fn is_main() {
    let key = MAIN.load(SeqCst);
    if key != NO_KEY {
        // SAFETY: our key; the value is never used.
        unsafe { libc::pthread_setspecific(key, (&raw const MAIN).cast()) };
    }
}

/// Makes a key. If there are no more, once more without the library's, so that the program gets as many as without it:
/// then nobody sees the main thread end.
fn make_key(make: impl Fn() -> c_int) -> c_int {
    let failed = make();
    if failed == 0 || guard::inside() || !state::is_owner() {
        return failed;
    }
    let own = MAIN.swap(NO_KEY, SeqCst);
    if own == NO_KEY {
        return failed;
    }
    withdraw_threads("keys of threads have run out");
    // SAFETY: our key, which nobody uses any more.
    unsafe { libc::pthread_key_delete(own) };
    make()
}

macro_rules! keys {
    ($($name:ident)*) => {$(
        #[no_mangle]
        pub unsafe extern "C" fn $name(key: *mut c_uint, destructor: *const c_void) -> c_int {
            type Make = unsafe extern "C" fn(*mut c_uint, *const c_void) -> c_int;
            let next = core::mem::transmute::<*mut (), Make>(lookup(concat!(stringify!($name), "\0")));
            make_key(|| next(key, destructor))
        }
    )*};
}

keys! { pthread_key_create __pthread_key_create tss_create }

/// True once all has been done to end the library's threads for one of the program's, or a filter forbids to look for
/// them. They do not come back, nor in a child, where the filter holds as well.
static THREADLESS: AtomicBool = AtomicBool::new(false);

/// Starts a thread. If there can be no more, which fails as `lacking` says, once more without the library's.
fn start_thread(lacking: c_int, start: impl Fn() -> c_int) -> c_int {
    if guard::inside() {
        // The library's own.
        return start();
    }
    THREADED.store(true, SeqCst);
    let threadless = THREADLESS.load(SeqCst);
    let failed = start();
    // Without descriptions nothing was ever taken.
    let never = || table::descriptions().next().is_none();
    if failed != lacking || threadless || !state::is_owner() || never() {
        return failed;
    }
    // One that has just been started may have no name yet.
    let any = || Guard::enter().is_some_and(|_guard| has_threads("pdio-"));
    if TAKEN.load(SeqCst) > 0 || !THREADLESS.load(SeqCst) && errno::keep(any) {
        errno::keep(|| {
            withdraw_threads("threads have run out");
            if let Some(_guard) = Guard::enter() {
                // Once, and not for long: one that serves a stream which cannot be written stays, and the program may
                // have such names as well.
                await_end_of(&["pdio-"], Duration::from_secs(1));
            }
            THREADLESS.store(true, SeqCst);
        });
    }
    // Else another thread, which failed as well, may have ended them since.
    start()
}

macro_rules! threads {
    ($($name:ident: $lacking:expr;)*) => {$(
        #[no_mangle]
        pub unsafe extern "C" fn $name(
            thread: *mut c_void, a: *const c_void, b: *const c_void, c: *const c_void
        ) -> c_int {
            type Start = unsafe extern "C" fn(
                *mut c_void, *const c_void, *const c_void, *const c_void
            ) -> c_int;
            let next = core::mem::transmute::<*mut (), Start>(lookup(concat!(stringify!($name), "\0")));
            start_thread($lacking, || next(thread, a, b, c))
        }
    )*};
}

/// `thrd_error`, which glibc returns then.
const THRD_ERROR: c_int = 2;

// The second has one argument less.
threads! {
    pthread_create: libc::EAGAIN;
    thrd_create: THRD_ERROR;
}

/// The process now ends with its last thread, which runs what the program registered for that: it must not
/// be one of the library's, and those would never end.
extern "C" fn main_ends(_: *mut c_void) {
    withdraw_threads("the main thread ends");
}

extern "C" fn before_fork() {
    HOLD.fetch_add(1, SeqCst);
    relinquish_all("fork");
}

extern "C" fn after_fork() {
    HOLD.fetch_sub(1, SeqCst);
}

extern "C" fn in_child() {
    // `forkpty` goes on with the C library's own `login_tty`, which puts a terminal where files were.
    tell::renumbered();
    state::forked();
    table::forked();
    signals::forked();
    report::forked();
    is_main();
}

/// Nothing is taken in this process any more.
pub fn withdraw(why: &str) {
    if state::is_owner() {
        // Also what another thread is just opening.
        HOLD.fetch_add(1, SeqCst);
        state::set_active(false);
        relinquish_all(why);
    }
}

/// As [`withdraw`]; the library's threads end as well.
fn withdraw_threads(why: &str) {
    if state::is_owner() {
        withdraw(why);
        if let Some(_guard) = Guard::enter() {
            pdio::end_threads(false);
        }
    }
}

/// A thread is about to have other rights than the rest: those of the library's would do with the old ones what the
/// program no longer may, and write without what takes set-user-ID bits away or refuses a block beyond a quota.
pub fn parting() {
    withdraw_threads("rights of a thread's own");
}

/// System calls are about to be filtered, perhaps those of all threads. One that the program does not make may then
/// end the process.
pub fn filtering() {
    withdraw_threads("seccomp");
    if state::is_owner() {
        THREADLESS.store(true, SeqCst);
        signals::disarm();
        report::print_last();
    }
}

/// Runs a call that fails in a process of several threads, or divides what threads share.
fn alone(call: impl FnOnce() -> c_int) -> c_int {
    if state::is_owner() && !guard::inside() {
        withdraw("a namespace of its own");
        if let Some(_guard) = Guard::enter() {
            // What io_uring made for a reader; if the program has rings as well, it may be theirs.
            let workers = !RINGS.load(Relaxed) && has_threads("iou-wrk-");
            pdio::end_threads(workers);
            let names: &[_] = match workers {
                true => &["pdio-", "iou-wrk-"],
                false => &["pdio-"],
            };
            await_end_of(names, Duration::from_secs(7));
        }
    }
    call()
}

/// Waits, at most so long, until there are no threads whose names begin so. Threads that were waited for are the kernel's for a moment
/// longer; its workers end when they have been idle for five seconds.
fn await_end_of(prefixes: &[&str], limit: Duration) {
    let until = Instant::now() + limit;
    while prefixes.iter().any(|prefix| has_threads(prefix)) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// True if the program has made io_uring rings of its own.
static RINGS: AtomicBool = AtomicBool::new(false);

/// The program makes a ring.
pub fn ring() {
    RINGS.store(true, Relaxed);
    withdraw("io_uring");
}

/// Returns true if the process has a thread whose name begins so.
fn has_threads(prefix: &str) -> bool {
    let Ok(list) = std::fs::read_dir("/proc/self/task") else {
        return false;
    };
    list.flatten().any(|task| {
        std::fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.starts_with(prefix))
    })
}

#[no_mangle]
pub unsafe extern "C-unwind" fn unshare(flags: c_int) -> c_int {
    alone(|| next::unshare(flags))
}

#[no_mangle]
pub unsafe extern "C-unwind" fn setns(fd: c_int, kind: c_int) -> c_int {
    alone(|| next::setns(fd, kind))
}

const END: &str = "end of the program";

/// The process ends, and runs what was registered for that: everything goes to the kernel.
pub fn finish() {
    if guard::inside() {
        // A handler of a fault in this library's own work: locks may be held.
        return finish_at_once();
    }
    if !state::is_owner() {
        return;
    }
    HOLD.fetch_add(1, SeqCst);
    state::set_active(false);
    relinquish_all(END);
    report_lost();
    report::print();
}

/// The process ends by a call that a handler of a signal may make, whatever it has interrupted:
/// everything goes to the kernel, and nothing is allocated or freed, but for statistics.
pub fn finish_at_once() {
    if !state::is_owner() {
        return;
    }
    HOLD.fetch_add(1, SeqCst);
    state::set_active(false);
    // Of what other threads write until then, too.
    signals::begin_end();
    end_all(END);
    report::print();
}

/// Why a process may end that runs nothing registered for its end: another program takes its place, or
/// the C library ends it after a fork.
const REPLACED: [&str; 2] = ["exec", "daemon"];

/// A library is about to be opened. One that looks for functions in its own surroundings first, or is in a namespace of
/// its own, does not call this library's.
fn opening_library(namespace: libc::Lmid_t, mode: c_int) {
    match namespace != libc::LM_ID_BASE || mode & libc::RTLD_DEEPBIND != 0 {
        true => withdraw("a library whose calls are not seen"),
        false => drain_all(),
    }
}

/// A function is about to be looked up. What the program finds in the C library itself it calls past this library.
unsafe fn looking_up(library: *mut c_void, name: *const c_char) {
    type Lookup = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut ();
    let anywhere = [libc::RTLD_DEFAULT, libc::RTLD_NEXT].contains(&library);
    if anywhere || name.is_null() || !state::active() {
        return;
    }
    let name = CStr::from_ptr(name);
    let find = lookup("dlsym\0");
    if !symbols::is_own(name) || find == missing as *mut () {
        return;
    }
    let found = core::mem::transmute::<*mut (), Lookup>(find)(library, name.as_ptr());
    if !found.is_null() && found == symbols::next(name, None) {
        withdraw("functions that are not seen");
    }
}

/// Another program may take this one's place, or another process share its descriptors.
pub fn leaving(why: &str) {
    if state::is_owner() {
        relinquish_all(why);
        if !REPLACED.contains(&why) {
            return;
        }
        report_lost();
        if report::any() {
            report::print();
        }
    }
}

/// Runs a call during which nothing may be taken.
fn held<T>(why: &str, call: impl FnOnce() -> T) -> T {
    // In a child that shares the memory until it executes a program, there is nothing to hold.
    if !state::is_owner() {
        return call();
    }
    HOLD.fetch_add(1, SeqCst);
    leaving(why);
    let result = call();
    HOLD.fetch_sub(1, SeqCst);
    result
}

/// Exports functions that hold everything back during the C library's call.
macro_rules! held {
    ($($why:literal: fn $name:ident($($arg:ident: $type:ty),*) -> $ret:ty;)*) => {$(
        #[no_mangle]
        pub unsafe extern "C-unwind" fn $name($($arg: $type),*) -> $ret {
            let next = lookup(concat!(stringify!($name), "\0"));
            let next: unsafe extern "C-unwind" fn($($type),*) -> $ret = core::mem::transmute(next);
            held($why, || next($($arg),*))
        }
    )*};
}

type Path = *const c_char;
type Words = *const *const c_char;

held! {
    "exec": fn execve(path: Path, arguments: Words, environment: Words) -> c_int;
    "exec": fn execv(path: Path, arguments: Words) -> c_int;
    "exec": fn execvp(path: Path, arguments: Words) -> c_int;
    "exec": fn execvpe(path: Path, arguments: Words, environment: Words) -> c_int;
    "exec": fn fexecve(fd: c_int, arguments: Words, environment: Words) -> c_int;
    "exec": fn execveat(
        directory: c_int, path: Path, arguments: Words, environment: Words, flags: c_int
    ) -> c_int;
    "system": fn system(command: Path) -> c_int;
    "popen": fn popen(command: Path, mode: Path) -> *mut libc::FILE;
    "wordexp": fn wordexp(words: Path, result: *mut c_void, flags: c_int) -> c_int;
}

/// `posix_spawn` and its like, of whose older versions a script may lack a first line that names its interpreter. The first
/// word is where the child's number or descriptor goes.
macro_rules! spawns {
    ($($name:ident)*) => {$(
        #[no_mangle]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            unsafe extern "C" fn called(
                child: *mut pid_t, path: Path, actions: *const c_void, attributes: *const c_void,
                arguments: Words, environment: Words, caller: usize
            ) -> c_int {
                static VERSIONS: Versions = Versions::new();
                let name = concat!(stringify!($name), "\0");
                let next = VERSIONS.meant(terminated(name), lookup(name), caller);
                if next == missing as *mut () {
                    return libc::ENOSYS;
                }
                let next: unsafe extern "C" fn(
                    *mut pid_t, Path, *const c_void, *const c_void, Words, Words
                ) -> c_int = core::mem::transmute(next);
                held("posix_spawn", || next(child, path, actions, attributes, arguments, environment))
            }
            // All registers for words are in use, so the seventh is on the stack.
            #[cfg(target_arch = "x86_64")]
            core::arch::naked_asm!(
                "push qword ptr [rsp]",
                "call {called}",
                "add rsp, 8",
                "ret",
                called = sym called,
            );
            #[cfg(target_arch = "aarch64")]
            core::arch::naked_asm!("mov x6, x30", "b {called}", called = sym called);
            #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
            compile_error!("write down where this processor keeps the address to return to");
        }
    )*};
}

spawns! { posix_spawn posix_spawnp pidfd_spawn pidfd_spawnp }

/// Exports functions that do something before every call (see [`crate::jump`]).
macro_rules! jump {
    ($(fn $name:ident($a:ident, $b:ident, $c:ident) $body:block)*) => {
        jump! { inside: false, versions: None; $(fn $name($a, $b, $c) $body)* }
    };
    (inside: $inside:literal, versions: $versions:expr; $(fn $name:ident($a:ident, $b:ident, $c:ident) $body:block)*) => {$(
        #[no_mangle]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            unsafe fn before(words: &jump::Words) {
                let &[$a, $b, $c, ..] = words;
                $body
            }
            static SLOT: Slot = Slot::new();
            fn about() -> About {
                About {
                    name: concat!(stringify!($name), "\0"),
                    versions: $versions,
                    while_negative: [&ALWAYS, &ALWAYS],
                    before,
                    inside: $inside,
                }
            }
            arrive_with!(SLOT, about)
        }
    )*};
}

fn vforking() {
    leaving("vfork");
    state::lend();
}

/// A list of asynchronous requests, which may tell of their end in a thread.
pub fn listing() {
    notifying();
    tell::hand_over();
}

/// The C library writes by itself, unseen, to what may be a stream or may tell others.
fn written_by_the_c_library(fd: c_int, why: &str) {
    tell::hand_over();
    relinquish(fd, why);
}

/// Before `clone`.
pub fn cloning(flags: c_int) {
    let has = |flag| flags & flag != 0;
    let thread = has(libc::CLONE_THREAD);
    if thread {
        THREADED.store(true, SeqCst);
    }
    let parted = !has(libc::CLONE_VM) || has(libc::CLONE_VFORK);
    // A thread that is not the C library's shares the storage of another, or has none that the work on a stream could
    // rely on.
    if thread || has(libc::CLONE_FILES) || !parted {
        withdraw("clone");
    } else {
        leaving("clone");
    }
    if has(libc::CLONE_VM) && has(libc::CLONE_VFORK) {
        state::lend();
    } else if !thread {
        state::copies();
    }
}

/// A signal to a thread of this process: of most, nobody else hears. Those that end it run a handler.
fn to_thread(signal: c_int) {
    use libc::{SIGKILL, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU};
    if [SIGKILL, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU].contains(&signal) {
        drain_all();
    }
}

/// The C library maps shared memory by itself, unseen. That counts before there is a stream as well, as what is
/// mapped stays.
pub fn mapping_unseen() {
    tell::hand_over();
    tell::sharing();
}

/// A limit on locked memory is for the program's.
pub fn locking_memory(flags: c_int) {
    if flags & libc::MCL_FUTURE != 0 {
        withdraw("mlockall");
    }
}

/// The C library may start a thread by itself, unseen, in which a function of the program is called.
fn notifying() {
    THREADED.store(true, SeqCst);
}

/// The descriptor at the start of an `aiocb`. A thread of the C library writes there, unseen.
unsafe fn asynchronous(block: usize) {
    notifying();
    tell::hand_over();
    if block != 0 {
        relinquish(*(block as *const c_int), "asynchronous I/O");
    }
}

/// What could not be written a thread of the C library does not know of: the request fails at once.
macro_rules! aio_syncs {
    ($($name:ident)*) => {$(
        #[no_mangle]
        pub unsafe extern "C" fn $name(operation: c_int, block: *mut c_int) -> c_int {
            type Sync = unsafe extern "C" fn(c_int, *mut c_int) -> c_int;
            let asks = [libc::O_SYNC, libc::O_DSYNC].contains(&operation) && !block.is_null();
            if asks && !guard::inside() {
                asynchronous(block as usize);
                if let Err(error) = drain_or_fail(*block) {
                    return errno::failed(error);
                }
            }
            let next = lookup(concat!(stringify!($name), "\0"));
            core::mem::transmute::<*mut (), Sync>(next)(operation, block)
        }
    )*};
}

aio_syncs! { aio_fsync aio_fsync64 }

jump! {
    fn vfork(_a, _b, _c) { vforking() }
    fn _Fork(_a, _b, _c) {
        leaving("fork");
        state::copies();
    }
    fn __vfork(_a, _b, _c) { vforking() }
    fn mq_notify(_a, _b, _c) { notifying() }
    fn getaddrinfo_a(_a, _b, _c) {
        notifying();
        tell::hand_over();
    }
    fn shmat(_a, _b, _c) { mapping_unseen() }
    fn sem_open(_a, _b, _c) { mapping_unseen() }
    fn closedir(directory, _b, _c) { tell::closing_directory(directory as *mut libc::DIR) }
    fn clone(_a, _b, flags) { cloning(flags as c_int) }
    fn __clone(_a, _b, flags) { cloning(flags as c_int) }
    fn daemon(_a, _b, _c) { leaving("daemon") }

    fn mlockall(flags, _b, _c) { locking_memory(flags as c_int) }

    fn ulimit(command, _b, _c) {
        /// From `<ulimit.h>`. The C library sets the limit by a call that is not seen.
        const UL_SETFSIZE: c_int = 2;
        if command as c_int == UL_SETFSIZE {
            relinquish_all("a limit on the size of files");
        }
    }

    // What was written is written with the rights that the process had: others may take the file's set-user-ID bit
    // away. The C library changes those of the library's threads as well.
    fn setuid(_a, _b, _c) { drain_all() }
    fn seteuid(_a, _b, _c) { drain_all() }
    fn setreuid(_a, _b, _c) { drain_all() }
    fn setresuid(_a, _b, _c) { drain_all() }
    fn setgid(_a, _b, _c) { drain_all() }
    fn setegid(_a, _b, _c) { drain_all() }
    fn setregid(_a, _b, _c) { drain_all() }
    fn setresgid(_a, _b, _c) { drain_all() }
    fn setgroups(_a, _b, _c) { drain_all() }
    fn initgroups(_a, _b, _c) { drain_all() }
    fn setfsuid(_a, _b, _c) { parting() }
    fn setfsgid(_a, _b, _c) { parting() }
    fn capset(_a, _b, _c) { parting() }

    fn raise(_a, _b, _c) { drain_all() }
    fn gsignal(_a, _b, _c) { drain_all() }
    fn pthread_sigqueue(_a, signal, _c) { to_thread(signal as c_int) }

    // The C library looks at files by itself, unseen.
    fn ftw(_a, _b, _c) { drain_all() }
    fn ftw64(_a, _b, _c) { drain_all() }
    fn fts_open(_a, _b, _c) { drain_all() }
    fn fts64_open(_a, _b, _c) { drain_all() }
    fn fts_read(_a, _b, _c) { drain_all() }
    fn fts64_read(_a, _b, _c) { drain_all() }
    fn fts_children(_a, _b, _c) { drain_all() }
    fn fts64_children(_a, _b, _c) { drain_all() }
    fn dlopen(_a, mode, _c) { opening_library(0, mode as c_int) }
    fn dlsym(library, name, _c) { looking_up(library as *mut c_void, name as *const c_char) }
    fn dlvsym(library, name, _c) { looking_up(library as *mut c_void, name as *const c_char) }
    fn dlmopen(namespace, _b, mode) { opening_library(namespace as libc::Lmid_t, mode as c_int) }

    // The C library writes there itself, unseen.
    fn fdopen(fd, mode, _c) {
        relinquish(fd as c_int, "fdopen");
        // SAFETY: the program's word, which the function looks at as well.
        let valid = unsafe { matches!(*(mode as *const u8), b'r' | b'w' | b'a') };
        table::note_below(fd as c_int, valid);
    }
    fn inotify_add_watch(_a, _b, _c) { tell::watching_files() }
    fn fanotify_mark(_a, _b, _c) { tell::watching_files() }
    fn fcloseall(_a, _b, _c) {
        tell::hand_over();
        for fd in [libc::STDIN_FILENO, libc::STDOUT_FILENO] {
            relinquish(fd, "fcloseall");
        }
    }
    // The C library has these lead to a terminal, unseen.
    fn login_tty(_a, _b, _c) {
        tell::hand_over();
        tell::renumbered();
        for fd in [libc::STDIN_FILENO, libc::STDOUT_FILENO] {
            relinquish(fd, "login_tty");
        }
    }
    // A file, which the C library closes itself, unseen.
    fn endmntent(_a, _b, _c) {
        tell::hand_over();
        tell::renumbered();
    }
    fn __endmntent(_a, _b, _c) {
        tell::hand_over();
        tell::renumbered();
    }
    fn fdopendir(fd, _b, _c) { relinquish(fd as c_int, "fdopendir") }
    fn dprintf(fd, _b, _c) { written_by_the_c_library(fd as c_int, "dprintf") }
    fn vdprintf(fd, _b, _c) { written_by_the_c_library(fd as c_int, "dprintf") }
    fn __dprintf_chk(fd, _b, _c) { written_by_the_c_library(fd as c_int, "dprintf") }
    fn __vdprintf_chk(fd, _b, _c) { written_by_the_c_library(fd as c_int, "dprintf") }
    fn backtrace_symbols_fd(_a, _b, fd) { written_by_the_c_library(fd as c_int, "backtrace_symbols_fd") }
    fn pivot_root(_a, _b, _c) {
        tell::hand_over();
        pdio::leave_costs_alone();
    }
    fn aio_read(block, _b, _c) { asynchronous(block) }
    fn aio_read64(block, _b, _c) { asynchronous(block) }
    fn aio_write(block, _b, _c) { asynchronous(block) }
    fn aio_write64(block, _b, _c) { asynchronous(block) }

    fn io_uring_setup(_a, _b, _c) { ring() }
    fn io_uring_queue_init(_a, _b, _c) { ring() }
    fn io_uring_queue_init_params(_a, _b, _c) { ring() }
    fn io_uring_queue_init_mem(_a, _b, _c) { ring() }
}

jump! {
    inside: false,
    versions: {
        static VERSIONS: Versions = Versions::new();
        Some(&VERSIONS)
    };
    fn timer_create(_a, _b, _c) { notifying() }
    // The older one fails for a thread that has ended.
    fn pthread_kill(_a, signal, _c) { to_thread(signal as c_int) }
    fn nftw(_a, _b, _c) { drain_all() }
    fn nftw64(_a, _b, _c) { drain_all() }
}

jump! {
    inside: true, versions: None;
    fn _exit(_a, _b, _c) { finish_at_once() }
    fn _Exit(_a, _b, _c) { finish_at_once() }
    fn abort(_a, _b, _c) { finish_at_once() }
    // The C library's own `abort` in these is not seen, and what the program does about SIGABRT does not stop it.
    fn __assert_fail(_a, _b, _c) { finish_at_once() }
    fn __assert_perror_fail(_a, _b, _c) { finish_at_once() }
    fn __assert(_a, _b, _c) { finish_at_once() }
    fn __stack_chk_fail(_a, _b, _c) { finish_at_once() }
    fn execl(_a, _b, _c) { leaving("exec") }
    fn execle(_a, _b, _c) { leaving("exec") }
    fn execlp(_a, _b, _c) { leaving("exec") }
}

// ------------------------------------------------------------------------------ signals and limits

/// The program may hear that the other process has ended.
#[no_mangle]
unsafe extern "C-unwind" fn kill(process: pid_t, number: c_int) -> c_int {
    // Also without promptness, and by SIGKILL.
    match process <= 0 || process == state::process() {
        true => drain_all(),
        false => tell::hand_over(),
    }
    let result = next::kill(process, number);
    tell::heard();
    result
}

/// What a limit on the size of files does to a call is left to the kernel, and a limit of memory to the program.
unsafe fn limits(resource: c_uint, limit: *const libc::rlimit64) {
    let is_finite = |limit: libc::rlimit64| limit.rlim_cur != libc::RLIM64_INFINITY;
    let finite = || memory::peek(limit).is_some_and(is_finite);
    match resource {
        libc::RLIMIT_FSIZE if finite() => relinquish_all("a limit on the size of files"),
        libc::RLIMIT_AS | libc::RLIMIT_DATA if finite() => withdraw_threads("a limit of memory"),
        _ => {}
    }
}

before! {
    // Paths lead elsewhere from here on.
    fn chroot(path: Path) -> c_int { pdio::leave_costs_alone(); }
    fn setrlimit64(resource: c_uint, limit: *const libc::rlimit64) -> c_int {
        limits(resource, limit);
    }
    fn prlimit64(
        process: pid_t, resource: c_uint, new: *const libc::rlimit64, old: *mut libc::rlimit64
    ) -> c_int {
        limits(resource, new);
    }
    fn prctl(option: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int {
        match option {
            libc::PR_SET_SECCOMP => filtering(),
            // What another user's number takes away is the thread's own.
            libc::PR_SET_SECUREBITS => parting(),
            _ => {}
        };
    }
}

#[no_mangle]
unsafe extern "C-unwind" fn sigaction(
    number: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    signals::action(number, new, old)
}

#[no_mangle]
unsafe extern "C-unwind" fn signal(number: c_int, handler: usize) -> usize {
    let call = || next::signal(number, handler);
    signals::simple(number, handler, libc::SA_RESTART, call)
}

#[no_mangle]
unsafe extern "C-unwind" fn __sysv_signal(number: c_int, handler: usize) -> usize {
    /// Does nothing; the C library sets it.
    const SA_INTERRUPT: c_int = 0x2000_0000;
    let flags = libc::SA_RESETHAND | libc::SA_NODEFER | SA_INTERRUPT;
    let call = || next::__sysv_signal(number, handler);
    signals::simple(number, handler, flags, call)
}

#[no_mangle]
unsafe extern "C-unwind" fn sigset(number: c_int, handler: usize) -> usize {
    signals::set(number, handler, || next::sigset(number, handler))
}

#[no_mangle]
unsafe extern "C-unwind" fn siginterrupt(number: c_int, yes: c_int) -> c_int {
    signals::interrupting(number, yes != 0);
    next::siginterrupt(number, yes)
}

#[no_mangle]
pub unsafe extern "C-unwind" fn sigaltstack(
    new: *const libc::stack_t,
    old: *mut libc::stack_t,
) -> c_int {
    // What is not there the kernel refuses.
    if let Some(stack) = memory::peek(new) {
        signals::alternate_stack(&stack);
    }
    next::sigaltstack(new, old)
}

alias! {
    fn __sigaction(
        number: c_int, new: *const libc::sigaction, old: *mut libc::sigaction
    ) -> c_int = sigaction;
    fn bsd_signal(number: c_int, handler: usize) -> usize = signal;
    fn ssignal(number: c_int, handler: usize) -> usize = signal;
    fn sysv_signal(number: c_int, handler: usize) -> usize = __sysv_signal;
    fn setrlimit(resource: c_uint, limit: *const libc::rlimit64) -> c_int = setrlimit64;
    fn prlimit(
        process: pid_t, resource: c_uint, new: *const libc::rlimit64, old: *mut libc::rlimit64
    ) -> c_int = prlimit64;
}
