// SPDX-License-Identifier: MIT OR Apache-2.0
//! `PDIO_STATS`: what was taken, and what became of it.

use core::ffi::{c_int, CStr};
use core::sync::atomic::{AtomicI32, AtomicU64, Ordering::Relaxed};
use std::fmt::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::settings::{self, Stats};
use crate::{next, say, state, table};

/// Lines kept for the end; further streams only count.
const MOST_LINES: usize = 1000;

/// Where statistics go: standard error as the program got it, or a file; -1 for nowhere.
static OUT: AtomicI32 = AtomicI32::new(-1);
static REPAIRED: AtomicU64 = AtomicU64::new(0);

struct Record {
    lines: Vec<String>,
    streams: u64,
    /// In all, direct, buffered.
    bytes: [u64; 3],
}

static RECORD: Mutex<Record> = Mutex::new(Record {
    lines: Vec::new(),
    streams: 0,
    bytes: [0; 3],
});

fn record() -> MutexGuard<'static, Record> {
    RECORD.lock().unwrap_or_else(PoisonError::into_inner)
}

fn open(path: &CStr) -> Option<c_int> {
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND | libc::O_CLOEXEC;
    // SAFETY: a terminated path.
    match unsafe { next::open64(path.as_ptr(), flags, 0o666) } {
        -1 => {
            let error = std::io::Error::last_os_error().to_string();
            say::say(&[b"PDIO_STATS: ", path.to_bytes(), b": ", error.as_bytes()]);
            None
        }
        fd => Some(table::internalise(fd)),
    }
}

pub fn prepare() {
    let out = match &settings::get().stats {
        Stats::No => None,
        // GNU's tools close it before they end.
        Stats::StandardError => table::internal_copy(libc::STDERR_FILENO),
        Stats::File(path) => open(path),
    };
    OUT.store(out.unwrap_or(-1), Relaxed);
}

/// The program needs every descriptor: where statistics go is opened again when they are printed.
/// Returns true if there is one more now.
pub fn let_go() -> bool {
    let out = OUT.load(Relaxed);
    // Beyond the limit it is in nobody's way.
    let any = out >= 0 && out < table::limit();
    if any {
        OUT.store(-1, Relaxed);
        table::forget(out);
        // SAFETY: this library's own.
        unsafe { next::close(out) };
    }
    any
}

/// In a forked child: it has done nothing yet.
pub fn forked() {
    REPAIRED.store(0, Relaxed);
    // Another thread of the parent may have held the lock; then the child reports what it has.
    if let Ok(mut record) = RECORD.try_lock() {
        record.lines.clear();
        record.streams = 0;
        record.bytes = [0; 3];
    }
}

/// A misaligned call was done over.
pub fn repaired() {
    REPAIRED.fetch_add(1, Relaxed);
}

/// What was done, and to how many bytes: in all, direct, buffered.
pub type Counts = (&'static str, [u64; 3]);

/// A stream on the file `path` is taken no more.
pub fn ended(path: &CStr, counts: impl FnOnce() -> Counts, why: &str) {
    if settings::get().stats == Stats::No {
        return;
    }
    let (word, [bytes, direct, buffered]) = counts();
    let mut record = record();
    record.streams += 1;
    for (sum, n) in record.bytes.iter_mut().zip([bytes, direct, buffered]) {
        *sum += n;
    }
    if record.lines.len() < MOST_LINES {
        let path = path.to_string_lossy();
        record.lines.push(format!(
            "pdio: {path}: {bytes} bytes {word} ({direct} direct, {buffered} buffered), {why}\n"
        ));
    }
}

/// Whether there is anything to print but zeros.
pub fn any() -> bool {
    record().streams > 0
}

fn program() -> String {
    std::fs::read_link("/proc/self/exe").map_or_else(
        |_| "?".into(),
        |path| {
            path.file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned()
        },
    )
}

/// Prints everything so far, once; on standard error nothing if nothing was taken. Called inside a [`table::Guard`].
pub fn print() {
    if settings::get().stats == Stats::No || !state::is_owner() {
        return;
    }
    let mut text = String::new();
    let mut record = record();
    // A file gets the total all the same: who reads it may wait for that line.
    let nothing = record.streams == 0 && REPAIRED.load(Relaxed) == 0;
    if nothing && settings::get().stats == Stats::StandardError {
        return;
    }
    for line in record.lines.drain(..) {
        text.push_str(&line);
    }
    let [bytes, direct, buffered] = record.bytes;
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "pdio: {} [{}]: {} streams taken, {bytes} bytes ({direct} direct, {buffered} buffered), {} misaligned calls repaired",
        program(),
        std::process::id(),
        record.streams,
        REPAIRED.load(Relaxed),
    );
    let out = match (OUT.load(Relaxed), &settings::get().stats) {
        (-1, Stats::StandardError) => libc::STDERR_FILENO,
        (-1, Stats::File(path)) => open(path).unwrap_or(-1),
        (out, _) => out,
    };
    put(out, text.as_bytes());
}

fn put(fd: c_int, mut text: &[u8]) {
    while fd >= 0 && !text.is_empty() {
        // SAFETY: the bytes are readable.
        match unsafe { next::write(fd, text.as_ptr().cast(), text.len()) } {
            n @ 1.. => text = &text[n as usize..],
            _ => return,
        }
    }
}
