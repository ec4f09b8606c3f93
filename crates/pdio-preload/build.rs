// SPDX-License-Identifier: MIT OR Apache-2.0
//! How `libpdio.so` is linked.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // What the library calls is what it exports, not a program's function of that name.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
}
