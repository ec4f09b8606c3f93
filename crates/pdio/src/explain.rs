// SPDX-License-Identifier: MIT OR Apache-2.0
//! What was found out about a file, and what is done about it.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use crate::align::{Alignment, FileFacts, FileKind};
use crate::engine::{Direction, Engine as Running};
use crate::memory::{Region, MIN_REGION};
use crate::options::{Engine, Strategy};
use crate::policy::{self, Key, LearnedCost, Operation, Pattern, Pilot};
use crate::sys;

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
    /// What this process has learned of the device.
    pub costs: Vec<LearnedCost>,
    /// The strategy a sequential writer starts with, and why.
    pub write: (Strategy, String),
    /// The strategy a sequential reader starts with, and why.
    pub read: (Strategy, String),
}

/// Finds out how streams on the file at `path` work, and why. Reads the file at most; learned
/// costs are those of this process.
///
/// # Errors
/// Those of `open(2)` for reading.
pub fn explain(path: impl AsRef<Path>) -> io::Result<Explanation> {
    let file = Arc::new(File::open(path)?);
    let facts = FileFacts::of(&file)?;
    let engine = match facts.alignment {
        None => Engine::Inline,
        Some(_) => match Region::take(MIN_REGION) {
            Some(region) => {
                Running::new(Engine::Auto, Direction::Read, file.clone(), region).probe()
            }
            None => Engine::Inline,
        },
    };
    let costs = policy::costs(facts.dev);
    let decide = |operation| decide(&facts, operation, &costs);
    Ok(Explanation {
        filesystem: facts.filesystem.to_string(),
        device: (libc::major(facts.dev), libc::minor(facts.dev)),
        alignment: facts.alignment,
        granule: facts.granule,
        engine,
        resident: match facts.kind {
            FileKind::Stream => None,
            _ => sys::resident(file.as_fd(), 0, facts.size.max(1)),
        },
        write: decide(Operation::Write),
        read: decide(Operation::Read),
        costs,
    })
}

fn decide(facts: &FileFacts, operation: Operation, costs: &[LearnedCost]) -> (Strategy, String) {
    if facts.kind == FileKind::Stream {
        return (Strategy::Buffered, "no offsets: passed through".into());
    }
    let key = Key {
        dev: facts.dev,
        operation,
        pattern: Pattern::Sequential,
        paced: false,
    };
    let page_cache_only = matches!(facts.filesystem, "tmpfs" | "ramfs");
    let dont_cache = operation == Operation::Write && !page_cache_only;
    let strategy =
        Pilot::new(key, Strategy::Auto, facts.alignment.is_some(), dont_cache).strategy();
    let mine = costs.iter().find(|c| {
        (c.operation, c.pattern, c.strategy) == (operation, Pattern::Sequential, strategy)
    });
    let why = match (mine, facts.alignment) {
        (Some(cost), _) => format!(
            "the cheapest measured, {:.3} s per GiB",
            cost.seconds_per_gib
        ),
        (None, None) => format!("{} does no direct I/O on this file", facts.filesystem),
        (None, Some(_)) => {
            "nothing measured in this process yet: large requests without copies in the kernel \
                            are cheapest on most devices; each 16 MiB is measured, and after \
                            32 MiB the ways through the page cache are tried"
                .into()
        }
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
        writeln!(f, "engine      {:?}", self.engine)?;
        if let Some(bytes) = self.resident {
            writeln!(f, "page cache  holds {bytes} B of the file")?;
        }
        for cost in &self.costs {
            writeln!(
                f,
                "measured    {:?} {:?} {:?}{}: {:.3} s per GiB over {} MiB",
                cost.operation,
                cost.pattern,
                cost.strategy,
                if cost.zero_copy { " without copy" } else { "" },
                cost.seconds_per_gib,
                cost.bytes >> 20
            )?;
        }
        writeln!(f, "write       {:?}: {}", self.write.0, self.write.1)?;
        write!(f, "read        {:?}: {}", self.read.0, self.read.1)
    }
}
