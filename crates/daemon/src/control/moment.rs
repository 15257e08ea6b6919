//! Reading several things that another thread changes one by one, as they were at one moment.

/// What `read` brings, with the `mark` that was there before it and is there after it. The other thread changes the mark before it changes
/// anything that is read.
pub(crate) fn unchanged_beside<M: PartialEq, T>(mark: impl Fn() -> M, mut read: impl FnMut() -> T) -> (T, M) {
    loop {
        let before = mark();
        let found = read();
        if mark() == before {
            return (found, before);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Life, caught up, and the number of the metadata, changed as [`carry_out`](super::super::Control::carry_out) does.
    #[derive(Default)]
    struct Node {
        life: Cell<u64>,
        caught_up: Cell<bool>,
        metadata: Cell<u64>,
    }

    impl Node {
        fn carry_out(&self, life: u64, caught_up: bool) {
            self.life.set(life);
            self.metadata.set(self.metadata.get() + 1);
            self.caught_up.set(caught_up);
        }

        /// What is found where the other thread runs right after that look at one of the three.
        fn found(&self, after: usize, changes: impl Fn(&Self)) -> (u64, (u64, bool)) {
            let looks = Cell::new(0);
            let look = || {
                if looks.replace(looks.get() + 1) == after {
                    changes(self);
                }
            };
            let mark = || {
                look();
                let life = self.life.get();
                look();
                (life, self.caught_up.get())
            };
            unchanged_beside(mark, || {
                look();
                self.metadata.get()
            })
        }
    }

    /// A node that acted on what it knew at its start would serve what was given to another one meanwhile.
    #[test]
    fn what_was_known_before_a_node_had_caught_up_is_not_read_as_what_it_knows_since() {
        for after in 0..5 {
            let found = Node::default().found(after, |node| node.carry_out(0, true));
            assert!([(0, (0, false)), (1, (0, true))].contains(&found), "{after}: {found:?}");
        }
    }

    #[test]
    fn what_was_agreed_on_in_one_life_is_not_read_as_that_of_another() {
        for after in 0..5 {
            let node = Node::default();
            node.carry_out(0, true);
            let found = node.found(after, |node| {
                node.carry_out(1, false);
                node.carry_out(1, true);
            });
            assert!([(1, (0, true)), (3, (1, true))].contains(&found), "{after}: {found:?}");
        }
    }
}
