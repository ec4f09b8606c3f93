// SPDX-License-Identifier: MIT OR Apache-2.0
//! A V4L2 camera: what it is set to, its buffers, and the frames that come.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use moq_v4l::sys::*;
use moq_v4l::v4l2::vidioc;
use pdio_cli::report::{quoted, reason, Context, Fail, Outcome};

use crate::device::Device;
use crate::memory::Mapping;

const SINGLE: u32 = v4l2_buf_type_V4L2_BUF_TYPE_VIDEO_CAPTURE;
/// Drivers whose frames may be in several pieces of memory; taken where it is one.
const MULTI: u32 = v4l2_buf_type_V4L2_BUF_TYPE_VIDEO_CAPTURE_MPLANE;

/// Whose memory the frames are put into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Memory {
    /// The camera's own.
    Mmap = v4l2_memory_V4L2_MEMORY_MMAP,
    /// Memory of this process.
    UserPtr = v4l2_memory_V4L2_MEMORY_USERPTR,
    /// A dma-buf.
    DmaBuf = v4l2_memory_V4L2_MEMORY_DMABUF,
}

/// What frames are wanted; what is not said stays as the camera has it.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Width and height, in pixels.
    pub size: Option<(u32, u32)>,
    /// The format's number.
    pub format: Option<u32>,
    /// Frames in a number of seconds.
    pub rate: Option<(u32, u32)>,
}

/// A camera that is set up.
pub struct Camera {
    device: Device,
    path: PathBuf,
    /// Which of the two interfaces its driver has.
    queue: u32,
    /// What the driver calls it.
    pub name: String,
    /// Width and height, in pixels.
    pub size: (u32, u32),
    /// The format's letters.
    pub format: String,
    /// True if frames differ in length.
    pub compressed: bool,
    /// Maximum bytes of a frame.
    pub frame_bytes: usize,
    /// Bytes of a line, of the first plane if there are several; 0: there are no lines.
    pub line_bytes: u32,
    /// The time from frame to frame, if the camera tells.
    pub interval: Option<Duration>,
}

/// A frame as it comes; its owner has the buffer.
#[derive(Debug)]
pub struct Arrival {
    /// The buffer it is in.
    pub index: u32,
    /// Where in the buffer it begins, in bytes.
    pub begin: usize,
    /// How many bytes it has.
    pub len: usize,
    /// The camera's count of frames.
    pub sequence: u32,
    /// When it was taken, by the clock of `monotonic`.
    pub time: Duration,
    /// True if that clock is the system's.
    pub monotonic: bool,
    /// True if the camera says that the bytes are not what they should be, or they are too few.
    pub damaged: bool,
}

/// In a format's number: its values are big-endian.
const BIG_ENDIAN: u32 = 1 << 31;

/// Returns the letters of a format, written as v4l2-ctl writes them.
fn letters(code: u32) -> String {
    let four = (code & !BIG_ENDIAN).to_le_bytes();
    let four = String::from_utf8_lossy(&four);
    match code & BIG_ENDIAN {
        0 => four.trim_end().to_string(),
        _ => format!("{four}-BE"),
    }
}

/// Returns the number of a format of these letters; spaces at the end need not be there.
pub fn code(letters: &str) -> Option<u32> {
    let big_endian = letters.strip_suffix("-BE").filter(|_| letters.len() > 4);
    let bytes = big_endian.unwrap_or(letters).as_bytes();
    if bytes.is_empty() || bytes.len() > 4 || !bytes.iter().all(|b| (b' '..=b'~').contains(b)) {
        return None;
    }
    let mut four = *b"    ";
    four[..bytes.len()].copy_from_slice(bytes);
    let code = u32::from_le_bytes(four);
    Some(big_endian.map_or(code, |_| code | BIG_ENDIAN))
}

impl Camera {
    /// Opens a camera and sets it up.
    ///
    /// # Errors
    /// If there is none, it is busy, or it refuses what is wanted.
    pub fn open(path: &Path, wanted: &Wanted) -> Outcome<Camera> {
        let device = Device::open(path).map_err(|error| match error.raw_os_error() {
            Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => {
                Fail::Failed(format!("no camera at {}", quoted(path)))
            }
            Some(libc::EBUSY) => busy(path),
            Some(libc::EACCES) => Fail::Failed(format!(
                "no right to use {}: its group may, which is usually 'video'",
                quoted(path)
            )),
            _ => Fail::Failed(format!("cannot open {}: {}", quoted(path), reason(&error))),
        })?;
        let mut camera = Camera {
            device,
            path: path.to_path_buf(),
            queue: SINGLE,
            name: String::new(),
            size: (0, 0),
            format: String::new(),
            compressed: false,
            frame_bytes: 0,
            line_bytes: 0,
            interval: None,
        };
        camera.look()?;
        camera.set_format(wanted)?;
        camera.set_rate(wanted)?;
        Ok(camera)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn call<T>(&self, request: vidioc::_IOC_TYPE, argument: &mut T) -> io::Result<()> {
        loop {
            // SAFETY: each request of this file comes with the structure that the kernel expects,
            // and the kernel keeps none of it.
            let result = unsafe {
                let argument: *mut T = argument;
                self.device.call(request, argument.cast())
            };
            match result {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }

    fn look(&mut self) -> Outcome {
        // SAFETY: of numbers and arrays of numbers.
        let mut found: v4l2_capability = unsafe { std::mem::zeroed() };
        let what = quoted(&self.path);
        self.call(vidioc::VIDIOC_QUERYCAP, &mut found)
            .map_err(|_| Fail::Failed(format!("{what} is no camera")))?;
        let card = found.card.split(|&byte| byte == 0).next().unwrap_or(&[]);
        // It may be the device's own text, and goes into the index, to terminals and into logs.
        self.name = String::from_utf8_lossy(card).replace(char::is_control, "?");
        let can = match found.capabilities & V4L2_CAP_DEVICE_CAPS {
            0 => found.capabilities,
            _ => found.device_caps,
        };
        let captures = can & (V4L2_CAP_VIDEO_CAPTURE | V4L2_CAP_VIDEO_CAPTURE_MPLANE) != 0;
        if !captures || can & V4L2_CAP_STREAMING == 0 {
            return Err(Fail::Failed(format!("{what} does not capture video")));
        }
        if can & V4L2_CAP_VIDEO_CAPTURE == 0 {
            self.queue = MULTI;
        }
        Ok(())
    }

    fn set_format(&mut self, wanted: &Wanted) -> Outcome {
        // SAFETY: of numbers, and of a union of such.
        let mut format: v4l2_format = unsafe { std::mem::zeroed() };
        format.type_ = self.queue;
        self.call(vidioc::VIDIOC_G_FMT, &mut format)
            .context("ask for the format of", &self.path)?;
        // SAFETY: both interfaces begin with these members; any bytes are numbers.
        let mut pix = unsafe { format.fmt.pix };
        if let Some(size) = wanted.size {
            (pix.width, pix.height) = size;
        }
        if let Some(code) = wanted.format {
            pix.pixelformat = code;
        }
        let asked = pix;
        // Otherwise all stays as it was set, the lines' length and the field as well.
        if wanted.size.is_some() || wanted.format.is_some() {
            pix.field = v4l2_field_V4L2_FIELD_ANY;
            // The camera's own for what is new: zeros for the size of lines and frames.
            if self.queue == MULTI {
                // SAFETY: of numbers.
                let mut planes: v4l2_pix_format_mplane = unsafe { std::mem::zeroed() };
                (planes.width, planes.height) = (pix.width, pix.height);
                (planes.pixelformat, planes.field) = (pix.pixelformat, pix.field);
                format.fmt.pix_mp = planes;
            } else {
                (pix.bytesperline, pix.sizeimage) = (0, 0);
                format.fmt.pix = pix;
            }
            match self.call(vidioc::VIDIOC_S_FMT, &mut format) {
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                    return Err(busy(&self.path))
                }
                result => result.context("set the format of", &self.path)?,
            }
        }
        // SAFETY: as above.
        let got = unsafe { format.fmt.pix };
        let said =
            |f: &v4l2_pix_format| format!("{}x{} {}", f.width, f.height, letters(f.pixelformat));
        let same = |f: &v4l2_pix_format| (f.width, f.height, f.pixelformat);
        let offered = || {
            let formats = self.formats().map(|(code, _)| letters(code));
            formats.collect::<Vec<_>>().join(" ")
        };
        if same(&got) != same(&asked) {
            return Err(Fail::Failed(format!(
                "{} refuses {}: it offers {} (formats: {})",
                quoted(&self.path),
                said(&asked),
                said(&got),
                offered(),
            )));
        }
        let (bytes, line) = match self.queue {
            // SAFETY: the member for this type, as the kernel has filled it.
            MULTI => match unsafe { format.fmt.pix_mp } {
                planes if planes.num_planes == 1 => {
                    let plane = planes.plane_fmt[0];
                    (plane.sizeimage, plane.bytesperline)
                }
                planes => {
                    return Err(Fail::Failed(format!(
                        "{} puts a frame of {} into {} pieces of memory; nocopy-record takes \
                         formats with one (formats: {})",
                        quoted(&self.path),
                        letters(got.pixelformat),
                        planes.num_planes,
                        offered(),
                    )))
                }
            },
            _ => (got.sizeimage, got.bytesperline),
        };
        if bytes == 0 {
            return Err(Fail::Failed(format!(
                "{} does not say how large a frame of {} is",
                quoted(&self.path),
                letters(got.pixelformat)
            )));
        }
        self.size = (got.width, got.height);
        self.format = letters(got.pixelformat);
        self.frame_bytes = bytes as usize;
        self.line_bytes = line;
        let flags = self.formats().find(|(code, _)| *code == got.pixelformat);
        self.compressed = flags.is_some_and(|(_, flags)| flags & V4L2_FMT_FLAG_COMPRESSED != 0);
        Ok(())
    }

    /// What formats there are, with their flags.
    fn formats(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        (0..).map_while(|index| {
            // SAFETY: of numbers and arrays of numbers.
            let mut found: v4l2_fmtdesc = unsafe { std::mem::zeroed() };
            (found.index, found.type_) = (index, self.queue);
            let found = self
                .call(vidioc::VIDIOC_ENUM_FMT, &mut found)
                .map(|()| found);
            found.ok().map(|f| (f.pixelformat, f.flags))
        })
    }

    fn set_rate(&mut self, wanted: &Wanted) -> Outcome {
        // SAFETY: of numbers, and of a union of such.
        let mut parameters: v4l2_streamparm = unsafe { std::mem::zeroed() };
        parameters.type_ = self.queue;
        if let Some((frames, seconds)) = wanted.rate {
            parameters.parm.capture.timeperframe = v4l2_fract {
                numerator: seconds,
                denominator: frames,
            };
            let result = self.call(vidioc::VIDIOC_S_PARM, &mut parameters);
            let error = result.as_ref().err().and_then(io::Error::raw_os_error);
            match error {
                Some(libc::EBUSY) => return Err(busy(&self.path)),
                Some(libc::ENOTTY | libc::EINVAL) => {
                    return Err(Fail::Failed(format!(
                        "{} has no rate to be set: leave out --rate (a sensor's controls may set it: see v4l2-ctl)",
                        quoted(&self.path)
                    )))
                }
                _ => result.context("set the rate of", &self.path)?,
            }
        }
        let said = self.call(vidioc::VIDIOC_G_PARM, &mut parameters);
        // SAFETY: the member for this type, which the kernel has filled; any bytes are numbers.
        let v4l2_fract {
            numerator,
            denominator,
        } = unsafe { parameters.parm.capture.timeperframe };
        if said.is_err() || numerator == 0 || denominator == 0 {
            return match wanted.rate {
                None => Ok(()),
                Some(_) => Err(Fail::Failed(format!(
                    "{} does not say at what rate it runs: leave out --rate",
                    quoted(&self.path)
                ))),
            };
        }
        let nanoseconds = u64::from(numerator) * 1_000_000_000 / u64::from(denominator);
        self.interval = Some(Duration::from_nanos(nanoseconds));
        if let Some((frames, seconds)) = wanted.rate {
            let near = u64::from(frames) * u64::from(numerator);
            let wanted = u64::from(denominator) * u64::from(seconds);
            if near.abs_diff(wanted) > wanted / 100 {
                return Err(Fail::Failed(format!(
                    "{} refuses {frames}/{seconds} frames a second: it offers {denominator}/{numerator}",
                    quoted(&self.path)
                )));
            }
        }
        Ok(())
    }

    /// Minimum bytes of a frame that is whole: its lines, of the first plane if there are several. The size that a driver
    /// says of a frame may count more, which is behind them.
    fn least(&self) -> usize {
        let lines = (self.line_bytes as usize).saturating_mul(self.size.1 as usize);
        match self.compressed {
            true => 1,
            false => lines.clamp(1, self.frame_bytes),
        }
    }

    /// Asks for buffers; how many there are.
    ///
    /// # Errors
    /// Those of `VIDIOC_REQBUFS`.
    pub fn request(&self, memory: Memory, count: u32) -> io::Result<u32> {
        // SAFETY: of numbers.
        let mut request: v4l2_requestbuffers = unsafe { std::mem::zeroed() };
        (request.count, request.type_, request.memory) = (count, self.queue, memory as u32);
        self.call(vidioc::VIDIOC_REQBUFS, &mut request)?;
        match (count, request.count) {
            (1.., 0) => Err(io::Error::from_raw_os_error(libc::ENOMEM)),
            (_, granted) => Ok(granted),
        }
    }

    /// Asks about a buffer, whose only piece of memory is described by `plane` in both interfaces.
    fn about(
        &self,
        request: vidioc::_IOC_TYPE,
        memory: Memory,
        index: u32,
        plane: &mut v4l2_plane,
    ) -> io::Result<v4l2_buffer> {
        // SAFETY: of numbers, a union of numbers and a pointer, which may be null.
        let mut buffer: v4l2_buffer = unsafe { std::mem::zeroed() };
        (buffer.index, buffer.type_, buffer.memory) = (index, self.queue, memory as u32);
        if self.queue == MULTI {
            (buffer.m.planes, buffer.length) = (plane, 1);
            self.call(request, &mut buffer)?;
            return Ok(buffer);
        }
        buffer.length = plane.length;
        // SAFETY: the members for each kind of memory; any bytes are numbers.
        unsafe {
            match memory {
                Memory::Mmap => {}
                Memory::UserPtr => buffer.m.userptr = plane.m.userptr,
                Memory::DmaBuf => buffer.m.fd = plane.m.fd,
            }
            self.call(request, &mut buffer)?;
            plane.m.mem_offset = buffer.m.offset;
        }
        (plane.length, plane.bytesused) = (buffer.length, buffer.bytesused);
        Ok(buffer)
    }

    fn plane() -> v4l2_plane {
        // SAFETY: of numbers, and of a union of such.
        unsafe { std::mem::zeroed() }
    }

    /// Maps one of the camera's own buffers.
    ///
    /// # Errors
    /// Those of `VIDIOC_QUERYBUF` and `mmap(2)`.
    pub fn map(&self, index: u32) -> io::Result<Mapping> {
        let mut plane = Camera::plane();
        self.about(vidioc::VIDIOC_QUERYBUF, Memory::Mmap, index, &mut plane)?;
        // SAFETY: the member for this kind of memory.
        let offset = unsafe { plane.m.mem_offset };
        self.device.map(plane.length as usize, offset.into())
    }

    /// Lends a buffer to the camera: memory of this process, or a dma-buf, if it is not its own.
    ///
    /// # Safety
    /// Until the frame comes or [`stop`](Camera::stop), nobody else touches the memory, which stays.
    ///
    /// # Errors
    /// Those of `VIDIOC_QBUF`.
    pub unsafe fn lend(
        &self,
        memory: Memory,
        index: u32,
        place: (*mut u8, usize),
        dmabuf: Option<RawFd>,
    ) -> io::Result<()> {
        let mut plane = Camera::plane();
        match memory {
            Memory::Mmap => {}
            Memory::UserPtr => plane.m.userptr = place.0 as libc::c_ulong,
            Memory::DmaBuf => plane.m.fd = dmabuf.unwrap_or(-1),
        }
        if memory != Memory::Mmap {
            plane.length = place.1 as u32;
        }
        self.about(vidioc::VIDIOC_QBUF, memory, index, &mut plane)?;
        Ok(())
    }

    /// Lets frames come.
    ///
    /// # Errors
    /// Those of `VIDIOC_STREAMON`.
    pub fn start(&self) -> io::Result<()> {
        self.call(vidioc::VIDIOC_STREAMON, &mut (self.queue as libc::c_int))
    }

    /// Ends it; all buffers are this process's again.
    pub fn stop(&self) {
        // A camera that is gone has none either.
        let _ = self.call(vidioc::VIDIOC_STREAMOFF, &mut (self.queue as libc::c_int));
    }

    /// Takes the next frame; `None` if there is none yet.
    ///
    /// # Errors
    /// Those of `VIDIOC_DQBUF`.
    pub fn take(&self, memory: Memory) -> io::Result<Option<Arrival>> {
        let mut plane = Camera::plane();
        let buffer = match self.about(vidioc::VIDIOC_DQBUF, memory, 0, &mut plane) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            result => result?,
        };
        let seconds = u64::try_from(buffer.timestamp.tv_sec).unwrap_or(0);
        let micros = u64::try_from(buffer.timestamp.tv_usec).unwrap_or(0);
        let len = plane.bytesused.saturating_sub(plane.data_offset) as usize;
        Ok(Some(Arrival {
            index: buffer.index,
            begin: plane.data_offset as usize,
            len,
            sequence: buffer.sequence,
            time: Duration::from_secs(seconds) + Duration::from_micros(micros),
            monotonic: buffer.flags & V4L2_BUF_FLAG_TIMESTAMP_MASK
                == V4L2_BUF_FLAG_TIMESTAMP_MONOTONIC,
            // Not every driver flags a frame of which nothing or only a part came. In a file without gaps that part would
            // shift all frames behind it.
            damaged: buffer.flags & V4L2_BUF_FLAG_ERROR != 0 || len < self.least(),
        }))
    }
}

/// The camera is in use.
pub fn busy(path: &Path) -> Fail {
    Fail::Failed(format!("{} is busy: another program uses it", quoted(path)))
}

impl AsFd for Camera {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_read_as_they_are_written() {
        for written in ["YUYV", "Y8", "Y16 -BE", "RGB3", "AR24-BE"] {
            assert_eq!(code(written).map(letters), Some(written.into()));
        }
        assert_eq!(code("Y8"), Some(u32::from_le_bytes(*b"Y8  ")));
        assert_eq!(code("Y16-BE"), code("Y16 -BE"));
        assert_eq!(
            code("Y16 -BE"),
            Some(0x8000_0000 | u32::from_le_bytes(*b"Y16 "))
        );
        for wrong in ["", "YUYV2", "YUYV2-BE", "A\nB"] {
            assert_eq!(code(wrong).map(letters), None, "{wrong}");
        }
    }
}
