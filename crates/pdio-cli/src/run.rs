// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pdio run`: a program as it is, under `libpdio.so`.

use std::ffi::OsString;
use std::io;

use crate::report::{quoted, reason, Fail, Outcome};

/// Names another library than that beside the command.
const VARIABLE: &str = "PDIO_LIBRARY";
/// Exit statuses as in a shell: there is no such program, it cannot be run, anything else before.
const NOT_FOUND: u8 = 127;
const CANNOT_RUN: u8 = 126;
const OURS: u8 = 125;

/// Run a program under libpdio.so.
///
/// The program's long streams then go at direct-I/O speed. What it can notice is in docs/pdio.md,
/// under "What does not hold"; above all, kill -9 loses what was written in the last 50 ms
/// (PDIO_LINGER). The library is the one that PDIO_LIBRARY names, else that beside this command, or
/// in ../lib. In programs that are linked statically, and in set-user-ID programs, it does nothing.
#[derive(clap::Args, Debug)]
#[command(after_long_help = EXIT)]
pub struct Run {
    /// At the end, say on standard error what was taken (as PDIO_STATS=1); nothing, if no stream was taken
    #[arg(long)]
    stats: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    words: Vec<OsString>,
}

const EXIT: &str = "Examples:
  pdio run tar -cf /mnt/backup.tar DIR
  pdio run --stats -- dd if=disk.img of=copy bs=4k

Exit status:
  that of the program, or
  125  the library is not there; standard error says where it was looked for
  126  the program was found and cannot be run
  127  there is no such program
  2    the command line is wrong; nothing was run";

/// Becomes the program.
///
/// # Errors
/// If the library or the program is not found, or the program cannot be run.
pub fn run(args: &Run) -> Outcome {
    let refused = |text| Fail::Refused(OURS, text);
    let library = nocopy_launch::library("libpdio.so", VARIABLE).map_err(refused)?;
    let preload = nocopy_launch::preload(&library, VARIABLE).map_err(refused)?;
    // There is one: it is required.
    let program = &args.words[0];
    let mut variables = vec![("LD_PRELOAD", preload)];
    if args.stats {
        variables.push(("PDIO_STATS", "1".into()));
    }
    let error = nocopy_launch::exec(program, &args.words, &variables);
    let status = match error.kind() {
        io::ErrorKind::NotFound => NOT_FOUND,
        _ => CANNOT_RUN,
    };
    let text = format!("cannot run {}: {}", quoted(program), reason(&error));
    Err(Fail::Refused(status, text))
}
