// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the operands ask for.

use std::ffi::{OsStr, OsString};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use pdio::Strategy;
use rustix::fs::{Advice, OFlags};

use crate::report::{quoted, Fail, Outcome};
use crate::size;

#[derive(Default)]
pub(super) struct Side {
    pub(super) path: Option<PathBuf>,
    pub(super) block: usize,
    pub(super) direct: bool,
    pub(super) nocache: bool,
    /// `O_*` to open with.
    pub(super) flags: u32,
    /// True if `skip` or `seek` counts bytes.
    pub(super) bytes: bool,
    /// Where to begin, in blocks or bytes.
    pub(super) begin: u64,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Status {
    #[default]
    All,
    None,
    NoXfer,
    Progress,
}

#[derive(Default)]
pub(super) struct Plan {
    pub(super) input: Side,
    pub(super) output: Side,
    /// One block size for both: input blocks are written as they come.
    pub(super) same_block: bool,
    pub(super) count: Option<u64>,
    pub(super) count_bytes: bool,
    pub(super) fullblock: bool,
    pub(super) notrunc: bool,
    pub(super) excl: bool,
    pub(super) nocreat: bool,
    pub(super) sparse: bool,
    pub(super) pad: bool,
    pub(super) noerror: bool,
    pub(super) fdatasync: bool,
    pub(super) fsync: bool,
    pub(super) status: Status,
}

pub(super) fn usage<T>(text: impl Into<String>) -> Outcome<T> {
    Err(Fail::Usage(text.into()))
}

/// What --help would not help with.
fn refused<T>(text: impl Into<String>) -> Outcome<T> {
    Err(Fail::Refused(2, text.into()))
}

impl Plan {
    pub(super) fn parse(operands: &[OsString]) -> Outcome<Plan> {
        let mut plan = Plan::default();
        let (mut ibs, mut obs, mut bs) = (512, 512, None);
        // Whether count, skip and seek were given in bytes; flags can say so too.
        let mut counts = (false, false, false);
        for operand in operands {
            // The names of files may be any bytes.
            let bytes = operand.as_bytes();
            match bytes.split_at_checked(3) {
                Some((b"if=", path)) => {
                    plan.input.path = Some(OsStr::from_bytes(path).into());
                    continue;
                }
                Some((b"of=", path)) => {
                    plan.output.path = Some(OsStr::from_bytes(path).into());
                    continue;
                }
                _ => {}
            }
            let Some((name, value)) = operand.to_str().and_then(|text| text.split_once('=')) else {
                return usage(format!(
                    "unrecognized operand {}: operands are name=value",
                    quoted(operand)
                ));
            };
            let number = || {
                size::parse(value).map_err(|text| Fail::Usage(format!("{name}={value}: {text}")))
            };
            let block = || match isize::try_from(number()?) {
                Ok(0) => usage(format!("{name}={value}: a block has at least one byte")),
                Ok(n) => Ok(n as usize),
                Err(_) => usage(format!(
                    "{name}={value}: a block has at most {} bytes",
                    isize::MAX
                )),
            };
            let in_bytes = value.contains('B');
            match name {
                "bs" => bs = Some(block()?),
                "ibs" => ibs = block()?,
                "obs" => obs = block()?,
                "count" => (plan.count, counts.0) = (Some(number()?), in_bytes),
                "skip" | "iseek" => (plan.input.begin, counts.1) = (number()?, in_bytes),
                "seek" | "oseek" => (plan.output.begin, counts.2) = (number()?, in_bytes),
                "conv" => plan.conversions(value)?,
                "iflag" => plan.flags(value, true)?,
                "oflag" => plan.flags(value, false)?,
                "status" => {
                    plan.status = match value {
                        "none" => Status::None,
                        "noxfer" => Status::NoXfer,
                        "progress" => Status::Progress,
                        _ => {
                            return usage(format!(
                                "status={value}: it can be none, noxfer or progress"
                            ))
                        }
                    }
                }
                "cbs" => return refused(
                    "cbs=: blocks go from file to file as they are, so no record is converted; \
                         use dd for that",
                ),
                _ => return usage(format!("unrecognized operand {}", quoted(operand))),
            }
        }
        if plan.excl && plan.nocreat {
            return usage("conv=excl (create it) and conv=nocreat (do not) exclude each other");
        }
        if plan.input.direct && plan.input.nocache || plan.output.direct && plan.output.nocache {
            return usage(
                "direct (past the page cache) and nocache (through it) exclude each other",
            );
        }
        plan.count_bytes |= counts.0;
        plan.input.bytes |= counts.1;
        plan.output.bytes |= counts.2;
        plan.same_block = bs.is_some();
        plan.input.block = bs.unwrap_or(ibs);
        plan.output.block = bs.unwrap_or(obs);
        for side in [&plan.input, &plan.output] {
            let begin = match side.bytes {
                true => Some(side.begin),
                false => side.begin.checked_mul(side.block as u64),
            };
            if begin.is_none_or(|at| i64::try_from(at).is_err()) {
                return usage(format!(
                    "{} blocks of {} bytes are beyond what a file can have",
                    side.begin, side.block
                ));
            }
        }
        Ok(plan)
    }

    /// True if the output is emptied first, so that there is nothing to append to.
    pub(super) fn appends_to_nothing(&self) -> bool {
        self.output.flags & OFlags::APPEND.bits() != 0 && !self.notrunc
    }

    /// True if fewer bytes are copied than were probably meant where the input gives short blocks.
    pub(super) fn counts_short_blocks(&self) -> bool {
        let counts = self.count.is_some() || self.input.begin > 0;
        counts && self.same_block && !self.fullblock && self.status != Status::None
    }

    fn conversions(&mut self, list: &str) -> Outcome {
        for word in list.split(',') {
            match word {
                "notrunc" => self.notrunc = true,
                "excl" => self.excl = true,
                "nocreat" => self.nocreat = true,
                "sparse" => self.sparse = true,
                "sync" => self.pad = true,
                "noerror" => self.noerror = true,
                "fdatasync" => self.fdatasync = true,
                "fsync" => self.fsync = true,
                "ascii" | "ebcdic" | "ibm" | "block" | "unblock" | "lcase" | "ucase" | "swab" => {
                    return refused(format!(
                        "conv={word}: blocks go from file to file as they are, so no character is \
                         converted; pipe through dd or tr for that"
                    ))
                }
                _ => return usage(format!("invalid conversion: {}", quoted(word))),
            }
        }
        Ok(())
    }

    fn flags(&mut self, list: &str, input: bool) -> Outcome {
        let which = if input { "iflag" } else { "oflag" };
        for word in list.split(',') {
            let side = if input {
                &mut self.input
            } else {
                &mut self.output
            };
            match word {
                "direct" => side.direct = true,
                "nocache" => side.nocache = true,
                "dsync" => side.flags |= OFlags::DSYNC.bits(),
                "sync" => side.flags |= OFlags::SYNC.bits(),
                "nonblock" => side.flags |= OFlags::NONBLOCK.bits(),
                "noatime" => side.flags |= OFlags::NOATIME.bits(),
                "noctty" => side.flags |= OFlags::NOCTTY.bits(),
                "nofollow" => side.flags |= OFlags::NOFOLLOW.bits(),
                "append" if !input => side.flags |= OFlags::APPEND.bits(),
                "fullblock" if input => self.fullblock = true,
                "count_bytes" if input => self.count_bytes = true,
                "skip_bytes" if input => side.bytes = true,
                "seek_bytes" if !input => side.bytes = true,
                // Of the other side, as with GNU dd.
                "count_bytes" | "skip_bytes" | "seek_bytes" => {}
                "directory" | "cio" | "binary" | "text" => {
                    return usage(format!(
                        "{which}={word} means nothing here; use dd for that"
                    ))
                }
                _ => return usage(format!("invalid {which}: {}", quoted(word))),
            }
        }
        Ok(())
    }
}

impl Side {
    pub(super) fn strategy(&self, write: bool) -> Strategy {
        match (self.direct, self.nocache && write) {
            (true, _) => Strategy::Direct,
            (_, true) => Strategy::DontCache,
            _ => Strategy::Auto,
        }
    }

    /// True unless `nonblock` was asked for: then what would wait is an error.
    pub(super) fn may_wait(&self) -> bool {
        self.flags & OFlags::NONBLOCK.bits() == 0
    }

    pub(super) fn begin_bytes(&self) -> u64 {
        match self.bytes {
            true => self.begin,
            false => self.begin * self.block as u64,
        }
    }

    /// Drops `[from, to)` from the page cache; everything from `from` on without `to`.
    pub(super) fn drop_cache(&self, fd: BorrowedFd<'_>, from: u64, to: Option<u64>) {
        if self.nocache {
            let length = to.and_then(|to| std::num::NonZeroU64::new(to.saturating_sub(from)));
            // Advice; a pipe has no page cache.
            let _ = rustix::fs::fadvise(fd, from, length, Advice::DontNeed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(operands: &[&str]) -> Outcome<Plan> {
        Plan::parse(&operands.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn bs_wins_over_ibs_and_obs() {
        let plan = plan(&["ibs=1", "bs=4k", "obs=2"]).ok().unwrap();
        assert!(plan.same_block);
        assert_eq!((plan.input.block, plan.output.block), (4096, 4096));
    }

    #[test]
    fn operands_that_contradict_or_mean_nothing_are_usage_errors() {
        for operands in [
            &["conv=excl,nocreat"][..],
            &["iflag=direct,nocache"],
            &["bs=0"],
            &["bs="],
            &["conv=nothing"],
            &["iflag=append"],
            &["oflag=fullblock"],
            &["status=loud"],
            &["skip=16E", "bs=1M"],
            &["file"],
            &["of"],
            &["xf=1"],
        ] {
            assert!(
                matches!(plan(operands), Err(Fail::Usage(_))),
                "{operands:?}"
            );
        }
    }

    #[test]
    fn a_conversion_of_characters_is_refused_in_one_line_that_says_why() {
        for operands in ["conv=ebcdic", "conv=fsync,swab", "cbs=80"] {
            let Err(Fail::Refused(2, text)) = plan(&[operands]) else {
                panic!("{operands}");
            };
            assert!(text.contains("as they are, so no ") && !text.contains('\n'));
        }
    }
}
