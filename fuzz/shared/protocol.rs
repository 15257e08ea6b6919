//! The targets of the `protocol` crate. Each takes any bytes, and decodes them every way a server or client would. It
//! asserts what must hold of whatever comes out.

#![allow(dead_code, reason = "every entry point compiles all targets and uses one")]

use std::ops::Bound;

use base::limits;
use protocol::{
    binary::{
        self, Decoded, Frame, FrameInfos, HEADER_BYTES, Header, Opcode, ResponseWriter,
        dcp::{self, DcpMessage, SystemEvent, SystemEventFormat},
        extras, observe,
        range_scan::{self, ScanConfig, ScanSelection},
        subdoc::{self, SpecOp, SubdocRequest},
        with_meta,
    },
    error_map,
    hello::{self, Feature, FeatureSet},
    sasl::{cram_md5::CramMd5Response, plain::Plain, scram},
    text::{self, Parsed},
};

/// A connection's stream of binary packets, seen from both sides.
pub(super) fn binary_frame(stream: &[u8]) {
    let mut rest = stream;
    loop {
        match binary::decode_frame(rest) {
            Decoded::Incomplete { need } => {
                assert!(need > rest.len(), "asked for bytes that are there");
                assert!(need <= HEADER_BYTES + limits::FRAME_BODY_BYTES_MAX);
                return;
            }
            Decoded::Fatal(_) => return,
            Decoded::Invalid(header) => {
                assert!(
                    usize::from(header.extras_len) + usize::from(header.key_len) > 0
                        || header.framing_len > 0
                );
                rest = &rest[header.packet_len()..];
            }
            Decoded::Frame(frame) => {
                check_frame(&frame, rest);
                rest = &rest[frame.packet_len()..];
            }
        }
    }
}

fn check_frame(frame: &Frame<'_>, bytes: &[u8]) {
    let parts = [frame.framing.bytes(), frame.extras, frame.key, frame.value];
    assert_eq!(parts.concat(), bytes[HEADER_BYTES..frame.packet_len()]);
    assert_eq!(frame.header.encode()[..], bytes[..HEADER_BYTES]);
    read_response(frame);
    let Some(opcode) = Opcode::from_wire(frame.header.opcode) else { return };
    let _ = frame.framing.parse_request(opcode);
    for features in [FeatureSet::EMPTY, Feature::ALL.iter().copied().collect()] {
        if binary::validate(opcode, frame, features).is_ok() {
            read_request(opcode, frame, features);
        }
    }
    answer(&frame.header);
}

/// What a handler reads after validation; the layouts that validation promises must be there.
fn read_request(opcode: Opcode, frame: &Frame<'_>, features: FeatureSet) {
    let collections = features.contains(Feature::Collections);
    if opcode.has_document_key() {
        let mut scratch = Vec::new();
        if let Ok(key) = binary::document_key(frame.key, collections, &mut scratch) {
            assert!(key.encoded().len() <= limits::ENCODED_KEY_BYTES_MAX && !key.logical().is_empty());
            assert!(frame.key.ends_with(key.logical()));
        }
    }
    match opcode.loud() {
        Opcode::Set | Opcode::Add | Opcode::Replace => {
            extras::StoreExtras::decode(frame.extras).expect("validated");
        }
        Opcode::Increment | Opcode::Decrement => {
            extras::CounterExtras::decode(frame.extras).expect("validated");
        }
        Opcode::Touch | Opcode::Gat => {
            extras::NumberExtras::decode(frame.extras).expect("validated");
        }
        Opcode::GetAllVbSeqnos => {
            extras::decode_all_vb_seqnos(frame.extras).expect("validated");
        }
        Opcode::GetRandomKey => {
            extras::decode_random_key(frame.extras).expect("validated");
        }
        Opcode::SeqnoPersistence => {
            extras::SeqnoExtras::decode(frame.extras).expect("validated");
        }
        Opcode::ObserveSeqno => {
            observe::decode_observe_seqno(frame.value).expect("validated");
        }
        Opcode::Observe => {
            let whole = observe::ObserveKeys::new(frame.value).filter_map(Result::ok);
            assert!(whole.map(|entry| 4 + entry.key.len()).sum::<usize>() <= frame.value.len());
        }
        Opcode::SetWithMeta | Opcode::AddWithMeta | Opcode::DelWithMeta => {
            if let Ok(decoded) = with_meta::WithMeta::decode(frame.extras, frame.value) {
                assert!(frame.value.starts_with(decoded.value));
            }
        }
        opcode if SpecOp::is_opcode(opcode) => {
            let arguments = (frame.extras, frame.value, frame.header.cas);
            if let Ok(request) =
                SubdocRequest::decode(opcode, arguments.0, arguments.1, arguments.2, collections)
            {
                check_subdoc(&request, frame.value);
            }
        }
        Opcode::RangeScanContinue => {
            range_scan::ScanContinue::decode(frame.extras).expect("validated");
        }
        Opcode::RangeScanCancel => {
            range_scan::ScanCancel::decode(frame.extras).expect("validated");
        }
        Opcode::GetErrorMap => {
            let version = frame.value.try_into().map(u16::from_be_bytes).expect("validated");
            let _ = error_map::error_map(version);
        }
        _ => {}
    }
}

/// Specs cover the value, and none is more than a request may have.
fn check_subdoc(request: &SubdocRequest<'_>, value: &[u8]) {
    let per_spec = match request.specs().next() {
        _ if !request.is_multi() => 0,
        Some(spec) if spec.op.mutates() => 8,
        _ => 4,
    };
    let lengths = request.specs().map(|spec| per_spec + spec.path.len() + spec.value.len());
    assert_eq!(lengths.sum::<usize>(), value.len());
    assert!((1..=subdoc::SPECS_MAX).contains(&request.specs().count()));
    for spec in request.specs() {
        assert!(spec.path.len() <= subdoc::PATH_BYTES_MAX);
        assert_eq!(spec.is_xattr(), spec.xattr_key().is_some());
    }
}

/// The value of a RANGE_SCAN_CREATE.
pub(super) fn range_scan(json: &[u8]) {
    let Ok(config) = ScanConfig::decode(json) else { return };
    assert!(!config.collection.is_reserved());
    assert!(!config.keys_only || !config.include_xattrs);
    assert!(config.name.is_none_or(|name| name.len() <= 50));
    if let ScanSelection::Range(start, end) = &config.selection {
        for bound in [start, end] {
            if let Bound::Included(key) | Bound::Excluded(key) = bound {
                assert!(key.len() <= limits::KEY_BYTES_MAX);
            }
        }
    }
}

/// An opcode, the length of the extras, extras, and the rest: the specs, or path and value.
pub(super) fn subdoc(bytes: &[u8]) {
    let [number, extras_len, ref rest @ ..] = *bytes else { return };
    let Some(opcode) = Opcode::from_wire(number) else { return };
    let (extras, value) = rest.split_at(rest.len().min(usize::from(extras_len)));
    for (cas, xattrs) in [(base::Cas::NONE, true), (base::Cas(1), false)] {
        if let Ok(request) = SubdocRequest::decode(opcode, extras, value, cas, xattrs) {
            check_subdoc(&request, value);
            let specs: Vec<_> = request.specs().collect();
            let encoded = match *specs {
                [spec] if !request.is_multi() => subdoc::encode_single(&spec, request.doc, None),
                _ => subdoc::encode_multi(&specs, request.doc, None),
            };
            assert_eq!(encoded.expect("decoded from as much").1, value);
        }
    }
    let lookups = subdoc::LookupResults(rest).map(|result| 6 + result.value.len());
    assert!(lookups.sum::<usize>() <= rest.len());
    let mutations = subdoc::MutationResults(rest).map(|result| 3 + result.value.len());
    assert!(mutations.sum::<usize>() <= rest.len());
}

/// What a client reads; nothing is promised, so only round trips are checked.
fn read_response(frame: &Frame<'_>) {
    let _ = (frame.header.status(), frame.framing.parse_response());
    let _ = observe::decode_observed(frame.value);
    if let Some(observed) = observe::ObservedSeqno::decode(frame.value) {
        let mut encoded = Vec::new();
        observed.append(&mut encoded);
        assert_eq!(encoded, frame.value);
    }
    if let Some(log) = observe::decode_failover_log(frame.value) {
        let mut encoded = Vec::new();
        observe::append_failover_log(&log, &mut encoded);
        assert_eq!(encoded, frame.value);
    }
    let _ = observe::decode_vb_seqnos(frame.value);
    let _ = extras::MutationToken::decode(frame.extras);
    let _ = extras::IdExtras::decode(frame.extras);
    let _ = extras::MetaExtras::decode(frame.extras);
}

/// A DCP connection's packets, from either side.
pub(super) fn dcp(stream: &[u8]) {
    let mut rest = stream;
    while let Decoded::Frame(frame) = binary::decode_frame(rest) {
        read_dcp_request(&frame);
        if let Some((head, message)) = DcpMessage::decode(&frame) {
            // Fields that mean nothing are written as zeros, so bytes may differ; what was read may not.
            let mut encoded = Vec::new();
            let length = message.append(&head, &mut encoded);
            assert_eq!(length, encoded.len());
            let Decoded::Frame(again) = binary::decode_frame(&encoded) else { panic!("{message:?}") };
            assert_eq!(DcpMessage::decode(&again), Some((head, message)));
            if let DcpMessage::SystemEvent { event, version, key, value, .. } = message
                && let Some(read) = SystemEvent::decode(event, version, key, value)
            {
                let mut encoded = Vec::new();
                read.append_value(SystemEventFormat::Plain, &mut encoded);
                assert_eq!((read.number(), encoded.as_slice()), (event, value));
            }
        }
        rest = &rest[frame.packet_len()..];
    }
}

fn read_dcp_request(frame: &Frame<'_>) {
    if let Some(open) = dcp::request::OpenExtras::decode(frame.extras) {
        let _ = (dcp::OpenFlags(open.flags).check(), dcp::request::check_open_value(frame.value));
    }
    if let Some(stream) = dcp::StreamRequest::decode(frame.extras) {
        assert_eq!(stream.encode(), frame.extras);
        let _ = dcp::StreamFlags(stream.flags).check();
    }
    if let Ok(filter) = dcp::StreamFilter::decode(frame.value) {
        assert!(filter.stream_id != Some(0) && (filter.collections.is_none() || filter.scope.is_none()));
        assert!(filter.collections.is_none_or(|ids| ids.is_sorted()));
    }
}

/// Whatever was asked, a response repeats opcode and opaque and can be decoded.
fn answer(request: &Header) {
    for traced in [false, true] {
        let mut out = Vec::new();
        let response = binary::Response::new(base::Status::KeyNotFound);
        let mut writer = ResponseWriter::begin(&mut out, request, traced);
        writer.body().extend_from_slice(b"Not found");
        writer.finish(&response);
        let Decoded::Frame(frame) = binary::decode_frame(&out) else { panic!("{out:?}") };
        assert_eq!((frame.header.opcode, frame.header.opaque), (request.opcode, request.opaque));
        assert_eq!((frame.packet_len(), frame.value), (out.len(), &b"Not found"[..]));
    }
}

/// An opcode, then framing extras.
pub(super) fn frame_infos(bytes: &[u8]) {
    let Some((&number, infos)) = bytes.split_first() else { return };
    let infos = FrameInfos::new(infos);
    let data: usize = infos.into_iter().filter_map(Result::ok).map(|(_, data)| data.len()).sum();
    assert!(data <= infos.bytes().len());
    let _ = infos.parse_response();
    let Some(opcode) = Opcode::from_wire(number) else { return };
    if let Ok(info) = infos.parse_request(opcode) {
        let mut encoded = Vec::new();
        info.encode(&mut encoded);
        assert_eq!(FrameInfos::new(&encoded).parse_request(opcode), Ok(info));
    }
}

/// A connection's stream of text commands.
pub(super) fn text(stream: &[u8]) {
    const VALUE_BYTES_MAX: usize = 512;
    let mut rest = stream;
    while !rest.is_empty() {
        let parsed = text::parse(rest, VALUE_BYTES_MAX);
        let (length, skip) = match parsed {
            Parsed::Incomplete { need } => {
                assert!(need > rest.len(), "asked for bytes that are there");
                return;
            }
            Parsed::Close { .. } => return,
            Parsed::Command { command, length } => {
                check_command(&command);
                (length, 0)
            }
            Parsed::Refused { reply, length, skip } => {
                assert!(reply.is_none_or(|reply| reply.ends_with(b"\r\n")));
                (length, skip)
            }
        };
        assert!(length > 0 && length <= rest.len());
        // What follows a command must not change it, and no part of it may be taken for the whole.
        assert_eq!(text::parse(&rest[..length], VALUE_BYTES_MAX), parsed);
        assert!(!matches!(
            text::parse(&rest[..length - 1], VALUE_BYTES_MAX),
            Parsed::Command { .. } | Parsed::Refused { .. }
        ));
        rest = &rest[length..];
        let skip = usize::try_from(skip).unwrap_or(usize::MAX);
        rest = rest.get(skip..).unwrap_or_default();
    }
}

fn check_command(command: &text::Command<'_>) {
    let is_key = |key: &[u8]| !key.is_empty() && key.len() <= limits::KEY_BYTES_MAX && !key.contains(&b' ');
    match *command {
        text::Command::Get { keys, .. } => assert!(keys.iter().next().is_some() && keys.iter().all(is_key)),
        text::Command::GetAndTouch { keys, expiry, .. } => {
            assert!(keys.iter().all(is_key));
            let _ = text::expiry_to_wire(expiry);
        }
        text::Command::Store { key, .. }
        | text::Command::Delete { key, .. }
        | text::Command::Counter { key, .. }
        | text::Command::Touch { key, .. } => assert!(is_key(key)),
        text::Command::FlushAll { .. }
        | text::Command::Version
        | text::Command::Verbosity { .. }
        | text::Command::Stats { .. }
        | text::Command::Quit => {}
    }
}

/// Key and value of a HELLO, the first byte being the length of the key.
pub(super) fn hello(bytes: &[u8]) {
    let Some((&key_len, rest)) = bytes.split_first() else { return };
    let (key, value) = rest.split_at(rest.len().min(usize::from(key_len)));
    let name = hello::ClientName::decode(key);
    assert!(!name.agent.chars().any(char::is_control));
    let everything: FeatureSet = Feature::ALL.iter().copied().collect();
    for supported in [FeatureSet::EMPTY, everything, everything.without(Feature::AltRequest)] {
        let Ok(granted) = hello::negotiate(value, supported) else { continue };
        let asked = hello::decode_features(value).expect("negotiated");
        assert!(asked.contains_all(granted) && supported.contains_all(granted));
        assert!(granted.contains(Feature::AltRequest) || !granted.contains(Feature::SyncReplication));
        let mut encoded = Vec::new();
        granted.encode(&mut encoded);
        assert_eq!(hello::negotiate(&encoded, supported), Ok(granted), "granting again changes nothing");
    }
}

/// Any message of any mechanism.
pub(super) fn sasl(message: &[u8]) {
    if let Ok(plain) = Plain::decode(message) {
        let length = plain.authorization_id.len() + plain.user.len() + plain.password.len();
        assert_eq!(length + 2, message.len());
    }
    if let Ok(response) = CramMd5Response::decode(message) {
        assert_eq!(response.encode().to_lowercase(), String::from_utf8_lossy(message).to_lowercase());
    }
    if let Ok(first) = scram::ClientFirst::decode(message) {
        assert!(!first.nonce.is_empty() && !first.nonce.contains(&b','));
        assert_eq!([first.gs2_header, first.bare].concat(), message);
        if let Ok(nonce) = str::from_utf8(first.nonce) {
            let again = scram::GS2_HEADER.to_owned() + &scram::ClientFirst::encode_bare(&first.user, nonce);
            let again = scram::ClientFirst::decode(again.as_bytes()).expect("encoded");
            assert_eq!((again.user, again.nonce), (first.user, first.nonce));
        }
    }
    if let Ok(first) = scram::ServerFirst::decode(message) {
        assert_eq!(scram::ServerFirst::decode(&first.encode()), Ok(first));
    }
    if let Ok(last) = scram::ClientFinal::decode(message) {
        assert_eq!(scram::ClientFinal::encode(last.without_proof, &last.proof), message);
    }
    let _ = scram::decode_server_final(message);
}
