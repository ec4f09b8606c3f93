// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a descriptor may be to this library. What a stream does is in [`crate::stream`], what is done with
//! direct I/O of the program's own in [`crate::direct`].

use std::ffi::CString;
use std::fs::File;

use pdio::{Reader, Writer};

/// A stream in the hands of pdio.
pub struct Stream {
    pub pump: Pump,
    pub path: CString,
    /// When the file was last written before it was taken.
    pub older: (i64, i64),
    /// Also reached as standard input or output, where the C library reads and writes by itself,
    /// unseen, at the kernel's offset.
    pub standard: bool,
    /// It has begun to, so the kernel's offset moves with every call, and is believed.
    pub in_step: bool,
    /// The offset up to which the filesystem takes every call.
    pub farthest: u64,
    pub written: u64,
    /// True if nothing may be written out of the program's own memory.
    pub copies: bool,
    /// True if writes are held back.
    pub defers: bool,
    /// Bytes written since the last hand-over, or read since something was heard, and how many of those in
    /// a row came too early.
    pub gathered: u64,
    pub hasty: u32,
    /// How often something had been heard before the last read.
    pub heard: u64,
}

impl Stream {
    pub fn direction(&self) -> Direction {
        match self.pump {
            Pump::Writer(_) => Direction::Write,
            Pump::Reader(_) => Direction::Read,
        }
    }
}

pub enum Pump {
    Writer(Writer),
    Reader(Box<Reader>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    Read,
    Write,
}

/// State of a descriptor that was opened with `O_DIRECT`.
#[derive(Default)]
pub struct Aligned {
    pub buffered: Option<File>,
}
