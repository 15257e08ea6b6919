//! The keys of this node, in files: `DIR/keys/UUID.key`. A node that leaves its cluster becomes another one, with another uuid and
//! another key, so a copy of its folder from before opens nothing.
//!
//! Invariant: a key is on disk before anybody hears of it.

use std::{
    collections::BTreeMap,
    fs::{self, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use cluster::{
    Command, Metadata,
    auth::{NodeKey, SEED_BYTES},
};
use parking_lot::Mutex;

const EXTENSION: &str = "key";

/// The keys of this node, by its uuid then.
#[derive(Debug)]
pub struct KeyRing {
    folder: PathBuf,
    keys: Mutex<BTreeMap<String, Arc<NodeKey>>>,
}

impl KeyRing {
    /// The keys of a folder, which is there.
    pub fn new(folder: PathBuf) -> Self {
        Self { folder, keys: Mutex::default() }
    }

    /// The key of the node `uuid`, which is this one: what its file holds, or new.
    pub fn of(&self, uuid: &str) -> io::Result<Arc<NodeKey>> {
        let mut keys = self.keys.lock();
        if let Some(key) = keys.get(uuid) {
            return Ok(Arc::clone(key));
        }
        let path = self.folder.join(uuid).with_extension(EXTENSION);
        let key = match fs::read_to_string(&path) {
            Ok(text) => read(&text).ok_or_else(|| {
                let text = format!(
                    "{} holds no key; restore the file. Without it, a node that is alone makes another key once the file is \
                     removed; a member of a cluster has to be failed over, removed, and added again with an empty folder",
                    path.display()
                );
                io::Error::new(io::ErrorKind::InvalidData, text)
            })?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => make(&self.folder, &path)?,
            Err(error) => return Err(error),
        };
        let key = Arc::new(key);
        keys.insert(uuid.to_owned(), Arc::clone(&key));
        Ok(key)
    }

    /// The same, if somebody has asked for it before.
    pub(crate) fn known(&self, uuid: &str) -> Option<Arc<NodeKey>> {
        self.keys.lock().get(uuid).cloned()
    }

    /// Removes the keys that this node had under other names, and nothing else.
    pub fn keep_only(&self, uuid: &str) -> io::Result<()> {
        for entry in fs::read_dir(&self.folder)? {
            let path = entry?.path();
            let is_key = path.extension().is_some_and(|extension| extension == EXTENSION);
            if is_key && path.file_stem().is_none_or(|stem| stem != uuid) {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }
}

/// A command that says by what key the others know this node, unless they have heard. Older nodes do not know of keys.
pub fn change_of_key(metadata: &Metadata, uuid: &str, keys: &KeyRing) -> Option<Command> {
    let known = metadata.node(uuid).filter(|_| metadata.has_node_keys())?;
    let key = keys.known(uuid)?.public().to_owned();
    (known.key.as_ref() != Some(&key)).then_some(Command::SetNodeKey { node: known.id, key })
}

/// Whether the other members know this node by a key that it no longer has. Then it can log in at none of them, for good.
pub(crate) fn has_lost_key(metadata: &Metadata, uuid: &str, keys: &KeyRing) -> bool {
    let told = metadata.node(uuid).and_then(|node| node.key.as_deref());
    let own = keys.known(uuid);
    metadata.nodes.len() > 1 && told.zip(own).is_some_and(|(told, own)| told != own.public())
}

fn read(text: &str) -> Option<NodeKey> {
    NodeKey::from_seed(&STANDARD.decode(text.trim()).ok()?)
}

/// Makes a key, and has it on disk under its name or not at all.
fn make(folder: &Path, path: &Path) -> io::Result<NodeKey> {
    let mut seed = [0; SEED_BYTES];
    getrandom::fill(&mut seed).map_err(io::Error::other)?;
    let key = NodeKey::from_seed(&seed).ok_or_else(|| io::Error::other("a key cannot be made"))?;
    let new = path.with_extension("new");
    let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&new)?;
    writeln!(file, "{}", STANDARD.encode(seed))?;
    // Order matters: the file, its name, the folder.
    file.sync_all()?;
    fs::rename(&new, path)?;
    fs::File::open(folder)?.sync_all()?;
    Ok(key)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use cluster::{NodeInfo, Ports};

    use super::*;

    #[test]
    fn a_key_is_made_once_kept_for_its_owner_alone_and_goes_with_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let ring = || KeyRing::new(dir.path().to_path_buf());
        let first = ring();
        assert!(first.known("a").is_none());
        let made = first.of("a").unwrap();
        assert_eq!(first.known("a").unwrap().public(), made.public());
        assert_eq!(ring().of("a").unwrap().public(), made.public(), "the file has it");
        assert_ne!(ring().of("b").unwrap().public(), made.public());
        let file = dir.path().join("a.key");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);

        // As on a disk of its own.
        let foreign = dir.path().join("lost+found");
        fs::create_dir(&foreign).unwrap();
        ring().keep_only("b").unwrap();
        assert!(!file.exists() && dir.path().join("b.key").exists() && foreign.exists());
        fs::write(&file, "no key").unwrap();
        assert!(ring().of("a").unwrap_err().to_string().contains("restore the file"));
    }

    #[test]
    fn a_member_whose_key_is_another_than_the_others_know_has_lost_it() {
        let dir = tempfile::tempdir().unwrap();
        let ring = KeyRing::new(dir.path().to_path_buf());
        let own = ring.of("a").unwrap().public().to_owned();
        let with = |key: &str, members: usize| {
            let mut metadata = Metadata::new("c".repeat(32), 1024);
            let node = |uuid: &str| NodeInfo::first(uuid.into(), "127.0.0.1".into(), Ports::default());
            metadata.nodes = vec![NodeInfo { key: Some(key.to_owned()), ..node("a") }, node("b")];
            metadata.nodes.truncate(members);
            has_lost_key(&metadata, "a", &ring)
        };
        assert!(with("another", 2));
        assert!(!with(&own, 2));
        assert!(!with("another", 1), "it is believed by itself");
    }
}
