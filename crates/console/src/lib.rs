//! The files of the web console, which REST serves below `/ui/`.
//!
//! The sources are in `crates/console/web`, and `crates/console/web/build` makes the files from them. A build of Settee embeds what was
//! made before. Where nothing was made, because there is no npm, the console is one page that says so.
//!
//! Invariants: nothing here reads a file at run time. The files load nothing from another origin, and [`POLICY`] has browsers hold
//! them to that. A file whose name has its hash never changes.

/// What the console's files may load and do: scripts and styles of this origin alone, none of them inside a page.
pub const POLICY: &str = "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; frame-ancestors 'none'; form-action 'self'";

/// The page that is served while no files were built.
const NOT_BUILT: &[u8] = include_bytes!("not-built.html");

/// What was embedded.
static FILES: &[Entry] = include!(concat!(env!("OUT_DIR"), "/files.rs"));

/// One embedded file.
#[derive(Clone, Copy, Debug)]
struct Entry {
    name: &'static str,
    plain: &'static [u8],
    packed: Option<&'static [u8]>,
    tag: &'static str,
}

/// A file, as it is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct File {
    /// Its media type.
    pub media_type: &'static str,
    /// Its bytes.
    pub bytes: &'static [u8],
    /// Whether the bytes are compressed with gzip.
    pub is_gzip: bool,
    /// Which bytes they are, in quotes, as an `ETag` says it.
    pub tag: &'static str,
    /// Whether these are the bytes of that name for ever.
    pub is_immutable: bool,
}

/// Whether this build has the console.
#[must_use]
pub fn is_built() -> bool {
    has_page(FILES)
}

/// The file with that name; the page for an empty name. `takes_gzip`: the browser can inflate it.
#[must_use]
pub fn file(name: &str, takes_gzip: bool) -> Option<File> {
    file_of(FILES, name, takes_gzip)
}

fn has_page(files: &[Entry]) -> bool {
    files.iter().any(|file| file.name == "index.html")
}

fn file_of(files: &[Entry], name: &str, takes_gzip: bool) -> Option<File> {
    let name = if name.is_empty() { "index.html" } else { name };
    let (media_type, is_immutable) = (media_type(name), name != "index.html");
    if name == "index.html" && !has_page(files) {
        return Some(File {
            media_type,
            bytes: NOT_BUILT,
            is_gzip: false,
            tag: "\"not-built\"",
            is_immutable,
        });
    }
    let entry = files.iter().find(|entry| entry.name == name)?;
    let packed = entry.packed.filter(|_| takes_gzip);
    let bytes = packed.unwrap_or(entry.plain);
    Some(File { media_type, bytes, is_gzip: packed.is_some(), tag: entry.tag, is_immutable })
}

fn media_type(name: &str) -> &'static str {
    match name.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_with_files_has_its_page_and_one_without_says_so() {
        const PAGE: Entry = Entry { name: "index.html", plain: b"the page", packed: Some(b"gz"), tag: "t" };
        let of = |files: &[Entry], gzip| file_of(files, "", gzip).map(|page| (page.bytes, page.is_gzip));
        assert_eq!(of(&[PAGE], false), Some((PAGE.plain, false)));
        assert_eq!(of(&[PAGE], true), Some((&b"gz"[..], true)));
        let (told, is_gzip) = of(&[], true).expect("a page");
        let told = str::from_utf8(told).expect("text");
        assert!(!is_gzip && told.contains("has no console") && told.contains("npm"), "{told}");
        assert_eq!(file("index.html", true), file("", true));
        assert_eq!(file("../Cargo.toml", true), None);
    }

    #[test]
    fn what_is_embedded_has_its_hash_in_its_name_and_keeps_to_the_policy() {
        for entry in FILES {
            assert!(
                entry.name == "index.html" || entry.name.split(['-', '.']).count() >= 3,
                "{}",
                entry.name
            );
            assert!(entry.packed.is_none_or(|packed| packed.len() < entry.plain.len()), "{}", entry.name);
            if entry.name.ends_with(".html") {
                let text = String::from_utf8_lossy(entry.plain);
                for inline in ["<script>", "<style", "style=", "onclick=", "http://", "https://"] {
                    assert!(!text.contains(inline), "{}: {inline}", entry.name);
                }
            }
        }
    }
}
