// SPDX-License-Identifier: MIT OR Apache-2.0
//! How `libbrug.so` is linked.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // The compiler's startup files are of no use to a library that registers no destructors and is
    // never unloaded. What they run at the start and at the end of every program lies at both ends
    // of the library's code, where nothing else is needed; four of the symbols that they have
    // looked up are in no library, and so are searched for in each.
    println!("cargo:rustc-cdylib-link-arg=-nostartfiles");
}
