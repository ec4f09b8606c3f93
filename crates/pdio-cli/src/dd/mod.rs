// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pdio dd`: GNU dd's operands, counts and statistics on pdio streams.
//!
//! Regular files and block devices go through [`pdio::Reader`] and [`pdio::Writer`]; pipes, sockets
//! and character devices, and files open for appending, are read and written call by call.

mod copy;
mod files;
mod operands;

use std::ffi::OsString;
use std::time::Instant;

use signal_hook::consts::SIGUSR1;

use crate::report::{copied, say, show, Fail, Outcome};
use crate::signals::Signals;
use copy::{Blocks, Copy, Counts};
use files::{Input, Output};
use operands::{Plan, Status};

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
/// Takes the operands of GNU dd and prints its statistics. Not offered: conversions of characters
/// (conv=ascii, ebcdic, ibm, block, unblock, lcase, ucase, swab) and the flags directory, cio,
/// binary and text.
#[derive(clap::Args, Debug)]
#[command(after_help = OPERANDS, after_long_help = format!("{OPERANDS}\n\n{}", crate::EXIT_STATUS))]
pub struct Dd {
    /// Operands, see below
    #[arg(value_name = "OPERAND")]
    operands: Vec<OsString>,
    /// Print the statistics as JSON instead, to standard error
    #[arg(long)]
    json: bool,
}

/// Runs the command.
///
/// # Errors
/// If anything could not be copied.
pub fn run(args: &Dd) -> Outcome {
    let plan = Plan::parse(&args.operands)?;
    if plan.appends_to_nothing() {
        say("pdio dd: you probably want conv=notrunc with oflag=append");
    }
    let signals = Signals::listen(&[SIGUSR1])?;
    let mut input = Input::open(&plan, &signals)?;
    // Before the output is emptied.
    let mut blocks = Blocks::new(&plan)?;
    let mut output = Output::open(&plan, &signals)?;
    let mut copy = Copy {
        plan: &plan,
        json: args.json,
        signals: &signals,
        counts: Counts::default(),
        since: Instant::now(),
        shown: 0,
        line_open: false,
        write_failed: false,
        before_error: 0,
        warns_of_short: plan.counts_short_blocks(),
    };
    let result = copy.run(&mut input, &mut output, &mut blocks);
    let settled = output.flush_and_sync(&plan);
    if plan.status == Status::Progress && copy.line_open {
        let time = copy.since.elapsed();
        let seconds = format!("{:.0}", time.as_secs_f64());
        let line = copied(copy.counts.bytes, time, &seconds);
        show(format_args!("\r{line}"));
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
    if let (Err(text), None) = (files::close(output), &failed) {
        copy.complain(&text);
        failed = Some(text);
    }
    copy.summary(failed.as_deref());
    match (result, failed) {
        (Err(Fail::Signal(signal)), _) => Err(Fail::Signal(signal)),
        (Err(Fail::Usage(text)), _) => Err(Fail::Usage(text)),
        (Ok(()), None) => Ok(()),
        _ => Err(Fail::Reported),
    }
}
