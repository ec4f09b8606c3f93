// SPDX-License-Identifier: MIT OR Apache-2.0
//! Workloads that compare allocators.
//!
//! Each binary of this crate sets one global allocator and calls [`main`]: it does the one piece
//! of work that its arguments name and prints one line of JSON, a [`Record`]. The work is the same
//! in every binary, and so is the checksum of the data it leaves.

mod collections;
mod frameworks;
mod growth;
mod os;
mod small;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use serde::Serialize;

#[derive(Parser)]
#[command(about = "Does one piece of work and prints what it took as one line of JSON")]
struct Cli {
    /// Bytes to touch and give back first.
    #[arg(long, default_value_t = 0)]
    settle: usize,
    #[command(subcommand)]
    work: Work,
}

#[derive(Subcommand)]
enum Work {
    /// Grow one or several buffers in turn, step by step, and write to what is new.
    Grow(growth::Grow),
    /// Grow a buffer, and note how long each call and each first touch of a page takes.
    Wait(growth::Wait),
    /// Let a buffer grow to its largest size and shrink again, over and over.
    Oscillate(growth::Oscillate),
    /// Grow buffers that change hands between two threads before each step.
    CrossThread(growth::CrossThread),
    /// Threads that grow a buffer each, in small steps and in turn.
    Threads(growth::Threads),
    /// Use much memory, free most of it, and see what is left after a while.
    Burst(growth::Burst),
    /// Fork beside a buffer that has grown, and write to it while the child has a copy.
    Fork(growth::Fork),
    /// Allocate, resize and free objects of at most 4 KiB.
    Small(small::Small),
    /// Fill a collection of the standard library.
    Collection(collections::Collection),
    /// Append integers or pages to a vector.
    Push(collections::Push),
    /// Append integers or pages to an Arrow buffer.
    Arrow(frameworks::Arrow),
    /// Link two WebAssembly modules.
    #[cfg(feature = "wasmtime")]
    Link(frameworks::Link),
}

/// One step of a growing buffer: the mean over its lives.
#[derive(Serialize)]
struct Step {
    /// Bytes after the step.
    size: usize,
    /// Seconds for the call and for writing to what is new.
    seconds: f64,
    /// Seconds for the call alone.
    realloc_seconds: f64,
}

/// What a piece of work took. Absent fields have no meaning for it.
#[derive(Default, Serialize)]
struct Record {
    allocator: &'static str,
    /// Seconds of the work alone: no start of the process, no check of the data.
    seconds: f64,
    /// Of these, seconds inside realloc.
    #[serde(skip_serializing_if = "Option::is_none")]
    realloc_seconds: Option<f64>,
    /// Seconds to free the result, not contained in `seconds`.
    #[serde(skip_serializing_if = "Option::is_none")]
    free_seconds: Option<f64>,
    /// Seconds of each repetition, in their order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    lives: Vec<f64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    steps: Vec<Step>,
    /// How long single calls of realloc, first touches of a page, and steps of both took.
    #[serde(skip_serializing_if = "Option::is_none")]
    waits: Option<Waits>,
    /// Operations that `seconds` is for.
    operations: u64,
    /// Times that realloc returned another address.
    #[serde(skip_serializing_if = "Option::is_none")]
    moves: Option<u64>,
    /// Bytes that the work holds at its largest, or for a burst at its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    live_bytes: Option<usize>,
    /// Resident memory at the end of an idle second.
    #[serde(skip_serializing_if = "Option::is_none")]
    idle_rss_bytes: Option<usize>,
    /// Resident memory before the work, and the most during it.
    base_rss_bytes: usize,
    peak_rss_bytes: usize,
    minor_faults: u64,
    major_faults: u64,
    /// Of the data; the same for each allocator.
    checksum: String,
}

#[derive(Serialize)]
struct Waits {
    realloc: Percentiles,
    touch: Percentiles,
    step: Percentiles,
}

/// Of nanoseconds.
#[derive(Serialize)]
struct Percentiles {
    count: usize,
    p50: u64,
    p99: u64,
    p999: u64,
    worst: u64,
    sum: u64,
}

impl Percentiles {
    fn of(mut samples: Vec<u64>) -> Self {
        samples.sort_unstable();
        let at = |share: f64| {
            let place = (samples.len() as f64 * share).ceil() as usize;
            samples[place.clamp(1, samples.len()) - 1]
        };
        Self {
            count: samples.len(),
            p50: at(0.5),
            p99: at(0.99),
            p999: at(0.999),
            worst: at(1.0),
            sum: samples.iter().sum(),
        }
    }
}

/// Does what the command line asks for. `allocator` is only a label for the record.
pub fn main(allocator: &'static str) -> ExitCode {
    let cli = Cli::parse();
    if let Err(message) = os::settle(cli.settle) {
        return fail(&message);
    }
    let before = os::Usage::begin();
    let done = match cli.work {
        Work::Grow(work) => work.run(),
        Work::Wait(work) => work.run(),
        Work::Oscillate(work) => work.run(),
        Work::CrossThread(work) => work.run(),
        Work::Threads(work) => work.run(),
        Work::Burst(work) => work.run(),
        Work::Fork(work) => work.run(),
        Work::Small(work) => work.run(),
        Work::Collection(work) => work.run(),
        Work::Push(work) => work.run(),
        Work::Arrow(work) => work.run(),
        #[cfg(feature = "wasmtime")]
        Work::Link(work) => work.run(),
    };
    let used = before.end();
    match done {
        Ok(record) => {
            let record = Record {
                allocator,
                base_rss_bytes: used.base_rss,
                peak_rss_bytes: used.peak_rss,
                minor_faults: used.minor_faults,
                major_faults: used.major_faults,
                ..record
            };
            match serde_json::to_string(&record) {
                Ok(line) => {
                    println!("{line}");
                    ExitCode::SUCCESS
                }
                Err(error) => fail(&error.to_string()),
            }
        }
        Err(message) => fail(&message),
    }
}

fn fail(message: &str) -> ExitCode {
    eprintln!("brug-bench: {message}");
    ExitCode::FAILURE
}

/// Order-dependent sum of what a workload wants to be the same everywhere (FNV-1a by words).
struct Checksum(u64);

impl Checksum {
    fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    fn add(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(0x0000_0100_0000_01b3);
    }

    fn text(&self) -> String {
        format!("{:016x}", self.0)
    }
}

/// A small reproducible source of pseudo-random numbers (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}
