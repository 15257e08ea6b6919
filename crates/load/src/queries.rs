//! Which rows of views a mix asks for, and where.

use client::Rest;

/// How the key of an operation's record is named in a query.
const KEY: &str = "{key}";

/// Which rows are asked for, and where.
#[derive(Clone, Debug)]
pub struct Queries {
    /// The interfaces of the nodes that answer.
    pub nodes: Vec<Rest>,
    /// Path and parameters; `{key}` stands for the key of an operation's record, as JSON.
    pub path: String,
}

impl Queries {
    /// The path for a record's key.
    #[must_use]
    pub fn path(&self, key: &[u8]) -> String {
        if !self.path.contains(KEY) {
            return self.path.clone();
        }
        let key = serde_json::Value::from(String::from_utf8_lossy(key)).to_string();
        self.path.replace(KEY, &client::rest::percent(&key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_may_name_the_key_of_a_record() {
        let queries = |path: &str| Queries { nodes: Vec::new(), path: path.to_owned() };
        assert_eq!(queries("/b/_view/v?limit=1").path(b"k"), "/b/_view/v?limit=1");
        assert_eq!(queries("/b?key={key}&x={key}").path(b"a\"b"), "/b?key=%22a%5C%22b%22&x=%22a%5C%22b%22");
    }
}
