//! HELLO: which features of the protocol a connection uses.
//!
//! The request's value is a list of 16-bit codes, the response's value those that are granted; a repeated HELLO
//! replaces the earlier set. Every grant is a promise. So [`negotiate`] grants only what the server says it supports,
//! and never half of a pair that clients rely on together.

use crate::binary::Violation;
use base::Datatype;

macro_rules! features {
    ($($code:literal $name:ident $doc:literal;)*) => {
        /// A feature with its code on the wire.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u16)]
        pub enum Feature {
            $(#[doc = $doc] $name = $code,)*
        }

        impl Feature {
            /// Every feature that can be granted, by code.
            pub const ALL: &'static [Feature] = &[$(Feature::$name,)*];

            /// The feature with this code; `None` for unknown ones and those that are never granted (0x01,
            /// 0x02, 0x05, 0x09, 0x16).
            #[must_use]
            pub const fn from_wire(code: u16) -> Option<Feature> {
                match code {
                    $($code => Some(Feature::$name),)*
                    _ => None,
                }
            }
        }
    };
}

features! {
    0x03 TcpNoDelay "Switch Nagle's algorithm off.";
    0x04 MutationSeqno "Mutations answer with vBucket UUID and seqno.";
    0x06 Xattr "Extended attributes may be sent and shown.";
    0x07 Xerror "Statuses beyond the original ones may be sent, explained by the error map.";
    0x08 SelectBucket "SELECT_BUCKET is understood.";
    0x0a Snappy "Values may be compressed in both directions.";
    0x0b Json "The JSON bit of datatypes is set and shown.";
    0x0c Duplex "The server may send requests.";
    0x0d ClustermapChangeNotification "New cluster maps are pushed whole.";
    0x0e UnorderedExecution "Responses may overtake each other.";
    0x0f Tracing "Responses say how long the server took.";
    0x10 AltRequest "Flexible requests are understood.";
    0x11 SyncReplication "Durability requirements are understood.";
    0x12 Collections "Document keys carry a collection id.";
    0x13 SnappyEverywhere "Any response may be compressed.";
    0x14 PreserveTtl "Keeping the expiry can be asked for.";
    0x15 VAttr "Virtual attributes are understood.";
    0x17 SubdocCreateAsDeleted "Sub-document operations can create tombstones.";
    0x18 SubdocDocumentMacro "`$document` can be used in macros.";
    0x19 SubdocReplaceBodyWithXattr "A body can be replaced by an attribute.";
    0x1a ReportUnitUsage "Responses report metering units.";
    0x1b NonBlockingThrottling "Throttled commands fail instead of waiting.";
    0x1c SubdocReplicaRead "Sub-documents can be read from replicas.";
    0x1d ConfigWithKnownVersion "GET_CLUSTER_CONFIG takes the version that the client has.";
    0x1e DedupeNotMyVbucketMap "Not-my-vBucket responses omit a map that was sent before.";
    0x1f ClustermapChangeNotificationBrief "New cluster maps are announced by version.";
    0x20 SubdocMultipleXattrKeys "One sub-document operation can use several attributes.";
    0x21 SubdocBinaryXattr "Attributes can be binary.";
    0x22 RangeScanIncludeXattr "Range scans can include attributes.";
    0x23 SubdocReplicaReadDeleted "Tombstones can be read from replicas.";
    0x24 RandomKeyIncludeXattr "GET_RANDOM_KEY can include attributes.";
    0x25 MutateWithMeta "MUTATE_WITH_META is understood.";
    0x26 DcpSkipDeletesInBackfill "DCP can skip deletions in the initial backfill.";
}

impl Feature {
    /// What has to be asked for as well, or the request is refused (kv_engine `hello_packet_executor.cc`).
    const fn requires(self) -> FeatureSet {
        match self {
            Feature::ClustermapChangeNotification | Feature::ClustermapChangeNotificationBrief => {
                FeatureSet::EMPTY.with(Feature::Duplex)
            }
            Feature::VAttr | Feature::SubdocDocumentMacro | Feature::RangeScanIncludeXattr => {
                FeatureSet::EMPTY.with(Feature::Xattr)
            }
            Feature::RandomKeyIncludeXattr => {
                FeatureSet::EMPTY.with(Feature::Xattr).with(Feature::Json).with(Feature::SnappyEverywhere)
            }
            _ => FeatureSet::EMPTY,
        }
    }

    /// What has to be granted as well for this to be useful. Java's client never becomes ready when it is
    /// granted durability without the flexible requests that carry it.
    const fn useless_without(self) -> FeatureSet {
        match self {
            Feature::SyncReplication => FeatureSet::EMPTY.with(Feature::AltRequest),
            other => other.requires(),
        }
    }
}

/// A set of features.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FeatureSet(u64);

impl FeatureSet {
    /// No feature: what a connection has before HELLO.
    pub const EMPTY: FeatureSet = FeatureSet(0);

    /// These and one more.
    #[inline]
    #[must_use]
    pub const fn with(self, feature: Feature) -> Self {
        Self(self.0 | 1 << feature as u16)
    }

    /// These but one.
    #[inline]
    #[must_use]
    pub const fn without(self, feature: Feature) -> Self {
        Self(self.0 & !(1 << feature as u16))
    }

    /// Those in both.
    #[inline]
    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Whether it is in the set.
    #[inline]
    #[must_use]
    pub const fn contains(self, feature: Feature) -> bool {
        self.0 >> (feature as u16) & 1 == 1
    }

    /// Whether all of `other` are.
    #[inline]
    #[must_use]
    pub const fn contains_all(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Datatype bits that may appear on the connection, in both directions.
    #[inline]
    #[must_use]
    pub const fn datatypes(self) -> Datatype {
        let mut datatypes = Datatype::RAW;
        if self.contains(Feature::Json) {
            datatypes = datatypes.with(Datatype::JSON);
        }
        if self.contains(Feature::Snappy) || self.contains(Feature::SnappyEverywhere) {
            datatypes = datatypes.with(Datatype::SNAPPY);
        }
        if self.contains(Feature::Xattr) {
            datatypes = datatypes.with(Datatype::XATTR);
        }
        datatypes
    }

    /// The features in the set, by code.
    pub fn iter(self) -> impl Iterator<Item = Feature> {
        Feature::ALL.iter().copied().filter(move |&feature| self.contains(feature))
    }

    /// Appends the codes: the value of a HELLO request or response.
    pub fn encode(self, out: &mut Vec<u8>) {
        for feature in self.iter() {
            out.extend_from_slice(&(feature as u16).to_be_bytes());
        }
    }
}

impl FromIterator<Feature> for FeatureSet {
    fn from_iter<I: IntoIterator<Item = Feature>>(features: I) -> Self {
        features.into_iter().fold(FeatureSet::EMPTY, FeatureSet::with)
    }
}

/// The known features in the value of a HELLO; unknown codes are skipped.
///
/// # Errors
/// "Invalid arguments" if the value is not a list of 16-bit codes.
pub fn decode_features(value: &[u8]) -> Result<FeatureSet, Violation> {
    let (codes, rest) = value.as_chunks::<2>();
    if !rest.is_empty() {
        return Err(Violation::invalid("Request value must be of even length"));
    }
    Ok(codes.iter().filter_map(|code| Feature::from_wire(u16::from_be_bytes(*code))).collect())
}

/// What to grant of `requested` (the value of a HELLO) on a server that has `supported`.
///
/// # Errors
/// "Invalid arguments" if a feature is asked for without one it requires.
pub fn negotiate(requested: &[u8], supported: FeatureSet) -> Result<FeatureSet, Violation> {
    let requested = decode_features(requested)?;
    if let Some(feature) = requested.iter().find(|feature| !requested.contains_all(feature.requires())) {
        return Err(Violation::invalid(match feature {
            Feature::RandomKeyIncludeXattr => "The feature requires Xattr, Json and SnappyEverywhere",
            Feature::VAttr | Feature::SubdocDocumentMacro | Feature::RangeScanIncludeXattr => {
                "The feature requires Xattr"
            }
            _ => "The feature requires Duplex",
        }));
    }
    let mut granted = requested.intersection(supported);
    if granted.contains(Feature::ClustermapChangeNotificationBrief) {
        granted = granted.without(Feature::ClustermapChangeNotification);
    }
    let useful = granted;
    Ok(granted.iter().filter(|feature| useful.contains_all(feature.useless_without())).collect())
}

/// The sender that a HELLO names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientName {
    /// Name and version of the client library, made printable.
    pub agent: String,
    /// The client's own name for the connection, which both sides' logs share.
    pub connection_id: Option<String>,
}

/// Longest connection id that is kept; kv_engine's limit.
const CONNECTION_ID_BYTES_MAX: usize = 33;

impl ClientName {
    /// Reads the key of a HELLO: `{"a":"agent","i":"connection id"}` or free text.
    #[must_use]
    pub fn decode(key: &[u8]) -> Self {
        let printable = || {
            key.iter().map(|&byte| if byte.is_ascii_graphic() || byte == b' ' { byte as char } else { '.' })
        };
        let Ok(serde_json::Value::Object(object)) = serde_json::from_slice(key) else {
            return Self { agent: printable().collect(), connection_id: None };
        };
        let text = |name| object.get(name).and_then(serde_json::Value::as_str);
        Self {
            agent: text("a").unwrap_or_default().chars().filter(|c| !c.is_control()).collect(),
            connection_id: text("i").filter(|id| id.len() <= CONNECTION_ID_BYTES_MAX).map(str::to_owned),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Status;

    fn all() -> FeatureSet {
        Feature::ALL.iter().copied().collect()
    }

    fn ask(codes: &[u16], supported: FeatureSet) -> Result<Vec<u16>, Status> {
        let value: Vec<u8> = codes.iter().flat_map(|code| code.to_be_bytes()).collect();
        let granted = negotiate(&value, supported).map_err(Status::from)?;
        Ok(granted.iter().map(|feature| feature as u16).collect())
    }

    #[test]
    fn only_what_is_asked_known_and_supported_is_granted() {
        assert_eq!(ask(&[0x12, 0x07, 0x07, 0x1234], all()), Ok(vec![0x07, 0x12]));
        assert_eq!(ask(&[0x01, 0x02, 0x05, 0x09, 0x16], all()), Ok(vec![]));
        assert_eq!(ask(&[0x12, 0x07], all().without(Feature::Collections)), Ok(vec![0x07]));
        assert!(negotiate(&[0, 7, 0], all()).is_err());
    }

    #[test]
    fn requirements_are_enforced_on_the_request() {
        for code in [0x0d, 0x1f, 0x15, 0x18, 0x22, 0x24] {
            assert_eq!(ask(&[code], all()), Err(Status::Invalid), "{code:#x}");
        }
        assert_eq!(ask(&[0x0c, 0x0d, 0x1f], all()), Ok(vec![0x0c, 0x1f]));
        assert_eq!(ask(&[0x06, 0x15, 0x18], all()), Ok(vec![0x06, 0x15, 0x18]));
        assert_eq!(ask(&[0x06, 0x0b, 0x13, 0x24], all()), Ok(vec![0x06, 0x0b, 0x13, 0x24]));
    }

    #[test]
    fn nothing_is_granted_that_would_be_useless() {
        assert_eq!(ask(&[0x0c, 0x1f], all().without(Feature::Duplex)), Ok(vec![]));
        assert_eq!(ask(&[0x10, 0x11], all()), Ok(vec![0x10, 0x11]));
        assert_eq!(ask(&[0x10, 0x11], all().without(Feature::AltRequest)), Ok(vec![]));
        assert_eq!(ask(&[0x10, 0x11], all().without(Feature::SyncReplication)), Ok(vec![0x10]));
        let brief_unsupported = all().without(Feature::ClustermapChangeNotificationBrief);
        assert_eq!(ask(&[0x0c, 0x0d, 0x1f], brief_unsupported), Ok(vec![0x0c, 0x0d]));
    }

    #[test]
    fn datatypes_follow_the_features() {
        assert_eq!(FeatureSet::EMPTY.datatypes(), Datatype::RAW);
        assert_eq!(FeatureSet::EMPTY.with(Feature::SnappyEverywhere).datatypes(), Datatype::SNAPPY);
        assert_eq!(all().datatypes(), Datatype::ALL);
    }

    #[test]
    fn client_names_are_json_or_text_and_always_printable() {
        let json = ClientName::decode(br#"{"a":"gocb/2.11","i":"66388CF5/18CF"}"#);
        assert_eq!(
            (json.agent.as_str(), json.connection_id.as_deref()),
            ("gocb/2.11", Some("66388CF5/18CF"))
        );
        assert_eq!(ClientName::decode(b"old \xff\n").agent, "old ..");
        assert_eq!(ClientName::decode(b"{broken").agent, "{broken");
        let long = format!(r#"{{"a":"x","i":"{}"}}"#, "i".repeat(34));
        assert_eq!(ClientName::decode(long.as_bytes()).connection_id, None);
    }
}
