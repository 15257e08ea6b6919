//! What this node counts for objectives of buckets: looked up in the histograms that the loops keep anyway, so no operation costs more.
//!
//! An operation is good where its whole step of the histogram is within the objective's latency. Steps are eighths of powers of two. So an
//! answer up to an eighth below the latency may count as slow, and a slow one never counts as good.
//!
//! The past is in `DIR/objectives`, which is written anew every five minutes and at a stop: a file of bounded size, replaced as a whole. A
//! damaged one is set aside, and the past begins anew.

use std::{
    collections::{BTreeMap, HashMap},
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use admin::{Counted, Source, told_latency};
use base::BucketUuid;
use cluster::{LatencyReport, Metadata, Objective, Operation};
use dataplane::BucketMeter;
use parking_lot::Mutex;
use stats::Reading;
use watch::{
    Counts, Ring, judge,
    probe::{Tried, Try},
    sdk::Report,
    stored,
};

use super::{
    histograms::{split, steps},
    pacing::Pacing,
};
use crate::{
    files::renames::sync_parent,
    statistics::{ObjectiveFacts, OutsideFacts, of_objective, seen_from_outside},
};

/// A larger file was not written by this module.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// What an objective is looked up by: another latency or operation begins another past.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Name {
    bucket: String,
    objective: String,
    operation: &'static str,
    latency_us: u32,
    source: Source,
}

impl Name {
    fn of(bucket: &str, name: &str, objective: &Objective, source: Source) -> Self {
        Self {
            source,
            bucket: bucket.to_owned(),
            objective: name.to_owned(),
            operation: objective.operation.name(),
            latency_us: objective.latency_us,
        }
    }

    /// In the file, of the bucket with that uuid. No part has a slash, no bucket an `@`.
    fn text(&self, uuid: &str) -> String {
        format!("{}@{uuid}/{}", self.bucket, self.rest())
    }

    /// The same as an earlier version wrote it, for whichever bucket had the name.
    fn text_without_uuid(&self) -> String {
        format!("{}/{}", self.bucket, self.rest())
    }

    fn rest(&self) -> String {
        let Self { bucket: _, objective, operation, latency_us, source } = self;
        let of_server = format!("{objective}/{operation}/{latency_us}");
        match source {
            Source::Server => of_server,
            outside => format!("{of_server}/{}", outside.name()),
        }
    }
}

/// What was counted for one objective.
#[derive(Debug, Default)]
struct Past {
    ring: Ring,
    /// What the histograms had said at the last look; nothing before the first.
    seen: Option<Counts>,
    /// Since the process started.
    counted: Counts,
}

impl Past {
    fn look(&mut self, now_secs: u64, said: Counts) {
        // What was there before the first look is not this objective's.
        let new = self.seen.map_or(Counts::default(), |seen| said.since(seen));
        self.seen = Some(said);
        self.add(now_secs, new);
    }

    fn add(&mut self, now_secs: u64, new: Counts) {
        self.counted = self.counted.plus(new);
        self.ring.add(now_secs, new);
    }
}

/// See the module. One per node.
pub(crate) struct Objectives {
    pub(crate) file: PathBuf,
    pasts: Mutex<Pasts>,
    pacing: Mutex<Pacing>,
}

#[derive(Default)]
struct Pasts {
    known: BTreeMap<Name, Past>,
    /// The uuids of their buckets. A flush gives a bucket another one.
    uuids: BTreeMap<String, BucketUuid>,
    /// Whether the file has other uuids: a process that starts would have no past of those buckets.
    is_renamed: bool,
    /// Of the file, until the first look tells which of them are still objectives.
    read: BTreeMap<String, Ring>,
}

impl Objectives {
    /// Reads the past of the processes before.
    pub(crate) fn open(file: PathBuf) -> Self {
        let read = read(&file);
        Self { file, pasts: Mutex::new(Pasts { read, ..Pasts::default() }), pacing: Mutex::default() }
    }

    /// Looks at every objective's histograms.
    pub(crate) fn look(
        &self,
        metadata: &Metadata,
        meter: impl Fn(&str) -> Option<Arc<BucketMeter>>,
        now_secs: u64,
    ) {
        let mut pasts = self.pasts.lock();
        let Pasts { known, uuids, is_renamed, read } = &mut *pasts;
        let (mut old, old_uuids) = (std::mem::take(known), std::mem::take(uuids));
        for (bucket, info) in metadata.buckets.iter().filter(|(_, info)| !info.objectives.is_empty()) {
            let meter = meter(bucket);
            *is_renamed |= old_uuids.get(bucket).is_some_and(|before| *before != info.uuid);
            uuids.insert(bucket.clone(), info.uuid.clone());
            for (name, objective) in &info.objectives {
                let mut kept = |key: &Name| {
                    let of_earlier = |read: &mut BTreeMap<_, _>| read.remove(&key.text_without_uuid());
                    let mut ring = || read.remove(&key.text(&info.uuid.0)).or_else(|| of_earlier(read));
                    old.remove(key).or_else(|| Some(Past { ring: ring()?, ..Past::default() }))
                };
                let key = Name::of(bucket, name, objective, Source::Server);
                let mut past = kept(&key).unwrap_or_default();
                if let Some(meter) = &meter {
                    past.look(now_secs, counts(meter, objective));
                }
                known.insert(key, past);
                for source in Source::ALL.into_iter().filter(|source| *source != Source::Server) {
                    let key = Name::of(bucket, name, objective, source);
                    let kept = kept(&key);
                    known.extend(kept.map(|past| (key, past)));
                }
            }
        }
        // What is left was removed while this node was down: another objective of that name has no past.
        read.clear();
    }

    /// The buckets that miss an objective just now, by what has happened since the looks before.
    pub(crate) fn missed(
        &self,
        metadata: &Metadata,
        meter: impl Fn(&str) -> Option<Arc<BucketMeter>>,
    ) -> HashMap<BucketUuid, LatencyReport> {
        self.pacing.lock().look(metadata, |bucket, objective| {
            let meter = meter(bucket)?;
            Some(steps(&meter, objective))
        })
    }

    /// Counts what a probe of a bucket has found.
    pub(crate) fn probed(&self, metadata: &Metadata, bucket: &str, found: &[Tried], now_secs: u64) {
        let Some(info) = metadata.buckets.get(bucket) else { return };
        let mut pasts = self.pasts.lock();
        for (name, objective) in &info.objectives {
            // Before the first look the past of the file would be forgotten.
            if !pasts.known.contains_key(&Name::of(bucket, name, objective, Source::Server)) {
                continue;
            }
            let tries = match objective.operation {
                Operation::Get => Try::Get,
                Operation::Set => Try::Set,
                Operation::Durable => Try::Durable,
            };
            for tried in found.iter().filter(|tried| tried.what == tries) {
                let key = Name::of(bucket, name, objective, Source::Probe);
                pasts.known.entry(key).or_default().add(now_secs, tried.counts(objective.latency_us));
            }
        }
    }

    /// Counts what a client has told of operations on buckets, whichever nodes they went to.
    pub(crate) fn told(&self, metadata: &Metadata, report: &Report, now_secs: u64) {
        let mut pasts = self.pasts.lock();
        for ((_, bucket), told) in &report.told {
            let Some((bucket, info)) = bucket.as_ref().and_then(|name| metadata.buckets.get_key_value(name))
            else {
                continue;
            };
            for (name, objective) in &info.objectives {
                // Before the first look the past of the file would be forgotten.
                if !pasts.known.contains_key(&Name::of(bucket, name, objective, Source::Server)) {
                    continue;
                }
                let of = told_latency(objective.operation);
                let counts = told.latency(of).counts(of, objective.latency_us);
                if let Some(new) = counts.filter(|new| new.total > 0) {
                    let key = Name::of(bucket, name, objective, Source::Sdk);
                    pasts.known.entry(key).or_default().add(now_secs, new);
                }
            }
        }
    }

    /// The buckets of these names are gone: others may have their names, and objectives of the same names.
    pub(crate) fn forget(&self, buckets: &[String]) {
        if !buckets.is_empty() {
            let mut pasts = self.pasts.lock();
            pasts.known.retain(|name, _| !buckets.contains(&name.bucket));
            pasts.uuids.retain(|name, _| !buckets.contains(name));
        }
    }

    /// Whether the file is to be written now.
    pub(crate) fn is_renamed(&self) -> bool {
        self.pasts.lock().is_renamed
    }

    /// What was counted for every objective.
    pub(crate) fn counted(&self, metadata: &Metadata, now_secs: u64) -> Vec<Counted> {
        let pasts = self.pasts.lock();
        let told = |(name, past): (&Name, &Past)| {
            let objective = metadata.buckets.get(&name.bucket)?.objectives.get(&name.objective)?;
            let spans = past.ring.spans(now_secs, objective.period_days);
            let (bucket, objective) = (name.bucket.clone(), name.objective.clone());
            Some(Counted { bucket, objective, source: name.source, spans })
        };
        pasts.known.iter().filter_map(told).collect()
    }

    /// The statistics of a bucket's objectives.
    pub(crate) fn readings(&self, metadata: &Metadata, bucket: &str, now_secs: u64) -> Vec<Reading> {
        let Some(info) = metadata.buckets.get(bucket) else { return Vec::new() };
        let pasts = self.pasts.lock();
        let of = |(name, objective): (&String, &Objective)| {
            let of_source = |source: Source| {
                let past = pasts.known.get(&Name::of(bucket, name, objective, source))?;
                let (counted, spans) = (past.counted, past.ring.spans(now_secs, objective.period_days));
                let judged = judge(objective.target_ppm, &spans);
                Some(match source {
                    Source::Server => {
                        of_objective(name, &ObjectiveFacts { objective: *objective, counted, judged })
                    }
                    outside => seen_from_outside(name, outside, &OutsideFacts { counted, judged }),
                })
            };
            Source::ALL.into_iter().filter_map(of_source).flatten().collect::<Vec<_>>()
        };
        info.objectives.iter().flat_map(of).collect()
    }

    fn write(&self) -> io::Result<()> {
        let bytes = {
            let mut pasts = self.pasts.lock();
            pasts.is_renamed = false;
            let uuid_of = |name: &Name| pasts.uuids.get(&name.bucket).map_or("", |uuid| &uuid.0);
            let known = pasts.known.iter();
            let names: Vec<(String, &Ring)> =
                known.map(|(name, past)| (name.text(uuid_of(name)), &past.ring)).collect();
            stored::encode(names.iter().map(|(name, ring)| (name.as_str(), *ring)))
        };
        // Order matters: a crash leaves the old file or the new one, whole.
        let staged = self.file.with_extension("new");
        let mut file = File::create(&staged)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(&staged, &self.file)?;
        sync_parent(&self.file)
    }

    /// The file is written, or the log says why it could not be.
    pub(crate) fn write_or_say(&self) {
        // Without objectives an old file is emptied, and none is made.
        if self.is_idle() && !self.file.exists() {
            return;
        }
        if let Err(error) = self.write() {
            let file = self.file.display();
            tracing::warn!(%error, %file, "the past of objectives could not be written");
        }
    }

    /// Whether nothing was counted.
    pub(crate) fn is_idle(&self) -> bool {
        let pasts = self.pasts.lock();
        pasts.known.is_empty() && pasts.read.is_empty()
    }
}

/// What a bucket's histograms say for an objective since it was opened.
fn counts(meter: &BucketMeter, objective: &Objective) -> Counts {
    split(&steps(meter, objective), objective.latency_us)
}

fn read(file: &Path) -> BTreeMap<String, Ring> {
    let length = fs::metadata(file).map_or(0, |metadata| metadata.len());
    let bytes = match fs::read(file) {
        Ok(bytes) if length <= FILE_BYTES_MAX => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return BTreeMap::new(),
        Ok(_) => Vec::new(),
        Err(error) => {
            tracing::warn!(%error, file = %file.display(), "the past of objectives cannot be read: it begins anew");
            return BTreeMap::new();
        }
    };
    stored::decode(&bytes).unwrap_or_else(|| {
        let aside = file.with_extension("damaged");
        let kept = fs::rename(file, &aside).map(|()| aside.display().to_string());
        tracing::warn!(
            file = %file.display(),
            aside = kept.unwrap_or_default(),
            "the past of objectives is damaged: it begins anew"
        );
        BTreeMap::new()
    })
}

#[cfg(test)]
mod tests {
    use cluster::{BucketParams, Command, NodeInfo, ObjectiveChange, Ports};
    use dataplane::meter::OpKind;
    use watch::Span;

    use super::*;

    const NOW: u64 = 1_700_000_000;

    fn metadata(latency_us: u32) -> Metadata {
        let node = NodeInfo::first("1".repeat(32), "127.0.0.1".into(), Ports::default());
        let params = BucketParams { ram_quota_mb: Some(100), ..BucketParams::default() };
        let objective =
            Objective { operation: Operation::Get, latency_us, target_ppm: 900_000, period_days: 28 };
        let commands = [
            Command::SetNode(node),
            Command::CreateBucket { name: "b".into(), uuid: BucketUuid("b".into()), params },
            Command::ChangeObjective(ObjectiveChange {
                bucket: "b".into(),
                name: "gets".into(),
                objective: Some(objective),
            }),
        ];
        commands.iter().fold(Metadata::new("c".into(), 1024), |state, one| state.apply(one).unwrap().0)
    }

    fn look(objectives: &Objectives, metadata: &Metadata, meter: &Arc<BucketMeter>, now: u64) {
        objectives.look(metadata, |name| (name == "b").then(|| Arc::clone(meter)), now);
    }

    fn of_five_minutes(objectives: &Objectives, metadata: &Metadata, now: u64) -> Counts {
        objectives.counted(metadata, now)[0].spans.of(Span::Minutes5)
    }

    #[test]
    fn what_is_slower_than_the_objective_counts_as_bad_and_other_operations_do_not_count() {
        let (folder, meter) = (tempfile::tempdir().unwrap(), Arc::new(BucketMeter::new(1)));
        let (objectives, metadata) = (Objectives::open(folder.path().join("objectives")), metadata(2_000));
        meter.record(0, OpKind::Get, 100, 9_000);
        look(&objectives, &metadata, &meter, NOW);
        for (kind, count, micros) in [
            (OpKind::Get, 5, 100),
            (OpKind::SubdocLookup, 3, 1_900),
            (OpKind::Get, 1, 1_999),
            (OpKind::Get, 2, 2_001),
            (OpKind::Set, 50, 100),
        ] {
            meter.record(0, kind, count, micros);
        }
        look(&objectives, &metadata, &meter, NOW + 5);
        let expected = Counts { good: 8, total: 11 };
        assert_eq!(
            of_five_minutes(&objectives, &metadata, NOW + 5),
            expected,
            "what was before is not counted"
        );
        let shown = objectives.readings(&metadata, "b", NOW + 5);
        let events =
            shown.iter().find(|one| one.about.metrics[0].family == "settee_slo_events_total").unwrap();
        assert_eq!(events.value, 11.into());
        assert_eq!(events.labels[0], ("objective", "gets".to_owned()));
    }

    #[test]
    fn the_past_outlives_the_process_and_a_damaged_file_is_set_aside() {
        let (folder, meter) = (tempfile::tempdir().unwrap(), Arc::new(BucketMeter::new(1)));
        let (file, metadata) = (folder.path().join("objectives"), metadata(2_000));
        let before = Objectives::open(file.clone());
        look(&before, &metadata, &meter, NOW);
        meter.record(0, OpKind::Get, 7, 1);
        look(&before, &metadata, &meter, NOW + 5);
        before.write().unwrap();
        let again = || {
            let (objectives, fresh) = (Objectives::open(file.clone()), Arc::new(BucketMeter::new(1)));
            look(&objectives, &metadata, &fresh, NOW + 20);
            of_five_minutes(&objectives, &metadata, NOW + 20)
        };
        assert_eq!(again(), Counts { good: 7, total: 7 });
        let mut bytes = fs::read(&file).unwrap();
        bytes[20] ^= 1;
        fs::write(&file, bytes).unwrap();
        assert_eq!(again(), Counts::default());
        assert!(file.with_extension("damaged").exists() && !file.exists());
    }

    #[test]
    fn what_probes_see_is_a_past_of_its_own_that_outlives_the_process() {
        let (folder, meter) = (tempfile::tempdir().unwrap(), Arc::new(BucketMeter::new(1)));
        let (file, metadata) = (folder.path().join("objectives"), metadata(2_000));
        let before = Objectives::open(file.clone());
        let get = |micros| Tried { what: Try::Get, ended: watch::probe::Ended::Answered, micros };
        before.probed(&metadata, "b", &[get(1)], NOW);
        look(&before, &metadata, &meter, NOW);
        before.probed(&metadata, "b", &[get(2_000), get(2_001), Tried::unanswered(Try::Set)], NOW);
        before.write().unwrap();
        let again = Objectives::open(file);
        look(&again, &metadata, &meter, NOW + 5);
        for objectives in [&before, &again] {
            let counted = objectives.counted(&metadata, NOW + 5);
            let of = |source| counted.iter().find(|one| one.source == source).unwrap();
            assert_eq!(of(Source::Probe).spans.of(Span::Minutes5), Counts { good: 1, total: 2 });
            assert_eq!(of(Source::Server).spans.period, Counts::default());
        }
        let shown = before.readings(&metadata, "b", NOW + 5);
        let family = "settee_slo_outside_events_total";
        let events = shown.iter().find(|one| one.about.metrics[0].family == family).unwrap();
        assert_eq!((events.value.number(), &events.labels[1]), (Some(2.0), &("source", "probe".to_owned())));
    }

    #[test]
    fn what_clients_tell_is_a_past_of_its_own_by_the_bound_below_the_latency() {
        let (folder, meter) = (tempfile::tempdir().unwrap(), Arc::new(BucketMeter::new(1)));
        let tell = |latency_us| {
            let metadata = metadata(latency_us);
            let objectives = Objectives::open(folder.path().join(latency_us.to_string()));
            let of = |part: &str, value: u32| {
                format!(
                    "sdk_kv_retrieval_duration_milliseconds_{part}node_uuid=\"n\",bucket=\"b\"}} {value}\n"
                )
            };
            let text = of("bucket{le=\"1\",", 3) + &of("bucket{le=\"10\",", 5) + &of("count{", 8);
            let report = Report::read(&text, |_, _| true);
            objectives.told(&metadata, &report, NOW);
            look(&objectives, &metadata, &meter, NOW);
            objectives.told(&metadata, &report, NOW);
            let counted = objectives.counted(&metadata, NOW);
            counted.into_iter().find(|one| one.source == Source::Sdk).map(|one| one.spans.of(Span::Minutes5))
        };
        assert_eq!(tell(2_000), Some(Counts { good: 3, total: 8 }));
        assert_eq!(tell(10_000), Some(Counts { good: 5, total: 8 }));
        assert_eq!(tell(999), None, "no step can be good");
    }

    #[test]
    fn another_latency_begins_another_past_and_an_objective_that_goes_takes_its_past_along() {
        let (folder, meter) = (tempfile::tempdir().unwrap(), Arc::new(BucketMeter::new(1)));
        let objectives = Objectives::open(folder.path().join("objectives"));
        look(&objectives, &metadata(2_000), &meter, NOW);
        meter.record(0, OpKind::Get, 7, 1);
        look(&objectives, &metadata(2_000), &meter, NOW + 5);
        look(&objectives, &metadata(3_000), &meter, NOW + 10);
        assert_eq!(of_five_minutes(&objectives, &metadata(3_000), NOW + 10), Counts::default());
        objectives.look(&Metadata::new("c".into(), 1024), |_| None, NOW + 15);
        assert!(objectives.is_idle());
    }

    #[test]
    fn a_bucket_made_anew_has_no_past_and_a_flushed_one_keeps_it() {
        let (folder, meter) = (tempfile::tempdir().unwrap(), Arc::new(BucketMeter::new(1)));
        let file = folder.path().join("objectives");
        let of_uuid = |uuid: &str| {
            let mut metadata = metadata(2_000);
            metadata.buckets.get_mut("b").unwrap().uuid = BucketUuid(uuid.into());
            metadata
        };
        let counted = |objectives: &Objectives, uuid: &str| {
            look(objectives, &of_uuid(uuid), &meter, NOW + 10);
            of_five_minutes(objectives, &of_uuid(uuid), NOW + 10)
        };
        let seven = Counts { good: 7, total: 7 };
        let running = Objectives::open(file.clone());
        counted(&running, "first");
        meter.record(0, OpKind::Get, 7, 1);
        assert_eq!((counted(&running, "first"), running.is_renamed()), (seven, false));
        running.write().unwrap();
        let again = |uuid| counted(&Objectives::open(file.clone()), uuid);
        assert_eq!(again("first"), seven);
        assert_eq!(again("another"), Counts::default(), "made anew while the node was down");
        assert_eq!((counted(&running, "flushed"), running.is_renamed()), (seven, true));
        running.write().unwrap();
        assert_eq!((again("flushed"), running.is_renamed()), (seven, false));
        running.forget(&["b".to_owned()]);
        assert_eq!(counted(&running, "third"), Counts::default(), "made anew while the node runs");
        // An earlier version wrote no uuid.
        let earlier = stored::decode(&fs::read(&file).unwrap()).unwrap();
        let name = |name: &str| name.replace("@flushed", "");
        let earlier: Vec<_> = earlier.iter().map(|(key, ring)| (name(key), ring)).collect();
        fs::write(&file, stored::encode(earlier.iter().map(|(key, ring)| (key.as_str(), *ring)))).unwrap();
        assert_eq!(again("first"), seven);
    }
}
