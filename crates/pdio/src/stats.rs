// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a stream has done.

use std::time::Duration;

use crate::options::{Engine, Strategy};

/// Counters of one stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Stats {
    /// Bytes taken from or given to the caller.
    pub bytes: u64,
    /// Bytes moved straight between memory and device.
    pub direct_bytes: u64,
    /// Bytes moved through the page cache: buffered strategies, unaligned heads and tails.
    pub buffered_bytes: u64,
    /// Bytes moved from or to the caller's memory without a copy (part of `direct_bytes`).
    pub zero_copy_bytes: u64,
    /// Requests sent to the kernel for data.
    pub requests: u64,
    /// Times a call had to wait for the device.
    pub stalls: u64,
    /// Time spent in those waits.
    pub stall_time: Duration,
    /// Bytes read ahead and never asked for.
    pub unused_read_ahead: u64,
    /// The engine in use; `Auto` until the first request needs one.
    pub engine: Engine,
    /// The strategy in use now.
    pub strategy: Strategy,
    /// Memory held by the stream, in bytes.
    pub memory: u64,
}
