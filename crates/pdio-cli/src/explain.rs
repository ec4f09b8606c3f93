// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pdio explain`: what was found out about a file, and what is done about it.

use std::path::PathBuf;

use crate::report::{self, quoted, reason, say, shown, Fail, Outcome};

/// Say how streams on files work, and why.
///
/// Prints for each FILE its filesystem and device, the alignment direct I/O asks for and where that
/// was learned, the engine that carries requests, how much of the file is in the page cache, and
/// which strategy a sequential writer and reader begin with, and why; also what 'pdio learn' has
/// measured there, and how long ago. Files are read at most, never written; for a directory it says
/// how streams on a new file in it would work.
#[derive(clap::Args, Debug)]
#[command(after_long_help = crate::EXIT_STATUS)]
pub struct Explain {
    /// What to explain: files, directories, block devices
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Print one JSON object a file
    #[arg(long)]
    json: bool,
}

/// Runs the command.
///
/// # Errors
/// If a file cannot be read; the others are explained all the same.
pub fn run(args: &Explain) -> Outcome {
    let mut failed = false;
    for (i, file) in args.files.iter().enumerate() {
        let found = match pdio::explain(file) {
            Ok(found) => found,
            Err(error) => {
                failed = true;
                say(format_args!(
                    "pdio explain: cannot open {}: {}",
                    quoted(file),
                    reason(&error)
                ));
                continue;
            }
        };
        if args.json {
            let found = serde_json::to_value(&found).map_err(|e| Fail::Failed(e.to_string()))?;
            report::json(&serde_json::json!({ "file": file.to_string_lossy(), "found": found }))?;
        } else {
            let gap = if i == 0 { "" } else { "\n" };
            report::print(&format!("{gap}{}:\n{found}", shown(file)))?;
        }
    }
    match failed {
        true => Err(Fail::Reported),
        false => Ok(()),
    }
}
