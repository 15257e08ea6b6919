//! The historical generator for memcached and Membase (`com.yahoo.ycsb.LoadGenerator` of 2011). Every key of its
//! property file is known, with its default, misspelling included. So is every key of its successor's JSON file.
//!
//! Proportions are weights. Its memcached workload ignores `read*`, `update*` and their like, and so does this one.
//! Three things differ. INCR, DECR and DELETE are carried out where the original did nothing. `target` throttles (as
//! in its successor). The load stage writes with SET.

use super::{Profile, Properties, Stage, rate};
use crate::choose::Choice;
use crate::keys::KeyForm;
use crate::op::{Mix, Op};
use crate::values::{Sizes, ValueKind};
use crate::wire::Protocol;
use std::time::Duration;

/// The exponent of its power law.
const THETA: f64 = 0.99;
/// Keys that its memcached workload never looks at, or that concern its own processes.
const MEANINGLESS: &[&str] = &[
    "dotransactions",
    "fieldcount",
    "fieldlength",
    "insertproportion",
    "maxscanlength",
    "readallfields",
    "readproportion",
    "readmodifywriteproportion",
    "scanlengthdistribution",
    "scanproportion",
    "table",
    "updateproportion",
    "writeallfields",
    "memcached.verbose",
    "memcached.simulatedelay",
];
/// Weights by operation, with their defaults; `memincrproporiton` is spelt like that.
const WEIGHTS: &[(&str, Op, f64)] = &[
    ("memaddproportion", Op::Add, 0.0),
    ("memappendproportion", Op::Append, 0.0),
    ("memcasproportion", Op::Cas, 0.0),
    ("memdecrproportion", Op::Decr, 0.0),
    ("memdeleteproportion", Op::Delete, 0.0),
    ("memgetproportion", Op::Get, 0.95),
    ("memgetsproportion", Op::Get, 0.0),
    ("memincrproporiton", Op::Incr, 0.0),
    ("memprependproportion", Op::Prepend, 0.0),
    ("memreplaceproportion", Op::Replace, 0.0),
    ("memsetproportion", Op::Set, 0.0),
    ("memupdateproportion", Op::Set, 0.05),
];

pub(super) fn profile(properties: &Properties, stage: Stage) -> Result<Profile, String> {
    let p = properties;
    let mut weights = Vec::new();
    for &(key, op, default) in WEIGHTS {
        let weight = p.value::<f64>(key, default)?;
        match weights.iter_mut().find(|(known, _)| *known == op) {
            Some((_, sum)) => *sum += weight,
            None => weights.push((op, weight)),
        }
    }
    let mix = Mix::new(&weights)?;
    let records = p.value("recordcount", 0u64)?;
    // A run chooses among all records from the first on; only the load stage knows another beginning and number.
    let (first, count) = (p.value("insertstart", 0u64)?, p.value("insertcount", records)?);
    let (first, records) = if stage == Stage::Load { (first, count) } else { (0, records) };
    if records == 0 {
        return Err("recordcount is missing".to_owned());
    }
    let length = p.value("valuelength", 256usize)?;
    let operations = p.value("operationcount", 0i64)?;
    let (protocol, bucket) = database(p)?;
    p.pass_over(MEANINGLESS);
    let address = p.get("memcached.address").map(str::to_owned);
    let port = p.value("memcached.port", 11211u16)?;
    let port = (protocol != Some(Protocol::Couchbase)).then_some(port);
    let choice = choice(p)?;
    let series = series(p)?;
    let slaves = p.get("slaveaddress").filter(|addresses| !addresses.trim().is_empty());
    let mut profile = Profile {
        mix: if stage == Stage::Load { Mix::only(Op::Set) } else { mix },
        records,
        first,
        choice: if stage == Stage::Load { Choice::Each } else { choice },
        keys: match p.get("insertorder") {
            None | Some("hashed") => KeyForm::Historic,
            Some(_) => KeyForm::Decimal(0),
        },
        prefix: p.value("keyprefix", "user".to_owned())?,
        values: ValueKind::Ascii(Sizes::uniform(length, length)?),
        multi: 1,
        operations: u64::try_from(operations).ok().filter(|&count| count > 0 && stage == Stage::Run),
        seconds: None,
        connections: p.value("threadcount", 1u32)?.clamp(1, 60_000),
        rate: rate(p.value("target", 0.0)?),
        address: address.map(|address| (address, port)),
        protocol,
        bucket,
        label: p.value("label", String::new())?,
        buckets: p.value("histogram.buckets", 20usize)?.clamp(1, 40),
        lines_every: p.value("printstatsinterval", 5.0)?,
        export: p.get("exportfile").filter(|path| !path.is_empty()).map(str::to_owned),
        json: p.get("exporter").is_some_and(|name| name.ends_with("JSONMeasurementsExporter")),
        series,
        ignored: Vec::new(),
    };
    profile.ignored = p.unused();
    // Its slaves speak Java RMI; ours are started and named otherwise.
    profile.ignored.extend(slaves.map(|addresses| format!("slaveaddress={addresses} (see --workers)")));
    Ok(profile)
}

/// What to speak, and bucket and password.
type Database = (Option<Protocol>, Option<(String, String)>);

/// Which of its clients is asked for: the one of Membase goes by vBuckets, the other one speaks text.
fn database(p: &Properties) -> Result<Database, String> {
    let db = p.get("db").unwrap_or_default();
    let bucket = p.value("membase.bucket", "default".to_owned())?;
    let password = p.get("membase.password").unwrap_or_default().to_owned();
    let protocol = match (db.rsplit('.').next().unwrap_or_default(), p.get("protocol")) {
        ("MembaseClient", _) => Protocol::Couchbase,
        ("SpymemcachedClient", _) | ("", Some("ascii")) => Protocol::Text,
        ("", Some("binary")) => Protocol::Binary,
        ("", _) => return Ok((None, Some((bucket, password)))),
        (other, _) => return Err(format!("db={other}: there are MembaseClient and SpymemcachedClient")),
    };
    Ok((Some(protocol), Some((bucket, password))))
}

/// The length of a unit, if averages over time are asked for: by any measurement type but the histogram, as in the original.
fn series(p: &Properties) -> Result<Option<Duration>, String> {
    let unit = p.value("timeseries.granularity", 1000u64)?;
    if matches!(p.get("measurementtype"), None | Some("histogram")) {
        return Ok(None);
    }
    if !(10..=3_600_000).contains(&unit) {
        return Err(format!("timeseries.granularity={unit}: 10 to 3600000 milliseconds"));
    }
    Ok(Some(Duration::from_millis(unit)))
}

fn choice(p: &Properties) -> Result<Choice, String> {
    let size = p.value("workingset", 1u64)?.clamp(1, 100_000_000);
    let churn_every = p.value("churndelta", 1u64)?;
    Ok(match p.get("requestdistribution").unwrap_or("zipfian") {
        "zipfian" => Choice::Zipf { theta: THETA },
        "uniform" => Choice::Uniform,
        "latest" => Choice::Latest { theta: THETA },
        "churn" => Choice::HotSet { size, churn_every, share: 1.0 },
        other => {
            return Err(format!("requestdistribution={other}: there are zipfian, uniform, latest, churn"));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The file of a published production report, unchanged.
    const PUBLISHED: &str =
        "db=com.yahoo.ycsb.db.MembaseClient\nmemcached.address=192.168.1.1\nmemcached.port=11211
histogram.buckets=20\nexportfile=/tmp/results.txt\nrecordcount=100000\noperationcount=2000000
workload=com.yahoo.ycsb.workloads.MemcachedCoreWorkload\nreadallfields=true\ninsertproportion=0
readproportion=0.100\nupdateproportion=0\nscanproportion=0\nmemgetproportion=0.100\nmemupdateproportion=0.0
valuelength=2048\nworkingset=100000\nchurndelta=100000\nprintstatsinterval=5\nrequestdistribution=zipfian
threadcount=8\n";

    fn profile_of(more: &str, stage: Stage) -> Result<Profile, String> {
        let mut properties = Properties::default();
        properties.read(PUBLISHED);
        properties.read(more);
        Profile::of(&properties, stage)
    }

    #[test]
    fn a_published_file_is_read_unchanged() {
        let profile = profile_of("", Stage::Run).expect("a workload");
        assert_eq!(profile.mix, Mix::new(&[(Op::Get, 0.1)]).expect("a mix"));
        assert_eq!((profile.records, profile.operations, profile.connections), (100_000, Some(2_000_000), 8));
        assert_eq!(profile.choice, Choice::Zipf { theta: 0.99 });
        assert_eq!(profile.protocol, Some(Protocol::Couchbase));
        assert_eq!(
            profile.address,
            Some(("192.168.1.1".to_owned(), None)),
            "11211 is not what its client asks"
        );
        assert_eq!((profile.buckets, profile.export.as_deref()), (20, Some("/tmp/results.txt")));
        assert!(profile.ignored.is_empty(), "{:?}", profile.ignored);
    }

    #[test]
    fn weights_churn_and_the_misspelt_key() {
        let more = "memgetproportion=8\nmemgetsproportion=1\nmemincrproporiton=1\nrequestdistribution=churn\nworkingset=7\n\
                    churndelta=3\ndb=com.yahoo.ycsb.db.SpymemcachedClient\noperationcount=-1";
        let profile = profile_of(more, Stage::Run).expect("a workload");
        assert_eq!(profile.mix.to_string(), "get=9,incr=1");
        assert_eq!(profile.choice, Choice::HotSet { size: 7, churn_every: 3, share: 1.0 });
        assert_eq!((profile.protocol, profile.operations), (Some(Protocol::Text), None));
        assert_eq!(profile.address, Some(("192.168.1.1".to_owned(), Some(11211))));
        let load = profile_of("insertstart=50\ninsertcount=20", Stage::Load).expect("a workload");
        assert_eq!((load.first, load.records), (50, 20));
        let load = profile_of("", Stage::Load).expect("a workload");
        assert_eq!((load.first, load.records), (0, 100_000));
        assert_eq!((load.choice, load.operations, load.mix), (Choice::Each, None, Mix::only(Op::Set)));
        assert!(profile_of("memgetproportion=0", Stage::Run).is_err(), "nothing to do");
        assert!(profile_of("db=com.example.Other", Stage::Run).is_err());
    }

    #[test]
    fn stages_exporters_and_what_is_not_told() {
        let stage = |text: &str| {
            let mut properties = Properties::default();
            properties.read(text);
            Stage::of(&properties)
        };
        assert_eq!([stage(""), stage("dotransactions=false")], [Stage::Run, Stage::Load]);
        let json =
            profile_of("exporter=com.yahoo.ycsb.measurements.exporter.JSONMeasurementsExporter", Stage::Run);
        assert!(json.is_ok_and(|profile| profile.json && profile.ignored.is_empty()));
        let series = profile_of("measurementtype=timeseries\ntimeseries.granularity=100", Stage::Run);
        assert_eq!(series.map(|profile| profile.series), Ok(Some(Duration::from_millis(100))));
        assert!(
            profile_of("timeseries.granularity=100", Stage::Run)
                .is_ok_and(|profile| profile.series.is_none())
        );
        assert!(profile_of("measurementtype=timeseries\ntimeseries.granularity=0", Stage::Run).is_err());
    }

    /// Every key that either generator knows, none with its default.
    const EVERY_KEY: &str = "churndelta=17\ndb=com.yahoo.ycsb.db.MembaseClient\ndotransactions=false
exporter=com.yahoo.ycsb.measurements.exporter.JSONMeasurementsExporter\nexportfile=/tmp/r.txt\nfieldcount=3
fieldlength=7\nhistogram.buckets=12\ninsertcount=900\ninsertorder=ordered\ninsertproportion=0.3\ninsertstart=100
keyprefix=k-\nlabel=monday\nmaxscanlength=5\nmeasurementtype=timeseries\nmemcached.address=10.2.1.15
memcached.port=11222\nmemaddproportion=1\nmemappendproportion=2\nmemcasproportion=3\nmemdecrproportion=4
memdeleteproportion=5\nmemgetproportion=6\nmemgetsproportion=7\nmemincrproporiton=8\nmemprependproportion=9
memreplaceproportion=10\nmemsetproportion=11\nmemupdateproportion=12\noperationcount=5000\nprintstatsinterval=2
protocol=binary\nreadallfields=false\nreadproportion=0.5\nreadmodifywriteproportion=0.1\nrecordcount=1000
requestdistribution=churn\nscanlengthdistribution=zipfian\nscanproportion=0.2\nslaveaddress=10.0.0.8,10.0.0.9
table=t\ntarget=7000\nthreadcount=4\ntimeseries.granularity=250\nupdateproportion=0.4\nvaluelength=64
workingset=50\nworkload=com.yahoo.ycsb.workloads.MemcachedCoreWorkload\nwriteallfields=true
memcached.verbose=false\nmemcached.simulatedelay=3\nmembase.bucket=b\nmembase.password=pw\n";

    #[test]
    fn every_key_is_honoured_or_told() {
        let mut properties = Properties::default();
        properties.read(EVERY_KEY);
        assert_eq!(Stage::of(&properties), Stage::Load);
        let run = Profile::of(&properties, Stage::Run).expect("a workload");
        let mix = "add=1,append=2,cas=3,decr=4,delete=5,get=13,incr=8,prepend=9,replace=10,set=23";
        assert_eq!(run.mix.to_string(), mix);
        assert_eq!(run.choice, Choice::HotSet { size: 50, churn_every: 17, share: 1.0 });
        assert_eq!((run.records, run.first, run.operations), (1000, 0, Some(5000)));
        assert_eq!((run.connections, run.rate), (4, Some(7000.0)));
        assert!(matches!(run.keys, KeyForm::Decimal(0)) && run.prefix == "k-");
        assert_eq!(run.values, ValueKind::Ascii(Sizes::uniform(64, 64).expect("sizes")));
        assert_eq!(
            run.protocol,
            Some(Protocol::Couchbase),
            "the client is Membase's, whatever `protocol` says"
        );
        assert_eq!(run.address, Some(("10.2.1.15".to_owned(), None)));
        assert_eq!(run.bucket, Some(("b".to_owned(), "pw".to_owned())));
        assert_eq!((run.label.as_str(), run.buckets, run.lines_every), ("monday", 12, 2.0));
        assert_eq!((run.export.as_deref(), run.json), (Some("/tmp/r.txt"), true));
        assert_eq!(run.series, Some(Duration::from_millis(250)));
        assert_eq!(run.ignored, ["slaveaddress=10.0.0.8,10.0.0.9 (see --workers)"]);
        let load = Profile::of(&properties, Stage::Load).expect("a workload");
        assert_eq!((load.first, load.records, load.mix), (100, 900, Mix::only(Op::Set)));
        properties.set("db", "com.yahoo.ycsb.db.SpymemcachedClient");
        let plain = Profile::of(&properties, Stage::Run).expect("a workload");
        assert_eq!(plain.address, Some(("10.2.1.15".to_owned(), Some(11222))));
        // As the successor has it: what to speak is said without a client's name.
        properties.set("db", "");
        let binary = Profile::of(&properties, Stage::Run).expect("a workload");
        assert_eq!(binary.protocol, Some(Protocol::Binary));
        properties.set("operationcount", "-1");
        assert_eq!(Profile::of(&properties, Stage::Run).map(|endless| endless.operations), Ok(None));
    }
}
