// SPDX-License-Identifier: MIT OR Apache-2.0
//! An allocator for one data structure.

use core::alloc::Layout;
use core::ptr::{self, NonNull};

use allocator_api2::alloc::{AllocError, Allocator};

use crate::mode::Mode;
use crate::realloc::realloc_in;
use crate::{arena, heap, words};

/// Allocates in one mode, whatever the mode of the process and the thread is: the
/// paper's choice per data structure. In a build that lacks what the mode needs, the
/// C library takes its place.
///
/// ```
/// use allocator_api2::vec::Vec;
/// use brug::{In, Mode};
/// let mut samples = Vec::new_in(In(Mode::Mmap));
/// samples.extend(0..100_000u32);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct In(pub Mode);

impl In {
    fn get(self, layout: Layout, zero: bool) -> Result<NonNull<[u8]>, AllocError> {
        let p = if layout.size() == 0 {
            ptr::without_provenance_mut(layout.align())
        } else {
            words::ready();
            heap::alloc_in(self.0, layout.size(), layout.align(), zero)
        };
        let p = NonNull::new(p).ok_or(AllocError)?;
        Ok(NonNull::slice_from_raw_parts(p, layout.size()))
    }

    unsafe fn resize(
        self,
        p: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        if old.size() == 0 {
            return self.get(new, false);
        }
        if new.size() == 0 {
            // SAFETY: by contract.
            unsafe { self.deallocate(p, old) };
            return self.get(new, false);
        }
        // A place that happens to be aligned better than any slot is not kept when the object moves.
        let is_aligned = (p.as_ptr() as usize).is_multiple_of(new.align());
        let stays = new.align() <= old.align() || is_aligned && new.align() <= arena::MAX_ALIGN;
        let q = if stays {
            let align = old.align().max(new.align());
            // SAFETY: by contract.
            unsafe { realloc_in(Some(self.0), p.as_ptr(), old.size(), align, new.size()) }
        } else {
            let q = heap::alloc_in(self.0, new.size(), new.align(), false);
            if !q.is_null() {
                // SAFETY: two objects of at least this size; the old one is the caller's.
                unsafe {
                    ptr::copy_nonoverlapping(p.as_ptr(), q, old.size().min(new.size()));
                    heap::free(p.as_ptr());
                }
            }
            q
        };
        let q = NonNull::new(q).ok_or(AllocError)?;
        Ok(NonNull::slice_from_raw_parts(q, new.size()))
    }
}

// SAFETY: memory stays valid until it is deallocated, whatever becomes of the
// allocator, which has no state.
unsafe impl Allocator for In {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        self.get(layout, false)
    }

    fn allocate_zeroed(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        self.get(layout, true)
    }

    unsafe fn deallocate(&self, p: NonNull<u8>, layout: Layout) {
        if layout.size() > 0 {
            // SAFETY: by contract.
            unsafe { heap::free(p.as_ptr()) };
        }
    }

    unsafe fn grow(
        &self,
        p: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: by contract.
        unsafe { self.resize(p, old, new) }
    }

    unsafe fn grow_zeroed(
        &self,
        p: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: by contract; the object has `new.size()` bytes.
        unsafe {
            let q = self.resize(p, old, new)?;
            let tail = q.cast::<u8>().as_ptr().add(old.size());
            ptr::write_bytes(tail, 0, new.size() - old.size());
            Ok(q)
        }
    }

    unsafe fn shrink(
        &self,
        p: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: by contract.
        unsafe { self.resize(p, old, new) }
    }
}
