// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads that meet in the arena: slots passed from hand to hand, warm ones taken while they
//! are given back, objects cut and grown while what they leave is trimmed. Small enough for Miri,
//! which sees every byte and many orders; ThreadSanitizer and the plain processor run more of it.
// In one build with brug-preload the crate stands behind a `malloc` that a test does not have, and leaves
// its objects to the C library.
#![cfg(not(feature = "preload"))]

use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, Once};

use brug::{raw, Brug, Config};

const ROUNDS: usize = if cfg!(miri) { 12 } else { 4000 };
const PAGE: usize = 4096;
/// Miri has no memalign for objects that find no slot.
const ALIGN: usize = if cfg!(miri) { 16 } else { 64 };

/// As small an arena as there can be, no thread of its own, and slots for every object.
fn configure() {
    static CONFIGURE: Once = Once::new();
    CONFIGURE.call_once(|| {
        let config = Config {
            switch_point: PAGE,
            purge_delay_ms: 3_600_000,
            retain: Some(8 << 20),
            reserve: if cfg!(miri) { 8 << 20 } else { 16 << 30 },
            ..Config::DEFAULT
        };
        // SAFETY: nobody has used the allocator yet.
        unsafe { raw::configure(&config) };
    });
}

/// An object with its owner's mark in every page.
struct Object {
    p: *mut u8,
    size: usize,
    mark: u8,
}

// SAFETY: an object has one owner at a time.
unsafe impl Send for Object {}

impl Object {
    fn layout(&self) -> Layout {
        Layout::from_size_align(self.size, ALIGN).unwrap()
    }

    fn new(size: usize, mark: u8, zeroed: bool) -> Object {
        let layout = Layout::from_size_align(size, ALIGN).unwrap();
        // SAFETY: the layout has a size.
        let p = unsafe {
            if zeroed {
                Brug.alloc_zeroed(layout)
            } else {
                Brug.alloc(layout)
            }
        };
        assert!(!p.is_null());
        if zeroed {
            // SAFETY: the object, all of which is initialised.
            let bytes = unsafe { std::slice::from_raw_parts(p, size) };
            assert!(bytes.iter().step_by(97).all(|&b| b == 0));
        }
        let object = Object { p, size, mark };
        object.write(0);
        object
    }

    fn write(&self, from: usize) {
        for at in (from..self.size).step_by(PAGE / 4) {
            // SAFETY: within the object.
            unsafe { self.p.add(at).write(self.mark) };
        }
    }

    fn check(&self, size: usize) {
        for at in (0..size).step_by(PAGE / 4) {
            // SAFETY: within the object, and written.
            assert_eq!(unsafe { self.p.add(at).read() }, self.mark);
        }
    }

    fn resize(&mut self, size: usize) {
        // SAFETY: a live object, as it was allocated.
        let p = unsafe { Brug.realloc(self.p, self.layout(), size) };
        assert!(!p.is_null());
        let kept = self.size.min(size);
        (self.p, self.size) = (p, size);
        self.check(kept);
        self.write(kept.next_multiple_of(PAGE / 4));
    }

    fn free(self) {
        self.check(self.size);
        // SAFETY: a live object, as it was allocated.
        unsafe { Brug.dealloc(self.p, self.layout()) };
    }
}

#[test]
fn slots_go_from_thread_to_thread_while_memory_is_given_back() {
    configure();
    let exchange = Mutex::new(Vec::new());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let trimmer = scope.spawn(|| {
            while !stop.load(Relaxed) {
                raw::trim();
                std::thread::yield_now();
            }
        });
        let workers = [1usize, 2, 3].map(|seed| {
            let exchange = &exchange;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let step = round * 7 + seed * 3;
                    let mut object =
                        Object::new(PAGE * (1 + step % 5), step as u8 | 1, step % 3 == 0);
                    object.resize(PAGE * (2 + step % 11));
                    let mut others = exchange.lock().unwrap();
                    others.push(object);
                    let any = step % others.len();
                    let mut taken: Object = others.swap_remove(any);
                    drop(others);
                    taken.resize(PAGE * (1 + step % 3));
                    taken.free();
                }
            })
        });
        for worker in workers {
            worker.join().unwrap();
        }
        stop.store(true, Relaxed);
        trimmer.join().unwrap();
    });
    exchange
        .into_inner()
        .unwrap()
        .into_iter()
        .for_each(Object::free);
    let stats = brug::stats();
    assert!(
        stats.moves_in + stats.warm_reuses > 0,
        "no slot was used: {stats}"
    );
}

#[test]
fn what_an_object_leaves_is_trimmed_while_it_grows_again() {
    configure();
    // More than is worth trimming, and into slots of the next size.
    let (large, small) = if cfg!(miri) {
        (1_900_000, PAGE * 2)
    } else {
        (9 << 20, PAGE * 30)
    };
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let trimmer = scope.spawn(|| {
            while !stop.load(Relaxed) {
                raw::trim();
                std::thread::yield_now();
            }
        });
        let mut object = Object::new(PAGE, 0x5a, false);
        for round in 0..ROUNDS.min(300) / 4 {
            object.resize(large - round * 100);
            object.resize(small);
            std::thread::yield_now();
            object.resize(small + PAGE * (round % 9));
        }
        object.free();
        stop.store(true, Relaxed);
        trimmer.join().unwrap();
    });
}
