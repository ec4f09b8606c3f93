// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sequential speed and system CPU of pdio beside plain buffered, direct and uncached I/O.
//!
//! `sweep [--read] [--random] [--mib N] [--runs N] [--modes a,b] [--sizes 512,4096] FILE`; runs are interleaved, writes end with
//! `fdatasync`, reads begin with a cold page cache for the file. The kernel's CPU time is the whole
//! system's, but for this process's own.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::time::Instant;

use pdio::{Engine, OpenOptions, Strategy};

fn cpu_ms() -> f64 {
    // The whole system's, in nanoseconds where the kernel has such a counter.
    if let Ok(text) = std::fs::read_to_string("/sys/fs/cgroup/cpuacct/cpuacct.usage") {
        return text.trim().parse::<f64>().unwrap_or(0.0) / 1e6;
    }
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let fields: Vec<f64> = text
        .lines()
        .next()
        .unwrap_or("")
        .split_whitespace()
        .skip(1)
        .filter_map(|v| v.parse().ok())
        .collect();
    [0, 1, 2, 5, 6]
        .iter()
        .filter_map(|&i| fields.get(i))
        .sum::<f64>()
        * 10.0
}

/// What this process has used outside the kernel.
fn user_ms() -> f64 {
    // SAFETY: `usage` is valid as zeros, and filled.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    usage.ru_utime.tv_sec as f64 * 1e3 + usage.ru_utime.tv_usec as f64 / 1e3
}

fn aligned(len: usize) -> &'static mut [u8] {
    let memory = vec![0x5au8; len + 4096].leak();
    let skew = memory.as_ptr().align_offset(4096);
    &mut memory[skew..skew + len]
}

fn write(mode: &str, path: &str, size: usize, total: usize) -> std::io::Result<()> {
    let data = aligned(size);
    let mut options = OpenOptions::new();
    options.create(true).truncate(true);
    match mode {
        "pdio" => {}
        "pdio-direct" => {
            options.strategy(Strategy::Direct);
        }
        "pdio-uring" => {
            options.strategy(Strategy::Direct).engine(Engine::Uring);
        }
        "pdio-threads" => {
            options.strategy(Strategy::Direct).engine(Engine::Threads);
        }
        "pdio-inline" => {
            options.strategy(Strategy::Direct).engine(Engine::Inline);
        }
        "pdio-prealloc" => {
            options.strategy(Strategy::Direct).preallocate(64 << 20);
        }
        "pdio-dontcache" => {
            options.strategy(Strategy::DontCache);
        }
        "pdio-buffered" => {
            options.strategy(Strategy::Buffered);
        }
        "direct" | "buffered" | "dontcache" => {
            let flags = if mode == "direct" { libc::O_DIRECT } else { 0 };
            let file = std::fs::OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .custom_flags(flags)
                .open(path)?;
            for i in 0..total / size {
                let offset = (i * size) as u64;
                if mode == "dontcache" {
                    let iov = libc::iovec {
                        iov_base: data.as_mut_ptr().cast(),
                        iov_len: size,
                    };
                    // SAFETY: `iov` describes `data`.
                    let n = unsafe {
                        libc::pwritev2(
                            file.as_raw_fd(),
                            &iov,
                            1,
                            offset as i64,
                            libc::RWF_DONTCACHE,
                        )
                    };
                    if n != size as isize {
                        return Err(std::io::Error::last_os_error());
                    }
                } else {
                    file.write_all_at(data, offset)?;
                }
            }
            return file.sync_data();
        }
        _ => panic!("no mode {mode}"),
    }
    let mut out = options.open_writer(path)?;
    for _ in 0..total / size {
        out.write_all(data)?;
    }
    out.sync_data()?;
    let stats = out.finish()?;
    if std::env::var_os("V").is_some() {
        eprintln!("{stats:?}");
        eprintln!("{}", pdio::explain(path)?);
    }
    Ok(())
}

fn read(mode: &str, path: &str, size: usize, total: usize) -> std::io::Result<()> {
    let data = aligned(size);
    let mut options = OpenOptions::new();
    let mut sum = 0;
    match mode {
        "pdio" => {}
        "pdio-direct" => {
            options.strategy(Strategy::Direct);
        }
        "pdio-buffered" => {
            options.strategy(Strategy::Buffered);
        }
        _ => {
            let flags = if mode == "direct" { libc::O_DIRECT } else { 0 };
            let mut file = std::fs::OpenOptions::new()
                .read(true)
                .custom_flags(flags)
                .open(path)?;
            while sum < total {
                match file.read(data)? {
                    0 => break,
                    n => sum += n,
                }
            }
            return Ok(());
        }
    }
    let mut file = options.open_reader(path)?;
    while sum < total {
        match file.read(data)? {
            0 => break,
            n => sum += n,
        }
    }
    if std::env::var_os("V").is_some() {
        eprintln!("{:?}", file.stats());
        eprintln!("{}", pdio::explain(path)?);
    }
    Ok(())
}

/// Reads or rewrites blocks at random offsets.
fn random(mode: &str, path: &str, size: usize, total: usize, reading: bool) -> std::io::Result<()> {
    let blocks = std::fs::metadata(path)?.len() / size as u64;
    let data = aligned(size);
    let mut state = 0x2545_f491_4f6c_dd1du64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % blocks * size as u64
    };
    let count = total / size;
    if mode == "pdio" {
        if reading {
            let mut file = OpenOptions::new().open_reader(path)?;
            for _ in 0..count {
                file.read_at(data, next())?;
            }
        } else {
            let mut file = OpenOptions::new().open_writer(path)?;
            for _ in 0..count {
                file.write_at(data, next())?;
            }
            file.sync_data()?;
        }
        return Ok(());
    }
    let flags = if mode == "direct" { libc::O_DIRECT } else { 0 };
    let file = std::fs::OpenOptions::new()
        .read(reading)
        .write(!reading)
        .custom_flags(flags)
        .open(path)?;
    for _ in 0..count {
        match reading {
            true => file.read_exact_at(data, next())?,
            false => file.write_all_at(data, next())?,
        }
    }
    match reading {
        true => Ok(()),
        false => file.sync_data(),
    }
}

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (mut reading, mut randomly, mut mib, mut runs) = (false, false, 512usize, 3usize);
    let mut modes = "buffered,direct,dontcache,pdio".to_string();
    let mut sizes = "512,4096,65536,1048576".to_string();
    let mut path = String::from("sweep.data");
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().unwrap_or_default();
        match argument.as_str() {
            "--read" => reading = true,
            "--random" => randomly = true,
            "--mib" => mib = value().parse().expect("a number"),
            "--runs" => runs = value().parse().expect("a number"),
            "--modes" => modes = value(),
            "--sizes" => sizes = value(),
            _ => path = argument,
        }
    }
    if reading || randomly {
        let mut out = OpenOptions::new()
            .create(true)
            .truncate(true)
            .open_writer(&path)?;
        let data = aligned(1 << 20);
        for i in 0..mib {
            data[0] = i as u8;
            out.write_all(data)?;
        }
        out.sync_data()?;
        out.finish()?;
    }
    for size in sizes
        .split(',')
        .map(|s| s.parse::<usize>().expect("a number"))
    {
        let mut results: Vec<(&str, Vec<[f64; 3]>)> =
            modes.split(',').map(|m| (m, Vec::new())).collect();
        for _ in 0..runs {
            for (mode, samples) in &mut results {
                // The slow ones are cut short.
                let slow = !randomly && *mode == "direct" && size < 65536
                    || *mode == "dontcache" && size < 4096;
                let total = if slow {
                    (mib << 20) * size / 65536
                } else {
                    mib << 20
                };
                if reading || randomly {
                    let file = File::open(&path)?;
                    // SAFETY: no memory is involved.
                    unsafe {
                        libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED)
                    };
                }
                if !reading && !randomly {
                    // Freeing the last run's blocks is not part of this one.
                    let _ = std::fs::remove_file(&path);
                    // SAFETY: no memory is involved.
                    unsafe { libc::sync() };
                }
                let (begun, cpu, user) = (Instant::now(), cpu_ms(), user_ms());
                let outcome = if randomly {
                    random(mode, &path, size, total / 8, reading)
                } else if reading {
                    read(mode, &path, size, total)
                } else {
                    write(mode, &path, size, total)
                };
                outcome.map_err(|e| std::io::Error::new(e.kind(), format!("{mode}: {e}")))?;
                let gib = (if randomly { total / 8 } else { total }) as f64 / (1u64 << 30) as f64;
                samples.push([
                    gib * 1024.0 / begun.elapsed().as_secs_f64(),
                    (cpu_ms() - cpu - (user_ms() - user)) / gib,
                    (user_ms() - user) / gib,
                ]);
            }
        }
        for (mode, samples) in &mut results {
            let [speed, kernel, user] = [0, 1, 2].map(|i| {
                let mut values: Vec<f64> = samples.iter().map(|s| s[i]).collect();
                values.sort_by(f64::total_cmp);
                values[values.len() / 2]
            });
            println!("{size:>8} B  {mode:<14} {speed:>7.0} MiB/s  CPU ms per GiB: kernel {kernel:>7.0}, own {user:>7.0}");
        }
    }
    let _ = std::fs::remove_file(&path);
    Ok(())
}
