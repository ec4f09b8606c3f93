// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pdio run`: a program as it is, under `libpdio.so`.

use std::env;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use crate::report::{quoted, reason, Fail, Outcome};

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
    /// At the end, say on standard error what was taken (as PDIO_STATS=1)
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
    let library = library()?;
    // The loader has no way to quote them.
    if library
        .as_os_str()
        .as_bytes()
        .iter()
        .any(|b| b" :".contains(b))
    {
        return Err(Fail::Refused(
            OURS,
            format!(
                "{} has a space or colon in its name, which the loader takes for the end: move it, or \
                 name another with PDIO_LIBRARY",
                quoted(&library)
            ),
        ));
    }
    let mut preload = library.into_os_string();
    if let Some(others) = env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    let [program, arguments @ ..] = args.words.as_slice() else {
        return Err(Fail::Usage("say which program".into()));
    };
    let mut command = Command::new(program);
    command.args(arguments).env("LD_PRELOAD", preload);
    if args.stats {
        command.env("PDIO_STATS", "1");
    }
    let error = command.exec();
    let status = match error.kind() {
        io::ErrorKind::NotFound => NOT_FOUND,
        _ => CANNOT_RUN,
    };
    let text = format!("cannot run {}: {}", quoted(program), reason(&error));
    Err(Fail::Refused(status, text))
}

/// Where libpdio.so is.
fn library() -> Outcome<PathBuf> {
    let refused = |text| Err(Fail::Refused(OURS, text));
    if let Some(named) = env::var_os("PDIO_LIBRARY").filter(|named| !named.is_empty()) {
        return match std::fs::canonicalize(&named) {
            Ok(path) => Ok(path),
            Err(error) => refused(format!(
                "PDIO_LIBRARY names {}: {}",
                quoted(&named),
                reason(&error)
            )),
        };
    }
    let own = env::current_exe().and_then(std::fs::canonicalize);
    let Some(here) = own.ok().and_then(|own| Some(own.parent()?.to_path_buf())) else {
        return refused(
            "cannot find this command's own place: name libpdio.so with PDIO_LIBRARY".into(),
        );
    };
    let places = [here.join("libpdio.so"), here.join("../lib/libpdio.so")];
    match places.iter().find(|place| place.is_file()) {
        Some(found) => Ok(found.canonicalize().unwrap_or_else(|_| found.clone())),
        None => refused(format!(
            "libpdio.so is neither in {0} nor in {0}/../lib: build it with 'cargo build --release -p \
             pdio-preload', or name it with PDIO_LIBRARY",
            here.display()
        )),
    }
}
