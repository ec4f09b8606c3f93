// SPDX-License-Identifier: MIT OR Apache-2.0
//! Times growth under brug, or with `sys` as the first argument under the C library:
//! `cargo run --release --example grow -- brug|sys`.

use std::alloc::{GlobalAlloc, Layout, System};
use std::time::Instant;

fn touch(p: *mut u8, from: usize, to: usize) {
    for at in (from..to).step_by(4096) {
        // SAFETY: within the object.
        unsafe { p.add(at).write_volatile(1) };
    }
}

/// Grows one object, touching each new page; total and realloc-only microseconds.
fn grow(
    a: &dyn GlobalAlloc,
    align: usize,
    start: usize,
    end: usize,
    next: impl Fn(usize) -> usize,
) -> (f64, f64) {
    let begin = Instant::now();
    let mut inside = 0.0;
    let mut size = start;
    let layout = |n| Layout::from_size_align(n, align).unwrap();
    // SAFETY: layouts are as allocated.
    unsafe {
        let mut p = a.alloc(layout(size));
        touch(p, 0, size);
        while size < end {
            let new = next(size).min(end);
            let t = Instant::now();
            p = a.realloc(p, layout(size), new);
            inside += t.elapsed().as_secs_f64();
            touch(p, size, new);
            size = new;
        }
        a.dealloc(p, layout(size));
    }
    (begin.elapsed().as_secs_f64() * 1e6, inside * 1e6)
}

/// Grows `n` objects in turn; microseconds per object.
fn interleaved(a: &dyn GlobalAlloc, n: usize, start: usize, end: usize) -> f64 {
    let begin = Instant::now();
    let layout = |n| Layout::from_size_align(n, 16).unwrap();
    // SAFETY: layouts are as allocated.
    unsafe {
        let mut all: Vec<_> = (0..n).map(|_| a.alloc(layout(start))).collect();
        all.iter().for_each(|&p| touch(p, 0, start));
        let mut size = start;
        while size < end {
            for p in &mut all {
                *p = a.realloc(*p, layout(size), size * 2);
                touch(*p, size, size * 2);
            }
            size *= 2;
        }
        all.iter().for_each(|&p| a.dealloc(p, layout(size)));
    }
    begin.elapsed().as_secs_f64() * 1e6 / n as f64
}

/// What asking for the time twice costs, which is in every "in realloc" figure.
fn clock_us() -> f64 {
    let begin = Instant::now();
    for _ in 0..10_000 {
        std::hint::black_box(Instant::now().elapsed());
    }
    begin.elapsed().as_secs_f64() * 1e6 / 10_000.0
}

fn main() {
    println!("clock {:.3} us per realloc", clock_us());
    let which = std::env::args().nth(1).unwrap_or_default();
    let brug = brug::Brug::new();
    let a: &dyn GlobalAlloc = if which == "sys" { &System } else { &brug };
    let (k, m, g) = (1024, 1024 * 1024, 1024 * 1024 * 1024);
    for round in 0..3 {
        let (t, r) = grow(a, 16, 4 * k, g, |n| n * 2);
        println!("{round} double 4K..1G        {t:9.0} us ({r:8.1} in realloc)");
        let (t, r) = grow(a, 16, 64 * k, 256 * m, |n| n + 64 * k);
        println!("{round} +64K 64K..256M       {t:9.0} us ({r:8.1} in realloc)");
        for align in [64, 128] {
            let (t, r) = grow(a, align, 4 * k, 256 * m, |n| n * 2);
            println!("{round} double ..256M @{align:<4}  {t:9.0} us ({r:8.1} in realloc)");
        }
        if std::env::args().any(|x| x == "cold") {
            brug::raw::trim();
        }
    }
    let best = |n, from, to| {
        (0..40)
            .map(|_| interleaved(a, n, from, to))
            .fold(f64::MAX, f64::min)
    };
    println!("16 x 4K..128K each {:.1} us", best(16, 4 * k, 128 * k));
    println!("4 x 64K..4M each   {:.1} us", best(4, 64 * k, 4 * m));
    if which != "sys" {
        print!("{}", brug::stats());
    }
}
