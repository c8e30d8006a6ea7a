//! Rules of the protocol that tests and simulations can switch off. Without any one of them, the simulated world must violate an
//! invariant.

/// A rule that tests can switch off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rule {
    /// Role and slots of a stale header are ignored.
    StaleHeaders,
    /// A PONG that answers a PING of this moment shows the present role and slots of a node, also with an old epoch.
    PresentClaims,
    /// A message with a new vote, epoch or claim is sent only after the save that has it.
    SaveBeforeSend,
    /// If two primaries have the same epoch, one of them takes a new epoch.
    EpochCollision,
    /// Any node may claim a slot that its owner has given up.
    UnclaimedSlots,
    /// A claim with an old epoch is answered with an UPDATE.
    UpdateOldClaims,
    /// A slot changes its owner only for a greater epoch.
    GreaterEpochWins,
    /// A node has failed only if a majority reports it.
    FailureQuorum,
    /// A failure is that of an epoch. It ends once the node has won a newer one.
    FailureEpoch,
    /// Gossip doesn't bring forgotten nodes back.
    Blacklist,
    /// Handshakes end after a time.
    HandshakeTimeout,
    /// A node that does not know this one is sent another MEET.
    MeetAgain,
    /// A primary votes once in an epoch.
    OneVote,
    /// A vote counts only for the election of its own epoch.
    VoteEpoch,
    /// A failover takes the votes of a majority.
    VoteQuorum,
    /// A replica with newer data is elected first.
    OffsetRank,
    /// A replica with slots of an old epoch gets no vote.
    RequestedSlots,
    /// A replica that was never in step with its primary isn't elected.
    OwnData,
    /// A manual failover waits for the primary's last offset.
    PausedOffset,
    /// A manual failover ends once the primary takes writes again.
    PauseProof,
    /// A primary that shows older claims than others know is told of its own.
    OwnClaims,
    /// A primary without votes for its epoch yields to a node of its shard that has the same epoch.
    VotesWin,
    /// A replica tells nobody of slots that its primary has not claimed yet, and expects the claim for a time only.
    PromisedSlots,
    /// The target of a move keeps its slots if a failover of the source's shard has missed the end of the move.
    FinishedImports,
    /// A replica leaves out the epoch that its primary has taken at the end of an import, and may have told nobody.
    UnseenEpoch,
    /// The target of a move asks a majority for an epoch of its own before it claims slots.
    ReservedEpochs,
}

/// The rules in force: all of them outside of tests.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rules {
    #[cfg(any(test, feature = "testing"))]
    pub(crate) without: Option<Rule>,
}

impl Rules {
    /// True if a rule holds.
    #[cfg_attr(
        not(any(test, feature = "testing")),
        expect(clippy::unused_self, reason = "outside tests, all rules hold")
    )]
    pub(crate) fn hold(&self, rule: Rule) -> bool {
        #[cfg(any(test, feature = "testing"))]
        return self.without != Some(rule);
        #[cfg(not(any(test, feature = "testing")))]
        {
            let _ = rule;
            true
        }
    }
}
