//! What an index costs as one tree for all vBuckets of a node, and as one tree for each vBucket. The answers of the latter are
//! put together. To run it: `cargo run --release -p settee-views --example structures -- DIR [ROWS]`.

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

/// How long something takes, and how much of that this thread was on a processor.
struct Clock(Instant, f64);

impl Clock {
    fn begin() -> Self {
        Self(Instant::now(), on_processor())
    }

    /// Seconds on the wall, and on a processor.
    fn end(&self) -> (f64, f64) {
        (self.0.elapsed().as_secs_f64(), on_processor() - self.1)
    }
}

fn on_processor() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|time| time.parse::<f64>().ok()).unwrap_or(0.0) / 1e9
}

/// So many vBuckets in so many indexes.
struct Indexes {
    all: Vec<Index>,
    vbs: u16,
}

/// What is emitted for a document.
#[derive(Clone, Copy)]
enum Kind {
    /// Twenty bytes, ten rows with the same key.
    Small,
    /// An artist, and the title and year of a song: words in random order.
    Songs,
    /// The id, and a document of a kilobyte.
    Documents,
}

const WORDS: [&str; 32] = [
    "night", "love", "the", "blue", "river", "of", "my", "dance", "electric", "golden", "summer", "heart",
    "road", "fire", "moon", "lonely", "city", "dream", "girl", "rain", "time", "again", "rock", "soul",
    "without", "you", "shadow", "morning", "star", "wild", "paper", "train",
];

fn words(from: usize, count: usize) -> String {
    let mut random = from.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut words = Vec::new();
    for _ in 0..count {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        words.push(WORDS[random >> 40 & 31]);
    }
    words.join(" ")
}

fn row(at: usize, rows: usize, kind: Kind) -> (String, Row) {
    // Neither ids nor keys come in order.
    let scattered = at.wrapping_mul(2_654_435_761) % rows;
    let docid = format!("song-{at:09}");
    let row = match kind {
        Kind::Small => Row { key: format!("\"artist-{:08}\"", scattered / PER_KEY), value: "1".to_owned() },
        Kind::Songs => {
            let (artist, title) = (words(scattered / PER_KEY, 3), words(scattered + rows, 5));
            let value = format!("{{\"title\":\"{title}\",\"year\":{}}}", 1950 + scattered % 70);
            Row { key: format!("\"{artist}\""), value }
        }
        Kind::Documents => {
            let value = format!("{{\"text\":\"{}\"}}", words(scattered, 180));
            Row { key: format!("\"{docid}\""), value }
        }
    };
    (docid, row)
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

    fn build(&mut self, rows: usize, kind: Kind) -> Result<(), Failed> {
        let vbs = usize::from(self.vbs);
        for vb in 0..vbs {
            let mine: Vec<usize> = (vb..rows).step_by(vbs).collect();
            for (number, part) in mine.chunks(BATCH).enumerate() {
                let documents = part.iter().map(|at| {
                    let (docid, row) = row(*at, rows, kind);
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
        Ok(())
    }

    /// Builds the indexes, and tells how fast, without the time that making the rows takes.
    fn built(&mut self, rows: usize, kind: Kind) -> Result<usize, Failed> {
        let all = Clock::begin();
        let vbs = usize::from(self.vbs);
        let mut emitted = 0;
        for vb in 0..vbs {
            for at in (vb..rows).step_by(vbs) {
                let (_, row) = row(at, rows, kind);
                emitted += row.key.len() + row.value.len();
            }
        }
        let (_, making) = all.end();
        let clock = Clock::begin();
        self.build(rows, kind)?;
        let (wall, processor) = clock.end();
        println!(
            "  {} bytes emitted for each of {rows} rows, built {:.0} rows/s, {:.0} on a processor",
            emitted / rows,
            rows as f64 / wall,
            rows as f64 / (processor - making)
        );
        Ok(emitted)
    }

    fn ask(&self, text: &str, active: &VbSet) -> Result<usize, Failed> {
        let query = Parameters::parse(text, None).and_then(|parameters| parameters.query(true));
        let query = query.map_err(|refusal| refusal.reason)?;
        let (mut sources, mut query) = (Vec::new(), query);
        for index in &self.all {
            let place = index.definition().view("v").ok_or("no view")?;
            let mut answer = index.snapshot().query(place, &query, active)?;
            if self.all.len() == 1 {
                query.skip = answer.skip(query.skip);
            }
            sources.push((String::new(), answer));
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
    let emitted = indexes.built(rows, Kind::Small)?;
    println!("  {:.2} bytes on disk per emitted byte", indexes.disk() as f64 / emitted as f64);
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
    indexes.time("limit=10, skip= half of the rows", &all, |_| {
        format!("reduce=false&limit=10&skip={}", rows / 2)
    })?;
    let begin = Instant::now();
    for at in 0..1000 {
        let (docid, mut row) = row(key(at) * PER_KEY, rows, Kind::Small);
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

/// Builds an index of other rows, and reads all of it.
fn measure_large(dir: &Path, name: &str, rows: usize, kind: Kind) -> Result<(), Failed> {
    let _ = std::fs::remove_dir_all(dir);
    let mut indexes = Indexes::open(dir, 64, true)?;
    println!("{name}");
    let emitted = indexes.built(rows, kind)?;
    println!("  {:.2} bytes on disk per emitted byte", indexes.disk() as f64 / emitted as f64);
    drop(indexes);
    let indexes = Indexes::open(dir, 64, true)?;
    let all = (0..64).map(VbId).collect();
    let clock = Clock::begin();
    let read = indexes.ask("reduce=false", &all)?;
    let rate = read as f64 / clock.end().1;
    let bytes = rate * emitted as f64 / rows as f64;
    println!("  read {rate:.0} rows/s, {:.0} MB/s on a processor", bytes / 1e6);
    Ok(())
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let Some(dir) = arguments.next() else {
        eprintln!("no directory");
        return ExitCode::FAILURE;
    };
    let rows = arguments.next().and_then(|rows| rows.parse().ok()).unwrap_or(1_000_000);
    let dir_path = Path::new(&dir);
    let larger = [("songs", rows, Kind::Songs), ("documents", rows / 5, Kind::Documents)];
    for (name, rows, kind) in larger {
        if let Err(error) = measure_large(dir_path, name, rows, kind) {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    }
    for vbs in [64, 1024] {
        for together in [true, false] {
            if let Err(error) = measure(dir_path, vbs, together, rows) {
                eprintln!("{error}");
                return ExitCode::FAILURE;
            }
        }
    }
    let _ = std::fs::remove_dir_all(&dir);
    ExitCode::SUCCESS
}
