// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of writes that were deferred.

mod common;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use common::{compiled, library, preloaded, scratch, stderr, stdout, SHORT};

#[test]
fn a_deferred_error_is_told_once_and_nothing_accepted_is_lost() {
    let shim = compiled("failing.c", "failing.so", &["-shared", "-fPIC", "-ldl"]);
    let link = format!("-Wl,--no-as-needed,{}", shim.display());
    let program = compiled("failures.c", "failures", &[&link]);
    // Who meets an error must not depend on the time that a call takes: nothing is written but by
    // calls, or the program waits until the keeper has failed.
    for (met_by, linger, checks) in [("calls", "60s", 49), ("keeper", "1ms", 5)] {
        let home = scratch();
        // Through the page cache, where the failing function is on the way.
        let variables = [
            SHORT[0],
            ("PDIO_STRATEGY", "buffered"),
            ("PDIO_LINGER", linger),
        ];
        let output = preloaded(&program, &variables)
            .arg(met_by)
            .env(
                "LD_PRELOAD",
                format!("{} {}", library().display(), shim.display()),
            )
            .current_dir(home.path())
            .output()
            .expect("starts");
        let printed = stdout(&output);
        assert!(output.status.success(), "{output:?}");
        assert!(
            !printed.contains("NO") && printed.lines().count() == checks,
            "{met_by}\n{printed}"
        );
        // What nobody can be told any more is said.
        let said = stderr(&output);
        let names: Vec<_> = said
            .lines()
            .map(|line| {
                let untold = line.split_once(": the last data could not be written");
                let path = untold.expect(line).0;
                path.rsplit('/').next().unwrap_or_default()
            })
            .collect();
        let untold: &[&str] = match met_by {
            "calls" => &[
                "range", "reopened", "unseen", "exec", "daemon", "_exit", "refused", "refused",
                "end",
            ],
            _ => &[],
        };
        assert_eq!(names, untold, "{said}");
    }
}

/// Runs the program that copies from a file which is cut off meanwhile, and ends it so. What it printed, its status, and
/// whether each of the two files that it wrote has all pages.
fn cut_off(end: &str, variables: &[(&str, &str)]) -> (Option<String>, ExitStatus, [bool; 2]) {
    let program = compiled("faulting.c", "faulting", &[]);
    let home = scratch();
    let mut child = preloaded(&program, variables)
        .arg(end)
        .current_dir(home.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut printed = BufReader::new(child.stdout.take().expect("piped")).lines();
    assert_eq!(printed.next().expect("a line").expect("a line"), "cut");
    std::fs::File::create(home.path().join("source")).expect("is there");
    let told = child.stdin.take().expect("piped").write_all(b"x");
    told.expect("reads");
    let since = Instant::now();
    while child.try_wait().expect("is ours").is_none() {
        if since.elapsed() > Duration::from_secs(60) {
            child.kill().expect("ends");
            panic!("{end}: the handler does not come back from the library");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let status = child.wait().expect("has ended");
    let line = printed.next().map(|line| line.expect("a line"));
    // Page after page of one value each.
    let has_all = |name, values| {
        let bytes = std::fs::read(home.path().join(name)).expect("is there");
        let pages = bytes.chunks(4096).enumerate();
        let right =
            |(i, page): (usize, &[u8])| page.iter().all(|&byte| byte as usize == i % values);
        bytes.len() as u64 == WRITTEN && pages.into_iter().all(right)
    };
    (line, status, [has_all("copy", 16), has_all("other", 251)])
}

/// Settings under which the program runs. By default the library may have written the data before the fault;
/// with the others it keeps as much as its memory holds until then.
const HELD: [&[(&str, &str)]; 2] = [
    &SHORT,
    &[
        SHORT[0],
        SHORT[1],
        ("PDIO_PROMPT", "0"),
        ("PDIO_LINGER", "60s"),
    ],
];
/// What the program has written to each file before the fault: not all of it in requests of full size.
const WRITTEN: u64 = 4200 * 4096;

#[test]
fn a_handler_of_a_fault_in_a_copy_may_close_and_exit() {
    for variables in HELD {
        for end in ["exit", "_exit", "exec", "fork"] {
            let (line, status, there) = cut_off(end, variables);
            assert!(status.success(), "{end}: {status}");
            // Closed, so all of it is there before the process ends.
            let closed = format!("{WRITTEN} of {WRITTEN}");
            assert_eq!(line, Some(closed), "{end} {variables:?}");
            assert_eq!(there, [true; 2], "{end} {variables:?}");
        }
    }
}

#[test]
fn a_fault_in_a_copy_ends_the_process_and_nothing_accepted_is_lost() {
    for variables in HELD {
        let (_, status, there) = cut_off("default", variables);
        assert_eq!(status.signal(), Some(libc::SIGBUS), "{status}");
        assert_eq!(there, [true; 2], "{variables:?}");
    }
}
