//! What must hold, and whether it did. A scenario goes on after a failure: the rest of its findings is worth having.

use serde_json::{Value, json};

/// One thing that must hold.
#[derive(Clone, Debug)]
pub struct Check {
    /// What.
    pub what: String,
    /// Whether it did.
    pub holds: bool,
    /// The figures behind it.
    pub found: String,
}

/// All of a run, in the order they were made.
#[derive(Debug, Default)]
pub struct Checks(Vec<Check>);

impl Checks {
    /// Notes and prints one.
    pub fn add(&mut self, what: impl Into<String>, holds: bool, found: impl Into<String>) {
        let check = Check { what: what.into(), holds, found: found.into() };
        println!("  {} {}: {}", if holds { "ok    " } else { "FAILED" }, check.what, check.found);
        self.0.push(check);
    }

    /// How many did not hold.
    #[must_use]
    pub fn failed(&self) -> usize {
        self.0.iter().filter(|check| !check.holds).count()
    }

    /// How many there were.
    #[must_use]
    pub fn made(&self) -> usize {
        self.0.len()
    }

    /// What did not hold.
    pub fn failures(&self) -> impl Iterator<Item = &Check> {
        self.0.iter().filter(|check| !check.holds)
    }

    /// For the report.
    #[must_use]
    pub fn to_json(&self) -> Value {
        self.0
            .iter()
            .map(|check| json!({"what": check.what, "holds": check.holds, "found": check.found}))
            .collect()
    }
}

/// A list in words.
#[must_use]
pub fn found_or_none(found: &[String]) -> String {
    if found.is_empty() { "none".to_owned() } else { found.join("; ") }
}
