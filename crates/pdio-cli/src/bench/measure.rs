// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measuring a directory: files, rounds, and processes that do it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::ValueEnum;

use super::cell::{self, Cell, Direction, Measured, Mode, Pattern};
use super::child;
use super::profile::{self, Profiler};
use super::results::{Row, Target};
use super::{Options, Stream};
use crate::report::{self, amount, quoted, Context, Fail, Outcome};
use crate::signals::Signals;

/// What a sample of `pdio learn` moves.
const LEARNED_BYTES: usize = 32 << 20;
/// How much a process moves whose beginning is measured.
const FIRST_BYTES: u64 = 64 << 20;
/// What a measurement on tmpfs moves, as in the paper.
const TMPFS_BYTES: u64 = 256 << 20;

/// What is to be done with each size and mode.
pub struct Work<'a> {
    pub name: &'static str,
    pub pattern: Pattern,
    pub options: &'a Options,
    pub stream: Option<&'a Stream>,
    /// Bytes of a block.
    pub sizes: Vec<u64>,
    pub profiler: Option<Profiler>,
}

impl Work<'_> {
    fn random(&self) -> bool {
        self.pattern == Pattern::Random
    }

    fn first(&self) -> bool {
        self.name == "first"
    }

    /// Bytes that a measurement moves.
    fn bytes(&self, on_tmpfs: bool) -> u64 {
        match (self.options.bytes, self.stream) {
            (Some(bytes), _) => bytes.max(1),
            (None, Some(stream)) => (stream.rate * stream.length).ceil() as u64 * stream.frame,
            (None, None) if self.first() => FIRST_BYTES,
            (None, None) if on_tmpfs || self.random() || self.options.quick => TMPFS_BYTES,
            _ => 1 << 30,
        }
    }

    /// Seconds that a measurement takes at least: shorter ones are repeated.
    fn least(&self) -> f64 {
        match (self.stream, self.options.quick) {
            // Frames end when they end.
            (Some(_), _) => 0.0,
            // A second pass would have learned from the first.
            _ if self.first() => 0.0,
            (None, true) => 0.2,
            (None, false) => 0.5,
        }
    }

    /// Seconds after which it is cut off.
    fn most(&self) -> f64 {
        match (self.stream, self.options.seconds, self.options.quick) {
            (Some(stream), ..) => 2.0 * stream.length + 10.0,
            (None, Some(seconds), _) => seconds,
            (None, None, quick) => f64::from(if quick { 1 } else { 4 }),
        }
    }

    fn modes(&self) -> Vec<Mode> {
        let named = &self.options.modes;
        let wanted = |mode: &Mode| match named.is_empty() {
            true => *mode != Mode::Remembered || self.first(),
            false => named.contains(mode),
        };
        Mode::value_variants()
            .iter()
            .copied()
            .filter(wanted)
            .collect()
    }

    fn rounds(&self) -> u32 {
        let usual = if self.options.quick { 1 } else { 3 };
        self.options.rounds.unwrap_or(usual)
    }

    fn directions(&self) -> impl Iterator<Item = Direction> {
        let (only, stream) = (self.options.direction, self.stream.is_some());
        [Direction::Write, Direction::Read]
            .into_iter()
            .filter(move |&direction| only.is_none_or(|only| only == direction))
            .filter(move |&direction| !stream || direction == Direction::Write)
    }
}

/// The files of a measurement, which are removed when dropped.
struct Files<'a> {
    directory: &'a Path,
    data: PathBuf,
    filler: PathBuf,
    costs: PathBuf,
}

impl Files<'_> {
    fn new(directory: &Path) -> Outcome<Files<'_>> {
        let name = |what| in_directory(directory, what);
        let files = Files {
            directory,
            data: name("data"),
            filler: name("fill"),
            costs: name("costs"),
        };
        File::create_new(&files.data).context("create", &files.data)?;
        Ok(files)
    }

    /// Wants room for so many bytes.
    fn have_room(&self, needed: u64) -> Outcome {
        let room = rustix::fs::statvfs(self.directory).map_err(io::Error::from);
        let room = room.context("examine", self.directory)?;
        if room.f_bavail.saturating_mul(room.f_frsize) < needed {
            return Err(Fail::Failed(format!(
                "{} has less than the {} this takes: choose another directory, or fewer --bytes",
                quoted(self.directory),
                amount(needed, 1024)
            )));
        }
        Ok(())
    }
}

impl Drop for Files<'_> {
    fn drop(&mut self) {
        for path in [&self.data, &self.filler, &self.costs] {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn in_directory(directory: &Path, what: &str) -> PathBuf {
    directory.join(format!(".pdio-bench-{}.{what}", std::process::id()))
}

/// A directory that is being measured.
struct Place<'a> {
    work: &'a Work<'a>,
    files: Files<'a>,
    /// True if files can be opened with `O_DIRECT`.
    direct: bool,
    bytes: u64,
    cgroup: Option<PathBuf>,
    modes: Vec<Mode>,
    signals: &'a Signals,
    line: Line,
}

impl Place<'_> {
    fn cell(&self, direction: Direction, block: u64, mode: Mode) -> Cell {
        let (work, files) = (self.work, &self.files);
        let remembers = self.modes.contains(&Mode::Remembered);
        Cell {
            direction,
            mode,
            pattern: work.pattern,
            block: block as usize,
            bytes: self.bytes,
            least: work.least(),
            most: work.most(),
            file: files.data.clone(),
            filler: self.cgroup.is_some().then(|| files.filler.clone()),
            cgroup: self.cgroup.clone(),
            rate: work.stream.map(|stream| stream.rate),
            hogs: work.stream.map_or(0, |stream| stream.hogs),
            source: work.options.source,
            costs: remembers.then(|| files.costs.clone()),
            kernel_profile: work.profiler == Some(Profiler::Kernel),
        }
    }

    /// All rounds of a block size, the modes in turn. `target` is told which do not work.
    fn rows(&self, target: &mut Target, direction: Direction, block: u64) -> Outcome<Vec<Row>> {
        let (directory, rounds) = (self.files.directory, self.work.rounds());
        let mut rows: Vec<Row> = Vec::new();
        for round in 0..rounds {
            for i in 0..self.modes.len() {
                // Each goes first once.
                let mode = self.modes[(i + round as usize) % self.modes.len()];
                let key = (block, format!("{mode:?} {direction:?}").to_lowercase());
                if target.unsupported.contains_key(&key) {
                    continue;
                }
                if mode == Mode::Direct && !self.direct {
                    let why = "this file does no direct I/O";
                    target.unsupported.insert(key, why.into());
                    continue;
                }
                self.signals.check()?;
                self.line.show(directory, &key.1, block, round + 1, rounds);
                let mut measured = ask(&self.cell(direction, block, mode), self.signals)?;
                if let Some(why) = measured.unsupported.take() {
                    target.unsupported.insert(key, why);
                    continue;
                }
                measured.passes.clear();
                match rows.iter_mut().find(|r| r.mode == mode) {
                    Some(row) => row.runs.push(measured),
                    None => rows.push(Row {
                        direction,
                        block,
                        mode,
                        runs: vec![measured],
                        profile: None,
                    }),
                }
            }
        }
        rows.sort_by_key(|row| row.mode);
        Ok(rows)
    }

    /// Finds a row's shares of figure 4, if they are wanted.
    fn profile(&self, row: &mut Row) -> Outcome {
        row.profile = row.runs.iter_mut().filter_map(|r| r.profile.take()).next();
        if self.work.profiler == Some(Profiler::Perf) {
            let directory = self.files.directory;
            self.signals.check()?;
            self.line.show(directory, "profile", row.block, 1, 1);
            let again = self.cell(row.direction, row.block, row.mode);
            let data = in_directory(directory, "perf");
            row.profile = Some(profile::shares(&again, &data, self.signals)?);
        }
        Ok(())
    }
}

/// Measures in a directory what is to be done.
///
/// # Errors
/// If it has too little room, or a measurement fails.
pub fn measure(
    directory: &Path,
    work: &Work,
    cgroup: Option<PathBuf>,
    signals: &Signals,
) -> Outcome<Target> {
    let files = Files::new(directory)?;
    let facts = pdio::explain(&files.data).context("examine", &files.data)?;
    let on_tmpfs = matches!(facts.filesystem.as_str(), "tmpfs" | "ramfs");
    let bytes = work.bytes(on_tmpfs);
    let largest = work.sizes.iter().copied().max().unwrap_or(0);
    let cache = if on_tmpfs { 0 } else { work.options.cache };
    let needed = bytes.max(largest).saturating_add(largest);
    files.have_room(needed.saturating_add(cache))?;
    let cgroup = cgroup.filter(|_| !on_tmpfs);
    if cgroup.is_some() {
        prepare(&files.filler, cache, signals)?;
    }
    let modes = work.modes();
    if modes.contains(&Mode::Remembered) {
        learn(directory, &files.costs, signals)?;
    }
    let place = Place {
        work,
        files,
        direct: facts.alignment.is_some(),
        bytes,
        cgroup,
        modes,
        signals,
        line: Line::new(),
    };
    let mut target = Target {
        directory: directory.to_path_buf(),
        filesystem: facts.filesystem,
        rows: Vec::new(),
        unsupported: BTreeMap::new(),
    };
    for direction in work.directions() {
        if direction == Direction::Read || work.random() {
            prepare(&place.files.data, bytes.max(largest), signals)?;
        }
        if on_tmpfs && !work.random() {
            // Its pages are there from now on.
            let mut first = place.cell(direction, 1 << 20, Mode::Buffered);
            (first.rate, first.hogs) = (None, 0);
            ask(&first, signals)?;
        }
        for &block in &work.sizes {
            let mut rows = place.rows(&mut target, direction, block)?;
            for row in &mut rows {
                place.profile(row)?;
            }
            target.rows.extend(rows);
        }
    }
    Ok(target)
}

/// What is going on, on a terminal.
struct Line(bool);

impl Line {
    fn new() -> Line {
        Line(io::stderr().is_terminal())
    }

    fn show(&self, directory: &Path, what: &str, block: u64, round: u32, rounds: u32) {
        if self.0 {
            let (block, directory) = (amount(block, 1024), directory.display());
            report::show(format_args!(
                "\r\x1b[K{directory}: {what} of {block}, round {round} of {rounds}\r"
            ));
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if self.0 {
            report::show("\r\x1b[K");
        }
    }
}

/// Makes a file of `bytes` bytes that is on the device and not in the page cache.
fn prepare(path: &Path, bytes: u64, signals: &Signals) -> Outcome {
    let write = || -> io::Result<()> {
        let mut writer = pdio::OpenOptions::new()
            .create(true)
            .truncate(true)
            .open_writer(path)?;
        let block: Vec<u8> = (0..1u32 << 20).map(|i| (i / 7) as u8).collect();
        let mut left = bytes;
        while left > 0 && signals.ended().is_none() {
            let n = left.min(block.len() as u64) as usize;
            io::Write::write_all(&mut writer, &block[..n])?;
            left -= n as u64;
        }
        writer.sync_all()?;
        writer.finish()?;
        rustix::fs::fadvise(File::open(path)?, 0, None, rustix::fs::Advice::DontNeed)?;
        Ok(())
    };
    write().context("prepare", path)?;
    signals.check()
}

/// Has a process of its own measure what is to be remembered: a signal ends it at once.
fn learn(directory: &Path, costs: &Path, signals: &Signals) -> Outcome {
    let failed = |why: &str| Fail::Failed(format!("cannot learn: {why}"));
    let costs = std::path::absolute(costs).map_err(|e| failed(&report::reason(&e)))?;
    let mut command = Command::new(cell::this_program()?);
    command.env("PDIO_COSTS", costs);
    command.args(["learn", "--size", &LEARNED_BYTES.to_string(), "--"]);
    command.arg(directory).stderr(Stdio::piped());
    let output = child::output(&mut command, signals)?;
    let output = output.map_err(|e| failed(&report::reason(&e)))?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(failed(said.trim().trim_start_matches("pdio learn: ")))
        }
    }
}

/// Has a process of its own do the measurement.
fn ask(cell: &Cell, signals: &Signals) -> Outcome<Measured> {
    let mut command = cell.command()?;
    let output = child::output(command.stderr(Stdio::piped()), signals)?.map_err(|e| {
        Fail::Failed(format!(
            "cannot start a measurement: {}",
            report::reason(&e)
        ))
    })?;
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text).map_err(|_| {
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.trim().trim_start_matches("pdio bench: ");
        Fail::Failed(format!(
            "measuring {:?} {:?} of {} B in {} ended with {}: {said}",
            cell.mode,
            cell.direction,
            cell.block,
            cell.file.display(),
            output.status
        ))
    })
}
