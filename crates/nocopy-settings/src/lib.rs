// SPDX-License-Identifier: MIT OR Apache-2.0
//! The vocabulary of nocopy's settings: what a size, a time, a switch and a place for statistics look
//! like in every variable and option, how statistics begin as JSON, and what form brug's profiles have.
//!
//! ```
//! use core::time::Duration;
//!
//! assert_eq!(nocopy_settings::size("8M"), Some(8 << 20));
//! assert_eq!(nocopy_settings::time("50ms"), Some(Duration::from_millis(50)));
//! assert_eq!(nocopy_settings::switch("on"), Some(true));
//! ```
//!
//! Nothing here allocates, and nothing is remembered.
#![no_std]

mod json;
mod line;
mod profile;

use core::fmt;
use core::time::Duration;

pub use json::{head, Quoted, SCHEMA};
pub use line::Line;
pub use profile::{profile, ProfileRow, PROFILE, PROFILE_MOST};

/// What [`size`] takes, for a message.
pub const SIZE: &str = "a size such as 64K, 8M or 1GiB";
/// What [`time`] takes, for a message.
pub const TIME: &str = "a time such as 50ms, 1.5s or 2h";
/// What [`switch`] takes, for a message.
pub const SWITCH: &str = "0 or 1";
/// What [`statistics`] takes, for a message.
pub const STATISTICS: &str = "0, 1, json:FILE or the absolute path of a file";

/// Digits alone. `None` also on overflow.
pub fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |n, &byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        n.checked_mul(10)?.checked_add(digit)
    })
}

/// Splits digits from the unit behind them.
fn unit(text: &str) -> (&[u8], &[u8]) {
    let text = text.as_bytes();
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    text.split_at(digits)
}

/// A number of bytes: digits and a unit.
///
/// | unit | |
/// |---|---|
/// | none, `B` | bytes |
/// | `K`, `M`, `G`, `T`, `P`, `E`, in either case, alone or with `iB` | powers of 1024 |
/// | the same with `B` | powers of 1000, as GNU's tools have it |
///
/// `None` if it is something else, or does not fit into 64 bits.
pub fn size(text: &str) -> Option<u64> {
    let (digits, unit) = unit(text);
    let times: u64 = match unit {
        b"" | b"B" => 1,
        [prefix, rest @ ..] => {
            let prefix = prefix.to_ascii_uppercase();
            let power = b"KMGTPE".iter().position(|&known| known == prefix)? as u32 + 1;
            match rest {
                b"" | b"iB" => 1024u64.pow(power),
                b"B" => 1000u64.pow(power),
                _ => return None,
            }
        }
    };
    number(digits)?.checked_mul(times)
}

/// A length of time: a number, which may have a fraction, and one of the units `ms`, `s`, `m` (minutes)
/// and `h`. Only 0 needs none. `None` if it is something else, or longer than ten years.
pub fn time(text: &str) -> Option<Duration> {
    const LONGEST: Duration = Duration::from_secs(10 * 366 * 86_400);
    let (whole, mut rest) = unit(text);
    let mut fraction: &[u8] = b"";
    if let Some(behind) = rest.strip_prefix(b".") {
        let digits = behind.iter().take_while(|b| b.is_ascii_digit()).count();
        (fraction, rest) = behind.split_at(digits);
        if fraction.is_empty() {
            return None;
        }
    }
    let unit: u64 = match rest {
        b"ms" => 1_000_000,
        b"s" => 1_000_000_000,
        b"m" => 60_000_000_000,
        b"h" => 3_600_000_000_000,
        b"" if whole == b"0" && fraction.is_empty() => 1,
        _ => return None,
    };
    let mut nanoseconds = u128::from(number(whole)?) * u128::from(unit);
    let mut place = unit;
    for digit in fraction {
        place /= 10;
        nanoseconds += u128::from(place) * u128::from(digit - b'0');
    }
    let nanoseconds = u64::try_from(nanoseconds).ok()?;
    Some(Duration::from_nanos(nanoseconds)).filter(|&time| time <= LONGEST)
}

/// Yes or no: `1`, `yes`, `on`, `true`, or `0`, `no`, `off`, `false`.
pub fn switch(text: &str) -> Option<bool> {
    match text {
        "1" | "yes" | "on" | "true" => Some(true),
        "0" | "no" | "off" | "false" => Some(false),
        _ => None,
    }
}

/// Where statistics go when a program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Statistics<T> {
    /// Nowhere.
    No,
    /// To standard error, for people.
    StandardError,
    /// Behind what is in this file, for people.
    Text(T),
    /// Behind what is in this file, one line of JSON.
    Json(T),
}

impl<T> Statistics<T> {
    /// The same, with another name for the file.
    pub fn map<U>(self, with: impl FnOnce(T) -> U) -> Statistics<U> {
        match self {
            Statistics::No => Statistics::No,
            Statistics::StandardError => Statistics::StandardError,
            Statistics::Text(file) => Statistics::Text(with(file)),
            Statistics::Json(file) => Statistics::Json(with(file)),
        }
    }
}

/// Where statistics go: a [`switch`], an absolute path, or `json:` and a path.
pub fn statistics(value: &[u8]) -> Option<Statistics<&[u8]>> {
    if value.first() == Some(&b'/') {
        return Some(Statistics::Text(value));
    }
    if let Some(path) = value.strip_prefix(b"json:") {
        return (!path.is_empty()).then_some(Statistics::Json(path));
    }
    Some(match switch(core::str::from_utf8(value).ok()?)? {
        true => Statistics::StandardError,
        false => Statistics::No,
    })
}

/// A number of bytes as [`size`] takes it: `64K`, `1536`, `2G`.
#[derive(Clone, Copy, Debug)]
pub struct Size(pub u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (shift, unit) in [(40, "T"), (30, "G"), (20, "M"), (10, "K")] {
            if self.0 != 0 && self.0.trailing_zeros() >= shift {
                return write!(f, "{}{unit}", self.0 >> shift);
            }
        }
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::string::ToString;

    #[test]
    fn sizes_have_the_units_of_gnu_tools() {
        for (text, bytes) in [
            ("0", 0),
            ("7", 7),
            ("7B", 7),
            ("3k", 3 << 10),
            ("3K", 3 << 10),
            ("3KiB", 3 << 10),
            ("3kB", 3000),
            ("2m", 2 << 20),
            ("2MiB", 2 << 20),
            ("2MB", 2_000_000),
            ("1G", 1 << 30),
            ("16T", 16 << 40),
            ("1E", 1 << 60),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(size(text), Some(bytes), "{text}");
        }
        for text in [
            "",
            "K",
            "-1",
            "+1",
            " 1",
            "1 ",
            "1b",
            "1Kb",
            "1Ki",
            "1KBB",
            "1.5M",
            "0x10",
            "1é",
            "16E",
            "18446744073709551616",
        ] {
            assert_eq!(size(text), None, "{text}");
        }
    }

    #[test]
    fn a_size_is_shown_as_it_can_be_read() {
        for (bytes, text) in [(0, "0"), (1536, "1536"), (65536, "64K"), (3 << 40, "3T")] {
            assert_eq!(Size(bytes).to_string(), text);
            assert_eq!(size(text), Some(bytes));
        }
    }

    #[test]
    fn a_time_says_its_unit() {
        let ms = Duration::from_millis;
        for (text, expected) in [
            ("0", ms(0)),
            ("0s", ms(0)),
            ("50ms", ms(50)),
            ("1s", ms(1000)),
            ("1.5s", ms(1500)),
            ("0.25ms", Duration::from_micros(250)),
            ("2m", ms(120_000)),
            ("1.25h", ms(4_500_000)),
            ("0.0000000001s", ms(0)),
        ] {
            assert_eq!(time(text), Some(expected), "{text}");
        }
        for text in [
            "",
            "50",
            "1",
            "0.0",
            "ms",
            "1.s",
            ".5s",
            "1 s",
            "-1s",
            "1sec",
            "1S",
            "1d",
            "100000h",
            "99999999999999999999s",
        ] {
            assert_eq!(time(text), None, "{text}");
        }
    }

    #[test]
    fn statistics_go_nowhere_to_people_or_into_a_file() {
        assert_eq!(statistics(b"0"), Some(Statistics::No));
        assert_eq!(statistics(b"yes"), Some(Statistics::StandardError));
        assert_eq!(statistics(b"/a"), Some(Statistics::Text(&b"/a"[..])));
        assert_eq!(statistics(b"json:a"), Some(Statistics::Json(&b"a"[..])));
        for wrong in [&b""[..], b"json:", b"2", b"a", b"\xff"] {
            assert_eq!(statistics(wrong), None);
        }
    }

    #[test]
    fn whatever_is_shown_as_a_size_is_read_as_it_was() {
        // Each power, one less and one more: every border of every unit.
        for shift in 0..64 {
            for bytes in [(1u64 << shift) - 1, 1 << shift, (1 << shift) + 1] {
                assert_eq!(size(&Size(bytes).to_string()), Some(bytes));
            }
        }
    }
}
