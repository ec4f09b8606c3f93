// SPDX-License-Identifier: MIT OR Apache-2.0
//! One measurement: one direction, block size and mode, in a process of its own, so that nothing
//! learned or cached by one is there for the next.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use pdio::OpenOptions;
use rustix::fs::{Advice, OFlags};
use rustix::io::{Errno, ReadWriteFlags};
use serde::{Deserialize, Serialize};

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

/// By which means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// `write(2)` and `read(2)`.
    Buffered,
    /// The same with `O_DIRECT`.
    Direct,
    /// `RWF_DONTCACHE`.
    #[value(name = "dontcache")]
    DontCache,
    /// This library with its default options.
    Pdio,
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
    /// When each pass began and ended, in seconds of `CLOCK_MONOTONIC`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub passes: Vec<(f64, f64)>,
    /// Why it cannot be measured here, instead of the rest.
    pub unsupported: Option<String>,
}

/// Runs one measurement and prints it as JSON.
///
/// # Errors
/// If it cannot be done; a mode the file does not have is a result, not an error.
pub fn run(cell: &Cell) -> Outcome {
    if let Some(cgroup) = &cell.cgroup {
        std::fs::write(cgroup, std::process::id().to_string()).context("enter cgroup", cgroup)?;
    }
    let mut block = Block::new(cell.block, "the block")?;
    for (i, byte) in block.all().iter_mut().enumerate() {
        *byte = (i / 7) as u8;
    }
    if let Some(filler) = &cell.filler {
        fill(filler).context("read", filler)?;
    }
    let mut measured = Measured::default();
    let mut clock = Clock::default();
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
        let refused = cell.mode != Mode::Pdio
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
        clock.report(&mut measured);
    }
    report::json(&measured)
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
    /// Per sample: how long it was, and the busiest core's share of it in the kernel.
    samples: Vec<(Duration, f64)>,
    passes: Vec<(f64, f64)>,
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
                    return Ok((now.kernel_ms_since(&first), samples));
                }
                last = now;
            }
        });
        let (user, kernel) = process_ms();
        let (begun, begun_at) = (Instant::now(), monotonic());
        let result = action();
        self.time += begun.elapsed();
        self.passes.push((begun_at, monotonic()));
        let (user_now, kernel_now) = process_ms();
        self.process_user_ms += user_now - user;
        self.process_kernel_ms += kernel_now - kernel;
        drop(stop);
        let (system_ms, samples) = sampler
            .join()
            .map_err(|_| io::Error::other("the sampling thread has panicked"))??;
        self.system_ms += system_ms;
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
    let flags = match cell.mode {
        Mode::Direct => OFlags::DIRECT.bits() as i32,
        _ => 0,
    };
    let limit = Limit {
        calls: cell.bytes.div_ceil(cell.block as u64).max(1),
        time: Duration::from_secs_f64(cell.most),
    };
    if cell.direction == Direction::Write {
        // Freeing the last pass's blocks is not part of this one.
        match std::fs::remove_file(&cell.file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut options = File::options();
        options.write(true).create_new(true).custom_flags(flags);
        let mut file = options.open(&cell.file)?;
        if cell.mode == Mode::Pdio {
            let mut writer = OpenOptions::new().writer_from(file)?;
            return clock.measure(|| {
                let moved = limit.run(|| writer.write_all(block).map(|()| block.len()))?;
                writer.sync_all()?;
                writer.finish()?;
                Ok(moved)
            });
        }
        return clock.measure(|| {
            let moved = limit.run(|| match cell.mode {
                Mode::DontCache => {
                    let parts = [IoSlice::new(block)];
                    let n = rustix::io::pwritev2(&file, &parts, u64::MAX, DONT_CACHE)?;
                    file.write_all(&block[n..])?;
                    Ok(block.len())
                }
                _ => file.write_all(block).map(|()| block.len()),
            })?;
            file.sync_all()?;
            Ok(moved)
        });
    }
    let mut file = File::options()
        .read(true)
        .custom_flags(flags)
        .open(&cell.file)?;
    rustix::fs::fadvise(file.as_fd(), 0, None, Advice::DontNeed)?;
    if cell.mode == Mode::Pdio {
        let mut reader = OpenOptions::new().reader_from(file)?;
        return clock.measure(|| limit.run(|| reader.read(block)));
    }
    clock.measure(|| {
        limit.run(|| match cell.mode {
            Mode::DontCache => {
                let mut parts = [IoSliceMut::new(block)];
                Ok(rustix::io::preadv2(
                    &file,
                    &mut parts,
                    u64::MAX,
                    DONT_CACHE,
                )?)
            }
            _ => file.read(block),
        })
    })
}

/// When a pass is over.
struct Limit {
    calls: u64,
    time: Duration,
}

impl Limit {
    fn run(&self, mut call: impl FnMut() -> io::Result<usize>) -> io::Result<u64> {
        let begun = Instant::now();
        let mut moved = 0;
        for i in 1..=self.calls {
            match call()? {
                0 => break,
                n => moved += n as u64,
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
    pub fn command(&self) -> Outcome<std::process::Command> {
        use clap::ValueEnum;
        let program = std::env::current_exe()
            .map_err(|e| Fail::Failed(format!("cannot find this program: {e}")))?;
        let name = |v: Option<clap::builder::PossibleValue>| v.map(|v| v.get_name().to_string());
        let mut command = std::process::Command::new(program);
        command.arg("bench-cell");
        command
            .arg("--direction")
            .args(name(self.direction.to_possible_value()));
        command
            .arg("--mode")
            .args(name(self.mode.to_possible_value()));
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
        Ok(command)
    }
}
