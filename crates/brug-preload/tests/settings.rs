// SPDX-License-Identifier: MIT OR Apache-2.0
//! Variables, good and bad; statistics; programs with rights of their own.

mod common;

use std::fs;
use std::os::unix::fs::{chown, PermissionsExt};
use std::path::Path;
use std::process::{Command, Output};

use common::{compiled, copy_program, library, passes_quietly, stderr, stdout, under_brug};

const TRUE: &str = "/bin/true";

fn run(variables: &[(&str, &str)]) -> Output {
    under_brug(Path::new(TRUE), variables)
        .output()
        .expect("starts")
}

#[test]
fn what_the_library_does_not_have_is_one_line() {
    let all = [
        ("BRUG_ALLOC", "jemalloc"),
        ("BRUG_BASE", "jemalloc"),
        ("BRUG_TEMPLATE", "0-4K:jemalloc,4K-:mmap"),
    ];
    for (name, value) in all {
        let output = run(&[(name, value)]);
        assert!(output.status.success(), "{name}={value}: {output:?}");
        let said = stderr(&output);
        assert_eq!(said.lines().count(), 1, "{name}={value}: {said}");
        let what = "jemalloc is not part of libbrug.so; a Rust program has it";
        assert!(said.contains(what), "{name}={value}: {said}");
    }
}

#[test]
fn a_value_that_makes_no_sense_is_named_once_and_harms_nothing() {
    let wrong = [
        ("BRUG_ALLOC", "fastest"),
        ("BRUG_BASE", "tcmalloc"),
        ("BRUG_SWITCH_POINT", "-1"),
        ("BRUG_SWITCH_POINT", "128 potatoes"),
        ("BRUG_SWITCH_POINT", "99999999999999999999999"),
        ("BRUG_THP", "perhaps"),
        ("BRUG_PURGE_DELAY", "1000"),
        ("BRUG_RETAIN", "lots"),
        ("BRUG_RESERVE", "0x10"),
        ("BRUG_TEMPLATE", "0-4K:sys,8K-:mmap"),
        ("BRUG_STATS", "yaml"),
        ("BRUG_VERBOSE", "\u{fffd}\u{1b}[31m"),
        ("BRUG_PROFILE", "where-the-program-was-begun"),
        ("BRUG_ALLOC", "x\nbrug: all is well\u{9b}m"),
        ("BRUG_SPEED", "1"),
        ("BRUG_X\nY", "1"),
        ("BRUG_", "1"),
    ];
    let program = compiled("conformance.c", "settings", &[]);
    let mut first = true;
    for (name, value) in wrong {
        let output = run(&[(name, value)]);
        assert_eq!(output.status.code(), Some(0), "{name}={value}: {output:?}");
        let said = stderr(&output);
        assert_eq!(said.lines().count(), 1, "{name}={value}: {said}");
        let name = name.replace(char::is_control, "?");
        assert!(
            said.starts_with("brug: ") && said.contains(&name),
            "{name}={value}: {said}"
        );
        assert!(!said.trim_end().contains(char::is_control), "{said:?}");
        // The library is built without it.
        assert!(!said.contains("jemalloc"), "{said}");
        assert!(output.stdout.is_empty(), "{name}={value}");
        if std::mem::take(&mut first) {
            let output = under_brug(&program, &[(&name, value)])
                .output()
                .expect("starts");
            assert_eq!(
                stdout(&output),
                "conformance: all checks passed\n",
                "{name}={value}"
            );
        }
    }
}

#[test]
fn several_wrong_values_make_a_line_each() {
    let said = stderr(&run(&[
        ("BRUG_ALLOC", "x"),
        ("BRUG_BASE", "x"),
        ("BRUG_FORCE", "x"),
    ]));
    assert_eq!(said.lines().count(), 3, "{said}");
}

#[test]
fn a_value_of_megabytes_is_survived() {
    let long = "9".repeat(100_000);
    let output = run(&[("BRUG_SWITCH_POINT", &long)]);
    assert_eq!(output.status.code(), Some(0));
    let said = stderr(&output);
    assert!(
        said.len() < 1000 && said.lines().count() == 1,
        "{} bytes",
        said.len()
    );
}

#[test]
fn good_and_empty_values_are_silent() {
    let output = run(&[
        ("BRUG_ALLOC", "Auto"),
        ("BRUG_TEMPLATE", "0-4K:sys,4K-:mmap"),
        ("BRUG_BASE", ""),
        ("BRUG_SWITCH_POINT", "64k"),
        ("BRUG_THP", "never"),
        ("BRUG_PURGE_DELAY", "10ms"),
        ("BRUG_RETAIN", "64M"),
        ("BRUG_RESERVE", "1G"),
        ("BRUG_STATS", "0"),
        ("BRUG_VERBOSE", "off"),
        ("BRUG_LIBRARY", "/anywhere"),
    ]);
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{output:?}"
    );
}

#[test]
fn statistics_come_out_although_the_program_closed_stderr() {
    // GNU's sort, like all of its kind, closes both streams before it ends.
    let mut command = under_brug(Path::new("/usr/bin/sort"), &[("BRUG_STATS", "1")]);
    let output = command.arg("/etc/passwd").output().expect("starts");
    assert!(output.status.success());
    let said = stderr(&output);
    assert!(
        said.starts_with("brug: ") && said.contains("grows_in_place"),
        "{said}"
    );
    assert!(!stdout(&output).contains("grows_in_place"));
}

#[test]
fn the_name_of_a_program_is_no_line_of_its_statistics() {
    let directory = tempfile::tempdir().expect("directory");
    let program = directory.path().join("a\nbrug: b\x1b[m");
    copy_program(compiled("little.c", "named", &[]), &program);
    let output = under_brug(&program, &[("BRUG_STATS", "1")]).output();
    let said = stderr(&output.expect("starts"));
    let first = said.lines().next().unwrap_or_default();
    assert!(first.contains("/a?brug: b?[m ["), "{said:?}");
}

/// Who may write to a directory could know the number of a process before.
#[test]
fn a_profile_is_not_written_through_what_others_have_put_beside_it() {
    let directory = tempfile::tempdir().expect("directory");
    let script = "ln -s victim .brug-profile-$$; exec env BRUG_PROFILE=$PWD/profile true";
    let mut shell = under_brug(Path::new("/bin/sh"), &[]);
    passes_quietly(shell.args(["-c", script]).current_dir(&directory));
    let at = |name| directory.path().join(name);
    assert!(at("profile").exists() && !at("victim").exists());
    let left = fs::read_dir(&directory).expect("directory").count();
    assert_eq!(left, 2, "profile, link");
}

#[test]
fn statistics_that_cannot_be_written_are_told_with_the_reason() {
    let directory = tempfile::tempdir().expect("directory");
    let fifo = directory.path().join("without-a-reader");
    assert!(Command::new("mkfifo")
        .arg(&fifo)
        .status()
        .unwrap()
        .success());
    let fifo = fifo.to_str().unwrap();
    let files = [
        ("/dev/full", libc::ENOSPC),
        ("/no/such", libc::ENOENT),
        (fifo, libc::ENXIO),
    ];
    for (file, reason) in files {
        let said = stderr(&run(&[("BRUG_STATS", file)]));
        assert!(
            said.ends_with(&format!("{file} (errno {reason})\n")),
            "{said}"
        );
    }
}

#[test]
fn statistics_append_one_line_of_json_for_each_process() {
    let directory = tempfile::tempdir().expect("directory");
    let file = directory.path().join("stats");
    let setting = format!("json:{}", file.display());
    let script = "sort /etc/passwd | sort -r | wc -l >/dev/null; true";
    let mut shell = under_brug(Path::new("/bin/sh"), &[("BRUG_STATS", &setting)]);
    passes_quietly(shell.args(["-c", script]));
    let text = fs::read_to_string(file).expect("statistics");
    let mut programs = Vec::new();
    for line in text.lines() {
        let object: serde_json::Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(object["schema"], 1, "{line}");
        assert_eq!(object["part"], "brug", "{line}");
        assert_eq!(object["mode"], "auto");
        assert!(
            object["pid"].as_u64() > Some(0) && object["moves_in"].is_u64(),
            "{line}"
        );
        let path = object["program"].as_str().expect("program").to_owned();
        programs.push(path.rsplit('/').next().expect("name").to_owned());
    }
    programs.sort();
    let expected: Vec<&str> = programs
        .iter()
        .map(String::as_str)
        .filter(|p| *p != "dash")
        .collect();
    assert_eq!(expected, ["sort", "sort", "wc"], "{text}");
}

/// The C library allocates for them, under a lock.
#[test]
fn a_program_whose_first_object_is_for_what_runs_at_its_end_has_statistics() {
    let library = compiled("exits.c", "exits.so", &["-DLIBRARY", "-shared", "-fPIC"]);
    let program = compiled("exits.c", "exits", &[library.to_str().expect("path")]);
    let directory = tempfile::tempdir().expect("directory");
    let file = |name| directory.path().join(name).display().to_string();
    let (statistics, profile) = (file("statistics"), file("profile"));
    let variables = [("BRUG_STATS", &*statistics), ("BRUG_PROFILE", &profile)];
    passes_quietly(&mut under_brug(&program, &variables));
    assert!(Path::new(&statistics).exists() && Path::new(&profile).exists());
}

#[test]
fn statistics_that_cannot_be_written_are_one_line() {
    // A shell would leave by _exit, true(1) with its stderr closed.
    let program = compiled("faults.c", "unwritable", &[]);
    let variables = [("BRUG_STATS", "json:/nonexistent/file")];
    let output = under_brug(&program, &variables)
        .arg("no-huge-pages")
        .output()
        .expect("starts");
    assert!(output.status.success(), "{output:?}");
    let said = stderr(&output);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("/nonexistent/file"), "{said}");
}

/// In a program with another user's rights, nothing of the caller's environment may count: neither
/// through the loader nor when the program is linked with the library.
#[test]
fn the_environment_means_nothing_in_a_set_user_id_program() {
    // SAFETY: no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("skipped: only root can make a program of another user's");
        return;
    }
    let directory = tempfile::tempdir().expect("directory");
    let open = fs::Permissions::from_mode(0o777);
    fs::set_permissions(directory.path(), open.clone()).expect("permissions");
    fs::copy(library(), directory.path().join("libbrug.so")).expect("copy");
    let path = directory.path().to_str().expect("path");
    let rpath = format!("-Wl,-rpath,{path}");
    let flags = ["-Wl,--no-as-needed", "-L", path, &rpath, "-lbrug"];
    let linked = compiled("faults.c", "setuid", &flags);
    let program = directory.path().join("program");
    copy_program(&linked, &program);
    chown(&program, Some(65534), None).expect("chown");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).expect("permissions");

    let statistics = directory.path().join("stats");
    let setting = format!("json:{}", statistics.display());
    let run = |program: &Path| {
        let mut command = Command::new(program);
        command
            .arg("no-huge-pages")
            .env("BRUG_STATS", &setting)
            .env("BRUG_ALLOC", "rubbish");
        command.output().expect("starts")
    };
    let output = run(&program);
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{output:?}"
    );
    assert!(
        !statistics.exists(),
        "statistics were written with another user's rights"
    );

    // The same file without the bit does listen, or the test proves nothing.
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("permissions");
    let output = run(&program);
    assert!(output.status.success() && statistics.exists(), "{output:?}");
    assert!(stderr(&output).contains("BRUG_ALLOC"), "{output:?}");
}

#[test]
fn what_cannot_be_written_does_not_end_the_program() {
    let directory = tempfile::tempdir().expect("directory");
    let file = directory.path().join("file");
    let file = file.to_str().expect("path");
    for (name, value, rest) in [
        ("BRUG_STATS", file, "ulimit -f 0; exec"),
        ("BRUG_STATS", "1", "exec 2>&3; sleep 0.2; exec"),
        ("BRUG_NOTHING", "1", "exec 2>&3; sleep 0.2; exec"),
    ] {
        // Who reads the pipe, as descriptor 3, is gone by then.
        let library = library();
        let run = format!("env {name}={value} LD_PRELOAD={} {TRUE}", library.display());
        let script = format!("{{ ({rest} {run}) 3>&1 >/dev/null; echo $? >&2; }} | true");
        let output = Command::new("sh").args(["-c", &script]).output();
        let output = output.expect("starts");
        let said = stderr(&output);
        assert_eq!(said.lines().last(), Some("0"), "{script}: {said}");
    }
}

/// A daemon has files of its own under the numbers that it was begun with.
#[test]
fn nothing_is_written_to_what_has_become_of_standard_error() {
    let program = compiled("daemon.c", "daemon", &[]);
    let directory = tempfile::tempdir().expect("directory");
    let file = directory.path().join("data");
    for settings in [
        &[("BRUG_STATS", "/nonexistent/file")][..],
        &[("BRUG_STATS", "1")],
        &[("BRUG_PROFILE", "/nonexistent/file")],
        &[("BRUG_VERBOSE", "1"), ("BRUG_RESERVE", "1M")],
    ] {
        let mut command = under_brug(&program, settings);
        let output = command.arg(&file).output().expect("starts");
        assert_eq!(output.status.code(), Some(0), "{settings:?} {output:?}");
        let text = fs::read_to_string(&file).expect("file");
        assert_eq!(text, "data\n", "{settings:?}");
    }
}
