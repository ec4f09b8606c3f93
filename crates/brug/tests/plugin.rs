// SPDX-License-Identifier: MIT OR Apache-2.0
//! A program whose allocator is another closes a plug-in that has brug (`examples/plugin.rs`).

use std::ffi::CString;
use std::path::Path;
use std::process::Command;
use std::sync::Barrier;
use std::time::Duration;

/// The plug-in, as this test's profile builds it.
fn plugin() -> CString {
    let own = std::env::current_exe().unwrap();
    let directory = own.ancestors().nth(2).unwrap();
    let profile = match directory.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(name) => name,
    };
    let features = if cfg!(feature = "mimalloc") {
        "mimalloc"
    } else {
        ""
    };
    let status = Command::new(env!("CARGO"))
        .args([
            "build",
            "--quiet",
            "--package",
            "brug",
            "--example",
            "plugin",
        ])
        .args(["--features", features, "--profile", profile, "--target-dir"])
        .arg(directory.parent().unwrap())
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")))
        .status()
        .unwrap();
    assert!(status.success(), "the plug-in does not build");
    let file = directory.join("examples/libplugin.so");
    CString::new(file.to_str().unwrap()).unwrap()
}

#[test]
fn a_plugin_that_is_closed_stays_for_its_thread_and_those_of_the_program() {
    let file = plugin();
    std::env::set_var("BRUG_PURGE_DELAY", "100ms");
    if cfg!(feature = "mimalloc") {
        std::env::set_var("BRUG_BASE", "mimalloc");
    }
    let (used, closed) = (Barrier::new(2), Barrier::new(2));
    // SAFETY: the plug-in is a file with this function.
    let (library, run) = unsafe {
        let library = libc::dlopen(file.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
        assert!(!library.is_null());
        let run = libc::dlsym(library, c"run".as_ptr());
        assert!(!run.is_null());
        (
            library,
            std::mem::transmute::<*mut libc::c_void, extern "C" fn() -> usize>(run),
        )
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(run(), 2_666_666);
            used.wait();
            closed.wait();
        });
        used.wait();
        // SAFETY: nothing of it is called any more.
        assert_eq!(unsafe { libc::dlclose(library) }, 0);
        closed.wait();
    });
    std::thread::sleep(Duration::from_millis(300));
}
