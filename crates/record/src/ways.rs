// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ways that a frame can take from the camera to the file, and which of them this machine has.
//!
//! The best has no copy: one memory that the camera fills and direct I/O takes. Whose memory that
//! can be depends on the camera's driver, the memory that is free and the file; nothing says so
//! beforehand, so each way is tried.

use std::fmt;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use pdio::{Alignment, Durability, OpenOptions, Strategy};
use pdio_cli::report::{quoted, reason, Fail, Outcome};
use pdio_cli::signals::outlive_file_limit;

use crate::camera::{busy, Arrival, Camera, Memory};
use crate::files::resolved;
use crate::memory::{heaps, pages, sync, Mapping, PageSize, Shared, Source, HEAPS};

/// Maximum memory of the writer's ring, in bytes: what pdio grants a process's only stream at most.
/// With less than 80 times as much memory available it grants less. A growing file is written in
/// requests of half the ring, so a larger one would also wait longer for each.
pub const RING: usize = 16 << 20;

/// From camera to file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Way {
    /// No copy: the camera's own buffers, by direct I/O
    Mmap,
    /// No copy: memory of the program that the camera fills, by direct I/O
    Userptr,
    /// No copy: a memory file, of huge pages if there are, lent to the camera as a dma-buf
    Dmabuf,
    /// No copy: buffers of a gcma area's heap, each in one piece, lent to the camera
    Heap,
    /// One copy: into the writer's ring, from there by direct I/O
    Copy,
    /// One copy by the kernel: write() into the page cache or a pipe
    Buffered,
}

impl Way {
    /// All of them, the best first.
    ///
    /// The heap comes behind the memory file: in a huge page of that a frame is one page to pin, and
    /// ordinary pages leave the area to others.
    pub const ALL: [Way; 6] = [
        Way::Mmap,
        Way::Userptr,
        Way::Dmabuf,
        Way::Heap,
        Way::Copy,
        Way::Buffered,
    ];

    /// Returns true if the frame's own memory is written from.
    pub fn is_direct(self) -> bool {
        !matches!(self, Way::Copy | Way::Buffered)
    }

    /// How pdio is to write.
    pub fn options(self, durability: Durability) -> OpenOptions {
        let mut options = OpenOptions::new();
        options.durability(durability);
        match self {
            Way::Mmap | Way::Userptr | Way::Dmabuf | Way::Heap => {
                options.strategy(Strategy::Direct)
            }
            // A ring that a slow moment of the disk does not fill at once. Each call goes into it:
            // `Output::write` flushes for the stronger modes.
            Way::Copy => options
                .strategy(Strategy::Direct)
                .durability(Durability::Process)
                .memory_limit(RING)
                // One file begins while the one before ends.
                .in_turn(true),
            Way::Buffered => {
                // Each call goes straight to `write()`, so that pdio makes no copy first.
                if durability == Durability::Process {
                    options.durability(Durability::Safe);
                }
                options.strategy(Strategy::Buffered)
            }
        };
        options
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Way::Mmap => "mmap",
            Way::Userptr => "userptr",
            Way::Dmabuf => "dmabuf",
            Way::Heap => "heap",
            Way::Copy => "copy",
            Way::Buffered => "buffered",
        })
    }
}

/// Where frames are to go.
pub struct Place {
    /// A directory to try direct I/O in; none for a pipe.
    directory: Option<PathBuf>,
    /// What direct I/O asks for there, or why there is none.
    direct: Result<Alignment, String>,
}

impl Place {
    /// A pipe.
    pub fn pipe() -> Place {
        Place {
            directory: None,
            direct: Err("a pipe takes copies only".into()),
        }
    }

    /// The file at `path`, which need not be there.
    pub fn of(path: &Path) -> Place {
        // A link may lead to another disk.
        let file = resolved(path);
        let directory = file.parent().unwrap_or(Path::new("/")).to_path_buf();
        let found = pdio::explain(if path.exists() { path } else { &directory });
        let direct = match found {
            Ok(found) => found
                .alignment
                .ok_or_else(|| format!("{} does no direct I/O", found.filesystem)),
            Err(error) => Err(format!(
                "nothing is known of {}: {}",
                quoted(path),
                reason(&error)
            )),
        };
        Place {
            directory: Some(directory),
            direct,
        }
    }

    /// What there is to say about it.
    pub fn about(&self) -> String {
        match &self.direct {
            Ok(a) => format!(
                "direct I/O in multiples of {} bytes ({})",
                a.offset, a.source
            ),
            Err(why) => why.clone(),
        }
    }

    /// What direct I/O asks lengths and offsets to be multiples of, where there is any.
    pub fn block(&self) -> Option<u64> {
        self.direct.as_ref().ok().map(|align| align.offset.into())
    }

    /// Returns true if frames can be written from where they are.
    fn takes(&self, camera: &Camera) -> Result<(), String> {
        let align = self.direct.as_ref().map_err(String::clone)?;
        if camera.compressed {
            return Err(format!("frames of {} differ in length", camera.format));
        }
        match camera.frame_bytes.is_multiple_of(align.offset as usize) {
            true => Ok(()),
            false => Err(format!(
                "a frame of {} bytes is no multiple of the {} that direct I/O asks for",
                camera.frame_bytes, align.offset
            )),
        }
    }

    /// Writes the beginning of a buffer to a file without a name.
    fn accepts(&self, data: &[u8], way: Way) -> Result<(), String> {
        let (Some(directory), Ok(align)) = (&self.directory, &self.direct) else {
            return Err(self.about());
        };
        let Ok(file) = pdio::nameless(directory) else {
            // A directory in which nothing new can be made, and FILE is there: the first frame will tell.
            return Ok(());
        };
        let some = &data[..data.len().min(align.offset as usize)];
        let result = way
            .options(Durability::Safe)
            .writer_from(file)
            .and_then(|mut writer| writer.write_uncopied(some));
        match result {
            Ok(true) => Ok(()),
            Ok(false) => Err("it does not begin where direct I/O could".into()),
            Err(error) if is_full(&error) => Ok(()),
            Err(error) => {
                let help = match (way, error.raw_os_error()) {
                    (Way::Heap, Some(libc::EFAULT)) => ": its area is plain CMA, not gcma's",
                    _ => "",
                };
                Err(format!(
                    "the disk cannot take it from there ({}){help}",
                    reason(&error)
                ))
            }
        }
    }
}

/// A disk that is full says nothing of the memory, and an old recording may make room: the first frame will tell.
fn is_full(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT))
}

/// What keeps the memory of buffers.
enum Owner {
    Camera(Vec<Mapping>),
    Process(Mapping, usize),
    Shared(Shared),
}

/// A camera with its buffers.
pub struct Stream<'a> {
    /// The camera.
    pub camera: &'a Camera,
    memory: Memory,
    owner: Owner,
    /// How many there are.
    pub count: u32,
}

impl<'a> Stream<'a> {
    fn new(camera: &'a Camera, memory: Memory, owner: Owner, count: u32) -> Stream<'a> {
        Stream {
            camera,
            memory,
            owner,
            count,
        }
    }

    /// The camera's own buffers.
    fn mmap(camera: &'a Camera, count: u32) -> io::Result<Stream<'a>> {
        let count = camera.request(Memory::Mmap, count)?;
        let mut stream = Stream::new(camera, Memory::Mmap, Owner::Camera(Vec::new()), count);
        let mappings = (0..count)
            .map(|i| camera.map(i))
            .collect::<io::Result<_>>()?;
        stream.owner = Owner::Camera(mappings);
        Ok(stream)
    }

    /// Memory of this process.
    fn userptr(camera: &'a Camera, count: u32) -> io::Result<Stream<'a>> {
        let count = camera.request(Memory::UserPtr, count)?;
        let (mapping, stride) = pages(count as usize, camera.frame_bytes)?;
        let owner = Owner::Process(mapping, stride);
        Ok(Stream::new(camera, Memory::UserPtr, owner, count))
    }

    /// Memory of this process that is a dma-buf as well.
    fn dmabuf(camera: &'a Camera, count: u32, from: &Source) -> io::Result<Stream<'a>> {
        // More than were asked for, if the driver begins with no fewer.
        let count = camera.request(Memory::DmaBuf, count)?;
        let shared = Shared::new(from, count as usize, camera.frame_bytes)?;
        let owner = Owner::Shared(shared);
        Ok(Stream::new(camera, Memory::DmaBuf, owner, count))
    }

    /// The memory of a buffer.
    fn place(&self, index: u32) -> (*mut u8, usize) {
        let i = index as usize;
        match &self.owner {
            Owner::Camera(mappings) => (mappings[i].at(), mappings[i].len()),
            Owner::Process(all, stride) => (all.at().wrapping_add(i * stride), *stride),
            Owner::Shared(shared) => shared.place(i),
        }
    }

    fn dmabuf_of(&self, index: u32) -> Option<&std::os::fd::OwnedFd> {
        match &self.owner {
            Owner::Shared(shared) => Some(shared.dmabuf(index as usize)),
            _ => None,
        }
    }

    fn lend(&self, index: u32) -> io::Result<()> {
        let fd = self.dmabuf_of(index).map(AsRawFd::as_raw_fd);
        // SAFETY: the memory is this stream's, which ends the camera's use of it when dropped; it
        // is looked at through an `Arrival` only, and that is given up for this.
        unsafe { self.camera.lend(self.memory, index, self.place(index), fd) }
    }

    /// Lends all buffers to the camera.
    fn lend_all(&self) -> io::Result<()> {
        (0..self.count).try_for_each(|index| self.lend(index))
    }

    /// Lets frames come.
    ///
    /// # Errors
    /// Those of `VIDIOC_STREAMON`.
    pub fn start(&self) -> io::Result<()> {
        self.camera.start()
    }

    /// Takes the next frame; `None` if there is none yet.
    ///
    /// # Errors
    /// Those of `VIDIOC_DQBUF`.
    pub fn take(&self) -> io::Result<Option<Arrival>> {
        let arrival = self.camera.take(self.memory)?;
        if let Some(dmabuf) = arrival.as_ref().and_then(|a| self.dmabuf_of(a.index)) {
            sync(dmabuf, false);
        }
        Ok(arrival)
    }

    /// The bytes of a frame.
    pub fn bytes<'f>(&'f self, arrival: &'f Arrival) -> &'f [u8] {
        let (at, len) = self.place(arrival.index);
        // SAFETY: the memory is this stream's, and while there is an `Arrival` for it, it is not
        // the camera's; the slice does not outlive it.
        let all = unsafe { std::slice::from_raw_parts(at, len) };
        let begin = arrival.begin.min(len);
        &all[begin..(begin + arrival.len).min(len)]
    }

    /// Gives the buffer of a frame back to the camera.
    ///
    /// # Errors
    /// Those of `VIDIOC_QBUF`.
    pub fn give_back(&self, arrival: Arrival) -> io::Result<()> {
        if let Some(dmabuf) = self.dmabuf_of(arrival.index) {
            sync(dmabuf, true);
        }
        self.lend(arrival.index)
    }
}

impl Drop for Stream<'_> {
    fn drop(&mut self) {
        self.camera.stop();
        // While they are mapped, older kernels let none of its own buffers go.
        if let Owner::Camera(mappings) = &mut self.owner {
            mappings.clear();
        }
        let _ = self.camera.request(self.memory, 0);
    }
}

/// What came of trying a way.
pub type Tried = (Way, Result<String, String>);

/// Why a way cannot be taken.
enum Refusal {
    /// The next may do.
    Way(String),
    /// None will.
    Camera(Fail),
}

/// What there is to choose from.
#[derive(Clone, Copy, Debug)]
pub struct Choice<'c> {
    /// This way and no other.
    pub way: Option<Way>,
    /// How many buffers.
    pub count: u32,
    /// This heap and no other.
    pub heap: Option<&'c str>,
}

/// Tries the ways, the best first, or the one that is wanted. Returns the way to take, and what was
/// tried.
///
/// # Errors
/// If there is none, or another program has the camera.
pub fn choose<'a>(
    camera: &'a Camera,
    place: &Place,
    choice: Choice<'_>,
) -> Outcome<(Way, Stream<'a>, Vec<Tried>)> {
    // The first to write.
    outlive_file_limit();
    let mut tried: Vec<Tried> = Vec::new();
    let wanted = choice.way;
    for way in Way::ALL {
        if wanted.is_some_and(|wanted| wanted != way) {
            continue;
        }
        match attempt(camera, place, way, choice) {
            Ok((stream, how)) => {
                tried.push((way, Ok(how)));
                return Ok((way, stream, tried));
            }
            Err(Refusal::Way(why)) => tried.push((way, Err(why))),
            Err(Refusal::Camera(fail)) => return Err(fail),
        }
    }
    let (way, why) = match tried.pop() {
        Some((way, Err(why))) => (way, why),
        _ => (Way::Buffered, String::new()),
    };
    Err(Fail::Failed(match wanted {
        Some(_) => format!(
            "cannot go the way '{way}' from {}: {why}",
            quoted(camera.path())
        ),
        None => format!("cannot record from {}: {why}", quoted(camera.path())),
    }))
}

fn attempt<'a>(
    camera: &'a Camera,
    place: &Place,
    way: Way,
    choice: Choice<'_>,
) -> Result<(Stream<'a>, String), Refusal> {
    let count = choice.count;
    let failed = |error: &io::Error| match error.raw_os_error() {
        Some(libc::EBUSY) => Refusal::Camera(busy(camera.path())),
        Some(libc::ENODEV) => Refusal::Camera(Fail::Failed(format!(
            "the camera at {} is gone",
            quoted(camera.path())
        ))),
        Some(libc::ENOMEM) => Refusal::Way(format!(
            "no memory for {count} buffers of {} bytes (fewer --buffers may do)",
            camera.frame_bytes
        )),
        _ => Refusal::Way(format!("the camera does not do it ({})", reason(error))),
    };
    match way {
        Way::Mmap | Way::Userptr | Way::Dmabuf | Way::Heap => {
            place.takes(camera).map_err(Refusal::Way)?
        }
        Way::Copy => {
            if let Err(why) = &place.direct {
                return Err(Refusal::Way(why.clone()));
            }
        }
        Way::Buffered => {}
    }
    let ready = |stream: Stream<'a>| {
        if way.is_direct() {
            let (at, len) = stream.place(0);
            // SAFETY: the memory is the stream's, and not lent to the camera yet.
            let data = unsafe { std::slice::from_raw_parts(at, len) };
            place.accepts(data, way).map_err(Refusal::Way)?;
        }
        stream.lend_all().map_err(|e| failed(&e))?;
        Ok(stream)
    };
    let sources: Vec<Source> = match way {
        Way::Dmabuf => {
            let sizes = PageSize::all(camera.frame_bytes);
            sizes.into_iter().map(Source::Pages).collect()
        }
        Way::Heap => {
            let names = choice.heap.map_or_else(heaps, |name| vec![name.into()]);
            names.into_iter().map(Source::Heap).collect()
        }
        _ => {
            let stream = match way {
                Way::Userptr => Stream::userptr(camera, count),
                _ => Stream::mmap(camera, count),
            };
            let stream = ready(stream.map_err(|e| failed(&e))?)?;
            let how = format!("{} buffers", stream.count);
            return Ok((stream, how));
        }
    };
    // A camera that takes none says so once, whatever they are made of.
    camera
        .request(Memory::DmaBuf, 0)
        .map_err(|error| failed(&error))?;
    let mut why = Vec::new();
    for source in &sources {
        let stream = Stream::dmabuf(camera, count, source)
            .map_err(|error| match error.raw_os_error() {
                Some(libc::ENOMEM) => Refusal::Way(match source {
                    Source::Pages(_) => "none is free".into(),
                    Source::Heap(_) => format!("no room for {count} buffers"),
                }),
                Some(libc::EBUSY | libc::ENODEV) => failed(&error),
                _ => Refusal::Way(reason(&error)),
            })
            .and_then(ready);
        match stream {
            Ok(stream) => {
                let how = format!("{} buffers in {source}", stream.count);
                return Ok((stream, how));
            }
            Err(Refusal::Way(text)) => why.push(format!("{source}: {text}")),
            Err(refusal) => return Err(refusal),
        }
    }
    match why.is_empty() {
        true => Err(Refusal::Way(format!("there is no heap in {HEAPS}"))),
        false => Err(Refusal::Way(why.join("; "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_a_link_is_where_it_leads() {
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        let [link, file] = ["link", "there/out"].map(|name| home.path().join(name));
        std::fs::create_dir(home.path().join("there")).unwrap();
        std::os::unix::fs::symlink("there/out", &link).unwrap();
        for there in [false, true] {
            if there {
                std::fs::write(&file, "").unwrap();
            }
            for path in [&link, &file] {
                let wanted = file.parent().unwrap().canonicalize().unwrap();
                assert_eq!(Place::of(path).directory, Some(wanted));
            }
        }
    }
}
