//! When alerts fire and are cleared.

use settee_watch::alerts::{
    ALERTS, ALERTS_MAX, About, Board, Change, Holds, Level, MEMORY_CLOSE, WRITES_REFUSED,
};

const BEGIN: u64 = 1_700_000_000;

/// One that takes its time either way.
static SLOW: About = About {
    name: "slow",
    level: Level::Warning,
    fires_after_secs: 20,
    clears_after_secs: 30,
    means: "",
    cause: "",
    act: "",
};

fn told(changes: &[Change]) -> Vec<(&str, &str)> {
    let one = |change: &Change| match change {
        Change::Fired(firing) => ("fired", firing.about.name),
        Change::Cleared(firing) => ("cleared", firing.about.name),
    };
    changes.iter().map(one).collect()
}

#[test]
fn an_alert_fires_after_its_time_is_told_once_and_cleared_after_its_time() {
    let mut board = Board::default();
    let mut at = |secs: u64, holds: bool| {
        let holding = holds.then(|| Holds::new(&SLOW, "b", format!("text {secs}")));
        board.look(BEGIN + secs, holding.into_iter().collect())
    };
    for secs in 0..20 {
        assert_eq!(at(secs, true), [], "{secs}");
    }
    assert_eq!(told(&at(20, true)), [("fired", "slow")]);
    for secs in 21..50 {
        // It swings around its threshold.
        assert_eq!(at(secs, secs % 2 == 0), [], "{secs}");
    }
    for secs in 50..79 {
        assert_eq!(at(secs, false), [], "{secs}");
    }
    let cleared = at(79, false);
    assert_eq!(told(&cleared), [("cleared", "slow")]);
    let Change::Cleared(firing) = &cleared[0] else { panic!() };
    assert_eq!((firing.text.as_str(), firing.since_secs), ("text 48", BEGIN + 20));
    assert_eq!(at(80, false), []);
}

#[test]
fn what_holds_for_a_moment_does_not_fire_and_the_gravest_comes_first() {
    let mut board = Board::default();
    assert_eq!(board.look(BEGIN, vec![Holds::new(&SLOW, "b", "")]), []);
    assert_eq!(board.look(BEGIN + 1, Vec::new()), []);
    let both = || vec![Holds::new(&MEMORY_CLOSE, "b", ""), Holds::new(&WRITES_REFUSED, "b", "")];
    assert_eq!(board.look(BEGIN + 30, both()).len(), 2);
    let names: Vec<_> = board.firing().into_iter().map(|firing| firing.about.name).collect();
    assert_eq!(names, ["writes_refused", "memory_close_to_quota"]);
}

#[test]
fn what_is_about_a_subject_that_is_gone_ends_at_once() {
    let mut board = Board::default();
    let of = |about, subject: &str| Holds::new(about, subject, "text");
    board.look(BEGIN, vec![of(&MEMORY_CLOSE, "a"), of(&MEMORY_CLOSE, "b"), of(&SLOW, "b")]);
    let ended = board.end(|one| one.subject == "b");
    assert_eq!(told(&ended), [("cleared", "memory_close_to_quota")], "what had not fired is not told");
    assert_eq!(board.firing().len(), 1);
    assert_eq!(board.end(|one| one.subject == "b"), []);
}

#[test]
fn what_holds_no_longer_and_fires_still_says_so() {
    let mut board = Board::default();
    board.look(BEGIN, vec![Holds::new(&MEMORY_CLOSE, "b", "It is full at 18:07.")]);
    let text = |board: &Board| board.firing()[0].text.clone();
    assert_eq!(text(&board), "It is full at 18:07.");
    board.look(BEGIN + 1, Vec::new());
    let ends = "It is full at 18:07. It is no longer so: this alert ends once that has lasted 10 s.";
    assert_eq!(text(&board), ends);
    board.look(BEGIN + 2, vec![Holds::new(&MEMORY_CLOSE, "b", "It is full at 18:08.")]);
    assert_eq!(text(&board), "It is full at 18:08.");
}

#[test]
fn a_clock_that_is_set_back_holds_nothing_up_and_the_number_is_bounded() {
    let mut board = Board::default();
    board.look(BEGIN, vec![Holds::new(&MEMORY_CLOSE, "b", "")]);
    board.look(BEGIN + 1, Vec::new());
    assert_eq!(board.look(BEGIN - 10_000, Vec::new()), []);
    assert_eq!(told(&board.look(BEGIN - 9_990, Vec::new())), [("cleared", "memory_close_to_quota")]);
    let many = (0..ALERTS_MAX * 2).map(|at| Holds::new(&MEMORY_CLOSE, at.to_string(), ""));
    assert_eq!(board.look(BEGIN, many.collect()).len(), ALERTS_MAX);
}

#[test]
fn random_conditions_fire_and_clear_in_turn_and_never_too_early() {
    for seed in 1..=200 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut board, mut held, mut fires) = (Board::default(), 0_u64, false);
        let mut over = 0_u64;
        for secs in 0..600 {
            let holds = if random.u8(..10) == 0 { held == 0 } else { held > 0 };
            (held, over) = if holds { (held + 1, 0) } else { (0, over + 1) };
            let holding = holds.then(|| Holds::new(&SLOW, "b", ""));
            match told(&board.look(BEGIN + secs, holding.into_iter().collect())).as_slice() {
                [] => {}
                [("fired", _)] => {
                    assert!(!fires && held == 21, "seed {seed}: after {held} looks");
                    fires = true;
                }
                [("cleared", _)] => {
                    assert!(fires && over == 31, "seed {seed}: after {over} looks");
                    fires = false;
                }
                more => panic!("seed {seed}: {more:?}"),
            }
            assert_eq!(board.firing().len(), usize::from(fires), "seed {seed}");
        }
    }
}

/// The page that alerts link to is made from the table: `SETTEE_WRITE_DOCS=1` writes it anew.
#[test]
fn the_page_of_the_documentation_is_what_is_declared() {
    let mut page = "# Alerts\n\nThis page is made from the table in `crates/watch/src/alerts.rs`; a test compares both.\n\n\
        `settee status`, `GET /settee/alerts` and `settee_alert_firing` in `/metrics` show what fires. A node logs each alert when it fires and\n\
        when it is over. An alert fires after its condition has held for the first time in the table, and is over after the second.\n\n\
        The console shows the same entries at `http://NODE:8091/ui/#/alerts/guide/NAME`. Logs, mails, posts to the webhook, `settee status` and\n\
        rules of Prometheus link there.\n"
        .to_owned();
    for about in ALERTS {
        page += &format!(
            "\n## {}\n\n{}\n\n| | |\n|---|---|\n| Level | {} |\n| Fires after, is over after | {} s, {} s |\n| Cause | {} |\n| What to do | {} |\n",
            about.name,
            about.means,
            about.level.word(),
            about.fires_after_secs,
            about.clears_after_secs,
            about.cause,
            about.act
        );
    }
    tidy::page_is("docs/operating/alerts.md", &page);
}

#[test]
fn the_link_of_each_alert_leads_to_its_entry() {
    for about in ALERTS {
        let guide = about.guide();
        let (path, anchor) = guide.split_once('#').unwrap();
        let page = std::fs::read_to_string(tidy::root().join(path)).unwrap();
        let headings: Vec<_> = page.lines().filter_map(|line| line.strip_prefix("## ")).collect();
        // An anchor is its heading where that has small letters and underscores alone.
        assert!(anchor.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{anchor}");
        assert_eq!(headings.iter().filter(|heading| **heading == anchor).count(), 1, "{guide}");
        assert_eq!(about.console_path(), format!("/ui/#/alerts/guide/{}", about.name));
    }
}

#[test]
fn every_alert_says_what_it_means_what_causes_it_and_what_to_do() {
    let mut names = std::collections::BTreeSet::new();
    for about in ALERTS {
        assert!(names.insert(about.name), "{} is there twice", about.name);
        for text in [about.means, about.cause, about.act] {
            assert!(text.ends_with('.') && text.len() > 12, "{}: {text}", about.name);
        }
    }
}
