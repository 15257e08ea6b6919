//! What is sent of alerts while some of them are silenced.

use settee_watch::{
    alerts::{Change, Firing, NODE_DOWN, QUEUE_GROWS},
    silences::{Outbox, Silence},
};

fn firing(subject: &str, since_secs: u64) -> Firing {
    Firing { about: &QUEUE_GROWS, subject: subject.into(), text: "text".into(), since_secs }
}

fn told(changes: &[Change]) -> Vec<(&str, &str)> {
    let one = |change: &'_ Change| match change {
        Change::Fired(_) => "fired",
        Change::Cleared(_) => "cleared",
    };
    let subject = |change: &'_ Change| match change {
        Change::Fired(firing) | Change::Cleared(firing) => firing.subject.clone(),
    };
    changes.iter().map(|change| (one(change), &*subject(change).leak())).collect()
}

#[test]
fn a_silence_covers_its_alert_and_subject_until_its_end() {
    let of = |subject: Option<&str>| Silence {
        alert: QUEUE_GROWS.name.into(),
        subject: subject.map(Into::into),
        node: None,
        until_secs: 100,
        by: "admin".into(),
        comment: String::new(),
    };
    assert!(
        of(None).covers(QUEUE_GROWS.name, "a", "n", 99)
            && of(Some("a")).covers(QUEUE_GROWS.name, "a", "n", 0)
    );
    assert!(!of(None).covers(QUEUE_GROWS.name, "a", "n", 100), "it is over");
    assert!(!of(Some("a")).covers(QUEUE_GROWS.name, "b", "n", 0));
    assert!(!of(None).covers(NODE_DOWN.name, "a", "n", 0));
    let of_node = Silence { node: Some("n".into()), ..of(None) };
    let covers = |node: &str| of_node.covers(QUEUE_GROWS.name, "", node, 0);
    assert!(covers("n") && !covers("m"));
}

#[test]
fn what_was_sent_is_ended_and_what_was_not_is_sent_when_the_silence_ends() {
    let mut outbox = Outbox::default();
    let silenced = |one: &Firing| one.subject == "quiet";
    let both = || vec![firing("loud", 1), firing("quiet", 1)];
    assert_eq!(told(&outbox.look(both(), silenced)), [("fired", "loud")]);
    assert_eq!(outbox.look(both(), silenced), [], "once");
    // The one that was sent is silenced now; its end is sent all the same. The other one was never sent.
    assert_eq!(told(&outbox.look(vec![firing("quiet", 1)], |_| true)), [("cleared", "loud")]);
    assert_eq!(outbox.look(vec![], |_| true), []);
    assert_eq!(outbox.look(both(), |_| true), []);
    assert_eq!(told(&outbox.look(both(), |_| false)), [("fired", "loud"), ("fired", "quiet")]);
    // It was over for a moment between two looks.
    assert_eq!(
        told(&outbox.look(vec![firing("loud", 9), firing("quiet", 1)], |_| false)),
        [("cleared", "loud"), ("fired", "loud")]
    );
}
