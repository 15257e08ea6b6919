//! Range scans: CREATE, CONTINUE, CANCEL.
//!
//! A CONTINUE is answered in pieces, each a packet of some documents; the last one's status says whether there is more.
//! Between pieces it may be parked: for what the disk has, or for the client to take what was said so far. A request
//! whose connection goes away takes its scan with it.

use std::sync::Arc;

use base::{Cas, CollectionId, Datatype, Now, Status};
use cluster::auth::Privilege;
use engine::{
    FeedItem, ScanHold, ScanId, ScanLimits, ScanOptions, ScanSelection, ScanStep, Wait, range_scan,
    subdoc::xattr,
};
use protocol::{
    binary::{
        Response, ResponseWriter,
        range_scan::{
            self as wire, ScanCancel, ScanConfig, ScanContinue, ScannedMeta, append_scanned_document,
            append_scanned_key, scan_extras,
        },
    },
    hello::Feature,
};

use crate::{
    request::{
        call::Call,
        stage::{Reading, Resumed, ScanStage, Stage, Stop},
        value,
    },
    state::shared::BucketEntry,
};

/// Bytes of keys and values per packet, unless one document is larger.
const PACKET_BYTES: u64 = 32 << 10;
/// Longest wait for what a scan requires to be on disk. The worker remembers it even if the client goes away.
const PERSIST_MILLIS_MAX: u64 = 600_000;
/// Whether a scan has been created is asked again after this long, whatever it waits for.
const CREATE_POLL_MILLIS: u64 = 20;
/// A document that nobody has reported read by then is asked for again.
const READ_POLL_MILLIS: u64 = 1000;

/// RANGE_SCAN_CREATE.
pub(crate) fn create(call: &mut Call<'_, '_>) -> Result<(), Stop> {
    let (resumed, timed_out) = match call.resumed.take() {
        Some(Resumed { stage: Stage::RangeScan(stage), timed_out, .. }) => (Some(stage), timed_out),
        _ => (None, false),
    };
    if let Some(ScanStage::Creating(hold)) = resumed {
        return finish_create(call, hold);
    }
    let bucket = call.session.bucket()?;
    if call.request.frame.header.datatype != Datatype::JSON {
        return Err(Stop::Refused(Status::Invalid, "Datatype must be JSON"));
    }
    let config = ScanConfig::decode(call.request.frame.value)?;
    call.session.require_in(Privilege::RangeScan, config.collection)?;
    if config.include_xattrs && !call.session.has(Feature::Xattr) {
        return Err(Stop::Refused(Status::NotSupported, "Client does not support XATTRs"));
    }
    if let Some(wanted) = config.requires
        && bucket.engine.vb_history(call.request.vb)?.persisted < wanted.seqno
    {
        let deadline = match resumed {
            Some(ScanStage::Persisting(deadline)) => Some(deadline),
            _ => {
                wanted.wait_millis.map(|millis| call.context.now.mono_millis + millis.min(PERSIST_MILLIS_MAX))
            }
        };
        let Some(deadline) = deadline.filter(|_| !timed_out) else {
            return Err(Stop::Status(Status::TemporaryFailure));
        };
        let (vb, waiter, now) = (call.request.vb, call.waiter(), call.context.now);
        if bucket.engine.wait_persisted(vb, wanted.seqno, waiter, now)? == Wait::Parked {
            return Err(Stop::Park(Stage::RangeScan(ScanStage::Persisting(deadline)), Some(deadline)));
        }
    }
    let id = u128::from(call.context.dice.roll()) << 64 | u128::from(call.context.dice.roll());
    let (vb, waiter, now) = (call.request.vb, call.waiter(), call.context.now);
    let bucket = call.session.bucket()?;
    let hold = bucket.engine.create_scan(vb, ScanId(id), options_of(config), waiter, now)?;
    finish_create(call, Arc::new(hold))
}

fn options_of(config: ScanConfig) -> ScanOptions {
    ScanOptions {
        collection: config.collection,
        selection: match config.selection {
            wire::ScanSelection::Range(start, end) => ScanSelection::Range(start, end),
            wire::ScanSelection::Sample { samples, seed } => ScanSelection::Sample { samples, seed },
        },
        keys_only: config.keys_only,
        include_xattrs: config.include_xattrs,
        uuid: config.requires.map(|requires| requires.uuid),
        must_exist: config.requires.filter(|requires| requires.must_exist).map(|requires| requires.seqno),
        name: config.name,
    }
}

/// Answers with the scan's identifier once there is one.
fn finish_create(call: &mut Call<'_, '_>, hold: Arc<ScanHold>) -> Result<(), Stop> {
    match call.session.bucket()?.engine.scan_created(&hold)? {
        Wait::Ready => {
            call.answer(Cas::NONE, Datatype::RAW, &[], &[], &hold.id().0.to_be_bytes());
            Ok(())
        }
        Wait::Parked => {
            let poll_at = call.context.now.mono_millis + CREATE_POLL_MILLIS;
            Err(Stop::Park(Stage::RangeScan(ScanStage::Creating(hold)), Some(poll_at)))
        }
    }
}

/// RANGE_SCAN_CONTINUE.
pub(crate) fn resume(call: &mut Call<'_, '_>) -> Result<(), Stop> {
    let reading = match call.resumed.take() {
        Some(Resumed {
            stage: Stage::RangeScan(ScanStage::Fetching(reading) | ScanStage::Pausing(reading)),
            ..
        }) => {
            // Only one thing is done with a parked request at a time, so nobody else has it.
            Arc::into_inner(reading).ok_or(Stop::Status(Status::Internal))?
        }
        _ => take_up(call)?,
    };
    call.session.require_in(Privilege::RangeScan, reading.hold.collection())?;
    read(call, reading)
}

fn take_up(call: &Call<'_, '_>) -> Result<Reading, Stop> {
    let asked = ScanContinue::decode(call.request.frame.extras).ok_or(Stop::Status(Status::Invalid))?;
    let (bucket, vb, id) = (call.session.bucket()?, call.request.vb, ScanId(asked.id));
    call.session.require_in(Privilege::RangeScan, bucket.engine.scan_collection(vb, id)?)?;
    let hold = bucket.engine.continue_scan(vb, id, call.waiter())?;
    let unless_zero = |limit: u32| if limit == 0 { u64::MAX } else { u64::from(limit) };
    Ok(Reading {
        hold: Arc::new(hold),
        items: unless_zero(asked.items_max),
        bytes: unless_zero(asked.bytes_max),
        deadline: call.context.now.mono_millis.saturating_add(unless_zero(asked.millis_max)),
        began: false,
    })
}

/// Writes packets until the client's limits, the scan's end, the disk or the output stop it.
fn read(call: &mut Call<'_, '_>, mut reading: Reading) -> Result<(), Stop> {
    loop {
        if call.out.is_full() {
            return Err(Stop::Park(Stage::RangeScan(ScanStage::Pausing(Arc::new(reading))), None));
        }
        let step = write_packet(call, &mut reading)?;
        if step == ScanStep::Complete {
            return Ok(());
        }
        if is_enough(&reading, call.context.now) {
            reading.hold.lay_down();
            return Ok(());
        }
        if step == ScanStep::Wait {
            let retry_at = (call.context.now.mono_millis + READ_POLL_MILLIS).min(reading.deadline.max(1));
            let retry_at = retry_at.max(call.context.now.mono_millis + 1);
            let stage = Stage::RangeScan(ScanStage::Fetching(Arc::new(reading)));
            return Err(Stop::Park(stage, Some(retry_at)));
        }
    }
}

fn is_enough(reading: &Reading, now: Now) -> bool {
    reading.began && (reading.items == 0 || reading.bytes == 0 || now.mono_millis >= reading.deadline)
}

/// Writes one packet of what comes next, with the status that belongs to it. Nothing when nothing is at hand, unless the
/// client has to be told that this was it.
fn write_packet(call: &mut Call<'_, '_>, reading: &mut Reading) -> Result<ScanStep, Stop> {
    let form = Form::of(call, &reading.hold);
    let mut scratch = std::mem::take(&mut call.context.scratch);
    let response = Response::new(Status::Success);
    let traced = call.session.has(Feature::Tracing);
    let bucket = call.session.bucket()?;
    let mut writer = ResponseWriter::begin(&mut call.out.bytes, &call.request.frame.header, traced);
    writer.body().extend_from_slice(&scan_extras(form.keys_only));
    let limits = ScanLimits { items_max: reading.items, bytes_max: reading.bytes.min(PACKET_BYTES) };
    let (mut items, mut bytes, mut is_whole) = (0, 0, true);
    let result = bucket.engine.read_scan(&reading.hold, limits, &mut |key, item| {
        items += 1;
        bytes += (key.len() + item.map_or(0, |item| item.value().len())) as u64;
        is_whole &= form.append(key, item, writer.body(), &mut scratch).is_some();
    });
    call.context.keep_scratch(scratch);
    let step = match result {
        Ok(_) if !is_whole => Err(Stop::Refused(Status::Internal, "A stored value cannot be inflated")),
        result => result.map_err(Stop::Status),
    };
    let step = match step {
        Ok(step) => step,
        Err(stop) => {
            writer.cancel();
            return Err(stop);
        }
    };
    reading.items = reading.items.saturating_sub(items);
    reading.bytes = reading.bytes.saturating_sub(bytes);
    reading.began |= items > 0;
    let status = match step {
        ScanStep::Complete => Status::RangeScanComplete,
        _ if is_enough(reading, call.context.now) => Status::RangeScanMore,
        _ if items == 0 => {
            writer.cancel();
            return Ok(step);
        }
        _ => Status::Success,
    };
    writer.finish(&Response { status, extras_len: 4, ..response });
    Ok(step)
}

/// How documents go out to this client.
#[derive(Clone, Copy, Debug)]
struct Form {
    keys_only: bool,
    xattrs: Xattrs,
    negotiated: Datatype,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Xattrs {
    None,
    /// Without those of the system.
    User,
    All,
}

impl Form {
    fn of(call: &Call<'_, '_>, hold: &ScanHold) -> Self {
        let may_see_all = || call.session.require_in(Privilege::SystemXattrRead, hold.collection()).is_ok();
        Self {
            keys_only: hold.is_keys_only(),
            // It may have been created over another connection.
            xattrs: match hold.includes_xattrs() && call.session.has(Feature::Xattr) {
                false => Xattrs::None,
                true if may_see_all() => Xattrs::All,
                true => Xattrs::User,
            },
            negotiated: call.session.features.datatypes(),
        }
    }

    /// `None` when the stored value makes no sense.
    fn append(
        &self,
        key: &[u8],
        item: Option<&FeedItem>,
        out: &mut Vec<u8>,
        scratch: &mut Vec<u8>,
    ) -> Option<()> {
        let Some(item) = item else {
            append_scanned_key(key, out);
            return Some(());
        };
        let mut datatype = item.datatype;
        scratch.clear();
        let value = if self.xattrs == Xattrs::None || !datatype.contains(Datatype::XATTR) {
            value::plain_body(item.value(), &mut datatype, self.negotiated, scratch)?
        } else {
            self.with_xattrs(item.value(), &mut datatype, scratch)?
        };
        let datatype = Datatype(datatype.0 & self.negotiated.0);
        let FeedItem { flags, expiry, seqno, cas, .. } = *item;
        append_scanned_document(&ScannedMeta { flags, expiry, seqno, cas, datatype }, key, value, out);
        Some(())
    }

    /// A value with the extended attributes that the client may see.
    fn with_xattrs<'a>(
        &self,
        stored: &'a [u8],
        datatype: &mut Datatype,
        scratch: &'a mut Vec<u8>,
    ) -> Option<&'a [u8]> {
        let mut whole = stored;
        let mut inflated = Vec::new();
        if datatype.contains(Datatype::SNAPPY) {
            if !value::inflate(stored, &mut inflated) {
                return None;
            }
            *datatype = datatype.without(Datatype::SNAPPY);
            if self.xattrs == Xattrs::All {
                scratch.extend_from_slice(&inflated);
                return Some(scratch);
            }
            whole = &inflated;
        }
        if self.xattrs == Xattrs::All {
            return Some(stored);
        }
        let (blob, body) = xattr::Blob::split(whole).ok()?;
        let mut kept = xattr::Builder::from_blob(&blob);
        for (name, _) in blob.iter().filter(|(name, _)| xattr::Kind::of(name) == xattr::Kind::System) {
            kept.remove(name);
        }
        let kept = kept.finish();
        let (attributes, _) = xattr::Blob::split(&kept).ok()?;
        if attributes.is_empty() {
            *datatype = datatype.without(Datatype::XATTR);
        } else {
            scratch.extend_from_slice(&kept);
        }
        scratch.extend_from_slice(body);
        Some(scratch)
    }
}

/// RANGE_SCAN_CANCEL.
pub(crate) fn cancel(call: &mut Call<'_, '_>) -> Result<(), Stop> {
    let asked = ScanCancel::decode(call.request.frame.extras).ok_or(Stop::Status(Status::Invalid))?;
    let (bucket, vb, id) = (call.session.bucket()?, call.request.vb, ScanId(asked.id));
    let collection = bucket.engine.scan_collection(vb, id)?;
    // The scan of a collection that is dropped goes with it: there is no right left to ask for. One that may not be seen looks
    // dropped as well, but it is there.
    if bucket.engine.manifest().collection(collection).is_some() {
        call.session.require_in(Privilege::RangeScan, collection)?;
    }
    bucket.engine.cancel_scan(vb, id)?;
    call.answer_empty();
    Ok(())
}

/// `STAT range-scans`, of all vBuckets or one.
pub(crate) fn stats(
    bucket: &BucketEntry,
    vb: Option<base::VbId>,
    now: Now,
    pair: impl Fn(&str, String) -> (String, String),
) -> Vec<(String, String)> {
    let scans = bucket.engine.scans(vb, now);
    if vb.is_some() && scans.is_empty() {
        return Vec::new();
    }
    let mut pairs = vec![
        pair("max_duration", (range_scan::LIFETIME_MILLIS / 1000).to_string()),
        pair("max_scans", range_scan::SCANS_MAX.to_string()),
        pair("scans", scans.len().to_string()),
        pair("current_time", now.mono_millis.to_string()),
    ];
    for scan in scans {
        let prefix = format!("vb_{}:{}", scan.vb, uuid_text(scan.id));
        let CollectionId(collection) = scan.options.collection;
        for (name, value) in [
            ("age_ms", scan.age_millis.to_string()),
            ("vbuuid", scan.uuid.get().to_string()),
            ("collection", format!("{collection:x}")),
            ("key_value", if scan.options.keys_only { "key" } else { "value" }.to_owned()),
            ("state", scan.phase.to_owned()),
            ("total_keys", scan.items.to_string()),
            ("keys_read", scan.read.to_string()),
            ("values_from_disk", scan.from_disk.to_string()),
            ("bytes", scan.bytes.to_string()),
            ("name", scan.options.name.as_deref().unwrap_or_default().to_owned()),
        ] {
            pairs.push(pair(&format!("{prefix}:{name}"), value));
        }
    }
    pairs
}

/// As UUIDs are written.
fn uuid_text(ScanId(id): ScanId) -> String {
    let digits = format!("{id:032x}");
    let part = |from: usize, to: usize| digits.get(from..to).unwrap_or_default();
    [part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32)].join("-")
}
