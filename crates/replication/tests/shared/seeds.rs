//! The seeds that a test runs.

/// `first` and some more. `SETTEE_MODEL_SEED` is another first one, `SETTEE_MODEL_SEEDS` how many there are.
pub(crate) fn seeds(first: u64) -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let count = number("SETTEE_MODEL_SEEDS").unwrap_or(12);
    let first = number("SETTEE_MODEL_SEED").unwrap_or(first);
    first..first + count
}
