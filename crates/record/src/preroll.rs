// SPDX-License-Identifier: MIT OR Apache-2.0
//! The last seconds before somebody asked for them.

use std::collections::VecDeque;
use std::time::Duration;

use crate::frame::Frame;

/// What direct I/O asks of an address, at most.
pub const ALIGNMENT: usize = 4096;

/// Frames in memory, oldest first, each in memory of its own: a frame that is forgotten leaves it to the next, as the
/// allocator keeps it. In one ring of bytes, one frame more than ever before would move all the others.
#[derive(Debug, Default)]
pub struct PreRoll {
    frames: VecDeque<(Frame, Vec<u8>)>,
    bytes: usize,
}

/// What is before a frame in its memory.
fn before(memory: &[u8]) -> usize {
    memory.as_ptr().align_offset(ALIGNMENT)
}

impl PreRoll {
    /// Takes a frame.
    ///
    /// # Errors
    /// If there is no memory for it.
    pub fn push(
        &mut self,
        frame: Frame,
        data: &[u8],
    ) -> Result<(), std::collections::TryReserveError> {
        let mut memory = Vec::new();
        memory.try_reserve_exact(data.len() + ALIGNMENT - 1)?;
        memory.resize(before(&memory), 0);
        memory.extend_from_slice(data);
        self.frames.try_reserve(1)?;
        self.frames.push_back((frame, memory));
        self.bytes += data.len();
        Ok(())
    }

    /// Forgets what is older than `span` before the newest.
    pub fn trim(&mut self, span: Duration) {
        let Some(newest) = self.frames.back().map(|(f, _)| f.taken) else {
            return;
        };
        let old = |(frame, _): &(Frame, _)| frame.taken + span < newest;
        while self.frames.front().is_some_and(old) {
            self.pop();
        }
    }

    /// The oldest frame, where direct I/O can take it from.
    pub fn oldest(&self) -> Option<(&Frame, &[u8])> {
        let (frame, memory) = self.frames.front()?;
        Some((frame, &memory[before(memory)..]))
    }

    /// Forgets the oldest frame.
    pub fn pop(&mut self) {
        if let Some((frame, _)) = self.frames.pop_front() {
            self.bytes -= frame.len;
        }
    }

    /// Returns true if there is no frame.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// The bytes of all frames.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The bytes of memory that they take.
    pub fn memory(&self) -> usize {
        self.bytes + self.frames.len() * ALIGNMENT
    }

    /// Gives the memory back.
    pub fn release(&mut self) {
        *self = PreRoll::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(sequence: u32, milliseconds: u64, len: usize) -> Frame {
        Frame {
            sequence,
            time: Duration::from_millis(milliseconds),
            monotonic: true,
            taken: Duration::from_millis(milliseconds),
            len,
            damaged: false,
        }
    }

    #[test]
    fn what_the_camera_says_of_time_bounds_no_memory() {
        let constant: fn(u64) -> u64 = |_| 7;
        let backwards = |n| 1_000_000 - n;
        let slow = |n| n / 1000;
        for says in [constant, backwards, slow] {
            let mut roll = PreRoll::default();
            for n in 0..1000 {
                let frame = Frame {
                    time: Duration::from_millis(says(n)),
                    ..frame(n as u32, n * 40, 100)
                };
                roll.push(frame, &[0; 100]).unwrap();
                roll.trim(Duration::from_secs(2));
                assert!(roll.bytes() <= 51 * 100, "{}", roll.bytes());
            }
        }
    }

    #[test]
    fn a_frame_stays_where_it_is() {
        // A camera that comes out of the dark gives twice as many.
        let mut roll = PreRoll::default();
        let mut now = 0;
        for n in 0..200 {
            now += if n < 100 { 66 } else { 33 };
            let before = roll.oldest().map(|(f, data)| (f.sequence, data.as_ptr()));
            roll.push(frame(n, now, 10_000), &[0; 10_000]).unwrap();
            let after = roll.oldest().map(|(f, data)| (f.sequence, data.as_ptr()));
            assert!(n == 0 || before == after);
            roll.trim(Duration::from_secs(2));
        }
    }

    #[test]
    fn the_last_seconds_stay_whatever_the_frames_length() {
        let mut roll = PreRoll::default();
        let len = |n: u32| 1000 + (n as usize * 7919) % 5000;
        for n in 0..500u32 {
            roll.push(frame(n, u64::from(n) * 40, len(n)), &vec![n as u8; len(n)])
                .unwrap();
            roll.trim(Duration::from_secs(2));
            let (oldest, _) = roll.oldest().unwrap();
            assert_eq!(oldest.sequence, n.saturating_sub(50));
        }
        // And they come out whole and in order, while others go in.
        let mut wanted = 449;
        let mut more = 500;
        while let Some((oldest, data)) = roll.oldest() {
            assert_eq!(oldest.sequence, wanted);
            assert!(data.as_ptr().addr().is_multiple_of(ALIGNMENT));
            assert_eq!(data, vec![wanted as u8; len(wanted)]);
            roll.pop();
            wanted += 1;
            if more < 520 {
                roll.push(frame(more, 0, len(more)), &vec![more as u8; len(more)])
                    .unwrap();
                more += 1;
            }
        }
        assert_eq!((wanted, roll.bytes()), (520, 0));
    }
}
