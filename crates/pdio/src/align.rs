// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a file is: its type, its filesystem, and what direct I/O asks of it.
//!
//! The rules are the filesystem's and the device's, and differ per file; they are asked for
//! (`statx`), failing that looked up (XFS ioctl, block device), failing that tried out.

use std::fmt;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;

use crate::{fork, sys};

/// Where an alignment was learned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub enum AlignmentSource {
    /// `statx` with `STATX_DIOALIGN` (Linux 6.1).
    Statx,
    /// The `XFS_IOC_DIOINFO` ioctl.
    XfsIoctl,
    /// The logical block size of the device under the file.
    BlockDevice,
    /// Reads of the file itself at rising alignments.
    Probe,
    /// Nothing could be learned; a memory page, which every known filesystem accepts or refuses
    /// with `EINVAL`.
    Assumed,
}

impl fmt::Display for AlignmentSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AlignmentSource::Statx => "statx",
            AlignmentSource::XfsIoctl => "XFS ioctl",
            AlignmentSource::BlockDevice => "block device",
            AlignmentSource::Probe => "probe",
            AlignmentSource::Assumed => "assumed",
        })
    }
}

/// What direct I/O on a file asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Alignment {
    /// Alignment of buffer addresses, in bytes.
    pub memory: u32,
    /// Alignment of file offsets and lengths, in bytes.
    pub offset: u32,
    /// Where this was learned.
    pub source: AlignmentSource,
}

/// What was found out about an open file.
#[derive(Clone, Debug)]
pub(crate) struct FileFacts {
    pub dev: u64,
    pub ino: u64,
    pub size: u64,
    pub kind: FileKind,
    pub filesystem: &'static str,
    /// `None`: no direct I/O on this file.
    pub alignment: Option<Alignment>,
    /// What is written through the page cache is compressed, and what is written directly is not.
    pub compresses: bool,
    /// Boundaries between direct and buffered parts fall on multiples of this: no page and no
    /// filesystem block is ever written both ways at a time. A power of two.
    pub granule: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    Regular,
    Block,
    /// Pipe, socket, terminal, character device, and what else has no offsets: nothing to stage.
    Stream,
}

impl FileFacts {
    /// What a stream on the file has to know. Each stream begins with this.
    pub(crate) fn of(file: &File) -> io::Result<FileFacts> {
        fork::watch()?;
        let fd = file.as_fd();
        let stx = statx(file)?;
        let kind = match u32::from(stx.stx_mode) & libc::S_IFMT {
            // As `trace_marker` of tracefs, and of FUSE what its server says.
            libc::S_IFREG if !has_offset(fd) => FileKind::Stream,
            libc::S_IFREG => FileKind::Regular,
            libc::S_IFBLK => FileKind::Block,
            libc::S_IFDIR => return Err(io::Error::from_raw_os_error(libc::EISDIR)),
            _ => FileKind::Stream,
        };
        let filesystem = match kind {
            FileKind::Regular => filesystem(fd),
            FileKind::Block => "block device",
            FileKind::Stream => "stream",
        };
        let alignment = match kind {
            FileKind::Stream => None,
            _ => alignment(fd, &stx, kind, filesystem),
        };
        let page = sys::page_size();
        let block = u64::from(stx.stx_blksize).next_power_of_two().min(1 << 20);
        let offset = alignment
            .map_or(1, |a| u64::from(a.offset))
            .next_power_of_two();
        // A block device may have several names, each of which is a file. No file has the number zero.
        let (major, minor, ino, size) = match kind {
            FileKind::Block => {
                let size = block_device_size(fd)?;
                (stx.stx_rdev_major, stx.stx_rdev_minor, 0, size)
            }
            _ => (
                stx.stx_dev_major,
                stx.stx_dev_minor,
                stx.stx_ino,
                stx.stx_size,
            ),
        };
        Ok(FileFacts {
            dev: libc::makedev(major, minor),
            ino,
            size,
            kind,
            filesystem,
            alignment,
            compresses: filesystem == "btrfs" && compresses(&stx),
            granule: page.max(block).max(offset),
        })
    }

    /// Fails if the file is open with `O_DIRECT` itself. Whatever is not aligned goes through the caller's
    /// descriptor, which would refuse it. (Of a pipe the flag says something else.)
    pub(crate) fn refuse_direct(&self, flags: i32) -> io::Result<()> {
        if self.kind == FileKind::Stream || flags & libc::O_DIRECT == 0 {
            return Ok(());
        }
        Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the file is open with O_DIRECT, under which not every call is possible: open it without",
        ))
    }
}

fn statx(file: &File) -> io::Result<libc::statx> {
    let mut stx = MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: an empty path with AT_EMPTY_PATH names the descriptor; the result buffer is ours.
    let rc = unsafe {
        libc::statx(
            file.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            libc::STATX_BASIC_STATS | libc::STATX_DIOALIGN | libc::STATX_MNT_ID,
            stx.as_mut_ptr(),
        )
    };
    // SAFETY: zeroed is a valid value, and the kernel may have filled it.
    let mut stx = unsafe { stx.assume_init() };
    if rc < 0 {
        // Linux before 4.11 does not have the call, and some sandboxes refuse it.
        let about = file.metadata()?;
        stx.stx_mode = about.mode() as u16;
        stx.stx_ino = about.ino();
        stx.stx_size = about.size();
        stx.stx_blksize = about.blksize() as u32;
        (stx.stx_dev_major, stx.stx_dev_minor) = split(about.dev());
        (stx.stx_rdev_major, stx.stx_rdev_minor) = split(about.rdev());
    }
    Ok(stx)
}

/// Returns true if btrfs compresses this file: it is marked so, or its filesystem is mounted so.
fn compresses(stx: &libc::statx) -> bool {
    if stx.stx_attributes & libc::STATX_ATTR_COMPRESSED as u64 != 0 {
        return true;
    }
    let known = stx.stx_mask & libc::STATX_MNT_ID != 0;
    let mounts = || std::fs::read_to_string("/proc/self/mountinfo");
    known && mounts().is_ok_and(|mounts| is_mounted_to_compress(&mounts, stx.stx_mnt_id))
}

/// Looks for a mount in the text of `/proc/self/mountinfo`. The filesystem's own options come last.
fn is_mounted_to_compress(mounts: &str, id: u64) -> bool {
    let is_this = |line: &&str| line.split(' ').next().and_then(|n| n.parse().ok()) == Some(id);
    let options = mounts
        .lines()
        .find(is_this)
        .and_then(|line| line.rsplit(' ').next());
    options.is_some_and(|all| all.split(',').any(|option| option.starts_with("compress")))
}

fn has_offset(fd: BorrowedFd<'_>) -> bool {
    let refused = |error: &io::Error| error.raw_os_error() == Some(libc::ESPIPE);
    !sys::offset(fd).is_err_and(|error| refused(&error))
}

/// The major and minor number of a device.
fn split(device: u64) -> (u32, u32) {
    (libc::major(device), libc::minor(device))
}

fn block_device_size(fd: BorrowedFd<'_>) -> io::Result<u64> {
    // _IOR(0x12, 114, size_t)
    const BLKGETSIZE64: libc::c_ulong = 0x8000_1272 | (size_of::<usize>() as libc::c_ulong) << 16;
    let mut size = 0u64;
    // SAFETY: the ioctl stores one u64.
    match unsafe { libc::ioctl(fd.as_raw_fd(), BLKGETSIZE64 as _, &mut size) } {
        0 => Ok(size),
        _ => Err(io::Error::last_os_error()),
    }
}

fn filesystem(fd: BorrowedFd<'_>) -> &'static str {
    let mut stat = MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: the result buffer is ours.
    if unsafe { libc::fstatfs(fd.as_raw_fd(), stat.as_mut_ptr()) } != 0 {
        return "unknown";
    }
    // SAFETY: filled by the call above.
    name(unsafe { stat.assume_init() }.f_type as u32)
}

fn name(magic: u32) -> &'static str {
    match magic {
        0xef53 => "ext4",
        0x5846_5342 => "xfs",
        0x9123_683e => "btrfs",
        0x0102_1994 => "tmpfs",
        0x8584_58f6 => "ramfs",
        0x794c_7630 => "overlayfs",
        0xf2f5_2010 => "f2fs",
        0x2fc1_2fc1 => "zfs",
        0xca45_1a4e => "bcachefs",
        0x6969 => "nfs",
        0xff53_4d42 | 0xfe53_4d42 | 0x517b => "smb",
        0x00c3_6400 => "ceph",
        0x6b41_4653 | 0x5346_414f => "afs",
        0x0102_1997 => "9p",
        0x6573_5546 => "fuse",
        0x4d44 => "vfat",
        0x2011_bab0 => "exfat",
        0x9fa0 => "proc",
        0x6265_6572 => "sysfs",
        _ => "unknown",
    }
}

/// Filesystems of which a stream knows no better way than the page cache. Those in memory accept
/// `O_DIRECT` and ignore it, or have no device below. On a network a direct request waits for the
/// server's disk where a buffered one returns at once, and asking for the alignment is requests as
/// well. Of these, tests have a server of NFS only.
pub(crate) fn page_cache_only(filesystem: &str) -> bool {
    matches!(
        filesystem,
        "tmpfs" | "ramfs" | "proc" | "sysfs" | "nfs" | "smb" | "ceph" | "afs" | "9p"
    )
}

fn alignment(
    fd: BorrowedFd<'_>,
    stx: &libc::statx,
    kind: FileKind,
    filesystem: &str,
) -> Option<Alignment> {
    if page_cache_only(filesystem) {
        return None;
    }
    if stx.stx_mask & libc::STATX_DIOALIGN != 0 {
        // Zero is the kernel's word for "not on this file".
        return (stx.stx_dio_offset_align != 0).then(|| Alignment {
            memory: stx.stx_dio_mem_align.max(1),
            offset: stx.stx_dio_offset_align,
            source: AlignmentSource::Statx,
        });
    }
    if filesystem == "xfs" {
        if let Some(found) = xfs_ioctl(fd) {
            return Some(found);
        }
    }
    let (major, minor) = match kind {
        FileKind::Block => (stx.stx_rdev_major, stx.stx_rdev_minor),
        _ => (stx.stx_dev_major, stx.stx_dev_minor),
    };
    // A filesystem over several devices or over another filesystem has an anonymous device, and
    // no entry here.
    if let Some(size) = device_block_size(major, minor) {
        return Some(Alignment {
            memory: size,
            offset: size,
            source: AlignmentSource::BlockDevice,
        });
    }
    probe(fd, stx.stx_size)
}

fn xfs_ioctl(fd: BorrowedFd<'_>) -> Option<Alignment> {
    // _IOR('X', 30, struct dioattr): memory alignment, least and greatest transfer.
    const XFS_IOC_DIOINFO: libc::c_ulong = 0x800c_581e;
    let mut info = [0u32; 3];
    // SAFETY: the ioctl stores three u32.
    let rc = unsafe { libc::ioctl(fd.as_raw_fd(), XFS_IOC_DIOINFO as _, info.as_mut_ptr()) };
    (rc == 0 && info[1] != 0).then(|| Alignment {
        memory: info[0].max(1),
        offset: info[1],
        source: AlignmentSource::XfsIoctl,
    })
}

fn device_block_size(major: u32, minor: u32) -> Option<u32> {
    let device = format!("/sys/dev/block/{major}:{minor}");
    // A partition has no queue of its own; its disk is the directory above.
    ["queue", "../queue"].iter().find_map(|queue| {
        let text = std::fs::read_to_string(format!("{device}/{queue}/logical_block_size")).ok()?;
        text.trim().parse().ok()
    })
}

/// Reads the file's beginning at rising alignments until one is accepted and gives the same bytes
/// as the page cache.
///
/// The buffer spans several pages, and the file must hold data: newer kernels check less when a
/// buffer lies within one page or the range is a hole. That the file is read here must not show in its time of access.
fn probe(fd: BorrowedFd<'_>, size: u64) -> Option<Alignment> {
    let page = sys::page_size() as usize;
    let assumed = Alignment {
        memory: page as u32,
        offset: page as u32,
        source: AlignmentSource::Assumed,
    };
    let unseen = libc::O_RDONLY | libc::O_NOATIME;
    let direct = match sys::reopen(fd, unseen | libc::O_DIRECT) {
        Ok(direct) => direct,
        // Refused for what it is; any other error (no right to read, or another's file) says nothing.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => return None,
        Err(_) => return Some(assumed),
    };
    let writes_only = sys::flags(fd).is_ok_and(|flags| flags & libc::O_ACCMODE == libc::O_WRONLY);
    let cached = sys::reopen(fd, unseen);
    let (false, false, Ok(cached)) = (size < 4 * page as u64, writes_only, cached) else {
        return Some(assumed);
    };
    let mut memory = vec![0u8; 4 * page];
    let skew = memory.as_ptr().align_offset(page);
    let mut expected = vec![0u8; 2 * page];
    for align in [512usize, 1024, 2048, 4096, 8192, 16384] {
        if align > page {
            break;
        }
        let buffer = &mut memory[skew + align % page..][..page + align];
        let got = sys::pread(direct.as_fd(), buffer, align as u64, 0);
        if let Ok(n) = got {
            let want = sys::pread(cached.as_fd(), &mut expected[..n], align as u64, 0);
            if want.is_ok_and(|m| m == n) && buffer[..n] == expected[..n] {
                return Some(Alignment {
                    memory: align as u32,
                    offset: align as u32,
                    source: AlignmentSource::Probe,
                });
            }
        }
    }
    Some(assumed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_that_compresses_is_recognised() {
        let mounts =
            "36 35 0:31 / /compress rw,relatime shared:1 - btrfs /dev/vdb rw,space_cache=v2\n\
                      361 35 0:32 /a /mnt rw,noatime - btrfs /dev/vdc rw,compress=zstd:3,ssd\n\
                      37 35 0:33 / /b rw - btrfs /dev/vdd rw,compress-force=lzo\n";
        for (id, expected) in [(36, false), (361, true), (37, true), (3, false)] {
            assert_eq!(is_mounted_to_compress(mounts, id), expected, "{id}");
        }
    }

    #[test]
    fn a_network_filesystem_is_asked_for_no_direct_io() {
        let file = tempfile::tempfile_in("/var/tmp").unwrap();
        let stx = statx(&file).unwrap();
        for (magic, expected) in [(0x6969, "nfs"), (0xfe53_4d42, "smb"), (0x00c3_6400, "ceph")] {
            assert_eq!(name(magic), expected);
            // Whatever the kernel promises.
            assert_eq!(
                alignment(file.as_fd(), &stx, FileKind::Regular, expected),
                None
            );
        }
    }
}
