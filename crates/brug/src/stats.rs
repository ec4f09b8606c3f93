// SPDX-License-Identifier: MIT OR Apache-2.0
//! Statistics, for people and as JSON: the same for the crate and for libbrug.so.

use core::ffi::{c_int, CStr};
use core::fmt::{self, Write};
use core::ptr;

use nocopy_settings::{head, Quoted, Statistics};

use crate::config;
use crate::counters::{self, Stats};
use crate::mode::Base;
use crate::retain::RETAINED;
use crate::tuner::tuner_report;
use crate::{arena, os, words};

/// The counters now.
pub fn stats() -> Stats {
    totals().own()
}

/// In the child of a fork.
pub(crate) fn after_fork_in_child() {
    counters::begin_after(&totals());
}

fn totals() -> Stats {
    let (grows, not_copied) = arena::growths();
    let counted = counters::read();
    Stats {
        slots_live: arena::live() as u64,
        bytes_committed: arena::committed() as u64,
        bytes_retained: RETAINED.load(core::sync::atomic::Ordering::Relaxed) as u64,
        grows_in_place: counted.grows_in_place + grows,
        bytes_not_copied: counted.bytes_not_copied + not_copied,
        ..counted
    }
}

/// Writes the statistics for people. Allocates nothing.
///
/// # Errors
/// Those of `out`.
pub(crate) fn text(out: &mut dyn Write) -> fmt::Result {
    out.write_str("brug: ")?;
    os::with_program(|path| {
        let mut text = path.utf8_chunks().flat_map(|part| part.valid().chars());
        let shown = |c: char| if c.is_control() { '?' } else { c };
        text.try_for_each(|c| out.write_char(shown(c)))
    })?;
    let (mode, base) = (words::mode(), words::base());
    writeln!(out, " [{}], mode {mode}, base {base}", os::process())?;
    write!(out, "{}{}", stats(), tuner_report())?;
    #[cfg(feature = "monitor")]
    if crate::monitor::on() {
        write!(out, "{}", crate::monitor::report())?;
    }
    Ok(())
}

/// Writes the statistics as a line of JSON. Allocates nothing.
fn json(out: &mut dyn Write) -> fmt::Result {
    os::with_program(|path| head(out, "brug", path, os::process()))?;
    let report = tuner_report();
    write!(
        out,
        ",\"mode\":\"{}\",\"base\":\"{}\",\"base_why\":{},\"base_gain_percent\":",
        words::mode(),
        report.base(),
        Quoted(report.why().as_bytes())
    )?;
    match report.gain() {
        Some(percent) => write!(out, "{percent}")?,
        None => out.write_str("null")?,
    }
    out.write_str(",\"bases\":[")?;
    let mut comma = "";
    for base in Base::ALL {
        let (ns, samples) = report.compared(base);
        if samples > 0 {
            write!(
                out,
                "{comma}{{\"name\":\"{base}\",\"ns\":{ns},\"samples\":{samples}}}"
            )?;
            comma = ",";
        }
    }
    out.write_str("]")?;
    for (name, value) in stats().rows() {
        write!(out, ",\"{name}\":{value}")?;
    }
    #[cfg(feature = "monitor")]
    if crate::monitor::on() {
        out.write_str(",\"sizes\":")?;
        report.json(out)?;
        out.write_str(",")?;
        crate::monitor::report().sites_json(out)?;
    }
    out.write_str("}\n")
}

/// Text that goes to a descriptor in one piece, so that the lines of processes that write to the
/// same file do not mix; in several where there is no memory for it.
struct Piece {
    fd: c_int,
    buf: *mut u8,
    len: usize,
    failed: bool,
}

impl Piece {
    const MOST: usize = 8 << 20;

    fn new(fd: c_int) -> Piece {
        Piece {
            fd,
            buf: os::map_memory(Piece::MOST),
            len: 0,
            failed: false,
        }
    }

    fn flush(&mut self) {
        if self.len > 0 {
            // SAFETY: so much of the buffer has been written.
            let text = unsafe { core::slice::from_raw_parts(self.buf, self.len) };
            self.failed |= !os::write_all(self.fd, text);
            self.len = 0;
        }
    }

    /// Returns true if all of it was written.
    fn end(mut self) -> bool {
        self.flush();
        if !self.buf.is_null() {
            // SAFETY: mapped by `new`, and not used any more.
            unsafe { os::unmap(self.buf, Piece::MOST) };
        }
        !self.failed
    }
}

impl Write for Piece {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.buf.is_null() || text.len() > Piece::MOST - self.len {
            self.flush();
        }
        if self.buf.is_null() || text.len() > Piece::MOST {
            self.failed |= !os::write_all(self.fd, text.as_bytes());
        } else {
            // SAFETY: there is room for it.
            unsafe { ptr::copy_nonoverlapping(text.as_ptr(), self.buf.add(self.len), text.len()) };
            self.len += text.len();
        }
        Ok(())
    }
}

/// Writes the statistics for people to a descriptor.
#[inline(never)]
pub(crate) fn print(to: c_int) {
    let mut out = Piece::new(to);
    let _ = text(&mut out);
    out.end();
}

/// Writes the statistics where the configuration wants them; `to` takes what is for people.
pub(crate) fn show(to: c_int) {
    match config::current().statistics {
        Statistics::No => {}
        Statistics::StandardError => print(to),
        Statistics::Text(path) => append(path, text),
        Statistics::Json(path) => append(path, json),
    }
}

/// Appends the statistics to a file. Not inlined: a program that shows nothing needs no stack for it.
#[inline(never)]
fn append(path: &CStr, form: fn(&mut dyn Write) -> fmt::Result) {
    let append = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND | libc::O_CLOEXEC;
    // Nobody waits until a FIFO has a reader.
    let flags = append | libc::O_NONBLOCK | libc::O_NOCTTY;
    // SAFETY: a C string.
    let fd = unsafe { libc::open64(path.as_ptr(), flags, 0o644) };
    let written = fd >= 0 && {
        let mut out = Piece::new(fd);
        let _ = form(&mut out);
        out.end()
    };
    if !written {
        let error = os::errno();
        let path = path.to_str().unwrap_or("?");
        os::complain(format_args!(
            "BRUG_STATS: cannot write {path} (errno {error})"
        ));
    }
    if fd >= 0 {
        // SAFETY: opened above.
        unsafe { libc::close(fd) };
    }
}
