//! Cuts commands out of a read buffer.
//!
//! Nothing is remembered between calls: a command whose data block has not arrived is [`Parsed::Incomplete`], and the
//! next call reads its line again. Which mistakes get which words follows memcached 1.6.18, observed. Where a storage
//! command is refused although its length is known, the data block is skipped with it, as newer releases do. It would
//! otherwise be taken for commands.

use super::{
    Command, Keys, StoreVerb,
    line::{signed, split_line, split_word, unsigned, words},
    reply,
};
use base::limits;

/// Longest line, other than a retrieval of many keys.
pub const LINE_BYTES_MAX: usize = 2048;
/// Longest line of a retrieval. memcached has no limit; this one keeps read buffers bounded.
pub const MULTIGET_LINE_BYTES_MAX: usize = 1024 * 1024;
/// Longest data block that can be announced; memcached's limit.
const ANNOUNCED_BYTES_MAX: u64 = i32::MAX as u64 - 2;
/// The two bytes that end a data block.
const BLOCK_END: &[u8] = b"\r\n";

/// What the beginning of a read buffer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed<'a> {
    /// Not all of a command yet.
    Incomplete {
        /// With fewer bytes than this from the beginning of the buffer there is nothing new to say.
        need: usize,
    },
    /// A command, to be carried out.
    Command {
        /// What to do.
        command: Command<'a>,
        /// Bytes it takes in the buffer.
        length: usize,
    },
    /// A command that is refused as it stands.
    Refused {
        /// What to answer, line end included; `None` if the client asked for silence.
        reply: Option<&'static [u8]>,
        /// Bytes it takes in the buffer.
        length: usize,
        /// Bytes to skip behind them, wherever they are: they may not have arrived.
        skip: u64,
    },
    /// Answer, if there is something to say, and close the connection.
    Close {
        /// What to answer.
        reply: Option<&'static [u8]>,
    },
}

/// Parses the command at the beginning of `bytes`. Data blocks above `value_bytes_max` are refused without
/// waiting for them.
#[must_use]
pub fn parse(bytes: &[u8], value_bytes_max: usize) -> Parsed<'_> {
    let Some((line, line_len)) = split_line(bytes) else {
        if bytes.len() > line_limit(bytes) {
            return Parsed::Close { reply: Some(reply::LINE_TOO_LONG) };
        }
        return Parsed::Incomplete { need: bytes.len() + 1 };
    };
    if line.len() > LINE_BYTES_MAX && line.len() > line_limit(line) {
        return Parsed::Close { reply: Some(reply::LINE_TOO_LONG) };
    }
    parse_line(line, line_len, bytes, value_bytes_max)
}

fn line_limit(line: &[u8]) -> usize {
    match split_word(line).0 {
        b"get" | b"gets" | b"gat" | b"gats" => MULTIGET_LINE_BYTES_MAX,
        _ => LINE_BYTES_MAX,
    }
}

/// A refusal, not yet a [`Parsed`]: the line's length is added by the caller.
#[derive(Clone, Copy)]
struct Refusal {
    reply: &'static [u8],
    silent: bool,
}

const UNKNOWN: Refusal = Refusal { reply: reply::ERROR, silent: false };

const fn bad_format(silent: bool) -> Refusal {
    Refusal { reply: reply::BAD_FORMAT, silent }
}

fn parse_line<'a>(line: &'a [u8], line_len: usize, bytes: &'a [u8], value_bytes_max: usize) -> Parsed<'a> {
    let (verb, rest) = split_word(line);
    let parsed = match verb {
        b"get" => parse_get(rest, false),
        b"gets" => parse_get(rest, true),
        b"set" => return parse_store(StoreVerb::Set, rest, line_len, bytes, value_bytes_max),
        b"add" => return parse_store(StoreVerb::Add, rest, line_len, bytes, value_bytes_max),
        b"replace" => return parse_store(StoreVerb::Replace, rest, line_len, bytes, value_bytes_max),
        b"append" => return parse_store(StoreVerb::Append, rest, line_len, bytes, value_bytes_max),
        b"prepend" => return parse_store(StoreVerb::Prepend, rest, line_len, bytes, value_bytes_max),
        b"cas" => return parse_store(StoreVerb::Cas, rest, line_len, bytes, value_bytes_max),
        b"gat" => parse_gat(rest, false),
        b"gats" => parse_gat(rest, true),
        b"delete" => parse_delete(rest),
        b"incr" => parse_counter(rest, false),
        b"decr" => parse_counter(rest, true),
        b"touch" => parse_touch(rest),
        b"flush_all" => parse_flush_all(rest),
        b"version" => Ok(Command::Version),
        b"verbosity" => parse_verbosity(rest),
        b"stats" => Ok(Command::Stats { group: rest.trim_ascii() }),
        b"quit" => Ok(Command::Quit),
        // A web browser, or somebody who makes one send commands: say nothing and hang up.
        _ if words(rest).last().is_some_and(|word| word.starts_with(b"HTTP/")) => {
            return Parsed::Close { reply: None };
        }
        _ => Err(UNKNOWN),
    };
    match parsed {
        Ok(command) => Parsed::Command { command, length: line_len },
        Err(refusal) => refused(refusal, line_len, 0),
    }
}

fn refused(refusal: Refusal, length: usize, skip: u64) -> Parsed<'static> {
    Parsed::Refused { reply: (!refusal.silent).then_some(refusal.reply), length, skip }
}

/// The words behind the verb, and whether the last of them asks for silence.
struct Arguments<'a, const N: usize> {
    words: [&'a [u8]; N],
    count: usize,
    noreply: bool,
}

/// `None` if there are more than `N` words.
fn arguments<const N: usize>(rest: &[u8]) -> Option<Arguments<'_, N>> {
    let mut arguments = Arguments { words: [&[][..]; N], count: 0, noreply: false };
    for word in words(rest) {
        *arguments.words.get_mut(arguments.count)? = word;
        arguments.count += 1;
        arguments.noreply = word == b"noreply";
    }
    Some(arguments)
}

const fn is_key_too_long(key: &[u8]) -> bool {
    key.len() > limits::KEY_BYTES_MAX
}

fn parse_get(rest: &[u8], with_cas: bool) -> Result<Command<'_>, Refusal> {
    let keys = Keys(rest);
    if check_keys(keys)? == 0 {
        return Err(UNKNOWN);
    }
    Ok(Command::Get { keys, with_cas })
}

fn parse_gat(rest: &[u8], with_cas: bool) -> Result<Command<'_>, Refusal> {
    let (expiry, rest) = split_word(rest);
    if expiry.is_empty() {
        return Err(UNKNOWN);
    }
    let expiry = signed(expiry).ok_or(Refusal { reply: reply::BAD_EXPIRY, silent: false })?;
    let keys = Keys(rest);
    check_keys(keys)?;
    Ok(Command::GetAndTouch { keys, with_cas, expiry })
}

/// The number of keys. One that is too long spoils the whole retrieval, before any value is sent.
fn check_keys(keys: Keys<'_>) -> Result<usize, Refusal> {
    let mut count = 0;
    for key in keys.iter() {
        if is_key_too_long(key) {
            return Err(bad_format(false));
        }
        count += 1;
    }
    Ok(count)
}

/// `<key> <flags> <expiry> <bytes> [<cas>] [noreply]`, then the data block.
fn parse_store<'a>(
    verb: StoreVerb,
    rest: &'a [u8],
    line_len: usize,
    bytes: &'a [u8],
    value_bytes_max: usize,
) -> Parsed<'a> {
    let required = if verb == StoreVerb::Cas { 5 } else { 4 };
    let Some(arguments) = arguments::<6>(rest) else { return refused(UNKNOWN, line_len, 0) };
    if !(required..=required + 1).contains(&arguments.count) {
        return refused(UNKNOWN, line_len, 0);
    }
    let noreply = arguments.noreply;
    let [key, flags, expiry, length, cas, _] = arguments.words;
    let Some(length) = unsigned(length).filter(|&length| length <= ANNOUNCED_BYTES_MAX) else {
        return refused(bad_format(noreply), line_len, 0);
    };
    let block_len = length + BLOCK_END.len() as u64;
    let cas = if verb == StoreVerb::Cas { unsigned(cas) } else { Some(0) };
    let flags = unsigned(flags).and_then(|flags| u32::try_from(flags).ok());
    let (Some(flags), Some(expiry), Some(cas), false) = (flags, signed(expiry), cas, is_key_too_long(key))
    else {
        return refused(bad_format(noreply), line_len, block_len);
    };
    if length > value_bytes_max as u64 {
        return refused(Refusal { reply: reply::TOO_LARGE, silent: noreply }, line_len, block_len);
    }
    // Fits: it is no larger than `value_bytes_max`, a `usize`.
    let length = length as usize;
    let packet_len = line_len + length + BLOCK_END.len();
    let Some(block) = bytes.get(line_len..packet_len) else { return Parsed::Incomplete { need: packet_len } };
    match block.split_at_checked(length) {
        Some((value, BLOCK_END)) => Parsed::Command {
            command: Command::Store { verb, key, flags, expiry, cas, value, noreply },
            length: packet_len,
        },
        _ => refused(Refusal { reply: reply::BAD_CHUNK, silent: noreply }, packet_len, 0),
    }
}

/// Very old clients send a delay of 0, which is tolerated.
fn parse_delete(rest: &[u8]) -> Result<Command<'_>, Refusal> {
    let arguments = arguments::<3>(rest).filter(|arguments| arguments.count > 0).ok_or(UNKNOWN)?;
    let [key, second, _] = arguments.words;
    let noreply = arguments.noreply && arguments.count > 1;
    let well_formed = match arguments.count {
        1 => true,
        2 => second == b"0" || noreply,
        _ => second == b"0" && noreply,
    };
    if !well_formed {
        return Err(Refusal { reply: reply::DELETE_USAGE, silent: noreply });
    }
    if is_key_too_long(key) {
        return Err(bad_format(noreply));
    }
    Ok(Command::Delete { key, noreply })
}

/// `<key> <argument> [noreply]`.
fn key_and_argument(rest: &[u8]) -> Result<(&[u8], &[u8], bool), Refusal> {
    let arguments = arguments::<3>(rest).filter(|arguments| arguments.count >= 2).ok_or(UNKNOWN)?;
    let [key, argument, _] = arguments.words;
    if is_key_too_long(key) {
        return Err(bad_format(arguments.noreply));
    }
    Ok((key, argument, arguments.noreply))
}

fn parse_counter(rest: &[u8], decrement: bool) -> Result<Command<'_>, Refusal> {
    let (key, delta, noreply) = key_and_argument(rest)?;
    let delta = unsigned(delta).ok_or(Refusal { reply: reply::BAD_DELTA, silent: noreply })?;
    Ok(Command::Counter { key, delta, decrement, noreply })
}

fn parse_touch(rest: &[u8]) -> Result<Command<'_>, Refusal> {
    let (key, expiry, noreply) = key_and_argument(rest)?;
    let expiry = signed(expiry).ok_or(Refusal { reply: reply::BAD_EXPIRY, silent: noreply })?;
    Ok(Command::Touch { key, expiry, noreply })
}

fn parse_flush_all(rest: &[u8]) -> Result<Command<'_>, Refusal> {
    let arguments = arguments::<2>(rest).ok_or(UNKNOWN)?;
    let noreply = arguments.noreply;
    let has_delay = arguments.count > usize::from(noreply);
    let delay = if has_delay { signed(arguments.words[0]) } else { Some(0) };
    let delay = delay.ok_or(Refusal { reply: reply::BAD_EXPIRY, silent: noreply })?;
    Ok(Command::FlushAll { delay, noreply })
}

fn parse_verbosity(rest: &[u8]) -> Result<Command<'_>, Refusal> {
    let mut all = words(rest);
    let level = all.next().ok_or(UNKNOWN)?;
    let noreply = all.last().unwrap_or(level) == b"noreply";
    unsigned(level).ok_or(bad_format(noreply))?;
    Ok(Command::Verbosity { noreply })
}

#[cfg(test)]
mod tests;
