// SPDX-License-Identifier: MIT OR Apache-2.0
//! `brug tune`: one run under observation, and what it says about the program.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::ffi::OsString;
use std::fmt::Write;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use addr2line::Loader;
use nocopy_launch::{reason, shown};
use serde::{Deserialize, Serialize};

use crate::launch::{self, Refusal, CANNOT_RUN, OURS};
use crate::wait::{Ended, Held};

/// A call site whose objects were copied less than this has nothing to gain.
const WORTH_BYTES: u64 = 64 << 10;
/// A program that copies less than this takes some milliseconds for it.
const MAY_GAIN_BYTES: u64 = 16 << 20;

/// Measurements of one way to grow an object.
#[derive(Deserialize, Serialize)]
struct Arm {
    /// Mean nanoseconds, with the first touch of new pages.
    ns: u64,
    samples: u64,
}

/// What was measured for objects of a size.
#[derive(Deserialize, Serialize)]
struct SizeClass {
    size: u64,
    base: Arm,
    #[serde(rename = "move")]
    move_in: Arm,
    slot: Arm,
    decision: Option<String>,
    /// True if new objects of this size are put into slots.
    birth: bool,
}

/// What an allocation and a free of a small object took in an allocator.
#[derive(Deserialize, Serialize)]
struct Compared {
    name: String,
    #[serde(flatten)]
    cost: Arm,
}

/// A code address.
#[derive(Deserialize, Serialize)]
struct Frame {
    module: Option<PathBuf>,
    offset: u64,
    symbol: Option<String>,
    /// Function, file and line, where the module has them.
    source: Option<String>,
}

/// What was done to the objects that were first reallocated from one place.
#[derive(Deserialize, Serialize)]
struct Site {
    frames: Vec<Frame>,
    objects: u64,
    reallocs: u64,
    moves: u64,
    bytes_not_copied: u64,
    bytes_copied: u64,
    realloc_ns: u64,
    largest: u64,
}

/// What one process left.
#[derive(Deserialize, Serialize)]
struct Process {
    program: String,
    pid: u32,
    grows_in_place: u64,
    moves_in: u64,
    bytes_not_copied: u64,
    bytes_copied: u64,
    /// The allocator of small objects, and why it has them.
    base: String,
    base_why: String,
    /// What the C library's challenger takes less, in percent of the C library's time.
    base_gain_percent: Option<i32>,
    /// Those that were compared; empty if the program has too few small objects.
    bases: Vec<Compared>,
    /// What a program that has the crate without its monitor does not tell.
    #[serde(default)]
    sizes: Vec<SizeClass>,
    #[serde(default)]
    sites: Vec<Site>,
    /// Reallocations that are in none of them, for want of room.
    #[serde(default)]
    missed: u64,
    /// True if anything of it is worth a look, whether its call sites are asked for or not.
    #[serde(skip)]
    may_gain: bool,
}

/// A directory that is removed when the run is over, with the files in it that the library writes.
pub struct Scratch(PathBuf);

impl Scratch {
    /// One of our own: in a directory that all can write to, somebody may have put a link where we would
    /// write.
    pub fn new() -> Result<Scratch, Refusal> {
        let named = std::env::var_os("TMPDIR").filter(|named| !named.is_empty());
        let parent = absolute(&named.map_or_else(|| "/tmp".into(), PathBuf::from))?;
        // mkdtemp() puts letters in the place of each X.
        let mut path = parent.join("brug-tune-XXXXXX").into_os_string().into_vec();
        path.push(0);
        // SAFETY: a C string that may be written to.
        let made = !unsafe { libc::mkdtemp(path.as_mut_ptr().cast()) }.is_null();
        let error = io::Error::last_os_error();
        path.pop();
        if made {
            return Ok(Scratch(OsString::from_vec(path).into()));
        }
        let (parent, why) = (parent.display(), reason(&error));
        let line = format!("cannot make a directory in {parent}: {why}; set TMPDIR");
        Err(Refusal::new(OURS, line))
    }

    fn counters(&self) -> PathBuf {
        self.0.join("counters")
    }

    /// Where a copy of a profile may be.
    pub fn profile(&self) -> PathBuf {
        self.0.join("profile")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // With what a program that was killed has left beside a profile.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn run(
    held: &Held,
    words: &[OsString],
    profile: &Path,
    counters: &Path,
    json: bool,
) -> Result<(ExitStatus, libc::rusage), Refusal> {
    let mut setting = OsString::from("json:");
    setting.push(counters);
    let mut command = launch::command(&launch::library()?, words)?;
    command
        .env("BRUG_ALLOC", "auto")
        .env("BRUG_MONITOR", "1")
        .env("BRUG_PROFILE", profile)
        .env("BRUG_STATS", setting);
    if json {
        command.stdout(io::stderr());
    }
    match held.run(&mut command) {
        Ok((Ended::Program(status, _), usage)) => Ok((status, usage)),
        Ok((Ended::Signal(signal), _)) => Err(Refusal::signal(signal)),
        Err(error) => {
            let name = words[0].to_string_lossy();
            Err(Refusal::new(
                CANNOT_RUN,
                format!("{name}: {}", reason(&error)),
            ))
        }
    }
}

/// Returns true if the library takes this for a profile, but for values that only it can judge. What it does not take it
/// passes over, and then it would decide by none.
fn is_profile(text: &[u8]) -> bool {
    let rows = nocopy_settings::profile(str::from_utf8(text).unwrap_or_default());
    rows.is_some_and(|mut rows| rows.all(|row| row.is_some()))
}

/// Full path, since the program may change its directory, and where a link leads, since the library follows none.
fn absolute(path: &Path) -> Result<PathBuf, Refusal> {
    fs::canonicalize(path)
        .or_else(|_| std::path::absolute(path))
        .map_err(|error| Refusal::new(OURS, format!("{}: {}", path.display(), reason(&error))))
}

/// What the file at this path has, as far as a profile can be long.
fn content(profile: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    // A profile is replaced by a rename, which a device would not survive; a FIFO would be waited for.
    if !fs::metadata(profile)?.is_file() {
        return Err(io::Error::other(
            "neither a directory nor a device can be one",
        ));
    }
    let file = File::open(profile)?;
    let most = nocopy_settings::PROFILE_MOST as u64;
    file.take(most).read_to_end(&mut text)?;
    Ok(text)
}

/// The full path of a profile that is there.
pub fn existing(profile: &Path) -> Result<PathBuf, Refusal> {
    let profile = absolute(profile)?;
    let refusal = |why: &str| Refusal::new(OURS, format!("{} {why}", profile.display()));
    match content(&profile) {
        Ok(text) if is_profile(&text) => Ok(profile),
        Ok(_) => Err(refusal(
            "is not a profile of this version; brug tune writes one",
        )),
        Err(error) => Err(refusal(&format!(
            "cannot be read ({}); brug tune writes one",
            reason(&error)
        ))),
    }
}

/// The full path of a profile that may be written: new, or in the place of an older one.
fn replaceable(profile: &Path) -> Result<PathBuf, Refusal> {
    let profile = absolute(profile)?;
    let refusal = |why: &str| Refusal::new(OURS, format!("{} {why}", profile.display()));
    match content(&profile) {
        Ok(text) if text.is_empty() || is_profile(&text) => {}
        Ok(_) => {
            return Err(refusal(
                "is there and not a profile of this version; it is left alone",
            ))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(refusal(&format!("cannot be read ({})", reason(&error)))),
    }
    // The library writes beside it and renames.
    let beside = profile.with_file_name(format!(".brug-profile-{}", std::process::id()));
    match fs::File::create_new(&beside).and_then(|_| fs::remove_file(&beside)) {
        // Somebody could write there, with the same number in another container or before being killed.
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(refusal(&format!("cannot be written ({})", reason(&error))))
        }
        _ => Ok(profile),
    }
}

/// The statistics that processes have left, a line each, and how many lines cannot be read.
fn read_processes(text: &str) -> (Vec<Process>, usize) {
    let (mut processes, mut lost) = (Vec::new(), 0);
    for line in text.lines() {
        // One may be cut short, by a full disk.
        match serde_json::from_str::<Process>(line) {
            Ok(process) => processes.push(process),
            Err(error) => {
                lost += 1;
                crate::say(format_args!(
                    "a process left statistics that cannot be read, so there is no verdict: {error}"
                ));
            }
        }
    }
    (processes, lost)
}

/// Finds what a process may gain, its `top` call sites first, and names these.
fn weigh(process: &mut Process, top: usize, sources: &mut Sources) {
    process
        .sites
        .sort_by_key(|site| Reverse(site.bytes_not_copied + site.bytes_copied));
    process
        .sites
        .retain(|site| site.bytes_not_copied + site.bytes_copied >= WORTH_BYTES);
    process.may_gain =
        !process.sites.is_empty() || !process.sizes.is_empty() || !process.bases.is_empty();
    process.sites.truncate(top);
    for frame in process.sites.iter_mut().flat_map(|site| &mut site.frames) {
        frame.source = sources.of(frame);
    }
}

/// What there is to gain; with what to do with the profile if there is one, and a verdict if `complete`.
fn report(processes: &[Process], words: &[OsString], profile: &Path, complete: bool) -> String {
    let (gain, rest): (Vec<_>, Vec<_>) = processes.iter().partition(|process| process.may_gain);
    let mut out = String::new();
    for process in gain {
        describe(&mut out, process);
    }
    if !rest.is_empty() {
        let _ = writeln!(
            out,
            "{} of {} processes reallocate nothing that could gain",
            rest.len(),
            processes.len()
        );
    }
    if !profile.is_file() {
        return out;
    }
    let file = launch::for_shell(&[profile]);
    let _ = writeln!(
        out,
        "profile: {file}; use it with brug run --profile {file}, or BRUG_PROFILE={file}"
    );
    if complete {
        let _ = writeln!(out, "verdict: {}", verdict(processes));
        let _ = writeln!(
            out,
            "to measure it: brug compare --profile {file} -- {}",
            launch::for_shell(words)
        );
    }
    out
}

/// Run `words`, write a profile, and print what there is to gain.
pub fn tune(words: &[OsString], profile: &Path, top: usize, json: bool) -> Result<(), Refusal> {
    let profile = replaceable(profile)?;
    let held = Held::new();
    let scratch = Scratch::new()?;
    let (status, mut usage) = run(&held, words, &profile, &scratch.counters(), json)?;
    let left = held.left(&mut usage);
    if let Some(line) = &left {
        crate::say(format_args!("{line}"));
    }
    let text = fs::read(scratch.counters()).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    if text.is_empty() {
        // Whoever could not write has said so.
        let line = format!(
            "the program ended with {status} and left nothing: no process ended by exit or by returning from \
             main, or none could write"
        );
        return Err(Refusal::new(OURS, line));
    }
    drop(scratch);
    drop(held);
    let (mut processes, lost) = read_processes(&text);
    if processes.is_empty() {
        return Err(Refusal::new(
            OURS,
            "no process left statistics that can be read",
        ));
    }
    let mut sources = Sources::default();
    for process in &mut processes {
        weigh(process, top, &mut sources);
    }
    if json {
        crate::print_json(&processes)?;
    } else {
        let complete = left.is_none() && lost == 0;
        crate::print(&report(&processes, words, &profile, complete))?;
    }
    if !profile.is_file() {
        let line = format!("no process wrote {}", profile.display());
        return Err(Refusal::new(OURS, line));
    }
    if !status.success() {
        crate::say(format_args!("the program ended with {status}"));
    }
    Ok(())
}

/// What one run under observation says to somebody who wants to know if brug helps.
fn verdict(processes: &[Process]) -> String {
    let spared: u64 = processes.iter().map(|p| p.bytes_not_copied).sum();
    let other = processes
        .iter()
        .filter(|p| p.base != "glibc")
        .filter_map(|p| Some((p.base_gain_percent?, p.base.as_str())))
        .max();
    let mut reasons = Vec::new();
    if spared >= MAY_GAIN_BYTES {
        let mib = spared as f64 / MIB;
        reasons.push(format!("{mib:.0} MiB of growing objects were not copied"));
    }
    if let Some((percent, base)) = other {
        reasons.push(format!(
            "small objects take {percent} % less time in {base}"
        ));
    }
    if reasons.is_empty() {
        "brug has little to gain here: hardly anything grows, and no other allocator is much faster \
         with the small objects"
            .to_owned()
    } else {
        format!(
            "brug may help, as {}; how much, one run does not say",
            reasons.join(", and ")
        )
    }
}

/// Debug information, read once for each module.
#[derive(Default)]
struct Sources(HashMap<PathBuf, Option<Loader>>);

impl Sources {
    /// Where the call at this return address is in the source.
    fn of(&mut self, frame: &Frame) -> Option<String> {
        let module = frame.module.as_ref()?;
        let loader = self
            .0
            .entry(module.clone())
            .or_insert_with(|| Loader::new(module).ok())
            .as_ref()?;
        // A program that is not position-independent has its addresses in the file.
        let address = frame.offset + loader.relative_address_base() - 1;
        let place = loader.find_location(address).ok().flatten();
        let place = place.and_then(|at| Some(format!("{}:{}", at.file?, at.line?)));
        let symbol = loader.find_symbol(address).map(str::to_owned);
        match (symbol.or_else(|| frame.symbol.clone()), place) {
            (Some(symbol), Some(place)) => Some(format!("{symbol} {place}")),
            (symbol, place) => symbol.or(place),
        }
    }
}

const MIB: f64 = 1024.0 * 1024.0;

fn describe(out: &mut String, process: &Process) {
    let _ = writeln!(out, "{} [{}]", shown(&process.program), process.pid);
    let _ = writeln!(
        out,
        "  {} growths in place, {} moves; {:.1} MiB not copied, {:.1} MiB copied",
        process.grows_in_place,
        process.moves_in,
        process.bytes_not_copied as f64 / MIB,
        process.bytes_copied as f64 / MIB
    );
    if !process.bases.is_empty() {
        let bases: Vec<String> = process
            .bases
            .iter()
            .map(|b| format!("{} {} ns (of {})", b.name, b.cost.ns, b.cost.samples))
            .collect();
        let _ = writeln!(
            out,
            "  small objects: {}, {}: {}",
            process.base,
            process.base_why,
            bases.join(", ")
        );
    }
    if !process.sizes.is_empty() {
        let _ = writeln!(
            out,
            "  {:>10} {:>20} {:>20} {:>20}  growing objects",
            "size", "ns in base", "ns to move", "ns in slot"
        );
    }
    for class in &process.sizes {
        let arm = |arm: &Arm| match arm.samples {
            0 => "-".to_owned(),
            samples => format!("{} (of {samples})", arm.ns),
        };
        let _ = writeln!(
            out,
            "  {:>10} {:>20} {:>20} {:>20}  {}",
            class.size,
            arm(&class.base),
            arm(&class.move_in),
            arm(&class.slot),
            // As in the library's statistics.
            match (class.birth, class.decision.as_deref()) {
                (true, _) => "move, new ones begin there",
                (_, Some("slot")) => "move",
                (_, Some(_)) => "stay",
                (_, None) => "move (untried)",
            }
        );
    }
    for site in &process.sites {
        let _ = writeln!(
            out,
            "  {} objects up to {} KiB: {} reallocations, {} moves, {:.1} MiB not copied, \
             {:.1} MiB copied, {:.2} ms",
            site.objects,
            site.largest.div_ceil(1024),
            site.reallocs,
            site.moves,
            site.bytes_not_copied as f64 / MIB,
            site.bytes_copied as f64 / MIB,
            site.realloc_ns as f64 / 1e6
        );
        for frame in &site.frames {
            let module = frame.module.as_ref().map_or("?".into(), shown);
            let source = shown(frame.source.as_deref().unwrap_or_default());
            let _ = writeln!(out, "      {module}+{:#x} {source}", frame.offset);
        }
    }
    if process.missed > 0 {
        let _ = writeln!(
            out,
            "  {} reallocations found no room in the tables",
            process.missed
        );
    }
}
