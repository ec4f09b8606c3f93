// SPDX-License-Identifier: MIT OR Apache-2.0
//! A write-heavy load for a Redis server, over a Unix socket (figure 13).
//!
//! Nine of ten operations store a new point of a time series, one of ten reads a point that is
//! there, as the time series workload of YCSB does in the paper. With `--append` the points of a
//! series are appended to one value instead, which then grows. Every answer is compared with what
//! was stored.
//!
//! The load is run several times on one server, which is emptied in between. The first lap finds a
//! server that has to get all its memory from the system, and under a hypervisor pays for that what
//! the host makes of it; what is reported is the median of the others.

use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;

/// Operations out of so many that read.
const ONE_READ_OF: u64 = 10;

#[derive(Parser)]
#[command(about = "Loads a Redis server and prints the throughput as one line of JSON")]
struct Cli {
    /// Unix socket of the server.
    #[arg(long)]
    socket: PathBuf,
    /// Bytes of a point.
    #[arg(long)]
    value: usize,
    /// Operations in all.
    #[arg(long)]
    operations: u64,
    #[arg(long, default_value_t = 4)]
    connections: u64,
    /// Operations that a connection sends before it reads the answers.
    #[arg(long, default_value_t = 16)]
    pipeline: u64,
    /// Points of a series.
    #[arg(long, default_value_t = 1000)]
    points: u64,
    /// Append points to one value for each series.
    #[arg(long)]
    append: bool,
    /// Times that the load is run; the first does not count if there are more.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    laps: u32,
}

/// What the server is expected to answer.
enum Answer {
    Added,
    Length(usize),
    Point(u64),
}

struct Connection<'a> {
    cli: &'a Cli,
    number: u64,
    input: BufReader<UnixStream>,
    output: BufWriter<UnixStream>,
    /// A point: its name in its first bytes, then bytes that do not compress or repeat.
    point: Vec<u8>,
    received: Vec<u8>,
}

fn wrong(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

fn connect(cli: &Cli) -> io::Result<UnixStream> {
    let give_up = Instant::now() + Duration::from_secs(10);
    loop {
        match UnixStream::connect(&cli.socket) {
            Ok(stream) => {
                stream.set_read_timeout(Some(Duration::from_secs(60)))?;
                return Ok(stream);
            }
            Err(error) if Instant::now() > give_up => return Err(error),
            Err(_) => thread::sleep(Duration::from_millis(10)),
        }
    }
}

impl<'a> Connection<'a> {
    fn new(cli: &'a Cli, number: u64) -> io::Result<Self> {
        let stream = connect(cli)?;
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let point = (0..cli.value)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state as u8
            })
            .collect();
        Ok(Self {
            cli,
            number,
            input: BufReader::with_capacity(1 << 16, stream.try_clone()?),
            output: BufWriter::with_capacity(1 << 16, stream),
            point,
            received: Vec::new(),
        })
    }

    fn send(&mut self, words: &[&[u8]]) -> io::Result<()> {
        write!(self.output, "*{}\r\n", words.len())?;
        for word in words {
            write!(self.output, "${}\r\n", word.len())?;
            self.output.write_all(word)?;
            self.output.write_all(b"\r\n")?;
        }
        Ok(())
    }

    fn line(&mut self) -> io::Result<(u8, i64)> {
        let mut line = String::new();
        if self.input.read_line(&mut line)? == 0 {
            return Err(wrong("the server closed the connection"));
        }
        let kind = line.as_bytes()[0];
        let rest = line[1..].trim_end();
        match (kind, rest.parse()) {
            (b':' | b'$', Ok(number)) => Ok((kind, number)),
            _ => Err(wrong(format!("the server says {}", line.trim_end()))),
        }
    }

    fn name(&self, point: u64) -> [u8; 8] {
        (point << 8 | self.number).to_le_bytes()
    }

    fn check(&mut self, answer: &Answer) -> io::Result<()> {
        let (kind, number) = self.line()?;
        match (answer, kind) {
            (Answer::Added, b':') if number == 1 => Ok(()),
            (Answer::Length(length), b':') if number == *length as i64 => Ok(()),
            (Answer::Point(point), b'$') if number == self.cli.value as i64 => {
                self.received.resize(self.cli.value + 2, 0);
                self.input.read_exact(&mut self.received)?;
                if self.received[..8] == self.name(*point)
                    && self.received[8..self.cli.value] == self.point[8..]
                {
                    Ok(())
                } else {
                    Err(wrong(format!("point {point} came back changed")))
                }
            }
            _ => Err(wrong(format!(
                "unexpected answer {}{number}",
                char::from(kind)
            ))),
        }
    }

    /// Store and read points; returns how many were stored.
    fn run(&mut self) -> io::Result<u64> {
        let (value, points) = (self.cli.value, self.cli.points);
        let mut left = self.cli.operations / self.cli.connections;
        let mut stored = 0_u64;
        let mut settled = 0_u64;
        let mut answers = Vec::new();
        let mut operation = 0_u64;
        while left > 0 {
            let batch = left.min(self.cli.pipeline);
            for _ in 0..batch {
                operation += 1;
                if operation.is_multiple_of(ONE_READ_OF) && settled > 0 {
                    // Among the latest thousand, as a time series is read.
                    let back = operation.wrapping_mul(2_654_435_761) % settled.min(1000);
                    let point = settled - 1 - back;
                    let series = format!("series:{}:{}", self.number, point / points);
                    let at = (point % points) as usize;
                    if self.cli.append {
                        let (from, to) = (at * value, (at + 1) * value - 1);
                        let (from, to) = (from.to_string(), to.to_string());
                        self.send(&[
                            b"GETRANGE",
                            series.as_bytes(),
                            from.as_bytes(),
                            to.as_bytes(),
                        ])?;
                    } else {
                        let key = format!("{series}:{at}");
                        self.send(&[b"HGET", key.as_bytes(), b"value"])?;
                    }
                    answers.push(Answer::Point(point));
                    continue;
                }
                let name = self.name(stored);
                self.point[..8].copy_from_slice(&name);
                let series = format!("series:{}:{}", self.number, stored / points);
                let at = stored % points;
                let point = std::mem::take(&mut self.point);
                if self.cli.append {
                    self.send(&[b"APPEND", series.as_bytes(), &point])?;
                    answers.push(Answer::Length((at as usize + 1) * value));
                } else {
                    let key = format!("{series}:{at}");
                    self.send(&[b"HSET", key.as_bytes(), b"value", &point])?;
                    let at = at.to_string();
                    self.send(&[b"ZADD", series.as_bytes(), at.as_bytes(), key.as_bytes()])?;
                    answers.push(Answer::Added);
                    answers.push(Answer::Added);
                }
                self.point = point;
                stored += 1;
            }
            self.output.flush()?;
            for answer in std::mem::take(&mut answers) {
                self.check(&answer)?;
            }
            settled = stored;
            left -= batch;
        }
        Ok(stored)
    }
}

/// Run the load once; how long it took and how many points were stored.
fn one_lap(cli: &Cli) -> io::Result<(f64, u64)> {
    let connections: Vec<_> = (0..cli.connections)
        .map(|number| Connection::new(cli, number))
        .collect::<io::Result<_>>()?;
    let begin = Instant::now();
    let stored: io::Result<Vec<u64>> = thread::scope(|scope| {
        let threads: Vec<_> = connections
            .into_iter()
            .map(|mut connection| scope.spawn(move || connection.run()))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err(wrong("panicked"))))
            .collect()
    });
    let seconds = begin.elapsed().as_secs_f64();
    Ok((seconds, stored?.iter().sum()))
}

fn load(cli: &Cli) -> io::Result<String> {
    if cli.value < 8 || cli.connections == 0 || cli.connections > 255 || cli.points == 0 {
        return Err(wrong("a point has at least 8 bytes; 1 to 255 connections"));
    }
    let mut laps = Vec::new();
    let mut stored = 0;
    for lap in 0..cli.laps {
        if lap > 0 {
            let mut control = Connection::new(cli, 0)?;
            control.send(&[b"FLUSHALL", b"SYNC"])?;
            control.output.flush()?;
            let mut line = String::new();
            control.input.read_line(&mut line)?;
            if line != "+OK\r\n" {
                return Err(wrong(format!("FLUSHALL: {}", line.trim_end())));
            }
        }
        let (seconds, points) = one_lap(cli)?;
        laps.push(seconds);
        stored += points;
    }
    let mut counted = laps[usize::from(cli.laps > 1)..].to_vec();
    counted.sort_by(f64::total_cmp);
    let seconds = (counted[(counted.len() - 1) / 2] + counted[counted.len() / 2]) / 2.0;
    Ok(serde_json::json!({
        "seconds": seconds,
        "laps": laps,
        "operations": cli.operations,
        "checksum": format!("{stored} points"),
    })
    .to_string())
}

fn main() -> ExitCode {
    match load(&Cli::parse()) {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("redis-load: {error}");
            ExitCode::FAILURE
        }
    }
}
