// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pdio run`: the program, its arguments and status, and one line where it cannot be.

mod common;
#[path = "../../nocopy-pages/tests/help/mod.rs"]
mod help;

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use common::*;

/// A library that does nothing, so that these tests need not build the real one.
fn library(home: &Path) -> std::path::PathBuf {
    let (source, library) = (home.join("nothing.c"), home.join("libpdio.so"));
    fs::write(&source, "int nothing;\n").unwrap();
    let status = Command::new("gcc")
        .args(["-shared", "-o"])
        .args([&library, &source])
        .status()
        .unwrap_or_else(|error| panic!("gcc: {error}; apt-get install build-essential"));
    assert!(status.success());
    library
}

#[test]
fn a_program_runs_with_its_arguments_under_the_library() {
    let home = home();
    let library = library(home.path());
    let script = "echo \"$LD_PRELOAD $PDIO_STATS $1 $2\"; exit 7";
    let output = pdio()
        .args(["run", "--stats", "sh", "-c", script, "sh", "--help", "a b"])
        .env("PDIO_LIBRARY", &library)
        .env("LD_PRELOAD", "")
        .output()
        .unwrap();
    assert_status(&output, 7);
    let said = String::from_utf8(output.stdout.clone()).unwrap();
    let expected = format!(
        "{} 1 --help a b\n",
        library.canonicalize().unwrap().display()
    );
    assert_eq!(said, expected);
    // What is preloaded already stays, behind it.
    let output = pdio()
        .args(["run", "--", "sh", "-c", "echo $LD_PRELOAD"])
        .env("PDIO_LIBRARY", &library)
        .env("LD_PRELOAD", &library)
        .output()
        .unwrap();
    assert_status(&output, 0);
    let said = String::from_utf8(output.stdout.clone()).unwrap();
    let path = library.canonicalize().unwrap();
    assert_eq!(
        said,
        format!("{0}:{1}\n", path.display(), library.display())
    );
}

#[test]
fn what_is_not_there_is_said_in_one_line() {
    let home = home();
    let library = library(home.path());
    let spaced = home.path().join("a b.so");
    fs::copy(&library, &spaced).unwrap();
    let missing = home.path().join("missing.so");
    for (library, program, status, words) in [
        (
            &library,
            "no-such-program",
            127,
            "cannot run 'no-such-program': No such file",
        ),
        (
            &library,
            "/etc/passwd",
            126,
            "cannot run '/etc/passwd': Permission denied",
        ),
        (&missing, "true", 125, "missing.so: No such file"),
        (&spaced, "true", 125, "has a space"),
    ] {
        let output = pdio()
            .args(["run", program])
            .env("PDIO_LIBRARY", library)
            .output()
            .unwrap();
        assert_status(&output, status);
        let said = stderr(&output);
        assert!(said.contains(words) && said.lines().count() == 1, "{said}");
    }
    // A copy of the command that has no library beside it.
    let alone = home.path().join("alone");
    fs::create_dir(&alone).unwrap();
    let command = alone.join("pdio");
    copy_program(pdio().get_program(), &command);
    let run = || {
        let mut run = Command::new(&command);
        run.args(["run", "true"]).env_remove("PDIO_LIBRARY");
        run.output().unwrap()
    };
    let output = run();
    assert_status(&output, 125);
    assert!(
        stderr(&output).contains("PDIO_LIBRARY"),
        "{}",
        stderr(&output)
    );
    fs::copy(&library, alone.join("libpdio.so")).unwrap();
    assert_status(&run(), 0);
    assert_status(&pdio().arg("run").output().unwrap(), 2);
}

/// What a program says that is started so, by itself and by the command: with SIGPIPE ignored or
/// not, with a signal blocked, and without these descriptors.
fn with_and_without(program: &[&str], library: &Path, ignore: bool, closed: &[i32]) -> [String; 2] {
    [
        &[pdio().get_program().to_str().unwrap(), "run", "--"][..],
        &[],
    ]
    .map(|before| {
        let words = [before, program].concat();
        let mut command = Command::new(words[0]);
        command
            .args(&words[1..])
            .env("PDIO_LIBRARY", library)
            .env("A_LAST", "1");
        let closed = closed.to_owned();
        let prepare = move || {
            let action = if ignore { libc::SIG_IGN } else { libc::SIG_DFL };
            // SAFETY: plain data, for which zeros are valid; the calls are given what they want.
            unsafe {
                let mut set: libc::sigset_t = std::mem::zeroed();
                libc::sigaddset(&mut set, libc::SIGUSR1);
                libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
                libc::signal(libc::SIGPIPE, action);
                for &fd in &closed {
                    libc::close(fd);
                }
            }
            Ok(())
        };
        // SAFETY: calls that a child of fork may make.
        unsafe { command.pre_exec(prepare) };
        let output = command.output().unwrap();
        assert_status(&output, 0);
        let said = String::from_utf8(output.stdout).unwrap();
        let ours = |line: &&str| !line.starts_with("LD_PRELOAD=");
        said.lines().filter(ours).collect::<Vec<_>>().join("\n")
    })
}

#[test]
fn a_program_finds_everything_else_as_it_would_have() {
    let home = home();
    let library = library(home.path());
    // Not SigQ: signals that wait for any process of this user.
    let signals = ["grep", "^Sig[^Q]", "/proc/self/status"];
    for (program, ignore, closed) in [
        (&signals[..], false, &[][..]),
        (&signals, true, &[]),
        (&["find", "/proc/self/fd", "-type", "l"], false, &[0, 2]),
        // In the order that it has.
        (&["env"], false, &[]),
    ] {
        let [without, with] = with_and_without(program, &library, ignore, closed);
        assert_eq!(without, with, "{program:?}");
    }
    // A command that fails says so, and leaves closed what was closed.
    let [said, _] = with_and_without(&["true"], &library, true, &[0, 1, 2]);
    assert_eq!(said, "");
}

#[test]
fn every_command_says_its_version() {
    for command in ["cp", "dd", "recv", "explain", "learn", "bench", "run"] {
        let output = pdio().args([command, "--version"]).output().unwrap();
        assert_status(&output, 0);
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(
            said.starts_with("pdio") && said.contains(env!("CARGO_PKG_VERSION")),
            "{said}"
        );
    }
}

#[test]
fn help_that_goes_nowhere_is_one_line_and_a_failure() {
    help::help_goes_nowhere(pdio().get_program(), "pdio");
}

#[test]
fn a_wrong_command_line_is_one_line_and_where_the_help_is() {
    let words = ["bench", "--modes", "nope"];
    help::what_is_wrong_is_one_line(pdio().get_program(), &words, "pdio bench");
}
