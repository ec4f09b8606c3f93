// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a process notices that it is a forked child, and what it then begins anew.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The last fork generation, which a child inherits.
static GENERATION: AtomicU64 = AtomicU64::new(1);

/// The kernel wipes the mark in every child, also in those of a bare `clone`.
static MARK: OnceLock<&AtomicU64> = OnceLock::new();

/// Makes sure that this process's children will notice. Comes before all else that a stream needs.
///
/// # Errors
/// If there is no memory for that, or the kernel is older than 4.14: then streams could not be kept apart from those
/// of a child.
pub(crate) fn watch() -> io::Result<&'static AtomicU64> {
    if let Some(mark) = MARK.get() {
        return Ok(mark);
    }
    let mark = crate::sys::wiped_in_children()?;
    mark.store(1, Ordering::Relaxed);
    // That of another thread, if it was as early.
    Ok(MARK.get_or_init(|| mark))
}

/// Changes in a child after `fork`. Streams remember theirs: what they hold then belongs to the
/// parent.
///
/// # Panics
/// Where [`watch`] has never succeeded.
pub(crate) fn generation() -> u64 {
    let mark = watch().expect("pdio needs a page of memory and Linux 4.14");
    match mark.load(Ordering::Relaxed) {
        0 => {
            let new = GENERATION.load(Ordering::Relaxed) + 1;
            match mark.compare_exchange(0, new, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => {
                    GENERATION.store(new, Ordering::Relaxed);
                    new
                }
                Err(other) => other,
            }
        }
        generation => generation,
    }
}

/// In a child: makes a file that the parent's streams share this process's own. What is never dropped here,
/// because it is locked, or held by a thread that the child does not have, keeps it open no longer.
pub(crate) fn adopt(file: &Arc<File>) -> Arc<File> {
    // Counted for ever, so that nobody else closes the descriptor.
    std::mem::forget(file.clone());
    // SAFETY: it is open, and from now on the new owner alone closes it.
    Arc::new(unsafe { File::from_raw_fd(file.as_raw_fd()) })
}

/// As [`adopt`], of a descriptor that the program does not know of: it may have closed that by its number, and
/// opened another file under the number. Returns nothing then, and that file stays open, also when the caller
/// drops the last reference that it has.
pub(crate) fn adopt_unknown(file: &Arc<File>, of: &File) -> Option<Arc<File>> {
    std::mem::forget(file.clone());
    let which = |file: &File| file.metadata().ok().map(|m| (m.dev(), m.ino()));
    (which(file).is_some() && which(file) == which(of)).then(|| adopt(file))
}

/// The descriptor of a stream's ring, where a child finds it without the stream's lock.
#[derive(Clone, Debug)]
pub(crate) struct RingNumber(Arc<AtomicI32>);

impl Default for RingNumber {
    fn default() -> RingNumber {
        RingNumber(Arc::new(AtomicI32::new(-1)))
    }
}

impl RingNumber {
    /// `None` before the ring is closed.
    pub(crate) fn set(&self, ring: Option<RawFd>) {
        self.0.store(ring.unwrap_or(-1), Ordering::Release);
    }

    #[cfg(test)]
    pub(crate) fn get(&self) -> RawFd {
        self.0.load(Ordering::Acquire)
    }

    /// In a child: the ring is the parent's, and would keep its file in use.
    pub(crate) fn close_in_child(&self) {
        let ring = self.0.swap(-1, Ordering::AcqRel);
        let is_ring = |link: PathBuf| link.as_os_str() == "anon_inode:[io_uring]";
        // As with `adopt_unknown`.
        if ring >= 0 && std::fs::read_link(format!("/proc/self/fd/{ring}")).is_ok_and(is_ring) {
            // SAFETY: the parent's ring is never used or dropped in this process.
            unsafe { libc::close(ring) };
        }
    }
}

/// Rings that are being made and are not noted yet, and, in the upper half, forks under way: a child closes what
/// the numbers say, and nothing else.
static MAKING: AtomicU64 = AtomicU64::new(0);
const FORK: u64 = 1 << 32;

/// No child begins as long as this lives.
pub(crate) struct NoFork(());

/// Waits until nobody forks. Returns nothing if that takes long: the fork may be waiting for a lock that this
/// thread has.
pub(crate) fn no_fork() -> Option<NoFork> {
    /// A tenth of a second.
    const TRIES: u32 = 2000;
    for _ in 0..TRIES {
        if MAKING.fetch_add(1, Ordering::SeqCst) < FORK {
            return Some(NoFork(()));
        }
        MAKING.fetch_sub(1, Ordering::SeqCst);
        std::thread::sleep(Duration::from_micros(50));
    }
    None
}

impl Drop for NoFork {
    fn drop(&mut self) {
        MAKING.fetch_sub(1, Ordering::SeqCst);
    }
}

/// This thread is about to fork.
pub(crate) fn begins() {
    MAKING.fetch_add(FORK, Ordering::SeqCst);
    // Whoever makes a ring waits for nobody.
    while MAKING.load(Ordering::SeqCst) as u32 > 0 {
        std::thread::sleep(Duration::from_micros(50));
    }
}

/// In the parent, once this thread has forked.
pub(crate) extern "C" fn is_over() {
    MAKING.fetch_sub(FORK, Ordering::SeqCst);
}

/// In the child of a fork.
pub(crate) extern "C" fn begun() {
    MAKING.store(0, Ordering::SeqCst);
}

/// A value of each process's own. A forked child begins with a new one: the parent's may be locked by
/// a thread that the child does not have.
pub(crate) struct PerProcess<T: 'static> {
    current: AtomicPtr<(u64, T)>,
}

impl<T: Default + Sync> PerProcess<T> {
    pub(crate) const fn new() -> PerProcess<T> {
        PerProcess {
            current: AtomicPtr::new(null_mut()),
        }
    }

    pub(crate) fn get(&self) -> &'static T {
        loop {
            let current = self.current.load(Ordering::Acquire);
            // SAFETY: values are leaked, so a pointer once stored stays valid.
            if let Some((generation, value)) = unsafe { current.as_ref() } {
                if *generation == self::generation() {
                    return value;
                }
            }
            let new = Box::into_raw(Box::new((generation(), T::default())));
            if self
                .current
                .compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire)
                .is_err()
            {
                // SAFETY: never published, so still ours alone.
                drop(unsafe { Box::from_raw(new) });
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::common::{child, job, passed, soon};
    use crate::{cpu, memory};
    use std::sync::{Mutex, MutexGuard, PoisonError};

    static QUESTIONS: AtomicU64 = AtomicU64::new(0);

    /// Questions to the system that are asked once take it: whoever holds it stands for a slow system.
    pub(crate) fn system() -> MutexGuard<'static, ()> {
        static SYSTEM: Mutex<()> = Mutex::new(());
        QUESTIONS.fetch_add(1, Ordering::SeqCst);
        SYSTEM.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[test]
    fn a_child_waits_for_no_question_that_a_thread_of_its_parent_asked() {
        if job().is_none() {
            let test =
                "fork::tests::a_child_waits_for_no_question_that_a_thread_of_its_parent_asked";
            return passed(&mut child(test, "fork"));
        }
        let limit = || memory::global_limit() > 0;
        let processor = || cpu::of_system().is_some();
        for ask in [limit, processor] as [fn() -> bool; 2] {
            let slow = system();
            let before = QUESTIONS.load(Ordering::SeqCst);
            let asks = std::thread::spawn(ask);
            soon("asks", &|| QUESTIONS.load(Ordering::SeqCst) > before);
            // SAFETY: the child only uses what the crate promises to work after a fork, and leaves.
            let pid = unsafe { libc::fork() };
            drop(slow);
            if pid == 0 {
                // SAFETY: no memory is involved.
                unsafe { libc::alarm(60) };
                let asked = ask();
                // SAFETY: ends the child without running what belongs to the parent.
                unsafe { libc::_exit(i32::from(!asked)) };
            }
            let mut status = 0;
            // SAFETY: waits for our own child.
            assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
            assert_eq!(status, 0);
            assert!(asks.join().unwrap());
        }
    }
}
