//! What is damaged is told, and never answered from.

use std::{path::Path, sync::Arc};

use base::VbId;
use fastrand::Rng;
use settee_views::{
    design::DesignDocument,
    index::{self, Definition, Index, IndexError, Memory, NoFunctions, Options},
};
use storage::{FaultFs, Fs};

use super::world::{self, DIR, History, Node, Reducer};

const OPTIONS: Options = Options { node_bytes: 300, segment_bytes: 1500 };

/// A node with a committed index of one vBucket, and that one's history.
fn node(seed: u64) -> (Node, Vec<History>) {
    let mut random = Rng::with_seed(seed);
    let pool: Vec<String> = (0..20).map(|number| format!("[{number},\"x\"]")).collect();
    let mut history = History::new(1);
    for document in 0..60 {
        let docid = format!("d{document}");
        history.log.push(world::random_change(&mut random, &pool, docid));
    }
    let mut node = Node::new(seed, 1 << 20, OPTIONS);
    node.vbs.insert(VbId(0));
    let batch = history.batch(VbId(0), base::Seqno(0), usize::MAX);
    node.index.apply(batch, &mut Reducer::default()).unwrap();
    node.index.commit(&mut Reducer::default()).unwrap();
    (node, vec![history])
}

fn files(fs: &FaultFs) -> Vec<String> {
    let mut names = fs.list(Path::new(DIR)).unwrap();
    names.sort();
    names
}

const QUERIES: [(&str, &str); 4] =
    [("count", "reduce=false"), ("other", "reduce=false"), ("stats", "group_level=1"), ("function", "")];

fn answers(node: &Node) -> Vec<Result<String, String>> {
    let active = node.vbs.iter().copied().collect();
    let nodes = std::slice::from_ref(node);
    QUERIES.iter().map(|(view, text)| world::answer(nodes, &active, view, text)).collect()
}

#[test]
fn bits_that_flip_are_found_or_do_not_matter() {
    let (mut node, _) = node(1);
    let whole = answers(&node);
    let mut random = Rng::with_seed(5);
    let (mut refused, mut told, mut harmless) = (0, 0, 0);
    for name in files(&node.fs) {
        let path = Path::new(DIR).join(&name);
        let length = node.fs.contents(&path).unwrap().len() as u64;
        for _ in 0..12 {
            let (offset, bit) = (random.u64(..length), random.u8(..8));
            assert!(node.fs.flip_bit(&path, offset, bit));
            // Nothing that was read before is remembered.
            node.memory = Memory::new(1 << 20);
            match node.reopen() {
                Err(error) => {
                    assert!(error.needs_rebuild(), "{name} at {offset}: {error}");
                    refused += 1;
                }
                Ok(()) => {
                    for (found, whole) in answers(&node).iter().zip(&whole) {
                        match found {
                            Err(text) => assert!(text.contains("the index is damaged"), "{text}"),
                            Ok(_) => assert_eq!(found, whole, "{name} at {offset}"),
                        }
                        told += usize::from(found.is_err());
                        harmless += usize::from(found.is_ok());
                    }
                }
            }
            assert!(node.fs.flip_bit(&path, offset, bit));
        }
    }
    assert!(
        refused >= 12 && told > 20 && harmless > 20,
        "{refused} refused, {told} told, {harmless} harmless"
    );
    node.reopen().unwrap();
    assert_eq!(answers(&node), whole);
}

#[test]
fn files_that_are_missing_or_too_short_are_found() {
    let (mut node, _) = node(2);
    for name in files(&node.fs).into_iter().filter(|name| name.ends_with(".segment")) {
        let path = Path::new(DIR).join(name);
        let content = node.fs.contents(&path).unwrap();
        node.fs.open(&path).unwrap().truncate(content.len() as u64 / 2).unwrap();
        assert!(node.reopen().is_err_and(|error| error.needs_rebuild()));
        node.fs.remove(&path).unwrap();
        assert!(node.reopen().is_err_and(|error| error.needs_rebuild()));
        node.fs.create(&path).unwrap().write_at(&content, 0).unwrap();
        node.reopen().unwrap();
    }
}

#[test]
fn what_the_disk_cannot_read_is_damage() {
    let (mut node, _) = node(4);
    let whole = answers(&node);
    let mut told = 0;
    for name in files(&node.fs) {
        let path = Path::new(DIR).join(&name);
        assert!(node.fs.break_page(&path, 0));
        node.memory = Memory::new(1 << 20);
        match node.reopen() {
            Err(error) => assert!(name == "head" && error.needs_rebuild(), "{name}: {error}"),
            Ok(()) => {
                assert_ne!(name, "head");
                for (found, whole) in answers(&node).iter().zip(&whole) {
                    match found {
                        Err(text) => assert!(text.contains("the index is damaged"), "{name}: {text}"),
                        Ok(_) => assert_eq!(found, whole, "{name}"),
                    }
                    told += usize::from(found.is_err());
                }
            }
        }
        node.fs.heal(&path);
    }
    assert!(told > 3, "{told} told");
    node.memory = Memory::new(1 << 20);
    node.reopen().unwrap();
    assert_eq!(answers(&node), whole);
}

#[test]
fn an_index_of_other_functions_is_built_anew() {
    let (mut node, histories) = node(3);
    let whole = answers(&node);
    let other = br#"{"views":{"count":{"map":"function(d){3}"}}}"#;
    let other = Arc::new(Definition::of(&DesignDocument::parse_unchecked(other).unwrap()));
    let fs: Arc<dyn Fs> = Arc::new(node.fs.clone());
    let opened = Index::open(fs.clone(), Path::new(DIR), other.clone(), &node.memory, OPTIONS);
    let error = opened.err().expect("an index of other functions");
    assert!(matches!(&error, IndexError::Outdated(_)) && error.needs_rebuild(), "{error}");
    index::remove(&*fs, Path::new(DIR)).unwrap();
    assert_eq!(files(&node.fs), Vec::<String>::new());
    let mut index = Index::open(fs.clone(), Path::new(DIR), other, &node.memory, OPTIONS).unwrap();
    assert!(index.states().is_empty());
    index.commit(&mut NoFunctions).unwrap();
    drop(index);
    index::remove(&*fs, Path::new(DIR)).unwrap();
    node.reopen().unwrap();
    node.index.apply(histories[0].batch(VbId(0), base::Seqno(0), usize::MAX), &mut NoFunctions).unwrap();
    node.index.publish(&mut NoFunctions).unwrap();
    assert_eq!(answers(&node), whole);
}
