// SPDX-License-Identifier: MIT OR Apache-2.0
//! What it costs a stream under libpdio.so that others are told of it: a program that writes a file
//! and a byte into a pipe after each so many bytes, with and without the library.
//!
//! `cargo build --release -p pdio-preload; cargo run --release -p pdio-preload --example announce
//! [DIRECTORY]`. Prints seconds and those of all processors, as a JSON line for each run; the runs
//! take turns. The `fsync` at the end is in the time.

use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

const ROUNDS: usize = 6;
const TOTAL: usize = 256 << 20;

/// With these variables, if with the library at all.
type With = Option<&'static [(&'static str, &'static str)]>;

/// How the program is run.
const CASES: [(&str, With); 3] = [
    ("plain", None),
    ("default", Some(&[])),
    ("PDIO_PROMPT=0", Some(&[("PDIO_PROMPT", "0")])),
];
/// The size of the calls, and after how many bytes the byte is sent.
const LOADS: [(usize, usize); 6] = [
    (4 << 10, 64 << 10),
    (4 << 10, 1 << 20),
    (4 << 10, 16 << 20),
    (64 << 10, 64 << 10),
    (64 << 10, 1 << 20),
    (1 << 20, 1 << 20),
];

/// The measured program: standard output is the pipe.
fn work(file: &Path, block: usize, every: usize) {
    let mut out = std::fs::File::create(file).expect("a file");
    let mut told = std::fs::File::from(
        std::os::fd::AsFd::as_fd(&std::io::stdout())
            .try_clone_to_owned()
            .expect("a pipe"),
    );
    let data = vec![7u8; block];
    let begun = Instant::now();
    for done in (0..TOTAL).step_by(block) {
        out.write_all(&data).expect("a write");
        if (done + block).is_multiple_of(every) {
            told.write_all(b".").expect("a pipe");
        }
    }
    // SAFETY: no memory is involved.
    assert_eq!(unsafe { libc::fsync(out.as_raw_fd()) }, 0);
    let seconds = begun.elapsed().as_secs_f64();
    // SAFETY: a structure of numbers may be all zero, and is valid for a write.
    let used = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        let time = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
        time(usage.ru_utime) + time(usage.ru_stime)
    };
    eprintln!("\"seconds\": {seconds:.4}, \"processor\": {used:.4}");
}

fn library() -> PathBuf {
    let own = std::env::current_exe().expect("own path");
    let directory = own.ancestors().nth(2).expect("target/release");
    let library = directory.join("libpdio.so");
    let shown = library.display();
    assert!(library.is_file(), "no {shown}: build it first");
    library
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [word, file, block, every] = &words[..] {
        assert_eq!(word, "work");
        let number = |text: &str| text.parse().expect("a number");
        return work(Path::new(file), number(block), number(every));
    }
    let directory = words.first().map_or("/var/tmp", String::as_str);
    let file = Path::new(directory).join(format!("pdio-announce-{}", std::process::id()));
    for round in 0..ROUNDS {
        for (block, every) in LOADS {
            // What one leaves to the disk the next one must wait for: each is once behind each.
            let mut cases = CASES;
            cases.rotate_left(round % CASES.len());
            for (name, variables) in cases {
                let mut command = Command::new(std::env::current_exe().expect("own path"));
                command
                    .arg("work")
                    .arg(&file)
                    .args([block.to_string(), every.to_string()])
                    .stdout(Stdio::piped())
                    .stderr(Stdio::piped());
                if let Some(variables) = variables {
                    command
                        .env("LD_PRELOAD", library())
                        .envs(variables.iter().copied());
                }
                let mut child = command.spawn().expect("starts");
                let mut bytes = Vec::new();
                let pipe = child.stdout.take();
                pipe.expect("a pipe").read_to_end(&mut bytes).expect("read");
                assert_eq!(bytes.len(), TOTAL / every);
                let output = child.wait_with_output().expect("a child");
                assert!(output.status.success(), "{output:?}");
                let said = String::from_utf8_lossy(&output.stderr);
                println!(
                    "{{\"round\": {round}, \"block\": {block}, \"every\": {every}, \
                     \"case\": \"{name}\", {}}}",
                    said.trim()
                );
            }
        }
    }
    // Left behind at worst.
    let _ = std::fs::remove_file(&file);
}
