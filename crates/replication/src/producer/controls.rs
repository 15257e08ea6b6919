//! What a consumer sets with CONTROL: one function from key and text to a setting, with kv_engine's answers
//! (`docs/dcp/documentation/commands/control.md`, `DcpProducer::control`).
//!
//! A setting that merely permits something is accepted even where we make no use of it. What asks for something that is not built is refused, as change history (`change_streams`).

use base::{NodeId, Status};
use protocol::binary::{Violation, dcp::OpenFlags};

/// By which a node of ours says that it inflates what is packed; nobody else can say so.
pub const UNPACKS_CONTROL: &[u8] = b"settee_unpacks";

/// Shortest interval between two NOOPs, in seconds.
const NOOP_SECONDS_MIN: f32 = 1.0;
/// Longest one: three hours.
const NOOP_SECONDS_MAX: f32 = 10_800.0;

/// What the connection was before any setting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Negotiated {
    /// What OPEN asked for.
    pub flags: OpenFlags,
    /// Keys carry collections.
    pub collections: bool,
    /// Values may be compressed.
    pub snappy: bool,
    /// The node of this cluster that follows, if it is one.
    pub replica: Option<NodeId>,
}

/// Out-of-order snapshots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OutOfOrder {
    /// Never.
    #[default]
    No,
    /// If it helps.
    Yes,
    /// If it helps, with the seqno of the snapshot's end before its end.
    WithSeqnoAdvanced,
}

/// The priority that the consumer would like. All are treated alike.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Priority {
    /// Later.
    Low,
    /// As everybody.
    #[default]
    Medium,
    /// Earlier.
    High,
}

/// What was set, other than what flow control and dead-connection detection keep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Controls {
    /// Expirations have a message of their own.
    pub expiry_opcode: bool,
    /// A stream that the consumer closes ends with a message.
    pub end_closed_streams: bool,
    /// Several streams per vBucket, told apart by an id.
    pub stream_ids: bool,
    /// Values are sent compressed.
    pub force_compression: bool,
    /// Whether order may be given up.
    pub out_of_order: OutOfOrder,
    /// Snapshot markers of V2.2.
    pub marker_v22: bool,
    /// System events as tables, and modifications among them.
    pub flatbuffer_events: bool,
    /// Later backfills wait for earlier ones.
    pub sequential_backfills: bool,
    /// The priority.
    pub priority: Priority,
    /// Two newer statuses may be used in answers.
    pub v7_statuses: bool,
    /// Would rather not be sent back to the disk when it is slow.
    pub no_cursor_dropping: bool,
    /// Understands durable writes that are not complete.
    pub sync_writes: bool,
    /// Has a name that it would acknowledge such writes under.
    pub is_named: bool,
    /// Is a node of ours that inflates what is packed ([`super::packing`]).
    pub unpacks: bool,
}

/// What a CONTROL changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Something in [`Controls`], which has it already.
    Noted,
    /// The window of flow control.
    Window(u32),
    /// NOOPs on or off.
    Noop(bool),
    /// The interval between NOOPs.
    NoopMillis(u64),
}

const INVALID: Violation = Violation::invalid("Invalid control parameter");

const fn unsupported(context: &'static str) -> Violation {
    Violation { status: Status::NotSupported, context }
}

impl Controls {
    /// Carries out one CONTROL.
    ///
    /// # Errors
    /// "Invalid arguments" for what nobody knows, "not supported" for what we do not have.
    pub fn set(&mut self, key: &[u8], value: &[u8], negotiated: &Negotiated) -> Result<Change, Violation> {
        let on = value == b"true";
        match key {
            b"connection_buffer_size" => return Ok(Change::Window(number(value)?)),
            b"enable_noop" => return Ok(Change::Noop(on)),
            b"set_noop_interval" => return noop_interval(value),
            b"enable_expiry_opcode" => {
                // Expirations carry their time, which only consumers that asked for times understand.
                self.expiry_opcode = on && negotiated.flags.has(OpenFlags::INCLUDE_DELETE_TIMES);
            }
            b"send_stream_end_on_client_close_stream" => self.end_closed_streams |= on,
            b"enable_stream_id" if on => {
                if self.sync_writes {
                    return Err(unsupported("Stream ids and synchronous writes exclude each other"));
                }
                self.stream_ids = true;
            }
            b"force_value_compression" => {
                if !negotiated.snappy {
                    return Err(Violation::invalid("force_value_compression needs the datatype Snappy"));
                }
                self.force_compression = on;
            }
            b"enable_out_of_order_snapshots" => {
                self.out_of_order = match value {
                    b"true" => OutOfOrder::Yes,
                    b"true_with_seqno_advanced" => OutOfOrder::WithSeqnoAdvanced,
                    _ => return Err(INVALID),
                }
            }
            b"max_marker_version" if value == b"2.2" => {
                if !negotiated.collections {
                    return Err(unsupported("Markers of version 2.2 need collections"));
                }
                self.marker_v22 = true;
            }
            b"flatbuffers_system_events" if on => self.flatbuffer_events = true,
            b"backfill_order" => {
                self.sequential_backfills = match value {
                    b"round-robin" => false,
                    b"sequential" => true,
                    _ => return Err(Violation::invalid("Unsupported value for backfill_order")),
                }
            }
            b"set_priority" => {
                self.priority = match value {
                    b"high" => Priority::High,
                    b"medium" => Priority::Medium,
                    b"low" => Priority::Low,
                    _ => return Err(INVALID),
                }
            }
            b"supports_cursor_dropping" | b"supports_cursor_dropping_vulcan" => self.no_cursor_dropping = !on,
            b"v7_dcp_status_codes" if on => self.v7_statuses = true,
            // A datatype of the cache's that we have no use for.
            b"supports_hifi_MFU" => {}
            b"include_deleted_user_xattrs" if on => {
                if !negotiated.flags.has(OpenFlags::INCLUDE_DELETED_USER_XATTRS) {
                    return Err(Violation::invalid("The connection was opened without deleted user xattrs"));
                }
            }
            b"enable_sync_writes" if on => {
                if self.stream_ids {
                    return Err(unsupported("Stream ids and synchronous writes exclude each other"));
                }
                self.sync_writes = true;
            }
            b"consumer_name" if !value.is_empty() => self.is_named = true,
            UNPACKS_CONTROL if negotiated.replica.is_some() => self.unpacks = on,
            b"change_streams" if on => return Err(unsupported("Change history is not supported")),
            b"stream_buffer_size" => return Err(unsupported("stream_buffer_size is not supported")),
            b"cache_transfer" => return Err(unsupported("Cache transfer is not supported")),
            _ => return Err(INVALID),
        }
        Ok(Change::Noted)
    }
}

fn text(value: &[u8]) -> Result<&str, Violation> {
    std::str::from_utf8(value).map_err(|_| INVALID)
}

fn number(value: &[u8]) -> Result<u32, Violation> {
    text(value)?.parse().map_err(|_| INVALID)
}

fn noop_interval(value: &[u8]) -> Result<Change, Violation> {
    let seconds: f32 = text(value)?.parse().map_err(|_| INVALID)?;
    if !(NOOP_SECONDS_MIN..=NOOP_SECONDS_MAX).contains(&seconds) {
        return Err(Violation::invalid("set_noop_interval is out of range"));
    }
    Ok(Change::NoopMillis((seconds * 1000.0) as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(controls: &mut Controls, key: &str, value: &str) -> Result<Change, Status> {
        let flags = OpenFlags::PRODUCER.with(OpenFlags::INCLUDE_DELETE_TIMES);
        let negotiated = Negotiated { flags, collections: true, snappy: true, replica: None };
        controls.set(key.as_bytes(), value.as_bytes(), &negotiated).map_err(|violation| violation.status)
    }

    #[test]
    fn what_connectors_send_is_accepted() {
        let mut controls = Controls::default();
        assert_eq!(set(&mut controls, "connection_buffer_size", "20971520"), Ok(Change::Window(20_971_520)));
        assert_eq!(set(&mut controls, "enable_noop", "true"), Ok(Change::Noop(true)));
        assert_eq!(set(&mut controls, "enable_noop", "false"), Ok(Change::Noop(false)));
        assert_eq!(set(&mut controls, "set_noop_interval", "120"), Ok(Change::NoopMillis(120_000)));
        assert_eq!(set(&mut controls, "set_noop_interval", "1.5"), Ok(Change::NoopMillis(1_500)));
        for (key, value) in [
            ("set_priority", "high"),
            ("enable_expiry_opcode", "true"),
            ("enable_stream_id", "true"),
            ("enable_out_of_order_snapshots", "true_with_seqno_advanced"),
            ("backfill_order", "sequential"),
            ("max_marker_version", "2.2"),
            ("send_stream_end_on_client_close_stream", "true"),
            ("supports_cursor_dropping_vulcan", "true"),
            ("force_value_compression", "true"),
            ("flatbuffers_system_events", "true"),
            ("v7_dcp_status_codes", "true"),
            ("consumer_name", "x"),
        ] {
            assert_eq!(set(&mut controls, key, value), Ok(Change::Noted), "{key}");
        }
        let expected = Controls {
            expiry_opcode: true,
            end_closed_streams: true,
            stream_ids: true,
            force_compression: true,
            out_of_order: OutOfOrder::WithSeqnoAdvanced,
            marker_v22: true,
            flatbuffer_events: true,
            sequential_backfills: true,
            priority: Priority::High,
            v7_statuses: true,
            no_cursor_dropping: false,
            sync_writes: false,
            is_named: true,
            unpacks: false,
        };
        assert_eq!(controls, expected);
        assert_eq!(set(&mut controls, "send_stream_end_on_client_close_stream", "false"), Ok(Change::Noted));
        assert!(controls.end_closed_streams, "cannot be switched off");
    }

    #[test]
    fn what_is_not_built_is_not_supported_and_nonsense_is_invalid() {
        let mut controls = Controls::default();
        for (key, value) in
            [("cache_transfer", "true"), ("change_streams", "true"), ("stream_buffer_size", "1")]
        {
            assert_eq!(set(&mut controls, key, value), Err(Status::NotSupported), "{key}");
        }
        for (key, value) in [
            ("no_such_key", "true"),
            ("connection_buffer_size", "-1"),
            ("connection_buffer_size", "4294967296"),
            ("set_noop_interval", "0"),
            ("set_noop_interval", "NaN"),
            ("set_noop_interval", "10801"),
            ("set_priority", "urgent"),
            ("enable_stream_id", "false"),
            ("flatbuffers_system_events", "false"),
            ("change_streams", "false"),
            ("max_marker_version", "2.1"),
            ("backfill_order", "random"),
            ("include_deleted_user_xattrs", "true"),
            ("v7_dcp_status_codes", "false"),
            ("enable_sync_writes", "false"),
            ("settee_unpacks", "true"),
        ] {
            assert_eq!(set(&mut controls, key, value), Err(Status::Invalid), "{key}");
        }
        assert_eq!(controls, Controls::default());
    }

    #[test]
    fn stream_ids_and_synchronous_writes_exclude_each_other() {
        let mut controls = Controls::default();
        assert_eq!(set(&mut controls, "enable_sync_writes", "true"), Ok(Change::Noted));
        assert_eq!(set(&mut controls, "enable_stream_id", "true"), Err(Status::NotSupported));
        let mut controls = Controls::default();
        assert_eq!(set(&mut controls, "enable_stream_id", "true"), Ok(Change::Noted));
        assert_eq!(set(&mut controls, "enable_sync_writes", "true"), Err(Status::NotSupported));
    }

    #[test]
    fn settings_depend_on_what_was_negotiated() {
        let bare = Negotiated::default();
        let mut controls = Controls::default();
        let mut set =
            |key: &[u8], value: &[u8]| controls.set(key, value, &bare).map_err(|refused| refused.status);
        assert_eq!(set(b"force_value_compression", b"true"), Err(Status::Invalid));
        assert_eq!(set(b"max_marker_version", b"2.2"), Err(Status::NotSupported));
        assert_eq!(set(b"enable_expiry_opcode", b"true"), Ok(Change::Noted));
        assert!(!controls.expiry_opcode);
    }
}
