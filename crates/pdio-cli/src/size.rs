// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers with the suffixes of GNU dd.

/// Parses a number of bytes or blocks: decimal digits and a suffix (c 1, w 2, b 512, kB 1000,
/// K or k 1024, MB, M, and so on up to E; KiB is K); factors may be joined by `x`. A sole `B` is 1.
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

fn one(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, suffix) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    let unit = match suffix {
        "" | "c" | "B" => 1,
        "w" => 2,
        "b" => 512,
        _ => {
            let (prefix, rest) = suffix.split_at_checked(1)?;
            let power = match prefix {
                "k" | "K" => 1,
                "M" => 2,
                "G" => 3,
                "T" => 4,
                "P" => 5,
                "E" => 6,
                _ => return None,
            };
            match rest {
                "" | "iB" => 1024u64.pow(power),
                "B" => 1000u64.pow(power),
                _ => return None,
            }
        }
    };
    number.checked_mul(unit)
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
            ("3k", 3072),
            ("3K", 3072),
            ("3KiB", 3072),
            ("3kB", 3000),
            ("2M", 2 << 20),
            ("2MB", 2_000_000),
            ("1G", 1 << 30),
            ("1E", 1 << 60),
            ("2x3x4b", 12288),
            ("00x10", 0),
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
            "1m",
            "1Kb",
            "1KB2",
            "k",
            "0x10",
            "18446744073709551616",
            "16E",
            "1é",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
