// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pdio recv`: everything that came is in the file, and nobody is told it was all when it was not.

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use common::*;
use rustix::process::Signal;

/// Starts a receiver on a free port; returns it, its address, and the rest of its messages.
fn listen(arguments: &[&str], file: &Path) -> (Child, String, std::thread::JoinHandle<String>) {
    let mut child = pdio()
        .args(["recv", "--listen", "127.0.0.1:0"])
        .args(arguments)
        .arg(file)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    errors.read_line(&mut line).unwrap();
    let address = line
        .trim()
        .strip_prefix("listening on ")
        .unwrap()
        .to_string();
    let rest = std::thread::spawn(move || {
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut errors, &mut rest).unwrap();
        rest
    });
    (child, address, rest)
}

#[test]
fn a_connection_is_received_exactly() {
    let home = home();
    let path = home.path().join("file");
    fs::write(&path, pattern(40 << 20)).unwrap();
    let data = pattern(30_000_001);
    let (child, address, rest) = listen(&["--size", "30000001", "--sync", "--json"], &path);
    let mut sender = TcpStream::connect(address).unwrap();
    // In pieces that fit nothing.
    for piece in data.chunks(77_777) {
        sender.write_all(piece).unwrap();
    }
    drop(sender);
    let output = wait(child);
    let rest = rest.join().unwrap();
    assert_eq!(output.status.code(), Some(0), "{rest}");
    assert!(fs::read(&path).unwrap() == data);
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(value["received"], 30_000_001);
    assert_eq!(value["written"], 30_000_001);
    assert_eq!(
        (&value["complete"], &value["durable"]),
        (&true.into(), &true.into())
    );
}

#[test]
fn the_name_of_what_is_durable_is_so_too() {
    use rustix::fs::inotify;
    let home = home();
    let path = home.path().join("file");
    for (options, expected) in [(&["--sync"][..], 1), (&[], 0)] {
        // To sync a directory it has to be opened.
        let events = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
        inotify::add_watch(&events, home.path(), inotify::WatchFlags::OPEN).unwrap();
        let mut child = piped(
            pdio()
                .arg("recv")
                .args(options)
                .args(["-", "-q"])
                .arg(&path),
        );
        child.stdin.take().unwrap().write_all(b"data").unwrap();
        assert_status(&wait(child), 0);
        let mut memory = [std::mem::MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(&events, &mut memory);
        let mut opened = 0;
        while let Ok(event) = events.next() {
            opened += usize::from(event.file_name().is_none());
        }
        assert_eq!(opened, expected, "{options:?}");
    }
}

#[test]
fn a_killed_sender_is_an_error_and_what_came_is_kept() {
    let home = home();
    let path = home.path().join("file");
    let (child, address, rest) = listen(&["--size", "1M"], &path);
    let (host, port) = address.rsplit_once(':').unwrap();
    let script = format!("exec 3<>/dev/tcp/{host}/{port}; printf %0200000d 7 >&3; exec sleep 60");
    let mut sender = Command::new("bash").args(["-c", &script]).spawn().unwrap();
    until(|| fs::metadata(&path).is_ok_and(|m| m.len() == 200_000));
    sender.kill().unwrap();
    sender.wait().unwrap();
    assert_eq!(wait(child).status.code(), Some(1));
    let rest = rest.join().unwrap();
    assert!(
        rest.contains("closed after 200000 of 1048576 bytes"),
        "{rest}"
    );
    assert!(rest.contains("holds 200000 bytes"), "{rest}");
    assert_eq!(fs::metadata(&path).unwrap().len(), 200_000);
}

#[test]
fn a_reset_connection_is_an_error_without_a_size_too() {
    let home = home();
    let path = home.path().join("file");
    let (child, address, rest) = listen(&[], &path);
    let mut sender = TcpStream::connect(address).unwrap();
    sender.write_all(&[9; 1000]).unwrap();
    until(|| fs::metadata(&path).is_ok_and(|m| m.len() == 1000));
    // Closing now sends a reset instead of an end.
    rustix::net::sockopt::set_socket_linger(&sender, Some(std::time::Duration::ZERO)).unwrap();
    drop(sender);
    assert_eq!(wait(child).status.code(), Some(1));
    let rest = rest.join().unwrap();
    assert!(
        rest.contains("reset") && rest.contains("holds 1000 bytes"),
        "{rest}"
    );
}

#[test]
fn more_than_was_announced_is_an_error() {
    let home = home();
    let path = home.path().join("file");
    let mut child = piped(pdio().args(["recv", "--size", "10", "-"]).arg(&path));
    child.stdin.take().unwrap().write_all(&[1; 11]).unwrap();
    let output = wait(child);
    assert_status(&output, 1);
    assert!(
        stderr(&output).contains("11 of 10 bytes"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn a_pipe_is_received_exactly() {
    let home = home();
    let path = home.path().join("file");
    let data = pattern(9_000_001);
    let mut child = piped(pdio().arg("recv").arg(&path));
    child.stdin.take().unwrap().write_all(&data).unwrap();
    let output = wait(child);
    assert_status(&output, 0);
    assert!(stderr(&output).starts_with("9000001 bytes (9.0 MB, 8.6 MiB) copied, "));
    assert!(fs::read(&path).unwrap() == data);
}

#[test]
fn silence_ends_with_a_timeout_and_an_interrupt_with_130() {
    let home = home();
    let path = home.path().join("file");
    // Nobody connects; and a pipe is there before the command, however slow this process is.
    let (child, _, rest) = listen(&["--timeout", "200ms"], &path);
    assert_eq!(wait(child).status.code(), Some(1));
    let rest = rest.join().unwrap();
    assert!(rest.contains("no connection for 0.2 s"), "{rest}");

    let mut child = piped(pdio().args(["recv", "--timeout", "200ms"]).arg(&path));
    let _sender = child.stdin.take().unwrap();
    let output = wait(child);
    assert_status(&output, 1);
    let text = stderr(&output);
    assert!(text.contains("nothing came for 0.2 s; "), "{text}");

    let (child, address, rest) = listen(&[], &path);
    let mut sender = TcpStream::connect(address).unwrap();
    sender.write_all(&[9; 1000]).unwrap();
    until(|| fs::metadata(&path).is_ok_and(|m| m.len() == 1000));
    signal(&child, Signal::INT);
    assert_status(&wait(child), 130);
    let rest = rest.join().unwrap();
    assert!(
        rest.contains("interrupted; ") && rest.contains("holds 1000 bytes"),
        "{rest}"
    );
}

#[test]
fn two_signals_at_once_are_one_request_to_end() {
    let home = home();
    let path = home.path().join("file");
    let mut child = piped(pdio().arg("recv").arg(&path));
    let data = pattern(3_000_000);
    child.stdin.as_mut().unwrap().write_all(&data).unwrap();
    until(|| fs::metadata(&path).is_ok_and(|m| m.len() > 0));
    // To a process that stands still, so that both arrive together however slow this one is.
    signal(&child, Signal::STOP);
    until(|| state(&child) == Some('T'));
    signal(&child, Signal::TERM);
    signal(&child, Signal::HUP);
    signal(&child, Signal::CONT);
    let stdin = child.stdin.take();
    let output = wait(child);
    drop(stdin);
    // The kernel delivers the one with the lower number first.
    assert!(matches!(shell_status(&output), Some(129 | 143)));
    let text = stderr(&output);
    let there = fs::read(&path).unwrap();
    assert!(data.starts_with(&there));
    let holds = format!(
        "interrupted; '{}' holds {} bytes",
        path.display(),
        there.len()
    );
    assert!(text.contains(&holds), "{text}");
}

#[test]
fn a_full_disk_is_an_error_that_says_how_much_is_there() {
    let home = home();
    let Some(small) = Tmpfs::mount(&home.path().join("small"), "size=1m") else {
        return;
    };
    let path = small.0.join("file");
    let mut child = piped(pdio().arg("recv").arg(&path));
    // The receiver may end before it has taken everything.
    let _ = child.stdin.take().unwrap().write_all(&pattern(3_000_000));
    let output = wait(child);
    assert_status(&output, 1);
    let text = stderr(&output);
    let there = fs::read(&path).unwrap();
    assert!(pattern(3_000_000).starts_with(&there));
    assert!(text.contains("No space left on device"), "{text}");
    assert!(
        text.contains(&format!("holds {} bytes", there.len())),
        "{text}"
    );
}

#[test]
fn what_cannot_be_asked_for_is_a_usage_error_and_touches_nothing() {
    let home = home();
    let path = home.path().join("file");
    fs::write(&path, "kept").unwrap();
    for arguments in [
        &["--listen", "127.0.0.1:0", "-"][..],
        &["--listen", "nowhere"],
        &["--listen", "127.0.0.1"],
        &["--listen", "127.0.0.1:"],
        &["--listen", ":9000"],
        &["--listen", "127.0.0.1:99999"],
        &["--timeout", "0"],
        &["--timeout", "5"],
        &["--size", "many"],
        &["other"],
        &["--unknown"],
    ] {
        let output = pdio()
            .arg("recv")
            .args(arguments)
            .arg(&path)
            .output()
            .unwrap();
        assert_status(&output, 2);
    }
    // An address of nobody's: only the system can tell.
    let output = pdio()
        .args(["recv", "--listen", "192.0.2.1:9000"])
        .arg(&path)
        .output()
        .unwrap();
    assert_status(&output, 1);
    assert!(
        stderr(&output).contains("cannot listen"),
        "{}",
        stderr(&output)
    );
    assert_eq!(fs::read(&path).unwrap(), b"kept");
}

#[test]
fn no_sender_is_waited_for_whose_data_could_not_be_written() {
    let home = home();
    let receive = |path: &Path| {
        pdio()
            .args(["recv", "--listen", "127.0.0.1:0", "--timeout", "10ms"])
            .arg(path)
            .output()
            .unwrap()
    };
    let refused = |path: &Path, why: &str| {
        let output = receive(path);
        assert_status(&output, 1);
        let line = format!("pdio recv: cannot create '{}': {why}\n", path.display());
        assert_eq!(stderr(&output), line);
    };
    refused(home.path(), "Is a directory");
    refused(
        &home.path().join("missing/file"),
        "No such file or directory",
    );
    if let Some(mount) = Tmpfs::mount(&home.path().join("ro"), "size=1m") {
        let (file, new) = (mount.0.join("file"), mount.0.join("new"));
        fs::write(&file, "kept").unwrap();
        mount.read_only();
        refused(&file, "Read-only file system");
        refused(&new, "Read-only file system");
    }
    // What can be written is not touched before there is anything to write.
    let (fifo, file) = fifo_and_file(home.path());
    let (new, link) = (home.path().join("new"), home.path().join("link"));
    std::os::unix::fs::symlink("nothing", &link).unwrap();
    for path in [&fifo, &file, &new, &link, Path::new("/dev/null")] {
        let output = receive(path);
        assert_status(&output, 1);
        let said = stderr(&output);
        assert!(said.contains("no connection for 0.01 s"), "{said}");
    }
    assert_eq!(fs::read(&file).unwrap(), b"kept");
    assert!(!new.exists() && !link.exists());
}

#[test]
fn what_cannot_be_received_empties_nothing() {
    let home = home();
    let path = home.path().join("file");
    fs::write(&path, "kept").unwrap();
    let recv = || {
        let mut command = pdio();
        command.arg("recv").arg(&path);
        command
    };
    let closed = without(&mut recv(), 0).output().unwrap();
    assert_status(&closed, 1);
    assert!(
        stderr(&closed).contains("standard input"),
        "{}",
        stderr(&closed)
    );
    let open = |path: &Path| fs::File::open(path).unwrap();
    let directory = recv().stdin(open(home.path())).output().unwrap();
    assert_status(&directory, 1);
    let other = fs::File::create(home.path().join("other")).unwrap();
    assert_status(&recv().stdin(other).output().unwrap(), 1);
    let same = recv().stdin(open(&path)).output().unwrap();
    assert_status(&same, 2);
    assert!(stderr(&same).contains("same file"), "{}", stderr(&same));
    assert_eq!(fs::read(&path).unwrap(), b"kept");
}

/// A `pdio recv` from one to the other.
fn receiving(from: &Path, to: &Path) -> std::process::Child {
    let mut command = pdio();
    let command = command.arg("recv").arg(to).stderr(Stdio::piped());
    let source = fs::File::open(from).unwrap();
    command.stdin(source).spawn().unwrap()
}

#[test]
fn an_interrupt_ends_the_wait_for_a_fifo_that_nobody_reads() {
    let home = home();
    let (fifo, file) = fifo_and_file(home.path());
    let child = receiving(&file, &fifo);
    until_it_catches(&child, Signal::TERM);
    signal(&child, Signal::INT);
    assert_status(&wait(child), 130);
}

#[test]
fn an_interrupt_ends_a_write_that_nobody_reads() {
    let home = home();
    let (fifo, file) = fifo_and_file(home.path());
    fs::write(&file, pattern(1 << 20)).unwrap();
    let reader = fs::File::options().read(true).write(true).open(&fifo);
    let reader = reader.unwrap();
    let child = receiving(&file, &fifo);
    until(|| rustix::io::ioctl_fionread(&reader).unwrap() > 0);
    signal(&child, Signal::INT);
    let output = wait(child);
    assert_status(&output, 130);
    let there = rustix::io::ioctl_fionread(&reader).unwrap();
    let said = stderr(&output);
    assert!(said.ends_with(&format!("holds {there} bytes\n")), "{said}");
}

#[test]
fn what_only_close_tells_is_a_failure_in_one_line() {
    let home = home();
    let (from, to) = (home.path().join("from"), home.path().join("to"));
    let data = pattern(300_000);
    fs::write(&from, &data).unwrap();
    let mut command = pdio();
    command.args(["recv", "-q", "-"]).arg(&to);
    command.stdin(fs::File::open(&from).unwrap());
    let output = closing_fails(&mut command, libc::ENOSPC).output().unwrap();
    assert_status(&output, 1);
    let expected = format!(
        "pdio recv: cannot write '{0}': No space left on device; '{0}' holds 300000 bytes\n",
        to.display()
    );
    assert_eq!(stderr(&output), expected);
    assert!(fs::read(&to).unwrap() == data);
}

#[test]
fn what_a_device_was_given_is_counted() {
    let home = home();
    let path = home.path().join("in");
    fs::write(&path, "abc").unwrap();
    let mut command = pdio();
    let command = command.args(["recv", "--json", "/dev/null"]);
    let output = command.stdin(fs::File::open(path).unwrap()).output();
    let output = output.unwrap();
    assert_status(&output, 0);
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&value["received"], &value["written"]),
        (&3.into(), &3.into())
    );
}
