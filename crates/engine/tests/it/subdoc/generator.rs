//! Random documents with awkward keys, paths that mostly lead somewhere in them, and values good and bad.

use fastrand::Rng;

use super::model::{Step, Tree};

const KEYS: [&str; 9] =
    ["a", "b", "long_enough_for_a_word", "dot.ted", "br[0]", "back`tick", "é", "😀", "q\"\\"];
const LEAVES: [&str; 14] = [
    "null",
    "true",
    "false",
    "0",
    "1",
    "-7",
    "9223372036854775806",
    "-9223372036854775808",
    "9223372036854775808",
    "1.5",
    "-2e3",
    "\"\"",
    "\"]}\\\"[{,:\"",
    "\"some longer text with a \\\\ in it\"",
];

/// Documents, paths and values from one seed.
pub(crate) struct Generator(pub(crate) Rng);

impl Generator {
    fn pick<'t>(&mut self, from: &[&'t str]) -> &'t str {
        from[self.0.usize(..from.len())]
    }

    fn space(&mut self) -> &'static str {
        if self.0.u8(..4) > 0 { "" } else { self.pick(&[" ", "\n", "\t\r\n  "]) }
    }

    pub(crate) fn document(&mut self) -> String {
        let mut text = String::new();
        let nested = if self.0.u8(..10) == 0 { self.0.usize(25..35) } else { 0 };
        let inside = self.value(if nested > 0 { 1 } else { 5 });
        let mut closing = String::new();
        for _ in 0..nested {
            if self.0.bool() {
                text += if self.0.bool() { "[" } else { "[0," };
                closing.insert(0, ']');
            } else {
                text += if self.0.bool() { "{\"a\":" } else { "{\"a\":1,\"b\":" };
                closing.insert(0, '}');
            }
        }
        [self.space(), &text, &inside, &closing, self.space()].concat()
    }

    fn value(&mut self, levels: usize) -> String {
        match self.0.u8(..if levels > 1 { 8 } else { 3 }) {
            0..=2 => self.pick(&LEAVES).to_owned(),
            3..=4 => {
                let elements = (0..self.0.usize(..4))
                    .map(|_| [self.space(), &self.value(levels - 1), self.space()].concat());
                ["[", &elements.collect::<Vec<_>>().join(","), self.space(), "]"].concat()
            }
            _ => {
                let mut members = Vec::new();
                for _ in 0..self.0.usize(..5) {
                    let key = self.pick(&KEYS);
                    let spelled = self.spell(key);
                    let value = self.value(levels - 1);
                    members.push(
                        [
                            self.space(),
                            "\"",
                            &spelled,
                            "\"",
                            self.space(),
                            ":",
                            self.space(),
                            &value,
                            self.space(),
                        ]
                        .concat(),
                    );
                }
                ["{", &members.join(","), self.space(), "}"].concat()
            }
        }
    }

    /// A key inside quotes. What has to be escaped is escaped in the one way that paths have for it.
    fn spell(&mut self, key: &str) -> String {
        let mut text = String::new();
        for character in key.chars() {
            match character {
                '"' | '\\' => text.extend(['\\', character]),
                _ if self.0.u8(..8) == 0 => {
                    let mut units = [0; 2];
                    for unit in character.encode_utf16(&mut units) {
                        text += &format!("\\u{unit:04x}");
                    }
                }
                _ => text.push(character),
            }
        }
        text
    }

    /// Steps that lead somewhere in `document`, mostly.
    pub(crate) fn steps(&mut self, document: &Tree) -> Vec<Step> {
        let mut steps = Vec::new();
        let mut tree = Some(document);
        while steps.len() < 40 && self.0.u8(..16) > 0 {
            let astray = self.0.u8(..24) == 0;
            let (step, below) = match tree {
                Some(Tree::Object(members)) if !members.is_empty() && !astray => {
                    let (key, value) = &members[self.0.usize(..members.len())];
                    (Step::Key(key.clone()), Some(value))
                }
                Some(Tree::Array(elements)) if !elements.is_empty() && !astray => {
                    let at = self.0.usize(..elements.len());
                    let last = at + 1 == elements.len() && self.0.bool();
                    (if last { Step::Last } else { Step::Index(at) }, Some(&elements[at]))
                }
                Some(Tree::Leaf(_)) if self.0.u8(..8) > 0 => break,
                _ => (self.step(), None),
            };
            steps.push(step);
            tree = below;
            if tree.is_none() && self.0.u8(..3) == 0 {
                break;
            }
        }
        if self.0.u8(..6) == 0 {
            steps.push(self.step());
        }
        if let (0, Some(last)) = (self.0.u8(..16), steps.last_mut()) {
            *last = self.step();
        }
        steps
    }

    fn step(&mut self) -> Step {
        match self.0.u8(..6) {
            0 => Step::Last,
            1 => Step::Index(self.0.usize(..4)),
            _ => Step::Key(self.pick(&KEYS).to_owned()),
        }
    }

    pub(crate) fn path(&mut self, steps: &[Step]) -> String {
        let mut text = String::new();
        for step in steps {
            match step {
                Step::Index(index) => text += &format!("[{index}]"),
                Step::Last => text += "[-1]",
                Step::Key(key) => {
                    if !text.is_empty() {
                        text.push('.');
                    }
                    let spelled = key.replace('\\', "\\\\").replace('"', "\\\"").replace('`', "``");
                    let quoted = key.contains(['.', '[', '`']) || self.0.u8(..4) == 0;
                    text += &if quoted { format!("`{spelled}`") } else { spelled };
                }
            }
        }
        text
    }

    pub(crate) fn input(&mut self) -> String {
        match self.0.u8(..20) {
            0 => self
                .pick(&["", " ", "nope", "1,", ",1", "[1", "1]", "1],[2", "{\"a\"}", "01", "1 2", "\"\t\""])
                .to_owned(),
            1 => [self.value(2), ",".to_owned(), self.value(2)].concat(),
            2 => {
                let depth = self.0.usize(..34);
                ["[".repeat(depth), "1".to_owned(), "]".repeat(depth)].concat()
            }
            3 => self.value(4),
            _ => [self.space(), self.pick(&LEAVES), self.space()].concat(),
        }
    }
}
