// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pdio cp`: copies files and trees with one copy in memory at most.
//!
//! Here is what the command line means, and what is said at the end. [`tree`] makes what is copied,
//! [`data`] moves the bytes of a file, and [`attributes`] gives the copy what the source has beside them.

mod ahead;
mod attributes;
mod data;
mod tree;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use clap::ValueHint;
use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};
use serde_json::json;

use crate::report::{self, quoted, say, Fail, Outcome, Progress};
use crate::signals::Signals;
use tree::{Copier, Options};

/// Copy files and trees.
///
/// Where the filesystem can share blocks between files, nothing is copied. Otherwise data goes in large
/// direct requests with one copy in memory at most, or through the page cache where that is cheaper.
/// Holes stay holes; what a file with holes grows by meanwhile is left out.
///
/// An existing file is overwritten in place, also if it has other names: with hard-linked snapshots, copy into a
/// new directory. A symbolic link takes the place of another one, and of nothing else. With -a, a further name
/// of a source that has several takes the place of whatever has it but a directory: also of a FIFO or device.
///
/// Nothing else is ever removed. If a copy does not complete, the line that says why also names the file
/// that is incomplete and how far it got; the other sources are still copied, unless a signal ends
/// the command. Only -a keeps hard links, extended attributes and access control lists; a list that the
/// filesystem does not keep is a failure. A copy without the list gives the group what the list gives it, and
/// not the list's mask. With -r, FIFOs, sockets and devices are made anew, not read; to make devices takes
/// root.
#[derive(clap::Args, Debug)]
#[command(override_usage = "pdio cp [OPTIONS] SRC... DST", after_long_help = EXAMPLES)]
pub struct Cp {
    /// What to copy, and last where to: a file or a directory to copy into
    #[arg(value_name = "PATH", value_hint = ValueHint::AnyPath)]
    paths: Vec<OsString>,
    /// Copy directories and all in them; symbolic links as such
    #[arg(short, long, short_alias = 'R')]
    recursive: bool,
    /// Keep mode, times and, where permitted, owner and group
    #[arg(short, long)]
    preserve: bool,
    /// As -r and -p, with hard links, extended attributes and access control lists
    #[arg(short, long)]
    archive: bool,
    /// Make everything durable before the command ends: fsync each file and directory
    #[arg(long, alias = "durable")]
    sync: bool,
    /// Print 'SRC' -> 'DST' for each file, directory and link that is made or overwritten
    #[arg(short, long)]
    verbose: bool,
    /// No progress line
    #[arg(short, long)]
    quiet: bool,
    /// Print what was done as one JSON object
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "Examples:
  pdio cp disk.img /mnt/backup/          one file into a directory
  pdio cp -a --sync photos /mnt/backup   a tree, as it is, on stable storage

--durable is another name of --sync.

Exit status:
  0  everything was copied
  1  something was not; standard error says what
  2  the command line is wrong; nothing was touched
  129, 130, 143  ended by SIGHUP, SIGINT, SIGTERM";

/// Runs the command.
///
/// # Errors
/// If anything was not copied.
pub fn run(args: &Cp) -> Outcome {
    let options = Options {
        recursive: args.recursive || args.archive,
        preserve: args.preserve || args.archive,
        archive: args.archive,
        sync: args.sync,
        verbose: args.verbose,
    };
    if args.paths.iter().any(|path| path.is_empty()) {
        return Err(Fail::Refused(2, "an empty name is no file".into()));
    }
    let paths: Vec<PathBuf> = args.paths.iter().map(PathBuf::from).collect();
    let (target, sources) = match paths.as_slice() {
        [] => return Err(Fail::Usage("missing operand".into())),
        [one] => {
            let text = format!("missing destination after {}", quoted(one));
            return Err(Fail::Usage(text));
        }
        [sources @ .., target] => (target, sources),
    };
    let into = target.is_dir();
    let has_tree = options.recursive && sources.iter().any(|s| s.is_dir());
    // As with cp: a tree may be named DST/ before that is there.
    let must_be = !has_tree && target.as_os_str().as_encoded_bytes().ends_with(b"/");
    if !into && (sources.len() > 1 || must_be) {
        return Err(Fail::Usage(format!(
            "{} is not a directory",
            quoted(target)
        )));
    }
    let total = sources
        .iter()
        .filter_map(|s| fs::metadata(s).ok())
        .map(|m| if m.is_file() { m.len() } else { 0 })
        .fold(0, u64::saturating_add);
    allow_depth();
    let signals = Signals::listen(&[])?;
    let progress = Progress::new("", if has_tree { 0 } else { total }, !args.quiet);
    let mut copier = Copier::new(options, target, &signals, progress);
    let mut ended = None;
    let mut named = BTreeSet::new();
    for (i, source) in sources.iter().enumerate() {
        let destination = match (into, source.file_name()) {
            (false, _) => target.clone(),
            (true, Some(name)) if !source.as_os_str().as_bytes().ends_with(b"/.") => {
                target.join(name)
            }
            // ".", ".." and "DIR/.": their contents.
            (true, _) => target.clone(),
        };
        let inode = fs::symlink_metadata(source).map(|about| (about.dev(), about.ino()));
        if inode.is_ok_and(|inode| !named.insert((inode, destination.clone()))) {
            let line = format!(
                "pdio cp: {} is named twice, and copied once",
                quoted(source)
            );
            copier.data.progress.aside(|| say(line));
            continue;
        }
        if let Err(fail) = copier.named(source, &destination) {
            ended = Some(fail);
            break;
        }
        let coming = sources[i + 1..].iter();
        copier.data.expect(rustix::fs::CWD, coming);
    }
    if ended.is_none() {
        copier.sync()?;
    }
    let (t, data) = (&copier.totals, &copier.data);
    let mut told = Ok(());
    if args.json {
        let (_, time) = data.progress.totals();
        told = report::json(&json!({
            "files": t.files, "directories": t.directories, "symbolic_links": t.symbolic_links,
            "hard_links": t.hard_links, "special_files": t.special_files,
            "bytes": data.bytes, "shared_bytes": data.shared, "direct_bytes": data.direct,
            "failed": t.failed, "seconds": time.as_secs_f64(),
            "interrupted": ended.is_some(), "durable": args.sync && ended.is_none() && t.failed == 0,
        }));
    }
    match (ended, copier.totals.failed) {
        (Some(fail), _) => Err(fail),
        (None, 0) => told,
        _ => Err(Fail::Reported),
    }
}

/// A directory stays open until what is in it is copied: where trees are deep, more than the descriptors that a
/// process is given to begin with.
fn allow_depth() {
    let limit = getrlimit(Resource::Nofile);
    let current = limit.maximum;
    // Where it stays as it is, a directory that is too deep is a failure of its own.
    let _ = setrlimit(Resource::Nofile, Rlimit { current, ..limit });
}
