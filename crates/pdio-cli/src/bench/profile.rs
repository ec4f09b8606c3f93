// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the processor time goes, by `perf` with its software clock, which needs no counters in
//! hardware: the paper's figure 4.

use std::path::Path;
use std::process::{Command, Stdio};

use serde::Serialize;

use super::cell::{Cell, Measured};
use crate::report::{Fail, Outcome};

/// Shares of samples of the whole system, without idle ones, in percent.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
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

/// Makes sure that perf is there and may profile the system.
///
/// # Errors
/// What is missing.
pub fn check() -> Outcome {
    let result = Command::new("perf")
        .args([
            "record",
            "-q",
            "-e",
            "cpu-clock",
            "-a",
            "-o",
            "/dev/null",
            "true",
        ])
        .stdin(Stdio::null())
        .output();
    match result {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stderr);
            Err(Fail::Failed(format!(
                "--profile: perf may not profile the system (root may, or \
                 kernel.perf_event_paranoid=-1): {}",
                text.lines().next().unwrap_or("it does not say why")
            )))
        }
        Err(error) => Err(Fail::Failed(format!(
            "--profile: cannot run perf, Debian's linux-perf: {error}"
        ))),
    }
}

/// Runs the measurement once more, profiled.
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

/// Counts the lines of `perf script -F comm,time,ip,sym` that fall into the passes.
fn count(text: &str, passes: &[(f64, f64)]) -> Shares {
    let mut by_symbol = std::collections::HashMap::<&str, u64>::new();
    let mut all = 0u64;
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
        if !timed || command.trim() == "swapper" {
            continue;
        }
        *by_symbol.entry(symbol).or_default() += 1;
        all += 1;
    }
    let share = |n: u64| 100.0 * n as f64 / all.max(1) as f64;
    let sum = |class: fn(&str) -> bool| {
        let members = by_symbol.iter().filter(|(symbol, _)| class(symbol));
        share(members.map(|(_, n)| n).sum())
    };
    let mut top: Vec<(String, f64)> = by_symbol
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
}
