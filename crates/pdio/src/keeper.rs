// SPDX-License-Identifier: MIT OR Apache-2.0
//! The thread that hands to the kernel what idles.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::files;
use crate::fork::PerProcess;
use crate::sys::Thread;

/// How long the keeper stays when nothing is pending: a process whose main thread has ended should
/// not be kept alive by it.
const KEEPER_IDLE: Duration = Duration::from_secs(1);

#[derive(Default)]
struct State {
    keeper: Mutex<Option<Keeper>>,
    parked: AtomicBool,
}

static STATE: PerProcess<State> = PerProcess::new();

struct Keeper {
    thread: Thread,
    bell: Arc<Bell>,
}

/// What the others tell the thread.
#[derive(Default)]
struct Bell {
    /// Set when the thread is to end.
    dismissed: AtomicBool,
    /// Set, with the lock of [`State::keeper`] held, when the thread ends because nothing is pending.
    gone: AtomicBool,
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Bell {
    fn ring(&self) {
        *lock(&self.rung) = true;
        self.changed.notify_one();
    }

    /// Waits until it rings, or has rung since the last time; at most so long.
    fn wait(&self, limit: Duration) {
        let rung = lock(&self.rung);
        let waited = self.changed.wait_timeout_while(rung, limit, |rung| !*rung);
        *waited.unwrap_or_else(PoisonError::into_inner).0 = false;
    }

    /// Waits so long, or until the thread is to end.
    fn sleep(&self, time: Duration) {
        let rung = lock(&self.rung);
        let stays = |_: &mut bool| !self.dismissed.load(Ordering::Acquire);
        drop(self.changed.wait_timeout_while(rung, time, stays));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts the keeper thread if need be. Returns false if there can be none: then nothing may linger.
pub(crate) fn start() -> bool {
    is_there(&mut lock(&STATE.get().keeper))
}

fn is_there(keeper: &mut Option<Keeper>) -> bool {
    if let Some(gone) = keeper.take_if(|keeper| keeper.bell.gone.load(Ordering::Relaxed)) {
        gone.thread.join();
    }
    if keeper.is_none() {
        let bell = Arc::<Bell>::default();
        let heard = bell.clone();
        *keeper = crate::sys::spawn(c"pdio-keeper", 128 << 10, move || keep(&heard))
            .ok()
            .map(|thread| Keeper { thread, bell });
    }
    keeper.is_some()
}

/// Ends the thread that hands over what idles, and waits until it has ended; the next writer starts
/// another. For a process that must have no thread but one, as `unshare(CLONE_NEWUSER)` asks for.
/// Nobody may use a stream meanwhile.
///
/// The kernel may have made threads of its own for io_uring (`iou-wrk-*` in `/proc/self/task`). With
/// `workers`, those of the calling thread's rings end, also of rings that are not this crate's, when
/// they have been idle for five seconds.
pub fn end_threads(workers: bool) {
    if workers {
        crate::engine::end_workers();
    }
    let mut entry = lock(&STATE.get().keeper);
    let keeper = entry.take();
    if let Some(keeper) = &keeper {
        keeper.bell.dismissed.store(true, Ordering::Release);
    }
    drop(entry);
    if let Some(keeper) = keeper {
        keeper.bell.ring();
        keeper.thread.join();
    }
}

/// Tells the keeper that a stream holds data again. Returns false if there is none, and can be none.
pub(crate) fn wake() -> bool {
    let state = STATE.get();
    if state.parked.load(Ordering::Relaxed) {
        let mut keeper = lock(&state.keeper);
        if !is_there(&mut keeper) {
            return false;
        }
        if state.parked.swap(false, Ordering::AcqRel) {
            if let Some(keeper) = &*keeper {
                keeper.bell.ring();
            }
        }
    }
    true
}

fn keep(bell: &Bell) {
    let state = STATE.get();
    while !bell.dismissed.load(Ordering::Acquire) {
        let mut next: Option<Duration> = None;
        // One at a time: the thread that ends a stream waits until nobody holds it.
        let writers: Vec<_> = files::all_writers().iter().map(Arc::downgrade).collect();
        for writer in writers {
            if let Some(time) = writer.upgrade().and_then(|writer| writer.push_aged()) {
                next = Some(next.map_or(time, |n| n.min(time)));
            }
        }
        match next {
            Some(time) => bell.sleep(time.max(Duration::from_millis(1))),
            None if state.parked.swap(true, Ordering::AcqRel) => {
                bell.wait(KEEPER_IDLE);
                let _keeper = lock(&state.keeper);
                if bell.dismissed.load(Ordering::Acquire) {
                    return;
                }
                if state.parked.load(Ordering::Acquire) {
                    // To wake a keeper that has gone starts another. It stays to be joined: until its last
                    // instruction it could be the last thread of a process whose main thread ends.
                    bell.gone.store(true, Ordering::Relaxed);
                    return;
                }
            }
            // Look once more: a stream may have filled up before it could see the flag.
            None => {}
        }
    }
}
