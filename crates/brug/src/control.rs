// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is done a few times in a process: the configuration, the limits, what a fork takes.
//!
//! The layers below say what has changed, or ask for something; this file alone works out what
//! follows for all of them. It defines the words that they ask with (`words.rs`).

use core::ffi::c_void;
use core::sync::atomic::{
    AtomicBool, AtomicU8, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
};

use crate::base;
use nocopy_settings::Statistics;

use crate::config::{self, Config};
use crate::mode::{Base, Mode, ModeUnavailable, THIS_BUILD};
#[cfg(feature = "monitor")]
use crate::monitor;
use crate::realloc::{self, LEAVE_MAX};
use crate::stats;
use crate::words::{self, change, hot, set_base, Ask, BUSY, DONE, NEW, NOWHERE};
use crate::{arena, heap, huge, os, purge, retain, scope, sys, trial, tuner};

#[cfg(not(miri))]
core::arch::global_asm!(
    ".pushsection .data.brug_hot_v0, \"aw\"",
    ".p2align 6",
    ".hidden brug_hot_v0",
    ".globl brug_hot_v0",
    ".type brug_hot_v0, %object",
    ".size brug_hot_v0, 128",
    "brug_hot_v0:",
    ".quad {nowhere}, 0, 0, 0",
    ".quad {alloc}, {nowhere}, 0, 0",
    ".quad 0, 0, 0",
    ".quad {answer}, {alloc_cold}, {realloc_cold}, {nowhere}",
    ".byte {auto}, 0, 0, 0, 0, 0",
    ".zero 2",
    ".popsection",
    nowhere = const NOWHERE,
    alloc = sym sys::alloc,
    answer = sym answer,
    alloc_cold = sym heap::alloc_cold,
    realloc_cold = sym realloc::realloc_cold,
    auto = const Mode::Auto as u8,
);

#[cfg(miri)]
#[no_mangle]
fn brug_hot_v0() -> &'static words::Hot {
    use words::{Hot, Rest};
    static HOT: Hot = Hot {
        low: AtomicUsize::new(NOWHERE),
        malloc_limit: AtomicUsize::new(0),
        realloc_limit: AtomicUsize::new(0),
        limit: AtomicUsize::new(0),
        alloc: AtomicUsize::new(0),
        offset: AtomicUsize::new(NOWHERE),
        len: AtomicUsize::new(0),
        free: AtomicUsize::new(0),
        rest: Rest {
            realloc: AtomicUsize::new(0),
            other_realloc_limit: AtomicUsize::new(0),
            slots: AtomicUsize::new(0),
            answer,
            alloc_cold: heap::alloc_cold,
            realloc_cold: realloc::realloc_cold,
            high: AtomicUsize::new(NOWHERE),
            mode: AtomicU8::new(Mode::Auto as u8),
            base: AtomicU8::new(Base::Glibc as u8),
            init: AtomicU8::new(NEW),
            observed: AtomicBool::new(false),
            scoped: AtomicBool::new(false),
            counted: AtomicBool::new(false),
        },
    };
    &HOT
}

/// Does what a layer below asks for.
#[link_section = startup!()]
extern "C" fn answer(to: Ask) {
    match to {
        Ask::Configuration => initialise(),
        Ask::Limits => work_out_limits(),
        Ask::Thread => purge::start(),
        Ask::Memory => {
            words::adopt();
            arena::give_back();
        }
        Ask::Fork => after_fork_in_child(),
    }
}

#[cold]
#[link_section = startup!()]
fn initialise() {
    if !Config::env_is_there() {
        // Before the C library's first instruction; defaults will do until then.
        return;
    }
    if hot()
        .rest
        .init
        .compare_exchange(NEW, BUSY, Acquire, Relaxed)
        .is_err()
    {
        // Some thread is doing that, perhaps this one: defaults will do.
        return;
    }
    let config = os::keep_errno(Config::from_env);
    // SAFETY: the first and only caller at this time.
    unsafe { put_in_force(&config) };
}

/// # Safety
/// As for [`config::install`].
pub(crate) unsafe fn put_in_force(config: &Config) {
    let mut config = *config;
    if !config.mode.is_available() {
        os::complain(format_args!("{}; using auto", ModeUnavailable(config.mode)));
        config.mode = Mode::Auto;
    }
    if let Some(base) = config.base.filter(|base| !base.is_available()) {
        os::complain(format_args!(
            "base {base} is not part of {THIS_BUILD}; using glibc"
        ));
        config.base = Some(Base::Glibc);
    }
    if sys::is_bypassed() {
        if config.verbose {
            os::complain(format_args!(
                "the program has a malloc of its own; the C library has the rest"
            ));
        }
        config.mode = Mode::Sys;
        config.base = Some(Base::Glibc);
    }
    let jemalloc = config.base == Some(Base::Jemalloc)
        || config.mode.uses(Base::Jemalloc, &config.template);
    let show = config.statistics != Statistics::No;
    if config.verbose || config.profile.is_some() || show || jemalloc {
        os::remember_stderr();
    }
    // SAFETY: passed on.
    unsafe { config::install(&config) };
    retain::reconfigure();
    if let Some(path) = config.profile {
        tuner::load(path);
    }
    // A profile with what a trial found saves the trial.
    if config.base.is_none() {
        trial::start_unless_known(config.monitor);
    } else {
        trial::cancel();
    }
    set_base(base_in(config.mode));
    hot().rest.init.store(DONE, Release);
    // In the preload library the first request comes before the loader is done: see `raw::prepare`.
    #[cfg(not(feature = "preload"))]
    os::keep_errno(|| {
        os::stay();
        purge::prepare();
        at_fork();
    });
    #[cfg(not(feature = "preload"))]
    at_exit(&config);
    #[cfg(feature = "monitor")]
    if config.monitor {
        monitor::start();
    }
    change(|| hot().rest.mode.store(config.mode as u8, Relaxed));
}

/// The base of what is in no slot while `mode` is that of the process.
fn base_in(mode: Mode) -> Base {
    let named = config::current().base;
    named.unwrap_or_else(|| os::keep_errno(|| trial::base_in(mode)))
}

/// Registers what the configuration wants done when the program ends. `libbrug.so` has the loader call it: the C
/// library allocates under the lock that this takes.
#[cfg(not(feature = "preload"))]
fn at_exit(config: &Config) {
    static DONE: AtomicBool = AtomicBool::new(false);
    let show = config.statistics != Statistics::No;
    if (config.profile.is_some() || show) && !DONE.swap(true, Relaxed) {
        // SAFETY: `finish` may run at any time after this.
        unsafe { libc::atexit(finish) };
    }
}

#[cfg(not(feature = "preload"))]
extern "C" fn finish() {
    let to_stderr = config::current().statistics == Statistics::StandardError;
    if !to_stderr || os::stderr_is_there() {
        stats::show(libc::STDERR_FILENO);
    }
    save_profile();
}

/// Writes what the tuner has learned where the configuration wants it. After the statistics, which are of this
/// process alone.
pub(crate) fn save_profile() {
    if let Some(path) = config::current().profile {
        tuner::save(path);
    }
}

/// The C library's `malloc`, where it may be refused memory that brug can take back.
unsafe extern "C" fn alloc_refused(size: usize) -> *mut c_void {
    // SAFETY: no preconditions.
    let attempt = || unsafe { sys::malloc(size) };
    let p = os::keep_errno_if_granted(|| {
        let p = attempt();
        if p.is_null() && arena::take_back() {
            return attempt();
        }
        p
    });
    words::or_elsewhere(p, size)
}

/// Length of the range that [`in_other`] looks at, or 0: none is chosen yet.
static CHOSEN_LEN: AtomicUsize = AtomicUsize::new(0);

/// Returns the maximum sizes at which a base that is not the C library is called directly: for new
/// objects, and to resize its own.
///
/// Only the first such base has its objects freed and resized directly, and it does so for good: no
/// thread may see the range of one base with the functions of another.
#[cfg(any(feature = "jemalloc", feature = "mimalloc"))]
fn other_limits(owner: u8, malloc: usize, realloc: usize) -> (usize, usize) {
    let Some(direct) = base::direct(owner) else {
        return (0, 0);
    };
    let hot = hot();
    let (start, len) = direct.range;
    hot.alloc.store(direct.alloc as usize, Relaxed);
    if CHOSEN_LEN.load(Relaxed) == 0 {
        hot.free.store(direct.free as usize, Relaxed);
        hot.rest.realloc.store(direct.realloc as usize, Relaxed);
        hot.offset.store(start.wrapping_neg(), Relaxed);
        // The entries of C free without a size.
        let told = cfg!(feature = "preload") && !words::KNOWS_SIZES;
        CHOSEN_LEN.store(if told { 0 } else { len }, Relaxed);
    }
    let chosen = hot.offset.load(Relaxed) == start.wrapping_neg();
    let realloc = if chosen { realloc } else { 0 };
    (malloc.min(direct.most), realloc.min(direct.most))
}

#[cfg(not(any(feature = "jemalloc", feature = "mimalloc")))]
fn other_limits(_: u8, _: usize, _: usize) -> (usize, usize) {
    (0, 0)
}

/// From here on new objects come from the C library instead of `base`, and objects of `base` are freed
/// by the slow path. Only for the child of a fork: no other thread may see the range change.
fn leave_base(base: Base) {
    change(|| {
        trial::forget(base);
        if words::base() == base {
            set_base(Base::Glibc);
        }
        CHOSEN_LEN.store(0, Relaxed);
        hot().alloc.store(sys::ALLOC as usize, Relaxed);
    });
}

/// Works the limits out anew. The caller holds the lock of [`change`].
fn work_out_limits() {
    let config = config::current();
    let mode = words::process_mode();
    #[cfg(feature = "monitor")]
    let observed = monitor::on();
    #[cfg(not(feature = "monitor"))]
    let observed = false;
    hot().rest.observed.store(observed, Relaxed);
    let scoped = scope::any();
    hot().rest.scoped.store(scoped, Relaxed);
    let base = hot().rest.base.load(Relaxed);
    // What the trial compares must come out of line, and nobody is chosen before it ends.
    let counted = words::counted();
    trial::end_if_hopeless(counted);
    let most = config.switch_point.min(tuner::watched_from());
    let to_come = mode == Mode::Auto && trial::is_to_come();
    let early = to_come && base == Base::Glibc as u8 && !observed && !scoped;
    let tried = mode == Mode::Auto && trial::running();
    let slots = if observed { 0 } else { arena::GEOMETRY.slots_len.load(Relaxed) };
    hot().rest.slots.store(slots, Relaxed);
    let observed = observed || tried;
    // Of one, the next new object tells the C library.
    let unknown = retain::is_unknown();
    let page = os::page_size() - 1;
    // Who has the small objects, and up to which size when new and when growing.
    let (owner, malloc, realloc) = match mode {
        _ if observed || scoped || unknown || to_come && !early => (Base::Glibc as u8, 0, 0),
        Mode::Sys => (Base::Glibc as u8, usize::MAX, usize::MAX),
        Mode::Jemalloc => (Base::Jemalloc as u8, usize::MAX, usize::MAX),
        Mode::Mimalloc => (Base::Mimalloc as u8, usize::MAX, usize::MAX),
        Mode::Template => {
            let (mode, limit) = config.template.first();
            // `Mmap` as the first: growth slots for everything.
            let limit = if mode == Mode::Mmap { 0 } else { limit };
            (mode as u8, limit, limit)
        }
        Mode::Mmap => (base, page, page),
        // New objects are counted on the way; `realloc` makes some, too.
        Mode::Auto if early => (base, most - 1, 0),
        Mode::Auto => (base, most - 1, LEAVE_MAX - 1),
    };
    let sys = owner == Base::Glibc as u8 || base::is_full(owner);
    let only = |when: bool, limit: usize| if when { limit } else { 0 };
    let hot = hot();
    // A thread may use an old limit with a new function, or the reverse: every function
    // allocates whatever it is asked for.
    hot.malloc_limit.store(only(sys && !counted && !early, malloc), Relaxed);
    hot.realloc_limit.store(only(sys && !counted, realloc), Relaxed);
    let (limit, other_realloc) = if sys {
        let alloc = match (counted, early) {
            (true, _) => alloc_refused,
            (_, true) => trial::alloc_counted,
            _ => sys::ALLOC,
        };
        hot.alloc.store(alloc as usize, Relaxed);
        (malloc, 0)
    } else {
        other_limits(owner, malloc, realloc)
    };
    hot.limit.store(limit, Relaxed);
    hot.rest.other_realloc_limit.store(other_realloc, Relaxed);
    let (low, high, len) = if observed {
        (0, usize::MAX, 0)
    } else {
        let base = arena::GEOMETRY.base.load(Relaxed);
        let end = base + arena::GEOMETRY.len.load(Relaxed);
        (base, end, CHOSEN_LEN.load(Relaxed))
    };
    // A thread may use an old one with a new one of the two: what is in the arena is between both, always.
    hot.rest.high.store(high, Relaxed);
    hot.len.store(len, Release);
    hot.low.store(low, Release);
}

pub(crate) fn set_mode(mode: Mode) -> Result<(), ModeUnavailable> {
    if !mode.is_available() {
        return Err(ModeUnavailable(mode));
    }
    words::ready();
    let base = base_in(mode);
    change(|| {
        hot().rest.mode.store(mode as u8, Relaxed);
        set_base(base);
    });
    Ok(())
}

/// While a fork is under way between the handlers: whether its process has other threads of its own beside that
/// which forks, as far as a base minds.
static FORK: AtomicU8 = AtomicU8::new(NO_FORK);
const NO_FORK: u8 = 0;
const AMONG_THREADS: u8 = 1;
const ALONE: u8 = 2;

/// Gives back now all memory that no object needs. Returns true if there was any.
pub(crate) fn trim() -> bool {
    arena::take_back()
}

/// Sees to it that a limit which the program has just set finds nothing that no object needs, and that
/// what the C library is refused from here on is seen.
pub(crate) fn limits_changed() {
    if os::keep_errno(words::look_again) {
        arena::take_back();
    }
}

/// Registers handlers of forks, before there is a thread whose child could need them. The parent first gives
/// back what the child would be charged for in vain; the child puts in order what its parent's other threads left.
pub(crate) fn at_fork() {
    static DONE: AtomicBool = AtomicBool::new(false);
    // Miri knows no fork.
    if !cfg!(miri) && !DONE.swap(true, SeqCst) {
        extern "C" fn prepare() {
            FORK.store(AMONG_THREADS, Relaxed);
            if !arena::is_there() {
                // A program without large objects pays nothing for this.
                return;
            }
            if os::commits_strictly() {
                // The child has everything committed that its parent has; a fork is refused
                // if that is too much.
                arena::take_back();
            } else if retain::RETAINED.load(Relaxed) > retain::KEEP {
                // The child would keep it as long as it lives, since it has no thread that gives
                // it back. The parent loses little: it would have to copy each page to use it.
                arena::give_back();
            }
            // It counts against limits of processes, and in warnings of forks among threads; what it would give back goes
            // back now.
            purge::stop();
            if base::minds_threads() && os::keep_errno(os::threads) == Some(1) {
                FORK.store(ALONE, Relaxed);
            }
        }
        extern "C" fn parent() {
            FORK.store(NO_FORK, Relaxed);
            purge::go_on();
        }
        extern "C" fn child() {
            after_fork_in_child();
        }
        // A handler of a signal may fork, so these do nothing that it may not do, but for `parent`, which may start the
        // thread where the handler was set with `SA_NODEFER`. Should the list of handlers be
        // full, a child keeps what it inherits.
        os::at_fork(prepare, parent, child);
    }
}

/// In the child of a fork, which has one thread: puts things in order, unless that is done.
fn after_fork_in_child() {
    // An earlier handler may have come here, or have made the arena of the child.
    let fork = FORK.swap(NO_FORK, Relaxed);
    if !words::is_owned_anew() && fork == NO_FORK {
        return;
    }
    scope::after_fork_in_child();
    words::after_fork_in_child();
    #[cfg(feature = "monitor")]
    monitor::after_fork_in_child();
    retain::after_fork_in_child();
    purge::after_fork_in_child();
    huge::after_fork_in_child();
    arena::after_fork_in_child();
    stats::after_fork_in_child();
    tuner::after_fork_in_child();
    trial::take_over();
    if fork != ALONE {
        if let Some(base) = base::after_fork_among_threads() {
            leave_base(base);
        }
    }
}
