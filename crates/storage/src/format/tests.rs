//! Decoders against hostile bytes, and codecs against themselves. The seeds are fixed: a failure repeats.

use base::{Cas, Datatype, ManifestUid, Seqno, VbId, VbUuid};

use super::{
    Bytes, VERSION,
    batch::{self, Commit, CommitHead, Part},
    footer, frame, header,
    manifest::{self, Manifest, SegmentEntry, VbEntry},
    put_varint,
};
use crate::{
    api::{Marks, RecordKind, RecordMeta, VbState},
    index::{MemoryIndex, Staged},
    position::Position,
};

const SALT: u32 = 0x1234_5678;

fn meta(seqno: u64) -> RecordMeta {
    RecordMeta {
        kind: RecordKind::Expiration,
        seqno: Seqno(seqno),
        cas: Cas(u64::MAX - 1),
        rev: 1 << 60,
        flags: 9,
        expiry: u32::MAX,
        datatype: Datatype::ALL,
    }
}

fn state() -> VbState {
    VbState {
        high_seqno: Seqno(1 << 47),
        purge_seqno: Seqno(3),
        max_cas: Cas(u64::MAX),
        max_deleted_rev: 77,
        failover_log: (0..25).map(|n| (VbUuid(n << 50), Seqno(n))).collect(),
        manifest_uid: ManifestUid(12),
        marks: Marks { prepared: Seqno(1 << 46), completed: Seqno(9), visible: Seqno(u64::MAX) },
        snapshot: Some((Seqno(4), Seqno(1 << 47))),
        is_partial: true,
    }
}

fn record_bytes() -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::encode_record(&mut bytes, SALT, (VbId(1023), 7, 99), &meta(5), b"\0key", &[1; 300]);
    bytes
}

fn commit_bytes() -> Vec<u8> {
    let mut parts = Vec::new();
    batch::encode_part(&mut parts, VbId(5), 1, 2, &state());
    let mut bytes = Vec::new();
    let head = CommitHead {
        number: 9,
        start: 4096,
        records: 2,
        chain: 55,
        synced: Position { segment: 3, offset: 8192 },
        parts: 1,
        encoded_parts: &parts,
        deaths: &[(1, 2), (3, 4)],
    };
    batch::encode_commit(&mut bytes, SALT, &head);
    bytes
}

fn manifest_bytes() -> (Manifest, Vec<u8>) {
    let manifest = Manifest {
        shard: 1,
        next_segment: 9,
        synced: Position { segment: 8, offset: 4096 },
        next_batch: 1000,
        seed: 0x5eed_5eed_5eed_5eed,
        segments: vec![SegmentEntry {
            id: 4,
            sealed: true,
            without_footer: true,
            data_end: 8192,
            units: 256,
            live_units: 99,
            damaged: true,
            incomplete: true,
            lost: false,
            identity: Some((header::Origin::Compacted, 0xdead_beef)),
        }],
        vbs: vec![VbEntry { vb: VbId(3), incarnation: 2, state: state() }],
    };
    let bytes = manifest::encode(&manifest);
    (manifest, bytes)
}

fn footer_bytes() -> Vec<u8> {
    let mut staged = Staged::default();
    for n in 0..700u64 {
        let hash = base::hash::key_hash(&n.to_le_bytes());
        staged.push((VbId((n / 100) as u16), 0), &meta(n + 1), hash, 4096 + n * 80, 80);
    }
    let mut index = MemoryIndex::default();
    index.add(&staged);
    footer::encode(2, 4096 + 700 * 80, 5, &index)
}

#[test]
fn what_is_encoded_is_decoded() {
    let bytes = record_bytes();
    let record = frame::decode_record(&bytes, SALT).unwrap();
    assert_eq!((record.vb, record.incarnation, record.branch), (VbId(1023), 7, 99));
    assert_eq!((record.meta, record.key, record.value), (meta(5), &b"\0key"[..], &[1; 300][..]));
    assert!(frame::decode_record(&bytes, SALT + 1).is_err(), "another segment's record");

    let expected = Commit {
        number: 9,
        start: 4096,
        records: 2,
        chain: 55,
        synced: Position { segment: 3, offset: 8192 },
        parts: vec![Part { vb: VbId(5), incarnation: 1, records: 2, state: state() }],
        deaths: vec![(1, 2), (3, 4)],
    };
    assert_eq!(batch::decode_commit(&commit_bytes(), SALT), Ok(expected));

    let (manifest, bytes) = manifest_bytes();
    assert_eq!(manifest::decode(&bytes), Ok(manifest));

    for number in [0, 1, 127, 128, u64::from(u32::MAX), u64::MAX] {
        let mut bytes = Vec::new();
        put_varint(&mut bytes, number);
        assert_eq!(Bytes(&bytes).varint(), Some(number));
    }
    assert_eq!(Bytes(&[0xff; 11]).varint(), None);
}

#[test]
fn a_header_survives_the_loss_of_either_copy_and_tells_of_newer_versions() {
    let header = header::Header {
        shard: 1,
        segment: 2,
        origin: header::Origin::Compacted,
        salt: 3,
        previous: Position { segment: 1, offset: 4112 },
        synced: Position { segment: 1, offset: 4096 },
        first_batch: 4,
    };
    let block = header::encode(&header);
    assert_eq!(header::decode(&block), Ok(header));
    for sector in [0, 2048] {
        let mut damaged = block.clone();
        damaged[sector..sector + 512].fill(0xaa);
        assert_eq!(header::decode(&damaged), Ok(header));
    }
    let mut newer = block;
    newer[8] = VERSION as u8 + 1;
    let crc = crc32c::crc32c(&newer[..60]).to_le_bytes();
    newer[60..64].copy_from_slice(&crc);
    newer[2048..].fill(0);
    assert_eq!(header::decode(&newer), Err(header::HeaderError::Version(VERSION + 1)));
}

/// Every decoder on every input: none may panic, and none may take a changed input for the original.
fn decode_all(bytes: &[u8]) -> [bool; 5] {
    let trailer_start = bytes.len().saturating_sub(footer::TRAILER);
    let trailer = footer::decode_trailer(&bytes[trailer_start..], 2, 4096 + 700 * 80 + bytes.len() as u64);
    if let Some(trailer) = &trailer {
        let section = |(start, length): (u64, usize)| {
            let start = (start - trailer.data_end) as usize;
            bytes.get(start..start + length).unwrap_or_default()
        };
        let _ = footer::decode_lookup(section(trailer.lookup_range()), trailer);
        let _ = footer::decode_runs(section(trailer.runs_range()), trailer, VbId(2));
        let _ = footer::decode_summaries(section(trailer.summaries_range()), trailer);
    }
    [
        frame::decode_record(bytes, SALT).is_ok(),
        batch::decode_commit(bytes, SALT).is_ok(),
        manifest::decode(bytes).is_ok(),
        header::decode(bytes).is_ok(),
        trailer.is_some(),
    ]
}

#[test]
fn decoders_survive_arbitrary_and_mutated_bytes() {
    let mut rng = fastrand::Rng::with_seed(42);
    let originals = [record_bytes(), commit_bytes(), manifest_bytes().1, footer_bytes()];
    let accepted: Vec<_> = originals.iter().map(|bytes| decode_all(bytes)).collect();
    assert_eq!(accepted.iter().flatten().filter(|ok| **ok).count(), 4, "each by its own decoder only");
    for _ in 0..20_000 {
        let which = rng.usize(0..originals.len());
        let mut bytes = originals[which].clone();
        match rng.u32(0..4) {
            0 => bytes = (0..rng.usize(0..400)).map(|_| rng.u8(..)).collect(),
            1 => bytes.truncate(rng.usize(0..bytes.len())),
            2 => {
                let at = rng.usize(0..bytes.len());
                bytes[at] ^= 1 << rng.u32(0..8);
            }
            _ => {
                // Plausible lies: checksums made to fit a changed body.
                let within =
                    if which == 3 { bytes.len() - footer::TRAILER..bytes.len() } else { 8..bytes.len() };
                let at = rng.usize(within);
                bytes[at] = [0, 1, 0x7f, 0x80, 0xff][rng.usize(0..5)];
                fix_checksums(&mut bytes, which);
            }
        }
        decode_all(&bytes);
    }
}

fn fix_checksums(bytes: &mut [u8], which: usize) {
    let length = bytes.len();
    match which {
        0 | 1 => {
            let declared = super::u32_at(bytes, 8) as usize;
            let key_end = (frame::HEAD + usize::from(bytes[14])).min(length);
            let head_crc = crc32c::crc32c_append(SALT, &bytes[8..key_end]);
            let crc = crc32c::crc32c_append(head_crc, bytes.get(key_end..declared).unwrap_or_default());
            bytes[4..8].copy_from_slice(&head_crc.to_le_bytes());
            bytes[..4].copy_from_slice(&crc.to_le_bytes());
        }
        2 => {
            let crc = crc32c::crc32c(&bytes[..length - 4]);
            bytes[length - 4..].copy_from_slice(&crc.to_le_bytes());
        }
        _ => {
            let start = length - footer::TRAILER;
            let crc = crc32c::crc32c(&bytes[start..length - 4]);
            bytes[length - 4..].copy_from_slice(&crc.to_le_bytes());
        }
    }
}

#[test]
fn a_batch_may_make_records_of_more_than_65535_segments_obsolete() {
    for count in [65_535, 65_536, 200_000] {
        let deaths: Vec<(u32, u32)> = (0..count).map(|segment| (segment, segment % 7)).collect();
        let head = CommitHead {
            number: 1,
            start: 4096,
            records: 0,
            chain: 0,
            synced: Position::default(),
            parts: 0,
            encoded_parts: &[],
            deaths: &deaths,
        };
        let mut bytes = Vec::new();
        batch::encode_commit(&mut bytes, SALT, &head);
        assert!(batch::decode_commit(&bytes, SALT).unwrap().deaths == deaths, "{count}");
    }
}
