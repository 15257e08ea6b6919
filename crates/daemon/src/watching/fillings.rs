//! What of this node is full within the hour, by the pace of the last minutes ([`plan::filling`]). What is full within two weeks is foretold
//! by [`crate::past::forecasts`].

use base::bucket::BucketKind;
use dataplane::shared::DiskLevel;
use engine::BucketStats;
use plan::{
    filling::{Filling, PAST_SECS, filling},
    forecast::Point,
};
use watch::alerts::{self, Holds};

use super::looks::Look;

impl Look<'_> {
    fn points(&self, bucket: &str, stat: &str) -> Vec<Point> {
        let recent = self.past.recent(bucket, stat, self.now_secs.saturating_sub(PAST_SECS));
        recent.into_iter().map(|(at_secs, value)| Point { at_secs, value }).collect()
    }

    /// The disk with the data, by what each of these buckets says of it: one of them may be new.
    pub(crate) fn disk_fills(&self, buckets: &[&str], disk: &DiskLevel, folder: &str) -> Option<Holds> {
        let seen = buckets.iter().filter_map(|bucket| {
            let mut points = self.points(bucket, "settee_disk_free");
            // What is free shrinks, and its limit is below it.
            points.iter_mut().for_each(|point| point.value = -point.value);
            filling(&points, -(disk.free_min as f64))
        });
        let found = seen.min_by_key(|one| one.full_secs)?;
        let (when, pace) = (self.when(&found), pace(&found));
        let text =
            format!("The disk \"{folder}\" of node {} will be full {when}: it fills by {pace}.", self.node);
        Some(Holds::new(&alerts::DISK_SOON, "", text))
    }

    /// Memory of a bucket, and what of it cannot be freed. Where values have left memory already, its watermark says nothing any more.
    pub(crate) fn memory_fills(&self, name: &str, kind: BucketKind, stats: &BucketStats) -> Vec<Holds> {
        let node = self.node;
        let reaches = |stat| filling(&self.points(name, stat), stats.mem_high_wat as f64);
        let mut holding = Vec::new();
        if kind != BucketKind::Couchbase || stats.resident_percent >= 100 {
            holding.extend(reaches("mem_used").map(|found| {
                let (when, pace) = (self.when(&found), pace(&found));
                let text = format!(
                    "Memory of bucket \"{name}\" on node {node} will reach its high watermark {when}: it fills by {pace}."
                );
                Holds::new(&alerts::MEMORY_SOON, name, text)
            }));
        }
        if kind == BucketKind::Couchbase {
            holding.extend(reaches("settee_mem_floor").map(|found| {
                let (when, pace) = (self.when(&found), pace(&found));
                let text = format!(
                    "Keys and metadata of bucket \"{name}\" on node {node} will take all memory up to the high watermark {when}: they \
                     grow by {pace}."
                );
                Holds::new(&alerts::METADATA_SOON, name, text)
            }));
        }
        holding
    }

    /// How soon that is, and the time of day.
    fn when(&self, found: &Filling) -> String {
        let time = admin::rfc3339(found.full_secs * 1_000);
        let time = time.split('T').nth(1).and_then(|time| time.get(..5)).unwrap_or_default().to_owned();
        let left = match found.full_secs.saturating_sub(self.now_secs) / 60 {
            0 => "in less than a minute".to_owned(),
            1 => "in a minute".to_owned(),
            minutes => format!("in {minutes} minutes"),
        };
        format!("{left}, at {time} UTC")
    }
}

/// In words.
fn pace(found: &Filling) -> String {
    const MIB: f64 = 1_048_576.0;
    let per_minute = found.per_sec * 60.0 / MIB;
    if per_minute < 600.0 {
        format!("{per_minute:.1} MiB a minute")
    } else {
        format!("{:.1} MiB a second", found.per_sec / MIB)
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::looks::tests::{BEGIN, BUCKET, MIB, Watched},
        *,
    };

    /// Seconds after which an alert fires (true) or is over (false).
    type Told = Vec<(u64, &'static str, bool)>;

    #[test]
    fn a_disk_that_fills_within_the_hour_is_told_with_its_time_and_is_over_with_the_load() {
        // Ten GiB are free above what is to stay free. A load begins after a minute, and takes 30 MiB a second for two.
        let disk = DiskLevel { free_min: 1 << 30, ..DiskLevel::default() };
        let free =
            |second: u64| 11.0 * 1_024.0 * MIB - 30.0 * MIB * second.saturating_sub(60).min(120) as f64;
        let (mut watched, mut told, mut text) = (Watched::default(), Told::new(), String::new());
        for second in 0..600 {
            watched.sample(&[("settee_disk_free", free(second))]);
            let holds = watched.look().disk_fills(&["gone", BUCKET], &disk, "/data");
            text = holds.as_ref().filter(|_| second == 150).map_or(text, |holds| holds.text.clone());
            let changes = watched.board(holds.into_iter().collect());
            told.extend(changes.into_iter().map(|(name, fires)| (second, name, fires)));
        }
        let [(fired, "disk_fills_soon", true), (over, "disk_fills_soon", false)] = told[..] else {
            panic!("{told:?}")
        };
        assert!((60..=110).contains(&fired) && (240..=480).contains(&over), "{told:?}");
        // 90 s of the load have taken 2.6 GiB: the rest is gone after 251 s.
        assert!(text.contains("The disk \"/data\" of node n will be full in 4 minutes, at "), "{text}");
        let time = admin::rfc3339((BEGIN + 151 + 251) * 1_000);
        assert!(text.contains(&time[11..16]) && text.ends_with("it fills by 30.0 MiB a second."), "{text}");
    }

    fn memory(kind: BucketKind, resident_percent: u64, stat: &'static str) -> Told {
        let stats = BucketStats { mem_high_wat: 900 * 1_048_576, resident_percent, ..BucketStats::default() };
        let (mut watched, mut told) = (Watched::default(), Told::new());
        for second in 0..300 {
            watched.sample(&[(stat, MIB * second.min(120) as f64)]);
            let holding = watched.look().memory_fills(BUCKET, kind, &stats);
            told.extend(watched.board(holding).into_iter().map(|(name, fires)| (second, name, fires)));
        }
        told
    }

    #[test]
    fn memory_that_fills_is_told_as_long_as_all_of_it_is_there() {
        // 15 minutes away, so two minutes have to be seen.
        let told = memory(BucketKind::Couchbase, 100, "mem_used");
        assert!(
            matches!(
                told[..],
                [(90..=130, "memory_fills_soon", true), (180..=300, "memory_fills_soon", false)]
            ),
            "{told:?}"
        );
        assert_eq!(memory(BucketKind::Couchbase, 80, "mem_used"), [], "values leave it");
        assert!(!memory(BucketKind::Ephemeral, 80, "mem_used").is_empty());
    }

    #[test]
    fn keys_and_metadata_that_fill_memory_are_told_whatever_is_resident() {
        let told = memory(BucketKind::Couchbase, 10, "settee_mem_floor");
        assert!(
            matches!(told[..], [(90..=130, "metadata_fills_soon", true), (.., "metadata_fills_soon", false)]),
            "{told:?}"
        );
        assert_eq!(
            memory(BucketKind::Ephemeral, 10, "settee_mem_floor"),
            [],
            "they are not told apart there"
        );
    }
}
