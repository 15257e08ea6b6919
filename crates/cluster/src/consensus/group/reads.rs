//! Questions to the leader how far the group is. Answers may be lost, so they are repeated under new numbers; whatever
//! answers a later question answers those before it.

use std::collections::VecDeque;

use super::{CatchingUp, Consensus};

/// Ticks between two questions how far the leader is.
const ASK_TICKS: u32 = 3;

/// A question of a leader to the others whether it leads still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Round {
    term: u64,
    number: u64,
}

impl Round {
    /// Raft's term that the leader asked in.
    #[must_use]
    pub fn term(self) -> u64 {
        self.term
    }

    /// Whether the answer to this one answers that one as well.
    #[must_use]
    pub fn covers(self, other: Self) -> bool {
        self.term == other.term && self.number >= other.number
    }
}

impl Consensus {
    /// Raft's term, if this member leads in it, as far as it knows.
    #[must_use]
    pub fn leads_in(&self) -> Option<u64> {
        self.leads().then(|| self.term())
    }

    /// Asks the others whether this member leads still; `None` where it knows that it does not. A [`Turn`](super::Turn) says so when
    /// a majority has confirmed it: then nobody else had been elected when this was called. It is asked again until then, or
    /// until somebody else leads.
    pub fn confirm(&mut self) -> Option<Round> {
        let term = self.leads_in().filter(|_| self.broken.is_none())?;
        self.ask_how_far_the_leader_is();
        Some(Round { term, number: self.reads.want() })
    }

    /// That question was answered, to this member as the leader if it is one.
    pub(super) fn note_confirmed(&mut self, number: u64) {
        if let Some(term) = self.leads_in()
            && self.reads.confirm(number)
        {
            self.out.confirmed = Some(Round { term, number });
        }
    }

    pub(super) fn repeat_questions(&mut self) {
        let is_waiting = self.catching_up == CatchingUp::Asking || self.reads.is_waiting();
        if is_waiting && self.reads.wait_a_tick().is_multiple_of(ASK_TICKS) {
            self.ask_how_far_the_leader_is();
        }
    }

    pub(super) fn ask_how_far_the_leader_is(&mut self) {
        let question = format!("{}{}", self.question_prefix(), self.reads.ask());
        self.with_raft(|raw| raw.read_index(question.into()));
    }

    /// What questions of this member, since it started, begin with. The leader tells them apart by their content. Its
    /// answer to one that was asked before the start says nothing about what has happened since.
    pub(super) fn question_prefix(&self) -> String {
        format!("{}/{:x}/", self.raw.raft.id, self.seed)
    }
}

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
    /// The last question that was answered while this member led.
    confirmed: u64,
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

    /// At that question the group was so far. What was not asked yet answers nobody: it would be old by the time that it is.
    pub(super) fn answer(&mut self, question: u64, index: u64) {
        if question <= self.asked && question > self.answers.back().map_or(self.done, |last| last.0) {
            self.answers.push_back((question, index));
        }
    }

    /// The number of the last question.
    pub(super) fn asked(&self) -> u64 {
        self.asked
    }

    /// The leader was answered that question; whether that is news.
    pub(super) fn confirm(&mut self, question: u64) -> bool {
        let is_news = question > self.confirmed;
        self.confirmed = self.confirmed.max(question);
        is_news
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_to_a_question_that_was_not_asked_yet_answers_nobody() {
        let mut reads = Reads::default();
        reads.ask();
        reads.want();
        reads.answer(7, 1);
        assert!(reads.is_waiting());
        assert_eq!(reads.settle(1), None);
        reads.answer(1, 2);
        assert_eq!((reads.settle(1), reads.settle(2)), (None, Some(1)));
    }
}
