//! The archive: a tar file with a list of its contents.

use std::io::{self, Write};

/// Bytes of a name in the header of an archive.
const NAME_BYTES_MAX: usize = 100;
const BLOCK: usize = 512;

/// A tar archive, and what is in it.
#[derive(Debug)]
pub struct Archive<W: Write> {
    out: W,
    unix_secs: u64,
    bytes: u64,
    /// File, size or reason, and what was asked for.
    contents: Vec<[String; 3]>,
}

impl<W: Write> Archive<W> {
    /// An empty one, whose files are of that time.
    pub fn new(out: W, unix_secs: u64) -> Self {
        Self { out, unix_secs, bytes: 0, contents: Vec::new() }
    }

    /// Bytes written so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Says in the list of contents what came of asking for `path`.
    pub fn note(&mut self, name: String, what: String, path: &str) {
        self.contents.push([name, what, path.to_owned()]);
    }

    /// Adds a file.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn add(&mut self, name: &str, body: &[u8]) -> io::Result<()> {
        self.bytes += (BLOCK + body.len().next_multiple_of(BLOCK)) as u64;
        self.out.write_all(&header(name, body.len(), self.unix_secs))?;
        self.out.write_all(body)?;
        self.out.write_all(&vec![0; body.len().next_multiple_of(BLOCK) - body.len()])
    }

    /// Adds the list of contents and ends it. How many files it has, and how many things are missing.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn finish(mut self, is_redacted: bool) -> io::Result<(usize, usize)> {
        let files = self.contents.iter().filter(|[_, what, _]| what.ends_with(" bytes")).count();
        let missing = self.contents.len() - files;
        let names = if is_redacted {
            "Names of users are replaced by <ud>HASH</ud>."
        } else {
            "Nothing is replaced."
        };
        let list = aligned(&std::mem::take(&mut self.contents));
        let text = format!("What was asked of the cluster. {names}\n\n{list}");
        self.add("contents.txt", text.as_bytes())?;
        self.out.write_all(&[0; 2 * BLOCK])?;
        self.out.flush()?;
        Ok((files + 1, missing))
    }
}

/// The header of a plain file in the format `ustar`.
fn header(name: &str, bytes: usize, unix_secs: u64) -> [u8; BLOCK] {
    let mut header = [0; BLOCK];
    let mut put = |at: usize, text: &[u8]| {
        if let Some(place) = header.get_mut(at..at + text.len()) {
            place.copy_from_slice(text);
        }
    };
    put(0, name.as_bytes().get(..NAME_BYTES_MAX).unwrap_or(name.as_bytes()));
    put(100, b"0000600\0");
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    put(124, format!("{bytes:011o}\0").as_bytes());
    put(136, format!("{unix_secs:011o}\0").as_bytes());
    put(148, b"        ");
    put(156, b"0");
    put(257, b"ustar\x0000");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    if let Some(place) = header.get_mut(148..156) {
        place.copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }
    header
}

/// The list of contents, in columns.
fn aligned(contents: &[[String; 3]]) -> String {
    let header = ["FILE", "SIZE OR WHY IT IS MISSING", "ASKED FOR"].map(str::to_owned);
    let all: Vec<&[String; 3]> = std::iter::once(&header).chain(contents).collect();
    let width = |at: usize| all.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count()).max();
    let (name, what) = (width(0).unwrap_or(0), width(1).unwrap_or(0));
    let line = |[file, size, path]: &&[String; 3]| format!("{file:name$}  {size:what$}  {path}\n");
    all.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_archive_is_one_that_tar_reads_and_lists_what_is_missing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.tar");
        let mut archive = Archive::new(std::fs::File::create(&path).unwrap(), 1_732_694_400);
        archive.add("node-a_8091/log.json", &[b'x'; 700]).unwrap();
        archive.note("node-a_8091/log.json".into(), "700 bytes".into(), "/settee/logs");
        archive.note("node-a_8091/metrics.txt".into(), "not there: 403".into(), "/metrics");
        assert_eq!(archive.finish(true).unwrap(), (2, 1));
        let tar = |option: &str, file: &str| {
            let done = std::process::Command::new("tar").arg(option).arg(&path).arg(file).output().unwrap();
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
            String::from_utf8(done.stdout).unwrap()
        };
        assert_eq!(tar("-xOf", "node-a_8091/log.json"), "x".repeat(700));
        let contents = tar("-xOf", "contents.txt");
        assert!(contents.contains("700 bytes") && contents.contains("not there: 403"), "{contents}");
    }
}
