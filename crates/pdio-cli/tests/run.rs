// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pdio run`: the program, its arguments and status, and one line where it cannot be.

mod common;

use std::fs;

use common::*;

/// A library that does nothing, so that these tests need not build the real one.
fn library(home: &std::path::Path) -> std::path::PathBuf {
    let (source, library) = (home.join("nothing.c"), home.join("libpdio.so"));
    fs::write(&source, "int nothing;\n").unwrap();
    let status = std::process::Command::new("gcc")
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
        (&missing, "true", 125, "missing.so': No such file"),
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
    fs::copy(assert_cmd::cargo::cargo_bin!("pdio"), &command).unwrap();
    let run = || {
        let mut run = std::process::Command::new(&command);
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
