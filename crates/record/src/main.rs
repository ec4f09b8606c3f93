// SPDX-License-Identifier: MIT OR Apache-2.0
//! The `nocopy-record` command: from a camera to a file, without a copy where the machine can.

#[cfg(test)]
mod alone;
mod camera;
#[cfg_attr(test, path = "made_up.rs")]
mod device;
mod files;
#[cfg(test)]
#[path = "../../pdio/tests/common/filter.rs"]
mod filter;
mod frame;
mod memory;
mod output;
mod photo;
mod preroll;
mod record;
#[cfg(test)]
mod recorder_tests;
mod screen;
mod summary;
mod ways;

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{CommandFactory, Parser, Subcommand, ValueEnum};
use pdio::Durability;
use pdio_cli::report::{self, quoted, reason, say, shown, Fail, Outcome};
use pdio_cli::size;
use serde_json::json;

use camera::{Camera, Wanted};
use output::Output;
use photo::{part_of, Photos};
use record::{Recording, Trigger};
use screen::Screen;
use summary::Summary;
use ways::{Choice, Place, Tried, Way};

#[global_allocator]
static ALLOCATOR: brug::Brug = brug::Brug::new();

const AFTER: &str = "\
Index: beside FILE is FILE.index, a line for each frame, written once the kernel has the frame:
  SEQUENCE SECONDS OFFSET LENGTH
and, in their places, lines '# lost N-M' and '# damaged N' for frames that are not there, and
'# suspected K before N' where time stamps leave room for K frames that the camera did not count;
'# clock unknown' before the first frame whose SECONDS are not by the system's monotonic clock.

Examples:
  nocopy-record --size 1920x1080 --seconds 60 out.raw
  nocopy-record --pre-roll 10s --trigger /run/doorbell --seconds 30 visitor.raw
  nocopy-record --segment 1G --photo /run/now.raw day.raw     # a photo: kill -USR2
  nocopy-record --size 1280x720 --format YUYV - | ffmpeg -f rawvideo ...
  nocopy-record explain --size 1920x1080 out.raw

Exit status:
  0  recorded, as much as was asked for
  1  something failed; the message says what, all frames before are in FILE and in its index
  2  the command line is wrong; nothing was touched
  129, 130, 143  ended by SIGHUP, SIGINT, SIGTERM, and nothing failed; another one, half a
                 second or more after the first, ends at once";

/// Record a camera, raw, without a copy where the machine can.
///
/// Each frame goes to the disk from the memory that the camera put it into, if the camera's driver,
/// the memory that is free and the file allow that; 'explain' says which way is taken and why not a
/// better one. Frames that the camera could not deliver are counted, and named in the index.
#[derive(Parser, Debug)]
#[command(
    name = "nocopy-record",
    version,
    after_long_help = AFTER,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    record: Record,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Say which way frames would take from the camera to FILE, and why not a better one
    Explain(Explain),
    /// Write the manual pages and completions below a directory like /usr/local/share
    #[command(hide = true)]
    Pages {
        /// The directory
        share: PathBuf,
    },
}

#[derive(clap::Args, Debug)]
struct Explain {
    #[command(flatten)]
    source: Source,
    /// Where frames would go; it need not be there
    #[arg(value_name = "FILE", default_value = "./out.raw")]
    file: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args, Debug)]
struct Source {
    /// The camera
    #[arg(long, value_name = "DEVICE", default_value = "/dev/video0")]
    device: PathBuf,
    /// Width and height of frames; otherwise as the camera is set
    #[arg(long, value_name = "WxH", value_parser = parse_size)]
    size: Option<(u32, u32)>,
    /// The frames' format, as in 'v4l2-ctl --list-formats'
    #[arg(long, value_name = "FOURCC", value_parser = parse_format)]
    format: Option<u32>,
    /// Frames a second: N or N/M
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    rate: Option<(u32, u32)>,
    /// Frames in flight: how long the disk may be busy with something else before one is lost
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = size::number::<u32>(2..=32))]
    buffers: u32,
    /// Take this way and no other
    #[arg(long, value_enum, value_name = "WAY")]
    way: Option<Way>,
    /// For the way 'heap': take this heap of /dev/dma_heap, and not the first that works
    #[arg(long, value_name = "NAME")]
    heap: Option<String>,
}

/// What is promised of frames that are in the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Promise {
    /// Frames reach the disk as it has time; kill -9 loses what is on its way (copy: up to 16 MiB)
    Process,
    /// kill -9 loses nothing but the frame that is being written, and what waits in memory after a trigger
    Safe,
    /// The same holds for a power cut: each frame is synced, and its line in the index
    Sync,
}

#[derive(clap::Args, Debug)]
struct Record {
    #[command(flatten)]
    source: Source,
    /// Where the frames go, one after the other; - is standard output
    #[arg(value_name = "FILE", required = true)]
    file: Option<PathBuf>,
    /// End after this many seconds
    #[arg(long, value_name = "N", value_parser = parse_seconds)]
    seconds: Option<Duration>,
    /// End after this many frames
    #[arg(long, value_name = "N", value_parser = size::number(0..=u64::MAX))]
    frames: Option<u64>,
    /// Begin another file before one has more bytes than this (1G, 700MB): out.raw becomes out-0000.raw, out-0001.raw, …
    #[arg(long, value_name = "BYTES", value_parser = size::parse)]
    segment: Option<u64>,
    /// What is promised of what was recorded
    #[arg(long, value_enum, default_value_t = Promise::Process, value_name = "MODE")]
    durability: Promise,
    /// Keep the last frames (10s) in memory, and begin the recording with them when SIGUSR1 comes; until then FILE stays as it was
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pre_roll: Option<Duration>,
    /// Begin also when something is written to this FIFO, which is made if it is not there
    #[arg(long, value_name = "FIFO", requires = "pre_roll")]
    trigger: Option<PathBuf>,
    /// Whenever SIGUSR2 comes, write the next frame to this file as well
    #[arg(long, value_name = "FILE")]
    photo: Option<PathBuf>,
    /// Give up when no whole frame has come for this long
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_timeout)]
    timeout: Duration,
    /// No progress line and no summary
    #[arg(short, long)]
    quiet: bool,
    /// Print what was recorded as one JSON object
    #[arg(long)]
    json: bool,
}

fn parse_size(text: &str) -> Result<(u32, u32), String> {
    let parts = text.split_once('x').map(|(w, h)| (w.parse(), h.parse()));
    match parts {
        Some((Ok(width), Ok(height))) if width > 0 && height > 0 => Ok((width, height)),
        _ => Err("width and height, as in 1920x1080".into()),
    }
}

fn parse_format(text: &str) -> Result<u32, String> {
    camera::code(text)
        .ok_or_else(|| "up to four characters, as in YUYV, and perhaps -BE, as in 'Y16 -BE'".into())
}

fn parse_rate(text: &str) -> Result<(u32, u32), String> {
    let (frames, seconds) = text.split_once('/').unwrap_or((text, "1"));
    match (frames.parse(), seconds.parse()) {
        (Ok(frames), Ok(seconds)) if frames > 0 && seconds > 0 => Ok((frames, seconds)),
        _ => Err("frames a second, as in 30 or 30000/1001".into()),
    }
}

fn parse_time(text: &str) -> Result<Duration, String> {
    nocopy_settings::time(text).ok_or_else(|| format!("not {}", nocopy_settings::TIME))
}

fn parse_timeout(text: &str) -> Result<Duration, String> {
    match parse_time(text)? {
        Duration::ZERO => Err("no frame comes in no time".into()),
        time => Ok(time),
    }
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().map(Duration::try_from_secs_f64);
    seconds
        .ok()
        .and_then(Result::ok)
        .ok_or_else(|| "not a number of seconds, as in 10 or 0.5".into())
}

impl Source {
    fn open(&self) -> Outcome<Camera> {
        if self.heap.is_some() && self.way.is_some_and(|way| way != Way::Heap) {
            return Err(Fail::Usage(
                "--heap is for the way 'heap': leave out --heap or --way".into(),
            ));
        }
        let wanted = Wanted {
            size: self.size,
            format: self.format,
            rate: self.rate,
        };
        Camera::open(&self.device, &wanted)
    }

    fn choice(&self) -> Choice<'_> {
        Choice {
            way: self.way,
            count: self.buffers,
            heap: self.heap.as_deref(),
        }
    }
}

impl Record {
    fn file(&self) -> &Path {
        self.file.as_deref().unwrap_or(Path::new("-"))
    }

    fn to_pipe(&self) -> bool {
        self.file().as_os_str() == "-"
    }
}

/// What a camera is set to.
fn about(camera: &Camera) -> String {
    let (width, height) = camera.size;
    let rate = camera.interval.map_or(String::new(), |interval| {
        format!(", {:.2} frames/s", 1.0 / interval.as_secs_f64())
    });
    let bytes = camera.frame_bytes;
    let most = if camera.compressed { "at most " } else { "" };
    // Drivers may make lines longer than their pixels, which nobody who reads the file could tell.
    let line = match camera.line_bytes {
        0 => String::new(),
        bytes => format!(", {bytes} bytes a line"),
    };
    format!(
        "{}, {width}x{height} {}{rate}, {most}{bytes} bytes a frame{line}",
        camera.name, camera.format
    )
}

fn explain(args: &Explain) -> Outcome {
    let camera = args.source.open()?;
    let place = match args.file.as_os_str() == "-" {
        true => Place::pipe(),
        false => {
            output::can_be(&args.file)?;
            Place::of(&args.file)
        }
    };
    let (way, stream, tried) = ways::choose(&camera, &place, args.source.choice())?;
    let verdict = |(way, result): &Tried| {
        let (takes, why) = match result {
            Ok(how) => (true, how),
            Err(why) => (false, why),
        };
        json!({ "way": way.to_string(), "possible": takes, "why": why })
    };
    if args.json {
        return report::json(&json!({
            "device": args.source.device.to_string_lossy(), "camera": camera.name,
            "width": camera.size.0, "height": camera.size.1, "format": camera.format,
            "frame_bytes": camera.frame_bytes, "line_bytes": camera.line_bytes, "file": args.file.to_string_lossy(),
            "way": way.to_string(), "buffers": stream.count,
            "tried": tried.iter().map(verdict).collect::<Vec<_>>(),
        }));
    }
    let mut text = format!("{}: {}\n", shown(&args.source.device), about(&camera));
    text += &format!("{}: {}\n", shown(&args.file), place.about());
    for (way, result) in &tried {
        let line = match result {
            Ok(how) => format!("  {:<9} taken: {how}\n", way.to_string()),
            Err(why) => format!("  {:<9} not possible: {why}\n", way.to_string()),
        };
        text += &line;
    }
    let help = way
        .to_possible_value()
        .and_then(|v| v.get_help().map(ToString::to_string));
    text += &help.unwrap_or_default();
    report::print(&text)
}

/// Wants photo and trigger to have names of their own.
fn names_differ(args: &Record, output: &output::Plan) -> Outcome {
    let part = args.photo.as_deref().map(part_of);
    let others = [&args.photo, &part, &args.trigger];
    if let Some(name) = others
        .into_iter()
        .flatten()
        .find(|name| output.writes(name))
    {
        return Err(Fail::Usage(format!(
            "{} is a file of the recording: give photo and trigger other names",
            quoted(name)
        )));
    }
    let twice = |trigger: &&PathBuf| {
        let mut photo = [&args.photo, &part].into_iter().flatten();
        photo.any(|name| files::same(name, trigger))
    };
    if let Some(name) = args.trigger.as_ref().filter(twice) {
        return Err(Fail::Usage(format!(
            "{} is where a photo goes: give the trigger another name",
            quoted(name)
        )));
    }
    Ok(())
}

/// What is recorded, and into which files.
fn plans(args: &Record) -> Outcome<(record::Plan, output::Plan)> {
    let path = (!args.to_pipe()).then(|| args.file().to_path_buf());
    if path.is_none() && (args.json || args.segment.is_some()) {
        return Err(Fail::Usage(
            "neither --json nor --segment goes with standard output".into(),
        ));
    }
    if path.is_none() && std::io::stdout().is_terminal() {
        return Err(Fail::Usage(
            "frames are no text: send standard output to a pipe or a file".into(),
        ));
    }
    let plan = record::Plan {
        frames: args.frames,
        time: args.seconds,
        pre_roll: args.pre_roll,
        trigger: args.trigger.clone(),
        timeout: args.timeout,
    };
    let output = output::Plan {
        path,
        segment: args.segment,
        durability: match args.durability {
            Promise::Process => Durability::Process,
            Promise::Safe => Durability::Safe,
            Promise::Sync => Durability::Sync,
        },
        header: String::new(),
        interval: None,
        block: None,
    };
    names_differ(args, &output)?;
    Ok((plan, output))
}

/// Wants a segment to have room for a frame.
fn segment_fits(segment: Option<u64>, camera: &Camera) -> Outcome {
    let bytes = camera.frame_bytes;
    if segment.is_some_and(|most| most < bytes as u64) && !camera.compressed {
        // No longer `Usage`: the camera has been set.
        return Err(Fail::Failed(format!(
            "a segment has to have room for a frame, which has {bytes} bytes"
        )));
    }
    Ok(())
}

fn run(args: &Record) -> Outcome {
    let (plan, mut output) = plans(args)?;
    // Before the camera is set up, which may take a while: what comes meanwhile is held.
    let signals = record::signals()?;
    // Before the camera as well: whatever fails closes the camera first, and only then waits for a terminal.
    let screen = Screen::new(&args.file().to_string_lossy(), !args.quiet)?;
    let camera = args.source.open()?;
    let first = output.file(0);
    let place = first.map_or_else(Place::pipe, |first| Place::of(&first));
    let (way, stream, _) = ways::choose(&camera, &place, args.source.choice())?;
    segment_fits(args.segment, &camera)?;
    let room = record::want_room(&plan, &camera)?;
    // Before FILE is opened.
    signals.check()?;
    let trigger = Trigger::open(plan.trigger.as_deref())?;
    let photos = args.photo.as_deref();
    let photos =
        photos.map(|path| Photos::to(path, camera.frame_bytes, args.durability == Promise::Sync));
    let mut photos = photos.transpose()?;
    output.header = format!("# nocopy-record 1: {}\n", about(&camera));
    output.interval = camera.interval;
    output.block = place.block();
    let mut output = Output::open(output, way)?;
    // A camera that does not start leaves the recording that was there. Until there is room for them, frames
    // wait in its buffers.
    record::start(&stream)?;
    // That may take a while, too.
    signals.check()?;
    // With --pre-roll the recording that was there stays until the trigger comes.
    // What the camera took while an old recording was emptied comes before a gap, if its buffers were full by then.
    // After a signal that ends this one, there is nothing else.
    if plan.pre_roll.is_none() && output.empty()? && signals.ended().is_none() {
        record::skip(&stream);
    }
    let buffers = stream.count;
    if buffers < args.source.buffers {
        let wanted = args.source.buffers;
        screen.say(&format!("the camera gives {buffers} of {wanted} buffers"));
    }
    let since = Instant::now();
    let mut recording = Recording::new(
        &plan,
        &signals,
        &mut output,
        photos.as_mut(),
        trigger,
        room,
        &screen,
    );
    let outcome = recording.run(&stream);
    // Others may have the camera now, whatever a disk or a terminal keeps waiting.
    drop(stream);
    drop(camera);
    let (tally, outcome) = recording.finish(outcome);
    let (totals, outcome) = output.finish(outcome);
    let outcome = match outcome {
        Ok(()) | Err(Fail::Signal(_)) if totals.frames == 0 && totals.damaged > 0 => {
            let device = quoted(&args.source.device);
            Err(Fail::Failed(format!(
                "{device} gave no frame that is whole"
            )))
        }
        outcome => outcome,
    };
    // A disk that is slow with a photo, and a terminal that is stopped, are no part of it either.
    let ended = Instant::now();
    drop(screen);
    let (photos, failed, lines) = photos.map_or_else(Default::default, Photos::finish);
    for line in lines {
        say(format_args!("nocopy-record: {line}"));
    }
    // What it waited for the trigger is no part of the recording, however long that was.
    let (since, waited) = tally.triggered.unwrap_or((since, Duration::ZERO));
    let summary = Summary {
        way,
        buffers,
        tally,
        totals,
        photos,
        photos_failed: failed,
        time: ended.saturating_duration_since(since),
        cpu: (record::processor_time() - waited).as_secs_f64(),
    };
    told(args, &summary, outcome)
}

/// Says what has been recorded; its outcome is the command's.
fn told(args: &Record, summary: &Summary, outcome: Outcome) -> Outcome {
    let (file, failed) = (args.file(), summary.photos_failed);
    let mut told = Ok(());
    if args.json {
        told = report::json(&summary.json(file, outcome.is_ok() && failed == 0));
    } else if !args.quiet && !matches!(outcome, Err(Fail::Failed(_))) {
        say(summary.line());
    }
    if failed > 0 {
        // Lines have said so.
        told = told.and(Err(Fail::Reported));
    }
    match outcome {
        Err(Fail::Failed(text)) if !args.to_pipe() => {
            let totals = &summary.totals;
            let what = match totals.files.len() {
                0 => return Err(Fail::Failed(format!("{text}; nothing was recorded"))),
                1 => format!("{} holds", quoted(&totals.files[0])),
                files => format!("{files} files hold"),
            };
            let count = |number, what| match number {
                0 => String::new(),
                number => format!(", {number} {what}"),
            };
            Err(Fail::Failed(format!(
                "{text}; {what} {} frames, all indexed{}{}",
                totals.frames,
                count(totals.lost, "lost"),
                count(totals.damaged, "damaged")
            )))
        }
        // A recording without an end of its own is always ended by a signal: that hides no failure.
        Ok(()) | Err(Fail::Signal(_)) => told.and(outcome),
        failed => failed,
    }
}

/// Wants a command to be the first word: behind an option it would be FILE, which is emptied.
fn commands_come_first(words: impl IntoIterator<Item = OsString>) -> Outcome {
    let command = |word: OsString| ["explain", "help"].into_iter().find(|name| word == *name);
    let mut words = words.into_iter();
    if words.next().and_then(command).is_some() {
        return Ok(());
    }
    match words.find_map(command) {
        None => Ok(()),
        Some(name) => Err(Fail::Usage(format!(
            "'{name}' comes first, its options behind it; for a file of that name write ./{name}"
        ))),
    }
}

fn command() -> Result<Outcome, ExitCode> {
    if let Err(fail) = commands_come_first(std::env::args_os().skip(1)) {
        return Ok(Err(fail));
    }
    let cli = nocopy_pages::parse::<Cli>()?;
    Ok(match &cli.command {
        Some(Command::Explain(args)) => explain(args),
        Some(Command::Pages { share }) => nocopy_pages::write(Cli::command(), share)
            .map_err(|error| Fail::Failed(format!("{}: {}", quoted(share), reason(&error)))),
        None => run(&cli.record),
    })
}

fn main() -> ExitCode {
    let outcome = match command() {
        Ok(outcome) => outcome,
        Err(status) => return status,
    };
    let Err(fail) = outcome else {
        return ExitCode::SUCCESS;
    };
    match &fail {
        Fail::Usage(text) => say(format_args!(
            "nocopy-record: {text}\nTry 'nocopy-record --help'."
        )),
        Fail::Failed(text) | Fail::Refused(_, text) => say(format_args!("nocopy-record: {text}")),
        Fail::Reported | Fail::Signal(_) => {}
    }
    fail.end()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    #[test]
    fn help_says_how_large_the_ring_is() {
        let help = Promise::Process.to_possible_value();
        let help = help.and_then(|value| value.get_help().map(ToString::to_string));
        let wanted = format!("copy: up to {} MiB", ways::RING >> 20);
        assert!(help.is_some_and(|help| help.contains(&wanted)));
    }

    #[test]
    fn times_sizes_rates_and_formats_are_read() {
        assert_eq!(parse_time("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse_seconds("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_size("1920x1080"), Ok((1920, 1080)));
        assert_eq!(parse_rate("30000/1001"), Ok((30000, 1001)));
        assert_eq!(parse_rate("25"), Ok((25, 1)));
        for text in ["", "s", "-1", "1x", "10 s", "1e400", "nan"] {
            assert!(parse_time(text).is_err(), "{text}");
            assert!(parse_seconds(text).is_err(), "{text}");
        }
        assert!(parse_size("1920").is_err() && parse_size("0x5").is_err());
        assert!(parse_rate("0").is_err() && parse_rate("30/0").is_err());
        assert!(parse_format("YUYV").is_ok() && parse_format("YUYV2").is_err());
    }
}
