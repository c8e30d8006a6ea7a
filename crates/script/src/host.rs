//! What a script needs of the world: the engine implements it.

/// Whether a script may go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It may.
    Go,
    /// It has to end, whatever it catches.
    End,
}

/// The world around a script that runs.
pub trait Host {
    /// Asked every now and then while a script runs, wherever it is: how long it has run, whether somebody wants it to
    /// end. It may serve others meanwhile, but run no script.
    fn poll(&mut self) -> Verdict;
}
