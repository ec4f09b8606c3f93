// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waits for what other processes have to say, until they end or a signal asks for the end of all.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::{kill_process, Pid, Signal};

use crate::report::{Fail, Outcome};
use crate::signals::Signals;

/// How a process ended, and what it has said.
pub struct Output {
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

/// Runs a command to its end, as [`Command::output`] does, but that its errors are kept only if they are piped. Of
/// these there may be as many as a pipe holds. A signal that asks to end is passed on to it.
///
/// # Errors
/// [`Fail::Signal`]; within, why it could not be run.
pub fn output(command: &mut Command, signals: &Signals) -> Outcome<io::Result<Output>> {
    signals.check()?;
    let begun = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut child = match begun {
        Ok(child) => child,
        Err(error) => return Ok(Err(error)),
    };
    let said = listen(&mut child, signals);
    if let Some(signal) = signals.ended() {
        // It may have got the signal as well, from a terminal.
        if let Some(named) = Signal::from_named_raw(signal) {
            let _ = kill_process(Pid::from_child(&child), named);
        }
        let _ = child.wait();
        return Err(Fail::Signal(signal));
    }
    Ok(child.wait().and_then(|status| {
        let (stdout, stderr) = said?;
        Ok(Output {
            status,
            stdout,
            stderr,
        })
    }))
}

/// Reads what a process says until it says no more, or a signal comes.
fn listen(child: &mut Child, signals: &Signals) -> io::Result<(Vec<u8>, Vec<u8>)> {
    let (mut results, mut errors) = (Vec::new(), Vec::new());
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    if let Some(mut stdout) = stdout {
        let mut buffer = [0; 64 << 10];
        while signals.ended().is_none() {
            let ready = signals.ready(stdout.as_fd(), false, None);
            match ready.and_then(|()| stdout.read(&mut buffer)) {
                Ok(0) => break,
                Ok(n) => results.extend_from_slice(&buffer[..n]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
    if let Some(mut stderr) = stderr.filter(|_| signals.ended().is_none()) {
        stderr.read_to_end(&mut errors)?;
    }
    Ok((results, errors))
}
