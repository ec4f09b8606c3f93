// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a command says: failures, sizes, times and progress.

use std::ffi::OsStr;
use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
pub use nocopy_launch::{reason, shown};

/// How a command ended other than well.
#[derive(Debug)]
pub enum Fail {
    /// The command line asks for something that cannot be.
    Usage(String),
    /// Something went wrong.
    Failed(String),
    /// Nothing was begun, for this reason; with a status of its own.
    Refused(u8, String),
    /// It went wrong and everything has been said.
    Reported,
    /// Ended by this signal.
    Signal(i32),
}

impl Fail {
    /// The exit status of the process, as a shell shows it.
    pub fn status(&self) -> u8 {
        match self {
            Fail::Usage(_) => 2,
            Fail::Failed(_) | Fail::Reported => 1,
            Fail::Refused(status, _) => *status,
            Fail::Signal(number) => 128 + *number as u8,
        }
    }

    /// Ends the process as this does: if by a signal, then by that itself, as a shell ends its own loop only if what
    /// it waited for ended so. Otherwise returns the exit status.
    pub fn end(&self) -> ExitCode {
        if let Fail::Signal(number) = self {
            let _ = signal_hook::low_level::emulate_default_handler(*number);
        }
        ExitCode::from(self.status())
    }
}

/// What a command returns.
pub type Outcome<T = ()> = Result<T, Fail>;

/// Says which file an error is about, and what was being done to it.
pub trait Context<T> {
    /// Turns an error into "cannot VERB 'PATH': REASON".
    fn context(self, verb: &str, path: &Path) -> Outcome<T>;
}

impl<T> Context<T> for io::Result<T> {
    fn context(self, verb: &str, path: &Path) -> Outcome<T> {
        self.map_err(|e| Fail::Failed(format!("cannot {verb} {}: {}", quoted(path), reason(&e))))
    }
}

/// A name in quotes, on one line whatever is in it.
pub fn quoted(name: impl AsRef<OsStr>) -> String {
    let text = name.as_ref().to_string_lossy();
    if text.contains(|c: char| c.is_control() || c == '\'') {
        format!("{text:?}")
    } else {
        format!("'{text}'")
    }
}

/// A descriptor of our own for standard input or output.
///
/// # Errors
/// `EBADF` if it was closed when the command was begun: that is not /dev/null.
pub fn standard(fd: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    match nocopy_launch::closed(fd.as_raw_fd()) {
        true => Err(rustix::io::Errno::BADF.into()),
        false => fd.try_clone_to_owned(),
    }
}

/// Writes a line to standard error; there is nobody to tell if that fails.
pub fn say(line: impl fmt::Display) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Writes to standard error without a newline; as with [`say`], whether or not that succeeds.
pub fn show(text: impl fmt::Display) {
    let _ = write!(io::stderr(), "{text}");
}

/// Writes a value as one line of JSON to standard output.
pub fn json(value: &impl serde::Serialize) -> Outcome {
    let text = serde_json::to_string(value).map_err(|e| Fail::Failed(e.to_string()))?;
    print(&text)
}

/// Writes text and a newline to standard output.
pub fn print(text: &str) -> Outcome {
    let mut out = io::stdout().lock();
    standard(out.as_fd())
        .and_then(|_| writeln!(out, "{text}"))
        .and_then(|()| out.flush())
        .context("write to", Path::new("standard output"))
}

const PREFIXES: [&str; 9] = ["", "k", "M", "G", "T", "P", "E", "Z", "Y"];

/// An amount of bytes in powers of 1000 ("1.0 kB") or 1024 ("1.0 KiB"): one decimal below ten,
/// rounded to the nearest, ties to even.
pub fn amount(bytes: u64, base: u64) -> String {
    let (bytes, base) = (bytes as u128, base as u128);
    let (mut unit, mut power) = (1, 0);
    while bytes / unit >= base {
        unit *= base;
        power += 1;
    }
    if power == 0 {
        return format!("{bytes} B");
    }
    let round = |n: u128| {
        let (whole, rest) = (n / unit, 2 * (n % unit));
        whole + u128::from(rest > unit || rest == unit && whole % 2 == 1)
    };
    let tenths = round(bytes * 10);
    let mut number = match tenths {
        0..100 => format!("{}.{}", tenths / 10, tenths % 10),
        _ => round(bytes).to_string(),
    };
    if round(bytes) == base {
        number = "1.0".into();
        power += 1;
    }
    let prefix = match (base, PREFIXES[power]) {
        (1024, "k") => "Ki".into(),
        (1024, p) => format!("{p}i"),
        (_, p) => p.to_string(),
    };
    format!("{number} {prefix}B")
}

/// Bytes per second as dd prints them: at least in kB/s, three digits.
pub fn rate(bytes: u64, time: Duration) -> String {
    if time.is_zero() {
        return "Infinity B/s".into();
    }
    let mut value = bytes as f64 / time.as_secs_f64() / 1000.0;
    let mut power = 1;
    while value >= 1000.0 && power + 1 < PREFIXES.len() {
        value /= 1000.0;
        power += 1;
    }
    let mut number = format!("{value:.1}");
    if number.len() > 4 {
        number = format!("{value:.0}");
    }
    format!("{number} {}B/s", PREFIXES[power])
}

/// A number with six significant digits, as C's `%g`.
pub fn six_digits(value: f64) -> String {
    let scientific = format!("{value:.5e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trim = |s: &str| match s.contains('.') {
        true => s.trim_end_matches('0').trim_end_matches('.').to_string(),
        false => s.to_string(),
    };
    if (-4..6).contains(&exponent) {
        trim(&format!("{value:.*}", (5 - exponent) as usize))
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{}e{sign}{:02}", trim(mantissa), exponent.abs())
    }
}

/// The line dd ends with, and shows as it goes.
pub fn copied(bytes: u64, time: Duration, seconds: &str) -> String {
    let (si, iec) = (amount(bytes, 1000), amount(bytes, 1024));
    let noun = if bytes == 1 { "byte" } else { "bytes" };
    let same = match (bytes >= 1000, bytes >= 1024) {
        (false, _) => String::new(),
        (true, false) => format!(" ({si})"),
        (true, true) => format!(" ({si}, {iec})"),
    };
    let rate = rate(bytes, time);
    format!("{bytes} {noun}{same} copied, {seconds} s, {rate}")
}

/// A progress line on a terminal, nothing elsewhere.
pub struct Progress {
    bar: ProgressBar,
    visible: bool,
    since: Instant,
    done: u64,
}

impl Progress {
    /// Shows `what` until dropped. `total` is zero if nobody knows it.
    pub fn new(what: &str, total: u64, wanted: bool) -> Progress {
        let bar = if wanted && io::stderr().is_terminal() {
            let target = ProgressDrawTarget::stderr_with_hz(5);
            ProgressBar::with_draw_target((total > 0).then_some(total), target)
        } else {
            ProgressBar::hidden()
        };
        let template = match total {
            0 => "{msg} {bytes} {bytes_per_sec} {elapsed}",
            _ => "{msg} {bytes}/{total_bytes} {percent}% {bytes_per_sec} eta {eta}",
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_message(shown(what));
        Progress {
            visible: !bar.is_hidden(),
            bar,
            since: Instant::now(),
            done: 0,
        }
    }

    /// Names what is being worked on.
    pub fn name(&self, what: impl AsRef<OsStr>) {
        if self.visible {
            self.bar.set_message(shown(what));
        }
    }

    /// Runs `action`, which prints something, with the line out of the way.
    pub fn aside(&self, action: impl FnOnce()) {
        self.bar.suspend(action);
    }

    /// Counts bytes.
    pub fn add(&mut self, bytes: u64) {
        self.done = self.done.saturating_add(bytes);
        if self.visible {
            self.bar.set_position(self.done);
        }
    }

    /// Bytes counted, and the time since the start.
    pub fn totals(&self) -> (u64, Duration) {
        (self.done, self.since.elapsed())
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_round_to_nearest_even_and_carry() {
        let both = |n| (amount(n, 1000), amount(n, 1024));
        assert_eq!(both(999), ("999 B".into(), "999 B".into()));
        assert_eq!(both(1000), ("1.0 kB".into(), "1000 B".into()));
        assert_eq!(both(1024), ("1.0 kB".into(), "1.0 KiB".into()));
        assert_eq!(both(9_950), ("10 kB".into(), "9.7 KiB".into()));
        assert_eq!(both(9_949), ("9.9 kB".into(), "9.7 KiB".into()));
        assert_eq!(both(10_500), ("10 kB".into(), "10 KiB".into()));
        assert_eq!(both(11_500), ("12 kB".into(), "11 KiB".into()));
        assert_eq!(both(999_999), ("1.0 MB".into(), "977 KiB".into()));
        assert_eq!(both(1_048_575), ("1.0 MB".into(), "1.0 MiB".into()));
        assert_eq!(amount(u64::MAX, 1024), "16 EiB");
    }

    #[test]
    fn times_have_six_digits_as_printf_g() {
        assert_eq!(six_digits(0.0), "0");
        assert_eq!(six_digits(4.2909e-05), "4.2909e-05");
        assert_eq!(six_digits(0.000_123_456_7), "0.000123457");
        assert_eq!(six_digits(12.0), "12");
        assert_eq!(six_digits(1_234.567_8), "1234.57");
        assert_eq!(six_digits(1_234_567.0), "1.23457e+06");
    }

    #[test]
    fn rates_have_three_digits_and_at_least_kilobytes() {
        let second = Duration::from_secs(1);
        assert_eq!(rate(0, second), "0.0 kB/s");
        assert_eq!(rate(71_500_000, second), "71.5 MB/s");
        assert_eq!(rate(132_000_000, second), "132 MB/s");
        assert_eq!(rate(1, Duration::ZERO), "Infinity B/s");
    }
}
