//! `ringwork doctor`: what this machine offers, and what is missing.

use crate::output::say;
use ringwork::native::host_probe::{Finding, Verdict, probe};
use ringwork_mpi::Library;
use serde_json::json;
use std::process::ExitCode;

pub(crate) fn run(as_json: bool) -> ExitCode {
    let mut findings = probe();
    findings.push(mpi());
    let missing = findings
        .iter()
        .filter(|finding| finding.verdict == Verdict::Missing)
        .count();
    if as_json {
        let list: Vec<_> = findings
            .iter()
            .map(|Finding { name, value, verdict }| json!({ "name": name, "value": value, "verdict": format!("{verdict:?}").to_lowercase() }))
            .collect();
        say!("{}", json!({ "findings": list, "missing": missing }));
    } else {
        let width = findings
            .iter()
            .map(|finding| finding.name.len())
            .max()
            .unwrap_or(0);
        for Finding { name, value, verdict } in &findings {
            let mark = match verdict {
                Verdict::Fine => "ok     ",
                Verdict::Note => "note   ",
                Verdict::Missing => "MISSING",
            };
            say!("{mark}  {name:<width$}  {value}");
        }
        match missing {
            0 => say!("\nNothing is missing: ringwork runs here."),
            1 => say!("\nOne thing is missing: the native platform cannot run here."),
            more => say!("\n{more} things are missing: the native platform cannot run here."),
        }
    }
    if missing == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// The MPI libraries by which ranks on several hosts can meet. One host needs none.
fn mpi() -> Finding {
    let found: Vec<String> = Library::installed().iter().map(Library::to_string).collect();
    let (verdict, value) = if found.is_empty() {
        let none = "none; ranks on several hosts need one, a single host does not";
        (Verdict::Note, none.to_owned())
    } else {
        (Verdict::Fine, format!("over several hosts: {}", found.join("; ")))
    };
    Finding {
        name: "MPI",
        value,
        verdict,
    }
}
