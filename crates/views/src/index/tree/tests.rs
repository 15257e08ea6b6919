//! What trees look like after many changes.

use std::{collections::BTreeMap, path::Path};

use storage::{FaultFs, Fs};

use super::{super::memory::Memory, *};
use crate::index::NoFunctions;

const NODE_BYTES: usize = 1 << 10;

/// Changes by key: a value, or none from now on.
struct Given(BTreeMap<Vec<u8>, Option<Vec<u8>>>);

impl Changes for Given {
    fn key(&self) -> Option<&[u8]> {
        self.0.keys().next().map(Vec::as_slice)
    }

    fn take(&mut self, _: Option<&[u8]>, value: &mut Vec<u8>) -> Result<bool, IndexError> {
        let Some((_, Some(given))) = self.0.pop_first() else { return Ok(false) };
        value.extend_from_slice(&given);
        Ok(true)
    }
}

fn key(number: u32) -> Vec<u8> {
    [&[0, 0][..], format!("d{number:05}").as_bytes()].concat()
}

fn changed(
    store: &mut Store,
    dirty: &mut usize,
    root: Option<&Child>,
    changes: impl Iterator<Item = (u32, bool)>,
) -> Option<Child> {
    let mut given = Given(changes.map(|(number, stays)| (key(number), stays.then(|| vec![7; 20]))).collect());
    let mut editor =
        Editor { store, dirty, dirty_max: 1 << 30, node_bytes: NODE_BYTES, functions: &mut NoFunctions };
    editor.apply(root, &mut given, &Shape::Documents).unwrap()
}

/// The sizes of the leaves, in their order, and how many rows they have.
fn leaves(store: &mut Store, child: &Child, found: &mut Vec<u32>) -> usize {
    let node = store.node(child, &Shape::Documents).unwrap();
    match &node.content {
        Content::Leaf(leaf) => {
            found.push(child.size);
            leaf.len()
        }
        Content::Inner(children) => children.iter().map(|below| leaves(store, below, found)).sum(),
    }
}

#[test]
fn what_is_left_of_leaves_joins_the_neighbour_that_did_not_change() {
    let memory = Memory::new(64 << 20);
    let fs = Arc::new(FaultFs::new(1));
    fs.create_dir_all(Path::new("/t")).unwrap();
    let mut store = Store::open(fs, Path::new("/t"), memory, (BTreeMap::new(), 0), 32 << 20).unwrap();
    let mut dirty = 0;
    let mut root = changed(&mut store, &mut dirty, None, (0..5000).map(|number| (number, true)));
    // Whole leaves go, and of the last one each time another part stays. That may be a few rows, which have to be in a leaf with
    // others.
    let mut left = 5000;
    for begin in (0..5000).step_by(200) {
        let gone = begin + 50..begin + 100 + begin / 100;
        left -= gone.len();
        root = changed(&mut store, &mut dirty, root.as_ref(), gone.map(|number| (number, false)));
    }
    let mut sizes = Vec::new();
    let rows = leaves(&mut store, root.as_ref().unwrap(), &mut sizes);
    assert_eq!(rows, left);
    sizes.pop();
    let small = sizes.iter().filter(|size| (**size as usize) < NODE_BYTES / SMALL_PART).count();
    assert_eq!(small, 0, "of {} leaves: {sizes:?}", sizes.len());
}
