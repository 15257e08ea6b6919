//! The files of the audit trail: `audit.log`, which is appended to, and the older ones beside it.
//!
//! When the file is full or old enough it is renamed to `audit-TIME.log` (milliseconds since 1970) and a new one is
//! begun. An administrator sets how full and how old that is, and after what time the old ones may go. Whatever the
//! setting, all files together stay below [`BYTES_MAX`]: the oldest go first, so that no client can fill the disk.
//! Belongs to the writer thread.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// Bytes of all files of the trail together.
pub(crate) const BYTES_MAX: u64 = 256 * 1024 * 1024;
/// The largest file, whatever the setting: what is left when it ends is three quarters of the trail at least.
const FILE_BYTES_MAX: u64 = BYTES_MAX / 4;

/// When files end and go; a zero means never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rotation {
    pub(crate) bytes: u64,
    pub(crate) age: Duration,
    pub(crate) prune_age: Duration,
}

pub(crate) struct Trail {
    path: PathBuf,
    file: File,
    bytes: u64,
    begun: SystemTime,
}

impl Trail {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        let about = file.metadata()?;
        let begun = about.created().or_else(|_| about.modified()).unwrap_or_else(|_| SystemTime::now());
        Ok(Self { path: path.to_owned(), file, bytes: about.len(), begun })
    }

    /// Appends one line, in a new file if it is time for one.
    pub(crate) fn write(&mut self, line: &str, rotation: Rotation, now: SystemTime) {
        if self.is_due(line.len() as u64, rotation, now) {
            // Should that fail, the trail goes on in the old file.
            if let Err(error) = self.rotate(rotation, now) {
                tracing::warn!(%error, "the audit trail could not begin a new file");
            }
        }
        // One write per line: `O_APPEND` keeps lines whole even if the process dies between two of them.
        match self.file.write_all(line.as_bytes()) {
            Ok(()) => self.bytes += line.len() as u64,
            Err(error) => tracing::warn!(%error, "an audit event could not be written"),
        }
    }

    fn is_due(&self, more: u64, rotation: Rotation, now: SystemTime) -> bool {
        let bytes_max = if rotation.bytes == 0 { FILE_BYTES_MAX } else { rotation.bytes.min(FILE_BYTES_MAX) };
        let is_full = self.bytes + more > bytes_max;
        let age = now.duration_since(self.begun).unwrap_or_default();
        self.bytes > 0 && (is_full || (!rotation.age.is_zero() && age >= rotation.age))
    }

    fn rotate(&mut self, rotation: Rotation, now: SystemTime) -> io::Result<()> {
        let mut millis = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let older = loop {
            let older = self.path.with_file_name(format!("audit-{millis}.log"));
            if !older.try_exists()? {
                break older;
            }
            millis += 1;
        };
        fs::rename(&self.path, older)?;
        *self = Self { begun: now, ..Self::open(&self.path)? };
        self.prune(rotation.prune_age, now, BYTES_MAX - FILE_BYTES_MAX)
    }

    /// Removes older files: those of an age at which they may go, and the oldest of those beyond `bytes_max`.
    fn prune(&self, prune_age: Duration, now: SystemTime, bytes_max: u64) -> io::Result<()> {
        let mut kept = 0;
        for (path, about) in older_of(&self.path)?.into_iter().rev() {
            let age = now.duration_since(about.modified()?).unwrap_or_default();
            kept += about.len();
            if kept > bytes_max || (!prune_age.is_zero() && age >= prune_age) {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }
}

/// The files of a trail that have ended, oldest first. One that is removed meanwhile is none of them.
pub(super) fn older_of(path: &Path) -> io::Result<Vec<(PathBuf, fs::Metadata)>> {
    let mut older = Vec::new();
    for entry in path.parent().map(fs::read_dir).transpose()?.into_iter().flatten() {
        let entry = entry?;
        let Some(millis) = entry.file_name().to_str().and_then(millis_of) else { continue };
        match entry.metadata() {
            Ok(about) => older.push((millis, entry.path(), about)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    older.sort_by_key(|(millis, ..)| *millis);
    Ok(older.into_iter().map(|(_, path, about)| (path, about)).collect())
}

/// When a file of this name ended, in milliseconds since 1970; `None` for what is no older file of the trail.
fn millis_of(name: &str) -> Option<u128> {
    name.strip_prefix("audit-")?.strip_suffix(".log")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_files_go_when_all_together_are_too_large() {
        let dir = tempfile::tempdir().unwrap();
        let mut trail = Trail::open(&dir.path().join("audit.log")).unwrap();
        fs::write(dir.path().join("audit-notes.log"), "not ours").unwrap();
        let rotation = Rotation { bytes: 4, ..Rotation::default() };
        for line in ["aaa\n", "bbb\n", "ccc\n", "ddd\n"] {
            trail.write(line, rotation, SystemTime::now());
        }
        trail.prune(Duration::ZERO, SystemTime::now(), 8).unwrap();
        let mut left = files(dir.path());
        left.sort();
        assert_eq!(left, ["bbb\n", "ccc\n", "ddd\n", "not ours"]);
    }

    #[test]
    fn a_file_ends_though_an_administrator_has_set_no_size() {
        let dir = tempfile::tempdir().unwrap();
        let trail = Trail::open(&dir.path().join("audit.log")).unwrap();
        let full = Trail { bytes: FILE_BYTES_MAX, ..trail };
        assert!(full.is_due(1, Rotation::default(), full.begun));
    }

    /// The files of the trail, oldest first.
    fn files(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names.iter().map(|name| fs::read_to_string(folder.join(name)).unwrap()).collect()
    }

    #[test]
    fn a_full_file_is_put_beside_a_new_one_and_nothing_is_lost() {
        let dir = tempfile::tempdir().unwrap();
        let mut trail = Trail::open(&dir.path().join("audit.log")).unwrap();
        let rotation = Rotation { bytes: 4, ..Rotation::default() };
        for line in ["a\n", "b\n", "longer than a file may be\n", "c\n"] {
            trail.write(line, rotation, SystemTime::now());
        }
        assert_eq!(files(dir.path()), ["a\nb\n", "longer than a file may be\n", "c\n"]);
    }

    #[test]
    fn an_old_file_ends_and_older_ones_go_when_they_may() {
        let dir = tempfile::tempdir().unwrap();
        let mut trail = Trail::open(&dir.path().join("audit.log")).unwrap();
        let hour = Duration::from_secs(3600);
        let rotation = Rotation { age: hour, ..Rotation::default() };
        let begun = SystemTime::now();
        trail.write("a\n", rotation, begun);
        trail.write("b\n", rotation, begun + hour / 2);
        trail.write("c\n", rotation, begun + hour * 2);
        assert_eq!(files(dir.path()), ["a\nb\n", "c\n"]);
        let rotation = Rotation { prune_age: hour, ..rotation };
        trail.write("d\n", rotation, begun + hour * 4);
        assert_eq!(files(dir.path()), ["d\n"], "those before are older than an hour");
    }

    #[test]
    fn a_trail_goes_on_where_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let rotation = Rotation { bytes: 4, ..Rotation::default() };
        Trail::open(&path).unwrap().write("a\n", rotation, SystemTime::now());
        let mut trail = Trail::open(&path).unwrap();
        trail.write("b\n", rotation, SystemTime::now());
        trail.write("c\n", rotation, SystemTime::now());
        assert_eq!(files(dir.path()), ["a\nb\n", "c\n"]);
    }
}
