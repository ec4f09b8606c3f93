// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finding libbrug.so, telling whether a program can be preloaded, and setting its environment.

use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fmt};

use nocopy_launch::reason;
use object::elf::{FileHeader64, ELFMAG, PT_INTERP};
use object::read::elf::{FileHeader, ProgramHeader};
use object::Endianness;

/// Exit status when a program was found and cannot be run, as in a shell.
pub const CANNOT_RUN: u8 = 126;
/// Exit status when there is no such program, as in a shell.
pub const NOT_FOUND: u8 = 127;
/// Exit status for everything else that goes wrong before the program starts.
pub const OURS: u8 = 125;

/// One line for the user, and the exit status that goes with it.
#[derive(Debug)]
pub struct Refusal {
    /// What happened and what to do about it; empty if the user knows.
    pub line: String,
    /// Exit status of the command.
    pub status: u8,
}

impl Refusal {
    /// A refusal with this status.
    pub fn new(status: u8, line: impl Into<String>) -> Self {
        Self {
            line: line.into(),
            status,
        }
    }

    /// This signal asked the command to end.
    pub fn signal(signal: i32) -> Self {
        Self::new(128 + signal as u8, "")
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line)
    }
}

/// Names another library than that beside the command.
const VARIABLE: &str = "BRUG_LIBRARY";

/// Where libbrug.so is: what `BRUG_LIBRARY` names, beside this command, or in `../lib`.
pub fn library() -> Result<PathBuf, Refusal> {
    nocopy_launch::library("libbrug.so", VARIABLE).map_err(|line| Refusal::new(OURS, line))
}

/// `LD_PRELOAD` with this library before what is there already.
pub fn preload(library: &Path) -> Result<OsString, Refusal> {
    nocopy_launch::preload(library, VARIABLE).map_err(|line| Refusal::new(OURS, line))
}

/// Returns true if this user may execute this file.
fn executable(file: &Path) -> bool {
    let Ok(name) = CString::new(file.as_os_str().as_bytes()) else {
        return false;
    };
    // SAFETY: a C string.
    unsafe { libc::access(name.as_ptr(), libc::X_OK) == 0 }
}

/// The file that a shell would run for this word.
pub fn find(program: &OsStr) -> Result<PathBuf, Refusal> {
    let name = program.to_string_lossy();
    if program.as_bytes().contains(&b'/') {
        let path = PathBuf::from(program);
        return match fs::metadata(&path) {
            Ok(meta) if meta.is_dir() => {
                Err(Refusal::new(CANNOT_RUN, format!("{name} is a directory")))
            }
            Ok(_) if !executable(&path) => Err(Refusal::new(
                CANNOT_RUN,
                format!("{name} is not executable"),
            )),
            Ok(_) => Ok(path),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(Refusal::new(
                CANNOT_RUN,
                format!("{name}: {}", reason(&error)),
            )),
            Err(error) => Err(Refusal::new(
                NOT_FOUND,
                format!("{name}: {}", reason(&error)),
            )),
        };
    }
    let path = env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    env::split_paths(&path)
        .map(|directory| directory.join(program))
        .find(|file| file.is_file() && executable(file))
        .ok_or_else(|| Refusal::new(NOT_FOUND, format!("{name}: no such program in PATH")))
}

/// Why a program with such rights is refused.
const OWN_RIGHTS: &str =
    "runs with rights of its own (set-user-ID, set-group-ID or capabilities), \
                          where the loader ignores LD_PRELOAD";

/// How many `#!` lines deep a script may be; what Linux allows.
const SCRIPT_DEPTH: usize = 4;

/// The program that this word runs, after a check that the loader will preload into it.
///
/// Follows `#!` lines, because it is the interpreter that gets the library.
pub fn preloadable(program: &OsStr) -> Result<PathBuf, Refusal> {
    let found = find(program)?;
    let mut file = found.clone();
    for _ in 0..SCRIPT_DEPTH {
        let cannot = |why: &str| Refusal::new(CANNOT_RUN, format!("{} {why}", file.display()));
        let mut start = Vec::new();
        // A FIFO would be waited for.
        let opened = File::options()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(&file);
        let opened = match opened {
            Ok(opened) => opened,
            // Executable but not readable: run it, the kernel knows. Programs with rights of their own often are.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return match fs::metadata(&file) {
                    Ok(meta) if changes_rights(&file, &meta) => Err(cannot(OWN_RIGHTS)),
                    _ => Ok(found),
                }
            }
            Err(error) => return Err(cannot(&format!("cannot be opened: {}", reason(&error)))),
        };
        let meta = opened
            .metadata()
            .map_err(|error| cannot(&format!("is lost: {}", reason(&error))))?;
        opened
            .take(1 << 16)
            .read_to_end(&mut start)
            .map_err(|error| cannot(&format!("cannot be read: {}", reason(&error))))?;
        if let Some(interpreter) = script_interpreter(&start) {
            file = interpreter;
            continue;
        }
        if !start.starts_with(&ELFMAG) {
            return Err(cannot("is neither a program nor a script with a #! line"));
        }
        if changes_rights(&file, &meta) {
            return Err(cannot(OWN_RIGHTS));
        }
        match loader(&start) {
            Loader::Ours => return Ok(found),
            // It preloads into the program that it is told to run.
            Loader::None if is_loader(&file) => return Ok(found),
            Loader::None => {
                return Err(cannot(
                    "is statically linked, so there is no loader to preload with",
                ))
            }
            Loader::OtherLibc => return Err(cannot("is not for glibc, which libbrug.so needs")),
            Loader::OtherMachine => {
                return Err(cannot("is for another kind of processor than libbrug.so"))
            }
        }
    }
    Ok(found)
}

/// What a `#!` line names.
fn script_interpreter(start: &[u8]) -> Option<PathBuf> {
    let line = start
        .strip_prefix(b"#!")?
        .split(|&byte| byte == b'\n')
        .next()?;
    let word = line
        .trim_ascii()
        .split(|byte| b" \t".contains(byte))
        .next()?;
    Some(PathBuf::from(OsStr::from_bytes(word)))
}

/// Returns true if the kernel will start this file with AT_SECURE set.
fn changes_rights(file: &Path, meta: &fs::Metadata) -> bool {
    // SAFETY: these have no preconditions.
    let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
    let name = CString::new(file.as_os_str().as_bytes()).unwrap_or_default();
    // SAFETY: C strings; a null buffer of size 0 asks only whether there is such an attribute.
    let capabilities = unsafe {
        libc::getxattr(
            name.as_ptr(),
            c"security.capability".as_ptr(),
            std::ptr::null_mut(),
            0,
        ) > 0
    };
    (meta.mode() & libc::S_ISUID != 0 && meta.uid() != user)
        || (meta.mode() & libc::S_ISGID != 0 && meta.mode() & 0o010 != 0 && meta.gid() != group)
        || (capabilities && user != 0)
}

/// What glibc's loader is called.
#[cfg(target_arch = "x86_64")]
const LOADER: &str = "ld-linux-x86-64.so.2";
#[cfg(target_arch = "aarch64")]
const LOADER: &str = "ld-linux-aarch64.so.1";

/// Returns true if this file is glibc's loader, by its own name or another.
fn is_loader(file: &Path) -> bool {
    let named = |file: &Path| file.file_name() == Some(OsStr::new(LOADER));
    named(file) || file.canonicalize().is_ok_and(|file| named(&file))
}

enum Loader {
    Ours,
    None,
    OtherLibc,
    OtherMachine,
}

/// The loader that the start of an ELF file asks for.
fn loader(start: &[u8]) -> Loader {
    let machine = if cfg!(target_arch = "aarch64") {
        object::elf::EM_AARCH64
    } else {
        object::elf::EM_X86_64
    };
    let Ok(header) = FileHeader64::<Endianness>::parse(start) else {
        return Loader::OtherMachine;
    };
    let Ok(endian) = header.endian() else {
        return Loader::OtherMachine;
    };
    if header.e_machine(endian) != machine {
        return Loader::OtherMachine;
    }
    // What lies past what was read cannot be told; let it run. Tools that add segments to a program, as BOLT, put
    // the list of them at its end.
    let Ok(segments) = header.program_headers(endian, start) else {
        return Loader::Ours;
    };
    for segment in segments {
        if segment.p_type(endian) == PT_INTERP {
            let path = segment.data(endian, start).unwrap_or_default();
            let musl = path.windows(8).any(|part| part == b"/ld-musl");
            return if musl {
                Loader::OtherLibc
            } else {
                Loader::Ours
            };
        }
    }
    Loader::None
}

/// A command for this program and its arguments, with the library in `LD_PRELOAD`.
pub fn command(library: &Path, words: &[OsString]) -> Result<Command, Refusal> {
    let program = preloadable(&words[0])?;
    let mut command = Command::new(&program);
    std::os::unix::process::CommandExt::arg0(&mut command, &words[0]);
    command
        .args(&words[1..])
        .env("LD_PRELOAD", preload(library)?);
    Ok(command)
}

/// Words as a shell reads them from a command line. What is not text, or would do something to a terminal,
/// is written as in bash and the like, `$'…'`.
pub fn for_shell<T: AsRef<OsStr>>(words: &[T]) -> String {
    let bare = |byte: &u8| byte.is_ascii_alphanumeric() || b"%+,-./:=@_".contains(byte);
    let word = |word: &T| {
        let bytes = word.as_ref().as_bytes();
        match std::str::from_utf8(bytes) {
            Ok(text) if !text.is_empty() && bytes.iter().all(bare) => text.to_owned(),
            Ok(text) if !text.contains(char::is_control) => {
                format!("'{}'", text.replace('\'', r"'\''"))
            }
            _ => {
                let part = |&byte: &u8| match byte {
                    b'\'' | b'\\' => format!("\\{}", char::from(byte)),
                    b'\n' => "\\n".to_owned(),
                    b' '..=b'~' => char::from(byte).to_string(),
                    _ => format!("\\x{byte:02x}"),
                };
                format!("$'{}'", bytes.iter().map(part).collect::<String>())
            }
        }
    };
    words.iter().map(word).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_whose_list_of_segments_is_far_behind_is_not_static() {
        let mut program = fs::read("/bin/true").expect("program");
        assert!(matches!(loader(&program), Loader::Ours));
        // `e_phoff`: where the list is.
        let end = program.len() as u64;
        program[32..40].copy_from_slice(&end.to_ne_bytes());
        assert!(matches!(loader(&program), Loader::Ours));
    }

    #[test]
    fn a_shell_reads_the_words_that_were_meant() {
        let words: [&[u8]; 7] = [
            b"python3",
            b"-c",
            b"print('a  b')",
            b"",
            b"$HOME; `id` ~ * \"",
            b"it's\\\n\x1b[m",
            b"\xff9",
        ];
        let words = words.map(OsStr::from_bytes);
        let script = format!("printf '%s\\0' {}", for_shell(&words));
        let read = Command::new("bash").args(["-c", &script]).output();
        let read = read.expect("starts").stdout;
        let expected: Vec<u8> = words
            .iter()
            .flat_map(|w| [w.as_bytes(), b"\0"].concat())
            .collect();
        assert_eq!(read, expected, "{script}");
        assert!(!script.contains(char::is_control));
    }
}
