// SPDX-License-Identifier: MIT OR Apache-2.0
//! Filesystems to test on, and test data.
#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use tempfile::TempDir;

pub mod filter;

/// Pieces of random data. Cheap also without optimisation.
pub struct Fill {
    rng: fastrand::Rng,
    pool: Vec<u8>,
}

impl Fill {
    pub fn new(seed: u64) -> Fill {
        let mut rng = fastrand::Rng::with_seed(seed ^ 0x5eed);
        let mut pool = vec![0; 8 << 20];
        rng.fill(&mut pool);
        Fill { rng, pool }
    }

    /// `len` bytes, at most 4 MiB.
    pub fn next(&mut self, len: usize) -> Vec<u8> {
        let at = self.rng.usize(..self.pool.len() - len);
        self.pool[at..at + len].to_vec()
    }
}

/// A directory on some filesystem; unmounted and removed when dropped.
pub struct Filesystem {
    pub name: &'static str,
    pub directory: PathBuf,
    mounted: bool,
    _home: TempDir,
}

impl Drop for Filesystem {
    fn drop(&mut self) {
        if self.mounted {
            // Lazily: a failing test may still hold files open.
            let _ = Command::new("umount")
                .arg("-l")
                .arg(&self.directory)
                .status();
        }
    }
}

/// A directory on the disk under /var/tmp, which unlike /tmp is seldom in memory.
pub fn scratch() -> TempDir {
    scratch_in(Path::new("/var/tmp"))
}

fn scratch_in(below: &Path) -> TempDir {
    tempfile::Builder::new()
        .prefix("pdio-test-")
        .tempdir_in(below)
        .unwrap()
}

pub fn run(program: &str, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .map_err(|error| format!("{program}: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!(
            "{program}: {}",
            String::from_utf8_lossy(&output.stderr)
                .lines()
                .last()
                .unwrap_or("failed")
        )),
    }
}

/// Mounts a fresh image of `megabytes`, made by `mkfs` with its arguments.
pub fn image(
    name: &'static str,
    megabytes: u64,
    mkfs: &str,
    arguments: &[&str],
    package: &str,
) -> Option<Filesystem> {
    image_in(
        Path::new("/var/tmp"),
        name,
        megabytes,
        mkfs,
        arguments,
        package,
    )
}

/// As [`image`], with the image in a directory `below`.
pub fn image_in(
    below: &Path,
    name: &'static str,
    megabytes: u64,
    mkfs: &str,
    arguments: &[&str],
    package: &str,
) -> Option<Filesystem> {
    // SAFETY: no memory is involved.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("skipped {name}: mounting images needs root");
        return None;
    }
    let home = scratch_in(below);
    let image = home.path().join("image");
    let directory = home.path().join("mnt");
    std::fs::create_dir(&directory).unwrap();
    let file = std::fs::File::create(&image).unwrap();
    file.set_len(megabytes << 20).unwrap();
    let image = image.to_str().unwrap();
    let made = run(mkfs, &[arguments, &[image]].concat());
    let mounted =
        made.and_then(|()| run("mount", &["-o", "loop", image, directory.to_str().unwrap()]));
    if let Err(reason) = mounted {
        eprintln!("skipped {name}: {reason} (needs {package} and a kernel with the filesystem)");
        return None;
    }
    Some(Filesystem {
        name,
        directory,
        mounted: true,
        _home: home,
    })
}

pub fn tmpfs(size: &str) -> Option<Filesystem> {
    let home = scratch();
    let directory = home.path().join("mnt");
    std::fs::create_dir(&directory).unwrap();
    let option = format!("size={size}");
    let mounted = run(
        "mount",
        &[
            "-t",
            "tmpfs",
            "-o",
            &option,
            "tmpfs",
            directory.to_str().unwrap(),
        ],
    );
    if let Err(reason) = mounted {
        eprintln!("skipped tmpfs: {reason} (mounting needs root)");
        return None;
    }
    Some(Filesystem {
        name: "tmpfs",
        directory,
        mounted: true,
        _home: home,
    })
}

fn overlay(below: &Path) -> Option<Filesystem> {
    let home = tempfile::Builder::new()
        .prefix("overlay-")
        .tempdir_in(below)
        .unwrap();
    let part = |name: &str| {
        let path = home.path().join(name);
        std::fs::create_dir(&path).unwrap();
        path
    };
    let (lower, upper, work, directory) = (part("lower"), part("upper"), part("work"), part("mnt"));
    let options = format!(
        "lowerdir={},upperdir={},workdir={}",
        lower.display(),
        upper.display(),
        work.display()
    );
    let mounted = run(
        "mount",
        &[
            "-t",
            "overlay",
            "-o",
            &options,
            "overlay",
            directory.to_str().unwrap(),
        ],
    );
    if let Err(reason) = mounted {
        eprintln!("skipped overlayfs: {reason} (mounting needs root)");
        return None;
    }
    Some(Filesystem {
        name: "overlayfs",
        directory,
        mounted: true,
        _home: home,
    })
}

/// A directory of the disk, by way of a program.
fn fuse() -> Option<Filesystem> {
    let home = scratch();
    let (source, directory) = (home.path().join("source"), home.path().join("mnt"));
    std::fs::create_dir(&source).unwrap();
    std::fs::create_dir(&directory).unwrap();
    if let Err(reason) = run("bindfs", &[source.to_str()?, directory.to_str()?]) {
        eprintln!("skipped FUSE: {reason} (needs bindfs, and the right to mount)");
        return None;
    }
    Some(Filesystem {
        name: "FUSE",
        directory,
        mounted: true,
        _home: home,
    })
}

/// A filesystem that whoever runs the tests has mounted: its name and directory in `PDIO_TEST_MOUNTED`,
/// with `=` between.
fn mounted() -> Option<Filesystem> {
    let given = std::env::var("PDIO_TEST_MOUNTED").ok()?;
    let (name, directory) = given.split_once('=').expect("NAME=DIRECTORY");
    let home = scratch_in(Path::new(directory));
    Some(Filesystem {
        name: name.to_owned().leak(),
        directory: home.path().to_path_buf(),
        mounted: false,
        _home: home,
    })
}

/// The disk at hand, and images of everything that can be made and mounted here.
pub fn filesystems() -> Vec<Filesystem> {
    let home = scratch();
    let mut all = vec![Filesystem {
        name: "disk",
        directory: home.path().to_path_buf(),
        mounted: false,
        _home: home,
    }];
    all.extend(image(
        "ext4, 4 KiB blocks",
        256,
        "mkfs.ext4",
        &["-q", "-b", "4096"],
        "e2fsprogs",
    ));
    all.extend(image(
        "ext4, 1 KiB blocks",
        256,
        "mkfs.ext4",
        &["-q", "-b", "1024"],
        "e2fsprogs",
    ));
    all.extend(image("XFS", 1024, "mkfs.xfs", &["-q"], "xfsprogs"));
    // It gives back the room of what was removed only when it commits.
    all.extend(image("btrfs", 1024, "mkfs.btrfs", &["-q"], "btrfs-progs"));
    all.extend(tmpfs("256m"));
    all.extend(fuse());
    all.extend(mounted());
    let below = all
        .iter()
        .find(|f| f.name == "ext4, 4 KiB blocks")
        .map(|f| f.directory.clone());
    // Before the filesystem it lies on, so that it is unmounted first.
    if let Some(overlay) = below.and_then(|below| overlay(&below)) {
        all.insert(1, overlay);
    }
    all
}

/// Byte `at` of the stream that crash tests write: any misplaced or missing byte shows.
pub fn pattern(at: u64) -> u8 {
    let word = (at / 8).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x0123_4567_89ab_cdef;
    (word >> (at % 8 * 8)) as u8 | 1
}

/// The stream from `from` on.
pub fn patterned(from: u64, len: usize) -> Vec<u8> {
    (from..from + len as u64).map(pattern).collect()
}

/// Runs the test `name` of this binary again in a process of its own, with `job` for it to do.
pub fn child(name: &str, job: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env("PDIO_TEST_JOB", job);
    command
}

/// The job of a child process.
pub fn job() -> Option<String> {
    std::env::var("PDIO_TEST_JOB").ok()
}

/// The name of a file in a directory of its own, in the process that runs the test `name` alone; in any other none,
/// where that process has run and the test has passed in it.
#[track_caller]
pub fn alone(name: &str, file: &str) -> Option<PathBuf> {
    if let Some(path) = job() {
        return Some(path.into());
    }
    let home = scratch();
    let path = home.path().join(file);
    passed(&mut child(name, path.to_str().unwrap()));
    None
}

/// Runs a test by [`child`], and wants it to pass.
#[track_caller]
pub fn passed(child: &mut Command) {
    let output = child.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{said}", output.status);
    // A name that is no test's would succeed as well.
    assert!(said.contains("1 passed"), "{said}");
    for (_, reason) in said.lines().filter_map(|line| line.split_once("skipped: ")) {
        eprintln!("skipped: {reason}");
    }
}

/// Limits how long files may be, in bytes, for the whole process; what would be longer is an error and no signal.
pub fn limit_files(rlim_cur: u64) {
    // SAFETY: a plain system call.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    limit(libc::RLIMIT_FSIZE, rlim_cur);
}

/// Sets a soft limit of the whole process.
pub fn limit(which: libc::__rlimit_resource_t, rlim_cur: u64) {
    let rlim_max = libc::RLIM_INFINITY;
    let limit = libc::rlimit { rlim_cur, rlim_max };
    // SAFETY: a plain system call on valid memory.
    assert_eq!(unsafe { libc::setrlimit(which, &limit) }, 0);
}

/// Removes a file and what it takes of its disk. Removed alone, it would keep that while a process that another
/// test starts, which has every descriptor until it executes its program, holds it.
pub fn remove_with_its_room(path: &Path) {
    std::fs::File::create(path).unwrap();
    std::fs::remove_file(path).unwrap();
}

/// Waits until something is so, which nobody has to ask for.
pub fn soon(what: &str, is_so: &dyn Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
