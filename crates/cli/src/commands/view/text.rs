//! Text that others have written, on a terminal: it moves no cursor and changes no colour.

/// A text whose control characters are shown as escapes; lines and tabs stay.
pub(super) fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' | '\t' => out.push(character),
            other if other.is_control() => out.extend(other.escape_unicode()),
            other => out.push(other),
        }
    }
    out
}

/// A text on one line of at most so many characters.
pub(super) fn cell(text: &str, most: usize) -> String {
    let line = printable(text).replace(['\n', '\t'], " ");
    match line.char_indices().nth(most) {
        None => line,
        Some(_) => line.chars().take(most.saturating_sub(1)).chain(['…']).collect(),
    }
}

/// Lines behind a margin.
pub(super) fn indented(text: &str, margin: &str) -> String {
    printable(text.trim_end()).lines().map(|line| format!("{margin}{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_wrote_does_nothing_to_a_terminal() {
        assert_eq!(printable("a\u{1b}[2J\r\n\té"), "a\\u{1b}[2J\\u{d}\n\té");
        assert_eq!(cell("one\ntwo", 20), "one two");
        assert_eq!(cell("ééééé", 3), "éé…");
        assert_eq!(cell("ééé", 3), "ééé");
        assert_eq!(indented("a\nb\n\n", "  "), "  a\n  b\n");
    }
}
