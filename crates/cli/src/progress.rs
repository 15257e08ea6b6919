//! Shows how far a long command is, and what it waits for. On a terminal that is a bar, in a log a plain line every few
//! seconds.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use load::Advance;
use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

/// Between two lines in a log.
const LINE_EVERY: Duration = Duration::from_secs(5);
/// What the server says of why it cannot go on is shown for so long after it was heard. The server says it again while
/// it holds.
const HEARD: Duration = Duration::from_secs(1);
/// The bar; below it stands what is waited for.
const BAR: &str = "{msg} [{wide_bar}] {human_pos}/{human_len} {per_sec} eta {eta}";

/// Progress towards a known total, on standard error.
pub(crate) struct Progress {
    label: &'static str,
    total: u64,
    bar: Option<ProgressBar>,
    started: Instant,
    last_line: Instant,
    /// What is waited for, and when that was heard.
    waiting: Option<(String, Instant)>,
}

impl Progress {
    /// Starts at zero. `label` is a verb form such as "loading".
    pub(crate) fn start(label: &'static str, total: u64) -> Progress {
        let bar = stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr_with_hz(10));
            bar.with_style(style(BAR)).with_message(label)
        });
        let now = Instant::now();
        Progress { label, total, bar, started: now, last_line: now, waiting: None }
    }

    /// Moves on.
    pub(crate) fn set(&mut self, to: Advance<'_>) {
        let has_changed = self.hear(to.reason);
        match &self.bar {
            Some(bar) => {
                if has_changed {
                    self.show_waiting(bar);
                }
                bar.set_position(to.done);
            }
            None if self.last_line.elapsed() >= LINE_EVERY => {
                self.last_line = Instant::now();
                eprintln!("{}", self.line(to.done));
            }
            None => {}
        }
    }

    /// Whether something else is waited for than before.
    fn hear(&mut self, reason: Option<&str>) -> bool {
        let before = self.waiting.take();
        self.waiting = match (reason, &before) {
            (Some(reason), _) => Some((reason.to_owned(), Instant::now())),
            (None, Some((_, heard))) if heard.elapsed() < HEARD => before.clone(),
            (None, _) => None,
        };
        self.waiting.as_ref().map(|waiting| &waiting.0) != before.as_ref().map(|waiting| &waiting.0)
    }

    fn show_waiting(&self, bar: &ProgressBar) {
        match &self.waiting {
            Some((reason, _)) => {
                bar.set_style(style(&format!("{BAR}\n  waiting: {{prefix}}")));
                bar.set_prefix(reason.clone());
            }
            None => bar.set_style(style(BAR)),
        }
    }

    fn line(&self, done: u64) -> String {
        let rate = done as f64 / self.started.elapsed().as_secs_f64();
        let line = format!("{}: {done} of {} ({rate:.0}/s)", self.label, self.total);
        match &self.waiting {
            Some((reason, _)) => format!("{line}, waiting: {reason}"),
            None => line,
        }
    }

    /// Removes the bar; what follows is the command's own summary.
    pub(crate) fn finish(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}

/// A template that does not parse (impossible for constants) leaves the default style.
fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("=> ")
}
