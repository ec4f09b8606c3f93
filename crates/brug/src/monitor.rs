// SPDX-License-Identifier: MIT OR Apache-2.0
//! The object monitor: what reallocation does to each object, and from where.
//!
//! While it is on, all calls take the slow path, and each reallocated object has a
//! record: how often, how long, how many bytes it would have cost to copy. When the
//! object is freed, the record is added to that of its call site, which is where it
//! was first reallocated. Turn it on with `BRUG_MONITOR=1` or [`start`].
//!
//! The tables have a fixed size. An object or site that finds no room, and a call
//! that finds the tables busy for long (a signal handler, say), is counted as
//! missed and goes its way.

use core::cell::UnsafeCell;
use core::cmp::Reverse;
use core::ffi::{c_char, c_int, c_void, CStr};
use core::fmt::{self, Write};
use core::ptr;
use core::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use crate::arena::in_slot;
use nocopy_settings::Quoted;
use crate::{os, tls, words};

/// Return addresses kept of a call site.
pub const FRAMES: usize = 8;
const OBJECTS: usize = 1 << 14;
const SITES: usize = 1 << 10;
/// How far from its place an entry may be.
const PROBES: usize = 32;

/// What happened to an object, or to all objects of a site.
#[derive(Clone, Copy, Debug, Default)]
pub struct Record {
    /// Objects: 1, or those of the site.
    pub objects: u64,
    /// Reallocations.
    pub reallocs: u64,
    /// Reallocations that changed the address.
    pub moves: u64,
    /// Bytes that were not copied because the address stayed or page tables moved.
    pub bytes_not_copied: u64,
    /// Bytes copied.
    pub bytes_copied: u64,
    /// Nanoseconds in reallocations.
    pub realloc_ns: u64,
    /// Nanoseconds from the first reallocation to the end, or to now.
    pub lifetime_ns: u64,
    /// Largest size in bytes.
    pub largest: u64,
}

impl Record {
    fn add(&mut self, other: &Record) {
        self.objects += other.objects;
        self.reallocs += other.reallocs;
        self.moves += other.moves;
        self.bytes_not_copied += other.bytes_not_copied;
        self.bytes_copied += other.bytes_copied;
        self.realloc_ns += other.realloc_ns;
        self.lifetime_ns += other.lifetime_ns;
        self.largest = self.largest.max(other.largest);
    }
}

#[derive(Clone, Copy)]
struct Object {
    /// 0: free; 1: was in use, keep looking beyond.
    address: usize,
    site: u32,
    born_ns: u64,
    record: Record,
}

#[derive(Clone, Copy)]
struct Site {
    frames: [usize; FRAMES],
    record: Record,
}

struct Tables {
    objects: [Object; OBJECTS],
    sites: [Site; SITES],
}

static ON: AtomicBool = AtomicBool::new(false);
static TABLES: AtomicPtr<UnsafeCell<Tables>> = AtomicPtr::new(ptr::null_mut());
static LOCK: AtomicBool = AtomicBool::new(false);
static MISSED: AtomicU64 = AtomicU64::new(0);

/// Begins to observe. Objects are known from their next reallocation on. False if
/// there is no memory for the tables.
pub fn start() -> bool {
    if TABLES.load(Acquire).is_null() {
        // All zeros is what empty tables are.
        let p = os::map_memory(os::page_round(core::mem::size_of::<Tables>()));
        if p.is_null() {
            return false;
        }
        let p: *mut UnsafeCell<Tables> = p.cast();
        if TABLES
            .compare_exchange(ptr::null_mut(), p, Release, Relaxed)
            .is_err()
        {
            // SAFETY: mapped above, nobody has seen it.
            unsafe { os::unmap(p.cast(), os::page_round(core::mem::size_of::<Tables>())) };
        }
    }
    ON.store(true, Release);
    words::reconsider();
    true
}

#[inline]
pub(crate) fn on() -> bool {
    ON.load(Relaxed)
}

/// Runs `f` with the tables; `None` if there are none or others have them for long.
fn with<T>(f: impl FnOnce(&mut Tables) -> T) -> Option<T> {
    let tables = TABLES.load(Acquire);
    if tables.is_null() {
        return None;
    }
    let mut patience = 2000;
    while LOCK.swap(true, Acquire) {
        patience -= 1;
        if patience == 0 {
            MISSED.fetch_add(1, Relaxed);
            return None;
        }
        core::hint::spin_loop();
    }
    // SAFETY: the lock is ours; the tables are never unmapped.
    let value = f(unsafe { &mut *(*tables).get() });
    LOCK.store(false, Release);
    Some(value)
}

fn place(address: usize) -> usize {
    ((address as u64 >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 50) as usize
}

fn find(tables: &mut Tables, address: usize) -> Option<&mut Object> {
    for probe in 0..PROBES {
        let at = (place(address) + probe) % OBJECTS;
        match tables.objects[at].address {
            0 => return None,
            found if found == address => return Some(&mut tables.objects[at]),
            _ => {}
        }
    }
    None
}

fn insert(tables: &mut Tables, object: Object) -> bool {
    for probe in 0..PROBES {
        let at = (place(object.address) + probe) % OBJECTS;
        if tables.objects[at].address <= 1 {
            tables.objects[at] = object;
            return true;
        }
    }
    false
}

fn site_of(tables: &mut Tables, frames: [usize; FRAMES]) -> Option<u32> {
    let hash = frames
        .iter()
        .fold(0usize, |h, &f| (h ^ f).wrapping_mul(0x0100_0000_01b3));
    for probe in 0..PROBES {
        let at = (hash >> 20).wrapping_add(probe) % SITES;
        let site = &mut tables.sites[at];
        if site.frames == frames {
            return Some(at as u32);
        }
        if site.frames == [0; FRAMES] {
            site.frames = frames;
            return Some(at as u32);
        }
    }
    None
}

/// An object at `p` of `old` bytes has become one at `q` of `new` bytes.
pub(crate) fn note_realloc(p: *mut u8, q: *mut u8, old: usize, new: usize, ns: u64) {
    let copied = p != q && !(in_slot(p) && in_slot(q));
    let change = Record {
        objects: 0,
        reallocs: 1,
        moves: (p != q).into(),
        bytes_not_copied: if copied { 0 } else { old.min(new) as u64 },
        bytes_copied: if copied { old.min(new) as u64 } else { 0 },
        realloc_ns: ns,
        lifetime_ns: 0,
        largest: old.max(new) as u64,
    };
    let known = with(|tables| {
        let Some(object) = find(tables, p as usize) else {
            return false;
        };
        object.record.add(&change);
        if p != q {
            let mut object = *object;
            remove(tables, p as usize);
            object.address = q as usize;
            if !insert(tables, object) {
                MISSED.fetch_add(1, Relaxed);
            }
        }
        true
    });
    if known == Some(false) {
        let frames = caller();
        let born_ns = os::now_ns().saturating_sub(ns);
        with(|tables| {
            let record = Record {
                objects: 1,
                ..change
            };
            let done = site_of(tables, frames).is_some_and(|site| {
                insert(
                    tables,
                    Object {
                        address: q as usize,
                        site,
                        born_ns,
                        record,
                    },
                )
            });
            if !done {
                MISSED.fetch_add(1, Relaxed);
            }
        });
    }
}

fn remove(tables: &mut Tables, address: usize) {
    if let Some(object) = find(tables, address) {
        object.address = 1;
    }
}

/// The object at `p` is about to be freed.
pub(crate) fn note_free(p: *mut u8) {
    with(|tables| {
        let Some(&mut object) = find(tables, p as usize) else {
            return;
        };
        remove(tables, p as usize);
        let mut record = object.record;
        record.lifetime_ns = os::now_ns().saturating_sub(object.born_ns);
        tables.sites[object.site as usize].record.add(&record);
    });
}

/// The addresses that the current call returns to, from the inside out. Those of
/// the allocator itself come first; who shows them can tell by their names.
fn caller() -> [usize; FRAMES] {
    extern "C" {
        fn _Unwind_Backtrace(
            f: extern "C" fn(*mut c_void, *mut c_void) -> c_int,
            arg: *mut c_void,
        ) -> c_int;
        fn _Unwind_GetIP(context: *mut c_void) -> usize;
    }
    struct Walk {
        skip: usize,
        len: usize,
        frames: [usize; FRAMES],
    }
    extern "C" fn step(context: *mut c_void, walk: *mut c_void) -> c_int {
        // SAFETY: what is passed below, and the unwinder's own context.
        let (walk, ip) = unsafe { (&mut *walk.cast::<Walk>(), _Unwind_GetIP(context)) };
        if walk.skip > 0 {
            walk.skip -= 1;
            return 0;
        }
        walk.frames[walk.len] = ip;
        walk.len += 1;
        if walk.len == FRAMES {
            4 // _URC_NORMAL_STOP
        } else {
            0
        }
    }
    // At least two are the allocator's in any build: `observe` and `realloc_slow` are not inlined.
    let mut walk = Walk {
        skip: 2,
        len: 0,
        frames: [0; FRAMES],
    };
    // SAFETY: the calling thread's own.
    let inside = unsafe { (*tls::local()).unwinding.replace(true) };
    if !inside {
        // SAFETY: `step` does not unwind and `walk` outlives the call. Should the unwinder
        // allocate, the flag keeps that from coming here.
        unsafe {
            _Unwind_Backtrace(step, ptr::from_mut(&mut walk).cast());
            (*tls::local()).unwinding.set(false);
        }
    }
    if walk.len == 0 {
        walk.frames[0] = 1;
    }
    walk.frames
}

/// In the child of a fork. What its parent has observed is not its own.
pub(crate) fn after_fork_in_child() {
    LOCK.store(false, Relaxed);
    MISSED.store(0, Relaxed);
    let tables = TABLES.load(Acquire);
    if !tables.is_null() {
        // SAFETY: nobody else is here; all zeros is what empty tables are.
        unsafe { os::discard(tables.cast(), os::page_round(core::mem::size_of::<Tables>())) };
    }
}

/// Everything observed so far. `Display` writes a table of the call sites, and allocates
/// nothing itself.
#[derive(Clone, Copy, Debug)]
pub struct Report(());

/// What has been observed.
pub fn report() -> Report {
    Report(())
}

impl Report {
    /// Calls `f` with each call site and the sum of its objects, living ones
    /// included, the most bytes first. Not at all if there is no memory for a copy.
    pub fn sites(&self, mut f: impl FnMut(&[usize; FRAMES], &Record)) {
        const LEN: usize = core::mem::size_of::<[Site; SITES]>();
        let now = os::now_ns();
        let copy = os::map_memory(os::page_round(LEN));
        if copy.is_null() {
            return;
        }
        // SAFETY: mapped above with this length; all zeros is what empty sites are.
        let sites = unsafe { core::slice::from_raw_parts_mut(copy.cast::<Site>(), SITES) };
        with(|tables| {
            sites.copy_from_slice(&tables.sites);
            for object in tables.objects.iter().filter(|o| o.address > 1) {
                let lifetime_ns = now.saturating_sub(object.born_ns);
                sites[object.site as usize].record.add(&Record {
                    lifetime_ns,
                    ..object.record
                });
            }
        });
        let weight = |r: &Record| r.bytes_not_copied + r.bytes_copied;
        sites.sort_unstable_by_key(|site| Reverse((weight(&site.record), site.frames)));
        for site in sites.iter().filter(|site| site.record.objects > 0) {
            f(&site.frames, &site.record);
        }
        // SAFETY: mapped above, no longer referred to.
        unsafe { os::unmap(copy, os::page_round(LEN)) };
    }

    /// Writes `sites` and `missed` as of one JSON object, without braces. A call site is the addresses that the call
    /// returned to, as offsets in files; times are nanoseconds. `missed` are the reallocations that found no room in
    /// the tables.
    pub(crate) fn sites_json(&self, out: &mut dyn Write) -> fmt::Result {
        out.write_str("\"sites\":")?;
        let mut list = List::new(out);
        self.sites(|frames, record| list.add(frames, record));
        list.end()?;
        write!(out, ",\"missed\":{}", MISSED.load(Relaxed))
    }
}

/// A JSON array of call sites.
struct List<'a> {
    out: &'a mut dyn Write,
    before: &'static str,
    result: fmt::Result,
}

impl<'a> List<'a> {
    fn new(out: &'a mut dyn Write) -> List<'a> {
        List {
            out,
            before: "[",
            result: Ok(()),
        }
    }

    fn add(&mut self, frames: &[usize; FRAMES], r: &Record) {
        // What has no caller is libbrug.so's own, for this very report.
        if self.result.is_ok() && callers(frames).next().is_some() {
            self.result = self.write(frames, r);
            self.before = ",";
        }
    }

    fn write(&mut self, frames: &[usize; FRAMES], r: &Record) -> fmt::Result {
        let out = &mut *self.out;
        write!(out, "{}{{\"frames\":", self.before)?;
        let mut before = "[";
        for at in callers(frames) {
            out.write_str(before)?;
            frame_json(out, at)?;
            before = ",";
        }
        write!(
            out,
            "],\"objects\":{},\"reallocs\":{},\"moves\":{},\"bytes_not_copied\":{},\"bytes_copied\":{},\
             \"realloc_ns\":{},\"lifetime_ns\":{},\"largest\":{}}}",
            r.objects,
            r.reallocs,
            r.moves,
            r.bytes_not_copied,
            r.bytes_copied,
            r.realloc_ns,
            r.lifetime_ns,
            r.largest
        )
    }

    fn end(self) -> fmt::Result {
        self.result?;
        self.out
            .write_str(if self.before == "[" { "[]" } else { "]" })
    }
}

/// The addresses of a call site, without those in libbrug.so itself.
fn callers(frames: &[usize; FRAMES]) -> impl Iterator<Item = usize> + '_ {
    let own = cfg!(feature = "preload").then(|| os::module_of(callers as *const () as usize).dli_fbase);
    frames
        .iter()
        .copied()
        .take_while(|&at| at > 1)
        .skip_while(move |&at| own == Some(os::module_of(at).dli_fbase))
}

/// The file that a code address is in, how far from where it was loaded, and the nearest name.
fn frame_json(out: &mut dyn Write, address: usize) -> fmt::Result {
    let about = os::module_of(address);
    // The loader names a program as it was called. If the program is the loader's argument, that is right, and the
    // kernel names the loader.
    // SAFETY: no preconditions.
    let called = unsafe { libc::getauxval(libc::AT_BASE) } != 0 && os::is_program(&about);
    let text = |out: &mut dyn Write, text: *const c_char| {
        if text.is_null() {
            return out.write_str("null");
        }
        // SAFETY: the strings are the loader's, and terminated.
        write!(out, "{}", Quoted(unsafe { CStr::from_ptr(text) }.to_bytes()))
    };
    out.write_str("{\"module\":")?;
    if called {
        os::with_program(|path| write!(out, "{}", Quoted(path)))?;
    } else {
        text(out, about.dli_fname)?;
    }
    write!(out, ",\"offset\":{},\"symbol\":", address - about.dli_fbase as usize)?;
    text(out, about.dli_sname)?;
    out.write_str("}")
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:>9} {:>10} {:>9} {:>12} {:>12} {:>11} {:>12} {:>12}  called from",
            "objects",
            "reallocs",
            "moves",
            "MiB kept",
            "MiB copied",
            "ms inside",
            "mean life ms",
            "largest KiB"
        )?;
        let mut result = Ok(());
        self.sites(|frames, r| {
            if result.is_ok() {
                result = write_row(f, frames, r);
            }
        });
        result?;
        match MISSED.load(Relaxed) {
            0 => Ok(()),
            missed => writeln!(f, "{missed} reallocations found no room in the tables"),
        }
    }
}

fn write_row(f: &mut fmt::Formatter<'_>, frames: &[usize; FRAMES], r: &Record) -> fmt::Result {
    write!(
        f,
        "{:>9} {:>10} {:>9} {:>12.1} {:>12.1} {:>11.2} {:>12.2} {:>12} ",
        r.objects,
        r.reallocs,
        r.moves,
        r.bytes_not_copied as f64 / 1048576.0,
        r.bytes_copied as f64 / 1048576.0,
        r.realloc_ns as f64 / 1e6,
        r.lifetime_ns as f64 / 1e6 / r.objects as f64,
        r.largest / 1024
    )?;
    for frame in frames.iter().take_while(|&&f| f > 1) {
        write!(f, " {frame:#x}")?;
    }
    writeln!(f)
}
