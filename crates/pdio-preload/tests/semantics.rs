// SPDX-License-Identifier: MIT OR Apache-2.0
//! A program sees the same with the library as without it: what calls return, every error, every
//! byte of every file, what its children see. And the library did take its streams meanwhile.

mod common;
#[path = "../../pdio/tests/common/mod.rs"]
mod filesystems;

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;

use common::{bare, compiled, library, preloaded, same, scratch, seen, stderr, stdout, SHORT};

/// Runs a scenario of `semantics.c` both ways; the library must have ended streams for each of
/// these reasons.
fn compare(words: &[&str], reasons: &[&str]) {
    // What the scenarios print tells others all the time, so that by default no stream stays long.
    let settings = [("50ms", "0"), ("1ms", "0"), ("0", "1"), ("50ms", "1")];
    compare_with(&settings, words, reasons);
}

/// As [`compare`], with each of these for `PDIO_LINGER` and `PDIO_PROMPT`.
fn compare_with(settings: &[(&str, &str)], words: &[&str], reasons: &[&str]) {
    let program = compiled("semantics.c", "semantics", &[]);
    for &(linger, prompt) in settings {
        let home = scratch();
        let part = |name: &str| {
            let path = home.path().join(name);
            std::fs::create_dir(&path).expect("a directory");
            path
        };
        let expected = seen(bare(&program).args(words), &part("bare"));
        let printed = String::from_utf8_lossy(&expected.output.stdout).into_owned();
        assert_ne!(
            expected.output.status.code(),
            Some(2),
            "no scenario {words:?}"
        );
        let statistics = home.path().join("statistics");
        let mut command = preloaded(&program, &SHORT);
        command
            .args(words)
            .env("PDIO_LINGER", linger)
            .env("PDIO_PROMPT", prompt)
            .env("PDIO_STATS", &statistics);
        let got = seen(&mut command, &part("preloaded"));
        let what = format!("{words:?}, linger {linger}, prompt {prompt}");
        same(&what, &expected, &got);
        if (linger, prompt) == ("50ms", "1") {
            continue;
        }
        let said = std::fs::read_to_string(&statistics).unwrap_or_default();
        for reason in reasons {
            assert!(
                said.lines().any(|line| line.ends_with(reason)),
                "{words:?}: nothing was taken and then {reason}\n{said}\n{printed}"
            );
        }
    }
}

macro_rules! scenarios {
    ($($test:ident: $words:expr, $reasons:expr;)*) => {$(
        #[test]
        fn $test() {
            compare(&$words, &$reasons);
        }
    )*};
}

scenarios! {
    writes_of_every_kind: ["writes"], ["pwritev2 with flags"];
    reads_of_every_kind: ["reads"], ["written"];
    memory_behind_what_a_read_returns_stays_as_it_was: ["behind_the_end"], ["closed"];
    memory_behind_what_a_read_returns_stays_away: ["holes_in_memory"], ["closed"];
    a_file_that_is_written_and_read: ["both_ways"], ["read while written"];
    offsets_and_sizes_include_what_waits: ["offsets"], ["closed"];
    truncation_and_allocation_come_after_what_was_written: ["sizes"], ["truncated by its path"];
    syncs_hand_everything_over: ["syncs"], ["closed"];
    locks_order_what_others_see: ["locks"], ["fork", "locked"];
    what_was_shared_before_shares_its_offset: ["shared_before"], ["closed"];
    record_locks_survive: ["record_locks"], ["locked"];
    bare_system_calls_reach_files: ["bare_files"],
        ["opened again", "emptied by another open", "mapped", "a bare system call"];
    namespaces_want_a_single_thread: ["namespaces"], ["a namespace of its own"];
    what_programs_rarely_do: ["odds"], ["its flags were changed", "descriptors of a thread's own"];
    nothing_is_left_of_a_closed_file: ["unmounts"], ["closed"];
    rights_may_change_while_a_stream_is_taken: ["rights"], ["closed"];
    what_is_written_is_written_with_the_rights_of_the_call: ["rights_of_writes"],
        ["rights of a thread's own", "closed"];
    what_another_process_changed_is_read: ["stale_reads"], ["closed"];
    memory_that_is_not_there_is_an_error: ["bad_memory"], ["an unusual call"];
    every_kind_of_descriptor_may_run_out: ["all_descriptors"], ["descriptors have run out"];
    duplicates_share_one_stream: ["duplicates"], ["closed"];
    a_file_pointer_on_a_duplicate_is_in_step: ["onto_a_file"], ["duplicated onto what others may use"];
    calls_that_close_nothing_leave_streams_whole: ["not_closed"], ["not replaced after all", "closed"];
    what_the_c_library_looks_at_is_there: ["looks_by_itself"], ["wordexp"];
    descriptors_of_the_library_are_closed: ["open_numbers"], ["closed"];
    descriptor_numbers_are_the_lowest_free: ["numbers"], ["closed"];
    descriptors_that_run_out_are_given_back: ["few_descriptors"], ["descriptors have run out"];
    standard_output_keeps_order_with_printf: ["standard_output"], ["dprintf"];
    standard_output_may_become_a_terminal: ["terminal"], [];
    standard_output_tells_its_offset: ["offsets_of_standard_output"], ["closed"];
    standard_output_may_be_wide: ["wide_standard_output"], ["closed"];
    standard_input_keeps_order_with_getchar: ["standard_input"], ["closed"];
    standard_output_is_shared_with_a_child: ["standard_shared"], ["fork"];
    file_pointers_on_taken_files: ["file_pointers"],
        ["fdopen", "opened by fopen", "emptied by fopen"];
    what_fclose_closes_is_closed: ["closed_unseen"], ["closed"];
    a_number_that_was_freed_unseen_is_another_file: ["closed_past"], ["closed unseen"];
    other_names_of_a_call_do_the_same: ["other_names"],
        ["closed", "vfork", "clone", "passed to another process"];
    another_descriptor_sees_every_byte: ["again"], ["opened again", "emptied by another open"];
    renamed_linked_and_deleted_files: ["names"], ["fork", "closed"];
    times_and_modes_are_set_after_the_data: ["attributes"], ["closed"];
    a_write_takes_capabilities_away: ["capabilities"], ["extended attributes were set"];
    append_and_sync_are_not_taken: ["flags"], ["its flags were changed"];
    a_forked_child_shares_the_offset: ["forks"], ["fork"];
    spawned_children_share_the_offset: ["spawns"], ["posix_spawn", "system", "popen", "vfork"];
    a_child_that_has_the_memory_leaves_streams_of_other_threads_alone: ["beside_a_child"],
        ["closed"];
    another_process_may_have_the_same_descriptors: ["descriptors_of_two"], [];
    an_executed_program_finds_everything: ["executes"], ["exec"];
    a_passed_duplicate_shares_the_offset: ["passes_a_duplicate"], [];
    a_passed_descriptor_shares_the_offset: ["passes"], ["passed to another process"];
    a_received_descriptor_is_another_way_to_the_file: ["receives"],
        ["received from another process"];
    mappings_see_every_byte: ["maps"], ["mapped", "opened again"];
    mappings_of_before_see_every_byte: ["mapped_before"], ["closed"];
    kernel_copies_see_every_byte: ["copies"],
        ["sendfile", "copy_file_range", "splice", "cloned", "an ioctl"];
    asynchronous_io_is_the_programs_own: ["asynchronous"], ["asynchronous I/O", "io_uring"];
    bare_system_calls_are_understood: ["bare_calls"], ["end of the program", "clone"];
    threads_on_one_descriptor: ["threads"], ["closed"];
    signal_handlers_write_and_jump: ["signals"], ["closed"];
    signal_handlers_are_given_what_the_kernel_gave: ["handlers"], ["closed"];
    a_cancelled_thread_leaves_the_stream_whole: ["cancels"], ["closed"];
    a_call_that_is_left_leaves_nothing: ["left_calls"], ["fork"];
    keys_of_threads_are_as_many: ["keys"], ["keys of threads have run out"];
    errors_are_the_kernels: ["faults"], ["an unusual call", "closed"];
    return_loses_nothing: ["ends", "return"], ["end of the program"];
    exit_loses_nothing: ["ends", "exit"], ["end of the program"];
    underscore_exit_loses_nothing: ["ends", "_exit"], ["end of the program"];
    underscore_capital_exit_loses_nothing: ["ends", "_Exit"], ["end of the program"];
    quick_exit_loses_nothing: ["ends", "quick_exit"], ["end of the program"];
    abort_loses_nothing: ["ends", "abort"], ["end of the program"];
    an_assertion_loses_nothing: ["ends", "assert"], ["end of the program"];
    an_assertion_of_no_error_loses_nothing: ["ends", "assert_perror"], ["end of the program"];
    an_assertion_by_its_old_call_loses_nothing: ["ends", "__assert"], ["end of the program"];
    a_stack_that_was_overrun_loses_nothing: ["ends", "__stack_chk_fail"], ["end of the program"];
    raise_loses_nothing: ["ends", "raise"], [];
    killing_itself_loses_nothing: ["ends", "kill"], [];
    killing_its_own_thread_loses_nothing: ["ends", "pthread_kill"], [];
    the_end_of_the_main_thread_loses_nothing: ["ends", "pthread_exit"], ["the main thread ends"];
    a_limit_on_file_sizes_shows_where_it_is: ["limit", "after"], ["a limit on the size of files"];
    a_limit_set_by_its_old_call_shows_where_it_is: ["limit", "ulimit"],
        ["a limit on the size of files"];
    a_limit_of_memory_is_for_the_program: ["memory_limit"], ["a limit of memory"];
    memory_that_is_gone_is_an_error_of_direct_io: ["direct_gone"], [];
    flags_of_misaligned_direct_io_are_the_kernels: ["direct_flags"], [];
    a_limit_set_before_keeps_streams_alone: ["limit", "before"], [];
}

/// With a C library that has the function, and with one that has not: where the library has it nonetheless.
#[test]
fn files_that_are_opened_by_openat2_are_seen() {
    let shim = compiled("openat2.c", "openat2.so", &["-shared", "-fPIC"]);
    let link = format!("-Wl,--no-as-needed,{}", shim.display());
    for (program, links) in [("later-with", &[link.as_str()][..]), ("later-without", &[])] {
        let program = compiled("later.c", program, links);
        let home = scratch();
        let part = |name: &str| {
            let path = home.path().join(name);
            std::fs::create_dir(&path).expect("a directory");
            path
        };
        let expected = seen(&mut bare(&program), &part("bare"));
        let statistics = home.path().join("statistics");
        let mut command = preloaded(&program, &SHORT);
        command
            .arg("has")
            .envs([("PDIO_LINGER", "60s"), ("PDIO_PROMPT", "0")])
            .env("PDIO_STATS", &statistics);
        let got = seen(&mut command, &part("preloaded"));
        same(&program.display().to_string(), &expected, &got);
        let said = std::fs::read_to_string(&statistics).unwrap_or_default();
        assert!(said.contains("emptied by another open"), "{said}");
    }
}

#[test]
fn a_program_that_watches_its_own_file_is_told_of_each_write() {
    compare_with(&[("50ms", "1"), ("60s", "1")], &["watches"], &["closed"]);
}

/// What was read ahead would be good for a minute.
#[test]
fn a_lock_through_another_descriptor_shows_what_its_last_owner_wrote() {
    compare_with(&[("60s", "0")], &["locked_elsewhere"], &["locked"]);
}

/// A handler of a signal may have interrupted the program's allocator.
#[test]
fn what_handlers_may_call_allocates_nothing() {
    let program = compiled("allocating.c", "allocating", &[]);
    for how in ["_exit", "_Exit", "exit_group", "abort", "execve", "tell"] {
        let home = scratch();
        let part = |name: &str| {
            let path = home.path().join(name);
            std::fs::create_dir(&path).expect("a directory");
            path
        };
        let expected = seen(bare(&program).arg(how), &part("bare"));
        assert_eq!(
            expected.output.status.success(),
            ["execve", "tell"].contains(&how),
            "{:?}",
            expected.output
        );
        for prompt in ["0", "1"] {
            let mut command = preloaded(&program, &SHORT);
            let given = [("PDIO_LINGER", "60s"), ("PDIO_PROMPT", prompt)];
            let got = seen(command.arg(how).envs(given), &part(prompt));
            same(&format!("{how}, prompt {prompt}"), &expected, &got);
        }
    }
}

/// The library's threads are new to the program's allocator, and what that does for them is nothing
/// that a program does.
#[test]
fn an_allocator_may_make_system_calls_for_a_thread_of_the_library() {
    let program = compiled("inquisitive.c", "inquisitive", &[]);
    let home = scratch();
    let statistics = home.path().join("statistics");
    let output = preloaded(Path::new("timeout"), &SHORT)
        .args(["-s", "KILL", "60"])
        .arg(&program)
        .env("PDIO_STATS", &statistics)
        .current_dir(home.path())
        .output()
        .expect("timeout starts");
    assert_eq!(
        (
            output.status.code(),
            &*String::from_utf8_lossy(&output.stderr)
        ),
        (Some(0), "asked\n")
    );
    let said = std::fs::read_to_string(&statistics).expect("statistics");
    assert!(said.contains(": 20 streams taken"), "{said}");
    assert!(!said.contains("bare system call"), "{said}");
}

/// What programs that end in unusual ways print is the same with the library, and they do end.
fn compare_ends(program: &Path, ways: &[&str]) {
    for way in ways {
        let run = |mut command: std::process::Command| {
            let home = scratch();
            let command = command.args(["-s", "KILL", "120"]).arg(program).arg(way);
            seen(command.current_dir(home.path()), home.path())
        };
        let expected = run(bare(Path::new("timeout")));
        assert_eq!(expected.output.status.code(), Some(0), "{way}");
        let settings = [
            SHORT[0],
            ("PDIO_STRATEGY", "direct"),
            ("PDIO_LINGER", "60s"),
        ];
        let got = run(preloaded(Path::new("timeout"), &settings));
        same(way, &expected, &got);
    }
}

#[test]
fn the_librarys_threads_end_with_the_main_thread() {
    let program = compiled("leaves.c", "leaves", &[]);
    let ways = ["pthread_exit", "thrd_exit", "cancelled", "fork", "unshare"];
    compare_ends(&program, &ways);
}

/// Which has thread-local storage of its own, or shares that of another thread.
#[test]
fn a_thread_that_the_program_cloned_reads_and_writes() {
    let program = compiled("foreign.c", "foreign", &[]);
    compare_ends(&program, &["own", "shared"]);
}

/// The C library puts them on the stack of each thread: of one of 64 or 128 KiB these leave too little, or nothing.
#[test]
fn a_program_may_have_large_variables_of_each_thread() {
    let sizes = [58_000, 59_000, 60_000, 122_000, 123_000, 124_000, 4 << 20];
    for size in sizes {
        let flag = format!("-DLARGE={size}");
        let program = compiled("large.c", &format!("large-{size}"), &[&flag]);
        let home = scratch();
        let statistics = home.path().join("statistics");
        let output = preloaded(&program, &[SHORT[0], ("PDIO_STRATEGY", "direct")])
            .env("PDIO_STATS", &statistics)
            .current_dir(home.path())
            .output()
            .expect("starts");
        assert_eq!(stdout(&output), "written\n", "{size}: {}", output.status);
        let said = std::fs::read_to_string(&statistics).expect("statistics");
        assert!(said.contains("1 stream taken"), "{size}: {said}");
        assert!(!said.contains("(0 direct"), "{size}: {said}");
    }
}

#[test]
fn another_thread_may_replace_what_is_duplicated() {
    let program = compiled("copies.c", "copies", &[]);
    // Nothing tells others, so that the streams stay.
    let settings = [SHORT[0], ("PDIO_PROMPT", "0"), ("PDIO_LINGER", "60s")];
    let ways = [
        ("streams", "4000000 bytes, 0 and 0 wrong\n"),
        ("direct", "0 and 0 wrong\n"),
    ];
    for (way, expected) in ways.into_iter().cycle().take(6) {
        let home = scratch();
        let output = preloaded(&program, &settings)
            .arg(way)
            .current_dir(home.path())
            .output()
            .expect("starts");
        assert_eq!(stdout(&output), expected);
    }
}

/// What is written goes to the file that the number leads to, whose offset is where others expect it.
#[test]
fn two_threads_may_have_a_number_lead_elsewhere_at_once() {
    let program = compiled("onto.c", "onto", &["-ldl"]);
    let behind = ["-DLIBRARY", "-shared", "-fPIC", "-ldl"];
    let behind = compiled("onto.c", "onto.so", &behind);
    let both = format!("{}:{}", library().display(), behind.display());
    for (way, prompt, expected) in [
        ("direct-look", "0", "to the second: 100 and 700\n"),
        ("direct-after", "0", "to the second: 100 and 700\n"),
        ("stream", "0", "to the first: 700 and 2097152\n"),
        ("shared", "0", "to the first: 2097152\n"),
        ("written", "0", "to the second: 4195004\n"),
        ("told", "1", "told: 2097352\n"),
    ] {
        let home = scratch();
        let settings = [SHORT[0], ("PDIO_PROMPT", prompt), ("PDIO_LINGER", "60s")];
        let output = preloaded(&program, &settings)
            .env("LD_PRELOAD", &both)
            .arg(way)
            .current_dir(home.path())
            .output()
            .expect("starts");
        assert_eq!(stdout(&output), expected, "{way}: {}", stderr(&output));
    }
}

/// A filter ends the process at the first call that the program itself does not make.
#[test]
fn a_program_in_a_sandbox_makes_no_other_calls() {
    let program = compiled("sandboxed.c", "sandboxed", &[]);
    for way in [
        "idle",
        "streams",
        "all threads",
        "maps",
        "signal",
        "no thread",
    ] {
        let run = |mut command: std::process::Command| {
            let home = scratch();
            seen(command.arg(way).current_dir(home.path()), home.path())
        };
        let expected = run(bare(&program));
        let ends = match way {
            "signal" => "filtered\n",
            _ => "filtered\nended\n",
        };
        assert_eq!(stdout(&expected.output), ends, "{way}");
        let signal = (way == "signal").then_some(libc::SIGTERM);
        assert_eq!(expected.output.status.signal(), signal, "{way}");
        same(way, &expected, &run(preloaded(&program, &SHORT)));
        // A line for each process, also for one that did nothing.
        let home = scratch();
        let statistics = format!("json:{}", home.path().join("statistics").display());
        let mut command = preloaded(&program, &SHORT);
        command.env("PDIO_STATS", statistics);
        same(way, &expected, &run(command));
    }
}

/// What `threadless.c` says with these words, and what it prints.
fn threadless(strategy: &str, words: &[&str]) -> (String, String) {
    let program = compiled("threadless.c", "threadless", &["-ldl"]);
    let behind = ["-DLIBRARY", "-shared", "-fPIC", "-ldl"];
    let behind = compiled("threadless.c", "threadless.so", &behind);
    let both = format!("{}:{}", library().display(), behind.display());
    let home = scratch();
    let output = preloaded(&program, &[SHORT[0], ("PDIO_STRATEGY", strategy)])
        .env("LD_PRELOAD", both)
        .args(words)
        .current_dir(home.path())
        .output()
        .expect("starts");
    (stderr(&output), stdout(&output))
}

#[test]
fn nothing_idles_where_no_thread_can_be_had() {
    // Whose requests need no thread.
    let (said, printed) = threadless("buffered", &[]);
    assert_eq!(said, "refused\n");
    assert_eq!(printed, "2000100\n");
}

#[test]
fn a_program_may_have_as_many_threads_as_without_the_library() {
    for (way, threads) in [("pthread_create", 2), ("thrd_create", 2), ("both", 4)] {
        let (said, printed) = threadless("direct", &[way]);
        assert_eq!(said, "refused\n", "{way}");
        assert_eq!(printed, format!("0, {threads} threads\n"), "{way}");
    }
}

#[test]
fn a_program_that_may_have_no_more_threads_hears_so_soon() {
    let (said, printed) = threadless("direct", &["named"]);
    assert_eq!(said, "refused\n");
    assert_eq!(printed, "0, 1 threads\n");
}

/// What `loading.c` says with and without the library, and how it ends.
fn compare_loading(program: &Path, words: &[&str]) {
    let run = |command: &mut Command| {
        let home = scratch();
        let output = command
            .arg("20")
            .arg(program)
            .args(words)
            .current_dir(home.path())
            .output()
            .expect("starts");
        (stdout(&output), output.status.code())
    };
    let expected = run(&mut bare(Path::new("timeout")));
    assert_eq!(expected.1, Some(0), "{words:?}: {}", expected.0);
    let settings = [SHORT[0], ("PDIO_STRATEGY", "direct")];
    let got = run(&mut preloaded(Path::new("timeout"), &settings));
    assert_eq!(got, expected, "{words:?}");
}

/// Who loads it has the loader's lock until that thread is done.
#[test]
fn a_library_may_wait_for_a_thread_of_its_own_while_it_is_loaded() {
    let library = ["-DLIBRARY", "-shared", "-fPIC"];
    let library = compiled("loading.c", "loading.so", &library);
    let program = compiled("loading.c", "loading", &["-ldl"]);
    compare_loading(&program, &["plugin", library.to_str().expect("a path")]);
}

/// Neither the C library nor the program has them: asynchronous I/O, as database servers and `fio` have it in plugins.
#[test]
fn what_a_library_calls_may_be_in_one_that_nobody_else_sees() {
    let behind = compiled("loading.c", "behind.so", &["-DBEHIND", "-shared", "-fPIC"]);
    let behind = behind.to_str().expect("a path");
    let library = ["-DUSES", "-shared", "-fPIC", behind];
    let library = compiled("loading.c", "user.so", &library);
    let program = compiled("loading.c", "loading", &["-ldl"]);
    compare_loading(&program, &["user", library.to_str().expect("a path")]);
}

/// Such a library finds the C library's functions before this one's.
#[test]
fn a_library_whose_calls_are_not_seen_finds_files_as_they_are() {
    let library = compiled("loading.c", "writes.so", &["-DWRITES", "-shared", "-fPIC"]);
    let program = compiled("loading.c", "loading", &["-ldl"]);
    for way in ["deep", "apart"] {
        compare_loading(&program, &[way, library.to_str().expect("a path")]);
    }
    compare_loading(&program, &["found", "libc.so.6"]);
}

#[test]
fn what_the_loader_has_said_stays_until_it_is_called_again() {
    let program = compiled("loading.c", "loading", &["-ldl"]);
    compare_loading(&program, &["message"]);
}

#[test]
fn a_program_has_the_versions_of_functions_that_it_was_built_with() {
    let program = compiled("loading.c", "loading", &["-ldl"]);
    compare_loading(&program, &["versions"]);
    let program = compiled("loading.c", "loading-older", &["-ldl", "-DOLDER"]);
    compare_loading(&program, &["versions"]);
}

#[test]
fn a_program_may_have_functions_of_its_own_by_such_names() {
    let program = compiled("names.c", "names", &[]);
    let home = scratch();
    let statistics = home.path().join("statistics");
    let mut command = preloaded(&program, &SHORT);
    let command = command
        .env("PDIO_STATS", &statistics)
        .current_dir(home.path());
    let output = command.output().expect("starts");
    assert!(output.status.success(), "{output:?}");
    let said = std::fs::read_to_string(statistics).expect("statistics");
    assert!(said.contains(" 1 stream taken"), "{said}");
    let data = std::fs::read(home.path().join("file")).expect("the file");
    assert!(data.len() == 8 << 20 && data.iter().all(|&byte| byte == 7));
}

/// Whose runtime would see races in the library.
#[test]
fn a_program_that_is_watched_for_races_is_left_alone() {
    let program = compiled("observed.c", "observed", &["-fsanitize=thread"]);
    let run = |command: &mut std::process::Command| {
        let home = scratch();
        let words = ["-s", "KILL", "60"];
        let command = command.args(words).arg(&program).current_dir(home.path());
        let output = command.output().expect("timeout starts");
        let said =
            [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
        (output.status.code(), said)
    };
    let expected = run(&mut bare(Path::new("timeout")));
    if expected.0 != Some(0) {
        eprintln!("skipped: this kernel has no room for ThreadSanitizer: {expected:?}");
        return;
    }
    let got = run(&mut preloaded(Path::new("timeout"), &SHORT));
    assert_eq!(got, expected);
}

/// Of a library before this one, which so does not see this one's threads.
#[test]
fn who_looks_for_leaks_finds_none_of_the_librarys() {
    let asked = std::process::Command::new("gcc")
        .arg("-print-file-name=libasan.so")
        .output()
        .expect("gcc");
    let sanitizer = stdout(&asked).trim().to_owned();
    if !Path::new(&sanitizer).is_absolute() {
        return eprintln!("skipped: no libasan.so");
    }
    let program = compiled("observed.c", "unobserved", &[]);
    let home = scratch();
    let both = format!("{sanitizer}:{}", library().display());
    let output = preloaded(&program, &SHORT)
        .current_dir(home.path())
        .env("LD_PRELOAD", both)
        .output()
        .expect("starts");
    assert!(output.status.success(), "{output:?}");
}

/// Under which a signal that waits would come for ever.
#[test]
fn a_program_that_valgrind_runs_is_left_alone() {
    let program = compiled("observed.c", "unobserved", &[]);
    let home = scratch();
    let statistics = home.path().join("statistics");
    let output = preloaded(Path::new("valgrind"), &SHORT)
        .arg("-q")
        .arg(&program)
        .current_dir(home.path())
        .env("PDIO_STATS", &statistics)
        .output();
    let Ok(output) = output else {
        return eprintln!("skipped: no valgrind");
    };
    assert_eq!(stdout(&output), "14000000\n", "{output:?}");
    // What valgrind does not know of the library's system calls it prints.
    assert!(output.stderr.is_empty(), "{output:?}");
    let said = std::fs::read_to_string(&statistics).unwrap_or_default();
    assert!(!said.contains(" taken, "), "{said}");
}

#[test]
fn misaligned_direct_io_does_what_buffered_io_does() {
    let program = compiled("semantics.c", "semantics", &[]);
    for scenario in ["direct", "direct_appends"] {
        let home = scratch();
        let run = |name: &str, preload: bool, unaligned: &str| {
            let directory = home.path().join(name);
            std::fs::create_dir(&directory).expect("a directory");
            let mut command = match preload {
                true => preloaded(&program, &[]),
                false => bare(&program),
            };
            seen(
                command.arg(scenario).env("UNALIGNED", unaligned),
                &directory,
            )
        };
        let buffered = run("buffered", false, "0");
        same(scenario, &buffered, &run("repaired", true, "1"));
        // Without the library it fails, or this proves nothing.
        let failing = run("failing", false, "1");
        assert!(buffered.files != failing.files);
    }
}

#[test]
fn several_threads_wait_for_direct_io_at_once() {
    let program = compiled("abreast.c", "abreast", &[]);
    let run = |mut command: std::process::Command| {
        let home = scratch();
        seen(command.current_dir(home.path()), home.path())
    };
    let expected = run(bare(&program));
    if expected.output.status.code() == Some(77) {
        eprintln!("skipped: this kernel has no userfaultfd, or not for this user");
        return;
    }
    assert_eq!(stdout(&expected.output), "meanwhile: 65536\nlate: 65536\n");
    same("abreast", &expected, &run(preloaded(&program, &[])));
}

#[test]
fn several_threads_that_read_at_once_have_the_kernel_to_themselves() {
    let program = compiled("beside.c", "beside", &[]);
    let home = scratch();
    let file = home.path().join("file");
    let blocks = (0..8192u64).flat_map(|number| {
        let mut block = vec![0; 4096];
        block[..8].copy_from_slice(&number.to_ne_bytes());
        block
    });
    std::fs::write(&file, blocks.collect::<Vec<u8>>()).expect("a file");
    let statistics = home.path().join("statistics");
    let output = preloaded(&program, &SHORT)
        .arg(&file)
        .env("PDIO_STATS", &statistics)
        .output();
    assert_eq!(stdout(&output.expect("starts")), "at 4194304\n");
    let said = std::fs::read_to_string(&statistics).unwrap_or_default();
    assert!(said.contains("read by several threads at once"), "{said}");
}

/// Long writes to btrfs are copied once by the kernel, or once here and then written more slowly.
#[test]
fn long_writes_to_btrfs_are_left_alone() {
    let made = filesystems::image("btrfs", 512, "mkfs.btrfs", &["-q"], "btrfs-progs");
    let Some(filesystem) = made else {
        return;
    };
    let statistics = filesystem.directory.join("statistics");
    for (words, wanted) in [
        (&["bs=64K", "count=400"][..], None),
        (&["bs=16K", "count=1600"], Some("1 stream taken")),
    ] {
        let output = preloaded(Path::new("dd"), &SHORT)
            .args(["if=/dev/zero", "of=out"])
            .args(words)
            .current_dir(&filesystem.directory)
            .env("PDIO_STATS", &statistics)
            .output()
            .expect("starts");
        assert!(output.status.success(), "{output:?}");
        let said = std::fs::read_to_string(&statistics).unwrap_or_default();
        assert!(
            wanted.map_or(said.is_empty(), |words| said.contains(words)),
            "{said}"
        );
    }
}

#[test]
fn a_device_over_a_file_shows_what_was_written_to_it() {
    let home = scratch();
    let image = home.path().join("image");
    let file = std::fs::File::create(&image).expect("a file");
    file.set_len(8 << 20).expect("a size");
    drop(file);
    let losetup = |words: &[&std::ffi::OsStr]| {
        let made = std::process::Command::new("losetup").args(words).output();
        let made = made.ok().filter(|made| made.status.success())?;
        Some(stdout(&made).trim().to_owned())
    };
    let Some(device) = losetup(&["--find".as_ref(), "--show".as_ref(), image.as_ref()]) else {
        return eprintln!("skipped: no loop device for this user");
    };
    let program = compiled("device.c", "device", &[]);
    let output = preloaded(&program, &SHORT)
        .arg(&image)
        .arg(&device)
        .output();
    losetup(&["--detach".as_ref(), device.as_ref()]);
    assert_eq!(stdout(&output.expect("starts")), "0 blocks are old\n");
}

/// Mounts an image of `megabytes`, made with these options, and runs `action` on it; `false` if that
/// needs more rights.
fn on_image(megabytes: u64, options: &[&str], action: impl FnOnce(&Path)) -> bool {
    let home = scratch();
    let (image, directory) = (home.path().join("image"), home.path().join("mnt"));
    std::fs::create_dir(&directory).expect("a directory");
    let file = std::fs::File::create(&image).expect("a file");
    file.set_len(megabytes << 20).expect("a size");
    let run = |program: &str, words: &[&str], path: &Path| {
        std::process::Command::new(program)
            .args(words)
            .arg(path)
            .status()
            .is_ok_and(|status| status.success())
    };
    let text = image.to_str().expect("a path");
    let options = [&["-q", "-m", "0"], options].concat();
    if !run("mkfs.ext4", &options, &image) || !run("mount", &["-o", "loop", text], &directory) {
        eprintln!("skipped: mounting an image needs root and e2fsprogs");
        return false;
    }
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| action(&directory)));
    run("umount", &["-l"], &directory);
    if let Err(panic) = result {
        std::panic::resume_unwind(panic);
    }
    true
}

/// However it ends, but for `SIGKILL`.
#[test]
fn the_filesystem_of_a_program_that_reads_is_free_when_the_program_has_ended() {
    let program = compiled("reading.c", "reading", &[]);
    on_image(100, &[], |directory| {
        let file = directory.join("file");
        std::fs::write(&file, vec![1; 64 << 20]).expect("room");
        // The page cache has nothing of the file afterwards.
        let remount = |after: &str| {
            let unmounted = filesystems::run("umount", &[directory.to_str().expect("a path")]);
            assert_eq!(unmounted, Ok(()), "{after}");
            let image = directory.with_file_name("image");
            let paths = [image.as_path(), directory].map(|path| path.to_str().expect("a path"));
            let mounted = filesystems::run("mount", &["-o", "loop", paths[0], paths[1]]);
            assert_eq!(mounted, Ok(()));
        };
        remount("a file is written");
        let signals = [libc::SIGPIPE, libc::SIGTERM, libc::SIGINT].map(|s| s.to_string());
        let ways = ["_exit", "abort"].into_iter().map(str::to_owned);
        for way in ways.chain(signals) {
            for _ in 0..3 {
                let statistics = scratch();
                let statistics = statistics.path().join("statistics");
                let mut command = preloaded(&program, &SHORT);
                command.env("PDIO_STATS", &statistics).arg(&file).arg(&way);
                let output = command.output().expect("starts");
                assert_ne!(output.status.code(), Some(2), "{way}");
                remount(&way);
                let said = std::fs::read_to_string(&statistics).unwrap_or_default();
                assert!(way != "_exit" || said.contains("1 stream taken"), "{said}");
            }
        }
    });
}

/// Runs a scenario both ways on an image; the library must have ended streams for this reason.
fn compare_on_image(megabytes: u64, options: &[&str], scenario: &str, reason: &str) {
    let program = compiled("semantics.c", "semantics", &[]);
    on_image(megabytes, options, |directory| {
        let part = |name: &str| {
            let path = directory.join(name);
            std::fs::create_dir(&path).expect("a directory");
            path
        };
        let expected = seen(bare(&program).arg(scenario), &part("bare"));
        let statistics = scratch();
        let statistics = statistics.path().join("statistics");
        let mut command = preloaded(&program, &SHORT);
        command.arg(scenario).env("PDIO_STATS", &statistics);
        let got = seen(&mut command, &part("preloaded"));
        same(scenario, &expected, &got);
        let said = std::fs::read_to_string(&statistics).expect("statistics");
        assert!(said.contains(reason), "{said}");
    });
}

/// As with `O_SYNC`, which nobody has to ask for there.
#[test]
fn files_whose_writes_wait_for_the_disk_are_left_alone() {
    let program = compiled("semantics.c", "semantics", &[]);
    on_image(200, &[], |directory| {
        let is_taken = |name: &str| {
            let part = directory.join(name);
            std::fs::create_dir_all(&part).expect("a directory");
            let statistics = scratch();
            let statistics = statistics.path().join("statistics");
            let mut command = preloaded(&program, &SHORT);
            command
                .args(["ends", "exit"])
                .env("PDIO_STATS", &statistics);
            seen(&mut command, &part);
            std::fs::read_to_string(&statistics).is_ok_and(|said| said.contains("1 stream taken"))
        };
        let run = |program: &str, words: &[&str], path: &Path| {
            let status = std::process::Command::new(program)
                .args(words)
                .arg(path)
                .status();
            assert!(status.expect("starts").success(), "{program}");
        };
        assert!(is_taken("plain"));
        std::fs::create_dir(directory.join("marked")).expect("a directory");
        run("chattr", &["+S"], &directory.join("marked"));
        assert!(!is_taken("marked"));
        run("mount", &["-o", "remount,sync"], directory);
        assert!(!is_taken("plain"));
    });
}

#[test]
fn a_full_disk_shows_in_the_call_that_meets_it() {
    compare_on_image(200, &[], "full", "little room is left");
}

#[test]
fn the_largest_file_shows_in_the_call_that_meets_it() {
    let options = ["-O", "^extent,^64bit", "-b", "1024"];
    compare_on_image(200, &options, "farthest", "an unusual call");
}

/// Another library behind this one, preloaded or linked with, may go about its calls by others of this one's, have
/// functions without a version, tables of an old kind, or functions that choose.
#[test]
fn a_library_behind_may_call_as_it_likes() {
    let shared = ["-shared", "-fPIC", "-ldl"];
    let old = [&shared[..], &["-Wl,--hash-style=sysv"]].concat();
    let home = scratch();
    let part = |name: &str| {
        let path = home.path().join(name);
        std::fs::create_dir(&path).expect("a directory");
        path
    };
    let alone = compiled("around.c", "around", &["-DPROGRAM"]);
    for (name, flags) in [("around.so", &shared[..]), ("around-old.so", &old[..])] {
        let behind = compiled("around.c", name, flags);
        let expected = seen(
            bare(&alone).env("LD_PRELOAD", &behind),
            &part(&format!("{name} bare")),
        );
        let said = stdout(&expected.output);
        assert_eq!(said.lines().count(), 6, "{said}");
        let both = format!("{} {}", library().display(), behind.display());
        let mut command = preloaded(&alone, &SHORT);
        command.env("LD_PRELOAD", both);
        same(
            name,
            &expected,
            &seen(&mut command, &part(&format!("{name} behind"))),
        );
        let linked = format!("{name}-linked");
        let flags = [
            "-DPROGRAM",
            "-Wl,--no-as-needed",
            behind.to_str().expect("a path"),
        ];
        let linked = compiled("around.c", &linked, &flags);
        let mut command = preloaded(&linked, &SHORT);
        same(
            name,
            &expected,
            &seen(&mut command, &part(&format!("{name} linked"))),
        );
    }
}

/// Another library behind this one gets the calls that it stands in for, also if it has `fopen` and not `fopen64`.
#[test]
fn a_library_behind_may_have_one_of_two_names() {
    let half = compiled("half.c", "half.so", &["-shared", "-fPIC", "-ldl"]);
    let program = compiled("halves.c", "halves", &[]);
    let home = scratch();
    let part = |name: &str| {
        let path = home.path().join(name);
        std::fs::create_dir(&path).expect("a directory");
        path
    };
    let expected = seen(bare(&program).env("LD_PRELOAD", &half), &part("bare"));
    let called = stdout(&expected.output);
    let count = called.lines().filter(|line| line.starts_with("half: "));
    assert_eq!(count.count(), 4, "{called}");
    let both = format!("{} {}", library().display(), half.display());
    let statistics = home.path().join("statistics");
    let mut command = preloaded(&program, &SHORT);
    command
        .env("LD_PRELOAD", both)
        .env("PDIO_STATS", &statistics);
    same("half", &expected, &seen(&mut command, &part("preloaded")));
    let said = std::fs::read_to_string(&statistics).unwrap_or_default();
    assert!(said.contains(" taken, "), "{said}");
}
