// SPDX-License-Identifier: MIT OR Apache-2.0
//! How `libbrug.so` is linked.

/// What `kernel.rs` has its own of.
const OWN: [&str; 36] = [
    "close",
    "fcntl",
    "fstat64",
    "getpid",
    "getrlimit",
    "gettid",
    "gettimeofday",
    "lseek64",
    "madvise",
    "mincore",
    "mmap",
    "mmap64",
    "mprotect",
    "mremap",
    "munmap",
    "prctl",
    "read",
    "readlink",
    "sbrk",
    "sched_getaffinity",
    "sched_getcpu",
    "sched_getscheduler",
    "sched_setaffinity",
    "sched_setscheduler",
    "sched_yield",
    "secure_getenv",
    "sigfillset",
    "sleep",
    "stat64",
    "statx",
    "syscall",
    "sysconf",
    "sysinfo",
    "unlink",
    "write",
    "writev",
];

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // The compiler's startup files are of no use to a library that registers no destructors and is
    // never unloaded. What they run at the start and at the end of every program lies at both ends
    // of the library's code, where nothing else is needed; four of the symbols that they have
    // looked up are in no library, and so are searched for in each.
    println!("cargo:rustc-cdylib-link-arg=-nostartfiles");
    // Two segments instead of four: two calls of mmap less in each program, and the start of the code, where
    // startup functions are, beside the tables that the loader reads. The price is that constants can be
    // executed. LLVM's linker, Rust's default on x86-64, cannot join them.
    println!("cargo:rustc-cdylib-link-arg=-fuse-ld=bfd");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,noseparate-code");
    // A program's function of such a name would be called otherwise.
    for name in OWN {
        println!("cargo:rustc-cdylib-link-arg=-Wl,--wrap={name}");
    }
}
