// SPDX-License-Identifier: MIT OR Apache-2.0
//! Small objects under one allocator, for counting instructions:
//! `valgrind --tool=callgrind target/release/examples/small brug|sys|MODE COUNT`.
//! The difference of two counts, divided, is the cost of one round: 16 objects of
//! 16 to 976 bytes allocated, written, half of them reallocated, all freed.

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;

fn rounds<A: GlobalAlloc>(a: &A, n: usize) {
    let mut objects = [(std::ptr::null_mut::<u8>(), 0usize); 16];
    let layout = |n| Layout::from_size_align(n, 8).unwrap();
    // SAFETY: layouts are as allocated.
    unsafe {
        for _ in 0..n {
            for (i, o) in objects.iter_mut().enumerate() {
                *o = (a.alloc(layout(black_box(16 + i * 64))), 16 + i * 64);
                o.0.write(1);
            }
            for o in objects.iter_mut().step_by(2) {
                o.0 = a.realloc(o.0, layout(o.1), black_box(o.1 + 16));
                o.1 += 16;
            }
            for o in &objects {
                a.dealloc(black_box(o.0), layout(o.1));
            }
        }
    }
}

fn main() {
    let mut args = std::env::args().skip(1);
    let which = args.next().unwrap_or_default();
    let n = args.next().and_then(|n| n.parse().ok()).unwrap_or(1000);
    if which == "sys" {
        return rounds(&System, n);
    }
    if let Ok(mode) = which.parse() {
        brug::Brug::set_mode(mode).expect("mode");
    }
    rounds(&brug::Brug::new(), n);
}
