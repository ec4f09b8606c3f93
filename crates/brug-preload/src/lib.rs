// SPDX-License-Identifier: MIT OR Apache-2.0
//! `libbrug.so`: every allocation of an unchanged program goes to brug.
//!
//! `LD_PRELOAD=libbrug.so program`, or `brug run -- program`. What the library does is chosen by
//! environment variables, listed at [`brug::Config`]. It defines
//!
//! * in [`malloc`] and [`entry`]: the malloc family of C;
//! * in [`cxx`]: the replaceable `operator new` and `operator delete` of C++;
//! * in [`sized`]: jemalloc's `mallocx` family, because a program that is linked with jemalloc would
//!   otherwise get memory from there and free it here;
//! * in [`mallctl`]: jemalloc's questions about the heap, for the same programs;
//! * in [`introspect`]: the C library's, and `mallopt` and `malloc_trim`;
//! * in [`deep`]: `dlopen`, without `RTLD_DEEPBIND`;
//! * in [`rlimit`]: `setrlimit` and `prlimit`, by which a program limits its own memory;
//! * in [`rights`]: `unshare`, `setns` and `capset`, before which the allocator's own thread ends.
//!
//! It is built with `-C panic=abort`, and then has nothing of Rust's standard library: a half of its size and of what the
//! loader has to do for each program. Without that it is built as well, with it, for what looks at all crates together.
//!
//! Nothing else is exported; [`kernel`] has the system calls. Nothing here allocates, locks, or calls
//! `dlsym` on the way to memory; no function unwinds but `operator new`, as C++ says it must.

#![cfg_attr(panic = "abort", no_std)]

mod cxx;
mod deep;
mod entry;
mod introspect;
#[macro_use]
mod kernel;
mod mallctl;
mod malloc;
mod next;
#[cfg(panic = "abort")]
mod panic;
mod rights;
mod rlimit;
mod say;
mod setup;
mod sized;
