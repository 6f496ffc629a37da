//! Numbers that the script of the fixtures makes too.

/// A linear congruential generator, as in `boxes/make.py`.
pub struct Numbers(pub u32);

#[allow(dead_code, reason = "each test file uses a part")]
impl Numbers {
    pub fn integer(&mut self, below: u32) -> u32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.0 >> 8) % below
    }

    pub fn share(&mut self) -> f32 {
        self.integer(1 << 24) as f32 / (1 << 24) as f32
    }

    pub fn spread(&mut self, count: usize, least: f32, width: f32) -> Vec<f32> {
        (0..count).map(|_| self.share() * width + least).collect()
    }

    /// Most are small.
    pub fn scores(&mut self, count: usize) -> Vec<f32> {
        self.spread(count, 0.0, 1.0).into_iter().map(|value| value * value * value * value).collect()
    }
}
