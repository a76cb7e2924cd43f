//! What is made from the declarations of the command line: shell completions and manual pages.

use crate::Arguments;
use crate::output::{EXIT_OUTPUT, complain, say};
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use std::io;
use std::path::Path;
use std::process::ExitCode;

/// What `ringwork completions SHELL` prints.
pub(crate) fn completions(shell: Shell) -> String {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "ringwork", &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// Writes `ringwork.1`, `ringwork-run.1` and so on.
pub(crate) fn write_manual(directory: &Path) -> ExitCode {
    match try_write(directory) {
        Ok(count) => {
            say!(
                "{count} pages in {0}; read one with: man -l {0}/ringwork.1",
                directory.display()
            );
            ExitCode::SUCCESS
        }
        Err(error) => {
            complain(format_args!("writing into {}: {error}", directory.display()));
            ExitCode::from(EXIT_OUTPUT)
        }
    }
}

fn try_write(directory: &Path) -> io::Result<usize> {
    std::fs::create_dir_all(directory)?;
    let mut count = 0;
    for (name, command) in commands() {
        let name = name.replace(' ', "-");
        let mut page = Vec::new();
        clap_mangen::Man::new(command)
            .title(name.as_str())
            .render(&mut page)?;
        std::fs::write(directory.join(format!("{name}.1")), page)?;
        count += 1;
    }
    Ok(count)
}

/// Every command with its full name, such as `ringwork sim sweep`.
fn commands() -> Vec<(String, Command)> {
    fn walk(name: String, command: &Command, all: &mut Vec<(String, Command)>) {
        for below in command
            .get_subcommands()
            .filter(|below| below.get_name() != "help")
        {
            walk(format!("{name} {}", below.get_name()), below, all);
        }
        all.push((name, command.clone()));
    }
    let (mut all, mut root) = (Vec::new(), Arguments::command());
    root.build();
    walk("ringwork".into(), &root, &mut all);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const PAGE: &str = include_str!("../../../docs/cli.md");
    /// Every `--flag` of a text.
    fn flags_in(text: &str) -> BTreeSet<&str> {
        let starts = text.match_indices("`--").map(|(at, _)| at + 1);
        starts
            .map(|at| {
                let end = text[at..].find('`').unwrap_or(0);
                &text[at..at + end]
            })
            .collect()
    }

    fn flags_of(command: &Command) -> BTreeSet<String> {
        let shown = command.get_arguments().filter(|flag| !flag.is_hide_set());
        let long = shown.filter_map(|flag| flag.get_long());
        long.filter(|long| !matches!(*long, "help" | "version"))
            .map(|long| format!("--{long}"))
            .collect()
    }

    /// The row of a command in the table at the head of the page.
    fn row_of(name: &str) -> Option<&'static str> {
        let mut rows = PAGE.lines();
        rows.find(|row| {
            let rest = row.strip_prefix("| `").and_then(|rest| rest.strip_prefix(name));
            let named = rest.and_then(|rest| rest.split('`').next());
            // What follows the name is a value, not another command.
            named.is_some_and(|rest| !rest.trim_start().starts_with(|c: char| c.is_ascii_lowercase()))
        })
    }

    #[test]
    fn the_page_has_every_command_with_its_flags_and_no_other() {
        for (name, command) in commands() {
            // These only have commands below them.
            if name == "ringwork" || name == "ringwork topo" {
                continue;
            }
            let row = row_of(&name).unwrap_or_default();
            assert!(!row.is_empty(), "docs/cli.md has no row for `{name}`");
            let (declared, written) = (flags_of(&command), flags_in(row));
            let declared: BTreeSet<&str> = declared.iter().map(String::as_str).collect();
            assert_eq!(written, declared, "docs/cli.md, the row of `{name}`");
        }
    }

    #[test]
    fn the_page_names_no_command_that_there_is_not() {
        let names: BTreeSet<String> = commands().into_iter().map(|(name, _)| name).collect();
        let known: BTreeSet<&str> = names.iter().filter_map(|name| name.split(' ').nth(1)).collect();
        for (at, begin) in PAGE
            .match_indices("`ringwork ")
            .chain(PAGE.match_indices("$ ringwork "))
        {
            let rest = &PAGE[at + begin.len()..];
            let end = rest.find(|c: char| !c.is_ascii_lowercase()).unwrap_or(rest.len());
            let word = &rest[..end];
            let known = known.contains(word) || word == "help" || rest.starts_with("COMMAND");
            assert!(known, "docs/cli.md names `ringwork {word}`, which is no command");
        }
    }

    #[test]
    fn completions_know_the_commands_in_every_shell() {
        for shell in [
            Shell::Bash,
            Shell::Zsh,
            Shell::Fish,
            Shell::PowerShell,
            Shell::Elvish,
        ] {
            let text = completions(shell);
            assert!(text.contains("launch") && text.contains("topology"), "{shell}");
        }
    }
}
