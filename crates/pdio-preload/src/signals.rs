// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signals: those that end the process by default, and those that the program handles.
//!
//! With the first stream, a handler of this library takes the place of each of the program's, and
//! with the first that reads or holds writes back also of default actions that end the process. The
//! program goes on seeing what it has set. What it ignores, and its handlers of faults, are never
//! touched. An executed program starts with the default actions, as handlers do not survive.
//!
//! * **In a thread that works for this library** the signal must wait: the program's handler may do
//!   I/O on the same stream, or jump out. Blocking signals around each call would cost two system
//!   calls. So the handler sends the signal to its thread again and returns with all signals
//!   blocked; on its way out of the library the thread unblocks them, and the signal comes then.
//! * **Elsewhere** the program's handler is called, with what the kernel gave.
//! * **A default action**: the handler writes what streams hold and lets go what they read, and then has
//!   the default action end the process, with the same status and core. It may come anywhere in the
//!   program, so it allocates nothing. If another thread works on a stream, it waits for that, for a while.
//!
//! Signals for real time keep their order, which sending them again could change; for handlers of
//! those, and for handlers set past this library, signals are blocked around each call after all
//! (see [`HANDLERS`]).

use core::ffi::{c_int, c_long, c_void};
use core::mem::{transmute, zeroed};
use core::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64, AtomicU8, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
};

use crate::guard::{self, mask, set_mask, FAULTS, HANDLERS};
use crate::{acts, next, state};

/// The highest signal.
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

/// Returns true if a handler of this signal can be called later without harm.
fn can_wait(signal: c_int) -> bool {
    (1..INTERNAL[0]).contains(&signal)
        && !FAULTS.contains(&signal)
        && ![libc::SIGKILL, libc::SIGSTOP].contains(&signal)
}

/// Which actions have this library's handler in their place.
static ARMED: AtomicU8 = AtomicU8::new(NONE);
const NONE: u8 = 0;
/// The program's handlers.
pub const HANDLED: u8 = 1;
/// Those, and default actions that end the process.
pub const ENDS: u8 = 2;

/// Calls under way that set an action without a look at [`ARMED`].
static UNSEEN: AtomicU32 = AtomicU32::new(0);
/// Held while actions change. Its holder has all signals blocked.
static CHANGING: AtomicBool = AtomicBool::new(false);

/// What the program has set, where this library's handler is in its place.
struct Given {
    handler: AtomicUsize,
    flags: AtomicU64,
    mask: AtomicU64,
}

static GIVEN: [Given; LAST as usize + 1] = [const {
    Given {
        handler: AtomicUsize::new(libc::SIG_DFL),
        flags: AtomicU64::new(0),
        mask: AtomicU64::new(0),
    }
}; LAST as usize + 1];

/// Signals that interrupt calls, by `siginterrupt`, a bit each.
static INTERRUPTS: AtomicU64 = AtomicU64::new(0);

/// True while the process ends by a signal or at once. Nothing is held back then.
static ENDING: AtomicBool = AtomicBool::new(false);

/// Returns true if what is written must reach the kernel in the same call.
pub fn ending() -> bool {
    ENDING.load(SeqCst)
}

/// The process is about to end.
pub fn begin_end() {
    ENDING.store(true, SeqCst);
}

type Action = libc::sigaction;

fn handler() -> usize {
    arrived as unsafe extern "C-unwind" fn(c_int, *mut libc::siginfo_t, *mut c_void) as usize
}

/// Returns true if this library's handler is to take the place of `action`.
fn replaces(signal: c_int, action: &Action) -> bool {
    let armed = ARMED.load(SeqCst);
    match action.sa_sigaction {
        libc::SIG_DFL => armed >= ENDS && ends(signal) && (!is_init() || FAULTS.contains(&signal)),
        libc::SIG_IGN | libc::SIG_ERR => false,
        _ => armed >= HANDLED && can_wait(signal),
    }
}

/// Returns true if this is the first process of its namespace. For that the kernel ignores default actions,
/// but for those of faults; a handler would have its calls interrupted.
fn is_init() -> bool {
    // SAFETY: no preconditions.
    unsafe { libc::getpid() == 1 }
}

/// Returns true if the program's handler may come while a thread works for this library.
fn interrupts(signal: c_int, handler: usize) -> bool {
    handler != libc::SIG_DFL
        && handler != libc::SIG_IGN
        && handler != self::handler()
        && !FAULTS.contains(&signal)
}

/// What takes the place of an action.
fn ours(given: &Action) -> Action {
    let mut action = *given;
    action.sa_sigaction = handler();
    if given.sa_sigaction == libc::SIG_DFL {
        action.sa_flags = libc::SA_RESTART;
        // Where the stack has no room, unless the other has less.
        if !SMALL_STACKS.load(SeqCst) {
            action.sa_flags |= libc::SA_ONSTACK;
        }
        // SAFETY: the set is ours.
        unsafe { libc::sigfillset(&mut action.sa_mask) };
    }
    action.sa_flags = (action.sa_flags | libc::SA_SIGINFO) & !libc::SA_RESETHAND;
    action
}

/// Keeps what the program gave.
fn keep(signal: c_int, action: &Action) {
    let given = &GIVEN[signal as usize];
    given.flags.store(action.sa_flags as u64, Relaxed);
    given.mask.store(mask(&action.sa_mask), Relaxed);
    given.handler.store(action.sa_sigaction, Release);
}

/// An action as the program gave it.
fn shown(signal: c_int, action: &mut Action) {
    if action.sa_sigaction != handler() {
        return;
    }
    let given = &GIVEN[signal as usize];
    let flags = given.flags.load(Relaxed) as c_int;
    action.sa_sigaction = given.handler.load(Acquire);
    if action.sa_sigaction == libc::SIG_DFL {
        action.sa_flags = flags;
        set_mask(&mut action.sa_mask, given.mask.load(Relaxed));
    } else {
        // The rest the kernel has, and the C library changes some of it unseen (`siginterrupt`).
        let changed = libc::SA_SIGINFO | libc::SA_RESETHAND;
        action.sa_flags = action.sa_flags & !changed | flags & changed;
    }
}

fn nothing() -> Action {
    // SAFETY: a structure of numbers may be all zero.
    unsafe { zeroed() }
}

/// Some thread has an alternate stack that is too small for what a default action's handler does here.
static SMALL_STACKS: AtomicBool = AtomicBool::new(false);
/// Twice what that takes on a processor with much to save (AVX-512).
const LEAST_STACK: usize = 16 << 10;

/// `sigaltstack` is about to be called.
pub fn alternate_stack(stack: &libc::stack_t) {
    let used = stack.ss_flags & libc::SS_DISABLE == 0;
    if !used || stack.ss_size >= LEAST_STACK || SMALL_STACKS.swap(true, SeqCst) {
        return;
    }
    if ARMED.load(SeqCst) >= ENDS && state::is_owner() {
        changing(|| (1..=LAST).for_each(move_from_alternate_stack));
    }
}

fn move_from_alternate_stack(signal: c_int) {
    let mut now = nothing();
    let given = GIVEN[signal as usize].handler.load(Acquire);
    // SAFETY: the actions are ours.
    unsafe {
        let ours = next::sigaction(signal, core::ptr::null(), &mut now) == 0
            && now.sa_sigaction == handler()
            && given == libc::SIG_DFL;
        if ours {
            now.sa_flags &= !libc::SA_ONSTACK;
            next::sigaction(signal, &now, core::ptr::null_mut());
        }
    }
}

/// Runs `change` while no other thread changes an action, and no signal comes here.
fn changing<T>(change: impl FnOnce() -> T) -> T {
    // SAFETY: the sets are ours; an all-zero set is valid memory for the calls.
    unsafe {
        let (mut all, mut old) = zeroed::<(libc::sigset_t, libc::sigset_t)>();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut old);
        while CHANGING.swap(true, Acquire) {
            libc::sched_yield();
        }
        let result = change();
        CHANGING.store(false, Release);
        libc::pthread_sigmask(libc::SIG_SETMASK, &old, core::ptr::null_mut());
        result
    }
}

/// Puts this library's handler in the place of the present action, if it belongs there.
fn replace(signal: c_int) {
    let mut now = nothing();
    // SAFETY: the actions are ours.
    unsafe {
        if next::sigaction(signal, core::ptr::null(), &mut now) != 0
            || now.sa_sigaction == handler()
        {
            return;
        }
        if replaces(signal, &now) {
            keep(signal, &now);
            next::sigaction(signal, &ours(&now), core::ptr::null_mut());
        } else if interrupts(signal, now.sa_sigaction) && !INTERNAL.contains(&signal) {
            HANDLERS.store(true, SeqCst);
        }
    }
}

/// A stream is about to be taken, for which the actions of `level` have to be replaced.
pub fn arm(level: u8) {
    if ARMED.load(SeqCst) >= level {
        return;
    }
    changing(|| {
        ARMED.fetch_max(level, SeqCst);
        // A thread that sets an action and has not seen that is still counted.
        HANDLERS.store(UNSEEN.load(SeqCst) != 0, SeqCst);
        (1..=LAST).for_each(replace);
    });
}

/// No stream is taken any more. Everything that the program has set is in its place again.
pub fn disarm() {
    if ARMED.load(SeqCst) == NONE {
        return;
    }
    changing(|| {
        ARMED.store(NONE, SeqCst);
        (1..=LAST).for_each(put_back);
    });
}

/// Puts what the program has set in the place of this library's handler.
fn put_back(signal: c_int) {
    let mut now = nothing();
    // SAFETY: the actions are ours.
    unsafe {
        if next::sigaction(signal, core::ptr::null(), &mut now) == 0
            && now.sa_sigaction == handler()
        {
            shown(signal, &mut now);
            next::sigaction(signal, &now, core::ptr::null_mut());
        }
    }
}

/// In a forked child, which has no other thread.
pub fn forked() {
    CHANGING.store(false, SeqCst);
}

/// `sigaction`.
///
/// # Safety
/// As the C function's.
pub unsafe fn action(signal: c_int, new: *const Action, old: *mut Action) -> c_int {
    // SAFETY: the caller's promise.
    let given = unsafe { new.as_ref() }.copied();
    if !(1..=LAST).contains(&signal) || given.is_none() && ARMED.load(SeqCst) == NONE {
        // SAFETY: as above.
        return unsafe { next::sigaction(signal, new, old) };
    }
    // A child that shares the memory until it executes a program has actions of its own.
    let call = || {
        let mut before = nothing();
        // SAFETY: as above.
        let result = unsafe { next::sigaction(signal, new, &mut before) };
        shown(signal, &mut before);
        // SAFETY: as above.
        if let Some(old) = unsafe { old.as_mut() }.filter(|_| result == 0) {
            *old = before;
        }
        result
    };
    let wanted = given.map_or(libc::SIG_DFL, |given| given.sa_sigaction);
    if !state::is_owner() {
        return call();
    }
    if let Some(result) = unarmed(signal, wanted, call) {
        return result;
    }
    let (result, before) = changing(|| {
        let mut before = nothing();
        // SAFETY: the actions are ours.
        unsafe {
            if next::sigaction(signal, core::ptr::null(), &mut before) != 0 {
                return (-1, before);
            }
            let installed = before;
            shown(signal, &mut before);
            let Some(given) = given else {
                return (0, before);
            };
            // What is kept comes first: the handler may come at once, in another thread.
            let replaced = replaces(signal, &given);
            let action = if replaced {
                keep(signal, &given);
                ours(&given)
            } else {
                if interrupts(signal, given.sa_sigaction) {
                    HANDLERS.store(true, SeqCst);
                }
                given
            };
            let result = next::sigaction(signal, &action, core::ptr::null_mut());
            if result != 0 && installed.sa_sigaction == handler() {
                keep(signal, &before);
            }
            (result, before)
        }
    });
    // SAFETY: the caller's promise.
    if let Some(old) = unsafe { old.as_mut() }.filter(|_| result == 0) {
        *old = before;
    }
    result
}

/// Runs a call that sets an action, while nothing is replaced. `None` if something is.
fn unarmed<T>(signal: c_int, handler: usize, call: impl FnOnce() -> T) -> Option<T> {
    UNSEEN.fetch_add(1, SeqCst);
    let result = (ARMED.load(SeqCst) == NONE).then(|| {
        if interrupts(signal, handler) {
            HANDLERS.store(true, SeqCst);
        }
        call()
    });
    UNSEEN.fetch_sub(1, SeqCst);
    result
}

/// `signal` and its relatives: `flags` are those with which each sets a handler, `call` is the C
/// library's.
pub fn simple(signal: c_int, new: usize, flags: c_int, call: impl Fn() -> usize) -> usize {
    let known = (1..=LAST).contains(&signal) && !INTERNAL.contains(&signal);
    if !known || new == libc::SIG_ERR {
        return call();
    }
    if let Some(before) = unarmed(signal, new, &call) {
        return before;
    }
    let mut given = nothing();
    given.sa_sigaction = new;
    given.sa_flags = flags;
    if flags & libc::SA_RESTART != 0 {
        set_mask(&mut given.sa_mask, bit(signal));
        if INTERRUPTS.load(Relaxed) & bit(signal) != 0 {
            given.sa_flags &= !libc::SA_RESTART;
        }
    }
    let mut old = nothing();
    // SAFETY: the actions are ours.
    match unsafe { action(signal, &given, &mut old) } {
        0 => old.sa_sigaction,
        _ => libc::SIG_ERR,
    }
}

fn bit(signal: c_int) -> u64 {
    1 << (signal - 1)
}

/// `sigset`, which also blocks or unblocks the signal.
pub fn set(signal: c_int, new: usize, call: impl Fn() -> usize) -> usize {
    const SIG_HOLD: usize = 2;
    if new == SIG_HOLD && (1..=LAST).contains(&signal) {
        let mut before = nothing();
        before.sa_sigaction = call();
        shown(signal, &mut before);
        return before.sa_sigaction;
    }
    if ARMED.load(SeqCst) == NONE {
        return simple(signal, new, 0, call);
    }
    let before = simple(signal, new, 0, call);
    if before == libc::SIG_ERR {
        return before;
    }
    // SAFETY: the sets are ours; an all-zero set is valid memory for the calls.
    unsafe {
        let (mut one, mut old) = zeroed::<(libc::sigset_t, libc::sigset_t)>();
        libc::sigaddset(&mut one, signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &one, &mut old);
        match libc::sigismember(&old, signal) {
            1 => SIG_HOLD,
            _ => before,
        }
    }
}

/// `siginterrupt` is about to be called, which changes the flag of the present action by itself.
pub fn interrupting(signal: c_int, yes: bool) {
    if (1..=LAST).contains(&signal) {
        match yes {
            true => INTERRUPTS.fetch_or(bit(signal), Relaxed),
            false => INTERRUPTS.fetch_and(!bit(signal), Relaxed),
        };
    }
}

/// The program goes past this library: put its own action back. A handler stays, for good.
pub fn stand_aside(signal: c_int) {
    if (1..=LAST).contains(&signal) && ARMED.load(SeqCst) != NONE {
        changing(|| put_back(signal));
    }
}

/// The program has gone past this library: where it has left a default action, that loses nothing either.
pub fn stand_in(signal: c_int) {
    if !ends(signal) || ARMED.load(SeqCst) < ENDS || !state::is_owner() {
        return;
    }
    changing(|| {
        let mut now = nothing();
        // SAFETY: the action is ours.
        let asked = unsafe { next::sigaction(signal, core::ptr::null(), &mut now) };
        if asked == 0 && now.sa_sigaction == libc::SIG_DFL {
            replace(signal);
        }
    });
}

/// Sends a signal to this thread once more.
///
/// # Safety
/// `info` is what the kernel gave.
unsafe fn send_again(signal: c_int, info: *mut libc::siginfo_t) {
    // SAFETY: no preconditions; the information is the kernel's.
    unsafe {
        let (process, thread) = (libc::getpid(), libc::gettid());
        let number = libc::SYS_rt_tgsigqueueinfo;
        let (process, thread, which) = (process as _, thread as _, signal as _);
        let sent: c_long = next::syscall(number, process, thread, which, info as _, 0, 0);
        if sent == 0 {
            return;
        }
        // Too many are queued: without the information, as the kernel does it.
        let sent = next::syscall(libc::SYS_tgkill, process, thread, which, 0, 0, 0);
        if sent != 0 {
            // A filter of system calls refuses both: whichever thread takes it.
            next::syscall(libc::SYS_kill, process, which, 0, 0, 0, 0);
        }
    }
}

/// Makes a signal wait until the thread leaves this library.
///
/// # Safety
/// `info` and `context` are what the kernel gave.
unsafe fn defer(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the caller's promise. The mask in the context is the thread's when this handler
    // returns.
    unsafe {
        let set = &mut (*context.cast::<libc::ucontext_t>()).uc_sigmask;
        let before = mask(set);
        guard::unblock_later(before);
        // A fault in this library's work ends the process by its own signal.
        let faults = FAULTS.into_iter().filter(|&fault| fault != signal);
        let never = faults
            .chain(INTERNAL)
            .map(bit)
            .fold(0, |all, one| all | one);
        set_mask(set, before | !never);
        send_again(signal, info);
    }
}

unsafe extern "C-unwind" fn arrived(
    signal: c_int,
    info: *mut libc::siginfo_t,
    context: *mut c_void,
) {
    // SAFETY: the kernel's word on the signal.
    let raised = unsafe { (*info).si_code } > 0 && FAULTS.contains(&signal);
    let given = &GIVEN[signal as usize];
    if guard::inside() && !raised {
        let errno = crate::errno::get();
        // SAFETY: what the kernel gave.
        unsafe { defer(signal, info, context) };
        return crate::errno::set(errno);
    }
    match given.handler.load(Acquire) {
        libc::SIG_DFL => {
            let errno = crate::errno::get();
            // SAFETY: what the kernel gave.
            unsafe { end(signal, info, context, raised) };
            crate::errno::set(errno);
        }
        handler => {
            if given.flags.load(Relaxed) as c_int & libc::SA_RESETHAND != 0 {
                reset(signal);
            }
            // A signal tells.
            pdio::heard();
            type Handler = unsafe extern "C-unwind" fn(c_int, *mut libc::siginfo_t, *mut c_void);
            // SAFETY: the program's handler; one that wants the number alone ignores the rest.
            unsafe { transmute::<usize, Handler>(handler)(signal, info, context) }
        }
    }
}

/// The action becomes the default one, with its flags as they are.
fn reset(signal: c_int) {
    let mut default = nothing();
    let given = &GIVEN[signal as usize];
    default.sa_flags = given.flags.load(Relaxed) as c_int;
    set_mask(&mut default.sa_mask, given.mask.load(Relaxed));
    // SAFETY: the action is ours.
    unsafe { action(signal, &default, core::ptr::null_mut()) };
}

/// Writes what streams hold and has the default action end the process.
///
/// # Safety
/// `info` and `context` are what the kernel gave.
unsafe fn end(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void, raised: bool) {
    // A child that shares the memory until it executes a program has nothing of its own here.
    if state::is_owner() {
        begin_end();
        if let Some(acts) = acts::all() {
            (acts.rescue)();
        }
    }
    // SAFETY: the action is ours; the rest is the kernel's. The mask in the context is the thread's when this handler
    // returns.
    unsafe {
        next::sigaction(signal, &nothing(), core::ptr::null_mut());
        // An instruction that cannot be carried out cannot be a second time either, and the core
        // shows it. A breakpoint is behind the program already.
        let again = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE];
        if !(raised && again.contains(&signal)) {
            // It waits until this handler returns, to where it may be blocked: a call such as `sigsuspend` let it in.
            let set = &mut (*context.cast::<libc::ucontext_t>()).uc_sigmask;
            set_mask(set, mask(set) & !bit(signal));
            send_again(signal, info);
        }
    }
}
