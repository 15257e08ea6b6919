//! Makes the engine's values of JSON texts.
//!
//! The engine's own parser appends characters and elements one by one. Here a string is made of its bytes, and an array of its elements.
//! Names of members that other objects had are not looked up again. The values are those of `JSON.parse`.
//!
//! What is not plain is left to that: half of a surrogate pair, very long arrays, and containers deep within one another. So is what is no
//! JSON.

use std::{
    borrow::Cow,
    ffi::{c_char, c_int},
    ptr::NonNull,
};

use rquickjs::{
    Ctx, Error, Result, Value,
    qjs::{
        self, JS_DefinePropertyValue, JS_FreeAtom, JS_FreeValue, JS_MKVAL, JS_NewArrayFrom, JS_NewNumber,
        JS_NewObject, JS_NewStringLen, JS_ValueToAtom, JSAtom, JSContext, JSValue, size_t,
    },
};

use super::natives;
use crate::json::{Kind, Token, Tokens, plain_bytes, unescape};

/// Containers within one another. The engine has room for more of them.
const LEVELS_MAX: usize = 64;
/// So many elements are held at once, which the engine's limit of memory does not count. Longer arrays are left to the engine.
const ELEMENTS_MAX: usize = 1 << 18;
/// So many names are remembered.
const NAMES: usize = 256;
const NAME_BYTES_MAX: usize = 64;
/// Whole numbers of so many digits fit 32 bits.
const DIGITS_MAX: usize = 9;
/// What the engine has in place of a name where it failed.
const NO_ATOM: JSAtom = 0;

/// The name of a member as the engine knows it.
struct Name {
    text: Box<str>,
    atom: JSAtom,
}

/// What is kept from text to text, for one runtime: that frees the names that are left when it goes.
pub(super) struct Reader {
    /// By what is told from a name's text.
    names: Vec<Option<Name>>,
    /// Elements of arrays that are not complete.
    elements: Vec<JSValue>,
}

impl Default for Reader {
    fn default() -> Self {
        Self { names: (0..NAMES).map(|_| None).collect(), elements: Vec::new() }
    }
}

impl Reader {
    /// The value of a JSON text. A reader is used with contexts of one runtime.
    ///
    /// # Errors
    /// Those of `JSON.parse`.
    pub(super) fn parse<'js>(&mut self, ctx: &Ctx<'js>, text: &str) -> Result<Value<'js>> {
        let mut making =
            Making { ctx: ctx.as_raw(), reader: self, text, at: 0, levels: 0, has_thrown: false };
        let value = making.whole();
        if !is_none(value) {
            // SAFETY: the value was just made in this context, and nothing else refers to it.
            return Ok(unsafe { Value::from_raw(ctx.clone(), value) });
        }
        if making.has_thrown { Err(Error::Exception) } else { natives::parse(ctx, text) }
    }
}

/// What stands for a value where there is none: it is left to the engine's parser, or the engine has thrown something.
///
/// To wrap each value in a `Result` takes a good part of the time that it takes to make one.
const NONE: JSValue = qjs::JS_EXCEPTION;

fn is_none(value: JSValue) -> bool {
    // SAFETY: the tag of a value can be read whatever the value is.
    unsafe { qjs::JS_IsException(value) }
}

struct Making<'a> {
    ctx: NonNull<JSContext>,
    reader: &'a mut Reader,
    text: &'a str,
    /// So many bytes were read.
    at: usize,
    /// Containers that are open.
    levels: usize,
    /// The engine has thrown something.
    has_thrown: bool,
}

impl<'a> Making<'a> {
    /// The next byte that is no blank. It is not taken.
    fn next(&mut self) -> Option<u8> {
        let rest = self.text.as_bytes().get(self.at..)?;
        let blanks = rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r')).count();
        self.at += blanks;
        rest.get(blanks).copied()
    }

    /// The next token, and takes it. What is common is read without this.
    fn token(&mut self) -> Option<Token<'a>> {
        let mut tokens = Tokens::new(self.text.get(self.at..)?);
        let token = tokens.next().ok()??;
        self.at += tokens.position();
        Some(token)
    }

    fn whole(&mut self) -> JSValue {
        let value = self.value();
        if is_none(value) || self.next().is_none() {
            return value;
        }
        self.free(value);
        NONE
    }

    fn value(&mut self) -> JSValue {
        match self.next() {
            Some(b'"') => match self.plain() {
                Some(text) => self.string(text),
                None => self.other(),
            },
            Some(b'[') if self.levels < LEVELS_MAX => self.array(),
            Some(b'{') if self.levels < LEVELS_MAX => self.object(),
            Some(b'-' | b'0'..=b'9') => match self.digits() {
                Some(number) => JS_MKVAL(qjs::JS_TAG_INT, number),
                None => self.numeral().map_or(NONE, |text| self.number(text)),
            },
            Some(b'[' | b'{') => NONE,
            _ => self.other(),
        }
    }

    /// A string with escapes, or a word.
    fn other(&mut self) -> JSValue {
        let Some(token) = self.token() else { return NONE };
        match token.kind {
            Kind::Null => qjs::JS_NULL,
            Kind::False => qjs::JS_FALSE,
            Kind::True => qjs::JS_TRUE,
            Kind::String => unescape(&token).map_or(NONE, |text| self.string(&text)),
            Kind::Number | Kind::Array | Kind::Object | Kind::Name | Kind::End => NONE,
        }
    }

    /// What is between the next quotes, where that has no escapes.
    fn plain(&mut self) -> Option<&'a str> {
        let from = self.at + 1;
        let length = plain_bytes(self.text.as_bytes().get(from..)?);
        let text = self.text.get(from..from + length)?;
        if self.text.as_bytes().get(from + length) != Some(&b'"') {
            return None;
        }
        self.at = from + length + 1;
        Some(text)
    }

    /// The next number, where it has nothing but few digits.
    fn digits(&mut self) -> Option<i32> {
        let rest = self.text.as_bytes().get(self.at..)?;
        let mut number = 0;
        for (count, byte) in rest.iter().enumerate().take(DIGITS_MAX + 1) {
            match byte {
                b'0'..=b'9' if count < DIGITS_MAX => number = number * 10 + i32::from(byte - b'0'),
                b',' | b']' | b'}' if count == 1 || rest.first() != Some(&b'0') => {
                    self.at += count;
                    return Some(number);
                }
                _ => return None,
            }
        }
        None
    }

    /// The text of the next number.
    fn numeral(&mut self) -> Option<&'a str> {
        let rest = self.text.as_bytes().get(self.at..)?;
        let digits = |from| rest.iter().skip(from).take_while(|byte| byte.is_ascii_digit()).count();
        let mut end = usize::from(rest.first() == Some(&b'-'));
        let whole = digits(end);
        if whole == 0 || whole > 1 && rest.get(end) == Some(&b'0') {
            return None;
        }
        end += whole;
        if rest.get(end) == Some(&b'.') {
            let fraction = digits(end + 1);
            if fraction == 0 {
                return None;
            }
            end += 1 + fraction;
        }
        if let Some(b'e' | b'E') = rest.get(end) {
            let sign = usize::from(matches!(rest.get(end + 1), Some(b'+' | b'-')));
            let exponent = digits(end + 1 + sign);
            if exponent == 0 {
                return None;
            }
            end += 1 + sign + exponent;
        }
        let text = self.text.get(self.at..self.at + end)?;
        self.at += end;
        Some(text)
    }

    fn number(&mut self, text: &str) -> JSValue {
        let Ok(number) = text.parse::<f64>() else { return NONE };
        // SAFETY: the context is alive, since the caller of `parse` has it.
        let value = unsafe { JS_NewNumber(self.ctx.as_ptr(), number) };
        self.made(value)
    }

    fn string(&mut self, text: &str) -> JSValue {
        let bytes = text.as_ptr().cast::<c_char>();
        // SAFETY: the context is alive; the engine copies as many bytes as the text has.
        let value = unsafe { JS_NewStringLen(self.ctx.as_ptr(), bytes, text.len() as size_t) };
        self.made(value)
    }

    /// Behind an element or member: whether another one follows, or nothing where it is neither so nor the end.
    fn follows(&mut self, end: u8) -> Option<bool> {
        let next = self.next()?;
        let is_known = next == b',' || next == end;
        self.at += usize::from(is_known);
        is_known.then_some(next == b',')
    }

    /// Takes the beginning of a container; says whether it is empty, and takes its end then.
    fn begin(&mut self, end: u8) -> bool {
        self.at += 1;
        let is_empty = self.next() == Some(end);
        self.at += usize::from(is_empty);
        is_empty
    }

    fn array(&mut self) -> JSValue {
        let from = self.reader.elements.len();
        self.levels += 1;
        let is_read = self.read_elements();
        self.levels -= 1;
        let elements = self.reader.elements.get(from..).unwrap_or_default();
        let array = match c_int::try_from(elements.len()) {
            Ok(count) if is_read => {
                // SAFETY: the context is alive. The engine takes the elements over, also where it fails.
                let array = unsafe { JS_NewArrayFrom(self.ctx.as_ptr(), count, elements.as_ptr()) };
                self.made(array)
            }
            _ => {
                elements.iter().for_each(|element| self.free(*element));
                NONE
            }
        };
        self.reader.elements.truncate(from);
        array
    }

    /// Reads elements up to the end of their array; says whether it came there.
    fn read_elements(&mut self) -> bool {
        if self.begin(b']') {
            return true;
        }
        loop {
            let element = self.value();
            if is_none(element) {
                return false;
            }
            self.reader.elements.push(element);
            if self.reader.elements.len() > ELEMENTS_MAX {
                return false;
            }
            match self.follows(b']') {
                Some(true) => {}
                end => return end.is_some(),
            }
        }
    }

    fn object(&mut self) -> JSValue {
        // SAFETY: the context is alive.
        let object = unsafe { JS_NewObject(self.ctx.as_ptr()) };
        let object = self.made(object);
        if is_none(object) {
            return NONE;
        }
        self.levels += 1;
        let is_read = self.read_members(object);
        self.levels -= 1;
        if is_read {
            return object;
        }
        self.free(object);
        NONE
    }

    /// Reads members up to the end of their object; says whether it came there.
    fn read_members(&mut self, object: JSValue) -> bool {
        if self.begin(b'}') {
            return true;
        }
        loop {
            let is_defined = self.name().is_some_and(|name| self.define(object, &name));
            match is_defined.then(|| self.follows(b'}')) {
                Some(Some(true)) => {}
                end => return end.flatten().is_some(),
            }
        }
    }

    /// The next name, with what separates it from its value.
    fn name(&mut self) -> Option<Cow<'a, str>> {
        if self.next()? != b'"' {
            return None;
        }
        let name = match self.plain() {
            Some(plain) => Cow::Borrowed(plain),
            None => Cow::Owned(unescape(&self.token()?).ok()?.into_owned()),
        };
        let is_name = self.next() == Some(b':');
        self.at += 1;
        is_name.then_some(name)
    }

    /// Reads a value as that of the member of this name; says whether it could.
    fn define(&mut self, object: JSValue, name: &str) -> bool {
        let value = self.value();
        if is_none(value) {
            return false;
        }
        // Not before: what is kept of names changes while a value is read.
        let Some((atom, is_kept)) = self.atom(name) else {
            self.free(value);
            return false;
        };
        let flags = qjs::JS_PROP_C_W_E.cast_signed();
        // SAFETY: the context, the object and the name are alive. The engine takes the value over, also where it fails.
        let defined = unsafe { JS_DefinePropertyValue(self.ctx.as_ptr(), object, atom, value, flags) };
        if !is_kept {
            // SAFETY: the name was made for this member, and the object has its own reference to it.
            unsafe { JS_FreeAtom(self.ctx.as_ptr(), atom) };
        }
        self.has_thrown |= defined < 0;
        defined >= 0
    }

    /// A name as the engine knows it, and whether it is kept for other objects.
    fn atom(&mut self, name: &str) -> Option<(JSAtom, bool)> {
        let place = place(name);
        match self.reader.names.get(place) {
            Some(Some(known)) if *known.text == *name => Some((known.atom, true)),
            _ => self.new_atom(name, place),
        }
    }

    /// Has the engine make a name, and keeps it at its place where it is short.
    fn new_atom(&mut self, text: &str, place: usize) -> Option<(JSAtom, bool)> {
        let string = self.string(text);
        if is_none(string) {
            return None;
        }
        // SAFETY: the context and the string are alive.
        let atom = unsafe { JS_ValueToAtom(self.ctx.as_ptr(), string) };
        self.free(string);
        if atom == NO_ATOM {
            self.has_thrown = true;
            return None;
        }
        match self.reader.names.get_mut(place) {
            Some(slot) if text.len() <= NAME_BYTES_MAX => {
                let before = slot.replace(Name { text: text.into(), atom });
                // SAFETY: the context is alive. What made way was kept by this place alone: objects have references of their own.
                before.into_iter().for_each(|name| unsafe { JS_FreeAtom(self.ctx.as_ptr(), name.atom) });
                Some((atom, true))
            }
            _ => Some((atom, false)),
        }
    }

    /// What the engine made, unless it has thrown something.
    fn made(&mut self, value: JSValue) -> JSValue {
        self.has_thrown |= is_none(value);
        value
    }

    fn free(&self, value: JSValue) {
        // SAFETY: the context is alive, and the caller gives its only reference away.
        unsafe { JS_FreeValue(self.ctx.as_ptr(), value) };
    }
}

/// Where a name is kept: told from its first and last bytes and its length.
fn place(name: &str) -> usize {
    let bytes = name.as_bytes();
    let (first, last) = match (bytes.first_chunk(), bytes.last_chunk()) {
        (Some(first), Some(last)) => (u64::from_le_bytes(*first), u64::from_le_bytes(*last)),
        _ => (bytes.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)), 0),
    };
    let mixed = (first ^ last.rotate_left(29) ^ bytes.len() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 56) as usize % NAMES
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;
    use rquickjs::{Context, Function, Runtime};

    use super::*;

    /// Says what is the same of two values: the kinds of all of it, names in their order, and how members are.
    const SAME: &str = "(function same(a, b) {
        if (typeof a !== 'object' || a === null) { return Object.is(a, b); }
        if (typeof b !== 'object' || b === null) { return false; }
        if (Object.getPrototypeOf(a) !== Object.getPrototypeOf(b)) { return false; }
        if (Array.isArray(a) !== Array.isArray(b)) { return false; }
        var names = Object.getOwnPropertyNames(a), others = Object.getOwnPropertyNames(b);
        if (names.join() !== others.join() || a.length !== b.length) { return false; }
        return names.every(function (name) {
            var one = Object.getOwnPropertyDescriptor(a, name), two = Object.getOwnPropertyDescriptor(b, name);
            return one.writable === two.writable && one.enumerable === two.enumerable &&
                one.configurable === two.configurable && same(one.value, two.value);
        });
    })";

    fn with(check: impl FnOnce(&Ctx<'_>, &mut Reader, &dyn Fn(&mut Reader, &str) -> bool)) {
        let runtime = Runtime::new().unwrap();
        let context = Context::full(&runtime).unwrap();
        context.with(|ctx| {
            let same: Function<'_> = ctx.eval(SAME).unwrap();
            let agrees = |reader: &mut Reader, text: &str| match (
                reader.parse(&ctx, text),
                natives::parse(&ctx, text),
            ) {
                (Ok(ours), Ok(theirs)) => same.call::<_, bool>((ours, theirs)).unwrap(),
                (Err(_), Err(_)) => {
                    ctx.catch();
                    true
                }
                _ => false,
            };
            check(&ctx, &mut Reader::default(), &agrees);
        });
    }

    const TEXTS: [&str; 33] = [
        "null",
        " [ ] ",
        "{}",
        "[1,-0,0,1.0,1e3,-1,2147483647,2147483648,999999999,1000000000,0.1,1e400,-1e-400]",
        "123456789012345678901234567890",
        "[4.35,2.2250738585072011e-308,9007199254740993,1.7976931348623157e308,5e-324]",
        "{\"a\":1,\"b\":{\"a\":[{\"a\":2}]},\"a\":3}",
        "{\"10\":1,\"9\":2,\"x\":3,\"-1\":4,\"4294967295\":5,\"01\":6,\"0\":7}",
        "{\"__proto__\":{\"x\":1},\"constructor\":null,\"length\":2,\"toString\":1}",
        "[\"\",\"a\",\"é\",\"Ã©\",\"ÿ\",\"Ā\",\"日本\",\"😀\",\"a\\u0000b\",\"\\ud83d\\ude00\",\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"]",
        "{\"é\":1,\"Ã©\":2,\"日\":3,\"\":4,\"\\u0061\":5,\"a\":6}",
        "[\"\\ud800\"]",
        "{\"\\udc00\":1}",
        "[[\"\\ud800\\u0041\"],[1,{\"a\":[\"x\"]}]]",
        "",
        "[1,]",
        "{\"a\":1,}",
        "[1 2]",
        "{\"a\" 1}",
        "[\"a\nb\"]",
        "[1] x",
        "{\"a\":[1,{\"b\":\"c\"},nul]}",
        "[01]",
        "[-01]",
        "[1.]",
        "[.5]",
        "[-]",
        "[1e]",
        "[1e+]",
        "[1.5e-3,0e0,-0.0,10E+2,0]",
        "[\"\\x\"]",
        "\u{feff}1",
        "[true,false,null,[[]],{\"a\":{}}]",
    ];

    #[test]
    fn values_are_those_of_the_engines_parser() {
        with(|_, reader, agrees| {
            // Twice: names are known then.
            for text in TEXTS.iter().chain(&TEXTS) {
                assert!(agrees(reader, text), "{text}");
            }
            for depth in [LEVELS_MAX - 2, LEVELS_MAX, LEVELS_MAX + 2, 100] {
                let text =
                    format!("{}{}", "[{\"a\":".repeat(depth / 2), "1".to_owned() + &"}]".repeat(depth / 2));
                assert!(agrees(reader, &text), "{depth} levels");
                assert!(agrees(reader, &text[1..]), "not closed");
            }
            assert!(reader.elements.is_empty());
        });
    }

    #[test]
    fn what_is_held_of_long_arrays_is_bounded() {
        with(|ctx, reader, _| {
            for count in [ELEMENTS_MAX, 2 * ELEMENTS_MAX] {
                let text = format!("[{}2]", "1,".repeat(count - 1));
                let value = reader.parse(ctx, &text).unwrap();
                assert_eq!(natives::stringify(ctx, value).unwrap(), text);
                assert!(reader.elements.is_empty() && reader.elements.capacity() <= 2 * ELEMENTS_MAX);
            }
        });
    }

    fn text(random: &mut Rng, depth: usize, out: &mut String) {
        let word = |random: &mut Rng| match random.u8(..8) {
            0 => format!("\"{}\"", random.u16(..)),
            1 => "\"\\u00e9\\n\"".to_owned(),
            2 => format!("\"{}\"", "x".repeat(random.usize(..90))),
            _ => format!("\"member {}\"", random.u16(..600)),
        };
        match random.u8(..if depth == 0 { 6 } else { 10 }) {
            0 => out.push_str("null"),
            1 => out.push_str("true"),
            2 => out.push_str(&random.i32(..).to_string()),
            3 => out.push_str(
                &f64::from_bits(random.u64(..)).to_string().replace("NaN", "1").replace("inf", "2"),
            ),
            4 | 5 => out.push_str(&word(random)),
            6 | 7 => {
                out.push('[');
                for at in 0..random.usize(..6) {
                    out.push_str(if at > 0 { ", " } else { "" });
                    text(random, depth - 1, out);
                }
                out.push(']');
            }
            _ => {
                out.push('{');
                for at in 0..random.usize(..8) {
                    out.push_str(if at > 0 { ",\n" } else { "" });
                    out.push_str(&word(random));
                    out.push(':');
                    text(random, depth - 1, out);
                }
                out.push('}');
            }
        }
    }

    #[test]
    fn random_texts_have_the_values_of_the_engines_parser() {
        let mut random = Rng::with_seed(21);
        with(|_, reader, agrees| {
            for _ in 0..3000 {
                let mut json = String::new();
                text(&mut random, 5, &mut json);
                assert!(agrees(reader, &json), "{json}");
                let cut = (0..=random.usize(..=json.len())).rev().find(|at| json.is_char_boundary(*at));
                assert!(agrees(reader, &json[..cut.unwrap()]), "a part of {json}");
            }
        });
    }

    #[test]
    fn without_room_the_engine_says_so_and_goes_on() {
        let runtime = Runtime::new().unwrap();
        let context = Context::full(&runtime).unwrap();
        let large = format!("[{}]", vec!["{\"a\":[\"some text\"]}"; 20_000].join(","));
        let mut reader = Reader::default();
        for room in [100_000, 400_000, 1_000_000] {
            runtime.set_memory_limit(2_000_000 + room);
            context.with(|ctx| {
                assert!(reader.parse(&ctx, &large).is_err());
                ctx.catch();
            });
            runtime.set_memory_limit(0);
            context.with(|ctx| assert!(reader.parse(&ctx, "{\"a\":[1]}").is_ok()));
            assert!(reader.elements.is_empty());
        }
        context.with(|ctx| assert!(reader.parse(&ctx, &large).is_ok()));
    }
}
