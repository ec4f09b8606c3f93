// SPDX-License-Identifier: MIT OR Apache-2.0
//! How the commands speak, wait and end: shared with `nocopy-record`.
#![deny(unsafe_code)]

pub mod durable;
pub mod report;
pub mod signals;
pub mod size;
