//! What a node shows of itself over HTTP, with documents in it.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    sync::mpsc,
    time::{Duration, Instant, SystemTime},
};

use serde_json::Value;
use stats::Zoom;

use super::support;
use crate::{
    DiskFreeMin, InitBucket, Node,
    past::history::file,
    setup::options::ServeOptions,
    statistics::absent::{ABSENT, ABSENT_SERIES, UNMEASURED, UNMEASURED_SERIES},
};

/// The names that Couchbase's exporter for Prometheus reads.
const EXPORTER: &str = include_str!("../statistics/exporter.txt");
/// Series that published dashboards draw.
const DASHBOARDS: &str = include_str!("../statistics/dashboards.txt");
/// Long enough for a machine that does much else.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

pub(super) struct Served {
    pub(super) node: Node,
    dir: tempfile::TempDir,
}

impl Served {
    fn start() -> Self {
        Self::start_with(|_| {})
    }

    pub(super) fn start_with(change: impl FnOnce(&mut ServeOptions)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let bucket = InitBucket { name: "b".into(), quota_mb: 100, legacy_access: true };
        let mut options = support::options(dir.path(), bucket);
        change(&mut options);
        Self { node: Node::start(options).unwrap(), dir }
    }

    fn get(&self, path: &str) -> (u16, String) {
        self.send("GET", path, "")
    }

    pub(super) fn send(&self, method: &str, path: &str, form: &str) -> (u16, String) {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.node.ports().mgmt));
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        // Administrator:password
        let login = "QWRtaW5pc3RyYXRvcjpwYXNzd29yZA==";
        let (kind, length) = ("application/x-www-form-urlencoded", form.len());
        let head = format!("{method} {path} HTTP/1.0\r\nHost: localhost\r\nAuthorization: Basic {login}\r\n");
        write!(stream, "{head}Content-Type: {kind}\r\nContent-Length: {length}\r\n\r\n{form}").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, body.to_owned())
    }

    pub(super) fn json(&self, path: &str) -> Value {
        let (status, body) = self.get(path);
        assert_eq!(status, 200, "{path}: {body}");
        serde_json::from_str(&body).unwrap_or_else(|error| panic!("{path}: {error}: {body}"))
    }

    /// Writes documents and reads one that is there and one that is not.
    fn use_bucket(&self) {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.node.ports().memcached));
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let stores: String = (0..10).map(|number| format!("set key{number} 0 0 5\r\nvalue\r\n")).collect();
        write!(stream, "{stores}get key1\r\nget absent\r\nquit\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert_eq!(answer.matches("STORED").count(), 10, "{answer}");
    }

    /// Looks until it is so.
    pub(super) fn until(&self, what: &str, mut is_so: impl FnMut(&Self) -> bool) {
        let (_keep, never) = mpsc::channel::<()>();
        let begin = Instant::now();
        while !is_so(self) {
            assert!(begin.elapsed() < PATIENCE, "{what}");
            let _ = never.recv_timeout(Duration::from_millis(50));
        }
    }
}

fn samples<'a>(answer: &'a Value, name: &str) -> &'a [Value] {
    answer["op"]["samples"][name].as_array().map_or(&[], Vec::as_slice)
}

const STATS: &str = "/pools/default/buckets/b/stats";

#[test]
fn rest_has_the_established_names_and_a_past() {
    let served = Served::start();
    // A bucket that has no past yet says what is so now.
    assert!(!samples(&served.json(STATS), "curr_items").is_empty());
    served.until("the bucket has a past", |served| samples(&served.json(STATS), "curr_items").len() > 1);
    served.use_bucket();
    let is_seen = |served: &Served| {
        let answer = served.json(STATS);
        samples(&answer, "cmd_set").iter().any(|rate| rate.as_f64() > Some(0.0))
            && samples(&answer, "curr_items").last() == Some(&10.into())
    };
    served.until("operations are rates, and documents are counted", is_seen);
    let absent: Vec<&str> = ABSENT.iter().chain(UNMEASURED).flat_map(|(names, _)| *names).copied().collect();
    let host = served.json("/nodes/self")["hostname"].as_str().unwrap().to_owned();
    for path in [STATS.to_owned(), format!("/pools/default/buckets/b/nodes/{host}/stats")] {
        let answer = served.json(&path);
        let count = samples(&answer, "timestamp").len();
        assert!((2..=60).contains(&count) && answer["op"]["samplesCount"] == count, "{path}: {count}");
        for name in EXPORTER.split_whitespace().filter(|name| !absent.contains(name)) {
            let figures = samples(&answer, name);
            assert!(
                figures.len() == count && figures.iter().all(Value::is_number),
                "{path}: {name}: {figures:?}"
            );
        }
        for name in &absent {
            assert!(samples(&answer, name).is_empty(), "{path}: {name}");
        }
    }
    for (zoom, interval) in [("minute", 1_000), ("hour", 4_000), ("day", 60_000), ("year", 21_600_000)] {
        let answer = served.json(&format!("{STATS}?zoom={zoom}"));
        assert_eq!(
            (&answer["op"]["interval"], samples(&answer, "mem_used").is_empty()),
            (&interval.into(), false)
        );
    }
    assert_eq!(served.get(&format!("{STATS}?zoom=century")).0, 400);
    let by_node = served.json(&format!("{STATS}/hit_ratio"));
    assert!(by_node["nodeStats"][&host].as_array().is_some_and(|figures| figures.len() > 1), "{by_node}");
    served.node.stop().unwrap();
}

impl Served {
    /// Stops the node, has `write` put something into the file of its bucket's past, and starts it again.
    fn restarted(self, write: impl FnOnce(&file::HistoryFile, &file::Kept, &[&str])) -> Self {
        self.until("the bucket has a past", |served| samples(&served.json(STATS), "curr_items").len() > 1);
        let Self { node, dir } = self;
        node.stop().unwrap();
        let mut files = std::fs::read_dir(dir.path().join("history")).unwrap();
        let path = files.next().unwrap().unwrap().path();
        let names = file::names_of(&path);
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let (written, kept) = file::HistoryFile::open(&path, &names).unwrap();
        write(&written, &kept, &names);
        let bucket = InitBucket { name: "b".into(), quota_mb: 100, legacy_access: true };
        let node = Node::start(support::options(dir.path(), bucket)).unwrap();
        Self { node, dir }
    }
}

/// Two weeks in which the bucket's memory has grown by 2.5 MiB a day, and a limit that is ten days away.
#[test]
fn what_runs_out_is_foretold_from_the_past() {
    const MIB: f64 = 1_048_576.0;
    let served = Served::start();
    assert_eq!(served.json("/settee/forecast")["missingNodes"], serde_json::json!([]));
    let limit = std::cell::Cell::new(0.0);
    let seen = |served: &Served| samples(&served.json(STATS), "ep_mem_high_wat").last().cloned();
    served.until("the watermark is known", |served| {
        limit.set(seen(served).and_then(|high| high.as_f64()).unwrap_or_default());
        limit.get() > 0.0
    });
    let served = served.restarted(|written, kept, names| {
        let (_, month) = kept.steps.iter().find(|(zoom, _)| *zoom == Zoom::Month).unwrap();
        let newest = month.last().unwrap().at;
        for half_hour in 1..15 * 48_u64 {
            let days = half_hour as f64 / 48.0;
            let figures = names.iter().map(|name| match *name {
                "mem_used" => (limit.get() - 25.0 * MIB - days * 2.5 * MIB) as f32,
                "settee_mem_floor" => MIB as f32,
                _ => 0.0,
            });
            let step =
                file::Step { at: newest - half_hour * 1_800, samples: 1_800, figures: figures.collect() };
            written.write(Zoom::Month, &step).unwrap();
        }
    });
    let of = |served: &Served, what: &str| {
        let told = served.json("/settee/forecast");
        let all = told["forecasts"].as_array().unwrap();
        all.iter().find(|one| one["what"] == what).cloned().unwrap_or_default()
    };
    served.until("memory has a date", |served| of(served, "memory")["outlook"] == "dated");
    let memory = of(&served, "memory");
    assert_eq!((&memory["bucket"], &memory["limit"]), (&"b".into(), &limit.get().into()), "{memory}");
    let per_day = memory["perDay"].as_f64().unwrap() / MIB;
    assert!((per_day - 2.5).abs() < 0.05, "{memory}");
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis() as f64;
    let after = |days: f64| admin::rfc3339((now + days * 86_400_000.0) as u64);
    let text = |name: &str| memory[name].as_str().unwrap();
    // Moments in this form are in the order of their texts.
    assert!(after(9.8).as_str() < text("likely") && text("likely") < after(10.2).as_str(), "{memory}");
    assert!(text("early") <= text("likely"), "{memory}");
    let past = memory["pastForecasts"].as_array().unwrap();
    // The newest figure is that of the test's own bucket, which is another one.
    assert_eq!(
        past.iter().map(|one| one["days"].as_u64()).collect::<Vec<_>>(),
        [Some(1), Some(7)],
        "{memory}"
    );
    assert_eq!(of(&served, "metadata")["outlook"], "notInSight");
    let fires = |served: &Served| {
        let told = served.json("/settee/alerts");
        told["firing"]
            .as_array()
            .unwrap()
            .iter()
            .any(|one| one["name"] == "memory_fills" && one["subject"] == "b")
    };
    served.until("the alert fires", fires);
    served.node.stop().unwrap();
}

/// The node writes at its stop what it has sampled since the last minute, and has it again when it starts.
#[test]
fn the_past_of_statistics_outlives_the_process() {
    let (newest, old) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
    let served = Served::start().restarted(|written, kept, names| {
        let (_, hour) = kept.steps.iter().find(|(zoom, _)| *zoom == Zoom::Hour).unwrap();
        newest.set(hour.last().unwrap().at);
        old.set(newest.get() / 3_600 * 3_600 - 86_400);
        let figures = names.iter().map(|name| if *name == "curr_items" { 4_711.0 } else { 0.0 }).collect();
        written.write(Zoom::Week, &file::Step { at: old.get(), samples: 600, figures }).unwrap();
    });
    let (newest, old) = (newest.get(), old.get());
    let seen = |served: &Served, zoom: &str, at: u64| {
        let answer = served.json(&format!("{STATS}?zoom={zoom}"));
        let place = samples(&answer, "timestamp").iter().position(|time| *time == at * 1_000);
        place.map(|place| samples(&answer, "curr_items")[place].clone())
    };
    served.until("the week is read", |served| seen(served, "week", old) == Some(4_711.into()));
    assert_eq!(seen(&served, "hour", newest), Some(0.into()));
    let range = format!("/pools/default/stats/range/kv_curr_items?start={}&end={old}&step=600", old - 600);
    let range = served.json(&range);
    assert_eq!(range["data"][0]["values"], serde_json::json!([[old, "4711"]]), "{range}");
    served.node.stop().unwrap();
}

/// Of each name one HELP, one TYPE, and no series twice. `promtool check metrics` reads the same page, where its file is named.
#[test]
fn metrics_are_what_prometheus_reads() {
    let served = Served::start();
    served.use_bucket();
    let counted = "kv_cmd_duration_seconds_count{bucket=\"b\",opcode=\"SET\"} 10\n";
    served.until("operations are counted", |served| served.get("/metrics").1.contains(counted));
    let spends = |line: &str| {
        let spent = line.strip_prefix("sysproc_cpu_utilization{proc=\"settee\"} ");
        spent.is_some_and(|spent| spent.parse::<f64>().unwrap() > 0.0)
    };
    served.until("the process spends time", |served| served.get("/metrics").1.lines().any(spends));
    let (status, page) = served.get("/metrics");
    assert_eq!(status, 200);
    if let Some(path) = std::env::var_os("SETTEE_METRICS_PAGE") {
        std::fs::write(path, &page).unwrap();
    }
    let (mut declared, mut series) = (BTreeMap::new(), BTreeMap::new());
    let mut lines = page.lines().peekable();
    while let Some(line) = lines.next() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, _) = help.split_once(' ').unwrap();
            let kind = lines.next().and_then(|line| line.strip_prefix("# TYPE ")).unwrap();
            let kind = kind.strip_prefix(name).unwrap().trim();
            assert_eq!(declared.insert(name.to_owned(), kind.to_owned()), None, "{name} stands there twice");
            continue;
        }
        let (name, value) = line.rsplit_once(' ').unwrap();
        assert!(value.parse::<f64>().is_ok(), "{line}");
        assert_eq!(series.insert(name.to_owned(), value.to_owned()), None, "{name} stands there twice");
    }
    let family = |series: &str| series.split('{').next().unwrap_or_default().to_owned();
    for name in series.keys().map(|name| family(name)) {
        let parts = ["_bucket", "_sum", "_count"].iter().filter_map(|part| name.strip_suffix(part));
        let is_part = parts.clone().any(|whole| declared.get(whole).is_some_and(|kind| kind == "histogram"));
        assert!(is_part || declared.contains_key(&name), "{name} is not declared");
    }
    for (name, value) in [
        ("kv_ops{bucket=\"b\",op=\"set\"}", "10"),
        ("kv_ops{bucket=\"b\",op=\"get\",result=\"hit\"}", "1"),
        ("kv_ops{bucket=\"b\",op=\"get\",result=\"miss\"}", "1"),
        ("kv_curr_items{bucket=\"b\"}", "10"),
        ("kv_collection_item_count{bucket=\"b\",scope=\"_default\",collection=\"_default\"}", "10"),
        ("kv_vb_queue_fill{bucket=\"b\",state=\"active\"}", "10"),
        ("kv_vb_queue_size{bucket=\"b\",state=\"replica\"}", "0"),
        ("kv_cmd_duration_seconds_count{bucket=\"b\",opcode=\"SET\"}", "10"),
        ("kv_dcp_connection_count{bucket=\"b\",connection_type=\"replication\"}", "0"),
    ] {
        assert_eq!(series.get(name).map(String::as_str), Some(value), "{name}");
    }
    let shown: BTreeSet<String> = series.keys().map(|name| family(name)).collect();
    let absent: Vec<&str> =
        ABSENT_SERIES.iter().chain(UNMEASURED_SERIES).flat_map(|(names, _)| *names).copied().collect();
    for name in DASHBOARDS.split_whitespace() {
        assert!(shown.contains(name) != absent.contains(&name), "{name}");
    }
    served.node.stop().unwrap();
}

/// Takes one request, and says what was posted.
fn posted(listener: &TcpListener) -> Value {
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut request = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let bytes = stream.read(&mut piece).unwrap();
        request.extend_from_slice(&piece[..bytes]);
        let text = String::from_utf8_lossy(&request);
        let body =
            text.split_once("\r\n\r\n").map(|(head, body)| (head.starts_with("POST /hook?x=1 "), body));
        if let Some((true, body)) = body
            && let Ok(json) = serde_json::from_str(body)
        {
            stream.write_all(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n").unwrap();
            return json;
        }
        assert!(bytes > 0, "{text}");
    }
}

#[test]
fn an_alert_is_shown_counted_and_posted() {
    let served = Served::start_with(|options| options.disk.free_min = DiskFreeMin::Bytes(1 << 60));
    let firing = |served: &Served| served.json("/settee/alerts")["firing"][0].clone();
    served.until("the alert fires", |served| firing(served)["name"] == "disk_low");
    let alert = firing(&served);
    assert_eq!((&alert["level"], &alert["subject"]), (&"critical".into(), &"".into()), "{alert}");
    let told = served.json("/pools/default")["alerts"].to_string();
    assert!(told.contains("Approaching full disk warning") && !told.contains("disk_low"), "{told}");
    let series = "settee_alert_firing{alert=\"disk_low\",level=\"critical\",subject=\"\"} 1\n";
    assert!(served.get("/metrics").1.contains(series));
    // A webhook that is new hears of what fires already.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let url = format!("url=http://{}/hook?x=1", listener.local_addr().unwrap());
    assert_eq!(served.send("PUT", "/settee/alerts/webhook", &url).0, 200);
    let json = posted(&listener);
    assert_eq!((&json["event"], &json["name"]), (&"fired".into(), &"disk_low".into()), "{json}");
    assert_eq!(json["text"], alert["text"]);
    assert_eq!(json["guide"], "docs/operating/alerts.md#disk_low");
    // A node alone that listens on loopback does not know how others reach it. It knows how this client does.
    assert_eq!(json["guideUrl"], serde_json::Value::Null);
    let mgmt = served.node.ports().mgmt;
    assert_eq!(alert["guide"], json["guide"]);
    assert_eq!(alert["guideUrl"], format!("http://127.0.0.1:{mgmt}/ui/#/alerts/guide/disk_low"));
    served.node.stop().unwrap();
}

#[test]
fn a_bucket_made_anew_shows_nothing_of_the_one_that_was_dropped() {
    let served = Served::start();
    let count = |path: &str| samples(&served.json(path), "timestamp").len();
    served.until("the bucket has a past", |_| count(STATS) > 4);
    served.use_bucket();
    let flushable = served.send("POST", "/pools/default/buckets/b", "flushEnabled=1");
    assert_eq!(flushable.0, 200, "{}", flushable.1);
    let flushed = served.send("POST", "/pools/default/buckets/b/controller/doFlush", "");
    assert_eq!(flushed.0, 200, "{}", flushed.1);
    assert!(count(STATS) > 4, "a flush keeps the past");
    let dropped_at = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() * 1_000;
    assert_eq!(served.send("DELETE", "/pools/default/buckets/b", "").0, 200);
    let made = served.send("POST", "/pools/default/buckets", "name=b&ramQuota=100&replicaNumber=0");
    assert_eq!(made.0, 202, "{}", made.1);
    let answer = served.json(STATS);
    let shown = samples(&answer, "timestamp");
    assert!(shown.iter().all(|at| at.as_u64() >= Some(dropped_at)), "{dropped_at} {shown:?}");
}

#[test]
fn services_hear_which_buckets_miss_their_objective() {
    let served = Served::start();
    let uuid = served.json("/pools/default/buckets/b")["uuid"].as_str().unwrap().to_owned();
    let buckets = served.node.running.buckets.clone().unwrap();
    let is_missed = || buckets.missed().is_missed(&base::BucketUuid(uuid.clone()));
    let work = |served: &Served| (0..5).for_each(|_| served.use_bucket());
    work(&served);
    assert!(!is_missed(), "there is no objective");
    assert_eq!(served.send("POST", "/pools/default/buckets/b", "latencyObjectiveUs=1").0, 200);
    served.until("the objective is missed", |served| {
        work(served);
        is_missed()
    });
    served.until("nothing is said of a bucket that rests", |_| !is_missed());
    assert_eq!(served.send("POST", "/pools/default/buckets/b", "latencyObjectiveUs=0").0, 200);
    // Nothing that is stored over a connection of its own is as quick.
    let objective = "operation=set&latencyUs=8&targetPercent=99.9";
    assert_eq!(served.send("PUT", "/settee/slo/b/writes", objective).0, 200);
    served.until("an objective with an error budget is missed", |served| {
        (0..10).for_each(|_| served.use_bucket());
        is_missed()
    });
    assert_eq!(served.send("DELETE", "/settee/slo/b/writes", "").0, 200);
    served.until("there is no objective any more", |_| !is_missed());
}
