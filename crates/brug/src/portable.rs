// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where growth slots are not supported: the platform's allocator, with the same
//! names. Modes can be set and are remembered; all of them mean the same.

extern crate std;

use core::alloc::{GlobalAlloc, Layout};
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::alloc::System;
use std::cell::Cell;

use crate::mode::{Base, Mode, ModeUnavailable};

static MODE: AtomicU8 = AtomicU8::new(Mode::Auto as u8);

std::thread_local!(static SCOPE: Cell<u8> = const { Cell::new(0) });

pub(crate) fn set_mode(mode: Mode) -> Result<(), ModeUnavailable> {
    if !mode.is_available() {
        return Err(ModeUnavailable(mode));
    }
    MODE.store(mode as u8, Relaxed);
    Ok(())
}

pub(crate) fn mode() -> Mode {
    match SCOPE.get() {
        0 => Mode::from_u8(MODE.load(Relaxed)),
        scope => Mode::from_u8(scope - 1),
    }
}

pub(crate) fn base() -> Base {
    Base::Glibc
}

pub(crate) fn enter(mode: Mode) -> u8 {
    SCOPE.replace(mode as u8 + 1)
}

pub(crate) fn leave(before: u8) {
    SCOPE.set(before);
}

/// # Safety
/// As for the `GlobalAlloc` functions of these names. Sizes and alignments make valid
/// layouts, since they come from layouts.
pub(crate) unsafe fn alloc(size: usize, align: usize) -> *mut u8 {
    // SAFETY: by contract.
    unsafe { System.alloc(Layout::from_size_align_unchecked(size, align)) }
}

pub(crate) unsafe fn alloc_zeroed(size: usize, align: usize) -> *mut u8 {
    // SAFETY: by contract.
    unsafe { System.alloc_zeroed(Layout::from_size_align_unchecked(size, align)) }
}

pub(crate) unsafe fn free_told(p: *mut u8, size: usize, align: usize) {
    // SAFETY: by contract.
    unsafe { System.dealloc(p, Layout::from_size_align_unchecked(size, align)) }
}

pub(crate) unsafe fn realloc(p: *mut u8, old: usize, align: usize, new: usize) -> *mut u8 {
    // SAFETY: by contract.
    unsafe { System.realloc(p, Layout::from_size_align_unchecked(old, align), new) }
}
