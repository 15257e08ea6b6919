use base::BucketUuid;

use super::*;
use crate::{
    changes::{Command, bucket::BucketParams},
    metadata::{
        design_documents::DELETED_MAX,
        level::{DESIGN_DOCUMENTS_OVER, NODE_KEYS},
    },
};

fn bucket(name: &str, fields: &[(&str, &str)]) -> Command {
    let mut all = vec![("ramQuotaMB", "100")];
    all.extend(fields);
    let form: Vec<_> = all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let params = BucketParams::from_form(&form).unwrap();
    Command::CreateBucket { name: name.into(), uuid: BucketUuid(format!("uuid-of-{name}")), params }
}

fn change(bucket: &str, name: &str, text: Option<&str>, lot: u32) -> Command {
    let (bucket, name, text) = (bucket.to_owned(), name.to_owned(), text.map(str::to_owned));
    Command::ChangeDesignDocument(DesignDocumentChange { bucket, name, text, lot, over: None })
}

fn put(name: &str, text: &str) -> Command {
    change("b", name, Some(text), 7)
}

fn delete(name: &str) -> Command {
    change("b", name, None, 8)
}

fn with(commands: &[Command]) -> Metadata {
    let start = Metadata::new("c".repeat(32), 10_000);
    [&[bucket("b", &[])], commands].concat().iter().fold(start, |state, command| next(&state, command))
}

fn next(state: &Metadata, command: &Command) -> Metadata {
    state.apply(command).unwrap_or_else(|error| panic!("{command:?}: {error}")).0
}

fn refusal(state: &Metadata, command: &Command) -> ClusterError {
    state.apply(command).expect_err("should be refused")
}

fn documents(state: &Metadata) -> &DesignDocuments {
    &state.buckets["b"].design_documents
}

fn revision(state: &Metadata, name: &str) -> String {
    documents(state).get(name).unwrap().revision.to_string()
}

#[test]
fn a_revision_counts_the_changes_of_its_document_over_a_deletion() {
    let state = with(&[put("x", "{}")]);
    assert_eq!(revision(&state, "x"), "1-00000007");
    let state = next(&state, &change("b", "x", Some("{ }"), 0xdead_beef));
    assert_eq!(revision(&state, "x"), "2-deadbeef");
    assert_eq!(*documents(&state).get("x").unwrap().text, "{ }", "as it came");
    let gone = next(&state, &delete("x"));
    assert!(documents(&gone).get("x").is_none() && documents(&gone).was_deleted("x"));
    let back = next(&gone, &put("x", "{}"));
    assert_eq!(revision(&back, "x"), "4-00000007");
    assert!(!documents(&back).was_deleted("x"));
    assert_eq!(back.rev, state.rev, "clients route by other things");
}

/// Two changes are made from one text, or a change from a text that is deleted meanwhile.
#[test]
fn a_change_that_was_made_from_a_revision_replaces_no_other_one() {
    let state = with(&[put("x", "{}")]);
    let made = |over: Revision| {
        let Command::ChangeDesignDocument(change) = put("x", "{ }") else { unreachable!() };
        Command::ChangeDesignDocument(DesignDocumentChange { over: Some(over), ..change })
    };
    let change = made(documents(&state).get("x").unwrap().revision);
    let json = serde_json::to_vec(&change).unwrap();
    assert_eq!(crate::metadata::strict::read::<Command>(&json).unwrap(), change);
    let changed = next(&state, &change);
    assert_eq!(revision(&changed, "x"), "2-00000007");
    let gone = next(&state, &delete("x"));
    for later in [&changed, &gone, &next(&gone, &put("x", "{}"))] {
        assert!(refusal(later, &change).to_string().contains("changed meanwhile"));
    }
    let older = Metadata { level: DESIGN_DOCUMENTS_OVER - 1, ..state };
    assert!(refusal(&older, &change).to_string().contains("Start every node"));
}

#[test]
fn a_deletion_needs_something_to_delete() {
    let state = with(&[put("x", "{}")]);
    assert_eq!(refusal(&state, &delete("y")), ClusterError::DesignDocumentNotFound { deleted: false });
    assert_eq!(refusal(&state, &delete("y")).to_string(), "missing");
    let state = next(&state, &delete("x"));
    assert_eq!(refusal(&state, &delete("x")).to_string(), "deleted");
}

#[test]
fn the_deletions_that_were_first_are_forgotten() {
    let commands: Vec<Command> =
        (0..=DELETED_MAX).flat_map(|at| [put(&format!("d{at}"), "{}"), delete(&format!("d{at}"))]).collect();
    let state = with(&commands);
    assert!(!documents(&state).was_deleted("d0"));
    assert!(documents(&state).was_deleted("d1"));
    assert_eq!(documents(&state).deleted.len(), DELETED_MAX);
}

#[test]
fn design_documents_go_with_their_bucket_and_stay_when_it_is_emptied() {
    let state = with(&[put("x", "{}")]);
    let flush = Command::FlushBucket { name: "b".into(), uuid: BucketUuid("another".into()) };
    assert_eq!(revision(&next(&state, &flush), "x"), "1-00000007");
    let gone = next(&state, &Command::DeleteBucket { name: "b".into() });
    let anew = next(&gone, &bucket("b", &[]));
    assert_eq!(*documents(&anew), DesignDocuments::default());
    assert_eq!(refusal(&gone, &put("x", "{}")), ClusterError::BucketNotFound);
}

#[test]
fn only_buckets_with_views_have_design_documents() {
    for fields in
        [&[("bucketType", "ephemeral")][..], &[("bucketType", "memcached")], &[("storageBackend", "magma")]]
    {
        let state = with(&[bucket("other", fields)]);
        assert!(!state.buckets["other"].may_have_views(), "{fields:?}");
        let refused = refusal(&state, &change("other", "x", Some("{}"), 1));
        assert_eq!(refused.to_string(), "The bucket cannot have views.", "{fields:?}");
    }
    assert!(with(&[]).buckets["b"].may_have_views());
}

#[test]
fn number_and_size_of_design_documents_are_bounded() {
    let long = |bytes: usize| " ".repeat(bytes);
    let state = with(&[]);
    let text = |state: &Metadata, command: &Command| refusal(state, command).to_string();
    assert!(text(&state, &put("", "{}")).contains("cannot be empty"));
    assert!(text(&state, &put(&long(NAME_BYTES_MAX + 1), "{}")).contains("1024 bytes"));
    assert!(text(&state, &put("x", &long(DOCUMENT_BYTES_MAX + 1))).contains("262144 bytes"));
    let state = next(&state, &put(&long(NAME_BYTES_MAX), &long(DOCUMENT_BYTES_MAX)));

    // Names count, so four of the longest are too many; replacing one makes it no more.
    let state =
        ["1", "2"].iter().fold(state, |state, name| next(&state, &put(name, &long(DOCUMENT_BYTES_MAX))));
    assert!(text(&state, &put("3", &long(DOCUMENT_BYTES_MAX))).contains("bucket's design documents"));
    let state = next(&state, &put("1", &long(DOCUMENT_BYTES_MAX)));
    let smaller = next(&state, &put("1", "{}"));
    next(&smaller, &put("3", &long(DOCUMENT_BYTES_MAX)));

    let many: Vec<Command> = (0..DOCUMENTS_MAX).map(|at| put(&at.to_string(), "{}")).collect();
    let state = with(&many);
    assert!(text(&state, &put("x", "{}")).contains("256 design documents"));
    next(&state, &put("0", "{ }"));
    next(&next(&state, &delete("0")), &put("x", "{}"));
}

#[test]
fn all_buckets_together_have_a_limit() {
    let long = " ".repeat(DOCUMENT_BYTES_MAX - 1);
    let of_bucket = |at: usize| {
        let name = format!("b{at}");
        let mut commands = vec![bucket(&name, &[])];
        commands.extend((0..4).map(|at| change(&name, &at.to_string(), Some(&long), 1)));
        commands
    };
    let full = CLUSTER_BYTES_MAX / BUCKET_BYTES_MAX;
    let state = with(&(0..full).flat_map(of_bucket).collect::<Vec<_>>());
    assert!(refusal(&state, &put("x", "{}")).to_string().contains("all buckets"));
    next(&next(&state, &change("b0", "0", None, 1)), &put("x", "{}"));
}

#[test]
fn state_and_changes_are_read_back_and_older_nodes_are_not_asked() {
    let commands = vec![put("x", "{\"views\":{}}"), put("y", "{}"), delete("y")];
    let state = with(&commands);
    let json = serde_json::to_vec(&state).unwrap();
    assert_eq!(crate::metadata::strict::read::<Metadata>(&json).unwrap(), state);
    let json = serde_json::to_vec(&commands).unwrap();
    assert_eq!(crate::metadata::strict::read::<Vec<Command>>(&json).unwrap(), commands);
    assert!(
        !serde_json::to_string(&with(&[])).unwrap().contains("design"),
        "a state without them says nothing"
    );

    let older = Metadata { level: NODE_KEYS, ..with(&[]) };
    assert!(refusal(&older, &put("x", "{}")).to_string().contains("Start every node"));
}
