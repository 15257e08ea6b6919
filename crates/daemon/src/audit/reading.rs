//! Reads the files of the audit trail backwards, for REST. The writer appends to them, ends them and removes them meanwhile.
//!
//! Invariants: a request reads [`BYTES_READ_MAX`] of lines and tells [`BYTES_TOLD_MAX`] at most, but for one piece. A place in the trail
//! is good as long as its file is kept. A file only grows, and its first line and inode name it. Where a file is gone, the older ones
//! are gone, too.

use std::{
    fs::File,
    io,
    os::unix::fs::{FileExt as _, MetadataExt as _},
    path::{Path, PathBuf},
};

use admin::{TrailEvent, TrailPage, TrailPlace, TrailQuestion};
use serde_json::Value;

use super::trail::older_of;

/// Bytes of lines that a request reads.
const BYTES_READ_MAX: u64 = 8 << 20;
/// Bytes of lines in an answer.
const BYTES_TOLD_MAX: usize = 256 << 10;
/// Bytes that are read at a time. A longer line is none of the trail.
const PIECE: usize = 64 << 10;
/// Bytes by which a file is known.
const NAME_BYTES: usize = 4 << 10;
/// Older files that are looked at, of a trail of very small ones.
const FILES_MAX: usize = 4096;

/// The newest events before `before` that the question asks for.
pub(crate) fn page(
    path: &Path,
    question: &TrailQuestion,
    before: Option<TrailPlace>,
) -> io::Result<TrailPage> {
    let mut reading = Reading { question, page: TrailPage::default(), read: 0, told: 0 };
    let mut before = before;
    for file in Files::of(path)? {
        // The oldest files go first.
        let Some(file) = file? else { break };
        let (Some(name), length) = (name_of(&file)?, file.metadata()?.len()) else { continue };
        let end = match before {
            Some(place) if place.file != name => continue,
            Some(place) => place.at.min(length),
            None => length,
        };
        before = None;
        if !reading.backwards(&file, name, end)? {
            break;
        }
    }
    Ok(reading.page)
}

/// The files of a trail, newest first.
struct Files {
    newest: Option<File>,
    inode: u64,
    older: std::vec::IntoIter<PathBuf>,
}

impl Files {
    /// The newest is opened before the older ones are listed. So one that ends meanwhile is among them or is the one that was opened.
    fn of(path: &Path) -> io::Result<Self> {
        let newest = match File::open(path) {
            Ok(file) => Some(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let inode = newest.as_ref().map_or(Ok(0), |file| file.metadata().map(|about| about.ino()))?;
        let older = older_of(path)?.into_iter().rev().map(|(path, _)| path).take(FILES_MAX);
        Ok(Self { newest, inode, older: older.collect::<Vec<_>>().into_iter() })
    }
}

impl Iterator for Files {
    /// Nothing inside for one that is gone.
    type Item = io::Result<Option<File>>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(newest) = self.newest.take() {
            return Some(Ok(Some(newest)));
        }
        loop {
            match File::open(self.older.next()?) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Some(Ok(None)),
                Err(error) => return Some(Err(error)),
                // It ended after it was opened.
                Ok(file) if file.metadata().is_ok_and(|about| about.ino() == self.inode) => {}
                Ok(file) => return Some(Ok(Some(file))),
            }
        }
    }
}

/// What a file is called in places: a hash of its first line, as far as that is looked at, and of its inode. A rename keeps both. None
/// while it has no whole line.
fn name_of(file: &File) -> io::Result<Option<u64>> {
    let mut begin = vec![0; NAME_BYTES];
    let bytes = read_at(file, &mut begin, 0)?;
    let begin = begin.get(..bytes).unwrap_or_default();
    let line = begin.split_inclusive(|byte| *byte == b'\n').next().unwrap_or_default();
    let is_whole = line.ends_with(b"\n") || bytes == NAME_BYTES;
    // FNV-1a: the same in every process, unlike the hashes of the standard library.
    let inode = file.metadata()?.ino().to_le_bytes();
    let hash = line.iter().chain(&inode).fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    Ok(is_whole.then_some(hash))
}

/// Fills a buffer as far as the file goes.
fn read_at(file: &File, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, at + filled as u64) {
            Ok(0) => break,
            Ok(bytes) => filled += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// What was read for a request.
struct Reading<'a> {
    question: &'a TrailQuestion,
    page: TrailPage,
    read: u64,
    told: usize,
}

impl Reading<'_> {
    /// Takes the lines of a file that end at `end` or before, the last one first. Whether older files are to be read as well.
    fn backwards(&mut self, file: &File, name: u64, mut end: u64) -> io::Result<bool> {
        let mut piece = vec![0; PIECE];
        while end > 0 {
            if self.is_full() {
                self.page.further = Some(TrailPlace { file: name, at: end });
                return Ok(false);
            }
            let start = end.saturating_sub(PIECE as u64);
            let wanted = piece.get_mut(..(end - start) as usize).unwrap_or_default();
            let bytes = read_at(file, wanted, start)?;
            self.read += (end - start).max(1);
            let lines = piece.get(..bytes).unwrap_or_default();
            // Behind the last end of a line is what a crash has torn, or what is being written.
            let whole = lines.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            // Before the first end of a line is the rest of one that begins in the piece before.
            let first = if start == 0 {
                0
            } else {
                lines.iter().position(|byte| *byte == b'\n').map_or(whole, |at| at + 1)
            };
            match self.lines(lines.get(first..whole).unwrap_or_default(), name, start + first as u64) {
                Some(further) => {
                    self.page.further = Some(further);
                    return Ok(false);
                }
                // Behind the only end of a line is half a line. That before it may be whole, seen from there.
                None if first == whole && start > 0 && 0 < whole && whole < bytes => {
                    end = start + whole as u64
                }
                // The line is longer than lines of the trail are.
                None if first == whole && start > 0 => {
                    self.page.unreadable += u64::from(whole > 0);
                    end = start;
                }
                None => end = if start == 0 { 0 } else { start + first as u64 },
            }
        }
        Ok(true)
    }

    /// Takes whole lines, the last one first. Where the answer is full by that: the place from where to read on.
    fn lines(&mut self, lines: &[u8], file: u64, start: u64) -> Option<TrailPlace> {
        let mut end = start + lines.len() as u64;
        for line in lines.split_inclusive(|byte| *byte == b'\n').rev() {
            if self.is_full() {
                return Some(TrailPlace { file, at: end });
            }
            end -= line.len() as u64;
            match serde_json::from_slice::<Value>(line) {
                Ok(event) if event.is_object() => {
                    if self.is_asked_for(&event) {
                        self.told += line.len();
                        self.page.events.push(TrailEvent { place: TrailPlace { file, at: end }, event });
                    }
                }
                _ => self.page.unreadable += 1,
            }
        }
        None
    }

    fn is_full(&self) -> bool {
        self.page.events.len() >= self.question.limit
            || self.told >= BYTES_TOLD_MAX
            || self.read >= BYTES_READ_MAX
    }

    fn is_asked_for(&self, event: &Value) -> bool {
        let is = |name: &str, wanted: &Option<String>| {
            wanted.as_ref().is_none_or(|wanted| event[name] == **wanted)
        };
        is("user", &self.question.user) && is("name", &self.question.event)
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, time::SystemTime};

    use serde_json::json;

    use super::{
        super::trail::{Rotation, Trail},
        *,
    };

    fn question(limit: usize) -> TrailQuestion {
        TrailQuestion { limit, ..TrailQuestion::default() }
    }

    fn line(number: u64) -> String {
        let more = "x".repeat((number % 7) as usize * 40);
        format!(
            "{}\n",
            json!({ "name": format!("kind {}", number % 3), "user": format!("u{}", number % 5), "number": number, "more": more })
        )
    }

    fn numbers(page: &TrailPage) -> Vec<u64> {
        page.events.iter().map(|one| one.event["number"].as_u64().unwrap()).collect()
    }

    /// All pages from the newest event on. `meanwhile` happens before each.
    fn all(path: &Path, question: &TrailQuestion, mut meanwhile: impl FnMut()) -> Vec<u64> {
        let (mut before, mut seen) = (None, Vec::new());
        for _ in 0..100_000 {
            meanwhile();
            let told = page(path, question, before).unwrap();
            assert_eq!(told.unreadable, 0);
            seen.extend(numbers(&told));
            match told.further {
                Some(further) => before = Some(further),
                None => return seen,
            }
        }
        panic!("no end: {seen:?}");
    }

    #[test]
    fn each_event_is_told_once_newest_first_while_the_trail_goes_on_and_is_rotated() {
        for seed in 0..30 {
            let mut random = fastrand::Rng::with_seed(seed);
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("audit.log");
            let mut trail = Trail::open(&path).unwrap();
            let rotation = Rotation { bytes: random.u64(1..5_000), ..Rotation::default() };
            let count = random.u64(..400);
            (0..count).for_each(|number| trail.write(&line(number), rotation, SystemTime::now()));
            let mut later = count;
            let seen = all(&path, &question(random.usize(1..20)), || {
                trail.write(&line(later), rotation, SystemTime::now());
                later += 1;
            });
            // The first page has what was written right before it.
            assert_eq!(seen, (0..=count).rev().collect::<Vec<_>>(), "seed {seed}");
        }
    }

    #[test]
    fn a_reader_is_told_by_user_and_event_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        fs::write(&path, (0..300).map(line).collect::<String>()).unwrap();
        let asked = TrailQuestion { user: Some("u1".into()), event: Some("kind 2".into()), ..question(3) };
        let expected: Vec<u64> = (0..300).rev().filter(|number| number % 5 == 1 && number % 3 == 2).collect();
        assert_eq!(all(&path, &asked, || {}), expected);
        let nobody = TrailQuestion { user: Some("u".into()), ..question(3) };
        assert_eq!(page(&path, &nobody, None).unwrap(), TrailPage::default());
    }

    #[test]
    fn torn_lines_and_lines_that_are_no_text_or_endless_are_counted_and_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let mut bytes = line(1).into_bytes();
        bytes.extend(b"{\"name\": \"torn{\"name\": \"x\"}\n\xff\xfe\n[1]\n\n");
        bytes.extend(line(2).into_bytes());
        bytes.extend(vec![b'x'; 5 * PIECE]);
        bytes.push(b'\n');
        bytes.extend(line(3).into_bytes());
        bytes.extend(line(4).into_bytes());
        // Half of a letter of UTF-8, and no end of the line. It nearly fills a piece.
        bytes.extend(vec![b'y'; PIECE - 50]);
        bytes.extend(b"{\"name\": \"login failure\", \"user\": \"\xc3");
        fs::write(&path, &bytes).unwrap();
        let told = page(&path, &question(10), None).unwrap();
        assert_eq!(numbers(&told), [4, 3, 2, 1]);
        assert_eq!(told.further, None);
        assert!(told.unreadable >= 5, "{}", told.unreadable);
        fs::write(&path, b"{\"name\": \"\xc3").unwrap();
        assert_eq!(page(&path, &question(10), None).unwrap(), TrailPage::default());
    }

    #[test]
    fn places_that_are_gone_or_were_never_there_end_a_reading() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        assert_eq!(page(&path, &question(10), None).unwrap(), TrailPage::default(), "there is no trail");
        fs::write(&path, (0..30).map(line).collect::<String>()).unwrap();
        let gone = TrailPlace { file: 1, at: 100 };
        assert_eq!(page(&path, &question(10), Some(gone)).unwrap(), TrailPage::default());
        let newest = page(&path, &question(1), None).unwrap().events[0].place;
        let beyond = page(&path, &question(1), Some(TrailPlace { at: u64::MAX, ..newest })).unwrap();
        assert_eq!(numbers(&beyond), [29]);
        // A place in the middle of a line: that line is not whole before it.
        let within = page(&path, &question(1), Some(TrailPlace { at: newest.at + 3, ..newest })).unwrap();
        assert_eq!(numbers(&within), [28]);
    }

    #[test]
    fn a_request_reads_and_tells_no_more_than_it_may_and_can_be_gone_on_with() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let mut trail = Trail::open(&path).unwrap();
        let rotation = Rotation { bytes: 3 << 20, ..Rotation::default() };
        let long = |number: u64| {
            format!("{}\n", json!({ "number": number, "user": "a", "more": "x".repeat(30_000) }))
        };
        (0..400).for_each(|number| trail.write(&long(number), rotation, SystemTime::now()));
        let told = page(&path, &question(usize::MAX), None).unwrap();
        assert!(told.events.len() <= BYTES_TOLD_MAX / 30_000 + 3, "{}", told.events.len());
        let nobody = TrailQuestion { user: Some("b".into()), ..question(10) };
        let told = page(&path, &nobody, None).unwrap();
        assert!(told.events.is_empty() && told.further.is_some());
        assert_eq!(all(&path, &nobody, || {}), Vec::<u64>::new());
        assert_eq!(all(&path, &question(usize::MAX), || {}), (0..400).rev().collect::<Vec<_>>());
    }
}
