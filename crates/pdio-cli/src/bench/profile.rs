// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds where the processor time goes, for the paper's figure 4: by `perf` with its software clock,
//! which needs no counters in hardware, or by the kernel's own profile, which needs no program.

use std::collections::HashMap;
use std::path::Path;
use std::process::{Command, Stdio};

use super::cell::{Cell, Measured};
use super::child;
use super::shares::{Kernel, Shares};
use crate::report::{reason, Fail, Outcome};
use crate::signals::Signals;

/// What finds where the time goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profiler {
    /// `perf record -e cpu-clock -a`.
    Perf,
    /// `/proc/profile`, which costs nothing but two looks and comes with each measurement.
    Kernel,
}

/// Returns the profiler that works here.
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
        Err(error) => format!("cannot run perf, Debian's linux-perf: {}", reason(&error)),
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
pub fn shares(cell: &Cell, data: &Path, signals: &Signals) -> Outcome<Shares> {
    let measured = cell.command()?;
    let failed = |what: &str| Fail::Failed(format!("--profile: perf {what} failed"));
    let mut record = Command::new("perf");
    record
        .args(["record", "-q", "-k", "CLOCK_MONOTONIC"])
        .args(["-e", "cpu-clock", "-F", "997", "-a", "-o"])
        .arg(data)
        .arg("--")
        .arg(measured.get_program())
        .args(measured.get_args())
        .stderr(Stdio::null());
    let mut script = Command::new("perf");
    script
        .args(["script", "-F", "comm,time,ip,sym", "-i"])
        .arg(data)
        .stderr(Stdio::null());
    let recorded = child::output(&mut record, signals);
    let recorded = recorded.and_then(|record| Ok((record, child::output(&mut script, signals)?)));
    let _ = std::fs::remove_file(data);
    let (record, script) = recorded?;
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
