// SPDX-License-Identifier: MIT OR Apache-2.0
//! JSON, as far as statistics need it.

use core::fmt::{self, Write};

/// The version of what statistics look like as JSON. A field that goes or changes its meaning makes a
/// new one; one that comes does not.
pub const SCHEMA: u32 = 1;

/// Writes how a line of statistics begins: the brace, the schema, which part wrote it, the path of the
/// program and its process. More fields follow, each with a comma before it, and the closing brace.
///
/// # Errors
/// Those of `out`.
pub fn head(out: &mut dyn Write, part: &str, program: &[u8], pid: i32) -> fmt::Result {
    let program = Quoted(program);
    write!(
        out,
        "{{\"schema\":{SCHEMA},\"part\":\"{part}\",\"program\":{program},\"pid\":{pid}"
    )
}

/// Bytes as a string in quotation marks; what is not UTF-8 becomes U+FFFD.
#[derive(Clone, Copy, Debug)]
pub struct Quoted<'a>(pub &'a [u8]);

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
    use std::string::{String, ToString};

    #[test]
    fn what_json_would_misread_is_escaped() {
        let quoted = |text: &[u8]| Quoted(text).to_string();
        assert_eq!(quoted(b"/bin/true"), "\"/bin/true\"");
        assert_eq!(quoted(b"a\"b\\c\n"), "\"a\\\"b\\\\c\\u000a\"");
        assert_eq!(quoted("gr\u{fc}n".as_bytes()), "\"gr\u{fc}n\"");
        assert_eq!(quoted(b"\xffx\xc3"), "\"\u{fffd}x\u{fffd}\"");
    }

    #[test]
    fn a_line_begins_with_what_wrote_it() {
        let mut out = String::new();
        head(&mut out, "brug", b"/bin/tr\"ue", 7).unwrap();
        assert_eq!(
            out,
            r#"{"schema":1,"part":"brug","program":"/bin/tr\"ue","pid":7"#
        );
    }
}
