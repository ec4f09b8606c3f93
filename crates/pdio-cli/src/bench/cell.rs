// SPDX-License-Identifier: MIT OR Apache-2.0
//! One measurement: one direction, block size and mode, in a process of its own, so that nothing
//! learned or cached by one is there for the next.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use pdio::OpenOptions;
use rustix::fs::{Advice, OFlags};
use rustix::io::{Errno, ReadWriteFlags};
use serde::{Deserialize, Serialize};

use super::shares::{Kernel, Shares};
use super::stat::Cores;
use crate::block::Block;
use crate::report::{self, Context, Fail, Outcome};

/// `RWF_DONTCACHE`, Linux 6.14.
const DONT_CACHE: ReadWriteFlags = ReadWriteFlags::from_bits_retain(0x80);
/// How often the cores are looked at.
const SAMPLE: Duration = Duration::from_millis(100);
/// A last sample shorter than this says little: a clock tick is usually 10 ms.
const SHORT_SAMPLE: Duration = Duration::from_millis(50);

/// Which way the data goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// From memory to the file.
    Write,
    /// From the file to memory.
    Read,
}

/// By which means, in the order of reports.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    clap::ValueEnum,
    Serialize,
    Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// `write(2)` and `read(2)`.
    Buffered,
    /// The same with `O_DIRECT`.
    Direct,
    /// `RWF_DONTCACHE`.
    #[value(name = "dontcache")]
    DontCache,
    /// This library with its default options, and nothing known of the device.
    Pdio,
    /// The same, with what `pdio learn` has measured.
    Remembered,
}

impl Mode {
    fn is_pdio(self) -> bool {
        matches!(self, Mode::Pdio | Mode::Remembered)
    }
}

/// In which order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Pattern {
    /// From the beginning to the end; writes are to a fresh file.
    Sequential,
    /// At multiples of the block size, by chance, within a file that is there.
    Random,
}

/// What to measure.
#[derive(clap::Args, Clone, Debug)]
pub struct Cell {
    /// Which way
    #[arg(long)]
    pub direction: Direction,
    /// By which means
    #[arg(long)]
    pub mode: Mode,
    /// In which order
    #[arg(long)]
    pub pattern: Pattern,
    /// Bytes a call
    #[arg(long)]
    pub block: usize,
    /// Bytes a pass
    #[arg(long)]
    pub bytes: u64,
    /// Passes are repeated until they took so many seconds
    #[arg(long)]
    pub least: f64,
    /// A pass ends after so many seconds
    #[arg(long)]
    pub most: f64,
    /// The file
    #[arg(long)]
    pub file: PathBuf,
    /// A file to fill the page cache with first
    #[arg(long)]
    pub filler: Option<PathBuf>,
    /// The `cgroup.procs` to enter
    #[arg(long)]
    pub cgroup: Option<PathBuf>,
    /// Calls a second, each at its time; without, one after the other
    #[arg(long)]
    pub rate: Option<f64>,
    /// Processes that compete for the processors meanwhile
    #[arg(long, default_value_t = 0)]
    pub hogs: u32,
    /// Read each block that is to be written from `/dev/zero`
    #[arg(long)]
    pub source: bool,
    /// What was measured before, for the mode that remembers it
    #[arg(long)]
    pub costs: Option<PathBuf>,
    /// Have the kernel's own profile taken as well
    #[arg(long)]
    pub kernel_profile: bool,
}

/// What was measured.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Measured {
    /// Bytes moved.
    pub bytes: u64,
    /// Time, with the fsync.
    pub seconds: f64,
    /// The mean over samples of the busiest core's time in the kernel, in percent.
    pub core_kernel_percent: f64,
    /// Samples in that mean.
    pub samples: u32,
    /// All cores' time in the kernel, in milliseconds.
    pub system_kernel_ms: f64,
    /// Of that, on behalf of this process.
    pub process_kernel_ms: f64,
    /// This process's time outside the kernel: its own copies are here.
    pub process_user_ms: f64,
    /// Memory the stream took at most, page cache and the caller's block not counted.
    #[serde(default)]
    pub memory_bytes: u64,
    /// When calls were to be made at given times: how they were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paced: Option<Paced>,
    /// Where the time went, if it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<Shares>,
    /// When each pass began and ended, in seconds of `CLOCK_MONOTONIC`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub passes: Vec<(f64, f64)>,
    /// Why it cannot be measured here, instead of the rest.
    pub unsupported: Option<String>,
}

/// How calls were that had a time each.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Paced {
    /// Calls.
    pub calls: u64,
    /// Those that were not done when the next was due.
    pub missed: u64,
    /// From when a call was due to when it was done, in milliseconds: half of all calls took at
    /// most this.
    pub median_ms: f64,
    /// And 999 of 1000.
    pub p999_ms: f64,
    /// The longest.
    pub worst_ms: f64,
}

impl Paced {
    fn of(mut took: Vec<Duration>, period: Duration) -> Paced {
        took.sort();
        let at = |share: f64| {
            let rank = (share * took.len() as f64).ceil().max(1.0) as usize;
            took.get(rank - 1).map_or(0.0, |t| t.as_secs_f64() * 1e3)
        };
        Paced {
            calls: took.len() as u64,
            missed: took.iter().filter(|t| **t > period).count() as u64,
            median_ms: at(0.5),
            p999_ms: at(0.999),
            worst_ms: at(1.0),
        }
    }
}

/// Runs one measurement and prints it as JSON.
///
/// # Errors
/// If it cannot be done; a mode the file does not have is a result, not an error.
pub fn run(cell: &Cell) -> Outcome {
    if cell.mode == Mode::Remembered {
        pdio::remember_costs(cell.costs.iter().cloned().collect());
    }
    // Before the cgroup is entered: the caller's block is not page cache.
    let mut block = Block::new(cell.block, "the block")?;
    for (i, byte) in block.all().iter_mut().enumerate() {
        *byte = (i / 7) as u8;
    }
    if let Some(cgroup) = &cell.cgroup {
        std::fs::write(cgroup, std::process::id().to_string()).context("enter cgroup", cgroup)?;
    }
    if let Some(filler) = &cell.filler {
        fill(filler).context("read", filler)?;
    }
    let _hogs = Hogs::start(cell.hogs)?;
    let mut measured = Measured::default();
    let mut clock = Clock {
        profile: cell.kernel_profile.then(Kernel::default),
        ..Clock::default()
    };
    let before = memory("VmRSS:");
    let result = loop {
        match pass(cell, block.all(), &mut clock) {
            Ok(0) => break Ok(()),
            Ok(bytes) => measured.bytes += bytes,
            Err(error) => break Err(error),
        }
        if clock.time.as_secs_f64() >= cell.least {
            break Ok(());
        }
    };
    if let Err(error) = result {
        let code = error.raw_os_error();
        let refused = !cell.mode.is_pdio()
            && [Errno::INVAL, Errno::OPNOTSUPP]
                .map(|e| Some(e.raw_os_error()))
                .contains(&code);
        if !refused {
            return Err(error).context("measure with", &cell.file);
        }
        measured = Measured {
            unsupported: Some(report::reason(&error)),
            ..Measured::default()
        };
    } else {
        measured.memory_bytes = memory("VmHWM:").saturating_sub(before);
        clock.report(&mut measured);
    }
    report::json(&measured)
}

/// A field of `/proc/self/status` that is in kB, in bytes.
fn memory(field: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(field));
    let kib = line.and_then(|rest| rest.split_whitespace().next());
    kib.and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) << 10
}

/// Processes that use processor time; they end when dropped, and with this process.
struct Hogs(Vec<Child>);

impl Hogs {
    fn start(count: u32) -> Outcome<Hogs> {
        let mut hogs = Hogs(Vec::new());
        for _ in 0..count {
            let mut command = Command::new(this_program()?);
            let child = command.arg("bench-hog").stdin(Stdio::piped()).spawn();
            hogs.0.push(child.map_err(|e| {
                Fail::Failed(format!("cannot start a hog: {}", report::reason(&e)))
            })?);
        }
        Ok(hogs)
    }
}

impl Drop for Hogs {
    fn drop(&mut self) {
        for hog in &mut self.0 {
            let _ = hog.kill();
            let _ = hog.wait();
        }
    }
}

/// Uses a processor until whoever started it is gone: a sum over memory that caches do not hold.
pub fn hog() -> Outcome {
    let parent = rustix::process::getppid();
    let memory = vec![1u64; 1 << 20];
    while rustix::process::getppid() == parent {
        std::hint::black_box(memory.iter().sum::<u64>());
    }
    Ok(())
}

pub fn this_program() -> Outcome<PathBuf> {
    std::env::current_exe()
        .map_err(|e| Fail::Failed(format!("cannot find this program: {}", report::reason(&e))))
}

/// Reads a file through the page cache, so that pages must be recycled from now on.
fn fill(path: &Path) -> io::Result<()> {
    let mut file = File::open(path)?;
    let mut buffer = vec![0; 1 << 20];
    while file.read(&mut buffer)? > 0 {}
    Ok(())
}

/// Time and processor use of the passes.
#[derive(Default)]
struct Clock {
    time: Duration,
    system_ms: f64,
    process_kernel_ms: f64,
    process_user_ms: f64,
    system_user_ms: f64,
    /// Per sample: how long it was, and the busiest core's share of it in the kernel.
    samples: Vec<(Duration, f64)>,
    passes: Vec<(f64, f64)>,
    paced: Option<Paced>,
    profile: Option<Kernel>,
}

/// The clock that perf can use too, in seconds.
fn monotonic() -> f64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

impl Clock {
    /// Runs `action` on the clock.
    fn measure<T>(&mut self, action: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let (stop, stopped) = mpsc::channel::<()>();
        let sampler = std::thread::spawn(move || -> io::Result<_> {
            let first = Cores::now()?;
            let (mut last, mut samples) = (first.clone(), Vec::new());
            loop {
                let ended = stopped.recv_timeout(SAMPLE) != Err(mpsc::RecvTimeoutError::Timeout);
                let now = Cores::now()?;
                let length = now.at - last.at;
                if !ended || length >= SHORT_SAMPLE || samples.is_empty() {
                    samples.push((length, now.busiest_kernel_share(&last)));
                }
                if ended {
                    let used = (now.kernel_ms_since(&first), now.user_ms_since(&first));
                    return Ok((used, samples));
                }
                last = now;
            }
        });
        if let Some(profile) = &mut self.profile {
            profile.begin()?;
        }
        let (user, kernel) = process_ms();
        let (begun, begun_at) = (Instant::now(), monotonic());
        let result = action();
        self.time += begun.elapsed();
        self.passes.push((begun_at, monotonic()));
        let (user_now, kernel_now) = process_ms();
        self.process_user_ms += user_now - user;
        self.process_kernel_ms += kernel_now - kernel;
        drop(stop);
        let ((system_ms, system_user_ms), samples) = sampler
            .join()
            .map_err(|_| io::Error::other("the sampling thread has panicked"))??;
        if let Some(profile) = &mut self.profile {
            profile.end()?;
        }
        self.system_ms += system_ms;
        self.system_user_ms += system_user_ms;
        self.samples.extend(samples);
        result
    }

    fn report(self, measured: &mut Measured) {
        let length: f64 = self.samples.iter().map(|(l, _)| l.as_secs_f64()).sum();
        let kernel: f64 = self.samples.iter().map(|(l, s)| l.as_secs_f64() * s).sum();
        measured.seconds = self.time.as_secs_f64();
        measured.samples = self.samples.len() as u32;
        measured.core_kernel_percent = 100.0 * kernel / length.max(1e-9);
        measured.system_kernel_ms = self.system_ms;
        measured.process_kernel_ms = self.process_kernel_ms;
        measured.process_user_ms = self.process_user_ms;
        measured.passes = self.passes;
        measured.paced = self.paced;
        let user_share = self.system_user_ms / (self.system_user_ms + self.system_ms).max(1e-9);
        measured.profile = self.profile.map(|p| p.shares(user_share));
    }
}

/// Time of this process outside and in the kernel, in milliseconds.
fn process_ms() -> (f64, f64) {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name, in parentheses, may contain anything.
    let rest = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let mut ticks = rest.split_whitespace().skip(11).map(|t| {
        let ticks = t.parse().unwrap_or(0.0);
        ticks * 1e3 / rustix::param::clock_ticks_per_second() as f64
    });
    let mut next = || ticks.next().unwrap_or(0.0);
    (next(), next())
}

/// One pass over the file. Returns the bytes moved.
fn pass(cell: &Cell, block: &mut [u8], clock: &mut Clock) -> io::Result<u64> {
    let mut calls = Calls::new(cell, clock.passes.len() as u64);
    let direct = if cell.mode == Mode::Direct {
        OFlags::DIRECT.bits() as i32
    } else {
        0
    };
    let mut options = File::options();
    options.custom_flags(direct);
    let moved = if cell.direction == Direction::Write {
        options.write(true);
        if cell.pattern == Pattern::Sequential {
            // Freeing the last pass's blocks is not part of this one.
            match std::fs::remove_file(&cell.file) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            options.create_new(true);
        }
        let mut file = options.open(&cell.file)?;
        let mut zero = match cell.source {
            true => Some(File::open("/dev/zero")?),
            false => None,
        };
        let mut fill = |block: &mut [u8]| zero.as_mut().map_or(Ok(()), |f| f.read_exact(block));
        rustix::fs::fadvise(file.as_fd(), 0, None, Advice::DontNeed)?;
        if cell.mode.is_pdio() {
            let mut writer = OpenOptions::new().writer_from(file)?;
            clock.measure(|| {
                let moved = calls.run(|at| {
                    fill(block)?;
                    if let Some(at) = at {
                        writer.seek(SeekFrom::Start(at))?;
                    }
                    writer.write_all(block).map(|()| block.len())
                })?;
                writer.sync_all()?;
                writer.finish()?;
                Ok(moved)
            })?
        } else {
            clock.measure(|| {
                let moved = calls.run(|at| {
                    fill(block)?;
                    write(cell.mode, &mut file, block, at)
                })?;
                file.sync_all()?;
                Ok(moved)
            })?
        }
    } else {
        let mut file = options.read(true).open(&cell.file)?;
        rustix::fs::fadvise(file.as_fd(), 0, None, Advice::DontNeed)?;
        if cell.mode.is_pdio() {
            let mut reader = OpenOptions::new().reader_from(file)?;
            clock.measure(|| {
                calls.run(|at| match at {
                    Some(at) => reader.read_at(block, at),
                    None => reader.read(block),
                })
            })?
        } else {
            clock.measure(|| calls.run(|at| read(cell.mode, &mut file, block, at)))?
        }
    };
    if let Some(period) = calls.period {
        clock.paced = Some(Paced::of(calls.took, period));
    }
    Ok(moved)
}

/// One write, at `at` or where the file is.
fn write(mode: Mode, file: &mut File, block: &[u8], at: Option<u64>) -> io::Result<usize> {
    let mut done = 0;
    if mode == Mode::DontCache {
        let parts = [IoSlice::new(block)];
        done = rustix::io::pwritev2(&*file, &parts, at.unwrap_or(u64::MAX), DONT_CACHE)?;
    }
    match at {
        Some(at) => file.write_all_at(&block[done..], at + done as u64)?,
        None => file.write_all(&block[done..])?,
    }
    Ok(block.len())
}

/// One read, at `at` or where the file is.
fn read(mode: Mode, file: &mut File, block: &mut [u8], at: Option<u64>) -> io::Result<usize> {
    match (mode, at) {
        (Mode::DontCache, _) => {
            let mut parts = [IoSliceMut::new(block)];
            let at = at.unwrap_or(u64::MAX);
            Ok(rustix::io::preadv2(&*file, &mut parts, at, DONT_CACHE)?)
        }
        (_, Some(at)) => file.read_at(block, at),
        (_, None) => file.read(block),
    }
}

/// The calls of a pass: where, when, and until when.
struct Calls {
    count: u64,
    time: Duration,
    /// For random offsets: blocks in the file, and the state they are drawn from.
    random: Option<(u64, u64)>,
    block: u64,
    period: Option<Duration>,
    took: Vec<Duration>,
}

impl Calls {
    fn new(cell: &Cell, pass: u64) -> Calls {
        let blocks = (cell.bytes / cell.block as u64).max(1);
        Calls {
            count: cell.bytes.div_ceil(cell.block as u64).max(1),
            time: Duration::from_secs_f64(cell.most),
            // Every mode gets the same places, every pass others.
            random: (cell.pattern == Pattern::Random).then_some((blocks, pass + 1)),
            block: cell.block as u64,
            period: cell.rate.map(|rate| Duration::from_secs_f64(1.0 / rate)),
            took: Vec::new(),
        }
    }

    /// Steele, Lea and Flood's SplitMix64.
    fn next_at(&mut self) -> Option<u64> {
        let (blocks, state) = self.random.as_mut()?;
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = *state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Some((z ^ (z >> 31)) % *blocks * self.block)
    }

    fn run(&mut self, mut call: impl FnMut(Option<u64>) -> io::Result<usize>) -> io::Result<u64> {
        let begun = Instant::now();
        let mut moved = 0;
        for i in 1..=self.count {
            let due = self.period.map(|period| begun + period * (i - 1) as u32);
            if let Some(due) = due {
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
            }
            match call(self.next_at())? {
                0 => break,
                n => moved += n as u64,
            }
            if let Some(due) = due {
                self.took.push(due.elapsed());
            }
            // Looking at the clock is cheap beside sixteen calls, however small.
            if (i % 16 == 0 || moved / i >= 64 << 10) && begun.elapsed() >= self.time {
                break;
            }
        }
        Ok(moved)
    }
}

impl Cell {
    /// The command line that runs it.
    ///
    /// # Errors
    /// If this program cannot find itself.
    pub fn command(&self) -> Outcome<Command> {
        use clap::ValueEnum;
        let name = |v: Option<clap::builder::PossibleValue>| v.map(|v| v.get_name().to_string());
        let mut command = Command::new(this_program()?);
        command.arg("bench-cell");
        command
            .arg("--direction")
            .args(name(self.direction.to_possible_value()));
        command
            .arg("--mode")
            .args(name(self.mode.to_possible_value()));
        command
            .arg("--pattern")
            .args(name(self.pattern.to_possible_value()));
        command.arg("--block").arg(self.block.to_string());
        command.arg("--bytes").arg(self.bytes.to_string());
        command.arg("--least").arg(self.least.to_string());
        command.arg("--most").arg(self.most.to_string());
        command.arg("--file").arg(&self.file);
        if let Some(filler) = &self.filler {
            command.arg("--filler").arg(filler);
        }
        if let Some(cgroup) = &self.cgroup {
            command.arg("--cgroup").arg(cgroup);
        }
        if let Some(costs) = &self.costs {
            command.arg("--costs").arg(costs);
        }
        if let Some(rate) = self.rate {
            command.arg("--rate").arg(rate.to_string());
        }
        if self.source {
            command.arg("--source");
        }
        if self.kernel_profile {
            command.arg("--kernel-profile");
        }
        command.arg("--hogs").arg(self.hogs.to_string());
        Ok(command)
    }
}
