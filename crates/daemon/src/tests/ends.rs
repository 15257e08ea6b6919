//! The end of a node that nobody has stopped: the command or the test that runs it has failed.

use std::{sync::mpsc, thread, time::Duration};

use super::support;
use crate::{InitBucket, Node};

/// A test that waits for longer has failed.
const HANGS: Duration = Duration::from_secs(60);

#[test]
fn a_node_that_is_dropped_stops_and_gives_its_folder_back() {
    let dir = tempfile::tempdir().unwrap();
    let start = || {
        let bucket = InitBucket { name: "b".into(), quota_mb: 100, legacy_access: true };
        Node::start(support::options(dir.path(), bucket)).unwrap()
    };
    let node = start();
    let (ended, has_ended) = mpsc::channel();
    thread::spawn(move || {
        drop(node);
        let _ = ended.send(());
    });
    has_ended.recv_timeout(HANGS).unwrap();
    start().stop().unwrap();
}
