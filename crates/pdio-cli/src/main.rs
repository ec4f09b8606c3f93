// SPDX-License-Identifier: MIT OR Apache-2.0
//! The `pdio` command: copy, receive, explain and measure, at direct-I/O speed.
#![forbid(unsafe_code)]

mod bench;
mod block;
mod cp;
mod dd;
mod explain;
mod recv;
mod report;
mod signals;
mod size;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use report::Fail;

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
#[command(name = "pdio", version, after_long_help = EXIT_STATUS)]
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
    Bench(bench::Bench),
    #[command(hide = true)]
    BenchCell(bench::cell::Cell),
    #[command(hide = true)]
    BenchHog,
}

fn main() -> ExitCode {
    let (name, outcome) = match Cli::parse().command {
        Command::Cp(args) => ("cp", cp::run(&args)),
        Command::Dd(args) => ("dd", dd::run(&args)),
        Command::Recv(args) => ("recv", recv::run(&args)),
        Command::Explain(args) => ("explain", explain::run(&args)),
        Command::Bench(args) => ("bench", bench::run(&args)),
        Command::BenchCell(args) => ("bench", bench::cell::run(&args)),
        Command::BenchHog => ("bench", bench::cell::hog()),
    };
    let Err(fail) = outcome else {
        return ExitCode::SUCCESS;
    };
    match &fail {
        Fail::Usage(text) => report::say(format_args!(
            "pdio {name}: {text}\nTry 'pdio {name} --help'."
        )),
        Fail::Failed(text) => report::say(format_args!("pdio {name}: {text}")),
        Fail::Reported | Fail::Signal(_) => {}
    }
    ExitCode::from(fail.status())
}
