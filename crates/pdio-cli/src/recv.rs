// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pdio recv`: a TCP connection or a pipe into a file.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pdio::{OpenOptions, Writer};
use rustix::fs::{access, Access};
use rustix::io::Errno;
use serde_json::json;

use crate::durable::sync_directory;
use crate::report::{
    self, copied, quoted, reason, say, six_digits, Context, Fail, Outcome, Progress,
};
use crate::signals::Signals;
use crate::size;

/// Receive from a socket or pipe into a file.
///
/// Takes one TCP connection, or standard input, and writes what comes to FILE until the sender
/// closes. FILE is created, or emptied once the connection is there.
///
/// TCP cannot tell a sender that is done from one that was killed: say with --size how much is to
/// come, and fewer or more bytes are an error. However the stream ends, all that was received is in
/// FILE if it can be written, and the message says how much; after kill -9 up to 8 MiB are missing.
#[derive(clap::Args, Debug)]
#[command(
    override_usage = "pdio recv [OPTIONS] [--listen HOST:PORT | -] FILE",
    after_long_help = EXAMPLES
)]
pub struct Recv {
    /// [-] FILE: the file to write. Without --listen standard input is read; a - before FILE says so
    #[arg(required = true, num_args = 1..=2, value_name = "FILE")]
    paths: Vec<PathBuf>,
    /// Accept one connection here; port 0 takes a free one, which is printed
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_address)]
    listen: Option<String>,
    /// How many bytes are to come (700, 4G, 10MB); reserves up to 1 GiB ahead on disk
    #[arg(long, value_name = "BYTES", value_parser = size::parse)]
    size: Option<u64>,
    /// Give up when nothing has come for this long, as in 30s; otherwise wait for ever
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    timeout: Option<Duration>,
    /// fsync the file and its directory before the command ends
    #[arg(long, alias = "durable")]
    sync: bool,
    /// No progress line and no summary
    #[arg(short, long)]
    quiet: bool,
    /// Print what was received as one JSON object
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "Examples:
  pdio recv --listen 0.0.0.0:9000 --size 4G video.raw
  ffmpeg ... - | pdio recv - video.mkv

Exit status:
  0  the sender closed, and --size bytes came if it was given
  1  something failed; what was received is in FILE
  2  the command line is wrong; nothing was touched
  129, 130, 143  ended by SIGHUP, SIGINT, SIGTERM; what was received is in FILE";

fn parse_time(text: &str) -> Result<Duration, String> {
    nocopy_settings::time(text)
        .filter(|time| !time.is_zero())
        .ok_or_else(|| format!("not {}", nocopy_settings::TIME))
}

fn parse_address(text: &str) -> Result<String, String> {
    let parts = text.rsplit_once(':');
    let fits = |(host, port): (&str, &str)| !host.is_empty() && port.parse::<u16>().is_ok();
    match parts.is_some_and(fits) {
        true => Ok(text.into()),
        false => Err("not HOST:PORT, as in 0.0.0.0:9000".into()),
    }
}

/// The maximum that is received at a time.
const CHUNK: usize = 1 << 20;

/// Runs the command.
///
/// # Errors
/// If not everything that was to come was received and written.
pub fn run(args: &Recv) -> Outcome {
    let path = match args.paths.as_slice() {
        [file] => file,
        [dash, file] if dash.as_os_str() == "-" && args.listen.is_none() => file,
        [dash, _] if dash.as_os_str() == "-" => {
            return Err(Fail::Usage("either - or --listen, not both".into()))
        }
        _ => return Err(Fail::Usage("give one FILE; only - may be before it".into())),
    };
    let timeout = args.timeout;
    let signals = Signals::listen(&[])?;
    let source = match &args.listen {
        Some(address) => {
            may_write(path).context("create", path)?;
            accept(address, &signals, timeout)?
        }
        None => standard_input(path)?,
    };
    let mut file = File::options();
    file.write(true).create(true).truncate(true);
    let file = signals.open(&file, path)?.context("create", path)?;
    let mut options = OpenOptions::new();
    options.preallocate(args.size.unwrap_or(0).min(1 << 30));
    let mut writer = options.writer_from(file).context("create", path)?;
    let since = Instant::now();
    let mut progress = Progress::new(&path.to_string_lossy(), args.size.unwrap_or(0), !args.quiet);
    let mut received = 0;
    let mut outcome = receive(
        args,
        source,
        &mut writer,
        path,
        &signals,
        timeout,
        &mut |n| {
            received += n;
            progress.add(n);
        },
    );
    drop(progress);
    // The size of what is no file, as of a device, says nothing.
    let is_file = writer.file().metadata().is_ok_and(|about| about.is_file());
    if args.sync {
        let synced = writer.sync_all().context("make durable", path);
        let named = synced.and_then(|()| match is_file {
            true => sync_directory(path),
            false => Ok(()),
        });
        outcome = outcome.and(named);
    }
    let before = writer.stats();
    let finished = writer.finish();
    let stats = match finished {
        Ok(stats) => Some(stats),
        Err(error) => {
            let error = Err(error).context("write", path);
            outcome = outcome.and(error);
            None
        }
    };
    let time = since.elapsed();
    let given = stats.as_ref().unwrap_or(&before);
    let written = match is_file {
        true => std::fs::metadata(path).map(|m| m.len()).unwrap_or(0),
        false => given.direct_bytes + given.buffered_bytes,
    };
    let mut told = Ok(());
    if args.json {
        told = report::json(&json!({
            "file": path.to_string_lossy(), "received": received, "written": written,
            "seconds": time.as_secs_f64(), "complete": outcome.is_ok(),
            "durable": args.sync && outcome.is_ok(), "stats": stats,
        }));
    } else if !args.quiet && outcome.is_ok() {
        say(copied(received, time, &six_digits(time.as_secs_f64())));
    }
    match outcome {
        Err(Fail::Failed(text)) => Err(Fail::Failed(format!(
            "{text}; {} holds {written} bytes",
            quoted(path)
        ))),
        Err(Fail::Signal(signal)) => {
            say(format_args!(
                "pdio recv: interrupted; {} holds {written} bytes",
                quoted(path)
            ));
            Err(Fail::Signal(signal))
        }
        Ok(()) => told,
        other => other,
    }
}

/// Standard input, if it can be read and is not FILE: what cannot be received must not empty it.
fn standard_input(file: &Path) -> Outcome<OwnedFd> {
    let name = Path::new("standard input");
    let mut source = report::standard(io::stdin().as_fd())
        .map(File::from)
        .context("read", name)?;
    // Of no bytes: that is refused where others are, and waits for nothing.
    source.read(&mut []).context("read", name)?;
    let from = source.metadata().context("read", name)?;
    let same = |to: Metadata| to.is_file() && (to.dev(), to.ino()) == (from.dev(), from.ino());
    match std::fs::metadata(file).is_ok_and(same) {
        true => Err(Fail::Usage(format!(
            "standard input and {} are the same file, which would be emptied first",
            quoted(file)
        ))),
        false => Ok(source.into()),
    }
}

/// Before a sender is waited for, who may not come again: whether FILE could be made or emptied, as far as that shows
/// without doing it.
fn may_write(file: &Path) -> io::Result<()> {
    let about = match file.metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return match (file.is_symlink(), file.parent()) {
                // What it leads to is made where that is.
                (true, _) => Ok(()),
                (false, None) => Err(error),
                (false, Some(parent)) => {
                    let parent = Path::new(".").join(parent);
                    Ok(access(&parent, Access::WRITE_OK | Access::EXEC_OK)?)
                }
            };
        }
        about => about?,
    };
    match (about.is_dir(), about.is_file()) {
        (true, _) => Err(Errno::ISDIR.into()),
        (_, true) => Ok(access(file, Access::WRITE_OK)?),
        _ => Ok(()),
    }
}

fn accept(address: &str, signals: &Signals, timeout: Option<Duration>) -> Outcome<OwnedFd> {
    let failed = |e: &io::Error| {
        Fail::Failed(format!(
            "cannot listen on {}: {}",
            quoted(address),
            reason(e)
        ))
    };
    let listener = TcpListener::bind(address).map_err(|e| failed(&e))?;
    let here = listener.local_addr().map_err(|e| failed(&e))?;
    say(format_args!("listening on {here}"));
    wait(signals, listener.as_fd(), timeout, "no connection")?;
    let (stream, _) = listener.accept().map_err(|e| failed(&e))?;
    Ok(stream.into())
}

fn wait(
    signals: &Signals,
    fd: std::os::fd::BorrowedFd<'_>,
    timeout: Option<Duration>,
    nothing: &str,
) -> Outcome {
    let ready = signals.repeat(|| signals.ready(fd, false, timeout))?;
    ready.map_err(|error| match error.kind() {
        io::ErrorKind::TimedOut => {
            let seconds = timeout.unwrap_or_default().as_secs_f64();
            Fail::Failed(format!("{nothing} for {seconds} s"))
        }
        _ => Fail::Failed(format!("cannot wait: {}", reason(&error))),
    })
}

fn receive(
    args: &Recv,
    source: OwnedFd,
    writer: &mut Writer,
    path: &Path,
    signals: &Signals,
    timeout: Option<Duration>,
    count: &mut dyn FnMut(u64),
) -> Outcome {
    let mut source = File::from(source);
    let mut received = 0u64;
    let about = writer.file().metadata().context("write", path)?.file_type();
    let staged = about.is_file() || about.is_block_device();
    let mut memory = vec![0; if staged { 0 } else { CHUNK }];
    loop {
        wait(signals, source.as_fd(), timeout, "nothing came")?;
        let mut refused = None;
        let mut read = |room: &mut [u8]| {
            source.read(room).inspect_err(|e| {
                refused = Some(e.kind() == io::ErrorKind::Interrupted);
            })
        };
        let result = match staged {
            // From the socket into the memory that goes to the device: one copy.
            true => writer.write_with(CHUNK, read),
            // Whose reader may have to be waited for.
            false => match read(&mut memory) {
                Ok(n) => signals.write_all(writer, &memory[..n])?.map(|()| n),
                Err(error) => Err(error),
            },
        };
        let n = match (result, refused) {
            (Ok(n), _) => n,
            (Err(_), Some(true)) => continue,
            (Err(error), Some(false)) => {
                return Err(Fail::Failed(format!(
                    "cannot receive after {received} bytes: {}",
                    reason(&error)
                )))
            }
            (Err(error), None) => return Err(error).context("write", path),
        };
        if n == 0 {
            break;
        }
        received += n as u64;
        count(n as u64);
        if args.size.is_some_and(|size| received > size) {
            break;
        }
    }
    match args.size {
        Some(size) if received != size => Err(Fail::Failed(format!(
            "the sender {} {received} of {size} bytes",
            if received < size {
                "closed after"
            } else {
                "sent more than it should,"
            }
        ))),
        _ => Ok(()),
    }
}
