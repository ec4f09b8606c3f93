// SPDX-License-Identifier: MIT OR Apache-2.0
//! A program with brug as its allocator.
// In one build with brug-preload the crate stands behind a `malloc` that a test does not have, and leaves
// its objects to the C library.
#![cfg(not(feature = "preload"))]

use brug::{with_mode, Brug, Mode};

#[global_allocator]
static ALLOCATOR: Brug = Brug::new();

#[test]
fn a_vector_grows_in_place_past_the_switch_point() {
    let before = brug::stats();
    let mut v: Vec<u64> = Vec::new();
    let mut moves = 0;
    // Where brug decides by what it measures, a busy machine may have it decide otherwise.
    with_mode!(Mode::Mmap, {
        for i in 0..4_000_000u64 {
            let p = v.as_ptr();
            v.push(i);
            if i > 64 << 10 && p != v.as_ptr() {
                moves += 1;
            }
        }
    });
    assert_eq!(moves, 0);
    assert!(v.iter().enumerate().all(|(i, &x)| i as u64 == x));
    assert!(brug::stats().grows_in_place > before.grows_in_place);
}

#[test]
fn objects_of_every_mode_are_freed_in_every_other() {
    let mut kept = Vec::new();
    for (i, mode) in Mode::ALL.into_iter().enumerate() {
        for size in [1, 100, 4096, 70_000, 300_000, 5 << 20] {
            let v = with_mode!(mode, { vec![i as u8 + 1; size] });
            kept.push((i as u8 + 1, v));
        }
    }
    for (mode, (byte, mut v)) in Mode::ALL.into_iter().cycle().zip(kept) {
        with_mode!(mode, {
            v.extend(std::iter::repeat_n(byte, 100_000));
            assert!(v.iter().all(|&b| b == byte));
            v.truncate(10);
            v.shrink_to_fit();
            assert!(v.iter().all(|&b| b == byte));
        });
    }
}

#[test]
fn zeroed_memory_is_zero_in_a_reused_slot() {
    for size in [200_000usize, 3 << 20, 20 << 20] {
        drop(vec![0xffu8; size]);
        let v = vec![0u8; size + 50_000];
        assert!(v.iter().all(|&b| b == 0));
    }
}
