//! YCSB's core workload: its properties with their defaults (YCSB 0.17, `CoreWorkload`).
//!
//! What differs from running it there: a scan is a multi-get of as many records as the mean scan has. (A key-value
//! connection cannot scan.) Updates and read-modify-writes write the whole document; reads read it whole.

use super::{Profile, Properties, Stage, rate};
use crate::choose::Choice;
use crate::keys::KeyForm;
use crate::op::{Mix, Op};
use crate::values::{Sizes, ValueKind};

/// The exponent of YCSB's power law.
const THETA: f64 = 0.99;
/// Lengths of fields that lie within this part of each other are as likely.
const BAND_SHARE: usize = 16;
/// Knobs of YCSB's clients and reports that change nothing here.
const MEANINGLESS: &[&str] = &[
    "table",
    "readallfields",
    "writeallfields",
    "readallfieldsbyname",
    "dataintegrity",
    "fieldnameprefix",
    "columnfamily",
    "measurementtype",
    "measurement.raw.output_file",
    "measurement.trackjvm",
    "timeseries.granularity",
    "latencytrackederrors",
    "histogram.buckets",
    "hdrhistogram.percentiles",
    "exporter",
    "exportfile",
    "db",
    "status.interval",
    "dotransactions",
    "core_workload_insertion_retry_limit",
    "core_workload_insertion_retry_interval",
    "measurement.interval",
    "reportlatencyforeacherror",
];

pub(super) fn profile(properties: &Properties, stage: Stage) -> Result<Profile, String> {
    let p = properties;
    let proportion = |name: &str, default: f64| p.value::<f64>(&format!("{name}proportion"), default);
    let mix = Mix::new(&[
        (Op::Get, proportion("read", 0.95)?),
        (Op::Set, proportion("update", 0.05)?),
        (Op::Insert, proportion("insert", 0.0)?),
        (Op::MultiGet, proportion("scan", 0.0)?),
        (Op::Rmw, proportion("readmodifywrite", 0.0)?),
    ])?;
    let records = p.value("recordcount", 0u64)?;
    let first = p.value("insertstart", 0u64)?;
    let inserted = p.value("insertcount", records.saturating_sub(first))?;
    if stage == Stage::Run && first.checked_add(inserted).is_none_or(|end| end > records) {
        return Err("recordcount must not be less than insertstart and insertcount together".to_owned());
    }
    // Both stages are about these; what a run inserts comes behind them.
    let records = inserted;
    if records == 0 {
        return Err("recordcount is missing".to_owned());
    }
    let keys = match p.get("insertorder").unwrap_or("hashed") {
        "ordered" => KeyForm::Decimal(p.value("zeropadding", 1usize)?.min(200)),
        _ => KeyForm::Fnv64,
    };
    let scan_max = p.value("maxscanlength", 1000usize)?;
    let scan_min = p.value("minscanlength", 1usize)?;
    p.get("scanlengthdistribution");
    let operations = p.value("operationcount", 0u64)?;
    let seconds = p.value("maxexecutiontime", 0.0)?;
    let (count, length) = (p.value("fieldcount", 10usize)?, p.value("fieldlength", 100usize)?);
    if count.saturating_mul(length) > base::limits::VALUE_BYTES_MAX / 2 {
        return Err("fieldcount times fieldlength is more than a document can hold".to_owned());
    }
    p.pass_over(MEANINGLESS);
    let choice = choice(p, records)?;
    let mut profile = Profile {
        mix: if stage == Stage::Load { Mix::only(Op::Set) } else { mix },
        records,
        first,
        choice: if stage == Stage::Load { Choice::Each } else { choice },
        keys,
        prefix: p.value("keyprefix", "user".to_owned())?,
        values: ValueKind::Fields { count, lengths: field_lengths(p, length)? },
        multi: usize::midpoint(scan_min, scan_max).clamp(1, 1000),
        operations: (operations > 0 && stage == Stage::Run).then_some(operations),
        seconds: (seconds > 0.0).then_some(seconds),
        connections: p.value("threadcount", 1u32)?.clamp(1, 60_000),
        rate: rate(p.value("target", 0.0)?),
        address: None,
        protocol: None,
        bucket: None,
        label: p.value("label", String::new())?,
        buckets: 20,
        lines_every: 10.0,
        export: None,
        json: false,
        series: None,
        ignored: Vec::new(),
    };
    couchbase(p, &mut profile);
    profile.ignored = p.unused();
    Ok(profile)
}

/// How long fields are; by a power law short ones are the many.
fn field_lengths(p: &Properties, most: usize) -> Result<Sizes, String> {
    let least = p.value("minfieldlength", 1usize)?.min(most);
    match p.get("fieldlengthdistribution").unwrap_or("constant") {
        "constant" => Sizes::uniform(most, most),
        "uniform" => Sizes::uniform(least, most),
        "zipfian" => {
            let mut bands = Vec::new();
            let mut from = least;
            while from <= most {
                // Bands grow with the length, so that there are few of them for any length.
                let to = (from + from / BAND_SHARE).min(most);
                let weight = (from..=to).map(|length| ((length - least + 1) as f64).powf(-THETA)).sum();
                bands.push((weight, from, to));
                from = to + 1;
            }
            Sizes::bands(&bands)
        }
        other => Err(format!("fieldlengthdistribution={other}: there are constant, uniform, zipfian")),
    }
}

fn choice(p: &Properties, records: u64) -> Result<Choice, String> {
    Ok(match p.get("requestdistribution").unwrap_or("uniform") {
        "uniform" => Choice::Uniform,
        "zipfian" => Choice::Zipf { theta: THETA },
        "latest" => Choice::Latest { theta: THETA },
        "sequential" => Choice::Sequential,
        "exponential" => Choice::Exponential {
            percent: within(p, "exponential.percentile", 95.0, 0.0..=99.999_999)?,
            share: within(p, "exponential.frac", 0.857_142_857_1, 0.0..=1e9)?,
        },
        "hotspot" => Choice::HotSet {
            size: ((records as f64 * p.value("hotspotdatafraction", 0.2)?) as u64).clamp(1, 100_000_000),
            churn_every: 0,
            share: p.value("hotspotopnfraction", 0.8)?,
        },
        other => {
            return Err(format!(
                "requestdistribution={other}: there are uniform, zipfian, latest, sequential, exponential, hotspot"
            ));
        }
    })
}

/// A number within bounds, the lower one excluded.
fn within(
    p: &Properties,
    name: &str,
    default: f64,
    bounds: std::ops::RangeInclusive<f64>,
) -> Result<f64, String> {
    let value = p.value(name, default)?;
    let good = bounds.contains(&value) && value > *bounds.start();
    good.then_some(value).ok_or_else(|| format!("{name}={value} is out of bounds"))
}

/// What YCSB's Couchbase bindings call the target.
fn couchbase(p: &Properties, profile: &mut Profile) {
    let host = p.get("couchbase.host").or_else(|| p.get("couchbase.url")).map(|url| {
        let host = url.split(',').next().unwrap_or_default().trim();
        let host = host.split_once("://").map_or(host, |(_, rest)| rest);
        host.split(['/', ':']).next().unwrap_or_default().to_owned()
    });
    profile.address = host.filter(|host| !host.is_empty()).map(|host| (host, None));
    let bucket = p.get("couchbase.bucket").map(str::to_owned);
    let password = p.get("couchbase.password").unwrap_or_default().to_owned();
    profile.bucket = bucket.map(|bucket| (bucket, password));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile_of(text: &str, stage: Stage) -> Result<Profile, String> {
        let mut properties = Properties::default();
        properties.read("recordcount=1000\noperationcount=500\nworkload=site.ycsb.workloads.CoreWorkload\n");
        properties.read(text);
        Profile::of(&properties, stage)
    }

    #[test]
    fn the_six_workloads_are_what_they_are_there() {
        let files = [
            ("readproportion=0.5\nupdateproportion=0.5\nrequestdistribution=zipfian", "get=0.5,set=0.5"),
            ("readproportion=0.95\nupdateproportion=0.05\nrequestdistribution=zipfian", "get=0.95,set=0.05"),
            ("readproportion=1\nupdateproportion=0\nrequestdistribution=zipfian", "get=1"),
            (
                "readproportion=0.95\nupdateproportion=0\ninsertproportion=0.05\nrequestdistribution=latest",
                "get=0.95,insert=0.05",
            ),
            (
                "readproportion=0\nupdateproportion=0\nscanproportion=0.95\ninsertproportion=0.05\nmaxscanlength=100",
                "insert=0.05,mget=0.95",
            ),
            ("readproportion=0.5\nupdateproportion=0\nreadmodifywriteproportion=0.5", "get=0.5,rmw=0.5"),
        ];
        for (file, mix) in files {
            let profile = profile_of(file, Stage::Run).expect("a workload");
            assert_eq!(profile.mix.to_string(), mix);
            assert_eq!((profile.records, profile.operations), (1000, Some(500)));
            assert!(profile.ignored.is_empty(), "{:?}", profile.ignored);
        }
    }

    #[test]
    fn a_run_may_begin_in_the_middle_and_prefer_the_newest() {
        let file = "insertstart=400\nrequestdistribution=exponential";
        for stage in [Stage::Load, Stage::Run] {
            let profile = profile_of(file, stage).expect("a workload");
            assert_eq!((profile.first, profile.records), (400, 600), "the rest of them");
            assert!(profile.ignored.is_empty(), "{:?}", profile.ignored);
        }
        let profile = profile_of(file, Stage::Run).expect("a workload");
        assert_eq!(profile.choice, Choice::Exponential { percent: 95.0, share: 0.857_142_857_1 });
        let part = profile_of("insertstart=400\ninsertcount=100", Stage::Load).expect("a workload");
        assert_eq!((part.first, part.records, part.choice), (400, 100, Choice::Each));
        for text in ["insertstart=400\ninsertcount=601", "insertstart=1000"] {
            assert!(profile_of(text, Stage::Run).is_err(), "{text}");
        }
        for text in ["exponential.percentile=100", "exponential.frac=0"] {
            assert!(
                profile_of(&format!("requestdistribution=exponential\n{text}"), Stage::Run).is_err(),
                "{text}"
            );
        }
    }

    #[test]
    fn fields_have_the_lengths_that_were_asked_for() {
        let lengths = |text: &str| match profile_of(text, Stage::Run).map(|profile| profile.values) {
            Ok(ValueKind::Fields { lengths, .. }) => lengths,
            other => panic!("{text}: {other:?}"),
        };
        let uniform = lengths("fieldlengthdistribution=uniform\nminfieldlength=20");
        assert_eq!(uniform, Sizes::uniform(20, 100).expect("sizes"));
        let zipf = lengths("fieldlengthdistribution=zipfian");
        let all: Vec<usize> = (0..20_000).map(|index| zipf.of(index, 1)).collect();
        let share = |length: usize| all.iter().filter(|found| **found == length).count() as f64 / 20_000.0;
        // One over the sum of 1/k^0.99 for k up to 100, and half of that to the power.
        assert!(
            (share(1) - 0.189).abs() < 0.02 && (share(2) - 0.095).abs() < 0.02,
            "{} {}",
            share(1),
            share(2)
        );
        assert!(all.iter().all(|length| (1..=100).contains(length)) && all.iter().any(|length| *length > 90));
        assert!(profile_of("fieldlengthdistribution=histogram", Stage::Run).is_err());
    }

    #[test]
    fn defaults_and_the_load_stage() {
        let profile = profile_of("threadcount=8\ntarget=100\nodd=1", Stage::Load).expect("a workload");
        assert_eq!((profile.choice, profile.operations, profile.connections), (Choice::Each, None, 8));
        assert_eq!((profile.rate, profile.mix), (Some(100.0), Mix::only(Op::Set)));
        let lengths = Sizes::uniform(100, 100).expect("sizes");
        assert_eq!(profile.values, ValueKind::Fields { count: 10, lengths });
        assert_eq!(profile.ignored, ["odd"]);
        assert!(profile_of("recordcount=x", Stage::Run).is_err());
        assert!(profile_of("requestdistribution=odd", Stage::Run).is_err());
        assert!(profile_of("workload=com.example.Other", Stage::Run).is_err());
    }
}
