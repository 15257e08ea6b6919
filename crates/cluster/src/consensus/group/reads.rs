//! Questions to the leader how far the group is. Answers may be lost, so they are repeated under new numbers; whatever
//! answers a later question answers those before it.

use std::collections::VecDeque;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Reads {
    /// Number of the last question.
    asked: u64,
    /// The last question that somebody waits for the answer to.
    wanted: u64,
    /// Answers: to which question, and how far the group was then. In order; what was applied is not here any more.
    answers: VecDeque<(u64, u64)>,
    /// The last question whose answer was applied.
    done: u64,
    /// Ticks in which an answer was waited for.
    ticks: u32,
}

impl Reads {
    /// The number of the next question.
    pub(super) fn ask(&mut self) -> u64 {
        self.asked += 1;
        self.asked
    }

    /// Somebody waits for the answer to the last question.
    pub(super) fn want(&mut self) -> u64 {
        self.wanted = self.asked;
        self.wanted
    }

    /// A tick in which an answer is waited for; how many there have been.
    pub(super) fn wait_a_tick(&mut self) -> u32 {
        self.ticks = self.ticks.wrapping_add(1);
        self.ticks
    }

    /// Whether somebody waits for an answer that has not come.
    pub(super) fn is_waiting(&self) -> bool {
        self.answers.back().map_or(self.done, |last| last.0) < self.wanted
    }

    /// At that question the group was so far.
    pub(super) fn answer(&mut self, question: u64, index: u64) {
        if question > self.answers.back().map_or(self.done, |last| last.0) {
            self.answers.push_back((question, index));
        }
    }

    /// Whatever was asked: the group is so far.
    pub(super) fn answer_all(&mut self, index: u64) {
        self.answer(self.asked, index);
    }

    /// So much is applied by now; the last question that is answered by that, if that is news to somebody.
    pub(super) fn settle(&mut self, applied: u64) -> Option<u64> {
        let is_awaited = self.done < self.wanted;
        let mut news = None;
        while let Some((question, _)) = self.answers.pop_front_if(|(_, index)| *index <= applied) {
            news = Some(question);
        }
        self.done = news.unwrap_or(self.done);
        news.filter(|_| is_awaited)
    }
}
