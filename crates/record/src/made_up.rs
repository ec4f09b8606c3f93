// SPDX-License-Identifier: MIT OR Apache-2.0
//! A made-up camera in the place of a device: what tests record where there is no camera.
//!
//! It answers V4L2's requests as a driver does. It has no clock: a frame is there as soon as it has a
//! buffer to put it into, so nothing depends on how fast the machine is. What comes, and what happens just
//! before it comes, is up to the test.

use std::cell::{RefCell, RefMut};
use std::collections::VecDeque;
use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use moq_v4l::sys::*;
use moq_v4l::v4l2::vidioc;
use rustix::event::{eventfd, EventfdFlags};
use rustix::fs::{ftruncate, memfd_create, MemfdFlags};
use rustix::mm::{MapFlags, ProtFlags};
use rustix::time::{clock_gettime, ClockId};

use crate::memory::Mapping;

/// Width and height, in pixels of two bytes.
pub const SIZE: (u32, u32) = (64, 64);
/// Bytes of a frame: a multiple of what every disk asks for.
pub const FRAME: usize = (SIZE.0 * SIZE.1 * 2) as usize;
/// The time from frame to frame.
pub const INTERVAL: Duration = Duration::from_millis(1);
/// The first frame was taken so long before the camera was opened: no later one is in the future.
const BEFORE: Duration = Duration::from_secs(2);
const MMAP: u32 = v4l2_memory_V4L2_MEMORY_MMAP;
const USERPTR: u32 = v4l2_memory_V4L2_MEMORY_USERPTR;
/// What is in a buffer as soon as the camera may write into it again.
const NOISE: u8 = 0xee;

/// What a camera has to give.
pub enum Next {
    /// The frame with this number.
    Frame(u32),
    /// A frame with this number that is flagged as damaged.
    Damaged(u32),
    /// A frame with this number of which nothing came, and that is not flagged.
    Empty(u32),
    /// A frame with this number without its last line, that is not flagged.
    Short(u32),
    /// The frame with this number, with a time that is by nobody knows which clock.
    Timeless(u32),
    /// Nothing yet; it can be asked again at once.
    Later,
    /// Nothing any more.
    Silence,
    /// It was unplugged.
    Gone,
}

/// A camera to be opened.
pub struct Film {
    /// What happens while the camera is opened.
    pub opened: fn(),
    /// Is told of each request, and may refuse it.
    pub asked: Box<dyn FnMut(vidioc::_IOC_TYPE) -> io::Result<()>>,
    /// The time from frame to frame that it says: so many of so many parts of a second; zeros if it does not.
    pub rate: (u32, u32),
    /// How large it says that a frame is, in bytes.
    pub frame_bytes: usize,
    /// Maximum buffers that it has.
    pub buffers: u32,
    /// Is asked for each frame, before it comes.
    pub next: Box<dyn FnMut() -> Next>,
}

thread_local! {
    static FILM: RefCell<Option<Film>> = const { RefCell::new(None) };
}

/// Has this thread's next camera give this.
pub fn show(film: Film) {
    FILM.set(Some(film));
}

/// The bytes of a frame.
pub fn picture(number: u32) -> Vec<u8> {
    let word =
        |i: u32| (number.wrapping_mul(0x9e37_79b9) ^ i.wrapping_mul(0x85eb_ca6b)).to_le_bytes();
    (0..FRAME as u32 / 4).flat_map(word).collect()
}

struct State {
    film: Film,
    /// When the frame with the number 0 was taken.
    since: Duration,
    streaming: bool,
    /// The memory of the camera's own buffers.
    own: Option<Mapping>,
    /// How many buffers there are, of any memory.
    count: u32,
    /// Buffers that wait for a frame, the first first, and where they are.
    lent: VecDeque<(u32, *mut u8)>,
}

/// An open camera.
pub struct Device {
    /// Can be read from: until the camera falls silent, there may be a frame.
    ready: OwnedFd,
    memory: OwnedFd,
    state: RefCell<State>,
}

impl Device {
    /// Opens the camera that this thread was to have next.
    pub fn open(_: &Path) -> io::Result<Device> {
        let film = FILM.take().ok_or(io::ErrorKind::NotFound)?;
        (film.opened)();
        let now = clock_gettime(ClockId::Monotonic);
        let now = Duration::new(now.tv_sec as u64, now.tv_nsec as u32);
        Ok(Device {
            ready: eventfd(1, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?,
            memory: memfd_create("camera", MemfdFlags::CLOEXEC)?,
            state: RefCell::new(State {
                film,
                since: now - BEFORE,
                streaming: false,
                own: None,
                count: 0,
                lent: VecDeque::new(),
            }),
        })
    }

    /// Answers a request.
    ///
    /// # Safety
    /// `argument` is the structure that belongs to the request.
    pub unsafe fn call(&self, request: vidioc::_IOC_TYPE, argument: *mut c_void) -> io::Result<()> {
        let mut state = self.state.borrow_mut();
        (state.film.asked)(request)?;
        // SAFETY: the caller's promise, in each of these.
        unsafe {
            match request {
                vidioc::VIDIOC_QUERYCAP => capability(&mut *argument.cast()),
                vidioc::VIDIOC_ENUM_FMT => return formats(&mut *argument.cast()),
                vidioc::VIDIOC_G_FMT | vidioc::VIDIOC_S_FMT => {
                    format(state.film.frame_bytes, &mut *argument.cast());
                }
                vidioc::VIDIOC_G_PARM | vidioc::VIDIOC_S_PARM => {
                    rate(state.film.rate, &mut *argument.cast());
                }
                vidioc::VIDIOC_REQBUFS => return self.request(state, &mut *argument.cast()),
                vidioc::VIDIOC_QUERYBUF => about(&mut *argument.cast()),
                vidioc::VIDIOC_QBUF => return lend(state, &mut *argument.cast()),
                vidioc::VIDIOC_DQBUF => return self.take(state, &mut *argument.cast()),
                vidioc::VIDIOC_STREAMON => switch(state, true),
                vidioc::VIDIOC_STREAMOFF => switch(state, false),
                _ => return Err(io::Error::from_raw_os_error(libc::ENOTTY)),
            }
        }
        Ok(())
    }

    /// Maps one of its buffers.
    pub fn map(&self, len: usize, offset: u64) -> io::Result<Mapping> {
        let memory = Some((self.memory.as_fd(), offset));
        Mapping::new(len, ProtFlags::READ, MapFlags::SHARED, memory)
    }

    fn request(
        &self,
        mut state: RefMut<'_, State>,
        wanted: &mut v4l2_requestbuffers,
    ) -> io::Result<()> {
        assert!(!state.streaming);
        state.lent.clear();
        wanted.count = wanted.count.min(state.film.buffers);
        (state.own, state.count) = (None, wanted.count);
        match wanted.memory {
            MMAP if wanted.count > 0 => {
                let len = wanted.count as usize * FRAME;
                ftruncate(&self.memory, len as u64)?;
                let protection = ProtFlags::READ | ProtFlags::WRITE;
                let memory = Some((self.memory.as_fd(), 0));
                state.own = Some(Mapping::new(len, protection, MapFlags::SHARED, memory)?);
            }
            MMAP | USERPTR => {}
            _ => return Err(io::Error::from_raw_os_error(libc::EINVAL)),
        }
        Ok(())
    }

    fn take(&self, mut state: RefMut<'_, State>, buffer: &mut v4l2_buffer) -> io::Result<()> {
        assert!(state.streaming);
        let Some(&(index, at)) = state.lent.front() else {
            return Err(io::ErrorKind::WouldBlock.into());
        };
        let mut clock = V4L2_BUF_FLAG_TIMESTAMP_MONOTONIC;
        let (number, damaged, len) = match (state.film.next)() {
            Next::Frame(number) => (number, false, FRAME),
            Next::Timeless(number) => {
                clock = V4L2_BUF_FLAG_TIMESTAMP_UNKNOWN;
                (number, false, FRAME)
            }
            Next::Damaged(number) => (number, true, FRAME),
            Next::Empty(number) => (number, false, 0),
            Next::Short(number) => (number, false, FRAME - 2 * SIZE.0 as usize),
            Next::Later => return Err(io::ErrorKind::WouldBlock.into()),
            Next::Silence => {
                rustix::io::read(&self.ready, &mut [0; 8])?;
                return Err(io::ErrorKind::WouldBlock.into());
            }
            Next::Gone => return Err(io::Error::from_raw_os_error(libc::ENODEV)),
        };
        state.lent.pop_front();
        if !damaged && len > 0 {
            // SAFETY: lent to the camera until now, and as long as a frame.
            unsafe { at.copy_from_nonoverlapping(picture(number).as_ptr(), FRAME) };
        }
        let time = state.since + INTERVAL * number;
        (buffer.index, buffer.sequence, buffer.bytesused) = (index, number, len as u32);
        buffer.flags = clock;
        if damaged {
            buffer.flags |= V4L2_BUF_FLAG_ERROR;
        }
        buffer.timestamp.tv_sec = time.as_secs() as _;
        buffer.timestamp.tv_usec = time.subsec_micros() as _;
        Ok(())
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        if !std::thread::panicking() {
            assert!(!state.streaming && state.count == 0, "it still has buffers");
        }
    }
}

fn capability(found: &mut v4l2_capability) {
    found.card[..7].copy_from_slice(b"made up");
    found.capabilities = V4L2_CAP_VIDEO_CAPTURE | V4L2_CAP_STREAMING;
}

fn formats(found: &mut v4l2_fmtdesc) -> io::Result<()> {
    if found.index > 0 {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    (found.pixelformat, found.flags) = (u32::from_le_bytes(*b"YUYV"), 0);
    Ok(())
}

fn format(bytes: usize, format: &mut v4l2_format) {
    // SAFETY: the member for this type of queue; any bytes are numbers.
    let pix = unsafe { &mut format.fmt.pix };
    (pix.width, pix.height) = SIZE;
    (pix.pixelformat, pix.sizeimage) = (u32::from_le_bytes(*b"YUYV"), bytes as u32);
    pix.bytesperline = 2 * SIZE.0;
}

fn rate((numerator, denominator): (u32, u32), parameters: &mut v4l2_streamparm) {
    parameters.parm.capture.timeperframe = v4l2_fract {
        numerator,
        denominator,
    };
}

fn about(buffer: &mut v4l2_buffer) {
    buffer.length = FRAME as u32;
    buffer.m.offset = buffer.index * FRAME as u32;
}

fn lend(mut state: RefMut<'_, State>, buffer: &mut v4l2_buffer) -> io::Result<()> {
    let index = buffer.index;
    assert!(index < state.count && state.lent.iter().all(|(i, _)| *i != index));
    let at = match &state.own {
        Some(own) => own.at().wrapping_add(index as usize * FRAME),
        // SAFETY: the member for this kind of memory; any bytes are numbers.
        None => unsafe { buffer.m.userptr as *mut u8 },
    };
    // SAFETY: lent to the camera from now on, and as long as a frame.
    unsafe { at.write_bytes(NOISE, FRAME) };
    state.lent.push_back((index, at));
    Ok(())
}

fn switch(mut state: RefMut<'_, State>, on: bool) {
    state.streaming = on;
    if !on {
        state.lent.clear();
    }
}
