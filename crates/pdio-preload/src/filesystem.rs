// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the filesystem of a file allows.
//!
//! A write that is held back returns before the kernel sees it. So it must be one that the filesystem
//! would have carried out without waiting for the disk: there is room, the file is not too large for
//! it, and nothing makes its writes synchronous. On filesystems of which this is not known no stream
//! is taken.

use core::ffi::c_int;

use crate::next;

/// Minimum free bytes of the filesystem for writes to be deferred: with less, the call that fills
/// the disk must return the error itself.
const ROOM: u64 = 64 << 20;
/// Maximum offset of a taken stream, below every filesystem's largest file.
pub const FARTHEST: u64 = 1 << 40;
/// The same for files without extents, as those of ext2 and ext3, with the smallest blocks.
const FARTHEST_MAPPED: u64 = 16 << 30;

const EXT4: u32 = 0xef53;
const XFS: u32 = 0x5846_5342;
const BTRFS: u32 = 0x9123_683e;

pub struct Filesystem(libc::statfs64);

impl Filesystem {
    /// The filesystem of a file; `None` if streams on it are not taken, as it is not a local one, on
    /// a device, of known behaviour.
    pub fn of(fd: c_int) -> Option<Filesystem> {
        const KNOWN: [u32; 8] = [
            EXT4, // and ext2, ext3
            XFS,
            BTRFS,
            0xf2f5_2010, // f2fs
            0x794c_7630, // overlayfs
            0xca45_1a4e, // bcachefs
            0x2fc1_2fc1, // ZFS
            0x3434,      // NILFS
        ];
        // SAFETY: as in `look::stat`.
        let about = unsafe {
            let mut about: libc::statfs64 = core::mem::zeroed();
            (next::fstatfs64(fd, &mut about) == 0).then_some(about)?
        };
        KNOWN
            .contains(&(about.f_type as u32))
            .then_some(Filesystem(about))
    }

    /// Returns true if long writes go through the page cache faster than gathered: each is copied either way, as the
    /// program may change its memory while the filesystem sums up what is written.
    pub fn copies_long_writes(&self) -> bool {
        self.0.f_type as u32 == BTRFS
    }

    /// Returns true if there is room enough for writes to be deferred.
    pub fn has_room(&self) -> bool {
        self.0.f_bavail.saturating_mul(self.0.f_bsize as u64) >= ROOM
    }

    /// Returns true if each write waits for the disk without `O_SYNC`, as the whole filesystem is mounted so, or the
    /// file or its directory was marked so.
    pub fn is_synchronous(&self, attributes: c_int) -> bool {
        /// From `<linux/fs.h>`.
        const FS_SYNC_FL: c_int = 0x8;
        self.0.f_flags as libc::c_ulong & libc::ST_SYNCHRONOUS != 0 || attributes & FS_SYNC_FL != 0
    }

    /// Returns true if what is written to this file of it may go to another device than the one that it is known by.
    pub fn is_elsewhere(&self, fd: c_int) -> bool {
        /// From `<linux/fs.h>`.
        const FS_IOC_FSGETXATTR: libc::c_ulong = 0x801c_581f;
        const FS_XFLAG_REALTIME: u32 = 1;
        if self.0.f_type as u32 != XFS {
            return false;
        }
        let mut about = [0u32; 7];
        // SAFETY: `struct fsxattr`, whose flags come first.
        let failed = unsafe { next::ioctl(fd, FS_IOC_FSGETXATTR, about.as_mut_ptr() as _) } != 0;
        failed || about[0] & FS_XFLAG_REALTIME != 0
    }

    /// The offset from which on calls are left to the kernel, which knows the filesystem's limit.
    pub fn farthest(&self, attributes: c_int) -> u64 {
        /// From `<linux/fs.h>`.
        const FS_EXTENT_FL: c_int = 0x0008_0000;
        match self.0.f_type as u32 == EXT4 && attributes & FS_EXTENT_FL == 0 {
            true => FARTHEST_MAPPED,
            false => FARTHEST,
        }
    }
}

/// What is set of a file by `chattr`; nothing if the filesystem cannot say.
pub fn attributes(fd: c_int) -> c_int {
    let mut attributes: c_int = 0;
    // SAFETY: the kernel writes 32 bits, whatever the size in the call's number.
    match unsafe { next::ioctl(fd, libc::FS_IOC_GETFLAGS, &raw mut attributes as _) } {
        0 => attributes,
        _ => 0,
    }
}
