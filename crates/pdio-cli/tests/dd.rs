// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pdio dd` beside GNU dd: same bytes, same counts; and its own promises.

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Output, Stdio};

use common::*;
use rustix::process::Signal;

fn dd(operands: &[&str]) -> Output {
    pdio().arg("dd").args(operands).output().unwrap()
}

/// Returns true if the machine's dd is GNU's of a version that knows `count=1B`.
fn gnu() -> bool {
    let Ok(version) = Command::new("dd").arg("--version").output() else {
        return false;
    };
    let text = String::from_utf8_lossy(&version.stdout).into_owned();
    let number = text.lines().next().and_then(|l| l.rsplit(' ').next());
    let known = text.contains("coreutils")
        && number
            .and_then(|n| n.parse::<f64>().ok())
            .is_some_and(|n| n >= 9.1);
    if !known {
        eprintln!("skipped: no GNU dd 9.1 to compare with");
    }
    known
}

/// Standard error without names and times.
fn counts(output: &Output, program: &str) -> String {
    let text = stderr(output)
        .replace(&format!("{program}: "), "")
        .replace(['\'', '‘', '’'], "");
    text.lines()
        .map(|line| match line.find(" copied, ") {
            Some(end) => &line[..end],
            None => line,
        })
        .collect::<Vec<_>>()
        .join("\n")
}

/// Runs both in directories of their own with the same files in them.
fn compare(operands: &[&str], stdin: Option<&[u8]>, files: &[(&str, Vec<u8>)]) {
    let homes = [home(), home()];
    let mut results = Vec::new();
    for (home, gnu) in homes.iter().zip([true, false]) {
        for (name, bytes) in files {
            fs::write(home.path().join(name), bytes).unwrap();
        }
        let mut command = match gnu {
            true => Command::new("dd"),
            false => {
                let mut command = pdio();
                command.arg("dd");
                command
            }
        };
        command
            .args(operands)
            .current_dir(home.path())
            .env("LC_ALL", "C");
        let mut child = piped(&mut command);
        let mut input = child.stdin.take().unwrap();
        let bytes = stdin.unwrap_or_default().to_vec();
        let feeder = std::thread::spawn(move || {
            let _ = input.write_all(&bytes);
        });
        let output = wait(child);
        feeder.join().unwrap();
        results.push((
            output.status.code(),
            counts(&output, if gnu { "dd" } else { "pdio dd" }),
            output.stdout,
            fs::read(home.path().join("out")).ok(),
        ));
    }
    let (theirs, ours) = (&results[0], &results[1]);
    assert_eq!((&ours.0, &ours.1), (&theirs.0, &theirs.1), "{operands:?}");
    assert!(ours.2 == theirs.2, "{operands:?}: standard output differs");
    assert!(ours.3 == theirs.3, "{operands:?}: the file differs");
}

#[test]
fn files_and_counts_equal_those_of_gnu_dd_over_a_matrix_of_operands() {
    if !gnu() {
        return;
    }
    let files = [
        ("in", pattern(300_007)),
        ("out", vec![0xee; 50_021]),
        ("empty", Vec::new()),
    ];
    let blocks = [
        "",
        "bs=1000",
        "bs=4096",
        "bs=7",
        "ibs=300 obs=1024",
        "ibs=8K obs=100",
        "ibs=9 obs=9",
        "bs=2M",
    ];
    let ranges = [
        "",
        "count=3",
        "count=0",
        "count=1001B",
        "count=1kB",
        "count=2x5 skip=3",
        "skip=2 seek=3",
        "skip=513B seek=4097B count=4096B",
        "iseek=1 oseek=1 iflag=skip_bytes,count_bytes count=999",
        "oflag=seek_bytes seek=4097",
        "skip=2 seek=3 count=4 iflag=seek_bytes oflag=count_bytes,skip_bytes",
        "skip=1M",
        "seek=100",
    ];
    let modes = [
        "",
        "conv=notrunc",
        "conv=sync",
        "conv=notrunc,fdatasync oflag=append",
        "conv=sparse",
    ];
    let mut n = 0;
    for block in blocks {
        for range in ranges {
            for mode in modes {
                // Every pair, not every triple: one of each column moves on with each row.
                n += 1;
                if !mode.is_empty() && !range.is_empty() && n % 3 != 0 {
                    continue;
                }
                // GNU dd empties the file when it seeks less than a block; pdio keeps what is
                // passed over.
                if block == "bs=2M" && range.contains("4097") {
                    continue;
                }
                let line = format!("if=in of=out {block} {range} {mode}");
                compare(&line.split_whitespace().collect::<Vec<_>>(), None, &files);
            }
        }
    }
    for line in [
        "if=empty of=out",
        "if=empty of=out bs=4k conv=notrunc",
        "if=in of=new conv=excl",
        "if=in of=out conv=excl",
        "if=in of=new conv=nocreat",
        "if=missing of=out",
        "if=in of=out status=none",
        "if=in of=out status=noxfer bs=1k",
        "if=in of=out iflag=fullblock bs=64k count=2",
        "if=in of=out bs=4k oflag=dsync count=5",
        "if=in of=out bs=4k oflag=sync conv=fsync count=5",
        "if=in of=out bs=16k iflag=nocache oflag=nocache",
        "if=/dev/zero of=out bs=333 count=999",
        "if=/dev/zero of=/dev/null bs=1M count=3",
        "if=in of=/dev/null",
        "if=in of=/dev/full bs=1k",
        "if=in of=. bs=1k",
        "if=/proc/version of=out",
        "if=/proc/self/mem of=out bs=4096 count=3 conv=noerror,sync",
        "if=/proc/self/mem of=out bs=4096 count=3",
    ] {
        compare(&line.split_whitespace().collect::<Vec<_>>(), None, &files);
    }
}

#[test]
fn pipes_are_gathered_and_counted_as_gnu_dd_does() {
    if !gnu() {
        return;
    }
    let data = pattern(200_003);
    for line in [
        "of=out obs=4096",
        "of=out iflag=fullblock bs=4096",
        "of=out iflag=fullblock bs=1000 count=7 skip=2",
        "of=out iflag=fullblock,count_bytes,skip_bytes bs=1000 count=7777 skip=99",
        "of=out iflag=fullblock bs=64k skip=9",
        "iflag=fullblock bs=4096",
        "ibs=100 obs=7777 iflag=fullblock",
        "iflag=fullblock bs=4096 conv=sync",
        "iflag=fullblock bs=1k seek=3",
        "iflag=fullblock bs=1k conv=fsync",
    ] {
        let operands = line.split_whitespace().collect::<Vec<_>>();
        compare(&operands, Some(&data), &[("out", vec![1; 9000])]);
    }
}

#[test]
fn short_blocks_that_are_counted_as_whole_ones_are_named() {
    if !gnu() {
        return;
    }
    for line in [
        "bs=4096 skip=1",
        "bs=4096 skip=4097B",
        "ibs=100 skip=2",
        "bs=99 skip=1 count=0",
    ] {
        compare(
            &line.split_whitespace().collect::<Vec<_>>(),
            Some(b"short"),
            &[],
        );
    }
    for line in [
        "bs=4096 count=9",
        "bs=4096 conv=sync count=3",
        "bs=4096",
        "bs=4096 count=2 iflag=fullblock",
        "bs=4096 count=9 status=none",
        "ibs=4096 obs=4096 count=9",
        "bs=4096 skip=1",
        "bs=4096 skip=2",
        "bs=5 skip=1 count=2",
        "bs=4096 skip=2 iflag=fullblock",
        "bs=4096 skip=2 status=none",
        "ibs=4096 skip=2",
    ] {
        let run = |mut command: Command| {
            let mut child = piped(command.args(line.split(' ')).env("LC_ALL", "C"));
            let mut stdin = child.stdin.take().unwrap();
            // Each is read before the next comes.
            for part in ["one", "two", "three"] {
                stdin.write_all(part.as_bytes()).unwrap();
                until(|| rustix::io::ioctl_fionread(&stdin).is_ok_and(|left| left == 0));
            }
            drop(stdin);
            wait(child)
        };
        let mut ours = pdio();
        ours.arg("dd");
        let (theirs, ours) = (run(Command::new("dd")), run(ours));
        assert_eq!(counts(&ours, "pdio dd"), counts(&theirs, "dd"), "{line}");
        assert_eq!(ours.stdout, theirs.stdout, "{line}");
    }
}

#[test]
fn skipping_beyond_the_end_and_appending_to_what_is_emptied_are_named() {
    if !gnu() {
        return;
    }
    for line in [
        "if=in of=out oflag=append",
        "if=in of=out oflag=append seek=1",
        "if=in of=out oflag=append conv=notrunc",
        "if=in oflag=append status=none",
        "if=missing of=out oflag=append",
        "if=empty of=out bs=1 skip=1",
        "if=empty of=out bs=1 skip=1 status=none",
        "if=/proc/version of=out bs=1 skip=3 count=5",
    ] {
        let files = [
            ("in", pattern(9)),
            ("empty", Vec::new()),
            ("out", vec![1; 9000]),
        ];
        compare(&line.split(' ').collect::<Vec<_>>(), None, &files);
    }
}

#[test]
fn nothing_is_skipped_to_beyond_the_end_of_a_disk() {
    let home = home();
    let Some(disk) = Disk::new(home.path(), 1 << 20, &["-r"]).filter(|_| gnu()) else {
        return;
    };
    let input = format!("if={}", disk.0);
    for skip in ["skip=1", "skip=2", "skip=1048575B", "skip=1048577B"] {
        compare(&[&input, "of=out", "bs=1M", skip], None, &[]);
    }
}

#[test]
fn nothing_is_sought_to_beyond_the_end_of_a_disk() {
    let home = home();
    let Some(disk) = Disk::new(home.path(), 1 << 20, &[]).filter(|_| gnu()) else {
        return;
    };
    let output = format!("of={}", disk.0);
    for seek in ["seek=0", "seek=1", "seek=2", "seek=1048577B"] {
        let operands = ["if=in", &output, "bs=1M", seek];
        compare(&operands, None, &[("in", pattern(5000))]);
    }
}

#[test]
fn numbers_are_those_of_gnu_dd() {
    if !gnu() {
        return;
    }
    for number in ["9cB", "9wB", "9bB", "9c", "9w", "2b", "1kB", "9B"] {
        let count = format!("count={number}");
        compare(&["bs=10", "if=in", &count], None, &[("in", pattern(9000))]);
    }
}

#[test]
fn what_would_wait_is_an_error_with_nonblock() {
    let mut child = piped(pdio().args(["dd", "iflag=nonblock"]));
    let stdin = child.stdin.take();
    let output = wait(child);
    drop(stdin);
    assert_status(&output, 1);
    assert!(stderr(&output).contains("temporarily unavailable"));

    let (unread, full) = std::os::unix::net::UnixStream::pair().unwrap();
    let mut command = pdio();
    let command = command.args(["dd", "if=/dev/zero", "oflag=nonblock", "bs=8M", "count=1"]);
    let child = command
        .stdout(std::os::fd::OwnedFd::from(full))
        .stderr(Stdio::piped())
        .spawn();
    let output = wait(child.unwrap());
    drop(unread);
    assert_status(&output, 1);
    assert!(stderr(&output).contains("temporarily unavailable"));
}

#[test]
fn direct_flags_work_at_any_block_size_and_keep_the_exact_tail() {
    let home = home();
    let (from, to) = (home.path().join("in"), home.path().join("out"));
    let data = pattern(3_000_001);
    fs::write(&from, &data).unwrap();
    for bs in ["bs=512", "bs=1000", "bs=1M", "bs=1000001"] {
        let input = format!("if={}", from.display());
        let output = format!("of={}", to.display());
        assert_status(
            &dd(&[&input, &output, bs, "iflag=direct", "oflag=direct"]),
            0,
        );
        assert!(fs::read(&to).unwrap() == data, "{bs}");
    }
}

#[test]
fn a_file_can_be_moved_within_itself_but_not_emptied_first() {
    let home = home();
    let path = home.path().join("file");
    let data = pattern(2_000_000);
    fs::write(&path, &data).unwrap();
    let (input, output) = (
        format!("if={}", path.display()),
        format!("of={}", path.display()),
    );
    let refused = dd(&[&input, &output]);
    assert_status(&refused, 2);
    assert!(
        stderr(&refused).contains("same file"),
        "{}",
        stderr(&refused)
    );
    assert!(fs::read(&path).unwrap() == data);
    assert_status(
        &dd(&[&input, &output, "conv=notrunc", "bs=1000", "skip=500"]),
        0,
    );
    let mut moved = data[500_000..].to_vec();
    moved.extend_from_slice(&data[1_500_000..]);
    assert!(fs::read(&path).unwrap() == moved);
}

#[test]
fn sparse_output_has_holes_and_the_full_size() {
    let home = home();
    let (from, to) = (home.path().join("in"), home.path().join("out"));
    let mut data = vec![0; 4 << 20];
    data[..5].copy_from_slice(b"hello");
    fs::write(&from, &data).unwrap();
    let output = dd(&[
        &format!("if={}", from.display()),
        &format!("of={}", to.display()),
        "bs=64K",
        "conv=sparse",
    ]);
    assert_status(&output, 0);
    assert!(fs::read(&to).unwrap() == data);
    assert!(fs::metadata(&to).unwrap().blocks() * 512 < 1 << 20);
}

#[test]
fn a_full_disk_is_an_error_with_the_counts_of_what_is_there() {
    let home = home();
    let Some(small) = Tmpfs::mount(&home.path().join("small"), "size=1m") else {
        return;
    };
    let path = small.0.join("out");
    for bs in ["bs=512", "bs=64K", "bs=4M"] {
        let output = dd(&[
            "if=/dev/zero",
            &format!("of={}", path.display()),
            bs,
            "count=9000",
        ]);
        assert_status(&output, 1);
        let text = stderr(&output);
        assert!(text.contains("No space left on device"), "{text}");
        let size = fs::metadata(&path).unwrap().len();
        assert!(text.contains(&format!("\n{size} bytes ")), "{size}: {text}");
        fs::remove_file(&path).unwrap();
    }
    // A single byte cannot be tried in two halves.
    fs::write(small.0.join("fill"), vec![1; 1 << 20]).unwrap();
    let output = dd(&[
        "if=/dev/zero",
        &format!("of={}", path.display()),
        "bs=1",
        "count=1",
    ]);
    assert_status(&output, 1);
    let text = stderr(&output);
    assert!(text.contains("No space left on device"), "{text}");
}

#[test]
fn whoever_writes_on_behind_a_full_disk_leaves_no_gap() {
    let home = home();
    let Some(small) = Tmpfs::mount(&home.path().join("small"), "size=1m") else {
        return;
    };
    let path = small.0.join("out");
    for bs in ["bs=512", "bs=4K", "bs=64K", "bs=4M"] {
        let mut out = fs::File::create(&path).unwrap();
        let output = pdio()
            .args(["dd", "if=/dev/zero", bs, "count=9000"])
            .stdout(out.try_clone().unwrap())
            .output()
            .unwrap();
        assert_status(&output, 1);
        let size = out.metadata().unwrap().len();
        assert_eq!(out.stream_position().unwrap(), size, "{bs}");
    }
}

#[test]
fn what_a_full_disk_leaves_of_a_sparse_copy_is_counted_with_its_holes() {
    let home = home();
    let Some(small) = Tmpfs::mount(&home.path().join("small"), "size=1m") else {
        return;
    };
    let (from, to) = (home.path().join("in"), small.0.join("out"));
    // 600 KiB, a hole, and more than fits.
    let mut data = pattern(8 << 20);
    data[600 << 10..900 << 10].fill(0);
    data[7 << 20..].fill(0);
    fs::write(&from, &data).unwrap();
    let output = dd(&[
        &format!("if={}", from.display()),
        &format!("of={}", to.display()),
        "bs=4K",
        "conv=sparse",
    ]);
    assert_status(&output, 1);
    let (text, size) = (stderr(&output), fs::metadata(&to).unwrap().len());
    assert!(text.contains("No space left on device"), "{text}");
    assert!(text.contains(&format!("\n{size} bytes ")), "{size}: {text}");
    assert_eq!(size, (1024 + 300) << 10, "{text}");
}

#[test]
fn past_the_limit_of_a_files_length_every_command_says_so() {
    let home = home();
    fs::write(home.path().join("in"), pattern(300_007)).unwrap();
    for arguments in [
        &["dd", "if=in", "of=out"][..],
        &["dd", "if=in", "of=out", "oflag=append", "conv=notrunc"],
        &["recv", "out"],
        &["cp", "in", "out"],
        &["learn", "."],
    ] {
        let mut command = pdio();
        command
            .args(arguments)
            .current_dir(home.path())
            .env("PDIO_COSTS", home.path().join("costs"))
            .stdin(fs::File::open(home.path().join("in")).unwrap());
        let output = with_file_limit(&mut command, 10_000).output().unwrap();
        assert_status(&output, 1);
        let text = stderr(&output);
        assert!(text.contains("File too large"), "{arguments:?}: {text}");
        let _ = fs::remove_file(home.path().join("out"));
    }
}

#[test]
fn a_block_beyond_memory_is_an_error_before_the_output_is_emptied() {
    let home = home();
    let path = home.path().join("kept");
    fs::write(&path, "kept").unwrap();
    let output = dd(&[
        "if=/dev/zero",
        &format!("of={}", path.display()),
        "bs=1P",
        "count=1",
    ]);
    assert_status(&output, 1);
    assert!(
        stderr(&output).contains("smaller block size"),
        "{}",
        stderr(&output)
    );
    assert_eq!(fs::read(&path).unwrap(), b"kept");
}

#[test]
fn a_large_block_takes_only_the_memory_that_it_needs() {
    let mut child = piped(pdio().args(["dd", "bs=256M"]));
    let (mut stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.as_mut().unwrap());
    stdin.write_all(b"x").unwrap();
    stdout.read_exact(&mut [0]).unwrap();
    let about = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    drop(stdin);
    assert_status(&wait(child), 0);
    let peak = about.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let peak = peak.and_then(|peak| peak.trim().strip_suffix(" kB"));
    assert!(
        peak.unwrap().parse::<u64>().unwrap() < 128 << 10,
        "{peak:?}"
    );
}

#[test]
fn a_full_device_is_an_error() {
    let output = dd(&["if=/dev/zero", "of=/dev/full", "bs=1k", "count=3"]);
    assert_status(&output, 1);
    let text = stderr(&output);
    assert!(text.starts_with("pdio dd: error writing '/dev/full': No space left on device\n1+0 records in\n0+0 records out\n0 bytes copied"), "{text}");
}

#[test]
fn a_broken_pipe_is_an_error_not_a_short_success() {
    let mut child = pdio()
        .args(["dd", "if=/dev/zero", "bs=4k", "count=100000"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut some = [0; 4096];
    child.stdout.take().unwrap().read_exact(&mut some).unwrap();
    let output = wait(child);
    assert_status(&output, 1);
    assert!(
        stderr(&output).contains("Broken pipe"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn a_read_only_target_and_a_directory_are_errors_and_untouched() {
    let home = home();
    let Some(mount) = Tmpfs::mount(&home.path().join("ro"), "size=1m") else {
        return;
    };
    let path = mount.0.join("file");
    fs::write(&path, "kept").unwrap();
    mount.read_only();
    let output = dd(&["if=/dev/zero", &format!("of={}", path.display()), "count=1"]);
    assert_status(&output, 1);
    assert!(
        stderr(&output).contains("Read-only file system"),
        "{}",
        stderr(&output)
    );
    assert_eq!(fs::read(&path).unwrap(), b"kept");
    assert_status(
        &dd(&[&format!("if={}", home.path().display()), "of=/dev/null"]),
        1,
    );
}

#[test]
fn what_is_not_understood_is_refused_in_one_line_before_anything_is_touched() {
    let home = home();
    let path = home.path().join("kept");
    fs::write(&path, "kept").unwrap();
    let output_file = format!("of={}", path.display());
    for operand in [
        "nonsense",
        "x=1",
        "bs=0",
        "bs=1Z1",
        "bs=9999999999999999999",
        "ibs=8E",
        "obs=8E",
        "count=-1",
        "conv=ebcdic",
        "conv=zap",
        "iflag=append",
        "oflag=fullblock",
        "status=loud",
        "cbs=1",
        "count=0x10",
        "skip=99999999999999999999",
    ] {
        let output = dd(&["if=/dev/zero", &output_file, operand]);
        assert_status(&output, 2);
        let text = stderr(&output);
        // Where the line says why it is refused for good, --help has no more to say.
        let for_good = ["conv=ebcdic", "cbs=1"].contains(&operand);
        assert_eq!(text.contains("as they are, so no "), for_good, "{text}");
        assert_eq!(text.lines().count(), if for_good { 1 } else { 2 }, "{text}");
        let help = text.ends_with("Try 'pdio dd --help'.\n");
        assert_eq!(help, !for_good, "{text}");
        assert_eq!(fs::read(&path).unwrap(), b"kept");
    }
}

#[test]
fn an_interrupt_ends_in_order_with_a_summary_and_status_130() {
    let home = home();
    let path = home.path().join("out");
    let mut child = piped(pdio().args(["dd", &format!("of={}", path.display()), "bs=1k"]));
    let mut input = child.stdin.take().unwrap();
    input.write_all(&[7; 1024]).unwrap();
    until(|| fs::metadata(&path).is_ok_and(|m| m.len() == 1024));
    signal(&child, Signal::USR1);
    signal(&child, Signal::INT);
    let output = wait(child);
    // By the signal, as a loop in a shell would go on otherwise.
    assert_eq!(output.status.code(), None);
    assert_status(&output, 130);
    assert!(stderr(&output).contains("1+0 records in\n1+0 records out\n1024 bytes"));
    assert_eq!(fs::read(&path).unwrap(), [7; 1024]);
}

#[test]
fn an_interrupt_that_is_ignored_ends_nothing() {
    use std::os::unix::process::CommandExt;
    let mut command = pdio();
    command.args(["dd", "bs=512", "status=none"]);
    // As a script does with what it starts in the background.
    // SAFETY: a system call.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGINT, libc::SIG_IGN);
            Ok(())
        })
    };
    let mut child = piped(&mut command);
    let (mut to, mut block) = (child.stdin.take().unwrap(), [0; 512]);
    to.write_all(&block).unwrap();
    let from = child.stdout.as_mut().unwrap();
    from.read_exact(&mut block).unwrap();
    signal(&child, Signal::INT);
    to.write_all(&block).unwrap();
    drop(to);
    let output = wait(child);
    assert_status(&output, 0);
    assert_eq!(output.stdout.len(), 512);
}

#[test]
fn an_interrupt_ends_a_wait_for_a_pipe_nobody_reads() {
    let mut child = pdio()
        .args(["dd", "if=/dev/zero", "bs=1M"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let stuck = child.stdout.take().unwrap();
    until(|| rustix::io::ioctl_fionread(&stuck).unwrap() > 0);
    signal(&child, Signal::INT);
    let output = wait(child);
    drop(stuck);
    assert_status(&output, 130);
    assert!(
        stderr(&output).contains("records out"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn an_interrupt_ends_a_wait_for_a_device() {
    // One that nobody reads, and one that all is read of.
    let (screen, terminal) = terminal();
    let output_file = format!("of={}", terminal.display());
    let child = piped(pdio().args(["dd", "if=/dev/zero", "bs=1M", &output_file]));
    until(|| rustix::io::ioctl_fionread(&screen).unwrap() > 0);
    signal(&child, Signal::INT);
    assert_status(&wait(child), 130);
    if fs::File::open("/dev/kmsg").is_err() {
        eprintln!("skipped: may not read /dev/kmsg");
        return;
    }
    let mut child = piped(pdio().args(["dd", "if=/dev/kmsg", "bs=8k"]));
    let mut messages = child.stdout.take().unwrap();
    std::thread::spawn(move || std::io::copy(&mut messages, &mut std::io::sink()));
    let waits = || {
        let call = fs::read_to_string(format!("/proc/{}/syscall", child.id()));
        call.is_ok_and(|call| !call.starts_with("running")) && state(&child) == Some('S')
    };
    until(|| catches(&child, Signal::TERM) && (0..20).all(|_| waits()));
    signal(&child, Signal::INT);
    assert_status(&wait(child), 130);
}

#[test]
fn usr1_prints_statistics_and_goes_on() {
    let mut child = piped(pdio().args(["dd", "bs=1k", "of=/dev/null"]));
    let mut input = child.stdin.take().unwrap();
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    input.write_all(&[7; 3000]).unwrap();
    until_it_catches(&child, Signal::USR1);
    let (mut text, mut line) = (String::new(), String::new());
    while !text.contains("\n3000 bytes") {
        // Until it has seen all of the input.
        signal(&child, Signal::USR1);
        while !line.contains("copied") {
            line.clear();
            assert_ne!(errors.read_line(&mut line).unwrap(), 0, "{text}");
            text.push_str(&line);
        }
        line.clear();
    }
    let before = text.len();
    drop(input);
    errors.read_to_string(&mut text).unwrap();
    assert_status(&wait(child), 0);
    assert_eq!(text[before..].matches("records in").count(), 1, "{text}");
}

#[test]
fn usr1_is_answered_while_a_block_waits_for_its_reader() {
    let mut child = piped(pdio().args(["dd", "if=/dev/zero", "bs=1M", "count=2"]));
    let mut output = child.stdout.take().unwrap();
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    // More than a pipe has room for.
    until(|| rustix::io::ioctl_fionread(&output).is_ok_and(|there| there > 0));
    let mut text = String::new();
    for _ in 0..2 {
        signal(&child, Signal::USR1);
        let mut line = String::new();
        while !line.contains("copied") {
            line.clear();
            assert_ne!(errors.read_line(&mut line).unwrap(), 0, "{text}");
            text.push_str(&line);
        }
    }
    assert!(
        text.starts_with("1+0 records in\n0+0 records out\n0 bytes copied"),
        "{text}"
    );
    let mut all = Vec::new();
    output.read_to_end(&mut all).unwrap();
    assert!(all == vec![0; 2 << 20]);
    text.clear();
    errors.read_to_string(&mut text).unwrap();
    assert_status(&wait(child), 0);
    assert!(
        text.starts_with("2+0 records in\n2+0 records out\n"),
        "{text}"
    );
}

#[test]
fn blocks_of_dev_zero_are_whole_whatever_interrupts_the_reads() {
    // Once more where the command had ended before this process got to its first signal.
    let mut interrupted = false;
    while !interrupted {
        let mut child =
            piped(pdio().args(["dd", "if=/dev/zero", "of=/dev/null", "bs=32M", "count=100"]));
        let mut errors = child.stderr.take().unwrap();
        let reader = std::thread::spawn(move || {
            let mut text = String::new();
            errors.read_to_string(&mut text).unwrap();
            text
        });
        while child.try_wait().unwrap().is_none() {
            if catches(&child, Signal::USR1) {
                signal(&child, Signal::USR1);
            }
            std::thread::sleep(std::time::Duration::from_micros(300));
        }
        let text = reader.join().unwrap();
        let last = text.rsplit("records in").nth(1).unwrap();
        assert!(last.ends_with("100+0 "), "{text}");
        interrupted = text.matches("records in").count() > 1;
    }
}

#[test]
fn what_has_no_offset_is_read_and_written() {
    let home = home();
    let Some(events) = Events::new(home.path()) else {
        return;
    };
    let from = home.path().join("in");
    fs::write(&from, "a message").unwrap();
    let marker = format!("of={}/trace_marker", events.at.display());
    let output = dd(&[&format!("if={}", from.display()), &marker]);
    assert_status(&output, 0);
    assert!(
        stderr(&output).contains("\n9 bytes copied"),
        "{}",
        stderr(&output)
    );
    // There more is waited for.
    let input = format!("if={}/trace_pipe", events.at.display());
    let mut child = piped(pdio().args(["dd", "bs=4k", &input]));
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert!(line.ends_with(": a message\n"), "{line}");
    signal(&child, Signal::INT);
    assert_status(&wait(child), 130);
}

#[test]
fn a_message_of_the_kernel_is_a_block() {
    if fs::File::open("/dev/kmsg").is_err() {
        eprintln!("skipped: may not read /dev/kmsg");
        return;
    }
    // Of what is left of a block it says that it is too short.
    let output = dd(&["if=/dev/kmsg", "bs=8k", "count=2", "iflag=nonblock"]);
    assert_status(&output, 0);
    let said = stderr(&output);
    assert!(said.contains("0+2 records in\n0+2 records out\n"), "{said}");
}

#[test]
fn json_statistics_go_to_standard_error() {
    let output = dd(&["--json", "if=/dev/zero", "bs=1k", "count=3"]);
    assert_status(&output, 0);
    assert_eq!(output.stdout, [0; 3072]);
    let value: serde_json::Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!(value["bytes"], 3072);
    assert_eq!(value["records_out"]["full"], 3);
    assert_eq!(value["error"], serde_json::Value::Null);
}

#[test]
fn a_progress_line_that_cannot_be_written_ends_nothing() {
    let home = home();
    let path = home.path().join("out");
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let mut child = pdio()
        .args(["dd", &format!("of={}", path.display())])
        .args(["bs=1k", "status=progress"])
        .stdin(Stdio::piped())
        .stderr(full)
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let blocks = 3;
    for n in 0..blocks {
        if n > 0 {
            // A line is due each second.
            std::thread::sleep(std::time::Duration::from_millis(1100));
        }
        // The failure shows in the status.
        let _ = input.write_all(&[7; 1024]);
    }
    drop(input);
    assert_status(&wait(child), 0);
    assert_eq!(fs::read(&path).unwrap(), vec![7; blocks * 1024]);
}

#[test]
fn an_interrupt_ends_the_wait_for_the_other_end_of_a_fifo() {
    let home = home();
    let (fifo, file) = fifo_and_file(home.path());
    for (from, to) in [(&fifo, &file), (&file, &fifo)] {
        let operands = [
            format!("if={}", from.display()),
            format!("of={}", to.display()),
        ];
        let child = piped(pdio().arg("dd").args(&operands));
        until_it_catches(&child, Signal::USR1);
        // Statistics end no wait.
        signal(&child, Signal::USR1);
        signal(&child, Signal::INT);
        assert_status(&wait(child), 130);
        assert_eq!(fs::read(&file).unwrap(), b"kept");
    }
    // With another end it is what it was.
    let operands = [
        format!("if={}", fifo.display()),
        format!("of={}", file.display()),
    ];
    let child = piped(pdio().arg("dd").args(&operands));
    fs::write(&fifo, "through").unwrap();
    assert_status(&wait(child), 0);
    assert_eq!(fs::read(&file).unwrap(), b"through");
}

#[test]
fn devices_that_can_seek_are_not_read_where_they_are_passed_over() {
    // To read that would take days.
    let mut child = piped(pdio().args(["dd", "if=/dev/zero", "bs=1M", "skip=1G", "count=1"]));
    drop(child.stdin.take());
    let mut data = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut data).unwrap();
    assert!(data == vec![0; 1 << 20]);
    assert_status(&wait(child), 0);
    // One register is 16 bytes, and anything else an error.
    let device = "/dev/cpu/0/cpuid";
    if !gnu() || fs::File::open(device).is_err() {
        eprintln!("skipped: no {device} to compare with");
        return;
    }
    for line in [
        "bs=16 skip=1 count=1",
        "bs=8 count=3 conv=noerror,sync",
        "bs=8 skip=2 count=3",
    ] {
        let line = format!("if={device} of=out {line}");
        compare(&line.split_whitespace().collect::<Vec<_>>(), None, &[]);
    }
}

#[test]
fn what_is_closed_is_neither_empty_nor_does_it_take_anything() {
    let home = home();
    let (from, to) = (home.path().join("from"), home.path().join("to"));
    fs::write(&from, "data").unwrap();
    fs::write(&to, "kept").unwrap();
    for (operand, path, fd, name) in [
        ("if", &from, 1, "standard output"),
        ("of", &to, 0, "standard input"),
    ] {
        let mut command = pdio();
        let command = command
            .arg("dd")
            .arg(format!("{operand}={}", path.display()));
        let output = without(command, fd).output().unwrap();
        assert_status(&output, 1);
        let text = stderr(&output);
        assert!(
            text.contains(name) && text.contains("Bad file descriptor"),
            "{text}"
        );
    }
    assert_eq!(fs::read(&to).unwrap(), b"kept");
}

#[test]
fn names_may_be_any_bytes() {
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;
    let home = home();
    let name = |letter: u8| OsString::from_vec(vec![letter, 0xff, b'=']);
    let (from, to) = (home.path().join(name(b'a')), home.path().join(name(b'b')));
    fs::write(&from, "data").unwrap();
    let operand = |name: &str, path: &std::path::Path| {
        let mut text = OsString::from(name);
        text.push(path);
        text
    };
    let output = pdio()
        .arg("dd")
        .args([operand("if=", &from), operand("of=", &to)])
        .output()
        .unwrap();
    assert_status(&output, 0);
    assert_eq!(fs::read(&to).unwrap(), b"data");
    // Where no name is meant they are refused, in one line.
    let output = pdio()
        .arg("dd")
        .arg(operand("bs=", &from))
        .output()
        .unwrap();
    assert_status(&output, 2);
}

#[test]
fn what_only_close_tells_is_a_failure_in_one_line() {
    let home = home();
    let (from, to) = (home.path().join("from"), home.path().join("to"));
    let data = pattern(300_000);
    fs::write(&from, &data).unwrap();
    for more in [
        &[][..],
        &["bs=1M", "conv=fsync"],
        &["oflag=append", "conv=notrunc", "bs=64k"],
    ] {
        // What is appended to is empty.
        let _ = fs::remove_file(&to);
        let mut command = pdio();
        command.args(["dd", "status=none"]).args(more);
        command.arg(format!("if={}", from.display()));
        command.arg(format!("of={}", to.display()));
        let output = closing_fails(&mut command, libc::EIO).output().unwrap();
        assert_status(&output, 1);
        let expected = format!(
            "pdio dd: closing output file '{}': Input/output error\n",
            to.display()
        );
        assert_eq!(stderr(&output), expected, "{more:?}");
        assert!(fs::read(&to).unwrap() == data);
    }
}
