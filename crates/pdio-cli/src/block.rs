// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory for blocks.

use crate::report::{Fail, Outcome};

/// Page-aligned memory, so that large blocks can go without a copy.
pub struct Block {
    memory: Vec<u8>,
    skew: usize,
    len: usize,
}

impl Block {
    /// `len` zeroed bytes; `what` they are for goes into the error.
    ///
    /// # Errors
    /// If there is no memory for it.
    pub fn new(len: usize, what: &str) -> Outcome<Block> {
        let page = rustix::param::page_size();
        let whole = len.saturating_add(page);
        let mut trial = Vec::<u8>::new();
        let refused = trial.try_reserve_exact(whole).is_err();
        // An allocation that nobody sees is one that the compiler leaves out.
        drop(std::hint::black_box(trial));
        if refused {
            return Err(Fail::Failed(format!(
                "no memory for {what} of {len} bytes: choose a smaller block size"
            )));
        }
        // Zeros from the system, of which only what is used takes memory.
        let memory = vec![0u8; whole];
        let skew = memory.as_ptr().align_offset(page);
        Ok(Block { memory, skew, len })
    }

    /// The bytes.
    pub fn all(&mut self) -> &mut [u8] {
        &mut self.memory[self.skew..self.skew + self.len]
    }
}
