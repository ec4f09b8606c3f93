// SPDX-License-Identifier: MIT OR Apache-2.0
//! What was measured in a directory: medians over the rounds, as tables and as JSON.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::json;

use super::cell::{Direction, Measured, Mode, Paced};
use super::shares::Shares;
use crate::report::amount;

/// The medians of one direction, block size and mode.
pub struct Row {
    pub direction: Direction,
    pub block: u64,
    pub mode: Mode,
    pub runs: Vec<Measured>,
    pub profile: Option<Shares>,
}

impl Row {
    fn median(&self, value: impl Fn(&Measured) -> f64) -> f64 {
        let mut values: Vec<f64> = self.runs.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        match values.len() {
            0 => f64::NAN,
            n => (values[(n - 1) / 2] + values[n / 2]) / 2.0,
        }
    }

    fn speed(&self) -> f64 {
        self.median(|m| m.bytes as f64 / m.seconds / 1024.0 / 1024.0)
    }

    /// Half of the distance between the slowest and the fastest run, in percent of the median.
    fn spread_percent(&self) -> f64 {
        let speeds = self.runs.iter().map(|m| m.bytes as f64 / m.seconds);
        let (least, most) = speeds.fold((f64::INFINITY, 0f64), |(l, m), s| (l.min(s), m.max(s)));
        50.0 * (most - least) / (self.speed() * 1024.0 * 1024.0)
    }

    fn system_ms_per_gib(&self) -> f64 {
        self.median(|m| m.system_kernel_ms / m.bytes as f64 * (1u64 << 30) as f64)
    }

    fn process_ms_per_gib(&self) -> f64 {
        self.median(|m| m.process_kernel_ms / m.bytes as f64 * (1u64 << 30) as f64)
    }

    fn user_ms_per_gib(&self) -> f64 {
        self.median(|m| m.process_user_ms / m.bytes as f64 * (1u64 << 30) as f64)
    }

    fn core(&self) -> f64 {
        self.median(|m| m.core_kernel_percent)
    }
}

/// All that was measured in a directory.
pub struct Target {
    pub directory: PathBuf,
    pub filesystem: String,
    pub rows: Vec<Row>,
    /// What could not be measured, by block size and what it was, and why.
    pub unsupported: BTreeMap<(u64, String), String>,
}

/// A table of every size, direction and mode.
pub fn table(target: &Target, sizes: &[u64]) -> String {
    let mut text = format!("{} ({})", target.directory.display(), target.filesystem);
    for direction in [Direction::Write, Direction::Read] {
        let rows: Vec<&Row> = target
            .rows
            .iter()
            .filter(|r| r.direction == direction)
            .collect();
        if rows.is_empty() {
            continue;
        }
        let profiled = rows.iter().any(|r| r.profile.is_some());
        let mut modes: Vec<Mode> = rows.iter().map(|row| row.mode).collect();
        modes.sort();
        modes.dedup();
        let width = if profiled { 50 } else { 34 };
        text += &format!("\n\n{:>9}", format!("{direction:?}").to_lowercase());
        for mode in &modes {
            text += &format!(" | {:^width$}", format!("{mode:?}").to_lowercase());
        }
        text += &format!("\n{:>9}", "block");
        for _ in &modes {
            text += &format!(
                " | {:>7} {:>4} {:>6} {:>8} {:>5}",
                "MiB/s", "+-%", "core %", "ms/GiB", "user"
            );
            if profiled {
                text += &format!(" {:>4} {:>5} {:>4}", "copy", "cache", "irq%");
            }
        }
        for &block in sizes {
            text += &format!("\n{:>9}", amount(block, 1024));
            for mode in &modes {
                match rows.iter().find(|r| r.block == block && r.mode == *mode) {
                    Some(row) => {
                        text += &format!(
                            " | {:>7.0} {:>4.0} {:>6.0} {:>8.0} {:>5.0}",
                            row.speed(),
                            row.spread_percent(),
                            row.core(),
                            row.system_ms_per_gib(),
                            row.user_ms_per_gib()
                        );
                        if let Some(p) = &row.profile {
                            text += &format!(
                                " {:>4.0} {:>5.0} {:>4.0}",
                                p.copy_percent, p.cache_percent, p.interrupt_percent
                            );
                        }
                    }
                    None => text += &format!(" | {:^width$}", "-"),
                }
            }
        }
    }
    text + &excuses(target) + "\n"
}

/// The frames of `stream`: one line for each mode.
pub fn frames(target: &Target) -> String {
    let mut text = format!("{} ({})", target.directory.display(), target.filesystem);
    text += &format!(
        "\n{:>10} {:>7} {:>7} {:>10} {:>10} {:>10} {:>7}",
        "mode", "frames", "missed", "median ms", "99.9% ms", "worst ms", "core %"
    );
    for row in &target.rows {
        let of =
            |value: fn(&Paced) -> f64| row.median(|m| m.paced.as_ref().map_or(f64::NAN, value));
        text += &format!(
            "\n{:>10} {:>7.0} {:>7.0} {:>10.2} {:>10.2} {:>10.2} {:>7.0}",
            format!("{:?}", row.mode).to_lowercase(),
            of(|p| p.calls as f64),
            of(|p| p.missed as f64),
            of(|p| p.median_ms),
            of(|p| p.p999_ms),
            of(|p| p.worst_ms),
            row.core(),
        );
    }
    text + &excuses(target) + "\n"
}

/// What could not be measured, and why.
fn excuses(target: &Target) -> String {
    let mut text = String::new();
    let mut reasons: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for ((block, what), why) in &target.unsupported {
        reasons
            .entry(why)
            .or_default()
            .push(format!("{what} of {}", amount(*block, 1024)));
    }
    for (why, what) in reasons {
        text += &format!("\n- {}: {why}", what.join(", "));
    }
    text
}

/// All of it.
pub fn as_json(target: &Target) -> serde_json::Value {
    json!({
        "directory": target.directory.to_string_lossy(),
        "filesystem": target.filesystem,
        "results": target.rows.iter().map(|row| json!({
            "direction": row.direction,
            "block": row.block,
            "mode": row.mode,
            "mib_per_s": row.speed(),
            "spread_percent": row.spread_percent(),
            "core_kernel_percent": row.core(),
            "system_kernel_ms_per_gib": row.system_ms_per_gib(),
            "process_kernel_ms_per_gib": row.process_ms_per_gib(),
            "process_user_ms_per_gib": row.user_ms_per_gib(),
            "profile": row.profile,
            "runs": row.runs,
        })).collect::<Vec<_>>(),
        "unsupported": target.unsupported.iter().map(|((block, what), why)| json!({
            "block": block, "what": what, "why": why,
        })).collect::<Vec<_>>(),
    })
}
