// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames, and those that are missing between them.

use std::ops::RangeInclusive;
use std::time::Duration;

/// What is known of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The camera's count.
    pub sequence: u32,
    /// When it was taken, as the camera says.
    pub time: Duration,
    /// True if that is by the system's monotonic clock.
    pub monotonic: bool,
    /// When it was taken, by the system's monotonic clock: `time` where that can be true, or else when it
    /// came. It goes on whatever the camera says.
    pub taken: Duration,
    /// How many bytes it has.
    pub len: usize,
    /// True if its bytes are not what they should be, or too few. Then it has none.
    pub damaged: bool,
}

/// Frames that are missing between those that come.
#[derive(Debug, Default)]
pub struct Losses {
    next: Option<u32>,
    /// How many there were.
    pub count: u64,
    /// The time from frame to frame, if the camera tells.
    interval: Option<Duration>,
    /// When the last was taken, if that is known.
    last: Option<Duration>,
    /// How many more there may have been, by the time between those that came.
    pub suspected: u64,
}

impl Losses {
    /// None yet, of a camera that has this time from frame to frame, if it tells.
    pub fn new(interval: Option<Duration>) -> Losses {
        Losses {
            interval,
            ..Losses::default()
        }
    }

    /// Takes the next frame's number; returns those that never came.
    pub fn see(&mut self, sequence: u32) -> Option<RangeInclusive<u32>> {
        let next = self.next.replace(sequence.wrapping_add(1))?;
        let missing = sequence.wrapping_sub(next);
        // Backwards: a camera that counts anew.
        if missing == 0 || missing > u32::MAX / 2 {
            return None;
        }
        self.count += u64::from(missing);
        Some(next..=sequence.wrapping_sub(1))
    }

    /// Takes the next frame's time, when `counted` frames are known to be missing before it; returns how many
    /// more there was time for. A driver whose count leaves nothing out shows only so what it dropped. A
    /// camera that slows down in the dark looks the same.
    pub fn suspect(&mut self, frame: &Frame, counted: u64) -> u64 {
        // A time that is not the camera's own says nothing.
        let time = (frame.time == frame.taken).then_some(frame.time);
        let last = std::mem::replace(&mut self.last, time);
        let (Some(interval), Some(time), Some(last)) = (self.interval, time, last) else {
            return 0;
        };
        let (twice, interval) = (
            2 * time.saturating_sub(last).as_nanos(),
            interval.as_nanos(),
        );
        // To the nearest number of frame times: up only if it is more than half a frame time.
        let steps = (twice + interval).saturating_sub(1) / (2 * interval).max(1);
        let more = (steps as u64).saturating_sub(1 + counted);
        self.suspected += more;
        more
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_numbers_are_named_also_where_they_wrap() {
        let mut losses = Losses::default();
        let mut see = |n| losses.see(n).map(|range| (*range.start(), *range.end()));
        assert_eq!(see(7), None, "the first is no loss, whatever its number");
        assert_eq!(see(8), None);
        assert_eq!(see(12), Some((9, 11)));
        assert_eq!(see(u32::MAX - 1), None, "backwards");
        assert_eq!(see(1), Some((u32::MAX, 0)));
        assert_eq!(see(0), None, "counts anew");
        assert_eq!(losses.count, 3 + 2);
    }

    #[test]
    fn a_count_that_leaves_nothing_out_hides_no_gap_in_time() {
        let mut losses = Losses::new(Some(Duration::from_millis(40)));
        let mut see = |sequence, milliseconds: u64, late: u64| {
            let time = Duration::from_millis(milliseconds);
            let taken = Duration::from_millis(milliseconds + late);
            let frame = Frame {
                sequence,
                time,
                monotonic: true,
                taken,
                len: 0,
                damaged: false,
            };
            let before = losses.count;
            losses.see(sequence);
            let counted = losses.count - before;
            losses.suspect(&frame, counted)
        };
        assert_eq!(see(0, 1000, 0), 0, "the first");
        assert_eq!(see(1, 1040, 0), 0);
        assert_eq!(see(2, 1100, 0), 0, "one and a half frame times");
        assert_eq!(see(3, 1161, 0), 1, "more than that");
        assert_eq!(see(4, 1361, 0), 4);
        assert_eq!(see(7, 1481, 0), 0, "two are known to be lost");
        assert_eq!(see(9, 1641, 0), 2, "one of three is");
        assert_eq!(see(10, 1600, 0), 0, "backwards");
        assert_eq!(see(10, 1800, 0), 4, "a count that stands still");
        assert_eq!(see(11, 0, 2000), 0, "no time of the camera's");
        assert_eq!(see(12, 3000, 0), 0, "nor was the last");
        assert_eq!((losses.count, losses.suspected), (3, 11));
    }
}
