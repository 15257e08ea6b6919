//! Java property files: `key=value`, `key: value` or `key value`, comments with `#` or `!`, lines continued with `\`.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

/// Keys with their values, and which of them somebody has asked for.
#[derive(Clone, Debug, Default)]
pub struct Properties {
    values: BTreeMap<String, String>,
    used: RefCell<BTreeSet<String>>,
}

impl Properties {
    /// Reads more; later values replace earlier ones.
    pub fn read(&mut self, text: &str) {
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            let mut line = line.trim_start().to_owned();
            if line.is_empty() || line.starts_with(['#', '!']) {
                continue;
            }
            while line.ends_with('\\') {
                line.pop();
                line.push_str(lines.next().unwrap_or_default().trim_start());
            }
            let end = line.find(|c: char| matches!(c, '=' | ':') || c.is_whitespace()).unwrap_or(line.len());
            let (key, rest) = line.split_at(end);
            let rest = rest.trim_start();
            let value = rest.strip_prefix(['=', ':']).unwrap_or(rest);
            self.set(key, value.trim());
        }
    }

    /// Sets one.
    pub fn set(&mut self, key: &str, value: &str) {
        self.values.insert(key.to_owned(), value.to_owned());
    }

    /// The text of one.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.used.borrow_mut().insert(key.to_owned());
        self.values.get(key).map(String::as_str)
    }

    /// Takes keys as known whose values change nothing.
    pub fn pass_over(&self, keys: &[&str]) {
        self.used.borrow_mut().extend(keys.iter().map(|key| (*key).to_owned()));
    }

    /// The value of one, or the default.
    ///
    /// # Errors
    /// It is there and cannot be read.
    pub fn value<T: FromStr>(&self, key: &str, default: T) -> Result<T, String> {
        match self.get(key) {
            None => Ok(default),
            Some(text) => text.parse().map_err(|_| format!("{key}={text}: not such a value")),
        }
    }

    /// Keys that nobody has asked for.
    #[must_use]
    pub fn unused(&self) -> Vec<String> {
        let used = self.used.borrow();
        self.values.keys().filter(|key| !used.contains(*key)).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_as_java_reads_them() {
        let mut properties = Properties::default();
        properties.read("# c\n! c\n\na=1\n b : two words \nc 3\nd=x\\\n  y\ne\na=4\n");
        let expected = [("a", "4"), ("b", "two words"), ("c", "3"), ("d", "xy"), ("e", "")];
        for (key, value) in expected {
            assert_eq!(properties.get(key), Some(value), "{key}");
        }
        properties.set("later", "1");
        assert_eq!(properties.unused(), ["later"]);
        assert_eq!(properties.value("a", 0u64), Ok(4));
        assert!(properties.value("b", 0u64).is_err());
        assert_eq!(properties.value("none", 7u64), Ok(7));
    }
}
