//! Random histories: whatever happened, queries answer what the model answers, from what the index says that it has.

use std::path::Path;

use base::VbId;
use fastrand::Rng;
use settee_views::index::{IndexError, Options, VbSet};
use storage::Fs;

use super::world::{self, History, Node, Reducer, random_change};
use crate::{
    model::{Ask, random_ask},
    texts,
};

const VBS: usize = 8;
const VIEWS: [&str; 5] = ["count", "sum", "stats", "function", "other"];

struct Run {
    random: Rng,
    pool: Vec<String>,
    histories: Vec<History>,
    nodes: Vec<Node>,
    uuids: u64,
    asked: usize,
    crashes: usize,
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut random = Rng::with_seed(seed);
        let pool = (0..12).map(|_| texts::value(&mut random, 2)).collect();
        let count = if seed.is_multiple_of(2) { 1 } else { 3 };
        let mut nodes: Vec<Node> = (0..count)
            .map(|node| {
                let options =
                    Options { node_bytes: random.usize(60..500), segment_bytes: random.u64(200..6000) };
                let limit = [2_000, 40_000, 10 << 20][random.usize(..3)];
                Node::new(seed * 7 + node, limit, options)
            })
            .collect();
        for vb in 0..VBS {
            let owner = vb % nodes.len();
            nodes[owner].vbs.insert(VbId(vb as u16));
        }
        let histories = (0..VBS).map(|vb| History::new(1 + vb as u64)).collect();
        Self { random, pool, histories, nodes, uuids: 100, asked: 0, crashes: 0 }
    }

    fn write(&mut self) {
        for _ in 0..self.random.usize(1..12) {
            let document = self.random.usize(..48);
            let change = random_change(&mut self.random, &self.pool, format!("d{document}"));
            self.histories[document % VBS].log.push(change);
        }
    }

    /// Feeds a node some of what it does not have.
    fn feed(&mut self, at: usize) -> Result<(), IndexError> {
        let node = &mut self.nodes[at];
        let mut functions = Reducer { fails: self.random.u8(..4) == 0, calls: 0 };
        for vb in &node.vbs {
            if self.random.u8(..3) == 0 {
                continue;
            }
            let history = &self.histories[usize::from(vb.get())];
            let from = node.index.seqno(*vb).map_or(base::Seqno(0), |(_, seqno)| seqno);
            let batch = history.batch(*vb, from, self.random.usize(1..20));
            node.index.apply(batch, &mut functions)?;
        }
        match self.random.u8(..4) {
            0 => {}
            1 | 2 => node.index.publish(&mut functions)?,
            _ => node.index.commit(&mut functions)?,
        }
        Ok(())
    }

    fn resume(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        let known: Vec<VbId> = node.index.states().keys().copied().collect();
        for vb in known.into_iter().filter(|vb| !node.vbs.contains(vb)) {
            node.index.reset(vb);
        }
        for vb in &node.vbs {
            node.index.resume(*vb, &self.histories[usize::from(vb.get())].branches);
        }
    }

    fn roll_back(&mut self) {
        let vb = self.random.usize(..VBS);
        self.uuids += 1;
        let to = self.random.usize(..=self.histories[vb].log.len());
        self.histories[vb].roll_back(to, self.uuids);
        for at in 0..self.nodes.len() {
            self.resume(at);
        }
    }

    fn move_one(&mut self) {
        let vb = VbId(self.random.u16(..VBS as u16));
        let to = self.random.usize(..self.nodes.len());
        for node in &mut self.nodes {
            if node.vbs.remove(&vb) {
                node.index.reset(vb);
            }
        }
        self.nodes[to].vbs.insert(vb);
        self.resume(to);
    }

    /// A node loses its power, or its process, at some write from now on.
    fn crash(&mut self) {
        let at = self.random.usize(..self.nodes.len());
        self.nodes[at].fs.die_after(self.random.u64(..40));
        for _ in 0..20 {
            self.write();
            if self.feed(at).is_err() {
                break;
            }
        }
        let node = &self.nodes[at];
        if self.random.bool() {
            node.fs.crash();
        } else {
            node.fs.kill();
        }
        self.crashes += 1;
        self.nodes[at].reopen().expect("an index that was committed opens after a crash");
        self.resume(at);
    }

    /// A disk that refuses.
    fn refuse(&mut self) {
        use storage::FsCall;
        let at = self.random.usize(..self.nodes.len());
        let calls =
            [FsCall::Write, FsCall::SyncData, FsCall::Rename, FsCall::SyncDir, FsCall::Create, FsCall::Read];
        let call = calls[self.random.usize(..calls.len())];
        // No space, or an error of the disk.
        let errno = if self.random.bool() { 28 } else { 5 };
        self.nodes[at].fs.fail_one_call(call, self.random.u64(..6), errno);
        self.write();
        let failed = (0..4).any(|_| self.feed(at).is_err());
        self.nodes[at].fs.fail_calls(call, None);
        if failed {
            let mut functions = Reducer::default();
            let again = self.nodes[at].index.commit(&mut functions);
            assert!(matches!(again, Err(IndexError::Unusable)), "{again:?}");
            self.nodes[at].reopen().expect("the index as it was committed");
            self.resume(at);
        }
    }

    fn ask(&mut self, seed: u64) {
        for _ in 0..4 {
            let ask = random_ask(&mut self.random, &self.pool);
            let active: VbSet = match self.random.u8(..3) {
                0 => (0..VBS as u16).map(VbId).filter(|_| self.random.bool()).collect(),
                _ => (0..VBS as u16).map(VbId).collect(),
            };
            let view = VIEWS[self.random.usize(..VIEWS.len())];
            self.check(seed, &ask, &active, view);
            self.check_left_out(seed, &active);
        }
    }

    fn check(&mut self, seed: u64, ask: &Ask, active: &VbSet, view: &str) {
        let map = usize::from(view == "other");
        let rows = world::expected(&self.nodes, &self.histories, active, map);
        let expected = ask.answer(&rows, &|values| world::reduced(view, values));
        let found = world::answer(&self.nodes, active, view, &ask.query_string());
        self.asked += 1;
        match (&expected, &found) {
            (None, Err(text)) if text.starts_with("refused") => {}
            _ => assert_eq!(
                expected.as_deref(),
                found.as_deref().ok(),
                "VIEWS_INDEX_SEED={seed}, view {view}: {ask:?} over {active:?}: {found:?}"
            ),
        }
    }

    /// Rows that are no numbers are left out of sums, and counted.
    fn check_left_out(&mut self, seed: u64, active: &VbSet) {
        let rows = world::expected(&self.nodes, &self.histories, active, 0);
        let numbers = rows.iter().filter(|row| row.value != "null").count() as u64;
        let all = rows.len() as u64;
        for (view, expected) in
            [("count", (all, 0)), ("sum", (numbers, all - numbers)), ("stats", (numbers, all - numbers))]
        {
            let found = world::reduced_and_left_out(&self.nodes, active, view);
            assert_eq!(found, expected, "VIEWS_INDEX_SEED={seed}, view {view} over {active:?}");
        }
    }

    fn step(&mut self, seed: u64) {
        match self.random.u8(..20) {
            0..6 => self.write(),
            6..12 => {
                let at = self.random.usize(..self.nodes.len());
                self.feed(at).expect("a disk without faults");
            }
            12..16 => self.ask(seed),
            16 => self.roll_back(),
            17 => self.move_one(),
            18 => self.crash(),
            _ => self.refuse(),
        }
    }

    /// Everything is indexed, seen, and there again after a restart.
    fn end(&mut self, seed: u64) {
        let mut functions = Reducer::default();
        for node in &mut self.nodes {
            for vb in &node.vbs {
                let history = &self.histories[usize::from(vb.get())];
                let from = node.index.seqno(*vb).map_or(base::Seqno(0), |(_, seqno)| seqno);
                node.index.apply(history.batch(*vb, from, usize::MAX), &mut functions).unwrap();
            }
            node.index.publish(&mut functions).unwrap();
        }
        self.ask(seed);
        for node in &mut self.nodes {
            while node.index.has_changes() {
                node.index.commit(&mut functions).unwrap();
            }
            node.fs.crash();
            node.reopen().unwrap();
            let files = node.fs.list(Path::new(world::DIR)).unwrap();
            assert!(files.iter().all(|name| !name.ends_with(".run")), "seed {seed}: {files:?}");
            for vb in &node.vbs {
                let high = self.histories[usize::from(vb.get())].log.len() as u64;
                assert_eq!(node.index.seqno(*vb).map(|(_, seqno)| seqno.get()), Some(high), "seed {seed}");
            }
        }
        self.ask(seed);
    }
}

#[test]
fn an_index_answers_what_the_model_answers() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = number("VIEWS_INDEX_SEED").unwrap_or(1);
    let seeds = number("VIEWS_INDEX_SEEDS").unwrap_or(if first == 1 { 30 } else { 1 });
    let (mut asked, mut crashes) = (0, 0);
    for seed in first..first + seeds {
        let mut run = Run::new(seed);
        for _ in 0..60 {
            run.step(seed);
        }
        run.end(seed);
        asked += run.asked;
        crashes += run.crashes;
    }
    assert!(seeds < 30 || (asked > 1000 && crashes > 50), "{asked} queries, {crashes} crashes");
}
