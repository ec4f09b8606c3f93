// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the streams of one process know of each other: the table of open files.
//!
//! Lock order: table, then inode, then stream; none is held while taking an earlier one.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use crate::fork::{self, PerProcess};
use crate::thread::OwnThread;

/// A stream of whose data some may wait in memory.
pub(crate) trait Waiting: Debug + Send + Sync {
    /// Returns true if bytes of `[from, to)` are not with the kernel yet.
    fn holds(&self, from: u64, to: u64) -> bool;
    /// The end of the data held, or zero.
    fn pending_end(&self) -> u64;
    /// Hands everything to the kernel on behalf of another stream or a fork. An error stays for the
    /// stream's own next call; what is returned is a copy.
    fn push_for_others(&self) -> io::Result<()>;
    /// Sends what has been here for half the stream's linger time and does not wait for the device, so that
    /// neither the stream's caller nor other streams do. Returns in what time to look again while it holds
    /// anything.
    fn push_aged(&self) -> Option<Duration>;
}

/// Returns true if both are the same stream, whatever is known of its type.
fn is(one: *const dyn Waiting, other: Option<&dyn Waiting>) -> bool {
    other.is_some_and(|other| std::ptr::addr_eq(one, other))
}

extern "C" fn before_fork() {
    // The child must not write what the parent still holds, so nobody holds anything. The thread
    // is the program's, but its calls in here are this crate's.
    let _own = OwnThread::begin();
    for_each_writer(|writer| {
        // Its own next call, in the parent, returns an error.
        let _ = writer.push_for_others();
    });
    fork::begins();
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

type Inodes = Mutex<BTreeMap<(u64, u64), Weak<Inode>>>;

fn inodes() -> &'static Inodes {
    static INODES: PerProcess<Inodes> = PerProcess::new();
    // Not a `Once`, which a child would wait for if it was forked meanwhile. Two threads may register the handlers: once more
    // does no harm.
    static REGISTERED: AtomicBool = AtomicBool::new(false);
    if !REGISTERED.load(Ordering::Acquire) {
        // SAFETY: the handlers are functions of this program and never unloaded before it.
        unsafe { libc::pthread_atfork(Some(before_fork), Some(fork::is_over), Some(fork::begun)) };
        REGISTERED.store(true, Ordering::Release);
    }
    INODES.get()
}

/// What the streams on one file share.
#[derive(Debug, Default)]
pub(crate) struct Inode {
    writers: Mutex<Vec<Weak<dyn Waiting>>>,
    writer_count: AtomicUsize,
    /// Rises after the kernel was given anything: readers that have read ahead compare it. Not when a
    /// writer takes data: a reader may read ahead between that and the kernel's having it.
    generation: AtomicU64,
    /// Blocks are reserved up to here, in bytes; what lies beyond the end of the file is the last
    /// writer's to release.
    pub reserved_to: AtomicU64,
}

impl Inode {
    /// The entry of a file, made if there is none.
    pub(crate) fn of(dev: u64, ino: u64) -> Arc<Inode> {
        let mut inodes = lock(inodes());
        if let Some(inode) = inodes.get(&(dev, ino)).and_then(Weak::upgrade) {
            return inode;
        }
        inodes.retain(|_, inode| inode.strong_count() > 0);
        let inode = Arc::<Inode>::default();
        inodes.insert((dev, ino), Arc::downgrade(&inode));
        inode
    }

    pub(crate) fn add(&self, writer: Weak<dyn Waiting>) {
        let mut writers = lock(&self.writers);
        writers.retain(|w| w.strong_count() > 0);
        writers.push(writer);
        self.writer_count.store(writers.len(), Ordering::Release);
    }

    /// Takes a writer off the list. `last` runs if it was the last one, before another can come.
    pub(crate) fn remove(
        &self,
        writer: &dyn Waiting,
        last: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let mut writers = lock(&self.writers);
        let before = writers.len();
        writers.retain(|w| w.strong_count() > 0 && !is(w.as_ptr(), Some(writer)));
        self.writer_count.store(writers.len(), Ordering::Release);
        match writers.is_empty() && before > 0 {
            true => last(),
            false => Ok(()),
        }
    }

    /// The writers of this file but `me`.
    fn others(&self, me: Option<&dyn Waiting>) -> Vec<Arc<dyn Waiting>> {
        let all = lock(&self.writers);
        all.iter()
            .filter_map(Weak::upgrade)
            .filter(|w| !is(Arc::as_ptr(w), me))
            .collect()
    }

    pub(crate) fn writers(&self) -> usize {
        self.writer_count.load(Ordering::Acquire)
    }

    /// Makes other writers hand over what they hold of `[from, to)`, so that what the caller does
    /// next happens after it. Fails if one cannot. It tries again later: what the caller wrote now would be
    /// replaced by older data then.
    pub(crate) fn write_overlapping(
        &self,
        me: Option<&dyn Waiting>,
        from: u64,
        to: u64,
    ) -> io::Result<()> {
        let alone = usize::from(me.is_some());
        if self.writers() <= alone {
            return Ok(());
        }
        let mut result = Ok(());
        for other in self.others(me).iter().filter(|w| w.holds(from, to)) {
            if let Err(error) = other.push_for_others() {
                // What it holds still may be other data.
                if other.holds(from, to) {
                    result = Err(error);
                }
            }
        }
        result
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

/// Does something with each writer of this process. Holds one at a time: the thread that ends a stream waits until
/// nobody holds it, and may have another locked meanwhile.
pub(crate) fn for_each_writer(mut action: impl FnMut(&dyn Waiting)) {
    let inodes: Vec<_> = lock(inodes()).values().filter_map(Weak::upgrade).collect();
    let writers = inodes.iter().map(|inode| lock(&inode.writers).clone());
    for writer in writers.collect::<Vec<_>>().concat() {
        if let Some(writer) = writer.upgrade() {
            action(&*writer);
        }
    }
}
