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
        node_name: None,
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
fn a_silence_of_an_older_version_for_a_node_hides_no_outage_of_another_one() {
    let older = Silence {
        alert: NODE_DOWN.name.into(),
        subject: None,
        node: Some("uuid-4".into()),
        node_name: None,
        until_secs: 100,
        by: "admin".into(),
        comment: String::new(),
    };
    assert!(!older.covers(NODE_DOWN.name, "10.0.0.2:8091", "uuid-4", 0), "node 4 tells of node 2");
    let name = |uuid: &str| (uuid == "uuid-4").then(|| "10.0.0.4:8091".to_owned());
    let settled = older.clone().settled(name);
    assert!(settled.covers(NODE_DOWN.name, "10.0.0.4:8091", "uuid-1", 0), "node 1 tells of node 4");
    assert!(!settled.covers(NODE_DOWN.name, "10.0.0.2:8091", "uuid-4", 0));
    assert_eq!(older.clone().settled(|_| None), older, "node 4 has left");
    let of_both = Silence { subject: Some("10.0.0.2:8091".into()), ..older.clone() }.settled(name);
    assert!(of_both.covers(NODE_DOWN.name, "10.0.0.2:8091", "uuid-1", 0), "its subject says which");
    let of_itself = Silence { alert: QUEUE_GROWS.name.into(), ..older };
    assert_eq!(of_itself.clone().settled(name), of_itself, "the node that tells it is what it is about");
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
