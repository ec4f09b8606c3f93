// SPDX-License-Identifier: MIT OR Apache-2.0
//! What commands that are made with clap say about themselves: on standard output, and in manual pages and
//! completions where a system keeps them.
#![forbid(unsafe_code)]

use std::env;
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
use clap::{Command, Parser};
use clap_complete::Shell;

/// Where each shell looks, below `share`.
const COMPLETIONS: [(Shell, &str); 3] = [
    (Shell::Bash, "bash-completion/completions"),
    (Shell::Zsh, "zsh/site-functions"),
    (Shell::Fish, "fish/vendor_completions.d"),
];

/// Prints the help or version that was asked for.
///
/// # Errors
/// If standard output takes less than that. A pipe that nobody reads any more is none: whoever closed it has
/// read what he wanted.
pub fn show(text: &clap::Error) -> io::Result<()> {
    let printed = if nocopy_launch::closed(1) {
        Err(io::Error::from_raw_os_error(libc::EBADF))
    } else {
        text.print().and_then(|()| io::stdout().flush())
    };
    printed.or_else(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => Ok(()),
        _ => Err(error),
    })
}

/// What is wrong, without the usage and hints that follow after an empty line.
pub fn in_one_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let what = text.split("\n\n").next().unwrap_or_default();
    let lines: Vec<&str> = what.lines().map(str::trim).collect();
    lines.join(" ").trim_start_matches("error: ").to_owned()
}

/// The command line, unless it is wrong or asks for help.
///
/// # Errors
/// The exit status: 0 when help has been printed, 1 if it could not be, 2 if the command line is wrong. What is
/// wrong has been said.
pub fn parse<C: Parser>() -> Result<C, ExitCode> {
    C::try_parse().map_err(|text| {
        let name = C::command().get_name().to_owned();
        if text.use_stderr() {
            // Nobody is left to tell if that fails.
            let _ = if text.kind() == DisplayHelpOnMissingArgumentOrSubcommand {
                text.print()
            } else {
                let what = in_one_line(&text);
                let whose =
                    match C::command().find_subcommand(env::args_os().nth(1).unwrap_or_default()) {
                        Some(command) => format!("{name} {}", command.get_name()),
                        None => name.clone(),
                    };
                writeln!(io::stderr(), "{whose}: {what}\nTry '{whose} --help'.")
            };
            return ExitCode::from(2);
        }
        let Err(error) = show(&text) else {
            return ExitCode::SUCCESS;
        };
        let why = nocopy_launch::reason(&error);
        let _ = writeln!(
            io::stderr(),
            "{name}: cannot write to 'standard output': {why}"
        );
        ExitCode::FAILURE
    })
}

/// Writes a manual page for the command and one for each subcommand that is not hidden, and
/// completions for bash, zsh and fish, below `share` (as `/usr/local/share`).
///
/// # Errors
/// Those of making directories and files.
pub fn write(command: Command, share: &Path) -> io::Result<()> {
    let mut command = without_help(command);
    for (shell, place) in COMPLETIONS {
        let name = command.get_name().to_owned();
        let place = share.join(place);
        fs::create_dir_all(&place)?;
        clap_complete::generate_to(shell, &mut command, name, place)?;
    }
    let manual = share.join("man/man1");
    fs::create_dir_all(&manual)?;
    command.build();
    manual_pages(command, &manual)
}

fn manual_pages(mut command: Command, directory: &Path) -> io::Result<()> {
    for below in command.get_subcommands().filter(|c| !c.is_hide_set()) {
        manual_pages(below.clone(), directory)?;
    }
    let usage = command.render_usage().to_string();
    let page = clap_mangen::Man::new(command);
    let mut text = Vec::new();
    page.render(&mut text)?;
    let text = as_written(&with_synopsis(&String::from_utf8_lossy(&text), &usage));
    fs::write(directory.join(page.get_filename()), text)
}

/// The page with the usage that `--help` shows: `clap_mangen` makes one up from the arguments.
fn with_synopsis(page: &str, usage: &str) -> String {
    const HEAD: &str = ".SH SYNOPSIS\n";
    let usage = usage.trim_start_matches("Usage: ");
    let usage = usage.replace('\\', "\\\\").replace('-', "\\-");
    let Some((before, rest)) = page.split_once(HEAD) else {
        return page.to_owned();
    };
    let after = rest.find("\n.SH ").map_or("", |end| &rest[end + 1..]);
    format!("{before}{HEAD}{usage}\n{after}")
}

/// The page with the lists and examples that follow the options as `--help` has them: `man` would
/// fill their lines.
fn as_written(page: &str) -> String {
    const HEAD: &str = "\n.SH EXTRA\n";
    let Some((before, rest)) = page.split_once(HEAD) else {
        return page.to_owned();
    };
    let (notes, after) = rest.split_at(rest.find("\n.SH ").unwrap_or(rest.trim_end().len()));
    let paragraphs = notes.split("\n\n").map(|one| match one.contains("\n ") {
        true => format!(".nf\n{one}\n.fi"),
        false => one.to_owned(),
    });
    let notes = paragraphs.collect::<Vec<_>>().join("\n\n");
    format!("{before}\n.SH NOTES\n.in 0\n{notes}{after}")
}

/// `help` repeats each command below itself, and needs no pages.
fn without_help(command: Command) -> Command {
    command
        .disable_help_subcommand(true)
        .mut_subcommands(without_help)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Arg;

    #[test]
    fn a_page_for_each_command_and_a_completion_for_each_shell() {
        let command = Command::new("tool")
            .version("1.2.3")
            .subcommand(
                Command::new("go")
                    .override_usage("tool go [--fast] FROM... TO")
                    .after_help("Go on,\nor not.\n\nWords:\n  a  one\n  b  another")
                    .arg(Arg::new("fast").long("fast"))
                    .arg(Arg::new("paths")),
            )
            .subcommand(Command::new("inner").hide(true));
        let share = tempfile::tempdir().expect("a directory");
        write(command, share.path()).expect("written");
        let text = |name: &str| fs::read_to_string(share.path().join(name)).expect(name);
        assert!(text("man/man1/tool.1").contains("1.2.3"));
        let go = text("man/man1/tool-go.1");
        assert!(
            go.contains(".SH SYNOPSIS\ntool go [\\-\\-fast] FROM... TO\n.SH DESCRIPTION"),
            "{go}"
        );
        assert!(go.contains("\n.SH OPTIONS"), "{go}");
        let notes =
            "\n.SH NOTES\n.in 0\nGo on,\nor not.\n\n.nf\nWords:\n  a  one\n  b  another\n.fi\n";
        assert!(go.contains(notes), "{go}");
        for absent in ["tool-inner.1", "tool-help.1", "tool-help-go.1"] {
            assert!(!share.path().join("man/man1").join(absent).exists());
        }
        for file in [
            "bash-completion/completions/tool.bash",
            "zsh/site-functions/_tool",
            "fish/vendor_completions.d/tool.fish",
        ] {
            assert!(text(file).contains("fast"), "{file}");
        }
    }
}
