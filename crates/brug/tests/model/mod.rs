// SPDX-License-Identifier: MIT OR Apache-2.0
//! A machine that turns bytes into allocator calls and compares every result with a
//! model: what each object must contain, how it must be aligned, how large it is.
//! The tests feed it pseudo-random bytes, the fuzzer its own.

use std::alloc::{GlobalAlloc, Layout};
use std::sync::Mutex;

use brug::{raw, Brug, Mode, Scope};

/// An object and what is in it.
pub struct Object {
    p: usize,
    size: usize,
    align: usize,
    seed: u8,
    /// From `raw`, which knows no layout.
    raw: bool,
}

/// Bytes that are never checked in full: beyond this, the ends and a sample.
const FULL: usize = 4 << 10;

fn positions(size: usize) -> impl Iterator<Item = usize> {
    let (head, tail) = (
        size.min(FULL),
        size.saturating_sub(FULL).max(size.min(FULL)),
    );
    let middle = (head..tail).step_by(4096 * 7 + 13);
    (0..head).chain(middle).chain(tail..size)
}

fn byte(seed: u8, at: usize) -> u8 {
    seed ^ (at as u8) ^ ((at >> 12) as u8).wrapping_mul(31) | 1
}

impl Object {
    fn fill(&mut self, seed: u8) {
        self.seed = seed;
        for at in positions(self.size) {
            // SAFETY: within the object.
            unsafe { (self.p as *mut u8).add(at).write(byte(seed, at)) };
        }
    }

    /// Checks what is left after the object was cut or grown to `size`.
    fn check(&self, size: usize) {
        // What was sampled depends on the size at the time; both samples count.
        for at in positions(self.size).take_while(|&at| at < size) {
            // SAFETY: within the object.
            let found = unsafe { (self.p as *const u8).add(at).read() };
            assert_eq!(
                found,
                byte(self.seed, at),
                "byte {at} of {} at {:#x}",
                self.size,
                self.p
            );
        }
    }

    fn check_place(&self) {
        assert_ne!(self.p, 0);
        assert_eq!(
            self.p % self.align,
            0,
            "{:#x} is not aligned to {}",
            self.p,
            self.align
        );
        if self.raw {
            // SAFETY: a live object.
            let usable = unsafe { raw::usable_size(self.p as *mut u8) };
            assert!(usable >= self.size);
            if raw::owns(self.p as *const u8) {
                assert!(
                    usable < self.size.max(1) + (64 << 10),
                    "usable size shows slot size"
                );
            }
        }
    }

    fn layout(&self) -> Layout {
        Layout::from_size_align(self.size, self.align).unwrap()
    }

    pub fn free(self) {
        self.check(self.size);
        // SAFETY: a live object, as it was allocated.
        unsafe {
            if self.raw {
                raw::free(self.p as *mut u8);
            } else {
                Brug.dealloc(self.p as *mut u8, self.layout());
            }
        }
    }
}

/// Objects on their way from one thread to another.
pub type Exchange = Mutex<Vec<Object>>;

/// A source of decisions.
pub trait Source {
    fn next(&mut self) -> Option<u8>;
}

/// The bytes of a fuzzer.
impl Source for std::slice::Iter<'_, u8> {
    fn next(&mut self) -> Option<u8> {
        Iterator::next(self).copied()
    }
}

/// xorshift64*, for so many steps.
pub struct Random(pub u64, pub usize);

impl Source for Random {
    fn next(&mut self) -> Option<u8> {
        self.1 = self.1.checked_sub(1)?;
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        Some((self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 56) as u8)
    }
}

/// What the machine may do besides allocating.
#[derive(Clone, Copy)]
pub struct Limits {
    /// Largest object in bytes.
    pub largest: usize,
    /// Maximum number of live objects.
    pub objects: usize,
    /// True if to change the mode of the process.
    pub switch_modes: bool,
}

/// Runs until the source is dry; frees everything.
pub fn run(source: &mut impl Source, limits: Limits, exchange: Option<&Exchange>) {
    let mut objects: Vec<Object> = Vec::new();
    let mut scope = None;
    let step = |s: &mut _, o: &mut Vec<Object>, scope: &mut Option<Scope>| {
        one(s, limits, exchange, o, scope)
    };
    while step(source, &mut objects, &mut scope).is_some() {}
    drop(scope);
    objects.into_iter().for_each(Object::free);
}

fn size(s: &mut impl Source, largest: usize) -> Option<usize> {
    // Uniform in the logarithm: as many small ones as large ones.
    let log = s.next()? as usize % (usize::BITS - largest.leading_zeros()) as usize;
    let fine = (s.next()? as usize) << 8 | s.next()? as usize;
    Some(((1usize << log) + (fine << log >> 16)).min(largest))
}

fn one(
    s: &mut impl Source,
    limits: Limits,
    exchange: Option<&Exchange>,
    objects: &mut Vec<Object>,
    scope: &mut Option<Scope>,
) -> Option<()> {
    let what = s.next()?;
    let pick = s.next()? as usize;
    match what {
        // New.
        0..=79 => {
            if objects.len() >= limits.objects {
                objects.swap_remove(pick % objects.len()).free();
            }
            let size = size(s, limits.largest)?;
            let raw = pick & 1 == 1;
            let align = match pick >> 1 & 7 {
                _ if raw && pick & 64 == 0 => 1,
                0..=3 => 1 << (pick >> 4 & 3),
                4..=5 => 64 << (pick >> 4 & 1),
                6 => 4096,
                _ => 1 << (pick >> 4 & 7) << 14,
            };
            let zero = pick & 128 != 0 && (!raw || align == 1);
            let layout = Layout::from_size_align(size, align).unwrap();
            // SAFETY: the layout has a size.
            let p = unsafe {
                match (raw, zero) {
                    (true, true) => raw::calloc(size, 1),
                    (true, false) if align == 1 => raw::malloc(size),
                    (true, false) => raw::memalign(align, size),
                    (false, true) => Brug.alloc_zeroed(layout),
                    (false, false) => Brug.alloc(layout),
                }
            };
            let mut object = Object {
                p: p as usize,
                size,
                align,
                seed: 0,
                raw,
            };
            object.check_place();
            if zero {
                // SAFETY: the object, all of which is initialised.
                let bytes = unsafe { std::slice::from_raw_parts(p, size) };
                let clean = bytes
                    .chunks(4096)
                    .all(|c| c.iter().fold(0, |a, b| a | b) == 0);
                assert!(clean, "zeroed object of {size} bytes");
            }
            object.fill(what.wrapping_mul(7) ^ pick as u8);
            objects.push(object);
        }
        // Another size.
        80..=199 if !objects.is_empty() => {
            let n = objects.len();
            let object = &mut objects[pick % n];
            let new = match what & 3 {
                0 => size(s, limits.largest)?,
                1 => (object.size * 2).min(limits.largest),
                2 => (object.size + 4096 * (what as usize - 79)).min(limits.largest),
                _ => (object.size / 2).max(1),
            };
            object.check(object.size);
            // SAFETY: a live object, as it was allocated. An object of memalign loses its
            // alignment when C reallocates it.
            let p = unsafe {
                if object.raw {
                    raw::realloc(object.p as *mut u8, new)
                } else {
                    Brug.realloc(object.p as *mut u8, object.layout(), new)
                }
            };
            if object.raw {
                object.align = 1;
            }
            object.p = p as usize;
            let old = object.size;
            object.check(old.min(new));
            object.size = new;
            object.check_place();
            object.fill(object.seed.wrapping_add(what));
        }
        // Gone.
        80..=229 if !objects.is_empty() => {
            let n = objects.len();
            objects.swap_remove(pick % n).free();
        }
        // To or from another thread.
        230..=239 => {
            if let Some(exchange) = exchange {
                let mut exchange = exchange.lock().unwrap();
                if what & 1 == 0 && !objects.is_empty() {
                    let n = objects.len();
                    exchange.push(objects.swap_remove(pick % n));
                } else if let Some(object) = exchange.pop() {
                    drop(exchange);
                    object.check(object.size);
                    objects.push(object);
                }
            }
        }
        240..=245 if limits.switch_modes => {
            let _ = Brug::set_mode(Mode::ALL[pick % 6]);
        }
        246..=251 => {
            *scope = None;
            *scope = (what & 1 == 0).then(|| Scope::enter(Mode::ALL[pick % 6]));
        }
        252 => {
            raw::trim();
        }
        _ => {}
    }
    Some(())
}
