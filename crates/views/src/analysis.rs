//! What a map function looks at, read from its source without running it.
//!
//! Most of the time of a map function goes into parsing its document. A function that does not look at it needs none, and
//! one that only reads `doc.name` needs these members. The answer decides how much is read, never what comes out: whatever
//! is not plainly one of the known shapes gets the whole document. So everything that could reach the document in another
//! way (`eval`, `arguments`, `this`, prototypes, the document passed on) ends the analysis.

mod tokenizer;

use std::collections::BTreeSet;

use tokenizer::{Token, tokenize};

/// What map functions look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Need {
    /// Not at the document.
    Nothing,
    /// At these members of it.
    Members {
        /// Their names.
        names: BTreeSet<String>,
        /// A function also emits the document as a value.
        emitted: bool,
    },
    /// It is not clear, so it gets the whole document.
    Whole,
}

/// Words through which a function can reach its document, or change what members mean, without naming it.
const UNCLEAR: &[&str] = &[
    "Function",
    "JSON",
    "Object",
    "Proxy",
    "Reflect",
    "__defineGetter__",
    "__defineSetter__",
    "__lookupGetter__",
    "__lookupSetter__",
    "__proto__",
    "arguments",
    "async",
    "await",
    "callee",
    "caller",
    "class",
    "constructor",
    "debugger",
    "delete",
    "eval",
    "export",
    "globalThis",
    "import",
    "prototype",
    "super",
    "this",
    "toJSON",
    "with",
    "yield",
];

/// A function of more parameters is not looked at: each name is held against the ones before it.
const PARAMETERS_MAX: usize = 16;

/// Members that every object has.
const INHERITED: &[&str] =
    &["hasOwnProperty", "isPrototypeOf", "propertyIsEnumerable", "toLocaleString", "toString", "valueOf"];

/// What all map functions of an index look at together: they are given the same document.
#[must_use]
pub fn need_of_all(sources: &[String]) -> Need {
    let mut all = Need::Nothing;
    for source in sources {
        all = match (all, need(source)) {
            (Need::Whole, _) | (_, Need::Whole) => return Need::Whole,
            (Need::Nothing, other) | (other, Need::Nothing) => other,
            (Need::Members { mut names, emitted }, Need::Members { names: more, emitted: too }) => {
                names.extend(more);
                Need::Members { names, emitted: emitted || too }
            }
        };
    }
    all
}

/// What a map function looks at.
#[must_use]
pub fn need(source: &str) -> Need {
    clear_need(source).unwrap_or(Need::Whole)
}

/// The members of `meta` that all map functions of an index look at together, or `None` where they may look at others.
#[must_use]
pub fn meta_need_of_all(sources: &[String]) -> Option<BTreeSet<String>> {
    let mut all = BTreeSet::new();
    for source in sources {
        match clear_need_of(source, 1)? {
            Need::Nothing => {}
            Need::Members { names, emitted: false } => all.extend(names),
            Need::Members { .. } | Need::Whole => return None,
        }
    }
    Some(all)
}

/// The same, or `None` where it is unclear.
fn clear_need(source: &str) -> Option<Need> {
    clear_need_of(source, 0)
}

/// What a map function looks at of the parameter with this number, or `None` where that is unclear.
fn clear_need_of(source: &str, number: usize) -> Option<Need> {
    let tokens = tokenize(source)?;
    if tokens.iter().any(|token| matches!(token, Token::Word(word) if UNCLEAR.contains(word))) {
        return None;
    }
    let (names, body) = parameters(&tokens)?;
    let Some(parameter) = names.get(number) else { return Some(Need::Nothing) };
    if !emit_is_ours(&tokens) {
        return None;
    }
    let mut reader = Reader { tokens: &tokens, names: BTreeSet::new(), emitted: false, calls: Vec::new() };
    for at in body..tokens.len() {
        reader.token(at, parameter)?;
    }
    if reader.names.is_empty() && !reader.emitted {
        return Some(Need::Nothing);
    }
    Some(Need::Members { names: reader.names, emitted: reader.emitted })
}

/// The names of the parameters, and where the body begins.
fn parameters<'a>(tokens: &[Token<'a>]) -> Option<(Vec<&'a str>, usize)> {
    let mut at = 0;
    let is_function = tokens.first() == Some(&Token::Word("function"));
    if is_function {
        at += 1;
        if let Token::Word(_) = tokens.get(at)? {
            at += 1;
        }
    }
    if *tokens.get(at)? != Token::Sign('(') {
        return None;
    }
    at += 1;
    let mut names: Vec<&str> = Vec::new();
    loop {
        match tokens.get(at)? {
            Token::Sign(')') => break,
            Token::Word(name) if names.len() < PARAMETERS_MAX && !names.contains(name) => names.push(name),
            _ => return None,
        }
        at += 1;
        match tokens.get(at)? {
            Token::Sign(')') => break,
            Token::Sign(',') => at += 1,
            _ => return None,
        }
    }
    at += 1;
    match (is_function, tokens.get(at)?) {
        (true, Token::Sign('{')) => {}
        (false, Token::Arrow) => at += 1,
        _ => return None,
    }
    // The source is this function and nothing else: its braces close at the end.
    if tokens.get(at) == Some(&Token::Sign('{')) {
        (closing(tokens, at)? + 1 == tokens.len()).then_some(())?;
    }
    Some((names, at))
}

/// Where the bracket closes that opens at `from`.
fn closing(tokens: &[Token<'_>], from: usize) -> Option<usize> {
    let mut open = Vec::new();
    for (at, token) in tokens.iter().enumerate().skip(from) {
        match token {
            Token::Sign(sign @ ('(' | '[' | '{')) => open.push(*sign),
            Token::Sign(sign @ (')' | ']' | '}')) => {
                let opened = open.pop()?;
                if !matches!((opened, sign), ('(', ')') | ('[', ']') | ('{', '}')) {
                    return None;
                }
                if open.is_empty() {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

/// Whether `emit` is only ever called, so that it means Couchbase's.
fn emit_is_ours(tokens: &[Token<'_>]) -> bool {
    tokens.iter().enumerate().all(|(at, token)| {
        let before = at.checked_sub(1).and_then(|before| tokens.get(before));
        let after = tokens.get(at + 1);
        *token != Token::Word("emit")
            || (after == Some(&Token::Sign('('))
                && !matches!(
                    before,
                    Some(Token::Word("function" | "new" | "get" | "set") | Token::Dot | Token::Sign('*'))
                ))
    })
}

/// Reads the body of a function.
struct Reader<'t, 'a> {
    tokens: &'t [Token<'a>],
    names: BTreeSet<String>,
    emitted: bool,
    /// For each open bracket, whether it is the one of a call of `emit`, and how many commas were directly in it.
    calls: Vec<(bool, u32)>,
}

impl<'a> Reader<'_, 'a> {
    fn before(&self, at: usize) -> Option<Token<'a>> {
        self.tokens.get(at.checked_sub(1)?).copied()
    }

    fn token(&mut self, at: usize, document: &str) -> Option<()> {
        match self.tokens.get(at)? {
            Token::Sign('(') => {
                let emits = self.before(at) == Some(Token::Word("emit"));
                self.calls.push((emits, 0));
            }
            Token::Sign('[' | '{') => self.calls.push((false, 0)),
            Token::Sign(')' | ']' | '}') => {
                self.calls.pop()?;
            }
            Token::Sign(',') => {
                // Behind a comma outside of all brackets another function could follow, and would be the one that counts.
                let (_, commas) = self.calls.last_mut()?;
                *commas += 1;
            }
            Token::Word(word) if *word == document => self.document(at)?,
            _ => {}
        }
        Some(())
    }

    /// The document is named: the name of a member of something else, one of its members read, a condition, or emitted.
    fn document(&mut self, at: usize) -> Option<()> {
        let before = self.before(at);
        if before == Some(Token::Dot) {
            return Some(());
        }
        let after = self.tokens.get(at + 1)?;
        match after {
            Token::Dot => self.member(at),
            Token::Sign(')') if self.calls.last() == Some(&(true, 1)) && before == Some(Token::Sign(',')) => {
                self.emitted = true;
                Some(())
            }
            _ => None,
        }
    }

    fn member(&mut self, at: usize) -> Option<()> {
        // An object of this name that is declared, or a label, is not followed by a dot.
        let Token::Word(name) = self.tokens.get(at + 2)? else { return None };
        if INHERITED.contains(name) {
            return None;
        }
        // A call would hand the document to the function as `this`, also where the member is within parentheses.
        let (mut before, mut behind) = (at, at + 3);
        while self.before(before) == Some(Token::Sign('('))
            && self.tokens.get(behind) == Some(&Token::Sign(')'))
        {
            (before, behind) = (before - 1, behind + 1);
            if self.is_called(behind) {
                return None;
            }
        }
        let is_dotted = self.tokens.get(at + 3) == Some(&Token::Dot);
        if self.is_called(at + 3) || (is_dotted && !matches!(self.tokens.get(at + 4), Some(Token::Word(_)))) {
            return None;
        }
        self.names.insert((*name).to_owned());
        Some(())
    }

    /// Whether what ends before this place is called, as far as one can see.
    fn is_called(&self, at: usize) -> bool {
        match self.tokens.get(at) {
            Some(Token::Sign('(') | Token::Template) => true,
            Some(Token::Sign('?')) => {
                self.tokens.get(at + 1) == Some(&Token::Dot)
                    && matches!(self.tokens.get(at + 2), Some(Token::Sign('(') | Token::Template))
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests;
