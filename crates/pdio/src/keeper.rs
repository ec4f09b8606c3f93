// SPDX-License-Identifier: MIT OR Apache-2.0
//! The thread that hands to the kernel what idles.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::files;
use crate::fork::{self, PerProcess};
use crate::sys::Thread;

/// How long the keeper stays when nothing is pending: a process whose main thread has ended should
/// not be kept alive by it.
const KEEPER_IDLE: Duration = Duration::from_secs(1);
/// The shortest time between two looks.
const SHORTEST: Duration = Duration::from_millis(1);

#[derive(Default)]
struct State {
    keeper: Mutex<Option<Keeper>>,
    parked: AtomicBool,
    /// For how long the thread sleeps between two looks, in nanoseconds.
    sleeps: AtomicU64,
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
/// another, and so does the next write. For a process that must have no thread but one, as
/// `unshare(CLONE_NEWUSER)` asks for. Nobody may use a stream meanwhile.
///
/// The kernel may have made threads of its own for io_uring (`iou-wrk-*` in `/proc/self/task`). With
/// `workers`, those of the calling thread's rings end, also of rings that are not this crate's, when
/// they have been idle for five seconds.
pub fn end_threads(workers: bool) {
    if workers {
        crate::engine::end_workers();
    }
    if fork::watch().is_err() {
        // No stream could be opened so far, so there is no thread.
        return;
    }
    let state = STATE.get();
    let mut entry = lock(&state.keeper);
    let keeper = entry.take();
    if let Some(keeper) = &keeper {
        keeper.bell.dismissed.store(true, Ordering::Release);
    }
    drop(entry);
    if let Some(keeper) = keeper {
        keeper.bell.ring();
        keeper.thread.join();
        // Nobody else looks after what is held now.
        files::for_each_writer(|writer| {
            // The stream's own next call returns an error.
            let _ = writer.push_for_others();
        });
        // Last, as it is what has the next write start another.
        state.parked.store(true, Ordering::Release);
    }
}

/// For how many nanoseconds the keeper may sleep while a stream with this linger time holds data.
pub(crate) fn sleep_of(linger: Duration) -> u64 {
    nanoseconds((linger / 2).max(SHORTEST))
}

/// Tells the keeper that a stream holds data for which it may sleep so long, see [`sleep_of`]. Returns false
/// if there is none, and can be none.
pub(crate) fn wake(half: u64) -> bool {
    let state = STATE.get();
    if state.sleeps.load(Ordering::Relaxed) > half {
        // It sleeps for a stream that can wait longer. One ring is enough.
        let keeper = lock(&state.keeper);
        if state.sleeps.fetch_min(half, Ordering::AcqRel) > half {
            if let Some(keeper) = &*keeper {
                keeper.bell.ring();
            }
        }
    }
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

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn keep(bell: &Bell) {
    let state = STATE.get();
    while !bell.dismissed.load(Ordering::Acquire) {
        let mut next: Option<Duration> = None;
        files::for_each_writer(|writer| {
            if let Some(time) = writer.push_aged() {
                next = Some(next.map_or(time, |n| n.min(time)));
            }
        });
        match next {
            Some(time) => {
                let time = time.max(SHORTEST);
                let sleeps = nanoseconds(time);
                if sleeps <= state.sleeps.swap(sleeps, Ordering::AcqRel) {
                    bell.wait(time);
                }
                // Else look once more, as below: a stream that cannot wait so long may have filled up.
            }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::{child, job, soon};
    use crate::OpenOptions;
    use std::io::Write;

    /// Other tests' streams would keep the thread busy.
    fn is_alone(test: &str) -> bool {
        if job().is_none() {
            let test = format!("keeper::tests::{test}");
            assert!(child(&test, "alone").status().unwrap().success());
        }
        job().is_some()
    }

    fn options(linger: Duration) -> OpenOptions {
        let mut options = OpenOptions::new();
        options.create(true).linger(Some(linger));
        options
    }

    fn comes(path: &std::path::Path, size: u64) {
        let is_there = || path.metadata().unwrap().len() >= size;
        soon(&format!("nobody came for {size} bytes"), &is_there);
    }

    #[test]
    fn a_long_linger_time_of_one_stream_is_not_that_of_another() {
        if !is_alone("a_long_linger_time_of_one_stream_is_not_that_of_another") {
            return;
        }
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = home.path().join("quick");
        let slow = options(Duration::from_secs(120)).open_writer(home.path().join("slow"));
        let mut slow = slow.unwrap();
        slow.write_all(b"slow").unwrap();
        // The thread has seen that and sleeps, both before the other stream is opened and after.
        std::thread::sleep(Duration::from_millis(200));
        let mut quick = options(Duration::from_millis(20))
            .open_writer(&path)
            .unwrap();
        for size in 1..4 {
            quick.write_all(b"x").unwrap();
            comes(&path, size);
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    #[test]
    fn idle_data_leaves_also_after_the_thread_was_ended() {
        if !is_alone("idle_data_leaves_also_after_the_thread_was_ended") {
            return;
        }
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = home.path().join("data");
        let mut out = options(Duration::from_millis(200))
            .open_writer(&path)
            .unwrap();
        out.write_all(b"held").unwrap();
        end_threads(false);
        comes(&path, 4);
        out.write_all(b"more").unwrap();
        comes(&path, 8);
    }
}
