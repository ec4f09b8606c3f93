// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waiting for a program with something to put away afterwards, whatever signals come.

use std::ffi::c_int;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};
use std::{mem, ptr};

/// By these somebody asks a command to end.
const ENDING: [c_int; 4] = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM];

/// How a program ended.
pub enum Ended {
    /// By itself, or by a signal that this command has not got.
    Program(ExitStatus),
    /// By a signal, after this command was asked by this one to end.
    Signal(c_int),
}

/// While this lives, a signal that asks to end does not end this command. Those that were ignored
/// before still are.
pub struct Held {
    before: libc::sigset_t,
    awaited: libc::sigset_t,
    ends: Ends,
}

/// While this lives, the system tells of the ends of children. Where SIGCHLD is ignored, as somebody may
/// have done before this command, it tells of none.
pub struct Ends(libc::sigaction);

impl Ends {
    /// Has them told.
    pub fn new() -> Ends {
        // SAFETY: an action is plain data, for which zeros are valid and the default; both are valid places.
        unsafe {
            let (default, mut before): (libc::sigaction, libc::sigaction) = mem::zeroed();
            libc::sigaction(libc::SIGCHLD, &default, &mut before);
            Ends(before)
        }
    }

    /// Lets the program ignore its children's ends if this command was to. Else it is begun without a fork,
    /// whose memory would count as the program's.
    pub fn hand_on(&self, command: &mut Command) {
        let before = self.0;
        if before.sa_sigaction == libc::SIG_IGN {
            // SAFETY: may be called between fork and exec, and gets valid data.
            unsafe {
                command.pre_exec(move || {
                    libc::sigaction(libc::SIGCHLD, &before, ptr::null_mut());
                    Ok(())
                })
            };
        }
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        // SAFETY: what was in force before.
        unsafe { libc::sigaction(libc::SIGCHLD, &self.0, ptr::null_mut()) };
    }
}

impl Held {
    /// Holds the signals back.
    pub fn new() -> Held {
        // SAFETY: sets and actions are plain data, for which zeros are valid; all calls get valid ones.
        unsafe {
            let (before, awaited) = mem::zeroed();
            let mut held = Held {
                before,
                awaited,
                ends: Ends::new(),
            };
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
    /// the leader of its session gets. When to end is the program's to say.
    ///
    /// # Errors
    /// Those of starting it.
    pub fn run(&self, command: &mut Command) -> io::Result<Ended> {
        let before = self.before;
        self.ends.hand_on(command);
        // SAFETY: may be called between fork and exec, and gets valid data.
        unsafe {
            command.pre_exec(move || {
                libc::pthread_sigmask(libc::SIG_SETMASK, &before, ptr::null_mut());
                Ok(())
            })
        };
        let mut child = command.spawn()?;
        // SAFETY: no preconditions.
        let leader = unsafe { libc::getsid(0) == libc::getpid() };
        let mut asked = None;
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
                if about.si_code <= 0 || (leader && signal == libc::SIGHUP) {
                    // SAFETY: a process that has not been waited for, so the number is still its own.
                    unsafe { libc::kill(child.id() as libc::pid_t, signal) };
                }
            } else if let Some(status) = child.try_wait()? {
                return Ok(match asked.filter(|_| status.signal().is_some()) {
                    Some(signal) => Ended::Signal(signal),
                    None => Ended::Program(status),
                });
            }
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: what was in force before. A signal that has come since ends this command now.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, ptr::null_mut()) };
    }
}
