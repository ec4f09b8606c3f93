// SPDX-License-Identifier: MIT OR Apache-2.0
//! Storage streams at direct-I/O speed for every block size.

mod align;
mod engine;
mod explain;
mod memory;
mod options;
mod policy;
mod reader;
mod registry;
mod stats;
mod sys;
mod writer;

pub use align::{Alignment, AlignmentSource};
pub use explain::{explain, Explanation};
pub use options::{Durability, Engine, OpenOptions, Strategy};
pub use policy::{LearnedCost, Operation, Pattern};
pub use reader::Reader;
pub use stats::Stats;
pub use writer::Writer;
