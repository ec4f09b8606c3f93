// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pdio dd`: GNU dd's operands, counts and messages on pdio streams.
//!
//! Regular files and block devices go through [`pdio::Reader`] and [`pdio::Writer`]; pipes, sockets
//! and character devices, and files open for appending, are read and written call by call.

use std::fs::File;
use std::io::{self, BufRead, IoSlice, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::time::Instant;

use pdio::{OpenOptions, Reader, Strategy, Writer};
use rustix::fs::{Advice, OFlags};
use rustix::io::{Errno, ReadWriteFlags};
use serde_json::json;

use crate::block::Block;
use crate::report::{copied, quoted, reason, say, six_digits, Fail, Outcome};
use crate::signals::{Ready, Signals};
use crate::size;

const OPERANDS: &str = "Operands:
  if=FILE       read FILE instead of standard input
  of=FILE       write FILE instead of standard output; it is emptied from the
                seek position on, except with conv=notrunc
  bs=N          read and write blocks of N bytes (512); short reads are written
                as they come
  ibs=N obs=N   read, write blocks of N bytes; input is gathered to whole blocks
  count=N       copy N input blocks, or N bytes if N has a B in it
  skip=N        (iseek) pass over N input blocks first
  seek=N        (oseek) begin N output blocks into the output
  conv=LIST     notrunc, excl, nocreat, sparse (seek over blocks of zeros), sync
                (pad short input blocks with zeros), noerror (go on after read
                errors), fdatasync, fsync (before it ends)
  iflag=LIST    direct, dsync, sync, nocache, fullblock, nonblock, noatime,
  oflag=LIST    noctty, nofollow; count_bytes, skip_bytes (iflag),
                seek_bytes, append (oflag)
  status=WHAT   none, noxfer, progress

N is a number with c 1, w 2, b 512, kB 1000, K 1024, MB, M, GB, G, and so on;
factors may be joined: 2x80b.

Block sizes are those of GNU dd's counts; requests to the device are as large as
is best. direct sends everything possible past the page cache, whatever bs is
and however it is aligned, tails included. nocache drops what was copied from
the page cache. Without either the cheapest way is taken.

SIGUSR1 prints the counts so far. With --json they are printed as one object, on
standard error, as standard output may be the output.";

/// Copy with dd's operands.
///
/// Takes the operands of GNU dd and prints what it prints. Not offered: conversions of characters
/// (conv=ascii, ebcdic, ibm, block, unblock, lcase, ucase, swab) and the flags directory, cio,
/// binary and text.
#[derive(clap::Args, Debug)]
#[command(after_help = OPERANDS, after_long_help = format!("{OPERANDS}\n\n{}", crate::EXIT_STATUS))]
pub struct Dd {
    /// Operands, see below
    #[arg(value_name = "OPERAND")]
    operands: Vec<String>,
    /// Print the statistics as JSON instead, to standard error
    #[arg(long)]
    json: bool,
}

#[derive(Default)]
struct Side {
    path: Option<PathBuf>,
    block: usize,
    direct: bool,
    nocache: bool,
    /// `O_*` to open with.
    flags: u32,
    /// Whether `skip` or `seek` counts bytes.
    bytes: bool,
    /// Where to begin, in blocks or bytes.
    begin: u64,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Status {
    #[default]
    All,
    None,
    NoXfer,
    Progress,
}

#[derive(Default)]
struct Plan {
    input: Side,
    output: Side,
    /// One block size for both: input blocks are written as they come.
    same_block: bool,
    count: Option<u64>,
    count_bytes: bool,
    fullblock: bool,
    notrunc: bool,
    excl: bool,
    nocreat: bool,
    sparse: bool,
    pad: bool,
    noerror: bool,
    fdatasync: bool,
    fsync: bool,
    status: Status,
}

fn usage<T>(text: impl Into<String>) -> Outcome<T> {
    Err(Fail::Usage(text.into()))
}

impl Plan {
    fn parse(operands: &[String]) -> Outcome<Plan> {
        let mut plan = Plan::default();
        let (mut ibs, mut obs, mut bs) = (512, 512, None);
        // Whether count, skip and seek were given in bytes; flags can say so too.
        let mut counts = (false, false, false);
        for operand in operands {
            let Some((name, value)) = operand.split_once('=') else {
                return usage(format!(
                    "unrecognized operand {}: operands are name=value",
                    quoted(operand)
                ));
            };
            let number =
                || size::parse(value).map_err(|text| Fail::Usage(format!("{operand}: {text}")));
            let block = || match number()? {
                0 => usage(format!("{operand}: a block has at least one byte")),
                n => Ok(usize::try_from(n).unwrap_or(usize::MAX)),
            };
            let in_bytes = value.contains('B');
            match name {
                "if" => plan.input.path = Some(value.into()),
                "of" => plan.output.path = Some(value.into()),
                "bs" => bs = Some(block()?),
                "ibs" => ibs = block()?,
                "obs" => obs = block()?,
                "count" => (plan.count, counts.0) = (Some(number()?), in_bytes),
                "skip" | "iseek" => (plan.input.begin, counts.1) = (number()?, in_bytes),
                "seek" | "oseek" => (plan.output.begin, counts.2) = (number()?, in_bytes),
                "conv" => plan.conversions(value)?,
                "iflag" => plan.flags(value, true)?,
                "oflag" => plan.flags(value, false)?,
                "status" => {
                    plan.status = match value {
                        "none" => Status::None,
                        "noxfer" => Status::NoXfer,
                        "progress" => Status::Progress,
                        _ => {
                            return usage(format!(
                                "status={value}: it can be none, noxfer or progress"
                            ))
                        }
                    }
                }
                "cbs" => {
                    return usage("cbs=: records of characters are not converted; use dd for that")
                }
                _ => return usage(format!("unrecognized operand {}", quoted(operand))),
            }
        }
        if plan.excl && plan.nocreat {
            return usage("conv=excl (create it) and conv=nocreat (do not) exclude each other");
        }
        if plan.input.direct && plan.input.nocache || plan.output.direct && plan.output.nocache {
            return usage(
                "direct (past the page cache) and nocache (through it) exclude each other",
            );
        }
        plan.count_bytes |= counts.0;
        plan.input.bytes |= counts.1;
        plan.output.bytes |= counts.2;
        plan.same_block = bs.is_some();
        plan.input.block = bs.unwrap_or(ibs);
        plan.output.block = bs.unwrap_or(obs);
        for side in [&plan.input, &plan.output] {
            let begin = match side.bytes {
                true => Some(side.begin),
                false => side.begin.checked_mul(side.block as u64),
            };
            if begin.is_none_or(|at| i64::try_from(at).is_err()) {
                return usage(format!(
                    "{} blocks of {} bytes are beyond what a file can have",
                    side.begin, side.block
                ));
            }
        }
        Ok(plan)
    }

    fn conversions(&mut self, list: &str) -> Outcome {
        for word in list.split(',') {
            match word {
                "notrunc" => self.notrunc = true,
                "excl" => self.excl = true,
                "nocreat" => self.nocreat = true,
                "sparse" => self.sparse = true,
                "sync" => self.pad = true,
                "noerror" => self.noerror = true,
                "fdatasync" => self.fdatasync = true,
                "fsync" => self.fsync = true,
                "ascii" | "ebcdic" | "ibm" | "block" | "unblock" | "lcase" | "ucase" | "swab" => {
                    return usage(format!(
                        "conv={word}: characters are not converted; pipe through dd or tr for that"
                    ))
                }
                _ => return usage(format!("invalid conversion: {}", quoted(word))),
            }
        }
        Ok(())
    }

    fn flags(&mut self, list: &str, input: bool) -> Outcome {
        let which = if input { "iflag" } else { "oflag" };
        for word in list.split(',') {
            let side = if input {
                &mut self.input
            } else {
                &mut self.output
            };
            match word {
                "direct" => side.direct = true,
                "nocache" => side.nocache = true,
                "dsync" => side.flags |= OFlags::DSYNC.bits(),
                "sync" => side.flags |= OFlags::SYNC.bits(),
                "nonblock" => side.flags |= OFlags::NONBLOCK.bits(),
                "noatime" => side.flags |= OFlags::NOATIME.bits(),
                "noctty" => side.flags |= OFlags::NOCTTY.bits(),
                "nofollow" => side.flags |= OFlags::NOFOLLOW.bits(),
                "append" if !input => side.flags |= OFlags::APPEND.bits(),
                "fullblock" if input => self.fullblock = true,
                "count_bytes" if input => self.count_bytes = true,
                "skip_bytes" if input => side.bytes = true,
                "seek_bytes" if !input => side.bytes = true,
                "directory" | "cio" | "binary" | "text" => {
                    return usage(format!(
                        "{which}={word} means nothing here; use dd for that"
                    ))
                }
                _ => return usage(format!("invalid {which}: {}", quoted(word))),
            }
        }
        Ok(())
    }
}

impl Side {
    fn strategy(&self, write: bool) -> Strategy {
        match (self.direct, self.nocache && write) {
            (true, _) => Strategy::Direct,
            (_, true) => Strategy::DontCache,
            _ => Strategy::Auto,
        }
    }

    fn begin_bytes(&self) -> u64 {
        match self.bytes {
            true => self.begin,
            false => self.begin * self.block as u64,
        }
    }

    /// Drops `[from, to)` from the page cache; everything from `from` on without `to`.
    fn drop_cache(&self, fd: BorrowedFd<'_>, from: u64, to: Option<u64>) {
        if self.nocache {
            let length = to.and_then(|to| std::num::NonZeroU64::new(to.saturating_sub(from)));
            // Advice; a pipe has no page cache.
            let _ = rustix::fs::fadvise(fd, from, length, Advice::DontNeed);
        }
    }
}

/// Whether reads and writes have no offset and may wait for somebody else.
fn is_stream(file: &File) -> io::Result<bool> {
    let kind = file.metadata()?.file_type();
    Ok(!(kind.is_file() || kind.is_block_device()))
}

enum Source {
    Seekable(Box<Reader>),
    Stream { file: File, waits: bool },
}

struct Input {
    source: Source,
    name: String,
    fullblock: bool,
}

/// What reading can come to besides bytes.
enum Trouble {
    Io(io::Error),
    Signal,
}

impl Input {
    fn open(plan: &Plan) -> Outcome<Input> {
        let side = &plan.input;
        let (file, name) = match &side.path {
            Some(path) => {
                let opened = File::options()
                    .read(true)
                    .custom_flags(side.flags as i32)
                    .open(path);
                let failed =
                    |e| Fail::Failed(format!("failed to open {}: {}", quoted(path), reason(&e)));
                (opened.map_err(failed)?, quoted(path))
            }
            None => {
                let name = quoted("standard input");
                let copy = duplicate(io::stdin().as_fd(), side.flags, &name)?;
                (copy, name)
            }
        };
        let failed = |e: io::Error| Fail::Failed(format!("error reading {name}: {}", reason(&e)));
        let kind = file.metadata().map_err(failed)?.file_type();
        if kind.is_dir() {
            return Err(failed(Errno::ISDIR.into()));
        }
        // /dev/zero and its like give less than asked only when something interrupts, be it the
        // completion of a write; that is no record of its own.
        let device = file.metadata().map_err(failed)?.rdev();
        let endless = kind.is_char_device() && rustix::fs::major(device) == MEMORY_DEVICES;
        let source = if is_stream(&file).map_err(failed)? {
            let waits = !kind.is_char_device() || rustix::termios::isatty(&file);
            Source::Stream { file, waits }
        } else {
            let mut options = OpenOptions::new();
            options.strategy(side.strategy(false));
            Source::Seekable(Box::new(options.reader_from(file).map_err(failed)?))
        };
        Ok(Input {
            source,
            name,
            fullblock: plan.fullblock || endless,
        })
    }

    fn read_once(&mut self, buffer: &mut [u8], signals: &Signals) -> Result<usize, Trouble> {
        match &mut self.source {
            Source::Seekable(reader) => reader.read(buffer).map_err(Trouble::Io),
            Source::Stream { file, waits } => loop {
                if *waits {
                    match signals.wait(file.as_fd(), false, None) {
                        Ok(Ready::Yes) => {}
                        Ok(_) => return Err(Trouble::Signal),
                        Err(error) => return Err(Trouble::Io(error)),
                    }
                }
                match file.read(buffer) {
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                    result => return result.map_err(Trouble::Io),
                }
            },
        }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match &self.source {
            Source::Seekable(reader) => reader.as_fd(),
            Source::Stream { file, .. } => file.as_fd(),
        }
    }
}

/// A descriptor of our own for standard input or output. Flags change on the description, which
/// is how GNU dd does it too.
fn duplicate(fd: BorrowedFd<'_>, flags: u32, name: &str) -> Outcome<File> {
    let copy = || -> io::Result<File> {
        let copy = fd.try_clone_to_owned()?;
        if flags != 0 {
            let now = rustix::fs::fcntl_getfl(&copy)?;
            rustix::fs::fcntl_setfl(&copy, now | OFlags::from_bits_retain(flags))?;
        }
        Ok(File::from(copy))
    };
    copy().map_err(|e| Fail::Failed(format!("failed to open {name}: {}", reason(&e))))
}

enum Sink {
    Seekable(Box<Writer>),
    Stream {
        file: File,
        /// Whether it takes `RWF_NOWAIT`, so that a signal can end the wait.
        nowait: bool,
    },
}

struct Output {
    sink: Sink,
    name: String,
    /// Bytes accepted from dd, holes included.
    position: u64,
    /// The last block was left out as a hole.
    hole_last: bool,
    regular: bool,
}

impl Output {
    fn open(plan: &Plan) -> Outcome<Output> {
        let side = &plan.output;
        let begin = side.begin_bytes();
        let (file, name) = match &side.path {
            Some(path) => {
                let mut options = File::options();
                options
                    .write(true)
                    .create(!plan.nocreat)
                    .create_new(plan.excl)
                    .custom_flags(side.flags as i32);
                let failed =
                    |e| Fail::Failed(format!("failed to open {}: {}", quoted(path), reason(&e)));
                let file = options.open(path).map_err(failed)?;
                let about = file.metadata().map_err(failed)?;
                if !plan.notrunc && about.is_file() {
                    refuse_same_file(plan, &about, begin)?;
                    file.set_len(begin).map_err(|e| {
                        Fail::Failed(format!(
                            "failed to truncate to {begin} bytes in output file {}: {}",
                            quoted(path),
                            reason(&e)
                        ))
                    })?;
                }
                (file, quoted(path))
            }
            None => {
                let name = quoted("standard output");
                (duplicate(io::stdout().as_fd(), side.flags, &name)?, name)
            }
        };
        let failed = |e: io::Error| Fail::Failed(format!("error writing {name}: {}", reason(&e)));
        let stream = is_stream(&file).map_err(failed)?;
        let regular = file.metadata().map_err(failed)?.is_file();
        let now = rustix::fs::fcntl_getfl(&file).map_err(|e| failed(e.into()))?;
        let sink = if stream || now.contains(OFlags::APPEND) {
            Sink::Stream {
                file,
                nowait: stream,
            }
        } else {
            let mut options = OpenOptions::new();
            options.strategy(side.strategy(true));
            Sink::Seekable(Box::new(options.writer_from(file).map_err(failed)?))
        };
        Ok(Output {
            sink,
            name,
            position: 0,
            hole_last: false,
            regular,
        })
    }

    /// Passes over the beginning of the output.
    fn begin(&mut self, bytes: u64) -> Outcome {
        if bytes > 0 {
            let to = SeekFrom::Current(bytes as i64);
            let moved = match &mut self.sink {
                Sink::Seekable(writer) => writer.seek(to),
                Sink::Stream { file, .. } => file.seek(to),
            };
            moved
                .map_err(|e| Fail::Failed(format!("{}: cannot seek: {}", self.name, reason(&e))))?;
        }
        self.position = bytes;
        Ok(())
    }

    /// Writes all of `data`; says how much of it was accepted if that fails.
    fn write(&mut self, data: &[u8], signals: &Signals) -> Result<(), (usize, Trouble)> {
        let mut done = 0;
        self.hole_last = false;
        while done < data.len() {
            let result = match &mut self.sink {
                Sink::Seekable(writer) => writer.write(&data[done..]),
                Sink::Stream { file, nowait } => {
                    match write_stream(file, nowait, &data[done..], signals) {
                        Ok(n) => Ok(n),
                        Err(Trouble::Io(error)) => Err(error),
                        Err(Trouble::Signal) if signals.ended().is_none() => continue,
                        Err(trouble) => return Err((done, trouble)),
                    }
                }
            };
            match result {
                Ok(0) => return Err((done, Trouble::Io(io::ErrorKind::WriteZero.into()))),
                Ok(n) => {
                    done += n;
                    self.position += n as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err((done, Trouble::Io(error))),
            }
        }
        Ok(())
    }

    /// Passes over a block of zeros; `false` where there can be no hole.
    fn hole(&mut self, bytes: usize) -> bool {
        let Sink::Seekable(writer) = &mut self.sink else {
            return false;
        };
        if writer.seek(SeekFrom::Current(bytes as i64)).is_err() {
            return false;
        }
        self.position += bytes as u64;
        self.hole_last = true;
        true
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match &self.sink {
            Sink::Seekable(writer) => writer.as_fd(),
            Sink::Stream { file, .. } => file.as_fd(),
        }
    }

    /// Hands everything to the kernel and makes it durable where asked.
    fn settle(&mut self, plan: &Plan) -> Result<(), String> {
        let name = &self.name;
        let error = |what: &str, e: io::Error| format!("{what} {name}: {}", reason(&e));
        if let Sink::Seekable(writer) = &mut self.sink {
            writer.flush().map_err(|e| error("error writing", e))?;
            let end = writer
                .stream_position()
                .map_err(|e| error("error writing", e))?;
            let size = writer.file().metadata().map(|m| m.len()).unwrap_or(end);
            if self.hole_last && self.regular && size < end {
                writer
                    .set_len(end)
                    .map_err(|e| error("failed to extend", e))?;
            }
        }
        if plan.fsync {
            let result = rustix::fs::fsync(self.fd());
            result.map_err(|e| error("fsync failed for", e.into()))?;
        } else if plan.fdatasync {
            let result = rustix::fs::fdatasync(self.fd());
            result.map_err(|e| error("fdatasync failed for", e.into()))?;
        }
        Ok(())
    }
}

/// Emptying the output would destroy the input.
fn refuse_same_file(plan: &Plan, output: &std::fs::Metadata, begin: u64) -> Outcome {
    let input = match &plan.input.path {
        Some(path) => std::fs::metadata(path),
        None => io::stdin()
            .as_fd()
            .try_clone_to_owned()
            .and_then(|fd| File::from(fd).metadata()),
    };
    let same = input.is_ok_and(|i| (i.dev(), i.ino()) == (output.dev(), output.ino()));
    if same && begin < output.len() {
        return usage("input and output are the same file, which would be emptied first: conv=notrunc keeps it");
    }
    Ok(())
}

/// One write to a pipe or device. Where the kernel can do without waiting, a signal ends the wait.
fn write_stream(
    file: &mut File,
    nowait: &mut bool,
    data: &[u8],
    signals: &Signals,
) -> Result<usize, Trouble> {
    while *nowait {
        let parts = [IoSlice::new(data)];
        match rustix::io::pwritev2(&*file, &parts, u64::MAX, ReadWriteFlags::NOWAIT) {
            Ok(n) => return Ok(n),
            Err(Errno::AGAIN) => match signals.wait(file.as_fd(), true, None) {
                Ok(Ready::Signal) => return Err(Trouble::Signal),
                Ok(_) => {}
                Err(error) => return Err(Trouble::Io(error)),
            },
            Err(Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS | Errno::SPIPE) => *nowait = false,
            Err(error) => return Err(Trouble::Io(error.into())),
        }
    }
    file.write(data).map_err(Trouble::Io)
}

/// Records and bytes so far.
#[derive(Default)]
struct Counts {
    in_full: u64,
    in_partial: u64,
    out_full: u64,
    out_partial: u64,
    bytes: u64,
}

struct Copy<'a> {
    plan: &'a Plan,
    json: bool,
    signals: &'a Signals,
    counts: Counts,
    since: Instant,
    shown: u64,
    /// Whether the last line on the terminal is a progress line.
    line_open: bool,
    /// Whether nothing more can be written.
    write_failed: bool,
}

/// The memory for a block of each side.
struct Blocks {
    input: Block,
    /// Gathers input blocks to output blocks, if those differ.
    output: Block,
}

impl Blocks {
    fn new(plan: &Plan) -> Outcome<Blocks> {
        let output = if plan.same_block {
            0
        } else {
            plan.output.block
        };
        Ok(Blocks {
            input: Block::new(plan.input.block, "the input block")?,
            output: Block::new(output, "the output block")?,
        })
    }
}

impl Copy<'_> {
    fn complain(&mut self, text: &str) {
        if std::mem::take(&mut self.line_open) {
            say("");
        }
        say(format_args!("pdio dd: {text}"));
    }

    fn summary(&mut self, failed: Option<&str>) {
        if std::mem::take(&mut self.line_open) {
            say("");
        }
        let (c, time) = (&self.counts, self.since.elapsed());
        if self.json {
            say(json!({
                "records_in": { "full": c.in_full, "partial": c.in_partial },
                "records_out": { "full": c.out_full, "partial": c.out_partial },
                "bytes": c.bytes,
                "seconds": time.as_secs_f64(),
                "error": failed,
            }));
            return;
        }
        if self.plan.status == Status::None {
            return;
        }
        let mut text = format!(
            "{}+{} records in\n{}+{} records out",
            c.in_full, c.in_partial, c.out_full, c.out_partial
        );
        if self.plan.status != Status::NoXfer {
            let seconds = six_digits(time.as_secs_f64());
            text += &format!("\n{}", copied(c.bytes, time, &seconds));
        }
        say(text);
    }

    /// What is due between two blocks.
    fn tick(&mut self) -> Outcome {
        if self.signals.statistics() {
            self.summary(None);
        }
        self.signals.check()?;
        if self.plan.status == Status::Progress {
            let time = self.since.elapsed();
            if time.as_secs() > self.shown {
                self.shown = time.as_secs();
                let seconds = format!("{:.0}", time.as_secs_f64());
                eprint!("\r{}", copied(self.counts.bytes, time, &seconds));
                self.line_open = true;
            }
        }
        Ok(())
    }

    /// Reads a block; fewer bytes at the end of the input, or as a pipe has them.
    fn read(
        &mut self,
        input: &mut Input,
        buffer: &mut [u8],
    ) -> Result<usize, (usize, io::Error, Option<Fail>)> {
        let mut done = 0;
        loop {
            match input.read_once(&mut buffer[done..], self.signals) {
                Ok(n) => {
                    done += n;
                    if n == 0 || done == buffer.len() || !input.fullblock {
                        return Ok(done);
                    }
                }
                Err(Trouble::Io(error)) => return Err((done, error, None)),
                Err(Trouble::Signal) => {
                    if let Err(fail) = self.tick() {
                        return Err((done, io::ErrorKind::Interrupted.into(), Some(fail)));
                    }
                }
            }
        }
    }

    /// Passes over the beginning of the input.
    fn skip(&mut self, input: &mut Input, buffer: &mut [u8]) -> Outcome {
        let side = &self.plan.input;
        let begin = side.begin_bytes();
        if begin == 0 {
            return Ok(());
        }
        let name = input.name.clone();
        let failed = |e: &io::Error| Fail::Failed(format!("{name}: cannot skip: {}", reason(e)));
        let missing = match &mut input.source {
            Source::Seekable(reader) => {
                let to = reader
                    .seek(SeekFrom::Current(begin as i64))
                    .map_err(|e| failed(&e))?;
                let size = reader.seek(SeekFrom::End(0)).map_err(|e| failed(&e))?;
                reader.seek(SeekFrom::Start(to)).map_err(|e| failed(&e))?;
                // Files of /proc have no size but an end.
                size > 0 && to > size
            }
            Source::Stream { .. } => {
                let (mut records, mut rest) = match side.bytes {
                    true => (begin / side.block as u64, begin % side.block as u64),
                    false => (side.begin, 0),
                };
                loop {
                    let want = match records {
                        0 if rest == 0 => break false,
                        0 => rest as usize,
                        _ => side.block,
                    };
                    match self.read(input, &mut buffer[..want]) {
                        Ok(0) => break true,
                        Ok(_) if records > 0 => records -= 1,
                        Ok(n) => rest -= n as u64,
                        Err((_, _, Some(fail))) => return Err(fail),
                        Err((_, error, None)) => {
                            return Err(Fail::Failed(format!(
                                "error reading {name}: {}",
                                reason(&error)
                            )))
                        }
                    }
                }
            }
        };
        if missing && self.plan.status != Status::None {
            self.complain(&format!("{name}: cannot skip to specified offset"));
        }
        Ok(())
    }

    /// Sends one block, full or not.
    fn put(&mut self, output: &mut Output, data: &[u8]) -> Outcome {
        if self.plan.sparse && data.iter().all(|&b| b == 0) && output.hole(data.len()) {
        } else if let Err((done, trouble)) = output.write(data, self.signals) {
            self.counts.bytes += done as u64;
            self.counts.out_partial += u64::from(done > 0);
            self.write_failed = true;
            return Err(match trouble {
                Trouble::Signal => Fail::Signal(self.signals.ended().unwrap_or(2)),
                Trouble::Io(e) => {
                    Fail::Failed(format!("error writing {}: {}", output.name, reason(&e)))
                }
            });
        }
        self.counts.bytes += data.len() as u64;
        match data.len() == self.plan.output.block {
            true => self.counts.out_full += 1,
            false => self.counts.out_partial += 1,
        }
        Ok(())
    }

    fn run(&mut self, input: &mut Input, output: &mut Output, blocks: &mut Blocks) -> Outcome {
        let plan = self.plan;
        let block = plan.input.block;
        let (buffer, gathered) = (&mut blocks.input, &mut blocks.output);
        let mut have = 0;
        self.skip(input, buffer.all())?;
        output.begin(plan.output.begin_bytes())?;
        let (most, last_bytes) = match (plan.count, plan.count_bytes) {
            (None, _) => (u64::MAX, 0),
            (Some(n), false) => (n, 0),
            (Some(n), true) => (n / block as u64, (n % block as u64) as usize),
        };
        let mut result = Ok(());
        // Bytes of a block before the error that cut it short.
        let mut before_error = 0;
        loop {
            if let Err(fail) = self.tick() {
                result = Err(fail);
                break;
            }
            let records = self.counts.in_full + self.counts.in_partial;
            let want = match records {
                n if n < most => block,
                n if n == most && last_bytes > 0 => last_bytes,
                _ => break,
            };
            if plan.same_block && !plan.pad && want == block {
                // A block that is in memory already needs no copy of ours.
                if let Source::Seekable(reader) = &mut input.source {
                    if block < ZERO_COPY && reader.fill_buf().is_ok_and(|b| b.len() >= block) {
                        if let Ok(data) = reader.fill_buf() {
                            self.counts.in_full += 1;
                            before_error = 0;
                            let put = self.put(output, &data[..block]);
                            reader.consume(block);
                            if put.is_err() {
                                result = put;
                                break;
                            }
                            continue;
                        }
                    }
                }
            }
            if plan.pad && plan.noerror {
                buffer.all().fill(0);
            }
            let mut passed = false;
            let got = match self.read(input, &mut buffer.all()[..want]) {
                Ok(0) => break,
                Ok(n) => n,
                Err((0, _, Some(fail))) => {
                    result = Err(fail);
                    break;
                }
                // What was read before a signal is not lost; the next turn ends it.
                Err((n, _, Some(_))) => n,
                Err((n, error, None)) => {
                    let text = format!("error reading {}: {}", input.name, reason(&error));
                    if !plan.noerror {
                        // What was read before the error is good data.
                        result = Err(Fail::Failed(text));
                        if n == 0 {
                            break;
                        }
                        n
                    } else {
                        self.complain(&text);
                        self.summary(None);
                        let cut = if n > 0 { n } else { before_error };
                        let bad = (block - cut) as i64;
                        if let Source::Seekable(reader) = &mut input.source {
                            if let Err(e) = reader.seek(SeekFrom::Current(bad)) {
                                result = Err(Fail::Failed(format!(
                                    "cannot pass the error in {}: {}",
                                    input.name,
                                    reason(&e)
                                )));
                                break;
                            }
                        } else if n == 0 {
                            result = Err(Fail::Reported);
                            break;
                        }
                        passed = true;
                        if n == 0 && !(plan.pad && cut == 0) {
                            before_error = 0;
                            continue;
                        }
                        n
                    }
                }
            };
            let stop = result.is_err();
            let mut len = got;
            if got < block {
                self.counts.in_partial += 1;
                before_error = if passed { 0 } else { got };
                if plan.pad {
                    buffer.all()[got..].fill(0);
                    len = block;
                }
            } else {
                self.counts.in_full += 1;
                before_error = 0;
            }
            let put = if plan.same_block {
                self.put(output, &buffer.all()[..len])
            } else {
                self.gather(output, &buffer.all()[..len], gathered, &mut have)
            };
            if put.is_err() {
                result = put;
                break;
            }
            if stop {
                break;
            }
        }
        if have > 0 && !self.write_failed {
            let put = self.put(output, &gathered.all()[..have]);
            result = result.and(put);
        }
        result
    }

    fn gather(
        &mut self,
        output: &mut Output,
        mut data: &[u8],
        gathered: &mut Block,
        have: &mut usize,
    ) -> Outcome {
        let block = gathered.all().len();
        while !data.is_empty() {
            if *have == 0 && data.len() >= block {
                self.put(output, &data[..block])?;
                data = &data[block..];
                continue;
            }
            let n = data.len().min(block - *have);
            gathered.all()[*have..*have + n].copy_from_slice(&data[..n]);
            *have += n;
            data = &data[n..];
            if *have == block {
                *have = 0;
                self.put(output, &gathered.all()[..block])?;
            }
        }
        Ok(())
    }

    /// After an error that came late: counts what is with the kernel, not what was accepted.
    fn recount(&mut self, output: &Output) {
        if let Sink::Seekable(writer) = &output.sink {
            if self.plan.sparse {
                return;
            }
            let stats = writer.stats();
            let bytes = (stats.direct_bytes + stats.buffered_bytes).min(self.counts.bytes);
            let block = self.plan.output.block as u64;
            if bytes < self.counts.bytes {
                self.counts.bytes = bytes;
                self.counts.out_full = self.counts.out_full.min(bytes / block);
                self.counts.out_partial = u64::from(bytes % block > 0);
            }
        }
    }
}

/// The major number of /dev/zero, /dev/null, /dev/urandom and so on.
const MEMORY_DEVICES: u32 = 1;

/// Blocks of this size and more go from memory to device and back without a copy.
const ZERO_COPY: usize = 1 << 20;

/// Runs the command.
///
/// # Errors
/// If anything could not be copied.
pub fn run(args: &Dd) -> Outcome {
    let plan = Plan::parse(&args.operands)?;
    let signals = Signals::listen(true)?;
    let mut input = Input::open(&plan)?;
    // Before the output is emptied.
    let mut blocks = Blocks::new(&plan)?;
    let mut output = Output::open(&plan)?;
    let mut copy = Copy {
        plan: &plan,
        json: args.json,
        signals: &signals,
        counts: Counts::default(),
        since: Instant::now(),
        shown: 0,
        line_open: false,
        write_failed: false,
    };
    let result = copy.run(&mut input, &mut output, &mut blocks);
    let settled = output.settle(&plan);
    if plan.status == Status::Progress && copy.line_open {
        let time = copy.since.elapsed();
        let seconds = format!("{:.0}", time.as_secs_f64());
        eprint!("\r{}", copied(copy.counts.bytes, time, &seconds));
    }
    let mut failed = None;
    if let Err(Fail::Failed(text)) = &result {
        copy.complain(text);
        failed = Some(text.clone());
    }
    if let Err(text) = &settled {
        // Often the same error twice: the write's, and that of the data kept for another try.
        if failed.as_ref() != Some(text) {
            copy.complain(text);
        }
        failed.get_or_insert_with(|| text.clone());
    }
    if failed.is_some() {
        copy.recount(&output);
    }
    let begin = plan.output.begin_bytes();
    plan.output.drop_cache(
        output.fd(),
        begin,
        Some(output.position).filter(|&p| p > begin),
    );
    let skipped = plan.input.begin_bytes();
    plan.input.drop_cache(input.fd(), skipped, None);
    copy.summary(failed.as_deref());
    match (result, failed) {
        (Err(Fail::Signal(signal)), _) => Err(Fail::Signal(signal)),
        (Err(Fail::Usage(text)), _) => Err(Fail::Usage(text)),
        (Ok(()), None) => Ok(()),
        _ => Err(Fail::Reported),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(operands: &[&str]) -> Outcome<Plan> {
        Plan::parse(&operands.iter().map(|s| s.to_string()).collect::<Vec<_>>())
    }

    #[test]
    fn bs_wins_over_ibs_and_obs() {
        let plan = plan(&["ibs=1", "bs=4k", "obs=2"]).ok().unwrap();
        assert!(plan.same_block);
        assert_eq!((plan.input.block, plan.output.block), (4096, 4096));
    }

    #[test]
    fn operands_that_contradict_or_mean_nothing_are_usage_errors() {
        for operands in [
            &["conv=excl,nocreat"][..],
            &["iflag=direct,nocache"],
            &["bs=0"],
            &["bs="],
            &["conv=ebcdic"],
            &["conv=nothing"],
            &["iflag=append"],
            &["oflag=fullblock"],
            &["status=loud"],
            &["cbs=80"],
            &["skip=16E", "bs=1M"],
            &["file"],
            &["of"],
            &["xf=1"],
        ] {
            assert!(
                matches!(plan(operands), Err(Fail::Usage(_))),
                "{operands:?}"
            );
        }
    }
}
