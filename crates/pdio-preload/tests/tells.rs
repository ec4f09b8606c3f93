// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who is told by a program, or waited for, sees everything that the program has written; and the
//! files' times have the order of the calls.

mod common;
#[path = "../../pdio/tests/common/mod.rs"]
mod filesystems;

use std::ffi::OsStr;
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};

use common::{bare, compiled, library, preloaded, scratch, seen, stdout};

/// Streams from the second write on; and nothing reaches the kernel by itself in time, so what is
/// there was handed over.
const HELD: [(&str, &str); 2] = [("PDIO_SEQUENTIAL", "0"), ("PDIO_LINGER", "60s")];

/// What `tells.c` prints for a scenario, and how many streams were taken.
fn run(words: &[&str], variables: &[(&str, &str)]) -> (String, u64) {
    let (printed, said) = run_and_say(words, variables);
    let taken = said
        .lines()
        .filter_map(|line| line.split_once("]: ")?.1.split_once(" stream"))
        .map(|(count, _)| count.parse::<u64>().expect("a count"))
        .sum();
    (printed, taken)
}

/// What `tells.c` prints for a scenario, and the statistics.
fn run_and_say(words: &[&str], variables: &[(&str, &str)]) -> (String, String) {
    let program = compiled("tells.c", "tells", &[]);
    let home = scratch();
    let statistics = home.path().join("statistics");
    let directory = home.path().join("work");
    std::fs::create_dir(&directory).expect("a directory");
    let output = preloaded(&program, variables)
        .args(words)
        .env("PDIO_STATS", &statistics)
        .current_dir(&directory)
        .output()
        .expect("starts");
    assert!(output.status.success(), "{words:?}: {output:?}");
    let said = std::fs::read_to_string(&statistics).expect("statistics");
    (stdout(&output), said)
}

/// As [`run`], and the same as without the library.
fn same(words: &[&str], least: u64) {
    let program = compiled("tells.c", "tells", &[]);
    let home = scratch();
    let expected = bare(&program)
        .args(words)
        .current_dir(home.path())
        .output()
        .expect("starts");
    assert!(expected.status.success(), "{words:?}: {expected:?}");
    let (printed, taken) = run(words, &HELD);
    assert_eq!(printed, stdout(&expected), "{words:?}");
    assert!(taken >= least, "{words:?}: {taken} streams taken");
}

#[test]
fn a_process_that_is_told_sees_every_byte() {
    let (printed, taken) = run(&["tells", "10000", "3000"], &HELD);
    assert_eq!(printed, "0 short of 10000\n");
    assert!(taken >= 10_000 / 7, "{taken} streams taken");
}

#[test]
fn a_process_that_is_told_sees_every_byte_by_default() {
    let (printed, taken) = run(&["tells", "84", "5000000"], &[]);
    assert_eq!(printed, "0 short of 84\n");
    assert!(taken >= 84 / 7, "{taken} streams taken");
}

/// With the fast setting it does not: so the tests above can fail.
#[test]
fn without_promptness_others_see_it_later() {
    let variables = [HELD[0], HELD[1], ("PDIO_PROMPT", "0")];
    let (printed, taken) = run(&["tells", "84", "3000"], &variables);
    assert_eq!(printed, "84 short of 84\n");
    assert!(taken >= 84 / 7, "{taken} streams taken");
}

#[test]
fn who_is_waited_for_sees_every_byte() {
    same(&["waits"], 16);
}

/// After each call by which a process can hear of a change, it reads what is there now; and where it calls
/// nothing, what was there before, or this proves nothing.
#[test]
fn who_was_told_reads_what_is_there() {
    let ahead = [HELD[0], HELD[1], ("PDIO_MIN_SIZE", "1M")];
    let (printed, taken) = run(&["hears"], &ahead);
    let (late, good): (Vec<&str>, Vec<&str>) = printed
        .lines()
        .partition(|line| line.starts_with("nothing"));
    assert_eq!(late, ["nothing: old"; 2], "{printed}");
    assert!(good.iter().all(|line| line.ends_with(": new")), "{printed}");
    assert_eq!(good.len(), 2 * 74, "{printed}");
    assert!(taken >= 2 * 75, "{taken} streams taken");
}

/// Each call comes after what was written; where there is none, what was written waits, or this
/// proves nothing.
#[test]
fn calls_that_others_can_see_come_after_what_was_written() {
    let (printed, taken) = run(&["seen_calls"], &HELD);
    let mut lines = printed.lines();
    assert_eq!(lines.next(), Some("nothing: late"), "{printed}");
    assert!(lines.all(|line| line.ends_with(": good")), "{printed}");
    assert!(taken >= 18, "{taken} streams taken");
}

/// What was written waits until a call can show it, or tell of it.
#[test]
fn calls_on_files_that_are_read_leave_what_was_written() {
    let ahead = [HELD[0], HELD[1], ("PDIO_MIN_SIZE", "1M")];
    let (printed, taken) = run(&["leaves"], &ahead);
    let wrong = |line: &&str| match line.starts_with("written") {
        true => !line.ends_with(": is there"),
        false => !line.ends_with(": waits"),
    };
    let wrong: Vec<_> = printed.lines().filter(wrong).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    assert_eq!(printed.lines().count(), 29, "{printed}");
    assert!(taken > 30, "{taken} streams taken");
}

#[test]
fn an_archive_of_small_files_is_written_together() {
    let (printed, said) = run_and_say(&["archives", "200"], &HELD);
    assert_eq!(printed, "2048000 bytes, together\n", "{said}");
    assert!(!said.contains("told too often"), "{said}");
}

/// Who may be told something after each small read is not asked about for long.
#[test]
fn a_stream_that_has_to_ask_too_often_goes_back() {
    for (piece, how, often) in [
        ("4096", "access", true),
        ("4096", "shared futex", true),
        ("65536", "access", false),
        ("4096", "seldom", false),
        ("4096", "nothing", false),
    ] {
        asks(piece, how, often);
    }
}

/// By these calls nobody is told anything.
#[test]
fn calls_that_concern_nobody_else_leave_a_stream_alone() {
    for how in
        "futex gettid getgid clock_gettime clock_getres sched_yield sched_getaffinity getrandom \
                getrlimit rt_sigprocmask madvise lseek pwritev FIOCLEX TIOCGWINSZ eventfd pipe"
            .split_whitespace()
    {
        asks("4096", how, false);
    }
}

/// Reads pieces of a stream and makes a call after each: whether that is given up for it.
fn asks(piece: &str, how: &str, often: bool) {
    let variables = [HELD[0], HELD[1], ("PDIO_MIN_SIZE", "1M")];
    let (_, said) = run_and_say(&["asks", piece, how], &variables);
    let found = said.contains("others told too often");
    assert_eq!(found, often, "{piece}, {how}: {said}");
    assert!(said.contains(" 2 streams taken"), "{how}: {said}");
}

/// Threads that the C library starts count: beside them no stream has several descriptors.
#[test]
fn threads_of_the_c_library_count() {
    for (how, beside) in [
        ("none", false),
        ("timer", true),
        ("queue", true),
        ("list", true),
    ] {
        let (_, said) = run_and_say(&["notifies", how], &HELD);
        let found = said.contains("duplicated beside other threads");
        assert_eq!(found, beside, "{how}: {said}");
    }
}

/// The functions that `told!` and `hears!` list in `src/tell.rs`, each with what runs before it.
fn listed() -> Vec<(String, String)> {
    let source = include_str!("../src/tell.rs");
    let mut all = Vec::new();
    for list in ["\ntold! {\n", "\nhears! {\n"] {
        let (_, rest) = source.split_once(list).expect(list);
        let (inside, _) = rest.split_once("\n}\n").expect(list);
        let lines = inside.lines().filter(|line| !line.trim().starts_with("//"));
        let text: String = lines.flat_map(|line| [line, "\n"]).collect();
        for group in text.split(';').filter(|group| !group.trim().is_empty()) {
            let (before, names) = group.split_once(':').expect(group);
            let before = before.rsplit(',').next().expect(group).trim();
            let names = names.split_whitespace();
            all.extend(names.map(|name| (name.to_owned(), before.to_owned())));
        }
    }
    all
}

/// Functions that hand nothing over: others cannot see them.
const UNSEEN: &str = "nothing_seen";

/// Every function of these lists hands over before the C library's is entered. A library behind
/// stands for that, and looks.
#[test]
fn every_listed_call_comes_after_what_was_written() {
    let mut list = listed();
    assert!(list.len() > 300, "{list:?}");
    // Beside the lists.
    list.push(("__recvfrom_chk".into(), "receiving".into()));
    list.push(("closedir".into(), "closing_directory".into()));
    // After this one no more writing streams are taken.
    list.push(("sem_open".into(), "always".into()));
    let home = scratch();
    let (source, shim) = (home.path().join("shim.c"), home.path().join("shim.so"));
    let programs = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    let mut text = String::from("#include \"shim.h\"\n");
    for (name, _) in &list {
        text += &format!("SHIM({name})\n");
    }
    std::fs::write(&source, text).expect("a file");
    let built = std::process::Command::new("gcc")
        .args(["-O2", "-w", "-fno-builtin", "-shared", "-fPIC", "-o"])
        .arg(&shim)
        .arg("-I")
        .arg(&programs)
        .arg(&source)
        .status();
    assert!(built.is_ok_and(|status| status.success()), "gcc");
    let link = format!("-Wl,--no-as-needed,{}", shim.display());
    let program = compiled("listed.c", "listed", &[&link]);
    let work = home.path().join("work");
    std::fs::create_dir(&work).expect("a directory");
    let lines: String = list
        .iter()
        .map(|(n, before)| format!("{n} {before}\n"))
        .collect();
    let input = home.path().join("list");
    std::fs::write(&input, lines).expect("a file");
    let libraries = format!("{} {}", library().display(), shim.display());
    let output = preloaded(&program, &HELD)
        .env("LD_PRELOAD", libraries)
        .stdin(std::fs::File::open(&input).expect("a file"))
        .current_dir(&work)
        .output()
        .expect("starts");
    assert!(output.status.success(), "{output:?}");
    let printed = stdout(&output);
    let wrong: Vec<_> = list
        .iter()
        .filter(|(name, before)| {
            let met = match before == UNSEEN {
                true => "late",
                false => "good",
            };
            // Shown under the name of the shim itself, so there are no absent ones.
            !printed.lines().any(|line| line == format!("{name}: {met}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{wrong:?}\n{printed}");
}

/// Two directories of which the second shows the files of the first, as FUSE does; nothing where that cannot be.
struct Shown {
    home: tempfile::TempDir,
}

impl Shown {
    fn new() -> Option<Shown> {
        let shown = Shown { home: scratch() };
        for part in [shown.source(), shown.elsewhere()] {
            std::fs::create_dir(&part).expect("a directory");
        }
        let mounted = std::process::Command::new("bindfs")
            .args(["-o", "attr_timeout=0"])
            .args([shown.source(), shown.elsewhere()])
            .output();
        if !mounted.as_ref().is_ok_and(|output| output.status.success()) {
            eprintln!("skipped: {mounted:?} (needs bindfs, and the right to mount)");
            return None;
        }
        Some(shown)
    }

    fn source(&self) -> PathBuf {
        self.home.path().join("source")
    }

    fn elsewhere(&self) -> PathBuf {
        self.home.path().join("shown")
    }

    fn unmount(self) {
        let shown = self.elsewhere();
        let unmounted = std::process::Command::new("umount").arg(shown).status();
        assert!(unmounted.is_ok_and(|status| status.success()));
    }
}

/// What a program has written is in what another one makes of it.
#[test]
fn a_file_that_is_shown_elsewhere_is_whole_there() {
    let Some(shown) = Shown::new() else { return };
    let program = compiled("tells.c", "tells", &[]);
    let output = preloaded(&program, &HELD)
        .arg("mirror")
        .arg(shown.elsewhere())
        .current_dir(shown.source())
        .output();
    shown.unmount();
    let calls = [
        "open", "fopen", "read", "pread", "fstat", "fstatat", "statx", "lseek", "mmap",
    ];
    let expected: String = calls.map(|call| format!("{call}: 6000\n")).concat();
    assert_eq!(stdout(&output.expect("starts")), expected);
}

/// What a program reads of a file after it has changed it by another name, through a call of each kind. Without any call
/// it is what was read ahead, or this proves nothing.
/// The `exceptions` are not: there it is as without the library.
fn read_back(directory: &Path, name: &Path, exceptions: &[&str]) {
    let program = compiled("tells.c", "tells", &[]);
    let ahead = [HELD[0], HELD[1], ("PDIO_MIN_SIZE", "1M")];
    let output = preloaded(&program, &ahead)
        .arg("backs")
        .arg(name)
        .current_dir(directory)
        .output()
        .expect("starts");
    let printed = stdout(&output);
    let right = |line: &&str| match exceptions.contains(line) || *line == "nothing: old" {
        true => true,
        false => line.ends_with(": new"),
    };
    let wrong: Vec<_> = printed.lines().filter(|line| !right(line)).collect();
    assert!(wrong.is_empty(), "{wrong:?}\n{output:?}");
    assert_eq!(printed.lines().count(), 16, "{output:?}");
    assert_eq!(printed.lines().next(), Some("nothing: old"));
}

#[test]
fn what_is_changed_elsewhere_is_read() {
    let Some(shown) = Shown::new() else { return };
    let name = shown.elsewhere().join("file");
    let run = || read_back(&shown.source(), &name, &["fallocate: refused"]);
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
    shown.unmount();
    if let Err(panic) = result {
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn what_is_changed_through_a_device_is_read() {
    let home = scratch();
    let file = home.path().join("file");
    std::fs::write(&file, vec![b'o'; 2 << 20]).expect("a file");
    let losetup = |words: &[&OsStr]| {
        let output = std::process::Command::new("losetup").args(words).output();
        let made = output.as_ref().is_ok_and(|output| output.status.success());
        made.then(|| stdout(output.as_ref().expect("as above")).trim().to_owned())
            .ok_or(output)
    };
    let device = match losetup(&["-f".as_ref(), "--show".as_ref(), file.as_os_str()]) {
        Ok(device) => device,
        Err(why) => {
            eprintln!("skipped: {why:?} (needs losetup, and the right to have a loop device)");
            return;
        }
    };
    let run = || {
        read_back(
            home.path(),
            Path::new(&device),
            &["ftruncate: refused", "syncfs: old"],
        )
    };
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
    assert!(losetup(&["-d".as_ref(), device.as_ref()]).is_ok());
    if let Err(panic) = result {
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn what_a_number_was_before_does_not_matter() {
    same(&["reused"], 3);
}

#[test]
fn modification_times_have_the_order_of_the_calls() {
    same(&["times"], 12);
}

#[test]
fn a_thread_can_be_cancelled_where_it_waits() {
    same(&["cancels"], 4);
}

/// As that of a lock, which every descriptor of the program's may have once it has locked a file.
#[test]
fn the_end_of_a_lease_tells() {
    same(&["leases"], 1);
}

/// Memory that is shared needs no call to tell.
#[test]
fn no_writing_stream_is_taken_beside_shared_memory() {
    same(&["shares"], 1);
    same(&["posts"], 0);
    same(&["shares_zero"], 0);
}

/// A call with more arguments than registers, before there is a stream and beside one.
#[test]
fn a_call_of_seven_words_has_them_all() {
    same(&["receives"], 1);
}

/// Signals whose default action ends a process; those that are only raised here, not faulted.
const DEADLY: [i32; 24] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGABRT,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGUSR1,
    libc::SIGSEGV,
    libc::SIGUSR2,
    libc::SIGPIPE,
    libc::SIGALRM,
    libc::SIGTERM,
    libc::SIGSTKFLT,
    libc::SIGXCPU,
    libc::SIGXFSZ,
    libc::SIGVTALRM,
    libc::SIGPROF,
    libc::SIGIO,
    libc::SIGPWR,
    libc::SIGSYS,
    34,
    64,
];

/// Runs a program that writes and ends by `signal`, both ways; true if both left the same.
fn dies_alike(signal: i32, how: &str) -> bool {
    let program = compiled("tells.c", "tells", &[]);
    let home = scratch();
    let number = signal.to_string();
    let words = ["dies", &number, how];
    let part = |name: &str| {
        let path = home.path().join(name);
        std::fs::create_dir(&path).expect("a directory");
        path
    };
    let expected = seen(bare(&program).args(words), &part("bare"));
    let got = seen(preloaded(&program, &HELD).args(words), &part("preloaded"));
    assert_eq!(
        expected.output.status.signal(),
        Some(signal),
        "{expected:?}",
        expected = expected.output
    );
    assert_eq!(expected.output, got.output, "{signal} {how}");
    expected.files == got.files
}

#[test]
fn a_signal_that_nobody_handles_loses_nothing() {
    for signal in DEADLY {
        assert!(dies_alike(signal, "now"), "{signal}");
    }
}

#[test]
fn a_fault_loses_nothing() {
    for signal in [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL] {
        assert!(dies_alike(signal, "fault"), "{signal}");
    }
}

#[test]
fn a_default_action_that_the_program_sets_again_loses_nothing() {
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGSEGV, libc::SIGUSR1] {
        for how in ["reset", "asked", "set past"] {
            assert!(dies_alike(signal, how), "{signal} {how}");
        }
    }
}

/// Also by a signal that cannot be caught, under any name of the call.
#[test]
fn a_signal_that_the_program_raises_loses_nothing() {
    for signal in [libc::SIGTERM, libc::SIGKILL] {
        assert!(dies_alike(signal, "gsignal"), "{signal}");
    }
}

/// Programs have them for handlers of their own, which may take little.
#[test]
fn a_small_alternate_stack_loses_nothing() {
    for signal in [libc::SIGHUP, libc::SIGTERM, libc::SIGSEGV] {
        for how in ["early stack", "late stack", "syscall's stack"] {
            assert!(dies_alike(signal, how), "{signal}");
        }
    }
}

/// A filter of system calls, from before the program began, allows no signal to a thread.
#[test]
fn a_signal_that_cannot_be_sent_again_ends_the_program() {
    for signal in [libc::SIGTERM, libc::SIGSEGV, libc::SIGUSR1] {
        assert!(dies_alike(signal, "filtered"), "{signal}");
    }
}

/// It is blocked again when that call returns.
#[test]
fn a_signal_that_only_a_call_unblocks_ends_the_program() {
    for signal in [libc::SIGTERM, libc::SIGSEGV, libc::SIGUSR1] {
        assert!(dies_alike(signal, "sigsuspend"), "{signal}");
    }
}

/// So the tests above can fail.
#[test]
fn what_cannot_be_caught_loses_what_was_held() {
    assert!(!dies_alike(libc::SIGKILL, "now"));
}

#[test]
fn what_input_has_the_c_library_print_comes_after_what_was_written() {
    same(&["prompts"], 1);
}

/// What `together.c` prints.
fn together(words: &[&str]) -> String {
    let program = compiled("together.c", "together", &["-ldl"]);
    let behind = ["-DLIBRARY", "-shared", "-fPIC", "-ldl"];
    let behind = compiled("together.c", "together.so", &behind);
    let home = scratch();
    // Through the page cache, where the other thread is on the way.
    let output = preloaded(&program, &HELD)
        .env("PDIO_STRATEGY", "buffered")
        .env(
            "LD_PRELOAD",
            format!("{}:{}", library().display(), behind.display()),
        )
        .args(words)
        .current_dir(home.path())
        .output()
        .expect("starts");
    stdout(&output)
}

/// The second waits until the first one's call has handed over what waits.
#[test]
fn two_threads_may_tell_at_once() {
    assert_eq!(together(&[]), "15000\n");
}

/// It comes while data is handed over, before the call itself.
#[test]
fn a_signal_that_is_waited_for_is_not_missed() {
    assert_eq!(together(&["pauses"]), "15000\n");
}

/// Two threads write and note what `write` returned for, where the library does not see it; the
/// signal comes at any time, to any of them.
#[test]
fn a_signal_from_elsewhere_loses_nothing() {
    let program = compiled("tells.c", "tells", &[]);
    for round in 0..40u64 {
        let home = scratch();
        let mut child = preloaded(&program, &HELD)
            .args(["dies", "0", "later"])
            .current_dir(home.path())
            .spawn()
            .expect("starts");
        let counted = || {
            let bytes = std::fs::read(home.path().join("counted")).unwrap_or_default();
            let word = |at: usize| {
                let part = bytes.get(at..at + 8).and_then(|part| part.try_into().ok());
                part.map_or(0, u64::from_ne_bytes)
            };
            [word(0), word(8)]
        };
        while counted().iter().any(|&count| count < 100_000 * (1 + round)) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let signal = [libc::SIGTERM, libc::SIGINT, libc::SIGQUIT][round as usize % 3];
        // SAFETY: the child is ours and was not waited for.
        assert_eq!(unsafe { libc::kill(child.id() as i32, signal) }, 0);
        let status = child.wait().expect("a child");
        assert_eq!(status.signal(), Some(signal), "round {round}");
        for (name, count) in ["0", "1"].iter().zip(counted()) {
            let size = std::fs::metadata(home.path().join(name))
                .expect("a file")
                .len();
            assert!(size >= count, "round {round}: {size} of {count} bytes");
        }
    }
}

#[test]
fn the_program_sees_the_actions_that_it_has_set() {
    let program = compiled("tells.c", "tells", &[]);
    let home = scratch();
    let expected = seen(bare(&program).arg("actions"), home.path());
    assert!(expected.output.status.success(), "{:?}", expected.output);
    let got = seen(preloaded(&program, &HELD).arg("actions"), home.path());
    common::same("actions", &expected, &got);
}

#[test]
fn a_number_below_a_file_pointer_is_no_stream() {
    // The third file is one.
    same(&["below"], 1);
}

#[test]
fn what_the_kernel_refuses_to_wait_for_is_refused() {
    same(&["refused"], 1);
}

#[test]
fn a_time_that_somebody_else_has_set_stays() {
    let variables = [HELD[0], ("PDIO_LINGER", "10ms")];
    let (printed, taken) = run(&["sets_a_time"], &variables);
    assert_eq!((printed.as_str(), taken), ("1000000\n", 2));
}

#[test]
fn a_limit_that_another_process_sets_shows_when_everything_is_synced() {
    let (printed, taken) = run(&["limited"], &HELD);
    assert_eq!(printed, "File too large\n8192000\n8196096\n");
    assert_eq!(taken, 1);
}

#[test]
fn memory_that_another_thread_provides_is_waited_for() {
    let program = compiled("tells.c", "tells", &[]);
    let home = scratch();
    let run = |mut command: std::process::Command| {
        let output = command.arg("provided").current_dir(home.path()).output();
        output.expect("starts")
    };
    let expected = run(bare(&program));
    if expected.status.code() == Some(77) {
        eprintln!("skipped: this kernel has no userfaultfd, or not for this user");
        return;
    }
    let got = run(preloaded(&program, &HELD));
    assert_eq!(
        (got.status, stdout(&got)),
        (expected.status, stdout(&expected))
    );
}

#[test]
fn a_filesystem_that_the_program_freezes_thaws() {
    let made = filesystems::image("ext4", 256, "mkfs.ext4", &["-q"], "e2fsprogs");
    let Some(filesystem) = made else {
        return;
    };
    let program = compiled("tells.c", "tells", &[]);
    let mut command = preloaded(&program, &[HELD[0], ("PDIO_LINGER", "10ms")]);
    let mut child = command
        .arg("freezes")
        .current_dir(&filesystem.directory)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("starts");
    let end = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while child.try_wait().expect("a child").is_none() && std::time::Instant::now() < end {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    // If it still is.
    const FITHAW: libc::c_ulong = 0xc004_5878;
    let directory = std::fs::File::open(&filesystem.directory).expect("is there");
    // SAFETY: no memory is involved.
    unsafe { libc::ioctl(directory.as_raw_fd(), FITHAW, 0) };
    drop(directory);
    let output = child.wait_with_output().expect("ended");
    assert_eq!(stdout(&output), "0\n12288000\n", "{output:?}");
}
