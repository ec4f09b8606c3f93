// SPDX-License-Identifier: MIT OR Apache-2.0
//! The library defines these functions, and nothing else.

mod common;

use object::{Object, ObjectSymbol};

const EXPORTS: [&str; 59] = [
    "_ZdaPv",
    "_ZdaPvRKSt9nothrow_t",
    "_ZdaPvSt11align_val_t",
    "_ZdaPvSt11align_val_tRKSt9nothrow_t",
    "_ZdaPvm",
    "_ZdaPvmSt11align_val_t",
    "_ZdlPv",
    "_ZdlPvRKSt9nothrow_t",
    "_ZdlPvSt11align_val_t",
    "_ZdlPvSt11align_val_tRKSt9nothrow_t",
    "_ZdlPvm",
    "_ZdlPvmSt11align_val_t",
    "_Znam",
    "_ZnamRKSt9nothrow_t",
    "_ZnamSt11align_val_t",
    "_ZnamSt11align_val_tRKSt9nothrow_t",
    "_Znwm",
    "_ZnwmRKSt9nothrow_t",
    "_ZnwmSt11align_val_t",
    "_ZnwmSt11align_val_tRKSt9nothrow_t",
    "aligned_alloc",
    "calloc",
    "capset",
    "cfree",
    "dallocx",
    "dlopen",
    "free",
    "free_aligned_sized",
    "free_sized",
    "mallctl",
    "mallctlbymib",
    "mallctlnametomib",
    "mallinfo",
    "mallinfo2",
    "malloc",
    "malloc_stats",
    "malloc_stats_print",
    "malloc_trim",
    "malloc_usable_size",
    "mallocx",
    "mallopt",
    "memalign",
    "nallocx",
    "posix_memalign",
    "prlimit",
    "prlimit64",
    "pvalloc",
    "rallocx",
    "realloc",
    "reallocarray",
    "reallocf",
    "sallocx",
    "sdallocx",
    "setns",
    "setrlimit",
    "setrlimit64",
    "unshare",
    "valloc",
    "xallocx",
];

#[test]
fn exports_these_and_nothing_else() {
    let bytes = std::fs::read(common::library()).expect("library");
    let file = object::File::parse(&*bytes).expect("ELF");
    let mut names: Vec<_> = file
        .dynamic_symbols()
        .filter(|symbol| symbol.is_definition())
        .map(|symbol| symbol.name().expect("name").to_owned())
        .collect();
    names.sort();
    assert_eq!(names, EXPORTS);
}

/// What the library may call by a name that a program may have a function of: the loader, threads and clocks, whose
/// names a program gives only to what does the same, as it does that of `open`.
const NOT_RESERVED: [&str; 10] = [
    "bcmp",
    "clock_gettime",
    "dl_iterate_phdr",
    "dladdr",
    "dladdr1",
    "dlopen",
    "dlsym",
    "environ",
    "getauxval",
    "open64",
];
/// The C standard's.
const STANDARD: [&str; 12] = [
    "abort", "fputs", "getenv", "memcmp", "memcpy", "memmove", "memset", "rename", "stderr",
    "stdout", "strlen", "strtol",
];

#[test]
fn calls_nothing_by_a_name_that_a_program_may_use() {
    let bytes = std::fs::read(common::library()).expect("library");
    let file = object::File::parse(&*bytes).expect("ELF");
    for symbol in file
        .dynamic_symbols()
        .filter(|symbol| symbol.is_undefined())
    {
        let name = symbol.name().expect("name");
        assert!(
            name.is_empty()
                || name.starts_with('_')
                || name.starts_with("pthread_")
                || NOT_RESERVED.contains(&name)
                || STANDARD.contains(&name),
            "{name}: kernel.rs needs one of its own"
        );
    }
}

/// Without a version the loader takes the oldest function of a name, and nobody is told that a C library is too old.
#[test]
fn says_which_c_library_it_needs() {
    let bytes = std::fs::read(common::library()).expect("library");
    let file = object::File::parse(&*bytes).expect("ELF");
    let imports = file.imports().expect("imports");
    assert!(!imports.is_empty());
    for import in imports {
        let name = String::from_utf8_lossy(import.name());
        assert!(!import.library().is_empty(), "{name} is of no library");
    }
}

/// It would be half of the library, and begin something in each program.
#[test]
fn has_nothing_of_the_standard_library() {
    let bytes = std::fs::read(common::library()).expect("library");
    let file = object::File::parse(&*bytes).expect("ELF");
    let names: Vec<_> = file.symbols().flat_map(|symbol| symbol.name()).collect();
    assert!(
        names.iter().any(|name| name.contains("4brug")),
        "no symbols"
    );
    let theirs: Vec<_> = names.iter().filter(|name| name.contains("3std")).collect();
    assert!(theirs.is_empty(), "{theirs:?}");
}
