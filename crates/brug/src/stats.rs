// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counters of what happened. They are kept off the path of small objects.

use core::ffi::c_int;
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::config::ShowStats;
use crate::tuner::tuner_report;
use crate::{arena, os, purge};

#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) grows_in_place: AtomicU64,
    pub(crate) shrinks: AtomicU64,
    pub(crate) bytes_not_copied: AtomicU64,
    pub(crate) warm_reuses: AtomicU64,
    pub(crate) page_moves: AtomicU64,
    pub(crate) moves_in: AtomicU64,
    pub(crate) moves_early: AtomicU64,
    pub(crate) moves_out: AtomicU64,
    pub(crate) bytes_copied: AtomicU64,
    pub(crate) no_arena: AtomicU64,
    pub(crate) no_slot: AtomicU64,
    pub(crate) no_commit: AtomicU64,
    pub(crate) no_move: AtomicU64,
    pub(crate) no_memory: AtomicU64,
}

macro_rules! zero {
    ($($field:ident)*) => { Counters { $($field: AtomicU64::new(0)),* } };
}

pub(crate) static STATS: Counters = zero!(grows_in_place shrinks bytes_not_copied warm_reuses
    page_moves moves_in moves_early moves_out bytes_copied no_arena no_slot no_commit no_move
    no_memory);

#[inline]
pub(crate) fn bump(counter: &AtomicU64, by: usize) {
    counter.fetch_add(by as u64, Relaxed);
}

/// What the allocator has done since the program began. Counters are read one by
/// one; in a running program they may be a call apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Growth slots that hold an object now.
    pub slots_live: u64,
    /// Bytes in those slots that are readable and writable.
    pub bytes_committed: u64,
    /// Bytes of memory kept for coming objects.
    pub bytes_retained: u64,
    /// Reallocations that made an object larger where it was.
    pub grows_in_place: u64,
    /// Reallocations that made an object smaller where it was.
    pub shrinks: u64,
    /// Bytes those objects had, which a malloc-copy-free would have copied.
    pub bytes_not_copied: u64,
    /// Objects that got a slot with memory in it.
    pub warm_reuses: u64,
    /// Objects that moved to a larger slot by their page tables.
    pub page_moves: u64,
    /// Objects that moved from the base allocator to a slot (one copy each).
    pub moves_in: u64,
    /// Those of them that were below the switch point but kept growing.
    pub moves_early: u64,
    /// Objects that moved from a slot to the base allocator (one copy each).
    pub moves_out: u64,
    /// Bytes copied by those moves.
    pub bytes_copied: u64,
    /// Fallback: no address space could be reserved.
    pub no_arena: u64,
    /// Fallback: all slots taken.
    pub no_slot: u64,
    /// Fallback: the system would not commit memory in a slot.
    pub no_commit: u64,
    /// Fallback: page tables could not be moved.
    pub no_move: u64,
    /// Requests that could not be met at all.
    pub no_memory: u64,
}

/// The counters now.
pub fn stats() -> Stats {
    let get = |c: &AtomicU64| c.load(Relaxed);
    let (grows, not_copied) = arena::growths();
    Stats {
        slots_live: arena::live() as u64,
        bytes_committed: arena::committed() as u64,
        bytes_retained: purge::RETAINED.load(Relaxed) as u64,
        grows_in_place: get(&STATS.grows_in_place) + grows,
        shrinks: get(&STATS.shrinks),
        bytes_not_copied: get(&STATS.bytes_not_copied) + not_copied,
        warm_reuses: get(&STATS.warm_reuses),
        page_moves: get(&STATS.page_moves),
        moves_in: get(&STATS.moves_in),
        moves_early: get(&STATS.moves_early),
        moves_out: get(&STATS.moves_out),
        bytes_copied: get(&STATS.bytes_copied),
        no_arena: get(&STATS.no_arena),
        no_slot: get(&STATS.no_slot),
        no_commit: get(&STATS.no_commit),
        no_move: get(&STATS.no_move),
        no_memory: get(&STATS.no_memory),
    }
}

impl Stats {
    /// Names and values, in the order of the fields.
    pub fn rows(&self) -> [(&'static str, u64); 17] {
        [
            ("slots_live", self.slots_live),
            ("bytes_committed", self.bytes_committed),
            ("bytes_retained", self.bytes_retained),
            ("grows_in_place", self.grows_in_place),
            ("shrinks", self.shrinks),
            ("bytes_not_copied", self.bytes_not_copied),
            ("warm_reuses", self.warm_reuses),
            ("page_moves", self.page_moves),
            ("moves_in", self.moves_in),
            ("moves_early", self.moves_early),
            ("moves_out", self.moves_out),
            ("bytes_copied", self.bytes_copied),
            ("no_arena", self.no_arena),
            ("no_slot", self.no_slot),
            ("no_commit", self.no_commit),
            ("no_move", self.no_move),
            ("no_memory", self.no_memory),
        ]
    }
}

impl fmt::Display for Stats {
    /// One counter to a line. Allocates nothing.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in self.rows() {
            writeln!(f, "{name:<18}{value:>20}")?;
        }
        Ok(())
    }
}

/// Writes the statistics where the configuration wants them. Allocates nothing.
pub(crate) fn show(how: ShowStats) {
    struct To(c_int);
    impl fmt::Write for To {
        fn write_str(&mut self, s: &str) -> fmt::Result {
            os::write_all(self.0, s.as_bytes())
                .then_some(())
                .ok_or(fmt::Error)
        }
    }
    let stats = stats();
    match how {
        ShowStats::No => {}
        ShowStats::Text => {
            let out = &mut To(2);
            let _ = write!(
                out,
                "brug, mode {}\n{stats}{}",
                crate::Brug::mode(),
                tuner_report()
            );
            #[cfg(feature = "monitor")]
            if crate::monitor::on() {
                let _ = write!(out, "{}", crate::monitor::report());
            }
        }
        ShowStats::Json(path) => {
            let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND | libc::O_CLOEXEC;
            // SAFETY: a C string.
            let fd = unsafe { libc::open(path.as_ptr(), flags, 0o644) };
            let written = fd >= 0 && json(&mut To(fd), &stats).is_ok();
            if !written {
                let path = path.to_str().unwrap_or("?");
                os::complain(format_args!("cannot write statistics to {path}"));
            }
            if fd >= 0 {
                // SAFETY: opened above.
                unsafe { libc::close(fd) };
            }
        }
    }
}

fn json(out: &mut impl fmt::Write, stats: &Stats) -> fmt::Result {
    write!(out, "{{\"mode\":\"{}\"", crate::Brug::mode())?;
    for (name, value) in stats.rows() {
        write!(out, ",\"{name}\":{value}")?;
    }
    #[cfg(feature = "monitor")]
    if crate::monitor::on() {
        out.write_str(",\"monitor\":")?;
        crate::monitor::report().json(out)?;
    }
    out.write_str("}\n")
}
