// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes what is copied: directories, files, links and special files, each under its new name.
//!
//! Nothing is ever removed but what has another name of a source with several and, for a link, another link. So
//! much of this is about what is there already. Neither the source itself nor
//! what this run has made from another source is overwritten.
//!
//! Others may change the source meanwhile. So a directory of it is opened when it is met, and what is in it is found
//! from there, never by its path: no part of that can be replaced by a link to what is not of the tree.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Dir, FileType, Mode, OFlags};

use super::attributes::{mode_without_list, Attributes, Holder, Made, Original};
use super::data::{Data, Pair};
use crate::report::{self, quoted, say, Context, Fail, Outcome, Progress};
use crate::signals::Signals;

/// What the command line asks for.
pub struct Options {
    pub recursive: bool,
    pub preserve: bool,
    pub archive: bool,
    pub sync: bool,
    pub verbose: bool,
}

/// How much of each kind was made.
#[derive(Default)]
pub struct Totals {
    pub files: u64,
    pub directories: u64,
    pub symbolic_links: u64,
    pub hard_links: u64,
    pub special_files: u64,
    pub failed: u64,
}

/// What is to be copied: a name in a directory that is open, and the path to call it by.
#[derive(Clone, Copy)]
struct Source<'a> {
    directory: BorrowedFd<'a>,
    name: &'a OsStr,
    path: &'a Path,
}

impl<'a> Source<'a> {
    /// As it was named on the command line.
    fn named(path: &'a Path) -> Source<'a> {
        Source {
            directory: rustix::fs::CWD,
            name: path.as_os_str(),
            path,
        }
    }

    fn open(self, flags: OFlags) -> io::Result<File> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOCTTY;
        let open = || rustix::fs::openat(self.directory, self.name, flags, Mode::empty());
        Ok(rustix::io::retry_on_intr(open)?.into())
    }

    /// Opens what was a file of a tree.
    fn open_file(self) -> io::Result<File> {
        match self.open(FILE) {
            // It is leased, as by a file server, which has a while to give it back: who waits gets it then.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let found = self.open(OFlags::PATH | OFlags::NOFOLLOW)?;
                match found.metadata()?.is_file() {
                    true => File::open(format!("/proc/self/fd/{}", found.as_raw_fd())),
                    false => Err(error),
                }
            }
            opened => opened,
        }
    }

    /// The original of a copy, which is `open` if it could be.
    fn original(self, open: Option<&'a File>) -> Original<'a> {
        let holder = open.map_or(Holder::Named(self.path), Holder::Open);
        let path = self.path;
        Original { holder, path }
    }
}

/// How a file of a tree is opened: no link, and nothing that waits for somebody.
const FILE: OFlags = OFlags::NOFOLLOW.union(OFlags::NONBLOCK);

/// How a directory of a tree is opened.
const DIRECTORY: OFlags = OFlags::NOFOLLOW.union(OFlags::DIRECTORY);

/// A directory that is filled.
struct Copied {
    directory: File,
    /// False if it is open with `O_PATH`, as nobody may read it.
    readable: bool,
    /// The mode that it is to have in the end, if that is another.
    last_mode: Option<u32>,
}

pub struct Copier<'a> {
    options: Options,
    /// The destination as it was named.
    target: &'a Path,
    signals: &'a Signals,
    pub data: Data<'a>,
    attributes: Attributes,
    pub totals: Totals,
    /// Directories with new entries, to be synced.
    touched: BTreeSet<PathBuf>,
    /// What was made by this run: a second source must not overwrite the first, nor be written
    /// through a link of it.
    made: BTreeSet<(u64, u64)>,
    /// With -a, where sources of several names were copied to first.
    copied: BTreeMap<(u64, u64), PathBuf>,
    /// Standard output takes no more lines; that was said.
    mute: bool,
}

impl<'a> Copier<'a> {
    pub fn new(
        options: Options,
        target: &'a Path,
        signals: &'a Signals,
        progress: Progress,
    ) -> Copier<'a> {
        Copier {
            attributes: Attributes::new(options.archive),
            options,
            target,
            signals,
            data: Data::new(signals, progress),
            totals: Totals::default(),
            touched: BTreeSet::new(),
            made: BTreeSet::new(),
            copied: BTreeMap::new(),
            mute: false,
        }
    }

    /// Copies what was named on the command line.
    pub fn named(&mut self, from: &Path, to: &Path) -> Outcome {
        let tree = fs::symlink_metadata(from).is_ok_and(|about| about.is_dir());
        match self.options.recursive && tree && is_in(to, from) {
            true => self.note(Err(into_itself(from, to))),
            false => self.item(Source::named(from), to, FileType::Unknown),
        }
    }

    /// Syncs the directories that have new entries.
    pub fn sync(&mut self) -> Outcome {
        for directory in std::mem::take(&mut self.touched) {
            // Nothing else that has its name by now: a FIFO would be waited for.
            let flags = OFlags::DIRECTORY.bits() as i32;
            let opened = File::options()
                .read(true)
                .custom_flags(flags)
                .open(&directory);
            let synced = opened.and_then(|d| d.sync_all());
            self.note(synced.context("sync directory", &directory))?;
        }
        Ok(())
    }

    /// Reports a failure and goes on; only a signal ends everything.
    fn note(&mut self, outcome: Outcome) -> Outcome {
        match outcome {
            Err(Fail::Failed(text)) | Err(Fail::Usage(text)) => {
                self.totals.failed += 1;
                self.data
                    .progress
                    .aside(|| say(format_args!("pdio cp: {text}")));
                Ok(())
            }
            other => other,
        }
    }

    /// Says what `from` is, and opens it if it was `listed` as a file or directory: then there is no time in which it
    /// could be replaced. Anything else is looked at first, as to open a device does something.
    fn look(&self, from: Source, listed: FileType) -> io::Result<(Metadata, Option<File>)> {
        let opened = match listed {
            FileType::RegularFile => from.open(FILE).ok(),
            FileType::Directory => from.open(DIRECTORY).ok(),
            _ => None,
        };
        if let Some(file) = opened {
            let about = file.metadata()?;
            if about.is_file() || about.is_dir() {
                return Ok((about, Some(file)));
            }
        }
        // As with cp: links are followed unless a tree is copied.
        let link = match self.options.recursive {
            true => OFlags::NOFOLLOW,
            false => OFlags::empty(),
        };
        Ok((from.open(OFlags::PATH | link)?.metadata()?, None))
    }

    /// Copies whatever `from` is, which its directory has `listed` as that kind.
    fn item(&mut self, from: Source, to: &Path, listed: FileType) -> Outcome {
        self.signals.check()?;
        let found = self.look(from, listed);
        let outcome = found
            .context("read", from.path)
            .and_then(|(about, opened)| {
                let kind = about.file_type();
                if kind.is_dir() {
                    return self.directory(from, to, about, opened);
                }
                let names = self.options.archive && about.nlink() > 1;
                let source = (about.dev(), about.ino());
                if let Some(first) = self.copied.get(&source).filter(|_| names) {
                    return self.another_name(&first.clone(), from.path, to);
                }
                if kind.is_symlink() {
                    self.link(from, to, &about)?;
                } else if kind.is_file() {
                    self.file(from, to, &about, opened)?;
                } else if self.options.recursive {
                    self.special(from, to, &about)?;
                } else if kind.is_socket() {
                    return Err(Fail::Failed(format!(
                        "{} is a socket: not copied without -r",
                        quoted(from.path)
                    )));
                } else {
                    // What a device or FIFO has to say.
                    self.file(from, to, &about, None)?;
                }
                if names {
                    self.copied.insert(source, to.to_path_buf());
                }
                Ok(())
            });
        self.note(outcome)
    }

    fn directory(
        &mut self,
        from: Source,
        to: &Path,
        mut about: Metadata,
        opened: Option<File>,
    ) -> Outcome {
        if !self.options.recursive {
            return Err(Fail::Failed(format!(
                "{} is a directory: not copied without -r",
                quoted(from.path)
            )));
        }
        let opened = match opened {
            Some(directory) => Ok(directory),
            None => {
                let opened = from.open(DIRECTORY);
                if let Ok(directory) = &opened {
                    // What it is now: it may have been mounted by this, or have replaced another one.
                    about = directory.metadata().context("read", from.path)?;
                }
                opened
            }
        };
        let about = &about;
        // The copy may be seen in the source by another path, as that of a bind mount.
        if self.made.contains(&(about.dev(), about.ino())) {
            return Err(into_itself(from.path, to));
        }
        // Listed before anything is made, so that nothing made is listed. One that cannot be read is
        // made nevertheless, as with cp.
        let (directory, listed) = match opened {
            Ok(directory) => {
                let listed = entries(&directory);
                (Some(directory), listed)
            }
            Err(error) => (None, Err(error)),
        };
        let original = from.original(directory.as_ref());
        // The sticky bit as with cp: in a directory for all, nobody removes what is another's.
        let mode = self.mode(original.holder, about);
        let made = self.make_directory(from, to, mode)?;
        if self.options.sync {
            self.touched.insert(to.to_path_buf());
        }
        match (listed.context("read directory", from.path), &directory) {
            (Ok(entries), Some(directory)) => self.entries(from, to, directory, &entries)?,
            (Ok(_), None) => {}
            (Err(fail), _) => self.note(Err(fail))?,
        }
        let copy = Made::new(&made.directory, made.readable);
        match made.last_mode {
            _ if self.options.preserve => self.preserve(&copy, original, to, about),
            Some(mode) => copy.set_mode(mode).context("set the mode of", to),
            None => Ok(()),
        }
    }

    /// Makes a directory that is to have a mode, or finds that it is there.
    fn make_directory(&mut self, from: Source, to: &Path, mode: u32) -> Outcome<Copied> {
        let named = self.target == to;
        // Until it is full its owner must be able to fill it, and with -p nobody else.
        let others = if self.options.preserve { 0 } else { 0o077 };
        let first_mode = mode & (others | 0o1000) | 0o700;
        let made = fs::DirBuilder::new().mode(first_mode).create(to);
        // As with cp: only the directory that was named may be a link to one.
        let link = match made.is_err() && named {
            true => OFlags::empty(),
            false => OFlags::NOFOLLOW,
        };
        // Kept open: what replaces it meanwhile is not given away. It may be one that its owner cannot read.
        let reach = |flags: OFlags| {
            let flags = (flags | OFlags::DIRECTORY | link).bits() as i32;
            File::options().read(true).custom_flags(flags).open(to)
        };
        let (there, readable) = match reach(OFlags::empty()) {
            Ok(directory) => (Ok(directory), true),
            Err(_) => (reach(OFlags::PATH), false),
        };
        let mut last_mode = None;
        let directory = match (made, there) {
            (Ok(()), there) => {
                let there = there.context("read", to)?;
                let about = there.metadata().context("read", to)?;
                self.made.insert((about.dev(), about.ino()));
                let given = about.mode();
                // A set-group-ID bit is its parent's, and lost where somebody who is not of that group
                // sets a mode: that is done only where it changes something.
                let last = given & 0o3000 | mode & given & 0o777;
                last_mode = Some(last).filter(|&last| last != given & 0o7777 | 0o700);
                if given & 0o700 != 0o700 {
                    let mode = given & 0o7777 | 0o700;
                    Made::new(&there, readable)
                        .set_mode(mode)
                        .context("set the mode of", to)?;
                }
                self.touch(to);
                self.totals.directories += 1;
                self.tell(from.path, to)?;
                there
            }
            (Err(_), Ok(there)) => there,
            (Err(_), Err(_)) if to.is_dir() => {
                return Err(Fail::Failed(format!(
                    "{} is a symbolic link: the directory {} is not copied through it",
                    quoted(to),
                    quoted(from.path)
                )));
            }
            (Err(error), Err(_)) => return Err(error).context("create directory", to),
        };
        Ok(Copied {
            directory,
            readable,
            last_mode,
        })
    }

    /// Copies what is in a directory.
    fn entries(
        &mut self,
        from: Source,
        to: &Path,
        directory: &File,
        entries: &[(OsString, FileType)],
    ) -> Outcome {
        let directory = directory.as_fd();
        for (i, (name, kind)) in entries.iter().enumerate() {
            let path = &from.path.join(name);
            let from = Source {
                directory,
                name,
                path,
            };
            self.item(from, &to.join(name), *kind)?;
            let coming = entries[i + 1..].iter().map(|(name, _)| name);
            self.data.expect(directory, coming);
        }
        Ok(())
    }

    fn file(&mut self, from: Source, to: &Path, about: &Metadata, opened: Option<File>) -> Outcome {
        self.data.progress.name(from.path);
        let source = match opened {
            Some(file) => file,
            None => self.source(from, about)?,
        };
        // Until it has its owner nobody else reads it; attributes are given only to what can be written.
        let original = from.original(Some(&source));
        let mode = self.mode(original.holder, about);
        let mode = mode & if self.options.preserve { 0o700 } else { 0o777 };
        let mode = mode | if self.options.archive { 0o200 } else { 0 };
        // Most often nothing is there: then this costs nothing but the file.
        let file = match self.open(to, mode, None) {
            Ok(file) => {
                self.touch(to);
                file
            }
            Err(fail) => match self.overwritable(from.path, to, about)? {
                Some(existing) => self.open(to, mode, Some(&existing))?,
                None => return Err(fail),
            },
        };
        self.tell(from.path, to)?;
        let made = file.metadata().context("write", to)?;
        if made.is_file() {
            self.made.insert((made.dev(), made.ino()));
        }
        if self.options.archive && made.is_file() && made.mode() & 0o200 == 0 {
            // The umask took that, or the list of its directory.
            let mode = fs::Permissions::from_mode(made.mode() & 0o7777 | 0o200);
            file.set_permissions(mode).context("set the mode of", to)?;
        }
        let pair = Pair {
            from: from.path,
            to,
            about,
            made: &made,
        };
        let (mut position, before) = (0, self.data.bytes);
        let outcome = self.data.copy(&source, &file, &pair, &mut position);
        let copied = outcome.is_ok();
        let outcome = outcome
            .and_then(|()| match self.options.preserve {
                true => self.preserve(&Made::Open(&file), original, to, about),
                false => Ok(()),
            })
            .and_then(|()| match self.options.sync && pair.keeps() {
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
                let has = match made.is_file() {
                    true => file.metadata().map(|m| m.len()).unwrap_or(0),
                    // The size of anything else says nothing.
                    false => position,
                };
                // What a stream had taken and could not write was not copied; of a call that failed, a part may be.
                let part = has.saturating_sub(position);
                self.data.bytes = (self.data.bytes + part).min(before + has);
                let (name, len) = (quoted(to), about.len());
                // Nor does that of a source which is no file, or one of /proc, or which has grown.
                let incomplete = match has < len {
                    true => format!("{name} is incomplete: {has} of {len} bytes"),
                    false => format!("{name} is incomplete: {has} bytes"),
                };
                match fail {
                    Fail::Failed(text) if !copied && (!self.data.whole || has < position) => {
                        Err(Fail::Failed(format!("{text}; {incomplete}")))
                    }
                    Fail::Signal(signal) => {
                        self.data
                            .progress
                            .aside(|| say(format_args!("pdio cp: interrupted; {incomplete}")));
                        Err(Fail::Signal(signal))
                    }
                    other => Err(other),
                }
            }
        }
    }

    /// Opens what was looked at before.
    fn source(&self, from: Source, about: &Metadata) -> Outcome<File> {
        let opened = match (about.is_file(), self.options.recursive) {
            (true, true) => from.open_file(),
            (true, false) => from.open(OFlags::empty()),
            // Only what is no file has to be waited for, and only what was named is opened of that.
            _ => self.signals.open(File::options().read(true), from.path)?,
        };
        same(opened.context("open", from.path)?, about, from.path)
    }

    /// What is there already, where a file is to be copied to.
    fn overwritable(&self, from: &Path, to: &Path, about: &Metadata) -> Outcome<Option<Metadata>> {
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
        Ok(existing)
    }

    /// Opens what a file is copied to, or makes it.
    fn open(&self, to: &Path, mode: u32, existing: Option<&Metadata>) -> Outcome<File> {
        let mut options = File::options();
        options
            .write(true)
            .create_new(existing.is_none())
            .truncate(existing.is_some())
            .mode(mode)
            .custom_flags(OFlags::NOCTTY.bits() as i32);
        let may_wait = existing.is_some_and(|e| !e.is_file());
        let file = match may_wait {
            true => self.signals.open(&options, to)?,
            false => options.open(to),
        };
        file.context(
            if existing.is_some() {
                "overwrite"
            } else {
                "create"
            },
            to,
        )
    }

    fn link(&mut self, from: Source, to: &Path, about: &Metadata) -> Outcome {
        let target = rustix::fs::readlinkat(from.directory, from.name, Vec::new());
        let target = target.map_err(Into::into).context("read", from.path)?;
        let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
        let there = fs::read_link(to).ok();
        let present = there.as_ref() == Some(&target);
        let make = |to: &Path| std::os::unix::fs::symlink(&target, to);
        if there.is_some() && !present {
            let about = fs::symlink_metadata(to).context("read", to)?;
            if self.made.contains(&(about.dev(), about.ino())) {
                return Err(just_made(from.path, to));
            }
            replace(to, "create symbolic link", make)?;
        } else if !present {
            make(to).context("create symbolic link", to)?;
        }
        let made = fs::symlink_metadata(to).context("read", to)?;
        let first = self.made.insert((made.dev(), made.ino()));
        if !present {
            self.touch(to);
            self.totals.symbolic_links += 1;
            self.tell(from.path, to)?;
        } else if !first {
            // It has what another source gave it.
            return Ok(());
        }
        match self.options.preserve {
            true => self
                .attributes
                .preserve_link(from.path, to, about, &self.data.progress),
            false => Ok(()),
        }
    }

    /// Makes a FIFO, socket or device. One that is there already stays; nothing else is replaced.
    fn special(&mut self, from: Source, to: &Path, about: &Metadata) -> Outcome {
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
                return Err(same_file(from.path, to));
            }
            if self.made.contains(&inode) {
                return Err(just_made(from.path, to));
            }
        }
        let present = there.as_ref().is_some_and(like);
        if !present {
            // Until it has its owner nobody else opens it.
            let mode = self.mode(Holder::Named(from.path), about);
            let mode = mode & if self.options.preserve { 0o700 } else { 0o777 };
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
            return Err(replaced(to));
        }
        self.made.insert((made.dev(), made.ino()));
        if !present {
            self.touch(to);
            self.totals.special_files += 1;
            self.tell(from.path, to)?;
        }
        match self.options.preserve {
            true => self.preserve(&Made::Node(&node), from.original(None), to, about),
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

    /// The mode to make a copy with. With -p it gets its mode later.
    fn mode(&self, from: Holder, about: &Metadata) -> u32 {
        match self.options.preserve {
            true => about.mode(),
            false => mode_without_list(from, about.mode()),
        }
    }

    /// Gives what was made what the source has beside its bytes.
    fn preserve(&mut self, made: &Made, from: Original, to: &Path, about: &Metadata) -> Outcome {
        let progress = &self.data.progress;
        self.attributes.preserve(made, from, to, about, progress)
    }

    /// Says what is copied. It is copied even if nobody hears that.
    fn tell(&mut self, from: &Path, to: &Path) -> Outcome {
        if !self.options.verbose || self.mute {
            return Ok(());
        }
        let line = format!("{} -> {}", quoted(from), quoted(to));
        let mut outcome = Ok(());
        self.data.progress.aside(|| outcome = report::print(&line));
        self.mute = outcome.is_err();
        self.note(outcome)
    }

    /// Remembers that the directory of `path` has a new entry.
    fn touch(&mut self, path: &Path) {
        if self.options.sync {
            let parent = path.parent().filter(|p| !p.as_os_str().is_empty());
            self.touched
                .insert(parent.unwrap_or(Path::new(".")).to_path_buf());
        }
    }
}

/// What was opened, if it is what was looked at before.
fn same(opened: File, about: &Metadata, path: &Path) -> Outcome<File> {
    let found = opened.metadata().context("read", path)?;
    match (found.dev(), found.ino()) == (about.dev(), about.ino()) {
        true => Ok(opened),
        false => Err(replaced(path)),
    }
}

/// The names of what is in a directory, sorted, and what each is listed as.
fn entries(directory: &File) -> io::Result<Vec<(OsString, FileType)>> {
    let mut found = Vec::new();
    for entry in Dir::new(directory.try_clone()?)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            found.push((OsStr::from_bytes(name).to_os_string(), entry.file_type()));
        }
    }
    found.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(found)
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

fn replaced(path: &Path) -> Fail {
    let text = format!("{} was replaced by another program", quoted(path));
    Fail::Failed(text)
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

/// Makes something in the place of what `to` is, in one step: there is always one of the two.
fn replace(to: &Path, what: &str, make: impl Fn(&Path) -> io::Result<()>) -> Outcome {
    let mut number = 0;
    let temporary = loop {
        let temporary = to.with_file_name(format!(".pdio-{}-{number}", std::process::id()));
        match make(&temporary) {
            // What a process left that had this number and was killed.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < 1000 => {
                number += 1;
            }
            made => {
                made.context(what, &temporary)?;
                break temporary;
            }
        }
    };
    let renamed = fs::rename(&temporary, to);
    if renamed.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    renamed.context("replace", to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_longer_the_file_it_was_listed_as_is_copied_as_what_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("secret"), "secret").unwrap();
        std::os::unix::fs::symlink("secret", at("link")).unwrap();
        let (fifo, mode) = (FileType::Fifo, Mode::from_raw_mode(0o600));
        rustix::fs::mknodat(rustix::fs::CWD, at("fifo"), fifo, mode, 0).unwrap();
        let options = Options {
            recursive: true,
            preserve: false,
            archive: false,
            sync: false,
            verbose: false,
        };
        let signals = Signals::listen(&[]).unwrap();
        let progress = Progress::new("", 0, false);
        let target = at("copies");
        fs::create_dir(&target).unwrap();
        let mut copier = Copier::new(options, &target, &signals, progress);
        for name in ["link", "fifo", "secret", "none"] {
            copier
                .item(
                    Source::named(&at(name)),
                    &target.join(name),
                    FileType::RegularFile,
                )
                .unwrap();
        }
        let kind = |name: &str| fs::symlink_metadata(target.join(name)).unwrap().file_type();
        assert!(kind("link").is_symlink() && kind("fifo").is_fifo() && kind("secret").is_file());
        assert_eq!(copier.totals.failed, 1);

        // Nor is a link followed that has replaced a directory.
        fs::create_dir(at("dir")).unwrap();
        std::os::unix::fs::symlink("dir", at("link to dir")).unwrap();
        fs::write(at("dir/secret"), "secret").unwrap();
        let (from, to) = (at("link to dir"), target.join("dir"));
        let about = fs::symlink_metadata(at("dir")).unwrap();
        copier
            .directory(Source::named(&from), &to, about, None)
            .unwrap();
        assert_eq!(fs::read_dir(&to).unwrap().count(), 0);
        assert_eq!(copier.totals.failed, 2);

        // Nor is another file read than the one that was looked at.
        let about = fs::symlink_metadata(at("secret")).unwrap();
        assert!(copier.source(Source::named(&at("secret")), &about).is_ok());
        fs::write(at("other"), "other").unwrap();
        fs::rename(at("other"), at("secret")).unwrap();
        assert!(copier.source(Source::named(&at("secret")), &about).is_err());
        fs::remove_file(at("secret")).unwrap();
        fs::rename(at("link"), at("secret")).unwrap();
        assert!(copier.source(Source::named(&at("secret")), &about).is_err());
    }

    #[test]
    fn what_a_killed_process_left_is_in_nobodys_way() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let left = format!(".pdio-{}-0", std::process::id());
        fs::write(at(&left), "left").unwrap();
        fs::write(at("link"), "old").unwrap();
        let made = replace(&at("link"), "link", |to| {
            std::os::unix::fs::symlink("new", to)
        });
        assert!(made.is_ok());
        assert_eq!(fs::read_link(at("link")).unwrap(), Path::new("new"));
        assert_eq!(fs::read_to_string(at(&left)).unwrap(), "left");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
    }
}
