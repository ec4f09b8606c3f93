// SPDX-License-Identifier: MIT OR Apache-2.0
//! What strategies cost on a filesystem, remembered between processes.
//!
//! [`learn`](crate::learn) writes it, streams read it. The file is text with a line for each cost.
//! Each process reads it at most once, when it opens its first stream, and keeps no descriptor. It is
//! replaced as a whole by `rename`, so a reader sees the old file or the new one. Whatever is wrong
//! with the file, streams work as if it were not there.
//!
//! A line holds for one filesystem (its kind, UUID and size) under one kernel on as many processors, and
//! for 90 days. A device number stands for what has no UUID.

use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::align::{FileFacts, FileKind};
use crate::sys;

/// How the first line of any version begins. A file that begins otherwise is never replaced.
const OURS: &str = "pdio costs ";
/// The first line. A file with another one is ignored.
const VERSION: &str = "pdio costs 1";
/// A larger file is not ours.
const MAX_BYTES: u64 = 256 << 10;
/// Lines kept; those measured last stay.
const MAX_LINES: usize = 1024;
/// Seconds after which a line is ignored.
const MAX_AGE: u64 = 90 * 24 * 3600;
/// Waits of 10 ms for another process that is saving.
const MAX_WAITS: u32 = 500;

static FILES: OnceLock<Vec<PathBuf>> = OnceLock::new();
static LEFT_ALONE: AtomicBool = AtomicBool::new(false);
/// What was read, once it was. A forked child has what its parent had read. Never freed.
static REMEMBERED: AtomicPtr<Vec<Line>> = AtomicPtr::new(null_mut());

/// Has streams begin with what [`learn`](crate::learn) has measured. Costs come from the first of
/// `files` that knows the filesystem; [`costs_files`] has the usual places. Without this call each
/// process learns for itself. Only the first call counts, and it must come before the first stream.
///
/// A file is ignored if it belongs to neither root nor this user, if others may write it, or if it is
/// damaged. A process that runs with another user's rights reads none.
pub fn remember_costs(files: Vec<PathBuf>) {
    let _ = FILES.set(files);
}

/// From now on this process reads no file of costs: its root directory may be another.
/// May be called by the handler of a signal.
#[doc(hidden)]
pub fn leave_costs_alone() {
    LEFT_ALONE.store(true, Ordering::Relaxed);
}

/// What root has measured for everybody.
const MACHINE: &str = "/var/cache/pdio/costs";

/// The usual places of what was measured. If the environment variable `PDIO_COSTS` is set and not empty:
/// what it names, or none if that is no absolute path, as `0`. Else `pdio/costs` in `XDG_CACHE_HOME` or
/// `~/.cache`, then `/var/cache/pdio/costs`, which root fills and everybody may read; for root only the
/// latter. The first is the one to write. `variable` looks a variable up.
pub fn costs_files(variable: impl Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let path = |name| {
        let value = variable(name).filter(|value| !value.is_empty())?;
        Some(PathBuf::from(value)).filter(|path| path.is_absolute())
    };
    if variable("PDIO_COSTS").is_some_and(|value| !value.is_empty()) {
        return path("PDIO_COSTS").into_iter().collect();
    }
    let mut files = Vec::new();
    // SAFETY: no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        let home = || Some(path("HOME")?.join(".cache"));
        let cache = path("XDG_CACHE_HOME").or_else(home);
        files.extend(cache.map(|cache| cache.join("pdio/costs")));
    }
    files.push(MACHINE.into());
    files
}

/// Returns true if the process still has the user it was started with, and the rights of no other.
fn is_its_own() -> bool {
    // SAFETY: no preconditions.
    unsafe {
        libc::getauxval(libc::AT_SECURE) == 0
            && libc::getauxval(libc::AT_EUID) == u64::from(libc::geteuid())
    }
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |time| time.as_secs())
}

/// What one strategy costs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Line {
    /// What [`identity`] says of the filesystem.
    pub filesystem: String,
    /// Direction, pattern and strategy, one word each.
    pub what: String,
    /// Nanoseconds for a byte.
    pub cost: f64,
    /// When it was measured, in seconds since 1970.
    pub when: u64,
}

impl Line {
    fn parse(text: &str) -> Option<Line> {
        let (rest, filesystem) = text.split_once(" on ")?;
        let (rest, what) = rest.split_once(" for ")?;
        let (when, cost) = rest.split_once(' ')?;
        let (cost, when): (f64, u64) = (cost.parse().ok()?, when.parse().ok()?);
        let proper = cost.is_finite() && cost > 0.0 && when <= now() && now() - when <= MAX_AGE;
        proper.then(|| Line {
            filesystem: filesystem.into(),
            what: what.into(),
            cost,
            when,
        })
    }
}

impl std::fmt::Display for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Line { when, cost, .. } = self;
        writeln!(
            f,
            "{when} {cost:.6} for {} on {}",
            self.what, self.filesystem
        )
    }
}

/// The UUID of the filesystem behind a descriptor, in hexadecimal digits; Linux 6.9 and later tell it.
fn uuid_of(fd: BorrowedFd<'_>) -> Option<String> {
    /// `struct fsuuid2`.
    #[repr(C)]
    struct Uuid {
        len: u8,
        bytes: [u8; 16],
    }
    // _IOR(0x15, 0, struct fsuuid2)
    const FS_IOC_GETFSUUID: libc::c_ulong =
        0x8000_1500 | (size_of::<Uuid>() as libc::c_ulong) << 16;
    let mut uuid = Uuid {
        len: 0,
        bytes: [0; 16],
    };
    // SAFETY: the ioctl fills the structure.
    let rc = unsafe { libc::ioctl(fd.as_raw_fd(), FS_IOC_GETFSUUID as _, &mut uuid) };
    let bytes = uuid.bytes.get(..usize::from(uuid.len))?;
    let told = rc == 0 && bytes.iter().any(|&byte| byte != 0);
    told.then(|| bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Names the filesystem behind a descriptor so that another one, or the same under another kernel,
/// has another name, and that it has the same name after the next boot.
pub(crate) fn identity(fd: BorrowedFd<'_>, facts: &FileFacts) -> Option<String> {
    // SAFETY: structures of numbers may be all zero, and are valid for a write.
    let (about, system) = unsafe {
        let (mut about, mut system): (libc::statfs64, libc::utsname) = std::mem::zeroed();
        if libc::fstatfs64(fd.as_raw_fd(), &mut about) != 0 || libc::uname(&mut system) != 0 {
            return None;
        }
        (about, system)
    };
    // SAFETY: two numbers, whose names the C library keeps to itself.
    let id: [u32; 2] = unsafe { std::mem::transmute(about.f_fsid) };
    let release: String = system
        .release
        .iter()
        .map(|&byte| byte as u8 as char)
        .take_while(|&letter| letter != '\0')
        .filter(char::is_ascii_graphic)
        .collect();
    let (major, minor) = (libc::major(facts.dev), libc::minor(facts.dev));
    let id_text = format!("{:08x}{:08x}", id[0], id[1]);
    // Behind a block device's descriptor is the filesystem in which its name is.
    let regular = (facts.kind == FileKind::Regular).then_some(fd);
    let place = match regular.and_then(uuid_of) {
        Some(uuid) => uuid,
        // Numbers that belong to no device, as of btrfs and overlayfs, are another at each mount.
        None if major == 0 && id != [0; 2] => id_text,
        None => format!("{major}:{minor} {id_text}"),
    };
    Some(format!(
        "{} {place} {} {release} {}",
        facts.filesystem.replace(' ', "-"),
        about.f_blocks,
        sys::cpus(),
    ))
}

/// What is remembered of the filesystem behind a descriptor.
pub(crate) fn of(fd: BorrowedFd<'_>, facts: &FileFacts) -> Vec<Line> {
    let all = remembered();
    if all.is_empty() {
        return Vec::new();
    }
    let name = identity(fd, facts);
    let mine = |line: &&Line| Some(&line.filesystem) == name.as_ref();
    all.iter().filter(mine).cloned().collect()
}

fn remembered() -> &'static [Line] {
    // SAFETY: once stored, a pointer is valid for ever.
    if let Some(lines) = unsafe { REMEMBERED.load(Ordering::Acquire).as_ref() } {
        return lines;
    }
    let files = FILES.get().map_or(&[][..], Vec::as_slice);
    if files.is_empty() || LEFT_ALONE.load(Ordering::Relaxed) || !is_its_own() {
        return &[];
    }
    let mut lines: Vec<Line> = Vec::new();
    for file in files {
        let mut more = read(file).unwrap_or_default();
        // The first file that knows a filesystem knows all of it.
        more.retain(|new| lines.iter().all(|old| old.filesystem != new.filesystem));
        lines.extend(more);
    }
    let new = Box::into_raw(Box::new(lines));
    let others = REMEMBERED.compare_exchange(null_mut(), new, Ordering::AcqRel, Ordering::Acquire);
    // SAFETY: `new` was never published if another thread was first; what is stored stays valid.
    unsafe {
        match others {
            Ok(_) => &*new,
            Err(theirs) => {
                drop(Box::from_raw(new));
                &*theirs
            }
        }
    }
}

/// Opens what should be a file of costs, and waits for nothing if it is not.
fn open(path: &Path) -> io::Result<File> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
    File::options().read(true).custom_flags(flags).open(path)
}

/// Returns true if a file of costs may take this name: it has none yet, or such a file, or an empty one.
fn is_free(path: &Path) -> io::Result<bool> {
    let about = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        about => about?,
    };
    // A device is not even opened.
    if !about.is_file() || about.len() == 0 {
        return Ok(about.is_file());
    }
    let mut begin = Vec::new();
    open(path)?
        .take(OURS.len() as u64)
        .read_to_end(&mut begin)?;
    Ok(begin == OURS.as_bytes())
}

/// Reads a file of costs; `None` if it is not there or not to be trusted.
fn read(path: &Path) -> Option<Vec<Line>> {
    let file = open(path).ok()?;
    let about = file.metadata().ok()?;
    // SAFETY: no preconditions.
    let trusted = [0, unsafe { libc::geteuid() }].contains(&about.uid());
    if !about.is_file() || !trusted || about.mode() & 0o022 != 0 || about.len() > MAX_BYTES {
        return None;
    }
    let mut text = String::new();
    file.take(MAX_BYTES).read_to_string(&mut text).ok()?;
    let rest = text.strip_prefix(VERSION)?.strip_prefix('\n')?;
    // A line without its end was cut short.
    let lines = rest.split_inclusive('\n');
    Some(
        lines
            .filter_map(|line| Line::parse(line.strip_suffix('\n')?))
            .collect(),
    )
}

/// Makes the directory of a file of costs, and locks it: two processes that save at a time must not lose what one of
/// them has measured. The directory of the machine's file, if it is made, can be read by everybody, whatever the umask;
/// in other places the umask holds. What has the name and is no file of costs is the error `AlreadyExists`.
fn claim(path: &Path) -> io::Result<File> {
    let directory = match path.parent() {
        Some(directory) if directory.as_os_str().is_empty() => Path::new("."),
        directory => directory.unwrap_or(Path::new("/")),
    };
    let made = !directory.exists();
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(directory)?;
    let directory = File::open(directory)?;
    if made && is_for_all(path) {
        directory.set_permissions(Permissions::from_mode(0o755))?;
    }
    lock(&directory)?;
    if !is_free(path)? {
        return Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "what is there is not a file of costs; PDIO_COSTS names another place",
        ));
    }
    Ok(directory)
}

/// Returns true if this is the file of the machine.
fn is_for_all(path: &Path) -> bool {
    path == Path::new(MACHINE)
}

/// Fails where [`save`] would. Leaves no file.
pub(crate) fn try_save(path: &Path) -> io::Result<()> {
    let _locked = claim(path)?;
    let (temporary, _) = temporary(path)?;
    fs::remove_file(temporary)
}

/// Replaces what `path` knows of a filesystem by `new`. What it knows of others stays. Anything but a file of
/// costs is left alone, with the error `AlreadyExists`. The file of the machine can be read by everybody, whatever the
/// umask.
pub(crate) fn save(path: &Path, filesystem: &str, new: &[Line]) -> io::Result<()> {
    let _locked = claim(path)?;
    let mut lines = read(path).unwrap_or_default();
    lines.retain(|old| old.filesystem != filesystem);
    lines.extend_from_slice(new);
    lines.sort_by_key(|line| std::cmp::Reverse(line.when));
    lines.truncate(MAX_LINES);
    let mut text = format!("{VERSION}\n");
    for line in &lines {
        text.push_str(&line.to_string());
    }
    let (temporary, mut file) = temporary(path)?;
    let result = file
        .write_all(text.as_bytes())
        .and_then(|()| match is_for_all(path) {
            true => file.set_permissions(Permissions::from_mode(0o644)),
            false => Ok(()),
        })
        .and_then(|()| fs::rename(&temporary, path));
    if result.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    result
}

/// Makes a file beside `path`, under a name that nothing else has.
fn temporary(path: &Path) -> io::Result<(PathBuf, File)> {
    let mut number = 0;
    loop {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{}-{number}", std::process::id()));
        let mut options = File::options();
        let made = options.write(true).create_new(true).mode(0o644).open(&name);
        match made {
            // What a process left that had this number and was killed.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < 1000 => {
                number += 1;
            }
            made => return Ok((name.into(), made?)),
        }
    }
}

/// Locks a directory until it is closed.
fn lock(directory: &File) -> io::Result<()> {
    for _ in 0..MAX_WAITS {
        let fd = directory.as_fd().as_raw_fd();
        // SAFETY: no memory is involved.
        if unsafe { libc::flock(fd, libc::LOCK_EX | libc::LOCK_NB) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::WouldBlock {
            return Err(error);
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    Err(io::Error::new(
        io::ErrorKind::WouldBlock,
        "another process keeps the directory locked",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(filesystem: &str, cost: f64, age: u64) -> Line {
        Line {
            filesystem: filesystem.into(),
            what: "write large busy direct".into(),
            cost,
            when: now() - age,
        }
    }

    #[test]
    fn what_is_saved_of_one_filesystem_leaves_the_others() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("not/there/costs");
        let other = line("xfs 8:2", 2.5, 50);
        save(&path, "xfs 8:2", std::slice::from_ref(&other)).unwrap();
        save(&path, "ext4 8:1", &[line("ext4 8:1", 1.5, 100)]).unwrap();
        let new = line("ext4 8:1", 0.5, 0);
        save(&path, "ext4 8:1", std::slice::from_ref(&new)).unwrap();
        assert_eq!(read(&path).unwrap(), [new, other]);
        let left = fs::read_dir(path.parent().unwrap()).unwrap().count();
        assert_eq!(left, 1, "a temporary file");
    }

    #[test]
    fn what_is_no_file_of_costs_is_not_replaced() {
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().join(name);
        for (name, text) in [
            ("notes", "my notes"),
            ("near", "pdio cost"),
            ("old", "pdio costs 0\n"),
        ] {
            fs::write(at(name), text).unwrap();
        }
        fs::write(at("empty"), "").unwrap();
        fs::create_dir(at("directory")).unwrap();
        for (name, target) in [("link", "old"), ("dangling", "nowhere")] {
            std::os::unix::fs::symlink(target, at(name)).unwrap();
        }
        let fifo = std::ffi::CString::new(at("fifo").into_os_string().into_encoded_bytes());
        // SAFETY: the name ends with a zero.
        assert_eq!(unsafe { libc::mkfifo(fifo.unwrap().as_ptr(), 0o600) }, 0);
        for name in ["notes", "near", "directory", "link", "dangling", "fifo"] {
            let about = || {
                let about = fs::symlink_metadata(at(name)).unwrap();
                (about.ino(), about.len(), about.mtime_nsec(), about.mode())
            };
            let before = about();
            for result in [save(&at(name), "", &[]), try_save(&at(name))] {
                let error = result.unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::AlreadyExists, "{name}");
                assert_eq!(about(), before, "{name}");
            }
        }
        for name in ["old", "empty"] {
            // Nor what has a name that a temporary file may have.
            let like = at(&format!("{name}.{}-0", std::process::id()));
            fs::write(at(&format!("{name}.new")), "kept").unwrap();
            std::os::unix::fs::symlink("notes", &like).unwrap();
            save(&at(name), "ext4 8:1", &[line("ext4 8:1", 1.0, 1)]).unwrap();
            assert_eq!(read(&at(name)).unwrap().len(), 1);
            assert!(like.is_symlink());
            assert_eq!(fs::read(at(&format!("{name}.new"))).unwrap(), b"kept");
        }
        assert_eq!(fs::read(at("notes")).unwrap(), b"my notes");
        assert!(!at("nowhere").exists());
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 8 + 4);
    }

    #[test]
    fn processes_that_save_at_a_time_lose_nothing() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("costs");
        let names: Vec<String> = (0..8).map(|i| format!("ext4 8:{i}")).collect();
        // Each has its own open directory, as another process would.
        std::thread::scope(|scope| {
            for name in &names {
                scope.spawn(|| save(&path, name, &[line(name, 1.0, 1)]).unwrap());
            }
            scope.spawn(|| {
                for _ in 0..200 {
                    // Whole at every moment, or not there yet.
                    assert!(!path.exists() || read(&path).is_some());
                }
            });
        });
        assert_eq!(read(&path).unwrap().len(), names.len());
    }

    #[test]
    fn a_file_in_the_working_directory_has_no_directory_in_its_name() {
        let test = "costs::tests::a_file_in_the_working_directory_has_no_directory_in_its_name";
        if crate::common::job().is_none() {
            let home = tempfile::tempdir().unwrap();
            let mut child = crate::common::child(test, "save");
            assert!(child.current_dir(&home).status().unwrap().success());
            return;
        }
        let new = line("ext4 8:1", 0.5, 0);
        save(Path::new("costs"), "ext4 8:1", std::slice::from_ref(&new)).unwrap();
        assert_eq!(read(Path::new("costs")).unwrap(), [new]);
    }

    #[test]
    fn what_does_not_fit_is_ignored() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("costs");
        let good = line("ext4 8:1", 1.5, 100);
        let ancient = line("ext4 8:1", 1.5, MAX_AGE + 100);
        let future = Line {
            when: now() + 1000,
            ..good.clone()
        };
        save(&path, "ext4 8:1", &[good.clone(), ancient, future]).unwrap();
        assert_eq!(read(&path).unwrap(), std::slice::from_ref(&good));
        let text = fs::read_to_string(&path).unwrap();
        let nonsense =
            "pdio costs 1\nnonsense\n5 x for y on z\n5 -1 for y on z\n5 NaN for y on z\n";
        let whole = format!("pdio costs 1\n{good}");
        for (text, expected) in [
            ("", None),
            ("pdio costs 2\n", None),
            (whole.replace('1', "2").as_str(), None),
            ("\u{0}\u{1}", None),
            (nonsense, Some(0)),
            (&whole, Some(1)),
            (&whole[..whole.len() - 1], Some(0)),
            ("pdio costs 1", None),
        ] {
            fs::write(&path, text).unwrap();
            assert_eq!(read(&path).map(|lines| lines.len()), expected, "{text:?}");
        }
        fs::write(&path, &text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        assert_eq!(read(&path), None, "others may write it");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(read(&path).is_some());
        std::os::unix::fs::symlink(&path, home.path().join("link")).unwrap();
        assert_eq!(read(&home.path().join("link")), None);
        // SAFETY: no preconditions.
        if unsafe { libc::geteuid() } == 0 {
            std::os::unix::fs::chown(&path, Some(1), None).unwrap();
            assert_eq!(read(&path), None, "another user's");
        }
    }

    #[test]
    fn a_filesystem_has_the_same_name_whatever_its_device_number_is() {
        let on = |mkfs, arguments: &[&str], package| {
            let disk = crate::common::image("image", 160, mkfs, arguments, package)?;
            let file = File::create(disk.directory.join("file")).unwrap();
            let facts = FileFacts::of(&file).unwrap();
            // As after another boot.
            let later = FileFacts {
                dev: libc::makedev(libc::major(facts.dev), libc::minor(facts.dev) + 1),
                ..FileFacts::of(&file).unwrap()
            };
            let names = [&facts, &later].map(|facts| identity(file.as_fd(), facts).unwrap());
            match uuid_of(file.as_fd()).is_some() || libc::major(facts.dev) == 0 {
                true => assert_eq!(names[0], names[1]),
                // Linux before 6.9.
                false => assert_ne!(names[0], names[1]),
            }
            Some(names[0].clone())
        };
        let names = [
            on("mkfs.ext4", &["-q"], "e2fsprogs"),
            on("mkfs.ext4", &["-q"], "e2fsprogs"),
            on("mkfs.btrfs", &["-q"], "btrfs-progs"),
        ];
        let names: Vec<_> = names.into_iter().flatten().collect();
        let apart: std::collections::BTreeSet<_> = names.iter().collect();
        assert_eq!(apart.len(), names.len(), "{names:?}");
    }

    #[test]
    fn the_place_is_what_the_environment_says() {
        let with = |pairs: &'static [(&str, &str)]| {
            costs_files(|name| {
                let found = pairs.iter().find(|(key, _)| *key == name);
                found.map(|(_, value)| value.into())
            })
        };
        let none: [PathBuf; 0] = [];
        assert_eq!(with(&[("PDIO_COSTS", "0"), ("HOME", "/h")]), none);
        let one = with(&[("PDIO_COSTS", "/a/b"), ("HOME", "/h")]);
        assert_eq!(one, [PathBuf::from("/a/b")]);
        let machine = PathBuf::from("/var/cache/pdio/costs");
        // SAFETY: no preconditions.
        if unsafe { libc::geteuid() } == 0 {
            assert_eq!(with(&[("HOME", "/h")]), [machine]);
            return;
        }
        let home = [PathBuf::from("/h/.cache/pdio/costs"), machine.clone()];
        assert_eq!(with(&[("HOME", "/h")]), home);
        let both = with(&[("HOME", "/h"), ("XDG_CACHE_HOME", "/c")]);
        assert_eq!(both, [PathBuf::from("/c/pdio/costs"), machine]);
    }
}
