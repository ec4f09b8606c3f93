// SPDX-License-Identifier: MIT OR Apache-2.0
//! Photos: frames that go to a file of their own as well.
//!
//! A write through the page cache may take longer than the camera's buffers last, when other programs
//! write much. So the thread that takes frames only copies one into memory that is there already, and
//! another thread writes it.

use std::fs::{remove_file, rename, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::thread;

use pdio_cli::report::{quoted, reason, Fail, Outcome};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::files::{is_alone, is_at};

/// Where a photo is until it is whole.
pub fn part_of(photo: &Path) -> PathBuf {
    let mut name = photo.as_os_str().to_os_string();
    name.push(".part");
    name.into()
}

/// A thread that writes photos, one at a time.
pub struct Photos {
    path: PathBuf,
    wanted: bool,
    taken: u64,
    failed: u64,
    /// Memory for one frame; none while a photo is being written from it.
    memory: Option<Vec<u8>>,
    begun: Sender<Vec<u8>>,
    ended: Receiver<(Vec<u8>, io::Result<()>)>,
}

impl Photos {
    /// Makes a thread and memory ready for photos of up to `frame_bytes`, which appear once they are synced if
    /// `sync` says so.
    ///
    /// # Errors
    /// If there is no memory, or no thread, or something that is no regular file has the name.
    pub fn to(path: &Path, frame_bytes: usize, sync: bool) -> Outcome<Photos> {
        // A rename would take the place of a device, or of the trigger.
        if std::fs::metadata(path).is_ok_and(|about| !about.is_file()) {
            return Err(Fail::Failed(format!(
                "{} exists and is not a regular file: name another for --photo",
                quoted(path)
            )));
        }
        // Where none can begin, that is to be known before the first is wanted.
        let part = part_of(path);
        begin(&part)
            .and_then(|_| remove_file(&part))
            .map_err(|error| {
                Fail::Failed(format!(
                    "cannot write photos to {}: {}",
                    quoted(path),
                    reason(&error)
                ))
            })?;
        let to = path.to_path_buf();
        Photos::by(path, frame_bytes, move |data| write(&to, data, sync))
    }

    fn by(
        path: &Path,
        frame_bytes: usize,
        write: impl Fn(&[u8]) -> io::Result<()> + Send + 'static,
    ) -> Outcome<Photos> {
        let failed = |why: String| Fail::Failed(format!("cannot take photos: {why}"));
        let mut memory = Vec::new();
        memory
            .try_reserve_exact(frame_bytes)
            .map_err(|_| failed(format!("no memory for {frame_bytes} bytes")))?;
        memory.resize(frame_bytes, 0);
        // The copy must not wait for memory that was swapped out since. Where the limit allows no
        // lock, it may.
        // SAFETY: memory of this vector, whose contents this does not change.
        let _ = unsafe { rustix::mm::mlock(memory.as_mut_ptr().cast(), memory.len()) };
        let (begun, orders) = channel::<Vec<u8>>();
        let (done, ended) = channel();
        let work = move || {
            for data in orders {
                let result = write(&data);
                if done.send((data, result)).is_err() {
                    break;
                }
            }
        };
        thread::Builder::new()
            .name("photo".into())
            .spawn(work)
            .map_err(|error| failed(reason(&error)))?;
        Ok(Photos {
            path: path.to_path_buf(),
            wanted: false,
            taken: 0,
            failed: 0,
            memory: Some(memory),
            begun,
            ended,
        })
    }

    /// Asks for a photo of the next frame, or of the first after the photo that is being written.
    pub fn ask(&mut self) {
        self.wanted = true;
    }

    /// Takes a photo of a frame, if one is wanted and none is being written. Returns a line to be said of
    /// an earlier photo that could not be written. Never waits.
    pub fn offer(&mut self, frame: &[u8]) -> Option<String> {
        let mut line = None;
        if self.memory.is_none() {
            if let Ok((memory, result)) = self.ended.try_recv() {
                line = self.end(result);
                self.memory = Some(memory);
            }
        }
        if self.wanted {
            if let Some(mut memory) = self.memory.take() {
                memory.clear();
                memory.extend_from_slice(frame);
                self.wanted = false;
                let _ = self.begun.send(memory);
            }
        }
        line
    }

    /// Waits for the photo that is being written. Returns how many were taken, how many that were asked for
    /// were not, and lines to be said.
    pub fn finish(mut self) -> (u64, u64, Vec<String>) {
        let mut lines = Vec::new();
        if self.memory.is_none() {
            let result = match self.ended.recv() {
                Ok((_, result)) => result,
                Err(_) => Err(io::Error::other("its thread has ended")),
            };
            lines.extend(self.end(result));
        }
        if self.wanted {
            self.failed += 1;
            let path = quoted(&self.path);
            lines.push(format!(
                "no frame came for the photo {path} that was asked for last"
            ));
        }
        (self.taken, self.failed, lines)
    }

    fn end(&mut self, result: io::Result<()>) -> Option<String> {
        match result {
            Ok(()) => {
                self.taken += 1;
                None
            }
            Err(error) => {
                self.failed += 1;
                let path = quoted(&self.path);
                Some(format!("cannot write the photo {path}: {}", reason(&error)))
            }
        }
    }
}

/// Makes the file that a photo begins in.
fn begin(part: &Path) -> io::Result<File> {
    // What a run before has left, but not what another program is writing. Whatever else has this name, a link or a
    // FIFO, is neither followed nor waited for.
    let quietly = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let others = || io::Error::other("another program takes photos there");
    // Who looks at the same moment waits for its lock until the new file has one.
    let left = rustix::fs::open(part, quietly, Mode::empty()).map(File::from);
    match &left {
        Ok(left) if !is_alone(left) || !is_at(left, part)? => return Err(others()),
        Err(Errno::NOENT) => {}
        _ => remove_file(part)?,
    }
    let mut options = File::options();
    let file = match options.write(true).create_new(true).open(part) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(others()),
        made => made?,
    };
    // Another may have taken it for one that was left, before it had its lock.
    match is_alone(&file) && is_at(&file, part)? {
        true => Ok(file),
        false => Err(others()),
    }
}

/// Writes a frame to a file, which is there whole or not at all.
fn write(path: &Path, data: &[u8], sync: bool) -> io::Result<()> {
    let part = part_of(path);
    let mut file = begin(&part)?;
    // Nobody else has the name until this is renamed.
    let lock = file.try_clone()?;
    let mut written = file.write_all(data);
    if sync {
        written = written.and_then(|()| file.sync_all());
    }
    // Some filesystems tell only now of what they have lost.
    let closed = pdio::close(file);
    let result = written.and(closed).and_then(|()| rename(&part, path));
    if result.is_err() {
        let _ = remove_file(&part);
    }
    drop(lock);
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    use crate::filter::refuse;

    const SOON: Duration = Duration::from_secs(60);

    /// Offers a frame until nothing is being written.
    fn settle(photos: &mut Photos, frame: &[u8]) -> Option<String> {
        let since = Instant::now();
        loop {
            let line = photos.offer(frame);
            if line.is_some() || photos.memory.is_some() {
                return line;
            }
            assert!(since.elapsed() < SOON);
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_disk_that_takes_no_photo_holds_up_no_frame() {
        let (go, may) = channel::<()>();
        let (tell, written) = channel();
        let mut photos = Photos::by(Path::new("photo"), 4, move |data| {
            tell.send(data.to_vec()).unwrap();
            may.recv().map_err(io::Error::other)
        })
        .unwrap();
        assert_eq!(photos.offer(b"zero"), None);
        photos.ask();
        assert_eq!(photos.offer(b"one"), None);
        assert_eq!(written.recv_timeout(SOON).unwrap(), b"one");
        // Asked for twice meanwhile: one more, of the first frame after the photo.
        for frame in ["two", "three"] {
            photos.ask();
            assert_eq!(photos.offer(frame.as_bytes()), None);
        }
        assert!(written.try_recv().is_err());
        go.send(()).unwrap();
        let since = Instant::now();
        let next = loop {
            assert_eq!(photos.offer(b"a long frame"), None);
            if let Ok(next) = written.try_recv() {
                break next;
            }
            assert!(since.elapsed() < SOON);
            thread::sleep(Duration::from_millis(1));
        };
        assert_eq!(next, b"a long frame");
        // The end of the recording waits for it.
        let later = thread::spawn(move || {
            thread::sleep(Duration::from_millis(100));
            go.send(()).unwrap();
        });
        assert_eq!(photos.finish(), (2, 0, Vec::new()));
        later.join().unwrap();
    }

    #[test]
    fn a_photo_is_whole_and_a_failure_is_one_line() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("photo");
        let mut photos = Photos::to(&path, 4, true).unwrap();
        photos.ask();
        photos.offer(b"frame");
        assert_eq!(settle(&mut photos, b"next"), None);
        assert_eq!(std::fs::read(&path).unwrap(), b"frame");
        // A directory in its way, and nothing but that is there afterwards.
        std::fs::create_dir(part_of(&path)).unwrap();
        photos.ask();
        photos.offer(b"second");
        let line = settle(&mut photos, b"next").unwrap();
        assert!(line.contains("cannot write the photo") && !line.contains('\n'));
        assert_eq!(std::fs::read(&path).unwrap(), b"frame");
        photos.ask();
        let (taken, failed, lines) = photos.finish();
        assert_eq!((taken, failed, lines.len()), (1, 2, 1));
        assert!(lines[0].starts_with("no frame came"), "{lines:?}");
    }

    #[test]
    fn a_photo_takes_the_place_of_nothing_but_files() {
        let home = tempfile::tempdir().unwrap();
        let [fifo, link, file] = ["fifo", "link", "file"].map(|name| home.path().join(name));
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RWXU).unwrap();
        std::os::unix::fs::symlink("/dev/null", &link).unwrap();
        for path in [Path::new("/dev/null"), home.path(), &fifo, &link] {
            let said = format!("{:?}", Photos::to(path, 4, false).err());
            assert!(said.contains("not a regular file"), "{said}");
        }
        std::fs::write(&file, "the photo before").unwrap();
        assert!(Photos::to(&file, 4, false).is_ok());
    }

    #[test]
    fn a_photo_that_is_lost_when_it_is_closed_does_not_appear() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("photo");
        let photo = path.clone();
        // The filter ends with its thread.
        let work = move || {
            let refused = refuse(libc::SYS_close, libc::EIO);
            refused.ok().map(|()| write(&photo, b"frame", false))
        };
        let Some(result) = thread::spawn(work).join().unwrap() else {
            return eprintln!("skipped: no filters of system calls");
        };
        assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::EIO));
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
    }

    #[test]
    fn two_programs_do_not_write_one_photo() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("photo");
        let mut other = begin(&part_of(&path)).unwrap();
        other.write_all(b"half of").unwrap();
        let said = write(&path, b"mine", false).unwrap_err().to_string();
        assert!(
            said.contains("another program takes photos there"),
            "{said}"
        );
        other.write_all(b" it").unwrap();
        assert_eq!(std::fs::read(part_of(&path)).unwrap(), b"half of it");
        drop(other);
        write(&path, b"mine", false).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"mine");
    }

    #[test]
    fn of_two_photos_at_once_each_is_whole_or_fails() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("photo");
        let takes = |byte: u8| {
            let path = &path;
            move || {
                let data = vec![byte; 1 << 16];
                for _ in 0..200 {
                    match write(path, &data, false) {
                        Ok(()) => {
                            let photo = std::fs::read(path).unwrap();
                            assert!(photo.len() == data.len());
                            assert!(photo.iter().all(|b| *b == photo[0]));
                        }
                        Err(error) => assert!(error.to_string().contains("another program")),
                    }
                }
            }
        };
        thread::scope(|scope| {
            scope.spawn(takes(1));
            scope.spawn(takes(2));
        });
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_was_planted_where_a_photo_begins_is_not_written_to() {
        let home = tempfile::tempdir().unwrap();
        let (path, victim) = (home.path().join("photo"), home.path().join("victim"));
        let part = part_of(&path);
        std::fs::write(&victim, "kept").unwrap();
        std::os::unix::fs::symlink(&victim, &part).unwrap();
        write(&path, b"one", false).unwrap();
        std::fs::hard_link(&victim, &part).unwrap();
        write(&path, b"two", false).unwrap();
        assert_eq!(std::fs::read(&victim).unwrap(), b"kept");
        // Nobody reads from it: to open it would wait for ever.
        rustix::fs::mkfifoat(rustix::fs::CWD, &part, Mode::RWXU).unwrap();
        write(&path, b"three", false).unwrap();
        std::fs::write(&part, "left by a run before, which was killed").unwrap();
        write(&path, b"four", false).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"four");
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 2);
    }
}
