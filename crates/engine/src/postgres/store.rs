//! One ledger in PostgreSQL: every question is one statement.

use std::sync::{Arc, Weak};
use std::time::Duration;

use lockkeeper_core::space::Space;
use lockkeeper_core::time::{Millis, Stamp};
use sha2::{Digest, Sha256};

use super::lines::Lines;
use super::notices::Notices;
use super::rows;
use crate::remote::{Answer, Bounds, Ear, Entry, Parts, Store, Trouble, hash};
use crate::{BatchId, EngineError, Position, Posting};

/// How much an answer with a part of a snapshot has, about.
const PART_BYTES: usize = 1 << 20;
/// As much time as it would be given for so many bytes: a switch removes all that the snapshot replaces.
const SWITCH_BYTES: usize = 30 << 20;

/// A document that changes takes as much time as so many bytes.
const POSTED_BYTES: usize = 64;

#[derive(Debug)]
pub(super) struct PostgresStore {
    /// For people.
    place: String,
    space: String,
    /// Stands for the space where something is told.
    tag: String,
    lines: Arc<Lines>,
    notices: Arc<Notices>,
}

impl PostgresStore {
    pub(super) fn new(lines: Arc<Lines>, notices: Arc<Notices>, space: &Space) -> PostgresStore {
        PostgresStore {
            place: format!("the ledger of {space} in {}", lines.dial.address),
            space: space.as_str().to_owned(),
            tag: hash(space.as_str().as_bytes()),
            lines,
            notices,
        }
    }

    fn read(&self, rows: &[tokio_postgres::Row]) -> Result<Answer, Trouble> {
        rows::read(rows).ok_or_else(|| {
            let details = "its functions answer what nobody understands".to_owned();
            Trouble::Lost(EngineError::Corrupt { place: self.place.clone(), details })
        })
    }
}

/// The place after a batch: PostgreSQL computes it as well.
pub(super) fn following(before: Position, batch: BatchId, stamp: Stamp, hash: &str) -> Position {
    let Position { epoch, revision, digest } = before;
    let mut chained = Sha256::new();
    chained.update(epoch.to_be_bytes());
    chained.update(digest.to_be_bytes());
    chained.update(batch.0.to_be_bytes());
    chained.update(stamp.time.0.to_be_bytes());
    chained.update(stamp.wall.to_be_bytes());
    let halves = |index: usize| u8::from_str_radix(hash.get(index..index + 2)?, 16).ok();
    chained.update((0..hash.len()).step_by(2).map_while(halves).collect::<Vec<u8>>());
    let sum: [u8; 32] = chained.finalize().into();
    let first = *sum.first_chunk().expect("the sum has 32 bytes");
    Position { epoch, revision: revision + 1, digest: u64::from_be_bytes(first) }
}

/// A position and the bounds of time, as PostgreSQL takes them: it has no unsigned numbers.
fn signed(at: Position, bounds: Bounds) -> [i64; 5] {
    [at.epoch, at.revision, at.digest, bounds.lower, bounds.upper].map(u64::cast_signed)
}

impl Store for PostgresStore {
    fn place(&self) -> &str {
        &self.place
    }

    fn following(before: Position, batch: BatchId, stamp: Stamp, hash: &str) -> Position {
        following(before, batch, stamp, hash)
    }

    async fn look(&self, at: Position, bounds: Bounds, budget: usize) -> Result<Answer, Trouble> {
        let ([epoch, revision, digest, lower, upper], budget) = (signed(at, bounds), budget as i64);
        // No more time for what may come back: most who ask find nothing new, and are not to wait for long if nobody answers.
        let asked = self.lines.ask(0, async |line| {
            line.client.query(&line.look, &[&self.space, &epoch, &revision, &digest, &lower, &upper, &budget]).await
        });
        self.read(&asked.await?)
    }

    async fn append(&self, at: Position, bounds: Bounds, entry: Entry<'_>) -> Result<Answer, Trouble> {
        let [epoch, revision, digest, lower, upper] = signed(at, bounds);
        let Stamp { time, wall } = entry.proposed;
        let batch = entry.id.0.to_be_bytes();
        let numbers = [time.0, wall, entry.log_bytes_max, entry.epoch.unwrap_or(0)].map(u64::cast_signed);
        let [time, wall, log_bytes_max, new_epoch] = numbers;
        let page = entry.page_bytes as i64;
        let ids: Vec<&str> = entry.posted.iter().map(|posted| posted.id.as_str()).collect();
        let changes = || entry.posted.iter().map(|posted| &posted.change);
        let lefts: Vec<Option<i64>> = changes().map(|change| left(change).map(micros)).collect();
        let documents: Vec<Option<&str>> = changes().map(document).collect();
        let (tokens, places): (Vec<Option<i64>>, Vec<Option<i64>>) = changes().map(token).unzip();
        let documents_bytes: usize = documents.iter().flatten().map(|document| document.len() + POSTED_BYTES).sum();
        let bytes = entry.payload.len() + documents_bytes + ids.len() * POSTED_BYTES;
        let asked = self.lines.ask(bytes, async |line| {
            let values: [&(dyn tokio_postgres::types::ToSql + Sync); 19] = [
                &self.space,
                &epoch,
                &revision,
                &digest,
                &lower,
                &upper,
                &page,
                &batch.as_slice(),
                &entry.payload,
                &entry.hash,
                &time,
                &wall,
                &log_bytes_max,
                &new_epoch,
                &ids,
                &lefts,
                &documents,
                &tokens,
                &places,
            ];
            line.client.query(&line.append, &values).await
        });
        self.read(&asked.await?)
    }

    async fn part(&self, name: &str, index: u64) -> Result<Option<Vec<u8>>, Trouble> {
        let sql = "select s.bytes from lockkeeper_snapshots s join lockkeeper_ledgers l on l.id = s.ledger
                   where l.space = $1 and s.name = $2 and s.part = $3";
        let index = index.cast_signed();
        let asked =
            self.lines.ask(PART_BYTES, async |line| line.client.query_opt(sql, &[&self.space, &name, &index]).await);
        Ok(asked.await?.map(|row| row.get(0)))
    }

    async fn store_part(&self, name: &str, index: u64, part: &[u8]) -> Result<(), Trouble> {
        let sql = "insert into lockkeeper_snapshots (ledger, name, part, bytes)
                   select l.id, $2, $3, $4 from lockkeeper_ledgers l where l.space = $1";
        let index = index.cast_signed();
        let asked = self
            .lines
            .ask(part.len(), async |line| line.client.execute(sql, &[&self.space, &name, &index, &part]).await);
        asked.await.map(|_| ())
    }

    async fn switch(&self, at: Position, bounds: Bounds, snapshot: &Parts) -> Result<Answer, Trouble> {
        let sql = "select * from lockkeeper_switch($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";
        let [epoch, revision, digest, lower, upper] = signed(at, bounds);
        let [count, bytes] = [snapshot.count, snapshot.bytes].map(u64::cast_signed);
        let asked = self.lines.ask(SWITCH_BYTES, async |line| {
            let (name, hash) = (&snapshot.name, &snapshot.hash);
            let values: [&(dyn tokio_postgres::types::ToSql + Sync); 10] =
                [&self.space, &epoch, &revision, &digest, &lower, &upper, name, &count, &bytes, hash];
            line.client.query(sql, &values).await
        });
        self.read(&asked.await?)
    }

    async fn discard(&self, name: &str) {
        let sql = "delete from lockkeeper_snapshots s using lockkeeper_ledgers l
                   where l.id = s.ledger and l.space = $1 and s.name = $2";
        let _ = self.lines.ask(0, async |line| line.client.execute(sql, &[&self.space, &name]).await).await;
    }

    async fn attend(&self, ear: Weak<dyn Ear>) {
        self.notices.listen(&self.tag, ear);
    }

    fn leave(&self, ear: &Weak<dyn Ear>) {
        self.notices.leave(&self.tag, ear);
    }

    fn announce(&self, end: Position) {
        self.notices.announce(&self.tag, end);
    }

    fn time_limit(&self) -> Duration {
        self.lines.dial.time_limit()
    }

    fn is_durable(&self) -> bool {
        self.lines.is_durable()
    }

    fn posts(&self) -> bool {
        true
    }
}

/// How much longer a document counts; `None`: no longer.
fn left(change: &Posting) -> Option<Millis> {
    match change {
        Posting::Granted { left, .. } | Posting::Lasts { left, .. } => Some(*left),
        Posting::Gone => None,
    }
}

fn document(change: &Posting) -> Option<&str> {
    match change {
        Posting::Granted { document, .. } => Some(document),
        Posting::Lasts { document, .. } => document.as_deref(),
        Posting::Gone => None,
    }
}

/// The fencing token of a grant, and how many came before it in its batch.
fn token(change: &Posting) -> (Option<i64>, Option<i64>) {
    match change {
        Posting::Granted { fencing_token, place, .. } => (Some(fencing_token.cast_signed()), Some(place.cast_signed())),
        Posting::Lasts { .. } | Posting::Gone => (None, None),
    }
}

fn micros(left: Millis) -> i64 {
    left.0.saturating_mul(1000).cast_signed()
}
