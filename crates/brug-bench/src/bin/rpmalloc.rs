// SPDX-License-Identifier: MIT OR Apache-2.0
//! The workloads on rpmalloc.

#[global_allocator]
static ALLOCATOR: rpmalloc::RpMalloc = rpmalloc::RpMalloc;

fn main() -> std::process::ExitCode {
    brug_bench::main("rpmalloc")
}
