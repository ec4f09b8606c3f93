// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signals that end the process, when the program leaves them their default action.
//!
//! With the first stream that holds writes back, each of them gets a handler, which writes what is
//! held and then has the default action end the process, with the same status and core. The program
//! goes on seeing `SIG_DFL`; what it ignores or handles is never touched. An executed program starts
//! with the default action, as handlers do not survive.
//!
//! The handler may come anywhere in the program, so it allocates nothing. In a thread that works for
//! this library it does nothing but note the signal, which the thread sends again on its way out.
//! Other threads' work on a stream it waits for, a while.

use core::cell::Cell;
use core::ffi::{c_int, c_long, c_void};
use core::mem::zeroed;
use core::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};

use crate::process::FAULTS;
use crate::{next, report, stream, table};

/// Signals above are the C library's own, and those for real time, which end a process as well.
const LAST: c_int = 64;
/// The C library's own.
const INTERNAL: [c_int; 2] = [32, 33];

/// Returns true if the signal's default action is the end of the process.
fn ends(signal: c_int) -> bool {
    use libc::{SIGCHLD, SIGCONT, SIGKILL, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU, SIGURG, SIGWINCH};
    let others = [
        SIGKILL, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU, SIGCONT, SIGCHLD, SIGURG, SIGWINCH,
    ];
    (1..=LAST).contains(&signal) && !others.contains(&signal) && !INTERNAL.contains(&signal)
}

/// True once handlers stand in for default actions.
static ARMED: AtomicBool = AtomicBool::new(false);
thread_local! {
    /// Signals that came while this thread worked for this library, a bit each.
    static PENDING: Cell<u64> = const { Cell::new(0) };
}
/// True while the process ends by a signal. Nothing is held back then.
static ENDING: AtomicBool = AtomicBool::new(false);
/// The flags and the mask that the program gave with a default action.
static FLAGS: [AtomicU64; LAST as usize + 1] = [const { AtomicU64::new(0) }; LAST as usize + 1];
static MASKS: [AtomicU64; LAST as usize + 1] = [const { AtomicU64::new(0) }; LAST as usize + 1];

/// Returns true if what is written must reach the kernel in the same call.
pub fn ending() -> bool {
    ENDING.load(SeqCst)
}

type Action = libc::sigaction;

fn handler() -> usize {
    arrived as unsafe extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) as usize
}

fn ours() -> Action {
    // SAFETY: a structure of numbers may be all zero; the set is ours.
    unsafe {
        let mut action: Action = zeroed();
        action.sa_sigaction = handler();
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
        libc::sigfillset(&mut action.sa_mask);
        action
    }
}

/// The part of a mask that has all signals.
fn mask(action: &Action) -> u64 {
    // SAFETY: a set of signals is at least 64 bits, the first signal first.
    unsafe { (&raw const action.sa_mask).cast::<u64>().read() }
}

/// Keeps what the program gave with a default action.
fn keep(signal: c_int, action: &Action) {
    FLAGS[signal as usize].store(action.sa_flags as u64, Relaxed);
    MASKS[signal as usize].store(mask(action), Relaxed);
}

/// An action as the program gave it.
fn shown(signal: c_int, action: &mut Action) {
    if action.sa_sigaction == handler() {
        // SAFETY: a structure of numbers may be all zero; as in `mask`.
        unsafe {
            *action = zeroed();
            (&raw mut action.sa_mask)
                .cast::<u64>()
                .write(MASKS[signal as usize].load(Relaxed));
        }
        action.sa_sigaction = libc::SIG_DFL;
        action.sa_flags = FLAGS[signal as usize].load(Relaxed) as c_int;
    }
}

/// Replaces a default action; any other is left alone.
fn replace(signal: c_int) {
    // SAFETY: the actions are ours; a structure of numbers may be all zero.
    unsafe {
        let mut old: Action = zeroed();
        if next::sigaction(signal, core::ptr::null(), &mut old) != 0
            || old.sa_sigaction != libc::SIG_DFL
        {
            return;
        }
        keep(signal, &old);
        let mut before: Action = zeroed();
        if next::sigaction(signal, &ours(), &mut before) == 0
            && before.sa_sigaction != libc::SIG_DFL
        {
            // Another thread was between.
            next::sigaction(signal, &before, core::ptr::null_mut());
        }
    }
}

/// A stream that holds writes back is about to be taken.
pub fn arm() {
    if !ARMED.swap(true, SeqCst) {
        (1..=LAST).filter(|&signal| ends(signal)).for_each(replace);
    }
}

/// `sigaction`.
///
/// # Safety
/// As the C function's.
pub unsafe fn action(signal: c_int, new: *const Action, old: *mut Action) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        if !ends(signal) || !ARMED.load(SeqCst) {
            return next::sigaction(signal, new, old);
        }
        let default = new.as_ref().filter(|new| new.sa_sigaction == libc::SIG_DFL);
        // What is kept is shown first: `old` may be the same memory as `new`.
        let mut before: Action = zeroed();
        let given = default.copied();
        let result = match given {
            Some(_) => next::sigaction(signal, &ours(), &mut before),
            None => next::sigaction(signal, new, &mut before),
        };
        if result == 0 {
            shown(signal, &mut before);
            if let Some(given) = given {
                keep(signal, &given);
            }
            if let Some(old) = old.as_mut() {
                *old = before;
            }
        }
        result
    }
}

/// `signal` and its relatives, which `call` is.
pub fn simple(signal: c_int, new: usize, call: impl FnOnce() -> usize) -> usize {
    if !ends(signal) || !ARMED.load(SeqCst) {
        return call();
    }
    let before = if new == libc::SIG_DFL {
        // SAFETY: the actions are ours; a structure of numbers may be all zero.
        unsafe {
            let mut given: Action = zeroed();
            given.sa_flags = libc::SA_RESTART;
            let mut old: Action = zeroed();
            match action(signal, &given, &mut old) {
                0 => old.sa_sigaction,
                _ => libc::SIG_ERR,
            }
        }
    } else {
        call()
    };
    match before == handler() {
        true => libc::SIG_DFL,
        false => before,
    }
}

/// The program goes past this library: it shall find its own action, which then stays.
pub fn stand_aside(signal: c_int) {
    if !ends(signal) || !ARMED.load(SeqCst) {
        return;
    }
    // SAFETY: the actions are ours; a structure of numbers may be all zero.
    unsafe {
        let mut now: Action = zeroed();
        if next::sigaction(signal, core::ptr::null(), &mut now) == 0
            && now.sa_sigaction == handler()
        {
            shown(signal, &mut now);
            next::sigaction(signal, &now, core::ptr::null_mut());
        }
    }
}

/// A thread leaves this library: signals that came meanwhile come now.
#[inline]
pub fn leaving() {
    if PENDING.get() != 0 {
        send_again();
    }
}

#[cold]
fn send_again() {
    let pending = PENDING.take();
    for signal in (1..=LAST).filter(|signal| pending & 1 << (signal - 1) != 0) {
        // To this thread, which did not block it.
        // SAFETY: no memory is involved.
        unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), libc::gettid(), signal) };
    }
}

unsafe extern "C" fn arrived(signal: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
    let errno = crate::errno();
    // SAFETY: the kernel's word on the signal.
    let raised = unsafe { (*info).si_code } > 0 && FAULTS.contains(&signal);
    if table::inside() && !raised {
        PENDING.set(PENDING.get() | 1 << (signal - 1));
        crate::set_errno(errno);
        return;
    }
    // A child that shares the memory until it executes a program has nothing of its own here.
    if report::is_owner() {
        ENDING.store(true, SeqCst);
        stream::rescue();
    }
    // SAFETY: the action is ours, a structure of numbers may be all zero; the information is the
    // kernel's.
    unsafe {
        let default: Action = zeroed();
        next::sigaction(signal, &default, core::ptr::null_mut());
        // An instruction that cannot be carried out cannot be a second time either, and the core
        // shows it. A breakpoint is behind the program already.
        let again = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE];
        if !(raised && again.contains(&signal)) {
            // It waits until this handler returns.
            let (process, thread) = (libc::getpid(), libc::gettid());
            let sent: c_long = next::syscall(
                libc::SYS_rt_tgsigqueueinfo,
                process as _,
                thread as _,
                signal as _,
                info as _,
                0,
                0,
            );
            if sent != 0 {
                next::syscall(
                    libc::SYS_tgkill,
                    process as _,
                    thread as _,
                    signal as _,
                    0,
                    0,
                    0,
                );
            }
        }
    }
    crate::set_errno(errno);
}
