// SPDX-License-Identifier: MIT OR Apache-2.0
//! `brug compare`: one program under several allocators, turn by turn.

use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Instant;
use std::{env, fs, io};

use nocopy_launch::reason;
use serde::Serialize;

use crate::launch::{self, Refusal, CANNOT_RUN, OURS};
use crate::tune::{self, Scratch};
use crate::verdict::{self, Finding, Verdict};
use crate::wait::{Ended, Held};

/// An allocator that can be preloaded: its name, and where it is (`None`: the C library's own).
struct Allocator {
    name: &'static str,
    library: Option<PathBuf>,
}

/// An allocator that is not here, and Debian's package of it.
type Absent = (&'static str, &'static str);

/// A peer that distributions ship: name, how its file name begins, Debian's package.
const PEERS: [(&str, &str, &str); 2] = [
    ("jemalloc", "libjemalloc.so.", "libjemalloc2"),
    (
        "mimalloc",
        "libmimalloc.so.",
        "libmimalloc2.0 (Debian 12) or libmimalloc3 (later)",
    ),
];

#[cfg(target_arch = "x86_64")]
const MULTIARCH: &str = "/usr/lib/x86_64-linux-gnu";
#[cfg(target_arch = "aarch64")]
const MULTIARCH: &str = "/usr/lib/aarch64-linux-gnu";

const DIRECTORIES: [&str; 5] = [
    "/usr/local/lib",
    MULTIARCH,
    "/usr/lib64",
    "/usr/lib",
    "/lib",
];

/// Returns true if the loader preloads this file. Where it does not, it runs a program without it.
fn is_preloaded(file: &Path) -> Result<bool, Refusal> {
    let list = launch::preload(file)?;
    // It names what it has loaded, each file with its address, and does not begin the program.
    let named = Command::new("/proc/self/exe")
        .env("LD_PRELOAD", list)
        .env("LD_TRACE_LOADED_OBJECTS", "1")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Refusal::new(OURS, format!("cannot start a process: {}", reason(&error))))?
        .stdout;
    let line = [file.as_os_str().as_bytes(), b" (0x"].concat();
    Ok(named.windows(line.len()).any(|part| part == line))
}

/// The last library in a directory whose name begins like this.
fn last_in(directory: &Path, prefix: &str) -> Option<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(directory)
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            path.file_name()
                .is_some_and(|n| n.to_string_lossy().starts_with(prefix))
        })
        .collect();
    found.sort();
    found
        .into_iter()
        .rfind(|file| is_preloaded(file).unwrap_or(false))
}

fn find_peer(prefix: &str) -> Option<PathBuf> {
    let mut directories = DIRECTORIES.iter().map(Path::new);
    directories.find_map(|directory| last_in(directory, prefix))
}

/// How the names of libraries begin that are allocators.
const ALLOCATORS: [&str; 6] = [
    "libbrug.",
    "libjemalloc",
    "libmimalloc",
    "librpmalloc",
    "libsnmalloc",
    "libtcmalloc",
];

/// Takes allocators out of `LD_PRELOAD`, where they would be what is measured as glibc, and says so.
fn leave_allocators_out() {
    let Some(list) = env::var_os("LD_PRELOAD") else {
        return;
    };
    let (out, kept): (Vec<_>, Vec<_>) = list
        .as_bytes()
        .split(|byte| b": ".contains(byte))
        .partition(|path| {
            let name = Path::new(OsStr::from_bytes(path)).file_name();
            let name = name.unwrap_or_default().as_bytes();
            ALLOCATORS
                .iter()
                .any(|begin| name.starts_with(begin.as_bytes()))
        });
    if !out.is_empty() {
        env::set_var("LD_PRELOAD", OsString::from_vec(kept.join(&b':')));
    }
    for path in out {
        crate::say(format_args!(
            "leaves {} out, which is in LD_PRELOAD and would be measured as glibc",
            String::from_utf8_lossy(path)
        ));
    }
}

/// Says so if a program brings an allocator along, which is then what is measured as glibc.
fn name_own_allocator(program: &OsStr) {
    const LOADER: &str = if cfg!(target_arch = "aarch64") {
        "/lib/ld-linux-aarch64.so.1"
    } else {
        "/lib64/ld-linux-x86-64.so.2"
    };
    let file = launch::find(program).ok();
    // Lists what the program is linked with and does not begin it; of a script or a static program it knows nothing.
    let listed = file.and_then(|file| Command::new(LOADER).arg("--list").arg(file).output().ok());
    let listed = listed.map_or_else(Vec::new, |output| output.stdout);
    let mut words = listed.split(u8::is_ascii_whitespace);
    let own = words.find(|word| {
        ALLOCATORS
            .iter()
            .any(|begin| word.starts_with(begin.as_bytes()))
    });
    if let Some(library) = own {
        crate::say(format_args!(
            "the program is linked with {}, which is what the row glibc measures",
            String::from_utf8_lossy(library)
        ));
    }
}

const BRUG: &str = "brug";

/// What one run took.
#[derive(Clone, Copy, Serialize)]
struct Run {
    /// Wall-clock seconds from start to end.
    seconds: f64,
    /// Processor seconds, in user mode and in the kernel.
    cpu_seconds: f64,
    /// Peak resident set of the largest process, bytes. Never less than a MiB or so, which a copy of this command has
    /// until the program has replaced it.
    peak_rss_bytes: u64,
    /// Page faults, minor and major.
    page_faults: u64,
}

#[derive(Serialize)]
struct Summary {
    median: f64,
    min: f64,
    max: f64,
}

fn summary(runs: &[Run], of: impl Fn(&Run) -> f64) -> Summary {
    let mut values: Vec<f64> = runs.iter().map(of).collect();
    Summary {
        median: verdict::median(&mut values),
        min: values[0],
        max: values[values.len() - 1],
    }
}

#[derive(Serialize)]
struct Row {
    allocator: &'static str,
    library: Option<String>,
    seconds: Summary,
    cpu_seconds: Summary,
    peak_rss_bytes: Summary,
    page_faults: Summary,
    runs: Vec<Run>,
}

#[derive(Serialize)]
struct Report {
    command: Vec<String>,
    rounds: usize,
    exit_status: i32,
    profile: Option<String>,
    allocators: Vec<Row>,
    verdict: Verdict,
}

/// An allocator and its runs.
type Measured = (Allocator, Vec<Run>);

fn one_run(
    held: &Held,
    allocator: &Allocator,
    words: &[OsString],
    profile: Option<(&Path, &Scratch)>,
    json: bool,
    show: bool,
) -> Result<(ExitStatus, Run), Refusal> {
    let mut command = match &allocator.library {
        Some(library) => launch::command(library, words)?,
        None => {
            let mut command = Command::new(launch::preloadable(&words[0])?);
            command.arg0(&words[0]).args(&words[1..]);
            command
        }
    };
    if let Some((profile, scratch)) = profile.filter(|_| allocator.name == BRUG) {
        // A copy, as each process leaves there what it has measured: every run is to have the same.
        let copy = scratch.profile();
        let copied = fs::read(profile).and_then(|text| fs::write(&copy, text));
        copied.map_err(|error| {
            let (from, to) = (profile.display(), copy.display());
            Refusal::new(
                OURS,
                format!(
                    "cannot copy {from} to {to} ({}); set TMPDIR",
                    reason(&error)
                ),
            )
        })?;
        command.env("BRUG_PROFILE", copy);
    }
    command.stdin(Stdio::null());
    if !show {
        command.stdout(Stdio::null()).stderr(Stdio::null());
    } else if json {
        command.stdout(io::stderr());
    }
    let begin = Instant::now();
    let (ended, mut usage) = held.run(&mut command).map_err(|error| {
        Refusal::new(
            CANNOT_RUN,
            format!("{}: {}", words[0].to_string_lossy(), reason(&error)),
        )
    })?;
    let seconds = begin.elapsed().as_secs_f64();
    let status = match ended {
        Ended::Signal(signal) | Ended::Program(_, Some(signal)) => {
            return Err(Refusal::signal(signal))
        }
        Ended::Program(status, None) => status,
    };
    if let Some(line) = held.left(&mut usage) {
        return Err(Refusal::new(OURS, line));
    }
    let cpu = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    let run = Run {
        seconds,
        cpu_seconds: cpu(usage.ru_utime) + cpu(usage.ru_stime),
        peak_rss_bytes: usage.ru_maxrss as u64 * 1024,
        page_faults: (usage.ru_minflt + usage.ru_majflt) as u64,
    };
    Ok((status, run))
}

/// The allocators to compare, glibc first and brug last; those that are not here, with their packages.
fn allocators() -> Result<(Vec<Allocator>, Vec<Absent>), Refusal> {
    let mut allocators = vec![Allocator {
        name: "glibc",
        library: None,
    }];
    let mut absent = Vec::new();
    for (name, prefix, package) in PEERS {
        match find_peer(prefix) {
            Some(library) => allocators.push(Allocator {
                name,
                library: Some(library),
            }),
            None => absent.push((name, package)),
        }
    }
    let library = launch::library()?;
    if !is_preloaded(&library)? {
        let line = format!("{}: the loader does not preload it", library.display());
        return Err(Refusal::new(OURS, line));
    }
    allocators.push(Allocator {
        name: BRUG,
        library: Some(library),
    });
    Ok((allocators, absent))
}

/// Runs `words` `rounds` times under each allocator. Returns how the program ends, and the runs of those under which it
/// ends so. That it does not under brug is what the user has to know; of a peer that is the peer's affair.
fn all_runs(
    held: &Held,
    allocators: Vec<Allocator>,
    words: &[OsString],
    profile: Option<&Path>,
    rounds: usize,
    json: bool,
    show: bool,
) -> Result<(ExitStatus, Vec<Measured>), Refusal> {
    let scratch = profile.map(|_| Scratch::new()).transpose()?;
    let copied = profile.zip(scratch.as_ref());
    let mut all: Vec<Option<Vec<Run>>> = allocators.iter().map(|_| Some(Vec::new())).collect();
    let mut expected: Option<ExitStatus> = None;
    // Round 0 warms the page cache and is not counted. Each round starts one allocator later, so
    // that none always follows the same one.
    for round in 0..=rounds {
        for turn in 0..allocators.len() {
            let index = (turn + round) % allocators.len();
            let Some(runs) = &mut all[index] else {
                continue;
            };
            let allocator = &allocators[index];
            let (status, run) = one_run(held, allocator, words, copied, json, show)?;
            let usual = *expected.get_or_insert(status);
            if status == usual {
                if round > 0 {
                    runs.push(run);
                }
            } else if PEERS.iter().any(|(peer, ..)| *peer == allocator.name) {
                crate::say(format_args!(
                    "{}: left out, the program ended with {status}",
                    allocator.name
                ));
                all[index] = None;
            } else {
                let line = format!(
                    "under {} the program ended with {status}, under {} with {usual}{}",
                    allocator.name,
                    allocators[0].name,
                    if show {
                        ""
                    } else {
                        "; --show-output shows what it said"
                    }
                );
                return Err(Refusal::new(OURS, line));
            }
        }
    }
    let measured = allocators.into_iter().zip(all);
    let measured = measured.filter_map(|(allocator, runs)| Some((allocator, runs?)));
    Ok((expected.unwrap_or_default(), measured.collect()))
}

/// What brug, the last, takes beside glibc, the first, round by round.
fn verdict_of(measured: &[Measured]) -> Verdict {
    let (glibc, brug) = (&measured[0].1, &measured[measured.len() - 1].1);
    let of_glibc = |of: fn(&Run) -> f64| {
        // A program that takes no time that can be measured takes the same.
        let ratio = |(run, glibc)| match (of(run), of(glibc)) {
            (_, 0.0) => 1.0,
            (run, glibc) => run / glibc,
        };
        brug.iter().zip(glibc).map(ratio).collect()
    };
    Verdict::new(
        of_glibc(|run| run.cpu_seconds),
        of_glibc(|run| run.peak_rss_bytes as f64),
    )
}

fn row((allocator, runs): Measured) -> Row {
    Row {
        allocator: allocator.name,
        library: allocator.library.map(lossy),
        seconds: summary(&runs, |run| run.seconds),
        cpu_seconds: summary(&runs, |run| run.cpu_seconds),
        peak_rss_bytes: summary(&runs, |run| run.peak_rss_bytes as f64),
        page_faults: summary(&runs, |run| run.page_faults as f64),
        runs,
    }
}

/// Run `words` `rounds` times under each allocator and print what it took.
pub fn compare(
    words: &[OsString],
    profile: Option<&Path>,
    rounds: usize,
    json: bool,
    show: bool,
) -> Result<(), Refusal> {
    let profile = profile.map(tune::existing).transpose()?;
    leave_allocators_out();
    launch::preloadable(&words[0])?;
    name_own_allocator(&words[0]);
    let held = Held::new();
    let (allocators, absent) = allocators()?;
    let (status, measured) = all_runs(
        &held,
        allocators,
        words,
        profile.as_deref(),
        rounds,
        json,
        show,
    )?;
    drop(held);
    for (name, package) in absent {
        crate::say(format_args!(
            "no {name} here, left out; on Debian: apt-get install {package}"
        ));
    }
    if !status.success() {
        crate::say(format_args!(
            "the program ends with {status} under every allocator"
        ));
    }
    let report = Report {
        command: words
            .iter()
            .map(|word| word.to_string_lossy().into_owned())
            .collect(),
        rounds,
        // As in a shell.
        exit_status: status
            .code()
            .unwrap_or_else(|| 128 + status.signal().unwrap_or_default()),
        profile: profile.clone().map(lossy),
        verdict: verdict_of(&measured),
        allocators: measured.into_iter().map(row).collect(),
    };
    if json {
        crate::print_json(&report)
    } else {
        crate::print(&table(&report, words, profile.as_deref()))
    }
}

/// As JSON can have it.
fn lossy(path: PathBuf) -> String {
    path.to_string_lossy().into_owned()
}

const MIB: f64 = 1024.0 * 1024.0;

fn table(report: &Report, words: &[OsString], profile: Option<&Path>) -> String {
    let mut out = String::new();
    let cell = |s: &Summary, unit: f64, digits: usize| {
        format!(
            "{:.digits$} [{:.digits$}–{:.digits$}]",
            s.median / unit,
            s.min / unit,
            s.max / unit
        )
    };
    let _ = writeln!(
        out,
        "median [least–most] of {} runs each, in turn",
        report.rounds
    );
    let _ = writeln!(
        out,
        "{:10} {:>26} {:>7} {:>26} {:>26} {:>28}",
        "allocator", "time s", "×glibc", "CPU s", "peak RSS MiB", "page faults"
    );
    let base = report.allocators[0].seconds.median;
    for row in &report.allocators {
        let _ = writeln!(
            out,
            "{:10} {:>26} {:>7.3} {:>26} {:>26} {:>28}",
            row.allocator,
            cell(&row.seconds, 1.0, 3),
            row.seconds.median / base,
            cell(&row.cpu_seconds, 1.0, 3),
            cell(&row.peak_rss_bytes, MIB, 1),
            cell(&row.page_faults, 1.0, 0),
        );
    }
    let _ = writeln!(out, "verdict: {}", report.verdict);
    if report.verdict.finding == Finding::Helps {
        let option = profile.map_or_else(String::new, |file| {
            format!(" --profile {}", launch::for_shell(&[file]))
        });
        let _ = writeln!(
            out,
            "to use it: brug run{option} -- {}",
            launch::for_shell(words)
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn what_the_loader_does_not_preload_is_no_allocator() {
        let maps = fs::read_to_string("/proc/self/maps").expect("maps");
        let library = maps.lines().find_map(|line| {
            let path = line.split_whitespace().last()?;
            path.contains("/libc.so").then(|| PathBuf::from(path))
        });
        let library = library.expect("the C library");
        assert!(is_preloaded(&library).expect("one word"));
        assert!(!is_preloaded(Path::new("/bin/true")).expect("one word"));
        let directory = tempfile::tempdir().expect("directory");
        let at = |name: &str| directory.path().join(name);
        fs::write(at("liba.so.3"), "text").expect("file");
        symlink("nowhere", at("liba.so.4")).expect("link");
        assert_eq!(last_in(directory.path(), "liba.so."), None);
        symlink(&library, at("liba.so.2")).expect("link");
        let found = last_in(directory.path(), "liba.so.");
        assert_eq!(found, Some(at("liba.so.2")));
    }
}
