// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the processor time goes, the paper's figure 4: by `perf` with its software clock, which
//! needs no counters in hardware, or by the kernel's own profile, `/proc/profile`, which needs no
//! program.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use super::cell::{Cell, Measured};
use crate::report::{Fail, Outcome};

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

/// Who looks where the time goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profiler {
    /// `perf record -e cpu-clock -a`.
    Perf,
    /// `/proc/profile`, which costs nothing but two looks and comes with each measurement.
    Kernel,
}

/// Which profiler there is.
///
/// # Errors
/// What is missing.
pub fn check() -> Outcome<Profiler> {
    let result = Command::new("perf")
        .args(["record", "-q", "-e", "cpu-clock", "-a", "-o"])
        .args(["/dev/null", "true"])
        .stdin(Stdio::null())
        .output();
    let why = match result {
        Ok(output) if output.status.success() => return Ok(Profiler::Perf),
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stderr);
            let said = text.lines().next().unwrap_or("it does not say why");
            format!(
                "perf may not profile the system (root may, or kernel.perf_event_paranoid=-1): \
                 {said}"
            )
        }
        Err(error) => format!("cannot run perf, Debian's linux-perf: {error}"),
    };
    match Kernel::default().begin() {
        Ok(()) => Ok(Profiler::Kernel),
        Err(_) => Err(Fail::Failed(format!(
            "--profile: {why}; nor was the kernel booted with profile=4 for /proc/profile"
        ))),
    }
}

/// Runs the measurement once more, under perf.
///
/// # Errors
/// If perf fails.
pub fn shares(cell: &Cell, data: &Path) -> Outcome<Shares> {
    let measured = cell.command()?;
    let failed = |what: &str| Fail::Failed(format!("--profile: perf {what} failed"));
    let record = Command::new("perf")
        .args(["record", "-q", "-k", "CLOCK_MONOTONIC"])
        .args(["-e", "cpu-clock", "-F", "997", "-a", "-o"])
        .arg(data)
        .arg("--")
        .arg(measured.get_program())
        .args(measured.get_args())
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    let script = Command::new("perf")
        .args(["script", "-F", "comm,time,ip,sym", "-i"])
        .arg(data)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    let _ = std::fs::remove_file(data);
    let measured: Measured = match record {
        Ok(output) => serde_json::from_slice(&output.stdout).map_err(|_| failed("record"))?,
        Err(_) => return Err(failed("record")),
    };
    match script {
        Ok(output) if output.status.success() => {
            let text = String::from_utf8_lossy(&output.stdout);
            Ok(count(&text, &measured.passes))
        }
        _ => Err(failed("script")),
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

impl Shares {
    fn of<'a>(counts: impl Iterator<Item = (&'a str, u64)>) -> Shares {
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

/// Counts the lines of `perf script -F comm,time,ip,sym` that fall into the passes.
fn count(text: &str, passes: &[(f64, f64)]) -> Shares {
    let mut by_symbol = HashMap::<&str, u64>::new();
    for line in text.lines() {
        // COMMAND TIME: ADDRESS SYMBOL, where a command may contain anything.
        let Some((rest, symbol)) = line.trim().rsplit_once(' ') else {
            continue;
        };
        let Some((rest, _address)) = rest.trim_end().rsplit_once(' ') else {
            continue;
        };
        let (command, time) = rest.trim_end().rsplit_once(' ').unwrap_or(("", rest));
        let time: f64 = time.trim_end_matches(':').parse().unwrap_or(-1.0);
        let timed = passes
            .iter()
            .any(|(from, to)| (*from..=*to).contains(&time));
        // The swapper is the idle task.
        if timed && command.trim() != "swapper" {
            *by_symbol.entry(symbol).or_default() += 1;
        }
    }
    Shares::of(by_symbol.into_iter())
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
    fn samples_of_the_passes_are_counted_by_class_without_idle_ones() {
        let text = "swapper  1.500000: ffffffff81 pv_native_safe_halt\n\
                    pdio  0.900000: ffffffff82 copy_user_before_the_pass\n\
                    pdio  1.100000: ffffffff82 copy_folio_from_iter_atomic\n\
                    pdio  1.200000: ffffffff82 rep_movs_alternative\n\
                    kworker/u4:1-fl  2.100000: ffffffff83 _raw_spin_unlock_irqrestore\n\
                    my tool  2.200000: 401000 main\n";
        let shares = count(text, &[(1.0, 2.0), (2.05, 3.0)]);
        assert_eq!(shares.samples, 4);
        assert_eq!(shares.copy_percent, 50.0);
        assert_eq!(shares.interrupt_percent, 25.0);
        assert_eq!(shares.cache_percent, 0.0);
    }

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
