// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the tests of the commands share.
#![allow(dead_code)]

use std::fs;
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

#[path = "../../../nocopy-launch/tests/copying/mod.rs"]
mod copying;
#[allow(unused_imports)]
pub use copying::copy_program;

#[path = "../../../pdio/tests/common/filter.rs"]
mod filter;

/// Has the command begin without the right to close what it opens: `close` fails with this error, as where a
/// filesystem has lost something that was written.
pub fn closing_fails(command: &mut Command, error: i32) -> &mut Command {
    // SAFETY: calls that a child of fork may make.
    unsafe {
        command.pre_exec(move || {
            // The loader has one file open at a time, under the lowest number that is free then.
            let stays = |&fd: &i32| {
                let flags = libc::fcntl(fd, libc::F_GETFD);
                flags >= 0 && flags & libc::FD_CLOEXEC == 0
            };
            let loader = (3..).find(|fd| !stays(fd)).unwrap_or_default();
            filter::refuse_close_above(loader, error)
        })
    }
}

/// Has a system call of the command fail with this error.
pub fn refusing(command: &mut Command, call: libc::c_long, error: i32) -> &mut Command {
    // SAFETY: calls that a child of fork may make.
    unsafe { command.pre_exec(move || filter::refuse(call, error)) }
}

/// A shell that may mount over what others use, as only what it starts sees that; `None` where that is not
/// permitted.
pub fn mounting(script: &str) -> Option<Command> {
    let unshare = || {
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c"]);
        command
    };
    let tried = unshare().arg("mount -t tmpfs none /mnt").output();
    if !tried.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: cannot mount anything over what is there");
        return None;
    }
    let mut command = unshare();
    command.arg(script).env("PDIO_COSTS", "0");
    Some(command)
}

/// A disk. Dropped, it is gone.
pub struct Disk(pub String);

impl Disk {
    /// `None` where there can be none. `options` are those of `losetup`.
    pub fn new(home: &Path, size: usize, options: &[&str]) -> Option<Disk> {
        let image = home.join("image");
        fs::write(&image, pattern(size)).unwrap();
        let mut losetup = Command::new("losetup");
        let losetup = losetup.args(options).args(["-f", "--show"]);
        let output = losetup.arg(&image).output().ok();
        let Some(output) = output.filter(|output| output.status.success()) else {
            eprintln!("skipped: no loop device");
            return None;
        };
        Some(Disk(String::from_utf8_lossy(&output.stdout).trim().into()))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("-d").arg(&self.0).status();
    }
}

/// The command under test.
pub fn pdio() -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("pdio"));
    // What was measured on this machine must not matter.
    command.env("PDIO_COSTS", "0");
    // Nor that a script which runs the tests in the background has them ignore SIGINT.
    let heed = || {
        // SAFETY: the default action.
        unsafe { libc::signal(libc::SIGINT, libc::SIG_DFL) };
        Ok(())
    };
    // SAFETY: one system call.
    unsafe { command.pre_exec(heed) };
    command
}

/// A FIFO, and a file that has `kept`.
pub fn fifo_and_file(home: &Path) -> (PathBuf, PathBuf) {
    let (fifo, file) = (home.join("fifo"), home.join("file"));
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RWXU).unwrap();
    fs::write(&file, "kept").unwrap();
    (fifo, file)
}

/// A terminal, and the end of it that nobody reads.
pub fn terminal() -> (fs::File, PathBuf) {
    let screen = fs::File::options().read(true).write(true).open("/dev/ptmx");
    let screen = screen.unwrap();
    let mut name = [0u8; 64];
    // SAFETY: the array has so many bytes.
    let named = unsafe {
        use std::os::fd::AsRawFd;
        libc::unlockpt(screen.as_raw_fd())
            | libc::ptsname_r(screen.as_raw_fd(), name.as_mut_ptr().cast(), name.len())
    };
    assert_eq!(named, 0);
    let name = std::ffi::CStr::from_bytes_until_nul(&name).unwrap();
    (screen, name.to_str().unwrap().into())
}

/// A directory on a filesystem with a device behind it, where there is one.
pub fn home() -> tempfile::TempDir {
    tempfile::tempdir_in("/var/tmp").unwrap()
}

/// Bytes in which every displacement shows.
pub fn pattern(len: usize) -> Vec<u8> {
    (0..len as u64)
        .map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8)
        .collect()
}

/// What the process wrote to standard error.
pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Asserts the exit status, showing standard error if it is another.
#[track_caller]
pub fn assert_status(output: &Output, status: i32) {
    assert_eq!(shell_status(output), Some(status), "{}", stderr(output));
}

/// The exit status that a shell has: 128 and the signal, if one has ended the process.
pub fn shell_status(output: &Output) -> Option<i32> {
    let signal = || Some(128 + output.status.signal()?);
    output.status.code().or_else(signal)
}

/// Waits for a child to end, and ends it if that takes a minute.
pub fn wait(mut child: Child) -> Output {
    let (mut out, mut err) = (child.stdout.take(), child.stderr.take());
    let readers = [
        std::thread::spawn(move || read(out.as_mut())),
        std::thread::spawn(move || read(err.as_mut())),
    ];
    let begun = Instant::now();
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None if begun.elapsed() > Duration::from_secs(600) => {
                child.kill().unwrap();
                panic!("a command did not end in ten minutes");
            }
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    let [stdout, stderr] = readers.map(|r| r.join().unwrap());
    Output {
        status,
        stdout,
        stderr,
    }
}

fn read(from: Option<&mut impl Read>) -> Vec<u8> {
    let mut all = Vec::new();
    if let Some(from) = from {
        from.read_to_end(&mut all).unwrap();
    }
    all
}

/// Sends a signal to a child of ours.
pub fn signal(child: &Child, signal: rustix::process::Signal) {
    rustix::process::kill_process(rustix::process::Pid::from_child(child), signal).unwrap();
}

/// Waits until a child has set up a handler for the signal: before, it would end of it.
#[track_caller]
pub fn until_it_catches(child: &Child, signal: rustix::process::Signal) {
    until(|| catches(child, signal));
}

/// Returns true if a child has a handler for a signal.
pub fn catches(child: &Child, signal: rustix::process::Signal) -> bool {
    let status =
        std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
    let caught = status.lines().find_map(|l| l.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    caught.is_some_and(|mask| mask >> (signal.as_raw() - 1) & 1 == 1)
}

/// The state of a child, as proc(5) has it: T if it was stopped, Z if it has ended.
pub fn state(child: &Child) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).ok()?;
    stat.rsplit(") ").next()?.chars().next()
}

/// Has the command begin without this descriptor.
pub fn without(command: &mut Command, fd: i32) -> &mut Command {
    // SAFETY: a call that a child of fork may make.
    unsafe {
        command.pre_exec(move || {
            libc::close(fd);
            Ok(())
        })
    }
}

/// Has a command write no more than `bytes` bytes of a file.
pub fn with_file_limit(command: &mut Command, bytes: u64) -> &mut Command {
    use rustix::process::{getrlimit, setrlimit, Resource};
    // SAFETY: calls that a child of fork may make.
    unsafe {
        command.pre_exec(move || {
            let mut limit = getrlimit(Resource::Fsize);
            limit.current = Some(bytes);
            Ok(setrlimit(Resource::Fsize, limit)?)
        })
    }
}

/// Runs with pipes on all three ends.
pub fn piped(command: &mut Command) -> Child {
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Waits until `done` says so.
#[track_caller]
pub fn until(done: impl Fn() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(300), "waited in vain");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Files of the kernel's that have no offset: a recording of events of its own, gone when dropped.
pub struct Events {
    _mounted: Tmpfs,
    pub at: PathBuf,
}

impl Events {
    /// `None` where that is not permitted.
    pub fn new(home: &Path) -> Option<Events> {
        let mounted = Tmpfs::mount_as("tracefs", &home.join("tracefs"), "")?;
        let at = mounted
            .0
            .join(format!("instances/pdio-{}", std::process::id()));
        if let Err(error) = fs::create_dir(&at) {
            eprintln!("skipped: no recording of events of its own: {error}");
            return None;
        }
        Some(Events {
            _mounted: mounted,
            at,
        })
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.at);
    }
}

/// A tmpfs of `size`, unmounted when dropped; `None` where that is not permitted.
pub struct Tmpfs(pub PathBuf);

impl Tmpfs {
    /// Mounts it at `path`, which is created.
    pub fn mount(path: &Path, options: &str) -> Option<Tmpfs> {
        Tmpfs::mount_as("tmpfs", path, options)
    }

    /// As [`Tmpfs::mount`], of another kind that needs no device.
    pub fn mount_as(kind: &str, path: &Path, options: &str) -> Option<Tmpfs> {
        std::fs::create_dir(path).unwrap();
        let options = std::ffi::CString::new(options).unwrap();
        let flags = rustix::mount::MountFlags::empty();
        match rustix::mount::mount("none", path, kind, flags, Some(options.as_c_str())) {
            Ok(()) => Some(Tmpfs(path.to_path_buf())),
            Err(error) => {
                eprintln!("skipped: cannot mount a {kind}: {error}");
                None
            }
        }
    }

    /// Makes it read-only.
    pub fn read_only(&self) {
        rustix::mount::mount_remount(&self.0, rustix::mount::MountFlags::RDONLY, c"").unwrap();
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
    }
}
