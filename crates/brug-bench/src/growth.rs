// SPDX-License-Identifier: MIT OR Apache-2.0
//! Buffers that grow, through the global allocator and nothing else.

use std::alloc::{alloc, dealloc, realloc, Layout};
use std::hint::black_box;
use std::iter;
use std::ptr::NonNull;
use std::str::FromStr;
use std::sync::{mpsc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use crate::{os, Checksum, Percentiles, Random, Record, Step, Waits};

const PAGE: usize = 4096;
/// More steps than this are not told one by one.
const STEPS_TOLD: usize = 64;

/// Memory of the global allocator that knows its layout.
pub(crate) struct Buffer {
    memory: NonNull<u8>,
    layout: Layout,
}

// SAFETY: a buffer owns its memory, and nothing else refers to it.
unsafe impl Send for Buffer {}

impl Buffer {
    pub(crate) fn new(size: usize, align: usize) -> Result<Self, String> {
        if size == 0 {
            return Err("a buffer needs at least one byte".into());
        }
        let layout = Layout::from_size_align(size, align).map_err(|e| e.to_string())?;
        // SAFETY: the size is not zero.
        let memory = NonNull::new(unsafe { alloc(layout) })
            .ok_or_else(|| format!("no memory for {size} bytes"))?;
        if memory.as_ptr().align_offset(align) != 0 {
            return Err(format!("{memory:p} is not aligned to {align} bytes"));
        }
        Ok(Self { memory, layout })
    }

    pub(crate) fn size(&self) -> usize {
        self.layout.size()
    }

    /// Returns true if it moved.
    pub(crate) fn resize(&mut self, size: usize) -> Result<bool, String> {
        let layout =
            Layout::from_size_align(size, self.layout.align()).map_err(|e| e.to_string())?;
        // SAFETY: the memory is of this allocator with this layout; no size in use here is zero.
        let memory = NonNull::new(unsafe { realloc(self.memory.as_ptr(), self.layout, size) })
            .ok_or_else(|| format!("no memory to grow to {size} bytes"))?;
        if memory.as_ptr().align_offset(self.layout.align()) != 0 {
            return Err(format!("{memory:p} lost its alignment"));
        }
        let moved = memory != self.memory;
        self.memory = memory;
        self.layout = layout;
        Ok(moved)
    }

    pub(crate) fn first(&self) -> u8 {
        self.get(0)
    }

    pub(crate) fn set_first(&mut self, value: u8) {
        self.set(0, value);
    }

    fn get(&self, offset: usize) -> u8 {
        assert!(offset < self.size());
        // SAFETY: within the buffer; the caller has written there.
        unsafe { self.memory.as_ptr().add(offset).read() }
    }

    fn set(&mut self, offset: usize, value: u8) {
        assert!(offset < self.size());
        // SAFETY: within the buffer.
        unsafe { self.memory.as_ptr().add(offset).write(value) };
    }

    /// Write to all pages that begin in [from, size), as much of each as `touch` says.
    fn write(&mut self, from: usize, touch: Touch, seed: u8) {
        let size = self.size();
        match touch {
            Touch::None => {}
            Touch::Page => {
                for offset in (from.next_multiple_of(PAGE)..size).step_by(PAGE) {
                    self.set(offset, content(offset, seed));
                }
            }
            Touch::Fill | Touch::Refill => {
                let mut at = if touch == Touch::Refill { 0 } else { from };
                while at < size {
                    let end = size.min((at / PAGE + 1) * PAGE);
                    // SAFETY: `at < end <= size`.
                    unsafe {
                        self.memory
                            .as_ptr()
                            .add(at)
                            .write_bytes(content(at, seed), end - at);
                    }
                    at = end;
                }
            }
        }
        black_box(self.memory);
    }

    /// Every page must still begin with what was written there.
    fn verify(&self, touch: Touch, seed: u8, checksum: &mut Checksum) -> Result<(), String> {
        if touch == Touch::None {
            return Ok(());
        }
        for offset in (0..self.size()).step_by(PAGE) {
            let value = self.get(offset);
            if value != content(offset, seed) {
                return Err(format!(
                    "data lost at offset {offset} of {} bytes",
                    self.size()
                ));
            }
            checksum.add(u64::from(value));
        }
        Ok(())
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: the memory is of this allocator with this layout and is not used again.
        unsafe { dealloc(self.memory.as_ptr(), self.layout) };
    }
}

fn content(offset: usize, seed: u8) -> u8 {
    ((offset / PAGE) as u8).wrapping_mul(31).wrapping_add(seed)
}

#[derive(Clone, Copy, PartialEq, clap::ValueEnum)]
enum Touch {
    /// Write nothing.
    None,
    /// One byte of each new page.
    Page,
    /// All new bytes.
    Fill,
    /// All bytes, old and new.
    Refill,
}

#[derive(Clone, Copy)]
enum Increase {
    Times(f64),
    Plus(usize),
}

impl FromStr for Increase {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(factor) = text.strip_prefix('x') {
            let factor: f64 = factor.parse().map_err(|_| format!("no factor: {text}"))?;
            if factor > 1.0 {
                return Ok(Self::Times(factor));
            }
        } else if let Some(bytes) = text.strip_prefix('+') {
            let bytes: usize = bytes.parse().map_err(|_| format!("no number: {text}"))?;
            if bytes > 0 {
                return Ok(Self::Plus(bytes));
            }
        }
        Err(format!("{text}: say x2, x1.5, +4096"))
    }
}

impl Increase {
    fn after(self, size: usize, most: usize) -> usize {
        let next = match self {
            Self::Times(factor) => (size as f64 * factor) as usize,
            Self::Plus(bytes) => size.saturating_add(bytes),
        };
        next.max(size + 1).min(most)
    }
}

#[derive(clap::Args)]
pub(crate) struct Grow {
    /// Bytes at first.
    #[arg(long, default_value_t = 4096)]
    from: usize,
    /// Bytes at last.
    #[arg(long)]
    to: usize,
    /// How: x2, x1.5, +4096.
    #[arg(long, default_value = "x2")]
    step: Increase,
    #[arg(long, default_value_t = 16)]
    align: usize,
    /// Buffers that grow in turn.
    #[arg(long, default_value_t = 1)]
    objects: usize,
    #[arg(long, value_enum, default_value = "page")]
    touch: Touch,
    /// How often to do all of it in this process.
    #[arg(long, default_value_t = 1)]
    lives: usize,
    /// Take the time of each call; costs about 50 ns a call.
    #[arg(long)]
    time_calls: bool,
}

impl Grow {
    pub(crate) fn run(&self) -> Result<Record, String> {
        if self.from == 0 || self.to < self.from || self.objects == 0 || self.lives == 0 {
            return Err("nothing to grow".into());
        }
        let mut checksum = Checksum::new();
        let mut record = Record {
            moves: Some(0),
            live_bytes: Some(self.to * self.objects),
            ..Record::default()
        };
        let (mut freeing, mut calls, mut moves) = (0.0, 0.0, 0);
        let mut steps: Vec<Step> = Vec::new();
        for life in 0..self.lives {
            let seed = life as u8;
            let mut buffers = Vec::with_capacity(self.objects);
            let begin = Instant::now();
            for _ in 0..self.objects {
                let mut buffer = Buffer::new(self.from, self.align)?;
                buffer.write(0, self.touch, seed);
                buffers.push(buffer);
            }
            let mut size = self.from;
            let mut step = 0;
            while size < self.to {
                let next = self.step.after(size, self.to);
                let step_begin = self.time_calls.then(Instant::now);
                let mut inside = 0.0;
                for buffer in &mut buffers {
                    if self.time_calls {
                        let call = Instant::now();
                        moves += u64::from(buffer.resize(next)?);
                        inside += call.elapsed().as_secs_f64();
                    } else {
                        moves += u64::from(buffer.resize(next)?);
                    }
                    buffer.write(size, self.touch, seed);
                }
                calls += inside;
                record.operations += self.objects as u64;
                if let (Some(begin), true) = (step_begin, step < STEPS_TOLD) {
                    if steps.len() == step {
                        steps.push(Step {
                            size: next,
                            seconds: 0.0,
                            realloc_seconds: 0.0,
                        });
                    }
                    steps[step].seconds += begin.elapsed().as_secs_f64();
                    steps[step].realloc_seconds += inside;
                }
                step += 1;
                size = next;
            }
            record.lives.push(begin.elapsed().as_secs_f64());
            for buffer in &buffers {
                buffer.verify(self.touch, seed, &mut checksum)?;
            }
            let end = Instant::now();
            drop(buffers);
            freeing += end.elapsed().as_secs_f64();
        }
        if self.time_calls {
            record.realloc_seconds = Some(calls);
            let each = 1.0 / (self.lives * self.objects) as f64;
            for step in &mut steps {
                step.seconds *= each;
                step.realloc_seconds *= each;
            }
            if steps.len() < STEPS_TOLD {
                record.steps = steps;
            }
        }
        record.seconds = record.lives.iter().sum();
        if self.lives > STEPS_TOLD {
            record.lives.clear();
        }
        record.free_seconds = Some(freeing);
        record.moves = Some(moves);
        record.checksum = checksum.text();
        Ok(record)
    }
}

#[derive(clap::Args)]
pub(crate) struct Wait {
    /// Bytes at first.
    #[arg(long, default_value_t = 65536)]
    from: usize,
    /// Bytes at last.
    #[arg(long)]
    to: usize,
    /// How: x2, x1.5, +4096.
    #[arg(long, default_value = "+65536")]
    step: Increase,
}

impl Wait {
    pub(crate) fn run(&self) -> Result<Record, String> {
        if self.from == 0 || self.to <= self.from {
            return Err("nothing to grow".into());
        }
        // What is noted has its pages before the time runs.
        let noted = |count: usize| {
            let mut samples = vec![u64::MAX; count];
            samples.clear();
            samples
        };
        let sizes = iter::successors(Some(self.from), |&size| {
            (size < self.to).then(|| self.step.after(size, self.to))
        });
        let steps = sizes.clone().count() - 1;
        let (mut calls, mut whole) = (noted(steps), noted(steps));
        let mut touches = noted(self.to / PAGE + 1);
        let mut moves = 0;
        let ns = |since: Instant| u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let mut buffer = Buffer::new(self.from, 16)?;
        buffer.write(0, Touch::Page, 0);
        let begin = Instant::now();
        for next in sizes.skip(1) {
            let old = buffer.size();
            let step = Instant::now();
            moves += u64::from(buffer.resize(next)?);
            calls.push(ns(step));
            for offset in (old.next_multiple_of(PAGE)..next).step_by(PAGE) {
                let touch = Instant::now();
                buffer.set(offset, content(offset, 0));
                touches.push(ns(touch));
            }
            whole.push(ns(step));
        }
        let seconds = begin.elapsed().as_secs_f64();
        let mut checksum = Checksum::new();
        buffer.verify(Touch::Page, 0, &mut checksum)?;
        Ok(Record {
            seconds,
            operations: steps as u64,
            moves: Some(moves),
            live_bytes: Some(self.to),
            waits: Some(Waits {
                realloc: Percentiles::of(calls),
                touch: Percentiles::of(touches),
                step: Percentiles::of(whole),
            }),
            checksum: checksum.text(),
            ..Record::default()
        })
    }
}

#[derive(clap::Args)]
pub(crate) struct Oscillate {
    #[arg(long, default_value_t = 65536)]
    least: usize,
    #[arg(long)]
    most: usize,
    #[arg(long)]
    cycles: usize,
}

impl Oscillate {
    pub(crate) fn run(&self) -> Result<Record, String> {
        let mut checksum = Checksum::new();
        let (mut operations, mut moves) = (0, 0);
        let begin = Instant::now();
        let mut buffer = Buffer::new(self.least, 16)?;
        buffer.write(0, Touch::Page, 0);
        for _ in 0..self.cycles {
            while buffer.size() < self.most {
                let old = buffer.size();
                moves += u64::from(buffer.resize(old * 2)?);
                buffer.write(old, Touch::Page, 0);
                operations += 1;
            }
            while buffer.size() > self.least {
                moves += u64::from(buffer.resize(buffer.size() / 2)?);
                operations += 1;
            }
        }
        let seconds = begin.elapsed().as_secs_f64();
        buffer.verify(Touch::Page, 0, &mut checksum)?;
        Ok(Record {
            seconds,
            operations,
            moves: Some(moves),
            live_bytes: Some(self.most),
            checksum: checksum.text(),
            ..Record::default()
        })
    }
}

#[derive(clap::Args)]
pub(crate) struct CrossThread {
    #[arg(long)]
    objects: usize,
    #[arg(long)]
    to: usize,
}

/// Grow what arrives and hand it on, or free it when it is large enough.
fn relay(
    mailbox: mpsc::Receiver<Buffer>,
    other: mpsc::Sender<Buffer>,
    to: usize,
    mut left: usize,
) -> Result<(Checksum, u64), String> {
    let (mut checksum, mut moves) = (Checksum::new(), 0);
    while left > 0 {
        let mut buffer = mailbox.recv().map_err(|e| e.to_string())?;
        let old = buffer.size();
        moves += u64::from(buffer.resize((old * 2).min(to))?);
        buffer.write(old, Touch::Page, 0);
        left -= 1;
        if buffer.size() == to {
            buffer.verify(Touch::Page, 0, &mut checksum)?;
        } else {
            other.send(buffer).map_err(|e| e.to_string())?;
        }
    }
    Ok((checksum, moves))
}

impl CrossThread {
    pub(crate) fn run(&self) -> Result<Record, String> {
        let doublings = (self.to / PAGE).max(1).ilog2() as usize;
        if doublings < 2 || self.to != PAGE << doublings {
            return Err("the last size must be a power of two of at least 16 KiB".into());
        }
        let (to_left, left) = mpsc::channel();
        let (to_right, right) = mpsc::channel();
        let begin = Instant::now();
        // The first thread takes each buffer at its 1st, 3rd, ... doubling.
        let first = self.objects * doublings.div_ceil(2);
        let second = self.objects * (doublings / 2);
        let (to, objects) = (self.to, self.objects);
        let start = to_left.clone();
        let one = thread::spawn(move || relay(left, to_right, to, first));
        let two = thread::spawn(move || relay(right, to_left, to, second));
        for _ in 0..objects {
            let mut buffer = Buffer::new(PAGE, 16)?;
            buffer.write(0, Touch::Page, 0);
            start.send(buffer).map_err(|e| e.to_string())?;
        }
        drop(start);
        let mut checksum = Checksum::new();
        let mut moves = 0;
        for thread in [one, two] {
            let (sum, moved) = thread
                .join()
                .map_err(|_| "a thread panicked".to_string())??;
            checksum.add(sum.0);
            moves += moved;
        }
        Ok(Record {
            seconds: begin.elapsed().as_secs_f64(),
            operations: (first + second) as u64,
            moves: Some(moves),
            checksum: checksum.text(),
            ..Record::default()
        })
    }
}

#[derive(clap::Args)]
pub(crate) struct Threads {
    #[arg(long)]
    threads: usize,
    /// Bytes that each buffer reaches.
    #[arg(long, default_value_t = 126_976)]
    to: usize,
    /// Bytes of a step.
    #[arg(long, default_value_t = 1024)]
    step: usize,
    #[arg(long, default_value_t = 30)]
    lives: usize,
}

impl Threads {
    pub(crate) fn run(&self) -> Result<Record, String> {
        if self.step == 0 || self.threads == 0 {
            return Err("nothing to grow".into());
        }
        let barrier = Barrier::new(self.threads);
        let grow = |seed: u8| -> Result<(u64, u64, Checksum), String> {
            let (mut moves, mut operations, mut checksum) = (0, 0, Checksum::new());
            for _ in 0..self.lives {
                let mut buffer = Buffer::new(PAGE, 16)?;
                buffer.write(0, Touch::Page, seed);
                while buffer.size() < self.to {
                    // In turn: the buffers of all threads grow side by side.
                    barrier.wait();
                    let old = buffer.size();
                    moves += u64::from(buffer.resize(old + self.step)?);
                    buffer.write(old, Touch::Page, seed);
                    operations += 1;
                }
                buffer.verify(Touch::Page, seed, &mut checksum)?;
            }
            Ok((moves, operations, checksum))
        };
        let begin = Instant::now();
        let results: Vec<_> = thread::scope(|scope| {
            let started: Vec<_> = (0..self.threads)
                .map(|n| scope.spawn(move || grow(n as u8)))
                .collect();
            started.into_iter().map(|thread| thread.join()).collect()
        });
        let mut record = Record {
            seconds: begin.elapsed().as_secs_f64(),
            ..Record::default()
        };
        let (mut checksum, mut moved) = (Checksum::new(), 0);
        for result in results {
            let (moves, operations, sum) =
                result.map_err(|_| "a thread panicked".to_string())??;
            moved += moves;
            record.operations += operations;
            checksum.add(sum.0);
        }
        record.moves = Some(moved);
        record.checksum = checksum.text();
        Ok(record)
    }
}

#[derive(clap::Args)]
pub(crate) struct Burst {
    /// Bytes in use at the peak, about.
    #[arg(long)]
    bytes: usize,
    /// One buffer of so many stays.
    #[arg(long, default_value_t = 10)]
    keep: usize,
    #[arg(long, default_value_t = 1000)]
    idle_ms: u64,
}

impl Burst {
    pub(crate) fn run(&self) -> Result<Record, String> {
        let mut checksum = Checksum::new();
        let before = os::rss();
        let begin = Instant::now();
        let mut buffers = Vec::new();
        let (mut total, mut moves, mut operations) = (0, 0, 0);
        while total < self.bytes {
            // 128 KiB to 8 MiB, grown from 4 KiB as a vector would.
            let to = PAGE << (5 + buffers.len() % 7);
            let mut buffer = Buffer::new(PAGE, 16)?;
            buffer.write(0, Touch::Page, 0);
            while buffer.size() < to {
                let old = buffer.size();
                moves += u64::from(buffer.resize(old * 2)?);
                buffer.write(old, Touch::Page, 0);
                operations += 1;
            }
            total += to;
            buffers.push(buffer);
        }
        let mut number = 0;
        buffers.retain(|_| {
            number += 1;
            number % self.keep.max(1) == 0
        });
        let seconds = begin.elapsed().as_secs_f64();
        thread::sleep(Duration::from_millis(self.idle_ms));
        let idle = os::rss();
        for buffer in &buffers {
            buffer.verify(Touch::Page, 0, &mut checksum)?;
        }
        Ok(Record {
            seconds,
            operations,
            moves: Some(moves),
            live_bytes: Some(buffers.iter().map(Buffer::size).sum()),
            idle_rss_bytes: Some(idle.saturating_sub(before)),
            checksum: checksum.text(),
            ..Record::default()
        })
    }
}

/// A process that forks and goes on writing, as Redis does for a snapshot.
#[derive(clap::Args)]
pub(crate) struct Fork {
    /// Bytes of the buffer that has grown by the time of the fork.
    #[arg(long)]
    bytes: usize,
    /// Pages that are written while the child has them, too. 0: what counts is the fork.
    #[arg(long, default_value_t = 0)]
    writes: u64,
}

impl Fork {
    pub(crate) fn run(&self) -> Result<Record, String> {
        let mut checksum = Checksum::new();
        let mut random = Random(1);
        let mut buffer = Buffer::new(PAGE.min(self.bytes.max(1)), 16)?;
        buffer.write(0, Touch::Page, 0);
        while buffer.size() < self.bytes {
            let old = buffer.size();
            buffer.resize((2 * old).min(self.bytes))?;
            buffer.write(old, Touch::Page, 0);
        }
        let begin = Instant::now();
        let child = os::Child::fork()?;
        let forked = begin.elapsed();
        let begin = Instant::now();
        for _ in 0..self.writes {
            let page = random.below(self.bytes.div_ceil(PAGE) as u64) as usize * PAGE;
            buffer.set(page, content(page, 0));
        }
        let written = begin.elapsed();
        drop(child);
        buffer.verify(Touch::Page, 0, &mut checksum)?;
        Ok(Record {
            seconds: if self.writes > 0 { written } else { forked }.as_secs_f64(),
            operations: self.writes.max(1),
            live_bytes: Some(self.bytes),
            checksum: checksum.text(),
            ..Record::default()
        })
    }
}
