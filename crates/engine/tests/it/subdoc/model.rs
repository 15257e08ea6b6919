//! Sub-document operations the naive way: on a tree that `serde_json` parsed. Leaves stay as they are spelled, so that
//! numbers are compared exactly.

use base::Status;
use serde_json::value::RawValue;
use settee_engine::subdoc::Edit;

/// A value: containers taken apart, all else as it is spelled. Equal keys are kept.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Tree {
    Leaf(String),
    Array(Vec<Tree>),
    Object(Vec<(String, Tree)>),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    Key(String),
    Index(usize),
    Last,
}

impl Tree {
    pub(crate) fn parse(text: &str) -> Option<Tree> {
        Some(Self::of(serde_json::from_str(text).ok()?))
    }

    fn of(raw: &RawValue) -> Tree {
        match raw.get().as_bytes()[0] {
            b'{' => Tree::Object(
                serde_json::from_str::<Members>(raw.get())
                    .unwrap()
                    .0
                    .into_iter()
                    .map(|(key, value)| (key, Self::of(&value)))
                    .collect(),
            ),
            b'[' => Tree::Array(
                serde_json::from_str::<Vec<&RawValue>>(raw.get())
                    .unwrap()
                    .into_iter()
                    .map(Self::of)
                    .collect(),
            ),
            _ => Tree::Leaf(raw.get().to_owned()),
        }
    }

    fn levels(&self) -> usize {
        let below = match self {
            Tree::Leaf(_) => None,
            Tree::Array(elements) => elements.iter().map(Tree::levels).max(),
            Tree::Object(members) => members.iter().map(|(_, value)| value.levels()).max(),
        };
        1 + below.unwrap_or(0)
    }

    /// Whether a scan over this, at `level`, finds something below the deepest level.
    fn too_deep(&self, level: usize) -> bool {
        level + self.levels() - 1 > 32
    }

    fn takes(&self, step: Option<&Step>) -> bool {
        match step {
            None => true,
            Some(Step::Key(_)) => matches!(self, Tree::Object(_)),
            Some(Step::Index(_) | Step::Last) => matches!(self, Tree::Array(_)),
        }
    }
}

/// A JSON object's members in order, equal keys included.
struct Members(Vec<(String, Box<RawValue>)>);

impl<'de> serde::Deserialize<'de> for Members {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Members;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Visitor)
    }
}

/// The path as child numbers, as far as it exists, and the steps that do not.
struct Place {
    children: Vec<usize>,
    missing: Vec<Step>,
}

fn place(document: &Tree, steps: &[Step]) -> Result<Place, Status> {
    if matches!(document, Tree::Leaf(text) if text.starts_with('"')) {
        return Err(Status::SubdocDocNotJson);
    }
    if !document.takes(steps.first()) {
        return Err(Status::SubdocPathMismatch);
    }
    let mut children = Vec::new();
    let mut tree = document;
    for (number, step) in steps.iter().enumerate() {
        let next = steps.get(number + 1);
        let level = number + 2;
        let found = match (step, tree) {
            (Step::Key(key), Tree::Object(members)) => {
                let mut mismatched = false;
                let mut found = None;
                for (at, (name, value)) in members.iter().enumerate() {
                    if name == key && value.takes(next) {
                        found = Some((at, value));
                        break;
                    }
                    mismatched |= name == key;
                    if value.too_deep(level) && !mismatched {
                        return Err(Status::SubdocDocTooDeep);
                    }
                }
                if found.is_none() && mismatched {
                    return Err(Status::SubdocPathMismatch);
                }
                found
            }
            (step, Tree::Array(elements)) => {
                let at = match step {
                    Step::Index(index) => *index,
                    _ => elements.len().wrapping_sub(1),
                };
                let passed = if *step == Step::Last { elements.len() } else { at.min(elements.len()) };
                if elements[..passed].iter().any(|element| element.too_deep(level)) {
                    return Err(Status::SubdocDocTooDeep);
                }
                elements.get(at).map(|element| (at, element))
            }
            _ => unreachable!("the step before checked"),
        };
        let Some((at, value)) = found else {
            return Ok(Place { children, missing: steps[number..].to_vec() });
        };
        if !value.takes(next) {
            return Err(Status::SubdocPathMismatch);
        }
        children.push(at);
        tree = value;
    }
    if tree.too_deep(children.len() + 1) {
        return Err(Status::SubdocDocTooDeep);
    }
    Ok(Place { children, missing: Vec::new() })
}

fn descend<'t>(document: &'t mut Tree, children: &[usize]) -> &'t mut Tree {
    children.iter().fold(document, |tree, &child| match tree {
        Tree::Array(elements) => &mut elements[child],
        Tree::Object(members) => &mut members[child].1,
        Tree::Leaf(_) => unreachable!("children are counted in containers"),
    })
}

pub(crate) fn get(document: &Tree, steps: &[Step]) -> Result<Tree, Status> {
    let place = place(document, steps)?;
    if !place.missing.is_empty() {
        return Err(Status::SubdocPathNotFound);
    }
    Ok(descend(&mut document.clone(), &place.children).clone())
}

pub(crate) fn count(document: &Tree, steps: &[Step]) -> Result<usize, Status> {
    match get(document, steps)? {
        Tree::Leaf(_) => Err(Status::SubdocPathMismatch),
        Tree::Array(elements) => Ok(elements.len()),
        Tree::Object(members) => Ok(members.len()),
    }
}

/// The values of a list, checked.
fn values(text: &[u8], single: bool, levels: usize) -> Result<Vec<Tree>, Status> {
    let text = std::str::from_utf8(text).map_err(|_| Status::SubdocValueCannotInsert)?;
    if text.is_empty() {
        return Err(Status::Invalid);
    }
    let list = match Tree::parse(&format!("[{text}]")) {
        Some(Tree::Array(list)) if !list.is_empty() => list,
        _ => return Err(Status::SubdocValueCannotInsert),
    };
    // Whichever comes first is what is reported.
    for (number, value) in list.iter().enumerate() {
        if single && number > 0 {
            return Err(Status::SubdocValueCannotInsert);
        }
        if value.levels() > levels {
            return Err(Status::SubdocValueTooDeep);
        }
    }
    Ok(list)
}

/// What is missing as a new member of the deepest container there is.
fn create(document: &mut Tree, place: &Place, value: Tree, creating: bool) -> Result<(), Status> {
    if place.missing.len() > 1 && !creating {
        return Err(Status::SubdocPathNotFound);
    }
    let mut keys = Vec::new();
    for step in &place.missing {
        match step {
            Step::Key(key) => keys.push(key.clone()),
            _ => return Err(Status::SubdocPathNotFound),
        }
    }
    let first = keys.remove(0);
    let value = keys.into_iter().rev().fold(value, |value, key| Tree::Object(vec![(key, value)]));
    match descend(document, &place.children) {
        Tree::Object(members) => members.push((first, value)),
        _ => unreachable!("a key is missing only in objects"),
    }
    Ok(())
}

pub(crate) fn apply(
    document: &Tree,
    steps: &[Step],
    edit: &Edit<'_>,
    creating: bool,
) -> Result<(Tree, Option<i64>), Status> {
    let mut after = document.clone();
    let ends_in_key = matches!(steps.last(), Some(Step::Key(_)));
    match *edit {
        Edit::DictAdd(value) | Edit::DictUpsert(value) | Edit::Replace(value) => {
            if steps.is_empty() {
                return Err(Status::SubdocValueCannotInsert);
            }
            let value = values(value, true, 32 - steps.len())?.remove(0);
            let place = place(document, steps)?;
            let replaces = matches!(edit, Edit::Replace(_));
            match (place.missing.is_empty(), replaces) {
                (_, false) if !ends_in_key => return Err(Status::SubdocPathInvalid),
                (true, false) if matches!(edit, Edit::DictAdd(_)) => return Err(Status::SubdocPathExists),
                (true, _) => *descend(&mut after, &place.children) = value,
                (false, true) => return Err(Status::SubdocPathNotFound),
                (false, false) => create(&mut after, &place, value, creating)?,
            }
        }
        Edit::Delete => {
            if steps.is_empty() {
                return Err(Status::SubdocValueCannotInsert);
            }
            let place = place(document, steps)?;
            if !place.missing.is_empty() {
                return Err(Status::SubdocPathNotFound);
            }
            let (&last, parents) = place.children.split_last().unwrap();
            match descend(&mut after, parents) {
                Tree::Array(elements) => drop(elements.remove(last)),
                Tree::Object(members) => drop(members.remove(last)),
                Tree::Leaf(_) => unreachable!("it has children"),
            }
        }
        Edit::PushLast(value) | Edit::PushFirst(value) | Edit::AddUnique(value) => {
            let unique = matches!(edit, Edit::AddUnique(_));
            let list = values(value, unique, 31 - steps.len())?;
            if unique && !matches!(list[0], Tree::Leaf(_)) {
                return Err(Status::SubdocValueCannotInsert);
            }
            let place = if steps.is_empty() && matches!(edit, Edit::PushLast(_)) {
                // Needs no scan, so it meets nothing that is too deep.
                match document {
                    Tree::Leaf(_) => return Err(Status::SubdocDocNotJson),
                    _ => Place { children: Vec::new(), missing: Vec::new() },
                }
            } else {
                place(document, steps)?
            };
            if !place.missing.is_empty() {
                if !creating {
                    return Err(Status::SubdocPathNotFound);
                }
                create(&mut after, &place, Tree::Array(list), true)?;
                return Ok((after, None));
            }
            let Tree::Array(elements) = descend(&mut after, &place.children) else {
                return Err(Status::SubdocPathMismatch);
            };
            if unique {
                for element in elements.iter() {
                    match element {
                        Tree::Leaf(_) if *element == list[0] => return Err(Status::SubdocPathExists),
                        Tree::Leaf(_) => {}
                        _ => return Err(Status::SubdocPathMismatch),
                    }
                }
            }
            let at = if matches!(edit, Edit::PushFirst(_)) { 0 } else { elements.len() };
            elements.splice(at..at, list);
        }
        Edit::Insert(value) => {
            let list = values(value, false, 32 - steps.len())?;
            let Some(Step::Index(index)) = steps.last() else { return Err(Status::SubdocPathInvalid) };
            let place = place(document, steps)?;
            if place.missing.len() > 1 {
                return Err(Status::SubdocPathNotFound);
            }
            let parents = &place.children[..(steps.len() - 1).min(place.children.len())];
            match descend(&mut after, parents) {
                Tree::Array(elements) if *index <= elements.len() => {
                    drop(elements.splice(index..index, list))
                }
                _ => return Err(Status::SubdocPathNotFound),
            }
        }
        Edit::Counter(delta) => {
            let place = place(document, steps)?;
            if place.missing.is_empty() {
                let tree = descend(&mut after, &place.children);
                let number = match tree {
                    Tree::Leaf(text) => text.parse::<i128>().map_err(|_| Status::SubdocPathMismatch)?,
                    _ => return Err(Status::SubdocPathMismatch),
                };
                let number = i64::try_from(number).map_err(|_| Status::SubdocNumberRange)?;
                let sum = number.checked_add(delta).ok_or(Status::SubdocValueCannotInsert)?;
                *tree = Tree::Leaf(sum.to_string());
                return Ok((after, Some(sum)));
            }
            if !matches!(place.missing[0], Step::Key(_)) || (place.missing.len() > 1 && !creating) {
                return Err(Status::SubdocPathNotFound);
            }
            if !ends_in_key {
                return Err(Status::SubdocPathInvalid);
            }
            create(&mut after, &place, Tree::Leaf(delta.to_string()), creating)?;
            return Ok((after, Some(delta)));
        }
    }
    Ok((after, None))
}
