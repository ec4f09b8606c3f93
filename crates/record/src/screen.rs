// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is said while frames are taken: by a thread of its own. A terminal that is stopped (Ctrl-S), or a
//! pipe that nobody reads, takes nothing for as long as it likes, and frames do not wait.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError, Sender};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use pdio_cli::report::{reason, say, Fail, Outcome, Progress};

/// How often the progress line changes.
const STEP: Duration = Duration::from_millis(200);

#[derive(Default)]
struct Counts {
    bytes: AtomicU64,
    frames: AtomicU64,
    lost: AtomicU64,
}

/// Shows progress, and says lines. When dropped it waits until all lines have been said and the progress line is
/// gone: what is said after that has a line of its own.
pub struct Screen {
    counts: Arc<Counts>,
    /// These are there until it is dropped.
    lines: Option<Sender<String>>,
    thread: Option<JoinHandle<()>>,
}

impl Screen {
    /// Begins to show the progress of `what`, if that is wanted.
    ///
    /// # Errors
    /// If there is no thread.
    pub fn new(what: &str, wanted: bool) -> Outcome<Screen> {
        let what = what.to_owned();
        Screen::by(move |counts, lines| {
            show(counts, lines, &mut Shown(Progress::new(&what, 0, wanted)));
        })
        .map_err(|error| Fail::Failed(format!("cannot show progress: {}", reason(&error))))
    }

    fn by(work: impl FnOnce(&Counts, &Receiver<String>) + Send + 'static) -> io::Result<Screen> {
        let counts = Arc::new(Counts::default());
        let (lines, said) = channel();
        let theirs = counts.clone();
        let thread = thread::Builder::new()
            .name("screen".into())
            .spawn(move || work(&theirs, &said))?;
        Ok(Screen {
            counts,
            lines: Some(lines),
            thread: Some(thread),
        })
    }

    /// Counts a frame of so many bytes, and says how many there are and are lost by now. Never waits.
    pub fn count(&self, bytes: usize, frames: u64, lost: u64) {
        self.counts.bytes.fetch_add(bytes as u64, Relaxed);
        self.counts.frames.store(frames, Relaxed);
        self.counts.lost.store(lost, Relaxed);
    }

    /// Says a line, soon. Never waits.
    pub fn say(&self, line: &str) {
        if let Some(lines) = &self.lines {
            let _ = lines.send(line.to_owned());
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        drop(self.lines.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Where lines and progress go.
trait Surface {
    fn line(&mut self, line: &str);
    fn progress(&mut self, bytes: u64, text: &str);
}

struct Shown(Progress);

impl Surface for Shown {
    fn line(&mut self, line: &str) {
        self.0.aside(|| say(format_args!("nocopy-record: {line}")));
    }

    fn progress(&mut self, bytes: u64, text: &str) {
        self.0.add(bytes);
        self.0.name(text);
    }
}

fn show(counts: &Counts, lines: &Receiver<String>, surface: &mut impl Surface) {
    let mut shown = 0;
    loop {
        match lines.recv_timeout(STEP) {
            Ok(line) => surface.line(&line),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        let bytes = counts.bytes.load(Relaxed);
        if bytes > shown {
            let (frames, lost) = (counts.frames.load(Relaxed), counts.lost.load(Relaxed));
            surface.progress(bytes - shown, &format!("{frames} frames, {lost} lost"));
            shown = bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A terminal that takes something only when it may.
    struct Stopped(Receiver<()>, Sender<String>);

    impl Surface for Stopped {
        fn line(&mut self, line: &str) {
            self.0.recv().unwrap();
            self.1.send(line.to_owned()).unwrap();
        }

        fn progress(&mut self, bytes: u64, text: &str) {
            self.0.recv().unwrap();
            self.1.send(format!("{bytes}: {text}")).unwrap();
        }
    }

    #[test]
    fn a_terminal_that_is_stopped_holds_up_no_frame() {
        let (go, may) = channel();
        let (tell, taken) = channel();
        let screen = Screen::by(move |counts, lines| {
            show(counts, lines, &mut Stopped(may, tell));
        })
        .unwrap();
        // None of these returns if it waits for the terminal.
        screen.say("one");
        for n in 1..=1000 {
            screen.count(2, n, 3);
        }
        screen.say("two");
        assert!(taken.try_recv().is_err());
        for _ in 0..3 {
            go.send(()).unwrap();
        }
        drop(screen);
        let said: Vec<_> = taken.iter().collect();
        assert_eq!(said[0], "one");
        assert!(said.contains(&"two".to_owned()));
        assert!(
            said.contains(&"2000: 1000 frames, 3 lost".to_owned()),
            "{said:?}"
        );
        assert_eq!(said.len(), 3);
    }
}
