//! How a number is written: with fifteen significant digits, as C's `%.15g` does it.

/// The text of a number; what is beyond all doubles is `null`, as JSON has no word for it.
#[must_use]
pub fn number_text(value: f64) -> String {
    if !value.is_finite() {
        return "null".to_owned();
    }
    let exponential = format!("{:.14e}", value + 0.0);
    let Some((digits, exponent)) = exponential.split_once('e') else { return exponential };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..15).contains(&exponent) {
        let decimals = usize::try_from(14 - exponent).unwrap_or(0);
        return without_zeros(&format!("{value:.decimals$}")).to_owned();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", without_zeros(digits), exponent.abs())
}

fn without_zeros(text: &str) -> &str {
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text };
    if text == "-0" { "0" } else { text }
}

#[cfg(test)]
mod tests {
    use super::number_text;

    #[test]
    fn numbers_are_written_as_c_does() {
        let cases = [
            (0.0, "0"),
            (-0.0, "0"),
            (1.0, "1"),
            (-17.5, "-17.5"),
            (0.1 + 0.2, "0.3"),
            (1.0 / 3.0, "0.333333333333333"),
            (123_456_789_012_345.0, "123456789012345"),
            (1_234_567_890_123_456.0, "1.23456789012346e+15"),
            (999_999_999_999_999.9, "1e+15"),
            (1e21, "1e+21"),
            (1.5e-5, "1.5e-05"),
            (0.00012, "0.00012"),
            (1e300, "1e+300"),
            (f64::INFINITY, "null"),
        ];
        for (value, text) in cases {
            assert_eq!(number_text(value), text);
        }
    }
}
