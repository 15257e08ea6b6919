//! Names and passwords that nobody guesses.

use std::io;

use crate::setup::error::ServeError;

/// A password that nobody guesses, of letters and digits that are not taken for one another.
///
/// # Errors
/// When the operating system has no randomness to give.
pub fn random_password() -> Result<String, ServeError> {
    const LETTERS: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
    let mut bytes = [0_u8; 24];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    let letters = bytes.iter().filter_map(|byte| LETTERS.get(usize::from(byte % 32)));
    Ok(letters.map(|letter| char::from(*letter)).collect())
}

/// 128 random bits as 32 hexadecimal digits.
///
/// # Errors
/// When the operating system has no randomness to give.
pub(crate) fn random_uuid() -> Result<String, ServeError> {
    let mut bytes = [0u8; 16];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
