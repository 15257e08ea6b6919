//! The generator's own random stream (SplitMix64), because its output must never change. The value of a
//! document is part of what users have stored, so no dependency may decide it.

/// One part of a document; each has a stream of its own, so that a part can be drawn without the others.
#[derive(Copy, Clone)]
pub(super) enum Part {
    Tags = 1,
    Similars = 2,
    Text = 3,
    Key = 4,
}

/// A stream of 64-bit words.
pub(super) struct Rng(u64);

/// SplitMix64's finaliser: a bijection of 64-bit words with full avalanche.
pub(super) const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Rng {
    /// The stream of one part of document `i`.
    pub(super) fn new(seed: u64, i: u64, part: Part) -> Rng {
        Rng(mix(mix(seed.wrapping_add((part as u64) << 56)) ^ i.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Uniform in `0..bound` (multiply-shift; the bias of 2^-64 × bound is far below any sampling error).
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// Uniform in the open interval (0, 1): a logarithm of it is finite.
    pub(super) fn unit(&mut self) -> f64 {
        ((self.next() >> 12) as f64 + 0.5) * (1.0 / (1u64 << 52) as f64)
    }

    /// Gamma with this shape (below 1) and mean 1, by the rejection of Ahrens and Dieter (1974).
    pub(super) fn gamma_mean_one(&mut self, shape: f64) -> f64 {
        let b = 1.0 + shape / std::f64::consts::E;
        loop {
            let p = b * self.unit();
            let accept = self.unit();
            if p <= 1.0 {
                let x = p.powf(1.0 / shape);
                if accept <= (-x).exp() {
                    return x / shape;
                }
            } else {
                let x = -((b - p) / shape).ln();
                if accept <= x.powf(shape - 1.0) {
                    return x / shape;
                }
            }
        }
    }

    /// Poisson by counting factors (Knuth): its cost is its result, and the caller walks the result anyway.
    /// Means are bounded at 600 so that the exponential stays above the smallest normal double.
    pub(super) fn poisson(&mut self, mean: f64) -> u32 {
        let floor = (-mean.min(600.0)).exp();
        let mut product = self.unit();
        let mut events = 0;
        while product > floor {
            product *= self.unit();
            events += 1;
        }
        events
    }
}
