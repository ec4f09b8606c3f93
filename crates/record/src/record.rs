// SPDX-License-Identifier: MIT OR Apache-2.0
//! The recording: frames come, wait for the trigger if there is one, and are written.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pdio_cli::report::{quoted, reason, Context, Fail, Outcome};
use pdio_cli::signals::Signals;
use rustix::time::{clock_gettime, ClockId};
use signal_hook::consts::{SIGUSR1, SIGUSR2};

use crate::camera::{Arrival, Camera};
use crate::frame::Frame;
use crate::output::Output;
use crate::photo::Photos;
use crate::preroll::{self, PreRoll};
use crate::screen::Screen;
use crate::ways::Stream;

/// When to begin and to end.
#[derive(Clone, Debug)]
pub struct Plan {
    /// End after so many frames.
    pub frames: Option<u64>,
    /// End after so much time.
    pub time: Option<Duration>,
    /// Wait for a trigger, and begin so long before.
    pub pre_roll: Option<Duration>,
    /// A FIFO that triggers, beside the signal.
    pub trigger: Option<PathBuf>,
    /// Give up when no whole frame comes for so long.
    pub timeout: Duration,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Frames that were with the kernel, or in the writer's ring, later than two frame times after they were taken.
    pub late: u64,
    /// The longest that it took.
    pub worst: Duration,
    /// Bytes copied into the memory before the trigger.
    pub kept: u64,
    /// When the trigger came, and the processor time that the program had taken by then.
    pub triggered: Option<(Instant, Duration)>,
}

/// While frames from before the trigger are written, new ones may take this much memory more.
const BACKLOG: usize = 64 << 20;

/// What the recording is doing.
#[derive(Debug, PartialEq, Eq)]
enum State {
    /// Keeping the last seconds.
    Waiting,
    /// Writing what is kept, while more comes.
    CatchingUp,
    /// Writing frames as they come.
    Recording,
}

/// How long a frame may be on its way to the camera's queue. It bounds what a camera whose clock is slow can add to the
/// time before the trigger.
const ON_ITS_WAY: Duration = Duration::from_secs(60);

/// When frames were taken, as far as cameras can be believed.
#[derive(Default)]
struct Clock {
    /// What the camera said of the last frame.
    said: Duration,
    /// When its queue was empty: however long a disk is busy, whatever comes out of it now was not in it then.
    empty: Duration,
}

impl Clock {
    /// When a frame was taken that came at `now`, both by the system's monotonic clock. A time that did not go
    /// on, or is in the future or long ago, is not true: then it is when the frame came.
    fn taken(&mut self, said: Duration, monotonic: bool, now: Duration) -> Duration {
        let before = std::mem::replace(&mut self.said, said);
        let on_its_way = self.empty.saturating_sub(said);
        let possible = before < said && said <= now && on_its_way <= ON_ITS_WAY;
        match monotonic && possible {
            true => said,
            false => now,
        }
    }
}

/// The system's monotonic clock.
fn monotonic() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// The processor time that the program has taken.
pub fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// How much of a plan is left.
struct Quota<'a> {
    plan: &'a Plan,
    /// How many frames the plan has had, and when the first was taken.
    counted: u64,
    first: Option<Duration>,
    /// The plan has no room for another frame.
    done: bool,
}

impl<'a> Quota<'a> {
    fn of(plan: &'a Plan) -> Quota<'a> {
        Quota {
            plan,
            counted: 0,
            first: None,
            done: false,
        }
    }

    /// Counts a frame; false if the plan has no room for it.
    fn takes(&mut self, frame: &Frame) -> bool {
        let first = *self.first.get_or_insert(frame.taken);
        let time = frame.taken.saturating_sub(first);
        let full = |counted| self.plan.frames.is_some_and(|most| counted >= most);
        if full(self.counted) || self.plan.time.is_some_and(|most| time >= most) {
            self.done = true;
            return false;
        }
        self.counted += u64::from(!frame.damaged);
        // Not with the next frame, which may be long in coming.
        self.done = full(self.counted);
        true
    }
}

/// A trigger from outside.
pub struct Trigger(Option<File>);

impl Trigger {
    /// Makes the FIFO if it is not there, and opens it.
    ///
    /// # Errors
    /// If something else is there, or it cannot be.
    pub fn open(path: Option<&Path>) -> Outcome<Trigger> {
        let Some(path) = path else {
            return Ok(Trigger(None));
        };
        let mode = rustix::fs::Mode::from_raw_mode(0o666);
        if let Err(error) = rustix::fs::mkfifoat(rustix::fs::CWD, path, mode) {
            if error != rustix::io::Errno::EXIST {
                return Err(io::Error::from(error)).context("make the FIFO", path);
            }
        }
        // Anything else would trigger by what is in it, or never.
        if !std::fs::metadata(path)
            .context("open", path)?
            .file_type()
            .is_fifo()
        {
            return Err(Fail::Failed(format!(
                "{} exists and is not a FIFO: name another for --trigger",
                quoted(path)
            )));
        }
        // For writing as well: then it does not end when somebody who wrote to it closes it.
        let file = File::options()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(path)
            .context("open", path)?;
        Ok(Trigger(Some(file)))
    }

    fn came(&mut self) -> bool {
        match &mut self.0 {
            Some(fifo) => matches!(fifo.read(&mut [0; 64]), Ok(1..)),
            None => false,
        }
    }
}

/// What a failure of the camera is.
fn gone(camera: &Camera, error: &io::Error) -> Fail {
    let name = quoted(camera.path());
    Fail::Failed(match error.raw_os_error() {
        Some(libc::ENODEV) => format!("the camera at {name} is gone"),
        _ => format!("cannot take a frame from {name}: {}", reason(error)),
    })
}

/// The recording of a camera.
pub struct Recording<'a> {
    plan: &'a Plan,
    signals: &'a Signals,
    output: &'a mut Output,
    photos: Option<&'a mut Photos>,
    screen: &'a Screen,
    trigger: Trigger,
    state: State,
    kept: PreRoll,
    /// Maximum bytes that may be kept before the trigger.
    most: usize,
    /// Maximum bytes that may wait while they are written.
    limit: usize,
    quota: Quota<'a>,
    clock: Clock,
    /// The output was emptied for what comes.
    begun: bool,
    /// The output has failed: nothing more can follow what is there.
    broken: bool,
    /// Signals that came and asked for nothing.
    idle: Vec<&'static str>,
    tally: Tally,
}

/// The memory that frames from before the trigger may take.
fn room() -> usize {
    let bytes = pdio::available_memory().unwrap_or(u64::MAX);
    usize::try_from(bytes)
        .unwrap_or(usize::MAX)
        .saturating_sub(BACKLOG)
}

/// Wants memory for what a camera gives in the time before the trigger, if that can be told. Returns what there
/// is, in bytes.
///
/// # Errors
/// If there is less.
pub fn want_room(plan: &Plan, camera: &Camera) -> Outcome<usize> {
    let room = room();
    let (Some(span), Some(interval)) = (plan.pre_roll, camera.interval) else {
        return Ok(room);
    };
    // From the oldest to the newest, and one more until the oldest is forgotten.
    let frames = span.as_secs_f64() / interval.as_secs_f64() + 2.0;
    let bytes = frames * (camera.frame_bytes + preroll::ALIGNMENT) as f64;
    // Frames that are compressed are smaller than they may be.
    if camera.compressed || bytes <= room as f64 {
        return Ok(room);
    }
    Err(Fail::Failed(format!(
        "a pre-roll of {} s takes {:.1} GB of memory, and {:.1} are there: ask for a shorter one",
        span.as_secs_f64(),
        bytes / 1e9,
        room as f64 / 1e9
    )))
}

/// Starts a camera.
///
/// # Errors
/// If it does not.
pub fn start(stream: &Stream<'_>) -> Outcome {
    let camera = stream.camera.path();
    stream.start().map_err(|error| match error.raw_os_error() {
        // What the driver of USB cameras says, and no disk is meant.
        Some(libc::ENOSPC) => Fail::Failed(format!(
            "cannot start {}: its bus has no room for so many bytes a second: choose a smaller \
             --size or --rate, or another port",
            quoted(camera)
        )),
        Some(libc::EPIPE | libc::ENOLINK) => Fail::Failed(format!(
            "cannot start {}: its media pipeline is not set up for this format: see media-ctl",
            quoted(camera)
        )),
        _ => Fail::Failed(format!(
            "cannot start {}: {}",
            quoted(camera),
            reason(&error)
        )),
    })
}

/// Leaves out what a camera has taken by now. What goes wrong is met again by the recording.
pub fn skip(stream: &Stream<'_>) {
    for _ in 0..stream.count {
        let Ok(Some(arrival)) = stream.take() else {
            return;
        };
        let _ = stream.give_back(arrival);
    }
}

/// Listens to all signals that a plan may need. One that this plan has no use for would otherwise end the
/// program.
pub fn signals() -> Outcome<Signals> {
    Signals::listen(&[SIGUSR1, SIGUSR2])
}

impl<'a> Recording<'a> {
    /// Makes everything ready. Frames from before the trigger have `room` bytes.
    pub fn new(
        plan: &'a Plan,
        signals: &'a Signals,
        output: &'a mut Output,
        photos: Option<&'a mut Photos>,
        trigger: Trigger,
        room: usize,
        screen: &'a Screen,
    ) -> Recording<'a> {
        Recording {
            trigger,
            state: match plan.pre_roll {
                Some(_) => State::Waiting,
                None => State::Recording,
            },
            plan,
            signals,
            output,
            photos,
            screen,
            kept: PreRoll::default(),
            most: room,
            limit: 0,
            quota: Quota::of(plan),
            clock: Clock {
                empty: monotonic(),
                ..Clock::default()
            },
            begun: plan.pre_roll.is_none(),
            broken: false,
            idle: Vec::new(),
            tally: Tally::default(),
        }
    }

    /// Writes what is still in memory when the recording has ended so. The camera is not needed for it.
    pub fn finish(mut self, mut outcome: Outcome) -> (Tally, Outcome) {
        // What came together with the end was not asked for yet.
        self.listen();
        // What came before the end is part of it, whatever the end was.
        while self.state == State::CatchingUp && !self.broken {
            if let Err(fail) = self.write_kept() {
                outcome = Err(fail);
            }
        }
        (self.tally, outcome)
    }

    /// Records from a camera that was started until the plan, a signal or a failure ends it.
    ///
    /// # Errors
    /// The signal or the failure.
    pub fn run(&mut self, stream: &Stream<'_>) -> Outcome {
        let camera = stream.camera;
        let mut since = Instant::now();
        while !self.quota.done {
            if self.signals.ended().is_some() {
                return self.rest(stream);
            }
            self.listen();
            let mut late = false;
            if self.state != State::CatchingUp {
                let rest = self.plan.timeout.saturating_sub(since.elapsed());
                match self.signals.ready(camera.as_fd(), false, Some(rest)) {
                    // What is said to be ready need not be: it may come too late as well.
                    Ok(()) => late = rest.is_zero(),
                    Err(error) => match error.kind() {
                        ErrorKind::Interrupted => continue,
                        ErrorKind::TimedOut => return Err(self.silent(camera)),
                        _ => return Err(Fail::Failed(format!("cannot wait: {}", reason(&error)))),
                    },
                }
            }
            // All that came while a frame was written. With too much in memory the disk comes first; the camera counts
            // what it drops.
            while self.has_room() && !self.quota.done && self.signals.ended().is_none() {
                let Some(arrival) = stream.take().map_err(|e| gone(camera, &e))? else {
                    self.clock.empty = monotonic();
                    if late {
                        return Err(self.silent(camera));
                    }
                    break;
                };
                let (damaged, begun) = (arrival.damaged, Instant::now());
                self.frame(stream, arrival)?;
                // What it waited for the disk is no silence of the camera.
                since += begun.elapsed();
                if !damaged {
                    (since, late) = (Instant::now(), false);
                } else if !self.quota.done && since.elapsed() >= self.plan.timeout {
                    return Err(self.silent(camera));
                }
            }
            if self.state == State::CatchingUp {
                self.write_kept()?;
                since = Instant::now();
            }
        }
        Ok(())
    }

    /// A signal asks for the end. What the camera has taken by now waits in its buffers while the disk is busy, and is
    /// part of the recording. None of them is given back any more, so there is an end.
    fn rest(&mut self, stream: &Stream<'_>) -> Outcome {
        // What becomes of the camera now is no failure of the recording.
        while let Ok(Some(arrival)) = stream.take() {
            self.frame(stream, arrival)?;
            if self.quota.done {
                return Ok(());
            }
        }
        self.signals.check()
    }

    fn silent(&self, camera: &Camera) -> Fail {
        Fail::Failed(format!(
            "no whole frame came from {} for {} s",
            quoted(camera.path()),
            self.plan.timeout.as_secs_f64()
        ))
    }

    fn has_room(&self) -> bool {
        self.state != State::CatchingUp || self.kept.memory() < self.limit
    }

    /// Asks for signals and the FIFO.
    fn listen(&mut self) {
        if self.signals.asked(SIGUSR2) {
            match &mut self.photos {
                Some(photos) => photos.ask(),
                None => self.without_use("SIGUSR2", "--photo"),
            }
        }
        let rang = self.signals.asked(SIGUSR1);
        if rang && self.plan.pre_roll.is_none() {
            self.without_use("SIGUSR1", "--pre-roll");
        }
        if (rang | self.trigger.came()) && self.state == State::Waiting {
            self.tally.triggered = Some((Instant::now(), processor_time()));
            self.tally.kept = self.kept.bytes() as u64;
            self.limit = self.kept.memory() + BACKLOG;
            self.state = State::CatchingUp;
        }
    }

    /// Says once that a signal does nothing without an option.
    fn without_use(&mut self, signal: &'static str, option: &str) {
        if !self.idle.contains(&signal) {
            self.idle.push(signal);
            self.say(&format!("{signal} is ignored: there is no {option}"));
        }
    }

    /// Takes a frame and gives its buffer back.
    fn frame(&mut self, stream: &Stream<'_>, arrival: Arrival) -> Outcome {
        let camera = stream.camera;
        let taken = self
            .clock
            .taken(arrival.time, arrival.monotonic, monotonic());
        let data = stream.bytes(&arrival);
        let data = if arrival.damaged { &[] } else { data };
        let frame = Frame {
            sequence: arrival.sequence,
            time: arrival.time,
            monotonic: arrival.monotonic,
            taken,
            len: data.len(),
            damaged: arrival.damaged,
        };
        self.listen();
        if self.state == State::Waiting || self.quota.takes(&frame) {
            self.keep_or_write(&frame, data, camera.interval)?;
        }
        if self.quota.done || self.signals.ended().is_some() {
            // What becomes of the camera now is no failure of the recording.
            return Ok(());
        }
        stream.give_back(arrival).map_err(|e| gone(camera, &e))
    }

    fn keep_or_write(&mut self, frame: &Frame, data: &[u8], interval: Option<Duration>) -> Outcome {
        if let (Some(photos), false) = (&mut self.photos, frame.damaged) {
            // The recording is worth more.
            if let Some(line) = photos.offer(data) {
                self.say(&line);
            }
        }
        if self.state != State::Recording {
            // Linux promises memory that it has not, and then kills somebody.
            let full = self.state == State::Waiting && self.kept.memory() + data.len() > self.most;
            if full || self.kept.push(frame.clone(), data).is_err() {
                return Err(Fail::Failed(format!(
                    "no memory for more than {} bytes before the trigger: ask for a shorter --pre-roll",
                    self.kept.bytes()
                )));
            }
            if let (State::Waiting, Some(span)) = (&self.state, self.plan.pre_roll) {
                self.kept.trim(span);
            } else {
                self.tally.kept += frame.len as u64;
            }
            return Ok(());
        }
        let result = self.output.write(frame, data);
        self.written(frame.len, result)?;
        // Of a damaged frame the kernel gets nothing, and a time that is not the camera's own says nothing.
        if frame.time == frame.taken && !frame.damaged {
            let took = monotonic().saturating_sub(frame.taken);
            self.tally.worst = self.tally.worst.max(took);
            let late = interval.is_some_and(|interval| took > 2 * interval);
            self.tally.late += u64::from(late);
        }
        Ok(())
    }

    /// Writes the oldest frame in memory. Only now is there something to take the place of an old recording.
    fn write_kept(&mut self) -> Outcome {
        if !std::mem::replace(&mut self.begun, true) {
            let emptied = self.output.empty();
            self.broken = emptied.is_err();
            emptied?;
        }
        if let Some((frame, data)) = self.kept.oldest() {
            let (len, result) = (frame.len, self.output.write(frame, data));
            self.written(len, result)?;
            self.kept.pop();
        }
        if self.kept.is_empty() {
            self.kept.release();
            self.state = State::Recording;
        }
        Ok(())
    }

    /// What follows the writing of a frame.
    fn written(&mut self, len: usize, result: Outcome) -> Outcome {
        self.broken = result.is_err();
        result?;
        if let Some(line) = self.output.notice() {
            self.say(&line);
        }
        self.screen
            .count(len, self.quota.counted, self.output.lost());
        Ok(())
    }

    fn say(&self, line: &str) {
        self.screen.say(line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_but_a_fifo_triggers() {
        let home = tempfile::tempdir().unwrap();
        let (fifo, file) = (home.path().join("fifo"), home.path().join("file"));
        std::fs::write(&file, "kept").unwrap();
        let said = format!("{:?}", Trigger::open(Some(&file)).err());
        assert!(said.contains("not a FIFO"), "{said}");
        assert_eq!(std::fs::read(&file).unwrap(), b"kept");
        for _ in 0..2 {
            let mut trigger = Trigger::open(Some(&fifo)).ok().unwrap();
            assert!(!trigger.came());
            std::fs::write(&fifo, "now").unwrap();
            assert!(trigger.came() && !trigger.came());
        }
    }

    #[test]
    fn a_signal_without_use_ends_nothing() {
        let signals = signals().ok().unwrap();
        for signal in [SIGUSR1, SIGUSR2] {
            signal_hook::low_level::raise(signal).unwrap();
            assert!(signals.asked(signal) && !signals.asked(signal));
        }
        assert_eq!(signals.ended(), None);
    }

    #[test]
    fn time_goes_on_whatever_the_camera_says() {
        let ms = Duration::from_millis;
        // A frame every 40 ms comes 5 ms after it was taken; the machine has run for 100 s.
        let came = |n: u64| ms(100_005 + n * 40);
        let taken = |says: &dyn Fn(u64) -> u64, monotonic| -> Vec<Duration> {
            let mut clock = Clock::default();
            let taken = |n| {
                // There was none before it.
                clock.empty = came(n) - ms(1);
                clock.taken(ms(says(n)), monotonic, came(n))
            };
            (0..10).map(taken).collect()
        };
        let right = |n| 100_000 + n * 40;
        let as_said: Vec<_> = (0..10).map(|n| ms(right(n))).collect();
        let as_came: Vec<_> = (0..10).map(came).collect();
        assert_eq!(taken(&right, true), as_said);
        assert_eq!(taken(&right, false), as_came, "by another clock");
        assert_eq!(taken(&|_| 0, true), as_came);
        assert_eq!(taken(&|n| n, true), as_came, "long ago");
        assert_eq!(taken(&|n| 1_000_000 + n, true), as_came, "in the future");
        assert_eq!(taken(&|_| 99_990, true)[1..], as_came[1..]);
        assert_eq!(taken(&|n| 99_990 - n, true)[1..], as_came[1..]);
        // One that waited for a slow disk was still taken when it was, however slow that is.
        for (empty, said, now) in [
            (90_000, 70_000, 100_000),
            (70_000, 70_040, 300_000),
            (70_000, 69_990, 300_000),
        ] {
            let mut clock = Clock {
                said: Duration::ZERO,
                empty: ms(empty),
            };
            assert_eq!(clock.taken(ms(said), true, ms(now)), ms(said));
        }
    }

    #[test]
    fn a_plan_takes_no_frame_more_than_it_says() {
        let plan = |frames, time| Plan {
            frames,
            time,
            pre_roll: None,
            trigger: None,
            timeout: Duration::from_secs(30),
        };
        // What the camera says of time stands still.
        let frame = |n: u32, damaged| Frame {
            sequence: n,
            time: Duration::from_secs(7),
            monotonic: true,
            taken: Duration::from_millis(u64::from(n) * 40),
            len: 0,
            damaged,
        };
        // How many it takes of a hundred, of which every tenth is damaged, and with which it ends.
        let taken = |plan: &Plan| {
            let mut quota = Quota::of(plan);
            let takes = |n: &u32| quota.takes(&frame(*n, n % 10 == 9));
            let taken = (0..100).take_while(takes).count();
            (taken, quota.done)
        };
        assert_eq!(taken(&plan(None, None)), (100, false));
        assert_eq!(taken(&plan(Some(0), None)), (0, true));
        assert_eq!(taken(&plan(Some(1), None)), (1, true));
        assert_eq!(taken(&plan(Some(20), None)), (22, true));
        assert_eq!(taken(&plan(None, Some(Duration::ZERO))), (0, true));
        assert_eq!(taken(&plan(None, Some(Duration::from_secs(1)))), (25, true));
        let both = plan(Some(2), Some(Duration::from_secs(1)));
        let mut quota = Quota::of(&both);
        assert!(quota.takes(&frame(0, false)) && !quota.done);
        assert!(quota.takes(&frame(1, false)) && quota.done, "with the last");
    }
}
