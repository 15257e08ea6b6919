//! The targets of the `engine` crate: what it does with JSON, with paths into it and with extended attributes.

#![allow(dead_code, reason = "every entry point compiles all targets and uses one")]

use serde::de::IgnoredAny;
use settee_engine::{
    json::is_json,
    subdoc::{
        self, Component, Edit, Path,
        xattr::{Blob, Builder, is_xattr_key},
    },
};

/// Whatever the check calls JSON, a parser accepts; deep nesting aside, the reverse holds as well.
pub(super) fn json(text: &[u8]) {
    let parsed = std::str::from_utf8(text).is_ok_and(|text| serde_json::from_str::<IgnoredAny>(text).is_ok());
    assert_eq!(is_json(text), parsed);
}

/// A path, and the same as a path into attributes.
pub(super) fn path(text: &[u8]) {
    if let Ok(path) = Path::parse(text) {
        assert_eq!(path.components().count(), path.len());
        assert!(path.len() <= subdoc::COMPONENTS_MAX);
        for component in path.components() {
            if let Component::Key(key) = component {
                let key = [&b"\""[..], &key.bytes().collect::<Vec<_>>(), b"\""].concat();
                assert!(is_json(&key), "a path's keys can be written to a document");
            }
        }
    }
    if let Ok((key, path)) = Path::parse_xattr(text) {
        assert!(is_xattr_key(key) && text.starts_with(key) && !path.is_empty());
        let Some(Component::Key(first)) = path.components().next() else { panic!("a name comes first") };
        assert!(first.bytes().eq(key.iter().copied()));
    }
}

/// Three bytes: which edit, the length of its value, the length of the path; then value, path, document.
pub(super) fn subdoc_edit(bytes: &[u8]) {
    let [choice, value_len, path_len, rest @ ..] = bytes else { return };
    let (value, rest) = rest.split_at(rest.len().min(usize::from(*value_len)));
    let (path, document) = rest.split_at(rest.len().min(usize::from(*path_len)));
    let Ok(path) = Path::parse(path) else { return };
    let valid = is_json(document);

    let found = subdoc::get(document, &path);
    assert_eq!(subdoc::exists(document, &path), found.map(|_| ()));
    let counted = subdoc::count(document, &path);
    if valid {
        assert!(found.is_ok_and(is_json) || found.is_err());
        assert!(found.is_ok() || counted.is_err());
    }

    let mut out = Vec::new();
    let edit = match choice % 9 {
        0 => Edit::DictAdd(value),
        1 => Edit::DictUpsert(value),
        2 => Edit::Delete,
        3 => Edit::Replace(value),
        4 => Edit::PushLast(value),
        5 => Edit::PushFirst(value),
        6 => Edit::Insert(value),
        7 => Edit::AddUnique(value),
        _ => match subdoc::parse_delta(value) {
            Ok(delta) => Edit::Counter(delta),
            Err(_) => return,
        },
    };
    let create_parents = choice & 0x80 != 0;
    let done = subdoc::apply(document, &path, &edit, create_parents, &mut out);
    if valid && done.is_ok() {
        assert!(is_json(&out), "{edit:?} makes {}", String::from_utf8_lossy(&out));
    }
    // One more thing inside attributes: the same edit on a document that is an attribute.
    if let (true, Some(Component::Key(_))) = (valid, path.components().next()) {
        let mut attributes = Builder::default();
        attributes.set(b"a", document);
        let _ =
            Path::parse_xattr(b"a.b").map(|(key, path)| attributes.edit(key, &path, &edit, create_parents));
        assert!(attributes.blob().is_valid());
    }
}

/// A value with attributes.
pub(super) fn xattrs(value: &[u8]) {
    let Ok((blob, body)) = Blob::split(value) else { return };
    assert!(value.ends_with(body));
    for (key, _) in blob.iter() {
        assert!(blob.get(key).is_some());
    }
    let mut builder = Builder::from_blob(&blob);
    if !blob.is_valid() {
        builder.keep_system();
        builder.set(b"key", b"1");
        return;
    }
    let (system, user) = blob.shares();
    assert_eq!(system + user + body.len(), value.len());
    if !blob.is_empty() {
        assert_eq!([builder.clone().finish(), body.to_vec()].concat(), value);
    }
    let before = blob.iter().count();
    let is_new = blob.get(b"key").is_none();
    builder.set(b"key", b"[1]");
    assert_eq!(builder.blob().iter().count(), before + usize::from(is_new));
    assert!(builder.blob().is_valid());
    builder.keep_system();
    assert_eq!(builder.blob().shares(), (system, 0));
    for (key, _) in blob.iter() {
        builder.remove(key);
    }
    assert!(builder.finish().is_empty());
}
