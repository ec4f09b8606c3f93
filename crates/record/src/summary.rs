// SPDX-License-Identifier: MIT OR Apache-2.0
//! What came of a recording, in a line or as JSON.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pdio_cli::report;
use serde_json::{json, Value};

use crate::output::Totals;
use crate::record::Tally;
use crate::ways::Way;

/// A recording that has ended.
pub struct Summary {
    /// The way that its frames took.
    pub way: Way,
    /// The buffers that the camera had.
    pub buffers: u32,
    /// What the recording counted.
    pub tally: Tally,
    /// What is in files.
    pub totals: Totals,
    /// Photos that were taken.
    pub photos: u64,
    /// Photos that were asked for and not taken.
    pub photos_failed: u64,
    /// How long it recorded.
    pub time: Duration,
    /// The processor time that it took, in seconds.
    pub cpu: f64,
}

/// Names as JSON can have them: what is not UTF-8 is no string there.
fn names(files: &[PathBuf]) -> Vec<Cow<'_, str>> {
    files.iter().map(|file| file.to_string_lossy()).collect()
}

impl Summary {
    /// How often a byte was copied, on average.
    fn copies(&self) -> f64 {
        let totals = &self.totals;
        // Through the ring it is one, and one more where the ring goes through the page cache.
        let copied = match self.way {
            Way::Buffered => totals.given,
            _ => totals.given.saturating_sub(totals.zero_copy) + totals.buffered,
        } + self.tally.kept;
        copied as f64 / totals.given.max(1) as f64
    }

    /// All of it, of a recording to `file`.
    pub fn json(&self, file: &Path, complete: bool) -> Value {
        let (tally, totals) = (&self.tally, &self.totals);
        json!({
            "file": file.to_string_lossy(), "files": names(&totals.files),
            "way": self.way.to_string(), "buffers": self.buffers,
            "frames": totals.frames, "lost": totals.lost, "suspected": totals.suspected,
            "damaged": totals.damaged, "uneven": totals.uneven,
            "late": tally.late, "worst_s": tally.worst.as_secs_f64(), "bytes": totals.bytes,
            "copies_per_byte": self.copies(), "seconds": self.time.as_secs_f64(),
            "cpu_s": self.cpu, "photos": self.photos, "photos_failed": self.photos_failed,
            "complete": complete,
        })
    }

    /// A line.
    pub fn line(&self) -> String {
        let totals = &self.totals;
        let suspected = match totals.suspected {
            0 => String::new(),
            more => format!(" (perhaps {more} more, by their times)"),
        };
        let each = match totals.frames {
            0 => String::new(),
            frames => format!(
                ", {:.2} ms of processor time a frame",
                1000.0 * self.cpu / frames as f64
            ),
        };
        format!(
            "{} frames, {} lost{suspected}, {} damaged, {} late; {}, {}; way '{}', {:.2} copies a \
             byte{each}",
            totals.frames,
            totals.lost,
            totals.damaged,
            self.tally.late,
            report::amount(totals.bytes, 1024),
            report::rate(totals.bytes, self.time),
            self.way,
            self.copies(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_not_utf8_have_a_place_in_json() {
        use std::os::unix::ffi::OsStrExt;
        let files = [std::ffi::OsStr::from_bytes(b"a\xff").into()];
        assert_eq!(json!({ "files": names(&files) })["files"][0], "a\u{fffd}");
    }
}
