// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of writes that were deferred.

mod common;

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::time::{Duration, Instant};

use common::{compiled, library, preloaded, scratch, stderr, stdout, SHORT};

#[test]
fn a_deferred_error_is_told_once_and_nothing_accepted_is_lost() {
    let shim = compiled("failing.c", "failing.so", &["-shared", "-fPIC", "-ldl"]);
    let link = format!("-Wl,--no-as-needed,{}", shim.display());
    let program = compiled("failures.c", "failures", &[&link]);
    // Who meets an error must not depend on the time that a call takes: nothing is written but by
    // calls, or the program waits until the keeper has failed.
    for (met_by, linger, checks) in [("calls", "60s", 35), ("keeper", "1ms", 5)] {
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

#[test]
fn a_handler_of_a_fault_in_a_copy_may_close_and_exit() {
    let program = compiled("faulting.c", "faulting", &[]);
    let home = scratch();
    let mut child = preloaded(&program, &SHORT)
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
            panic!("the handler does not come back from the library");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(child.wait().expect("has ended").success());
    let line = printed.next().expect("a line").expect("a line");
    let written: u64 = line.parse().expect("a number");
    for name in ["copy", "other"] {
        let has = home.path().join(name).metadata().expect("is there").len();
        assert_eq!(has, written, "{name}");
    }
}
