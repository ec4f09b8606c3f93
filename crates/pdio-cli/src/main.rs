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
use pdio_cli::{durable, report, signals, size};

use report::{quoted, reason, Fail, Outcome};

const EXIT_STATUS: &str = "Exit status:
  0  done, completely
  1  something failed; standard error says what, and names output that is incomplete
  2  the command line is wrong; nothing was touched
  129, 130, 143  ended cleanly by SIGHUP, SIGINT, SIGTERM; another one, half a second
                 or more after the first, ends at once";

/// Storage streams at direct-I/O speed for every block size.
///
/// Data goes directly between memory and device, in large requests, or through the page cache,
/// whichever is cheaper: streams measure that as they run. 'pdio explain' says what they begin with,
/// and why.
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
    let command = match nocopy_pages::parse::<Cli>() {
        Ok(cli) => cli.command,
        Err(status) => return status,
    };
    // A program that is run gets the signal as it would otherwise.
    if !matches!(command, Command::Run(_)) {
        signals::outlive_file_limit();
    }
    // Measurements compare ways, each from the same beginning; `run` leaves this to the library.
    let (name, outcome) = match command {
        Command::Cp(args) => ("cp", remember().and_then(|()| cp::run(&args))),
        Command::Dd(args) => ("dd", remember().and_then(|()| dd::run(&args))),
        Command::Recv(args) => ("recv", remember().and_then(|()| recv::run(&args))),
        Command::Explain(args) => ("explain", remember().and_then(|()| explain::run(&args))),
        Command::Learn(args) => ("learn", remember().and_then(|()| learn::run(&args))),
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
    fail.end()
}

/// Has streams begin with what was measured.
fn remember() -> Outcome {
    let place = std::env::var_os("PDIO_COSTS").unwrap_or_default();
    let off = place.to_str().and_then(nocopy_settings::switch) == Some(false);
    if !place.is_empty() && !off && !Path::new(&place).is_absolute() {
        // Not `Usage`: --help would not help.
        return Err(Fail::Refused(
            2,
            format!("PDIO_COSTS={} is not 0 or an absolute path", quoted(&place)),
        ));
    }
    pdio::remember_costs(costs_files());
    Ok(())
}

/// Where it is remembered what strategies cost; the first is the one to write.
fn costs_files() -> Vec<std::path::PathBuf> {
    pdio::costs_files(|name| std::env::var_os(name))
}

fn pages(share: &Path) -> Outcome {
    nocopy_pages::write(Cli::command(), share)
        .map_err(|error| Fail::Failed(format!("{}: {}", quoted(share), reason(&error))))
}
