// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the kernel says of descriptors and paths.

use core::ffi::{c_int, CStr};
use core::sync::atomic::Ordering::SeqCst;
use std::fs::File;
use std::io::{BufRead, BufReader};

use crate::next;
use crate::state::LOCKING;
use crate::table::{self, Entry};

/// What the kernel says of a descriptor.
pub fn stat(fd: c_int) -> Option<libc::stat64> {
    // SAFETY: a structure of numbers may be all zero, and is valid for a write.
    unsafe {
        let mut about = core::mem::zeroed();
        (next::fstat64(fd, &mut about) == 0).then_some(about)
    }
}

/// Returns true if a file is kept by another process (FUSE) or machine.
pub fn is_kept(fd: c_int) -> bool {
    const KEEPERS: [u32; 7] = [
        0x6573_5546, // FUSE, virtiofs
        0x6969,      // NFS
        0xff53_4d42, // CIFS
        0xfe53_4d42, // SMB 2
        0x00c3_6400, // Ceph
        0x5346_414f, // AFS
        0x0102_1997, // 9p
    ];
    // SAFETY: as in `stat`.
    unsafe {
        let mut about: libc::statfs64 = core::mem::zeroed();
        next::fstatfs64(fd, &mut about) == 0 && KEEPERS.contains(&(about.f_type as u32))
    }
}

/// The file behind a loop device or a partition of one; `None` for other devices.
pub fn behind_device(fd: c_int, device: libc::dev_t) -> Option<(u64, u64)> {
    /// Of partitions, whatever the disk.
    const LOOP_OR_PARTITION: [libc::c_uint; 2] = [7, 259];
    const LOOP_GET_STATUS64: libc::c_ulong = 0x4c05;
    if !LOOP_OR_PARTITION.contains(&libc::major(device)) {
        return None;
    }
    // `struct loop_info64`, which begins with the device and the inode of its file.
    let mut about = [0u64; 29];
    // SAFETY: the kernel writes 232 bytes.
    let failed = unsafe { next::ioctl(fd, LOOP_GET_STATUS64, about.as_mut_ptr() as _) } != 0;
    (!failed).then_some((about[0], about[1]))
}

/// Returns true if what is written to a device must not change until it is there, as checksums or parity are
/// computed of it, or nothing can be known: so of filesystems with a number of their own, as btrfs and overlays.
/// In the page cache the kernel sees to that; a program's memory another of its threads may be changing.
pub fn needs_stable_data(device: libc::dev_t) -> bool {
    let (major, minor) = (libc::major(device), libc::minor(device));
    // A partition has no queue of its own; its disk is the directory above.
    let said = ["queue", "../queue"].iter().find_map(|queue| {
        let path = format!("/sys/dev/block/{major}:{minor}/{queue}/stable_writes");
        std::fs::read_to_string(path).ok()
    });
    said.is_none_or(|text| text.trim() != "0")
}

/// Returns true if the process has taken a lock through this descriptor, or nothing can be known.
pub fn is_locked(fd: c_int) -> bool {
    match std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}")) {
        Ok(text) => text.lines().any(|line| line.starts_with("lock:")),
        Err(_) => true,
    }
}

/// Returns true if `ask` says so of one of the program's descriptors of a file, or nothing can be
/// known, as where there are more than `most`. The library's own lead to the same files.
pub fn any_descriptor(
    about: &libc::stat64,
    most: usize,
    mut ask: impl FnMut(c_int) -> bool,
) -> bool {
    let Ok(list) = std::fs::read_dir("/proc/self/fd") else {
        return true;
    };
    list.enumerate().any(|(before, entry)| {
        if before >= most {
            return true;
        }
        let Ok(entry) = entry else {
            return true;
        };
        let fd = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok());
        let own = |fd| matches!(table::entry(fd), Entry::Internal);
        let Some(fd) = fd.filter(|&fd: &c_int| !own(fd)) else {
            return false;
        };
        let same = |s: libc::stat64| (s.st_dev, s.st_ino) == (about.st_dev, about.st_ino);
        stat(fd).is_some_and(same) && ask(fd)
    })
}

/// Returns true if the process has a lock on the file behind a descriptor, through whichever it was
/// taken, is about to take one, or nothing can be known. Any close of the file drops all record locks
/// of the process on it, and this library closes descriptors of its own.
pub fn file_is_locked(fd: c_int) -> bool {
    // A lock that is just being taken cannot be seen yet.
    LOCKING.load(SeqCst) != 0
        || stat(fd).is_none_or(|about| any_descriptor(&about, usize::MAX, is_locked))
}

/// Returns true if a line of `/proc/self/maps` is of this file.
fn maps_file(line: &[u8], inode: u64, path: &CStr) -> bool {
    let mut fields = line.split(|&byte| byte == b' ');
    // Addresses, access, offset and device come first. Devices are not compared: on btrfs and
    // overlayfs this one is another than that of `stat`.
    let number = fields
        .nth(4)
        .and_then(|text| core::str::from_utf8(text).ok());
    let name = line.strip_suffix(b"\n").unwrap_or(line);
    number.and_then(|text| text.trim_end().parse().ok()) == Some(inode)
        // On overlayfs the inode may be another, too.
        || name.strip_suffix(path.to_bytes()).is_some_and(|rest| rest.ends_with(b" "))
}

/// Returns true if the process has mapped a file, or nothing can be known. True for another file of
/// the same inode number as well.
pub fn is_mapped(inode: u64, path: &CStr) -> bool {
    let Ok(file) = File::open("/proc/self/maps") else {
        return true;
    };
    let mut maps = BufReader::new(file);
    let mut line = Vec::new();
    loop {
        line.clear();
        match maps.read_until(b'\n', &mut line) {
            Ok(0) => return false,
            Ok(_) if maps_file(&line, inode, path) => return true,
            Ok(_) => {}
            Err(_) => return true,
        }
    }
}

/// Returns true if a path leads to a pipe.
pub fn is_pipe(directory: c_int, path: *const libc::c_char) -> bool {
    // SAFETY: the path is the program's, which is about to give it to the kernel.
    crate::errno::keep(|| unsafe {
        let mut about: libc::stat64 = core::mem::zeroed();
        next::fstatat64(directory, path, &mut about, 0) == 0
            && about.st_mode & libc::S_IFMT == libc::S_IFIFO
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_a_file_is_recognised() {
        let line = b"7f1-7f2 r--s 00000000 fe:01 1234                      /a dir/file\n";
        assert!(maps_file(line, 1234, c"/elsewhere"));
        assert!(maps_file(line, 1, c"/a dir/file"));
        assert!(!maps_file(line, 123, c"/file"));
        assert!(!maps_file(
            b"7f1-7f2 rw-p 00000000 00:00 0 \n",
            1234,
            c"/file"
        ));
        assert!(!maps_file(
            b"7f1-7f2 rw-p 00000000 00:00 0 [heap]\n",
            1234,
            c"/file"
        ));
    }

    #[test]
    fn a_mapping_is_found() {
        let path = std::env::current_exe().expect("a path");
        let path = std::ffi::CString::new(path.into_os_string().into_encoded_bytes());
        let path = path.expect("no zero byte");
        assert!(is_mapped(u64::MAX, &path));
        assert!(!is_mapped(u64::MAX, c"/nowhere"));
    }
}
