// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the kernel says about this process.

use std::fs;

/// A line of /proc/self/status in bytes; 0 where there is no such line.
fn status(key: &str) -> usize {
    let text = fs::read_to_string("/proc/self/status").unwrap_or_default();
    text.lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))
        .and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<usize>().ok())
        .unwrap_or(0)
        * 1024
}

/// Resident bytes now.
pub(crate) fn rss() -> usize {
    status("VmRSS")
}

fn faults() -> (u64, u64) {
    // SAFETY: all-zero bytes are a valid rusage.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is valid for writes.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
    (usage.ru_minflt as u64, usage.ru_majflt as u64)
}

/// Taken before the work.
pub(crate) struct Usage {
    base_rss: usize,
    faults: (u64, u64),
}

/// What was used between the two.
pub(crate) struct Used {
    pub(crate) base_rss: usize,
    pub(crate) peak_rss: usize,
    pub(crate) minor_faults: u64,
    pub(crate) major_faults: u64,
}

impl Usage {
    pub(crate) fn begin() -> Self {
        // The high-water mark is to be that of the work alone; without /proc the start counts as well.
        let _ = fs::write("/proc/self/clear_refs", "5");
        Self {
            base_rss: rss(),
            faults: faults(),
        }
    }

    pub(crate) fn end(&self) -> Used {
        let (minor, major) = faults();
        Used {
            base_rss: self.base_rss,
            peak_rss: status("VmHWM"),
            minor_faults: minor - self.faults.0,
            major_faults: major - self.faults.1,
        }
    }
}

/// Touch memory and give it back.
///
/// A hypervisor puts memory behind a page when it is first used, which takes longer than all that
/// is measured here and happens to the first user alone. After this it is there for everyone.
pub(crate) fn settle(bytes: usize) -> Result<(), String> {
    if bytes == 0 {
        return Ok(());
    }
    // SAFETY: a new mapping at a place that the kernel chooses.
    let memory = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if memory == libc::MAP_FAILED {
        return Err(format!("cannot map {bytes} bytes to settle"));
    }
    // SAFETY: the mapping from above; huge pages are only a wish.
    unsafe { libc::madvise(memory, bytes, libc::MADV_HUGEPAGE) };
    for offset in (0..bytes).step_by(4096) {
        // SAFETY: within the mapping, which nobody else knows.
        unsafe { memory.cast::<u8>().add(offset).write_volatile(1) };
    }
    // SAFETY: the mapping from above.
    unsafe { libc::munmap(memory, bytes) };
    Ok(())
}

/// A child with a copy of this process's memory, which does nothing. It ends when this is dropped.
pub(crate) struct Child {
    pid: libc::pid_t,
    alive: libc::c_int,
}

impl Child {
    pub(crate) fn fork() -> Result<Self, String> {
        let mut ends = [0; 2];
        // SAFETY: the array is valid for two descriptors. The child makes system calls alone, and
        // waits until the other end of the pipe is closed.
        unsafe {
            if libc::pipe(ends.as_mut_ptr()) != 0 {
                return Err(format!("pipe: {}", std::io::Error::last_os_error()));
            }
            let pid = libc::fork();
            if pid == 0 {
                libc::close(ends[1]);
                libc::read(ends[0], (&raw mut ends).cast(), 1);
                libc::_exit(0);
            }
            let error = std::io::Error::last_os_error();
            libc::close(ends[0]);
            if pid < 0 {
                libc::close(ends[1]);
                return Err(format!("fork: {error}"));
            }
            Ok(Self {
                pid,
                alive: ends[1],
            })
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // SAFETY: a descriptor and a child of ours.
        unsafe {
            libc::close(self.alive);
            libc::waitpid(self.pid, std::ptr::null_mut(), 0);
        }
    }
}
