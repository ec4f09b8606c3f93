// SPDX-License-Identifier: MIT OR Apache-2.0
//! What bytes took: time, and the processor time of the whole system.

use std::time::Duration;

use crate::sys;

/// What clocks say.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    time: Duration,
    /// CPU time of the system, if it could be read, and of this thread.
    cpu: Option<Duration>,
    own: Duration,
    thread: i32,
}

pub(crate) fn moment() -> Moment {
    Moment {
        time: clock::now(),
        cpu: clock::system_cpu(),
        own: clock::thread_cpu(),
        thread: sys::thread_id(),
    }
}

/// What a second of one processor's time counts, of a second that passes.
pub(crate) fn cpu_weight() -> f64 {
    1.0 / f64::from(sys::cpus())
}

/// What some bytes took.
pub(crate) struct Spent {
    pub time: Duration,
    /// What a byte cost, in nanoseconds.
    pub cost: f64,
    /// How long the thread waited for a byte, in nanoseconds; `None` if it is another thread by now.
    pub waited: Option<f64>,
}

/// What `bytes` took since `begun`.
pub(crate) fn spent(begun: Moment, bytes: u64) -> Spent {
    let now = moment();
    // The clock of another time namespace may be behind.
    let time = now.time.saturating_sub(begun.time);
    let own = (now.thread == begun.thread).then(|| now.own.saturating_sub(begun.own));
    let cpu = match (begun.cpu, now.cpu) {
        (Some(begun), Some(now)) => now.saturating_sub(begun),
        // It is the part that is known.
        _ => own.unwrap_or(Duration::ZERO),
    };
    let cpu = cpu.as_nanos() as f64 * cpu_weight();
    let bytes = bytes.max(1) as f64;
    let waited = own.map(|own| time.saturating_sub(own).as_nanos() as f64 / bytes);
    Spent {
        time,
        cost: (time.as_nanos() as f64 + cpu) / bytes,
        waited,
    }
}

/// What costs are made of.
#[cfg(not(test))]
pub(crate) mod clock {
    pub(crate) use crate::cpu::of_system as system_cpu;
    pub(crate) use crate::sys::{coarse_now, now, thread_cpu};

    /// What a copy costs of data that the processor has just had, in ns per byte.
    pub(crate) fn copy_cost() -> f64 {
        use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
        const LEN: usize = 64 << 10;
        // Measured once, or twice by two threads at a time; a lock could be held for ever in a
        // forked child.
        static COST: AtomicU64 = AtomicU64::new(0);
        if COST.load(Relaxed) == 0 {
            let (from, mut to) = (vec![1u8; LEN], vec![2u8; LEN]);
            let once = |_| {
                let begun = now();
                to.copy_from_slice(std::hint::black_box(&from));
                std::hint::black_box(&to);
                (now() - begun).as_nanos() as u64
            };
            // Interference only adds.
            let least = (0..3).map(once).min().unwrap_or(0);
            COST.store(least.max(1), Relaxed);
        }
        COST.load(Relaxed) as f64 / LEN as f64
    }
}

/// The same in tests: time passes when a test says so.
#[cfg(test)]
pub(crate) mod clock {
    use super::*;
    use std::cell::Cell;

    thread_local! {
        static NOW: Cell<Duration> = const { Cell::new(Duration::from_secs(1)) };
    }

    pub(crate) fn thread_cpu() -> Duration {
        WORKED.get()
    }

    pub(crate) fn now() -> Duration {
        NOW.get()
    }

    pub(crate) fn coarse_now() -> Duration {
        now()
    }

    pub(crate) fn system_cpu() -> Option<Duration> {
        SYSTEM.get()
    }

    thread_local! {
        pub(crate) static SYSTEM: Cell<Option<Duration>> = const { Cell::new(Some(Duration::ZERO)) };
        pub(crate) static WORKED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
        pub(crate) static COPY: Cell<f64> = const { Cell::new(0.0) };
    }

    pub(crate) fn copy_cost() -> f64 {
        COPY.get()
    }

    pub(crate) fn pass(time: Duration) {
        NOW.set(now() + time);
    }

    pub(crate) fn set(time: Duration) {
        NOW.set(time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_that_moves_to_another_thread_does_not_compare_their_clocks() {
        // What this thread has used, and another one.
        for (here, there) in [(0, 1000), (1000, 0)] {
            clock::WORKED.set(Duration::from_millis(here));
            let begun = moment();
            let elsewhere = move || {
                clock::WORKED.set(Duration::from_millis(there));
                clock::pass(Duration::from_millis(8));
                spent(begun, 1).waited
            };
            let waited = std::thread::spawn(elsewhere).join().unwrap();
            assert_eq!(waited, None, "{here} and {there} ms");
        }
    }

    #[test]
    fn where_the_systems_time_cannot_be_read_the_threads_own_counts() {
        const MS: Duration = Duration::from_millis(1);
        let known = Some(100_000 * MS);
        for (first, last) in [(None, known), (known, None), (None, None)] {
            clock::SYSTEM.set(first);
            let begun = moment();
            clock::SYSTEM.set(last);
            clock::pass(3 * MS);
            clock::WORKED.set(clock::WORKED.get() + 2 * MS);
            let expected = 3e6 + 2e6 / f64::from(sys::cpus());
            assert_eq!(spent(begun, 1).cost, expected, "{first:?} to {last:?}");
        }
    }
}
