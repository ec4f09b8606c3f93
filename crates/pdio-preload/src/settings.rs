// SPDX-License-Identifier: MIT OR Apache-2.0
//! The environment variables.
//!
//! | variable | value | default |
//! |---|---|---|
//! | `PDIO_PATHS` | files that may be taken: shell patterns, separated by colons, matched with the whole absolute path; `*` matches `/` too | `*` |
//! | `PDIO_DENY` | files that may not, in the same way | none |
//! | `PDIO_MIN_SIZE` | size from which a file's reads are taken | `64M` |
//! | `PDIO_SEQUENTIAL` | bytes that must have been read or written in sequence before | `4M` |
//! | `PDIO_MEMORY` | most memory of a stream | `8M` |
//! | `PDIO_LINGER` | milliseconds that written data may idle in memory; `0` holds none | `50` |
//! | `PDIO_PROMPT` | `0`: what was written may reach other processes by `PDIO_LINGER` later than the program tells them | `1` |
//! | `PDIO_STRATEGY` | `auto`, `direct`, `dontcache`, `buffered` | `auto` |
//! | `PDIO_STRICT` | `1`: no stream is taken, only direct I/O repaired | `0` |
//! | `PDIO_REPAIR` | `0`: misaligned direct I/O fails as usual | `1` |
//! | `PDIO_COSTS` | where `pdio learn` has left what strategies cost: an absolute path; `0`: each process learns for itself | `~/.cache/pdio/costs`, `/var/cache/pdio/costs` |
//! | `PDIO_STATS` | `1`: at the end, a line for each taken stream and a total on standard error, nothing where there is neither; an absolute path: appended to that file | `0` |
//!
//! Sizes are bytes, or with `K`, `M` or `G`. A value that makes no sense is named in one line and
//! the default is used. Empty is the same as unset.

use core::ffi::{c_char, CStr};
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;
use std::time::Duration;

use pdio::Strategy;

use crate::say::say;

/// Where statistics go.
#[derive(Debug, PartialEq, Eq)]
pub enum Stats {
    No,
    StandardError,
    File(CString),
}

#[derive(Debug)]
pub struct Settings {
    pub paths: Vec<CString>,
    pub deny: Vec<CString>,
    pub min_size: u64,
    pub sequential: u64,
    pub memory: usize,
    pub linger: Duration,
    pub prompt: bool,
    pub strategy: Strategy,
    pub strict: bool,
    pub repair: bool,
    pub stats: Stats,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            paths: Vec::new(),
            deny: Vec::new(),
            min_size: 64 << 20,
            sequential: 4 << 20,
            memory: 8 << 20,
            linger: Duration::from_millis(50),
            prompt: true,
            strategy: Strategy::Auto,
            strict: false,
            repair: true,
            stats: Stats::No,
        }
    }
}

static SETTINGS: OnceLock<Settings> = OnceLock::new();

/// What was set; the defaults before the constructor has run.
pub fn get() -> &'static Settings {
    SETTINGS.get_or_init(Settings::default)
}

fn number(text: &str) -> Option<u64> {
    (text.bytes().all(|b| b.is_ascii_digit()) && !text.is_empty())
        .then(|| text.parse().ok())
        .flatten()
}

fn size(text: &str) -> Option<u64> {
    let (digits, shift) = match text.as_bytes().last()? {
        b'k' | b'K' => (&text[..text.len() - 1], 10),
        b'm' | b'M' => (&text[..text.len() - 1], 20),
        b'g' | b'G' => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    number(digits)?.checked_mul(1 << shift)
}

fn switch(text: &str) -> Option<bool> {
    match text {
        "1" | "yes" | "on" | "true" => Some(true),
        "0" | "no" | "off" | "false" => Some(false),
        _ => None,
    }
}

/// Patterns that can match an absolute path.
fn patterns(value: &[u8]) -> Option<Vec<CString>> {
    let mut found = Vec::new();
    for part in value.split(|&byte| byte == b':').filter(|p| !p.is_empty()) {
        if !matches!(part[0], b'/' | b'*' | b'?' | b'[') {
            return None;
        }
        found.push(CString::new(part).ok()?);
    }
    Some(found)
}

impl Settings {
    /// Sets one variable. `None`: the value makes no sense; `Some(false)`: no such variable.
    fn set(&mut self, name: &str, value: &[u8]) -> Option<bool> {
        let text = || core::str::from_utf8(value).ok();
        match name {
            "PDIO_PATHS" => self.paths = patterns(value)?,
            "PDIO_DENY" => self.deny = patterns(value)?,
            "PDIO_MIN_SIZE" => self.min_size = size(text()?)?,
            "PDIO_SEQUENTIAL" => self.sequential = size(text()?)?,
            "PDIO_MEMORY" => self.memory = usize::try_from(size(text()?)?).ok()?.min(1 << 30),
            "PDIO_LINGER" => {
                let milliseconds = number(text()?).filter(|&ms| ms <= 60_000)?;
                self.linger = Duration::from_millis(milliseconds);
            }
            "PDIO_PROMPT" => self.prompt = switch(text()?)?,
            "PDIO_STRATEGY" => {
                self.strategy = match text()?.to_ascii_lowercase().as_str() {
                    "auto" => Strategy::Auto,
                    "direct" => Strategy::Direct,
                    "dontcache" => Strategy::DontCache,
                    "buffered" => Strategy::Buffered,
                    _ => return None,
                }
            }
            "PDIO_STRICT" => self.strict = switch(text()?)?,
            "PDIO_REPAIR" => self.repair = switch(text()?)?,
            // `pdio::costs_files` looks at it.
            "PDIO_COSTS" if value == b"0" || value[0] == b'/' => {}
            "PDIO_COSTS" => return None,
            "PDIO_STATS" => {
                self.stats = match value[0] {
                    b'/' => Stats::File(CString::new(value).ok()?),
                    _ => match switch(text()?)? {
                        true => Stats::StandardError,
                        false => Stats::No,
                    },
                }
            }
            _ => return Some(false),
        }
        Some(true)
    }

    /// Whether a stream on this file may be taken.
    pub fn allows(&self, path: &CStr) -> bool {
        let matches = |pattern: &CString| {
            // SAFETY: both strings are terminated.
            unsafe { libc::fnmatch(pattern.as_ptr(), path.as_ptr(), 0) == 0 }
        };
        (self.paths.is_empty() || self.paths.iter().any(matches)) && !self.deny.iter().any(matches)
    }
}

/// The value of a variable.
///
/// # Safety
/// `environment` is null or an array of C strings that ends with null.
unsafe fn variable<'a>(mut environment: *const *const c_char, name: &str) -> Option<&'a OsStr> {
    // SAFETY: the caller's promise.
    while !environment.is_null() && unsafe { !(*environment).is_null() } {
        // SAFETY: as above.
        let entry = unsafe { CStr::from_ptr(*environment) }.to_bytes();
        let value = entry.strip_prefix(name.as_bytes());
        if let Some(value) = value.and_then(|rest| rest.strip_prefix(b"=")) {
            return Some(OsStr::from_bytes(value));
        }
        // SAFETY: not beyond the null that was not reached yet.
        environment = unsafe { environment.add(1) };
    }
    None
}

/// Reads the variables. One line for each that is wrong.
///
/// # Safety
/// `environment` is null or an array of C strings that ends with null.
pub unsafe fn read(mut environment: *const *const c_char) {
    let mut settings = Settings::default();
    // Copied now: the program may write over its environment. Nothing is read before a stream is taken.
    // SAFETY: the caller's promise.
    let value = |name: &str| unsafe { variable(environment, name) }.map(OsStr::to_os_string);
    pdio::remember_costs(pdio::costs_files(value));
    // SAFETY: the caller's promise.
    while !environment.is_null() && unsafe { !(*environment).is_null() } {
        // SAFETY: as above.
        let entry = unsafe { CStr::from_ptr(*environment) }.to_bytes();
        // SAFETY: not beyond the null that was not reached yet.
        environment = unsafe { environment.add(1) };
        let Some(at) = entry.iter().position(|&byte| byte == b'=') else {
            continue;
        };
        let (name, value) = (&entry[..at], &entry[at + 1..]);
        if !name.starts_with(b"PDIO_") || value.is_empty() {
            continue;
        }
        let known = core::str::from_utf8(name).map_or(Some(false), |n| settings.set(n, value));
        match known {
            Some(true) => {}
            Some(false) => say(&[b"there is no variable ", name, b"; it is ignored"]),
            None => {
                let shown = &value[..value.len().min(60)];
                say(&[name, b"=", shown, b" makes no sense; the default is used"]);
            }
        }
    }
    // Nobody has asked before the constructor.
    let _ = SETTINGS.set(settings);
}
