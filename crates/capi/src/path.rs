//! What a path on the ports of views asks for.
//!
//! Segments come decoded: a slash within one was written `%2F`.

use axum::http::Uri;

/// How the id of a design document begins.
pub(crate) const DESIGN: &str = "_design/";

/// The bucket that a path names, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Database<'a> {
    pub(crate) bucket: &'a str,
    /// The uuid that the bucket has to have.
    pub(crate) uuid: Option<&'a str>,
    /// One of its vBuckets is meant, or what stood above them in Couchbase 2.
    pub(crate) is_vbucket: bool,
}

impl<'a> Database<'a> {
    /// Reads the first segment: `B`, `B+UUID` as in `couchApiBase`, `B/17`, or `B/master;UUID`.
    pub(crate) fn of(segment: &'a str) -> Self {
        let (bucket, rest) = segment.split_at(segment.find(['+', '/', ';']).unwrap_or(segment.len()));
        let is_vbucket = rest.starts_with('/');
        let uuid = if is_vbucket { rest.split_once(';').map(|(_, uuid)| uuid) } else { rest.get(1..) };
        Self { bucket, uuid, is_vbucket }
    }
}

/// What is asked for within a bucket. Design documents have names without `_design/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target<'a> {
    /// A design document.
    Design(&'a str),
    /// The rows of a view, by the names of its design document and its own.
    View(&'a str, &'a str),
    /// Something else of a design document, by its name.
    Handler(&'a str, &'a str),
    /// An attachment of a design document.
    Attachment,
    /// The list of all documents.
    AllDocuments,
    /// Functions that are run on documents of the request.
    Trial,
    /// Something that is never there.
    Nothing,
}

impl<'a> Target<'a> {
    /// Reads the segments behind that of the bucket.
    pub(crate) fn of(path: &'a [String]) -> Self {
        let Some((first, rest)) = path.split_first() else { return Self::Nothing };
        if let Some(name) = first.strip_prefix(DESIGN) {
            return Self::of_design(name, rest);
        }
        match (first.as_str(), rest) {
            ("_all_docs", []) => Self::AllDocuments,
            ("_try", []) => Self::Trial,
            ("_design", [name, rest @ ..]) => Self::of_design(name, rest),
            _ => Self::Nothing,
        }
    }

    fn of_design(name: &'a str, rest: &'a [String]) -> Self {
        match rest {
            _ if name.is_empty() => Self::Nothing,
            [] => Self::Design(name),
            [first, view] if first == "_view" => Self::View(name, view),
            [first, ..] if first == "_view" => Self::Nothing,
            [first, ..] if first.starts_with('_') => Self::Handler(name, first),
            _ => Self::Attachment,
        }
    }
}

/// Where a path belongs that has `_design%2F` in place of `_design/`.
pub(crate) fn redirected(uri: &Uri) -> Option<String> {
    const ESCAPED: &str = "_design%2f";
    let mut segments = uri.path().split('/').filter(|segment| !segment.is_empty());
    let (bucket, second) = (segments.next()?, segments.next()?);
    let (escaped, name) = second.split_at_checked(ESCAPED.len())?;
    if !escaped.eq_ignore_ascii_case(ESCAPED) {
        return None;
    }
    let mut location = format!("/{bucket}/{DESIGN}{name}");
    for segment in segments {
        location.push('/');
        location.push_str(segment);
    }
    if let Some(query) = uri.query() {
        location.push('?');
        location.push_str(query);
    }
    Some(location)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_named_alone_with_its_uuid_or_as_a_vbucket() {
        let database = |segment| {
            let Database { bucket, uuid, is_vbucket } = Database::of(segment);
            (bucket, uuid, is_vbucket)
        };
        assert_eq!(database("b"), ("b", None, false));
        assert_eq!(database("b+0123"), ("b", Some("0123"), false));
        assert_eq!(database("b/17"), ("b", None, true));
        assert_eq!(database("b/master;0123"), ("b", Some("0123"), true));
        assert_eq!(database("b+"), ("b", Some(""), false));
        assert_eq!(database(""), ("", None, false));
    }

    fn target(path: &[&str]) -> String {
        let path: Vec<String> = path.iter().map(|segment| (*segment).to_owned()).collect();
        format!("{:?}", Target::of(&path))
    }

    #[test]
    fn design_documents_are_told_from_what_is_below_them() {
        for (path, meant) in [
            (&["_design", "x"][..], "Design(\"x\")"),
            (&["_design", "a/b"], "Design(\"a/b\")"),
            (&["_design/x"], "Design(\"x\")"),
            (&["_design", "x", "_view", "y"], "View(\"x\", \"y\")"),
            (&["_design/a/b", "_view", "y/z"], "View(\"a/b\", \"y/z\")"),
            (&["_design", "x", "_view"], "Nothing"),
            (&["_design", "x", "_view", "y", "z"], "Nothing"),
            (&["_design", "x", "_spatial", "y"], "Handler(\"x\", \"_spatial\")"),
            (&["_design", "x", "_info"], "Handler(\"x\", \"_info\")"),
            (&["_design", "x", "picture"], "Attachment"),
            (&["_all_docs"], "AllDocuments"),
            (&["_try"], "Trial"),
            (&["_try", "x"], "Nothing"),
            (&["_all_docs", "x"], "Nothing"),
            (&["_design"], "Nothing"),
            (&["_design/"], "Nothing"),
            (&["_local", "x"], "Nothing"),
            (&["document"], "Nothing"),
            (&[], "Nothing"),
        ] {
            assert_eq!(target(path), meant, "{path:?}");
        }
    }

    #[test]
    fn an_escaped_slash_behind_design_is_written_out() {
        for (uri, location) in [
            ("/b/_design%2Fx", Some("/b/_design/x")),
            ("/b/_design%2fx%2Fy/_view/z?limit=1", Some("/b/_design/x%2Fy/_view/z?limit=1")),
            ("//b%2B1//_design%2Fx", Some("/b%2B1/_design/x")),
            ("/b/_design/x", None),
            ("/b/_design", None),
            ("/b/_desig%2Fxyz", None),
            ("/b", None),
        ] {
            let found = redirected(&uri.parse().expect("a path"));
            assert_eq!(found.as_deref(), location, "{uri}");
        }
    }
}
