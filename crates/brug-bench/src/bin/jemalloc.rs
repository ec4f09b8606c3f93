// SPDX-License-Identifier: MIT OR Apache-2.0
//! The workloads on jemalloc 5.3.

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> std::process::ExitCode {
    brug_bench::main("jemalloc")
}
