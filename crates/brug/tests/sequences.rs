// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sequences of calls, checked against a model.

mod model;

use model::{run, Exchange, Limits, Random};
use std::sync::Mutex;

use brug::{Brug, Mode};

#[global_allocator]
static ALLOCATOR: Brug = Brug::new();

/// The mode belongs to the process.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

const STEPS: usize = if cfg!(debug_assertions) {
    60_000
} else {
    400_000
};

fn limits(largest: usize, objects: usize) -> Limits {
    Limits {
        largest,
        objects,
        switch_modes: false,
    }
}

fn in_mode(mode: Mode) {
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
    if Brug::set_mode(mode).is_err() {
        println!("skipped: {mode} is not part of this build");
        return;
    }
    run(
        &mut Random(mode as u64 + 1, STEPS),
        limits(8 << 20, 60),
        None,
    );
    run(
        &mut Random(mode as u64 + 9, STEPS),
        limits(300_000, 200),
        None,
    );
    Brug::set_mode(Mode::Auto).unwrap();
}

#[test]
fn the_model_holds_in_mode_sys() {
    in_mode(Mode::Sys);
}

#[test]
fn the_model_holds_in_mode_jemalloc() {
    in_mode(Mode::Jemalloc);
}

#[test]
fn the_model_holds_in_mode_mimalloc() {
    in_mode(Mode::Mimalloc);
}

#[test]
fn the_model_holds_in_mode_mmap() {
    in_mode(Mode::Mmap);
}

#[test]
fn the_model_holds_in_mode_template() {
    in_mode(Mode::Template);
}

#[test]
fn the_model_holds_in_mode_auto() {
    in_mode(Mode::Auto);
}

#[test]
fn the_model_holds_while_modes_change() {
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
    for seed in 100..104 {
        let limits = Limits {
            largest: 4 << 20,
            objects: 80,
            switch_modes: true,
        };
        run(&mut Random(seed, STEPS / 2), limits, None);
    }
    Brug::set_mode(Mode::Auto).unwrap();
}

#[test]
fn the_model_holds_for_objects_of_hundreds_of_megabytes() {
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
    let limits = Limits {
        largest: 300 << 20,
        objects: 4,
        switch_modes: true,
    };
    // Zeroed objects are read whole.
    run(
        &mut Random(77, if cfg!(debug_assertions) { 200 } else { 800 }),
        limits,
        None,
    );
    Brug::set_mode(Mode::Auto).unwrap();
}

#[test]
fn the_model_holds_across_threads_while_modes_change() {
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
    let exchange = Exchange::default();
    std::thread::scope(|scope| {
        for seed in 1..=4 {
            let exchange = &exchange;
            scope.spawn(move || {
                for part in 0..4 {
                    let limits = Limits {
                        largest: 3 << 20,
                        objects: 30,
                        switch_modes: seed == 1,
                    };
                    run(
                        &mut Random(seed * 1000 + part, STEPS / 8),
                        limits,
                        Some(exchange),
                    );
                }
            });
        }
    });
    exchange
        .into_inner()
        .unwrap()
        .into_iter()
        .for_each(model::Object::free);
    Brug::set_mode(Mode::Auto).unwrap();
}

#[test]
fn the_model_holds_for_the_fuzzers_bounded_run() {
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
    for seed in 1..200u64 {
        let mut random = Random(seed << 20 | seed, 600);
        let input: Vec<u8> = std::iter::from_fn(|| model::Source::next(&mut random)).collect();
        let limits = Limits {
            largest: 1 << 20,
            objects: 40,
            switch_modes: true,
        };
        run(&mut input.iter(), limits, None);
    }
    Brug::set_mode(Mode::Auto).unwrap();
}
