// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a file needs beside its own bytes to be there after a power cut.

use std::fs::File;
use std::io;
use std::path::Path;

use crate::report::{Context, Outcome};

/// Syncs the directory of a file. What is synced of a new file is of no use after a power cut without its name.
///
/// # Errors
/// If there is no file of this name any more, or its directory cannot be synced.
pub fn sync_directory(of: &Path) -> Outcome {
    let file = of.canonicalize().context("look at", of)?;
    let directory = file.parent().unwrap_or(Path::new("/"));
    match File::open(directory).and_then(|directory| directory.sync_all()) {
        // Some filesystems, as those of a server, have nothing to sync there.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        result => result.context("sync directory", directory),
    }
}
