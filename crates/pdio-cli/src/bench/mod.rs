// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pdio bench`: the measurements of Joyce and Audsley, "Exploring Storage Bottlenecks in
//! Linux-based Embedded Systems" (EWiLi 2015), sections 3.2 to 3.4, on this machine.

pub mod cell;
mod cgroup;
mod child;
mod profile;
mod results;
mod shares;
mod stat;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::json;

use crate::report::{self, amount, quoted, say, Context, Fail, Outcome};
use crate::signals::Signals;
use crate::size;
use cell::{Cell, Direction, Measured, Mode, Pattern};
use profile::Profiler;
use results::{as_json, frames, table, Row, Target};

const METHOD: &str = "Method:
  Sequential writes to a fresh file and reads of one that is not in the page
  cache, call by call in blocks of the given size, by write(2) and read(2), the
  same with O_DIRECT, with RWF_DONTCACHE where the kernel has it, and by pdio with
  its default options. `random` goes to random multiples of the block size in a
  file that is there. Each measurement is a process of its own (so pdio begins
  without anything learned), modes take turns within a round, and the median over
  the rounds is shown. The fsync at the end of a write is inside the time.

  `first` moves 64 MiB once: what a process has that knows nothing of the device,
  and with the mode `remembered` one for which `pdio learn` was run before.

  `stream` writes frames as a camera would deliver them, each at its time; one that
  is not written when the next arrives is missed. All frames are measured from when
  they arrived, so a late one delays those after it as in reality.

  The process lives in a memory cgroup that is full when the clock starts, so that
  page cache is recycled, as on a machine that has been up for a while. That takes
  the right to make cgroups; without it the report says so. On tmpfs, where page
  cache is the storage, there is none, and the first pass is not counted.

  A measurement that would take long is cut off after --seconds, and its speed
  taken from what it moved; one that is over soon is repeated, for the processor
  clocks have ticks of 10 ms.

Columns, for each mode:
  MiB/s     speed (the paper's figure 2)
  +-%       half of the distance between the slowest and the fastest round
  core %    the time the busiest core spent in the kernel, mean over samples of
            0.1 s of the maximum over cores (figure 3)
  ms/GiB    the time all cores spent in the kernel, kernel threads and interrupts
            included, whoever caused it: keep the machine idle
  user      the time the process spent outside the kernel, in ms/GiB: copies that
            pdio makes itself are here
  copy, cache, irq %   with --profile: shares of samples outside idle in functions
            that copy to and from the user, maintain caches, and turn interrupts
            on again, where samples of code that had them off end up (figure 4);
            by perf, or by the kernel's own profile if it was booted with profile=4

Figures: this prints tables. `make bench-pdio`, in nocopy's source tree, measures the
  same and draws the paper's figures 2 to 4, as out/bench-pdio/index.html.

Examples:
  pdio bench /var/tmp
  pdio bench paper --json paper.json /mnt/nvme /mnt/disk /dev/shm
  pdio bench paper --quick --sizes 512,4K,1M /mnt/nvme
  pdio bench random --sizes 4K /mnt/nvme
  pdio bench first --rounds 9 /mnt/nvme
  pdio bench stream --frame 1843200 --rate 30 --hogs 2 /mnt/nvme";

/// Measure how fast each block size is in each mode.
///
/// Without a study, the four block sizes 512 B, 4 KiB, 64 KiB and 1 MiB; `paper` is the sweep of
/// the paper, 512 B to 64 MiB. Directories are targets; files made there are removed, and a file
/// named as a target stands for the directory it is in.
#[derive(clap::Args, Debug)]
#[command(args_conflicts_with_subcommands = true, after_long_help = METHOD)]
pub struct Bench {
    #[command(subcommand)]
    study: Option<Study>,
    #[command(flatten)]
    options: Options,
}

#[derive(clap::Subcommand, Debug)]
enum Study {
    /// The paper's sweep: 512 B to 64 MiB, reads and writes, all modes
    #[command(after_long_help = METHOD)]
    Paper(Options),
    /// Random reads and overwrites of 4 KiB, all modes
    #[command(after_long_help = METHOD)]
    Random(Options),
    /// The first 64 MiB of a new process, in calls of 64 KiB and more; also after 'pdio learn'
    #[command(after_long_help = METHOD)]
    First(Options),
    /// A stream of frames, each at its time: which are late?
    #[command(after_long_help = METHOD)]
    Stream(Stream),
}

#[derive(clap::Args, Debug)]
struct Stream {
    /// Bytes of a frame [default: 1280 x 720 pixels of two bytes]
    #[arg(long, value_parser = size::parse, default_value = "1843200", value_name = "N")]
    frame: u64,
    /// Frames a second
    #[arg(long, default_value_t = 30.0, value_name = "N", value_parser = size::number::<f64>(0.0..=1e6))]
    rate: f64,
    /// Seconds a stream
    #[arg(long, default_value_t = 10.0, value_name = "N", value_parser = size::number::<f64>(0.0..=3600.0))]
    length: f64,
    /// Processes that compete for the processors
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = size::number::<u32>(0..=999))]
    hogs: u32,
    #[command(flatten)]
    options: Options,
}

#[derive(clap::Args, Debug)]
struct Options {
    /// Where to measure
    #[arg(value_name = "DIR|FILE")]
    targets: Vec<PathBuf>,
    /// Fewer bytes and sizes, one round: a first look
    #[arg(long)]
    quick: bool,
    /// Block sizes (512, 4K, 1MiB)
    #[arg(long, value_delimiter = ',', value_parser = size::parse, value_name = "N,...")]
    sizes: Vec<u64>,
    /// Only these modes
    #[arg(long, value_delimiter = ',', value_name = "MODE,...")]
    modes: Vec<Mode>,
    /// Only this direction
    #[arg(long)]
    direction: Option<Direction>,
    /// Bytes a measurement; 256 MiB on tmpfs [default: 1G, quick 256M]
    #[arg(long, value_parser = size::parse, value_name = "N")]
    bytes: Option<u64>,
    /// Page cache for the measured process
    #[arg(long, value_parser = size::parse, default_value = "256M", value_name = "N")]
    cache: u64,
    /// Rounds [default: 3, quick 1]
    #[arg(long, value_name = "N", value_parser = size::number::<u32>(1..=999))]
    rounds: Option<u32>,
    /// Seconds after which a measurement is cut off [default: 4, quick 1]
    #[arg(long, value_name = "N", value_parser = size::number::<f64>(0.0..=3600.0))]
    seconds: Option<f64>,
    /// Read each block that is written from /dev/zero first, as the paper's dd does
    #[arg(long)]
    source: bool,
    /// Find the shares of figure 4; with perf, in one more run of each
    #[arg(long)]
    profile: bool,
    /// Write everything measured to FILE, or to standard output instead of the table
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-", require_equals = false)]
    json: Option<PathBuf>,
}

const GLANCE: [u64; 4] = [512, 4 << 10, 64 << 10, 1 << 20];
const QUICK: [u64; 5] = [512, 4 << 10, 64 << 10, 1 << 20, 16 << 20];
const PAPER: [u64; 9] = [
    512,
    4 << 10,
    16 << 10,
    64 << 10,
    512 << 10,
    1 << 20,
    4 << 20,
    16 << 20,
    64 << 20,
];
const RANDOM: [u64; 1] = [4 << 10];
const FIRST: [u64; 3] = [64 << 10, 256 << 10, 1 << 20];
const MODES: [Mode; 5] = [
    Mode::Buffered,
    Mode::Direct,
    Mode::DontCache,
    Mode::Pdio,
    Mode::Remembered,
];
/// What a sample of `pdio learn` moves.
const LEARNED_BYTES: usize = 32 << 20;
/// How much a process moves whose beginning is measured.
const FIRST_BYTES: u64 = 64 << 20;
/// What a measurement on tmpfs moves, as in the paper.
const TMPFS_BYTES: u64 = 256 << 20;

/// Files that are removed when dropped.
struct Scratch(Vec<PathBuf>);

impl Drop for Scratch {
    fn drop(&mut self) {
        for path in &self.0 {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Runs the command.
///
/// # Errors
/// If a target cannot be measured.
pub fn run(args: &Bench) -> Outcome {
    let (name, options, sizes) = match &args.study {
        Some(Study::Paper(options)) if options.quick => ("paper", options, &QUICK[..]),
        Some(Study::Paper(options)) => ("paper", options, &PAPER[..]),
        Some(Study::Random(options)) => ("random", options, &RANDOM[..]),
        Some(Study::First(options)) => ("first", options, &FIRST[..]),
        Some(Study::Stream(stream)) => ("stream", &stream.options, &[][..]),
        None => ("glance", &args.options, &GLANCE[..]),
    };
    let stream = match &args.study {
        Some(Study::Stream(stream)) => Some(stream),
        _ => None,
    };
    let mut sizes = match options.sizes.is_empty() {
        true => sizes.to_vec(),
        false => options.sizes.clone(),
    };
    if let Some(stream) = stream {
        if !options.sizes.is_empty() || options.bytes.is_some() || options.profile {
            let text = "stream has --frame, --rate and --length, not --sizes, --bytes, --profile";
            return Err(Fail::Usage(text.into()));
        }
        let (rate, length) = (stream.rate, stream.length);
        if rate == 0.0 || length == 0.0 || rate * length >= 1e8 {
            let text = "--rate: up to a million a second; --length: up to an hour";
            return Err(Fail::Usage(text.into()));
        }
        sizes = vec![stream.frame];
    }
    let study = Work {
        name,
        pattern: match name {
            "random" => Pattern::Random,
            _ => Pattern::Sequential,
        },
        stream,
    };
    if options.targets.is_empty() {
        return Err(Fail::Usage("say in which directories to measure".into()));
    }
    if let Some(bad) = sizes.iter().find(|&&s| s == 0 || s > 1 << 30) {
        return Err(Fail::Usage(format!(
            "--sizes: {bad} is not between 1 B and 1 GiB"
        )));
    }
    if options.seconds == Some(0.0) {
        return Err(Fail::Usage("--seconds: between 0 and 3600".into()));
    }
    if options.cache < 64 << 20 {
        return Err(Fail::Usage("--cache: at least 64M".into()));
    }
    let profiler = options.profile.then(profile::check).transpose()?;
    let on_stdout = options.json.as_deref() == Some(Path::new("-"));
    // Before minutes are spent.
    let mut report_file = match &options.json {
        Some(path) if !on_stdout => {
            // What it has stays until there is something better.
            let file = File::options()
                .write(true)
                .create(true)
                .truncate(false)
                .open(path);
            Some((file.context("create", path)?, path))
        }
        _ => None,
    };
    let signals = Signals::listen(&[])?;
    let cgroup = cgroup::Cgroup::new(options.cache);
    if let Err(reason) = &cgroup {
        say(format_args!(
            "pdio bench: page cache is taken fresh, not recycled, which makes buffered I/O look \
             slow: {reason}"
        ));
    }
    let mut targets = Vec::new();
    for directory in &options.targets {
        let entry = cgroup.as_ref().ok().map(cgroup::Cgroup::entry);
        let parent = directory.parent().filter(|_| directory.is_file());
        let directory = match parent {
            Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
            Some(parent) => parent,
            None => directory,
        };
        let target = measure(
            directory, options, &study, &sizes, profiler, entry, &signals,
        )?;
        if !on_stdout {
            let lines = match study.stream {
                Some(_) => frames(&target),
                None => table(&target, &sizes),
            };
            report::print(&lines)?;
        }
        targets.push(target);
    }
    if options.json.is_none() {
        return Ok(());
    }
    let uname = rustix::system::uname();
    let value = json!({
        "study": study.name,
        "kernel": uname.release().to_string_lossy(),
        "machine": uname.machine().to_string_lossy(),
        "cores": std::thread::available_parallelism().map_or(0, usize::from),
        "source": options.source,
        "page_cache_limit": cgroup.is_ok().then_some(options.cache),
        "targets": targets.iter().map(as_json).collect::<Vec<_>>(),
    });
    let Some((file, path)) = &mut report_file else {
        return report::json(&value);
    };
    let text = serde_json::to_string_pretty(&value).map_err(|e| Fail::Failed(e.to_string()))?;
    // A pipe or a terminal has nothing to cut.
    let _ = file.set_len(0);
    io::Write::write_all(file, (text + "\n").as_bytes()).context("write", path)
}

/// What is to be done with each size and mode.
struct Work<'a> {
    name: &'a str,
    pattern: Pattern,
    stream: Option<&'a Stream>,
}

fn measure(
    directory: &Path,
    options: &Options,
    study: &Work,
    sizes: &[u64],
    profiler: Option<Profiler>,
    cgroup: Option<PathBuf>,
    signals: &Signals,
) -> Outcome<Target> {
    let name = |what| directory.join(format!(".pdio-bench-{}.{what}", std::process::id()));
    let (file, filler, costs) = (name("data"), name("fill"), name("costs"));
    let scratch = Scratch(vec![file.clone(), filler.clone(), costs.clone()]);
    File::create_new(&file).context("create", &file)?;
    let facts = pdio::explain(&file).context("examine", &file)?;
    let on_tmpfs = matches!(facts.filesystem.as_str(), "tmpfs" | "ramfs");
    let random = study.pattern == Pattern::Random;
    let bytes = match (options.bytes, study.stream) {
        (Some(bytes), _) => bytes.max(1),
        (None, Some(stream)) => (stream.rate * stream.length).ceil() as u64 * stream.frame,
        (None, None) if study.name == "first" => FIRST_BYTES,
        (None, None) if on_tmpfs || random || options.quick => TMPFS_BYTES,
        _ => 1 << 30,
    };
    let largest = sizes.iter().copied().max().unwrap_or(0);
    let cache = if on_tmpfs { 0 } else { options.cache };
    let needed = bytes
        .max(largest)
        .saturating_add(largest)
        .saturating_add(cache);
    let room = rustix::fs::statvfs(directory).map_err(io::Error::from);
    let room = room.context("examine", directory)?;
    if room.f_bavail.saturating_mul(room.f_frsize) < needed {
        return Err(Fail::Failed(format!(
            "{} has less than the {} this takes: choose another directory, or fewer --bytes",
            quoted(directory),
            amount(needed, 1024)
        )));
    }
    let cgroup = cgroup.filter(|_| !on_tmpfs);
    if cgroup.is_some() {
        prepare(&filler, options.cache, signals)?;
    }
    let wanted = |mode: &Mode| match options.modes.is_empty() {
        true => *mode != Mode::Remembered || study.name == "first",
        false => options.modes.contains(mode),
    };
    let modes: Vec<Mode> = MODES.into_iter().filter(wanted).collect();
    let remembers = modes.contains(&Mode::Remembered);
    if remembers {
        learn(directory, &costs, signals)?;
    }
    let cell = |direction, block: u64, mode| Cell {
        direction,
        mode,
        pattern: study.pattern,
        block: block as usize,
        bytes,
        // Frames end when they end.
        least: match (study.stream, options.quick) {
            (Some(_), _) => 0.0,
            // A second pass would have learned from the first.
            _ if study.name == "first" => 0.0,
            (None, true) => 0.2,
            (None, false) => 0.5,
        },
        most: match (study.stream, options.seconds, options.quick) {
            (Some(stream), ..) => 2.0 * stream.length + 10.0,
            (None, Some(seconds), _) => seconds,
            (None, None, quick) => f64::from(if quick { 1 } else { 4 }),
        },
        file: file.clone(),
        filler: cgroup.is_some().then(|| filler.clone()),
        cgroup: cgroup.clone(),
        rate: study.stream.map(|stream| stream.rate),
        hogs: study.stream.map_or(0, |stream| stream.hogs),
        source: options.source,
        costs: remembers.then(|| costs.clone()),
        kernel_profile: profiler == Some(Profiler::Kernel),
    };
    let mut target = Target {
        directory: directory.to_path_buf(),
        filesystem: facts.filesystem.clone(),
        rows: Vec::new(),
        unsupported: BTreeMap::new(),
    };
    let rounds = options.rounds.unwrap_or(if options.quick { 1 } else { 3 });
    let line = Line::new();
    for direction in [Direction::Write, Direction::Read] {
        let unwanted = options.direction.is_some_and(|only| only != direction);
        if unwanted || study.stream.is_some() && direction == Direction::Read {
            continue;
        }
        if direction == Direction::Read || random {
            prepare(&file, bytes.max(largest), signals)?;
        }
        if on_tmpfs && !random {
            // Its pages are there from now on.
            let mut first = cell(direction, 1 << 20, Mode::Buffered);
            (first.rate, first.hogs) = (None, 0);
            ask(&first, signals)?;
        }
        for &block in sizes {
            let mut rows: Vec<Row> = Vec::new();
            for round in 0..rounds {
                for i in 0..modes.len() {
                    // Each goes first once.
                    let mode = modes[(i + round as usize) % modes.len()];
                    let key = (block, format!("{mode:?} {direction:?}").to_lowercase());
                    if target.unsupported.contains_key(&key) {
                        continue;
                    }
                    if mode == Mode::Direct && facts.alignment.is_none() {
                        let why = "this file does no direct I/O";
                        target.unsupported.insert(key, why.into());
                        continue;
                    }
                    signals.check()?;
                    line.show(directory, &key.1, block, round + 1, rounds);
                    let mut measured = ask(&cell(direction, block, mode), signals)?;
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
            rows.sort_by_key(|r| MODES.iter().position(|m| *m == r.mode));
            for row in &mut rows {
                row.profile = row.runs.iter_mut().filter_map(|r| r.profile.take()).next();
                if profiler == Some(Profiler::Perf) {
                    signals.check()?;
                    line.show(directory, "profile", block, 1, 1);
                    let again = cell(direction, block, row.mode);
                    row.profile = Some(profile::shares(&again, &name("perf"), signals)?);
                }
            }
            target.rows.extend(rows);
        }
    }
    drop(scratch);
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
