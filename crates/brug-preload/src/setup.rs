// SPDX-License-Identifier: MIT OR Apache-2.0
//! What happens when the library is loaded and when the program ends.
//!
//! The allocator reads its variables at its first need, which may be long before anything here
//! runs: see [`brug::Config`] for their list. What is left for the library's constructor is to name
//! variables that do not exist, and to see to it that statistics come out at the end.
//!
//! `BRUG_SHOW_STATS=1` prints on the standard error that the program was started with, even when it
//! has closed it since (as GNU's tools do); `json:FILE` appends one line, so that the processes of a
//! pipeline do not overwrite each other. A process that ends by a signal or `_exit` says nothing.

use core::ffi::{c_char, c_int, CStr};
use core::sync::atomic::{AtomicI32, AtomicU64, Ordering::Relaxed};
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::fd::FromRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use brug::{monitor, raw, Base, Config, ShowStats};
use serde_json::{json, Value};

/// What an unrelated file descriptor is never taken for.
struct Stream {
    fd: AtomicI32,
    device: AtomicU64,
    inode: AtomicU64,
}

/// Standard error as the program got it, kept under a number out of its way.
static STDERR: Stream = Stream {
    fd: AtomicI32::new(-1),
    device: AtomicU64::new(0),
    inode: AtomicU64::new(0),
};

/// Lowest number to keep standard error under; far from what programs count on.
const FD_FLOOR: c_int = 400;

/// Writes one line on standard error, without allocating.
pub fn say(parts: &[&[u8]]) {
    let mut line = [0u8; 512];
    let mut length = 0;
    for part in [&b"brug: "[..]].iter().chain(parts) {
        let fits = part.len().min(line.len() - 1 - length);
        line[length..length + fits].copy_from_slice(&part[..fits]);
        length += fits;
    }
    line[length] = b'\n';
    // SAFETY: the buffer has that many bytes. A line that cannot be written is lost.
    unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), length + 1) };
}

/// Whether the kernel gave this process rights that its caller lacks.
fn secure() -> bool {
    // SAFETY: no preconditions.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

fn identity(fd: c_int) -> Option<(u64, u64)> {
    // SAFETY: a structure of numbers may be all zero, and is valid for a write.
    unsafe {
        let mut about: libc::stat = core::mem::zeroed();
        (libc::fstat(fd, &mut about) == 0).then_some((about.st_dev, about.st_ino))
    }
}

impl Stream {
    fn keep(&self, original: c_int) {
        // SAFETY: duplicating a descriptor touches no memory of ours.
        let fd = unsafe {
            match libc::fcntl(original, libc::F_DUPFD_CLOEXEC, FD_FLOOR) {
                -1 => libc::fcntl(original, libc::F_DUPFD_CLOEXEC, 3),
                fd => fd,
            }
        };
        if let Some((device, inode)) = identity(fd) {
            self.device.store(device, Relaxed);
            self.inode.store(inode, Relaxed);
            self.fd.store(fd, Relaxed);
        }
    }

    /// The descriptor, unless the program closed it and the number may be another file's.
    fn still_there(&self) -> Option<c_int> {
        let fd = self.fd.load(Relaxed);
        let expected = (self.device.load(Relaxed), self.inode.load(Relaxed));
        (fd >= 0 && identity(fd) == Some(expected)).then_some(fd)
    }
}

/// Names each variable that begins with `BRUG_` and means nothing.
fn name_the_unknown(mut environment: *const *const c_char) {
    // SAFETY: the environment is an array of C strings that ends with null.
    unsafe {
        while !environment.is_null() && !(*environment).is_null() {
            let entry = CStr::from_ptr(*environment).to_bytes();
            let name = entry.split(|&byte| byte == b'=').next().unwrap_or(entry);
            if name.starts_with(b"BRUG_") && !Config::VARIABLES.iter().any(|v| v.as_bytes() == name)
            {
                say(&[b"there is no variable ", name, b"; it is ignored"]);
            }
            environment = environment.add(1);
        }
    }
}

extern "C" fn start(_: c_int, _: *const *const c_char, environment: *const *const c_char) {
    let before = crate::errno();
    raw::watch_forks();
    raw::take_over_statistics();
    if !secure() {
        name_the_unknown(environment);
    }
    // The allocator looks up what it needs now, while no thread can hold the loader's lock.
    // SAFETY: an object of its own.
    unsafe {
        let object = raw::malloc(1);
        raw::usable_size(object);
        raw::free(object);
    }
    if matches!(raw::config().base, None | Some(Base::Glibc)) && !secure() {
        name_the_base();
    }
    if raw::config().show_stats == ShowStats::Text {
        STDERR.keep(libc::STDERR_FILENO);
    }
    crate::set_errno(before);
}

/// Says so when the internal names of the C library's allocator are another's, as Debian's
/// libmimalloc defines them: that one is the base then, with its own ways.
fn name_the_base() {
    extern "C" {
        fn __libc_malloc(size: usize) -> *mut core::ffi::c_void;
    }
    let theirs = about(__libc_malloc as *const () as usize);
    let libc = about(libc::getauxval as *const () as usize);
    if theirs.dli_fbase != libc.dli_fbase && !theirs.dli_fname.is_null() {
        // SAFETY: the loader's string.
        let name = unsafe { CStr::from_ptr(theirs.dli_fname) }.to_bytes();
        say(&[
            name,
            b" stands in for the C library's allocator and is the base; load it no more, or name \
              another with BRUG_BASE",
        ]);
    }
}

extern "C" fn finish() {
    match raw::config().show_stats {
        ShowStats::No => {}
        ShowStats::Text => {
            if let Some(fd) = STDERR.still_there() {
                print_stats(fd);
            }
        }
        ShowStats::Json(file) => append_stats(file),
    }
}

fn program() -> String {
    std::fs::read_link("/proc/self/exe")
        .map_or_else(|_| "?".into(), |path| path.to_string_lossy().into_owned())
}

/// The counters, for people.
pub fn stats_text() -> String {
    let config = raw::config();
    let mut text = format!(
        "brug: {} [{}], mode {}, base {}\n",
        program(),
        std::process::id(),
        brug::Brug::mode(),
        brug::Brug::base()
    );
    // Writing to a string does not fail, and one write keeps the lines together.
    let _ = write!(text, "{}", brug::stats());
    if config.monitor {
        let _ = write!(text, "{}{}", brug::tuner_report(), monitor::report());
    }
    text
}

/// The counters on a descriptor.
pub fn print_stats(fd: c_int) {
    let text = stats_text();
    // SAFETY: the descriptor is open, and not closed here.
    let mut file = core::mem::ManuallyDrop::new(unsafe { File::from_raw_fd(fd) });
    let _ = file.write_all(text.as_bytes());
}

/// The tuner's table: nanoseconds and samples of each way to grow, by size.
fn sizes() -> Value {
    let rows = brug::tuner_report();
    let arm = |(ns, samples): (u64, u64)| json!({ "ns": ns, "samples": samples });
    rows.rows()
        .iter()
        .map(|row| {
            let [base, move_in, slot] = row.arms.map(arm);
            let decision = row.slot.map(|slot| if slot { "slot" } else { "base" });
            json!({
                "size": row.size, "base": base, "move": move_in, "slot": slot, "decision": decision,
                "birth": row.birth,
            })
        })
        .collect()
}

/// The allocators that were compared for small objects.
fn bases() -> Value {
    let report = brug::tuner_report();
    let compared = |base: brug::Base| (base, report.compared(base));
    let known = brug::Base::ALL
        .into_iter()
        .map(compared)
        .filter(|c| c.1 .1 > 0);
    known
        .map(|(base, (ns, samples))| json!({ "name": base.name(), "ns": ns, "samples": samples }))
        .collect()
}

/// What the monitor knows of each call site, with its return addresses as offsets in files.
fn sites() -> Value {
    let own = about(start as *const () as usize).dli_fbase;
    let mut found = Vec::new();
    monitor::report().sites(|frames, record| {
        let frames: Vec<Value> = frames
            .iter()
            .take_while(|&&at| at > 1)
            .skip_while(|&&at| about(at).dli_fbase == own)
            .map(|&at| place(at))
            .collect();
        // What is left without a caller is this library's own, for this very report.
        if !frames.is_empty() {
            found.push(json!({
                "frames": frames,
                "objects": record.objects,
                "reallocs": record.reallocs,
                "moves": record.moves,
                "bytes_not_copied": record.bytes_not_copied,
                "bytes_copied": record.bytes_copied,
                "realloc_ns": record.realloc_ns,
                "largest": record.largest,
            }));
        }
    });
    Value::Array(found)
}

/// What the loader knows about a code address; nulls if that is nothing.
fn about(address: usize) -> libc::Dl_info {
    // SAFETY: a structure of pointers may be all zero; dladdr takes any address.
    unsafe {
        let mut about = core::mem::zeroed();
        if libc::dladdr(address as *const _, &mut about) == 0 {
            about = core::mem::zeroed();
        }
        about
    }
}

/// The file that a code address is in, how far from where it was loaded, and the nearest name.
fn place(address: usize) -> Value {
    let about = about(address);
    // SAFETY: the strings are the loader's, and null or terminated.
    let text = |text: *const c_char| unsafe {
        (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
    };
    json!({
        "module": text(about.dli_fname),
        "offset": address - about.dli_fbase as usize,
        "symbol": text(about.dli_sname),
    })
}

/// One line of JSON at the end of a file.
fn append_stats(file: &CStr) {
    let mut object = serde_json::Map::new();
    object.insert("program".into(), program().into());
    object.insert("pid".into(), std::process::id().into());
    object.insert("mode".into(), brug::Brug::mode().to_string().into());
    object.insert("base".into(), brug::Brug::base().to_string().into());
    for (name, value) in brug::stats().rows() {
        object.insert(name.into(), value.into());
    }
    if raw::config().monitor {
        object.insert("bases".into(), bases());
        object.insert("sizes".into(), sizes());
        object.insert("sites".into(), sites());
    }
    let line = format!("{}\n", Value::Object(object));
    let path = Path::new(std::ffi::OsStr::from_bytes(file.to_bytes()));
    let written = OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .and_then(|mut file| file.write_all(line.as_bytes()));
    if let Err(error) = written {
        say(&[
            b"BRUG_SHOW_STATS: ",
            file.to_bytes(),
            b": ",
            error.to_string().as_bytes(),
        ]);
    }
}

/// Called by the loader with the program's arguments and environment, before `main`.
#[used]
#[link_section = ".init_array"]
static START: extern "C" fn(c_int, *const *const c_char, *const *const c_char) = start;

/// Called by the loader when the program ends, after its own handlers.
#[used]
#[link_section = ".fini_array"]
static FINISH: extern "C" fn() = finish;
