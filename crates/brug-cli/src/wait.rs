// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waiting for a program with something to put away afterwards, whatever signals come.

use std::ffi::c_int;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};
use std::time::Duration;
use std::{fs, io, mem, ptr, thread};

/// By these somebody asks a command to end.
const ENDING: [c_int; 4] = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM];

/// What ends with a program may take so long, in steps.
const STEP: Duration = Duration::from_millis(10);
const STEPS: usize = 20;

/// How a program ended.
pub enum Ended {
    /// By itself, or by a signal that this command has not got. It may have been asked to end by this one.
    Program(ExitStatus, Option<c_int>),
    /// By a signal, after this command was asked by this one to end.
    Signal(c_int),
}

/// While this lives, a signal that asks to end does not end this command. Those that were ignored
/// before still are. And the system tells of the ends of children, of which it tells none where SIGCHLD is ignored, as
/// somebody may have done before this command; what a program starts and does not wait for is this command's child.
pub struct Held {
    before: libc::sigset_t,
    awaited: libc::sigset_t,
    child: libc::sigaction,
    /// Children that this command began with.
    others: usize,
}

/// Adds up what two processes have used, one beside the other.
fn add(to: &mut libc::rusage, other: &libc::rusage) {
    for (to, other) in [
        (&mut to.ru_utime, &other.ru_utime),
        (&mut to.ru_stime, &other.ru_stime),
    ] {
        to.tv_sec += other.tv_sec;
        to.tv_usec += other.tv_usec;
    }
    to.ru_minflt += other.ru_minflt;
    to.ru_majflt += other.ru_majflt;
    to.ru_maxrss = to.ru_maxrss.max(other.ru_maxrss);
}

/// A child that has ended, with its status and what it has used; nothing if all that there are run.
///
/// # Errors
/// If there is none.
fn reap() -> io::Result<Option<(libc::pid_t, c_int, libc::rusage)>> {
    let mut status = 0;
    // SAFETY: numbers, for which zeros are valid.
    let mut usage: libc::rusage = unsafe { mem::zeroed() };
    // SAFETY: both places are valid for writes.
    match unsafe { libc::wait4(-1, &mut status, libc::WNOHANG, &mut usage) } {
        0 => Ok(None),
        child @ 1.. => Ok(Some((child, status, usage))),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Children that run. Waits for those that have ended, and adds what they have used.
fn children(used: &mut libc::rusage) -> usize {
    loop {
        match reap() {
            Ok(Some((_, _, usage))) => add(used, &usage),
            Ok(None) => break,
            Err(_) => return 0,
        }
    }
    let own = std::process::id().to_string();
    // "12 (name) S 34", where the name may have parentheses, but what comes after it has not: proc(5).
    let runs = |stat: &Vec<u8>| {
        // The kernel cuts names, also within a character.
        let stat = String::from_utf8_lossy(stat);
        let words = stat.rsplit(')').next().unwrap_or_default();
        let mut words = words.split_whitespace();
        words.next() != Some("Z") && words.next() == Some(&own)
    };
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let stats = processes.filter_map(|entry| fs::read(entry.path().join("stat")).ok());
    // One is there, also if it cannot be seen.
    stats.filter(runs).count().max(1)
}

impl Held {
    /// Holds the signals back.
    pub fn new() -> Held {
        // SAFETY: sets and actions are plain data, for which zeros are valid; all calls get valid ones.
        unsafe {
            let (before, awaited, child) = mem::zeroed();
            let mut of_others = mem::zeroed();
            let mut held = Held {
                before,
                awaited,
                child,
                others: 0,
            };
            let default: libc::sigaction = mem::zeroed();
            libc::sigaction(libc::SIGCHLD, &default, &mut held.child);
            libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
            held.others = children(&mut of_others);
            libc::sigemptyset(&mut held.awaited);
            libc::sigaddset(&mut held.awaited, libc::SIGCHLD);
            for signal in ENDING {
                let mut action: libc::sigaction = mem::zeroed();
                libc::sigaction(signal, ptr::null(), &mut action);
                if action.sa_sigaction != libc::SIG_IGN {
                    libc::sigaddset(&mut held.awaited, signal);
                }
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &held.awaited, &mut held.before);
            held
        }
    }

    /// Runs a program, which gets the signals as this command got them. The terminal sends its own
    /// to both; those of other processes are passed on, and that of a terminal that hangs up, which only
    /// the leader of its session gets. When to end is the program's to say. Returns what it and the children that it
    /// waited for have used as well.
    ///
    /// # Errors
    /// Those of starting it.
    pub fn run(&self, command: &mut Command) -> io::Result<(Ended, libc::rusage)> {
        let (before, child) = (self.before, self.child);
        // SAFETY: may be called between fork and exec, and gets valid data.
        unsafe {
            command.pre_exec(move || {
                if child.sa_sigaction == libc::SIG_IGN {
                    libc::sigaction(libc::SIGCHLD, &child, ptr::null_mut());
                }
                if nocopy_launch::pipe_ignored() {
                    libc::signal(libc::SIGPIPE, libc::SIG_IGN);
                }
                libc::pthread_sigmask(libc::SIG_SETMASK, &before, ptr::null_mut());
                Ok(())
            })
        };
        let child = command.spawn()?.id() as libc::pid_t;
        // SAFETY: no preconditions.
        let leader = unsafe { libc::getsid(0) == libc::getpid() };
        let mut asked = None;
        // SAFETY: numbers, for which zeros are valid.
        let mut orphans: libc::rusage = unsafe { mem::zeroed() };
        loop {
            // SAFETY: zeros are a valid description of a signal.
            let mut about: libc::siginfo_t = unsafe { mem::zeroed() };
            // SAFETY: a set, and a place to write to.
            let signal = unsafe { libc::sigwaitinfo(&self.awaited, &mut about) };
            if signal < 0 {
                continue;
            }
            if signal != libc::SIGCHLD {
                asked = Some(signal);
                // A terminal sends to this command's group alone, which the program may have left (timeout, setsid).
                // SAFETY: no preconditions.
                let apart = unsafe { libc::getpgid(child) != libc::getpgrp() };
                if about.si_code <= 0 || apart || (leader && signal == libc::SIGHUP) {
                    // SAFETY: a process that has not been waited for, so the number is still its own.
                    unsafe { libc::kill(child, signal) };
                }
                continue;
            }
            // What the program left to this command goes as well: the program may wait for that.
            while let Some((ended, status, mut usage)) = reap()? {
                if ended != child {
                    add(&mut orphans, &usage);
                    continue;
                }
                let status = ExitStatus::from_raw(status);
                let ended = match asked.filter(|_| status.signal().is_some()) {
                    Some(signal) => Ended::Signal(signal),
                    None => Ended::Program(status, asked),
                };
                add(&mut usage, &orphans);
                return Ok((ended, usage));
            }
        }
    }

    /// Says how many processes that a program started run on after its end, if there are any. What they use is not
    /// known; what those have used that have ended without being waited for is added.
    pub fn left(&self, used: &mut libc::rusage) -> Option<String> {
        let left = (0..STEPS).try_fold(0, |_, _| {
            let left = children(used).saturating_sub(self.others);
            if left > 0 {
                thread::sleep(STEP);
            }
            (left > 0).then_some(left)
        })?;
        let (processes, run) = if left == 1 {
            ("process", "runs")
        } else {
            ("processes", "run")
        };
        Some(format!(
            "{left} {processes} that the program started still {run} and cannot be counted, so there is no verdict"
        ))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: what was in force before. A signal that has come since ends this command now.
        unsafe {
            libc::sigaction(libc::SIGCHLD, &self.child, ptr::null_mut());
            libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, ptr::null_mut());
        }
    }
}
