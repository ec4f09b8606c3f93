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

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::vec::Vec;

    #[test]
    fn a_line_that_is_none_is_told_apart_from_those_that_are() {
        let text =
            "brug-profile 1\n4096 slot 160 9\n\n4096 slot 160\n4096 slot 160 9 9\n-1 slot 1 1\n";
        let rows: Vec<_> = profile(text).expect("a profile").collect();
        assert_eq!(rows.len(), 4);
        let row = rows[0].expect("a row");
        assert_eq!(
            (row.size, row.name, row.mean, row.samples),
            (4096, "slot", 160, 9)
        );
        assert!(rows[1..].iter().all(Option::is_none));
    }

    #[test]
    fn what_is_no_profile_of_this_version_is_none() {
        for text in [
            "",
            "brug-profile 2\n",
            "brug-profile 10\n",
            " brug-profile 1\n",
            "4096 slot 1 1\n",
        ] {
            assert!(profile(text).is_none(), "{text}");
        }
    }
}
