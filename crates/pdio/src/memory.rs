// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory of streams, and the bound on its sum.
//!
//! A private page that the kernel has pinned for I/O and that a `fork` then marks copy-on-write is
//! a classic way to lose data. So a child gets these mappings empty (`MADV_WIPEONFORK`), and the
//! parent's pages stay as they are. Not shared mappings, which would do as well: those get huge
//! pages on few systems only.

use std::cell::Cell;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::Path;
use std::ptr::{null, NonNull};
use std::sync::atomic::{compiler_fence, AtomicI32, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

use crate::fork::{self, PerProcess};
use crate::sys;

/// Minimum memory with which a stream stages data itself.
pub(crate) const MIN_REGION: usize = 512 << 10;
/// Idle regions kept for the next stream: their pages are allocated, zeroing 8 MiB takes
/// milliseconds.
const IDLE_REGIONS: usize = 2;
/// The size of a huge page on most systems, and the alignment asked for; only speed depends on it.
const HUGE_PAGE: usize = 2 << 20;

/// Bytes of memory that streams have.
static RESERVED: PerProcess<AtomicU64> = PerProcess::new();
/// With the fork generation they belong to: a child starts afresh.
static IDLE: Mutex<(u64, Vec<Region>)> = Mutex::new((0, Vec::new()));

/// Runs `action` on this process's idle regions, unless another thread uses them.
fn with_idle<T>(action: impl FnOnce(&mut Vec<Region>) -> T) -> Option<T> {
    // Not `lock`: a thread of the parent may have held the lock when this process was forked.
    let mut idle = IDLE.try_lock().ok()?;
    let generation = fork::generation();
    if idle.0 != generation {
        *idle = (generation, Vec::new());
    }
    Some(action(&mut idle.1))
}

/// The bound on the memory of all streams of this process, in bytes: 64 MiB, or 5 % of the memory that
/// was available when the first stream was opened, but not less than a 256th of the machine's; in a control group at most
/// a fifth of what that has left, but 4 MiB if these are a sixteenth of its limit.
pub(crate) fn global_limit() -> u64 {
    static LIMIT: PerProcess<OnceLock<u64>> = PerProcess::new();
    *LIMIT.get().get_or_init(|| limit(&meminfo(), group()))
}

/// Bytes of memory that programs can have without others losing theirs, if the system says so: at most what the control
/// groups of this process (of either version), and those around them, have left.
pub fn available_memory() -> Option<u64> {
    let machine = number(&meminfo(), "MemAvailable:")? << 10;
    Some(group().map_or(machine, |group| machine.min(group.left)))
}

fn meminfo() -> String {
    #[cfg(test)]
    drop(fork::tests::system());
    std::fs::read_to_string("/proc/meminfo").unwrap_or_default()
}

/// The bound by what `/proc/meminfo` says. Where programs want more memory than there is, almost none is
/// available at times. A stream without memory would then take much more of it, for the page cache.
fn limit(meminfo: &str, group: Option<Group>) -> u64 {
    let bytes = |name| Some(number(meminfo, name)? << 10);
    let available = bytes("MemAvailable:").unwrap_or(1 << 30);
    let least = bytes("MemTotal:").unwrap_or(0) / 256;
    let of_group = |group: Group| {
        let least = (8 * MIN_REGION as u64).min(group.most / 16);
        (group.left / 5).max(least)
    };
    let most = group.map_or(u64::MAX, of_group);
    (available / 20).max(least).min(most).min(64 << 20)
}

/// The number behind a word that begins a line.
fn number(text: &str, word: &str) -> Option<u64> {
    let mut lines = text.lines().map(str::split_whitespace);
    let mut line = lines.find_map(|mut line| (line.next() == Some(word)).then_some(line))?;
    line.next()?.parse().ok()
}

/// What control groups let a process have, in bytes: all together, and what is left of it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Group {
    most: u64,
    left: u64,
}

/// What this process's control groups let it have, if one has a limit.
fn group() -> Option<Group> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    group_of(&groups, |path| std::fs::read_to_string(path).ok())
}

/// As above; `groups` is what /proc/self/cgroup says. A group is bound by those it is in, too. What it has in the
/// page cache is no loss.
fn group_of(groups: &str, read: impl Fn(&Path) -> Option<String>) -> Option<Group> {
    let of_line = |line: &str| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        // Above memory.high a group may have memory, but the system slows down who takes it.
        let (mount, limits, used, cached) = match controllers {
            "" => (
                "",
                &["memory.max", "memory.high"][..],
                "memory.current",
                ["inactive_file", "active_file"],
            ),
            _ if controllers.split(',').any(|name| name == "memory") => (
                "memory",
                &["memory.limit_in_bytes"][..],
                "memory.usage_in_bytes",
                ["total_inactive_file", "total_active_file"],
            ),
            _ => return None,
        };
        let of_one = |group: &Path| {
            let at = Path::new("/sys/fs/cgroup").join(mount);
            let at = at.join(group.strip_prefix("/").ok()?);
            let value = |file: &&str| read(&at.join(file))?.trim().parse::<u64>().ok();
            let most = limits.iter().filter_map(value).min()?;
            let about = read(&at.join("memory.stat")).unwrap_or_default();
            let cached = cached.map(|word| number(&about, word).unwrap_or(0));
            let used = value(&used)?.saturating_sub(cached.iter().sum());
            let left = most.saturating_sub(used);
            Some(Group { most, left })
        };
        Path::new(path).ancestors().filter_map(of_one).reduce(least)
    };
    fn least(one: Group, other: Group) -> Group {
        Group {
            most: one.most.min(other.most),
            left: one.left.min(other.left),
        }
    }
    groups.lines().filter_map(of_line).reduce(least)
}

/// A page-aligned mapping.
#[derive(Debug)]
pub(crate) struct Region {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to the region alone; access goes through raw pointers whose users
// keep the byte ranges apart.
unsafe impl Send for Region {}
// SAFETY: as above; the methods only compute addresses.
unsafe impl Sync for Region {}

/// What a stream may have of what is left: a quarter (all of it, if it wants little), as the first streams
/// leave some for those to come. One that takes the place of another may have as much as the first, while
/// both are there.
fn share(len: usize, left: u64, limit: u64, in_turn: bool) -> u64 {
    match in_turn {
        _ if len < 2 * MIN_REGION => left,
        true => left.min(limit / 4),
        false => left / 4,
    }
}

/// Counts `len` bytes as reserved, unless that is more than the stream's share.
fn reserve(len: usize, in_turn: bool) -> bool {
    let reserved = RESERVED.get();
    let mut used = reserved.load(Ordering::Relaxed);
    loop {
        let limit = global_limit();
        let left = limit.saturating_sub(used);
        if len as u64 > share(len, left, limit, in_turn) {
            return false;
        }
        let new = used + len as u64;
        match reserved.compare_exchange_weak(used, new, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return true,
            Err(now) => used = now,
        }
    }
}

impl Region {
    /// Takes up to `want` bytes (a power of two) out of the global bound, with `in_turn` as a stream that takes
    /// the place of another. `None` when not even [`MIN_REGION`] is left or the system has no memory: the
    /// stream then stages nothing.
    pub(crate) fn take(want: usize, in_turn: bool) -> Option<Region> {
        let mut len = want.next_power_of_two();
        if len > want {
            len /= 2;
        }
        while len >= MIN_REGION {
            if reserve(len, in_turn) {
                let idle = with_idle(|idle| {
                    let at = idle.iter().position(|r| r.len == len)?;
                    Some(idle.swap_remove(at))
                });
                match idle.flatten().or_else(|| Region::map(len)) {
                    Some(region) => return Some(region),
                    None => RESERVED.get().fetch_sub(len as u64, Ordering::Relaxed),
                };
            }
            len /= 2;
        }
        None
    }

    /// Gives the memory back to the bound; the mapping may be kept for the next stream.
    pub(crate) fn give_back(self) {
        RESERVED.get().fetch_sub(self.len as u64, Ordering::Relaxed);
        with_idle(|idle| {
            if idle.len() < IDLE_REGIONS {
                idle.push(self);
            }
        });
    }

    /// Memory in huge pages where the system gives them: a device whose requests have few segments
    /// (254 of virtio, 127 of AHCI) then takes one of several MiB whole, and pinning is cheap.
    fn map(len: usize) -> Option<Region> {
        let slack = if len >= HUGE_PAGE { HUGE_PAGE } else { 0 };
        let start = sys::map_wiped(len + slack)?;
        let base = start.next_multiple_of(slack.max(1));
        for (from, to) in [(start, base), (base + len, start + len + slack)] {
            if from < to {
                // SAFETY: the ends of our own mapping, not in use.
                unsafe { libc::munmap(from as *mut libc::c_void, to - from) };
            }
        }
        if slack > 0 {
            // SAFETY: our own mapping. Without huge pages it works as well.
            unsafe { libc::madvise(base as *mut libc::c_void, len, libc::MADV_HUGEPAGE) };
        }
        NonNull::new(base as *mut u8).map(|base| Region { base, len })
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The address of byte `at`, which must be inside the region.
    pub(crate) fn at(&self, at: usize) -> *mut u8 {
        assert!(at <= self.len);
        // SAFETY: just checked to be inside the mapping or one past it.
        unsafe { self.base.as_ptr().add(at) }
    }

    /// Copies `data` to byte `at`.
    ///
    /// # Safety
    /// No I/O in flight may use the range.
    pub(crate) unsafe fn fill(&self, at: usize, data: &[u8]) {
        assert!(at + data.len() <= self.len);
        // SAFETY: inside the mapping, not in use by I/O, and `data` is other memory.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), self.at(at), data.len()) }
    }

    /// The bytes `[at, at + len)`.
    ///
    /// # Safety
    /// No I/O in flight may write to the range while the slice lives.
    pub(crate) unsafe fn bytes(&self, at: usize, len: usize) -> &[u8] {
        assert!(at + len <= self.len);
        // SAFETY: inside the mapping and stable by the caller's word.
        unsafe { std::slice::from_raw_parts(self.at(at), len) }
    }

    pub(crate) fn contains(&self, address: *const u8, len: usize) -> bool {
        let start = self.base.as_ptr() as usize;
        let address = address as usize;
        address >= start && address + len <= start + self.len
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and nobody uses it any more.
        let rc = unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
        debug_assert_eq!(rc, 0, "{}", io::Error::last_os_error());
    }
}

/// Writes `held` of the file from a ring of `len` bytes at `memory`, in which byte `x` of the file lies at
/// `(x - base) % len`, through the page cache. Allocates nothing.
///
/// # Safety
/// The ring is readable, and nobody writes to that part of it meanwhile.
pub(crate) unsafe fn write_ring(
    fd: BorrowedFd<'_>,
    memory: *const u8,
    len: usize,
    base: u64,
    held: Range<u64>,
) -> io::Result<()> {
    let mut from = held.start;
    while from < held.end {
        let at = ((from - base) % len as u64) as usize;
        let part = ((held.end - from) as usize).min(len - at);
        // SAFETY: the bytes are in the ring; the rest is the caller's promise.
        let data = unsafe { std::slice::from_raw_parts(memory.add(at), part) };
        match sys::pwrite(fd, data, from, 0)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            n => from += n as u64,
        }
    }
    Ok(())
}

/// What of a stream the kernel does not have while a caller's bytes are copied into its memory. The copy faults
/// if these bytes have disappeared. The handler of that fault runs in the thread that has the stream
/// locked, so it finds the stream's data here. Each stream has one that lives as long as the stream, because the
/// handler may jump out of the copy.
#[derive(Debug, Default)]
pub(crate) struct Copying {
    fd: AtomicI32,
    memory: AtomicPtr<u8>,
    len: AtomicUsize,
    base: AtomicU64,
    from: AtomicU64,
    to: AtomicU64,
}

thread_local! {
    /// The copy that this thread is making, null if it makes none.
    static COPYING: Cell<*const Copying> = const { Cell::new(null()) };
}

/// A copy under way; it ends when this is dropped.
pub(crate) struct Underway {
    outer: *const Copying,
}

impl Copying {
    /// Before bytes are copied into `region`, of which the kernel does not have `held`.
    pub(crate) fn begin(
        &self,
        fd: BorrowedFd<'_>,
        region: &Region,
        base: u64,
        held: Range<u64>,
    ) -> Underway {
        let relaxed = Ordering::Relaxed;
        self.fd.store(fd.as_raw_fd(), relaxed);
        self.memory.store(region.at(0), relaxed);
        self.len.store(region.len(), relaxed);
        self.base.store(base, relaxed);
        self.from.store(held.start, relaxed);
        self.to.store(held.end, relaxed);
        // Only a handler that interrupts this thread reads these.
        compiler_fence(Ordering::SeqCst);
        let outer = COPYING.replace(self);
        compiler_fence(Ordering::SeqCst);
        Underway { outer }
    }

    /// Returns true if this thread is in a copy of this stream.
    pub(crate) fn is_interrupted(&self) -> bool {
        std::ptr::eq(COPYING.get(), self)
    }

    /// Writes what the kernel did not have when the copy began; a second time, nothing.
    pub(crate) fn rescue(&self) -> io::Result<()> {
        let get = |value: &AtomicU64| value.load(Ordering::Relaxed);
        let held = get(&self.from)..get(&self.to);
        let memory = self.memory.load(Ordering::Relaxed);
        let len = self.len.load(Ordering::Relaxed);
        // SAFETY: the stream is in use, so its file is open and its memory mapped. The copy that was interrupted
        // changes at most bytes that the call is replacing, and this thread makes it.
        unsafe {
            let fd = BorrowedFd::borrow_raw(self.fd.load(Ordering::Relaxed));
            write_ring(fd, memory, len, get(&self.base), held)?;
        }
        self.from.store(get(&self.to), Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for Underway {
    fn drop(&mut self) {
        compiler_fence(Ordering::SeqCst);
        COPYING.set(self.outer);
    }
}

/// For the handler of a fault: if it has interrupted this thread while it copied a caller's bytes to a stream, writes
/// what that stream held before, through the page cache. Allocates nothing. `None` if there was no such copy.
///
/// # Errors
/// Those of `pwrite(2)`.
#[doc(hidden)]
pub fn rescue_interrupted() -> Option<io::Result<()>> {
    // SAFETY: null, or of a stream that this thread has not yet returned from.
    unsafe { COPYING.get().as_ref() }.map(Copying::rescue)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_whose_memory_is_taken_leaves_streams_a_little() {
        let of = |total: u64, available: u64| {
            let meminfo =
                format!("MemTotal: {total} kB\nMemFree: 1 kB\nMemAvailable: {available} kB\n");
            limit(&meminfo, None)
        };
        let gib = 1 << 20;
        assert_eq!(of(gib, gib / 2), (gib << 10) / 40);
        assert_eq!(of(gib, 8 << 10), 4 << 20);
        assert!(of(gib, 0) >= 8 * MIN_REGION as u64);
        assert_eq!(of(16 * gib, 15 * gib), 64 << 20);
        assert_eq!(of(64 * gib, 0), 64 << 20);
        assert_eq!(limit("", None), (1 << 30) / 20);
        // In a small group of a large machine.
        let group = |left| {
            Some(Group {
                most: 64 << 20,
                left,
            })
        };
        let meminfo = "MemTotal: 16777216 kB\nMemAvailable: 16000000 kB\n";
        assert_eq!(limit(meminfo, group(60 << 20)), 12 << 20);
        assert_eq!(limit(meminfo, group(0)), 4 << 20);
    }

    #[test]
    fn a_stream_that_follows_another_gets_as_much() {
        const MIB: usize = 1 << 20;
        let of = |len: usize, left: usize, limit: usize, in_turn| {
            len as u64 <= share(len, left as u64, limit as u64, in_turn)
        };
        for in_turn in [false, true] {
            assert!(of(16 * MIB, 64 * MIB, 64 * MIB, in_turn));
            assert!(!of(16 * MIB, 60 * MIB, 60 * MIB, in_turn));
            assert!(of(MIN_REGION, MIN_REGION, 64 * MIB, in_turn));
            assert_eq!(of(16 * MIB, 48 * MIB, 64 * MIB, in_turn), in_turn);
            assert!(!of(16 * MIB, 15 * MIB, 64 * MIB, in_turn));
        }
    }

    #[test]
    fn a_forked_child_has_its_own_empty_memory() {
        let region = Region::map(4 << 20).unwrap();
        assert_eq!(region.at(0) as usize % HUGE_PAGE, 0);
        // SAFETY: nothing else uses the region; the child only reads and writes it, and leaves.
        unsafe {
            region.fill(3 << 20, b"parent");
            let child = libc::fork();
            if child == 0 {
                let empty = region.bytes(3 << 20, 6) == [0; 6];
                region.fill(3 << 20, b"child!");
                libc::_exit(i32::from(!empty));
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(child, &mut status, 0), child);
            assert_eq!(status, 0);
            assert_eq!(region.bytes(3 << 20, 6), b"parent");
        }
    }

    #[test]
    fn a_child_counts_the_memory_of_its_own_streams() {
        let reserved = || RESERVED.get().load(Ordering::Relaxed);
        let of_parent = Region::take(MIN_REGION, false).unwrap();
        assert!(reserved() >= MIN_REGION as u64);
        // SAFETY: the child only uses what the crate promises to work after a fork, and leaves.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let none = reserved() == 0;
            let own = Region::take(MIN_REGION, false);
            let one = reserved() == MIN_REGION as u64;
            if let Some(region) = own {
                region.give_back();
            }
            // SAFETY: ends the child without running what belongs to the parent.
            unsafe { libc::_exit(i32::from(!none || !one || reserved() != 0)) };
        }
        let mut status = 0;
        // SAFETY: waits for our own child.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0);
        of_parent.give_back();
    }

    #[test]
    fn a_group_has_left_what_the_groups_around_it_have() {
        let files = [
            ("a/b/memory.max", "max\n"),
            ("a/b/memory.high", "900\n"),
            ("a/b/memory.current", "100\n"),
            ("a/memory.max", "700\n"),
            ("a/memory.high", "max\n"),
            ("a/memory.current", "500\n"),
            (
                "a/memory.stat",
                "anon 300\nfile 200\ninactive_file 150\nactive_file 20\n",
            ),
            ("memory/x/memory.limit_in_bytes", "300\n"),
            ("memory/x/memory.usage_in_bytes", "260\n"),
            (
                "memory/x/memory.stat",
                "inactive_file 1\ntotal_inactive_file 10\n",
            ),
            ("memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("memory/memory.usage_in_bytes", "5000\n"),
            ("full/memory.max", "300\n"),
            ("full/memory.current", "310\n"),
        ];
        let left = |groups| {
            group_of(groups, |path| {
                let name = path.strip_prefix("/sys/fs/cgroup").ok()?;
                let text = files.iter().find(|(file, _)| Path::new(file) == name);
                text.map(|(_, text)| (*text).into())
            })
            .map(|group| (group.left, group.most))
        };
        assert_eq!(left("0::/a/b\n"), Some((700 - (500 - 170), 700)));
        assert_eq!(left("0::/a/b/c\n"), left("0::/a/b\n"));
        assert_eq!(
            left("5:cpu,memory:/x\n0::/\n"),
            Some((300 - (260 - 10), 300))
        );
        assert_eq!(left("0::/full\n"), Some((0, 300)));
        for none in ["", "0::/\n", "0::/elsewhere\n", "3:cpu:/a\n", "nothing\n"] {
            assert_eq!(left(none), None, "{none}");
        }
    }
}
