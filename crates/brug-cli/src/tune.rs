// SPDX-License-Identifier: MIT OR Apache-2.0
//! `brug tune`: one run under observation, and what it says about the program.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::ExitStatus;

use serde_json::Value;

use crate::launch::{self, Refusal, CANNOT_RUN, OURS};

/// A file that is removed when the run is over.
struct Scratch(std::path::PathBuf);

impl Scratch {
    fn new() -> Self {
        let name = format!("brug-tune-{}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // It may never have been made.
        let _ = fs::remove_file(&self.0);
    }
}

fn run(words: &[OsString], profile: &Path, counters: &Path) -> Result<ExitStatus, Refusal> {
    let mut setting = OsString::from("json:");
    setting.push(counters);
    launch::command(&launch::library()?, words)?
        .env("BRUG_ALLOC", "auto")
        .env("BRUG_PROFILE", profile)
        .env("BRUG_SHOW_STATS", setting)
        .status()
        .map_err(|error| {
            Refusal::new(
                CANNOT_RUN,
                format!("{}: {error}", words[0].to_string_lossy()),
            )
        })
}

/// Run `words` and print what its processes did, one after the other.
pub fn tune(words: &[OsString], profile: &Path, json: bool) -> Result<(), Refusal> {
    let profile = std::path::absolute(profile)
        .map_err(|error| Refusal::new(OURS, format!("{}: {error}", profile.display())))?;
    let scratch = Scratch::new();
    let status = run(words, &profile, &scratch.0)?;
    let text = fs::read_to_string(&scratch.0).map_err(|_| {
        let line = format!("the program ended with {status} and left no counters");
        Refusal::new(OURS, line)
    })?;
    let processes: Vec<Value> = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    if json {
        return crate::print_json(&processes);
    }
    for process in &processes {
        print_process(process);
    }
    Ok(())
}

fn print_process(process: &Value) {
    let Some(fields) = process.as_object() else {
        return;
    };
    println!(
        "{} [{}]",
        fields["program"].as_str().unwrap_or("?"),
        fields["pid"]
    );
    for (name, value) in fields {
        if let Some(count) = value.as_u64().filter(|&count| count > 0 && name != "pid") {
            println!("  {name:<20}{count:>20}");
        }
    }
}
