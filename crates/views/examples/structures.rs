//! What an index costs as one tree for all vBuckets of a node, and as one tree for each vBucket whose answers are put together:
//! `cargo run --release -p settee-views --example structures -- DIR [ROWS]`.

use std::{path::Path, process::ExitCode, sync::Arc, time::Instant};

use base::{Seqno, VbId, VbUuid};
use settee_views::{
    design::DesignDocument,
    index::{Batch, Definition, DocumentRows, Index, Memory, Merge, NoFunctions, Options, Step, VbSet},
    js::Row,
    query::Parameters,
};
use storage::RealFs;

const DESIGN: &[u8] = br#"{"views":{"v":{"map":"function(d){}","reduce":"_count"}}}"#;
/// Rows with the same key.
const PER_KEY: usize = 10;
const BATCH: usize = 256;
const MEMORY: usize = 256 << 20;

type Failed = Box<dyn std::error::Error>;

/// So many vBuckets in so many indexes.
struct Indexes {
    all: Vec<Index>,
    vbs: u16,
}

fn row(at: usize, rows: usize) -> (String, Row) {
    // Neither ids nor keys come in order.
    let scattered = at.wrapping_mul(2_654_435_761) % rows;
    let row = Row { key: format!("\"artist-{:08}\"", scattered / PER_KEY), value: "1".to_owned() };
    (format!("song-{at:09}"), row)
}

impl Indexes {
    fn open(dir: &Path, vbs: u16, together: bool) -> Result<Self, Failed> {
        let definition =
            Arc::new(Definition::of(&DesignDocument::parse_unchecked(DESIGN).map_err(|_| "design")?));
        let memory = Memory::new(MEMORY);
        let mut all = Vec::new();
        for number in 0..if together { 1 } else { vbs } {
            let dir = dir.join(number.to_string());
            all.push(Index::open(Arc::new(RealFs), &dir, definition.clone(), &memory, Options::default())?);
        }
        Ok(Self { all, vbs })
    }

    fn of(&mut self, vb: u16) -> &mut Index {
        let count = self.all.len();
        &mut self.all[usize::from(vb) % count]
    }

    fn build(&mut self, rows: usize) -> Result<usize, Failed> {
        let (vbs, mut bytes) = (usize::from(self.vbs), 0);
        for vb in 0..vbs {
            let mine: Vec<usize> = (vb..rows).step_by(vbs).collect();
            for (number, part) in mine.chunks(BATCH).enumerate() {
                let documents = part.iter().map(|at| {
                    let (docid, row) = row(*at, rows);
                    bytes += row.key.len() + row.value.len();
                    DocumentRows { docid, rows: vec![vec![row]] }
                });
                let documents: Vec<_> = documents.collect();
                let seqno = Seqno((number * BATCH + documents.len()) as u64);
                let batch = Batch { vb: VbId(vb as u16), branch: VbUuid(1), seqno, documents };
                self.of(vb as u16).apply(batch, &mut NoFunctions)?;
            }
        }
        for index in &mut self.all {
            index.commit(&mut NoFunctions)?;
        }
        Ok(bytes)
    }

    fn ask(&self, text: &str, active: &VbSet) -> Result<usize, Failed> {
        let query = Parameters::parse(text, None).and_then(|parameters| parameters.query(true));
        let query = query.map_err(|refusal| refusal.reason)?;
        let mut sources = Vec::new();
        for index in &self.all {
            let place = index.definition().view("v").ok_or("no view")?;
            sources.push((String::new(), index.snapshot().query(place, &query, active)?));
        }
        let mut merge = Merge::new(&query, sources);
        let mut count = 0;
        loop {
            match merge.step(&mut NoFunctions) {
                Step::Row(_) => count += 1,
                Step::Passed => {}
                Step::Waiting | Step::End => return Ok(count),
            }
        }
    }

    fn time(&self, name: &str, active: &VbSet, mut text: impl FnMut(usize) -> String) -> Result<(), Failed> {
        let (begin, mut asked, mut rows) = (Instant::now(), 0, 0);
        while begin.elapsed().as_millis() < 1500 {
            rows += self.ask(&text(asked), active)?;
            asked += 1;
        }
        let each = begin.elapsed().as_secs_f64() / asked as f64;
        println!("  {name:34} {:10.1} us, {} rows", each * 1e6, rows / asked);
        Ok(())
    }

    fn disk(&self) -> u64 {
        self.all.iter().map(|index| index.disk_bytes().all).sum()
    }
}

fn measure(dir: &Path, vbs: u16, together: bool, rows: usize) -> Result<(), Failed> {
    println!("{vbs} vBuckets, {}", if together { "one tree" } else { "a tree for each" });
    let _ = std::fs::remove_dir_all(dir);
    let mut indexes = Indexes::open(dir, vbs, together)?;
    let begin = Instant::now();
    let emitted = indexes.build(rows)?;
    let rate = rows as f64 / begin.elapsed().as_secs_f64();
    println!(
        "  built {rate:.0} rows/s, {:.2} bytes on disk per emitted byte",
        indexes.disk() as f64 / emitted as f64
    );
    let all: VbSet = (0..vbs).map(VbId).collect();
    let mut most = all;
    most.remove(VbId(0));
    let keys = rows / PER_KEY;
    let key = |at: usize| at.wrapping_mul(7919) % keys;
    indexes.time("key=, 10 rows", &all, |at| format!("reduce=false&key=%22artist-{:08}%22", key(at)))?;
    indexes.time("startkey=, limit=100", &all, |at| {
        format!("reduce=false&limit=100&startkey=%22artist-{:08}%22", key(at))
    })?;
    indexes.time("_count of all", &all, |_| String::new())?;
    indexes.time("_count of a quarter", &all, |at| {
        let from = key(at) / 2;
        format!("startkey=%22artist-{from:08}%22&endkey=%22artist-{:08}%22", from + keys / 4)
    })?;
    indexes.time("_count of all, one vBucket passive", &most, |_| String::new())?;
    let begin = Instant::now();
    for at in 0..1000 {
        let (docid, mut row) = row(key(at) * PER_KEY, rows);
        row.value = "2".to_owned();
        let vb = (key(at) * PER_KEY % usize::from(vbs)) as u16;
        let documents = vec![DocumentRows { docid, rows: vec![vec![row]] }];
        let batch =
            Batch { vb: VbId(vb), branch: VbUuid(1), seqno: Seqno(rows as u64 + at as u64), documents };
        indexes.of(vb).apply(batch, &mut NoFunctions)?;
        indexes.of(vb).publish(&mut NoFunctions)?;
    }
    println!("  {:34} {:10.1} us", "an update, seen", begin.elapsed().as_secs_f64() * 1e3);
    let begin = Instant::now();
    for index in &mut indexes.all {
        if index.has_changes() {
            index.commit(&mut NoFunctions)?;
        }
    }
    println!("  {:34} {:10.1} ms", "their commit", begin.elapsed().as_secs_f64() * 1e3);
    let begin = Instant::now();
    indexes.of(1).reset(VbId(1));
    let told = begin.elapsed();
    while indexes.of(1).has_changes() {
        indexes.of(1).commit(&mut NoFunctions)?;
    }
    let (told, whole) = (told.as_secs_f64() * 1e3, begin.elapsed().as_secs_f64() * 1e3);
    println!("  {:34} {told:10.2} ms, {whole:.1} ms until nothing is left of it", "a vBucket dropped");
    Ok(())
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let Some(dir) = arguments.next() else {
        eprintln!("no directory");
        return ExitCode::FAILURE;
    };
    let rows = arguments.next().and_then(|rows| rows.parse().ok()).unwrap_or(1_000_000);
    for vbs in [64, 1024] {
        for together in [true, false] {
            if let Err(error) = measure(Path::new(&dir), vbs, together, rows) {
                eprintln!("{error}");
                return ExitCode::FAILURE;
            }
        }
    }
    let _ = std::fs::remove_dir_all(&dir);
    ExitCode::SUCCESS
}
