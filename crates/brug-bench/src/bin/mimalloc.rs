// SPDX-License-Identifier: MIT OR Apache-2.0
//! The workloads on mimalloc 3.

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    brug_bench::main("mimalloc")
}
