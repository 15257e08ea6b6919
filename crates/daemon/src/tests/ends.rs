//! The end of a node that nobody has stopped: the command or the test that runs it has failed, or its start has.

use std::{
    fs, io,
    net::{Ipv4Addr, TcpListener},
    path::Path,
    sync::mpsc,
    thread,
    time::Duration,
};

use service::{Context, Port, Running, Service};

use super::support;
use crate::{InitBucket, Node, ServeOptions, services, start};

/// A test that waits for longer has failed.
const HANGS: Duration = Duration::from_secs(60);

fn options(dir: &Path) -> ServeOptions {
    support::options(dir, InitBucket { name: "b".into(), quota_mb: 100, legacy_access: true })
}

/// What comes of it, unless it hangs.
fn in_time<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> T {
    let (ended, has_ended) = mpsc::channel();
    thread::spawn(move || {
        // The test may have given up.
        let _ = ended.send(run());
    });
    has_ended.recv_timeout(HANGS).unwrap()
}

#[test]
fn a_node_that_is_dropped_stops_and_gives_its_folder_back() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(options(dir.path())).unwrap();
    in_time(move || drop(node));
    Node::start(options(dir.path())).unwrap().stop().unwrap();
}

/// A service that cannot be started.
struct Refuses;

impl Service for Refuses {
    fn name(&self) -> &'static str {
        "refuses"
    }

    fn ports(&self) -> &'static [Port] {
        &[]
    }

    fn start(self: Box<Self>, _: Context) -> io::Result<Box<dyn Running>> {
        Err(io::Error::other("no place for it"))
    }
}

/// The reason why a start failed, which gives the folder back.
fn refused(options: ServeOptions, more: Vec<Box<dyn Service>>) -> String {
    let dir = options.data_dir.clone();
    let reason = in_time(move || {
        let all = services::all().into_iter().chain(more).collect();
        start::start(&options, all).err().unwrap().to_string()
    });
    in_time(move || drop(crate::files::data_dir::DataDir::open(&dir).unwrap()));
    reason
}

#[test]
fn a_start_that_fails_says_why_and_ends_what_it_began() {
    let dir = tempfile::tempdir().unwrap();
    let begun = || options(dir.path());
    // Before anything runs.
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let mut other = begun();
    other.ports.kv = taken.local_addr().unwrap().port();
    let reason = refused(other, Vec::new());
    assert!(reason.contains(&taken.local_addr().unwrap().port().to_string()), "{reason}");
    let log = dir.path().join("metadata/consensus.redb");
    fs::write(&log, [7; 20_000]).unwrap();
    let reason = refused(begun(), Vec::new());
    assert!(reason.contains("consensus.redb"), "{reason}");
    fs::remove_file(&log).unwrap();
    let trail = dir.path().join("audit.log");
    fs::create_dir(&trail).unwrap();
    let reason = refused(begun(), Vec::new());
    assert!(reason.contains("audit.log cannot be opened"), "{reason}");
    fs::remove_dir(&trail).unwrap();
    // Once threads run.
    let mut other = begun();
    other.init.as_mut().and_then(|init| init.bucket.as_mut()).unwrap().quota_mb = 4_096;
    let reason = refused(other, Vec::new());
    assert!(reason.contains("quota"), "{reason}");
    let reason = refused(begun(), vec![Box::new(Refuses)]);
    assert!(reason.contains("no place for it"), "{reason}");
    // Once it serves.
    let nowhere = dir.path().join("nowhere/ports");
    let reason = refused(ServeOptions { ports_file: Some(nowhere), ..begun() }, Vec::new());
    assert!(reason.contains("nowhere/ports"), "{reason}");
    // Nothing of all that is in the way.
    in_time(move || Node::start(options(dir.path())).unwrap().stop()).unwrap();
}
