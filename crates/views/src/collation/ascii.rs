//! Sort keys of texts of printable ASCII, in a fifth of the time that the collator takes.
//!
//! Such a text has one collation element for each character, none of which depends on its neighbours. So its sort key follows from the
//! sort keys of single characters, which are asked of the collator once. The rules for putting them together are ICU's:
//!
//! - ICU leaves out some first bytes of primary weights where they come again. Of weights with such a first byte that follow one
//!   another, only the first has it. A byte behind them says whether what follows is less or greater.
//! - Secondary and tertiary weights that are the usual ones are counted.
//!
//! Where the collator's keys are not of that form, nothing is known here, and the collator is asked for each text.

use std::sync::OnceLock;

use super::collator;

const SEPARATOR: u8 = 0x01;
/// Behind primary weights whose first byte was left out: what follows is less, or greater.
const LESS: u8 = 0x03;
const GREATER: u8 = 0xff;
/// The usual weight of the lower levels.
const COMMON: u8 = 0x05;
/// So many usual secondary weights are one byte, which is this one.
const SECONDARY_RUN: usize = 0x21;
const SECONDARY_MIDDLE: u8 = COMMON + 0x20;
/// The same of tertiary weights, and the byte that counts down those before a greater weight.
const TERTIARY_RUN: usize = 0x61;
const TERTIARY_MIDDLE: u8 = COMMON + 0x60;
const TERTIARY_HIGH: u8 = COMMON + 0xc0;

const FIRST: u8 = b' ';
const LAST: u8 = b'~';
const CHARACTERS: usize = (LAST - FIRST) as usize + 1;

/// What a character adds to a sort key.
#[derive(Clone, Copy, Debug, Default)]
struct Weights {
    primary: [u8; 3],
    primary_bytes: u8,
    /// The first byte of the primary weight is left out where it is that of the character before.
    is_compressible: bool,
    /// The tertiary weight, where it is not the usual one.
    tertiary: u8,
}

type Table = [Weights; CHARACTERS];

/// Appends the sort key of a text of printable ASCII. Says whether it is one, and whether its sort key is known here.
pub(super) fn sort_key(text: &str, out: &mut Vec<u8>) -> bool {
    static TABLE: OnceLock<Option<Table>> = OnceLock::new();
    let bytes = text.as_bytes();
    if bytes.is_empty() || !bytes.iter().all(|byte| (FIRST..=LAST).contains(byte)) {
        return false;
    }
    let Some(table) = TABLE.get_or_init(table) else { return false };
    out.reserve(bytes.len() * 2 + 8);
    primaries(table, bytes, out);
    out.push(SEPARATOR);
    let rest = long_runs(bytes.len() - 1, SECONDARY_RUN, SECONDARY_MIDDLE, out);
    out.push(COMMON + rest);
    out.push(SEPARATOR);
    tertiaries(table, bytes, out);
    true
}

fn weights(table: &Table, byte: u8) -> Weights {
    table.get(usize::from(byte.wrapping_sub(FIRST))).copied().unwrap_or_default()
}

fn primaries(table: &Table, bytes: &[u8], out: &mut Vec<u8>) {
    // The first byte that is left out where it comes again.
    let mut before = None;
    for byte in bytes {
        let Weights { primary: [first, second, third], primary_bytes, is_compressible, .. } =
            weights(table, *byte);
        if before != Some(first) {
            if let Some(before) = before {
                out.push(if first < before { LESS } else { GREATER });
            }
            out.push(first);
            before = is_compressible.then_some(first);
        }
        if primary_bytes > 1 {
            out.push(second);
        }
        if primary_bytes > 2 {
            out.push(third);
        }
    }
}

fn tertiaries(table: &Table, bytes: &[u8], out: &mut Vec<u8>) {
    let mut common = 0;
    for byte in bytes {
        let Weights { tertiary, .. } = weights(table, *byte);
        if tertiary == 0 {
            common += 1;
            continue;
        }
        if common > 0 {
            let rest = long_runs(common - 1, TERTIARY_RUN, TERTIARY_MIDDLE, out);
            out.push(TERTIARY_HIGH - rest);
            common = 0;
        }
        out.push(tertiary);
    }
    if common > 0 {
        let rest = long_runs(common - 1, TERTIARY_RUN, TERTIARY_MIDDLE, out);
        out.push(COMMON + rest);
    }
}

/// Writes as many bytes as there are whole runs; tells what is left.
fn long_runs(mut count: usize, run: usize, middle: u8, out: &mut Vec<u8>) -> u8 {
    while count >= run {
        out.push(middle);
        count -= run;
    }
    u8::try_from(count).unwrap_or(0)
}

/// The weights of all characters, as far as the collator's keys have the form that is known here.
fn table() -> Option<Table> {
    let mut table = [Weights::default(); CHARACTERS];
    for (byte, weights) in (FIRST..=LAST).zip(&mut table) {
        *weights = weights_of(byte)?;
    }
    Some(table)
}

fn weights_of(byte: u8) -> Option<Weights> {
    let [once, twice] = [1, 2].map(|count| {
        let mut key = Vec::new();
        let Ok(()) = collator().write_sort_key_to(&char::from(byte).to_string().repeat(count), &mut key);
        key
    });
    let mut levels = once.split(|byte| *byte == SEPARATOR);
    let (primary, secondary, tertiary) = (levels.next()?, levels.next()?, levels.next()?);
    if levels.next().is_some() || secondary != [COMMON] || !(1..=3).contains(&primary.len()) {
        return None;
    }
    let [tertiary] = tertiary else { return None };
    let doubled = twice.split(|byte| *byte == SEPARATOR).next()?;
    let is_compressible = doubled.len() != 2 * primary.len();
    let mut weights = Weights { is_compressible, ..Weights::default() };
    weights.primary.get_mut(..primary.len())?.copy_from_slice(primary);
    weights.primary_bytes = u8::try_from(primary.len()).ok()?;
    weights.tertiary = if *tertiary == COMMON { 0 } else { *tertiary };
    // One of these would be taken for what ends a level, or counts the usual weights.
    (weights.tertiary == 0 || weights.tertiary > TERTIARY_HIGH).then_some(weights)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) {
        let (mut fast, mut slow) = (vec![7], vec![7]);
        let is_known = sort_key(text, &mut fast);
        let Ok(()) = collator().write_sort_key_to(text, &mut slow);
        assert!(is_known, "{text:?}");
        assert_eq!(fast, slow, "{text:?}");
    }

    #[test]
    fn sort_keys_are_those_of_the_collator() {
        let all: Vec<char> = (FIRST..=LAST).map(char::from).collect();
        for first in &all {
            for second in &all {
                check(&format!("{first}{second}"));
                check(&format!("a{first}{second}Z"));
            }
        }
        // Runs of the usual weights are counted, up to some length.
        for count in 1..300 {
            for unit in ["a", "A", "1", "aB", "-z"] {
                check(&unit.repeat(count));
                check(&format!("{}{}", unit.repeat(count), "Q"));
            }
        }
        let mut random = fastrand::Rng::with_seed(8);
        for _ in 0..20_000 {
            let text: String = (0..random.usize(1..60)).map(|_| all[random.usize(..all.len())]).collect();
            check(&text);
        }
    }

    #[test]
    fn other_texts_are_left_to_the_collator() {
        for text in ["", "a\tb", "\u{7f}", "é", "a\u{301}", "\0", "aé"] {
            let mut out = vec![1];
            assert!(!sort_key(text, &mut out), "{text:?}");
            assert_eq!(out, [1]);
        }
    }
}
