// SPDX-License-Identifier: MIT OR Apache-2.0
//! A line of text on the stack.

use core::fmt;

/// The longest line, in bytes.
const MOST: usize = 512;

/// A line of text on the stack, for who may not allocate. What does not fit is cut.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    bytes: [u8; MOST],
    len: usize,
}

impl Default for Line {
    fn default() -> Self {
        Line::new()
    }
}

impl Line {
    /// An empty one.
    pub const fn new() -> Line {
        Line {
            bytes: [0; MOST],
            len: 0,
        }
    }

    /// A message: who speaks, a colon, the parts one after the other, and the end of the line.
    pub fn message(who: &str, parts: &[&[u8]]) -> Line {
        let mut line = Line::new();
        line.push(who.as_bytes());
        line.push(b": ");
        for part in parts {
            line.push(part);
        }
        line.end()
    }

    /// Puts bytes behind what is there.
    pub fn push(&mut self, bytes: &[u8]) {
        let fits = bytes.len().min(MOST - self.len);
        self.bytes[self.len..self.len + fits].copy_from_slice(&bytes[..fits]);
        self.len += fits;
    }

    /// The line with its end, also if it was cut. Whatever else would end it or do something to a terminal is `?`:
    /// names come from anybody.
    pub fn end(mut self) -> Line {
        self.len = self.len.min(MOST - 1);
        for at in 0..self.len {
            if self.bytes[at].is_ascii_control() {
                self.bytes[at] = b'?';
            }
            // In UTF-8 the other control characters have two bytes.
            if at > 0 && matches!(self.bytes[at - 1..=at], [0xc2, 0x80..=0x9f]) {
                self.bytes[at - 1..=at].fill(b'?');
            }
        }
        self.push(b"\n");
        self
    }

    /// What is in it.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_ends_with_its_line_also_if_it_is_cut() {
        assert_eq!(
            Line::message("pdio", &[b"no ", b"room"]).as_bytes(),
            b"pdio: no room\n"
        );
        let forged = Line::message("brug", &[b"a\nb\x1b[m\x7f", "\u{9b}m\u{e9}".as_bytes()]);
        assert_eq!(forged.as_bytes(), b"brug: a?b?[m???m\xc3\xa9\n".as_slice());
        let long = [b'x'; 600];
        let line = Line::message("brug", &[&long, b"lost"]);
        assert_eq!(line.as_bytes().len(), MOST);
        assert!(line.as_bytes().ends_with(b"xx\n"));
    }
}
