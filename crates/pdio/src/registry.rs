// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the streams of one process know of each other: the table of open files, forks, and the
//! keeper thread that hands idle data to the kernel.
//!
//! Lock order: table, then inode, then stream; none is held while taking an earlier one.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, OnceLock, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::policy;
use crate::writer::Shared;

/// How long the keeper stays when nothing is pending: a process whose main thread has ended should
/// not be kept alive by it.
const KEEPER_IDLE: Duration = Duration::from_secs(1);

static THREAD_HOOK: OnceLock<fn(bool)> = OnceLock::new();

/// Has every thread of this crate call `hook` with `true` when it begins and with `false` when it
/// ends, and a thread that forks around what this crate does before. For libraries that put themselves between a program and the system, and must tell this
/// crate's calls from the program's. Only the first hook counts.
pub fn set_thread_hook(hook: fn(bool)) {
    let _ = THREAD_HOOK.set(hook);
}

/// Lives as long as a thread works for this crate alone.
pub(crate) struct OwnThread(());

impl OwnThread {
    pub(crate) fn begin() -> OwnThread {
        if let Some(hook) = THREAD_HOOK.get() {
            hook(true);
        }
        OwnThread(())
    }
}

impl Drop for OwnThread {
    fn drop(&mut self) {
        if let Some(hook) = THREAD_HOOK.get() {
            hook(false);
        }
    }
}

/// The last fork generation, which a child inherits.
static GENERATION: AtomicU64 = AtomicU64::new(1);

/// Changes in a child after `fork`. Streams remember theirs: what they hold then belongs to the
/// parent.
pub(crate) fn fork_generation() -> u64 {
    static MARK: OnceLock<&AtomicU64> = OnceLock::new();
    // The kernel wipes the mark in every child, also in those of a bare `clone`.
    let mark = MARK.get_or_init(|| {
        let mark = crate::memory::wiped_in_children();
        mark.store(1, Ordering::Relaxed);
        mark
    });
    match mark.load(Ordering::Relaxed) {
        0 => {
            let new = GENERATION.load(Ordering::Relaxed) + 1;
            match mark.compare_exchange(0, new, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => {
                    GENERATION.store(new, Ordering::Relaxed);
                    crate::memory::forked();
                    new
                }
                Err(other) => other,
            }
        }
        generation => generation,
    }
}

extern "C" fn before_fork() {
    // The child must not write what the parent still holds, so nobody holds anything. The thread
    // is the program's, but its calls in here are this crate's.
    let _own = OwnThread::begin();
    for writer in all_writers() {
        writer.push_for_others();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The state of one process; a forked child gets a new one.
struct Table {
    generation: u64,
    inodes: Mutex<HashMap<(u64, u64), Weak<Inode>>>,
    keeper: Mutex<Option<Keeper>>,
    keeper_parked: AtomicBool,
    learned: policy::Table,
}

/// The thread that hands over what idles.
struct Keeper {
    thread: JoinHandle<()>,
    /// Set when it shall end.
    dismissed: Arc<AtomicBool>,
}

/// The policy's knowledge, which a child starts without.
pub(crate) fn learned() -> &'static policy::Table {
    &table().learned
}

fn table() -> &'static Table {
    static CURRENT: AtomicPtr<Table> = AtomicPtr::new(std::ptr::null_mut());
    static AT_FORK: Once = Once::new();
    AT_FORK.call_once(|| {
        // SAFETY: the handler is a function of this program and never unloaded before it.
        unsafe { libc::pthread_atfork(Some(before_fork), None, None) };
    });
    loop {
        let current = CURRENT.load(Ordering::Acquire);
        // SAFETY: tables are leaked, so a pointer once stored stays valid.
        if let Some(table) = unsafe { current.as_ref() } {
            if table.generation == fork_generation() {
                return table;
            }
        }
        // The parent's table may be locked by a thread that this process does not have.
        let new = Box::into_raw(Box::new(Table {
            generation: fork_generation(),
            inodes: Mutex::default(),
            keeper: Mutex::default(),
            keeper_parked: AtomicBool::new(false),
            learned: policy::Table::default(),
        }));
        if CURRENT
            .compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire)
            .is_err()
        {
            // SAFETY: never published, so still ours alone.
            drop(unsafe { Box::from_raw(new) });
        }
    }
}

/// What the streams on one file share.
#[derive(Debug, Default)]
pub(crate) struct Inode {
    writers: Mutex<Vec<Weak<Shared>>>,
    writer_count: AtomicUsize,
    /// Rises with every write: readers that have read ahead compare it.
    generation: AtomicU64,
    /// Blocks are reserved up to here, in bytes; what lies beyond the end of the file is the last
    /// writer's to release.
    pub reserved_to: AtomicU64,
}

impl Inode {
    /// The entry of a file, made if there is none.
    pub(crate) fn of(dev: u64, ino: u64) -> Arc<Inode> {
        let mut inodes = lock(&table().inodes);
        if let Some(inode) = inodes.get(&(dev, ino)).and_then(Weak::upgrade) {
            return inode;
        }
        inodes.retain(|_, inode| inode.strong_count() > 0);
        let inode = Arc::<Inode>::default();
        inodes.insert((dev, ino), Arc::downgrade(&inode));
        inode
    }

    pub(crate) fn add(&self, writer: &Arc<Shared>) {
        let mut writers = lock(&self.writers);
        writers.retain(|w| w.strong_count() > 0);
        writers.push(Arc::downgrade(writer));
        self.writer_count.store(writers.len(), Ordering::Release);
    }

    /// Takes a writer off the list. `last` runs if it was the last one, before another can come.
    pub(crate) fn remove(
        &self,
        writer: &Shared,
        last: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let mut writers = lock(&self.writers);
        let before = writers.len();
        writers.retain(|w| w.strong_count() > 0 && !std::ptr::eq(w.as_ptr(), writer));
        self.writer_count.store(writers.len(), Ordering::Release);
        match writers.is_empty() && before > 0 {
            true => last(),
            false => Ok(()),
        }
    }

    /// The writers of this file but `me`.
    fn others(&self, me: Option<&Shared>) -> Vec<Arc<Shared>> {
        let all = lock(&self.writers);
        all.iter()
            .filter_map(Weak::upgrade)
            .filter(|w| !me.is_some_and(|me| std::ptr::eq(Arc::as_ptr(w), me)))
            .collect()
    }

    pub(crate) fn writers(&self) -> usize {
        self.writer_count.load(Ordering::Acquire)
    }

    /// Makes other writers hand over what they hold of `[from, to)`, so that what the caller does
    /// next happens after it. Their errors stay theirs.
    pub(crate) fn settle(&self, me: Option<&Shared>, from: u64, to: u64) {
        let alone = usize::from(me.is_some());
        if self.writers() <= alone {
            return;
        }
        for other in self.others(me) {
            if other.holds(from, to) {
                other.push_for_others();
            }
        }
    }

    /// The end of the data that writers hold.
    pub(crate) fn pending_end(&self) -> u64 {
        match self.writers() {
            0 => 0,
            _ => self
                .others(None)
                .iter()
                .map(|w| w.pending_end())
                .max()
                .unwrap_or(0),
        }
    }

    pub(crate) fn written(&self) {
        self.generation.fetch_add(1, Ordering::Release);
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }
}

fn all_writers() -> Vec<Arc<Shared>> {
    let inodes: Vec<_> = lock(&table().inodes)
        .values()
        .filter_map(Weak::upgrade)
        .collect();
    inodes.iter().flat_map(|inode| inode.others(None)).collect()
}

/// Starts the keeper thread if need be. `false` if there can be none: then nothing may linger.
pub(crate) fn start_keeper() -> bool {
    let table = table();
    let mut keeper = lock(&table.keeper);
    if keeper.is_none() {
        let dismissed = Arc::<AtomicBool>::default();
        let seen = dismissed.clone();
        *keeper = crate::sys::spawn("pdio-keeper", 128 << 10, move || keep(&seen))
            .ok()
            .map(|thread| Keeper { thread, dismissed });
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
    let mut entry = lock(&table().keeper);
    let keeper = entry.take();
    if let Some(keeper) = &keeper {
        keeper.dismissed.store(true, Ordering::Release);
    }
    drop(entry);
    if let Some(keeper) = keeper {
        keeper.thread.thread().unpark();
        // A panic there has already been printed.
        let _ = keeper.thread.join();
    }
}

/// Tells the keeper that a stream holds data again.
pub(crate) fn wake_keeper() {
    let table = table();
    if table.keeper_parked.load(Ordering::Relaxed)
        && table.keeper_parked.swap(false, Ordering::AcqRel)
    {
        if let Some(keeper) = &*lock(&table.keeper) {
            return keeper.thread.thread().unpark();
        }
        start_keeper();
    }
}

fn keep(dismissed: &AtomicBool) {
    let _thread = OwnThread::begin();
    let table = table();
    while !dismissed.load(Ordering::Acquire) {
        let mut next: Option<Duration> = None;
        // One at a time: who ends a stream waits until nobody holds it.
        let writers: Vec<_> = all_writers().iter().map(Arc::downgrade).collect();
        for writer in writers {
            if let Some(linger) = writer.upgrade().and_then(|writer| writer.push_aged()) {
                next = Some(next.map_or(linger, |n| n.min(linger)));
            }
        }
        match next {
            // Data seen twice in a row has aged at least half the linger time and at most all.
            Some(linger) => std::thread::sleep((linger / 2).max(Duration::from_millis(1))),
            None if table.keeper_parked.swap(true, Ordering::AcqRel) => {
                std::thread::park_timeout(KEEPER_IDLE);
                let mut keeper = lock(&table.keeper);
                if dismissed.load(Ordering::Acquire) {
                    return;
                }
                if table.keeper_parked.load(Ordering::Acquire) {
                    // Who wakes a keeper that has gone starts another.
                    *keeper = None;
                    return;
                }
            }
            // Look once more: a stream may have filled up before it could see the flag.
            None => {}
        }
    }
}
