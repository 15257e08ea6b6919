//! Binary values in extended attributes, which hold JSON: kept as strings that say what they are (kv_engine
//! `docs/ExtendedAttributes.md`).

use base::Status;
use base64::{Engine as _, engine::general_purpose::STANDARD};

const PREFIX: &str = "cb-content-base64-encoded:";

/// The string that stands for these bytes.
pub(super) fn encode(value: &[u8]) -> Vec<u8> {
    let mut text = format!("\"{PREFIX}");
    STANDARD.encode_string(value, &mut text);
    text.push('"');
    text.into_bytes()
}

/// The bytes that a string stands for.
///
/// # Errors
/// `XattrNotBinary` for any other value.
pub(super) fn decode(value: &[u8]) -> Result<Vec<u8>, Status> {
    let inside = value.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\""));
    let encoded = inside.and_then(|text| text.strip_prefix(PREFIX.as_bytes()));
    encoded.and_then(|text| STANDARD.decode(text).ok()).ok_or(Status::XattrNotBinary)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_come_back_and_nothing_else_is_taken() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(decode(&encode(&all)), Ok(all));
        assert_eq!(encode(b"value"), b"\"cb-content-base64-encoded:dmFsdWU=\"");
        for other in [&b"\"text\""[..], b"1", b"\"", b"", b"\"cb-content-base64-encoded:dmFsdWU\""] {
            assert_eq!(decode(other), Err(Status::XattrNotBinary));
        }
    }
}
