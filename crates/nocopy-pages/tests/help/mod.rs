// SPDX-License-Identifier: MIT OR Apache-2.0
//! For the tests of commands that parse by `nocopy_pages::parse`.

use std::ffi::OsStr;
use std::process::{Command, Output};

/// Asserts that help which standard output does not take is a failure of one line.
pub fn help_goes_nowhere(program: &OsStr, name: &str) {
    let shell = |script: &str| -> Output {
        Command::new("sh")
            .args(["-c", script])
            .arg(program)
            .output()
            .expect("sh")
    };
    for (words, out, why) in [
        ("--help", ">/dev/full", "No space left on device"),
        ("explain --help", ">/dev/full", "No space left on device"),
        ("--version", ">/dev/full", "No space left on device"),
        ("--help", ">&-", "Bad file descriptor"),
    ] {
        let output = shell(&format!("\"$0\" {words} {out}"));
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{words} {out}: {said}");
        let line = format!("{name}: cannot write to 'standard output': {why}\n");
        assert_eq!(said, line, "{words} {out}");
    }
    // Whoever stops reading has what he wanted.
    let output = shell("{ sleep 0.2; \"$0\" --help; echo $? >&2; } | true");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "0\n");
}

/// Asserts that a command line of `words`, of which one is not among those that are possible, is refused in one
/// line that says which are, and one that points to the help. Both name `whose` command
/// line it is, as `pdio dd`.
pub fn what_is_wrong_is_one_line(program: &OsStr, words: &[&str], whose: &str) {
    let output = Command::new(program).args(words).output().expect("run");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 2, "{said}");
    let (wrong, possible) = (format!("{whose}: invalid value "), "[possible values: ");
    assert!(
        lines[0].starts_with(&wrong) && lines[0].contains(possible),
        "{said}"
    );
    assert_eq!(lines[1], format!("Try '{whose} --help'."));
}
