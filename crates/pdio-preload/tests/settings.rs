// SPDX-License-Identifier: MIT OR Apache-2.0
//! Variables, good and bad; which files are taken; programs with rights of their own.

mod common;

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{chown, OpenOptionsExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;

use tempfile::TempDir;

use common::{bare, compiled, copy_program, library, preloaded, scratch, stderr, stdout, SHORT};

const DD: &str = "/bin/dd";

/// dd of 6 MiB into `file` with these variables; what it said.
fn dd(file: &Path, variables: &[(&str, &str)]) -> Output {
    let output = preloaded(Path::new(DD), variables)
        .args(["if=/dev/zero", "bs=4096", "count=1536", "status=none"])
        .arg(format!("of={}", file.display()))
        .output()
        .expect("starts");
    assert!(output.status.success(), "{variables:?}: {output:?}");
    assert!(output.stdout.is_empty(), "{variables:?}: {output:?}");
    assert!(
        fs::read(file).expect("a file") == vec![0; 6 << 20],
        "{variables:?}"
    );
    output
}

fn taken(said: &str) -> bool {
    // Where there was none, nothing is said.
    assert!(!said.contains(" 0 streams taken"), "{said}");
    said.contains(" taken, ")
}

#[test]
fn a_value_that_makes_no_sense_is_named_once_and_harms_nothing() {
    let home = scratch();
    let long = "9".repeat(100_000);
    let wrong = [
        ("PDIO_PATHS", "relative/*"),
        ("PDIO_DENY", "/ok:not ok"),
        ("PDIO_MIN_SIZE", "-1"),
        ("PDIO_MIN_SIZE", "64 potatoes"),
        ("PDIO_SEQUENTIAL", "99999999999999999999999"),
        ("PDIO_SEQUENTIAL", "99999999999G"),
        ("PDIO_SEQUENTIAL", &long),
        ("PDIO_MEMORY", "lots"),
        ("PDIO_MEMORY", "M"),
        ("PDIO_LINGER", "50"),
        ("PDIO_LINGER", "61s"),
        ("PDIO_PROMPT", "soon"),
        ("PDIO_STRATEGY", "fastest"),
        ("PDIO_STRICT", "perhaps"),
        ("PDIO_REPAIR", "2"),
        ("PDIO_STATS", "yaml"),
        ("PDIO_STATS", "relative/file"),
        ("PDIO_STATS", "/nonexistent/file"),
        ("PDIO_STRATEGY", "\u{fffd}\u{1b}[31m"),
        ("PDIO_SPEED", "1"),
        ("PDIO_", "1"),
    ];
    for (name, value) in wrong {
        let said = stderr(&dd(&home.path().join("file"), &[(name, value)]));
        assert_eq!(said.lines().count(), 1, "{name}={value:.80}: {said}");
        assert!(
            said.starts_with("pdio: ") && said.contains(name),
            "{name}: {said}"
        );
        assert!(said.len() < 600, "{name}: {} bytes", said.len());
    }
}

#[test]
fn good_and_empty_values_are_silent() {
    let said = stderr(&dd(
        &scratch().path().join("file"),
        &[
            ("PDIO_PATHS", "/var/tmp/*:/home/*"),
            ("PDIO_DENY", "*.log:/proc/*"),
            ("PDIO_MIN_SIZE", "1G"),
            ("PDIO_SEQUENTIAL", "0"),
            ("PDIO_MEMORY", "2MiB"),
            ("PDIO_LINGER", "10ms"),
            ("PDIO_PROMPT", "no"),
            ("PDIO_STRATEGY", "Direct"),
            ("PDIO_STRICT", ""),
            ("PDIO_REPAIR", "yes"),
            ("PDIO_STATS", "0"),
            // What `pdio run` was told, and passes on.
            ("PDIO_LIBRARY", "/x/libpdio.so"),
        ],
    ));
    assert_eq!(said, "");
}

#[test]
fn paths_and_thresholds_choose_the_streams() {
    let home = scratch();
    let file = home.path().join("file.data");
    let pattern = format!("{}/*", home.path().display());
    let cases: [(&[(&str, &str)], bool); 12] = [
        (&[], true),
        (&[("PDIO_PATHS", &pattern)], true),
        (&[("PDIO_PATHS", "/nowhere/*:*.data")], true),
        (&[("PDIO_PATHS", "/nowhere/*")], false),
        (&[("PDIO_DENY", "*.data")], false),
        (&[("PDIO_PATHS", &pattern), ("PDIO_DENY", "*/file*")], false),
        (&[("PDIO_SEQUENTIAL", "5M")], true),
        (&[("PDIO_SEQUENTIAL", "7M")], false),
        (&[("PDIO_SEQUENTIAL", "0")], true),
        (&[("PDIO_STRICT", "1")], false),
        (&[("PDIO_MEMORY", "0")], true),
        (&[("PDIO_MEMORY", "15E")], true),
    ];
    for (variables, expected) in cases {
        let all = [variables, &[("PDIO_STATS", "1")]].concat();
        let said = stderr(&dd(&file, &all));
        assert_eq!(taken(&said), expected, "{variables:?}: {said}");
    }
}

/// Files that are a little longer would wait for the disk to save a copy.
#[test]
fn long_writes_are_taken_later() {
    let home = scratch();
    let file = home.path().join("file");
    for (size, count, expected) in [("4K", 1536, true), ("64K", 96, false), ("64K", 320, true)] {
        let output = preloaded(Path::new(DD), &[("PDIO_STATS", "1")])
            .args(["if=/dev/zero", "status=none"])
            .args([format!("bs={size}"), format!("count={count}")])
            .arg(format!("of={}", file.display()))
            .output()
            .expect("starts");
        assert!(output.status.success(), "{output:?}");
        assert_eq!(taken(&stderr(&output)), expected, "{count} of {size}");
    }
}

/// A thread of the library would take a third of it.
#[test]
fn a_limit_of_memory_is_the_programs() {
    let home = scratch();
    let file = home.path().join("file");
    for (limit, expected) in [
        ("", true),
        ("ulimit -v 200000;", false),
        ("ulimit -d 200000;", false),
    ] {
        let script = format!(
            "{limit} exec {DD} if=/dev/zero bs=4096 count=1536 status=none of={}",
            file.display()
        );
        let output = preloaded(Path::new("/bin/sh"), &[("PDIO_STATS", "1")])
            .args(["-c", &script])
            .output()
            .expect("starts");
        assert!(output.status.success(), "{output:?}");
        assert_eq!(taken(&stderr(&output)), expected, "{limit}");
    }
}

/// The kernel ignores what nobody handles there.
#[test]
fn the_first_process_of_a_namespace_is_not_interrupted() {
    let program = compiled("first.c", "first", &[]);
    let home = scratch();
    let script = "exec unshare --pid --fork --mount-proc \"$0\"";
    let run = |command: &mut Command| -> Output {
        let command = command.args(["-c", script]).arg(&program);
        command.current_dir(home.path()).output().expect("starts")
    };
    let expected = run(&mut bare(Path::new("/bin/sh")));
    if !expected.status.success() {
        println!("skipped: no namespace of processes is to be had: {expected:?}");
        return;
    }
    let got = run(&mut preloaded(Path::new("/bin/sh"), &SHORT));
    assert_eq!(expected, got);
    let stats = [SHORT[0], SHORT[1], ("PDIO_STATS", "1")];
    let said = run(&mut preloaded(Path::new("/bin/sh"), &stats));
    assert!(taken(&stderr(&said)), "{said:?}");
}

#[test]
fn streams_in_memory_are_left_alone() {
    let path = Path::new("/dev/shm").join(format!("pdio-test-{}", std::process::id()));
    let said = stderr(&dd(&path, &[("PDIO_STATS", "1")]));
    fs::remove_file(&path).expect("there");
    assert!(!taken(&said), "{said}");
}

#[test]
fn large_files_are_read_by_default_and_smaller_ones_are_not() {
    let home = scratch();
    let file = home.path().join("file");
    for (size, expected) in [(64u64 << 20, true), ((64 << 20) - 1, false)] {
        let data = fs::File::create(&file).expect("a file");
        data.set_len(size).expect("a size");
        let output = preloaded(Path::new(DD), &[("PDIO_STATS", "1")])
            .args(["of=/dev/null", "bs=64K", "status=none"])
            .arg(format!("if={}", file.display()))
            .output()
            .expect("starts");
        assert!(output.status.success());
        assert_eq!(
            taken(&stderr(&output)),
            expected,
            "{size}: {}",
            stderr(&output)
        );
    }
}

#[test]
fn inherited_descriptors_are_left_alone() {
    let home = scratch();
    let file = fs::File::create(home.path().join("file")).expect("a file");
    let output = preloaded(Path::new(DD), &[("PDIO_STATS", "1")])
        .args(["if=/dev/zero", "bs=1M", "count=20", "status=none"])
        .stdout(file)
        .output()
        .expect("starts");
    assert!(!taken(&stderr(&output)), "{output:?}");
}

/// To look at them all would hold a call up.
#[test]
fn nothing_is_taken_beside_very_many_descriptors() {
    let home = scratch();
    let file = home.path().join("file");
    for (many, expected) in [(900, true), (1100, false)] {
        let mut command = preloaded(Path::new(DD), &[("PDIO_STATS", "1")]);
        command
            .args(["if=/dev/zero", "bs=4096", "count=1536", "status=none"])
            .arg(format!("of={}", file.display()));
        let open = move || {
            let limit = libc::rlimit {
                rlim_cur: 4096,
                rlim_max: 4096,
            };
            // SAFETY: system calls alone; the limit is ours.
            unsafe {
                libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
                match (0..many).all(|_| libc::dup(libc::STDIN_FILENO) >= 0) {
                    true => Ok(()),
                    false => Err(std::io::Error::last_os_error()),
                }
            }
        };
        // SAFETY: the child only makes system calls.
        let output = unsafe { command.pre_exec(open) }.output().expect("starts");
        assert!(output.status.success(), "{output:?}");
        assert_eq!(taken(&stderr(&output)), expected, "{many}");
    }
}

#[test]
fn statistics_append_to_a_file() {
    let home = scratch();
    let statistics = home.path().join("statistics");
    let setting = statistics.to_str().expect("a path");
    for _ in 0..2 {
        let output = dd(&home.path().join("file"), &[("PDIO_STATS", setting)]);
        assert_eq!(stderr(&output), "");
    }
    let said = fs::read_to_string(statistics).expect("statistics");
    assert_eq!(said.matches("dd [").count(), 2, "{said}");
    assert_eq!(said.matches("/file: ").count(), 2, "{said}");
}

fn fifo(home: &TempDir) -> PathBuf {
    let fifo = home.path().join("fifo");
    let made = Command::new("mkfifo").arg(&fifo).status().expect("starts");
    assert!(made.success());
    fifo
}

/// Where there is no room yet they wait, and to have had no reader at the start is nothing to tell.
#[test]
fn statistics_are_whole_where_the_reader_of_a_fifo_comes_late() {
    let home = scratch();
    let fifo = fifo(&home);
    let setting = format!("json:{}", fifo.display());
    let mut child = preloaded(Path::new("/bin/sh"), &[("PDIO_STATS", &setting)])
        .args(["-c", "echo begun; read line; exit 0"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut begun = [0; 6];
    let printed = child.stdout.as_mut().expect("a pipe");
    printed.read_exact(&mut begun).expect("a line");
    let mut reader = fs::OpenOptions::new();
    reader.read(true).write(true);
    let mut reader = reader
        .custom_flags(libc::O_NONBLOCK)
        .open(&fifo)
        .expect("a FIFO");
    while reader.write(b"\n").is_ok() {}
    drop(child.stdin.take());
    for _ in 0..50 {
        // What does not wait has ended by now.
        if child.try_wait().expect("a child").is_some() {
            break;
        }
        sleep(Duration::from_millis(10));
    }
    let mut said = Vec::new();
    loop {
        let ended = child.try_wait().expect("a child").is_some();
        // It ends with an error: there is no more yet.
        let _ = reader.read_to_end(&mut said);
        if ended {
            break;
        }
        sleep(Duration::from_millis(10));
    }
    let output = child.wait_with_output().expect("an end");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(stderr(&output), "");
    let object: serde_json::Value = serde_json::from_slice(&said).expect("a line of JSON");
    assert_eq!(object["part"], "pdio");
}

/// Once, though they are opened at the start and at the end. A program does not wait for who reads them.
#[test]
fn statistics_that_cannot_be_written_are_told_with_the_reason() {
    let home = scratch();
    let fifo = fifo(&home);
    for (file, reason) in [
        ("/dev/full", "No space left on device"),
        ("/no/such", "No such file or directory"),
        (fifo.to_str().expect("a path"), "No such device or address"),
    ] {
        let setting = format!("json:{file}");
        // Unlike true(1), which closes it, this has its standard error until the end.
        let output = preloaded(Path::new("/bin/sh"), &[("PDIO_STATS", &setting)])
            .args(["-c", "exit 0"])
            .output()
            .expect("starts");
        assert!(output.status.success(), "{output:?}");
        assert_eq!(
            stderr(&output),
            format!("pdio: PDIO_STATS: cannot write {file}: {reason}\n")
        );
    }
}

#[test]
fn names_do_nothing_to_a_terminal() {
    let home = scratch();
    let said = stderr(&dd(
        &home.path().join("a\n\x1b[31m\u{9b}b"),
        &[("PDIO_STATS", "1")],
    ));
    assert!(said.contains("/a??[31m?b: ") && taken(&said), "{said}");
}

/// The parent's thread holds what it is about to print for as long as nobody reads.
#[test]
fn a_child_ends_while_statistics_of_its_parent_wait_for_a_reader() {
    let program = compiled("unread.c", "unread", &[]);
    let home = scratch();
    let (unread, pipe) = std::io::pipe().expect("a pipe");
    let status = preloaded(&program, &SHORT)
        .env("PDIO_STATS", "1")
        .current_dir(home.path())
        .stderr(pipe)
        .status()
        .expect("starts");
    assert!(status.success(), "{status:?}");
    drop(unread);
}

/// A message to a pipe that nobody reads, or statistics beyond the limit on a file's size, would end the program by a
/// signal that it has not asked for.
#[test]
fn what_cannot_be_written_does_not_end_the_program() {
    let home = scratch();
    let statistics = home.path().join("statistics");
    fs::write(&statistics, vec![b'\n'; 6 << 20]).expect("a file");
    let json = format!("json:{}", statistics.display());
    for (name, value) in [
        ("PDIO_STATS", json.as_str()),
        ("PDIO_STATS", "1"),
        ("PDIO_LINGER", "potatoes"),
    ] {
        let (unread, pipe) = std::io::pipe().expect("a pipe");
        drop(unread);
        let mut command = preloaded(Path::new(DD), &SHORT);
        command
            .args(["if=/dev/zero", "bs=4096", "count=1024", "status=none"])
            .arg(format!("of={}", home.path().join("file").display()))
            .env(name, value)
            .stderr(pipe);
        if value == json {
            let limit = libc::rlimit {
                rlim_cur: 6 << 20,
                rlim_max: 6 << 20,
            };
            // SAFETY: one system call.
            unsafe {
                command.pre_exec(move || match libc::setrlimit(libc::RLIMIT_FSIZE, &limit) {
                    0 => Ok(()),
                    _ => Err(std::io::Error::last_os_error()),
                })
            };
        }
        let status = command.status().expect("starts");
        assert!(status.success(), "{name}={value}: {status:?}");
    }
}

#[test]
fn a_program_of_which_nothing_was_taken_adds_no_line_to_a_file() {
    let home = scratch();
    let statistics = home.path().join("statistics");
    for (form, lines) in [("", 0), ("json:", 1)] {
        let setting = format!("{form}{}", statistics.display());
        let output = preloaded(Path::new("/bin/true"), &[("PDIO_STATS", &setting)])
            .output()
            .expect("starts");
        assert!(output.status.success(), "{output:?}");
        let said = fs::read_to_string(&statistics).expect("statistics");
        assert_eq!(said.lines().count(), lines, "{setting}: {said}");
    }
}

/// Before a program is executed everything is said, and after a failure only what came since.
#[test]
fn statistics_say_nothing_twice() {
    let program = compiled("semantics.c", "semantics", &[]);
    let home = scratch();
    let statistics = home.path().join("statistics");
    let setting = format!("json:{}", statistics.display());
    let output = preloaded(&program, &SHORT)
        .arg("executes_nothing")
        .env("PDIO_STATS", &setting)
        .current_dir(home.path())
        .output()
        .expect("starts");
    assert!(output.status.success(), "{output:?}");
    let said = fs::read_to_string(statistics).expect("statistics");
    let counts: Vec<_> = said
        .lines()
        .map(|line| {
            let object: serde_json::Value = serde_json::from_str(line).expect("JSON");
            let streams = object["streams"].as_array().map(Vec::len);
            (object["streams_taken"].as_u64(), streams)
        })
        .collect();
    assert_eq!(counts, [(Some(1), Some(1)); 2], "{said}");
}

#[test]
fn statistics_append_one_line_of_json_for_each_process() {
    let home = scratch();
    let statistics = home.path().join("statistics");
    let setting = format!("json:{}", statistics.display());
    let file = home.path().join("a \"file\"");
    for _ in 0..2 {
        assert_eq!(stderr(&dd(&file, &[("PDIO_STATS", &setting)])), "");
    }
    let said = fs::read_to_string(statistics).expect("statistics");
    assert_eq!(said.lines().count(), 2, "{said}");
    for line in said.lines() {
        let object: serde_json::Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(object["schema"], 1, "{line}");
        assert_eq!(object["part"], "pdio", "{line}");
        assert!(object["pid"].as_u64() > Some(0), "{line}");
        let program = object["program"].as_str().expect("a program");
        assert!(program.ends_with("/dd"), "{line}");
        assert_eq!(object["streams_taken"], 1, "{line}");
        let stream = &object["streams"][0];
        assert_eq!(
            stream["path"].as_str().map(Path::new),
            Some(&*file),
            "{line}"
        );
        assert_eq!(stream["bytes"], object["bytes"], "{line}");
        assert_eq!(stream["what"], "written", "{line}");
    }
}

#[test]
fn direct_io_is_repaired_unless_told_not_to() {
    let program = compiled("semantics.c", "settings", &[]);
    for (value, repaired) in [("1", true), ("0", false)] {
        let home = scratch();
        let output = preloaded(&program, &[("PDIO_REPAIR", value), ("PDIO_STATS", "1")])
            .arg("direct")
            .current_dir(home.path())
            .output()
            .expect("starts");
        let refused = stdout(&output).contains("write(fd, pool + 1, 70001) = -1");
        assert_ne!(refused, repaired, "{}", stdout(&output));
        let said = stderr(&output);
        assert!(!said.contains(" 0 misaligned"), "{said}");
        assert_eq!(
            said.contains(" misaligned calls repaired"),
            repaired,
            "{said}"
        );
    }
}

/// In a program with another user's rights, nothing of the caller's environment may count: neither
/// through the loader nor when the program is linked with the library.
#[test]
fn the_library_does_nothing_in_a_set_user_id_program() {
    // SAFETY: no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("skipped: only root can make a program of another user's");
        return;
    }
    let home = scratch();
    let mode = fs::Permissions::from_mode;
    fs::set_permissions(home.path(), mode(0o777)).expect("permissions");
    fs::copy(library(), home.path().join("libpdio.so")).expect("copy");
    let path = home.path().to_str().expect("path");
    let rpath = format!("-Wl,-rpath,{path}");
    let flags = ["-Wl,--no-as-needed", "-L", path, &rpath, "-lpdio"];
    let program = home.path().join("program");
    copy_program(compiled("semantics.c", "setuid", &flags), &program);
    chown(&program, Some(65534), None).expect("chown");
    let work = home.path().join("work");
    fs::create_dir(&work).expect("a directory");
    fs::set_permissions(&work, mode(0o777)).expect("permissions");
    let run = || -> Output {
        let mut command: Command = bare(&program);
        command
            .arg("writes")
            .env("PDIO_STATS", "1")
            .env("PDIO_SEQUENTIAL", "rubbish")
            .current_dir(&work);
        command.output().expect("starts")
    };
    fs::set_permissions(&program, mode(0o4755)).expect("permissions");
    let output = run();
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{output:?}"
    );
    for entry in fs::read_dir(&work).expect("a directory") {
        fs::remove_file(entry.expect("an entry").path()).expect("there");
    }
    // The same file without the bit does listen, or the test proves nothing.
    fs::set_permissions(&program, mode(0o755)).expect("permissions");
    let said = stderr(&run());
    assert!(said.contains("PDIO_SEQUENTIAL"), "{said}");
}

/// Measures a directory, and returns what to write in its costs for the page cache to be best.
fn learned_for_the_page_cache(directory: &Path, costs: &Path) -> Option<String> {
    pdio::learn(directory, costs, 1 << 20, |_, _| {}).expect("measured");
    let measured = fs::read_to_string(costs).expect("costs");
    let direct = measured
        .lines()
        .find(|line| line.contains(" for write sequential direct "));
    if direct.is_none() {
        eprintln!(
            "skipped: no direct I/O in /var/tmp, or no two samples of it alike on a busy machine"
        );
    }
    direct.map(page_cache_is_best)
}

/// A process begins with what was measured, and one that is told nothing or damaged things does not.
#[test]
fn a_stream_begins_with_what_was_measured() {
    let home = scratch();
    let costs = home.path().join("costs");
    let Some(told) = learned_for_the_page_cache(home.path(), &costs) else {
        return;
    };
    let out = format!("of={}", home.path().join("file").display());
    // Calls that are not aligned to anything.
    let goes_direct = |variables: &[(&str, &str)]| {
        let output = preloaded(
            Path::new(DD),
            &[&SHORT[..], &[("PDIO_STATS", "1")]].concat(),
        )
        .args(["if=/dev/zero", &out, "bs=3000", "count=4000", "status=none"])
        .envs(variables.iter().copied())
        .output()
        .expect("starts");
        assert!(output.status.success(), "{output:?}");
        let said = stderr(&output);
        assert!(taken(&said), "{said}");
        !said.contains("(0 direct")
    };
    let path = costs.to_str().expect("a path");
    let home_path = home.path().to_str().expect("a path");
    for (text, used) in [
        (told.as_str(), true),
        (&told.replace("pdio costs 1", "pdio costs 2"), false),
        (&told[..told.len() / 2], false),
        (&told.replace(" 1 for", " 9 for"), false),
        ("", false),
    ] {
        std::fs::write(&costs, text).expect("written");
        fs::set_permissions(&costs, fs::Permissions::from_mode(0o644)).expect("permissions");
        assert_eq!(goes_direct(&[("PDIO_COSTS", path)]), !used, "{text}");
    }
    std::fs::write(&costs, &told).expect("written");
    assert!(goes_direct(&[("PDIO_COSTS", "0")]));
    assert!(goes_direct(&[
        ("PDIO_COSTS", "/nowhere/costs"),
        ("HOME", home_path)
    ]));
    let wrong = preloaded(Path::new(DD), &[("PDIO_COSTS", "costs")])
        .arg("--version")
        .output();
    assert!(
        stderr(&wrong.expect("starts")).contains("PDIO_COSTS=costs is not 0 or an absolute path")
    );
    // Reading leaves the place as it is.
    let names: Vec<_> = fs::read_dir(home.path())
        .expect("listed")
        .flatten()
        .map(|e| e.file_name())
        .collect();
    assert_eq!(names.len(), 2, "{names:?}");
}

/// The line about such a value says that the default is used.
#[test]
fn with_a_nonsensical_place_of_costs_the_usual_one_counts() {
    let home = scratch();
    let costs = home.path().join("pdio/costs");
    let Some(told) = learned_for_the_page_cache(home.path(), &costs) else {
        return;
    };
    std::fs::write(&costs, told).expect("written");
    // Root's usual place is the machine's, so another user has to do.
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o777)).expect("permissions");
    let copy = home.path().join("libpdio.so");
    fs::copy(library(), &copy).expect("copy");
    let variables = [
        &SHORT[..],
        &[("PDIO_STATS", "1"), ("PDIO_COSTS", "relative/costs")],
    ];
    let mut command = preloaded(Path::new(DD), &variables.concat());
    command
        .env("LD_PRELOAD", copy)
        .env("XDG_CACHE_HOME", home.path())
        .args(["if=/dev/zero", "bs=3000", "count=4000", "status=none"])
        .arg(format!("of={}", home.path().join("file").display()));
    // SAFETY: no preconditions.
    if unsafe { libc::geteuid() } == 0 {
        command.uid(65534);
    }
    let output = command.output().expect("starts");
    assert!(output.status.success(), "{output:?}");
    let said = stderr(&output);
    assert!(
        said.contains("PDIO_COSTS=relative/costs is not 0 or an absolute path; using the default"),
        "{said}"
    );
    assert!(taken(&said) && said.contains("(0 direct"), "{said}");
}

/// Costs by which the page cache is ten times as fast as direct I/O, for the filesystem of a line.
fn page_cache_is_best(direct: &str) -> String {
    let (when_cost, of) = direct.split_once(" for ").expect("a line");
    let (when, _) = when_cost.split_once(' ').expect("a line");
    let buffered = of.replace("direct", "buffered");
    format!("pdio costs 1\n{when} 10 for {of}\n{when} 1 for {buffered}\n")
}

/// Paths lead elsewhere in another root directory, and another user's costs are another user's.
#[test]
fn costs_are_not_read_with_another_root_or_user() {
    let home = scratch();
    // SAFETY: no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("skipped: needs root");
        return;
    }
    let costs = home.path().join("costs");
    let Some(told) = learned_for_the_page_cache(home.path(), &costs) else {
        return;
    };
    std::fs::write(&costs, told).expect("written");
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o777)).expect("permissions");
    let program = compiled("rights.c", "rights", &[]);
    for (change, read) in [
        ("none", true),
        ("chroot", false),
        ("bare chroot", false),
        ("setuid", false),
    ] {
        let path = costs.to_str().expect("a path");
        let variables = [&SHORT[..], &[("PDIO_STATS", "1"), ("PDIO_COSTS", path)]].concat();
        let output = preloaded(&program, &variables)
            .args([home.path().join("file").as_os_str(), change.as_ref()])
            .output()
            .expect("starts");
        assert!(output.status.success(), "{output:?}");
        let said = stderr(&output);
        assert!(taken(&said), "{change}: {said}");
        assert_eq!(said.contains("(0 direct"), read, "{change}: {said}");
    }
}
