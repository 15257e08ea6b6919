//! What documents contain. Every kind but templates carries a version from which the whole value follows, so that it
//! is recognised when it comes back.

use crate::keys::KeyForm;
use crate::records::{JSON_FLAGS, Records, mix};
use std::io::Write;
use std::str::FromStr;

/// The length of the bytes that values are cut from. It exceeds the window of any compressor that looks at one value or block. It is
/// short enough to stay in the second-level cache of the measuring core.
const POOL_BYTES: usize = 1 << 20;
/// A binary value begins with its version in bytes, a readable one with the hexadecimal digits.
const BINARY_VERSION: usize = 8;
const TEXT_VERSION: usize = 16;
/// Largest value any of this makes: Couchbase's limit.
const VALUE_BYTES_MAX: usize = base::limits::VALUE_BYTES_MAX;

/// How large values are.
#[derive(Clone, Debug, PartialEq)]
pub struct Sizes {
    /// Cumulative weight, smallest and largest size; uniform within.
    bands: Vec<(f64, usize, usize)>,
}

impl Sizes {
    /// Uniform between the two, which may be equal.
    ///
    /// # Errors
    /// Out of order or too large.
    pub fn uniform(min: usize, max: usize) -> Result<Sizes, String> {
        Sizes::bands(&[(1.0, min, max)])
    }

    /// A histogram of sizes: weight, smallest and largest of each band.
    ///
    /// # Errors
    /// Out of order, too large, or without weight.
    pub fn bands(bands: &[(f64, usize, usize)]) -> Result<Sizes, String> {
        let total: f64 = bands.iter().map(|band| band.0).sum();
        if !(total.is_finite() && total > 0.0) || bands.iter().any(|band| band.0 < 0.0) {
            return Err("sizes need positive weights".to_owned());
        }
        if bands.iter().any(|&(_, min, max)| min > max || max > VALUE_BYTES_MAX) {
            return Err(format!("sizes go from small to large and up to {VALUE_BYTES_MAX} bytes"));
        }
        let mut sum = 0.0;
        let cumulative = bands.iter().map(|&(weight, min, max)| {
            sum += weight / total;
            (sum, min, max)
        });
        Ok(Sizes { bands: cumulative.collect() })
    }

    /// The largest.
    #[must_use]
    pub fn max(&self) -> usize {
        self.bands.iter().map(|band| band.2).max().unwrap_or(0)
    }

    fn contains(&self, size: usize) -> bool {
        self.bands.iter().any(|&(_, min, max)| (min..=max).contains(&size))
    }

    /// The size that this version of this record has.
    pub(crate) fn of(&self, index: u64, version: u64) -> usize {
        let draw = mix(index ^ version);
        let band = match &self.bands[..] {
            [only] => only,
            bands => {
                let point = mix(draw) as f64 / u64::MAX as f64;
                bands.iter().find(|band| point <= band.0).unwrap_or(&bands[bands.len() - 1])
            }
        };
        let &(_, min, max) = band;
        min + ((u128::from(draw) * (max - min + 1) as u128) >> 64) as usize
    }
}

impl FromStr for Sizes {
    type Err = String;

    /// `100`, `50-1500`, or bands with weights: `100:50,1000-2000:30`.
    fn from_str(text: &str) -> Result<Sizes, String> {
        let mut bands = Vec::new();
        for band in text.split(',') {
            let (sizes, weight) = band.split_once(':').unwrap_or((band, "1"));
            let (min, max) = sizes.split_once('-').unwrap_or((sizes, sizes));
            let number = |part: &str| {
                part.trim().parse::<usize>().map_err(|_| format!("{part:?} is no number of bytes"))
            };
            let weight = weight.trim().parse().map_err(|_| format!("{weight:?} is no weight"))?;
            bands.push((weight, number(min)?, number(max)?));
        }
        Sizes::bands(&bands)
    }
}

/// What values are made of.
#[derive(Clone, Debug, PartialEq)]
pub enum ValueKind {
    /// Random bytes.
    Random(Sizes),
    /// Random printable ASCII.
    Ascii(Sizes),
    /// Random words.
    Text(Sizes),
    /// A JSON object of about the size: `version`, a `body` of printable characters, and at the end `field`, which
    /// sub-document writes change.
    Json(Sizes),
    /// YCSB's record as a JSON object: so many fields of so many printable characters.
    Fields {
        /// How many.
        count: usize,
        /// Characters of each, whose lengths do not depend on one another.
        lengths: Sizes,
    },
    /// A template; [`Template`] says what may stand in it.
    Template(Template),
}

/// Keys and values by rules: what `settee load` stores unless it is told otherwise.
pub struct Dataset {
    prefix: Vec<u8>,
    keys: KeyForm,
    kind: ValueKind,
    pool: Vec<u8>,
}

impl Dataset {
    /// Keys are `prefix` and what `keys` says.
    #[must_use]
    pub fn new(prefix: &str, keys: KeyForm, kind: ValueKind) -> Dataset {
        let longest = match &kind {
            ValueKind::Random(sizes)
            | ValueKind::Ascii(sizes)
            | ValueKind::Text(sizes)
            | ValueKind::Json(sizes) => sizes.max(),
            ValueKind::Fields { lengths, .. } => lengths.max(),
            ValueKind::Template(_) => 1024,
        };
        let mut rng = fastrand::Rng::with_seed(0x5e77_ee00);
        let mut pool = vec![0; POOL_BYTES + longest];
        match &kind {
            ValueKind::Random(_) => rng.fill(&mut pool),
            ValueKind::Text(_) | ValueKind::Template(_) => fill_words(&mut rng, &mut pool),
            // Without quote and backslash, which JSON would have to escape.
            ValueKind::Ascii(_) | ValueKind::Json(_) | ValueKind::Fields { .. } => {
                pool.fill_with(|| match rng.u8(b' '..=b'~') {
                    b'"' | b'\\' => b'_',
                    other => other,
                });
            }
        }
        Dataset { prefix: prefix.as_bytes().to_vec(), keys, kind, pool }
    }

    /// What follows the version.
    fn body(&self, index: u64, version: u64, bytes: usize) -> &[u8] {
        let at = (mix(version.wrapping_add(index)) % POOL_BYTES as u64) as usize;
        &self.pool[at..at + bytes]
    }

    fn binary(&self, sizes: &Sizes, index: u64, version: u64, out: &mut Vec<u8>) {
        let size = sizes.of(index, version);
        out.extend_from_slice(&version.to_le_bytes()[..size.min(BINARY_VERSION)]);
        if size > BINARY_VERSION {
            out.extend_from_slice(self.body(index, version, size - BINARY_VERSION));
        }
    }

    fn text(&self, sizes: &Sizes, index: u64, version: u64, out: &mut Vec<u8>) {
        let size = sizes.of(index, version);
        let start = out.len();
        let _ = write!(out, "{version:016x}");
        out.truncate(start + size.min(TEXT_VERSION));
        if size > TEXT_VERSION {
            out.extend_from_slice(self.body(index, version, size - TEXT_VERSION));
        }
    }

    fn json(&self, sizes: &Sizes, index: u64, version: u64, out: &mut Vec<u8>) {
        let frame = JSON_HEAD.len() + TEXT_VERSION + JSON_BODY.len() + JSON_TAIL.len();
        let body = sizes.of(index, version).saturating_sub(frame);
        out.extend_from_slice(JSON_HEAD);
        let _ = write!(out, "{version:016x}");
        out.extend_from_slice(JSON_BODY);
        out.extend_from_slice(self.body(index, version, body));
        out.extend_from_slice(JSON_TAIL);
    }

    fn fields(&self, count: usize, lengths: &Sizes, index: u64, version: u64, out: &mut Vec<u8>) {
        let _ = write!(out, "{{\"version\":\"{version:016x}\"");
        for field in 0..count as u64 {
            let _ = write!(out, ",\"field{field}\":\"");
            let own = index ^ mix(field);
            out.extend_from_slice(self.body(own, version, lengths.of(own, version)));
            out.push(b'"');
        }
        out.push(b'}');
    }
}

const JSON_HEAD: &[u8] = b"{\"version\":\"";
const JSON_BODY: &[u8] = b"\",\"body\":\"";
const JSON_TAIL: &[u8] = b"\",\"field\":\"0000000000000000\"}";
/// What sub-document writes may have changed begins here.
const JSON_FIELD: &[u8] = b"\",\"field\":\"";
/// In front of the version's digits, in JSON objects.
const VERSION_AT: usize = JSON_HEAD.len();

impl Records for Dataset {
    fn key(&self, index: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.prefix);
        self.keys.append(index, out);
    }

    fn value(&self, index: u64, version: u64, out: &mut Vec<u8>) {
        match &self.kind {
            ValueKind::Random(sizes) => self.binary(sizes, index, version, out),
            ValueKind::Ascii(sizes) | ValueKind::Text(sizes) => self.text(sizes, index, version, out),
            ValueKind::Json(sizes) => self.json(sizes, index, version, out),
            ValueKind::Fields { count, lengths } => self.fields(*count, lengths, index, version, out),
            ValueKind::Template(template) => template.render(index, version, &self.pool, self, out),
        }
    }

    fn is_value(&self, index: u64, value: &[u8], scratch: &mut Vec<u8>) -> bool {
        match &self.kind {
            ValueKind::Random(sizes) => {
                let Some((head, body)) = value.split_first_chunk::<BINARY_VERSION>() else {
                    // Too short to carry a version: only the size can be told.
                    return sizes.contains(value.len());
                };
                let version = u64::from_le_bytes(*head);
                sizes.of(index, version) == value.len() && body == self.body(index, version, body.len())
            }
            ValueKind::Ascii(sizes) | ValueKind::Text(sizes) => match version_at(value, 0) {
                None => value.len() < TEXT_VERSION && sizes.contains(value.len()),
                Some(version) => self.is_rendered(index, version, value, scratch),
            },
            ValueKind::Json(_) => {
                let Some(version) = version_at(value, VERSION_AT) else { return false };
                scratch.clear();
                self.value(index, version, scratch);
                let fixed = scratch.len() - JSON_TAIL.len() + JSON_FIELD.len();
                value.len() > fixed && value[..fixed] == scratch[..fixed] && value.ends_with(b"\"}")
            }
            ValueKind::Fields { .. } => version_at(value, VERSION_AT)
                .is_some_and(|version| self.is_rendered(index, version, value, scratch)),
            // Its author decides what is in it; there is nothing to know a version by.
            ValueKind::Template(_) => true,
        }
    }

    fn flags(&self) -> u32 {
        match self.kind {
            ValueKind::Json(_) | ValueKind::Fields { .. } | ValueKind::Template(_) => JSON_FLAGS,
            ValueKind::Random(_) | ValueKind::Ascii(_) | ValueKind::Text(_) => 0,
        }
    }
}

impl Dataset {
    fn is_rendered(&self, index: u64, version: u64, value: &[u8], scratch: &mut Vec<u8>) -> bool {
        scratch.clear();
        self.value(index, version, scratch);
        scratch == value
    }
}

/// The 16 hexadecimal digits at `at`.
fn version_at(value: &[u8], at: usize) -> Option<u64> {
    let digits = std::str::from_utf8(value.get(at..at + TEXT_VERSION)?).ok()?;
    u64::from_str_radix(digits, 16).ok()
}

/// Common letters are more common, so that text compresses about as text does.
const LETTERS: &[u8] = b"eeeeeetttaaaoooiiinnnsshhrrddlluccmwfgypbvk";

/// Words of random letters, without anything that JSON would have to escape.
fn fill_words(rng: &mut fastrand::Rng, pool: &mut [u8]) {
    let mut left = 0;
    for byte in pool {
        if left == 0 {
            left = rng.usize(2..11);
            *byte = b' ';
        } else {
            left -= 1;
            *byte = LETTERS[rng.usize(..LETTERS.len())];
        }
    }
}

/// A value with holes. `{{key}}`, `{{index}}`, `{{version}}`, `{{text:N}}` (N characters of words), `{{hex:N}}` and
/// `{{int:A-B}}` are filled in, each drawn from record and version.
#[derive(Clone, Debug, PartialEq)]
pub struct Template(Vec<Piece>);

#[derive(Clone, Debug, PartialEq)]
enum Piece {
    Literal(Vec<u8>),
    Key,
    Index,
    Version,
    Text(usize),
    Hex(usize),
    Int(u64, u64),
}

/// Longest text or number of digits that one hole makes.
const HOLE_BYTES_MAX: usize = 1 << 16;

impl FromStr for Template {
    type Err = String;

    fn from_str(text: &str) -> Result<Template, String> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((literal, hole)) = rest.split_once("{{") {
            let (hole, tail) = hole.split_once("}}").ok_or("a {{ without }}")?;
            pieces.push(Piece::Literal(literal.as_bytes().to_vec()));
            pieces.push(Piece::parse(hole.trim()).ok_or_else(|| {
                format!("{{{{{hole}}}}} is none of key, index, version, text:N, hex:N, int:A-B")
            })?);
            rest = tail;
        }
        pieces.push(Piece::Literal(rest.as_bytes().to_vec()));
        Ok(Template(pieces))
    }
}

impl Piece {
    fn parse(hole: &str) -> Option<Piece> {
        let (name, argument) = hole.split_once(':').unwrap_or((hole, ""));
        let length = || argument.parse().ok().filter(|&bytes| bytes <= HOLE_BYTES_MAX);
        Some(match name {
            "key" => Piece::Key,
            "index" => Piece::Index,
            "version" => Piece::Version,
            "text" => Piece::Text(length()?),
            "hex" => Piece::Hex(length()?),
            "int" => {
                let (low, high) = argument.split_once('-')?;
                let (low, high) = (low.parse().ok()?, high.parse().ok()?);
                (low <= high).then_some(Piece::Int(low, high))?
            }
            _ => return None,
        })
    }
}

impl Template {
    fn render(&self, index: u64, version: u64, pool: &[u8], records: &Dataset, out: &mut Vec<u8>) {
        for (place, piece) in self.0.iter().enumerate() {
            let draw = mix(mix(index ^ version).wrapping_add(place as u64));
            // Writing to a Vec cannot fail.
            let _ = match piece {
                Piece::Literal(text) => out.write_all(text),
                Piece::Key => {
                    records.key(index, out);
                    Ok(())
                }
                Piece::Index => write!(out, "{index}"),
                Piece::Version => write!(out, "{version:016x}"),
                Piece::Text(bytes) => {
                    let at = (draw % (pool.len().saturating_sub(*bytes).max(1)) as u64) as usize;
                    out.write_all(pool.get(at..at + bytes).unwrap_or_default())
                }
                Piece::Hex(digits) => {
                    (0..*digits as u64).try_for_each(|i| write!(out, "{:x}", mix(draw.wrapping_add(i)) & 15))
                }
                Piece::Int(low, high) => {
                    write!(out, "{}", low + ((u128::from(draw) * u128::from(high - low + 1)) >> 64) as u64)
                }
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dataset(kind: ValueKind) -> Dataset {
        Dataset::new("", KeyForm::Hex(16), kind)
    }

    #[test]
    fn a_value_is_recognised_and_nothing_else_is() {
        let sizes: Sizes = "0-3000".parse().expect("sizes");
        let kinds =
            [ValueKind::Random(sizes.clone()), ValueKind::Ascii(sizes.clone()), ValueKind::Text(sizes)];
        for kind in kinds {
            let records = dataset(kind);
            let mut scratch = Vec::new();
            let mut sizes = 0;
            for version in 0..2_000u64 {
                let mut value = Vec::new();
                records.value(7, version, &mut value);
                sizes += value.len();
                assert!(records.is_value(7, &value, &mut scratch));
                if value.len() > 64 {
                    assert!(!records.is_value(8, &value, &mut scratch), "another record's");
                    assert!(!records.is_value(7, &value[..value.len() - 1], &mut scratch), "cut");
                    let last = value.len() - 1;
                    value[last] ^= 1;
                    assert!(!records.is_value(7, &value, &mut scratch), "damaged");
                }
            }
            assert!((1_400..1_600).contains(&(sizes / 2_000)), "mean size {}", sizes / 2_000);
        }
    }

    #[test]
    fn json_is_json_and_its_field_may_change() {
        let mut scratch = Vec::new();
        let fields = ["100", "1-100"]
            .map(|sizes| ValueKind::Fields { count: 10, lengths: sizes.parse().expect("sizes") });
        for kind in [ValueKind::Json("500-900".parse().expect("sizes"))].into_iter().chain(fields) {
            let records = dataset(kind.clone());
            for version in 0..100 {
                let mut value = Vec::new();
                records.value(3, version, &mut value);
                serde_json::from_slice::<serde_json::Value>(&value).expect("JSON");
                assert!(records.is_value(3, &value, &mut scratch));
                assert!(!records.is_value(4, &value, &mut scratch));
                if let ValueKind::Json(_) = kind {
                    assert!((500..=900).contains(&value.len()));
                    let changed =
                        String::from_utf8(value).expect("text").replace("0000000000000000\"}", "17\"}");
                    assert!(records.is_value(3, changed.as_bytes(), &mut scratch));
                }
            }
        }
    }

    #[test]
    fn bands_have_their_shares() {
        let sizes: Sizes = "10:3,1000-2000:1".parse().expect("sizes");
        let small = (0..40_000).filter(|&index| sizes.of(index, 1) == 10).count();
        assert!((29_400..30_600).contains(&small), "{small}");
        assert!((0..1000).all(|index| sizes.contains(sizes.of(index, 2))));
        for text in ["", "x", "5-1", "10:0", "10:-1", "99999999999"] {
            assert!(text.parse::<Sizes>().is_err(), "{text}");
        }
    }

    #[test]
    fn templates_are_filled_in() {
        let template =
            r#"{"id":"{{key}}","n":{{int:5-9}},"h":"{{hex:8}}","t":"{{text:40}}","i":{{ index }}}"#;
        let records = dataset(ValueKind::Template(template.parse().expect("a template")));
        let mut value = Vec::new();
        records.value(12, 1, &mut value);
        let json: serde_json::Value = serde_json::from_slice(&value).expect("JSON");
        assert!((5..=9).contains(&json["n"].as_u64().expect("a number")));
        assert_eq!((json["i"].as_u64(), json["t"].as_str().map(str::len)), (Some(12), Some(40)));
        assert!("{{key".parse::<Template>().is_err() && "{{name}}".parse::<Template>().is_err());
    }
}
