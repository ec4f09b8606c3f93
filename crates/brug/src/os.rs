// SPDX-License-Identifier: MIT OR Apache-2.0
//! The operating system calls of the crate, and nothing else that may fail.
//!
//! Every call reports failure as `false` or null and leaves `errno` set. Unit
//! tests make the n-th call fail through [`fault`]. Of two names of a call (`open` and `open64`) it is
//! the one that the standard library uses: the loader looks up each name.

use core::ffi::{c_int, c_void, CStr};
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicU8, Ordering::Relaxed};

use nocopy_settings::{number, Line};

/// The unit in which memory is committed. Pages of 16 or 64 KiB (aarch64) are
/// multiples of it, so [`page_size`] is what rounding uses.
pub(crate) const MIN_PAGE: usize = 4096;

/// Size of a huge page that one page-table entry of the second level maps.
pub(crate) const HUGE: usize = 2 << 20;

/// Size of a page in bytes.
#[inline]
pub(crate) fn page_size() -> usize {
    if cfg!(target_arch = "x86_64") {
        return MIN_PAGE;
    }
    use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    static PAGE: AtomicUsize = AtomicUsize::new(0);
    match PAGE.load(Relaxed) {
        0 => {
            // SAFETY: no preconditions.
            let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
            PAGE.store(page, Relaxed);
            page
        }
        page => page,
    }
}

/// Rounds up to whole pages. The caller has excluded overflow.
#[inline]
pub(crate) fn page_round(n: usize) -> usize {
    let mask = page_size() - 1;
    (n + mask) & !mask
}

/// Rounds down to whole pages.
#[inline]
pub(crate) fn page_floor(n: usize) -> usize {
    n & !(page_size() - 1)
}

#[inline]
fn struck() -> bool {
    #[cfg(test)]
    return fault::strikes();
    #[cfg(not(test))]
    false
}

const RESERVE_FLAGS: c_int = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;

#[cfg(not(miri))]
use libc as sys;

/// The memory calls as Miri can follow them: contents, not protection. What the kernel does
/// to pages is a write to them, so that a race with their owner shows.
#[cfg(miri)]
mod sys {
    extern crate std;
    use core::alloc::Layout;
    use core::ffi::{c_int, c_void};
    use std::alloc::{GlobalAlloc, System};

    pub(super) unsafe fn mmap(
        p: *mut c_void,
        len: usize,
        _: c_int,
        flags: c_int,
        _: c_int,
        _: i64,
    ) -> *mut c_void {
        // SAFETY: by contract; a mapping is aligned to more than it has to be.
        unsafe {
            if flags & libc::MAP_FIXED != 0 {
                p.cast::<u8>().write_bytes(0, len);
                return p;
            }
            let layout = Layout::from_size_align(len, 1 << 16).unwrap();
            System.alloc_zeroed(layout).cast()
        }
    }

    /// Only ever part of what one `mmap` gave, which cannot be given back here.
    pub(super) unsafe fn munmap(_: *mut c_void, _: usize) {}

    pub(super) unsafe fn mprotect(_: *mut c_void, _: usize, _: c_int) -> c_int {
        0
    }

    pub(super) unsafe fn madvise(p: *mut c_void, len: usize, advice: c_int) -> c_int {
        if advice == libc::MADV_DONTNEED {
            // SAFETY: by contract.
            unsafe { p.cast::<u8>().write_bytes(0, len) };
        }
        0
    }

    pub(super) unsafe fn mremap(
        from: *mut c_void,
        len: usize,
        _: usize,
        _: c_int,
        to: *mut c_void,
    ) -> *mut c_void {
        // SAFETY: by contract.
        unsafe {
            to.cast::<u8>().copy_from_nonoverlapping(from.cast(), len);
            from.cast::<u8>().write_bytes(0, len);
        }
        to
    }
}

/// Reserves address space without memory, which no dump shows: a debugger would write out terabytes of
/// zeros. Null on failure, with `EAGAIN` if the process has everything locked that it maps (`mlockall`) and
/// may not lock so much.
pub(crate) fn reserve(len: usize) -> *mut u8 {
    let p = map(len, libc::PROT_NONE);
    if !p.is_null() {
        // SAFETY: just mapped.
        unsafe { show_in_dumps(p, len, false) };
    }
    p
}

/// Says whether dumps of the process have a range. Failure is harmless.
///
/// # Safety
/// The range lies within a reservation of the caller.
pub(crate) unsafe fn show_in_dumps(p: *mut u8, len: usize, shown: bool) {
    let advice = if shown {
        libc::MADV_DODUMP
    } else {
        libc::MADV_DONTDUMP
    };
    if !cfg!(miri) {
        // SAFETY: by contract; changes no content.
        unsafe { sys::madvise(p.cast(), len, advice) };
    }
}

/// Maps zeroed memory. Null on failure.
pub(crate) fn map_memory(len: usize) -> *mut u8 {
    map(len, libc::PROT_READ | libc::PROT_WRITE)
}

fn map(len: usize, prot: c_int) -> *mut u8 {
    if struck() {
        return ptr::null_mut();
    }
    // SAFETY: a new mapping at an address of the kernel's choice.
    let p = unsafe { sys::mmap(ptr::null_mut(), len, prot, RESERVE_FLAGS, -1, 0) };
    if p == libc::MAP_FAILED {
        ptr::null_mut()
    } else {
        p.cast()
    }
}

/// Returns address space to the system.
///
/// # Safety
/// The range belongs to the caller and nothing refers to it.
pub(crate) unsafe fn unmap(p: *mut u8, len: usize) {
    if len > 0 {
        // SAFETY: by contract.
        unsafe { sys::munmap(p.cast(), len) };
    }
}

/// Makes a reserved range readable and writable. Memory comes at first touch.
///
/// # Safety
/// The range lies within a reservation of the caller.
pub(crate) unsafe fn commit(p: *mut u8, len: usize) -> bool {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: by contract.
    unsafe {
        let done = !struck() && sys::mprotect(p.cast(), len, access) == 0;
        if done {
            show_in_dumps(p, len, true);
        }
        done
    }
}

/// Turns a range back into a bare reservation: memory, page tables, advice and
/// commit charge are gone.
///
/// # Safety
/// The range lies within a reservation of the caller, and its content is dead.
pub(crate) unsafe fn reset(p: *mut u8, len: usize) -> bool {
    if struck() {
        return false;
    }
    #[cfg(test)]
    fault::reach(&fault::BEFORE);
    // SAFETY: by contract; MAP_FIXED replaces only that range.
    let q = unsafe {
        sys::mmap(
            p.cast(),
            len,
            libc::PROT_NONE,
            RESERVE_FLAGS | libc::MAP_FIXED,
            -1,
            0,
        )
    };
    #[cfg(test)]
    fault::reach(&fault::AFTER);
    let done = q != libc::MAP_FAILED;
    if done {
        // SAFETY: just mapped.
        unsafe { show_in_dumps(p, len, false) };
    }
    done
}

/// Drops the memory of a range, which reads as zeros afterwards.
///
/// # Safety
/// The range is committed, and its content is dead.
pub(crate) unsafe fn discard(p: *mut u8, len: usize) -> bool {
    // SAFETY: by contract.
    !struck() && unsafe { sys::madvise(p.cast(), len, libc::MADV_DONTNEED) } == 0
}

/// Resets what a program has asked for of the pages of an object that it has freed: protection and its keys,
/// locks, `MADV_DONTFORK` and `MADV_WIPEONFORK`, and where the kernel knows these, `MADV_RANDOM` and the like,
/// `MADV_DONTDUMP`, `MADV_MERGEABLE` (unless all of the process's pages are), `MADV_GUARD_INSTALL` and `mbind`. Returns
/// false before Linux 4.14, and if pages are unmapped or a file's, or the process locks all its memory; then map them
/// anew. Drops the first page. Advice about huge pages cannot be taken back, nor can a `userfaultfd`.
///
/// # Safety
/// The range was committed by the caller, and its content is dead.
pub(crate) unsafe fn make_plain(p: *mut u8, len: usize) -> bool {
    // SAFETY: by contract.
    let advise = |advice| unsafe { sys::madvise(p.cast(), len, advice) } == 0;
    // linux/mman.h, of Linux 6.13.
    const MADV_GUARD_REMOVE: c_int = 103;
    /// False once this machine is known to have no keys of protection.
    static KEYS: AtomicBool = AtomicBool::new(true);
    advise(libc::MADV_NORMAL);
    advise(MADV_GUARD_REMOVE);
    if !merges_all() {
        advise(libc::MADV_UNMERGEABLE);
    }
    // SAFETY: by contract. Locked pages are not dropped, and a file's never become empty in a child.
    unsafe {
        let mut writable = false;
        if !cfg!(miri) {
            let nodes = ptr::null::<u8>();
            libc::syscall(libc::SYS_mbind, p, len, libc::MPOL_DEFAULT, nodes, 0, 0);
        }
        if KEYS.load(Relaxed) && !cfg!(miri) {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            writable = libc::syscall(libc::SYS_pkey_mprotect, p, len, access, 0) == 0;
            if !writable && matches!(errno(), libc::EINVAL | libc::ENOSYS) {
                KEYS.store(false, Relaxed);
            }
        }
        if writable {
            show_in_dumps(p, len, true);
        }
        discard(p, page_size())
            && (cfg!(miri) || libc::syscall(libc::SYS_munlock, p, len) == 0)
            && (writable || commit(p, len))
            && advise(libc::MADV_DOFORK)
            && advise(libc::MADV_WIPEONFORK)
            && advise(libc::MADV_KEEPONFORK)
    }
}

/// Returns true if the process has all its pages merged that are alike (Linux 6.4): what is taken out of that stays
/// out.
fn merges_all() -> bool {
    // linux/prctl.h
    const PR_GET_MEMORY_MERGE: c_int = 68;
    // SAFETY: no pointers are passed.
    !cfg!(miri) && unsafe { libc::prctl(PR_GET_MEMORY_MERGE, 0, 0, 0, 0) } == 1
}

/// Has the kernel clear a page in the child of a fork. False before Linux 4.14.
///
/// # Safety
/// The page is a mapping of the caller's, and so is what shares it.
pub(crate) unsafe fn wipe_on_fork(page: *mut u8) -> bool {
    // SAFETY: by contract.
    !cfg!(miri) && unsafe { sys::madvise(page.cast(), page_size(), libc::MADV_WIPEONFORK) } == 0
}

/// Number of this process.
pub(crate) fn process() -> c_int {
    // SAFETY: no preconditions.
    unsafe { libc::getpid() }
}

/// Number of the calling thread.
pub(crate) fn thread() -> c_int {
    // SAFETY: no preconditions.
    unsafe { libc::gettid() }
}

/// Returns true if this process has a thread of that number.
pub(crate) fn is_thread(number: c_int) -> bool {
    // SAFETY: sends nothing.
    unsafe { libc::syscall(libc::SYS_tgkill, process(), number, 0) == 0 }
}

/// Returns true if the caller is the child of a `vfork`, which has its parent's memory, or a child that was made by the
/// system call itself and whose memory the kernel does not compare with its parent's.
/// The C library tells a thread's number without asking the kernel, and so tells the parent's there: in bits of
/// the clock that measures the thread. So it does in a child that was made by the system call itself, which has
/// memory of its own.
pub(crate) fn borrows_memory() -> bool {
    const NUMBER: u32 = 3;
    // linux/kcmp.h; the other answers are that they differ, and that the kernel does not say.
    const KCMP_VM: c_int = 1;
    let differ = 1..=3;
    let mut clock = 0;
    // The main thread needs one system call for it.
    let is_another = |thread_is: c_int| thread_is != process() && thread_is != thread();
    // SAFETY: `clock` is valid for a write, and no other pointer is passed.
    !cfg!(miri)
        && unsafe {
            libc::pthread_getcpuclockid(libc::pthread_self(), &mut clock) == 0
                && is_another(!(clock >> NUMBER))
                && keep_errno(|| {
                    let parent = libc::syscall(libc::SYS_getppid);
                    let answer = libc::syscall(libc::SYS_kcmp, process(), parent, KCMP_VM, 0, 0);
                    !differ.contains(&answer)
                })
        }
}

/// Asks for huge pages in a range, or asks for none. Advice: failure is harmless.
///
/// # Safety
/// The range lies within a reservation of the caller.
pub(crate) unsafe fn advise_huge(p: *mut u8, len: usize, huge: bool) -> bool {
    let advice = if huge {
        libc::MADV_HUGEPAGE
    } else {
        libc::MADV_NOHUGEPAGE
    };
    #[cfg(test)]
    if huge {
        fault::reach(&fault::HUGE);
    }
    // SAFETY: by contract; advice changes no content.
    !struck() && unsafe { sys::madvise(p.cast(), len, advice) } == 0
}

/// Moves the pages of `[from, from + len)` to `to` without copying. `from` stays
/// mapped and reads as zeros. False where the kernel cannot (before Linux 5.7), under a limit of address
/// space, for want of memory for page tables, or if a program has made several mappings of it. Then `from` is as before, but what was at `to` may be
/// unmapped, which the kernel does first: see [`make_whole`].
///
/// # Safety
/// `from` is committed by the caller; `to` lies in a reservation of
/// the caller with dead content; they do not overlap.
pub(crate) unsafe fn move_pages(from: *mut u8, to: *mut u8, len: usize) -> bool {
    // SAFETY: by contract.
    if struck() || !unsafe { is_one_mapping(from, len) } {
        return false;
    }
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP;
    // SAFETY: by contract.
    let p = unsafe { sys::mremap(from.cast(), len, len, flags, to.cast::<c_void>()) };
    p != libc::MAP_FAILED
}

/// Returns false if a range is of several mappings. Linux 6.17 moves them one by one, and if it refuses one, those before it
/// have moved. It makes none of them longer by a page, and says that of such a range by an error of its own.
///
/// # Safety
/// The range is committed by the caller.
unsafe fn is_one_mapping(p: *mut u8, len: usize) -> bool {
    if cfg!(miri) {
        return true;
    }
    // SAFETY: moves nothing; what the mapping gets if nothing is behind it goes again.
    keep_errno(|| unsafe {
        let longer = len + page_size();
        let nowhere = ptr::null_mut::<c_void>();
        if sys::mremap(p.cast(), len, longer, 0, nowhere) == libc::MAP_FAILED {
            return errno() != libc::EFAULT;
        }
        unmap(p.add(len), page_size());
        true
    })
}

/// Maps zeroed memory where a move to `p` that failed has left nothing, unless all is there. Returns
/// false if part of the range is not mapped, or may by now be somebody else's.
///
/// # Safety
/// The range was committed by the caller, and its content is dead.
pub(crate) unsafe fn make_whole(p: *mut u8, len: usize) -> bool {
    if cfg!(miri) {
        return true;
    }
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let flags = RESERVE_FLAGS | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: replaces nothing. Before Linux 4.17 the address is a hint.
    unsafe {
        let q: *mut u8 = sys::mmap(p.cast(), len, prot, flags, -1, 0).cast();
        if q == p {
            return true;
        }
        if q.cast() != libc::MAP_FAILED {
            unmap(q, len);
        }
        // Writes nothing: the kernel only looks whether all is mapped. By number, as the C library's
        // function is a point at which threads are cancelled.
        libc::syscall(libc::SYS_msync, p, len, libc::MS_ASYNC) == 0
    }
}

/// The limit of this process's address space in bytes; `None`: there is none.
pub(crate) fn address_space_limit() -> Option<usize> {
    // SAFETY: the limit is valid for writing.
    finite(|limit| unsafe { libc::getrlimit(libc::RLIMIT_AS, limit) })
}

/// The limit of the private memory that this process may have writable, in bytes; `None`:
/// there is none.
pub(crate) fn data_limit() -> Option<usize> {
    // SAFETY: the limit is valid for writing.
    finite(|limit| unsafe { libc::getrlimit(libc::RLIMIT_DATA, limit) })
}

fn finite(get: impl FnOnce(&mut libc::rlimit) -> c_int) -> Option<usize> {
    if cfg!(miri) {
        return None;
    }
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    let known = get(&mut limit) == 0;
    (known && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur as usize)
}

/// Returns true if this process is denied huge pages.
pub(crate) fn huge_pages_denied() -> bool {
    // SAFETY: no pointers are passed.
    !cfg!(miri) && unsafe { libc::prctl(libc::PR_GET_THP_DISABLE, 0, 0, 0, 0) } == 1
}

/// Milliseconds on a clock that does not go back; a few milliseconds coarse.
#[inline]
pub(crate) fn now_ms() -> u64 {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `t` is valid for writing.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &mut t) };
    t.tv_sec as u64 * 1000 + t.tv_nsec as u64 / 1_000_000
}

#[inline]
fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `t` is valid for writing.
    unsafe { libc::clock_gettime(clock, &mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Nanoseconds on a clock that does not go back.
#[inline]
pub(crate) fn now_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// Nanoseconds of CPU time of the calling thread, with the kernel's work for it.
pub(crate) fn thread_cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Returns true if there is memory behind the page that `p` lies in.
pub(crate) fn resident(p: *mut u8) -> bool {
    if cfg!(miri) {
        return true;
    }
    let page = p.map_addr(page_floor);
    let mut found = 0u8;
    // SAFETY: asks about one page and is answered by one byte.
    let known = unsafe { libc::mincore(page.cast(), page_size(), &mut found) } == 0;
    known && found & 1 != 0
}

/// Puts memory behind the page at `p`: a huge page if [`madvise`](libc::madvise) asked for one. The
/// content stays, so the page may belong to anybody. Returns false if the page is not writable, or
/// before Linux 5.14.
pub(crate) fn populate(p: *mut u8) -> bool {
    // SAFETY: the page reads as before.
    unsafe { libc::madvise(p.cast(), page_size(), libc::MADV_POPULATE_WRITE) == 0 }
}

/// Waits for a thread that is in the middle of something short. Asleep, because it may share a
/// processor with the caller: a real-time thread that only yields does not let it run.
#[cold]
pub(crate) fn wait_a_moment() {
    let moment = libc::timespec {
        tv_sec: 0,
        tv_nsec: 20_000,
    };
    // SAFETY: `moment` is valid for reading. By number, as a program may have a function of that name, and as the C
    // library's is a point at which threads are cancelled.
    keep_errno(|| unsafe {
        if cfg!(miri) {
            libc::sched_yield();
        } else {
            let none = ptr::null_mut::<u8>();
            libc::syscall(libc::SYS_clock_nanosleep, libc::CLOCK_MONOTONIC, 0, &moment, none);
        }
    });
}

/// Runs `f`, which is in the C library a point at which threads are cancelled (`pthread_cancel`).
/// No function of an allocator is one: what the thread holds would stay so, and the unwinder that ends it
/// may not pass these functions.
fn uncancelled<T>(f: impl FnOnce() -> T) -> T {
    if cfg!(miri) {
        return f();
    }
    extern "C" {
        fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
    }
    const DISABLE: c_int = 1;
    let mut before = 0;
    // SAFETY: `before` is valid for writing. What sets a state that there is does not fail.
    unsafe {
        pthread_setcancelstate(DISABLE, &mut before);
        let value = f();
        pthread_setcancelstate(before, ptr::null_mut());
        value
    }
}

/// Sleeps for some milliseconds, or until somebody changes `word` from `value` and calls [`wake`].
pub(crate) fn sleep(word: &AtomicU32, value: u32, ms: u32) {
    let timeout = libc::timespec {
        tv_sec: (ms / 1000).into(),
        tv_nsec: (ms % 1000 * 1_000_000).into(),
    };
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: `word` and `timeout` are valid for reading.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, value, &timeout) };
}

/// Wakes whoever sleeps on `word`.
pub(crate) fn wake(word: &AtomicU32) {
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the kernel uses the address alone.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, 1) };
}

/// Returns true if the system counts memory when it is committed, not when it is used, and
/// refuses what is too much.
pub(crate) fn counts_memory() -> bool {
    commits_strictly() || data_limit().is_some()
}

/// What vm.overcommit_memory says, a digit. Read once.
fn overcommit() -> u8 {
    const HEURISTIC: u8 = b'0';
    static KNOWN: AtomicU8 = AtomicU8::new(0);
    if KNOWN.load(Relaxed) == 0 {
        let mut buf = [HEURISTIC];
        let path = c"/proc/sys/vm/overcommit_memory";
        if keep_errno(|| read_file_unless_scarce(path, &mut buf)).is_none() {
            return HEURISTIC;
        }
        KNOWN.store(buf[0], Relaxed);
    }
    KNOWN.load(Relaxed)
}

/// Returns true if the system refuses to commit more memory than it has.
pub(crate) fn commits_strictly() -> bool {
    overcommit() == b'2'
}

/// Returns true if the system refuses so many bytes at once to who maps them: by default more than
/// there is of memory and swap. What is reserved is committed without that question.
pub(crate) fn is_too_much_at_once(bytes: usize) -> bool {
    // Every machine has so much, and most objects are smaller.
    const LEAST: usize = 64 << 20;
    bytes > LEAST && !cfg!(miri) && overcommit() == b'0' && {
        let (memory, swap) = keep_errno(memory_and_swap);
        // 0: a sandbox does not say.
        memory > 0 && bytes > memory.saturating_add(swap)
    }
}

/// Bytes of memory and of swap that the machine has.
pub(crate) fn memory_and_swap() -> (usize, usize) {
    let mut info = core::mem::MaybeUninit::<libc::sysinfo>::zeroed();
    // SAFETY: `info` is valid for writing; all zeros is a valid value.
    let info = unsafe {
        libc::sysinfo(info.as_mut_ptr());
        info.assume_init()
    };
    let bytes = |units| (units as usize).saturating_mul(info.mem_unit as usize);
    (bytes(info.totalram), bytes(info.totalswap))
}

/// Returns true if much address space costs this process much of what it may commit. With strict
/// overcommit the kernel keeps a 32nd of the address space of a process from it, reserved or
/// not, and at most vm.user_reserve_kbytes; on a small machine that is a part worth having.
pub(crate) fn address_space_is_dear() -> bool {
    const MOST: usize = 64;
    let kept = || read_number(c"/proc/sys/vm/user_reserve_kbytes").unwrap_or(0);
    commits_strictly() && commit_limit().is_some_and(|limit| kept() > limit / MOST)
}

/// What all processes together may commit, in units of 1 KiB.
fn commit_limit() -> Option<usize> {
    let name = b"CommitLimit:";
    with_page(|text| {
        let n = read_file(c"/proc/meminfo", text);
        let at = text[..n].windows(name.len()).position(|word| word == name)?;
        let digits = text[at + name.len()..n].trim_ascii_start();
        number(digits.split(|b| !b.is_ascii_digit()).next()?).map(|n| n as usize)
    })?
}

/// Runs `f` with a page of memory, for which the stack of a coroutine may have no room. `None` if there is none.
fn with_page<T>(f: impl FnOnce(&mut [u8]) -> T) -> Option<T> {
    let page = map_memory(page_size());
    (!page.is_null()).then(|| {
        // SAFETY: just mapped, and nothing refers to it afterwards.
        unsafe {
            let value = f(core::slice::from_raw_parts_mut(page, page_size()));
            unmap(page, page_size());
            value
        }
    })
}

/// Orders a store before a later load, provided that the other side has a [`heavy_barrier`]
/// between its own.
#[inline(always)]
pub(crate) fn light_barrier() {
    #[cfg(test)]
    fault::reach(&fault::BARRIER);
    #[cfg(not(miri))]
    core::sync::atomic::compiler_fence(core::sync::atomic::Ordering::SeqCst);
    // Miri knows no membarrier.
    #[cfg(miri)]
    core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
}

/// Makes all threads of this process execute a barrier. Pairs with [`light_barrier`]. Returns
/// false, and nothing is ordered, where the kernel cannot (before Linux 4.14) or may not.
pub(crate) fn heavy_barrier() -> bool {
    core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
    if cfg!(miri) {
        return true;
    }
    // linux/membarrier.h
    const PRIVATE_EXPEDITED: c_int = 1 << 3;
    const REGISTER_PRIVATE_EXPEDITED: c_int = 1 << 4;
    // SAFETY: no pointers are passed.
    let call = |command: c_int| unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) } == 0;
    call(REGISTER_PRIVATE_EXPEDITED) && call(PRIVATE_EXPEDITED)
        || threads() == Some(1)
}

/// Blocks all signals but `SIGSYS`, which stays as the program has it: its handler is where a sandbox answers a system
/// call in the kernel's place, and the process ends at such a call of a thread that blocks it. Returns what was blocked
/// before, for [`unblock_signals`].
pub(crate) fn block_signals() -> libc::sigset_t {
    let mut all = core::mem::MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = core::mem::MaybeUninit::uninit();
    // SAFETY: every object is initialised by the call before its use. A set is bits, aligned as words of 64.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        *all.as_mut_ptr().cast::<u64>() &= !(1 << (libc::SIGSYS - 1));
        libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr());
        before.assume_init()
    }
}

/// Blocks the signals that were blocked before [`block_signals`], and no other.
pub(crate) fn unblock_signals(before: &libc::sigset_t) {
    // SAFETY: a set that is valid for reading.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, ptr::null_mut()) };
}

/// Runs `f` while no signal handler can interrupt it but that of `SIGSYS`, which may allocate, resize and free no large
/// object.
pub(crate) fn without_signals<T>(f: impl FnOnce() -> T) -> T {
    if cfg!(miri) {
        return f();
    }
    let before = block_signals();
    let value = f();
    unblock_signals(&before);
    value
}

/// Returns true if the calling thread blocks a signal, as every handler does unless it was set with `SA_NODEFER`.
pub(crate) fn blocks_signals() -> bool {
    if cfg!(miri) {
        return false;
    }
    // A set is bits, of which the kernel writes the first 64.
    let mut blocked = [0u64; size_of::<libc::sigset_t>() / size_of::<u64>()];
    // SAFETY: as large as a set, and aligned as one.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), blocked.as_mut_ptr().cast()) };
    blocked[0] != 0
}

/// What the loader knows about a code address; nulls if that is nothing.
#[cfg(any(feature = "monitor", not(feature = "preload")))]
pub(crate) fn module_of(address: usize) -> libc::Dl_info {
    // SAFETY: a structure of pointers may be all zero; dladdr takes any address.
    unsafe {
        let mut about = core::mem::zeroed();
        if libc::dladdr(address as *const _, &mut about) == 0 {
            about = core::mem::zeroed();
        }
        about
    }
}

/// Returns true if this is the program, not a library.
#[cfg(any(feature = "monitor", not(feature = "preload")))]
pub(crate) fn is_program(module: &libc::Dl_info) -> bool {
    // SAFETY: no preconditions.
    let head = unsafe { libc::getauxval(libc::AT_PHDR) };
    module_of(head as usize).dli_fbase == module.dli_fbase
}

/// Has the library that this is in stay when it is closed: its thread runs here, and so does what a base does when
/// a thread of the program ends. Takes the loader's lock.
#[cfg(not(feature = "preload"))]
pub(crate) fn stay() {
    if cfg!(miri) {
        return;
    }
    let own = module_of(stay as *const () as usize);
    if !own.dli_fname.is_null() && !is_program(&own) {
        let flags = libc::RTLD_NOW | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
        // SAFETY: the loader's string; what is loaded already is not begun anew.
        unsafe { libc::dlopen(own.dli_fname, flags) };
    }
}

/// `pthread_atfork` is linked into each library, on a page that nothing else at load needs. So
/// `libbrug.so` calls what it calls.
pub(crate) fn at_fork(prepare: extern "C" fn(), parent: extern "C" fn(), child: extern "C" fn()) {
    #[cfg(not(feature = "preload"))]
    // SAFETY: functions without preconditions.
    unsafe {
        libc::pthread_atfork(Some(prepare), Some(parent), Some(child));
    }
    #[cfg(feature = "preload")]
    {
        type Handler = extern "C" fn();
        extern "C" {
            static __dso_handle: c_void;
            fn __register_atfork(_: Handler, _: Handler, _: Handler, _: *const c_void) -> c_int;
        }
        // SAFETY: what `pthread_atfork` does; of the handle only the address is taken.
        unsafe { __register_atfork(prepare, parent, child, ptr::addr_of!(__dso_handle)) };
    }
}

/// Threads of this process, if the system says. Async-signal-safe.
pub(crate) fn threads() -> Option<u64> {
    // SAFETY: a C string, and `status` is valid for writing.
    unsafe {
        let mut status = core::mem::zeroed::<libc::stat64>();
        // A directory has two links and one more for each directory in it: proc(5).
        (libc::stat64(c"/proc/self/task".as_ptr(), &mut status) == 0)
            .then(|| (status.st_nlink as u64).saturating_sub(2))
    }
}

/// Returns true if no other thread runs any more, because the main thread, of which the system keeps
/// a remnant without memory and so without a program, has ended as well. Opens no descriptor: the program's
/// other thread may count on the number that it gets.
pub(crate) fn is_last_thread() -> bool {
    let mut path = [0u8; 1];
    threads() == Some(2) && read_program(&mut path) < 0 && errno() == libc::ENOENT
}

/// This thread's `errno`.
#[inline]
pub fn errno() -> c_int {
    // SAFETY: the location is valid for the life of the thread.
    unsafe { *libc::__errno_location() }
}

/// Sets this thread's `errno`.
#[inline]
pub fn set_errno(e: c_int) {
    // SAFETY: the location is valid for the life of the thread.
    unsafe { *libc::__errno_location() = e }
}

/// Runs `f` and leaves `errno` as it was, as `free` promises.
#[inline]
pub(crate) fn keep_errno<T>(f: impl FnOnce() -> T) -> T {
    let saved = errno();
    let value = f();
    set_errno(saved);
    value
}

/// Runs `f`, which allocates, and leaves `errno` as it was unless `f` returns null.
#[inline]
pub(crate) fn keep_errno_if_granted(f: impl FnOnce() -> *mut u8) -> *mut u8 {
    let saved = errno();
    let p = f();
    if !p.is_null() {
        set_errno(saved);
    }
    p
}

/// Reads the beginning of a small file; returns the bytes read, 0 on failure.
pub(crate) fn read_file(path: &CStr, buf: &mut [u8]) -> usize {
    read_file_unless_scarce(path, buf).unwrap_or(0)
}

/// As [`read_file`]; `None` if the process or the machine has no descriptor or memory left for it, so that what the
/// file says is not known for good.
fn read_file_unless_scarce(path: &CStr, buf: &mut [u8]) -> Option<usize> {
    if cfg!(miri) {
        // All such files are about the machine, which Miri is not.
        return Some(0);
    }
    match read_opened(path, 0, buf, |_| true) {
        Err(libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::EINTR) => None,
        read => Some(read.unwrap_or(0)),
    }
}

/// Reads the beginning of a file that somebody has named; 0 bytes if there is none.
///
/// # Errors
/// That of the system; `EINVAL` if it is no regular file. What waits for others, as a FIFO does, is not waited
/// for, and a link is not followed.
pub(crate) fn read_named_file(path: &CStr, buf: &mut [u8]) -> Result<usize, c_int> {
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_NOFOLLOW;
    let regular = |fd| about(fd).is_some_and(|about| about.st_mode & libc::S_IFMT == libc::S_IFREG);
    match read_opened(path, flags, buf, regular) {
        Err(libc::ENOENT) => Ok(0),
        read => read,
    }
}

fn read_opened(
    path: &CStr,
    flags: c_int,
    buf: &mut [u8],
    suits: impl FnOnce(c_int) -> bool,
) -> Result<usize, c_int> {
    // SAFETY: the path is a C string, the buffer is valid for its length.
    uncancelled(|| unsafe {
        let fd = libc::open64(path.as_ptr(), flags | libc::O_RDONLY | libc::O_CLOEXEC);
        if fd < 0 {
            return Err(errno());
        }
        let mut have = 0;
        let mut result = if suits(fd) { Ok(0) } else { Err(libc::EINVAL) };
        while result.is_ok() && have < buf.len() {
            match libc::read(fd, buf.as_mut_ptr().add(have).cast(), buf.len() - have) {
                0 => break,
                n @ 1.. => have += n as usize,
                _ => result = Err(errno()),
            }
        }
        libc::close(fd);
        result.map(|_| have)
    })
}

/// Calls `f` with the path of this process's program.
pub(crate) fn with_program<T>(f: impl FnOnce(&[u8]) -> T) -> T {
    let mut path = [0u8; libc::PATH_MAX as usize];
    let len = read_program(&mut path);
    f(usize::try_from(len).map_or(b"?", |len| &path[..len]))
}

/// Bytes of the path of this process's program that have been written to `path`; −1 with `errno` if there are none.
fn read_program(path: &mut [u8]) -> isize {
    // SAFETY: a C string, and a buffer of that length.
    unsafe { libc::readlink(c"/proc/self/exe".as_ptr(), path.as_mut_ptr().cast(), path.len()) }
}

/// The number that a small file begins with.
pub(crate) fn read_number(path: &CStr) -> Option<usize> {
    let mut text = [0u8; 24];
    let n = read_file(path, &mut text);
    number(text[..n].split(|b| !b.is_ascii_digit()).next()?).map(|n| n as usize)
}

/// Returns true if this process has less than 4 MiB of its own in RAM, or that cannot be told: what another allocator
/// needs to begin would make it half as large again.
#[cfg(feature = "mimalloc")]
pub(crate) fn has_little_memory() -> bool {
    const LITTLE: usize = 4 << 20;
    let mut text = [0u8; 64];
    let n = read_file(c"/proc/self/statm", &mut text);
    let mut pages = text[..n].split(|&b| b == b' ').map(|word| number(word).unwrap_or(0));
    let (resident, of_files) = (pages.nth(1).unwrap_or(0), pages.next().unwrap_or(0));
    (resident.saturating_sub(of_files) as usize).saturating_mul(page_size()) < LITTLE
}

/// The lowest limit of memory in bytes that a control group sets to this process;
/// `usize::MAX` if none does, and `None` if that cannot be told now.
pub(crate) fn cgroup_limit() -> Option<usize> {
    with_page(|groups| {
        let n = read_file_unless_scarce(c"/proc/self/cgroup", groups)?;
        Some(limit_of_groups(&groups[..n], &mut read_number))
    })?
}

/// As above; `groups` is what /proc/self/cgroup says. A group is bound by those it is in, too.
fn limit_of_groups(groups: &[u8], read: &mut dyn FnMut(&CStr) -> Option<usize>) -> usize {
    use core::fmt::Write;
    let mut least = usize::MAX;
    for line in groups.split(|&b| b == b'\n') {
        // number:controllers:path; the unified hierarchy is number 0 without controllers.
        let mut fields = line.splitn(3, |&b| b == b':');
        let (_, Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        // Above memory.high a group may have memory, but the system slows down who takes it.
        let (mount, files): (_, &[_]) = if controllers.is_empty() {
            ("", &["memory.max", "memory.high"])
        } else if controllers.split(|&b| b == b',').any(|c| c == b"memory") {
            ("/memory", &["memory.limit_in_bytes"])
        } else {
            continue;
        };
        let mut path = core::str::from_utf8(path)
            .unwrap_or("")
            .trim_end_matches('/');
        loop {
            for file in files {
                let mut name = Line::new();
                let _ = write!(name, "/sys/fs/cgroup{mount}{path}/{file}\0");
                if let Ok(name) = CStr::from_bytes_with_nul(name.as_bytes()) {
                    least = least.min(read(name).unwrap_or(usize::MAX));
                }
            }
            match path.rfind('/') {
                Some(end) => path = &path[..end],
                None => break,
            }
        }
    }
    least
}

/// What ends a program that writes to a pipe nobody reads, or beyond `RLIMIT_FSIZE`: the kernel's form of a
/// set of signals.
const OF_WRITING: u64 = 1 << (libc::SIGPIPE - 1) | 1 << (libc::SIGXFSZ - 1);

/// Writes all of `bytes` to a descriptor; false on failure, with `errno`. It is not the program that writes, so a failure
/// does not end it by a signal.
pub(crate) fn write_all(fd: c_int, bytes: &[u8]) -> bool {
    if cfg!(miri) {
        return write_loudly(fd, bytes);
    }
    let length = size_of::<u64>();
    let (mut before, mut pending) = (0u64, 0u64);
    let none = ptr::null_mut::<u64>();
    // SAFETY: sets of the kernel's length that live as long as the calls. A signal that a write of ours has left
    // is this thread's, and is taken before it can be delivered.
    unsafe {
        let (set, old) = (&OF_WRITING, &mut before);
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_BLOCK, set, old, length);
        libc::syscall(libc::SYS_rt_sigpending, &mut pending, length);
        let written = write_loudly(fd, bytes);
        let ours = OF_WRITING & !pending;
        if !written && ours != 0 {
            let (error, at_once) = (errno(), [0i64; 2]);
            libc::syscall(libc::SYS_rt_sigtimedwait, &ours, none, &at_once, length);
            set_errno(error);
        }
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &before, none, length);
        written
    }
}

fn write_loudly(fd: c_int, mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        // SAFETY: the slice is valid for its length.
        let n = unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) };
        if n < 0 {
            if errno() == libc::EINTR {
                continue;
            }
            return false;
        }
        bytes = &bytes[n as usize..];
    }
    true
}

/// What the system knows of the file behind a descriptor.
fn about(fd: c_int) -> Option<libc::stat64> {
    // SAFETY: a structure of numbers may be all zero, and is valid for a write.
    unsafe {
        let mut about: libc::stat64 = core::mem::zeroed();
        (libc::fstat64(fd, &mut about) == 0).then_some(about)
    }
}

/// Device and inode of the file behind a descriptor.
pub(crate) fn identity(fd: c_int) -> Option<(u64, u64)> {
    about(fd).map(|about| (about.st_dev, about.st_ino))
}

/// The file that standard error is, once it is remembered; zeros: it was closed.
static STDERR: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
static REMEMBERED: AtomicBool = AtomicBool::new(false);

/// Remembers what standard error is. To be called early if anything may have to be said later: a daemon closes
/// it, and opens files of its own under its number.
pub(crate) fn remember_stderr() {
    let (device, inode) = keep_errno(|| identity(libc::STDERR_FILENO)).unwrap_or_default();
    STDERR[0].store(device, Relaxed);
    STDERR[1].store(inode, Relaxed);
    REMEMBERED.store(true, Relaxed);
}

/// Returns true unless standard error is known to be another file now.
pub(crate) fn stderr_is_there() -> bool {
    let remembered = (STDERR[0].load(Relaxed), STDERR[1].load(Relaxed));
    !REMEMBERED.load(Relaxed) || identity(libc::STDERR_FILENO) == Some(remembered)
}

/// Prints one line on standard error without allocating.
pub(crate) fn complain(args: core::fmt::Arguments<'_>) {
    use core::fmt::Write;
    let mut line = Line::new();
    let _ = line.write_str("brug: ");
    let _ = line.write_fmt(args);
    say(&line.end());
}

/// Prints a line on standard error.
pub(crate) fn say(line: &Line) {
    keep_errno(|| {
        if stderr_is_there() {
            uncancelled(|| write_all(libc::STDERR_FILENO, line.as_bytes()));
        }
    });
}

/// Test hooks: which of the coming calls fail, and what other threads do in the middle of things.
#[cfg(test)]
pub(crate) mod fault {
    use core::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering::SeqCst};
    /// Functions of the type `fn()`, each called once: before and after the call of [`super::reset`], at the
    /// barrier of an object that grows where it is, before huge pages are asked for, and before limits are worked
    /// out. 0: none.
    pub(crate) static BEFORE: AtomicUsize = AtomicUsize::new(0);
    pub(crate) static AFTER: AtomicUsize = AtomicUsize::new(0);
    pub(crate) static BARRIER: AtomicUsize = AtomicUsize::new(0);
    pub(crate) static HUGE: AtomicUsize = AtomicUsize::new(0);
    pub(crate) static CHANGE: AtomicUsize = AtomicUsize::new(0);

    pub(crate) fn reach(place: &AtomicUsize) {
        let function = place.swap(0, SeqCst);
        if function != 0 {
            // SAFETY: by contract.
            unsafe { core::mem::transmute::<usize, fn()>(function)() };
        }
    }

    /// Calls until the first failing one; negative: none fails.
    pub(crate) static COUNTDOWN: AtomicI64 = AtomicI64::new(-1);
    /// How many calls fail from then on.
    pub(crate) static BURST: AtomicI64 = AtomicI64::new(0);
    /// Calls made so far.
    pub(crate) static CALLS: AtomicU64 = AtomicU64::new(0);

    pub(super) fn strikes() -> bool {
        CALLS.fetch_add(1, SeqCst);
        if COUNTDOWN.load(SeqCst) < 0 {
            return false;
        }
        if COUNTDOWN.fetch_sub(1, SeqCst) > 0 {
            return false;
        }
        COUNTDOWN.store(0, SeqCst);
        if BURST.fetch_sub(1, SeqCst) > 0 {
            super::set_errno(libc::ENOMEM);
            return true;
        }
        COUNTDOWN.store(-1, SeqCst);
        false
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::borrow::ToOwned;
    use std::string::String;
    use std::vec::Vec;

    fn asked(groups: &[u8], limits: &[(&str, usize)]) -> (usize, Vec<String>) {
        let mut files = Vec::new();
        let least = limit_of_groups(groups, &mut |file| {
            let file = file.to_str().unwrap();
            files.push(file.to_owned());
            limits.iter().find(|l| l.0 == file).map(|l| l.1)
        });
        (least, files)
    }

    #[test]
    fn a_control_group_is_bound_by_those_around_it() {
        let limits = [
            ("/sys/fs/cgroup/a/b/memory.max", 700),
            ("/sys/fs/cgroup/a/memory.max", 500),
        ];
        let (least, files) = asked(b"0::/a/b/c\n", &limits);
        assert_eq!(least, 500);
        assert_eq!(files.len(), 8);
        assert_eq!(files[6], "/sys/fs/cgroup/memory.max");
    }

    #[test]
    fn a_group_that_is_slowed_down_above_a_size_is_bound_by_that() {
        let limits = [
            ("/sys/fs/cgroup/a/memory.max", 700),
            ("/sys/fs/cgroup/a/memory.high", 600),
        ];
        assert_eq!(asked(b"0::/a\n", &limits).0, 600);
    }

    #[test]
    fn in_a_container_the_root_is_the_group() {
        let limits = [("/sys/fs/cgroup/memory.max", 900)];
        assert_eq!(
            asked(b"0::/\n", &limits),
            (
                900,
                ["memory.max", "memory.high"]
                    .map(|file| std::format!("/sys/fs/cgroup/{file}"))
                    .into()
            )
        );
    }

    #[test]
    fn the_first_version_has_a_mount_for_each_controller() {
        let limits = [("/sys/fs/cgroup/memory/x/memory.limit_in_bytes", 300)];
        let groups = b"5:cpu,cpuacct:/x\n4:memory:/x\n1:name=systemd:/y\n0::/y\n";
        assert_eq!(asked(groups, &limits).0, 300);
    }

    #[test]
    fn what_is_no_list_of_groups_limits_nothing() {
        for text in [
            &b""[..],
            b"\n\n",
            b"0:",
            b"0::",
            b"4:memory",
            b"\xff:\xff:\xff",
        ] {
            assert_eq!(asked(text, &[]).0, usize::MAX);
        }
        let long = [b"0::/".as_slice(), &[b'x'; 3000]].concat();
        assert_eq!(asked(&long, &[]).0, usize::MAX);
    }
}
