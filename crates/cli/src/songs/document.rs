//! Renders one record as a line of JSON, laid out as the published files are. `", "` and `": "` stand between
//! elements. Similarity is a number, tag weight a string. Both lists are descending and may be empty.

use super::rng::{Part, Rng, mix};
use super::tags::HEAD;
use super::words::{FAMILIAR_TAGS, TITLE_SUFFIXES, WORDS};
use super::{FULL_SET, KEY_BYTES, Songs};

/// Share of the records that list similar tracks (584,897 of 943,347).
const SIMILARS_SHARE: f64 = 584_897.0 / 943_347.0;
/// Entries of one list at most.
const SIMILARS_MAX: u64 = 250;
/// Entries are `1 + 250·u^a` of a uniform u; this exponent gives the published mean of 96.61.
const SIMILARS_EXPONENT: f64 = 1.602;
/// Artists of the published set.
const ARTISTS: u64 = 44_745;
const HEX: &[u8; 16] = b"0123456789ABCDEF";

/// The track id of record `i`: `TR`, five letters, `128F`, seven hexadecimal digits. The digits are a
/// bijection of the low 28 bits of `i`, so ids are unique below `COUNT_MAX`.
pub(super) fn track_id(seed: u64, i: u64) -> [u8; KEY_BYTES] {
    const MASK: u64 = (1 << 28) - 1;
    let salt = mix(seed.wrapping_add((Part::Key as u64) << 56));
    // Two rounds of xor, odd multiplication and xor-shift: each is invertible modulo 2^28.
    let mut digits = (i ^ salt) & MASK;
    digits = digits.wrapping_mul(0x0ad9_0a6b) & MASK;
    digits ^= digits >> 13;
    digits = digits.wrapping_mul(0x0c2b_2ae3) & MASK;
    digits ^= digits >> 15;
    let mut letters = mix(salt ^ i);
    let mut id = *b"TRAAAAA128F0000000";
    for letter in &mut id[2..7] {
        // Five times the top of a 64 × 26 product: base-26 digits of the hash taken as a fraction.
        let product = u128::from(letters) * 26;
        *letter += (product >> 64) as u8;
        letters = product as u64;
    }
    for digit in id[11..].iter_mut().rev() {
        *digit = HEX[(digits & 15) as usize];
        digits >>= 4;
    }
    id
}

pub(super) fn render(songs: &Songs, i: u64, out: &mut Vec<u8>) {
    out.reserve(512);
    let mut rng = Rng::new(songs.seed, i, Part::Text);
    out.extend_from_slice(b"{\"artist\": \"");
    artist(&mut rng, out);
    out.extend_from_slice(b"\", \"timestamp\": \"");
    timestamp(&mut rng, out);
    out.extend_from_slice(b"\", \"similars\": [");
    similars(songs.seed, i, out);
    out.extend_from_slice(b"], \"tags\": [");
    tags(songs, i, out);
    out.extend_from_slice(b"], \"track_id\": \"");
    out.extend_from_slice(&track_id(songs.seed, i));
    out.extend_from_slice(b"\", \"title\": \"");
    title(&mut rng, out);
    out.extend_from_slice(b"\"}");
}

/// Two words name an artist; squaring the draw gives a few artists many tracks.
fn artist(rng: &mut Rng, out: &mut Vec<u8>) {
    let uniform = rng.unit();
    let artist = (uniform * uniform * ARTISTS as f64) as usize;
    let style = mix(artist as u64);
    if style.is_multiple_of(5) {
        out.extend_from_slice(b"The ");
    }
    out.extend_from_slice(WORDS[artist % WORDS.len()].as_bytes());
    out.extend_from_slice(if style.is_multiple_of(7) { b" & " } else { b" " });
    out.extend_from_slice(WORDS[artist / WORDS.len() % WORDS.len()].as_bytes());
}

/// One to five words; some with an addition such as `(Live)`, which may hold an escaped quotation mark.
fn title(rng: &mut Rng, out: &mut Vec<u8>) {
    let word_count = 1 + rng.below(5);
    for word in 0..word_count {
        if word > 0 {
            out.push(b' ');
        }
        out.extend_from_slice(WORDS[rng.below(WORDS.len() as u64) as usize].as_bytes());
    }
    if rng.below(4) == 0 {
        out.extend_from_slice(TITLE_SUFFIXES[rng.below(TITLE_SUFFIXES.len() as u64) as usize].as_bytes());
    }
}

/// A moment of August or September 2011, to the microsecond.
fn timestamp(rng: &mut Rng, out: &mut Vec<u8>) {
    let micros = rng.below(61 * 86_400 * 1_000_000);
    let (seconds, micros) = (micros / 1_000_000, micros % 1_000_000);
    let day = seconds / 86_400;
    let (month, day) = if day < 31 { (8, day + 1) } else { (9, day - 30) };
    out.extend_from_slice(b"2011-0");
    out.push(b'0' + month);
    for (separator, number) in
        [(b'-', day), (b' ', seconds / 3600 % 24), (b':', seconds / 60 % 60), (b':', seconds % 60)]
    {
        out.push(separator);
        decimal(out, number as u32, 2);
    }
    out.push(b'.');
    decimal(out, micros as u32, 6);
}

/// Similar tracks: real ids of the full set, distinct, never the track itself. An arithmetic progression
/// that starts behind `i` and ends before it comes round again has both properties without a look-up.
fn similars(seed: u64, i: u64, out: &mut Vec<u8>) {
    let mut rng = Rng::new(seed, i, Part::Similars);
    if rng.unit() >= SIMILARS_SHARE {
        return;
    }
    let count = 1 + (SIMILARS_MAX as f64 * rng.unit().powf(SIMILARS_EXPONENT)) as u64;
    let step = 1 + rng.below(FULL_SET / SIMILARS_MAX - 1);
    let span = step * (count - 1);
    let mut other = (i + 1 + rng.below(FULL_SET - 1 - span)) % FULL_SET;
    // Similarity in millionths, falling by random amounts that use up at most nine tenths of the start.
    let mut similarity = 200_000 + rng.below(800_001) as u32;
    let fall = u64::from(similarity) * 9 / 5 / count;
    for entry in 0..count {
        let mut text = *b"[\"..................\", 0.......], ";
        text[2..20].copy_from_slice(&track_id(seed, other));
        text[23] += (similarity / 1_000_000) as u8;
        digits(&mut text[25..31], similarity % 1_000_000);
        let end = if entry + 1 == count { text.len() - 2 } else { text.len() };
        out.extend_from_slice(&text[..end]);
        other = (other + step) % FULL_SET;
        similarity -= (rng.below(fall.max(1)) / 2) as u32;
    }
}

/// Tags with weights that start at 100 and decay.
fn tags(songs: &Songs, i: u64, out: &mut Vec<u8>) {
    let mut tags = Vec::with_capacity(super::tags::TAGS_MAX);
    let mut rng = songs.tags.draw(songs.seed, i, &mut tags);
    let mut weight = 100;
    for (position, &tag) in tags.iter().enumerate() {
        out.extend_from_slice(if position == 0 { b"[\"" } else { b", [\"" });
        tag_name(songs, tag as usize, out);
        out.extend_from_slice(b"\", \"");
        let width = if weight >= 100 { 3 } else { 1 + usize::from(weight >= 10) };
        decimal(out, weight, width);
        out.extend_from_slice(b"\"]");
        weight = weight * (140 + rng.below(112) as u32) / 256;
    }
}

/// The head as published, then familiar names, then one to three words that spell the tag's number. Distinct
/// numbers give distinct names, because no word holds a space and the familiar names avoid the words.
pub(super) fn tag_name(songs: &Songs, tag: usize, out: &mut Vec<u8>) {
    if let Some((name, _)) = HEAD.get(tag) {
        out.extend_from_slice(name.as_bytes());
        return;
    }
    if let Some(name) = FAMILIAR_TAGS.get(tag - HEAD.len()) {
        out.extend_from_slice(name.as_bytes());
        return;
    }
    let mut number = tag - HEAD.len() - FAMILIAR_TAGS.len();
    loop {
        out.extend_from_slice(songs.words_lower[number % WORDS.len()].as_bytes());
        number /= WORDS.len();
        if number == 0 {
            return;
        }
        number -= 1;
        out.push(b' ');
    }
}

fn decimal(out: &mut Vec<u8>, number: u32, width: usize) {
    let start = out.len();
    out.resize(start + width, b'0');
    digits(&mut out[start..], number);
}

fn digits(field: &mut [u8], mut number: u32) {
    for digit in field.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}
