// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures what strategies cost on a filesystem, for the streams of later processes.
//!
//! Every strategy moves the same amount of data five times, in turns with the others, so that whatever
//! else the machine does meets all of them. The two cheapest samples that agree are believed. Where no
//! two agree, nothing is remembered: a stream then finds out for itself.
//!
//! Scattered reads are not measured here. What the page cache gives them is that they find again what
//! they have read, and that depends on the program.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

use crate::align::FileFacts;
use crate::costs::{self, Line};
use crate::learned::{self, Operation, Pattern, CHOICES, STAGED, ZERO_COPY};
use crate::memory::MIN_REGION;
use crate::options::OpenOptions;
use crate::spent::{moment, spent};
use crate::stats::Stats;
use crate::sys;

/// What each stream moves before it is measured, in bytes: by then it has memory and requests in flight.
const WARM_UP: usize = 8 << 20;
/// Samples that differ by at most this factor agree.
const AGREE: f64 = 1.25;
const ROUNDS: usize = 5;

/// The calls that are measured.
const CALLS: [(Pattern, usize); 3] = [
    (Pattern::Sequential, 4 << 10),
    (Pattern::Medium, 64 << 10),
    (Pattern::Large, 1 << 20),
];

/// One strategy for one kind of stream.
struct Arm {
    operation: Operation,
    pattern: Pattern,
    len: usize,
    choice: usize,
    samples: Vec<f64>,
    /// The file does not allow it, or the calls.
    impossible: bool,
}

impl Arm {
    fn all() -> Vec<Arm> {
        let mut all = Vec::new();
        for operation in [Operation::Write, Operation::Read] {
            for (pattern, len) in CALLS {
                for choice in 0..CHOICES.len() {
                    all.push(Arm {
                        operation,
                        pattern,
                        len,
                        choice,
                        samples: Vec::new(),
                        impossible: choice == ZERO_COPY && pattern == Pattern::Sequential,
                    });
                }
            }
        }
        all
    }

    /// The lower one of the cheapest two samples that agree: interference only ever adds.
    fn cost(&self) -> Option<f64> {
        let mut sorted = self.samples.clone();
        sorted.sort_by(f64::total_cmp);
        let agreeing = sorted.windows(2).find(|pair| pair[1] <= pair[0] * AGREE)?;
        Some(agreeing[0])
    }
}

/// Measures what streams cost on the filesystem of `directory`, in a file without a name there, and
/// writes it to `file` for [`remember_costs`](crate::remember_costs), in the place of what that knew of
/// this filesystem. Each sample moves `size` bytes and some more, which is the room that the file needs.
/// `progress` is told after each how many are done, and how many there are at most.
///
/// Returns how many strategies did not cost the same twice and are therefore not remembered: the machine
/// was busy.
///
/// # Errors
/// Those of making, writing and reading a file in `directory`, and of writing `file`, which is tried
/// before anything is measured. The text says which; `file` is then as it was. If `file` is there and no file of costs, it stays as it is, and the error
/// is [`AlreadyExists`](io::ErrorKind::AlreadyExists).
pub fn learn(
    directory: &Path,
    file: &Path,
    size: usize,
    mut progress: impl FnMut(usize, usize),
) -> io::Result<usize> {
    let cannot = |what: &str, path: &Path, error: io::Error| {
        io::Error::new(
            error.kind(),
            format!("cannot {what} '{}': {error}", path.display()),
        )
    };
    let in_directory = |error| cannot("measure in", directory, error);
    let data = sys::nameless(directory).map_err(in_directory)?;
    // Before minutes are spent.
    costs::try_save(file).map_err(|error| cannot("write", file, error))?;
    let (facts, lines, vague) = measure(&data, size, &mut progress).map_err(in_directory)?;
    let filesystem = lines.first().map_or("", |line| &line.filesystem);
    costs::save(file, filesystem, &lines).map_err(|error| cannot("write", file, error))?;
    learned::recall(facts.dev, &lines);
    Ok(vague)
}

/// What was found out about a file, and how many strategies agreed on no cost.
fn measure(
    data: &File,
    size: usize,
    progress: &mut impl FnMut(usize, usize),
) -> io::Result<(FileFacts, Vec<Line>, usize)> {
    let facts = FileFacts::of(data)?;
    let filesystem = costs::identity(data.as_fd(), &facts).ok_or_else(io::Error::last_os_error)?;
    // No device has room for the most, and it can be added to.
    let size = size.clamp(MIN_REGION, usize::MAX / 4);
    let size = size.next_multiple_of(1 << 20);
    let mut arms = Arm::all();
    let total = arms.iter().filter(|arm| !arm.impossible).count() * ROUNDS;
    let mut done = 0;
    for _ in 0..ROUNDS {
        // The file is as long as the last writer left it.
        for arm in arms.iter_mut().filter(|arm| !arm.impossible) {
            match sample(data, arm, size)? {
                Some(cost) => arm.samples.push(cost),
                None => arm.impossible = true,
            }
            done += 1;
            progress(done, total);
        }
    }
    let when = costs::now();
    let measured = |arm: &Arm| {
        Some(Line {
            filesystem: filesystem.clone(),
            what: learned::words(arm.operation, arm.pattern, arm.choice),
            cost: arm.cost()?,
            when,
        })
    };
    let lines = arms.iter().filter_map(measured).collect();
    let is_vague = |arm: &&Arm| !arm.impossible && arm.cost().is_none();
    let vague = arms.iter().filter(is_vague).count();
    Ok((facts, lines, vague))
}

/// Content that no filesystem can compress, so that all of it goes to the device and comes from there.
fn fill_with_noise(block: &mut [u8]) {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    for word in block.as_chunks_mut::<8>().0 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        *word = state.to_ne_bytes();
    }
}

/// What a byte costs a stream that may do nothing but this; `None` if it cannot do that here.
fn sample(data: &File, arm: &Arm, size: usize) -> io::Result<Option<f64>> {
    let mut options = OpenOptions::new();
    options.only = Some(arm.choice);
    let mut memory = vec![7u8; arm.len + 4096];
    let skew = memory.as_ptr().align_offset(4096);
    let block = &mut memory[skew..skew + arm.len];
    fill_with_noise(block);
    let mut file = data;
    file.seek(SeekFrom::Start(0))?;
    let whole = WARM_UP + size;
    let (cost, stats) = match arm.operation {
        Operation::Write => {
            data.set_len(0)?;
            data.sync_all()?;
            let mut out = options.writer_from(data.try_clone()?)?;
            write(&mut out, block, WARM_UP)?;
            out.sync_data()?;
            let begun = moment();
            write(&mut out, block, size)?;
            out.sync_data()?;
            let cost = spent(begun, size as u64).cost;
            (cost, out.finish()?)
        }
        Operation::Read => {
            if data.metadata()?.len() < whole as u64 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            // SAFETY: no memory is involved.
            unsafe { libc::posix_fadvise(data.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
            let mut input = options.reader_from(data.try_clone()?)?;
            read(&mut input, block, WARM_UP)?;
            let begun = moment();
            read(&mut input, block, size)?;
            let cost = spent(begun, size as u64).cost;
            (cost, input.stats())
        }
    };
    Ok(is_as_told(arm.choice, &stats).then_some(cost))
}

fn write(out: &mut impl Write, block: &[u8], len: usize) -> io::Result<()> {
    (0..len / block.len()).try_for_each(|_| out.write_all(block))
}

fn read(input: &mut impl Read, block: &mut [u8], len: usize) -> io::Result<()> {
    (0..len / block.len()).try_for_each(|_| input.read_exact(block))
}

/// Returns true if a stream went the way that it was told to.
fn is_as_told(choice: usize, stats: &Stats) -> bool {
    let direct = match choice {
        STAGED => stats.direct_bytes > stats.bytes / 2 && stats.zero_copy_bytes == 0,
        ZERO_COPY => stats.zero_copy_bytes > stats.bytes / 2,
        _ => stats.direct_bytes == 0,
    };
    direct && stats.strategy == CHOICES[choice]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common;

    #[test]
    fn a_cost_wants_two_samples_that_agree() {
        let cost = |samples: &[f64]| {
            let mut arm = Arm::all().remove(0);
            arm.samples = samples.to_vec();
            arm.cost()
        };
        assert_eq!(cost(&[]), None);
        assert_eq!(cost(&[1.0]), None);
        assert_eq!(cost(&[1.0, 1.3]), None);
        assert_eq!(cost(&[1.2, 1.0]), Some(1.0));
        // Neither a lucky nor an interrupted sample counts.
        assert_eq!(cost(&[1.0, 0.2, 1.1]), Some(1.0));
        assert_eq!(cost(&[9.0, 1.0, 1.1]), Some(1.0));
    }

    #[test]
    fn what_is_learned_is_what_streams_begin_with() {
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        let file = home.path().join("costs");
        let mut seen = (0, 0);
        learn(home.path(), &file, 1 << 20, |done, total| {
            // A signal may end it here.
            assert!(!file.exists());
            seen = (done, total)
        })
        .unwrap();
        assert!(0 < seen.0 && seen.0 <= seen.1, "{seen:?}");
        let data = sys::nameless(home.path()).unwrap();
        let facts = FileFacts::of(&data).unwrap();
        if facts.alignment.is_some() {
            let known = learned::costs(facts.dev);
            assert!(known.iter().any(|cost| cost.age.is_some()), "{known:?}");
        }
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 1);
        // A place that cannot be written is an error, and nothing is left of the file.
        let place = Path::new("/proc/none/costs");
        learn(home.path(), place, 1 << 20, |_, _| {}).unwrap_err();
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_cannot_be_measured_leaves_no_file_of_costs() {
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        let file = home.path().join("not/there/costs");
        let none = home.path().join("none");
        let error = learn(&none, &file, 1 << 20, |_, _| {}).unwrap_err();
        assert!(error.to_string().contains("measure in"), "{error}");
        assert!(!home.path().join("not").exists());
    }

    #[test]
    fn more_than_a_device_has_is_an_error() {
        let Some(home) = common::job() else {
            let home = tempfile::tempdir_in("/var/tmp").unwrap();
            // The limit is the whole process's.
            let test = "learn::tests::more_than_a_device_has_is_an_error";
            let status = common::child(test, home.path().to_str().unwrap()).status();
            assert!(status.unwrap().success());
            return;
        };
        common::limit_files(1 << 20);
        let home = Path::new(&home);
        let error = learn(home, &home.join("costs"), usize::MAX, |_, _| {}).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
    }
}
