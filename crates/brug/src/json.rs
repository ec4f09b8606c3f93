// SPDX-License-Identifier: MIT OR Apache-2.0
//! Text as JSON has it.

use core::fmt::{self, Write};

/// A string in quotation marks; what is not UTF-8 becomes U+FFFD.
pub(crate) struct Quoted<'a>(pub(crate) &'a [u8]);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for part in self.0.utf8_chunks() {
            for c in part.valid().chars() {
                match c {
                    '"' | '\\' => write!(f, "\\{c}")?,
                    c if c < ' ' => write!(f, "\\u{:04x}", c as u32)?,
                    c => f.write_char(c)?,
                }
            }
            if !part.invalid().is_empty() {
                f.write_char(char::REPLACEMENT_CHARACTER)?;
            }
        }
        f.write_char('"')
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::string::ToString;

    #[test]
    fn what_json_would_misread_is_escaped() {
        let quoted = |text: &[u8]| Quoted(text).to_string();
        assert_eq!(quoted(b"/bin/true"), "\"/bin/true\"");
        assert_eq!(quoted(b"a\"b\\c\n"), "\"a\\\"b\\\\c\\u000a\"");
        assert_eq!(quoted("gr\u{fc}n".as_bytes()), "\"gr\u{fc}n\"");
        assert_eq!(quoted(b"\xffx\xc3"), "\"\u{fffd}x\u{fffd}\"");
    }
}
