//! What kind of a day a seed has: how many take part, on what kind of ledger, and how often what goes wrong.

use fastrand::Rng;

/// A disk that takes no longer is waited for on the spot.
pub(crate) const SYNC_QUICK: u64 = 8;

/// What the ledger of a run is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One server at a time on a disk of its own: durable later than ordered, gone with the power, sometimes full.
    Disk,
    /// Several servers on one store that keeps what it acknowledged, behind a bad network.
    Shared,
    /// The same, but a failover may lose the last moments.
    Forgetful,
}

/// Chances are in thousandths, times in milliseconds.
#[derive(Clone, Debug)]
pub struct Weather {
    pub kind: Kind,
    pub servers: usize,
    pub clients: usize,
    pub length: u64,
    /// How long a client thinks between two requests, at most.
    pub thinking: u64,
    /// The longest way between client and server, and between server and ledger.
    pub way: u64,
    pub ledger_way: u64,
    pub request_lost: u64,
    pub answer_lost: u64,
    pub doubled: u64,
    /// Chance that a question that nobody waits for any more arrives all the same.
    pub lingering: u64,
    /// How far a server's idea of the ledger's time lies behind, at most.
    pub lag: u64,
    /// Whether the machine of all is suspended now and then, in place of one server.
    pub suspends: bool,
    pub ledger_down: u64,
    pub ledger_unknown: u64,
    /// The longest time until a server hears that the ledger moved.
    pub notice: u64,
    /// Mean time between two crashes of some server; zero: none.
    pub crashes: u64,
    pub power_loss: u64,
    pub downtime: u64,
    /// Mean time between two pauses of some server; zero: none.
    pub pauses: u64,
    /// Chance that a client is paused, suspended or dies instead of asking something.
    pub client_pauses: u64,
    pub client_deaths: u64,
    pub full_disk: u64,
    pub sync_fails: u64,
    /// How long a sync takes, at most.
    pub sync: u64,
    /// Mean time between two failovers; zero: none.
    pub failovers: u64,
    pub wall_jumps: bool,
    /// How coarse the engine's clock is, in microseconds.
    pub clock_step: u64,
    /// How much larger the log looks than it is, so that snapshots are taken.
    pub bytes_factor: u64,
    pub quota: u32,
    /// Whether a client asks for two things at once now and then, and waits for both.
    pub several: bool,
    /// How many files there are to fight for.
    pub files: usize,
    /// How many features are worked on, paused and finished.
    pub features: usize,
}

impl Weather {
    /// A day on which nothing goes wrong, and everybody writes to one ledger.
    pub fn fair() -> Weather {
        Weather {
            kind: Kind::Shared,
            servers: 0,
            clients: 0,
            length: 0,
            thinking: 0,
            way: 1,
            ledger_way: 1,
            request_lost: 0,
            answer_lost: 0,
            doubled: 0,
            lingering: 0,
            lag: 0,
            suspends: false,
            ledger_down: 0,
            ledger_unknown: 0,
            notice: 5,
            crashes: 0,
            power_loss: 0,
            downtime: 0,
            pauses: 0,
            client_pauses: 0,
            client_deaths: 0,
            full_disk: 0,
            sync_fails: 0,
            sync: SYNC_QUICK,
            failovers: 0,
            wall_jumps: false,
            clock_step: 1,
            bytes_factor: 1,
            quota: 0,
            several: false,
            files: 0,
            features: 0,
        }
    }

    pub fn draw(rng: &mut Rng) -> Weather {
        let kind = match rng.u8(..20) {
            0..9 => Kind::Disk,
            9..17 => Kind::Shared,
            _ => Kind::Forgetful,
        };
        let calm = rng.u8(..10) == 0;
        let mut chance = |most: u64| if calm || rng.bool() { 0 } else { rng.u64(..=most) };
        let (request_lost, answer_lost, doubled) = (chance(80), chance(80), chance(100));
        let (ledger_down, ledger_unknown) = (chance(60), chance(100));
        let (client_pauses, client_deaths) = (chance(40), chance(25));
        let (full_disk, sync_fails) = (chance(300), chance(8));
        let (power_loss, notice) = (chance(1000), chance(900));
        let mut sometimes = |least: u64, most: u64| if calm || rng.bool() { 0 } else { rng.u64(least..most) };
        let (crashes, pauses, failovers) = (sometimes(1500, 15_000), sometimes(2000, 15_000), sometimes(3000, 12_000));
        // Now and then nobody is there for so long that whoever waited counts as dead.
        let long_night = rng.u8(..6) == 0;
        // Drawn beside the others: a day without features is what it was.
        let mut aside = Rng::with_seed(!rng.clone().u64(..));
        let with_features = aside.u8(..3) == 0;
        let features = if with_features { aside.usize(1..=2) } else { 0 };
        let lingering = if calm || aside.bool() { 0 } else { aside.u64(..=500) };
        let lag = if calm || kind == Kind::Disk || aside.bool() { 0 } else { aside.u64(..=300) };
        let suspends = !calm && aside.u8(..3) == 0;
        let crowded = aside.u8(..25) == 0;
        let slow_disk = !calm && aside.u8(..3) == 0;
        let slow_sync = aside.u64(20..400);
        let several = aside.u8(..3) == 0;
        let small_quota = (several && aside.bool()).then(|| aside.u32(2..6));
        Weather {
            kind,
            servers: if kind == Kind::Disk { 1 } else { rng.usize(2..=4) },
            clients: rng.usize(3..=6) + if crowded { 15 } else { 0 },
            length: if long_night { 90_000 } else { rng.u64(15_000..40_000) },
            thinking: if long_night { 1500 } else { rng.u64(100..900) },
            way: rng.u64(1..30),
            ledger_way: rng.u64(1..20),
            request_lost,
            answer_lost,
            doubled,
            lingering,
            lag,
            suspends,
            ledger_down: if kind == Kind::Disk { 0 } else { ledger_down },
            ledger_unknown: if kind == Kind::Disk { 0 } else { ledger_unknown },
            notice: notice + 1,
            crashes,
            power_loss,
            downtime: if long_night { 45_000 } else { rng.u64(50..4000) },
            pauses,
            client_pauses,
            client_deaths,
            full_disk: if kind == Kind::Disk { full_disk } else { 0 },
            sync_fails: if kind == Kind::Disk { sync_fails } else { 0 },
            sync: if slow_disk { slow_sync } else { SYNC_QUICK },
            failovers: if kind == Kind::Forgetful { failovers } else { 0 },
            wall_jumps: rng.bool(),
            // No coarser than the hundredth that holders allow for.
            clock_step: if rng.u8(..4) == 0 { 5_000 } else { 1 },
            bytes_factor: if rng.bool() { rng.u64(200..3000) } else { 1 },
            quota: small_quota.unwrap_or(if rng.u8(..5) == 0 { rng.u32(5..30) } else { 0 }),
            several,
            files: rng.usize(1..=3),
            features,
        }
    }
}
