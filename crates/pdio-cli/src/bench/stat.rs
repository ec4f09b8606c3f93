// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processor time by core, from `/proc/stat`.

use std::io;
use std::time::Instant;

/// Time each core has spent in the kernel and outside it, at a moment.
#[derive(Clone, Debug)]
pub struct Cores {
    /// The moment.
    pub at: Instant,
    /// Clock ticks in system calls and kernel threads, interrupts and soft interrupts.
    kernel: Vec<u64>,
    /// And in programs.
    user: Vec<u64>,
}

impl Cores {
    /// Looks now.
    ///
    /// # Errors
    /// If there is no `/proc/stat`.
    pub fn now() -> io::Result<Cores> {
        let text = std::fs::read_to_string("/proc/stat")?;
        let (kernel, user) = parse(&text).into_iter().unzip();
        Ok(Cores {
            at: Instant::now(),
            kernel,
            user,
        })
    }

    /// Of the time since `before`, the share the busiest core spent in the kernel, 0 to 1.
    pub fn busiest_kernel_share(&self, before: &Cores) -> f64 {
        let ticks = since(&self.kernel, &before.kernel).max().unwrap_or(0) as f64;
        let all = (self.at - before.at).as_secs_f64() * tick_rate();
        (ticks / all.max(1e-9)).min(1.0)
    }

    /// Milliseconds all cores together spent in the kernel since `before`.
    pub fn kernel_ms_since(&self, before: &Cores) -> f64 {
        since(&self.kernel, &before.kernel).sum::<u64>() as f64 * 1e3 / tick_rate()
    }

    /// Milliseconds all cores together spent in programs since `before`.
    pub fn user_ms_since(&self, before: &Cores) -> f64 {
        since(&self.user, &before.user).sum::<u64>() as f64 * 1e3 / tick_rate()
    }
}

fn since<'a>(now: &'a [u64], then: &'a [u64]) -> impl Iterator<Item = u64> + 'a {
    let pairs = now.iter().zip(then);
    pairs.map(|(now, then)| now.saturating_sub(*then))
}

fn tick_rate() -> f64 {
    rustix::param::clock_ticks_per_second() as f64
}

/// For each core, the ticks in the kernel and those in programs.
fn parse(text: &str) -> Vec<(u64, u64)> {
    let mut cores = Vec::new();
    for line in text.lines() {
        let Some(rest) = line.strip_prefix("cpu") else {
            continue;
        };
        // The line of all cores together has a space here.
        if !rest.starts_with(|c: char| c.is_ascii_digit()) {
            continue;
        }
        let fields: Vec<u64> = rest
            .split_whitespace()
            .skip(1)
            .map(|f| f.parse().unwrap_or(0))
            .collect();
        let field = |i: usize| fields.get(i).copied().unwrap_or(0);
        cores.push((field(2) + field(5) + field(6), field(0) + field(1)));
    }
    cores
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const THEN: &str = "cpu  10 0 30 100 0 3 3 0 0 0\ncpu0 5 0 10 50 0 1 1 0 0 0\ncpu1 5 0 20 50 0 2 2 0 0 0\nintr 1\n";

    #[test]
    fn kernel_time_is_system_and_interrupts_of_each_core() {
        assert_eq!(parse(THEN), [(12, 5), (24, 5)]);
    }

    #[test]
    fn the_busiest_core_counts_for_the_share_and_all_for_the_sum() {
        let at = Instant::now();
        let then = Cores {
            at,
            kernel: vec![12, 24],
            user: vec![0, 0],
        };
        let now = Cores {
            at: at + Duration::from_secs(1),
            kernel: vec![12 + tick_rate() as u64 / 2, 24 + tick_rate() as u64 / 4],
            user: vec![0, tick_rate() as u64],
        };
        assert!((now.busiest_kernel_share(&then) - 0.5).abs() < 1e-9);
        assert!((now.kernel_ms_since(&then) - 750.0).abs() < 1e-6);
        assert!((now.user_ms_since(&then) - 1000.0).abs() < 1e-6);
    }
}
