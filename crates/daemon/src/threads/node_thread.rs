//! A thread of the node, for all of its buckets: it looks at them, rests unless woken, and goes on until it is stopped.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use crate::threads::{spawn::spawn, wake_flag::WakeFlag};

/// What the thread asks between its looks.
#[derive(Clone, Default)]
pub(crate) struct Duty {
    over: Arc<AtomicBool>,
    wake_flag: Arc<WakeFlag>,
}

impl Duty {
    /// Whether the thread is to end.
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Rests for so long, unless woken. For the thread itself only.
    pub(crate) fn rest(&self, time: Duration) {
        self.wake_flag.wait(time);
    }
}

/// The running thread.
pub(crate) struct NodeThread {
    duty: Duty,
    thread: JoinHandle<()>,
}

impl NodeThread {
    /// `attend` ends soon after its duty is over; waking `wake_flag` ends its rests.
    pub(crate) fn start(
        name: &str,
        wake_flag: Arc<WakeFlag>,
        attend: impl FnOnce(&Duty) + Send + 'static,
    ) -> io::Result<Self> {
        let duty = Duty { wake_flag, ..Duty::default() };
        let own = duty.clone();
        Ok(Self { duty, thread: spawn(name, move || attend(&own))? })
    }

    /// Ends it, and waits until it has.
    pub(crate) fn stop(self) {
        self.duty.over.store(true, Ordering::Release);
        self.duty.wake_flag.wake();
        // It may also be resting in the middle of a look.
        self.thread.thread().unpark();
        let _ = self.thread.join();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn it_is_woken_from_its_rest_and_stopped_in_it() {
        let (looked, looks) = mpsc::channel();
        let wake_flag = Arc::new(WakeFlag::default());
        let thread = NodeThread::start("node-thread", Arc::clone(&wake_flag), move |duty| {
            while !duty.is_over() {
                looked.send(()).unwrap();
                duty.rest(Duration::from_secs(3600));
            }
        });
        let thread = thread.unwrap();
        looks.recv().unwrap();
        wake_flag.wake();
        looks.recv().unwrap();
        thread.stop();
        assert!(looks.recv().is_err(), "it has ended");
    }
}
