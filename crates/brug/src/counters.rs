// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counters of what happened. They are kept off the path of small objects.

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

#[inline]
pub(crate) fn bump(counter: &AtomicU64, by: usize) {
    counter.fetch_add(by as u64, Relaxed);
}

/// Makes, of the list of all counters, where they are counted and what they are read as.
macro_rules! counters {
    ($($(#[$doc:meta])+ $name:ident,)+) => {
        pub(crate) struct Counters {
            $(pub(crate) $name: AtomicU64,)+
        }

        pub(crate) static COUNTERS: Counters = Counters {
            $($name: AtomicU64::new(0),)+
        };

        /// What the parents of this process had done before it.
        static BEFORE: Counters = Counters {
            $($name: AtomicU64::new(0),)+
        };

        /// In the child of a fork: what is counted from here on is its own.
        pub(crate) fn begin_after(parents: &Stats) {
            $(BEFORE.$name.store(parents.$name, Relaxed);)+
        }

        /// What the allocator has done since the process began. Counters are read one by
        /// one; in a running program they may be a call apart.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Stats {
            /// Growth slots that hold an object now.
            pub slots_live: u64,
            /// Bytes in those slots that are readable and writable.
            pub bytes_committed: u64,
            /// Bytes of memory kept for coming objects.
            pub bytes_retained: u64,
            $($(#[$doc])+ pub $name: u64,)+
        }

        /// Number of fields: the counters and three that are read.
        const ROWS: usize = 3 + [$(stringify!($name)),+].len();

        /// The counters; what is not counted is 0.
        pub(crate) fn read() -> Stats {
            Stats {
                $($name: COUNTERS.$name.load(Relaxed),)+
                ..Stats::default()
            }
        }

        impl Stats {
            /// Without what the parents of this process had done.
            pub(crate) fn own(self) -> Stats {
                Stats {
                    $($name: self.$name.saturating_sub(BEFORE.$name.load(Relaxed)),)+
                    ..self
                }
            }

            /// Names and values, in the order of the fields.
            pub fn rows(&self) -> [(&'static str, u64); ROWS] {
                [
                    ("slots_live", self.slots_live),
                    ("bytes_committed", self.bytes_committed),
                    ("bytes_retained", self.bytes_retained),
                    $((stringify!($name), self.$name),)+
                ]
            }
        }
    };
}

counters! {
    /// Reallocations that made an object larger where it was.
    grows_in_place,
    /// Reallocations that made an object smaller where it was.
    shrinks,
    /// Bytes that growing in place and moving page tables did not copy.
    bytes_not_copied,
    /// Objects that got a slot with memory in it.
    warm_reuses,
    /// Objects that moved to a larger slot by their page tables.
    page_moves,
    /// Objects that moved from the base allocator to a slot (one copy each).
    moves_in,
    /// Those of them that were below the switch point but kept growing.
    moves_early,
    /// Objects that moved from a slot to the base allocator (one copy each).
    moves_out,
    /// Bytes copied when objects moved between allocators.
    bytes_copied,
    /// Fallback: no address space could be reserved.
    no_arena,
    /// Fallback: all slots taken.
    no_slot,
    /// Fallback: the system would not commit memory in a slot.
    no_commit,
    /// Fallback: page tables could not be moved.
    no_move,
    /// Requests that could not be met at all.
    no_memory,
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
