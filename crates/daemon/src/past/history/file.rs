//! The past of one bucket's statistics in a file of fixed size: a place for every step of every zoom but the minute.
//!
//! ```text
//! "SETTEEH1"  length of names  names, one a line  CRC-32C of all before  (up to the next multiple of 4096: nothing)
//! then for each zoom as many slots as it has rows: a step is in the slot of its number, modulo that many
//! slot: begin of the step (8 bytes), samples in it (4), CRC-32C (4), a figure of 4 bytes for each name
//! ```
//!
//! Numbers are little-endian. A slot's checksum is over its zoom and all of its fields. Nothing is synced but a file that is new: a slot
//! that a crash has torn is left out by its checksum. A step that is over in a year's turn is overwritten, so the file never grows.
//!
//! A file whose head is damaged is replaced by an empty one. A file of a version that samples other statistics is rewritten once.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::FileExt as _,
    path::Path,
};

use stats::Zoom;

const MAGIC: &[u8; 8] = b"SETTEEH1";
/// A longer head was not written by this module.
const NAMES_BYTES_MAX: usize = 64 << 10;
/// A file of more statistics was not written by this module: it would be read into 26 MB.
const COLUMNS_MAX: usize = 1_024;
const PAGE: usize = 4096;
/// What a slot has beside its figures.
const SLOT_HEAD: usize = 16;

/// The zooms that are kept: all but the minute.
pub(crate) fn zooms() -> impl Iterator<Item = Zoom> {
    Zoom::ALL.into_iter().skip(1)
}

/// The means of a step.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Step {
    /// When it begins, in seconds since 1970.
    pub(crate) at: u64,
    /// How many samples the means are of.
    pub(crate) samples: u32,
    pub(crate) figures: Box<[f32]>,
}

/// What a file had: the steps of each zoom, in order of time.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Kept {
    pub(crate) steps: Vec<(Zoom, Vec<Step>)>,
    /// Steps whose checksum is wrong.
    pub(crate) damaged: usize,
    /// Whether the head was damaged: then nothing is left.
    pub(crate) is_lost: bool,
}

/// The file of one bucket, for writing.
#[derive(Debug)]
pub(crate) struct HistoryFile {
    file: File,
    columns: usize,
    begin: usize,
}

impl HistoryFile {
    /// Opens the file for statistics of these names, or makes it. Says what was in it.
    pub(crate) fn open(path: &Path, names: &[&str]) -> io::Result<(Self, Kept)> {
        let (kept, is_current) = match fs::metadata(path) {
            Ok(found) => read(path, found.len(), names)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => (Kept::default(), false),
            Err(error) => return Err(error),
        };
        if !is_current {
            // Order matters: a crash leaves the old file or the new one, whole.
            let staged = path.with_extension("new");
            let _ = fs::remove_file(&staged);
            let fresh = Self::make(&staged, names)?;
            for (zoom, steps) in &kept.steps {
                for step in steps {
                    fresh.write(*zoom, step)?;
                }
            }
            fresh.file.sync_all()?;
            fs::rename(&staged, path)?;
            return Ok((fresh, kept));
        }
        let file = OpenOptions::new().write(true).open(path)?;
        Ok((Self { file, columns: names.len(), begin: head(names).len() }, kept))
    }

    fn make(path: &Path, names: &[&str]) -> io::Result<Self> {
        let mut file = File::create(path)?;
        let head = head(names);
        file.write_all(&head)?;
        file.set_len(file_bytes(head.len(), names.len()) as u64)?;
        Ok(Self { file, columns: names.len(), begin: head.len() })
    }

    /// Writes a step into its place.
    pub(crate) fn write(&self, zoom: Zoom, step: &Step) -> io::Result<()> {
        if step.figures.len() != self.columns {
            return Err(io::Error::other("a step has other figures than its file"));
        }
        let place = place(self.begin, self.columns, zoom, step.at);
        self.file.write_all_at(&slot(zoom, step), place as u64)
    }
}

fn slot_bytes(columns: usize) -> usize {
    SLOT_HEAD + columns * 4
}

fn file_bytes(begin: usize, columns: usize) -> usize {
    begin + zooms().map(Zoom::rows).sum::<usize>() * slot_bytes(columns)
}

fn place(begin: usize, columns: usize, zoom: Zoom, at: u64) -> usize {
    let before: usize = zooms().take_while(|one| *one != zoom).map(Zoom::rows).sum();
    let number = at / zoom.step_secs() % zoom.rows() as u64;
    begin + (before + number as usize) * slot_bytes(columns)
}

fn head(names: &[&str]) -> Vec<u8> {
    let names = names.join("\n");
    let mut head = MAGIC.to_vec();
    head.extend(u32::try_from(names.len()).unwrap_or(u32::MAX).to_le_bytes());
    head.extend(names.as_bytes());
    head.extend(crc32c::crc32c(&head).to_le_bytes());
    head.resize(head.len().next_multiple_of(PAGE), 0);
    head
}

fn slot(zoom: Zoom, step: &Step) -> Vec<u8> {
    let mut fields = step.at.to_le_bytes().to_vec();
    fields.extend(step.samples.to_le_bytes());
    let figures: Vec<u8> = step.figures.iter().flat_map(|figure| figure.to_le_bytes()).collect();
    fields.extend(checksum(zoom, &fields, &figures).to_le_bytes());
    fields.extend(figures);
    fields
}

fn checksum(zoom: Zoom, fields: &[u8], figures: &[u8]) -> u32 {
    let of_zoom = crc32c::crc32c(&zoom.step_secs().to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c_append(of_zoom, fields), figures)
}

/// The statistics that a file has.
#[cfg(test)]
pub(crate) fn names_of(path: &Path) -> Vec<String> {
    let bytes = fs::read(path).unwrap();
    names_in(&bytes).unwrap().0.into_iter().map(str::to_owned).collect()
}

/// What a file has of these statistics, and whether it is one of exactly these.
fn read(path: &Path, length: u64, names: &[&str]) -> io::Result<(Kept, bool)> {
    let lost = || Ok((Kept { is_lost: true, ..Kept::default() }, false));
    if length > file_bytes(NAMES_BYTES_MAX, COLUMNS_MAX) as u64 {
        return lost();
    }
    let bytes = fs::read(path)?;
    let Some((found, begin)) = names_in(&bytes) else { return lost() };
    if bytes.len() != file_bytes(begin, found.len()) {
        return lost();
    }
    let mut kept = Kept::default();
    let places: BTreeMap<&str, usize> = found.iter().enumerate().map(|(at, name)| (*name, at)).collect();
    // What a statistic was that the file does not know is not known: no forecast takes that for 0.
    let columns: Vec<Option<usize>> = names.iter().map(|name| places.get(name).copied()).collect();
    let mut slots = bytes.get(begin..).unwrap_or_default().chunks_exact(slot_bytes(found.len()));
    for zoom in zooms() {
        let mut steps = Vec::new();
        for bytes in slots.by_ref().take(zoom.rows()) {
            match step_in(zoom, bytes) {
                Some(Some(step)) => {
                    let figure = |at: &Option<usize>| {
                        at.and_then(|at| step.figures.get(at)).copied().unwrap_or(f32::NAN)
                    };
                    let figures = columns.iter().map(figure).collect();
                    steps.push(Step { figures, ..step });
                }
                Some(None) => {}
                None => kept.damaged += 1,
            }
        }
        steps.sort_by_key(|step| step.at);
        kept.steps.push((zoom, steps));
    }
    Ok((kept, found == names))
}

fn names_in(bytes: &[u8]) -> Option<(Vec<&str>, usize)> {
    let (length, rest) = bytes.strip_prefix(MAGIC)?.split_first_chunk::<4>()?;
    let length = u32::from_le_bytes(*length) as usize;
    let (names, rest) = rest.split_at_checked(length).filter(|_| length <= NAMES_BYTES_MAX)?;
    let sum = rest.first_chunk::<4>()?;
    let checked = MAGIC.len() + 4 + length;
    if crc32c::crc32c(bytes.get(..checked)?) != u32::from_le_bytes(*sum) {
        return None;
    }
    let begin = (checked + 4).next_multiple_of(PAGE);
    Some((std::str::from_utf8(names).ok()?.split('\n').collect(), begin))
}

/// The step in a slot; `Some(None)`: the slot was never used. None: it is damaged.
fn step_in(zoom: Zoom, bytes: &[u8]) -> Option<Option<Step>> {
    let (fields, figures) = bytes.split_at_checked(SLOT_HEAD)?;
    let (fields, sum) = fields.split_last_chunk::<4>()?;
    if bytes.iter().all(|byte| *byte == 0) {
        return Some(None);
    }
    if checksum(zoom, fields, figures) != u32::from_le_bytes(*sum) {
        return None;
    }
    let (at, samples) = fields.split_first_chunk::<8>()?;
    let at = u64::from_le_bytes(*at);
    let samples = u32::from_le_bytes(*samples.first_chunk::<4>()?);
    let figures =
        figures.chunks_exact(4).filter_map(|figure| Some(f32::from_le_bytes(*figure.first_chunk()?)));
    (at % zoom.step_secs() == 0).then(|| Some(Step { at, samples, figures: figures.collect() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 1_699_920_000;

    fn step(at: u64, figures: &[f32]) -> Step {
        Step { at, samples: 7, figures: figures.into() }
    }

    fn of(kept: &Kept, zoom: Zoom) -> Vec<Step> {
        kept.steps.iter().find(|(one, _)| *one == zoom).map(|(_, steps)| steps.clone()).unwrap_or_default()
    }

    #[test]
    fn steps_come_back_in_order_and_the_file_keeps_its_size() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("b");
        let names = ["items", "ops"];
        let (file, kept) = HistoryFile::open(&path, &names).unwrap();
        assert_eq!(kept, Kept::default());
        let length = || fs::metadata(&path).unwrap().len();
        let begun = length();
        // Twice round.
        for number in 0..1_800_u64 {
            file.write(Zoom::Hour, &step(START + number * 4, &[number as f32, 0.5])).unwrap();
        }
        file.write(Zoom::Year, &step(START, &[1.0, 2.0])).unwrap();
        assert_eq!(length(), begun);
        assert_eq!(begun, 4096 + 6_444 * 24);
        let (_, kept) = HistoryFile::open(&path, &names).unwrap();
        let hour = of(&kept, Zoom::Hour);
        let numbers: Vec<f32> = hour.iter().map(|step| step.figures[0]).collect();
        assert_eq!(numbers, (900..1_800).map(|number| number as f32).collect::<Vec<_>>());
        assert_eq!(of(&kept, Zoom::Year), [step(START, &[1.0, 2.0])]);
        assert_eq!((of(&kept, Zoom::Day), kept.damaged, kept.is_lost), (vec![], 0, false));
    }

    #[test]
    fn a_version_with_other_statistics_keeps_what_it_knows() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("b");
        let (file, _) = HistoryFile::open(&path, &["items", "gone", "ops"]).unwrap();
        file.write(Zoom::Month, &step(START, &[1.0, 2.0, 3.0])).unwrap();
        let names = ["ops", "new", "items"];
        for _ in 0..2 {
            let (_, kept) = HistoryFile::open(&path, &names).unwrap();
            let months = of(&kept, Zoom::Month);
            let [Step { at: START, samples: 7, figures }] = months.as_slice() else { panic!("{months:?}") };
            assert_eq!((figures[0], figures[1].is_nan(), figures[2]), (3.0, true, 1.0));
        }
    }

    #[test]
    fn what_is_damaged_is_left_out_and_never_more_than_that() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("b");
        let names = ["items", "ops"];
        let (file, _) = HistoryFile::open(&path, &names).unwrap();
        for number in 0..3 {
            file.write(Zoom::Hour, &step(START + number * 4, &[1.0, 2.0])).unwrap();
        }
        let whole = fs::read(&path).unwrap();
        let at = place(4096, 2, Zoom::Hour, START + 4);
        for byte in at..at + 24 {
            let mut bytes = whole.clone();
            bytes[byte] ^= 0x10;
            fs::write(&path, &bytes).unwrap();
            let (_, kept) = HistoryFile::open(&path, &names).unwrap();
            assert_eq!((of(&kept, Zoom::Hour).len(), kept.damaged, kept.is_lost), (2, 1, false), "{byte}");
        }
        // The head, or the length: all of it is dropped, and an empty file takes its place.
        let mut shorter = whole.clone();
        shorter.truncate(5_000);
        let mut longer = whole.clone();
        longer.push(0);
        let flipped = |at: usize| {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            bytes
        };
        for bytes in [vec![], vec![0; 9_000], shorter, longer, flipped(0), flipped(9), flipped(13)] {
            fs::write(&path, bytes).unwrap();
            let (file, kept) = HistoryFile::open(&path, &names).unwrap();
            assert_eq!((kept.is_lost, kept.steps.len()), (true, 0));
            file.write(Zoom::Hour, &step(START, &[1.0, 2.0])).unwrap();
            assert!(!HistoryFile::open(&path, &names).unwrap().1.is_lost);
        }
    }

    /// A slot is that of its zoom and step: what lies elsewhere is not taken for it.
    #[test]
    fn a_slot_of_another_zoom_is_damage() {
        let bytes = slot(Zoom::Hour, &step(START, &[1.0]));
        assert_eq!(step_in(Zoom::Hour, &bytes), Some(Some(step(START, &[1.0]))));
        assert_eq!(step_in(Zoom::Day, &bytes), None);
    }
}
