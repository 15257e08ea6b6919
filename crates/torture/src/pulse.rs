//! Whether the machine itself stood still. A cluster that gets no processor time, or whose disk does not answer, fails
//! nodes over and keeps clients waiting. It is not to blame then, and what is found says nothing about it.

use crate::TortureError;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long each thread sleeps between two looks.
const NAP: Duration = Duration::from_millis(50);
/// Naps between two syncs, which cost the disk something.
const NAPS_PER_SYNC: u32 = 20;

/// Two threads that feel it: one sleeps, the other one syncs a small file.
pub struct Pulse {
    longest_nanos: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Pulse {
    /// With its file in `dir`.
    ///
    /// # Errors
    /// The file cannot be made, or a thread not be started.
    pub fn start(dir: &Path) -> Result<Pulse, TortureError> {
        let file = File::create(dir.join("pulse"))?;
        let mut pulse = Pulse { longest_nanos: Arc::default(), over: Arc::default(), threads: Vec::new() };
        pulse.feel("pulse of the processor", || {
            let began = Instant::now();
            std::thread::sleep(NAP);
            began.elapsed().saturating_sub(NAP)
        })?;
        let mut naps = 0;
        pulse.feel("pulse of the disk", move || {
            naps += 1;
            if naps % NAPS_PER_SYNC != 0 {
                std::thread::sleep(NAP);
                return Duration::ZERO;
            }
            let began = Instant::now();
            // A disk that fails shows in the nodes' logs; here its time alone counts.
            let _ = file.write_all_at(&u32::to_le_bytes(naps), 0).and_then(|()| file.sync_data());
            began.elapsed()
        })?;
        Ok(pulse)
    }

    /// Takes the longest of what `beat` says, over and over.
    fn feel(
        &mut self,
        name: &str,
        mut beat: impl FnMut() -> Duration + Send + 'static,
    ) -> Result<(), TortureError> {
        let (longest, over) = (self.longest_nanos.clone(), self.over.clone());
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            while !over.load(Ordering::Relaxed) {
                longest.fetch_max(beat().as_nanos() as u64, Ordering::Relaxed);
            }
        })?;
        self.threads.push(thread);
        Ok(())
    }

    /// The longest standstill since this was asked last.
    pub fn longest(&self) -> Duration {
        Duration::from_nanos(self.longest_nanos.swap(0, Ordering::Relaxed))
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // They do nothing that could panic, and nobody is left to tell.
            let _ = thread.join();
        }
    }
}
