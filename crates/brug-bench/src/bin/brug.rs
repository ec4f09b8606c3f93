// SPDX-License-Identifier: MIT OR Apache-2.0
//! The workloads on brug; BRUG_ALLOC names the mode.

#[global_allocator]
static ALLOCATOR: brug::Brug = brug::Brug::new();

fn main() -> std::process::ExitCode {
    brug_bench::main("brug")
}
