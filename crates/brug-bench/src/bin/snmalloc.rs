// SPDX-License-Identifier: MIT OR Apache-2.0
//! The workloads on snmalloc.

#[global_allocator]
static ALLOCATOR: snmalloc_rs::SnMalloc = snmalloc_rs::SnMalloc;

fn main() -> std::process::ExitCode {
    brug_bench::main("snmalloc")
}
