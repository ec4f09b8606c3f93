// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pdio cp`: copies files and trees with one copy in memory at most.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::fs::{self, File, Metadata};
use std::io::{self, BufRead, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use pdio::{OpenOptions, Writer};
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Uid, XattrFlags};
use rustix::io::Errno;
use serde_json::json;

use crate::report::{self, quoted, say, Context, Fail, Outcome, Progress};
use crate::signals::Signals;

/// Copy files and trees.
///
/// Where the filesystem can share blocks between files, nothing is copied. Otherwise data goes in large
/// direct requests with one copy in memory at most, or through the page cache where that is cheaper.
/// Holes stay holes. An existing file is overwritten in place, also if it has other names: with hard-linked
/// snapshots, copy into a new directory. A symbolic link takes the place of another one, and of nothing else.
///
/// Nothing is ever removed. If a copy does not complete, the line that says why also names the file
/// that is incomplete and how far it got; the other sources are still copied, unless a signal ends
/// the command. Only -a keeps hard links, extended attributes and access control lists. With -r, FIFOs,
/// sockets and devices are made anew, not read; to make devices takes root.
#[derive(clap::Args, Clone, Debug)]
#[command(override_usage = "pdio cp [OPTIONS] SRC... DST", after_long_help = EXAMPLES)]
pub struct Cp {
    /// SRC... DST: what to copy, and last where to, a file or a directory to copy into
    #[arg(required = true, num_args = 2.., value_name = "PATH")]
    paths: Vec<PathBuf>,
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

#[derive(Default)]
struct Totals {
    files: u64,
    directories: u64,
    symbolic_links: u64,
    hard_links: u64,
    special_files: u64,
    bytes: u64,
    shared: u64,
    direct: u64,
    failed: u64,
}

struct Copier<'a> {
    args: &'a Cp,
    signals: Signals,
    progress: Progress,
    totals: Totals,
    /// Directories with new entries, to be synced.
    touched: BTreeSet<PathBuf>,
    /// What was made by this run: a second source must not overwrite the first, nor be written
    /// through a link of it.
    made: BTreeSet<(u64, u64)>,
    /// With -a, where sources of several names were copied to first.
    copied: BTreeMap<(u64, u64), PathBuf>,
    /// Standard output takes no more lines; that was said.
    mute: bool,
    /// It was said that attributes are not kept.
    attributes_lost: bool,
    /// The last two filesystems (device numbers) between which no blocks can be shared.
    unshared: Option<(u64, u64)>,
    /// Memory for small files, once there was one.
    small: Vec<u8>,
}

/// Runs the command.
///
/// # Errors
/// If anything was not copied.
pub fn run(args: &Cp) -> Outcome {
    let args = &Cp {
        recursive: args.recursive || args.archive,
        preserve: args.preserve || args.archive,
        ..args.clone()
    };
    let Some((target, sources)) = args.paths.split_last() else {
        return Err(Fail::Usage("nothing to copy".into()));
    };
    let into = target.is_dir();
    let has_tree = args.recursive && sources.iter().any(|s| s.is_dir());
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
        .sum();
    let mut copier = Copier {
        args,
        signals: Signals::listen(&[])?,
        progress: Progress::new("", if has_tree { 0 } else { total }, !args.quiet),
        totals: Totals::default(),
        touched: BTreeSet::new(),
        made: BTreeSet::new(),
        copied: BTreeMap::new(),
        mute: false,
        attributes_lost: false,
        unshared: None,
        small: Vec::new(),
    };
    let mut ended = None;
    for source in sources {
        let destination = match (into, source.file_name()) {
            (false, _) => target.clone(),
            (true, Some(name)) if !source.as_os_str().as_bytes().ends_with(b"/.") => {
                target.join(name)
            }
            // ".", ".." and "DIR/.": their contents.
            (true, _) => target.clone(),
        };
        if let Err(fail) = copier.named(source, &destination) {
            ended = Some(fail);
            break;
        }
    }
    if ended.is_none() {
        for directory in std::mem::take(&mut copier.touched) {
            let synced = File::open(&directory).and_then(|d| d.sync_all());
            copier.note(synced.context("sync directory", &directory))?;
        }
    }
    let t = &copier.totals;
    let mut told = Ok(());
    if args.json {
        let (_, time) = copier.progress.totals();
        told = report::json(&json!({
            "files": t.files, "directories": t.directories, "symbolic_links": t.symbolic_links,
            "hard_links": t.hard_links, "special_files": t.special_files,
            "bytes": t.bytes, "shared_bytes": t.shared, "direct_bytes": t.direct,
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

impl Copier<'_> {
    /// Reports a failure and goes on; only a signal ends everything.
    fn note(&mut self, outcome: Outcome) -> Outcome {
        match outcome {
            Err(Fail::Failed(text)) | Err(Fail::Usage(text)) => {
                self.totals.failed += 1;
                self.progress.aside(|| say(format_args!("pdio cp: {text}")));
                Ok(())
            }
            other => other,
        }
    }

    /// Copies what was named on the command line.
    fn named(&mut self, from: &Path, to: &Path) -> Outcome {
        let tree = fs::symlink_metadata(from).is_ok_and(|about| about.is_dir());
        match self.args.recursive && tree && is_in(to, from) {
            true => self.note(Err(into_itself(from, to))),
            false => self.item(from, to),
        }
    }

    /// Copies whatever `from` is.
    fn item(&mut self, from: &Path, to: &Path) -> Outcome {
        self.signals.check()?;
        // As with cp: links are followed unless a tree is copied.
        let about = match self.args.recursive {
            true => fs::symlink_metadata(from),
            false => fs::metadata(from),
        };
        let outcome = about.context("read", from).and_then(|about| {
            let kind = about.file_type();
            if kind.is_dir() {
                return self.directory(from, to, &about);
            }
            let names = self.args.archive && about.nlink() > 1;
            let source = (about.dev(), about.ino());
            if let Some(first) = self.copied.get(&source).filter(|_| names) {
                return self.another_name(&first.clone(), from, to);
            }
            if kind.is_symlink() {
                self.link(from, to, &about)?;
                if names {
                    self.copied.insert(source, to.to_path_buf());
                }
                return Ok(());
            }
            match kind.is_file() {
                true => self.file(from, to, &about)?,
                false if self.args.recursive => self.special(from, to, &about)?,
                false if kind.is_socket() => {
                    return Err(Fail::Failed(format!(
                        "{} is a socket: not copied without -r",
                        quoted(from)
                    )));
                }
                // What a device or FIFO has to say.
                false => self.file(from, to, &about)?,
            }
            if names {
                self.copied.insert(source, to.to_path_buf());
            }
            Ok(())
        });
        self.note(outcome)
    }

    fn directory(&mut self, from: &Path, to: &Path, about: &Metadata) -> Outcome {
        if !self.args.recursive {
            return Err(Fail::Failed(format!(
                "{} is a directory: not copied without -r",
                quoted(from)
            )));
        }
        // The copy may be seen in the source by another path, as that of a bind mount.
        if self.made.contains(&(about.dev(), about.ino())) {
            return Err(into_itself(from, to));
        }
        // Listed before anything is made, so that nothing made is listed. One that cannot be read is
        // made nevertheless, as with cp.
        let listed = fs::read_dir(from)
            .and_then(|d| d.map(|e| Ok(e?.file_name())).collect::<Result<Vec<_>, _>>())
            .context("read directory", from);
        let mut last_mode = None;
        let named = self.args.paths.last().is_some_and(|last| last == to);
        // Until it is full its owner must be able to fill it, and with -p nobody else.
        let others = if self.args.preserve { 0 } else { 0o077 };
        // The sticky bit as with cp: in a directory for all, nobody removes what is another's.
        let first_mode = about.mode() & (others | 0o1000) | 0o700;
        match fs::DirBuilder::new().mode(first_mode).create(to) {
            Ok(()) => {
                let made = fs::metadata(to).context("read", to)?;
                self.made.insert((made.dev(), made.ino()));
                let given = made.mode();
                // A set-group-ID bit is its parent's, and lost where somebody who is not of that group
                // sets a mode: that is done only where it changes something.
                let last = given & 0o3000 | about.mode() & given & 0o777;
                last_mode = Some(last).filter(|&last| last != given & 0o7777 | 0o700);
                if given & 0o700 != 0o700 {
                    let mode = fs::Permissions::from_mode(given & 0o7777 | 0o700);
                    fs::set_permissions(to, mode).context("set the mode of", to)?;
                }
                self.touch(to);
                self.totals.directories += 1;
                self.tell(from, to)?;
            }
            // As with cp: only the directory that was named may be a link to one.
            Err(_) if to.is_dir() && (named || !to.is_symlink()) => {}
            Err(_) if to.is_dir() => {
                return Err(Fail::Failed(format!(
                    "{} is a symbolic link: the directory {} is not copied through it",
                    quoted(to),
                    quoted(from)
                )));
            }
            Err(error) => return Err(error).context("create directory", to),
        }
        if self.args.sync {
            self.touched.insert(to.to_path_buf());
        }
        match listed {
            Ok(mut names) => {
                names.sort();
                for name in names {
                    self.item(&from.join(&name), &to.join(&name))?;
                }
            }
            Err(fail) => self.note(Err(fail))?,
        }
        if self.args.preserve {
            let directory = File::open(to).context("open", to)?;
            self.preserve(&Made::Open(&directory), from, to, about)?;
        } else if let Some(mode) = last_mode {
            let mode = fs::Permissions::from_mode(mode);
            fs::set_permissions(to, mode).context("set the mode of", to)?;
        }
        Ok(())
    }

    fn link(&mut self, from: &Path, to: &Path, about: &Metadata) -> Outcome {
        let target = fs::read_link(from).context("read", from)?;
        let there = fs::read_link(to).ok();
        let present = there.as_ref() == Some(&target);
        let make = |to: &Path| std::os::unix::fs::symlink(&target, to);
        if there.is_some() && !present {
            let about = fs::symlink_metadata(to).context("read", to)?;
            if self.made.contains(&(about.dev(), about.ino())) {
                return Err(just_made(from, to));
            }
            replace(to, "create symbolic link", make)?;
        } else if !present {
            make(to).context("create symbolic link", to)?;
        }
        let made = fs::symlink_metadata(to).context("read", to)?;
        self.made.insert((made.dev(), made.ino()));
        if present {
            return Ok(());
        }
        self.touch(to);
        self.totals.symbolic_links += 1;
        self.tell(from, to)?;
        if self.args.preserve {
            let (cwd, no_follow) = (rustix::fs::CWD, AtFlags::SYMLINK_NOFOLLOW);
            let (user, group) = (Uid::from_raw(about.uid()), Gid::from_raw(about.gid()));
            // As with files: not permitted is not a failure.
            let _ = rustix::fs::chownat(cwd, to, Some(user), Some(group), no_follow);
            self.attributes(from, to)?;
            rustix::fs::utimensat(cwd, to, &times(about), no_follow)
                .map_err(Into::into)
                .context("set the times of", to)?;
        }
        Ok(())
    }

    /// Makes a FIFO, socket or device. One that is there already stays; nothing else is replaced.
    fn special(&mut self, from: &Path, to: &Path, about: &Metadata) -> Outcome {
        let kind = FileType::from_raw_mode(about.mode());
        let what = match kind {
            FileType::Fifo => "FIFO",
            FileType::Socket => "socket",
            _ => "device",
        };
        let like = |there: &Metadata| {
            FileType::from_raw_mode(there.mode()) == kind && there.rdev() == about.rdev()
        };
        let there = fs::symlink_metadata(to).ok();
        if let Some(there) = &there {
            let inode = (there.dev(), there.ino());
            if inode == (about.dev(), about.ino()) {
                return Err(same_file(from, to));
            }
            if self.made.contains(&inode) {
                return Err(just_made(from, to));
            }
        }
        let present = there.as_ref().is_some_and(like);
        if !present {
            // Until it has its owner nobody else opens it.
            let mode = about.mode() & if self.args.preserve { 0o700 } else { 0o777 };
            let mode = Mode::from_raw_mode(mode);
            rustix::fs::mknodat(rustix::fs::CWD, to, kind, mode, about.rdev())
                .map_err(Into::into)
                .context(&format!("create {what}"), to)?;
        }
        // Opened as itself it would wait for others, or do what the device does.
        let flags = (OFlags::PATH | OFlags::NOFOLLOW).bits() as i32;
        let node = File::options().read(true).custom_flags(flags).open(to);
        let node = node.context("read", to)?;
        let made = node.metadata().context("read", to)?;
        if !like(&made) {
            return Err(Fail::Failed(format!(
                "{} was replaced by another program",
                quoted(to)
            )));
        }
        self.made.insert((made.dev(), made.ino()));
        if !present {
            self.touch(to);
            self.totals.special_files += 1;
            self.tell(from, to)?;
        }
        match self.args.preserve {
            true => self.preserve(&Made::Node(&node), from, to, about),
            false => Ok(()),
        }
    }

    /// Gives what was copied to `first` the name `to` as well.
    fn another_name(&mut self, first: &Path, from: &Path, to: &Path) -> Outcome {
        let inode = |path| {
            let about = fs::symlink_metadata(path).ok()?;
            Some((about.is_dir(), (about.dev(), about.ino())))
        };
        match (inode(first), inode(to)) {
            (Some(one), Some(other)) if one == other => return Ok(()),
            (_, Some((_, other))) if self.made.contains(&other) => return Err(just_made(from, to)),
            (_, Some((false, _))) => {
                replace(to, "create hard link", |to| fs::hard_link(first, to))?;
            }
            _ => fs::hard_link(first, to).context("create hard link", to)?,
        }
        self.touch(to);
        self.totals.hard_links += 1;
        self.tell(from, to)
    }

    /// With -a, gives `to` the extended attributes of `from`, in which access control lists are, and no
    /// lists that its directory gave it. As with cp, where they cannot be kept that is no failure.
    fn attributes(&mut self, from: &Path, to: &Path) -> Outcome {
        if !self.args.archive {
            return Ok(());
        }
        let wanted = attributes_of(from).context("read the attributes of", from)?;
        let present = attributes_of(to).context("read the attributes of", to)?;
        let mut lost = None;
        for (name, value) in &wanted {
            if !present.contains(&(name.clone(), value.clone())) {
                let set = rustix::fs::lsetxattr(to, name, value, XattrFlags::empty());
                lost = lost.or(set.err().map(|error| (name, error)));
            }
        }
        for (name, _) in &present {
            let list = name.to_bytes().starts_with(b"system.posix_acl_");
            if list && !wanted.iter().any(|(other, _)| other == name) {
                let removed = rustix::fs::lremovexattr(to, name);
                lost = lost.or(removed.err().map(|error| (name, error)));
            }
        }
        match lost {
            None => Ok(()),
            Some((name, error @ (Errno::OPNOTSUPP | Errno::PERM))) => {
                if !self.attributes_lost {
                    self.attributes_lost = true;
                    let reason = report::reason(&error.into());
                    self.progress.aside(|| {
                        say(format_args!(
                            "pdio cp: {} does not keep {}: {reason}; nor may others",
                            quoted(to),
                            name.to_string_lossy()
                        ));
                    });
                }
                Ok(())
            }
            Some((name, error)) => {
                Err(error.into()).context(&format!("set {} of", name.to_string_lossy()), to)
            }
        }
    }

    /// Says what is copied. It is copied even if nobody hears that.
    fn tell(&mut self, from: &Path, to: &Path) -> Outcome {
        if !self.args.verbose || self.mute {
            return Ok(());
        }
        let line = format!("{} -> {}", quoted(from), quoted(to));
        let mut outcome = Ok(());
        self.progress.aside(|| outcome = report::print(&line));
        self.mute = outcome.is_err();
        self.note(outcome)
    }

    /// Remembers that the directory of `path` has a new entry.
    fn touch(&mut self, path: &Path) {
        if self.args.sync {
            let parent = path.parent().filter(|p| !p.as_os_str().is_empty());
            self.touched
                .insert(parent.unwrap_or(Path::new(".")).to_path_buf());
        }
    }

    fn file(&mut self, from: &Path, to: &Path, about: &Metadata) -> Outcome {
        self.progress.name(&from.to_string_lossy());
        let mut options = File::options();
        options.read(true);
        // Only a FIFO has to be waited for.
        let source = match about.is_file() {
            true => options.open(from),
            false => self.signals.open(&options, from)?,
        };
        let source = source.context("open", from)?;
        let itself = fs::symlink_metadata(to).ok();
        let is_link = itself.as_ref().is_some_and(Metadata::is_symlink);
        let existing = match is_link {
            true => fs::metadata(to).ok(),
            false => itself.clone(),
        };
        if let Some(existing) = &existing {
            if (existing.dev(), existing.ino()) == (about.dev(), about.ino()) {
                return Err(same_file(from, to));
            }
        }
        if [&existing, &itself]
            .into_iter()
            .flatten()
            .any(|about| self.made.contains(&(about.dev(), about.ino())))
        {
            return Err(just_made(from, to));
        }
        if existing.is_none() && is_link {
            return Err(Fail::Failed(format!(
                "{} is a symbolic link to nothing: not written through",
                quoted(to)
            )));
        }
        // Until it has its owner nobody else reads it; attributes are given only to what can be written.
        let mode = about.mode() & if self.args.preserve { 0o700 } else { 0o777 };
        let mode = mode | if self.args.archive { 0o200 } else { 0 };
        let mut options = File::options();
        options
            .write(true)
            .create_new(existing.is_none())
            .truncate(existing.is_some())
            .mode(mode)
            .custom_flags(OFlags::NOCTTY.bits() as i32);
        let waits = existing.as_ref().is_some_and(|e| e.file_type().is_fifo());
        let file = match waits {
            true => self.signals.open(&options, to)?,
            false => options.open(to),
        };
        let file = file.context(
            if existing.is_some() {
                "overwrite"
            } else {
                "create"
            },
            to,
        )?;
        if existing.is_none() {
            self.touch(to);
        }
        self.tell(from, to)?;
        let made = file.metadata().context("write", to)?;
        if made.is_file() {
            self.made.insert((made.dev(), made.ino()));
        }
        let pair = Pair {
            from,
            to,
            about,
            made: &made,
        };
        let mut position = 0;
        let outcome = self
            .contents(source, &file, &pair, &mut position)
            .and_then(|()| match self.args.preserve {
                true => self.preserve(&Made::Open(&file), from, to, about),
                false => Ok(()),
            })
            .and_then(|()| match self.args.sync && about.is_file() {
                true => file.sync_all().context("make durable", to),
                false => Ok(()),
            });
        match outcome {
            Ok(()) => {
                // Some filesystems tell only now what they have lost.
                pdio::close(file).context("write", to)?;
                self.totals.files += 1;
                Ok(())
            }
            Err(fail) => {
                let has = file.metadata().map(|m| m.len()).unwrap_or(0).min(position);
                let incomplete = format!(
                    "{} is incomplete: {has} of {} bytes",
                    quoted(to),
                    about.len()
                );
                match fail {
                    Fail::Failed(text) if position < about.len() || about.len() == 0 => {
                        Err(Fail::Failed(format!("{text}; {incomplete}")))
                    }
                    Fail::Signal(signal) => {
                        self.progress
                            .aside(|| say(format_args!("pdio cp: interrupted; {incomplete}")));
                        Err(Fail::Signal(signal))
                    }
                    other => Err(other),
                }
            }
        }
    }

    /// Copies the bytes; `position` says how far it came.
    fn contents(&mut self, source: File, file: &File, pair: &Pair, position: &mut u64) -> Outcome {
        let &Pair {
            from,
            to,
            about,
            made,
        } = pair;
        if self.share(&source, file, pair) {
            *position = about.len();
            return Ok(());
        }
        let sparse = made.is_file() && about.is_file() && about.blocks() * 512 < about.len();
        let small = about.is_file() && about.len() <= SMALL as u64 && !sparse;
        if small && self.whole(&source, file, pair, position)? {
            return Ok(());
        }
        let holes = sparse
            .then(|| Ok((source.try_clone()?, file)))
            .transpose()
            .context("read", from)?;
        let own = file.try_clone().context("write", to)?;
        let mut writer = OpenOptions::new().writer_from(own).context("write", to)?;
        if !about.is_file() {
            // A named pipe or device: bytes as they come.
            let mut source = source;
            let mut buffer = vec![0; 256 << 10];
            loop {
                self.signals.check()?;
                let ready = self.signals.wait(source.as_fd(), false, None);
                if ready.context("read", from)? == crate::signals::Ready::Signal {
                    continue;
                }
                let n = io::Read::read(&mut source, &mut buffer).context("read", from)?;
                if n == 0 {
                    return self.finish(writer, to);
                }
                writer.write_all(&buffer[..n]).context("write", to)?;
                *position += n as u64;
                self.totals.bytes += n as u64;
                self.progress.add(n as u64);
            }
        }
        let mut reader = OpenOptions::new()
            .reader_from(source)
            .context("read", from)?;
        loop {
            let Some((start, end)) =
                next_data(holes.as_ref().map(|(from, _)| from), *position).context("read", from)?
            else {
                // Nothing but a hole is left; the source may have grown or shrunk meanwhile.
                let size = reader.seek(SeekFrom::End(0)).context("read", from)?;
                writer.set_len(size).context("write", to)?;
                *position = size;
                return self.finish(writer, to);
            };
            if let Some((source, file)) = holes.as_ref().filter(|_| end - start < LONG_RANGE) {
                // Short ranges are not worth a stream of their own.
                let n = copy_range(source, file, start, end);
                if n > 0 {
                    self.signals.check()?;
                    self.progress.add(start + n - *position);
                    *position = start + n;
                    self.totals.bytes += n;
                    continue;
                }
            }
            if start != *position || reader.position() != start {
                reader.seek(SeekFrom::Start(start)).context("read", from)?;
                writer.seek(SeekFrom::Start(start)).context("write", to)?;
                self.progress.add(start - *position);
                *position = start;
            }
            while *position < end {
                self.signals.check()?;
                let data = reader.fill_buf().context("read", from)?;
                let n = (data.len() as u64).min(end - *position) as usize;
                if n == 0 {
                    // The end of the file, now.
                    if *position < about.len() && sparse {
                        writer.set_len(*position).context("write", to)?;
                    }
                    return self.finish(writer, to);
                }
                writer.write_all(&data[..n]).context("write", to)?;
                reader.consume(n);
                *position += n as u64;
                self.totals.bytes += n as u64;
                self.progress.add(n as u64);
            }
        }
    }

    /// Has the filesystem share the blocks, if it can.
    fn share(&mut self, source: &File, file: &File, pair: &Pair) -> bool {
        let &Pair { about, made, .. } = pair;
        let between = (about.dev(), made.dev());
        if !about.is_file() || about.len() == 0 || self.unshared == Some(between) {
            return false;
        }
        match rustix::fs::ioctl_ficlone(file, source) {
            Ok(()) => {
                self.totals.bytes += about.len();
                self.totals.shared += about.len();
                self.progress.add(about.len());
                true
            }
            Err(error) => {
                // So for every file between these two; other refusals are of this file.
                if matches!(error, Errno::OPNOTSUPP | Errno::NOTTY | Errno::XDEV) {
                    self.unshared = Some(between);
                }
                false
            }
        }
    }

    /// Copies a small file at once: a stream costs more than it gains. Returns false if it has grown too
    /// large meanwhile; both files are then where `position` says.
    fn whole(
        &mut self,
        mut source: &File,
        mut file: &File,
        pair: &Pair,
        position: &mut u64,
    ) -> Result<bool, Fail> {
        self.small.resize(SMALL + 1, 0);
        let mut filled = 0;
        let ended = loop {
            if filled == self.small.len() {
                break Ok(false);
            }
            match io::Read::read(&mut source, &mut self.small[filled..]) {
                Ok(0) => break Ok(true),
                Ok(n) => filled += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => self.signals.check()?,
                // What comes before a damaged place is good.
                Err(error) => break Err(error).context("read", pair.from),
            }
        };
        let mut rest = &self.small[..filled];
        while !rest.is_empty() {
            match file.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()).context("write", pair.to),
                Ok(n) => {
                    rest = &rest[n..];
                    *position += n as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => self.signals.check()?,
                Err(error) => return Err(error).context("write", pair.to),
            }
        }
        self.totals.bytes += filled as u64;
        self.progress.add(filled as u64);
        ended
    }

    fn finish(&mut self, writer: Writer, to: &Path) -> Outcome {
        let stats = writer.finish().context("write", to)?;
        self.totals.direct += stats.direct_bytes;
        Ok(())
    }

    fn preserve(&mut self, made: &Made, from: &Path, path: &Path, about: &Metadata) -> Outcome {
        // Changing the owner clears set-user-id bits and capabilities, so the rest comes after; the
        // mode is a part of the access control list.
        let mut mode = about.mode() & 0o7777;
        match made.set_owner(Some(about.uid()), about.gid()) {
            Ok(()) => {}
            // The latter if this is a container that does not know the owner.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput
                ) =>
            {
                // Another's rights are not given to a file of ours.
                mode &= 0o1777;
                let _ = made.set_owner(None, about.gid());
            }
            Err(error) => return Err(error).context("set the owner of", path),
        }
        self.attributes(from, path)?;
        made.set_mode(mode).context("set the mode of", path)?;
        made.set_times(&times(about))
            .context("set the times of", path)
    }
}

/// A file, what it is copied to, and what the two are.
struct Pair<'a> {
    from: &'a Path,
    to: &'a Path,
    about: &'a Metadata,
    made: &'a Metadata,
}

/// What was made, to be given an owner, a mode and times.
enum Made<'a> {
    Open(&'a File),
    /// Opened with `O_PATH`.
    Node(&'a File),
}

impl Made<'_> {
    fn set_owner(&self, user: Option<u32>, group: u32) -> io::Result<()> {
        let (user, group) = (user.map(Uid::from_raw), Some(Gid::from_raw(group)));
        Ok(match self {
            Made::Open(file) => rustix::fs::fchown(file, user, group),
            Made::Node(node) => rustix::fs::chownat(node, "", user, group, AtFlags::EMPTY_PATH),
        }?)
    }

    fn set_mode(&self, mode: u32) -> io::Result<()> {
        let mode = fs::Permissions::from_mode(mode);
        match self {
            Made::Open(file) => file.set_permissions(mode),
            // The only way that meets this node whatever its name has become.
            Made::Node(node) => {
                fs::set_permissions(format!("/proc/self/fd/{}", node.as_raw_fd()), mode)
            }
        }
    }

    fn set_times(&self, times: &rustix::fs::Timestamps) -> io::Result<()> {
        Ok(match self {
            Made::Open(file) => rustix::fs::futimens(file, times),
            Made::Node(node) => rustix::fs::utimensat(node, "", times, AtFlags::EMPTY_PATH),
        }?)
    }
}

/// Returns true if `path`, or what it is to be made in, is in this directory, or is it.
fn is_in(path: &Path, directory: &Path) -> bool {
    let Ok(whole) = directory.canonicalize() else {
        return false;
    };
    let within = |path: &Path| path.canonicalize().is_ok_and(|p| p.starts_with(&whole));
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty());
    within(path) || within(parent.unwrap_or(Path::new(".")))
}

fn into_itself(from: &Path, to: &Path) -> Fail {
    Fail::Failed(format!(
        "cannot copy {} into itself, {}",
        quoted(from),
        quoted(to)
    ))
}

fn same_file(from: &Path, to: &Path) -> Fail {
    Fail::Failed(format!(
        "{} and {} are the same file",
        quoted(from),
        quoted(to)
    ))
}

fn just_made(from: &Path, to: &Path) -> Fail {
    Fail::Failed(format!(
        "{} was just made from another source: {} is not copied over it",
        quoted(to),
        quoted(from)
    ))
}

fn times(about: &Metadata) -> rustix::fs::Timestamps {
    let time = |seconds, nanoseconds: i64| rustix::fs::Timespec {
        tv_sec: seconds,
        tv_nsec: nanoseconds as _,
    };
    rustix::fs::Timestamps {
        last_access: time(about.atime(), about.atime_nsec()),
        last_modification: time(about.mtime(), about.mtime_nsec()),
    }
}

/// The next range of data at or after `position`; `None` if there is only a hole. Everything, if
/// the file is not sparse.
fn next_data(file: Option<&File>, position: u64) -> io::Result<Option<(u64, u64)>> {
    let Some(file) = file else {
        return Ok(Some((position, u64::MAX)));
    };
    let start = match rustix::fs::seek(file, rustix::fs::SeekFrom::Data(position)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok(None),
        // A filesystem that does not know its holes.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(Some((position, u64::MAX))),
        Err(error) => return Err(error.into()),
    };
    let end = rustix::fs::seek(file, rustix::fs::SeekFrom::Hole(start))?;
    Ok(Some((start, end)))
}

/// Maximum length of a file that is copied at once.
const SMALL: usize = 256 << 10;
/// Data between holes is copied by a stream from this length on.
const LONG_RANGE: u64 = 8 << 20;

/// Has the kernel copy a range. Returns how much it did; zero if it does not do that here.
fn copy_range(from: &File, to: &File, start: u64, end: u64) -> u64 {
    let (mut at, mut into) = (start, start);
    while at < end {
        let len = (end - at) as usize;
        match rustix::fs::copy_file_range(from, Some(&mut at), to, Some(&mut into), len) {
            Ok(0) => break,
            Ok(_) | Err(Errno::INTR) => {}
            // The stream goes on, and meets the error if there is one.
            Err(_) => break,
        }
    }
    at - start
}

/// Makes something in the place of what `to` is, in one step: there is always one of the two.
fn replace(to: &Path, what: &str, make: impl Fn(&Path) -> io::Result<()>) -> Outcome {
    let temporary = to.with_file_name(format!(".pdio-{}", std::process::id()));
    make(&temporary).context(what, &temporary)?;
    let renamed = fs::rename(&temporary, to);
    if renamed.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    renamed.context("replace", to)
}

/// The extended attributes of a file, directory or symbolic link; none where there can be none.
fn attributes_of(path: &Path) -> io::Result<Vec<(CString, Vec<u8>)>> {
    let mut found = Vec::new();
    let mut names = vec![0u8; 64 << 10];
    let len = match rustix::fs::llistxattr(path, &mut names[..]) {
        Err(Errno::OPNOTSUPP) => return Ok(found),
        len => len?,
    };
    for name in names[..len]
        .split(|&byte| byte == 0)
        .filter(|name| !name.is_empty())
    {
        let name = CString::new(name)?;
        let mut value = vec![0u8; 64 << 10];
        match rustix::fs::lgetxattr(path, &name, &mut value[..]) {
            Ok(len) => {
                value.truncate(len);
                found.push((name, value));
            }
            // Gone meanwhile, or not to be seen.
            Err(Errno::NODATA | Errno::PERM | Errno::OPNOTSUPP) => {}
            Err(error) => return Err(error.into()),
        }
    }
    // Access control lists last: they may take the right to set others.
    found.sort_by_key(|(name, _)| name.to_bytes().starts_with(b"system."));
    Ok(found)
}
