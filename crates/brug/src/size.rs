// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sizes as people write them.

use core::fmt;

/// Decimal digits alone; `None` also on overflow.
pub(crate) fn parse_decimal(digits: &[u8]) -> Option<usize> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0usize, |n, &b| {
        let digit = b.is_ascii_digit().then(|| usize::from(b - b'0'))?;
        n.checked_mul(10)?.checked_add(digit)
    })
}

/// Bytes, with an optional suffix K, M, G or T (powers of 1024), in either case
/// and with an optional `B` or `iB` after it. `None` if it is none or overflows.
pub fn parse_size(text: &str) -> Option<usize> {
    let split = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (digits, unit) = text.split_at(split);
    let shift = match unit.as_bytes() {
        [] | [b'b' | b'B'] => 0,
        [prefix, rest @ ..] => {
            if !matches!(rest, [] | [b'b' | b'B'] | [b'i', b'B']) {
                return None;
            }
            match prefix.to_ascii_uppercase() {
                b'K' => 10,
                b'M' => 20,
                b'G' => 30,
                b'T' => 40,
                _ => return None,
            }
        }
    };
    parse_decimal(digits.as_bytes())?.checked_mul(1 << shift)
}

/// A size as people write it: `64K`, `1536`, `2G`.
pub(crate) struct Size(pub(crate) usize);

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
