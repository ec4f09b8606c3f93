// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sequences of calls from the fuzzer: `lab/lab test --only fuzzing`, or for longer
//! `cargo +nightly fuzz run --fuzz-dir crates/brug/fuzz sequences`.
#![no_main]

// The pseudo-random source is the tests'.
#[allow(dead_code)]
#[path = "../../tests/model/mod.rs"]
mod model;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let limits = model::Limits { largest: 4 << 20, objects: 64, switch_modes: true };
    model::run(&mut data.iter(), limits, None);
});
