// SPDX-License-Identifier: MIT OR Apache-2.0
//! The workloads on the C library's allocator, or the one that LD_PRELOAD put in its place.

#[global_allocator]
static ALLOCATOR: std::alloc::System = std::alloc::System;

fn main() -> std::process::ExitCode {
    brug_bench::main("sys")
}
