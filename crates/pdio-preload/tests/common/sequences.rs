// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sequences of operations that `programs/sequences.c` carries out: made from a seed, run with and
//! without the library, compared, and made shorter while the difference stays.

use std::collections::BTreeMap;
use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::common::{bare, compiled, scratch};
use crate::filesystems::{filesystems, Filesystem};

/// On no machine does a sequence take nearly as long: one that does, hangs.
const LIMIT: Duration = Duration::from_secs(300);
/// How long a failing sequence is made shorter.
const SHRINK: Duration = Duration::from_secs(100);

/// What `sequences.c` is given: settings, then a line for each step.
#[derive(Clone, PartialEq)]
pub struct Sequence {
    /// `on FILESYSTEM`, `set VARIABLE VALUE`, `tell`, `bare second`, `late PROCESS`.
    pub settings: Vec<String>,
    /// `ACTOR OPERATION ARGUMENT…`
    pub steps: Vec<String>,
}

impl Sequence {
    pub fn parse(text: &str) -> Sequence {
        let lines = text.lines().map(str::trim);
        let (steps, settings) = lines
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .map(str::to_owned)
            .partition(|line| line.starts_with(|c: char| c.is_ascii_digit()));
        Sequence { settings, steps }
    }

    fn setting<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.settings
            .iter()
            .filter_map(move |line| line.strip_prefix(name)?.strip_prefix(' '))
    }

    fn without(&self, range: std::ops::Range<usize>) -> Sequence {
        let mut shorter = self.clone();
        shorter.steps.drain(range);
        shorter
    }
}

impl fmt::Display for Sequence {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in self.settings.iter().chain(&self.steps) {
            writeln!(out, "{line}")?;
        }
        Ok(())
    }
}

/// A file as a run left it.
#[derive(PartialEq)]
enum Left {
    Bytes(Vec<u8>, u32),
    Link(PathBuf),
}

/// Everything about a run that is compared.
pub struct Seen {
    lines: Vec<String>,
    status: Option<ExitStatus>,
    said: String,
    files: BTreeMap<String, Left>,
    times: BTreeMap<String, (i64, i64)>,
    /// How many streams the library took.
    pub streams: u64,
}

impl Seen {
    /// Returns true if the filesystem was full.
    fn is_full(&self) -> bool {
        self.lines.iter().any(|line| line.contains("ENOSPC"))
    }
}

/// Where two runs differ.
pub struct Difference {
    /// The step, counted from zero; none if it shows only at the end.
    step: Option<usize>,
    expected: String,
    got: String,
}

/// Where sequences are run, with which library.
pub struct Bench {
    program: PathBuf,
    library: PathBuf,
    places: Vec<Filesystem>,
    scratch: tempfile::TempDir,
    limit: Duration,
}

impl Bench {
    pub fn new(library: PathBuf) -> Bench {
        Bench {
            program: compiled("sequences.c", "sequences", &[]),
            library,
            places: filesystems(),
            scratch: scratch(),
            limit: LIMIT,
        }
    }

    /// The same, where a sequence has only so long.
    pub fn with_limit(self, limit: Duration) -> Bench {
        Bench { limit, ..self }
    }

    /// The filesystem that all sequences are to run on or that this one asks for; the disk where there
    /// is none like that.
    fn place(&self, sequence: &Sequence) -> &Path {
        let all = std::env::var("PDIO_FUZZ_ON").ok();
        let own = || sequence.setting("on").next();
        let wanted = all.as_deref().or_else(own).unwrap_or("disk");
        let place = self.places.iter().find(|place| place.name == wanted);
        &place.unwrap_or(&self.places[0]).directory
    }

    fn run(&self, sequence: &Sequence, side: &str, library: Option<&Path>) -> Seen {
        let directory = self.place(sequence).join(side);
        let own = |name: &str| self.scratch.path().join(format!("{side}-{name}"));
        let (script, results, statistics) = (own("script"), own("results"), own("statistics"));
        for old in [&results, &statistics] {
            let _ = std::fs::remove_file(old);
        }
        std::fs::create_dir(&directory).expect("a directory");
        std::fs::write(&script, sequence.to_string()).expect("the script");
        let mut command = bare(&self.program);
        command
            .arg(&script)
            .arg(&results)
            .current_dir(&directory)
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(own("said")).expect("a file"))
            .process_group(0);
        if let Some(library) = library {
            command
                .env("LD_PRELOAD", library)
                .env("PDIO_STATS", &statistics)
                .envs(sequence.setting("set").filter_map(|s| s.split_once(' ')));
        }
        let status = ended(command.spawn().expect("starts"), self.limit);
        let text = |path: &Path| {
            String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
        };
        let (files, times) = left(&directory);
        std::fs::remove_dir_all(&directory).expect("removed");
        Seen {
            lines: text(&results).lines().map(str::to_owned).collect(),
            status,
            said: text(&own("said")),
            files,
            times,
            streams: taken(&text(&statistics)),
        }
    }

    /// Runs two sequences without the library.
    pub fn bare_both(&self, one: &Sequence, other: &Sequence) -> Option<Difference> {
        let bare = self.run(one, "bare", None);
        difference(&bare, &self.run(other, "again", None)).filter(|_| !bare.is_full())
    }

    /// Runs a sequence twice without the library.
    pub fn bare_twice(&self, sequence: &Sequence) -> Option<Difference> {
        self.bare_both(sequence, sequence)
    }

    /// What a run without the library says.
    pub fn bare_lines(&self, sequence: &Sequence) -> Vec<String> {
        self.run(sequence, "bare", None).lines
    }

    /// Runs a sequence without and with the library; how many streams that took.
    pub fn compare(&self, sequence: &Sequence) -> (Option<Difference>, u64) {
        let (expected, got) = std::thread::scope(|scope| {
            let bare = scope.spawn(|| self.run(sequence, "bare", None));
            let got = self.run(sequence, "library", Some(&self.library));
            (bare.join().expect("the run without the library"), got)
        });
        if !expected.is_full() && !got.is_full() {
            return (difference(&expected, &got), got.streams);
        }
        // The two shared what room there is: once more, one after the other.
        let expected = self.run(sequence, "bare", None);
        let got = self.run(sequence, "library", Some(&self.library));
        // How much fits is not the same in any two runs.
        let found = difference(&expected, &got).filter(|_| !expected.is_full());
        (found, got.streams)
    }

    /// The difference of the kind `kind`, if the sequence shows it.
    fn shows(&self, sequence: &Sequence, kind: &str) -> Option<Difference> {
        // What depends on time does not show each time.
        (0..2).find_map(|_| {
            let (found, _) = self.compare(sequence);
            found.filter(|found| found.kind(sequence) == kind)
        })
    }

    /// The shortest sequence that could be found with a difference in the same operation.
    pub fn shrink(&self, sequence: &Sequence, found: Difference) -> (Sequence, Difference) {
        let end = Instant::now() + SHRINK;
        let kind = found.kind(sequence);
        let mut best = (sequence.clone(), found);
        let attempt = |candidate: Sequence, best: &mut (Sequence, Difference)| {
            if Instant::now() > end || candidate == best.0 {
                return false;
            }
            match self.shows(&candidate, &kind) {
                Some(found) => *best = (candidate, found),
                None => return false,
            }
            true
        };
        if let Some(step) = best.1.step {
            let mut shorter = best.0.clone();
            shorter.steps.truncate(step + 1);
            attempt(shorter, &mut best);
        }
        let mut chunk = best.0.steps.len().div_ceil(2);
        while chunk > 0 {
            let mut at = best.0.steps.len();
            let mut any = false;
            while at > 0 {
                let from = at.saturating_sub(chunk);
                any |= attempt(best.0.without(from..at), &mut best);
                at = from;
            }
            if chunk > 1 || !any {
                chunk /= 2;
            }
        }
        for i in (0..best.0.settings.len()).rev() {
            let mut simpler = best.0.clone();
            // These two are meant to make a difference.
            let line = simpler.settings.remove(i);
            if !line.starts_with("tell") && !line.contains("PDIO_REPAIR") {
                attempt(simpler, &mut best);
            }
        }
        best
    }
}

impl Difference {
    /// The operation that shows it.
    fn kind(&self, sequence: &Sequence) -> String {
        let step = self.step.and_then(|step| sequence.steps.get(step));
        step.and_then(|step| {
            step.split(' ')
                .find(|word| word.len() > 1 && *word != "thread")
        })
        .unwrap_or("end")
        .to_owned()
    }

    /// One line.
    pub fn tell(&self, sequence: &Sequence) -> String {
        let at = match self.step {
            Some(step) => format!(
                "step {step} of {} ({})",
                sequence.steps.len(),
                sequence.steps.get(step).map_or("after the last", |s| s)
            ),
            None => "at the end".to_owned(),
        };
        format!(
            "{at}: without the library {:?}, with it {:?}",
            self.expected, self.got
        )
    }
}

/// Waits for a process; ends it and all its children if that takes too long.
fn ended(mut child: std::process::Child, limit: Duration) -> Option<ExitStatus> {
    let end = Instant::now() + limit;
    loop {
        match child.try_wait().expect("a child") {
            Some(status) => return Some(status),
            None if Instant::now() > end => {
                // SAFETY: no memory is involved; the group is the child's own.
                unsafe { libc::kill(-(child.id() as i32), libc::SIGKILL) };
                let _ = child.wait();
                return None;
            }
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// What is in a directory, and when it was last written.
fn left(directory: &Path) -> (BTreeMap<String, Left>, BTreeMap<String, (i64, i64)>) {
    let (mut files, mut times) = (BTreeMap::new(), BTreeMap::new());
    for entry in std::fs::read_dir(directory).expect("a directory").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        // What was removed while it was open is there until the server hears of the last close.
        if name.starts_with(".nfs") || name.starts_with(".fuse_hidden") {
            continue;
        }
        let about = entry.metadata().expect("there");
        let what = match about.is_symlink() {
            true => Left::Link(std::fs::read_link(entry.path()).expect("a link")),
            false => Left::Bytes(std::fs::read(entry.path()).expect("a file"), about.mode()),
        };
        if !about.is_symlink() {
            times.insert(name.clone(), (about.mtime(), about.mtime_nsec()));
        }
        files.insert(name, what);
    }
    (files, times)
}

/// The sum of the streams in a file of statistics.
fn taken(statistics: &str) -> u64 {
    let total = |line: &str| {
        let (before, _) = line.split_once(" stream")?;
        before.rsplit(' ').next()?.parse::<u64>().ok()
    };
    statistics.lines().filter_map(total).sum()
}

/// Processes that do not hear of each other have files of their own, up to this and behind it.
const LAST_OF_FIRST: &str = "cz";

/// The first file that is older than it should be, beside which other.
fn order<'a>(
    expected: &BTreeMap<String, (i64, i64)>,
    got: &'a BTreeMap<String, (i64, i64)>,
) -> Option<(&'a str, &'a str)> {
    for (first, time) in got {
        for (second, other) in got {
            // Clocks tick: a file that is older without the library was written earlier; the reverse need not be.
            let older = expected.get(first).zip(expected.get(second));
            let of_one = LAST_OF_FIRST.cmp(first) == LAST_OF_FIRST.cmp(second);
            if of_one && time > other && older.is_some_and(|(a, b)| a < b) {
                return Some((first, second));
            }
        }
    }
    None
}

/// The times in a line of results.
fn times_in(line: &str) -> BTreeMap<String, (i64, i64)> {
    let words: Vec<_> = line.split_whitespace().skip(4).collect();
    let pair = |pair: &[&str]| {
        let (seconds, fraction) = pair.get(1)?.split_once('.')?;
        Some((
            pair[0].to_owned(),
            (seconds.parse().ok()?, fraction.parse().ok()?),
        ))
    };
    words.chunks(2).filter_map(pair).collect()
}

fn difference(bare: &Seen, other: &Seen) -> Option<Difference> {
    let longest = bare.lines.len().max(other.lines.len());
    for i in 0..longest {
        let line = |seen: &Seen| match (seen.lines.get(i), seen.status) {
            (Some(line), _) => line.clone(),
            (None, Some(status)) => format!("nothing more: {status} {}", seen.said.trim()),
            (None, None) => "nothing more: it hangs".to_owned(),
        };
        let (expected, got) = (line(bare), line(other));
        let step = |text: &str| text.split(' ').next()?.parse().ok();
        let step = step(&expected).or(step(&got));
        let timed = |line: &str| line.split(' ').nth(1) == Some("times");
        if timed(&expected) && timed(&got) {
            if let Some((older, newer)) = order(&times_in(&expected), &times_in(&got)) {
                return Some(Difference {
                    step,
                    expected: format!("{older} is older than {newer}"),
                    got: "it is newer".to_owned(),
                });
            }
        } else if expected != got {
            return Some(Difference {
                step,
                expected,
                got,
            });
        }
    }
    // Where both stand still, nothing was compared behind it.
    if bare.status.is_none() && other.status.is_none() {
        let last = bare.lines.last().and_then(|line| line.split(' ').next());
        let last = last.and_then(|step| step.parse::<usize>().ok());
        return Some(Difference {
            step: Some(last.map_or(0, |step| step + 1)),
            expected: "it hangs".to_owned(),
            got: "it hangs".to_owned(),
        });
    }
    let at_end = |expected, got| {
        let step = None;
        Some(Difference {
            step,
            expected,
            got,
        })
    };
    if bare.status != other.status {
        return at_end(format!("{:?}", bare.status), format!("{:?}", other.status));
    }
    if bare.said != other.said {
        return at_end(bare.said.clone(), other.said.clone());
    }
    for name in bare.files.keys().chain(other.files.keys()) {
        match (bare.files.get(name), other.files.get(name)) {
            (Some(a), Some(b)) if a == b => {}
            (Some(Left::Bytes(a, mode)), Some(Left::Bytes(b, other))) => {
                let at = a.iter().zip(b).position(|(a, b)| a != b);
                let at = at.unwrap_or(a.len().min(b.len()));
                return at_end(
                    format!("{name}: {} bytes, mode {mode:o}", a.len()),
                    format!("{} bytes, mode {other:o}, others from {at} on", b.len()),
                );
            }
            (a, b) => {
                let there =
                    |left: bool| format!("{name} {}", if left { "is there" } else { "is not" });
                return at_end(there(a.is_some()), there(b.is_some()));
            }
        }
    }
    // Asked for by the same step.
    let timed = |line: &String| line.split(' ').nth(1) == Some("times");
    bare.lines.iter().find(|line| timed(line))?;
    let (older, newer) = order(&bare.times, &other.times)?;
    at_end(
        format!("{older} is older than {newer}"),
        "it is newer".to_owned(),
    )
}

// ------------------------------------------------------------------------------------ from a seed

/// Filesystems; most of them can be mounted only by root.
const PLACES: [&str; 8] = [
    "ext4, 4 KiB blocks",
    "ext4, 4 KiB blocks",
    "ext4, 4 KiB blocks",
    "ext4, 1 KiB blocks",
    "XFS",
    "btrfs",
    "overlayfs",
    "disk",
];
const SLOTS: usize = 10;
const K: usize = 1 << 10;

/// What the maker of a sequence knows of a descriptor.
#[derive(Clone, Copy)]
struct Open {
    readable: bool,
    writable: bool,
    direct: bool,
}

struct Maker {
    rng: fastrand::Rng,
    steps: Vec<String>,
    open: [[Option<Open>; SLOTS]; 4],
    /// Every process may use every file, since each hears of what the others did.
    together: bool,
    /// Streams are taken at the thresholds that users have.
    long: bool,
    holes: bool,
    maps: bool,
    alive: [bool; 4],
    /// The slot that each opened last, which it likes.
    last: [usize; 4],
    /// Names of files that have content.
    written: Vec<&'static str>,
    files: bool,
}

impl Maker {
    fn pick<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[self.rng.usize(..words.len())]
    }

    fn step(&mut self, actor: usize, what: impl fmt::Display) {
        let thread = if self.rng.u8(..40) == 0 {
            "thread "
        } else {
            ""
        };
        self.steps.push(format!("{actor} {thread}{what}"));
    }

    fn name(&mut self, actor: usize) -> &'static str {
        let names = match (self.together, actor) {
            (true, _) | (false, 0) => ["a", "b", "c"],
            (false, _) => ["d", "e", "f"],
        };
        names[[0, 0, 1, 2][self.rng.usize(..4)]]
    }

    /// A file that may well be there, or another.
    fn full(&mut self, actor: usize) -> &'static str {
        let name = self.name(actor);
        match self.written.is_empty() || !self.together && actor > 0 || self.rng.u8(..4) == 0 {
            true => name,
            false => self.written[self.rng.usize(..self.written.len())],
        }
    }

    fn size(&mut self) -> usize {
        let base = [0, 512, 4096, 65536, 1 << 20, 3 << 20][self.rng.usize(..6)];
        match self.rng.u8(..5) {
            0 => base,
            1 => base + self.rng.usize(1..700),
            2 => (base + 1).saturating_sub(self.rng.usize(0..600)),
            _ => self.rng.usize(1..9000),
        }
    }

    fn place(&mut self) -> usize {
        match self.rng.u8(..5) {
            0 => 0,
            1 => self.rng.usize(..6 << 20),
            2 => self.rng.usize(..1500) * 4096,
            _ => self.rng.usize(..600 * K),
        }
    }

    /// A slot, mostly one that is open and suits.
    fn slot(&mut self, actor: usize, suits: impl Fn(&Open) -> bool) -> usize {
        let fits = |slot: usize| self.open[actor][slot].as_ref().is_some_and(&suits);
        if fits(self.last[actor]) && self.rng.bool() {
            return self.last[actor];
        }
        let good: Vec<_> = (0..SLOTS).filter(|&slot| fits(slot)).collect();
        match good.is_empty() || self.rng.u8(..60) == 0 {
            true => self.rng.usize(..SLOTS),
            false => good[self.rng.usize(..good.len())],
        }
    }

    fn any(&mut self, actor: usize) -> usize {
        self.slot(actor, |_| true)
    }

    fn is_direct(&self, actor: usize, slot: usize) -> bool {
        self.open[actor][slot].is_some_and(|open| open.direct)
    }

    /// Block size and number of calls of a stream.
    fn blocks(&mut self, direct: bool) -> (usize, usize) {
        if self.long {
            let block = [64 * K, 1000 * K, 1 << 20, 50_000][self.rng.usize(..4)];
            return (block, self.rng.usize(4 << 20..10 << 20) / block + 1);
        }
        let block = match direct {
            true => [4096, 8192, 65536, 1 << 20][self.rng.usize(..4)],
            false => [
                100,
                511,
                512,
                4096,
                4096,
                5000,
                8192,
                65536,
                100_000,
                128 * K,
                1 << 20,
            ][self.rng.usize(..11)],
        };
        let total = self.rng.usize(30 * K..900 * K);
        (block, (total / block + 1).min(1500))
    }

    fn open(&mut self, actor: usize) {
        let slot = self.rng.usize(..SLOTS);
        let mode = self.pick(&["r", "r", "r", "w", "w", "rw", "rw"]);
        let name = match mode {
            "r" => self.full(actor),
            _ => self.name(actor),
        };
        let mut flags = mode.to_owned();
        let mut direct = false;
        if mode != "r" || self.rng.u8(..20) == 0 {
            let more = [
                ",creat",
                ",creat",
                ",creat,trunc",
                ",creat,trunc",
                ",creat,trunc",
                ",creat,trunc",
                ",creat,excl",
                ",creat,append",
                ",append",
                ",trunc",
                ",creat,dsync",
                "",
            ];
            flags += self.pick(&more);
        }
        if self.rng.u8(..12) == 0 {
            flags += ",direct";
            direct = true;
        }
        if self.rng.u8(..6) == 0 {
            flags += ",cloexec";
        }
        let how = self.pick(&[
            "open", "open", "open", "openat", "openat2", "syscall", "sysopen",
        ]);
        if self.rng.u8(..20) == 0 {
            self.step(actor, format!("open {slot} {name} w creat"));
        } else if self.rng.u8(..20) == 0 {
            self.step(actor, format!("open {slot} . rw,tmpfile {how}"));
        } else {
            self.step(actor, format!("open {slot} {name} {flags} {how}"));
        }
        self.open[actor][slot] = Some(Open {
            readable: mode != "w",
            writable: mode != "r",
            direct,
        });
        self.last[actor] = slot;
        if self.rng.u8(..5) == 0 {
            let other = (slot + 1) % SLOTS;
            self.step(actor, format!("dup {slot} {other}"));
            self.open[actor][other] = self.open[actor][slot];
        }
        if self.rng.bool() {
            match mode {
                "r" => self.read(actor),
                _ => self.write(actor),
            }
        }
        if mode != "r" && actor != 1 {
            self.written.push(name);
        }
        if mode != "r" && self.rng.u8(..3) == 0 {
            let other = (slot + 2) % SLOTS;
            let size = self.size();
            let (block, times) = self.blocks(direct);
            self.step(actor, format!("write {slot} {block} {times} write"));
            self.step(actor, format!("open {other} {name} r open"));
            self.step(actor, format!("pread {other} 3000000 {}", size / 2));
            self.open[actor][other] = Some(Open {
                readable: true,
                writable: false,
                direct: false,
            });
        }
    }

    fn write(&mut self, actor: usize) {
        let slot = self.slot(actor, |open| open.writable);
        let direct = self.is_direct(actor, slot);
        if self.rng.u8(..10) < 6 {
            let (block, times) = self.blocks(direct);
            let how = self.pick(&["write", "write", "writev", "syscall"]);
            return self.step(actor, format!("write {slot} {block} {times} {how}"));
        }
        let mut size = self.size();
        let mut at = self.place();
        if direct && self.rng.u8(..4) > 0 {
            (size, at) = (size & !4095, at & !4095);
        }
        let parts = self.rng.usize(1..6);
        match self.rng.u8(..12) {
            0..=4 => self.step(actor, format!("write {slot} {size} 1 write")),
            5 | 6 => self.step(actor, format!("pwrite {slot} {size} {at}")),
            7 => self.step(actor, format!("pwrite {slot} {size} {at} syscall")),
            8 => self.step(actor, format!("pwritev {slot} {size} {at} {parts}")),
            9 => self.step(actor, format!("pwritev2 {slot} {size} -1 {parts}")),
            10 => {
                let flag = self.pick(&["none", "dsync", "append"]);
                self.step(actor, format!("pwritev2 {slot} {size} {at} {parts} {flag}"));
            }
            _ => {
                let bad = self.pick(&["edge", "small", "large"]);
                let good = self.size();
                self.step(
                    actor,
                    format!("writebad {slot} {} {bad} {good}", size + good),
                );
            }
        }
    }

    fn read(&mut self, actor: usize) {
        let slot = self.slot(actor, |open| open.readable);
        let direct = self.is_direct(actor, slot);
        if self.rng.u8(..10) < 6 {
            let (block, times) = self.blocks(direct);
            let how = self.pick(&["read", "read", "readv", "syscall"]);
            return self.step(actor, format!("read {slot} {block} {times} {how}"));
        }
        let (size, at, parts) = (self.size(), self.place(), self.rng.usize(1..6));
        match self.rng.u8(..10) {
            0..=3 => self.step(actor, format!("read {slot} {size} 1 read")),
            4 | 5 => self.step(actor, format!("pread {slot} {size} {at}")),
            6 => self.step(actor, format!("pread {slot} {size} {at} syscall")),
            7 => self.step(actor, format!("preadv {slot} {size} {at} {parts}")),
            8 => self.step(actor, format!("preadv2 {slot} {size} -1 {parts}")),
            _ => {
                let bad = self.pick(&["edge", "small", "large"]);
                let good = self.size();
                self.step(
                    actor,
                    format!("readbad {slot} {} {bad} {good}", size + good),
                );
            }
        }
    }

    /// Reads some of a file, and the rest once another process has changed that.
    fn read_told(&mut self, actor: usize) {
        let others: Vec<_> = (0..4).filter(|&a| self.alive[a] && a != actor).collect();
        if !self.together || others.is_empty() {
            return self.read(actor);
        }
        let other = others[self.rng.usize(..others.len())];
        // A file that nothing else in the sequence has open, so that the reader is taken.
        let (slot, name) = (self.rng.usize(..SLOTS), "d");
        let (first, size) = (self.rng.usize(5..60), self.size());
        // Where what was read ahead may be.
        let at = 4096 * first + self.rng.usize(..100_000);
        self.step(other, format!("open {slot} {name} rw,creat,trunc open"));
        self.step(other, format!("write {slot} 4096 150 write"));
        self.step(actor, format!("open {slot} {name} r open"));
        self.step(actor, format!("read {slot} 4096 {first} read"));
        self.step(other, format!("pwrite {slot} {size} {at}"));
        self.step(actor, format!("read {slot} 4096 200 read"));
        for (actor, writable) in [(actor, false), (other, true)] {
            self.open[actor][slot] = Some(Open {
                readable: true,
                writable,
                direct: false,
            });
        }
    }

    fn seek(&mut self, actor: usize) {
        let slot = self.any(actor);
        let how = self.pick(&["lseek", "lseek", "syscall"]);
        match self.rng.u8(..10) {
            0..=2 => self.step(actor, format!("lseek {slot} 0 cur {how}")),
            3 | 4 => self.step(actor, format!("lseek {slot} 0 set {how}")),
            5 => self.step(actor, format!("lseek {slot} 0 end {how}")),
            6 => {
                let by = self.rng.i32(-70_000..70_000);
                let whence = self.pick(&["cur", "end"]);
                self.step(actor, format!("lseek {slot} {by} {whence} {how}"));
            }
            7 | 8 if self.holes => {
                let whence = self.pick(&["data", "hole"]);
                let at = self.place();
                self.step(actor, format!("lseek {slot} {at} {whence} {how}"));
            }
            _ => {
                let at = self.place();
                self.step(actor, format!("lseek {slot} {at} set {how}"));
            }
        }
    }

    fn duplicate(&mut self, actor: usize) {
        let (from, to) = (self.any(actor), self.rng.usize(..SLOTS));
        let number = [0, 1, 1, 0, 4, 5, 7, 60, 61, 600][self.rng.usize(..10)];
        match self.rng.u8(..8) {
            0..=2 => self.step(actor, format!("dup {from} {to}")),
            3 => self.step(actor, format!("dup {from} {to} syscall")),
            4 => self.step(actor, format!("dup3 {from} {to} {number} cloexec")),
            5 => self.step(actor, format!("dupfd {from} {to} {number}")),
            _ => self.step(actor, format!("dup2 {from} {to} {number}")),
        }
        self.open[actor][to] = self.open[actor][from];
    }

    fn size_of_files(&mut self, actor: usize) {
        let slot = self.slot(actor, |open| open.writable);
        let (name, at, len) = (self.name(actor), self.place(), self.size().max(1));
        match self.rng.u8(..7) {
            0 | 1 => self.step(actor, format!("ftruncate {slot} {at}")),
            2 => self.step(actor, format!("ftruncate {slot} {at} syscall")),
            3 => self.step(actor, format!("truncate {name} {at}")),
            4 => self.step(actor, format!("truncate {name} {at} syscall")),
            _ if !self.holes => {
                let mode = self.pick(&[
                    "none",
                    "none",
                    "keep",
                    "punch,keep",
                    "zero",
                    "zero,keep",
                    "collapse",
                    "insert",
                ]);
                // These two take whole blocks only.
                let (at, len) = match mode {
                    "collapse" | "insert" => ((at / 8) & !4095, (len + 4095) & !4095),
                    _ => (at, len),
                };
                self.step(actor, format!("fallocate {slot} {mode} {at} {len}"));
            }
            _ => {}
        }
    }

    fn names(&mut self, actor: usize) {
        let (one, other, slot) = (self.name(actor), self.name(actor), self.any(actor));
        match self.rng.u8(..9) {
            0 | 1 => self.step(actor, format!("rename {one} {other}")),
            2 => self.step(actor, format!("rename {one} {other} syscall")),
            3 => self.step(actor, format!("link {one} {other}")),
            4 => self.step(actor, format!("linkfd {slot} {other}")),
            5 => self.step(actor, format!("symlink {one} {other}")),
            _ => self.step(actor, format!("unlink {one}")),
        }
    }

    fn look(&mut self, actor: usize) {
        let (name, slot) = (self.name(actor), self.any(actor));
        let ways = [
            "stat",
            "stat",
            "lstat",
            "fstatat",
            "statx",
            "newfstatat",
            "syscall",
            "sysstatx",
        ];
        let how = self.pick(&ways);
        match self.rng.u8(..8) {
            0..=3 => self.step(actor, format!("stat {name} {how}")),
            4 | 5 => self.step(actor, format!("fstat {slot} {how}")),
            6 => self.step(actor, format!("getfl {slot}")),
            _ if !self.maps => {
                let all = match (self.together, actor) {
                    (true, _) => "a,b,c",
                    (false, 0) => "c,b,a",
                    _ => "d,e,f",
                };
                self.step(actor, format!("times {all}"));
            }
            _ => {}
        }
    }

    fn lock(&mut self, actor: usize) {
        let slot = self.any(actor);
        let how = self.pick(&["fcntl", "fcntl", "syscall", "ofd", "flock", "lockf"]);
        let kind = self.pick(&["wr", "wr", "rd", "un", "get"]);
        let (from, len) = match self.rng.bool() {
            true => (0, 0),
            false => (self.rng.usize(..8) * 1000, self.rng.usize(..4) * 1000),
        };
        self.step(actor, format!("lock {slot} {how} {kind} {from} {len}"));
        // What happens next must not take the lock away; another process sees.
        if self.together && self.rng.bool() {
            let other = if actor == 1 { 0 } else { 1 };
            match self.rng.u8(..4) {
                0 => self.write(actor),
                1 => self.read(actor),
                2 => self.step(actor, format!("lseek {slot} 0 cur lseek")),
                _ => {}
            }
            let name = self.name(actor);
            let how = self.pick(&["fcntl get", "fcntl get", "lockf get", "flock wr"]);
            self.step(other, format!("open 9 {name} rw open"));
            self.step(other, format!("lock 9 {how} 0 0"));
            self.step(other, "close 9 gone close");
        }
    }

    fn map(&mut self, actor: usize) {
        let slot = self.any(actor);
        let (at, size) = (self.rng.usize(..300_000), self.rng.usize(1..60_000));
        match self.rng.u8(..8) {
            0..=2 => {
                let kind = self.pick(&["shared", "shared", "private"]);
                let access = if self.maps { "read,write" } else { "read" };
                self.step(actor, format!("map 0 {slot} {access} 1000000 0 {kind}"));
            }
            3 | 4 => self.step(actor, format!("peek 0 {at} {size}")),
            5 | 6 if self.maps => self.step(actor, format!("poke 0 {at} {size}")),
            6 => self.step(actor, "msync 0"),
            _ => self.step(actor, "unmap 0"),
        }
    }

    fn move_data(&mut self, actor: usize) {
        let from = self.slot(actor, |open| open.readable);
        let to = self.slot(actor, |open| open.writable);
        let size = self.size();
        match self.rng.u8(..6) {
            0 | 1 => self.step(actor, format!("sendfile {from} {to} {size}")),
            2 | 3 => self.step(actor, format!("copy_file_range {from} {to} {size}")),
            4 => self.step(actor, format!("splice {from} {to} {size}")),
            _ => self.step(actor, format!("clone {from} {to}")),
        }
    }

    /// Requests that others carry out, and other ways to a file.
    fn otherwise(&mut self, actor: usize) {
        let kind = self.pick(&["r", "w"]);
        let suits = |open: &Open| match kind {
            "r" => open.readable,
            _ => open.writable,
        };
        let (from, to) = (self.slot(actor, suits), self.rng.usize(..SLOTS));
        let (size, at) = (self.size(), self.place());
        let (one, other) = (self.full(actor), self.name(actor));
        match self.rng.u8(..12) {
            // The threads of the C library that carry these out do not go over to a child.
            0 | 1 if actor > 1 => self.step(actor, format!("aio {from} {kind} {size} {at}")),
            0..=3 => self.step(actor, format!("submit {from} {kind} {size} {at}")),
            // After that nothing is taken any more.
            4 if self.rng.u8(..3) == 0 => {
                self.step(actor, format!("ring {from} {kind} {size} {at}"));
            }
            4 | 5 => self.step(actor, format!("vmsplice {from} {size}")),
            6 => self.step(actor, format!("popen {one}")),
            7 | 8 => {
                let how = self.pick(&["again", "itself"]);
                let mode = match how {
                    "again" => self.pick(&["r", "w", "rw"]),
                    _ => self.pick(&["function", "syscall"]),
                };
                self.step(actor, format!("{how} {from} {to} {mode}"));
                self.open[actor][to] = self.open[actor][from];
                if let Some(open) = self.open[actor][to].as_mut().filter(|_| how == "again") {
                    (open.readable, open.writable) = (mode != "w", mode != "r");
                }
            }
            9 => self.step(actor, format!("exchange {one} {other}")),
            10 if !self.holes => self.step(actor, format!("allocate {from} {at} {size}")),
            _ => self.step(actor, format!("attribute {from}")),
        }
    }

    fn file_pointer(&mut self, actor: usize) {
        let (slot, name) = (self.any(actor), self.name(actor));
        let size = self.rng.usize(..20_000);
        match self.rng.u8(..11) {
            0 => {
                let mode = self.pick(&["r", "r+", "w", "a"]);
                self.step(actor, format!("fopen 0 {name} {mode}"));
            }
            1 => {
                let mode = self.pick(&["r", "r+", "w"]);
                self.step(actor, format!("fdopen 0 {slot} {mode}"));
            }
            2 => self.step(actor, format!("fread 0 {size}")),
            3 => self.step(actor, format!("fwrite 0 {size}")),
            4 => self.step(actor, "fflush 0"),
            5 => self.step(actor, "fclose 0"),
            6 | 7 => {
                let len = self.rng.usize(1..50);
                self.step(actor, format!("printf {len}"));
            }
            8 => self.step(actor, format!("dprintf {slot}")),
            9 => self.step(actor, format!("input {size}")),
            _ => {
                let mode = self.pick(&["w", "a", "r+"]);
                self.step(actor, format!("reopen {name} {mode}"));
            }
        }
    }

    fn attributes(&mut self, actor: usize) {
        let (slot, name) = (self.any(actor), self.name(actor));
        match self.rng.u8(..5) {
            0 => self.step(actor, format!("utimens {name}")),
            1 => self.step(actor, format!("futimens {slot}")),
            2 => self.step(actor, format!("fchmod {slot} 0600")),
            3 => self.step(actor, format!("chmod {name} 0640")),
            _ => {
                let flags = self.pick(&["append", "none", "nonblock", "direct"]);
                self.step(actor, format!("setfl {slot} {flags}"));
            }
        }
    }

    /// Writes what takes a set-user-ID bit away, or not, and has other rights then. One stream only, as the
    /// order of several may not be set as another user.
    fn rights(&mut self, actor: usize) {
        let slot = self.slot(actor, |open| open.writable);
        let (block, times) = self.blocks(self.is_direct(actor, slot));
        let how = self.pick(&["all", "all", "all", "all", "syscall", "fs"]);
        self.step(actor, format!("fchmod {slot} 06755"));
        self.step(actor, format!("write {slot} {block} {times} write"));
        self.step(actor, format!("rights 1 {how}"));
        match self.rng.u8(..3) {
            0 => self.step(actor, format!("write {slot} {block} {times} write")),
            1 => self.step(actor, "pause 80"),
            _ => {}
        }
        self.step(actor, format!("rights 0 {how}"));
        self.step(actor, format!("fstat {slot} fstat"));
    }

    fn sync(&mut self, actor: usize) {
        let slot = self.any(actor);
        match self.rng.u8(..9) {
            0 => self.step(actor, format!("fsync {slot}")),
            // Longer than the tick of a file's times.
            7 | 8 => self.step(actor, "busy 11"),
            1 => self.step(actor, format!("fdatasync {slot}")),
            2 => self.step(actor, format!("fdatasync {slot} syscall")),
            3 => self.step(actor, format!("sync_file_range {slot} 0 0")),
            4 => self.step(actor, format!("fadvise {slot}")),
            _ => {
                let time = [1, 5, 5, 20, 80][self.rng.usize(..5)];
                self.step(actor, format!("pause {time}"));
            }
        }
    }

    fn close(&mut self, actor: usize) {
        let slot = self.any(actor);
        let how = self.pick(&["close", "close", "close", "syscall"]);
        let gone = self.pick(&["gone", "gone", "gone", "stays"]);
        match self.rng.u8(..12) {
            0 => {
                let first = self.rng.usize(2..10);
                let last = first + self.rng.usize(..4);
                self.step(actor, format!("close_range {first} {last}"));
            }
            _ => {
                self.step(actor, format!("close {slot} {gone} {how}"));
                self.open[actor][slot] = None;
            }
        }
    }

    fn process(&mut self, actor: usize) {
        let child = actor + 2;
        match self.rng.u8(..14) {
            0..=5 if self.together && actor < 2 && !self.alive[child] => {
                let how = self.pick(&["fork", "fork", "vfork", "posix_spawn", "clone", "_Fork"]);
                self.steps.push(format!("{actor} child {how}"));
                self.alive[child] = true;
                self.open[child] = self.open[actor];
            }
            // One that hears nothing of the others may go while much waits.
            6 | 7 if actor == 1 && !self.together && self.steps.len() > 20 => {
                let ways = [
                    "raise 15", "bare 15", "bare 2", "fault", "exit", "abort", "_exit",
                ];
                let how = self.pick(&ways);
                self.step(actor, format!("exit {how}"));
                self.alive[1] = false;
            }
            8 if actor == 0 && !self.together && self.alive[1] => {
                let signal = self.pick(&["15", "2", "1", "10"]);
                self.step(0, format!("kill 1 {signal}"));
                self.alive[1] = false;
            }
            6..=8 if actor > 1 => {
                let ways = [
                    "exit",
                    "_exit",
                    "quick_exit",
                    "abort",
                    "syscall",
                    "raise 15",
                    "kill 15",
                    "kill 9",
                    "raise 2",
                ];
                let how = self.pick(&ways);
                if self.rng.u8(..4) == 0 {
                    self.step(actor, "unshare");
                }
                self.step(actor, format!("exit {how}"));
                self.alive[actor] = false;
            }
            9 => self.step(actor, "exec"),
            10 if self.together => {
                let slot = self.any(actor);
                let other = if self.alive[3] { 3 } else { 1 };
                let to = if actor == 0 { other } else { 0 };
                let into = self.rng.usize(..SLOTS);
                self.step(actor, format!("send {slot}"));
                self.step(to, format!("receive {into}"));
                self.open[to][into] = self.open[actor][slot];
            }
            11 => {
                let (from, to) = (self.name(actor), self.name(actor));
                if from != to {
                    self.step(actor, format!("system {from} {to}"));
                }
            }
            12 if self.files => self.step(actor, "exhaust"),
            _ => {}
        }
    }
}

/// The sequence of a seed.
pub fn generate(seed: u64) -> Sequence {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut settings = Vec::new();
    let together = rng.u8(..10) < 6;
    let long = rng.u8(..10) == 0;
    let place = PLACES[rng.usize(..PLACES.len())];
    settings.push(format!("on {place}"));
    if together {
        let how = ["tell", "tell", "tell by socket"][rng.usize(..3)];
        settings.push(how.to_owned());
        if rng.bool() {
            settings.push("bare second".to_owned());
        }
    }
    let mut set = |name: &str, values: &[&'static str]| {
        let value = values[rng.usize(..values.len())];
        settings.push(format!("set {name} {value}"));
        value
    };
    // A minute is longer than any sequence: what has to be written is not written by itself, and what was
    // read ahead is that old when others write to the file and tell.
    set("PDIO_LINGER", &["0", "1ms", "10ms", "50ms", "60s", "60s"]);
    set(
        "PDIO_STRATEGY",
        &["auto", "direct", "direct", "dontcache", "buffered"],
    );
    set("PDIO_MEMORY", &["8M", "2M", "512K"]);
    set("PDIO_REPAIR", &["0"]);
    if !long {
        set("PDIO_SEQUENTIAL", &["16K", "16K", "128K"]);
        set("PDIO_MIN_SIZE", &["32K"]);
    }
    let holes = place.starts_with("ext4") && rng.bool();
    let mut maker = Maker {
        steps: Vec::new(),
        open: [[None; SLOTS]; 4],
        together,
        long,
        holes,
        maps: rng.u8(..3) == 0,
        alive: [true, true, false, false],
        last: [0; 4],
        written: Vec::new(),
        files: rng.u8(..8) == 0,
        rng,
    };
    // Something to read, and something that is being written.
    for actor in 0..2 {
        let name = maker.name(actor);
        let (block, times) = maker.blocks(false);
        maker.step(actor, format!("open {actor} {name} rw,creat,trunc open"));
        maker.step(actor, format!("write {actor} {block} {times} write"));
        if maker.rng.bool() {
            maker.step(actor, format!("close {actor} gone close"));
        } else {
            maker.open[actor][actor] = Some(Open {
                readable: true,
                writable: true,
                direct: false,
            });
        }
    }
    let count = maker.rng.usize(10..60);
    let mut actor = 0;
    while maker.steps.len() < count {
        if maker.rng.u8(..3) == 0 {
            let alive: Vec<_> = (0..4).filter(|&a| maker.alive[a]).collect();
            actor = match maker.rng.bool() {
                true => 0,
                false => alive[maker.rng.usize(..alive.len())],
            };
        }
        if !maker.alive[actor] {
            actor = 0;
        }
        match maker.rng.u8(..67) {
            0..=7 => maker.open(actor),
            8..=19 => maker.write(actor),
            20..=27 => maker.read(actor),
            28..=29 => maker.read_told(actor),
            30..=34 => maker.seek(actor),
            35..=38 => maker.duplicate(actor),
            39..=41 => maker.size_of_files(actor),
            42..=43 => maker.names(actor),
            44..=47 => maker.look(actor),
            48..=50 => maker.lock(actor),
            51..=52 => maker.map(actor),
            53 => maker.move_data(actor),
            54..=55 => maker.file_pointer(actor),
            56 => maker.attributes(actor),
            57 if maker.rng.bool() => maker.rights(actor),
            57..=58 => maker.sync(actor),
            59..=60 => maker.close(actor),
            61..=63 => maker.otherwise(actor),
            _ => maker.process(actor),
        }
    }
    if !maker.maps {
        maker.step(0, "times a,b,c");
        maker.step(
            1,
            if together {
                "times c,b,a"
            } else {
                "times d,e,f"
            },
        );
    }
    let steps = maker.steps;
    Sequence { settings, steps }
}

/// The sequence of a seed without the steps that contain one of these words, or `None` if its
/// settings contain one. It leaves out what leads to a known defect, so that others are found.
pub fn generate_without(seed: u64, words: &str) -> Option<Sequence> {
    let mut sequence = generate(seed);
    let has = |line: &String| {
        line.split(' ')
            .any(|w| words.split(',').any(|word| w == word))
    };
    if sequence.settings.iter().any(has) {
        return None;
    }
    sequence.steps.retain(|step| !has(step));
    Some(sequence)
}
