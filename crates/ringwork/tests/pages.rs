//! The pages that people read: their links lead somewhere, and what they quote is what there is.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs::read_to_string;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every page of the project, also those beside the code.
fn pages() -> Vec<PathBuf> {
    let mut folders = vec![root(), root().join("docs"), root().join("crates")];
    let mut pages = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() && folder != root() && !name.starts_with('.') && name != "target" {
                folders.push(path);
            } else if name.ends_with(".md") {
                pages.push(path);
            }
        }
    }
    pages
}

/// The headings of a page, as GitHub writes them into addresses.
fn anchors(page: &str) -> Vec<String> {
    let headings = page.lines().filter_map(|line| line.strip_prefix('#'));
    let slug = |heading: &str| -> String {
        let text = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = text.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(slug).collect()
}

#[test]
fn every_link_to_a_file_leads_to_one() {
    let mut links = 0;
    for page in pages() {
        let text = read_to_string(&page).unwrap();
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = target.split('#').next().unwrap_or_default();
            // Web addresses, and names that rustdoc resolves.
            let elsewhere = file.contains("://") || file.contains("::") || !file.contains(['.', '/', '-']);
            if file.is_empty() || elsewhere {
                continue;
            }
            links += 1;
            let there = page.parent().unwrap().join(file).exists();
            assert!(there, "{}: {target}", page.display());
        }
    }
    assert!(links > 20, "found {links} links only; is the search still right?");
}

#[test]
fn every_link_to_a_heading_leads_to_one() {
    let mut links = 0;
    for page in pages() {
        let text = read_to_string(&page).unwrap();
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let Some((file, anchor)) = target.split_once('#') else {
                continue;
            };
            let within = if file.is_empty() {
                page.clone()
            } else {
                page.parent().unwrap().join(file)
            };
            if within.extension().is_none_or(|extension| extension != "md") || file.contains("://") {
                continue;
            }
            links += 1;
            let there = anchors(&read_to_string(&within).unwrap())
                .iter()
                .any(|known| known == anchor);
            assert!(there, "{}: {target}", page.display());
        }
    }
    assert!(links > 3, "found {links} links only; is the search still right?");
}

#[test]
fn the_program_in_the_readme_is_the_example() {
    let example = read_to_string(root().join("crates/ringwork/examples/sum.rs")).unwrap();
    let (_, program) = example.split_once("\n\n").unwrap();
    let readme = read_to_string(root().join("README.md")).unwrap();
    assert!(
        readme.contains(&format!("```rust\n{program}```")),
        "copy it from crates/ringwork/examples/sum.rs"
    );
}

#[test]
fn programs_beside_a_link_to_an_example_are_that_example() {
    let mut programs = 0;
    for page in pages() {
        let text = read_to_string(&page).unwrap();
        for after in text.split("](../crates/ringwork/examples/").skip(1) {
            let Some((name, rest)) = after.split_once(".rs)") else {
                continue;
            };
            let Some((_, block)) = rest.split_once("```rust\n") else {
                panic!("{}: no program follows the link to {name}.rs", page.display());
            };
            let path = format!("crates/ringwork/examples/{name}.rs");
            let example = read_to_string(root().join(&path)).unwrap();
            let (_, program) = example.split_once("\n\n").unwrap();
            assert!(
                block.starts_with(&format!("{program}```")),
                "{}: the program is not that of {path}; copy it from there",
                page.display()
            );
            programs += 1;
        }
    }
    assert!(programs > 20, "found {programs} only; is the search still right?");
}
