//! A file as a tree that knows its lines, and readers that know what may be written.

use crate::error::{ConfigError, Problem};
use crate::parse::{Node, Value, parse};
use crate::units::{self, shorten};

/// A file as a tree.
#[derive(Clone, Debug)]
pub struct Tree {
    file: String,
    node: Node,
}

impl Tree {
    /// Reads a file's text; `file` is only for messages.
    ///
    /// # Errors
    /// If it is not YAML, or nests, repeats or goes on beyond what a description may.
    pub fn parse(file: &str, text: &str) -> Result<Tree, ConfigError> {
        let (file, node) = (file.to_owned(), parse(file, text)?);
        if matches!(node.value, Value::Nothing) {
            let (line, key) = (0, String::new());
            let problem = Problem::Syntax("there is nothing in it; describe something".into());
            return Err(ConfigError {
                file,
                line,
                key,
                problem,
            });
        }
        Ok(Tree { file, node })
    }

    /// A reader of the whole.
    #[must_use]
    pub fn reader(&self) -> Reader<'_> {
        Reader::new(&self.file, &self.node)
    }

    /// Puts a value, itself YAML, at a place like `network.bandwidth` or `levels.0.latency`. Tables that are
    /// not there are made; items of lists must be.
    ///
    /// # Errors
    /// If the value is not YAML, or the place cannot be.
    pub fn set(&mut self, place: &str, value: &str) -> Result<(), ConfigError> {
        let fail = |problem: String| ConfigError {
            file: self.file.clone(),
            line: 0,
            key: place.to_owned(),
            problem: Problem::Syntax(problem),
        };
        let new = parse(place, value)?;
        let mut node = &mut self.node;
        for part in place.split('.') {
            if part.is_empty() {
                return Err(fail("a place is keys with dots between them".into()));
            }
            if matches!(node.value, Value::Nothing) {
                node.value = Value::Table(Vec::new());
            }
            let line = node.line;
            node = match &mut node.value {
                Value::Table(entries) => {
                    let found = entries.iter().position(|(key, ..)| key == part);
                    let index = found.unwrap_or_else(|| {
                        let value = Value::Nothing;
                        entries.push((part.to_owned(), line, Node { line, value }));
                        entries.len() - 1
                    });
                    &mut entries[index].2
                }
                Value::List(items) => {
                    let count = items.len();
                    let item = part.parse().ok().and_then(|index: usize| items.get_mut(index));
                    item.ok_or_else(|| fail(format!("`{part}` is no item of a list of {count}, from 0")))?
                }
                _ => return Err(fail(format!("there is nothing inside, so no `{part}`"))),
            };
        }
        node.value = new.value;
        Ok(())
    }
}

/// Reads one value, knowing where it is.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    file: &'a str,
    key: String,
    node: &'a Node,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(file: &'a str, node: &'a Node) -> Reader<'a> {
        Reader {
            file,
            key: String::new(),
            node,
        }
    }

    /// This value is wrong: where it is, and how.
    #[must_use]
    pub fn error(&self, problem: impl Into<Problem>) -> ConfigError {
        ConfigError {
            file: self.file.into(),
            line: self.node.line,
            key: self.key.clone(),
            problem: problem.into(),
        }
    }

    fn malformed(&self, what: &'static str, example: &str) -> ConfigError {
        let got = match &self.node.value {
            Value::Nothing => "nothing".to_owned(),
            Value::Scalar(text) => shorten(text),
            Value::List(_) => "a list".into(),
            Value::Table(_) => "a table".into(),
        };
        self.error(Problem::Malformed {
            got,
            what,
            example: example.into(),
        })
    }

    /// Whether it is a list.
    #[must_use]
    pub fn is_list(&self) -> bool {
        matches!(self.node.value, Value::List(_))
    }

    /// A table that may only have these keys.
    ///
    /// # Errors
    /// If it is not a table, or has an unknown key: the error has its line and the nearest valid key.
    pub fn table(&self, valid: &[&'static str]) -> Result<Table<'a>, ConfigError> {
        let Value::Table(entries) = &self.node.value else {
            return Err(self.malformed("a table", &format!("{}: ...", valid.first().unwrap_or(&"key"))));
        };
        if let Some((key, line, _)) = entries.iter().find(|(key, ..)| !valid.contains(&key.as_str())) {
            let problem = Problem::UnknownKey {
                got: shorten(key),
                valid: valid.to_vec(),
            };
            return Err(ConfigError {
                line: *line,
                ..self.error(problem)
            });
        }
        Ok(Table {
            reader: self.clone(),
            entries,
        })
    }

    /// The items of a list.
    ///
    /// # Errors
    /// If it is none.
    pub fn list(&self) -> Result<Vec<Reader<'a>>, ConfigError> {
        let Value::List(items) = &self.node.value else {
            return Err(self.malformed("a list", "[4, 4]"));
        };
        let item = |(i, node)| Reader {
            file: self.file,
            key: format!("{}[{i}]", self.key),
            node,
        };
        Ok(items.iter().enumerate().map(item).collect())
    }

    /// A word, a number, or any text.
    ///
    /// # Errors
    /// If it is a list or a table.
    pub fn text(&self) -> Result<&'a str, ConfigError> {
        match &self.node.value {
            Value::Scalar(text) => Ok(text),
            _ => Err(self.malformed("a word or a number", "ring")),
        }
    }

    /// A number of bytes: `64 MiB`.
    ///
    /// # Errors
    /// If it is none.
    pub fn bytes(&self) -> Result<u64, ConfigError> {
        self.unit(units::bytes)
    }

    /// The value as YAML again, on one line.
    #[must_use]
    pub fn flow(&self) -> String {
        self.node.value.flow()
    }

    /// The keys of a table and what they hold, in the order written.
    ///
    /// # Errors
    /// If it is not a table.
    pub fn entries(&self) -> Result<Vec<(&'a str, Reader<'a>)>, ConfigError> {
        let Value::Table(entries) = &self.node.value else {
            return Err(self.malformed("a table", "key: ..."));
        };
        let entry = |(key, _, node): &'a (String, u64, Node)| {
            let reader = Reader {
                file: self.file,
                key: format!("{}.{key}", self.key),
                node,
            };
            (key.as_str(), reader)
        };
        Ok(entries.iter().map(entry).collect())
    }

    /// Where it is, as people read it: `ccl.yaml:3`.
    #[must_use]
    pub fn place(&self) -> String {
        format!("{}:{}", self.file, self.node.line)
    }

    /// What `read` makes of its text.
    ///
    /// # Errors
    /// If it is not text, or `read` refuses it.
    pub fn unit<T>(&self, read: impl Fn(&str) -> Result<T, Problem>) -> Result<T, ConfigError> {
        read(self.text()?).map_err(|problem| self.error(problem))
    }

    /// One of a few words.
    ///
    /// # Errors
    /// If it is another: named, with the nearest.
    pub fn word<T: Copy>(&self, words: &[(&'static str, T)]) -> Result<T, ConfigError> {
        let got = self.text()?;
        words
            .iter()
            .find(|(word, _)| *word == got)
            .map(|(_, value)| *value)
            .ok_or_else(|| {
                let valid = words.iter().map(|(word, _)| *word).collect();
                self.error(Problem::UnknownWord {
                    got: shorten(got),
                    valid,
                })
            })
    }

    /// A whole number in a range.
    ///
    /// # Errors
    /// If it is none.
    pub fn count(&self, least: u64, most: u64) -> Result<u32, ConfigError> {
        let text = self.text()?.replace('_', "");
        let value = text.parse::<u64>().map_err(|_| {
            if text.parse::<f64>().is_ok() {
                let wanted = format!("a whole number from {least} to {most}");
                self.error(Problem::OutOfRange {
                    got: shorten(&text),
                    wanted,
                })
            } else {
                self.malformed("a whole number", "8")
            }
        })?;
        if value < least || value > most {
            let wanted = format!("from {least} to {most}");
            return Err(self.error(Problem::OutOfRange {
                got: value.to_string(),
                wanted,
            }));
        }
        u32::try_from(value).map_err(|_| self.malformed("a whole number", "8"))
    }

    /// A factor above 0 and up to `most`.
    ///
    /// # Errors
    /// If it is none.
    pub fn factor(&self, most: f64) -> Result<f64, ConfigError> {
        let text = self.text()?;
        let value: f64 = text
            .trim()
            .parse()
            .map_err(|_| self.malformed("a factor", "0.5"))?;
        if (MIN_FACTOR..=most).contains(&value) {
            return Ok(value);
        }
        let wanted = format!("at least {MIN_FACTOR} and at most {most}");
        Err(self.error(Problem::OutOfRange {
            got: shorten(text),
            wanted,
        }))
    }
}

/// The smallest factor. A rate slowed down further would be below one byte per second, and rounded.
const MIN_FACTOR: f64 = 1e-6;

/// A table whose keys have been checked.
#[derive(Clone, Debug)]
pub struct Table<'a> {
    /// The whole table, for errors about it.
    pub reader: Reader<'a>,
    entries: &'a [(String, u64, Node)],
}

impl<'a> Table<'a> {
    /// What a key holds, if it is there.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Reader<'a>> {
        let (_, line, node) = self.entries.iter().find(|(name, ..)| name == key)?;
        let _ = line;
        let prefix = &self.reader.key;
        let key = if prefix.is_empty() {
            key.to_owned()
        } else {
            format!("{prefix}.{key}")
        };
        Some(Reader {
            file: self.reader.file,
            key,
            node,
        })
    }

    /// What a key holds.
    ///
    /// # Errors
    /// If it is missing: says so, with an example.
    pub fn need(&self, key: &'static str, example: &str) -> Result<Reader<'a>, ConfigError> {
        let missing = || {
            self.reader
                .error(Problem::Missing(key, format!("{key}: {example}")))
        };
        self.get(key).ok_or_else(missing)
    }
}
