// SPDX-License-Identifier: MIT OR Apache-2.0
//! The processor time that all tasks of the system have used.
//!
//! It comes from the finest source that can be read: the scheduler's statistics, the root of the cpuacct
//! hierarchy, else the clock ticks in `/proc/stat`.
//!
//! The scheduler's statistics count a task's time when the task leaves the processor. A thread that copies
//! and never waits would be charged nothing for a long time, and then all of it at once, for whatever
//! it does by then. So the calling thread's share that is not counted yet is added here.

use std::cell::Cell;
use std::fs::File;
use std::os::fd::AsFd;
use std::sync::OnceLock;
use std::time::Duration;

use crate::sys;

/// Opened for each reading: a descriptor that stayed open would be one that the program could not have.
struct Source {
    path: &'static str,
    parse: fn(&str) -> Option<u64>,
    /// It lacks what a thread has used since it last came onto its processor.
    lags: bool,
}

const SOURCES: [Source; 3] = [
    Source {
        path: "/proc/schedstat",
        parse: schedstat,
        lags: true,
    },
    Source {
        path: "/sys/fs/cgroup/cpuacct/cpuacct.usage",
        parse: nanoseconds,
        lags: false,
    },
    Source {
        path: "/proc/stat",
        parse: ticks,
        lags: false,
    },
];

fn schedstat(text: &str) -> Option<u64> {
    let cpus = text.lines().filter(|l| l.starts_with("cpu"));
    let sum: u64 = cpus
        .filter_map(|l| l.split_whitespace().nth(7)?.parse::<u64>().ok())
        .sum();
    (sum > 0).then_some(sum)
}

fn nanoseconds(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

fn ticks(text: &str) -> Option<u64> {
    let fields = text.lines().next()?.strip_prefix("cpu ")?;
    let values: Vec<u64> = fields
        .split_whitespace()
        .filter_map(|v| v.parse().ok())
        .collect();
    // user nice system idle iowait irq softirq steal: all but idle, iowait and steal.
    let busy: u64 = [0, 1, 2, 5, 6].iter().filter_map(|&i| values.get(i)).sum();
    // SAFETY: no memory is involved.
    let hz = (unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).max(1) as u64;
    Some(busy * (1_000_000_000 / hz))
}

/// Of what is longer the rest is not read.
const LONGEST: usize = 16 << 10;

fn read(source: &Source) -> Option<Duration> {
    // Not on the stack, which may be one of 16 KiB, of a thread of the program's.
    let mut text = vec![0u8; LONGEST];
    let file = File::open(source.path).ok()?;
    let n = sys::pread(file.as_fd(), &mut text, 0, 0).ok()?;
    // A number that is cut would be a smaller one.
    let end = text[..n].iter().rposition(|&byte| byte == b'\n')?;
    (source.parse)(&String::from_utf8_lossy(&text[..=end])).map(Duration::from_nanos)
}

/// The processor time that all tasks have used since some moment, as this thread sees it: what threads
/// on other processors have used since they last came there may be missing. `None` if it cannot be read, as where
/// the program has all the descriptors that it may have.
pub(crate) fn of_system() -> Option<Duration> {
    static SOURCE: OnceLock<Option<&Source>> = OnceLock::new();
    let source = SOURCE.get_or_init(|| SOURCES.iter().find(|source| read(source).is_some()));
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

    #[test]
    fn a_number_that_is_cut_is_not_counted() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut text = "cpu0 0 0 0 0 0 0 1000 0 0\n".to_owned();
        let cut = "cpu1 0 0 0 0 0 0 99";
        text += &"d".repeat(LONGEST - text.len() - cut.len() - 1);
        text += &format!("\n{cut}99 0 0\n");
        std::fs::write(file.path(), text).unwrap();
        let source = Source {
            path: file.path().to_str().unwrap().to_owned().leak(),
            parse: schedstat,
            lags: false,
        };
        assert_eq!(read(&source), Some(Duration::from_nanos(1000)));
    }

    #[test]
    fn each_source_is_read() {
        let schedstats = "version 17\ntimestamp 1\ncpu0 0 0 0 0 0 0 5000 7 9\ndomain0 1\n\
                          cpu1 0 0 0 0 0 0 300 7 9\n";
        assert_eq!(schedstat(schedstats), Some(5300));
        assert_eq!(schedstat("version 17\ncpu0 0 0 0 0 0 0 0 0 0\n"), None);
        assert_eq!(nanoseconds("123\n"), Some(123));
        assert_eq!(nanoseconds("usage_usec 123\n"), None);
        // SAFETY: no memory is involved.
        let hz = (unsafe { libc::sysconf(libc::_SC_CLK_TCK) }) as u64;
        let said = format!("cpu  {hz} 0 {hz} 9999 9999 0 0 9999 0 0\ncpu0 1 1 1\n");
        assert_eq!(ticks(&said), Some(2_000_000_000));
    }
}
