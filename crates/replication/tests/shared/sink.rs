//! What a producer writes into in tests: plain bytes, up to a limit.

use engine::SharedValue;
use settee_replication::producer::Sink;

pub(crate) struct Turn<'a> {
    pub(crate) bytes: &'a mut Vec<u8>,
    pub(crate) limit: usize,
}

impl Sink for Turn<'_> {
    fn buffer(&mut self) -> &mut Vec<u8> {
        self.bytes
    }

    fn attach(&mut self, value: SharedValue) {
        self.bytes.extend_from_slice(&value);
    }

    fn prefers_reference(&self, bytes: usize) -> bool {
        bytes > 1_000
    }

    fn is_full(&self) -> bool {
        self.bytes.len() >= self.limit
    }
}
