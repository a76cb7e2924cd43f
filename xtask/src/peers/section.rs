//! The part of a page that this tool writes, between two markers that people leave alone.

use super::error::{Error, Result};
use std::fs;
use std::path::Path;

/// The line above our section.
pub(crate) const BEGIN: &str = "<!-- peers: begin (written by `cargo xtask peers --write`) -->";
/// The line below it.
pub(crate) const END: &str = "<!-- peers: end -->";

/// Rewrites the section of a page. A page that does not exist is made, with nothing else in it.
///
/// # Errors
/// The page has no markers, or not one of each in order; then it is left as it was.
pub(crate) fn write(path: &Path, content: &str) -> Result<()> {
    let page = if path.exists() {
        fs::read_to_string(path).map_err(Error::file(path))?
    } else {
        format!("{BEGIN}\n{END}\n")
    };
    let page = replace(&page, content).map_err(|why| Error::NoSection {
        path: path.to_owned(),
        why,
        begin: BEGIN,
        end: END,
    })?;
    fs::write(path, page).map_err(Error::file(path))
}

/// The page with `content` between its markers.
fn replace(page: &str, content: &str) -> std::result::Result<String, &'static str> {
    let (before, rest) = page.split_once(BEGIN).ok_or("it has no place for the tables")?;
    let (_, after) = rest
        .split_once(END)
        .ok_or("the place for the tables has no end")?;
    if after.contains(BEGIN) || before.contains(END) {
        return Err("it has more than one place for the tables");
    }
    Ok(format!("{before}{BEGIN}\n\n{}\n\n{END}{after}", content.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_what_lies_between_the_markers_changes() {
        let page = format!("# Title\n\n{BEGIN}\nold\n{END}\n\nThe end.\n");
        assert_eq!(
            replace(&page, "new\n").unwrap(),
            format!("# Title\n\n{BEGIN}\n\nnew\n\n{END}\n\nThe end.\n")
        );
    }

    #[test]
    fn a_page_without_both_markers_in_order_is_refused() {
        for page in [
            "",
            BEGIN,
            END,
            &format!("{END}{BEGIN}"),
            &format!("{BEGIN}{END}{BEGIN}{END}"),
        ] {
            assert!(replace(page, "new").is_err(), "{page}");
        }
    }

    proptest! {
        #[test]
        fn writing_twice_is_writing_once(before in "[a-z#\n ]{0,40}", after in "[a-z#\n ]{0,40}", new in "[a-z|\n ]{0,40}") {
            let page = format!("{before}{BEGIN}old{END}{after}");
            let once = replace(&page, &new).unwrap();
            prop_assert_eq!(replace(&once, &new).unwrap(), once.clone());
            prop_assert!(once.starts_with(&before) && once.ends_with(&after));
        }
    }
}
