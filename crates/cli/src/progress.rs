//! Shows how far a long command is: a bar on a terminal, a plain line every few seconds in a log.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

/// Between two lines in a log.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// Progress towards a known total, on standard error.
pub(crate) struct Progress {
    label: &'static str,
    total: u64,
    bar: Option<ProgressBar>,
    started: Instant,
    last_line: Instant,
}

impl Progress {
    /// Starts at zero. `label` is a verb form such as "loading".
    pub(crate) fn start(label: &'static str, total: u64) -> Progress {
        let bar = stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr_with_hz(10));
            let template = "{msg} [{wide_bar}] {human_pos}/{human_len} {per_sec} eta {eta}";
            // A template that does not parse (impossible for a constant) leaves the default style.
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style.progress_chars("=> "));
            }
            bar.with_message(label)
        });
        let now = Instant::now();
        Progress { label, total, bar, started: now, last_line: now }
    }

    /// Moves on to `done`.
    pub(crate) fn set(&mut self, done: u64) {
        match &self.bar {
            Some(bar) => bar.set_position(done),
            None if self.last_line.elapsed() >= LINE_EVERY => {
                self.last_line = Instant::now();
                let rate = done as f64 / self.started.elapsed().as_secs_f64();
                eprintln!("{}: {done} of {} ({rate:.0}/s)", self.label, self.total);
            }
            None => {}
        }
    }

    /// Removes the bar; what follows is the command's own summary.
    pub(crate) fn finish(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}
