// SPDX-License-Identifier: MIT OR Apache-2.0
//! Small objects: where an adaptive allocator may only lose.

use std::hint::black_box;
use std::time::Instant;

use crate::growth::Buffer;
use crate::{Checksum, Random, Record};

/// Objects that are alive at a time.
const SLOTS: usize = 1024;
/// The largest object, bytes.
const LARGEST: u64 = 4096;

#[derive(clap::Args)]
pub(crate) struct Small {
    /// Calls of the allocator.
    #[arg(long)]
    operations: u64,
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
fn size(random: &mut Random) -> usize {
    let most = LARGEST >> random.below(9);
    (most - random.below(most / 2)) as usize
}

impl Small {
    pub(crate) fn run(&self) -> Result<Record, String> {
        let mut random = Random(1);
        let mut slots: Vec<Option<Buffer>> = (0..SLOTS).map(|_| None).collect();
        let mut checksum = Checksum::new();
        let mut moves = 0;
        let begin = Instant::now();
        for number in 0..self.operations {
            let slot = &mut slots[random.below(SLOTS as u64) as usize];
            let size = size(&mut random);
            match slot {
                Some(buffer) if self.calls == Calls::Realloc => {
                    checksum.add(u64::from(buffer.first()));
                    moves += u64::from(buffer.resize(size)?);
                }
                _ => {
                    if let Some(buffer) = slot.take() {
                        checksum.add(u64::from(buffer.first()));
                    }
                    let buffer = slot.insert(Buffer::new(size, 8)?);
                    buffer.set_first(number as u8);
                }
            }
            black_box(&slot);
        }
        let seconds = begin.elapsed().as_secs_f64();
        Ok(Record {
            seconds,
            operations: self.operations,
            moves: Some(moves),
            checksum: checksum.text(),
            ..Record::default()
        })
    }
}
