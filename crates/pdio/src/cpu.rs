// SPDX-License-Identifier: MIT OR Apache-2.0
//! The processor time that all tasks of the system have used.
//!
//! It comes from the finest source that can be read: the scheduler's statistics, the root of the cpuacct
//! hierarchy, else the clock ticks in `/proc/stat`. Of many processors the scheduler's statistics are a long
//! text, which the kernel writes anew for each reading: some hundred bytes for each. There the steps of the
//! clock, of 10 ms of all processors together, are small, and the other two take their place.
//!
//! The scheduler's statistics count a task's time when the task leaves the processor. A thread that copies
//! and never waits would be charged nothing for a long time, and then all of it at once, for whatever
//! it does by then. So the calling thread's share that is not counted yet is added here.

use std::cell::Cell;
use std::fs::File;
use std::os::fd::AsFd;
use std::sync::OnceLock;
use std::time::Duration;

use crate::fork::PerProcess;
use crate::sys;

/// Opened for each reading: a descriptor that stayed open would be one that the program could not have.
struct Source {
    path: &'static str,
    /// What a line adds to the sum.
    parse: fn(&str) -> Option<u64>,
    /// Lines after the first one count as well.
    all_lines: bool,
    /// It lacks what a thread has used since it last came onto its processor.
    lags: bool,
    /// It is not read where there are more processors.
    most_cpus: u32,
}

const SOURCES: [Source; 3] = [
    Source {
        path: "/proc/schedstat",
        parse: schedstat,
        all_lines: true,
        lags: true,
        most_cpus: 16,
    },
    Source {
        path: "/sys/fs/cgroup/cpuacct/cpuacct.usage",
        parse: nanoseconds,
        all_lines: false,
        lags: false,
        most_cpus: u32::MAX,
    },
    Source {
        path: "/proc/stat",
        parse: ticks,
        all_lines: false,
        lags: false,
        most_cpus: u32::MAX,
    },
];

fn schedstat(line: &str) -> Option<u64> {
    let cpu = line.strip_prefix("cpu")?;
    cpu.split_whitespace().nth(7)?.parse().ok()
}

fn nanoseconds(line: &str) -> Option<u64> {
    line.trim().parse().ok()
}

fn ticks(line: &str) -> Option<u64> {
    // user nice system idle iowait irq softirq steal: all but idle, iowait and steal.
    let fields = line.strip_prefix("cpu ")?.split_whitespace().take(7);
    let busy: u64 = fields
        .enumerate()
        .filter(|(i, _)| ![3, 4].contains(i))
        .filter_map(|(_, value)| value.parse::<u64>().ok())
        .sum();
    // SAFETY: no memory is involved.
    let hz = (unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).max(1) as u64;
    Some(busy * (1_000_000_000 / hz))
}

/// Longer than any line of these texts, and than what the kernel gives at a time, which is a page.
const BUFFER: usize = 16 << 10;

/// The sum of what the lines of a text say; `None` if that is nothing. `next` reads at an offset.
fn sum(source: &Source, mut next: impl FnMut(&mut [u8], u64) -> Option<usize>) -> Option<u64> {
    // Not on the stack, which may be one of 16 KiB, of a thread of the program's.
    let mut text = vec![0u8; BUFFER];
    let (mut offset, mut held, mut sum) = (0, 0, 0);
    loop {
        let n = next(&mut text[held..], offset)?;
        offset += n as u64;
        held += n;
        // A number that is cut would be a smaller one.
        let whole = text[..held].iter().rposition(|&byte| byte == b'\n');
        let whole = whole.map_or(0, |end| end + 1);
        let lines = text[..whole].split(|&byte| byte == b'\n');
        let added = |line| (source.parse)(std::str::from_utf8(line).ok()?);
        sum += match source.all_lines {
            true => lines.filter_map(added).sum::<u64>(),
            false => lines.take(1).filter_map(added).sum(),
        };
        if n == 0 || whole > 0 && !source.all_lines {
            return (sum > 0).then_some(sum);
        }
        text.copy_within(whole..held, 0);
        held -= whole;
    }
}

fn read(source: &Source) -> Option<Duration> {
    let file = File::open(source.path).ok()?;
    let next = |text: &mut [u8], offset| sys::pread(file.as_fd(), text, offset, 0).ok();
    sum(source, next).map(Duration::from_nanos)
}

/// The finest source of those that can be read and suit so many processors.
fn finest(cpus: u32) -> Option<&'static Source> {
    #[cfg(test)]
    drop(crate::fork::tests::system());
    let suit = |source: &&Source| cpus <= source.most_cpus && read(source).is_some();
    SOURCES.iter().find(suit)
}

/// The processor time that all tasks have used since some moment, as this thread sees it: what threads
/// on other processors have used since they last came there may be missing. `None` if it cannot be read, as where
/// the program has all the descriptors that it may have.
pub(crate) fn of_system() -> Option<Duration> {
    static SOURCE: PerProcess<OnceLock<Option<&Source>>> = PerProcess::new();
    let source = SOURCE.get().get_or_init(|| finest(sys::cpus()));
    let source = (*source)?;
    let counted = read(source)?;
    Some(match source.lags {
        true => counted + uncounted(),
        false => counted,
    })
}

/// What the calling thread has used since it last came onto its processor.
fn uncounted() -> Duration {
    thread_local! {
        static STINT: Cell<Option<Stint>> = const { Cell::new(None) };
    }
    let Some(switches) = sys::thread_switches() else {
        return Duration::ZERO;
    };
    let stint = Stint::of(STINT.get(), switches, sys::thread_cpu());
    STINT.set(Some(stint));
    stint.length
}

/// A thread's time on its processor since it last came there.
#[derive(Clone, Copy, Debug)]
struct Stint {
    /// How often the thread had left a processor, and what it had used, when this was found out.
    switches: u64,
    used: Duration,
    length: Duration,
}

impl Stint {
    /// The present stint of a thread, after what was found out `before`. If it has left the processor
    /// since, the kernel does not tell when, and all stints are taken to have been of the same length. Of
    /// the first nothing is known; it counts from here on, as what is too little would make a sample cheap.
    fn of(before: Option<Stint>, switches: u64, used: Duration) -> Stint {
        // In a forked child it is the parent's.
        let before = before.filter(|before| before.used <= used);
        let length = before.map_or(Duration::ZERO, |before| {
            let since = used - before.used;
            match switches.saturating_sub(before.switches) {
                0 => before.length + since,
                left => since / u32::try_from(left + 1).unwrap_or(u32::MAX),
            }
        });
        Stint {
            switches,
            used,
            length,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_stint_grows_until_the_thread_leaves_its_processor() {
        let mut stint = Stint::of(None, 4, 10 * MS);
        assert_eq!(stint.length, Duration::ZERO);
        for (switches, used, length) in [(4, 13, 3), (4, 14, 4), (7, 26, 3), (7, 27, 4)] {
            stint = Stint::of(Some(stint), switches, used * MS);
            assert_eq!(stint.length, length * MS, "{switches} switches, {used} ms");
        }
    }

    #[test]
    fn a_thread_that_does_not_leave_its_processor_is_charged_what_it_used() {
        if read(&SOURCES[0]).is_none() {
            eprintln!("skipped: no /proc/schedstat");
            return;
        }
        // On a busy machine it may be made to leave.
        loop {
            let switches = sys::thread_switches();
            let (begun, used) = (of_system().unwrap(), sys::thread_cpu());
            while sys::thread_cpu() - used < 2 * MS {}
            let (used, charged) = (sys::thread_cpu() - used, of_system().unwrap() - begun);
            if sys::thread_switches() == switches {
                assert!(charged >= used, "{charged:?} of {used:?}");
                break;
            }
        }
    }

    #[test]
    fn a_forked_child_is_not_charged_what_its_parent_used() {
        let of_parent = Stint {
            switches: 4,
            used: 100 * MS,
            length: 50 * MS,
        };
        let stint = Stint::of(Some(of_parent), 2, MS);
        assert_eq!(stint.length, Duration::ZERO);
        assert_eq!(Stint::of(Some(stint), 2, 3 * MS).length, 2 * MS);
    }

    /// Returns true in a process of its own, in which the test `name` is run, unless there is no source.
    fn is_alone(name: &str) -> bool {
        if common::job().is_some() {
            return true;
        }
        match of_system() {
            Some(_) => assert!(common::child(name, "alone").status().unwrap().success()),
            None => eprintln!("skipped: nothing tells the system's processor time"),
        }
        false
    }

    #[test]
    fn the_smallest_stack_that_a_thread_can_have_suffices() {
        if is_alone("cpu::tests::the_smallest_stack_that_a_thread_can_have_suffices") {
            let thread = sys::spawn(c"pdio-test", 0, || assert!(of_system().is_some()));
            thread.unwrap().join();
        }
    }

    #[test]
    fn a_source_that_cannot_be_read_is_not_zero() {
        // It takes all descriptors.
        if !is_alone("cpu::tests::a_source_that_cannot_be_read_is_not_zero") {
            return;
        }
        let before = of_system().unwrap();
        let all: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
        assert_eq!(of_system(), None);
        drop(all);
        assert!(of_system().unwrap() >= before);
    }

    /// Reads a text, so many bytes at a time.
    fn reads(text: &[u8], most: usize) -> impl FnMut(&mut [u8], u64) -> Option<usize> + '_ {
        move |to, offset| {
            let left = &text[offset as usize..];
            let n = left.len().min(to.len()).min(most);
            to[..n].copy_from_slice(&left[..n]);
            Some(n)
        }
    }

    /// The scheduler's statistics of so many processors, and the time in them.
    fn statistics(cpus: u64) -> (String, u64) {
        let domain = " 123456789".repeat(45);
        let mut text = "version 17\ntimestamp 4294992296\n".to_owned();
        for cpu in 0..cpus {
            let time = 1_000_000_000_000 + cpu;
            text += &format!("cpu{cpu} 0 0 12 34 56 78 {time} 9 10\n");
            text += &format!("domain0 3{domain}\ndomain1 f{domain}\n");
        }
        (text, (0..cpus).map(|cpu| 1_000_000_000_000 + cpu).sum())
    }

    #[test]
    fn every_processor_counts_however_long_the_text_is() {
        for cpus in [1, 3, 4, 8, 9, 16, 200] {
            let (text, time) = statistics(cpus);
            // A page at a time, as from the kernel, or less.
            for most in [4096, 4095, 1000, 7] {
                let found = sum(&SOURCES[0], reads(text.as_bytes(), most));
                assert_eq!(found, Some(time), "{cpus}, {most} at a time");
            }
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), text).unwrap();
            let source = Source {
                path: file.path().to_str().unwrap().to_owned().leak(),
                ..SOURCES[0]
            };
            assert_eq!(read(&source), Some(Duration::from_nanos(time)));
        }
    }

    #[test]
    fn a_text_that_cannot_be_read_to_its_end_says_nothing() {
        let (text, _) = statistics(20);
        let mut calls = 0;
        let next = |to: &mut [u8], offset| {
            calls += 1;
            to[..4096].copy_from_slice(&text.as_bytes()[offset as usize..][..4096]);
            (calls < 3).then_some(4096)
        };
        assert_eq!(sum(&SOURCES[0], next), None);
    }

    #[test]
    fn a_text_that_grows_with_the_processors_is_not_read_for_many() {
        let source = finest(1000).expect("Linux has /proc/stat");
        assert!(!source.all_lines, "{}", source.path);
    }

    #[test]
    fn a_number_that_is_cut_is_not_counted() {
        let text = b"cpu0 0 0 0 0 0 0 1000 0 0\ncpu1 0 0 0 0 0 0 99";
        assert_eq!(sum(&SOURCES[0], reads(text, text.len())), Some(1000));
        // Nor a line that has no end.
        let next = |to: &mut [u8], _| {
            to.fill(b'1');
            Some(to.len())
        };
        assert_eq!(sum(&SOURCES[0], next), None);
    }

    #[test]
    fn each_source_is_read() {
        let sum = |source: usize, text: &str| {
            super::sum(&SOURCES[source], reads(text.as_bytes(), text.len()))
        };
        let schedstats = "version 17\ntimestamp 1\ncpu0 0 0 0 0 0 0 5000 7 9\ndomain0 1\n\
                          cpu1 0 0 0 0 0 0 300 7 9\n";
        assert_eq!(sum(0, schedstats), Some(5300));
        assert_eq!(sum(0, "version 17\ncpu0 0 0 0 0 0 0 0 0 0\n"), None);
        assert_eq!(sum(1, "123\n"), Some(123));
        assert_eq!(sum(1, "usage_usec 123\n"), None);
        // SAFETY: no memory is involved.
        let hz = (unsafe { libc::sysconf(libc::_SC_CLK_TCK) }) as u64;
        let said = format!("cpu  {hz} 0 {hz} 9999 9999 0 0 9999 0 0\ncpu0 1 1 1\n");
        assert_eq!(sum(2, &said), Some(2_000_000_000));
    }
}
