//! Macros in extended attributes: values that the server fills in.
//!
//! What is known of the version before is filled in at once. The mutation's own CAS and seqno are known only when it is
//! published, under the lock. The checksum of the body is known once the last spec has been done. For these a text of
//! the same width stands in the attributes until then. Specs may move it about or remove it, so it is looked for at the
//! end. It is chosen so that nothing else in the request or the attributes looks like it.

use base::{Cas, Seqno, Status};

use super::{
    request::{MutationSpec, ValueForm},
    version::{Facts, Parts},
    virtuals,
};
use crate::vbucket::failover_table::mix;

/// A quoted number of 64 bits, in hexadecimal with prefix.
const WIDE: usize = 20;
/// One of 32 bits.
const NARROW: usize = 12;

const CAS: &[u8] = b"\"${Mutation.CAS}\"";
const SEQNO: &[u8] = b"\"${Mutation.seqno}\"";
const CHECKSUM: &[u8] = b"\"${Mutation.value_crc32c}\"";

/// What stands for values that are not known yet.
#[derive(Debug)]
pub(super) struct Placeholders {
    cas: [u8; WIDE],
    seqno: [u8; WIDE],
    checksum: [u8; NARROW],
}

impl Placeholders {
    /// Texts that occur neither in `specs` nor in the attributes there are; `None` when there is nothing to expand.
    pub(super) fn choose(specs: &[MutationSpec<'_>], xattrs: &[u8], seed: u64) -> Option<Self> {
        if !specs.iter().any(|spec| spec.form == ValueForm::Macro) {
            return None;
        }
        let mut dice = seed;
        let mut wide = || unused(specs, xattrs, &mut dice, quoted::<WIDE>);
        let (cas, seqno) = (wide(), wide());
        let checksum = unused(specs, xattrs, &mut dice, |number| quoted::<NARROW>(number & 0xffff_ffff));
        Some(Self { cas, seqno, checksum })
    }

    /// What goes into the attribute for a macro.
    ///
    /// # Errors
    /// `SubdocXattrUnknownVattrMacro` for a member that `$document` does not have.
    pub(super) fn expand(&self, name: &[u8], facts: &Facts, parts: &Parts<'_>) -> Result<Vec<u8>, Status> {
        match name {
            CAS => Ok(self.cas.to_vec()),
            SEQNO => Ok(self.seqno.to_vec()),
            CHECKSUM => Ok(self.checksum.to_vec()),
            b"\"${$document}\"" => Ok(virtuals::about_document(facts, parts).into_bytes()),
            _ => {
                let member = name.strip_prefix(b"\"${$document.").and_then(|rest| rest.strip_suffix(b"}\""));
                member
                    .and_then(|member| virtuals::document_member(member, facts, parts))
                    .map(String::into_bytes)
                    .ok_or(Status::SubdocXattrUnknownVattrMacro)
            }
        }
    }

    /// Fills in the checksum of the new body and finds the places for the rest.
    pub(super) fn locate(&self, xattrs: &mut [u8], body: &[u8]) -> Blanks {
        let checksum = quoted::<NARROW>(crc32c::crc32c(body).into());
        for at in occurrences(xattrs, &self.checksum) {
            fill(xattrs, at, &checksum);
        }
        Blanks { cas: occurrences(xattrs, &self.cas), seqno: occurrences(xattrs, &self.seqno) }
    }
}

/// Places in a new value for what is known only when it is published.
#[derive(Clone, Debug, Default)]
pub(super) struct Blanks {
    cas: Vec<usize>,
    seqno: Vec<usize>,
}

impl Blanks {
    pub(super) fn is_empty(&self) -> bool {
        self.cas.is_empty() && self.seqno.is_empty()
    }

    /// Fills them in. A CAS is written in the order of its bytes in memory on the machines that Couchbase began on.
    /// That is the reverse of a number's order.
    pub(super) fn fill(&self, value: &mut [u8], cas: Cas, seqno: Seqno) {
        for &at in &self.cas {
            fill(value, at, &quoted::<WIDE>(cas.get().swap_bytes()));
        }
        for &at in &self.seqno {
            fill(value, at, &quoted::<WIDE>(seqno.get()));
        }
    }
}

fn fill(value: &mut [u8], at: usize, text: &[u8]) {
    if let Some(place) = value.get_mut(at..at + text.len()) {
        place.copy_from_slice(text);
    }
}

fn occurrences(text: &[u8], wanted: &[u8]) -> Vec<usize> {
    memchr::memmem::find_iter(text, wanted).collect()
}

/// A number as a JSON string of `N` bytes.
fn quoted<const N: usize>(number: u64) -> [u8; N] {
    let text = format!("\"0x{number:0width$x}\"", width = N - 4);
    let mut out = [b'0'; N];
    for (to, from) in out.iter_mut().zip(text.bytes()) {
        *to = from;
    }
    out
}

fn unused<const N: usize>(
    specs: &[MutationSpec<'_>],
    xattrs: &[u8],
    dice: &mut u64,
    text: impl Fn(u64) -> [u8; N],
) -> [u8; N] {
    loop {
        *dice = mix(*dice);
        let candidate = text(*dice);
        let finder = memchr::memmem::Finder::new(&candidate);
        let occurs = specs.iter().map(|spec| spec.value).chain([xattrs]).any(|t| finder.find(t).is_some());
        if !occurs {
            return candidate;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cas_is_written_backwards_and_a_seqno_is_not() {
        let mut value = [b'.'; 2 * WIDE];
        let blanks = Blanks { cas: vec![0], seqno: vec![WIDE] };
        blanks.fill(&mut value, Cas(0x0102_0304_0506_0708), Seqno(0x1a));
        assert_eq!(&value[..], b"\"0x0807060504030201\"\"0x000000000000001a\"");
    }

    #[test]
    fn what_looks_like_a_placeholder_is_avoided() {
        let first = quoted::<WIDE>(mix(5));
        assert_ne!(unused(&[], &first, &mut 5, quoted::<WIDE>), first);
        assert_eq!(unused(&[], b"", &mut 5, quoted::<WIDE>), first);
    }
}
