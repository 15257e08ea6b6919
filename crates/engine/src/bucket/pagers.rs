//! Where the pagers of a bucket are, and what they have learnt. What they do is in `crate::background`.

use crate::{
    memory::{
        hash_table::ScanPosition,
        item::{FREQUENCY_MAX, FREQUENCY_OCTAVE},
    },
    vbucket::{VBucket, version::FREQUENCY_INITIAL},
};

/// Where the walk is.
#[derive(Debug, Default)]
pub(crate) struct ExpiryPager {
    pub(crate) vb: u16,
    /// Within `vb`; none between vBuckets.
    pub(crate) position: Option<ScanPosition>,
    /// Per vBucket: when it may be walked for expiry again, in monotonic milliseconds. The date may be set back.
    pub(crate) rests_until: Vec<u64>,
}

/// Samples after which older ones count half.
const SAMPLES_MAX: u64 = 64 * 1024;

/// Samples needed before they are believed.
const SAMPLES_MIN: u64 = 256;

/// Uses per document in memory after which frequencies are halved.
pub(crate) const USES_PER_AGE: u64 = 16;

/// Where the pager is and what it has learnt.
#[derive(Debug)]
pub(crate) struct ItemPager {
    pub(crate) vb: u16,
    pub(crate) position: ScanPosition,
    /// The current vBucket's frequencies are halved on this walk.
    pub(crate) is_ageing: bool,
    /// Per vBucket: its uses when its frequencies were last halved.
    pub(crate) aged_at: Vec<u64>,
    /// Above the low watermark after having been above the high one.
    pub(crate) is_active: bool,
    /// Above the low watermark since then (monotonic milliseconds), or since nothing more could go.
    pub(crate) above_since: Option<u64>,
    /// Documents in the tables when it became active.
    pub(crate) documents: u64,
    /// Documents looked at since the last one went; an empty vBucket counts as one.
    pub(crate) fruitless: u64,
    /// Bytes that could go, by frequency, of the documents looked at.
    pub(crate) histogram: [u64; FREQUENCY_MAX as usize + 1],
    pub(crate) samples: u64,
    pub(crate) threshold: u8,
}

impl Default for ItemPager {
    fn default() -> Self {
        Self {
            vb: 0,
            position: ScanPosition::default(),
            is_ageing: false,
            aged_at: Vec::new(),
            is_active: false,
            above_since: None,
            documents: 0,
            fruitless: 0,
            histogram: [0; FREQUENCY_MAX as usize + 1],
            samples: 0,
            threshold: FREQUENCY_INITIAL,
        }
    }
}

impl ItemPager {
    /// A document with this frequency, of which so many bytes could go.
    pub(crate) fn sample(&mut self, frequency: u8, bytes: u64) {
        if let Some(sum) = self.histogram.get_mut(usize::from(frequency)) {
            *sum += bytes;
        }
        self.samples += 1;
        if self.samples >= SAMPLES_MAX {
            self.histogram.iter_mut().for_each(|sum| *sum /= 2);
            self.samples /= 2;
        }
    }

    /// Sets the threshold so that one lap frees about `excess` bytes.
    pub(crate) fn aim(&mut self, excess: u64) {
        if self.samples < SAMPLES_MIN {
            return;
        }
        let mut sum = 0_u64;
        for (frequency, &bytes) in self.histogram.iter().enumerate() {
            sum += bytes;
            let freed_per_lap = u128::from(sum) * u128::from(self.documents) / u128::from(self.samples);
            self.threshold = frequency as u8;
            if freed_per_lap >= u128::from(excess) {
                return;
            }
        }
    }

    /// A walk through a vBucket begins: whether frequencies are halved on it.
    pub(crate) fn begin_walk(&mut self, v: &VBucket) {
        let uses = v.ops.uses();
        let Some(aged_at) = self.aged_at.get_mut(usize::from(v.id.get())) else { return };
        let resident = v.counts.items - v.counts.non_resident;
        self.is_ageing = uses.saturating_sub(*aged_at) >= resident * USES_PER_AGE;
        if self.is_ageing {
            *aged_at = uses;
        }
    }

    /// The frequency of a document after the pager has passed it.
    pub(crate) fn aged(&self, frequency: u8) -> u8 {
        if self.is_ageing {
            // An octave less is half as many uses.
            frequency.saturating_sub(FREQUENCY_OCTAVE).max(frequency / 2)
        } else if frequency <= FREQUENCY_INITIAL {
            frequency.saturating_sub(1)
        } else {
            frequency
        }
    }
}
