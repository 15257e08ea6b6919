use stats::Unit;

use super::{keeper::Keeper, *};

const fn statistic(rest: &'static [&'static str], kind: Kind, across: Across) -> Statistic {
    Statistic { stat: &[], rest, metrics: &[], help: "Says something.", unit: Unit::Count, kind, across }
}

static ITEMS: Statistic = statistic(&["items", "alias"], Kind::Gauge, Across::Sum);
static OPS: Statistic = statistic(&["ops"], Kind::Counter, Across::Sum);
static HIDDEN: Statistic = statistic(&[], Kind::Gauge, Across::Sum);
static DERIVED: Statistic = statistic(&["derived"], Kind::Gauge, Across::Of(|of| of("items")));

fn readings(items: u64, ops: u64) -> Vec<Reading> {
    let reading = |about, value: u64| Reading::of(about, value.into());
    vec![reading(&ITEMS, items), reading(&HIDDEN, 1), reading(&OPS, ops), reading(&DERIVED, 2)]
}

fn at(secs: u64) -> Moment {
    Moment { unix_secs: 1_700_000_000 + secs, steady_secs: secs as f64 }
}

fn add(history: &History, secs: u64, items: u64, ops: u64) {
    history.add(at(secs), said(&["b"], items, ops));
}

fn said(names: &[&str], items: u64, ops: u64) -> Vec<Said> {
    let of = |name: &&str| Said {
        bucket: (*name).to_owned(),
        uuid: name.repeat(32),
        readings: readings(items, ops),
    };
    names.iter().map(of).collect()
}

#[test]
fn counters_are_rates_and_gauges_stay_what_they_are() {
    let history = History::default();
    assert_eq!(history.samples("b", Zoom::Minute), None);
    for (secs, items, ops) in [(0, 5, 100), (1, 6, 110), (3, 7, 150), (4, 8, 20)] {
        add(&history, secs, items, ops);
    }
    let told = history.samples("b", Zoom::Minute).unwrap();
    assert_eq!(
        told.values.keys().collect::<Vec<_>>(),
        ["items", "ops"],
        "what follows from others is not kept"
    );
    assert_eq!(told.values["items"], [5.0, 6.0, 7.0, 8.0]);
    assert_eq!(told.values["ops"], [0.0, 10.0, 20.0, 0.0], "the last one began anew");
    assert_eq!(told.timestamps, [0, 1, 3, 4].map(|secs| (1_700_000_000 + secs) * 1000));
}

#[test]
fn a_minute_has_sixty_samples_and_an_hour_means_of_four_seconds() {
    let history = History::default();
    for secs in 0..4_000 {
        add(&history, secs, secs, secs * 3);
    }
    let minute = history.samples("b", Zoom::Minute).unwrap();
    assert_eq!((minute.timestamps.len(), minute.values["items"].last()), (60, Some(&3_999.0)));
    let hour = history.samples("b", Zoom::Hour).unwrap();
    // Nine hundred that are over, and the one that is not.
    assert_eq!(hour.timestamps.len(), 901);
    assert!(hour.timestamps.windows(2).all(|two| two[1] - two[0] == 4_000));
    assert_eq!(hour.values["items"].last(), Some(&3_997.5), "3996 to 3999");
    assert_eq!(hour.values["ops"].last(), Some(&3.0));
    let day = history.samples("b", Zoom::Day).unwrap();
    assert!((66..=68).contains(&day.timestamps.len()), "{}", day.timestamps.len());
}

#[test]
fn the_past_of_many_buckets_is_bounded_and_that_of_a_dropped_one_is_gone() {
    let history = History { bytes_max: 100_000, ..History::default() };
    let names = ["a", "b", "c"];
    for secs in 0..8_000 {
        history.add(at(secs), said(&names, secs, secs));
    }
    let bytes: usize = history.buckets.lock().values().map(Series::bytes).sum();
    assert!(bytes <= 100_000 && bytes > 30_000, "{bytes}");
    // Alone again, the bucket has room for more.
    for secs in 8_000..12_000 {
        add(&history, secs, secs, secs);
    }
    assert_eq!(history.samples("a", Zoom::Hour), None);
    let kept = history.samples("b", Zoom::Hour).unwrap().timestamps.len();
    assert!(kept > 200, "{kept}");
}

#[test]
fn a_bucket_makes_room_at_once_for_the_past_of_others() {
    let history = History { bytes_max: 40_000, ..History::default() };
    for secs in 0..8_000 {
        history.add(at(secs), said(&["a"], secs, secs));
    }
    let bytes = || history.buckets.lock()["a"].bytes();
    assert!(bytes() > 15_000, "{}", bytes());
    history.add(at(8_000), said(&["a", "b", "c", "d"], 8_000, 8_000));
    assert!(bytes() <= 10_000, "{}", bytes());
}

#[test]
fn a_clock_that_is_set_back_leaves_samples_in_order() {
    let history = History::default();
    for secs in (100..130).chain(110..120) {
        add(&history, secs, secs, 0);
    }
    for zoom in [Zoom::Minute, Zoom::Hour] {
        let told = history.samples("b", zoom).unwrap();
        assert!(told.timestamps.windows(2).all(|two| two[0] < two[1]), "{:?}", told.timestamps);
        assert_eq!(told.timestamps.last().map(|at| at / 1000 / 10), Some(170_000_011));
    }
}

/// The file of a node whose process is killed: nothing is written at its end.
#[test]
fn a_process_that_starts_has_what_the_one_before_wrote() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("history");
    let mut keeper = Keeper::new(folder.clone());
    let before = History::default();
    for secs in 0..4_000 {
        add(&before, secs, secs, secs * 3);
        if secs % 60 == 7 {
            keeper.load(&before);
            keeper.write(&before);
        }
    }
    let told = |history: &History, zoom| history.samples("b", zoom).unwrap();
    // Written last at 3967, in the middle of all steps.
    let (after, mut keeper) = (History::default(), Keeper::new(folder.clone()));
    for secs in 4_060..4_100 {
        add(&after, secs, secs, 0);
    }
    keeper.load(&after);
    for (zoom, newest) in [(Zoom::Hour, 3_964), (Zoom::Day, 3_940)] {
        let newest = at(newest).unix_secs * 1_000;
        let (was, is) = (told(&before, zoom), told(&after, zoom));
        let old = |samples: &Samples| samples.timestamps.iter().filter(|at| **at < newest).count();
        assert!(old(&is) > 30, "{zoom:?}");
        // The hour of the process before began a little earlier.
        let skipped = old(&was) - old(&is);
        assert_eq!(was.timestamps[skipped..old(&was)], is.timestamps[..old(&is)], "{zoom:?}");
        assert_eq!(was.values["items"][skipped..old(&was)], is.values["items"][..old(&is)], "{zoom:?}");
        assert!(is.timestamps.windows(2).all(|two| two[0] < two[1]), "{:?}", is.timestamps);
    }
    // A step of six hours goes on: 0 to 3967 and 4060 to 4099.
    let year = told(&after, Zoom::Year);
    let mean = ((0..=3_967).sum::<u64>() + (4_060..4_100).sum::<u64>()) as f64 / 4_008.0;
    let newest = year.values["items"].last().unwrap();
    assert!((newest - mean).abs() < 0.01, "{newest} {mean}");
    // A bucket that was dropped has no file, and one of its name no past.
    let other = History::default();
    other.add(at(5_000), vec![Said { bucket: "b".into(), uuid: "c".repeat(32), readings: readings(1, 1) }]);
    keeper.load(&other);
    assert_eq!(told(&other, Zoom::Hour).timestamps.len(), 1);
    keeper.remove_dropped(&BTreeSet::from(["c".repeat(32)])).unwrap();
    let left: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, [std::ffi::OsString::from("c".repeat(32))]);
}

#[test]
fn a_bucket_that_was_flushed_keeps_its_past() {
    let dir = tempfile::tempdir().unwrap();
    let (history, mut keeper) = (History::default(), Keeper::new(dir.path().to_owned()));
    let flushed = |secs| Said { bucket: "b".into(), uuid: "c".repeat(32), readings: readings(secs, 0) };
    for secs in 0..100 {
        add(&history, secs, secs, 0);
    }
    keeper.load(&history);
    keeper.write(&history);
    history.add(at(100), vec![flushed(100)]);
    keeper.load(&history);
    keeper.write(&history);
    let (after, mut keeper) = (History::default(), Keeper::new(dir.path().to_owned()));
    after.add(at(200), vec![flushed(200)]);
    keeper.load(&after);
    assert_eq!(after.samples("b", Zoom::Hour).unwrap().timestamps.len(), 27);
}

#[test]
fn what_was_sampled_long_ago_is_in_no_hour() {
    let history = History::default();
    add(&history, 0, 1, 0);
    add(&history, 10, 1, 0);
    add(&history, 9_000, 1, 0);
    assert_eq!(history.samples("b", Zoom::Hour).unwrap().timestamps.len(), 1);
    assert_eq!(history.samples("b", Zoom::Day).unwrap().timestamps.len(), 2);
}

#[test]
fn a_disk_that_refuses_costs_no_samples() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("history");
    // A file where the folder should be.
    std::fs::write(&folder, "").unwrap();
    let (history, mut keeper) = (History::default(), Keeper::new(folder.clone()));
    for secs in 0..10 {
        add(&history, secs, secs, 0);
        keeper.load(&history);
        keeper.write(&history);
    }
    assert_eq!(history.samples("b", Zoom::Minute).unwrap().timestamps.len(), 10);
    // Once it takes files again, they have everything.
    std::fs::remove_file(&folder).unwrap();
    keeper.load(&history);
    keeper.write(&history);
    let (after, mut keeper) = (History::default(), Keeper::new(folder));
    add(&after, 20, 20, 0);
    keeper.load(&after);
    assert_eq!(after.samples("b", Zoom::Hour).unwrap().timestamps.len(), 4);
}

/// The times of an hour's steps between two moments, in seconds since the first of [`at`].
fn steps_between(history: &History, from: u64, until: u64) -> Vec<u64> {
    let told = history.samples("b", Zoom::Hour).unwrap();
    let of_start = at(0).unix_secs;
    let secs = told.timestamps.iter().map(|millis| millis / 1_000 - of_start);
    secs.filter(|secs| (from..until).contains(secs)).collect()
}

/// Seconds of the clock, which may be anywhere; what is sampled is the second of the process.
fn add_by_clock(history: &History, clock_secs: u64, items: u64) {
    history.add(Moment { steady_secs: items as f64, ..at(clock_secs) }, said(&["b"], items, 0));
}

#[test]
fn a_clock_that_is_behind_at_the_start_hides_the_past_only_until_it_is_right() {
    const HOURS: u64 = 5 * 3_600;
    let dir = tempfile::tempdir().unwrap();
    let (before, mut keeper) = (History::default(), Keeper::new(dir.path().to_owned()));
    for secs in HOURS..HOURS + 3_000 {
        add(&before, secs, secs, 0);
    }
    keeper.load(&before);
    keeper.write(&before);
    // Five hours behind, for a hundred seconds.
    let (after, mut keeper) = (History::default(), Keeper::new(dir.path().to_owned()));
    for secs in 0..100 {
        add_by_clock(&after, secs, secs);
        keeper.load(&after);
    }
    keeper.write(&after);
    assert_eq!(steps_between(&after, 0, u64::MAX).last(), Some(&96), "nothing is of the future");
    for secs in 100..120 {
        add_by_clock(&after, HOURS + 3_100 + secs, secs);
    }
    keeper.write(&after);
    let (again, mut keeper) = (History::default(), Keeper::new(dir.path().to_owned()));
    add_by_clock(&again, HOURS + 3_300, 0);
    keeper.load(&again);
    for history in [&after, &again] {
        // The file has lost the places that a hundred seconds took.
        let kept = steps_between(history, HOURS, HOURS + 3_000).len();
        assert!(kept >= 720, "{kept} of 750");
        assert_eq!(steps_between(history, HOURS + 3_200, HOURS + 3_220).len(), 5);
    }
    assert_eq!(steps_between(&after, HOURS, HOURS + 3_000).len(), 750);
}

#[test]
fn a_clock_that_jumps_and_comes_back_costs_no_more_than_it_was_away() {
    const DAY: u64 = 86_400;
    const START: u64 = 400 * DAY;
    let dir = tempfile::tempdir().unwrap();
    let (history, mut keeper) = (History::default(), Keeper::new(dir.path().to_owned()));
    let mut items = 0;
    for (from, secs) in [
        (START, 3_200),
        (START + 366 * DAY, 30),
        (START + 3_230, 100),
        (START - DAY, 30),
        (START + 3_360, 40),
    ] {
        for clock in from..from + secs {
            add_by_clock(&history, clock, items);
            items += 1;
        }
        keeper.load(&history);
        keeper.write(&history);
    }
    let (again, mut keeper) = (History::default(), Keeper::new(dir.path().to_owned()));
    add_by_clock(&again, START + 3_400, 0);
    keeper.load(&again);
    for (which, history) in [("memory", &history), ("file", &again)] {
        let kept = steps_between(history, START, START + 3_400).len();
        assert!((805..=850).contains(&kept), "{which}: {kept}");
        let told = history.samples("b", Zoom::Hour).unwrap();
        assert!(told.timestamps.windows(2).all(|two| two[0] < two[1]), "{which}");
        // Half an hour that is over, and the one under way, which the clock has left twice.
        let month = history.samples("b", Zoom::Month).unwrap();
        let since = at(START).unix_secs * 1_000;
        assert_eq!(month.timestamps.iter().filter(|at| **at >= since).count(), 2, "{which}");
    }
    let length = std::fs::metadata(dir.path().join("b".repeat(32))).unwrap().len();
    assert_eq!(length, 4_096 + 6_444 * 24, "the file keeps its size");
}

/// What a clock that is wrong brings stays within the bound, and goes before what is near.
#[test]
fn a_clock_that_is_wrong_takes_no_more_memory() {
    let history = History { bytes_max: 40_000, ..History::default() };
    for start in [1_000_000, 50_000_000, 0, 1_000_000] {
        for secs in 0..6_000 {
            add_by_clock(&history, start + secs, secs);
        }
        let bytes = history.buckets.lock()["b"].bytes();
        assert!(bytes <= 40_000, "{bytes}");
        let kept = steps_between(&history, start, start + 6_000);
        assert!(kept.len() > 50 && kept.last() == Some(&(start + 5_996)), "{kept:?}");
    }
}

#[test]
fn a_bucket_without_a_place_gets_one_when_another_is_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let (history, mut keeper) = (History::default(), Keeper::of_files(dir.path().to_owned(), 2));
    let sample = |names: &[&str], secs| history.add(at(secs), said(names, secs, 0));
    let files = || {
        let names = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let firsts = names.map(|name| name.to_str().unwrap()[..1].to_owned());
        firsts.collect::<BTreeSet<_>>().into_iter().collect::<String>()
    };
    let known = |names: &[&str]| names.iter().map(|name| name.repeat(32)).collect();
    for secs in 0..40 {
        sample(&["a", "b", "c"], secs);
        keeper.load(&history);
    }
    keeper.write(&history);
    assert_eq!(files(), "ab");
    // One more, made within the minute in which another was dropped.
    for secs in 40..80 {
        sample(&["b", "c", "d"], secs);
        keeper.load(&history);
    }
    keeper.write(&history);
    keeper.remove_dropped(&known(&["b", "c", "d"])).unwrap();
    assert_eq!(files(), "bc");
    for secs in 80..120 {
        sample(&["c", "d"], secs);
        keeper.load(&history);
    }
    keeper.write(&history);
    keeper.remove_dropped(&known(&["c", "d"])).unwrap();
    assert_eq!(files(), "cd");
    // Each with all that it was sampled for. A bucket that sorts before them takes no place from them.
    let (after, mut keeper) = (History::default(), Keeper::of_files(dir.path().to_owned(), 2));
    after.add(at(200), said(&["a", "c", "d"], 0, 0));
    keeper.load(&after);
    keeper.write(&after);
    assert_eq!(files(), "cd");
    let begins = |bucket| after.samples(bucket, Zoom::Hour).unwrap().timestamps.first().map(|at| at / 1_000);
    assert_eq!([begins("c"), begins("d")], [0, 40].map(|secs| Some(at(secs).unix_secs)));
}

/// A bucket whose file cannot be had, here since a folder has its name, keeps no file of a dropped one.
#[test]
fn files_of_dropped_buckets_go_whatever_is_wrong_with_others() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name.repeat(32));
    std::fs::create_dir(path("a")).unwrap();
    // A dropped bucket's file that cannot be removed comes first or last.
    for name in ["0", "f"] {
        std::fs::create_dir_all(path(name).join("x")).unwrap();
    }
    let (history, mut keeper) = (History::default(), Keeper::new(dir.path().to_owned()));
    history.add(at(0), said(&["a", "b", "c"], 0, 0));
    keeper.turn(&history, true, || None).unwrap();
    assert!(path("b").is_file() && path("c").is_file());
    history.add(at(1), said(&["a", "c"], 0, 0));
    let known = BTreeSet::from(["a", "c"].map(|name| name.repeat(32)));
    keeper.turn(&history, true, || Some(known)).unwrap_err();
    assert!(!path("b").exists() && path("c").is_file());
}
