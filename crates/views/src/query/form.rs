//! Names and values of a query string.

/// The pairs of a query string without its `?`, decoded: `+` is a blank, a `%` without two hexadecimal digits stands for
/// itself.
pub(super) fn pairs(query: &str) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
    query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decode(name), decode(value))
    })
}

fn decode(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        match first {
            b'+' => out.push(b' '),
            b'%' => match hex(after) {
                Some(byte) => {
                    out.push(byte);
                    rest = after.get(2..).unwrap_or_default();
                }
                None => out.push(b'%'),
            },
            other => out.push(*other),
        }
    }
    out
}

fn hex(digits: &[u8]) -> Option<u8> {
    let digit = |at: usize| digits.get(at).and_then(|byte| char::from(*byte).to_digit(16));
    u8::try_from(digit(0)? << 4 | digit(1)?).ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn values_are_decoded() {
        let pairs: Vec<_> = super::pairs("a=%22x%22&b&&c=1+2%2b%zz%4&=d&e=f=g").collect();
        let text = |(name, value): &(Vec<u8>, Vec<u8>)| {
            (String::from_utf8(name.clone()).unwrap(), String::from_utf8(value.clone()).unwrap())
        };
        let expected = [("a", "\"x\""), ("b", ""), ("c", "1 2+%zz%4"), ("", "d"), ("e", "f=g")];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(pairs.iter().map(text).collect::<Vec<_>>(), expected);
    }
}
