// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command as a user meets it: what it says, what it ends with, and that programs run.

use std::ffi::CStr;
use std::fs;
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{symlink, OpenOptionsExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

// It comes beside the command under test, where the command looks for it.
#[path = "../../brug-preload/tests/common/building.rs"]
mod building;
use building::library;

fn brug(words: &[&str]) -> Output {
    library();
    Command::new(env!("CARGO_BIN_EXE_brug"))
        .args(words)
        .env_remove("BRUG_LIBRARY")
        .output()
        .expect("starts")
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// One line on stderr that contains this, nothing on stdout, and this status.
fn refuses(words: &[&str], status: i32, part: &str) {
    let output = brug(words);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{words:?}: {said}");
    assert_eq!(said.lines().count(), 1, "{words:?}: {said}");
    assert!(
        said.starts_with("brug: ") && said.contains(part) && !said.contains("os error"),
        "{words:?}: {said}"
    );
    assert!(output.stdout.is_empty(), "{words:?}");
}

#[test]
fn run_passes_words_output_and_status_through() {
    let output = brug(&["run", "--", "sh", "-c", "echo \"$1\"; exit 7", "sh", "a  b"]);
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(out(&output), "a  b\n");
    assert!(output.stderr.is_empty(), "{output:?}");
}

#[test]
fn run_hands_its_options_to_the_library() {
    let words = [
        "run",
        "--mode",
        "MMAP",
        "--base",
        "glibc",
        "--switch-point",
        "64K",
        "--stats",
    ];
    let program = [
        "--",
        "sh",
        "-c",
        "echo $BRUG_ALLOC $BRUG_BASE $BRUG_SWITCH_POINT; exec true",
    ];
    let output = brug(&[&words[..], &program[..]].concat());
    assert_eq!(out(&output), "mmap glibc 64K\n");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("mode mmap, base glibc"), "{said}");
}

#[test]
fn run_keeps_what_is_preloaded_already() {
    let output = Command::new(env!("CARGO_BIN_EXE_brug"))
        .args(["run", "--", "sh", "-c", "echo $LD_PRELOAD"])
        .env("BRUG_LIBRARY", library())
        .env("LD_PRELOAD", "libm.so.6")
        .output()
        .expect("starts");
    let own = fs::canonicalize(library()).expect("library");
    assert_eq!(out(&output), format!("{}:libm.so.6\n", own.display()));
}

/// Every command that runs a program.
const COMMANDS: [&str; 3] = ["run", "tune", "compare"];

#[test]
fn programs_that_cannot_run_are_refused_as_a_shell_does() {
    for command in COMMANDS {
        refuses(&[command, "--", "no-such-program"], 127, "no-such-program");
        refuses(
            &[command, "--", "/no/such/program"],
            127,
            "/no/such/program",
        );
        refuses(&[command, "--", "/etc/passwd"], 126, "not executable");
        refuses(&[command, "--", "/"], 126, "directory");
    }
    assert!(!Path::new("brug.profile").exists(), "a profile of nothing");
}

/// `brug` with these words, for so long that it hangs if it has not ended by then.
fn limited(words: &[&str]) -> Output {
    library();
    Command::new("timeout")
        .args(["-s", "KILL", "60", env!("CARGO_BIN_EXE_brug")])
        .args(words)
        .output()
        .expect("starts")
}

#[test]
fn a_fifo_is_no_program_and_is_not_waited_for() {
    let directory = tempfile::tempdir().expect("directory");
    let fifo = directory.path().join("fifo");
    let made = Command::new("mkfifo")
        .args(["-m", "755"])
        .arg(&fifo)
        .status();
    assert!(made.expect("starts").success());
    for command in COMMANDS {
        let output = limited(&[command, "--", fifo.to_str().expect("text")]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(126), "{command}: {said}");
        assert!(said.contains("neither a program nor a script"), "{said}");
    }
}

#[test]
fn what_a_measured_program_leaves_behind_goes_when_it_ends() {
    // As whoever stops a daemon waits for it.
    let script = "p=$( (sleep 0.1 >/dev/null 2>&1 & echo $!) ); while kill -0 $p 2>/dev/null; do sleep 0.02; done";
    let output = limited(&["compare", "-n", "1", "--", "sh", "-c", script]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

#[test]
fn programs_that_only_others_may_execute_are_passed_over_in_path() {
    library();
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("permissions");
    // Who owns a file has no other rights than the owner's; root may execute what anybody may.
    let script = path.join("sort");
    fs::write(&script, "#!/bin/sh\n").expect("script");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o611)).expect("permissions");
    // SAFETY: no preconditions.
    let nobody = unsafe { libc::geteuid() } == 0;
    let mut command = Command::new(env!("CARGO_BIN_EXE_brug"));
    if nobody {
        std::os::unix::fs::chown(&script, Some(65534), Some(65534)).expect("chown");
        command.uid(65534).gid(65534);
    }
    let output = command
        .args(["run", "--", "sort", "--version"])
        .env("PATH", format!("{}:/usr/bin:/bin", path.display()))
        .env_remove("BRUG_LIBRARY")
        .output();
    let output = match output {
        Err(error) if nobody && error.kind() == std::io::ErrorKind::PermissionDenied => {
            println!("skipped: nobody may not execute what is built here");
            return;
        }
        output => output.expect("starts"),
    };
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(out(&output).contains("sort"), "{output:?}");
}

#[test]
fn programs_that_the_loader_does_not_preload_into_are_refused() {
    let directory = tempfile::tempdir().expect("directory");
    let source = directory.path().join("empty.c");
    fs::write(&source, "int main(void) { return 0; }\n").expect("source");
    let program = directory.path().join("static");
    let status = Command::new("gcc")
        .args(["-static", "-o"])
        .arg(&program)
        .arg(&source)
        .status()
        .expect("gcc; apt-get install build-essential");
    assert!(status.success());
    for command in COMMANDS {
        refuses(
            &[command, "--", program.to_str().expect("path")],
            126,
            "statically linked",
        );
    }

    let script = directory.path().join("script");
    fs::write(&script, format!("#!{}\n", program.display())).expect("script");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("permissions");
    for command in COMMANDS {
        refuses(
            &[command, "--", script.to_str().expect("path")],
            126,
            "statically linked",
        );
    }

    let neither = directory.path().join("neither");
    fs::write(&neither, "neither\n").expect("file");
    fs::set_permissions(&neither, fs::Permissions::from_mode(0o755)).expect("permissions");
    for command in COMMANDS {
        refuses(
            &[command, "--", neither.to_str().expect("path")],
            126,
            "neither a program",
        );
    }

    // SAFETY: no preconditions.
    if unsafe { libc::geteuid() } == 0 {
        let copy = directory.path().join("setuid");
        fs::copy("/bin/true", &copy).expect("copy");
        std::os::unix::fs::chown(&copy, Some(65534), None).expect("chown");
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o4755)).expect("permissions");
        for command in COMMANDS {
            refuses(
                &[command, "--", copy.to_str().expect("path")],
                126,
                "rights of its own",
            );
        }
        // As sudo is on some systems: nobody may read it.
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o4711)).expect("permissions");
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755))
            .expect("permissions");
        let mut command = Command::new(env!("CARGO_BIN_EXE_brug"));
        let command = command.args(["run", "--"]).arg(&copy).uid(65533).gid(65533);
        match command.output() {
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr);
                assert_eq!(output.status.code(), Some(126), "{said}");
                assert!(said.contains("rights of its own"), "{said}");
            }
            Err(error) => println!("skipped: others may not execute what is built here: {error}"),
        }
    }
}

#[test]
fn a_program_that_the_loader_is_told_to_run_is_preloaded_into() {
    let loader = if cfg!(target_arch = "aarch64") {
        "/lib/ld-linux-aarch64.so.1"
    } else {
        "/lib64/ld-linux-x86-64.so.2"
    };
    let directory = tempfile::tempdir().expect("directory");
    let link = directory.path().join("ld.so");
    symlink(loader, &link).expect("link");
    for loader in [loader, link.to_str().expect("path")] {
        let output = brug(&["run", "--stats", "--", loader, "/bin/true"]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("mode auto"), "{said}");
    }
}

#[test]
fn a_library_that_cannot_be_used_is_named() {
    let run = |command: &Path, named: Option<&Path>| {
        let mut command = Command::new(command);
        command
            .args(["run", "--", "true"])
            .env_remove("BRUG_LIBRARY");
        if let Some(named) = named {
            command.env("BRUG_LIBRARY", named);
        }
        let output = command.output().expect("starts");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), said)
    };
    let own = Path::new(env!("CARGO_BIN_EXE_brug"));
    library();
    // An empty variable is one that is not set.
    assert_eq!(run(own, Some(Path::new(""))), (Some(0), String::new()));
    let (status, said) = run(own, Some(Path::new("/nowhere/libbrug.so")));
    assert_eq!((status, said.lines().count()), (Some(125), 1), "{said}");
    assert!(
        said.contains("BRUG_LIBRARY") && said.contains("/nowhere/libbrug.so"),
        "{said}"
    );

    let compare = Command::new(own)
        .args(["compare", "-n", "1", "--", "true"])
        .env("BRUG_LIBRARY", "/bin/true")
        .output()
        .expect("starts");
    let said = String::from_utf8_lossy(&compare.stderr);
    assert_eq!(compare.status.code(), Some(125), "{compare:?}");
    assert!(
        said.lines().count() == 1 && said.contains("does not preload"),
        "{said}"
    );

    for other in ["/etc/passwd", "/etc"] {
        let (status, said) = run(own, Some(Path::new(other)));
        assert_eq!((status, said.lines().count()), (Some(125), 1), "{said}");
        assert!(said.contains("not a library"), "{said}");
    }

    let directory = tempfile::tempdir().expect("directory");
    let spaced = directory.path().join("a b.so");
    symlink(library(), &spaced).expect("link");
    // A link is followed, so only a library that really has such a name is refused.
    assert_eq!(run(own, Some(&spaced)), (Some(0), String::new()));
    fs::remove_file(&spaced).expect("remove");
    fs::copy(library(), &spaced).expect("copy");
    let (status, said) = run(own, Some(&spaced));
    assert_eq!((status, said.lines().count()), (Some(125), 1), "{said}");
    assert!(said.contains("has a space"), "{said}");

    fs::create_dir_all(directory.path().join("bin")).expect("bin");
    let alone = directory.path().join("bin/brug");
    // Not by this process: a sibling that another test starts meanwhile would hold the file open
    // for writing, and such a file cannot be run.
    let copied = Command::new("cp").args([own, &alone]).status().expect("cp");
    assert!(copied.success());
    let (status, said) = run(&alone, None);
    assert_eq!((status, said.lines().count()), (Some(125), 1), "{said}");
    fs::create_dir_all(directory.path().join("lib")).expect("lib");
    fs::copy(library(), directory.path().join("lib/libbrug.so")).expect("copy");
    assert_eq!(run(&alone, None), (Some(0), String::new()));
}

#[test]
fn wrong_arguments_are_one_line_and_a_status_of_our_own() {
    refuses(&["run"], 125, "not provided");
    refuses(&["run", "--"], 125, "not provided");
    refuses(&["dance"], 125, "dance");
    let modes = "sys, mimalloc, mmap, template, auto";
    refuses(&["run", "--mode", "fast", "--", "true"], 125, modes);
    let bases = "glibc, mimalloc";
    refuses(&["run", "--base", "tc", "--", "true"], 125, bases);
    refuses(&["run", "--switch-point", "-1", "--", "true"], 125, "-1");
    refuses(&["run", "--switch-point", "1X", "--", "true"], 125, "64K");
    for size in ["0", "4095", "257G"] {
        let words = ["run", "--switch-point", size, "--", "true"];
        refuses(&words, 125, "not 4K to 256G");
    }
    refuses(&["run", "--faster", "--", "true"], 125, "--faster");
    refuses(&["run", "./x", "y"], 125, "-- goes before the program");
    refuses(&["tune", "--top", "x", "--", "true"], 125, "--top");
    let runs = "not a number from 1 to 9999";
    refuses(&["compare", "--runs", "0", "--", "true"], 125, runs);
    refuses(&["compare", "--runs", "x", "--", "true"], 125, runs);
    // Without any word the whole help is the answer.
    let output = brug(&[]);
    assert!(!output.stderr.is_empty() && output.status.code() == Some(125));
    assert_eq!(brug(&["--help"]).status.code(), Some(0));
}

#[test]
fn profiles_that_cannot_be_used_are_refused_and_left_alone() {
    let directory = tempfile::tempdir().expect("directory");
    let other = directory.path().join("main.c");
    fs::write(&other, "int main(void);\n").expect("file");
    let (other_path, folder) = (
        other.to_str().expect("path"),
        directory.path().to_str().expect("path"),
    );
    let missing = format!("{folder}/missing/profile");
    for (path, part) in [
        (other_path, "not a profile"),
        (folder, "directory"),
        (&missing, "missing"),
    ] {
        refuses(&["tune", "--profile", path, "--", "true"], 125, part);
        refuses(&["run", "--profile", path, "--", "true"], 125, part);
    }
    // Nobody, not even root, makes files there.
    let proc = "/proc/profile";
    refuses(&["tune", "--profile", proc, "--", "true"], 125, "written");
    assert_eq!(
        fs::read_to_string(other).expect("file"),
        "int main(void);\n"
    );
}

#[test]
fn compare_reports_every_run_of_every_allocator() {
    let output = brug(&[
        "compare",
        "--runs",
        "2",
        "--json",
        "--",
        "sort",
        "/etc/passwd",
    ]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let rows = report["allocators"].as_array().expect("rows");
    assert_eq!(rows[0]["allocator"], "glibc");
    assert_eq!(rows[rows.len() - 1]["allocator"], "brug");
    for row in rows {
        assert_eq!(row["runs"].as_array().expect("runs").len(), 2);
        for quantity in ["seconds", "peak_rss_bytes", "page_faults"] {
            let [least, median, most] =
                ["min", "median", "max"].map(|name| row[quantity][name].as_f64().expect("number"));
            assert!(0.0 < least && least <= median && median <= most, "{row}");
        }
    }
    // What is missing is named with its package, what is there is in the table.
    let said = String::from_utf8_lossy(&output.stderr);
    for (name, package) in [("jemalloc", "libjemalloc2"), ("mimalloc", "libmimalloc")] {
        let there = rows.iter().any(|row| row["allocator"] == name);
        assert_ne!(there, said.contains(package), "{name}: {said}");
    }
    let table = out(&brug(&["compare", "-n", "1", "--", "true"]));
    assert!(table.contains("glibc") && table.contains("brug") && table.contains("page faults"));
    // One round cannot be sure of anything.
    let verdict = report["verdict"]["finding"].as_str().expect("verdict");
    assert!(["same", "unsure"].contains(&verdict), "{verdict}");
    let last = table.lines().last().expect("verdict");
    assert!(
        last.starts_with("verdict: ") && last.contains("of glibc's processor time"),
        "{table}"
    );
}

#[test]
fn compare_counts_also_where_the_ends_of_children_are_ignored() {
    library();
    let ignored = "SigIgn:.*[13579bdf]....$";
    let output = Command::new("env")
        .args(["--ignore-signal=CHLD", env!("CARGO_BIN_EXE_brug")])
        .args([
            "compare",
            "-n",
            "1",
            "--json",
            "--",
            "grep",
            "-q",
            ignored,
            "/proc/self/status",
        ])
        .env_remove("BRUG_LIBRARY")
        .output()
        .expect("starts");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    // The program still ignores them.
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["exit_status"], 0, "{output:?}");
}

#[test]
fn the_program_that_is_measured_ignores_what_the_command_was_to_ignore() {
    library();
    let directory = tempfile::tempdir().expect("directory");
    let ignored = ["grep", "-q", "SigIgn:.*[13579bdf]...$", "/proc/self/status"];
    let (tune, compare) = (
        ["tune", "--profile", "p", "--"],
        ["compare", "-n", "1", "--json", "--"],
    );
    for words in [&tune[..], &compare] {
        let output = Command::new("env")
            .args(["--ignore-signal=PIPE", env!("CARGO_BIN_EXE_brug")])
            .args([words, &ignored].concat())
            .current_dir(&directory)
            .env_remove("BRUG_LIBRARY")
            .output()
            .expect("starts");
        // `tune` has a status for a program that fails, `compare` says which it had.
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let text = out(&output);
        assert!(
            words[0] == "tune" || text.contains("\"exit_status\": 0"),
            "{text}"
        );
    }
}

/// The numbers that a script has written, one a line, of processes that run; they are ended.
fn still_running(file: &Path) -> usize {
    let text = fs::read_to_string(file).expect("numbers");
    let numbers = text.lines().map(|line| line.parse().expect("number"));
    // SAFETY: of processes that this test has started.
    numbers
        .filter(|&number| unsafe { libc::kill(number, libc::SIGKILL) } == 0)
        .count()
}

/// As of a daemon, whose first process ends at once.
#[test]
fn there_is_no_verdict_on_a_program_that_leaves_processes_behind() {
    let directory = tempfile::tempdir().expect("directory");
    let at = |name: &str| directory.path().join(name).display().to_string();
    let (file, profile) = (at("numbers"), at("profile"));
    // The kernel cuts its name within a character.
    let sleep = at("xxxxxxxxxxxxxx\u{e4}");
    fs::copy("/bin/sleep", &sleep).expect("a copy");
    let script = format!("{sleep} 1000 >/dev/null 2>&1 & echo $! >> {file}; exit 0");
    let said = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let line = "brug: 1 process that the program started still runs and cannot be counted, so there is no verdict\n";
    let output = brug(&["tune", "--profile", &profile, "--", "bash", "-c", &script]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(said(&output), line);
    assert!(!out(&output).contains("verdict"), "{output:?}");
    let output = brug(&["compare", "-n", "1", "--", "bash", "-c", &script]);
    assert_eq!(
        (output.status.code(), said(&output)),
        (Some(125), line.into()),
        "{output:?}"
    );
    assert!(output.stdout.is_empty(), "{output:?}");
    assert_eq!(still_running(Path::new(&file)), 2);
}

/// As of a server whose first process ends when the others do.
#[test]
fn processes_that_nobody_waits_for_count() {
    let directory = tempfile::tempdir().expect("directory");
    let done = directory.path().join("done").display().to_string();
    let work = "head -c 60M /dev/zero | tail -c 60M >/dev/null";
    let script =
        format!("( ( {work}; : >{done} ) & ); until [ -e {done} ]; do sleep 0.05; done; rm {done}");
    let output = brug(&["compare", "-n", "1", "--json", "--", "sh", "-c", &script]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    for row in report["allocators"].as_array().expect("rows") {
        let run = &row["runs"][0];
        assert!(run["peak_rss_bytes"].as_u64() > Some(60 << 20), "{row}");
    }
}

#[test]
fn compare_that_is_asked_to_end_ends_the_program() {
    library();
    let directory = tempfile::tempdir().expect("directory");
    let file = directory.path().join("numbers");
    for (asked, status) in [
        ("exec sleep 1000", 143),
        ("trap 'exit 0' TERM; while :; do sleep 0.1; done", 143),
    ] {
        let script = format!("echo $$ >> {}; kill -TERM $PPID; {asked}", file.display());
        let output = Command::new("env")
            .args(["--default-signal=TERM", env!("CARGO_BIN_EXE_brug")])
            .args(["compare", "-n", "1", "--", "bash", "-c", &script])
            .env_remove("BRUG_LIBRARY")
            .output()
            .expect("starts");
        assert_eq!(output.status.code(), Some(status), "{output:?}");
    }
    assert_eq!(still_running(&file), 0);
}

/// The library would pass over them, and the runs be without a profile.
#[test]
fn profiles_that_the_library_does_not_take_are_refused() {
    let directory = tempfile::tempdir().expect("directory");
    let profile = directory.path().join("profile");
    let path = profile.to_str().expect("path");
    for text in [
        "brug-profile 2\n",
        "brug-profile 1\n4096 base 16000 3\n4096 mo",
        "brug-profile 1\n\x01\x02",
    ] {
        fs::write(&profile, text).expect("profile");
        for command in ["run", "tune", "compare"] {
            let words = [command, "--profile", path, "--", "true"];
            refuses(&words, 125, "not a profile of this version");
        }
        assert_eq!(fs::read_to_string(&profile).expect("profile"), text);
    }
}

#[test]
fn compare_that_cannot_do_what_it_has_to_says_what_and_leaves_nothing_behind() {
    let directory = tempfile::tempdir().expect("directory");
    let at = |name: &str| directory.path().join(name);
    fs::create_dir(at("scratch")).expect("directory");
    fs::write(at("profile"), "brug-profile 1\n").expect("profile");
    for (limit, part) in [("-f 0", "cannot copy"), ("-n 5", "cannot start a process")] {
        let output = Command::new("bash")
            .args([
                "-c",
                "ulimit $1; exec \"$2\" compare --profile \"$3\" -- true",
                "-",
            ])
            .args([limit, env!("CARGO_BIN_EXE_brug")])
            .arg(at("profile"))
            .env("TMPDIR", at("scratch"))
            .env_remove("BRUG_LIBRARY")
            .output()
            .expect("starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(part) && said.lines().count() == 1, "{said}");
        assert_eq!(output.status.code(), Some(125), "{output:?}");
        let left = fs::read_dir(at("scratch")).expect("directory").count();
        assert_eq!(left, 0, "{limit}");
    }
}

/// Each run has what was measured before, not what the run before it has.
#[test]
fn compare_leaves_a_profile_as_it_is() {
    let directory = tempfile::tempdir().expect("directory");
    let program = growing(directory.path());
    let profile = directory.path().join("profile");
    let text = "brug-profile 1\n4096 base 16000 3\n";
    fs::write(&profile, text).expect("profile");
    let profile = profile.to_str().expect("path");
    let program = program.to_str().expect("path");
    let output = brug(&["compare", "-n", "1", "--profile", profile, "--", program]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(fs::read_to_string(profile).expect("profile"), text);
}

#[test]
fn compare_has_the_exit_status_of_a_shell_in_json() {
    for (script, status) in [("exit 3", 3), ("kill -KILL $$", 137)] {
        let output = brug(&["compare", "-n", "1", "--json", "--", "sh", "-c", script]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(report["exit_status"], status);
    }
}

#[test]
fn json_is_alone_on_standard_output() {
    let directory = tempfile::tempdir().expect("directory");
    let profile = directory.path().join("profile");
    for words in [
        &[
            "tune",
            "--json",
            "--profile",
            profile.to_str().expect("path"),
        ][..],
        &["compare", "-n", "1", "--json", "--show-output"],
    ] {
        let output = brug(&[words, &["--", "echo", "of the program"]].concat());
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        serde_json::from_slice::<serde_json::Value>(&output.stdout).expect("JSON");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("of the program"), "{said}");
    }
}

#[test]
fn compare_tells_when_allocators_change_the_outcome() {
    let script = "case $LD_PRELOAD in *brug*) exit 3;; esac";
    refuses(
        &["compare", "-n", "1", "--", "bash", "-c", script],
        125,
        "under brug the program ended with exit status: 3, under glibc with exit status: 0; --show-output shows",
    );
}

#[test]
fn compare_leaves_a_peer_out_under_which_the_program_ends_otherwise() {
    let script = "case $LD_PRELOAD in *malloc.so*) exit 3;; esac";
    let output = brug(&["compare", "-n", "1", "--json", "--", "bash", "-c", script]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let rows = report["allocators"].as_array().expect("rows");
    let names: Vec<_> = rows.iter().map(|row| &row["allocator"]).collect();
    assert_eq!(names, ["glibc", "brug"]);
    let said = String::from_utf8_lossy(&output.stderr);
    for peer in ["jemalloc", "mimalloc"] {
        let left_out = format!("{peer}: left out, the program ended with exit status: 3");
        let absent = format!("no {peer} here");
        let lines = said.matches(&left_out).count() + said.matches(&absent).count();
        assert_eq!(lines, 1, "{said}");
    }
}

#[test]
fn compare_runs_glibc_without_an_allocator_that_is_preloaded() {
    let directory = tempfile::tempdir().expect("directory");
    let seen = directory.path().join("seen");
    let script = format!("echo $LD_PRELOAD >> {}", seen.display());
    let output = Command::new(env!("CARGO_BIN_EXE_brug"))
        .args(["compare", "-n", "1", "--", "sh", "-c", &script])
        .env("BRUG_LIBRARY", library())
        .env("LD_PRELOAD", format!("{}:libm.so.6", library().display()))
        .output()
        .expect("starts");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("libbrug.so out"), "{said}");
    let seen = fs::read_to_string(&seen).expect("seen");
    assert_eq!(seen.lines().next(), Some("libm.so.6"), "{seen}");
    assert_eq!(seen.matches("libbrug.so:libm.so.6").count(), 2, "{seen}");
}

#[test]
fn compare_gives_the_profile_to_brug_alone() {
    let directory = tempfile::tempdir().expect("directory");
    let file = directory.path().join("profile");
    let path = file.to_str().expect("path");
    let tuned = brug(&["tune", "--profile", path, "--", "true"]);
    assert!(
        out(&tuned).contains("verdict: brug has little to gain"),
        "{tuned:?}"
    );
    // The outcome must be the same, so the program writes down what it sees.
    let seen = directory.path().join("seen");
    let script = format!(
        "echo ${{LD_PRELOAD##*/}} $BRUG_PROFILE >> {}",
        seen.display()
    );
    let words = [
        "compare",
        "-n",
        "1",
        "--profile",
        path,
        "--",
        "sh",
        "-c",
        &script,
    ];
    assert_eq!(brug(&words).status.code(), Some(0));
    for line in fs::read_to_string(&seen).expect("seen").lines() {
        assert_eq!(
            line.starts_with("libbrug.so"),
            line.ends_with("/profile"),
            "{line}"
        );
    }
    refuses(
        &["compare", "--profile", "/no/such/file", "--", "true"],
        125,
        "/no/such",
    );
}

/// What a process did before it forked is its own alone.
#[test]
fn tune_counts_no_work_of_a_parent_again() {
    let directory = tempfile::tempdir().expect("directory");
    let source = directory.path().join("forks.c");
    fs::write(
        &source,
        "#include <stdlib.h>\n#include <string.h>\n#include <sys/wait.h>\n#include <unistd.h>\n\
         int main(void) { char *p = 0;\n\
         for (size_t n = 4096; n <= 4 << 20; n += 4096) { p = realloc(p, n); memset(p, 1, n); }\n\
         for (int i = 0; i < 7; i++) if (!fork()) return 0;\n\
         while (wait(0) > 0); return 0; }\n",
    )
    .expect("source");
    let program = directory.path().join("forks");
    let status = Command::new("gcc")
        .arg("-O1")
        .arg("-o")
        .args([&program, &source])
        .status();
    assert!(status.expect("gcc").success());
    let profile = directory.path().join("profile").display().to_string();
    let output = brug(&[
        "tune",
        "--json",
        "--profile",
        &profile,
        "--",
        program.to_str().expect("path"),
    ]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let processes: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let grown = |process: &serde_json::Value| process["bytes_not_copied"].as_u64().expect("bytes");
    let grown: Vec<_> = processes
        .as_array()
        .expect("a list")
        .iter()
        .map(grown)
        .collect();
    assert_eq!(grown.len(), 8);
    assert_eq!(
        grown.iter().filter(|&&bytes| bytes == 0).count(),
        7,
        "{grown:?}"
    );
}

#[test]
fn tune_names_the_call_site_and_writes_a_profile() {
    let directory = tempfile::tempdir().expect("directory");
    let source = directory.path().join("grow.c");
    fs::write(
        &source,
        "#include <stdlib.h>\n#include <string.h>\n\
         __attribute__((noinline)) static char *enlarge(char *p, size_t n)\n\
         { p = realloc(p, n); memset(p, 1, n); return p; }\n\
         int main(int argc, char **argv) { (void)argv;\n\
         for (int k = 0; k < 400000 && argc == 1; k++) { void *volatile q = malloc(k % 100 + 1); free(q); }\n\
         for (int k = 0; k < (argc == 1 ? 50 : 1); k++) { char *p = 0;\n\
         for (size_t n = argc == 1 ? 100 : 2000000; n < 20000000; n *= 2) p = enlarge(p, n); free(p); } return 0; }\n",
    )
    .expect("source");
    let program = directory.path().join("grow");
    let status = Command::new("gcc")
        .args(["-g", "-O1", "-o"])
        .args([&program, &source])
        .status()
        .expect("gcc");
    assert!(status.success());
    let profile = directory.path().join("profile");
    let path = profile.to_str().expect("path");
    let words = [
        "tune",
        "--json",
        "--profile",
        path,
        "--",
        program.to_str().expect("path"),
    ];
    let output = brug(&words);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let processes: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let bases = processes[0]["bases"].as_array().expect("bases");
    assert!(bases.iter().any(|base| base["name"] == "glibc"));
    assert!(bases
        .iter()
        .all(|base| base["samples"].as_u64() > Some(500)));
    let site = &processes[0]["sites"][0];
    assert!(site["reallocs"].as_u64() >= Some(500), "{site}");
    let frames = site["frames"].as_array().expect("frames");
    let module = frames[0]["module"].as_str().expect("module");
    assert!(
        module.ends_with("/grow") && frames[0]["offset"].as_u64() > Some(0),
        "{site}"
    );
    assert!(
        frames
            .iter()
            .any(|f| f["source"].as_str().unwrap_or("").contains("grow.c:")),
        "{site}"
    );
    assert!(fs::metadata(&profile).expect("profile").len() > 0);

    // What an earlier run found of small objects is found anew.
    let earlier = "0 glibc 1600 1000\n0 mimalloc 160 1000\n";
    fs::write(&profile, format!("brug-profile 1\n{earlier}")).expect("profile");
    let output = brug(&words);
    let processes: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let why = processes[0]["base_why"].as_str().expect("a reason");
    assert!(why.ends_with("in the trial"), "{why}");
    let found = fs::read_to_string(&profile).expect("profile");
    assert!(
        found.contains("0 glibc ") && !found.contains(earlier),
        "{found}"
    );

    let output = brug(&words.map(|word| if word == "--json" { "--top=1" } else { word }));
    assert!(out(&output).contains("grow.c:") && out(&output).contains("BRUG_PROFILE="));
    assert!(
        out(&output).contains("verdict: brug may help"),
        "{output:?}"
    );
    assert!(
        out(&output).contains("brug compare --profile"),
        "{output:?}"
    );
    assert!(out(&output).contains("small objects: "));
    // It gains as much if its call sites are not asked for.
    let new = directory.path().join("new");
    let new = new.to_str().expect("path");
    let words = ["tune", "--top", "0", "--profile", new, "--"];
    let once = [program.to_str().expect("path"), "once"];
    let said = out(&brug(&[&words[..], &once].concat()));
    assert!(
        said.contains("MiB not copied") && !said.contains("reallocate nothing"),
        "{said}"
    );
    // Found in PATH, and by a name that would be a line of its own.
    let name = "grow\nverdict: brug helps";
    fs::hard_link(&program, directory.path().join(name)).expect("link");
    let found = Command::new(env!("CARGO_BIN_EXE_brug"))
        .args(["tune", "--profile", new, "--", name, "once"])
        .env("PATH", directory.path())
        .env_remove("BRUG_LIBRARY")
        .output()
        .expect("starts");
    let said = out(&found);
    assert!(said.contains("grow.c:"), "{found:?}");
    let verdicts = said.lines().filter(|line| line.starts_with("verdict: "));
    assert_eq!(verdicts.count(), 1, "{said}");
    let run = Command::new(env!("CARGO_BIN_EXE_brug"))
        .args(["run", "--", program.to_str().expect("path")])
        .env("BRUG_PROFILE", &profile)
        .output()
        .expect("starts");
    assert!(run.status.success() && run.stderr.is_empty(), "{run:?}");
    refuses(
        &["tune", "--profile", "/no/such/file", "--", "true"],
        125,
        "/no/such",
    );
}

/// A real program whose buffers grow below the switch point, where only the tuner's decision
/// moves them: what a profile says is what happens.
#[test]
fn run_decides_by_the_profile_that_tune_wrote() {
    const PYTHON: &str = "/usr/bin/python3";
    if !Path::new(PYTHON).exists() {
        println!("skipped: no {PYTHON}");
        return;
    }
    let script = "for i in range(600):\n b = bytearray()\n while len(b) < 100000: b += bytes(900)";
    let program = [PYTHON, "-S", "-c", script];
    let directory = tempfile::tempdir().expect("directory");
    let file = directory.path().join("profile");
    let path = file.to_str().expect("path");
    let samples = || -> u64 {
        let text = fs::read_to_string(&file).expect("profile");
        let rows = text.lines().skip(1);
        rows.map(|row| {
            row.rsplit(' ')
                .next()
                .unwrap_or("")
                .parse::<u64>()
                .expect("number")
        })
        .sum()
    };
    let early = |profile: &str| -> u64 {
        let words = ["run", "--profile", profile, "--stats", "--"];
        let output = brug(&[&words[..], &program[..]].concat());
        assert!(output.status.success(), "{output:?}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let row = said.lines().find(|line| line.starts_with("moves_early"));
        let number = row.and_then(|row| row.split_whitespace().nth(1)?.parse().ok());
        number.unwrap_or_else(|| panic!("{said}"))
    };

    let words = ["tune", "--profile", path, "--"];
    let output = brug(&[&words[..], &program[..]].concat());
    assert!(output.status.success(), "{output:?}");
    let said = out(&output);
    assert!(
        said.contains("--profile") && said.contains("growing objects"),
        "{said}"
    );
    let learned = samples();
    assert!(learned > 0);

    // It is used: what was learned is where the next run begins.
    early(path);
    assert!(samples() > learned, "the run learned nothing or forgot");

    // It decides: the same program, under evidence for the one and for the other.
    let evidence = |base: u64, slot: u64| {
        let mut text = String::from("brug-profile 1\n");
        for octave in 12..18 {
            for quarter in 4..8 {
                let size = (1u64 << octave) * quarter / 4;
                for (arm, ns) in [("base", base), ("move", slot), ("slot", slot)] {
                    text += &format!("{size} {arm} {} 1000\n", ns * 16);
                }
            }
        }
        fs::write(&file, text).expect("profile");
    };
    evidence(1, 100_000_000);
    let stay = early(path);
    evidence(100_000_000, 1);
    let go = early(path);
    assert!(go >= 500 && stay * 10 < go, "stay {stay}, go {go}");
}

#[test]
fn output_that_goes_nowhere_is_one_line() {
    library();
    let full = || {
        fs::File::options()
            .write(true)
            .open("/dev/full")
            .expect("device")
    };
    let profile = tempfile::tempdir().expect("directory");
    let profile = profile.path().join("profile");
    let profile = profile.to_str().expect("path");
    for words in [
        &["compare", "-n", "1", "--", "true"][..],
        &["compare", "-n", "1", "--json", "--", "true"],
        &["tune", "--profile", profile, "--", "true"],
        &["--help"],
        &["--version"],
        &["tune", "--help"],
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_brug"));
        let output = command.args(words).stdout(full()).output().expect("starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{words:?}: {said}");
        let last = said.lines().last().expect("line");
        assert!(last.starts_with("brug: standard output"), "{said}");
    }
    // Not even that can be said, and the status is what it is.
    let mut command = Command::new(env!("CARGO_BIN_EXE_brug"));
    let command = command
        .args(["run", "--", "no-such-program"])
        .stderr(full());
    assert_eq!(command.output().expect("starts").status.code(), Some(127));
}

#[test]
fn tune_replaces_no_device_and_has_a_directory_of_its_own() {
    let directory = tempfile::tempdir().expect("directory");
    let at = |name: &str| directory.path().join(name);
    symlink("/dev/null", at("null")).expect("link");
    let null = at("null");
    let null = null.to_str().expect("path");
    refuses(&["tune", "--profile", null, "--", "true"], 125, "device");
    assert!(fs::symlink_metadata(null).expect("link").is_symlink());
    // Others may write where it is made.
    library();
    let temporary = at("tmp");
    fs::create_dir(&temporary).expect("directory");
    let script =
        "cd \"$TMPDIR\"; stat -c %a * >../mode; ls -d brug-tune-$PPID* >../guessed; exit 0";
    let output = Command::new(env!("CARGO_BIN_EXE_brug"))
        .args(["tune", "--profile"])
        .arg(at("profile"))
        .args(["--", "sh", "-c", script])
        .env("TMPDIR", &temporary)
        .output()
        .expect("starts");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let read = |name: &str| fs::read_to_string(at(name)).expect("file");
    assert_eq!((&*read("mode"), &*read("guessed")), ("700\n", ""));
    assert_eq!(fs::read_dir(&temporary).expect("directory").count(), 0);
}

/// Not that of another of the same name which comes before it and cannot be run.
#[test]
fn compare_names_the_allocator_of_the_program_that_it_runs() {
    library();
    let directory = tempfile::tempdir().expect("directory");
    let at = |name: &str| directory.path().join(name);
    fs::write(at("true.c"), "int main(void) { return 0; }\n").expect("source");
    fs::write(at("none.c"), "").expect("source");
    for words in [
        &["-shared", "-o", "libjemalloc.so.2", "none.c"][..],
        &[
            "-o",
            "true",
            "true.c",
            "-Wl,--no-as-needed,-rpath,$ORIGIN",
            "-L.",
            "-l:libjemalloc.so.2",
        ],
    ] {
        let mut compiler = Command::new("gcc");
        let status = compiler.args(words).current_dir(&directory).status();
        assert!(status.expect("apt-get install build-essential").success());
    }
    let path = format!("{}:/usr/bin:/bin", directory.path().display());
    for (mode, named) in [(0o755, true), (0o644, false)] {
        fs::set_permissions(at("true"), fs::Permissions::from_mode(mode)).expect("file");
        let output = Command::new(env!("CARGO_BIN_EXE_brug"))
            .args(["compare", "--runs", "1", "--", "true"])
            .env("PATH", &path)
            .env_remove("BRUG_LIBRARY")
            .output()
            .expect("starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{said}");
        assert_eq!(
            said.contains("is linked with libjemalloc.so.2"),
            named,
            "{said}"
        );
    }
}

#[test]
fn a_profile_is_written_where_a_link_leads() {
    let directory = tempfile::tempdir().expect("directory");
    let (profile, link) = (
        directory.path().join("profile"),
        directory.path().join("link"),
    );
    fs::write(&profile, "").expect("profile");
    symlink("profile", &link).expect("link");
    let path = link.to_str().expect("path");
    for command in ["tune", "run"] {
        let output = brug(&[command, "--profile", path, "--", "true"]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert!(output.stderr.is_empty(), "{output:?}");
        assert!(fs::symlink_metadata(&link).expect("link").is_symlink());
    }
    assert!(fs::metadata(&profile).expect("profile").len() > 0);
}

#[test]
fn tune_hears_of_programs_elsewhere_with_whatever_directory_for_temporary_files() {
    library();
    let directory = tempfile::tempdir().expect("directory");
    // An empty variable is one that is not set.
    for named in [".", ""] {
        let output = Command::new(env!("CARGO_BIN_EXE_brug"))
            .args(["tune", "--profile", "profile"])
            .args(["--", "bash", "-c", "cd /; exit 0"])
            .current_dir(&directory)
            .env("TMPDIR", named)
            .env_remove("BRUG_LIBRARY")
            .output()
            .expect("starts");
        assert_eq!(output.status.code(), Some(0), "{named}: {output:?}");
    }
}

#[test]
fn tune_says_nothing_of_a_program_whose_counters_found_no_room() {
    let directory = tempfile::tempdir().expect("directory");
    let profile = directory.path().join("profile");
    let words = ["tune", "--profile", profile.to_str().expect("path"), "--"];
    let first = brug(&[&words[..], &["true"]].concat());
    assert_eq!(first.status.code(), Some(0), "{first:?}");
    // A disk that is full is like a limit that is reached.
    let script = "trap '' XFSZ; ulimit -f 0; exit 0";
    let output = brug(&[&words[..], &["bash", "-c", script]].concat());
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("cannot write") && said.contains("left nothing"),
        "{said}"
    );
}

/// A program that has objects grow, many times.
fn growing(directory: &Path) -> PathBuf {
    let (source, program) = (directory.join("grow.c"), directory.join("grow"));
    let text = "#include <stdlib.h>\nint main(void) { for (int i = 0; i < 2000; i++) { char *p = malloc(4096);\n\
                for (size_t n = 8192; n <= 1 << 20; n *= 2) if (!(p = realloc(p, n))) return 1;\n\
                free(p); } return 0; }\n";
    fs::write(&source, text).expect("source");
    let status = Command::new("gcc")
        .args(["-fno-builtin", "-o"])
        .args([&program, &source])
        .status()
        .expect("gcc; apt-get install build-essential");
    assert!(status.success());
    program
}

/// A shell that runs a program ends after it, and has measured nothing.
#[test]
fn a_profile_has_what_all_processes_of_a_program_have_measured() {
    let directory = tempfile::tempdir().expect("directory");
    let program = growing(directory.path());
    // The name of a file is no text, and as long as it can be.
    let name = [&[0xff; 2][..], &[b'x'; 250]].concat();
    let profile = directory.path().join(std::ffi::OsStr::from_bytes(&name));
    let tune = |script: &str| {
        library();
        let output = Command::new(env!("CARGO_BIN_EXE_brug"))
            .args(["tune", "--profile"])
            .arg(&profile)
            .args(["--", "bash", "-c", script])
            .env_remove("BRUG_LIBRARY")
            .output()
            .expect("starts");
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert!(output.stderr.is_empty(), "{output:?}");
        fs::read_to_string(&profile).expect("profile")
    };
    assert_eq!(tune("exit 0").lines().count(), 1);
    let first = tune(&format!("{}; exit 0", program.display()));
    assert!(first.lines().count() > 1, "{first}");
    assert_eq!(tune("exit 0"), first);
    // What is in the file and not in a process stays.
    let row = format!("{} base 16000 100", 1u64 << 33);
    fs::write(&profile, format!("{first}{row}\n")).expect("profile");
    let script = format!("{0} & {0}; wait; exit 0", program.display());
    let last = tune(&script);
    assert!(last.lines().any(|line| line == row), "{last}");
    let left = fs::read_dir(directory.path()).expect("directory").count();
    assert_eq!(left, 3, "program, source, profile");
}

/// What `brug tune` of a script of bash, which ends by `exit(3)`, says and leaves in a directory for temporary files of its own.
fn tune_of(script: &str) -> (Output, usize) {
    tune_by(&mut Command::new(env!("CARGO_BIN_EXE_brug")), script)
}

/// The same with signals that end programs. Whoever runs this test may ignore them, as under nohup or in the
/// background of a shell.
fn mortal_tune_of(script: &str) -> (Output, usize) {
    let mut command = Command::new("env");
    command.arg("--default-signal=HUP,INT,TERM");
    tune_by(command.arg(env!("CARGO_BIN_EXE_brug")), script)
}

fn tune_by(command: &mut Command, script: &str) -> (Output, usize) {
    library();
    let directory = tempfile::tempdir().expect("directory");
    let scratch = directory.path().join("scratch");
    fs::create_dir(&scratch).expect("directory");
    let output = command
        .args(["tune", "--profile"])
        .arg(directory.path().join("profile"))
        .args(["--", "bash", "-c", script])
        .env("TMPDIR", &scratch)
        .env_remove("BRUG_LIBRARY")
        .output()
        .expect("starts");
    let left = fs::read_dir(&scratch).expect("directory").count();
    (output, left)
}

#[test]
fn tune_that_is_asked_to_end_leaves_nothing_behind() {
    for (signal, status) in [("HUP", 129), ("INT", 130), ("TERM", 143)] {
        let (output, left) = mortal_tune_of(&format!("kill -{signal} $PPID; exec sleep 20"));
        assert_eq!(output.status.code(), Some(status), "{output:?}");
        assert!(
            output.stdout.is_empty() && output.stderr.is_empty(),
            "{output:?}"
        );
        assert_eq!(left, 0, "{signal}");
    }
}

/// As with `ssh -t HOST brug tune …`, and in a window of its own.
#[test]
fn tune_ends_a_program_when_the_terminal_of_its_session_hangs_up() {
    library();
    let directory = tempfile::tempdir().expect("directory");
    // SAFETY: all calls get valid data.
    let terminal = unsafe {
        let terminal = OwnedFd::from_raw_fd(libc::posix_openpt(libc::O_RDWR | libc::O_CLOEXEC));
        assert_eq!(libc::grantpt(terminal.as_raw_fd()), 0);
        assert_eq!(libc::unlockpt(terminal.as_raw_fd()), 0);
        terminal
    };
    let mut name = [0; 64];
    // SAFETY: a descriptor, and a place of that length.
    let named = unsafe { libc::ptsname_r(terminal.as_raw_fd(), name.as_mut_ptr(), name.len()) };
    assert_eq!(named, 0);
    // SAFETY: written by `ptsname_r`, with its end.
    let name = unsafe { CStr::from_ptr(name.as_ptr()) };
    let open = |write: bool| {
        let mut options = fs::File::options();
        options
            .read(!write)
            .write(write)
            .custom_flags(libc::O_NOCTTY);
        options
            .open(name.to_str().expect("name"))
            .expect("terminal")
    };
    let mut tune = Command::new("setsid")
        .args(["--ctty", "env", "--default-signal=HUP"])
        .arg(env!("CARGO_BIN_EXE_brug"))
        .args(["tune", "--profile"])
        .arg(directory.path().join("profile"))
        .args(["--", "bash", "-c", "echo begun; exec sleep 20"])
        .env_remove("BRUG_LIBRARY")
        .stdin(open(false))
        .stdout(open(true))
        .stderr(open(true))
        .spawn()
        .expect("starts");
    let mut terminal = fs::File::from(terminal);
    let mut said = [0; 5];
    terminal.read_exact(&mut said).expect("read");
    assert_eq!(&said, b"begun");
    drop(terminal);
    assert_eq!(tune.wait().expect("ends").code(), Some(129));
}

/// So a server is tuned that is ended by Ctrl-C.
#[test]
fn tune_reports_on_a_program_that_ends_by_itself_when_it_is_asked_to() {
    let script = "trap 'exit 0' INT; kill -INT $PPID; for i in {1..100}; do sleep 0.1; done";
    let (output, left) = mortal_tune_of(script);
    assert!(output.status.success(), "{output:?}");
    assert!(out(&output).contains("verdict: "), "{output:?}");
    assert_eq!(left, 0);
}

/// As `compare` does: what was measured is there.
#[test]
fn tune_reports_on_a_program_that_fails() {
    let (output, _) = tune_of("exit 3");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(out(&output).contains("verdict: "), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(said, "brug: the program ended with exit status: 3\n");
}

#[test]
fn the_program_that_is_tuned_has_the_signals_of_the_command() {
    // What is blocked and ignored, without SIGPIPE, which the runtime sets, and real-time ones.
    let script = "grep -E 'Sig(Blk|Ign)' /proc/self/status";
    let plain = Command::new("sh").args(["-c", script]).output();
    let (output, _) = tune_of(script);
    for line in out(&plain.expect("starts")).lines() {
        assert!(out(&output).contains(line), "{line}: {output:?}");
    }
}
