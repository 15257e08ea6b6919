//! What the stages of an index's build take of a processor: `cargo run --profile models -p settee-views --example building -- SONGS DIR`.
//!
//! `SONGS` has a song per line, as `settee songs --out` writes them. All is done by one thread, without a node, a feed and a process.

use std::{error::Error, fs, path::Path, sync::Arc};

use base::{Seqno, VbId, VbUuid};
use settee_views::{
    design::DesignDocument,
    index::{Definition, GivenRows, Index, JoinedRows, Memory, NoFunctions, Options, Reaches},
    js::Sources,
    native::{Given, Programs},
};
use storage::RealFs;

const FUNCTIONS: [(&str, &str); 3] = [
    (
        "published",
        "function (doc, meta) { for(i=0;i<doc.tags.length;i++) { if(doc.tags[i][0]==\"electronic\") emit(meta.id, doc); } }",
    ),
    ("ignores", "function (doc, meta) { emit(meta.id, null); }"),
    ("artists", "function (doc, meta) { emit(doc.artist, 1); }"),
];
const VBS: usize = 64;
const BATCH: usize = 1024;
const MEMORY: usize = 256 << 20;
const ID: &str = "\"track_id\": \"";
const ID_BYTES: usize = 18;

struct Song<'a> {
    id: &'a str,
    text: &'a str,
}

/// One whose text was just made, as that of a document is which was compressed.
struct Inflated<'a>(&'a str, String);

impl Given for Inflated<'_> {
    fn id(&self) -> &str {
        self.0
    }

    fn json(&self) -> Option<&str> {
        Some(&self.1)
    }

    fn meta(&self) -> &str {
        "{}"
    }
}

/// Seconds that this thread was on a processor.
fn on_processor() -> f64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|time| time.parse::<f64>().ok()).unwrap_or(0.0) / 1e9
}

fn build(songs: &[Vec<Song<'_>>], source: &str, dir: &Path) -> Result<String, Box<dyn Error>> {
    let count = songs.iter().map(Vec::len).sum::<usize>() as f64;
    let text = source.replace('"', "\\\"");
    let design = format!("{{\"views\":{{\"v\":{{\"map\":\"{text}\",\"reduce\":\"_count\"}}}}}}");
    let design = DesignDocument::parse_unchecked(design.as_bytes()).map_err(|_| "design")?;
    let (definition, memory) = (Arc::new(Definition::of(&design)), Memory::new(MEMORY));
    let mut index = Index::open(Arc::new(RealFs), dir, definition, &memory, Options::default())?;
    let sources = Sources { maps: vec![source.to_owned()], reduces: Vec::new() };
    let programs = Programs::of(&sources).ok_or("no program")?;
    let (mut mapping, mut applying, mut emitted) = (0.0, 0.0, 0);
    for (vb, all) in songs.iter().enumerate() {
        for (number, part) in all.chunks(BATCH).enumerate() {
            let given: Vec<_> = part.iter().map(|song| Inflated(song.id, song.text.to_owned())).collect();
            let begin = on_processor();
            let mut joined = JoinedRows::default();
            let mut ranges = Vec::with_capacity(part.len());
            for given in &given {
                ranges.push(programs.join(given, &mut joined).ok_or("not certain")?);
            }
            let mapped = on_processor();
            let seqno = Seqno((number * BATCH + part.len()) as u64);
            let reaches = Reaches { vb: VbId(vb as u16), branch: VbUuid(1), seqno };
            let rows = ranges.iter().map(|range| GivenRows::Joined(&joined, range.clone()));
            index.apply_each(reaches, part.iter().map(|song| song.id).zip(rows), &mut NoFunctions)?;
            mapping += mapped - begin;
            applying += on_processor() - mapped;
            for range in &ranges {
                let rows = joined.texts(range, 1).ok_or("rows")?;
                emitted += rows.iter().flatten().map(|row| row.key.len() + row.value.len()).sum::<usize>();
            }
            let begin = on_processor();
            drop((joined, ranges));
            applying += on_processor() - begin;
        }
    }
    let begin = on_processor();
    index.publish(&mut NoFunctions)?;
    let published = on_processor();
    index.commit(&mut NoFunctions)?;
    let committing = on_processor() - published;
    let micros = |seconds: f64| seconds * 1e6 / count;
    let bytes = index.disk_bytes();
    Ok(format!(
        "µs/document: map {:.2}, apply {:.2}, publish {:.2}, commit {:.2}, all {:.2}; {} bytes on disk, {:.2} of what was emitted",
        micros(mapping),
        micros(applying),
        micros(published - begin),
        micros(committing),
        micros(mapping + applying + published - begin + committing),
        bytes.all,
        bytes.all as f64 / emitted as f64,
    ))
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(songs), Some(dir)) = (arguments.next(), arguments.next()) else {
        return Err("a file of songs and a folder are needed".into());
    };
    let text = fs::read_to_string(songs)?;
    let mut vbs: Vec<Vec<Song<'_>>> = (0..VBS).map(|_| Vec::new()).collect();
    for text in text.lines() {
        let at = text.find(ID).ok_or("a song without an id")? + ID.len();
        let id = text.get(at..at + ID_BYTES).ok_or("a short id")?;
        let vb = base::hash::vbucket_of(id.as_bytes(), VBS as u16);
        vbs.get_mut(usize::from(vb.get())).ok_or("no such vBucket")?.push(Song { id, text });
    }
    for (name, source) in FUNCTIONS {
        let dir = Path::new(&dir).join(name);
        let told = build(&vbs, source, &dir)?;
        println!("{name:10} {told}");
        fs::remove_dir_all(dir)?;
    }
    Ok(())
}
