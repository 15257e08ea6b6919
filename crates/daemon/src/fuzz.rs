//! A few seconds of fuzzing for what other nodes send, from the seeds in `fuzz/seeds`. See `fuzz/README.md`.

#[path = "../../../fuzz/shared/runner.rs"]
mod runner;

use crate::talk::{peers, proposals};

fn node_messages(bytes: &[u8]) {
    let Some((from, messages)) = peers::decode_messages(bytes) else { return };
    let messages: Vec<Vec<u8>> = messages.into_iter().map(<[u8]>::to_vec).collect();
    assert_eq!(peers::encode_messages(from, &messages), bytes);
}

#[test]
fn fuzz_node_messages() {
    runner::run("node_messages", node_messages);
}

fn proposal(bytes: &[u8]) {
    let Ok(proposal) = proposals::decode(bytes) else { return };
    let again = proposals::encode(&proposal).unwrap();
    // A number with a fraction may differ in its last bit.
    assert_eq!(proposals::decode(&again).map(|again| again.id), Ok(proposal.id));
}

#[test]
fn fuzz_proposal() {
    runner::run("proposal", proposal);
}
