// SPDX-License-Identifier: MIT OR Apache-2.0
//! The copy: blocks, counts and messages as GNU dd has them.

use std::io::{self, BufRead, Seek, SeekFrom};
use std::os::unix::fs::FileTypeExt;
use std::time::Instant;

use rustix::io::Errno;
use serde_json::json;
use signal_hook::consts::SIGUSR1;

use super::files::{Input, Output, Source};
use super::operands::{Plan, Status};
use crate::block::Block;
use crate::report::{copied, reason, say, show, six_digits, Fail, Outcome};
use crate::signals::Signals;

/// Blocks of this size and more go from memory to device and back without a copy.
const ZERO_COPY: usize = 1 << 20;

/// Records and bytes so far.
#[derive(Default)]
pub(super) struct Counts {
    in_full: u64,
    in_partial: u64,
    out_full: u64,
    out_partial: u64,
    pub(super) bytes: u64,
}

pub(super) struct Copy<'a> {
    pub(super) plan: &'a Plan,
    pub(super) json: bool,
    pub(super) signals: &'a Signals,
    pub(super) counts: Counts,
    pub(super) since: Instant,
    pub(super) shown: u64,
    /// True if the last line on the terminal is a progress line.
    pub(super) line_open: bool,
    /// True if nothing more can be written.
    pub(super) write_failed: bool,
    /// Bytes of the latest block, if that was cut short: an error may follow that did it.
    pub(super) before_error: usize,
    /// To be said once: short blocks are counted, or passed over, as if they were whole.
    pub(super) warns_of_short: bool,
}

/// What a read came to.
enum Got {
    /// The end of the input.
    End,
    /// No data, but the input goes on.
    Nothing,
    /// `len` bytes, after which the rest of the block may have been `passed` over, or the copy ends.
    Data {
        len: usize,
        passed: bool,
        then: Outcome,
    },
}

/// The memory for a block of each side.
pub(super) struct Blocks {
    pub(super) input: Block,
    /// Gathers input blocks to output blocks, if those differ.
    pub(super) output: Block,
    /// Bytes gathered.
    have: usize,
}

impl Blocks {
    pub(super) fn new(plan: &Plan) -> Outcome<Blocks> {
        let output = if plan.same_block {
            0
        } else {
            plan.output.block
        };
        Ok(Blocks {
            input: Block::new(plan.input.block, "the input block")?,
            output: Block::new(output, "the output block")?,
            have: 0,
        })
    }
}

impl Copy<'_> {
    pub(super) fn complain(&mut self, text: &str) {
        if std::mem::take(&mut self.line_open) {
            say("");
        }
        say(format_args!("pdio dd: {text}"));
    }

    pub(super) fn summary(&mut self, failed: Option<&str>) {
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
        if self.signals.asked(SIGUSR1) {
            self.summary(None);
        }
        self.signals.check()?;
        if self.plan.status == Status::Progress {
            let time = self.since.elapsed();
            if time.as_secs() > self.shown {
                self.shown = time.as_secs();
                let seconds = format!("{:.0}", time.as_secs_f64());
                let line = copied(self.counts.bytes, time, &seconds);
                show(format_args!("\r{line}"));
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
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                    if let Err(fail) = self.tick() {
                        return Err((done, error, Some(fail)));
                    }
                }
                Err(error) => return Err((done, error, None)),
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
        let device = matches!(input.source, Source::Stream { .. });
        let passed = device && input.pass(begin as i64).map_err(|e| failed(&e))?;
        let missing = match &mut input.source {
            Source::Seekable(reader) => {
                let to = reader
                    .seek(SeekFrom::Current(begin as i64))
                    .map_err(|e| failed(&e))?;
                let size = reader.seek(SeekFrom::End(0)).map_err(|e| failed(&e))?;
                reader.seek(SeekFrom::Start(to)).map_err(|e| failed(&e))?;
                let about = reader.file().metadata().map_err(|e| failed(&e))?;
                // As with GNU dd: a file may yet get such a place, a device never.
                if to > size && about.file_type().is_block_device() {
                    return Err(failed(&Errno::INVAL.into()));
                }
                to > size
            }
            Source::Stream { .. } if passed => false,
            Source::Stream { .. } => {
                let (mut records, mut rest) = match side.bytes {
                    true => (begin / side.block as u64, begin % side.block as u64),
                    false => (side.begin, 0),
                };
                let mut short = false;
                loop {
                    let want = match records {
                        0 if rest == 0 => break short,
                        0 => rest as usize,
                        _ => side.block,
                    };
                    match self.read(input, &mut buffer[..want]) {
                        Ok(0) => break true,
                        Ok(n) => {
                            self.warn_of_short();
                            self.before_error = if n < want { n } else { 0 };
                            match records {
                                0 => rest -= n as u64,
                                _ => {
                                    records -= 1;
                                    short |= n < want;
                                }
                            }
                        }
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
        let hole = self.plan.sparse && data.iter().all(|&b| b == 0) && output.hole(data.len());
        let mut done = if hole { data.len() } else { 0 };
        while done < data.len() {
            let Err((n, error)) = output.write(&data[done..], self.signals) else {
                break;
            };
            done += n;
            let failed = match error.kind() {
                // A block may wait for its reader for ever: what is asked meanwhile is answered.
                io::ErrorKind::Interrupted => self.tick(),
                _ => Err(Fail::Failed(format!(
                    "error writing {}: {}",
                    output.name,
                    reason(&error)
                ))),
            };
            if failed.is_err() {
                self.counts.bytes += done as u64;
                self.counts.out_partial += u64::from(done > 0);
                self.write_failed = true;
                return failed;
            }
        }
        self.counts.bytes += data.len() as u64;
        match data.len() == self.plan.output.block {
            true => self.counts.out_full += 1,
            false => self.counts.out_partial += 1,
        }
        Ok(())
    }

    pub(super) fn run(
        &mut self,
        input: &mut Input,
        output: &mut Output,
        blocks: &mut Blocks,
    ) -> Outcome {
        self.skip(input, blocks.input.all())?;
        output.begin(self.plan.output.begin_bytes())?;
        let mut result = self.all(input, output, blocks);
        // What was gathered is good data, whatever ended the copy.
        if blocks.have > 0 && !self.write_failed {
            let put = self.put(output, &blocks.output.all()[..blocks.have]);
            result = result.and(put);
        }
        result
    }

    /// Copies block by block, until the input ends or as much as was asked for is copied.
    fn all(&mut self, input: &mut Input, output: &mut Output, blocks: &mut Blocks) -> Outcome {
        loop {
            self.tick()?;
            let Some(want) = self.wanted() else {
                return Ok(());
            };
            if self.put_from_memory(input, output, want)? {
                continue;
            }
            match self.get(input, blocks.input.all(), want)? {
                Got::End => return Ok(()),
                Got::Nothing => {}
                Got::Data { len, passed, then } => {
                    self.count_in(len, passed);
                    self.pass_on(output, blocks, len)?;
                    then?;
                }
            }
        }
    }

    /// How many bytes to read next; `None` if there were as many as was asked for.
    fn wanted(&self) -> Option<usize> {
        let block = self.plan.input.block;
        let (most, last_bytes) = match (self.plan.count, self.plan.count_bytes) {
            (None, _) => (u64::MAX, 0),
            (Some(n), false) => (n, 0),
            (Some(n), true) => (n / block as u64, (n % block as u64) as usize),
        };
        match self.counts.in_full + self.counts.in_partial {
            n if n < most => Some(block),
            n if n == most && last_bytes > 0 => Some(last_bytes),
            _ => None,
        }
    }

    /// Sends a block from where the input stream has it in memory, if it has a whole one there. Returns
    /// whether it had.
    fn put_from_memory(
        &mut self,
        input: &mut Input,
        output: &mut Output,
        want: usize,
    ) -> Outcome<bool> {
        let plan = self.plan;
        let block = plan.input.block;
        if !plan.same_block || plan.pad || want < block || block >= ZERO_COPY {
            return Ok(false);
        }
        let Source::Seekable(reader) = &mut input.source else {
            return Ok(false);
        };
        // An error is met again by the read that follows.
        let Some(data) = reader.fill_buf().ok().and_then(|data| data.get(..block)) else {
            return Ok(false);
        };
        self.count_in(block, false);
        let put = self.put(output, data);
        reader.consume(block);
        put.map(|()| true)
    }

    /// Reads a block into `buffer`, and does after an error what was asked for.
    fn get(&mut self, input: &mut Input, buffer: &mut [u8], want: usize) -> Outcome<Got> {
        if self.plan.pad && self.plan.noerror {
            buffer.fill(0);
        }
        let data = |len, then| Got::Data {
            len,
            passed: false,
            then,
        };
        match self.read(input, &mut buffer[..want]) {
            Ok(0) => Ok(Got::End),
            Ok(len) => Ok(data(len, Ok(()))),
            Err((0, _, Some(fail))) => Err(fail),
            // What was read before a signal is not lost; the next turn ends it.
            Err((len, _, Some(_))) => Ok(data(len, Ok(()))),
            Err((len, error, None)) if self.plan.noerror => self.pass_error(input, len, &error),
            Err((len, error, None)) => {
                let text = format!("error reading {}: {}", input.name, reason(&error));
                // What was read before the error is good data.
                match len {
                    0 => Err(Fail::Failed(text)),
                    _ => Ok(data(len, Err(Fail::Failed(text)))),
                }
            }
        }
    }

    /// With `conv=noerror`: passes over the rest of a block that an error cut short after `len` bytes.
    fn pass_error(&mut self, input: &mut Input, len: usize, error: &io::Error) -> Outcome<Got> {
        self.complain(&format!("error reading {}: {}", input.name, reason(error)));
        self.summary(None);
        let cut = if len > 0 { len } else { self.before_error };
        let place = input.place();
        let moved = input.pass((self.plan.input.block - cut) as i64);
        let moved = moved.map_err(|e| {
            Fail::Failed(format!(
                "cannot pass the error in {}: {}",
                input.name,
                reason(&e)
            ))
        })?;
        // Where nothing moves the same error would come for ever.
        if len == 0 && !(moved && input.place() > place) {
            return Err(Fail::Reported);
        }
        if len == 0 && !(self.plan.pad && cut == 0) {
            self.before_error = 0;
            return Ok(Got::Nothing);
        }
        Ok(Got::Data {
            len,
            passed: true,
            then: Ok(()),
        })
    }

    /// Says of the latest block, now that it was not the last one, that it was short.
    fn warn_of_short(&mut self) {
        let short = self.before_error;
        if short > 0 && std::mem::take(&mut self.warns_of_short) {
            let noun = if short == 1 { "byte" } else { "bytes" };
            self.complain(&format!(
                "warning: partial read ({short} {noun}); suggest iflag=fullblock"
            ));
        }
    }

    /// Counts what was read; `passed` says whether the rest of that block was passed over.
    fn count_in(&mut self, len: usize, passed: bool) {
        self.warn_of_short();
        let full = len == self.plan.input.block;
        match full {
            true => self.counts.in_full += 1,
            false => self.counts.in_partial += 1,
        }
        self.before_error = if full || passed { 0 } else { len };
    }

    /// Sends `len` bytes of the input block, filled up if that was asked for.
    fn pass_on(&mut self, output: &mut Output, blocks: &mut Blocks, mut len: usize) -> Outcome {
        let data = blocks.input.all();
        if self.plan.pad {
            data[len..].fill(0);
            len = data.len();
        }
        match self.plan.same_block {
            true => self.put(output, &data[..len]),
            false => self.gather(output, &data[..len], &mut blocks.output, &mut blocks.have),
        }
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
    pub(super) fn recount(&mut self, output: &Output) {
        let Some(given) = output.given().filter(|&n| n < self.counts.bytes) else {
            return;
        };
        let block = self.plan.output.block as u64;
        self.counts.bytes = given;
        self.counts.out_full = self.counts.out_full.min(given / block);
        self.counts.out_partial = u64::from(given % block > 0);
    }
}
