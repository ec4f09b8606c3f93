// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where huge pages pay.
//!
//! The first touch of a huge page costs a third of what the small pages in its place cost,
//! or seven times what they do: where a hypervisor puts memory behind a page when it is first
//! touched, and where free memory is so fragmented that the kernel has to move pages to make
//! room for one. Which it is changes from one page to the next, so it is measured, in three places:
//!
//! * the object that grows and asks for more than its first few megabytes has one huge page
//!   touched ahead of it, and the time compared with that of small pages;
//! * the same each time that an object that grows has more committed, a number of times that is
//!   logarithmic in its size;
//! * while more than 16 MiB is being filled, the purge thread looks every two
//!   milliseconds whether the program gets on; if it does not, it touches the next page
//!   but one itself.
//!
//! And it is seen whether there are huge pages at all. Where there are too few free ones, the kernel
//! would move pages or reclaim some for each, which can take a hundred times as long as small pages,
//! before it gives a small one. And once it is asked for huge pages it makes some in the background, for
//! milliseconds in which the program does not run if it has no other processor. So the free ones are
//! counted before any are asked for (`/proc/buddyinfo`). A small page in the place of a huge one that was touched for this ends it as a slow
//! one does, whatever was saved before. A page of the program that seems small is a reason to touch one, no
//! more: it may have been huge until a part of it was given back.
//!
//! One slow page says little: between free memory that is warm there is some that is not, a few
//! pages at a time. So there is an account of what huge pages have saved this process and what
//! slow ones have cost it. When it is overdrawn, all slots go on with small pages. At the start it
//! is empty, so where the first page is slow it is the only one. An object that grows tries
//! again once it has grown so much in small pages that another slow page would cost a few percent, and
//! after twice as much each time that is in vain.
//!
//! The measure is the thread's CPU time: it has most of the hypervisor's time and all of the
//! kernel's in it, and nothing of other programs. What waits without working (for another thread
//! that moves pages, for the hypervisor to read a page back) shows on the clock only, and there it
//! has to show twice in a row, because other programs do so too.

use core::sync::atomic::{
    AtomicBool, AtomicI64, AtomicU32, AtomicU64, AtomicU8, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

use crate::config::{self, Thp};
use crate::os::{self, HUGE};
use crate::retain;

/// Bytes that grow beyond the first 2 MiB of slots before a huge page is tried. Programs with less
/// never pay for one that is slow.
const FIRST_TRY: usize = 4 << 20;
/// Small pages that are timed.
const SMALL_PAGES: usize = 32;
/// Minimum cost in nanoseconds at which a huge page is slow, so that a clock that is coarse or
/// pages that are there already decide nothing.
const LEAST_BOUND: u64 = 100_000;
/// A cost that shows on the clock alone has to be this many times as high.
const CLOCK_FACTOR: u64 = 4;
/// MiB that grow in small pages until the next try, at first and at most.
const WAIT: u32 = 256;
const LONGEST_WAIT: u32 = 16 << 10;
/// Free huge pages that are left to others. The kernel itself tries to keep about a dozen in each zone, and
/// moves pages in the background when they are taken.
const SPARE: usize = 32;
/// Maximum of the account, as a multiple of what the small pages in the place of a huge one
/// cost: eight pages that cost seven times as much.
const MOST_SAVED: i64 = 48;
/// Memory about to be filled that is worth a thread that watches.
const WATCH_MIN: usize = 16 << 20;
/// Milliseconds between two looks of that thread.
pub(crate) const TICK: u32 = 2;
/// Looks without progress after which the program is taken to have stopped filling.
const PATIENCE: u32 = 64;

const UNKNOWN: u8 = 0;
const PAY: u8 = 1;
const LOSE: u8 = 2;

/// The kernel has huge pages, and the configuration allows them.
static WANTED: AtomicBool = AtomicBool::new(false);
/// Pages are huge unless the kernel is told otherwise.
static UNASKED: AtomicBool = AtomicBool::new(false);
static VERDICT: AtomicU8 = AtomicU8::new(UNKNOWN);
/// Bytes that grew since the start, or since huge pages lost.
static UNTRIED: AtomicUsize = AtomicUsize::new(0);
/// MiB that have to grow after huge pages lost, before the next try.
static WAITING: AtomicU32 = AtomicU32::new(0);
static ACCOUNT: Account = Account::new();

/// Reads what the machine and the configuration say.
pub(crate) fn read(thp: Thp) {
    let mut buf = [0u8; 64];
    let n = os::read_file(c"/sys/kernel/mm/transparent_hugepage/enabled", &mut buf);
    let is = |word: &[u8]| buf[..n].windows(word.len()).any(|w| w == word);
    let off = os::huge_pages_denied() || is(b"[never]") || n == 0;
    WANTED.store(!off && thp != Thp::Never, Relaxed);
    UNASKED.store(!off && thp != Thp::Always && is(b"[always]"), Relaxed);
}

/// Returns true if pages that are to be small must be told so.
pub(crate) fn must_be_avoided() -> bool {
    UNASKED.load(Relaxed)
}

/// Returns true unless huge pages are not wanted or are known to be slow.
#[cfg(feature = "mimalloc")]
pub(crate) fn may_pay() -> bool {
    WANTED.load(Relaxed) && VERDICT.load(Relaxed) != LOSE
}

/// What to do about huge pages for an object.
#[derive(PartialEq, Eq)]
pub(crate) enum Advice {
    Small,
    Huge,
    /// Huge ones, and see what the first costs: [`try_one`].
    Try,
}

/// Says if an object of `size` bytes is to have huge pages; `fills`: it grows, and is filled as it does. Another has
/// small ones: of a table of which only a few pages are ever used each would become a huge one.
pub(crate) fn advice(size: usize, fills: impl FnOnce() -> bool) -> Advice {
    if !WANTED.load(Relaxed) {
        return Advice::Small;
    }
    if config::current().thp == Thp::Always {
        return Advice::Huge;
    }
    match VERDICT.load(Relaxed) {
        _ if !fills() => Advice::Small,
        PAY => Advice::Try,
        verdict => {
            let before = match verdict {
                UNKNOWN => FIRST_TRY,
                _ => (WAITING.load(Relaxed) as usize) << 20,
            };
            if UNTRIED.fetch_add(size, Relaxed) + size < before {
                Advice::Small
            } else {
                Advice::Try
            }
        }
    }
}

/// Returns true if there are enough free huge pages for `len` bytes, as far as the machine says; else huge pages
/// lose. To be asked before the kernel is asked for any.
pub(crate) fn enough_for(len: usize) -> bool {
    let enough = free_pages().is_none_or(|free| free >= len / HUGE + SPARE);
    if !enough {
        lose(NONE_FREE);
    }
    enough
}

/// Touches the huge page at `p`, and another one behind it if need be, and decides. Returns true if
/// huge pages pay.
///
/// # Safety
/// The caller may write zeros to two huge pages from `p` on, and has asked for them to be huge. None
/// of their pages is resident.
pub(crate) unsafe fn try_one(p: *mut u8) -> bool {
    if VERDICT.load(Relaxed) != PAY {
        ACCOUNT.small_cost.store(small_pages(), Relaxed);
    }
    let touch = |n: usize| {
        // SAFETY: passed on.
        let at = unsafe { p.add(n * HUGE) };
        // SAFETY: passed on.
        let cost = timed(|| unsafe { at.write_volatile(0) });
        Some((cost, is_huge(at)))
    };
    let why = ACCOUNT.worth_it(touch);
    match why {
        None => VERDICT.store(PAY, Relaxed),
        Some(why) => lose(why),
    }
    why.is_none()
}

/// Returns true if the page at `p`, in which nothing was resident before its first byte was touched, is
/// a huge one.
fn is_huge(p: *mut u8) -> bool {
    #[cfg(test)]
    if let Some(huge) = tests::huge_in_place_of() {
        return huge;
    }
    os::resident(p.wrapping_add(HUGE - os::page_size()))
}

/// How many huge pages are free; nothing if the machine does not say.
fn free_pages() -> Option<usize> {
    #[cfg(test)]
    if tests::huge_in_place_of().is_some() {
        return tests::free_in_place_of();
    }
    let mut buf = [0u8; 2048];
    let n = os::read_file(c"/proc/buddyinfo", &mut buf);
    // A machine of many nodes says more than there is room for.
    (0 < n && n < buf.len()).then(|| free_in(&buf[..n]))
}

/// Huge pages in the free blocks that `/proc/buddyinfo` lists: for each zone a number of blocks of one
/// page, of two, of four and so on.
fn free_in(lists: &[u8]) -> usize {
    let order = (HUGE / os::page_size()).trailing_zeros() as usize;
    let number = |word: &[u8]| {
        word.iter()
            .fold(0usize, |n, digit| n * 10 + usize::from(digit - b'0'))
    };
    let blocks_of = |line: &[u8]| -> usize {
        line.split(|&b| b == b' ')
            .filter(|word| !word.is_empty() && word.iter().all(u8::is_ascii_digit))
            .skip(order)
            .enumerate()
            .map(|(larger, word)| number(word) << larger)
            .sum()
    };
    lists.split(|&b| b == b'\n').map(blocks_of).sum()
}

/// Why huge pages lose.
type Why = &'static str;
const SLOWER: Why = "huge pages are slower than small ones here";
const NONE_FREE: Why = "too few huge pages are free here";

/// What huge pages have saved this process, and what slow ones have cost it. Hints: threads that write at
/// the same time may lose a little.
struct Account {
    /// What the small pages in the place of a huge one cost, in nanoseconds.
    small_cost: AtomicU64,
    /// What the last huge page saved, of those that were not slow.
    gain: AtomicU64,
    /// Nanoseconds that were saved, less what was lost.
    saved: AtomicI64,
}

impl Account {
    const fn new() -> Account {
        Account {
            small_cost: AtomicU64::new(0),
            gain: AtomicU64::new(0),
            saved: AtomicI64::new(0),
        }
    }

    /// Enters the touch of one huge page or two, each with whether it was one, into the account. Returns why
    /// huge pages lose, if they do.
    fn worth_it(&self, mut touch: impl FnMut(usize) -> Option<(Cost, bool)>) -> Option<Why> {
        let small = self.small_cost.load(Relaxed);
        let mut lost = 0;
        let mut last = small;
        let mut huge = None;
        let fast = self.fast(|n| {
            let (cost, was_huge) = touch(n)?;
            huge = Some(was_huge);
            last = cost.cpu;
            lost += cost.cpu.max(cost.clock / CLOCK_FACTOR).saturating_sub(small);
            was_huge.then_some(cost)
        });
        // Where no page could be touched there is nothing to enter.
        if !huge? {
            return Some(NONE_FREE);
        }
        if fast {
            let gain = small.saturating_sub(last);
            self.gain.store(gain, Relaxed);
            self.enter(gain as i64);
            return None;
        }
        self.enter(-(lost as i64));
        (self.saved.load(Relaxed) < 0).then_some(SLOWER)
    }

    /// Enters nanoseconds that huge pages have saved.
    fn enter(&self, ns: i64) {
        let most = self.small_cost.load(Relaxed) as i64 * MOST_SAVED;
        let saved = self.saved.load(Relaxed).saturating_add(ns);
        self.saved.store(saved.min(most), Relaxed);
    }

    /// Decides by the touch of a huge page, and of another one where the first is in doubt.
    fn fast(&self, mut touch: impl FnMut(usize) -> Option<Cost>) -> bool {
        let small = self.small_cost.load(Relaxed);
        let bound = (small + small / 4).max(LEAST_BOUND);
        for n in 0..2 {
            match touch(n) {
                Some(cost) if cost.cpu > bound => return false,
                Some(cost) if cost.clock > bound * CLOCK_FACTOR => {}
                _ => return true,
            }
        }
        false
    }
}

/// What an action took.
#[derive(Clone, Copy)]
struct Cost {
    cpu: u64,
    clock: u64,
}

#[inline(never)]
fn timed(action: impl FnOnce()) -> Cost {
    let begin = (os::thread_cpu_ns(), os::now_ns());
    action();
    let cost = Cost {
        clock: os::now_ns() - begin.1,
        cpu: os::thread_cpu_ns() - begin.0,
    };
    #[cfg(test)]
    let cost = tests::in_place_of(cost);
    cost
}

/// Measures what the small pages in the place of a huge one cost.
fn small_pages() -> u64 {
    let page = os::page_size();
    let p = os::map_memory(SMALL_PAGES * page);
    if p.is_null() {
        return 0;
    }
    // SAFETY: pages of that mapping, which nobody else knows.
    let cost = unsafe {
        let cost = timed(|| {
            for n in 0..SMALL_PAGES {
                p.add(n * page).write_volatile(0);
            }
        });
        os::unmap(p, SMALL_PAGES * page);
        cost
    };
    cost.cpu / SMALL_PAGES as u64 * (HUGE / page) as u64
}

/// Decides for small pages. The caller has all slots go on with them.
fn lose(why: Why) {
    let before = WAITING.load(Relaxed);
    let wait = (before * 2).clamp(WAIT, LONGEST_WAIT);
    WAITING.store(wait, Relaxed);
    UNTRIED.store(0, Relaxed);
    ACCOUNT.saved.store(0, Relaxed);
    VERDICT.store(LOSE, Relaxed);
    TO.store(0, Relaxed);
    if config::current().verbose {
        os::complain(format_args!(
            "{why}; small ones for the next {wait} MiB that grow"
        ));
    }
}

/// What the thread watches being filled: from here (it moves on), to there. 0: nothing. The last to
/// ask wins. Both are in slots. A page there may belong to another object by the time it is touched:
/// [`os::populate`] leaves its content as it is.
static FROM: AtomicUsize = AtomicUsize::new(0);
static TO: AtomicUsize = AtomicUsize::new(0);
/// Of the thread alone: true if the program has begun to fill; where the thread tried last; and for
/// how many looks nothing has happened.
static BEGUN: AtomicBool = AtomicBool::new(false);
static TRIED: AtomicUsize = AtomicUsize::new(0);
static IDLE: AtomicU32 = AtomicU32::new(0);

/// Makes the thread watch how a range with huge pages is filled, if it is worth it.
pub(crate) fn watch(from: *mut u8, len: usize) {
    if len >= WATCH_MIN && config::current().thp != Thp::Always && retain::may_start_thread() {
        set_watch(from as usize, len);
        retain::wake_now();
    }
}
fn set_watch(from: usize, len: usize) {
    TO.store(0, Release);
    FROM.store(from, Relaxed);
    BEGUN.store(false, Relaxed);
    IDLE.store(0, Relaxed);
    TO.store(from + len, Release);
}

/// Returns true if there is something to look at.
pub(crate) fn watching() -> bool {
    TO.load(Relaxed) != 0
}

/// Ends the watch if part of what is watched loses what was asked for there. To be called before it does.
pub(crate) fn unwatch(p: *mut u8, len: usize) {
    let to = TO.load(Relaxed);
    if (p as usize) < to && FROM.load(Relaxed) < p as usize + len {
        stop(to, false);
    }
}

/// Ends the watch if all that is watched loses its memory, so that the thread brings none back. To be called before it
/// does.
pub(crate) fn unwatch_all(p: *mut u8, len: usize) {
    let to = TO.load(Relaxed);
    if (p as usize) <= FROM.load(Relaxed) && to <= p as usize + len {
        stop(to, false);
    }
}

/// Sees how far the program has come. Returns false if huge pages have turned out slow, or small. For
/// the thread of `purge.rs`.
pub(crate) fn look() -> bool {
    let to = TO.load(Acquire);
    let from = FROM.load(Relaxed);
    let mut at = from;
    while at < to && os::resident(at as *mut u8) {
        at += HUGE;
    }
    // Of those that are filled by now this cannot be told, but in the last one the program still is.
    // Where the range ends within a page it is not huge.
    let small = from < at && at <= to && !is_huge((at - HUGE) as *mut u8);
    if at >= to {
        stop(to, !small);
        return true;
    }
    if at > from {
        // If another range was asked for meanwhile, this one is not watched from its start.
        FROM.store(at, Relaxed);
        BEGUN.store(true, Relaxed);
        IDLE.store(0, Relaxed);
        if !small {
            let gain = ACCOUNT.gain.load(Relaxed) as i64;
            ACCOUNT.enter(((at - from) / HUGE) as i64 * gain);
            return true;
        }
    } else if IDLE.fetch_add(1, Relaxed) >= PATIENCE {
        stop(to, false);
        return true;
    }
    // The program is at this page. Is it slow because of it? And where it seems to have a small page, has
    // the kernel no huge one? It may have been huge until the object shrank, or the program gave part of it back.
    if small || (BEGUN.load(Relaxed) && TRIED.swap(at, Relaxed) != at) {
        let next = |n: usize| (at + (n + 1) * HUGE) as *mut u8;
        let touch = |n| {
            if next(n) as usize + HUGE > to || os::resident(next(n)) {
                return None;
            }
            let mut done = false;
            let cost = timed(|| done = os::populate(next(n)));
            done.then(|| (cost, is_huge(next(n))))
        };
        let why = ACCOUNT.worth_it(touch);
        // What was seen of a range that is not watched any more may not be there any more.
        if let Some(why) = why.filter(|_| TO.load(Acquire) == to) {
            lose(why);
            return false;
        }
    }
    true
}

/// Ends the watch up to `to`; `well`: all of it was filled.
fn stop(to: usize, well: bool) {
    let _ = TO.compare_exchange(to, 0, AcqRel, Relaxed);
    if well {
        WAITING.store(0, Relaxed);
    }
}

/// In the child of a fork, which has no thread.
pub(crate) fn after_fork_in_child() {
    TO.store(0, Relaxed);
}

#[cfg(test)]
mod account_tests {
    use super::*;

    const SMALL: u64 = 1_000_000;

    /// Of its own: other tests use that of the process.
    fn account() -> Account {
        let account = Account::new();
        account.small_cost.store(SMALL, Relaxed);
        account
    }

    impl Account {
        fn touched(&self, cpu: u64) -> bool {
            let touch = |_| Some((Cost { cpu, clock: cpu }, true));
            self.worth_it(touch).is_none()
        }
    }

    #[test]
    fn a_small_page_in_the_place_of_a_huge_one_ends_it() {
        let account = account();
        let quick = Cost { cpu: 1, clock: 1 };
        assert_eq!(account.worth_it(|_| Some((quick, true))), None);
        let saved = account.saved.load(Relaxed);
        assert_eq!(account.worth_it(|_| Some((quick, false))), Some(NONE_FREE));
        assert_eq!(account.saved.load(Relaxed), saved, "it has saved nothing");
        let gain = account.gain.load(Relaxed);
        assert_eq!(account.worth_it(|_| None), None);
        assert_eq!(account.gain.load(Relaxed), gain, "nothing was touched");
    }

    #[test]
    fn free_huge_pages_are_counted() {
        let zone = b"Node 0, zone      DMA      1      1      0      0      2      1      1      0      1      1      3
Node 0, zone    DMA32      7      5      1      3      3      2      3      3      4      0    628
Node 1, zone   Normal    216     55    189    101     84     38     37     27      5      2      1
";
        // Of order 9: 1 and 2; of order 10, which are two: 3, 628 and 1.
        assert_eq!(free_in(zone), 1 + 2 + 2 * (3 + 628 + 1));
        assert_eq!(free_in(b""), 0);
        assert_eq!(free_in(b"Node 0, zone Normal 1 2 3"), 0);
    }

    #[test]
    fn a_slow_page_is_forgiven_for_what_others_have_saved() {
        let slow = account();
        assert!(!slow.touched(7 * SMALL), "nothing is saved yet");
        // Each saves two thirds of a small one's cost; the next costs six.
        let mixed = account();
        assert!((0..9).all(|_| mixed.touched(SMALL / 3)));
        assert!(mixed.touched(7 * SMALL));
        assert!(!mixed.touched(7 * SMALL));
        // What the program fills unseen counts as well, up to a maximum.
        let full = account();
        assert!(full.touched(SMALL / 3));
        full.enter(1_000_000 * full.gain.load(Relaxed) as i64);
        let slow = (0..100).take_while(|_| full.touched(7 * SMALL)).count();
        assert_eq!(slow, (MOST_SAVED / 6) as usize);
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::config::Config;
    use crate::{alone, raw};
    use std::vec::Vec;
    use std::{fs, println};

    /// CPU time in nanoseconds that everything takes which is timed; `u64::MAX`: what it does take.
    static PRETENDED: AtomicU64 = AtomicU64::new(u64::MAX);

    /// While times are pretended, pages are huge unless this says otherwise, and there are enough.
    static SMALL_ONES: AtomicBool = AtomicBool::new(false);

    pub(super) fn huge_in_place_of() -> Option<bool> {
        (PRETENDED.load(Relaxed) != u64::MAX).then(|| !SMALL_ONES.load(Relaxed))
    }

    /// While times are pretended, the machine says that so many huge pages are free; `usize::MAX`: nothing.
    static FREE: AtomicUsize = AtomicUsize::new(usize::MAX);

    pub(super) fn free_in_place_of() -> Option<usize> {
        Some(FREE.load(Relaxed)).filter(|&free| free != usize::MAX)
    }

    pub(super) fn in_place_of(cost: Cost) -> Cost {
        match PRETENDED.load(Relaxed) {
            u64::MAX => cost,
            cpu => Cost { cpu, clock: cpu },
        }
    }

    const FAST: u64 = 1;
    const SLOW: u64 = 5_000_000;

    /// Decides by these costs, in units of what small pages cost.
    fn decided(costs: &[(u64, u64)]) -> (bool, usize) {
        let account = Account::new();
        account.small_cost.store(1_000_000, Relaxed);
        let mut asked = 0;
        let pays = account.fast(|n| {
            asked = n + 1;
            costs.get(n).map(|&(cpu, clock)| Cost {
                cpu: cpu * 1_000_000,
                clock: clock * 1_000_000,
            })
        });
        (pays, asked)
    }

    #[test]
    fn work_decides_at_once_and_waiting_when_it_happens_twice() {
        assert_eq!(decided(&[(0, 0)]), (true, 1));
        assert_eq!(decided(&[(1, 1)]), (true, 1));
        assert_eq!(decided(&[(2, 2)]), (false, 1));
        assert_eq!(decided(&[(0, 9), (0, 0)]), (true, 2));
        assert_eq!(decided(&[(0, 9), (0, 9)]), (false, 2));
        assert_eq!(decided(&[(0, 9), (5, 5)]), (false, 2));
        assert_eq!(decided(&[]), (true, 1));
        assert_eq!(decided(&[(0, 9)]), (true, 2));
    }

    /// Runs a test of this file in a process of its own, since the arena is set up once.
    fn isolated(name: &str, test: fn()) {
        if alone::job().is_some() {
            let config = Config {
                reserve: 64 << 30,
                ..Config::DEFAULT
            };
            // SAFETY: the only thread that allocates by `raw`.
            unsafe { raw::configure(&config) };
            // Here, where no other test changes what is looked at meanwhile.
            if advice_shows() {
                test();
            } else {
                println!("skipped: /proc/self/smaps does not say where huge pages were asked for");
            }
            return;
        }
        let machine = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
        if cfg!(miri) || machine.map_or(true, |text| text.contains("[never]")) {
            println!("skipped: there are no huge pages here");
            return;
        }
        alone::alone(name, "");
    }

    /// Returns true if [`asked_for`] sees what is asked for. QEMU's user mode makes a file up for
    /// the program that it runs, without this.
    fn advice_shows() -> bool {
        let p = os::map_memory(HUGE);
        assert!(!p.is_null());
        // SAFETY: a mapping that nobody else knows.
        unsafe {
            assert!(!asked_for(p) && os::advise_huge(p, HUGE, true));
            let shows = asked_for(p);
            os::unmap(p, HUGE);
            shows
        }
    }

    /// Returns true if huge pages are asked for where `p` is.
    fn asked_for(p: *mut u8) -> bool {
        has_flag(p, " hg")
    }

    /// Returns true if the mapping at `p` has a flag, written as in `/proc/self/smaps` with a space before it.
    fn has_flag(p: *mut u8, flag: &str) -> bool {
        let maps = fs::read_to_string("/proc/self/smaps").unwrap();
        let mut inside = false;
        for line in maps.lines() {
            let mut ends = line.split(' ').next().unwrap().split('-');
            let number = |word: Option<&str>| usize::from_str_radix(word?, 16).ok();
            if let (Some(from), Some(to)) = (number(ends.next()), number(ends.next())) {
                inside = (from..to).contains(&(p as usize));
            } else if inside && line.starts_with("VmFlags:") {
                return line.contains(flag);
            }
        }
        false
    }

    /// Where pages are huge unless the kernel is told otherwise, an object that was cut is small pages again when
    /// it grows.
    #[test]
    fn an_object_that_was_cut_goes_on_without_huge_pages() {
        isolated(
            "huge::tests::an_object_that_was_cut_goes_on_without_huge_pages",
            || {
                const SIZE: usize = 512 << 10;
                // SAFETY: within the object, which is used as it was allocated.
                unsafe {
                    raw::free(raw::malloc(SIZE));
                    raw::trim();
                    UNASKED.store(true, Relaxed);
                    let mut p = raw::realloc(raw::malloc(SIZE / 2), SIZE);
                    let small = |p: *mut u8, at: usize| has_flag(p.wrapping_add(at), " nh");
                    assert!(small(p, 0) && small(p, 2 * SIZE));
                    raw::trim();
                    assert!(small(p, 0) && small(p, 2 * SIZE), "what was cut");
                    p = raw::realloc(p, 3 * SIZE);
                    assert!(small(p, 0) && small(p, 2 * SIZE), "what has grown again");
                    raw::free(p);
                }
            },
        );
    }

    /// So do hash tables and C++'s vectors grow; and tables of which little is used.
    #[test]
    fn a_filled_object_that_grows_by_being_copied_has_huge_pages() {
        isolated(
            "huge::tests::a_filled_object_that_grows_by_being_copied_has_huge_pages",
            || {
                const LAST: usize = 8 << 20;
                PRETENDED.store(FAST, Relaxed);
                // In which slots the objects are decides where in a page they begin.
                for (before, filled) in [(0, true), (1, true), (2, true), (2, false)] {
                    // SAFETY: freed below.
                    let others: Vec<*mut u8> = (0..before).map(|_| unsafe { raw::malloc(LAST / 8) }).collect();
                    let mut last = core::ptr::null_mut();
                    for size in [LAST / 8, LAST / 4, LAST / 2, LAST] {
                        // SAFETY: within the object; the one before is freed once.
                        unsafe {
                            let p = raw::malloc(size);
                            p.write_bytes(1, if filled { size } else { 1 });
                            raw::free(last);
                            last = p;
                        }
                    }
                    assert_eq!(asked_for(last.wrapping_add(LAST - HUGE)), filled);
                    for object in others.into_iter().chain([last]) {
                        // SAFETY: freed once.
                        unsafe { raw::free(object) };
                    }
                    raw::trim();
                }
            },
        );
    }

    /// Not even beyond what was committed for the object that asked: the next one may be longer, and used sparsely.
    #[test]
    fn huge_pages_are_asked_for_in_no_slot_that_was_given_back() {
        isolated(
            "huge::tests::huge_pages_are_asked_for_in_no_slot_that_was_given_back",
            || {
                const BEYOND: usize = 190 << 20;
                // SAFETY: freed as allocated.
                unsafe {
                    let p = watched();
                    assert!(asked_for(p.wrapping_add(BEYOND)));
                    raw::trim();
                    assert!(!asked_for(p.wrapping_add(BEYOND)), "cut");
                    raw::free(p);
                    raw::trim();
                    let p = watched();
                    raw::free(p);
                    raw::trim();
                    let q = raw::malloc(BEYOND + HUGE);
                    assert_eq!(crate::arena::slot_of(p).0 as *const _, crate::arena::slot_of(q).0 as *const _);
                    assert!(!asked_for(q.wrapping_add(BEYOND)));
                    raw::free(q);
                }
            },
        );
    }

    /// Nor are small ones: the next object would have two mappings where it goes on beyond the last, which do not
    /// move as one.
    #[test]
    fn small_pages_are_asked_for_in_no_slot_that_was_given_back() {
        isolated(
            "huge::tests::small_pages_are_asked_for_in_no_slot_that_was_given_back",
            || {
                let small = |p: *mut u8| has_flag(p.wrapping_add(190 << 20), " nh");
                for freed in [false, true] {
                    let p = watched();
                    // Whatever this machine is set to.
                    UNASKED.store(false, Relaxed);
                    lose(SLOWER);
                    crate::arena::huge_pages_lose();
                    assert!(small(p));
                    // SAFETY: freed once.
                    let free = || unsafe { raw::free(p) };
                    if freed {
                        free();
                    }
                    raw::trim();
                    assert!(!small(p), "freed: {freed}");
                    if !freed {
                        free();
                    }
                    raw::trim();
                }
            },
        );
    }

    /// What is left of a huge page is not a small one that the kernel gave in its place, and where huge pages
    /// are no longer asked for, small ones say nothing.
    #[test]
    fn memory_that_is_given_back_decides_nothing_about_huge_pages() {
        isolated(
            "huge::tests::memory_that_is_given_back_decides_nothing_about_huge_pages",
            || {
                // SAFETY: within objects; freed as allocated.
                unsafe {
                    let p = raw::realloc(watched(), 8 << 20);
                    let from = p as usize + (6 << 20);
                    p.add(6 << 20).write_bytes(1, 2 << 20);
                    // Without room for another page that could be tried.
                    set_watch(from, 2 * HUGE);
                    // From here on it is looked whether the last part of a huge page is there.
                    PRETENDED.store(u64::MAX, Relaxed);
                    assert_eq!(raw::realloc(p, 7 << 20), p);
                    crate::arena::give_back();
                    assert!(os::resident(p.add(6 << 20)) && !is_huge(p.add(6 << 20)));
                    looked();
                    assert_eq!(VERDICT.load(Relaxed), PAY);
                    // The memory beyond the object goes with what was asked for there.
                    assert!(watching());
                    raw::trim();
                    assert!(!asked_for(p.add(15 << 20)) && !watching());
                    raw::free(p);
                    let p = watched();
                    raw::free(p);
                    raw::trim();
                    assert!(!watching());
                }
            },
        );
    }

    /// The last huge page of an object goes on beyond it, and others may have been tried ahead.
    #[test]
    fn huge_pages_beyond_an_object_are_given_back() {
        isolated(
            "huge::tests::huge_pages_beyond_an_object_are_given_back",
            || {
                // SAFETY: within objects; freed as allocated.
                unsafe {
                    PRETENDED.store(FAST, Relaxed);
                    VERDICT.store(PAY, Relaxed);
                    let p = raw::realloc(grown(1 << 20), 3 << 20);
                    let at = |mib: usize| p.wrapping_add(mib << 20);
                    assert!(asked_for(at(2)) && os::populate(at(2)) && os::populate(at(3)));
                    assert_eq!(raw::realloc(p, 8 << 10), p);
                    crate::arena::give_back();
                    assert!(!os::resident(at(2)) && !os::resident(at(3)), "it has shrunk");
                    assert_eq!(raw::realloc(p, 3 << 20), p);
                    p.write_bytes(1, 1 << 20);
                    set_watch(at(4) as usize, 4 * HUGE);
                    assert!(os::populate(at(2)) && os::populate(at(3)) && os::populate(at(6)));
                    raw::free(p);
                    assert!(os::resident(at(3)) && !os::resident(at(6)) && !watching());
                    // To the end of the huge page, but for the page of the object that begins within one.
                    let most = 4 << 20;
                    assert!((most - (256 << 10)..=most).contains(&retain::RETAINED.load(Relaxed)));
                }
            },
        );
    }

    /// An object that has grown to `size` by doubling; the last quarter of it is touched each time, but for a last piece.
    fn grown(size: usize) -> *mut u8 {
        // SAFETY: used as allocated.
        unsafe {
            let mut p = raw::malloc(256 << 10);
            let mut now = 256 << 10;
            while now < size {
                now *= 2;
                p = raw::realloc(p, now);
                assert!(!p.is_null());
                for at in (now / 4 * 3..now - now / 16).step_by(os::page_size()) {
                    p.add(at).write(1);
                }
            }
            p
        }
    }

    /// The number of slots is such that together they take half of a process's mappings.
    #[test]
    fn a_slot_has_no_more_mappings_than_it_counts_for() {
        isolated(
            "huge::tests::a_slot_has_no_more_mappings_than_it_counts_for",
            || {
                PRETENDED.store(FAST, Relaxed);
                VERDICT.store(PAY, Relaxed);
                // The first has a slot of the second size from the start, and the next begins at the start of its slot.
                let others = [grown(4 << 20), grown(4 << 20)];
                let p = grown(64 << 20);
                let origin = |p: *mut u8| p as usize & !((64 << 20) - 1);
                assert!(p as usize - origin(p) >= os::page_size());
                let small = mappings(origin(p), 64 << 20);
                // SAFETY: an object, which has so many bytes afterwards; freed as allocated.
                unsafe {
                    let p = raw::realloc(p, 128 << 20);
                    assert_eq!(crate::stats().page_moves, 1);
                    p.add((128 << 20) - 1).write(1);
                    let medium = mappings(origin(p), 4 << 30);
                    let counted = crate::arena::MAPPINGS_OF_SLOT;
                    assert!(small <= counted[0] && medium <= counted[1], "{small}, {medium}");
                    others.into_iter().chain([p]).for_each(|p| raw::free(p));
                }
            },
        );
    }

    /// An object that grows keeps what the program has asked for of the pages that it has; and one that grows
    /// from a large size on leaves its slot without a copy.
    #[test]
    fn what_a_program_asks_for_of_its_pages_stays() {
        isolated("huge::tests::what_a_program_asks_for_of_its_pages_stays", || {
            const HALF: usize = 20 << 20;
            // SAFETY: within objects; freed as allocated.
            let filled = || unsafe {
                let p = raw::malloc(HALF);
                p.write_bytes(1, HALF);
                p
            };
            PRETENDED.store(FAST, Relaxed);
            VERDICT.store(PAY, Relaxed);
            // With them the slots for larger ones are used up.
            let [another, others @ ..] = [filled(), filled(), filled()];
            // SAFETY: as above.
            unsafe {
                let p = filled();
                let pages = p.wrapping_add(p.align_offset(os::page_size()));
                let advise = |huge| assert!(os::advise_huge(pages, HALF - os::page_size(), huge));
                advise(false);
                assert_eq!(raw::realloc(p, 2 * HALF), p);
                let (old, new) = (p.wrapping_add(HALF / 2), p.wrapping_add(HALF + 2 * HUGE));
                assert!(has_flag(old, " nh") && asked_for(new));
                advise(true);
                // Whatever this machine is set to.
                UNASKED.store(false, Relaxed);
                lose(SLOWER);
                crate::arena::huge_pages_lose();
                assert!(asked_for(old) && has_flag(new, " nh"));
                VERDICT.store(PAY, Relaxed);
                let q = raw::realloc(filled(), 2 * HALF);
                raw::free(another);
                q.write_bytes(1, 2 * HALF);
                let q = raw::realloc(q, 6 * HALF);
                assert!(asked_for(q.wrapping_add(5 * HALF)));
                assert_eq!(crate::stats().page_moves, 1);
                others.into_iter().chain([p, q]).for_each(|p| raw::free(p));
            }
        });
    }

    /// Mappings of which a part is in a range.
    fn mappings(from: usize, len: usize) -> usize {
        let inside = |line: &&str| {
            let (start, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
            let number = |word| usize::from_str_radix(word, 16).unwrap();
            number(start) < from + len && from < number(end)
        };
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        maps.lines().filter(inside).count()
    }

    #[test]
    fn huge_pages_are_tried_left_and_tried_again() {
        isolated(
            "huge::tests::huge_pages_are_tried_left_and_tried_again",
            || {
                // SAFETY: within objects; freed as allocated.
                unsafe {
                    PRETENDED.store(SLOW, Relaxed);
                    ACCOUNT.small_cost.store(FAST, Relaxed);
                    VERDICT.store(PAY, Relaxed);
                    let slow = grown(8 << 20);
                    assert_eq!(VERDICT.load(Relaxed), LOSE);
                    assert!(!asked_for(slow.add(7 << 20)));
                    // Not before its time, and not for an object that does not grow.
                    PRETENDED.store(FAST, Relaxed);
                    WAITING.store(u32::MAX, Relaxed);
                    let early = grown(8 << 20);
                    assert!(!asked_for(early.add(7 << 20)));
                    WAITING.store(0, Relaxed);
                    let large = raw::malloc(64 << 20);
                    assert!(!asked_for(large.add(7 << 20)));
                    let again = grown(8 << 20);
                    assert_eq!(VERDICT.load(Relaxed), PAY);
                    assert!(asked_for(again.add(7 << 20)));
                    let larger = raw::malloc(65 << 20);
                    assert!(!asked_for(larger.add(7 << 20)));
                    // All that had them lose them.
                    lose(SLOWER);
                    crate::arena::huge_pages_lose();
                    assert!(!asked_for(again.add(7 << 20)));
                    assert_eq!(WAITING.load(Relaxed), WAIT);
                    lose(SLOWER);
                    assert_eq!(WAITING.load(Relaxed), 2 * WAIT);
                    for p in [slow, early, large, again, larger] {
                        raw::free(p);
                    }
                }
            },
        );
    }

    /// They may do so just when an object is about to ask for them.
    #[test]
    fn huge_pages_that_lose_meanwhile_are_not_asked_for() {
        isolated(
            "huge::tests::huge_pages_that_lose_meanwhile_are_not_asked_for",
            || {
                PRETENDED.store(FAST, Relaxed);
                VERDICT.store(PAY, Relaxed);
                let p = grown(1 << 20);
                let losing = crate::arena::huge_pages_lose as fn() as usize;
                os::fault::HUGE.store(losing, Relaxed);
                // SAFETY: freed as allocated.
                unsafe {
                    let p = raw::realloc(p, 3 << 20);
                    assert_eq!(os::fault::HUGE.load(Relaxed), 0, "nothing is tested");
                    assert!(!asked_for(p.wrapping_add(HUGE)));
                    raw::free(p);
                }
            },
        );
    }

    /// Of a table of which little is used each page that is touched would become a huge one.
    #[test]
    fn objects_that_are_not_filled_have_small_pages() {
        isolated(
            "huge::tests::objects_that_are_not_filled_have_small_pages",
            || {
                // SAFETY: within objects; freed as allocated.
                unsafe {
                    PRETENDED.store(FAST, Relaxed);
                    VERDICT.store(PAY, Relaxed);
                    let at = |p: *mut u8| p.wrapping_add(15 << 20);
                    let filled = grown(32 << 20);
                    assert!(asked_for(at(filled)));
                    // In one step, though it has used all that it had.
                    let leapt = raw::realloc(grown(2 << 20), 16 << 20);
                    assert!(!asked_for(at(leapt)));
                    // In small ones, with nothing at its end.
                    let mut empty = raw::malloc(256 << 10);
                    for step in 1..=6 {
                        empty = raw::realloc(empty, (256 << 10) << step);
                    }
                    assert!(!asked_for(at(empty)));
                    // Where one has been that was filled, beyond that.
                    raw::free(filled);
                    let larger = raw::malloc(100 << 20);
                    assert!(!asked_for(larger.add(90 << 20)));
                    // And again one that is.
                    raw::free(larger);
                    let again = grown(32 << 20);
                    assert!(asked_for(again.add(31 << 20)));
                    for p in [leapt, empty, again] {
                        raw::free(p);
                    }
                }
            },
        );
    }

    /// Where too few are free the kernel is not asked for huge pages, or no longer.
    #[test]
    fn huge_pages_are_not_asked_for_where_too_few_are_free() {
        isolated(
            "huge::tests::huge_pages_are_not_asked_for_where_too_few_are_free",
            || {
                PRETENDED.store(FAST, Relaxed);
                FREE.store(SPARE, Relaxed);
                let first = grown(8 << 20);
                assert_eq!(VERDICT.load(Relaxed), LOSE);
                let at = first.wrapping_add(7 << 20);
                assert!(!asked_for(at) && !has_flag(at, " nh"), "never asked for");
                WAITING.store(0, Relaxed);
                FREE.store(SPARE + (16 << 20) / HUGE, Relaxed);
                let second = grown(4 << 20);
                assert!(asked_for(second.wrapping_add(7 << 20)));
                let third = grown(32 << 20);
                assert!(!asked_for(third.wrapping_add(7 << 20)));
                assert!(!asked_for(second.wrapping_add(7 << 20)));
                for p in [first, second, third] {
                    // SAFETY: freed as allocated.
                    unsafe { raw::free(p) };
                }
            },
        );
    }

    /// What the thread of `purge.rs` does.
    fn looked() {
        if !look() {
            crate::arena::huge_pages_lose();
        }
    }

    /// A slot whose huge pages pay, of which 10 MiB from the sixth on are watched. Nothing here is large
    /// enough for the thread: the looks are the test's.
    fn watched() -> *mut u8 {
        PRETENDED.store(FAST, Relaxed);
        VERDICT.store(PAY, Relaxed);
        let p = grown(4 << 20);
        assert!(asked_for(p.wrapping_add(15 << 20)));
        set_watch(p as usize + (6 << 20), 10 << 20);
        p
    }

    #[test]
    fn small_pages_where_huge_ones_were_asked_for_are_noticed() {
        isolated(
            "huge::tests::small_pages_where_huge_ones_were_asked_for_are_noticed",
            || {
                let p = watched();
                let at = |mib: usize| p.wrapping_add(mib << 20);
                looked();
                assert!(watching(), "the program has not begun");
                SMALL_ONES.store(true, Relaxed);
                assert!(os::populate(at(6)));
                looked();
                assert!(!watching());
                assert_eq!(VERDICT.load(Relaxed), LOSE);
                assert!(!asked_for(at(15)));
                // Not where the range ends within a page, which cannot be a huge one.
                VERDICT.store(PAY, Relaxed);
                set_watch(at(8) as usize, HUGE / 2);
                assert!(os::populate(at(8)));
                looked();
                assert!(!watching());
                assert_eq!(VERDICT.load(Relaxed), PAY);
                // And an object that tries one.
                VERDICT.store(PAY, Relaxed);
                let another = grown(8 << 20);
                assert_eq!(VERDICT.load(Relaxed), LOSE);
                assert!(!asked_for(another.wrapping_add(7 << 20)));
                // SAFETY: freed as allocated.
                [p, another].into_iter().for_each(|p| unsafe { raw::free(p) });
            },
        );
    }

    #[test]
    fn a_little_growth_tries_nothing() {
        isolated("huge::tests::a_little_growth_tries_nothing", || {
            let p = grown(2 << 20);
            assert_eq!(VERDICT.load(Relaxed), UNKNOWN);
            // SAFETY: freed as allocated.
            unsafe { raw::free(p) };
        });
    }

    #[test]
    fn slowness_in_the_middle_of_an_object_is_noticed() {
        isolated(
            "huge::tests::slowness_in_the_middle_of_an_object_is_noticed",
            || {
                let p = watched();
                let at = |mib: usize| p.wrapping_add(mib << 20);
                PRETENDED.store(SLOW, Relaxed);
                looked();
                assert!(watching(), "the program has not begun");
                assert!(os::populate(at(6)));
                looked();
                assert!(watching(), "it has got on");
                assert!(!os::resident(at(10)));
                PRETENDED.store(FAST, Relaxed);
                looked();
                assert!(watching() && os::resident(at(10)), "it has not; one is tried");
                assert!(os::populate(at(8)));
                looked();
                PRETENDED.store(SLOW, Relaxed);
                looked();
                assert!(!watching());
                assert_eq!(VERDICT.load(Relaxed), LOSE);
                assert!(!asked_for(at(15)));
                // SAFETY: freed as allocated.
                unsafe { raw::free(p) };
            },
        );
    }
}
