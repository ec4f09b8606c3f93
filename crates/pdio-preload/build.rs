// SPDX-License-Identifier: MIT OR Apache-2.0
//! How `libpdio.so` is linked.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // What the library calls is what it exports, not a program's function of that name.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
    // Without the compiler's startup files, and in two segments, as `libbrug.so` and for the same price.
    println!("cargo:rustc-cdylib-link-arg=-nostartfiles");
    println!("cargo:rustc-cdylib-link-arg=-fuse-ld=bfd");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,noseparate-code");
    // Who closes the library leaves its handlers of forks and exits.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    unwinder_within();
}

/// Has the linker take the unwinder from its archive, where there is one: to load libgcc_s.so costs a short program a
/// sixth of its time. The standard library names that before anything named here, so its name leads to the archive.
fn unwinder_within() {
    const ARCHIVE: &str = "libgcc_eh.a";
    let linker = env::var_os("RUSTC_LINKER").unwrap_or_else(|| "cc".into());
    let asked = Command::new(linker)
        .arg(format!("-print-file-name={ARCHIVE}"))
        .output();
    let found = asked
        .is_ok_and(|asked| Path::new(String::from_utf8_lossy(&asked.stdout).trim()).is_absolute());
    if found {
        let directory = env::var("OUT_DIR").expect("cargo names it");
        fs::write(
            Path::new(&directory).join("libgcc_s.so"),
            "GROUP ( -lgcc_eh -lgcc )\n",
        )
        .expect("the directory for output is writable");
        println!("cargo:rustc-link-search=native={directory}");
    }
}
