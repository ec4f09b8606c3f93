// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory that a camera fills and a disk takes.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;

use rustix::fs::{fcntl_add_seals, ftruncate, memfd_create, MemfdFlags, SealFlags};
use rustix::mm::{madvise, mmap, mmap_anonymous, munmap, Advice, MapFlags, ProtFlags};

/// What udmabuf counts in: the size of an ordinary page.
fn page() -> usize {
    rustix::param::page_size()
}

/// A mapping of this process's.
#[derive(Debug)]
pub struct Mapping {
    at: *mut u8,
    len: usize,
}

impl Mapping {
    /// Maps `len` bytes of a file from an offset on, or of new memory.
    ///
    /// # Errors
    /// Those of `mmap(2)`.
    pub fn new(
        len: usize,
        protection: ProtFlags,
        flags: MapFlags,
        file: Option<(BorrowedFd<'_>, u64)>,
    ) -> io::Result<Mapping> {
        let anywhere = std::ptr::null_mut();
        // SAFETY: a new mapping at a place that the kernel chooses.
        let at = unsafe {
            match file {
                Some((file, offset)) => mmap(anywhere, len, protection, flags, file, offset)?,
                None => mmap_anonymous(anywhere, len, protection, flags)?,
            }
        };
        Ok(Mapping { at: at.cast(), len })
    }

    /// Where it begins.
    pub fn at(&self) -> *mut u8 {
        self.at
    }

    /// How long it is.
    pub fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this is its only owner, and a mapping of its own.
        let _ = unsafe { munmap(self.at.cast(), self.len) };
    }
}

/// New memory for `count` buffers of `len` bytes each, every one at the beginning of a page.
///
/// # Errors
/// If there is not so much.
pub fn pages(count: usize, len: usize) -> io::Result<(Mapping, usize)> {
    let stride = len.next_multiple_of(page());
    let total = stride * count;
    let mapping = Mapping::new(
        total,
        ProtFlags::READ | ProtFlags::WRITE,
        MapFlags::PRIVATE,
        None,
    )?;
    // SAFETY: the new mapping, of which nobody knows yet. Huge pages are fewer for camera and disk
    // to look up; without them it is all the same.
    let _ = unsafe { madvise(mapping.at().cast(), total, Advice::LinuxHugepage) };
    Ok((mapping, stride))
}

/// The pages that a memory file can be made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageSize(pub usize);

impl PageSize {
    /// Returns the pages that this machine has for buffers of `len` bytes. The smallest huge pages
    /// that hold a buffer come first, since several smaller ones need not be contiguous. Ordinary pages
    /// come last.
    pub fn all(len: usize) -> Vec<PageSize> {
        let mut sizes: Vec<usize> = std::fs::read_dir("/sys/kernel/mm/hugepages")
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| {
                let name = entry.file_name().into_string().ok()?;
                let kib: usize = name
                    .strip_prefix("hugepages-")?
                    .strip_suffix("kB")?
                    .parse()
                    .ok()?;
                Some(kib << 10)
            })
            .collect();
        sizes.retain(|&size| size >= len);
        sizes.sort_unstable();
        sizes.push(page());
        sizes.into_iter().map(PageSize).collect()
    }

    /// The flags that ask `memfd_create` for them.
    fn flags(self) -> MemfdFlags {
        if self.0 == page() {
            return MemfdFlags::empty();
        }
        // The kernel has the size's logarithm in these bits.
        let size = self.0.trailing_zeros() << libc::MFD_HUGE_SHIFT;
        MemfdFlags::HUGETLB | MemfdFlags::from_bits_retain(size)
    }

    /// Where `count` buffers of `len` bytes go, and how long the file is: one after the other,
    /// but none across the end of a huge page if it fits into one, as the next may be anywhere.
    pub fn places(self, count: usize, len: usize) -> (Vec<usize>, usize) {
        let stride = len.next_multiple_of(page());
        let each = (self.0 / stride).max(1);
        let place = |i: usize| match self.0 / stride {
            0 => i * stride,
            _ => i / each * self.0 + i % each * stride,
        };
        let end = place(count - 1) + stride;
        (
            (0..count).map(place).collect(),
            end.next_multiple_of(self.0),
        )
    }
}

impl std::fmt::Display for PageSize {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 >> 10 {
            kib if kib >= 1 << 20 => write!(f, "{} GiB", kib >> 20),
            kib if kib >= 1 << 10 => write!(f, "{} MiB", kib >> 10),
            kib => write!(f, "{kib} KiB"),
        }
    }
}

/// Where the memory of dma-bufs comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A memory file with pages of this size.
    Pages(PageSize),
    /// A heap of the kernel, by its name in [`HEAPS`].
    Heap(String),
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Source::Pages(size) => write!(f, "pages of {size}"),
            Source::Heap(name) => write!(f, "heap {name}"),
        }
    }
}

/// Where the kernel's heaps are.
pub const HEAPS: &str = "/dev/dma_heap";

/// The heaps that may give memory in one piece.
pub fn heaps() -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(HEAPS)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    // Those of scattered pages are no better than a memory file, which comes first.
    names.retain(|name| !name.starts_with("system"));
    names.sort_unstable();
    names
}

/// Memory that this process has mapped, and each buffer of it as a dma-buf as well.
#[derive(Debug)]
pub struct Shared {
    /// Kept for the places.
    _mappings: Vec<Mapping>,
    /// Where the buffers are, and as dma-bufs.
    places: Vec<(*mut u8, OwnedFd)>,
    /// How long each is, in whole pages.
    len: usize,
}

/// `struct udmabuf_create`.
#[repr(C)]
struct Create {
    memfd: u32,
    flags: u32,
    offset: u64,
    size: u64,
}

/// `_IOW('u', 0x42, struct udmabuf_create)`
const UDMABUF_CREATE: u32 = 0x4018_7542;
const UDMABUF_FLAGS_CLOEXEC: u32 = 1;

/// `struct dma_heap_allocation_data`.
#[repr(C)]
struct Allocation {
    len: u64,
    fd: u32,
    fd_flags: u32,
    heap_flags: u64,
}

/// `_IOWR('H', 0x0, struct dma_heap_allocation_data)`
const DMA_HEAP_IOCTL_ALLOC: u32 = 0xc018_4800;
/// `_IOW('b', 0, struct dma_buf_sync)`
const DMA_BUF_IOCTL_SYNC: u32 = 0x4008_6200;
const DMA_BUF_SYNC_READ: u64 = 1;
const DMA_BUF_SYNC_END: u64 = 4;

impl Shared {
    /// Memory for `count` buffers of `len` bytes each.
    ///
    /// # Errors
    /// If the machine has no such memory left, or cannot make dma-bufs of it.
    pub fn new(from: &Source, count: usize, len: usize) -> io::Result<Shared> {
        match from {
            Source::Pages(size) => Shared::of_pages(*size, count, len),
            Source::Heap(name) => Shared::of_heap(name, count, len),
        }
    }

    /// A buffer and its length; the dma-buf is as long.
    pub fn place(&self, index: usize) -> (*mut u8, usize) {
        (self.places[index].0, self.len)
    }

    /// The buffer as a dma-buf.
    pub fn dmabuf(&self, index: usize) -> &OwnedFd {
        &self.places[index].1
    }

    fn of_heap(name: &str, count: usize, len: usize) -> io::Result<Shared> {
        let heap = File::open(Path::new(HEAPS).join(name))?;
        let len = len.next_multiple_of(page());
        let mut shared = Shared {
            _mappings: Vec::new(),
            places: Vec::new(),
            len,
        };
        for _ in 0..count {
            let mut wanted = Allocation {
                len: len as u64,
                fd: 0,
                fd_flags: (libc::O_RDWR | libc::O_CLOEXEC) as u32,
                heap_flags: 0,
            };
            let at: *mut Allocation = &mut wanted;
            // SAFETY: reads and writes the structure, and makes a new descriptor or returns an error.
            if unsafe { libc::ioctl(heap.as_raw_fd(), DMA_HEAP_IOCTL_ALLOC as _, at) } == -1 {
                return Err(io::Error::last_os_error());
            }
            // SAFETY: new, and nobody else's.
            let dmabuf = unsafe { OwnedFd::from_raw_fd(wanted.fd as RawFd) };
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            let flags = MapFlags::SHARED | MapFlags::POPULATE;
            let mapping = Mapping::new(len, protection, flags, Some((dmabuf.as_fd(), 0)))?;
            shared.places.push((mapping.at(), dmabuf));
            shared._mappings.push(mapping);
        }
        Ok(shared)
    }

    fn of_pages(pages: PageSize, count: usize, len: usize) -> io::Result<Shared> {
        let driver = File::options()
            .read(true)
            .write(true)
            .open(Path::new("/dev/udmabuf"))
            .map_err(|error| io::Error::new(error.kind(), format!("no /dev/udmabuf: {error}")))?;
        let (places, total) = pages.places(count, len);
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | pages.flags();
        let file = memfd_create("frames", flags)?;
        ftruncate(&file, total as u64)?;
        // udmabuf asks for it, so that no page goes away.
        fcntl_add_seals(&file, SealFlags::SHRINK)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        let mapping = Mapping::new(total, protection, flags, Some((file.as_fd(), 0)))?;
        let len = len.next_multiple_of(page());
        let places = places
            .iter()
            .map(|&place| {
                let create = Create {
                    memfd: file.as_raw_fd() as u32,
                    flags: UDMABUF_FLAGS_CLOEXEC,
                    offset: place as u64,
                    size: len as u64,
                };
                // SAFETY: reads the structure, and returns a new descriptor or an error.
                match unsafe { libc::ioctl(driver.as_raw_fd(), UDMABUF_CREATE as _, &create) } {
                    -1 => Err(unpinned(io::Error::last_os_error())),
                    // SAFETY: new, and nobody else's.
                    fd => Ok((mapping.at().wrapping_add(place), unsafe {
                        OwnedFd::from_raw_fd(fd)
                    })),
                }
            })
            .collect::<io::Result<Vec<_>>>()?;
        Ok(Shared {
            _mappings: vec![mapping],
            places,
            len,
        })
    }
}

/// Says why no dma-buf can be made of pages that are there. The kernel calls it a lack of memory
/// if they are plain CMA's and there is no other place for them.
fn unpinned(error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(libc::ENOMEM) => io::Error::other("they may not be pinned for so long"),
        _ => error,
    }
}

/// Lets the processor read what a device has written to a dma-buf, or ends that.
pub fn sync(dmabuf: &OwnedFd, end: bool) {
    let flags = DMA_BUF_SYNC_READ | if end { DMA_BUF_SYNC_END } else { 0 };
    // SAFETY: reads one number. Where caches are coherent nothing happens, errors included.
    while unsafe { libc::ioctl(dmabuf.as_raw_fd(), DMA_BUF_IOCTL_SYNC as _, &flags) } == -1
        && matches!(
            io::Error::last_os_error().raw_os_error(),
            Some(libc::EAGAIN | libc::EINTR)
        )
    {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_that_fits_into_a_huge_page_is_in_one() {
        let huge = PageSize(2 << 20);
        for (count, len) in [(1, 1), (7, 4096), (8, 614_400), (3, 900_000), (5, 2 << 20)] {
            let (places, total) = huge.places(count, len);
            assert_eq!(places.len(), count);
            assert_eq!(total % huge.0, 0);
            let mut free = 0;
            for place in places {
                assert_eq!(place % page(), 0);
                assert!(place >= free, "they overlap");
                free = place + len;
                assert_eq!(place / huge.0, (free - 1) / huge.0, "{count} of {len}");
            }
            assert!(free <= total);
        }
        assert_eq!(huge.places(2, 1_843_200), (vec![0, 2 << 20], 4 << 20));
    }

    #[test]
    fn pages_that_may_not_be_pinned_are_no_lack_of_pages() {
        let error = unpinned(io::Error::from_raw_os_error(libc::ENOMEM));
        assert_eq!(error.raw_os_error(), None);
        let error = unpinned(io::Error::from_raw_os_error(libc::EINVAL));
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
    }

    #[test]
    fn a_heap_that_is_not_there_is_an_error() {
        let error = Shared::new(&Source::Heap("magic".into()), 1, 1).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(!heaps().iter().any(|name| name.starts_with("system")));
    }

    #[test]
    fn of_ordinary_pages_one_follows_the_other() {
        let stride = 5000usize.next_multiple_of(page());
        let wanted = (vec![0, stride, 2 * stride], 3 * stride);
        assert_eq!(PageSize(page()).places(3, 5000), wanted);
    }
}
