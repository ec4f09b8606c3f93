// SPDX-License-Identifier: MIT OR Apache-2.0
//! The `brug` command: run any program under brug, find out what it would gain, compare allocators.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::ErrorKind::{DisplayHelpOnMissingArgumentOrSubcommand, UnknownArgument};
use clap::error::{ContextKind, ContextValue};
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use nocopy_launch::number;
use serde::Serialize;

mod compare;
mod launch;
mod tune;
mod verdict;
mod wait;

use launch::{Refusal, CANNOT_RUN, OURS};

const HELP: &str = "Examples:
  brug run -- python3 job.py
  brug compare -n 9 -- python3 job.py
  brug tune -- python3 job.py && brug run --profile brug.profile -- python3 job.py

Exit status:
  of run, that of the program; of tune and compare, 0 when they are done
  125  brug cannot do what is asked, or the command line is wrong; standard error says why
  126  the program was found and cannot be run under brug
  127  there is no such program
  129, 130, 131, 143  of tune: the program was ended by SIGHUP, SIGINT, SIGQUIT or SIGTERM, which tune got as well;
       of compare: it got one of these";

/// Grow memory in place instead of copying it, in programs as they are.
#[derive(Parser)]
#[command(name = "brug", version, disable_help_subcommand = true, after_help = HELP)]
struct Cli {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Run a program under brug; the exit status is the program's
    #[command(after_help = HELP)]
    Run(RunArgs),
    /// Run a program under observation; print which sizes and call sites gain, write a profile
    #[command(after_help = HELP)]
    Tune(TuneArgs),
    /// Run a program under glibc, brug and, where they are installed, jemalloc and mimalloc in turn;
    /// print time, memory, faults, and whether brug helps
    #[command(after_help = HELP)]
    Compare(CompareArgs),
    /// Write the manual pages and completions below a directory like /usr/local/share
    #[command(hide = true)]
    Pages {
        /// The directory
        share: PathBuf,
    },
}

/// BRUG_ALLOC
#[derive(Clone, Copy, ValueEnum)]
enum Mode {
    /// The C library alone
    Sys,
    /// mimalloc alone
    Mimalloc,
    /// Growth slots for objects of a page and more
    Mmap,
    /// Allocators by size, from BRUG_TEMPLATE
    Template,
    /// Decide while the program runs
    Auto,
}

/// BRUG_BASE
#[derive(Clone, Copy, ValueEnum)]
enum Base {
    Glibc,
    Mimalloc,
}

fn name_of(value: &impl ValueEnum) -> String {
    value
        .to_possible_value()
        .map_or_else(String::new, |value| value.get_name().to_owned())
}

/// A number of bytes, kept as it was written; the library reads it.
fn switch_point(text: &str) -> Result<String, String> {
    match nocopy_settings::size(text) {
        Some(4096..=0x40_0000_0000) => Ok(text.to_owned()),
        Some(_) => Err("not 4K to 256G".to_owned()),
        None => Err(format!("not {}", nocopy_settings::SIZE)),
    }
}

#[derive(Args)]
struct RunArgs {
    /// Which allocator gets which objects
    #[arg(long, value_enum, ignore_case = true)]
    mode: Option<Mode>,
    /// The allocator of small objects
    #[arg(long, value_enum, ignore_case = true)]
    base: Option<Base>,
    /// Size (64K, 1MiB; 4K to 256G) from which every new object begins in a growth slot
    #[arg(long, value_name = "SIZE", value_parser = switch_point)]
    switch_point: Option<String>,
    /// Decide by what `brug tune` has written, and add to it
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// Print counters on stderr when the program ends
    #[arg(long)]
    stats: bool,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    words: Vec<OsString>,
}

#[derive(Args)]
struct TuneArgs {
    /// Where to write the profile
    #[arg(long, value_name = "FILE", default_value = "brug.profile")]
    profile: PathBuf,
    /// How many call sites to print for each process
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = number::<usize>(0..=999_999))]
    top: usize,
    /// Print JSON instead of tables; what the program prints goes to standard error
    #[arg(long)]
    json: bool,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    words: Vec<OsString>,
}

#[derive(Args)]
struct CompareArgs {
    /// Runs under each allocator, after one that is not counted
    #[arg(short = 'n', long, value_name = "N", default_value_t = 5, value_parser = number::<u32>(1..=9999))]
    runs: u32,
    /// Let brug decide by what `brug tune` has written
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// Print JSON, with every run, instead of a table
    #[arg(long)]
    json: bool,
    /// Let the program's own output through; with --json, all of it to standard error
    #[arg(long)]
    show_output: bool,
    /// The program and its arguments; it reads from /dev/null
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    words: Vec<OsString>,
}

fn run(args: &RunArgs) -> Result<(), Refusal> {
    let preload = launch::preload(&launch::library()?)?;
    let program = launch::preloadable(&args.words[0])?;
    let mut variables = vec![("LD_PRELOAD", preload)];
    if let Some(mode) = &args.mode {
        variables.push(("BRUG_ALLOC", name_of(mode).into()));
    }
    if let Some(base) = &args.base {
        variables.push(("BRUG_BASE", name_of(base).into()));
    }
    if let Some(size) = &args.switch_point {
        variables.push(("BRUG_SWITCH_POINT", size.into()));
    }
    if let Some(profile) = &args.profile {
        variables.push(("BRUG_PROFILE", tune::existing(profile)?.into()));
    }
    if args.stats {
        variables.push(("BRUG_STATS", "1".into()));
    }
    let error = nocopy_launch::exec(program.as_os_str(), &args.words, &variables);
    Err(Refusal::new(
        CANNOT_RUN,
        format!(
            "{}: {}",
            args.words[0].to_string_lossy(),
            nocopy_launch::reason(&error)
        ),
    ))
}

/// Writes lines to standard output.
fn print(text: &str) -> Result<(), Refusal> {
    let written = if nocopy_launch::closed(libc::STDOUT_FILENO) {
        Err(std::io::Error::from_raw_os_error(libc::EBADF))
    } else {
        let mut out = std::io::stdout().lock();
        out.write_all(text.as_bytes()).and_then(|()| out.flush())
    };
    written.map_err(|error| {
        let why = nocopy_launch::reason(&error);
        Refusal::new(OURS, format!("standard output: {why}"))
    })
}

/// Pretty JSON on standard output.
fn print_json(value: &impl Serialize) -> Result<(), Refusal> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| Refusal::new(OURS, format!("JSON: {error}")))?;
    print(&(text + "\n"))
}

/// Writes one line to standard error, whatever is in the names of it; there is nobody to tell if that
/// fails.
fn say(line: impl std::fmt::Display) {
    let line = line.to_string().replace(char::is_control, "?");
    let _ = writeln!(std::io::stderr(), "brug: {line}");
}

/// Returns true if what is wrong is a word where the program was meant to be.
fn is_program(error: &clap::Error) -> bool {
    let word = error.get(ContextKind::InvalidArg);
    let is_word = |word: &ContextValue| !word.to_string().starts_with('-');
    error.kind() == UnknownArgument && word.is_some_and(is_word)
}

fn main() -> ExitCode {
    // Else a copy that is cut short would leave what was made for it.
    nocopy_launch::outlive_file_limit();
    // Wrong arguments end with 125, so that 2 stays the program's own.
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            if !error.use_stderr() {
                let Err(error) = nocopy_pages::show(&error) else {
                    return ExitCode::SUCCESS;
                };
                let why = nocopy_launch::reason(&error);
                say(format_args!("standard output: {why}"));
            } else if error.kind() == DisplayHelpOnMissingArgumentOrSubcommand {
                // Nothing is left to be done when not even this can be printed.
                let _ = error.print();
            } else {
                let hint = if is_program(&error) {
                    "-- goes before the program"
                } else {
                    "try --help"
                };
                say(format_args!(
                    "{}; {hint}",
                    nocopy_pages::in_one_line(&error)
                ));
            }
            return ExitCode::from(OURS);
        }
    };
    let done = match &cli.action {
        Action::Run(args) => run(args),
        Action::Tune(args) => tune::tune(&args.words, &args.profile, args.top, args.json),
        Action::Compare(args) => compare::compare(
            &args.words,
            args.profile.as_deref(),
            args.runs as usize,
            args.json,
            args.show_output,
        ),
        Action::Pages { share } => nocopy_pages::write(Cli::command(), share).map_err(|error| {
            Refusal::new(
                OURS,
                format!("{}: {}", share.display(), nocopy_launch::reason(&error)),
            )
        }),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(refusal) => {
            if !refusal.line.is_empty() {
                say(&refusal);
            }
            ExitCode::from(refusal.status)
        }
    }
}
