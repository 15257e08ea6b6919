//! Which tags a track carries.
//!
//! A share of the tracks is of the *tagged class*. Each of those has a factor G, gamma distributed with mean 1. It
//! carries tag t when a Poisson process of rate λt·G has at least one event. That gives the long-tailed tags per track
//! of the published set. P(t | class) = 1 − (1 + λt/k)^−k has a closed inverse. So every λt is chosen so that the tag's
//! count in the full set equals its target exactly (in expectation). The targets of the ten most frequent tags are as
//! published. Below them the targets follow a power law. It is fitted so that the published number of (track, tag)
//! pairs and of unique tags both come out.

use super::FULL_SET;
use super::rng::{Part, Rng};

/// Share of tracks in the tagged class. Above the 53.6 % that show a tag: some of the class draw none.
const CLASS_SHARE: f64 = 0.5876;
/// Shape of the per-track factor.
const SHAPE: f64 = 0.8;
/// Tags on one track at most; the tail gives way, never the head.
pub(super) const TAGS_MAX: usize = 100;
/// What that limit costs the tail (0.497 % of its pairs, found by simulation), given back in its rates.
const LIMIT_COMPENSATION: f64 = 1.005;

/// The ten most frequent tags with their published counts.
pub(super) const HEAD: [(&str, u32); 10] = [
    ("rock", 101_071),
    ("pop", 69_159),
    ("alternative", 55_777),
    ("indie", 48_175),
    ("electronic", 46_270),
    ("female vocalists", 42_565),
    ("favorites", 39_921),
    ("Love", 34_901),
    ("dance", 33_618),
    ("00s", 31_432),
];
/// Position of "electronic" in [`HEAD`].
pub(super) const ELECTRONIC: usize = 4;

/// Tags below the head: tag `HEAD.len() + j` has about `31_000·((11 + q)/(11 + j + q))^s` tracks.
pub(super) const TAIL_TAGS: usize = 653_930;
const TAIL_SCALE: f64 = 31_000.0;
const TAIL_OFFSET: f64 = 31.1056;
const TAIL_EXPONENT: f64 = 1.10;

/// Cells of the guide table over the tail's cumulative rates (2^18, about two and a half tags a cell).
const GUIDE_BITS: u32 = 18;

/// The tags of a track from the head, and what drawing its tail needs.
pub(super) struct Head {
    bits: u16,
    /// The track's factor; zero outside the tagged class.
    factor: f64,
    rng: Rng,
}

impl Head {
    pub(super) fn has(&self, tag: usize) -> bool {
        self.bits & (1 << tag) != 0
    }
}

/// The calibrated rates.
pub(super) struct TagModel {
    head: [f64; HEAD.len()],
    /// Running sums of the tail's rates in fixed point (2^-44). So a difference in the last bit of one machine's
    /// `pow` does not change a draw.
    tail: Vec<u64>,
    guide: Vec<u32>,
    tail_rate: f64,
}

/// The rate that gives a tag this many of the full set's tracks.
fn rate(tracks: f64) -> f64 {
    let within_class = tracks / (FULL_SET as f64 * CLASS_SHARE);
    SHAPE * ((1.0 - within_class).powf(-1.0 / SHAPE) - 1.0)
}

/// How many tracks of the full set the tail's tag `j` has in expectation.
pub(super) fn tail_tracks(j: usize) -> f64 {
    let rank = (HEAD.len() + 1 + j) as f64;
    TAIL_SCALE * ((11.0 + TAIL_OFFSET) / (rank + TAIL_OFFSET)).powf(TAIL_EXPONENT)
}

impl TagModel {
    pub(super) fn published() -> TagModel {
        const ONE: f64 = (1u64 << 44) as f64;
        let mut sum = 0u64;
        let tail: Vec<u64> = (0..TAIL_TAGS)
            .map(|j| {
                sum += (rate(tail_tracks(j)) * LIMIT_COMPENSATION * ONE).round() as u64;
                sum
            })
            .collect();
        let guide = (0..1u64 << GUIDE_BITS)
            .map(|cell| {
                let start = ((u128::from(cell) * u128::from(sum)) >> GUIDE_BITS) as u64;
                tail.partition_point(|&upper| upper <= start) as u32
            })
            .collect();
        TagModel {
            head: HEAD.map(|(_, tracks)| rate(f64::from(tracks))),
            tail,
            guide,
            tail_rate: sum as f64 / ONE,
        }
    }

    /// Draws class, factor and head tags of track `i`.
    pub(super) fn head(&self, seed: u64, i: u64) -> Head {
        let mut rng = Rng::new(seed, i, Part::Tags);
        if rng.unit() >= CLASS_SHARE {
            return Head { bits: 0, factor: 0.0, rng };
        }
        let factor = rng.gamma_mean_one(SHAPE);
        let mut bits = 0;
        for (tag, rate) in self.head.iter().enumerate() {
            if rng.unit() < -(-rate * factor).exp_m1() {
                bits |= 1 << tag;
            }
        }
        Head { bits, factor, rng }
    }

    /// Draws all tags of track `i` into `tags`, distinct and in random order: numbers below `HEAD.len()` are
    /// the head's, the others the tail's. The stream is returned for the tags' weights.
    pub(super) fn draw(&self, seed: u64, i: u64, tags: &mut Vec<u32>) -> Rng {
        tags.clear();
        let head = self.head(seed, i);
        tags.extend((0..HEAD.len() as u32).filter(|&tag| head.has(tag as usize)));
        let Head { factor, mut rng, .. } = head;
        if factor > 0.0 {
            for _ in 0..rng.poisson(self.tail_rate * factor) {
                let tag = HEAD.len() as u32 + self.tail_tag(&mut rng);
                if tags.len() < TAGS_MAX && !tags.contains(&tag) {
                    tags.push(tag);
                }
            }
        }
        for last in (1..tags.len()).rev() {
            tags.swap(last, rng.below(last as u64 + 1) as usize);
        }
        rng
    }

    /// One tag of the tail, by inversion: the guide names the neighbourhood, a short search the tag.
    fn tail_tag(&self, rng: &mut Rng) -> u32 {
        let word = rng.next();
        let total = self.tail[TAIL_TAGS - 1];
        let at = ((u128::from(word) * u128::from(total)) >> 64) as u64;
        let cell = (word >> (64 - GUIDE_BITS)) as usize;
        let low = self.guide[cell] as usize;
        let high = self.guide.get(cell + 1).map_or(TAIL_TAGS, |&next| (next as usize + 1).min(TAIL_TAGS));
        (low + self.tail[low..high].partition_point(|&upper| upper <= at)) as u32
    }
}
