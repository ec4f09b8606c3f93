// SPDX-License-Identifier: MIT OR Apache-2.0
//! The environment variables, which `docs/pdio.md` lists.
//!
//! Sizes, times and switches are those of [`nocopy_settings`]. A value that makes no sense is named in
//! one line and the default is used. Empty is the same as unset.

use core::ffi::{c_char, CStr};
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;
use std::time::Duration;

use nocopy_settings as words;
use nocopy_settings::Statistics;
use pdio::Strategy;

use crate::say::say;

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
    pub stats: Statistics<CString>,
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
            stats: Statistics::No,
        }
    }
}

static SETTINGS: OnceLock<Settings> = OnceLock::new();

/// What was set; the defaults before the constructor has run.
pub fn get() -> &'static Settings {
    SETTINGS.get_or_init(Settings::default)
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

/// Returns true if the value of `PDIO_COSTS` makes sense.
fn names_costs(value: &[u8]) -> bool {
    let off = || core::str::from_utf8(value).ok().and_then(words::switch) == Some(false);
    value.first() == Some(&b'/') || off()
}

impl Settings {
    /// Sets one variable. An error says what it takes; `false`: there is no such variable.
    fn set(&mut self, name: &str, value: &[u8]) -> Result<bool, &'static str> {
        let text = core::str::from_utf8(value).unwrap_or("");
        let size = || words::size(text).ok_or(words::SIZE);
        let switch = || words::switch(text).ok_or(words::SWITCH);
        let lists = || patterns(value).ok_or("absolute paths or patterns, with colons between");
        match name {
            "PDIO_PATHS" => self.paths = lists()?,
            "PDIO_DENY" => self.deny = lists()?,
            "PDIO_MIN_SIZE" => self.min_size = size()?,
            "PDIO_SEQUENTIAL" => self.sequential = size()?,
            "PDIO_MEMORY" => self.memory = usize::try_from(size()?).unwrap_or(usize::MAX),
            "PDIO_LINGER" => {
                let time = words::time(text).filter(|time| *time <= Duration::from_secs(60));
                self.linger = time.ok_or("a time such as 50ms, at most 60s")?;
            }
            "PDIO_PROMPT" => self.prompt = switch()?,
            "PDIO_STRATEGY" => {
                self.strategy = match text.to_ascii_lowercase().as_str() {
                    "auto" => Strategy::Auto,
                    "direct" => Strategy::Direct,
                    "dontcache" => Strategy::DontCache,
                    "buffered" => Strategy::Buffered,
                    _ => return Err("auto, direct, dontcache or buffered"),
                }
            }
            "PDIO_STRICT" => self.strict = switch()?,
            "PDIO_REPAIR" => self.repair = switch()?,
            // `pdio::costs_files` looks at it.
            "PDIO_COSTS" if names_costs(value) => {}
            "PDIO_COSTS" => return Err("0 or an absolute path"),
            // `pdio run` has looked at it, and leaves it to the program: that may run others.
            "PDIO_LIBRARY" => {}
            "PDIO_STATS" => {
                let to = words::statistics(value).ok_or(words::STATISTICS)?;
                // A value of the environment has no zero byte.
                self.stats = to.map(|path| CString::new(path).unwrap_or_default());
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Returns true if a stream on this file may be taken.
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
    let value = |name: &str| {
        // SAFETY: the caller's promise.
        let value = unsafe { variable(environment, name) };
        // One that makes no sense is as good as unset, as the line about it says.
        value
            .filter(|value| name != "PDIO_COSTS" || names_costs(value.as_bytes()))
            .map(OsStr::to_os_string)
    };
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
        let known = core::str::from_utf8(name).map_or(Ok(false), |n| settings.set(n, value));
        match known {
            Ok(true) => {}
            Ok(false) => say(&[b"there is no variable ", name, b"; it is ignored"]),
            Err(wanted) => {
                let shown = &value[..value.len().min(60)];
                let wanted = wanted.as_bytes();
                say(&[
                    name,
                    b"=",
                    shown,
                    b" is not ",
                    wanted,
                    b"; using the default",
                ]);
            }
        }
    }
    // Nobody has asked before the constructor.
    let _ = SETTINGS.set(settings);
}
