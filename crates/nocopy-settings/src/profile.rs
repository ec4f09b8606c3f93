// SPDX-License-Identifier: MIT OR Apache-2.0
//! The form of a profile, in which brug's tuner keeps what it knows: the library uses what has this form, and
//! the command refuses what has not.

use crate::number;

/// The first line of a profile.
pub const PROFILE: &str = "brug-profile 1";
/// Bytes that a profile has at most.
pub const PROFILE_MOST: usize = 32 << 10;

/// A line of a profile: `SIZE NAME MEAN SAMPLES`. What each means, the tuner knows.
#[derive(Clone, Copy, Debug)]
pub struct ProfileRow<'a> {
    /// Size of objects in bytes, or 0.
    pub size: u64,
    /// What was measured.
    pub name: &'a str,
    /// Mean time, in sixteenths of a nanosecond.
    pub mean: u64,
    /// Number of samples.
    pub samples: u64,
}

impl<'a> ProfileRow<'a> {
    fn of(line: &'a str) -> Option<Self> {
        let mut words = line.split(' ');
        let row = ProfileRow {
            size: number(words.next()?.as_bytes())?,
            name: words.next()?,
            mean: number(words.next()?.as_bytes())?,
            samples: number(words.next()?.as_bytes())?,
        };
        words.next().is_none().then_some(row)
    }
}

/// The lines of a profile, `None` for each that is none; or `None` if the text is no profile of this version.
pub fn profile(text: &str) -> Option<impl Iterator<Item = Option<ProfileRow<'_>>> + Clone> {
    let mut lines = text.lines();
    let begins = lines.next() == Some(PROFILE);
    let rows = lines.filter(|line| !line.is_empty());
    begins.then(|| rows.map(ProfileRow::of))
}
