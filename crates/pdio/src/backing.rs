// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a stream stands on, whichever way it goes: its file, memory, engine and policy.

use std::fs::File;
use std::io::{self, SeekFrom};
use std::os::fd::AsFd;
use std::sync::Arc;

use crate::align::{page_cache_only, FileFacts};
use crate::engine::{Completion, Direction, Engine};
use crate::files::Inode;
use crate::fork::{self, RingNumber};
use crate::learned::{self, Key, Operation, Pattern};
use crate::memory::{Region, MIN_REGION};
use crate::options::{self, OpenOptions, Strategy};
use crate::policy::{Pilot, Wanted};
use crate::stats::Stats;
use crate::sys;

#[derive(Debug)]
pub(crate) struct Backing {
    pub file: Arc<File>,
    /// The same file once more, for direct I/O.
    pub direct: Option<Arc<File>>,
    pub facts: FileFacts,
    /// The size of requests.
    pub block: usize,
    /// Requests at a time.
    pub depth: usize,
    pub pilot: Pilot,
    pub stats: Stats,
    /// What `stats` had as direct when the last slice ended.
    direct_before: u64,
    operation: Operation,
    wanted: Wanted,
    memory_limit: usize,
    in_turn: bool,
    engine_wanted: options::Engine,
    /// The memory: here until the first direct request, in the engine from then on.
    region: Option<Region>,
    engine: Option<Engine>,
    pub ring: RingNumber,
}

impl Backing {
    /// `flags` are those of the open file. In a child, `inherited` is what its parent's stream had for direct
    /// I/O. It stays open: to close it would drop the record locks that the child has taken on the file.
    pub(crate) fn new(
        file: Arc<File>,
        inherited: Option<Arc<File>>,
        flags: i32,
        facts: FileFacts,
        options: &OpenOptions,
        operation: Operation,
    ) -> Backing {
        let wants_direct = matches!(options.strategy, Strategy::Auto | Strategy::Direct);
        let (mode, kept) = match operation {
            Operation::Read => (libc::O_RDONLY, libc::O_NOATIME),
            Operation::Write => (libc::O_WRONLY, libc::O_NOATIME | libc::O_SYNC),
        };
        let open = || {
            let direct = sys::reopen(file.as_fd(), mode | libc::O_DIRECT | flags & kept);
            direct.ok().map(Arc::new)
        };
        let direct = (wants_direct && allows_direct(&facts, operation))
            .then(|| inherited.or_else(open))
            .flatten();
        let can_direct = direct.is_some();
        let wanted = match options.only {
            Some(choice) => Wanted::Only(choice),
            None => Wanted::Strategy(options.strategy),
        };
        learned::meet(file.as_fd(), &facts);
        let block = options
            .block_size
            .next_power_of_two()
            .clamp(64 << 10, (options.memory_limit / 4).max(64 << 10))
            .max(facts.granule as usize);
        Backing {
            pilot: pilot(&facts, operation, Pattern::Sequential, wanted, can_direct),
            file,
            direct,
            facts,
            block,
            depth: options.queue_depth,
            stats: Stats::default(),
            direct_before: 0,
            operation,
            wanted,
            memory_limit: options.memory_limit,
            in_turn: options.in_turn,
            engine_wanted: options.engine,
            region: None,
            engine: None,
            ring: RingNumber::default(),
        }
    }

    /// Steers calls of another pattern on the same file.
    pub(crate) fn pilot_of(&self, pattern: Pattern) -> Pilot {
        let direct = self.direct.is_some();
        pilot(&self.facts, self.operation, pattern, self.wanted, direct)
    }

    pub(crate) fn stats(&self) -> Stats {
        Stats {
            engine: self
                .engine
                .as_ref()
                .map_or(options::Engine::Auto, Engine::kind),
            strategy: self.pilot.strategy(),
            memory: self.memory().map_or(0, |region| region.len() as u64),
            ..self.stats.clone()
        }
    }

    pub(crate) fn memory(&self) -> Option<&Region> {
        self.engine
            .as_ref()
            .map(Engine::region)
            .or(self.region.as_ref())
    }

    /// Makes sure that there is memory to stage in; returns false if there is none.
    pub(crate) fn ensure_memory(&mut self) -> bool {
        if self.memory().is_none() && self.memory_limit >= MIN_REGION {
            self.region = Region::take(self.memory_limit, self.in_turn);
            if let Some(region) = &self.region {
                // Requests must fit the memory that there was.
                self.block = self.block.min(region.len() / 4);
            }
            if self.region.is_none() || self.block < self.facts.granule as usize {
                self.give_back();
                self.memory_limit = 0;
            }
        }
        self.memory().is_some()
    }

    fn give_back(&mut self) {
        if let Some(region) = self.region.take() {
            region.give_back();
        }
    }

    /// The engine, made if direct I/O and memory are there.
    pub(crate) fn engine(&mut self) -> Option<&mut Engine> {
        if self.engine.is_none() {
            let direct = self.direct.clone()?;
            let region = self.region.take()?;
            let direction = match self.operation {
                Operation::Read => Direction::Read,
                Operation::Write => Direction::Write,
            };
            let (wanted, ring) = (self.engine_wanted, self.ring.clone());
            self.engine = Some(Engine::new(wanted, direction, direct, ring, region));
        }
        self.engine.as_mut()
    }

    /// A request that has been carried out; with `wait`, the next one that is. `None` if there is none.
    pub(crate) fn completion(&mut self, wait: bool) -> io::Result<Option<Completion>> {
        match &mut self.engine {
            Some(engine) => engine.reap(wait),
            None => Ok(None),
        }
    }

    /// The process ends without dropping the stream. As [`Engine::rescue`].
    pub(crate) fn rescue(&mut self) {
        if let Some(engine) = &mut self.engine {
            engine.rescue();
        }
    }

    pub(crate) fn is_direct(&self) -> bool {
        self.direct.is_some() && self.pilot.strategy() == Strategy::Direct
    }

    /// Returns true, and the slice that ends counts for nothing, if direct I/O is the strategy and less than
    /// one `part` of the slice went that way.
    pub(crate) fn slice_went_astray(&mut self, part: u64) -> bool {
        let before = std::mem::replace(&mut self.direct_before, self.stats.direct_bytes);
        let direct = self.direct_before - before;
        let astray = self.is_direct() && direct < self.pilot.slice_bytes() / part;
        if astray {
            self.pilot.interrupt();
        }
        astray
    }

    /// For the child after a fork: leaves the parent's memory and threads alone. Returns what there was for
    /// direct I/O.
    pub(crate) fn abandon(&mut self) -> Option<Arc<File>> {
        let used = self.engine.take().map(Engine::abandon);
        std::mem::forget(self.region.take());
        self.ring.close_in_child();
        let direct = self.direct.take().or(used);
        direct.and_then(|direct| fork::adopt_unknown(&direct, &self.file))
    }
}

impl Drop for Backing {
    fn drop(&mut self) {
        self.give_back();
    }
}

/// Steers calls on a file of which these things are known.
pub(crate) fn pilot(
    facts: &FileFacts,
    operation: Operation,
    pattern: Pattern,
    wanted: Wanted,
    direct: bool,
) -> Pilot {
    let key = Key {
        dev: facts.dev,
        operation,
        pattern,
        paced: false,
    };
    // Reads that drop what they read were slower than either in every case measured.
    let dont_cache = !page_cache_only(facts.filesystem)
        && (operation == Operation::Write
            || matches!(wanted, Wanted::Strategy(Strategy::DontCache)));
    // It allocates and checks each for itself, one after the other.
    let dear = facts.filesystem == "btrfs";
    Pilot::new(key, wanted, direct, dont_cache).on_dear_writes(dear)
}

/// Returns true if direct requests are possible on a file, and leave it as those through the page cache do.
pub(crate) fn allows_direct(facts: &FileFacts, operation: Operation) -> bool {
    facts.alignment.is_some() && !(facts.compresses && operation == Operation::Write)
}

/// Where a seek leads to; `size` is the file's as the kernel knows it.
pub(crate) fn seek(
    file: &File,
    to: SeekFrom,
    position: u64,
    inode: &Inode,
    size: impl FnOnce() -> io::Result<u64>,
) -> io::Result<u64> {
    let target = match to {
        SeekFrom::Start(at) => Some(at),
        SeekFrom::Current(by) => position.checked_add_signed(by),
        SeekFrom::End(by) => {
            // In this order: what the keeper or another thread hands to the kernel between the two
            // looks is seen by both, and by neither the other way round.
            let held = inode.pending_end();
            size()?.max(held).checked_add_signed(by)
        }
    };
    let target = target
        .filter(|&at| i64::try_from(at).is_ok())
        .ok_or_else(|| {
            let message = "seek to before the start or beyond the largest offset";
            io::Error::new(io::ErrorKind::InvalidInput, message)
        })?;
    // Nearer than that is possible everywhere; farther, a flush would be the first to notice.
    if target > i32::MAX as u64 {
        sys::set_offset(file.as_fd(), target)?;
    }
    Ok(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_on_a_network_have_no_choice_to_learn() {
        let file = tempfile::tempfile_in("/var/tmp").unwrap();
        let mut facts = FileFacts::of(&file).unwrap();
        facts.filesystem = "nfs";
        for operation in [Operation::Read, Operation::Write] {
            for wanted in [Strategy::Auto, Strategy::DontCache] {
                let wanted = Wanted::Strategy(wanted);
                let pilot = pilot(&facts, operation, Pattern::Sequential, wanted, false);
                assert_eq!(pilot.strategy(), Strategy::Buffered);
                // No trials, and no waiting for written data either.
                assert!(pilot.is_fixed() && !pilot.chose_page_cache());
            }
        }
    }
}
