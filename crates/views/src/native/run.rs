//! Runs a program over a document.

use std::borrow::Cow;

use super::{
    Given,
    parser::{Binary, Expression, For, Program, Statement, Unary},
    value::{Value, binary},
};
use crate::{
    index::JoinedRows,
    js::{EMITTED_BYTES_MAX, KEY_BYTES_MAX, ROWS_MAX},
    json::{Kind, Tokens, plain_bytes, unescape, write_string},
};

/// So many steps are left to the engine, which has a clock. They take a few milliseconds: other indexes wait for this thread.
const STEPS_MAX: usize = 1 << 17;
/// Arrays and objects within one another in what is read. The engine's stack has room for more, though not for any number.
const LEVELS_MAX: usize = 1000;
/// So many bytes that are looked at are a step.
const BYTES_OF_A_STEP: usize = 16;
/// An element before this is looked for from the beginning of its array. For others, and for lengths, all elements are noted.
const NEAR: usize = 4;
/// So many elements most arrays have at most.
const ELEMENTS: usize = 16;
/// Arrays whose elements are noted, at most.
const NOTED_MAX: usize = 8;

/// Appends the rows of a document. They are of no use where that is not certain.
pub(super) fn rows(program: &Program, document: &dyn Given, rows: &mut JoinedRows) -> Option<()> {
    rows.begin_map();
    let mut run = Run {
        program,
        document,
        members: None,
        locals: vec![Value::Undefined; program.locals],
        arrays: Vec::new(),
        rows,
        bytes: 0,
        steps: STEPS_MAX,
    };
    for statement in &program.body {
        if run.statement(statement)? == Flow::Ends {
            break;
        }
    }
    Some(())
}

/// Where a statement leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    /// The next one.
    On,
    /// The end of the loop's body.
    Again,
    /// The end of the loop.
    Breaks,
    /// The end of the function.
    Ends,
}

struct Run<'a, 'r> {
    program: &'a Program,
    document: &'a dyn Given,
    /// Of the members that the program reads the texts of their values, once one was read.
    members: Option<Vec<Option<&'a str>>>,
    locals: Vec<Value<'a>>,
    /// The elements of arrays, by where these begin.
    arrays: Vec<(*const u8, Vec<&'a str>)>,
    rows: &'r mut JoinedRows,
    /// Bytes that were emitted.
    bytes: usize,
    /// So many steps are left.
    steps: usize,
}

impl<'a> Run<'a, '_> {
    fn takes(&mut self, bytes: usize) -> Option<()> {
        self.steps = self.steps.checked_sub(1 + bytes / BYTES_OF_A_STEP)?;
        Some(())
    }

    // ---- statements -----------------------------------------------------------------------------------------------

    fn statement(&mut self, statement: &'a Statement) -> Option<Flow> {
        self.takes(0)?;
        match statement {
            Statement::Emit(key, value) => self.emit(key, value)?,
            Statement::Set(local, value) => self.set(*local, value)?,
            Statement::If(condition, then, otherwise) => {
                if self.value(condition)?.is_true() {
                    return self.statement(then);
                }
                if let Some(otherwise) = otherwise {
                    return self.statement(otherwise);
                }
            }
            Statement::For(counted) => return self.counted(counted),
            Statement::Block(all) => {
                for statement in all {
                    let flow = self.statement(statement)?;
                    if flow != Flow::On {
                        return Some(flow);
                    }
                }
            }
            Statement::Return => return Some(Flow::Ends),
            Statement::Break => return Some(Flow::Breaks),
            Statement::Continue => return Some(Flow::Again),
        }
        Some(Flow::On)
    }

    fn counted(&mut self, counted: &'a For) -> Option<Flow> {
        for (local, value) in &counted.begin {
            self.set(*local, value)?;
        }
        loop {
            self.takes(0)?;
            if let Some(condition) = &counted.condition
                && !self.value(condition)?.is_true()
            {
                return Some(Flow::On);
            }
            match self.statement(&counted.body)? {
                Flow::On | Flow::Again => {}
                Flow::Breaks => return Some(Flow::On),
                Flow::Ends => return Some(Flow::Ends),
            }
            if let Some((local, value)) = &counted.step {
                self.set(*local, value)?;
            }
        }
    }

    fn set(&mut self, local: usize, value: &'a Expression) -> Option<()> {
        let value = self.value(value)?;
        *self.locals.get_mut(local)? = value;
        Some(())
    }

    fn emit(&mut self, key: &'a Expression, value: &'a Expression) -> Option<()> {
        let (mut key_text, mut value_text) = self.rows.take_texts();
        self.emitted(key, &mut key_text)?;
        self.emitted(value, &mut value_text)?;
        self.bytes += key_text.len() + value_text.len();
        let is_one_too_many = self.rows.count() >= ROWS_MAX;
        let fits = key_text.len() < KEY_BYTES_MAX && self.bytes <= EMITTED_BYTES_MAX && !is_one_too_many;
        fits.then(|| self.rows.push(key_text, value_text))
    }

    fn emitted(&mut self, value: &'a Expression, out: &mut Vec<u8>) -> Option<()> {
        if !self.write(value, out)? {
            out.extend_from_slice(b"null");
        }
        Some(())
    }

    /// Appends the text of what is emitted; says whether there is one.
    fn write(&mut self, value: &'a Expression, out: &mut Vec<u8>) -> Option<bool> {
        match value {
            Expression::Array(elements) => {
                out.push(b'[');
                for (at, element) in elements.iter().enumerate() {
                    if at > 0 {
                        out.push(b',');
                    }
                    if !self.write(element, out)? {
                        out.extend_from_slice(b"null");
                    }
                }
                out.push(b']');
            }
            Expression::Object(members) => {
                out.push(b'{');
                let begin = out.len();
                for (name, member) in members {
                    let before = out.len();
                    if before > begin {
                        out.push(b',');
                    }
                    write_string(name, out);
                    out.push(b':');
                    if !self.write(member, out)? {
                        out.truncate(before);
                    }
                }
                out.push(b'}');
            }
            Expression::Null => out.extend_from_slice(b"null"),
            Expression::Id => write_string(self.document.id(), out),
            other => {
                let value = self.value(other)?;
                self.takes(value.length())?;
                return value.write(out);
            }
        }
        Some(true)
    }

    // ---- expressions ----------------------------------------------------------------------------------------------

    fn value(&mut self, expression: &'a Expression) -> Option<Value<'a>> {
        self.takes(0)?;
        Some(match expression {
            Expression::Undefined => Value::Undefined,
            Expression::Null => Value::Null,
            Expression::Bool(is) => Value::Bool(*is),
            Expression::Number(number) => Value::Number(*number),
            Expression::Text(text) => Value::Text(Cow::Borrowed(text)),
            Expression::Document => self.whole()?,
            Expression::OfDocument(number) => self.of_document(*number)?,
            Expression::Meta => {
                self.needs_room_for(self.document.meta())?;
                Value::of(self.document.meta())?
            }
            Expression::Id => Value::Text(Cow::Borrowed(self.document.id())),
            Expression::Local(local) => {
                let value = self.locals.get(*local)?.clone();
                self.takes(value.length())?;
                value
            }
            Expression::Member(of, name) => {
                let of = self.value(of)?;
                self.member(of, name)?
            }
            Expression::Element(of, at) => {
                let (of, at) = (self.value(of)?, self.value(at)?);
                self.element(&of, &at)?
            }
            Expression::Unary(operator, value) => self.unary(*operator, value)?,
            Expression::Binary(Binary::And, left, right) => {
                let left = self.value(left)?;
                if left.is_true() { self.value(right)? } else { left }
            }
            Expression::Binary(Binary::Or, left, right) => {
                let left = self.value(left)?;
                if left.is_true() { left } else { self.value(right)? }
            }
            Expression::Binary(operator, left, right) => {
                let (left, right) = (self.value(left)?, self.value(right)?);
                self.takes(left.length() + right.length())?;
                binary(*operator, &left, &right)?
            }
            Expression::Choice(parts) => {
                let (condition, first, second) = &**parts;
                if self.value(condition)?.is_true() { self.value(first)? } else { self.value(second)? }
            }
            Expression::Array(_) | Expression::Object(_) => return None,
        })
    }

    fn unary(&mut self, operator: Unary, value: &'a Expression) -> Option<Value<'a>> {
        let value = self.value(value)?;
        Some(match operator {
            Unary::Not => Value::Bool(!value.is_true()),
            Unary::TypeOf => Value::Text(Cow::Borrowed(value.type_name())),
            Unary::Minus => match value {
                Value::Number(number) => Value::Number(-number),
                _ => return None,
            },
        })
    }

    /// A member of the document. All that the program reads are looked for at once.
    fn of_document(&mut self, number: usize) -> Option<Value<'a>> {
        if self.members.is_none() {
            let Value::Object(text) = Value::of(self.document.json()?)? else { return None };
            self.takes(text.len())?;
            let program = self.program;
            let mut found = vec![None; program.members.len()];
            each_member(text, |name, value| {
                if let Some(at) = program.members.iter().position(|known| **known == *name)
                    && let Some(place) = found.get_mut(at)
                {
                    *place = Some(value);
                }
            })?;
            for text in found.iter().flatten() {
                self.needs_room_for(text)?;
            }
            self.members = Some(found);
        }
        let text = *self.members.as_ref()?.get(number)?;
        self.read(text)
    }

    /// The document. The text of one that is no object is read each time, from end to end.
    fn whole(&mut self) -> Option<Value<'a>> {
        let text = self.document.json()?;
        let value = Value::of(text)?;
        if !matches!(value, Value::Object(_)) {
            self.takes(text.len())?;
            self.needs_room_for(text)?;
        }
        Some(value)
    }

    /// The engine fails where arrays and objects are too deep within one another. No short text has them so deep.
    fn needs_room_for(&mut self, text: &str) -> Option<()> {
        if text.len() <= 2 * LEVELS_MAX || !text.starts_with(['{', '[']) {
            return Some(());
        }
        self.takes(text.len())?;
        let mut tokens = Tokens::new(text);
        while tokens.next().ok()?.is_some() {
            (tokens.depth() <= LEVELS_MAX).then_some(())?;
        }
        Some(())
    }

    /// The value of a text that was read as one value. To read what is no array or object takes steps each time.
    fn read(&mut self, text: Option<&'a str>) -> Option<Value<'a>> {
        let Some(text) = text else { return Some(Value::Undefined) };
        if !text.starts_with(['{', '[']) {
            self.takes(text.len())?;
        }
        Value::of_read(text)
    }

    fn member(&mut self, of: Value<'a>, name: &str) -> Option<Value<'a>> {
        match (of, name) {
            (Value::Object(text), _) => {
                self.takes(text.len())?;
                let mut found = None;
                each_member(text, |known, value| {
                    if *known == *name {
                        found = Some(value);
                    }
                })?;
                self.read(found)
            }
            (Value::Array(text), "length") => Some(Value::Number(self.elements(text)?.len() as f64)),
            (Value::Text(text), "length") => {
                self.takes(text.len())?;
                Some(Value::Number(text.encode_utf16().count() as f64))
            }
            _ => None,
        }
    }

    fn element(&mut self, of: &Value<'a>, at: &Value<'a>) -> Option<Value<'a>> {
        let (Value::Array(text), Value::Number(at)) = (of, at) else { return None };
        // Behind the end there is nothing, and other numbers are names of members.
        if at.fract() != 0.0 || !(0.0..f64::from(u32::MAX)).contains(at) {
            return None;
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is whole, and in that range"
        )]
        let at = *at as usize;
        let noted = self.arrays.iter().any(|(begin, _)| *begin == text.as_ptr());
        let element = if noted || at >= NEAR {
            self.elements(text)?.get(at).copied()
        } else {
            self.takes(text.len())?;
            if at == 0
                && let Some(first) = first_string(text)
            {
                self.takes(first.len())?;
                return Some(Value::Text(Cow::Borrowed(first)));
            }
            let mut tokens = Tokens::new(text);
            (tokens.next().ok()??.kind == Kind::Array).then_some(())?;
            let mut element = tokens.next_element().ok()?;
            for _ in 0..at {
                if element.is_some() {
                    element = tokens.next_element().ok()?;
                }
            }
            element
        };
        self.read(element)
    }

    /// The texts of the elements of an array.
    fn elements(&mut self, text: &'a str) -> Option<&[&'a str]> {
        let noted = self.arrays.iter().position(|(begin, _)| *begin == text.as_ptr());
        let at = match noted {
            Some(at) => at,
            None => {
                self.takes(text.len())?;
                let mut tokens = Tokens::new(text);
                (tokens.next().ok()??.kind == Kind::Array).then_some(())?;
                let mut elements = Vec::with_capacity(ELEMENTS);
                while let Some(element) = tokens.next_element().ok()? {
                    // What is noted of an element takes as much as many a text.
                    self.takes(0)?;
                    elements.push(element);
                }
                tokens.next().ok()?.is_none().then_some(())?;
                if self.arrays.len() >= NOTED_MAX {
                    self.arrays.clear();
                }
                self.arrays.push((text.as_ptr(), elements));
                self.arrays.len() - 1
            }
        };
        self.arrays.get(at).map(|(_, elements)| elements.as_slice())
    }
}

/// The first element of an array, where that is a string without blanks before it and without escape sequences.
fn first_string(array: &str) -> Option<&str> {
    let inside = array.strip_prefix("[\"")?;
    let (text, rest) = inside.split_at_checked(plain_bytes(inside.as_bytes()))?;
    rest.starts_with('"').then_some(text)
}

/// Calls something with each member of an object: its name and the text of its value.
fn each_member<'a>(object: &'a str, mut call: impl FnMut(&str, &'a str)) -> Option<()> {
    let mut tokens = Tokens::new(object);
    (tokens.next().ok()??.kind == Kind::Object).then_some(())?;
    loop {
        let name = tokens.next().ok()??;
        if name.kind == Kind::End {
            break;
        }
        let value = tokens.skip_value().ok()?;
        // A name with half of a surrogate pair is none of the names of a source.
        if let Ok(name) = unescape(&name) {
            call(&name, value);
        }
    }
    tokens.next().ok()?.is_none().then_some(())
}
