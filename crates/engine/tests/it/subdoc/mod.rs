//! Sub-document operations on random documents, compared with the naive [`model`]. A failure prints its seed.

mod generator;
mod model;

use std::collections::BTreeMap;

use base::Status;
use fastrand::Rng;
use settee_engine::subdoc::{self, Edit, Path};

use generator::Generator;
use model::Tree;

struct Announce(u64);

impl Drop for Announce {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed with seed {}", self.0);
        }
    }
}

/// The documents: so many of them from the first one on, unless `SUBDOC_MODEL_SEED` and `SUBDOC_MODEL_SEEDS` say otherwise.
fn seeds() -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = number("SUBDOC_MODEL_SEED").unwrap_or(0);
    first..first + number("SUBDOC_MODEL_SEEDS").unwrap_or(8_000)
}

#[test]
fn operations_do_what_a_tree_would() {
    let mut outcomes = BTreeMap::new();
    for seed in seeds() {
        let _announce = Announce(seed);
        let mut generator = Generator(Rng::with_seed(seed));
        let mut text = generator.document();
        for _ in 0..8 {
            let document = Tree::parse(&text).expect("a valid document");
            let steps = generator.steps(&document);
            let path_text = generator.path(&steps);
            let path = match Path::parse(path_text.as_bytes()) {
                Err(Status::SubdocPathTooBig) if steps.len() > 31 => continue,
                path => path.expect("a path of steps"),
            };
            assert_eq!(path.len(), steps.len());

            let found = subdoc::get(text.as_bytes(), &path);
            let as_tree = found.map(|value| Tree::parse(std::str::from_utf8(value).unwrap()).unwrap());
            assert_eq!(as_tree, model::get(&document, &steps), "get {path_text} of {text}");
            assert_eq!(subdoc::exists(text.as_bytes(), &path), found.map(|_| ()));
            assert_eq!(
                subdoc::count(text.as_bytes(), &path),
                model::count(&document, &steps),
                "count {path_text} of {text}"
            );

            let input = generator.input();
            let value = input.as_bytes();
            let edit = match generator.0.u8(..9) {
                0 => Edit::DictAdd(value),
                1 => Edit::DictUpsert(value),
                2 => Edit::Delete,
                3 => Edit::Replace(value),
                4 => Edit::PushLast(value),
                5 => Edit::PushFirst(value),
                6 => Edit::Insert(value),
                7 => Edit::AddUnique(value),
                _ => Edit::Counter(*generator.0.choice(&[1, -1, 1000, i64::MAX, i64::MIN]).unwrap()),
            };
            let creating = generator.0.bool();
            let mut out = Vec::new();
            let counted = subdoc::apply(text.as_bytes(), &path, &edit, creating, &mut out);
            let expected = model::apply(&document, &steps, &edit, creating);
            let say = || format!("{edit:?} with {input} at {path_text} of {text}, creating: {creating}");
            let kind = format!("{edit:?}").split('(').next().unwrap().to_owned();
            *outcomes.entry((kind, counted.map(|_| ()).map_err(Status::code))).or_insert(0_u32) += 1;
            match (counted, expected) {
                (Ok(counted), Ok((after, expected))) => {
                    let out = String::from_utf8(out).expect("a text");
                    assert_eq!(
                        Tree::parse(&out).unwrap_or_else(|| panic!("{}: {out}", say())),
                        after,
                        "{}",
                        say()
                    );
                    assert_eq!(counted, expected, "{}", say());
                    text = out;
                }
                (counted, expected) => assert_eq!(counted.err(), expected.err(), "{}", say()),
            }
        }
    }
    check_outcomes(&outcomes);
}

/// Enough of everything has happened for the comparison to mean something. Few documents need not come across everything.
fn check_outcomes(outcomes: &BTreeMap<(String, Result<(), u16>), u32>) {
    let documents = seeds().end - seeds().start;
    if documents < 8_000 {
        return;
    }
    const KINDS: [&str; 9] = [
        "DictAdd",
        "DictUpsert",
        "Delete",
        "Replace",
        "PushLast",
        "PushFirst",
        "Insert",
        "AddUnique",
        "Counter",
    ];
    for kind in KINDS {
        let times = outcomes.get(&(kind.to_owned(), Ok(()))).copied().unwrap_or(0);
        assert!(u64::from(times) > documents / 100, "{kind} succeeded {times} times: {outcomes:?}");
    }
}
