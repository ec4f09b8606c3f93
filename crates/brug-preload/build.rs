// SPDX-License-Identifier: MIT OR Apache-2.0
//! How `libbrug.so` is linked.

/// What `kernel.rs` has its own of.
const OWN: [&str; 25] = [
    "close",
    "fcntl",
    "fstat64",
    "getpid",
    "getrlimit",
    "gettid",
    "madvise",
    "mincore",
    "mmap",
    "mprotect",
    "mremap",
    "munmap",
    "prctl",
    "read",
    "readlink",
    "sched_getscheduler",
    "sched_setscheduler",
    "sigfillset",
    "sleep",
    "stat64",
    "syscall",
    "sysconf",
    "sysinfo",
    "unlink",
    "write",
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
    // The unwinder, for the monitor's call sites. From its archive: to load libgcc_s.so costs a short program a sixth
    // of its time.
    println!("cargo:rustc-cdylib-link-arg=-l:libgcc_eh.a");
    // The standard library names it elsewhere. Without it the library's symbols have no versions: the loader takes the
    // oldest function of each name, a C library that is too old is not told, and neither does `dlmopen` find it nor a
    // package depend on it.
    println!("cargo:rustc-cdylib-link-arg=-lc");
    // Who closes the library leaves its handlers of forks, its thread, and objects that are to be freed here.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // A program's function of such a name would be called otherwise.
    for name in OWN {
        println!("cargo:rustc-cdylib-link-arg=-Wl,--wrap={name}");
    }
}
