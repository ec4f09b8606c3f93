// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs one piece of work under several allocators in turn, so that each meets the memory that the
//! others have just freed, and compares each with the first in the same round:
//!
//! ```text
//! cargo build --release -p brug-preload
//! cargo run --release -p brug --example turns -- double 7 glibc= \
//!     brug=target/release/libbrug.so jemalloc=/usr/lib/x86_64-linux-gnu/libjemalloc.so.2
//! ```
//!
//! A contender is a name and what is preloaded; `name+VARIABLE=value=library` sets a variable.
//! `7/6` are seven rounds with six seconds before each run, in which a host may take memory back.
//! The allocator of this program is the C library's `malloc`, or whatever is preloaded.

use std::env;
use std::error::Error;
use std::ffi::c_void;
use std::hint::black_box;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;
const PAGE: usize = 4096;

/// What a piece of work is called, what it is, and how to do it. It returns nanoseconds if only a
/// part of it counts.
type Work = (&'static str, &'static str, fn() -> Option<u128>);

const WORKS: [Work; 11] = [
    (
        "double",
        "4 KiB to 1 GiB by doubling, every page touched",
        || {
            grow(PAGE, 1024 * MIB, |size| 2 * size);
            None
        },
    ),
    (
        "steps",
        "64 KiB to 256 MiB by 64 KiB, every page touched",
        || {
            grow(64 << 10, 256 * MIB, |size| size + (64 << 10));
            None
        },
    ),
    (
        "large",
        "1000 objects of 5 to 25 MiB, filled, twenty at a time",
        large,
    ),
    (
        "concat",
        "400 objects, each a copy of the last and 128 KiB more, freed 16 later",
        concat,
    ),
    (
        "columns-32",
        "the sum of 32 objects of 2 MiB, a number of each in turn",
        || columns::<32>(false),
    ),
    (
        "columns-64",
        "the sum of 64 objects of 2 MiB, a number of each in turn",
        || columns::<64>(false),
    ),
    (
        "columns-128",
        "the sum of 128 objects of 2 MiB, a number of each in turn",
        || columns::<128>(false),
    ),
    (
        "columns-grown",
        "the sum of 64 objects that have grown to 2 MiB by doubling",
        || columns::<64>(true),
    ),
    (
        "fork",
        "fork beside 2 GiB that have grown, until both go on",
        || forked(0),
    ),
    (
        "snapshot",
        "2000 pages of 1 GiB written while a child has a snapshot of it",
        || forked(2000),
    ),
    ("nothing", "the start and the end of a program", || None),
];

/// An object of the C interface, whose pages are touched.
struct Object(*mut c_void, usize);

impl Object {
    fn new(size: usize) -> Object {
        // SAFETY: no preconditions.
        let p = unsafe { libc::malloc(size) };
        assert!(!p.is_null(), "no memory");
        Object(p, size)
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the object is ours, and its bytes are only ever written before they are read.
        unsafe { std::slice::from_raw_parts_mut(self.0.cast(), self.1) }
    }

    fn resize(&mut self, size: usize) {
        // SAFETY: the object is ours.
        self.0 = unsafe { libc::realloc(self.0, size) };
        assert!(!self.0.is_null(), "no memory");
        self.1 = size;
    }

    fn touch(&mut self, from: usize) {
        self.bytes()[from..]
            .iter_mut()
            .step_by(PAGE)
            .for_each(|b| *b = 1);
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        // SAFETY: the object is ours.
        unsafe { libc::free(self.0) };
    }
}

fn grow(from: usize, to: usize, next: impl Fn(usize) -> usize) -> Object {
    let mut object = Object::new(from);
    object.touch(0);
    while object.1 < to {
        let old = object.1;
        object.resize(next(old));
        object.touch(old);
    }
    object
}

/// Numbers that are the same in each run.
fn numbers() -> impl FnMut() -> usize {
    let mut x = 88_172_645_463_325_252_u64;
    move || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x as usize >> 4
    }
}

fn large() -> Option<u128> {
    let mut next = numbers();
    let mut kept: Vec<Option<Object>> = (0..20).map(|_| None).collect();
    for _ in 0..1000 {
        let mut object = Object::new(5 * MIB + next() % (20 * MIB));
        object.bytes().fill(1);
        kept[next() % 20] = Some(object);
    }
    None
}

fn concat() -> Option<u128> {
    let mut late: Vec<Option<Object>> = (0..16).map(|_| None).collect();
    let mut last = Object::new(128 << 10);
    last.bytes().fill(1);
    for i in 0..400 {
        let mut next = Object::new(last.1 + (128 << 10));
        let (old, new) = next.bytes().split_at_mut(last.1);
        old.copy_from_slice(last.bytes());
        new.fill(1);
        late[i % 16] = Some(std::mem::replace(&mut last, next));
    }
    None
}

/// The time in which objects are summed up three times, a number of each in turn, as a column store goes through its
/// rows.
fn columns<const N: usize>(grown: bool) -> Option<u128> {
    const SIZE: usize = 2 * MIB;
    let mut objects: Vec<Object> = (0..N)
        .map(|_| match grown {
            true => grow(PAGE, SIZE, |size| 2 * size),
            false => Object::new(SIZE),
        })
        .collect();
    objects.iter_mut().for_each(|object| object.bytes().fill(1));
    let columns: Vec<&[u8]> = objects.iter_mut().map(|object| &*object.bytes()).collect();
    let begin = Instant::now();
    let mut sum = 0_u64;
    for at in (0..SIZE * 3).step_by(8).map(|at| at % SIZE) {
        for column in &columns {
            // SAFETY: eight of its bytes, of which none has to be in its place.
            let number = unsafe { column.as_ptr().add(at).cast::<u64>().read_unaligned() };
            sum = sum.wrapping_add(number);
        }
    }
    black_box(sum);
    Some(begin.elapsed().as_nanos())
}

/// Forks beside an object that has grown. `writes` = 0: the time of the fork; else the time of
/// writing to so many pages while the child has them too.
fn forked(writes: usize) -> Option<u128> {
    let size = if writes == 0 { 2048 } else { 1024 } * MIB;
    let mut object = grow(PAGE, size, |size| 2 * size);
    let mut next = numbers();
    let mut ends = [0; 2];
    // SAFETY: the array is valid for two descriptors. The child does nothing but wait for the end
    // of the pipe.
    unsafe {
        assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
        let begin = Instant::now();
        let child = libc::fork();
        assert!(child >= 0, "fork: {}", std::io::Error::last_os_error());
        if child == 0 {
            libc::close(ends[1]);
            libc::read(ends[0], (&raw mut ends).cast(), 1);
            libc::_exit(0);
        }
        let forked = begin.elapsed();
        let begin = Instant::now();
        for _ in 0..writes {
            let at = next() % size;
            object.bytes()[at] = 2;
        }
        let written = begin.elapsed();
        libc::close(ends[1]);
        libc::waitpid(child, std::ptr::null_mut(), 0);
        Some(if writes == 0 { forked } else { written }.as_nanos())
    }
}

/// Does one piece of work and prints milliseconds on the clock, of the processor, faults and MiB.
fn work(name: &str) -> Result<(), Box<dyn Error>> {
    let (.., run) = WORKS.iter().find(|w| w.0 == name).ok_or("no such work")?;
    let begin = Instant::now();
    let part = black_box(run());
    let clock = part.unwrap_or(begin.elapsed().as_nanos());
    // SAFETY: zeros are a valid value, and `usage` is valid for writing.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    let ms = |t: libc::timeval| t.tv_sec as f64 * 1e3 + t.tv_usec as f64 / 1e3;
    println!(
        "{} {} {} {}",
        clock as f64 / 1e6,
        ms(usage.ru_utime) + ms(usage.ru_stime),
        usage.ru_minflt,
        usage.ru_maxrss >> 10
    );
    Ok(())
}

/// Quartiles of numbers.
fn quartiles(mut of: Vec<f64>) -> [f64; 3] {
    of.sort_by(f64::total_cmp);
    [1, 2, 3].map(|n| of[(of.len() - 1) * n / 4])
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = env::args().skip(1).collect();
    if let [name] = &words[..] {
        return work(name);
    }
    let [name, rounds, contenders @ ..] = &words[..] else {
        for (name, what, _) in WORKS {
            println!("{name:10}{what}");
        }
        return Err("usage: turns WORK ROUNDS[/SECONDS] NAME[+VARIABLE=VALUE]=LIBRARY...".into());
    };
    let (rounds, pause) = rounds.split_once('/').unwrap_or((rounds, "0"));
    let pause = Duration::from_secs(pause.parse()?);
    let mut measured = vec![Vec::new(); contenders.len()];
    for _ in 0..rounds.parse()? {
        for (contender, rows) in contenders.iter().zip(&mut measured) {
            let (label, library) = contender
                .rsplit_once('=')
                .ok_or("a contender is NAME=LIBRARY")?;
            let mut command = Command::new(env::current_exe()?);
            command.arg(name).env("LD_PRELOAD", library);
            if let Some((variable, value)) = label.split_once('+').and_then(|v| v.1.split_once('='))
            {
                command.env(variable, value);
            }
            thread::sleep(pause);
            let output = command.output()?;
            let text = String::from_utf8(output.stdout)?;
            let row: Vec<f64> = text
                .split_whitespace()
                .map(str::parse)
                .collect::<Result<_, _>>()?;
            if row.len() != 4 {
                return Err(
                    format!("{contender}: {}", String::from_utf8_lossy(&output.stderr)).into(),
                );
            }
            rows.push(row);
        }
    }
    println!(
        "{:24}{:>26}{:>26}{:>10}{:>10}",
        name, "ms, of the first's", "CPU ms, of the first's", "faults", "MiB"
    );
    for (contender, rows) in contenders.iter().zip(&measured) {
        let median = |of: usize| quartiles(rows.iter().map(|row| row[of]).collect())[1];
        let ratio = |of: usize| {
            let ratios = rows
                .iter()
                .zip(&measured[0])
                .map(|(row, first)| row[of] / first[of]);
            let [low, middle, high] = quartiles(ratios.collect());
            format!("{:.1}, {middle:.2} ({low:.2}–{high:.2})", median(of))
        };
        let label = contender.rsplit_once('=').map_or("", |c| c.0);
        println!(
            "{label:24}{:>26}{:>26}{:>10}{:>10}",
            ratio(0),
            ratio(1),
            median(2),
            median(3)
        );
    }
    Ok(())
}
