//! JSON texts as `JSON.stringify(JSON.parse(text))` gives them, without an engine.
//!
//! White space goes, numbers are the shortest text of their double, escapes are the shortest ones. Of members that come
//! twice the last value takes the place of the first, and members whose names are indices of arrays come first. Where that
//! is not certain (halves of surrogate pairs, very deep texts) nothing is given, and the engine has to be asked.

use std::{borrow::Cow, collections::BTreeSet, collections::HashMap};

use crate::json::{Kind, Token, Tokens, unescape, write_string};

const LEVELS_MAX: u32 = 200;
/// Of fewer digits no two texts are equally near to a double.
const TIE_DIGITS: usize = 16;
/// No two texts of so many digits are one double.
const FEW_DIGITS: usize = 15;
/// So many digits tell every double from all others, and twice as many whether a text is exact.
const DIGITS_MAX: usize = 17;
/// Objects with more members than this find those that come twice in a table.
const FEW_MEMBERS: usize = 12;

/// The canonical text, or `None` where `text` is no JSON or its canonical text is not certain.
#[must_use]
pub fn stringified(text: &str) -> Option<String> {
    let mut writer = Writer { tokens: Tokens::new(text), out: Vec::with_capacity(text.len()) };
    let first = writer.tokens.next().ok()??;
    writer.value(&first, LEVELS_MAX)?;
    writer.tokens.next().ok()?.is_none().then_some(())?;
    String::from_utf8(writer.out).ok()
}

/// An object with those members of the object `text` that have one of these names, duplicates included.
///
/// `None` where `text` is no object. Values are not looked into: that the text is JSON was found when it was stored.
#[must_use]
pub fn projected(text: &str, names: &BTreeSet<String>) -> Option<String> {
    let mut tokens = Tokens::new(text);
    if tokens.next().ok()??.kind != Kind::Object {
        return None;
    }
    let mut out = String::with_capacity(text.len() / 4);
    out.push('{');
    loop {
        let name = tokens.next().ok()??;
        if name.kind == Kind::End {
            break;
        }
        let value = tokens.skip_value().ok()?;
        // A name with half of a surrogate pair is none of the names of a source.
        if unescape(&name).is_ok_and(|name| names.contains(&*name)) {
            if out.len() > 1 {
                out.push(',');
            }
            out.push('"');
            out.push_str(name.text);
            out.push_str("\":");
            out.push_str(value);
        }
    }
    out.push('}');
    tokens.next().ok()?.is_none().then_some(out)
}

struct Writer<'a> {
    tokens: Tokens<'a>,
    out: Vec<u8>,
}

/// A member that was written: its name, and where it begins and ends.
struct Member<'a> {
    name: Cow<'a, str>,
    from: usize,
    to: usize,
}

impl<'a> Writer<'a> {
    fn value(&mut self, first: &Token<'a>, levels: u32) -> Option<()> {
        match first.kind {
            Kind::Null | Kind::True | Kind::False => self.out.extend_from_slice(first.text.as_bytes()),
            Kind::Number => number(first.text, &mut self.out)?,
            Kind::String => self.string(first)?,
            Kind::Array => self.array(levels.checked_sub(1)?)?,
            Kind::Object => self.object(levels.checked_sub(1)?)?,
            Kind::Name | Kind::End => return None,
        }
        Some(())
    }

    fn string(&mut self, token: &Token<'a>) -> Option<()> {
        if token.escaped {
            write_string(&unescape(token).ok()?, &mut self.out);
        } else {
            self.out.push(b'"');
            self.out.extend_from_slice(token.text.as_bytes());
            self.out.push(b'"');
        }
        Some(())
    }

    fn array(&mut self, levels: u32) -> Option<()> {
        self.out.push(b'[');
        let mut is_first = true;
        loop {
            let first = self.tokens.next().ok()??;
            if first.kind == Kind::End {
                break;
            }
            if !std::mem::take(&mut is_first) {
                self.out.push(b',');
            }
            self.value(&first, levels)?;
        }
        self.out.push(b']');
        Some(())
    }

    fn object(&mut self, levels: u32) -> Option<()> {
        let begin = self.out.len();
        self.out.push(b'{');
        let mut members: Vec<Member<'a>> = Vec::new();
        loop {
            let name = self.tokens.next().ok()??;
            if name.kind == Kind::End {
                break;
            }
            if !members.is_empty() {
                self.out.push(b',');
            }
            let from = self.out.len();
            self.string(&name)?;
            self.out.push(b':');
            let first = self.tokens.next().ok()??;
            self.value(&first, levels)?;
            members.push(Member { name: unescape(&name).ok()?, from, to: self.out.len() });
        }
        if !in_order(&members) {
            self.reorder(begin, &members)?;
        }
        self.out.push(b'}');
        Some(())
    }

    /// Writes an object again, with its members in the order of JavaScript.
    fn reorder(&mut self, begin: usize, members: &[Member<'a>]) -> Option<()> {
        let mut places: HashMap<&str, usize> = HashMap::new();
        let mut kept: Vec<&Member<'a>> = Vec::new();
        for member in members {
            let place = *places.entry(&*member.name).or_insert(kept.len());
            match kept.get_mut(place) {
                Some(earlier) => *earlier = member,
                None => kept.push(member),
            }
        }
        // The sort is stable: other members keep their order, behind all indices.
        kept.sort_by_key(|member| index(&member.name).map_or(u64::MAX, u64::from));
        let mut object = vec![b'{'];
        for (at, member) in kept.into_iter().enumerate() {
            if at > 0 {
                object.push(b',');
            }
            object.extend_from_slice(self.out.get(member.from..member.to)?);
        }
        self.out.truncate(begin);
        self.out.extend_from_slice(&object);
        Some(())
    }
}

/// Whether no name comes twice, and none is an index.
fn in_order(members: &[Member<'_>]) -> bool {
    if members.iter().any(|member| index(&member.name).is_some()) {
        return false;
    }
    if members.len() > FEW_MEMBERS {
        let names: std::collections::HashSet<&str> = members.iter().map(|member| &*member.name).collect();
        return names.len() == members.len();
    }
    let mut seen: &[Member<'_>] = members;
    while let Some((last, before)) = seen.split_last() {
        if before.iter().any(|member| member.name == last.name) {
            return false;
        }
        seen = before;
    }
    true
}

/// The index of an array that a name is.
fn index(name: &str) -> Option<u32> {
    let bytes = name.as_bytes();
    let first = bytes.first()?;
    if !first.is_ascii_digit() || (*first == b'0' && bytes.len() > 1) || bytes.len() > 10 {
        return None;
    }
    name.parse().ok().filter(|index| *index < u32::MAX)
}

/// Writes a number as JavaScript does.
fn number(text: &str, out: &mut Vec<u8>) -> Option<()> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    if digits.len() <= FEW_DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit()) && text != "-0" {
        out.extend_from_slice(text.as_bytes());
        return Some(());
    }
    if let Some(decimal) = decimal(text) {
        out.extend_from_slice(decimal.as_bytes());
        return Some(());
    }
    let value: f64 = text.parse().ok()?;
    out.extend_from_slice(number_text(value)?.as_bytes());
    Some(())
}

/// The canonical text of a number with a point and few digits. Each of these is another double, so no fewer digits tell its double.
fn decimal(text: &str) -> Option<&str> {
    let (whole, part) = text.strip_prefix('-').unwrap_or(text).split_once('.')?;
    let are_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.len() + part.len() > FEW_DIGITS || !are_digits(whole) || !are_digits(part) {
        return None;
    }
    let shown = part.trim_end_matches('0');
    // Zero has no sign. What is less than a millionth is written with an exponent.
    if whole == "0" && (shown.is_empty() || shown.starts_with("000000")) {
        return None;
    }
    let point = usize::from(shown.is_empty());
    text.get(..text.len() - (part.len() - shown.len()) - point)
}

/// The shortest text of a double, laid out as ECMAScript says; `null` where it is none.
pub(crate) fn number_text(value: f64) -> Option<String> {
    if !value.is_finite() {
        return Some("null".to_owned());
    }
    if value == 0.0 {
        return Some("0".to_owned());
    }
    let scientific = scientific(value.abs())?;
    let (mantissa, exponent) = scientific.split_once('e')?;
    let digits = mantissa.replace('.', "");
    let count = i32::try_from(digits.len()).ok()?;
    let point = exponent.parse::<i32>().ok()? + 1;
    let zeros = |count: i32| "0".repeat(usize::try_from(count).unwrap_or(0));
    let text = if (count..=21).contains(&point) {
        format!("{digits}{}", zeros(point - count))
    } else if (1..=21).contains(&point) {
        let (whole, fraction) = digits.split_at_checked(usize::try_from(point).ok()?)?;
        format!("{whole}.{fraction}")
    } else if (-5..=0).contains(&point) {
        format!("0.{}{digits}", zeros(-point))
    } else {
        let sign = if point > 0 { '+' } else { '-' };
        format!("{mantissa}e{sign}{}", (point - 1).abs())
    };
    Some(if value < 0.0 { format!("-{text}") } else { text })
}

/// The shortest text that means this double and no other one; of two that are equally near the even one.
///
/// Doubles below a power of two are closer to one another than those above it. The engine writes some powers with more digits than
/// others do: they are given up, unless the text is exact.
fn scientific(value: f64) -> Option<String> {
    const FRACTION: u64 = (1 << 52) - 1;
    let shortest = format!("{value:e}");
    let mantissa = shortest.split('e').next()?;
    let digits = mantissa.bytes().filter(u8::is_ascii_digit).count();
    if value.to_bits() & FRACTION == 0 {
        let exact = format!("{value:.*e}", 2 * DIGITS_MAX);
        let rest = exact.split('e').next()?.strip_prefix(mantissa)?;
        return rest.bytes().all(|byte| matches!(byte, b'0' | b'.')).then_some(shortest);
    }
    if digits >= TIE_DIGITS && mantissa.ends_with(['1', '3', '5', '7', '9']) {
        let nearest = format!("{value:.*e}", digits - 1);
        if nearest.parse() == Ok(value) {
            return Some(nearest);
        }
    }
    Some(shortest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_become_canonical() {
        let cases = [
            (
                " [ 1.0 , 1e2,-0, 0.1e-6 ,1e21,123456789012345680000,1e-7] ",
                "[1,100,0,1e-7,1e+21,123456789012345680000,1e-7]",
            ),
            ("[2.15546417236328125,-5e-324,0.25]", "[2.1554641723632812,-5e-324,0.25]"),
            ("[9007199254740993,1e400,-1.5E+3,0.000001]", "[9007199254740992,null,-1500,0.000001]"),
            ("\"\\u00e9\\/\\u000a\\u0001\\ud83d\\ude00\\u007f\"", "\"é/\\n\\u0001😀\u{7f}\""),
            ("{\"b\":1,\"a\":2,\"b\":3}", "{\"b\":3,\"a\":2}"),
            (
                "{\"b\":1,\"10\":2,\"9\":3,\"01\":4,\"4294967295\":5}",
                "{\"9\":3,\"10\":2,\"b\":1,\"01\":4,\"4294967295\":5}",
            ),
            ("{\"\\u0061\":{\"2\":[],\"1\":{}},\"a\":{\"2\":1,\"1\":2}}", "{\"a\":{\"1\":2,\"2\":1}}"),
        ];
        for (text, canonical) in cases {
            assert_eq!(stringified(text).as_deref(), Some(canonical), "{text}");
        }
        for text in
            ["[1", "7.120236347223045e-307", "6.2370009672959994e+290", "\"\\ud800\"", "{\"\\udc00\":1}", ""]
        {
            assert_eq!(stringified(text), None, "{text}");
        }
        assert_eq!(stringified(&("[".repeat(300) + &"]".repeat(300))), None);
    }

    #[test]
    fn numbers_of_few_digits_are_written_as_their_doubles_are() {
        let mut random = fastrand::Rng::with_seed(3);
        let mut known = 0;
        for _ in 0..40_000 {
            let digit = |_| if random.u8(..3) == 0 { '0' } else { random.digit(10) };
            let mut digits: String = (0..17).map(digit).collect();
            digits.truncate(random.usize(2..=17));
            digits.insert(random.usize(1..digits.len()), '.');
            let rest = digits.trim_start_matches('0');
            let zero = if rest.starts_with('.') { "0" } else { "" };
            let text = [if random.bool() { "-" } else { "" }, zero, rest].concat();
            let Some(decimal) = decimal(&text) else { continue };
            known += 1;
            let by_value = number_text(text.parse().unwrap());
            assert_eq!(Some(decimal), by_value.as_deref(), "{text}");
        }
        assert!(known > 20_000, "{known}");
        for text in ["0.0", "-0.0", "0.0000001", "1.5e3", "1234567890.123456", "1"] {
            assert_eq!(decimal(text), None, "{text}");
        }
        assert_eq!(["-1.0", "0.0000010", "10.50"].map(decimal), [Some("-1"), Some("0.000001"), Some("10.5")]);
    }

    #[test]
    fn objects_are_projected() {
        let names: BTreeSet<String> = ["a", "b"].map(str::to_owned).into();
        let cases = [
            ("{}", Some("{}")),
            (
                "{\"a\": [1, 2] ,\"c\":{\"a\":1}, \"\\u0062\" : 2,\"a\":3}",
                Some("{\"a\":[1, 2],\"\\u0062\":2,\"a\":3}"),
            ),
            ("[{\"a\":1}]", None),
            ("{\"a\":1,}", None),
            ("{\"a\":1} x", None),
        ];
        for (text, expected) in cases {
            assert_eq!(projected(text, &names).as_deref(), expected, "{text}");
        }
    }
}
