// SPDX-License-Identifier: MIT OR Apache-2.0
//! The whole recorder, from a made-up camera to files. Each test has a process of its own, since signals are
//! the whole process's.

use std::cell::RefCell;
use std::ffi::{c_int, OsString};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::channel;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use moq_v4l::v4l2::vidioc;
use pdio_cli::report::{say, Fail, Outcome};
use signal_hook::consts::{SIGHUP, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::low_level::raise;

use crate::alone::{alone, command, job};
use crate::device::{picture, show, Film, Next, FRAME};
use crate::filter::refuse;
use crate::output::{busy, index_of};
use crate::record::processor_time;
use crate::{explain, run, Cli, Command};

/// What is waited for comes within this time, or never.
const SOON: Duration = Duration::from_secs(60);

/// The directory for a test that is in a process of its own; otherwise runs it in one.
fn place(test: &str) -> Option<PathBuf> {
    let home = job();
    if home.is_none() {
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        alone(&format!("recorder_tests::{test}"), home.path());
    }
    home
}

/// Records a film to a file, with these options.
fn record(film: Film, options: &[&str], file: &Path) -> Outcome {
    show(film);
    let command = ["nocopy-record", "--quiet"].iter().chain(options);
    let command = command.map(OsString::from).chain([file.into()]);
    run(&Cli::try_parse_from(command).unwrap().record)
}

/// Explains which way frames would take to a file, with these options.
fn explained(options: &[&str], file: &Path) -> Outcome {
    show(frames(|_| {}));
    let command = ["nocopy-record", "explain"].iter().chain(options);
    let command = command.map(OsString::from).chain([file.into()]);
    let cli = Cli::try_parse_from(command).unwrap();
    let Some(Command::Explain(wanted)) = &cli.command else {
        panic!("{cli:?}");
    };
    explain(wanted)
}

/// A camera that gives one frame after the other, and does something before it gives each.
fn frames(mut before: impl FnMut(u32) + 'static) -> Film {
    let mut numbers = 0..;
    film(move || {
        let number = numbers.next().unwrap();
        before(number);
        Next::Frame(number)
    })
}

/// The same, that has no more frames once a signal has come.
fn frames_until(signal: c_int, last: u32, mut before: impl FnMut(u32) + 'static) -> Film {
    let mut numbers = 0..=last;
    film(move || {
        let Some(number) = numbers.next() else {
            return Next::Later;
        };
        before(number);
        if number == last {
            raise(signal).unwrap();
        }
        Next::Frame(number)
    })
}

fn film(next: impl FnMut() -> Next + 'static) -> Film {
    Film {
        opened: || {},
        asked: Box::new(|_| Ok(())),
        rate: (1, 1000),
        frame_bytes: FRAME,
        buffers: 32,
        next: Box::new(next),
    }
}

/// The same camera, and what it is asked.
fn asks(film: Film) -> (Rc<RefCell<Vec<vidioc::_IOC_TYPE>>>, Film) {
    let asked = Rc::new(RefCell::new(Vec::new()));
    let theirs = asked.clone();
    let note = move |request| {
        theirs.borrow_mut().push(request);
        Ok(())
    };
    let asks = Film {
        asked: Box::new(note),
        ..film
    };
    (asked, asks)
}

/// A camera that refuses a request.
fn refuses(request: vidioc::_IOC_TYPE, error: c_int) -> Film {
    let asked = move |asked| match asked == request {
        true => Err(io::Error::from_raw_os_error(error)),
        false => Ok(()),
    };
    Film {
        asked: Box::new(asked),
        ..frames(|_| {})
    }
}

/// Wants the file to have the frames of its index and nothing else, byte by byte. Returns their numbers, and
/// what else the index says.
#[track_caller]
fn read(file: &Path) -> (Vec<u32>, Vec<String>) {
    let bytes = fs::read(file).unwrap();
    let index = fs::read_to_string(index_of(file)).unwrap();
    assert!(
        index.starts_with("# nocopy-record 1: made up, 64x64 YUYV, 1000.00 frames/s, 8192 bytes")
    );
    assert!(index.ends_with('\n'), "{index}");
    let (mut numbers, mut remarks) = (Vec::new(), Vec::new());
    for line in index.lines().skip(1) {
        if let Some(remark) = line.strip_prefix("# ") {
            remarks.push(remark.to_owned());
            continue;
        }
        let fields: Vec<_> = line.split(' ').collect();
        let (number, offset) = (fields[0].parse().unwrap(), numbers.len() * FRAME);
        assert_eq!(
            fields[2..],
            [offset.to_string(), FRAME.to_string()],
            "{line}"
        );
        assert!(bytes[offset..][..FRAME] == picture(number), "{line}");
        numbers.push(number);
    }
    assert_eq!(bytes.len(), numbers.len() * FRAME);
    (numbers, remarks)
}

#[track_caller]
fn holds(file: &Path, numbers: impl IntoIterator<Item = u32>) {
    assert_eq!(read(file), (numbers.into_iter().collect(), Vec::new()));
}

/// The ways of the made-up camera that this directory has.
fn ways(home: &Path) -> Vec<&'static str> {
    let align = pdio::explain(home).unwrap().alignment;
    let direct = align.is_some_and(|align| FRAME.is_multiple_of(align.offset as usize));
    let mut ways = vec!["mmap", "userptr", "copy", "buffered"];
    if !direct {
        eprintln!("skipped: no direct I/O in /var/tmp for mmap, userptr and copy");
        ways.retain(|way| *way == "buffered");
    }
    ways
}

#[test]
fn every_way_takes_each_frame_as_it_is() {
    let Some(home) = place("every_way_takes_each_frame_as_it_is") else {
        return;
    };
    for way in ways(&home) {
        for durability in ["process", "safe", "sync"] {
            let file = home.join(format!("{way}-{durability}"));
            // Each buffer is given back and filled again several times.
            let options = ["--frames", "12", "--buffers", "3"];
            let how = ["--way", way, "--durability", durability];
            record(frames(|_| {}), &[options, how].concat(), &file).unwrap();
            holds(&file, 0..12);
        }
    }
}

#[test]
fn frames_that_are_lost_or_damaged_are_named() {
    let Some(home) = place("frames_that_are_lost_or_damaged_are_named") else {
        return;
    };
    let file = home.join("out");
    let mut gives = [
        Next::Frame(0),
        Next::Later,
        Next::Frame(1),
        Next::Frame(4),
        Next::Damaged(5),
        Next::Frame(6),
        Next::Frame(8),
        Next::Empty(9),
        Next::Frame(10),
        Next::Short(11),
        Next::Frame(12),
    ]
    .into_iter();
    let film = film(move || gives.next().unwrap());
    record(film, &["--frames", "7"], &file).unwrap();
    let remarks = ["lost 2-3", "damaged 5", "lost 7", "damaged 9", "damaged 11"];
    let remarks = remarks.map(String::from).to_vec();
    assert_eq!(read(&file), (vec![0, 1, 4, 6, 8, 10, 12], remarks));
}

#[test]
fn each_index_says_that_its_times_are_by_another_clock() {
    let Some(home) = place("each_index_says_that_its_times_are_by_another_clock") else {
        return;
    };
    let mut gives = [Next::Frame(0), Next::Damaged(1)]
        .into_iter()
        .chain((2..8).map(Next::Timeless));
    let film = film(move || gives.next().unwrap());
    let [segment, bytes] = &segment(3);
    let options = [segment, bytes, "--frames", "7"];
    record(film, &options, &home.join("out")).unwrap();
    for (n, (numbers, damaged)) in [
        (vec![0, 2, 3], true),
        (vec![4, 5, 6], false),
        (vec![7], false),
    ]
    .into_iter()
    .enumerate()
    {
        let damaged = damaged.then_some("damaged 1");
        let wanted: Vec<_> = damaged.into_iter().chain(["clock unknown"]).collect();
        let (found, remarks) = read(&home.join(format!("out-000{n}")));
        assert_eq!(found, numbers);
        assert_eq!(remarks, wanted);
    }
}

#[test]
fn a_recording_over_an_old_one_begins_when_that_is_gone() {
    let Some(home) = place("a_recording_over_an_old_one_begins_when_that_is_gone") else {
        return;
    };
    // The camera fills its eight buffers while the file is emptied, and then has none.
    let film = |out: &Path| {
        let (mut numbers, out) = ((0..8).chain(66..), out.to_owned());
        film(move || {
            assert_eq!(fs::metadata(&out).unwrap().len() % FRAME as u64, 0);
            Next::Frame(numbers.next().unwrap())
        })
    };
    let [new, old, empty] = ["new", "old", "empty"].map(|name| home.join(name));
    fs::write(&old, "what was there").unwrap();
    fs::write(&empty, "").unwrap();
    let options = ["--frames", "12"];
    record(film(&old), &options, &old).unwrap();
    holds(&old, 66..78);
    // Nothing takes a while with these.
    for file in [new, empty] {
        record(film(&file), &options, &file).unwrap();
        let wanted = (0..8).chain(66..70).collect();
        assert_eq!(read(&file), (wanted, vec!["lost 8-65".into()]));
    }
}

#[test]
fn a_photo_is_of_a_frame_that_came() {
    let Some(home) = place("a_photo_is_of_a_frame_that_came") else {
        return;
    };
    let photo = home.join("photo");
    let mut numbers = 0..;
    let film = film(move || match numbers.next().unwrap() {
        3 => {
            raise(SIGUSR2).unwrap();
            Next::Empty(3)
        }
        number => Next::Frame(number),
    });
    let options = ["--frames", "20", "--photo", photo.to_str().unwrap()];
    record(film, &options, &home.join("out")).unwrap();
    assert!(fs::read(&photo).unwrap() == picture(4));
}

#[test]
fn a_recording_begins_before_its_trigger() {
    let Some(home) = place("a_recording_begins_before_its_trigger") else {
        return;
    };
    let file = home.join("out");
    let (mut number, mut later) = (0, false);
    let film = film(move || {
        later = !later;
        if later {
            return Next::Later;
        }
        if number == 50 {
            raise(SIGUSR1).unwrap();
        }
        number += 1;
        Next::Frame(number - 1)
    });
    // The frames of 20 ms before the last that came before the trigger, and 60 after it.
    record(film, &["--pre-roll", "20ms", "--frames", "60"], &file).unwrap();
    holds(&file, 29..110);
}

#[test]
fn an_old_recording_stays_until_the_trigger_comes() {
    let Some(home) = place("an_old_recording_stays_until_the_trigger_comes") else {
        return;
    };
    let [file, new] = ["out", "new"].map(|name| home.join(name));
    fs::write(&file, "what was there").unwrap();
    fs::write(index_of(&file), "its index").unwrap();
    let as_it_was = |file: &Path| {
        fs::read(file).unwrap() == b"what was there"
            && fs::read(index_of(file)).unwrap() == b"its index"
    };
    let options = ["--pre-roll", "20ms", "--frames", "10"];
    for path in [&file, &new] {
        let outcome = record(frames_until(SIGTERM, 50, |_| {}), &options, path);
        assert!(matches!(outcome, Err(Fail::Signal(SIGTERM))), "{outcome:?}");
        let mut numbers = 0..5;
        let gone = film(move || numbers.next().map_or(Next::Gone, Next::Frame));
        let said = failure(record(gone, &options, path));
        assert!(said.ends_with("is gone; nothing was recorded"), "{said}");
        assert!(as_it_was(&file));
        assert_eq!(fs::read_dir(&home).unwrap().count(), 2);
    }
    let path = file.clone();
    let film = frames(move |number| {
        if number == 50 {
            assert!(fs::read(&path).unwrap() == b"what was there");
            raise(SIGUSR1).unwrap();
        }
    });
    record(film, &options, &file).unwrap();
    let (numbers, remarks) = read(&file);
    assert!(
        numbers.starts_with(&[29]) && numbers.len() == 31,
        "{numbers:?}"
    );
    assert!(remarks.is_empty(), "{remarks:?}");
}

#[test]
fn what_comes_while_a_frame_is_written_does_not_wait_in_the_camera() {
    let Some(home) = place("what_comes_while_a_frame_is_written_does_not_wait_in_the_camera")
    else {
        return;
    };
    let file = home.join("out");
    let (mut number, mut later, out) = (0, false, file.clone());
    let film = film(move || {
        // Eight come at once, as after a disk was slow.
        let at_once = (51..59).contains(&number);
        later = !later && !at_once;
        if later {
            return Next::Later;
        }
        if number == 50 {
            raise(SIGUSR1).unwrap();
        }
        if at_once {
            assert_eq!(fs::metadata(&out).unwrap().len(), 0);
        }
        number += 1;
        Next::Frame(number - 1)
    });
    let options = ["--way", "buffered", "--pre-roll", "20ms", "--frames", "60"];
    record(film, &options, &file).unwrap();
    holds(&file, 29..110);
}

#[test]
fn a_trigger_just_before_the_end_is_not_lost() {
    let Some(home) = place("a_trigger_just_before_the_end_is_not_lost") else {
        return;
    };
    let file = home.join("out");
    for (name, fifo) in [("signal", false), ("unplugged", true)] {
        let trigger = home.join(name);
        let rings = trigger.clone();
        let mut numbers = 0..50;
        let film = film(move || match numbers.next() {
            Some(number) => Next::Frame(number),
            // The recorder sees it together with the end.
            None if fifo => {
                fs::write(&rings, "now").unwrap();
                Next::Gone
            }
            None => {
                raise(SIGUSR1).unwrap();
                raise(SIGTERM).unwrap();
                Next::Later
            }
        });
        let trigger = trigger.to_str().unwrap();
        let options = ["--pre-roll", "20ms", "--trigger", trigger];
        let outcome = record(film, &options, &file);
        match (fifo, outcome) {
            (false, Err(Fail::Signal(SIGTERM))) => {}
            (true, Err(Fail::Failed(said))) => assert!(said.contains("holds 21 frames"), "{said}"),
            (_, outcome) => panic!("{outcome:?}"),
        }
        holds(&file, 29..50);
    }
}

#[test]
fn no_frame_is_missing_between_two_segments() {
    let Some(home) = place("no_frame_is_missing_between_two_segments") else {
        return;
    };
    let segment = (5 * FRAME + 1).to_string();
    let options = ["--segment", &segment, "--frames", "23"];
    record(frames(|_| {}), &options, &home.join("out.raw")).unwrap();
    for (n, numbers) in [0..5, 5..10, 10..15, 15..20, 20..23]
        .into_iter()
        .enumerate()
    {
        holds(&home.join(format!("out-000{n}.raw")), numbers);
    }
    assert_eq!(fs::read_dir(&home).unwrap().count(), 2 * 5);
}

/// Runs the test of this name in a process of its own; what its recorder says as JSON.
fn said(test: &str, home: &Path) -> serde_json::Value {
    said_with_lines(test, home).0
}

/// The same, and the lines beside it.
fn said_with_lines(test: &str, home: &Path) -> (serde_json::Value, Vec<String>) {
    let mut recorder = command(&format!("recorder_tests::{test}"), home);
    let output = recorder.output().unwrap();
    let [said, lines] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(output.status.success(), "{said}{lines}");
    let begin = said.find("{\"").expect(&said);
    let json = serde_json::from_str(said[begin..].lines().next().unwrap()).unwrap();
    let lines = lines
        .lines()
        .filter(|line| line.starts_with("nocopy-record"));
    (json, lines.map(String::from).collect())
}

#[test]
fn what_it_waits_for_the_trigger_is_no_part_of_the_recording() {
    let test = "what_it_waits_for_the_trigger_is_no_part_of_the_recording";
    if let Some(home) = job() {
        let begin = Instant::now();
        let (tell, triggered) = channel();
        let film = frames(move |number| match number {
            50 => {
                tell.send((begin.elapsed(), processor_time())).unwrap();
                raise(SIGUSR1).unwrap();
            }
            _ => thread::sleep(Duration::from_millis(2)),
        });
        let options = ["--json", "--pre-roll", "20ms", "--frames", "10"];
        record(film, &options, &home.join("out")).unwrap();
        let (time, cpu) = triggered.recv().unwrap();
        let most = [begin.elapsed() - time, processor_time() - cpu];
        let most = most.map(|time| time.as_secs_f64().to_string());
        return fs::write(home.join("most"), most.join(" ")).unwrap();
    }
    let home = tempfile::tempdir_in("/var/tmp").unwrap();
    let said = said(test, home.path());
    let most = fs::read_to_string(home.path().join("most")).unwrap();
    for (what, most) in ["seconds", "cpu_s"].into_iter().zip(most.split(' ')) {
        let (took, most) = (said[what].as_f64().unwrap(), most.parse().unwrap());
        assert!(0.0 < took && took <= most, "{what}, {most} at most: {said}");
    }
}

#[test]
fn what_is_not_written_or_has_no_time_is_not_late() {
    let test = "what_is_not_written_or_has_no_time_is_not_late";
    if let Some(home) = job() {
        // All of them were taken long ago; the time of the last cannot be true.
        let mut gives = [
            Next::Frame(0),
            Next::Damaged(1),
            Next::Frame(2),
            Next::Frame(2),
        ]
        .into_iter();
        let film = film(move || gives.next().unwrap());
        return record(film, &["--json", "--frames", "3"], &home.join("out")).unwrap();
    }
    let home = tempfile::tempdir_in("/var/tmp").unwrap();
    let said = said(test, home.path());
    assert_eq!(
        (&said["damaged"], &said["late"]),
        (&1.into(), &2.into()),
        "{said}"
    );
}

#[test]
fn fewer_buffers_than_wanted_are_told() {
    let test = "fewer_buffers_than_wanted_are_told";
    if let Some(home) = job() {
        let few = Film {
            buffers: 3,
            ..frames(|_| {})
        };
        return record(few, &["--json", "--frames", "9"], &home.join("out")).unwrap();
    }
    let home = tempfile::tempdir_in("/var/tmp").unwrap();
    let (said, lines) = said_with_lines(test, home.path());
    assert_eq!(said["buffers"], 3, "{said}");
    assert_eq!(lines, ["nocopy-record: the camera gives 3 of 8 buffers"]);
}

#[test]
fn each_field_of_json_is_described() {
    let test = "each_field_of_json_is_described";
    if let Some(home) = job() {
        let file = home.join("out");
        explained(&["--json"], &file).unwrap();
        println!();
        return record(frames(|_| {}), &["--json", "--frames", "3"], &file).unwrap();
    }
    let home = tempfile::tempdir_in("/var/tmp").unwrap();
    let mut recorder = command(&format!("recorder_tests::{test}"), home.path());
    let output = recorder.output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/settings.md");
    let page = fs::read_to_string(page).unwrap();
    let values = said
        .lines()
        .filter_map(|line| line.find("{\"").map(|at| &line[at..]));
    let values: Vec<serde_json::Value> = values
        .map(|value| serde_json::from_str(value).unwrap())
        .collect();
    assert_eq!(values.len(), 2, "{said}");
    for (value, of) in values.iter().zip(["explain", "record"]) {
        for field in value.as_object().unwrap().keys() {
            let row = page.lines().find(|row| {
                let cells: Vec<_> = row.split(" | ").collect();
                matches!(cells[..], [names, whose, _] if names.contains(&format!("`{field}`"))
                    && whose.split(", ").any(|one| one == of))
            });
            assert!(row.is_some(), "{of}: {field}");
        }
    }
}

/// The option for files of so many frames.
fn segment(frames: usize) -> [String; 2] {
    ["--segment".into(), (frames * FRAME + 1).to_string()]
}

#[test]
fn a_disk_that_takes_no_end_of_a_file_holds_up_no_frame() {
    let Some(home) = place("a_disk_that_takes_no_end_of_a_file_holds_up_no_frame") else {
        return;
    };
    for way in ways(&home) {
        // It takes the end of the first file only when 40 frames more have come.
        let (go, may) = channel();
        busy(move || {
            let taken = may.recv_timeout(Duration::from_secs(20));
            taken.map_err(|_| Fail::Failed("frames wait for the disk".into()))
        });
        let film = frames(move |number| {
            if number == 50 + 40 {
                (0..2).for_each(|_| go.send(()).unwrap());
            }
        });
        let [segment, bytes] = &segment(50);
        let options = [segment, bytes, "--frames", "120", "--way", way];
        record(film, &options, &home.join(way)).unwrap();
        for (n, numbers) in [0..50, 50..100, 100..120].into_iter().enumerate() {
            holds(&home.join(format!("{way}-000{n}")), numbers);
        }
        assert!(!home.join(format!("{way}-0003")).exists());
    }
}

#[test]
fn a_file_that_cannot_be_ended_ends_the_recording_with_one_line() {
    let Some(home) = place("a_file_that_cannot_be_ended_ends_the_recording_with_one_line") else {
        return;
    };
    busy(|| Err(Fail::Failed("no room".into())));
    let [segment, bytes] = &segment(5);
    // With the next frame, or at the latest where the third file would begin.
    let outcome = record(frames(|_| {}), &[segment, bytes], &home.join("out"));
    let Err(Fail::Failed(said)) = outcome else {
        panic!("{outcome:?}");
    };
    let end =
        (5..=10).find(|end| said == format!("no room; 2 files hold {end} frames, all indexed"));
    holds(&home.join("out-0000"), 0..5);
    holds(&home.join("out-0001"), 5..end.expect(&said));
    assert_eq!(fs::read_dir(&home).unwrap().count(), 2 * 2);
}

#[test]
fn the_end_waits_until_all_files_have_ended() {
    let Some(home) = place("the_end_waits_until_all_files_have_ended") else {
        return;
    };
    let ended = Arc::new(AtomicBool::new(false));
    let done = ended.clone();
    busy(move || {
        thread::sleep(Duration::from_millis(300));
        done.store(true, Relaxed);
        Ok(())
    });
    let film = frames_until(SIGTERM, 7, |_| {});
    let [segment, bytes] = &segment(5);
    let outcome = record(film, &[segment, bytes], &home.join("out"));
    assert!(matches!(outcome, Err(Fail::Signal(SIGTERM))), "{outcome:?}");
    assert!(ended.load(Relaxed));
    holds(&home.join("out-0000"), 0..5);
    holds(&home.join("out-0001"), 5..8);
    assert_eq!(fs::read_dir(&home).unwrap().count(), 2 * 2);
}

#[test]
fn a_terminal_that_hangs_up_ends_it_cleanly() {
    let Some(home) = place("a_terminal_that_hangs_up_ends_it_cleanly") else {
        return;
    };
    let film = frames_until(SIGHUP, 7, |_| {});
    let outcome = record(film, &[], &home.join("out"));
    assert!(matches!(outcome, Err(Fail::Signal(SIGHUP))), "{outcome:?}");
    holds(&home.join("out"), 0..8);
}

#[test]
fn under_nohup_a_terminal_that_hangs_up_ends_nothing() {
    let Some(home) = place("under_nohup_a_terminal_that_hangs_up_ends_nothing") else {
        return;
    };
    // SAFETY: no code is called.
    unsafe { libc::signal(SIGHUP, libc::SIG_IGN) };
    let film = frames(|number| {
        if number == 7 {
            raise(SIGHUP).unwrap();
        }
    });
    record(film, &["--frames", "12"], &home.join("out")).unwrap();
    holds(&home.join("out"), 0..12);
}

#[test]
fn frames_from_before_the_trigger_go_to_several_files_as_well() {
    let Some(home) = place("frames_from_before_the_trigger_go_to_several_files_as_well") else {
        return;
    };
    busy(|| {
        thread::sleep(Duration::from_millis(20));
        Ok(())
    });
    let film = frames(|number| {
        if number == 50 {
            raise(SIGUSR1).unwrap();
        }
    });
    let [segment, bytes] = &segment(9);
    let options = [segment, bytes, "--pre-roll", "20ms", "--frames", "10"];
    record(film, &options, &home.join("out")).unwrap();
    for (n, numbers) in [29..38, 38..47, 47..56, 56..60].into_iter().enumerate() {
        holds(&home.join(format!("out-000{n}")), numbers);
    }
    assert_eq!(fs::read_dir(&home).unwrap().count(), 2 * 4);
}

#[test]
fn a_photo_is_of_the_frame_after_the_signal() {
    let Some(home) = place("a_photo_is_of_the_frame_after_the_signal") else {
        return;
    };
    let (file, photo) = (home.join("out"), home.join("photo"));
    let film = frames(|number| {
        if number == 7 {
            raise(SIGUSR2).unwrap();
        }
    });
    let options = ["--frames", "20", "--photo", photo.to_str().unwrap()];
    record(film, &options, &file).unwrap();
    holds(&file, 0..20);
    assert!(fs::read(&photo).unwrap() == picture(7));
}

#[test]
fn a_signal_ends_a_recording_with_a_whole_frame() {
    let Some(home) = place("a_signal_ends_a_recording_with_a_whole_frame") else {
        return;
    };
    let file = home.join("out");
    let film = frames_until(SIGTERM, 9, |_| {});
    let outcome = record(film, &[], &file);
    assert!(matches!(outcome, Err(Fail::Signal(SIGTERM))), "{outcome:?}");
    holds(&file, 0..10);
}

#[test]
fn what_the_camera_had_when_a_signal_came_is_recorded() {
    let Some(home) = place("what_the_camera_had_when_a_signal_came_is_recorded") else {
        return;
    };
    // Four frames more, that had come while the last one was written; then none; or as many as there are buffers.
    for (name, more, whole) in [("some", 4, 12), ("all", 1000, 10)] {
        let file = home.join(name);
        let mut numbers = 0..=7 + more;
        let film = film(move || match numbers.next() {
            Some(7) => {
                raise(SIGTERM).unwrap();
                Next::Frame(7)
            }
            number => number.map_or(Next::Later, Next::Frame),
        });
        let buffers = if more == 4 { "8" } else { "3" };
        let outcome = record(film, &["--buffers", buffers], &file);
        assert!(matches!(outcome, Err(Fail::Signal(SIGTERM))), "{outcome:?}");
        holds(&file, 0..whole);
    }
    // Those from before the trigger, and a failure of the camera that comes after the signal.
    let file = home.join("triggered");
    let mut numbers = 0..=52;
    let film = film(move || {
        let number = numbers.next();
        if number == Some(50) {
            raise(SIGUSR1).unwrap();
            raise(SIGTERM).unwrap();
        }
        number.map_or(Next::Gone, Next::Frame)
    });
    let outcome = record(film, &["--pre-roll", "20ms"], &file);
    assert!(matches!(outcome, Err(Fail::Signal(SIGTERM))), "{outcome:?}");
    holds(&file, 29..53);
}

#[test]
fn what_came_before_the_camera_failed_is_kept() {
    let Some(home) = place("what_came_before_the_camera_failed_is_kept") else {
        return;
    };
    for (unplugged, text) in [(true, "is gone"), (false, "no whole frame came")] {
        let file = home.join(text);
        let end = move || match unplugged {
            true => Next::Gone,
            false => Next::Silence,
        };
        let mut numbers = 0..5;
        let all = film(move || numbers.next().map_or_else(end, Next::Frame));
        let said = failure(record(all, &["--timeout", "10ms"], &file));
        assert!(said.contains(text), "{said}");
        assert!(said.ends_with("holds 5 frames, all indexed"), "{said}");
        holds(&file, 0..5);
        let mut gives = [Next::Frame(0), Next::Damaged(1), Next::Frame(4)].into_iter();
        let some = film(move || gives.next().unwrap_or_else(end));
        let file = file.with_extension("some");
        let said = failure(record(some, &["--timeout", "10ms"], &file));
        let counts = "holds 2 frames, all indexed, 2 lost, 1 damaged";
        assert!(said.ends_with(counts), "{said}");
    }
}

#[test]
fn signals_wait_until_the_camera_is_set_up() {
    let Some(home) = place("signals_wait_until_the_camera_is_set_up") else {
        return;
    };
    let (file, photo) = (home.join("out"), home.join("photo"));
    let film = Film {
        opened: || {
            raise(SIGUSR1).unwrap();
            raise(SIGUSR2).unwrap();
        },
        ..frames(|_| {})
    };
    let options = ["--frames", "5", "--pre-roll", "10s", "--photo"];
    let options = [&options[..], &[photo.to_str().unwrap()]].concat();
    record(film, &options, &file).unwrap();
    holds(&file, 0..5);
    assert!(fs::read(&photo).unwrap() == picture(0));
}

#[test]
fn a_signal_that_ends_the_set_up_leaves_the_file_as_it_was() {
    let Some(home) = place("a_signal_that_ends_the_set_up_leaves_the_file_as_it_was") else {
        return;
    };
    let file = home.join("out");
    fs::write(&file, "what was there").unwrap();
    let at_open = || Film {
        opened: || raise(SIGTERM).unwrap(),
        ..frames(|_| {})
    };
    let at_start = || Film {
        asked: Box::new(|request| {
            if request == vidioc::VIDIOC_STREAMON {
                raise(SIGTERM).unwrap();
            }
            Ok(())
        }),
        ..frames(|_| {})
    };
    for film in [at_open(), at_start()] {
        let outcome = record(film, &[], &file);
        assert!(matches!(outcome, Err(Fail::Signal(SIGTERM))), "{outcome:?}");
        assert_eq!(fs::read(&file).unwrap(), b"what was there");
        assert_eq!(fs::read_dir(&home).unwrap().count(), 1);
    }
}

#[test]
fn a_link_to_what_is_not_there_leads_to_the_recording_or_to_nothing() {
    let Some(home) = place("a_link_to_what_is_not_there_leads_to_the_recording_or_to_nothing")
    else {
        return;
    };
    let [file, target] = ["out", "target"].map(|name| home.join(name));
    std::os::unix::fs::symlink("target", &file).unwrap();
    let silent = refuses(vidioc::VIDIOC_STREAMON, libc::EIO);
    failure(record(silent, &[], &file));
    assert!(!target.exists() && file.is_symlink());
    record(frames(|_| {}), &["--frames", "3"], &file).unwrap();
    assert_eq!(fs::metadata(&target).unwrap().len(), 3 * FRAME as u64);
    assert!(file.is_symlink());
}

#[test]
fn a_camera_that_is_ready_without_a_frame_is_silent() {
    let Some(home) = place("a_camera_that_is_ready_without_a_frame_is_silent") else {
        return;
    };
    let end = Instant::now() + Duration::from_secs(60);
    let film = film(move || match Instant::now() < end {
        true => Next::Later,
        false => Next::Gone,
    });
    let said = failure(record(film, &["--timeout", "100ms"], &home.join("out")));
    assert!(said.contains("for 0.1 s"), "{said}");
}

#[test]
fn a_camera_whose_frames_are_all_damaged_is_told() {
    let test = "a_camera_whose_frames_are_all_damaged_is_told";
    let damaged = || {
        let (end, mut numbers) = (Instant::now() + SOON, 0..);
        film(move || match Instant::now() < end {
            true => Next::Damaged(numbers.next().unwrap()),
            false => Next::Gone,
        })
    };
    if let Some(home) = job() {
        let file = home.join("out");
        let said = failure(record(damaged(), &["--timeout", "100ms"], &file));
        assert!(said.contains("no whole frame came"), "{said}");
        let options = ["--json", "--seconds", "0.01"];
        let said = failure(record(damaged(), &options, &file));
        assert!(said.contains("gave no frame that is whole"), "{said}");
        // However it ends.
        let mut numbers = 0..;
        let film = film(move || match numbers.next().unwrap() {
            number @ 0..3 => Next::Damaged(number),
            3 => {
                raise(SIGTERM).unwrap();
                Next::Damaged(3)
            }
            _ => Next::Later,
        });
        let said = failure(record(film, &[], &file));
        assert!(said.contains("gave no frame that is whole"), "{said}");
        return;
    }
    let home = tempfile::tempdir_in("/var/tmp").unwrap();
    let (said, lines) = said_with_lines(test, home.path());
    let counts = (&said["frames"], &said["damaged"], &said["complete"]);
    assert_eq!(counts, (&0.into(), &10.into(), &false.into()), "{said}");
    let line = "nocopy-record: frame 0 is damaged and left out; the index names those that follow";
    assert_eq!(lines, [line; 3]);
}

#[test]
fn what_the_disk_takes_its_time_for_is_no_silence_of_the_camera() {
    let test = "what_the_disk_takes_its_time_for_is_no_silence_of_the_camera";
    let Some(home) = place(test) else {
        return;
    };
    // The third frame waits until the first file has ended; the fourth is not there at once.
    busy(|| {
        thread::sleep(Duration::from_millis(2200));
        Ok(())
    });
    let mut gives =
        [0, 1, 2]
            .map(Next::Frame)
            .into_iter()
            .chain([Next::Later, Next::Later, Next::Frame(3)]);
    let film = film(move || gives.next().unwrap());
    let [segment, bytes] = &segment(1);
    let options = [segment, bytes, "--timeout", "2s", "--frames", "4"];
    record(film, &options, &home.join("out")).unwrap();
}

#[test]
fn a_rate_is_one_that_the_camera_confirms() {
    let Some(home) = place("a_rate_is_one_that_the_camera_confirms") else {
        return;
    };
    let file = home.join("out");
    let mute = || Film {
        rate: (0, 0),
        ..frames(|_| {})
    };
    for film in [mute(), refuses(vidioc::VIDIOC_G_PARM, libc::ENOTTY)] {
        let said = failure(record(film, &["--rate", "1000"], &file));
        assert!(said.contains("leave out --rate"), "{said}");
    }
    for error in [libc::ENOTTY, libc::EINVAL] {
        let film = refuses(vidioc::VIDIOC_S_PARM, error);
        let said = failure(record(film, &["--rate", "1000"], &file));
        assert!(said.contains("no rate to be set: leave out"), "{said}");
    }
    let said = failure(record(frames(|_| {}), &["--rate", "25"], &file));
    assert!(said.contains("it offers 1000/1"), "{said}");
    assert!(!file.exists());
    record(mute(), &["--frames", "3"], &file).unwrap();
    record(frames(|_| {}), &["--rate", "1000", "--frames", "3"], &file).unwrap();
}

#[test]
fn a_format_is_set_only_if_one_is_wanted() {
    let Some(home) = place("a_format_is_set_only_if_one_is_wanted") else {
        return;
    };
    // Whoever set lines or fields by another program finds them so.
    let file = home.join("out");
    for (options, set) in [
        (&[][..], 0),
        (&["--rate", "1000"], 0),
        (&["--size", "64x64"], 1),
        (&["--format", "YUYV"], 1),
    ] {
        let (asked, film) = asks(frames(|_| {}));
        record(film, &[options, &["--frames", "3"]].concat(), &file).unwrap();
        let asked = asked.take();
        let sets = asked.iter().filter(|r| **r == vidioc::VIDIOC_S_FMT);
        assert_eq!(sets.count(), set, "{options:?}");
    }
}

#[test]
fn buffers_are_let_go_once_when_none_is_mapped() {
    let Some(home) = place("buffers_are_let_go_once_when_none_is_mapped") else {
        return;
    };
    for way in ways(&home) {
        let ended = Rc::new(RefCell::new(None));
        let end = ended.clone();
        let asked = move |request| {
            let mut end = end.borrow_mut();
            if request == vidioc::VIDIOC_STREAMOFF {
                *end = Some(0);
            } else if let Some(times) = &mut *end {
                assert_eq!(request, vidioc::VIDIOC_REQBUFS);
                *times += 1;
                let maps = fs::read_to_string("/proc/self/maps").unwrap();
                let ours = |line: &&str| line.contains("memfd:camera") && line.contains(" r--s ");
                assert_eq!(maps.lines().find(ours), None);
            }
            Ok(())
        };
        let film = Film {
            asked: Box::new(asked),
            ..frames(|_| {})
        };
        record(film, &["--way", way, "--frames", "3"], &home.join(way)).unwrap();
        assert_eq!(ended.take(), Some(1), "{way}");
    }
}

/// What a recording that failed says.
#[track_caller]
fn failure(outcome: Outcome) -> String {
    match outcome {
        Err(Fail::Failed(text) | Fail::Usage(text)) => text,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_cannot_begin_leaves_the_file_as_it_was() {
    let Some(home) = place("what_cannot_begin_leaves_the_file_as_it_was") else {
        return;
    };
    let [file, photo, nowhere] = ["out", "photo", "nowhere/photo"].map(|name| home.join(name));
    let [at, at_photo] = [&nowhere, &photo].map(|path| path.to_str().unwrap());
    fs::write(&file, "what was there").unwrap();
    fs::write(index_of(&file), "its index").unwrap();
    let no_bus = || refuses(vidioc::VIDIOC_STREAMON, libc::ENOSPC);
    let part = format!("{at_photo}.part");
    let photo = ["--photo", at_photo, "--pre-roll", "1s", "--trigger"];
    let by = |trigger| [&photo[..], &[trigger]].concat();
    let no_pipeline = |error| refuses(vidioc::VIDIOC_STREAMON, error);
    let sizeless = Film {
        frame_bytes: 0,
        ..frames(|_| {})
    };
    let cases: [(Film, &[&str], &str); 9] = [
        (sizeless, &[], "does not say how large"),
        (no_bus(), &[], "its bus has no room"),
        (no_pipeline(libc::EPIPE), &[], "see media-ctl"),
        (no_pipeline(libc::ENOLINK), &[], "see media-ctl"),
        (frames(|_| {}), &["--pre-roll", "10000h"], "of memory"),
        (frames(|_| {}), &["--segment", "8191"], "room for a frame"),
        (frames(|_| {}), &["--photo", at], "cannot write photos"),
        (frames(|_| {}), &by(at_photo), "where a photo goes"),
        (frames(|_| {}), &by(&part), "where a photo goes"),
    ];
    for (film, options, wanted) in cases {
        let said = failure(record(film, options, &file));
        assert!(said.contains(wanted) && !said.contains('\n'), "{said}");
        assert_eq!(fs::read(&file).unwrap(), b"what was there");
        assert_eq!(fs::read(index_of(&file)).unwrap(), b"its index");
        assert_eq!(fs::read_dir(&home).unwrap().count(), 2);
    }
    // Too small for a frame of this camera, which has been set by then: not the status of a wrong command line.
    let outcome = record(frames(|_| {}), &["--segment", "8191"], &file);
    assert_eq!(outcome.unwrap_err().status(), 1);
    // And what was not there is not there.
    record(no_bus(), &[], &home.join("new")).unwrap_err();
    record(frames(|_| {}), &[], &home.join("n".repeat(252))).unwrap_err();
    assert_eq!(fs::read_dir(&home).unwrap().count(), 2);
}

#[test]
fn a_camera_that_takes_no_dmabuf_says_so_once() {
    let Some(home) = place("a_camera_that_takes_no_dmabuf_says_so_once") else {
        return;
    };
    if !ways(&home).contains(&"userptr") {
        return;
    }
    for way in ["dmabuf", "heap"] {
        let said = failure(explained(&["--way", way], &home.join("out")));
        let wanted = ": the camera does not do it (Invalid argument)";
        assert!(said.ends_with(&format!("'/dev/video0'{wanted}")), "{said}");
    }
}

#[test]
fn a_full_disk_refuses_no_way() {
    let Some(home) = place("a_full_disk_refuses_no_way") else {
        return;
    };
    if !ways(&home).contains(&"userptr") {
        return;
    }
    for (error, taken) in [
        (libc::ENOSPC, true),
        (libc::EDQUOT, true),
        (libc::EFAULT, false),
    ] {
        let out = home.join("out");
        // The filter ends with its thread.
        let work = move || {
            refuse(libc::SYS_pwrite64, error).ok()?;
            Some(explained(&["--way", "userptr"], &out))
        };
        let Some(outcome) = thread::spawn(work).join().unwrap() else {
            return eprintln!("skipped: no filters of system calls");
        };
        assert_eq!(outcome.is_ok(), taken, "{outcome:?}");
    }
}

#[test]
fn what_is_explained_is_refused_as_a_recording_is() {
    let Some(home) = place("what_is_explained_is_refused_as_a_recording_is") else {
        return;
    };
    let [file, link, occupied] = ["file", "link", "occupied"].map(|name| home.join(name));
    fs::write(&file, "what was there").unwrap();
    std::os::unix::fs::symlink("missing/out", &link).unwrap();
    fs::create_dir(index_of(&occupied)).unwrap();
    let (kind, missing) = ("not a regular file", "No such file or directory");
    let cases = [
        (home.clone(), kind),
        (PathBuf::from("/dev/null"), kind),
        (occupied, kind),
        (home.join("missing/out"), missing),
        (link, missing),
        (file.join("out"), "Not a directory"),
    ];
    for (path, wanted) in cases {
        let recorded = failure(record(frames(|_| {}), &["--frames", "1"], &path));
        assert!(recorded.contains(wanted), "{recorded}");
        assert_eq!(failure(explained(&[], &path)), recorded);
    }
    explained(&[], &home.join("new")).unwrap();
    explained(&[], &file).unwrap();
    assert_eq!(fs::read(&file).unwrap(), b"what was there");
    assert_eq!(fs::read_dir(&home).unwrap().count(), 3);
}

#[test]
fn two_recordings_do_not_share_a_file() {
    let Some(home) = place("two_recordings_do_not_share_a_file") else {
        return;
    };
    let [file, link, one] = ["out", "link", "one"].map(|name| home.join(name));
    std::os::unix::fs::symlink(&file, &link).unwrap();
    // By another name, or where its index is.
    for other in [link.clone(), index_of(&file)] {
        fs::write(&file, "").unwrap();
        let said = Arc::new(std::sync::Mutex::new(String::new()));
        let heard = said.clone();
        let film = frames(move |number| {
            if number == 5 {
                let outcome = record(frames(|_| {}), &["--frames", "3"], &other);
                *heard.lock().unwrap() = failure(outcome);
            }
        });
        record(film, &["--frames", "10"], &file).unwrap();
        let said = said.lock().unwrap();
        assert!(said.contains("another program records to"), "{said}");
        holds(&file, 0..10);
    }
    // It ends with the recording.
    fs::write(&file, "").unwrap();
    record(frames(|_| {}), &["--frames", "3"], &file).unwrap();
    holds(&file, 0..3);
    // A file and its index are two as well.
    fs::write(&one, "kept").unwrap();
    fs::hard_link(&one, index_of(&one)).unwrap();
    let said = failure(record(frames(|_| {}), &["--frames", "3"], &one));
    assert!(said.contains("same file as its index"), "{said}");
    assert_eq!(fs::read(&one).unwrap(), b"kept");
}

#[test]
fn the_limit_of_a_files_length_is_told_in_one_line() {
    let Some(home) = place("the_limit_of_a_files_length_is_told_in_one_line") else {
        return;
    };
    // What this program may write to its own output is less than that.
    let most = libc::rlimit {
        rlim_cur: 10 * FRAME as u64 + 100,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: reads the structure.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &most) }, 0);
    for way in ways(&home) {
        let file = home.join(way);
        let said = failure(record(frames(|_| {}), &["--way", way], &file));
        assert!(
            said.contains("File too large: --segment") && said.contains("all indexed"),
            "{said}"
        );
        let (numbers, _) = read(&file);
        assert!(numbers.iter().copied().eq(0..numbers.len() as u32));
        assert!(
            said.contains(&format!("holds {} frames", numbers.len())),
            "{said}"
        );
    }
}

#[test]
fn a_limit_of_a_files_length_that_no_frame_has_room_in_is_explained() {
    let test = "a_limit_of_a_files_length_that_no_frame_has_room_in_is_explained";
    let Some(home) = place(test) else {
        return;
    };
    if !ways(&home).contains(&"userptr") {
        return;
    }
    let none = libc::rlimit {
        rlim_cur: 0,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: reads the structure.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &none) }, 0);
    let said = failure(explained(&["--way", "userptr"], &home.join("out")));
    assert!(said.contains("File too large"), "{said}");
}

#[test]
fn lines_of_damaged_frames_do_not_wait_for_a_whole_one() {
    let Some(home) = place("lines_of_damaged_frames_do_not_wait_for_a_whole_one") else {
        return;
    };
    let file = home.join("out");
    let index = index_of(&file);
    let mut numbers = 0..;
    let film = film(move || {
        let number = numbers.next().unwrap();
        if number < 20 {
            let lines = fs::read_to_string(&index).unwrap().lines().count();
            assert_eq!(lines as u32, 1 + number);
            return Next::Damaged(number);
        }
        Next::Frame(number)
    });
    record(film, &["--frames", "2"], &file).unwrap();
    let remarks = (0..20).map(|n| format!("damaged {n}")).collect();
    assert_eq!(read(&file), (vec![20, 21], remarks));
}

#[test]
fn a_photo_that_could_not_be_written_is_a_failure() {
    let Some(home) = place("a_photo_that_could_not_be_written_is_a_failure") else {
        return;
    };
    let photos = home.join("photos");
    let photo = photos.join("photo").to_str().unwrap().to_owned();
    // Whether it ends by itself or by a signal.
    for end in [0..9, 0..6] {
        let file = home.join(end.end.to_string());
        fs::create_dir(&photos).unwrap();
        let photos = photos.clone();
        let asks = move |number| {
            if number == 3 {
                fs::remove_dir(&photos).unwrap();
                raise(SIGUSR2).unwrap();
            }
        };
        let film = match end.end {
            9 => frames(asks),
            _ => frames_until(SIGTERM, 5, asks),
        };
        let outcome = record(film, &["--frames", "9", "--photo", &photo], &file);
        assert!(matches!(outcome, Err(Fail::Reported)), "{outcome:?}");
        holds(&file, end);
    }
}

#[test]
fn a_signal_hides_no_json_that_could_not_be_printed() {
    let Some(home) = place("a_signal_hides_no_json_that_could_not_be_printed") else {
        return;
    };
    let film = frames_until(SIGTERM, 5, |_| {});
    let full = File::options().write(true).open("/dev/full").unwrap();
    // SAFETY: numbers alone. What the test says has its own standard output again.
    let outcome = unsafe {
        let ours = libc::dup(1);
        libc::dup2(full.as_raw_fd(), 1);
        let outcome = record(film, &["--json"], &home.join("out"));
        libc::dup2(ours, 1);
        outcome
    };
    let said = failure(outcome);
    assert!(said.contains("'standard output': No space left"), "{said}");
    holds(&home.join("out"), 0..6);
}

/// Takes a file away as soon as the camera that has this is closed.
struct Held(PathBuf);

impl Drop for Held {
    fn drop(&mut self) {
        fs::remove_file(&self.0).unwrap();
    }
}

#[test]
fn a_terminal_that_is_stopped_does_not_keep_the_camera() {
    let test = "a_terminal_that_is_stopped_does_not_keep_the_camera";
    if let Some(home) = job() {
        let held = Held(home.join("held"));
        let film = frames(move |number| {
            let _ = &held;
            if number == 3 {
                // Has no use, which is said.
                raise(SIGUSR1).unwrap();
            }
        });
        record(film, &["--frames", "5"], &home.join("out")).unwrap();
        return;
    }
    let home = tempfile::tempdir_in("/var/tmp").unwrap();
    let held = home.path().join("held");
    fs::write(&held, "").unwrap();
    // Standard error is a pipe that is full.
    let (mut terminal, full) = io::pipe().unwrap();
    // SAFETY: returns a number.
    let room = unsafe { libc::fcntl(full.as_raw_fd(), libc::F_GETPIPE_SZ) };
    (&full).write_all(&vec![b'\n'; room as usize]).unwrap();
    let mut recorder = command(&format!("recorder_tests::{test}"), home.path())
        .stdout(Stdio::null())
        .stderr(full)
        .spawn()
        .unwrap();
    let since = Instant::now();
    while held.exists() && since.elapsed() < SOON {
        thread::sleep(Duration::from_millis(10));
    }
    let released = !held.exists();
    let waits = recorder.try_wait().unwrap().is_none();
    let mut said = String::new();
    terminal.read_to_string(&mut said).unwrap();
    assert!(recorder.wait().unwrap().success(), "{said}");
    assert!(said.contains("SIGUSR1 is ignored"), "{said}");
    assert!(waits, "nothing was said to a terminal that takes nothing");
    assert!(
        released,
        "the camera was closed only when the line was taken"
    );
    holds(&home.path().join("out"), 0..5);
}

/// A terminal: what it shows can be read from the first, and written to the second.
fn terminal() -> io::Result<(File, File)> {
    let mut options = File::options();
    options.read(true).write(true).custom_flags(libc::O_NOCTTY);
    let screen = options.open("/dev/ptmx")?;
    let (unlocked, flags): (c_int, _) = (0, libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC);
    // SAFETY: reads a number; then makes a descriptor, which is nobody else's.
    let line = unsafe {
        libc::ioctl(screen.as_raw_fd(), libc::TIOCSPTLCK, &unlocked);
        match libc::ioctl(screen.as_raw_fd(), libc::TIOCGPTPEER, flags) {
            -1 => return Err(io::Error::last_os_error()),
            line => File::from_raw_fd(line),
        }
    };
    Ok((screen, line))
}

#[test]
fn a_terminal_gets_no_frames() {
    let test = "a_terminal_gets_no_frames";
    if job().is_some() {
        // No camera is asked for: without one that would be another message.
        let command = ["nocopy-record", "-"];
        let said = failure(run(&Cli::try_parse_from(command).unwrap().record));
        return eprintln!("{said}");
    }
    let (_screen, line) = match terminal() {
        Ok(terminal) => terminal,
        Err(error) => return eprintln!("skipped: no terminals: {error}"),
    };
    let mut recorder = command(&format!("recorder_tests::{test}"), Path::new("-"));
    let recorder = recorder.stdout(line).stderr(Stdio::piped()).spawn();
    let output = recorder.unwrap().wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    assert!(said.contains("to a pipe or a file"), "{said}");
}

#[test]
fn a_message_has_a_line_of_its_own() {
    let test = "recorder_tests::a_message_has_a_line_of_its_own";
    if let Some(file) = job() {
        let mut numbers = 0..9;
        show(film(move || {
            let number = numbers.next();
            match number {
                Some(3) => raise(SIGUSR1).unwrap(),
                Some(6) => raise(SIGUSR2).unwrap(),
                _ => {}
            }
            // Long enough for the progress line to change.
            thread::sleep(Duration::from_millis(60));
            number.map_or(Next::Gone, Next::Frame)
        }));
        let command = ["nocopy-record".into(), file];
        let outcome = run(&Cli::try_parse_from(command).unwrap().record);
        let Err(Fail::Failed(text)) = outcome else {
            panic!("{outcome:?}");
        };
        say(format_args!("nocopy-record: {text}"));
        // Whoever draws the progress line has time to do that even now.
        thread::sleep(Duration::from_millis(300));
        return;
    }
    let home = tempfile::tempdir_in("/var/tmp").unwrap();
    let file = home.path().join("out");
    let recorded: &[&str] = &["SIGUSR1 is ignored", "SIGUSR2 is ignored", "holds 9 frames"];
    for (file, messages) in [
        (&*file, recorded),
        (home.path(), &["exists and is not a regular file"]),
    ] {
        let (mut screen, line) = match terminal() {
            Ok(terminal) => terminal,
            Err(error) => return eprintln!("skipped: no terminals: {error}"),
        };
        let mut recorder = command(test, file)
            .env("TERM", "xterm")
            .stdout(Stdio::null())
            .stderr(line)
            .spawn()
            .unwrap();
        let mut shown = Vec::new();
        // It ends with an error as soon as nobody has the terminal.
        let _ = screen.read_to_end(&mut shown);
        let shown = String::from_utf8(shown).unwrap();
        assert!(recorder.wait().unwrap().success(), "{shown}");
        assert!(
            shown.contains(" 0 B "),
            "there is a progress line: {shown:?}"
        );
        let mut rest = &*shown;
        for message in messages {
            let (before, after) = rest.split_once("nocopy-record: ").unwrap();
            // Nothing is in the line, or all of it has been removed.
            assert!(
                before.is_empty() || before.ends_with('\n') || before.ends_with("\r\x1b[2K"),
                "{shown:?}"
            );
            let (line, after) = after.split_once("\r\n").unwrap();
            assert!(line.contains(message), "{shown:?}");
            rest = after;
        }
        assert_eq!(rest, "", "nothing follows the last message: {shown:?}");
    }
}
