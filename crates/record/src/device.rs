// SPDX-License-Identifier: MIT OR Apache-2.0
//! A camera's device: the system calls on it. Tests have a made-up one in its place.

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use moq_v4l::v4l2::{self, vidioc};
use rustix::mm::{MapFlags, ProtFlags};

use crate::memory::Mapping;

/// An open device.
pub struct Device(File);

impl Device {
    /// Opens the device.
    ///
    /// # Errors
    /// Those of `open(2)`.
    pub fn open(path: &Path) -> io::Result<Device> {
        let mut options = File::options();
        options.read(true).write(true);
        Ok(Device(options.custom_flags(libc::O_NONBLOCK).open(path)?))
    }

    /// Makes a request of V4L2.
    ///
    /// # Safety
    /// `argument` is the structure that belongs to the request.
    ///
    /// # Errors
    /// Those of `ioctl(2)`.
    pub unsafe fn call(&self, request: vidioc::_IOC_TYPE, argument: *mut c_void) -> io::Result<()> {
        // SAFETY: the caller's promise.
        unsafe { v4l2::ioctl(self.0.as_raw_fd(), request, argument) }
    }

    /// Maps one of the device's buffers.
    ///
    /// # Errors
    /// Those of `mmap(2)`.
    pub fn map(&self, len: usize, offset: u64) -> io::Result<Mapping> {
        // Written by the camera alone; readable is enough for the disk.
        let file = Some((self.0.as_fd(), offset));
        Mapping::new(len, ProtFlags::READ, MapFlags::SHARED, file)
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
