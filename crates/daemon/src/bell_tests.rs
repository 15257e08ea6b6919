//! Bells with threads of the operating system. They stand beside [`super::bell`], which the test `interleavings` compiles as well.

use std::{sync::Arc, time::Duration};

use super::bell::{Bell, RINGS_KEPT, SharedBell};

#[test]
fn every_ring_wakes_one_listener() {
    let bell = Arc::new(SharedBell::default());
    bell.ring();
    bell.ring();
    let listen = |bell: Arc<SharedBell>| move || bell.wait(Duration::from_secs(60));
    let listeners = [(); 3].map(|()| std::thread::spawn(listen(Arc::clone(&bell))));
    bell.ring();
    assert!(listeners.into_iter().all(|listener| listener.join().unwrap()));
    assert!(!bell.wait(Duration::ZERO), "none is left");
}

#[test]
fn what_nobody_had_to_hear_is_not_heard_afterwards() {
    let bell = SharedBell::default();
    (0..1_000_000).for_each(|_| bell.ring());
    let heard = (0..1_000_000).take_while(|_| bell.wait(Duration::ZERO)).count();
    assert_eq!(heard, RINGS_KEPT);
}

#[test]
fn a_ring_is_never_lost() {
    let bell = Arc::new(Bell::default());
    bell.ring();
    assert!(bell.wait(Duration::ZERO), "rung before anybody listened");
    assert!(!bell.wait(Duration::ZERO), "one ring wakes once");
    let other = Arc::clone(&bell);
    let ringer = std::thread::spawn(move || other.ring());
    while !bell.wait(Duration::from_secs(5)) {}
    ringer.join().unwrap();
}
