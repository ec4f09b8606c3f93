// SPDX-License-Identifier: MIT OR Apache-2.0
//! The last seconds before somebody asked for them.

use std::collections::VecDeque;
use std::time::Duration;

use crate::output::Frame;

/// Frames in memory, oldest first. Their number and length are not known beforehand, so the memory
/// grows with them, in place: that is the allocator's work.
#[derive(Debug, Default)]
pub struct PreRoll {
    bytes: VecDeque<u8>,
    frames: VecDeque<Frame>,
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
        // Reserve exactly: the ring would cycle through spare room and touch all of it.
        self.bytes.try_reserve_exact(data.len())?;
        self.bytes.extend(data);
        self.frames.push_back(frame);
        Ok(())
    }

    /// Forgets what is older than `span` before the newest.
    pub fn trim(&mut self, span: Duration) {
        let Some(newest) = self.frames.back().map(|f| f.taken) else {
            return;
        };
        while self.frames.front().is_some_and(|f| f.taken + span < newest) {
            self.pop();
        }
    }

    /// The oldest frame, in two parts.
    pub fn oldest(&self) -> Option<(&Frame, [&[u8]; 2])> {
        let frame = self.frames.front()?;
        let (first, second) = self.bytes.as_slices();
        let cut = frame.len.min(first.len());
        Some((frame, [&first[..cut], &second[..frame.len - cut]]))
    }

    /// Forgets the oldest frame.
    pub fn pop(&mut self) {
        if let Some(frame) = self.frames.pop_front() {
            self.bytes.drain(..frame.len);
        }
    }

    /// Returns true if there is no frame.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// The bytes of all frames.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
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
        while let Some((oldest, parts)) = roll.oldest() {
            assert_eq!(oldest.sequence, wanted);
            let data = parts.concat();
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
