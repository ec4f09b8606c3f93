// SPDX-License-Identifier: MIT OR Apache-2.0
//! The collections of the standard library, filled one item at a time (figures 3, 7, 8 and 9).

use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, HashSet, LinkedList, VecDeque};
use std::hint::black_box;
use std::time::Instant;

use crate::{Checksum, Random, Record};

#[derive(Clone, Copy, clap::ValueEnum)]
enum Kind {
    Vec,
    VecDeque,
    LinkedList,
    HashMap,
    BtreeMap,
    HashSet,
    BtreeSet,
    BinaryHeap,
    String,
}

#[derive(clap::Args)]
pub(crate) struct Collection {
    #[arg(long, value_enum)]
    kind: Kind,
    #[arg(long)]
    items: u64,
    #[arg(long, default_value_t = 1)]
    lives: usize,
}

/// Make a collection, add every item, and reduce it to something that does not depend on order.
fn filled<C>(
    items: u64,
    mut collection: C,
    mut add: impl FnMut(&mut C, u64),
    sum: impl FnOnce(&C) -> u64,
) -> (f64, f64, u64) {
    let mut random = Random(7);
    let begin = Instant::now();
    for _ in 0..items {
        add(&mut collection, random.next());
    }
    black_box(&collection);
    let seconds = begin.elapsed().as_secs_f64();
    let sum = sum(&collection);
    let end = Instant::now();
    drop(collection);
    (seconds, end.elapsed().as_secs_f64(), sum)
}

fn total<'a>(items: impl IntoIterator<Item = &'a u64>) -> u64 {
    items.into_iter().fold(0, |sum, n| sum.wrapping_add(*n))
}

impl Collection {
    fn once(&self) -> (f64, f64, u64) {
        let n = self.items;
        match self.kind {
            Kind::Vec => filled(n, Vec::new(), Vec::push, |all| total(all)),
            Kind::VecDeque => filled(n, VecDeque::new(), VecDeque::push_back, |all| total(all)),
            Kind::LinkedList => filled(n, LinkedList::new(), LinkedList::push_back, |all| {
                total(all)
            }),
            Kind::HashMap => filled(
                n,
                HashMap::new(),
                |map, key| _ = map.insert(key, key),
                |map| total(map.values()),
            ),
            Kind::BtreeMap => filled(
                n,
                BTreeMap::new(),
                |map, key| _ = map.insert(key, key),
                |map| total(map.values()),
            ),
            Kind::HashSet => filled(
                n,
                HashSet::new(),
                |set, key| _ = set.insert(key),
                |all| total(all),
            ),
            Kind::BtreeSet => filled(
                n,
                BTreeSet::new(),
                |set, key| _ = set.insert(key),
                |all| total(all),
            ),
            Kind::BinaryHeap => filled(n, BinaryHeap::new(), BinaryHeap::push, |heap| {
                total(heap.iter())
            }),
            Kind::String => filled(
                n,
                String::new(),
                |text, item| text.push((b'a' + (item % 26) as u8) as char),
                |text| text.bytes().map(u64::from).sum(),
            ),
        }
    }

    pub(crate) fn run(&self) -> Result<Record, String> {
        let mut checksum = Checksum::new();
        let (mut lives, mut freeing) = (Vec::new(), 0.0);
        for _ in 0..self.lives {
            let (seconds, free, sum) = self.once();
            lives.push(seconds);
            freeing += free;
            checksum.add(sum);
        }
        Ok(Record {
            seconds: lives.iter().sum(),
            free_seconds: Some(freeing),
            lives,
            operations: self.items * self.lives as u64,
            checksum: checksum.text(),
            ..Record::default()
        })
    }
}

/// What is appended at a time.
#[derive(Clone, Copy, clap::ValueEnum)]
pub(crate) enum Grain {
    /// 4 bytes.
    Int,
    /// 4 KiB.
    Page,
}

/// A repeated append of integers or pages to something that grows by itself.
#[derive(clap::Args)]
pub(crate) struct Push {
    #[arg(long, value_enum)]
    grain: Grain,
    /// Bytes in all.
    #[arg(long)]
    bytes: usize,
    #[arg(long, default_value_t = 1)]
    lives: usize,
}

/// The n-th page that is appended.
fn page(number: usize, page: &mut [u8; 4096]) {
    page[..8].copy_from_slice(&(number as u64).to_le_bytes());
}

impl Push {
    /// Append to what `make` makes; `sum` sees the bytes of the result.
    pub(crate) fn repeat<C>(
        &self,
        make: impl Fn() -> C,
        int: impl Fn(&mut C, i32),
        whole_page: impl Fn(&mut C, &[u8; 4096]),
        bytes: impl Fn(&C) -> &[u8],
    ) -> Result<Record, String> {
        let mut checksum = Checksum::new();
        let (mut lives, mut freeing, mut operations) = (Vec::new(), 0.0, 0);
        for _ in 0..self.lives {
            let begin = Instant::now();
            let mut grown = make();
            match self.grain {
                Grain::Int => {
                    for n in 0..self.bytes / 4 {
                        int(&mut grown, black_box(n as i32));
                    }
                    operations += (self.bytes / 4) as u64;
                }
                Grain::Page => {
                    let mut buffer = [0x5a_u8; 4096];
                    for n in 0..self.bytes / 4096 {
                        page(n, &mut buffer);
                        whole_page(&mut grown, black_box(&buffer));
                    }
                    operations += (self.bytes / 4096) as u64;
                }
            }
            black_box(&grown);
            lives.push(begin.elapsed().as_secs_f64());
            let all = bytes(&grown);
            checksum.add(all.len() as u64);
            for at in (0..all.len().saturating_sub(8)).step_by(4096) {
                let mut word = [0; 8];
                word.copy_from_slice(&all[at..at + 8]);
                checksum.add(u64::from_le_bytes(word));
            }
            let end = Instant::now();
            drop(grown);
            freeing += end.elapsed().as_secs_f64();
        }
        Ok(Record {
            seconds: lives.iter().sum(),
            free_seconds: Some(freeing),
            lives,
            operations,
            live_bytes: Some(self.bytes),
            checksum: checksum.text(),
            ..Record::default()
        })
    }

    pub(crate) fn run(&self) -> Result<Record, String> {
        match self.grain {
            Grain::Int => self.repeat(
                Vec::<i32>::new,
                |v, n| v.push(n),
                |_, _| (),
                |v| {
                    // SAFETY: initialised integers are initialised bytes.
                    unsafe { std::slice::from_raw_parts(v.as_ptr().cast(), size_of_val(&v[..])) }
                },
            ),
            Grain::Page => self.repeat(
                Vec::<u8>::new,
                |_, _| (),
                |v, page| v.extend_from_slice(page),
                |v| v,
            ),
        }
    }
}
