// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pdio bench`: the measurements of Joyce and Audsley, "Exploring Storage Bottlenecks in
//! Linux-based Embedded Systems" (EWiLi 2015), sections 3.2 to 3.4, on this machine.

pub mod cell;
mod cgroup;
mod child;
mod measure;
mod profile;
mod results;
mod shares;
mod stat;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::report::{self, say, Context, Fail, Outcome};
use crate::signals::Signals;
use crate::size;
use cell::{Direction, Mode, Pattern};
use measure::{measure, Work};
use results::{as_json, frames, table};

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
    #[arg(long, default_value_t = 30.0, value_name = "N", value_parser = size::above_zero(1e6))]
    rate: f64,
    /// Seconds a stream
    #[arg(long, default_value_t = 10.0, value_name = "N", value_parser = size::above_zero(3600.0))]
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
    #[arg(long, value_name = "N", value_parser = size::above_zero(3600.0))]
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
impl Bench {
    /// What is asked for.
    ///
    /// # Errors
    /// If that cannot be done.
    fn work(&self) -> Outcome<Work<'_>> {
        let (name, options, sizes) = match &self.study {
            Some(Study::Paper(options)) if options.quick => ("paper", options, &QUICK[..]),
            Some(Study::Paper(options)) => ("paper", options, &PAPER[..]),
            Some(Study::Random(options)) => ("random", options, &RANDOM[..]),
            Some(Study::First(options)) => ("first", options, &FIRST[..]),
            Some(Study::Stream(stream)) => ("stream", &stream.options, &[][..]),
            None => ("glance", &self.options, &GLANCE[..]),
        };
        let stream = match &self.study {
            Some(Study::Stream(stream)) => Some(stream),
            _ => None,
        };
        let mut sizes = match options.sizes.is_empty() {
            true => sizes.to_vec(),
            false => options.sizes.clone(),
        };
        if let Some(stream) = stream {
            stream.check()?;
            sizes = vec![stream.frame];
        }
        options.check()?;
        if let Some(bad) = sizes.iter().find(|&&s| s == 0 || s > 1 << 30) {
            return Err(Fail::Usage(format!(
                "--sizes: {bad} is not between 1 B and 1 GiB"
            )));
        }
        Ok(Work {
            name,
            pattern: match name {
                "random" => Pattern::Random,
                _ => Pattern::Sequential,
            },
            options,
            stream,
            sizes,
            profiler: options.profile.then(profile::check).transpose()?,
        })
    }
}

impl Stream {
    fn check(&self) -> Outcome {
        let (options, rate, length) = (&self.options, self.rate, self.length);
        if !options.sizes.is_empty() || options.bytes.is_some() || options.profile {
            let text = "stream has --frame, --rate and --length, not --sizes, --bytes, --profile";
            return Err(Fail::Usage(text.into()));
        }
        if rate * length >= 1e8 {
            let text = "--length: a stream has less than 100 million frames";
            return Err(Fail::Usage(text.into()));
        }
        Ok(())
    }
}

impl Options {
    fn check(&self) -> Outcome {
        let wrong = if self.targets.is_empty() {
            "say in which directories to measure"
        } else if self.cache < 64 << 20 {
            "--cache: at least 64M"
        } else {
            return Ok(());
        };
        Err(Fail::Usage(wrong.into()))
    }
}

/// Where `--json` has everything written.
enum Json<'a> {
    Nowhere,
    Stdout,
    File(File, &'a Path),
}

impl Json<'_> {
    /// Before minutes are spent.
    fn open(path: Option<&Path>) -> Outcome<Json<'_>> {
        let Some(path) = path else {
            return Ok(Json::Nowhere);
        };
        if path == Path::new("-") {
            return Ok(Json::Stdout);
        }
        // What it has stays until there is something better.
        let file = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .open(path);
        Ok(Json::File(file.context("create", path)?, path))
    }

    fn write(self, value: &serde_json::Value) -> Outcome {
        match self {
            Json::Nowhere => Ok(()),
            Json::Stdout => report::json(value),
            Json::File(mut file, path) => {
                let text = serde_json::to_string_pretty(value);
                let text = text.map_err(|e| Fail::Failed(e.to_string()))?;
                // A pipe or a terminal has nothing to cut.
                let _ = file.set_len(0);
                io::Write::write_all(&mut file, (text + "\n").as_bytes()).context("write", path)
            }
        }
    }
}

/// The directory that a target stands for.
fn directory_of(target: &Path) -> &Path {
    let parent = target.parent().filter(|_| target.is_file());
    match parent {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => target,
    }
}

/// Runs the command.
///
/// # Errors
/// If a target cannot be measured.
pub fn run(args: &Bench) -> Outcome {
    let work = args.work()?;
    let options = work.options;
    let json = Json::open(options.json.as_deref())?;
    let signals = Signals::listen(&[])?;
    let cgroup = cgroup::Cgroup::new(options.cache);
    if let Err(reason) = &cgroup {
        say(format_args!(
            "pdio bench: page cache is taken fresh, not recycled, which makes buffered I/O look \
             slow: {reason}"
        ));
    }
    let mut targets = Vec::new();
    for target in &options.targets {
        let entry = cgroup.as_ref().ok().map(cgroup::Cgroup::entry);
        let target = measure(directory_of(target), &work, entry, &signals)?;
        if !matches!(json, Json::Stdout) {
            let lines = match work.stream {
                Some(_) => frames(&target),
                None => table(&target, &work.sizes),
            };
            report::print(&lines)?;
        }
        targets.push(target);
    }
    let uname = rustix::system::uname();
    json.write(&json!({
        "study": work.name,
        "kernel": uname.release().to_string_lossy(),
        "machine": uname.machine().to_string_lossy(),
        "cores": std::thread::available_parallelism().map_or(0, usize::from),
        "source": options.source,
        "page_cache_limit": cgroup.is_ok().then_some(options.cache),
        "targets": targets.iter().map(as_json).collect::<Vec<_>>(),
    }))
}
