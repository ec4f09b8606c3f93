// SPDX-License-Identifier: MIT OR Apache-2.0
//! The `pdio` command: copy, receive, explain and measure, at direct-I/O speed.
#![forbid(unsafe_code)]

mod bench;
mod block;
mod cp;
mod dd;
mod explain;
mod learn;
mod recv;
mod run;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use pdio_cli::{report, signals, size};

use report::{quoted, reason, Fail, Outcome};

const EXIT_STATUS: &str = "Exit status:
  0  done, completely
  1  something failed; standard error says what, and names output that is incomplete
  2  the command line is wrong; nothing was touched
  130, 143  ended by SIGINT, SIGTERM, in order; a second one ends at once";

/// Storage streams at direct-I/O speed for every block size.
///
/// Data goes straight between memory and device in large requests where that is cheapest, and
/// through the page cache where that is; which it is, is measured as the stream runs and told by
/// `pdio explain`.
#[derive(Parser, Debug)]
#[command(name = "pdio", version, propagate_version = true, after_long_help = EXIT_STATUS)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Cp(cp::Cp),
    Dd(dd::Dd),
    Recv(recv::Recv),
    Explain(explain::Explain),
    Learn(learn::Learn),
    Run(run::Run),
    Bench(bench::Bench),
    #[command(hide = true)]
    BenchCell(bench::cell::Cell),
    #[command(hide = true)]
    BenchHog,
    /// Write the manual pages and completions below a directory like /usr/local/share
    #[command(hide = true)]
    Pages {
        /// The directory
        share: PathBuf,
    },
}

fn main() -> ExitCode {
    let command = Cli::parse().command;
    let measures = matches!(
        command,
        Command::Bench(_) | Command::BenchCell(_) | Command::BenchHog
    );
    // Measurements compare ways, each from the same beginning.
    if !measures {
        pdio::remember_costs(costs_files());
    }
    let (name, outcome) = match command {
        Command::Cp(args) => ("cp", cp::run(&args)),
        Command::Dd(args) => ("dd", dd::run(&args)),
        Command::Recv(args) => ("recv", recv::run(&args)),
        Command::Explain(args) => ("explain", explain::run(&args)),
        Command::Learn(args) => ("learn", learn::run(&args)),
        Command::Run(args) => ("run", run::run(&args)),
        Command::Bench(args) => ("bench", bench::run(&args)),
        Command::BenchCell(args) => ("bench", bench::cell::run(&args)),
        Command::BenchHog => ("bench", bench::cell::hog()),
        Command::Pages { share } => ("pages", pages(&share)),
    };
    let Err(fail) = outcome else {
        return ExitCode::SUCCESS;
    };
    match &fail {
        Fail::Usage(text) => report::say(format_args!(
            "pdio {name}: {text}\nTry 'pdio {name} --help'."
        )),
        Fail::Failed(text) | Fail::Refused(_, text) => {
            report::say(format_args!("pdio {name}: {text}"))
        }
        Fail::Reported | Fail::Signal(_) => {}
    }
    ExitCode::from(fail.status())
}

/// Where it is remembered what strategies cost; the first is the one to write.
fn costs_files() -> Vec<std::path::PathBuf> {
    pdio::costs_files(|name| std::env::var_os(name))
}

fn pages(share: &Path) -> Outcome {
    nocopy_pages::write(Cli::command(), share)
        .map_err(|error| Fail::Failed(format!("{}: {}", quoted(share), reason(&error))))
}
