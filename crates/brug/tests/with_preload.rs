// SPDX-License-Identifier: MIT OR Apache-2.0
//! One build with brug-preload leaves out what tests the crate alone; without a word, but for this.
#![cfg(feature = "preload")]

#[test]
#[ignore = "process, races and smoke test the crate alone: cargo test -p brug"]
fn what_tests_the_crate_alone_is_left_out() {
    panic!("run `cargo test -p brug`, with no other package");
}
