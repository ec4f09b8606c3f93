// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a command finds its library and becomes a program that has it preloaded.
//!
//! The program gets everything else as the command did: order of the environment, signal mask,
//! whether SIGPIPE is ignored, and which of descriptors 0 to 2 are closed. Rust's runtime changes the
//! last two before `main`, so they are looked at before that.

use std::env;
use std::ffi::{CString, OsStr, OsString};
use std::fmt::Display;
use std::fs::File;
use std::io::{self, Read};
use std::ops::RangeInclusive;
use std::os::fd::RawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};

/// A name as it is, unless that would be more than one line or do something to a terminal.
pub fn shown(name: impl AsRef<OsStr>) -> String {
    let text = name.as_ref().to_string_lossy();
    if text.contains(char::is_control) {
        return format!("{text:?}");
    }
    text.into_owned()
}

/// Parses the number of an option: what is none of these is answered with what would be one.
pub fn number<T>(these: RangeInclusive<T>) -> impl Fn(&str) -> Result<T, String> + Clone
where
    T: FromStr + PartialOrd + Display + Clone,
{
    move |text| {
        let number = text.parse().ok().filter(|n| these.contains(n));
        let (least, most) = (these.start(), these.end());
        number.ok_or_else(|| format!("not a number from {least} to {most}"))
    }
}

/// The system's own text for an error, without its number.
pub fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    let end = text.rfind(" (os error ").unwrap_or(text.len());
    text[..end].to_owned()
}

/// The file of a library: the one that `variable` names, else `name` beside this command or in
/// `../lib`.
///
/// # Errors
/// A line that says where it was looked for, or what is wrong with what the variable names.
pub fn library(name: &str, variable: &str) -> Result<PathBuf, String> {
    if let Some(named) = env::var_os(variable).filter(|named| !named.is_empty()) {
        let wrong = |why: &str| format!("{variable} names {}: {why}", shown(&named));
        let path = Path::new(&named)
            .canonicalize()
            .map_err(|error| wrong(&reason(&error)))?;
        // The loader passes over it with a line of its own, and the program runs without it.
        return match is_elf(&path) {
            Ok(true) => Ok(path),
            Ok(false) => Err(wrong("not a library")),
            Err(error) => Err(wrong(&reason(&error))),
        };
    }
    let own = env::current_exe()
        .and_then(|own| own.canonicalize())
        .map_err(|error| {
            let why = reason(&error);
            format!("cannot find this command's own place ({why}): name {name} with {variable}")
        })?;
    let here = own.parent().unwrap_or(Path::new("/"));
    [here.join(name), here.join("../lib").join(name)]
        .iter()
        .filter(|path| path.is_file())
        .find_map(|path| path.canonicalize().ok())
        .ok_or_else(|| {
            format!(
                "{name} is neither in {0} nor in {0}/../lib: install it there, or name it with {variable}",
                shown(here.as_os_str())
            )
        })
}

/// Returns true if this file begins as programs and libraries do.
fn is_elf(path: &Path) -> io::Result<bool> {
    // A FIFO would be waited for.
    if !path.is_file() {
        return Ok(false);
    }
    let mut start = Vec::new();
    File::open(path)?.take(4).read_to_end(&mut start)?;
    Ok(start == b"\x7fELF")
}

/// `LD_PRELOAD` with this library before what is there already.
///
/// # Errors
/// A line about a path that the loader would take apart.
pub fn preload(library: &Path, variable: &str) -> Result<OsString, String> {
    let bytes = library.as_os_str().as_bytes();
    // The loader has no way to quote them.
    if bytes.iter().any(|byte| b": \t\n".contains(byte)) {
        return Err(format!(
            "{} has a space or colon in its name, where the loader divides LD_PRELOAD: move it, or \
             name a link to it with {variable}",
            shown(library.as_os_str())
        ));
    }
    let mut list = bytes.to_vec();
    if let Some(others) = env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        list.push(b':');
        list.extend_from_slice(others.as_bytes());
    }
    Ok(OsString::from_vec(list))
}

static PIPE_IGNORED: AtomicBool = AtomicBool::new(false);
static CLOSED: [AtomicBool; 3] = [const { AtomicBool::new(false) }; 3];

/// Looks at what Rust's runtime is about to change.
extern "C" fn look() {
    for (fd, closed) in (0..).zip(&CLOSED) {
        // SAFETY: only asks.
        closed.store(
            unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0,
            Ordering::Relaxed,
        );
    }
    PIPE_IGNORED.store(ignored(libc::SIGPIPE), Ordering::Relaxed);
}

// SAFETY: the C library calls what is here before main, with signals and descriptors as they came.
#[used]
#[link_section = ".init_array"]
static LOOK: extern "C" fn() = look;

/// Returns true if the process ignores a signal.
pub fn ignored(signal: i32) -> bool {
    // SAFETY: sigaction is plain data, for which zeros are valid.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: only asks; `action` is writable.
    unsafe { libc::sigaction(signal, std::ptr::null(), &mut action) };
    action.sa_sigaction == libc::SIG_IGN
}

/// From now on a write past the limit of a file's length fails, as one to a full disk does, instead of ending the process
/// without a word. A program that is started has the signal as this one had: no handler outlives `exec`.
pub fn outlive_file_limit() {
    extern "C" fn nothing(_: i32) {}
    if !ignored(libc::SIGXFSZ) {
        let nothing: extern "C" fn(i32) = nothing;
        // SAFETY: the handler does nothing.
        unsafe { libc::signal(libc::SIGXFSZ, nothing as libc::sighandler_t) };
    }
}

/// Returns true if SIGPIPE was ignored when the command was begun.
pub fn pipe_ignored() -> bool {
    PIPE_IGNORED.load(Ordering::Relaxed)
}

/// Returns true if standard input, output or error (0 to 2) was closed when the command was begun. The
/// runtime has put /dev/null there: nothing would be read, and what is written would be lost, both
/// without an error.
pub fn closed(fd: RawFd) -> bool {
    let closed = usize::try_from(fd).ok().and_then(|fd| CLOSED.get(fd));
    closed.is_some_and(|closed| closed.load(Ordering::Relaxed))
}

/// Becomes `program`, found in PATH if its name has no slash. `words` are its arguments, the first
/// of them the name it is called by; `variables` are set in its environment.
///
/// Returns only if that fails, and why. The variables stay set then.
pub fn exec(program: &OsStr, words: &[OsString], variables: &[(&str, OsString)]) -> io::Error {
    let Ok(program) = CString::new(program.as_bytes()) else {
        return io::ErrorKind::InvalidInput.into();
    };
    let words: Result<Vec<_>, _> = words.iter().map(|w| CString::new(w.as_bytes())).collect();
    let Ok(words) = words else {
        return io::ErrorKind::InvalidInput.into();
    };
    let mut pointers: Vec<_> = words.iter().map(|word| word.as_ptr()).collect();
    pointers.push(std::ptr::null());
    for (name, value) in variables {
        env::set_var(name, value);
    }
    for (fd, closed) in (0..).zip(&CLOSED) {
        if closed.load(Ordering::Relaxed) {
            // SAFETY: the runtime's own descriptor of /dev/null; it stays open if this fails.
            unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
        }
    }
    if !pipe_ignored() {
        // SAFETY: the default action; this command writes nothing any more but why it failed.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    }
    // SAFETY: C strings that live, and a null pointer behind them.
    unsafe { libc::execvp(program.as_ptr(), pointers.as_ptr()) };
    io::Error::last_os_error()
}
