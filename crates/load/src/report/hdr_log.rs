//! HdrHistogram's log format 1.3: one line per interval and operation with the whole histogram, for its tools.

use crate::op::Class;
use crate::tally::{Interval, Latencies};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::serialization::{Serializer, V2DeflateSerializer};
use std::io::{self, Write};
use std::time::{SystemTime, UNIX_EPOCH};

/// The format gives the longest latency in milliseconds.
const NANOS_PER_MILLI: f64 = 1e6;

/// Writes intervals as they come. Endings other than success have tags of their own.
pub struct HdrLog<W> {
    out: W,
    interval: f64,
    serializer: V2DeflateSerializer,
}

impl<W: Write> HdrLog<W> {
    /// Begins a log of intervals of so many seconds.
    ///
    /// # Errors
    /// Writing failed.
    pub fn begin(mut out: W, interval: f64) -> io::Result<HdrLog<W>> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        writeln!(out, "#[Logged by settee load; values are nanoseconds]")?;
        writeln!(out, "#[Histogram log format version 1.3]")?;
        writeln!(out, "#[StartTime: {now:.3} (seconds since epoch)]")?;
        writeln!(out, "#[BaseTime: {now:.3} (seconds since epoch)]")?;
        writeln!(
            out,
            "\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\""
        )?;
        Ok(HdrLog { out, interval, serializer: V2DeflateSerializer::new() })
    }

    /// One more interval.
    ///
    /// # Errors
    /// Writing failed.
    pub fn add(&mut self, interval: &Interval) -> io::Result<()> {
        for (op, one) in interval.tally.ops() {
            for (class, latencies) in
                [(Class::Success, &one.ok), (Class::Miss, &one.miss), (Class::Failure, &one.failed)]
            {
                let suffix = match class {
                    Class::Success => "",
                    Class::Miss => "-miss",
                    Class::Failure => "-error",
                };
                self.line(&format!("{}{suffix}", op.name()), interval.index, latencies)?;
            }
        }
        self.out.flush()
    }

    fn line(&mut self, tag: &str, index: u64, latencies: &Latencies) -> io::Result<()> {
        let Some(histogram) = latencies.get() else { return Ok(()) };
        let mut bytes = Vec::new();
        self.serializer
            .serialize(histogram, &mut bytes)
            .map_err(|error| io::Error::other(error.to_string()))?;
        let (start, max) = (index as f64 * self.interval, histogram.max() as f64 / NANOS_PER_MILLI);
        writeln!(self.out, "Tag={tag},{start:.3},{:.3},{max:.3},{}", self.interval, STANDARD.encode(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Op;
    use crate::tally::Tally;
    use hdrhistogram::serialization::Deserializer;
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

    #[test]
    fn the_library_reads_it_back_exactly() {
        let mut tally = Tally::default();
        (0..1000).for_each(|i| tally.record(Op::Get, Class::Success, 1_000 * i));
        tally.record(Op::Get, Class::Miss, 5_000);
        let mut text = Vec::new();
        let mut log = HdrLog::begin(&mut text, 1.0).expect("written");
        log.add(&Interval { index: 3, tally: tally.clone() }).expect("written");
        let entries: Vec<_> = IntervalLogIterator::new(&text).collect::<Result<_, _>>().expect("a log");
        let intervals: Vec<_> = entries
            .iter()
            .filter_map(|entry| match entry {
                LogEntry::Interval(interval) => Some(interval),
                _ => None,
            })
            .collect();
        let tags: Vec<_> =
            intervals.iter().filter_map(|interval| interval.tag().map(|tag| tag.as_str())).collect();
        assert_eq!(tags, ["get", "get-miss"]);
        assert_eq!(intervals[0].start_timestamp().as_secs(), 3);
        let bytes = STANDARD.decode(intervals[0].encoded_histogram()).expect("base64");
        let histogram = Deserializer::new().deserialize::<u64, _>(&mut &bytes[..]).expect("a histogram");
        let (_, whole) = tally.ops().next().expect("an operation");
        assert_eq!(Some(&histogram), whole.ok.get());
    }
}
