//! Objectives of buckets: how large a share of operations is to be answered how fast, over how long.
//!
//! Invariants: a bucket has [`OBJECTIVES_MAX`] at most, all buckets together [`CLUSTER_OBJECTIVES_MAX`]. Names are made of characters that
//! need no escape in a path, in a label or in a file. Objectives go with their bucket, and stay when it is emptied.

use serde::{Deserialize, Serialize};

use crate::metadata::{ClusterError, FieldErrors, Metadata, objectives::Objective};

/// Most objectives of a bucket.
pub const OBJECTIVES_MAX: usize = 16;
/// Most objectives of all buckets: each node keeps a past of every one.
pub const CLUSTER_OBJECTIVES_MAX: usize = 64;
/// Longest name of an objective, in bytes.
pub const OBJECTIVE_NAME_BYTES_MAX: usize = 64;
/// Shortest and longest latency, in microseconds. What took longer is not told apart.
const LATENCY_US: std::ops::RangeInclusive<u32> = 8..=60_000_000;
/// Least and greatest target, in parts of a million.
const TARGET_PPM: std::ops::RangeInclusive<u32> = 500_000..=999_999;
/// Shortest and longest period, in days.
const PERIOD_DAYS: std::ops::RangeInclusive<u16> = 1..=90;

impl Objective {
    /// What is wrong with its figures, by their names in REST.
    #[must_use]
    pub fn errors(&self) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let mut refuse = |name: &str, text: String| errors.insert(name.to_owned(), text);
        if !LATENCY_US.contains(&self.latency_us) {
            refuse("latencyUs", range(LATENCY_US.start(), LATENCY_US.end()));
        }
        if !TARGET_PPM.contains(&self.target_ppm) {
            refuse("targetPercent", range(&50, &"99.9999"));
        }
        if !PERIOD_DAYS.contains(&self.period_days) {
            refuse("periodDays", range(PERIOD_DAYS.start(), PERIOD_DAYS.end()));
        }
        errors
    }
}

fn range(least: &dyn std::fmt::Display, most: &dyn std::fmt::Display) -> String {
    format!("The value must be in range from {least} to {most}")
}

/// A change of a bucket's objectives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectiveChange {
    /// The bucket.
    pub bucket: String,
    /// The objective.
    pub name: String,
    /// What it is from now on; absent: it is removed.
    pub objective: Option<Objective>,
}

impl ObjectiveChange {
    /// Checks it against a state, as carrying it out does.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(&self, state: &Metadata) -> Result<(), ClusterError> {
        let bucket = state.buckets.get(&self.bucket).ok_or(ClusterError::BucketNotFound)?;
        let Some(objective) = &self.objective else {
            let known = bucket.objectives.contains_key(&self.name);
            return if known {
                Ok(())
            } else {
                Err(ClusterError::field("name", "There is no such objective."))
            };
        };
        let mut errors = objective.errors();
        if !is_name(&self.name) {
            let text = format!(
                "The name must have 1 to {OBJECTIVE_NAME_BYTES_MAX} characters of a-z, A-Z, 0-9, '-', '_' and '.'."
            );
            errors.insert("name".into(), text);
        }
        let is_new = !bucket.objectives.contains_key(&self.name);
        let all: usize = state.buckets.values().map(|bucket| bucket.objectives.len()).sum();
        if is_new && (bucket.objectives.len() >= OBJECTIVES_MAX || all >= CLUSTER_OBJECTIVES_MAX) {
            let text = format!(
                "A bucket can have {OBJECTIVES_MAX} objectives, and a cluster {CLUSTER_OBJECTIVES_MAX}. Remove one that is not needed."
            );
            errors.insert("name".into(), text);
        }
        ClusterError::unless_empty(errors)
    }
}

fn is_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=OBJECTIVE_NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(is_plain)
        && name.bytes().any(|byte| byte.is_ascii_alphanumeric())
}

/// Carries a change out.
pub(crate) fn change(state: &mut Metadata, change: &ObjectiveChange) -> Result<(), ClusterError> {
    change.check(state)?;
    let bucket = state.buckets.get_mut(&change.bucket).ok_or(ClusterError::BucketNotFound)?;
    match change.objective {
        Some(objective) => {
            bucket.objectives.insert(change.name.clone(), objective);
        }
        None => {
            bucket.objectives.remove(&change.name);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use base::BucketUuid;

    use super::*;
    use crate::{
        changes::{Command, bucket::BucketParams},
        metadata::{NodeInfo, Ports, objectives::Operation},
    };

    const GOOD: Objective =
        Objective { operation: Operation::Get, latency_us: 2_000, target_ppm: 999_000, period_days: 28 };

    fn with_bucket() -> Metadata {
        let node = NodeInfo::first("1".repeat(32), "127.0.0.1".into(), Ports::default());
        let params = BucketParams { ram_quota_mb: Some(100), ..BucketParams::default() };
        let create = |name: &str| Command::CreateBucket {
            name: name.into(),
            uuid: BucketUuid(format!("{name:0>32}")),
            params: params.clone(),
        };
        let commands =
            [Command::SetNode(node), create("a"), create("b"), create("c"), create("d"), create("e")];
        commands.iter().fold(Metadata::new("c".into(), 1024), |state, one| state.apply(one).unwrap().0)
    }

    fn put(bucket: &str, name: &str, objective: Option<Objective>) -> Command {
        Command::ChangeObjective(ObjectiveChange { bucket: bucket.into(), name: name.into(), objective })
    }

    #[test]
    fn an_objective_is_set_replaced_and_removed_and_goes_with_its_bucket() {
        let state = with_bucket().apply(&put("b", "fast-gets", Some(GOOD))).unwrap().0;
        let other = Objective { latency_us: 5_000, ..GOOD };
        let state = state.apply(&put("b", "fast-gets", Some(other))).unwrap().0;
        assert_eq!(state.buckets["b"].objectives["fast-gets"], other);
        let json = serde_json::to_vec(&state).unwrap();
        assert_eq!(crate::metadata::strict::read::<Metadata>(&json).unwrap(), state);
        let removed = state.apply(&put("b", "fast-gets", None)).unwrap().0;
        assert!(removed.buckets["b"].objectives.is_empty());
        assert!(removed.apply(&put("b", "fast-gets", None)).is_err(), "it is gone");
        let dropped = state.apply(&Command::DeleteBucket { name: "b".into() }).unwrap().0;
        assert!(dropped.apply(&put("b", "fast-gets", Some(GOOD))).is_err());
    }

    #[test]
    fn figures_and_names_out_of_range_are_refused_by_name() {
        let state = with_bucket();
        let refused = |name: &str, objective| match state.apply(&put("b", name, Some(objective))) {
            Err(ClusterError::Invalid(errors)) => errors.into_keys().collect::<Vec<_>>(),
            other => panic!("{other:?}"),
        };
        let wrong = Objective { latency_us: 7, target_ppm: 1_000_000, period_days: 91, ..GOOD };
        assert_eq!(refused("n", wrong), ["latencyUs", "periodDays", "targetPercent"]);
        for name in ["", "a b", "a/b", "\"", "..", &"n".repeat(65)] {
            assert_eq!(refused(name, GOOD), ["name"], "{name}");
        }
    }

    #[test]
    fn a_bucket_and_a_cluster_have_a_bounded_number() {
        let fill = |state: Metadata, bucket: &str| {
            (0..OBJECTIVES_MAX)
                .fold(state, |state, at| state.apply(&put(bucket, &at.to_string(), Some(GOOD))).unwrap().0)
        };
        let state = fill(with_bucket(), "a");
        assert!(state.apply(&put("a", "more", Some(GOOD))).is_err());
        assert!(state.apply(&put("a", "0", Some(GOOD))).is_ok(), "a change of one that is there");
        let full = ["b", "c", "d"].into_iter().fold(state, fill);
        assert!(full.apply(&put("e", "more", Some(GOOD))).is_err());
    }

    #[test]
    fn objectives_need_the_level_that_knows_them() {
        let old = Metadata { level: crate::metadata::level::OBJECTIVES - 1, ..with_bucket() };
        let text = old.apply(&put("b", "n", Some(GOOD))).unwrap_err().to_string();
        assert!(text.contains("level"), "{text}");
    }
}
