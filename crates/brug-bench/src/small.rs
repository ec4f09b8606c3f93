// SPDX-License-Identifier: MIT OR Apache-2.0
//! Small objects: where an adaptive allocator may only lose.

use std::time::Instant;

use crate::growth::Buffer;
use crate::{Checksum, Random, Record};

/// Objects that are alive at a time.
const SLOTS: usize = 1024;
/// Calls until the sizes and places come again.
const PLAN: usize = 1 << 16;
/// The largest object, bytes.
const LARGEST: u64 = 4096;

#[derive(clap::Args)]
pub(crate) struct Small {
    /// Calls of the allocator.
    #[arg(long)]
    operations: usize,
    /// What to call: pairs of malloc and free, or also realloc.
    #[arg(long, value_enum)]
    calls: Calls,
}

#[derive(Clone, Copy, PartialEq, clap::ValueEnum)]
enum Calls {
    MallocFree,
    Realloc,
}

/// Most objects are small: every power of two is as likely as any other.
fn size(random: &mut Random) -> u16 {
    let most = LARGEST >> random.below(9);
    (most - random.below(most / 2)) as u16
}

impl Small {
    pub(crate) fn run(&self) -> Result<Record, String> {
        // Made beforehand, and short, so that few of the counted instructions are ours.
        let mut random = Random(1);
        let plan: Vec<(u16, u16)> = (0..PLAN)
            .map(|_| (random.below(SLOTS as u64) as u16, size(&mut random)))
            .collect();
        let mut slots: Vec<Option<Buffer>> = (0..SLOTS).map(|_| None).collect();
        let mut checksum = Checksum::new();
        let mut moves = 0;
        let begin = Instant::now();
        for (number, (slot, size)) in plan.iter().cycle().take(self.operations).enumerate() {
            let slot = &mut slots[usize::from(*slot)];
            match slot {
                Some(buffer) if self.calls == Calls::Realloc => {
                    checksum.add(u64::from(buffer.first()));
                    moves += u64::from(buffer.resize(usize::from(*size))?);
                }
                _ => {
                    if let Some(buffer) = slot.take() {
                        checksum.add(u64::from(buffer.first()));
                    }
                    let buffer = slot.insert(Buffer::new(usize::from(*size), 8)?);
                    buffer.set_first(number as u8);
                }
            }
        }
        let seconds = begin.elapsed().as_secs_f64();
        Ok(Record {
            seconds,
            operations: self.operations as u64,
            moves: Some(moves),
            checksum: checksum.text(),
            ..Record::default()
        })
    }
}
