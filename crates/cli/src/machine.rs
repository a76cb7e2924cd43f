//! Machines as a user names them: a file, or a preset.

use ringwork::native::read_config_file;
use ringwork::sim::{Topology, preset_yaml};
use std::io::ErrorKind;
use std::path::Path;

/// The machine in a file, or the preset of this name.
///
/// # Errors
/// What is wrong with it, with file and line.
pub(crate) fn load(name: &str) -> Result<Topology, String> {
    let (file, text) = source(name)?;
    Topology::from_yaml(&file, &text).map_err(|error| error.to_string())
}

/// The YAML of a file or a preset, and what to call it in errors.
pub(crate) fn source(name: &str) -> Result<(String, String), String> {
    if let Some(text) = preset_yaml(name) {
        return Ok((name.to_owned(), text));
    }
    let looks_like_a_file = name.contains(['/', '.']);
    match read_config_file(Path::new(name)) {
        Ok(text) => Ok((name.to_owned(), text)),
        Err(error) if looks_like_a_file || error.kind() != ErrorKind::NotFound => {
            Err(format!("{name}: {error}"))
        }
        Err(_) => Topology::preset(name)
            .map(|_| Default::default())
            .map_err(|error| error.to_string()),
    }
}
