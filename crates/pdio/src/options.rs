// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the caller may choose.

use std::time::Duration;

/// Requests in flight at a time, at most.
pub(crate) const MAX_DEPTH: usize = 16;
/// Memory of a stream, at most, in bytes.
pub(crate) const MOST_MEMORY: usize = 1 << 30;

/// What a returned `write` promises. In every mode an error of a deferred write is reported by a
/// later call, exactly once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub enum Durability {
    /// Data may sit in the memory of this process, as in a `BufWriter`, until
    /// [`flush`](std::io::Write::flush), [`finish`](crate::Writer::finish), a sync or the
    /// [linger](OpenOptions::linger) time. A killed process loses that much.
    #[default]
    Process,
    /// Data is with the kernel when `write` returns, as with `write(2)`: killing the process loses
    /// nothing, a power cut loses what was not synced. Small writes then pass through the page
    /// cache; large ones still go straight to the device.
    Safe,
    /// Data is on stable storage when `write` returns, as with `O_DSYNC`.
    Sync,
}

/// Which way the data takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub enum Strategy {
    /// Whatever was found cheapest for this device, direction and pattern.
    #[default]
    Auto,
    /// Straight between memory and device (`O_DIRECT`) where the file allows it.
    Direct,
    /// Through the page cache, pages dropped once written (`RWF_DONTCACHE`, Linux 6.14).
    DontCache,
    /// Through the page cache.
    Buffered,
}

/// How requests reach the kernel. Each falls back to the next when the system does not allow it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub enum Engine {
    /// The first below that works; for a file that grows, one thread that goes from request to
    /// request, as the kernel lets no two of them run at a time.
    #[default]
    Auto,
    /// io_uring with registered buffers and file.
    UringFixed,
    /// io_uring without registration.
    Uring,
    /// Two threads per stream; one for a file that grows.
    Threads,
    /// The calling thread: one request at a time.
    Inline,
}

/// How to open a stream; in the manner of [`std::fs::OpenOptions`].
///
/// ```no_run
/// use std::io::Write;
/// let mut out = pdio::OpenOptions::new().create(true).truncate(true).open_writer("data")?;
/// out.write_all(b"any block size, any alignment")?;
/// out.sync_data()?;
/// let stats = out.finish()?;
/// assert_eq!(stats.bytes, 29);
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Debug)]
pub struct OpenOptions {
    pub(crate) create: bool,
    pub(crate) create_new: bool,
    pub(crate) truncate: bool,
    pub(crate) mode: u32,
    pub(crate) durability: Durability,
    pub(crate) strategy: Strategy,
    pub(crate) engine: Engine,
    pub(crate) memory_limit: usize,
    pub(crate) in_turn: bool,
    pub(crate) in_order: bool,
    pub(crate) block_size: usize,
    pub(crate) queue_depth: usize,
    pub(crate) preallocate: u64,
    pub(crate) linger: Option<Duration>,
    /// Measure this one of the policy's choices.
    pub(crate) only: Option<usize>,
}

impl Default for OpenOptions {
    fn default() -> Self {
        OpenOptions::new()
    }
}

impl OpenOptions {
    /// Nothing is created or truncated; [`Durability::Process`], [`Strategy::Auto`], 8 MiB.
    pub fn new() -> OpenOptions {
        OpenOptions {
            create: false,
            create_new: false,
            truncate: false,
            mode: 0o666,
            durability: Durability::Process,
            strategy: Strategy::Auto,
            engine: Engine::Auto,
            memory_limit: 8 << 20,
            in_turn: false,
            in_order: false,
            block_size: 1 << 20,
            queue_depth: 4,
            preallocate: 0,
            linger: Some(Duration::from_millis(50)),
            only: None,
        }
    }

    /// Creates the file if it does not exist (writers only).
    pub fn create(&mut self, yes: bool) -> &mut Self {
        self.create = yes;
        self
    }

    /// Creates the file and fails if it exists (writers only).
    pub fn create_new(&mut self, yes: bool) -> &mut Self {
        self.create_new = yes;
        self
    }

    /// Empties an existing file (writers only).
    pub fn truncate(&mut self, yes: bool) -> &mut Self {
        self.truncate = yes;
        self
    }

    /// The permission bits of a created file, before the umask; `0o666` by default.
    pub fn mode(&mut self, bits: u32) -> &mut Self {
        self.mode = bits;
        self
    }

    /// What a returned `write` promises.
    pub fn durability(&mut self, durability: Durability) -> &mut Self {
        self.durability = durability;
        self
    }

    /// Which way the data takes. Anything but [`Strategy::Auto`] overrides the learned policy;
    /// where the file does not allow the choice, the next gentler one is used and
    /// [`Stats::strategy`](crate::Stats::strategy) says so.
    pub fn strategy(&mut self, strategy: Strategy) -> &mut Self {
        self.strategy = strategy;
        self
    }

    /// How requests reach the kernel.
    pub fn engine(&mut self, engine: Engine) -> &mut Self {
        self.engine = engine;
        self
    }

    /// Maximum memory of the stream, in bytes; 8 MiB by default. Rounded down to a power of
    /// two; below 512 KiB the stream stages nothing and every call goes to the kernel. All streams
    /// of the process together use at most 64 MiB or 5 % of the available memory, whichever is less
    /// (a 256th of the machine's in any case);
    /// one stream gets at most a quarter of what is left of that.
    pub fn memory_limit(&mut self, bytes: usize) -> &mut Self {
        let log = bytes.min(MOST_MEMORY).checked_ilog2();
        self.memory_limit = log.map_or(0, |log| 1 << log);
        self
    }

    /// For streams that follow each other, each opened before the last has ended: as much memory as the
    /// first gets, up to a quarter of all, not of what is left.
    #[doc(hidden)]
    pub fn in_turn(&mut self, yes: bool) -> &mut Self {
        self.in_turn = yes;
        self
    }

    /// Where a file is overwritten, too, one request goes after the other, as where it grows: of a killed process no write is
    /// there without those before it, but one that goes back into what still waits goes with that.
    #[doc(hidden)]
    pub fn in_order(&mut self, yes: bool) -> &mut Self {
        self.in_order = yes;
        self
    }

    /// The size at which requests are sent, in bytes; 1 MiB by default. Rounded to a power of two
    /// from 64 KiB to a quarter of the memory limit.
    pub fn block_size(&mut self, bytes: usize) -> &mut Self {
        self.block_size = bytes.min(MOST_MEMORY);
        self
    }

    /// Requests in flight at a time, 1 to 16; 4 by default. A file that grows is written by one
    /// after the other, of up to half the memory each: file systems serialise growth, and the
    /// order keeps what a crash leaves a prefix of the stream.
    pub fn queue_depth(&mut self, requests: usize) -> &mut Self {
        self.queue_depth = requests.clamp(1, MAX_DEPTH);
        self
    }

    /// Reserves blocks ahead of a growing file in steps of `bytes`; the file's size does not
    /// change. What is left over is released when the last writer of the file in this process
    /// [finishes](crate::Writer::finish) or is dropped. Zero, the default, reserves nothing. Only for files that no other process extends.
    pub fn preallocate(&mut self, bytes: u64) -> &mut Self {
        self.preallocate = bytes;
        self
    }

    /// How long written data may idle in memory before a background thread hands it to the kernel
    /// ([`Durability::Process`] only); 50 ms by default, `None` for as long as it takes. Data
    /// that keeps streaming is handed over as blocks fill.
    ///
    /// Of a reader: how old what it has read ahead may be when another process changes the file. Block devices
    /// have no times, so of these it has no bound.
    pub fn linger(&mut self, time: Option<Duration>) -> &mut Self {
        self.linger = time;
        self
    }
}
