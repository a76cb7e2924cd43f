//! Timelines as files: a page to look at, or JSON for Perfetto.

use crate::output::{say, write_new};
use ringwork::sim::timeline::Timeline;
use std::path::Path;

/// Refuses a file that cannot become a timeline: better to know before the run than after it.
pub(crate) fn check(path: &Path) -> Result<(), String> {
    format_of(path)?;
    let directory = path
        .parent()
        .filter(|directory| !directory.as_os_str().is_empty());
    match directory.filter(|directory| !directory.is_dir()) {
        None => Ok(()),
        Some(directory) => Err(format!(
            "--trace {}: there is no directory {}",
            path.display(),
            directory.display()
        )),
    }
}

/// Writes it, and says so unless the output is for programs.
pub(crate) fn write(path: &Path, timeline: &Timeline, quietly: bool) -> Result<(), String> {
    write_new(path, &format_of(path)?(timeline))?;
    if !quietly {
        say!("timeline in {}", path.display());
    }
    Ok(())
}

fn format_of(path: &Path) -> Result<fn(&Timeline) -> String, String> {
    match path.extension().and_then(|end| end.to_str()) {
        Some("html") => Ok(Timeline::html),
        Some("json") => Ok(Timeline::chrome_json),
        _ => Err(format!(
            "--trace {}: name a file that ends in .html (to look at) or .json (for Perfetto)",
            path.display()
        )),
    }
}
