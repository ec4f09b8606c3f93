// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pdio bench` and `pdio explain`: what they print has the form it should; figures are for the
//! benchmark itself.

mod common;

use std::fs;
use std::path::Path;

use common::*;

#[test]
fn a_sweep_reports_every_size_direction_and_mode_and_leaves_nothing_behind() {
    let home = home();
    let json = home.path().join("out.json");
    let dir = home.path().join("dir");
    fs::create_dir(&dir).unwrap();
    let output = pdio()
        .args([
            "bench", "paper", "--quick", "--sizes", "4K,1M", "--bytes", "8M", "--cache", "64M",
        ])
        .args(["--seconds", "0.3", "--json"])
        .args([&json, &dir])
        .output()
        .unwrap();
    assert_status(&output, 0);
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(
        table.contains("write") && table.contains("read") && table.contains("1.0 MiB"),
        "{table}"
    );
    let value: serde_json::Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    let target = &value["targets"][0];
    for direction in ["write", "read"] {
        for block in [4096, 1 << 20] {
            for mode in ["buffered", "direct", "dontcache", "pdio"] {
                let measured = target["results"].as_array().unwrap().iter().find(|r| {
                    r["direction"] == direction && r["block"] == block && r["mode"] == mode
                });
                let what = format!("{mode} {direction}");
                let excused = target["unsupported"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .any(|u| u["block"] == block && u["what"] == what);
                match measured {
                    Some(row) => {
                        assert!(row["mib_per_s"].as_f64().unwrap() > 0.0, "{row}");
                        let core = row["core_kernel_percent"].as_f64().unwrap();
                        assert!((0.0..=100.0).contains(&core), "{row}");
                        assert_eq!(row["runs"].as_array().unwrap().len(), 1);
                    }
                    None => assert!(excused, "{what} of {block} is missing: {value}"),
                }
            }
        }
    }
}

/// Runs a study in a directory of its own, and returns what it measured.
fn study(arguments: &[&str]) -> Vec<serde_json::Value> {
    let home = home();
    let output = pdio()
        .arg("bench")
        .args(arguments)
        .args(["--cache", "64M", "--rounds", "1", "--json", "-"])
        .arg(home.path())
        .output()
        .unwrap();
    assert_status(&output, 0);
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    value["targets"][0]["results"].as_array().unwrap().clone()
}

#[test]
fn random_blocks_are_read_and_overwritten_by_every_mode_there_is() {
    let rows = study(&["random", "--bytes", "8M", "--seconds", "0.3"]);
    for direction in ["write", "read"] {
        for mode in ["buffered", "pdio"] {
            let row = rows
                .iter()
                .find(|r| r["direction"] == direction && r["mode"] == mode);
            let row = row.unwrap_or_else(|| panic!("no {mode} {direction}: {rows:?}"));
            assert_eq!(row["block"], 4096);
            assert!(row["mib_per_s"].as_f64().unwrap() > 0.0, "{row}");
        }
    }
}

#[test]
fn a_stream_tells_of_every_frame_when_it_was_done() {
    let words = ["--frame", "10000", "--rate", "100", "--length", "0.5"];
    let more = ["--hogs", "1", "--source", "--modes", "buffered,pdio"];
    let rows = study(&[&["stream"][..], &words, &more].concat());
    assert_eq!(rows.len(), 2);
    for row in rows {
        let run = &row["runs"][0];
        assert_eq!(run["bytes"], 500_000);
        let paced = &run["paced"];
        assert_eq!(paced["calls"], 50);
        assert!(paced["missed"].as_u64().unwrap() <= 50);
        let number = |key: &str| paced[key].as_f64().unwrap();
        assert!(number("median_ms") <= number("p999_ms"), "{row}");
        assert!(number("p999_ms") <= number("worst_ms"), "{row}");
        // Fifty frames at their times take at least 49 periods.
        assert!(run["seconds"].as_f64().unwrap() >= 0.49, "{row}");
    }
}

#[test]
fn a_file_stands_for_the_directory_it_is_in() {
    let home = home();
    let file = home.path().join("file");
    fs::write(&file, "mine").unwrap();
    let output = pdio()
        .args([
            "bench", "--quick", "--sizes", "4K", "--bytes", "1M", "--cache", "64M",
        ])
        .args(["--seconds", "0.1", "--modes", "buffered"])
        .arg(&file)
        .output()
        .unwrap();
    assert_status(&output, 0);
    assert_eq!(fs::read(&file).unwrap(), b"mine");
}

#[test]
fn a_sweep_that_cannot_be_done_says_why_before_it_starts() {
    let home = home();
    let dir = home.path();
    for (arguments, status) in [
        (&["bench"][..], 2),
        (&["bench", "paper"], 2),
        (&["bench", "--sizes", "0", "."], 2),
        (&["bench", "--modes", "magic", "."], 2),
        (&["bench", "--seconds", "0", "."], 2),
        (&["bench", "--cache", "1", "."], 2),
        (&["bench", "stream", "--rate", "0", "."], 2),
        (&["bench", "stream", "--length", "-1", "."], 2),
        (&["bench", "stream", "--sizes", "4K", "."], 2),
        (&["bench", "stream", "--frame", "0", "."], 2),
        (&["bench", "/nonexistent"], 1),
        (&["bench", "--bytes", "1P", "."], 1),
        (&["bench", ".", "--json", "/nonexistent/x"], 1),
    ] {
        let output = pdio().args(arguments).current_dir(dir).output().unwrap();
        assert_status(&output, status);
        assert!(!output.stderr.is_empty());
    }
    assert_eq!(fs::read_dir(dir).unwrap().count(), 0);
}

#[test]
fn a_number_that_is_too_small_or_large_is_named_with_its_bounds() {
    for (arguments, option, most) in [
        (&["bench", "--seconds", "0", "."][..], "--seconds", "3600"),
        (&["bench", "--seconds", "3601", "."], "--seconds", "3600"),
        (
            &["bench", "stream", "--rate", "0", "."],
            "--rate",
            "1000000",
        ),
        (
            &["bench", "stream", "--length", "0", "."],
            "--length",
            "3600",
        ),
    ] {
        let output = pdio().args(arguments).output().unwrap();
        assert_status(&output, 2);
        let said = String::from_utf8_lossy(&output.stderr);
        let others = ["--seconds", "--rate", "--length"];
        let named = others.into_iter().filter(|name| said.contains(name));
        assert!(named.eq([option]), "{said}");
        assert!(
            said.contains(&format!("more than 0, up to {most}")),
            "{said}"
        );
    }
}

#[test]
fn an_interrupted_sweep_leaves_nothing_behind() {
    let home = home();
    let child = piped(
        pdio()
            .args(["bench", "--bytes", "8M", "--cache", "64M"])
            .arg(home.path()),
    );
    let id = child.id();
    until(|| fs::read_dir(home.path()).unwrap().count() > 0);
    signal(&child, rustix::process::Signal::INT);
    let output = wait(child);
    assert_status(&output, 130);
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
    let cgroup = format!("/sys/fs/cgroup/memory/pdio-bench-{id}");
    assert!(!std::path::Path::new(&cgroup).exists());
}

#[test]
fn explain_tells_of_every_file_it_can_and_fails_for_the_rest() {
    let home = home();
    let path = home.path().join("file");
    fs::write(&path, pattern(10_000)).unwrap();
    let output = pdio()
        .args(["explain"])
        .args([&path, &home.path().join("missing")])
        .output()
        .unwrap();
    assert_status(&output, 1);
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(
        text.contains("filesystem") && text.contains("writing"),
        "{text}"
    );
    assert!(
        stderr(&output).contains("missing': No such file"),
        "{}",
        stderr(&output)
    );
    let output = pdio()
        .args(["explain", "--json"])
        .arg(&path)
        .output()
        .unwrap();
    assert_status(&output, 0);
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(value["found"]["filesystem"].is_string(), "{value}");
}

#[test]
fn a_process_is_measured_from_its_first_byte() {
    let home = home();
    let output = pdio()
        .args([
            "bench", "first", "--bytes", "4M", "--sizes", "64K", "--rounds", "1",
        ])
        .args(["--cache", "64M", "--json", "-"])
        .arg(home.path())
        .output()
        .unwrap();
    assert_status(&output, 0);
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let results = value["targets"][0]["results"].as_array().unwrap();
    for mode in ["pdio", "remembered"] {
        let of = |r: &&serde_json::Value| r["mode"] == mode;
        let mine: Vec<_> = results.iter().filter(of).collect();
        assert_eq!(mine.len(), 2, "{value}");
        // Once, and not again.
        assert!(
            mine.iter().all(|r| r["runs"][0]["bytes"] == 4 << 20),
            "{value}"
        );
    }
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
}

#[test]
fn what_is_learned_is_remembered_and_explained() {
    let home = home();
    let costs = home.path().join("cache/pdio/costs");
    let run = |words: &[&str], costs: &Path| {
        let mut command = pdio();
        command.args(words).env("PDIO_COSTS", costs);
        command.output().unwrap()
    };
    let directory = home.path().to_str().unwrap();
    let known = |costs: &Path| {
        let output = run(&["explain", "--json", directory], costs);
        assert_status(&output, 0);
        let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        value["found"]["costs"].as_array().unwrap().clone()
    };
    assert!(known(&costs).is_empty());
    let output = run(&["learn", "--size", "1M", directory], &costs);
    assert_status(&output, 0);
    let learned = known(&costs);
    let has = |operation: &str| learned.iter().any(|cost| cost["operation"] == operation);
    assert!(has("Read") && has("Write"), "{learned:?}");
    let old = |cost: &serde_json::Value| cost["age"].as_u64().is_some();
    assert!(learned.iter().all(old), "{learned:?}");
    let output = run(&["explain", directory], &costs);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains(", measured ") && text.contains(" ago"),
        "{text}"
    );
    // Nothing is left but the file, of which a second run replaces the lines.
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1);
    assert_status(&run(&["learn", "--size", "1M", directory], &costs), 0);
    let text = fs::read_to_string(&costs).unwrap();
    assert!(text.lines().count() <= 20, "{text}");
    // Switched off, or damaged: as if it were not there.
    assert!(known(Path::new("0")).is_empty());
    fs::write(&costs, "pdio costs 1\nnonsense").unwrap();
    assert!(known(&costs).is_empty());
    // What is something else stays that.
    let notes = home.path().join("notes");
    fs::write(&notes, "my notes").unwrap();
    let output = run(&["learn", directory], &notes);
    assert_status(&output, 2);
    let said = stderr(&output);
    let begin = format!("pdio learn: cannot write '{}': ", notes.display());
    assert!(
        said.starts_with(&begin) && said.lines().count() == 1,
        "{said}"
    );
    assert_eq!(fs::read(&notes).unwrap(), b"my notes");
    // Nowhere to leave it: said before anything is measured.
    let output = run(&["learn", directory], Path::new("0"));
    assert_status(&output, 1);
    assert!(
        stderr(&output).contains("PDIO_COSTS"),
        "{}",
        stderr(&output)
    );
    let output = run(&["learn", directory], Path::new("/proc/none/costs"));
    assert_status(&output, 1);
    let said = stderr(&output);
    assert!(said.contains("cannot write '/proc/none/costs'"), "{said}");
    let output = run(&["learn", "/nonexistent"], &costs);
    assert_status(&output, 1);
    let said = stderr(&output);
    assert!(said.contains("cannot measure in '/nonexistent'"), "{said}");
}

#[test]
fn what_root_has_measured_everybody_reads_whatever_the_umask() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: not root");
        return;
    }
    let home = home();
    let script = "umask 077; mount -t tmpfs none /var/cache && unset PDIO_COSTS && \
                  \"$0\" learn --size 1M \"$1\" >&2 && stat -c %a /var/cache/pdio /var/cache/pdio/costs && \
                  PDIO_COSTS=\"$1/own/costs\" \"$0\" learn --size 1M \"$1\" >&2 && \
                  stat -c %a \"$1/own\" \"$1/own/costs\"";
    let Some(mut command) = mounting(script) else {
        return;
    };
    let output = command.arg(pdio().get_program()).arg(home.path()).output();
    let output = output.unwrap();
    assert_status(&output, 0);
    let modes = String::from_utf8(output.stdout).unwrap();
    // What is in another place is not meant for others.
    assert_eq!(modes, "755\n644\n700\n600\n");
}

#[test]
fn a_nonsensical_place_of_costs_is_named_in_one_line() {
    let home = home();
    fs::write(home.path().join("in"), "data").unwrap();
    let run = |words: &[&str], costs: &str| {
        let mut command = pdio();
        command.args(words).env("PDIO_COSTS", costs);
        command.current_dir(home.path()).output().unwrap()
    };
    let commands: [&[&str]; 5] = [
        &["dd", "if=in", "of=out", "status=none"],
        &["cp", "in", "out"],
        &["recv", "-q", "out"],
        &["explain", "in"],
        &["learn", "."],
    ];
    for words in commands {
        for costs in ["relative/costs", "1"] {
            let output = run(words, costs);
            assert_status(&output, 2);
            let wanted = format!(
                "pdio {}: PDIO_COSTS='{costs}' is not 0 or an absolute path\n",
                words[0]
            );
            assert_eq!(stderr(&output), wanted);
            assert!(output.stdout.is_empty());
        }
        assert!(!home.path().join("out").exists(), "{words:?}");
    }
    // These make sense. Empty is the same as unset.
    for costs in ["0", "off", "/nonexistent/costs", ""] {
        let output = run(commands[0], costs);
        assert_status(&output, 0);
        assert_eq!(stderr(&output), "");
    }
    assert_eq!(fs::read(home.path().join("out")).unwrap(), b"data");
}

#[test]
fn every_command_has_help_with_its_exit_status() {
    for command in ["cp", "dd", "recv", "explain", "learn", "run"] {
        let output = pdio().args([command, "--help"]).output().unwrap();
        assert_status(&output, 0);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(
            text.contains("Exit status:") && text.contains("Usage:"),
            "{text}"
        );
    }
    assert_status(&pdio().arg("nonsense").output().unwrap(), 2);
    assert_status(&pdio().output().unwrap(), 2);
}

#[test]
fn explain_waits_for_nobody_and_sends_nothing_to_a_terminal() {
    let home = home();
    let (fifo, _) = fifo_and_file(home.path());
    let name = home.path().join("a\x1b[31m\nb");
    fs::write(&name, "").unwrap();
    let output = pdio().arg("explain").args([&fifo, &name]).output().unwrap();
    assert_status(&output, 0);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("fifo:\n"), "{text}");
    assert!(text.contains("a\\u{1b}[31m\\nb\":\n"), "{text}");
}

#[test]
fn earlier_results_stay_until_there_are_new_ones() {
    let home = home();
    let results = home.path().join("results.json");
    for bytes in ["1E", "18446744073709551615"] {
        std::fs::write(&results, "earlier").unwrap();
        let output = pdio()
            .args(["bench", "--bytes", bytes, "--json"])
            .args([&results, home.path()])
            .output()
            .unwrap();
        assert_status(&output, 1);
        let said = stderr(&output);
        assert!(said.contains("has less than the"), "{said}");
        assert_eq!(std::fs::read(&results).unwrap(), b"earlier");
    }
}

#[test]
fn a_signal_ends_a_measurement_that_would_take_long() {
    let home = home();
    let dir = home.path().join("dir");
    fs::create_dir(&dir).unwrap();
    for (what, study) in [
        ("learn", &["first", "--modes", "remembered"][..]),
        (
            "bench-cell",
            &["stream", "--frame", "4K", "--length", "3000", "--hogs", "1"][..],
        ),
    ] {
        let mut bench = pdio();
        bench.arg("bench").args(study).args(["--cache", "64M"]);
        let bench = piped(bench.arg(&dir));
        let children = format!("/proc/{0}/task/{0}/children", bench.id());
        let measures = |pid: &str| {
            let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            words.split(|byte| *byte == 0).nth(1) == Some(what.as_bytes())
        };
        let found = || {
            let children = fs::read_to_string(&children).unwrap();
            let mut children = children.split_whitespace().map(String::from);
            children.find(|pid| measures(pid))
        };
        until(|| found().is_some());
        let measuring = found().unwrap();
        signal(&bench, rustix::process::Signal::TERM);
        let output = wait(bench);
        assert_eq!(shell_status(&output), Some(143), "{}", stderr(&output));
        assert!(!measures(&measuring), "{what} goes on");
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 0, "{what}");
    }
}
