// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pdio cp`: exact copies, and exact words about copies that are not.

mod common;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{symlink, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use common::*;
use rustix::io::Errno;
use rustix::process::Signal;

fn cp(arguments: &[&str], paths: &[&Path]) -> Output {
    pdio()
        .arg("cp")
        .args(arguments)
        .args(paths)
        .output()
        .unwrap()
}

#[test]
fn files_of_every_awkward_size_are_copied_exactly() {
    let home = home();
    let (from, to) = (home.path().join("from"), home.path().join("to"));
    for size in [
        0,
        1,
        511,
        512,
        513,
        4095,
        4096,
        4097,
        65_535,
        // Up to here at once.
        256 << 10,
        (256 << 10) + 1,
        1 << 20,
        (1 << 20) + 1,
        5_000_011,
        16 << 20,
    ] {
        let data = pattern(size);
        fs::write(&from, &data).unwrap();
        assert_status(&cp(&[], &[&from, &to]), 0);
        assert!(fs::read(&to).unwrap() == data, "{size}");
    }
}

#[test]
fn a_file_that_is_longer_than_it_was_said_to_be_is_copied_whole() {
    // The kernel says zero bytes of such files.
    let long = Path::new("/proc/kallsyms");
    let Ok(data) = fs::read(long) else {
        println!("skipped: there is no /proc/kallsyms here");
        return;
    };
    if data.len() < 1 << 20 {
        println!("skipped: /proc/kallsyms is short here");
        return;
    }
    let home = home();
    let to = home.path().join("to");
    // It changes when somebody loads a module meanwhile.
    let same = (0..10).any(|_| {
        let before = fs::read(long).unwrap();
        assert_status(&cp(&[], &[long, &to]), 0);
        let copied = fs::read(&to).unwrap();
        copied == before || copied == fs::read(long).unwrap()
    });
    assert!(same);
}

#[test]
fn a_file_without_an_offset_is_copied_as_it_comes() {
    let home = home();
    let Some(events) = Events::new(home.path()) else {
        return;
    };
    let (from, to) = (events.at.join("trace_pipe"), home.path().join("to"));
    let mut marker = File::options()
        .write(true)
        .open(events.at.join("trace_marker"))
        .unwrap();
    // More than is copied at once.
    for i in 0..500 {
        marker.write_all(format!("{i:0900}").as_bytes()).unwrap();
    }
    let child = piped(pdio().arg("cp").args([&from, &to]));
    until(|| fs::read_to_string(&to).is_ok_and(|text| text.ends_with("0499\n")));
    // There more is waited for.
    signal(&child, Signal::INT);
    assert_status(&wait(child), 130);
    assert_eq!(fs::read_to_string(&to).unwrap().lines().count(), 500);
}

#[test]
fn overwriting_a_larger_file_leaves_nothing_of_it() {
    let home = home();
    let (from, to) = (home.path().join("from"), home.path().join("to"));
    fs::write(&from, b"short").unwrap();
    fs::write(&to, pattern(3 << 20)).unwrap();
    assert_status(&cp(&["--sync"], &[&from, &to]), 0);
    assert_eq!(fs::read(&to).unwrap(), b"short");
}

#[test]
fn holes_stay_holes_at_the_front_in_between_and_at_the_end() {
    let home = home();
    let (from, to) = (home.path().join("from"), home.path().join("to"));
    let file = File::create(&from).unwrap();
    file.write_all_at(&pattern(100_000), 8 << 20).unwrap();
    file.write_all_at(&pattern(3), (20 << 20) + 77).unwrap();
    file.set_len((64 << 20) + 5).unwrap();
    assert_status(&cp(&[], &[&from, &to]), 0);
    assert!(fs::read(&to).unwrap() == fs::read(&from).unwrap());
    let (theirs, ours) = (fs::metadata(&from).unwrap(), fs::metadata(&to).unwrap());
    assert!(
        ours.blocks() <= theirs.blocks() + 64,
        "{} {}",
        ours.blocks(),
        theirs.blocks()
    );
    // Nothing but a hole.
    File::create(&from).unwrap().set_len(1 << 30).unwrap();
    assert_status(&cp(&[], &[&from, &to]), 0);
    let about = fs::metadata(&to).unwrap();
    assert_eq!((about.len(), about.blocks()), (1 << 30, 0));
}

#[test]
fn a_sparse_file_that_grows_is_copied_without_zeros_of_its_own() {
    let home = home();
    let (from, to) = (home.path().join("from"), home.path().join("to"));
    let hole = 4 << 20;
    for _ in 0..60 {
        let file = File::create(&from).unwrap();
        file.set_len(hole).unwrap();
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for block in 0.. {
                    if ended.load(Ordering::Relaxed) {
                        break;
                    }
                    file.write_all_at(&[0xaa; 512], hole + block * 512).unwrap();
                }
            });
            let output = cp(&[], &[&from, &to]);
            ended.store(true, Ordering::Relaxed);
            assert_status(&output, 0);
        });
        let copied = fs::read(&to).unwrap();
        assert!(copied.len() >= hole as usize);
        assert!(copied[hole as usize..].iter().all(|&byte| byte == 0xaa));
    }
}

#[test]
fn mode_and_times_are_kept_with_p_and_the_mode_is_the_sources_without() {
    let home = home();
    let (from, to) = (home.path().join("from"), home.path().join("to"));
    fs::write(&from, b"x").unwrap();
    fs::set_permissions(&from, fs::Permissions::from_mode(0o640)).unwrap();
    let then = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
    let times = fs::FileTimes::new().set_modified(then).set_accessed(then);
    File::options()
        .write(true)
        .open(&from)
        .unwrap()
        .set_times(times)
        .unwrap();
    assert_status(&cp(&[], &[&from, &to]), 0);
    let about = fs::metadata(&to).unwrap();
    assert_eq!(about.mode() & 0o7777, 0o640);
    assert_ne!(about.modified().unwrap(), then);
    fs::remove_file(&to).unwrap();
    fs::set_permissions(&from, fs::Permissions::from_mode(0o4711)).unwrap();
    assert_status(&cp(&["-p"], &[&from, &to]), 0);
    let about = fs::metadata(&to).unwrap();
    assert_eq!(about.mode() & 0o7777, 0o4711);
    assert_eq!(about.modified().unwrap(), then);
}

#[test]
fn trees_are_copied_with_links_and_modes_and_not_into_themselves() {
    let home = home();
    let (from, to) = (home.path().join("from"), home.path().join("to"));
    fs::create_dir_all(from.join("a/b")).unwrap();
    let long = "n".repeat(255);
    fs::write(from.join("a/b").join(&long), pattern(70_001)).unwrap();
    fs::write(from.join("a/ line\nbreak 'quote"), b"odd").unwrap();
    fs::write(from.join("empty"), b"").unwrap();
    symlink("a/b", from.join("link")).unwrap();
    symlink("nowhere", from.join("dangling")).unwrap();
    fs::set_permissions(from.join("a"), fs::Permissions::from_mode(0o555)).unwrap();

    let refused = cp(&[], &[&from, &to]);
    assert_status(&refused, 1);
    assert!(stderr(&refused).contains("-r"), "{}", stderr(&refused));
    assert!(!to.exists());

    assert_status(&cp(&["-rp", "--durable"], &[&from, &to]), 0);
    assert!(fs::read(to.join("a/b").join(&long)).unwrap() == pattern(70_001));
    assert_eq!(fs::read(to.join("a/ line\nbreak 'quote")).unwrap(), b"odd");
    assert_eq!(fs::read_link(to.join("link")).unwrap(), Path::new("a/b"));
    assert_eq!(
        fs::read_link(to.join("dangling")).unwrap(),
        Path::new("nowhere")
    );
    assert_eq!(fs::metadata(to.join("a")).unwrap().mode() & 0o777, 0o555);

    let new = home.path().join("new/");
    assert_status(&cp(&["-r"], &[&from.join("empty"), &new]), 2);
    assert_status(&cp(&["-r"], &[&from, &new]), 0);
    assert!(new.join("empty").exists());

    // Into an existing directory: under its own name.
    let output = cp(&["-r", "--json"], &[&from, &to]);
    assert_status(&output, 0);
    assert!(to.join("from/empty").exists());
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&value["files"], &value["directories"]),
        (&3.into(), &3.into())
    );
    assert_eq!(
        (&value["bytes"], &value["symbolic_links"]),
        (&70_004.into(), &2.into())
    );

    let inside = from.join("inside");
    fs::set_permissions(from.join("a"), fs::Permissions::from_mode(0o755)).unwrap();
    let refused = cp(&["-r"], &[&from, &inside]);
    assert_status(&refused, 1);
    assert!(
        stderr(&refused).contains("into itself"),
        "{}",
        stderr(&refused)
    );
    assert!(!inside.exists());
}

#[test]
fn a_tree_is_not_copied_into_itself_by_another_path() {
    let home = home();
    let (from, bound) = (home.path().join("from"), home.path().join("bound"));
    // Of a length at which an endless copy ends soon.
    let sub = "s".repeat(200);
    fs::create_dir_all(from.join(&sub)).unwrap();
    fs::create_dir(&bound).unwrap();
    if let Err(error) = rustix::mount::mount_bind(&from, &bound) {
        eprintln!("skipped: cannot bind a directory elsewhere: {error}");
        return;
    }
    let output = cp(&["-r"], &[&from, &bound.join(&sub).join("copy")]);
    rustix::mount::unmount(&bound, rustix::mount::UnmountFlags::DETACH).unwrap();
    assert_status(&output, 1);
    let said = stderr(&output);
    assert!(said.contains("into itself"), "{said}");
    assert!(!from
        .join(&sub)
        .join("copy")
        .join(&sub)
        .join("copy")
        .exists());
}

#[test]
fn a_file_is_not_copied_onto_itself_nor_one_source_onto_another() {
    let home = home();
    let from = home.path().join("from");
    fs::write(&from, b"precious").unwrap();
    let linked = home.path().join("linked");
    symlink("from", &linked).unwrap();
    for to in [&from, &linked] {
        let output = cp(&[], &[&from, to]);
        assert_status(&output, 1);
        assert!(stderr(&output).contains("same file"), "{}", stderr(&output));
        assert_eq!(fs::read(&from).unwrap(), b"precious");
    }
    let (other, into) = (home.path().join("other"), home.path().join("into"));
    fs::create_dir_all(&other).unwrap();
    fs::create_dir(&into).unwrap();
    fs::write(other.join("from"), b"second").unwrap();
    let output = cp(&[], &[&from, &other.join("from"), &into]);
    assert_status(&output, 1);
    assert!(stderr(&output).contains("just made"), "{}", stderr(&output));
    assert_eq!(fs::read(into.join("from")).unwrap(), b"precious");
}

#[test]
fn nothing_is_written_through_a_link_to_nothing() {
    let home = home();
    let (from, link) = (home.path().join("from"), home.path().join("link"));
    fs::write(&from, b"x").unwrap();
    symlink("nowhere", &link).unwrap();
    let output = cp(&[], &[&from, &link]);
    assert_status(&output, 1);
    assert!(
        stderr(&output).contains("link to nothing"),
        "{}",
        stderr(&output)
    );
    assert!(!home.path().join("nowhere").exists());
}

#[test]
fn directories_without_write_permission_are_filled_and_get_their_mode() {
    let home = home();
    let (from, to) = (home.path().join("from"), home.path().join("to"));
    fs::create_dir(&from).unwrap();
    fs::write(from.join("file"), b"x").unwrap();
    fs::set_permissions(&from, fs::Permissions::from_mode(0o500)).unwrap();
    assert_status(&cp(&["-r"], &[&from, &to]), 0);
    assert_eq!(fs::read(to.join("file")).unwrap(), b"x");
    assert_eq!(fs::metadata(&to).unwrap().mode() & 0o777, 0o500);
}

#[test]
fn a_full_disk_names_the_incomplete_file_and_the_others_are_still_copied() {
    let home = home();
    let Some(small) = Tmpfs::mount(&home.path().join("small"), "size=1m") else {
        return;
    };
    let (large, little) = (home.path().join("large"), home.path().join("little"));
    fs::write(&large, pattern(3_000_000)).unwrap();
    fs::write(&little, b"").unwrap();
    let output = cp(&[], &[&large, &little, &small.0]);
    assert_status(&output, 1);
    let text = stderr(&output);
    assert!(text.contains("No space left on device"), "{text}");
    assert!(
        text.contains("/large' is incomplete: ") && text.contains("of 3000000 bytes"),
        "{text}"
    );
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(small.0.join("little").exists());
    let there = fs::read(small.0.join("large")).unwrap();
    assert!(pattern(3_000_000).starts_with(&there));
    assert!(
        text.contains(&format!("incomplete: {} of", there.len())),
        "{text}"
    );
}

#[test]
fn of_a_write_that_is_cut_short_the_part_that_was_written_is_said() {
    let home = home();
    let [from, to] = ["from", "to"].map(|name| home.path().join(name));
    let data = pattern(3_000_000);
    fs::write(&from, &data).unwrap();
    // In the first write to the file, and in a later one.
    for limit in [8192, 1_024_000] {
        let mut command = pdio();
        command.args(["cp", "--json"]).args([&from, &to]);
        let output = with_file_limit(&mut command, limit).output().unwrap();
        assert_status(&output, 1);
        let text = stderr(&output);
        let end = format!("is incomplete: {limit} of 3000000 bytes\n");
        assert!(text.ends_with(&end), "{text}");
        assert_eq!(fs::read(&to).unwrap(), data[..limit as usize]);
        let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(value["bytes"], limit);
    }
}

#[test]
fn a_read_only_target_is_an_error_in_one_line() {
    let home = home();
    let Some(mount) = Tmpfs::mount(&home.path().join("ro"), "size=1m") else {
        return;
    };
    mount.read_only();
    let from = home.path().join("from");
    fs::write(&from, b"x").unwrap();
    let output = cp(&["-r"], &[&from, &mount.0]);
    assert_status(&output, 1);
    let text = stderr(&output);
    assert!(
        text.contains("cannot create") && text.contains("Read-only file system"),
        "{text}"
    );
    assert_eq!(text.lines().count(), 1, "{text}");
}

#[test]
fn an_interrupt_names_the_incomplete_file_and_removes_nothing() {
    let home = home();
    let (fifo, to) = (home.path().join("fifo"), home.path().join("to"));
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RWXU).unwrap();
    let child = pdio()
        .arg("cp")
        .args([&fifo, &to])
        .stderr(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut feeder = File::options().write(true).open(&fifo).unwrap();
    std::io::Write::write_all(&mut feeder, &[5; 5000]).unwrap();
    until(|| fs::metadata(&to).is_ok_and(|m| m.len() == 5000));
    signal(&child, Signal::INT);
    let output = wait(child);
    assert_status(&output, 130);
    assert!(
        stderr(&output).contains("is incomplete: 5000 bytes"),
        "{}",
        stderr(&output)
    );
    assert_eq!(fs::read(&to).unwrap(), [5; 5000]);
}

#[test]
fn how_much_of_what_is_no_file_was_copied_is_said_as_far_as_it_is_known() {
    let home = home();
    let (fifo, file) = fifo_and_file(home.path());
    // A source without a size.
    let child = piped(pdio().arg("cp").args([&fifo, &file]));
    let mut feeder = File::options().write(true).open(&fifo).unwrap();
    std::io::Write::write_all(&mut feeder, &[5; 5000]).unwrap();
    until(|| fs::metadata(&file).is_ok_and(|m| m.len() == 5000));
    signal(&child, Signal::INT);
    let text = stderr(&wait(child));
    assert!(text.ends_with("is incomplete: 5000 bytes\n"), "{text}");
    // A target without one, whose reader goes when it has this much.
    let (len, much) = (40 << 20, 20 << 20);
    fs::write(&file, pattern(len)).unwrap();
    let child = piped(pdio().arg("cp").args([&file, &fifo]));
    let mut reader = File::open(&fifo).unwrap();
    std::io::Read::read_exact(&mut reader, &mut vec![0; much]).unwrap();
    drop(reader);
    let output = wait(child);
    assert_status(&output, 1);
    let text = stderr(&output);
    let said = text.trim_end().strip_suffix(&format!(" of {len} bytes"));
    let has = said.and_then(|said| said.rsplit(' ').next()?.parse::<usize>().ok());
    assert!(has.is_some_and(|has| (1..len).contains(&has)), "{text}");
}

#[test]
fn of_a_device_no_more_is_said_to_be_copied_than_it_has() {
    let home = home();
    let from = home.path().join("from");
    // No multiple of what is written at a time.
    const SIZE: usize = (20 << 20) - 512 * 1890;
    let disk = Disk::new(home.path(), SIZE, &[]);
    let disk = disk.as_ref().map(|disk| (disk.0.as_str(), SIZE));
    for (name, size) in disk.into_iter().chain([("/dev/full", 0)]) {
        let len = 30 << 20;
        fs::write(&from, pattern(len)).unwrap();
        let output = cp(&["--json"], &[&from, Path::new(name)]);
        assert_status(&output, 1);
        let said = stderr(&output);
        let end = format!("'{name}' is incomplete: {size} of {len} bytes\n");
        assert!(said.ends_with(&end), "{said}");
        let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(value["bytes"], size);
    }
}

#[test]
fn a_copy_of_what_has_grown_is_incomplete_all_the_same() {
    let home = home();
    let (fifo, file) = fifo_and_file(home.path());
    fs::write(&file, pattern(1000)).unwrap();
    let child = piped(pdio().arg("cp").args([&file, &fifo]));
    // It has looked at the file when it has that open, and waits for a reader.
    let has_it = |fd: fs::DirEntry| fs::read_link(fd.path()).is_ok_and(|name| name == file);
    let opened = format!("/proc/{}/fd", child.id());
    until(|| {
        fs::read_dir(&opened)
            .unwrap()
            .any(|fd| fd.is_ok_and(has_it))
    });
    let grown = File::options().write(true).open(&file).unwrap();
    grown.set_len(40 << 20).unwrap();
    let mut reader = File::open(&fifo).unwrap();
    std::io::Read::read_exact(&mut reader, &mut vec![0; 20 << 20]).unwrap();
    drop(reader);
    let output = wait(child);
    assert_status(&output, 1);
    let text = stderr(&output);
    let said = text.trim_end().strip_suffix(" bytes");
    let has = said.and_then(|said| said.rsplit_once("is incomplete: ")?.1.parse::<u64>().ok());
    assert!(
        has.is_some_and(|has| (20 << 20..40 << 20).contains(&has)),
        "{text}"
    );
}

#[test]
fn without_a_destination_nothing_is_copied() {
    let home = home();
    let from = home.path().join("from");
    fs::write(&from, b"x").unwrap();
    let one = format!("missing destination after '{}'", from.display());
    for (paths, what) in [(&[][..], "missing operand"), (&[from.as_path()], &one)] {
        let output = cp(&["-a"], paths);
        assert_status(&output, 2);
        let said = format!("pdio cp: {what}\nTry 'pdio cp --help'.\n");
        assert_eq!(stderr(&output), said);
    }
}

#[test]
fn missing_sources_and_sockets_to_be_read_are_errors() {
    let home = home();
    let (file, to) = (home.path().join("file"), home.path().join("to"));
    fs::write(&file, b"x").unwrap();
    let socket = home.path().join("socket");
    std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let output = cp(&[], &[&socket, &to]);
    assert_status(&output, 1);
    assert_eq!(stderr(&output).lines().count(), 1);
    assert!(stderr(&output).contains("is a socket: not copied without -r"));
    assert_status(&cp(&[], &[&home.path().join("missing"), &to]), 1);
    assert_status(&cp(&[], &[&file, &file, &socket]), 2);
    assert_status(&cp(&[], &[&file]), 2);
    for paths in [[&file, Path::new("")], [Path::new(""), &file]] {
        let output = cp(&[], &paths);
        assert_status(&output, 2);
        assert_eq!(stderr(&output), "pdio cp: an empty name is no file\n");
    }
}

/// Makes a node, if whoever runs the tests may.
fn node(path: &Path, kind: rustix::fs::FileType, device: u64) -> bool {
    let mode = rustix::fs::Mode::from_raw_mode(0o640);
    rustix::fs::mknodat(rustix::fs::CWD, path, kind, mode, device).is_ok()
}

#[test]
fn fifos_sockets_and_devices_become_what_cp_makes_of_them() {
    use rustix::fs::FileType;
    let home = home();
    let tree = home.path().join("tree");
    fs::create_dir(&tree).unwrap();
    let mut names = vec!["fifo", "socket"];
    assert!(node(&tree.join("fifo"), FileType::Fifo, 0));
    assert!(node(&tree.join("socket"), FileType::Socket, 0));
    for (name, kind, device) in [
        ("null", FileType::CharacterDevice, rustix::fs::makedev(1, 3)),
        ("loop", FileType::BlockDevice, rustix::fs::makedev(7, 200)),
    ] {
        match node(&tree.join(name), kind, device) {
            true => names.push(name),
            false => eprintln!("skipped {name}: devices are root's to make"),
        }
    }
    fs::hard_link(tree.join("fifo"), tree.join("sub-fifo")).unwrap();
    let root = rustix::process::geteuid().is_root();
    for (i, name) in names.iter().enumerate() {
        let path = tree.join(name);
        if root {
            std::os::unix::fs::chown(&path, Some(1), Some(2)).unwrap();
        }
        let mode = fs::Permissions::from_mode(0o606 + (i as u32) * 0o10);
        fs::set_permissions(&path, mode).unwrap();
        let time = rustix::fs::Timespec {
            tv_sec: 1_000_000_000 + i as i64,
            tv_nsec: 5,
        };
        let times = rustix::fs::Timestamps {
            last_access: time,
            last_modification: time,
        };
        let no_flags = rustix::fs::AtFlags::empty();
        rustix::fs::utimensat(rustix::fs::CWD, &path, &times, no_flags).unwrap();
        let flags = rustix::fs::XattrFlags::empty();
        let kept = rustix::fs::lsetxattr(&path, "trusted.colour", b"blue", flags);
        // The root of a container may not set such ones.
        let refused = matches!(kept, Err(Errno::PERM | Errno::OPNOTSUPP));
        assert!(kept.is_ok() || refused, "{name}");
    }
    let (ours, theirs) = (home.path().join("ours"), home.path().join("theirs"));
    let devices = |root: &Path| -> Vec<u64> {
        let device = |name| fs::symlink_metadata(root.join(name)).unwrap().rdev();
        names.iter().map(device).collect()
    };
    let output = cp(&["-a", "-v", "--json"], &[&tree, &ours]);
    assert_status(&output, 0);
    assert_eq!(stderr(&output), "");
    let said = String::from_utf8(output.stdout).unwrap();
    let summary: serde_json::Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    assert_eq!(summary["special_files"], names.len());
    assert!(said.contains("tree/fifo' -> "), "{said}");
    coreutils_cp("-a", &tree, &theirs);
    assert_eq!(described(&ours), described(&theirs));
    assert_eq!(devices(&ours), devices(&theirs));
    // Again, over what has another mode.
    fs::set_permissions(ours.join("fifo"), fs::Permissions::from_mode(0o600)).unwrap();
    assert_status(&cp(&["-a"], &[&tree.join("."), &ours]), 0);
    assert_eq!(described(&ours), described(&theirs));
    // Without -p by the umask, as with cp.
    let (plain, theirs) = (home.path().join("plain"), home.path().join("cp-r"));
    assert_status(&cp(&["-r"], &[&tree, &plain]), 0);
    coreutils_cp("-r", &tree, &theirs);
    let mode = |root: &Path, name| fs::symlink_metadata(root.join(name)).unwrap().mode();
    for name in &names {
        assert_eq!(mode(&plain, name), mode(&theirs, name), "{name}");
    }
}

#[test]
fn a_fifo_takes_the_place_of_nothing_else() {
    let home = home();
    let fifo = home.path().join("fifo");
    assert!(node(&fifo, rustix::fs::FileType::Fifo, 0));
    let file = home.path().join("file");
    fs::write(&file, "data").unwrap();
    let link = home.path().join("link");
    symlink("file", &link).unwrap();
    for (to, reason) in [
        (&file, "cannot create FIFO"),
        (&link, "cannot create FIFO"),
        (&fifo, "are the same file"),
    ] {
        let output = cp(&["-a"], &[&fifo, to]);
        assert_status(&output, 1);
        assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
        assert!(stderr(&output).contains(reason), "{}", stderr(&output));
    }
    assert_eq!(fs::read(&file).unwrap(), b"data");
    // Nor is a second source written into what was made of the first.
    let (one, two, to) = (
        home.path().join("1"),
        home.path().join("2"),
        home.path().join("to"),
    );
    for directory in [&one, &two, &to] {
        fs::create_dir(directory).unwrap();
    }
    assert!(node(&one.join("x"), rustix::fs::FileType::Fifo, 0));
    fs::write(two.join("x"), "data").unwrap();
    for (first, second) in [(&one, &two), (&two, &one)] {
        let output = cp(&["-a"], &[&first.join("x"), &second.join("x"), &to]);
        assert_status(&output, 1);
        assert!(stderr(&output).contains("was just made from another source"));
        fs::remove_file(to.join("x")).unwrap();
    }
}

#[test]
fn a_source_that_is_named_twice_is_copied_once() {
    let home = home();
    let (tree, to) = (home.path().join("tree"), home.path().join("to"));
    fs::create_dir(&tree).unwrap();
    fs::create_dir(&to).unwrap();
    fs::write(tree.join("file"), "data").unwrap();
    let again = home.path().join("./tree");
    let output = cp(&["-r"], &[&tree, &again, &to]);
    assert_status(&output, 0);
    let said = stderr(&output);
    assert!(said.ends_with("is named twice, and copied once\n") && said.lines().count() == 1);
    assert_eq!(fs::read(to.join("tree/file")).unwrap(), b"data");
}

#[test]
fn without_the_right_to_make_a_device_one_line_says_so() {
    let home = home();
    let output = unprivileged_cp(home.path(), home.path(), &["-a", "/dev/null", "to"]);
    assert_status(&output, 1);
    let said = stderr(&output);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("cannot create device 'to': "), "{said}");
}

#[test]
fn a_directory_that_cannot_be_read_is_made_and_the_rest_is_copied() {
    let home = home();
    let tree = home.path().join("tree");
    fs::create_dir_all(tree.join("closed")).unwrap();
    fs::write(tree.join("closed/file"), "x").unwrap();
    fs::write(tree.join("open"), "x").unwrap();
    let mode = fs::Permissions::from_mode;
    fs::set_permissions(tree.join("closed"), mode(0)).unwrap();
    let output = unprivileged_cp(home.path(), home.path(), &["-a", "tree", "to"]);
    assert_status(&output, 1);
    let said = stderr(&output);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("read directory"), "{said}");
    let to = home.path().join("to");
    assert_eq!(fs::read(to.join("open")).unwrap(), b"x");
    let closed = to.join("closed");
    assert_eq!(fs::metadata(&closed).unwrap().mode() & 0o7777, 0);
    // Whoever is not root could not remove them.
    for directory in [&closed, &tree.join("closed")] {
        fs::set_permissions(directory, mode(0o700)).unwrap();
    }
    assert_eq!(fs::read_dir(&closed).unwrap().count(), 0);
}

/// The names are those of cp; only their order is ours.
#[test]
fn verbose_copies_say_what_cp_says() {
    let home = home();
    let tree = home.path().join("tree");
    fs::create_dir_all(tree.join("a/b")).unwrap();
    fs::write(tree.join("a/one"), "1").unwrap();
    fs::write(tree.join("a/b/two words"), "2").unwrap();
    symlink("one", tree.join("a/link")).unwrap();
    let said = |mut command: std::process::Command, to: &str| {
        fs::create_dir_all(home.path().join(to)).unwrap();
        let output = command
            .args(["-rv", "tree", to])
            .current_dir(home.path())
            .env("LC_ALL", "C")
            .output()
            .unwrap();
        assert_status(&output, 0);
        let text = String::from_utf8(output.stdout).unwrap();
        let mut lines: Vec<_> = text.lines().map(|line| line.replace(to, "TO")).collect();
        lines.sort();
        lines
    };
    let mut ours = pdio();
    ours.arg("cp");
    let lines = said(ours, "ours");
    assert_eq!(lines, said(std::process::Command::new("cp"), "theirs"));
    assert_eq!(lines.len(), 6);
    // Not a word without it.
    let output = cp(&["-r"], &[&tree, &home.path().join("silent")]);
    assert_status(&output, 0);
    assert!(output.stdout.is_empty());
}

/// Copies with the cp that people have, to compare with.
fn coreutils_cp(option: &str, from: &Path, to: &Path) {
    let output = std::process::Command::new("cp")
        .arg(option)
        .args([from, to])
        .output()
        .unwrap();
    assert_status(&output, 0);
}

/// What a tree is, file by file: kind and mode, owner, links, size, time, attributes.
fn described(root: &Path) -> Vec<String> {
    let output = std::process::Command::new("sh")
        .arg("-c")
        .arg("find . -printf '%P %y %m %U:%G %n %s %T@ %l\n' | sed 's/ [0-9]* \\([0-9.]* *\\)$/ \\1/' | sort; \
              getfattr -hRd -m - . 2>/dev/null | sort")
        .current_dir(root)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(str::to_owned).collect()
}

/// An access control list as it is stored: version 2, and rights of the owner (1), of user 1 (2), of the
/// group (4), the mask (0x10) and others (0x20).
fn access_list(rights: &[(u16, u16)]) -> Vec<u8> {
    let mut list = 2u32.to_le_bytes().to_vec();
    for &(tag, rights) in rights {
        list.extend(tag.to_le_bytes());
        list.extend(rights.to_le_bytes());
        list.extend(if tag == 2 { 1 } else { u32::MAX }.to_le_bytes());
    }
    list
}

#[test]
fn an_archive_is_what_cp_makes_of_it() {
    let home = home();
    let tree = home.path().join("tree");
    fs::create_dir_all(tree.join("sub")).unwrap();
    fs::write(tree.join("one"), pattern(70_000)).unwrap();
    fs::hard_link(tree.join("one"), tree.join("sub/two")).unwrap();
    fs::hard_link(tree.join("one"), tree.join("three")).unwrap();
    symlink("one", tree.join("link")).unwrap();
    fs::hard_link(tree.join("link"), tree.join("link2")).unwrap();
    fs::write(tree.join("alone"), "x").unwrap();
    let flags = rustix::fs::XattrFlags::empty();
    // Everybody may read, and user 1 write.
    let list = access_list(&[(1, 6), (2, 6), (4, 4), (0x10, 6), (0x20, 4)]);
    for (name, attribute, value) in [
        ("one", "user.colour", &b"blue"[..]),
        ("sub", "user.colour", b""),
        ("alone", "system.posix_acl_access", &list),
        ("sub", "system.posix_acl_default", &list),
    ] {
        rustix::fs::lsetxattr(tree.join(name), attribute, value, flags).unwrap();
    }
    let theirs = home.path().join("theirs");
    coreutils_cp("-a", &tree, &theirs);
    let ours = home.path().join("ours");
    assert_status(&cp(&["-a"], &[&tree, &ours]), 0);
    assert_eq!(described(&ours), described(&theirs));
    assert_eq!(fs::metadata(ours.join("three")).unwrap().nlink(), 3);
    let value = |root: &Path, name: &str, attribute: &str| {
        let mut value = vec![0u8; 1000];
        let len = rustix::fs::lgetxattr(root.join(name), attribute, &mut value[..]);
        len.map(|len| value[..len].to_vec())
    };
    for (name, attribute) in [
        ("one", "user.colour"),
        ("sub", "user.colour"),
        ("alone", "system.posix_acl_access"),
        ("sub", "system.posix_acl_default"),
    ] {
        let wanted = value(&tree, name, attribute).unwrap();
        assert_eq!(value(&ours, name, attribute), Ok(wanted), "{name}");
    }
    assert_eq!(fs::read(ours.join("sub/two")).unwrap(), pattern(70_000));
    // Again over what is there, also where a file or FIFO is in the way of a link.
    fs::remove_file(ours.join("three")).unwrap();
    fs::write(ours.join("three"), "in the way").unwrap();
    fs::remove_file(ours.join("link2")).unwrap();
    symlink("elsewhere", ours.join("link2")).unwrap();
    fs::remove_file(ours.join("link")).unwrap();
    fs::remove_file(ours.join("sub/two")).unwrap();
    rustix::fs::mkfifoat(
        rustix::fs::CWD,
        ours.join("sub/two"),
        rustix::fs::Mode::RWXU,
    )
    .unwrap();
    assert_status(&cp(&["-a"], &[&tree.join("."), &ours]), 0);
    assert_eq!(described(&ours), described(&theirs));
    // Also if the name is as long as names can be.
    let long = "z".repeat(255);
    fs::hard_link(tree.join("one"), tree.join(&long)).unwrap();
    fs::write(ours.join(&long), "in the way").unwrap();
    assert_status(&cp(&["-a"], &[&tree.join("."), &ours]), 0);
    assert_eq!(fs::metadata(ours.join(&long)).unwrap().nlink(), 4);
    fs::remove_file(ours.join(&long)).unwrap();
    fs::remove_file(tree.join(&long)).unwrap();
    // A list that the directory gives is not the file's.
    let inside = ours.join("sub/plain");
    fs::write(tree.join("plain"), "x").unwrap();
    assert_status(&cp(&["-a"], &[&tree.join("plain"), &inside]), 0);
    assert!(value(&ours, "sub/plain", "system.posix_acl_access").is_err());
    // Without -a each name is a file of its own, as before.
    let plain = home.path().join("copy");
    assert_status(&cp(&["-rp"], &[&tree, &plain]), 0);
    assert_eq!(fs::metadata(plain.join("three")).unwrap().nlink(), 1);
}

#[test]
fn short_ranges_of_sparse_files_are_copied_as_cp_does() {
    let home = home();
    let (from, to, theirs) = (
        home.path().join("from"),
        home.path().join("to"),
        home.path().join("theirs"),
    );
    let file = File::create(&from).unwrap();
    for i in 0..50u64 {
        let len = if i == 7 {
            9 << 20
        } else {
            1 + 4321 * i as usize
        };
        file.write_all_at(&pattern(len), i * (20 << 20) + 77 * i)
            .unwrap();
    }
    file.set_len(1 << 30).unwrap();
    assert_status(&cp(&[], &[&from, &to]), 0);
    coreutils_cp("--sparse=auto", &from, &theirs);
    let same = std::process::Command::new("cmp")
        .args([&from, &to])
        .status();
    assert!(same.unwrap().success());
    let blocks = |path| fs::metadata(path).unwrap().blocks();
    assert!(
        blocks(&to) <= blocks(&theirs) + 64,
        "{}, {}",
        blocks(&to),
        blocks(&theirs)
    );
}

/// Copies what `paths` are with our cp and with GNU's, each into a tree of its own that `make` makes.
/// Returns the two trees, whether GNU's said that all is well, and our output.
fn beside_gnu(
    home: &Path,
    arguments: &[&str],
    make: impl Fn(&Path),
    paths: &[&str],
) -> ([Vec<String>; 2], bool, Output) {
    let mut trees = [home.join("ours"), home.join("theirs")].map(|root| {
        fs::create_dir(&root).unwrap();
        make(&root);
        root
    });
    let mut ours = pdio();
    ours.arg("cp");
    let [ours, theirs] = [ours, std::process::Command::new("cp")].map(|mut command| {
        let root = if command.get_program() == "cp" {
            &trees[1]
        } else {
            &trees[0]
        };
        let command = command.args(arguments).args(paths).current_dir(root);
        command.env("LC_ALL", "C").output().unwrap()
    });
    let kinds = trees.each_mut().map(|root| {
        let output = std::process::Command::new("find")
            .args([".", "-printf", "%P %y %m %G %l\n"])
            .current_dir(&root)
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let mut lines: Vec<_> = text
            .lines()
            .map(|line| {
                let data = fs::read_to_string(root.join(line.split(' ').next().unwrap_or("")));
                format!("{line} {}", data.unwrap_or_default())
            })
            .collect();
        lines.sort();
        // So that everybody can remove it.
        let chmod = std::process::Command::new("chmod")
            .args(["-R", "u+rwx"])
            .arg(&root)
            .status();
        assert!(chmod.unwrap().success());
        fs::remove_dir_all(&root).unwrap();
        lines
    });
    (kinds, theirs.status.success(), ours)
}

#[test]
fn a_link_that_has_changed_is_copied_again() {
    let home = home();
    let (from, to) = (home.path().join("from"), home.path().join("to"));
    fs::create_dir_all(&from).unwrap();
    for target in ["one", "two"] {
        let _ = fs::remove_file(from.join("link"));
        symlink(target, from.join("link")).unwrap();
        let output = cp(&["-a"], &[&from.join("."), &to]);
        assert_status(&output, 0);
        assert_eq!(fs::read_link(to.join("link")).unwrap(), Path::new(target));
    }
    assert_eq!(fs::read_dir(&to).unwrap().count(), 1);
    // It takes the place of nothing else, nor of what another source has just made.
    fs::write(to.join("file"), "data").unwrap();
    symlink("three", home.path().join("file")).unwrap();
    let output = cp(&["-a"], &[&home.path().join("file"), &to]);
    assert_status(&output, 1);
    assert_eq!(fs::read(to.join("file")).unwrap(), b"data");
    symlink("four", home.path().join("link")).unwrap();
    let output = cp(
        &["-a"],
        &[&from.join("link"), &home.path().join("link"), &to],
    );
    assert_status(&output, 1);
    assert!(stderr(&output).contains("just made"), "{}", stderr(&output));
    assert_eq!(fs::read_link(to.join("link")).unwrap(), Path::new("two"));
}

#[test]
fn a_link_that_is_there_gets_the_time_of_its_source() {
    let home = home();
    let [one, two, to] = ["one", "two", "to"].map(|name| home.path().join(name));
    for (seconds, directory) in [(1_000_000_000, &one), (1_100_000_000, &two)] {
        fs::create_dir(directory).unwrap();
        symlink("target", directory.join("link")).unwrap();
        let time = rustix::fs::Timespec {
            tv_sec: seconds,
            tv_nsec: 0,
        };
        let times = rustix::fs::Timestamps {
            last_access: time,
            last_modification: time,
        };
        let no_follow = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
        let link = directory.join("link");
        rustix::fs::utimensat(rustix::fs::CWD, &link, &times, no_follow).unwrap();
    }
    fs::create_dir(&to).unwrap();
    symlink("target", to.join("link")).unwrap();
    let time = |directory: &Path| {
        fs::symlink_metadata(directory.join("link"))
            .unwrap()
            .mtime()
    };
    assert_status(&cp(&["-a"], &[&one.join("link"), &to]), 0);
    assert_eq!(time(&to), time(&one));
    // One that another source has just given it stays.
    assert_status(
        &cp(&["-a"], &[&two.join("link"), &one.join("link"), &to]),
        0,
    );
    assert_eq!(time(&to), time(&two));
}

#[test]
fn nothing_is_copied_through_a_link_of_another_source() {
    let home = home();
    // Two trees, in one of which a link is where the other has a file and a directory.
    let make = |root: &Path| {
        for directory in ["run", "h1/etc", "h2/etc", "h1/var", "h2/var/run", "dst"] {
            fs::create_dir_all(root.join(directory)).unwrap();
        }
        fs::set_permissions(root.join("run"), fs::Permissions::from_mode(0o1777)).unwrap();
        fs::write(root.join("run/x"), "kept").unwrap();
        fs::write(root.join("h2/etc/conf"), "second").unwrap();
        fs::write(root.join("h2/var/run/file"), "second").unwrap();
        symlink(root.join("run/x"), root.join("h1/etc/conf")).unwrap();
        symlink(root.join("run"), root.join("h1/var/run")).unwrap();
    };
    let kept = |tree: &[String]| {
        let outside = tree.iter().filter(|line| line.starts_with("run"));
        let names: Vec<_> = outside.map(|l| l.split(' ').next().unwrap()).collect();
        assert_eq!(names, ["run", "run/x"], "{tree:#?}");
        assert!(tree
            .iter()
            .any(|l| l.starts_with("run/x f") && l.ends_with(" kept")));
        assert!(
            tree.iter().any(|l| l.starts_with("run d 1777")),
            "{tree:#?}"
        );
    };
    let without_root = |trees: [Vec<String>; 2]| {
        trees.map(|tree| {
            let lines = tree.iter().map(|l| l.replace("/theirs/", "/ours/"));
            lines.collect::<Vec<_>>()
        })
    };
    for option in ["-a", "-r"] {
        // A file inside: GNU cp looks only at links that were named, and overwrites what run/x has.
        let (trees, _, output) =
            beside_gnu(home.path(), &[option], make, &["h1/etc", "h2/etc", "dst"]);
        assert_status(&output, 1);
        assert!(stderr(&output).contains("just made"), "{}", stderr(&output));
        kept(&trees[0]);
        // Again, where the link is there from before.
        let again = |root: &Path| {
            make(root);
            fs::create_dir(root.join("dst/etc")).unwrap();
            symlink(root.join("run/x"), root.join("dst/etc/conf")).unwrap();
        };
        let (trees, _, output) =
            beside_gnu(home.path(), &[option], again, &["h1/etc", "h2/etc", "dst"]);
        assert_status(&output, 1);
        kept(&trees[0]);
        // The rest as with GNU cp: a file that was named, a directory, the other order, and links that
        // are there.
        let there = |root: &Path| {
            make(root);
            fs::create_dir(root.join("dst/var")).unwrap();
            symlink(root.join("run"), root.join("dst/var/run")).unwrap();
        };
        let named = |root: &Path| {
            make(root);
            symlink(root.join("run"), root.join("dst/var")).unwrap();
        };
        type Made<'a> = (&'a dyn Fn(&Path), &'a [&'a str]);
        let all: [Made; 4] = [
            (&make, &["h1/etc/conf", "h2/etc/conf", "dst"]),
            (&make, &["h1/var", "h2/var", "dst"]),
            (&there, &["h2/var", "dst"]),
            (&named, &["h2/var", "dst"]),
        ];
        for (make, paths) in all {
            let (trees, well, output) = beside_gnu(home.path(), &[option], make, paths);
            assert_status(&output, 1);
            assert!(!well);
            kept(&trees[0]);
            let [ours, theirs] = without_root(trees);
            assert_eq!(ours, theirs, "{paths:?}");
        }
        // The destination itself may be a link.
        let target = |root: &Path| {
            make(root);
            fs::create_dir(root.join("there")).unwrap();
            symlink("there", root.join("link")).unwrap();
        };
        for paths in [["h2/var/.", "link"], ["h2/var", "link"]] {
            let (trees, well, output) = beside_gnu(home.path(), &[option], target, &paths);
            assert_status(&output, 0);
            assert!(well);
            let [ours, theirs] = without_root(trees);
            assert_eq!(ours, theirs, "{paths:?}");
        }
    }
}

/// `pdio cp` in a directory as somebody without rights, to whom `home` is given; as whoever runs the tests
/// if that is not root.
fn unprivileged_cp(home: &Path, directory: &Path, words: &[&str]) -> std::process::Output {
    let mut command = pdio();
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(home, Some(65534), Some(65534)).unwrap();
        // Where it was built others may not come.
        let program = home.join("pdio");
        copy_program(command.get_program(), &program);
        command = std::process::Command::new(program);
        std::os::unix::process::CommandExt::uid(&mut command, 65534);
        std::os::unix::process::CommandExt::gid(&mut command, 65534);
        command.env("PDIO_COSTS", "0");
    }
    command.arg("cp").args(words).current_dir(directory);
    command.output().unwrap()
}

#[test]
fn new_directories_keep_the_set_group_id_bit_of_their_parent() {
    let home = home();
    let root = rustix::process::geteuid().is_root();
    let make = |at: &Path| {
        fs::create_dir_all(at.join("tree/sub")).unwrap();
        fs::write(at.join("tree/sub/file"), "x").unwrap();
        fs::create_dir(at.join("dst")).unwrap();
        for (name, mode) in [("tree/sub", 0o755), ("tree", 0o500), ("dst", 0o2777)] {
            let path = at.join(name);
            if root && name == "dst" {
                std::os::unix::fs::chown(&path, None, Some(4242)).unwrap();
            }
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
    };
    let (trees, well, output) = beside_gnu(home.path(), &["-r"], make, &["tree", "dst"]);
    assert_status(&output, 0);
    assert!(well);
    assert_eq!(trees[0], trees[1]);
    let mut lines = trees[0].iter();
    assert!(lines.any(|l| l.starts_with("dst/tree/sub d 2755")));
    // Also of a group that the user does not belong to.
    make(home.path());
    let tree = home.path().join("tree");
    fs::set_permissions(&tree, fs::Permissions::from_mode(0o755)).unwrap();
    let output = unprivileged_cp(home.path(), home.path(), &["-r", "tree", "dst"]);
    assert_status(&output, 0);
    let about = |name: &str| fs::metadata(home.path().join(name)).unwrap();
    let group = about("dst").gid();
    for name in ["dst/tree", "dst/tree/sub"] {
        assert_eq!(
            (about(name).mode() & 0o7777, about(name).gid()),
            (0o2755, group)
        );
    }
    assert_eq!(about("dst/tree/sub/file").gid(), group);
}

#[test]
fn attributes_of_read_only_files_are_kept_for_users_without_rights() {
    let home = home();
    let from = home.path().join("from");
    fs::write(&from, "x").unwrap();
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::lsetxattr(&from, "user.colour", b"blue", flags).unwrap();
    fs::set_permissions(&from, fs::Permissions::from_mode(0o444)).unwrap();
    // Also where their directory lets nobody write what is made in it.
    fs::create_dir(home.path().join("given")).unwrap();
    fs::set_permissions(home.path().join("given"), fs::Permissions::from_mode(0o777)).unwrap();
    let list = access_list(&[(1, 5), (4, 5), (0x20, 5)]);
    let given = rustix::fs::lsetxattr(
        home.path().join("given"),
        "system.posix_acl_default",
        &list,
        flags,
    );
    for to in ["to", "given/to"] {
        if to != "to" && given.is_err() {
            continue;
        }
        let output = unprivileged_cp(home.path(), home.path(), &["-a", "from", to]);
        assert_status(&output, 0);
        let to = home.path().join(to);
        let mut value = [0u8; 100];
        let len = rustix::fs::lgetxattr(&to, "user.colour", &mut value[..]).unwrap();
        assert_eq!(&value[..len], b"blue");
        assert_eq!(fs::metadata(&to).unwrap().mode() & 0o7777, 0o444);
        assert_eq!(stderr(&output), "");
    }
}

#[test]
fn a_directory_that_its_owner_cannot_read_gets_what_its_source_has() {
    let home = home();
    for name in ["from", "to"] {
        fs::create_dir(home.path().join(name)).unwrap();
    }
    fs::write(home.path().join("from/file"), "x").unwrap();
    let to = home.path().join("to");
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&to, Some(65534), Some(65534)).unwrap();
    }
    fs::set_permissions(&to, fs::Permissions::from_mode(0o300)).unwrap();
    let output = unprivileged_cp(home.path(), home.path(), &["-rp", "from/.", "to"]);
    assert_status(&output, 0);
    let mode = |name: &str| fs::metadata(home.path().join(name)).unwrap().mode();
    assert_eq!(mode("to"), mode("from"));
    assert_eq!(fs::read(to.join("file")).unwrap(), b"x");
}

#[test]
fn attributes_are_kept_of_what_an_access_list_lets_nobody_write() {
    let home = home();
    // A tmpfs names lists before other attributes.
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let from = memory.path().join("from");
    fs::write(&from, "x").unwrap();
    let list = access_list(&[(1, 4), (2, 4), (4, 4), (0x10, 4), (0x20, 4)]);
    let attributes = [
        ("user.colour", &b"blue"[..]),
        ("system.posix_acl_access", &list),
    ];
    for (name, value) in attributes {
        let flags = rustix::fs::XattrFlags::empty();
        if let Err(error) = rustix::fs::lsetxattr(&from, name, value, flags) {
            eprintln!("skipped: a tmpfs takes no {name}: {error}");
            return;
        }
    }
    let everybody = fs::Permissions::from_mode(0o777);
    fs::set_permissions(memory.path(), everybody).unwrap();
    let output = unprivileged_cp(home.path(), memory.path(), &["-a", "from", "to"]);
    assert_status(&output, 0);
    assert_eq!(stderr(&output), "");
    for (name, wanted) in attributes {
        let mut value = [0u8; 100];
        let to = memory.path().join("to");
        let len = rustix::fs::lgetxattr(to, name, &mut value[..]).unwrap();
        assert_eq!(&value[..len], wanted, "{name}");
    }
}

#[test]
fn the_form_that_xfs_gives_its_access_lists_is_not_copied_as_an_attribute() {
    let home = home();
    let [from, to] = ["from", "to"].map(|name| home.path().join(name));
    fs::write(&from, "x").unwrap();
    let flags = rustix::fs::XattrFlags::empty();
    for name in ["trusted.SGI_ACL_FILE", "trusted.colour"] {
        // On XFS it would have to be a list.
        if let Err(error) = rustix::fs::lsetxattr(&from, name, b"blue", flags) {
            eprintln!("skipped: nobody may set {name} here: {error}");
            return;
        }
    }
    // XFS takes it, and then finds that it is no list.
    match rustix::fs::lgetxattr(&from, "system.posix_acl_access", &mut [0u8; 100][..]) {
        Ok(_) | Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
        Err(error) => return eprintln!("skipped: access lists are XFS' own here: {error}"),
    }
    assert_status(&cp(&["-a"], &[&from, &to]), 0);
    let kept = |name| rustix::fs::lgetxattr(&to, name, &mut [0u8; 100][..]).is_ok();
    assert!(kept("trusted.colour") && !kept("trusted.SGI_ACL_FILE"));
}

#[test]
fn a_copy_without_the_access_list_gives_the_group_no_more_than_that() {
    let home = home();
    let tree = home.path().join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("file"), "x").unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, tree.join("fifo"), rustix::fs::Mode::RWXU).unwrap();
    // User 1 may read, the group not; of the directory it may use what it knows by name.
    let file = access_list(&[(1, 6), (2, 4), (4, 0), (0x10, 4), (0x20, 0)]);
    let directory = access_list(&[(1, 7), (2, 5), (4, 1), (0x10, 5), (0x20, 0)]);
    let (name, flags) = ("system.posix_acl_access", rustix::fs::XattrFlags::empty());
    for (path, list) in [("file", &file), ("fifo", &file), (".", &directory)] {
        rustix::fs::lsetxattr(tree.join(path), name, list, flags).unwrap();
    }
    let modes = |root: &Path| {
        ["file", "fifo", "."].map(|path| fs::metadata(root.join(path)).unwrap().mode() & 0o7777)
    };
    assert_eq!(modes(&tree), [0o640, 0o640, 0o750]);
    for (option, wanted) in [
        ("-r", [0o600, 0o600, 0o710]),
        ("-rp", [0o600, 0o600, 0o710]),
        ("-a", [0o640, 0o640, 0o750]),
    ] {
        let copy = home.path().join(option);
        assert_status(&cp(&[option], &[&tree, &copy]), 0);
        assert_eq!(modes(&copy), wanted, "{option}");
    }
    // What keeps no lists, of which -a complains, and no other attributes, which is no failure.
    let Some(simple) = Tmpfs::mount_as("ramfs", &home.path().join("simple"), "") else {
        return;
    };
    let copy = simple.0.join("tree");
    let output = cp(&["-a"], &[&tree, &copy]);
    assert_status(&output, 1);
    let said = stderr(&output);
    assert_eq!(
        said.matches("cannot set system.posix_acl_access of")
            .count(),
        3,
        "{said}"
    );
    assert_eq!(modes(&copy), [0o600, 0o600, 0o710]);
    assert_eq!(fs::read(copy.join("file")).unwrap(), b"x");
    let time = |root: &Path| fs::metadata(root.join("file")).unwrap().modified().unwrap();
    assert_eq!(time(&copy), time(&tree));
    let plain = home.path().join("plain");
    fs::write(&plain, "x").unwrap();
    rustix::fs::lsetxattr(&plain, "user.colour", b"blue", flags).unwrap();
    assert_status(&cp(&["-a"], &[&plain, &simple.0]), 0);
}

/// The list of a directory, of which everything that is made in it gets one: user 1 may do everything.
fn giving_directory(path: &Path) -> bool {
    fs::create_dir(path).unwrap();
    let list = access_list(&[(1, 7), (2, 7), (4, 5), (0x10, 7), (0x20, 5)]);
    let flags = rustix::fs::XattrFlags::empty();
    let set = rustix::fs::lsetxattr(path, "system.posix_acl_default", &list, flags);
    if let Err(error) = set {
        eprintln!("skipped: no access control lists: {error}");
    }
    set.is_ok()
}

/// The lists of a file or directory.
fn lists(path: &Path) -> Vec<&'static str> {
    let mut lists = vec!["system.posix_acl_access", "system.posix_acl_default"];
    lists.retain(|name| rustix::fs::lgetxattr(path, *name, &mut [0u8; 1000][..]).is_ok());
    lists
}

#[test]
fn a_copy_with_its_mode_has_no_list_of_its_directory() {
    let home = home();
    let tree = home.path().join("tree");
    fs::create_dir_all(tree.join("sub")).unwrap();
    fs::write(tree.join("file"), "x").unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, tree.join("fifo"), rustix::fs::Mode::RWXU).unwrap();
    for (name, mode) in [("file", 0o640), ("fifo", 0o660), ("sub", 0o750)] {
        fs::set_permissions(tree.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    // Over files that are there as well, and without -p those lists hold, as with cp.
    for option in ["-p", "-rp", "-a", "-r", ""] {
        let ours = home.path().join(format!("ours{option}"));
        let theirs = home.path().join(format!("theirs{option}"));
        if !giving_directory(&ours) || !giving_directory(&theirs) {
            return;
        }
        let (options, from) = match option {
            "-p" => (&["-p"][..], tree.join("file")),
            "" => (&[][..], tree.join("file")),
            _ => (&[option][..], tree.clone()),
        };
        for _ in 0..2 {
            assert_status(&cp(options, &[&from, &ours]), 0);
            let gnu = std::process::Command::new("cp")
                .args(options)
                .args([&from, &theirs])
                .output();
            assert_status(&gnu.unwrap(), 0);
            let mut held = 0;
            for name in ["file", "tree", "tree/file", "tree/fifo", "tree/sub"] {
                let [ours, theirs] = [&ours, &theirs].map(|root| root.join(name));
                let Ok(about) = fs::metadata(&theirs) else {
                    continue;
                };
                assert_eq!(lists(&ours), lists(&theirs), "{option} {name}");
                assert_eq!(fs::metadata(&ours).unwrap().mode(), about.mode());
                held += lists(&ours).len();
            }
            assert_eq!(held > 0, ["-r", ""].contains(&option), "{option}");
        }
    }
}

#[test]
fn nobody_reads_by_a_list_of_its_directory_what_is_being_copied() {
    let home = home();
    let (fifo, to) = (home.path().join("fifo"), home.path().join("given/to"));
    if !giving_directory(&home.path().join("given")) {
        return;
    }
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RWXU).unwrap();
    fs::set_permissions(&fifo, fs::Permissions::from_mode(0o660)).unwrap();
    let child = piped(pdio().args(["cp", "-p"]).args([&fifo, &to]));
    let mut feeder = File::options().write(true).open(&fifo).unwrap();
    std::io::Write::write_all(&mut feeder, b"secret").unwrap();
    until(|| fs::metadata(&to).is_ok_and(|about| about.len() == 6));
    // The group's bits are the most that anybody has by the list.
    assert_eq!(lists(&to), ["system.posix_acl_access"]);
    assert_eq!(fs::metadata(&to).unwrap().mode() & 0o777, 0o600);
    drop(feeder);
    assert_status(&wait(child), 0);
    assert_eq!(lists(&to), [""; 0]);
    assert_eq!(fs::metadata(&to).unwrap().mode() & 0o777, 0o660);
}

#[test]
fn a_list_that_stays_gives_nobody_anything() {
    let home = home();
    let (from, given) = (home.path().join("from"), home.path().join("given"));
    fs::write(&from, "x").unwrap();
    fs::set_permissions(&from, fs::Permissions::from_mode(0o664)).unwrap();
    if !giving_directory(&given) {
        return;
    }
    for (option, call) in [
        ("-p", libc::SYS_fremovexattr),
        ("-a", libc::SYS_fremovexattr),
    ] {
        let to = given.join(option);
        let mut command = pdio();
        command.args(["cp", option]).args([&from, &to]);
        let output = refusing(&mut command, call, libc::EIO).output().unwrap();
        assert_status(&output, 1);
        let said = stderr(&output);
        assert!(
            said.contains("system.posix_acl_access of") && said.lines().count() == 1,
            "{said}"
        );
        assert_eq!(lists(&to), ["system.posix_acl_access"]);
        assert_eq!(fs::metadata(&to).unwrap().mode() & 0o777, 0o604);
        assert_eq!(fs::read(&to).unwrap(), b"x");
    }
}

#[test]
fn special_files_are_kept_also_without_proc_and_on_older_kernels() {
    let home = home();
    let tree = home.path().join("tree");
    fs::create_dir(&tree).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, tree.join("fifo"), rustix::fs::Mode::RWXU).unwrap();
    fs::set_permissions(tree.join("fifo"), fs::Permissions::from_mode(0o642)).unwrap();
    let kept = |to: &Path| {
        let [ours, theirs] = [to, &tree].map(|root| fs::metadata(root.join("fifo")).unwrap());
        assert_eq!(ours.mode(), theirs.mode());
        assert_eq!(ours.modified().unwrap(), theirs.modified().unwrap());
    };
    let to = home.path().join("older");
    let mut command = pdio();
    command.args(["cp", "-a"]).args([&tree, &to]);
    // fchmodat2(2), since Linux 6.6.
    let output = refusing(&mut command, 452, libc::ENOSYS).output().unwrap();
    assert_status(&output, 0);
    kept(&to);
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release
        .split(['.', '-'])
        .map_while(|n| n.parse::<u32>().ok());
    if (numbers.next(), numbers.next()) < (Some(6), Some(6)) {
        eprintln!("skipped: Linux {release} has no fchmodat2");
        return;
    }
    let script = "mount -t tmpfs none /proc && exec \"$0\" cp -a \"$1\" \"$2\"";
    let Some(mut command) = mounting(script) else {
        return;
    };
    let to = home.path().join("without");
    command.arg(pdio().get_program()).args([&tree, &to]);
    assert_status(&command.output().unwrap(), 0);
    kept(&to);
}

#[test]
fn an_owner_whom_a_container_does_not_know_is_not_kept() {
    let home = home();
    let (from, to) = (home.path().join("from"), home.path().join("to"));
    fs::write(&from, "x").unwrap();
    fs::set_permissions(&from, fs::Permissions::from_mode(0o604)).unwrap();
    // In one that knows nobody.
    let within = |program: &std::ffi::OsStr, arguments: &[&Path]| {
        let mut command = std::process::Command::new("unshare");
        let command = command.arg("--user").arg(program).args(arguments);
        command.env("PDIO_COSTS", "0").output()
    };
    if !within("true".as_ref(), &[]).is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: cannot make a user namespace");
        return;
    }
    let arguments = [Path::new("cp"), Path::new("-p"), &from, &to];
    let output = within(pdio().get_program(), &arguments);
    let output = output.unwrap();
    assert_status(&output, 0);
    assert_eq!(stderr(&output), "");
    assert_eq!(fs::metadata(&to).unwrap().mode() & 0o7777, 0o604);
}

#[test]
fn root_hears_of_an_owner_that_is_not_kept() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: only root gives files to others");
    }
    let home = home();
    let [from, to, link] = ["from", "to", "link"].map(|name| home.path().join(name));
    fs::write(&from, "x").unwrap();
    symlink("from", &link).unwrap();
    for path in [&from, &link] {
        std::os::unix::fs::lchown(path, Some(12_345), None).unwrap();
    }
    // In a container that does not know this owner.
    let within = |program: &std::ffi::OsStr, arguments: &[&Path]| {
        let mut command = std::process::Command::new("unshare");
        let command = command.args(["--user", "--map-root-user"]).arg(program);
        command.args(arguments).env("PDIO_COSTS", "0").output()
    };
    if !within("true".as_ref(), &[]).is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: cannot make a user namespace");
        return;
    }
    for source in [&from, &link] {
        let paths = [Path::new("-a"), source, &to];
        let theirs = within("cp".as_ref(), &paths).unwrap();
        assert_status(&theirs, 1);
        fs::remove_file(&to).unwrap();
        let ours = [&[Path::new("cp")], &paths[..]].concat();
        let output = within(pdio().get_program(), &ours).unwrap();
        assert_status(&output, 1);
        let said = stderr(&output);
        assert!(said.contains("cannot keep the owner of"), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert_eq!(fs::read(&to).unwrap(), b"x");
        fs::remove_file(&to).unwrap();
    }
}

#[test]
fn what_comes_from_a_fifo_is_durable_as_well() {
    let home = home();
    let (fifo, file) = fifo_and_file(home.path());
    let other = home.path().join("other");
    rustix::fs::mkfifoat(rustix::fs::CWD, &other, rustix::fs::Mode::RWXU).unwrap();
    // To a FIFO or /dev/null there is nothing to be made durable.
    for to in [file.as_path(), &other, Path::new("/dev/null")] {
        let reader = File::options().read(true).write(true).open(&other).unwrap();
        let child = piped(pdio().args(["cp", "--sync"]).arg(&fifo).arg(to));
        fs::write(&fifo, pattern(5000)).unwrap();
        assert_status(&wait(child), 0);
        drop(reader);
    }
    assert!(fs::read(&file).unwrap() == pattern(5000));
}

/// Has this process be told before others open a file, who wait for that; `None` where there are no leases.
fn leased(path: &Path) -> Option<File> {
    let holder = File::options().write(true).open(path).unwrap();
    // SAFETY: changes nothing but what becomes of the signal that says it is wanted, and the lease.
    let lease = unsafe {
        libc::signal(libc::SIGIO, libc::SIG_IGN);
        libc::fcntl(holder.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK)
    };
    if lease != 0 {
        eprintln!("skipped: no leases here");
        return None;
    }
    Some(holder)
}

#[test]
fn a_leased_file_of_a_tree_is_waited_for() {
    let home = home();
    let (from, to) = (home.path().join("from"), home.path().join("to"));
    fs::create_dir(&from).unwrap();
    fs::write(from.join("file"), b"leased").unwrap();
    let Some(holder) = leased(&from.join("file")) else {
        return;
    };
    let child = piped(pdio().args(["cp", "-r"]).args([&from, &to]));
    // SAFETY: changes nothing.
    until(|| unsafe { libc::fcntl(holder.as_raw_fd(), libc::F_GETLEASE) } != libc::F_WRLCK);
    std::thread::sleep(Duration::from_millis(200));
    // SAFETY: changes nothing but the lease.
    let back = unsafe { libc::fcntl(holder.as_raw_fd(), libc::F_SETLEASE, libc::F_UNLCK) };
    assert_eq!(back, 0);
    assert_status(&wait(child), 0);
    assert_eq!(fs::read(to.join("file")).unwrap(), b"leased");
}

#[test]
fn an_interrupt_ends_the_wait_for_the_other_end_of_a_fifo() {
    let home = home();
    let (fifo, file) = fifo_and_file(home.path());
    for paths in [[&fifo, &file], [&file, &fifo]] {
        let child = piped(pdio().arg("cp").args(paths));
        until_it_catches(&child, Signal::TERM);
        signal(&child, Signal::INT);
        assert_status(&wait(child), 130);
        assert_eq!(fs::read(&file).unwrap(), b"kept");
    }
}

#[test]
fn an_interrupt_ends_a_write_that_nobody_reads() {
    let home = home();
    let (fifo, file) = fifo_and_file(home.path());
    let reader = File::options().read(true).write(true).open(&fifo).unwrap();
    for len in [200_000, 1 << 20] {
        fs::write(&file, pattern(len)).unwrap();
        let other = home.path().join("other");
        let (screen, terminal) = terminal();
        let _ = fs::remove_file(&other);
        rustix::fs::mkfifoat(rustix::fs::CWD, &other, rustix::fs::Mode::RWXU).unwrap();
        for (from, to, reader) in [
            (&file, &fifo, &reader),
            (&file, &terminal, &screen),
            (&other, &fifo, &reader),
        ] {
            let child = piped(pdio().arg("cp").args([from, to]));
            if from == &other {
                // The command may end before it has taken everything.
                let (other, data) = (other.clone(), pattern(len));
                std::thread::spawn(move || fs::write(other, data));
            }
            until(|| rustix::io::ioctl_fionread(reader).unwrap() > 0);
            signal(&child, Signal::INT);
            let output = wait(child);
            assert_status(&output, 130);
            let there = rustix::io::ioctl_fionread(reader).unwrap();
            std::io::copy(&mut reader.take(there), &mut std::io::sink()).unwrap();
            let said = stderr(&output);
            // A terminal has more bytes at its other end: two for each end of a line.
            let holds = to == &terminal || said.contains(&format!("incomplete: {there} "));
            assert!(holds, "{there}: {said}");
        }
    }
}

#[test]
fn another_signal_ends_a_command_that_the_first_does_not() {
    let home = home();
    let (file, to) = (home.path().join("file"), home.path().join("to"));
    fs::write(&file, "leased").unwrap();
    let Some(_holder) = leased(&file) else { return };
    // It is waited for to be given back, in a call that begins anew after a handler.
    let child = piped(pdio().arg("cp").args([&file, &to]));
    until_it_catches(&child, Signal::TERM);
    until(|| {
        signal(&child, Signal::TERM);
        state(&child) == Some('Z')
    });
    assert_status(&wait(child), 143);
}

#[test]
fn hard_links_are_counted_apart_from_symbolic_links() {
    let home = home();
    let (from, to) = (home.path().join("from"), home.path().join("to"));
    fs::create_dir(&from).unwrap();
    fs::write(from.join("one"), "x").unwrap();
    fs::hard_link(from.join("one"), from.join("two")).unwrap();
    fs::hard_link(from.join("one"), from.join("three")).unwrap();
    symlink("one", from.join("link")).unwrap();
    let output = cp(&["-a", "--json"], &[&from, &to]);
    assert_status(&output, 0);
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        [
            &value["files"],
            &value["symbolic_links"],
            &value["hard_links"]
        ],
        [&1.into(), &1.into(), &serde_json::Value::from(2)]
    );
}

#[test]
fn everything_is_copied_where_standard_output_takes_no_names() {
    let home = home();
    let (from, to) = (home.path().join("from"), home.path().join("to"));
    fs::create_dir(&from).unwrap();
    fs::write(from.join("one"), "1").unwrap();
    fs::write(from.join("two"), "2").unwrap();
    let full = File::options().write(true).open("/dev/full").unwrap();
    let output = pdio()
        .args(["cp", "-rv"])
        .args([&from, &to])
        .stdout(full)
        .output()
        .unwrap();
    assert_status(&output, 1);
    let text = stderr(&output);
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(text.contains("standard output"), "{text}");
    assert_eq!(fs::read(to.join("one")).unwrap(), b"1");
    assert_eq!(fs::read(to.join("two")).unwrap(), b"2");
}

#[test]
fn what_was_done_is_not_said_to_nobody() {
    let home = home();
    let (from, to) = (home.path().join("from"), home.path().join("to"));
    fs::write(&from, "1").unwrap();
    let mut command = pdio();
    let command = command.args(["cp", "--json"]).args([&from, &to]);
    let output = without(command, 1).output().unwrap();
    assert_status(&output, 1);
    let text = stderr(&output);
    assert!(text.contains("standard output"), "{text}");
    assert_eq!(fs::read(&to).unwrap(), b"1");
}

#[test]
fn directories_for_all_keep_their_sticky_bit() {
    let home = home();
    let (from, to) = (home.path().join("from"), home.path().join("to"));
    fs::create_dir_all(from.join("in")).unwrap();
    for name in ["", "in"] {
        fs::set_permissions(from.join(name), fs::Permissions::from_mode(0o1777)).unwrap();
    }
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "umask 0; exec \"$@\"", "sh"]);
    command.arg(pdio().get_program()).args(["cp", "-r"]);
    assert_status(&command.args([&from, &to]).output().unwrap(), 0);
    for name in ["", "in"] {
        let mode = fs::metadata(to.join(name)).unwrap().mode();
        assert_eq!(mode & 0o7777, 0o1777, "{mode:o}");
    }
}

#[test]
fn what_only_close_tells_is_a_failure_in_one_line() {
    let home = home();
    let (from, to) = (home.path().join("from"), home.path().join("to"));
    for (length, hole) in [(0, 0), (100, 0), (5 << 20, 0), (100, 1 << 20)] {
        let file = File::create(&from).unwrap();
        file.write_all_at(&pattern(length), hole).unwrap();
        for arguments in [&[][..], &["-a"]] {
            let mut command = pdio();
            command.arg("cp").args(arguments).args([&from, &to]);
            let output = closing_fails(&mut command, libc::EDQUOT).output().unwrap();
            assert_status(&output, 1);
            let expected = format!(
                "pdio cp: cannot write '{}': Disk quota exceeded\n",
                to.display()
            );
            assert_eq!(stderr(&output), expected, "{length} {arguments:?}");
            assert!(fs::read(&to).unwrap() == fs::read(&from).unwrap());
        }
    }
}

/// A file that can be read up to a block in its middle, as one on a disk with a bad sector.
struct Damaged {
    path: PathBuf,
    readable: Vec<u8>,
    mounted: PathBuf,
}

impl Damaged {
    /// The image of the disk is cut at the file's block number `good`. `None` where nothing can be mounted.
    fn new(home: &Path, blocks: u32, good: u32) -> Option<Damaged> {
        const BLOCK: usize = 4096;
        let (image, mounted) = (home.join("image"), home.join("mounted"));
        fs::create_dir(&mounted).unwrap();
        File::create(&image).unwrap().set_len(16 << 20).unwrap();
        let run = |program: &str, arguments: &[&str], paths: &[&Path]| {
            let mut command = std::process::Command::new(program);
            let status = command.args(arguments).args(paths).status();
            status.is_ok_and(|status| status.success())
        };
        let journal = ["-q", "-b", "4096", "-O", "^has_journal"];
        if !run("mkfs.ext4", &journal, &[&image])
            || !run("mount", &["-o", "loop"], &[&image, &mounted])
        {
            eprintln!("skipped: no image of ext4 can be made and mounted");
            return None;
        }
        // From here on it is unmounted, whatever fails.
        let mut damaged = Damaged {
            path: mounted.join("file"),
            readable: Vec::new(),
            mounted,
        };
        // Each block is found in the image by what is in it.
        let block = |number: u32| number.to_ne_bytes().repeat(BLOCK / 4);
        let data: Vec<u8> = (1..=blocks).flat_map(block).collect();
        fs::write(&damaged.path, &data).unwrap();
        assert!(run("umount", &[], &[&damaged.mounted]));
        let (disk, bad) = (fs::read(&image).unwrap(), block(good + 1));
        let at = disk.chunks(BLOCK).position(|part| part == bad).unwrap();
        let again = [image.as_path(), &damaged.mounted];
        assert!(run("mount", &["-o", "loop,ro"], &again));
        let image = File::options().write(true).open(&image).unwrap();
        image.set_len((at * BLOCK) as u64).unwrap();
        damaged.readable = data[..good as usize * BLOCK].to_vec();
        Some(damaged)
    }
}

impl Drop for Damaged {
    fn drop(&mut self) {
        let flags = rustix::mount::UnmountFlags::DETACH;
        let _ = rustix::mount::unmount(&self.mounted, flags);
    }
}

#[test]
fn what_can_be_read_of_a_damaged_file_is_copied_and_the_rest_said() {
    // At once, and as a stream.
    for blocks in [60, 500] {
        for good in [0, 50] {
            let home = home();
            let Some(damaged) = Damaged::new(home.path(), blocks, good) else {
                return;
            };
            let to = home.path().join("to");
            fs::write(&to, pattern(3 << 20)).unwrap();
            let output = cp(&[], &[&damaged.path, &to]);
            assert_status(&output, 1);
            let copied = fs::read(&to).unwrap();
            let expected = format!(
                "pdio cp: cannot read '{}': Input/output error; '{}' is incomplete: {} of {} bytes\n",
                damaged.path.display(),
                to.display(),
                copied.len(),
                blocks * 4096
            );
            assert_eq!(stderr(&output), expected);
            // The kernel may read several blocks as one, of which it then has none.
            assert_eq!(copied.is_empty(), good == 0, "{blocks}");
            assert!(damaged.readable.starts_with(&copied), "{blocks}");
        }
    }
}

#[test]
fn what_replaces_a_directory_meanwhile_is_neither_copied_nor_given_away() {
    for options in [&["-rp"][..], &["-rp", "--sync"]] {
        replaced_meanwhile(options);
    }
}

fn replaced_meanwhile(options: &[&str]) {
    let home = home();
    let at = |name: &str| home.path().join(name);
    for name in ["from/c", "from/d", "to/d", "secret", "victim"] {
        fs::create_dir_all(at(name)).unwrap();
    }
    fs::set_permissions(at("from/d"), fs::Permissions::from_mode(0o707)).unwrap();
    fs::set_permissions(at("victim"), fs::Permissions::from_mode(0o700)).unwrap();
    // The copy waits where more is written to a FIFO than that takes.
    fs::write(at("from/d/1"), vec![1; 1 << 20]).unwrap();
    fs::write(at("from/d/2"), "open").unwrap();
    fs::write(at("secret/2"), "secret").unwrap();
    let mode = rustix::fs::Mode::RWXU;
    rustix::fs::mkfifoat(rustix::fs::CWD, at("to/d/1"), mode).unwrap();
    let nonblock = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let fifo = File::options()
        .read(true)
        .custom_flags(nonblock)
        .open(at("to/d/1"));
    let mut fifo = fifo.unwrap();
    let paths = [at("from/."), at("to")];
    let child = piped(pdio().arg("cp").args(options).args(paths));
    until(|| std::io::Read::read(&mut &fifo, &mut [0]).is_ok_and(|n| n == 1));
    for (name, other) in [("from/d", "../secret"), ("to/d", "../victim")] {
        fs::rename(at(name), at(&format!("{name}-was"))).unwrap();
        symlink(other, at(name)).unwrap();
    }
    fs::remove_dir(at("to/c")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, at("to/c"), mode).unwrap();
    rustix::fs::fcntl_setfl(&fifo, rustix::fs::OFlags::empty()).unwrap();
    assert_eq!(
        std::io::copy(&mut fifo, &mut std::io::sink()).unwrap(),
        (1 << 20) - 1
    );
    let output = wait(child);
    let said = stderr(&output);
    // With --sync, that there is no longer a directory to be synced.
    let sync = options.len() - 1;
    assert_status(&output, sync as i32);
    assert_eq!(said.contains("to/c': Not a directory"), sync == 1, "{said}");
    assert_eq!(said.lines().count(), sync, "{said}");
    // A file is written through the links of its destination, as by cp; who owns a link's target stays.
    assert_eq!(fs::read(at("victim/2")).unwrap(), b"open");
    let mode = |name: &str| fs::metadata(at(name)).unwrap().mode() & 0o777;
    assert_eq!((mode("victim"), mode("to/d-was")), (0o700, 0o707));
}

#[test]
fn deep_trees_are_copied_also_where_few_files_may_be_open() {
    let home = home();
    let (from, to) = (home.path().join("from"), home.path().join("to"));
    // As deep as a path may be that is made in one step.
    let deep = |root: &Path| (0..700).fold(root.to_path_buf(), |path, _| path.join("d"));
    fs::create_dir_all(deep(&from)).unwrap();
    fs::write(deep(&from).join("file"), "x").unwrap();
    let mut command = pdio();
    command.args(["cp", "-a"]).args([&from, &to]);
    let few = || {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        let limit = rustix::process::Rlimit {
            current: Some(100),
            ..limit
        };
        Ok(rustix::process::setrlimit(
            rustix::process::Resource::Nofile,
            limit,
        )?)
    };
    // SAFETY: two system calls.
    unsafe { std::os::unix::process::CommandExt::pre_exec(&mut command, few) };
    assert_status(&command.output().unwrap(), 0);
    assert_eq!(fs::read(deep(&to).join("file")).unwrap(), b"x");
}

#[test]
fn what_could_not_be_written_is_not_counted() {
    let home = home();
    // Long enough for a stream, which takes more than it can write.
    fs::write(home.path().join("in"), pattern(8 << 20)).unwrap();
    let mut command = pdio();
    let arguments = ["cp", "--json", "in", "out"];
    command.args(arguments).current_dir(home.path());
    let output = with_file_limit(&mut command, 1_000_000).output().unwrap();
    assert_status(&output, 1);
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let length = fs::metadata(home.path().join("out")).unwrap().len();
    assert_eq!((length, &value["bytes"]), (1_000_000, &length.into()));
}
