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
        // The high-water mark shall be of the work, not of the start; without /proc it is of both.
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
