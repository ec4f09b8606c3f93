// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command without a camera: what is wrong is one line, and nothing is touched.

#[path = "../../nocopy-pages/tests/help/mod.rs"]
mod help;

use std::process::{Command, Output};

fn record(arguments: &[&str]) -> Output {
    Command::new(assert_cmd::cargo::cargo_bin!("nocopy-record"))
        .args(arguments)
        .output()
        .unwrap()
}

/// Asserts that there is one line of that text, and this status.
#[track_caller]
fn fails(arguments: &[&str], status: i32, text: &str) {
    let output = record(arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{said}");
    assert!(said.contains(text), "{said}");
    if status == 1 {
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}

#[test]
fn without_a_camera_nothing_is_touched() {
    let home = tempfile::tempdir().unwrap();
    let out = home.path().join("out.raw");
    std::fs::write(&out, "what was there").unwrap();
    let name = out.to_str().unwrap();
    fails(
        &["--device", "/nowhere/video", name],
        1,
        "no camera at '/nowhere/video'",
    );
    fails(
        &["--device", "/dev/null", name],
        1,
        "'/dev/null' is no camera",
    );
    fails(
        &["explain", "--device", "/dev/null", name],
        1,
        "'/dev/null' is no camera",
    );
    assert_eq!(std::fs::read(&out).unwrap(), b"what was there");
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 1);
}

#[test]
fn a_wrong_command_line_is_said_to_be_wrong() {
    fails(&[], 2, "<FILE>");
    fails(
        &["--size", "big", "out"],
        2,
        "width and height, as in 1920x1080",
    );
    fails(&["--buffers", "1", "out"], 2, "not a number from 2 to 32");
    fails(&["--buffers", "x", "out"], 2, "not a number from 2 to 32");
    fails(&["--frames", "1e3", "out"], 2, "not a number from 0 to");
    fails(&["--timeout", "0", "out"], 2, "no frame comes in no time");
    let other = ["--heap", "reserved", "--way", "mmap"];
    fails(&[&other[..], &["out"]].concat(), 2, "for the way 'heap'");
    fails(&[&["explain"], &other[..]].concat(), 2, "leave out --heap");
    fails(&["--trigger", "fifo", "out"], 2, "--pre-roll");
    fails(&["--json", "-"], 2, "standard output");
    fails(&["--way", "magic", "out"], 2, "dmabuf");
    // A photo that takes the place of the recording, or of its index.
    for (photo, of) in [
        ("out", "out"),
        ("./out.index", "out"),
        ("out", "out.part"),
        ("out-0003.raw", "out.raw"),
    ] {
        let arguments = ["--segment", "1G", "--photo", photo, of];
        let with = if photo.contains('-') { 0 } else { 2 };
        fails(&arguments[with..], 2, "is a file of the recording");
    }
}

#[test]
fn a_command_behind_options_is_no_file() {
    let home = tempfile::tempdir().unwrap();
    for name in ["explain", "help"] {
        std::fs::write(home.path().join(name), "what was there").unwrap();
        for options in [&["--device", "/dev/null"][..], &["--json"], &["--"]] {
            let output = Command::new(assert_cmd::cargo::cargo_bin!("nocopy-record"))
                .args(options)
                .arg(name)
                .current_dir(home.path())
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{said}");
            let wanted = format!("'{name}' comes first, its options behind it");
            assert!(
                said.contains(&wanted) && said.contains(&format!("./{name}")),
                "{said}"
            );
        }
        let there = std::fs::read(home.path().join(name)).unwrap();
        assert_eq!(there, b"what was there");
    }
    // With a directory it is a file, and behind the command as well.
    let no_camera = "'/dev/null' is no camera";
    fails(&["--device", "/dev/null", "./explain"], 1, no_camera);
    fails(
        &["explain", "--device", "/dev/null", "explain"],
        1,
        no_camera,
    );
}

#[test]
fn help_names_the_index_the_segments_and_every_way() {
    let output = record(&["--help"]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0));
    for word in [
        "SEQUENCE SECONDS OFFSET LENGTH",
        "out-0001.raw",
        "mmap",
        "userptr",
        "dmabuf",
        "heap",
        "copy",
        "buffered",
    ] {
        assert!(said.contains(word), "{said}");
    }
}

#[test]
fn help_that_goes_nowhere_is_one_line_and_a_failure() {
    help::help_goes_nowhere(
        assert_cmd::cargo::cargo_bin!("nocopy-record").as_ref(),
        "nocopy-record",
    );
}

#[test]
fn a_wrong_command_line_is_one_line_and_where_the_help_is() {
    help::what_is_wrong_is_one_line(
        assert_cmd::cargo::cargo_bin!("nocopy-record").as_ref(),
        &["--way", "nope", "out.raw"],
        "nocopy-record",
    );
}
