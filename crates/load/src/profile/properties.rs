//! Java property files: `key=value`, `key: value` or `key value`, comments with `#` or `!`, lines continued with `\`; and
//! the JSON form of the historical generator's successor: `{"properties": {"key": value, …}}`.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

/// Where the successor's defaults are others than the historical generator's.
const SUCCESSOR_DEFAULTS: &[(&str, &str)] = &[
    ("workload", "MemcachedCoreWorkload"),
    ("protocol", "ascii"),
    ("memgetproportion", "1.0"),
    ("memupdateproportion", "0.0"),
    ("operationcount", "10000"),
    ("recordcount", "10000"),
    ("target", "5000"),
    ("workingset", "5"),
];

/// Keys with their values, and which of them somebody has asked for.
#[derive(Clone, Debug, Default)]
pub struct Properties {
    values: BTreeMap<String, String>,
    used: RefCell<BTreeSet<String>>,
}

impl Properties {
    /// Reads more, in either form; later values replace earlier ones.
    ///
    /// # Errors
    /// The text begins like JSON and is not of that form.
    pub fn read_any(&mut self, text: &str) -> Result<(), String> {
        if !text.trim_start().starts_with('{') {
            self.read(text);
            return Ok(());
        }
        let json: serde_json::Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let properties = json["properties"].as_object().ok_or("a JSON file needs an object `properties`")?;
        for (key, value) in SUCCESSOR_DEFAULTS {
            if !self.values.contains_key(*key) {
                self.set(key, value);
            }
        }
        for (key, value) in properties {
            match value {
                serde_json::Value::String(text) => self.set(key, text),
                serde_json::Value::Number(_) | serde_json::Value::Bool(_) => {
                    self.set(key, &value.to_string())
                }
                _ => return Err(format!("{key} is neither a string nor a number nor a truth value")),
            }
        }
        Ok(())
    }

    /// Reads more of the Java form; later values replace earlier ones.
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

    #[test]
    fn the_successors_json_is_read_with_its_defaults() {
        let mut properties = Properties::default();
        let text = r#" {"properties": {"recordcount": 7, "memgetproportion": 0.5, "label": "x", "dotransactions": true}}"#;
        assert_eq!(properties.read_any(text), Ok(()));
        let expected =
            [("recordcount", "7"), ("memgetproportion", "0.5"), ("label", "x"), ("dotransactions", "true")];
        for (key, value) in expected.into_iter().chain([("target", "5000"), ("protocol", "ascii")]) {
            assert_eq!(properties.get(key), Some(value), "{key}");
        }
        for text in ["{", "{}", r#"{"properties": 1}"#, r#"{"properties": {"label": []}}"#] {
            assert!(properties.read_any(text).is_err(), "{text}");
        }
        assert_eq!(properties.read_any("label=y"), Ok(()));
        assert_eq!(properties.get("label"), Some("y"));
    }
}
