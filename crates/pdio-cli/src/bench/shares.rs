// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the functions in which the processor was found have in common, and the kernel's own profile of
//! them, `/proc/profile`.

use std::collections::HashMap;
use std::io;

use serde::{Deserialize, Serialize};

/// There if the kernel was booted with `profile=4`: one counter for each sixteen bytes of its code,
/// counted up at the ticks of the clock.
const KERNEL_PROFILE: &str = "/proc/profile";

/// Shares of samples of the whole system, without idle ones, in percent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Shares {
    /// Copies between user and kernel.
    pub copy_percent: f64,
    /// Cleaning and invalidating processor caches for devices.
    pub cache_percent: f64,
    /// Ends of sections without interrupts. A profiler that is driven by an interrupt books the
    /// time of the whole section there.
    pub interrupt_percent: f64,
    /// Samples.
    pub samples: u64,
    /// The functions with the most samples, and their shares in percent.
    pub top: Vec<(String, f64)>,
}

impl Shares {
    /// The shares of these samples, counted by function.
    pub fn of<'a>(counts: impl Iterator<Item = (&'a str, u64)>) -> Shares {
        let counts: Vec<(&str, u64)> = counts.collect();
        let all: u64 = counts.iter().map(|(_, n)| n).sum();
        let share = |n: u64| 100.0 * n as f64 / all.max(1) as f64;
        let sum = |class: fn(&str) -> bool| {
            let members = counts.iter().filter(|(symbol, _)| class(symbol));
            share(members.map(|(_, n)| n).sum())
        };
        let mut top: Vec<(String, f64)> = counts
            .iter()
            .map(|(symbol, n)| (symbol.to_string(), share(*n)))
            .collect();
        top.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        top.truncate(10);
        Shares {
            copy_percent: sum(copies),
            cache_percent: sum(maintains_caches),
            interrupt_percent: sum(turns_interrupts_on),
            samples: all,
            top,
        }
    }
}

/// The kernel's profile of the passes of one measurement.
#[derive(Default)]
pub struct Kernel {
    /// Samples by function.
    counts: HashMap<String, u64>,
}

/// Where the kernel idles.
const IDLE: [&str; 8] = [
    "default_idle",
    "default_idle_call",
    "arch_cpu_idle",
    "pv_native_safe_halt",
    "acpi_safe_halt",
    "mwait_idle",
    "cpu_idle_poll",
    "do_idle",
];

impl Kernel {
    /// Sets all counters to zero.
    ///
    /// # Errors
    /// If there is no such profile, or no right to.
    pub fn begin(&mut self) -> io::Result<()> {
        // The file is there without the word on the kernel's command line as well, but empty.
        std::fs::write(KERNEL_PROFILE, "0")
    }

    /// Adds what was counted since.
    ///
    /// # Errors
    /// If the profile or the names of the functions cannot be read.
    pub fn end(&mut self) -> io::Result<()> {
        let profile = std::fs::read(KERNEL_PROFILE)?;
        // Looking takes a few ticks itself, which are in the profile. How many, a look at nothing
        // tells.
        self.begin()?;
        let looking = std::fs::read(KERNEL_PROFILE)?;
        let symbols = std::fs::read_to_string("/proc/kallsyms")?;
        let count = self.by_function(&profile, &symbols)?;
        let excess = self.by_function(&looking, &symbols)?;
        for (name, count) in count {
            let excess = excess.get(&name).copied().unwrap_or(0);
            *self.counts.entry(name).or_default() += count.saturating_sub(excess);
        }
        Ok(())
    }

    fn by_function(&self, profile: &[u8], symbols: &str) -> io::Result<HashMap<String, u64>> {
        let mut counts = HashMap::new();
        let mut functions: Vec<(u64, &str)> = symbols
            .lines()
            .filter_map(|line| {
                let mut fields = line.split_whitespace();
                let at = u64::from_str_radix(fields.next()?, 16).ok()?;
                let kind = fields.next()?;
                matches!(kind, "t" | "T" | "w" | "W").then_some((at, fields.next()?))
            })
            .collect();
        functions.sort_by_key(|(at, _)| *at);
        let begin = functions.iter().find(|(_, name)| *name == "_stext");
        // Zero for those who may not know.
        let begin = begin.map(|(at, _)| *at).filter(|at| *at > 0);
        let begin = begin.ok_or_else(|| io::Error::other("/proc/kallsyms shows no addresses"))?;
        let (words, _) = profile.as_chunks();
        let mut counters = words.iter().map(|word| u32::from_le_bytes(*word));
        // The first says how many bytes of code share a counter.
        let step = u64::from(counters.next().unwrap_or(0));
        for (i, count) in counters.enumerate().filter(|(_, count)| *count > 0) {
            let at = begin + i as u64 * step;
            let after = functions.partition_point(|(from, _)| *from <= at);
            let name = after.checked_sub(1).map_or("?", |i| functions[i].1);
            if !IDLE.contains(&name) {
                *counts.entry(name.to_string()).or_default() += u64::from(count);
            }
        }
        Ok(counts)
    }

    /// The shares, of all time that was not idle. Programs are not in the profile: `user_share` is
    /// their part of that time, 0 to 1.
    pub fn shares(&self, user_share: f64) -> Shares {
        let mut shares = Shares::of(self.counts.iter().map(|(name, n)| (name.as_str(), *n)));
        let kernel = 1.0 - user_share;
        shares.copy_percent *= kernel;
        shares.cache_percent *= kernel;
        shares.interrupt_percent *= kernel;
        for (_, share) in &mut shares.top {
            *share *= kernel;
        }
        shares
    }
}

fn copies(symbol: &str) -> bool {
    [
        "copy_to_user",
        "copy_from_user",
        "copy_user",
        "arm_copy_",
        "copy_to_iter",
        "copy_from_iter",
        "copy_folio_from_iter",
        "copy_folio_to_iter",
        "copy_page_from_iter",
        "copy_page_to_iter",
        "rep_movs",
    ]
    .iter()
    .any(|part| symbol.contains(part))
}

fn maintains_caches(symbol: &str) -> bool {
    [
        "v7_dma_",
        "v7_flush_",
        "dcache_clean",
        "dcache_inval",
        "l2c210_",
        "arch_sync_dma",
    ]
    .iter()
    .any(|part| symbol.contains(part))
}

fn turns_interrupts_on(symbol: &str) -> bool {
    symbol.starts_with("_raw_spin_unlock_irq")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_the_kernel_belong_to_functions_and_idle_ones_and_programs_are_left_out() {
        let symbols = "0000 A absolute\n1000 T _stext\n1000 t first\n1008 T rep_movs_alternative\n\
                       1010 t default_idle\n1018 D data\n";
        // Four bytes a counter: first, first, copy, copy, idle.
        let profile: Vec<u8> = [4u32, 0, 1, 2, 1, 9]
            .iter()
            .flat_map(|n| n.to_le_bytes())
            .collect();
        let mut kernel = Kernel::default();
        assert!(kernel.by_function(&profile, "0 T _stext\n").is_err());
        kernel.counts = kernel.by_function(&profile, symbols).unwrap();
        let shares = kernel.shares(0.5);
        assert_eq!(shares.samples, 4);
        assert_eq!(shares.copy_percent, 37.5);
        assert_eq!(shares.top[0].0, "rep_movs_alternative");
    }
}
