// SPDX-License-Identifier: MIT OR Apache-2.0
//! Storage streams at direct-I/O speed for every block size.
//!
//! On a machine whose processor is slow for its storage, the copies of the page cache are the
//! bottleneck (Joyce and Audsley, *Exploring Storage Bottlenecks in Linux-based Embedded Systems*,
//! EWiLi 2015). Direct I/O avoids them and brings its own trouble: small blocks collapse, every
//! filesystem has its own alignment, the tail of a file does not fit, and errors come where nobody
//! expects them. The paper's section 5.1.2 asks for a direct I/O that keeps the speed of large
//! blocks, buffers below a practical limit, and behaves the same everywhere. This crate is that, in
//! user space and on any kernel.
//!
//! ```no_run
//! use std::io::{Read, Write};
//!
//! let mut out = pdio::Writer::create("capture.raw")?;
//! for sample in [[0u8; 700], [1; 700]] {
//!     out.write_all(&sample)?; // any size, any address, any offset
//! }
//! out.sync_data()?; // survives a power cut from here on
//! out.finish()?; // the only place where the last errors can be reported
//!
//! let mut data = Vec::new();
//! pdio::Reader::open("capture.raw")?.read_to_end(&mut data)?;
//! # std::io::Result::Ok(())
//! ```
//!
//! # Writing
//!
//! [`Writer`] copies small calls into a ring of memory and sends it as large direct requests;
//! the caller fills one part while the device empties another. Large calls on aligned memory can
//! go without a copy; whether that pays is learned. Only bytes that the caller wrote are ever
//! written: whole *granules* (the largest of memory page, filesystem block and direct-I/O
//! alignment) go direct, the ends of a run go through the page cache at their exact length, after
//! everything direct has arrived. So at no moment does the file have a padded size, neighbours in
//! the same block are safe, and while a file grows, what a crash of the process leaves is a prefix
//! of the stream.
//!
//! # Reading
//!
//! [`Reader`] keeps direct requests ahead of a sequential caller, in a window that doubles while it
//! proves right and halves when it was wrong. It asks the kernel what the page cache holds and
//! takes that from there. Scattered reads get no read-ahead.
//!
//! # Durability
//!
//! | mode | `kill -9` loses | a power cut loses |
//! |---|---|---|
//! | [`Durability::Process`] | what is in memory: at most [`memory_limit`](OpenOptions::memory_limit), nothing older than [`linger`](OpenOptions::linger) once the stream idles | what was not synced |
//! | [`Durability::Safe`] | nothing that `write` returned for | what was not synced |
//! | [`Durability::Sync`] | nothing that `write` returned for | nothing that `write` returned for |
//!
//! [`flush`](std::io::Write::flush) makes the first column "nothing" up to there,
//! [`sync_data`](Writer::sync_data) the second. Direct I/O alone makes nothing durable: the device
//! has a cache, the filesystem metadata.
//!
//! # Errors
//!
//! The error of a deferred write is returned by the next call on the same [`Writer`], once. The
//! data stays and is tried again by the call after that: when room has been made on a full disk,
//! the stream goes on with nothing missing.
//!
//! # Other handles
//!
//! All streams on one file in one process see each other's writes in order. Others see them after a
//! flush, or when the stream has idled for [`linger`](OpenOptions::linger). A [`Reader`] may have read
//! ahead of another process's writes, by at most as long and never past [`heard`], except for mappings and
//! single writes that take longer than a second. A file that somebody maps for writing should not be streamed.
//! `fork` hands everything over first, and each side then has streams of its own; what
//! [`fill_buf`](std::io::BufRead::fill_buf) had returned before is not for the child. After a bare
//! `clone` the parent keeps what it held, and writes it.
//!
//! # Falling back
//!
//! Each step down is silent, and seen in [`Stats`] and [`explain`]:
//! io_uring with registered memory and file, plain io_uring, threads, the calling thread; and
//! direct, uncached, buffered I/O. See [`Engine`] and [`Strategy`].

#[cfg(not(target_os = "linux"))]
compile_error!("pdio is about the I/O of Linux: io_uring, O_DIRECT and the page cache");

#[cfg(test)]
#[path = "../tests/common/mod.rs"]
mod common;

mod align;
mod backing;
mod costs;
mod cpu;
mod engine;
mod explain;
mod files;
mod fork;
mod keeper;
mod learn;
mod learned;
mod memory;
mod options;
mod policy;
mod reader;
mod requests;
mod spent;
mod staging;
mod stats;
mod sys;
mod thread;
mod window;
mod writer;

pub use align::{Alignment, AlignmentSource};
pub use costs::{costs_files, leave_costs_alone, remember_costs};
pub use explain::{explain, Explanation};
pub use keeper::end_threads;
pub use learn::learn;
pub use learned::{LearnedCost, Operation, Pattern};
pub use memory::{available_memory, rescue_interrupted};
pub use options::{Durability, Engine, OpenOptions, Strategy};
pub use reader::Reader;
pub use stats::Stats;
pub use sys::{close, nameless, prepare_threads, set_node_mode};
pub use thread::set_thread_hook;
pub use window::{heard, times_heard};
pub use writer::Writer;
