// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signals, and waiting that they can end.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::fs::OFlags;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::{flag, low_level};

pub use nocopy_launch::outlive_file_limit;

use crate::report::{reason, Fail};

/// What comes within this many milliseconds of the first signal is the same request to end: `timeout`,
/// terminals that hang up and systemd send two signals at once.
const ONE_REQUEST: u64 = 500;

/// The request to end, as the handlers of signals see it.
struct End {
    since: Instant,
    /// When the first signal came, in milliseconds of `since`, and in the low byte which; 0 before.
    first: AtomicU64,
}

impl End {
    /// The signal that came first.
    fn signal(&self) -> Option<i32> {
        let signal = self.first.load(Ordering::Relaxed) & 0xff;
        (signal != 0).then_some(signal as i32)
    }

    /// Has the handler of a signal note that it came, or end the process.
    #[allow(unsafe_code)]
    fn register(end: &Arc<End>, signal: i32) -> io::Result<()> {
        let end = end.clone();
        let come = move || {
            let now = end.since.elapsed().as_millis() as u64;
            let (relaxed, new) = (Ordering::Relaxed, now << 8 | signal as u64);
            if let Err(first) = end.first.compare_exchange(0, new, relaxed, relaxed) {
                if now.saturating_sub(first >> 8) >= ONE_REQUEST {
                    let _ = low_level::emulate_default_handler(signal);
                }
            }
        };
        // SAFETY: an atomic, `clock_gettime` and what ends the process as the signal does are all that the
        // handler uses; each may be called in one.
        unsafe { low_level::register(signal, come) }.map(drop)
    }
}

/// What arrived. The first SIGHUP, SIGINT or SIGTERM asks the command to end cleanly. Another one ends it,
/// unless it comes with the first.
pub struct Signals {
    end: Arc<End>,
    asked: Vec<(i32, Arc<AtomicBool>)>,
    wake: UnixStream,
}

impl Signals {
    /// Starts to listen, also to `others`, which do not end the command.
    ///
    /// # Errors
    /// If the system has no descriptors left.
    pub fn listen(others: &[i32]) -> Result<Signals, Fail> {
        Signals::try_listen(others)
            .map_err(|e| Fail::Failed(format!("cannot listen to signals: {}", reason(&e))))
    }

    fn try_listen(others: &[i32]) -> io::Result<Signals> {
        let (wake, sender) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        sender.set_nonblocking(true)?;
        let mut signals = Signals {
            end: Arc::new(End {
                since: Instant::now(),
                first: AtomicU64::new(0),
            }),
            asked: Vec::new(),
            wake,
        };
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            // Under nohup, and SIGINT in the background of a script: that is to end nothing.
            if nocopy_launch::ignored(signal) {
                continue;
            }
            End::register(&signals.end, signal)?;
            low_level::pipe::register(signal, sender.try_clone()?)?;
        }
        for &signal in others {
            let asked = Arc::new(AtomicBool::new(false));
            flag::register(signal, asked.clone())?;
            low_level::pipe::register(signal, sender.try_clone()?)?;
            signals.asked.push((signal, asked));
        }
        Ok(signals)
    }

    /// The signal that asks to end, if one came.
    pub fn ended(&self) -> Option<i32> {
        self.end.signal()
    }

    /// As [`Signals::ended`], as the failure it is.
    ///
    /// # Errors
    /// [`Fail::Signal`].
    pub fn check(&self) -> Result<(), Fail> {
        self.ended().map_or(Ok(()), |s| Err(Fail::Signal(s)))
    }

    /// Returns true if one of the other signals came since the last call that asked for it.
    pub fn asked(&self, signal: i32) -> bool {
        self.asked.iter().any(|(number, asked)| {
            *number == signal
                && asked.load(Ordering::Relaxed)
                && asked.swap(false, Ordering::Relaxed)
        })
    }

    /// Opens a file, and waits for the other end of a FIFO, or for a device, until a signal asks to end. Writes to a
    /// FIFO or terminal that it has opened do not wait in the kernel; [`Signals::write`] does.
    ///
    /// # Errors
    /// [`Fail::Signal`]; within, those of `open(2)`.
    pub fn open(&self, options: &OpenOptions, path: &Path) -> Result<io::Result<File>, Fail> {
        let kind = std::fs::metadata(path).map(|about| about.file_type());
        let Some(kind) = kind.ok().filter(|k| k.is_fifo() || k.is_char_device()) else {
            return Ok(options.open(path));
        };
        // After a handler of ours the kernel begins the call anew, so a thread waits in it that is not
        // waited for.
        let begun = UnixStream::pair().and_then(|(ours, theirs)| {
            let (options, path) = (options.clone(), path.to_path_buf());
            let open = move || {
                let opened = options.open(path);
                drop(theirs);
                opened
            };
            Ok((ours, thread::Builder::new().spawn(open)?))
        });
        let Ok((done, opener)) = begun else {
            // With no room for a thread the wait is the kernel's.
            return Ok(options.open(path));
        };
        if let Err(error) = self.repeat(|| self.ready(done.as_fd(), false, None))? {
            return Ok(Err(error));
        }
        let opened = opener.join();
        let opened = opened.unwrap_or_else(|_| Err(io::ErrorKind::Other.into()));
        Ok(opened.and_then(|file| {
            let flags = rustix::fs::fcntl_getfl(&file)?;
            let reads = flags & OFlags::ACCMODE == OFlags::RDONLY;
            // Of other devices it is not known that they can be waited for.
            if !reads && (kind.is_fifo() || rustix::termios::isatty(&file)) {
                rustix::fs::fcntl_setfl(&file, flags | OFlags::NONBLOCK)?;
            }
            Ok(file)
        }))
    }

    /// Makes a call, and once more whenever a signal interrupts it that does not ask to end.
    ///
    /// # Errors
    /// [`Fail::Signal`]; within, those of the call.
    pub fn repeat<T>(
        &self,
        mut call: impl FnMut() -> io::Result<T>,
    ) -> Result<io::Result<T>, Fail> {
        loop {
            self.check()?;
            match call() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return Ok(result),
            }
        }
    }

    /// One read, once there is something.
    ///
    /// # Errors
    /// Those of [`Signals::ready`] and `read(2)`.
    pub fn read(&self, mut from: &File, buffer: &mut [u8]) -> io::Result<usize> {
        self.ready(from.as_fd(), false, None)?;
        from.read(buffer)
    }

    /// One write, which waits here where the kernel is not to.
    ///
    /// # Errors
    /// Those of [`Signals::ready`] and `write(2)`.
    pub fn write(&self, to: &mut (impl Write + AsFd), data: &[u8]) -> io::Result<usize> {
        loop {
            match to.write(data) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.ready(to.as_fd(), true, None)?;
                }
                result => return result,
            }
        }
    }

    /// Writes all of `data`, or until a signal asks to end.
    ///
    /// # Errors
    /// [`Fail::Signal`]; within, those of `write(2)`.
    pub fn write_all(
        &self,
        to: &mut (impl Write + AsFd),
        mut data: &[u8],
    ) -> Result<io::Result<()>, Fail> {
        while !data.is_empty() {
            match self.repeat(|| self.write(to, data))? {
                Ok(0) => return Ok(Err(io::ErrorKind::WriteZero.into())),
                Ok(n) => data = &data[n..],
                Err(error) => return Ok(Err(error)),
            }
        }
        Ok(Ok(()))
    }

    /// Waits until `fd` has something to read (or, `write`, takes something). What cannot be waited for is ready.
    ///
    /// # Errors
    /// Those of `poll(2)`; `Interrupted` by a signal; `TimedOut`.
    pub fn ready(&self, fd: BorrowedFd<'_>, write: bool, time: Option<Duration>) -> io::Result<()> {
        let events = if write { PollFlags::OUT } else { PollFlags::IN };
        let mut fds = [
            PollFd::from_borrowed_fd(fd, events),
            PollFd::from_borrowed_fd(self.wake.as_fd(), PollFlags::IN),
        ];
        let time = time.and_then(|t| Timespec::try_from(t).ok());
        match poll(&mut fds, time.as_ref()) {
            Ok(0) => Err(io::ErrorKind::TimedOut.into()),
            Ok(_) if !fds[0].revents().is_empty() => Ok(()),
            Ok(_) => {
                if self.ended().is_none() {
                    // The end of a command stays to be seen, anything else is seen once.
                    while matches!((&self.wake).read(&mut [0; 64]), Ok(1..)) {}
                }
                Err(io::ErrorKind::Interrupted.into())
            }
            Err(error) => Err(error.into()),
        }
    }
}
