// SPDX-License-Identifier: MIT OR Apache-2.0
//! How requests reach the kernel: io_uring with registered buffers and file, plain io_uring,
//! threads, or the calling thread, whichever the system allows first; and for requests that have
//! to be carried out one after the other, a thread that does just that.
//!
//! An engine serves one stream. It owns the stream's [`Region`], so that the memory outlives every
//! request in flight; dropping the engine waits for them.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use io_uring::{opcode, types, IoUring};

use crate::fork::{self, RingNumber};
use crate::memory::Region;
use crate::options::{Engine as Kind, MAX_DEPTH};

/// Threads of the thread engine: two keep a device busy while a third request is prepared.
const THREADS: usize = 2;
/// The longest request to a ring, in bytes: the kernel cuts those of 2 GiB and more, and its count ends at 4 GiB.
const LONGEST: usize = 1 << 30;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Read,
    Write,
}

/// One request. The memory must stay valid and untouched until its completion is reaped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub id: u64,
    pub memory: *mut u8,
    pub len: usize,
    pub offset: u64,
}

// SAFETY: the pointer is only dereferenced by the kernel or the engine's threads between submit
// and reap, while the submitter keeps its hands off the memory (see `Engine::submit`).
unsafe impl Send for Request {}

#[derive(Debug)]
pub(crate) struct Completion {
    pub id: u64,
    pub result: io::Result<usize>,
}

/// Requests in flight on one descriptor in one direction.
#[derive(Debug)]
pub(crate) struct Engine {
    back: Option<Back>,
    in_flight: usize,
    chain: Option<Pool>,
    chained: usize,
    wanted: Kind,
    direction: Direction,
    file: Arc<File>,
    ring: RingNumber,
    region: Option<Region>,
}

enum Back {
    Uring { ring: Box<IoUring>, fixed: bool },
    Threads(Pool),
    Inline(VecDeque<Completion>),
}

impl std::fmt::Debug for Back {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Back::Uring { fixed: true, .. } => "UringFixed",
            Back::Uring { .. } => "Uring",
            Back::Threads(_) => "Threads",
            Back::Inline(_) => "Inline",
        })
    }
}

impl Engine {
    /// An engine for `file`; what it needs is set up when it is needed.
    pub(crate) fn new(
        wanted: Kind,
        direction: Direction,
        file: Arc<File>,
        ring: RingNumber,
        region: Region,
    ) -> Engine {
        Engine {
            back: None,
            in_flight: 0,
            chain: None,
            chained: 0,
            wanted,
            direction,
            file,
            ring,
            region: Some(region),
        }
    }

    /// Sets up the first back end of the ladder, from the one wanted down, that works here.
    fn back(&mut self) -> &mut Back {
        let (wanted, direction) = (self.wanted, self.direction);
        let (file, region, number) = (&self.file, self.region.as_ref(), &self.ring);
        self.back.get_or_insert_with(|| {
            let no_fork = match wanted {
                Kind::Threads | Kind::Inline => None,
                _ => fork::no_fork(),
            };
            let fixed = region.filter(|_| wanted != Kind::Uring);
            let back = no_fork.as_ref().and_then(|_| uring(file, fixed));
            if let Some(Back::Uring { ring, .. }) = &back {
                number.set(Some(ring.as_raw_fd()));
            }
            drop(no_fork);
            let pool = || Pool::new(file, direction, THREADS).map(Back::Threads);
            back.or_else(|| (wanted != Kind::Inline).then(pool)?)
                .unwrap_or_else(|| Back::Inline(VecDeque::new()))
        })
    }

    /// The back end in use; `Auto` before there is one.
    pub(crate) fn kind(&self) -> Kind {
        match (&self.back, &self.chain) {
            (Some(Back::Uring { fixed: true, .. }), _) => Kind::UringFixed,
            (Some(Back::Uring { .. }), _) => Kind::Uring,
            (Some(Back::Threads(_)), _) | (None, Some(_)) => Kind::Threads,
            (Some(Back::Inline(_)), _) => Kind::Inline,
            (None, None) => Kind::Auto,
        }
    }

    /// The back end that requests get, set up now.
    pub(crate) fn probe(&mut self) -> Kind {
        self.back();
        self.kind()
    }

    /// Returns true if there is [`submit_chained`](Engine::submit_chained).
    pub(crate) fn can_chain(&mut self) -> bool {
        if self.chain.is_none() && matches!(self.wanted, Kind::Auto | Kind::Threads) {
            self.chain = Pool::new(&self.file, self.direction, 1);
        }
        self.chain.is_some()
    }

    /// As [`submit`](Engine::submit), for a request to begin when those before it have ended, and
    /// without a way through this thread in between. If one of them fails or comes up short, those
    /// after it end with `ECANCELED`, until nothing is in flight.
    ///
    /// # Safety
    /// As for `submit`.
    pub(crate) unsafe fn submit_chained(&mut self, request: Request) -> io::Result<()> {
        if !self.can_chain() {
            // SAFETY: passed on from the caller.
            return unsafe { self.submit(request) };
        }
        if let Some(chain) = &self.chain {
            chain.submit(request, self.chained == 0);
            self.chained += 1;
        }
        Ok(())
    }

    pub(crate) fn region(&self) -> &Region {
        // The region leaves in `drain_quietly` and `drop` only, and nothing is asked after either.
        self.region.as_ref().expect("the engine owns a region")
    }

    /// Starts a request.
    ///
    /// # Safety
    /// The memory must be valid for `len` bytes, and neither written (nor, for reads, looked at)
    /// until the completion was reaped or the engine is gone.
    pub(crate) unsafe fn submit(&mut self, request: Request) -> io::Result<()> {
        self.back();
        match &mut self.back {
            Some(Back::Uring { ring, fixed }) => {
                let region = self.region.as_ref();
                let fixed_buffer =
                    *fixed && region.is_some_and(|r| r.contains(request.memory, request.len));
                let fd = self.file.as_raw_fd();
                let entry = entry(request, self.direction, fd, *fixed, fixed_buffer);
                // SAFETY: the caller keeps memory and descriptor valid until completion.
                while unsafe { ring.submission().push(&entry) }.is_err() {
                    enter(ring, 0)?;
                }
                self.in_flight += 1;
                if enter(ring, 0).is_ok() || self.in_flight > 1 || ring.submission().is_empty() {
                    // In the ring it is under way: what the kernel has not taken yet it gets from the next call.
                    return Ok(());
                }
                // The kernel refuses this thread, and has nothing: with the ring, what is in it is forgotten.
                self.in_flight = 0;
                self.ring.set(None);
                self.back = Some(Back::Inline(VecDeque::new()));
                // SAFETY: passed on from the caller.
                unsafe { self.submit(request) }
            }
            Some(Back::Threads(pool)) => {
                self.in_flight += 1;
                pool.submit(request, true);
                Ok(())
            }
            Some(Back::Inline(done)) => {
                self.in_flight += 1;
                // SAFETY: passed on from the caller.
                let completion = unsafe { run(self.file.as_raw_fd(), self.direction, request) };
                done.push_back(completion);
                Ok(())
            }
            None => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Takes one completion. With `wait`, blocks until there is one, unless nothing is in flight.
    pub(crate) fn reap(&mut self, wait: bool) -> io::Result<Option<Completion>> {
        if let Some(chain) = self.chain.as_ref().filter(|_| self.chained > 0) {
            let completion = chain.reap(wait && self.in_flight == 0);
            if completion.is_some() {
                self.chained -= 1;
                return Ok(completion);
            }
        }
        if self.in_flight == 0 {
            return Ok(None);
        }
        let completion = match &mut self.back {
            Some(Back::Uring { ring, .. }) => loop {
                if let Some(entry) = ring.completion().next() {
                    let result = match entry.result() {
                        n if n >= 0 => Ok(n as usize),
                        n => Err(io::Error::from_raw_os_error(-n)),
                    };
                    break Some(Completion {
                        id: entry.user_data(),
                        result,
                    });
                }
                if !wait {
                    break None;
                }
                enter(ring, 1)?;
            },
            Some(Back::Threads(pool)) => pool.reap(wait),
            Some(Back::Inline(done)) => done.pop_front(),
            None => None,
        };
        if completion.is_some() {
            self.in_flight -= 1;
        }
        Ok(completion)
    }

    fn drain_quietly(&mut self) {
        while self.in_flight + self.chained > 0 {
            if self.reap(true).is_err() {
                // The ring refuses to be waited on while the kernel may still use the memory:
                // leaking it is the only safe way out.
                std::mem::forget(self.region.take());
                return;
            }
        }
    }

    /// Has the kernel let the file go that requests to a ring keep in use. What has arrived stays to be reaped; there
    /// may be no new requests. Allocates nothing.
    pub(crate) fn rescue(&mut self) {
        if let Some(Back::Uring { ring, fixed }) = &self.back {
            let wait = || ring.submit_and_wait(self.in_flight);
            while wait().is_err_and(|error| error.raw_os_error() == Some(libc::EINTR)) {}
            if *fixed {
                // Failing, it is let go later, with the ring.
                let _ = ring.submitter().unregister_files();
            }
        }
    }

    /// For the child after a fork, whose ring and threads are the parent's: forgets all but the file.
    pub(crate) fn abandon(self) -> Arc<File> {
        let file = self.file.clone();
        std::mem::forget(self);
        file
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.drain_quietly();
        self.ring.set(None);
        if let Some(Back::Uring { ring, fixed: true }) = &self.back {
            // The kernel takes a ring apart some time after it was closed. A file that is deleted
            // in between would keep its space, so it is let go now; failing, it is later.
            let _ = ring.submitter().unregister_files();
            let _ = ring.submitter().unregister_buffers();
        }
        if let Some(region) = self.region.take() {
            region.give_back();
        }
    }
}

fn uring(file: &File, fixed: Option<&Region>) -> Option<Back> {
    let ring = IoUring::builder()
        .setup_clamp()
        // What a child has mapped keeps the ring, and with it the file, in use.
        .dontfork()
        .build(MAX_DEPTH as u32)
        .ok()?;
    let mut probe = io_uring::Probe::new();
    let known = ring.submitter().register_probe(&mut probe).is_ok()
        && probe.is_supported(opcode::Read::CODE)
        && probe.is_supported(opcode::WriteFixed::CODE);
    if !known {
        return None;
    }
    let fixed = fixed.is_some_and(|region| {
        let buffer = libc::iovec {
            iov_base: region.at(0).cast(),
            iov_len: region.len(),
        };
        // SAFETY: the kernel keeps the pages until they are unregistered or the ring is gone. The region is
        // given back after all requests have ended (`Engine::drop`), and nothing is sent after that.
        let buffers = unsafe { ring.submitter().register_buffers(&[buffer]) };
        buffers.is_ok() && ring.submitter().register_files(&[file.as_raw_fd()]).is_ok()
    });
    Some(Back::Uring {
        ring: Box::new(ring),
        fixed,
    })
}

/// Lets the kernel's workers of this thread's rings end, which otherwise stay as long as the thread:
/// one that has been idle for five seconds and may run on no processor does.
pub(crate) fn end_workers() {
    if let Ok(ring) = IoUring::new(1) {
        // SAFETY: a set of numbers may be all zero: no processor.
        let nowhere: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        // Without it, they stay.
        let _ = ring.submitter().register_iowq_aff(&nowhere);
    }
}

fn enter(ring: &IoUring, want: usize) -> io::Result<()> {
    loop {
        match ring.submit_and_wait(want) {
            Ok(_) => return Ok(()),
            Err(error) => match error.raw_os_error() {
                Some(libc::EINTR) => {}
                // Completions have to be taken before more can be submitted; with `want` zero
                // the entries stay queued for the next call.
                Some(libc::EBUSY | libc::EAGAIN) if want == 0 => return Ok(()),
                Some(libc::EBUSY | libc::EAGAIN) => std::thread::yield_now(),
                _ => return Err(error),
            },
        }
    }
}

fn entry(
    request: Request,
    direction: Direction,
    fd: RawFd,
    fixed_file: bool,
    fixed_buffer: bool,
) -> io_uring::squeue::Entry {
    // What is longer comes up short, and goes on in whole blocks.
    let len = request.len.min(LONGEST) as u32;
    macro_rules! build {
        ($op:ident $(, $buffer:expr)?) => {
            if fixed_file {
                opcode::$op::new(types::Fixed(0), request.memory, len $(, $buffer)?)
                    .offset(request.offset)
                    .build()
            } else {
                opcode::$op::new(types::Fd(fd), request.memory, len $(, $buffer)?)
                    .offset(request.offset)
                    .build()
            }
        };
    }
    let entry = match (direction, fixed_buffer) {
        (Direction::Read, true) => build!(ReadFixed, 0),
        (Direction::Read, false) => build!(Read),
        (Direction::Write, true) => build!(WriteFixed, 0),
        (Direction::Write, false) => build!(Write),
    };
    entry.user_data(request.id)
}

/// Carries out a request in the calling thread.
///
/// # Safety
/// As for [`Engine::submit`].
unsafe fn run(fd: RawFd, direction: Direction, request: Request) -> Completion {
    let Request {
        id,
        memory,
        len,
        offset,
    } = request;
    // SAFETY: passed on from the caller.
    let result = unsafe {
        match direction {
            Direction::Read => crate::sys::pread_raw(fd, memory, len, offset, 0),
            Direction::Write => crate::sys::pwrite_raw(fd, memory, len, offset, 0),
        }
    };
    Completion { id, result }
}

/// The thread engine; with one thread, a chain.
#[derive(Debug)]
struct Pool {
    shared: Arc<PoolShared>,
    threads: Vec<crate::sys::Thread>,
}

#[derive(Debug)]
struct PoolShared {
    state: Mutex<PoolState>,
    work: Condvar,
    done: Condvar,
}

#[derive(Debug, Default)]
struct PoolState {
    queue: VecDeque<Request>,
    done: VecDeque<Completion>,
    /// Of a chain: a request has not been carried out in full, so none after it is.
    broken: bool,
    stop: bool,
}

impl Pool {
    fn new(file: &Arc<File>, direction: Direction, threads: usize) -> Option<Pool> {
        let shared = Arc::new(PoolShared {
            state: Mutex::default(),
            work: Condvar::new(),
            done: Condvar::new(),
        });
        let mut pool = Pool {
            shared: shared.clone(),
            threads: Vec::new(),
        };
        for _ in 0..threads {
            let shared = shared.clone();
            let file = file.clone();
            let serve = move || shared.serve(&file, direction, threads == 1);
            pool.threads
                .extend(crate::sys::spawn(c"pdio-io", 64 << 10, serve));
        }
        (!pool.threads.is_empty()).then_some(pool)
    }

    /// `afresh`: whatever went wrong before this request has been dealt with.
    fn submit(&self, request: Request, afresh: bool) {
        let mut state = self.shared.lock();
        state.queue.push_back(request);
        state.broken &= !afresh;
        drop(state);
        self.shared.work.notify_one();
    }

    fn reap(&self, wait: bool) -> Option<Completion> {
        let mut state = self.shared.lock();
        while wait && state.done.is_empty() {
            state = self
                .shared
                .done
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state.done.pop_front()
    }
}

impl PoolShared {
    fn lock(&self) -> std::sync::MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, file: &File, direction: Direction, chain: bool) {
        let mut state = self.lock();
        loop {
            if let Some(request) = state.queue.pop_front() {
                let completion = if state.broken {
                    Completion {
                        id: request.id,
                        result: Err(io::Error::from_raw_os_error(libc::ECANCELED)),
                    }
                } else {
                    drop(state);
                    #[cfg(test)]
                    drop(tests::device());
                    // SAFETY: the submitter keeps the memory until the completion is reaped.
                    let completion = unsafe { run(file.as_raw_fd(), direction, request) };
                    state = self.lock();
                    state.broken = chain && !matches!(completion.result, Ok(n) if n == request.len);
                    completion
                };
                state.done.push_back(completion);
                self.done.notify_one();
            } else if state.stop {
                return;
            } else {
                state = self
                    .work
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.work.notify_all();
        for thread in self.threads.drain(..) {
            thread.join();
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::common::{child, job};

    /// Threads that carry out requests take it for each: whoever holds it stands for a slow device.
    pub(crate) fn device() -> std::sync::MutexGuard<'static, ()> {
        static DEVICE: Mutex<()> = Mutex::new(());
        DEVICE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if this process has a ring open.
    fn has_ring() -> bool {
        let numbers = std::fs::read_dir("/proc/self/fd").unwrap();
        numbers
            .filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok())
            .any(|link| link.to_str() == Some("anon_inode:[io_uring]"))
    }

    #[test]
    fn a_child_finds_every_ring_by_its_number() {
        if job().is_none() {
            let test = "engine::tests::a_child_finds_every_ring_by_its_number";
            assert!(child(test, "fork").status().unwrap().success());
            return;
        }
        // It has the handlers of a fork registered.
        let _inode = crate::files::Inode::of(0, 0);
        let file = Arc::new(tempfile::tempfile().unwrap());
        let number = RingNumber::default();
        const ROUNDS: u32 = 200;
        let step = std::sync::Barrier::new(2);
        let mut lost = 0;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    let region = Region::take(8 << 20, false).unwrap();
                    let (wanted, direction) = (Kind::UringFixed, Direction::Read);
                    let (file, number) = (file.clone(), number.clone());
                    let mut engine = Engine::new(wanted, direction, file, number, region);
                    step.wait();
                    engine.probe();
                    step.wait();
                }
            });
            for _ in 0..ROUNDS {
                step.wait();
                // SAFETY: the child only looks, and leaves.
                let pid = unsafe { libc::fork() };
                if pid == 0 {
                    number.close_in_child();
                    // SAFETY: ends the child without running what belongs to the parent.
                    unsafe { libc::_exit(i32::from(has_ring())) };
                }
                let mut status = 0;
                // SAFETY: waits for our own child.
                unsafe { libc::waitpid(pid, &mut status, 0) };
                lost += i32::from(status != 0);
                step.wait();
            }
        });
        assert_eq!(lost, 0);
    }

    #[test]
    fn in_a_chain_nothing_is_written_after_a_failure() {
        let file = Arc::new(tempfile::tempfile().unwrap());
        let region = Region::take(crate::memory::MIN_REGION, false).unwrap();
        let good = region.at(0);
        let mut engine = Engine::new(
            Kind::Auto,
            Direction::Write,
            file.clone(),
            RingNumber::default(),
            region,
        );
        assert!(engine.can_chain());
        let submit = |engine: &mut Engine, id: u64, memory| {
            let (len, offset) = (4096, id * 4096);
            let request = Request {
                id,
                memory,
                len,
                offset,
            };
            // SAFETY: the memory is the region's, or none at all, which the kernel refuses.
            unsafe { engine.submit_chained(request) }.unwrap();
        };
        let results = |engine: &mut Engine| -> Vec<Result<usize, Option<i32>>> {
            std::iter::from_fn(|| engine.reap(true).unwrap())
                .map(|c| c.result.map_err(|e| e.raw_os_error()))
                .collect()
        };
        let nowhere = std::ptr::null_mut();
        for (id, memory) in [good, nowhere, good, good].into_iter().enumerate() {
            submit(&mut engine, id as u64, memory);
        }
        let canceled = Err(Some(libc::ECANCELED));
        let expected = [Ok(4096), Err(Some(libc::EFAULT)), canceled, canceled];
        assert_eq!(results(&mut engine), expected);
        assert_eq!(file.metadata().unwrap().len(), 4096);
        submit(&mut engine, 1, good);
        submit(&mut engine, 2, good);
        assert_eq!(results(&mut engine), [Ok(4096), Ok(4096)]);
        assert_eq!(file.metadata().unwrap().len(), 3 * 4096);
    }

    #[test]
    fn a_request_longer_than_the_kernel_counts_is_carried_out_in_part() {
        const LEN: usize = 1 << 32;
        // SAFETY: a fresh mapping, which is never touched; the result is checked.
        let memory = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            libc::mmap(std::ptr::null_mut(), LEN, libc::PROT_READ, flags, -1, 0)
        };
        assert_ne!(memory, libc::MAP_FAILED);
        let file = Arc::new(File::options().write(true).open("/dev/null").unwrap());
        for wanted in [Kind::UringFixed, Kind::Uring, Kind::Threads, Kind::Inline] {
            let region = Region::take(crate::memory::MIN_REGION, false).unwrap();
            let (number, direction) = (RingNumber::default(), Direction::Write);
            let mut engine = Engine::new(wanted, direction, file.clone(), number, region);
            let request = Request {
                id: 1,
                memory: memory.cast(),
                len: LEN,
                offset: 0,
            };
            // SAFETY: the memory stays as it is for ever.
            unsafe { engine.submit(request) }.unwrap();
            let done = engine.reap(true).unwrap().unwrap().result.unwrap();
            assert!(done >= 1 << 30, "{wanted:?}: {done}");
            assert!(done.is_multiple_of(4096), "{wanted:?}: {done}");
        }
        // SAFETY: mapped above, and nobody uses it any more.
        unsafe { libc::munmap(memory, LEN) };
    }
}
