//! A log in a file that begins anew where it gets too long.
//!
//! The file has its name, and earlier ones have a number behind it: `settee.log.1` is the newest of them. The oldest one goes where there
//! are too many. So all of them together are bounded.

use std::{
    fs::{self, File, OpenOptions, Permissions},
    io::{self, Write},
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

/// Rights of a file.
const MODE: u32 = 0o640;

/// Where a log goes, and how much of it is kept.
#[derive(Clone, Debug)]
pub(crate) struct LogFile {
    /// The file that is written.
    pub(crate) path: PathBuf,
    /// Bytes of a file. A longer one is put aside.
    pub(crate) bytes_max: u64,
    /// Files at most, the one that is written among them.
    pub(crate) count: u32,
}

/// See the module header.
pub(super) struct Rotating {
    of: LogFile,
    file: File,
    bytes: u64,
}

impl Rotating {
    /// Goes on where a process before has stopped.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn open(of: LogFile) -> io::Result<Self> {
        let file = opened(&of.path)?;
        let bytes = file.metadata()?.len();
        Ok(Self { of, file, bytes })
    }

    fn put_aside(&mut self) -> io::Result<()> {
        let earlier = |number: u32| {
            let mut name = self.of.path.clone().into_os_string();
            name.push(format!(".{number}"));
            PathBuf::from(name)
        };
        if self.of.count < 2 {
            self.file.set_len(0)?;
            return Ok(());
        }
        // Somebody may have moved it away, or it was put aside when no new one could be opened. Then earlier ones keep their names.
        if fs::exists(&self.of.path)? {
            for number in (1..self.of.count - 1).rev() {
                match fs::rename(earlier(number), earlier(number + 1)) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
            fs::rename(&self.of.path, earlier(1))?;
        }
        self.file = opened(&self.of.path)?;
        Ok(())
    }
}

/// A file that is made may be read by its group, and by nobody else, whatever the process takes away from other files. One that is
/// there keeps its rights.
fn opened(path: &Path) -> io::Result<File> {
    let open = |is_new: bool| OpenOptions::new().append(true).create_new(is_new).mode(MODE).open(path);
    match open(true) {
        Ok(file) => {
            file.set_permissions(Permissions::from_mode(MODE))?;
            Ok(file)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => open(false),
        Err(error) => Err(error),
    }
}

impl Write for Rotating {
    /// Takes whole lines.
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        let length = lines.len() as u64;
        let length_max = self.of.bytes_max;
        if self.bytes > 0 && self.bytes.saturating_add(length) > length_max {
            match self.put_aside() {
                Ok(()) => self.bytes = 0,
                // A folder that goes on refusing costs old lines, and not the disk.
                Err(_) if self.bytes >= length_max.saturating_mul(2) => {
                    self.file.set_len(0)?;
                    self.bytes = 0;
                }
                Err(_) => {}
            }
        }
        self.file.write_all(lines)?;
        self.bytes = self.bytes.saturating_add(length);
        Ok(lines.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn of(dir: &Path, count: u32) -> LogFile {
        LogFile { path: dir.join("settee.log"), bytes_max: 30, count }
    }

    fn files(dir: &Path) -> BTreeMap<String, String> {
        let entries = fs::read_dir(dir).unwrap().map(Result::unwrap);
        let named = |entry: fs::DirEntry| entry.file_name().into_string().unwrap();
        entries
            .map(|entry| (fs::read_to_string(entry.path()).unwrap(), named(entry)))
            .map(|(text, name)| (name, text))
            .collect()
    }

    #[test]
    fn the_newest_lines_are_kept_in_files_of_bounded_size_and_number() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = Rotating::open(of(dir.path(), 3)).unwrap();
        for number in 0..10 {
            log.write_all(format!("line number {number}\n").as_bytes()).unwrap();
        }
        // A file has two lines of 14 bytes.
        let lines = |from: u32, to: u32| -> String {
            (from..to).map(|number| format!("line number {number}\n")).collect()
        };
        let expected = [("settee.log", 8, 10), ("settee.log.1", 6, 8), ("settee.log.2", 4, 6)];
        let expected = expected.map(|(name, from, to)| (name.to_owned(), lines(from, to)));
        assert_eq!(files(dir.path()), BTreeMap::from(expected));
        // The process after it goes on in the same file, which is full.
        Rotating::open(of(dir.path(), 3)).unwrap().write_all(b"a new life\n").unwrap();
        assert_eq!(files(dir.path())["settee.log"], "a new life\n");
        assert_eq!(files(dir.path())["settee.log.1"], lines(8, 10));
    }

    #[test]
    fn a_line_that_is_longer_than_a_file_is_written_and_one_file_alone_begins_anew() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = Rotating::open(of(dir.path(), 1)).unwrap();
        let long = "x".repeat(40) + "\n";
        for line in [&long, "short\n", "and so on\n"] {
            log.write_all(line.as_bytes()).unwrap();
        }
        assert_eq!(files(dir.path()), BTreeMap::from([("settee.log".into(), "short\nand so on\n".into())]));
    }

    #[test]
    fn a_file_that_somebody_has_moved_away_costs_no_earlier_one() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = Rotating::open(of(dir.path(), 3)).unwrap();
        let mut write = |from: u32, to: u32| {
            (from..to)
                .for_each(|number| log.write_all(format!("line number {number}\n").as_bytes()).unwrap());
        };
        write(0, 4);
        fs::rename(dir.path().join("settee.log"), dir.path().join("mine")).unwrap();
        write(4, 5);
        let found = files(dir.path());
        assert_eq!(found["settee.log"], "line number 4\n");
        assert_eq!(found["settee.log.1"], "line number 0\nline number 1\n");
        assert_eq!(found["mine"], "line number 2\nline number 3\n");
    }

    #[test]
    fn a_name_that_cannot_be_taken_loses_lines_only_where_they_have_become_twice_as_many() {
        let dir = tempfile::tempdir().unwrap();
        // A folder that is not empty cannot be replaced by a file.
        fs::create_dir_all(dir.path().join("settee.log.1/in the way")).unwrap();
        let mut log = Rotating::open(of(dir.path(), 2)).unwrap();
        for number in 0..5 {
            log.write_all(format!("line number {number}\n").as_bytes()).unwrap();
        }
        let text = fs::read_to_string(dir.path().join("settee.log")).unwrap();
        assert_eq!(text.lines().count(), 5, "{text}");
        (5..100).for_each(|number| log.write_all(format!("line number {number}\n").as_bytes()).unwrap());
        assert!(fs::metadata(dir.path().join("settee.log")).unwrap().len() < 80);
    }
}
