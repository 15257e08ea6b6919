use views::{
    index::{Item, NoFunctions},
    response::{Progress, Response},
};

use super::{
    super::fixture::{Home, question},
    *,
};

const PATIENCE: Duration = Duration::from_secs(60);

/// The documents of the rows that a node answers with, and how the answer ends.
fn told(home: &Arc<Home>, query: &str, vbs: &[u16], patience: Duration) -> Result<Vec<String>, Refused> {
    let home = Arc::clone(home) as Arc<dyn Holding>;
    let mut local = begin(&home, &question(query, vbs), Instant::now() + patience, &|| true)?;
    let mut told = Vec::new();
    loop {
        match local.next(&mut NoFunctions) {
            Ok(Some((_, Item::Row(row)))) => told.push(row.docid),
            Ok(None) => return Ok(told),
            Ok(other) => panic!("{other:?}"),
            Err(reason) => {
                told.push(format!("error: {reason}"));
                return Ok(told);
            }
        }
    }
}

fn elsewhere_is(vb: u16) -> Result<Vec<String>, Refused> {
    Err(elsewhere(VbId(vb)))
}

#[test]
fn rows_are_of_the_vbuckets_that_were_asked_for_and_no_others() {
    let home = Home::serving(&[1, 2, 3]);
    for (vb, docid) in [(1, "a"), (2, "b"), (3, "c")] {
        home.state().add(vb, docid, &["1"]);
    }
    for stale in ["ok", "update_after", "false"] {
        let query = format!("reduce=false&stale={stale}");
        assert_eq!(told(&home, &query, &[1, 3], PATIENCE), Ok(vec!["a".into(), "c".into()]), "{stale}");
        assert_eq!(told(&home, &query, &[1, 4], PATIENCE), elsewhere_is(4), "{stale}");
    }
}

#[test]
fn stale_false_waits_for_what_was_stored_before() {
    let home = Home::serving(&[1, 2]);
    home.state().store(1);
    let late = "the index is not as far as it has to be: changes are still being indexed";
    let refused = told(&home, "reduce=false&stale=false", &[1, 2], Duration::ZERO);
    assert_eq!(refused, Err(Refused::Failed(late.into())));
    home.state().meanwhile = Some(Box::new(|state| state.index(1, "a", &["1"])));
    assert_eq!(told(&home, "reduce=false&stale=false", &[1, 2], PATIENCE), Ok(vec!["a".into()]));
}

#[test]
fn a_node_that_loses_a_vbucket_while_it_waits_does_not_answer_for_it() {
    for (role, term) in [(VbRole::Sealed, 1), (VbRole::Replica, 2), (VbRole::Active, 3)] {
        let home = Home::serving(&[1, 2]);
        home.state().add(1, "a", &["1"]);
        home.state().add(2, "b", &["1"]);
        home.state().meanwhile = Some(Box::new(move |state| {
            let (was, of, _) = state.copies.get_mut(&VbId(2)).expect("the copy");
            (*was, *of) = (role, term);
        }));
        assert_eq!(
            told(&home, "reduce=false&stale=false", &[1, 2], PATIENCE),
            elsewhere_is(2),
            "{role:?} in term {term}"
        );
    }
}

#[test]
fn a_copy_that_is_handed_over_answers_only_queries_that_take_an_index_as_it_is() {
    let home = Home::serving(&[1]);
    home.state().add(1, "a", &["1"]);
    home.state().copies.get_mut(&VbId(1)).expect("the copy").0 = VbRole::Sealed;
    assert_eq!(told(&home, "reduce=false&stale=ok", &[1], PATIENCE), Ok(vec!["a".into()]));
    assert_eq!(told(&home, "reduce=false&stale=false", &[1], PATIENCE), elsewhere_is(1));
}

#[test]
fn a_node_without_a_lease_says_nothing_of_what_is_newest() {
    let home = Home::serving(&[1]);
    home.state().may_serve = false;
    let refused = told(&home, "reduce=false&stale=false", &[1], PATIENCE);
    assert!(matches!(refused, Err(Refused::Again(_))), "{refused:?}");
    assert_eq!(told(&home, "reduce=false&stale=ok", &[1], PATIENCE), Ok(vec![]));
}

#[test]
fn an_index_as_it_is_says_what_it_was_never_a_state_of() {
    let home = Home::serving(&[1, 2, 3]);
    home.state().add(1, "a", &["1"]);
    home.state().store(1);
    // A vBucket that has come to the node, and one that is empty.
    home.state().store(2);
    for stale in ["ok", "update_after"] {
        let query = format!("reduce=false&stale={stale}");
        let lacks =
            "error: The index is still being built: 1 of its vBuckets have not been read to their end yet.";
        assert_eq!(told(&home, &query, &[1, 2, 3], Duration::ZERO), Ok(vec!["a".into(), lacks.into()]));
        assert_eq!(told(&home, &query, &[1, 3], Duration::ZERO), Ok(vec!["a".into()]), "what is old is told");
    }
    home.state().meanwhile = Some(Box::new(|state| state.index(2, "b", &["1"])));
    assert_eq!(told(&home, "reduce=false&stale=ok", &[1, 2, 3], PATIENCE), Ok(vec!["a".into(), "b".into()]));
}

#[test]
fn what_an_index_lacks_is_told_where_a_limit_ends_the_answer() {
    let home = Home::serving(&[1, 2]);
    home.state().add(1, "a", &["1"]);
    home.state().store(2);
    let home = home as Arc<dyn Holding>;
    let asked = question("reduce=false&stale=ok&limit=1", &[1, 2]);
    let local = begin(&home, &asked, Instant::now(), &|| true).expect("an answer");
    let mut response = Response::new(&asked.query, [(HERE.to_owned(), local)], None);
    let mut out = Vec::new();
    while response.fill(&mut NoFunctions, &mut out, |_| false) != Progress::Ended {}
    let told = String::from_utf8(out).expect("text");
    assert!(told.contains("\"id\":\"a\"") && told.contains("still being built"), "{told}");
}

#[test]
fn a_vbucket_that_gets_its_first_document_meanwhile_is_waited_for_as_well() {
    let home = Home::serving(&[1, 2]);
    home.state().store(1);
    home.state().meanwhile = Some(Box::new(|state| {
        state.index(1, "a", &["1"]);
        state.store(2);
        state.meanwhile = Some(Box::new(|state| state.index(2, "b", &["1"])));
    }));
    assert_eq!(told(&home, "reduce=false&stale=ok", &[1, 2], PATIENCE), Ok(vec!["a".into(), "b".into()]));
}

#[test]
fn an_index_that_is_not_known_is_asked_for_again_and_one_that_nobody_wants_is_not_waited_for() {
    let home = Home::serving(&[1]);
    home.state().store(1);
    let home = home as Arc<dyn Holding>;
    let mut unknown = question("stale=false", &[1]);
    unknown.signature.0 = [7; 16];
    let until = Instant::now() + PATIENCE;
    assert!(matches!(begin(&home, &unknown, until, &|| true), Err(Refused::Again(_))));
    let refused = begin(&home, &question("stale=false", &[1]), until, &|| false).err();
    assert!(matches!(refused, Some(Refused::Failed(_))), "{refused:?}");
    assert!(Instant::now() < until);
}

#[test]
fn refusals_come_back_from_another_node_as_they_were() {
    for refused in [Refused::Again("a move".into()), Refused::Failed("no".into())] {
        assert_eq!(Refused::of(refused.clone().text()), refused);
    }
}

/// A client that does not read its answer holds up nobody who drops the bucket.
#[test]
fn an_answer_holds_nothing_of_its_bucket_and_ends_where_that_has_gone() {
    let home = Home::serving(&[1]);
    for docid in ["a", "b", "c"] {
        home.state().add(1, docid, &["1"]);
    }
    let holding = Arc::clone(&home) as Arc<dyn Holding>;
    let question = question("reduce=false&stale=ok", &[1]);
    let mut local = begin(&holding, &question, Instant::now() + PATIENCE, &|| true).ok().unwrap();
    drop(holding);
    assert_eq!(Arc::strong_count(&home), 1, "an answer that nobody reads holds its bucket");
    assert!(matches!(local.next(&mut NoFunctions), Ok(Some(_))));
    home.state().life = None;
    assert_eq!(local.next(&mut NoFunctions).err().as_deref(), Some(GONE), "not the end of the rows");
    assert!(local.answer.is_none(), "the index is held no longer either");
}
