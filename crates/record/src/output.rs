// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files of frames, and beside each an index that is never ahead of it, as long as the system runs.

use std::collections::VecDeque;
use std::fs::{File, Metadata};
use std::io::{self, Write};
use std::ops::RangeInclusive;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{channel, Receiver, Sender, TryRecvError};
use std::thread;
use std::time::Duration;

use pdio::{Durability, OpenOptions, Stats, Writer};
use pdio_cli::durable::sync_directory;
use pdio_cli::report::{quoted, reason, standard, Context, Fail, Outcome};

use crate::files::{open_alone, resolved, Created};
use crate::frame::{Frame, Losses};
use crate::ways::Way;

/// A file whose end direct I/O cannot go on from is ended early, but not before it has this part of its
/// bytes: a camera with many such frames must not fill a directory.
const EARLY: u64 = 16;

/// The index beside a file: a line for each frame, written once the kernel has the frame.
#[derive(Debug)]
struct Index {
    file: File,
    path: PathBuf,
    /// True if the index is synced, as its file then is.
    sync: bool,
    /// Lines that wait, each with the size that the file has by then.
    waiting: VecDeque<(u64, String)>,
    /// Bytes of whole lines.
    len: u64,
    /// It says that times are not of the system's monotonic clock.
    clock_unknown: bool,
    /// Frames in whole lines, and where the last of them ends in the file.
    frames: u64,
    end: u64,
}

impl Index {
    /// Opens it as it is, and says what was made; see [`begin`](Index::begin). Others are kept from it as from
    /// the file: its name may be the FILE of a recording.
    fn open(of: &Path, sync: bool) -> Outcome<(Index, Option<PathBuf>)> {
        let path = index_of(of);
        let (file, made) = open_alone(&path)?;
        let index = Index {
            file,
            path,
            sync,
            waiting: VecDeque::new(),
            len: 0,
            clock_unknown: false,
            frames: 0,
            end: 0,
        };
        Ok((index, made))
    }

    /// Leaves nothing in it but a header, which comes first: on a disk that takes none, the lines stay. It is
    /// synced where lines are: what was there before a power cut would name frames that its file no longer has.
    fn begin(&mut self, header: &str) -> io::Result<()> {
        self.file.write_all_at(header.as_bytes(), 0)?;
        self.len = header.len() as u64;
        self.file.set_len(self.len)?;
        if self.sync {
            self.file.sync_data()?;
        }
        Ok(())
    }

    /// Writes the lines of what a file of this size has. After a failure there may be half a line, or one that a
    /// power cut takes: [`whole`] removes it.
    fn write_lines(&mut self, size: u64) -> io::Result<()> {
        let ready = self
            .waiting
            .iter()
            .take_while(|(end, _)| *end <= size)
            .count();
        if ready == 0 {
            return Ok(());
        }
        let text: String = self
            .waiting
            .iter()
            .take(ready)
            .map(|(_, line)| line.as_str())
            .collect();
        // Not at the file's own offset, which half a line moves.
        self.file.write_all_at(text.as_bytes(), self.len)?;
        if self.sync {
            self.file.sync_data()?;
        }
        self.len += text.len() as u64;
        for (end, line) in self.waiting.drain(..ready) {
            self.frames += u64::from(!line.starts_with('#'));
            self.end = end;
        }
        Ok(())
    }
}

/// The name of a file's index.
pub fn index_of(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_os_string();
    name.push(".index");
    name.into()
}

/// The name of a segment: a number before the extension.
fn segment(path: &Path, number: u32) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default();
    let mut name = stem.to_os_string();
    name.push(format!("-{number:04}"));
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    path.with_file_name(name)
}

/// The number of a segment of `path`, if `name` is one.
fn number(path: &Path, name: &Path) -> Option<u32> {
    let begin = path.file_stem()?.len() + 1;
    let rest = name.file_name()?.as_bytes().get(begin..)?;
    let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
    let number = nocopy_settings::number(&rest[..digits])?.try_into().ok()?;
    (segment(path, number) == name).then_some(number)
}

/// What became of frames that were written to `path`. Only a `named` file can be followed by another.
fn written<T>(result: io::Result<T>, path: &Path, named: bool) -> Outcome<T> {
    let is_limit = |error: &io::Error| error.raw_os_error() == Some(libc::EFBIG);
    let too_long = named && result.as_ref().is_err_and(is_limit);
    result.context("write", path).map_err(|fail| match fail {
        Fail::Failed(text) if too_long => Fail::Failed(format!(
            "{text}: --segment, of fewer bytes, goes on in another file"
        )),
        fail => fail,
    })
}

#[derive(Debug)]
struct Segment {
    /// Until frames may come. Before the writer, as the lock goes with that: then the names are others'.
    created: Created,
    path: PathBuf,
    writer: Writer,
    /// Not of a pipe.
    index: Option<Index>,
    /// Bytes that were given to the writer.
    bytes: u64,
    frames: u64,
}

/// How a file ended, and what of it counts.
#[derive(Debug)]
struct Ended {
    frames: u64,
    /// Of these frames.
    bytes: u64,
    stats: Stats,
    outcome: Outcome,
}

impl Segment {
    /// Ends the file. If it went wrong, whole frames are left in it, each of them in the index.
    fn end(self, outcome: Outcome) -> Ended {
        let Segment {
            created,
            path,
            writer,
            index,
            bytes,
            frames,
        } = self;
        drop(created);
        let before = writer.stats();
        // By now the name may be another file's.
        let file = writer.file().try_clone();
        // Whatever has ended the recording, the writer may still hold frames, and a failure of these is told.
        let (stats, outcome) = match written(writer.finish(), &path, index.is_some()) {
            Ok(stats) => (stats, outcome),
            Err(fail) => (before, Err(fail)),
        };
        let Some(mut index) = index else {
            return Ended {
                frames,
                bytes: stats.bytes,
                stats,
                outcome,
            };
        };
        let outcome = match outcome {
            Ok(()) | Err(Fail::Signal(_)) => {
                let written = index.write_lines(bytes).context("write", &index.path);
                written.and(outcome)
            }
            failed => failed,
        }
        .or_else(|fail| {
            let mended = file.and_then(|file| whole(&file, &mut index));
            match (fail, mended) {
                // What went wrong first says more.
                (Fail::Failed(text), Err(error)) => Err(Fail::Failed(format!(
                    "{text}; what is no whole frame stays at its end: {}",
                    reason(&error)
                ))),
                (fail, mended) => mended.context("mend", &path).and(Err(fail)),
            }
        });
        let outcome = match (outcome, pdio::close(index.file)) {
            (Ok(()) | Err(Fail::Signal(_)), Err(error)) => Err(error).context("write", &index.path),
            (outcome, _) => outcome,
        };
        Ended {
            frames: index.frames,
            bytes: index.end,
            stats,
            outcome,
        }
    }
}

/// How the thread ends a file.
#[cfg(not(test))]
fn ending() -> impl Fn(Segment) -> Ended + Send + 'static {
    |segment| segment.end(Ok(()))
}
#[cfg(test)]
pub use tests::busy;
#[cfg(test)]
use tests::ending;

/// A thread that ends files, one at a time.
#[derive(Debug)]
struct Ender {
    begun: Sender<Segment>,
    ended: Receiver<Ended>,
    /// True if it has a file.
    busy: bool,
}

impl Ender {
    fn by(end: impl Fn(Segment) -> Ended + Send + 'static) -> Outcome<Ender> {
        let (begun, orders) = channel();
        let (done, ended) = channel();
        let work = move || {
            for segment in orders {
                if done.send(end(segment)).is_err() {
                    break;
                }
            }
        };
        thread::Builder::new()
            .name("segments".into())
            .spawn(work)
            .map_err(|error| Fail::Failed(format!("cannot end segments: {}", reason(&error))))?;
        Ok(Ender {
            begun,
            ended,
            busy: false,
        })
    }

    /// Gives it a file; it has none now.
    fn begin(&mut self, segment: Segment) {
        // That its thread is gone, `ended` says.
        let _ = self.begun.send(segment);
        self.busy = true;
    }

    /// How its file ended, if it had one and that is known, or is waited for.
    fn ended(&mut self, wait: bool) -> Option<Ended> {
        if !self.busy {
            return None;
        }
        let ended = match wait {
            true => self.ended.recv().ok(),
            false => match self.ended.try_recv() {
                Err(TryRecvError::Empty) => return None,
                ended => ended.ok(),
            },
        };
        self.busy = false;
        Some(ended.unwrap_or_else(|| Ended {
            frames: 0,
            bytes: 0,
            stats: Stats::default(),
            outcome: Err(Fail::Failed("the thread that ends segments is gone".into())),
        }))
    }
}

/// Wants a recording to be possible at `path`, as far as names tell.
///
/// # Errors
/// If something else has its name or that of its index, or there is no directory for it.
pub fn can_be(path: &Path) -> Outcome {
    // A FIFO would have to be waited for, and a device has no length that says what is there.
    for name in [path, &index_of(path)] {
        if std::fs::metadata(name).is_ok_and(|about| !about.is_file()) {
            return Err(Fail::Failed(format!(
                "{} exists and is not a regular file: name another, or - for standard output",
                quoted(name)
            )));
        }
    }
    let file = resolved(path);
    // With a dot: it has to be a directory, too.
    let directory = file.parent().unwrap_or(Path::new("/")).join(".");
    std::fs::metadata(directory)
        .map(drop)
        .context("create", path)
}

/// How to write.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The file, or none for standard output.
    pub path: Option<PathBuf>,
    /// Maximum bytes of a file, if there are to be several.
    pub segment: Option<u64>,
    /// What a file promises.
    pub durability: Durability,
    /// The first line of each index.
    pub header: String,
    /// The time from frame to frame, if the camera tells.
    pub interval: Option<Duration>,
    /// What direct I/O asks lengths to be multiples of, where there is any.
    pub block: Option<u64>,
}

impl Plan {
    /// The name of the file with this number; none for standard output.
    pub fn file(&self, number: u32) -> Option<PathBuf> {
        let path = self.path.as_ref()?;
        Some(match self.segment {
            Some(_) => segment(path, number),
            None => path.clone(),
        })
    }

    /// Returns true if a file of this name would be one of frames, or an index.
    pub fn writes(&self, name: &Path) -> bool {
        let Some(path) = &self.path else {
            return false;
        };
        let (path, name) = (resolved(path), resolved(name));
        let of = match name.extension() {
            Some(extension) if extension == "index" => Some(name.with_extension("")),
            _ => None,
        };
        let taken = |name: &PathBuf| match self.segment {
            Some(_) => number(&path, name).is_some(),
            None => *name == path,
        };
        taken(&name) || of.is_some_and(|of| taken(&of))
    }
}

/// What was written.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Frames that are in files, and in their indices.
    pub frames: u64,
    /// The files.
    pub files: Vec<PathBuf>,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes given to the writers.
    pub given: u64,
    /// Of these, without a copy.
    pub zero_copy: u64,
    /// Of these, through the page cache or a pipe.
    pub buffered: u64,
    /// Frames that the camera counted and never gave, between those that it gave.
    pub lost: u64,
    /// Frames that may be missing beside those, by the time between others.
    pub suspected: u64,
    /// Frames that were copied although the way has no copy, as one of them is no multiple of a block or has an
    /// address that is not aligned.
    pub uneven: u64,
    /// Frames that came and are damaged.
    pub damaged: u64,
}

/// Where the frames go.
#[derive(Debug)]
pub struct Output {
    plan: Plan,
    way: Way,
    options: OpenOptions,
    current: Option<Segment>,
    /// Where there may be several files.
    ender: Option<Ender>,
    losses: Losses,
    totals: Totals,
    notice: Option<String>,
}

impl Output {
    /// Opens the first file and its index, and leaves in them what is there; see [`empty`](Output::empty).
    ///
    /// # Errors
    /// If that cannot be. Then what was not there before is not there.
    pub fn open(plan: Plan, way: Way) -> Outcome<Output> {
        // Segments of a directory would be beside it, perhaps on another disk.
        let is_directory =
            |path: &&PathBuf| path.is_dir() || path.as_os_str().as_bytes().ends_with(b"/");
        let segmented = plan.path.as_ref().filter(|_| plan.segment.is_some());
        if let Some(path) = segmented.filter(is_directory) {
            return Err(Fail::Failed(format!(
                "{} names a directory: name a file in it",
                quoted(path)
            )));
        }
        let ender = match plan.segment {
            Some(_) => Some(Ender::by(ending())?),
            None => None,
        };
        let mut output = Output {
            ender,
            options: way.options(plan.durability),
            losses: Losses::new(plan.interval),
            plan,
            way,
            current: None,
            notice: None,
            totals: Totals::default(),
        };
        output.next()?;
        Ok(output)
    }

    /// Opens the next file.
    fn next(&mut self) -> Outcome {
        let Some(path) = self.plan.file(self.totals.files.len() as u32) else {
            let path = PathBuf::from("standard output");
            let file = standard(io::stdout().as_fd()).context("write to", &path)?;
            let writer = self
                .options
                .writer_from(file.into())
                .context("write to", &path)?;
            self.current = Some(Segment {
                created: Created::default(),
                path,
                writer,
                index: None,
                bytes: 0,
                frames: 0,
            });
            return Ok(());
        };
        can_be(&path)?;
        let (file, made) = open_alone(&path)?;
        let mut created = Created::default();
        created.0.extend(made);
        let writer = self.options.writer_from(file);
        let mut writer = writer.context("create", &path)?;
        let sync = self.plan.durability == Durability::Sync;
        let file = writer.file().metadata().context("look at", &path)?;
        let is_same = |lines: Metadata| (file.dev(), file.ino()) == (lines.dev(), lines.ino());
        if std::fs::metadata(index_of(&path)).is_ok_and(is_same) {
            return Err(Fail::Failed(format!(
                "{} is the same file as its index: name another",
                quoted(&path)
            )));
        }
        let (index, made) = Index::open(&path, sync)?;
        created.0.extend(made);
        if self.way == Way::Copy {
            writer.prepare();
        }
        if sync {
            // Of a link they differ.
            sync_directory(&path)?;
            sync_directory(&index_of(&path))?;
        }
        self.current = Some(Segment {
            created,
            path,
            writer,
            index: Some(index),
            bytes: 0,
            frames: 0,
        });
        Ok(())
    }

    /// Empties the file that was opened: now frames can come. Returns true if it had bytes, which may have taken a
    /// while.
    ///
    /// # Errors
    /// If that cannot be.
    pub fn empty(&mut self) -> Outcome<bool> {
        let Some(segment) = &mut self.current else {
            return Ok(false);
        };
        let mut old = false;
        let (writer, path) = (&mut segment.writer, &segment.path);
        if let Some(index) = &mut segment.index {
            // Before the file: its lines would name frames that are not there.
            index
                .begin(&self.plan.header)
                .context("write", &index.path)?;
            let about = writer.file().metadata().context("look at", path)?;
            old = about.len() > 0;
            if old {
                writer.set_len(0).context("empty", path)?;
            }
            self.totals.files.push(path.clone());
        }
        segment.created.0.clear();
        Ok(old)
    }

    /// Names frames in the index that are not there, at their place.
    fn missing(&mut self, what: &str, numbers: RangeInclusive<u32>) {
        let (first, last) = (numbers.start(), numbers.end());
        self.remark(match first == last {
            true => format!("# {what} {first}\n"),
            false => format!("# {what} {first}-{last}\n"),
        });
    }

    /// Puts a line into the index, behind that of the last frame.
    fn remark(&mut self, text: String) {
        if let Some(segment) = &mut self.current {
            if let Some(index) = &mut segment.index {
                index.waiting.push_back((segment.bytes, text));
            }
        }
    }

    /// How many frames never came.
    pub fn lost(&self) -> u64 {
        self.losses.count
    }

    /// Writes a frame. Of a damaged one it writes only the line in the index.
    ///
    /// # Errors
    /// If it cannot be written; [`finish`](Output::finish) then says what is there.
    pub fn write(&mut self, frame: &Frame, data: &[u8]) -> Outcome {
        let full = self.current.as_ref().is_some_and(|s| {
            self.plan.segment.is_some_and(|most| {
                let early = self.is_uneven(s.bytes) && s.bytes >= most / EARLY;
                let full = s.bytes + frame.len as u64 > most;
                !frame.damaged && s.frames > 0 && (full || early)
            })
        });
        self.settle(false)?;
        if full {
            self.next_segment()?;
        }
        let before = self.losses.count;
        if let Some(lost) = self.losses.see(frame.sequence) {
            self.missing("lost", lost);
        }
        let more = self.losses.suspect(frame, self.losses.count - before);
        if more > 0 {
            self.remark(format!("# suspected {more} before {}\n", frame.sequence));
        }
        if frame.damaged {
            self.totals.damaged += 1;
            if self.totals.damaged == 1 {
                let index = match self.plan.path {
                    Some(_) => "; the index names those that follow",
                    None => "",
                };
                let n = frame.sequence;
                self.notice = Some(format!("frame {n} is damaged and left out{index}"));
            }
            self.missing("damaged", frame.sequence..=frame.sequence);
            return self.write_lines();
        }
        let Some(segment) = &mut self.current else {
            return Err(Fail::Failed("nothing is open to be written to".into()));
        };
        let named = segment.index.is_some();
        let (writer, path) = (&mut segment.writer, &segment.path);
        let direct = self.way.is_direct();
        let uncopied = direct && written(writer.write_uncopied(data), path, named)?;
        if !uncopied {
            let result = match self.way {
                Way::Copy => stage(writer, data),
                _ => writer.write_all(data),
            };
            written(result, path, named)?;
        }
        if self.way == Way::Copy {
            let result = match self.plan.durability {
                Durability::Process => Ok(()),
                Durability::Safe => writer.flush(),
                Durability::Sync => writer.sync_data(),
            };
            written(result, path, named)?;
        }
        let (sequence, time, len) = (frame.sequence, frame.time, frame.len);
        let offset = segment.bytes;
        segment.bytes += len as u64;
        segment.frames += 1;
        if let Some(index) = &mut segment.index {
            if !frame.monotonic && !std::mem::replace(&mut index.clock_unknown, true) {
                let line = "# clock unknown\n".to_owned();
                index.waiting.push_back((offset, line));
            }
            let (seconds, micros) = (time.as_secs(), time.subsec_micros());
            let line = format!("{sequence} {seconds}.{micros:06} {offset} {len}\n");
            index.waiting.push_back((segment.bytes, line));
        }
        self.write_lines()?;
        if direct && !uncopied {
            self.copied(frame, offset);
        }
        Ok(())
    }

    /// Writes the lines of what the file has.
    fn write_lines(&mut self) -> Outcome {
        let Some(segment) = &mut self.current else {
            return Ok(());
        };
        let Some(index) = &mut segment.index else {
            return Ok(());
        };
        let about = segment.writer.file().metadata();
        let size = about.context("look at", &segment.path)?.len();
        index.write_lines(size).context("write", &index.path)
    }

    /// Returns true if no direct I/O begins or ends there in a file.
    fn is_uneven(&self, offset: u64) -> bool {
        let block = self.plan.block.filter(|_| self.way.is_direct());
        block.is_some_and(|block| !offset.is_multiple_of(block))
    }

    /// Counts a frame that was copied on a way without a copy, and says why the first was.
    fn copied(&mut self, frame: &Frame, offset: u64) {
        self.totals.uneven += 1;
        if self.totals.uneven > 1 {
            return;
        }
        let block = self.plan.block.unwrap_or(1);
        let why = match (self.is_uneven(offset), self.is_uneven(frame.len as u64)) {
            (true, _) => format!("those before it are no multiple of {block} bytes"),
            (_, true) => format!("its {} bytes are no multiple of {block}", frame.len),
            _ => "it begins at an address that is not aligned for direct I/O".into(),
        };
        let length = self.is_uneven(offset) || self.is_uneven(frame.len as u64);
        let then = match self.plan.segment {
            Some(_) if length => "so are those behind it, until the next file begins",
            _ => "so are those behind it",
        };
        let n = frame.sequence;
        self.notice = Some(format!("frame {n} is copied, because {why}; {then}"));
    }

    /// What is to be said, once.
    pub fn notice(&mut self) -> Option<String> {
        self.notice.take()
    }

    /// Ends this file and begins the next. A thread ends it: what is in flight, a sync or a `close()` may take
    /// longer than the camera's buffers last. One file ends at a time: if the one before has not, this waits.
    fn next_segment(&mut self) -> Outcome {
        self.settle(true)?;
        if let (Some(ender), Some(segment)) = (&mut self.ender, self.current.take()) {
            ender.begin(segment);
        }
        self.next()?;
        self.empty().map(drop)
    }

    /// Takes account of a file that has ended meanwhile, or waits for it.
    fn settle(&mut self, wait: bool) -> Outcome {
        match self.ender.as_mut().and_then(|ender| ender.ended(wait)) {
            Some(ended) => self.tally(ended),
            None => Ok(()),
        }
    }

    fn tally(&mut self, ended: Ended) -> Outcome {
        self.totals.frames += ended.frames;
        self.totals.bytes += ended.bytes;
        self.totals.given += ended.stats.bytes;
        self.totals.zero_copy += ended.stats.zero_copy_bytes;
        self.totals.buffered += ended.stats.buffered_bytes;
        ended.outcome
    }

    /// Ends the output; what was written, and how that went.
    pub fn finish(mut self, outcome: Outcome) -> (Totals, Outcome) {
        let outcome = match self.current.take() {
            // Never emptied: what was there stays, and what was made goes.
            Some(segment) if segment.index.is_some() && self.totals.files.is_empty() => outcome,
            Some(segment) => self.tally(segment.end(outcome)),
            None => outcome,
        };
        // One line says why, and of the file before, whatever has ended the recording since.
        let outcome = self.settle(true).and(outcome);
        (self.totals.lost, self.totals.suspected) = (self.losses.count, self.losses.suspected);
        (self.totals, outcome)
    }
}

/// Copies data into the writer's ring, from which it reaches the disk; never from where it is: that
/// may be memory which no disk can take.
fn stage(writer: &mut Writer, mut data: &[u8]) -> io::Result<()> {
    while !data.is_empty() {
        let n = writer.write_with(data.len(), |room| {
            let n = room.len().min(data.len());
            room[..n].copy_from_slice(&data[..n]);
            Ok(n)
        })?;
        data = &data[n..];
    }
    Ok(())
}

/// Cuts what is not a whole frame from the end of a file, and writes all others into the index. If the
/// disk has no room for these lines either, frames are cut off until it has.
fn whole(file: &File, index: &mut Index) -> io::Result<()> {
    let size = file.metadata()?.len();
    index.waiting.retain(|(end, _)| *end <= size);
    loop {
        // Lines that were not written or synced, before their frames: the index is never ahead.
        index.file.set_len(index.len)?;
        let end = index.waiting.back().map_or(index.end, |(end, _)| *end);
        if end < size {
            file.set_len(end)?;
        }
        match index.write_lines(end) {
            Ok(()) => return Ok(()),
            Err(_) if index.waiting.pop_back().is_some() => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::os::fd::AsRawFd;
    use std::sync::{Arc, Barrier};

    use crate::alone::{alone, job};
    use crate::filter::{refuse, refuse_of};
    use crate::ways::RING;

    impl Output {
        fn create(plan: Plan, way: Way) -> Outcome<Output> {
            let mut output = Output::open(plan, way)?;
            output.empty()?;
            Ok(output)
        }
    }

    #[test]
    fn segments_have_a_number_before_the_extension() {
        assert_eq!(
            segment(Path::new("/a/out.raw"), 3),
            Path::new("/a/out-0003.raw")
        );
        assert_eq!(segment(Path::new("out"), 12345), Path::new("out-12345"));
    }

    #[test]
    fn of_two_that_begin_a_file_at_once_one_has_it() {
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        let begin = |path: PathBuf| {
            let barrier = Arc::new(Barrier::new(2));
            [0, 1].map(|_| {
                let (barrier, path) = (barrier.clone(), path.clone());
                thread::spawn(move || {
                    let plan = plan(&path, None, Durability::Process);
                    barrier.wait();
                    Output::open(plan, Way::Buffered)
                })
            })
        };
        let paths: Vec<_> = (0..32).map(|n| home.path().join(n.to_string())).collect();
        let begun: Vec<_> = paths.iter().cloned().map(begin).collect();
        for (pair, path) in begun.into_iter().zip(&paths) {
            let opened = pair.map(|thread| thread.join().unwrap());
            let (output, fail) = match opened {
                [Ok(output), Err(fail)] | [Err(fail), Ok(output)] => (output, fail),
                other => panic!("{other:?}"),
            };
            let fail = format!("{fail:?}");
            assert!(fail.contains("another program records to"), "{fail}");
            let about = std::fs::metadata(path).unwrap();
            let segment = output.current.as_ref().unwrap();
            let ours = segment.writer.file().metadata().unwrap();
            assert_eq!((about.dev(), about.ino()), (ours.dev(), ours.ino()));
            assert!(index_of(path).exists());
        }
    }

    #[test]
    fn what_was_removed_before_its_lock_is_made_anew() {
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = home.path().join("out");
        let first = Output::open(plan(&path, None, Durability::Process), Way::Buffered).unwrap();
        let waiting = plan(&path, None, Durability::Process);
        let waiting = thread::spawn(move || Output::open(waiting, Way::Buffered));
        let descriptors = || {
            let all = std::fs::read_dir("/proc/self/fd").unwrap();
            let names = all.filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok());
            names.filter(|name| *name == path).count()
        };
        // As when a camera does not start, while another recording waits for the lock.
        while descriptors() < 2 && !waiting.is_finished() {
            thread::sleep(Duration::from_millis(1));
        }
        drop(first);
        match waiting.join().unwrap() {
            Ok(_output) => assert!(path.exists() && index_of(&path).exists()),
            // Its patience ended before.
            Err(fail) => assert!(format!("{fail:?}").contains("another program records to")),
        }
    }

    #[test]
    fn names_of_frames_and_indices_are_known() {
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        let at = |name: &str| home.path().join(name);
        std::fs::write(at("day.raw"), "").unwrap();
        std::os::unix::fs::symlink("day.raw", at("link")).unwrap();
        std::os::unix::fs::symlink("day-0007.raw", at("to nothing yet")).unwrap();
        let dotted = |name: &str| home.path().join(".").join(name);
        let one = plan(&dotted("day.raw"), None, Durability::Process);
        let several = plan(&dotted("day.raw"), Some(1), Durability::Process);
        for (name, by_one, by_several) in [
            ("day.raw", true, false),
            ("day.raw.index", true, false),
            ("link", true, false),
            ("to nothing yet", false, true),
            ("day-0000.raw", false, true),
            ("day-0012.raw.index", false, true),
            ("day-12345.raw", false, true),
            ("day-12.raw", false, false),
            ("day-0000.png", false, false),
            ("now.raw", false, false),
            ("day.raw.part", false, false),
        ] {
            assert_eq!(one.writes(&at(name)), by_one, "{name}");
            assert_eq!(several.writes(&at(name)), by_several, "{name}");
        }
        assert!(!Plan { path: None, ..one }.writes(&at("day.raw")));
    }

    #[test]
    fn frames_go_to_nothing_but_files() {
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        let fifo = home.path().join("fifo");
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RWXU).unwrap();
        for path in [Path::new("/dev/null"), home.path(), &fifo] {
            let outcome = Output::create(plan(path, None, Durability::Process), Way::Buffered);
            let said = format!("{:?}", outcome.err());
            assert!(said.contains("not a regular file"), "{said}");
            assert!(!index_of(path).exists());
        }
    }

    #[test]
    fn segments_of_a_directory_are_not_put_beside_it() {
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        let card = home.path().join("card");
        std::fs::create_dir(&card).unwrap();
        for name in ["card", "card/", "card/.", "card/..", "not there/"] {
            let plan = plan(&home.path().join(name), Some(1), Durability::Process);
            let said = format!("{:?}", Output::create(plan, Way::Buffered).err());
            assert!(said.contains("names a directory"), "{said}");
        }
        let names = std::fs::read_dir(home.path()).unwrap();
        let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["card"]);
        assert_eq!(std::fs::read_dir(&card).unwrap().count(), 0);
    }

    #[test]
    fn a_file_without_an_index_is_left_as_it_was() {
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = home.path().join("out");
        std::fs::write(&path, "what was there").unwrap();
        let index = index_of(&path);
        let tries = |wanted: &str| {
            let outcome = Output::create(plan(&path, None, Durability::Process), Way::Buffered);
            let said = format!("{:?}", outcome.err());
            assert!(
                said.contains("out.index") && said.contains(wanted),
                "{said}"
            );
            assert_eq!(std::fs::read(&path).unwrap(), b"what was there");
        };
        // In a directory that is not there.
        std::os::unix::fs::symlink("nowhere/index", &index).unwrap();
        tries("cannot create");
        std::fs::remove_file(&index).unwrap();
        std::fs::create_dir(&index).unwrap();
        tries("not a regular file");
        std::fs::remove_dir(&index).unwrap();
        // Nobody reads from it: to open it would wait for ever.
        rustix::fs::mkfifoat(rustix::fs::CWD, &index, rustix::fs::Mode::RWXU).unwrap();
        tries("not a regular file");
    }

    #[test]
    fn what_a_file_had_before_is_gone() {
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        for way in [Way::Copy, Way::Buffered] {
            let path = home.path().join(way.to_string());
            for frames in [9, 3] {
                let plan = plan(&path, None, Durability::Process);
                let mut output = Output::create(plan, way).unwrap();
                for n in 0..frames {
                    let bytes = data(n + frames, 100_000);
                    output.write(&frame(n, 100_000), &bytes).unwrap();
                }
                output.finish(Ok(())).1.unwrap();
                let wanted: Vec<_> = (0..frames)
                    .flat_map(|n| data(n + frames, 100_000))
                    .collect();
                assert!(std::fs::read(&path).unwrap() == wanted);
                assert_eq!(lines(&index_of(&path)).len(), frames as usize);
            }
        }
    }

    fn frame(sequence: u32, len: usize) -> Frame {
        Frame {
            sequence,
            time: Duration::from_micros(u64::from(sequence) * 33_333),
            monotonic: true,
            taken: Duration::from_micros(u64::from(sequence) * 33_333),
            len,
            damaged: false,
        }
    }

    fn data(sequence: u32, len: usize) -> Vec<u8> {
        (0..len).map(|i| (i as u32 + sequence) as u8).collect()
    }

    /// What an index says: sequence, offset and length of each frame.
    fn lines(path: &Path) -> Vec<(u32, u64, usize)> {
        let text = std::fs::read_to_string(path).unwrap();
        assert!(text.ends_with('\n'));
        text.lines()
            .filter(|line| !line.starts_with('#'))
            .map(|line| {
                let fields: Vec<&str> = line.split(' ').collect();
                assert_eq!(fields.len(), 4, "{line}");
                (
                    fields[0].parse().unwrap(),
                    fields[2].parse().unwrap(),
                    fields[3].parse().unwrap(),
                )
            })
            .collect()
    }

    fn plan(path: &Path, segment: Option<u64>, durability: Durability) -> Plan {
        Plan {
            path: Some(path.to_path_buf()),
            segment,
            durability,
            header: "# test\n".into(),
            interval: None,
            block: None,
        }
    }

    #[test]
    fn every_segment_has_whole_frames_and_an_index_of_them() {
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        for way in [Way::Copy, Way::Buffered] {
            for durability in [Durability::Process, Durability::Safe, Durability::Sync] {
                let path = home.path().join(format!("{way}{durability:?}.raw"));
                let plan = plan(&path, Some(1_000_000), durability);
                let mut output = Output::create(plan, way).unwrap();
                let len = |n: u32| 150_000 + 1000 * n as usize;
                for n in 0..20 {
                    output.write(&frame(n, len(n)), &data(n, len(n))).unwrap();
                }
                let (totals, outcome) = output.finish(Ok(()));
                outcome.unwrap();
                assert_eq!(totals.frames, 20);
                let mut next = 0;
                for file in &totals.files {
                    let bytes = std::fs::read(file).unwrap();
                    assert!(bytes.len() <= 1_000_000);
                    let mut end = 0;
                    for (sequence, offset, length) in lines(&index_of(file)) {
                        assert_eq!((sequence, offset, length), (next, end, len(next)));
                        let at = offset as usize;
                        assert!(bytes[at..at + length] == data(sequence, length));
                        end += length as u64;
                        next += 1;
                    }
                    assert_eq!(end, bytes.len() as u64);
                }
                assert_eq!(next, 20);
                assert!(totals.files.len() > 2);
            }
        }
    }

    #[test]
    fn a_frame_of_odd_length_is_told_and_ends_its_segment() {
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        let found = pdio::explain(home.path()).unwrap().alignment;
        let Some(block) = found.map(|align| align.offset) else {
            eprintln!("skipped: no direct I/O in /var/tmp");
            return;
        };
        const LEN: usize = 64 << 10;
        // The third is short and ends its file. So is the fifth, whose file has too little in it to be
        // ended yet: one frame more is copied.
        let len = |n: u32| if n == 2 || n == 4 { LEN - 3 } else { LEN };
        let memory = vec![7; LEN + 4096];
        let whole = &memory[memory.as_ptr().align_offset(4096)..][..LEN];
        for (segment, files, uneven) in [(None, 1, 8), (Some(2 << 20), 3, 3)] {
            let path = home.path().join(format!("out{files}"));
            let plan = Plan {
                block: Some(block.into()),
                ..plan(&path, segment, Durability::Process)
            };
            let mut output = Output::create(plan, Way::Userptr).unwrap();
            let mut said = Vec::new();
            for n in 0..10 {
                output.write(&frame(n, len(n)), &whole[..len(n)]).unwrap();
                said.extend(output.notice());
            }
            let (totals, outcome) = output.finish(Ok(()));
            outcome.unwrap();
            assert_eq!((totals.frames, totals.files.len()), (10, files));
            assert_eq!(totals.uneven, uneven);
            assert_eq!(said.len(), 1, "{said:?}");
            assert!(said[0].contains("frame 2 is copied"), "{said:?}");
            // Nothing but frames is in the files.
            let mut n = 0;
            for file in &totals.files {
                let mut end = 0;
                for (sequence, offset, length) in lines(&index_of(file)) {
                    assert_eq!((sequence, offset, length), (n, end, len(n)));
                    (end, n) = (end + length as u64, n + 1);
                }
                assert_eq!(std::fs::metadata(file).unwrap().len(), end);
            }
            assert_eq!(n, 10);
        }
    }

    #[test]
    fn a_frame_behind_a_header_is_copied_and_told() {
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        let found = pdio::explain(home.path()).unwrap().alignment;
        let Some(align) = found.filter(|align| align.memory > 1) else {
            eprintln!("skipped: direct I/O in /var/tmp does not ask where memory begins");
            return;
        };
        let path = home.path().join("out");
        let plan = Plan {
            block: Some(align.offset.into()),
            ..plan(&path, None, Durability::Process)
        };
        let memory = vec![7; (64 << 10) + 4096 + 1];
        let behind = &memory[memory.as_ptr().align_offset(4096) + 1..][..64 << 10];
        let mut output = Output::create(plan, Way::Userptr).unwrap();
        output.write(&frame(0, behind.len()), behind).unwrap();
        let said = output.notice().unwrap();
        assert!(said.contains("address that is not aligned"), "{said}");
        let (totals, outcome) = output.finish(Ok(()));
        outcome.unwrap();
        assert_eq!((totals.frames, totals.uneven), (1, 1));
        assert_eq!(std::fs::read(&path).unwrap(), behind);
    }

    #[test]
    fn what_was_lost_is_in_its_place() {
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = home.path().join("out");
        let plan = Plan {
            interval: Some(Duration::from_micros(33_333)),
            ..plan(&path, None, Durability::Process)
        };
        let mut output = Output::create(plan, Way::Buffered).unwrap();
        output.write(&frame(0, 10), &data(0, 10)).unwrap();
        output.write(&frame(3, 10), &data(3, 10)).unwrap();
        let damaged = Frame {
            damaged: true,
            ..frame(4, 0)
        };
        output.write(&damaged, &[]).unwrap();
        output.write(&frame(6, 10), &data(6, 10)).unwrap();
        let later = Frame {
            sequence: 7,
            ..frame(8, 10)
        };
        output.write(&later, &data(7, 10)).unwrap();
        let (totals, outcome) = output.finish(Ok(()));
        outcome.unwrap();
        assert_eq!((totals.frames, totals.lost, totals.damaged), (4, 3, 1));
        assert_eq!(totals.suspected, 1);
        let text = std::fs::read_to_string(index_of(&path)).unwrap();
        let wanted = "# test\n0 0.000000 0 10\n# lost 1-2\n3 0.099999 10 10\n# damaged 4\n\
                      # lost 5\n6 0.199998 20 10\n# suspected 1 before 7\n7 0.266664 30 10\n";
        assert_eq!(text, wanted);
    }

    /// What a disk does before it takes the end of a file.
    type Disk = Box<dyn Fn() -> Outcome + Send>;

    thread_local! {
        static DISK: RefCell<Option<Disk>> = const { RefCell::new(None) };
    }

    /// Has this thread's next output end the files before the last on such a disk.
    pub fn busy(disk: impl Fn() -> Outcome + Send + 'static) {
        DISK.set(Some(Box::new(disk)));
    }

    pub(super) fn ending() -> impl Fn(Segment) -> Ended + Send + 'static {
        let disk = DISK.take();
        move |segment| segment.end(disk.as_ref().map_or(Ok(()), |disk| disk()))
    }

    /// A disk that takes the end of a file for each time that it is told so, or else after this long.
    fn slow() -> Sender<()> {
        let (go, may) = channel();
        busy(move || {
            let _ = may.recv_timeout(Duration::from_secs(20));
            Ok(())
        });
        go
    }

    #[test]
    fn a_file_that_takes_long_to_end_holds_up_no_frame() {
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        for durability in [Durability::Process, Durability::Safe, Durability::Sync] {
            for way in [Way::Copy, Way::Buffered] {
                let path = home.path().join(format!("{way}{durability:?}"));
                let plan = plan(&path, Some(45_000), durability);
                let go = slow();
                let mut output = Output::create(plan, way).unwrap();
                let write = |output: &mut Output, n| {
                    output.write(&frame(n, 10_000), &data(n, 10_000)).unwrap();
                };
                // The first file has not ended, and all of the second is there.
                (0..8).for_each(|n| write(&mut output, n));
                assert_eq!((output.totals.frames, output.totals.files.len()), (0, 2));
                // Nor is the third begun before it has.
                let later = thread::spawn(move || {
                    thread::sleep(Duration::from_millis(50));
                    (0..2).for_each(|_| go.send(()).unwrap());
                });
                write(&mut output, 8);
                assert!(output.totals.frames >= 4);
                write(&mut output, 9);
                let (totals, outcome) = output.finish(Ok(()));
                outcome.unwrap();
                later.join().unwrap();
                assert_eq!((totals.frames, totals.bytes), (10, 100_000));
                let wanted = (0..3).map(|n| segment(&path, n)).collect::<Vec<_>>();
                assert_eq!(totals.files, wanted);
                let mut next = 0;
                for file in &totals.files {
                    let bytes = std::fs::read(file).unwrap();
                    for (sequence, offset, length) in lines(&index_of(file)) {
                        assert_eq!((sequence, length), (next, 10_000));
                        let at = offset as usize;
                        assert!(bytes[at..at + length] == data(sequence, length));
                        next += 1;
                    }
                }
                assert_eq!(next, 10);
            }
        }
    }

    #[test]
    fn what_a_disk_keeps_for_long_is_promised_all_the_same() {
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        for durability in [Durability::Safe, Durability::Sync] {
            let path = home.path().join(format!("{durability:?}"));
            let go = slow();
            let plan = plan(&path, Some(45_000), durability);
            let mut output = Output::create(plan, Way::Copy).unwrap();
            for n in 0..6 {
                let bytes = data(n, 10_000);
                output.write(&frame(n, 10_000), &bytes).unwrap();
            }
            // As after kill -9 now: each frame is there, and so is its line.
            for (n, frames) in [(0, 4), (1, 2)] {
                let file = segment(&path, n);
                assert_eq!(lines(&index_of(&file)).len(), frames);
                let size = std::fs::metadata(&file).unwrap().len();
                assert_eq!(size, 10_000 * frames as u64);
            }
            go.send(()).unwrap();
            output.finish(Ok(())).1.unwrap();
        }
    }

    #[test]
    fn a_file_that_cannot_be_ended_ends_the_recording() {
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        let fail = |text: &str| Err(Fail::Failed(text.into()));
        // With a frame that comes later, at the end, and where something else is the end.
        for (name, at_once, end) in [
            ("at-once", true, Ok(())),
            ("at-end", false, Ok(())),
            ("signal", false, Err(Fail::Signal(2))),
            ("unplugged", false, fail("unplugged")),
        ] {
            for way in [Way::Copy, Way::Buffered] {
                let path = home.path().join(format!("{name}-{way}"));
                let plan = plan(&path, Some(45_000), Durability::Process);
                let (go, may) = channel::<()>();
                busy(move || {
                    let _ = may.recv_timeout(Duration::from_secs(20));
                    fail("no room")
                });
                let mut output = Output::create(plan, way).unwrap();
                let write =
                    |output: &mut Output, n| output.write(&frame(n, 10_000), &data(n, 10_000));
                let mut frames = 6;
                (0..frames).for_each(|n| write(&mut output, n).unwrap());
                go.send(()).unwrap();
                let mut end = match &end {
                    Ok(()) => Ok(()),
                    Err(Fail::Signal(number)) => Err(Fail::Signal(*number)),
                    Err(_) => fail("unplugged"),
                };
                while at_once && end.is_ok() {
                    thread::sleep(Duration::from_millis(20));
                    end = write(&mut output, frames);
                    frames += u32::from(end.is_ok());
                    assert!(frames < 9, "the third file was begun");
                }
                let (totals, outcome) = output.finish(end);
                assert!(
                    matches!(&outcome, Err(Fail::Failed(text)) if text == "no room"),
                    "{name}: {outcome:?}"
                );
                // What came before, and what came after it, is whole and indexed.
                assert_eq!((totals.frames, totals.files.len()), (frames.into(), 2));
                let counts: Vec<_> = totals
                    .files
                    .iter()
                    .map(|file| {
                        let frames = lines(&index_of(file)).len();
                        let size = std::fs::metadata(file).unwrap().len();
                        assert_eq!(size, 10_000 * frames as u64);
                        frames
                    })
                    .collect();
                assert_eq!(counts, [4, frames as usize - 4]);
            }
        }
    }

    #[test]
    fn what_ails_the_next_file_hides_nothing_of_the_one_before() {
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        for (broken, wanted) in [(true, "no room"), (false, "not a regular file")] {
            let path = home.path().join(format!("{broken}"));
            // The next file cannot be begun.
            std::fs::create_dir(segment(&path, 1)).unwrap();
            let plan = plan(&path, Some(45_000), Durability::Process);
            busy(move || match broken {
                true => Err(Fail::Failed("no room".into())),
                false => Ok(()),
            });
            let mut output = Output::create(plan, Way::Buffered).unwrap();
            let mut end = Ok(());
            let mut frames = 0;
            while end.is_ok() {
                end = output.write(&frame(frames, 10_000), &data(frames, 10_000));
                frames += 1;
            }
            let (totals, outcome) = output.finish(end);
            let said = format!("{outcome:?}");
            assert!(said.contains(wanted), "{said}");
            assert_eq!((totals.frames, totals.files), (4, vec![segment(&path, 0)]));
        }
    }

    #[test]
    fn each_file_has_a_ring_of_the_same_size() {
        let Some(path) = job() else {
            let home = tempfile::tempdir_in("/var/tmp").unwrap();
            // What other streams of the process have would count.
            return alone(
                "output::tests::each_file_has_a_ring_of_the_same_size",
                &home.path().join("out"),
            );
        };
        let go = slow();
        let plan = plan(&path, Some(45_000), Durability::Process);
        let mut output = Output::create(plan, Way::Copy).unwrap();
        let mut rings = Vec::new();
        for n in 0..12 {
            // The first file ends only when the third is to begin.
            if n == 8 {
                (0..2).for_each(|_| go.send(()).unwrap());
            }
            let bytes = data(n, 10_000);
            output.write(&frame(n, 10_000), &bytes).unwrap();
            rings.push(output.current.as_ref().unwrap().writer.stats().memory);
        }
        output.finish(Ok(())).1.unwrap();
        assert!(rings.iter().all(|ring| *ring == rings[0]), "{rings:?}");
    }

    #[test]
    fn no_thread_is_made_for_one_file() {
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = home.path().join("out");
        let output = |segment| {
            Output::create(plan(&path, segment, Durability::Process), Way::Buffered).unwrap()
        };
        assert!(output(None).ender.is_none());
        assert!(output(Some(1)).ender.is_some());
    }

    #[test]
    fn what_was_lost_before_a_segment_is_named_in_it() {
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = home.path().join("out");
        let plan = plan(&path, Some(15), Durability::Process);
        let mut output = Output::create(plan, Way::Buffered).unwrap();
        output.write(&frame(0, 10), &data(0, 10)).unwrap();
        output.write(&frame(2, 10), &data(2, 10)).unwrap();
        let (totals, outcome) = output.finish(Ok(()));
        outcome.unwrap();
        let read = |i: usize| std::fs::read_to_string(index_of(&totals.files[i])).unwrap();
        assert_eq!(read(0), "# test\n0 0.000000 0 10\n");
        assert_eq!(read(1), "# test\n# lost 1\n2 0.066666 0 10\n");
    }

    /// From now on this process's files take no more than this.
    fn limit_files(bytes: u64) {
        // SAFETY: plain system calls on valid memory.
        unsafe {
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            let limit = libc::rlimit {
                rlim_cur: bytes,
                rlim_max: libc::RLIM_INFINITY,
            };
            assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &limit), 0);
        }
    }

    #[test]
    fn lines_follow_each_other_after_half_a_line() {
        let Some(place) = job() else {
            let home = tempfile::tempdir_in("/var/tmp").unwrap();
            // The limit is the whole process's.
            return alone(
                "output::tests::lines_follow_each_other_after_half_a_line",
                &home.path().join("out"),
            );
        };
        std::fs::write(&place, [0; 20]).unwrap();
        let mut index = Index::open(&place, false).unwrap().0;
        index.begin("# test\n").unwrap();
        let read = || std::fs::read_to_string(index_of(&place)).unwrap();
        let size = || std::fs::metadata(&place).unwrap().len();
        index.waiting.push_back((10, "0 0.000000 0 10\n".into()));
        limit_files(12);
        index.write_lines(20).unwrap_err();
        limit_files(libc::RLIM_INFINITY);
        let file = File::options().write(true).open(&place).unwrap();
        whole(&file, &mut index).unwrap();
        assert_eq!((read(), size()), ("# test\n0 0.000000 0 10\n".into(), 10));
        // A disk that stays full.
        std::fs::write(&place, [0; 20]).unwrap();
        index.waiting.push_back((20, "1 0.000000 10 10\n".into()));
        limit_files(28);
        index.write_lines(20).unwrap_err();
        whole(&file, &mut index).unwrap();
        assert_eq!((read(), size()), ("# test\n0 0.000000 0 10\n".into(), 10));
        assert_eq!(index.frames, 1);
    }

    #[test]
    fn an_index_that_is_lost_when_it_is_closed_is_a_failure() {
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        // What is not closed keeps its lock: each has a file of its own.
        for (name, end) in [("1.out", Ok(())), ("2.out", Err(Fail::Signal(15)))] {
            let plan = plan(&home.path().join(name), None, Durability::Process);
            let mut output = Output::create(plan, Way::Buffered).unwrap();
            output.write(&frame(0, 1000), &data(0, 1000)).unwrap();
            let index = output.current.as_ref().unwrap().index.as_ref().unwrap();
            let index = index.file.as_raw_fd();
            // The filter ends with its thread.
            let work = move || {
                let refused = refuse_of(libc::SYS_close, index, libc::EIO);
                refused.ok().map(|()| output.finish(end).1)
            };
            let Some(outcome) = std::thread::spawn(work).join().unwrap() else {
                eprintln!("skipped: no filters of system calls");
                return;
            };
            let said = format!("{outcome:?}");
            assert!(said.contains("out.index': Input/output error"), "{said}");
        }
    }

    #[test]
    fn a_signal_hides_no_frame_that_cannot_be_written() {
        let Some(home) = job() else {
            let home = tempfile::tempdir_in("/var/tmp").unwrap();
            // The limit is the whole process's.
            return alone(
                "output::tests::a_signal_hides_no_frame_that_cannot_be_written",
                home.path(),
            );
        };
        // The second frame, which is still in the ring, has no room in the file; its line has none in the index.
        for (len, most, what) in [(10_000, 15_000, "frame"), (10, 30, "frame.index")] {
            let path = home.join("frame");
            let plan = plan(&path, None, Durability::Process);
            let mut output = Output::create(plan, Way::Copy).unwrap();
            output.write(&frame(0, len), &data(0, len)).unwrap();
            output.current.as_mut().unwrap().writer.flush().unwrap();
            limit_files(most);
            let written = output.write(&frame(1, len), &data(1, len));
            let (totals, outcome) = output.finish(written.and(Err(Fail::Signal(15))));
            limit_files(libc::RLIM_INFINITY);
            let said = format!("{outcome:?}");
            assert!(said.contains(&format!("{what}': File too large")), "{said}");
            assert_eq!(totals.frames, 1);
            assert_eq!(lines(&index_of(&path)), [(0, 0, len)]);
            assert_eq!(std::fs::metadata(&path).unwrap().len(), len as u64);
        }
    }

    #[test]
    fn the_ring_is_what_is_asked_for() {
        let Some(path) = job() else {
            let home = tempfile::tempdir_in("/var/tmp").unwrap();
            // What other streams of the process have would count.
            return alone(
                "output::tests::the_ring_is_what_is_asked_for",
                &home.path().join("out"),
            );
        };
        let about = std::fs::read_to_string("/proc/meminfo").unwrap();
        let available = about
            .lines()
            .find_map(|line| line.strip_prefix("MemAvailable:")?.trim().split(' ').next())
            .map_or(0, |kib| kib.parse::<usize>().unwrap() << 10);
        let mut options = Way::Copy.options(Durability::Process);
        let mut writer = options.create(true).open_writer(path).unwrap();
        writer.prepare();
        let ring = writer.stats().memory as usize;
        if ring == 0 {
            eprintln!("skipped: no direct I/O in /var/tmp");
        } else if available > 2 << 30 {
            assert_eq!(ring, RING);
        } else {
            assert!(ring <= RING, "{ring}");
        }
    }

    #[test]
    fn each_frame_is_synced_with_the_name_of_its_file() {
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        for (durability, synced) in [(Durability::Safe, false), (Durability::Sync, true)] {
            let plan = plan(&home.path().join("out"), None, durability);
            // The filter ends with its thread.
            let work = move || {
                let refused = refuse(libc::SYS_fsync, libc::EIO);
                refused
                    .ok()
                    .map(|()| Output::create(plan, Way::Buffered).map(drop))
            };
            let Some(outcome) = std::thread::spawn(work).join().unwrap() else {
                eprintln!("skipped: no filters of system calls");
                return;
            };
            let said = format!("{outcome:?}");
            assert_eq!(said.contains("cannot sync directory"), synced, "{said}");
        }
    }

    #[test]
    fn an_index_is_empty_on_the_disk_before_its_file_is() {
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        for durability in [Durability::Process, Durability::Safe, Durability::Sync] {
            for segmented in [false, true] {
                let path = home.path().join(format!("{durability:?}{segmented}"));
                let (size, last) = match segmented {
                    true => (Some(1000), segment(&path, 1)),
                    false => (None, path.clone()),
                };
                std::fs::write(&last, "what was there").unwrap();
                std::fs::write(index_of(&last), "# old\n0 0.000000 0 14\n").unwrap();
                let mut output = Output::open(plan(&path, size, durability), Way::Buffered);
                if segmented {
                    let first = output.as_mut().unwrap();
                    first.empty().unwrap();
                    first.write(&frame(0, 1000), &data(0, 1000)).unwrap();
                }
                // The filter ends with its thread.
                let work = move || {
                    let mut output = output.unwrap();
                    refuse(libc::SYS_fdatasync, libc::EIO).ok()?;
                    Some(match segmented {
                        true => output.next_segment(),
                        false => output.empty().map(drop),
                    })
                };
                let Some(outcome) = std::thread::spawn(work).join().unwrap() else {
                    eprintln!("skipped: no filters of system calls");
                    return;
                };
                let there = std::fs::metadata(&last).unwrap().len();
                match durability {
                    Durability::Sync => {
                        let said = format!("{outcome:?}");
                        assert!(said.contains(".index': Input/output error"), "{said}");
                        assert_eq!(there, 14);
                    }
                    _ => {
                        outcome.unwrap();
                        assert_eq!(there, 0);
                    }
                }
                assert_eq!(std::fs::read(index_of(&last)).unwrap(), b"# test\n");
            }
        }
    }

    #[test]
    fn an_index_that_cannot_be_synced_names_no_frame_that_is_cut_off() {
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        // A disk that never syncs again, and one that does at the next attempt.
        for (lasting, frames) in [(true, 3), (false, 4)] {
            let path = home.path().join(format!("out{frames}"));
            let plan = plan(&path, None, Durability::Sync);
            let mut output = Output::create(plan, Way::Buffered).unwrap();
            for n in 0..3 {
                output.write(&frame(n, 1000), &data(n, 1000)).unwrap();
            }
            // The filter ends with its thread.
            let work = move || {
                let index = output.current.as_ref().unwrap().index.as_ref();
                let fd = index.unwrap().file.as_raw_fd();
                if refuse_of(libc::SYS_fdatasync, fd, libc::EIO).is_err() {
                    return None;
                }
                let failed = output.write(&frame(3, 1000), &data(3, 1000));
                let failed = Err(failed.unwrap_err());
                Some(match lasting {
                    true => Ok(output.finish(failed)),
                    false => Err((output, failed)),
                })
            };
            let Some(ended) = std::thread::spawn(work).join().unwrap() else {
                eprintln!("skipped: no filters of system calls");
                return;
            };
            let (totals, outcome) = ended.unwrap_or_else(|(output, failed)| output.finish(failed));
            let said = format!("{outcome:?}");
            assert!(
                said.contains("cannot write") && said.contains(".index"),
                "{said}"
            );
            assert_eq!(totals.frames, frames);
            let sequences: Vec<_> = lines(&index_of(&path)).iter().map(|line| line.0).collect();
            assert_eq!(sequences, (0..frames as u32).collect::<Vec<_>>());
            assert_eq!(std::fs::metadata(&path).unwrap().len(), 1000 * frames);
        }
    }

    #[test]
    fn a_file_that_was_renamed_is_ended_and_no_other() {
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        let [path, moved] = ["out", "moved"].map(|name| home.path().join(name));
        let plan = plan(&path, None, Durability::Process);
        let mut output = Output::create(plan, Way::Buffered).unwrap();
        for n in 0..3 {
            output.write(&frame(n, 1000), &data(n, 1000)).unwrap();
        }
        let segment = output.current.as_mut().unwrap();
        segment.writer.write_all(&[9; 500]).unwrap();
        std::fs::rename(&path, &moved).unwrap();
        std::fs::write(&path, [7; 5000]).unwrap();
        let (totals, outcome) = output.finish(Err(Fail::Failed("full".into())));
        assert!(matches!(outcome, Err(Fail::Failed(text)) if text == "full"));
        assert_eq!(totals.frames, 3);
        assert_eq!(std::fs::metadata(&moved).unwrap().len(), 3000);
        assert_eq!(std::fs::read(&path).unwrap(), [7; 5000]);
    }

    #[test]
    fn a_failure_leaves_whole_frames_all_indexed() {
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = home.path().join("out");
        let mut output =
            Output::create(plan(&path, None, Durability::Process), Way::Buffered).unwrap();
        for n in 0..3 {
            output.write(&frame(n, 1000), &data(n, 1000)).unwrap();
        }
        // As where a disk takes half of a frame.
        let segment = output.current.as_mut().unwrap();
        segment.writer.write_all(&[9; 500]).unwrap();
        let (totals, outcome) = output.finish(Err(Fail::Failed("full".into())));
        assert!(matches!(outcome, Err(Fail::Failed(text)) if text == "full"));
        assert_eq!(totals.frames, 3);
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 3000);
        assert_eq!(lines(&index_of(&path)).len(), 3);
    }
}
