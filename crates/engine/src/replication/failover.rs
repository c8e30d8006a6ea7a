//! A failover that was asked for (FAILOVER): writes wait, a replica gets all that there is, and takes this server's place.

use super::Primary;

/// How far it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FailoverStage {
    /// A replica has yet to have everything.
    AwaitsReplica,
    /// This server follows the replica, which is asked to take its place.
    Follows,
}

/// A failover.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failover {
    /// The replica that is to take this server's place; any, if none is named.
    pub target: Option<Primary>,
    /// When it is given up, in milliseconds of Unix time, or done although the replica lacks something.
    pub deadline_ms: Option<u64>,
    /// Whether it is done then.
    pub is_forced: bool,
    /// How far it is.
    pub stage: FailoverStage,
}

impl Failover {
    /// As INFO says it.
    #[must_use]
    pub fn state_name(failover: Option<&Failover>) -> &'static str {
        match failover.map(|failover| failover.stage) {
            None => "no-failover",
            Some(FailoverStage::AwaitsReplica) => "waiting-for-sync",
            Some(FailoverStage::Follows) => "failover-in-progress",
        }
    }
}
