// SPDX-License-Identifier: MIT OR Apache-2.0
//! `PDIO_STATS`: what was taken, and what became of it.

use core::ffi::{c_int, c_ulong, CStr};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::Relaxed};
use std::fmt::{self, Write as _};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nocopy_settings::{head, Quoted, Statistics};

use crate::guard::Guard;
use crate::state::{self, Renewed};
use crate::{errno, next, say, settings, table};

/// Streams kept for the end; further ones only count.
const MOST_KEPT: usize = 1000;

/// Where statistics go: standard error as the program got it, or a file; -1 for nowhere.
static OUT: AtomicI32 = AtomicI32::new(-1);
static REPAIRED: AtomicU64 = AtomicU64::new(0);

/// A stream that was taken.
struct Ended {
    path: String,
    counts: Counts,
    why: String,
}

#[derive(Default)]
struct Record {
    kept: Vec<Ended>,
    streams: u64,
    /// In all, direct, buffered.
    bytes: [u64; 3],
    repaired: u64,
    /// True if something was printed before.
    printed: bool,
}

static RECORD: Renewed<Record> = Renewed::new();

fn open(path: &CStr) -> Result<c_int, c_int> {
    let append = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND | libc::O_CLOEXEC;
    // Nobody waits until a FIFO has a reader.
    let flags = append | libc::O_NONBLOCK | libc::O_NOCTTY;
    // SAFETY: a terminated path.
    match unsafe { next::open64(path.as_ptr(), flags, 0o644) } {
        -1 => Err(errno::get()),
        fd => {
            // One that has a reader is written to in full, as standard error is.
            // SAFETY: no memory is involved.
            unsafe { next::fcntl64(fd, libc::F_SETFL, libc::O_APPEND as c_ulong) };
            Ok(table::internalise(fd))
        }
    }
}

/// Says that a file cannot be written: once, though that is tried at the start and at the end.
fn cannot_write(path: &CStr, error: c_int) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Relaxed) {
        say::say(&[
            b"PDIO_STATS: cannot write ",
            path.to_bytes(),
            b": ",
            errno::reason(error).as_bytes(),
        ]);
    }
}

pub fn prepare() {
    let out = match &settings::get().stats {
        Statistics::No => None,
        // GNU's tools close it before they end.
        Statistics::StandardError => table::internal_copy(libc::STDERR_FILENO),
        Statistics::Text(path) | Statistics::Json(path) => open(path)
            .inspect_err(|&error| {
                // The reader of a FIFO may yet come before the end.
                if error != libc::ENXIO {
                    cannot_write(path, error);
                }
            })
            .ok(),
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
    RECORD.renew();
}

/// A misaligned call was done over.
pub fn repaired() {
    REPAIRED.fetch_add(1, Relaxed);
}

/// What was done, and to how many bytes: in all, direct, buffered.
pub type Counts = (&'static str, [u64; 3]);

/// A stream on the file `path` is taken no more.
pub fn ended(path: &CStr, counts: impl FnOnce() -> Counts, why: &str) {
    if settings::get().stats == Statistics::No {
        return;
    }
    let counts = counts();
    let mut record = RECORD.lock();
    record.streams += 1;
    for (sum, n) in record.bytes.iter_mut().zip(counts.1) {
        *sum += n;
    }
    if record.kept.len() < MOST_KEPT {
        let (path, why) = (path.to_string_lossy().into_owned(), why.to_owned());
        record.kept.push(Ended { path, counts, why });
    }
}

/// Returns true if there is anything to print but zeros. Allocates nothing, as a handler that executes a program may
/// have interrupted the C library's allocator.
pub fn any() -> bool {
    RECORD.existing().is_some_and(|record| record.streams > 0)
}

/// A name without what ends a line or does something to a terminal: names come from anybody.
fn shown(name: &str) -> String {
    name.replace(char::is_control, "?")
}

/// For people: a line for each stream, and the total.
fn text(out: &mut String, program: &Path, record: &Record) -> fmt::Result {
    for Ended { path, counts, why } in &record.kept {
        let (word, [bytes, direct, buffered]) = counts;
        let path = shown(path);
        writeln!(
            out,
            "pdio: {path}: {bytes} bytes {word} ({direct} direct, {buffered} buffered), {why}"
        )?;
    }
    let name = shown(&program.file_name().unwrap_or_default().to_string_lossy());
    let [bytes, direct, buffered] = record.bytes;
    let streams = if record.streams == 1 {
        "stream"
    } else {
        "streams"
    };
    writeln!(
        out,
        "pdio: {name} [{}]: {} {streams} taken, {bytes} bytes ({direct} direct, {buffered} buffered), {} misaligned calls repaired",
        std::process::id(),
        record.streams,
        record.repaired,
    )
}

/// One line of JSON.
fn json(out: &mut String, program: &Path, record: &Record) -> fmt::Result {
    let pid = std::process::id() as i32;
    head(out, "pdio", program.as_os_str().as_bytes(), pid)?;
    let [bytes, direct, buffered] = record.bytes;
    write!(
        out,
        ",\"streams_taken\":{},\"bytes\":{bytes},\"bytes_direct\":{direct},\"bytes_buffered\":{buffered},\"calls_repaired\":{},\"streams\":[",
        record.streams,
        record.repaired,
    )?;
    let mut comma = "";
    for Ended { path, counts, why } in &record.kept {
        let (word, [bytes, direct, buffered]) = counts;
        let (path, why) = (Quoted(path.as_bytes()), Quoted(why.as_bytes()));
        write!(
            out,
            "{comma}{{\"path\":{path},\"what\":\"{word}\",\"bytes\":{bytes},\"bytes_direct\":{direct},\"bytes_buffered\":{buffered},\"ended\":{why}}}"
        )?;
        comma = ",";
    }
    out.write_str("]}\n")
}

/// True once nothing is printed any more.
static LAST: AtomicBool = AtomicBool::new(false);

/// Prints as at the end of the process, before calls are filtered that this takes.
pub fn print_last() {
    print();
    LAST.store(true, Relaxed);
}

/// Prints what there is since it was printed last; for people nothing if nothing was taken.
pub fn print() {
    let wanted = &settings::get().stats;
    if *wanted == Statistics::No || LAST.load(Relaxed) || !state::is_owner() {
        return;
    }
    let Some(_guard) = Guard::enter() else { return };
    let mut kept = RECORD.lock();
    // JSON has a line for each process: a program may wait for it.
    let nothing = kept.streams == 0 && REPAIRED.load(Relaxed) == 0;
    if nothing && (kept.printed || !matches!(wanted, Statistics::Json(_))) {
        return;
    }
    let printed = Record {
        printed: true,
        ..Record::default()
    };
    let mut record = core::mem::replace(&mut *kept, printed);
    // What it is written to may be full until somebody reads, and other threads have streams that end.
    drop(kept);
    record.repaired = REPAIRED.swap(0, Relaxed);
    // Of this thread: the main thread may have ended.
    let program = std::fs::read_link("/proc/thread-self/exe").unwrap_or_else(|_| "?".into());
    let mut said = String::new();
    // Writing to a string does not fail.
    let _ = match wanted {
        Statistics::Json(_) => json(&mut said, &program, &record),
        _ => text(&mut said, &program, &record),
    };
    let out = match (OUT.load(Relaxed), wanted) {
        (-1, Statistics::StandardError) => Ok(libc::STDERR_FILENO),
        (-1, Statistics::Text(path) | Statistics::Json(path)) => open(path),
        (out, _) => Ok(out),
    };
    let written = out.and_then(|out| say::put(out, said.as_bytes()));
    if let (Err(error), Statistics::Text(path) | Statistics::Json(path)) = (written, wanted) {
        cannot_write(path, error);
    }
}
