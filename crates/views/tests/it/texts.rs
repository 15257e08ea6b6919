//! Random JSON texts from a seed, with what tells collations apart.

use fastrand::Rng;

const STRINGS: &[&str] = &[
    "",
    "a",
    "A",
    "á",
    "a\u{301}",
    "aa",
    "ab",
    "b",
    "B",
    "ba",
    "z",
    "ß",
    "ss",
    "_",
    "-",
    "a-b",
    "a b",
    "1",
    "2",
    "10",
    "😀",
    "法",
    "法、",
    "\\u0000",
    "a\\u0000",
    "\\n",
    "\\\"",
    "\\u00e1",
    "\\ud83d\\ude00",
    "é",
    "e\u{301}",
    "\u{ac00}",
    "\u{1100}\u{1161}",
];
const NUMBERS: &[&str] = &[
    "0",
    "-0",
    "0.0",
    "1",
    "1.0",
    "1e0",
    "-1",
    "2",
    "10",
    "1.5",
    "-1.5",
    "9007199254740993",
    "9007199254740992",
    "1e308",
    "-1e308",
    "1e400",
    "5e-324",
    "1e-400",
    "123",
    "123e0",
    "0.1",
    "0.30000000000000004",
];

/// A JSON text of at most `levels`.
pub(crate) fn value(random: &mut Rng, levels: u32) -> String {
    match random.u32(..if levels == 0 { 6 } else { 10 }) {
        0 => "null".to_owned(),
        1 => random.bool().to_string(),
        2 | 3 => number(random),
        4 | 5 => string(random),
        6..=8 => {
            let elements: Vec<String> = (0..random.usize(..4)).map(|_| value(random, levels - 1)).collect();
            format!("[{}]", elements.join(if random.bool() { "," } else { " , " }))
        }
        _ => {
            let member = |random: &mut Rng| format!("{}:{}", string(random), value(random, levels - 1));
            let members: Vec<String> = (0..random.usize(..4)).map(|_| member(random)).collect();
            format!("{{{}}}", members.join(","))
        }
    }
}

fn number(random: &mut Rng) -> String {
    if random.bool() {
        NUMBERS[random.usize(..NUMBERS.len())].to_owned()
    } else {
        random.i32(-20..20).to_string()
    }
}

/// A JSON string.
pub(crate) fn string(random: &mut Rng) -> String {
    let parts = random.usize(..3);
    let text: String = (0..parts).map(|_| STRINGS[random.usize(..STRINGS.len())]).collect();
    format!("\"{text}\"")
}
