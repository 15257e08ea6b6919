//! Wake flags with threads of the operating system. They stand beside [`crate::threads::wake_flag`], which the test `interleavings` compiles as well.

use std::{sync::Arc, time::Duration};

use crate::threads::wake_flag::{SharedWakeFlag, WAKES_KEPT, WakeFlag};

#[test]
fn every_ring_wakes_one_listener() {
    let wake_flag = Arc::new(SharedWakeFlag::default());
    wake_flag.wake();
    wake_flag.wake();
    let listen = |wake_flag: Arc<SharedWakeFlag>| move || wake_flag.wait(Duration::from_secs(60));
    let listeners = [(); 3].map(|()| std::thread::spawn(listen(Arc::clone(&wake_flag))));
    wake_flag.wake();
    assert!(listeners.into_iter().all(|listener| listener.join().unwrap()));
    assert!(!wake_flag.wait(Duration::ZERO), "none is left");
}

#[test]
fn what_nobody_had_to_hear_is_not_heard_afterwards() {
    let wake_flag = SharedWakeFlag::default();
    (0..1_000_000).for_each(|_| wake_flag.wake());
    let heard = (0..1_000_000).take_while(|_| wake_flag.wait(Duration::ZERO)).count();
    assert_eq!(heard, WAKES_KEPT);
}

#[test]
fn a_ring_is_never_lost() {
    let wake_flag = Arc::new(WakeFlag::default());
    wake_flag.wake();
    assert!(wake_flag.wait(Duration::ZERO), "woken before anybody waited");
    assert!(!wake_flag.wait(Duration::ZERO), "one wake-up wakes once");
    let other = Arc::clone(&wake_flag);
    let waker = std::thread::spawn(move || other.wake());
    while !wake_flag.wait(Duration::from_secs(5)) {}
    waker.join().unwrap();
}
