// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pdio learn`: measures what streams on a filesystem cost, for the processes that come.

use std::io::ErrorKind;
use std::path::PathBuf;

use crate::report::{self, reason, Context, Fail, Outcome, Progress};
use crate::size;

/// Measure what streams on a filesystem cost, and remember it.
///
/// Writes and reads a file without a name in DIR, in calls of 4 KiB, 64 KiB and 1 MiB, directly and
/// through the page cache, in turns and five times. What that costs is remembered, for this user
/// or, if root runs it, for all: 'pdio' and libpdio.so then begin with what is cheapest. Without it each
/// stream finds out as it runs. What was remembered of the filesystem before is replaced.
#[derive(clap::Args, Debug)]
#[command(after_long_help = EXIT)]
pub struct Learn {
    /// A directory of the filesystem
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// How much to move for each sample; there are at most 110
    #[arg(long, value_name = "BYTES", value_parser = size::parse, default_value = "32M")]
    size: u64,
}

const EXIT: &str = "Environment:
  PDIO_COSTS  the file in which it is remembered; 0 for none; what is there and
              is no such file stays as it is
              (/var/cache/pdio/costs for root, ~/.cache/pdio/costs for others)

Exit status:
  0  measured and remembered
  1  something failed; standard error says what
  2  the command line or PDIO_COSTS is wrong; nothing was touched";

/// Runs the command.
///
/// # Errors
/// If no file can be made in the directory, or nothing can be remembered.
pub fn run(args: &Learn) -> Outcome {
    let Some(file) = crate::costs_files().into_iter().next() else {
        return Err(Fail::Failed(
            "nothing would be remembered: PDIO_COSTS switches that off; unset it".into(),
        ));
    };
    let size = usize::try_from(args.size)
        .ok()
        .filter(|&size| (1 << 20..=1 << 40).contains(&size))
        .ok_or_else(|| Fail::Usage(format!("--size {}: from 1M to 1T", args.size)))?;
    let mut progress = Progress::new("sample", 0, true);
    let learned = pdio::learn(&args.directory, &file, size, |_, _| {
        progress.add(size as u64)
    });
    drop(progress);
    let vague = learned.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => Fail::Refused(2, reason(&error)),
        _ => Fail::Failed(reason(&error)),
    })?;
    if vague > 0 {
        report::say(format_args!(
            "pdio learn: {vague} of the costs were never the same twice and are not remembered: \
             try again when the machine is less busy"
        ));
    }
    let found = pdio::explain(&args.directory).context("explain", &args.directory)?;
    report::print(&found.to_string())
}
