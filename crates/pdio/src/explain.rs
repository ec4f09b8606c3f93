// SPDX-License-Identifier: MIT OR Apache-2.0
//! What was found out about a file, and what is done about it.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use crate::align::{Alignment, FileFacts, FileKind};
use crate::backing;
use crate::engine::{Direction, Engine as Running};
use crate::fork::RingNumber;
use crate::learned::{self, LearnedCost, Operation, Pattern};
use crate::memory::{Region, MIN_REGION};
use crate::options::{Engine, Strategy};
use crate::policy::Wanted;
use crate::sys;
use crate::window::{mostly_cached, SMALL_FILE};

/// What [`explain`] found.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Explanation {
    /// The filesystem, or "block device", or "stream" for pipes and the like.
    pub filesystem: String,
    /// The device, as major and minor number.
    pub device: (u32, u32),
    /// What direct I/O asks for; `None` if the file does not do it.
    pub alignment: Option<Alignment>,
    /// Where direct and buffered parts of a stream meet: multiples of this, in bytes.
    pub granule: u64,
    /// The engine that streams on this file get.
    pub engine: Engine,
    /// Bytes of the file in the page cache, if the kernel can tell.
    pub resident: Option<u64>,
    /// What is known of the device: what [`learn`](crate::learn) has measured, if this process
    /// [remembers](crate::remember_costs) it, and what the streams of this process have.
    pub costs: Vec<LearnedCost>,
    /// The strategy a sequential writer starts with, and why.
    pub write: (Strategy, String),
    /// The strategy a sequential reader starts with, and why.
    pub read: (Strategy, String),
}

/// Finds out how streams on the file at `path` work, and why. Reads the file at most. For a directory
/// it says how streams on a new file in it would work, for which it makes one without a name.
///
/// # Errors
/// Those of `open(2)` for reading, or for making a file.
pub fn explain(path: impl AsRef<Path>) -> io::Result<Explanation> {
    let file = Arc::new(open(path.as_ref())?);
    let facts = FileFacts::of(&file)?;
    learned::meet(file.as_fd(), &facts);
    let engine = match facts.alignment {
        None => Engine::Inline,
        Some(_) => match Region::take(MIN_REGION, false) {
            Some(region) => {
                let (file, ring) = (file.clone(), RingNumber::default());
                Running::new(Engine::Auto, Direction::Read, file, ring, region).probe()
            }
            None => Engine::Inline,
        },
    };
    let costs = learned::costs(facts.dev);
    let cached = facts.kind != FileKind::Stream && mostly_cached(file.as_fd(), 0, facts.size);
    let decide = |operation| decide(&facts, operation, cached, &costs);
    Ok(Explanation {
        filesystem: facts.filesystem.to_string(),
        device: (libc::major(facts.dev), libc::minor(facts.dev)),
        alignment: facts.alignment,
        granule: facts.granule,
        engine,
        resident: match facts.kind {
            FileKind::Stream => None,
            _ => sys::resident(file.as_fd(), 0, facts.size.max(1)).ok(),
        },
        write: decide(Operation::Write),
        read: decide(Operation::Read),
        costs,
    })
}

/// Opens a file; in a directory, a new one without a name.
fn open(path: &Path) -> io::Result<File> {
    // Without waiting for somebody at the other end.
    let flags = match path.metadata()?.file_type().is_fifo() {
        true => libc::O_NONBLOCK,
        false => 0,
    };
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_dir() {
        return Ok(file);
    }
    sys::nameless(path)
}

fn decide(
    facts: &FileFacts,
    operation: Operation,
    cached: bool,
    costs: &[LearnedCost],
) -> (Strategy, String) {
    if facts.kind == FileKind::Stream {
        return (Strategy::Buffered, "no offsets: passed through".into());
    }
    // A file without content may be one that is to be written, as that of a directory.
    if operation == Operation::Read && (1..SMALL_FILE).contains(&facts.size) {
        let why = "files of less than 1 MiB are read through the page cache";
        return (Strategy::Buffered, why.into());
    }
    if operation == Operation::Read && cached {
        let why = "the page cache holds most of what comes first";
        return (Strategy::Buffered, why.into());
    }
    let wanted = Wanted::Strategy(Strategy::Auto);
    let direct = backing::allows_direct(facts, operation);
    let strategy = backing::pilot(facts, operation, Pattern::Sequential, wanted, direct).strategy();
    let mine = costs.iter().find(|c| {
        (c.operation, c.pattern, c.strategy) == (operation, Pattern::Sequential, strategy)
    });
    let why = match (mine, facts.alignment) {
        (Some(cost), _) => format!(
            "measured at {:.3} s per GiB, and nothing else was clearly cheaper",
            cost.seconds_per_gib
        ),
        (None, Some(_)) if !direct => {
            "written directly, the file would not be compressed".to_string()
        }
        (None, None) => format!("{} does no direct I/O on this file", facts.filesystem),
        (None, Some(_)) => "nothing is known of this device yet ('pdio learn' measures it): large \
                            requests without copies in the kernel are cheapest on most; each 16 MiB \
                            is measured, and after 64 MiB the ways through the page cache are tried"
            .into(),
    };
    (strategy, why)
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor) = self.device;
        writeln!(
            f,
            "filesystem  {} on device {major}:{minor}",
            self.filesystem
        )?;
        match self.alignment {
            Some(a) => writeln!(
                f,
                "direct I/O  memory aligned to {} B, offsets to {} B ({}); used in granules of {} B",
                a.memory, a.offset, a.source, self.granule
            )?,
            None => writeln!(f, "direct I/O  not on this file")?,
        }
        writeln!(f, "engine      {}", engine_name(self.engine))?;
        if let Some(bytes) = self.resident {
            writeln!(f, "page cache  holds {bytes} B of the file")?;
        }
        for cost in &self.costs {
            let operation = match cost.operation {
                Operation::Read => "read",
                Operation::Write => "write",
            };
            let pattern = match cost.pattern {
                Pattern::Sequential => "in sequence",
                Pattern::Medium => "in sequence, aligned calls of 64 KiB and more",
                Pattern::Large => "in sequence, aligned calls of 256 KiB and more",
                Pattern::Random => "small calls all over the file",
            };
            let copy = if cost.zero_copy {
                ", without a copy"
            } else {
                ""
            };
            let seconds = cost.seconds_per_gib;
            let way = strategy_name(cost.strategy);
            write!(
                f,
                "{operation:<11} {pattern}: {way}{copy}: {seconds:.3} s per GiB"
            )?;
            match cost.age {
                None => writeln!(f, " over {} MiB", cost.bytes >> 20)?,
                Some(age) => writeln!(f, ", measured {} ago", span(age))?,
            }
        }
        let (write, read) = (strategy_name(self.write.0), strategy_name(self.read.0));
        writeln!(f, "writing     begins {write}: {}", self.write.1)?;
        write!(f, "reading     begins {read}: {}", self.read.1)
    }
}

fn strategy_name(strategy: Strategy) -> &'static str {
    match strategy {
        Strategy::Auto => "as is learned",
        Strategy::Direct => "direct (O_DIRECT)",
        Strategy::DontCache => "through the page cache, dropped after (RWF_DONTCACHE)",
        Strategy::Buffered => "through the page cache",
    }
}

fn engine_name(engine: Engine) -> &'static str {
    match engine {
        Engine::Auto => "chosen with the first request",
        Engine::UringFixed => "io_uring with registered memory and file",
        Engine::Uring => "io_uring without registration (the limit of locked memory is low)",
        Engine::Threads => "threads (io_uring is not there, or not allowed)",
        Engine::Inline => "the calling thread, one request at a time",
    }
}

/// A number of seconds in the largest unit of which there are two.
fn span(seconds: u64) -> String {
    let units = [(86_400, "days"), (3_600, "hours"), (60, "minutes")];
    let fits = units.into_iter().find(|(unit, _)| seconds >= 2 * unit);
    let (unit, name) = fits.unwrap_or((1, "seconds"));
    format!("{} {name}", seconds / unit)
}
