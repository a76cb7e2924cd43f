//! From text to values that know their lines: the parser, its limits, and what it says in our words.

use crate::error::{ConfigError, Problem};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;
use std::fmt;

/// A value and the line it begins at.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) line: u64,
    pub(crate) value: Value,
}

#[derive(Clone, Debug)]
pub(crate) enum Value {
    Nothing,
    Scalar(String),
    List(Vec<Node>),
    Table(Vec<(String, u64, Node)>),
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

impl Value {
    pub(crate) fn flow(&self) -> String {
        match self {
            Value::Nothing => "null".into(),
            Value::Scalar(text) => text.clone(),
            Value::List(items) => {
                let items: Vec<_> = items.iter().map(|item| item.value.flow()).collect();
                format!("[{}]", items.join(", "))
            }
            Value::Table(entries) => {
                let entries: Vec<_> = entries
                    .iter()
                    .map(|(key, _, node)| format!("{key}: {}", node.value.flow()))
                    .collect();
                format!("{{{}}}", entries.join(", "))
            }
        }
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value, a list or a table")
    }
    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Scalar(value.to_string()))
    }
    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Scalar(value.to_string()))
    }
    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Scalar(value.to_string()))
    }
    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Scalar(value.to_string()))
    }
    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::Scalar(value.to_owned()))
    }
    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Nothing)
    }
    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Nothing)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = seq.next_element::<Spanned<Value>>()? {
            list.push(Node::from(item));
        }
        Ok(Value::List(list))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut table = Vec::new();
        while let Some((key, value)) = map.next_entry::<Spanned<String>, Spanned<Value>>()? {
            table.push((key.value, key.referenced.line(), Node::from(value)));
        }
        Ok(Value::Table(table))
    }
}

impl From<Spanned<Value>> for Node {
    fn from(spanned: Spanned<Value>) -> Node {
        Node {
            line: spanned.referenced.line(),
            value: spanned.value,
        }
    }
}

/// Reads a file's text.
pub(crate) fn parse(file: &str, text: &str) -> Result<Node, ConfigError> {
    let fail = |line: u64, message: String| ConfigError {
        file: file.into(),
        line,
        key: String::new(),
        problem: Problem::Syntax(message),
    };
    if text.len() > MAX_FILE_BYTES {
        return Err(fail(
            1,
            format!(
                "{} bytes are more than the {MAX_FILE_BYTES} a description may have",
                text.len()
            ),
        ));
    }
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: MAX_DEPTH,
            max_nodes: 2_000_000,
            max_events: 5_000_000,
            max_aliases: 1_000,
            max_anchors: 100,
            max_recorded_anchor_events: 2_000,
            max_recorded_anchor_bytes: 1 << 20,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: 20_000,
        },
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options::<Spanned<Value>>(text, options)
        .map(Node::from)
        .map_err(|error| {
            let line = error.location().map_or(1, |location| location.line());
            let message = error.without_snippet().to_string();
            let message = in_words(message.lines().next().unwrap_or("not YAML"));
            fail(line, shorten_message(&message))
        })
}

/// What a parser says, as people would. Lines are told already.
fn in_words(said: &str) -> String {
    let too_deep = || format!("it is nested more than {MAX_DEPTH} deep; no description needs that");
    if said.contains("recursion limit") {
        return too_deep();
    }
    if let Some(breach) = said.strip_prefix("budget breached: ") {
        return match breach.split([' ', '{']).next().unwrap_or(breach) {
            "Depth" => too_deep(),
            what if what.contains("Alias") || what.contains("Anchor") => {
                "its anchors and aliases stand for more than a description may have; write out what is meant"
                    .into()
            }
            _ => "it has more values than a description may have; describe less".into(),
        };
    }
    if let Some(rest) = said.strip_prefix("duplicate mapping key: ") {
        let key = rest.split(',').next().unwrap_or(rest);
        return format!("the key `{key}` is here twice; keep one");
    }
    if let Some((_, ours)) = WORDS.iter().find(|(theirs, _)| said.starts_with(theirs)) {
        return (*ours).to_owned();
    }
    let said = said.trim_end_matches('.');
    match said.rsplit_once(" at line ") {
        Some((what, place)) => match place.split_once(", column ") {
            Some((_, column)) => format!("{what} (column {column})"),
            None => what.to_owned(),
        },
        None => said.to_owned(),
    }
}

/// What the parser says to programmers, and what we say to whoever wrote the file.
const WORDS: [(&str, &str); 5] = [
    (
        "multiple YAML documents",
        "a second document begins here; keep one in each file",
    ),
    (
        "cannot deserialize null into string",
        "a key is empty or `null`; write its name, in quotes if it is `null` or `~`",
    ),
    (
        "expected string scalar",
        "a key is a list or a table; write a word",
    ),
    (
        "recursive references",
        "an alias stands for something that contains it; write out what is meant",
    ),
    (
        "invalid !!binary",
        "the tag `!!binary` has no meaning here; write the value without it",
    ),
];

/// A description of 65,536 explicit links fits in a few megabytes.
const MAX_FILE_BYTES: usize = 16 << 20;
const MAX_DEPTH: usize = 32;

fn shorten_message(message: &str) -> String {
    message.chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_parser_says_to_programmers_is_said_to_people() {
        for (text, line, ours) in [
            ("a: 1\n---\nb: 2\n", 3, "a second document begins here"),
            ("null: 3\n", 1, "a key is empty or `null`"),
            ("a: 1\n? [1, 2]\n: 3\n", 2, "a key is a list or a table"),
            ("&a [*a]\n", 1, "stands for something that contains it"),
            ("a: !!binary x\n", 1, "`!!binary` has no meaning here"),
        ] {
            let error = parse("t.yaml", text).unwrap_err();
            let said = error.to_string();
            assert!(said.contains(ours), "{said}");
            assert_eq!(error.line, line, "{said}");
        }
    }
}
