// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the tests share: the library, compiled test programs, and running them with and without it.
#![allow(dead_code, reason = "each test uses a part")]

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use tempfile::TempDir;

#[path = "../../../nocopy-launch/tests/building/mod.rs"]
mod building;
#[path = "../../../nocopy-launch/tests/compiling/mod.rs"]
mod compiling;
#[path = "../../../nocopy-launch/tests/copying/mod.rs"]
mod copying;
#[allow(unused_imports)]
pub use copying::copy_program;

/// Streams of the test programs are long by these.
pub const SHORT: [(&str, &str); 2] = [("PDIO_SEQUENTIAL", "256K"), ("PDIO_MIN_SIZE", "1M")];

/// What the tests would build, if it lies in the directory `PDIO_TEST_BUILT`: where they run may be
/// no compiler.
fn built(name: &str) -> Option<PathBuf> {
    Some(Path::new(&std::env::var_os("PDIO_TEST_BUILT")?).join(name))
}

/// The library, as these tests' profile builds it.
pub fn library() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT
        .get_or_init(|| {
            built("libpdio.so")
                .unwrap_or_else(|| building::build("pdio-preload", "libpdio.so", &[]))
        })
        .clone()
}

/// Compiles one of `tests/programs`, once; where the result is.
pub fn compiled(source: &str, name: &str, flags: &[&str]) -> PathBuf {
    if let Some(program) = built(name) {
        return program;
    }
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    compiling::compile(&programs.join(source), name, flags)
}

/// A directory on a disk: streams in memory are not taken, and /tmp may be memory.
pub fn scratch() -> TempDir {
    tempfile::Builder::new()
        .prefix("pdio-preload-")
        .tempdir_in("/var/tmp")
        .expect("a directory")
}

/// A program without any PDIO_ variable and without the library. No signal is ignored in it: a shell
/// that starts this test in the background, or `nohup`, has it ignore some.
pub fn bare(program: &Path) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.as_encoded_bytes().starts_with(b"PDIO_") {
            command.env_remove(name);
        }
    }
    // What was measured on this machine must not matter.
    command.env("PDIO_COSTS", "0");
    command.env_remove("LD_PRELOAD").stdin(Stdio::null());
    let by_default = || {
        for signal in 1..=libc::SIGRTMAX() {
            // SAFETY: an action of no code. Of numbers that have none, the call does nothing.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        Ok(())
    };
    // SAFETY: the child only makes system calls.
    unsafe { command.pre_exec(by_default) };
    command
}

/// A program under the library, with no PDIO_ variable but these.
pub fn preloaded(program: &Path, variables: &[(&str, &str)]) -> Command {
    let mut command = bare(program);
    command
        .env("LD_PRELOAD", library())
        .envs(variables.iter().copied());
    command
}

/// Every file below a directory, with its bytes.
pub fn contents(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    std::fs::read_dir(directory)
        .expect("a directory")
        .map(|entry| entry.expect("an entry").path())
        .map(|path| {
            let name = path.strip_prefix(directory).expect("below").to_owned();
            (name, std::fs::read(&path).expect("a file"))
        })
        .collect()
}

/// What a run printed, said and left.
#[derive(PartialEq)]
pub struct Seen {
    pub output: Output,
    pub files: BTreeMap<PathBuf, Vec<u8>>,
}

pub fn seen(command: &mut Command, directory: &Path) -> Seen {
    let output = command.current_dir(directory).output().expect("starts");
    Seen {
        output,
        files: contents(directory),
    }
}

/// Panics with what is different.
pub fn same(what: &str, bare: &Seen, preloaded: &Seen) {
    let (a, b) = (&bare.output, &preloaded.output);
    assert_eq!(a.status, b.status, "{what}\n{}", stderr(b));
    for (one, other) in stdout(a).lines().zip(stdout(b).lines()) {
        assert_eq!(one, other, "{what}: printed");
    }
    assert_eq!(stdout(a), stdout(b), "{what}: printed");
    assert_eq!(stderr(a), stderr(b), "{what}: said");
    let names = |seen: &Seen| seen.files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(bare), names(preloaded), "{what}: files");
    for (name, bytes) in &bare.files {
        let other = &preloaded.files[name];
        let at = bytes.iter().zip(other).position(|(a, b)| a != b);
        assert!(
            bytes == other,
            "{what}: {} has {} bytes, should have {}, first difference at {at:?}",
            name.display(),
            other.len(),
            bytes.len(),
        );
    }
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}
