// SPDX-License-Identifier: MIT OR Apache-2.0
//! The copy: blocks, counts and messages as GNU dd has them.

use std::io::{self, BufRead, Seek, SeekFrom};
use std::time::Instant;

use serde_json::json;
use signal_hook::consts::SIGUSR1;

use super::files::{Input, Output, Sink, Source, Trouble};
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
}

/// The memory for a block of each side.
pub(super) struct Blocks {
    pub(super) input: Block,
    /// Gathers input blocks to output blocks, if those differ.
    pub(super) output: Block,
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
        let device = matches!(input.source, Source::Stream { .. });
        let passed = device && input.pass(begin as i64).map_err(|e| failed(&e))?;
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
            Source::Stream { .. } if passed => false,
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

    pub(super) fn run(
        &mut self,
        input: &mut Input,
        output: &mut Output,
        blocks: &mut Blocks,
    ) -> Outcome {
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
                        let place = input.place();
                        match input.pass(bad) {
                            Err(e) => {
                                result = Err(Fail::Failed(format!(
                                    "cannot pass the error in {}: {}",
                                    input.name,
                                    reason(&e)
                                )));
                                break;
                            }
                            // Where nothing moves the same error would come for ever.
                            Ok(moved) if n == 0 && !(moved && input.place() > place) => {
                                result = Err(Fail::Reported);
                                break;
                            }
                            Ok(_) => {}
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
    pub(super) fn recount(&mut self, output: &Output) {
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
