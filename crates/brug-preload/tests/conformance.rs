// SPDX-License-Identifier: MIT OR Apache-2.0
//! C and C++ programs find the allocator they know, whatever the settings.

mod common;

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::Command;

use common::{compiled, library, passes_quietly, programs, stderr, stdout, under_brug};

/// Settings under which everything has to hold.
const SETTINGS: [&[(&str, &str)]; 13] = [
    &[],
    &[("BRUG_ALLOC", "sys")],
    &[("BRUG_ALLOC", "Mimalloc")],
    &[("BRUG_ALLOC", "MMAP")],
    &[("BRUG_ALLOC", "BrugTemplate")],
    &[
        ("BRUG_ALLOC", "template"),
        (
            "BRUG_TEMPLATE",
            "0-1K:mimalloc,1K-64K:sys,64K-1M:mimalloc,1M-:mmap",
        ),
    ],
    &[("BRUG_ALLOC", "BrugAutoOpt")],
    &[
        ("BRUG_ALLOC", "auto"),
        ("BRUG_BASE", "glibc"),
        ("BRUG_SWITCH_POINT", "4K"),
    ],
    &[
        ("BRUG_ALLOC", "auto"),
        ("BRUG_BASE", "mimalloc"),
        ("BRUG_PURGE_DELAY", "0"),
    ],
    &[("BRUG_SWITCH_POINT", "4096"), ("BRUG_RETAIN", "0")],
    &[("BRUG_SWITCH_POINT", "1G"), ("BRUG_BASE", "mimalloc")],
    &[
        ("BRUG_THP", "always"),
        ("BRUG_PURGE_DELAY", "0"),
        ("BRUG_RETAIN", "1G"),
    ],
    &[("BRUG_THP", "never"), ("BRUG_RESERVE", "1G")],
];

/// A program says so under every setting.
fn passes_under_all(program: &Path, words: &str) {
    for settings in SETTINGS {
        let said = passes_quietly(&mut under_brug(program, settings));
        assert_eq!(said, words, "{settings:?}");
    }
}

/// And without the library.
fn passes_everywhere(program: &Path, words: &str) {
    assert_eq!(passes_quietly(&mut Command::new(program)), words);
    passes_under_all(program, words);
}

fn conformance(settings: &[(&str, &str)]) {
    let program = compiled("conformance.c", "conformance", &[]);
    let said = passes_quietly(&mut under_brug(&program, settings));
    assert_eq!(said, "conformance: all checks passed\n", "{settings:?}");
}

#[test]
fn the_c_library_passes_its_own_conformance_program() {
    let program = compiled("conformance.c", "conformance", &[]);
    let said = passes_quietly(&mut Command::new(program));
    assert_eq!(said, "conformance: all checks passed\n");
}

#[test]
fn malloc_family_behaves_as_in_the_c_library_in_every_mode() {
    for settings in &SETTINGS[..7] {
        conformance(settings);
    }
}

#[test]
fn malloc_family_behaves_as_in_the_c_library_on_every_base() {
    for settings in &SETTINGS[7..] {
        conformance(settings);
    }
}

#[test]
fn every_object_of_every_size_is_aligned_as_in_the_c_library() {
    let program = compiled("alignment.cpp", "alignment", &["-std=c++17"]);
    passes_everywhere(&program, "alignment: all checks passed\n");
}

/// What becomes of it is undefined, but a look at the heap that it has damaged must not be the
/// last thing that it does, for ever.
#[test]
fn a_program_that_has_damaged_its_heap_ends() {
    let program = compiled("damaged.c", "damaged", &["-w"]);
    for settings in SETTINGS {
        let mut command = under_brug(&program, settings);
        let limit = libc::rlimit {
            rlim_cur: 10,
            rlim_max: 10,
        };
        // SAFETY: setrlimit may be called between fork and exec.
        unsafe {
            command.pre_exec(move || match libc::setrlimit(libc::RLIMIT_CPU, &limit) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            });
        }
        let output = command.output().expect("starts");
        let ended = [None, Some(libc::SIGABRT)].contains(&output.status.signal());
        assert!(ended, "{settings:?} {}", output.status);
    }
}

#[test]
fn operator_new_runs_the_handler_and_throws() {
    let program = compiled("cxx.cpp", "cxx", &["-std=c++17"]);
    passes_under_all(&program, "cxx: all checks passed\n");
}

#[test]
fn operator_new_throws_in_a_plugin_whose_runtime_is_not_global() {
    let program = compiled("plugin.c", "plugin", &[]);
    let flags = ["-std=c++17", "-DPLUGIN", "-shared", "-fPIC"];
    let own = ["-static-libstdc++", "-static-libgcc"];
    for (name, own) in [("plugin.so", &[][..]), ("plugin-static.so", &own)] {
        let plugin = compiled("cxx.cpp", name, &[&flags, own].concat());
        let said = passes_quietly(under_brug(&program, &[]).arg(plugin));
        assert_eq!(said, "cxx: all checks passed\n", "{name}");
    }
}

#[test]
fn objects_cross_between_a_program_and_its_plugins() {
    let program = compiled("crossing.c", "crossing", &[]);
    let plugin = compiled(
        "crossing.c",
        "crossing.so",
        &["-DPLUGIN", "-shared", "-fPIC"],
    );
    for settings in SETTINGS {
        for more in [&[][..], &["deep"]] {
            let said = passes_quietly(under_brug(&program, settings).arg(&plugin).args(more));
            assert_eq!(
                said, "crossing: all checks passed\n",
                "{settings:?} {more:?}"
            );
        }
    }
}

#[test]
fn a_program_that_replaces_some_of_operator_new_and_delete_has_all_of_them() {
    for (name, flags) in [
        ("replaced", &["-std=c++17"][..]),
        ("replaced-aligned", &["-std=c++17", "-DALIGNED"]),
        // Where a program takes a function's address, it may be everybody's.
        ("replaced-fixed", &["-std=c++17", "-no-pie"]),
    ] {
        let program = compiled("replaced.cpp", name, flags);
        passes_everywhere(&program, "replaced: all checks passed\n");
    }
}

#[test]
fn a_program_with_a_malloc_of_its_own_has_the_rest_from_the_c_library() {
    for (name, flags) in [("own", &[][..]), ("own-heap", &["-DHEAP"])] {
        let program = compiled("own.c", name, flags);
        passes_everywhere(&program, "own: all checks passed\n");
    }
}

/// The C library's internal names are the program's, too. That is no library that could be left out.
#[test]
fn a_program_with_all_of_an_allocator_of_its_own_is_left_alone() {
    let program = compiled("whole.c", "whole", &[]);
    passes_under_all(&program, "whole: all checks passed\n");
}

/// As lzop has a `sysinfo`, and perf a `sched_getcpu`.
#[test]
fn names_that_a_program_may_use_are_the_programs() {
    let program = compiled("names.c", "names", &["-fno-builtin"]);
    passes_quietly(&mut Command::new(&program));
    passes_under_all(&program, "names: not called\n");
    // What it has to say depends on what huge pages cost here.
    let talkative = [("BRUG_VERBOSE", "1"), ("BRUG_PURGE_DELAY", "10ms")];
    let output = under_brug(&program, &talkative).output().expect("starts");
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(stdout(&output), "names: not called\n");
}

/// In a program at a fixed address that takes the address of `malloc`, everybody's `malloc` is a jump
/// in the program. It is no malloc of its own.
#[test]
fn a_program_that_takes_the_address_of_malloc_has_growth_slots() {
    let directory = tempfile::tempdir().expect("directory");
    for flags in [["-no-pie", "-fno-pie"], ["-pie", "-fPIE"]] {
        let program = compiled("address.c", flags[0], &flags);
        let file = directory.path().join(flags[0]);
        let setting = format!("json:{}", file.display());
        passes_quietly(&mut under_brug(&program, &[("BRUG_STATS", &setting)]));
        let text = std::fs::read_to_string(&file).expect("statistics");
        let object: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(object["mode"], "auto", "{flags:?} {text}");
        assert_eq!(object["slots_live"], 1, "{flags:?} {text}");
    }
}

/// The loader frees it while nobody can start a thread.
#[test]
fn threads_may_have_much_storage_of_their_own() {
    let program = compiled("storage.c", "storage", &[]);
    let plugin = compiled("storage.c", "storage.so", &["-DPLUGIN", "-shared", "-fPIC"]);
    let said = passes_quietly(Command::new(&program).arg(&plugin));
    assert_eq!(said, "storage: all checks passed\n");
    for settings in SETTINGS {
        let said = passes_quietly(under_brug(&program, settings).arg(&plugin));
        assert_eq!(said, "storage: all checks passed\n", "{settings:?}");
    }
}

/// Thread-local storage of any size leaves the library's own thread a stack.
#[test]
fn the_librarys_thread_has_a_stack_beside_much_storage() {
    let program = compiled("thread.c", "thread", &[]);
    for bytes in (110_000..=130_000).step_by(500) {
        let much = format!("glibc.rtld.optional_static_tls={bytes}");
        let settings = [("GLIBC_TUNABLES", &*much), ("BRUG_PURGE_DELAY", "20ms")];
        let said = passes_quietly(&mut under_brug(&program, &settings));
        assert!(
            said == "thread: 2\n" || said == "thread: 1\n",
            "{bytes}: {said}"
        );
    }
}

#[test]
fn threads_may_have_the_smallest_stack() {
    let program = compiled("stack.c", "stack", &[]);
    passes_everywhere(&program, "stack: all checks passed\n");
}

/// Where the library starts no thread, which would take more.
#[test]
fn a_coroutine_with_a_small_stack_may_have_large_objects() {
    let program = compiled("coroutine.c", "coroutine", &[]);
    let words = "coroutine: all checks passed\n";
    // What the loader saves to look a function up is more on some processors.
    let settings = [("BRUG_PURGE_DELAY", "0"), ("LD_BIND_NOW", "1")];
    assert_eq!(passes_quietly(Command::new(&program).envs(settings)), words);
    assert_eq!(passes_quietly(&mut under_brug(&program, &settings)), words);
    let retained = [("BRUG_RETAIN", "8M"), ("LD_BIND_NOW", "1")];
    assert_eq!(passes_quietly(&mut under_brug(&program, &retained)), words);
    // How much may be retained is then the system's to say. Little is, which needs no thread.
    let by_itself = passes_quietly(under_brug(&program, &[("LD_BIND_NOW", "1")]).arg("little"));
    assert_eq!(by_itself, words);
}

/// A thread of the library is none of the program's, which ends with its own last one.
#[test]
fn a_program_whose_main_thread_leaves_early_ends_as_without_the_library() {
    let program = compiled("leaves.c", "leaves", &[]);
    let said = passes_quietly(&mut Command::new(&program));
    assert_eq!(said, "leaves: all checks passed\n");
    for delay in ["1h", "1s", "100ms", "0"] {
        let said = passes_quietly(&mut under_brug(&program, &[("BRUG_PURGE_DELAY", delay)]));
        assert_eq!(said, "leaves: all checks passed\n", "{delay}");
    }
}

/// The C library makes a thread under the lock of its heap.
#[test]
fn a_handler_that_comes_in_the_midst_of_malloc_may_free_large_objects() {
    let program = compiled("handler.c", "handler", &[]);
    let words = "handler: all checks passed\n";
    assert_eq!(passes_quietly(&mut Command::new(&program)), words);
    let settings = [("BRUG_BASE", "glibc"), ("BRUG_PURGE_DELAY", "1h")];
    let said = passes_quietly(&mut under_brug(&program, &settings));
    assert_eq!(said, words);
}

/// None of these functions is where the C library lets a thread be cancelled.
#[test]
fn a_thread_that_is_cancelled_while_it_allocates_goes_on_until_it_asks() {
    let program = compiled("cancelled.c", "cancelled", &[]);
    passes_everywhere(&program, "cancelled: all checks passed\n");
}

/// The child cannot use what is compared, as another thread may have been in it.
#[test]
fn a_trial_does_not_outlive_a_fork_among_threads() {
    let directory = tempfile::tempdir().expect("directory");
    let program = compiled("child.c", "child", &[]);
    // Before the trial, and while it is under way.
    for requests in ["100", "264000", "270000"] {
        let file = directory.path().join(requests);
        let setting = format!("json:{}", file.display());
        passes_quietly(under_brug(&program, &[("BRUG_STATS", &setting)]).arg(requests));
        let text = std::fs::read_to_string(&file).expect("statistics");
        let object: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_ne!(
            object["base_why"], "a trial is under way",
            "{requests} {text}"
        );
    }
}

/// What mimalloc does at the end of a thread it does under locks that threads of the parent had.
#[test]
fn the_thread_that_forked_can_end_in_the_child() {
    let program = compiled("ends.c", "ends", &["-pthread"]);
    let said = passes_quietly(&mut under_brug(&program, &[("BRUG_BASE", "mimalloc")]));
    assert_eq!(said, "ends: all checks passed\n");
}

/// Neither does the main thread have to allocate, nor any thread for long. Nor has a program with few small objects a
/// huge page for them after it.
#[test]
fn a_trial_goes_on_among_threads_that_end() {
    let directory = tempfile::tempdir().expect("directory");
    let program = compiled("visitors.c", "visitors", &[]);
    let file = directory.path().join("statistics");
    let setting = format!("json:{}", file.display());
    for function in ["malloc", "realloc"] {
        let mut run = under_brug(&program, &[("BRUG_STATS", &setting)]);
        assert_eq!(
            passes_quietly(run.arg(function)),
            "visitors: all checks passed\n"
        );
        let text = std::fs::read_to_string(&file).expect("statistics");
        let object: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let why = object["base_why"].as_str().expect("a reason");
        assert!(
            why.ends_with("a fifth less time in the trial"),
            "{function} {text}"
        );
        std::fs::remove_file(&file).expect("statistics of its own for each");
    }
}

/// In some of them no handlers of `pthread_atfork` run.
#[test]
fn memory_goes_back_in_every_kind_of_child_and_after_it() {
    let program = compiled("orphans.c", "orphans", &[]);
    let said = passes_quietly(&mut under_brug(&program, &[("BRUG_PURGE_DELAY", "100ms")]));
    assert_eq!(said, "orphans: all checks passed\n");
}

/// A trial touches the pages of what it times, but not those of large objects, which may be used sparsely.
#[test]
fn a_program_that_uses_large_objects_sparsely_has_no_more_memory() {
    let program = compiled("sparse.c", "sparse", &[]);
    let settings = [("BRUG_SWITCH_POINT", "1G")];
    let said = passes_quietly(&mut under_brug(&program, &settings));
    assert_eq!(said, "sparse: all checks passed\n");
}

/// The C library gives the end of its heap back sooner as long as it has seen no large object freed.
#[test]
fn a_heap_of_small_objects_that_swings_stays_after_a_large_one_was_freed() {
    let program = compiled("swings.c", "swings", &[]);
    let words = "swings: all checks passed\n";
    assert_eq!(passes_quietly(&mut Command::new(&program)), words);
    for settings in [
        &[][..],
        &[("BRUG_BASE", "glibc")],
        &[("BRUG_ALLOC", "mmap")],
    ] {
        let said = passes_quietly(&mut under_brug(&program, settings));
        assert_eq!(said, words, "{settings:?}");
    }
}

/// Else it lacks memory, or has some that it does not use.
#[test]
fn a_large_object_has_the_memory_of_one_of_its_size() {
    let program = compiled("fits.c", "fits", &[]);
    // Beyond 8 MiB of freed memory a thread could give some back meanwhile.
    let said = passes_quietly(&mut under_brug(&program, &[("BRUG_PURGE_DELAY", "1h")]));
    assert_eq!(said, "fits: all checks passed\n");
}

/// mimalloc spreads it over ten times as much, on which huge pages would have memory all over.
#[test]
fn a_program_that_has_little_of_each_size_has_little_memory() {
    let program = compiled("spread.c", "spread", &["-pthread"]);
    let said = passes_quietly(&mut under_brug(&program, &[("BRUG_BASE", "mimalloc")]));
    assert_eq!(said, "spread: all checks passed\n");
}

/// Neither does the library's thread keep rights that the program gives up, nor does it stand in the way.
#[test]
fn a_program_changes_its_rights_as_without_the_librarys_thread() {
    let program = compiled("rights.c", "rights", &[]);
    let said = passes_quietly(&mut under_brug(&program, &[("BRUG_PURGE_DELAY", "1h")]));
    assert_eq!(said, "rights: all checks passed\n");
}

/// The end of the library's thread takes its time.
#[test]
fn a_program_is_free_to_do_everything_while_the_librarys_thread_ends() {
    let program = compiled("meanwhile.c", "meanwhile", &["-pthread"]);
    for (what, delay) in [("free", "1h"), ("unshare", "4ms")] {
        let settings = [("BRUG_PURGE_DELAY", delay)];
        let said = passes_quietly(under_brug(&program, &settings).arg(what));
        assert_eq!(said, "meanwhile: all checks passed\n", "{what}");
    }
}

/// As a real-time program does, by what the C library documents.
#[test]
fn a_program_that_has_touched_its_heap_ahead_has_no_faults() {
    let program = compiled("ahead.c", "ahead", &[]);
    let words = "ahead: all checks passed\n";
    for server in [&[][..], &["server"]] {
        let alone = passes_quietly(Command::new(&program).args(server));
        assert_eq!(alone, words, "{server:?}");
        let said = passes_quietly(under_brug(&program, &[("BRUG_PURGE_DELAY", "0")]).args(server));
        assert_eq!(said, words, "{server:?}");
    }
}

/// The loader's lock is another thread's, which the child does not have.
#[test]
fn a_child_without_handlers_changes_its_rights() {
    let program = compiled("holds.c", "holds", &[]);
    let plugin = compiled("holds.c", "holds.so", &["-DPLUGIN", "-shared", "-fPIC"]);
    let words = "holds: all checks passed\n";
    assert_eq!(passes_quietly(Command::new(&program).arg(&plugin)), words);
    let settings = [("BRUG_PURGE_DELAY", "1h")];
    let said = passes_quietly(under_brug(&program, &settings).arg(&plugin));
    assert_eq!(said, words);
}

/// The C library takes locks from a second thread on, and those that the program's handler has interrupted it would
/// wait for.
#[test]
fn a_program_of_one_thread_that_frees_a_large_object_once_stays_one() {
    let program = compiled("single.c", "single", &[]);
    let words = "single: all checks passed\n";
    assert_eq!(passes_quietly(&mut Command::new(&program)), words);
    for settings in [&[][..], &[("BRUG_BASE", "glibc")]] {
        let said = passes_quietly(&mut under_brug(&program, settings));
        assert_eq!(said, words, "{settings:?}");
    }
}

/// Its filter is that of a program that has only ever seen the C library.
#[test]
fn a_program_that_is_killed_at_other_system_calls_has_the_c_librarys() {
    let program = compiled("filters.c", "filters", &[]);
    let said = passes_quietly(&mut under_brug(&program, &[("BRUG_ALLOC", "sys")]));
    assert_eq!(said, "filters: all checks passed\n");
    let said = passes_quietly(under_brug(&program, &[("BRUG_BASE", "glibc")]).arg("small"));
    assert_eq!(said, "small");
    // What the documentation says a trial takes.
    let said = passes_quietly(under_brug(&program, &[]).arg("tried"));
    assert_eq!(said, "tried");
}

/// The kernel ends a process at such a call if the thread blocks the signal.
#[test]
fn a_program_answers_the_system_calls_of_all_threads_itself() {
    let program = compiled("trapped.c", "trapped", &[]);
    let said = passes_quietly(&mut under_brug(&program, &[("BRUG_BASE", "glibc")]));
    assert_eq!(said, "trapped: all checks passed\n");
}

/// What the system is set to is read by its name.
#[test]
fn a_program_may_allocate_in_its_own_open() {
    let program = compiled("opens.c", "opens", &[]);
    passes_under_all(&program, "opens: all checks passed\n");
}

/// Its thread-local storage is small enough for the room that the loader leaves, and the program's objects stay the C
/// library's. What it has begun goes on after it is closed.
#[test]
fn a_running_program_can_open_the_library() {
    let program = compiled("late.c", "late", &[]);
    let said = passes_quietly(Command::new(program).arg(library()));
    assert_eq!(said, "opened\n");
}

/// An allocator that defines the C library's internal names is the base in its place.
#[test]
fn another_allocator_under_internal_names_is_named_once() {
    let Some(other) = ["x86_64", "aarch64"]
        .into_iter()
        .flat_map(|machine| {
            [2, 3].map(|v| format!("/usr/lib/{machine}-linux-gnu/libmimalloc.so.{v}"))
        })
        .find(|path| std::path::Path::new(path).exists())
    else {
        println!(
            "skipped: no libmimalloc here; apt-get install libmimalloc2.0 (Debian 12) or libmimalloc3 (later)"
        );
        return;
    };
    let mut command = under_brug(std::path::Path::new("/bin/true"), &[]);
    command.env("LD_PRELOAD", format!("{}:{other}", library().display()));
    let output = command.output().expect("starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(
        said.starts_with("brug: ") && said.contains("libmimalloc"),
        "{said}"
    );
}

#[test]
fn every_source_is_compiled_by_a_test() {
    let mut names: Vec<_> = std::fs::read_dir(programs())
        .expect("sources")
        .map(|entry| {
            entry
                .expect("entry")
                .file_name()
                .into_string()
                .expect("name")
        })
        .collect();
    names.sort();
    let expected = [
        "address.c",
        "ahead.c",
        "alignment.cpp",
        "borrows.c",
        "cancelled.c",
        "check.h",
        "child.c",
        "conformance.c",
        "coroutine.c",
        "crossing.c",
        "cxx.cpp",
        "daemon.c",
        "damaged.c",
        "elsewhere.c",
        "ends.c",
        "exits.c",
        "faults.c",
        "filters.c",
        "fits.c",
        "forks.c",
        "handler.c",
        "heap.c",
        "holds.c",
        "late.c",
        "leaves.c",
        "limits.c",
        "little.c",
        "loading.c",
        "maps.h",
        "meanwhile.c",
        "names.c",
        "opens.c",
        "orphans.c",
        "own.c",
        "plugin.c",
        "replaced.cpp",
        "rights.c",
        "single.c",
        "sparse.c",
        "spread.c",
        "stack.c",
        "status.h",
        "storage.c",
        "strict.c",
        "swings.c",
        "thread.c",
        "trapped.c",
        "visitors.c",
        "whole.c",
    ];
    assert_eq!(names, expected);
}
