//! Mistakes that can be switched on while a program runs, to see whether the tests would find them. Without the
//! feature `planted` nothing is left of them.

macro_rules! bugs {
    ($($name:ident $text:literal,)*) => {
        /// A mistake that somebody could make.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Bug { $($name,)* }

        impl Bug {
            pub const ALL: &[Bug] = &[$(Bug::$name,)*];

            /// What is wrong when it is switched on.
            pub const fn text(self) -> &'static str {
                match self { $(Bug::$name => $text,)* }
            }
        }
    };
}

bugs! {
    NoCompare "the engine appends whatever position was expected",
    DeltaRepeats "a reader gets a record that it has seen already",
    CompactsTooMuch "a snapshot takes the place of one record more than it stands for",
    CompactsUnsynced "a snapshot takes the place of what is not durable yet",
    SnapshotShort "a snapshot lacks the newest lock",
    SnapshotWithoutQueue "a snapshot forgets who waits",
    SnapshotWithoutRequests "a snapshot forgets the answers by request id",
    SnapshotWithoutTokens "a snapshot forgets how far the fencing tokens have come",
    SnapshotWithoutQuota "a snapshot forgets what counts toward the quota",
    ForgottenSync "a grant is told before it is durable",
    TornTaken "a record of which the power loss left a part is taken for whole",
    FailedSyncTold "what waits for a sync that failed is told as granted",
    UnknownIsNothing "of an unknown outcome it is said that nothing was changed",
    NoConfirm "a list is told without a look at whether the ledger moved",
    BeatUnrecorded "a heartbeat is answered and not recorded",
    FullRefusesReleases "on a full disk releases are refused too",
    TokensFallBack "a rewritten ledger begins with the tokens that it still knows",
    LossUntold "who lost a lock with a rewritten ledger is told that nobody held it",
    RollbackForgetsLocks "what was tried and taken back leaves its locks behind",
    TokenReused "two grants of one moment get one token",
    RestoredTokenReused "what a restore brings back beside the first gets the token of the first",
    ExpiresEarly "a lock expires a millisecond early",
    RenewalIgnored "a renewal is answered and moves no expiry",
    RefreshIgnored "asking again for what is held moves no expiry",
    OwnerUnchecked "a lock is released and renewed by whoever asks",
    StaleTokenTaken "a stale fencing token does for the present one",
    StaleTokenReleasesAll "all that a session has is released and renewed with whatever token",
    LossUnnamed "a heartbeat does not name what was lost",
    HalfASet "of a set all but the last is granted",
    SetCheckedInPart "of a set only the first is checked for conflicts",
    WaiterCheckedInPart "a waiter gets its set when the first of it comes free",
    QueueJumped "a newcomer does not look at who waits",
    SecondWaitDemoted "who waits already comes behind everybody with the next that it asks for",
    LastComeFirst "what comes free goes to whoever came last",
    OverdueGranted "what comes free goes to somebody whose wait is over",
    DeadGranted "what comes free goes to a session that died",
    HandOverForgotten "what is released is not handed to who waits",
    ExpiryNotHandedOver "what expires is not handed to who waits",
    SharedOverlooked "an exclusive lock is granted beside shared ones",
    TreeOverlooked "a lock on a tree does not reach what is below",
    SpanEndOpen "the last line of a span is not part of it",
    RequestForgotten "the answer to a request id is not remembered",
    ReleaseForgotten "the answer to a release is not remembered for its request id",
    LossToldTwice "that something was lost is told once, and not again to the same request",
    RequestBodyIgnored "a request id is answered whatever its body says",
    CloseKeepsOne "closing a session keeps one of its locks",
    CycleOverlooked "nobody looks whether a wait closes a circle",
    StaleStamp "a lease begins before it was asked for, by as much as its server's clock lies behind",
    SweptLate "leases that ran out are ended three seconds later",
    LateCycleOverlooked "nobody looks whether a loss closes a circle of waits",
    PauseOverlooked "what is asked for a paused feature is granted",
    PausedInTheWay "who is paused keeps others waiting",
    PortsGivenTwice "ports are given that others have",
    FinishRenewed "a finish lives on with its session",
    QuotaOneMore "the quota lets one more through",
    QuotaIgnoresQueue "what is waited for does not count toward the quota",
    QuotaForgotten "grants to those who waited do not count toward the quota",
    RefusesFree "now and then something free is refused",
    SharedRefused "shared locks exclude each other",
    UpgradeUnchecked "from shared to exclusive nobody is asked",
}

#[cfg(feature = "planted")]
mod chosen {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::Bug;

    static CHOSEN: AtomicUsize = AtomicUsize::new(usize::MAX);

    /// Switches one mistake on, or all of them off.
    pub fn plant(bug: Option<Bug>) {
        CHOSEN.store(bug.map_or(usize::MAX, |bug| bug as usize), Ordering::SeqCst);
    }

    /// Whether this mistake is switched on.
    pub fn is(bug: Bug) -> bool {
        CHOSEN.load(Ordering::Relaxed) == bug as usize
    }
}

#[cfg(feature = "planted")]
pub use chosen::{is, plant};

/// No mistake can be switched on.
#[cfg(not(feature = "planted"))]
#[inline]
pub const fn is(_: Bug) -> bool {
    false
}
