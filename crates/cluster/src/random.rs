//! Random numbers from the numbers that the caller passes.

/// A generator. Each input of the machine adds a random number to its state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Random {
    state: [u64; 2],
}

fn mix(mut number: u64) -> u64 {
    // The finalizer of SplitMix64.
    number = (number ^ number >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    number = (number ^ number >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ number >> 31
}

impl Random {
    /// Adds a random number to the state.
    pub(crate) fn add(&mut self, number: u64) {
        self.state[0] = mix(self.state[0] ^ number);
        self.state[1] = mix(self.state[1].rotate_left(32) ^ number).wrapping_add(self.state[0]);
    }

    /// The next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.state[1] = self.state[1].wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.state[0] ^ mix(self.state[1]))
    }

    /// A number below a bound; 0 for the bound 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next().checked_rem(bound).unwrap_or_default()
    }
}
