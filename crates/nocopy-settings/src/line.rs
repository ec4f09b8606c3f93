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

    /// The line with its end, also if it was cut.
    pub fn end(mut self) -> Line {
        self.len = self.len.min(MOST - 1);
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
        let long = [b'x'; 600];
        let line = Line::message("brug", &[&long, b"lost"]);
        assert_eq!(line.as_bytes().len(), MOST);
        assert!(line.as_bytes().ends_with(b"xx\n"));
    }
}
