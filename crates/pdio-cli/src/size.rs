// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sizes, with what GNU dd has more.

pub use nocopy_launch::number;

/// Parses a number of bytes or blocks: a [size](nocopy_settings::size), or digits with one of dd's own
/// suffixes (c 1, w 2, b 512; with a B behind it that says bytes, not blocks), or a suffix alone, which is one of
/// it; factors may be joined by `x`. A sign or a space in front, which dd takes, and its old `kD` for `kB` are refused.
///
/// # Errors
/// A text that says what is wrong.
pub fn parse(text: &str) -> Result<u64, String> {
    if text.starts_with("0x") {
        return Err(format!(
            "'{text}' is zero times something, not hexadecimal: write 00x if that is meant"
        ));
    }
    text.split('x')
        .try_fold(1u64, |product, factor| product.checked_mul(one(factor)?))
        .ok_or_else(|| match text.bytes().all(|b| b.is_ascii_digit()) && !text.is_empty() {
            true => format!("number too large: '{text}'"),
            false => format!("invalid number: '{text}' (digits and c, w, b, B, or k, M, G, T, P, E with B or iB; factors joined by x)"),
        })
}

/// What parses an option's number that is more than 0, and at most `most`. An error says so.
pub fn above_zero(most: f64) -> impl Fn(&str) -> Result<f64, String> + Clone {
    move |text| {
        let number = text.parse().ok().filter(|&n| n > 0.0 && n <= most);
        number.ok_or_else(|| format!("not a number of more than 0, up to {most}"))
    }
}

fn one(text: &str) -> Option<u64> {
    if text.starts_with(|first: char| first.is_ascii_alphabetic()) {
        return one(&format!("1{text}"));
    }
    let blocks = text.strip_suffix('B').unwrap_or(text);
    for (unit, bytes) in [("c", 1), ("w", 2), ("b", 512)] {
        if let Some(number) = blocks.strip_suffix(unit) {
            return nocopy_settings::number(number.as_bytes())?.checked_mul(bytes);
        }
    }
    nocopy_settings::size(text)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn every_suffix_has_its_unit() {
        for (text, value) in [
            ("0", 0),
            ("7", 7),
            ("7c", 7),
            ("7B", 7),
            ("7w", 14),
            ("2b", 1024),
            ("7cB", 7),
            ("7wB", 14),
            ("2bB", 1024),
            ("3k", 3072),
            ("3K", 3072),
            ("3KiB", 3072),
            ("3kB", 3000),
            ("2M", 2 << 20),
            ("2m", 2 << 20),
            ("2MB", 2_000_000),
            ("1G", 1 << 30),
            ("1E", 1 << 60),
            ("2x3x4b", 12288),
            ("00x10", 0),
            ("M", 1 << 20),
            ("2xkB", 2000),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse(text), Ok(value), "{text}");
        }
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for text in [
            "",
            "x",
            "1x",
            "x1",
            "-1",
            "+1",
            " 1",
            "1 ",
            "1Kb",
            "1KB2",
            "1bBB",
            "1KD",
            "z",
            "0x10",
            "18446744073709551616",
            "16E",
            "1é",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
