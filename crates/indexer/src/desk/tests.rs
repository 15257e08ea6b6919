use super::*;

fn document(map: &str) -> DesignDocument {
    let text = format!("{{\"views\":{{\"v\":{{\"map\":\"function (doc) {{ {map} }}\"}}}}}}");
    DesignDocument::parse_unchecked(text.as_bytes()).unwrap()
}

fn desk(documents: &[(&str, &str)]) -> Desk {
    let mut desk = Desk::default();
    set(&mut desk, documents);
    desk
}

fn set(desk: &mut Desk, documents: &[(&str, &str)]) {
    let documents: Vec<_> = documents.iter().map(|(name, map)| ((*name).to_owned(), document(map))).collect();
    desk.set_documents(&documents);
}

fn lanes(desk: &Desk) -> Vec<Vec<String>> {
    let names = |lane| desk.of_lane(lane).flat_map(|(_, entry)| entry.names.iter().cloned()).collect();
    Lane::ALL.iter().map(|lane| names(*lane)).collect()
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn equal_definitions_share_an_index() {
    let mut desk = desk(&[("dev_a", "1"), ("b", "2")]);
    let signature = document("1").signature();
    assert!(!desk.entries()[&signature].is_production());
    set(&mut desk, &[("dev_a", "1"), ("a", "1"), ("b", "2")]);
    assert_eq!(desk.entries().len(), 2);
    assert!(desk.entries()[&signature].is_production(), "it was published");
    set(&mut desk, &[("a", "3"), ("b", "2")]);
    assert!(desk.entries()[&signature].is_removed());
    // The lane that has it has not removed it yet when it is wanted again.
    set(&mut desk, &[("x", "1")]);
    assert!(!desk.removed(&signature));
    set(&mut desk, &[]);
    assert!(desk.removed(&signature));
    assert!(!desk.entries().contains_key(&signature));
}

#[test]
fn a_document_without_views_has_no_index() {
    let mut desk = Desk::default();
    let empty = DesignDocument::parse_unchecked(b"{\"views\":{}}").unwrap();
    desk.set_documents(&[("e".to_owned(), empty)]);
    assert!(desk.entries().is_empty());
    assert!(desk.is_told());
}

#[test]
fn an_index_is_built_beside_those_that_are_up_to_date() {
    let mut desk = desk(&[("a", "1")]);
    let first = document("1").signature();
    assert_eq!(lanes(&desk), [vec![], vec!["a".to_owned()], vec![]]);
    assert_eq!(desk.place(&first, BEHIND_FEW + 1, 0), None);
    assert_eq!(desk.place(&first, BEHIND_FEW, 0), Some(Lane::Front));
    desk.hand_over(&first, Lane::Front);
    assert_eq!(desk.place(&first, BEHIND_MANY, 0), None);
    assert_eq!(desk.place(&first, BEHIND_MANY + 1, BEHIND_MANY + 1), None, "it is in nobody's way");
    assert_eq!(desk.place(&first, BEHIND_MANY + 1, 0), Some(Lane::Build));
    set(&mut desk, &[("a", "1"), ("b", "2"), ("dev_c", "3")]);
    let rest = vec!["b".to_owned(), "dev_c".to_owned()];
    let mut found = lanes(&desk);
    found[1].sort();
    assert_eq!(found, [vec!["a".to_owned()], rest, vec![]]);
    let development = document("3").signature();
    assert_eq!(desk.place(&development, 0, 0), None, "it is fed on demand only");
}

#[test]
fn an_index_that_holds_others_up_goes_out_of_their_way() {
    let mut desk = desk(&[("a", "1")]);
    let signature = document("1").signature();
    assert_eq!(desk.mapped(&signature, 100, false), None);
    assert_eq!(desk.mapped(&signature, 1, true), Some(Lane::Slow));
    desk.hand_over(&signature, Lane::Slow);
    assert_eq!(desk.mapped(&signature, 1, true), None, "it is there already");
    assert_eq!(desk.mapped(&signature, GOOD_DOCUMENTS - 1, false), None);
    assert_eq!(desk.place(&signature, 0, 0), None);
    assert_eq!(desk.mapped(&signature, 1, false), None);
    assert_eq!(desk.place(&signature, 0, 0), Some(Lane::Front));
}

#[test]
fn an_index_that_failed_rests_longer_each_time_and_is_built_on() {
    let mut desk = desk(&[("a", "1")]);
    let signature = document("1").signature();
    desk.hand_over(&signature, Lane::Front);
    desk.failed(&signature, SECOND, "the disk".to_owned(), false);
    let entry = &desk.entries()[&signature];
    assert_eq!((entry.lane, entry.rebuild), (Lane::Build, false));
    let first = entry.rests_until.unwrap() - SECOND;
    desk.failed(&signature, SECOND, "damage".to_owned(), true);
    desk.failed(&signature, SECOND, "the disk".to_owned(), false);
    let entry = &desk.entries()[&signature];
    assert_eq!((entry.rebuild, entry.failure.as_deref()), (true, Some("the disk")));
    assert_eq!(entry.rests_until.unwrap() - SECOND, first * 4);
    desk.cleared(&signature);
    desk.worked(&signature);
    let entry = &desk.entries()[&signature];
    assert_eq!((entry.rebuild, entry.rests_until, &entry.failure), (false, None, &None));
    desk.failed(&signature, SECOND, String::new(), false);
    assert_eq!(desk.entries()[&signature].rests_until, Some(SECOND + first));
}

#[test]
fn a_compaction_that_fails_is_not_begun_again() {
    let mut desk = desk(&[("a", "1")]);
    let signature = document("1").signature();
    desk.compact("a", true);
    assert!(desk.entries()[&signature].compacts);
    desk.failed(&signature, SECOND, "no room".to_owned(), false);
    assert!(!desk.entries()[&signature].compacts);
}

#[test]
fn an_index_of_development_documents_is_fed_as_far_as_was_asked_for() {
    let mut desk = desk(&[("dev_a", "1"), ("b", "2")]);
    let (development, production) = (document("1").signature(), document("2").signature());
    let (vb, branch) = (VbId(1), VbUuid(7));
    let more =
        |desk: &Desk, signature, whole| desk.entries()[signature].wants_more(vb, Some(branch), Seqno(whole));
    assert!(more(&desk, &production, 100) && !more(&desk, &development, 0));
    let before = desk.generation();
    assert!(desk.ask(&development, &Wants::from([(vb, (branch, Seqno(5)))])));
    let after = desk.generation();
    assert!(after > before);
    assert!(desk.ask(&development, &Wants::from([(vb, (branch, Seqno(3)))])));
    assert_eq!(desk.generation(), after, "a lane has nothing to look at");
    assert_eq!([4, 5].map(|whole| more(&desk, &development, whole)), [true, false]);
    let entry = &desk.entries()[&development];
    assert!(!entry.wants_more(VbId(2), None, Seqno(0)));
    assert!(entry.wants_more(vb, Some(VbUuid(6)), Seqno(9)), "of another branch it has nothing");
    assert!(!desk.ask(&document("9").signature(), &Wants::new()));
    set(&mut desk, &[]);
    assert!(!desk.ask(&development, &Wants::new()), "it is being removed");
}

#[test]
fn each_change_of_a_copy_is_a_turn_of_its_own() {
    let mut desk = Desk::default();
    let vb = VbId(4);
    let mut turns = Vec::new();
    for change in [
        Change::Served,
        Change::Reset,
        Change::Gone,
        Change::Following,
        Change::Reset,
        Change::Served,
        Change::Following,
    ] {
        let before = desk.generation();
        desk.hear(vb, change);
        assert!(desk.generation() > before);
        let copy = desk.copies()[&vb];
        turns.push((copy.served, copy.follows, copy.turn));
    }
    let (served, follows, gone) = ((true, false), (false, true), (false, false));
    let expected = [served, served, gone, follows, follows, served, follows];
    assert_eq!(turns.iter().map(|turn| (turn.0, turn.1)).collect::<Vec<_>>(), expected);
    assert!(turns.iter().map(|turn| turn.2).eq(1..=7));
}
