// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes files, says what of them is promised to survive a power cut, and checks that it did.
//!
//! `promise write KIND SEED FILE` writes until it is ended, with a line of JSON on standard output
//! for each promise; `promise check KIND SEED FILE UNITS` looks whether the last one was kept.
//! `promise heal FILE SEED [linger]` meets a device that fails: see there.
//!
//! | `KIND` | what is written | a unit is |
//! |---|---|---|
//! | `process`, `safe` | a stream, synced now and then, in that durability mode | a byte |
//! | `sync` | a stream in mode `Sync`, where every write is a promise | a byte |
//! | `overwrite` | random places of a file of 4 MiB, synced now and then | a write |
//! | `hasty` | a stream that promises and then never syncs, which is wrong | a byte |

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::process::ExitCode;

use pdio::{Durability, OpenOptions};

/// Size of the file that is overwritten.
const PLACES: usize = 4 << 20;
/// Writes after the last promise that may have reached the device.
const AHEAD: u64 = 4000;

/// The word at an offset divided by eight, as the `round`th to be written there.
fn word(seed: u64, index: u64, round: u64) -> u64 {
    let mut z = (seed << 48) ^ (round << 24) ^ index;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// `len` bytes from offset `at` on.
fn content(seed: u64, at: u64, len: usize, round: u64) -> Vec<u8> {
    let first = at / 8;
    let last = (at + len as u64).div_ceil(8);
    let all: Vec<u8> = (first..last)
        .flat_map(|i| word(seed, i, round).to_le_bytes())
        .collect();
    let skip = (at % 8) as usize;
    all[skip..skip + len].to_vec()
}

fn promise(kind: &str, seed: u64, file: &str, units: u64) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let line = format!(
        "{{\"type\": \"promise\", \"kind\": \"{kind}\", \"seed\": {seed}, \"file\": \"{file}\", \
         \"units\": {units}}}\n"
    );
    out.write_all(line.as_bytes())?;
    out.flush()
}

fn write(kind: &str, seed: u64, file: &str) -> io::Result<()> {
    match kind {
        "overwrite" => return overwrite(seed, file),
        "process" | "safe" | "sync" | "hasty" => {}
        _ => return Err(io::Error::other(format!("no kind '{kind}'"))),
    }
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut options = OpenOptions::new();
    options.create(true).truncate(true).durability(match kind {
        "safe" => Durability::Safe,
        "sync" => Durability::Sync,
        _ => Durability::Process,
    });
    if rng.bool() {
        options.preallocate(4 << 20);
    }
    let mut out = options.open_writer(file)?;
    // The name has to survive as well.
    out.sync_all()?;
    if let Some(directory) = Path::new(file).parent() {
        File::open(directory)?.sync_all()?;
    }
    promise(kind, seed, file, 0)?;
    let most = *rng
        .choice(&[100, 512, 4096, 10_000, 65536, 300_000])
        .unwrap_or(&512);
    let mut at = 0u64;
    loop {
        let data = content(seed, at, rng.usize(1..=most), 0);
        out.write_all(&data)?;
        at += data.len() as u64;
        if kind == "sync" {
            promise(kind, seed, file, at)?;
        } else if rng.u8(..30) == 0 {
            if kind == "hasty" {
                promise(kind, seed, file, at)?;
                // The power goes now: no sync will follow.
                loop {
                    std::thread::park();
                }
            }
            out.sync_data()?;
            promise(kind, seed, file, at)?;
        }
    }
}

/// Where the writes of `overwrite` go, and how long they are.
struct Places(fastrand::Rng);

impl Iterator for Places {
    type Item = (u64, usize);

    fn next(&mut self) -> Option<(u64, usize)> {
        let most = self.0.choice([64, 512, 4096, 16384, 131_072])?;
        let len = 8 * self.0.usize(1..=most / 8);
        let at = 8 * self.0.usize(..=(PLACES - len) / 8);
        Some((at as u64, len))
    }
}

fn overwrite(seed: u64, file: &str) -> io::Result<()> {
    let mut out = OpenOptions::new()
        .create(true)
        .truncate(true)
        .open_writer(file)?;
    out.write_all(&content(seed, 0, PLACES, 0))?;
    out.sync_all()?;
    if let Some(directory) = Path::new(file).parent() {
        File::open(directory)?.sync_all()?;
    }
    promise("overwrite", seed, file, 0)?;
    let mut when = fastrand::Rng::with_seed(!seed);
    for (round, (at, len)) in (1..).zip(Places(fastrand::Rng::with_seed(seed))) {
        out.seek(SeekFrom::Start(at))?;
        out.write_all(&content(seed, at, len, round))?;
        if when.u8(..30) == 0 {
            out.sync_data()?;
            promise("overwrite", seed, file, round)?;
        }
    }
    Ok(())
}

/// What is wrong with a file, if anything is.
fn check(
    kind: &str,
    seed: u64,
    file: &str,
    units: u64,
    exact: bool,
) -> io::Result<Result<u64, String>> {
    let mut data = Vec::new();
    File::open(file)?.read_to_end(&mut data)?;
    let size = data.len() as u64;
    if kind != "overwrite" {
        if size < units {
            return Ok(Err(format!("{size} bytes left of {units} promised")));
        }
        // Beyond the promise, a power cut may take what a device has not been told to keep, and
        // what is not there yet reads as zeros.
        let known = if exact { size } else { units };
        let wanted = content(seed, 0, known as usize, 0);
        let wrong = (0..known)
            .zip(data.iter().zip(&wanted))
            .find(|&(at, (got, want))| got != want && (at < units || *got != 0));
        return Ok(match wrong {
            Some((at, (got, want))) => Err(format!(
                "{got:#x} for {want:#x} at {at} of {size} bytes, {units} of them promised"
            )),
            None => Ok(size),
        });
    }
    if data.len() != PLACES {
        return Ok(Err(format!("the size is {size}, not {PLACES}")));
    }
    // The last promised write of each word.
    let mut rounds = vec![0u64; PLACES / 8];
    let mut places = Places(fastrand::Rng::with_seed(seed));
    for (round, (at, len)) in (1..=units).zip(places.by_ref()) {
        rounds[at as usize / 8..][..len / 8].fill(round);
    }
    let is = |index: usize, round: u64| {
        data[8 * index..][..8] == word(seed, index as u64, round).to_le_bytes()
    };
    let mut wrong: Vec<usize> = (0..rounds.len()).filter(|&i| !is(i, rounds[i])).collect();
    // Those that differ have to be of a later write.
    for (round, (at, len)) in (units + 1..=units + AHEAD).zip(places) {
        let range = at as usize / 8..(at as usize + len) / 8;
        wrong.retain(|&i| !(range.contains(&i) && is(i, round)));
    }
    Ok(match wrong.first() {
        Some(i) => Err(format!(
            "{} words are of no write that may be there, the first at {}",
            wrong.len(),
            8 * i
        )),
        None => Ok(size),
    })
}

/// Overwrites a file on a device of which a part fails. The error must come once; then a line is
/// read from standard input, by which time the device must be whole again, and a sync must
/// succeed and leave everything that was accepted.
///
/// With `linger`, idle data is handed over in between, which tries the failing part again: then
/// the first sync may have another error to report.
fn heal(file: &str, seed: u64, linger: bool) -> io::Result<Result<u64, String>> {
    let size = std::fs::metadata(file)?.len();
    let mut options = OpenOptions::new();
    if !linger {
        options.linger(None);
    }
    let mut out = options.open_writer(file)?;
    let (mut at, mut errors) = (0u64, Vec::new());
    while at < size && errors.is_empty() {
        let len = (size - at).min(10_000) as usize;
        match out.write(&content(seed, at, len, 1)) {
            Ok(n) => at += n as u64,
            Err(error) => errors.push(error),
        }
    }
    if errors.is_empty() {
        errors.extend(out.sync_data().err());
    }
    match &errors[..] {
        [error] if error.raw_os_error() == Some(5) => {}
        others => return Ok(Err(format!("expected one EIO, got {others:?}"))),
    }
    println!("{{\"type\": \"failed\", \"accepted\": {at}}}");
    io::stdout().flush()?;
    io::stdin().read_line(&mut String::new())?;
    let again = |error: &io::Error| linger && error.raw_os_error() == Some(5);
    let result = match out.sync_data() {
        Err(error) if again(&error) => out.sync_data(),
        result => result,
    };
    if let Err(error) = result {
        return Ok(Err(format!("on the whole device the sync failed: {error}")));
    }
    while at < size {
        let len = (size - at).min(10_000) as usize;
        at += out.write(&content(seed, at, len, 1))? as u64;
    }
    out.sync_data()?;
    let stats = out.finish()?;
    if std::fs::read(file)? != content(seed, 0, size as usize, 1) {
        return Ok(Err("the file is not what was written".into()));
    }
    Ok(Ok(stats.direct_bytes))
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let number = |text: &str| text.parse::<u64>().map_err(io::Error::other);
    let result = match words[..] {
        ["write", kind, seed, file] => {
            number(seed).and_then(|seed| match write(kind, seed, file) {
                // What was promised has to be kept also on a full disk.
                Err(full) if full.kind() == io::ErrorKind::StorageFull => loop {
                    std::thread::park();
                },
                result => result.map(|()| Ok(0)),
            })
        }
        ["check", kind, seed, file, units] => {
            number(seed).and_then(|seed| check(kind, seed, file, number(units)?, false))
        }
        ["check", kind, seed, file, units, "exact"] => {
            number(seed).and_then(|seed| check(kind, seed, file, number(units)?, true))
        }
        ["heal", file, seed] => number(seed).and_then(|seed| heal(file, seed, false)),
        ["heal", file, seed, "linger"] => number(seed).and_then(|seed| heal(file, seed, true)),
        _ => {
            eprintln!(
                "usage: promise write KIND SEED FILE | check KIND SEED FILE UNITS [exact] | heal FILE SEED [linger]"
            );
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(Ok(units)) => {
            println!(
                "{{\"type\": \"kept\", \"words\": \"{}\", \"units\": {units}}}",
                words.join(" ")
            );
            ExitCode::SUCCESS
        }
        Ok(Err(wrong)) => {
            println!(
                "{{\"type\": \"broken\", \"words\": \"{}\", \"why\": \"{wrong}\"}}",
                words.join(" ")
            );
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("promise: {}: {error}", words.join(" "));
            ExitCode::FAILURE
        }
    }
}
