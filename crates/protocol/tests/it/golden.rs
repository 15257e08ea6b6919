//! Golden files: the bytes of a message beside its readable form, so that a change of either is seen in review.
//!
//! The bytes come from the encoders, the readable form from the decoders. `SETTEE_REWRITE_GOLDEN=1` rewrites the
//! files; without it a difference fails the test.

mod dcp;
mod requests;
mod responses;
mod text;

use protocol::binary::{
    Decoded, Durability, Frame, FrameInfos, Impersonate, Magic, Opcode, ServerOpcode, decode_frame,
    subdoc::{SpecOp, SubdocRequest},
};
use std::{env, fmt::Write, fs, path::Path};

/// One message with a title.
struct Case {
    title: &'static str,
    bytes: Vec<u8>,
    readable: String,
}

impl Case {
    fn binary(title: &'static str, bytes: Vec<u8>) -> Self {
        let readable = describe_packet(&bytes);
        Self { title, bytes, readable }
    }
}

fn check(name: &str, cases: &[Case]) {
    let mut actual = String::new();
    for Case { title, bytes, readable } in cases {
        writeln!(actual, "== {title}").unwrap();
        for line in bytes.chunks(24) {
            let hex: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
            writeln!(actual, "{}", hex.join(" ")).unwrap();
        }
        writeln!(actual, "--\n{}", readable.trim_end()).unwrap();
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if env::var_os("SETTEE_REWRITE_GOLDEN").is_some() {
        fs::write(&path, &actual).unwrap();
        return;
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    for (number, (expected, actual)) in expected.lines().zip(actual.lines()).enumerate() {
        assert_eq!(expected, actual, "{name}, line {}", number + 1);
    }
    assert_eq!(expected.lines().count(), actual.lines().count(), "{name} has another number of lines");
}

fn describe_packet(bytes: &[u8]) -> String {
    let Decoded::Frame(frame) = decode_frame(bytes) else { panic!("not one packet: {bytes:02x?}") };
    assert_eq!(frame.packet_len(), bytes.len(), "more than one packet");
    let header = &frame.header;
    let mut out = format!("{:?} ", header.magic);
    match header.magic {
        Magic::ServerRequest | Magic::ServerResponse => {
            write!(out, "{:?}", ServerOpcode::from_wire(header.opcode).unwrap()).unwrap();
        }
        _ => out.push_str(Opcode::from_wire(header.opcode).unwrap().name()),
    }
    if header.magic.is_client_response() {
        write!(out, ", status {:?}", header.status().unwrap()).unwrap();
    } else {
        write!(out, ", vBucket {}", header.vbucket()).unwrap();
    }
    writeln!(out, ", datatype {}, opaque {:02x?}, CAS {}", header.datatype.0, header.opaque.0, header.cas)
        .unwrap();
    for (name, part) in [("extras", frame.extras), ("key", frame.key), ("value", frame.value)] {
        if !part.is_empty() {
            writeln!(out, "{name}: {}", readable(part)).unwrap();
        }
    }
    describe_subdoc(&frame, &mut out);
    if !frame.framing.bytes().is_empty() {
        writeln!(out, "framing: {}", describe_infos(frame.framing, header.magic, header.opcode)).unwrap();
    }
    out
}

fn describe_subdoc(frame: &Frame<'_>, out: &mut String) {
    let opcode = Opcode::from_wire(frame.header.opcode).filter(|&opcode| SpecOp::is_opcode(opcode));
    let Some(opcode) = opcode.filter(|_| frame.header.magic.is_client_request()) else { return };
    let request = SubdocRequest::decode(opcode, frame.extras, frame.value, frame.header.cas, true).unwrap();
    writeln!(out, "document flags {:02x}, expiry {}", request.doc.0, request.expiry).unwrap();
    for spec in request.specs() {
        let (path, value) = (readable(spec.path), readable(spec.value));
        writeln!(out, "{:?}, flags {:02x}, at `{path}`: {value}", spec.op, spec.flags.0).unwrap();
    }
}

fn describe_infos(infos: FrameInfos<'_>, magic: Magic, opcode: u8) -> String {
    if magic.is_client_response() {
        let duration = infos.parse_response().unwrap().server_duration.unwrap();
        return format!("the server took {:?}", duration.to_duration());
    }
    let info = infos.parse_request(Opcode::from_wire(opcode).unwrap()).unwrap();
    let mut out = Vec::new();
    if let Some(Durability { level, timeout_ms }) = info.durability {
        let timeout = timeout_ms.map_or("the server's".to_owned(), |ms| format!("{ms} ms"));
        out.push(format!("durability {level:?}, timeout {timeout}"));
    }
    if let Some(Impersonate { name, external }) = info.impersonate {
        let kind = if external { "external" } else { "local" };
        out.push(format!("as the {kind} user {}", readable(name)));
    }
    if info.preserve_ttl {
        out.push("keeps the expiry".to_owned());
    }
    if let Some(id) = info.stream_id {
        out.push(format!("stream {id}"));
    }
    assert!(!out.is_empty(), "a frame info that this function does not describe");
    out.join("; ")
}

/// Text as it is, everything else as an escape.
fn readable(bytes: &[u8]) -> String {
    let escape = |&byte: &u8| match byte {
        b' '..=b'~' => char::from(byte).to_string(),
        _ => byte.escape_ascii().to_string(),
    };
    bytes.iter().map(escape).collect()
}
